"""Each term of the kernel's rounding bound by itself, on data chosen against it.

Random problems use a small part of a bound, so a missing term would pass there. Here
the truth is rational, and every test also shows that a much smaller constant would be
too small ("planted").
"""

from __future__ import annotations

import itertools
import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from scipy import sparse
from scipy.special import expit

from certus.objectives import terms as t
from certus.verify import check
from certus.verify.blocks import over_blocks
from certus.verify.kernel import gap, losses, penalties, spaces
from certus.verify.kernel.spaces import UNIT, Space
from helpers.judging import problem
from helpers.many_digits import CONJUGATES, VALUES, Exact, many, mp, mpf, xlogx


def exact_dot(a: Any, b: Any) -> Fraction:
    pairs = zip(np.asarray(a).tolist(), np.asarray(b).tolist(), strict=True)
    return sum((Fraction(x) * Fraction(y) for x, y in pairs), Fraction(0))


def close_numbers(rng: Any, *shape: int) -> Any:
    """Near-equal entries, whose sums round the same way again and again."""
    return 1.0 + rng.random() + 1e-9 * rng.random(shape)


class Running(np.ndarray):
    """A block whose products are running sums: the worst order that a library takes."""

    def __matmul__(self, other: Any) -> Any:
        A, B = np.asarray(self), np.asarray(other)
        return (A[:, :, None] * B).cumsum(axis=1)[:, -1] if A.size else A @ B


def lost_in_a_sum(n: int) -> Any:
    """Squares after the first are a little less than half of its last digit."""
    x = np.full(n, math.sqrt(0.999 * UNIT))
    x[:2] = 1.0, 0.0  # a zero keeps a sparse column sparse
    return x


HELD = {"dense": np.asarray, "csr": sparse.csr_array, "csc": sparse.csc_array}


@pytest.fixture
def running_sums(monkeypatch: pytest.MonkeyPatch) -> None:
    """Dense blocks of 4096 rows of three columns, with products of that order."""
    plain = Space._block
    monkeypatch.setattr(Space, "_block", lambda A, *at: plain(A, *at).view(Running))
    monkeypatch.setattr(spaces, "BLOCK", 3 << 12)


# -- scores -----------------------------------------------------------------------


@pytest.mark.parametrize("form", ["dense", "csr", "csc"])
def test_scores_are_within_their_error(form: str) -> None:
    worst = 0.0
    for seed in range(8):
        rng = np.random.default_rng(seed)
        X = close_numbers(rng, 12, 200)
        if form != "dense":
            X = X * (rng.random(X.shape) < 0.9)
        w = close_numbers(rng, 200) * (1 if seed % 2 else rng.choice([-1, 1], 200))
        s = 10.0 ** rng.uniform(-3, 0, size=12)
        held = {"dense": np.asarray, "csr": sparse.csr_array, "csc": sparse.csc_array}
        space = Space(held[form](X), s, free=False)
        z = space.look(w[:, None], np.array([0.3]), None).z[:, 0]
        true = [exact_dot(row, w) + Fraction(0.3) for row in X]
        off = [float(Fraction(a) - b) for a, b in zip(z.tolist(), true, strict=True)]
        error = math.sqrt(s @ np.square(off) / s.sum())
        bound = float(space.score_error(w[:, None], np.array([0.3]))[0])
        assert error <= bound
        worst = max(worst, error / bound)
    assert worst > 1 / 2000  # planted: a bound of one rounding instead of d fails


@pytest.mark.parametrize("form", ["dense", "csr", "csc"])
def test_scores_may_be_as_far_off_as_stated(form: str, running_sums: None) -> None:
    w = lost_in_a_sum(4000)
    space = Space(HELD[form](np.tile(w, (3, 1))), np.ones(3), free=False)
    z = space.look(w[:, None], np.zeros(1), None).z[:, 0]
    off = abs(Fraction(float(z[0])) - exact_dot(w, w))
    bound = float(space.score_error(w[:, None], np.zeros(1))[0])
    assert 0.9 * bound < off <= bound  # planted: nine tenths of the constant fail


