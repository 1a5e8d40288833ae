"""Losses, ranks and retrieval of vectors: known values, identities, derivatives."""

import numpy as np
import pytest
import torch

from certus.representation import effective_rank, nt_xent, retrieval
from certus.representation import joint_losses as trained
from certus.verify import joint_losses as stated

RNG = np.random.default_rng(0)
A, B = RNG.normal(size=(2, 9, 5))


@pytest.mark.catalog("SSL-08")
@pytest.mark.parametrize("n", [2, 7, 1030])
def test_equal_vectors_have_the_loss_log_2n_minus_1(n):
    constant = np.full((n, 3), 4.0)
    assert nt_xent(constant, constant) == pytest.approx(np.log(2 * n - 1), rel=1e-12)


@pytest.mark.catalog("SSL-08")
def test_the_loss_is_that_of_its_definition_and_symmetric_in_the_pair():
    Z = np.vstack([A, B])
    U = Z / np.linalg.norm(Z, axis=1, keepdims=True)
    terms = []
    for i in range(18):
        partner = (i + 9) % 18
        scores = [U[i] @ U[k] / 0.3 for k in range(18)]
        below = sum(np.exp(s) for k, s in enumerate(scores) if k != i)
        terms.append(-np.log(np.exp(scores[partner]) / below))
    assert nt_xent(A, B, temperature=0.3) == pytest.approx(np.mean(terms), rel=1e-12)
    assert nt_xent(B, A) == pytest.approx(nt_xent(A, B), rel=1e-12)


@pytest.mark.catalog("SSL-08")
def test_the_trained_loss_has_the_gradient_of_this_one():
    a, b = (torch.tensor(Z, requires_grad=True) for Z in (A, B))
    loss = trained.nt_xent(a, b, 0.3)
    loss.backward()
    assert loss.item() == pytest.approx(nt_xent(A, B, temperature=0.3), rel=1e-12)
    for i, j in ((0, 0), (4, 2), (8, 4)):
        step = np.zeros_like(A)
        step[i, j] = 1e-6
        sides = [nt_xent(A + s * step, B, temperature=0.3) for s in (1, -1)]
        slope = (sides[0] - sides[1]) / 2e-6
        assert a.grad[i, j].item() == pytest.approx(slope, abs=1e-8)


@pytest.mark.catalog("SSL-10")
def test_cosines_with_a_temperature_ignore_lengths_and_are_bounded():
    lengths = np.exp(RNG.normal(size=(9, 1)) * 3)
    assert nt_xent(A * lengths, B) == pytest.approx(nt_xent(A, B), rel=1e-10)
    # Scores lie in [−1/τ, 1/τ]: the loss in what the best and worst of them give.
    for tau in (0.1, 1.0):
        least = np.log1p(16 * np.exp(-2 / tau))
        most = np.log1p(16 * np.exp(2 / tau))
        for first, second in ((A, A), (A, -A), (A, B)):
            assert least <= nt_xent(first, second, temperature=tau) <= most
    # With a low temperature only the nearest vector counts.
    near = A + 1e-3 * B
    assert nt_xent(A, near, temperature=0.01) < 1e-3 < nt_xent(A, near, temperature=1)


@pytest.mark.parametrize("method", ["simclr", "barlow", "vicreg"])
def test_both_sides_compute_the_same_loss(method):
    a, b = torch.tensor(A), torch.tensor(B)
    found = trained.of_views(method, a, b, 0.3).item()
    assert found == pytest.approx(stated.LOSSES[method].value(A, B, 0.3), rel=1e-10)


