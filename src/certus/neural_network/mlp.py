"""Multi-layer perceptrons for classes, as in scikit-learn, with a certificate.

    minimise  Σ sᵢ ℓ(yᵢ, f(xᵢ; θ)) / Σ s + ½·alpha·‖W‖² / Σ s   over batches of rows

The same parameters give the same weights as there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self, Unpack

import numpy as np
from scipy import sparse
from scipy.special import expit
from sklearn.base import ClassifierMixin
from sklearn.metrics import accuracy_score
from sklearn.utils import column_or_1d
from sklearn.utils.metaestimators import available_if
from sklearn.utils.multiclass import type_of_target

from certus._core.rows import known_codes, labelled_weights
from certus._core.sharing import shares
from certus.base import certified_fit, class_codes
from certus.neural_network.backprop import softmax
from certus.neural_network.multilayer import MultilayerPerceptron, in_steps
from certus.neural_network.parameters import (
    PerceptronOptions,
    RobustOptions,
    RobustPerceptronOptions,
)
from certus.typing import ArrayLike, MatrixLike

if TYPE_CHECKING:
    from torch import nn

#: Parameters of robust training, which torch obeys.
ROBUST = tuple(RobustOptions.__annotations__)


@shares(PerceptronOptions, RobustOptions)
class MLPClassifier(ClassifierMixin, MultilayerPerceptron):
    """Multi-layer perceptron for classes, or for several labels at once.

    Objective
    ---------
    Mean over the rows of a batch of −log p(y), p by softmax (or by the logistic
    function, two classes; summed over labels), plus ½·alpha·‖W‖²/batch_size.

    Certificate
    -----------
    As for :class:`certus.neural_network.NeuralClassifier`, all of it MEASURED:
    ``training_loss``, by a forward pass of the verifier's own, ``gradient_norm``,
    ``gradient_ratio``, ``dead_units``; at level ``full`` the smallest and the largest
    curvature.

    Parameters
    ----------
    hidden_layer_sizes : int or sequence of int, default=(100,)
        Number of units in each hidden layer.
    activation : str, default="relu"
        Activation function of the hidden layers. One of "identity", "logistic", "tanh",
        "relu", "leaky_relu", "elu", "softplus"; on torch also "absolute" and "maxout".
    class_weight : dict or "balanced", default=None
        Weights of the classes, which multiply the row weights.
    {shared}

    Attributes
    ----------
    classes_ : ndarray
        Classes; numbers of columns, where y has several.
    coefs_, intercepts_ : lists of ndarray
        Weights, of shape (inputs, outputs) of each layer, and biases.
    module_ : nn.Module
        A :class:`certus.neural_network.modules.MLP` that shares memory with them; its
        outputs are scores before the output activation. Made again at each look, unless
        torch trained it.
    loss_ : float
        Mean loss of the last epoch's batches, with the penalty.
    best_loss_ : float or None
        The lowest; None where rows are held out.
    loss_curve_ : list of float
        Loss of each epoch; not with "lbfgs".
    validation_scores_ : list of float or None
        Score of the rows held out after each epoch.
    best_validation_score_ : float or None
        The highest.
    history_ : dict of lists
        After each epoch of this fit: loss, validation_score, seconds.
    n_iter_, best_epoch_, t_ : int
        Epochs; the one whose weights were kept, or of the lowest loss; rows seen.
    n_layers_, n_outputs_ : int
        Layers, input and output among them; columns of the last.
    out_activation_ : str
        Of the last layer.
    certificate_ : Certificate
        What the verifier found.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from sklearn.preprocessing import scale
    >>> from certus.neural_network import MLPClassifier
    >>> X, y = load_iris(return_X_y=True)
    >>> model = MLPClassifier((16,), solver="lbfgs", random_state=0).fit(scale(X), y)
    >>> model.score(scale(X), y) > 0.95
    True
    """

    def __init__(
        self,
        hidden_layer_sizes: int | Sequence[int] = (100,),
        activation: str = "relu",
        *,
        class_weight: Mapping[Any, float] | str | None = None,
        **shared: Unpack[RobustPerceptronOptions],
    ) -> None: ...

    @certified_fit
    def fit(
        self,
        X: MatrixLike,
        y: ArrayLike,
        sample_weight: ArrayLike | None = None,
        *,
        X_val: MatrixLike | None = None,
        y_val: ArrayLike | None = None,
    ) -> Any:
        """Train the network.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
            Rows.
        y : array-like of shape (n_samples,) or (n_samples, n_outputs)
            Classes; or zeros and ones, one column for each label.
        sample_weight : array-like of shape (n_samples,), optional
            Row weights.
        X_val, y_val : array-like, optional
            Rows of your own to stop by.

        Returns
        -------
        estimator
            Itself.
        """
        return self._fit(X, y, sample_weight, X_val, y_val)

    @available_if(in_steps)
    def partial_fit(
        self,
        X: MatrixLike,
        y: ArrayLike,
        sample_weight: ArrayLike | None = None,
        classes: ArrayLike | None = None,
    ) -> Self:
        """Make one epoch over these rows, with the optimiser of the last one.

        Parameters
        ----------
        X, y : array-like
            Rows and their classes.
        sample_weight : array-like of shape (n_samples,), optional
            Row weights.
        classes : array-like, optional
            All classes there will be; needed in the first call.

        Returns
        -------
        MLPClassifier
            Itself, without a certificate; :func:`certus.certify` makes one.
        """
        fresh, table = not hasattr(self, "n_layers_"), _is_table(y)
        if fresh and not table:
            if classes is None:
                raise ValueError(
                    "classes must be passed on the first call to partial_fit: list "
                    "all classes that can occur."
                )
            self.classes_ = class_codes(np.unique(np.asarray(classes)))[0]
            self._labels = False
        elif not (fresh or classes is None) and not np.array_equal(
            np.unique(np.asarray(classes)), self.classes_
        ):
            raise ValueError(
                "classes must be the same as in the first call to partial_fit."
            )
        self._fit_part(X, y, sample_weight, learn=fresh and table)
        return self

    def predict_proba(self, X: MatrixLike) -> np.ndarray:
        """Probabilities of the classes; of each label, where there are several.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
            Rows.

        Returns
        -------
        ndarray of shape (n_samples, n_classes)
            In the order of ``classes_``.
        """
        p = self._probabilities(self._scored(X))
        return np.hstack([1 - p, p]) if self.n_outputs_ == 1 else p

    def predict_log_proba(self, X: MatrixLike) -> np.ndarray:
        """Logarithms of :meth:`predict_proba`.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
            Rows.

        Returns
        -------
        ndarray of shape (n_samples, n_classes)
            In the order of ``classes_``.
        """
        p = self.predict_proba(X)
        with np.errstate(divide="ignore"):
            return np.log(p, out=p)

    def predict(self, X: MatrixLike) -> np.ndarray:
        """The most probable class of each row, or its labels as zeros and ones.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
            Rows.

        Returns
        -------
        ndarray of shape (n_samples,) or (n_samples, n_labels)
            Classes.
        """
        found = self._decide(self._scored(X))
        return found if self._labels else self.classes_[found]

    def _decide(self, Z: np.ndarray) -> np.ndarray:
        """Class numbers, or labels, of scores."""
        if self.out_activation_ == "softmax":
            return Z.argmax(axis=1)
        found = (Z > 0).astype(np.int64)
        return found if self._labels else found[:, 0]

    def _probabilities(self, Z: np.ndarray) -> np.ndarray:
        return softmax(Z) if self.out_activation_ == "softmax" else expit(Z)

    def _grade(self, Z: np.ndarray, Y: np.ndarray, s: np.ndarray | None) -> float:
        truth = Y.astype(np.int64)
        if not self._labels:
            single = truth.shape[1] == 1
            truth = truth[:, 0] if single else truth.argmax(axis=1)
        return float(accuracy_score(truth, self._decide(Z), sample_weight=s))

    def _targets(self, y: Any, reset: bool) -> np.ndarray:
        y = y.toarray() if sparse.issparse(y) else np.asarray(y)
        table = _is_table(y)
        if reset:
            self._labels = table
            if table:
                self.classes_ = np.arange(y.shape[1])
        if table != self._labels or (table and y.shape[1] != len(self.classes_)):
            columns = len(self.classes_) if self._labels else 1
            raise ValueError(
                f"y has {y.shape[1] if table else 1} columns, but the model was "
                f"fitted on {columns}."
            )
        if table:
            if not np.isin(y, (0, 1)).all():
                raise ValueError(
                    "Multioutput target data is not supported: if y has several "
                    "columns, they must hold zeros and ones, one column for each "
                    "label."
                )
            return y
        y = column_or_1d(y, warn=True)
        if reset:
            self.classes_, codes = class_codes(y)
        else:
            codes = known_codes(y, self.classes_)
        if len(self.classes_) == 2:
            return codes[:, None]
        return np.eye(len(self.classes_), dtype=np.float32)[codes]

    def _output(self) -> tuple[str, str]:
        name = "logistic" if self._labels or len(self.classes_) == 2 else "softmax"
        return name, name

    def _require_classes(self, y: ArrayLike) -> None:
        if self._labels or _is_table(y):
            return
        found = np.unique(np.asarray(y))
        if not np.array_equal(found, self.classes_):
            raise ValueError(
                "warm_start can only be used where `y` has the same classes as in the "
                f"previous call to fit. Previously got {self.classes_}, `y` has {found}"
            )

    def _row_weights(
        self, y: ArrayLike, sample_weight: ArrayLike | None, n: int
    ) -> np.ndarray | None:
        if self.class_weight is None:
            return super()._row_weights(y, sample_weight, n)
        if self._labels:
            raise ValueError(
                "class_weight needs one class for each row, but y has several "
                "columns. Use sample_weight."
            )
        codes = known_codes(np.asarray(y), self.classes_)
        return labelled_weights(sample_weight, self.class_weight, codes, self.classes_)

    def _neural(self, module: nn.Module, options: dict[str, Any]) -> Any:
        from certus.neural_network import NeuralClassifier

        given = {name: getattr(self, name) for name in ("class_weight", *ROBUST)}
        inner = NeuralClassifier(module, **given, **options)
        inner.classes_ = self.classes_
        inner._kind = "labels" if self._labels else "classes"
        return inner

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_label = True
        return tags


def _is_table(y: ArrayLike) -> bool:
    """Whether y has several columns."""
    shape = y.shape if hasattr(y, "shape") else np.shape(y)
    if len(shape) == 2 and shape[1] > 1:
        return True
    return type_of_target(y) == "multilabel-indicator" if sparse.issparse(y) else False
