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

Names, types and the number of decimals asked for are public.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

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
        domain = domains.get(column.name)
        if column.name in unknown:
            paid = budget[0] / len(unknown)
            domain, line = _find_domain(column, paid, LABEL_DELTA / len(unknown), rng)
            record.append(line)
        each = (budget[1] + (rest if d == 1 else 0.0)) / d
        plans.append(_plan(column, domain, each, rng))
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
    return column.name in domains or column.kind == "boolean"


# -- domains --------------------------------------------------------------------------


def _find_domain(
    column: Column, epsilon: float, delta: float, rng: np.random.Generator
) -> tuple[Any, dict[str, Any]]:
    """A range or a list of labels, paid for."""
    if column.kind == "text":
        found = column.values.drop_nulls().value_counts()
        labels, sizes = (found[name].to_list() for name in found.columns)
        # A label of a single row passes with probability δ at most.
        reach = math.ceil(math.log(1 / delta) / epsilon) + 1
        noisy = np.asarray(sizes) + _noise(rng, epsilon, len(sizes))
        kept = sorted(str(a) for a, k in zip(labels, noisy.tolist()) if k > reach)
        what = f"labels of {column.name}"
        return kept, _spent(what, "threshold", epsilon, delta) | {"reach": reach}
    x = numbers_of(column) if column.kind != "empty" else np.zeros(0)
    x = x[~np.isnan(x)]
    places = np.clip(np.searchsorted(_POWERS, x, "right") - 1, 0, len(_POWERS) - 2)
    counts = np.bincount(places, minlength=len(_POWERS) - 1)
    noisy = counts + _noise(rng, epsilon, len(counts))
    seen = np.flatnonzero(noisy > math.log(40 * len(counts)) / epsilon)
    line = _spent(f"range of {column.name}", "geometric", epsilon)
    if not len(seen):
        return (0.0, 1.0), line
    return (float(_POWERS[seen[0]]), float(_POWERS[seen[-1] + 1])), line


# -- columns --------------------------------------------------------------------------


def _plan(
    column: Column, domain: Any, epsilon: float, rng: np.random.Generator
) -> Plan:
    """The plan of a column from noisy counts of its domain."""
    plan: Plan = {"name": column.name, "dtype": str(column.values.dtype)}
    plan["kind"] = "number" if column.kind == "empty" else column.kind
    if column.kind in ("text", "boolean"):
        labels = [False, True] if column.kind == "boolean" else list(domain)
        place = {label: i + 1 for i, label in enumerate(labels)}
        at = np.array([place.get(cell, 0) for cell in column.values.to_list()])
        noisy = np.bincount(at, minlength=len(labels) + 1)
        p = _shares(noisy + _noise(rng, epsilon, len(noisy)))
        ends = np.concatenate([[0.0], np.cumsum(p)])
        ends[-1] = 1.0
        return plan | {"labels": labels, "ends": ends} | _cells_of(ends)
    low, high = _range_of(column, domain)
    whole = column.values.dtype.is_integer() or plan["dtype"] == "Date"
    few = whole and high - low < _BINS
    knots: Array = np.linspace(low, high, _BINS + 1)
    if few:
        knots = np.arange(math.floor(low), math.ceil(high) + 2) - 0.5
    x = (
        numbers_of(column)
        if column.kind != "empty"
        else np.full(len(column.values), np.nan)
    )
    inner = np.clip(np.searchsorted(knots, x, "right") - 1, 0, len(knots) - 2)
    at = np.where(np.isnan(x), 0, inner + 1)
    noisy = np.bincount(at, minlength=len(knots)) + _noise(rng, epsilon, len(knots))
    p = _shares(noisy)
    levels = np.cumsum(p)
    levels[-1] = 1.0
    zone = getattr(column.values.dtype, "time_zone", None)
    more = {"missing": float(p[0]), "digits": 0 if whole else None, "zone": zone}
    ends = np.concatenate([[0.0], levels])
    return plan | {"knots": knots, "levels": levels} | more | _cells_of(ends)


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


def _shares(noisy: Array) -> Array:
    """Noisy counts as probabilities; equal ones if nothing is left of them."""
    kept = np.maximum(noisy, 0).astype(float)
    if not kept.sum():
        kept = np.ones(len(kept))
    return kept / kept.sum()


def _cells_of(ends: Array) -> dict[str, Any]:
    """A few cells of about equal probability, and their probabilities."""
    wanted = np.linspace(ends[1], 1.0, _CELLS + 1)
    at = [0, 1, *np.searchsorted(ends, wanted[1:-1]).tolist(), len(ends) - 1]
    edges = np.unique(ends[np.unique(at)])
    edges = edges[np.concatenate([[True], np.diff(edges) > 1e-12])]
    if len(edges) < 2:
        edges = np.array([0.0, 1.0])
    edges[-1] = 1.0
    return {"edges": edges, "shares": np.diff(edges)}


def _codes(plan: Plan, column: Column) -> Array:
    """The cell of each row; a label outside its domain counts as missing."""
    if "labels" in plan:
        known = set(plan["labels"])
        cells = [c if c in known else None for c in column.values.to_list()]
        low, high = span_of(plan, cells)
    else:
        gap = np.full(len(column.values), np.nan)
        low, high = span_of(plan, numbers_of(column) if column.kind != "empty" else gap)
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
