"""Fits to blocks of rows equal fits to rows in memory, and so do their certificates."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse
from threadpoolctl import threadpool_limits

import certus
from certus.blocks import total, tree
from certus.certificate import Status
from certus.linear_model import LogisticRegression, Ridge
from certus.scale import blocks

KINDS = ("numbers", "two labels", "three labels")


def table(kind: str, far: float = 0.0, n: int = 900) -> tuple[Any, Any]:
    """Rows of five columns, ``far`` spreads from zero, and a target."""
    rng = np.random.default_rng(3)
    X = rng.normal(size=(n, 5)) * [1, 10, 0.1, 3, 1] + far * np.arange(5)
    z = (X - X.mean(axis=0)) @ [1.0, -0.2, 4.0, 0.0, 0.5] + rng.normal(size=n)
    if kind == "numbers":
        return X, 3.0 + z
    names = np.array(["low", "high"] if kind == "two labels" else ["a", "b", "c"])
    cuts = np.quantile(z, np.arange(1, len(names)) / len(names) * 0.8)
    return X, names[np.searchsorted(cuts, z)]


def model_of(kind: str, **options: Any) -> Any:
    if kind == "numbers":
        return Ridge(alpha=2.0, **options)
    return LogisticRegression(C=0.5, **options)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("intercept", [True, False])
def test_blocks_give_the_model_of_all_rows(kind: str, intercept: bool) -> None:
    X, y = table(kind)
    whole = model_of(kind, fit_intercept=intercept, tol=1e-11).fit(X, y)
    model = model_of(kind, fit_intercept=intercept, tol=1e-11)
    model.fit(blocks(X, y, rows=130))
    assert np.allclose(model.coef_, whole.coef_, rtol=1e-5, atol=1e-6)
    assert np.allclose(model.intercept_, whole.intercept_, rtol=1e-5, atol=1e-5)
    assert model.certificate_.met and model.certificate_.value < 1e-11
    assert model.certificate_.n_samples == 900


@pytest.mark.parametrize("kind", KINDS)
def test_a_gap_added_up_is_that_of_all_rows(kind: str) -> None:
    """At points away from the minimum, where the gap is far above its rounding."""
    X, y = table(kind, far=5.0)
    for step in (1e-3, 1e-2, 0.3):
        model = model_of(kind).fit(X, y)
        model.coef_ = model.coef_ * (1 + step)
        with certus.config_context(on_uncertified="ignore"):
            here = certus.certify(model, X, y)["duality_gap"]
            there = certus.certify(model, blocks(X, y, rows=77))["duality_gap"]
        assert here.met is False and there.met is False
        assert np.isclose(here.value, there.value, rtol=1e-6)


@pytest.mark.parametrize("kind", KINDS)
def test_the_gap_is_never_below_the_truth(kind: str) -> None:
    X, y = table(kind)
    best = model_of(kind, tol=1e-11).fit(X, y)
    rng = np.random.default_rng(0)
    for _ in range(5):
        model = model_of(kind).fit(X, y)
        model.coef_ = model.coef_ + 0.02 * rng.normal(size=model.coef_.shape)
        model.intercept_ = model.intercept_ + 0.01
        claim = certus.certify(model, blocks(X, y, rows=200))["duality_gap"]
        lost = objective(model, X, y) - objective(best, X, y)
        base = constant(model, X, y)
        assert claim.value is not None and claim.value * base >= lost - 1e-10


def objective(model: Any, X: Any, y: Any) -> float:
    """The stated objective, as a mean over rows."""
    n, size = len(X), float(np.square(model.coef_).sum())
    if isinstance(model, Ridge):
        error = y - X @ model.coef_ - model.intercept_
        return float(np.square(error).mean() / 2 + model.alpha * size / (2 * n))
    logs = model.predict_log_proba(X)
    own = logs[np.arange(n), np.searchsorted(model.classes_, y)]
    return float(-own.mean() + size / (2 * model.C * n))


def constant(model: Any, X: Any, y: Any) -> float:
    if isinstance(model, Ridge):
        return float(np.var(y) / 2)
    share = np.unique(y, return_counts=True)[1] / len(y)
    return float(-(share @ np.log(share)))


@pytest.mark.parametrize("kind", KINDS)
def test_weights_are_repetitions(kind: str) -> None:
    X, y = table(kind, n=300)
    s = np.random.default_rng(1).integers(0, 4, 300).astype(float)
    repeat = np.repeat(np.arange(300), s.astype(int))
    weighed = model_of(kind, tol=1e-11).fit(blocks(X, y, sample_weight=s, rows=64))
    plain = model_of(kind, tol=1e-11).fit(blocks(X[repeat], y[repeat], rows=100))
    assert np.allclose(weighed.coef_, plain.coef_, rtol=1e-5, atol=1e-6)
    assert weighed.certificate_.met and plain.certificate_.met


def test_classes_are_weighed() -> None:
    X, y = table("three labels")
    for weight in ("balanced", {"a": 3.0, "c": 0.5}):
        options = {"class_weight": weight, "tol": 1e-11}
        whole = LogisticRegression(**options).fit(X, y)
        model = LogisticRegression(**options).fit(blocks(X, y, rows=250))
        assert np.allclose(model.coef_, whole.coef_, rtol=1e-5, atol=1e-7)
        assert model.certificate_.met


@pytest.mark.parametrize("kind", KINDS[:2])
def test_the_bits_do_not_depend_on_threads(kind: str) -> None:
    X, y = table(kind)
    found = []
    for threads in (1, 2):
        with threadpool_limits(threads):
            model = model_of(kind).fit(blocks(X, y, rows=90))
        found.append((model.coef_.tobytes(), np.asarray(model.intercept_).tobytes()))
    assert found[0] == found[1]


def test_columns_far_from_zero_keep_their_digits() -> None:
    """A day of Unix seconds: means of 1e5 spreads."""
    rng = np.random.default_rng(2)
    X = 1.7e9 + rng.uniform(0, 86_400, size=(4000, 1))
    y = 1e-4 * (X[:, 0] - 1.7e9) + rng.normal(size=4000)
    near = X[:, 0] - 1.7e9 - (X[:, 0] - 1.7e9).mean()
    exact = near @ y / (near @ near + 1.0)
    model = Ridge(alpha=1.0).fit(blocks(X, y, rows=512))
    assert np.isclose(model.coef_[0], exact, rtol=1e-9)
    assert model.certificate_.met


def test_deficient_rows_give_the_smallest_coefficients() -> None:
    X, y = table("numbers")
    X = np.hstack([X, X[:, :1]])
    whole = Ridge(alpha=1e-13).fit(X, y)
    model = Ridge(alpha=1e-13).fit(blocks(X, y, rows=100))
    assert model.solver_ == whole.solver_ == "svd"
    assert np.allclose(model.coef_, whole.coef_, rtol=1e-6)


def test_sparse_rows_and_float32() -> None:
    X, y = table("numbers")
    S = sparse.csr_matrix(np.where(np.abs(X) > 1, X, 0.0))
    whole = Ridge(alpha=1.0).fit(S, y)
    assert np.allclose(Ridge(alpha=1.0).fit(blocks(S, y, rows=99)).coef_, whole.coef_)
    single = Ridge(alpha=1.0).fit(blocks(X.astype(np.float32), y))
    assert single.coef_.dtype == np.float32 and single.certificate_.met


@given(st.integers(1, 70))
def test_a_tree_keeps_the_order_and_is_flat(m: int) -> None:
    def merge(a: tuple[str, int], b: tuple[str, int]) -> tuple[str, int]:
        return a[0] + b[0], 1 + max(a[1], b[1])

    text, height = tree([(chr(65 + i), 0) for i in range(m)], merge)
    assert text == "".join(chr(65 + i) for i in range(m))
    assert height <= int(np.ceil(np.log2(m))) + 1 if m > 1 else height == 0


def test_total_adds_up() -> None:
    X = np.arange(30.0).reshape(10, 3)
    found = total(blocks(X, rows=3), lambda block: (block.X.sum(axis=0), len(block.X)))
    assert np.array_equal(found[0], X.sum(axis=0)) and found[1] == 10


# -- planted faults -------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_changed_models_are_found(kind: str) -> None:
    X, y = table(kind)
    rows = blocks(X, y, rows=130)
    model = model_of(kind).fit(rows)
    assert certus.certify(model, rows).status is Status.SOLVED
    model.coef_ = model.coef_ + 1e-2
    assert certus.certify(model, rows).status is Status.REFUTED
    model = model_of(kind).fit(rows)
    name = "alpha" if kind == "numbers" else "C"
    setattr(model, name, 100.0 * getattr(model, name))
    assert certus.certify(model, rows).status is Status.REFUTED


def test_the_block_that_changed_is_named() -> None:
    X, y = table("numbers")
    model = Ridge(alpha=2.0).fit(blocks(X, y, rows=100))
    X = X.copy()
    X[437, 2] += 30.0
    found = certus.certify(model, blocks(X, y, rows=100))
    assert found.met is False
    text = " ".join(found["duality_gap"].assumptions)
    assert "other rows in block 4," in text


def test_operations_that_blocks_lack_are_refused_by_name() -> None:
    X, y = table("two labels")
    for model in (LogisticRegression(l1_ratio=0.5), LogisticRegression(C=np.inf)):
        with pytest.raises(NotImplementedError, match="fitted to blocks with"):
            model.fit(blocks(X, y))
    with pytest.raises(NotImplementedError, match="positive"):
        Ridge(positive=True).fit(blocks(*table("numbers")))
    with pytest.raises(ValueError, match="part of the blocks"):
        Ridge().fit(blocks(X), y)
    with pytest.raises(ValueError, match="no target"):
        Ridge().fit(blocks(X))
    with pytest.raises(ValueError, match="must hold numbers"):
        Ridge().fit(blocks(X, y))
