"""Mixtures of Gaussians over blocks: the starts and steps of all rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sklearn.base import clone
from threadpoolctl import threadpool_limits

import certus
from certus.certificate import Status
from certus.mixture import GaussianMixture
from certus.scale import blocks
from certus.verify import gaussian_step
from certus.verify.block_rows import BlockRows

KINDS = ("full", "tied", "diag", "spherical")
NAMES = ("weights_", "means_", "covariances_", "precisions_cholesky_")


def table(n: int = 1200, far: float = 3.0, dtype: Any = float) -> Any:
    rng = np.random.default_rng(4)
    centers = 4 * rng.normal(size=(3, 4)) + far
    X = centers[rng.integers(0, 3, n)] + 1.5 * rng.normal(size=(n, 4)) * [1, 2, 0.5, 1]
    return X.astype(dtype)


def assert_same(model: Any, whole: Any, near: float = 1e-8) -> None:
    for name in NAMES:
        found, wanted = getattr(model, name), getattr(whole, name)
        size = np.abs(wanted).max()
        assert np.allclose(found, wanted, rtol=near, atol=near * size)
        assert found.dtype == wanted.dtype
    assert model.n_iter_ == whole.n_iter_ and model.converged_ == whole.converged_
    assert np.allclose(model.lower_bounds_, whole.lower_bounds_, rtol=1e-10)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("init", ["kmeans", "k-means++", "random_from_data"])
def test_blocks_give_the_mixture_of_all_rows(kind: str, init: str) -> None:
    X = table()
    rows = blocks(X, rows=170)
    model = GaussianMixture(
        3, covariance_type=kind, init_params=init, random_state=3, max_iter=300
    )
    whole, model = clone(model).fit(X), model.fit(rows)
    assert_same(model, whole)
    for claim in whole.certificate_.claims:
        seen = model.certificate_[claim.name]
        assert seen.strength is claim.strength and seen.met == claim.met
    here, there = whole.certificate_["step_gain"], model.certificate_["step_gain"]
    assert np.isclose(here.value, there.value, rtol=1e-4, atol=1e-10)
    assert model.certificate_.met and certus.certify(model, X).met
    assert np.array_equal(model.predict(rows), whole.predict(X))
    assert np.isclose(model.score(rows), whole.score(X), rtol=1e-8)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_hard_steps_and_several_starts_are_those_of_all_rows(dtype: Any) -> None:
    X = table(dtype=dtype)
    model = GaussianMixture(
        3, assignment="hard", n_init=2, random_state=1, init_params="k-means++"
    )
    whole = clone(model).fit(X)
    near = 1e-8 if dtype is np.float64 else 1e-5
    assert_same(model.fit(blocks(X, rows=110)), whole, near)


def test_given_starts_and_warm_starts_go_on() -> None:
    X = table()
    rows = blocks(X, rows=130)
    start = {"means_init": X[:3], "weights_init": [0.2, 0.3, 0.5]}
    start |= {"precisions_init": np.repeat(np.eye(4)[None], 3, axis=0)}
    model = GaussianMixture(3, warm_start=True, max_iter=300, **start)
    whole = clone(model).fit(X)
    assert_same(model.fit(rows), whole)
    before = model.n_iter_
    assert model.fit(rows).n_iter_ < before


def test_a_fit_repeated_from_its_start_rises_at_every_step() -> None:
    rows = blocks(table(), rows=130)
    model = GaussianMixture(3, reg_covar=0.0, random_state=0).fit(rows)
    found = certus.certify(model, rows, level="full")
    assert found["monotone"].met and found.met


@pytest.mark.parametrize("kind", KINDS)
def test_the_bits_do_not_depend_on_threads(kind: str) -> None:
    found = []
    for threads in (1, 2):
        with threadpool_limits(threads):
            model = GaussianMixture(3, covariance_type=kind, random_state=0)
            model.fit(blocks(table(), rows=90))
        value = np.array([claim.value for claim in model.certificate_.claims])
        parts = [getattr(model, name) for name in NAMES] + [value]
        found.append(b"".join(part.tobytes() for part in parts))
    assert found[0] == found[1]


def test_means_far_from_zero_keep_the_digits() -> None:
    near = GaussianMixture(3, random_state=0).fit(blocks(table(far=0.0), rows=150))
    X = table(far=0.0) + 2.0**20
    far = GaussianMixture(3, random_state=0).fit(blocks(X, rows=150))
    assert np.allclose(np.sort(near.weights_), np.sort(far.weights_), rtol=1e-6)
    assert far.certificate_.met


@pytest.mark.parametrize("kind", KINDS)
def test_changed_parameters_are_found(kind: str) -> None:
    """The gain of a step over blocks is the one of all rows."""
    X = table()
    rows = blocks(X, rows=130)
    model = GaussianMixture(3, covariance_type=kind, random_state=0).fit(rows)
    model.means_[1] += 0.5
    here, there = certus.certify(model, X), certus.certify(model, rows)
    assert here.met is False and there.status is Status.REFUTED
    assert np.isclose(here.value, there.value, rtol=1e-8)


def test_changed_rows_are_found() -> None:
    X = table()
    model = GaussianMixture(3, random_state=0).fit(blocks(X, rows=100))
    Z = X.copy()
    Z[437] += 300.0
    found = certus.certify(model, blocks(Z, rows=100))
    assert found.met is False
    assert "other rows in block 4," in " ".join(found["step_gain"].assumptions)


def test_what_needs_all_rows_is_refused() -> None:
    X = table()
    with pytest.raises(NotImplementedError, match="init_params='random'"):
        GaussianMixture(3, init_params="random").fit(blocks(X))
    with pytest.raises(ValueError, match="takes no sample_weight"):
        GaussianMixture(3).fit(blocks(X, sample_weight=np.ones(len(X))))
    with pytest.raises(ValueError, match="n_samples = 2"):
        GaussianMixture(3).fit(blocks(X[:2]))
    model = GaussianMixture(3, random_state=0).fit(blocks(X, rows=200))
    with pytest.raises(ValueError, match="takes no sample_weight"):
        certus.certify(model, blocks(X, sample_weight=np.ones(len(X))))


def test_densities_of_blocks_may_be_added_up_in_any_order() -> None:
    """The mean log-density as far off as some of the additions allow stays within."""
    X = table(n=3000)

    def work(rows: Any) -> tuple[float, float, float]:
        levels = -np.abs(rows[:, 0])
        return levels.sum(), np.abs(levels).sum(), 0.0

    class Worst(BlockRows):
        def sums(self, step: int, work: Any, *state: Any) -> Any:
            found = super().sums(step, work, *state)
            levels, sizes, off = found.sums
            return found._replace(sums=(levels + 20 * 2.0**-53 * sizes, sizes, off))

    found, _ = gaussian_step._over_rows(Worst(blocks(X, rows=1000)), work)
    off = abs(float(found.value + np.abs(X[:, 0].astype(np.longdouble)).mean()))
    assert off > 10 * 2.0**-53 * np.abs(X[:, 0]).mean()
    assert off <= found.rounding
