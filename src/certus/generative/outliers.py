"""Outliers at a level: conformal p-values of rows that a model finds unlikely.

    p(x) = (1 + #{i : s(xᵢ) ≥ s(x)})/(n + 1)   over n calibration rows

Whatever the model, a new row that is exchangeable with the calibration rows has
p ≤ α with probability at most α (Vovk). Over a batch of rows, Benjamini and Hochberg's
rule keeps the expected share of false alarms among all alarms at most α: conformal
p-values that share calibration rows are positively dependent (Bates et al. 2023).
"""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from sklearn.exceptions import NotFittedError
from sklearn.utils.validation import check_is_fitted

from certus.base import check_number
from certus.certificate import Certificate, Evidence
from certus.conformal import forget_calibration
from certus.evidence import ConformalWitness
from certus.typing import Array, MatrixLike
from certus.verify import judge, seen_in_fit


class OutlierCalibration:
    """``calibrate`` and ``predict_outlier``; a mixin of models with outlier scores."""

    calibration_certificate_: Certificate

    def outlier_scores(self, X: MatrixLike) -> Array:
        """How badly each row fits; large is odd.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Rows.

        Returns
        -------
        ndarray of shape (n_samples,)
        """
        raise NotImplementedError

    def calibrate(self, X_cal: MatrixLike) -> Self:
        """Learn from rows kept aside how unlikely an ordinary row may be.

        Sets ``calibration_certificate_``, which states the share of false alarms
        (STATISTICAL). A new ``fit`` or ``set_params`` forgets it.

        Parameters
        ----------
        X_cal : array-like of shape (n_samples, n_features)
            Ordinary rows that were not used in ``fit`` nor to choose the model. For an
            alarm at level α at least 1/α − 1 of them.

        Returns
        -------
        estimator
            Itself.
        """
        check_is_fitted(self)
        scores = np.sort(_without_nan(self.outlier_scores(X_cal)))
        y = np.zeros(len(scores))
        if seen_in_fit(self, X_cal, y):
            raise ValueError(
                "X_cal holds the rows of the fit. The model finds them likelier than "
                "new rows, so the level would not hold. Calibrate on rows that were "
                "not used in fit."
            )
        evidence = Evidence("conformal", witness=ConformalWitness(scores))
        self.calibration_certificate_ = judge(self, evidence, X_cal, y)
        return self

    def outlier_pvalues(self, X: MatrixLike) -> Array:
        """The share of calibration rows that fit no better than each row.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Rows.

        Returns
        -------
        ndarray of shape (n_samples,)
            At most α with probability at most α for a row like the calibration rows.
        """
        scores = self._calibration()
        s = _without_nan(self.outlier_scores(X))
        above = len(scores) - np.searchsorted(scores, s, side="left")
        return np.asarray((1.0 + above) / (1.0 + len(scores)))

    def predict_outlier(
        self, X: MatrixLike, alpha: float = 0.05, *, together: bool = False
    ) -> Array:
        """Which rows are outliers, with a bounded share of false alarms.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Rows.
        alpha : float, default=0.05
            Level: the largest probability that an ordinary row raises an alarm.
        together : bool, default=False
            Whether to judge the rows as one batch, by Benjamini and Hochberg's rule: at
            most ``alpha`` of the alarms, on average, are then false.

        Returns
        -------
        ndarray of bool, of shape (n_samples,)
        """
        check_number("alpha", alpha, 0, 1, open_low=True)
        p = self.outlier_pvalues(X)
        if not together:
            return np.asarray(p <= alpha)
        order = np.sort(p)
        below = order <= alpha * np.arange(1, len(p) + 1) / len(p)
        if not below.any():
            return np.zeros(len(p), bool)
        return np.asarray(p <= order[np.flatnonzero(below)[-1]])

    def _calibration(self) -> Array:
        check_is_fitted(self)
        stated = getattr(self, "calibration_certificate_", None)
        if stated is None or stated.evidence is None:
            raise NotFittedError(
                f"This {type(self).__name__} is not calibrated. Call calibrate(X_cal) "
                "with ordinary rows that were not used in fit."
            )
        return np.asarray(stated.evidence.witness.scores)

    def set_params(self, **params: Any) -> Any:
        """Set parameters; forgets the calibration, as scores may change.

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


def _without_nan(scores: Array) -> Array:
    return np.where(np.isnan(scores), np.inf, scores)
