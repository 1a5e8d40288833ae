"""The verifier's own flow: layers in NumPy, on numbers with a radius.

A layer moves column j by an increasing map f(uⱼ; t) whose parameters t other columns
decide through a masked network. The layer's Jacobian is triangular if no column depends
on itself through the masks, so log |det| = Σⱼ log ∂f/∂uⱼ, the derivatives by dual
numbers. ``least_slope`` bounds them from below, for every input and all weights.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from certus.typing import Array
from certus.verify.balls import Dual, ErrorBall, ball
from certus.verify.deciding import TINY, U
from certus.verify.stating import require

KINDS = ("spline", "affine", "monotone", "sum_of_squares", "linear", "planar")
#: Networks see columns within ±2; least slopes and bins; where polynomials end.
REACH, LEAST, EDGE = 2.0, 1e-3, 2.0


class PlainFlow:
    """The parts of a flow by name, in float64."""

    def __init__(self, config: Mapping[str, Any], weights: Mapping[str, Array]) -> None:
        self.config, self.weights = config, weights
        require(config.get("layer") in KINDS, "its flow has unknown layers")
        for name in ("n_inputs", "n_layers", "bins", "n_components"):
            require(int(config.get(name, 0)) > 0, f"its flow has no {name}")
        self.d, self.kind = int(config["n_inputs"]), config["layer"]
        self.k = int(config["n_components"])

    def get(self, name: str, shape: tuple[int, ...]) -> Array:
        """The weights of this name, finite and of this shape."""
        found = np.asarray(self.weights.get(name, np.zeros(0)), dtype=np.float64)
        sound = found.shape == shape and bool(np.isfinite(found).all())
        require(sound, f"its weights {name!r} are not finite numbers of shape {shape}")
        return found

    def forward(self, x: ErrorBall) -> tuple[ErrorBall, ErrorBall]:
        """S(x) and log |det ∇S(x)|."""
        middle = self.get("middle", (self.d,))
        spread = self.get("spread", (self.d,))
        u = (x - middle) / spread
        total = ErrorBall(np.zeros(len(x.x)))
        for i in range(int(self.config["n_layers"])):
            u, one = self._layer(i, u)
            total = total + one
        return u * spread + middle, total

    def base(self, z: ErrorBall) -> ErrorBall:
        """The mixture's log-density."""
        shares, means = (
            self.get("shares", (self.k,)),
            self.get("means", (self.k, self.d)),
        )
        full = self.config["covariance"] == "full"
        shape = (self.k, self.d, self.d) if full else (self.k, self.d)
        return mixture(z, shares, means, self.get("factors", shape))

    # -- layers -----------------------------------------------------------------------

    def _layer(self, i: int, u: ErrorBall) -> tuple[ErrorBall, ErrorBall]:
        at = f"layers.{i}."
        if self.kind == "linear":
            A = np.tril(self.get(at + "weight", (self.d, self.d)))
            sizes = ErrorBall(np.abs(A.diagonal())).log().sum()
            z = u.times(A, self.get(at + "bias", (self.d,)))
            return z, ErrorBall(np.zeros(len(z.x))) + sizes
        if self.kind == "planar":
            return self._planar(at, u)
        moved = self.moved(i)
        t = self._params(i, u)
        found = self._map(Dual(u[:, moved], np.ones((1, len(moved)))), t)
        x, r = u.x.copy(), u.r.copy()
        x[:, moved], r[:, moved] = found.v.x, found.v.r
        return ErrorBall(x, r), found.d.log().sum()

    def moved(self, i: int) -> list[int]:
        """The columns that a layer moves."""
        if not self.config["coupling"]:
            return list(range(self.d))
        return list(range(0 if i % 2 else 1, self.d, 2))

    def copied(self, i: int) -> list[int]:
        """The columns that its network sees."""
        if not self.config["coupling"]:
            return list(range(self.d))
        return list(range(1 if i % 2 else 0, self.d, 2))

    def n_params(self) -> int:
        """Parameters of a map."""
        bins, degree = int(self.config["bins"]), int(self.config["degree"])
        return {
            "spline": 3 * bins - 1,
            "affine": 2,
            "monotone": 3 * bins + 2,
            "sum_of_squares": 2 * (degree + 1) + 1,
        }[self.kind]

    def net(self, i: int) -> list[tuple[Array, Array, Array]]:
        """Weights, biases and masks of a layer's network."""
        sizes = [len(self.copied(i)), *map(int, self.config["hidden"])]
        sizes.append(len(self.moved(i)) * self.n_params())
        found = []
        for k in range(len(sizes) - 1):
            at, shape = f"layers.{i}.net.{k}.", (sizes[k + 1], sizes[k])
            W, b = self.get(at + "weight", shape), self.get(at + "bias", shape[:1])
            plain = self.config["coupling"]
            mask = np.ones(shape) if plain else self.get(at + "mask", shape)
            require(bool(np.isin(mask, (0.0, 1.0)).all()), "a mask is not 0 or 1")
            found.append((W, b, mask))
        return found

    def _params(self, i: int, u: ErrorBall) -> ErrorBall:
        h, layers = u[:, self.copied(i)].clip(-REACH, REACH), self.net(i)
        for W, b, mask in layers[:-1]:
            h = h.times(W * mask, b).clip(0.0, math.inf)
        W, b, mask = layers[-1]
        t = h.times(W * mask, b)
        shape = (len(t.x), len(self.moved(i)), -1)
        return ErrorBall(t.x.reshape(shape), t.r.reshape(shape))

    def _planar(self, at: str, x: ErrorBall) -> tuple[ErrorBall, ErrorBall]:
        w, b = self.get(at + "w", (self.d,)), self.get(at + "b", (1,))
        u, inner = bent(w, self.get(at + "u", (self.d,)))
        a = x.times(w[None], b)
        h = Dual(a, np.ones_like(a.x)).tanh()
        z = x + h.v * u[None]
        return z, (inner * h.d + 1.0)[:, 0].log()

    def _map(self, u: Dual, t: ErrorBall) -> Dual:
        if self.kind == "spline":
            return spline(u, t, int(self.config["bins"]))
        if self.kind == "affine":
            return (u - t[..., 0]) * (-bounded(t[..., 1])).exp()
        if self.kind == "monotone":
            return monotone(u, t, int(self.config["bins"]))
        return squares(u, t, int(self.config["degree"]))


