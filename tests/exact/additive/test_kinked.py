"""Additive models with kinks: the quantile loss and total variation."""

from __future__ import annotations

import copy
import dataclasses
from typing import Any

import numpy as np
import pytest
from scipy import optimize

import certus
from certus.additive import AdditiveClassifier, AdditiveRegressor
from certus.additive.interior import KinkBoxes, Smooth, follow
from certus.certificate import Strength
from certus.searches import flows

RNG = np.random.default_rng(5)
X = np.round(RNG.uniform(-3, 3, size=(300, 3)), 2)
X[:, 2] = RNG.integers(0, 4, size=300)
X[::19, 1] = np.nan
MEAN = 2.0 * (X[:, 0] > 1) - np.nan_to_num(X[:, 1] > 0) + 0.5 * (X[:, 2] == 2)
Y = MEAN + 0.3 * RNG.normal(size=300)
TARGETS = {
    "squared_error": Y,
    "poisson": np.floor(np.exp(0.6 * MEAN) + 0.5),
    "gamma": np.exp(Y),
    "quantile": Y,
    "two": Y > 0.5,
    "three": np.digitize(Y, [0.0, 1.0]),
}


def made(kind: str, **options: Any) -> certus.base.Model:
    options = {"categorical_features": [2], "max_bins": 10, **options}
    if kind in ("two", "three"):
        return AdditiveClassifier(**options)
    return AdditiveRegressor(kind, **options)


@pytest.mark.parametrize("kind", TARGETS)
@pytest.mark.parametrize("interactions", [0, [(0, 1)]])
@pytest.mark.parametrize("alpha", [None, 0.05])
def test_total_variation_is_solved_and_proved(
    kind: str, interactions: Any, alpha: float | None
) -> None:
    options = {"penalty": "total_variation", "alpha": alpha}
    model = made(kind, interactions=interactions, **options).fit(X, TARGETS[kind])
    first = model.certificate_[model.certificate_.primary]
    assert first.name == "duality_gap" and first.strength is Strength.PROVED
    assert model.certificate_.met and first.value < 1e-6


@pytest.mark.parametrize("quantile", [0.03, 0.5, 0.9])
@pytest.mark.parametrize("monotone", [None, [1, 0, 0]])
def test_quantiles_are_solved_and_proved(quantile: float, monotone: Any) -> None:
    model = made("quantile", quantile=quantile, monotonic_cst=monotone).fit(X, Y)
    assert model.certificate_.met
    assert abs(np.mean(model.predict(X) >= Y) - quantile) < 0.05
    if monotone is not None:
        assert model.certificate_["monotone_columns"].met


def test_a_step_is_found_and_all_other_cells_are_equal() -> None:
    rng = np.random.default_rng(0)
    A = rng.uniform(size=(2000, 1))
    y = np.where(A[:, 0] > 0.5, 1.0, 0.0) + 0.05 * rng.normal(size=2000)
    options = {"penalty": "total_variation", "max_bins": 32, "alpha": 0.2}
    model = AdditiveRegressor(**options).fit(A, y)
    values = model.shapes_[0][1:]
    assert len(np.unique(values)) < 4 and np.ptp(values) == pytest.approx(1, abs=0.1)
    far = np.abs(np.diff(values)).argmax()
    assert model.bin_edges_[0][0][far] == pytest.approx(0.5, abs=0.02)
    assert len(model.shape_std_[0]) == len(model.shapes_[0])


def test_total_variation_is_a_lasso_on_steps() -> None:
    """The optimum of the same problem, by a method for bounds on the variables."""
    alpha, n = 0.4, len(Y)
    options = {"penalty": "total_variation", "alpha": alpha, "interactions": 0}
    model = AdditiveRegressor(max_bins=8, **options).fit(X[:, :1], Y)
    place = np.digitize(X[:, 0], model.bin_edges_[0][0])
    cells = len(model.shapes_[0])
    level, own = alpha / cells, 0.01 * alpha / cells
    steps = np.tril(np.ones((cells - 1, cells - 1)))  # first value, then jumps
    start = np.zeros(2 * cells)

    def objective(theta: np.ndarray) -> tuple[float, np.ndarray]:
        b, first, up, down = theta[0], theta[1], theta[2:cells], theta[cells:-2]
        w = steps @ np.concatenate([[first], up - down])
        r = b + w[place] - Y
        value = r @ r / (2 * n) + level * (up + down).sum() + own * w @ w / 2
        slope = np.bincount(place, r / n, cells - 1) + own * w
        back = steps.T @ slope
        out = np.concatenate(
            [[r.mean(), back[0]], level + back[1:], level - back[1:], [0, 0]]
        )
        return float(value), out

    free = [(None, None)] * 2 + [(0, None)] * (2 * cells - 4) + [(0, 0)] * 2
    done = optimize.minimize(
        *(objective, start, (), "L-BFGS-B", True),
        bounds=free,
        options={"maxiter": 20_000, "maxfun": 40_000, "ftol": 1e-15, "gtol": 1e-10},
    )
    w = model.shapes_[0]
    r = model.predict(X[:, :1]) - Y
    value = r @ r / (2 * n) + level * np.abs(np.diff(w[1:])).sum() + own * w @ w / 2
    assert value == pytest.approx(done.fun, rel=1e-9)
    assert value <= done.fun * (1 + 1e-12)


