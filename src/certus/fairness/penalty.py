"""In training: a penalty on the part of the score that an attribute explains.

    loss + Ω + ½·alpha·Var(E[z | A])

where E[z | A] is the best linear prediction of the score z from the attribute A; for
groups, the mean score of each group. Of a linear model the penalty is a quadratic form
in w: the objective stays convex, and a change of coordinates turns both penalties into
the plain one, so the estimator's own solver and certificate can be used.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
from sklearn.base import MetaEstimatorMixin, clone
from sklearn.utils import get_tags
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from certus._core.rows import dense_coef, row_weights
from certus.base import (
    Estimator,
    Fitted,
    certified_fit,
    check_number,
    validate_data,
)
from certus.certificate import Claim, Evidence, Strength
from certus.config import config_context
from certus.fairness.attribute import Attributed, basis_of
from certus.fairness.levels import level_of
from certus.typing import Array, ArrayLike, Fit, MatrixLike


def _has(method: str) -> Any:
    return lambda self: hasattr(getattr(self, "estimator_", self.estimator), method)


def _explained_claims(
    coef: Any, X: MatrixLike, A: Array, sample_weight: ArrayLike | None
) -> list[Claim]:
    """The share of the score's variance that the attribute explains."""
    Z = np.asarray(X, dtype=np.float64)
    s = row_weights(sample_weight, len(Z))
    share = s / s.sum()
    z = Z @ dense_coef(coef).reshape(-1, Z.shape[1]).T
    z = z - share @ z
    total = float((share @ np.square(z)).sum())
    inner = (share[:, None] * basis_of(A, s)).T @ z
    part = float(np.square(inner).sum()) / total if total > 0 else 0.0
    claim = Claim(
        "explained_variance",
        Strength.MEASURED,
        part,
        objective="share of the variance of the score, on these rows",
        detail=f"the attribute explains {100 * part:.2g} % of the score's variance",
    )
    return [claim]