# -- maps -----------------------------------------------------------------------------


def bounded(t: ErrorBall, most: float = 3.0) -> ErrorBall:
    """Between −most and most."""
    return (t / most).tanh() * most


def bent(w: Array, u: Array) -> tuple[ErrorBall, ErrorBall]:
    """The direction û of a planar layer, and w·û."""
    inner = ErrorBall(u[None]).times(w[None])[0, 0]
    start = ErrorBall(math.log(math.e - 1), 4 * U)
    a = inner + start
    # softplus(a) = max(a, 0) + log(1 + exp(−|a|))
    size = ErrorBall(-np.abs(a.x), a.r)
    soft = a.clip(0.0, math.inf) + (size.exp() + 1.0).log()
    wanted = (soft - 1.0) * (1 - LEAST)
    length = ErrorBall(w[None]).times(w[None])[0, 0]
    return (wanted - inner) / length * w + u, wanted


def spline(u: Dual, t: ErrorBall, bins: int) -> Dual:
    """A rational-quadratic spline on [−1, 1], the identity outside."""
    x, y = knots(t[..., :bins]), knots(t[..., bins : 2 * bins])
    edge = np.ones((*t.x.shape[:-1], 1))
    inner = bounded(t[..., 2 * bins :]).exp()
    slopes = ErrorBall(
        np.concatenate([edge, inner.x, edge], -1),
        np.concatenate([0 * edge, inner.r, 0 * edge], -1),
    )
    inside = Dual(u.v.clip(-1.0, 1.0), u.d)
    low = (u.v.x - u.v.r)[..., None] >= (x.x + x.r)[..., 1:-1]
    high = (u.v.x + u.v.r)[..., None] >= (x.x - x.r)[..., 1:-1]
    first, last = low.sum(-1), high.sum(-1)
    # Points whose radius reaches over a knot may lie in either bin: both are held.
    found = _bin(inside, x, y, slopes, first)
    found = found.join(_bin(inside, x, y, slopes, last), first != last)
    lost = last - first > 1
    found.v.r, found.d.r = (np.where(lost, np.inf, p.r) for p in (found.v, found.d))
    size = np.abs(u.v.x)
    outside, near = size >= 1, np.abs(size - 1) <= u.v.r
    kept = found.join(u, near)
    z, d = kept.v, kept.d
    out = outside & ~near
    return Dual(
        ErrorBall(np.where(out, u.v.x, z.x), np.where(out, u.v.r, z.r)),
        ErrorBall(np.where(out, 1.0, d.x), np.where(out, 0.0, d.r)),
    )