def test_a_quantile_of_one_group_is_that_of_its_rows() -> None:
    """Nearly without a penalty, each category has its own quantile."""
    A = RNG.integers(0, 3, size=(301, 1)).astype(float)
    y = A[:, 0] ** 2 + RNG.exponential(size=301)
    options = {"categorical_features": [0], "alpha": 1e-6, "interactions": 0}
    model = AdditiveRegressor("quantile", quantile=0.75, **options).fit(A, y)
    assert model.certificate_.met
    for group in range(3):
        own = y[A[:, 0] == group]
        said = model.predict([[float(group)]])[0]
        assert np.mean(own < said - 1e-4) <= 0.75 <= np.mean(own <= said + 1e-4)


def test_weights_equal_repetition() -> None:
    s = RNG.integers(0, 3, size=len(X))
    again = np.repeat(np.arange(len(X)), s)
    for kind, penalty in (("quantile", "quadratic"), ("two", "total_variation")):
        y, options = TARGETS[kind], {"penalty": penalty, "interactions": 0}
        once = made(kind, **options).fit(X, y, sample_weight=s)
        twice = made(kind, **options).fit(X[again], y[again])
        said = [
            model.decision_function(X) if kind == "two" else model.predict(X)
            for model in (once, twice)
        ]
        np.testing.assert_allclose(*said, atol=2e-5)
        assert certus.certify(once, X, y, sample_weight=s).met


# -- planted faults -----------------------------------------------------------------


def test_a_planted_fault_is_found() -> None:
    for kind, penalty in (
        ("quantile", "quadratic"),
        ("quantile", "total_variation"),
        ("squared_error", "total_variation"),
    ):
        fitted = made(kind, penalty=penalty, interactions=[(0, 1)]).fit(X, Y)
        assert certus.certify(fitted, X, Y).met
        for name, change in (
            ("shapes_", lambda a: [a[0] + 0.01, *a[1:]]),
            ("smoothing_", lambda a: a * 1.3),
            ("intercept_", lambda a: a + 0.01),
        ):
            model = copy.deepcopy(fitted)
            setattr(model, name, change(getattr(model, name)))
            assert certus.certify(model, X, Y).met is False, (kind, penalty, name)
        if kind == "quantile":
            model = copy.deepcopy(fitted).set_params(quantile=0.55)
            assert certus.certify(model, X, Y).met is False


@pytest.mark.parametrize("fault", ["zero", "turned", "huge", "short", "missing"])
def test_a_forged_dual_point_proves_nothing_false(fault: str) -> None:
    model = made("quantile", interactions=0).fit(X, Y)
    witness = model.certificate_.evidence.witness
    dual = witness.dual.copy()
    changed = {
        "zero": 0 * dual,
        "turned": -dual,
        "huge": 1e9 * dual,
        "short": dual[:7],
        "missing": None,
    }[fault]
    evidence = model.certificate_.evidence
    forged = dataclasses.replace(evidence, witness=witness._replace(dual=changed))
    honest = model.certificate_["duality_gap"].value
    model.shapes_[0] = model.shapes_[0] + 0.05
    found = certus.verify.judge(model, forged, X, Y)["duality_gap"]
    assert found.met is not True and found.value > honest


def test_flows_on_circles_stay_in_their_boxes() -> None:
    """Four cells in a square, held equal: a flow of least norm may leave its box."""
    left, right = np.array([0, 0, 1, 2]), np.array([1, 2, 3, 3])
    t = np.array([0.1, 1.0, 0.1, 1.0])
    levels = np.zeros(4), t, np.zeros(4)
    v = np.array([0.9, 0.0, 0.0, -0.9])
    found = flows.flow(
        (left, right), levels, np.full(4, 1e-6), np.zeros((2, 4)) + [[0], [1]] * v
    )
    assert (np.abs(found) <= t * (1 + 1e-6)).all()
    pull = np.bincount(right, found, 4) - np.bincount(left, found, 4)
    np.testing.assert_allclose(pull, -v, atol=1e-6)


def test_interior_points_find_a_median() -> None:
    y = np.array([1.0, 2.0, 4.0, 7.0, 20.0])
    one, none = np.ones(1), np.zeros(5)
    smooth = Smooth(
        lambda x: 1e-9 * x,
        lambda x: x * np.ones(5),
        lambda u: np.array([u.sum()]),
        lambda x, W: lambda rhs: rhs / (1e-9 + W.sum()),
        lambda x: none + np.inf,
        True,
    )
    at, done = follow(
        KinkBoxes(none - 0.5, none + 0.5, y), smooth, 9 * one, 10, 1e-9, 99
    )
    assert done and at.x[0] == pytest.approx(4.0, abs=1e-6)
    assert (np.abs(at.u) <= 0.5).all()


def test_a_fit_obeys_its_limits_and_the_quantile_is_checked() -> None:
    model = made("quantile", max_time=0.0)
    with pytest.warns(certus.base.UncertifiedWarning):
        model.fit(X, Y)
    assert model.certificate_.status.value == "time_limit"
    model = made("squared_error", penalty="total_variation", max_iter=1)
    with pytest.warns(certus.base.UncertifiedWarning):
        model.fit(X, Y)
    assert model.certificate_.status.value in ("max_iter", "tol_not_reached")
    with pytest.raises(ValueError, match="strictly between 0 and 1"):
        made("quantile", quantile=1.0).fit(X, Y)


def test_a_file_keeps_the_dual_point(tmp_path: Any) -> None:
    model = made("quantile", interactions=0).fit(X, Y)
    again = certus.load(model.save(tmp_path / "model.certus"))
    np.testing.assert_array_equal(again.predict(X), model.predict(X))
    assert certus.certify(again, X, Y).met
