"""Sequences of tokens: their numbers, their loss, and how many are right.

A sequence is a text, whose characters are its tokens, or a list or array of strings or
numbers. Those that occur in training make a vocabulary; a network sees their positions
in it. Targets are a table of them, each row ended by END.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Set
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from certus.neural_network.modules.seq2seq import END
from certus.typing import Array, MatrixLike
from certus.wording import shorten

#: Where a target is over.
NOTHING = -1


def read_sequences(X: MatrixLike, name: str = "X") -> list[Any]:
    """A list of sequences, each a str or a list of strings and numbers.

    Parameters
    ----------
    X : iterable
        Sequences; the rows of an array are some.
    name : str
        What messages call it.

    Examples
    --------
    >>> import numpy as np
    >>> from certus.neural_network.tokens import read_sequences
    >>> read_sequences(["abc", ["x", 1], np.arange(2), []])
    ['abc', ['x', 1], [0, 1], []]
    """
    if X is None:
        raise ValueError(f"{name} is missing: pass a list of sequences.")
    if isinstance(X, str | bytes):
        raise ValueError(f"{name} is a single string; pass a list of them, [text].")
    if isinstance(X, Mapping) or hasattr(X, "columns") or not isinstance(X, Iterable):
        raise ValueError(
            f"{name} is a {type(X).__name__}; pass a list of sequences, or the column "
            "that holds them."
        )
    return [_sequence(x, i, name) for i, x in enumerate(X)]


def _sequence(x: Any, i: int, name: str) -> Any:
    if isinstance(x, str):
        return str(x)
    # A set has no order, and an iterator is empty when the certificate reads it.
    odd = bytes | Mapping | Set | Iterator
    if isinstance(x, odd) or not isinstance(x, Iterable):
        raise ValueError(
            f"Sequence {i} of {name} is {shorten(repr(x))} ({type(x).__name__}); a "
            "sequence is a string, or a list of strings or numbers."
        )
    found = [token.item() if isinstance(token, np.generic) else token for token in x]
    for token in found:
        number = isinstance(token, int | float) and math.isfinite(token)
        if not number and not isinstance(token, str):
            raise ValueError(
                f"Sequence {i} of {name} holds {shorten(repr(token))}; tokens are "
                "strings or finite numbers."
            )
    return found


def tokens_of(sequences: list[Any]) -> list[Any]:
    """The different tokens: numbers, then strings, each in order.

    Examples
    --------
    >>> from certus.neural_network.tokens import tokens_of
    >>> tokens_of(["ba", [2, 1, "b"]])
    [1, 2, 'a', 'b']
    """
    found = {token for sequence in sequences for token in sequence}
    return sorted(found, key=lambda t: (1, 0, t) if isinstance(t, str) else (0, t, ""))


def numbered(
    sequences: list[Any], tokens: list[Any], first: int, unknown: int
) -> list[Array]:
    """Each token as its position among ``tokens``, counted from ``first``.

    Examples
    --------
    >>> from certus.neural_network.tokens import numbered
    >>> numbered(["abx"], ["a", "b"], first=2, unknown=1)
    [array([2, 3, 1])]
    """
    places = {token: first + i for i, token in enumerate(tokens)}
    return [
        np.array([places.get(token, unknown) for token in x], dtype=np.int64)
        for x in sequences
    ]


def token_loss(z: Tensor, y: Tensor, label_smoothing: float = 0.0) -> Tensor:
    """−log softmax(z) at y, its mean over the tokens of each row; −1 is none.

    Parameters
    ----------
    z : Tensor of shape (batch, steps, n_tokens)
        Scores.
    y : Tensor of shape (batch, steps)
        Token numbers, the first of each row no −1.
    label_smoothing : float
        Share of each target that is spread over all tokens.
    """
    losses = F.cross_entropy(
        z.transpose(1, 2),
        y,
        reduction="none",
        ignore_index=NOTHING,
        label_smoothing=label_smoothing,
    )
    return losses.sum(dim=1) / (y >= 0).sum(dim=1)


def ended(numbers: list[Array]) -> Tensor:
    """Targets as a table: their tokens, the end, and nothing beyond it."""
    longest = max(map(len, numbers), default=0)
    table = torch.full((len(numbers), longest + 1), NOTHING)
    for i, codes in enumerate(numbers):
        # An unknown token has no number and becomes an end; callers know which.
        table[i, : len(codes)] = torch.as_tensor(codes).clamp(min=END)
        table[i, len(codes)] = END
    return table


def trimmed(y: Tensor) -> Tensor:
    """Targets without the columns that no row of them needs."""
    longest = int((y >= 0).sum(dim=1).max()) if len(y) else 0
    return y[:, :longest]


def lists(tokens: Tensor) -> list[Array]:
    """The tokens of each row up to its end."""
    table = tokens.cpu().numpy()
    over = np.column_stack([table <= END, np.ones(len(table), dtype=bool)])
    return [row[:end] for row, end in zip(table, over.argmax(axis=1))]


def agreement(found: list[Any], true: list[Any]) -> tuple[Array, Array]:
    """Tokens that agree in each pair, and the length of its longer sequence."""
    right = [sum(a == b for a, b in zip(f, t)) for f, t in zip(found, true)]
    asked = [max(len(f), len(t)) for f, t in zip(found, true)]
    return np.array(right, dtype=float), np.array(asked, dtype=float)


def accuracy(right: Array, asked: Array, s: Array) -> float:
    """The share of tokens that agree, pairs weighted by s; 1 where none is asked."""
    total = float(s @ asked)
    return float(s @ right) / total if total else 1.0
