"""Random problems of the verifier's kernel, drawn by a seed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from scipy import sparse

from certus.objectives import terms as t
from certus.verify.kernel import losses, reading
from certus.verify.kernel.gap import Problem
from helpers.judging import problem


def _poisson_or_tweedie(rng: Any) -> Any:
    power = float(rng.choice([1.0, 1.05, 1.5, 1.9]))
    return t.Tweedie(power) if power > 1 else t.Poisson()


LOSSES: tuple[Callable[[Any], Any], ...] = (
    lambda r: t.Squared(),
    lambda r: t.Absolute(),
    lambda r: t.Huber(float(r.choice([0.1, 1.0, 1.35]))),
    lambda r: t.Quantile(float(r.choice([0.1, 0.5, 0.9, r.random()]))),
    lambda r: t.EpsilonInsensitive(float(r.choice([0.0, 0.1, 0.5]))),
    lambda r: t.SquaredEpsilonInsensitive(float(r.choice([0.0, 0.1]))),
    lambda r: t.Logistic(),
    lambda r: t.Hinge(float(r.choice([0.0, 1.0]))),
    lambda r: t.SquaredHinge(),
    lambda r: t.ModifiedHuber(),
    lambda r: t.ExponentialMargin(),
    lambda r: t.Binomial(int(r.choice([1, 5]))),
    lambda r: t.Exponential(),
    lambda r: _poisson_or_tweedie(r),
    lambda r: t.Softmax(int(r.integers(2, 5))),
)
PENALTIES = (
    "L1",
    "L2",
    "L1L2",
    "WeightedL1",
    "NonNegative",
    "Group",
    "MultiTask",
)
DTYPES = ("float64", "float32", "int8", "uint8", "int16", "int32", "int64", "bool")
FORMS = ("C", "F", "csr", "csc")
WEIGHTS = ("none", "uniform", "20 decades", "1e300")
POINTS = ("random", "sloppy", "nearly exact")


def draw(seed: int) -> tuple[Problem, dict[str, Any]]:
    """A problem, and what was drawn for it."""
    rng = np.random.default_rng(seed)
    loss = LOSSES[seed % len(LOSSES)](rng)
    kind = str(rng.choice(PENALTIES))
    vector = isinstance(loss, t.Softmax) or (kind == "MultiTask")
    if kind == "Group" and isinstance(loss, t.Softmax):
        kind = "L1"
    if kind == "MultiTask":
        loss = t.Squared()
    n, d = int(rng.integers(3, 16)), int(rng.integers(1, 6))
    intercept = str(rng.choice(["none", "free", "penalised"]))
    if vector and intercept == "penalised":
        intercept = "free"
    dtype, form = str(rng.choice(DTYPES)), str(rng.choice(FORMS))
    X, scale, offset = _matrix(rng, n, d, dtype, form)
    k = loss.n_classes if isinstance(loss, t.Softmax) else (2 if vector else 1)
    y = _targets(rng, loss, n, k if kind == "MultiTask" else 0)
    weights = str(rng.choice(WEIGHTS))
    s = _weights(rng, n, weights)
    omega = _penalty(rng, kind, d + (intercept == "penalised"), k)
    point = str(rng.choice(POINTS))
    base = np.asarray(X.toarray() if sparse.issparse(X) else X, dtype=float)
    base = (base - offset) / scale
    constant = float(rng.choice([1.0, 10.0])) if intercept == "penalised" else 0.0
    steps = {"random": 0, "sloppy": 30, "nearly exact": 1500}[point]
    w, b, u = _solve(loss, omega, base, y, s, intercept, constant, k, steps, rng)
    if point == "random":
        w = rng.normal(size=w.shape) * 10.0 ** rng.uniform(-2, 1)
        w = np.abs(w) if kind == "NonNegative" else w
        b = rng.normal(size=np.shape(b)) if intercept != "none" else 0 * b
    # The same point and penalty for columns of another scale, about another offset.
    omega = _rescaled(omega, scale, d)
    w = w / scale
    with np.errstate(over="ignore"):
        moved = offset * w.sum(axis=0)
    b = b - moved if intercept != "none" else b
    kinked = losses.row_of(loss).bend == "kink"
    dual = u if kinked and rng.random() < 0.8 else None
    p = problem(
        loss,
        omega,
        X,
        y,
        w,
        b,
        s,
        free=intercept == "free",
        constant=constant,
        dual=dual,
    )
    p.space.rough = rough = bool(rng.random() < 0.3)  # how a first look measures
    about = dict(loss=loss, penalty=kind, intercept=intercept, dtype=dtype, form=form)
    about |= dict(weights=weights, scale=scale, offset=offset, point=point, seed=seed)
    about |= dict(rough=rough)
    return p, about


def _matrix(
    rng: Any, n: int, d: int, dtype: str, form: str
) -> tuple[Any, float, float]:
    A, scale, offset = rng.normal(size=(n, d)), 1.0, 0.0
    if rng.random() < 0.3:  # nearly collinear
        A = A + 3 * A[:, :1]
    if form in ("csr", "csc") and rng.random() < 0.7:
        A = A * (rng.random((n, d)) < 0.5)
    if dtype.startswith("float"):
        top = 150 if dtype == "float64" else 15
        scale = 10.0 ** rng.choice(
            [0, 0, 0, rng.uniform(-6, 6), rng.uniform(-top, top)]
        )
        if rng.random() < 0.3:
            offset = float(scale * 10.0 ** rng.uniform(0, 9))
        X = (A * scale + offset).astype(dtype)
    elif dtype == "bool":
        X = A > 0.3
    else:
        ends = np.iinfo(dtype)
        size = min(float(ends.max) / 8, 10.0 ** rng.uniform(0.5, 6))
        scale = size
        offset = float(np.rint(ends.max / 4)) if rng.random() < 0.3 else 0.0
        offset = min(offset, 1e9)
        X = np.clip(np.rint(A * size + offset), ends.min, ends.max).astype(dtype)
    make = {
        "C": np.ascontiguousarray,
        "F": np.asfortranarray,
        "csr": sparse.csr_array,
        "csc": sparse.csc_array,
    }
    return make[form](X), float(scale), offset


def _targets(rng: Any, loss: Any, n: int, tasks: int) -> Any:
    match losses.row_of(loss).takes:
        case "signs":
            y = np.where(rng.random(n) < 0.5, 1.0, -1.0)
            y[:2] = 1.0, -1.0
            return y
        case "counts":
            return rng.integers(0, loss.trials + 1, size=n).astype(float)
        case "codes":
            return np.append(np.arange(loss.n_classes), rng.integers(0, 2, size=n))[:n]
        case "amounts":
            if isinstance(loss, t.Poisson | t.Tweedie):
                return rng.poisson(2, size=n).astype(float) + (rng.random(n) < 0.1)
            return rng.exponential(size=n) + 0.01
    y = rng.normal(size=(n, tasks) if tasks else n) * 10.0 ** rng.uniform(-1, 1)
    return y + float(rng.choice([0.0, 0.0, 100.0]))


def _weights(rng: Any, n: int, kind: str) -> Any:
    match kind:
        case "none":
            return np.ones(n)
        case "uniform":
            return rng.random(n) + 0.01
        case "20 decades":
            return 10.0 ** rng.uniform(-20, 0, size=n)
    return reading.weights(rng.random(n) * 1e300, n).s


def _penalty(rng: Any, kind: str, d: int, k: int) -> Any:
    a, b = (10.0 ** rng.uniform(-5, 0) for _ in range(2))
    match kind:
        case "L1" | "L2":
            return getattr(t, kind)(a)
        case "L1L2" | "MultiTask":
            return getattr(t, kind)(a, b if rng.random() < 0.6 else 0.0)
        case "NonNegative":
            choices = [(a, 0.0), (a, b), (0.0, b)]
            return t.NonNegative(*choices[int(rng.integers(3))])
        case "WeightedL1":
            return t.WeightedL1(tuple(a * (0.1 + rng.random(d))))
    groups = tuple(int(g) for g in rng.integers(0, 3, size=d))
    return t.Group(a, groups, b if rng.random() < 0.5 else 0.0)


def _rescaled(omega: Any, a: float, d: int) -> Any:
    """Ω(a·w): the penalty of coefficients that are divided by a."""
    match omega:
        case t.L1(l1):
            return t.L1(l1 * a)
        case t.L2(l2):
            return t.L2(l2 * a * a)
        case t.L1L2(l1, l2):
            return t.L1L2(l1 * a, l2 * a * a)
        case t.NonNegative(l1, l2):
            return t.NonNegative(l1 * a, l2 * a * a)
        case t.WeightedL1(alphas):
            return t.WeightedL1(tuple(x * a for x in alphas))
        case t.Group(l1, groups, l2):
            return t.Group(l1 * a, groups, l2 * a * a)
        case t.MultiTask(l1, l2):
            return t.MultiTask(l1 * a, l2 * a * a)


def _solve(
    loss: Any,
    omega: Any,
    A: Any,
    y: Any,
    s: Any,
    intercept: str,
    constant: float,
    k: int,
    steps: int,
    rng: Any,
) -> tuple[Any, Any, Any]:
    """Proximal gradient with momentum; losses with kinks are smoothed on the way."""
    row, share = losses.row_of(loss), s / s.sum()
    vector = isinstance(loss, t.Softmax) or y.ndim == 2
    A = np.column_stack([A, np.full(len(A), constant or 1.0)])
    W = np.zeros((A.shape[1], k))
    size = float(share @ (A * A).sum(axis=1)) + 1e-300
    smoothing = 1e-3

    def slope(z: Any) -> Any:
        z = z if vector else z[:, 0]
        if row.bend == "kink":
            low, high = row.domain(loss, y)
            g = _smoothed(loss, y, z, smoothing, low, high)
        else:
            with np.errstate(over="ignore"):
                g = row.slope(loss, y, np.clip(z, -30, 30) if vector else z)
        return g if vector else g[:, None]

    curve = 1 / smoothing if row.bend == "kink" else min(row.smooth(loss), 20.0)
    step, V, a = 1 / (curve * size), W, 1.0
    for _ in range(steps):
        G = A.T @ (share[:, None] * slope(A @ V))
        new = V - step * np.clip(G, -1e6, 1e6)
        if intercept == "none":
            new[-1] = 0
        part = slice(None) if intercept == "penalised" else slice(0, -1)
        new[part] = _prox(omega, new[part], step)
        a, old = (1 + np.sqrt(1 + 4 * a * a)) / 2, a
        V, W = new + (old - 1) / a * (new - W), new
    u = slope(A @ W)
    u = u if vector else u[:, 0]
    b = W[-1] * (constant or 1.0)
    W = W if vector else W[:, 0]
    b = b if vector else b[0]
    return W[:-1], b if intercept != "none" else 0 * b, u


def _smoothed(loss: Any, y: Any, z: Any, mu: float, low: Any, high: Any) -> Any:
    if isinstance(loss, t.Hinge):
        return np.clip((z - y * loss.margin) / mu, low, high)
    if isinstance(loss, t.EpsilonInsensitive):
        r = z - y
        return np.clip(np.sign(r) * np.maximum(np.abs(r) - loss.epsilon, 0) / mu, -1, 1)
    return np.clip((z - y) / mu, low, high)


def _prox(omega: Any, w: Any, step: float) -> Any:
    l1 = getattr(omega, "l1", getattr(omega, "alpha", 0.0))
    l2 = getattr(omega, "l2", 0.0)
    if isinstance(omega, t.L2):
        l1, l2 = 0.0, omega.alpha
    if isinstance(omega, t.WeightedL1):
        l1 = np.asarray(omega.alphas)[: len(w), None]
    if isinstance(omega, t.NonNegative):
        return np.maximum(w - step * l1, 0) / (1 + step * l2)
    if isinstance(omega, t.Group | t.MultiTask):
        groups = omega.groups if isinstance(omega, t.Group) else range(len(w))
        out = w.copy()
        for g in set(groups):
            rows = [j for j, other in enumerate(groups) if other == g]
            size = np.linalg.norm(w[rows])
            out[rows] *= max(1 - step * l1 / size, 0) if size else 0
        return out / (1 + step * l2)
    return np.sign(w) * np.maximum(np.abs(w) - step * l1, 0) / (1 + step * l2)
