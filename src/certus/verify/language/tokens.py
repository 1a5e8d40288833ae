"""Tokenisers: every byte string comes back, and which tokens no text can have.

A tokeniser is data: the bytes of each token, and merges (left, right) → made in the
order of their ranks. Encoding cuts a text anywhere, writes each byte as the first token
that has just this byte, and joins neighbours by merges. Decoding writes the bytes of
the tokens behind each other. If

    each of the 256 bytes has a token,  bytes(made) = bytes(left) + bytes(right)

for each merge, no step changes the bytes that stand for the text: it comes back, in
whatever order the merges are applied and wherever it was cut. Both are counted here,
without rounding.

A token that the merges, lowest rank first, do not make from its own bytes is made from
no text: the steps inside of a token's bytes are the same in every text.
"""

from __future__ import annotations

import math
from functools import cache, partial
from itertools import pairwise
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from certus.certificate import Claim
from certus.verify import stating
from certus.verify.deciding import Number, proved, verdict
from certus.verify.stating import Checked, Given

#: Tokens up to which level "quick" looks for those that no text can have.
QUICK = 16_384
#: Tokens that a claim lists, and the longest that it examines, in bytes.
LISTED, LONGEST = 5, 512
_FIX = "restore the vocabulary from its file, or fit again"


class Statement(NamedTuple):
    """The bytes of each token and the merges; ids that are special."""

    tokens: list[bytes]
    merges: list[list[int]]
    special: frozenset[int]
    whole_pieces: bool


def _stated(learnt: bool, model: Any) -> Statement:
    cls: Any = stating.known_class(model, READERS)
    for name in ("encode", "decode_bytes"):
        if getattr(type(model), name) is not getattr(cls, name):
            raise stating.Refusal(f"{type(model).__name__} overrides {name}")
    if not learnt:
        n = len(tuple(model.special_tokens))
        single = [bytes([b]) for b in range(256)] + [b""] * n
        return Statement(single, [], frozenset(range(256, 256 + n)), False)
    tokens, special = model.tokens_, model.special_
    merges = np.asarray(model.merges_)
    sound = isinstance(tokens, list) and all(isinstance(t, bytes) for t in tokens)
    stating.require(sound, "its tokens are not bytes")
    whole = merges.dtype.kind in "iu" and merges.ndim == 2 and merges.shape[1] == 3
    stating.require(whole, "its merges are not rows of three whole numbers")
    inside = merges.size == 0 or (merges.min() >= 0 and merges.max() < len(tokens))
    stating.require(bool(inside), "a merge has a token that is not in the vocabulary")
    named = isinstance(special, dict) and all(
        isinstance(i, int) and 0 <= i < len(tokens) and tokens[i] == b""
        for i in special.values()
    )
    stating.require(named, "a special token stands for bytes")
    return Statement(
        tokens, merges.tolist(), frozenset(special.values()), bool(model.whole_pieces_)
    )


READERS: dict[str, stating.Reader] = {
    "ByteTokenizer": partial(_stated, False),
    "BPETokenizer": partial(_stated, True),
}


def check(model: Any, stated: Statement, given: Given) -> Checked:
    """Count what could change bytes; encode each pair of bytes, and texts if given."""
    claims = [_roundtrip(model, stated)]
    if given.X is not None:
        claims.append(_restored(model, given.X))
    learnt = any(len(token) > 1 for token in stated.tokens)
    if learnt and (given.level == "full" or len(stated.tokens) <= QUICK):
        claims.append(_unreachable(stated))
    # A vocabulary has no data: it is always the one of the fit, or was changed since.
    marks = {"shape": [len(stated.tokens)], "dtype": "tokens", "x": 0.0, "x_scale": 1.0}
    return claims, verdict(claims), marks | {"y": 0.0, "weight": 1.0}


