"""Compare models on a table of blocks: one held-out part, one sealed part, by a rule.

A fifth of the rows (whole groups, or the latest in time, if the blocks name a column)
is sealed and a fifth held out, but a million rows each at most:
beyond that, intervals hardly shrink. The other rows are learnt from. Passes that
several candidates need (the moments of least squares) are made once, through a
checkpoint.
"""

from __future__ import annotations

import os
import tempfile
import time as clock
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from sklearn.base import clone

from certus._core.alarm import TimeIsUp, alarm
from certus.blocks import Blocks, RowBlock, tree
from certus.blocks.parts import PartBlocks, PartRule, count_block, time_cuts
from certus.certificate import Status
from certus.config import config_context, get_config
from certus.selection.comparison import Comparison, ComparisonRow
from certus.selection.metrics import (
    Metric,
    Predicted,
    default_metric,
    find_metric,
)
from certus.selection.opening import AskedMetric, Opened, bins_of, open_predictions
from certus.selection.splits import Split
from certus.typing import Array
from certus.verify import union_claim

__all__ = [
    "RuleSplit",
    "compare_blocks",
    "divide",
    "open_part",
    "rule_of",
    "sealed_rows_of",
]

#: Parts of a table, in the order of the rule.
SEALED, HELD, LEARNT = 0, 1, 2
#: Share of the rows that is sealed, and that is held out; and the most of either.
SHARE, MOST = 0.2, 1_000_000
#: Labels that are counted at most, and targets of a block that are looked at.
LABELS, LOOK = 1000, 1000
#: Strengths of the penalty, in units of the spread of a typical column.
STRENGTHS = (1e-6, 1e-3, 1e-1)
#: Strengths of the lasso, in units of the spreads of a typical column and the target.
SPARSE = (1e-3, 1e-2)
#: Passes after the candidates: at most two of the verifier (one where the slopes of
#: the fit need no correction), one over the sealed rows.
AFTER = 3

_NO_RULE = PartRule(())


@dataclass(frozen=True)
class RuleSplit(Split):
    """A split by a rule; ``sealed`` numbers rows of the sealed part only."""

    rule: PartRule = _NO_RULE
    counts: tuple[int, int, int] = (0, 0, 0)
    target: str = ""

    def to_dict(self) -> dict[str, Any]:
        """A description of the split; the rows themselves as counts."""
        return {
            "seed": self.seed,
            "fraction": self.fraction,
            "groups": self.groups,
            "time": self.time,
            "rows": self.n_rows,
            "training_rows": self.counts[LEARNT],
            "held_out_rows": self.counts[HELD],
            "sealed_rows": self.counts[SEALED],
            "folds": 0,
        }

    def record(self) -> dict[str, Any]:
        """What a model file keeps: the rule instead of a list of rows."""
        rule: dict[str, Any] = {"ends": list(self.rule.ends), "by": self.rule.by}
        rule |= {"cuts": list(self.rule.cuts)} if self.rule.cuts else {}
        return self.to_dict() | {"rule": rule, "target": self.target}


def rule_of(record: Mapping[str, Any]) -> PartRule:
    """The rule in a model file."""
    rule = record["rule"]
    ends = tuple(float(end) for end in rule["ends"])
    cuts = tuple(float(cut) for cut in rule.get("cuts", ()))
    return PartRule(ends, int(record["seed"]), str(rule["by"]), cuts)


def divide(table: Blocks, rule: PartRule, counts: Array) -> list[Blocks]:
    """Sealed, held-out and learnt rows."""
    return [PartBlocks(table, rule, (part,), counts) for part in range(3)]


class _Seen(NamedTuple):
    """What the first pass finds: of all rows, and of those that are learnt from."""

    counts: list[Array]
    labels: dict[Any, int] | None  # of the learnt rows; None beyond LABELS of them
    all_labels: set[Any] | None
    total: float
    some: list[Array]  # targets, a few of each block
    squares: Array  # Σ(x − m)² of the columns within blocks, of the learnt rows


