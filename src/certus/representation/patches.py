"""Encoders that learn where one patch of an image lies relative to another.

    minimise over θ:  E −log p(k | f(a), f(b)),   b the k-th of the 8 neighbours of a

Two patches of an image are cut out, and the networks say in which of eight directions
the second one lies. To know that, f must know what is in a patch: labels come from the
images themselves (Doersch, Gupta and Efros 2015). Patches are moved a little, so that
edges that run on from one to the other do not give the answer away.
"""

from __future__ import annotations

from typing import Any, Unpack

import numpy as np
import torch
from sklearn.utils.validation import check_is_fitted
from torch import Tensor, nn
from torch.nn import functional as F

from certus._core.sharing import shares
from certus.base import certified_fit, check_number, require_outputs
from certus.neural_network.batches import DenseInputs
from certus.neural_network.modules.mlp import MLP
from certus.neural_network.run import Losses
from certus.neural_network.wrapping import dtype_of, outputs
from certus.representation import inputs
from certus.representation.base import RepresentationModel
from certus.representation.networks import build_encoder, check_sizes
from certus.representation.options import EncoderTraining
from certus.typing import Array, ArrayLike, Column, MatrixLike

#: Steps (down, right) from a patch to each of its neighbours.
DIRECTIONS = ((-1, -1), (-1, 0), (-1, 1), (0, -1), (0, 1), (1, -1), (1, 0), (1, 1))
#: What they are called.
NAMES = (
    *("above left", "above", "above right", "left"),
    *("right", "below left", "below", "below right"),
)


