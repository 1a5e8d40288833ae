"""Robust and quantile regression: known optima, bounds that hold, invariances.

References are linear programmes, brute force over vertices and general minimisers; the
bounds are tested as inequalities at arbitrary points, not at solutions alone.
"""

from itertools import combinations
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse
from scipy.optimize import linprog, minimize

import certus
from certus import terms as t
from certus.certificate import Evidence, Status, Strength
from certus.convex import quantile as solver
from certus.convex.interior import Kinked
from certus.convex.losses import HuberScale, evaluate, huber_scale
from certus.convex.newton import Rows
from certus.linear import (
    HuberRegressor,
    LinearRegression,
    QuantileRegressor,
    RobustRegressor,
)
from certus.verify import judge
from certus.verify.huber import (
    Point,
    best_scale,
    feasible,
    joint_gap,
    perspective,
)

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


# -- absolute errors ----------------------------------------------------------------


@pytest.mark.catalog("LOSS-02")
@pytest.mark.parametrize("n", [1, 2, 5, 8, 101])
def test_the_constant_of_least_absolute_error_is_the_median(n: int) -> None:
    rng = np.random.default_rng(n)
    y = rng.exponential(size=n)
    model = RobustRegressor("absolute").fit(np.zeros((n, 1)), y)
    assert np.abs(y - model.intercept_).sum() == pytest.approx(
        np.abs(y - np.median(y)).sum(), rel=1e-9, abs=1e-9
    )
    assert model.certificate_.met


@pytest.mark.catalog("LOSS-02")
def test_one_outlier_moves_least_squares_and_not_least_absolute_errors() -> None:
    X, y, _ = data()
    fits = {}
    for far in (1e3, 1e6, 1e9):
        moved = y.copy()
        moved[7] = far
        fits[far] = (
            RobustRegressor("absolute").fit(X, moved).coef_,
            LinearRegression().fit(X, moved).coef_,
        )
    absolute, squared = zip(*fits.values())
    np.testing.assert_allclose(absolute[1], absolute[0], rtol=1e-6)
    np.testing.assert_allclose(absolute[2], absolute[0], rtol=1e-6)
    assert np.linalg.norm(squared[2]) > 1e5 * np.linalg.norm(squared[0]) / 10
    plain = RobustRegressor("absolute").fit(X, y).coef_
    assert np.linalg.norm(absolute[2] - plain) < 0.2


@pytest.mark.parametrize("seed", range(5))
def test_least_absolute_errors_pass_through_as_many_rows_as_coefficients(
    seed: int,
) -> None:
    X, y, _ = data(seed, n=9, d=1)
    best = np.inf
    for pair in combinations(range(9), 2):
        A = np.column_stack([X[list(pair), 0], np.ones(2)])
        w, b = np.linalg.solve(A, y[list(pair)])
        best = min(best, np.abs(y - w * X[:, 0] - b).sum())
    model = RobustRegressor("absolute").fit(X, y)
    e = y - model.predict(X)
    assert np.abs(e).sum() == pytest.approx(best, rel=1e-9)
    assert np.sum(np.abs(e) < 1e-9) >= 2


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
        rows = Rows(X, y, np.ones(len(y)), float(len(y)))
        kept, solver.MANY_ROWS = solver.MANY_ROWS, 10**9
        try:
            loss = Kinked(q, 1 - q)
            plain = solver.solve(rows, loss, alpha, 0.0, True, 1e-9, 100)
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


# -- fixed thresholds ---------------------------------------------------------------


@pytest.mark.catalog("REG-26")
@pytest.mark.parametrize("loss", ["absolute", "huber", "tukey"])
def test_gross_outliers_do_a_tenth_of_the_harm(loss: str) -> None:
    X, y, w = data(5, n=400, d=4, outliers=0.2)
    squared = LinearRegression().fit(X, y)
    robust = RobustRegressor(loss).fit(X, y)
    harm = np.linalg.norm(squared.coef_ - w)
    assert np.linalg.norm(robust.coef_ - w) <= 0.1 * harm


@pytest.mark.catalog("LOSS-04")
def test_a_gross_outlier_has_no_influence_on_tukey() -> None:
    X, y, _ = data(6)
    kept = np.arange(len(y)) != 7
    without = RobustRegressor("tukey", tol=1e-10).fit(X[kept], y[kept])
    for far in (1e3, 1e9):
        moved = y.copy()
        moved[7] = far
        model = RobustRegressor("tukey", tol=1e-10).fit(X, moved)
        np.testing.assert_allclose(model.coef_, without.coef_, rtol=1e-7)
        assert model.weights_[7] == 0.0
        assert (
            "1 of 80 rows have no influence"
            in model.certificate_["stationarity"].detail
        )


