"""The kernel's problems in as many digits as it takes, by values and conjugates.

Nothing here is shared with the kernel: a gap is mean ℓ + Ω + mean ℓ* + Ω*, summed in
80 digits, at a dual point that is moved onto its constraints exactly.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from mpmath import mp as _mp
from scipy import sparse

from certus.objectives import terms as t
from certus.verify.kernel import gap, losses, penalties
from certus.verify.kernel.gap import Problem

mp = _mp.clone()
mp.dps = 80
mpf, inf = mp.mpf, mp.inf
Vector = list[Any]


def many(values: Any) -> Any:
    """Floats as numbers of many digits; arrays as lists of lists."""
    values = np.asarray(values)
    if values.ndim == 0:
        return mpf(int(values)) if values.dtype.kind in "iub" else mpf(float(values))
    return [many(row) for row in values]


def softplus(x: Any) -> Any:
    """log(1 + eˣ)."""
    small = -abs(x)
    rest = mp.log1p(mp.exp(small)) if small > -3000 else mpf(0)
    return max(x, mpf(0)) + rest


def xlogx(x: Any) -> Any:
    """x·log x, 0 at 0."""
    return x * mp.log(x) if x > 0 else mpf(0)


def _positive(x: Any) -> Any:
    return x if x > 0 else mpf(0)


def _huber(delta: Any, e: Any) -> Any:
    e = abs(e)
    return e * e / 2 if e <= delta else delta * (e - delta / 2)


def _modified_huber(m: Any) -> Any:
    """For m = yz."""
    return _positive(1 - m) ** 2 if m >= -1 else -4 * m


#: ℓ(y, z) for one row, without the constants c(y).
VALUES: dict[type, Any] = {
    t.Squared: lambda _, y, z: (z - y) ** 2 / 2,
    t.Absolute: lambda _, y, z: abs(z - y),
    t.Huber: lambda loss, y, z: _huber(mpf(loss.threshold), z - y),
    t.Quantile: lambda loss, y, z: max(
        mpf(loss.q) * (y - z), (mpf(loss.q) - 1) * (y - z)
    ),
    t.EpsilonInsensitive: lambda loss, y, z: _positive(abs(z - y) - loss.epsilon),
    t.SquaredEpsilonInsensitive: lambda loss, y, z: (
        _positive(abs(z - y) - loss.epsilon) ** 2
    ),
    t.Logistic: lambda _, y, z: softplus(-y * z),
    t.Hinge: lambda loss, y, z: _positive(loss.margin - y * z),
    t.SquaredHinge: lambda _, y, z: _positive(1 - y * z) ** 2,
    t.ModifiedHuber: lambda _, y, z: _modified_huber(y * z),
    t.ExponentialMargin: lambda _, y, z: mp.exp(-y * z),
    t.Binomial: lambda loss, y, z: loss.trials * softplus(z) - y * z,
    t.Exponential: lambda _, y, z: y * mp.exp(-z) + z,
    t.Poisson: lambda _, y, z: mp.exp(z) - y * z,
    t.Tweedie: lambda loss, y, z: (
        mp.exp((2 - mpf(loss.power)) * z) / (2 - mpf(loss.power))
        + y * mp.exp((1 - mpf(loss.power)) * z) / (mpf(loss.power) - 1)
    ),
    t.Softmax: lambda _, y, z: (
        mp.log(mp.fsum(mp.exp(x - max(z)) for x in z)) + max(z) - z[int(y)]
    ),
}


def _slack(value: Any, inside: bool) -> Any:
    return value if inside else inf


def _residual_conjugate(low: Any, high: Any, more: Any) -> Any:
    return lambda loss, y, u: _slack(
        u * y + more(loss, u), low(loss) <= u <= high(loss)
    )


def _share_conjugate(top: Any, of_share: Any) -> Any:
    return lambda loss, y, u: _slack(of_share(loss, -u * y), 0 <= -u * y <= top)


def _tweedie_conjugate(loss: Any, y: Any, u: Any) -> Any:
    """uz − ℓ at the score of slope u: by halving, to all digits."""
    p = mpf(loss.power)
    if y == 0:
        return _slack((xlogx(u) - u) / (2 - p), u >= 0)
    low, high = mpf(-1), mpf(1)

    def slope(z: Any) -> Any:
        return mp.exp((2 - p) * z) - y * mp.exp((1 - p) * z)

    while slope(low) > u:
        low *= 2
    while slope(high) < u:
        high *= 2
    for _ in range(300):
        z = (low + high) / 2
        low, high = (low, z) if slope(z) > u else (z, high)
    return u * z - VALUES[t.Tweedie](loss, y, z)


#: ℓ*(u) for one row, infinite outside of its domain.
CONJUGATES: dict[type, Any] = {
    t.Squared: lambda _, y, u: u * u / 2 + u * y,
    t.Absolute: _residual_conjugate(lambda _: -1, lambda _: 1, lambda _, u: 0),
    t.Huber: _residual_conjugate(
        lambda loss: -loss.threshold,
        lambda loss: loss.threshold,
        lambda _, u: u * u / 2,
    ),
    t.Quantile: _residual_conjugate(
        lambda loss: -mpf(loss.q), lambda loss: 1 - mpf(loss.q), lambda _, u: 0
    ),
    t.EpsilonInsensitive: _residual_conjugate(
        lambda _: -1, lambda _: 1, lambda loss, u: loss.epsilon * abs(u)
    ),
    t.SquaredEpsilonInsensitive: lambda loss, y, u: (
        u * y + loss.epsilon * abs(u) + u * u / 4
    ),
    t.Logistic: _share_conjugate(1, lambda _, q: xlogx(q) + xlogx(1 - q)),
    t.Hinge: _share_conjugate(1, lambda loss, q: -mpf(loss.margin) * q),
    t.SquaredHinge: _share_conjugate(inf, lambda _, q: q * q / 4 - q),
    t.ModifiedHuber: _share_conjugate(4, lambda _, q: q * q / 4 - q),
    t.ExponentialMargin: _share_conjugate(inf, lambda _, q: xlogx(q) - q),
    t.Binomial: lambda loss, y, u: _slack(
        xlogx(u + y) + xlogx(loss.trials - u - y) - xlogx(mpf(loss.trials)),
        0 <= u + y <= loss.trials,
    ),
    t.Exponential: lambda _, y, u: _slack(
        xlogx(1 - u) - (1 - u) * mp.log(y) - (1 - u), u <= 1
    ),
    t.Poisson: lambda _, y, u: _slack(xlogx(u + y) - (u + y), u + y >= 0),
    t.Tweedie: _tweedie_conjugate,
    t.Softmax: lambda _, y, u: mp.fsum(
        xlogx(u[k] + (1 if k == int(y) else 0)) for k in range(len(u))
    ),
}


class Exact:
    """A problem of the kernel, its numbers held exactly; rows are lists."""

    def __init__(self, p: Problem) -> None:
        X = p.space.given
        X = X.toarray() if sparse.issparse(X) else np.asarray(X)
        X = X.astype(float)  # the kernel's numbers are float64
        self.p, self.k = p, p.b.size
        self.X = many(X)
        if p.space.constant:
            self.X = [[*row, mpf(p.space.constant)] for row in self.X]
        s = many(p.space.s)
        total = mp.fsum(s)
        self.share = [each / total for each in s]
        self.y = many(p.y)
        self.w = many(gap.columns(p.w).T)  # one list of coefficients for each score
        self.b = many(p.b)

    def mean(self, a: Vector) -> Any:
        return mp.fdot(self.share, a)

    def scores(self, X: Any = None, b: Any = None) -> list[Vector]:
        """A list of scores for every row."""
        b = self.b if b is None else b
        return [
            [mp.fdot(row, w) + c for w, c in zip(self.w, b, strict=True)]
            for row in (self.X if X is None else X)
        ]

    def _each(self, table: dict[type, Any], rows: list[Vector]) -> Vector:
        f, loss = table[type(self.p.loss)], self.p.loss
        if isinstance(loss, t.Softmax):
            return [f(loss, y, row) for y, row in zip(self.y, rows, strict=True)]
        if self.p.y.ndim == 2:
            both = zip(self.y, rows, strict=True)
            return [
                mp.fsum(f(loss, a, b) for a, b in zip(y, row, strict=True))
                for y, row in both
            ]
        return [f(loss, y, row[0]) for y, row in zip(self.y, rows, strict=True)]

    def loss(self, z: list[Vector]) -> Any:
        return self.mean(self._each(VALUES, z))

    def conjugate(self, u: list[Vector]) -> Any:
        return self.mean(self._each(CONJUGATES, u))

    def pulled(self, u: list[Vector]) -> list[Vector]:
        """v as one list for each score."""
        d, out = len(self.X[0]), []
        for k in range(self.k):
            su = [s * row[k] for s, row in zip(self.share, u, strict=True)]
            out.append([mp.fdot(su, [row[j] for row in self.X]) for j in range(d)])
        return out

    # -- the penalty ---------------------------------------------------------------

    def levels(self) -> tuple[list[Any], Any, list[list[tuple[int, int]]]]:
        """l₁ of every group, l₂, and the cells (score, column) of every group."""
        omega, d = self.p.penalty, len(self.w[0])
        cells = [[(k, j)] for k in range(self.k) for j in range(d)]
        match omega:
            case t.L1(alpha):
                return [mpf(alpha)] * len(cells), mpf(0), cells
            case t.L2(alpha):
                return [mpf(0)] * len(cells), mpf(alpha), cells
            case t.L1L2(l1, l2) | t.NonNegative(l1, l2):
                return [mpf(l1)] * len(cells), mpf(l2), cells
            case t.WeightedL1(alphas):
                return [mpf(alphas[cell[0][1]]) for cell in cells], mpf(0), cells
            case t.Group(l1, numbers, l2):
                groups = [
                    [(0, j) for j in range(d) if numbers[j] == g]
                    for g in sorted(set(numbers))
                ]
                return [mpf(l1)] * len(groups), mpf(l2), groups
            case t.MultiTask(l1, l2):
                groups = [[(k, j) for k in range(self.k)] for j in range(d)]
                return [mpf(l1)] * d, mpf(l2), groups
        raise TypeError(omega)

    def omega(self) -> Any:
        l1, l2, groups = self.levels()
        sizes = [mp.norm([self.w[k][j] for k, j in cells]) for cells in groups]
        if isinstance(self.p.penalty, t.NonNegative) and min(self.w[0]) < 0:
            return inf
        return mp.fdot(l1, sizes) + l2 * mp.fsum(x * x for x in sizes) / 2

    def _pulls(self, v: list[Vector]) -> Vector:
        """The size of −v that the penalty has to hold, for every group."""
        groups = self.levels()[2]
        if isinstance(self.p.penalty, t.NonNegative):
            return [_positive(-v[k][j]) for ((k, j),) in groups]
        return [mp.norm([v[k][j] for k, j in cells]) for cells in groups]

    def reach(self, v: list[Vector]) -> Any:
        """The largest κ ≤ 1 for which Ω*(−κv) is finite."""
        l1, l2, _ = self.levels()
        found = mpf(1)
        for level, size in zip(l1, self._pulls(v), strict=True):
            if l2 == 0 and size > level:
                found = min(found, level / size)
        return found

    def omega_conjugate(self, v: list[Vector]) -> Any:
        l1, l2, _ = self.levels()
        total = mpf(0)
        for level, size in zip(l1, self._pulls(v), strict=True):
            over = _positive(size - level)
            if l2 == 0 and over > mpf(10) ** -70 * level:
                return inf
            total += over * over / (2 * l2) if l2 else 0
        return total

    def primal(self) -> Any:
        return self.loss(self.scores()) + self.omega()

    def gap(self, u: list[Vector]) -> Any:
        """P − D for a u that is feasible."""
        v = self.pulled(u)
        return self.primal() + self.conjugate(u) + self.omega_conjugate(v)

    # -- the dual point ------------------------------------------------------------

    def feasible(self, q: Any, kappa: float) -> list[Vector]:
        """The natural dual q of the kernel, moved onto its constraints exactly."""
        u = self._repaired([x if isinstance(x, list) else [x] for x in many(q)])
        u = [[mpf(kappa) * x for x in row] for row in u]
        short = self.reach(self.pulled(u))
        return [[short * x for x in row] for row in u]

    def _slopes(self, q: list[Vector]) -> list[Vector]:
        loss = self.p.loss
        row = losses.row_of(loss)
        if isinstance(loss, t.Softmax):
            hot = [[mpf(int(y) == k) for k in range(self.k)] for y in self.y]
            return [
                [a - b for a, b in zip(x, h, strict=True)]
                for x, h in zip(q, hot, strict=True)
            ]
        if row.takes == "signs":
            return [[-y * x[0]] for y, x in zip(self.y, q, strict=True)]
        if isinstance(loss, t.Binomial | t.Poisson):
            return [[x[0] - y] for y, x in zip(self.y, q, strict=True)]
        if isinstance(loss, t.Exponential):
            return [[1 - x[0]] for x in q]
        return q

    def _repaired(self, q: list[Vector]) -> list[Vector]:
        row = losses.row_of(self.p.loss)
        if row.repair == "mix":
            q = [[x / mp.fsum(each) for x in each] for each in q]
            if self.p.free:
                q = self._mixed(q)
            return self._slopes(q)
        if not self.p.free:
            return self._slopes(q)
        if row.repair == "rescale":
            rest = [mpf(1)] * len(q) if isinstance(self.p.loss, t.Exponential) else None
            goal = self.mean(self.y if rest is None else rest)
            factor = goal / self.mean([x[0] for x in q])
            return self._slopes([[factor * x[0]] for x in q])
        u = self._slopes(q)
        if row.repair == "centre":
            middle = [self.mean([x[k] for x in u]) for k in range(self.k)]
            return [[a - m for a, m in zip(x, middle, strict=True)] for x in u]
        up = self.mean([_positive(x[0]) for x in u])
        down = self.mean([_positive(-x[0]) for x in u])
        above = down / up if up > down else mpf(1)
        below = up / down if down > up else mpf(1)
        return [[x[0] * (above if x[0] > 0 else below)] for x in u]

    def _mixed(self, q: list[Vector]) -> list[Vector]:
        k = self.k
        wanted = [self.mean([mpf(int(y) == c) for y in self.y]) for c in range(k)]
        found = [self.mean([x[c] for x in q]) for c in range(k)]
        t_ = max([mpf(0), *(1 - a / b for a, b in zip(wanted, found) if b > 0)])
        if t_ == 0:
            return q
        mix = [(a - (1 - t_) * b) / t_ for a, b in zip(wanted, found, strict=True)]
        return [[(1 - t_) * x + t_ * m for x, m in zip(r, mix, strict=True)] for r in q]


def kernel_dual(p: Problem) -> tuple[Any, float]:
    """The natural dual point that the kernel measures, before κ; and its κ."""
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        seen, z, found = gap.look(p, None)
        v, error = gap.pulled_back(p, seen, found, len(z))
        kappa = penalties.row_of(p.penalty).reach(p.penalty, v, error)
    return found.natural, kappa
