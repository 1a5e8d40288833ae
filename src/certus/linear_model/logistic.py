"""Logistic regression: two classes or softmax; L2, L1, elastic net or no penalty.

Objective, in scikit-learn's units:

    C·Σ sᵢ ℓ(yᵢ, xᵢᵀw + b) + l1_ratio·‖w‖₁ + ½·(1 − l1_ratio)·‖w‖²

Inside, everything is divided by C·Σs. Smooth penalties run preconditioned Newton-CG
(``certus._solvers.newton``), L1 parts proximal Newton
(``certus._solvers.prox_newton``).
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from scipy import sparse
from scipy.special import expit, log_expit, log_softmax, softmax
from sklearn.base import ClassifierMixin

from certus._solvers import newton, prox_newton
from certus._solvers.penalties import of_levels
from certus._solvers.problem import Solution, SolverLimits, Start
from certus.base import (
    Estimator,
    Fitted,
    certified_fit,
    check_choice,
    check_number,
    class_codes,
)
from certus.blocks import Blocks
from certus.callbacks import Monitor
from certus.certificate import Evidence, Status
from certus.evidence import LinearWitness
from certus.linear_model import by_blocks
from certus.linear_model.common import (
    LinearClassifierBase,
    SparseCoefficients,
    Summarised,
    check_limits,
    class_weights,
    limits_of,
)
from certus.linear_model.directions import separating_direction
from certus.linear_model.summarise import logistic_summary
from certus.objectives import Logistic, NoPenalty, Penalty, Softmax
from certus.objectives.terms import L2
from certus.typing import Array, ArrayLike, Matrix, MatrixLike, RandomState

#: scikit-learn's solver names; the method is chosen from the problem.
SOLVERS = (
    "auto",
    "lbfgs",
    "liblinear",
    "newton-cg",
    "newton-cholesky",
    "sag",
    "saga",
)
#: Largest linear programme (rows × other classes) run to prove separation.
SEPARATION_ROWS = 50_000


class ProbabilisticClassifier(SparseCoefficients, LinearClassifierBase):
    """``predict_proba`` of a logistic model."""

    def predict_proba(self, X: MatrixLike) -> Array:
        """Probability of each class, columns in the order of ``classes_``.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
            Rows to predict.
        """
        z = self.decision_function(X)
        if z.ndim == 1:
            p = expit(z)
            return np.column_stack([1 - p, p])
        return np.asarray(softmax(z, axis=1))

    def predict_log_proba(self, X: MatrixLike) -> Array:
        """Logarithm of :meth:`predict_proba`, exact for tiny probabilities.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
            Rows to predict.
        """
        z = self.decision_function(X)
        if z.ndim == 1:
            return np.column_stack([log_expit(-z), log_expit(z)])
        return np.asarray(log_softmax(z, axis=1))


class LogisticRegression(Summarised, ClassifierMixin, ProbabilisticClassifier):
    """Logistic regression, binary or softmax.

    Objective
    ---------
    C·Σ ℓ(y, Xw + b) + l1_ratio·‖w‖₁ + ½·(1 − l1_ratio)·‖w‖². The intercept is not
    penalised, except with ``solver="liblinear"``, which counts b / intercept_scaling
    among the coefficients, as in scikit-learn.

    Certificate
    -----------
    ``duality_gap`` (PROVED), relative to the best constant model. With ``C=inf``
    ``stationarity`` (MEASURED), or REFUSED with a separating direction as witness where
    the likelihood has no maximum. Costs one pass over the data, two with ``C=inf`` or
    if the target is missed.

    Parameters
    ----------
    penalty : {"l1", "l2", "elasticnet", None}, deprecated
        Norm of the penalty. Use ``l1_ratio`` and ``C`` instead, as in scikit-learn 1.8
        and later.
    C : float, default=1.0
        Inverse strength of the penalty. ``inf`` means no penalty.
    l1_ratio : float, default=0.0
        Share of the L1 penalty, between 0 and 1.
    tol : float, default=1e-6
        Target of the certificate's primary claim.
    fit_intercept : bool, default=True
        Whether to fit an intercept b.
    intercept_scaling : float, default=1
        The larger it is, the less the intercept is penalised. It only matters for
        ``solver="liblinear"``.
    class_weight : dict or "balanced", default=None
        Weights of the classes, which multiply the row weights.
    solver : str, default="auto"
        Algorithm that computes the fit. scikit-learn's names are accepted; the method
        is chosen from the problem and named in ``solver_``. "liblinear" changes the
        problem: the intercept is penalised, and there may be two classes only.
    max_iter : int, default=100
        Maximum number of iterations. They are Newton steps, or rounds of the working
        set if there is an L1 part.
    warm_start : bool, default=False
        Whether to start from the last fit.
    max_time : float, default=None
        Seconds after which the fit stops and keeps what it has.
    dual, random_state, verbose, n_jobs
        Not used; accepted for compatibility with scikit-learn.

    Attributes
    ----------
    classes_ : ndarray
        Labels.
    coef_ : ndarray of shape (1 or n_classes, n_features)
        Coefficients.
    intercept_ : ndarray of shape (1 or n_classes,)
        Constants.
    n_iter_ : ndarray of shape (1,)
        Steps used.
    solver_, solver_reason_ : str
        The method used, and why.
    history_ : dict
        Objective, gap and seconds after each step.
    certificate_ : Certificate
        What the verifier found.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from certus.linear_model import LogisticRegression
    >>> X, y = load_iris(return_X_y=True)
    >>> model = LogisticRegression().fit(X, y)
    >>> model.certificate_.met, round(model.score(X, y), 2)
    (True, 0.97)
    """

    _summarise = logistic_summary

    def __init__(
        self,
        penalty: str | None = "deprecated",
        *,
        C: float = 1.0,
        l1_ratio: float | None = 0.0,
        dual: bool = False,
        tol: float = 1e-6,
        fit_intercept: bool = True,
        intercept_scaling: float = 1,
        class_weight: Mapping[Any, float] | str | None = None,
        random_state: RandomState = None,
        solver: str = "auto",
        max_iter: int = 100,
        verbose: int = 0,
        warm_start: bool = False,
        n_jobs: int | None = None,
        max_time: float | None = None,
    ) -> None:
        self.penalty = penalty
        self.C = C
        self.l1_ratio = l1_ratio
        self.dual = dual
        self.tol = tol
        self.fit_intercept = fit_intercept
        self.intercept_scaling = intercept_scaling
        self.class_weight = class_weight
        self.random_state = random_state
        self.solver = solver
        self.max_iter = max_iter
        self.verbose = verbose
        self.warm_start = warm_start
        self.n_jobs = n_jobs
        self.max_time = max_time

    @certified_fit
    def fit(self, X: Any, y: Any, sample_weight: ArrayLike | None = None) -> Any:
        """Fit to labelled data.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
            Training rows; or blocks of them (:func:`certus.scale.blocks`) without y.
        y : array-like of shape (n_samples,)
            Labels.
        sample_weight : array-like of shape (n_samples,), optional
            Row weights. An integer weight equals repetition.
        """
        C, l1_ratio = penalty_parameters(self.penalty, self.C, self.l1_ratio)
        self._check(C, l1_ratio)
        X, y, s = self._validate_X_y(X, y, sample_weight)
        warm = self.warm_start and hasattr(self, "coef_")
        previous = (self.densify().coef_, self.intercept_) if warm else None
        self.classes_, codes = class_codes(y)
        check_two_classes(self)
        return fit_logistic(self, X, y, codes, s, C, l1_ratio, previous)

    def _check(self, C: float, l1_ratio: Any) -> None:
        check_number("C", C, open_low=True)
        check_number("l1_ratio", l1_ratio, 0, 1)
        check_limits(self)
        check_choice("solver", self.solver, SOLVERS)

    def _fit_blocks(self, table: Blocks) -> Fitted:
        C, l1_ratio = penalty_parameters(self.penalty, self.C, self.l1_ratio)
        self._check(C, l1_ratio)
        if l1_ratio or np.isinf(C) or self.solver == "liblinear":
            by_blocks.refuse(self, "an L1 penalty, C=inf or solver='liblinear'")
        return by_blocks.fit_logistic(self, table, C)


def penalty_parameters(penalty: str | None, C: float, l1_ratio: Any) -> tuple[Any, Any]:
    """``C`` and ``l1_ratio``, with the deprecated ``penalty`` translated."""
    if isinstance(penalty, str) and penalty == "deprecated":
        return C, 0.0 if l1_ratio is None else l1_ratio
    check_choice("penalty", penalty, ("l1", "l2", "elasticnet", None))
    warn_penalty()
    if penalty is None:
        if C != 1.0:
            warnings.warn(
                "Setting penalty=None will ignore the C and l1_ratio parameters.",
                stacklevel=4,
            )
        return np.inf, 0.0
    if penalty == "elasticnet":
        if l1_ratio is None:
            raise ValueError("penalty='elasticnet' needs l1_ratio in [0, 1].")
        return C, l1_ratio
    implied = {"l1": 1.0, "l2": 0.0}[penalty]
    if l1_ratio != implied:
        warnings.warn(
            f"Inconsistent values: penalty={penalty} with l1_ratio={l1_ratio}; the "
            f"penalty is used. Leave it out and pass l1_ratio={implied:g}.",
            stacklevel=4,
        )
    return C, implied


def check_two_classes(model: Estimator) -> None:
    """Refuse ``solver="liblinear"`` for several classes, as scikit-learn does."""
    if model.solver == "liblinear" and len(model.classes_) > 2:
        raise ValueError(
            "The 'liblinear' solver does not support multiclass classification. Leave "
            "solver out, or wrap the model in sklearn.multiclass.OneVsRestClassifier."
        )


def intercept_scale(model: Estimator, C: float) -> float:
    """The κ of a penalty on b/κ; 0 where the intercept is not penalised."""
    if model.solver != "liblinear" or not model.fit_intercept or np.isinf(C):
        return 0.0
    check_number("intercept_scaling", model.intercept_scaling, open_low=True)
    return float(model.intercept_scaling)


def with_constant(X: Any, scale: float) -> Any:
    """X, and a column of ``scale`` beside it if the intercept is penalised."""
    if not scale:
        return X
    column = np.full((X.shape[0], 1), scale, dtype=X.dtype)
    if sparse.issparse(X):
        return sparse.hstack([X, column], format=X.format, dtype=X.dtype)
    return np.hstack([X, column])


def widen(W: Array, scale: float) -> Array:
    """Convert coefficients with b last to those of :func:`with_constant`'s columns."""
    if not scale:
        return W
    return np.vstack([W[:-1], W[-1:] / scale, np.zeros_like(W[-1:])])


