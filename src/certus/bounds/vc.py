"""How rich a class of classifiers is: labellings, shattering, the VC bound.

A class F labels n points in at most S_F(n) ≤ 2ⁿ ways, the supremum over point sets (its
growth function). Its VC dimension is the largest n with S_F(n) = 2ⁿ. However large F,
with probability at least 1 − δ every f in F satisfies

    R(f) ≤ R_n(f) + 2·√(2(ln S_F(2n) + ln(2/δ)) / n)

Half-spaces on given points are decided in integers: each float64 is a rational number,
so collinear points, duplicates and near misses get the right answer.
"""

from __future__ import annotations

import math
from itertools import combinations
from typing import Any

import numpy as np

from certus.bounds.counting import cover_count
from certus.bounds.intervals import check_count, check_delta
from certus.typing import MatrixLike

Point = tuple[int, ...]

FAMILIES = ("thresholds", "intervals", "half-spaces", "homogeneous half-spaces")


def shattered(X: MatrixLike, affine: bool = True) -> bool:
    """Whether half-spaces realise every labelling of the rows of X; decided exactly.

    They do if and only if the rows are affinely independent (Radon's theorem), without
    an offset linearly independent. Exact integers are slow: about a second for 60
    points in 60 dimensions.

    Parameters
    ----------
    X : array-like of shape (n_points, n_features)
        Finite numbers.
    affine : bool, default=True
        Half-spaces {w·x + b > 0}; with False, through the origin, {w·x > 0}.

    Examples
    --------
    >>> from certus.bounds import shattered
    >>> shattered([[0, 0], [1, 0], [0, 1]]), shattered([[0, 0], [1, 1], [2, 2]])
    (True, False)
    """
    rows = [list(point) for point in _integers(X, affine)]
    return len(rows) <= len(rows[0]) and _rank(rows) == len(rows)


def labelling_count(X: MatrixLike, affine: bool = True) -> int:
    """In how many of the 2ⁿ ways half-spaces label the rows of X; counted exactly.

    A labelling y counts if some (w, b) has yᵢ(w·xᵢ + b) > 0 for all i. Without an
    offset no half-space labels the origin, and the count is 0 if it is among the rows.
    In general position the count is Cover's number, ``cover_count(n, d + affine)``;
    duplicates, collinear and cohyperplanar points have fewer.

    The labellings are the cells into which the n hyperplanes {w : w·xᵢ = 0} cut the
    space of w. Adding a hyperplane adds one cell for each cell that the earlier ones
    cut on it, a problem with one dimension less: Cover's recurrence, on the points
    themselves. The work grows as n^(d − 1 + affine).

    Parameters
    ----------
    X : array-like of shape (n_points, n_features)
        Finite numbers.
    affine : bool, default=True
        Half-spaces {w·x + b > 0}; with False, through the origin, {w·x > 0}.

    Examples
    --------
    >>> from certus.bounds import labelling_count
    >>> labelling_count([[0, 0], [1, 0], [0, 1], [1, 1]])  # all 16 but XOR
    14
    >>> labelling_count([[0, 0], [1, 1], [2, 2], [3, 3]])
    8
    """
    normals = _integers(X, affine)
    if any(not any(point) for point in normals):
        return 0
    return _cells(_directions(normals))


def growth_function(family: str, n: int, dimension: int = 1) -> int:
    """S_F(n): the most labellings that a family of classifiers gives n points.

    Thresholds {x ≥ t} on a line, n + 1; intervals {a ≤ x ≤ b}, n(n + 1)/2 + 1;
    half-spaces in d dimensions, Cover's count for d + 1 (through the origin, for d).

    Parameters
    ----------
    family : {"thresholds", "intervals", "half-spaces", "homogeneous half-spaces"}
        The class; the first two live on a line.
    n : int
        Number of points, at least 1.
    dimension : int, default=1
        Dimension of the points of half-spaces.

    Examples
    --------
    >>> from certus.bounds import growth_function
    >>> [growth_function("half-spaces", n, 2) for n in range(1, 6)]
    [2, 4, 8, 14, 22]
    """
    n = check_count("n", n)
    dimension = check_count("dimension", dimension)
    if family not in FAMILIES:
        raise ValueError(
            f"family must be one of {', '.join(FAMILIES)}, got {family!r}."
        )
    if family in ("thresholds", "intervals") and dimension != 1:
        raise ValueError(f"{family} are defined on a line, so dimension must be 1.")
    if family == "thresholds":
        return n + 1
    if family == "intervals":
        return n * (n + 1) // 2 + 1
    return cover_count(n, dimension + (family == "half-spaces"))


