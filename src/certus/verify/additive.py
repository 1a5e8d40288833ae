"""Checker of additive models: binned shapes with penalties of differences.

    mean ℓ(y, z) + Σₜ [½ qₜ Σ (w_a − w_b)² + ½ rₜ ‖wₜ‖²],   z = b + Σₜ wₜ[cell of x]

The sum over a and b runs over neighbouring cells; with total variation it is
qₜ Σ |w_a − w_b|. The cells of every row are found here again, from the edges that
the model shows; the one-hot design, the shapes and the levels go to the kernel's gap.
Beside it: each edge lies halfway between two values of the data, and shapes that are
to be monotone are so, cell by cell.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from scipy import sparse

from certus.certificate import Claim
from certus.evidence import LinearWitness
from certus.objectives import terms as t
from certus.typing import Array, Fit
from certus.verify import data, deciding, stated_linear
from certus.verify.blocks import over_blocks
from certus.verify.deciding import GAP, Number
from certus.verify.kernel import losses, reading
from certus.verify.kernel.gap import Problem
from certus.verify.kernel.spaces import Space
from certus.verify.linear import worst_claim
from certus.verify.problems import sound
from certus.verify.shapes import CellDifferences
from certus.verify.stating import Checked, Given, Refusal, require, tol_of

_LOSSES: dict[str, Any] = {
    "squared_error": t.Squared(),
    "poisson": t.Poisson(),
    "gamma": t.Exponential(),
}
#: Shares of ``alpha`` in both levels of a term, times its number of cells.
SMOOTH, SHRINK = 1.0, 0.01


class Part(NamedTuple):
    """One term: its columns, and edges or categories for each of them."""

    columns: tuple[int, ...]
    axes: tuple[Array, ...]
    sizes: tuple[int, ...]


class Statement(NamedTuple):
    """What an additive model minimises, and the values of its cells."""

    loss: Any
    classes: Array | None
    parts: list[Part]
    categorical: Array
    penalty: CellDifferences
    w: Array
    b: Array
    monotone: Array
    tol: float


def _parts(model: Any, categorical: Array) -> list[Part]:
    found, d = [], len(categorical)
    for columns, axes in zip(model.terms_, model.bin_edges_, strict=True):
        columns = tuple(int(j) for j in columns)
        require(1 <= len(columns) <= 2, "a term has one or two columns")
        require(all(0 <= j < d for j in columns), "a term names a missing column")
        axes = tuple(np.asarray(axis) for axis in axes)
        require(len(axes) == len(columns), "a term lacks edges")
        for axis in axes:
            plain = axis.dtype == np.float64 and axis.ndim == 1
            require(plain and np.isfinite(axis).all(), "edges are not finite numbers")
            require(bool((np.diff(axis) > 0).all()), "edges are not ascending")
        ends = [2 - int(categorical[j]) for j in columns]
        sizes = tuple(len(axis) + end for axis, end in zip(axes, ends))
        found.append(Part(columns, axes, sizes))
    require(len({part.columns for part in found}) == len(found), "a term is repeated")
    return found


def _grid(part: Part, categorical: Array, start: int) -> tuple[Array, Array]:
    """Neighbouring cells of a term; cell 0 of an axis, for holes, has none."""
    cells = start + np.arange(int(np.prod(part.sizes))).reshape(part.sizes)
    left, right = [np.zeros(0, dtype=np.intp)], [np.zeros(0, dtype=np.intp)]
    for axis, j in enumerate(part.columns):
        if not categorical[j]:
            line = cells.swapaxes(0, axis)
            left.append(line[1:-1].ravel())
            right.append(line[2:].ravel())
    return np.concatenate(left), np.concatenate(right)


def _penalty(model: Any, parts: list[Part], categorical: Array, monotone: Array) -> Any:
    """Levels of all edges and cells, from ``alpha`` or what was chosen in its place."""
    sizes = [int(np.prod(part.sizes)) for part in parts]
    if model.alpha is None:
        levels = [
            data.fitted(model, name, (len(parts),), finite=True)
            for name in ("smoothing_", "shrinkage_")
        ]
    else:
        cells = np.array(sizes, dtype=float)
        levels = [share * float(model.alpha) / cells for share in (SMOOTH, SHRINK)]
    smoothing, shrinkage = levels
    require(bool((smoothing >= 0).all()), "a penalty is negative")
    require(bool((shrinkage > 0).all()), "a term has no L2 penalty")
    variation = model.penalty == "total_variation"
    lists: list[list[Array]] = [[], [], [], []]
    start = 0
    for part, size, level in zip(parts, sizes, smoothing):
        left, right = _grid(part, categorical, start)
        sign = float(monotone[part.columns[0]]) if len(part.columns) == 1 else 0.0
        more = (left, right, np.full(len(left), level), np.full(len(left), sign))
        for kept, each in zip(lists, more):
            kept.append(each)
        start += size
    left, right, level, signs = (np.concatenate(each) for each in lists)
    none = np.zeros(len(level))
    square, first = (none, level) if variation else (level, none)
    own = np.repeat(shrinkage, sizes)
    return CellDifferences(left, right, square, first, signs, own)


def _signs(model: Any, d: int) -> Array:
    given = model.monotonic_cst
    signs = np.zeros(d) if given is None else np.asarray(given, dtype=float)
    require(signs.shape == (d,), "monotonic_cst has another length")
    require(bool(np.isin(signs, (-1, 0, 1)).all()), "monotonic_cst must be −1, 0 or 1")
    return signs


def _values(model: Any, parts: list[Part], k: int) -> tuple[Array, Array]:
    """Values of all cells in one column for each score, and the constants."""
    require(len(model.shapes_) == len(parts), "a term has no shape")
    found = []
    for shape, part in zip(model.shapes_, parts):
        shape = np.asarray(shape)
        asked = part.sizes if k == 1 else (*part.sizes, k)
        require(shape.shape == asked, "a shape has another number of cells")
        require(shape.dtype == np.float64, "a shape is not stored as float64")
        found.append(shape.reshape(-1) if k == 1 else shape.reshape(-1, k))
    b = reading.plain(model.intercept_).astype(np.float64).ravel()
    require(b.size == k, "intercept_ has another length")
    return np.concatenate(found), b


def _read(model: Any, loss: Any, classes: Array | None) -> Statement:
    categorical = np.asarray(model.is_categorical_)
    require(categorical.dtype == bool and categorical.ndim == 1, "is_categorical_")
    k = loss.n_classes if isinstance(loss, t.Softmax) else 1
    if model.penalty not in ("quadratic", "total_variation"):
        raise Refusal(f"the penalty {model.penalty!r} is not known", "fit again")
    parts = _parts(model, categorical)
    signs = _signs(model, len(categorical))
    penalty = _penalty(model, parts, categorical, signs)
    w, b = _values(model, parts, k)
    more = (categorical, penalty, w, b, signs, tol_of(model))
    return Statement(loss, classes, parts, *more)


def _regressor(model: Any) -> Statement:
    if model.loss == "quantile":
        q = float(model.quantile)
        require(0 < q < 1, "quantile must be strictly between 0 and 1")
        return _read(model, t.Quantile(q), None)
    if model.loss not in _LOSSES:
        raise Refusal(
            f"the loss {model.loss!r} of additive models is not known",
            f"loss must be one of {', '.join(_LOSSES)}, quantile",
        )
    return _read(model, _LOSSES[model.loss], None)


def _classifier(model: Any) -> Statement:
    classes = np.asarray(model.classes_)
    loss = t.Logistic() if len(classes) == 2 else t.Softmax(len(classes))
    return _read(model, loss, classes)


READERS = {"AdditiveRegressor": _regressor, "AdditiveClassifier": _classifier}


# -- cells ------------------------------------------------------------------------


def cell_of(column: Array, axis: Array, categorical: bool) -> Array:
    """The cell of each value; 0 if it is missing, or a category that is not known."""
    if not categorical:
        found = np.digitize(column, axis) + 1
        found[np.isnan(column)] = 0
        return np.asarray(found)
    spot = np.searchsorted(axis, column)
    spot[spot == len(axis)] = 0
    known = np.zeros(len(column), dtype=bool) if not len(axis) else axis[spot] == column
    return np.where(known, spot + 1, 0)


def cells_of(stated: Statement, X: Array) -> list[Array]:
    """The cell of every row in each term, numbered within the term."""
    found = []
    for part in stated.parts:
        at: Any = 0
        for j, axis, size in zip(part.columns, part.axes, part.sizes):
            at = at * size + cell_of(X[:, j], axis, bool(stated.categorical[j]))
        found.append(np.asarray(at))
    return found


def one_hot(stated: Statement, X: Array) -> Any:
    """The design: a one in the cell of each term."""
    sizes = [int(np.prod(part.sizes)) for part in stated.parts]
    starts = np.concatenate([[0], np.cumsum(sizes)])
    places = np.column_stack(
        [start + at for start, at in zip(starts, cells_of(stated, X))]
    )
    ends = np.arange(0, places.size + 1, len(sizes))
    shape = (len(X), int(starts[-1]))
    return sparse.csr_array((np.ones(places.size), places.ravel(), ends), shape=shape)


# -- claims -----------------------------------------------------------------------


def check(model: Fit, stated: Statement, given: Given) -> Checked:
    """Judge shapes, edges and signs; the gap is primary."""
    X = data.dense(reading.as_matrix(given.X)).astype(np.float64)
    n, d = X.shape
    if d != len(stated.categorical):
        width = len(stated.categorical)
        raise ValueError(f"X has {d} columns, but the model was fitted on {width}.")
    weights = reading.weights(given.sample_weight, n)
    used = weights.s > 0
    y, target = _targets(stated, given.y, n)
    losses.check_targets(stated.loss, y[used])
    marks = data.marks_of(X, y.astype(float), given.sample_weight, holes=True)
    words = stated_linear.Statement(
        stated.loss, stated.penalty, target, tol=stated.tol, fix=_fix(model)
    )
    X = X[used]
    if not (np.isfinite(stated.w).all() and np.isfinite(stated.b).all()):
        detail = "the shapes hold NaN or infinite values"
        claim = deciding.impossible(GAP, stated.tol, detail, "fit again")
        return [claim], deciding.status_of(claim), marks
    space = Space(one_hot(stated, X), weights.s[used], True, 0.0, over_blocks)
    problem = Problem(
        *(stated.loss, stated.penalty, space, y[used], stated.w, stated.b, True),
        dual=_dual(stated, given, used),
    )
    gap, _ = worst_claim(GAP, words, [problem], given.level)
    claims = [gap, _edges_claim(stated, X)]
    if stated.monotone.any():
        claims.append(_monotone_claim(stated))
    status = deciding.verdict(claims)
    claims.append(_shape_claim(stated))
    return claims, status, marks


def _dual(stated: Statement, given: Given, used: Array) -> Array | None:
    """The fit's dual point, for a loss with kinks; the kernel moves it into its box."""
    if not isinstance(stated.loss, t.Quantile):
        return None
    if not isinstance(given.witness, LinearWitness) or given.witness.dual is None:
        return None
    dual = np.asarray(given.witness.dual)
    found = sound(dual.ravel() if dual.size == len(used) else dual, (len(used),))
    return None if found is None else found[used]


