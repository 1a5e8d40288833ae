"""Ridge regression with its strength chosen by leave-one-out, in closed form.

One decomposition AᵀSA/Σs = VΛVᵀ serves every alpha: with Z = AV the fit is
ŷ = Z(Λ + a)⁻¹Zᵀy and the leverages are hᵢ = Σₖ Zᵢₖ²/(λₖ + a), a = alpha/Σs, so each
leave-one-out error is (yᵢ − ŷᵢ)/(1 − hᵢ). Rows are visited in blocks: n·d² flops in
all, no copy of X. Wide problems use the n × n matrix AAᵀ instead.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy import sparse
from sklearn.base import (
    BaseEstimator,
    ClassifierMixin,
    MultiOutputMixin,
    RegressorMixin,
)
from sklearn.metrics import get_scorer
from sklearn.model_selection import GridSearchCV, check_cv
from sklearn.utils.metadata_routing import MetadataRouter, MethodMapping

from certus._solvers.block_design import BlockDesign
from certus._solvers.design import Design
from certus.base import Estimator, Fitted, certified_fit, check_choice
from certus.certificate import Evidence
from certus.config import config_context
from certus.linear_model import alpha_by_blocks, by_blocks
from certus.linear_model.common import (
    LeastSquaresBase,
    centred_target,
    number_array,
    route_metadata,
    routing_enabled,
)
from certus.linear_model.least_squares import Ridge, RidgeClassifier, fit_ridge
from certus.typing import Array, ArrayLike, ClassWeight, Matrix

if TYPE_CHECKING:
    from certus.blocks import Blocks

_BLOCK = 1 << 20


class AlphaChoice(Estimator):
    """How the two models choose ``alpha``: leave-one-out, or a search; abstract."""

    fit_intercept: bool
    scoring: Any
    cv: Any
    store_cv_results: bool
    alpha_per_target = False
    # Attributes rather than parameters: scikit-learn's classes have none of these.
    tol = 1e-6
    solver = "auto"
    positive = False

    @property
    def alpha(self) -> Any:
        """The chosen strength, under the name that :class:`Ridge` uses."""
        return self.alpha_

    def _candidate(self) -> Any:
        """The model that is fitted on folds."""
        return Ridge(fit_intercept=self.fit_intercept)

    def _judged(self, predicted: Array) -> Any:
        """Existing predictions in the form that a scorer needs."""
        return _Identity(), predicted

    def _choose(
        self,
        design: Design | None,
        X: Matrix,
        y: Array,
        target: Array,
        s: Array | None,
        alphas: Array,
        routed: Any,
    ) -> None:
        """Set ``alpha_`` and ``best_score_``."""
        params, options = routed
        if self.cv is None and design is not None:
            self._leave_one_out(design, y, target, s, alphas, options)
        else:
            self._search(X, y, s, alphas, params)

    def get_metadata_routing(self) -> MetadataRouter:
        """Tell scikit-learn which arguments of ``fit`` go to splitter and scorer."""
        return (
            MetadataRouter(owner=self)
            .add_self_request(self)
            .add(
                scorer=self._scorer(),
                method_mapping=MethodMapping().add(caller="fit", callee="score"),
            )
            .add(
                splitter=check_cv(self.cv),
                method_mapping=MethodMapping().add(caller="fit", callee="split"),
            )
        )

    def _scorer(self) -> Any:
        if self.scoring is not None:
            return get_scorer(self.scoring)
        scorer = get_scorer("neg_mean_squared_error")
        if routing_enabled():  # weights always reach the default
            scorer.set_score_request(sample_weight=True)
        return scorer

    def _leave_one_out(
        self,
        design: Design,
        y: Array,
        target: Array,
        s: Array | None,
        alphas: Array,
        options: dict[str, Any],
    ) -> None:
        Y, mean = centred_target(design, target, self.fit_intercept)
        keep = self.store_cv_results or self.scoring is not None
        total = np.zeros((Y.shape[1], len(alphas)))
        stored = np.empty((design.n, Y.shape[1], len(alphas))) if keep else None
        for rows, errors in _loo_errors(design, Y, alphas / design.total):
            weight = 1.0 if s is None else s[rows][:, None, None]
            total += (weight * np.square(errors)).sum(axis=0)
            if stored is not None:
                stored[rows] = errors
        scores = -total / design.n  # as scikit-learn: weighted squares over n
        if self.scoring is not None and stored is not None:
            scores = self._scores(y, Y + mean, stored, options)
        if self.store_cv_results and stored is not None:
            self.cv_results_ = self._results(target, s, Y + mean, stored)
        if self.alpha_per_target and Y.shape[1] > 1:
            best = scores.argmax(axis=1)
            self.alpha_ = alphas[best]
            self.best_score_ = scores[np.arange(len(best)), best]
        else:
            pooled = scores.mean(axis=0)
            self.alpha_ = float(alphas[pooled.argmax()])
            self.best_score_ = float(pooled.max())

    def _scores(
        self, y: Array, Y: Array, errors: Array, options: dict[str, Any]
    ) -> Array:
        """Scores of shape (targets, alphas); ``options`` go to the scorer."""
        scorer = self._scorer()
        out = np.empty(errors.shape[1:])
        for a in range(errors.shape[2]):
            predicted = Y - errors[:, :, a]
            if self.alpha_per_target and Y.shape[1] > 1:
                for k in range(Y.shape[1]):
                    seen = self._judged(predicted[:, k])
                    out[k, a] = scorer(*seen, Y[:, k], **options)
            else:
                flat = predicted.ravel() if predicted.shape[1] == 1 else predicted
                flat = flat if y.ndim == 1 else predicted
                out[:, a] = scorer(*self._judged(flat), y, **options)
        return out

    def _results(self, y: Array, s: Array | None, Y: Array, errors: Array) -> Array:
        if self.scoring is not None:
            kept = Y[:, :, None] - errors
        else:
            weight = 1.0 if s is None else s[:, None, None]
            kept = weight * np.square(errors)
        return kept[:, 0] if y.ndim == 1 else kept

    def _search(
        self,
        X: Matrix,
        y: Array,
        s: Array | None,
        alphas: Array,
        params: dict[str, Any],
    ) -> None:
        for name in ("store_cv_results", "alpha_per_target"):
            if getattr(self, name):
                raise ValueError(
                    f"cv!=None and {name}=True are incompatible; leave cv=None."
                )
        ridge = self._candidate()
        if routing_enabled():
            ridge.set_fit_request(sample_weight=True)
        search = GridSearchCV(
            ridge,
            {"alpha": alphas},
            cv=self.cv,
            scoring=self.scoring,
            refit=False,
        )
        if s is not None:
            params = {**params, "sample_weight": s}
        with config_context(certify="never"):
            search.fit(X, y, **params)
        self.alpha_ = float(search.best_params_["alpha"])
        self.best_score_ = float(search.best_score_)


class RidgeCV(MultiOutputMixin, RegressorMixin, AlphaChoice, LeastSquaresBase):
    """Ridge regression that chooses ``alpha`` by leave-one-out cross-validation.

    Objective
    ---------
    As :class:`Ridge`, at the alpha with the least mean squared leave-one-out error.

    Certificate
    -----------
    ``duality_gap`` (PROVED) of the final fit at ``alpha_``.

    Parameters
    ----------
    alphas : array-like, default=(0.1, 1.0, 10.0)
        Strengths of the penalty to compare.
    fit_intercept : bool, default=True
        Whether to fit an intercept b. It is not penalised.
    scoring : str or callable, default=None
        Score by which candidates are compared. None means the mean squared error of the
        leave-one-out predictions.
    cv : int or splitter, default=None
        Folds of the cross-validation. None means leave-one-out; otherwise every alpha
        is fitted on every fold.
    store_cv_results : bool, default=False
        Keep ``cv_results_``.
    alpha_per_target : bool, default=False
        Choose alpha for each target by itself.
    gcv_mode
        Not used; accepted for compatibility with scikit-learn.

    Attributes
    ----------
    alpha_ : float or ndarray
        The chosen strength.
    best_score_ : float or ndarray
        Its score.
    cv_results_ : ndarray of shape (n_samples[, n_targets], n_alphas)
        Squared errors (or predictions, with ``scoring``), if stored.
    coef_, intercept_ : ndarray, float or ndarray
        As in :class:`Ridge`.
    certificate_ : Certificate
        What the verifier found.

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from certus.linear_model import RidgeCV
    >>> X, y = load_diabetes(return_X_y=True)
    >>> RidgeCV(alphas=[1e-3, 1e-2, 1e-1, 1]).fit(X, y).alpha_
    0.01
    """

    def __init__(
        self,
        alphas: ArrayLike = (0.1, 1.0, 10.0),
        *,
        fit_intercept: bool = True,
        scoring: str | Callable[..., Any] | None = None,
        cv: Any = None,
        gcv_mode: str | None = None,
        store_cv_results: bool = False,
        alpha_per_target: bool = False,
    ) -> None:
        self.alphas = alphas
        self.fit_intercept = fit_intercept
        self.scoring = scoring
        self.cv = cv
        self.gcv_mode = gcv_mode
        self.store_cv_results = store_cv_results
        self.alpha_per_target = alpha_per_target

    @certified_fit
    def fit(
        self,
        X: Any,
        y: Any,
        sample_weight: Any = None,
        **params: Any,
    ) -> Any:
        """Choose alpha and fit.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
            Training rows; or blocks of them (:func:`certus.scale.blocks`) without y.
            Their folds are a number of runs of rows.
        y : array-like of shape (n_samples,) or (n_samples, n_targets)
            Targets.
        sample_weight : array-like of shape (n_samples,), optional
            Row weights.
        **params : dict
            Passed to the search when ``cv`` is given and scikit-learn's metadata
            routing is enabled.
        """
        own = {} if sample_weight is None else {"sample_weight": sample_weight}
        routed = route_metadata(self, params, **own)
        check_choice("gcv_mode", self.gcv_mode, (None, "auto", "svd", "eigen"))
        alphas = number_array("alphas", self.alphas, open_low=self.cv is None)
        X, y, s = self._validate_X_y(
            X, y, sample_weight, finite=False, multi_output=True, y_numeric=True
        )
        if self.gcv_mode == "svd" and sparse.issparse(X):
            warnings.warn(
                "The 'svd' mode is not supported for sparse X; an eigendecomposition "
                "is used. scikit-learn 1.11 will refuse it: leave gcv_mode=None.",
                FutureWarning,
                stacklevel=4,
            )
        design = Design(X, s, self.fit_intercept, targets=y)
        options = routed.scorer.score if routed else own
        self._choose(design, X, y, y, s, alphas, (params, options))
        return Fitted(fit_ridge(self, X, y, s, design), X, y, s)

    def _fit_blocks(self, table: Blocks) -> Fitted:
        check_choice("gcv_mode", self.gcv_mode, (None, "auto", "svd", "eigen"))
        alphas = number_array("alphas", self.alphas, open_low=self.cv is None)
        design = BlockDesign(table, bool(self.fit_intercept))
        alpha_by_blocks.choose(self, table, alphas, design)
        done = by_blocks.fit_least_squares(self, table, self.alpha_, design)
        self.n_iter_ = 1
        return done


class RidgeClassifierCV(AlphaChoice, RidgeClassifier):  # type: ignore[override]
    """Ridge classification that chooses ``alpha`` by leave-one-out cross-validation.

    Objective
    ---------
    As :class:`RidgeClassifier`, at the alpha with the least mean squared leave-one-out
    error of the targets ±1.

    Certificate
    -----------
    ``duality_gap`` (PROVED) of the final fit at ``alpha_``, the worst of the classes.

    Parameters
    ----------
    alphas : array-like, default=(0.1, 1.0, 10.0)
        Strengths of the penalty to compare.
    fit_intercept : bool, default=True
        Whether to fit an intercept b. It is not penalised.
    scoring : str or callable, default=None
        Score by which candidates are compared. None means the mean squared error of the
        leave-one-out predictions, with ``cv`` the accuracy.
    cv : int or splitter, default=None
        Folds of the cross-validation. None means leave-one-out; otherwise every alpha
        is fitted on every fold.
    class_weight : dict or "balanced", default=None
        Weights of the classes, which multiply the row weights.
    store_cv_results : bool, default=False
        Keep ``cv_results_``.

    Attributes
    ----------
    alpha_ : float
        The chosen strength.
    best_score_ : float
        Its score.
    cv_results_ : ndarray of shape (n_samples, n_targets, n_alphas)
        Squared errors (or predictions, with ``scoring``), if stored.
    classes_, coef_, intercept_ : ndarray
        As in :class:`RidgeClassifier`.
    certificate_ : Certificate
        What the verifier found.

    Examples
    --------
    >>> from sklearn.datasets import load_breast_cancer
    >>> from certus.linear_model import RidgeClassifierCV
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> model = RidgeClassifierCV(alphas=[1e-3, 1e-2, 1e-1, 1]).fit(X, y)
    >>> model.alpha_, model.certificate_.met
    (0.01, True)
    """

    def __init__(
        self,
        alphas: ArrayLike = (0.1, 1.0, 10.0),
        *,
        fit_intercept: bool = True,
        scoring: str | Callable[..., Any] | None = None,
        cv: Any = None,
        class_weight: ClassWeight = None,
        store_cv_results: bool = False,
    ) -> None:
        self.alphas = alphas
        self.fit_intercept = fit_intercept
        self.scoring = scoring
        self.cv = cv
        self.class_weight = class_weight
        self.store_cv_results = store_cv_results

    @certified_fit
    def fit(
        self,
        X: Any,
        y: Any,
        sample_weight: Any = None,
        **params: Any,
    ) -> Any:
        """Choose alpha and fit.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
            Training rows.
        y : array-like of shape (n_samples,) or (n_samples, n_labels)
            Labels, as in :class:`RidgeClassifier`.
        sample_weight : array-like of shape (n_samples,), optional
            Row weights.
        **params : dict
            Passed to the search when ``cv`` is given and scikit-learn's metadata
            routing is enabled.
        """
        own = {} if sample_weight is None else {"sample_weight": sample_weight}
        routed = route_metadata(self, params, **own)
        alphas = number_array("alphas", self.alphas, open_low=self.cv is None)
        X, y, s = self._validate_X_y(
            X, y, sample_weight, finite=False, multi_output=True
        )
        y, target, rows = self._targets(y, s)
        design = Design(X, rows, self.fit_intercept, targets=target)
        options = routed.scorer.score if routed else own
        self._choose(design, X, y, target, rows, alphas, (params, options))
        fit_ridge(self, X, target, rows, design, labels=y)
        return Fitted(Evidence("linear"), X, y, s)

    def _candidate(self) -> Any:
        return RidgeClassifier(fit_intercept=self.fit_intercept)

    def _judged(self, predicted: Array) -> Any:
        return _IdentityClassifier(self.classes_, self._several), predicted


class _Identity(RegressorMixin, BaseEstimator):
    """Lets a scorer judge existing predictions."""

    def predict(self, X: Array) -> Array:
        return X


class _IdentityClassifier(ClassifierMixin, BaseEstimator):
    """Lets a scorer judge existing scores."""

    def __init__(self, classes: Array, several: bool) -> None:
        self.classes_, self.several = classes, several

    def decision_function(self, X: Array) -> Array:
        return X

    def predict(self, X: Array) -> Array:
        if self.several:
            return (X > 0).astype(int)
        best = (X > 0).astype(int) if X.ndim == 1 else X.argmax(axis=1)
        return np.asarray(self.classes_[best])


def _loo_errors(
    design: Design, Y: Array, levels: Array
) -> Iterator[tuple[slice, Array]]:
    """Blocks of rows with errors of shape (rows, targets, levels)."""
    if design.n <= design.d and not (design.sparse and design.n > 4000):
        yield slice(0, design.n), _wide_errors(design, Y, levels)
        return
    values, V = np.linalg.eigh(design.gram())
    values = np.maximum(values, 0.0)
    shrink = 1.0 / (values[:, None] + levels)
    B = V.T @ design.t_dot_targets(Y)
    C = np.concatenate([shrink * B[:, [k]] for k in range(Y.shape[1])], axis=1)
    offset = design.rest @ V
    share = np.full(design.n, 1.0) if design.s is None else design.s
    share = share / design.total
    X = design.X.tocsr() if design.sparse else design.X
    rows = max(64, _BLOCK // max(1, design.d))
    for i in range(0, design.n, rows):
        cut = slice(i, min(i + rows, design.n))
        # Transposed, (d, rows): BLAS is faster on few rows than on few columns.
        held = X[cut] if design.shift is None else X[cut] - design.shift
        Z = np.asarray((held @ V).T if design.sparse else V.T @ held.T)
        if design.centred:
            Z -= offset[:, None]
        errors = (C.T @ Z).reshape(Y.shape[1], len(levels), -1)
        np.square(Z, out=Z)
        kept = shrink.T @ Z  # (levels, rows): the leverages, then what they leave
        kept += 1.0 if design.centred else 0.0
        kept *= -share[cut]
        kept += 1.0
        np.subtract(Y[cut].T[:, None, :], errors, out=errors)
        errors /= kept
        yield cut, errors.transpose(2, 0, 1)


def _wide_errors(design: Design, Y: Array, levels: Array) -> Array:
    """c/diag((K + a)⁻¹) with c = (K + a)⁻¹y, the direction of the intercept removed."""
    X = design.X.toarray() if design.sparse else design.X
    root = np.sqrt((np.ones(design.n) if design.s is None else design.s) / design.total)
    mean = design.rest if design.sparse else design.mean
    A = (np.asarray(X, dtype=np.float64) - mean) * root[:, None]
    K = A @ A.T
    # Centring makes √s an eigenvector of value 0. Raised to the size of K it can be
    # taken out again below without cancellation, however small the level.
    lift = max(float(np.trace(K)), np.finfo(float).tiny) if design.centred else 0.0
    values, Q = np.linalg.eigh(K + lift * np.outer(root, root))
    values = np.maximum(values, 0.0)
    QtY = Q.T @ (root[:, None] * Y)
    out = np.empty((design.n, Y.shape[1], len(levels)))
    for a, level in enumerate(levels):
        inverse = 1.0 / (values + level)
        diagonal = np.square(Q) @ inverse
        if design.centred:
            diagonal = diagonal - np.square(root) / (lift + level)
        out[:, :, a] = Q @ (inverse[:, None] * QtY) / diagonal[:, None]
    return out / np.where(root > 0, root, 1.0)[:, None, None]
