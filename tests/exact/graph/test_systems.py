"""Systems of label propagation in two precisions, and the kernel of the verifier."""

from fractions import Fraction

import mpmath
import numpy as np
import pytest
from scipy.spatial.distance import cdist

from certus.certificate import Status
from certus.semi_supervised import LabelPropagation, LabelSpreading, systems
from certus.verify import graphs
from certus.verify.graphs import CANCELS, _exponents, _of_kernel

RNG = np.random.default_rng(0)


@pytest.mark.parametrize("offset", [0.0, 3e5])
@pytest.mark.parametrize("width", [0.3, 1e9])
def test_exponents_are_within_the_error_stated(offset, width):
    rows = RNG.normal(size=(6, 5)) + offset
    exponents, slip = _exponents(rows, width)
    found = exponents(0, 6)
    np.testing.assert_allclose(exponents(2, 4), found[2:4, 2:], rtol=0, atol=2 * slip)
    small = width == 0.3
    assert slip < CANCELS
    for i in range(6):
        for j in range(6):
            pairs = zip(rows[i].tolist(), rows[j].tolist())
            true = -Fraction(width) * sum(
                ((Fraction(a) - Fraction(b)) ** 2 for a, b in pairs), Fraction(0)
            )
            # By differences, the error is a share of the exponent, up to 746.
            whole = 1.0 if small else max(1.0, abs(float(true)) / 746)
            assert abs(float(true - Fraction(float(found[i, j])))) <= slip * whole


@pytest.mark.parametrize("together", [7, 256])
def test_products_with_a_kernel_are_within_the_share_stated(together, monkeypatch):
    monkeypatch.setattr(graphs, "TOGETHER", together)
    rows, V = RNG.normal(size=(40, 3)) + 50.0, RNG.random((40, 2))
    W = _of_kernel(rows, 2.0)
    with mpmath.workdps(40):
        for i in range(0, 40, 8):
            line = [
                mpmath.exp(-2 * sum((mpmath.mpf(a) - b) ** 2 for a, b in zip(x, z)))
                for x, z in ((rows[i].tolist(), row.tolist()) for row in rows)
            ]
            line[i] = mpmath.mpf(0)
            total = sum(line)
            assert abs(total - W.rows[i]) <= W.share * total
            for k in range(2):
                true = sum(w * v for w, v in zip(line, V[:, k].tolist()))
                assert abs(true - W.times(V)[i, k]) <= W.share * true


@pytest.mark.parametrize(("offset", "gamma"), [(0.0, 0.5), (1e7, 0.5), (0.0, 1e8)])
def test_weights_of_rows_are_those_of_their_distances(offset, gamma):
    rows = RNG.normal(size=(30, 4)) / np.sqrt(gamma) + offset
    rows[7] = rows[3]
    wanted = np.exp(-gamma * cdist(rows, rows, "sqeuclidean"))
    found = systems.rbf_weights(rows, gamma)
    np.testing.assert_allclose(found, wanted, rtol=1e-11)
    assert abs(found[3, 7] - 1) < 1e-14


def chained(weight):
    """Two groups that one weak edge joins; only the first has labels."""
    W = np.zeros((40, 40))
    W[:20, :20] = W[20:, 20:] = 1.0
    W[19, 20] = W[20, 19] = weight
    return W, np.where(np.arange(40) < 2, np.arange(40), -1)


@pytest.mark.parametrize("weight", [1.0, 1e-2, 1e-8])
def test_a_factor_in_float32_is_refined_or_replaced(weight):
    W, codes = chained(weight)
    system = systems.System(*_scaled_parts(W, codes), True, 1.0)
    B = np.ones((38, 1)) * np.sqrt(W.sum(axis=1)[2:, None] - 1)
    _, left = systems._refined(system, B, np.float32)
    assert (left <= systems.ENOUGH) == (weight > 1e-6)
    Z = systems._by_factor(system, B)
    assert Z is not None
    steps = Z[:, 0] / np.sqrt(W.sum(axis=1)[2:] - 1)
    # A walk crosses an edge after the sum of the degrees behind it, over its weight.
    behind = 20 * 19 + weight
    np.testing.assert_allclose(steps[18] - steps[17], behind / weight, rtol=1e-4)


def _scaled_parts(W, codes):
    free = codes < 0
    inner = W - np.eye(40)
    root = 1 / np.sqrt(inner.sum(axis=1)[free])
    return inner[np.ix_(free, free)], root, root


@pytest.mark.parametrize("alpha", [0.2, 0.5, 0.9])
def test_spreading_has_all_digits_in_either_precision(alpha):
    rows = RNG.normal(size=(60, 3))
    y = np.where(np.arange(60) % 6 == 0, np.arange(60) % 4 // 2, -1)
    model = LabelSpreading(gamma=0.4, alpha=alpha, max_iter=200).fit(rows, y)
    W = np.exp(-0.4 * cdist(rows, rows, "sqeuclidean")) - np.eye(60)
    root = np.sqrt(W.sum(axis=0))
    Y = np.eye(2)[np.maximum(y, 0)] * (y >= 0)[:, None]
    F = np.linalg.solve(np.eye(60) - alpha * W / root / root[:, None], Y)
    np.testing.assert_allclose(
        model.label_distributions_, F / F.sum(axis=1, keepdims=True), atol=1e-8
    )
    assert model.certificate_.met and model.certificate_.claims[0].value < 1e-7


def test_rounds_stop_when_asked_to():
    rows = RNG.normal(size=(50, 3))
    system = systems.System(
        systems.rbf_weights(rows, 1.0), *(np.full(50, 0.1) for _ in range(2)), True, 0.5
    )
    B = RNG.random((50, 2))
    found = systems._in_rounds(system, B, 3, lambda _: None)
    assert found[1:] == (3, Status.MAX_ITER)
    found = systems._in_rounds(system, B, 30, lambda _: Status.TIME_LIMIT)
    assert found[1:] == (1, Status.TIME_LIMIT)


def test_the_order_of_the_rows_does_not_matter():
    rows = RNG.normal(size=(50, 2))
    y = np.where(RNG.random(50) < 0.2, RNG.integers(3, size=50), -1)
    y[:3] = range(3)
    turn = RNG.permutation(50)
    for make in (LabelPropagation, LabelSpreading):
        one = make(gamma=1.0).fit(rows, y)
        two = make(gamma=1.0).fit(rows[turn], y[turn])
        np.testing.assert_allclose(
            one.label_distributions_[turn], two.label_distributions_, atol=1e-9
        )
