"""Probability and linear algebra, as the models and bounds of certus use them.

Each fact is asked of something that certus computes: covariances of a mixture, ranges
of a bound, slopes of a loss. SciPy's exact tails and closed forms are the references;
simulations use fixed seeds and four standard errors.
"""

import itertools
from math import comb

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from scipy.integrate import quad

from certus import objectives
from certus.bounds import (
    clopper_pearson,
    donsker_varadhan,
    gaussian_kl,
    hoeffding_delta,
    hoeffding_interval,
    hoeffding_tail,
    markov_bound,
)
from certus.decomposition import PCA
from certus.fairness import Decorrelation, recovery
from certus.kernels import feature_map, gram
from certus.linear_model import LinearRegression
from certus.mixture import GaussianMixture
from certus.neighbors import BayesClassifier, KNeighborsClassifier
from certus.objectives import terms as t
from certus.optimize import Objective, adam, heavy_ball, linear_maximizer, momentum

Array = np.ndarray
SEEDS = st.integers(0, 10**6)


# -- moments ----------------------------------------------------------------------


@pytest.mark.catalog("PRE-01")
@pytest.mark.parametrize("seed", range(5))
def test_covariances_of_models_are_bilinear(seed: int) -> None:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(30, 4)) @ rng.normal(size=(4, 4)) + rng.normal(size=4)
    mixture = GaussianMixture(reg_covar=0.0).fit(X)
    S = mixture.covariances_[0]
    moments = X.T @ X / 30 - np.outer(X.mean(axis=0), X.mean(axis=0))
    np.testing.assert_allclose(S, moments, atol=1e-12)
    # Cov(aX + bY, cW + dV) from the four covariances, on the same rows.
    a, b, c, d = rng.normal(size=4)
    combined = X @ np.array([[a, 0.0], [b, 0.0], [0.0, c], [0.0, d]])
    both = GaussianMixture(reg_covar=0.0).fit(combined).covariances_[0]
    expanded = a * c * S[0, 2] + a * d * S[0, 3] + b * c * S[1, 2] + b * d * S[1, 3]
    assert both[0, 1] == pytest.approx(expanded, abs=1e-12)
    pca = PCA().fit(combined).get_covariance()  # with n − 1 instead of n
    np.testing.assert_allclose(pca * 29 / 30, both, atol=1e-12)


@pytest.mark.catalog("PRE-02")
def test_a_simulated_risk_approaches_the_risk() -> None:
    """The error of two normal classes a distance of 2 apart is Φ(−1)."""
    best = BayesClassifier([0.5, 0.5], [stats.norm(-1), stats.norm(1)])
    rng, known = np.random.default_rng(0), stats.norm.cdf(-1)
    sizes, errors = np.array([10, 40, 160, 640, 2560]), []
    for n in sizes:
        risks = [best.risk(n, rng).value for _ in range(400)]
        errors.append(np.abs(np.array(risks) - known).mean())
    slope = np.polyfit(np.log(sizes), np.log(errors), 1)[0]
    assert abs(slope + 0.5) < 0.05


@pytest.mark.catalog("PRE-04")
@given(seed=SEEDS)
def test_jensen_holds_for_every_convex_loss(seed: int) -> None:
    rng = np.random.default_rng(seed)
    z, weights = 3 * rng.normal(size=50), rng.dirichlet(np.ones(50))
    for loss, y in [
        *((loss, 0.3) for loss in (t.Squared(), t.Absolute(), t.Huber(0.7))),
        *((loss, 0.3) for loss in (t.Quantile(0.2), t.EpsilonInsensitive(0.4))),
        *((loss, -1) for loss in (t.Logistic(), t.Hinge(), t.SquaredHinge())),
        *((loss, 1) for loss in (t.ExponentialMargin(), t.ModifiedHuber())),
        *((loss, 2) for loss in (t.Poisson(), t.Binomial(5), t.Exponential())),
    ]:
        assert objectives.is_convex(loss)
        mean = weights @ objectives.value(loss, y, z)
        at_mean = objectives.value(loss, y, weights @ z)
        assert mean >= at_mean - 1e-12 * max(1.0, abs(mean))
    # These two are not convex: each has two scores whose mean costs more than they do.
    for loss, scores in [(t.Tukey(0.5), [1.0, 9.0]), (t.ZeroOne(), [-1.0, 0.6])]:
        assert not objectives.is_convex(loss)
        mean = objectives.value(loss, 1, scores).mean()
        assert mean < objectives.value(loss, 1, np.mean(scores))


