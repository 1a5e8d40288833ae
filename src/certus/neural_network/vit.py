"""Classify images by a vision transformer.

    minimise over θ:  Σ sᵢ ℓ(yᵢ, f(xᵢ; θ)) / Σ s

x is an image less the mean colour of the training images, divided by its deviation; f
:class:`certus.neural_network.modules.VisionTransformer`; ℓ the cross entropy.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Unpack

import numpy as np
from torch import nn

from certus.base import check_number
from certus.neural_network.image_classifier import ImageClassifier
from certus.neural_network.modules.vision import VisionTransformer
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
    warmup=0.1,
    label_smoothing=0.05,
    batch_size=64,
    max_iter=30,
)
class ViTClassifier(ImageClassifier):
    """Classifies images by a vision transformer.

    An image is cut into patches, which are tokens of a sequence; in every layer each
    patch looks at all others. X is what
    :class:`certus.neural_network.ConvNetClassifier` takes: arrays of any layout,
    flattened rows, or a folder.

    A convolution knows that neighbours belong together and that an object may stand
    anywhere; attention has to learn both. With few images
    :class:`~certus.neural_network.ConvNetClassifier` is therefore better, and here
    ``augment=["shift", "rotate"]`` helps a lot.

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
    patch_size : int or (int, int), default=None
        Height and width of a patch. By default an eighth of the side, at least 2.
    n_layers : int, default=4
        Number of layers.
    width : int, default=64
        Number of components of the vector that each layer has for a token, a multiple
        of ``heads``.
    heads : int, default=4
        Number of heads of attention.
    dropout : float, default=0.0
        Share of units that each training step leaves out at random.
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
    module_ : certus.neural_network.modules.VisionTransformer
        The trained network, in evaluation mode. It takes images that are centred and
        scaled; ``module_.states(x, weights=True)`` also says what each patch looks at.
    image_shape_ : (int, int, int)
        Channels, height, width.
    mean_, scale_ : ndarray of shape (channels,)
        What is subtracted from each channel, and what it is divided by.
    classes_ : ndarray
        Classes; names of subfolders, where X was a folder.
    {fitted}

    Notes
    -----
    An epoch costs O(n·n_layers·(T·width² + T²·width)) for T patches.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from certus.neural_network import ViTClassifier
    >>> X, y = load_digits(n_class=3, return_X_y=True)
    >>> model = ViTClassifier(n_layers=2, width=32, max_iter=30, random_state=0)
    >>> model.fit(X[::2], y[::2]).score(X[1::2], y[1::2]) > 0.9
    True
    >>> model.module_.grid  # patches below each other, and side by side
    (4, 4)
    """

    def __init__(
        self,
        patch_size: int | Sequence[int] | None = None,
        *,
        n_layers: int = 4,
        width: int = 64,
        heads: int = 4,
        dropout: float = 0.0,
        image_shape: Sequence[int] | None = None,
        channels: str | None = None,
        **shared: Unpack[RobustClassifierOptions],
    ) -> None: ...

    def _build(self, X: np.ndarray, targets: Targets) -> nn.Module:
        channels, *sides = self.image_shape_
        module = VisionTransformer(
            channels,
            (sides[0], sides[1]),
            targets.outputs,
            patch_size=self.patch_size,
            n_layers=self.n_layers,
            width=self.width,
            heads=self.heads,
            dropout=float(self.dropout),
        )
        return self._in_digits(module, X)

    def _check_training(self) -> None:
        super()._check_training()
        for name in ("n_layers", "width", "heads"):
            check_number(name, getattr(self, name), 1, integer=True)
        check_number("dropout", self.dropout, 0, 1)
