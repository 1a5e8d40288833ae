"""Logistic and softmax regression against known optima, and the facts about them.

Labels come with weights that make a chosen point the optimum, or the classes are
separable, so that none exists and the certificate has to say so.
"""

from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import expit, logit, softmax

from certus._solvers import newton
from certus._solvers.problem import SolverLimits, Start
from certus.certificate import Status, Strength
from certus.linear_model import (
    LinearRegression,
    LogisticRegression,
    LogisticRegressionCV,
)
from certus.objectives import terms as t
from certus.testing.problems import (
    ConstructedProblem,
    known_logistic,
    known_softmax,
    separable,
)
from certus.verify.kernel.losses import LOSSES
from certus.verify.separation import holds
from helpers.judging import problem

Array = np.ndarray
TIGHT = 1e-12


def slope(f: Any, x: Array, step: float = 1e-5) -> Array:
    """Central differences of a function of an array."""
    x = np.asarray(x, dtype=float)
    out = np.empty(x.shape)
    for i in np.ndindex(x.shape):
        e = np.zeros(x.shape)
        e[i] = step
        out[i] = (f(x + e) - f(x - e)) / (2 * step)
    return out


def fitted(p: ConstructedProblem) -> Any:
    """The estimator that minimises the objective of ``p``, fitted."""
    penalty = p.terms[1]
    level = sum(penalty)
    model = LogisticRegression(
        C=1 / (level * p.s.sum()) if level else np.inf,
        l1_ratio=0.0 if isinstance(penalty, t.L2 | t.NoPenalty) else penalty[0] / level,
        fit_intercept=p.intercept is not None,
        # Without curvature of its own, L1 leaves more to rounding.
        tol=1e-10 if isinstance(penalty, t.L1) else TIGHT,
    )
    return model.fit(p.X, p.y, sample_weight=p.s)


def status(penalty: float) -> Status:
    return Status.SOLVED if penalty else Status.UNDECIDED


@given(
    seed=st.integers(0, 10**6),
    l1=st.sampled_from([0.0, 0.01]),
    l2=st.sampled_from([0.0, 0.01]),
    intercept=st.booleans(),
)
@settings(max_examples=40)
def test_logistic_finds_the_known_optimum(
    seed: int, l1: float, l2: float, intercept: bool
) -> None:
    p = known_logistic(l1=l1, l2=l2, intercept=intercept, seed=seed)
    model = fitted(p)
    # Without a penalty there is no bound: the gradient is measured.
    assert model.certificate_.status is status(l1 or l2)
    near = 1e-4 if l1 else 1e-5
    np.testing.assert_allclose(model.coef_[0], p.coef, atol=near)
    np.testing.assert_allclose(model.intercept_[0], p.intercept or 0.0, atol=near)
    if l1:
        assert np.array_equal(model.coef_[0] != 0, p.coef != 0)


@given(seed=st.integers(0, 10**6), l2=st.sampled_from([0.0, 0.01]), b=st.booleans())
@settings(max_examples=25)
def test_softmax_finds_the_known_optimum(seed: int, l2: float, b: bool) -> None:
    p = known_softmax(l2=l2, intercept=b, seed=seed)
    model = fitted(p)
    assert model.certificate_.status is status(l2)
    z = p.X @ p.coef.T + (0.0 if p.intercept is None else p.intercept)
    np.testing.assert_allclose(model.predict_proba(p.X), softmax(z, axis=1), atol=1e-6)
    if l2:
        np.testing.assert_allclose(model.coef_, p.coef, atol=2e-5)
        np.testing.assert_allclose(model.coef_.sum(axis=0), 0.0, atol=1e-6)


@pytest.fixture(scope="module")
def overlap() -> tuple[Array, Array]:
    """Two classes that no line separates."""
    rng = np.random.default_rng(19)
    X = rng.normal(size=(120, 3))
    return X, (X @ [1.0, -0.5, 0.2] + rng.logistic(size=120) > 0.3).astype(int)


def likelihood(X: Array, y: Array) -> Any:
    """Mean of −y·xᵀw + log(1 + exp xᵀw), y = 0 or 1."""
    return lambda w: float(np.mean(-y * (X @ w) + np.logaddexp(0, X @ w)))


