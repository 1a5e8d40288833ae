"""Rows for principal components, truncated SVD and factor analysis."""

from benchmarks.rows import Row

ROWS: tuple[Row, ...] = ()
