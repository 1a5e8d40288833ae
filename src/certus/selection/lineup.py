"""Which candidates a comparison has, and the rule by which one of them is chosen."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from sklearn.base import is_classifier

from certus.certificate import Status
from certus.selection.candidates import Candidate, given_candidate, list_candidates
from certus.selection.comparison import ComparisonRow
from certus.selection.inspection import columns_of
from certus.selection.metrics import Metric
from certus.selection.preparation import Prepared
from certus.wording import unstopped

__all__ = ["Models", "choose", "make_lineup"]

#: Estimators, by a name or by that of their class.
Models = Sequence[Any] | Mapping[str, Any]


def make_lineup(
    ready: Prepared, models: Models | None, also: Models, seed: int
) -> list[Candidate]:
    """The candidates of this comparison, in the order of the table."""
    n, d = len(ready.split.training), len(columns_of(ready.X))
    labels = len(np.unique(ready.y)) if ready.labels else 0
    lineup = list_candidates(ready.task, n, d, seed, labels, ready.metric)
    if models is not None:
        lineup = lineup[:1]
    for name, model in [*_named(models or ()), *_named(also)]:
        if not hasattr(model, "fit") or not hasattr(model, "predict"):
            raise TypeError(f"{model!r} is not an estimator with fit and predict.")
        if ready.labels is not is_classifier(model):
            wants, has = ("labels", "amounts")[:: 1 if is_classifier(model) else -1]
            raise ValueError(
                f"{type(model).__name__} predicts {wants}, and the target holds {has}."
            )
        lineup.append(given_candidate(name, model, [c.name for c in lineup]))
    if not any(candidate.kind == "certus" for candidate in lineup):
        raise ValueError(
            "none of the candidates is a model of certus, so there is none to choose."
        )
    return lineup


def _named(models: Models) -> list[tuple[str, Any]]:
    if isinstance(models, Mapping):
        return [(str(name), model) for name, model in models.items()]
    return [(type(model).__name__, model) for model in models]


def choose(
    lineup: list[Candidate], rows: list[ComparisonRow], status: Status, metric: Metric
) -> Candidate:
    """The certus candidate that is best by the metric; the first of them on ties."""
    ours = [(c, r) for c, r in zip(lineup, rows) if c.kind == "certus"]
    complete = [(metric.loss(r.mean), at) for at, (_, r) in enumerate(ours) if r.errors]
    whole = [(loss, at) for loss, at in complete if not ours[at][1].cut_short]
    # What the time limit cut short must beat the constant and all that were not cut.
    others = [metric.loss(r.mean) for r in rows if r.errors and r.kind == "baseline"]
    bar = min([*others, *(loss for loss, _ in whole)], default=np.inf)
    able = [(loss, at) for loss, at in complete if ours[at][1].cut_short and loss < bar]
    if whole or able:
        return ours[min([*whole, *able])[1]][0]
    if status is Status.INTERRUPTED:
        raise KeyboardInterrupt
    if status is Status.TIME_LIMIT:
        raise TimeoutError("no model was fitted within the time limit. Raise it.")
    for candidate, row in ours:  # too few rows for folds: the simplest, unmeasured
        if row.reason.startswith("too few rows"):
            return candidate
    raise ValueError(
        f"no model could be fitted; {ours[0][0].name}: {unstopped(ours[0][1].reason)}."
    )
