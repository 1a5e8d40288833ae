"""Masked tokens and pairs of sentences: what BERT and RoBERTa learn from.

    loss = mean over masked places of −log p(xₜ | all other tokens)
           + mean over pairs of −log p(second follows first | pair)

A share of the tokens is chosen; 80 % of these are hidden behind the mask, 10 % replaced
by a random token and 10 % left as they are, so that the network cannot rely on seeing
the mask. Only chosen places count in the loss. With pairs, a row holds a sentence and,
in half of all cases, the one that follows it; else one from another text.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from certus.language.base import end_of
from certus.language.encoders.encoder_training import in_order_of_length, rows_of_a_step
from certus.language.encoders.text_encoder import parts_of
from certus.neural_network.batches import Batch
from certus.neural_network.modules.transformer import Transformer
from certus.neural_network.run import Losses
from certus.neural_network.wrapping import evaluating
from certus.text.words import sentences
from certus.typing import Array, Fit

#: Shares of the chosen tokens that are hidden, and hidden or replaced.
HIDDEN, CHANGED = 0.8, 0.9
#: Rows of held-out text that are looked at.
WATCHED = 256
#: Not a target.
NONE = -100


class MaskedNetwork(nn.Module):
    """A transformer over tokens and the mask, and a score of pairs where asked for."""

    def __init__(self, network: Transformer, pairs: bool) -> None:
        super().__init__()
        self.network = network
        self.head = nn.Linear(network.config["width"], 1) if pairs else None


def token_scores(network: Transformer, states: Tensor) -> Tensor:
    """Scores of all tokens but the mask, which is the last one."""
    return F.linear(states, network.embedding.weight[:-1])


def masked_loss(module: Any, batch: Batch) -> Losses:
    """The mean of −log p over chosen places, plus that of the pairs' labels."""
    network = module.network
    tokens, seen, *segments = batch.inputs
    states, _ = network.states(
        tokens, mask=seen, segments=segments[0] if segments else None
    )
    chosen = batch.y != NONE
    loss = F.cross_entropy(token_scores(network, states[chosen]), batch.y[chosen])
    if batch.extra is None:
        return {"loss": loss}
    z = module.head(network.pool(states))[:, 0]
    pairs = F.binary_cross_entropy_with_logits(z, batch.extra)
    return {"loss": loss + pairs, "masked_loss": loss, "pair_loss": pairs}


def hide(
    rng: np.random.Generator, tokens: Array, allowed: Array, share: float, n: int
) -> tuple[Array, Array]:
    """Tokens of a batch with some hidden, and the targets at their places.

    Parameters
    ----------
    rng : numpy.random.Generator
        Draws places and replacements.
    tokens : int array of shape (rows, time)
        What the rows hold.
    allowed : bool array of the same shape
        Where a token may be chosen; a row without such a place has no target.
    share : float
        Share of the tokens that is chosen, at least one in each row.
    n : int
        Number of tokens, which is the number of the mask.
    """
    u = np.where(allowed, rng.random(tokens.shape), 2.0)
    chosen = (u < share) | ((u == u.min(axis=1, keepdims=True)) & allowed)
    kind = rng.random(tokens.shape)
    other = rng.integers(0, n, tokens.shape)
    hidden = np.where(kind < HIDDEN, n, np.where(kind < CHANGED, other, tokens))
    return np.where(chosen, hidden, tokens), np.where(chosen, tokens, NONE)


def padded(rows: Sequence[Array], fill: int) -> tuple[Array, Array]:
    """Rows of tokens side by side, (rows, time), and where they are."""
    lengths = np.array([len(row) for row in rows])
    seen = np.arange(lengths.max())[None] < lengths[:, None]
    tokens = np.full(seen.shape, fill, np.int64)
    tokens[seen] = np.concatenate(rows)
    return tokens, seen


