"""Encoders that learn to paint grey images.

    y = 0.299 R + 0.587 G + 0.114 B,  minimise over θ: E ‖g(y, f(y)) − (R − y, B − y)‖²

f, whose vectors :meth:`Colorizer.transform` gives, sees the grey image y only; g paints
each pixel from its surroundings and f(y). Labels come from the images themselves: to
know a colour, the network must know what is in the image (Zhang, Isola and Efros 2016).
R, G and B follow exactly from y and both differences.
"""

from __future__ import annotations

from typing import Any, Unpack

import numpy as np
import torch
from sklearn.utils.validation import check_is_fitted
from torch import Tensor, nn
from torch.nn import functional as F

from certus._core.sharing import shares
from certus.base import as_array, certified_fit, check_number, require_outputs
from certus.neural_network.batches import NetworkInputs
from certus.neural_network.modules.painter import Painter
from certus.neural_network.run import Losses
from certus.neural_network.wrapping import dtype_of, evaluating
from certus.representation import inputs
from certus.representation.base import RepresentationModel
from certus.representation.networks import build_encoder, check_sizes
from certus.representation.options import EncoderTraining
from certus.typing import Array, Column, MatrixLike

#: Shares of red, green and blue in grey (ITU-R BT.601).
GREY = (0.299, 0.587, 0.114)


@shares(EncoderTraining)
class Colorizer(RepresentationModel):
    """Learns vectors of images by painting grey versions of them.

    X holds colour images. The vectors, and the colours that ``colorize`` gives, depend
    on the grey values only, so grey images can be passed to both.

    Objective
    ---------
    The mean squared error of R − y and B − y over all pixels, in units of their
    standard deviation, with y = 0.299 R + 0.587 G + 0.114 B.

    Certificate
    -----------
    Computed on held-out images. ``painted`` (STATISTICAL): the share of new images
    whose colours are closer to the true ones than grey is. ``colour_loss`` (MEASURED):
    the error compared with that of a grey image. ``effective_rank`` and
    ``component_spread`` (MEASURED) of the vectors. See
    :func:`certus.representation.probe` for how much they help a classifier.

    Parameters
    ----------
    n_components : int, default=64
        Number of components. A vector of ``transform`` has this many numbers.
    module : "auto", nn.Module or callable, default="auto"
        The network to train, or a function that makes it. "auto" is ``ConvNet`` of
        :mod:`certus.neural_network.modules`; ``module(shape, n_components)`` makes one
        for grey images of a shape (1, height, width).
    hidden_layer_sizes : sequence of int, default=(128,)
        Number of units in each hidden layer. The encoder has one, of the last size.
    painter_width : int, default=32
        Number of channels in each hidden layer that paints.
    image_shape : (int, int, int), default=None
        For flattened rows: height and width, and the number of channels if there are
        several. Images of another size are resized to it.
    channels : None, "first" or "last", default=None
        Where the channels of an image are. By default they are the axis of length 3.
    {shared}

    Attributes
    ----------
    encoder_ : nn.Module
        f, which takes grey images; in evaluation mode.
    painter_ : certus.neural_network.modules.Painter
        g, in evaluation mode.
    inputs_ : dict
        How X is read: the shape of an image, means and scales of grey and of colours.
    held_out_ : ndarray of int
        Rows that were held out.
    history_ : dict of lists
        Loss, steps and seconds, recorded at intervals during the training.
    n_iter_ : int
        Number of training steps.
    certificate_ : Certificate
        What the verifier found.

    Notes
    -----
    Where several colours are possible, their mean has the smallest error. So parts
    whose colour cannot be known become pale.

    Examples
    --------
    >>> import numpy as np
    >>> from certus.representation import Colorizer
    >>> grey = np.random.default_rng(0).random((60, 8, 8))
    >>> X = np.stack([grey, 1 - grey, grey], axis=3)  # dark green, light purple
    >>> model = Colorizer(max_iter=200, random_state=0).fit(X)
    >>> painted = model.colorize(X[:3])
    >>> bool(np.abs(painted - X[:3]).mean() < 0.1), model.transform(X).shape
    (True, (60, 64))
    """

    part_names = ("encoder", "painter")
    kind = "images"

    def __init__(
        self,
        n_components: int = 64,
        *,
        module: Any = "auto",
        hidden_layer_sizes: Any = (128,),
        painter_width: int = 32,
        image_shape: Any = None,
        channels: str | None = None,
        **shared: Unpack[EncoderTraining],
    ) -> None: ...

    @certified_fit
    def fit(self, X: MatrixLike, y: Column = None) -> Any:
        """Learn to paint.

        Parameters
        ----------
        X : array-like or files
            Colour images (n, height, width, 3) or (n, 3, height, width).
        y : None
            Ignored.
        """
        return self._fit(X)

    # -- what is trained --------------------------------------------------------------

    def _check(self) -> None:
        super()._check()
        check_sizes(self)
        check_number("painter_width", self.painter_width, 1, integer=True)

    def _learn(self, X: MatrixLike) -> tuple[inputs.Learnt, Any]:
        learnt, values = super()._learn(X)
        if learnt["sizes"][0] != 3:
            raise ValueError(
                "X must hold colour images with 3 channels, got "
                f"{learnt['sizes'][0]}: from grey images no colours can be learnt."
            )
        grey, chroma = parted(values)
        spread = float(np.sqrt(np.square(chroma).mean()))
        if not spread > 1e-9 * max(1e-300, float(np.abs(values).max())):
            raise ValueError(
                "All images of X are grey, so there are no colours to learn. Pass "
                "colour images."
            )
        deviation = float(grey.std())
        more = {
            "grey": (float(grey.mean()), deviation if deviation > 0 else 1.0),
            "chroma": spread,
        }
        return {**learnt, **more}, values

    def _parts(self, learnt: inputs.Learnt) -> nn.ModuleDict:
        grey = {**learnt, "sizes": (1, *learnt["sizes"][1:])}
        painter = Painter(1, int(self.n_components), 2, width=int(self.painter_width))
        parts = {"encoder": build_encoder(self, grey), "painter": painter}
        return nn.ModuleDict(parts)

    def _losses(self, parts: nn.ModuleDict, *x: Tensor) -> Losses:
        grey, chroma = x
        painted = parts["painter"](grey, parts["encoder"](grey).flatten(1))
        return {"loss": F.mse_loss(painted, chroma)}

    def _read(self, fresh: bool, X: Any, Y: Any) -> tuple[NetworkInputs, Any]:
        if fresh:
            self.inputs_, values = self._learn(X)
        else:
            values = inputs.read(self, self.inputs_, X)
        return _Painted(self.inputs_, values, torch.float32, self.device), values

    def _inputs(
        self, values: Array, dtype: torch.dtype = torch.float32
    ) -> NetworkInputs:
        return _Painted(self.inputs_, values, dtype, self.device, alone=True)

    # -- vectors and colours ----------------------------------------------------------

    def _vectors(self, X: MatrixLike, encoder: nn.Module, *above: nn.Module) -> Array:
        check_is_fitted(self, "encoder_")
        return super()._vectors(self._in_colour(X), encoder, *above)

    def colorize(self, X: MatrixLike) -> Array:
        """Paint images by their grey values.

        Parameters
        ----------
        X : array-like or files
            Grey images (n, height, width), or images like those of the fit, whose
            colours are ignored.

        Returns
        -------
        ndarray
            Colour images in the layout and the units of the fit; values are not clipped
            to a range.
        """
        check_is_fitted(self, "encoder_")
        values = inputs.read(self, self.inputs_, self._in_colour(X))
        rows = self._inputs(values, dtype_of(self.painter_))
        found = []
        with (
            evaluating(self.encoder_),
            evaluating(self.painter_),
            torch.inference_mode(),
        ):
            for i in range(0, len(rows), rows.together):  # type: ignore[attr-defined]
                (grey,) = rows[slice(i, i + rows.together)]  # type: ignore[attr-defined]
                z = self.encoder_(grey).flatten(1)
                found.append(self.painter_(grey, z).cpu().numpy())
        chroma = np.concatenate(found).astype(np.float64) * self.inputs_["chroma"]
        require_outputs(chroma)
        images = joined(parted(values)[0], chroma)
        _, first, flat = self.inputs_["layout"]
        images = images if first else np.moveaxis(images, 1, 3)
        return images.reshape(len(images), -1) if flat else images

    def _in_colour(self, X: MatrixLike) -> Any:
        """Grey images with three equal channels; others as they are."""
        values = as_array(X)
        if not isinstance(values, np.ndarray) or values.dtype.kind not in "biuf":
            return X
        _, first, flat = self.inputs_["layout"]
        _, h, w = self.inputs_["sizes"]
        if flat and values.shape[1:] == (h * w,):
            values = values.reshape(-1, h, w)
        elif values.shape[1:] != (h, w):
            return X
        three = np.repeat(values[:, None], 3, axis=1)
        three = three if first else np.moveaxis(three, 1, 3)
        return three.reshape(len(three), -1) if flat else three


