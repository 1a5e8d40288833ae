"""The likelihoods behind a summary, maximised on columns that are scaled first.

Gaussian, softmax and other exponential families are maximised from the model's
coefficients by Newton steps on a copy, on columns Q = [1, (X − m)/c]R⁻¹, orthonormal
under the row weights. That a maximum exists follows from the size of the last Newton
step (Bach, 2010, "Self-concordant analysis for logistic regression", proposition 2),
for every loss whose third derivative is at most its second: these are.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple, NoReturn

import numpy as np
from scipy import sparse
from scipy.linalg import cho_solve, qr, solve_triangular

from certus._solvers.losses import best_constant, evaluate
from certus.linear_model.directions import (
    at_limits,
    recedes,
    receding_direction,
    separates,
    separating_direction,
)
from certus.linear_model.summary import refuse
from certus.objectives import Binomial, Exponential, Logistic, Loss, Softmax, Tweedie
from certus.typing import Array, Matrix, MatrixLike

_BLOCK = 1 << 20  # elements of Q held at a time
_DECREMENT = 1e-12  # gᵀH⁻¹g in total log-likelihood at which polishing ends
_PROGRAMME = 1 << 20  # elements of the largest linear programme tried

# -- the columns ------------------------------------------------------------------


@dataclass(frozen=True)
class Basis:
    """Columns Q = [1, (X − m)/c]R⁻¹, made a block of rows at a time.

    ``raw`` takes coordinates θ to (intercept, coefficients); ``reach`` is max ‖qᵢ‖.
    """

    X: Any
    mean: Array
    scale: Array
    R: Array
    intercept: bool
    names: tuple[str, ...]
    raw: Array
    reach: float

    @classmethod
    def of(cls, X: Matrix, s: Array, intercept: bool, names: tuple[str, ...]) -> Basis:
        """Decompose, or refuse where a column is a combination of the others."""
        d = X.shape[1]
        mean = np.zeros(d)
        if intercept:
            mean += sum(s[cut] @ block for cut, block in _dense(X)) / s.sum()
        high = np.max([block.max(axis=0) for _, block in _dense(X)], axis=0)
        low = np.min([block.min(axis=0) for _, block in _dense(X)], axis=0)
        scale = np.maximum(high - mean, mean - low)
        flat = high == low if intercept else scale == 0
        if flat.any():
            name = names[int(np.flatnonzero(flat)[0])]
            what = "constant, as the intercept is" if intercept else "zero in every row"
            refuse(f"Column {name} is {what}. Drop it and fit again.")
        R = np.zeros((0, d + intercept))
        for cut, block in _dense(X):
            A = _columns(block, mean, scale, intercept)
            A = np.vstack([R, np.sqrt(s[cut])[:, None] * A])
            R = np.asarray(np.linalg.qr(A, mode="r"))
        names = ("(intercept)", *names) if intercept else names
        single = X.dtype == np.float32  # columns are known to 1e-7 at best
        _check_rank(R, names, 1e-6 if single else 1e-12)
        back = np.diag(1 / scale)
        if intercept:
            top = np.concatenate([[1.0], -mean / scale])
            back = np.vstack([top, np.column_stack([np.zeros(d), back])])
        raw = solve_triangular(R, back.T, trans="T").T
        basis = cls(X, mean, scale, R, intercept, names, raw, 0.0)
        reach = max(np.linalg.norm(Q, axis=1).max() for _, Q in basis.blocks())
        object.__setattr__(basis, "reach", float(reach))
        return basis

    def blocks(self) -> Iterator[tuple[slice, Array]]:
        """Rows of Q."""
        for cut, block in _dense(self.X):
            A = _columns(block, self.mean, self.scale, self.intercept)
            yield cut, solve_triangular(self.R, A.T, trans="T").T

    def coordinates(self, coef: Array) -> Array:
        """θ of (intercept, coefficients), shape (d + 1, k)."""
        inner = coef[1:] * self.scale[:, None]
        if self.intercept:
            inner = np.vstack([coef[:1] + self.mean @ coef[1:], inner])
        return np.asarray(self.R @ inner)


def _columns(block: Array, mean: Array, scale: Array, intercept: bool) -> Array:
    A = (block - mean) / scale
    return np.column_stack([np.ones(len(A)), A]) if intercept else A


def _dense(X: Any) -> Iterator[tuple[slice, Array]]:
    """Blocks of rows as dense float64."""
    n, d = X.shape
    rows = max(_BLOCK // (d + 1), 2 * d, 1)
    for i in range(0, n, rows):
        cut = slice(i, min(i + rows, n))
        block = X[cut].toarray() if sparse.issparse(X) else X[cut]
        yield cut, np.asarray(block, dtype=np.float64)


def _check_rank(R: Array, names: tuple[str, ...], least: float) -> None:
    """Refuse if a column has no more than the share ``least`` outside the others."""
    p = R.shape[1]
    if R.shape[0] < p:
        refuse(
            f"{p} coefficients cannot be determined from {R.shape[0]} different rows. "
            "Drop columns, or set a penalty."
        )
    unit = R / np.linalg.norm(R, axis=0)
    T, order = qr(unit, mode="r", pivoting=True)
    low = np.flatnonzero(np.abs(np.diag(T)) <= least)
    if not low.size:
        return
    r = int(low[0])
    mix = solve_triangular(T[:r, :r], T[:r, r])
    others = [names[order[i]] for i in np.flatnonzero(np.abs(mix) > 1e-6)]
    shown = ", ".join(others[:6]) + (", ..." if len(others) > 6 else "")
    refuse(
        f"Column {names[order[r]]} is a combination of {shown}, so their coefficients "
        "cannot be determined. Drop one of them and fit again."
    )


# -- maximising -------------------------------------------------------------------


def least_squares(
    basis: Basis, y: Array, s: Array, theta: Array
) -> tuple[Array, float, Array, float]:
    """Minimiser, excess of the start, the Cholesky factor of QᵀSQ, and RSS."""
    for turn in range(3):  # one step solves; the others remove its rounding
        M, g, rss = np.zeros((len(theta), len(theta))), np.zeros(len(theta)), 0.0
        for cut, Q in basis.blocks():
            e = y[cut] - (Q @ theta)[:, 0]
            M += Q.T @ (s[cut, None] * Q)
            g += Q.T @ (s[cut] * e)
            rss += float(s[cut] @ np.square(e))
        factor = np.linalg.cholesky(M)
        step = cho_solve((factor, True), g)
        if turn == 0:
            excess = float(g @ step)
        theta = theta + step[:, None]
    return theta, excess, factor, rss


class _Point(NamedTuple):
    """Coordinates θ with the loss, its downhill gradient and its Hessian there."""

    theta: Array
    loss: float
    g: Array
    H: Array


class SoftmaxLikelihood(NamedTuple):
    """−log-likelihood of k scores against a first class whose score is zero."""

    basis: Basis
    codes: Array
    s: Array
    k: int

    def at(self, theta: Array) -> _Point:
        """Loss, gradient and Hessian at θ."""
        p, k = theta.shape
        loss, g, H = 0.0, np.zeros((p, k)), np.zeros((k, p, k, p))
        rest = 1.0 - np.eye(k + 1)
        for cut, Q in self.basis.blocks():
            z = np.column_stack([np.zeros(len(Q)), Q @ theta])
            s, code, index = self.s[cut], self.codes[cut], np.arange(len(Q))
            z -= z.max(axis=1, keepdims=True)
            own = z[index, code]
            share = np.exp(z)
            size = share.sum(axis=1)
            # 1 − pᵢ as a sum of the others: exact where pᵢ is nearly one.
            others = ((share @ rest) / size[:, None])[:, 1:]
            share = (share / size[:, None])[:, 1:]
            loss += float(s @ (np.log(size) - own))
            mine = code[:, None] == np.arange(1, k + 1)
            g += Q.T @ (s[:, None] * np.where(mine, others, -share))
            for a in range(k):
                for b in range(a, k):
                    d = share[:, a] * (others[:, a] if a == b else -share[:, b])
                    H[a, :, b] += Q.T @ ((s * d)[:, None] * Q)
        for a in range(k):
            for b in range(a):
                H[a, :, b] = H[b, :, a].T
        return _Point(theta, loss, g, H.reshape(k * p, k * p))

    def neutral(self) -> Array:
        """θ of equal probabilities."""
        return np.zeros((self.basis.raw.shape[1], self.k))

    def slopes(self) -> float:
        """What the sum of the rows' abs slopes is below, to tell rounding by."""
        return float(self.s.sum())

    def separated(self, loss: float) -> bool:
        """Whether every row's class has more than half of the probability."""
        return bool(loss < np.log(2) * self.s.min())

    def refuse_maximum(self, last: _Point, X: Any) -> NoReturn:
        """Say why there is no maximum: separable classes, if that can be proved."""
        basis, codes, k = self.basis, self.codes, self.k
        raw = basis.raw @ last.theta
        if not basis.intercept:
            raw = np.vstack([np.zeros(k), raw])
        direction = np.vstack([raw[1:], raw[:1]])
        loss: Loss = Logistic() if k == 1 else Softmax(k + 1)
        y = 2 * codes - 1 if k == 1 else codes
        if k > 1:
            direction = np.column_stack([np.zeros(len(direction)), direction])
        proved = separates(X, y, self.s, loss, direction)
        if not proved and X.shape[0] * X.shape[1] * k <= _PROGRAMME:
            found = separating_direction(X, y, loss, basis.intercept)
            proved = found is not None
        if proved:
            refuse(
                "The classes are separable, so the likelihood has no maximum and the "
                "coefficients no standard errors. Set a finite C, or drop the columns "
                "that give the class away."
            )
        refuse(
            "No maximum of the likelihood was found; the classes are nearly separable "
            "or the columns nearly collinear. Standardise or drop columns, or set a "
            "finite C."
        )


