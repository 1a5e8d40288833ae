"""Hyperplanes and margins: facts of the notes that belong to no estimator."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import linprog, minimize
from sklearn.preprocessing import PolynomialFeatures

import certus
from certus.bounds import cover_count
from certus.kernels import feature_map
from certus.linear_model import LogisticRegression
from certus.objectives import Polynomial
from certus.robustness import ThreatModel, relative_robustness, robust_accuracy
from certus.searches.overlaps import coinciding
from certus.svm import LinearSVC
from certus.testing.toys import xor_table
from certus.verify.margin import combination_holds


def separable_by_a_line(X, y, intercept=True):
    """Whether some (w, b) has y(Xw + b) ≥ 1, by a linear programme."""
    A = y[:, None] * (np.column_stack([X, np.ones(len(y))]) if intercept else X)
    found = linprog(
        np.zeros(A.shape[1]), A_ub=-A, b_ub=-np.ones(len(y)), bounds=(None, None)
    )
    return found.status == 0


@pytest.mark.catalog("CLS-01")
@given(st.floats(1e-3, 1e3))
def test_a_classifier_is_its_direction(c):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(40, 3))
    model = LinearSVC().fit(X, X[:, 0] > 0.1)
    before = model.predict(X)
    model.coef_, model.intercept_ = c * model.coef_, c * model.intercept_
    np.testing.assert_array_equal(model.predict(X), before)


@pytest.mark.catalog("CLS-01")
def test_a_score_of_zero_is_the_negative_class():
    model = LinearSVC().fit([[-1.0], [1.0]], [-1, 1])
    assert model.decision_function([[0.0]])[0] == pytest.approx(0, abs=1e-12)
    model.intercept_ = np.zeros(1)
    assert model.predict([[0.0]])[0] == -1


@pytest.mark.catalog("CLS-02")
def test_a_row_is_safe_up_to_its_distance_from_the_hyperplane():
    """∣f(x)∣/‖w‖ is the shortest change of label: by search, by attack, by proof."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(40, 3))
    y = np.where(X @ [1.0, 2.0, -1.0] + 0.3 * rng.normal(size=40) > 0.2, 1, -1)
    model = LinearSVC().fit(X, y)
    w, b = model.coef_[0], model.intercept_[0]
    X, y = (part[model.predict(X) == y][:4] for part in (X, y))
    signed = model.decision_function(X) / np.linalg.norm(w)
    for x, label, distance in zip(X, y, signed):
        nearest = minimize(
            lambda v, x=x: np.sum((v - x) ** 2),
            -b * w / (w @ w),
            constraints={"type": "eq", "fun": lambda v: v @ w + b},
            options={"ftol": 1e-15},
        ).x
        assert abs(distance) == pytest.approx(np.linalg.norm(x - nearest), rel=1e-4)
        # The way there is along the normal w.
        np.testing.assert_allclose(
            x - distance * w / np.linalg.norm(w), nearest, atol=1e-3
        )
        moved = relative_robustness(model, x[None]) * np.linalg.norm(x)
        assert moved == pytest.approx(abs(distance), rel=1e-3)
        for share, safe in ((0.999, 1.0), (1.001, 0.0)):
            threat = ThreatModel("l2", share * abs(distance))
            found = robust_accuracy(model, x[None], [label], threat, random_state=0)
            assert (found.lower, found.upper) == (safe, safe)


@pytest.mark.catalog("CLS-03")
@pytest.mark.parametrize("c", [1e-3, 0.7, 1e3])
def test_the_margin_has_no_scale_and_its_sign_tells(c):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(40, 2))
    X, y = X[np.abs(X[:, 0]) > 0.4], np.sign(X[np.abs(X[:, 0]) > 0.4, 0]).astype(int)
    model = LinearSVC(C=np.inf, intercept_scaling=np.inf).fit(X, y)
    stated = model.certificate_["margin"].value
    scores = y * model.decision_function(X) / np.linalg.norm(model.coef_)
    assert stated == pytest.approx(scores.min(), rel=1e-9)
    assert stated == pytest.approx(model.margin_[0], rel=1e-6)
    model.coef_, model.intercept_ = c * model.coef_, c * model.intercept_
    found = certus.certify(model, X, y)
    assert found.met and found["margin"].value == pytest.approx(stated, rel=1e-9)
    model.intercept_ = model.intercept_ + 10 * c  # all rows on one side
    found = certus.certify(model, X, y)
    assert found.met is False and "does not separate" in str(found)


@pytest.mark.catalog("CLS-03")
def test_the_certificate_states_the_margin():
    X = np.array([[0.0, 0.0], [0.0, 1.0], [3.0, 0.0], [3.0, 2.0]])
    y = np.array([-1, -1, 1, 1])
    model = LinearSVC(C=np.inf, intercept_scaling=np.inf).fit(X, y)
    assert model.margin_[0] == pytest.approx(1.5, rel=1e-6)
    assert model.certificate_["margin"].value == pytest.approx(1.5, rel=1e-6)


