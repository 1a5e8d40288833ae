"""Byte-pair encoding as its definition says, slow and without our code.

Rules as regular expressions of Python: a text is first written with one character for
each kind, as Python's ``re`` does not know ``\\p{L}``.
"""

from __future__ import annotations

import heapq
import itertools
import random
import re
import unicodedata
from collections import Counter
from collections.abc import Mapping, Sequence

WHITE = "\t\n\x0b\x0c\r \x85\xa0\u1680\u2028\u2029\u202f\u205f\u3000"
WHITE += "".join(map(chr, range(0x2000, 0x200B)))
_L, _N, _S = "[a-zA-Zжſ]", "[0-9٣]", "[\t\n\x0b\x0c\r \u3000]"
_NOT_SLN = "[^a-zA-Zжſ0-9٣\t\n\x0b\x0c\r \u3000]"
_NOT_BREAK_LN = "[^\r\na-zA-Zжſ0-9٣]"
PATTERNS = {
    "gpt2": f"'s|'t|'re|'ve|'m|'ll|'d| ?{_L}+| ?{_N}+| ?{_NOT_SLN}+|"
    f"{_S}+(?!{_S.replace('[', '[^')})|{_S}+",
    "cl100k": f"(?i:'s|'t|'re|'ve|'m|'ll|'d)|{_NOT_BREAK_LN}?{_L}+|{_N}{{1,3}}|"
    f" ?{_NOT_SLN}+[\r\n]*|{_S}*[\r\n]+|{_S}+(?!{_S.replace('[', '[^')})|{_S}+",
}
PATTERNS["cl100k_end"] = PATTERNS["cl100k"].replace(
    f"|{_S}*[\r\n]+", f"|{_S}+\\Z|{_S}*[\r\n]+"
)
#: Characters on which the rules differ, or might.
TRICKY = list(
    " \n\r\t'’sStTmMdDrReEvVlLſ019a!.,-_éж中٣½Ⅷ\x85\xa0\u3000\u200b\u2028\x1c\0"
)


def _kind(c: str) -> str:
    if c in WHITE:
        return c if c < "\x7f" else "\u3000"
    if c < "\x7f" or c == "ſ":
        return c
    category = unicodedata.category(c)[0]
    return {"L": "ж", "N": "٣"}.get(category, "※")


def split(text: str, pattern: str) -> list[str]:
    """The pieces of a text."""
    kinds = "".join(map(_kind, text))
    found = list(re.finditer(PATTERNS[pattern], kinds))
    assert sum(m.end() - m.start() for m in found) == len(text)
    return [text[m.start() : m.end()] for m in found]


def tricky_texts(n: int, seed: int = 0) -> list[str]:
    rng = random.Random(seed)
    return ["".join(rng.choices(TRICKY, k=rng.randrange(1, 25))) for _ in range(n)]


def join(
    ids: Sequence[int], merges: Mapping[tuple[int, int], tuple[int, int]]
) -> list[int]:
    """Apply merges, (left, right) → (rank, made), the leftmost of the lowest rank."""
    ids = list(ids)
    while True:
        known = [
            (merges[pair][0], i)
            for i, pair in enumerate(itertools.pairwise(ids))
            if pair in merges
        ]
        if not known:
            return ids
        i = min(known)[1]
        ids[i : i + 2] = [merges[ids[i], ids[i + 1]][1]]


def by_ranks(piece: bytes, ranks: Mapping[bytes, int]) -> list[int]:
    """tiktoken's rule: a whole piece, or any neighbours whose bytes are a token."""
    if piece in ranks:
        return [ranks[piece]]
    parts = [piece[i : i + 1] for i in range(len(piece))]
    while True:
        known = [
            (ranks[a + b], i)
            for i, (a, b) in enumerate(itertools.pairwise(parts))
            if a + b in ranks
        ]
        if not known:
            return [ranks[part] for part in parts]
        i = min(known)[1]
        parts[i : i + 2] = [parts[i] + parts[i + 1]]


def learn(texts: Sequence[str], pattern: str, n_merges: int) -> list[tuple[int, int]]:
    """The pairs that are joined: the most frequent, of equal ones the smallest."""
    words = Counter(piece for text in texts for piece in split(text, pattern))
    pieces = {word.encode(): often for word, often in words.items()}
    return [(a, b) for a, b, _ in learn_pieces(pieces, n_merges)]


def learn_pieces(
    pieces: Mapping[bytes, int], n_tokens: int
) -> list[tuple[int, int, int]]:
    """Left, right and what they become: bytes that are a token already become that."""
    parts = {piece: list(piece) for piece in pieces}
    tokens, merges = [bytes([b]) for b in range(256)], []
    while len(tokens) < 256 + n_tokens:
        often: Counter[tuple[int, int]] = Counter()
        for piece, ids in parts.items():
            for pair in itertools.pairwise(ids):
                often[pair] += pieces[piece]
        best = min(often, key=lambda pair: (-often[pair], pair), default=None)
        if best is None or often[best] < 2:
            break
        made = tokens[best[0]] + tokens[best[1]]
        if made not in tokens:
            tokens.append(made)
        merges.append((*best, tokens.index(made)))
        for piece, ids in parts.items():
            parts[piece] = join(ids, {best: (0, merges[-1][2])})
    return merges


def join_long(
    ids: Sequence[int], merges: Mapping[tuple[int, int], tuple[int, int]]
) -> list[int]:
    """As :func:`join`, with a heap of (rank, place), for texts of any length."""
    tokens: list[int | None] = list(ids)
    after = [*range(1, len(tokens)), -1]
    before = list(range(-1, len(tokens) - 1))

    def rank(i: int) -> int | None:
        if i < 0 or tokens[i] is None or after[i] < 0:
            return None
        found = merges.get((tokens[i], tokens[after[i]]))  # type: ignore[arg-type]
        return None if found is None else found[0]

    heap = [(r, i) for i in range(len(tokens)) if (r := rank(i)) is not None]
    heapq.heapify(heap)
    while heap:
        r, i = heapq.heappop(heap)
        if rank(i) != r:
            continue
        j = after[i]
        tokens[i], tokens[j] = merges[tokens[i], tokens[j]][1], None  # type: ignore[index]
        after[i] = after[j]
        if after[j] >= 0:
            before[after[j]] = i
        for k in (before[i], i):
            if (found := rank(k)) is not None:
                heapq.heappush(heap, (found, k))
    return [token for token in tokens if token is not None]