@pytest.mark.catalog("PRE-04")
@pytest.mark.parametrize(
    "loss", [t.ExponentialMargin(), t.Logistic(), t.Squared(), t.Poisson()]
)
def test_the_gap_of_jensen_is_half_the_variance_times_the_curvature(loss) -> None:
    z = -0.7 + 1e-3 * np.random.default_rng(0).normal(size=500)
    gap = objectives.value(loss, 1, z).mean() - objectives.value(loss, 1, z.mean())
    curvature = objectives.curvature(loss, 1, z.mean())
    assert gap == pytest.approx(curvature * z.var() / 2, rel=1e-2)


@pytest.mark.catalog("PRE-10")
@pytest.mark.parametrize("s", [-0.9, 0.3, 0.8])
def test_losses_of_families_hold_their_moment_generating_functions(s: float) -> None:
    """ℓ(0, z) is the log-partition A(z) of y, and log E e^(sy) = A(z + s) − A(z)."""

    def log_mgf(loss, z: float, s: float) -> float:
        ends = objectives.value(loss, 0, np.array([z, z + s]))
        return float(ends[1] - ends[0])

    z, k = -0.4, np.arange(8)
    coin = stats.binom(7, 1 / (1 + np.exp(-z)))
    for loss, law in [(t.Binomial(7), coin), (t.Poisson(), stats.poisson(np.exp(z)))]:
        known = np.log(law.expect(lambda y: np.exp(s * y)))
        assert log_mgf(loss, z, s) == pytest.approx(known, rel=1e-9)
        h = 1e-4  # its derivatives at 0 are the mean and the variance
        up, down = log_mgf(loss, z, h), log_mgf(loss, z, -h)
        assert (up - down) / (2 * h) == pytest.approx(law.mean(), rel=1e-7)
        assert (up + down) / h**2 == pytest.approx(law.var(), rel=1e-6)
        slope, bend = objectives.gradient(loss, 0, z), objectives.curvature(loss, 0, z)
        assert (slope, bend) == pytest.approx((law.mean(), law.var()), rel=1e-12)
    # Seven coins are independent: the function of the sum is the product. X + X is not.
    one = log_mgf(t.Binomial(1), z, s)
    assert log_mgf(t.Binomial(7), z, s) == pytest.approx(7 * one, rel=1e-12)
    assert abs(log_mgf(t.Binomial(1), z, 2 * s) - 2 * one) > 0.01
    certain = np.eye(8)[0]  # E_Q φ = 0, which leaves the generating function alone
    found = -donsker_varadhan(s * k, certain, coin.pmf(k))
    assert found == pytest.approx(log_mgf(t.Binomial(7), z, s), rel=1e-9)


@pytest.mark.catalog("PRE-10")
def test_the_moment_generating_function_of_a_gaussian() -> None:
    rng = np.random.default_rng(3)
    mixture = GaussianMixture(2, random_state=0)
    mixture.fit(np.vstack([rng.normal(size=(60, 2)), rng.normal(size=(40, 2)) / 2 + 3]))
    X, _ = mixture.sample(100_000)
    for s in np.array([[0.5, 0.0], [0.4, -0.7], [-0.3, 0.9]]):
        spread = np.einsum("i,kij,j->k", s, mixture.covariances_, s)
        known = mixture.weights_ @ np.exp(mixture.means_ @ s + spread / 2)
        each = np.exp(X @ s)
        assert abs(each.mean() - known) < 4 * each.std() / np.sqrt(len(each))
    # KL of two Gaussians of one width is the largest of s(m − μ) − s²σ²/2.
    mean, prior, std = 1.7, -0.4, 0.6
    s = np.linspace(0, 20, 100_001)
    best = (s * (mean - prior) - s**2 * std**2 / 2).max()
    assert gaussian_kl(mean, std, prior, std) == pytest.approx(best, rel=1e-8)


