"""Probability and linear algebra: what everything else rests on.

Tails are exact where SciPy knows them; simulations use fixed seeds and four standard
errors.
"""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from scipy.integrate import quad

from certus import objectives
from certus.linear_model import LinearRegression
from certus.objectives import terms as t

Array = np.ndarray
SEEDS = st.integers(0, 10**6)


# -- moments and tails ------------------------------------------------------------


@pytest.mark.catalog("PRE-01")
@given(seed=SEEDS)
def test_covariance_is_bilinear(seed: int) -> None:
    rng = np.random.default_rng(seed)
    X, Y, W, V = rng.normal(size=(4, 30)) + rng.normal(size=(4, 1))
    a, b, c, d = rng.normal(size=4)

    def cov(u: Array, v: Array) -> float:
        return float(np.mean(u * v) - u.mean() * v.mean())

    assert cov(X, X) == pytest.approx(X.var(), abs=1e-12)
    assert cov(X, Y) == pytest.approx(np.cov(X, Y, ddof=0)[0, 1], abs=1e-12)
    expanded = a * c * cov(X, W) + a * d * cov(X, V) + b * c * cov(Y, W)
    expanded += b * d * cov(Y, V)
    assert cov(a * X + b * Y, c * W + d * V) == pytest.approx(expanded, abs=1e-12)
    P, Q = rng.normal(size=(2, 30, 3))
    matrix = P.T @ Q / 30 - np.outer(P.mean(axis=0), Q.mean(axis=0))
    both = np.cov(P.T, Q.T, ddof=0)[:3, 3:]
    np.testing.assert_allclose(matrix, both, atol=1e-12)


@pytest.mark.catalog("PRE-02")
@pytest.mark.parametrize("draw", ["exponential", "uniform"])
def test_law_of_large_numbers(draw: str) -> None:
    rng = np.random.default_rng(0)
    mean = {"exponential": 1.0, "uniform": 0.5}[draw]
    sizes, errors = np.array([10, 40, 160, 640, 2560]), []
    for n in sizes:
        means = getattr(rng, draw)(size=(800, n)).mean(axis=1)
        errors.append(np.abs(means - mean).mean())
    slope = np.polyfit(np.log(sizes), np.log(errors), 1)[0]
    assert abs(slope + 0.5) < 0.05


@pytest.mark.catalog("PRE-03")
def test_markov() -> None:
    rng = np.random.default_rng(1)
    for a in np.linspace(0.1, 12, 60):
        for rate in (0.3, 1.0, 4.0):
            assert stats.expon(scale=rate).sf(a) <= rate / a
            assert stats.poisson(rate).sf(np.ceil(a) - 1) <= rate / a
    for sample in (rng.exponential(2.0, 500), rng.poisson(2.0, 500)):
        for a in np.linspace(0.1, 12, 60):  # any sample is a distribution itself
            assert np.mean(sample >= a) <= sample.mean() / a
    signed = np.array([-1.0, 1.0])  # mean 0, and yet P(X ≥ 1) = ½
    assert np.mean(signed >= 1) > signed.mean() / 1


@pytest.mark.catalog("PRE-04")
@given(seed=SEEDS)
def test_jensen(seed: int) -> None:
    rng = np.random.default_rng(seed)
    x = rng.normal(size=50)
    for f in (np.exp, np.square, np.abs):
        assert f(x).mean() - f(x.mean()) >= -1e-12
    convex = objectives.value(t.Logistic(), 1, x).mean()
    assert convex >= objectives.value(t.Logistic(), 1, x.mean()) - 1e-12
    positive = np.exp(x)
    assert np.log(positive.mean()) >= np.log(positive).mean() - 1e-12
    small = 0.7 + 1e-3 * x
    gap = np.exp(small).mean() - np.exp(small.mean())
    assert gap / np.exp(small.mean()) == pytest.approx(small.var() / 2, rel=1e-2)


@pytest.mark.catalog("PRE-05")
@given(seed=SEEDS)
def test_union_bound(seed: int) -> None:
    rng = np.random.default_rng(seed)
    p = rng.dirichlet(np.ones(8)) * (rng.random(8) < 0.8)  # some atoms are null
    p = p / p.sum() if p.sum() else np.eye(8)[0]
    events = rng.random((3, 8)) < rng.choice([0.1, 0.5])
    union, total = p[events.any(axis=0)].sum(), (events @ p).sum()
    assert union <= total + 1e-15
    overlap = any(p[a & b].sum() > 0 for a, b in itertools.combinations(events, 2))
    assert (total - union > 1e-12) == overlap