def test_scores_about_a_shift_are_within_their_error() -> None:
    rng = np.random.default_rng(0)
    X, w = 1e9 + rng.normal(size=(50, 4)), rng.normal(size=4)
    space = Space(X, np.ones(50), free=True)
    b = np.array([-1e9 * w.sum()])
    z = space.look(w[:, None], b, None).z[:, 0]
    true = [exact_dot(row, w) + Fraction(float(b[0])) for row in X]
    off = [float(Fraction(a) - c) for a, c in zip(z.tolist(), true, strict=True)]
    bound = float(space.score_error(w[:, None], b)[0])
    assert math.sqrt(np.mean(np.square(off))) <= bound
    plain = Space(X, np.ones(50), free=False)
    assert bound < 0.5 * float(plain.score_error(w[:, None], b)[0])


@pytest.mark.parametrize("shape", [(300, 2000), (9000, 40), (160, 20)])
@pytest.mark.parametrize("far", [0.0, 50.0])
@pytest.mark.parametrize("even", [True, False])
def test_either_order_of_the_numbers_is_read_alike(
    shape: tuple[int, int], far: float, even: bool
) -> None:
    rng = np.random.default_rng(2)
    (n, d), k = shape, 2
    X, s = far + rng.normal(size=shape), np.ones(n) if even else 1 + rng.random(n)
    w, b = rng.normal(size=(d, k)) / d, rng.normal(size=k)
    # All scores, or the first alone, of few columns, and what is pulled back by it.
    for order, own in itertools.product("CF", (None, 1)):
        w[:, 0] = w[:, 0] * (np.arange(d) < d / 9) if own else w[:, 0]
        space = Space(np.array(X, order=order), s, True, each=over_blocks)
        seen = space.look(w, b, lambda rows, z, own=own: np.cos(z[:, :own]), own)
        A = X - space.shift
        assert np.abs(seen.z - (X @ w + b)).max() < 1e-12 * (1 + far)
        assert np.allclose(seen.V, A.T @ (s[:, None] * seen.B) / s.sum(), atol=1e-13)
        assert np.allclose(space.norms, np.sqrt(s @ A**2 / s.sum()), rtol=1e-12)


def test_the_offset_is_summed_exactly() -> None:
    rng = np.random.default_rng(1)
    X, w = 1e9 * rng.random(6) + rng.normal(size=(40, 6)), rng.normal(size=6)
    space = Space(X, np.ones(40), free=True)
    b = -float(space.shift @ w)  # so that the sum cancels
    found = float(space.offset(w[:, None], np.array([b]))[0])
    true = exact_dot(space.shift, w) + Fraction(b)
    assert abs(Fraction(found) - true) <= UNIT * abs(true)
    planted = float(space.shift @ w) + b
    assert abs(Fraction(planted) - true) > 0.1 * abs(true)


def test_an_offset_that_overflows_is_unknown() -> None:
    rng = np.random.default_rng(1)
    X, y = 1e9 + rng.normal(size=(40, 2)), rng.normal(size=40)
    for w in ([1e305, -1e305], [9e298, 9e298]):  # ∞ − ∞; a sum that is too large
        found = check(w, 0.0, (t.Squared(), t.L2(1.0)), X, y)
        assert found.claims[0].met is not True


# -- what is pulled back ----------------------------------------------------------


@pytest.mark.parametrize("form", ["dense", "csr", "csc"])
@pytest.mark.parametrize("free", [False, True])
@pytest.mark.parametrize("n", [4000, 40_000])
def test_a_pulled_back_entry_may_be_as_far_off_as_stated(
    form: str, free: bool, n: int, running_sums: None
) -> None:
    """Where x and u are alike, no inequality gives room and every rounding counts."""
    x, sizes = lost_in_a_sum(n), [1.0, 2.0**27, -(2.0**-27)]
    X = HELD[form](np.multiply.outer(x, sizes))
    p = problem(t.Squared(), t.L2(1.0), X, -x, [0, 0, 0], free=free)
    seen, _, found = gap.look(p, None)
    v, error = gap.pulled_back(p, seen, found, n)
    each = [Fraction(a) for a in x.tolist()]
    middle = sum(each, Fraction(0)) / n if free else Fraction(0)
    true = sum((a * (a - middle) for a in each), Fraction(0)) / n
    for j, size in enumerate(sizes):
        off = abs(Fraction(float(v[j])) - true * Fraction(size))
        assert off <= Fraction(float(error[j]))
        assert off > 0.9 * error[j]  # planted: nine tenths of the constant fail