class MaskingTask:
    """Masked tokens of texts, and pairs of their sentences.

    Parameters
    ----------
    model : MaskedLanguageModel
        With its parameters and tokeniser.
    documents, held : list of bytes
        Texts to learn from, and to stop by (or None).
    """

    def __init__(
        self, model: Fit, documents: list[bytes], held: list[bytes] | None
    ) -> None:
        self.model, self.n = model, model.tokenizer_.n_tokens
        self.end, self.pairs = end_of(model.tokenizer_), bool(model.pairs)
        self.rows = self._rows(documents)
        if not self.rows:
            raise ValueError(
                "pairs=True needs a text with at least two sentences. Give whole "
                "documents, or set pairs=False."
            )
        watched = [] if held is None else self._rows(held)
        self.watched = bool(watched)
        lengths = [sum(map(len, row[-2:])) for row in self.rows]
        self.lengths = np.array(lengths)
        self.batch_size = rows_of_a_step(model, lengths)
        self.tokens = int(self.batch_size * np.mean(lengths))
        self.a_pass = -(-len(self.rows) // self.batch_size)
        self.data = (self.rows, watched)
        fixed = np.random.default_rng(0)
        self.look_at = [
            self._batch(fixed, watched[i : i + 64], watched)
            for i in range(0, len(watched[:WATCHED]), 64)
        ]

    objective = staticmethod(masked_loss)

    def _rows(self, documents: list[bytes]) -> list[tuple[Any, ...]]:
        """Stretches of tokens; with pairs (text, first, second) of token lists."""
        encode, room = self.model.tokenizer_.encode, int(self.model.context) - 1
        if not self.pairs:
            cut = [parts_of(encode(text), room) for text in documents]
            return [(part,) for parts in cut for part in parts if len(part)]
        found: list[tuple[Any, ...]] = []
        for number, text in enumerate(documents):
            ids = [encode(sentence) for sentence in sentences_of(text)]
            found += [(number, a, b) for a, b in pairwise(ids)]
        return found

    def draw(self, rng: np.random.Generator, steps: int) -> Iterator[Batch]:
        """Batches with places and pairs drawn for each."""
        for some in in_order_of_length(rng, self.lengths, steps, self.batch_size):
            yield self._batch(rng, [self.rows[i] for i in some.tolist()], self.rows)

    def look(self, module: nn.Module) -> float:
        """The loss of held-out rows, with the same places hidden at each look."""
        with evaluating(module), torch.no_grad():
            found = [float(masked_loss(module, b)["loss"]) for b in self.look_at]
        return float(np.average(found, weights=[len(b.y) for b in self.look_at]))

    def _batch(
        self, rng: np.random.Generator, some: list[Any], all_rows: list[Any]
    ) -> Batch:
        device, labels = self.model.device, None
        if self.pairs:
            joined = [self._paired(rng, row, all_rows) for row in some]
            rows = [row for row, _, _ in joined]
            labels = torch.tensor([float(label) for _, _, label in joined])
            side, _ = padded([side for _, side, _ in joined], 1)
        else:
            rows = [np.concatenate([[self.end], row]) for (row,) in some]
        tokens, seen = padded(rows, self.end)
        share = float(self.model.mask_fraction)
        allowed = seen & (tokens != self.end)
        hidden, targets = hide(rng, tokens, allowed, share, self.n)
        inputs = [torch.from_numpy(hidden), torch.from_numpy(seen)]
        if self.pairs:
            inputs.append(torch.from_numpy(side))
        labels = None if labels is None else labels.to(device)
        y = torch.from_numpy(targets).to(device)
        return Batch(tuple(x.to(device) for x in inputs), y, None, labels)

    def _paired(
        self, rng: np.random.Generator, row: tuple[Any, ...], all_rows: list[Any]
    ) -> tuple[Array, Array, bool]:
        """Tokens and segments of a pair, and whether its second part follows."""
        number, first, second = row
        follows = bool(rng.random() < 0.5)
        if not follows:
            other = all_rows[int(rng.integers(len(all_rows)))]
            for _ in range(8):  # from another text, where there is one
                if other[0] != number:
                    break
                other = all_rows[int(rng.integers(len(all_rows)))]
            follows = other is row
            second = other[2]
        return (*pair_of(first, second, self.end, self.model.context), follows)


def pair_of(first: Array, second: Array, end: int, context: int) -> tuple[Array, Array]:
    """The row of a pair, [end] first [end] second, and the segment of each token.

    What does not fit is cut away from where the two are farthest apart.
    """
    room = int(context) - 2
    a = min(len(first), max(room // 2, room - len(second)))
    first, second = first[len(first) - a :], second[: room - a]
    row = np.concatenate([[end], first, [end], second]).astype(np.int64)
    return row, (np.arange(len(row)) >= a + 2).astype(np.int64)


def sentences_of(text: bytes) -> list[bytes]:
    """The sentences of a text; bytes that are not UTF-8 stay as they are."""
    words = text.decode("utf-8", "surrogateescape")
    return [part.encode("utf-8", "surrogateescape") for part in sentences(words)]
