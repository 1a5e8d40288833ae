"""Rows for word vectors and text classification."""

from benchmarks.rows import Row

ROWS: tuple[Row, ...] = ()
