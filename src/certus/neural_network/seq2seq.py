"""Sequences from sequences: translate, reverse, sort, spell out, caption.

    maximise over θ:  Σ sᵢ log p(yᵢ | xᵢ; θ) / |yᵢ|,   p(y | x) = Πₜ p(yᵗ | x, y^{<t})

where |y| counts the end of the sequence. The network is
:class:`certus.neural_network.modules.EncoderDecoder`; prediction goes on from its own
outputs, greedily or by beam search.
"""

from __future__ import annotations

import copy
from typing import Any, Unpack

import numpy as np
import torch
from torch import nn

from certus.base import certified_fit, check_choice, check_number
from certus.neural_network.batches import DenseInputs, NetworkInputs, RaggedInputs
from certus.neural_network.modules import seq2seq as net
from certus.neural_network.objective import Targets
from certus.neural_network.parameters import TrainingOptions, trained_with
from certus.neural_network.sequence_targets import SequenceWriter, kept
from certus.neural_network.tokens import numbered, read_sequences, tokens_of
from certus.neural_network.wrapping import dtype_of, evaluating
from certus.typing import ArrayLike, MatrixLike
from certus.wording import shorten

#: Numbers of sources' tokens: 0 stands for a source without any.
UNKNOWN, FIRST = 1, 2


