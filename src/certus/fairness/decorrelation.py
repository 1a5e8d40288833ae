"""Pre-processing: remove from the features what is linearly related to an attribute.

    minimise  E‖X̃ − X‖²  over affine maps X̃ of X  with  Cov(X̃, A) = 0

In whitened coordinates the answer is the orthogonal projection that leaves out the span
of the covariance with A (Belrose et al., 2023). No linear model of X̃ then predicts A
better than a constant does. The map needs A for the fit alone, not for new rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from sklearn.base import OneToOneFeatureMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from certus._core.rows import row_weights
from certus.base import Fitted, Model, certified_fit, check_number, validate_data
from certus.certificate import Evidence
from certus.fairness.attribute import Attributed, basis_of
from certus.typing import Array, ArrayLike


class Decorrelation(Attributed, OneToOneFeatureMixin, TransformerMixin, Model):
    """Removes from the features what is linearly related to an attribute.

    Objective
    ---------
    E‖X̃ − X‖² over all affine maps X̃ of X with Cov(X̃, A) = 0, on the training rows.

    Certificate
    -----------
    ``covariance`` (PROVED): the largest correlation with the attribute that is left
    beyond the share 1 − ``amount``, on the training rows. ``mean_kept`` (PROVED): the
    columns keep their means. ``removed_variance`` (MEASURED). Costs two passes over the
    data.

    Parameters
    ----------
    amount : float, default=1.0
        Share of the covariance that is taken away, in [0, 1].
    sensitive_columns : name, place, or list of them, default=None
        Columns of X with the sensitive attribute, if ``fit`` is not given it. They are
        changed like the others: with ``amount=1`` they become constant.

    Attributes
    ----------
    mean_ : ndarray of shape (n_features,)
        Means of the columns.
    directions_ : ndarray of shape (n_features, n_directions)
        ``(X - mean_) @ directions_`` is what the attribute shows in.
    loadings_ : ndarray of shape (n_directions, n_features)
        ... times these is what is taken away.
    certificate_ : Certificate
        What the verifier found.

    Notes
    -----
    Attributes that are numbers with fractions are taken as they are; all other values
    are categories. With ``amount`` below 1 the map can be inverted, so that a linear
    model with little penalty undoes it. Models that are not linear may still find the
    attribute: see :func:`certus.fairness.recovery`.

    Examples
    --------
    >>> import numpy as np
    >>> from certus.fairness import Decorrelation
    >>> rng = np.random.default_rng(0)
    >>> group = rng.choice(["a", "b"], 200)
    >>> X = rng.normal(size=(200, 3)) + (group == "b")[:, None] * [2.0, 1.0, 0.0]
    >>> plain = Decorrelation().fit_transform(X, sensitive=group)
    >>> gap = plain[group == "a"].mean(axis=0) - plain[group == "b"].mean(axis=0)
    >>> bool(np.abs(gap).max() < 1e-12)
    True
    """

    def __init__(
        self,
        amount: float = 1.0,
        *,
        sensitive_columns: Sequence[str] | Sequence[int] | None = None,
    ) -> None:
        self.amount = amount
        self.sensitive_columns = sensitive_columns

    @certified_fit
    def fit(
        self,
        X: Any,
        y: ArrayLike | None = None,
        sample_weight: Any = None,
        *,
        sensitive: Any = None,
    ) -> Any:
        """Find the directions that are related to the attribute.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Training rows.
        y : None
            Ignored.
        sample_weight : array-like of shape (n_samples,), optional
            Row weights. An integer weight equals repetition.
        sensitive : array-like of shape (n_samples,) or (n_samples, n_attributes)
            The attribute, or several; needed unless ``sensitive_columns`` is set.

        Returns
        -------
        Decorrelation
            Itself.
        """
        check_number("amount", self.amount, 0, 1)
        self._refuse_text(X, sensitive)
        given = X
        X = validate_data(self, X, dtype=[np.float64, np.float32])
        A = self._read_sensitive(given, sensitive)
        s = row_weights(sample_weight, len(X))
        Z = np.asarray(X, dtype=np.float64)
        scale = np.abs(Z[s > 0]).max(axis=0)
        scale[scale == 0] = 1.0
        mean = (s / s.sum()) @ (Z / scale)
        found = _directions(Z / scale - mean, basis_of(A, s), s)
        self.mean_ = mean * scale
        self.directions_ = found[0] / scale[:, None]
        self.loadings_ = float(self.amount) * found[1] * scale
        return Fitted(Evidence("decorrelation"), X, None, sample_weight, sensitive=A)

    def transform(self, X: Any) -> Array:
        """Rows without what is linearly related to the attribute.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Rows; their attribute is not needed.

        Returns
        -------
        ndarray of shape (n_samples, n_features)
        """
        check_is_fitted(self)
        X = validate_data(self, X, reset=False, dtype=[np.float64, np.float32])
        shown = (X - self.mean_) @ self.directions_
        return np.asarray(X - shown @ self.loadings_, dtype=X.dtype)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = False
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags


#: Directions whose spread is below this share of the largest are left out of the
#: whitening, unless the attribute shows in nothing else: dividing by a small spread
#: makes rounding large.
LEAST_SPREADS = (1e-5, 1e-8, 1e-12)


def _directions(Z: Array, U: Array, s: Array) -> tuple[Array, Array]:
    """L and R such that Z − Z L R has no covariance with U; both are centred.

    In whitened coordinates Z L is the part of the rows in which U shows. R is solved
    for, so that what is left has no covariance whatever the rounding of L.
    """
    root = np.sqrt(s / s.sum())[:, None]
    Q, sizes, V = np.linalg.svd(root * Z, full_matrices=False)
    covariance = (root * U).T @ (root * Z)
    size = np.sqrt(np.square(root * Z).sum(axis=0))
    best = np.inf, np.zeros((Z.shape[1], 0)), np.zeros((0, Z.shape[1]))
    for least in LEAST_SPREADS:
        known = sizes > least * sizes.max(initial=0.0)
        P, values, _ = np.linalg.svd(Q[:, known].T @ (root * U), full_matrices=False)
        P = P[:, values > 1e-13]
        L = (V[known].T / sizes[known]) @ P
        shown = (root * U).T @ (root * (Z @ L))
        R = np.linalg.lstsq(shown, covariance, rcond=1e-13)[0]
        rest = np.abs(covariance - shown @ R) / np.maximum(size, 1e-300)
        left = float(rest.max(initial=0.0))
        if left < 0.1 * best[0]:
            best = left, L, R
        if left <= 1e-13:
            break
    return best[1:]