@pytest.mark.catalog("PRE-22")
def test_without_correlation_an_attribute_may_still_be_recovered() -> None:
    rng = np.random.default_rng(4)
    x, v, noise = rng.normal(size=(3, 3000))
    options = {"estimator": KNeighborsClassifier(50), "folds": 3}

    def without(columns: list[Array], attribute: Array) -> Array:
        X = np.column_stack(columns)
        free = Decorrelation().fit_transform(X, sensitive=attribute)
        both = np.corrcoef(free.T, attribute)
        assert np.abs(both[-1, :-1]).max() < 1e-10
        return free

    # y = x²: a linear model finds nothing, neighbours find almost everything.
    free, member = without([x, x**2 + noise], x**2), x**2 > 0.5
    assert recovery(free, member, folds=3, random_state=0).auc_low.max() < 0.5
    assert recovery(free, member, **options, random_state=0).auc_low.max() > 0.8
    # Jointly Gaussian: where correlation is gone, nothing is left.
    u = x + v + noise
    assert (
        recovery(
            np.column_stack([x, v]), u > 0, **options, random_state=0
        ).auc_low.max()
        > 0.7
    )
    assert (
        recovery(without([x, v], u), u > 0, **options, random_state=0).auc.max() < 0.55
    )


# -- tails ------------------------------------------------------------------------


@pytest.mark.catalog("PRE-03")
def test_markov() -> None:
    for a in np.linspace(0.1, 12, 60):
        for rate in (0.3, 1.0, 4.0):
            assert stats.expon(scale=rate).sf(a) <= markov_bound(rate, a)
            assert stats.poisson(rate).sf(np.ceil(a) - 1) <= markov_bound(rate, a)
        # Losses that are never negative, of any sample: the share of large ones.
        hinge = objectives.value(t.Hinge(), 1, np.linspace(-9, 3, 200))
        assert np.mean(hinge >= a) <= markov_bound(hinge.mean(), a)
    assert markov_bound(0.3 * 5.0, 5.0) == pytest.approx(0.3)  # 0 or 5: it is attained
    signed = np.array([-1.0, 1.0])  # mean 0, and yet P(X ≥ 1) = ½
    assert np.mean(signed >= 1) > markov_bound(signed.mean(), 1.0)
    assert np.mean(signed >= 1) == markov_bound(signed.mean(), 1.0, low=-1.0)
    assert markov_bound(3.0, 2.0) == 1.0
    for mean, threshold, low in [(-0.1, 1, 0), (1, 0, 0), (1, 2, 3), (np.nan, 1, 0)]:
        with pytest.raises(ValueError, match="must be"):
            markov_bound(mean, threshold, low)


@pytest.mark.catalog("PRE-05")
def test_intervals_for_several_models_hold_together() -> None:
    """All pairs of counts of two models on n rows, so that every chance is exact."""
    n, delta, p = 10, 0.06, 0.5
    counts = np.arange(n + 1)
    law = stats.binom(n, p).pmf(counts)

    def missed(models: int) -> Array:
        options = {"delta": delta, "side": "upper", "models": models}
        return np.array([p not in clopper_pearson(k, n, **options) for k in counts])

    one, both = missed(1), missed(2)
    alone, each = law @ one, law @ both
    assert each <= delta / 2 < alone <= delta
    opposite = both | both[::-1]  # the second errs where the first does not: disjoint
    assert law @ opposite == pytest.approx(2 * each) and law @ opposite <= delta
    assert law @ (one | one[::-1]) > delta  # had nobody divided delta by two
    joint = np.outer(law, law)  # independent: both may be missed, and count once
    either = both[:, None] | both[None, :]
    overlap = joint[np.outer(both, both)].sum()
    assert joint[either].sum() == pytest.approx(2 * each - overlap)
    assert overlap > 0
    for models in (2, 10, 1000):
        alone = hoeffding_delta(200, 0.1)
        assert hoeffding_delta(200, 0.1, models=models) == min(1, models * alone)


