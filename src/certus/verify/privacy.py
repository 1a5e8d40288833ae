"""Differential privacy: what was spent, added up, and what is released.

Each noisy count that a model holds was paid for. Which steps there must be follows from
the model: the counts of each column, the range or the labels of each column whose
domain was not given, an edge and the counts of a pair for each column but the root. The
record must list each of them once and nothing else. A count of rows by cells, with
noise of P(k) ∝ e^{−ε|k|}, is ε-private, because one row more changes one cell by 1. A
draw with weights e^{ε·s/2}, for scores that one row changes by at most 1, is ε-private.
Labels that are shown if their noisy count passes a threshold t are ε-private but for δ:
a label of a single row passes with probability P(noise ≥ t) = e^{−εt}/(1 + e^{−ε}). The
sums of ε and δ bound all steps together (basic composition).

Whatever is computed from private numbers alone is private. So every number of the model
is computed again from its noisy counts, the domains that were given, and the types of
the columns. That noise was added to the counts cannot be seen without the rows: it is
assumed.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from certus.certificate import Claim
from certus.typing import Array
from certus.verify import deciding as bd
from certus.verify.deciding import Number, U, gamma

#: Largest difference between a stored number and that of its noisy counts.
SAME = 1e-9
#: Rounds of scaling that the tables are stated to have; cells of a column in pairs.
ROUNDS, CELLS = 20, 8
#: The largest δ that labels may cost, all columns together.
DELTA = 1e-6
#: Bins of a number, the largest count that is used, and powers of two in a range.
BINS, MOST, POWERS = 64, 2**40, range(-10, 41)
Columns = Sequence[Mapping[str, Any]]

_PUBLIC = {"name", "dtype", "kind", "counts", "edges", "shares"}
_OF_LABELS = _PUBLIC | {"labels", "ends"}
_OF_NUMBERS = _PUBLIC | {"knots", "levels", "missing", "digits", "zone"}
_STATE = {"smoothing", "cells", "parents", "order", "tables", "pair_counts"}
_ASSUMED = (
    "neighbouring tables differ by one row; names and types of columns are public, and "
    "domains that were given were not read off the data",
    "each count has the noise that the record states for it, NumPy's generator, seeded "
    "by the system, is random, and its seed is not stored",
)


def privacy_claims(
    epsilon: float,
    record: Sequence[Mapping[str, Any]],
    columns: Columns,
    state: Mapping[str, Any],
    domains: Mapping[str, Any],
) -> tuple[Claim, Claim]:
    """The budget that was spent, and whether all numbers follow from noisy counts."""
    wanted = _required(columns, state, domains)
    return (
        _budget_claim(epsilon, record, wanted),
        _released_claim(record, columns, state, domains),
    )


# -- the budget -----------------------------------------------------------------------


def _required(
    columns: Columns, state: Mapping[str, Any], domains: Mapping[str, Any]
) -> dict[str, str] | None:
    """The steps that made this model, with their mechanisms; None without a tree."""
    parents = _parents(state, len(columns))
    if parents is None:
        return None
    found: dict[str, str] = {}
    for column, parent in zip(columns, parents):
        name, kind = column["name"], _kind(str(column["dtype"]))
        found[f"counts of {name}"] = "geometric"
        if kind == "text" and name not in domains:
            found[f"labels of {name}"] = "threshold"
        elif kind != "boolean" and name not in domains:
            found[f"range of {name}"] = "geometric"
        if parent >= 0:
            found[f"edge to {name}"] = "exponential"
            found[f"pairs of {name}"] = "geometric"
    names = [column["name"] for column in columns]
    return found if len(set(names)) == len(names) else None


def _parents(state: Mapping[str, Any], d: int) -> list[int] | None:
    """The parent of each column, if they form a tree in the stated order."""
    parents, order = (np.asarray(state[name]) for name in ("parents", "order"))
    if parents.shape != (d,) or sorted(order.tolist()) != list(range(d)):
        return None
    place = {column: at for at, column in enumerate(order.tolist())}
    found: list[int] = parents.astype(int).tolist()
    root = int(order[0])
    grows = all(place.get(found[j], d) < place[j] for j in range(d) if j != root)
    return found if grows and found[root] == -1 else None


def _kind(dtype: str) -> str:
    """What a column holds, from its type alone."""
    named = {"Boolean": "boolean", "String": "text"}
    numbers = dtype.startswith(("Int", "UInt", "Float", "Decimal", "Null"))
    return named.get(dtype, "number" if numbers else "date")


def _loss(line: Mapping[str, Any], wanted: str | None) -> tuple[float, float]:
    """ε and δ of one step, from its noise; infinite if its privacy is not known."""
    epsilon, kind = float(line["epsilon"]), line["mechanism"]
    if kind != wanted or not epsilon > 0 or line.get("sensitivity") != 1:
        return math.inf, 1.0
    if kind != "threshold":
        return epsilon, 0.0
    # A count of 1 is shown if its noise is at least ``reach``.
    reach = float(line["reach"])
    return epsilon, math.exp(-epsilon * reach) / (1 + math.exp(-epsilon))


def _budget_claim(
    epsilon: float,
    record: Sequence[Mapping[str, Any]],
    wanted: Mapping[str, str] | None,
) -> Claim:
    listed = Counter(str(line["what"]) for line in record)
    steps = wanted or {}
    losses = [_loss(line, steps.get(str(line["what"]))) for line in record]
    spent = math.fsum(loss for loss, _ in losses)
    delta = math.fsum(part for _, part in losses)
    missed = f"ε = {spent:.4g} was spent, and {epsilon:.4g} was asked for"
    wrong = sorted(what for what in {*listed, *steps} if listed[what] != 1)
    if wanted is None or wrong:
        spent = math.inf
        missed = "the columns and their parents do not form a tree"
    if delta > DELTA:
        spent, missed = math.inf, f"δ = {delta:.1e} was spent, more than {DELTA:.0e}"
    if wrong:
        missed = f'the record lists "{wrong[0]}" {listed[wrong[0]]} times instead of 1'
    rounding = gamma(len(record) + 4) * spent if spent < math.inf else 0.0
    also = "" if delta == 0 else f", δ = {delta:.1e} for labels that were not given"
    return bd.proved(
        *(
            "privacy_budget",
            Number(spent, rounding),
            epsilon * (1 + 64 * len(record) * U),
        ),
        f"ε = {spent:.4g} in {len(record)} steps{also}",
        missed=missed,
        objective="Σ ε over the noisy counts and the edges that the model holds",
        theorem="the losses of private steps add up; noise P(k) ∝ e^{−ε|k|} on counts "
        "of rows and draws with weights e^{ε·score/2} lose ε each",
        assumptions=_ASSUMED,
        fix="fit it again, with fewer columns or a larger epsilon",
    )


# -- what is released -----------------------------------------------------------------


def _released_claim(
    record: Sequence[Mapping[str, Any]],
    columns: Columns,
    state: Mapping[str, Any],
    domains: Mapping[str, Any],
) -> Claim:
    worst, where = _worst(record, columns, state, domains)
    missed = f"{where} differs by {worst:.2g} from what its noisy counts make of it"
    if worst == math.inf:
        missed = f"{where} cannot have been computed from noisy counts alone"
    return bd.proved(
        *("released", Number(worst, gamma(64)), SAME),
        "columns and tables of the tree follow from noisy counts alone",
        missed=missed,
        objective="max |number of the model − the same from noisy counts|",
        theorem="what is computed from private numbers alone is private",
        assumptions=_ASSUMED,
        fix="fit it again",
    )


def _worst(
    record: Sequence[Mapping[str, Any]],
    columns: Columns,
    state: Mapping[str, Any],
    domains: Mapping[str, Any],
) -> tuple[float, str]:
    """The largest difference, and the column or table where it is."""
    parents = _parents(state, len(columns))
    if parents is None or set(state) != _STATE or state["smoothing"] != 0:
        return math.inf, "the form of the tree"
    lines = {str(line["what"]): line for line in record}
    found: list[tuple[float, str]] = []
    shares: list[Array] = []
    for j, column in enumerate(columns):
        whole, wanted = _recomputed(column, lines, domains)
        shares.append(np.diff(wanted["edges"]))
        wanted["shares"] = shares[-1]
        apart = max(_apart(column.get(key), value) for key, value in wanted.items())
        apart = max(apart, _apart(state["cells"][j], wanted["edges"]))
        found.append((apart if whole else math.inf, f'column "{column["name"]}"'))
    for j, parent in enumerate(parents):
        table, noisy = shares[j], np.asarray(state["pair_counts"][j])
        size = (len(shares[parent]), len(table)) if parent >= 0 else (0, 0)
        fits = noisy.shape == size and _is_whole(noisy)
        if parent >= 0 and fits:
            table = _scaled(noisy, shares[parent], table)
        apart = _apart(state["tables"][j], table) if fits else math.inf
        found.append((apart, f'the table of "{columns[j]["name"]}"'))
    return max(found)


def _recomputed(
    column: Mapping[str, Any],
    lines: Mapping[str, Mapping[str, Any]],
    domains: Mapping[str, Any],
) -> tuple[bool, dict[str, Any]]:
    """Whether a column has the stated form, and the numbers that it must hold."""
    name, kind = column["name"], _kind(str(column["dtype"]))
    total = _running(column["counts"])
    ends = total / total[-1]
    wanted: dict[str, Any] = {"edges": _cells(total) / total[-1]}
    labelled, paid = kind in ("text", "boolean"), kind != "boolean"
    paid &= name not in domains
    keys = _OF_LABELS if labelled else _OF_NUMBERS
    sound = column["kind"] == kind and _is_whole(column["counts"])
    sound &= set(column) == keys | ({"found"} if paid else set())
    if not sound or (paid and not _is_whole(column["found"])):
        return False, wanted
    line = lines.get(f"{'labels' if labelled else 'range'} of {name}", {})
    if labelled:
        known = [False, True] if kind == "boolean" else domains.get(name)
        return _labels_fit(column, known, line), wanted | {"ends": ends}
    domain = domains.get(name)
    if paid:
        domain = _range(np.asarray(column["found"]), line.get("epsilon", 0.0))
    wanted |= {"levels": ends[1:], "missing": ends[1]}
    return _bins_fit(column, *map(float, domain or ())), wanted


def _labels_fit(column: Mapping[str, Any], known: Any, line: Mapping[str, Any]) -> bool:
    """Whether the labels are those that were given, or have passed the threshold."""
    labels, counts = column["labels"], column["counts"]
    if known is not None:
        return labels == list(known) and len(counts) == len(labels) + 1
    passed = np.asarray(column["found"]) > line.get("reach", math.inf)
    fits = len(passed) == len(labels) == len(counts) - 1
    return fits and bool(passed.all()) and labels == sorted(set(labels))


def _bins_fit(column: Mapping[str, Any], low: float, high: float) -> bool:
    """Whether the bins of a number follow from its range and its type."""
    dtype, zone = str(column["dtype"]), column["zone"]
    whole = dtype == "Date" or "Int" in dtype
    knots, scale = _knots(low, high, whole), max(1.0, abs(low), abs(high))
    return (
        column["digits"] == (0 if whole else None)
        and (zone is None or f"time_zone='{zone}'" in dtype)
        and len(column["counts"]) == len(knots)
        and _apart(np.asarray(column["knots"]) / scale, knots / scale) <= SAME
    )


def _is_whole(counts: Any) -> bool:
    values = np.asarray(counts)
    if values.dtype.kind == "f":
        return bool(np.all(values == np.round(values)))
    return values.dtype.kind in "iu"


def _running(counts: Any) -> Array:
    """0, and running sums of the counts, those below 0 as 0; of ones if none is left.

    They are whole numbers, so that no rounding decides where a column is cut.
    """
    kept = np.clip(np.asarray(counts), 0, MOST).astype(np.int64)
    kept = kept if kept.any() else np.ones_like(kept)
    return np.concatenate([[0], np.cumsum(kept)])


def _cells(total: Array) -> Array:
    """Running sums at which a column is cut: gaps apart, then eight equal parts."""
    gaps, known = int(total[1]), int(total[-1] - total[1])
    above = [
        next(k for k in total[1:].tolist() if CELLS * (k - gaps) >= i * known)
        for i in range(1, CELLS)
    ]
    return np.array(sorted({0, gaps, *above, int(total[-1])}))


def _knots(low: float, high: float, whole: bool) -> Array:
    """Ends of the bins of a number: halves between a few whole ones, or equal bins."""
    if whole and high - low < BINS:
        return np.arange(math.floor(low), math.ceil(high) + 2) - 0.5
    return np.asarray(low + (high - low) * np.arange(BINS + 1) / BINS)


def _range(found: Array, epsilon: float) -> tuple[float, float]:
    """From the first to the last power of two whose noisy count is clearly not zero."""
    up = [2.0**k for k in POWERS]
    bins = list(pairwise([*(-x for x in reversed(up)), 0.0, *up]))
    if len(found) != len(bins) or not epsilon > 0:
        return math.nan, math.nan
    least = math.log(40 * len(bins)) / epsilon
    seen = [span for span, count in zip(bins, found.tolist()) if count > least]
    return (seen[0][0], seen[-1][1]) if seen else (0.0, 1.0)


def _apart(stored: Any, wanted: Any) -> float:
    """The largest difference; infinite for another shape or a missing number."""
    one, other = (np.asarray(x, dtype=float) for x in (stored, wanted))
    if one.shape != other.shape:
        return math.inf
    apart = float(np.abs(one - other).max(initial=0.0))
    return math.inf if math.isnan(apart) else apart


def _scaled(noisy: Array, rows: Array, columns: Array) -> Array:
    """A table of pairs with these marginals, as probabilities given the row."""
    table = np.clip(noisy, 0.0, None) + 1e-3 * np.outer(rows, columns) + 1e-12
    for _ in range(ROUNDS):
        table *= np.divide(rows, table.sum(axis=1))[:, None]
        table *= np.divide(columns, table.sum(axis=0))[None, :]
    return np.asarray(table / table.sum(axis=1)[:, None])
