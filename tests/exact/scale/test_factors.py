"""Factor analysis and probabilistic PCA over blocks: a function of one covariance."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sklearn.base import clone
from threadpoolctl import threadpool_limits

import certus
from certus.certificate import Status
from certus.decomposition import FactorAnalysis, ProbabilisticPCA
from certus.scale import blocks
from certus.verify import block_moments
from certus.verify.recomputed import RecomputedBlocks

MODELS = [
    FactorAnalysis(2),
    FactorAnalysis(3, rotation="varimax", tol=1e-4),
    FactorAnalysis(2, noise_variance_init=np.arange(1.0, 8.0)),
    ProbabilisticPCA(2),
    ProbabilisticPCA(2, solver="em", tol=1e-4, random_state=0),
]


def table(n: int = 1300, far: float = 3.0) -> Any:
    rng = np.random.default_rng(2)
    noise = rng.normal(size=(n, 7)) * [0.2, 1.0, 0.5, 2.0, 0.3, 1.0, 0.7]
    return rng.normal(size=(n, 2)) @ rng.normal(size=(2, 7)) + noise + far


@pytest.mark.parametrize("model", MODELS, ids=str)
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_blocks_give_the_factors_of_all_rows(model: Any, dtype: Any) -> None:
    X = table().astype(dtype)
    rows = blocks(X, rows=170)
    whole, model = clone(model).fit(X), clone(model).fit(rows)
    near = 1e-8 if dtype is np.float64 else 1e-5
    for name in ("components_", "noise_variance_", "mean_", "loglike_"):
        found, wanted = getattr(model, name), getattr(whole, name)
        size = np.abs(wanted).max()
        assert np.allclose(found, wanted, rtol=near, atol=near * size)
        assert np.asarray(found).dtype == np.asarray(wanted).dtype
    assert model.n_iter_ == whole.n_iter_
    for claim in whole.certificate_.claims:
        seen = model.certificate_[claim.name]
        assert seen.strength is claim.strength and seen.met == claim.met
    assert model.certificate_.met and certus.certify(model, X).met
    assert certus.certify(model, rows, level="full").met
    assert np.allclose(model.transform(rows), whole.transform(X), rtol=1e-3, atol=1e-4)
    assert np.isclose(model.score(rows), whole.score(X), rtol=1e-5)


@pytest.mark.parametrize("model", MODELS[::3], ids=str)
def test_the_bits_do_not_depend_on_threads(model: Any) -> None:
    found = []
    for threads in (1, 2):
        with threadpool_limits(threads):
            model = clone(model).fit(blocks(table(), rows=90))
        value = np.asarray([claim.value for claim in model.certificate_.claims])
        noise = np.asarray(model.noise_variance_)
        found.append(model.components_.tobytes() + noise.tobytes() + value.tobytes())
    assert found[0] == found[1]


@pytest.mark.parametrize("model", MODELS[::3], ids=str)
def test_a_loading_that_was_changed_is_found(model: Any) -> None:
    """The number over blocks is the one of all rows, and both refute the model."""
    X = table()
    rows = blocks(X, rows=130)
    model = clone(model).fit(rows)
    model.components_[0, 1] += 0.1
    here, there = certus.certify(model, X), certus.certify(model, rows)
    assert here.met is False and there.status is Status.REFUTED
    assert here.primary == there.primary
    assert np.isclose(here.value, there.value, rtol=1e-8)


def test_means_and_rows_that_were_changed_are_found() -> None:
    X = table()
    model = FactorAnalysis(2).fit(blocks(X, rows=100))
    model.mean_[3] += 0.2
    assert certus.certify(model, blocks(X, rows=100)).status is Status.REFUTED
    model, Z = FactorAnalysis(2).fit(blocks(X, rows=100)), X.copy()
    Z[437] += 100.0
    found = certus.certify(model, blocks(Z, rows=100))
    assert found.met is False
    assert "other rows in block 4," in " ".join(found["step_gain"].assumptions)


def test_constant_columns_and_means_far_from_zero_keep_the_digits() -> None:
    X = table(far=0.0)
    X[:, 2] = 0.1  # has no exact float32 value
    near = FactorAnalysis(2).fit(blocks(X, rows=150))
    far = FactorAnalysis(2).fit(blocks(X + 2.0**20, rows=150))
    whole = FactorAnalysis(2).fit(X)
    assert near.mean_[2] == 0.1 and not near.components_[:, 2].any()
    assert np.allclose(near.noise_variance_, whole.noise_variance_, rtol=1e-8)
    assert np.allclose(far.noise_variance_, near.noise_variance_, rtol=1e-6)
    assert far.certificate_.met


def test_weights_and_single_rows_are_refused() -> None:
    X = table()
    with pytest.raises(ValueError, match="takes no sample_weight"):
        FactorAnalysis(2).fit(blocks(X, sample_weight=np.ones(len(X))))
    with pytest.raises(ValueError, match="at least 2 rows"):
        FactorAnalysis(2).fit(blocks(X[:1]))


def test_products_of_blocks_may_be_added_up_in_any_order(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Products as far off as some of the additions allow stay within the error."""
    X = table(n=3000, far=0.0)
    point, plain = X.mean(axis=0), block_moments.added_up

    def worst(*given: Any) -> Any:
        found = plain(*given)
        sizes = np.sqrt(np.diag(found.products))
        off = 100 * 2.0**-53 * np.outer(sizes, sizes)
        return found._replace(products=found.products + off)

    monkeypatch.setattr(block_moments, "added_up", worst)
    rows = blocks(X, rows=1000)
    spread, _, _ = block_moments.covariance(rows, RecomputedBlocks(), point)
    away = X.astype(np.longdouble) - point
    off = np.abs((away.T @ away / len(X)).astype(np.longdouble) - spread.matrix)
    sizes = np.sqrt(spread.diagonal)
    assert (off > 50 * 2.0**-53 * np.outer(sizes, sizes)).all()
    assert (off <= spread.share * np.outer(sizes, sizes)).all()
