"""Run candidates on one plan of folds, within the time limit and until Ctrl-C.

Each fold's table is encoded from its training rows and shared by all candidates. A
candidate counts only when all its folds are done, so there are always complete rows to
compare.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from scipy import sparse
from sklearn.base import clone

from certus._core.alarm import TimeIsUp, alarm
from certus.calibration import PlattClassifier
from certus.certificate import Certificate, Status
from certus.config import config_context
from certus.selection.candidates import Candidate, Choice, Tuning
from certus.selection.comparison import ComparisonRow
from certus.selection.halving import PlanStep
from certus.selection.heats import (
    FAILURES,
    LATE,
    Heats,
    dense_if,
    finite,
    sentence,
    sharing,
)
from certus.selection.inspection import take
from certus.selection.metrics import Predicted, predict_rows
from certus.selection.preparation import Prepared
from certus.selection.splits import make_split
from certus.tables import TablePipeline
from certus.tables.pipeline import encoder_for
from certus.typing import ArrayLike
from certus.unwrapping import innermost

__all__ = ["Race", "Step", "take_target"]

#: Bytes of encoded folds kept; beyond, a fold is encoded again for each candidate.
_MEMORY = 1 << 30
_INNER_FOLDS = 3
#: From this many rows on, one inner fold says enough.
_MANY = 1_000
#: Boosting with two labels is calibrated up to this many rows: beyond, it hardly gains
#: (docs/guide/metrics.md). The fold that is held out needs so many rows of each label.
_OVERSTATED, _FEW_OF_A_LABEL = 2_000, 5

Step = Callable[[str, float], None]


class Race:
    """Runs candidates over the folds of a prepared table.

    Parameters
    ----------
    ready : Prepared
        The table, its target and the plan.
    deadline : float or None
        ``time.perf_counter()`` at which no further fit is begun.
    step : callable
        Called with a text and the share of the work done, before each fit.
    brief : bool, default=False
        Whether one inner fold is enough to choose parameters.
    """

    def __init__(
        self,
        ready: Prepared,
        deadline: float | None,
        step: Step,
        brief: bool = False,
    ) -> None:
        self.ready, self.deadline, self.step = ready, deadline, step
        self.brief = brief
        self._folds: dict[tuple[int, str], tuple[Any, Any]] = {}
        self._texts = True  # whether a column may hold free text
        self._done = self._total = 0.0
        self._heats = Heats(self)
        self._encoding = 0.0  # seconds to encode a fold
        self._longest = 0.0  # those and the longest fit's that may have to be repeated
        self._reserve = 0.0  # those of the best candidate so far, and its loss
        self._least = np.inf
        self._alone = False  # whether one model only can be chosen
        self._classes = None if ready is None else ready.classes

    @property
    def share(self) -> float:
        """Share of the work that is done."""
        return self._done / self._total if self._total else 0.0

    @property
    def plan(self) -> list[PlanStep]:
        """The trials on a part of the rows, in turn."""
        return self._heats.plan

    # ---- the candidates ----------------------------------------------------------

    def run(self, lineup: list[Candidate]) -> tuple[list[ComparisonRow], Status]:
        """A row for each candidate, in their order, and how the race ended."""
        rows: dict[str, ComparisonRow] = {}
        status = Status.SOLVED
        self._total = sum(c.weight for c in lineup if not c.reason)
        self._alone = sum(c.kind == "certus" and not c.reason for c in lineup) == 1
        turn = self._in_turn(lineup)
        # With a deadline there is a model before others are tried.
        soon = 0 if self.deadline is None else 2
        status = self._run(turn[:soon], rows, status)
        if status is not Status.INTERRUPTED and not self._alone:
            try:
                turn = [*turn[:soon], *self._heats.order(turn[soon:])]
            except KeyboardInterrupt:
                status = Status.INTERRUPTED
        status = self._run(turn[soon:], rows, status)
        return [rows[candidate.name] for candidate in lineup], status

    def _run(
        self, some: list[Candidate], rows: dict[str, ComparisonRow], status: Status
    ) -> Status:
        """Rows for some candidates, and how the race stands then."""
        for candidate in some:
            reason = candidate.reason or self._heats.dropped.get(candidate.name, "")
            if reason or status is Status.INTERRUPTED:
                rows[candidate.name] = _blank(candidate, reason or "interrupted")
                late = reason.startswith(LATE) and status is not Status.INTERRUPTED
                status = Status.TIME_LIMIT if late else status
                continue
            before = self._done
            self._longest = self._reserve
            try:
                with alarm(self.latest()), sharing(len(self.ready.y)):
                    row = self._measure(candidate)
            except TimeIsUp:
                row = _blank(candidate, LATE)
            except KeyboardInterrupt:
                status, row = Status.INTERRUPTED, _blank(candidate, "interrupted")
            if row.reason.startswith(LATE):
                status = Status.TIME_LIMIT
            self._done = before + candidate.weight
            rows[candidate.name] = row
        return status

    def _in_turn(self, lineup: list[Candidate]) -> list[Candidate]:
        """With a deadline, two cheap ones first, then those that are often the best."""
        if self.deadline is None:
            return lineup
        strong = [c for c in lineup if c.strong or c.kind == "foreign"]
        others = sorted((c for c in lineup if c not in strong), key=_cost)
        return [*others[:2], *strong, *others[2:]]

    def latest(self) -> float | None:
        """The moment from which on the time left is needed for the final fit."""
        return None if self.deadline is None else self.deadline - 1.5 * self._longest

    def _late(self, needed: float = 0.0) -> bool:
        """Whether a fit of that many seconds, and the final one, would be too late."""
        latest = self.latest()
        return latest is not None and time.perf_counter() + needed > latest

    def _measure(self, candidate: Candidate) -> ComparisonRow:
        """Tune, fit and judge one candidate on every fold."""
        y, folds = self.ready.y, self.ready.split.folds
        if not folds:
            return _blank(candidate, "too few rows to measure an error")
        errors: list[float] = []
        guesses, shares = _unknown(y), _no_shares(y, self._classes)
        times: list[float] = []
        fits: list[float] = []
        short = False
        choice = Choice(candidate.model)
        for at, (train, test) in enumerate(folds):
            share = (self._done + candidate.weight * at / len(folds)) / self._total
            self.step(f"{candidate.name}, fold {at + 1} of {len(folds)}", share)
            needed = _still_needed(times, len(folds))
            if self._late(needed):
                return _blank(candidate, _late_by(needed))
            Z, Z_test = self._encoded(at, candidate)
            # One certificate tells how such fits end; the chosen model has its own.
            judged = at == len(folds) - 1 and not self._alone
            start = time.perf_counter()
            try:
                choice = self.choose(candidate, Z, train)
                model, began = clone(choice.model), time.perf_counter()
                with config_context(certify="always" if judged else "never"):
                    model.fit(dense_if(candidate, Z), y[train])
                said = self.predict(model, dense_if(candidate, Z_test))
            except TimeoutError:
                return _blank(candidate, LATE)
            except FAILURES as error:
                return _blank(candidate, sentence(error))
            times.append(time.perf_counter() - start)
            fits.append(time.perf_counter() - began + self._encoding)
            if candidate.kind == "certus":
                self._longest = max(self._reserve, *fits)
            short = short or _is_cut(model, times[-1])
            if not finite(said):
                return _blank(candidate, "its predictions are not finite")
            guesses[test] = said.guess
            if shares is not None and said.shares is not None:
                shares[test] = said.shares
            value = self.ready.metric(y[test], said)
            if np.isinf(value):
                return _blank(candidate, "some predictions are not positive")
            errors += [] if np.isnan(value) else [value]
        if not errors:
            label = self.ready.metric.label
            return _blank(candidate, f"{label} is not defined on any fold")
        loss = self.ready.metric.loss(float(np.mean(errors)))
        if candidate.kind == "certus" and loss < self._least:
            self._least, self._reserve = loss, max(fits)
        self._longest = self._reserve
        return ComparisonRow(
            candidate.name,
            candidate.kind,
            choice.model,
            tuple(errors),
            sum(times),
            *_solved(getattr(model, "certificate_", None)),
            grid=choice.grid,
            predictions=guesses,
            shares=None if shares is None or np.isnan(shares).all() else shares,
            cut_short=short,
        )

    def predict(self, model: Any, Z: Any) -> Predicted:
        """What a model says about some rows."""
        said = predict_rows(model, Z, self._classes, self.ready.positive)
        bounds = self.ready.bounds
        if bounds is None:
            return said
        return said._replace(guess=np.clip(said.guess, *bounds))

    # ---- parameters --------------------------------------------------------------

    def choose(self, candidate: Candidate, Z: Any, rows: np.ndarray) -> Choice:
        """The candidate's parameters, from these training rows alone."""
        choice = self._tuned(candidate, Z, rows)
        # Models without probabilities get them from their scores, whatever the metric:
        # if one is chosen, the sealed rows judge probabilities, and users ask for them.
        needed = self.ready.metric.needs == "probabilities"
        asked = self.ready.labels and (needed or candidate.kind == "certus")
        split, y = self.ready.split, self.ready.y[rows]
        cv: Any = _INNER_FOLDS
        if asked and hasattr(choice.model, "predict_proba"):
            cv = self._held_out(y, rows) if candidate.overstates and needed else []
            asked = bool(cv)
        elif split.groups is not None or split.time is not None:
            cv = list(self._inner(y, rows))
        if not asked:
            return choice
        return choice._replace(
            model=PlattClassifier(choice.model, cv=cv, random_state=split.seed)
        )

    def _held_out(self, y: np.ndarray, rows: np.ndarray) -> list[Any]:
        """One inner fold to calibrate on, where this is known to pay; else none."""
        labels = np.unique(y)
        if len(labels) != 2 or len(y) > _OVERSTATED:
            return []
        inner = list(self._inner(y, rows))[-1:]
        held = [int(np.sum(y[test] == k)) for _, test in inner for k in labels]
        return inner if min(held, default=0) >= _FEW_OF_A_LABEL else []

    def _tuned(self, candidate: Candidate, Z: Any, rows: np.ndarray) -> Choice:
        model = self._limited(candidate.model)
        if candidate.choose is None:
            return Choice(model)
        split, y = self.ready.split, self.ready.y[rows]
        some = np.arange(len(rows))
        if candidate.rows is not None and len(rows) > candidate.rows:
            some = self.sample(y, candidate.rows)
            Z, y = Z[some], y[some]
        inner = self._inner(y, rows[some])
        if not inner:
            return Choice(model)
        if len(y) > _MANY or self.brief:
            inner = inner[-1:]
        plain = split.groups is None and split.time is None
        try:
            with config_context(certify="never"):
                on = Tuning(
                    *(Z, y, inner, plain, self._late),
                    *(self.ready.metric, self.ready.positive),
                )
                return candidate.choose(model, on)
        except FAILURES:  # an inner fold may lack a label: the defaults will do
            return Choice(model)

    def _inner(self, y: np.ndarray, rows: np.ndarray) -> Any:
        """Folds of some training rows, with groups and times respected."""
        split, times = self.ready.split, self.ready.times
        return make_split(
            y,
            labels=self.ready.labels and split.groups is None,
            fraction=0.0,
            folds=_INNER_FOLDS,
            random_state=split.seed,
            units=None if split.units is None else split.units[rows],
            time=None if times is None else times[rows],
        ).folds

    def sample(self, y: np.ndarray, size: int) -> np.ndarray:
        """Positions of ``size`` rows: labels dealt evenly, or the latest in time."""
        if size >= len(y):
            return np.arange(len(y))
        if self.ready.split.time is not None:
            return np.arange(len(y) - size, len(y))
        share = 1 - size / len(y)
        labels = self.ready.labels
        return make_split(y, labels=labels, fraction=share, random_state=1).training

    def _limited(self, model: Any) -> Any:
        """The model, with ``max_time`` set if there is a deadline."""
        model = clone(model)
        if self.deadline is not None and "max_time" in model.get_params(deep=False):
            left = self.deadline - time.perf_counter()
            model.set_params(max_time=float(f"{max(1e-3, left):.3g}"))
        return model

    # ---- tables --------------------------------------------------------------------

    def _encoded(self, at: int, candidate: Candidate) -> tuple[Any, Any]:
        """Training and test rows of a fold as matrices, encoded by the former."""
        encoder = encoder_for(candidate.model)
        # Free text becomes other columns for linear models than for the others.
        key = at, encoder.text if self._texts else ""
        if key in self._folds:
            return self._folds[key]
        X, (train, test) = self.ready.X, self.ready.split.folds[at]
        start = time.perf_counter()
        Z = encoder.fit_transform(take(X, train), self.ready.y[train])
        pair = Z, encoder.transform(take(X, test))
        self._encoding = max(self._encoding, time.perf_counter() - start)
        self._texts = encoder.has_text_
        size = sum(Z.data.nbytes if sparse.issparse(Z) else Z.nbytes for Z in pair)
        if size * len(self.ready.split.folds) <= _MEMORY:
            self._folds[at, encoder.text if self._texts else ""] = pair
        return pair

    # ---- the chosen one ------------------------------------------------------------

    def finish(
        self,
        candidate: Candidate,
        row: ComparisonRow,
        y: ArrayLike,
        rows: np.ndarray | None = None,
    ) -> tuple[Any, ComparisonRow]:
        """The chosen candidate on all training rows; Ctrl-C keeps the current state.

        ``y`` is the target as it came, with its name; ``rows`` may name other rows.
        """
        self._folds.clear()
        what = "all training rows" if rows is None else "all rows"
        self.step(f"{candidate.name}, {what}", 1.0 if rows is None else 2.0)
        rows = self.ready.split.training if rows is None else rows
        policy = {"on_uncertified": "ignore", "on_interrupt": "return"}
        policy["certify"] = "always"
        with sharing(len(rows)):
            pipeline, choice = self.fit_pipeline(candidate, row, y, rows, policy)
        gap, solved = _solved(pipeline.certificate_)
        row = dataclasses.replace(row, model=choice.model, grid=choice.grid or row.grid)
        return pipeline, dataclasses.replace(row, gap=gap, solved=solved)

    def fit_pipeline(
        self,
        candidate: Candidate,
        row: ComparisonRow,
        y: ArrayLike,
        rows: np.ndarray,
        policy: Any,
    ) -> tuple[TablePipeline, Choice]:
        """The candidate with its parameters chosen on some rows, and fitted to them.

        ``policy`` holds settings of :func:`certus.config_context` for the last fit.
        """
        X = take(self.ready.X, rows)
        encoder = encoder_for(candidate.model)
        Z, last = None, Choice(self._limited(row.model), row.grid)
        try:
            if candidate.choose and self._in_time(row):
                Z = clone(encoder).fit_transform(X, self.ready.y[rows])
            late = Z is None and candidate.choose is not None
            choice = last if late else self.choose(candidate, Z, rows)
        except TimeoutError:
            choice = last
        bounds = self.ready.bounds
        pipeline = TablePipeline(encoder, estimator=choice.model, bounds=bounds)
        with config_context(**policy):
            pipeline.fit(X, take_target(y, self.ready.y, rows))
        return pipeline, choice

    def _in_time(self, row: ComparisonRow) -> bool:
        """Whether parameters can be chosen again; else those of the last fold do."""
        if self.deadline is None or not row.errors:
            return True
        again = 2 * self._encoding + row.seconds / len(row.errors)
        return time.perf_counter() + 1.5 * again <= self.deadline


