"""Run candidates on one plan of folds, within the time limit and until Ctrl-C.

Each fold's table is encoded from its training rows and shared by all candidates. A
candidate counts only when all its folds are done, so there are always complete rows to
compare.
"""

from __future__ import annotations

import dataclasses
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from scipy import sparse
from sklearn.base import clone
from threadpoolctl import ThreadpoolController

from certus._core.alarm import TimeIsUp, alarm
from certus.calibration import PlattClassifier
from certus.certificate import Certificate, Status
from certus.config import config_context
from certus.selection.candidates import Candidate, Choice, Tuning
from certus.selection.comparison import ComparisonRow
from certus.selection.inspection import take
from certus.selection.metrics import Predicted, predict_rows
from certus.selection.preparation import Prepared
from certus.selection.splits import make_split
from certus.tables import TablePipeline
from certus.tables.pipeline import encoder_for
from certus.typing import ArrayLike
from certus.unwrapping import innermost

__all__ = ["FAILURES", "Race", "Step", "take_target"]

#: Bytes of encoded folds kept; beyond, a fold is encoded again for each candidate.
_MEMORY = 1 << 30
_INNER_FOLDS = 3
#: All models use one thread below so many rows, and OpenMP below so many.
_ONE_THREAD, _THREADED_ROWS = 2_000, 20_000
#: From this many rows on, one inner fold says enough.
_MANY = 1_000

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
        self._longest = 0.0  # seconds of the longest fit that may have to be repeated
        self._pace = 0.0  # most seconds of a fold for each unit of weight, so far
        self._alone = False  # whether one model only can be chosen
        self._classes = None if ready is None else ready.classes

    # ---- the candidates ----------------------------------------------------------

    def run(self, lineup: list[Candidate]) -> tuple[list[ComparisonRow], Status]:
        """A row for each candidate, in their order, and how the race ended."""
        rows: dict[str, ComparisonRow] = {}
        status = Status.SOLVED
        self._total = sum(c.weight for c in lineup if not c.reason)
        self._alone = sum(c.kind == "certus" and not c.reason for c in lineup) == 1
        for candidate in self._in_turn(lineup):
            if candidate.reason or status is Status.INTERRUPTED:
                reason = candidate.reason or "interrupted"
                rows[candidate.name] = _blank(candidate, reason)
                continue
            before = self._done
            try:
                with alarm(self._latest()), _sharing(len(self.ready.y)):
                    row = self._measure(candidate)
            except TimeIsUp:
                row = _blank(candidate, LATE)
            except KeyboardInterrupt:
                status, row = Status.INTERRUPTED, _blank(candidate, "interrupted")
            if row.reason == LATE:
                status = Status.TIME_LIMIT
            self._done = before + candidate.weight
            rows[candidate.name] = row
        return [rows[candidate.name] for candidate in lineup], status

    def _in_turn(self, lineup: list[Candidate]) -> list[Candidate]:
        """With a deadline, two cheap ones first, then those that are often the best."""
        if self.deadline is None:
            return lineup
        strong = [c for c in lineup if c.strong or c.kind == "foreign"]
        others = sorted((c for c in lineup if c not in strong), key=_cost)
        return [*others[:2], *strong, *others[2:]]

    def _expected(self, candidate: Candidate, times: list[float], folds: int) -> float:
        """Seconds that the next fold and all after it will take, at best.

        Before the first fold of a candidate, the slowest of those before it tells, for
        its weight; the constant has none before it.
        """
        if times or candidate.kind == "baseline":
            return _still_needed(times, folds)
        return self._pace * candidate.weight

    def _latest(self) -> float | None:
        """The moment at which even a fit that never asks for the time must end."""
        return None if self.deadline is None else self.deadline - 1.5 * self._longest

    def _late(self, needed: float = 0.0) -> bool:
        """Whether a fit of that many seconds, and the final one, would be too late."""
        if self.deadline is None:
            return False
        return time.perf_counter() + needed + 1.5 * self._longest > self.deadline

    def _measure(self, candidate: Candidate) -> ComparisonRow:
        """Tune, fit and judge one candidate on every fold."""
        y, folds = self.ready.y, self.ready.split.folds
        if not folds:
            return _blank(candidate, "too few rows to measure an error")
        errors: list[float] = []
        guesses, shares = _unknown(y), _no_shares(y, self._classes)
        times: list[float] = []
        short = False
        choice = Choice(candidate.model)
        for at, (train, test) in enumerate(folds):
            share = (self._done + candidate.weight * at / len(folds)) / self._total
            self.step(f"{candidate.name}, fold {at + 1} of {len(folds)}", share)
            if self._late(self._expected(candidate, times, len(folds))):
                return _blank(candidate, LATE)
            Z, Z_test = self._encoded(at, candidate)
            # One certificate tells how such fits end; the chosen model has its own.
            judged = at == len(folds) - 1 and not self._alone
            start = time.perf_counter()
            try:
                choice = self._choose(candidate, Z, train)
                model = clone(choice.model)
                with config_context(certify="always" if judged else "never"):
                    model.fit(_dense_if(candidate, Z), y[train])
                said = self._predict(model, _dense_if(candidate, Z_test))
            except TimeoutError:
                return _blank(candidate, LATE)
            except FAILURES as error:
                return _blank(candidate, _sentence(error))
            times.append(time.perf_counter() - start)
            short = short or _is_cut(model, times[-1])
            if not _finite(said):
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
        self._pace = max(self._pace, min(times) / candidate.weight)
        if candidate.kind == "certus":
            self._longest = max(self._longest, *times)
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

    def _predict(self, model: Any, Z: Any) -> Predicted:
        return predict_rows(model, Z, self._classes, self.ready.positive)

    # ---- parameters --------------------------------------------------------------

    def _choose(self, candidate: Candidate, Z: Any, rows: np.ndarray) -> Choice:
        """The candidate's parameters, from these training rows alone."""
        choice = self._tuned(candidate, Z, rows)
        # Models without probabilities get them from their scores, where they count.
        needed = self.ready.metric.needs == "probabilities" or self.ready.decides
        asked = self.ready.labels and needed
        if not asked or hasattr(choice.model, "predict_proba"):
            return choice
        split, y = self.ready.split, self.ready.y[rows]
        cv: Any = _INNER_FOLDS
        if split.groups is not None or split.time is not None:
            cv = list(self._inner(y, rows))
        return choice._replace(
            model=PlattClassifier(choice.model, cv=cv, random_state=split.seed)
        )

    def _tuned(self, candidate: Candidate, Z: Any, rows: np.ndarray) -> Choice:
        model = self._limited(candidate.model)
        if candidate.choose is None:
            return Choice(model)
        split, y = self.ready.split, self.ready.y[rows]
        some = np.arange(len(rows))
        if candidate.rows is not None and len(rows) > candidate.rows:
            some = some[-candidate.rows :] if split.time else self._sample(candidate, y)
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
            seed=split.seed,
            units=None if split.units is None else split.units[rows],
            time=None if times is None else times[rows],
        ).folds

    def _sample(self, candidate: Candidate, y: np.ndarray) -> np.ndarray:
        """As many rows as the candidate may choose on, labels dealt evenly."""
        share = 1 - (candidate.rows or len(y)) / len(y)
        labels = self.ready.labels
        return make_split(y, labels=labels, fraction=share, seed=1).training

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
        Z = encoder.fit_transform(take(X, train), self.ready.y[train])
        pair = Z, encoder.transform(take(X, test))
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
        Z = None
        if candidate.choose:
            Z = clone(encoder).fit_transform(X, self.ready.y[rows])
        try:
            choice = self._choose(candidate, Z, rows)
        except TimeoutError:  # use the parameters of the last fold
            choice = Choice(row.model, row.grid)
        pipeline = TablePipeline(encoder, estimator=choice.model)
        with config_context(**policy):
            pipeline.fit(X, take_target(y, self.ready.y, rows))
        return pipeline, choice


