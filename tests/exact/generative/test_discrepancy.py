"""MMD²: closed forms, the unbiased mean, blocks, and the level of the test."""

from __future__ import annotations

import math

import numpy as np
import pytest

from certus.generative import discrepancy, mmd, mmd_test


def gaussian_mmd(shift: float, h: float, d: int) -> float:
    """MMD² of N(0, I) and N(shift·e₁, I): E k is that of N(·, 2I) convolved with k."""
    same = (h * h / (h * h + 2)) ** (d / 2)
    return 2 * same * (1 - math.exp(-(shift**2) / (2 * (h * h + 2))))


@pytest.mark.catalog("GEN-21")
def test_the_estimate_is_the_closed_form_for_gaussians() -> None:
    rng, d, h, shift = np.random.default_rng(0), 2, 1.3, 1.0
    found = []
    for _ in range(200):
        X, Y = rng.normal(size=(40, d)), rng.normal(size=(50, d))
        Y[:, 0] += shift
        found.append(mmd(X, Y, bandwidth=h))
    error = np.std(found) / math.sqrt(len(found))
    assert abs(np.mean(found) - gaussian_mmd(shift, h, d)) < 4 * error
    assert error < 0.01


@pytest.mark.catalog("GEN-21")
def test_the_unbiased_estimate_has_mean_zero_for_equal_distributions() -> None:
    rng = np.random.default_rng(1)
    pairs = [(rng.normal(size=(15, 1)), rng.normal(size=(20, 1))) for _ in range(400)]
    found = np.array([mmd(X, Y, bandwidth=1.0) for X, Y in pairs])
    biased = np.array([mmd(X, Y, bandwidth=1.0, biased=True) for X, Y in pairs])
    assert abs(found.mean()) < 4 * found.std() / 20
    assert (found < 0).any() and (biased >= 0).all() and biased.mean() > 0.02


def test_sums_are_those_over_all_pairs(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(2)
    X, Y = rng.normal(size=(7, 3)), rng.normal(0.5, 2.0, size=(5, 3))

    def mean_kernel(A, B, same):
        K = np.array(
            [[math.exp(-np.sum((a - b) ** 2) / (2 * 0.7**2)) for b in B] for a in A]
        )
        return (K.sum() - np.trace(K)) / (K.size - len(K)) if same else K.mean()

    direct = mean_kernel(X, X, True) + mean_kernel(Y, Y, True)
    direct -= 2 * mean_kernel(X, Y, False)
    assert mmd(X, Y, bandwidth=0.7) == pytest.approx(direct, rel=1e-12)
    monkeypatch.setattr(discrepancy, "BLOCK", 30)  # two or three rows at a time
    assert mmd(X, Y, bandwidth=0.7) == pytest.approx(direct, rel=1e-12)


def test_the_discrepancy_does_not_change_with_a_shift_of_all_rows() -> None:
    rng = np.random.default_rng(3)
    X, Y = rng.normal(size=(30, 2)), rng.normal(size=(30, 2))
    near, far = mmd(X, Y), mmd(X + 1e6, Y + 1e6)
    assert near == pytest.approx(far, abs=1e-8)


@pytest.mark.catalog("GEN-21")
def test_the_level_and_the_power_of_the_permutation_test() -> None:
    rng, p_values = np.random.default_rng(4), []
    for _ in range(200):
        X, Y = rng.normal(size=(12, 2)), rng.normal(size=(9, 2))
        p_values.append(mmd_test(X, Y, n_permutations=19, random_state=rng).pvalue)
    # P(p ≤ 0.1) = 0.1 for continuous rows; 200 draws are within 0.1 ± 0.07.
    assert 0.03 < np.mean(np.array(p_values) <= 0.1) < 0.17
    X, Y = rng.normal(size=(60, 2)), rng.normal(0.8, size=(60, 2))
    found = mmd_test(X, Y, random_state=0)
    assert found.pvalue == 1 / 200 and found.statistic > 0
    assert found == mmd_test(X, Y, random_state=0)
    assert found.statistic == pytest.approx(mmd(X, Y, bandwidth=found.bandwidth))


def test_equal_rows_give_no_evidence() -> None:
    assert mmd_test(np.ones((8, 2)), np.ones((5, 2)), random_state=0).pvalue == 1.0
