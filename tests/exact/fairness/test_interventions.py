"""Decorrelation, the covariance penalty and the frontier.

References: the closed form of the least change, normal equations, scipy's minimiser on
objectives written out with group means, and probes that must be at chance.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize
from sklearn.base import clone
from sklearn.pipeline import make_pipeline

import certus
from certus.fairness import (
    CovariancePenalty,
    Decorrelation,
    GroupReduction,
    GroupThresholds,
    frontier,
    recovery,
)
from certus.linear_model import (
    Lasso,
    LogisticRegression,
    PoissonRegressor,
    Ridge,
    RidgeClassifier,
)
from certus.svm import LinearSVC, LinearSVR

Array = np.ndarray


def data(seed: int, n: int = 500, d: int = 5) -> tuple[Array, Array, Array]:
    rng = np.random.default_rng(seed)
    g = rng.choice(["a", "b", "c"], n)
    shift = rng.normal(size=(3, d))
    X = rng.normal(size=(n, d)) @ rng.normal(size=(d, d))
    X += shift[np.searchsorted(["a", "b", "c"], g)]
    y = (X[:, 0] + X[:, 1] + rng.normal(size=n) > X[:, :2].sum(axis=1).mean()).astype(
        int
    )
    return X, y, g


def one_hot(g: Array) -> Array:
    return (g[:, None] == np.unique(g)).astype(float)


def covariance(X: Array, A: Array, s: Array | None = None) -> Array:
    s = np.ones(len(X)) if s is None else s
    s = s / s.sum()
    return (X - s @ X).T @ (s[:, None] * (A - s @ A))


# ---- decorrelation ----------------------------------------------------------------


@pytest.mark.catalog("FAIR-10")
def test_no_covariance_is_left_and_no_linear_probe_finds_anything() -> None:
    X, _, g = data(0)
    plain = Decorrelation().fit(X, sensitive=g)
    Z = plain.transform(X)
    assert np.abs(covariance(Z, one_hot(g))).max() < 1e-12
    # At chance: the best linear probes are constant, on these rows.
    probe = LogisticRegression(C=np.inf).fit(Z, g)
    shares = np.unique(g, return_counts=True)[1] / len(g)
    np.testing.assert_allclose(
        probe.predict_proba(Z), np.tile(shares, (len(g), 1)), atol=1e-5
    )
    design = np.column_stack([np.ones(len(Z)), Z])
    fitted = design @ np.linalg.lstsq(design, one_hot(g))[0]
    assert np.ptp(fitted, axis=0).max() < 1e-10
    assert LogisticRegression().fit(X, g).score(X, g) > shares.max() + 0.1


@pytest.mark.catalog("FAIR-10")
def test_new_rows_are_not_recovered_better_than_by_chance() -> None:
    X, _, g = data(1, 6000)
    fit, new = slice(0, 4000), slice(4000, None)
    plain = Decorrelation().fit(X[fit], sensitive=g[fit])
    before = LogisticRegression().fit(X[fit], g[fit]).score(X[new], g[new])
    probe = LogisticRegression().fit(plain.transform(X[fit]), g[fit])
    after = probe.score(plain.transform(X[new]), g[new])
    chance = np.unique(g[new], return_counts=True)[1].max() / 2000
    assert before > chance + 0.15
    assert after < chance + 0.04


def test_the_change_is_the_least_there_is() -> None:
    X, _, g = data(2)
    plain = Decorrelation().fit(X, sensitive=g)
    C = covariance(X, one_hot(g))[:, :2]  # the third column follows from two
    S = covariance(X, X)
    inner = np.linalg.inv(C.T @ np.linalg.solve(S, C))
    P = np.eye(5) - C @ inner @ np.linalg.solve(S, C).T  # stationary: see the module
    mean = X.mean(axis=0)
    np.testing.assert_allclose(plain.transform(X), mean + (X - mean) @ P.T, atol=1e-10)
    changed = np.square(plain.transform(X) - X).sum()
    Q, _ = np.linalg.qr(C)
    rng = np.random.default_rng(0)
    for _ in range(20):  # other maps without covariance: M(I − QQ') for any M
        M = np.eye(5) + rng.normal(0, 0.1, (5, 5))
        other = mean + (X - mean) @ (np.eye(5) - Q @ Q.T) @ M.T
        assert np.abs(covariance(other, one_hot(g))).max() < 1e-10
        assert np.square(other - X).sum() > changed


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10_000), st.sampled_from([0.0, 0.3, 1.0]), st.booleans())
def test_the_share_alpha_of_the_covariance_goes(
    seed: int, alpha: float, amounts: bool
) -> None:
    X, _, g = data(seed, 60, 3)
    rng = np.random.default_rng(seed)
    X = X * 10.0 ** rng.integers(-6, 7, 3)
    A = rng.normal(size=60) + X[:, 0] / X[:, 0].std() if amounts else g
    numbers = A[:, None] if amounts else one_hot(g)
    s = rng.integers(0, 3, 60).astype(float)
    model = Decorrelation(alpha).fit(X, None, s, sensitive=A)
    before, after = (covariance(Z, numbers, s) for Z in (X, model.transform(X)))
    size = np.sqrt(np.diag(covariance(X, X, s)))[:, None]
    np.testing.assert_allclose(after / size, (1 - alpha) * before / size, atol=1e-11)
    assert model.certificate_.met


def test_nearly_dependent_columns_are_made_free_too() -> None:
    X, _, g = data(3)
    X[:, 4] = X[:, 0] + 1e-7 * X[:, 4]
    model = Decorrelation().fit(X, sensitive=g)
    assert np.abs(covariance(model.transform(X), one_hot(g))).max() < 1e-12
    assert model.certificate_.met


def test_attributes_in_X_become_constant() -> None:
    X, _, g = data(4)
    frame = pl.DataFrame(X, schema=list("uvwxy")).with_columns(
        sex=pl.Series((g == "a").astype(float)), age=pl.Series(X[:, 0] * 0.3 + 40.0)
    )
    model = Decorrelation(sensitive_columns=["sex", "age"]).fit(frame)
    Z = np.asarray(model.transform(frame))
    assert np.ptp(Z[:, 5]) < 1e-10 and np.ptp(Z[:, 6]) < 1e-10
    assert list(model.get_feature_names_out()) == [*"uvwxy", "sex", "age"]
    assert certus.certify(model, frame).met
    other = Decorrelation(sensitive_columns=[5, 6]).fit(frame.to_numpy())
    np.testing.assert_allclose(other.transform(frame.to_numpy()), Z, atol=1e-9)


def test_recovery_falls_to_chance() -> None:
    X, _, g = data(5, 1500)
    Z = Decorrelation().fit_transform(X, sensitive=g)
    before, after = recovery(X, g, random_state=0), recovery(Z, g, random_state=0)
    assert before.auc.min() > 0.6
    assert after.auc.max() < 0.55


# ---- the penalty ------------------------------------------------------------------


def between(z: Array, g: Array) -> float:
    """Variance of the means of groups."""
    names, numbers = np.unique(g, return_inverse=True)
    share = np.bincount(numbers) / len(g)
    means = np.array([z[numbers == k].mean() for k in range(len(names))])
    return float(share @ np.square(means - share @ means))


@pytest.mark.catalog("FAIR-09")
@pytest.mark.parametrize("strength", [0.0, 0.7, 50.0])
def test_logistic_objective_against_a_general_minimiser(strength: float) -> None:
    X, y, g = data(6, 200, 3)
    signs = 2 * y - 1

    def P(theta: Array) -> float:
        z = X @ theta[:3] + theta[3]
        loss = np.logaddexp(0, -signs * z).mean() + 0.5 / 200 * theta[:3] @ theta[:3]
        return float(loss + 0.5 * strength * between(z, g))

    model = CovariancePenalty(LogisticRegression(tol=1e-12), alpha=strength)
    model.fit(X, y, sensitive=g)
    found = np.append(model.coef_, model.intercept_)
    best = minimize(P, np.zeros(4), method="BFGS", options={"gtol": 1e-9})
    assert P(found) <= best.fun + 1e-12
    np.testing.assert_allclose(found, best.x, atol=1e-4)
    assert model.certificate_.met


def test_ridge_against_the_normal_equations() -> None:
    X = data(7, 200, 4)[0]
    a = np.random.default_rng(0).normal(size=200) + X[:, 0]  # a number
    t = X @ [1.0, 2.0, 0.0, -1.0] + np.random.default_rng(1).normal(size=200)
    model = CovariancePenalty(Ridge(alpha=3.0), alpha=20.0).fit(X, t, sensitive=a)
    c = covariance(X, a[:, None])[:, 0] / a.std()
    H = covariance(X, X) + 3.0 / 200 * np.eye(4) + 20.0 * np.outer(c, c)
    w = np.linalg.solve(H, covariance(X, t[:, None])[:, 0])
    np.testing.assert_allclose(model.coef_, w, rtol=1e-8)
    assert model.certificate_.met


@pytest.mark.parametrize(
    "estimator",
    [
        LogisticRegression(),
        Ridge(),
        RidgeClassifier(),
        LinearSVC(),
        LinearSVR(),
        PoissonRegressor(),
    ],
    ids=lambda e: type(e).__name__,
)
@pytest.mark.catalog("FAIR-09")
def test_any_linear_model_with_an_l2_penalty(estimator: Any) -> None:
    X, y, g = data(8)
    parts = []
    for strength in (0.0, 1.0, 100.0):
        model = CovariancePenalty(estimator, alpha=strength).fit(X, y, sensitive=g)
        assert model.certificate_.met
        z = X @ np.ravel(model.coef_)
        part = model.certificate_["explained_variance"].value
        assert part == pytest.approx(between(z, g) / z.var(), rel=1e-6)
        parts.append(part)
    assert all(b < a for a, b in pairwise(parts))
    changed = np.array(model.coef_)
    changed *= 1.01
    model.estimator_.coef_ = changed
    assert certus.certify(model, X, y, sensitive=g).met is False


def test_three_classes_and_weights() -> None:
    X, _, g = data(9, 150)
    y = np.digitize(X[:, 0], np.quantile(X[:, 0], [0.3, 0.6]))
    s = np.random.default_rng(0).integers(0, 3, 150)
    r = np.repeat(np.arange(150), s)
    base = LogisticRegression(tol=1e-12)
    one = CovariancePenalty(base, alpha=2.0).fit(X, y, s, sensitive=g)
    two = CovariancePenalty(base, alpha=2.0).fit(X[r], y[r], sensitive=g[r])
    np.testing.assert_allclose(one.coef_, two.coef_, atol=1e-5)
    assert one.certificate_.met
    np.testing.assert_allclose(one.predict_proba(X).sum(axis=1), 1)


def test_models_without_an_l2_penalty_are_refused() -> None:
    X, y, g = data(10, 80)
    for estimator in (
        Lasso(),
        LogisticRegression(C=np.inf),
        LogisticRegression(l1_ratio=0.5),
    ):
        with pytest.raises(ValueError, match="an L2 penalty"):
            CovariancePenalty(estimator).fit(X, y, sensitive=g)
    from sklearn.linear_model import LogisticRegression as Theirs

    with pytest.raises(TypeError, match="GroupReduction"):
        CovariancePenalty(Theirs()).fit(X, y, sensitive=g)


@pytest.mark.catalog("FAIR-09")
def test_networks_minimise_the_same_objective() -> None:
    pytest.importorskip("torch")
    from torch import nn

    from certus.neural_network import NeuralClassifier

    X, y, g = data(11, 300, 3)
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    linear = nn.Sequential(nn.Linear(3, 1)).double()
    for parameter in linear.parameters():
        nn.init.zeros_(parameter)
    net = NeuralClassifier(
        linear, learning_rate=0.05, schedule="cosine", batch_size=None, max_iter=2000,
        tol=0.0, n_iter_no_change=np.inf, random_state=0,
    )  # fmt: skip
    model = CovariancePenalty(net, alpha=5.0)
    model.fit(X, y, sensitive=g)
    exact = CovariancePenalty(LogisticRegression(C=1e6, tol=1e-10), alpha=5.0)
    exact.fit(X, y, sensitive=g)
    np.testing.assert_allclose(
        model.predict_proba(X), exact.predict_proba(X), atol=1e-3
    )
    w = model.estimator_.module_[0].weight.detach().numpy().ravel()
    b = float(model.estimator_.module_[0].bias.detach()[0])
    z = X @ w + b
    loss = np.logaddexp(0, -(2 * y - 1) * z).mean() + 2.5 * between(z, g)
    found = certus.certify(model, X, y, sensitive=g)
    assert found["training_loss"].value == pytest.approx(loss, abs=1e-9)
    assert found["gradient_ratio"].value < 1e-4
    assert certus.certify(model, X, y).met is None


@pytest.mark.catalog("FAIR-09")
@pytest.mark.parametrize("kind", ["classes", "amounts"])
def test_perceptrons_minimise_the_same_objective(kind, tmp_path) -> None:
    pytest.importorskip("torch")
    from certus.neural_network import MLPClassifier, MLPRegressor

    X, y, g = data(11, 300, 3)
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    y = y if kind == "classes" else X[:, 0] + 0.1 * y
    cls = MLPClassifier if kind == "classes" else MLPRegressor
    options = {"alpha": 0.0, "learning_rate_init": 0.02, "max_iter": 60}
    net = cls(
        hidden_layer_sizes=(4,), n_iter_no_change=np.inf, random_state=0, **options
    )
    spread = []
    for strength in (0.0, 50.0):
        model = CovariancePenalty(net, alpha=strength).fit(X, y, sensitive=g)
        z = model.estimator_._scores(X)
        z = z[:, -1] - (z[:, 0] if z.shape[1] == 2 else 0)
        spread.append(between(z, g) / z.var())
        found = certus.certify(model, X, y, sensitive=g)
        assert found["gradient_ratio"].value < 1e-4
    assert spread[1] < spread[0] / 5
    if kind == "classes":
        loss = np.logaddexp(0, -(2 * y - 1) * z).mean() + 25 * between(z, g)
        assert found["training_loss"].value == pytest.approx(loss, rel=1e-5)
    again = certus.load(model.save(tmp_path / "model.certus"))
    np.testing.assert_array_equal(again.predict(X), model.predict(X))
    with pytest.raises(ValueError, match="engine"):
        explicit = net.set_params(engine="explicit")
        CovariancePenalty(explicit).fit(X, y, sensitive=g)


@pytest.mark.parametrize("scores", [2, 3])
def test_the_explained_variance_of_several_scores(scores: int) -> None:
    torch = pytest.importorskip("torch")
    from certus.fairness.attribute import basis_of
    from certus.fairness.neural_penalty import explained_variance

    rng = np.random.default_rng(0)
    g, Z = rng.choice(list("abcd"), 90), rng.normal(size=(90, scores))
    s = rng.integers(0, 3, 90).astype(float)
    r = np.repeat(np.arange(90), s.astype(int))
    U = basis_of(g.astype(object)[:, None], s)
    found = explained_variance(*(torch.as_tensor(a) for a in (Z, U, s)))
    if scores == 2:
        wanted = between((Z[:, 1] - Z[:, 0])[r], g[r])
    else:
        centred = Z - Z.mean(axis=1, keepdims=True)
        wanted = sum(between(column[r], g[r]) for column in centred.T)
    assert float(found) == pytest.approx(wanted, rel=1e-10)


# ---- the frontier -----------------------------------------------------------------


@pytest.mark.catalog("FAIR-09")
def test_the_gap_falls_along_the_frontier_and_accuracy_is_paid() -> None:
    rng = np.random.default_rng(12)
    g = rng.choice(["a", "b"], 6000)
    X = rng.normal(size=(6000, 3)) + (g == "b")[:, None] * [1.5, 0.5, 0.0]
    y = (X[:, 0] + X[:, 2] + 0.5 * rng.normal(size=6000) > 0.7).astype(int)
    model = CovariancePenalty(LogisticRegression())
    strengths = [0.0, 0.3, 3.0, 300.0]
    found = frontier(
        *(model, X, y, g, "alpha", strengths),
        criterion="independence",
        random_state=0,
    )
    assert np.all(np.diff(found.difference) < 0)
    assert found.difference[-1] < 0.05 < 0.2 < found.difference[0]
    assert found.accuracy[-1] < found.accuracy[0]
    assert np.all((found.low < found.accuracy) & (found.accuracy < found.high))
    assert found.efficient[[0, -1]].all()
    assert "alpha" in str(found) and str(found).count("\n") == 4


@pytest.mark.parametrize(
    ("model", "parameter", "values"),
    [
        (
            GroupThresholds(LogisticRegression(), random_state=0),
            "max_difference",
            [0.0, 0.5],
        ),
        (
            GroupReduction(LogisticRegression(), random_state=0),
            "max_difference",
            [0.05, 0.5],
        ),
        (
            make_pipeline(Decorrelation(), LogisticRegression()),
            "decorrelation__amount",
            [1.0, 0.0],
        ),
        (LogisticRegression(), "C", [1e-4, 1.0]),
    ],
)
def test_every_intervention_has_a_frontier(
    model: Any, parameter: str, values: list[float]
) -> None:
    X, y, g = data(13, 1500)
    rest = data(14, 500)
    judged = {"criterion": "independence", "held_out": (X, y, g)}
    if isinstance(model, GroupThresholds | GroupReduction):
        model = clone(model).set_params(criterion="independence")
    found = frontier(model, X, y, g, parameter, values, **judged)
    head, first = repr(found).splitlines()[:2]
    assert head.index(" difference") + 1 == first.index(
        f"{found.difference[0]:.3f}", 35
    )
    assert found.difference[0] < found.difference[1]
    assert found.models[0].get_params()[parameter] == values[0]
    assert len(frontier(model, X, y, g, parameter, values, held_out=rest).tables) == 2
    plt = pytest.importorskip("matplotlib.pyplot")
    ax = found.plot()
    assert "difference" in ax.get_xlabel()
    plt.close(ax.figure)


def test_dominated_points_are_known() -> None:
    X, y, g = data(15, 400)
    found = frontier(LogisticRegression(), X, y, g, "C", [1.0, 1.0], random_state=0)
    assert found.efficient.tolist() == [True, True]
    import dataclasses

    worse = dataclasses.replace(
        found, accuracy=np.array([0.9, 0.8]), difference=np.array([0.1, 0.2])
    )
    assert worse.efficient.tolist() == [True, False]


# ---- files ------------------------------------------------------------------------


@pytest.mark.parametrize(
    "model", [Decorrelation(0.5), CovariancePenalty(LogisticRegression(), alpha=3.0)]
)
def test_models_come_back_from_a_file(model: Any, tmp_path: Any) -> None:
    X, y, g = data(16, 100)
    model.fit(X, y, sensitive=g)
    back = certus.load(model.save(tmp_path / "m.certus"))
    ask = "predict_proba" if hasattr(model, "predict_proba") else "transform"
    np.testing.assert_array_equal(getattr(back, ask)(X), getattr(model, ask)(X))
    assert certus.certify(back, X, y, sensitive=g).met
    assert "sensitive" not in str(back.certificate_.evidence)


@pytest.mark.catalog("FAIR-10")
def test_whole_numbers_are_categories_and_fractions_amounts() -> None:
    """The middle one of three groups differs: as an amount it shows in no slope."""
    code = np.repeat([0, 1, 2], 200)
    X = np.random.default_rng(0).normal(size=(600, 2))
    X[:, 0] += 2.0 * (code == 1)
    plain = Decorrelation().fit_transform(X, sensitive=code)
    means = np.array([plain[code == c].mean(axis=0) for c in range(3)])
    assert np.ptp(means, axis=0).max() < 1e-12
    amounts = Decorrelation().fit_transform(X, sensitive=code / 2)
    assert abs(np.cov(amounts[:, 0], code)[0, 1]) < 1e-12
    assert amounts[code == 1, 0].mean() > 1.0  # only the slope is gone
