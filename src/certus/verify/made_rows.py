"""Rows that a generator made beside real ones: modes, and a critic of our own.

- ``modes``: cells around some real rows that lie far apart. Which share of drawn rows
  each cell gets has an interval of Clopper and Pearson; the verifier draws these rows
  independently, so that it holds for these cells whatever the fit did.
- ``fresh_critic``: a logistic regression on random cosines, fitted to tell rows from
  drawn rows and judged on others. Its value is a lower bound of the Jensen–Shannon
  divergence against the generator as it is, whatever its own critic believes.
"""

from __future__ import annotations

import math

import numpy as np
from scipy.special import betaincinv

from certus.certificate import Claim, Strength
from certus.typing import Array
from certus.verify import deciding as bd
from certus.verify.perceptrons import MeanInterval, RowsGiven
from certus.verify.statistical import ROWS, SURE, outwards

#: Cells, rows they are chosen from, and the chance that an interval fails.
CELLS, FROM, DELTA = 10, 2_000, 0.05
#: A cell is missed if at most this share of its real share is made.
MISSED = 0.1
#: Cosines of the critic, rows that it learns from, its penalty, steps, and its scores.
COSINES, LEARN, PENALTY, STEPS, CLIP = 200, 4_000, 1e-3, 8, 4.0


def mode_claim(Z: Array, made: Array) -> Claim:
    """The least share that drawn rows have in a cell, as a share of the real one."""
    known = Z[np.linspace(0, len(Z) - 1, min(len(Z), FROM)).astype(int)]
    centres = _apart(known, min(CELLS, len(known)))
    real, drawn = (_counts(rows, centres) for rows in (known, made))
    n, delta = len(made), DELTA / len(centres) * (1 - SURE)
    low = [float(betaincinv(c, n - c + 1, delta)) if c else 0.0 for c in drawn]
    high = [float(betaincinv(c + 1, n - c, 1 - delta)) if c < n else 1.0 for c in drawn]
    share = real / len(known)
    worst = float(np.min(np.array(low) / share))
    lost = int((np.array(high) < MISSED * share).sum())
    told = (
        f"each of {len(centres)} groups of rows has at least {worst:.2g} of its real "
    )
    told += f"share among drawn rows; {n:,} were drawn"
    if lost:
        told = f"{lost} of {len(centres)} groups of rows are hardly ever made: below "
        told += f"{MISSED:g} of their real share"
    return Claim(
        *("modes", Strength.STATISTICAL, worst, None, not lost),
        objective="least lower bound, over cells around rows that lie far apart, of "
        "the share of drawn rows by the share of real rows",
        theorem="Clopper and Pearson for each cell, all together",
        assumptions=("the verifier's random numbers are independent",),
        delta=DELTA,
        detail=told,
        fix="more steps, another loss, or more critic_steps" if lost else "",
    )


def _apart(rows: Array, k: int) -> Array:
    """Means of cells that k-means finds from rows that lie far apart."""
    centres = [rows[int(np.square(rows - rows.mean(axis=0)).sum(axis=1).argmin())]]
    far = np.square(rows - centres[0]).sum(axis=1)
    for _ in range(k - 1):
        if not far.max() > 0:
            break
        centres.append(rows[int(far.argmax())])
        far = np.minimum(far, np.square(rows - centres[-1]).sum(axis=1))
    found = np.array(centres)
    for _ in range(10):
        cell = _nearest(rows, found)
        found = np.array([rows[cell == i].mean(axis=0) for i in np.unique(cell)])
    return found


def _nearest(rows: Array, centres: Array) -> Array:
    close = rows @ centres.T - 0.5 * np.square(centres).sum(axis=1)
    return np.asarray(close.argmax(axis=1))


def _counts(rows: Array, centres: Array) -> Array:
    return np.bincount(_nearest(rows, centres), minlength=len(centres))


# -- a critic of the verifier's own -------------------------------------------------


