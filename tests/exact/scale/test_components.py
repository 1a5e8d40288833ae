"""Principal components and singular vectors over blocks."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sklearn.base import clone
from threadpoolctl import threadpool_limits

import certus
from certus.certificate import Status
from certus.decomposition import PCA, TruncatedSVD
from certus.scale import blocks

MODELS = [PCA(3), PCA(0.9), PCA("mle"), PCA(), TruncatedSVD(3)]
NAMES = ("components_", "singular_values_", "explained_variance_ratio_")


def table(n: int = 1500, far: float = 5.0) -> Any:
    rng = np.random.default_rng(0)
    return rng.normal(size=(n, 9)) @ rng.normal(size=(9, 9)) + far * rng.normal(size=9)


@pytest.mark.parametrize("model", MODELS, ids=str)
def test_blocks_give_the_components_of_all_rows(model: Any) -> None:
    X = table()
    whole, rows = clone(model).fit(X), blocks(X, rows=190)
    model = clone(model).fit(rows)
    for name in NAMES:
        assert np.allclose(getattr(model, name), getattr(whole, name), atol=1e-10)
    for claim in whole.certificate_.claims:
        found = model.certificate_[claim.name]
        assert found.strength is claim.strength and found.met == claim.met
    assert certus.certify(model, X).met
    assert np.allclose(model.transform(rows), whole.transform(X), atol=1e-9)


def test_a_variance_lost_in_a_gram_matrix_is_found() -> None:
    rng = np.random.default_rng(1)
    X = rng.normal(size=(800, 4)) * [1.0, 1e-3, 1e-6, 1e-7]
    whole, model = PCA().fit(X), PCA().fit(blocks(X, rows=100))
    assert model.solver_ == "full"
    assert np.allclose(model.singular_values_, whole.singular_values_, rtol=1e-8)


def test_means_far_from_zero_keep_the_digits() -> None:
    X = table(far=0.0)
    near, far = PCA(2).fit(blocks(X, rows=150)), PCA(2).fit(blocks(X + 1e6, rows=150))
    assert np.allclose(near.singular_values_, far.singular_values_, rtol=1e-9)
    assert far.certificate_.met


@pytest.mark.parametrize("model", [PCA(2), TruncatedSVD(2)], ids=str)
def test_the_bits_do_not_depend_on_threads(model: Any) -> None:
    found = []
    for threads in (1, 2):
        with threadpool_limits(threads):
            model = clone(model).fit(blocks(table(), rows=90))
        value = np.asarray(model.certificate_.value)
        found.append(model.components_.tobytes() + value.tobytes())
    assert found[0] == found[1]


def test_changed_models_and_rows_are_found() -> None:
    X = table()
    model = PCA(2).fit(blocks(X, rows=100))
    model.components_[0, 0] += 0.01
    assert certus.certify(model, blocks(X, rows=100)).status is Status.REFUTED
    model, Z = PCA(2).fit(blocks(X, rows=100)), X.copy()
    Z[437] += 300.0
    found = certus.certify(model, blocks(Z, rows=100))
    assert found.met is False
    assert "other rows in block 4," in " ".join(found["ritz_residual"].assumptions)


def test_weights_and_few_rows_are_refused() -> None:
    X = table()
    with pytest.raises(ValueError, match="takes no sample_weight"):
        PCA(2).fit(blocks(X, sample_weight=np.ones(len(X))))
    with pytest.raises(ValueError, match="as an array"):
        PCA(2).fit(blocks(X[:5]))
