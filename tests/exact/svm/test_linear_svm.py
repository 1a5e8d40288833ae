"""Support vector machines: the theorems of the notes, on our own solutions."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse
from scipy.optimize import linprog, minimize
from sklearn.svm import SVC

import certus
from certus.base import UncertifiedWarning
from certus.certificate import Evidence, Status, Strength
from certus.evidence import LinearWitness
from certus.linear_model import LogisticRegression
from certus.objectives import Hinge
from certus.objectives.terms import L2
from certus.optimize import RobbinsMonro, subgradient_descent
from certus.svm import LinearSVC, LinearSVR
from certus.verify import check, judge

FREE = {"intercept_scaling": np.inf}


def clouds(seed=0, n=60, d=2, distance=1.2):
    """Two overlapping clouds."""
    rng = np.random.default_rng(seed)
    y = np.where(np.arange(n) % 2, 1, -1)
    return rng.normal(size=(n, d)) + distance * y[:, None] / np.sqrt(d), y


def apart(seed=0, n=40, d=2, gap=0.4):
    """Rows that a hyperplane separates."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(6 * n, d))
    w, b = rng.normal(size=d), 0.2
    z = (X @ w + b) / np.linalg.norm(w)
    keep = np.flatnonzero(np.abs(z) > gap)[:n]
    return X[keep], np.sign(z[keep]).astype(int)


def quadratic_programme(X, y):
    """Hard margin by a general solver."""
    A = y[:, None] * np.column_stack([X, np.ones(len(y))])
    norm = np.append(np.ones(X.shape[1]), 0.0)
    start = linprog(
        np.zeros(A.shape[1]), A_ub=-A, b_ub=-np.ones(len(y)), bounds=(None, None)
    ).x
    found = minimize(
        lambda v: (norm * v) @ v / 2,
        start,
        jac=lambda v: norm * v,
        constraints={"type": "ineq", "fun": lambda v: A @ v - 1, "jac": lambda v: A},
        method="SLSQP",
        options={"maxiter": 1000, "ftol": 1e-15},
    )
    return found.x[:-1], found.x[-1]


# -- the hard margin ------------------------------------------------------------------


