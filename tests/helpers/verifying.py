"""Problems with random data for the verifier, and their optima found by SciPy."""

from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import minimize

from certus.objectives import terms as t
from certus.verify.kernel import gap
from certus.verify.kernel.gap import Gap, Problem
from certus.verify.kernel.losses import LOSSES
from certus.verify.kernel.penalties import PENALTIES
from helpers.judging import problem

Array = np.ndarray

SMOOTH = [
    t.Squared(),
    t.Huber(0.7),
    t.SquaredEpsilonInsensitive(0.2),
    t.Logistic(),
    t.SquaredHinge(),
    t.ModifiedHuber(),
    t.ExponentialMargin(),
    t.Binomial(3),
    t.Exponential(),
    t.Poisson(),
    t.Tweedie(1.5),
    t.Softmax(3),
]
KINKED = [t.Absolute(), t.Quantile(0.3), t.EpsilonInsensitive(0.2), t.Hinge()]


class Case(NamedTuple):
    """A problem as it is written down: data, terms, weights and the point to judge."""

    loss: Any
    penalty: Any
    X: Array
    y: Array
    s: Array
    w: Array
    b: Any
    intercept: str = "free"  # | "none" | "penalised"
    scale: float = 1.0
    dual: Array | None = None


def name(value: Any) -> str | None:
    return f"{type(value).__name__}{tuple(value)}" if isinstance(value, tuple) else None


def levels(penalty: Any) -> tuple[float, float]:
    """(l1, l2) of l1·‖w‖₁ + ½·l2·‖w‖²."""
    if isinstance(penalty, t.L1):
        return penalty.alpha, 0.0
    if isinstance(penalty, t.L2):
        return 0.0, penalty.alpha
    if isinstance(penalty, t.L1L2):
        return penalty.l1, penalty.l2
    assert isinstance(penalty, t.NoPenalty)
    return 0.0, 0.0


def stated(case: Case) -> Problem:
    """The kernel's problem."""
    return problem(
        *(case.loss, case.penalty, case.X, case.y, case.w, case.b, case.s),
        free=case.intercept == "free",
        constant=case.scale if case.intercept == "penalised" else 0.0,
        dual=case.dual,
    )


def measured(case: Case) -> Gap:
    """The kernel's gap."""
    return gap.measure(stated(case))


def make(
    loss: t.Loss,
    penalty: t.Penalty,
    intercept: str = "free",
    *,
    seed: int = 0,
    n: int = 30,
    d: int = 3,
    weighted: bool = True,
) -> Case:
    """Random data and a random point for one objective."""
    rng = np.random.default_rng(seed)
    X = rng.normal(0.3, 1, (n, d))
    f = X @ rng.normal(size=d) + 0.5 + 0.5 * rng.normal(size=n)
    k = loss.n_classes if isinstance(loss, t.Softmax) else 0
    if k:
        y = np.argmax(X @ rng.normal(size=(d, k)) + rng.gumbel(size=(n, k)), axis=1)
        y[:k] = range(k)
    elif LOSSES[type(loss)].takes == "signs":
        y = np.where(f + rng.normal(size=n) > 0, 1.0, -1.0)
        y[:2] = 1, -1
    elif isinstance(loss, t.Poisson | t.Tweedie):
        y = rng.poisson(np.exp(0.5 * f)).astype(float)
    elif isinstance(loss, t.Binomial):
        y = rng.binomial(loss.trials, 1 / (1 + np.exp(-f))).astype(float)
    elif isinstance(loss, t.Exponential):
        y = rng.exponential(np.exp(0.5 * f + 1.0))
    else:
        y = f
    s = rng.uniform(0.2, 2, n) if weighted else np.ones(n)
    w = rng.normal(size=(d, k) if k else d)
    b: Any = rng.normal(size=k) if k else float(rng.normal())
    if intercept == "none":
        b = np.zeros(k) if k else 0.0
    scale = 2.5 if intercept == "penalised" else 1.0
    return Case(loss, penalty, X, y, s, w, b, intercept, scale)


def primal(p: Case, w: Array, b: Any) -> float:
    """P(w, b), written down once more."""
    z = p.X @ w + b
    losses = LOSSES[type(p.loss)].value(p.loss, p.y, z)
    omega = PENALTIES[type(p.penalty)].value
    value = float(p.s @ losses / p.s.sum()) + omega(p.penalty, w)
    if p.intercept == "penalised":
        value += omega(p.penalty, np.atleast_1d(b) / p.scale)
    return value


def unravel(p: Case, x: Array) -> tuple[Array, Any]:
    """(p, q, b) as (w, b)."""
    m = p.w.size
    w = (x[:m] - x[m : 2 * m]).reshape(p.w.shape)
    rest = x[2 * m :] if p.intercept == "free" else x[2 * m :: 2] - x[2 * m + 1 :: 2]
    if p.intercept == "none":
        return w, np.zeros(p.w.shape[1]) if p.w.ndim == 2 else 0.0
    b = p.scale * rest if p.intercept == "penalised" else rest
    return w, b if p.w.ndim == 2 else float(b[0])


def smooth_optimum(p: Case) -> tuple[Array, Any, float]:
    """(w, b) and P there, by L-BFGS-B on w = p − q with p, q ≥ 0."""
    k = p.w.shape[1] if p.w.ndim == 2 else 1
    m, extra = p.w.size, {"none": 0, "free": k, "penalised": 2 * k}[p.intercept]
    l1, l2 = levels(p.penalty)
    f = LOSSES[type(p.loss)]

    def value(x: Array) -> tuple[float, Array]:
        w, b = unravel(p, x)
        z = p.X @ w + b
        total = p.s.sum()
        u = f.slope(p.loss, p.y, z)
        su = (p.s * u.T).T / total
        gw = (p.X.T @ su + l2 * w).ravel()
        gb = np.atleast_1d(su.sum(axis=0))
        loss = float(p.s @ f.value(p.loss, p.y, z) / total)
        loss += l1 * x[: 2 * m].sum() + l2 * float((w**2).sum()) / 2
        parts = [gw + l1, -gw + l1]
        if p.intercept == "free":
            parts.append(gb)
        elif p.intercept == "penalised":
            c = np.atleast_1d(b) / p.scale
            loss += l1 * x[2 * m :].sum() + l2 * float(c @ c) / 2
            gc = p.scale * gb + l2 * c
            parts.append(np.column_stack([gc + l1, -gc + l1]).ravel())
        return loss, np.concatenate(parts)

    bounds: list[tuple[float | None, None]] = [(0, None)] * (2 * m)
    bounds += [(None if p.intercept == "free" else 0, None)] * extra
    x = np.zeros(2 * m + extra)
    options = {"maxiter": 20_000, "maxfun": 100_000, "ftol": 1e-16, "gtol": 1e-11}
    for _ in range(3):
        x = minimize(
            value, x, jac=True, bounds=bounds, method="L-BFGS-B", options=options
        ).x
    w, b = unravel(p, x)
    return w, b, primal(p, w, b)
