"""A change that flips a decision: that it does, and that none is nearer.

    changes: some columns take the value of a background row
    nearer:  fewer columns; with as many, a smaller largest change of a column

If the score is a sum over columns, the gains of single columns decide: no k − 1 columns
suffice if the k − 1 largest gains add up to less than is missing. Otherwise all changes
of one column are asked of the model, which settles one column and bounds the rest.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from certus.certificate import Claim
from certus.typing import Array
from certus.verify.deciding import Number, gamma, proved, refused
from certus.verify.explained_mixing import (
    Played,
    answers,
    mixed_columns,
    mixer,
    written_rows,
)


class Flip(NamedTuple):
    """A change: the background row that each changed column is taken from.

    ``free`` has the columns that may change, and ``summed`` says whether the score is
    said to be a sum over columns.
    """

    chosen: Mapping[int, int]
    threshold: float
    method: str
    free: Array
    summed: bool


def flip_claims(flip: Flip, played: Played) -> tuple[list[Claim], tuple[int, int]]:
    """What is known about a change of the first row, and bounds on the columns needed.

    Parameters
    ----------
    flip : Flip
        What was found elsewhere, and is not trusted.
    played : Played
        The model, one row, and the background.
    """
    ask, d = mixer(played, flip.method), len(flip.free)
    if ask is None:
        lost = "mixed rows of this kind of table cannot be built again"
        return [refused("flips", lost, "pass arrays, or pandas or polars frames")], (
            1,
            d,
        )
    score = float(ask(0, np.ones((1, d), dtype=bool))[0, 0, 0])
    side = 1.0 if score < flip.threshold else -1.0
    missing = side * (flip.threshold - score)
    # Sets without column j: it is taken from the background, all else from the row.
    single = ask(0, ~np.eye(d, dtype=bool))[:, :, 0]
    gains = np.where(flip.free[:, None], side * (single - score), -np.inf)
    claims = [_flips(flip, played, side, score)] if flip.chosen else []
    summed = flip.summed and _is_sum(played)
    if not flip.chosen:
        return [*claims, _none(gains, missing, summed)], (1, d)
    count = len(flip.chosen)
    sizes = _sizes(played, d)
    size = max(float(sizes[j, b]) for j, b in flip.chosen.items())
    near = np.where(sizes < size, gains, -np.inf)
    if not summed and count > 1:
        found = _share(_top(gains, 1), missing)
        claims.append(
            proved(
                *("nearest", found, 1.0),
                f"no change of one column flips the decision; {count} columns do, and "
                f"whether {count - 1} are enough is not known" if count > 2 else
                "no change of one column flips the decision, and two columns do",
                missed="a change of one column flips the decision",
            )
        )  # fmt: skip
        return claims, (2, count)
    slack = gamma(8) * d * (abs(score) + float(np.abs(single).max()))
    fewer = _share(_top(gains, count - 1) + slack, missing)
    smaller = _share(_top(near, count) + slack, missing)
    found = max(fewer, smaller, key=lambda number: number.most)
    claims.append(
        proved(
            *("nearest", found, 1.0),
            f"no change of fewer than {count} columns flips the decision, and no "
            f"smaller change of {count}",
            missed="a nearer change may flip the decision",
            theorem="gains of columns add up in a sum over columns"
            if count > 1
            else "all changes of one column are asked of the model",
        )
    )
    return claims, (count, count) if claims[-1].met else (1, count)


def _sizes(played: Played, d: int) -> Array:
    """Distances of background values from the row's, in standard deviations.

    Texts, and numbers of which one is missing, are 1 apart if they differ.
    """
    table = played.table
    if table is None:  # arrays are kept apart
        table = np.concatenate([played.X, played.background])
    names = table.columns if hasattr(table, "columns") else range(d)
    found = np.zeros((d, len(played.background)))
    for j, name in enumerate(names):
        cells = list(table[name] if hasattr(table, "columns") else table[:, name])
        try:
            x = np.array([np.nan if c is None else float(c) for c in cells])
        except (TypeError, ValueError):
            found[j] = [0.0 if c == cells[0] else 1.0 for c in cells[1:]]
            continue
        known = x[1:][~np.isnan(x[1:])]
        unit = float(known.std()) if len(known) else 0.0
        found[j] = np.abs(x[1:] - x[0]) / (unit if unit > 0 else 1.0)
        gone = np.isnan(x)
        either = gone[1:] | gone[0]
        found[j, either] = np.where(gone[1:] == gone[0], 0.0, 1.0)[either]
    return found


def _share(gain: float, missing: float) -> Number:
    """What can be gained as a share of what is missing, just below 1 at most."""
    if missing <= 0:
        return Number(np.inf)
    share = gain / missing
    return Number(share if share < 1.0 else max(share, 1.0 + 1e-12))


def _top(gains: Array, count: int) -> float:
    """The sum of the largest gains of this many columns."""
    if count <= 0:
        return 0.0
    best = np.maximum(gains.max(axis=1), 0.0)
    return float(np.sort(best)[::-1][:count].sum())


def _flips(flip: Flip, played: Played, side: float, score: float) -> Claim:
    """Ask the model about the changed row itself."""
    ask, d = mixer(played, flip.method), len(flip.free)
    rows = sorted(set(flip.chosen.values()))
    if ask is None or any(not flip.free[j] for j in flip.chosen):
        return refused(
            "flips", "a column that must not change is changed", "search again"
        )
    if len(rows) == 1:
        inside = np.ones((1, d), dtype=bool)
        inside[0, list(flip.chosen)] = False
        after = float(ask(0, inside)[0, rows[0], 0])
    else:
        after = _changed(flip, played)
    short = max(0.0, side * (flip.threshold - after))
    return proved(
        *("flips", Number(short), 0.0),
        f"the model answers {after:.6g} for the changed row, {score:.6g} before",
        missed=f"the changed row is still on the same side: the model answers "
        f"{after:.6g}",
        fix="search again with the model as it is now",
    )


def _changed(flip: Flip, played: Played) -> float:
    """The answer for the changed row, whose columns come from several rows."""
    d = len(flip.free)
    places = np.zeros((1, d), dtype=int)
    for j, b in flip.chosen.items():
        places[0, j] = b + 1
    numbers = written_rows(played)
    if numbers is None:
        z, _ = answers(played.model, flip.method, mixed_columns(played.table, places))
        return float(z[0, 0])
    table, owner = np.concatenate(numbers), np.asarray(played.owner)
    row = table[places[0, owner], np.arange(len(owner))]
    return float(answers(played.inner, flip.method, row[None])[0][0, 0])


def _is_sum(played: Played) -> bool:
    """Whether the model says of itself that it is a sum over columns."""
    model = played.inner
    if hasattr(model, "terms_"):
        return all(len(term) == 1 for term in model.terms_)
    return hasattr(model, "coef_") and played.owner is not None


def _none(gains: Array, missing: float, summed: bool) -> Claim:
    """No change was found; for a sum over columns, there is none."""
    if not summed:
        said = "no change was found, and whether there is one is not known"
        return refused("nearest", said, "pass more background rows")
    found = _share(_top(gains, len(gains)), missing)
    return proved(
        *("nearest", found, 1.0),
        "no change to values of the background rows flips the decision",
        missed="some change may flip the decision",
    )
