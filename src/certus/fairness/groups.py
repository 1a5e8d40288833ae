"""Read and check decisions, true labels, scores and the groups of rows.

A missing value of the attribute makes a group of its own, ``None``: leaving such rows
out would hide what happens to people whose attribute is not known.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from certus.typing import Array, ArrayLike, MatrixLike

_GROUPS = 500  # more groups cannot be compared in pairs in a useful way
_AMOUNTS = 20  # distinct numbers with a fraction that may still be categories
_CLASSES = 50


class Groups(NamedTuple):
    """The groups that occur.

    Attributes
    ----------
    labels : tuple
        Values of the attribute, or tuples of values of several; None where missing.
    members : ndarray of int
        The number of each row's group.
    attributes : tuple of str
        Names of the attributes, as far as they have any.
    """

    labels: tuple[Any, ...]
    members: Array
    attributes: tuple[str, ...]

    @property
    def counts(self) -> Array:
        """Rows of each group."""
        return np.bincount(self.members, minlength=len(self.labels))


def groups_of(sensitive: MatrixLike, n: int) -> Groups:
    """The groups of ``n`` rows; several columns make groups of combinations."""
    names = tuple(str(name) for name in getattr(sensitive, "columns", ()))
    names = names or tuple(str(x) for x in [getattr(sensitive, "name", None)] if x)
    columns = objects_of(sensitive)
    if columns.ndim not in (1, 2) or (columns.ndim == 2 and not columns.shape[1]):
        raise ValueError(
            f"sensitive has shape {columns.shape}; pass one value per row, or one "
            "column per attribute."
        )
    columns = columns.reshape(len(columns), -1)
    if len(columns) != n:
        raise ValueError(
            f"sensitive has {len(columns):,} rows, but the data has {n:,}."
        )
    called = [f'"{name}"' for name in names] or range(columns.shape[1])
    parts = [_categories(column, name) for name, column in zip(called, columns.T)]
    first, members = _combinations([code for _, code in parts])
    found = [tuple(values[code[i]] for values, code in parts) for i in first]
    if len(found) > _GROUPS:
        raise ValueError(
            f"sensitive forms {len(found):,} groups; at most {_GROUPS} can be "
            "compared. Merge values, or pass fewer attributes."
        )
    order = sorted(range(len(found)), key=lambda i: _order(found[i]))
    labels = tuple(found[i] if len(parts) > 1 else found[i][0] for i in order)
    return Groups(labels, np.argsort(order)[members], names)


def objects_of(sensitive: MatrixLike) -> Array:
    """The attribute as an array of objects; masked values are missing."""
    found = np.array(sensitive, dtype=object)
    if np.ma.isMaskedArray(sensitive):
        found[np.ma.getmaskarray(sensitive)] = None
    return found


def _combinations(codes: list[Array]) -> tuple[Array, Array]:
    """A row of each combination of codes that occurs, and each row's number."""
    members = np.zeros(len(codes[0]), dtype=np.int64)
    for code in codes:  # at most n² after each step, which an integer holds
        members = members * (int(code.max(initial=0)) + 1) + code
        _, first, members = np.unique(members, return_index=True, return_inverse=True)
    return first, members.ravel()


def _categories(column: Array, name: Any) -> tuple[list[Any], Array]:
    """The distinct values of an attribute, None if missing, and each row's number."""
    rows = column.tolist()
    try:
        seen = {v: i for i, v in enumerate(dict.fromkeys(rows))}
    except TypeError:
        raise ValueError(
            f"Attribute {name} of sensitive holds lists or tables; pass text or "
            "numbers."
        ) from None
    # Several kinds of missing, and every NaN by itself, become one.
    values: dict[Any, int] = {}
    merged = [values.setdefault(_known(v), len(values)) for v in seen]
    amounts = [v for v in values if isinstance(v, float | np.floating)]
    if len(amounts) > _AMOUNTS and any(v % 1 for v in amounts):
        raise ValueError(
            f"Attribute {name} of sensitive holds {len(amounts):,} different numbers, "
            "which are too many for groups. Put them into a few ranges first, for "
            "example with numpy.digitize."
        )
    first = np.fromiter(map(seen.__getitem__, rows), dtype=int, count=len(rows))
    return list(values), np.asarray(merged, dtype=int)[first]


def _known(value: Any) -> Any:
    """The value, or None where it is missing (None, NaN, NaT, NA)."""
    try:
        return value if value is not None and bool(value == value) else None
    except TypeError:  # the comparison of a missing value is itself missing
        return None


