"""Encoders that learn to fill in what was hidden from them.

    minimise over θ:  E ‖m ⊙ (g(f(x ⊙ (1 − m))) − x)‖² / Σm

m is a random mask, f the encoder, whose vectors :meth:`MaskedAutoencoder.transform`
gives, and g the decoder, which only the loss and :meth:`MaskedAutoencoder.reconstruct`
use. Labels come from the rows themselves.
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
from certus.neural_network.modules.mlp import MLP
from certus.neural_network.run import Losses
from certus.neural_network.tokens import read_sequences
from certus.neural_network.wrapping import dtype_of, evaluating
from certus.representation import hiding, inputs
from certus.representation.base import RepresentationModel
from certus.representation.networks import build_encoder, check_sizes
from certus.representation.options import EncoderTraining
from certus.typing import ArrayLike, Column, MatrixLike

#: Rows that are reconstructed together.
TOGETHER = 1024


@shares(EncoderTraining)
class MaskedAutoencoder(RepresentationModel):
    """Learns vectors from which hidden parts of a row can be filled in.

    X holds images, table rows or sequences. In each step a random part of each row is
    hidden: blocks of an image, cells of a table row, steps of a sequence. The networks
    predict them from the rest, which needs no labels.

    Objective
    ---------
    The mean squared error of the hidden values, in units of the standard deviation of
    each column or channel; for tokens, the mean of −log p of the hidden tokens.

    Certificate
    -----------
    Computed on held-out rows. ``restored`` (STATISTICAL): the share of new rows that
    are filled in better than by the mean of the visible part (for table rows, by the
    means of the columns); for tokens, the share of hidden tokens that are predicted
    correctly, compared with always predicting the most frequent one. ``hidden_loss``
    (MEASURED): the error compared with that of this simple rule. ``no_leak`` (PROVED):
    the values filled in do not change, in any bit, if the hidden values change.
    ``effective_rank`` and ``component_spread`` (MEASURED) of the vectors. See
    :func:`certus.representation.probe` for how much they help a classifier.

    Parameters
    ----------
    n_components : int, default=64
        Number of components. A vector of ``transform`` has this many numbers.
    mask_fraction : float, default=0.5
        Share of the parts of a row or text that is hidden. At least one part is hidden,
        and one stays visible.
    patch_size : int or "auto", default="auto"
        Side of a patch in pixels. Whole patches of images are hidden; "auto" cuts the
        longer side into four.
    module : "auto", nn.Module or callable, default="auto"
        The network to train, or a function that makes it. "auto" is ``ConvNet``,
        ``MLP`` or ``Recurrent`` of :mod:`certus.neural_network.modules`, for images,
        rows and sequences; ``module(shape, n_components)`` makes one for inputs of a
        shape: (channels, height, width), (columns,) or (numbers or tokens of a step,).
    hidden_layer_sizes : sequence of int, default=(256, 256)
        Number of units in each hidden layer. The decoder has one, of the first size;
        encoders of images and sequences one, of the last size.
    kind : {"auto", "images", "rows", "sequences"}, default="auto"
        What X holds. "auto" takes arrays of three or four axes, files and rows with an
        ``image_shape`` for images, lists of texts or of sequences of unequal length for
        sequences, and tables for rows.
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
        f, in evaluation mode.
    decoder_ : certus.neural_network.modules.MLP
        g, in evaluation mode.
    inputs_ : dict
        How X is read: its kind, the shape of an image, means and scales, tokens.
    patch_size_ : int
        Side of the patches; 1 where X holds no images.
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
    Networks are trained in float32. ``reconstruct`` also fills in unknown cells of
    table rows. ``transform`` computes a vector from a whole row, while training used
    rows with hidden parts; ``probe`` shows whether that matters.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from certus.representation import MaskedAutoencoder
    >>> X = load_digits().images[:400]
    >>> model = MaskedAutoencoder(max_iter=60, random_state=0).fit(X)
    >>> model.transform(X).shape
    (400, 64)
    >>> model.certificate_["no_leak"].met
    True
    """

    part_names = ("encoder", "decoder")

    def __init__(
        self,
        n_components: int = 64,
        *,
        mask_fraction: float = 0.5,
        patch_size: int | str = "auto",
        module: Any = "auto",
        hidden_layer_sizes: Any = (256, 256),
        kind: str = "auto",
        image_shape: Any = None,
        channels: str | None = None,
        **shared: Unpack[EncoderTraining],
    ) -> None: ...

    @certified_fit
    def fit(self, X: MatrixLike, y: Column = None) -> Any:
        """Learn to fill in hidden parts of rows.

        Parameters
        ----------
        X : array-like, list of sequences, or files
            Images (n, height, width) or with channels, table rows, or sequences.
        y : None
            Ignored.
        """
        return self._fit(X)

    # -- what is trained --------------------------------------------------------------

    def _check(self) -> None:
        super()._check()
        check_sizes(self)
        check_number("mask_fraction", self.mask_fraction, 0, 1, open_low=True)
        if not (isinstance(self.patch_size, str) and self.patch_size == "auto"):
            check_number("patch_size", self.patch_size, 1, integer=True)

    def _learn(self, X: MatrixLike) -> tuple[inputs.Learnt, Any]:
        learnt, values = super()._learn(X)
        self.patch_size_ = 1
        if learnt["kind"] == "images":
            sides = learnt["sizes"][1:]
            given = self.patch_size
            auto = isinstance(given, str)
            self.patch_size_ = hiding.block_side(*sides) if auto else int(given)
        return learnt, values

    def _parts(self, learnt: inputs.Learnt) -> nn.ModuleDict:
        width, first = int(self.n_components), int(self.hidden_layer_sizes[0])
        shape, more = inputs.shape_of(learnt), 0
        if learnt["kind"] == "sequences":
            more = hiding.PLACE
        decoder = MLP(width + more, (first,), int(np.prod(shape)))
        parts = {"encoder": build_encoder(self, learnt), "decoder": decoder}
        return nn.ModuleDict(parts)

    def _losses(self, parts: Any, *x: Tensor) -> Losses:
        hidden = self._hidden(x)
        if not hidden.any():  # all sequences of the batch are empty
            return {"loss": 0.0 * sum(p.sum() for p in parts.parameters())}
        found = _filled_in(parts["encoder"], parts["decoder"], x, hidden)
        if not x[0].is_floating_point():
            loss = F.cross_entropy(found[hidden], x[0][hidden])
        else:
            loss = F.mse_loss(found[hidden], x[0][hidden])
        return {"loss": loss}

    def _hidden(self, x: tuple[Tensor, ...]) -> Tensor:
        """What is hidden of a batch of inputs, at random, in the shape of the batch."""
        share, first = float(self.mask_fraction), x[0]
        if self.inputs_["kind"] == "sequences":
            steps = hiding.hidden_steps(x[1].cpu(), first.shape[1], share)
            steps = steps.to(first.device)
            return steps if first.ndim == 2 else steps[:, :, None].expand_as(first)
        if self.inputs_["kind"] == "rows":
            return hiding.hidden_parts(len(first), first.shape[1], share).to(
                first.device
            )
        sides, n = (first.shape[2], first.shape[3]), len(first)
        blocks = hiding.hidden_blocks(n, sides, self.patch_size_, share)
        return blocks[:, None].expand_as(first).to(first.device)

    # -- filling in -------------------------------------------------------------------

    def reconstruct(self, X: MatrixLike, hidden: ArrayLike) -> Any:
        """Fill in what is hidden.

        Parameters
        ----------
        X : array-like, list of sequences, or files
            Rows like those of the fit. Numbers at hidden places are ignored, but must
            be finite; any known token may stand in a hidden place.
        hidden : array-like of bool, or list of them
            Which parts are hidden: shape (n_samples, height, width) for images and
            (n_samples, n_columns) for table rows; for sequences, one list of steps for
            each.

        Returns
        -------
        array or list
            Rows like those of X: visible parts as they are, hidden ones as predicted.
        """
        values, x, mask = self._with_mask(X, hidden)
        encoder, decoder = self.encoder_, self.decoder_
        found, rows = [], len(mask)
        with evaluating(encoder), evaluating(decoder), torch.no_grad():
            for i in range(0, rows, TOGETHER):
                part = tuple(each[i : i + TOGETHER] for each in x)
                here = mask[i : i + TOGETHER]
                filled = _filled_in(encoder, decoder, part, here)
                if not part[0].is_floating_point():
                    filled = filled[..., 1:].argmax(dim=2) + 1
                found.append(torch.where(here, filled, part[0]))
        whole = torch.cat(found)
        if whole.is_floating_point():
            require_outputs(whole.cpu().numpy())
        told = inputs.written(self.inputs_, (whole, *x[1:]))
        return _visible_kept(self.inputs_, told, values, mask, X)

    def _with_mask(self, X: Any, hidden: Any) -> tuple[Any, tuple[Tensor, ...], Tensor]:
        """Rows as read, as inputs of the networks, and what is hidden of these."""
        check_is_fitted(self, "encoder_")
        values = inputs.read(self, self.inputs_, X)
        rows = self._inputs(values, dtype_of(self.decoder_))
        x = rows[torch.arange(len(rows))]
        kind, first = self.inputs_["kind"], x[0]
        if kind == "sequences":
            lines = [np.asarray(line, dtype=bool).ravel() for line in hidden]
            if [len(line) for line in lines] != x[1].tolist():
                raise ValueError(
                    "hidden must have one list of steps for each sequence."
                )
            steps = torch.zeros(first.shape[:2], dtype=torch.bool)
            for row, line in zip(steps, lines):
                row[: len(line)] = torch.from_numpy(line)
            return (
                values,
                x,
                steps if first.ndim == 2 else steps[:, :, None].expand_as(first),
            )
        mask = torch.from_numpy(np.array(hidden, dtype=bool))
        shape = (len(first), *first.shape[2:]) if kind == "images" else first.shape
        if mask.shape != tuple(shape):
            raise ValueError(
                f"hidden must have the shape {tuple(shape)}, got {tuple(mask.shape)}."
            )
        return values, x, mask if kind == "rows" else mask[:, None].expand_as(first)


def _filled_in(
    encoder: nn.Module, decoder: nn.Module, x: tuple[Tensor, ...], hidden: Tensor
) -> Tensor:
    """What the networks predict for every place; tokens have scores of each."""
    first = x[0].masked_fill(hidden, 0)
    z = encoder(first, *x[1:]).flatten(1)
    if len(x) == 1:
        found: Tensor = decoder(z).reshape(x[0].shape)
        return found
    longest = x[0].shape[1]
    where = hiding.places(x[1].cpu(), longest, z.dtype).to(z.device)
    every = torch.cat([z[:, None].expand(-1, longest, -1), where], dim=2)
    scores: Tensor = decoder(every.flatten(0, 1)).reshape(*every.shape[:2], -1)
    return scores


def _visible_kept(
    learnt: inputs.Learnt, told: Any, values: Any, mask: Tensor, X: Any
) -> Any:
    """Predicted rows, with visible numbers as they came and not as they were scaled."""
    if learnt["kind"] == "rows":
        return np.where(mask.numpy(), told, values)
    if learnt["kind"] == "sequences":
        if learnt["tokens"] is not None:
            own = read_sequences(list(X), "X")
            return [
                [new if gone else old for new, old, gone in zip(*line)]
                for line in zip(told, own, mask.tolist())
            ]
        lines = mask[:, :, 0].numpy()
        return [
            np.where(line[: len(row), None], row, own)
            for line, row, own in zip(lines, told, values)
        ]
    shape, first, flat = learnt["layout"]
    seen, rows = mask.numpy(), np.asarray(values)
    if len(shape) == 2:
        seen, rows = seen[:, 0], rows[:, 0]
    elif not first:
        seen, rows = np.moveaxis(seen, 1, 3), np.moveaxis(rows, 1, 3)
    if flat:
        seen, rows = seen.reshape(len(seen), -1), rows.reshape(len(rows), -1)
    return np.where(seen, told, rows)
