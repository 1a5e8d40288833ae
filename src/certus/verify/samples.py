"""Whether synthetic rows are copies: nearness to training rows, copies, membership.

Three tables: the training rows, held-out rows of the same distribution that the
generator never saw, and its synthetic rows.

- Each synthetic row votes for the real row nearest to it; ties share the vote. Rows
  i of the pool get wᵢ votes, and T = Σ wᵢ over training rows. If the synthetic rows do
  not depend on which rows of the pool were the training rows, T is the sum of wᵢ over
  a random subset: drawing such subsets gives an exact p-value, however synthetic rows
  depend on one another. The votes of any part of the rows that does not depend on the
  labels are off their mean by more than x with probability 2·exp(−2x²/Σwᵢ²) at most
  (membership in a random subset is negatively associated), hence the interval for what
  the others add.
- Copies are compared cell by cell, never by distances.
- Membership: of a training row that is picked at random and a new row, which one is
  nearer to a synthetic row? The held-out rows are independent draws, so the mean of
  their ranks among the training rows has an empirical Bernstein interval.
- A lower bound for pure ε: if each row was put among the training rows by a coin of its
  own, guesses at an ε-private generator's rows are right no more often than independent
  guesses with posterior odds e^ε times the prior ones.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from scipy.special import bdtrc
from scipy.stats import binom

from certus.certificate import Claim, Strength
from certus.typing import Array
from certus.verify.deciding import measured
from certus.verify.statistical import SURE, bernstein, hoeffding

#: Distances that are held at a time, and draws of random subsets.
CELLS, DRAWS = 1 << 21, 9_999
#: Levels of a column that distances tell apart; the others count as one.
LEVELS = 24
#: Most rows of each table whose distances are computed.
NEAR_ROWS = 20_000
#: Squared distances that differ by less are ties.
TIE = 1e-9
#: Largest excess share of votes for training rows that is accepted.
EXCESS = 0.05
#: Share of all rows about which membership is guessed, on either side.
GUESSED = 0.1
MORE = "use more held-out and synthetic rows, which makes the interval narrower"
SMOOTHER = "use a smoother generator, or more training rows"
EXCHANGEABLE = (
    "training and held-out rows were drawn alike, and split without regard to their "
    "values",
)


# -- reading --------------------------------------------------------------------------


class ReadColumn(NamedTuple):
    """A column of the three tables (training, held-out, synthetic).

    ``values`` are floats with NaN for missing numbers, None for labels; equal cells
    have equal ``codes``, and a missing cell is a level of its own.
    """

    name: str
    values: tuple[Array, Array, Array] | None
    codes: tuple[Array, Array, Array]


def read_columns(tables: Mapping[str, Any]) -> list[ReadColumn]:
    """The columns by name, each a triple of arrays of numbers or of labels."""
    found, sizes = [], None
    for name, parts in tables.items():
        arrays = [np.asarray(part) for part in parts]
        shape = [a.shape for a in arrays]
        if len(arrays) != 3 or any(len(s) != 1 or not s[0] for s in shape):
            raise ValueError(f"column {name!r} must have rows in all three tables.")
        if sizes is not None and shape != sizes:
            raise ValueError(f"column {name!r} has another number of rows.")
        sizes = shape
        found.append(_read_column(str(name), arrays))
    if not found:
        raise ValueError("the tables must have at least one column.")
    return found


def _read_column(name: str, arrays: list[Array]) -> ReadColumn:
    ends = np.cumsum([len(a) for a in arrays])[:-1]
    if all(a.dtype.kind in "iuf" for a in arrays):
        x = np.concatenate([a.astype(np.float64) for a in arrays])
        if np.isinf(x).any():
            raise ValueError(f"column {name!r} has infinite values.")
        _, codes = np.unique(x, return_inverse=True, equal_nan=True)
        first, second, third = np.split(x, ends)
        values = (first, second, third)
        return ReadColumn(name, values, tuple(np.split(codes, ends)))  # type: ignore[arg-type]
    cells = [plain_cell(cell) for a in arrays for cell in a.tolist()]
    levels = {cell: i for i, cell in enumerate(dict.fromkeys(cells))}
    codes = np.array([levels[cell] for cell in cells], dtype=np.int64)
    return ReadColumn(name, None, tuple(np.split(codes, ends)))  # type: ignore[arg-type]


def plain_cell(cell: Any) -> Any:
    """A label with its type, so that 1 and "1" differ; None if it is missing."""
    if cell is None or cell != cell:
        return None
    return type(cell).__name__, cell


# -- nearness -------------------------------------------------------------------------


def embed(columns: list[ReadColumn], chosen: tuple[Array, ...]) -> list[Array]:
    """Rows as points: two real rows differ by about 1 in each column, squared.

    Numbers become their rank among the real rows that were chosen, times √6; labels a
    corner of a simplex with sides of length 1.
    """
    parts: list[list[Array]] = [[], [], []]
    for column in columns:
        if column.values is None:
            points = _corners([c[i] for c, i in zip(column.codes, chosen)])
        else:
            points = _ranks([v[i] for v, i in zip(column.values, chosen)])
        for part, point in zip(parts, points):
            part.append(point)
    return [np.hstack(part) for part in parts]


def _ranks(values: list[Array]) -> list[Array]:
    pool = np.concatenate(values[:2])
    known = np.sort(pool[~np.isnan(pool)])
    gaps = [np.isnan(v).astype(float)[:, None] for v in values]
    some = any(g.any() for g in gaps)
    if not len(known):
        return gaps
    knots = np.unique(known)
    low, high = (np.searchsorted(known, knots, side) for side in ("left", "right"))
    heights = math.sqrt(6.0) * (low + high) / (2 * len(known))
    middle = math.sqrt(6.0) / 2
    points = [
        np.where(np.isnan(v), middle, np.interp(v, knots, heights))[:, None]
        for v in values
    ]
    return [np.hstack([p, g]) for p, g in zip(points, gaps)] if some else points


def _corners(codes: list[Array]) -> list[Array]:
    seen, counts = np.unique(np.concatenate(codes[:2]), return_counts=True)
    kept = seen[np.argsort(-counts, kind="stable")][:LEVELS]
    found = [(c[:, None] == kept).astype(float) for c in codes]
    other = [1.0 - f.sum(axis=1, keepdims=True) for f in found]
    whole = [np.hstack([f, o]) for f, o in zip(found, other)]
    used = np.any([w.any(axis=0) for w in whole], axis=0)
    if used.sum() == 2:  # one coordinate tells two levels apart
        return [w[:, used][:, :1] for w in whole]
    return [w[:, used] / math.sqrt(2.0) for w in whole]


def votes_of(pool: Array, synthetic: Array, kept: int) -> tuple[Array, Array]:
    """Votes for the first rows of the pool; how near each row is to a synthetic one.

    Squared distances come from one product for each block of synthetic rows.
    """
    n, norms = len(pool), np.square(pool).sum(axis=1)
    right = np.column_stack([-2.0 * pool, norms, np.ones(n)]).T.copy()
    votes, near = np.zeros(kept), np.full(n, np.inf)
    step = max(1, CELLS // n)
    room = np.empty((min(step, len(synthetic)), n))
    for start in range(0, len(synthetic), step):
        part = synthetic[start : start + step]
        own = np.square(part).sum(axis=1)
        left = np.column_stack([part, np.ones(len(part)), own])
        far = np.matmul(left, right, out=room[: len(part)])
        np.minimum(near, far.min(axis=0), out=near)
        least = far[:, :kept].min(axis=1)
        flat = np.flatnonzero(far <= least[:, None] + TIE)  # quicker than nonzero
        rows, places = np.divmod(flat, n)
        rows, places = rows[places < kept], places[places < kept]
        share = 1.0 / np.bincount(rows, minlength=len(part))
        votes += np.bincount(places, share[rows], kept)
    return votes, np.maximum(near, 0.0)


class Exchanged(NamedTuple):
    """A sum of votes over the training rows, beside sums over random subsets."""

    share: float  # of all votes
    expected: float  # share of the pool that are training rows
    above: float  # p-value: as much or more
    below: float  # p-value: as little or less
    half: float  # half of the interval for the excess share


def exchange(
    votes: Array, trained: Array, delta: float, rng: np.random.Generator
) -> Exchanged:
    """Compare the votes of the training rows with those of random subsets."""
    total, n, k = float(votes.sum()), len(votes), int(trained.sum())
    if not total > 0:
        return Exchanged(0.0, k / n, 1.0, 1.0, math.inf)
    weights, which = np.unique(votes, return_inverse=True)
    counts = np.bincount(which)
    drawn = rng.multivariate_hypergeometric(counts, k, DRAWS, method="marginals")
    sums = drawn @ weights
    own = float(np.bincount(which[trained], minlength=len(weights)) @ weights)
    slack = 1e-9 * total
    above, below = (
        (1 + int(np.sum(side))) / (DRAWS + 1)
        for side in (sums >= own - slack, sums <= own + slack)
    )
    spread = math.sqrt(float(np.square(votes).sum()) * math.log(2 / delta) / 2)
    half = spread / total * (1 + SURE)
    return Exchanged(own / total, k / n, above, below, half)


# -- claims ---------------------------------------------------------------------------


class Nearness(NamedTuple):
    """What is known about copying; from :func:`nearness`."""

    claims: tuple[Claim, ...]
    memorised: Exchanged
    copies: int
    copy_share: float
    holdout_copy_share: float
    copy_p: float
    auc: float
    auc_low: float
    auc_high: float


def nearness(
    columns: list[ReadColumn],
    *,
    delta: float = 0.05,
    coin: float | None = None,
    seed: int = 0,
) -> Nearness:
    """Claims about copying: memorised, exact copies, hold-out, membership, ε."""
    rng = np.random.default_rng(seed)
    sizes = [len(part) for part in columns[0].codes]
    n, made = sizes[0], np.sort(rng.permutation(sizes[2])[:NEAR_ROWS])
    # Drawn without regard to the labels, in an order that says nothing about them.
    drawn = rng.permutation(n + sizes[1])[: 2 * NEAR_ROWS]
    parts = drawn[drawn < n], drawn[drawn >= n] - n
    equal = min(len(part) for part in parts)
    if not equal:
        raise ValueError("real and holdout must both have rows.")
    first, second, synthetic = embed(columns, (*parts, made))
    pool = np.vstack([first[:equal], second[:equal], first[equal:], second[equal:]])
    votes, near = votes_of(pool, synthetic, 2 * equal)
    found = exchange(votes, np.arange(2 * equal) < equal, delta, rng)
    trained = np.zeros(len(pool), dtype=bool)
    trained[:equal] = trained[2 * equal : equal + len(first)] = True
    copy = _copies(columns, delta, rng)
    membership, auc = _membership(-near[trained], -near[~trained], delta)
    mixed = rng.permutation(len(pool))  # ties are broken without the labels
    claims = (
        _memorised_claim(found, equal, len(synthetic), delta),
        _copy_claim(copy, sizes, delta),
        _holdout_claim(found, delta),
        membership,
        _epsilon_claim(-near[mixed], trained[mixed], coin, delta),
    )
    return Nearness(claims, found, *copy, *auc)


def _memorised_claim(found: Exchanged, equal: int, rows: int, delta: float) -> Claim:
    excess = found.share - found.expected
    low, high = excess - found.half, excess + found.half
    met = True if high <= EXCESS else False if low > EXCESS else None
    told = (
        f"a training row is the nearest real row of {100 * found.share:.1f} % of the "
        f"rows (50 % if none were favoured; p = {found.above:.2g}); the excess is "
        f"between {100 * low:.1f} % and {100 * high:.1f} %"
    )
    return Claim(
        *("memorised", Strength.STATISTICAL, high, EXCESS, met),
        objective=f"share of {rows:,} synthetic rows whose nearest row, among "
        f"{equal:,} training rows and as many held-out rows, is a training row, − ½",
        theorem="p: the labels of real rows are exchanged at random, an exact test; "
        "interval: membership in a random subset is negatively associated, so votes "
        "that ignore the labels exceed their mean by x with probability at most "
        "exp(−2x²/Σw²)",
        assumptions=EXCHANGEABLE,
        delta=delta,
        detail=told,
        fix={True: "", None: MORE, False: SMOOTHER}[met],
    )


def _copies(
    columns: list[ReadColumn], delta: float, rng: np.random.Generator
) -> tuple[int, float, float, float]:
    """Synthetic rows that equal a training row, and shares; rows are compared."""
    rows = [np.column_stack([c.codes[k] for c in columns]) for k in range(3)]
    whole = np.ascontiguousarray(np.vstack(rows).astype(np.int32))
    _, ids = np.unique(
        whole.view([("", whole.dtype)] * whole.shape[1]).ravel(), return_inverse=True
    )
    n, m = len(rows[0]), len(rows[1])
    parts = ids[:n], ids[n : n + m], ids[n + m :]
    a, b, c = (np.bincount(part, minlength=ids.max() + 1) for part in parts)
    copies, known = int(c[a > 0].sum()), int(b[a > 0].sum())
    pool = np.concatenate(parts[:2])
    votes = (c / np.maximum(1, a + b))[pool]
    found = exchange(votes, np.arange(n + m) < n, delta, rng)
    return copies, copies / len(parts[2]), known / m, found.above


def _copy_claim(
    copy: tuple[int, float, float, float], sizes: list[int], delta: float
) -> Claim:
    copies, share, usual, p = copy
    met = True if share <= usual else False if p <= delta else None
    return Claim(
        *("exact_copies", Strength.STATISTICAL, share, usual, met),
        objective="share of synthetic rows that equal a training row in every cell; "
        "the target is that of the held-out rows",
        theorem="rows were compared cell by cell; p: the labels of real rows are "
        "exchanged at random, an exact test",
        assumptions=EXCHANGEABLE,
        delta=delta,
        detail=f"{copies:,} of {sizes[2]:,} synthetic rows equal a training row "
        f"({100 * share:.2g} %; of the held-out rows {100 * usual:.2g} %; p = {p:.2g})",
        fix="" if met else SMOOTHER,
    )


def _holdout_claim(found: Exchanged, delta: float) -> Claim:
    high = found.share - found.expected + found.half
    met = bool(high >= 0)
    told = "synthetic rows do not favour the held-out rows"
    if not met:
        told = (
            "synthetic rows lie nearer to the held-out rows than to the training rows "
            f"(p = {found.below:.2g}): the generator has seen the held-out rows"
        )
    return Claim(
        *("holdout_unseen", Strength.STATISTICAL, -high, 0.0, met),
        objective="½ − share of votes for training rows, from below",
        theorem="as for memorised",
        assumptions=EXCHANGEABLE,
        delta=delta,
        detail=told,
        fix="" if met else "check that real and holdout are not swapped",
    )


def _membership(
    inside: Array, outside: Array, delta: float
) -> tuple[Claim, tuple[float, float, float]]:
    """The AUC of nearness, over new rows beside these training rows."""
    ordered, n = np.sort(inside), len(outside)
    low, high = (np.searchsorted(ordered, outside, s) for s in ("left", "right"))
    ranks = 1.0 - (low + high) / (2.0 * len(inside))  # training rows that are nearer
    auc = float(ranks.mean())
    variance = float(np.var(ranks, ddof=1)) if n > 1 else 0.25
    # Chosen by n alone, so that the interval is not the better of two.
    wide = bernstein(n, delta, variance)
    if bernstein(n, delta, 1 / 12) >= hoeffding(n, delta):
        wide = hoeffding(n, delta)
    ends = max(0.0, auc - wide), min(1.0, auc + wide)
    claim = Claim(
        *("membership", Strength.STATISTICAL, ends[1], None, True),
        objective="P(a training row is nearer to a synthetic row than a new row is)",
        theorem="empirical Bernstein or Hoeffding, for the ranks of held-out rows "
        "among these training rows",
        assumptions=(
            "held-out rows are independent draws that the generator never saw",
        ),
        delta=delta,
        detail=f"telling a training row from a new one by nearness: AUC {auc:.3f}, "
        f"between {ends[0]:.3f} and {ends[1]:.3f} (0.5 is guessing)",
    )
    return claim, (auc, *ends)


def _epsilon_claim(
    score: Array, trained: Array, coin: float | None, delta: float
) -> Claim:
    """A lower bound for ε from guesses at the rows with the clearest scores."""
    k = max(1, int(GUESSED * len(score) / 2))
    order = np.argsort(score, kind="stable")
    right = int(trained[order[-k:]].sum()) + int((~trained[order[:k]]).sum())
    told = f"{right:,} of {2 * k:,} guesses about membership are right"
    if coin is None:
        return measured(
            *("epsilon_floor", None),
            f"{told}; no bound for ε follows, because the rows were not split by "
            "independent coins",
        )
    floor = epsilon_floor(right, k, coin, delta)
    return Claim(
        *("epsilon_floor", Strength.STATISTICAL, floor, None, True),
        objective="the largest ε for which a generator with pure ε-differential "
        "privacy is refuted by this many right guesses",
        theorem="given the synthetic rows and the other coins, the odds of a coin are "
        "at most e^ε times the prior odds; so right guesses are stochastically fewer "
        "than those of independent guesses at these odds",
        assumptions=(
            f"each row became a training row by a coin of its own ({coin:g})",
        ),
        delta=delta,
        detail=f"{told}: no claim of ε below {floor:.2f} can be true",
    )


def epsilon_floor(right: int, k: int, coin: float, delta: float) -> float:
    """The ε below which this many right guesses out of 2k have probability ≤ δ."""

    def tail(epsilon: float) -> float:
        inside = coin / (coin + (1 - coin) * math.exp(-epsilon))
        outside = (1 - coin) / (1 - coin + coin * math.exp(-epsilon))
        counts = np.arange(k + 1)
        need = right - counts - 1  # more than this many of the others
        rest = np.where(need < 0, 1.0, bdtrc(np.clip(need, 0, k), k, outside))
        rest = np.where(need >= k, 0.0, rest)
        return float(binom.pmf(counts, k, inside) @ rest)

    if tail(0.0) > delta:
        return 0.0
    low, high = 0.0, 1.0
    while tail(high) <= delta and high < 64:
        low, high = high, 2 * high
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if tail(middle) <= delta else (low, middle)
    return low
