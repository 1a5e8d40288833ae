"""Draw a record: the theorem's bound against what was observed, on a log scale."""

from __future__ import annotations

import textwrap
from typing import Any

import numpy as np

from certus.results import new_figure

BOUND, SEEN = "#c44e52", "#30638e"


def draw(record: Any, ax: Any = None, index: int = 0) -> Any:
    """Draw one of a record's bounds, or its values where there is none."""
    if record.bounds:
        return draw_bound(record.bounds[index], ax, record.method)
    ax = _axes(ax)
    ax.plot(record.steps, record.values, color=SEEN, lw=1.6)
    ax.set(xlabel="step", ylabel="f")
    title = textwrap.fill(f"{record.method}: {record.refused}", 60)
    ax.set_title(title, loc="left", fontsize=9)
    return ax


def draw_bound(bound: Any, ax: Any = None, title: str = "") -> Any:
    """Draw a bound and the observed quantity that it bounds."""
    ax = _axes(ax)
    seen = np.maximum(bound.observed, 0.0)
    finite, shown = np.isfinite(bound.bound) & (bound.bound > 0), seen > 0
    # Sublinear rates are straight lines in doubly logarithmic axes, linear ones in
    # half-logarithmic axes.
    sublinear = bound.theorem.kind in ("convex", "non-convex")
    k = bound.steps + (1 if sublinear else 0)
    label = "theorem's bound" + (" on the mean" if bound.expected else "")
    ax.plot(k[finite], bound.bound[finite], "--", color=BOUND, lw=1.6, label=label)
    ax.plot(k[shown], seen[shown], color=SEEN, lw=1.6, label="observed")
    if bound.error is not None:
        low, high = seen - 2 * bound.error, seen + 2 * bound.error
        low = np.maximum(low, seen / 10)
        ax.fill_between(k, low, high, color=SEEN, alpha=0.2, lw=0)
    wrong = np.isin(bound.steps, bound.violations) & shown
    if wrong.any():
        ax.plot(k[wrong], seen[wrong], ".", color=BOUND, label="bound exceeded")
    ax.set_yscale("log")
    if sublinear:
        ax.set_xscale("log")
    # Below the allowance there is only rounding, which would fill half the picture.
    floor = max(bound.allowance, 1e-300)
    if (seen[shown] < floor).any() or (bound.bound[finite] < floor).any():
        ax.set_ylim(bottom=floor / 10)
        ax.axhline(floor, color="0.7", lw=0.8, ls=":")
    ax.set_xlabel("step + 1" if sublinear else "step")
    ax.set_ylabel(bound.quantity)
    heading = f"{title} · {bound.theorem.kind}" if title else bound.theorem.kind
    ax.set_title(heading, loc="left", fontsize=11)
    ax.legend(frameon=False, fontsize=9)
    return ax


def _axes(ax: Any) -> Any:
    return new_figure(6.4, 4.0).subplots() if ax is None else ax
