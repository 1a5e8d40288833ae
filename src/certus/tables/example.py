"""The table that comes with certus: 442 patients, disease progression in a year.

It serves ``certus fit`` without a file, the demonstration and the documentation.
The source is noted next to the data.
"""

from __future__ import annotations

from importlib import resources

import polars as pl

__all__ = ["load_example"]


def load_example() -> tuple[pl.DataFrame, str]:
    """Return the bundled diabetes table and the name of its target column.

    The ten measurements are in their original units. The column ``sex`` holds the
    codes "1" and "2" of the source, which does not say what they stand for.

    Returns
    -------
    frame : polars.DataFrame
        442 rows, 11 columns.
    target : str
        ``"progression"``, a measure of the disease one year after the baseline.

    Examples
    --------
    >>> from certus.tables import load_example
    >>> frame, target = load_example()
    >>> frame.shape, target
    ((442, 11), 'progression')
    """
    file = resources.files("certus.tables") / "data" / "diabetes.csv"
    overrides = {"sex": pl.String}
    frame = pl.read_csv(
        file.read_bytes(), schema_overrides=overrides, infer_schema_length=None
    )
    return frame, "progression"