@shares(EncoderTraining)
class PatchPosition(RepresentationModel):
    """Learns vectors of images by predicting where one patch lies relative to another.

    X holds images of at least 3 × 3 pixels. The vector of an image is the mean of the
    vectors of nine patches, in three rows.

    Objective
    ---------
    The mean of −log p of the correct one of eight positions, over random pairs of
    neighbouring patches; it is log 8 = 2.08 for guessing.

    Certificate
    -----------
    Computed on held-out images, with one pair of patches of each. ``position_accuracy``
    (STATISTICAL): how often the position is correct for new images; by guessing it is
    12.5 %. ``position_loss`` (MEASURED): the loss compared with log 8.
    ``effective_rank`` and ``component_spread`` (MEASURED) of the vectors. See
    :func:`certus.representation.probe` for how much they help a classifier.

    Parameters
    ----------
    n_components : int, default=64
        Number of components. A vector of ``transform`` has this many numbers.
    patch_size : int or "auto", default="auto"
        Side of a patch in pixels. "auto" leaves a tenth of the shorter side free, so
        that patches can be moved a little.
    module : "auto", nn.Module or callable, default="auto"
        The network to train, or a function that makes it. "auto" is ``ConvNet`` of
        :mod:`certus.neural_network.modules`; ``module(shape, n_components)`` makes one
        for patches of a shape (channels, patch_size, patch_size).
    hidden_layer_sizes : sequence of int, default=(128,)
        Number of units in each hidden layer. The encoder has one, of the last size;
        these are also the layers that compare two vectors.
    image_shape : (int, int) or (int, int, int), default=None
        For flattened rows: height and width, and the number of channels if there are
        several. Images of another size are resized to it.
    channels : None, "first" or "last", default=None
        Where the channels of an image are. By default they are the axis of length 1, 3
        or 4.
    {shared}

    Attributes
    ----------
    encoder_ : nn.Module
        f, which takes patches; in evaluation mode.
    head_ : certus.neural_network.modules.MLP
        Scores of the eight positions from two vectors; in evaluation mode.
    inputs_ : dict
        How X is read: the shape of an image, means and scales.
    patch_size_ : int
        Side of the patches.
    held_out_ : ndarray of int
        Rows that were held out.
    history_ : dict of lists
        Loss, steps and seconds, recorded at intervals during the training.
    n_iter_ : int
        Number of training steps.
    certificate_ : Certificate
        What the verifier found.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from certus.representation import PatchPosition
    >>> X = load_digits().images[:400]
    >>> model = PatchPosition(max_iter=100, random_state=0).fit(X)
    >>> model.transform(X).shape
    (400, 64)
    >>> model.certificate_["position_accuracy"].met  # better than guessing
    True
    """

    kind = "images"

    def __init__(
        self,
        n_components: int = 64,
        *,
        patch_size: int | str = "auto",
        module: Any = "auto",
        hidden_layer_sizes: Any = (128,),
        image_shape: Any = None,
        channels: str | None = None,
        **shared: Unpack[EncoderTraining],
    ) -> None: ...

    @certified_fit
    def fit(self, X: MatrixLike, y: Column = None) -> Any:
        """Learn to predict where patches lie.

        Parameters
        ----------
        X : array-like or files
            Images (n, height, width), or with channels.
        y : None
            Ignored.
        """
        return self._fit(X)

    # -- what is trained --------------------------------------------------------------

    def _check(self) -> None:
        super()._check()
        check_sizes(self)
        if not (isinstance(self.patch_size, str) and self.patch_size == "auto"):
            check_number("patch_size", self.patch_size, 1, integer=True)

    def _learn(self, X: MatrixLike) -> tuple[inputs.Learnt, Any]:
        learnt, values = super()._learn(X)
        least = min(learnt["sizes"][1:])
        auto = isinstance(self.patch_size, str)
        size = int(0.9 * least) // 3 if auto else int(self.patch_size)
        size = max(size, 1)
        if least < 3 * size:
            _, h, w = learnt["sizes"]
            raise ValueError(
                f"Images must have room for 3 × 3 patches of {size} × {size} pixels, "
                f"got {h} × {w} pixels. Use a smaller patch_size or larger images."
            )
        self.patch_size_ = size
        return learnt, values

    def _parts(self, learnt: inputs.Learnt) -> nn.ModuleDict:
        side, width = self.patch_size_, int(self.n_components)
        patch = {**learnt, "sizes": (learnt["sizes"][0], side, side)}
        hidden = tuple(int(size) for size in self.hidden_layer_sizes)
        head = MLP(2 * width, hidden, len(DIRECTIONS))
        return nn.ModuleDict({"encoder": build_encoder(self, patch), "head": head})

    def _losses(self, parts: nn.ModuleDict, *x: Tensor) -> Losses:
        first, second, place = random_pairs(x[0], self.patch_size_)
        z = parts["encoder"](torch.cat([first, second])).flatten(1)
        scores = parts["head"](torch.cat(z.chunk(2), dim=1))
        return {"loss": F.cross_entropy(scores, place)}

    # -- vectors and positions -------------------------------------------------------

    def _vectors(self, X: Any, encoder: nn.Module, *above: nn.Module) -> Array:
        values = inputs.read(self, self.inputs_, X)
        rows = _NinePatches(self._inputs(values, dtype_of(encoder)), self.patch_size_)
        found: Array = outputs(_Averaged(encoder), rows).cpu().numpy()
        require_outputs(found)
        return found

    def predict_position(self, first: ArrayLike, second: ArrayLike) -> Array:
        """Probabilities that the second patch lies in each direction of the first.

        Parameters
        ----------
        first, second : array-like of shape (n, channels, patch_size, patch_size)
            Patches in the units of X; (n, patch_size, patch_size) for one channel.

        Returns
        -------
        ndarray of shape (n, 8)
            In the order of ``certus.representation.patches.NAMES``.
        """
        check_is_fitted(self, "encoder_")
        dtype = dtype_of(self.encoder_)
        z = []
        for name, given in (("first", first), ("second", second)):
            rows = inputs.tensors(
                self.inputs_, self._patches(given, name), self.device, dtype
            )
            z.append(outputs(self.encoder_, rows).flatten(1))
        if len(z[0]) != len(z[1]):
            raise ValueError(
                "first and second must hold the same number of patches, got "
                f"{len(z[0])} and {len(z[1])}."
            )
        pairs = DenseInputs(torch.cat(z, dim=1), dtype_of(self.head_), self.device)
        scores = outputs(self.head_, pairs)
        found: Array = torch.softmax(scores.double(), dim=1).cpu().numpy()
        require_outputs(found)
        return found

    def _patches(self, given: ArrayLike, name: str) -> Array:
        patches = np.asarray(given)
        patches = patches[:, None] if patches.ndim == 3 else patches
        side, channels = self.patch_size_, self.inputs_["sizes"][0]
        if patches.shape[1:] != (channels, side, side) or patches.dtype.kind not in (
            *"biuf",
        ):
            raise ValueError(
                f"{name} must have the shape (n, {channels}, {side}, {side}), got "
                f"{np.shape(given)}."
            )
        if not np.isfinite(patches).all():
            raise ValueError(f"{name} must not hold NaN or infinity.")
        return patches


