"""Whether intervals or sets still contain their share of the true targets.

If the order of the rows is known, two statements hold at every moment. The first is a
band around the share of rows covered so far, whatever happens to the rows. The second
is a bet against "these rows are like the calibration rows": as long as this is true,
the capital of the bet reaches 20 with a probability of at most 5 %. If the order is not
known, the rows are one sample with a Clopper–Pearson interval.

After a refit, the intervals judged are those of the model on all rows, which promise
the coverage of CV+; the bet uses the errors of the model before, because it alone has
rows that it was not fitted to.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from certus.bounds import (
    clopper_pearson,
    conformal_p_values,
    miss_martingale,
    running_mean,
)
from certus.conformal import label_scores, predictions
from certus.results import Result
from certus.tables.crossing import promised_coverage
from certus.typing import Array, ArrayLike, Fit, MatrixLike

__all__ = ["CoverageWatch", "watch_coverage"]


@dataclass(frozen=True)
class CoverageWatch(Result):
    """Coverage on rows whose true targets are known.

    Attributes
    ----------
    asked : float
        The coverage for which the intervals or sets were made.
    promised : float or None
        Share of new rows that they contain on average if nothing has changed: less than
        asked for after a refit, by the term of CV+; None where that is only measured.
    rows, covered : int
        Number of rows, and of those whose true target lies in their interval or set.
    low, high : float
        Ends of an interval for the coverage, which holds at every moment if
        ``ordered``.
    ordered : bool
        Whether the order of the rows is known.
    alarm : int or None
        Row, counted from 1, at which it was established that rows are no longer like
        the calibration rows; None if this was not established.
    odds : float or None
        Largest capital of a bet that starts with 1 and wins if rows are no longer like
        the calibration rows; a capital of 1/delta establishes this. None if the order
        or the calibration scores are not known.
    delta : float
        Failure probability of each of the two statements.
    refitted : bool
        Whether the model was fitted again to all rows. The bet then uses the errors of
        the model before.
    band : tuple of ndarray
        The coverage so far after each row, and the ends of its band.
    """

    asked: float
    promised: float | None
    rows: int
    covered: int
    low: float
    high: float
    ordered: bool
    alarm: int | None
    odds: float | None
    delta: float
    refitted: bool = False
    band: tuple[Any, ...] = field(default=(), repr=False, compare=False)

    @property
    def share(self) -> float:
        """Share of the rows whose true target lies in their interval or set."""
        return self.covered / self.rows

    @property
    def broken(self) -> bool:
        """Whether it is established that the coverage is below the promised one."""
        return self.alarm is not None or self._short

    @property
    def _short(self) -> bool:
        return self.promised is not None and self.high < self.promised

    @property
    def holds(self) -> bool:
        """Whether it is established that the coverage is at least the promised one."""
        enough = self.promised is not None and self.low >= self.promised
        return enough and not self.broken

    @property
    def headline(self) -> str:
        """The verdict without its numbers."""
        return self.verdict.partition(":")[0]

    @property
    def verdict(self) -> str:
        """The coverage in a sentence."""
        share = f"{100 * self.share:.1f} % of {self.rows:,} rows"
        ends = f"{100 * self.low:.1f} to {100 * self.high:.1f} %"
        promised = f"{100 * (self.promised or 0.0):g} %"
        told = "nothing is promised, because the coverage was only measured"
        if self.promised is not None:
            told = f"promised: {promised}"
        if self.alarm is not None:
            seen = "the calibration rows"
            if self.refitted:
                seen += ", by the errors of the model before its refit"
            return (
                f"coverage is lost: at row {self.alarm:,} it was established that rows "
                f"are no longer like {seen}; the intervals or sets contain {share} "
                f"({told})"
            )
        if self._short:
            return f"coverage is below {promised}: it is {share} ({ends})"
        if self.holds:
            return f"coverage holds: it is {share} ({ends}), at least {promised}"
        return f"no loss of coverage is established: it is {share} ({ends}; {told})"


def watch_coverage(
    model: Fit,
    X: MatrixLike,
    y: ArrayLike,
    coverage: float,
    ordered: bool,
    delta: float,
) -> CoverageWatch:
    """Judge the intervals or sets of a calibrated model on rows with true targets."""
    held = _held(model, X, y, coverage)
    least = promised_coverage(model, coverage).least
    again = getattr(model, "before_", None) is not None
    n, covered = len(held), int(held.sum())
    if not ordered:
        found = clopper_pearson(covered, n, delta)
        ends = float(found.low), float(found.high)
        rest = (*ends, False, None, None, delta, again)
        return CoverageWatch(coverage, least, n, covered, *rest)
    low, high = running_mean(held.astype(float), delta)
    so_far = np.cumsum(held) / np.arange(1, n + 1)
    alarm = odds = None
    scores = _scores(model, X, y)
    if scores is not None:
        p = conformal_p_values(*scores, random_state=0)  # a second look says the same
        capital = miss_martingale(p, 1 - coverage)
        reached = np.flatnonzero(capital >= np.log(1 / delta))
        alarm = int(reached[0]) + 1 if len(reached) else None
        odds = float(np.exp(min(float(capital.max()), 700.0)))
    ends = float(low[-1]), float(high[-1])
    return CoverageWatch(
        *(coverage, least, n, covered, *ends, True, alarm, odds, delta, again),
        band=(so_far, low, high),
    )


def _held(model: Fit, X: MatrixLike, y: ArrayLike, coverage: float) -> Array:
    """Whether each interval or set contains the true target."""
    if hasattr(model, "classes_"):
        inside = np.asarray(model.predict_set(X, coverage))
        own = _codes(model, y)
        return np.array([at >= 0 and row[at] for row, at in zip(inside, own)])
    ends = np.asarray(model.predict_interval(X, coverage))
    truth = np.asarray(y, dtype=np.float64)
    return np.asarray((ends[:, 0] <= truth) & (truth <= ends[:, 1]))


def _scores(model: Fit, X: MatrixLike, y: ArrayLike) -> tuple[Array, Array] | None:
    """Scores of the calibration rows and of these; None where there are none.

    After a refit, those of the model before: no row was left to calibrate another on.
    """
    model = getattr(model, "before_", model)
    stated = getattr(model, "calibration_certificate_", None)
    witness = getattr(getattr(stated, "evidence", None), "witness", None)
    calibration = getattr(witness, "scores", None)
    if calibration is None:
        return None
    inner, Z, _ = model._predictor(X)
    if not hasattr(model, "classes_"):
        z, _ = predictions(inner, Z)
        return calibration, np.abs(np.asarray(y, dtype=np.float64) - z)
    kind = "probability" if hasattr(inner, "predict_proba") else "margin"
    kind = kind if hasattr(inner, "decision_function") or kind[0] == "p" else "label"
    S, _ = label_scores(inner, Z, kind)
    own = _codes(model, y)
    # A label never seen fits worse than any other.
    return calibration, np.where(own < 0, np.inf, S[np.arange(len(own)), own])


def _codes(model: Fit, y: ArrayLike) -> Array:
    """The place of each label among those of the model; −1 for a new label."""
    place = {str(label): at for at, label in enumerate(model.classes_)}
    return np.array([place.get(str(label), -1) for label in np.asarray(y).tolist()])
