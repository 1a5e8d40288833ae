"""Bounds on rounding in k-means, mixtures, factors and components, against more digits.

Each number is computed again in extended precision; bounds must cover the difference.
"""

import math

import numpy as np
import pytest
from scipy import sparse

import certus
from certus.mixture import GaussianMixture
from certus.verify import gaussian_factors, gaussian_step, kmeans, moments
from certus.verify.covariance import covariance_about

LONG = np.longdouble
pytestmark = pytest.mark.skipif(
    np.finfo(LONG).eps > 1e-18, reason="no extended precision on this machine"
)
SEEDS = pytest.mark.parametrize("seed", range(6))
SHIFTS = pytest.mark.parametrize("shift", [0.0, 1e3, 1e7])


def rows(seed, shift, n=200, d=4):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d)) @ rng.normal(size=(d, d)) * rng.uniform(0.1, 10, d)
    return rng, X + 5 * rng.integers(0, 3, (n, 1)) + shift


@SEEDS
@SHIFTS
def test_moves_and_inertia_of_clusters(seed, shift):
    rng, X = rows(seed, shift)
    s = rng.uniform(0, 2, len(X))
    centers = X[:3] + 0.1
    found = kmeans._look(X, s, centers, None)
    Z, c, w = X.astype(LONG), centers.astype(LONG), s.astype(LONG)
    for k in range(3):
        mine = found.labels == k
        move = (w[mine, None] * (Z[mine] - c[k])).sum(axis=0) / w[mine].sum()
        gap = np.linalg.norm((move - found.moves[k]).astype(float))
        assert gap <= found.errors[k]
    own = (w * np.square(Z - c[found.labels]).sum(axis=1)).sum()
    assert abs(float(own - found.own.value)) <= found.own.rounding


@SEEDS
@SHIFTS
@pytest.mark.parametrize("matrix", [True, False])
def test_likelihoods_of_mixtures(seed, shift, matrix):
    rng, X = rows(seed, shift)
    roots = np.triu(rng.uniform(-1, 1, size=(3, 4, 4))) + 2 * np.eye(4)
    roots = roots if matrix else np.abs(roots[:, 0]) + 0.1
    theta = gaussian_step.Theta(np.array([0.2, 0.3, 0.5]), X[:3], roots)
    found = gaussian_step.level_of(X, theta, False)
    joint = []
    for weight, mean, root in zip(*theta):
        away = X.astype(LONG) - mean.astype(LONG)
        y = away @ root.astype(LONG) if matrix else away * root.astype(LONG)
        diagonal = np.diag(root) if matrix else root
        logs = np.log(diagonal.astype(LONG)).sum() - 2 * np.log(2 * LONG(np.pi))
        joint.append(np.log(LONG(weight)) + logs - np.square(y).sum(axis=1) / 2)
    top = np.max(joint, axis=0)
    level = (top + np.log(np.exp(np.array(joint) - top).sum(axis=0))).mean()
    # π itself is off by a rounding here.
    assert abs(float(level - found.value)) <= found.rounding + 1e-15


@SEEDS
@SHIFTS
def test_the_gain_of_a_step_is_stated_for_the_point_it_reaches(seed, shift):
    # An exact step leads a little beside it: the claim says which one is meant.
    _, X = rows(seed, shift)
    model = GaussianMixture(2, random_state=seed, tol=1e-2, reg_covar=0.0).fit(X)
    claim = certus.certify(model, X)["step_gain"]
    assert "the result of an EM step in float64" in claim.theorem
    here = gaussian_step.Theta(model.weights_, model.means_, model.precisions_cholesky_)
    there = gaussian_step.take_step(X, here, "full", 0.0, False)[1]
    gain = abs(float(level_in_long(X, there) - level_in_long(X, here)))
    assert abs(gain - (claim.value - claim.allowance)) <= claim.allowance + 1e-15


def level_in_long(X, theta):
    joint = []
    for weight, mean, root in zip(*theta):
        y = (X.astype(LONG) - mean.astype(LONG)) @ root.astype(LONG)
        logs = np.log(np.diag(root).astype(LONG)).sum() - 2 * np.log(2 * LONG(np.pi))
        joint.append(np.log(LONG(weight)) + logs - np.square(y).sum(axis=1) / 2)
    top = np.max(joint, axis=0)
    return (top + np.log(np.exp(np.array(joint) - top).sum(axis=0))).mean()


@SEEDS
@pytest.mark.parametrize("noise", [1.0, 1e-4, 1e-8])
def test_likelihoods_of_factors(seed, noise):
    rng, X = rows(seed, 1e3)
    point = gaussian_factors.Factors(rng.normal(size=(4, 2)), np.full(4, noise))
    spread, _ = covariance_about(X, X.mean(axis=0))
    found = gaussian_factors.log_likelihood(spread, point)
    A = X.astype(LONG) - X.mean(axis=0).astype(LONG)
    S, W = A.T @ A / LONG(len(X)), point.W.astype(LONG)
    M = np.eye(2, dtype=LONG) * LONG(noise) + W.T @ W
    (a, b), (_, c) = M
    inverse = np.array([[c, -b], [-b, a]]) / (a * c - b * b)
    log = np.log(a * c - b * b) + 2 * np.log(LONG(noise))
    trace = (np.trace(S) - np.trace(inverse @ (W.T @ S @ W))) / LONG(noise)
    assert abs(float(-(log + trace) / 2 - found.value)) <= found.rounding


@SEEDS
@SHIFTS
@pytest.mark.parametrize("whole", [True, False])
def test_products_of_components(seed, shift, whole):
    rng, X = rows(seed, shift, d=6)
    V = np.linalg.qr(rng.normal(size=(6, 2)))[0].T
    near = X.mean(axis=0) + 0.01
    again = moments.RecomputedBlocks()
    given = moments.Data(X, V, np.ones(2), True, near, 1.0, 2e-16, again)
    found = moments.moments(given, V, whole)
    A = X.astype(LONG) - X.astype(LONG).mean(axis=0)
    exact = (A @ V.T.astype(LONG)).T @ A
    gaps = np.linalg.norm((exact - found.products).astype(float), axis=1)
    sizes = np.sqrt(np.einsum("kd,kd->k", V, exact.astype(float)))
    assert np.all(gaps <= found.loose + found.each * sizes)
    assert abs(float((A * A).sum() - found.squares)) <= found.wide


@pytest.mark.parametrize("thin", [False, True])
@pytest.mark.parametrize("sign", [-1, 1])
def test_squares_may_be_added_up_in_any_order(sign, thin, monkeypatch):
    """As far off as √c runs of √c additions allow: a processor may come to that."""
    X = np.random.default_rng(0).normal(size=(4_000, 6))
    V, given = np.eye(6)[:2], sparse.csr_array(X) if thin else X
    plain = moments._sum_of_squares

    def worst(values):
        return plain(values) * (1 + sign * 2 * math.isqrt(values.size) * 2.0**-53)

    monkeypatch.setattr(moments, "_sum_of_squares", worst)
    zero = np.zeros(6)
    again = moments.RecomputedBlocks()
    data = moments.Data(given, V, zero, False, zero, 1.0, 2e-16, again)
    found = moments.moments(data, V)
    exact = float((X.astype(LONG) ** 2).sum())
    assert abs(exact - found.squares) > found.loose  # what products alone may be off
    assert abs(exact - found.squares) <= found.wide