def shattering_coefficient(predictions: Any, n: int) -> int:
    """The most labellings that a finite class gives n of finitely many points.

    Parameters
    ----------
    predictions : array-like of shape (n_classifiers, n_points)
        Row f, column x: the label f(x), one of two values.
    n : int
        How many points; every choice of n columns is tried.

    Examples
    --------
    >>> import numpy as np
    >>> from certus.bounds import shattering_coefficient
    >>> thresholds = np.tri(5, 4, -1)  # four points on a line, five places to cut
    >>> [shattering_coefficient(thresholds, n) for n in (1, 2, 3)]
    [2, 3, 4]
    """
    table = _table(predictions)
    n = check_count("n", n)
    if n > table.shape[1]:
        raise ValueError(f"n is {n}, but there are {table.shape[1]} points.")
    chosen = combinations(range(table.shape[1]), n)
    return max(_patterns(table, columns) for columns in chosen)


def vc_dimension(predictions: Any) -> int:
    """The VC dimension of a finite class on finitely many points, by search.

    The largest number of points that the class shatters; at most log₂ of the number of
    distinct classifiers. Every set is reached through its shattered subsets.

    Parameters
    ----------
    predictions : array-like of shape (n_classifiers, n_points)
        Row f, column x: the label f(x), one of two values.

    Examples
    --------
    >>> import numpy as np
    >>> from certus.bounds import vc_dimension
    >>> vc_dimension(np.tri(5, 4, -1)), vc_dimension(np.eye(4))
    (1, 1)
    """
    table = _table(predictions)
    size = 0
    found: list[tuple[int, ...]] = [()]  # any classifier shatters the empty set
    while found and 2 ** (size + 1) <= len(table):
        larger = [
            (*points, x)
            for points in found
            for x in range(points[-1] + 1 if points else 0, table.shape[1])
            if _patterns(table, (*points, x)) == 2 ** (size + 1)
        ]
        size, found = size + bool(larger), larger
    return size


def sauer_bound(n: int, dimension: int) -> int:
    """Sauer's lemma: S_F(n) ≤ Σ_{i ≤ d} binom(n, i) for a class of VC dimension d.

    Parameters
    ----------
    n : int
        Number of points.
    dimension : int
        VC dimension d.

    Examples
    --------
    >>> from certus.bounds import sauer_bound
    >>> [sauer_bound(n, 3) for n in (3, 4, 10, 100)]
    [8, 15, 176, 166751]
    """
    n, dimension = check_count("n", n), check_count("dimension", dimension, 0)
    total = term = 1
    for i in range(min(n, dimension)):
        term = term * (n - i) // (i + 1)  # binom(n, i + 1), from the one before
        total += term
    return total


def vc_bound(
    n: int,
    delta: float = 0.05,
    *,
    growth: int | None = None,
    dimension: int | None = None,
) -> float:
    """How far above its training error any classifier of a class may err.

    2·√(2(ln S + ln(2/δ))/n) with S = S_F(2n): with probability at least 1 − δ, at once
    for every f in F, also the one chosen on these n rows, R(f) − R_n(f) is at most
    this.

    Parameters
    ----------
    n : int
        Number of training rows.
    delta : float, default=0.05
        Failure probability: the chance that the statement does not hold.
    growth : int, optional
        S_F(2n), for example ``growth_function(family, 2 * n)``; for a finite class, the
        number of its classifiers.
    dimension : int, optional
        VC dimension, instead of ``growth``; S_F(2n) is bounded by Sauer's lemma.

    Examples
    --------
    >>> from certus.bounds import vc_bound
    >>> round(vc_bound(100_000, dimension=3), 3)
    0.056
    """
    n, delta = check_count("n", n), check_delta(delta)
    if (growth is None) == (dimension is None):
        raise ValueError("Pass either growth, which is S_F(2n), or dimension.")
    if dimension is not None:
        growth = sauer_bound(2 * n, dimension)
    log = math.log(check_count("growth", growth or 0)) + math.log(2) - math.log(delta)
    return 2.0 * math.sqrt(2.0 * log / n)


