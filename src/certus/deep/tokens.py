"""Sequences of tokens and the numbers of tokens.

A sequence is a text, whose characters are its tokens, or a list or array of strings or
numbers. Those that occur in training make a vocabulary; a network sees their positions
in it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from certus.wording import shorten

Array = np.ndarray[Any, np.dtype[Any]]


def read_sequences(X: Any, name: str = "X") -> list[Any]:
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
    >>> from certus.deep.tokens import read_sequences
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
    if isinstance(x, bytes | Mapping) or not isinstance(x, Iterable):
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
    >>> from certus.deep.tokens import tokens_of
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
    >>> from certus.deep.tokens import numbered
    >>> numbered(["abx"], ["a", "b"], first=2, unknown=1)
    [array([2, 3, 1])]
    """
    places = {token: first + i for i, token in enumerate(tokens)}
    return [
        np.array([places.get(token, unknown) for token in x], dtype=np.int64)
        for x in sequences
    ]
