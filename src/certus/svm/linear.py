"""Linear support vector machines, for labels and for numbers.

Objective, in scikit-learn's units, with κ = ``intercept_scaling``:

    C·Σ sᵢ ℓ(yᵢ, xᵢᵀw + b) + ½(‖w‖² + (b/κ)²)

κ = inf leaves the intercept unpenalised, C = inf asks for the hard margin. Inside,
everything is divided by C·Σs. The methods are those of ``certus._solvers.svm`` (Newton
steps on the rows near a kink), ``svm_descent`` (sparse data with many columns),
``svm_hard`` and, for an L1 penalty, ``svm_sparse``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from sklearn.base import ClassifierMixin, RegressorMixin

from certus._core.rows import class_weights as weights_of_classes
from certus._solvers.svm_problem import hinge_box, tube_box
from certus.base import Fitted, certified_fit, check_choice, check_number, class_codes
from certus.blocks import Blocks
from certus.callbacks import Monitor
from certus.certificate import Evidence
from certus.evidence import LinearWitness
from certus.linear_model import by_blocks
from certus.linear_model.common import (
    LinearClassifierBase,
    LinearRegressorBase,
    SparseCoefficients,
    class_weights,
)
from certus.linear_model.margins import (
    MarginPart,
    Solved,
    attributes_of,
    check_machine,
    dual_witness,
    machine_solver,
    solve_each,
    store_solver,
    worst_status,
)
from certus.typing import Array, ArrayLike, RandomState


class LinearSVC(ClassifierMixin, SparseCoefficients, LinearClassifierBase):
    """Linear support vector classification, one problem per class if more than two.

    Objective
    ---------
    C·Σ ℓ(y·(Xw + b)) + ½(‖w‖² + (b/κ)²) with ℓ(m) = max(0, 1 − m) or its square and
    κ = ``intercept_scaling``; ``penalty="l1"`` has ‖w‖₁ + abs(b/κ) instead. ``C=inf``:
    ½(‖w‖² + (b/κ)²) subject to y·(Xw + b) ≥ 1.

    Certificate
    -----------
    ``duality_gap`` (PROVED), the dual point as witness; relative to the best constant
    model, for the hard margin to ½‖w‖². Where no hard margin exists: REFUSED, with
    convex combinations of the two classes that are the same point as witness. Costs one
    pass over the data for each problem. A step of the solver costs two passes and the
    Gram matrix of the rows near the margin.

    Parameters
    ----------
    penalty : {"l2", "l1"}, default="l2"
        Norm of the penalty. "l1" needs the squared hinge.
    loss : {"squared_hinge", "hinge"}, default="squared_hinge"
        Loss of a row.
    tol : float, default=1e-6
        Target of the certificate's primary claim.
    C : float, default=1.0
        Inverse strength of the penalty. ``inf`` asks for a hard margin.
    multi_class : {"ovr"}, default="ovr"
        How more than two classes are handled. Each against the rest. "crammer_singer"
        raises ``NotImplementedError``.
    fit_intercept : bool, default=True
        Whether to fit an intercept b.
    intercept_scaling : float, default=1
        The larger it is, the less the intercept is penalised. ``inf`` means not at all.
    class_weight : dict or "balanced", default=None
        Weights of the classes, which multiply the row weights.
    max_iter : int, default=1000
        Maximum number of iterations. They are steps for each class, or sweeps of dual
        descent.
    max_time : float, default=None
        Seconds after which the fit stops and keeps what it has.
    dual, verbose, random_state
        Not used; accepted for compatibility with scikit-learn.

    Attributes
    ----------
    classes_ : ndarray
        Labels.
    coef_ : ndarray of shape (1 or n_classes, n_features)
        Coefficients.
    intercept_ : ndarray of shape (1 or n_classes,)
        Constants.
    dual_ : ndarray of shape (1 or n_classes, n_samples)
        Dual point α ≥ 0 with w = Σ αᵢyᵢxᵢ (L2 penalty); at most C times the row's
        weight for the hinge.
    support_ : ndarray
        Rows with α > 0 for some class; ``X[support_]`` are the support vectors.
    margin_ : ndarray of shape (1 or n_classes,)
        1/‖w‖: distance from the hyperplane to the lines y·f = 1.
    n_iter_ : int
        Most steps used for a class.
    solver_, solver_reason_ : str
        The method used, and why.
    history_ : dict
        Objective, gap and seconds after each step.
    certificate_ : Certificate
        What the verifier found.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from certus.svm import LinearSVC
    >>> X, y = load_iris(return_X_y=True)
    >>> model = LinearSVC(loss="hinge").fit(X, y)
    >>> model.certificate_.met, round(model.score(X, y), 2)
    (True, 0.94)
    """

    def __init__(
        self,
        penalty: str = "l2",
        loss: str = "squared_hinge",
        *,
        dual: Any = "auto",
        tol: float = 1e-6,
        C: float = 1.0,
        multi_class: str = "ovr",
        fit_intercept: bool = True,
        intercept_scaling: float = 1,
        class_weight: Mapping[Any, float] | str | None = None,
        verbose: int = 0,
        random_state: RandomState = None,
        max_iter: int = 1000,
        max_time: float | None = None,
    ) -> None:
        self.penalty = penalty
        self.loss = loss
        self.dual = dual
        self.tol = tol
        self.C = C
        self.multi_class = multi_class
        self.fit_intercept = fit_intercept
        self.intercept_scaling = intercept_scaling
        self.class_weight = class_weight
        self.verbose = verbose
        self.random_state = random_state
        self.max_iter = max_iter
        self.max_time = max_time

    @certified_fit
    def fit(self, X: Any, y: ArrayLike, sample_weight: ArrayLike | None = None) -> Any:
        """Fit to labelled data.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
            Training rows.
        y : array-like of shape (n_samples,)
            Labels.
        sample_weight : array-like of shape (n_samples,), optional
            Row weights. An integer weight equals repetition.
        """
        self._check()
        X, y, s = self._validate_X_y(X, y, sample_weight)
        self.classes_, codes = class_codes(y)
        solver = machine_solver(self, X)
        problems = _label_problems(self, codes, s)
        monitor = Monitor(self, X, y, None, self.max_time)
        solved = solve_each(self, X, problems, solver, monitor)
        _store_classifier(self, solved, problems, X.dtype)
        self.history_ = monitor.history
        monitor.close({"coef_": self.coef_, "intercept_": self.intercept_})
        evidence = _classifier_evidence(self, solved)
        return Fitted(evidence, X, y, s, worst_status(solved))

    def _check(self) -> None:
        check_machine(self)
        check_choice("penalty", self.penalty, ("l2", "l1"))
        check_choice("loss", self.loss, ("squared_hinge", "hinge"))
        _check_combination(self)

    def _fit_blocks(self, table: Blocks) -> Fitted:
        self._check()
        smooth = self.loss == "squared_hinge" and self.penalty == "l2"
        if not smooth or np.isinf(self.C):
            by_blocks.refuse(self, "loss='hinge', penalty='l1' or C=inf")
        scale = float(self.intercept_scaling) if self.fit_intercept else 0.0
        if np.isinf(scale):
            by_blocks.refuse(self, "intercept_scaling=inf")
        return by_blocks.fit_squared_hinge(self, table, scale)


class LinearSVR(RegressorMixin, LinearRegressorBase):
    """Linear support vector regression.

    Objective
    ---------
    C·Σ ℓ(y − Xw − b) + ½(‖w‖² + (b/κ)²) with ℓ(e) = max(0, abs(e) − epsilon) or its
    square and κ = ``intercept_scaling``.

    Certificate
    -----------
    ``duality_gap`` (PROVED), the dual point as witness, relative to the best constant
    model. Costs one pass over the data.

    Parameters
    ----------
    epsilon : float, default=0.0
        Size up to which an error costs nothing.
    tol : float, default=1e-6
        Target of the certificate's primary claim.
    C : float, default=1.0
        Inverse strength of the penalty.
    loss : str, default="epsilon_insensitive"
        Loss of a row. "epsilon_insensitive" or "squared_epsilon_insensitive".
    fit_intercept : bool, default=True
        Whether to fit an intercept b.
    intercept_scaling : float, default=1.0
        The larger it is, the less the intercept is penalised. ``inf`` means not at all.
    max_iter : int, default=1000
        Maximum number of iterations. They are steps, or sweeps of dual descent.
    max_time : float, default=None
        Seconds after which the fit stops and keeps what it has.
    dual, verbose, random_state
        Not used; accepted for compatibility with scikit-learn.

    Attributes
    ----------
    coef_ : ndarray of shape (n_features,)
        Coefficients.
    intercept_ : ndarray of shape (1,)
        Constant.
    dual_ : ndarray of shape (n_samples,)
        Dual point β with w = Σ βᵢxᵢ; its sign is that of the residual.
    support_ : ndarray
        Rows with β ≠ 0: those outside the tube, or on its edge.
    n_iter_ : int
        Steps used.
    solver_, solver_reason_ : str
        The method used, and why.
    history_ : dict
        Objective, gap and seconds after each step.
    certificate_ : Certificate
        What the verifier found.

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from certus.svm import LinearSVR
    >>> X, y = load_diabetes(return_X_y=True)
    >>> model = LinearSVR(epsilon=10.0, C=100.0).fit(X, y)
    >>> model.certificate_.met, len(model.support_) < len(y)
    (True, True)
    """

    def __init__(
        self,
        *,
        epsilon: float = 0.0,
        tol: float = 1e-6,
        C: float = 1.0,
        loss: str = "epsilon_insensitive",
        fit_intercept: bool = True,
        intercept_scaling: float = 1.0,
        dual: Any = "auto",
        verbose: int = 0,
        random_state: RandomState = None,
        max_iter: int = 1000,
        max_time: float | None = None,
    ) -> None:
        self.epsilon = epsilon
        self.tol = tol
        self.C = C
        self.loss = loss
        self.fit_intercept = fit_intercept
        self.intercept_scaling = intercept_scaling
        self.dual = dual
        self.verbose = verbose
        self.random_state = random_state
        self.max_iter = max_iter
        self.max_time = max_time

    @certified_fit
    def fit(self, X: Any, y: ArrayLike, sample_weight: ArrayLike | None = None) -> Any:
        """Fit to numbers.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
            Training rows.
        y : array-like of shape (n_samples,)
            Targets.
        sample_weight : array-like of shape (n_samples,), optional
            Row weights. An integer weight equals repetition.
        """
        check_machine(self)
        check_number("epsilon", self.epsilon)
        names = ("epsilon_insensitive", "squared_epsilon_insensitive")
        check_choice("loss", self.loss, names)
        if np.isinf(self.C):
            raise ValueError(
                "C must be finite, because there may be no tube that contains every "
                "row."
            )
        X, y, s = self._validate_X_y(X, y, sample_weight, y_numeric=True)
        squared = self.loss == names[1]
        target = np.asarray(y, dtype=np.float64)
        s_used = np.ones(len(target)) if s is None else s
        box = tube_box(target, float(self.epsilon), squared)
        monitor = Monitor(self, X, y, None, self.max_time)
        solved = solve_each(
            self, X, [MarginPart(target, s_used, box)], machine_solver(self, X), monitor
        )
        solution = solved[0].solution
        W = attributes_of(self, [solution.primal], X.dtype)
        self.coef_, self.intercept_ = W["coef_"][0], W["intercept_"]
        self.dual_ = -float(self.C) * s_used * solved[0].dual
        self.support_ = np.flatnonzero(self.dual_)
        store_solver(self, solved)
        self.history_ = monitor.history
        monitor.close({"coef_": self.coef_, "intercept_": self.intercept_})
        evidence = Evidence("linear", witness=dual_witness(self, solved))
        return Fitted(evidence, X, y, s, worst_status(solved))


def _check_combination(model: Any) -> None:
    check_choice("multi_class", model.multi_class, ("ovr", "crammer_singer"))
    if model.multi_class == "crammer_singer":
        raise NotImplementedError(
            "multi_class='crammer_singer' is not implemented; use 'ovr', "
            "LogisticRegression (softmax), or scikit-learn's LinearSVC."
        )
    if model.penalty == "l1" and model.loss == "hinge":
        raise ValueError(
            "Unsupported set of arguments: penalty='l1' and loss='hinge', with "
            f"dual={model.dual}. Use loss='squared_hinge'."
        )
    if model.penalty == "l1" and np.isinf(model.C):
        raise ValueError("C=inf needs penalty='l2'; use a finite C for penalty='l1'.")
    if model.penalty == "l1" and np.isinf(model.intercept_scaling):
        raise ValueError(
            "penalty='l1' needs a finite intercept_scaling; the larger it is, the "
            "less the intercept is penalised."
        )


def _label_problems(model: Any, codes: Array, s: Array | None) -> list[MarginPart]:
    """One problem for two classes, else each class against the rest.

    As in liblinear, a class's weight applies where it is the positive one.
    """
    k, n = len(model.classes_), len(codes)
    plain = np.ones(n) if s is None else s
    squared = model.loss == "squared_hinge"
    if k == 2:
        weight = class_weights(s, model.class_weight, codes, model.classes_)
        weight = plain if weight is None else weight
        targets = [(np.where(codes == 1, 1.0, -1.0), weight)]
    else:
        each = np.ones(k)
        if model.class_weight is not None:
            class_weights(s, model.class_weight, codes, model.classes_)  # checks it
            each = weights_of_classes(model.class_weight, codes, model.classes_, plain)
        targets = [
            (
                np.where(codes == j, 1.0, -1.0),
                np.where(codes == j, plain * each[j], plain),
            )
            for j in range(k)
        ]
    for _, weight in targets:
        if not (weight > 0).any():
            raise ValueError("class_weight leaves no row with a positive weight.")
    return [MarginPart(y, w, hinge_box(y, squared)) for y, w in targets]


def _store_classifier(
    model: Any, solved: list[Solved], parts: list[MarginPart], dtype: Any
) -> None:
    W = attributes_of(model, [one.solution.primal for one in solved], dtype)
    model.coef_, model.intercept_ = W["coef_"], W["intercept_"]
    hard = np.isinf(model.C)
    rows = [
        one.dual if hard else float(model.C) * part.s * np.abs(one.dual)
        for one, part in zip(solved, parts)
    ]
    model.dual_ = np.vstack(rows)
    model.support_ = np.flatnonzero(model.dual_.any(axis=0))
    norms = np.linalg.norm(np.vstack([o.solution.primal[:-1] for o in solved]), axis=1)
    with np.errstate(divide="ignore"):
        model.margin_ = 1 / norms
    store_solver(model, solved)


def _classifier_evidence(model: Any, solved: list[Solved]) -> Evidence:
    if not np.isinf(model.C):
        return Evidence("linear", witness=dual_witness(model, solved))
    dual = np.column_stack([one.dual for one in solved])
    parts = (getattr(one.solution, "combination", None) for one in solved)
    combination = next((part for part in parts if part is not None), None)
    return Evidence("linear", witness=LinearWitness(dual, combination=combination))