class FamilyLikelihood(NamedTuple):
    """Half the deviance of an exponential family in one score."""

    basis: Basis
    loss: Any
    y: Array
    s: Array

    @property
    def k(self) -> int:
        """Scores of a row."""
        return 1

    def at(self, theta: Array) -> _Point:
        """Loss, gradient and Hessian at θ."""
        p = len(theta)
        loss, g, H = 0.0, np.zeros((p, 1)), np.zeros((p, p))
        with np.errstate(over="ignore", invalid="ignore"):  # a step may go too far
            for cut, Q in self.basis.blocks():
                found = evaluate(self.loss, self.y[cut], Q @ theta)
                s = self.s[cut, None]
                loss += float(self.s[cut] @ found.value)
                g -= Q.T @ (s * found.slope)
                H += Q.T @ (s * found.state * Q)
        return _Point(theta, loss, g, H)

    def scores(self, theta: Array) -> Array:
        """Qθ of every row."""
        return np.concatenate([Q @ theta[:, 0] for _, Q in self.basis.blocks()])

    def information(self, top: _Point) -> Array:
        """Fisher's information: the expected Hessian; H itself if H is free of y."""
        if not isinstance(self.loss, Exponential | Tweedie):
            return top.H
        blocks, power = self.basis.blocks(), getattr(self.loss, "power", 2.0)
        weigh = self.s * np.exp((2 - power) * self.scores(top.theta))
        return np.asarray(sum(Q.T @ (weigh[cut, None] * Q) for cut, Q in blocks))

    def neutral(self) -> Array:
        """θ of the best constant."""
        raw = np.zeros((self.basis.X.shape[1] + 1, 1))
        if self.basis.intercept:
            raw[0] = best_constant(self.loss, self.y, self.s)
        return self.basis.coordinates(raw)

    def slopes(self) -> float:
        """What the sum of the rows' abs slopes is below, to tell rounding by."""
        if isinstance(self.loss, Binomial):
            return self.loss.trials * float(self.s.sum())
        return 2 * float(self.s @ np.maximum(self.y, 1.0))

    def separated(self, loss: float) -> bool:
        """Left to ``refuse_maximum``."""
        return False

    def refuse_maximum(self, last: _Point, X: Any) -> NoReturn:
        """Say why there is no maximum: a direction that recedes, if there is one."""
        tries: list[Array] = []
        if not isinstance(self.loss, Exponential):
            fall, rise = (rows.all() for rows in at_limits(self.loss, self.y))
            if self.basis.intercept and (fall or rise):
                tries = [np.append(np.zeros(X.shape[1]), -1.0 if fall else 1.0)]
            free = self.basis.intercept
            found = receding_direction(X, self.y, self.s, self.loss, free)
            tries += [] if found is None else [found]
        if any(recedes(X, self.y, self.s, self.loss, v) for v in tries):
            refuse(
                "The likelihood has no maximum: the columns separate the rows whose "
                "y is at an end of its range (for counts: zeros) from the others, so "
                "a coefficient grows without limit. Drop those columns, or set alpha "
                "> 0."
            )
        refuse(
            "No maximum of the likelihood was found; it is nearly flat, or the columns "
            "are nearly collinear. Standardise or drop columns, or set alpha > 0."
        )


