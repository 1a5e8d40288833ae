"""Willshaw's memory: synapses, missing ones and false ones, all of them counted.

Θ = min(1, Σ y xᵀ) and z = Θx. For a stored pair z_j = r where y_j = 1, r the ones of x,
so that no one is missing; z_j = r elsewhere is a false one. All numbers are whole.
"""

from __future__ import annotations

import warnings

import numpy as np

from certus.certificate import Claim
from certus.typing import Array, Fit
from certus.verify import data
from certus.verify import deciding as bd
from certus.verify.deciding import Number

#: Cells of retrieved patterns that are held at a time.
CELLS = 1 << 22


def claims(model: Fit, X: Array, ones: Array, wanted: Array) -> list[Claim]:
    """Judge the synapses, and what is retrieved for each stored cue."""
    cues, targets = ones.astype(np.float32), wanted.astype(np.float32)
    T = data.fitted(model, "weights_", (targets.shape[1], cues.shape[1]))
    T = T.astype(np.float64)
    if not np.isin(T, (0.0, 1.0)).all():
        raise ValueError("weights_ of this model must be zeros and ones. Fit it again.")
    missing = false = wrong = 0
    small, rows = T.astype(np.float32), max(1, CELLS // max(T.shape))
    for start in range(0, len(X), rows):
        part = slice(start, start + rows)
        found = cues[part] @ small.T >= cues[part].sum(axis=1, keepdims=True)
        missing += int((~found & (targets[part] > 0)).sum())
        false += int((found & (targets[part] == 0)).sum())
        with warnings.catch_warnings():  # these rows have lost their names
            warnings.filterwarnings("ignore", "X does not have valid feature names")
            told = np.asarray(model.predict(X[part])).reshape(len(found), -1)
        wrong += len(found)
        if told.shape == found.shape:
            wrong -= int((told == found).all(axis=1).sum())
    stored = (targets.T @ cues) > 0
    off, total = int((stored != (T > 0)).sum()), int(targets.sum())
    fill = f"{100 * T.mean():.3g} % of the synapses are on"
    return [
        _count_claim(
            *("missing_ones", missing),
            f"none of the {total:,} ones of stored patterns is missing in recall",
            f"{missing:,} of {total:,} ones of stored patterns are missing in recall",
            "z_j = r where y_j = 1: each of the r synapses was switched on when the "
            "pair was stored, and stays on for any part of the cue",
        ),
        _count_claim(
            *("rule_weights", off),
            f"the synapses are min(1, Σ y xᵀ) of the {len(X):,} patterns; {fill}",
            f"{off:,} synapses differ from min(1, Σ y xᵀ)",
            "compared cell by cell",
        ),
        _count_claim(
            *("recall", wrong),
            f"predict returns 1{{Θx ≥ r}} for each of {len(X):,} stored cues",
            f"predict differs from 1{{Θx ≥ r}} for {wrong:,} of {len(X):,} stored cues",
            "compared cell by cell",
        ),
        bd.proved(
            *("false_ones", Number(float(false)), None),
            f"{false:,} ones appear that were not stored, {false / len(X):.3g} in a "
            "pattern",
            objective="ones of the retrieved patterns that the stored ones do not have",
        ),
    ]


def _count_claim(name: str, found: int, told: str, missed: str, theorem: str) -> Claim:
    words = {"missed": missed, "theorem": theorem, "fix": "fit again on these patterns"}
    return bd.proved(name, Number(float(found)), 0.0, told, **words)