def test_tukey_is_measured_and_its_curvature_reported() -> None:
    X, y, _ = data(7, outliers=0.1)
    model = RobustRegressor("tukey").fit(X, y)
    claim = model.certificate_["stationarity"]
    assert claim.strength is Strength.MEASURED and claim.met is None
    assert model.certificate_.status is Status.SOLVED and claim.value <= 1e-6
    full = certus.certify(model, X, y, level="full")
    assert full["curvature"].value > 0
    # A point half-way up the hill: the gradient vanishes nowhere near.
    model.coef_ = model.coef_ + 1.0
    assert certus.certify(model, X, y).status is not Status.SOLVED


def test_a_perfect_fit_is_stationary() -> None:
    X, _, w = data(7)
    for loss in ("absolute", "huber", "tukey"):
        model = RobustRegressor(loss).fit(X, X @ w + 3.0)
        assert model.certificate_.status is Status.SOLVED, model.certificate_
        np.testing.assert_allclose(model.coef_, w, rtol=1e-8)


def test_huber_tends_to_least_squares_and_to_absolute_errors() -> None:
    X, y, _ = data(8, outliers=0.1)
    wide = RobustRegressor("huber", delta=1e6).fit(X, y)
    np.testing.assert_allclose(
        wide.coef_, LinearRegression().fit(X, y).coef_, rtol=1e-8
    )
    narrow = RobustRegressor("huber", delta=1e-7, max_iter=500).fit(X, y)
    absolute = RobustRegressor("absolute").fit(X, y)
    assert narrow.certificate_.met
    np.testing.assert_allclose(narrow.coef_, absolute.coef_, atol=1e-5)


@given(
    seed=st.integers(0, 10**6),
    n=st.integers(2, 30),
    d=st.integers(1, 5),
    delta=st.sampled_from([1e-3, 0.3, 1.35, 20.0]),
    alpha=st.sampled_from([0.0, 1e-6, 0.1, 10.0]),
)
@settings(max_examples=60, deadline=None)
def test_huber_against_a_general_minimiser(
    seed: int, n: int, d: int, delta: float, alpha: float
) -> None:
    rng = np.random.default_rng(seed)
    X, y = rng.normal(size=(n, d)), 3 * rng.standard_t(2, size=n)
    model = RobustRegressor("huber", delta=delta, alpha=alpha).fit(X, y)

    def objective(v: Array) -> float:
        e = np.abs(y - X @ v[:-1] - v[-1])
        loss = np.where(e <= delta, e * e / 2, delta * (e - delta / 2))
        return float(loss.mean() + alpha * v[:-1] @ v[:-1] / 2)

    found = objective(np.append(model.coef_, model.intercept_))
    other = minimize(objective, np.append(model.coef_, model.intercept_), method="BFGS")
    constant = min(objective(np.append(np.zeros(d), b)) for b in np.sort(y))
    assert found <= other.fun + 2e-6 * constant + 1e-12
    assert model.certificate_.met, model.certificate_


# -- the backward gap ---------------------------------------------------------------


@given(seed=st.integers(0, 10**6), kind=st.sampled_from(["absolute", "huber"]))
@settings(max_examples=30, deadline=None)
def test_backward_gap_bounds_the_distance_on_the_changed_data(
    seed: int, kind: str
) -> None:
    """Away from the solution too: some X + E within the share is within the value."""
    from certus.verify.convex import Problem, dual_point, scores
    from certus.verify.kinks import changed

    rng = np.random.default_rng(seed)
    X, y = rng.normal(size=(15, 2)), rng.normal(size=15)
    s = rng.uniform(0.5, 2, 15)
    loss: Any = t.Absolute() if kind == "absolute" else t.Huber(0.5)
    w, b = rng.normal(size=2), 0.1
    p = Problem(loss, t.NoPenalty(), X, y, s, w, b, "free")
    u = dual_point(p, scores(p))
    found = changed(loss, X, y, s, w, scores(p), u, True)
    E = -np.outer(u, (s * u) @ X) / ((s * u) @ u)
    centred = X - s @ X / s.sum()
    norm = np.sqrt((s * np.square(centred).sum(axis=1)).sum())
    assert np.sqrt(s @ np.square(E).sum(axis=1)) / norm == pytest.approx(found.share)

    def objective(v: Array) -> float:
        e = np.abs(y - (X + E) @ v[:-1] - v[-1])
        if kind == "huber":
            e = np.where(e <= 0.5, e * e / 2, 0.5 * (e - 0.25))
        return float(s @ e / s.sum())

    here = objective(np.append(w, b))
    assert here == pytest.approx(found.primal)
    best = min(
        minimize(objective, start, method="Nelder-Mead", options={"maxiter": 2000}).fun
        for start in (np.append(w, b), np.zeros(3))
    )
    assert found.dual <= best + 1e-9


