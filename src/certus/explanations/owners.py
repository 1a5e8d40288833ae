"""Which column of the user's table each encoded column comes from.

Scaling, imputation and one-hot encoding treat each column by itself. Then a mixed row
can be encoded by mixing encoded rows, and the contributions of encoded columns belong
to the column that they come from. Where an encoder mixes columns (PCA, averages of the
target), None is returned and mixed rows are encoded one by one.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from certus.typing import Array

#: Transformers of scikit-learn that keep one column for each column.
SAME = {
    "StandardScaler",
    "MinMaxScaler",
    "MaxAbsScaler",
    "RobustScaler",
    "QuantileTransformer",
    "PowerTransformer",
    "OrdinalEncoder",
}


def owners_of(encoder: Any, d: int, width: int) -> Array | None:
    """The column of each of ``width`` encoded columns; None where columns are mixed."""
    found = _owners(encoder, d)
    return found if found is not None and len(found) == width else None


def _owners(encoder: Any, d: int) -> Array | None:
    name = type(encoder).__name__
    if encoder is None or encoder == "passthrough" or name in SAME:
        return np.arange(d)
    if hasattr(encoder, "plans_"):
        return _of_table_encoder(encoder)
    if name == "Pipeline":
        return _of_steps(encoder, d)
    if name == "ColumnTransformer":
        return _of_column_transformer(encoder, d)
    if name == "SimpleImputer":
        return _of_imputer(encoder, d)
    if name == "OneHotEncoder":
        return _of_one_hot(encoder, d)
    return None


def _of_table_encoder(encoder: Any) -> Array | None:
    from certus.tables.plan import feature_labels, is_used

    plans = encoder.plans_
    if any("statistics" in plan for plan in plans):
        return None
    counts = [len(feature_labels(plan)) if is_used(plan) else 0 for plan in plans]
    return np.repeat(np.arange(len(plans)), counts)


def _of_steps(pipeline: Any, d: int) -> Array | None:
    found = np.arange(d)
    for _, step in pipeline.steps:
        more = _owners(step, len(found))
        if more is None:
            return None
        found = found[more]
    return found


def _of_imputer(encoder: Any, d: int) -> Array | None:
    if getattr(encoder, "add_indicator", False):
        return None
    seen = np.asarray(encoder.statistics_)
    if getattr(encoder, "keep_empty_features", False) or seen.dtype.kind != "f":
        return np.arange(d)
    return np.flatnonzero(~np.isnan(seen))


def _of_one_hot(encoder: Any, d: int) -> Array | None:
    rare = getattr(encoder, "infrequent_categories_", None)
    if rare is not None and any(each is not None for each in rare):
        return None
    dropped = encoder.drop_idx_
    counts = [len(levels) for levels in encoder.categories_]
    if dropped is not None:
        counts = [c - (i is not None) for c, i in zip(counts, dropped)]
    return np.repeat(np.arange(d), counts)


def _of_column_transformer(encoder: Any, d: int) -> Array | None:
    names = [str(name) for name in getattr(encoder, "feature_names_in_", ())]
    parts = []
    for name, step, columns in encoder.transformers_:
        where = encoder.output_indices_[name]
        if where.stop == where.start:
            continue
        places = _places(columns, names, d)
        inner = None if places is None else _owners(step, len(places))
        if places is None or inner is None or len(inner) != where.stop - where.start:
            return None
        parts.append((where.start, places[inner]))
    parts.sort(key=lambda part: part[0])
    return np.concatenate([found for _, found in parts]) if parts else None


def _places(columns: Any, names: list[str], d: int) -> Array | None:
    """Numbers of the columns that a transformer was given."""
    if isinstance(columns, slice):
        return np.arange(d)[columns] if not isinstance(columns.start, str) else None
    columns = [columns] if np.ndim(columns) == 0 else list(columns)
    if columns and all(isinstance(each, bool | np.bool_) for each in columns):
        return np.flatnonzero(columns)
    if all(isinstance(each, str) for each in columns):
        return np.array([names.index(each) for each in columns], dtype=int)
    return np.arange(d)[np.asarray(columns, dtype=int)]