class CovariancePenalty(Attributed, MetaEstimatorMixin, Estimator):
    """Trains a model whose score depends less on an attribute.

    Objective
    ---------
    P + ½·alpha·Var(E[z | A]): P the estimator's own objective, its loss averaged
    over rows; z = Xw + b the score, or the outputs of a network; E[z | A] its best
    linear prediction from the attribute, for groups the mean of each.

    Certificate
    -----------
    Linear models: ``duality_gap`` (PROVED) of the whole objective; and
    ``explained_variance`` (MEASURED), the share of the score's variance. Networks:
    ``training_loss`` and ``gradient_norm`` (MEASURED), with the penalty. As much as the
    certificate of the estimator, and one more pass.

    Parameters
    ----------
    estimator : estimator
        The wrapped estimator. A linear model of certus with an L2 penalty and no other,
        such as ``LogisticRegression``, ``Ridge``, ``LinearSVC``, ``PoissonRegressor``;
        or a network of certus.neural_network, such as ``NeuralClassifier`` or
        ``MLPClassifier``, which torch then trains.
    alpha : float, default=1.0
        Strength of the penalty.
    sensitive_columns : name, place, or list of them, default=None
        Columns of X with the sensitive attribute, if ``fit`` is not given it. The model
        sees them like all others.

    Attributes
    ----------
    estimator_ : estimator
        The fitted one. It predicts; its coefficients are those of X.
    coef_, intercept_ : ndarray
        Of a linear model.
    certificate_ : Certificate
        What the verifier found.

    Notes
    -----
    A linear model is fitted twice, first without the penalty, which tells how strong
    its L2 penalty is. Networks see the explained variance of a batch, which chance
    raises by about Var(z)/batch_size for each group: batches should be large.

    Examples
    --------
    >>> import numpy as np
    >>> from certus.fairness import CovariancePenalty, independence
    >>> from certus.linear_model import LogisticRegression
    >>> rng = np.random.default_rng(0)
    >>> group = rng.choice(["a", "b"], 1000)
    >>> X = rng.normal(size=(1000, 3))
    >>> X[:, 0] += 2.0 * (group == "b")
    >>> y = (X[:, 0] + X[:, 1] + rng.normal(size=1000) > 1).astype(int)
    >>> gaps = []
    >>> for alpha in (0.0, 1.0, 100.0):
    ...     model = CovariancePenalty(LogisticRegression(), alpha=alpha)
    ...     model = model.fit(X, y, sensitive=group)
    ...     gaps.append(independence(model.predict(X), group).difference)
    >>> gaps[0] > gaps[1] > gaps[2], model.certificate_.met
    (True, True)
    """

    def __init__(
        self,
        estimator: Fit,
        *,
        alpha: float = 1.0,
        sensitive_columns: Sequence[str] | Sequence[int] | None = None,
    ) -> None:
        self.estimator = estimator
        self.alpha = alpha
        self.sensitive_columns = sensitive_columns

    @certified_fit
    def fit(
        self,
        X: Any,
        y: Any,
        sample_weight: Any = None,
        *,
        sensitive: Any = None,
    ) -> Any:
        """Fit to data whose attribute is known.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Training rows.
        y : array-like of shape (n_samples,)
            Targets.
        sample_weight : array-like of shape (n_samples,), optional
            Row weights. An integer weight equals repetition.
        sensitive : array-like of shape (n_samples,) or (n_samples, n_attributes)
            The attribute, or several; needed unless ``sensitive_columns`` is set.

        Returns
        -------
        CovariancePenalty
            Itself.
        """
        check_number("alpha", self.alpha, 0, np.finfo(float).max)
        if self._is_network:
            from certus.fairness.neural_penalty import fit_network

            return fit_network(self, X, y, sample_weight, sensitive)
        return self._fit_linear(X, y, sample_weight, sensitive)

    @property
    def _is_network(self) -> bool:
        kinds = {kind.__name__ for kind in type(self.estimator).__mro__}
        return bool(kinds & {"NeuralModel", "MultilayerPerceptron"})

    def _fit_linear(
        self,
        X: Any,
        y: ArrayLike,
        sample_weight: ArrayLike | None,
        sensitive: MatrixLike,
    ) -> Fitted:
        self._refuse_text(X, sensitive)
        given = X
        X = validate_data(self, X, dtype=[np.float64, np.float32])
        A = self._read_sensitive(given, sensitive)
        found = clone(self.estimator)
        options = {} if sample_weight is None else {"sample_weight": sample_weight}
        with config_context(certify="always"):  # its evidence is needed here
            found.fit(X, y, **options)
        level = level_of(found, y, sample_weight)
        s = row_weights(sample_weight, len(X))
        U = basis_of(A, s)
        Z = np.asarray(X, dtype=np.float64)
        share = s / s.sum()
        M = (share[:, None] * U).T @ (Z - share @ Z)
        _, sizes, V = np.linalg.svd(M, full_matrices=False)
        shrink = 1 / np.sqrt(1 + float(self.alpha) / level * np.square(sizes)) - 1
        if self.alpha > 0:
            moved = (Z + ((Z @ V.T) * shrink) @ V).astype(X.dtype)
            with config_context(certify="always"):
                found = clone(self.estimator).fit(moved, y, **options)
        evidence = found.certificate_.evidence
        status = found.certificate_.status
        coef = dense_coef(found.coef_)
        coef = (coef + ((coef @ V.T) * shrink) @ V).astype(coef.dtype)
        found.coef_ = coef
        del found.certificate_  # it is about other columns
        self.estimator_ = found
        mine = Evidence("covariance_penalty", witness=evidence.witness)
        measured = partial(_explained_claims, coef, X, A, sample_weight)
        return Fitted(mine, X, y, sample_weight, status, A, measured)

    def diagnose(
        self,
        X: Any,
        y: Any = None,
        sample_weight: Any = None,
        level: str = "quick",
        *,
        sensitive: Any = None,
    ) -> list[Claim]:
        """Measure the fitted model on rows: what the attribute explains of its score.

        Of a network, the loss with the penalty and its gradient.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Rows like those of the fit.
        y : array-like of shape (n_samples,)
            Their targets.
        sample_weight : array-like of shape (n_samples,), optional
            Row weights. Those used in ``fit``.
        level : {"quick", "full"}, default="quick"
            At ``"full"`` on more rows, and with the curvature.
        sensitive : array-like, optional
            The attribute; needed unless ``sensitive_columns`` is set.

        Returns
        -------
        list of Claim
            All MEASURED: numbers without a promise.
        """
        check_is_fitted(self)
        A = self._read_sensitive(X, sensitive)
        if not self._is_network:
            return _explained_claims(self.coef_, X, A, sample_weight)
        from certus.fairness.neural_penalty import measure_network

        evidence = getattr(getattr(self, "certificate_", None), "evidence", None)
        witness = None if evidence is None else evidence.witness
        return measure_network(self, witness, X, y, sample_weight, A, level)

    def _asked(self, X: MatrixLike) -> Any:
        """X in the form that the estimator was fitted on."""
        check_is_fitted(self)
        if self._is_network:
            return X
        return validate_data(self, X, reset=False, dtype=[np.float64, np.float32])

    def predict(self, X: MatrixLike) -> Array:
        """Predictions of the fitted estimator.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Rows; their attribute is not needed.

        Returns
        -------
        ndarray
        """
        X = self._asked(X)
        return np.asarray(self.estimator_.predict(X))

    @available_if(_has("predict_proba"))
    def predict_proba(self, X: MatrixLike) -> Array:
        """Probabilities of the classes.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Rows.

        Returns
        -------
        ndarray of shape (n_samples, n_classes)
        """
        X = self._asked(X)
        return np.asarray(self.estimator_.predict_proba(X))

    @available_if(_has("decision_function"))
    def decision_function(self, X: MatrixLike) -> Array:
        """Scores.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Rows.

        Returns
        -------
        ndarray
        """
        X = self._asked(X)
        return np.asarray(self.estimator_.decision_function(X))

    def score(
        self, X: MatrixLike, y: ArrayLike, sample_weight: ArrayLike | None = None
    ) -> float:
        """Accuracy of a classifier, R² of a regressor.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Rows.
        y : array-like of shape (n_samples,)
            Their targets.
        sample_weight : array-like of shape (n_samples,), optional
            Row weights.

        Returns
        -------
        float
        """
        X = self._asked(X)
        return float(self.estimator_.score(X, y, sample_weight))

    @property
    def coef_(self) -> Array:
        """Coefficients of a linear model."""
        return np.asarray(self.estimator_.coef_)

    @property
    def intercept_(self) -> Any:
        """Intercept of a linear model."""
        return self.estimator_.intercept_

    @property
    def classes_(self) -> Array:
        """Labels, if there are any."""
        return np.asarray(self.estimator_.classes_)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        inner = get_tags(self.estimator)
        for name in ("estimator_type", "classifier_tags", "regressor_tags"):
            setattr(tags, name, getattr(inner, name))
        tags.target_tags, tags.input_tags = inner.target_tags, inner.input_tags
        tags.input_tags.sparse = tags.input_tags.sparse and self._is_network
        tags.non_deterministic = inner.non_deterministic
        return tags
