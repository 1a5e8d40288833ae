"""Additive classification: shapes of columns and pairs that add up to log-odds.

    mean ℓ(y, z) + Σₜ [½ qₜ Σ (w_a − w_b)² + ½ rₜ ‖wₜ‖²],   z = b + Σₜ wₜ[cell of x]

ℓ is the logistic loss, or softmax with a score for each class.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.special import expit, softmax
from sklearn.base import ClassifierMixin

from certus.additive.common import (
    AdditiveBase,
    check_parameters,
    fit_additive,
    read_rows,
)
from certus.base import certified_fit, class_codes
from certus.objectives import Logistic, Softmax
from certus.typing import Array, ArrayLike, MatrixLike


class AdditiveClassifier(ClassifierMixin, AdditiveBase):
    """Classification by a sum of shapes, one for each column and for chosen pairs.

    Objective
    ---------
    mean ℓ(y, z) + Σₜ [½ qₜ Σ (w_a − w_b)² + ½ rₜ ‖wₜ‖²], weighted by ``sample_weight``;
    ℓ is log(1 + exp(−yz)) for two classes, else softmax. z is ``intercept_`` plus the
    values w of the cells that a row lies in; the inner sum runs over neighbouring cells
    a and b of term t. With ``penalty="total_variation"`` it is qₜ Σ abs(w_a − w_b).

    Certificate
    -----------
    ``duality_gap`` (PROVED), relative to the best constant model; ``bin_edges``
    (PROVED): every edge lies halfway between two values of the data; with
    ``monotonic_cst`` also ``monotone_columns`` (PROVED). The check takes one pass over
    all cells.

    Parameters
    ----------
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
    classes_ : ndarray
        Labels.
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
    intercept_ : float or ndarray of shape (n_classes,)
        Constant.
    baseline_ : float or ndarray of shape (n_classes,)
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
    >>> from sklearn.datasets import load_breast_cancer
    >>> from certus.additive import AdditiveClassifier
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> model = AdditiveClassifier(interactions=0, max_bins=16).fit(X[:, :5], y)
    >>> model.certificate_.met, model.score(X[:, :5], y) > 0.9
    (True, True)
    """

    def __init__(
        self,
        *,
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
        """Fit to labelled data.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Training rows; NaN means missing.
        y : array-like of shape (n_samples,)
            Labels.
        sample_weight : array-like of shape (n_samples,), optional
            Row weights. An integer weight equals repetition.
        """
        X, y, s = read_rows(self, X, y, sample_weight)
        check_parameters(self, X.shape[1])
        self.classes_, codes = class_codes(y)
        k = len(self.classes_)
        share = np.bincount(codes, s, k) / np.bincount(codes, s, k).sum()
        if (share == 0).any():
            empty = self.classes_[int(np.argmin(share))]
            raise ValueError(
                f"sample_weight is 0 for all rows of class {empty}. Leave them out."
            )
        start = np.log(share)
        if k == 2:
            signs, odds = np.where(codes == 1, 1.0, -1.0), start[1:] - start[:1]
            done = fit_additive(self, X, signs, s, Logistic(), odds)
        else:
            done = fit_additive(self, X, codes, s, Softmax(k), start - start.mean())
        return done._replace(y=y)

    def decision_function(self, X: MatrixLike) -> Array:
        """Scores: one per row for two classes, else one per row and class.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Rows to score.
        """
        z = self._scores(X)
        return z[:, 0] if len(self.classes_) == 2 else z

    def predict_proba(self, X: MatrixLike) -> Array:
        """Probabilities of the classes.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Rows to predict.
        """
        z = self.decision_function(X)
        if z.ndim == 2:
            return np.asarray(softmax(z, axis=1))
        return np.column_stack([expit(-z), expit(z)])

    def predict(self, X: MatrixLike) -> Array:
        """Predicted labels.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Rows to label.
        """
        z = self.decision_function(X)
        index = (z > 0).astype(int) if z.ndim == 1 else z.argmax(axis=1)
        return np.asarray(self.classes_[index])
