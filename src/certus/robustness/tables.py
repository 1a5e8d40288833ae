"""A model of a table as a model of its numeric columns; the other columns stay fixed.

    z = (numbers in their own units, everything else as encoded)

The attack changes the rows z: numbers may change; categories, dates, booleans and flags
of missing values stay fixed.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import narwhals as nw
import numpy as np
from sklearn.pipeline import Pipeline, make_pipeline

from certus.robustness.steps import ClippedStep, FormulaStep
from certus.tables import TableEncoder, TablePipeline
from certus.typing import Array, Fit, MatrixLike


class NumericTable(NamedTuple):
    """A table's numbers, and the rest as encoded, with the model of such rows."""

    model: Pipeline
    Z: Array
    fixed: Array  # of the entries of a row
    whole: Array  # rows without a gap among their numbers
    names: tuple[str, ...]  # columns that may change


def numbers_of_table(model: Fit, X: MatrixLike) -> NumericTable | None:
    """Numbers apart from other columns; None if the model is not of a table."""
    if not isinstance(model, TablePipeline) or type(model.encoder_) is not TableEncoder:
        return None
    encoded = model.encoder_.transform(X)
    E = encoded.toarray() if hasattr(encoded, "toarray") else np.asarray(encoded)
    scale, shift = np.ones(E.shape[1]), np.zeros(E.shape[1])
    fixed, whole = np.ones(E.shape[1], dtype=bool), np.ones(len(E), dtype=bool)
    labels = list(model.encoder_.get_feature_names_out())
    for plan in model.encoder_._used():
        if plan["kind"] != "number" or not plan["parts"] or plan.get("clock"):
            continue
        (part,) = plan["parts"]
        at = labels.index(plan["name"])
        scale[at] = 1 / (part["unit"] * part["spread"])
        shift[at] = -part["centre"] / part["spread"]
        fixed[at] = False
        whole &= ~_gaps(X, plan["name"])
    if fixed.all():
        raise ValueError(
            "no column holds numbers, so the size of a change is not defined."
        )
    if not whole.any():
        raise ValueError("every row has a missing value in a numeric column.")
    Z = (E - shift) / scale
    names = tuple(label for label, held in zip(labels, fixed) if not held)
    return NumericTable(
        make_pipeline(FormulaStep(ClippedStep(scale, shift)), model.estimator_),
        Z,
        fixed,
        whole,
        names,
    )


def _gaps(X: Any, name: str) -> Array:
    """Where a column of the table has no value."""
    frame = nw.from_native(X, pass_through=True)
    if not isinstance(frame, nw.DataFrame):
        return np.zeros(len(X), dtype=bool)
    column = frame[name]
    empty = column.is_null()
    if column.dtype.is_float():
        empty = empty | column.is_nan().fill_null(True)
    return empty.to_numpy()