Likelihood = SoftmaxLikelihood | FamilyLikelihood


def maximise(
    likelihood: Likelihood, start: Array, X: MatrixLike
) -> tuple[_Point, float]:
    """The maximum of the likelihood and the loss at ``start``; refuses if none."""
    first = likelihood.at(start)
    for begin in (first, likelihood.at(likelihood.neutral())):
        point, done = _newton(likelihood, begin)
        if done:
            return point, first.loss
    likelihood.refuse_maximum(point, X)


def _newton(likelihood: Likelihood, now: _Point) -> tuple[_Point, bool]:
    """Newton steps with halving until gᵀH⁻¹g is small enough and proves a maximum."""
    reach = likelihood.basis.reach * (1.0 if likelihood.k == 1 else np.sqrt(2.0))
    noise = 64 * np.finfo(float).eps * reach * likelihood.slopes()  # of ‖g‖
    for _ in range(60):
        g = now.g.T.ravel()
        if not (np.isfinite(now.loss) and np.all(np.isfinite(now.H))):
            return now, False
        if likelihood.separated(now.loss):
            return now, False
        try:
            step = cho_solve((np.linalg.cholesky(now.H), True), g)
        except np.linalg.LinAlgError:
            return now, False
        decrement = float(g @ step)
        if decrement <= _DECREMENT:
            least = np.sqrt(max(0.0, float(np.linalg.eigvalsh(now.H)[0])))
            if 2 * reach * (np.sqrt(decrement) * least + noise) <= least**2:
                return now, True
            if 2 * reach * noise > least**2:  # too flat to tell from no curvature
                return now, False
        move, t = step.reshape(now.theta.T.shape).T, 1.0
        trial = likelihood.at(now.theta + move)
        sure = decrement <= 1e-8 * now.loss  # the loss itself would only show rounding
        while not sure and not trial.loss <= now.loss - 1e-4 * t * decrement:
            t /= 2
            if t < 1e-9:
                return now, False
            trial = likelihood.at(now.theta + t * move)
        now = trial
    return now, False
