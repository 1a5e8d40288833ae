"""The linear programme behind thresholds and reductions.

    maximise  Σⱼ pⱼ vⱼ   over p ≥ 0, each block of p summing to one, and t
    with      tₘ ≤ (R p)ₘ₉ ≤ tₘ + room   for every metric m and group g

where rule j is right on a share vⱼ of the rows, and R holds the rates of the rules in
the groups. Of any multipliers λ with Σ₉ λₘ₉ = 0 no feasible p is worth more than

    Σ over blocks of maxⱼ (v − Rᵀλ)ⱼ + room·Σ max(λ, 0).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from scipy import sparse
from scipy.optimize import linprog

from certus.base import check_choice
from certus.typing import Array

#: The rates that a criterion makes equal.
CRITERIA = {
    "independence": ("selection_rate",),
    "separation": ("true_positive_rate", "false_positive_rate"),
    "true_positive_rate": ("true_positive_rate",),
    "false_positive_rate": ("false_positive_rate",),
}
#: What a rule is worth.
OBJECTIVES = ("accuracy", "balanced_accuracy")


class Shares(NamedTuple):
    """How much choosing a row adds to the value and to the rates of its group.

    Attributes
    ----------
    gain : ndarray of shape (n_samples,)
        To the value; ``base`` is that of choosing nobody.
    rate : ndarray of shape (n_metrics, n_samples)
        To each rate of the row's group; zero where the row does not count in it.
    known : ndarray of shape (n_metrics, n_groups)
        Whether anybody counts: a rate of an empty group is no constraint.
    """

    gain: Array
    base: float
    rate: Array
    known: Array


def shares_of(
    truth: Array, members: Array, k: int, s: Array, criterion: str, objective: str
) -> Shares:
    """The shares of rows with truths (booleans), group numbers and weights."""
    check_choice("criterion", criterion, tuple(CRITERIA))
    check_choice("objective", objective, OBJECTIVES)
    worth = s / s.sum()
    if objective == "balanced_accuracy":
        totals = np.array([s[~truth].sum(), s[truth].sum()])
        if not totals.all():
            raise ValueError(
                "balanced_accuracy needs rows of both classes with a positive weight."
            )
        worth = 0.5 * s / totals[truth.astype(int)]
    counted = {
        "selection_rate": np.ones(len(s), dtype=bool),
        "true_positive_rate": truth,
        "false_positive_rate": ~truth,
    }
    rates, known = [], []
    for metric in CRITERIA[criterion]:
        mine = np.where(counted[metric], s, 0.0)
        totals = np.bincount(members, mine, minlength=k)
        rates.append(mine / np.where(totals > 0, totals, 1.0)[members])
        known.append(totals > 0)
    gain = np.where(truth, worth, -worth)
    return Shares(gain, float(worth[~truth].sum()), np.array(rates), np.array(known))


class Mixture(NamedTuple):
    """A solution: probabilities of the rules, and the multipliers that prove it."""

    weights: Array
    value: float
    multipliers: Array  # (n_metrics, n_groups)


def best_mixture(
    value: Array, rates: Any, blocks: Array, known: Array, room: float
) -> Mixture:
    """Solve the programme.

    Parameters
    ----------
    value : ndarray of shape (n_rules,)
        What each rule is worth.
    rates : sparse matrix of shape (n_metrics · n_groups, n_rules)
        Rates of each rule.
    blocks : ndarray of shape (n_rules,)
        Number of the block of each rule.
    known : ndarray of shape (n_metrics, n_groups)
        Rates that count.
    room : float
        Allowed difference between groups.
    """
    metrics, groups = known.shape
    rows = known.ravel()
    R = sparse.csr_matrix(rates)[rows]
    level = np.repeat(np.eye(metrics), groups, axis=0)[rows]
    above = sparse.hstack([R, -sparse.csr_matrix(level)])
    blocked = sparse.csr_matrix(
        (np.ones(len(blocks)), (blocks, np.arange(len(blocks)))),
        shape=(int(blocks.max()) + 1, len(blocks) + metrics),
    )
    count = int(rows.sum())
    found = linprog(
        np.concatenate([-value, np.zeros(metrics)]),
        A_ub=sparse.vstack([above, -above]) if count else None,
        b_ub=np.repeat([room, 0.0], count) if count else None,
        A_eq=blocked,
        b_eq=np.ones(blocked.shape[0]),
        bounds=[(0, None)] * len(blocks) + [(None, None)] * metrics,
        method="highs",
        options={
            "primal_feasibility_tolerance": 1e-10,
            "dual_feasibility_tolerance": 1e-10,
        },
    )
    if found.x is None:
        raise RuntimeError(f"The linear programme was not solved: {found.message}")
    weights = np.where(found.x[: len(blocks)] > 1e-12, found.x[: len(blocks)], 0.0)
    weights /= np.bincount(blocks, weights)[blocks]
    multipliers = np.zeros(metrics * groups)
    if count:
        slopes = np.asarray(found.ineqlin.marginals)
        multipliers[rows] = slopes[count:] - slopes[:count]
    return Mixture(
        weights, float(value @ weights), multipliers.reshape(metrics, groups)
    )