@pytest.mark.catalog("CLS-29", "CLS-30")
@pytest.mark.parametrize("seed", range(4))
def test_hard_margin_equals_a_quadratic_programme_and_svc(seed):
    X, y = apart(seed)
    model = LinearSVC(C=np.inf, tol=1e-10, **FREE).fit(X, y)
    w, b = quadratic_programme(X, y)
    np.testing.assert_allclose(model.coef_[0], w, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(model.intercept_, b, rtol=1e-4, atol=1e-5)
    theirs = SVC(kernel="linear", C=1e10, tol=1e-8).fit(X, y)
    np.testing.assert_allclose(model.coef_, theirs.coef_, rtol=1e-4, atol=1e-5)
    f = y * model.decision_function(X)
    assert f.min() == pytest.approx(1.0, abs=1e-9)
    assert model.certificate_.met and model.certificate_.value <= 1e-10
    # The same width as a maximum over unit vectors, found by brute force over angles.
    angles = np.linspace(0, 2 * np.pi, 20_001)
    units = np.column_stack([np.cos(angles), np.sin(angles)])
    z = X @ units.T
    widths = (z[y > 0].min(axis=0) - z[y < 0].max(axis=0)) / 2
    assert model.margin_[0] == pytest.approx(widths.max(), rel=3e-4)
    direction = model.coef_[0] / np.linalg.norm(model.coef_[0])
    np.testing.assert_allclose(direction, units[widths.argmax()], atol=2e-3)
    assert model.margin_[0] == pytest.approx(1 / np.linalg.norm(model.coef_[0]))


@pytest.mark.catalog("CLS-31")
def test_only_support_vectors_matter():
    X, y = apart(1)
    model = LinearSVC(C=np.inf, tol=1e-10, **FREE).fit(X, y)
    f = y * model.decision_function(X)
    on = model.support_
    np.testing.assert_allclose(f[on], 1.0, atol=1e-6)
    assert len(on) < len(y) and np.all(np.delete(f, on) > 1)
    fewer = LinearSVC(C=np.inf, tol=1e-10, **FREE).fit(X[on], y[on])
    np.testing.assert_allclose(fewer.coef_, model.coef_, rtol=1e-6)
    np.testing.assert_allclose(fewer.intercept_, model.intercept_, rtol=1e-6)


@pytest.mark.catalog("CLS-32")
def test_hard_margin_dual():
    X, y = apart(2)
    model = LinearSVC(C=np.inf, tol=1e-12, **FREE).fit(X, y)
    a = model.dual_[0]
    assert a.min() >= 0 and abs(a @ y) <= 1e-8 * a.sum()
    np.testing.assert_allclose((a * y) @ X, model.coef_[0], rtol=1e-6, atol=1e-8)
    v = (a * y) @ X
    primal, dual = model.coef_[0] @ model.coef_[0] / 2, a.sum() - v @ v / 2
    assert primal == pytest.approx(dual, rel=1e-8)


def test_hard_margin_with_penalised_or_without_intercept():
    X, y = apart(3)
    for options in ({}, {"intercept_scaling": 10.0}, {"fit_intercept": False}):
        shifted = X if options.get("fit_intercept", True) else X * 1.0
        if options.get("fit_intercept") is False:
            shifted = X[np.abs(X[:, 0]) > 0.2]
            labels = np.sign(shifted[:, 0]).astype(int)
        else:
            labels = y
        model = LinearSVC(C=np.inf, tol=1e-9, **options).fit(shifted, labels)
        assert model.certificate_.met and model.certificate_.status is Status.SOLVED
        soft = LinearSVC(C=1e7, loss="hinge", tol=1e-12, **options)
        with certus.config_context(on_uncertified="ignore"):
            soft.fit(shifted, labels)
        np.testing.assert_allclose(model.coef_, soft.coef_, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("fit_intercept", [True, False])
def test_no_hard_margin_is_refused_with_coinciding_combinations(fit_intercept):
    X, y = clouds(0)
    with pytest.warns(UncertifiedWarning, match="no hyperplane"):
        model = LinearSVC(C=np.inf, fit_intercept=fit_intercept).fit(X, y)
    found = model.certificate_
    assert found.status is Status.NO_MINIMISER
    assert found[found.primary].strength is Strength.REFUSED
    a = found.evidence.witness.combination
    assert a.min() >= 0 and a.sum() > 0
    np.testing.assert_allclose((a * y) @ X, 0, atol=1e-12)
    if fit_intercept:
        assert a[y > 0].sum() == pytest.approx(1) == a[y < 0].sum()
        np.testing.assert_allclose(a[y > 0] @ X[y > 0], a[y < 0] @ X[y < 0], atol=1e-12)
    assert certus.certify(model, X, y).status is Status.NO_MINIMISER
    a[np.argmax(a)] *= 1.001  # forged
    assert certus.certify(model, X, y).status is not Status.NO_MINIMISER


def test_one_row_with_both_labels_has_no_hard_margin():
    X, y = apart(0)
    X, y = np.vstack([X, X[:1]]), np.append(y, -y[0])
    with pytest.warns(UncertifiedWarning, match="no hyperplane"):
        model = LinearSVC(C=np.inf).fit(X, y)
    assert model.certificate_.status is Status.NO_MINIMISER


def test_a_wrong_margin_is_not_certified():
    X, y = apart(1)
    model = LinearSVC(C=np.inf, **FREE).fit(X, y)
    model.coef_ = model.coef_ * [1.05, 1.0]
    assert certus.certify(model, X, y).status is Status.REFUTED
    model = LinearSVC(C=np.inf, **FREE).fit(X, y)
    model.coef_ = model.coef_ * 3
    model.intercept_ = model.intercept_ * 3  # the same hyperplane
    assert certus.certify(model, X, y).met


# -- the soft margin ------------------------------------------------------------------


def slack_programme(X, y, level):
    """(λ/2)‖w‖² + mean ξ subject to y·Xw ≥ 1 − ξ, ξ ≥ 0, by a general solver."""
    n, d = X.shape
    A = y[:, None] * X

    def value(v):
        return level * v[:d] @ v[:d] / 2 + v[d:].mean()

    def slope(v):
        return np.append(level * v[:d], np.full(n, 1 / n))

    inside = {
        "type": "ineq",
        "fun": lambda v: A @ v[:d] - 1 + v[d:],
        "jac": lambda v: np.hstack([A, np.eye(n)]),
    }
    found = minimize(
        value,
        np.append(np.zeros(d), np.ones(n)),
        jac=slope,
        constraints=inside,
        bounds=[(None, None)] * d + [(0, None)] * n,
        method="SLSQP",
        options={"maxiter": 500, "ftol": 1e-14},
    )
    return found.x[:d], found.x[d:], found.fun


@pytest.mark.catalog("CLS-33", "CLS-34", "CLS-36")
@pytest.mark.parametrize("level", [0.05, 0.5])
def test_slack_hinge_and_dual_forms_agree(level):
    X, y = clouds(1, n=30)
    n = len(y)
    w, xi, value = slack_programme(X, y, level)
    model = LinearSVC(loss="hinge", C=1 / (level * n), fit_intercept=False, tol=1e-12)
    model.fit(X, y)
    np.testing.assert_allclose(model.coef_[0], w, rtol=1e-4, atol=1e-5)
    f = y * model.decision_function(X)
    np.testing.assert_allclose(xi, np.maximum(0, 1 - f), atol=1e-4)
    primal = np.maximum(0, 1 - f).mean() + level * np.sum(model.coef_**2) / 2
    assert primal == pytest.approx(value, rel=1e-6)
    # The dual with α in [0, 1]ⁿ.
    a = model.dual_[0] * level * n
    assert a.min() >= 0 and a.max() <= 1 + 1e-12
    v = (a * y) @ X
    np.testing.assert_allclose(v / (level * n), model.coef_[0], rtol=1e-7, atol=1e-9)
    dual = a.mean() - v @ v / (2 * level * n * n)
    assert dual == pytest.approx(primal, rel=1e-9)
    assert check(model.coef_[0], None, (Hinge(), L2(level)), X, y).value < 1e-6


@pytest.mark.catalog("CLS-34", "CLS-35", "CLS-38", "CLS-39")
@pytest.mark.parametrize("C", [0.05, 1.0, 20.0])
def test_soft_margin_with_a_free_intercept_equals_svc(C):
    X, y = clouds(2, d=3)
    model = LinearSVC(loss="hinge", C=C, tol=1e-12, **FREE).fit(X, y)
    theirs = SVC(kernel="linear", C=C, tol=1e-10).fit(X, y)
    np.testing.assert_allclose(model.coef_, theirs.coef_, rtol=1e-5, atol=1e-6)
    a, f = model.dual_[0], y * model.decision_function(X)
    assert a.min() >= 0 and a.max() <= C * (1 + 1e-12)
    assert abs(a @ y) <= 1e-8 * C * len(y)
    primal = np.sum(model.coef_**2) / 2 + C * np.maximum(0, 1 - f).sum()
    v = (a * y) @ X
    assert primal - (a.sum() - v @ v / 2) <= 1e-6 * primal
    # Three cases of complementary slackness.
    near = 1e-6
    assert np.all(f[a == 0] >= 1 - near)
    assert np.all(f[a >= C] <= 1 + near)
    free = (a > 1e-6 * C) & (a < C * (1 - 1e-6))
    np.testing.assert_allclose(f[free], 1.0, atol=near)
    if free.any():
        np.testing.assert_allclose(model.intercept_, theirs.intercept_, atol=1e-5)
        b = y[free] - X[free] @ model.coef_[0]
        assert np.ptp(b) <= 1e-6 and b[0] == pytest.approx(
            model.intercept_[0], abs=1e-6
        )


@pytest.mark.catalog("CLS-40")
def test_soft_becomes_hard_at_a_finite_C():
    X, y = apart(4)
    hard = LinearSVC(C=np.inf, tol=1e-12, **FREE).fit(X, y)
    threshold = hard.dual_.max()
    for factor in (1.01, 10.0):
        soft = LinearSVC(loss="hinge", C=factor * threshold, tol=1e-12, **FREE).fit(
            X, y
        )
        np.testing.assert_allclose(soft.coef_, hard.coef_, rtol=1e-5, atol=1e-7)
    below = LinearSVC(loss="hinge", C=0.3 * threshold, tol=1e-12, **FREE).fit(X, y)
    assert np.linalg.norm(below.coef_) < 0.999 * np.linalg.norm(hard.coef_)


@pytest.mark.catalog("CLS-41")
def test_subgradient_descent_reaches_the_dual_value():
    X, y = clouds(3)
    C = 0.1
    model = LinearSVC(loss="hinge", C=C, tol=1e-10, fit_intercept=False).fit(X, y)
    a = model.dual_[0]
    dual = a.sum() - np.sum(((a * y) @ X) ** 2) / 2

    def objective(w):
        m = y * (X @ w)
        inside = m < 1
        value = w @ w / 2 + C * np.maximum(0, 1 - m).sum()
        return value, w - C * (y * inside) @ X

    record = subgradient_descent(
        objective, np.zeros(2), step=RobbinsMonro(1.0, 1.0), max_iter=5000
    )
    assert dual - 1e-9 <= record.value <= dual + 1e-3 * abs(dual)


@pytest.mark.catalog("CLS-17")
def test_the_relaxed_objective_is_these_machines():
    """Ê ℓ(y·z) + reg(w): hinge and L2 give the machine, logistic the regression."""
    X, y = clouds(4)
    level = 0.1
    C = 1 / (level * len(y))
    losses = {
        LinearSVC(loss="hinge", C=C, fit_intercept=False, tol=1e-10): (
            lambda m: np.maximum(0, 1 - m)
        ),
        LinearSVC(C=C, fit_intercept=False, tol=1e-10): (
            lambda m: np.maximum(0, 1 - m) ** 2
        ),
        LogisticRegression(C=C, fit_intercept=False, tol=1e-10): (
            lambda m: np.logaddexp(0, -m)
        ),
    }
    for model, loss in losses.items():
        w = model.fit(X, y).coef_[0]

        def value(v, loss=loss):
            return loss(y * (X @ v)).mean() + level * v @ v / 2

        rough = minimize(value, w + 0.1, method="Nelder-Mead", options={"xatol": 1e-9})
        assert value(w) <= rough.fun + 1e-9


# -- exactness ------------------------------------------------------------------------


@given(
    seed=st.integers(0, 1000),
    C=st.sampled_from([1e-3, 0.1, 1.0, 30.0]),
    loss=st.sampled_from(["hinge", "squared_hinge"]),
    scaling=st.sampled_from([0.5, 1.0, np.inf]),
)
@settings(max_examples=40)
def test_every_problem_is_solved(seed, C, loss, scaling):
    rng = np.random.default_rng(seed)
    n, d = int(rng.integers(2, 80)), int(rng.integers(1, 12))
    X = np.round(rng.normal(size=(n, d)), 1)  # ties and repeated rows
    y = np.where(rng.uniform(size=n) < 0.5, 1, -1)
    y[:2] = (-1, 1)
    s = rng.integers(0, 4, n).astype(float)
    s[:2] = 1
    model = LinearSVC(loss=loss, C=C, tol=1e-8, intercept_scaling=scaling)
    model.fit(X, y, sample_weight=s)
    assert model.certificate_.met


@pytest.mark.parametrize("loss", ["epsilon_insensitive", "squared_epsilon_insensitive"])
@given(seed=st.integers(0, 1000), epsilon=st.sampled_from([0.0, 0.1, 1.0]))
@settings(max_examples=20)
def test_every_tube_is_fitted(loss, seed, epsilon):
    rng = np.random.default_rng(seed)
    n, d = int(rng.integers(1, 60)), int(rng.integers(1, 10))
    X, y = rng.normal(size=(n, d)), np.round(10 * rng.normal(size=n), 1)
    model = LinearSVR(loss=loss, epsilon=epsilon, C=2.0, tol=1e-8).fit(X, y)
    assert model.certificate_.met
    # P − D ≥ ½‖w − Σ dual·x‖², and the gap is a share of at most the loss at zero.
    power = 1 if loss == "epsilon_insensitive" else 2
    gap = model.certificate_.value * 2.0 * np.sum(np.abs(y) ** power)
    off = float(np.linalg.norm(model.dual_ @ X - model.coef_))
    assert off <= np.sqrt(2 * gap) + 1e-7 * (1 + np.linalg.norm(model.coef_))


@pytest.mark.parametrize("loss", ["hinge", "squared_hinge"])
def test_weight_is_repetition_to_many_digits(loss):
    X, y = clouds(6, n=80, d=4)
    s = np.random.default_rng(0).integers(0, 4, len(y))
    weighted = LinearSVC(loss=loss, tol=1e-12).fit(X, y, sample_weight=s)
    repeated = LinearSVC(loss=loss, tol=1e-12).fit(
        np.repeat(X, s, axis=0), np.repeat(y, s)
    )
    np.testing.assert_allclose(weighted.coef_, repeated.coef_, rtol=1e-9, atol=1e-10)


def words(n=400, d=3000, seed=0):
    rng = np.random.default_rng(seed)
    X = sparse.random_array((n, d), density=0.02, rng=rng, format="csr")
    w = rng.normal(size=d) * (rng.uniform(size=d) < 0.1)
    y = np.where(X @ w + 0.3 * rng.normal(size=n) > 0, 1, -1)
    return X, y


@pytest.mark.parametrize("loss", ["hinge", "squared_hinge"])
def test_dual_descent_and_newton_find_the_same(loss, monkeypatch):
    X, y = words()
    model = LinearSVC(loss=loss, tol=1e-9).fit(X, y)
    assert model.solver_ == "dual descent" and model.certificate_.met
    dense = LinearSVC(loss=loss, tol=1e-9).fit(X.toarray(), y)
    assert dense.solver_ != "dual descent"
    np.testing.assert_allclose(model.coef_, dense.coef_, atol=1e-4)


def test_dual_descent_for_numbers():
    X, y = words()
    target = np.asarray(X.sum(axis=1)).ravel() + 0.1 * y
    for loss in ("epsilon_insensitive", "squared_epsilon_insensitive"):
        model = LinearSVR(loss=loss, epsilon=0.05, tol=1e-10).fit(X, target)
        assert model.solver_ == "dual descent" and model.certificate_.met
        dense = LinearSVR(loss=loss, epsilon=0.05, tol=1e-10).fit(X.toarray(), target)
        np.testing.assert_allclose(model.coef_, dense.coef_, atol=2e-4)


@pytest.mark.parametrize("C", [1e-12, 1e-6, 1e6, 1e12])
@pytest.mark.parametrize("loss", ["hinge", "squared_hinge"])
@pytest.mark.parametrize("data", [clouds, apart])
def test_extreme_C(data, loss, C):
    X, y = data(0)
    with certus.config_context(on_uncertified="ignore"):
        model = LinearSVC(loss=loss, C=C).fit(X, y)
    found = model.certificate_
    assert found.met or found[found.primary].fix


# -- the certificate ------------------------------------------------------------------


def test_the_dual_point_is_evidence():
    X, y = clouds(7)
    model = LinearSVC(loss="hinge").fit(X, y)
    stated = model.certificate_.evidence
    assert stated.witness.dual.shape == (len(y), 1)
    forged = Evidence(stated.kind, witness=LinearWitness(-stated.witness.dual))
    assert judge(model, forged, X, y).met is False  # a bad witness proves nothing


def test_time_limit_leaves_a_usable_model():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(100_000, 60))
    y = X[:, 0] + rng.normal(size=100_000) > 0
    with pytest.warns(UncertifiedWarning, match="max_time"):
        model = LinearSVC(loss="hinge", tol=1e-14, max_time=0.05).fit(X, y)
    assert model.certificate_.status is Status.TIME_LIMIT
    assert 0 <= model.certificate_.value < 1 and model.score(X, y) > 0.6


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"multi_class": "crammer_singer"}, NotImplementedError),
        ({"penalty": "l1", "loss": "hinge"}, ValueError),
        ({"penalty": "l1", "C": np.inf}, ValueError),
        ({"penalty": "l3"}, ValueError),
        ({"loss": "logistic"}, ValueError),
        ({"C": 0}, ValueError),
        ({"C": -1.0}, ValueError),
        ({"intercept_scaling": 0.0}, ValueError),
        ({"C": "large"}, TypeError),
    ],
)
def test_senseless_parameter_values_are_refused(options, error):
    X, y = clouds()
    with pytest.raises(error):
        LinearSVC(**options).fit(X, y)
