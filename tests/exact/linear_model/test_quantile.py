"""Quantile regression: against linear programmes, with many rows, with many columns."""

import copy
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse
from scipy.optimize import linprog

from certus._solvers import quantile as solver
from certus._solvers.interior import Kinked
from certus._solvers.newton import NewtonRows
from certus._solvers.problem import SolverLimits, Start
from certus._solvers.quantile import KinkedRegression
from certus.certificate import Evidence
from certus.evidence import LinearWitness
from certus.linear_model import QuantileRegressor, RobustRegressor
from certus.objectives.terms import L1
from certus.verify import judge

Array = np.ndarray


def data(
    seed: int = 0, n: int = 80, d: int = 3, outliers: float = 0.0
) -> tuple[Array, Array, Array]:
    """A noisy linear target, a share of it moved far away, and the true slopes."""
    rng = np.random.default_rng(seed)
    X, w = rng.normal(size=(n, d)), rng.normal(size=d)
    y = X @ w + 1.0 + 0.3 * rng.normal(size=n)
    far = rng.choice(n, int(outliers * n), replace=False)
    y[far] += 50 + 20 * np.abs(rng.normal(size=len(far))) + 10 * X[far, 0]
    return X, y, w


def programme(
    X: Array, y: Array, s: Array, q: float, alpha: float, intercept: bool = True
) -> float:
    """Least mean pinball loss + alpha·‖w‖₁, by SciPy's linear programme."""
    n, d = X.shape
    total = s.sum()
    b = [0.0, 0.0] if intercept else []
    c = np.concatenate([np.full(2 * d, alpha), b, q * s / total, (1 - q) * s / total])
    ones = np.ones((n, 1))
    parts = [X, -X, *([ones, -ones] if intercept else []), np.eye(n), -np.eye(n)]
    found = linprog(c, A_eq=np.hstack(parts), b_eq=y, method="highs")
    assert found.success
    return float(found.fun)


def pinball(model: Any, X: Array, y: Array, s: Array, q: float, alpha: float) -> float:
    e = y - X @ model.coef_ - model.intercept_
    loss = s @ np.maximum(q * e, (q - 1) * e) / s.sum()
    return float(loss + alpha * np.abs(model.coef_).sum())


# -- quantiles ----------------------------------------------------------------------


@given(
    seed=st.integers(0, 10**6),
    n=st.integers(1, 25),
    d=st.integers(1, 6),
    q=st.sampled_from([0.02, 0.25, 0.5, 0.9]),
    alpha=st.sampled_from([0.0, 1e-6, 0.01, 0.2, 10.0]),
    intercept=st.booleans(),
    kind=st.sampled_from(["plain", "duplicates", "integers", "weights"]),
)
@settings(max_examples=120, deadline=None)
def test_quantile_against_a_linear_programme(
    seed: int, n: int, d: int, q: float, alpha: float, intercept: bool, kind: str
) -> None:
    rng = np.random.default_rng(seed)
    X, y = rng.normal(size=(n, d)), rng.normal(size=n)
    s = np.ones(n)
    if kind == "duplicates":
        X[:, -1] = X[:, 0]
        X, y = np.vstack([X, X]), np.concatenate([y, y])
        s = np.ones(2 * n)
    elif kind == "integers":  # ties everywhere: degenerate vertices
        X, y = rng.integers(0, 3, (n, d)).astype(float), rng.integers(0, 3, n) * 1.0
    elif kind == "weights":
        s = rng.uniform(0.1, 3, n)
    model = QuantileRegressor(quantile=q, alpha=alpha, fit_intercept=intercept)
    model.fit(X, y, sample_weight=s)
    best = programme(X, y, s, q, alpha, intercept)
    size = max(float(np.mean(np.abs(y))), 1e-3)
    assert pinball(model, X, y, s, q, alpha) <= best + 2e-6 * size
    assert model.certificate_.met, model.certificate_


@pytest.mark.parametrize("q", [0.1, 0.5, 0.93])
def test_the_share_of_rows_below_is_the_quantile(q: float) -> None:
    X, y, _ = data(1, n=1000, d=2)
    model = QuantileRegressor(quantile=q, alpha=0).fit(X, y)
    below = np.mean(y < model.predict(X) - 1e-9)
    at_most = np.mean(y <= model.predict(X) + 1e-9)
    assert below <= q <= at_most
    assert at_most - below <= 4 / 1000


def test_the_middle_of_the_minimisers_is_chosen() -> None:
    y = np.array([0.0, 1.0, 2.0, 10.0])
    for order in ([0, 1, 2, 3], [3, 1, 0, 2]):
        model = QuantileRegressor(alpha=0).fit(np.zeros((4, 1)), y[order])
        assert 1.0 <= model.intercept_ <= 2.0
        first = model if order[0] == 0 else first  # noqa: F821
    assert model.intercept_ == pytest.approx(first.intercept_, rel=1e-9)


