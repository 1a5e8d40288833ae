"""Robust, quantile and generalised linear regression against other libraries.

scikit-learn's classes of the same name on random problems (dense, sparse, weighted,
with and without an intercept), statsmodels' robust, quantile and generalised linear
models, and ``certify`` on models that scikit-learn fitted.
"""

import inspect
from typing import Any

import numpy as np
import pytest
import statsmodels.api as sm
from scipy import sparse
from sklearn import linear_model as theirs
from sklearn.exceptions import ConvergenceWarning

import certus
from certus import linear_model as ours
from certus.certificate import Status, Strength

Array = np.ndarray
DROP_INS = ("HuberRegressor", "QuantileRegressor", "PoissonRegressor")


def data(seed: int = 0, n: int = 150, d: int = 4) -> tuple[Array, Array, Array]:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d))
    y = X @ rng.normal(size=d) + 2 + rng.standard_t(2, size=n)
    return X, y, rng.uniform(0.2, 3, n)


def counts(seed: int = 0, n: int = 150, d: int = 4) -> tuple[Array, Array, Array]:
    X, _, s = data(seed, n, d)
    rng = np.random.default_rng(seed + 1)
    return X, rng.poisson(np.exp(X @ (0.4 * rng.normal(size=d)) + 0.5)) * 1.0, s


@pytest.mark.parametrize("name", DROP_INS)
def test_parameters_and_attributes_are_those_of_scikit_learn(name: str) -> None:
    mine, other = getattr(ours, name), getattr(theirs, name)
    own = inspect.signature(mine).parameters
    for key, value in inspect.signature(other).parameters.items():
        if key not in ("tol", "solver"):  # the drop-in table names both
            assert own[key].default == value.default
    X, y, _ = counts() if name == "PoissonRegressor" else data()
    fitted, reference = mine().fit(X, y), other().fit(X, y)
    public = {k for k in vars(reference) if k.endswith("_") and not k.startswith("_")}
    assert public <= set(vars(fitted))
    assert fitted.coef_.shape == reference.coef_.shape
    assert np.ndim(fitted.intercept_) == np.ndim(reference.intercept_)


# -- Huber --------------------------------------------------------------------------


@pytest.mark.catalog("REG-26")
@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("weighted", [True, False])
@pytest.mark.parametrize(("epsilon", "alpha"), [(1.35, 1e-4), (1.1, 1.0), (3.0, 0.0)])
def test_huber_is_that_of_scikit_learn(
    epsilon: float, alpha: float, weighted: bool, intercept: bool
) -> None:
    X, y, s = data(1)
    weight = s if weighted else None
    options = {"epsilon": epsilon, "alpha": alpha, "fit_intercept": intercept}
    mine = ours.HuberRegressor(**options, tol=1e-10).fit(X, y, weight)
    other = theirs.HuberRegressor(**options, tol=1e-9, max_iter=5000)
    other.fit(X, y, weight)
    np.testing.assert_allclose(mine.coef_, other.coef_, rtol=1e-4, atol=1e-5)
    assert mine.intercept_ == pytest.approx(other.intercept_, rel=1e-4, abs=1e-5)
    assert mine.scale_ == pytest.approx(other.scale_, rel=1e-4)
    assert np.mean(mine.outliers_ != other.outliers_) <= 2 / len(y)
    value = huber_objective(mine, X, y, weight)
    assert value <= huber_objective(other, X, y, weight) * (1 + 1e-12)


def huber_objective(model: Any, X: Array, y: Array, s: Array | None) -> float:
    """As scikit-learn documents it: a sum."""
    s = np.ones(len(y)) if s is None else s
    r, sigma = np.abs(y - model.predict(X)), model.scale_
    k = r / sigma
    eps = model.epsilon
    H = np.where(k < eps, k**2, 2 * eps * k - eps**2)
    return float(s @ (sigma + H * sigma) + model.alpha * model.coef_ @ model.coef_)


def test_sparse_huber_is_dense_huber() -> None:
    X, y, s = data(2)
    X[np.random.default_rng(0).uniform(size=X.shape) < 0.5] = 0.0
    dense = ours.HuberRegressor(tol=1e-10).fit(X, y, s)
    for form in (sparse.csr_matrix, sparse.csc_array):
        other = ours.HuberRegressor(tol=1e-10).fit(form(X), y, s)
        np.testing.assert_allclose(other.coef_, dense.coef_, rtol=1e-6)
        assert other.scale_ == pytest.approx(dense.scale_, rel=1e-6)