def narrow(W: Array, scale: float) -> Array:
    """The inverse of :func:`widen`."""
    return np.vstack([W[:-2], W[-2:-1] * scale]) if scale else W


def warn_penalty() -> None:
    """Warn that ``penalty`` is deprecated, as in scikit-learn."""
    warnings.warn(
        "'penalty' was deprecated by scikit-learn 1.8: use l1_ratio=1 for 'l1', "
        "l1_ratio=0 for 'l2', 0 < l1_ratio < 1 for 'elasticnet' and C=inf for None.",
        FutureWarning,
        stacklevel=5,
    )


#: Why a method is chosen.
REASONS = {
    "proximal Newton": "with an L1 penalty, few columns stay in the model",
    "Newton-CG": "without an L1 penalty the objective is smooth",
}


def fit_logistic(
    model: Estimator,
    X: Matrix,
    y: Array,
    codes: Array,
    s: Array | None,
    C: float,
    l1_ratio: float,
    previous: tuple[Array, Array] | None,
) -> Fitted:
    """Solve, set the attributes of ``model``, and return what the verifier needs."""
    weight = class_weights(s, model.class_weight, codes, model.classes_)
    monitor = Monitor(model, X, y, None, model.max_time)
    k = len(model.classes_)
    shape = (X.shape[1] + 1, 1 if k == 2 else k)
    start = np.zeros(shape)
    if previous is not None and previous[0].shape == (shape[1], X.shape[1]):
        start = np.vstack([previous[0].T, previous[1]]).astype(np.float64)

    def on_step(objective: float, gap: float, W: Array) -> Status | None:
        return monitor.step(
            objective, gap, lambda: _attributes(narrow(W, scale), X.dtype)
        )

    scale = intercept_scale(model, C)
    rows = make_rows(with_constant(X, scale), codes, k, weight)
    check_classes(rows, codes)
    limits = limits_of(model, on_step)
    penalty = penalty_of(C, l1_ratio, rows.total)
    free = bool(model.fit_intercept) and not scale
    start = widen(start, scale)
    solution, name = solve_logistic(rows, k, penalty, free, Start(start), limits)
    store_logistic(model, narrow(solution.primal, scale), X.dtype)
    model.n_iter_ = np.array([solution.n_iter], dtype=np.int32)
    model.solver_, model.history_ = name, monitor.history
    model.solver_reason_ = REASONS[name]
    monitor.close({"coef_": model.coef_, "intercept_": model.intercept_})
    return Fitted(evidence_of(solution), X, y, s, solution.status)


