"""Increasing triangular maps: densities, inverses and samples, column by column.

    x_j = T_j(z_1, …, z_j),  ∂T_j/∂z_j > 0   ⇒   log abs det ∇T = Σ_j log ∂T_j/∂z_j
    log p(x) = log r(z) − Σ_j log ∂T_j/∂z_j at z = T⁻¹(x), r the density of N(0, I)

The Jacobian is lower triangular, so the determinant costs d products, and T is inverted
one column after the other, by bisection. For each density p exactly one of them has
T#r = p (Knothe and Rosenblatt): T_j is the quantile of x_j given x_1 … x_{j−1}, as an
autoregressive model states it. For a Gaussian it is z ↦ μ + Lz with the Cholesky factor
L; for a Gaussian mixture the conditional distributions are mixtures.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from scipy.special import log_ndtr, logsumexp, ndtri_exp

from certus.base import check_number, generator_of
from certus.generative.inputs import finite_array, rows
from certus.generative.mixtures import NoisedMixture
from certus.generative.quantiles import bisect
from certus.typing import Array, ArrayLike, MatrixLike, RandomState

#: ``component(before, z)``: T_j from the columns before it and its own column.
Component = Callable[[Array, Array], Any]
#: Steps of differences, as a share of 1 + abs(z): for one Richardson step.
STEP = 1e-3
LOG_2PI = float(np.log(2 * np.pi))


class TriangularMap:
    """An increasing triangular map between noise z and data x.

    Parameters
    ----------
    components : list of callable
        One for each column. ``components[j](before, z)`` takes the first j columns, of
        shape (n, j), and column j, of shape (n,), and increases in the latter.
    derivatives : list of callable, optional
        ∂T_j/∂z_j, with the same arguments. None means differences.
    inverted : bool, default=False
        Whether the components describe the way from data to noise.

    Examples
    --------
    >>> import numpy as np
    >>> from certus.generative import TriangularMap
    >>> T = TriangularMap([lambda before, z: z**3 + z,
    ...                    lambda before, z: before[:, 0] ** 2 + np.exp(z)])
    >>> x = T.transform([[1.0, 0.5]])
    >>> x.round(4), T.inverse(x).round(12)
    (array([[2.    , 2.6487]]), array([[1. , 0.5]]))
    """

    def __init__(
        self,
        components: Sequence[Component],
        *,
        derivatives: Sequence[Component] | None = None,
        inverted: bool = False,
    ) -> None:
        if not components:
            raise ValueError("components must have one function for each column.")
        if derivatives is not None and len(derivatives) != len(components):
            raise ValueError(
                f"derivatives must have one function for each of {len(components)} "
                f"components, got {len(derivatives)}."
            )
        self.components, self.inverted = list(components), inverted
        self.derivatives = None if derivatives is None else list(derivatives)

    def transform(self, Z: MatrixLike) -> Array:
        """T(z) for each row: noise becomes data."""
        return self._solve("Z", Z) if self.inverted else self._apply("Z", Z)

    def inverse(self, X: MatrixLike) -> Array:
        """T⁻¹(x) for each row: data becomes noise."""
        return self._apply("X", X) if self.inverted else self._solve("X", X)

    def log_det(self, Z: MatrixLike) -> Array:
        """The log determinant of ∇T at each row of noise: a sum over d columns."""
        if self.inverted:
            return -self._log_slopes(self.transform(Z)).sum(axis=1)
        return self._log_slopes(rows("Z", Z, len(self.components))).sum(axis=1)

    def jacobian(self, Z: MatrixLike) -> Array:
        """∇T at each row of noise, of shape (n, d, d), by differences."""
        return jacobian(self.transform, rows("Z", Z, len(self.components)))

    def log_density(self, X: MatrixLike) -> Array:
        """The log density of each row of data, if the noise is N(0, I)."""
        Z = self.inverse(X)
        # Differences at x are not those at z, so the side with components is used.
        at = rows("X", X) if self.inverted else Z
        slopes = self._log_slopes(at).sum(axis=1) * (1 if self.inverted else -1)
        return -0.5 * (Z**2 + LOG_2PI).sum(axis=1) + slopes

    def sample(self, n_samples: int, *, random_state: RandomState = None) -> Array:
        """Draw n rows T(z), z ~ N(0, I).

        Parameters
        ----------
        n_samples : int
            Number of rows.
        random_state : int, RandomState instance or None, default=None
            Seed or generator of all random numbers.
        """
        check_number("n", n_samples, 1, integer=True)
        rng = generator_of(random_state)
        return self.transform(rng.standard_normal((n_samples, len(self.components))))

    def _apply(self, name: str, A: MatrixLike) -> Array:
        A = rows(name, A, len(self.components))
        columns = [_numbers(f(A[:, :j], A[:, j]), A) for j, f in self._each()]
        return np.column_stack(columns)

    def _solve(self, name: str, B: MatrixLike) -> Array:
        B = rows(name, B, len(self.components))
        A = np.empty_like(B)
        for j, f in self._each():
            # Each column given those already found.
            A[:, j] = bisect(lambda a, f=f, j=j: f(A[:, :j], a), B[:, j])  # type: ignore[misc]
        return A

    def _each(self) -> Any:
        return enumerate(self.components)

    def _log_slopes(self, A: Array) -> Array:
        """Logarithms of ∂_j, at points of the side from which the components start."""
        found = []
        for j, f in self._each():
            before, a = A[:, :j], A[:, j]
            if self.derivatives is not None:
                slope = _numbers(self.derivatives[j](before, a), A)
            else:
                slope = _slope(lambda t, f=f, b=before: _numbers(f(b, t), A), a)  # type: ignore[misc]
            if not (slope > 0).all():
                raise ValueError(
                    f"Component {j} must increase in its own column, got the slope "
                    f"{slope.min():.6g}."
                )
            found.append(np.log(slope))
        return np.column_stack(found)


def _numbers(values: Any, A: Array) -> Array:
    found = np.asarray(values, dtype=np.float64)
    if found.shape != (len(A),) or np.isnan(found).any():
        raise ValueError(
            f"A component must return {len(A)} numbers, got shape {found.shape}"
            f"{' with NaN' * bool(np.isnan(found).any())}."
        )
    return found


def _slope(f: Callable[[Array], Array], at: Array) -> Array:
    """The derivative f', by differences."""
    h = STEP * (1.0 + np.abs(at))
    return _extrapolated(lambda k: (f(at + k * h) - f(at - k * h)) / (2 * k * h))


