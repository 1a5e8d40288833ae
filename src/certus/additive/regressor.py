"""Additive regression: a shape for each column, and for a few pairs of columns.

    mean ℓ(y, z) + Σₜ [½ qₜ Σ (w_a − w_b)² + ½ rₜ ‖wₜ‖²],   z = b + Σₜ wₜ[cell of x]

Neighbouring cells a and b are pulled together, and all cells towards 0.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.base import RegressorMixin

from certus.additive.common import (
    AdditiveBase,
    check_parameters,
    fit_additive,
    read_rows,
)
from certus.additive.layout import quantiles
from certus.base import certified_fit, check_choice, check_number
from certus.objectives import Exponential, Poisson, Quantile, Squared
from certus.typing import Array, ArrayLike, MatrixLike

#: Losses by scikit-learn's names.
LOSSES: dict[str, Any] = {
    "squared_error": Squared(),
    "poisson": Poisson(),
    "gamma": Exponential(),
}


class AdditiveRegressor(RegressorMixin, AdditiveBase):
    """Regression by a sum of shapes, one for each column and for chosen pairs.

    Objective
    ---------
    mean ℓ(y, z) + Σₜ [½ qₜ Σ (w_a − w_b)² + ½ rₜ ‖wₜ‖²], weighted by ``sample_weight``.
    z is ``intercept_`` plus the values w of the cells that a row lies in; the inner sum
    runs over neighbouring cells a and b of term t. With ``penalty="total_variation"``
    the first part is qₜ Σ abs(w_a − w_b).

    Certificate
    -----------
    ``duality_gap`` (PROVED), relative to the best constant model; ``bin_edges``
    (PROVED): every edge lies halfway between two values of the data; with
    ``monotonic_cst`` also ``monotone_columns`` (PROVED). The check takes one pass over
    all cells.

    Parameters
    ----------
    loss : {"squared_error", "poisson", "gamma", "quantile"}, default="squared_error"
        Loss of a row. "poisson" and "gamma" predict exp(z), for counts and positive
        amounts.
    quantile : float, default=0.5
        Which quantile, strictly between 0 and 1. Only for ``loss="quantile"``.
    penalty : {"quadratic", "total_variation"}, default="quadratic"
        Norm of the penalty. It applies to the differences between neighbouring cells.
        With "total_variation" it is qₜ Σ abs(w_a − w_b) instead of ½ qₜ Σ (w_a − w_b)²,
        so that shapes are made of few steps.
    alpha : float, default=None
        Strength of the penalty. None chooses both strengths of each term,
        ``smoothing_`` and ``shrinkage_``, from the training data. A number sets them to
        alpha/cells and alpha/(100·cells) for every term, where cells is the number of
        cells.
    interactions : "auto", int or list of pairs, default="auto"
        Which pairs of columns have a shape of their own: the strongest, at most this
        many, or those listed. "auto" takes at most 12 pairs.
    monotonic_cst : array-like of shape (n_features,), default=None
        For each column 1 if the score must not fall in it, −1 if it must not rise, else
        0. A column with 1 or −1 is left out of pairs.
    categorical_features : array-like, default=None
        Columns whose values have no order. Indices, names or a mask; each value has a
        cell of its own.
    max_bins : int, default=None
        Largest number of cells of a column. None divides about 1,000 cells among the
        columns, or 1.5 cells for each row if that is less; each column gets between 16
        and 128.
    tol : float, default=1e-6
        Target of the certificate's primary claim.
    max_iter : int, default=100
        Maximum number of iterations. They are Newton steps, or interior point steps
        where the loss or the penalty has kinks.
    max_time : float, default=None
        Seconds after which the fit stops and keeps what it has.

    Attributes
    ----------
    terms_ : list of tuples
        Columns of each term: one column, or the two of a pair.
    bin_edges_ : list of lists of ndarray
        For each term and column the edges between cells, or the categories.
    shapes_ : list of ndarray
        Value of each cell. The first cell along an axis holds missing and unknown
        values.
    shape_std_ : list of ndarray
        Standard deviation of each cell's value, for the bands of ``plot_shapes``.
    smoothing_, shrinkage_ : ndarray of shape (n_terms,)
        Strengths qₜ and rₜ of both penalties of each term.
    intercept_ : float
        Constant.
    baseline_ : float
        Mean score of the training rows.
    term_means_ : ndarray
        Mean of each term over the training rows.
    is_categorical_ : ndarray of bool
        Which columns are categorical.
    n_iter_ : int
        Number of steps, after the strengths were chosen.
    history_ : dict
        Objective, gap and seconds after each step.
    certificate_ : Certificate
        What the verifier found.

    Examples
    --------
    >>> import numpy as np
    >>> from certus.additive import AdditiveRegressor
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-3, 3, size=(500, 2))
    >>> y = np.sin(X[:, 0]) + np.abs(X[:, 1]) + 0.1 * rng.normal(size=500)
    >>> model = AdditiveRegressor().fit(X, y)
    >>> model.certificate_.met, round(model.score(X, y), 2)
    (True, 0.99)
    """

    def __init__(
        self,
        loss: str = "squared_error",
        *,
        quantile: float = 0.5,
        penalty: str = "quadratic",
        alpha: float | None = None,
        interactions: Any = "auto",
        monotonic_cst: ArrayLike | None = None,
        categorical_features: ArrayLike | None = None,
        max_bins: int | None = None,
        tol: float = 1e-6,
        max_iter: int = 100,
        max_time: float | None = None,
    ) -> None:
        self.loss = loss
        self.quantile = quantile
        self.penalty = penalty
        self.alpha = alpha
        self.interactions = interactions
        self.monotonic_cst = monotonic_cst
        self.categorical_features = categorical_features
        self.max_bins = max_bins
        self.tol = tol
        self.max_iter = max_iter
        self.max_time = max_time

    @certified_fit
    def fit(self, X: Any, y: Any, sample_weight: ArrayLike | None = None) -> Any:
        """Fit to data.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Training rows; NaN means missing.
        y : array-like of shape (n_samples,)
            Targets.
        sample_weight : array-like of shape (n_samples,), optional
            Row weights. An integer weight equals repetition.
        """
        check_choice("loss", self.loss, (*LOSSES, "quantile"))
        check_number("quantile", self.quantile, 0, 1, open_low=True)
        if self.quantile >= 1:
            raise ValueError(
                f"quantile must be strictly between 0 and 1, got {self.quantile!r}."
            )
        X, y, s = read_rows(self, X, y, sample_weight, y_numeric=True)
        check_parameters(self, X.shape[1])
        y = np.asarray(y, dtype=np.float64)
        if self.loss == "quantile":
            q, share = float(self.quantile), np.ones(len(y)) if s is None else s
            start = quantiles(y, share, [q])
            return fit_additive(self, X, y, s, Quantile(q), start)
        mean = float(np.average(y, weights=s))
        if self.loss != "squared_error":
            allowed = "of 0 or more" if self.loss == "poisson" else "above 0"
            if (y < 0).any() or (self.loss == "gamma" and (y <= 0).any()):
                raise ValueError(
                    f"y must hold only amounts {allowed} for loss={self.loss!r}, got "
                    f"{float(y.min())}."
                )
            if mean <= 0:
                raise ValueError(
                    f"y must hold an amount above 0 for loss={self.loss!r}, got only 0."
                )
            mean = float(np.log(mean))
        return fit_additive(self, X, y, s, LOSSES[self.loss], np.array([mean]))

    def predict(self, X: MatrixLike) -> Array:
        """Predicted values.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Rows to predict.
        """
        z = self._scores(X)[:, 0]
        return np.exp(z) if self.loss in ("poisson", "gamma") else z