def test_a_penalised_constant_is_summed_pairwise() -> None:
    """As many rows as would ruin a running sum; 0.1 never rounds to even."""
    n = 300_000
    B = np.full((n, 2), 0.1)
    X = sparse.csr_array((n, 1))
    space = Space(X, np.ones(n), free=False, constant=1.0)
    V = space.look(np.zeros((2, 2)), np.zeros(2), lambda rows, _: B[rows]).V
    assert abs(V[1, 0] / 0.1 - 1) < 50 * UNIT
    assert abs(np.cumsum(B[:, 0])[-1] / n / 0.1 - 1) > 50 * UNIT  # planted


# -- the exactly feasible point ---------------------------------------------------


@pytest.mark.parametrize("decades", [0, 8, 16])
def test_the_share_of_centring_covers_the_exact_imbalance(decades: int) -> None:
    needed = 0.0
    for seed in range(20):
        rng = np.random.default_rng(seed)
        n = 101
        s = 10.0 ** rng.uniform(-decades, 0, size=n)
        y = close_numbers(rng, n)
        p = problem(t.Squared(), t.L2(1.0), np.zeros((n, 1)), y, [0.0], y[0], s)
        found = gap.look(p, None)[2]
        u = [Fraction(x) for x in found.natural.tolist()]
        su = [Fraction(a) * b for a, b in zip(s.tolist(), u, strict=True)]
        up = sum((x for x in su if x > 0), Fraction(0))
        down = -sum((x for x in su if x < 0), Fraction(0))
        true = abs(up - down) / max(up, down)
        assert true <= found.share
        needed = max(needed, float(true))
    assert needed > UNIT / 4  # planted: a share of nothing fails


def test_the_scaled_dual_point_is_feasible_exactly() -> None:
    broken = 0
    for seed in range(40):
        rng = np.random.default_rng(seed)
        X = close_numbers(rng, 60, 3)
        y = rng.normal(size=60) + 1.0
        p = problem(t.Squared(), t.L1(0.01), X, y, np.zeros(3), 0.0, free=False)
        seen, z, found = gap.look(p, None)
        v, error = gap.pulled_back(p, seen, found, len(z))
        row = penalties.row_of(p.penalty)
        kappa = Fraction(row.reach(p.penalty, v, error))
        true = [abs(exact_dot(X[:, j], found.natural)) / 60 for j in range(3)]
        assert max(true) * kappa <= Fraction(0.01)
        bare = Fraction(0.01 / float(np.abs(v).max()))  # planted: no error of v
        broken += max(true) * bare > Fraction(0.01)
    assert broken > 5


# -- column norms -----------------------------------------------------------------


@pytest.mark.parametrize("form", ["dense", "csr", "csc"])
@pytest.mark.parametrize("power", [-300, -200, -165, -150, 0, 150, 165, 200, 300])
def test_norms_of_columns_neither_vanish_nor_overflow(form: str, power: int) -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(30, 2)) * [1.0, 10.0**power]
    X[X < -1.5] = 0.0
    X[0] = 0.0
    s = 10.0 ** rng.uniform(-10, 0, size=30)
    held = {"dense": np.asarray, "csr": sparse.csr_array, "csc": sparse.csc_array}
    with np.errstate(over="ignore"):
        found = Space(held[form](X), s, free=False).norms
    share = many(s)
    total = mp.fsum(share)
    for j in range(2):
        squares = [a * x * x for a, x in zip(share, many(X[:, j]), strict=True)]
        true = mp.sqrt(mp.fsum(squares) / total)
        assert abs(found[j] / true - 1) < 1e-9
    with np.errstate(all="ignore"):
        planted = np.sqrt(s @ np.square(X) / s.sum())
    assert (0 < planted[1] < np.inf) == (abs(power) <= 150)


def test_a_tiny_sparse_column_is_not_lost_beside_a_large_one() -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(40, 2)) * (rng.random((40, 2)) < 0.6)
    y = X @ [1.0, 1.0] + 1e-3 * rng.normal(size=40)
    first = X[:, 0] @ y / (X[:, 0] @ X[:, 0])  # the other coefficient is zeroed
    for scale in (1.0, 1e-170, 1e-250):
        S = sparse.csr_array(X * [1.0, scale])
        found = check([first, 0.0], None, (t.Squared(), t.NoPenalty()), S, y)
        assert found.claims[0].value > 0.1


