"""Fit the chosen model again, to all rows, after the sealed rows were opened.

What the sealed rows said is about the model before; it is kept as ``before_``. No row
is left to calibrate on, so intervals and sets come from CV+: all rows are divided into
folds, and the whole choice (columns that tell too much, the metric, the candidate, its
parameters) is repeated on the rows outside each fold, with one part of them held out to
judge candidates, and one part of the others to choose parameters. Where the time is too
short for that, the chosen candidate is fitted without each fold, and the coverage is
only measured.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from certus.certificate import Claim, Evidence, Status
from certus.config import config_context
from certus.evidence import CrossWitness
from certus.selection.candidates import Candidate
from certus.selection.comparison import ComparisonRow
from certus.selection.deciding import decide_at
from certus.selection.heats import FAILURES
from certus.selection.inspection import take
from certus.selection.lineup import choose
from certus.selection.preparation import Prepared
from certus.selection.race import Race, Step, take_target
from certus.tables.crossing import held_out_scores
from certus.typing import ArrayLike
from certus.verify import judge

__all__ = [
    "ALWAYS_BELOW",
    "NO_TIME",
    "PARTS",
    "ChosenModel",
    "Refitted",
    "cross_folds",
    "refit",
]

#: Tables with fewer rows are refitted by the command unless it is told otherwise.
ALWAYS_BELOW = 1_000
#: Candidates are judged on one part in this many of the rows outside a fold.
PARTS = 4
#: Of the time that is left, the share that a refit may be expected to take.
_SHARE = 0.6


class ChosenModel(NamedTuple):
    """What was chosen and judged, and how the choice can be repeated on other rows.

    ``prepare`` reads some rows of the whole table as :func:`certus.compare` would;
    ``lineup`` lists the candidates for them. ``threshold`` is that of the decisions.
    """

    model: Any
    candidate: Candidate
    row: ComparisonRow
    rows: list[ComparisonRow]
    status: Status
    prepare: Callable[[np.ndarray], Prepared]
    lineup: Callable[[Prepared], list[Candidate]]
    threshold: float | None = None


class Refitted(NamedTuple):
    """The model to deliver, what is said about its intervals, and a remark."""

    model: Any
    claims: tuple[Claim, ...] = ()
    note: str = ""


def refit(race: Race, chosen: ChosenModel, y: ArrayLike, folds: int) -> Refitted:
    """The chosen candidate on all rows, with CV+ intervals where they are valid.

    Parameters
    ----------
    race : Race
        That of the comparison; it has the table, the deadline and the step.
    chosen : ChosenModel
    y : array-like
        The target as it came.
    folds : int
        Number of folds of CV+.
    """
    ready = race.ready
    plain = ready.split.groups is None and ready.split.time is None
    pace = _pace(chosen, race)
    left = np.inf if race.deadline is None else race.deadline - time.perf_counter()
    repeated = chosen.status is Status.SOLVED and _SHARE * left > folds * pace.all
    fits = folds + 1 if plain else 1
    if _SHARE * left < fits * pace.one:
        return Refitted(chosen.model, note=NO_TIME)
    everything = np.arange(ready.split.n_rows)
    crossed = None
    if plain:
        crossed = _cross(race, chosen, y, folds, repeated)
        if crossed is None:
            return Refitted(chosen.model, note=NO_TIME)
    model, _ = race.finish(chosen.candidate, chosen.row, y, everything)
    if chosen.threshold is not None:
        decide_at(model, chosen.threshold, ready.positive)
    model.before_ = chosen.model
    if crossed is None:
        return Refitted(model)
    members, witness = crossed
    model.fold_models_ = members
    evidence = Evidence("cross", witness=witness)
    stated = judge(model, evidence, ready.X, ready.y)
    model.calibration_certificate_ = stated
    return Refitted(model, stated.claims)


NO_TIME = (
    "the time limit left no time to fit the model again to all rows: it was fitted to "
    "the training rows only."
)


class _Pace(NamedTuple):
    """Seconds for one fold: of the chosen candidate, and of the whole choice."""

    one: float
    all: float


def _pace(chosen: ChosenModel, race: Race) -> _Pace:
    folds = max(1, len(race.ready.split.folds))
    one = chosen.row.seconds / folds
    ours = sum(row.seconds for row in chosen.rows if row.kind != "foreign")
    return _Pace(one, ours / folds + 1.5 * one)


def cross_folds(n: int, folds: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """A random order of n rows, and the fold of each row: 0 … folds − 1, all equal.

    The rows left over by the division, fewer than ``folds``, have −1: they are in every
    fit. Neither depends on the data, as CV+ needs.

    Examples
    --------
    >>> from certus.selection.refitting import cross_folds
    >>> order, fold = cross_folds(11, 3, seed=0)
    >>> [int((fold == k).sum()) for k in (-1, 0, 1, 2)]
    [2, 3, 3, 3]
    """
    order = np.random.default_rng([seed, 20]).permutation(n)
    size = n // folds
    fold = np.full(n, -1)
    fold[order[: folds * size]] = np.repeat(np.arange(folds), size)
    return order, fold


def _cross(
    race: Race, chosen: ChosenModel, y: ArrayLike, folds: int, repeated: bool
) -> tuple[list[Any], CrossWitness] | None:
    """A model without each fold, and the scores of all rows; None if time ran out."""
    ready = race.ready
    n = ready.split.n_rows
    order, fold = cross_folds(n, min(folds, n), ready.split.seed)
    scores, members = np.full(n, np.inf), []
    for k in range(int(fold.max()) + 1):
        if _over(race):
            return None
        train = order[fold[order] != k]
        step = _quiet(race.step, k, folds)
        member, again = _member(race, chosen, y, train, repeated, step)
        repeated = repeated and again
        test = np.flatnonzero(fold == k)
        scores[test] = held_out_scores(member, take(ready.X, test), ready.y[test])
        members.append(member)
    return members, CrossWitness(scores, fold, repeated)


def _over(race: Race) -> bool:
    return race.deadline is not None and time.perf_counter() > race.deadline


def _quiet(step: Step, k: int, folds: int) -> Step:
    """A step that names the fold, and no more of what is done in it."""
    name = f"all rows, part {k + 1} of {folds}"
    return lambda text, share: step(name, 1 + (k + min(share, 1.0)) / folds)


def _member(
    race: Race,
    chosen: ChosenModel,
    y: ArrayLike,
    train: np.ndarray,
    repeat: bool,
    step: Step,
) -> tuple[Any, bool]:
    """A pipeline fitted to some rows, and whether its choice was made on them alone.

    None where no model can be fitted: its fold says nothing, which is valid.
    """
    whole = race.ready
    y_train = take_target(y, whole.y, train)
    try:
        ready = chosen.prepare(train)
        if set(ready.left_out) != set(whole.left_out):
            # A model with other columns could not predict from the same table.
            ready, repeat = ready._replace(X=take(whole.X, train)), False
        ready = ready._replace(
            metric=ready.metric if repeat else whole.metric, bounds=whole.bounds
        )
        inner = Race(ready, race.deadline, step, brief=True)
        candidate, row = chosen.candidate, chosen.row
        if repeat:
            candidate, row, repeat = _again(inner, chosen)
        rows = np.arange(len(train))
        policy = {"certify": "never", "on_uncertified": "ignore"}
        return inner.fit_pipeline(candidate, row, y_train, rows, policy)[0], repeat
    except FAILURES:
        return None, repeat


def _again(race: Race, chosen: ChosenModel) -> tuple[Candidate, ComparisonRow, bool]:
    """The choice among all candidates, on the rows of a race; False if cut short."""
    lineup = [c for c in chosen.lineup(race.ready) if c.kind != "foreign"]
    able = [c for c in lineup if c.kind == "certus" and not c.reason]
    if len(able) == 1:
        return able[0], ComparisonRow(able[0].name, "certus", able[0].model), True
    split = race.ready.split
    first = dataclasses.replace(split, folds=split.folds[:1])
    race.ready = race.ready._replace(split=first)
    with config_context(certify="never", on_interrupt="raise"):
        rows, status = race.run(lineup)
    found = choose(lineup, rows, status, race.ready.metric)
    row = rows[lineup.index(found)]
    whole = status is Status.SOLVED and not any(each.cut_short for each in rows)
    if row.errors:  # with its parameters, which were chosen on these rows, too
        found = found._replace(model=row.model, choose=None)
    return found, row, whole
