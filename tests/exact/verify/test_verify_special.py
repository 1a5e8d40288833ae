"""The verifier on separable, degenerate and special problems."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse

from certus.certificate import Evidence, Status, Strength
from certus.evidence import LinearWitness
from certus.linear_model import LogisticRegression, Ridge
from certus.linear_model.directions import separating_direction
from certus.objectives import terms as t
from certus.verify import check, judge
from certus.verify.kernel.reference import least_constant
from certus.verify.linear import decrement_claim
from certus.verify.separation import holds
from helpers.judging import problem
from helpers.verifying import (
    KINKED,
    SMOOTH,
    make,
    measured,
    name,
    primal,
    smooth_optimum,
    stated,
)

Array = np.ndarray


# -- separation -------------------------------------------------------------------

LINE = np.arange(6.0)[:, None]


def separates(X: Array, y: Array, loss: t.Loss, way: Array, free: bool = True) -> bool:
    """Whether the verifier takes a direction as a proof that no minimum exists."""
    k = loss.n_classes if isinstance(loss, t.Softmax) else 1
    w = np.zeros((X.shape[1], k)) if k > 1 else np.zeros(X.shape[1])
    return holds(problem(loss, t.NoPenalty(), X, y, w, free=free), X, way)


def witness(X: Array, y: Array, loss: t.Loss, free: bool = True) -> list[Array]:
    found = separating_direction(X, y, loss, free)
    return [found] if found is not None and separates(X, y, loss, found, free) else []


def planted(p: Any, **params: Any) -> LogisticRegression:
    """A model of two classes with given coefficients."""
    model = LogisticRegression(**params)
    model.coef_, model.intercept_ = np.atleast_2d(p.w), np.atleast_1d(p.b)
    model.classes_ = np.array([-1, 1])
    return model


def test_complete_separation() -> None:
    y = np.array([-1, -1, -1, 1, 1, 1.0])
    (direction,) = witness(LINE, y, t.Logistic())
    margins = y * (LINE @ direction[:-1] + direction[-1]).ravel()
    assert margins.min() > -1e-12 and margins.max() > 0.1


def test_quasi_complete_separation() -> None:
    X = np.array([[0.0], [1], [2], [2], [3], [4]])
    y = np.array([-1, -1, -1, 1, 1, 1.0])
    (direction,) = witness(X, y, t.Logistic())
    margins = y * (X @ direction[:-1] + direction[-1]).ravel()
    assert margins.min() == pytest.approx(0, abs=1e-12) and margins.max() > 0


def test_xor_is_not_separable() -> None:
    X = np.array([[0.0, 0], [1, 0], [0, 1], [1, 1]])
    y = np.array([-1.0, 1, 1, -1])
    assert witness(X, y, t.Logistic()) == []
    rng = np.random.default_rng(0)
    for _ in range(200):
        assert not separates(X, y, t.Logistic(), rng.normal(size=(3, 1)))


def test_without_intercept_only_directions_through_the_origin_count() -> None:
    X, y = LINE + 1, np.array([-1, -1, -1, 1, 1, 1.0])
    assert witness(X, y, t.Logistic(), free=True)
    assert not witness(X, y, t.Logistic(), free=False)
    way = np.array([[1.0], [-3.5]])
    assert not separates(X, y, t.Logistic(), way, free=False)
    model = LogisticRegression(C=np.inf, fit_intercept=False)
    model.coef_, model.intercept_ = np.array([[0.1]]), np.zeros(1)
    model.classes_ = np.array([-1, 1])
    forged = Evidence("linear", witness=LinearWitness(direction=way))
    assert judge(model, forged, X, y).status is not Status.NO_MINIMISER


def test_softmax_separation() -> None:
    y = np.array([0, 0, 1, 1, 2, 2])
    (direction,) = witness(LINE, y, t.Softmax(3))
    z = LINE @ direction[:-1] + direction[-1]
    own = z[np.arange(6), y]
    assert np.all(own[:, None] - z >= -1e-12)
    mixed = np.array([0, 1, 2, 0, 1, 2])
    assert witness(LINE, mixed, t.Softmax(3)) == []


@pytest.mark.parametrize("level", ["quick", "full"])
def test_separable_data_are_refused_with_a_witness(level: str) -> None:
    y = np.array(["no", "no", "no", "yes", "yes", "yes"])
    terms = (t.Logistic(), t.NoPenalty())
    found = check([[20.0]], [-50.0], terms, LINE, y, level=level)
    assert found.status is Status.NO_MINIMISER
    assert found["stationarity"].strength is Strength.REFUSED
    assert "separated" in found["stationarity"].detail
    assert found.met is None


def test_level_full_finds_a_separation_that_the_coefficients_do_not_show() -> None:
    X = np.array([[0.0], [1], [2], [2], [3], [4]])
    y = np.array([-1, -1, -1, 1, 1, 1])
    args = ([[0.7]], [-1.0], (t.Logistic(), t.NoPenalty()), X, y)
    assert check(*args, level="full").status is Status.NO_MINIMISER
    assert check(*args, level="quick").status is Status.UNDECIDED


def test_a_forged_witness_is_refuted() -> None:
    p = make(t.Logistic(), t.NoPenalty(), seed=1)
    way = np.array([[1.0], [2.0], [3.0], [0.0]])
    forged = Evidence("linear", witness=LinearWitness(direction=way))
    assert judge(planted(p, C=np.inf), forged, p.X, p.y).status is Status.REFUTED


def test_a_small_margin_on_the_wrong_side_is_not_rounding() -> None:
    """A huge row must not excuse a negative margin of a small one."""
    X = np.array([[1e8], [1.0], [-1e-9], [-2.0]])
    y = np.array([1.0, 1, 1, -1])
    direction = np.array([[1.0], [0.0]])
    assert not separates(X, y, t.Logistic(), direction)
    assert separates(X[[0, 1, 3]], y[[0, 1, 3]], t.Logistic(), direction)


def test_rows_without_weight_do_not_hide_a_separation() -> None:
    y = np.array([-1, 1, -1, 1, 1, 1])  # row 1 is on the wrong side
    s = np.array([1.0, 0, 1, 1, 1, 1])
    terms = (t.Logistic(), t.NoPenalty())
    found = check([[0.1]], [0.0], terms, LINE, y, s, level="full")
    assert found.status is Status.NO_MINIMISER


@pytest.mark.parametrize("loss", [t.Logistic(), t.Softmax(3)], ids=name)
def test_unpenalised_likelihoods_are_measured(loss: t.Loss) -> None:
    p = make(loss, t.NoPenalty(), n=60)
    start = p._replace(penalty=t.L2(1e-12))
    w, b, _ = smooth_optimum(start)
    coef, intercept = np.atleast_2d(w.T), np.atleast_1d(b)
    found = check(coef, intercept, (loss, p.penalty), p.X, p.y, p.s, level="full")
    assert found.primary == "stationarity" and found.met is None
    assert found.status is Status.UNDECIDED and found.value < 1e-6
    assert 0 <= found["newton_decrement"].value < 1e-12
    q = p._replace(w=w + 1e-3, b=b)
    left = primal(p, w + 1e-3, b) - primal(p, w, b)
    assert decrement_claim(stated(q)).value == pytest.approx(left, rel=0.02)


# -- degenerate input -------------------------------------------------------------


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_coefficients_that_are_not_numbers_are_refused(bad: float) -> None:
    X, y = np.eye(3), np.arange(3.0)
    found = check([0.0, bad, 0.0], 0.0, (t.Squared(), t.L2(0.1)), X, y)
    assert found.met is False and found.status is Status.DIVERGED


@pytest.mark.parametrize("loss", [*SMOOTH, *KINKED], ids=name)
def test_rows_of_weight_zero_do_not_count(loss: t.Loss) -> None:
    p = make(loss, t.L2(0.3))
    s = p.s.copy()
    s[20:] = 0.0
    kept = p._replace(X=p.X[:20], y=p.y[:20], s=p.s[:20])
    spoiled = p.X.copy()
    spoiled[20:] = 1e3
    dropped = p._replace(X=spoiled, s=s)
    a, b = (measured(q).stated for q in (kept, dropped))
    assert a == pytest.approx(b, rel=1e-9)


def test_constant_targets() -> None:
    X, y = np.random.default_rng(0).normal(size=(20, 3)), np.full(20, 7.3)
    exact = check(np.zeros(3), 7.3, (t.Squared(), t.L1(0.1)), X, y)
    assert exact.met and exact.value <= 1e-14
    off = check(np.full(3, 0.01), 7.3, (t.Squared(), t.L1(0.1)), X, y)
    assert off.met is False
    least = check(np.zeros(3), 7.3, (t.Squared(), t.NoPenalty()), X, y)
    assert least.met


@pytest.mark.parametrize("loss", [t.Squared(), t.Logistic(), t.Softmax(3)], ids=name)
def test_float32_coefficients_are_exact_numbers(loss: t.Loss) -> None:
    """No allowance is granted to them beyond that of their scores in float64."""
    p = make(loss, t.L2(0.3), n=60)
    single = p._replace(X=p.X.astype(np.float32))
    w, b, _ = smooth_optimum(single._replace(X=single.X.astype(float)))
    rounded = np.asarray(w.T, dtype=np.float32)
    found = check(rounded, np.float32(b), (loss, p.penalty), single.X, p.y, p.s)
    assert found.met
    assert found["duality_gap"].allowance < 1e-11


@pytest.mark.parametrize(
    "form", [sparse.csr_matrix, sparse.csc_array, sparse.coo_array]
)
@pytest.mark.parametrize("loss", [t.Squared(), t.Hinge(), t.Softmax(3)], ids=name)
def test_sparse_equals_dense(loss: t.Loss, form: Callable[[Array], Any]) -> None:
    p = make(loss, t.L1L2(0.1, 0.2))
    X = np.where(np.abs(p.X) < 0.5, 0.0, p.X)
    coef = p.w.T if p.w.ndim == 2 else p.w
    for penalty in (p.penalty, t.NoPenalty()):
        a, b = (
            check(coef, p.b, (loss, penalty), data, p.y, p.s) for data in (X, form(X))
        )
        assert a.primary == b.primary
        assert a.value == pytest.approx(b.value, rel=1e-12)


def test_sparse_float32_is_read_in_float64() -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(40, 3)).astype(np.float32)
    y = rng.normal(size=40)
    w = rng.normal(size=3).astype(np.float32)
    a, b = (
        check(w, 0.5, (t.Squared(), t.L2(0.1)), data, y).value
        for data in (X, sparse.csr_array(X))
    )
    assert a == pytest.approx(b, rel=1e-13)


@pytest.mark.catalog("REG-22")
@given(seed=st.integers(0, 10_000), alpha=st.floats(0.01, 2))
def test_lasso_on_an_orthogonal_design(seed: int, alpha: float) -> None:
    """Soft thresholding is certified; a shifted threshold is not."""
    rng = np.random.default_rng(seed)
    y, n = rng.normal(0, 3, 8), 8
    terms = (t.Squared(), t.L1(alpha / n))
    exact = np.sign(y) * np.maximum(np.abs(y) - alpha, 0.0)
    assert check(exact, None, terms, np.eye(n), y).met
    moved = exact + 0.1
    assert check(moved, None, terms, np.eye(n), y).met is False


@pytest.mark.catalog("REG-22")
def test_lasso_is_zero_from_the_largest_correlation_on() -> None:
    p = make(t.Squared(), t.L1(0.0), "none", weighted=False)
    top = float(np.abs(p.X.T @ p.y).max()) / len(p.y)
    zero = np.zeros(3)
    assert check(zero, None, (p.loss, t.L1(top)), p.X, p.y).met
    assert check(zero, None, (p.loss, t.L1(0.99 * top)), p.X, p.y).met is False


def test_each_target_of_several_has_its_own_penalty() -> None:
    rng = np.random.default_rng(0)
    X, Y = rng.normal(size=(30, 3)), rng.normal(size=(30, 3))
    alphas = [0.0, 1.0, 10.0]
    coef = np.array(
        [np.linalg.solve(X.T @ X + a * np.eye(3), X.T @ y) for a, y in zip(alphas, Y.T)]
    )
    evidence = Evidence("linear")
    for k in range(3):
        model = Ridge(alpha=alphas, fit_intercept=False)
        model.coef_, model.intercept_ = coef.copy(), np.zeros(3)
        assert judge(model, evidence, X, Y).met
        model.coef_[k] += 0.01
        assert judge(model, evidence, X, Y).met is False


def test_class_weights_are_weights_of_rows() -> None:
    p = make(t.Logistic(), t.L2(0.3), weighted=False)
    weights = np.where(p.y < 0, 3.0, 1.0)
    model = planted(p, C=1 / (0.3 * weights.sum()), class_weight={-1: 3.0})
    found = judge(model, Evidence("linear"), p.X, p.y)
    by_hand = p._replace(s=weights)
    expected = measured(by_hand).stated / least_constant(stated(by_hand))
    assert found.value == pytest.approx(expected, rel=1e-12)


def test_data_of_another_shape() -> None:
    X, y = np.eye(4), np.arange(4.0)
    terms = (t.Squared(), t.L2(0.1))
    with pytest.raises(ValueError, match="fitted on 3"):
        check(np.zeros(3), None, terms, X, y)
    with pytest.raises(ValueError, match="y has 2 columns, but the model predicts 1"):
        check(np.zeros(4), None, terms, X, np.column_stack([y, y]))
    with pytest.raises(ValueError, match="y has 3 rows"):
        check(np.zeros(4), None, terms, X, y[:3])
    with pytest.raises(ValueError, match="y is missing"):
        check(np.zeros(4), None, terms, X, None)
    with pytest.raises(ValueError, match="sample_weight"):
        check(np.zeros(4), None, terms, X, y, -np.ones(4))
    with pytest.raises(ValueError, match="NaN"):
        check(np.zeros(4), None, terms, np.full((4, 4), np.nan), y)