@pytest.mark.catalog("PRE-06")
@pytest.mark.parametrize("n", [5, 20, 100])
@pytest.mark.parametrize("eps", [0.05, 0.1, 0.3])
def test_hoeffding(n: int, eps: float) -> None:
    for p in (0.05, 0.3, 0.5):  # exact tails of the mean of n coins
        mean, slack = stats.binom(n, p), 1e-9
        low = mean.cdf(np.floor(n * (p - eps) + slack))
        high = mean.sf(np.ceil(n * (p + eps) - slack) - 1)
        assert low + high <= hoeffding_delta(n, eps)
        chances = mean.pmf(np.arange(n + 1))
        for k in np.flatnonzero(chances > 0):
            interval = hoeffding_interval(np.arange(n) < k, delta=0.1)
            chances[k] *= p not in interval
        assert chances.sum() <= 0.1
    rng, (a, b) = np.random.default_rng(n), (-1.0, 3.0)
    far = np.abs(rng.uniform(a, b, (4000, n)).mean(axis=1) - 1.0) >= eps
    assert far.mean() <= hoeffding_delta(n, eps, a, b)


@pytest.mark.catalog("PRE-07")
def test_hoeffding_with_unequal_ranges() -> None:
    for n, distance in itertools.product((3, 30), (0.05, 0.2)):
        both = 2 * hoeffding_tail(distance, np.full(n, 3.0))
        assert min(1, both) == pytest.approx(hoeffding_delta(n, distance, -1, 2))
    # Two-point variables: all 2ⁿ outcomes, so the tail is exact.
    rng, n = np.random.default_rng(2), 12
    widths = rng.uniform(0.1, 3.0, n)
    signs = np.array(list(itertools.product([-0.5, 0.5], repeat=n)))
    means = signs @ widths / n
    for distance in np.linspace(0.01, means.max(), 50):
        tail = np.mean(means >= distance - 1e-12)
        with_n_for_n_squared = np.exp(-2 * n * distance**2 / np.sum(widths**2))
        assert tail <= hoeffding_tail(distance, widths) < with_n_for_n_squared
    for distance, wrong in [(-1, [1.0]), (1, []), (1, [1.0, 0.0]), (1, [[1.0]])]:
        with pytest.raises(ValueError, match=r"must|pass"):
            hoeffding_tail(distance, wrong)


# -- inequalities and algebra -----------------------------------------------------


@pytest.mark.catalog("PRE-08", "PRE-09")
@given(seed=SEEDS, p=st.sampled_from([1.0, 1.5, 2.0, 3.0, np.inf]))
def test_hoelder_is_attained_by_the_best_direction(seed: int, p: float) -> None:
    rng = np.random.default_rng(seed)
    z, other = rng.normal(size=(2, 6))
    q = {1.0: np.inf, np.inf: 1.0}.get(p, p / (p - 1) if p > 1 else np.inf)
    best = linear_maximizer(z, p)
    assert np.linalg.norm(best, p) == pytest.approx(1, rel=1e-12)
    assert best @ z == pytest.approx(np.linalg.norm(z, q), rel=1e-12)
    assert other @ z <= np.linalg.norm(other, p) * (best @ z) * (1 + 1e-12)
    if p == 2:  # Cauchy–Schwarz: equality along z alone
        np.testing.assert_allclose(best, z / np.linalg.norm(z), rtol=1e-12)
    if 1 < p < np.inf:  # ∣v∣ᵖ in proportion to ∣z∣ᵠ, signs agree; a turned one does not
        share = np.abs(best) ** p / np.abs(z) ** q
        np.testing.assert_allclose(share, share[0], rtol=1e-9)
        turned = best * [-1, 1, 1, 1, 1, 1]
        assert turned @ z < best @ z


@pytest.mark.catalog("PRE-11")
@pytest.mark.parametrize("r", [0.0, 0.5, 0.95])
def test_memory_of_momentum_is_a_geometric_sum(r: float) -> None:
    """On a slope that is the same everywhere each step is a sum of powers of r."""
    a, n = 1.5, 40
    line = Objective(lambda x: (a * x[0], np.array([a])), L=1.0)
    k = np.arange(1, n + 1)
    sums = (1 - r**k) / (1 - r)
    np.testing.assert_allclose(sums, np.cumsum(r ** (k - 1.0)), rtol=1e-12)
    options = {"max_iter": n, "tol": 0.0}
    steps = [0.0]
    for m in k:
        record = heavy_ball(line, [0.0], step=0.1, beta=r, max_iter=m, tol=0.0)
        steps.append(-record.x[0])
    np.testing.assert_allclose(np.diff(steps), 0.1 * a * sums, rtol=1e-9)
    averaged = momentum(line, [0.0], step=0.1, beta=r, **options)
    assert -averaged.x[0] == pytest.approx(0.1 * a * np.sum(1 - r**k), rel=1e-12)
    # Adam divides by 1 − βᵏ, the weight so far: a full step from the first on.
    corrected = adam(line, [0.0], step=0.1, beta1=r, epsilon=0.0, **options)
    assert -corrected.x[0] == pytest.approx(0.1 * n, rel=1e-12)