def _late_by(needed: float) -> str:
    """That there was no time, and for how much."""
    return f"{LATE}: about {needed:.2g} s more needed" if needed else LATE


def _still_needed(times: list[float], folds: int) -> float:
    """Seconds for the other folds and a final fit, at best; the first may compile."""
    if len(times) < 2:
        return sum(times)
    return min(times) * (folds - len(times) + 1)


def _cost(candidate: Candidate) -> tuple[bool, float]:
    return candidate.late, candidate.weight


def _is_cut(model: Any, seconds: float) -> bool:
    """Whether a fit ended because its time was up, rather than by itself."""
    limit = getattr(innermost(model), "max_time", None)
    return limit is not None and seconds >= 0.9 * limit


def _blank(candidate: Candidate, reason: str) -> ComparisonRow:
    return ComparisonRow(candidate.name, candidate.kind, candidate.model, reason=reason)


def _unknown(y: np.ndarray) -> np.ndarray:
    """An empty prediction for each row."""
    if y.dtype.kind in "iufb" and y.dtype.kind != "b":
        return np.full(len(y), np.nan)
    return np.full(len(y), None, dtype=object)


def _no_shares(y: np.ndarray, classes: np.ndarray | None) -> np.ndarray | None:
    """An empty probability of each label for each row; None for amounts."""
    return None if classes is None else np.full((len(y), len(classes)), np.nan)


def _solved(found: Certificate | None) -> tuple[float | None, bool | None]:
    """The gap of the primary claim, and whether it met its target."""
    if found is None or found.value is None or found.met is None:
        return None, None
    counts = (found[found.primary].target or 0.0) > 1.0  # mistakes, say
    return None if counts else found.value, found.met


def take_target(y: ArrayLike, target: np.ndarray, rows: np.ndarray) -> Any:
    """Some rows of the target: of the series it came as, so that it keeps its name."""
    import narwhals as nw

    native = nw.from_native(y, pass_through=True, allow_series=True)
    if isinstance(native, nw.DataFrame):
        native = native[native.columns[0]]
    if isinstance(native, nw.Series):
        return native[rows].to_native()
    return target[rows]