def knots(t: ErrorBall) -> ErrorBall:
    """Places of the knots, from −1 to 1."""
    bins = t.x.shape[-1]
    e = bounded(t).exp()
    share = e / e.sum()[..., None] * (1 - bins * LEAST) + LEAST
    inner = share[..., :-1].cumsum() * 2.0 - 1.0
    one = np.ones((*t.x.shape[:-1], 1))
    return ErrorBall(
        np.concatenate([-one, inner.x, one], -1),
        np.concatenate([0 * one, inner.r, 0 * one], -1),
    )


def _bin(u: Dual, x: ErrorBall, y: ErrorBall, slopes: ErrorBall, i: Array) -> Dual:
    def at(values: ErrorBall, shift: int) -> ErrorBall:
        place = (i + shift)[..., None]
        x, r = (np.take_along_axis(p, place, -1)[..., 0] for p in (values.x, values.r))
        return ErrorBall(x, r)

    x0, y0, d0, d1 = at(x, 0), at(y, 0), at(slopes, 0), at(slopes, 1)
    dx, dy = at(x, 1) - x0, at(y, 1) - y0
    s = dy / dx
    xi = (u - x0) / dx
    mixed = xi * (1.0 - xi)
    below = mixed * (d0 + d1 - s * 2.0) + s
    return (xi * xi * s + mixed * d0) * dy / below + y0


def monotone(u: Dual, t: ErrorBall, k: int) -> Dual:
    """A sum of steps, then a shift and a scale."""
    c = (bounded(t[..., :k]).exp() - 1.0) * ((1 - LEAST) / k)
    a = bounded(t[..., k : 2 * k], 2.0).exp() * (0.5 * k)
    b = t[..., 2 * k : 3 * k] + np.linspace(-1, 1, k)
    h = ((u.wide() - b) * a).tanh()
    w = u + (h * (c / a)).sum()
    return (w - t[..., -2]) * (-bounded(t[..., -1])).exp()


def squares(u: Dual, t: ErrorBall, r: int) -> Dual:
    """The integral of a sum of two squared polynomials; lines beyond ±2."""
    a = bounded(t[..., :-1])
    first = -np.sqrt(4 / 6), np.sqrt(2 / 6)
    p = [[a[..., k * (r + 1) + i] for i in range(r + 1)] for k in (0, 1)]
    p[0][0], p[1][0] = (
        p[0][0] + ErrorBall(first[1], U),
        p[1][0] + ErrorBall(first[0], U),
    )
    q: list[Any] = [ball(np.zeros(t.x.shape[:-1]))] * (2 * r + 1)
    for part in p:
        for i in range(r + 1):
            for j in range(r + 1):
                q[i + j] = q[i + j] + part[i] * part[j]
    q = [each * (1 - LEAST) for each in q]
    q[0] = q[0] + LEAST
    at = Dual(u.v.clip(-EDGE, EDGE), u.d)
    total: Any = Dual(q[-1] / len(q), 0.0 * q[-1].x)
    for i in range(len(q) - 2, -1, -1):
        total = total * at + q[i] / (i + 1.0)
    inside = total * at
    # At ±2 the line has the polynomial's slope, so both sides agree in value and slope.
    rest = ErrorBall(u.v.x - at.v.x, u.v.r + U * np.abs(u.v.x))
    far = np.abs(u.v.x) > EDGE - u.v.r
    value = inside.v + rest * inside.d
    v = ErrorBall(
        np.where(far, value.x, inside.v.x), np.where(far, value.r, inside.v.r)
    )
    return Dual(v - t[..., -1], inside.d)


