"""Rounds on a few of the rows, which decide who runs on all folds of a large table.

All candidates learn from the same rows of the first fold and are judged on others of
it; the better half goes on to four times as many rows, or to the folds. What is often
best with many rows is not dropped for what it does with few.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy import sparse
from sklearn.base import clone
from threadpoolctl import ThreadpoolController

from certus._core.alarm import TimeIsUp, alarm
from certus.config import config_context
from certus.selection.candidates import Candidate
from certus.selection.halving import PlanStep, better_half
from certus.selection.inspection import take
from certus.selection.metrics import Predicted
from certus.tables.pipeline import encoder_for

if TYPE_CHECKING:
    from certus.selection.race import Race

__all__ = ["FAILURES", "LATE", "Heats", "dense_if", "finite", "sentence", "sharing"]

#: Rows of a heat; how many times as many a fold must learn from, so that candidates are
#: tried on them first; candidates that go on at least; and rows that judge.
ROWS, ENOUGH, FEWEST, JUDGES = 2_000, 10, 3, 10_000
#: Share of the time left that all trials may take, and one of them of that.
ALL_TRIALS, ONE_TRIAL = 0.3, 0.4
#: All models use one thread below the first number of rows, OpenMP below the second.
_ONE_THREAD, _THREADED_ROWS = 2_000, 20_000


class Heats:
    """The trials of one race.

    Parameters
    ----------
    race : Race

    Attributes
    ----------
    plan : list of PlanStep
        What was tried, in turn.
    dropped : dict
        Why candidates went no further, by their names.
    """

    def __init__(self, race: Race) -> None:
        self.race = race
        self.plan: list[PlanStep] = []
        self.dropped: dict[str, str] = {}

    def order(self, turn: list[Candidate]) -> list[Candidate]:
        """The same candidates, the best of the trials first, after those not tried."""
        race = self.race
        folds = race.ready.split.folds
        m = len(folds[0][0]) if folds else 0
        alive = [c for c in turn if c.kind == "certus" and not (c.reason or c.given)]
        if m < ENOUGH * ROWS or len(alive) < 2:
            return turn
        until = race.latest()
        if until is not None:
            now = time.perf_counter()
            until = now + max(0.0, ALL_TRIALS * (until - now))
        with sharing(ROWS):
            for size in ROWS, 4 * ROWS:
                if size * ENOUGH <= m:
                    alive = self._round(alive, size, until)
        names = [c.name for c in alive]
        rest = [c for c in turn if c.name not in names]
        users = [c for c in rest if c.name not in self.dropped]
        gone = [c for c in rest if c.name in self.dropped]
        baselines = [c for c in users if c.kind == "baseline"]
        others = [c for c in users if c.kind != "baseline"]
        return [*baselines, *alive, *others, *gone]

    def _round(
        self, some: list[Candidate], size: int, until: float | None
    ) -> list[Candidate]:
        """The candidates that go on after a trial on ``size`` rows, the best first."""
        race = self.race
        cache: dict[str, Any] = {}
        tried: list[Candidate] = []
        found: list[tuple[float, float, str]] = []
        for candidate in some:
            if until is not None and time.perf_counter() > until:
                break
            race.step(f"{candidate.name}, {size:,} rows", race.share)
            found.append(self._trial(candidate, size, cache, until))
            tried.append(candidate)
        metric = race.ready.metric
        losses = [metric.loss(error) for error, _, _ in found]
        losses = [np.inf if np.isnan(loss) else loss for loss in losses]
        # Who was not tried for lack of time goes on, after those who were.
        kept = better_half(losses, FEWEST)
        strong = [
            at
            for at, candidate in enumerate(tried)
            if candidate.strong and size == ROWS and np.isfinite(losses[at])
        ]
        going = [*kept, *(at for at in strong if at not in kept)]
        for at, (candidate, result) in enumerate(zip(tried, found)):
            error, seconds, said = result
            if at in going:
                said = "went on"
            elif not said:
                best = metric.show(found[kept[0]][0])
                said = f"dropped after {size:,} rows: {metric.show(error)}, best {best}"
            if at not in going:
                self.dropped[candidate.name] = said
            part = f"{size:,} rows of fold 1"
            step = candidate.name, part, size, float(error), seconds, said
            self.plan.append(PlanStep(*step))
        return [*(tried[at] for at in going), *some[len(tried) :]]

    def _trial(
        self, candidate: Candidate, size: int, cache: dict[str, Any], until: Any
    ) -> tuple[float, float, str]:
        """Error on the first fold after a fit to a few rows; seconds; what failed."""
        race, start = self.race, time.perf_counter()
        y = race.ready.y
        limit = None if until is None else start + ONE_TRIAL * (until - start)
        error, said = np.nan, ""
        try:
            with alarm(limit), config_context(certify="never"):
                some, judged, Z, there = self._table(candidate, size, cache)
                choice = race.choose(candidate, Z, some)
                model = clone(choice.model).fit(dense_if(candidate, Z), y[some])
                guess = race.predict(model, dense_if(candidate, there))
                if finite(guess):
                    error = race.ready.metric(y[judged], guess)
                if not np.isfinite(error):
                    said = "its predictions are not finite"
        except (TimeIsUp, TimeoutError):
            took = time.perf_counter() - start
            said = f"{LATE}: over {took:.2g} s for {size:,} rows"
        except FAILURES as failure:
            said = sentence(failure)
        return error, time.perf_counter() - start, said

    def _table(self, candidate: Candidate, size: int, cache: dict[str, Any]) -> Any:
        """Rows to learn from and to judge on, and both as matrices."""
        race = self.race
        encoder = encoder_for(candidate.model)
        if encoder.text not in cache:
            X, y, (train, test) = race.ready.X, race.ready.y, race.ready.split.folds[0]
            some = train[race.sample(y[train], size)]
            judged = test[race.sample(y[test], JUDGES)]
            Z = encoder.fit_transform(take(X, some), y[some])
            there = encoder.transform(take(X, judged))
            cache[encoder.text] = some, judged, Z, there
        return cache[encoder.text]


#: Why a candidate was left out that there was no time for.
LATE = "no time left"
#: What a fit may raise.
FAILURES = (
    *(ValueError, TypeError, ArithmeticError, MemoryError, NotImplementedError),
    *(np.linalg.LinAlgError, RuntimeError, AttributeError, KeyError, IndexError),
)


@contextmanager
def sharing(n: int) -> Iterator[None]:
    """One thread on small tables and on busy machines.

    Threads of OpenMP and BLAS wait for one another without letting go of the processor:
    on a busy machine two of them can take forty times as long as one. Small tables gain
    nothing from two.
    """
    if n < _ONE_THREAD or _is_busy():
        limited = None  # all of them
    elif n < _THREADED_ROWS:
        limited = "openmp"
    else:
        yield
        return
    with ThreadpoolController().limit(limits=1, user_api=limited):
        yield


def _is_busy() -> bool:
    """Whether others want all processors, now or during the last minute."""
    if not hasattr(os, "getloadavg"):
        return False
    cores, now = os.cpu_count() or 1, 0
    # Linux tells how many threads are running or wait for a processor; one is this.
    with suppress(OSError, ValueError, IndexError):
        told = Path("/proc/loadavg").read_text(encoding="ascii")
        now = int(told.split()[3].partition("/")[0]) - 1
    # Half a thread more than this process may have caused itself.
    return now >= cores or os.getloadavg()[0] > cores + 0.5


def sentence(error: BaseException) -> str:
    """Why a fit failed."""
    if isinstance(error, MemoryError):
        return "out of memory"
    text = " ".join(str(error).split()) or type(error).__name__
    return f"failed: {text}"


def finite(said: Predicted) -> bool:
    """Whether all predictions are finite."""
    guess = said.guess
    whole = guess.dtype.kind != "f" or bool(np.isfinite(guess).all())
    return whole and (said.shares is None or bool(np.isfinite(said.shares).all()))


def dense_if(candidate: Candidate, Z: Any) -> Any:
    """Foreign models and the constant may not take sparse rows."""
    return Z.toarray() if candidate.kind != "certus" and sparse.issparse(Z) else Z
