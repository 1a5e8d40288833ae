"""Which pairs of columns an additive model uses.

Each pair of columns is judged by how much a table of its coarse cells could lower the
loss in addition to the shapes: the sum of (slopes in a cell)²/(curvature in it), minus
what rows and columns of the table explain alone, minus the value expected by chance.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from certus.additive.cells import Term, categories_of, edges_of, place
from certus.additive.histogram_kernels import pair_gains
from certus.additive.layout import Additive
from certus.additive.newton import Run
from certus.base import check_number
from certus.objectives import Squared
from certus.typing import Array

#: Cells of a column in a pair; categories beyond this number keep a column out.
COARSE, CATEGORIES = 10, 32
#: Cells of a column while pairs are compared: fewer, so that chance explains less.
GLANCE = 5
#: Columns beyond which pairs are not looked for, and pairs at most by default.
COLUMNS, PAIRS = 150, 12


def find_pairs(
    model: Any, p: Additive, run: Run, X: Array, s: Array, categorical: Array
) -> list[Term]:
    """The terms of the chosen pairs."""
    d = X.shape[1]
    barred = np.zeros(d, dtype=bool)
    if model.monotonic_cst is not None:
        barred = np.asarray(model.monotonic_cst) != 0
    axes = [
        categories_of(X[:, j]) if categorical[j] else edges_of(X[:, j], s, COARSE)
        for j in range(d)
    ]
    given = model.interactions
    if isinstance(given, list | tuple) and not isinstance(given, str):
        return [_given_pair(pair, d, barred, axes) for pair in given]
    if given != "auto":
        check_number("interactions", given, integer=True)
    most = min(d, PAIRS) if given == "auto" else int(given)
    barred |= np.array(
        [
            len(axis) < 1 or (c and len(axis) > CATEGORIES)
            for axis, c in zip(axes, categorical)
        ]
    )
    open_columns = np.flatnonzero(~barred)
    if most == 0 or len(open_columns) < 2 or len(open_columns) > COLUMNS:
        return []
    glance = [
        axes[j] if categorical[j] else edges_of(X[:, j], s, GLANCE)
        for j in open_columns
    ]
    scores = _gains(p, run, X, s, glance, open_columns, categorical)
    order = np.argsort(-scores, axis=None, kind="stable")[:most]
    found = []
    for at in order:
        a, b = np.unravel_index(at, scores.shape)
        if scores[a, b] > 0:
            one, two = int(open_columns[a]), int(open_columns[b])
            found.append(Term((one, two), (axes[one], axes[two])))
    return found


def _given_pair(pair: Any, d: int, barred: Array, axes: list[Array]) -> Term:
    a, b = (int(j) for j in pair)
    if not (0 <= a < d and 0 <= b < d and a != b):
        raise ValueError(
            f"each pair of interactions must hold two different columns, got {pair!r}."
        )
    a, b = min(a, b), max(a, b)
    if barred[a] or barred[b]:
        raise ValueError(
            f"columns {a} and {b} cannot be a pair, because a column in monotonic_cst "
            "must not be in any pair. Leave out the pair or the constraint."
        )
    return Term((a, b), (axes[a], axes[b]))


def _gains(
    p: Additive,
    run: Run,
    X: Array,
    s: Array,
    axes: list[Array],
    columns: Array,
    categorical: Array,
) -> Array:
    """The gain of each pair in units of the noise, minus its degrees of freedom."""
    z = p.scores(run.w, run.b)
    value, u, state = p.slopes(z)
    codes = np.stack(
        [place(X[:, j], axis, bool(categorical[j])) for j, axis in zip(columns, axes)]
    ).astype(np.int32)
    sizes = np.array([int(c.max()) + 1 for c in codes])
    total = float(s.sum())
    noise = 2 * value if isinstance(p.loss, Squared) else 1.0
    out = np.zeros((len(columns),) * 2)
    for k in range(p.k):
        part = np.zeros_like(out)
        h = p.curvature(state, k) * total
        pair_gains(codes, sizes, np.ascontiguousarray(u[:, k] * total), h, 1.0, part)
        out += part
    free = np.outer(sizes - 1.0, sizes - 1.0) * max(1, p.k - 1)
    scores = out / max(noise, 1e-300) - free - 2 * np.sqrt(2 * free)
    scores[np.tril_indices(len(columns))] = -np.inf
    return np.asarray(scores)
