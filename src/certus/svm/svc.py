"""Support vector classification: the largest margin, soft or hard, with any kernel.

Objective, for each pair of classes: C·Σ sᵢ max(0, 1 − yᵢ(f(xᵢ) + b)) + ½‖f‖², y = ±1.
With C = inf: the smallest ‖f‖ with all margins at least one.
"""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np
from sklearn.base import ClassifierMixin
from sklearn.exceptions import NotFittedError
from sklearn.utils import check_random_state, column_or_1d
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from certus._core.rows import class_weights, dense_coef
from certus.base import Fitted, certified_fit, check_choice, label_codes
from certus.callbacks import Monitor
from certus.certificate import Evidence, Status
from certus.evidence import KernelWitness
from certus.kernels.machine import kernel_term, negative_direction, take
from certus.svm.probability import (
    class_probabilities,
    fit_sigmoid,
    held_out_scores,
)
from certus.svm.problem import SolvedPart, solve_part
from certus.svm.support import SupportVectorMachine
from certus.typing import Array, ArrayLike, MatrixLike, RandomState


class SVC(ClassifierMixin, SupportVectorMachine):
    """Support vector classification with any kernel.

    Objective
    ---------
    C·Σ max(0, 1 − y·(f(x) + b)) + ½‖f‖², over functions f of the kernel's space; the
    intercept is never penalised. With more than two classes there is one problem
    for each pair. ``C=inf`` asks for the hard margin.

    Certificate
    -----------
    ``duality_gap`` (PROVED), relative to the best constant model, the worst of the
    pairs. Hard margin: relative to ½‖f‖²; where there is none, REFUSED with two equal
    convex combinations of the classes as witness. A kernel matrix that is not positive
    semidefinite is REFUSED with an eigenvector. Costs one pass over the kernel values
    of all rows with the support vectors.

    Parameters
    ----------
    C : float, default=1.0
        Inverse strength of the penalty. ``inf`` asks for a hard margin.
    kernel : str, callable or kernel of ``certus.objectives``, default="rbf"
        Name of a kernel, a function, or a kernel of ``certus.objectives``. Names are
        "linear", "poly", "rbf", "laplacian", "sigmoid" and "precomputed"; a function
        takes two sets of rows and returns their matrix.
    degree : int, default=3
        Degree of the kernel "poly".
    gamma : {"scale", "auto"} or float, default="scale"
        Scale of the kernels "poly", "rbf", "laplacian" and "sigmoid".
    coef0 : float, default=0.0
        Constant of the kernels "poly" and "sigmoid".
    probability : bool, deprecated
        True gives ``predict_proba`` by Platt's sigmoids, for which each pair of classes
        is fitted five times more. Deprecated in scikit-learn 1.9, which recommends
        CalibratedClassifierCV(SVC(), ensemble=False).
    tol : float, default=1e-6
        Target of the certificate's primary claim.
    cache_size : float, default=1000
        Megabytes of memory for rows of the kernel matrix. A fit needs this memory and a
        few copies of X. Its time is that of the kernel rows of the support vectors, and
        of the steps on them.
    class_weight : dict or "balanced", default=None
        Weights of the classes, which multiply the row weights.
    max_iter : int, default=-1
        Maximum number of iterations. They are steps of two variables for each pair of
        classes. −1 means no limit.
    decision_function_shape : {"ovr", "ovo"}, default="ovr"
        One score for each class, or the scores of the pairs.
    break_ties : bool, default=False
        Whether ``predict`` breaks ties of votes by the scores ("ovr" only).
    random_state : int, default=None
        Seed or generator of all random numbers. Only the folds of ``probability=True``
        are random.
    max_time : float, default=None
        Seconds after which the fit stops and keeps what it has.
    shrinking, verbose
        Not used; accepted for compatibility with scikit-learn.

    Attributes
    ----------
    classes_ : ndarray
        Labels.
    dual_coef_ : array or sparse matrix of shape (n_classes - 1, n_support)
        y·α of the support vectors. In the problem of classes i < j, row j - 1 holds
        those of class i, row i those of class j.
    support_ : ndarray of shape (n_support,)
        Rows that are support vectors, class by class.
    support_vectors_ : array or sparse matrix
        Those rows; empty where the matrix was given.
    intercept_ : ndarray of shape (n_classes * (n_classes - 1) / 2,)
        b of each pair.
    n_support_ : ndarray of shape (n_classes,)
        Support vectors of each class.
    kernel_ : kernel of ``certus.objectives``
        The kernel used, gamma as a number.
    class_weight_ : ndarray of shape (n_classes,)
        Multipliers of C.
    n_iter_ : ndarray
        Steps used for each pair.
    probA_, probB_ : ndarray
        a and b of each pair's sigmoid, deprecated in scikit-learn 1.9; empty without
        ``probability=True``.
    history_ : dict
        Objective, gap and seconds after each working set.
    certificate_ : Certificate
        What the verifier found.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from certus.svm import SVC
    >>> X, y = load_iris(return_X_y=True)
    >>> model = SVC().fit(X, y)
    >>> model.certificate_.met, round(model.score(X, y), 2)
    (True, 0.97)
    """

    def __init__(
        self,
        *,
        C: float = 1.0,
        kernel: Any = "rbf",
        degree: int = 3,
        gamma: Any = "scale",
        coef0: float = 0.0,
        shrinking: bool = True,
        probability: Any = "deprecated",
        tol: float = 1e-6,
        cache_size: float = 1000,
        class_weight: Mapping[Any, float] | str | None = None,
        verbose: bool = False,
        max_iter: int = -1,
        decision_function_shape: str = "ovr",
        break_ties: bool = False,
        random_state: RandomState = None,
        max_time: float | None = None,
    ) -> None:
        self.C = C
        self.kernel = kernel
        self.degree = degree
        self.gamma = gamma
        self.coef0 = coef0
        self.shrinking = shrinking
        self.probability = probability
        self.tol = tol
        self.cache_size = cache_size
        self.class_weight = class_weight
        self.verbose = verbose
        self.max_iter = max_iter
        self.decision_function_shape = decision_function_shape
        self.break_ties = break_ties
        self.random_state = random_state
        self.max_time = max_time

    @certified_fit
    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Any:
        """Fit to labelled rows.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
            Training rows; with ``kernel="precomputed"`` the kernel matrix.
        y : array-like of shape (n_samples,)
            Labels.
        sample_weight : array-like of shape (n_samples,), optional
            Row weights. An integer weight equals repetition.
        """
        self._check_settings()
        check_choice("decision_function_shape", self.decision_function_shape, SHAPES)
        if self.probability != "deprecated":
            warnings.warn(
                "The `probability` parameter was deprecated by scikit-learn 1.9; leave "
                "it out, and use CalibratedClassifierCV for probabilities.",
                FutureWarning,
                stacklevel=4,
            )
        X, y, s = self._read(X, y, sample_weight)
        labels = column_or_1d(y, warn=True)
        self.classes_, codes = label_codes(labels)
        if len(self.classes_) < 2:
            raise ValueError(
                "The number of classes has to be greater than one; got 1 class "
                f"({self.classes_[0]!r})."
            )
        s_used = self._weights(codes, s)
        self.kernel_ = kernel_term(
            self.kernel, X, self.gamma, self.degree, self.coef0, s
        )
        self._gamma = getattr(self.kernel_, "gamma", 0.0)
        parts, status, witness = self._solve(X, y, codes, s_used)
        self._fit_sigmoids(X, codes, s_used)
        self.n_iter_ = np.array([p.n_iter for p in parts], dtype=np.int32)
        self.fit_status_ = int(status is Status.MAX_ITER)
        self.shape_fit_ = getattr(X, "shape", (len(codes),))
        hulls = [part.hulls for part in parts if part.hulls is not None]
        witness = witness._replace(hulls=np.array(hulls) if hulls else None)
        return Fitted(Evidence("kernel", witness=witness), X, labels, s, status)

    def _weights(self, codes: Array, s: Array | None) -> Array:
        """Row weights with ``class_weight_`` multiplied in."""
        classes, given = self.classes_, self.class_weight
        if isinstance(given, str) and given != "balanced":
            raise ValueError(
                "class_weight must be 'balanced', a dict from label to weight, or "
                f"None; got {given!r}."
            )
        ones = np.ones(len(codes))
        if given is None:
            self.class_weight_ = np.ones(len(classes))
        else:
            self.class_weight_ = class_weights(given, codes, classes)
        weight = (ones if s is None else s) * self.class_weight_[codes]
        mass = np.bincount(codes, weights=weight, minlength=len(classes))
        if np.count_nonzero(mass) < 2:
            raise ValueError(
                "All rows with a positive weight belong to the same class; "
                "classification needs at least 2 classes."
            )
        return weight

    def _solve(
        self, X: MatrixLike, y: ArrayLike, codes: Array, s: Array
    ) -> tuple[list[SolvedPart], Status, KernelWitness]:
        """Solve each pair of classes into the model."""
        kernel, rows = self._training(X)
        monitor = Monitor(self, X, y, None, self.max_time)
        pairs = list(itertools.combinations(range(len(self.classes_)), 2))
        blank = SolvedPart(np.zeros(len(codes)), 0.0, Status.SOLVED, 0)
        parts = [blank] * len(pairs)
        status = Status.SOLVED
        for k, pair in enumerate(pairs):
            index, target, cost = self._pair(pair, codes, s)
            data = rows if len(index) == len(codes) else take(kernel, rows, index)

            def state(coef: Array, b: float, k: int = k, index: Array = index) -> Any:
                now = parts.copy()
                now[k] = blank._replace(coef=_spread(coef, index, len(codes)), b=b)
                return self._put(X, codes, now)

            def on_step(
                objective: float, gap: float, beta: Array, b: float, state: Any = state
            ) -> Status | None:
                return monitor.step(objective, gap, lambda: state(beta, b))

            if target.min() == target.max():  # unreachable unless a class is empty
                continue
            part = solve_part(
                *(kernel, data, target, cost, None, float(self.tol)),
                *(self._step_limit(), float(self.cache_size), on_step),
            )
            hulls = part.hulls
            if hulls is not None:
                hulls = _spread(hulls, index, len(codes))
            coef = _spread(part.coef, index, len(codes))
            parts[k] = part._replace(coef=coef, hulls=hulls)
            if part.status is not Status.SOLVED:
                status = part.status
            if status in (Status.TIME_LIMIT, Status.STOPPED, Status.INTERRUPTED):
                break
        self.history_ = monitor.history
        monitor.close(self._put(X, codes, parts))
        return parts, status, negative_direction(kernel, rows)

    def _pair(
        self, pair: tuple[int, int], codes: Array, s: Array
    ) -> tuple[Array, Array, Array]:
        """Row numbers, signs and costs of one pair of classes."""
        i, j = pair
        index = np.flatnonzero((codes == i) | (codes == j))
        positive = j if len(self.classes_) == 2 else i
        target = np.where(codes[index] == positive, 1.0, -1.0)
        # Infinite C: rows of weight zero still do not count.
        return index, target, np.where(s[index] > 0, float(self.C) * s[index], 0.0)

    def _fit_sigmoids(self, X: MatrixLike, codes: Array, s: Array) -> None:
        """Set the sigmoids of ``probability=True``, one for each pair of classes."""
        sigmoids = []
        if self.probability not in ("deprecated", False):
            kernel, rows = self._training(X)
            rng = check_random_state(self.random_state)
            for pair in itertools.combinations(range(len(self.classes_)), 2):
                index, target, cost = self._pair(pair, codes, s)

                def solve(
                    data: Any, kept: Array, target: Array = target, cost: Array = cost
                ) -> SolvedPart:
                    return solve_part(
                        *(kernel, data, target[kept], cost[kept], None),
                        *(float(self.tol), self._step_limit(), float(self.cache_size)),
                        lambda *_: None,
                    )

                data = take(kernel, rows, index)
                scores = held_out_scores(kernel, data, target, solve, rng)
                sign = -1.0 if len(self.classes_) == 2 else 1.0  # of the first class
                sigmoids.append(fit_sigmoid(sign * scores, sign * target))
        self._probA, self._probB = np.array(sigmoids).reshape(-1, 2).T.copy()

    def _put(
        self, X: MatrixLike, codes: Array, parts: list[SolvedPart]
    ) -> dict[str, Any]:
        """Set the fitted attributes from the problems of the pairs, and list them."""
        k = len(self.classes_)
        used = np.zeros(len(codes), dtype=bool)
        for part in parts:
            used |= part.coef != 0
        support = np.flatnonzero(used)
        support = support[np.argsort(codes[support], kind="stable")]
        own = codes[support]
        dual = np.zeros((max(1, k - 1), len(support)))
        if k == 2:
            dual[0] = parts[0].coef[support]
        else:
            for part, (i, j) in zip(parts, itertools.combinations(range(k), 2)):
                coef = part.coef[support]
                dual[j - 1, own == i] = coef[own == i]
                dual[i, own == j] = coef[own == j]
        self._store_support(X, support)
        self._store_dual(dual)
        self.intercept_ = np.array([part.b for part in parts])
        self._n_support = np.bincount(own, minlength=k).astype(np.int32)
        names = ("dual_coef_", "support_", "support_vectors_", "intercept_", "classes_")
        return {name: getattr(self, name) for name in (*names, "_n_support", "kernel_")}

    def _pair_coefficients(self) -> Array:
        dual = dense_coef(self.dual_coef_)
        k = len(self.classes_)
        if k == 2:
            return dual.T
        own = np.repeat(np.arange(k), self._n_support)
        pairs = itertools.combinations(range(k), 2)
        columns = [
            np.where(own == i, dual[j - 1], np.where(own == j, dual[i], 0.0))
            for i, j in pairs
        ]
        return np.column_stack(columns)

    def _pair_scores(self, X: MatrixLike) -> Array:
        X = self._query(X)
        if self._n_support.sum() != len(self.support_):
            raise ValueError("The internal representation of SVC was altered.")
        return self._raw_scores(X, self._pair_coefficients()) + self.intercept_

    def decision_function(self, X: MatrixLike) -> Array:
        """Scores: one for each row with two classes, else by the chosen shape.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
            Rows; with ``kernel="precomputed"`` their kernel values with all training
            rows.
        """
        z = self._pair_scores(X)
        if len(self.classes_) == 2:
            return z.ravel()
        return _class_scores(z, len(self.classes_)) if self._by_class() else z

    def _by_class(self) -> bool:
        return bool(self.decision_function_shape == "ovr")

    def predict(self, X: MatrixLike) -> Array:
        """Predicted labels: the sign, or the most votes of the pairs.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
            Rows; with ``kernel="precomputed"`` their kernel values with all training
            rows.
        """
        check_is_fitted(self)
        if self.break_ties and not self._by_class():
            raise ValueError(
                "break_ties must be False when decision_function_shape is 'ovo'"
            )
        z = self._pair_scores(X)
        k = len(self.classes_)
        if k == 2:
            index = (z.ravel() > 0).astype(int)
        else:
            scores = _class_scores(z, k) if self.break_ties else _votes(z, k)
            index = scores.argmax(axis=1)
        return np.asarray(self.classes_[index])

    def _has_probabilities(self) -> bool:
        if self.probability in ("deprecated", False):
            raise AttributeError(
                "predict_proba is not available when probability=False"
            )
        return True

    @available_if(_has_probabilities)
    def predict_proba(self, X: MatrixLike) -> Array:
        """Probabilities by Platt's sigmoids; the certificate is not about them.

        They come from other fits than ``predict``, so the most probable class may
        differ from the predicted one.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
            Rows; with ``kernel="precomputed"`` their kernel values with all training
            rows.
        """
        z = self._pair_scores(X)
        if not len(self._probA):
            raise NotFittedError(
                "predict_proba is not available when fitted with probability=False"
            )
        z = -z if len(self.classes_) == 2 else z
        return class_probabilities(z, self._probA, self._probB, len(self.classes_))

    @available_if(_has_probabilities)
    def predict_log_proba(self, X: MatrixLike) -> Array:
        """Logarithms of the probabilities.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
            Rows; with ``kernel="precomputed"`` their kernel values with all training
            rows.
        """
        return np.log(self.predict_proba(X))

    @property
    def probA_(self) -> Array:
        """The a of each pair's sigmoid."""
        return self._sigmoids("probA_")

    @property
    def probB_(self) -> Array:
        """The b of each pair's sigmoid."""
        return self._sigmoids("probB_")

    def _sigmoids(self, name: str) -> Array:
        if not hasattr(self, "_probA"):
            raise AttributeError(f"{name} exists after fit.")
        warnings.warn(
            f"Attribute `{name}` was deprecated by scikit-learn 1.9, together with "
            "probability=True. Use CalibratedClassifierCV for probabilities.",
            FutureWarning,
            stacklevel=3,
        )
        return self._probA if name == "probA_" else self._probB


SHAPES = ("ovr", "ovo")


def _spread(values: Array, index: Array, n: int) -> Array:
    out = np.zeros(n)
    out[index] = values
    return out


def _votes(z: Array, k: int) -> Array:
    """Pairs won by each class."""
    votes = np.zeros((len(z), k))
    for column, (i, j) in enumerate(itertools.combinations(range(k), 2)):
        votes[:, i] += z[:, column] > 0
        votes[:, j] += z[:, column] <= 0
    return votes


def _class_scores(z: Array, k: int) -> Array:
    """Votes, plus the summed scores of the pairs squeezed into (−1/3, 1/3)."""
    total = np.zeros((len(z), k))
    votes = np.zeros((len(z), k))
    for column, (i, j) in enumerate(itertools.combinations(range(k), 2)):
        score = z[:, column]
        total[:, i] += score
        total[:, j] -= score
        votes[:, i] += score >= 0
        votes[:, j] += score < 0
    return votes + total / (3 * (np.abs(total) + 1))
