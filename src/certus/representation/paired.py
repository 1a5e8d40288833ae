"""Two towers that give both sides of a pair the same vector (CLIP).

    minimise over θ, τ:  ½ [CE(S, pairs) + CE(Sᵀ, pairs)],  Sᵢⱼ = cos(f(xᵢ), h(yⱼ))/τ

f reads one side, such as images, and h the other, such as texts. Each side finds its
partner among all others of the batch. If all vectors are equal, the loss is log B for B
pairs. Rows of a batch whose other sides are equal are all correct answers.
"""

from __future__ import annotations

import math
from typing import Any, Unpack

import numpy as np
import torch
from sklearn.utils.validation import check_is_fitted
from torch import Tensor, nn

from certus._core.sharing import shares
from certus.base import certified_fit, check_number, require_outputs
from certus.neural_network.batches import NetworkInputs
from certus.neural_network.run import Losses
from certus.neural_network.wrapping import dtype_of, outputs
from certus.representation import inputs
from certus.representation.base import RepresentationModel
from certus.representation.joint_losses import matched
from certus.representation.measures import unit_rows
from certus.representation.networks import build_encoder, check_sizes
from certus.representation.options import EncoderTraining
from certus.typing import Array, MatrixLike

#: Least τ that training may reach.
COLDEST = 0.01