def _extrapolated(change: Callable[[int], Array]) -> Array:
    """Central differences with two Richardson steps: errors of order STEP⁶."""
    return np.asarray((64 * change(1) - 20 * change(2) + change(4)) / 45)


def jacobian(transform: Callable[[Array], Any], Z: Array) -> Array:
    """∂T_i/∂z_j at each row, of shape (n, d, d), by differences."""
    n, d = Z.shape
    found = np.empty((n, d, d))
    for j in range(d):
        h = STEP * (1.0 + np.abs(Z[:, j]))

        def change(k: int, j: int = j, h: Array = h) -> Array:
            up, down = Z.copy(), Z.copy()
            up[:, j] += k * h
            down[:, j] -= k * h
            width = (up - down)[:, j, None]
            return np.asarray((transform(up) - transform(down)) / width)

        found[:, :, j] = _extrapolated(change)
    return found


def inverse_jacobian_error(
    transform: Callable[[Array], Any],
    inverse: Callable[[Array], Any],
    X: MatrixLike,
) -> float:
    """How far ∇T(T⁻¹x)·∇T⁻¹(x) is from the identity, over all rows.

    Parameters
    ----------
    transform, inverse : callable
        T and its inverse, functions of rows.
    X : array-like of shape (n, d)
        Rows of data.

    Returns
    -------
    float
        The largest entry of the difference; Jacobians are taken by differences, so
        about 1e-10 is rounding.

    Examples
    --------
    >>> import numpy as np
    >>> from certus.generative import inverse_jacobian_error
    >>> X = np.array([[1.0, 2.0], [0.5, 4.0]])
    >>> inverse_jacobian_error(np.exp, np.log, X) < 1e-8
    True
    """
    X = rows("X", X)
    Z = finite_array("inverse(X)", inverse(X), 2)
    product = jacobian(transform, Z) @ jacobian(inverse, X)
    return float(np.abs(product - np.eye(X.shape[1])).max())


