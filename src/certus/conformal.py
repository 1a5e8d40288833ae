"""Conformal prediction for every supervised estimator: intervals and sets of labels.

``calibrate`` keeps the sorted scores of rows that the fit has not seen;
``predict_interval`` and ``predict_set`` return what the k-th smallest of them allows,
k = ⌈(n + 1)·coverage⌉. Whatever the model and the distribution, the interval or set
holds the truth of a new row with at least that probability, as long as calibration rows
and new rows are exchangeable.
"""

from __future__ import annotations

from itertools import combinations
from typing import Any, Self

import numpy as np
from sklearn.base import is_classifier, is_regressor
from sklearn.exceptions import NotFittedError
from sklearn.utils.validation import check_is_fitted

from certus._core.rows import known_codes, numeric_targets
from certus.bounds.conformal import conformal_quantile
from certus.certificate import Certificate, Evidence
from certus.evidence import ConformalWitness
from certus.typing import Array, ArrayLike, Fit, MatrixLike
from certus.verify import judge, seen_in_fit


class Conformal:
    """``calibrate``, ``predict_interval`` and ``predict_set``; a mixin."""

    calibration_certificate_: Certificate

    def _predictor(self, X: Any, y: ArrayLike | None = None) -> tuple[Any, Any, Any]:
        """The estimator that predicts, and the data in its form."""
        return self, X, y

    def calibrate(self, X_cal: MatrixLike, y_cal: ArrayLike) -> Self:
        """Learn from rows kept aside how wide intervals and sets must be.

        Sets ``calibration_certificate_``, which states the coverage (STATISTICAL) and
        holds the scores as its evidence. A new ``fit`` or ``set_params`` forgets it.

        Parameters
        ----------
        X_cal, y_cal : array-like
            Rows and targets that were not used in ``fit`` nor to choose the model. Nine
            rows are the fewest for a coverage of 0.9; with 1,000 the coverage is
            accurate to two points.

        Returns
        -------
        estimator
            Itself.

        Examples
        --------
        >>> from sklearn.datasets import load_diabetes
        >>> from certus.linear_model import Ridge
        >>> X, y = load_diabetes(return_X_y=True)
        >>> model = Ridge(alpha=0.01).fit(X[:242], y[:242]).calibrate(X[242:], y[242:])
        >>> print(model.calibration_certificate_["coverage"].detail)
        on average at least 90 % of new rows lie within ±91.8 of the prediction
        """
        return self._calibrate(X_cal, y_cal)

    def _calibrate(
        self, X_cal: MatrixLike, y_cal: ArrayLike, delta: float = 0.05, share: float = 1
    ) -> Self:
        """With the failure probability of the floor, and its share of it."""
        check_is_fitted(self)
        if y_cal is None:
            raise ValueError("y_cal is missing: pass the targets of the rows in X_cal.")
        model, X, y = self._predictor(X_cal, y_cal)
        scores = calibration_scores(model, X, y, score_kind(model))
        if seen_in_fit(model, X, y):
            raise ValueError(
                "X_cal holds the rows of the fit. The model fits them better than it "
                "will fit new rows, so the coverage would not hold. Calibrate on "
                "rows that were not used in fit."
            )
        evidence = Evidence("conformal", witness=ConformalWitness(scores, delta, share))
        self.calibration_certificate_ = judge(model, evidence, X, y)
        return self

    def predict_interval(
        self, X: MatrixLike, coverage: float = 0.9, *, delta: float | None = None
    ) -> Array:
        """Intervals that hold the target of a new row with probability ``coverage``.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Rows to predict.
        coverage : float, default=0.9
            Probability, on average over calibration rows and new rows.
        delta : float, optional
            Failure probability: the chance that the statement does not hold. If given,
            the coverage holds for these calibration rows unless they were drawn
            unluckily, which has this probability; the intervals get wider.

        Returns
        -------
        ndarray of shape (n_samples, 2)
            Lower and upper ends; infinite where the calibration rows are too few, or
            the prediction is not finite.

        Examples
        --------
        >>> from sklearn.datasets import load_diabetes
        >>> from certus.linear_model import Ridge
        >>> X, y = load_diabetes(return_X_y=True)
        >>> model = Ridge(alpha=0.01).fit(X[:242], y[:242]).calibrate(X[242:], y[242:])
        >>> model.predict_interval(X[242:244], coverage=0.8).round()
        array([[ 14., 166.],
               [ 20., 172.]])
        """
        return self._intervals(X, coverage, delta)

    def _intervals(self, X: MatrixLike, coverage: float, delta: float | None) -> Array:
        scores = self._calibration()
        if score_kind(self) != "residual":
            raise TypeError(f"{type(self).__name__} is a classifier: use predict_set.")
        q = conformal_quantile(scores, coverage, delta)
        model, X, _ = self._predictor(X)
        z, rounding = predictions(model, X)
        whole = ~np.isfinite(z) | np.isinf(q)
        centre = np.where(whole, 0.0, z)
        # Outwards by the rounding, so that values with the score q are inside.
        reach = np.where(whole, np.inf, q + rounding * np.maximum(np.abs(centre), q))
        return np.column_stack([centre - reach, centre + reach])

    def predict_set(
        self, X: MatrixLike, coverage: float = 0.9, *, delta: float | None = None
    ) -> Array:
        """Sets of labels that hold a new row's label with probability ``coverage``.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Rows to label.
        coverage : float, default=0.9
            Probability, on average over calibration rows and new rows.
        delta : float, optional
            Failure probability: the chance that the statement does not hold. If given,
            the coverage holds for these calibration rows unless they were drawn
            unluckily, which has this probability; the sets get larger.

        Returns
        -------
        ndarray of bool, of shape (n_samples, n_classes)
            Which labels are in the set, in the order of ``classes_``. A set may be
            empty: no label fits such a row as the calibration rows were fitted.

        Examples
        --------
        >>> from sklearn.datasets import load_iris
        >>> from certus.linear_model import LogisticRegression
        >>> X, y = load_iris(return_X_y=True)
        >>> model = LogisticRegression().fit(X[::2], y[::2]).calibrate(X[1::2], y[1::2])
        >>> model.predict_set(X[70:72], coverage=0.98)
        array([[False,  True,  True],
               [False,  True, False]])
        """
        return self._sets(X, coverage, delta)

    def _sets(self, X: MatrixLike, coverage: float, delta: float | None) -> Array:
        scores = self._calibration()
        if score_kind(self) == "residual":
            raise TypeError(
                f"{type(self).__name__} is a regressor: use predict_interval."
            )
        q = conformal_quantile(scores, coverage, delta)
        model, X, _ = self._predictor(X)
        S, rounding = label_scores(model, X, score_kind(model))
        size = np.abs(np.where(np.isinf(S), 0.0, S)).max(axis=1, keepdims=True)
        return np.asarray(q + rounding * size >= S)

    def _calibration(self) -> Array:
        """The scores that ``calibrate`` stored."""
        check_is_fitted(self)
        stated = getattr(self, "calibration_certificate_", None)
        if stated is None or stated.evidence is None:
            score_kind(self)
            raise NotFittedError(
                f"This {type(self).__name__} is not calibrated. Call calibrate(X_cal, "
                "y_cal) with rows that were not used in fit."
            )
        return np.asarray(stated.evidence.witness.scores)

    def set_params(self, **params: Any) -> Any:
        """Set parameters; forgets the calibration, as predictions may change.

        Parameters
        ----------
        **params : dict
            Names and values.

        Returns
        -------
        estimator
            Itself.
        """
        if params:
            forget_calibration(self)
        return super().set_params(**params)  # type: ignore[misc]


