"""Steps of a synthesizer: learn levels, compare generators, give rows their form."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np
import polars as pl

from certus.base import UncertifiedError, UncertifiedWarning
from certus.certificate import Claim, Strength
from certus.config import get_config
from certus.generative import Examination
from certus.synth.conditions import rows_that_meet
from certus.synth.levels import Plan, decode, encode, is_smooth, plan_levels
from certus.synth.models import MODELS, state_of
from certus.synth.networks import has_torch
from certus.tables.frame import Table
from certus.typing import Array

__all__ = [
    "compared",
    "comparison_row",
    "complain_of_copies",
    "draw_until",
    "form_of",
    "frame_from",
    "frame_of",
    "halves",
    "is_baseline",
    "learn_levels",
    "left_out",
    "native",
    "nothing_held_out",
    "rank",
    "rows_of",
]

#: Batches that are drawn to meet conditions, at most.
_BATCHES = 200
#: Training and held-out rows that meet conditions, at least, to be compared with.
_FEWEST = 20


def frame_from(read: Table) -> pl.DataFrame:
    """The columns of a table as a frame."""
    return pl.DataFrame([c.values.alias(c.name) for c in read.columns])


def halves(
    read: Table, inside: Array, plans: list[Plan], given: Mapping[str, Any]
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Training and held-out rows that meet the conditions; all, if they are few."""
    frame = frame_from(read)
    meets = rows_that_meet(plans, read, given)
    parts = inside & meets, ~inside & meets
    if min(int(part.sum()) for part in parts) < _FEWEST:
        parts = inside, ~inside
    train, held = (frame.filter(pl.Series(part)) for part in parts)
    return train, held


def nothing_held_out() -> Claim:
    """The refusal if no rows were held out."""
    return Claim(
        "memorised",
        Strength.REFUSED,
        detail="no rows were held out, so copying cannot be judged",
        fix="set validation_fraction=0.3, or pass held-out rows of your own to examine",
    )


def rows_of(read: Table, kept: Array) -> Table:
    """The rows of a table that are kept."""
    mask = pl.Series(kept)
    columns = [c._replace(values=c.values.filter(mask)) for c in read.columns]
    return Table(columns, read.named, int(kept.sum()))


def learn_levels(
    train: Table, name: str, rng: np.random.Generator
) -> tuple[list[Plan], dict[str, Any]]:
    """Plans of the columns, and the state of a generator that learnt their levels."""
    model = MODELS[name]()
    exact = bool(getattr(model, "exact", False))
    plans = [plan_levels(column, exact=exact) for column in train.columns]
    if hasattr(model, "smooth"):
        model.smooth = [is_smooth(plan) for plan in plans]
    U = np.column_stack([encode(p, c, rng) for p, c in zip(plans, train.columns)])
    return plans, state_of(model.fit(U, [plan["edges"] for plan in plans], rng))


def frame_of(plans: list[Plan], U: Array) -> pl.DataFrame:
    """Rows of levels as a table."""
    return pl.DataFrame([decode(plan, U[:, j]) for j, plan in enumerate(plans)])


def compared() -> list[str]:
    """The generators that "auto" compares: those with networks need PyTorch."""
    return [n for n in MODELS if has_torch() or not _is_network(n)]


def left_out() -> list[str]:
    """What "auto" did not try, in a sentence."""
    lacks = [name for name in MODELS if name not in compared()]
    if not lacks:
        return []
    named = ", ".join(lacks)
    return [f"PyTorch is not installed, so these were not tried: {named}."]


def _is_network(name: str) -> bool:
    return bool(getattr(MODELS[name], "network", False))


def complain_of_copies(names: list[str]) -> None:
    """Warn or raise, as the configuration says, if all that were tried copy."""
    policy = get_config()["on_uncertified"]
    told = f'the generator "{names[0]}" copies training rows'
    if len(names) > 1:
        told = f"{', '.join(names)}: all generators copy training rows"
    text = f"{told}. Use more rows, or do not release these."
    if policy == "raise":
        raise UncertifiedError(text)
    if policy == "warn":
        warnings.warn(text, UncertifiedWarning, stacklevel=4)


def is_baseline(name: str) -> bool:
    """Whether a generator is compared with the others, but never chosen."""
    return bool(getattr(MODELS[name], "baseline", False))


def rank(found: tuple[Any, ...]) -> tuple[bool, float]:
    """Copiers last; then by how well a classifier tells the rows apart."""
    result = found[3]
    if result is None:
        return False, 0.0
    if result.flagged:
        return True, result.excess_low
    auc = result.told_apart_auc
    return False, 1 - result.shapes if auc is None else abs(auc - 0.5)


def comparison_row(name: str, result: Examination, seconds: float) -> dict[str, Any]:
    """One line of the comparison of generators."""
    return {
        "model": name,
        "flagged": result.flagged,
        "told_apart_auc": result.told_apart_auc,
        "shapes": result.shapes,
        "nearest_share": result.nearest_share,
        "p_value": result.p_value,
        "copies": result.copies,
        "synthetic_score": result.synthetic_score,
        "real_score": result.real_score,
        "seconds": seconds,
    }


def draw_until(
    model: Any, n: int, low: Array, high: Array, rng: np.random.Generator
) -> Array:
    """Draw until n rows lie in the box."""
    kept: list[Array] = []
    for _ in range(_BATCHES):
        U = model.sample(max(n, 500), rng)
        kept.append(U[((low <= U) & (high >= U)).all(axis=1)])
        if sum(map(len, kept)) >= n:
            return np.concatenate(kept)[:n]
    have = sum(map(len, kept))
    raise ValueError(
        f"only {have:,} of {n:,} rows met the conditions. Ask for fewer rows, relax a "
        'condition, or use model="tree", which draws under conditions directly.'
    )


def form_of(table: Any) -> str:
    """What was passed: "pandas", "polars" or "array"."""
    library = type(table).__module__.partition(".")[0]
    if isinstance(table, np.ndarray | list):
        return "array"
    return "pandas" if library == "pandas" else "polars"


def native(frame: pl.DataFrame, form: str) -> Any:
    """The table in the form in which tables were passed."""
    if form == "pandas":
        import pandas as pd

        return pd.DataFrame({name: frame[name].to_list() for name in frame.columns})
    return frame.to_numpy() if form == "array" else frame
