"""Where EM for a Gaussian mixture begins.

``init_params`` means what it means in scikit-learn: it names responsibilities, and an
M-step on them gives weights, means and covariances, each replaced by what the user
gives. :func:`gaussian_start` is the start of the textbooks: uniform weights, means at
rows, and the covariance of all rows for every component.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from sklearn.utils import check_array, check_random_state

from certus import config
from certus.base import check_choice, check_number
from certus.blocks import is_blocks
from certus.cluster.kmeans import KMeans
from certus.cluster.seeding import kmeans_plusplus
from certus.mixture import by_blocks
from certus.mixture.covariances import (
    KINDS,
    Components,
    MixtureSums,
    Singular,
    add_to_diagonal,
    expand,
    inverse_roots,
    is_matrix,
    maximise,
    new_means,
    public_shape,
    sums_of,
)
from certus.typing import Array

METHODS = ("kmeans", "k-means++", "random", "random_from_data")


def first_components(model: Any, X: Array, random: Any) -> Components:
    """Weights, means and covariances before the first E-step."""
    kind, (k, d) = model.covariance_type, (int(model.n_components), X.shape[1])
    given = _given(model, k, d)
    if len(given) == 3:
        precisions = given["precisions"]
        return Components(
            given["weights"],
            given["means"],
            _inverses(precisions),
            np.ascontiguousarray(_roots_of(precisions)),
        )
    reg = float(model.reg_covar)
    if is_blocks(X):
        given_sums = by_blocks.first_sums(
            X, k, model.init_params, random, is_matrix(kind)
        )
        theta = from_sums(*given_sums, k, kind, reg)
    else:
        R = responsibilities(X, k, model.init_params, random)
        theta = from_responsibilities(X, R, kind, reg)
    if "precisions" in given:
        roots = np.ascontiguousarray(_roots_of(given["precisions"]))
        theta = theta._replace(covariances=_inverses(given["precisions"]), roots=roots)
    weights = given.get("weights", theta.weights)
    return theta._replace(weights=weights, means=given.get("means", theta.means))


def responsibilities(X: Array, k: int, method: str, random: Any) -> Array:
    """Rows × components, by one of scikit-learn's four methods."""
    n = X.shape[0]
    if method == "random":
        R = random.uniform(size=(n, k))
        return np.asarray(R / R.sum(axis=1, keepdims=True))
    R = np.zeros((n, k))
    if method == "kmeans":
        R[np.arange(n), _cluster(X, k, random)] = 1.0
    elif method == "random_from_data":
        R[random.choice(n, size=k, replace=False), np.arange(k)] = 1.0
    else:
        R[kmeans_plusplus(X, k, random_state=random)[1], np.arange(k)] = 1.0
    return R


def _cluster(X: Array, k: int, random: Any) -> Array:
    """Labels by k-means, without a certificate."""
    with config.config_context(certify="never"):
        return np.asarray(KMeans(k, n_init=1, random_state=random).fit(X).labels_)


def from_responsibilities(
    X: Array, R: Array, kind: str, reg_covar: float
) -> Components:
    """An M-step on responsibilities; components without rows begin at the mean."""
    mean = np.asarray(np.mean(X, axis=0, dtype=np.float64))

    def sums(about: Array) -> MixtureSums:
        return sums_of(X, R, about, is_matrix(kind))

    return from_sums(sums, mean, R.shape[1], kind, reg_covar)


def from_sums(
    sums: Callable[[Array], MixtureSums],
    mean: Array,
    k: int,
    kind: str,
    reg_covar: float,
) -> Components:
    """An M-step from its sums about any points; ``mean`` is that of all rows."""
    d, matrix = len(mean), is_matrix(kind)
    middle = np.repeat(mean[None], k, axis=0)
    around = np.ones((k, d)) if not matrix else np.repeat(np.eye(d)[None], k, axis=0)
    nothing = Components(np.zeros(k), middle, around, around)
    means = new_means(sums(middle), middle)
    try:
        return maximise(sums(means), kind, reg_covar, nothing)
    except Singular as error:
        raise ValueError(
            f"Component {error.component} starts with a singular covariance: it has "
            "too few rows, or its rows are equal or linearly dependent. Raise "
            f"reg_covar (now {reg_covar:g}), lower n_components, standardise the "
            "columns, or start from certus.mixture.gaussian_start."
        ) from None


# -- what the user gives ----------------------------------------------------------


def _given(model: Any, k: int, d: int) -> dict[str, Array]:
    """Checked ``weights_init``, ``means_init`` and ``precisions_init``."""
    found: dict[str, Array] = {}
    if model.weights_init is not None:
        weights = _numbers("weights_init", model.weights_init, (k,))
        if (weights < 0).any() or not np.isclose(weights.sum(), 1.0):
            raise ValueError(
                "weights_init must be non-negative and sum to 1; the sum is "
                f"{weights.sum():g}."
            )
        found["weights"] = weights
    if model.means_init is not None:
        found["means"] = _numbers("means_init", model.means_init, (k, d))
    if model.precisions_init is not None:
        kind = model.covariance_type
        shape = public_shape(kind, k, d)
        values = _numbers("precisions_init", model.precisions_init, shape)
        found["precisions"] = expand(values, kind, k, d)
        try:
            _roots_of(found["precisions"])
        except Singular as error:
            raise ValueError(
                f"precisions_init of component {error.component} is not symmetric and "
                "positive definite."
            ) from None
    return found