def test_both_sides_compute_the_same_alignment_and_match():
    a, b = torch.tensor(A), torch.tensor(B)
    found = trained.alignment(a, b).item()
    assert found == pytest.approx(stated.aligned(A, B, 0.0), rel=1e-10)
    found = trained.matched(a, b, 1 / 0.3, None).item()
    assert found == pytest.approx(stated.both_ways(A, B, 0.3), rel=1e-10)
    # Rows with equal partners share the target: here all have the same one.
    same, one = torch.ones(9, 9, dtype=torch.bool), torch.ones(9, 5)
    assert trained.matched(one, one, 3.0, same).item() == (pytest.approx(np.log(9)))


@pytest.mark.parametrize("method", sorted(stated.LOSSES))
def test_the_trivial_value_is_that_of_vectors_that_say_nothing(method):
    row, n = stated.LOSSES[method], 12
    constant = np.tile(RNG.normal(size=4), (n, 1))
    apart = constant.copy()
    if method == "byol":  # where a constant is perfect, and unrelated vectors have 2
        assert row.value(constant, apart, 0.2) == pytest.approx(0.0, abs=1e-12)
        apart = np.tile([-constant[0, 1], constant[0, 0], 0, 0], (n, 1))
        constant = constant * [1, 1, 0, 0]
    assert row.value(constant, apart, 0.2) == pytest.approx(row.trivial(n), rel=1e-6)


def test_the_effective_rank_counts_directions():
    Q = np.linalg.qr(RNG.normal(size=(40, 40)))[0]
    for rank in (1, 3, 7):
        # Rows ±qₖ have mean zero and equal singular values.
        Z = np.vstack([Q[:rank], -Q[:rank]]) * 5.0 + RNG.normal(size=40)
        assert effective_rank(Z) == pytest.approx(rank, rel=1e-8)
    assert effective_rank(np.full((6, 3), 0.1)) == 0.0
    assert effective_rank(np.zeros((6, 3))) == 0.0
    assert effective_rank(A * 1e200) == pytest.approx(effective_rank(A), rel=1e-12)


def test_retrieval_counts_equal_candidates_against_the_partner():
    found = retrieval(A, A)
    assert found.recall == 1.0 and found.interval is None
    collapsed = np.ones((9, 5))
    assert retrieval(collapsed, collapsed).recall == 0.0
    assert retrieval(collapsed, collapsed, k=9).recall == 1.0
    shuffled = np.roll(np.arange(9), 1)
    found = retrieval(A, A[shuffled], matches=np.argsort(shuffled))
    assert found.recall == 1.0 and found.chance == pytest.approx(1 / 9)
    low, high = found.interval
    assert low == pytest.approx(0.025 ** (1 / 9), rel=1e-6) and high == 1.0


def test_retrieval_agrees_with_sorting():
    matches = RNG.integers(9, size=40)
    Q = B[matches] + RNG.normal(size=(40, 5))
    found = retrieval(Q, B, matches=matches, k=2)
    cosines = (Q / np.linalg.norm(Q, axis=1, keepdims=True)) @ (
        B / np.linalg.norm(B, axis=1, keepdims=True)
    ).T
    nearest = np.argsort(-cosines, axis=1)[:, :2]
    assert found.recall == (nearest == matches[:, None]).any(axis=1).mean()


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda: nt_xent(A, B[:3]), "same shape"),
        (lambda: nt_xent(A[:1], B[:1]), "at least 2 rows"),
        (lambda: nt_xent(A[0], B[0]), "must be a matrix"),
        (lambda: nt_xent(A * np.nan, B), "finite"),
        (lambda: nt_xent(A, B, temperature=0), "temperature"),
        (lambda: effective_rank(np.zeros((0, 3))), "at least 1 row"),
        (lambda: retrieval(A, B[:4]), "Pass matches"),
        (lambda: retrieval(A, B[:, :2]), "columns"),
        (lambda: retrieval(A, B, matches=np.full(9, 9)), "from 0 to 8"),
        (lambda: retrieval(A, B, matches=np.zeros(9)), "whole numbers"),
    ],
)
def test_wrong_vectors_are_refused_with_a_message(call, text):
    with pytest.raises(ValueError, match=text):
        call()
