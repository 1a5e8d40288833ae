"""Code that the linear estimators share: scores, summaries, start and end of a fit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from scipy import sparse
from sklearn import get_config
from sklearn.utils.metadata_routing import process_routing
from sklearn.utils.validation import check_is_fitted

from certus._core.rows import labelled_weights
from certus._solvers import newton
from certus._solvers.design import Design
from certus._solvers.losses import best_constant
from certus._solvers.problem import OnStep, Solution, SolverLimits, keep_going
from certus._solvers.shifts import exact_sum
from certus.base import Estimator, check_number
from certus.blocks.accepting import by_block
from certus.callbacks import Monitor
from certus.certificate import Status
from certus.evidence import LinearWitness
from certus.linear_model.summarise import least_squares_summary
from certus.linear_model.summary import Summary
from certus.objectives import NoPenalty
from certus.objectives.terms import L2
from certus.typing import Array, ArrayLike, ClassWeight, MatrixLike

#: Suggested when a linear fit misses its target.
RESCALE = "standardise the columns (StandardScaler)"


class LinearRegressorBase(Estimator):
    """``predict`` from ``coef_`` and ``intercept_``."""

    coef_: Array
    intercept_: Any

    @by_block
    def predict(self, X: MatrixLike) -> Array:
        """Predicted values.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
            Rows to predict.
        """
        return linear_scores(self, X)


class Summarised:
    """A mixin with ``summary``; the class sets ``_summarise`` to its theory."""

    _summarise: Callable[..., Summary]

    def summary(
        self,
        X: MatrixLike,
        y: ArrayLike,
        sample_weight: ArrayLike | None = None,
        delta: float = 0.05,
    ) -> Summary:
        """Standard errors, t or z, p and confidence intervals.

        Parameters
        ----------
        X, y : array-like
            The training data.
        sample_weight : array-like, optional
            Row weights. They are frequencies: a weight of two is two rows.
        delta : float, default=0.05
            Failure probability: the chance that the statement does not hold. The level
            of the intervals is 1 − delta.

        Returns
        -------
        Summary
            A table that prints; refuses with a reason where the theory does not hold.
        """
        return self._summarise(X, y, sample_weight, delta)


class LeastSquaresBase(Summarised, LinearRegressorBase):
    """``predict``, and ``summary`` for fits without a penalty."""

    _summarise = least_squares_summary


class SparseCoefficients:
    """``sparsify`` and ``densify``, as in scikit-learn."""

    coef_: Any

    def sparsify(self) -> Any:
        """Store ``coef_`` as a sparse matrix; useful if most of it is zero."""
        check_is_fitted(self)
        self.coef_ = sparse.csr_matrix(self.coef_)
        return self

    def densify(self) -> Any:
        """Store ``coef_`` as an array again."""
        check_is_fitted(self)
        if sparse.issparse(self.coef_):
            self.coef_ = self.coef_.toarray()
        return self


class LinearClassifierBase(Estimator):
    """``decision_function`` and ``predict`` from ``coef_`` and ``intercept_``."""

    classes_: Array
    coef_: Array
    intercept_: Array

    @by_block
    def decision_function(self, X: Any) -> Array:
        """Scores: one per row for two classes, else one per row and class.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
            Rows to score.
        """
        check_is_fitted(self)
        X = self._validate_X(X)
        z = X @ self.coef_.T
        z = z.toarray() if sparse.issparse(z) else z  # after sparsify()
        z = np.asarray(z + self.intercept_)
        return z.ravel() if z.ndim == 2 and z.shape[1] == 1 else z

    def predict(self, X: MatrixLike) -> Array:
        """Predicted labels.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
            Rows to label.
        """
        z = self.decision_function(X)
        index = (z > 0).astype(int) if z.ndim == 1 else z.argmax(axis=1)
        return np.asarray(self.classes_[index])


# -- the start and the end of a fit -------------------------------------------------


def check_limits(model: Estimator, least: int = 0) -> None:
    """Check ``tol``, ``max_iter`` and ``max_time``."""
    check_number("tol", model.tol)
    check_number("max_iter", model.max_iter, least, integer=True)
    check_number("max_time", model.max_time, none=True)


def limits_of(model: Estimator, on_step: OnStep = keep_going) -> SolverLimits:
    """When a model's solver stops."""
    return SolverLimits(float(model.tol), int(model.max_iter), on_step)


def make_rows(X: Any, y: Array, s: Array | None) -> newton.NewtonRows:
    """Rows with weights, target in float64."""
    weight = np.ones(X.shape[0]) if s is None else s
    y = np.ascontiguousarray(y, dtype=np.float64)
    return newton.NewtonRows(X, y, weight, float(weight.sum()))


def start_from(model: Any, rows: newton.NewtonRows, loss: Any) -> Array:
    """The starting point: the last fit with ``warm_start``, else the best constant."""
    d = rows.X.shape[1]
    W = np.zeros((d + 1, 1))
    warm = getattr(model, "warm_start", False) and hasattr(model, "coef_")
    if warm and np.shape(model.coef_) == (d,):
        W[:-1, 0], W[-1, 0] = model.coef_, model.intercept_
        return W
    if model.fit_intercept:
        W[-1, 0] = best_constant(loss, rows.y, rows.s)
    return W