def fresh_claim(
    rows: RowsGiven, made: Array, made_codes: Array | None, n_classes: int
) -> Claim | None:
    """What a new critic reaches against the generator, or None with too few rows."""
    real = rows.Z
    if n_classes and rows.codes is not None and made_codes is not None:
        told = 2.0 * np.eye(n_classes)
        real = np.hstack([real, told[rows.codes]])
        made = np.hstack([made, told[made_codes]])
    if len(rows.rest):  # rows of the fit: learn from those the generator learned from
        learn, judge = rows.rest, rows.judged
    else:
        learn, judge = np.arange(0, len(real), 2), np.arange(1, len(real), 2)
    if min(len(learn), len(judge)) < 10:
        return None
    half, learn = len(made) // 2, learn[:LEARN]
    critic = _Critic(real[learn], made[:half][:LEARN])
    S, T = critic(real[judge]), critic(made[half:])
    right = 0.5 * (float((S > 0).mean()) + float((T < 0).mean()))
    # ½(E log D + E log(1 − D)) + log 2 with D = sigmoid of the score.
    s, t = -np.logaddexp(0.0, -S), -np.logaddexp(0.0, T)
    value = 0.5 * float(s.mean() + t.mean()) + math.log(2)
    about = (
        "JS ≥ ½(mean of log D over rows + mean of log(1 − D) over drawn rows) + log 2 "
    )
    about += "for a logistic regression D on random cosines, which was fitted on others"
    told_of = (
        f"a new critic is right in {100 * right:.0f} % of cases; the Jensen–Shannon "
    )
    told_of += "divergence is at least "
    if rows.old:
        told_of += f"about {max(value, 0):.3g}"
        return bd.measured("fresh_critic", value, told_of, objective=about)
    least = -float(np.logaddexp(0.0, CLIP))
    ends = [MeanInterval.of(v, least, 0.0, DELTA / 2) for v in (s, t)]
    low = max(0.5 * (ends[0].low + ends[1].low) + math.log(2), 0.0)
    return Claim(
        *("fresh_critic", Strength.STATISTICAL, low, None, True),
        objective=about,
        theorem="any D gives a lower bound; empirical Bernstein for both means",
        assumptions=ROWS,
        delta=DELTA,
        detail=f"{told_of}{outwards(low, up=False):.3g}",
    )


class _Critic:
    """Logistic regression on random cosines, by Newton's steps."""

    def __init__(self, real: Array, made: Array) -> None:
        rng = np.random.default_rng(5)
        both = np.vstack([real, made])
        y = np.repeat([1.0, 0.0], [len(real), len(made)])
        weight = np.where(y == 1, 0.5 / len(real), 0.5 / len(made))
        some = rng.permutation(len(both))[:300]
        squares = np.square(both[some]).sum(axis=1)
        far = squares[:, None] + squares - 2 * both[some] @ both[some].T
        width = math.sqrt(max(float(np.median(far)), 1e-12))
        # Narrow and wide cosines, so that close modes are told apart too.
        scale = np.geomspace(0.2, 5.0, COSINES) * math.sqrt(2.0) / width
        self.W = rng.standard_normal((both.shape[1], COSINES)) * scale
        self.b = rng.uniform(0, 2 * math.pi, COSINES)
        F, self.w = self._features(both), np.zeros(COSINES + 1)
        for _ in range(STEPS):
            D = 0.5 + 0.5 * np.tanh(0.5 * np.clip(F @ self.w, -30, 30))
            g = F.T @ (weight * (D - y)) + PENALTY * self.w
            H = (F * (weight * np.maximum(D * (1 - D), 1e-4))[:, None]).T @ F
            H[np.diag_indices(len(H))] += PENALTY
            self.w = self.w - np.linalg.solve(H, g)

    def _features(self, X: Array) -> Array:
        return np.column_stack([np.cos(X @ self.W + self.b), np.ones(len(X))])

    def __call__(self, X: Array) -> Array:
        """Scores, clipped."""
        return np.asarray(np.clip(self._features(X) @ self.w, -CLIP, CLIP))
