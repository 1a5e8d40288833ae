"""A tree with differential privacy: all that is kept follows from noisy counts.

Two tables are neighbours if one has one row more. A count of rows by cells then changes
by 1 in one cell, and noise with P(k) ∝ e^{−ε|k|} (two-sided geometric) makes it
ε-private; the losses of all steps add up to the budget:

1. ranges and labels, where they were not given: counts by powers of two, and labels
   whose noisy count passes a threshold (the only step with a δ);
2. counts of each column, from which its quantile function and cells are made;
3. d − 1 edges by the exponential mechanism: how far the table of a pair is, in rows,
   from what the noisy columns make of it; one row changes that by 1 at most;
4. noisy tables of these pairs, fitted to the noisy columns.

Names and types are public. All noisy counts are kept, so that the verifier can compute
everything else again from them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import polars as pl

from certus.synth.levels import Plan, numbers_of, place_of, span_of
from certus.tables.errors import TableError
from certus.tables.frame import Column, Table
from certus.typing import Array

__all__ = ["fitted_tables", "private_tree"]

#: Shares of the budget: domains that were not given, columns, edges; pairs the rest.
_DOMAINS, _COLUMNS, _EDGES = 0.15, 0.35, 0.1
#: δ of the threshold for labels, for all columns together.
LABEL_DELTA = 1e-6
#: Bins of a number's counts, and cells of a column in pairs.
_BINS, _CELLS = 64, 8
#: Powers of two between which ranges are looked for.
_POWERS = np.concatenate(
    [-(2.0 ** np.arange(40, -11, -1)), [0.0], 2.0 ** np.arange(-10, 41)]
)
#: Rounds in which a pair's table is scaled to the noisy columns.
ROUNDS = 20
#: The largest count that is used, so that running sums stay whole numbers.
_MOST = 2**40

Record = list[dict[str, Any]]


def _noise(rng: np.random.Generator, epsilon: float, size: Any) -> Array:
    """Two-sided geometric noise, P(k) ∝ e^{−ε|k|}."""
    p = -math.expm1(-epsilon)
    return np.asarray(rng.geometric(p, size) - rng.geometric(p, size))


def _spent(what: str, mechanism: str, epsilon: float, delta: float = 0.0) -> Any:
    return {
        "what": what,
        "mechanism": mechanism,
        "epsilon": epsilon,
        "sensitivity": 1,
        "delta": delta,
    }


def private_tree(
    train: Table,
    epsilon: float,
    domains: Mapping[str, Any],
    rng: np.random.Generator,
) -> tuple[list[Plan], dict[str, Any], Record]:
    """Plans of the columns, the tree, and the record of what was spent."""
    d = len(train.columns)
    record: Record = []
    unknown = [c.name for c in train.columns if not _is_given(c, domains)]
    shares = _DOMAINS if unknown else 0.0, _COLUMNS, _EDGES if d > 1 else 0.0
    budget = [epsilon * share for share in shares]
    rest = epsilon - sum(budget)
    plans: list[Plan] = []
    for column in train.columns:
        domain, found = domains.get(column.name), {}
        if column.name in unknown:
            paid, delta = budget[0] / len(unknown), LABEL_DELTA / len(unknown)
            domain, noisy, line = _find_domain(column, paid, delta, rng)
            found = {"found": noisy}
            record.append(line)
        each = (budget[1] + (rest if d == 1 else 0.0)) / d
        plans.append(_plan(column, domain, each, rng) | found)
        record.append(_spent(f"counts of {column.name}", "geometric", each))
    codes = np.column_stack([_codes(p, c) for p, c in zip(plans, train.columns)])
    parents, order, counts = _edges(codes, plans, budget[2], rest, record, rng)
    state = {
        "smoothing": 0.0,
        "cells": [plan["edges"] for plan in plans],
        "parents": parents,
        "order": order,
        "tables": fitted_tables([p["shares"] for p in plans], counts, parents),
        "pair_counts": counts,
    }
    return plans, state, record


def _is_given(column: Column, domains: Mapping[str, Any]) -> bool:
    return column.name in domains or _kind(column) == "boolean"


def _kind(column: Column) -> str:
    """What a column holds, from its type alone: one row must not change it."""
    dtype = column.values.dtype
    if dtype == pl.Boolean:
        return "boolean"
    if dtype == pl.String:
        return "text"
    return "number" if dtype.is_numeric() or dtype == pl.Null else "date"


def _numbers(column: Column) -> Array:
    """Numbers with NaN for gaps, also of a column that has nothing else."""
    if column.kind == "empty":
        return np.full(len(column.values), np.nan)
    return numbers_of(column)


# -- domains --------------------------------------------------------------------------


def _find_domain(
    column: Column, epsilon: float, delta: float, rng: np.random.Generator
) -> tuple[Any, Array, dict[str, Any]]:
    """A range or a list of labels, the noisy counts behind it, and its price."""
    if _kind(column) == "text":
        found = column.values.drop_nulls().value_counts()
        labels, sizes = (found[name].to_list() for name in found.columns)
        # A label of a single row passes with probability δ at most.
        reach = math.ceil(math.log(1 / delta) / epsilon) + 1
        noisy = np.asarray(sizes) + _noise(rng, epsilon, len(sizes))
        shown = sorted((str(a), k) for a, k in zip(labels, noisy.tolist()) if k > reach)
        line = _spent(f"labels of {column.name}", "threshold", epsilon, delta)
        passed = np.array([k for _, k in shown], dtype=np.int64)
        return [label for label, _ in shown], passed, line | {"reach": reach}
    x = _numbers(column)
    x = x[~np.isnan(x)]
    places = np.clip(np.searchsorted(_POWERS, x, "right") - 1, 0, len(_POWERS) - 2)
    counts = np.bincount(places, minlength=len(_POWERS) - 1)
    noisy = counts + _noise(rng, epsilon, len(counts))
    seen = np.flatnonzero(noisy > math.log(40 * len(counts)) / epsilon)
    line = _spent(f"range of {column.name}", "geometric", epsilon)
    if not len(seen):
        return (0.0, 1.0), noisy, line
    return (float(_POWERS[seen[0]]), float(_POWERS[seen[-1] + 1])), noisy, line


# -- columns --------------------------------------------------------------------------


def _plan(
    column: Column, domain: Any, epsilon: float, rng: np.random.Generator
) -> Plan:
    """The plan of a column from noisy counts of its domain."""
    plan: Plan = {"name": column.name, "dtype": str(column.values.dtype)}
    plan["kind"] = _kind(column)
    if plan["kind"] in ("text", "boolean"):
        labels = [False, True] if plan["kind"] == "boolean" else list(domain)
        place = {label: i + 1 for i, label in enumerate(labels)}
        at = np.array([place.get(cell, 0) for cell in column.values.to_list()])
        exact = np.bincount(at, minlength=len(labels) + 1)
        ends, more = _from_counts(exact + _noise(rng, epsilon, len(exact)))
        return plan | more | {"labels": labels, "ends": ends}
    low, high = _range_of(column, domain)
    whole = column.values.dtype.is_integer() or plan["dtype"] == "Date"
    few = whole and high - low < _BINS
    knots: Array = np.linspace(low, high, _BINS + 1)
    if few:
        knots = np.arange(math.floor(low), math.ceil(high) + 2) - 0.5
    x = _numbers(column)
    inner = np.clip(np.searchsorted(knots, x, "right") - 1, 0, len(knots) - 2)
    at = np.where(np.isnan(x), 0, inner + 1)
    exact = np.bincount(at, minlength=len(knots))
    ends, more = _from_counts(exact + _noise(rng, epsilon, len(exact)))
    zone = getattr(column.values.dtype, "time_zone", None)
    more |= {"missing": float(ends[1]), "digits": 0 if whole else None, "zone": zone}
    return plan | more | {"knots": knots, "levels": ends[1:]}


def _range_of(column: Column, domain: Any) -> tuple[float, float]:
    try:
        low, high = (float(end) for end in domain)
    except (TypeError, ValueError):
        raise TableError(
            f'The domain of "{column.name}" must be (low, high), got {domain!r}.'
        ) from None
    if not low < high < math.inf or low == -math.inf:
        raise TableError(
            f'The domain of "{column.name}" must have low < high, got {domain!r}.'
        )
    return low, high


def _from_counts(noisy: Array) -> tuple[Array, dict[str, Any]]:
    """Levels between the values of a column, and a few cells of about equal weight.

    The cells are chosen in whole numbers, so that no rounding moves them.
    """
    kept = np.clip(noisy, 0, _MOST)
    total = np.cumsum(kept if kept.any() else np.ones_like(kept))
    gaps, n = total[0], total[-1]
    wanted = gaps * _CELLS + (n - gaps) * np.arange(1, _CELLS)
    cuts = total[np.searchsorted(total * _CELLS, wanted)]
    edges = np.unique([0, gaps, *cuts, n]) / n
    ends = np.concatenate([[0.0], total / n])
    return ends, {"counts": noisy, "edges": edges, "shares": np.diff(edges)}


def _codes(plan: Plan, column: Column) -> Array:
    """The cell of each row; a label outside its domain counts as missing."""
    if "labels" in plan:
        known = set(plan["labels"])
        cells = [c if c in known else None for c in column.values.to_list()]
        low, high = span_of(plan, cells)
    else:
        low, high = span_of(plan, _numbers(column))
    return place_of(plan["edges"], (low + high) / 2)


# -- edges and pairs ------------------------------------------------------------------


def _edges(
    codes: Array,
    plans: list[Plan],
    for_edges: float,
    for_pairs: float,
    record: Record,
    rng: np.random.Generator,
) -> tuple[Array, Array, list[Array]]:
    """Edges by the exponential mechanism, and noisy tables of these pairs."""
    d, n = codes.shape[1], len(codes)
    parents, order = np.full(d, -1), [0]
    counts: list[Array] = [np.zeros((0, 0))] * d
    if d == 1:
        return parents, np.array(order), counts
    step, each = for_edges / (d - 1), for_pairs / (d - 1)
    scores = _scores(codes, plans, n)
    while len(order) < d:
        inside, outside = order, [j for j in range(d) if j not in order]
        edges = [(i, j) for i in inside for j in outside]
        # Gumbel noise and a maximum draw with weights e^{ε·score/2}.
        loud = [step * scores[e] / 2 + rng.gumbel() for e in edges]
        i, j = edges[int(np.argmax(loud))]
        parents[j] = i
        order.append(j)
        record.append(_spent(f"edge to {plans[j]['name']}", "exponential", step))
        k, m = (len(plans[c]["shares"]) for c in (i, j))
        own = np.bincount(codes[:, i] * m + codes[:, j], minlength=k * m)
        counts[j] = own.reshape(k, m) + _noise(rng, each, (k, m))
        record.append(_spent(f"pairs of {plans[j]['name']}", "geometric", each))
    return parents, np.array(order), counts


def _scores(codes: Array, plans: list[Plan], n: int) -> dict[tuple[int, int], float]:
    """Σ |table − n·p·qᵀ| of each pair, p and q being noisy."""
    found = {}
    for i in range(codes.shape[1]):
        for j in range(codes.shape[1]):
            if i == j:
                continue
            p, q = plans[i]["shares"], plans[j]["shares"]
            table = np.bincount(
                codes[:, i] * len(q) + codes[:, j], minlength=len(p) * len(q)
            )
            # One row more changes a cell by 1, and n·p·qᵀ by 1 in all.
            found[i, j] = float(np.abs(table - n * np.outer(p, q).ravel()).sum()) / 2
    return found


def fitted_tables(
    shares: list[Array], counts: list[Array], parents: Array
) -> list[Array]:
    """P(x_j | parent) from noisy tables of pairs, scaled to the noisy columns."""
    tables = []
    for j, parent in enumerate(parents.tolist()):
        if parent < 0:
            tables.append(shares[j])
            continue
        p, q = shares[parent], shares[j]
        table = np.maximum(counts[j], 0.0) + 1e-3 * np.outer(p, q) + 1e-12
        for _ in range(ROUNDS):
            table = table * (p / table.sum(axis=1))[:, None]
            table = table * (q / table.sum(axis=0))[None, :]
        tables.append(table / table.sum(axis=1, keepdims=True))
    return tables
