"""Groups and times of rows as numbers: by them, rows are divided into parts.

A group becomes a number that depends on its content alone, so that its rows go together
wherever they are read. A time becomes a float, which says what was before.
"""

from __future__ import annotations

import hashlib

import numpy as np

from certus.typing import Array, ArrayLike


def one_of(groups: object, time: object) -> str:
    """Which of the two was given; both are an error."""
    if groups is not None and time is not None:
        raise ValueError("groups and time cannot be used together. Choose one.")
    return "time" if time is not None else "groups" if groups is not None else ""


def mark_rows(values: ArrayLike, role: str, where: str) -> Array:
    """Numbers for the groups, or the times, of rows; ``where`` names the column.

    Examples
    --------
    >>> from certus.blocks.marks import mark_rows
    >>> a, b, c = mark_rows(["ann", "ben", "ann"], "groups", "name")
    >>> bool(a == c != b)
    True
    """
    found = np.asarray(values)
    if found.dtype.kind in "mM":
        if np.isnat(found).any():
            raise ValueError(_missing(role, where))
        found = found.astype(f"{found.dtype.str[1:2]}8[us]").astype(np.int64)
    if found.dtype.kind in "fiub":
        numbers = found.astype(np.float64) + 0.0  # −0 is 0
        if not np.isfinite(numbers).all():
            raise ValueError(_missing(role, where))
        return numbers if role == "time" else mixed(numbers.view(np.uint64))
    if role == "time":
        raise ValueError(f"{where} must hold dates or numbers to order the rows.")
    if any(each is None or each != each for each in found.tolist()):
        raise ValueError(_missing(role, where))
    names, which = np.unique(found.astype(str), return_inverse=True)
    return np.array([_of_text(name) for name in names.tolist()], np.uint64)[which]


def _of_text(name: str) -> int:
    digest = hashlib.blake2b(name.encode("utf-8", "surrogatepass"), digest_size=8)
    return int.from_bytes(digest.digest(), "little")


def _missing(role: str, where: str) -> str:
    what = "group" if role == "groups" else "time"
    return f"{where} has rows without a {what}. Fill them first, or drop those rows."


def mixed(x: Array) -> Array:
    """Bits of 64-bit numbers, spread evenly (SplitMix64)."""
    with np.errstate(over="ignore"):
        x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return np.asarray(x ^ (x >> np.uint64(31)))
