"""Reading ratings: a users × items matrix, or pairs of ids with a number each.

Rows are always users. In a sparse matrix every stored entry is a rating, including a
stored zero, and entries that are not stored are unknown; in a dense one NaN is unknown.
Pairs may hold numbers, strings or any other hashable ids, which ``users`` and ``items``
keep. Inside, everything becomes one CSR matrix of positions among those ids.
"""

from __future__ import annotations

import contextlib
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse

from certus.base import require_indices
from certus.typing import Array, ArrayLike, MatrixLike

#: Rows of a dense matrix that is taken as it is, even if it looks like pairs.
TOY = 20


class Ratings(NamedTuple):
    """Users, items and their ratings.

    ``matrix`` has sorted columns and no duplicates; ``weights`` belong to its stored
    entries and are empty where all are one.
    """

    users: Array
    items: Array
    matrix: Any
    weights: Array


def read_ratings(
    X: Any, y: Any = None, sample_weight: Any = None, *, counts: bool = False
) -> Ratings:
    """Ratings from a matrix, or from pairs and numbers.

    Parameters
    ----------
    X : sparse or dense matrix (n_users, n_items), or pairs (n_ratings, 2)
        Pairs go with ``y``. A data frame of two columns is read as pairs.
    y : array-like of shape (n_ratings,), optional
        The rating of each pair.
    sample_weight : array-like or sparse matrix, optional
        Row weights. One for each pair, or a matrix of weights with the shape of ``X``.
    counts : bool, default=False
        Counts of events: they must not be negative, zeros are dropped and repeated
        pairs are added up. Ratings may be any number, and a repeated pair is an error.
    """
    if y is not None or is_frame(X):
        found = _from_pairs(X, y, sample_weight, counts)
    else:
        found = _from_matrix(X, sample_weight, counts)
    matrix = found.matrix
    if matrix.nnz == 0:
        raise ValueError("There is no rating: every entry is missing. Pass at least 1.")
    bad = matrix.nnz - int(np.isfinite(matrix.data).sum())
    if bad:
        raise ValueError(
            f"{bad:,} ratings are NaN or infinite. Leave missing ratings out of a "
            "sparse matrix or of the pairs."
        )
    with np.errstate(over="ignore"):
        size = float(np.square(matrix.data, dtype=np.float64).sum())
    if not np.isfinite(size):
        raise ValueError(
            "The squares of the ratings are too large for float64. Divide the "
            "ratings by a constant."
        )
    if counts:
        if matrix.data.min() < 0:
            raise ValueError(
                "X holds negative counts. ImplicitALS needs counts of events, at least "
                "0; for signed ratings use MatrixFactorization."
            )
        matrix.eliminate_zeros()
        if matrix.nnz == 0:
            raise ValueError("Every count is 0. Pass at least one event.")
    return found


def is_frame(X: MatrixLike) -> bool:
    """Whether X is a data frame, whose columns are ids."""
    return hasattr(X, "columns") and not isinstance(X, np.ndarray)


# -- matrices ---------------------------------------------------------------------


def _from_matrix(
    X: MatrixLike, sample_weight: ArrayLike | None, counts: bool
) -> Ratings:
    matrix = as_csr(X, repeats=counts)
    weights = np.empty(0, dtype=matrix.dtype)
    if sample_weight is not None:
        given = as_csr(sample_weight, "sample_weight")
        if given.shape != matrix.shape or given.nnz != matrix.nnz:
            raise ValueError(
                f"sample_weight has shape {given.shape} and {given.nnz:,} entries, "
                f"but X has shape {matrix.shape} and {matrix.nnz:,} entries. Pass one "
                "weight for each rating."
            )
        if not (
            np.array_equal(given.indptr, matrix.indptr)
            and np.array_equal(given.indices, matrix.indices)
        ):
            raise ValueError("sample_weight and X have entries in different places.")
        weights = _weights(given.data, matrix.dtype)
    n, m = matrix.shape
    return Ratings(np.arange(n), np.arange(m), matrix, weights)


