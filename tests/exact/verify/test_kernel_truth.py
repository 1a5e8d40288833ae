"""What the kernel states against 80 digits: never below the truth.

A fixed sample runs always; ``make test-statistical`` draws thousands.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy import sparse

from certus.objectives import terms as t
from certus.verify import check, huber, margin
from certus.verify.deciding import Number
from certus.verify.kernel import backward, gap, losses, reading
from certus.verify.kernel.gap import Problem
from certus.verify.kernel.moved import measure_moved
from certus.verify.kernel.reference import least_constant
from helpers.drawing import LOSSES, draw
from helpers.judging import problem
from helpers.many_digits import Exact, kernel_dual, many, mp, mpf, xlogx

SAMPLE, MANY = 20, 400  # problems for each loss


def shortfall(seed: int) -> tuple[float, float, float] | None:
    """(truth − computed)/bound, bound/P and computed/P; None without a bound."""
    p, about = draw(seed)
    found = gap.measure(p)
    if not np.isfinite(found.stated):
        return None
    exact, (q, kappa) = Exact(p), kernel_dual(p)
    true = exact.gap(exact.feasible(q, kappa))
    assert 0 <= true <= mpf(found.computed) + mpf(found.bound), about
    # What κ costs is stated as rounding; it is no error. The nearest κ has none of it.
    nearest = min(true, exact.gap(exact.feasible(q, 1.0)))
    size = max(found.primal, 1e-300)
    short = float((nearest - found.computed) / found.bound) if found.bound else 0.0
    return short, found.bound / size, found.computed / size


def survey(seeds: range) -> dict[str, float]:
    found = [x for x in map(shortfall, seeds) if x is not None]
    short, bound, computed = np.array(found).T
    return {
        "judged": len(found),
        "largest shortfall/bound": float(short.max()),
        "median bound/P": float(np.median(bound)),
        "share near the minimum": float(np.mean(computed < 1e-6)),
    }


@pytest.mark.parametrize("k", range(len(LOSSES)))
def test_no_stated_gap_is_below_the_truth(k: int) -> None:
    found = survey(range(k, SAMPLE * len(LOSSES), len(LOSSES)))
    assert found["judged"] >= SAMPLE / 2, found
    assert found["median bound/P"] < 1e-9, found


def test_without_its_bound_the_number_would_be_below() -> None:
    below = 0
    for seed in range(60):
        p, _ = draw(seed)
        found, exact = gap.measure(p), Exact(p)
        if np.isfinite(found.stated):
            true = exact.gap(exact.feasible(*kernel_dual(p)))
            below += true > mpf(found.computed)
    assert below >= 5


@pytest.mark.slow
@pytest.mark.parametrize("k", range(len(LOSSES)))
def test_no_stated_gap_of_thousands_is_below_the_truth(k: int) -> None:
    first = SAMPLE * len(LOSSES)
    print(survey(range(first + k, first + MANY * len(LOSSES), len(LOSSES))))


# -- faults that were found -------------------------------------------------------


def test_counts_that_fit_keep_the_digits_of_their_slopes() -> None:
    """5q − y rounds in units of q, not of the difference."""
    rng = np.random.default_rng(0)
    X = np.column_stack([rng.normal(size=30), np.ones(30)])
    w = np.array([1e-3, 3.0])
    for trials in (3, 5, 1000):
        y = trials / (1 + np.exp(-X @ w)) * (1 + 1e-12 * rng.normal(size=30))
        p = problem(t.Binomial(trials), t.L2(1e-14 * trials), X, y, w, free=False)
        found, exact = gap.measure(p), Exact(p)
        true = exact.gap(exact.feasible(*kernel_dual(p)))
        assert true <= mpf(found.computed) + mpf(found.bound)


def test_tiny_weights_do_not_hide_a_pulled_back_error() -> None:
    """1e-119·1e-60·1e-150 is zero in floats: w = 0 was exact."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(30, 2))
    y = 1e-60 * (X[:, 0] + rng.normal(size=30))
    s = reading.weights(np.full(30, 1e-119), 30).s
    for given in (s, np.full(30, 1e-119)):  # and if no reader had scaled them
        p = problem(t.Squared(), t.L1(1e-214), X * 1e-150, y, [0, 0], y.mean(), given)
        found = gap.measure(p)
        assert Number.share(found.computed, found.bound, least_constant(p)).most > 0.9


