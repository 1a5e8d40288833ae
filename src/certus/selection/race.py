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

from certus.certificate import Certificate, Status
from certus.config import config_context
from certus.selection.candidates import Candidate, Choice, Tuning, error_of
from certus.selection.comparison import ComparisonRow
from certus.selection.inspection import take
from certus.selection.preparation import Prepared
from certus.selection.splits import make_split
from certus.tables import TableEncoder, TablePipeline
from certus.typing import ArrayLike

__all__ = ["Race", "Step"]

#: Bytes of encoded folds kept; beyond, a fold is encoded again for each candidate.
_MEMORY = 1 << 30
_INNER_FOLDS = 3
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
    """

    def __init__(self, ready: Prepared, deadline: float | None, step: Step) -> None:
        self.ready, self.deadline, self.step = ready, deadline, step
        self._folds: dict[int, tuple[Any, Any]] = {}
        self._done = self._total = 0.0
        self._longest = 0.0  # seconds of the longest fit that may have to be repeated
        self._alone = False  # whether one model only can be chosen

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
                row = self._measure(candidate)
            except KeyboardInterrupt:
                status, row = Status.INTERRUPTED, _blank(candidate, "interrupted")
            if row.reason == _LATE:
                status = Status.TIME_LIMIT
            self._done = before + candidate.weight
            rows[candidate.name] = row
        return [rows[candidate.name] for candidate in lineup], status

    def _in_turn(self, lineup: list[Candidate]) -> list[Candidate]:
        """With a deadline, cheap ones first, then the reference, then the others."""
        if self.deadline is None:
            return lineup
        ours = sorted((c for c in lineup if c.kind != "foreign"), key=_cost)
        reference = [c for c in lineup if c.kind == "foreign"]
        return [*ours[:2], *reference, *ours[2:]]

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
        guesses = _unknown(y)
        times: list[float] = []
        choice = Choice(candidate.model)
        for at, (train, test) in enumerate(folds):
            share = (self._done + candidate.weight * at / len(folds)) / self._total
            self.step(f"{candidate.name}, fold {at + 1} of {len(folds)}", share)
            if self._late(_still_needed(times, len(folds))):
                return _blank(candidate, _LATE)
            Z, Z_test = self._encoded(at)
            # One certificate tells how such fits end; the chosen model has its own.
            judged = at == len(folds) - 1 and not self._alone
            start = time.perf_counter()
            try:
                choice = self._choose(candidate, Z, train)
                model = clone(choice.model)
                with config_context(certify="always" if judged else "never"):
                    model.fit(_dense_if(candidate, Z), y[train])
                guess = np.asarray(model.predict(_dense_if(candidate, Z_test)))
            except TimeoutError:
                return _blank(candidate, _LATE)
            except _FAILURES as error:
                return _blank(candidate, _sentence(error))
            times.append(time.perf_counter() - start)
            guesses[test] = guess
            errors.append(error_of(guess, y[test], self.ready.labels))
        if not np.isfinite(errors).all():
            return _blank(candidate, "its predictions are not finite")
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
        )

    # ---- parameters --------------------------------------------------------------

    def _choose(self, candidate: Candidate, Z: Any, rows: np.ndarray) -> Choice:
        """The candidate's parameters, from these training rows alone."""
        model = self._limited(candidate.model)
        if candidate.choose is None:
            return Choice(model)
        split, y = self.ready.split, self.ready.y[rows]
        some = np.arange(len(rows))
        if candidate.rows is not None and len(rows) > candidate.rows:
            some = some[-candidate.rows :] if split.time else self._sample(candidate, y)
            Z, y = Z[some], y[some]
        units, times = split.units, self.ready.times
        inner = make_split(
            y,
            labels=self.ready.labels and split.groups is None,
            fraction=0.0,
            folds=_INNER_FOLDS,
            seed=split.seed,
            units=None if units is None else units[rows][some],
            time=None if times is None else times[rows][some],
        ).folds
        if not inner:
            return Choice(model)
        if len(y) > _MANY:
            inner = inner[-1:]
        plain = split.groups is None and split.time is None
        try:
            with config_context(certify="never"):
                return candidate.choose(model, Tuning(Z, y, inner, plain, self._late))
        except _FAILURES:  # an inner fold may lack a label: the defaults will do
            return Choice(model)

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
            model.set_params(max_time=max(1e-3, left))
        return model

    # ---- tables --------------------------------------------------------------------

    def _encoded(self, at: int) -> tuple[Any, Any]:
        """Training and test rows of a fold as matrices, encoded by the former."""
        if at in self._folds:
            return self._folds[at]
        X, (train, test) = self.ready.X, self.ready.split.folds[at]
        encoder = TableEncoder()
        pair = encoder.fit_transform(take(X, train)), encoder.transform(take(X, test))
        size = sum(Z.data.nbytes if sparse.issparse(Z) else Z.nbytes for Z in pair)
        if size * len(self.ready.split.folds) <= _MEMORY:
            self._folds[at] = pair
        return pair

    # ---- the chosen one ------------------------------------------------------------

    def finish(
        self, candidate: Candidate, row: ComparisonRow, y: ArrayLike
    ) -> tuple[Any, ComparisonRow]:
        """The chosen candidate on all training rows; Ctrl-C keeps the current state.

        ``y`` is the target as it came, with its name.
        """
        self._folds.clear()
        self.step(f"{candidate.name}, all training rows", 1.0)
        rows = self.ready.split.training
        X = take(self.ready.X, rows)
        Z = TableEncoder().fit_transform(X) if candidate.choose else None
        try:
            choice = self._choose(candidate, Z, rows)
        except TimeoutError:  # use the parameters of the last fold
            choice = Choice(row.model, row.grid)
        pipeline = TablePipeline(TableEncoder(), estimator=choice.model)
        policy = {"on_uncertified": "ignore", "on_interrupt": "return"}
        with config_context(certify="always", **policy):
            pipeline.fit(X, take_target(y, self.ready.y, rows))
        gap, solved = _solved(pipeline.certificate_)
        row = dataclasses.replace(row, model=choice.model, grid=choice.grid or row.grid)
        return pipeline, dataclasses.replace(row, gap=gap, solved=solved)


_LATE = "no time left"
_FAILURES = (
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


def _cost(candidate: Candidate) -> float:
    return candidate.weight


def _blank(candidate: Candidate, reason: str) -> ComparisonRow:
    return ComparisonRow(candidate.name, candidate.kind, candidate.model, reason=reason)


def _unknown(y: np.ndarray) -> np.ndarray:
    """An empty prediction for each row."""
    if y.dtype.kind in "iufb" and y.dtype.kind != "b":
        return np.full(len(y), np.nan)
    return np.full(len(y), None, dtype=object)


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
