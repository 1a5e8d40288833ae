"""Images as the rows of a network, and the networks that accept them.

X is read from files, from arrays of any layout or from flattened rows. x is an image
less the mean of each channel over the training images, divided by its deviation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from os import PathLike
from typing import Any

import numpy as np
import torch
from scipy import sparse
from sklearn.utils import assert_all_finite
from torch import Tensor, nn
from torch.nn import functional as F

from certus._core.rows import row_weights
from certus.base import as_array, validate_data
from certus.neural_network import image_reading
from certus.neural_network.adversarial import InputUnits
from certus.neural_network.array_input import KINDS
from certus.neural_network.augment import make_augmentation
from certus.neural_network.batches import NetworkInputs, shared
from certus.neural_network.estimator import NeuralModel
from certus.neural_network.modules.cnn import AlexNet, ConvNet, LeNet
from certus.neural_network.modules.densenet import DenseNet
from certus.neural_network.modules.resnet import ResNet
from certus.neural_network.wrapping import dtype_of
from certus.threat import ThreatModel
from certus.typing import ArrayLike, MatrixLike

#: Pixels that go through a network together in prediction.
PIXELS_TOGETHER = 1 << 18
#: Sides from which residual and dense networks begin with a larger stride.
LARGE = 96

#: Kinds of pixels that must not be mixed.
_SAID = {"bytes": "from 0 to 255", "shares": "from 0 to 1"}

Sizes = tuple[int, int, int]  # channels, height, width

#: Networks by name, made from the sizes of an image and the number of outputs.
NETWORKS: dict[str, Callable[[Sizes, int], nn.Module]] = {
    "auto": lambda sizes, k: ConvNet(sizes[0], sizes[1:], k),
    "lenet": lambda sizes, k: LeNet(sizes[0], sizes[1:], k),
    "alexnet": lambda sizes, k: AlexNet(sizes[0], sizes[1:], k),
    "resnet": lambda sizes, k: ResNet(sizes[0], k, large=min(sizes[1:]) >= LARGE),
    "densenet": lambda sizes, k: DenseNet(sizes[0], k, large=min(sizes[1:]) >= LARGE),
}


class ImageRows:
    """Images in the dtype they came in; colours are scaled a batch at a time."""

    def __init__(
        self,
        X: np.ndarray,
        mean: ArrayLike,
        scale: ArrayLike,
        dtype: torch.dtype,
        device: str | torch.device,
    ) -> None:
        self.X = shared(X).to(device)
        # Values beyond the reach of float32 are brought back in float64.
        self.exact = torch.float64 if X.dtype == np.float64 else dtype
        self.mean, self.scale = (
            torch.as_tensor(v, dtype=self.exact, device=device)[:, None, None]
            for v in (mean, scale)
        )
        self.dtype = dtype
        self.together = max(1, min(1024, PIXELS_TOGETHER // int(np.prod(X.shape[1:]))))

    def __len__(self) -> int:
        """How many images there are."""
        return len(self.X)

    def __getitem__(self, rows: Tensor | slice) -> tuple[Tensor, ...]:
        """These images (batch, channels, height, width)."""
        x = self.X[rows].to(self.exact)
        return (((x - self.mean) / self.scale).to(self.dtype),)


class Pixels(nn.Module):
    """Raw pixels of any layout as a network takes them, differentiably.

    Parameters
    ----------
    layout : Layout
        Of the images that come.
    sides : (int, int)
        Height and width to which they are resized, if they are of another size.
    mean, scale : ndarray of shape (channels,)
        What is subtracted from each channel, and what it is divided by.
    """

    mean: Tensor
    scale: Tensor

    def __init__(
        self,
        layout: image_reading.Layout,
        sides: tuple[int, int],
        mean: ArrayLike,
        scale: ArrayLike,
    ) -> None:
        super().__init__()
        self.layout, self.sides = layout, sides
        for name, value in (("mean", mean), ("scale", scale)):
            kept = torch.tensor(value, dtype=torch.float64)[:, None, None]
            self.register_buffer(name, kept)

    def forward(self, x: Tensor) -> Tensor:
        """Images (batch, channels, height, width), centred and scaled."""
        channels, height, width = self.layout.sizes
        if len(self.layout.shape) == 2 or self.layout.first:
            x = x.reshape(-1, channels, height, width)
        else:
            x = x.reshape(-1, *self.layout.shape).permute(0, 3, 1, 2)
        if (height, width) != self.sides:
            x = F.interpolate(x, self.sides, mode="bilinear", antialias=True)
        mean, scale = (v.to(x.device, x.dtype) for v in (self.mean, self.scale))
        return (x - mean) / scale


class ImageInput(NeuralModel):
    """Reads X as images: files, arrays of any layout, flattened rows; abstract."""

    def _read_X(self, X: MatrixLike, reset: bool) -> Any:
        image_reading.check_image_shape(self.image_shape)
        if image_reading.is_files(X):
            X, _ = self._files(X, reset)
        X = as_array(X)
        found = image_reading.as_images(X, self.image_shape, self.channels)
        images = self._read_rows(X, reset) if found is None else found[0]
        if images.dtype.kind == "f":
            assert_all_finite(images, input_name="X")
        channels, height, width = (int(side) for side in images.shape[1:])
        sizes: Sizes = (channels, height, width)
        if reset:
            self.image_shape_ = sizes
            self._pixels = _kind_of(images)
            if found is not None:  # pixels count as columns, which have no names
                self._layout: Any = tuple(found[1])
                columns = images.reshape(len(images), -1)
                validate_data(self, columns, skip_check_array=True)
        elif sizes != self.image_shape_:
            raise ValueError(
                f"The images have {_words(sizes)}, but those of the fit had "
                f"{_words(self.image_shape_)}. Resize them, or set image_shape= and "
                "fit again."
            )
        else:
            self._require_same_kind(images)
        return images

    def _read_rows(self, X: Any, reset: bool) -> np.ndarray:
        """Flattened images."""
        shape = getattr(X, "shape", ())
        if not reset and shape == self.image_shape_[1:] != (1, self.n_features_in_):
            raise ValueError("X is a single image; pass a batch of images, X[None].")
        options = {"dtype": KINDS, "ensure_all_finite": False, "accept_sparse": "csr"}
        X = validate_data(self, X, reset=reset, **options)
        X = X.toarray() if sparse.issparse(X) else X  # windows slide over zeros too
        if reset:
            told = self.image_shape, self.channels
            self._layout = tuple(image_reading.layout_of(X.shape[1:], *told))
        return image_reading.arranged(X, image_reading.Layout(*self._layout))

    def _files(
        self, X: str | PathLike[str] | Iterable[str | PathLike[str]], reset: bool
    ) -> tuple[np.ndarray, np.ndarray | None]:
        """Files as an array, with the colours of the fit; and their classes, if any."""
        colour = None if reset else self.image_shape_[0] > 1
        return image_reading.read_images(X, image_shape=self.image_shape, colour=colour)

    def _require_same_kind(self, images: np.ndarray) -> None:
        """Refuse bytes after shares of one, and the reverse: one was scaled."""
        kinds = {self._pixels, _kind_of(images)}
        if kinds == {"bytes", "shares"}:
            raise ValueError(
                f"The pixels of the fit were {_SAID[self._pixels]}, but these are "
                f"{_SAID[_kind_of(images)]}. Scale X as you did for the fit."
            )

    def _learn_scale(self, X: MatrixLike, sample_weight: ArrayLike | None) -> None:
        """Mean and deviation of each channel; a whole weight repeats a row."""
        images = self._read_X(X, reset=True)
        s = row_weights(sample_weight, len(images))
        self.mean_, self.scale_ = channel_scale(images, s)

    def _rows(self, X: np.ndarray, module: nn.Module) -> NetworkInputs:
        return ImageRows(X, self.mean_, self.scale_, dtype_of(module), self.device)

    def _raw_function(self, shape: tuple[int, ...]) -> nn.Module | None:
        if len(shape) == 1:
            layout = image_reading.Layout(*self._layout)
        else:
            layout = image_reading.layout_of(shape, None, self.channels)
        pixels = Pixels(layout, self.image_shape_[1:], self.mean_, self.scale_)
        return nn.Sequential(pixels, self.module_)

    def _in_inputs(self, threat: ThreatModel | None) -> tuple[Any, Any]:
        if threat is not None:
            names = ("low", "high", "fixed")
            arranged = {n: self._arranged(getattr(threat, n)) for n in names}
            threat = replace(threat, **arranged)
        mean, scale = (v[:, None, None] for v in (self.mean_, self.scale_))
        return threat, InputUnits(mean, scale)

    def _arranged(self, bound: ArrayLike) -> Any:
        """Smallest or largest pixels in the layout of images; one number as it is."""
        if np.ndim(bound) == 0:
            return bound
        layout = image_reading.Layout(*self._layout)
        try:
            return image_reading.arranged(np.asarray(bound)[None], layout)[0]
        except ValueError:
            raise ValueError(
                "low, high and fixed of the threat must have the shape of an image "
                f"in X, got shape {np.shape(bound)}."
            ) from None

    def _augmentation(self) -> Callable[[Tensor], Tensor] | None:
        return make_augmentation(self.augment)

    def _in_digits(self, module: nn.Module, X: np.ndarray) -> nn.Module:
        """The module in float32, enough for pixels; in float64 for other rows."""
        plain = self.image_shape_[1] == 1 and X.dtype == np.float64
        return module.double() if plain else module

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.three_d_array = True
        return tags


def channel_scale(images: np.ndarray, s: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Weighted mean and deviation of each channel; 1 where it is constant."""
    largest = max(1e-300, float(np.abs(images).max()))  # squares stay in range
    share = s / s.sum()
    mean = np.zeros(images.shape[1])
    square = np.zeros_like(mean)
    for i in range(0, len(images), 256):
        block = images[i : i + 256].astype(np.float64) / largest
        mean += share[i : i + 256] @ block.mean(axis=(2, 3))
    for i in range(0, len(images), 256):
        block = images[i : i + 256].astype(np.float64) / largest
        block -= mean[:, None, None]
        square += share[i : i + 256] @ np.square(block).mean(axis=(2, 3))
    deviation = np.sqrt(square)
    constant = deviation <= 1e-12 * np.abs(mean)
    return mean * largest, np.where(constant, 1.0, deviation * largest)


def _kind_of(images: np.ndarray) -> str:
    """What pixels are: "bytes", "shares" of one, or "numbers" of any other kind."""
    low, high = float(images.min()), float(images.max())
    if images.dtype == np.uint8:
        return "bytes" if high > 1 else "numbers"
    return "shares" if low >= 0 and 0 < high <= 1 else "numbers"


def _words(sizes: tuple[int, ...]) -> str:
    channels, height, width = sizes
    return f"{height} × {width} pixels in {channels} channel{'s'[: channels != 1]}"
