"""How far synthetic rows are from new rows in distribution, and what it costs.

p is the distribution of new rows, q that of the generator; n held-out and m synthetic
rows.

- Columns and pairs. D(p̂, q̂), a supremum of differences of probabilities, is convex,
  so D(p, q) ≤ E D(p̂, q̂); one row changes it by 1/n or 1/m at most. Hence
  D(p, q) ≤ D(p̂, q̂) + √(½·ln(1/δ)·(1/n + 1/m)) (McDiarmid), for any number of levels.
  From below: DKW for numbers, and E‖p̂ − p‖₁ ≤ √((k − 1)/n) for k cells.
- Told apart: if a classifier is right with probability a on an equal mixture, then
  TV(p, q) ≥ 2a − 1. Right answers on two equal groups are at most as scattered as a
  binomial number (Hoeffding 1956), so Clopper–Pearson holds.
- Useful: losses of two models on the same held-out rows, cut to [0, 1]; an interval
  for the mean of their differences.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np
from scipy.special import betaincinv

from certus.certificate import Claim, Strength
from certus.typing import Array
from certus.verify.deciding import refused
from certus.verify.samples import (
    Nearness,
    ReadColumn,
    nearness,
    plain_cell,
    read_columns,
)
from certus.verify.statistical import SURE, bernstein, hoeffding

#: Cells of a column in the tables of pairs; numbers are cut at training quantiles.
PAIR_CELLS = 5
DRAWN = (
    "held-out rows are independent draws that the generator never saw, and synthetic "
    "rows independent draws of the generator",
)


class Distance(NamedTuple):
    """How far two distributions are apart in one column or one pair, with its band."""

    name: str
    kind: str
    value: float
    low: float
    high: float


def upper(n: int, m: int, tail: float) -> float:
    """√(½·ln(1/δ)·(1/n + 1/m)), as McDiarmid has it."""
    return math.sqrt(-0.5 * math.log(tail) * (1 / n + 1 / m)) * (1 + SURE)


def lower(n: int, m: int, tail: float, cells: int | None) -> float:
    """What chance alone may add to a distance; ``cells`` is None for numbers."""
    if cells is None:
        return hoeffding(n, tail / 2) + hoeffding(m, tail / 2)
    chance = 0.5 * sum(math.sqrt((cells - 1) / size) for size in (n, m))
    return chance + upper(n, m, tail)


# -- columns and pairs ----------------------------------------------------------------


def column_distances(columns: list[ReadColumn], delta: float) -> list[Distance]:
    """The largest difference of two distribution functions, or total variation."""
    tail = delta / (2 * len(columns))
    return [_column_distance(column, tail) for column in columns]


def _column_distance(column: ReadColumn, tail: float) -> Distance:
    n, m = (len(part) for part in column.codes[1:])
    if column.values is None:
        kind, value = "labels", _total_variation(*column.codes[1:])
        # Levels that training rows lack count as one: k must not depend on the rows.
        levels = np.unique(column.codes[0])
        at = (np.searchsorted(levels, part) for part in column.codes[1:])
        coarse = [
            np.where(np.isin(part, levels), place, len(levels))
            for part, place in zip(column.codes[1:], at)
        ]
        low = _total_variation(*coarse) - lower(n, m, tail, len(levels) + 1)
    else:
        kind = "numbers"
        a, b = (np.sort(np.nan_to_num(v, nan=-np.inf)) for v in column.values[1:])
        both = np.concatenate([a, b])
        F, G = (np.searchsorted(v, both, "right") / len(v) for v in (a, b))
        value = float(np.abs(F - G).max())
        low = value - lower(n, m, tail, None)
    high = min(1.0, value + upper(n, m, tail))
    return Distance(column.name, kind, value, max(0.0, low), high)


def _total_variation(a: Array, b: Array) -> float:
    size = int(max(a.max(), b.max())) + 1
    p, q = (np.bincount(part, minlength=size) / len(part) for part in (a, b))
    return float(np.abs(p - q).sum() / 2)


def cells_of(column: ReadColumn) -> tuple[Array, Array]:
    """A few cells of held-out and synthetic rows, chosen by the training rows alone."""
    if column.values is None:
        levels, counts = np.unique(column.codes[0], return_counts=True)
        kept = np.sort(levels[np.argsort(-counts, kind="stable")][: PAIR_CELLS - 1])
        first, second = (
            np.where(
                np.isin(part, kept),
                np.searchsorted(kept, np.clip(part, kept[0], kept[-1])),
                PAIR_CELLS - 1,
            )
            for part in column.codes[1:]
        )
        return first, second
    train = column.values[0][~np.isnan(column.values[0])]
    shares = np.arange(1, PAIR_CELLS) / PAIR_CELLS
    cuts = np.unique(np.quantile(train, shares)) if len(train) else np.zeros(0)
    first, second = (
        np.where(np.isnan(part), PAIR_CELLS, np.searchsorted(cuts, part, "left"))
        for part in column.values[1:]
    )
    return first, second


def pair_distances(columns: list[ReadColumn], delta: float) -> list[Distance]:
    """Total variation of the tables of all pairs, of five cells and missing each."""
    cells = [cells_of(column) for column in columns]
    pairs = list(combinations(range(len(columns)), 2))
    tail, wide = delta / (2 * max(1, len(pairs))), PAIR_CELLS + 1
    found = []
    for i, j in pairs:
        a, b = (cells[i][k] * wide + cells[j][k] for k in (0, 1))
        value, (n, m) = _total_variation(a, b), (len(a), len(b))
        low = value - lower(n, m, tail, wide * wide)
        high = min(1.0, value + upper(n, m, tail))
        name = f"{columns[i].name} × {columns[j].name}"
        found.append(Distance(name, "pair", value, max(0.0, low), high))
    return found


def distance_claim(
    name: str, found: list[Distance], what: str, formula: str, delta: float
) -> Claim:
    """The worst of several distances, all of which hold at once."""
    if not found:
        return refused(name, f"there are no {what}s to compare", "add a column")
    worst = max(found, key=lambda each: (each.low, each.high))
    high = max(each.high for each in found)
    one = f"the {what}" if len(found) == 1 else f"each of {len(found)} {what}s"
    return Claim(
        *(name, Strength.STATISTICAL, high, None, True, formula),
        "McDiarmid from above, DKW or the mean of an L1 distance from below; union "
        f"bound over {len(found)} {what}s",
        assumptions=DRAWN,
        delta=delta,
        detail=f'{one} agrees within {high:.3f}; the worst, "{worst.name}", differs by '
        f"between {worst.low:.3f} and {worst.high:.3f}",
    )


def law_claims(
    columns: list[ReadColumn], delta: float
) -> tuple[tuple[Claim, Claim], list[Distance], list[Distance]]:
    """Columns agree, pairs agree, and the distances themselves."""
    single, double = column_distances(columns, delta), pair_distances(columns, delta)
    claims = (
        distance_claim(
            *("columns_agree", single, "column"),
            *("max |F − G| of numbers, total variation of labels, by column", delta),
        ),
        distance_claim(
            *("pairs_agree", double, "pair"),
            *("total variation of tables with at most 6 × 6 cells, by pair", delta),
        ),
    )
    return claims, single, double


# -- told apart -----------------------------------------------------------------------


def told_apart_claim(real: Any, synthetic: Any, delta: float) -> tuple[Claim, float]:
    """TV ≥ 2a − 1 from scores of fresh rows: above ½ means "real"; also the AUC.

    The classifier must not have seen these rows, which are as many of each kind.
    """
    a, b = (
        np.asarray(scores, dtype=np.float64).ravel() for scores in (real, synthetic)
    )
    n = len(a)
    if n != len(b) or not n or not np.isfinite(np.concatenate([a, b])).all():
        raise ValueError("scores must be finite, for as many real as synthetic rows.")
    right = int(np.sum(a > 0.5) + np.sum(b <= 0.5))
    least = (
        float(betaincinv(right, 2 * n - right + 1, delta * (1 - SURE))) if right else 0
    )
    floor = max(0.0, 2 * least - 1)
    ordered = np.sort(b)
    auc = float(sum(np.searchsorted(ordered, a, s).mean() for s in ("left", "right")))
    auc /= 2 * n
    told = (
        f"a classifier tells {50 * right / n:.1f} % of {2 * n:,} rows correctly (AUC "
        f"{auc:.3f}): total variation is at least {floor:.3f}"
    )
    claim = Claim(
        *("told_apart", Strength.STATISTICAL, floor, None, True),
        objective="TV(new rows, synthetic rows) ≥ 2·accuracy − 1, from below",
        theorem="no test between two samples is right more often than (1 + TV)/2; "
        "Clopper–Pearson, which Hoeffding's theorem of 1956 extends to two groups",
        assumptions=DRAWN,
        delta=delta,
        detail=told,
    )
    return claim, auc


# -- useful ---------------------------------------------------------------------------


class Usefulness(NamedTuple):
    """Scores (accuracy or R²) and mean losses of both models, and the interval."""

    real_score: float
    synthetic_score: float
    low: float
    high: float


def useful_claim(
    name: str, train: Any, holdout: Any, real: Any, synthetic: Any, delta: float
) -> tuple[Claim, Usefulness]:
    """What predictions cost that were learnt from synthetic rows.

    ``train`` and ``holdout`` are the target of training and held-out rows, ``real`` and
    ``synthetic`` predictions of the held-out rows; numbers, or labels.
    """
    parts = [np.asarray(part) for part in (train, holdout, real, synthetic)]
    if all(part.dtype.kind in "iuf" for part in parts):
        losses, scores, what, score = _number_losses(parts)
    else:
        losses, scores, what, score = _label_losses(parts)
    change = losses[1] - losses[0]
    n, mean = len(change), float(change.mean())
    variance = float(np.var(change / 2, ddof=1)) if n > 1 else 0.25
    wide = 2 * bernstein(n, delta, variance)
    if bernstein(n, delta, 0.01) >= hoeffding(n, delta):  # by n alone
        wide = 2 * hoeffding(n, delta)
    ends = max(-1.0, mean - wide), min(1.0, mean + wide)
    claim = Claim(
        *("useful", Strength.STATISTICAL, ends[1], None, True),
        objective=f"mean of the difference of two losses ({what}): model learnt from "
        "synthetic rows − the same model learnt from training rows",
        theorem="empirical Bernstein or Hoeffding, for paired losses of held-out rows",
        assumptions=("held-out rows are independent draws that no model has seen",),
        delta=delta,
        detail=f'predicting "{name}" of {n:,} held-out rows: {score} {scores[1]:.3f} '
        f"learnt from synthetic rows, {scores[0]:.3f} from real rows; the loss grows "
        f"by between {ends[0]:.3f} and {ends[1]:.3f}",
    )
    return claim, Usefulness(scores[0], scores[1], *ends)


def _number_losses(
    parts: list[Array],
) -> tuple[list[Array], list[float], str, str]:
    train, hold, *said = (part.astype(np.float64) for part in parts)
    keep, known = ~np.isnan(hold), train[~np.isnan(train)]
    if not keep.any() or not len(known):
        raise ValueError("the target must be known in some rows of both tables.")
    hold, said = hold[keep], [p[keep] for p in said]
    low, high = np.quantile(known, [0.025, 0.975]).tolist()
    scale = (high - low) or 1.0
    losses = [np.minimum(1.0, np.abs(p - hold) / scale) for p in said]
    total = float(np.square(hold - hold.mean()).sum()) or 1.0
    scores = [1.0 - float(np.square(hold - p).sum()) / total for p in said]
    return losses, scores, f"absolute error in units of {scale:.4g}, cut at 1", "R²"


def _label_losses(parts: list[Array]) -> tuple[list[Array], list[float], str, str]:
    hold, *said = ([plain_cell(cell) for cell in part.tolist()] for part in parts[1:])
    rows = [i for i, cell in enumerate(hold) if cell is not None]
    if not rows:
        raise ValueError("the target must be known in some held-out rows.")
    losses = [np.array([float(p[i] != hold[i]) for i in rows]) for p in said]
    scores = [1.0 - float(loss.mean()) for loss in losses]
    return losses, scores, "share of wrong labels", "accuracy"


def unprovable() -> tuple[Claim, Claim]:
    """What no finite number of rows can show."""
    alike = (
        'that the rows are "indistinguishable" cannot be shown by any number of rows: '
        "another classifier may tell them apart"
    )
    nobody = (
        'that the rows are "anonymous" cannot be shown by rows: an attacker may know '
        "more than these tables"
    )
    bounds = (
        "use told_apart, which bounds the difference from below, and columns_agree and "
        "pairs_agree, which bound parts of it from above"
    )
    private = (
        "use differential privacy, TableSynthesizer(epsilon=1), which bounds what any "
        "attacker can learn"
    )
    return (
        refused("indistinguishable", alike, bounds),
        refused("anonymous", nobody, private),
    )


def sample_claims(
    tables: Mapping[str, Any], *, delta: float, coin: float | None, seed: int
) -> tuple[Nearness, tuple[Claim, Claim], list[Distance], list[Distance]]:
    """Everything that follows from the rows of three tables alone.

    ``tables`` has the columns by name, each as (training, held-out, synthetic) arrays.
    """
    columns = read_columns(tables)
    near = nearness(columns, delta=delta, coin=coin, seed=seed)
    claims, single, double = law_claims(columns, delta)
    return near, claims, single, double