def _fix(model: Any) -> str:
    return f"max_iter={4 * int(model.max_iter)}, or a larger tol"


def _targets(stated: Statement, y: Any, n: int) -> tuple[Array, str]:
    if stated.classes is None:
        return reading.numbers(y, n), "numbers"
    codes = reading.codes(y, stated.classes, n)
    if len(stated.classes) == 2:
        return np.where(codes == 1, 1.0, -1.0), "signs"
    return codes, "codes"


def _edges_claim(stated: Statement, X: Array) -> Claim:
    """Every edge is halfway between neighbouring values, every category occurs."""
    wrong, total, sorted_of = 0, 0, {}
    for part in stated.parts:
        for j, axis in zip(part.columns, part.axes):
            if j not in sorted_of:
                sorted_of[j] = np.sort(X[~np.isnan(X[:, j]), j])
            values, total = sorted_of[j], total + len(axis)
            if stated.categorical[j]:
                wrong += int((~np.isin(axis, values)).sum())
                continue
            at = np.searchsorted(values, axis)
            inner = (at > 0) & (at < len(values))
            low, high = values[at[inner] - 1], values[at[inner]]
            middle = low / 2 + high / 2
            middle = np.where((low < middle) & (middle <= high), middle, high)
            wrong += int((~inner).sum()) + int((middle != axis[inner]).sum())
    return deciding.proved(
        "bin_edges",
        Number(float(wrong)),
        0.0,
        f"each of {total:,} edges lies halfway between two values of its column",
        missed=f"{wrong:,} of {total:,} edges do not lie halfway between two values",
        fix="fit again, or certify with the rows of the fit",
        theorem="compared with the sorted values of the rows; exact",
    )


