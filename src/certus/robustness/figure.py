"""The figure of a bracket: accuracy against the radius, proved and attacked."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from certus.results import new_figure

if TYPE_CHECKING:
    from certus.robustness.bracket import RobustAccuracy

_PROVED, _ATTACKED = "#1f5a8a", "#c2452d"


def draw(found: RobustAccuracy, ax: Any = None) -> Any:
    """Draw a curve on axes, new ones by default."""
    if ax is None:
        ax = new_figure().subplots()
    radii, lower, upper, low, high = zip(*found.curve)
    sure = f"new rows, {100 * (1 - found.delta):.4g} % sure"
    if not found.refused:
        ax.fill_between(radii, low, high, color="0.92", lw=0, label=sure)
        ax.fill_between(radii, lower, upper, color="#e3d9c3", lw=0, label="not known")
        ax.plot(radii, lower, "s-", color=_PROVED, ms=4, label="proved")
    else:
        ax.fill_between(radii, 0, high, color="0.92", lw=0, label=sure)
    ax.plot(radii, upper, "o-", color=_ATTACKED, ms=4, label="left by attacks")
    ax.axhline(found.clean, color="0.4", lw=1, ls=":", label="without changes")
    ax.set_xlim(0, radii[-1] or 1.0)
    ax.set_ylim(0, 1.02)
    ax.yaxis.set_major_formatter(lambda value, _: f"{100 * value:.0f} %")
    ax.set_xlabel(f"size of the change ({found.norm})")
    ax.set_ylabel(f"accuracy on {found.n_samples:,} rows")
    ax.grid(axis="y", color="0.9", lw=0.8)
    ax.set_axisbelow(True)
    ax.spines[["top", "right"]].set_visible(False)
    ax.legend(frameon=False, fontsize=9, loc="best")
    return ax