def knothe_rosenblatt(
    mean: MatrixLike, covariance: ArrayLike, *, weights: ArrayLike | None = None
) -> TriangularMap:
    """The increasing triangular map from N(0, I) to a Gaussian, or to a mixture.

    Parameters
    ----------
    mean : array-like of shape (d,), or (n_components, d) with ``weights``
        Mean of the Gaussian, or means of the components.
    covariance : array-like of shape (d, d), or (n_components, d, d)
        Positive definite.
    weights : array-like of shape (n_components,), optional
        Probabilities of the components of a mixture. A ``GaussianMixture`` fitted to
        rows makes the map of a sample.

    Returns
    -------
    TriangularMap
        T with T#N(0, I) = p: z ↦ μ + Lz for a Gaussian; for a mixture
        T_j = F_j⁻¹(Φ(z_j) given x_1 … x_{j−1}), by bisection, and the inverse in
        closed form.

    Examples
    --------
    >>> import numpy as np
    >>> from certus.generative import knothe_rosenblatt
    >>> T = knothe_rosenblatt([1.0, 2.0], [[4.0, 2.0], [2.0, 5.0]])
    >>> T.transform([[1.0, 0.0], [0.0, 1.0]])  # L = [[2, 0], [1, 2]]
    array([[3., 3.],
           [1., 4.]])
    """
    if weights is not None:
        C = finite_array("covariance", covariance, 3)
        return _mixture_map(NoisedMixture(weights, mean, C), _cholesky(C))
    m, C = finite_array("mean", mean, 1), finite_array("covariance", covariance, 2)
    if C.shape != (len(m), len(m)) or not np.allclose(C, C.T):
        raise ValueError(
            f"covariance must be a symmetric matrix of shape ({len(m)}, {len(m)}), "
            f"got shape {C.shape}."
        )
    L = _cholesky(C)

    def affine(j: int) -> Component:
        return lambda before, z: m[j] + before @ L[j, :j] + L[j, j] * z

    def slope(j: int) -> Component:
        return lambda before, z: np.full(len(z), L[j, j])

    places = range(len(m))
    return TriangularMap(
        [affine(j) for j in places], derivatives=[slope(j) for j in places]
    )


def _cholesky(C: Array) -> Array:
    try:
        return np.linalg.cholesky(C)
    except np.linalg.LinAlgError:
        raise ValueError("covariance must be positive definite.") from None


def _mixture_map(mixture: NoisedMixture, L: Array) -> TriangularMap:
    """S_j = Φ⁻¹(F_j(x_j given x_<j)) of a mixture, and its derivative p_j/φ(z_j)."""
    with np.errstate(divide="ignore"):
        log_weights = np.log(mixture.weights)

    def conditional(before: Array, x: Array, j: int) -> tuple[Array, Array]:
        """Log weights given the columns before, and x_j in units of each component."""
        shift = before[:, None] - mixture.means[:, :j]  # (n, K, j)
        y = np.empty_like(shift)
        for i in range(j):  # L y = shift, forward
            part = np.einsum("ki,nki->nk", L[:, i, :i], y[:, :, :i])
            y[:, :, i] = (shift[:, :, i] - part) / L[:, i, i]
        logs = log_weights - 0.5 * np.sum(y**2, axis=2)
        logs = logs - np.sum(np.log(L[:, range(j), range(j)]), axis=1)
        centre = mixture.means[:, j] + np.einsum("ki,nki->nk", L[:, j, :j], y)
        units = (x[:, None] - centre) / L[:, j, j]
        return logs - logsumexp(logs, axis=1, keepdims=True), units

    def noise(j: int) -> Component:
        def inverse(before: Array, x: Array) -> Array:
            logs, units = conditional(before, x, j)
            lower = logsumexp(logs + log_ndtr(units), axis=1)
            upper = logsumexp(logs + log_ndtr(-units), axis=1)
            # The smaller tail keeps its digits.
            z = ndtri_exp(np.minimum(lower, upper))
            return np.where(lower < upper, z, -z)

        return inverse

    def slope(j: int) -> Component:
        def derivative(before: Array, x: Array) -> Array:
            logs, units = conditional(before, x, j)
            inner = logs - 0.5 * units**2 - np.log(L[:, j, j])
            return np.exp(logsumexp(inner, axis=1) + 0.5 * noise(j)(before, x) ** 2)

        return derivative

    places = range(mixture.means.shape[1])
    return TriangularMap(
        [noise(j) for j in places],
        derivatives=[slope(j) for j in places],
        inverted=True,
    )