def test_a_constant_target_does_not_hide_the_others() -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(30, 2))
    Y = np.column_stack([1e-3 * X[:, 0], np.full(30, 1e3)])
    p = problem(t.Squared(), t.MultiTask(1e-9), X, Y, np.zeros((2, 2)), Y.mean(0))
    assert least_constant(p) == pytest.approx(Y[:, 0].var() / 2)
    found = gap.measure(p)
    assert Number.share(found.computed, found.bound, least_constant(p)).most > 0.9
    both = p._replace(y=p.y[:, [1, 1]], b=p.b[[1, 1]])
    assert least_constant(both) == pytest.approx(1e6)  # P(0, 0)


# -- the reference ----------------------------------------------------------------


def least_true(p: Problem) -> Any:
    """The minimum over constants in many digits, by golden sections."""
    exact = Exact(p)
    constant = p.space.constant

    def value(x: Any) -> Any:
        exact.w = [[x]]
        fine = exact.omega() if constant else mpf(0)
        return exact.loss([[x * mpf(constant or 1.0)] for _ in exact.y]) + fine

    if not p.free and not constant:
        return value(mpf(0))
    high = 60 + 2 * mpf(np.abs(p.y).max())
    low, ratio = -high, (mp.sqrt(5) - 1) / 2
    for _ in range(180):
        a, b = high - ratio * (high - low), low + ratio * (high - low)
        low, high = (low, b) if value(a) < value(b) else (a, high)
    return value((low + high) / 2)


def deviance(p: Problem) -> Any:
    """What the deviance adds to the mean loss."""
    exact = Exact(p)

    def constant(y: Any) -> Any:
        match p.loss:
            case t.Poisson():
                return xlogx(y) - y
            case t.Exponential():
                return -mp.log(y) - 1
            case t.Tweedie(power):
                b = 2 - mpf(power)
                return -(mpf(y) ** b) / (b * (1 - b))
            case t.Binomial(n):
                return xlogx(y) + xlogx(n - y) - xlogx(mpf(n))
        return mpf(0)

    return exact.mean([constant(y) for y in exact.y])


def has_one_score(p: Problem) -> bool:
    """One score, and one level for an intercept that is penalised."""
    plain = isinstance(p.penalty, t.L1 | t.L2 | t.L1L2)
    return p.w.ndim == 1 and (plain or not p.space.constant)


@pytest.mark.parametrize("begin", range(0, 90, 15))
def test_the_reference_is_never_above_the_best_constant(begin: int) -> None:
    drawn = [draw(seed) for seed in range(begin, begin + 15)]
    chosen = [(p, about) for p, about in drawn if has_one_score(p)]
    assert chosen
    for p, about in chosen:
        found, true = least_constant(p), least_true(p) + deviance(p)
        assert found <= true, about
        smooth = not p.space.constant and "20" not in about["weights"]
        assert found >= true * (1 - 1e-6) or not smooth, about


