"""Code that classifiers share whose training uses more than the labels.

They hold an estimator with all settings of the training, and change what it minimises.
Prediction, history and the module are those of the network that was trained.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
from sklearn.base import ClassifierMixin, MetaEstimatorMixin, clone
from sklearn.utils import get_tags
from sklearn.utils.validation import check_is_fitted

from certus.base import Estimator, Fitted
from certus.certificate import Claim
from certus.diagnostics import Diagnosed, measure
from certus.diagnostics.networks import count_rows
from certus.evidence import NetworkWitness
from certus.neural_network.estimator import NeuralModel
from certus.neural_network.row_targets import ClassTargets
from certus.typing import ArrayLike, MatrixLike


class WrappedClassifier(Diagnosed, ClassifierMixin, MetaEstimatorMixin, Estimator):
    """Trains a classifier of certus.neural_network on another objective; abstract.

    ``estimator`` is the network to train, ``estimator_`` the trained one.
    """

    estimator: Any

    def _clone(self) -> Any:
        """A fresh copy of the classifier that is to be trained."""
        network = self.estimator
        if not (isinstance(network, NeuralModel) and isinstance(network, ClassTargets)):
            raise TypeError(
                "estimator must be a classifier of certus.neural_network that torch "
                f"trains, such as NeuralClassifier(module); got {network!r}."
            )
        return clone(network)

    def _train(
        self,
        network: NeuralModel,
        X: MatrixLike,
        y: ArrayLike,
        s: ArrayLike | None,
        *rest: Any,
    ) -> Fitted:
        """Fit the clone, as its own ``fit`` would but for the objective."""
        if hasattr(network, "_learn_scale"):  # images are scaled before they are read
            network._learn_scale(X, s)
        done: Fitted = network._fit(X, y, s, *rest)
        self.estimator_ = network
        return done

    def _stated(
        self,
        X: MatrixLike,
        y: ArrayLike,
        sample_weight: ArrayLike | None,
        chosen: np.ndarray,
    ) -> Any:
        """The objective on some rows as a function of the weights."""
        raise NotImplementedError

    def _measured(
        self,
        witness: NetworkWitness | None,
        X: MatrixLike,
        y: ArrayLike,
        sample_weight: ArrayLike | None,
        level: str,
    ) -> list[Claim]:
        at = partial(self._stated, X, y, sample_weight)
        record = self._network._recorded(witness, X)
        return measure(at, count_rows(X, y), sample_weight, record, level)

    @property
    def _network(self) -> Any:
        check_is_fitted(self, "estimator_")
        return self.estimator_

    def predict_proba(self, X: MatrixLike) -> np.ndarray:
        """Probabilities of the classes.

        Parameters
        ----------
        X : array-like
            Rows like those of the fit.

        Returns
        -------
        ndarray of shape (n_samples, n_classes)
            In the order of ``classes_``.
        """
        return self._network.predict_proba(X)

    def predict(self, X: MatrixLike) -> np.ndarray:
        """The most probable class of each row.

        Parameters
        ----------
        X : array-like
            Rows like those of the fit.

        Returns
        -------
        ndarray of shape (n_samples,)
            Classes.
        """
        return self._network.predict(X)

    def _raw_function(self, shape: tuple[int, ...]) -> Any:
        """Scores of raw rows, as the network gives them."""
        return self._network._raw_function(shape)

    @property
    def classes_(self) -> Any:
        """Classes, as the network knows them."""
        return self._network.classes_

    @property
    def module_(self) -> Any:
        """The trained module."""
        return self._network.module_

    @property
    def history_(self) -> Any:
        """What was recorded after each epoch."""
        return self._network.history_

    @property
    def n_iter_(self) -> int:
        """Epochs made."""
        return self._network.n_iter_

    @property
    def n_features_in_(self) -> int:
        """Columns of X."""
        return self._network.n_features_in_

    @property
    def feature_names_in_(self) -> Any:
        """Names of the columns of X, if they had any."""
        return self._network.feature_names_in_

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        inner = get_tags(self.estimator)
        tags.input_tags, tags.target_tags = inner.input_tags, inner.target_tags
        tags.non_deterministic = inner.non_deterministic
        if tags.classifier_tags is not None:
            tags.classifier_tags.multi_label = False
        return tags