@pytest.mark.catalog("CLS-20")
def test_the_gradient_vanishes_at_the_estimate(overlap: tuple[Array, Array]) -> None:
    X, y = overlap
    model = LogisticRegression(C=np.inf, tol=1e-10).fit(X, y)
    error = expit(X @ model.coef_[0] + model.intercept_[0]) - y
    assert np.abs(X.T @ error).max() / 120 < 1e-9 and abs(error.mean()) < 1e-9
    A = np.column_stack([X, np.ones(120)])
    w = np.append(model.coef_[0], model.intercept_)
    assert np.abs(slope(likelihood(A, y), w)).max() < 1e-8
    claim = model.certificate_["stationarity"]
    assert claim.strength is Strength.MEASURED and claim.value < 1e-9


@pytest.mark.catalog("CLS-21")
@given(z=st.floats(-15, 15), c=st.floats(-2, 2), j=st.integers(0, 2))
def test_log_odds_are_linear(z: float, c: float, j: int) -> None:
    assert logit(expit(z)) == pytest.approx(z, abs=1e-8)
    p = known_logistic(d=3, l2=0.01)
    model = _fitted_once()
    moved = p.X[:5].copy()
    moved[:, j] += c
    before, after = (
        model.predict_proba(X)[:, 1] / model.predict_proba(X)[:, 0]
        for X in (p.X[:5], moved)
    )
    np.testing.assert_allclose(after / before, np.exp(c * model.coef_[0, j]), rtol=1e-9)


@cache
def _fitted_once() -> Any:
    return fitted(known_logistic(d=3, l2=0.01))


@pytest.mark.catalog("CLS-22", "CLS-23")
@given(seed=st.integers(0, 10**6))
@settings(max_examples=20)
def test_gradient_and_hessian_of_the_logistic_loss(seed: int) -> None:
    rng = np.random.default_rng(seed)
    X, w, y = rng.normal(size=(20, 3)), rng.normal(size=3), rng.integers(0, 2, 20)
    f = likelihood(X, y)
    gradient = X.T @ (expit(X @ w) - y) / 20
    np.testing.assert_allclose(slope(f, w), gradient, atol=1e-6)
    signs = 2.0 * y - 1
    u = LOSSES[t.Logistic].slope(t.Logistic(), signs, X @ w)
    np.testing.assert_allclose(u, -expit(-signs * (X @ w)) * signs, rtol=1e-12)
    np.testing.assert_allclose(X.T @ u / 20, gradient, atol=1e-14)
    p = expit(X @ w)
    H = (X * (p * (1 - p))[:, None]).T @ X / 20
    numeric = [
        slope(lambda v, j=j: (X.T @ (expit(X @ v) - y))[j] / 20, w) for j in range(3)
    ]
    np.testing.assert_allclose(numeric, H, atol=1e-8)
    assert np.linalg.eigvalsh(H).min() >= 0


@pytest.mark.catalog("CLS-24")
def test_newton_needs_few_steps(overlap: tuple[Array, Array]) -> None:
    X, y = overlap
    model = LogisticRegression(C=np.inf, fit_intercept=False, tol=1e-12).fit(X, y)
    assert model.n_iter_[0] <= 10
    gradient = X.T @ (expit(X @ model.coef_[0]) - y) / 120
    assert np.linalg.norm(gradient) < 1e-10
    w = np.zeros(3)
    for _ in range(10):
        p = expit(X @ w)
        h = p * (1 - p)
        newton = w - np.linalg.solve((X * h[:, None]).T @ X, X.T @ (p - y))
        working = X @ w + (y - p) / h  # weighted least squares on working targets
        least = LinearRegression(fit_intercept=False).fit(X, working, sample_weight=h)
        np.testing.assert_allclose(least.coef_, newton, atol=1e-9)
        w = newton
    np.testing.assert_allclose(model.coef_[0], w, atol=1e-9)