def mixture(z: ErrorBall, shares: Array, means: Array, factors: Array) -> ErrorBall:
    """The log-density of a mixture with Σₖ⁻¹ = UₖUₖᵀ, U upper triangular."""
    d, logs = z.x.shape[1], []
    for share, mean, U_k in zip(shares, means, factors):
        off = z - mean
        y = off * U_k if U_k.ndim == 1 else off.times(U_k.T)
        size = U_k if U_k.ndim == 1 else U_k.diagonal()
        head = ErrorBall(size).log().sum() + ErrorBall(max(float(share), TINY)).log()
        half = ErrorBall(0.5 * d * math.log(2 * math.pi), d * 4 * U)
        logs.append((y * y).sum() * -0.5 + (head - half))
    top = np.max([each.x for each in logs], axis=0)
    total = (logs[0] - top).exp()
    for each in logs[1:]:
        total = total + (each - top).exp()
    return total.log() + top


# -- structure ------------------------------------------------------------------------


class Structure(NamedTuple):
    """How many paths break the order of columns, and a bound of all slopes."""

    wrong: int
    slope: float


def structure(flow: PlainFlow) -> Structure:
    """Whether every layer is triangular, by its masks alone, with positive slopes."""
    wrong, slope = 0, math.inf
    for i in range(int(flow.config["n_layers"])):
        if flow.kind == "linear":
            A = np.tril(flow.get(f"layers.{i}.weight", (flow.d, flow.d)))
            slope = min(slope, float(np.abs(A.diagonal()).min()))
        elif flow.kind == "planar":
            w = flow.get(f"layers.{i}.w", (flow.d,))
            _, inner = bent(w, flow.get(f"layers.{i}.u", (flow.d,)))
            slope = min(slope, 1.0 + min(0.0, float(inner.x - inner.r)))
        else:
            wrong += _loops(flow, i)
            slope = min(slope, least_slope(flow.kind, int(flow.config["bins"])))
    spread = flow.get("spread", (flow.d,))
    return Structure(wrong + int((spread <= 0).sum()), slope if slope > 0 else 0.0)


def _loops(flow: PlainFlow, i: int) -> int:
    """Pairs of columns where one depends on itself or on one that comes later."""
    reach: Any = None
    for _, _, mask in flow.net(i):
        step = (mask != 0).astype(np.int64)
        reach = step if reach is None else np.minimum(step @ reach, 1)
    n = flow.n_params()
    depends = reach.reshape(-1, n, reach.shape[1]).any(axis=1)  # moved × seen
    if flow.config["coupling"]:  # what is seen is not moved
        return len(set(flow.moved(i)) & set(flow.copied(i)))
    place = np.arange(flow.d)[:: -1 if i % 2 else 1]
    return int((depends & (place[None, :] >= place[:, None])).sum())


def least_slope(kind: str, bins: int) -> float:
    """A bound from below of the slope of a map, whatever its parameters.

    Of a spline with secants s in [a, 1/a] and slopes δ in [e⁻³, e³]: the numerator of
    f′ is at least s² min(δ, s), its denominator at most max(s, δ)².
    """
    low, high = math.exp(-3), math.exp(3)
    if kind == "affine":
        return low * (1 - 1e-9)
    if kind == "monotone":
        return LEAST * low * (1 - 1e-9)
    if kind == "sum_of_squares":
        return LEAST
    free = 1 - bins * LEAST
    thin = LEAST + free * low / (low + (bins - 1) * high)
    wide = LEAST + free * high / (high + (bins - 1) * low)
    a = thin / wide
    found = a * a * min(a, low) / max(1 / a, high) ** 2
    return found * (1 - 1e-9) if free > 0 else 0.0
