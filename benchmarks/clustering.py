"""Rows for k-means and Gaussian mixtures."""

from benchmarks.rows import Row

ROWS: tuple[Row, ...] = ()
