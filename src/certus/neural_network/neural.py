"""Your own module as a classifier or a regressor.

    minimise over θ:  Σ sᵢ ℓ(yᵢ, f(xᵢ; θ)) / Σ s

where f is any ``nn.Module``. Training, early stopping, checkpoints and the certificate
are those of every network here.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any, Unpack

from torch import Tensor, nn

from certus.base import certified_fit
from certus.neural_network.array_input import ArrayInput
from certus.neural_network.objective import Targets
from certus.neural_network.parameters import (
    LabelOptions,
    RobustClassifierOptions,
    RobustOptions,
    TrainingOptions,
    trained_with,
)
from certus.neural_network.row_targets import ClassTargets, NumberTargets
from certus.typing import ArrayLike, Matrix, MatrixLike
from certus.wording import unstopped

__all__ = [
    "ArrayInput",
    "ClassTargets",
    "NeuralClassifier",
    "NeuralRegressor",
    "NumberTargets",
]


class OwnModule(ArrayInput):
    """Trains the parameter ``module``; abstract."""

    def _build(self, X: Matrix, targets: Targets) -> nn.Module:
        if not callable(self.loss) and self.loss != "auto":
            raise ValueError(
                f"loss must be 'auto' or a function of outputs and targets, got "
                f"{self.loss!r}."
            )
        if isinstance(self.module, nn.Module):
            return copy.deepcopy(self.module)
        if not callable(self.module):
            raise TypeError(
                "module must be an nn.Module, or a function that makes one from the "
                f"numbers of inputs and outputs; got {self.module!r}."
            )
        sizes = int(X.shape[1]), targets.outputs
        try:
            module = self.module(*sizes)
        except TypeError as error:
            raise TypeError(
                "module must be a function of the numbers of inputs and outputs; the "
                f"call module{sizes} failed: {unstopped(error)}."
            ) from error
        if not isinstance(module, nn.Module):
            raise TypeError(
                "module(n_inputs, n_outputs) must return an nn.Module, got a "
                f"{type(module).__name__}."
            )
        return module


@trained_with(
    TrainingOptions,
    LabelOptions,
    RobustOptions,
)
class NeuralClassifier(OwnModule, ClassTargets):
    """Trains your own module to tell classes apart.

    The module gives a score for each class (before any softmax), or one score for two
    classes. y holds classes; or a column of zeros and ones for each of several labels;
    or a distribution over classes in each row.

    Objective
    ---------
    Σ sᵢ ℓ(yᵢ, f(xᵢ; θ)) / Σ s, ℓ the cross entropy: −Σₖ tₖ log softmax(f)ₖ, or summed
    over labels −t log σ(f) − (1 − t) log σ(−f).

    Certificate
    -----------
    ``training_loss``, ``gradient_norm`` and ``gradient_ratio`` (MEASURED): the loss on
    at most 2,048 rows, in float64 and evaluation mode; its gradient; and that gradient
    along a direction beside finite differences. ``dead_units`` (MEASURED), where there
    are ReLUs. At level ``full`` the smallest and the largest curvature. Some ten
    forward passes over those rows, which are fewer where the network is large or rows
    are, as images; the claims say how many.

    Parameters
    ----------
    module : nn.Module or callable
        The network to train, or a function that makes it. A copy of a module is trained
        from its present weights; a function is called as ``module(n_inputs,
        n_outputs)``. X is cast to its dtype; where it begins with an embedding, X holds
        whole numbers.
    loss : "auto" or callable, default="auto"
        Loss of a row. "auto" is the cross entropy; ``loss(z, y)`` takes outputs and
        class numbers and returns one number for each row.
    {shared}

    Attributes
    ----------
    module_ : nn.Module
        The trained module, in evaluation mode.
    classes_ : ndarray
        Classes; numbers of columns, where y has several.
    {fitted}

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from sklearn.preprocessing import scale
    >>> from torch import nn
    >>> from certus.neural_network import NeuralClassifier
    >>> X, y = load_iris(return_X_y=True)
    >>> def net(d, k):  # so that random_state seeds the weights it starts from
    ...     return nn.Sequential(nn.Linear(d, 16), nn.Tanh(), nn.Linear(16, k))
    >>> model = NeuralClassifier(net, learning_rate=0.01, max_iter=300, random_state=0)
    >>> model.fit(scale(X), y).score(scale(X), y) > 0.95
    True
    """

    def __init__(
        self,
        module: nn.Module | Callable[..., nn.Module],
        *,
        loss: str | Callable[[Tensor, Tensor], Tensor] = "auto",
        **shared: Unpack[RobustClassifierOptions],
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
        """Train the module.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, ...)
            Rows.
        y : array-like of shape (n_samples,) or (n_samples, n_labels)
            Classes, zeros and ones of labels, or distributions over classes.
        sample_weight : array-like of shape (n_samples,), optional
            Row weights. An integer weight equals repetition.
        X_val, y_val : array-like, optional
            Rows of your own to stop by.

        Returns
        -------
        NeuralClassifier
            Itself.
        """
        return self._fit(X, y, sample_weight, X_val, y_val)


@trained_with(TrainingOptions)
class NeuralRegressor(OwnModule, NumberTargets):
    """Trains your own module to predict one or several numbers.

    Objective
    ---------
    Σ sᵢ ℓ(yᵢ, f(xᵢ; θ)) / Σ s with ℓ = ½(y − f)², its mean over outputs.

    Certificate
    -----------
    As for :class:`certus.neural_network.NeuralClassifier`, all of it MEASURED:
    ``training_loss``, ``gradient_norm``, ``gradient_ratio``, ``dead_units``; at level
    ``full`` the smallest and the largest curvature.

    Parameters
    ----------
    module : nn.Module or callable
        The network to train, or a function that makes it. A copy of a module is trained
        from its present weights; a function is called as ``module(n_inputs,
        n_outputs)``. X is cast to its dtype; where it begins with an embedding, X holds
        whole numbers.
    loss : "auto" or callable, default="auto"
        Loss of a row. "auto" is the squared error; ``loss(z, y)`` takes outputs and
        targets of the same shape and returns one number for each row, or for each row
        and output.
    {shared}

    Attributes
    ----------
    module_ : nn.Module
        The trained module, in evaluation mode.
    {fitted}

    Examples
    --------
    >>> import numpy as np
    >>> from torch import nn
    >>> from certus.neural_network import NeuralRegressor
    >>> X = np.linspace(-1, 1, 200)[:, None]
    >>> def net(d, k):  # so that random_state seeds the weights it starts from
    ...     return nn.Sequential(nn.Linear(d, 32), nn.Tanh(), nn.Linear(32, k))
    >>> model = NeuralRegressor(net, learning_rate=0.03, max_iter=300, random_state=0)
    >>> model.fit(X, np.sin(3 * X[:, 0])).score(X, np.sin(3 * X[:, 0])) > 0.95
    True
    """

    def __init__(
        self,
        module: nn.Module | Callable[..., nn.Module],
        *,
        loss: str | Callable[[Tensor, Tensor], Tensor] = "auto",
        **shared: Unpack[TrainingOptions],
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
        """Train the module.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, ...)
            Rows.
        y : array-like of shape (n_samples,) or (n_samples, n_outputs)
            Targets.
        sample_weight : array-like of shape (n_samples,), optional
            Row weights. An integer weight equals repetition.
        X_val, y_val : array-like, optional
            Rows of your own to stop by.

        Returns
        -------
        NeuralRegressor
            Itself.
        """
        return self._fit(X, y, sample_weight, X_val, y_val)