def _see(block: RowBlock, rule: PartRule) -> _Seen:
    if block.y is None:
        raise ValueError("The blocks have no target. Pass target=.")
    y = np.asarray(block.y)
    parts = rule.parts(block, 0)
    learnt = parts == LEARNT
    own = y[learnt]
    names, counts = np.unique(own, return_counts=True)
    few = len(names) <= LABELS
    numeric = y.dtype.kind in "iufb"
    if numeric and not np.isfinite(y.astype(float)).all():
        raise ValueError("The target holds NaN or infinite values. Drop those rows.")
    X = np.asarray(block.X[learnt], dtype=np.float64)
    X -= X.mean(axis=0) if len(X) else 0.0
    return _Seen(
        [count_block(block, rule)],
        dict(zip(names.tolist(), counts.tolist())) if few else None,
        set(np.unique(y).tolist()) if few else None,
        float(own.sum()) if numeric and len(own) else 0.0,
        [own[:: max(1, len(own) // LOOK)]],
        np.einsum("ij,ij->j", X, X),
    )


def _join(a: _Seen, b: _Seen) -> _Seen:
    labels = every = None
    if a.labels is not None and b.labels is not None:
        names = sorted({*a.labels, *b.labels})
        labels = {name: a.labels.get(name, 0) + b.labels.get(name, 0) for name in names}
        labels = labels if len(labels) <= LABELS else None
    if a.all_labels is not None and b.all_labels is not None:
        every = a.all_labels | b.all_labels
        every = every if len(every) <= LABELS else None
    return _Seen(
        a.counts + b.counts,
        labels,
        every,
        a.total + b.total,
        a.some + b.some,
        a.squares + b.squares,
    )


def compare_blocks(
    table: Blocks,
    target: str = "",
    *,
    models: Mapping[str, Any] | None = None,
    metric: str | None = None,
    positive: Any = None,
    delta: float = 0.05,
    random_state: int = 0,
    max_time: float | None = None,
    on_step: Callable[..., None] | None = None,
) -> Comparison:
    """Compare what scales on a table of blocks; the sealed part judges the best.

    Parameters
    ----------
    table : Blocks
        Rows with a target, from ``certus.scale.blocks``.
    target : str
        Its name.
    models : dict, optional
        Unfitted models by name; by default ridge and lasso regression or logistic
        regression at a few strengths.
    metric, positive
        As in :func:`certus.compare`.
    delta : float, default=0.05
        Failure probability: the chance that the statement does not hold.
    random_state : int, default=0
        Seed or generator of all random numbers. It decides which rows are sealed and
        held out. The default is a fixed seed, so that every call seals the same rows.
    max_time : float, optional
        Seconds for everything. Raises TimeoutError where no model was fitted in time.
    on_step : callable, optional
        Called with a text and the share of the work done.

    Returns
    -------
    Comparison
        Its ``split`` holds the rule by which rows were sealed.
    """
    start = clock.perf_counter()
    deadline = None if max_time is None else start + max_time
    step = on_step or (lambda *_: None)
    share = min(SHARE, MOST / len(table))
    with _passes_kept(), alarm(deadline), _in_time():
        step("looking at the table", 0.0)
        rule = _rule_for(table, share, random_state)
        seen: _Seen = tree(table.map(_see, rule), _join)
        one_pass = clock.perf_counter() - start
        counts = np.array(seen.counts)
        if (counts.sum(axis=0) == 0).any():
            raise ValueError(_too_few(table, rule))
        parts = divide(table, rule, counts)
        sizes = counts.sum(axis=0).tolist()
        ready = _ready(seen, metric, positive, sizes[LEARNT])
        line = models or _lineup(ready, seen, sizes[LEARNT])
        race = _Race(ready, parts, deadline, one_pass, step)
        rows, status = race.run(line)
        best = min(
            (row for row in rows if row.errors and row.kind != "baseline"),
            key=lambda row: ready.metric.loss(row.mean),
            default=None,
        )
        if best is None:
            raise _none_fitted(rows)
        step("checking the chosen model", 0.8)
        model = clone(best.model)
        with config_context(certify="always", on_uncertified="ignore"):
            model.fit(parts[LEARNT])  # its passes are in the checkpoint
        primary = model.certificate_[model.certificate_.primary]
        rows[rows.index(best)] = _with_proof(best, model, primary)
        asked = _asked(ready, best, race.truth)
        step("opening the sealed rows", 0.9)
        opened = open_part(model, parts[SEALED], asked, delta)
    reason = "one part was held out; the sealed rows judge the chosen one"
    return Comparison(
        task=ready.task,
        target=target,
        metric=ready.metric,
        positive=ready.positive,
        notes=tuple(note for note in (ready.note,) if note),
        left_out=(),
        split=RuleSplit(
            n_rows=len(table),
            training=np.empty(0, dtype=np.intp),
            sealed=np.arange(sizes[SEALED]),
            folds=(),
            seed=random_state,
            fraction=share,
            groups=table.groups,
            time=table.time,
            rule=rule,
            counts=tuple(sizes),
            target=target,
        ),
        rows=tuple(rows),
        chosen=best.name,
        model=model,
        risk=opened.claims,
        union=union_claim(0, len(rows), 1, delta=delta, reason=reason),
        asked=asked,
        status=status,
        seconds=clock.perf_counter() - start,
        sealed_predictions=opened.said.guess,
    )


def _rule_for(table: Blocks, share: float, seed: int) -> PartRule:
    """By groups or by time where the table has them, else by content."""
    ends = (share, 2 * share)
    if table.time is not None:
        return PartRule(ends, seed, "time", time_cuts(table, ends))
    return PartRule(ends, seed, "content" if table.groups is None else "groups")


def _too_few(table: Blocks, rule: PartRule) -> str:
    if rule.by == "groups":
        return (
            f"{table.groups} has too few groups to divide: some must be sealed, some "
            "held out, and some learnt from."
        )
    if rule.by == "time":
        return (
            f"{table.time} has too few different times to divide: equal times stay "
            "together."
        )
    return f"{len(table):,} rows are too few to divide by blocks."


@contextmanager
def _passes_kept() -> Iterator[None]:
    """A checkpoint of its own, unless the user named one."""
    if get_config()["checkpoint"] is not None:
        yield
        return
    with (
        tempfile.TemporaryDirectory(prefix="certus-") as folder,
        config_context(checkpoint=os.path.join(folder, "passes")),
    ):
        yield


@contextmanager
def _in_time() -> Iterator[None]:
    try:
        yield
    except TimeIsUp:
        raise TimeoutError("no model was fitted and checked in time.") from None


def _none_fitted(rows: list[ComparisonRow]) -> Exception:
    reasons = [row.reason for row in rows if row.reason]
    if all(reason == "no time left" for reason in reasons):
        return TimeoutError("no model was fitted in time.")
    return ValueError(reasons[0])


class _Ready(NamedTuple):
    """The task, and what models are judged by."""

    task: str
    metric: Metric
    classes: Array | None
    positive: Any
    note: str
    constant: Any  # what the best constant predicts: a number, or a share per class


def _ready(seen: _Seen, metric: str | None, positive: Any, learnt: int) -> _Ready:
    from certus.tables import guess_task

    some = np.concatenate(seen.some)
    if guess_task(some) == "regression" or seen.labels is None:
        if some.dtype.kind not in "iufb":
            raise ValueError(f"The target has more than {LABELS:,} different labels.")
        found, note = default_metric("regression", some.astype(float))
        found = found if metric is None else find_metric(metric, "regression")
        middle = np.median(some) if found.name == "mae" else seen.total / learnt
        return _Ready("regression", found, None, None, note, float(middle))
    classes = np.array(sorted(seen.all_labels or seen.labels))
    counts = np.array([seen.labels.get(name, 0) for name in classes.tolist()])
    if len(classes) < 2:
        raise ValueError(
            f"The target is {classes[0]} in every row, so there is nothing to predict."
        )
    task = "binary" if len(classes) == 2 else "multiclass"
    found = default_metric(task, some)[0]
    found = found if metric is None else find_metric(metric, task)
    if positive is not None and str(positive) not in [str(c) for c in classes]:
        raise ValueError(f"The target has no label {positive!r}.")
    named = [c for c in classes.tolist() if str(c) == str(positive)]
    rare = classes[int(np.argmin(counts))].item()
    positive = None if task != "binary" else (named or [rare])[0]
    return _Ready(task, found, classes, positive, "", counts / counts.sum())


def _lineup(ready: _Ready, seen: _Seen, n: int) -> dict[str, Any]:
    """Unfitted candidates by name."""
    from certus.linear_model import Lasso, LogisticRegression, Ridge

    spread = float(np.median(seen.squares)) / n
    unit = spread if spread > 0 else 1.0
    found: dict[str, Any] = {}
    for strength in STRENGTHS:
        level = strength * unit
        if ready.task == "regression":
            alpha = level * n
            found[f"ridge, alpha={alpha:.3g}"] = Ridge(alpha=alpha)
        else:
            C = 1 / (level * n)
            found[f"logistic, C={C:.3g}"] = LogisticRegression(C=C)
    if ready.task == "regression":
        amount = float(np.concatenate(seen.some).astype(float).std())
        for strength in SPARSE:
            alpha = strength * amount * unit**0.5 or strength
            found[f"lasso, alpha={alpha:.3g}"] = Lasso(alpha=alpha)
    return found


class _Race:
    """Fits and judges candidates one after another, while there is time."""

    def __init__(
        self,
        ready: _Ready,
        parts: list[Blocks],
        deadline: float | None,
        one_pass: float,
        step: Callable[..., None],
    ) -> None:
        self.ready, self.parts, self.deadline = ready, parts, deadline
        self.one_pass, self.step = one_pass, step
        self.truth = np.concatenate(list(parts[HELD].map(_truth)))

    def run(self, line: Mapping[str, Any]) -> tuple[list[ComparisonRow], Status]:
        """Rows in the order of the line, the best constant first."""
        rows, status, done = [self._baseline()], Status.SOLVED, 0
        for name, model in line.items():
            left = self._left()
            if done and left < (AFTER + 2) * self.one_pass:
                rows.append(ComparisonRow(name, "certus", model, reason="no time left"))
                status = Status.TIME_LIMIT
                continue
            self.step(name, 0.1 + 0.7 * done / len(line))
            rows.append(self._one(name, model, left))
            done += bool(rows[-1].errors)
            if rows[-1].reason == "no time left":
                status = Status.TIME_LIMIT
        return rows, status

    def _left(self) -> float:
        if self.deadline is None:
            return float("inf")
        return self.deadline - clock.perf_counter()

    def _one(self, name: str, model: Any, left: float) -> ComparisonRow:
        start = clock.perf_counter()
        room = max(left - (AFTER + 1) * self.one_pass, left / 3)
        until = None if self.deadline is None else start + room
        fitted = clone(model)
        try:
            with config_context(certify="never"), alarm(until):
                fitted.fit(self.parts[LEARNT])
                said = predict_part(fitted, self.parts[HELD], self.ready)
        except TimeIsUp:
            return ComparisonRow(name, "certus", model, reason="no time left")
        except (NotImplementedError, TypeError, ValueError) as error:
            return ComparisonRow(name, "certus", model, reason=str(error))
        seconds = clock.perf_counter() - start
        value = self.ready.metric(self.truth, said)
        return ComparisonRow(
            name,
            "certus",
            model,
            (value,),
            seconds,
            predictions=said.guess,
            shares=said.shares,
        )

    def _baseline(self) -> ComparisonRow:
        n, ready = len(self.truth), self.ready
        if ready.classes is None:
            said = Predicted(np.full(n, ready.constant))
        else:
            guess = np.full(n, ready.classes[int(np.argmax(ready.constant))])
            shares = np.tile(ready.constant, (n, 1))
            said = Predicted(guess, shares, ready.classes, ready.positive)
        value = ready.metric(self.truth, said)
        return ComparisonRow("best constant", "baseline", None, (value,))


def _with_proof(row: ComparisonRow, model: Any, claim: Any) -> ComparisonRow:
    return ComparisonRow(
        row.name,
        row.kind,
        clone(model),
        row.errors,
        row.seconds,
        claim.value,
        claim.met,
        predictions=row.predictions,
        shares=row.shares,
    )


def _asked(ready: _Ready, best: ComparisonRow, truth: Array) -> AskedMetric:
    if ready.classes is None:
        away = np.abs(np.asarray(best.predictions, float) - truth.astype(float))
        return AskedMetric(ready.task, ready.metric, far=float(np.quantile(away, 0.9)))
    edges = bins_of(best.shares, ready.classes, ready.positive)
    return AskedMetric(ready.task, ready.metric, ready.positive, edges=edges)


# -- predictions of a part ----------------------------------------------------------


def _truth(block: RowBlock) -> Array:
    return np.asarray(block.y)


def sealed_rows_of(
    rule: PartRule, table: Blocks, target: str, most: int
) -> tuple[Any, Any]:
    """The first sealed rows, at most so many, as a frame and a series."""
    import polars as pl

    X: list[Array] = []
    y: list[Array] = []
    for key in table.keys:
        block = table.read(key)
        kept = rule.parts(block, key.first) == SEALED
        X.append(block.X[kept])
        y.append(np.asarray(block.y)[kept])
        if sum(map(len, y)) >= most:
            break
    frame = pl.DataFrame(np.concatenate(X)[:most], schema=list(table.names))
    return frame, pl.Series(target, np.concatenate(y)[:most])


class _Answer(NamedTuple):
    truth: Array
    guess: Array
    shares: Array | None
    mark: Array | None


def _answer(block: RowBlock, model: Any) -> _Answer:
    guess = np.asarray(model.predict(block.X))
    shares = model.predict_proba(block.X) if hasattr(model, "predict_proba") else None
    return _Answer(np.asarray(block.y), guess, shares, block.mark)


def _answers(model: Any, part: Blocks) -> _Answer:
    bare = clone(model)
    vars(bare).update(vars(model))
    vars(bare).pop("feature_names_in_", None)  # rows of a block have no names
    vars(bare).pop("certificate_", None)
    found = list(part.map(_answer, bare))
    shares = None
    mark = None
    if found[0].mark is not None:
        mark = np.concatenate([each.mark for each in found])
    if found[0].shares is not None:
        shares = np.concatenate([each.shares for each in found])
    return _Answer(
        np.concatenate([each.truth for each in found]),
        np.concatenate([each.guess for each in found]),
        shares,
        mark,
    )


def predict_part(model: Any, part: Blocks, ready: _Ready) -> Predicted:
    """What a model says about the rows of a part, in their order."""
    return _said(_answers(model, part), model, ready.classes, ready.positive)


def _said(answer: _Answer, model: Any, classes: Any, positive: Any) -> Predicted:
    if classes is None:
        return Predicted(answer.guess)
    if answer.shares is None:
        return Predicted(answer.guess, None, classes, positive)
    shares = np.zeros((len(answer.guess), len(classes)))
    shares[:, np.searchsorted(classes, np.asarray(model.classes_))] = answer.shares
    return Predicted(answer.guess, shares, classes, positive)


def open_part(
    model: Any, part: Blocks, asked: AskedMetric, delta: float = 0.05
) -> Opened:
    """Predict the sealed rows and state the claims about new rows."""
    answer = _answers(model, part)
    classes = None
    if asked.task != "regression":
        classes = np.union1d(np.asarray(model.classes_), np.unique(answer.truth))
    said = _said(answer, model, classes, asked.positive)
    groups = None
    if part.groups is not None and answer.mark is not None:
        groups = np.unique(answer.mark, return_inverse=True)[1]
    return open_predictions(
        *(said, answer.truth, asked),
        groups=groups,
        ordered=part.time is not None,
        delta=delta,
    )