def test_an_unpenalised_fit_is_proved_and_a_changed_one_refuted() -> None:
    X, y, _ = data(9)
    for model in (
        QuantileRegressor(alpha=0, quantile=0.7),
        RobustRegressor("absolute"),
        RobustRegressor("huber"),
        HuberRegressor(alpha=0),
    ):
        model.fit(X, y)
        claim = model.certificate_["backward_gap"]
        assert claim.strength is Strength.PROVED and claim.met
        model.coef_ = model.coef_ + 0.01
        again = certus.certify(model, X, y)
        assert again.status is Status.REFUTED and again.value > 1e-4


def test_a_forged_dual_point_makes_no_fit_look_better() -> None:
    X, y, _ = data(10)
    model = QuantileRegressor(alpha=0.05).fit(X, y)
    evidence = model.certificate_.evidence
    honest = model.certificate_.value
    rng = np.random.default_rng(0)
    for forged in (
        np.zeros(80),
        1e6 * rng.normal(size=80),
        -np.asarray(evidence.arrays["dual"]),
        np.full(80, np.nan),
    ):
        other = Evidence(
            evidence.kind, evidence.terms, evidence.params, {"dual": forged}
        )
        found = judge(model, other, X, y)
        assert found.value >= honest - 1e-12
    best = programme(X, y, np.ones(80), 0.5, 0.05)
    wrong = SimpleNamespace(coef_=np.zeros(3), intercept_=0.0)
    for dual in (evidence.arrays["dual"], rng.uniform(-0.5, 0.5, 80)):
        other = Evidence("linear", evidence.terms, evidence.params, {"dual": dual})
        found = judge(wrong, other, X, y)
        truth = pinball(wrong, X, y, np.ones(80), 0.5, 0.05) - best
        reference = np.mean(np.abs(y - np.median(y))) / 2
        assert found.value >= truth / reference * (1 - 1e-9)


# -- Huber with its scale -----------------------------------------------------------


def joint(
    v: Array, X: Array, y: Array, s: Array, epsilon: float, alpha: float
) -> float:
    """P(w, b, σ), written down once more; v = (w, b, σ)."""
    r, sigma = np.abs(y - X @ v[:-2] - v[-2]), v[-1]
    if sigma < 0:
        return np.inf
    if sigma == 0:
        losses = 2 * epsilon * r
    else:
        k = r / sigma
        h = np.where(k <= epsilon, k * k, 2 * epsilon * k - epsilon**2)
        losses = sigma * h
    total = s.sum()
    return float(sigma + s @ losses / total + alpha / total * v[:-2] @ v[:-2])


@given(
    seed=st.integers(0, 10**6),
    epsilon=st.sampled_from([1.0, 1.1, 1.35, 3.0]),
    alpha=st.sampled_from([1e-4, 0.1, 10.0]),
    scale=st.sampled_from([0.0, 1e-3, 0.5, 2.0]),
)
@settings(max_examples=60, deadline=None)
def test_the_joint_bound_holds_at_any_point(
    seed: int, epsilon: float, alpha: float, scale: float
) -> None:
    rng = np.random.default_rng(seed)
    n, d = 20, 2
    X, y = rng.normal(size=(n, d)), rng.standard_t(3, size=n)
    s = rng.uniform(0.2, 2, n)
    w, b = rng.normal(size=d), float(rng.normal())
    found = joint_gap(Point(X, y, s, w, b, scale, epsilon, alpha, True))
    model = HuberRegressor(epsilon=epsilon, alpha=alpha).fit(X, y, s)
    best = joint(
        np.array([*model.coef_, model.intercept_, model.scale_]),
        X,
        y,
        s,
        epsilon,
        alpha,
    )
    here = joint(np.array([*w, b, scale]), X, y, s, epsilon, alpha)
    order = np.argsort(y)
    mass = np.cumsum(s[order])
    median = y[order[np.searchsorted(mass, mass[-1] / 2)]]
    sigma = best_scale(y - median, s, epsilon)
    base = joint(np.array([0.0, 0.0, median, sigma]), X, y, s, epsilon, 0.0)
    assert found.value * base >= here - best - 1e-9
    assert model.certificate_.met, model.certificate_