class Watched:
    """The monitor of one regression fit, in the form that solvers call."""

    def __init__(self, model: Estimator, X: Any, y: Array, s: Array | None) -> None:
        metadata = None if s is None else {"sample_weight": s}
        self.monitor = Monitor(model, X, y, None, model.max_time, metadata)
        self.model, self.dtype = model, X.dtype

    def __call__(self, objective: float, gap: float, W: Array) -> Status | None:
        """Record a step; a status means stop."""
        return self.monitor.step(objective, gap, lambda: self._attributes(W))

    def _attributes(self, W: Array) -> dict[str, Any]:
        """``coef_`` and ``intercept_`` from w with b last, in X's precision."""
        W = np.asarray(W, dtype=np.float64).ravel()
        b = W[-1] if self.model.fit_intercept else 0.0
        return {"coef_": W[:-1].astype(self.dtype), "intercept_": self.dtype.type(b)}

    def close(self, solution: Solution) -> None:
        """Store the attributes that every fit sets."""
        found = self._attributes(solution.primal)
        for name, value in found.items():
            setattr(self.model, name, value)
        self.model.n_iter_ = solution.n_iter
        self.model.history_ = self.monitor.history
        self.monitor.close(found)


def witness_of(solution: Solution) -> LinearWitness:
    """The witness: results of the solver that make the verifier's work short."""
    return LinearWitness(solution.dual, solution.direction)


def level_term(alpha: float) -> L2 | NoPenalty:
    """The term of ½·alpha·‖w‖²."""
    return L2(alpha) if alpha > 0 else NoPenalty()


def linear_scores(model: Estimator, X: MatrixLike) -> Array:
    """Xw + b, after a check of the rows."""
    check_is_fitted(model)
    return np.asarray(model._validate_X(X) @ model.coef_.T + model.intercept_)


def centred_target(
    design: Design, y: Array, fit_intercept: bool
) -> tuple[Array, Array]:
    """Targets as (n, k) float64 with their weighted mean removed, and that mean."""
    Y = np.asarray(y, dtype=np.float64).reshape(design.n, -1)
    mean = np.atleast_1d(design.average(Y)) if fit_intercept else np.zeros(Y.shape[1])
    return Y - mean, mean


def class_weights(
    sample_weight: Array | None,
    class_weight: ClassWeight,
    codes: Array,
    classes: Array,
    counts: str = "weights",
) -> Array | None:
    """Row weights with ``class_weight`` multiplied in; None when all are one.

    "balanced" counts ``"weights"`` or, as scikit-learn's RidgeClassifier, ``"rows"``.
    """
    if class_weight is None:
        return sample_weight
    if isinstance(class_weight, str) and class_weight != "balanced":
        raise ValueError(
            "class_weight must be 'balanced', a dict from label to weight, or None; "
            f"got {class_weight!r}."
        )
    return labelled_weights(sample_weight, class_weight, codes, classes, counts)


def number_array(name: str, values: Any, **bounds: Any) -> Array:
    """One number or several as float64, each checked under its own name."""
    items = [values] if np.ndim(values) == 0 else list(values)
    if not items:
        raise ValueError(f"{name} is empty; pass at least one number.")
    for i, value in enumerate(items):
        check_number(f"{name}[{i}]", value, **bounds)
    return np.array(items, dtype=np.float64)


def routing_enabled() -> bool:
    """Whether scikit-learn routes metadata."""
    return bool(get_config()["enable_metadata_routing"])


def route_metadata(
    model: Estimator, params: dict[str, Any], method: str = "fit", **own: Any
) -> Any:
    """Where further arguments of a method go; without routing, an error or None."""
    if routing_enabled():
        return process_routing(model, method, **own, **params)
    if params:
        raise ValueError(
            f"Passing {', '.join(params)} to {type(model).__name__}.{method} is only "
            "supported if enable_metadata_routing=True; see sklearn.set_config."
        )
    return None


def linear_attributes(
    coef: Array,
    mean_y: Array,
    design: Design,
    y: Array,
    dtype: np.dtype[Any],
    fit_intercept: bool,
    *,
    keep_row: bool = False,
) -> dict[str, Any]:
    """``coef_`` and ``intercept_`` in scikit-learn's shapes and X's dtype.

    A target of one column gives a flat ``coef_``, unless ``keep_row``.
    """
    flat = np.ndim(y) == 1
    row = flat or (len(coef) == 1 and not keep_row)
    found: dict[str, Any] = {"coef_": (coef[0] if row else coef).astype(dtype)}
    found["intercept_"] = 0.0
    if fit_intercept:
        pairs = zip(mean_y, coef, strict=True)
        b = np.array([exact_sum(mean, -design.mean, w) for mean, w in pairs])
        found["intercept_"] = dtype.type(b[0]) if flat else b.astype(dtype)
    return found