@pytest.mark.catalog("REG-26")
@pytest.mark.parametrize("norm", ["huber", "tukey"])
def test_fixed_thresholds_are_statsmodels(norm: str) -> None:
    """RLM divides residuals by a scale it estimates; at that scale both agree."""
    X, y, _ = data(3)
    kind = sm.robust.norms.HuberT if norm == "huber" else sm.robust.norms.TukeyBiweight
    threshold = 1.345 if norm == "huber" else 4.685
    model = sm.RLM(y, sm.add_constant(X), M=kind(threshold))
    found = model.fit(maxiter=500, tol=1e-12, conv="coefs")
    mine = ours.RobustRegressor(norm, threshold=threshold * found.scale, tol=1e-12)
    with certus.config_context(on_uncertified="ignore"):
        mine.fit(X, y)
    np.testing.assert_allclose(mine.coef_, found.params[1:], rtol=1e-6)
    assert mine.intercept_ == pytest.approx(found.params[0], rel=1e-6)
    np.testing.assert_allclose(mine.weights_, found.weights, atol=1e-6)


# -- quantiles ----------------------------------------------------------------------


@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("weighted", [True, False])
@pytest.mark.parametrize(
    ("q", "alpha"), [(0.5, 0.0), (0.1, 0.0), (0.5, 0.03), (0.8, 0.1), (0.5, 1.0)]
)
def test_quantile_is_that_of_scikit_learn(
    q: float, alpha: float, weighted: bool, intercept: bool
) -> None:
    X, y, s = data(4, n=121)
    weight = s if weighted else None
    options = {"quantile": q, "alpha": alpha, "fit_intercept": intercept}
    mine = ours.QuantileRegressor(**options).fit(X, y, weight)
    other = theirs.QuantileRegressor(**options).fit(X, y, weight)
    np.testing.assert_allclose(mine.coef_, other.coef_, atol=1e-7)
    np.testing.assert_array_equal(mine.coef_ == 0, np.abs(other.coef_) < 1e-9)
    if alpha < 1:  # with every slope zero the best constants may fill an interval
        assert mine.intercept_ == pytest.approx(other.intercept_, abs=1e-7)


@pytest.mark.parametrize("q", [0.25, 0.5, 0.9])
def test_quantile_is_statsmodels(q: float) -> None:
    X, y, _ = data(5)
    mine = ours.QuantileRegressor(quantile=q, alpha=0).fit(X, y)
    found = sm.QuantReg(y, sm.add_constant(X)).fit(q=q, p_tol=1e-9, max_iter=5000)
    np.testing.assert_allclose(mine.coef_, found.params[1:], atol=1e-4)

    def loss(w: Array, b: float) -> float:
        e = y - X @ w - b
        return float(np.maximum(q * e, (q - 1) * e).sum())

    best = loss(mine.coef_, mine.intercept_)
    assert best <= loss(found.params[1:], found.params[0]) * (1 + 1e-12)


# -- generalised linear models ------------------------------------------------------


@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("weighted", [True, False])
@pytest.mark.parametrize("alpha", [0.0, 1e-3, 1.0])
@pytest.mark.parametrize("form", [np.asarray, sparse.csr_matrix, sparse.csc_array])
def test_poisson_is_that_of_scikit_learn(
    form: Any, alpha: float, weighted: bool, intercept: bool
) -> None:
    X, y, s = counts(6)
    weight = s if weighted else None
    mine = ours.PoissonRegressor(alpha=alpha, fit_intercept=intercept, tol=1e-10)
    mine.fit(form(X), y, weight)
    other = theirs.PoissonRegressor(
        alpha=alpha, fit_intercept=intercept, solver="newton-cholesky", tol=1e-10
    )
    other.fit(X, y, weight)
    np.testing.assert_allclose(mine.coef_, other.coef_, rtol=1e-6, atol=1e-7)
    assert mine.intercept_ == pytest.approx(other.intercept_, rel=1e-6)
    np.testing.assert_allclose(mine.predict(X), other.predict(X), rtol=1e-6)
    assert mine.score(X, y, weight) == pytest.approx(other.score(X, y, weight))