@contextmanager
def _sharing(n: int) -> Iterator[None]:
    """One thread on small tables, and for trees of scikit-learn on busy machines.

    Threads of OpenMP and BLAS wait for one another without letting go of the processor:
    on a busy machine two of them can take forty times as long as one. Small tables gain
    nothing from two.
    """
    busy = hasattr(os, "getloadavg") and os.getloadavg()[0] > (os.cpu_count() or 1)
    if n < _ONE_THREAD:
        limited = None  # all of them
    elif busy or n < _THREADED_ROWS:
        limited = "openmp"
    else:
        yield
        return
    with ThreadpoolController().limit(limits=1, user_api=limited):
        yield


#: Why a candidate was left out that there was no time for.
LATE = "no time left"
#: What a fit may raise.
FAILURES = (
    *(ValueError, TypeError, ArithmeticError, MemoryError, NotImplementedError),
    *(np.linalg.LinAlgError, RuntimeError, AttributeError, KeyError, IndexError),
)


def _sentence(error: BaseException) -> str:
    if isinstance(error, MemoryError):
        return "out of memory"
    text = " ".join(str(error).split()) or type(error).__name__
    return f"failed: {text}"


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


def _finite(said: Predicted) -> bool:
    guess = said.guess
    whole = guess.dtype.kind != "f" or bool(np.isfinite(guess).all())
    return whole and (said.shares is None or bool(np.isfinite(said.shares).all()))


def _dense_if(candidate: Candidate, Z: Any) -> Any:
    """Foreign models and the constant may not take sparse rows."""
    return Z.toarray() if candidate.kind != "certus" and sparse.issparse(Z) else Z


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
