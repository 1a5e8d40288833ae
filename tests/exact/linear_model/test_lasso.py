"""Lasso and elastic net: optimality conditions, closed forms, paths and folds."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from certus.linear_model import (
    ElasticNet,
    ElasticNetCV,
    Lasso,
    LassoCV,
    Ridge,
    enet_path,
    lasso_path,
)
from certus.objectives import terms as t
from certus.testing.problems import soft_threshold
from certus.verify.kernel.penalties import PENALTIES

Array = np.ndarray
TIGHT = 1e-12


def penalty_value(penalty: t.Penalty, w: Array) -> float:
    return PENALTIES[type(penalty)].value(penalty, w)


def slope(f: Any, x: Array, step: float = 1e-5) -> Array:
    """Central differences of a function of an array."""
    x = np.asarray(x, dtype=float)
    out = np.empty(x.shape)
    for i in np.ndindex(x.shape):
        e = np.zeros(x.shape)
        e[i] = step
        out[i] = (f(x + e) - f(x - e)) / (2 * step)
    return out


def orthonormal(n: int, d: int, seed: int = 0) -> Array:
    """Columns with XᵀX = n·I."""
    rng = np.random.default_rng(seed)
    return np.sqrt(n) * np.linalg.qr(rng.normal(size=(n, d)))[0]


@pytest.mark.catalog("REG-22")
@given(seed=st.integers(0, 10**6), share=st.floats(0.02, 0.9), wide=st.booleans())
@settings(max_examples=40)
def test_lasso_meets_its_optimality_conditions(
    seed: int, share: float, wide: bool
) -> None:
    rng = np.random.default_rng(seed)
    n, d = (15, 30) if wide else (40, 6)
    X, y = rng.normal(size=(n, d)), rng.normal(size=n)
    top = np.abs(X.T @ y).max() / n
    alpha = share * top
    w = Lasso(alpha, fit_intercept=False, tol=1e-12, max_iter=5000).fit(X, y).coef_
    pull = X.T @ (y - X @ w) / n
    assert np.abs(pull).max() <= alpha * (1 + 1e-5)
    on = w != 0
    np.testing.assert_allclose(pull[on], alpha * np.sign(w[on]), atol=1e-5 * alpha)
    assert np.any(on)  # since alpha < top


@pytest.mark.catalog("REG-22")
@pytest.mark.parametrize("intercept", [True, False])
def test_the_level_at_which_the_lasso_vanishes(intercept: bool) -> None:
    rng = np.random.default_rng(14)
    X, y = rng.normal(1, 1, (30, 8)), rng.normal(1, 1, 30)
    centred = (X - X.mean(0), y - y.mean()) if intercept else (X, y)
    top = np.abs(centred[0].T @ centred[1]).max() / 30
    above = Lasso(top * (1 + 1e-12), fit_intercept=intercept).fit(X, y)
    below = Lasso(top * 0.999, fit_intercept=intercept, tol=1e-12).fit(X, y)
    assert not above.coef_.any() and above.certificate_.met
    assert below.coef_.any()


@pytest.mark.catalog("REG-23")
@pytest.mark.parametrize("l2", [0.0, 0.7])
def test_orthonormal_columns_are_soft_thresholded(l2: float) -> None:
    rng = np.random.default_rng(15)
    n, d = 60, 12
    X = orthonormal(n, d)
    y = X @ rng.normal(size=d) + 0.1 * rng.normal(size=n)
    correlation, zeros = X.T @ y / n, []
    for l1 in (0.05, 0.3, 0.8, 1.5):
        alpha = l1 + l2
        model = ElasticNet(alpha, l1_ratio=l1 / alpha, fit_intercept=False, tol=TIGHT)
        w = model.fit(X, y).coef_
        expected = soft_threshold(correlation, l1) / (1 + l2)
        np.testing.assert_allclose(w, expected, atol=1e-7)
        zeros.append(int((w == 0).sum()))
        assert (Ridge(n * l1, fit_intercept=False).fit(X, y).coef_ != 0).all()
    assert zeros == sorted(zeros) and zeros[0] < zeros[-1]


@pytest.mark.catalog("REG-24")
@given(
    w=st.floats(-5, 5), v=st.floats(-5, 5), g=st.floats(-1, 1), alpha=st.floats(0.1, 3)
)
def test_subgradient_of_the_norms(w: float, v: float, g: float, alpha: float) -> None:
    g = np.sign(w) if w else g
    there = penalty_value(t.L1(alpha), np.array([v]))
    here = penalty_value(t.L1(alpha), np.array([w]))
    assert there >= here + alpha * g * (v - w) - 1e-12
    steep = 1.1 if g >= 0 else -1.1  # outside [−1, 1] is no subgradient at 0
    assert penalty_value(t.L1(alpha), np.array([np.sign(steep)])) < alpha * abs(steep)
    square = slope(lambda x: penalty_value(t.L2(2.0), x), np.array([w]))
    np.testing.assert_allclose(square, 2 * w, atol=1e-8)  # of ‖w‖²


@pytest.mark.parametrize("l1_ratio", [1.0, 0.4])
@pytest.mark.parametrize("shape", [(40, 10), (20, 60)])
def test_paths_equal_single_fits(shape: tuple[int, int], l1_ratio: float) -> None:
    rng = np.random.default_rng(16)
    X, y = rng.normal(size=shape), rng.normal(size=shape[0])
    options = {"alphas": 12, "eps": 1e-2, "tol": 1e-12}
    if l1_ratio == 1.0:
        alphas, coefs, gaps = lasso_path(X, y, **options)
    else:
        alphas, coefs, gaps = enet_path(X, y, l1_ratio=l1_ratio, **options)
    assert coefs.shape == (shape[1], 12) and not coefs[:, 0].any()
    assert np.all(np.diff(alphas) < 0)
    assert alphas[-1] == pytest.approx(alphas[0] * 1e-2)
    assert gaps.max() <= 1e-12 * y @ y / len(y)
    for alpha, w in zip(alphas, coefs.T):
        single = ElasticNet(
            alpha, l1_ratio=l1_ratio, fit_intercept=False, tol=1e-12
        ).fit(X, y)
        np.testing.assert_allclose(w, single.coef_, atol=1e-5)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("ratios", [1.0, [0.3, 0.9]])
def test_errors_of_the_folds_equal_explicit_loops(ratios: Any, weighted: bool) -> None:
    rng = np.random.default_rng(17)
    X = rng.normal(0.5, 1, (40, 7))
    y = X[:, 0] - X[:, 1] + rng.normal(size=40)
    s = rng.uniform(0.2, 2, 40) if weighted else None
    folds = [(np.arange(40) % 4 != f, np.arange(40) % 4 == f) for f in range(4)]
    cv = [(np.flatnonzero(a), np.flatnonzero(b)) for a, b in folds]
    options = {"alphas": 6, "cv": cv, "tol": TIGHT}
    model: Any = (
        LassoCV(**options)
        if ratios == 1.0
        else ElasticNetCV(l1_ratio=ratios, **options)
    )
    model.fit(X, y, sample_weight=s)
    levels = np.atleast_1d(ratios)
    paths = model.mse_path_.reshape(len(levels), 6, 4)
    grids = np.reshape(model.alphas_, (len(levels), 6))
    weight = np.ones(40) if s is None else s
    for r, ratio in enumerate(levels):
        for a, alpha in enumerate(grids[r]):
            for f, (train, test) in enumerate(folds):
                one = ElasticNet(alpha, l1_ratio=ratio, tol=TIGHT)
                one.fit(X[train], y[train], sample_weight=weight[train])
                square = (y[test] - one.predict(X[test])) ** 2
                expected = np.average(square, weights=weight[test])
                assert paths[r, a, f] == pytest.approx(expected, rel=1e-5)
    shares = [weight[test].sum() for _, test in folds]
    mean = np.average(paths, axis=2, weights=shares)
    r, a = np.unravel_index(mean.argmin(), mean.shape)
    assert (model.l1_ratio_, model.alpha_) == (levels[r], grids[r, a])
    final = ElasticNet(model.alpha_, l1_ratio=model.l1_ratio_, tol=TIGHT)
    np.testing.assert_allclose(
        model.coef_, final.fit(X, y, sample_weight=s).coef_, atol=1e-9
    )