@pytest.mark.catalog("PRE-06")
@pytest.mark.parametrize("n", [5, 20, 100])
@pytest.mark.parametrize("eps", [0.05, 0.1, 0.3])
def test_hoeffding(n: int, eps: float) -> None:
    for p in (0.05, 0.3, 0.5):  # exact tails of the mean of n coins
        mean, slack = stats.binom(n, p), 1e-9
        low = mean.cdf(np.floor(n * (p - eps) + slack))
        high = mean.sf(np.ceil(n * (p + eps) - slack) - 1)
        assert low + high <= 2 * np.exp(-2 * n * eps**2)
    rng, (a, b) = np.random.default_rng(n), (-1.0, 3.0)
    far = np.abs(rng.uniform(a, b, (4000, n)).mean(axis=1) - 1.0) >= eps
    assert far.mean() <= 2 * np.exp(-2 * n * eps**2 / (b - a) ** 2)


@pytest.mark.catalog("PRE-07")
def test_hoeffding_with_unequal_ranges() -> None:
    def bound(n: int, t: float, widths: Array) -> float:
        return float(np.exp(-2 * n**2 * t**2 / np.sum(widths**2)))

    for n, t_ in itertools.product((3, 30), (0.05, 0.2)):
        assert bound(n, t_, np.ones(n)) == pytest.approx(np.exp(-2 * n * t_**2))
    # Two-point variables of widths b: all 2ⁿ outcomes, so the tail is exact.
    rng, n = np.random.default_rng(2), 12
    widths = rng.uniform(0.1, 3.0, n)
    signs = np.array(list(itertools.product([-0.5, 0.5], repeat=n)))
    means = signs @ widths / n
    for t_ in np.linspace(0.01, means.max(), 50):
        tail = np.mean(means >= t_ - 1e-12)
        with_n_for_n_squared = np.exp(-2 * n * t_**2 / np.sum(widths**2))
        assert tail <= bound(n, t_, widths) < with_n_for_n_squared


@pytest.mark.catalog("PRE-10")
def test_moment_generating_functions() -> None:
    rng = np.random.default_rng(3)
    mu, L = np.array([0.3, -0.2]), np.array([[0.6, 0.0], [0.3, 0.5]])
    S = L @ L.T

    def closed(s: Array) -> float:
        return float(np.exp(s @ mu + s @ S @ s / 2))

    X = mu + rng.normal(size=(100_000, 2)) @ L.T
    for s in np.array([[0.5, 0.0], [0.4, -0.7], [-0.3, 0.9]]):
        each = np.exp(X @ s)
        assert abs(each.mean() - closed(s)) < 4 * each.std() / np.sqrt(len(each))
    h = 1e-4
    for i, e in enumerate(np.eye(2)):
        first = (closed(h * e) - closed(-h * e)) / (2 * h)
        second = (closed(h * e) - 2 * closed(0 * e) + closed(-h * e)) / h**2
        assert first == pytest.approx(mu[i], abs=1e-7)
        assert second == pytest.approx(S[i, i] + mu[i] ** 2, abs=1e-6)
    # Independent coins: the generating function of the sum is the product.
    p, s = 0.3, 0.8
    one = 1 - p + p * np.exp(s)
    two = stats.binom(2, p).expect(lambda k: np.exp(s * k))
    assert two == pytest.approx(one**2)
    twice = 1 - p + p * np.exp(2 * s)  # X + X: not independent
    assert abs(twice - one**2) > 0.1


@pytest.mark.catalog("PRE-22")
def test_uncorrelated_is_not_independent() -> None:
    x = stats.norm.ppf((np.arange(2000) + 0.5) / 2000)  # symmetric about 0
    y = x**2
    assert abs(np.mean(x * y) - x.mean() * y.mean()) < 1e-12

    def information(u: Array, v: Array) -> float:
        joint = np.histogram2d(u, v, bins=20)[0] / len(u)
        apart = np.outer(joint.sum(axis=1), joint.sum(axis=0))
        used = joint > 0
        return float(np.sum(joint[used] * np.log(joint[used] / apart[used])))

    assert information(x, y) > 0.5
    rng = np.random.default_rng(4)
    u, v = rng.normal(size=(2, 200_000))  # jointly Gaussian and uncorrelated
    # With 19² degrees of freedom the estimate is 361/(2n) ± 27/(2n) too high.
    assert information(u, v) < 2 * 361 / (2 * 200_000)


# -- inequalities and algebra -----------------------------------------------------