def _roundtrip(model: Any, stated: Statement) -> Claim:
    tokens = stated.tokens
    have = set(tokens)
    without = sum(bytes([b]) not in have for b in range(256))
    changed = sum(tokens[a] + tokens[b] != tokens[c] for a, b, c in stated.merges)
    lost = 0
    if not without:  # else the model cannot encode them
        lost = int(_comes_back(model, _pairs()) != _pairs())
    return proved(
        *("roundtrip", Number(float(without + changed + lost)), 0.0),
        "decode(encode(b)) = b for every byte string b: all 256 bytes are tokens, and "
        f"none of the {len(stated.merges):,} merges changes a byte",
        missed=f"texts are lost: {without} bytes have no token, {changed} merges "
        "change bytes" + ", and a trial text did not come back" * lost,
        objective="number of bytes without a token, of merges that change bytes, and "
        "of trial texts (each pair of bytes) that do not come back",
        theorem="cutting and joining keep the bytes that the tokens stand for; names "
        "of special tokens in a text are read as text",
        fix=_FIX,
    )


@cache
def _pairs() -> bytes:
    """A text that holds each pair of bytes: i, and i before each larger j."""
    rows = (np.insert(np.arange(i + 1, 256), range(255 - i), i) for i in range(256))
    numbers = np.concatenate([[i, *row] for i, row in enumerate(rows)] + [[0]])
    return bytes(numbers.astype(np.uint8))


def _comes_back(model: Any, data: bytes) -> bytes:
    return bytes(model.decode_bytes(model.encode(data)))


def _restored(model: Any, X: Any) -> Claim:
    one = isinstance(X, str | bytes | bytearray | memoryview | PathLike)
    texts = [_bytes_of(text) for text in ([X] if one else X)]
    lost = sum(_comes_back(model, text) != text for text in texts)
    size = sum(map(len, texts))
    return proved(
        *("text_restored", Number(float(lost)), 0.0),
        f"all {size:,} bytes of {len(texts):,} text(s) came back from their tokens",
        missed=f"{lost:,} of {len(texts):,} texts did not come back",
        objective="number of texts whose tokens stand for other bytes",
        theorem="encoded and decoded by the model, and compared byte by byte",
        fix=_FIX,
    )


def _bytes_of(text: Any) -> bytes:
    if isinstance(text, PathLike):
        return Path(text).read_bytes()
    return text.encode() if isinstance(text, str) else bytes(text)


# -- tokens that no text has ------------------------------------------------------


def _unreachable(stated: Statement) -> Claim:
    # Backwards, as the first of two equal ones counts.
    tokens = [*enumerate(stated.tokens)][::-1]
    single = {token[0]: i for i, token in tokens if len(token) == 1}
    ranked = [*enumerate(stated.merges)][::-1]
    merges = {(a, b): (float(rank), c) for rank, (a, b, c) in ranked}
    read = [i for i, token in enumerate(stated.tokens) if 0 < len(token) <= LONGEST]
    never = []
    for i in read:
        ids = [single.get(b, -1) for b in stated.tokens[i]]
        if (ids if len(ids) == 1 else _joined(ids, merges)) != [i]:
            never.append(i)
    few = ", ".join(repr(stated.tokens[i]) for i in never[:LISTED])
    few += ", …" if len(never) > LISTED else ""
    unless = ", except as a whole piece" if stated.whole_pieces else ""
    total = len(read)
    longer = sum(len(token) > LONGEST for token in stated.tokens)
    note = (f"{longer} of more than {LONGEST} bytes not examined",) if longer else ()
    fine = f"the merges make each of the {total:,} tokens from its bytes"
    said = f"{len(never):,} of {total:,} tokens occur in no text{unless}: {few}"
    return proved(
        *("unreachable_tokens", Number(float(len(never))), None),
        said if never else fine,
        objective="number of tokens that the merges do not make from their own bytes",
        theorem="the merges inside of a token's bytes are the same in every text",
        assumptions=note,
    )


def _joined(
    ids: list[int], merges: dict[tuple[int, int], tuple[float, int]]
) -> list[int]:
    """Join the leftmost pair of the lowest rank, until no pair has one."""
    none = (math.inf, -1)
    found = [merges.get(pair, none) for pair in pairwise(ids)]
    while found:
        best = min(found)
        if best is none:
            break
        at = found.index(best)
        ids[at : at + 2] = [best[1]]
        del found[at]
        for i in (at - 1, at):
            if 0 <= i < len(found):
                found[i] = merges.get((ids[i], ids[i + 1]), none)
    return ids