def as_csr(X: Any, name: str = "X", repeats: bool = False) -> Any:
    """A users × items matrix as CSR with sorted columns; NaN of a dense one is missing.

    The result never shares its values with the caller's matrix. With ``repeats``,
    entries stored twice are added up.
    """
    if sparse.issparse(X):
        if X.ndim != 2:
            raise ValueError(f"{name} has shape {X.shape}; pass users × items.")
        if X.dtype.kind not in "fiub":
            raise ValueError(f"{name} must hold real numbers.")
        require_indices(X, name)
        if X.format not in ("csr", "csc", "coo"):
            X = X.tocoo()  # a dia_matrix counts zeros as stored
        entries = X.nnz
        # Before entries stored twice are added: small integers would wrap.
        matrix = sparse.csr_matrix(X.astype(_dtype(X.dtype)), copy=True)
        matrix.sum_duplicates()
        if matrix.nnz != entries and not repeats:
            raise ValueError(
                f"{name} stores {entries - matrix.nnz:,} ratings twice: some user and "
                "item have several entries. Keep one of them, or their mean."
            )
        return matrix
    try:
        dense = np.asarray(X, dtype=_dtype(np.asarray(X).dtype))
    except (TypeError, ValueError):
        raise ValueError(
            f"{name} is not a matrix of numbers. Pass users × items, or pairs of ids "
            "together with their ratings: fit(pairs, ratings)."
        ) from None
    if dense.ndim != 2 or 0 in dense.shape:
        raise ValueError(
            f"{name} has shape {dense.shape}; pass users × items, or pairs and ratings."
        )
    known = ~np.isnan(dense)
    if dense.shape[1] in (2, 3) and len(dense) > TOY and known.all():
        last = "X[:, 2]" if dense.shape[1] == 3 else "ratings"
        raise ValueError(
            f"{name} is dense, complete and has {dense.shape[1]} columns, so it could "
            f"be pairs of ids. Pass pairs as X[:, :2] with y={last}, or a rating "
            "matrix as a sparse matrix."
        )
    columns = np.nonzero(known)[1]
    starts = np.concatenate([[0], np.cumsum(known.sum(axis=1))])
    return sparse.csr_matrix((dense[known], columns, starts), dense.shape)


def _dtype(dtype: Any) -> Any:
    return np.float32 if dtype == np.float32 else np.float64


def _weights(values: Any, dtype: Any) -> Array:
    try:
        weights = np.asarray(values, dtype=dtype)
    except (TypeError, ValueError):
        raise ValueError("sample_weight is not numeric.") from None
    if not np.all(np.isfinite(weights)) or np.any(weights <= 0):
        raise ValueError(
            "sample_weight must be finite and above 0. Leave out ratings that should "
            "not count."
        )
    return weights


# -- pairs ------------------------------------------------------------------------


def _from_pairs(
    X: MatrixLike, y: ArrayLike, sample_weight: ArrayLike | None, counts: bool
) -> Ratings:
    first, second = columns_of(X)
    if y is None:
        raise ValueError(
            "A data frame is read as pairs of ids. Pass their ratings too: "
            "fit(frame[['user', 'item']], frame['rating'])."
        )
    values = _numbers(y, len(first))
    users, rows = encode(first, "user")
    items, columns = encode(second, "item")
    shape = (len(users), len(items))
    weights = None
    if sample_weight is not None:
        weights = _weights(sample_weight, values.dtype)
        if weights.shape != values.shape:
            raise ValueError(
                f"sample_weight has shape {weights.shape}; there are {len(values):,} "
                "ratings."
            )
    matrix = sparse.csr_matrix((values, (rows, columns)), shape)
    if matrix.nnz < len(values) and not counts:
        user, item = _repeated(rows, columns)
        raise ValueError(
            f"User {users.tolist()[user]!r} rates item {items.tolist()[item]!r} more "
            f"than once ({len(values) - matrix.nnz:,} ratings too many). Keep one "
            "rating of each pair, such as the last or the mean."
        )
    extra = np.empty(0, dtype=values.dtype)
    if weights is not None:
        extra = sparse.csr_matrix((weights, (rows, columns)), shape).data
    return Ratings(users, items, matrix, extra)


def _numbers(y: ArrayLike, n: int) -> Array:
    values = np.asarray(y)
    if values.dtype.kind == "c":
        raise ValueError("The ratings must be real numbers, got complex ones.")
    if values.dtype.kind not in "fiub":
        try:
            values = values.astype(np.float64)
        except (TypeError, ValueError):
            raise ValueError("The ratings are not numeric.") from None
    if values.shape != (n,):
        raise ValueError(
            f"There are {n:,} pairs, but the ratings have shape {values.shape}; pass "
            "one rating for each pair."
        )
    return values.astype(_dtype(values.dtype), copy=False)


def _repeated(rows: Array, columns: Array) -> tuple[int, int]:
    order = np.lexsort((columns, rows))
    r, c = rows[order], columns[order]
    place = int(np.flatnonzero((r[1:] == r[:-1]) & (c[1:] == c[:-1]))[0])
    return int(r[place]), int(c[place])


