"""Noise-contrastive estimation recovers densities with their normaliser."""

import numpy as np
import pytest
from scipy.optimize import approx_fprime

from certus.certificate import Status
from certus.text import noise_contrastive
from certus.text.contrastive import _loss, _stack


def expected_rows(p, q, n, m):
    """Rows repeated as often as expected: the objective in the limit of many rows."""
    eye = np.eye(len(p))
    x = np.repeat(np.arange(len(p)), np.round(n * p).astype(int))
    y = np.repeat(np.arange(len(q)), np.round(m * q).astype(int))
    return eye[x], eye[y], np.log(q)[x], np.log(q)[y]


@pytest.mark.catalog("TXT-08")
@pytest.mark.parametrize("ratio", [1, 5])
def test_exact_log_density_of_a_discrete_distribution(ratio):
    p = np.array([0.5, 0.25, 0.125, 0.1, 0.025])
    q = np.array([0.1, 0.2, 0.3, 0.2, 0.2])
    rows = expected_rows(p, q, 1000, ratio * 1000)
    found = noise_contrastive(*rows, fit_normaliser=False)
    assert found.status is Status.SOLVED
    assert found.coef == pytest.approx(np.log(p), abs=1e-7)
    assert np.exp(found.log_density(np.eye(5))).sum() == pytest.approx(1, abs=1e-7)


@pytest.mark.catalog("TXT-08")
def test_the_normaliser_is_a_parameter():
    # p(x) ∝ exp(θ·x) on 0 … 9; nobody sums over the ten values.
    values = np.arange(10.0)
    weights = np.exp(-0.3 * values)
    p = weights / weights.sum()
    n = 10**6
    data = np.repeat(values, np.round(n * p).astype(int))[:, None]
    noise = np.repeat(values, n // 10)[:, None]
    log_q = np.log(0.1)
    found = noise_contrastive(
        data, noise, np.full(len(data), log_q), np.full(len(noise), log_q)
    )
    assert found.coef[0] == pytest.approx(-0.3, abs=1e-4)
    assert found.log_normaliser == pytest.approx(np.log(weights.sum()), abs=1e-4)
    # L rounds by more than its last steps lower it; the gradient tells that they do.
    assert found.status is Status.SOLVED
    assert found.n_iter < 20


@pytest.mark.catalog("TXT-08")
def test_a_gaussian_with_its_normaliser_from_samples():
    rng = np.random.default_rng(0)
    x, y = rng.normal(1, 0.5, 40_000), 2 * rng.standard_normal(400_000)

    def features(v):
        return np.column_stack([v, v * v])

    def log_q(v):
        return -v * v / 8 - np.log(2 * np.sqrt(2 * np.pi))

    found = noise_contrastive(features(x), features(y), log_q(x), log_q(y))
    grid = np.linspace(-0.5, 2.5, 7)
    truth = -((grid - 1) ** 2) / 0.5 - np.log(0.5 * np.sqrt(2 * np.pi))
    assert found.log_density(features(grid)) == pytest.approx(truth, abs=0.06)


def test_gradient_by_finite_differences():
    rng = np.random.default_rng(1)
    parts = _stack(
        rng.normal(size=(9, 3)),
        rng.normal(size=(20, 3)),
        rng.normal(size=9),
        rng.normal(size=20),
        True,
    )
    w = rng.normal(size=4)
    value, gradient, curvature = _loss(*parts, w)
    assert gradient == pytest.approx(
        approx_fprime(w, lambda v: _loss(*parts, v)[0], 1e-7), abs=1e-5
    )
    A = parts[0]
    H = (A * curvature[:, None]).T @ A
    other = approx_fprime(w, lambda v: _loss(*parts, v)[1], 1e-7)
    assert pytest.approx(other, abs=1e-4) == H
    # The formula, spelt out: ν = 20/9 noise rows for each row of data.
    X, offset, y, _ = parts
    z = X @ w + offset
    spelt = np.logaddexp(0, -z[:9]).mean() + 20 / 9 * np.logaddexp(0, z[9:]).mean()
    assert value == pytest.approx(spelt, rel=1e-12)
    assert np.array_equal(y, [1] * 9 + [-1] * 20)


def test_separable_rows_end_without_a_minimum():
    data, noise = np.ones((5, 1)), -np.ones((5, 1))
    found = noise_contrastive(data, noise, np.zeros(5), np.zeros(5), max_iter=3)
    assert found.status is Status.MAX_ITER and np.isfinite(found.coef).all()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"data": np.ones(3)}, "data has shape"),
        ({"noise": np.ones((4, 3))}, "features"),
        ({"log_q_data": np.zeros(2)}, "log_q_data has shape"),
        ({"log_q_noise": np.array([0, 0, 0, -np.inf])}, "density wherever"),
        ({"data": np.full((3, 2), np.nan)}, "NaN"),
        ({"noise": np.ones((0, 2)), "log_q_noise": np.ones(0)}, "noise has shape"),
    ],
)
def test_hostile_input(change, message):
    good = {
        "data": np.ones((3, 2)),
        "noise": np.ones((4, 2)),
        "log_q_data": np.zeros(3),
        "log_q_noise": np.zeros(4),
    }
    with pytest.raises(ValueError, match=message):
        noise_contrastive(**{**good, **change})
