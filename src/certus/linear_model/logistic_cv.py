"""Logistic regression with its strength chosen by cross-validation.

On each fold the strengths are visited from weak to strong likelihood, each fit started
from the last; the pair (C, l1_ratio) with the best mean score is fitted on all rows,
and that fit is certified.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from sklearn import config_context
from sklearn.base import ClassifierMixin
from sklearn.metrics import get_scorer
from sklearn.model_selection import check_cv
from sklearn.utils.metadata_routing import MetadataRouter, MethodMapping

from certus._solvers.problem import Start
from certus.base import certified_fit, check_choice, check_number, class_codes
from certus.callbacks import Monitor
from certus.certificate import Status
from certus.linear_model.common import (
    check_limits,
    class_weights,
    limits_of,
    number_array,
    route_metadata,
)
from certus.linear_model.logistic import (
    SOLVERS,
    LogisticRegression,
    ProbabilisticClassifier,
    check_two_classes,
    fit_logistic,
    intercept_scale,
    make_rows,
    narrow,
    penalty_of,
    solve_logistic,
    store_logistic,
    warn_penalty,
    with_constant,
)
from certus.typing import Array, ArrayLike, Matrix, MatrixLike, RandomState


class LogisticRegressionCV(ClassifierMixin, ProbabilisticClassifier):
    """Logistic regression that chooses ``C`` and ``l1_ratio`` by cross-validation.

    Objective
    ---------
    As :class:`LogisticRegression`, at the pair with the best mean score on the folds.

    Certificate
    -----------
    As :class:`LogisticRegression`, of the final fit.

    Parameters
    ----------
    Cs : int or array-like, default=10
        How many inverse strengths between 1e-4 and 1e4, or which.
    l1_ratios : list of float, default=None
        Shares of the L1 penalty to compare; default 0 (L2 alone).
    fit_intercept : bool, default=True
        Whether to fit an intercept b. It is not penalised.
    cv : int, splitter or iterable, default=None
        Folds of the cross-validation. None means five, stratified.
    solver, intercept_scaling
        As in :class:`LogisticRegression`.
    scoring : str or callable, default=None
        Score by which candidates are compared. None means accuracy.
    tol : float, default=1e-6
        Target of the certificate's primary claim. Also that of every fit on the folds.
    max_iter : int, default=100
        Maximum number of iterations. They are Newton steps of each fit.
    class_weight : dict or "balanced", default=None
        Weights of the classes, which multiply the row weights.
    refit : bool, default=True
        Must be True: the certificate is about one fit on all rows.
    use_legacy_attributes : bool, default=True
        Whether the attributes have the form that is scikit-learn 1.9's default, below
        in brackets, or the simpler one that it announces. Nothing warns of it.
    max_time : float, default=None
        Seconds after which the fit stops and keeps what it has. No further fold is
        begun then.
    dual, penalty, n_jobs, verbose, random_state
        Not used; accepted for compatibility with scikit-learn.

    Attributes
    ----------
    C_, l1_ratio_ : float, or ndarray of shape (1 or n_classes,)
        The choice. (An array that repeats it for each class.)
    Cs_, l1_ratios_ : ndarray
        What was compared.
    scores_ : ndarray of shape (n_folds, n_l1_ratios, n_Cs), or dict
        Scores. (Of each class, with two classes of the second, an array of shape
        (n_folds, n_Cs, n_l1_ratios); without the last axis if ``l1_ratios=None``.)
    coefs_paths_ : ndarray of shape (n_folds, n_l1_ratios, n_Cs, 1 or n_classes, \
n_features + 1), or dict
        Coefficients of every fit; the last column is the intercept, if there is one.
        (Of each class an array of shape (n_folds, n_Cs, n_l1_ratios, n_features + 1),
        the axes as those of the scores.)
    n_iter_ : ndarray of shape (n_folds, n_l1_ratios, n_Cs)
        Steps of every fit. (Of shape (1, n_folds, n_Cs, n_l1_ratios), as above.)
    classes_, coef_, intercept_, history_, certificate_
        As in :class:`LogisticRegression`.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from certus.linear_model import LogisticRegressionCV
    >>> X, y = load_iris(return_X_y=True)
    >>> model = LogisticRegressionCV(Cs=4, cv=3).fit(X, y)
    >>> model.certificate_.met, model.scores_[0].shape
    (True, (3, 4))
    """

    C_: Any
    l1_ratio_: Any
    scores_: Any
    coefs_paths_: Any

    def __init__(
        self,
        *,
        Cs: Any = 10,
        l1_ratios: Any = None,
        fit_intercept: bool = True,
        cv: Any = None,
        dual: bool = False,
        penalty: Any = "deprecated",
        scoring: str | Callable[..., Any] | None = None,
        solver: str = "auto",
        tol: float = 1e-6,
        max_iter: int = 100,
        class_weight: Mapping[Any, float] | str | None = None,
        n_jobs: int | None = None,
        verbose: int = 0,
        refit: bool = True,
        intercept_scaling: float = 1.0,
        random_state: RandomState = None,
        use_legacy_attributes: bool = True,
        max_time: float | None = None,
    ) -> None:
        self.Cs = Cs
        self.l1_ratios = l1_ratios
        self.fit_intercept = fit_intercept
        self.cv = cv
        self.dual = dual
        self.penalty = penalty
        self.scoring = scoring
        self.solver = solver
        self.tol = tol
        self.max_iter = max_iter
        self.class_weight = class_weight
        self.n_jobs = n_jobs
        self.verbose = verbose
        self.refit = refit
        self.intercept_scaling = intercept_scaling
        self.random_state = random_state
        self.use_legacy_attributes = use_legacy_attributes
        self.max_time = max_time

    @certified_fit
    def fit(
        self,
        X: Any,
        y: Any,
        sample_weight: ArrayLike | None = None,
        **params: Any,
    ) -> Any:
        """Choose the strength and fit.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
            Training rows.
        y : array-like of shape (n_samples,)
            Labels.
        sample_weight : array-like of shape (n_samples,), optional
            Row weights. They are used in fitting and in the scores.
        **params : dict
            ``groups`` and the scorer's metadata, where scikit-learn's metadata routing
            is enabled.
        """
        self._check_parameters()
        self.Cs_, self.l1_ratios_ = self._grid(), self._ratios()
        routed = route_metadata(self, params, sample_weight=sample_weight)
        X, y, s = self._validate_X_y(X, y, sample_weight)
        self.classes_, codes = class_codes(y)
        check_two_classes(self)
        X_rows = X.tocsr() if hasattr(X, "tocsr") else X
        options = routed.splitter.split if routed else {}
        folds = list(check_cv(self.cv, y, classifier=True).split(X, y, **options))
        metadata: dict[str, Any] = {} if s is None else {"sample_weight": s}
        metadata = routed.scorer.score if routed and self.scoring else metadata
        weight = class_weights(s, self.class_weight, codes, self.classes_)
        k = len(self.classes_)
        width = X.shape[1] + bool(self.fit_intercept)
        shape = (len(folds), len(self.l1_ratios_), len(self.Cs_))
        self.scores_, steps = np.empty(shape), np.empty(shape, dtype=np.int32)
        self.coefs_paths_ = np.empty((*shape, 1 if k == 2 else k, width))
        monitor = Monitor(self, X, y, max_iter=len(folds))

        def work(f: int) -> None:
            train, test = folds[f]
            judge = self._judge(X_rows, y, metadata, test)
            steps[f] = self._fold(f, X_rows, codes, weight, train, judge)

        count, ended = monitor.run_folds(len(folds), work, self.max_time)
        self.scores_, steps = self.scores_[:count], steps[:count]
        self.coefs_paths_ = self.coefs_paths_[:count]
        mean = self.scores_.mean(axis=0)
        best_ratio, best_C = np.unravel_index(mean.argmax(), mean.shape)
        self.C_ = float(self.Cs_[best_C])
        self.l1_ratio_ = float(self.l1_ratios_[best_ratio])
        done = fit_logistic(self, X, y, codes, s, self.C_, self.l1_ratio_, None)
        self.n_iter_ = steps
        if self.use_legacy_attributes:
            self._repeat_for_classes()
        return done if ended is None else done._replace(status=ended)

    def _repeat_for_classes(self) -> None:
        """Give the attributes the default form of scikit-learn 1.9."""
        binary = len(self.classes_) == 2
        keys = self.classes_[1:] if binary else self.classes_
        whole = slice(None) if self.l1_ratios is not None else 0
        scores = np.swapaxes(self.scores_, 1, 2)[:, :, whole]
        paths = np.swapaxes(self.coefs_paths_, 1, 2)[:, :, whole]
        self.scores_ = {key: scores.copy() for key in keys.tolist()}
        self.coefs_paths_ = {
            key: paths[..., i, :].copy() for i, key in enumerate(keys.tolist())
        }
        self.n_iter_ = np.swapaxes(self.n_iter_, 1, 2)[None, :, :, whole]
        self.C_ = np.full(len(keys), self.C_)
        self.l1_ratio_ = np.full(len(keys), self.l1_ratio_)

    def score(
        self,
        X: MatrixLike,
        y: ArrayLike,
        sample_weight: ArrayLike | None = None,
        **params: Any,
    ) -> float:
        """Score by ``scoring``; accuracy by default.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
            Rows to predict.
        y : array-like of shape (n_samples,)
            True labels.
        sample_weight : array-like of shape (n_samples,), optional
            Row weights.
        **params : dict
            The scorer's metadata, where scikit-learn's metadata routing is enabled.
        """
        own = {} if sample_weight is None else {"sample_weight": sample_weight}
        routed = route_metadata(self, params, "score", **own)
        options = routed.scorer.score if routed else own
        return float(self._scorer()(self, X, y, **options))

    def get_metadata_routing(self) -> MetadataRouter:
        """Tell scikit-learn which arguments go to the splitter and the scorer."""
        to_scorer = MethodMapping().add(caller="score", callee="score")
        return (
            MetadataRouter(owner=self)
            .add_self_request(self)
            .add(
                splitter=check_cv(self.cv),
                method_mapping=MethodMapping().add(caller="fit", callee="split"),
            )
            .add(
                scorer=self._scorer(),
                method_mapping=to_scorer.add(caller="fit", callee="score"),
            )
        )

    def _scorer(self) -> Any:
        return get_scorer("accuracy" if self.scoring is None else self.scoring)

    def _check_parameters(self) -> None:
        check_limits(self)
        check_choice("solver", self.solver, SOLVERS)
        if not self.refit:
            raise NotImplementedError(
                "refit=False is not available, because the certificate needs one fit "
                "on all rows. Use sklearn.linear_model.LogisticRegressionCV."
            )
        check_choice("use_legacy_attributes", self.use_legacy_attributes, (True, False))

    def _grid(self) -> Array:
        if np.ndim(self.Cs) == 0:
            check_number("Cs", self.Cs, 1, integer=True)
            return np.logspace(-4, 4, int(self.Cs))
        return number_array("Cs", self.Cs, open_low=True)

    def _ratios(self) -> Array:
        given = 0.0 if self.l1_ratios is None else self.l1_ratios
        if not (isinstance(self.penalty, str) and self.penalty == "deprecated"):
            check_choice("penalty", self.penalty, ("l1", "l2", "elasticnet"))
            warn_penalty()
            if self.penalty == "elasticnet" and self.l1_ratios is None:
                raise ValueError("penalty='elasticnet' needs l1_ratios in [0, 1].")
            given = {"l1": 1.0, "l2": 0.0}.get(self.penalty, given)
        return number_array("l1_ratios", given, low=0, high=1)

    def _judge(
        self, X: Matrix, y: Array, metadata: dict[str, Any], test: Array
    ) -> Callable[[Array], float]:
        """Score coefficients on the rows ``test``, which may lack some classes."""
        model = LogisticRegression()
        model.classes_, model.n_features_in_ = self.classes_, X.shape[1]
        scorer = self._scorer()
        options = label_options(scorer, self.classes_)
        for key, value in metadata.items():
            by_row = np.ndim(value) > 0 and len(value) == X.shape[0]
            options[key] = np.asarray(value)[test] if by_row else value

        def judge(W: Array) -> float:
            store_logistic(model, W, X.dtype)
            # Routing lets a scorer take the labels; it moves nothing else here.
            with config_context(enable_metadata_routing=True):
                return float(scorer(model, X[test], y[test], **options))

        return judge

    def _fold(
        self,
        f: int,
        X: Matrix,
        codes: Array,
        weight: Array | None,
        train: Array,
        judge: Callable[[Array], float],
    ) -> Array:
        """Fit and score every pair on one fold; the steps each fit took."""
        k = len(self.classes_)
        part = None if weight is None else weight[train]
        # With C = inf nothing is penalised, whether b has a column or not.
        scale = intercept_scale(self, float(self.Cs_.min()))
        rows = make_rows(with_constant(X[train], scale), codes[train], k, part)
        steps = np.empty((len(self.l1_ratios_), len(self.Cs_)), dtype=np.int32)
        for r, ratio in enumerate(self.l1_ratios_):
            W = np.zeros((rows.X.shape[1] + 1, 1 if k == 2 else k))
            for c in np.argsort(self.Cs_):
                penalty = penalty_of(float(self.Cs_[c]), float(ratio), rows.total)
                free = bool(self.fit_intercept) and not scale
                solution, _ = solve_logistic(
                    rows, k, penalty, free, Start(W), limits_of(self)
                )
                if solution.status is Status.INTERRUPTED:
                    raise KeyboardInterrupt
                W = solution.primal
                found = narrow(W, scale)
                self.scores_[f, r, c], steps[r, c] = judge(found), solution.n_iter
                kept = found.T if self.fit_intercept else found[:-1].T
                self.coefs_paths_[f, r, c] = kept
        return steps


def label_options(scorer: Any, classes: Array) -> dict[str, Any]:
    """Labels for metrics that take them, since a fold may lack some classes."""
    metric = getattr(scorer, "_score_func", None)
    if metric is None:
        return {}
    known = inspect.signature(metric).parameters.keys()
    free = known - getattr(scorer, "_kwargs", {}).keys()
    options = {"labels": classes} if "labels" in free else {}
    if options and "pos_label" in free and len(classes) == 2:
        options["pos_label"] = classes[1]
    return options