@pytest.mark.parametrize("off", [1e-4, 1e-3, 9e-3, -9e-3])
def test_the_reference_allows_for_a_constant_that_is_off(
    off: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """P(c) of such a constant is above P₀; the slopes around it make up for that."""
    rng = np.random.default_rng(0)
    y = np.append(rng.normal(size=50), 1e4)  # one far target, so that steps are wide
    p = problem(t.Huber(1.0), t.L1(1.0), np.zeros((51, 1)), y, [0.0], 0.0)
    row = losses.row_of(p.loss)

    def best(*given: Any) -> Any:
        return row.best(*given) + off

    true, exact = least_true(p), Exact(p)
    value = exact.loss([[mpf(best(p.loss, p.y, p.space.s))] for _ in p.y])
    assert value * (1 - mpf(10) ** -11) > true  # P(c) itself would be too large
    monkeypatch.setattr(losses, "row_of", lambda _: row._replace(best=best))
    assert true / 2 < least_constant(p) <= true


# -- without a penalty ------------------------------------------------------------


def plain_least_squares(seed: int) -> Problem:
    rng = np.random.default_rng(seed)
    n, d, free = int(rng.integers(4, 20)), int(rng.integers(1, 4)), seed % 3 > 0
    scale = 10.0 ** rng.uniform(-4, 8, size=d)
    offset = float(rng.choice([0.0, 0.0, 1e6])) * float(free)
    X = (rng.normal(size=(n, d)) + offset) * scale
    s = [np.ones(n), rng.random(n) + 0.1, 10.0 ** rng.uniform(-8, 0, n)][seed % 3 - 1]
    y = X @ (rng.normal(size=d) / scale) + rng.choice([0.0, 1e-12, 1.0]) * rng.normal(
        size=n
    )
    root = np.sqrt(s)[:, None]
    A = np.column_stack([X, np.ones(n)]) if free else X
    w = np.linalg.lstsq(A * root, y * root[:, 0])[0]
    w = w * (1 + float(rng.choice([0.0, 1e-12, 1e-6, 0.1])) * rng.normal(size=len(w)))
    b = w[-1] if free else 0.0
    return problem(t.Squared(), t.NoPenalty(), X, y, w[:d], b, s, free=free)


class Centred:
    """Centred columns (as they are without an intercept), target and residual."""

    def __init__(self, p: Problem) -> None:
        self.e = Exact(p)
        self.free = p.free
        self.columns = [self.centre(list(x)) for x in zip(*self.e.X, strict=True)]
        self.y = self.centre(self.e.y)
        self.w = self.e.w[0]
        self.r = self.residual(self.columns, self.y)
        off = [y - z[0] for y, z in zip(self.e.y, self.e.scores(), strict=True)]
        self.c = self.e.mean(off) if p.free else mpf(0)

    def centre(self, a: list[Any]) -> list[Any]:
        middle = self.e.mean(a) if self.free else mpf(0)
        return [x - middle for x in a]

    def residual(self, columns: list[Any], y: list[Any]) -> list[Any]:
        fit = [mp.fdot(self.w, row) for row in zip(*columns, strict=True)]
        return [a - b for a, b in zip(y, fit, strict=True)]

    def dot(self, a: list[Any], b: list[Any]) -> Any:
        return self.e.mean([x * y for x, y in zip(a, b, strict=True)])

    def size(self, a: list[Any]) -> Any:
        return mp.sqrt(self.dot(a, a))


def changed(at: Centred, filled: bool) -> tuple[Any, Any]:
    """The share by which data change, and how far the changed ones are from solved."""
    r, sizes = at.r, [at.size(x) for x in at.columns]
    total = mp.fdot([abs(x) for x in at.w], sizes) + at.size(at.y)
    E, target = [], [mpf(0)] * len(r)
    for x, w, size in zip(at.columns, at.w, sizes, strict=True):
        factor = mp.sign(w) * size / total if filled else -at.dot(x, r) / at.dot(r, r)
        E.append([factor * a for a in r])
    if filled:
        target = [-a * at.size(at.y) / total for a in r]
    moved = [
        [a + b for a, b in zip(x, e, strict=True)]
        for x, e in zip(at.columns, E, strict=True)
    ]
    left = at.residual(moved, [a + b for a, b in zip(at.y, target, strict=True)])
    off = max(abs(at.dot(x, left)) / (at.size(x) * at.size(r)) for x in moved)
    shares = [at.size(e) / size for e, size in zip(E, sizes, strict=True)]
    return max([*shares, at.size(target) / at.size(at.y)]), off


def check_backward(seed: int) -> None:
    p = plain_least_squares(seed)
    found, at = backward.measure(p), Centred(p)
    if at.size(at.r) == 0:
        return
    both = [changed(at, False), changed(at, True)]
    assert max(off for _, off in both) < mpf(10) ** -30
    true = max(min(share for share, _ in both), abs(at.c) / at.size(at.y))
    assert true <= mpf(found.computed) + mpf(found.bound)


@pytest.mark.parametrize("seed", range(40))
def test_the_changed_data_are_solved_exactly(seed: int) -> None:
    check_backward(seed)


@pytest.mark.slow
def test_thousands_of_changed_data_are_solved_exactly() -> None:
    for seed in range(40, 2000):
        check_backward(seed)


def check_moved(seed: int) -> None:
    p, about = draw(seed)
    rng = np.random.default_rng(seed)
    loss = [t.Absolute(), t.Quantile(0.3), t.Huber(0.5), t.EpsilonInsensitive(0.1)][
        seed % 4
    ]
    if p.w.ndim == 2 or p.space.constant or p.y.ndim == 2:
        return
    y = rng.normal(size=len(p.y)) + (0 if p.free else 0.1)
    dual = (
        None if isinstance(loss, t.Huber) else np.clip(rng.normal(size=len(y)), -1, 1)
    )
    p.space.rough = False  # rough norms are bounds from above only
    p = p._replace(loss=loss, y=y, dual=dual, penalty=t.NoPenalty())
    found = measure_moved(p, None)
    if not np.isfinite(found.computed + found.bound + found.share_bound):
        return
    with np.errstate(all="ignore"):
        natural = gap.look(p, None)[2].natural
    at = Centred(p)
    u = [x[0] for x in at.e._repaired([[x] for x in many(natural)])]
    z, square = [x[0] for x in at.e.scores()], at.dot(u, u)
    v = [at.dot(x, u) for x in at.columns]
    sizes = [at.size(x) for x in at.columns]
    share = max(
        abs(a) / (size * mp.sqrt(square)) if size else mpf(0)
        for a, size in zip(v, sizes, strict=True)
    )
    assert share <= mpf(found.share) + mpf(found.share_bound), about
    step = mp.fdot(v, at.w) / square
    there = [[a - b * step] for a, b in zip(z, u, strict=True)]
    true = at.e.loss(there) + at.e.conjugate([[x] for x in u])
    assert true <= mpf(found.computed) + mpf(found.bound), about
    assert at.e.loss([[x] for x in z]) <= mpf(found.still) + mpf(found.still_bound)


@pytest.mark.parametrize("seed", range(60))
def test_moved_data_prove_no_less_than_the_truth(seed: int) -> None:
    check_moved(seed)


@pytest.mark.slow
def test_thousands_of_moved_data_prove_no_less_than_the_truth() -> None:
    for seed in range(60, 3000):
        check_moved(seed)


# -- checkers that add to the kernel's gap -------------------------------------------


def check_huber(seed: int) -> None:
    rng = np.random.default_rng(seed)
    n, d, free = int(rng.integers(4, 15)), int(rng.integers(1, 4)), bool(seed % 2)
    X = rng.normal(size=(n, d)) * 10.0 ** rng.uniform(-3, 3)
    y = X[:, 0] / np.abs(X).max() + rng.standard_cauchy(size=n)
    s = rng.random(n) + 0.01
    scale, epsilon = float(10.0 ** rng.uniform(-3, 1)), float(rng.uniform(1.05, 2))
    strength = float(10.0 ** rng.uniform(-3, 1))
    w, b = rng.normal(size=d) / np.abs(X).max(), float(free) * float(np.median(y))
    factor = 2 / scale
    loss, omega = t.Huber(epsilon * scale), t.L2(strength / factor)
    p = problem(loss, omega, X, y, w, b, s, free=free)
    r = y - X @ w - b
    u = np.clip(-r, -epsilon * scale, epsilon * scale)
    found, _ = huber._bound(p, u, scale, factor, 1.0, None)
    e, sigma, eps = Exact(p), mpf(scale), mpf(epsilon)
    # The same dual point: into the ball, onto mean a = 0, into |a| ≤ 2ε.
    size = gap.norm(p, u) * factor
    u = u * (2 / size * (1 - 1e-12)) if size > 2 * (1 - 1e-12) else u
    with np.errstate(all="ignore"):
        natural = gap.look(p._replace(dual=u), None)[2].natural
    a = [-2 * x[0] / sigma for x in e._repaired([[x] for x in many(natural)])]
    square = e.mean([x * x for x in a])
    top = max([mpf(1), mp.sqrt(square) / 2, *(abs(x) / (2 * eps) for x in a)])
    a = [x / top for x in a]
    r = [y - z[0] for y, z in zip(e.y, e.scores(), strict=True)]

    def perspective(x: Any) -> Any:
        x = abs(x)
        return x * x / sigma if x <= eps * sigma else 2 * eps * x - eps**2 * sigma

    omega_w = mpf(strength) * mp.fsum(x * x for x in e.w[0]) / 2
    primal = sigma + e.mean([perspective(x) for x in r]) + omega_w
    v = e.pulled([[x] for x in a])[0]
    dual = e.mean([x * y for x, y in zip(a, e.y, strict=True)])
    dual -= mp.fsum(x * x for x in v) / (2 * mpf(strength))
    assert primal - dual <= mpf(found.most)


@pytest.mark.parametrize("seed", range(40))
def test_the_gap_of_a_scale_is_not_below_the_truth(seed: int) -> None:
    check_huber(seed)


def check_margin(seed: int) -> None:
    rng = np.random.default_rng(seed)
    n, d, free = int(rng.integers(4, 15)), int(rng.integers(1, 4)), bool(seed % 2)
    X = rng.normal(size=(n, d))
    w = rng.normal(size=d)
    y = np.where(X @ w + 0.1 > 0, 1.0, -1.0)
    if abs(y.sum()) == n:
        return
    X = (X + 0.3 * y[:, None] * w) * 10.0 ** rng.uniform(-100, 100)
    w = w / np.abs(X).max() * (1 + 0.1 * rng.normal(size=d))
    a = np.maximum(rng.normal(size=n), 0) * 10.0 ** rng.uniform(-5, 5)
    b = 0.05 * float(free)
    p = problem(t.Hinge(), t.L2(1.0), X, y, w, b, free=free, dual=a)
    found, _ = margin.hard_gap(p)
    if not np.isfinite(found.most):
        return
    e = Exact(p)
    f = [y * z[0] for y, z in zip(e.y, e.scores(), strict=True)]
    assert min(f) > 0
    primal = mp.fsum(x * x for x in e.w[0]) / min(f) ** 2 / 2
    up = mp.fsum(x for x, y in zip(many(a), e.y, strict=True) if y > 0)
    down = mp.fsum(x for x, y in zip(many(a), e.y, strict=True) if y < 0)
    if not up + down or (free and not min(up, down)):
        return
    sides = {1: min(1, down / up), -1: min(1, up / down)} if free else {1: 1, -1: 1}
    ay = [x * y * sides[int(y)] for x, y in zip(many(a), e.y, strict=True)]
    v = [mp.fdot(ay, column) for column in zip(*e.X, strict=True)]
    dual = mp.fsum(map(abs, ay)) ** 2 / (2 * mp.fsum(x * x for x in v))
    assert 1 - dual / primal <= mpf(found.most)


@pytest.mark.parametrize("seed", range(60))
def test_the_gap_of_a_margin_is_not_below_the_truth(seed: int) -> None:
    check_margin(seed)


@pytest.mark.slow
def test_thousands_of_scales_and_margins() -> None:
    for seed in range(60, 3000):
        check_huber(seed)
        check_margin(seed)


def test_rough_norms_of_sparse_columns_are_never_divided_by() -> None:
    """A column of 1e8 made the share of its neighbour 1e8 times too small."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 2)) * (rng.random((60, 2)) < 0.5) * [1e8, 1.0]
    y = X @ [1e-8, 1.0] + 1e-3 * rng.normal(size=60)
    first = X[:, 0] @ y / (X[:, 0] @ X[:, 0])  # right for one column alone
    wrong = check(
        [first, 0.0], None, (t.Squared(), t.NoPenalty()), sparse.csr_array(X), y
    )
    assert wrong.claims[0].value > 0.1