@pytest.mark.catalog("CLS-25")
@pytest.mark.parametrize("kind", ["complete", "quasi"])
@pytest.mark.parametrize("k", [2, 3])
@pytest.mark.parametrize("intercept", [True, False])
def test_separation_is_refused_with_a_witness(
    kind: str, k: int, intercept: bool
) -> None:
    X, y, direction = separable(kind, n=40, k=k)
    loss: Any = t.Logistic() if k == 2 else t.Softmax(k)
    coded = 2.0 * y - 1 if k == 2 else y
    blank = np.zeros((X.shape[1], k) if k > 2 else X.shape[1])
    stated = problem(loss, t.NoPenalty(), X, coded, blank)
    assert holds(stated, X, direction)
    model = LogisticRegression(C=np.inf, fit_intercept=intercept)
    with pytest.warns(UserWarning, match="there is no minimum"):
        model.fit(X, y)
    certificate = model.certificate_
    assert certificate.status is Status.NO_MINIMISER and certificate.met is None
    assert certificate["stationarity"].strength is Strength.REFUSED
    witness = certificate.evidence.witness.direction
    assert holds(stated, X, witness)
    assert intercept or not witness[-1].any()
    assert np.isfinite(model.predict_proba(X)).all()
    penalised = LogisticRegression(C=1.0, fit_intercept=intercept).fit(X, y)
    assert penalised.certificate_.met and np.isfinite(penalised.coef_).all()


@pytest.mark.catalog("CLS-25")
def test_separable_classes_diverge_like_the_logarithm() -> None:
    X, y, _ = separable("complete", n=20, d=2)
    signs, w, sizes = 2 * y - 1, np.zeros(2), []
    for step in range(1, 40_001):
        w += X.T @ (signs * expit(-signs * (X @ w))) / 20
        if step in (400, 4_000, 40_000):
            sizes.append(np.linalg.norm(w))
    first, second = np.diff(sizes)
    assert first > 0.5 and second == pytest.approx(first, rel=0.3)
    model = LogisticRegression(C=2.0, tol=TIGHT, fit_intercept=False).fit(X, y)
    gradient = -X.T @ (signs * expit(-signs * (X @ model.coef_[0])))
    np.testing.assert_allclose(model.coef_[0], -2.0 * gradient, atol=1e-6)
    elsewhere = LogisticRegression(
        C=2.0, tol=TIGHT, fit_intercept=False, warm_start=True
    )
    elsewhere.classes_ = np.array([0, 1])
    elsewhere.coef_, elsewhere.intercept_ = np.full((1, 2), 3.0), np.zeros(1)
    np.testing.assert_allclose(elsewhere.fit(X, y).coef_, model.coef_, atol=1e-6)


@pytest.mark.catalog("CLS-26")
def test_decisions_follow_the_sign_and_are_calibrated() -> None:
    rng = np.random.default_rng(20)
    X = rng.normal(size=(40_000, 2))
    y = rng.uniform(size=40_000) < expit(X @ [1.5, -1.0] + 0.3)
    model = LogisticRegression(C=np.inf).fit(X, y)
    p, z = model.predict_proba(X)[:, 1], model.decision_function(X)
    np.testing.assert_allclose(p, expit(z), rtol=1e-12)
    assert np.array_equal(model.predict(X), z > 0)
    assert np.array_equal(model.predict(X), p > 0.5)
    bins = np.digitize(p, np.linspace(0, 1, 11)[1:-1])
    for b in range(10):
        inside = bins == b
        spread = np.sqrt(0.25 / inside.sum())
        assert abs(y[inside].mean() - p[inside].mean()) < 5 * spread


@pytest.mark.catalog("CLS-27")
def test_softmax_gradient_and_rule() -> None:
    rng = np.random.default_rng(21)
    X, W = rng.normal(size=(25, 3)), rng.normal(size=(4, 3))
    y = rng.integers(0, 4, 25)

    def risk(W: Array) -> float:
        return float(LOSSES[t.Softmax].value(t.Softmax(4), y, X @ W.T).mean())

    expected = (softmax(X @ W.T, axis=1) - np.eye(4)[y]).T @ X / 25
    np.testing.assert_allclose(slope(risk, W), expected, atol=1e-7)
    model = LogisticRegression(C=0.7, tol=TIGHT, fit_intercept=False).fit(X, y)
    error = softmax(X @ model.coef_.T, axis=1) - np.eye(4)[y]
    np.testing.assert_allclose(0.7 * error.T @ X, -model.coef_, atol=1e-5)
    P = model.predict_proba(X)
    np.testing.assert_allclose(P, softmax(X @ model.coef_.T, axis=1), rtol=1e-10)
    assert np.array_equal(model.predict(X), P.argmax(axis=1))
    np.testing.assert_allclose(np.exp(model.predict_log_proba(X)), P, rtol=1e-10)