def forget_calibration(model: Fit) -> None:
    """Drop the calibration, because the model is about to change."""
    vars(model).pop("calibration_certificate_", None)


def score_kind(model: Fit) -> str:
    """Which score a model has, by what it predicts."""
    if is_regressor(model):
        return "residual"
    if not is_classifier(model):
        raise TypeError(
            f"{type(model).__name__} is neither a regressor nor a classifier: "
            "conformal prediction needs a model that predicts one number or one "
            "class for each row."
        )
    if hasattr(model, "predict_proba"):
        return "probability"
    return "margin" if hasattr(model, "decision_function") else "label"


# -- scores, large where a value fits a row badly -------------------------------------


def predictions(model: Fit, X: MatrixLike) -> tuple[Array, float]:
    """What a regressor predicts, in float64, and the relative rounding of it."""
    z = np.asarray(model.predict(X))
    return z.astype(np.float64).ravel(), _rounding(z)


def _rounding(z: Array) -> float:
    return 64 * float(np.finfo(z.dtype if z.dtype.kind == "f" else np.float64).eps)


def label_scores(model: Fit, X: MatrixLike, kind: str) -> tuple[Array, float]:
    """The score of every label for every row, NaN as inf; and the rounding of them."""
    if kind == "probability":
        z = np.asarray(model.predict_proba(X))
        S = 1.0 - z.astype(np.float64)
    elif kind == "margin":
        z = np.asarray(model.decision_function(X))
        shape = getattr(model, "decision_function_shape", "")
        S = _behind(_by_class(z.astype(np.float64), len(model.classes_), shape))
    else:
        z = np.asarray(model.predict(X))
        S = (z[:, None] != model.classes_).astype(np.float64)
    return np.where(np.isnan(S), np.inf, S), _rounding(z)


def _by_class(z: Array, k: int, shape: str) -> Array:
    """Decision values as one column for each class."""
    if z.ndim == 1:
        return np.column_stack([-z, z])
    if shape != "ovo" or k == 2:
        return z
    total = np.zeros((len(z), k))
    for column, (i, j) in enumerate(combinations(range(k), 2)):
        total[:, i] += z[:, column]
        total[:, j] -= z[:, column]
    return total


def _behind(z: Array) -> Array:
    """By how much the best other column beats each one."""
    second, first = np.sort(z, axis=1)[:, -2:].T[:, :, None]
    with np.errstate(invalid="ignore"):  # inf − inf
        return np.asarray(np.where(z == first, second, first) - z)


def calibration_scores(model: Fit, X: MatrixLike, y: ArrayLike, kind: str) -> Array:
    """The scores of calibration rows, in ascending order."""
    return np.sort(row_scores(model, X, y, kind))


def row_scores(model: Fit, X: MatrixLike, y: ArrayLike, kind: str) -> Array:
    """The score of each row with its own target, in order; inf where it is NaN."""
    if np.ndim(y) > 1 and np.shape(y)[1] > 1:
        raise ValueError(
            f"y_cal has shape {np.shape(y)}, but conformal prediction needs a single "
            "target. Fit and calibrate one model per target."
        )
    if kind == "residual":
        z, _ = predictions(model, X)
        with np.errstate(invalid="ignore"):
            scores = np.abs(numeric_targets(y, len(z)).ravel() - z)
        return np.where(np.isnan(scores), np.inf, scores)
    try:
        own = known_codes(y, np.asarray(model.classes_))
    except ValueError as error:
        raise ValueError(
            f"{error} If you leave them out, the coverage holds for known labels only."
        ) from None
    S, _ = label_scores(model, X, kind)
    if len(S) != len(own):
        raise ValueError(f"y has {len(own)} rows and X has {len(S)}.")
    return np.asarray(S[np.arange(len(own)), own])
