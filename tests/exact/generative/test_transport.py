"""Quantile maps and increasing triangular maps: laws, inverses, determinants."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from certus.generative import (
    QuantileMap,
    TriangularMap,
    inverse_jacobian_error,
    knothe_rosenblatt,
    push_forward,
)
from certus.generative.quantiles import bisect
from certus.mixture import GaussianMixture

LAWS = [stats.expon(), stats.norm(2, 3), stats.beta(0.5, 0.7), stats.cauchy()]


@pytest.mark.catalog("GEN-43")
@pytest.mark.parametrize("law", LAWS, ids=lambda law: law.dist.name)
def test_inverse_transform_sampling(law) -> None:
    for quantile in (QuantileMap(law.ppf), QuantileMap(cdf=law.cdf)):
        X = quantile.sample(4000, random_state=0)
        assert stats.kstest(X, law.cdf).pvalue > 0.01
    u = np.linspace(0.01, 0.99, 21)
    assert QuantileMap(cdf=law.cdf)(u) == pytest.approx(law.ppf(u), rel=1e-9)


@pytest.mark.catalog("GEN-43")
def test_inverse_transform_sampling_of_discrete_distributions() -> None:
    values, p = np.array([5.0, 1.0, 3.0]), np.array([0.2, 0.5, 0.3])
    Q = QuantileMap.discrete(values, p)
    # Q(u) is the least value with F ≥ u, so it jumps after the sums.
    found = Q([0.25, 0.5, 0.5 + 1e-9, 0.8, 0.9])
    assert found.tolist() == [1, 1, 3, 3, 5]
    drawn = Q.sample(6000, random_state=0)
    seen = [np.sum(drawn == v) for v in values]
    assert stats.chisquare(seen, 6000 * p).pvalue > 0.01
    steps = QuantileMap(cdf=lambda x: np.where(x >= 3, 1.0, np.where(x >= 1, 0.5, 0.0)))
    assert steps([0.2, 0.5, 0.6]) == pytest.approx([1, 1, 3])


def test_the_empirical_quantiles_are_the_sample() -> None:
    sample = np.random.default_rng(0).normal(size=49)
    u = (np.arange(49) + 0.5) / 49
    assert (QuantileMap.from_sample(sample)(u) == np.sort(sample)).all()
    ends = QuantileMap.from_sample(sample)(np.arange(1, 49) / 49)
    assert (ends == np.sort(sample)[:-1]).all()


@pytest.mark.catalog("GEN-22", "GEN-44")
@pytest.mark.parametrize("law", LAWS[:3], ids=lambda law: law.dist.name)
def test_noise_can_be_turned_into_any_distribution(law) -> None:
    Q = QuantileMap(law.ppf)
    z = np.random.default_rng(1).standard_normal(4000)
    x = Q.from_normal(z)
    assert stats.kstest(x, law.cdf).pvalue > 0.01
    # T never decreases, so it pairs sorted noise with sorted data: for samples that is
    # the optimal transport on the line.
    assert (np.diff(Q.from_normal(np.sort(z))) >= 0).all()
    sample = law.rvs(300, random_state=2)
    noise = np.sort(z[:300])
    uniform = stats.norm.ppf((np.arange(300) + 0.5) / 300)
    paired = QuantileMap.from_sample(sample).from_normal(uniform)
    assert (paired == np.sort(sample)).all()
    shuffled = np.random.default_rng(3).permutation(paired)
    assert np.sum((noise - paired) ** 2) < np.sum((noise - shuffled) ** 2)


@pytest.mark.catalog("GEN-22")
def test_atoms_do_not_multiply() -> None:
    rng = np.random.default_rng(0)
    points, p = np.array([-1.0, 0.0, 1.0]), np.array([0.2, 0.5, 0.3])
    for _ in range(20):
        table = rng.integers(0, 9, size=3).astype(float)
        atoms, mass = push_forward(lambda z, a=table: a[z.astype(int) + 1], points, p)
        assert len(atoms) <= 3 and mass.sum() == pytest.approx(1.0)
        assert (mass >= p.min()).all()  # an atom cannot be split
    # Atomless noise makes as many atoms as wanted.
    Q = QuantileMap.discrete(np.arange(50), np.full(50, 0.02))
    assert len(np.unique(Q.from_normal(rng.standard_normal(5000)))) == 50


@pytest.mark.catalog("GEN-36")
@pytest.mark.parametrize("power", [-12, -3, 0, 3, 12])
def test_bisection_is_exact_to_rounding(power: int) -> None:
    x = np.random.default_rng(0).normal(size=50) * 10.0**power
    assert bisect(lambda t: t**3, x**3) == pytest.approx(x, rel=1e-14)
    assert bisect(np.sinh, np.sinh(np.clip(x, -300, 300))) == pytest.approx(
        np.clip(x, -300, 300), rel=1e-13
    )


#: ∂T_j/∂z_j > 0 for all z.
COMPONENTS = [
    lambda before, z: z**3 + 0.5 * z - 1.0,
    lambda before, z: np.sin(before[:, 0]) + np.exp(0.3 * before[:, 0]) * np.sinh(z),
    lambda before, z: before[:, 0] * before[:, 1] + np.log1p(np.exp(z)) + 0.1 * z,
]
DERIVATIVES = [
    lambda before, z: 3 * z**2 + 0.5,
    lambda before, z: np.exp(0.3 * before[:, 0]) * np.cosh(z),
    lambda before, z: 1 / (1 + np.exp(-z)) + 0.1,
]


@pytest.fixture
def Z() -> np.ndarray:
    return np.random.default_rng(0).normal(size=(40, 3))


@pytest.mark.catalog("GEN-35")
def test_the_jacobian_is_triangular_and_its_determinant_a_product(Z) -> None:
    T = TriangularMap(COMPONENTS, derivatives=DERIVATIVES)
    J = T.jacobian(Z)
    assert (J[:, *np.triu_indices(3, 1)] == 0).all()
    signs, logs = np.linalg.slogdet(J)
    assert (signs == 1).all()
    assert T.log_det(Z) == pytest.approx(logs, abs=1e-8)
    # Without derivatives, by differences.
    assert TriangularMap(COMPONENTS).log_det(Z) == pytest.approx(logs, abs=1e-8)
    # The other way round.
    S = TriangularMap(COMPONENTS, derivatives=DERIVATIVES, inverted=True)
    X = T.transform(Z)
    assert S.log_det(X) == pytest.approx(-logs, abs=1e-8)
    assert S.transform(X) == pytest.approx(Z, rel=1e-10, abs=1e-12)


@pytest.mark.catalog("GEN-36")
def test_triangular_maps_are_inverted_column_by_column(Z) -> None:
    T = TriangularMap(COMPONENTS)
    X = T.transform(Z)
    assert T.inverse(X) == pytest.approx(Z, rel=1e-10, abs=1e-12)
    assert T.transform(T.inverse(X)) == pytest.approx(X, rel=1e-12, abs=1e-12)
    far = T.transform(100 * Z[:, :1] * np.ones(3))
    assert T.transform(T.inverse(far)) == pytest.approx(far, rel=1e-12, abs=1e-9)


@pytest.mark.catalog("GEN-29")
def test_jacobians_of_a_map_and_its_inverse_are_inverse(Z) -> None:
    T = TriangularMap(COMPONENTS)
    assert inverse_jacobian_error(T.transform, T.inverse, T.transform(Z)) < 1e-6
    # A wrong inverse is noticed.
    assert inverse_jacobian_error(T.transform, lambda x: x, T.transform(Z)) > 0.1


COVARIANCE = np.array([[2.0, 0.6, -0.4], [0.6, 1.5, 0.5], [-0.4, 0.5, 1.0]])
MEAN = np.array([1.0, -2.0, 0.5])


@pytest.mark.catalog("GEN-37")
def test_the_map_of_a_gaussian_is_its_cholesky_factor(Z) -> None:
    T = knothe_rosenblatt(MEAN, COVARIANCE)
    L = np.linalg.cholesky(COVARIANCE)
    assert T.transform(Z) == pytest.approx(MEAN + Z @ L.T, rel=1e-14)
    X = stats.multivariate_normal(MEAN, COVARIANCE)
    rows = X.rvs(50, random_state=0)
    assert T.log_density(rows) == pytest.approx(X.logpdf(rows), rel=1e-12)
    # Conditional quantiles give the same map: there is only one.
    other = knothe_rosenblatt([MEAN] * 2, [COVARIANCE] * 2, weights=[0.3, 0.7])
    assert other.transform(Z) == pytest.approx(T.transform(Z), abs=1e-9)


MIXTURE = {
    "mean": [[-2.0, 0.0], [1.5, 1.0], [2.0, -3.0]],
    "covariance": [
        [[0.5, 0.3], [0.3, 0.6]],
        [[1.0, -0.5], [-0.5, 0.8]],
        [[0.2, 0.0], [0.0, 0.3]],
    ],
    "weights": [0.5, 0.2, 0.3],
}


@pytest.mark.catalog("GEN-37")
def test_two_descriptions_of_one_mixture_have_one_map() -> None:
    Z = np.random.default_rng(1).normal(size=(30, 2))
    T = knothe_rosenblatt(**MIXTURE)
    order = [2, 0, 1, 1]  # components in another order, one of them split
    other = knothe_rosenblatt(
        np.array(MIXTURE["mean"])[order],
        np.array(MIXTURE["covariance"])[order],
        weights=[0.3, 0.5, 0.15, 0.05],
    )
    assert other.transform(Z) == pytest.approx(T.transform(Z), abs=1e-9)
    # In the other order of the columns the map is another one.
    swapped = knothe_rosenblatt(
        np.array(MIXTURE["mean"])[:, ::-1],
        np.array(MIXTURE["covariance"])[:, ::-1, ::-1],
        weights=MIXTURE["weights"],
    )
    moved = swapped.transform(Z[:, ::-1])[:, ::-1]
    assert np.abs(moved - T.transform(Z)).max() > 0.1


@pytest.mark.catalog("GEN-38")
def test_conditional_quantiles_give_the_likelihood_both_ways() -> None:
    T = knothe_rosenblatt(**MIXTURE)
    X = T.sample(1500, random_state=0)
    truth = sum(
        w * stats.multivariate_normal(m, C).pdf(X) for m, C, w in zip(*MIXTURE.values())
    )
    assert T.log_density(X) == pytest.approx(np.log(truth), abs=1e-9)
    Z = T.inverse(X)
    by_noise = stats.norm.logpdf(Z).sum(axis=1) - T.log_det(Z)
    assert by_noise == pytest.approx(np.log(truth), abs=1e-7)
    # Samples have the moments of the mixture.
    w, m = np.array(MIXTURE["weights"]), np.array(MIXTURE["mean"])
    assert X.mean(axis=0) == pytest.approx(w @ m, abs=0.15)
    spread = np.sqrt(np.diagonal(MIXTURE["covariance"], axis1=1, axis2=2))
    for j in range(2):  # each column is a mixture on the line
        columns = stats.norm(m[:, j], spread[:, j])
        law = stats.kstest(X[:, j], lambda x, law=columns: law.cdf(x[:, None]) @ w)
        assert law.pvalue > 1e-3


@pytest.mark.catalog("GEN-38")
def test_the_map_of_a_fitted_mixture_has_its_likelihood() -> None:
    rng = np.random.default_rng(0)
    X = np.concatenate([rng.normal(-2, 1, (150, 3)), rng.normal(2, 0.5, (150, 3))])
    model = GaussianMixture(2, random_state=0, tol=1e-6, max_iter=500).fit(X)
    T = knothe_rosenblatt(model.means_, model.covariances_, weights=model.weights_)
    assert T.log_density(X) == pytest.approx(model.score_samples(X), abs=1e-8)
    assert T.transform(T.inverse(X)) == pytest.approx(X, abs=1e-8)


def test_tails_keep_their_digits() -> None:
    T = knothe_rosenblatt([[0.0], [50.0]], [[[1.0]], [[4.0]]], weights=[0.5, 0.5])
    X = np.array([[-30.0], [130.0]])
    Z = T.inverse(X)
    # Far out, only one component of weight ½ counts.
    assert stats.norm.logcdf(Z[0, 0]) == pytest.approx(
        math.log(0.5) + stats.norm.logcdf(-30), rel=1e-12
    )
    assert stats.norm.logsf(Z[1, 0]) == pytest.approx(
        math.log(0.5) + stats.norm.logsf(40), rel=1e-12
    )
    assert T.transform(Z) == pytest.approx(X, rel=1e-12)