def parted(images: Array) -> tuple[Array, Array]:
    """Grey values (n, 1, h, w) and differences of red and blue from them.

    Examples
    --------
    >>> import numpy as np
    >>> from certus.representation.colours import joined, parted
    >>> images = np.random.default_rng(0).random((2, 3, 4, 4))
    >>> np.allclose(joined(*parted(images)), images)
    True
    """
    images = np.asarray(images, dtype=np.float64)
    grey = np.einsum("c,nchw->nhw", np.array(GREY), images)[:, None]
    return grey, images[:, [0, 2]] - grey


def joined(grey: Array, chroma: Array) -> Array:
    """Images (n, 3, h, w) from grey values and differences."""
    red, blue = grey + chroma[:, :1], grey + chroma[:, 1:]
    green = (grey - GREY[0] * red - GREY[2] * blue) / GREY[1]
    return np.concatenate([red, green, blue], axis=1)


class _Painted:
    """Scaled grey images, and their colours if they have any."""

    def __init__(
        self,
        learnt: inputs.Learnt,
        values: Array,
        dtype: torch.dtype,
        device: Any,
        alone: bool = False,
    ) -> None:
        self.values, self.dtype, self.device = values, dtype, device
        (self.mean, self.scale), self.spread = learnt["grey"], learnt["chroma"]
        self.alone = alone
        self.together = max(1, min(256, (1 << 20) // int(np.prod(values.shape[1:]))))

    def __len__(self) -> int:
        """How many images there are."""
        return len(self.values)

    def __getitem__(self, rows: Tensor | slice) -> tuple[Tensor, ...]:
        """Grey (n, 1, h, w), and colours (n, 2, h, w)."""
        chosen = rows.cpu().numpy() if isinstance(rows, Tensor) else rows
        grey, chroma = parted(self.values[chosen])
        parts = [(grey - self.mean) / self.scale]
        if not self.alone:
            parts.append(chroma / self.spread)
        return tuple(
            torch.from_numpy(part).to(self.device, self.dtype) for part in parts
        )
