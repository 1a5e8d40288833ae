"""Draw a record: the theorem's bound against what was observed, on a log scale."""

from __future__ import annotations

from typing import Any

import numpy as np

BOUND, SEEN = "#c44e52", "#30638e"


def draw(record: Any, ax: Any = None, index: int = 0) -> Any:
    """Draw one of a record's bounds, or its values where there is none."""
    if ax is None:
        import matplotlib.pyplot as plt

        _, ax = plt.subplots(figsize=(6.4, 4.0), layout="constrained")
    if not record.bounds:
        ax.plot(record.steps, record.values, color=SEEN, lw=1.6)
        ax.set(xlabel="step", ylabel="f")
        ax.set_title(f"{record.method}: {record.refused}", loc="left", fontsize=9)
        return ax
    bound = record.bounds[index]
    return draw_bound(bound, ax, record.method)


def draw_bound(bound: Any, ax: Any, title: str) -> Any:
    """Draw a bound and the observation it speaks of."""
    # Below the allowance there is only rounding, which would fill half the picture.
    floor = max(bound.allowance, 1e-300)
    seen = np.maximum(bound.observed, 0.0)
    finite = np.isfinite(bound.bound) & (bound.bound > 0)
    sublinear = bound.theorem.kind in ("convex", "non-convex")
    shift = 1 if sublinear else 0
    ax.plot(
        bound.steps[finite] + shift,
        bound.bound[finite],
        color=BOUND,
        lw=1.6,
        ls="--",
        label="theorem's bound" + (" on the mean" if bound.expected else ""),
    )
    shown = seen > 0
    ax.plot(
        bound.steps[shown] + shift, seen[shown], color=SEEN, lw=1.6, label="observed"
    )
    if bound.error is not None:
        low, high = seen - 2 * bound.error, seen + 2 * bound.error
        ax.fill_between(
            bound.steps + shift,
            np.maximum(low, seen / 10),
            high,
            color=SEEN,
            alpha=0.2,
            lw=0,
        )
    wrong = np.isin(bound.steps, bound.violations)
    if wrong.any():
        ax.plot(
            bound.steps[wrong] + shift,
            seen[wrong],
            ".",
            color=BOUND,
            label="bound exceeded",
        )
    ax.set_yscale("log")
    if sublinear:
        ax.set_xscale("log")
    if (seen[shown] < floor).any() or (bound.bound[finite] < floor).any():
        ax.set_ylim(bottom=floor / 10)
        ax.axhline(floor, color="0.7", lw=0.8, ls=":")
    ax.set_xlabel("step + 1" if sublinear else "step")
    ax.set_ylabel(bound.quantity)
    ax.set_title(f"{title} · {bound.theorem.kind}", loc="left", fontsize=11)
    ax.legend(frameon=False, fontsize=9)
    return ax