def columns_of(pairs: Any) -> tuple[Array, Array]:
    """The two columns of pairs, each with the type of its own ids."""
    if is_frame(pairs):
        if len(pairs.columns) != 2:
            raise ValueError(
                f"The frame has {len(pairs.columns)} columns; pass two, users first: "
                "fit(frame[['user', 'item']], frame['rating'])."
            )
        user, item = (as_ids(pairs[name]) for name in pairs.columns)
        return user, item
    if sparse.issparse(pairs):
        raise ValueError(
            "X is a sparse matrix, so its entries are the ratings. Do not pass y."
        )
    if isinstance(pairs, np.ndarray):
        if pairs.ndim != 2 or pairs.shape[1] != 2:
            raise ValueError(
                f"The pairs have shape {pairs.shape}; pass (n, 2), users first."
            )
        return as_ids(pairs[:, 0]), as_ids(pairs[:, 1])
    try:
        split = [(first, second) for first, second in pairs]
    except (TypeError, ValueError):
        raise ValueError("The pairs must be (user, item), one for each rating.") from (
            None
        )
    return as_ids([p[0] for p in split]), as_ids([p[1] for p in split])


def as_ids(values: Any) -> Array:
    """Ids as a one-dimensional array: of numbers, of strings, or of objects."""
    if not isinstance(values, list):
        values = np.asarray(values)
        if values.ndim == 1 and values.dtype.kind in "iuUb":
            return values
        if values.ndim == 1 and values.dtype.kind == "f":
            if np.isnan(values).any():
                raise ValueError("Some ids are NaN. Leave out ratings without an id.")
            return values
        values = list(values)
    plain = [v.item() if isinstance(v, np.generic) else v for v in values]
    if any(v is None or v != v for v in plain):
        raise ValueError("Some ids are missing. Leave out ratings without an id.")
    kinds = {type(v) for v in plain}
    if len(kinds) == 1 and kinds <= {int, str, bool, float}:
        found = np.asarray(plain)
        if found.dtype.kind != "O":
            return found
    objects = np.empty(len(plain), dtype=object)
    objects[:] = plain
    return objects


def encode(ids: Array, what: str) -> tuple[Array, Array]:
    """Distinct ids, sorted if they can be, and the position of each among them."""
    if ids.dtype.kind in "iu" and len(ids):
        low, high = int(ids.min()), int(ids.max())
        if high - low < 4 * len(ids) + 1024:  # counting is much faster than sorting
            places = np.subtract(ids, low, dtype=np.intp, casting="unsafe")
            seen = np.bincount(places, minlength=high - low + 1) > 0
            known = (np.flatnonzero(seen) + low).astype(ids.dtype)
            return known, (np.cumsum(seen) - 1)[places]
    if ids.dtype.kind in "iufb":
        return np.unique(ids, return_inverse=True)
    names = ids.tolist()
    try:
        distinct: list[Any] = list(dict.fromkeys(names))
    except TypeError:
        raise ValueError(f"A {what} id is not hashable; use numbers or strings.") from (
            None
        )
    with contextlib.suppress(TypeError):  # ids of several types keep their order
        distinct.sort()
    table = {name: place for place, name in enumerate(distinct)}
    places = np.fromiter((table[name] for name in names), np.intp, len(names))
    return _array_like(distinct, ids.dtype), places


def _array_like(values: list[Any], dtype: Any) -> Array:
    out = np.empty(len(values), dtype=dtype)
    out[:] = values
    return out


def locate(known: Array, ids: Array, what: str) -> Array:
    """Position of each id among the known ones, −1 where it is not known."""
    if known.dtype.kind != "O" and ids.dtype.kind != "O":
        if (known.dtype.kind == "U") != (ids.dtype.kind == "U"):
            names = {True: "text", False: "numbers"}
            raise ValueError(
                f"The {what} ids are {names[ids.dtype.kind == 'U']}, but were "
                f"{names[known.dtype.kind == 'U']} when the model was fitted."
            )
        if len(known) and known.dtype.kind in "iu" and ids.dtype.kind in "iu":
            low = int(known[0])
            if int(known[-1]) - low == len(known) - 1:  # no gaps
                inside = (ids >= known[0]) & (ids <= known[-1])
                return np.where(inside, ids - known[0], -1).astype(np.intp)
        places = np.minimum(np.searchsorted(known, ids), max(0, len(known) - 1))
        return np.where(known[places] == ids, places, -1)
    table = {name: place for place, name in enumerate(known.tolist())}
    try:
        return np.fromiter(
            (table.get(name, -1) for name in ids.tolist()), np.intp, len(ids)
        )
    except TypeError:
        raise ValueError(f"A {what} id is not hashable.") from None
