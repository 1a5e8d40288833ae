"""Gamma and Tweedie regression: other libraries, known optima, planted faults.

The kernel's row of the Tweedie loss is tested with all the others (exact/test_formulas,
test_kernel_truth); here are the estimators and what their certificates say.
"""

import inspect
from typing import Any

import numpy as np
import pytest
import statsmodels.api as sm
from scipy import sparse
from sklearn import linear_model as theirs

import certus
from certus import linear_model as ours
from certus.base import UncertifiedWarning
from certus.certificate import Status, Strength
from certus.objectives import Tweedie
from certus.objectives.terms import L1, L1L2, L2

Array = np.ndarray
POWERS = [0.0, 1.0, 1.05, 1.5, 1.95, 2.0]


def amounts(seed: int = 0, n: int = 200, d: int = 4) -> tuple[Array, Array, Array]:
    """Rows, costs that are zero for some, and weights."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d))
    claims = rng.poisson(np.exp(X @ (0.4 * rng.normal(size=d)) + 0.5))
    y = np.where(claims > 0, rng.gamma(np.maximum(2.0 * claims, 1e-9)), 0.0)
    return X, y, rng.uniform(0.2, 3, n)


def targets(power: float) -> tuple[Array, Array, Array]:
    X, y, s = amounts()
    return X, y + (0.1 if power == 2 else 0.0), s


@pytest.mark.parametrize("name", ["GammaRegressor", "TweedieRegressor"])
def test_parameters_and_attributes_are_those_of_scikit_learn(name: str) -> None:
    mine, other = getattr(ours, name), getattr(theirs, name)
    own = inspect.signature(mine).parameters
    for key, value in inspect.signature(other).parameters.items():
        if key not in ("tol", "solver"):  # the drop-in table names both
            assert own[key].default == value.default
    X, y, _ = targets(2.0)
    fitted, reference = mine().fit(X, y), other().fit(X, y)
    public = {k for k in vars(reference) if k.endswith("_") and not k.startswith("_")}
    assert public <= set(vars(fitted))
    np.testing.assert_allclose(fitted.predict(X), reference.predict(X), rtol=1e-3)


@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("weighted", [True, False])
@pytest.mark.parametrize("power", POWERS)
def test_the_fit_is_that_of_scikit_learn(
    power: float, weighted: bool, intercept: bool
) -> None:
    X, y, s = targets(power)
    options: dict[str, Any] = {"power": power, "alpha": 0.1, "fit_intercept": intercept}
    weight = s if weighted else None
    mine = ours.TweedieRegressor(**options).fit(X, y, sample_weight=weight)
    other = theirs.TweedieRegressor(**options, tol=1e-10, max_iter=10_000)
    other.fit(X, y, sample_weight=weight)
    np.testing.assert_allclose(mine.coef_, other.coef_, atol=2e-5)
    assert mine.intercept_ == pytest.approx(other.intercept_, abs=2e-5)
    assert mine.score(X, y, weight) == pytest.approx(
        other.score(X, y, weight), abs=1e-7
    )
    assert mine.certificate_.met
    assert mine.certificate_.claims[0].strength is Strength.PROVED
    thin = ours.TweedieRegressor(**options).fit(sparse.csr_matrix(X), y, weight)
    np.testing.assert_allclose(thin.coef_, mine.coef_, atol=1e-6)
    assert certus.certify(other, X, y, sample_weight=weight).met


def test_gamma_is_power_two() -> None:
    X, y, _ = targets(2.0)
    gamma = ours.GammaRegressor(alpha=0.1).fit(X, y)
    power = ours.TweedieRegressor(power=2, alpha=0.1).fit(X, y)
    np.testing.assert_array_equal(gamma.coef_, power.coef_)
    other = theirs.GammaRegressor(alpha=0.1, tol=1e-10).fit(X, y)
    np.testing.assert_allclose(gamma.coef_, other.coef_, atol=1e-6)
    assert gamma.score(X, y) == pytest.approx(other.score(X, y), abs=1e-9)
    assert certus.certify(other, X, y).met


@pytest.mark.parametrize("power", [1.2, 1.7, 2.0])
def test_statsmodels_finds_the_same_without_a_penalty(power: float) -> None:
    X, y, s = targets(power)
    link = sm.families.links.Log()
    family = sm.families.Gamma(link)
    if power < 2:
        family = sm.families.Tweedie(link, var_power=power)
    other = sm.GLM(y, sm.add_constant(X), family=family, freq_weights=s).fit(tol=1e-12)
    mine = ours.TweedieRegressor(power=power, alpha=0.0, tol=1e-9).fit(X, y, s)
    np.testing.assert_allclose(mine.coef_, other.params[1:], atol=1e-6)
    assert mine.certificate_.claims[0].name == "stationarity"


@pytest.mark.parametrize("power", [1.0, 1.3, 1.8, 2.0])
def test_means_of_groups_are_met(power: float) -> None:
    """With a column for each group and no penalty the fitted means are the groups'."""
    rng = np.random.default_rng(0)
    group = rng.integers(0, 3, 60)
    y = rng.gamma(2.0, size=60) * (group + 1)
    X = np.eye(3)[group]
    model = ours.TweedieRegressor(power=power, alpha=0.0, fit_intercept=False, tol=1e-9)
    found = model.fit(X, y).predict(np.eye(3))
    means = [y[group == g].mean() for g in range(3)]
    np.testing.assert_allclose(found, means, rtol=1e-7)