@trained_with(
    TrainingOptions,
    learning_rate=3e-3,
    schedule="cosine",
    clip=1.0,
    max_iter=20,
)
class Seq2Seq(SequenceWriter):
    """Learns to write a sequence for each sequence it reads.

    An encoder reads a source in both directions; a decoder writes the target token by
    token, given what it wrote before, and with attention looks at the encoder's states
    in each step.

    Objective
    ---------
    Σ sᵢ ℓᵢ / Σ s, ℓ = −log p(y | x; θ) / T with p(y | x) = Πₜ p(yᵗ | x, y^{<t}) over
    the T tokens of y; the last of them is the end.

    Certificate
    -----------
    As for :class:`certus.neural_network.NeuralClassifier`, of this loss, all of it
    MEASURED. It is the loss with true previous tokens, also where ``teacher_forcing``
    is below 1.

    Parameters
    ----------
    network : {"recurrent", "transformer"}, default="recurrent"
        Kind of encoder and decoder. A transformer's layers look at all tokens at once,
        in several heads; it has neither ``cell`` nor ``attention``, and is best with
        ``n_layers=2``.
    width : int, default=64
        Number of units in a recurrent state. Embeddings, and the states of a
        transformer, have as many components.
    cell : {"gru", "lstm", "rnn"}, default="gru"
        Kind of recurrent unit.
    heads : int, default=4
        Number of heads of attention. A transformer has them; ``width`` is a multiple
        of their number.
    n_layers : int, default=1
        Number of layers. Both encoder and decoder have as many.
    attention : bool, "dot" or "additive", default=True
        Whether the decoder looks at the encoder's states: by hᵀWe (True, "dot") or by
        vᵀtanh(Wh + Ue). Without it all it knows is the encoder's last state.
    feedback : bool, default=True
        Whether the decoder receives its previous output.
    teacher_forcing : float or "scheduled", default=1.0
        In training, the probability that the decoder receives the true previous token
        and not one of its own; "scheduled" lets it fall from 1 to ½ over the run.
        Below 1 an epoch takes longer, because steps can no longer be made together.
    dropout : float, default=0.0
        Share of units that each training step leaves out at random. It applies to
        embeddings and states.
    beam : int, default=1
        Beginnings that prediction follows at once; with 1 it takes the most probable
        token in each step. At most 1,000.
    max_length : int, default=None
        Most tokens of a prediction; by default twice the longest target of the fit.
    encoder : nn.Module, default=None
        Module that replaces the recurrent encoder. It serves sources of another kind,
        such as images: it returns
        :class:`certus.neural_network.modules.seq2seq.EncodedSources` for a batch of
        arrays, and has the attribute ``width``. A copy of it is trained.
    label_smoothing : float, default=0.0
        Share of each target that is spread over all classes. The classes are the
        tokens.
    {shared}

    Attributes
    ----------
    module_ : certus.neural_network.modules.EncoderDecoder
        The trained network, in evaluation mode.
    source_tokens_, target_tokens_ : list
        Vocabularies; token i of the sources is number i + 2 to the network (1: unknown
        ones, 0: an empty source), token i of the targets i + 1 (0: the end).
    longest_ : int
        Tokens of the longest target.
    {fitted}

    Notes
    -----
    Defaults of training differ from those of other networks: a higher learning rate
    that falls to zero, and clipped gradients, by which sequences of length 20 are
    reversed and sorted within a few minutes. An epoch costs O(n·T·width²), attention
    O(n·T²·width) more.

    Examples
    --------
    >>> from certus.neural_network import Seq2Seq
    >>> words = ["tea", "rum", "milk", "water", "wine", "beer"]
    >>> model = Seq2Seq(width=32, max_iter=100, random_state=0)
    >>> model.fit(words, [w[::-1] for w in words]).predict(["milk", "rum"])
    ['klim', 'mur']
    """

    def __init__(
        self,
        *,
        network: str = "recurrent",
        width: int = 64,
        cell: str = "gru",
        heads: int = 4,
        n_layers: int = 1,
        attention: bool | str | None = True,
        feedback: bool = True,
        teacher_forcing: float | str = 1.0,
        dropout: float = 0.0,
        beam: int = 1,
        max_length: int | None = None,
        encoder: nn.Module | None = None,
        label_smoothing: float = 0.0,
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
        """Learn from pairs of sequences.

        Parameters
        ----------
        X : iterable of sequences
            Sources: strings, whose tokens are their characters, or lists of strings or
            numbers. With an ``encoder`` of your own, an array it understands.
        y : iterable of sequences
            Targets of the same kinds; they may be empty.
        sample_weight : array-like of shape (n_samples,), optional
            Row weights. There is one for each pair.
        X_val, y_val : iterable of sequences, optional
            Pairs of your own to stop by.

        Returns
        -------
        Seq2Seq
            Itself.
        """
        X, y = kept(X), kept(y)
        return self._fit(X, y, sample_weight, X_val, y_val)

    # -- hooks of the base --------------------------------------------------------

    def _read_X(self, X: MatrixLike, reset: bool) -> Any:
        if self.encoder is not None:
            return np.asarray(X)
        found = read_sequences(X)
        if not found:
            raise ValueError("X holds no sequences; at least 1 is required.")
        if reset:
            self.source_tokens_ = tokens_of(found)
        return numbered(found, self.source_tokens_, FIRST, UNKNOWN)

    def _rows(self, X: Any, module: nn.Module) -> NetworkInputs:
        if self.encoder is not None:
            return DenseInputs(X, dtype_of(module), self.device)
        filled = [x if len(x) else np.zeros(1, dtype=np.int64) for x in X]
        return RaggedInputs(filled, torch.int64, self.device)

    def _build(self, X: Any, targets: Targets) -> nn.Module:
        scheduled = self.teacher_forcing == "scheduled"
        steps = self.max_iter * -(-len(X) // (self.batch_size or len(X)))
        encoder = copy.deepcopy(self.encoder)
        module = net.EncoderDecoder(
            0 if encoder is not None else len(self.source_tokens_) + FIRST,
            targets.outputs,
            network=self.network,
            hidden=self.width,
            cell=self.cell,
            heads=self.heads,
            n_layers=self.n_layers,
            attention=_attention(self.attention),
            feedback=bool(self.feedback),
            forcing=0.5 if scheduled else float(self.teacher_forcing),
            forcing_decay=0.5 / steps if scheduled else 0.0,
            dropout=float(self.dropout),
            encoder=encoder,
        )
        if encoder is None:  # training never meets it: an unknown token says nothing
            nn.init.zeros_(module.encoder.embedding.weight.data[UNKNOWN])
        return module

    def _try(self, module: nn.Module, rows: NetworkInputs, targets: Targets) -> None:
        if self.encoder is None:
            return
        try:
            with evaluating(module), torch.no_grad():
                module(*rows[slice(0, 2)], targets.y[:2].to(self.device))
        except (RuntimeError, TypeError, ValueError, IndexError, AttributeError) as why:
            first = (str(why).strip().splitlines() or [type(why).__name__])[0]
            raise ValueError(
                f"The encoder does not fit X or the decoder: {first.rstrip('.')}. It "
                "must give EncodedSources(summary (rows, width), states (rows, time, "
                "width), mask (rows, time)) for a batch."
            ) from why

    def _check_training(self) -> None:
        super()._check_training()
        check_number("width", self.width, 1, integer=True)
        check_choice("network", self.network, ("recurrent", "transformer"))
        check_choice("cell", self.cell, tuple(net.LAYERS))
        check_number("heads", self.heads, 1, integer=True)
        if self.network == "transformer" and self.width % self.heads:
            raise ValueError(
                f"width must be a multiple of heads, got width={self.width} and "
                f"heads={self.heads}."
            )
        check_number("n_layers", self.n_layers, 1, integer=True)
        _attention(self.attention)
        if self.teacher_forcing != "scheduled":
            check_number("teacher_forcing", self.teacher_forcing, 0, 1)
        check_number("dropout", self.dropout, 0, 1)
        check_number("label_smoothing", self.label_smoothing, 0, 1)
        self._most(0)
        if self.encoder is not None and not (
            isinstance(self.encoder, nn.Module) and hasattr(self.encoder, "width")
        ):
            raise TypeError(
                "encoder must be an nn.Module with the attribute width, got "
                f"{shorten(repr(self.encoder))}."
            )

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.string = True
        tags.input_tags.two_d_array = False
        tags.input_tags.sparse = False
        tags.no_validation = True
        tags.target_tags.required = True
        return tags


def _attention(value: bool | str | None) -> str | None:
    check_choice("attention", value, (True, False, None, "dot", "additive"))
    if isinstance(value, str):
        return value
    return "dot" if value else None