@pytest.mark.catalog("PRE-08", "PRE-09")
@given(seed=SEEDS, p=st.sampled_from([1.0, 1.5, 2.0, 3.0, np.inf]))
def test_hoelder(seed: int, p: float) -> None:
    rng = np.random.default_rng(seed)
    v, u = rng.normal(size=(2, 6))
    dual = {1.0: np.inf, np.inf: 1.0}.get(p, p / (p - 1) if p > 1 else np.inf)
    bound = np.linalg.norm(v, p) * np.linalg.norm(u, dual)
    assert v @ u <= bound * (1 + 1e-12)
    if p == 1.0:
        equal = np.sign(v)
    elif p == np.inf:
        equal = np.where(np.abs(v) == np.abs(v).max(), np.sign(v), 0.0)
    else:
        equal = np.sign(v) * np.abs(v) ** (p - 1)
    norms = np.linalg.norm(v, p) * np.linalg.norm(equal, dual)
    assert v @ equal == pytest.approx(norms, rel=1e-12)
    assert np.linalg.norm(v) * np.linalg.norm(u) >= v @ u  # Cauchy–Schwarz
    stretched = 2.5 * v
    product = np.linalg.norm(v) * np.linalg.norm(stretched)
    assert v @ stretched == pytest.approx(product, rel=1e-12)
    if p not in (1.0, np.inf):  # a flipped sign breaks equality
        equal[0] = -equal[0]
        assert v @ equal < norms * (1 - 1e-12) or v[0] == 0


@pytest.mark.catalog("PRE-11")
@given(r=st.floats(-0.95, 0.95), n=st.integers(0, 60), a=st.floats(-3, 3))
def test_geometric_sums(r: float, n: int, a: float) -> None:
    explicit = sum(a * r**k for k in range(n + 1))
    assert a * (1 - r ** (n + 1)) / (1 - r) == pytest.approx(explicit, abs=1e-11)
    long = sum(a * r**k for k in range(800))
    assert a / (1 - r) == pytest.approx(long, abs=1e-11)
    velocity = average = 0.0
    for _ in range(n + 1):  # a constant slope: momentum multiplies it by 1/(1 − r)
        velocity = r * velocity + a
        average = r * average + (1 - r) * a
    assert velocity == pytest.approx(explicit, abs=1e-11)
    assert average == pytest.approx(a * (1 - r ** (n + 1)), abs=1e-11)


@pytest.mark.catalog("PRE-12")
def test_calculus() -> None:
    x = np.array([1e-2, 1e-3, 1e-4])
    np.testing.assert_allclose((x - np.log1p(x)) / (x**2 / 2), 1.0, atol=0.01)
    by_parts = [np.sin(2.0) * 4 - 0.0, -quad(lambda s: 2 * s * np.sin(s), 0, 2)[0]]
    assert quad(lambda s: s**2 * np.cos(s), 0, 2)[0] == pytest.approx(sum(by_parts))
    a = np.random.default_rng(5).normal(size=9)
    pairs = sum(a[i] * a[j] for i, j in itertools.combinations(range(9), 2))
    assert a.sum() ** 2 == pytest.approx(np.sum(a**2) + 2 * pairs, rel=1e-12)


@pytest.mark.catalog("PRE-13")
@given(seed=SEEDS, n=st.integers(1, 7))
def test_determinants(seed: int, n: int) -> None:
    rng = np.random.default_rng(seed)
    A, B = rng.normal(size=(2, n, n)) + 2 * np.eye(n)
    (sa, la), (sb, lb) = np.linalg.slogdet(A), np.linalg.slogdet(B)
    for M, sign, size in [
        (A.T, sa, la),
        (A @ B, sa * sb, la + lb),
        (np.linalg.inv(A), sa, -la),
    ]:
        # An error of eps in M moves log det by at most eps·n·cond.
        slack = 1e-13 * n * np.linalg.cond(A) * np.linalg.cond(B)
        found = np.linalg.slogdet(M)
        assert found[0] == sign
        assert found[1] == pytest.approx(size, abs=max(1e-10, slack))


@pytest.mark.catalog("PRE-14")
@pytest.mark.parametrize("rank", [2, 5])
def test_singular_values_and_the_gram_matrix(rank: int) -> None:
    rng = np.random.default_rng(6)
    X = rng.normal(size=(20, rank)) @ rng.normal(size=(rank, 5))
    U, s, Vt = np.linalg.svd(X, full_matrices=False)
    np.testing.assert_allclose(U * s @ Vt, X, atol=1e-12)
    np.testing.assert_allclose(U.T @ U, np.eye(5), atol=1e-12)
    np.testing.assert_allclose(Vt @ Vt.T, np.eye(5), atol=1e-12)
    values = np.linalg.eigvalsh(X.T @ X)[::-1]
    np.testing.assert_allclose(values, s**2, atol=1e-12 * s[0] ** 2)
    assert values.min() >= -1e-12 * s[0] ** 2
    np.testing.assert_allclose((Vt.T * s**2) @ Vt, X.T @ X, atol=1e-12 * s[0] ** 2)
    model = LinearRegression(fit_intercept=False, solver="svd").fit(X, X[:, 0])
    assert model.rank_ == rank == np.sum(s > 1e-10 * s[0])
    np.testing.assert_allclose(model.singular_[:rank], s[:rank], rtol=1e-10)
