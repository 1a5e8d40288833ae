"""Byte-pair encoding as its definition says, slow and without our code.

Rules as regular expressions of Python: a text is first written with one character for
each kind, as Python's ``re`` does not know ``\\p{L}``.
"""

from __future__ import annotations

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
    parts = {word: list(word.encode()) for word in words}
    merges = []
    for made in range(256, 256 + n_merges):
        often: Counter[tuple[int, int]] = Counter()
        for word, ids in parts.items():
            for pair in itertools.pairwise(ids):
                often[pair] += words[word]
        if not often:
            break
        best = min(often, key=lambda pair: (-often[pair], pair))
        if often[best] < 2:
            break
        merges.append(best)
        for word, ids in parts.items():
            parts[word] = join(ids, {best: (0, made)})
    return merges
