"""Contributions of columns to predictions: that they add up, and are the right ones.

    v(S) = mean over background rows b of f(x on the columns S, b on the others)
    base = v(∅),  base + Σ_j φ_j = f(x),  φ_j the Shapley values of v

f is what the model itself answers. That contributions add up is checked for every row.
Which column has how much is checked by a formula of the verifier's own: in closed form
for linear models, over the leaves for trees, and otherwise by the definition for as
many rows as the budget of mixed rows allows. Rounding is bounded and added.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse, stats

from certus.certificate import Claim, Status, Strength
from certus.fingerprints import of_rows
from certus.typing import Array
from certus.verify.deciding import Number, gamma, proved, refused, status_of
from certus.verify.explained_additive import term_shares
from certus.verify.explained_mixing import Played, answers, by_columns, mixer, taken
from certus.verify.explained_trees import cost, tree_shares

#: Mixed rows that a check by the definition may ask for, by level.
BUDGET = {"quick": 20_000, "full": 20_000_000}
#: Cells (row, background row, leaf or term) that a check by sums may look at.
CELLS = {"quick": 5_000_000, "full": 10_000_000_000}
#: Rows that are read at a time.
PART = 1024
#: How far sums may be off, as a share of the largest answer; by precision of the model.
TOLERANCE = {"float64": 1e-9, "float32": 1e-5}
_GAME = "v(S) = mean over {} background rows of f(row on S, background elsewhere)"
_SETS = "φ_j is the mean, over all orders of the columns, of what column j adds"


class ToldShares(NamedTuple):
    """What is claimed: contributions (rows × columns × outputs), base, and how.

    ``way`` is "linear", "additive", "trees", "sets" (the definition) or "orders"
    (sampled, with the ``orders`` drawn and the standard ``errors``).
    """

    values: Array
    base: Array
    method: str
    way: str
    errors: Array | None = None
    orders: Array | None = None
    delta: float = 0.05


def explained_claims(
    told: ToldShares,
    played: Played,
    *,
    tol: float | None = None,
    level: str = "quick",
) -> tuple[list[Claim], Status, dict[str, Any]]:
    """The claims about contributions, the status, and the fingerprint of the rows.

    Parameters
    ----------
    told : ToldShares
        What was computed elsewhere, and is not trusted.
    played : Played
        The model, the rows, the background and what the innermost model sees of them.
    tol : float, optional
        Largest share of the largest answer by which sums may be off.
    level : {"quick", "full"}
        How many rows are compared with the definition.
    """
    n, m = len(played.X), len(played.background)
    f, precision = answers(played.model, told.method, played.X)
    behind, _ = answers(played.model, told.method, played.background)
    tol = TOLERANCE[precision] if tol is None else tol
    shape = (n, told.values.shape[1], f.shape[1])
    marks = of_rows(played.X, None, np.ones(n), holes=True)
    marks["background"] = of_rows(played.background, None, np.ones(m), holes=True)
    if told.values.shape != shape or told.base.shape != f.shape[1:]:
        said = (
            f"there are contributions of shape {told.values.shape}, but the model "
            f"answers with {f.shape[1]} outputs for {n} rows"
        )
        lost = [refused("additivity", said, "explain this model and these rows again")]
        return lost, Status.UNDECIDED, marks
    scale = np.maximum(np.abs(f).max(axis=0), np.abs(behind).max(axis=0))
    if told.method not in ("predict", "log", "call"):  # classes have one unit
        scale = np.full_like(scale, scale.max())
    claims = [
        _additivity(told, f, scale, tol, m),
        _base(told, behind, scale, tol),
        *_values(told, played, behind, scale, tol, level),
    ]
    missed = any(claim.met is False for claim in claims)
    status = Status.TOL_NOT_REACHED if missed else status_of(claims[0])
    return claims, status, marks


def _worst(off: Array, rounding: Array, scale: Array) -> Number:
    """The largest number of a row of outputs, as a share of the largest answer."""
    found = [
        Number.share(float(a), float(r), float(s))
        for a, r, s in zip(off, rounding, scale)
    ]
    return max(found, key=lambda number: number.most)


def _additivity(told: ToldShares, f: Array, scale: Array, tol: float, m: int) -> Claim:
    n, d, _ = told.values.shape
    total, size, ones = np.empty_like(f), np.abs(told.base) + np.abs(f), np.ones(d)
    for i in range(0, n, PART):  # rows that stay in the cache
        for c in range(f.shape[1]):
            part = told.values[i : i + PART, :, c]
            total[i : i + PART, c] = part @ ones + told.base[c]
            size[i : i + PART, c] += np.abs(part) @ ones
    off = np.abs(total - f)
    off = np.where(np.isnan(off), np.inf, off)
    size = np.where(np.isfinite(off), size, 0.0)
    found = _worst(off.max(axis=0), gamma(d + 3) * size.max(axis=0), scale)
    row = int(off.max(axis=1).argmax())
    return proved(
        *("additivity", found, tol),
        f"base value and contributions add up to the prediction in each of {n:,} rows, "
        f"to {found.most:.1e} of the largest one",
        missed=f"base value and contributions of row {row} miss the prediction by "
        f"{found.value:.1e} of the largest one",
        fix="explain again with the model as it is now, and the same background",
        objective=_GAME.format(m),
        theorem="the sums are computed again, with all rounding bounded",
    )


def _base(told: ToldShares, behind: Array, scale: Array, tol: float) -> Claim:
    m = len(behind)
    off = np.abs(behind.mean(axis=0) - told.base)
    rounding = gamma(m + 2) * np.abs(behind).mean(axis=0) + gamma(2) * np.abs(told.base)
    found = _worst(off, rounding, scale)
    return proved(
        *("base_value", found, tol),
        f"the base value is the mean answer for {m:,} background rows",
        missed=f"the mean answer for the {m:,} background rows is not the base value: "
        f"it is off by {found.value:.1e} of the largest one",
        fix="pass the background rows of the explanation",
    )


def _values(
    told: ToldShares,
    played: Played,
    behind: Array,
    scale: Array,
    tol: float,
    level: str,
) -> list[Claim]:
    """Whether each column has its own share."""
    name = "contributions"
    if played.encoder is not None and played.owner is not None:
        apart = by_columns(played)
        if apart is not None:
            fix = "explain the pipeline without an encoder that mixes columns"
            return [refused(name, apart, fix)]
    if told.way == "linear":
        return [_linear(told, played, scale, tol)]
    if told.way in ("trees", "additive"):
        return [_summed(told, played, scale, tol, level)]
    if told.way == "orders" and told.orders is not None:
        return _drawn(told, played, scale, tol, level)
    return [_defined(told, played, scale, tol, level)]


# -- linear models ------------------------------------------------------------------


def _linear(told: ToldShares, played: Played, scale: Array, tol: float) -> Claim:
    name, n = "contributions", len(played.X)
    W = np.atleast_2d(np.asarray(played.inner.coef_, dtype=np.float64))
    rows, behind, owner = played.rows, played.behind, np.asarray(played.owner)
    d, k = told.values.shape[1:]
    if W.shape != (k, rows.shape[1]) or len(owner) != rows.shape[1]:
        return refused(name, "the coefficients do not fit the columns", "explain again")
    m = behind.shape[0]
    centre = np.asarray(behind.mean(axis=0)).ravel()
    spread = np.asarray(abs(behind).mean(axis=0)).ravel()
    size, off = np.zeros(len(owner)), np.zeros(k)
    group = sparse.csr_array(
        (np.ones(len(owner)), (owner, np.arange(len(owner)))), shape=(d, len(owner))
    )
    for i in range(0, n, PART):
        part, values = rows[i : i + PART], told.values[i : i + PART]
        top = abs(part).max(axis=0)
        top = top.toarray().ravel() if sparse.issparse(top) else top
        size = np.maximum(size, top)
        for k_, w in enumerate(W):
            gap = _shares(part, centre, w, owner, d) - values[:, :, k_]
            worst = float(np.abs(gap).max())
            off[k_] = np.inf if math.isnan(worst) else max(off[k_], worst)
    per_column = group @ (np.abs(W) * (size + spread)).T  # (d, k)
    rounding = gamma(m + len(owner) + 6) * per_column.max(axis=0)
    found = _worst(off, rounding, scale)
    return proved(
        *(name, found, tol),
        f"each contribution in all {n:,} rows is coefficient × (value − background "
        f"mean), to {found.most:.1e} of the largest prediction",
        missed="a contribution is not coefficient × (value − background mean): it is "
        f"off by {found.value:.1e} of the largest prediction",
        fix="explain again with the model as it is now",
        objective="φ_j = w_j (x_j − mean of background x_j), summed over the encoded "
        "columns of j",
        theorem="the Shapley values of a sum are the differences of its terms",
    )


def _shares(rows: Any, centre: Array, w: Array, owner: Array, d: int) -> Array:
    """w_e (x_e − c_e), summed over the encoded columns of each column."""
    if sparse.issparse(rows):
        terms = sparse.csr_array(rows.multiply(w))
        sums = sparse.csr_array(
            (np.ones(len(owner)), (np.arange(len(owner)), owner)), shape=(len(owner), d)
        )
        moved = np.bincount(owner, weights=w * centre, minlength=d)
        return np.asarray((terms @ sums).toarray() - moved)
    terms = rows * w - w * centre
    if len(owner) == d and (owner == np.arange(d)).all():
        return np.asarray(terms)
    found = np.zeros((len(rows), d))
    for e, j in enumerate(owner):
        found[:, j] += terms[:, e]
    return found


# -- by the definition --------------------------------------------------------------


def _defined(
    told: ToldShares, played: Played, scale: Array, tol: float, level: str
) -> Claim:
    n, d, k = told.values.shape
    m, name = len(played.background), "contributions"
    each = m << d if d <= 20 else math.inf
    count = int(min(n, BUDGET[level] // each)) if each < math.inf else 0
    if count == 0:
        return refused(
            name,
            f"comparing one row with the definition asks the model about {m:,} × 2^{d} "
            "rows, more than this level allows",
            "certify(level='full'), or a smaller background",
        )
    ask = mixer(played, told.method)
    if ask is None:
        return _no_mixing(name)
    chosen = np.unique(np.linspace(0, n - 1, count).astype(int))
    off, rounding = np.zeros(k), np.zeros(k)
    for i in chosen:
        expected, size = _by_sets(ask, int(i), d)
        off = np.maximum(off, np.abs(expected - told.values[i]).max(axis=0))
        rounding = np.maximum(rounding, gamma(m + (1 << d) + 8) * size.max(axis=0))
    found = _worst(np.where(np.isnan(off), np.inf, off), rounding, scale)
    return proved(
        *(name, found, tol),
        f"the contributions in {len(chosen):,} of {n:,} rows are those of the "
        f"definition, to {found.most:.1e} of the largest prediction",
        missed="the contributions are not those of the definition: they are off by "
        f"{found.value:.1e} of the largest prediction",
        fix="explain again with the model as it is now, and the same background",
        objective=_GAME.format(m),
        theorem=_SETS,
    )


def _no_mixing(name: str) -> Claim:
    return refused(
        name,
        "mixed rows of this kind of table cannot be built again",
        "pass rows and background as an array, or as a pandas or polars frame",
    )


def _by_sets(ask: Callable[[int, Array], Array], i: int, d: int) -> tuple[Array, Array]:
    """φ of row i as a sum over all sets, and the sum of the sizes of its terms."""
    masks = ((np.arange(1 << d)[:, None] >> np.arange(d)) & 1).astype(bool)
    v = ask(i, masks).mean(axis=1)  # (sets, k)
    size = masks.sum(axis=1)
    found, sizes = [], []
    for j in range(d):
        without = np.flatnonzero(~masks[:, j])
        weight = np.array([1.0 / (d * math.comb(d - 1, int(s))) for s in size[without]])
        upper, lower = v[without + (1 << j)], v[without]
        found.append(weight @ (upper - lower))
        sizes.append(weight @ (np.abs(upper) + np.abs(lower)))
    return np.array(found), np.array(sizes)


# -- sampled orders -----------------------------------------------------------------


def _drawn(
    told: ToldShares, played: Played, scale: Array, tol: float, level: str
) -> list[Claim]:
    """Repeat the recorded orders for some rows; an interval from their spread."""
    orders = np.asarray(told.orders)
    (n, d, k), T, m = told.values.shape, len(orders), len(played.background)
    name = "contributions"
    ask = mixer(played, told.method)
    if ask is None:
        return [_no_mixing(name)]
    count = int(np.clip(BUDGET[level] // (2 * T * m * (d + 1)), 1, n))
    chosen = np.unique(np.linspace(0, n - 1, count).astype(int))
    off, width, rounding = np.zeros(k), np.zeros(k), np.zeros(k)
    sure = float(stats.t.ppf(1 - told.delta / (2 * n * d * k), T - 1))
    for i in chosen:
        draws = np.array([_one_draw(ask, int(i), order) for order in orders])
        mean, spread = draws.mean(axis=0), draws.std(axis=0, ddof=1)
        off = np.maximum(off, np.abs(mean - told.values[i]).max(axis=0))
        width = np.maximum(width, sure * spread.max(axis=0) / math.sqrt(T))
        size = np.abs(draws).max(axis=(0, 1)) + scale
        rounding = np.maximum(rounding, gamma(m + T + 8) * 2 * size)
    found = _worst(np.where(np.isnan(off), np.inf, off), rounding, scale)
    replay = proved(
        *("replayed_orders", found, tol),
        f"the {T:,} recorded orders give the same contributions again, in "
        f"{len(chosen):,} of {n:,} rows",
        missed="the recorded orders give other contributions: they are off by "
        f"{found.value:.1e} of the largest prediction",
        fix="explain again with the model as it is now, and the same background",
    )
    share = max(
        (float(w / s) if s > 0 else 0.0 for w, s in zip(width, scale)), default=0.0
    )
    interval = Claim(
        *(name, Strength.STATISTICAL, share),
        objective=_GAME.format(m),
        theorem="Student's t over independent draws, with a union bound over rows, "
        "columns and outputs",
        assumptions=(
            f"the orders were drawn at random, and the mean of {T} draws is close to "
            "normal",
        ),
        delta=told.delta,
        detail=f"the contributions in {len(chosen):,} of {n:,} rows are within "
        f"±{share:.2g} of the largest prediction, by {T:,} sampled orders",
    )
    return [replay, interval]


def _one_draw(ask: Callable[[int, Array], Array], i: int, order: Array) -> Array:
    """The mean of an order and its reverse: what each column adds."""
    d = len(order)
    found: list[Array] = []
    for way in (order, order[::-1]):
        place = np.empty(d, dtype=int)
        place[way] = np.arange(d)
        masks = place[None, :] < np.arange(d + 1)[:, None]
        v = ask(i, masks).mean(axis=1)
        found.append(v[place + 1] - v[place])
    return np.asarray((found[0] + found[1]) / 2)


# -- trees and additive models ------------------------------------------------------

_LEAVES = (
    "a leaf that p columns of the row and q of the background row open has Shapley "
    "values (p − 1)! q! / (p + q)! and −p! (q − 1)! / (p + q)!"
)
_TERMS = "the Shapley values of a sum are the sums of those of its terms"


def _summed(
    told: ToldShares, played: Played, scale: Array, tol: float, level: str
) -> Claim:
    """Compare some rows with the sums over leaves, or over terms."""
    name, n = "contributions", len(played.X)
    (d, k), m = told.values.shape[1:], len(played.background)
    owner = np.asarray(played.owner)
    fits = _fits(told, played, owner)
    if not fits:
        return refused(name, "the model has other parts than before", "explain again")
    each = cost(played.trees, m) if told.way == "trees" else 8 * fits * m * k
    count = int(np.clip(CELLS[level] // each, 1, n))
    chosen = np.unique(np.linspace(0, n - 1, count).astype(int))
    rows, behind = played.rows[chosen], played.behind
    if told.way == "trees":
        expected, sizes, scores, added = tree_shares(
            played.trees, rows, behind, owner, d
        )
    else:
        expected, sizes, scores = term_shares(played.inner, rows, behind, owner, d, k)
        added = 8 * fits + m
    f, _ = answers(played.inner, told.method, _at(played, chosen))
    off = np.abs(expected - told.values[chosen]).max(axis=(0, 1))
    off = np.maximum(np.where(np.isnan(off), np.inf, off), np.abs(scores - f).max(0))
    rounding = gamma(added + 16) * (sizes.max(axis=(0, 1)) + scale)
    found = _worst(off, rounding, scale)
    what = "leaves of the trees" if told.way == "trees" else "terms of the model"
    return proved(
        *(name, found, tol),
        f"the contributions in {len(chosen):,} of {n:,} rows are the sums over all "
        f"{what}, to {found.most:.1e} of the largest prediction",
        missed=f"the contributions are not the sums over the {what}: they are off by "
        f"{found.value:.1e} of the largest prediction",
        fix="explain again with the model as it is now, and the same background",
        objective=_GAME.format(m),
        theorem=_LEAVES if told.way == "trees" else _TERMS,
    )


def _fits(told: ToldShares, played: Played, owner: Array) -> int:
    """How many leaves or terms there are; 0 if they do not fit the answers."""
    k = told.values.shape[2]
    if played.rows is None or played.rows.shape[1] != len(owner):
        return 0
    if told.way == "trees":
        trees = played.trees
        fits = trees is not None and len(trees.baseline) == k
        return len(trees.feature) if fits and trees.n_features == len(owner) else 0
    model = played.inner
    if not hasattr(model, "terms_") or len(np.atleast_1d(model.intercept_)) != k:
        return 0
    return len(model.terms_) + 1


def _at(played: Played, chosen: Array) -> Any:
    """Some rows, in the form that the inner model takes."""
    if played.encoder is None:
        return taken(played.X, chosen)
    return played.encoder(taken(played.X, chosen))
