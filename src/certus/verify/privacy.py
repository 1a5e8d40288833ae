"""Differential privacy: what was spent, added up, and what is released.

The record lists every step that read the data. A count of rows by cells, with noise of
P(k) ∝ e^{−ε|k|}, is ε-private, because one row more changes one cell by 1. A draw with
weights e^{ε·s/2}, for scores that one row changes by at most 1, is ε-private. Labels
that are shown if their noisy count passes a threshold t are ε-private but for δ: a
label of a single row passes with probability P(noise ≥ t) = e^{−εt}/(1 + e^{−ε}). The
sums of ε and δ bound all steps together (basic composition), and whatever is computed
from private numbers alone is private: so the tables are computed again, from the noisy
counts that are stored with the model.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from certus.certificate import Claim
from certus.typing import Array
from certus.verify import deciding as bd
from certus.verify.deciding import Number, U, gamma

#: Largest difference between a stored table and that of its noisy counts.
SAME = 1e-9
#: Rounds of scaling that the tables are stated to have.
ROUNDS = 20
_MECHANISMS = ("geometric", "exponential", "threshold")
_ASSUMED = (
    "neighbouring tables differ by one row; names and types of columns are public",
    "NumPy's generator, seeded by the system, is random, and its seed is not stored",
)


def privacy_claims(
    epsilon: float,
    record: Sequence[Mapping[str, Any]],
    columns: Sequence[Mapping[str, Any]],
    state: Mapping[str, Any],
) -> tuple[Claim, Claim]:
    """The budget that was spent, and whether the tables follow from noisy counts."""
    return _budget_claim(epsilon, record, len(columns)), _released_claim(columns, state)


def _loss(line: Mapping[str, Any]) -> tuple[float, float]:
    """ε and δ of one step, from its noise; infinite if its privacy is not known."""
    epsilon, kind = float(line["epsilon"]), line["mechanism"]
    if kind not in _MECHANISMS or not epsilon > 0 or line.get("sensitivity") != 1:
        return math.inf, 1.0
    if kind != "threshold":
        return epsilon, 0.0
    # A count of 1 is shown if its noise is at least ``reach``.
    reach = float(line["reach"])
    return epsilon, math.exp(-epsilon * reach) / (1 + math.exp(-epsilon))


def _budget_claim(epsilon: float, record: Sequence[Mapping[str, Any]], d: int) -> Claim:
    losses = [_loss(line) for line in record]
    spent = math.fsum(loss for loss, _ in losses)
    delta = math.fsum(part for _, part in losses)
    counted = sum(line["mechanism"] == "geometric" for line in record)
    if counted < 2 * d - 1:  # each column, and each edge of the tree
        spent = math.inf
    rounding = gamma(len(record) + 4) * spent if spent < math.inf else 0.0
    also = "" if delta == 0 else f", δ = {delta:.1e} for labels that were not given"
    return bd.proved(
        *(
            "privacy_budget",
            Number(spent, rounding),
            epsilon * (1 + 64 * len(record) * U),
        ),
        f"ε = {spent:.4g} in {len(record)} steps{also}",
        missed=f"ε = {spent:.4g} was spent, and {epsilon:.4g} was asked for",
        objective="Σ ε over every step that read the data",
        theorem="the losses of private steps add up; noise P(k) ∝ e^{−ε|k|} on counts "
        "of rows and draws with weights e^{ε·score/2} lose ε each",
        assumptions=_ASSUMED,
        fix="fit it again, with fewer columns or a larger epsilon",
    )


def _released_claim(
    columns: Sequence[Mapping[str, Any]], state: Mapping[str, Any]
) -> Claim:
    shares = [np.asarray(column["shares"], dtype=float) for column in columns]
    parents = np.asarray(state["parents"]).astype(int).tolist()
    worst = 0.0
    for j, parent in enumerate(parents):
        own = np.asarray(state["tables"][j], dtype=float)
        wanted = shares[j]
        if parent >= 0:
            noisy = np.asarray(state["pair_counts"][j])
            whole = bool(np.all(noisy == np.round(noisy)))
            wanted = _scaled(noisy, shares[parent], shares[j])
            worst = worst if whole else math.inf
        if own.shape != wanted.shape:
            worst = math.inf
            continue
        apart = float(np.abs(own - wanted).max(initial=0.0))
        worst = max(worst, math.inf if math.isnan(apart) else apart)
    return bd.proved(
        *("released", Number(worst, gamma(64)), SAME),
        "the tables of the tree follow from noisy counts alone",
        missed=f"a table differs from that of its noisy counts by {worst:.2g}",
        objective="max |P(x_j | parent) − the same from noisy counts|",
        theorem="what is computed from private numbers alone is private",
        assumptions=_ASSUMED[:1],
        fix="fit it again",
    )


def _scaled(noisy: Array, rows: Array, columns: Array) -> Array:
    """A table of pairs with these marginals, as probabilities given the row."""
    table = np.clip(noisy, 0.0, None) + 1e-3 * np.outer(rows, columns) + 1e-12
    for _ in range(ROUNDS):
        table *= np.divide(rows, table.sum(axis=1))[:, None]
        table *= np.divide(columns, table.sum(axis=0))[None, :]
    return np.asarray(table / table.sum(axis=1)[:, None])
