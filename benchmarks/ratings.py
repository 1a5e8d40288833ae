"""Rows for matrix factorisation: explicit ratings and implicit counts."""

from benchmarks.rows import Row

ROWS: tuple[Row, ...] = ()
