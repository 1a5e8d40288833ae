"""Prompts and their answers: tokens, padded batches, and log p(answer | prompt).

    <|end|> + encode(prompt) + encode(answer) + <|end|>
    log p(y | x) = Σₜ log p(yₜ | x, y_{<t}),  the end-of-text token behind y included

The first token is what a text begins with. A pair that is longer than the network's
context loses the beginning of its prompt, never a part of its answer: the network then
sees the last ``context`` tokens, as in the middle of a text.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from certus.language.base import end_of
from certus.language.tokens.pieces import as_bytes
from certus.language.tokens.tokenizers import ByteTokenizer
from certus.neural_network.batches import Batch
from certus.typing import Array, Texts

RAW = str | bytes | bytearray | memoryview


class AnswerPairs:
    """Pairs of a prompt and an answer as tokens, fetched as padded batches.

    Parameters
    ----------
    prompts, answers : list of int array
        Their tokens, without end-of-text tokens.
    end : int
        The end-of-text token.
    context : int
        Most tokens that the network sees at once.
    ended : bool or list of bool, default=True
        Whether an answer is over; False for one that ran into a limit of tokens, which
        is not followed by an end-of-text token.

    Attributes
    ----------
    streams : list of int64 array
        What the network sees and the last token behind it.
    begins : int array
        Place of the first token of the answer in its stream; of the end-of-text token
        behind it where the answer is empty.
    cut : bool array
        Whether the beginning of the prompt was left out.
    lengths : int64 Tensor
        Tokens that the network sees.
    """

    def __init__(
        self,
        prompts: Sequence[Array],
        answers: Sequence[Array],
        end: int,
        context: int,
        ended: bool | Sequence[bool] = True,
    ) -> None:
        over = [ended] * len(prompts) if isinstance(ended, bool) else list(ended)
        self.end, self.streams = end, []
        begins, cut = [], []
        for i, (x, y) in enumerate(zip(prompts, answers, strict=True)):
            wanted = len(y) + bool(over[i])
            if not 1 <= wanted <= context:
                raise ValueError(
                    f"Answer {i} must have at least one token and fit into the context "
                    f"of {context} tokens with the end-of-text token behind it, got "
                    f"{wanted}. Shorten it, or take a base with a longer context."
                )
            parts: list[Any] = [[end], x, y, [end] if over[i] else []]
            stream = np.concatenate(parts).astype(np.int64)
            many = max(0, len(stream) - 1 - context)
            self.streams.append(stream[many:])
            begins.append(1 + len(x) - many)
            cut.append(many > 0)
        self.begins = np.array(begins, dtype=np.int64)
        self.cut = np.array(cut, dtype=bool)
        sizes = [len(stream) - 1 for stream in self.streams]
        self.lengths = torch.tensor(sizes, dtype=torch.int64)

    def __len__(self) -> int:
        """How many pairs there are."""
        return len(self.streams)

    def fetch(self, rows: Any, device: torch.device | str = "cpu") -> Batch:
        """Some pairs, padded behind their ends with end-of-text tokens.

        Returns
        -------
        Batch
            ``inputs[0]`` (rows, time): the tokens that the network sees. ``y`` (rows,
            time): the token behind each. ``extra`` (rows, time): True where that token
            belongs to the answer, its end included. ``s`` (rows,): how many do.
        """
        chosen = np.asarray(torch.as_tensor(rows).cpu()).ravel()
        longest = max((int(self.lengths[i]) for i in chosen), default=0)
        seen = torch.full((len(chosen), longest), self.end, dtype=torch.int64)
        wanted, mask = seen.clone(), torch.zeros_like(seen, dtype=torch.bool)
        for k, i in enumerate(chosen):
            stream, n = torch.from_numpy(self.streams[i]), len(self.streams[i]) - 1
            seen[k, :n], wanted[k, :n] = stream[:-1], stream[1:]
            mask[k, self.begins[i] - 1 : n] = True
        counts = mask.sum(dim=1).to(torch.float32)
        inputs = (seen.to(device),)
        return Batch(inputs, wanted.to(device), counts.to(device), mask.to(device))


def encode_pairs(
    tokenizer: ByteTokenizer,
    prompts: Texts,
    answers: Texts,
    context: int,
    *,
    empty: bool = False,
    names: tuple[str, str] = ("prompts", "answers"),
) -> AnswerPairs:
    """Texts as pairs of tokens, or a sentence about what is wrong with them.

    Parameters
    ----------
    tokenizer : ByteTokenizer or BPETokenizer
        That of the base.
    prompts, answers : list of str or bytes
        As many answers as prompts.
    context : int
        Most tokens that the network sees at once.
    empty : bool, default=False
        Whether an answer may be empty.
    names : (str, str)
        What messages call the two lists.
    """
    x, y = read_texts(prompts, names[0]), read_texts(answers, names[1])
    if len(x) != len(y):
        raise ValueError(
            f"{names[0]} and {names[1]} must have the same length, got {len(x)} and "
            f"{len(y)}."
        )
    if not x:
        raise ValueError(f"{names[0]} must hold at least one text, got none.")
    bare = [i for i, text in enumerate(y) if not text]
    if bare and not empty:
        raise ValueError(
            f"{names[1]} must not be empty texts, got {len(bare)} of them, the first "
            f"in row {bare[0]}. Leave these rows out."
        )
    one, other = ([tokenizer.encode(text) for text in texts] for texts in (x, y))
    return AnswerPairs(one, other, end_of(tokenizer), context)


def read_texts(texts: Any, name: str) -> list[bytes]:
    """A list of texts as bytes; one text alone is refused."""
    if isinstance(texts, RAW) or not hasattr(texts, "__iter__"):
        raise TypeError(
            f"{name} must be a list of texts, got {type(texts).__name__}. Put a single "
            "text into a list."
        )
    found = []
    for i, text in enumerate(texts):
        if not isinstance(text, RAW):
            raise TypeError(
                f"{name} must hold texts, got {type(text).__name__} in row {i}."
            )
        found.append(as_bytes(text))
    return found


def require_different(chosen: Texts, rejected: Texts) -> None:
    """Raise where both answers of a pair are equal: they express no preference."""
    one, other = read_texts(chosen, "chosen"), read_texts(rejected, "rejected")
    same = [i for i, (a, b) in enumerate(zip(one, other)) if a == b]
    if same:
        raise ValueError(
            f"chosen and rejected must differ, got {len(same)} equal pairs, the first "
            f"in row {same[0]}. Leave these rows out: they express no preference."
        )


def require_fitting(pairs: AnswerPairs, context: int) -> None:
    """Raise where a prompt had to be cut, for objectives that need all of it."""
    if pairs.cut.any():
        raise ValueError(
            "A prompt and its answer must fit into the base's context of "
            f"{context} tokens, got {int(pairs.cut.sum())} longer pairs, the first in "
            f"row {int(pairs.cut.argmax())}. Shorten these prompts."
        )


# -- probabilities --------------------------------------------------------------------


class AnswerScores(NamedTuple):
    """Scores at the places of answers, those of all pairs behind each other."""

    scores: Tensor  # (tokens of answers, n_tokens)
    wanted: Tensor  # (tokens of answers,): the token that the answer has there
    row: Tensor  # (tokens of answers,): the pair it belongs to


def answer_scores(network: Any, batch: Any) -> AnswerScores:
    """Scores of all tokens wherever the answer has one; with gradients.

    ``batch`` is what :meth:`AnswerPairs.fetch` gives, or has its inputs, y and extra.
    """
    mask = batch.extra
    states, _ = network.states(*batch.inputs)
    return AnswerScores(
        network.scores(states[mask]), batch.y[mask], mask.nonzero()[:, 0]
    )


def token_costs(found: AnswerScores) -> Tensor:
    """−log p of each token of the answers, (tokens of answers,)."""
    return F.cross_entropy(found.scores, found.wanted, reduction="none")


def summed(values: Tensor, row: Tensor, n: int) -> Tensor:
    """The sum over the tokens of each of n pairs."""
    zero = torch.zeros(n, dtype=values.dtype, device=values.device)
    return zero.index_add(0, row, values)


def answer_log_probs(network: Any, batch: Batch) -> Tensor:
    """Log p(answer | prompt) of each pair of a batch, (rows,); with gradients."""
    found = answer_scores(network, batch)
    return -summed(token_costs(found), found.row, len(batch.y))