@shares(EncoderTraining, batch_size=128, learning_rate=3e-3)
class PairedEncoder(RepresentationModel):
    """Learns vectors of two kinds of rows, alike for rows that belong together (CLIP).

    Any two kinds can be paired: images and texts, table rows and sequences. After the
    fit, a row of one side finds its partner among rows of the other side that were in
    no training pair. For example, an image is classified by the nearest of some texts,
    without a label ("zero-shot").

    Objective
    ---------
    ½ [CE(S, pairs) + CE(Sᵀ, pairs)] over a batch of B pairs, Sᵢⱼ = cos(f(xᵢ), h(yⱼ))/τ.
    If all vectors are equal, it is log B. τ is learnt too.

    Certificate
    -----------
    Computed on held-out pairs. ``match_loss`` (MEASURED): the loss compared with log B.
    ``vectors_differ`` and ``second_vectors_differ`` (PROVED): the mean cosine of the
    vectors of two different rows of X, and of Y; near 1 all rows have the same vector,
    and the claim fails. ``mutual_information`` (STATISTICAL): a lower bound on the
    information that both sides share, in nats. ``effective_rank`` and
    ``component_spread`` (MEASURED) of the vectors of X.

    Parameters
    ----------
    n_components : int, default=64
        Number of components. Vectors of both sides have this many numbers.
    module : "auto", nn.Module or callable, default="auto"
        The network to train, or a function that makes it. For X; as in
        :class:`ContrastiveEncoder`.
    second_module : "auto", nn.Module or callable, default="auto"
        The network for Y, or a function that makes it.
    hidden_layer_sizes : sequence of int, default=(128,)
        Number of units in each hidden layer. Networks for images and sequences have
        one, of the last size.
    temperature : float, default=0.1
        Divisor of the cosines: the smaller it is, the more small differences count.
        This is τ at the start.
    kind : {"auto", "images", "rows", "sequences"}, default="auto"
        What X holds. As in :class:`ContrastiveEncoder`.
    second_kind : {"auto", "images", "rows", "sequences"}, default="auto"
        What Y holds.
    image_shape : (int, int) or (int, int, int), default=None
        For flattened rows: height and width, and the number of channels if there are
        several. It applies to X; if Y holds images, it must be an array of images.
    channels : None, "first" or "last", default=None
        Where the channels of an image are. By default they are the axis of length 1, 3
        or 4.
    {shared}

    Attributes
    ----------
    encoder_, second_encoder_ : nn.Module
        f and h, in evaluation mode.
    temperature_ : float
        τ at the end.
    inputs_, second_inputs_ : dict
        How X and Y are read: kinds, the shape of an image, means and scales, tokens.
    held_out_ : ndarray of int
        Pairs that were held out.
    history_ : dict of lists
        Loss, steps and seconds, recorded at intervals during the training.
    n_iter_ : int
        Number of training steps.
    certificate_ : Certificate
        What the verifier found.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.datasets import load_digits
    >>> from certus.representation import PairedEncoder
    >>> X, y = load_digits(n_class=3, return_X_y=True)
    >>> names = np.array(["zero", "one", "two"])
    >>> model = PairedEncoder(image_shape=(8, 8), max_iter=60, random_state=0)
    >>> model = model.fit(X[::2], names[y[::2]])
    >>> found = model.nearest(X[1::2], names)
    >>> bool((found == y[1::2]).mean() > 0.9)
    True
    """

    least_rows = 2
    part_names = ("encoder", "second_encoder")

    def __init__(
        self,
        n_components: int = 64,
        *,
        module: Any = "auto",
        second_module: Any = "auto",
        hidden_layer_sizes: Any = (128,),
        temperature: float = 0.1,
        kind: str = "auto",
        second_kind: str = "auto",
        image_shape: Any = None,
        channels: str | None = None,
        **shared: Unpack[EncoderTraining],
    ) -> None: ...

    @certified_fit
    def fit(self, X: MatrixLike, Y: MatrixLike) -> Any:
        """Learn from pairs: row i of X belongs to row i of Y.

        Parameters
        ----------
        X, Y : array-like, list of sequences, or files
            Both sides, each of any kind; a column of numbers is a table, texts are
            sequences of characters.
        """
        return self._fit(X, Y)

    # -- what is trained --------------------------------------------------------------

    def _check(self) -> None:
        super()._check()
        check_sizes(self)
        check_number("temperature", self.temperature, COLDEST)

    def _read(self, fresh: bool, X: Any, Y: Any) -> tuple[NetworkInputs, Any]:
        if Y is None:
            raise ValueError(
                "PairedEncoder requires y to be passed, but the target y is None: pass "
                "X and Y, the two sides of the pairs."
            )
        first, a = super()._read(fresh, X, None)
        if fresh:
            self.second_inputs_, b = inputs.learn(
                None, Y, kind=self.second_kind, channels=self.channels, name="Y"
            )
        else:
            b = inputs.read(None, self.second_inputs_, Y, "Y")
        if len(a) != len(b):
            raise ValueError(
                f"X and Y must have the same number of rows, got {len(a)} and "
                f"{len(b)}: inconsistent numbers of samples."
            )
        second = inputs.tensors(self.second_inputs_, b, self.device)
        return PairInputs(first, second, _same(b)), (a, b)

    def _parts(self, learnt: inputs.Learnt) -> nn.ModuleDict:
        return nn.ModuleDict(
            {
                "encoder": build_encoder(self, learnt),
                "second_encoder": build_encoder(
                    self, self.second_inputs_, "second_module"
                ),
                "scale": LogScale(self.temperature),
            }
        )

    def _trained_parts(self) -> nn.ModuleDict:
        parts = super()._trained_parts()
        parts["scale"] = LogScale(self.temperature_)
        return parts

    def _losses(self, parts: nn.ModuleDict, *x: Tensor) -> Losses:
        *sides, codes = x
        k = 2 if self.inputs_["kind"] == "sequences" else 1
        a = parts["encoder"](*sides[:k])
        b = parts["second_encoder"](*sides[k:])
        same = codes[:, None] == codes[None]
        return {"loss": matched(a, b, parts["scale"](), same)}

    def _state(self, parts: nn.ModuleDict) -> dict[str, Any]:
        found = {name: parts[name] for name in self.part_names}
        ready = {
            "encoder_": self._ready(found["encoder"], self.inputs_),
            "second_encoder_": self._ready(
                found["second_encoder"], self.second_inputs_
            ),
        }
        return {**ready, "temperature_": 1 / float(parts["scale"]().detach())}

    # -- vectors ----------------------------------------------------------------------

    def transform(self, X: MatrixLike) -> Array:
        """The vectors of rows of the first side, of length 1.

        Parameters
        ----------
        X : array-like, list of sequences, or files
            Rows like X of the fit.

        Returns
        -------
        float64 ndarray of shape (n_samples, n_components)
        """
        check_is_fitted(self, "encoder_")
        return unit_rows(self._vectors(X, self.encoder_).astype(np.float64))

    def transform_second(self, Y: MatrixLike) -> Array:
        """The vectors of rows of the second side, of length 1.

        Parameters
        ----------
        Y : array-like, list of sequences, or files
            Rows like Y of the fit.

        Returns
        -------
        float64 ndarray of shape (n_samples, n_components)
        """
        check_is_fitted(self, "encoder_")
        encoder = self.second_encoder_
        values = inputs.read(None, self.second_inputs_, Y, "Y")
        rows = inputs.tensors(
            self.second_inputs_, values, self.device, dtype_of(encoder)
        )
        found = outputs(encoder, rows).flatten(1).cpu().numpy().astype(np.float64)
        require_outputs(found)
        return unit_rows(found)

    def similarity(self, X: MatrixLike, Y: MatrixLike) -> Array:
        """Cosines of all rows of X with all rows of Y.

        Parameters
        ----------
        X, Y : array-like, list of sequences, or files
            Rows of the first and of the second side; their numbers may differ.

        Returns
        -------
        ndarray of shape (n_X, n_Y)
        """
        return np.asarray(self.transform(X) @ self.transform_second(Y).T)

    def nearest(self, X: MatrixLike, Y: MatrixLike) -> Array:
        """The row of Y with the largest cosine, for each row of X.

        With one text for each class this classifies X without a label.

        Parameters
        ----------
        X, Y : array-like, list of sequences, or files
            Rows of the first side, and candidates of the second.

        Returns
        -------
        ndarray of int of shape (n_X,)
            Row numbers of Y.
        """
        return np.asarray(self.similarity(X, Y).argmax(axis=1))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        return tags


class LogScale(nn.Module):
    """1/τ as exp of a parameter, at most 1/``COLDEST``."""

    def __init__(self, temperature: float) -> None:
        super().__init__()
        self.log_scale = nn.Parameter(torch.tensor(-math.log(float(temperature))))

    def forward(self) -> Tensor:
        """1/τ."""
        return self.log_scale.clamp(max=-math.log(COLDEST)).exp()


class PairInputs:
    """Inputs of both towers, and numbers that are equal for equal second sides."""

    def __init__(self, first: Any, second: Any, codes: Array) -> None:
        self.first, self.second = first, second
        self.codes = torch.from_numpy(codes)

    def __len__(self) -> int:
        """How many pairs there are."""
        return len(self.first)

    def __getitem__(self, rows: Tensor | slice) -> tuple[Tensor, ...]:
        """The inputs of both towers for these pairs."""
        return (*self.first[rows], *self.second[rows], self.codes[rows])


def _same(values: Any) -> Array:
    """A number for each row, equal where rows are equal."""
    known: dict[Any, int] = {}
    keys = ((np.shape(row), np.ascontiguousarray(row).tobytes()) for row in values)
    return np.array([known.setdefault(key, len(known)) for key in keys])