def test_weights_are_repetitions() -> None:
    X, y, _ = amounts()
    s = np.random.default_rng(0).integers(0, 4, len(y))
    options: dict[str, Any] = {"power": 1.5, "alpha": 0.01, "tol": 1e-10}
    once = ours.TweedieRegressor(**options).fit(X, y, sample_weight=s)
    often = ours.TweedieRegressor(**options).fit(np.repeat(X, s, 0), np.repeat(y, s))
    np.testing.assert_allclose(once.coef_, often.coef_, atol=1e-6)


@pytest.mark.parametrize("power", [1.05, 1.5, 1.95, 2.0])
@pytest.mark.parametrize("library", [ours, theirs])
def test_planted_faults_are_not_certified(library: Any, power: float) -> None:
    X, y, s = targets(power)
    tol = {} if library is ours else {"tol": 1e-10, "max_iter": 10_000}

    def fitted() -> Any:
        return library.TweedieRegressor(power=power, alpha=0.1, **tol).fit(X, y)

    assert certus.certify(fitted(), X, y).met
    wrong = fitted()
    wrong.coef_ = wrong.coef_ + 0.01
    assert certus.certify(wrong, X, y).met is False
    wrong = fitted()
    wrong.intercept_ = wrong.intercept_ + 0.01
    assert certus.certify(wrong, X, y).met is False
    for change in ({"power": 1.0 if power == 2 else power + 0.04}, {"alpha": 0.2}):
        assert certus.certify(fitted().set_params(**change), X, y).met is False
    assert certus.certify(fitted(), X, 1.1 * y).met is False
    assert certus.certify(fitted(), X[:, ::-1], y).met is False
    assert certus.certify(fitted(), X, y, sample_weight=s).met is False
    assert certus.certify(fitted(), np.rint(X).astype(np.int8), y).met is False


@pytest.mark.parametrize("power", [-1.0, 0.5, 2.5])
def test_other_powers_are_refused(power: float) -> None:
    X, y, _ = targets(2.0)
    kind: Any = ValueError if power == 0.5 else NotImplementedError
    with pytest.raises(kind, match="power"):
        ours.TweedieRegressor(power=power).fit(X, y)
    with pytest.raises(NotImplementedError, match="not a convex problem"):
        ours.TweedieRegressor(power=1.5, link="identity").fit(X, y)
    if power > 2:
        other = theirs.TweedieRegressor(power=power).fit(X, y)
        found = certus.certify(other, X, y)
        assert found.claims[0].strength is Strength.REFUSED
        assert "not convex" in found.claims[0].detail


def test_targets_outside_of_the_range_are_named() -> None:
    X, y, _ = amounts()
    with pytest.raises(ValueError, match=r"Some value\(s\) of y are out of the valid"):
        ours.GammaRegressor().fit(X, y)  # some are zero
    with pytest.raises(ValueError, match="Tweedie family needs y ≥ 0"):
        ours.TweedieRegressor(power=1.5).fit(X, y - 1)


def test_a_cell_of_zeros_has_no_minimiser() -> None:
    X, y, _ = amounts()
    X[:, 0] = y == 0
    with pytest.warns(UncertifiedWarning, match="there is no minimum"):
        model = ours.TweedieRegressor(power=1.5, alpha=0.0).fit(X, y)
    assert model.certificate_.status is Status.NO_MINIMISER
    assert model.certificate_.claims[0].strength is Strength.REFUSED
    with pytest.warns(UncertifiedWarning, match="there is no minimum"):
        none = ours.TweedieRegressor(power=1.5, alpha=0.1).fit(X, 0 * y)
    assert none.certificate_.status is Status.NO_MINIMISER  # the intercept runs away


def test_scales_of_many_decades_are_never_proved_wrongly() -> None:
    X, y, _ = amounts()
    for scale in (1e-150, 1e-8, 1e8, 1e150):
        for columns in (1.0, 1e-6, 1e6):
            model = ours.TweedieRegressor(power=1.5, alpha=0.1)
            with certus.config_context(on_uncertified="ignore"):
                fitted = model.fit(X * columns, y * scale)
            if fitted.certificate_.met:
                fitted.intercept_ += 0.01
                again = certus.certify(fitted, X * columns, y * scale)
                assert not again.met


@pytest.mark.parametrize("penalty", [L1(0.01), L2(0.1), L1L2(0.01, 0.1)])
def test_bare_coefficients_with_any_penalty(penalty: Any) -> None:
    """A dual point scaled for an L1 part: the bound is a bound of the best known."""
    X, y, _ = amounts(n=60)
    objective = (Tweedie(1.5), penalty)
    model = ours.TweedieRegressor(power=1.5, alpha=0.1).fit(X, y)
    for shrink in (1.0, 0.9, 0.5):
        found = certus.check(shrink * model.coef_, model.intercept_, objective, X, y)
        if not isinstance(penalty, L2) or shrink < 1:
            assert found.met is False
        assert 0 <= found.claims[0].value < np.inf