@pytest.mark.catalog("CLS-28")
def test_a_common_vector_changes_nothing_and_two_classes_are_logistic(
    overlap: tuple[Array, Array],
) -> None:
    rng = np.random.default_rng(22)
    X = rng.integers(-4, 5, (20, 3)) * 1.0  # small integers: sums are exact
    W, common = rng.integers(-4, 5, (3, 4)) * 1.0, rng.integers(-4, 5, (3, 1)) * 1.0
    moved = softmax(X @ (W + common), axis=1)
    assert np.array_equal(softmax(X @ W, axis=1), moved)
    z = rng.normal(size=(30, 2))
    for y in (np.zeros(30, int), np.ones(30, int)):
        both = LOSSES[t.Softmax].value(t.Softmax(2), y, z)
        one = LOSSES[t.Logistic].value(t.Logistic(), 2.0 * y - 1, z[:, 1] - z[:, 0])
        np.testing.assert_allclose(both, one, rtol=1e-12)
    # L2 on two score vectors costs half of what it costs on their difference.
    X, y = overlap
    rows = newton.NewtonRows(X, y, np.ones(len(y)), float(len(y)))
    pair = newton.solve(
        newton.NewtonProblem(rows, t.Softmax(2), t.L2(0.02), True),
        Start(np.zeros((4, 2))),
        SolverLimits(TIGHT, 100),
    ).primal
    model = LogisticRegression(C=1 / (0.01 * len(y)), tol=TIGHT).fit(X, y)
    np.testing.assert_allclose(pair[:-1, 1] - pair[:-1, 0], model.coef_[0], atol=1e-6)
    np.testing.assert_allclose(
        pair[-1, 1] - pair[-1, 0], model.intercept_[0], atol=1e-6
    )


@pytest.mark.parametrize("k", [2, 3])
@pytest.mark.parametrize("ratio", [0.0, 0.5])
def test_scores_of_the_folds_equal_explicit_loops(k: int, ratio: float) -> None:
    rng = np.random.default_rng(23)
    X = rng.normal(size=(60, 4))
    y = np.argmax(X[:, :k] + rng.gumbel(size=(60, k)), axis=1)
    folds = [
        (np.flatnonzero(np.arange(60) % 3 != f), np.arange(f, 60, 3)) for f in (0, 1, 2)
    ]
    model = LogisticRegressionCV(
        Cs=[0.01, 0.3, 5.0],
        l1_ratios=[ratio],
        cv=folds,
        tol=1e-10,
        use_legacy_attributes=False,
        scoring="neg_log_loss",
    ).fit(X, y)
    for f, (train, test) in enumerate(folds):
        for c, C in enumerate(model.Cs_):
            one = LogisticRegression(C=C, l1_ratio=ratio, tol=1e-10)
            one.fit(X[train], y[train])
            P = one.predict_proba(X[test])
            expected = np.log(P[np.arange(len(test)), y[test]]).mean()
            assert model.scores_[f, 0, c] == pytest.approx(expected, rel=1e-4)
            kept = np.column_stack([one.coef_, one.intercept_])
            np.testing.assert_allclose(model.coefs_paths_[f, 0, c], kept, atol=2e-4)
    best = model.scores_.mean(axis=0).argmax()
    assert model.Cs_[best] == model.C_ and model.l1_ratio_ == ratio
    assert model.certificate_.met


def test_l1_path_where_a_fold_lacks_a_label():
    """Only intercepts move at first: no column is in the working set then."""
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(100, 3)), rng.choice(["a", "b"], 100)
    y[:2] = "c"
    folds = [(np.arange(2, 70), np.arange(70, 100))]
    model = LogisticRegressionCV(Cs=[0.01, 0.1, 1.0], l1_ratios=(1.0,), cv=folds)
    assert model.fit(X, y).certificate_.met
