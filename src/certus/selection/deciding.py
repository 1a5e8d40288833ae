"""Thresholds: which probability of the positive label is enough to say so.

    costs    least of  c_fp·(false alarms) + c_fn·(misses)  over all thresholds
    recall at a precision    most positive rows found with a precision that high

Both are chosen on rows of the training part, each scored by a model of a fold that had
not seen it; the sealed rows then say what the threshold is worth. Of thresholds that
are equally good, the one in the middle of its gap between two scores is taken.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from sklearn.base import clone

from certus.base import check_number
from certus.calibration import ThresholdClassifier
from certus.selection.preparation import Prepared
from certus.tables.target import check_bounds

__all__ = ["check_decision", "choose_threshold", "decide_at", "read_bounds"]


def check_decision(
    task: str, cost: Mapping[str, float] | None, recall: float | None
) -> tuple[float, float] | None:
    """The costs of a false alarm and of a miss, if the arguments make sense."""
    if cost is None and recall is None:
        return None
    if cost is not None and recall is not None:
        raise ValueError("cost and recall cannot be used together. Choose one.")
    if task != "binary":
        raise ValueError(
            "cost and recall need a target with two labels, because a threshold "
            "divides rows into two kinds."
        )
    if recall is not None:
        check_number("recall", recall, 0, 1, open_low=True)
        if recall >= 1:
            raise ValueError(
                "recall must be below 1, got 1: no number of rows makes it certain "
                "that every positive row is found."
            )
        return None
    if set(cost or ()) != {"fp", "fn"}:
        raise ValueError(f"cost must have the keys fp and fn, got {cost!r}.")
    for name, value in (cost or {}).items():
        check_number(f"cost of {name}", value, 0)
    found = float(cost["fp"]), float(cost["fn"])  # type: ignore[index]
    if not sum(found) > 0:
        raise ValueError("cost must be above 0 for a false alarm or for a miss.")
    return found


def read_bounds(bounds: Any, ready: Prepared) -> tuple[float, float] | None:
    """Bounds of the target, if they make sense and no target is outside them."""
    found = check_bounds(bounds)
    if found is None:
        return None
    if ready.labels:
        raise ValueError(
            "bounds are for a target that holds amounts, but this one holds labels. "
            "Leave them out."
        )
    low, high = float(np.min(ready.y)), float(np.max(ready.y))
    if low < found[0] or high > found[1]:
        raise ValueError(
            f"bounds must hold every target, but the targets go from {low:.6g} to "
            f"{high:.6g}, outside [{found[0]:.6g}, {found[1]:.6g}]. Widen the bounds, "
            "or correct the targets."
        )
    return found


def choose_threshold(
    shares: np.ndarray | None, ready: Prepared, costs: tuple[float, float] | None
) -> float | None:
    """The best threshold on rows that models of folds had not seen; None for one half.

    Parameters
    ----------
    shares : array of shape (n_rows, 2) or None
        Probabilities; NaN in rows that no fold held out.
    ready : Prepared
    costs : (float, float) or None
        Of a false alarm and of a miss.
    """
    precise = ready.metric.name == "recall"
    classes = ready.classes
    if shares is None or classes is None or not (costs or precise):
        return None
    known = np.isfinite(shares).all(axis=1)
    chance = shares[known][:, classes == ready.positive][:, 0]
    hit = ready.y[known] == ready.positive
    order = np.argsort(-chance, kind="stable")
    found, levels = np.cumsum(hit[order]), chance[order]
    alarms = np.cumsum(~hit[order])
    last = np.append(np.diff(levels) != 0, True)  # equal scores go together
    found, alarms, levels = found[last], alarms[last], levels[last]
    if costs is not None:
        loss = costs[0] * alarms + costs[1] * (hit.sum() - found)
        if costs[1] * hit.sum() < loss.min():  # never to say so is cheapest
            return float(min(1.0, np.nextafter(levels[0], 2.0)))
    else:
        enough = found / (found + alarms) >= (ready.metric.at or 0.0)
        if not enough.any():
            return None
        loss = np.where(enough, -found.astype(float), np.inf)
    at = int(np.argmin(loss))
    below = levels[at + 1] if at + 1 < len(levels) else 0.0
    return float((levels[at] + below) / 2)


def decide_at(pipeline: Any, threshold: float, positive: Any) -> None:
    """Let a fitted pipeline answer by a threshold from now on."""
    inner = pipeline.estimator_
    plain = positive.item() if isinstance(positive, np.generic) else positive
    wrapped = ThresholdClassifier(
        clone(inner), cutoff=float(threshold), positive_label=plain
    )
    pipeline.set_params(estimator=wrapped)
    fitted = ThresholdClassifier(
        clone(inner), cutoff=float(threshold), positive_label=plain
    )
    fitted.estimator_ = inner
    pipeline.estimator_ = fitted