def test_rough_norms_are_bounds_from_above() -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(50, 6)) * (rng.random((50, 6)) < 0.3) * 10.0 ** np.arange(6)
    w, b = rng.normal(size=(6, 1)), np.zeros(1)
    for form in (sparse.csr_array, sparse.csc_array):
        space = Space(form(X), np.ones(50), free=False)
        space.rough = True
        rough, loose = space.norms, space.score_error(w, b)
        space.rough = False
        assert np.all(rough >= space.norms) and loose >= space.score_error(w, b)


# -- entropies --------------------------------------------------------------------


def entropy(q: float, z: float) -> Any:
    """kl(q‖p) + kl(1−q‖1−p) for p = 1/(1 + e⁻ᶻ), in many digits."""
    p = 1 / (1 + mp.exp(-mpf(z)))
    q_ = mpf(q)
    return xlogx(q_) + xlogx(1 - q_) - q_ * mp.log(p) - (1 - q_) * mp.log1p(-p)


def test_the_noise_of_entropies_covers_their_evaluation() -> None:
    rng = np.random.default_rng(0)
    row, term = losses.row_of(t.Logistic()), t.Logistic()
    z = np.concatenate([rng.normal(size=150) * 3, rng.uniform(-40, 40, size=150)])
    p = expit(-z)
    near = 1 + 10.0 ** rng.uniform(-15, 0, size=300) * rng.choice([-1, 1], 300)
    q = np.clip(np.where(rng.random(300) < 0.7, p * near, rng.random(300)), 0, 1)
    found, noise = row.excess(term, np.ones(300), z, q)
    ratio = []
    for k in range(300):
        error = abs(float(mpf(float(found[k])) - entropy(float(q[k]), -float(z[k]))))
        assert error <= UNIT * float(noise[k]) + 1e-300
        ratio.append(error / (UNIT * float(noise[k]) + 1e-300))
    assert max(ratio) > 1e-2  # planted: a hundredth of it fails


def test_counts_amounts_and_classes_have_enough_noise_too() -> None:
    rng = np.random.default_rng(1)
    n = 40
    z = rng.normal(size=n) * 3
    near = 1 + 10.0 ** rng.uniform(-12, 0, size=n)
    X = np.eye(n)
    for loss, y, q in (
        (t.Poisson(), rng.poisson(3, n).astype(float), np.exp(z) * near),
        (t.Exponential(), rng.exponential(size=n) + 0.1, None),
        (t.Tweedie(1.5), rng.poisson(2, n).astype(float), None),
        (t.Tweedie(1.05), rng.poisson(2, n).astype(float), None),
        (t.ExponentialMargin(), rng.choice([-1.0, 1.0], n), None),
        (t.Binomial(7), rng.integers(0, 8, n).astype(float), 7 * expit(z) / near),
    ):
        row = losses.row_of(loss)
        q = row.natural(loss, y, z) * near if q is None else q
        found, noise = row.excess(loss, y, z, q)
        p = problem(loss, t.L2(1.0), X, y, z, free=False)
        exact = Exact(p)
        u = exact._slopes([[x] for x in many(q)])
        values = exact._each(VALUES, [[x] for x in many(z)])
        duals = exact._each(CONJUGATES, u)
        for k in range(n):
            true = values[k] + duals[k] - u[k][0] * mpf(float(z[k]))
            off = abs(float(mpf(float(found[k])) - true))
            assert off <= UNIT * float(noise[k]) + 1e-300, (loss, k)


@pytest.mark.parametrize("shape", [(50, 7), (9000, 3), (30, 5000)])
@pytest.mark.parametrize("free", [True, False])
def test_the_order_of_the_cells_changes_nothing(
    shape: tuple[int, int], free: bool
) -> None:
    rng = np.random.default_rng(0)
    X, s = rng.normal(size=shape), rng.uniform(0.5, 2, shape[0])
    W, b = rng.normal(size=(shape[1], 2)), np.array([0.3, 0.0])
    for weights in (np.ones(shape[0]), s):
        for order in "CF":
            space = Space(np.asarray(X, order=order), weights, free=free)
            seen = space.look(W, b, lambda _, z: np.column_stack([z[:, 0], z[:, 1]]))
            Z = X @ W + b
            np.testing.assert_allclose(seen.z, Z, atol=1e-11)
            pulled = X.T @ (weights[:, None] * Z) / weights.sum()
            np.testing.assert_allclose(seen.V, pulled, atol=1e-10)
            norms = np.sqrt(weights @ X**2 / weights.sum())
            np.testing.assert_allclose(space.norms, norms, rtol=1e-12)
