"""Small problems whose truth is known without certus: what a fault may spoil.

Each case fits one estimator; ``wrong`` tells by how much what is stated lies below the
truth. The true problem is written here, not read off the model.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse

from certus.certificate import Certificate, Strength
from certus.objectives import terms as t
from certus.registry import ESTIMATORS, load_class
from certus.verify.kernel.reference import least_constant
from helpers.judging import problem
from helpers.many_digits import Exact, mp

N, D = 24, 3
_RNG = np.random.default_rng(14)
X = _RNG.normal(size=(N, D)) + np.array([0.0, 1.0, 0.0])
WEIGHTS = _RNG.integers(1, 4, size=N).astype(float)
NUMBERS = X @ [1.0, -2.0, 0.0] + _RNG.normal(size=N) + 0.5
LABELS = (np.median(NUMBERS) < NUMBERS) ^ (_RNG.random(N) < 0.2)
SIGNS = np.where(LABELS, 1.0, -1.0)
COUNTS = _RNG.poisson(np.exp(0.3 * X[:, 0] + 0.5)).astype(float)
CODES = np.digitize(X[:, 0] + 0.5 * _RNG.normal(size=N), [-0.5, 0.5])
TASKS = np.column_stack([NUMBERS, X[:, 0] + _RNG.normal(size=N)])
#: Rounding of what stands here, as a share.
MARGIN = 1e-9


class NoAnswerError(Exception):
    """The model raises where it is asked for its answer, so that none is wrong."""


class Case(NamedTuple):
    """How to make the estimator, what it is fitted on, and how its answer is judged.

    ``excess(model)`` is what the answer has above the minimum, as a share; a number
    below it that was proved is false.
    """

    name: str
    params: dict[str, Any]
    X: Any
    y: Any
    weights: Any
    excess: Callable[[Any], float]

    def make(self) -> Any:
        return load_class(ESTIMATORS[self.name])(**self.params)

    def fit(self) -> Any:
        given = {} if self.weights is None else {"sample_weight": self.weights}
        return self.make().fit(self.X, self.y, **given)


def stated(certificate: Certificate) -> float | None:
    """The value that was proved and met; None where nothing was."""
    claim = certificate.claims[0]
    if claim.strength is not Strength.PROVED or claim.met is not True:
        return None
    return float(claim.value)


# -- convex problems: P in many digits against the best point known ---------------

#: P of the best point that the code without faults finds, by the name of a case.
BEST: dict[str, Any] = {}


def _point(model: Any) -> tuple[Any, Any]:
    coef = np.atleast_2d(np.asarray(model.coef_, dtype=float)).T
    one = coef.shape[1] == 1
    return coef[:, 0] if one else coef, np.asarray(model.intercept_, dtype=float)


def _convex(
    name: str,
    params: dict[str, Any],
    loss: Any,
    penalty: Any,
    y: Any,
    truth: Any = None,
    weights: Any = None,
    data: Any = None,
    constant: float = 0.0,
    free: bool = True,
) -> Case:
    truth = y if truth is None else truth
    free = free and not constant
    data = X if data is None else data
    key = f"{name} {params} {weights is not None} {sparse.issparse(data)}"

    def primal(model: Any) -> tuple[Any, Any]:
        w, b = _point(model)
        p = problem(
            loss, penalty, data, truth, w, b, weights, free=free, constant=constant
        )
        exact = Exact(p)
        if not (free or constant):
            assert not np.any(b)
        return exact.primal(), p

    def excess(model: Any) -> float:
        value, p = primal(model)
        if key not in BEST:
            BEST[key] = value, least_constant(p)
        best, base = BEST[key]
        return float((value - best) / base)

    return Case(name, params, data, y, weights, excess)


S, SW = float(N), float(WEIGHTS.sum())
CSR = sparse.csr_array(X * (np.abs(X) > 0.5))

CONVEX = [
    _convex("Ridge", {"alpha": 2.0}, t.Squared(), t.L2(2.0 / S), NUMBERS),
    _convex(
        "Ridge", {"alpha": 2.0}, t.Squared(), t.L2(2.0 / SW), NUMBERS, weights=WEIGHTS
    ),
    _convex(
        "Ridge",
        {"alpha": 2.0, "fit_intercept": False},
        t.Squared(),
        t.L2(2.0 / S),
        NUMBERS,
        free=False,
    ),
    _convex(
        "Ridge",
        {"alpha": 2.0, "positive": True},
        t.Squared(),
        t.NonNegative(0.0, 2.0 / S),
        NUMBERS,
    ),
    _convex("Lasso", {"alpha": 0.2}, t.Squared(), t.L1(0.2), NUMBERS),
    _convex("Lasso", {"alpha": 0.2}, t.Squared(), t.L1(0.2), NUMBERS, weights=WEIGHTS),
    _convex("Lasso", {"alpha": 0.1}, t.Squared(), t.L1(0.1), NUMBERS, data=CSR),
    _convex(
        "Lasso",
        {"alpha": 0.1, "positive": True},
        t.Squared(),
        t.NonNegative(0.1),
        NUMBERS,
    ),
    _convex(
        "ElasticNet",
        {"alpha": 0.3, "l1_ratio": 0.4},
        t.Squared(),
        t.L1L2(0.3 * 0.4, 0.3 * 0.6),
        NUMBERS,
    ),
    _convex("MultiTaskLasso", {"alpha": 0.2}, t.Squared(), t.MultiTask(0.2), TASKS),
    _convex(
        "LogisticRegression", {"C": 0.7}, t.Logistic(), t.L2(1 / 0.7 / S), LABELS, SIGNS
    ),
    _convex(
        "LogisticRegression",
        {"C": 0.7},
        t.Logistic(),
        t.L2(1 / 0.7 / SW),
        LABELS,
        SIGNS,
        weights=WEIGHTS,
    ),
    _convex(
        "LogisticRegression",
        {"C": 0.9, "l1_ratio": 1.0, "solver": "saga"},
        t.Logistic(),
        t.L1(1 / 0.9 / S),
        LABELS,
        SIGNS,
    ),
    _convex("LogisticRegression", {"C": 0.8}, t.Softmax(3), t.L2(1 / 0.8 / S), CODES),
    _convex(
        "LinearSVC",
        {"C": 0.5},
        t.SquaredHinge(),
        t.L2(1 / 0.5 / S),
        LABELS,
        SIGNS,
        constant=1.0,
    ),
    _convex(
        "LinearSVC",
        {"C": 0.5, "loss": "hinge"},
        t.Hinge(),
        t.L2(1 / 0.5 / S),
        LABELS,
        SIGNS,
        constant=1.0,
    ),
    _convex(
        "LinearSVR",
        {"C": 0.5, "epsilon": 0.2},
        t.EpsilonInsensitive(0.2),
        t.L2(1 / 0.5 / S),
        NUMBERS,
        constant=1.0,
    ),
    _convex(
        "QuantileRegressor",
        {"quantile": 0.3, "alpha": 0.05},
        t.Quantile(0.3),
        t.L1(0.05),
        NUMBERS,
    ),
    _convex("PoissonRegressor", {"alpha": 0.2}, t.Poisson(), t.L2(0.2), COUNTS),
    _convex(
        "PoissonRegressor",
        {"alpha": 0.2},
        t.Poisson(),
        t.L2(0.2),
        COUNTS,
        weights=WEIGHTS,
    ),
]


def _huber_excess(model: Any) -> float:
    sigma, eps = float(model.scale_), 1.35
    r = np.abs(NUMBERS - X @ model.coef_ - model.intercept_).astype(np.longdouble)
    if not sigma > 0:
        return 0.0
    each = np.where(r <= eps * sigma, r * r / sigma, 2 * eps * r - eps**2 * sigma)
    value = sigma + each.mean() + 0.1 / N * np.sum(np.square(model.coef_))
    best = BEST.setdefault("huber", value)
    return float((value - best) / best)


def _least_squares_excess(model: Any) -> float:
    """The share |x̃ⱼᵀr|/(‖x̃ⱼ‖‖r‖) or ‖r‖/T of the data that must change."""
    A = (X - X.mean(0)).astype(np.longdouble)
    y = (NUMBERS - NUMBERS.mean()).astype(np.longdouble)
    r = y - A @ model.coef_
    norms, size = np.sqrt((A * A).sum(0)), np.sqrt(r @ r)
    c = abs(np.mean(NUMBERS - X @ model.coef_ - model.intercept_)) * np.sqrt(N)
    fill = size / (np.abs(model.coef_) @ norms + np.sqrt(y @ y))
    still = np.max(np.abs(A.T @ r) / (norms * size))
    return float(max(min(still, fill), c / np.sqrt(y @ y)) - MARGIN)


OTHERS = [
    Case("LinearRegression", {}, X, NUMBERS, None, _least_squares_excess),
    Case("HuberRegressor", {"alpha": 0.1}, X, NUMBERS, None, _huber_excess),
]


# -- kernel machines --------------------------------------------------------------


def _gram() -> Any:
    squares = ((X[:, None, :] - X[None, :, :]) ** 2).sum(-1)
    return np.exp(-0.5 * squares).astype(np.longdouble)


def _machine(name: str, params: dict[str, Any], y: Any, losses: Any, C: float) -> Case:
    K = _gram()

    def excess(model: Any) -> float:
        a = np.zeros(N, dtype=np.longdouble)
        a[model.support_] = model.dual_coef_[0]
        f = K @ a + float(model.intercept_[0])
        value = a @ K @ a / 2 + C * losses(f).sum()
        best = BEST.setdefault(name, value)
        return float((value - best) / best) * 1e-2  # the base is P at a constant

    return Case(name, {"gamma": 0.5, "C": C, **params}, X, y, None, excess)


def _kernel_ridge_excess(model: Any) -> float:
    a = np.asarray(model.dual_coef_, dtype=np.longdouble).ravel()
    K = _gram()
    r = NUMBERS - K @ a
    value = r @ r + 0.3 * (a @ K @ a)
    best = BEST.setdefault("KernelRidge", value)
    return float((value - best) / (NUMBERS @ NUMBERS))


MACHINES = [
    _machine("SVC", {}, LABELS, lambda f: np.maximum(0, 1 - SIGNS * f), 0.8),
    _machine(
        "SVR",
        {"epsilon": 0.2},
        NUMBERS,
        lambda f: np.maximum(0, np.abs(NUMBERS - f) - 0.2),
        0.8,
    ),
    Case(
        "KernelRidge",
        {"alpha": 0.3, "kernel": "rbf", "gamma": 0.5},
        X,
        NUMBERS,
        None,
        _kernel_ridge_excess,
    ),
]


# -- fixed points, spectra and recounts -------------------------------------------


def _kmeans_excess(model: Any) -> float:
    """Infinite if a label is not that of the nearest centre, or inertia is wrong."""
    far = ((X[:, None, :] - model.cluster_centers_[None]) ** 2).sum(-1)
    own = far[np.arange(N), model.labels_]
    if np.any(own > far.min(1) + 1e-9):
        return np.inf
    if abs(own.sum() - model.inertia_) > 1e-9 * own.sum():
        return np.inf
    off = [
        np.abs(X[model.labels_ == k].mean(0) - centre).max()
        for k, centre in enumerate(model.cluster_centers_)
    ]
    return float(max(off)) - 1e-6 if np.isfinite(off).all() else np.inf


def _pca_excess(model: Any) -> float:
    """How far the components are from eigenvectors of the covariance, as a share."""
    A = X - X.mean(0)
    best = np.sort(np.linalg.eigvalsh(A.T @ A / (N - 1)))[::-1][:2]
    V = np.asarray(model.components_)
    held = np.array([v @ (A.T @ (A @ v)) / (N - 1) for v in V])
    if np.abs(V @ V.T - np.eye(2)).max() > 1e-6:
        return np.inf
    lost = max(
        np.abs(held - best).max(), np.abs(model.explained_variance_ - best).max()
    )
    return float(lost / best[0]) - 1e-6


def _neighbors_excess(model: Any) -> float:
    """Infinite if a prediction is not the vote of the three nearest rows."""
    far = ((X[:, None, :] - X[None]) ** 2).sum(-1)
    near = np.argsort(far, axis=1, kind="stable")[:, :3]
    want = np.array([np.bincount(CODES[row], minlength=3).argmax() for row in near])
    try:
        found = model.predict(X)
    except Exception as error:
        raise NoAnswerError(f"predict raises {type(error).__name__}") from error
    return 0.0 if np.array_equal(found, want) else np.inf


RECOUNTS = [
    Case(
        "KMeans",
        {"n_clusters": 3, "n_init": 2, "random_state": 0},
        X,
        None,
        None,
        _kmeans_excess,
    ),
    Case("PCA", {"n_components": 2}, X, None, None, _pca_excess),
    Case(
        "KNeighborsClassifier",
        {"n_neighbors": 3},
        X,
        CODES,
        None,
        _neighbors_excess,
    ),
]

CASES = [*CONVEX, *OTHERS, *MACHINES, *RECOUNTS]


def held(value: Any) -> list[str]:
    """A value of ``BEST`` as text, to be handed to another process."""
    numbers = value if isinstance(value, tuple) else (value,)
    return [mp.nstr(mp.mpf(str(x)), 75) for x in numbers]


def taken(text: list[str]) -> Any:
    """What ``held`` wrote."""
    numbers = [mp.mpf(x) for x in text]
    return tuple(numbers) if len(numbers) > 1 else np.longdouble(text[0])
