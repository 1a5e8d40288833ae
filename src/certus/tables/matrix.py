"""Encoded columns side by side: one dense or sparse matrix, and names for its columns.

Dense matrices are in Fortran order. Sparse ones are written entry by entry as CSR and
are never dense in between.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
from scipy import sparse

from certus.tables.apply import EncodedColumns

__all__ = ["dense_matrix", "distinct", "sparse_matrix"]


def dense_matrix(encoded: list[EncodedColumns], widths: list[int], n: int) -> Any:
    """Fill a matrix of zeros column by column."""
    # Fortran order: every column is written, and later read, in one run.
    Z = np.zeros((n, sum(widths)), order="F")
    start = 0
    for block, width in zip(encoded, widths):
        for offset, values in enumerate(block.dense):
            Z[:, start + offset] = values
        if block.codes is not None:
            rows = np.flatnonzero(block.codes >= 0)
            Z[rows, start + block.codes[rows]] = 1.0
        if block.wide is not None:
            Z[:, start : start + width] = block.wide.toarray()
        start += width
    return Z


def sparse_matrix(encoded: list[EncodedColumns], widths: list[int], n: int) -> Any:
    """One entry per row for each dense column and each category, then no zeros."""
    if any(block.wide is not None for block in encoded):
        return _beside_terms(encoded, widths, n)
    entries = sum(len(b.dense) + (b.codes is not None) for b in encoded)
    data = np.empty((n, entries))
    indices = np.zeros((n, entries), dtype=np.int32)
    start = at = 0
    for block, width in zip(encoded, widths):
        for offset, values in enumerate(block.dense):
            data[:, at] = values
            indices[:, at] = start + offset
            at += 1
        if block.codes is not None:
            data[:, at] = block.codes >= 0
            indices[:, at] = start + np.maximum(block.codes, 0)
            at += 1
        start += width
    pointers = np.arange(n + 1, dtype=np.int64) * entries
    shape = (n, sum(widths))
    Z = sparse.csr_matrix((data.ravel(), indices.ravel(), pointers), shape=shape)
    Z.eliminate_zeros()
    return Z


def _beside_terms(encoded: list[EncodedColumns], widths: list[int], n: int) -> Any:
    """The columns between texts as one block each, so that their order is kept."""
    pieces: list[Any] = []
    run: list[EncodedColumns] = []
    wide: list[int] = []
    for block, width in zip(encoded, widths):
        if block.wide is None:
            run.append(block)
            wide.append(width)
            continue
        pieces += [sparse_matrix(run, wide, n)] * bool(run) + [block.wide]
        run, wide = [], []
    pieces += [sparse_matrix(run, wide, n)] * bool(run)
    return sparse.hstack(pieces, format="csr")


def distinct(labels: list[str]) -> list[str]:
    """Number repeated labels: a column may be called like a level of another."""
    seen: Counter[str] = Counter()
    taken = set(labels)
    result = []
    for label in labels:
        seen[label] += 1
        if seen[label] > 1:
            candidate = f"{label} ({seen[label]})"
            while candidate in taken:
                seen[label] += 1
                candidate = f"{label} ({seen[label]})"
            taken.add(candidate)
            label = candidate
        result.append(label)
    return result