@pytest.mark.catalog("CLS-19")
@pytest.mark.parametrize("seed", range(10))
def test_no_surrogate_beats_the_best_threshold(seed):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=40)
    y = np.where(x + rng.normal(size=40) > 0, 1, -1)
    y[:2] = (-1, 1)
    cuts = np.concatenate([[-np.inf], np.sort(x), [np.inf]])
    risks = [
        np.mean(side * np.where(x > c, 1, -1) != y) for c in cuts for side in (1, -1)
    ]
    for model in (LinearSVC(), LinearSVC(loss="hinge"), LogisticRegression()):
        assert min(risks) <= 1 - model.fit(x[:, None], y).score(x[:, None], y) + 1e-12


@pytest.mark.catalog("CLS-13")
def test_a_linear_programme_finds_no_line_for_xor():
    X, y = xor_table()
    assert not separable_by_a_line(X, y)
    a = coinciding(X, y.astype(float), True)
    np.testing.assert_allclose(a, 0.5)  # both diagonals meet in the centre
    assert combination_holds(X, y.astype(float), np.ones(4), a, True)
    forged = a.copy()
    forged[0] += 1e-9
    assert not combination_holds(X, y.astype(float), np.ones(4), forged, True)


def rings(n=60, seed=0):
    rng = np.random.default_rng(seed)
    y = np.where(np.arange(n) % 2, 1, -1)
    radius = np.where(y > 0, 2.0, 1.0) + rng.uniform(-0.3, 0.3, n)
    angle = rng.uniform(0, 2 * np.pi, n)
    return radius[:, None] * np.column_stack([np.cos(angle), np.sin(angle)]), y


@pytest.mark.catalog("CLS-43", "CLS-44")
@pytest.mark.parametrize("data", [rings, xor_table])
def test_degree_two_features_separate_rings_and_xor(data):
    X, y = data()
    assert not separable_by_a_line(X, y)
    theirs = PolynomialFeatures(2, include_bias=False).fit_transform(X)
    for lifted in (theirs, feature_map(Polynomial(2), X)):
        assert separable_by_a_line(lifted, y)
        model = LinearSVC(C=np.inf).fit(lifted, y)
        assert model.score(lifted, y) == 1.0 and model.certificate_.met


@pytest.mark.catalog("CLS-43")
@pytest.mark.parametrize("data", [rings, xor_table])
def test_a_quadratic_classifier_is_linear_in_its_features(data):
    """f(x) = ⟨x, Qx⟩ + √2⟨x, p⟩ + b is ⟨φ(x), w⟩, φ of the kernel (⟨x, x'⟩ + 1)²."""
    X, y = data()
    d = X.shape[1]

    def phi(X):
        outer = np.einsum("ni,nj->nij", X, X).reshape(len(X), -1)
        return np.column_stack([outer, np.sqrt(2) * X, np.ones(len(X))])

    np.testing.assert_allclose(phi(X) @ phi(X).T, (X @ X.T + 1) ** 2, atol=1e-12)
    model = LinearSVC(C=np.inf, fit_intercept=False, tol=1e-8).fit(phi(X), y)
    w = model.coef_[0]
    Q, p, b = w[: d * d].reshape(d, d), w[d * d : -1], w[-1]
    np.testing.assert_allclose(Q, Q.T, atol=1e-6)
    f = np.einsum("ni,ij,nj->n", X, Q, X) + np.sqrt(2) * X @ p + b
    np.testing.assert_allclose(f, model.decision_function(phi(X)), atol=1e-9)
    np.testing.assert_array_equal(np.sign(f), y)
    other = feature_map(Polynomial(2), X)  # other features of the same kernel
    again = LinearSVC(C=np.inf, fit_intercept=False, tol=1e-8).fit(other, y)
    np.testing.assert_allclose(again.decision_function(other), f, rtol=1e-3, atol=1e-3)


# -- counting -------------------------------------------------------------------------


@pytest.mark.catalog("THY-05")
@pytest.mark.parametrize("n", [1, 2, 3])
def test_cover_counts_the_labellings_a_hyperplane_realises(n):
    rng = np.random.default_rng(n)
    for s in range(1, 6):
        X = rng.normal(size=(s, n))
        labels = [
            np.array([1.0 if k >> i & 1 else -1.0 for i in range(s)])
            for k in range(2**s)
        ]
        count = sum(separable_by_a_line(X, y, intercept=False) for y in labels)
        assert count == cover_count(s, n)


@pytest.mark.catalog("THY-06", "THY-07")
@given(st.integers(1, 40), st.integers(1, 40))
def test_cover_recurrence_and_corollaries(s, n):
    assert cover_count(s + 1, n) == cover_count(s, n) + cover_count(s, n - 1)
    assert cover_count(n, n) == 2**n and cover_count(n + 1, n) < 2 ** (n + 1)
    assert cover_count(2 * n, n) == 2 ** (2 * n - 1)
    if s <= n:
        assert cover_count(s, n) == 2**s


def test_cover_count_refuses_nonsense():
    for s, n in ((0, 1), (1, -1)):
        with pytest.raises(ValueError, match="at least"):
            cover_count(s, n)
    with pytest.raises(TypeError):
        cover_count(2.5, 1)