def evidence_of(solution: Solution) -> Evidence:
    """What the verifier needs of a solution: a direction if there is no minimiser."""
    witness = LinearWitness()
    if solution.status is Status.NO_MINIMISER:
        found = solution.direction
        witness = LinearWitness(direction=solution.primal if found is None else found)
    return Evidence("linear", witness=witness)


def make_rows(X: Any, codes: Array, k: int, weight: Array | None) -> newton.NewtonRows:
    """Labels in the form that the losses need, with weights; CSR if sparse."""
    target = np.where(codes == 1, 1.0, -1.0) if k == 2 else codes
    s = np.ones(X.shape[0]) if weight is None else weight
    return newton.NewtonRows(X, target, s, float(s.sum()))


def check_classes(rows: newton.NewtonRows, codes: Array) -> None:
    """Raise an error unless rows of two classes have a positive weight."""
    if rows.s[rows.s > 0].size == 0:
        raise ValueError("class_weight leaves no row with a positive weight.")
    if len(np.unique(codes[rows.s > 0])) < 2:
        raise ValueError(
            "Only one class has a positive weight; classification needs at least 2 "
            "classes."
        )


def _attributes(W: Array, dtype: np.dtype[Any]) -> dict[str, Array]:
    return {
        "coef_": np.ascontiguousarray(W[:-1].T).astype(dtype),
        "intercept_": W[-1].astype(dtype),
    }


