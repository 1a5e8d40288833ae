"""Classify images by a convolutional network.

    minimise over θ:  Σ sᵢ ℓ(yᵢ, f(xᵢ; θ)) / Σ s

x is an image less the mean colour of the training images, divided by its deviation; f a
network of :mod:`certus.neural_network.modules` or your own; ℓ the cross entropy.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Unpack

import numpy as np
from torch import nn

from certus.base import check_choice
from certus.neural_network.image_classifier import ImageClassifier
from certus.neural_network.image_input import NETWORKS
from certus.neural_network.objective import Targets
from certus.neural_network.parameters import (
    LabelOptions,
    RobustClassifierOptions,
    RobustOptions,
    TrainingOptions,
    trained_with,
)


@trained_with(
    TrainingOptions,
    LabelOptions,
    RobustOptions,
    learning_rate=3e-3,
    schedule="cosine",
    label_smoothing=0.05,
    batch_size=64,
    max_iter=20,
)
class ConvNetClassifier(ImageClassifier):
    """Classifies images by a convolutional network.

    X holds images as (n, height, width), with channels last or first as a fourth axis,
    or flattened as (n, pixels); or names a folder with one subfolder for each class.
    Channels are centred and divided by their deviation over the training images, so
    that pixels may have any scale. Images are computed in float32.

    The default network, :class:`certus.neural_network.modules.ConvNet`, ends its
    training where the cosine schedule does. Learning rate, batch size and number of
    epochs are chosen for it: with them, digits of 8 × 8 and 28 × 28 pixels need far
    fewer epochs than at a constant rate. Its ``label_smoothing`` keeps scores from
    growing without limit and gives fewer errors on held-out images, but less confident
    probabilities.

    Objective
    ---------
    Σ sᵢ ℓ(yᵢ, f(xᵢ; θ)) / Σ s, ℓ the cross entropy: −Σₖ tₖ log softmax(f)ₖ, or summed
    over labels −t log σ(f) − (1 − t) log σ(−f).

    Certificate
    -----------
    As for :class:`certus.neural_network.NeuralClassifier`, all of it MEASURED:
    ``training_loss``, ``gradient_norm``, ``gradient_ratio``, ``dead_units``; at level
    ``full`` the smallest and the largest curvature.

    Parameters
    ----------
    module : str, nn.Module or callable, default="auto"
        The network to train, or a function that makes it. "auto" is ``ConvNet`` of
        :mod:`certus.neural_network.modules`; "lenet", "alexnet", "resnet" and
        "densenet" are of that package, too; a module is copied and trained from its
        present weights; ``module(image_shape, n_outputs)``, with the channels, height
        and width of an image, makes one.
    image_shape : (int, int) or (int, int, int), default=None
        For flattened rows: height and width, and the number of channels if there are
        several. Without it rows whose length is a square number of at least 16 are
        square images, others images of one line. Images of another size are resized to
        it; without it, unequal sizes are refused.
    channels : None, "first" or "last", default=None
        Where the channels of an image are. By default they are the axis of length 1, 3
        or 4. If that is ambiguous, the fit raises an error.
    {shared}

    Attributes
    ----------
    module_ : nn.Module
        The trained network, in evaluation mode. It takes images that are centred and
        scaled.
    image_shape_ : (int, int, int)
        Channels, height, width.
    mean_, scale_ : ndarray of shape (channels,)
        What is subtracted from each channel, and what it is divided by.
    classes_ : ndarray
        Classes; names of subfolders, where X was a folder.
    {fitted}

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from certus.neural_network import ConvNetClassifier
    >>> X, y = load_digits(n_class=3, return_X_y=True)
    >>> model = ConvNetClassifier(max_iter=5, random_state=0).fit(X[::2], y[::2])
    >>> model.image_shape_
    (1, 8, 8)
    >>> model.score(X[1::2], y[1::2]) > 0.95
    True
    """

    def __init__(
        self,
        module: str | nn.Module | Callable[..., nn.Module] = "auto",
        *,
        image_shape: Sequence[int] | None = None,
        channels: str | None = None,
        **shared: Unpack[RobustClassifierOptions],
    ) -> None: ...

    def _build(self, X: np.ndarray, targets: Targets) -> nn.Module:
        if isinstance(self.module, nn.Module):
            return copy.deepcopy(self.module)
        if callable(self.module):
            made = self.module(self.image_shape_, targets.outputs)
            if isinstance(made, nn.Module):
                return made
            raise TypeError(
                "network(image_shape, n_outputs) must return an nn.Module, got a "
                f"{type(made).__name__}."
            )
        check_choice("module", self.module, tuple(NETWORKS))
        module = NETWORKS[self.module](self.image_shape_, targets.outputs)
        return self._in_digits(module, X)