# -- exact arithmetic -----------------------------------------------------------------


def _integers(X: MatrixLike, affine: bool) -> list[Point]:
    """The rows as integer vectors in the same directions, with a 1 appended if affine.

    Scaling a row by a positive number changes no sign of w·x, so each row is multiplied
    by its common denominator.
    """
    X = np.asarray(X, dtype=None)
    if X.dtype.kind not in "biuf":
        X = X.astype(np.float64)
    if X.ndim != 2 or 0 in X.shape:
        raise ValueError(f"X has shape {X.shape}; pass points × coordinates.")
    if not np.isfinite(X).all():
        raise ValueError("X holds NaN or infinity. Drop or correct these points first.")
    points = []
    for row in X.tolist():
        ratios = [value.as_integer_ratio() for value in row] + [(1, 1)] * affine
        scale = math.lcm(*(below for _, below in ratios))
        points.append(tuple(above * (scale // below) for above, below in ratios))
    return points


def _rank(rows: list[list[int]]) -> int:
    """Rank of an integer matrix, by elimination without fractions (Bareiss)."""
    rank, last = 0, 1
    for column in range(len(rows[0])):
        pivot = next((i for i in range(rank, len(rows)) if rows[i][column]), None)
        if pivot is None:
            continue
        rows[rank], rows[pivot] = rows[pivot], rows[rank]
        head = rows[rank]
        for i in range(rank + 1, len(rows)):
            factor = rows[i][column]
            rows[i] = [
                (head[column] * a - factor * b) // last  # exact: a minor of the matrix
                for a, b in zip(rows[i], head)
            ]
        rank, last = rank + 1, head[column]
        if rank == len(rows):
            break
    return rank


def _directions(points: list[Point]) -> list[Point]:
    """The distinct lines through the origin that the vectors span."""
    found: dict[Point, None] = {}
    for point in points:
        scale = math.gcd(*point)
        if next(value for value in point if value) < 0:
            scale = -scale
        found[tuple(value // scale for value in point)] = None
    return list(found)


def _cells(normals: list[Point]) -> int:
    """Into how many cells the hyperplanes with these distinct normals cut the space."""
    if not normals:
        return 1
    if len(normals[0]) <= 2:
        return 2 * len(normals)
    return 1 + sum(
        _cells(_directions(_restricted(normals[:i], normal)))
        for i, normal in enumerate(normals)
    )


def _restricted(normals: list[Point], onto: Point) -> list[Point]:
    """The normals on the hyperplane of ``onto``: one coordinate is eliminated."""
    k = next(i for i, value in enumerate(onto) if value)
    return [
        tuple(
            onto[k] * a - point[k] * b
            for i, (a, b) in enumerate(zip(point, onto))
            if i != k
        )
        for point in normals
    ]


def _table(predictions: Any) -> Any:
    """The distinct classifiers, as rows of booleans."""
    table = np.asarray(predictions)
    if table.ndim != 2 or 0 in table.shape:
        raise ValueError(
            f"predictions has shape {table.shape}; pass classifiers × points."
        )
    labels = np.unique(table)
    if len(labels) > 2:
        raise ValueError(f"predictions must hold two labels, got {len(labels)}.")
    return np.unique(table == labels[-1], axis=0)


def _patterns(table: Any, columns: tuple[int, ...]) -> int:
    """How many different labellings the class gives these points."""
    return len(np.unique(table[:, columns], axis=0))