def _monotone_claim(stated: Statement) -> Claim:
    """Signs of all differences of monotone columns, which may join no pair."""
    p, w = stated.penalty, stated.w.reshape(len(stated.w), -1)
    asked = p.signs != 0
    low, high = w[p.left[asked]], w[p.right[asked]]
    up = p.signs[asked][:, None] > 0
    wrong = int(np.where(up, high < low, high > low).sum())
    for part in stated.parts:
        wrong += len(part.columns) > 1 and bool(stated.monotone[[*part.columns]].any())
    wrong += int((stated.monotone[stated.categorical] != 0).sum())
    columns = data.named("column", np.flatnonzero(stated.monotone))
    return deciding.proved(
        "monotone_columns",
        Number(float(wrong)),
        0.0,
        f"the score is monotone in {columns}, for all values of the others",
        missed=f"the score is not monotone in {columns}: {wrong} steps are wrong",
        fix="fit again",
        theorem="a sum is monotone if the only shape with that column is; exact signs",
    )


def _shape_claim(stated: Statement) -> Claim:
    pairs = sum(len(part.columns) == 2 for part in stated.parts)
    text = (
        f"{len(stated.parts) - pairs} shapes and {pairs} pairs, {len(stated.w):,} cells"
    )
    return deciding.measured("shape", float(len(stated.w)), text)