@given(seed=st.integers(0, 10**6), epsilon=st.floats(1.0, 3.0))
@settings(deadline=None)
def test_the_dual_of_the_perspective(seed: int, epsilon: float) -> None:
    """φ(r, σ) ≥ ar − σa²/4 for |a| ≤ 2ε, with equality at its slope."""
    rng = np.random.default_rng(seed)
    r, sigma = 3 * rng.normal(size=50), float(rng.uniform(0, 2))
    a = rng.uniform(-2 * epsilon, 2 * epsilon, 50)
    value = perspective(r, sigma, epsilon)
    assert np.all(value >= a * r - sigma * a * a / 4 - 1e-12)
    if sigma > 0:
        a = np.clip(2 * r / sigma, -2 * epsilon, 2 * epsilon)
        np.testing.assert_allclose(value, a * r - sigma * a * a / 4, atol=1e-12)
    s = rng.uniform(0.1, 2, 50)
    made = feasible(100 * rng.normal(size=50), s, epsilon, True)
    assert abs(s @ made) < 1e-9 and np.abs(made).max() <= 2 * epsilon
    assert s @ (made * made) <= 4 * s.sum() * (1 + 1e-12)


@given(
    seed=st.integers(0, 10**6), epsilon=st.floats(1.0, 4.0), zeros=st.integers(0, 25)
)
@settings(deadline=None)
def test_both_formulas_of_the_scale_agree(
    seed: int, epsilon: float, zeros: int
) -> None:
    rng = np.random.default_rng(seed)
    r, s = rng.standard_t(2, size=30), rng.uniform(0.1, 2, 30)
    r[:zeros] = 0.0
    found = huber_scale(r, s, epsilon)
    if epsilon > 1.001:  # at 1 every σ below the smallest residual is as good
        assert found == pytest.approx(best_scale(r, s, epsilon), rel=1e-9, abs=1e-300)
    if found > 0:
        assert s @ np.minimum((r / found) ** 2, epsilon**2) == pytest.approx(s.sum())

    def value(sigma: float) -> float:
        return sigma + s @ perspective(r, sigma, epsilon) / s.sum()

    for other in (0.0, 0.5 * found, 0.99 * found, 1.01 * found, found + 0.1):
        assert value(found) <= value(other) + 1e-12


def test_the_solver_s_joint_loss_is_the_perspective_at_its_best() -> None:
    rng = np.random.default_rng(0)
    y, z, s = rng.standard_t(2, size=40), rng.normal(size=(40, 1)), rng.uniform(size=40)
    found = evaluate(HuberScale(1.35), y, z, s)
    sigma = best_scale(y - z[:, 0], s, 1.35)
    expected = sigma + perspective(y - z[:, 0], sigma, 1.35)
    np.testing.assert_allclose(found.value, expected, rtol=1e-12)
    step = 1e-6 * rng.normal(size=(40, 1))

    def mean(z: Array) -> float:
        return float(s @ evaluate(HuberScale(1.35), y, z, s).value / s.sum())

    change = (mean(z + step) - mean(z - step)) / 2
    assert change == pytest.approx(
        float(s @ (found.slope * step)[:, 0] / s.sum()), rel=1e-5
    )


def test_a_perfect_fit_has_no_scale() -> None:
    X, _, w = data(11)
    y = X @ w + 1.0
    model = HuberRegressor(alpha=0).fit(X, y)
    np.testing.assert_allclose(model.coef_, w, rtol=1e-9)
    assert model.scale_ <= 1e-9 and model.certificate_.met
    y[:5] += 10.0  # five rows of eighty are wrong: the others still fit exactly
    model = HuberRegressor(alpha=0).fit(X, y)
    np.testing.assert_allclose(model.coef_, w, rtol=1e-9)
    assert model.outliers_[:5].all() and model.scale_ <= 1e-9


def test_epsilon_one_is_least_absolute_errors() -> None:
    """With epsilon = 1 the slope in σ never falls below zero: σ = 0 is best."""
    X, y, _ = data(12)
    model = HuberRegressor(epsilon=1.0, alpha=0).fit(X, y)
    absolute = RobustRegressor("absolute").fit(X, y)
    assert model.scale_ == 0.0 and model.certificate_.met
    np.testing.assert_allclose(model.coef_, absolute.coef_, rtol=1e-6)


