"""Multi-layer perceptrons for numbers, as in scikit-learn, with a certificate.

    minimise  Σ sᵢ ℓ(yᵢ, f(xᵢ; θ)) / Σ s + ½·alpha·‖W‖² / Σ s   over batches of rows

The same parameters give the same weights as there, with one exception: the squared
error of several outputs is their mean, and its gradient is that of the mean.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Self, Unpack

import numpy as np
from sklearn.base import RegressorMixin
from sklearn.metrics import r2_score
from sklearn.utils import column_or_1d
from sklearn.utils.metaestimators import available_if

from certus._core.sharing import shares
from certus.base import certified_fit, check_choice
from certus.neural_network.multilayer import MultilayerPerceptron, in_steps
from certus.neural_network.parameters import PerceptronOptions
from certus.typing import ArrayLike, MatrixLike

if TYPE_CHECKING:
    from torch import nn


@shares(PerceptronOptions)
class MLPRegressor(RegressorMixin, MultilayerPerceptron):
    """Multi-layer perceptron for one or several numbers.

    Objective
    ---------
    Mean over the rows of a batch, and over outputs, of ½(y − f)², plus
    ½·alpha·‖W‖²/batch_size; or of half the Poisson deviance of f = exp(z), summed over
    outputs.

    Certificate
    -----------
    As for :class:`certus.neural_network.NeuralClassifier`, all of it MEASURED:
    ``training_loss``, by a forward pass of the verifier's own, ``gradient_norm``,
    ``gradient_ratio``, ``dead_units``; at level ``full`` the smallest and the largest
    curvature.

    Parameters
    ----------
    loss : {"squared_error", "poisson"}, default="squared_error"
        Loss of a row. "poisson" is for counts, with a logarithmic link.
    hidden_layer_sizes : int or sequence of int, default=(100,)
        Number of units in each hidden layer.
    activation : str, default="relu"
        Activation function of the hidden layers. One of "identity", "logistic", "tanh",
        "relu", "leaky_relu", "elu", "softplus"; on torch also "absolute" and "maxout".
    normalize_y : bool, default=False
        Train on targets of mean 0 and variance 1, which steps of a fixed size want,
        and scale the last layer back; losses are in those units. For
        ``loss="squared_error"`` and ``engine="explicit"``.
    {shared}

    Attributes
    ----------
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
    >>> import numpy as np
    >>> from certus.neural_network import MLPRegressor
    >>> X = np.linspace(-1, 1, 200)[:, None]
    >>> y = np.sin(3 * X[:, 0])
    >>> model = MLPRegressor(solver="lbfgs", max_iter=500, random_state=0).fit(X, y)
    >>> model.score(X, y) > 0.99
    True
    """

    def __init__(
        self,
        loss: str = "squared_error",
        hidden_layer_sizes: int | Sequence[int] = (100,),
        activation: str = "relu",
        *,
        normalize_y: bool = False,
        **shared: Unpack[PerceptronOptions],
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
            Numbers.
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
        self, X: MatrixLike, y: ArrayLike, sample_weight: ArrayLike | None = None
    ) -> Self:
        """Make one epoch over these rows, with the optimiser of the last one.

        Parameters
        ----------
        X, y : array-like
            Rows and their targets.
        sample_weight : array-like of shape (n_samples,), optional
            Row weights.

        Returns
        -------
        MLPRegressor
            Itself, without a certificate; :func:`certus.certify` makes one.
        """
        self._fit_part(X, y, sample_weight, learn=not hasattr(self, "n_layers_"))
        return self

    def predict(self, X: MatrixLike) -> np.ndarray:
        """Predicted numbers.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
            Rows.

        Returns
        -------
        ndarray of shape (n_samples,) or (n_samples, n_outputs)
            One column is given as a vector.
        """
        found = self._predictions(self._scored(X))
        return found[:, 0] if found.shape[1] == 1 else found

    def _predictions(self, Z: np.ndarray) -> np.ndarray:
        return np.exp(Z, out=Z) if self.out_activation_ == "exp" else Z

    def _grade(self, Z: np.ndarray, Y: np.ndarray, s: np.ndarray | None) -> float:
        found = self._predictions(Z)
        if len(Y) < 2 or not np.isfinite(found).all():
            return float("nan")
        return float(r2_score(Y, found, sample_weight=s))

    def _targets(self, y: ArrayLike, reset: bool) -> np.ndarray:
        if np.ndim(y) == 2 and np.shape(y)[1] == 1:
            y = column_or_1d(y, warn=reset)
        try:
            Y = np.asarray(y, dtype=np.float64)
        except (TypeError, ValueError):
            raise ValueError(
                "y must hold numbers, because this model is a regressor."
            ) from None
        Y = Y.reshape(len(Y), -1)
        if self.loss == "poisson" and Y.min() < 0:
            raise ValueError(
                "loss='poisson' needs values of y of at least 0, but some are "
                "negative. Use loss='squared_error'."
            )
        return Y

    def _set_units(self, Y: np.ndarray, s: np.ndarray | None) -> None:
        super()._set_units(Y, s)
        if self.normalize_y:
            self._shift = np.average(Y, axis=0, weights=s)
            spread = np.sqrt(np.average((Y - self._shift) ** 2, axis=0, weights=s))
            self._scale = np.where(spread > 0, spread, 1.0)

    def _output(self) -> tuple[str, str]:
        return ("exp" if self.loss == "poisson" else "identity"), self.loss

    def _neural(self, module: nn.Module, options: dict[str, Any]) -> Any:
        from certus.neural_network import NeuralRegressor
        from certus.neural_network.mlp_torch import poisson

        loss = poisson if self.loss == "poisson" else "auto"
        inner = NeuralRegressor(module, loss=loss, **options)
        inner._flat, inner._columns = self.n_outputs_ == 1, self.n_outputs_
        return inner

    def _check_params(self) -> None:
        check_choice("loss", self.loss, ("squared_error", "poisson"))
        super()._check_params()
        if self.normalize_y and (self.loss == "poisson" or self._on_torch()):
            raise ValueError(
                "normalize_y=True needs loss='squared_error' and the explicit "
                "engine. Standardise y yourself (TransformedTargetRegressor)."
            )
