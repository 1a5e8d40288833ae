"""Sums over many blocks of rows are those over all rows at once."""

import numpy as np
import pytest
from threadpoolctl import threadpool_limits

import certus
from certus.cluster import KMeans
from certus.decomposition import PCA
from certus.fingerprints import direction
from certus.mixture import GaussianMixture
from certus.verify import gaussian_step, kmeans, moments
from certus.verify.blocks import add_up, over_blocks

rng = np.random.default_rng(0)
X = rng.normal(size=(700, 4)) + 6 * rng.integers(0, 3, (700, 1))


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("step", [1, 7, 100, 1000])
def test_blocks_come_in_order_and_add_up(threads, step):
    with threadpool_limits(threads):
        parts = list(over_blocks(lambda p: X[p], len(X), step))
        sums = add_up(over_blocks(lambda p: (X[p].sum(axis=0), 1), len(X), step))
    np.testing.assert_array_equal(np.concatenate(parts), X)
    np.testing.assert_allclose(sums[0], X.sum(axis=0), rtol=1e-12)
    assert sums[1] == -(-len(X) // step)


def test_settings_of_the_caller_hold_in_every_thread():
    with np.errstate(over="ignore"), threadpool_limits(2):
        found = list(over_blocks(lambda p: np.exp(np.full(3, 1e4)), 100, 1))
    assert len(found) == 100 and np.isinf(found).all()


def test_an_error_in_a_block_reaches_the_caller():
    def work(part):
        if part.start == 50:
            raise ValueError("here")

    with pytest.raises(ValueError, match="here"):
        list(over_blocks(work, 100, 10))


@pytest.mark.parametrize(
    ("model", "module", "name"),
    [
        (KMeans(3, random_state=0), kmeans, "CELLS"),
        (GaussianMixture(3, random_state=0), gaussian_step, "BLOCK"),
    ],
    ids=lambda value: str(value)[:12],
)
def test_the_certificate_does_not_depend_on_the_blocks(
    monkeypatch, model, module, name
):
    whole = model.fit(X).certificate_
    monkeypatch.setattr(module, name, 64)
    parts = certus.certify(model, X)
    assert whole.met and parts.met
    for a, b in zip(whole.claims, parts.claims):
        assert a.name == b.name
        found, again = a.value - a.allowance, b.value - b.allowance
        assert again == pytest.approx(found, rel=1e-9, abs=1e-12)


def test_a_pass_over_many_blocks_finds_the_moments():
    Z = np.tile(rng.normal(size=(3000, 600)), (2, 1)) + 2.0
    P = np.linalg.qr(rng.normal(size=(600, 3)))[0].T
    sums, squares, products, projected = moments._one_pass(Z, np.zeros(600), P, 700)
    np.testing.assert_allclose(sums, Z.sum(axis=0), rtol=1e-10)
    assert squares == pytest.approx(float((Z**2).sum()), rel=1e-12)
    np.testing.assert_allclose(products, P @ Z.T @ Z, rtol=1e-9, atol=1e-6)
    np.testing.assert_allclose(projected, Z @ direction(600), rtol=1e-9)
    assert PCA(3).fit(Z).certificate_.met