def _order(label: Any) -> tuple[Any, ...]:
    """Numbers by size, words by letters, what is missing last."""
    if isinstance(label, tuple):
        return tuple(key for part in label for key in _order(part))
    if label is None:
        return (2, 0.0, "")
    if isinstance(label, bool | int | float | np.number):
        return (0, float(label), "")
    return (1, 0.0, str(label))


def labels_of(name: str, values: Any) -> Array:
    """Decisions or truths: one label per row, none missing."""
    found = _column(name, values)
    if found.dtype.kind == "f":
        missing = int((~np.isfinite(found)).sum())
    else:
        missing = 0
        if found.dtype.kind not in "biuUS":
            missing = sum(_known(v) is None for v in found.tolist())
    if missing:
        raise ValueError(f"{name} has no value in {missing:,} rows; drop those rows.")
    return found


def scores_of(name: str, values: Any) -> Array:
    """Scores: one finite number per row."""
    try:
        found = _column(name, values).astype(np.float64)
    except (TypeError, ValueError) as error:
        if isinstance(error, ValueError) and str(error).startswith(name):
            raise
        raise ValueError(f"{name} must hold numbers if it holds scores.") from None
    if not np.isfinite(found).all():
        raise ValueError(f"{name} holds NaN or infinity. Drop or correct those rows.")
    return found


def _column(name: str, values: Any) -> Array:
    hidden = int(np.ma.count_masked(values)) if np.ma.isMaskedArray(values) else 0
    if hidden:
        raise ValueError(f"{name} has no value in {hidden:,} rows; drop those rows.")
    found = np.asarray(values)
    if found.ndim == 2 and found.shape[1] == 1:
        found = found[:, 0]
    if found.ndim != 1:
        raise ValueError(
            f"{name} has shape {found.shape}; pass one value per row. If there are "
            "scores of several classes, pass one column of them."
        )
    if not len(found):
        raise ValueError(f"{name} has no rows.")
    return found


def are_scores(y_pred: ArrayLike, scores: bool | None) -> bool:
    """Whether predictions are scores: as said, or if a number is not whole."""
    if scores is not None:
        return bool(scores)
    found = np.asarray(y_pred)
    if found.dtype.kind != "f":
        return False
    finite = found[np.isfinite(found)]
    return bool((finite != np.floor(finite)).any())


def same_length(**columns: Array) -> int:
    """The number of rows, which all columns share."""
    sizes = {name: len(column) for name, column in columns.items()}
    if len(set(sizes.values())) > 1:
        said = ", ".join(f"{name} has {size:,}" for name, size in sizes.items())
        raise ValueError(f"The numbers of rows must be equal: {said}.")
    return next(iter(sizes.values()))


def classes_of(positive: Any, **columns: Array) -> list[Any]:
    """Labels that get rows of their own: the positive one of two, or all of several."""
    kinds = {_is_number(c) for c in columns.values()}
    if len(kinds) > 1:
        raise ValueError(
            f"{' and '.join(columns)} hold labels of different types, numbers and "
            "text. Convert them to one type."
        )
    try:
        found = np.unique(np.concatenate(list(columns.values()))).tolist()
    except TypeError:
        raise ValueError(
            f"{' and '.join(columns)} mix labels of different types. Convert them to "
            "one type."
        ) from None
    if positive is not None:
        if positive not in found and len(found) > 1:
            few = ", ".join(map(repr, found[:5]))
            raise ValueError(
                f"positive={positive!r} does not occur among the labels ({few})."
            )
        return [positive]
    if set(found) <= {0, 1} or set(found) <= {-1, 1}:
        return [1]  # also where it was never chosen
    if len(found) > _CLASSES:
        raise ValueError(
            f"There are {len(found):,} different labels. Pass scores=True if they are "
            "scores, or positive= to name the positive label."
        )
    return found[-1:] if len(found) <= 2 else found


def _is_number(column: Array) -> bool:
    if column.dtype.kind == "O":
        return all(isinstance(v, bool | int | float | np.number) for v in column)
    return column.dtype.kind in "biuf"


def weights_of(sample_weight: ArrayLike | None, n: int) -> Array | None:
    """Weights, none of them negative and not all zero; None if there are none."""
    if sample_weight is None:
        return None
    weights = scores_of("sample_weight", sample_weight)
    same_length(rows=np.empty(n), sample_weight=weights)
    if weights.min() < 0 or not weights.any():
        raise ValueError("sample_weight must not be negative and not zero everywhere.")
    # Neither their sum nor the products with it may overflow; the scale says nothing.
    return np.ldexp(weights, -int(np.frexp(weights.max())[1]))