def _numbers(name: str, values: Any, shape: tuple[int, ...]) -> Array:
    array = np.array(values, dtype=np.float64)
    if array.shape != shape:
        raise ValueError(f"{name} must have shape {shape}, got {array.shape}.")
    if not np.isfinite(array).all():
        raise ValueError(f"{name} holds NaN or infinite values.")
    return array


def _roots_of(precisions: Array) -> Array:
    """U, upper triangular, with precision = UUᵀ."""
    if precisions.ndim == 2:
        bad = ~(precisions > 0).all(axis=1)
        if bad.any():
            raise Singular(int(np.argmax(bad)))
        return np.asarray(np.sqrt(precisions))
    roots = np.empty_like(precisions)
    for k, precision in enumerate(precisions):
        if not np.allclose(precision, precision.T):
            raise Singular(k)
        try:
            lower = np.linalg.cholesky(precision[::-1, ::-1])
        except np.linalg.LinAlgError:
            raise Singular(k) from None
        roots[k] = lower[::-1, ::-1]
    return roots


def _inverses(precisions: Array) -> Array:
    if precisions.ndim == 2:
        return np.asarray(1.0 / precisions)
    return np.asarray(np.linalg.inv(precisions))


def gaussian_start(
    X: Any,
    n_components: int,
    *,
    covariance_type: str = "full",
    means: str = "k-means++",
    reg_covar: float = 1e-6,
    random_state: Any = None,
) -> dict[str, Array]:
    """Uniform weights, means at rows, the covariance of all rows.

    Parameters
    ----------
    X : array-like of shape (n_samples, n_features)
        The rows to be fitted.
    n_components : int
        How many components.
    covariance_type : {"full", "tied", "diag", "spherical"}, default="full"
        As in :class:`certus.mixture.GaussianMixture`.
    means : {"k-means++", "random"}, default="k-means++"
        Rows far apart, or rows drawn at random.
    reg_covar : float, default=1e-6
        Added to the variances.
    random_state : int, RandomState or None, default=None
        Seed or generator of all random numbers. They decide the rows.

    Returns
    -------
    dict
        ``weights_init``, ``means_init`` and ``precisions_init``, to be passed on.

    Examples
    --------
    >>> from certus.mixture import GaussianMixture, gaussian_start
    >>> X = [[0.0], [1.0], [10.0], [11.0]]
    >>> start = gaussian_start(X, 2, random_state=0)
    >>> start["weights_init"]
    array([0.5, 0.5])
    >>> model = GaussianMixture(2, **start).fit(X)
    """
    check_number("n_components", n_components, 1, integer=True)
    check_number("reg_covar", reg_covar)
    check_choice("covariance_type", covariance_type, KINDS)
    check_choice("means", means, ("k-means++", "random"))
    X = check_array(X, dtype=[np.float64, np.float32], ensure_min_samples=2)
    n = X.shape[0]
    if n < n_components:
        raise ValueError(
            f"There are fewer rows ({n}) than n_components={n_components}."
        )
    random = check_random_state(random_state)
    if means == "random":
        rows = random.choice(n, size=n_components, replace=False)
    else:
        rows = kmeans_plusplus(X, n_components, random_state=random)[1]
    centred = X - np.mean(X, axis=0, dtype=np.float64)
    if not np.abs(centred).max() < 1e150:
        raise ValueError(
            "The squares of X are too large for float64. Standardise the columns "
            "(StandardScaler)."
        )
    if is_matrix(covariance_type):
        one = (centred.T @ centred / n)[None]
    else:
        one = np.square(centred).mean(axis=0)[None]
        if covariance_type == "spherical":
            one = np.full_like(one, one.mean())
    try:
        root = inverse_roots(add_to_diagonal(one, reg_covar))[0]
    except Singular:
        raise ValueError(
            "The covariance of the rows is singular: columns are constant or linearly "
            f"dependent. Raise reg_covar (now {reg_covar:g}) or drop columns."
        ) from None
    precision = root @ root.T if root.ndim == 2 else root**2
    k = n_components
    shaped = {
        "full": lambda: np.repeat(precision[None], k, axis=0),
        "tied": lambda: precision,
        "diag": lambda: np.repeat(precision[None], k, axis=0),
        "spherical": lambda: np.full(k, precision[0]),
    }
    return {
        "weights_init": np.full(k, 1.0 / k),
        "means_init": X[rows].astype(np.float64),
        "precisions_init": shaped[covariance_type](),
    }
