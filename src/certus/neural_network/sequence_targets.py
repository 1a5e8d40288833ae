"""Targets that are sequences, written token by token.

    ℓ = −log p(y | x) / T,   p(y | x) = Πₜ p(yᵗ | x, y^{<t})

over the T tokens of y, the last of which is its end. In training the network receives
the true tokens before each; prediction goes on from its own, greedily or by beam
search.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any, Self

import numpy as np
import torch
from sklearn.utils.validation import check_is_fitted
from torch import Tensor, nn

from certus._core.rows import row_weights
from certus.base import check_number
from certus.neural_network.batches import Batch, HeldOut, NetworkInputs
from certus.neural_network.estimator import NeuralModel
from certus.neural_network.modules.seq2seq import END
from certus.neural_network.objective import RowLoss, Targets
from certus.neural_network.run import Losses, TrainingRun
from certus.neural_network.tokens import (
    NOTHING,
    accuracy,
    agreement,
    ended,
    lists,
    numbered,
    read_sequences,
    token_loss,
    tokens_of,
    trimmed,
)
from certus.neural_network.wrapping import evaluating
from certus.typing import Array, ArrayLike, MatrixLike
from certus.wording import shorten

#: Sequences that are decoded together.
TOGETHER = 512


class SequenceWriter(NeuralModel):
    """Reads y as sequences of tokens, and writes such sequences; abstract."""

    module_: Any
    target_tokens_: list[Any]
    longest_: int
    _as_text: bool  # all targets of the fit were strings

    def _read_y(self, y: ArrayLike, reset: bool) -> Targets:
        found = read_sequences(y, "y")
        if reset:
            self.target_tokens_ = tokens_of(found)
            self.longest_ = max(map(len, found), default=0)
            self._as_text = bool(found) and all(isinstance(x, str) for x in found)
        numbers = numbered(found, self.target_tokens_, END + 1, NOTHING)
        for sequence, codes in zip(found, numbers):
            if (codes == NOTHING).any():
                strange = sequence[int(np.argmax(codes == NOTHING))]
                raise ValueError(
                    f"y holds the token {shorten(repr(strange))}, which was not in "
                    "the targets of the fit. Leave these sequences out, or refit."
                )
        smoothing = self.label_smoothing

        def loss(z: Tensor, t: Tensor) -> Tensor:
            return token_loss(z, t, smoothing)

        outputs = len(self.target_tokens_) + 1
        table = ended(numbers)
        return Targets(table, loss, outputs, None, _Forced(RowLoss(loss)))

    def _evaluator(self, held: HeldOut, targets: Targets) -> Any:
        most = self._most()

        def evaluate(run: TrainingRun) -> dict[str, float]:
            module: Any = run.final()
            losses, right, asked = [], [], []
            with evaluating(module), torch.no_grad():
                for i in range(0, len(held.rows), TOGETHER):
                    block = slice(i, i + TOGETHER)
                    y = trimmed(held.y[block])
                    inputs = held.rows[block]
                    losses.append(targets.loss(module(*inputs, y), y).cpu())
                    found = module.greedy(module.encode(*inputs), most).tokens
                    counts = agreement(lists(found), lists(y))
                    right.append(counts[0])
                    asked.append(counts[1])
            s = np.ones(len(held.rows)) if held.s is None else held.s.cpu().numpy()
            loss = float(s @ torch.cat(losses).double().numpy() / s.sum())
            score = accuracy(np.concatenate(right), np.concatenate(asked), s)
            return {
                "validation_loss": loss,
                "validation_score": score,
                "criterion": -score if math.isfinite(loss) else math.inf,
            }

        return evaluate

    def _most(self, longest: int | None = None) -> int:
        check_number("beam", self.beam, 1, 1000, integer=True)  # memory grows with it
        check_number("max_length", self.max_length, 0, integer=True, none=True)
        if self.max_length is not None:
            return int(self.max_length)
        return 2 * (self.longest_ if longest is None else longest)

    def partial_fit(
        self, X: Any, y: Any, sample_weight: ArrayLike | None = None
    ) -> Self:
        """Make one epoch over these pairs, with the optimiser of the last one.

        Both vocabularies are those of the first call. ``schedule`` and
        ``early_stopping`` belong to whole runs. No certificate is left;
        :func:`certus.certify` makes one.

        Parameters
        ----------
        X, y : iterable of sequences
            Sources and targets.
        sample_weight : array-like of shape (n_samples,), optional
            Row weights. There is one for each pair.

        Returns
        -------
        Seq2Seq
            Itself.
        """
        X, y, fresh = kept(X), kept(y), not hasattr(self, "module_")
        self._partial_fit(X, y, sample_weight, reset=fresh)
        self.longest_ = max(self.longest_, *map(len, read_sequences(y, "y")))
        return self

    def predict(self, X: MatrixLike) -> list[Any]:
        """The sequence written for each source.

        Parameters
        ----------
        X : iterable of sequences
            Sources. Tokens that the fit did not see are read as unknown ones.

        Returns
        -------
        list
            Strings if all targets of the fit were strings, else lists of tokens.
        """
        return [self._worded(row) for row in self._decoded(self._sources(X))]

    def log_probability(self, X: Any, y: Any) -> Array:
        """Logarithm of p(y | x) of each pair, the end of the sequence included.

        Parameters
        ----------
        X, y : iterable of sequences
            Sources and targets.

        Returns
        -------
        ndarray of shape (n_samples,)
            −inf where y holds a token that no target of the fit held.
        """
        rows, numbers = self._sources(X), self._targets(y)
        _require_pairs(rows, numbers)
        impossible = np.array([(codes == NOTHING).any() for codes in numbers])
        y = ended(numbers)
        out = np.empty(len(rows))
        with torch.no_grad():
            for i in range(0, len(rows), TOGETHER):
                block = slice(i, i + TOGETHER)
                t = trimmed(y[block]).to(self.device)
                z = self.module_(*rows[block], t).double()
                out[block] = -(token_loss(z, t) * (t >= 0).sum(dim=1)).cpu().numpy()
        out[impossible] = -np.inf
        return out

    def attention_weights(self, X: Any, y: Any = None) -> list[Array]:
        """What the decoder looked at while it wrote each token.

        Parameters
        ----------
        X : iterable of sequences
            Sources.
        y : iterable of sequences, optional
            What it is made to write; by default what it predicts.

        Returns
        -------
        list of ndarray of shape (n_target_tokens, n_source_tokens)
            Rows are distributions over the tokens of the source.
        """
        check_is_fitted(self, "module_")
        if self.module_.decoder.attention is None:
            raise ValueError("This model was fitted without attention.")
        rows = self._sources(X)
        numbers = self._decoded(rows) if y is None else self._targets(y)
        _require_pairs(rows, numbers)
        table, out = ended(numbers), []
        with torch.no_grad():
            for i in range(0, len(rows), TOGETHER):
                encoded = self.module_.encode(*rows[slice(i, i + TOGETHER)])
                t = trimmed(table[i : i + TOGETHER]).to(self.device)
                found = self.module_.attend(encoded, t).cpu().numpy()
                lengths = encoded.mask.sum(dim=1).tolist()
                for j, length in enumerate(lengths):
                    out.append(found[j, : len(numbers[i + j]), :length])
        return out

    def score(
        self, X: MatrixLike, y: ArrayLike, sample_weight: ArrayLike | None = None
    ) -> float:
        """The share of tokens that are predicted right, at their places.

        Parameters
        ----------
        X, y : iterable of sequences
            Sources and targets. A token that is missing or too many is a wrong one.
        sample_weight : array-like of shape (n_samples,), optional
            Row weights. There is one for each pair.
        """
        true = read_sequences(y, "y")
        found = self.predict(X)
        _require_pairs(found, true)
        s = row_weights(sample_weight, len(true))
        return accuracy(*agreement(found, true), s)

    def _sources(self, X: MatrixLike) -> NetworkInputs:
        check_is_fitted(self, "module_")
        return self._rows(self._read_X(kept(X), reset=False), self.module_)

    def _targets(self, y: ArrayLike) -> list[Array]:
        found = read_sequences(y, "y")
        return numbered(found, self.target_tokens_, END + 1, NOTHING)

    def _decoded(self, rows: NetworkInputs) -> list[Array]:
        """The numbers of the tokens written for each source."""
        most, out = self._most(), []
        for i in range(0, len(rows), TOGETHER):
            encoded = self.module_.encode(*rows[slice(i, i + TOGETHER)])
            out += lists(self.module_.beam(encoded, most, int(self.beam)).tokens)
        return out

    def _worded(self, numbers: Array) -> Any:
        tokens = [self.target_tokens_[i - 1] for i in numbers]
        return "".join(tokens) if self._as_text else tokens


class _Forced:
    """The loss of a network that receives the true targets before each one."""

    def __init__(self, mean: Callable[..., Losses]) -> None:
        self.mean = mean

    def __call__(self, module: nn.Module, batch: Batch) -> Losses:
        y = trimmed(batch.y)
        found: Losses = self.mean(lambda *x: module(*x, y), batch._replace(y=y))
        return found


def kept(X: MatrixLike) -> Any:
    """X, as a list if it can be read only once."""
    return list(X) if isinstance(X, Iterator) else X


def _require_pairs(X: Any, y: Any) -> None:
    if len(X) != len(y):
        raise ValueError(
            f"X holds {len(X)} sequences and y {len(y)}; pass one target "
            "for each sequence."
        )