@pytest.mark.catalog("PRE-12")
def test_the_logistic_loss_is_almost_its_first_term_far_out() -> None:
    x = 10.0 ** -np.arange(2, 10)
    value = objectives.value(t.Logistic(), 1, -np.log(x))  # log(1 + x)
    np.testing.assert_allclose((x - value) / (x**2 / 2), 1.0, atol=0.01)


@pytest.mark.catalog("PRE-12")
@pytest.mark.parametrize(
    ("loss", "kink"),
    [
        *[(t.Hinge(), 1.0), (t.Logistic(), 0.0), (t.SquaredHinge(), 1.0)],
        *[(t.Absolute(), 1.0), (t.Quantile(0.2), 1.0), (t.Tukey(1.2), 2.2)],
    ],
)
def test_slopes_integrate_by_parts_with_values(loss, kink: float) -> None:
    """∫ ℓ'g = [ℓg] − ∫ ℓg', also across kinks, where there is no derivative."""

    def value(z: float) -> float:
        return float(objectives.value(loss, 1, z))

    def slope(z: float) -> float:
        return float(objectives.gradient(loss, 1, z))

    a, b = -1.0, 3.0
    left = quad(lambda z: slope(z) * np.cos(z), a, b, points=[kink])[0]
    right = value(b) * np.cos(b) - value(a) * np.cos(a)
    right += quad(lambda z: value(z) * np.sin(z), a, b, points=[kink])[0]
    assert left == pytest.approx(right, abs=1e-7)


@pytest.mark.catalog("PRE-12")
def test_the_square_of_a_sum_is_a_quadratic_kernel() -> None:
    a, ones = np.random.default_rng(5).normal(size=(1, 9)), np.ones((1, 9))
    kernel = t.Polynomial(2, coef0=0.0)
    assert gram(kernel, a, ones)[0, 0] == pytest.approx(a.sum() ** 2, rel=1e-12)
    # Its features hold each product of a pair once, √2 times as large: hence the 2.
    found, of_ones = feature_map(kernel, a)[0], feature_map(kernel, ones)[0]
    pairs = sum(a[0, i] * a[0, j] for i, j in itertools.combinations(range(9), 2))
    assert found @ of_ones == pytest.approx(np.sum(a**2) + 2 * pairs, rel=1e-12)
    assert len(found) == 9 + comb(9, 2)
    np.testing.assert_allclose(np.sort(of_ones**2), [1.0] * 9 + [2.0] * 36)


@pytest.mark.catalog("PRE-13")
@pytest.mark.parametrize("seed", range(3))
def test_densities_change_by_determinants(seed: int) -> None:
    """Rows mapped by A have the log-density less log ∣det A∣."""
    rng, d = np.random.default_rng(seed), 3
    X = rng.normal(size=(50, d)) + 2
    A, B = rng.normal(size=(2, d, d)) + 2 * np.eye(d)

    def shift(*maps: Array) -> float:
        moved = X
        for M in maps:
            moved = moved @ M
        before, after = (
            GaussianMixture(reg_covar=0.0).fit(Z).score_samples(Z) for Z in (X, moved)
        )
        np.testing.assert_allclose(before - after, (before - after)[0], atol=1e-9)
        return float((before - after)[0])

    a, b = shift(A), shift(B)
    assert a == pytest.approx(np.linalg.slogdet(A)[1], abs=1e-9)
    assert shift(A, B) == pytest.approx(a + b, abs=1e-9)
    assert shift(A.T) == pytest.approx(a, abs=1e-9)
    assert shift(np.linalg.inv(A)) == pytest.approx(-a, abs=1e-9)


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