def test_a_forged_scale_is_noticed() -> None:
    X, y, _ = data(13)
    model = HuberRegressor().fit(X, y)
    for scale in (-1.0, np.nan, 0.0, 1.1 * model.scale_, 1e9):
        other = HuberRegressor().fit(X, y)
        other.scale_ = scale
        found = certus.certify(other, X, y)
        assert found.met is False and found.status is not Status.SOLVED


# -- invariances --------------------------------------------------------------------

EVERY = [
    RobustRegressor("absolute"),
    RobustRegressor("huber", alpha=0.1),
    RobustRegressor("tukey", tol=1e-9),
    HuberRegressor(tol=1e-9),
    QuantileRegressor(quantile=0.3, alpha=0.01),
]


@pytest.mark.parametrize("model", EVERY, ids=repr)
def test_shift_and_scale_of_the_target(model: Any) -> None:
    """y → c·y + a moves the fit along; delta and penalties are in their own units."""
    from sklearn.base import clone

    X, y, _ = data(14)
    plain = clone(model).fit(X, y)
    shifted = clone(model).fit(X, y + 1000.0)
    np.testing.assert_allclose(shifted.coef_, plain.coef_, atol=2e-5)
    assert shifted.intercept_ == pytest.approx(plain.intercept_ + 1000, abs=1e-4)


@pytest.mark.parametrize("model", EVERY, ids=repr)
def test_time_limits_leave_a_usable_model(model: Any) -> None:
    from sklearn.base import clone

    X, y, _ = data(15, n=5000, d=5)
    model = clone(model).set_params(max_time=0.0)
    with certus.config_context(on_uncertified="ignore"):
        model.fit(X, y)
    assert np.isfinite(model.predict(X)).all()
    assert model.certificate_.status in (Status.TIME_LIMIT, Status.SOLVED)


@pytest.mark.parametrize("model", EVERY, ids=repr)
def test_history_is_kept(model: Any) -> None:
    from sklearn.base import clone

    X, y, _ = data(16)
    model = clone(model).fit(X, y)
    assert len(model.history_["gap"]) == len(model.history_["objective"]) > 0
    assert model.n_iter_ <= model.max_iter and model.solver_ and model.solver_reason_


@pytest.mark.parametrize(
    ("model", "match"),
    [
        (RobustRegressor("cauchy"), "loss must be one of"),
        (RobustRegressor(delta=0), "delta"),
        (RobustRegressor(alpha=-1), "alpha"),
        (HuberRegressor(epsilon=0.9), "epsilon"),
        (HuberRegressor(max_iter=-1), "max_iter"),
        (QuantileRegressor(quantile=0), "quantile"),
        (QuantileRegressor(quantile=1), "quantile"),
        (QuantileRegressor(solver="simplex"), "solver"),
    ],
    ids=repr,
)
def test_parameters_are_checked(model: Any, match: str) -> None:
    X, y, _ = data()
    with pytest.raises(ValueError, match=match):
        model.fit(X, y)


def test_an_intercept_that_was_not_asked_for_proves_nothing() -> None:
    X, y, _ = data(17)
    for model in (
        QuantileRegressor(alpha=0.01, fit_intercept=False),
        RobustRegressor("huber", alpha=0.1, fit_intercept=False),
        HuberRegressor(fit_intercept=False),
    ):
        model.fit(X, y)
        assert model.certificate_.met
        model.intercept_ = 1.0  # lowers the objective below its minimum without one
        assert certus.certify(model, X, y).status is not Status.SOLVED
        assert certus.certify(model, X, y).met is False


@pytest.mark.parametrize("alpha", [1e-12, 1e-6, 1e6, 1e12])
def test_penalties_of_any_size(alpha: float) -> None:
    X, y, _ = data(18)
    for model in (
        QuantileRegressor(alpha=alpha),
        RobustRegressor("absolute", alpha=alpha),
        RobustRegressor("huber", alpha=alpha),
        HuberRegressor(alpha=alpha),
    ):
        assert model.fit(X, y).certificate_.met, model
    if alpha == 1e12:
        np.testing.assert_array_equal(QuantileRegressor(alpha=alpha).fit(X, y).coef_, 0)


def test_a_grid_search_in_two_processes() -> None:
    from sklearn.model_selection import GridSearchCV

    X, y, _ = data(19)
    search = GridSearchCV(QuantileRegressor(), {"alpha": [0.0, 0.01]}, n_jobs=2, cv=3)
    assert search.fit(X, y).best_estimator_.certificate_.met
    assert certus.certify(search, X, y).met
