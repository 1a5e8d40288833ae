"""k-means over blocks: the draws, labels and steps of all rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sklearn.base import clone
from threadpoolctl import threadpool_limits

import certus
from certus.certificate import Status
from certus.cluster import KMeans, MiniBatchKMeans
from certus.scale import blocks
from certus.verify import block_kmeans, kmeans
from certus.verify.recomputed import RecomputedBlocks


def table(k: int = 5, d: int = 4, n: int = 1500, dtype: Any = float) -> tuple[Any, Any]:
    rng = np.random.default_rng(k)
    centers = 3 * rng.normal(size=(k, d)) + 20
    X = centers[rng.integers(0, k, n)] + 1.5 * rng.normal(size=(n, d))
    return X.astype(dtype), rng.integers(0, 3, n).astype(float)


def assert_same(model: Any, whole: Any) -> None:
    assert np.array_equal(model.labels_, whole.labels_)
    assert model.n_iter_ == whole.n_iter_
    assert np.allclose(model.cluster_centers_, whole.cluster_centers_, rtol=1e-8)
    assert model.cluster_centers_.dtype == whole.cluster_centers_.dtype
    assert np.isclose(model.inertia_, whole.inertia_, rtol=1e-8)
    here, there = whole.history_, model.history_
    for name in ("objective", "gap"):
        assert np.allclose(here[name], there[name], rtol=1e-6, atol=1e-12)


@pytest.mark.parametrize("init", ["k-means++", "random"])
@pytest.mark.parametrize("weighed", [True, False])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_blocks_give_the_clusters_of_all_rows(
    init: str, weighed: bool, dtype: Any
) -> None:
    X, s = table(dtype=dtype)
    s = s if weighed else None
    rows = blocks(X, sample_weight=s, rows=170)
    model = KMeans(5, init=init, n_init=2, random_state=3)
    whole, model = clone(model).fit(X, sample_weight=s), model.fit(rows)
    assert_same(model, whole)
    for claim in whole.certificate_.claims:
        seen = model.certificate_[claim.name]
        assert seen.strength is claim.strength and seen.met is True
    assert certus.certify(model, X, sample_weight=s).met
    assert certus.certify(model, rows, level="full")["monotone"].met
    assert np.array_equal(model.predict(rows), whole.predict(X))
    assert np.allclose(model.transform(rows), whole.transform(X), rtol=1e-5)


@pytest.mark.parametrize("k", [1, 2, 40])
def test_a_given_start_takes_the_same_steps(k: int) -> None:
    X, s = table(7, 3)
    model = KMeans(k, init=X[:k], tol=0.0)
    whole = clone(model).fit(X, sample_weight=s)
    assert_same(model.fit(blocks(X, sample_weight=s, rows=140)), whole)


def test_draws_do_not_depend_on_blocks_or_on_the_order_of_rows() -> None:
    X, _ = table(6)
    order = np.random.default_rng(0).permutation(len(X))
    found = []
    for rows, size in ((X, 100), (X, 1500), (X[order], 333)):
        model = KMeans(6, max_iter=1, random_state=1)
        with certus.config_context(certify="never"):
            found.append(model.fit(blocks(rows, rows=size)).cluster_centers_)
    assert np.allclose(found[0], found[1], rtol=1e-10)
    assert np.allclose(found[0], found[2], rtol=1e-10)


def test_rows_that_repeat_run_out_and_leave_clusters_empty() -> None:
    X = np.repeat([[0.0, 1.0], [5.0, 5.0], [9.0, 0.0]], 30, axis=0)
    model = KMeans(5, random_state=0)
    whole, model = clone(model).fit(X), model.fit(blocks(X, rows=20))
    assert model.inertia_ <= 1e-20 and whole.inertia_ <= 1e-20
    assert len(np.unique(model.cluster_centers_, axis=0)) == 3
    assert certus.certify(model, blocks(X, rows=20)).met


def test_a_cluster_that_loses_its_rows_goes_to_the_farthest_one() -> None:
    X, s = table(4, 2)
    start = np.vstack([X[:3], [[1e3, 1e3], [2e3, 1e3]]])
    model = KMeans(5, init=start)
    whole = clone(model).fit(X, sample_weight=s)
    assert_same(model.fit(blocks(X, sample_weight=s, rows=90)), whole)


def test_a_block_without_weight_has_labels_all_the_same() -> None:
    X, s = table()
    s[200:300] = 0.0
    whole = KMeans(5, random_state=0).fit(X, sample_weight=s)
    model = KMeans(5, random_state=0).fit(blocks(X, sample_weight=s, rows=100))
    assert_same(model, whole)
    assert model.certificate_.met


def test_the_bits_do_not_depend_on_threads() -> None:
    X, _ = table()
    found = []
    for threads in (1, 2):
        with threadpool_limits(threads):
            model = KMeans(5, random_state=0).fit(blocks(X, rows=90))
        value = np.array([claim.value for claim in model.certificate_.claims])
        parts = (model.cluster_centers_, model.labels_, value)
        found.append(b"".join(part.tobytes() for part in parts))
    assert found[0] == found[1]


def test_changed_centres_labels_and_rows_are_found() -> None:
    X, _ = table()
    rows = blocks(X, rows=100)
    model = KMeans(5, random_state=0).fit(rows)
    model.cluster_centers_[2] += 0.3
    here, there = certus.certify(model, X), certus.certify(model, rows)
    assert here.met is False and there.status is Status.REFUTED
    model = KMeans(5, random_state=0).fit(rows)
    far = np.argsort(((X - X.mean(axis=0)) ** 2).sum(axis=1))[-3:]
    model.labels_[far] = (model.labels_[far] + 1) % 5
    found = certus.certify(model, rows)
    assert found["nearest_centres"].value == 3.0 and found.status is Status.REFUTED
    model = KMeans(5, random_state=0).fit(rows)
    model.inertia_ *= 1.001
    assert certus.certify(model, rows)["inertia"].met is False
    model, Z = KMeans(5, random_state=0).fit(rows), X.copy()
    Z[437] += 300.0
    found = certus.certify(model, blocks(Z, rows=100))
    assert found.met is False
    assert "other rows in block 4," in " ".join(found["centre_shift"].assumptions)


def test_a_shift_added_up_is_that_of_all_rows() -> None:
    X, s = table()
    rows = blocks(X, sample_weight=s, rows=130)
    with certus.config_context(on_uncertified="ignore"):
        model = KMeans(5, max_iter=2, random_state=0).fit(rows)
    here, there = certus.certify(model, X, sample_weight=s), model.certificate_
    for claim in here.claims:
        value = there[claim.name].value
        assert np.isclose(claim.value, value, rtol=1e-6, atol=1e-9)


def test_what_needs_all_rows_is_refused() -> None:
    X, _ = table()
    rows = blocks(X, rows=100)
    with pytest.raises(NotImplementedError, match="a function as init"):
        KMeans(3, init=lambda X, k, random_state: X[:k]).fit(rows)
    with pytest.raises(TypeError, match=r"all rows in memory.*KMeans"):
        MiniBatchKMeans(3).fit(rows)
    with pytest.raises(ValueError, match="n_clusters=2000"):
        KMeans(2000).fit(rows)
    with pytest.raises(ValueError, match=r"squares and sums are numbers"):
        KMeans(3).fit(blocks(X * 1e200))


def test_sums_of_blocks_may_be_added_up_in_any_order() -> None:
    """Sums as far off as a third of the additions allow stay within the error."""
    X, s = table()
    T, centers = blocks(X, sample_weight=s, rows=300), X[:5].copy()
    origin = centers.mean(axis=0)
    sums = block_kmeans.look(T, RecomputedBlocks(), centers, origin)
    about = (0, 0), centers - origin, origin
    exact = np.empty(centers.shape)
    for j in range(5):
        mine = sums.labels == j
        away = X[mine].astype(np.longdouble) - origin
        total, weight = s[mine] @ away, s[mine].sum()
        exact[j] = total / weight - (centers[j].astype(np.longdouble) - origin)
        sums.sums[j, :4] += 100 * 2.0**-53 * (s[mine] @ np.abs(away)).astype(float)
    found = kmeans._pass_of(sums.sums, sums.depth, sums.labels, np.zeros(0), *about)
    off = np.linalg.norm(found.moves - exact, axis=1)
    assert (off > 10 * 2.0**-53).all()  # the fault is larger than other rounding
    assert (off <= found.errors).all()
