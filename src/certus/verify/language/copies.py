"""What two texts have in common, byte for byte: runs of a given length.

All runs of m bytes get a 64-bit hash, by doubling: h₂ₖ(i) = h₍ₖ₎(i)·bᵏ + hₖ(i + k)
modulo 2⁶⁴. Equal runs have equal hashes, so a hash that the other text lacks proves
that it lacks the run; where hashes agree, the bytes are compared. Nothing is rounded.

A longest copy of m bytes is proved by its two places, and by the absence of any common
run of m + 1 bytes.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from certus.certificate import Claim
from certus.typing import Array
from certus.verify import deciding as bd
from certus.verify.deciding import Number

#: Bytes of the source that are hashed at a time, and bytes that are compared.
BLOCK, CELLS = 1 << 20, 1 << 24
BASES = (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB)


def hashes(data: Array, m: int, base: int) -> Array:
    """The hash of each run of m bytes; none if there are fewer."""
    if m > len(data):
        return np.zeros(0, np.uint64)
    power, width = np.uint64(base), 1
    part = data.astype(np.uint64) * np.uint64(0xD6E8FEB86659FD93) + np.uint64(base)
    whole, done = np.zeros(len(data) + 1, np.uint64), 0
    while True:  # the bits of m, the smallest first
        if m & width:
            n = len(data) - done - width + 1
            whole = whole[:n] * power + part[done : done + n]
            done += width
        if 2 * width > m:
            return whole
        part = part[:-width] * power + part[width:]
        power, width = np.uint64(int(power) ** 2 % 2**64), 2 * width


def occur(text: Array, sources: list[Array], m: int) -> Array:
    """Whether each run of m bytes of the text occurs in one of the sources."""
    n = max(0, len(text) - m + 1)
    if n == 0:
        return np.zeros(n, dtype=bool)
    for base in BASES:
        known, first, which = np.unique(
            hashes(text, m, base), return_index=True, return_inverse=True
        )
        found, chance = _look_up(text, sources, m, base, known, first)
        # Runs of the text that have one hash must be equal, where it was met.
        again = np.flatnonzero((found | chance)[which] & (first[which] != np.arange(n)))
        if _equal(text, again, text, first[which[again]], m).all():
            return np.asarray(found[which])
    raise ValueError("Different runs have the same hashes; change the text a bit.")


def _look_up(
    text: Array, sources: list[Array], m: int, base: int, known: Array, first: Array
) -> tuple[Array, Array]:
    """Which of the text's runs the sources have; and which hashes alone they have."""
    found, chance = np.zeros((2, len(known)), dtype=bool)
    for source, start in _blocks(sources, m):
        block = hashes(source[start : start + BLOCK + m - 1], m, base)
        place = np.minimum(np.searchsorted(known, block), len(known) - 1)
        at = np.flatnonzero((known[place] == block) & ~found[place])
        while at.size:  # the first place of each run; the next one if that was chance
            runs, some = np.unique(place[at], return_index=True)
            same = _equal(source, start + at[some], text, first[runs], m)
            found[runs[same]] = True
            chance[runs[~same]] = True
            at = np.delete(at, some)
            at = at[~found[place[at]]]
    return found, chance


def _blocks(sources: list[Array], m: int) -> Iterator[tuple[Array, int]]:
    for source in sources:
        for start in range(0, len(source) - m + 1, BLOCK):
            yield source, start


def _equal(a: Array, i: Array, b: Array, j: Array, m: int) -> Array:
    """Whether a[i : i + m] and b[j : j + m] are equal, for pairs of places."""
    same, step = np.ones(len(i), dtype=bool), max(1, CELLS // max(1, len(i)))
    for k in range(0, m, step):
        offsets = np.arange(k, min(m, k + step))
        same &= (a[i[:, None] + offsets] == b[j[:, None] + offsets]).all(axis=1)
    return same


def copy_claim(
    text: bytes, documents: list[bytes], found: tuple[int, int, int, int]
) -> Claim:
    """Whether the longest common run has this length, at these two places.

    Parameters
    ----------
    text : bytes
        What may hold a copy.
    documents : list of bytes
        What it may have been copied from.
    found : (length, start in text, start in document, document)
        What a search says.
    """
    m, i, j, which = found
    a, *sources = (np.frombuffer(each, np.uint8) for each in (text, *documents))
    there = m >= 0 and 0 <= which < len(documents) and i >= 0 and j >= 0
    there = there and len(text[i : i + m]) == m
    there = there and text[i : i + m] == documents[which][j : j + m]
    longer = bool(occur(a, sources, m + 1).any()) if there else True
    words: Any = {
        "objective": "longest run of bytes of the text that the source contains",
        "theorem": "both places were compared byte by byte, and no run of one byte "
        "more occurs in both",
    }
    if longer:
        return bd.refused(
            *("longest_copy", "the longest copy was not found"),
            *("report this as a mistake of certus",),
            **words,
        )
    told = f"the longest copy has {m:,} of {len(a):,} bytes"
    return bd.proved("longest_copy", Number(float(m)), None, told, **words)


def normalised(text: bytes) -> bytes:
    """White space of any kind and length as one space; none at the ends."""
    return b" ".join(text.split())


def contamination(
    rows: list[bytes], source: list[bytes], m: int
) -> tuple[Array, Array, Claim]:
    """Runs of m bytes of each row, how many of these the source has, and the claim."""
    rows = [normalised(row) for row in rows]
    text = np.frombuffer(b"\n".join(rows), np.uint8)  # no run crosses a line break
    other = np.frombuffer(b"\n".join(map(normalised, source)), np.uint8)
    sizes = np.array([len(row) for row in rows])
    runs = np.maximum(sizes - m + 1, 0)
    starts = np.concatenate([[0], np.cumsum(sizes + 1)])[:-1]
    sums = np.concatenate([[0], np.cumsum(occur(text, [other], m))])
    top = len(sums) - 1
    hits = sums[np.minimum(starts + runs, top)] - sums[np.minimum(starts, top)]
    hit, short = int(np.sum(hits > 0)), int(np.sum(runs == 0))
    told = f"{hit:,} of {len(rows):,} rows share {m} bytes with the training text"
    if short:
        rows_are = "row is" if short == 1 else "rows are"
        told += f"; {short:,} {rows_are} shorter and cannot be judged"
    claim = bd.proved(
        *("contamination", Number(hit / max(1, len(rows))), None, told),
        objective=f"share of rows with a run of {m} bytes that the training text "
        "contains; white space of any kind counts as one space",
        theorem="every run was looked up by its hash, and compared byte by byte",
    )
    return runs, hits, claim