def test_many_rows_are_solved_as_few_are() -> None:
    X, y, _ = data(2, n=40_000, d=4)
    q = 0.3
    for alpha in (0.0, 0.02):
        model = QuantileRegressor(quantile=q, alpha=alpha, tol=1e-9).fit(X, y)
        rows = NewtonRows(X, y, np.ones(len(y)), float(len(y)))
        kept, solver.MANY_ROWS = solver.MANY_ROWS, 10**9
        try:
            problem = KinkedRegression(rows, Kinked(q, 1 - q), L1(alpha), True)
            plain = solver.solve(problem, Start(), SolverLimits(1e-9, 100))
        finally:
            solver.MANY_ROWS = kept
        np.testing.assert_allclose(model.coef_, plain.primal[:-1], atol=1e-6)
        assert model.certificate_.met


def test_many_columns_join_when_they_matter() -> None:
    rng = np.random.default_rng(3)
    X = rng.normal(size=(60, 900))
    y = X[:, 5] - 2 * X[:, 700] + 0.1 * rng.normal(size=60)
    dense = QuantileRegressor(alpha=0.2).fit(X, y)
    assert dense.certificate_.met
    assert {5, 700} <= set(np.flatnonzero(np.abs(dense.coef_) > 1e-6))
    best = programme(X, y, np.ones(60), 0.5, 0.2)
    assert pinball(dense, X, y, np.ones(60), 0.5, 0.2) <= best * (1 + 1e-6)


def test_more_columns_than_rows_without_a_penalty_interpolates() -> None:
    rng = np.random.default_rng(4)
    X, y = rng.normal(size=(12, 40)), rng.normal(size=12)
    for model in (QuantileRegressor(alpha=0), RobustRegressor("absolute")):
        model.fit(X, y)
        np.testing.assert_allclose(model.predict(X), y, atol=1e-8)
        assert model.certificate_.met


def test_sparse_rows_are_never_made_dense() -> None:
    X = sparse.random_array((30_000, 20_000), density=1e-4, rng=0, format="csr")
    y = np.asarray(X @ np.ones(20_000)) + np.random.default_rng(0).normal(size=30_000)
    model = QuantileRegressor(alpha=3e-4, max_time=20).fit(X, y)  # 4.8 GB if dense
    assert model.certificate_.met, model.certificate_


def test_too_many_columns_without_a_penalty_are_refused() -> None:
    X = sparse.random_array((7_000, 8_000), density=1e-4, rng=0, format="csr")
    with pytest.raises(ValueError, match="alpha > 0"):
        QuantileRegressor(alpha=0).fit(X, np.arange(7_000.0))


def test_a_forged_dual_point_makes_no_fit_look_better() -> None:
    X, y, _ = data(10)
    model = QuantileRegressor(alpha=0.05).fit(X, y)
    evidence = model.certificate_.evidence
    honest = model.certificate_.value
    rng = np.random.default_rng(0)
    for forged in (
        np.zeros(80),
        1e6 * rng.normal(size=80),
        -np.asarray(evidence.witness.dual),
        np.full(80, np.nan),
    ):
        other = Evidence(evidence.kind, witness=LinearWitness(forged))
        found = judge(model, other, X, y)
        assert found.value >= honest - 1e-12
    best = programme(X, y, np.ones(80), 0.5, 0.05)
    wrong = copy.deepcopy(model)
    wrong.coef_, wrong.intercept_ = np.zeros(3), 0.0
    for dual in (evidence.witness.dual, rng.uniform(-0.5, 0.5, 80)):
        other = Evidence("linear", witness=LinearWitness(dual))
        found = judge(wrong, other, X, y)
        truth = pinball(wrong, X, y, np.ones(80), 0.5, 0.05) - best
        reference = np.mean(np.abs(y - np.median(y))) / 2
        assert found.value >= truth / reference * (1 - 1e-9)


@pytest.mark.parametrize("alpha", [1e-12, 1e-10, 1e-8])
@pytest.mark.parametrize("n", [80, 2000])
def test_penalties_near_rounding_are_solved_far_below_the_target(
    alpha: float, n: int
) -> None:
    """The dual point stays inside a ball of a size that rounding could leave."""
    for seed in range(5):
        X, y, _ = data(seed, n)
        for level in (0.2, 0.5):
            model = QuantileRegressor(quantile=level, alpha=alpha).fit(X, y)
            claim = model.certificate_.claims[0]
            assert claim.met and claim.value < 1e-3 * claim.target, (seed, claim)