def store_logistic(model: Any, W: Array, dtype: Any) -> None:
    """Set ``coef_`` and ``intercept_``."""
    for key, value in _attributes(W, dtype).items():
        setattr(model, key, value)


def penalty_of(C: float, l1_ratio: float, total: float) -> Penalty:
    """The term of ``C`` and ``l1_ratio``, for rows that weigh ``total``."""
    level = 0.0 if np.isinf(C) else 1.0 / (C * total)
    return of_levels(level * l1_ratio, level * (1 - l1_ratio))


def solve_logistic(
    rows: newton.NewtonRows,
    k: int,
    penalty: Penalty,
    intercept: bool,
    start: Start,
    limits: SolverLimits,
) -> tuple[Solution, str]:
    """Choose the method from the penalty; the solution and the method's name."""
    loss: Any = Logistic() if k == 2 else Softmax(k)
    if not isinstance(penalty, L2 | NoPenalty):
        kinked = prox_newton.SparseProblem(rows, loss, penalty, intercept)
        solution = prox_newton.solve(kinked, start, limits)
        return _symmetric(solution, k, penalty), "proximal Newton"
    problem = newton.NewtonProblem(rows, loss, penalty, intercept)
    solution = newton.solve(problem, start, limits)
    if not intercept:
        solution.primal[-1] = 0.0  # a pseudo-inverse leaves rounding there
    if isinstance(penalty, NoPenalty) and solution.status in (
        Status.SOLVED,
        Status.MAX_ITER,
        Status.TOL_NOT_REACHED,
    ):
        solution = _look_for_separation(problem, solution)
    return _symmetric(solution, k, penalty), "Newton-CG"


def _symmetric(solution: Solution, k: int, penalty: Penalty) -> Solution:
    """Softmax scores are free up to a constant per row: choose the one of mean zero.

    The loss does not change and an L2 penalty falls; an L1 penalty fixes the constant
    for ``coef_``, so only the intercepts are moved.
    """
    if k == 2:
        return solution
    W = solution.primal.copy()
    smooth = isinstance(penalty, L2 | NoPenalty)
    free = slice(None) if smooth else slice(-1, None)
    W[free] -= W[free].mean(axis=1, keepdims=True)
    return replace(solution, primal=W)


def _look_for_separation(problem: Any, solution: Solution) -> Solution:
    """Very large scores may mean a quasi-complete separation: try to prove it."""
    z = problem.scores_at(solution.primal)
    rows = problem.rows
    size = len(rows.y) * max(1, problem.k - 1)
    if np.abs(z).max(initial=0.0) < 12 or size > SEPARATION_ROWS:
        return solution
    used = rows.s > 0
    found = separating_direction(
        rows.X[used], rows.y[used], problem.loss, problem.intercept
    )
    if found is None:
        return solution
    return replace(solution, status=Status.NO_MINIMISER, direction=found)