def random_pairs(x: Tensor, side: int) -> tuple[Tensor, Tensor, Tensor]:
    """Two neighbouring patches of each image, and the direction between them.

    Examples
    --------
    >>> import torch
    >>> from certus.representation.patches import random_pairs
    >>> first, second, place = random_pairs(torch.zeros(5, 1, 8, 8), 2)
    >>> first.shape, int(place.max()) < 8
    (torch.Size([5, 1, 2, 2]), True)
    """
    n, _, height, width = x.shape
    place = torch.randint(len(DIRECTIONS), (n,))
    step = torch.tensor(DIRECTIONS)[place]  # (n, 2)
    room = torch.tensor([height, width]) - 3 * side
    # A third of the room lies between patches, at most; the rest moves all of them.
    gap = (torch.rand(n, 2) * (room // 3 + 1)).long()
    corner = (torch.rand(n, 2) * (room - 2 * gap + 1)).long() + side + gap
    other = corner + step * (side + gap)
    first, second = (_cut(x, at.to(x.device), side) for at in (corner, other))
    return first, second, place.to(x.device)


def _cut(x: Tensor, at: Tensor, side: int) -> Tensor:
    """A patch of each image, from its upper left corner."""
    along = torch.arange(side, device=x.device)
    rows, columns = at[:, :1] + along, at[:, 1:] + along
    n, c = torch.arange(len(x), device=x.device), torch.arange(x.shape[1])
    return x[
        n[:, None, None, None],
        c.to(x.device)[:, None, None],
        rows[:, None, :, None],
        columns[:, None, None, :],
    ]


class _NinePatches:
    """Nine patches of each image, spread evenly."""

    def __init__(self, rows: Any, side: int) -> None:
        self.rows, self.side = rows, side
        self.together = max(1, getattr(rows, "together", 1024) // 4)

    def __len__(self) -> int:
        """How many images there are."""
        return len(self.rows)

    def __getitem__(self, chosen: Tensor | slice) -> tuple[Tensor, ...]:
        """Patches (images, 9, channels, side, side)."""
        x, side = self.rows[chosen][0], self.side
        tops, lefts = (
            np.linspace(0, length - side, 3).round().astype(int)
            for length in x.shape[2:]
        )
        found = [x[:, :, i : i + side, j : j + side] for i in tops for j in lefts]
        return (torch.stack(found, dim=1),)


class _Averaged(nn.Module):
    """The mean of the vectors of the patches of an image."""

    def __init__(self, encoder: nn.Module) -> None:
        super().__init__()
        self.encoder = encoder

    def forward(self, x: Tensor) -> Tensor:
        """From (images, 9, channels, side, side) to (images, n_components)."""
        z: Tensor = self.encoder(x.flatten(0, 1)).flatten(1)
        return z.reshape(len(x), x.shape[1], -1).mean(dim=1)