@pytest.mark.parametrize(
    ("family", "other"),
    [
        ("gaussian", sm.families.Gaussian()),
        ("bernoulli", sm.families.Binomial()),
        ("poisson", sm.families.Poisson()),
        ("exponential", sm.families.Gamma(sm.families.links.Log())),
    ],
)
@pytest.mark.parametrize("weighted", [True, False])
def test_families_agree_with_statsmodels(
    family: str, other: Any, weighted: bool
) -> None:
    X, _, s = data(7)
    rng = np.random.default_rng(8)
    z = X @ [0.5, -0.3, 0.2, 0.0] + 0.3
    y = {
        "gaussian": rng.normal(z),
        "bernoulli": rng.binomial(1, 1 / (1 + np.exp(-z))),
        "poisson": rng.poisson(np.exp(z)),
        "exponential": rng.exponential(np.exp(z)),
    }[family]
    s = np.round(s) + 1 if weighted else np.ones(len(y))
    mine = ours.GeneralizedLinearModel(family, tol=1e-10).fit(X, y, s)
    model = sm.GLM(y, sm.add_constant(X), family=other, freq_weights=s)
    found = model.fit(tol=1e-13, maxiter=200)
    np.testing.assert_allclose(mine.coef_, found.params[1:], rtol=1e-6, atol=1e-8)
    assert mine.intercept_ == pytest.approx(found.params[0], rel=1e-6)
    np.testing.assert_allclose(mine.predict(X), found.fittedvalues, rtol=1e-6)
    explained = 1 - found.deviance / found.null_deviance
    assert mine.deviance_share(X, y, s) == pytest.approx(explained, rel=1e-6)


# -- models that scikit-learn fitted ------------------------------------------------


def test_the_huber_of_scikit_learn_is_judged_on_its_joint_objective() -> None:
    X, y, s = data(9)
    good = theirs.HuberRegressor(alpha=1.0, tol=1e-10, max_iter=10_000).fit(X, y, s)
    found = certus.certify(good, X, y, s)
    assert found.met and found["duality_gap"].strength is Strength.PROVED
    assert found.value < 1e-8
    early = theirs.HuberRegressor(alpha=1.0, max_iter=3)
    with pytest.warns(ConvergenceWarning):
        early.fit(X, y, s)
    found = certus.certify(early, X, y, s)
    assert found.met is False and "max_iter" in found["duality_gap"].fix
    # The bound is true: it is at least what is really left.
    total = s.sum()
    best = huber_objective(good, X, y, s) / total
    left = huber_objective(early, X, y, s) / total - best
    from certus.verify.huber import reference

    assert found.value * reference(y, s, 1.35, True) >= left * (1 - 1e-9)
    free = theirs.HuberRegressor(alpha=0, tol=1e-10, max_iter=10_000).fit(X, y)
    assert certus.certify(free, X, y).value < 1e-6


@pytest.mark.parametrize("alpha", [0.0, 0.05, 5.0])
@pytest.mark.parametrize("weighted", [True, False])
def test_quantiles_of_scikit_learn_are_proved_without_a_dual_point(
    alpha: float, weighted: bool
) -> None:
    X, y, s = data(10)
    weight = s if weighted else None
    model = theirs.QuantileRegressor(quantile=0.3, alpha=alpha).fit(X, y, weight)
    found = certus.certify(model, X, y, weight)
    assert found.met, found
    assert found.value < 1e-9
    model.coef_ = model.coef_ + 0.01
    changed = certus.certify(model, X, y, weight)
    assert changed.met is False and changed.value > 1e-5


def test_quantiles_of_scikit_learn_with_ties_and_copies() -> None:
    rng = np.random.default_rng(11)
    X = rng.integers(0, 3, (60, 3)).astype(float)
    y = rng.integers(0, 4, 60).astype(float)
    X, y = np.vstack([X, X]), np.concatenate([y, y])
    for alpha in (0.01, 0.1):
        model = theirs.QuantileRegressor(alpha=alpha).fit(X, y)
        assert certus.certify(model, X, y).met


def test_poisson_and_gamma_of_scikit_learn_are_judged() -> None:
    X, y, s = counts(12)
    model = theirs.PoissonRegressor(alpha=0.1, tol=1e-8).fit(X, y, s)
    found = certus.certify(model, X, y, s)
    assert found.met and found["duality_gap"].strength is Strength.PROVED
    loose = theirs.PoissonRegressor(alpha=0.1, tol=0.3).fit(X, y, s)
    assert certus.certify(loose, X, y, s).met is False
    free = theirs.PoissonRegressor(alpha=0.0, tol=1e-8).fit(X, y)
    found = certus.certify(free, X, y)
    assert found["stationarity"].strength is Strength.MEASURED
    gamma = theirs.GammaRegressor(alpha=0.1, tol=1e-8).fit(X, y + 0.5)
    assert certus.certify(gamma, X, y + 0.5).met


def test_poisson_of_scikit_learn_on_a_cell_of_zeros_is_refused_at_level_full() -> None:
    rng = np.random.default_rng(13)
    X = np.column_stack([rng.normal(size=60), np.arange(60) < 10])
    y = rng.poisson(2.0, 60) * (np.arange(60) >= 10)
    model = theirs.PoissonRegressor(alpha=0.0, max_iter=1000).fit(X, y)
    found = certus.certify(model, X, y, level="full")
    assert found.status is Status.NO_MINIMISER
    assert "alpha > 0" in found["stationarity"].fix
