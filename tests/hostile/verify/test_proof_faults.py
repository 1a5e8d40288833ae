"""Faults that once were proofs: data, weights and parameters that fooled a bound.

Each test is a case in which a wrong point was called proved and met, or an honest one
refused. Wrong points may be missed, undecided or refused; never met.
"""

import copy
from typing import Any

import numpy as np
import pytest
import sklearn.linear_model as sk
import sklearn.svm
from scipy import sparse

import certus
from certus import kernel_ridge, linear_model, svm
from certus.certificate import Status, Strength
from certus.objectives import terms as t

Array = np.ndarray
INTEGERS = [np.uint8, np.int8, np.uint16, np.int16, np.int32]
rng = np.random.default_rng(0)
X = rng.normal(size=(80, 4))
Y = X @ [1.0, -2.0, 0.0, 0.5] + 1.0 + 0.3 * rng.normal(size=80)
TWO = (X[:, 0] + 0.7 * rng.normal(size=80) > 0.2).astype(int)
THREE = np.digitize(X[:, 0] + 0.5 * rng.normal(size=80), [-0.4, 0.4])
COUNTS = rng.poisson(np.exp(0.3 * X[:, 0] + 0.5)).astype(float)


def is_proof(found: Any) -> bool:
    return any(
        claim.met and claim.strength is Strength.PROVED and claim.target is not None
        for claim in found.claims
    )


# -- 1: sparse integers, whose squares wrap --------------------------------------------


def counts(dtype: Any) -> tuple[Any, Array]:
    """Sparse rows with entries that are too large to be squared in their own type."""
    draw = np.random.default_rng(1)
    top = min(int(np.iinfo(dtype).max), 60_000)
    dense = draw.integers(top // 2, top, size=(60, 5)) * (draw.random((60, 5)) < 0.6)
    y = dense @ draw.normal(size=5) / top + 0.1 * draw.normal(size=60)
    return sparse.csr_array(dense.astype(dtype)), y


@pytest.mark.parametrize("dtype", INTEGERS)
@pytest.mark.parametrize(
    "terms",
    [
        (t.Squared(), t.NoPenalty()),
        (t.Squared(), t.L1(0.1)),
        (t.Squared(), t.L2(0.1)),
        (t.Quantile(0.5), t.NoPenalty()),
        (t.Huber(0.1), t.NoPenalty()),
        (t.Huber(0.1), t.L2(0.1)),
    ],
    ids=str,
)
def test_sparse_integers_are_read_as_numbers(dtype: Any, terms: Any) -> None:
    A, y = counts(dtype)
    draw = np.random.default_rng(2)
    for w in (np.zeros(5), *draw.normal(size=(5, 5))):
        small = certus.check(w, 0.0, terms, A, y)
        plain = certus.check(w, 0.0, terms, A.toarray().astype(float), y)
        assert not is_proof(small)
        assert small.value == pytest.approx(plain.value, rel=1e-6)


@pytest.mark.parametrize("dtype", INTEGERS)
def test_the_gradient_of_sparse_integers(dtype: Any) -> None:
    A, y = counts(dtype)
    terms = (t.Logistic(), t.NoPenalty())
    w = np.full((1, 5), 1e-5)
    small = certus.check(w, [0.0], terms, A, y > 0)
    plain = certus.check(w, [0.0], terms, A.toarray().astype(float), y > 0)
    assert small.value == pytest.approx(plain.value, rel=1e-9)


@pytest.mark.parametrize("dtype", INTEGERS)
@pytest.mark.parametrize("name", ["linear", "rbf", "poly"])
def test_kernel_products_of_sparse_integers(dtype: Any, name: str) -> None:
    draw = np.random.default_rng(3)
    top = min(int(np.iinfo(dtype).max), 30_000)
    A = draw.integers(top // 2, top, size=(50, 4)) * (draw.random((50, 4)) < 0.7)
    y = A[:, 0] > A[:, 1]
    A = sparse.csr_array(A.astype(dtype))
    level = 1e-6 / float(top) ** 2 if name != "rbf" else 1.0
    model = sklearn.svm.SVC(kernel=name, C=level, gamma=1 / top**2, tol=1e-10)
    model.fit(A.astype(float), y)
    assert certus.certify(model, A.astype(float), y).met
    assert certus.certify(model, A, y).met
    model.dual_coef_ = 0.5 * model.dual_coef_
    assert not is_proof(certus.certify(model, A, y))


# -- 2, 3, 4: numbers far away, tiny, or huge ------------------------------------------


@pytest.mark.parametrize("form", [sparse.csr_array, sparse.csc_array, np.asarray])
@pytest.mark.parametrize("far", [1e7, 1e9, 1.7e9])
def test_columns_far_from_zero(form: Any, far: float) -> None:
    """Time stamps: the spread of a column must not be a difference of large squares."""
    draw = np.random.default_rng(4)
    A = form(draw.normal(size=(60, 3)) + far)
    y = draw.normal(size=60)
    for terms in ((t.Squared(), t.NoPenalty()), (t.Squared(), t.L1(1e-3))):
        for w in draw.normal(size=(3, 3)):
            b = float(np.mean(y - A @ w))
            assert not is_proof(certus.check(w, b, terms, A, y))


@pytest.mark.parametrize("scale", [1e-150, 1e-165, 1e-200, 1e150])
def test_columns_whose_squares_vanish_or_overflow(scale: float) -> None:
    best = np.linalg.lstsq(X, Y - Y.mean(), rcond=None)[0]
    for penalty in (t.NoPenalty(), t.L1(1e-3 * scale)):
        terms = (t.Squared(), penalty)
        for w in (np.zeros(4), 0.9 * best / scale, best):
            assert not is_proof(certus.check(w, float(Y.mean()), terms, X * scale, Y))


@pytest.mark.parametrize("size", [1e300, 1e308, 1e-300])
def test_weights_of_any_size(size: float) -> None:
    s = np.full(80, size)
    for terms in ((t.Squared(), t.L1(0.1)), (t.Huber(1.0), t.L2(0.1))):
        model = linear_model.Lasso(0.1, tol=1e-8).fit(X, Y)
        if terms[0] == t.Squared():
            assert certus.check(model.coef_, model.intercept_, terms, X, Y, s).met
        wrong = certus.check(np.zeros(4), 0.0, terms, X, Y, s)
        assert not is_proof(wrong)
        plain = certus.check(np.zeros(4), 0.0, terms, X, Y)
        assert wrong.value == pytest.approx(plain.value, rel=1e-9)


# -- 6: a function that is no kernel ---------------------------------------------------


def test_a_sigmoid_that_is_not_a_kernel_above_two_thousand_rows() -> None:
    draw = np.random.default_rng(5)
    A = draw.normal(size=(2100, 2))
    y = A[:, 0] + 0.5 * draw.normal(size=2100) > 0
    model = sklearn.svm.SVC(kernel="sigmoid", coef0=-1.0, gamma=0.5).fit(A, y)
    found = certus.certify(model, A, y)
    assert not is_proof(found) and found.status is not Status.SOLVED


# -- 7: the reference of a penalised intercept -----------------------------------------


@pytest.mark.parametrize("loss", ["hinge", "squared_hinge"])
def test_shares_of_the_best_constant_with_its_own_penalty(loss: str) -> None:
    """Few positives: the best constant has a far smaller loss than none at all."""
    draw = np.random.default_rng(6)
    A = draw.normal(size=(400, 3))
    y = (A[:, 0] + draw.normal(size=400) > 3.0).astype(int)
    assert 0 < y.sum() < 20
    options = {"C": 10.0, "loss": loss, "intercept_scaling": 10.0}
    exact = svm.LinearSVC(tol=1e-10, **options).fit(A, y)
    signs = 2.0 * y - 1

    def value(w: Array, b: float) -> float:
        m = np.maximum(0, 1 - signs * (A @ w + b)) ** (1 + (loss != "hinge"))
        return float(m.mean() + (w @ w + (b / 10) ** 2) / (2 * 10.0 * 400))

    best = value(exact.coef_[0], exact.intercept_[0])
    base = min(value(np.zeros(3), b) for b in np.linspace(-2, 0, 2001))
    for move in (1e-6, 1e-4, 1e-2):
        model = copy.deepcopy(exact)
        model.coef_ = exact.coef_ + move
        found = certus.certify(model, A, y)
        truth = (value(model.coef_[0], model.intercept_[0]) - best) / base
        assert found.value >= truth * (1 - 1e-3) - 1e-9
    assert base < 0.5 * value(np.zeros(3), 0.0)


# -- 8: the same rows ten times over ---------------------------------------------------


@pytest.mark.parametrize(
    ("model", "y"),
    [
        (linear_model.Ridge(5.0), Y),
        (linear_model.RidgeCV([5.0, 6.0]), Y),
        (linear_model.RidgeClassifier(5.0), THREE),
        (linear_model.LogisticRegression(C=0.1), TWO),
        (linear_model.LogisticRegression(C=0.1), THREE),
        (linear_model.LogisticRegressionCV(Cs=[0.1, 0.2], cv=3), TWO),
        (svm.LinearSVC(C=0.1), TWO),
        (svm.LinearSVR(C=0.1), Y),
    ],
    ids=lambda value: type(value).__name__,
)
def test_rows_repeated_ten_times_are_another_problem(model: Any, y: Array) -> None:
    model.fit(X, y)
    assert certus.certify(model, X, y).met
    found = certus.certify(model, np.repeat(X, 10, axis=0), np.repeat(y, 10))
    assert not found.met and not is_proof(found)


@pytest.mark.parametrize(
    "model", [linear_model.Lasso(0.1), linear_model.ElasticNet(0.1)], ids=repr
)
def test_means_do_not_change_with_copies(model: Any) -> None:
    model.fit(X, Y)
    assert certus.certify(model, np.repeat(X, 10, axis=0), np.repeat(Y, 10)).met


# -- 9: parameters changed after the fit -----------------------------------------------

LEVELS = (0.01, 3.0, 100.0)
CHANGES: list[tuple[Any, Array, dict[str, Any]]] = [
    *((linear_model.Lasso(0.1), Y, {"alpha": a}) for a in (0.0, 0.01, 0.2, 10.0)),
    (linear_model.Lasso(0.1), Y, {"fit_intercept": False}),
    (linear_model.Lasso(0.1), Y, {"positive": True}),
    *((linear_model.ElasticNet(0.1), Y, {"alpha": a}) for a in (0.0, 0.01, 0.2, 10.0)),
    *((linear_model.ElasticNet(0.1), Y, {"l1_ratio": r}) for r in (0.0, 0.4, 1.0)),
    (linear_model.ElasticNet(0.1), Y, {"fit_intercept": False}),
    (linear_model.ElasticNet(0.1), Y, {"positive": True}),
    *((linear_model.Ridge(), Y, {"alpha": a}) for a in (0.0, *LEVELS)),
    (linear_model.Ridge(), Y, {"fit_intercept": False}),
    (linear_model.LinearRegression(), Y, {"fit_intercept": False}),
    (linear_model.LinearRegression(), Y, {"positive": True}),
    *((linear_model.RidgeClassifier(), TWO, {"alpha": a}) for a in (0.0, *LEVELS)),
    *((linear_model.RidgeClassifier(), THREE, {"alpha": a}) for a in (0.0, *LEVELS)),
    (linear_model.RidgeClassifier(), TWO, {"class_weight": "balanced"}),
    (linear_model.RidgeClassifier(), TWO, {"class_weight": {0: 3.0}}),
    (linear_model.RidgeClassifier(), TWO, {"fit_intercept": False}),
    *((linear_model.LogisticRegression(), TWO, {"C": c}) for c in (*LEVELS, np.inf)),
    *((linear_model.LogisticRegression(), THREE, {"C": c}) for c in (*LEVELS, np.inf)),
    *((linear_model.LogisticRegression(), TWO, {"l1_ratio": r}) for r in (0.5, 1.0)),
    (linear_model.LogisticRegression(), TWO, {"class_weight": "balanced"}),
    (linear_model.LogisticRegression(), THREE, {"class_weight": {0: 3.0}}),
    (linear_model.LogisticRegression(), TWO, {"fit_intercept": False}),
    (linear_model.LogisticRegression(), THREE, {"fit_intercept": False}),
    *(
        (linear_model.QuantileRegressor(alpha=0.01), Y, {"alpha": a})
        for a in (0, 0.1, 1.0)
    ),
    *(
        (linear_model.QuantileRegressor(alpha=0.01), Y, {"quantile": q})
        for q in (0.2, 0.9)
    ),
    (linear_model.QuantileRegressor(alpha=0.01), Y, {"fit_intercept": False}),
    *(
        (linear_model.RobustRegressor("huber"), Y, {"threshold": d})
        for d in (0.1, 0.01)
    ),
    *((linear_model.RobustRegressor("huber"), Y, {"alpha": a}) for a in LEVELS),
    *(
        (linear_model.RobustRegressor("huber"), Y, {"loss": name})
        for name in ("absolute",)
    ),
    (linear_model.RobustRegressor("huber"), Y, {"fit_intercept": False}),
    *((linear_model.RobustRegressor("absolute"), Y, {"alpha": a}) for a in LEVELS),
    *((linear_model.HuberRegressor(), Y, {"epsilon": e}) for e in (1.05, 3.0)),
    *((linear_model.HuberRegressor(), Y, {"alpha": a}) for a in (*LEVELS, 1e4)),
    (linear_model.HuberRegressor(), Y, {"fit_intercept": False}),
    *((linear_model.PoissonRegressor(), COUNTS, {"alpha": a}) for a in (0.0, *LEVELS)),
    (linear_model.PoissonRegressor(), COUNTS, {"fit_intercept": False}),
    *(
        (
            linear_model.GeneralizedLinearModel("poisson", alpha=1.0),
            COUNTS,
            {"alpha": a},
        )
        for a in LEVELS
    ),
    (
        linear_model.GeneralizedLinearModel("poisson", alpha=1.0),
        COUNTS,
        {"family": "gaussian"},
    ),
    *((svm.LinearSVC(), TWO, {"C": c}) for c in (*LEVELS, np.inf)),
    (svm.LinearSVC(), TWO, {"loss": "hinge"}),
    (svm.LinearSVC(), TWO, {"penalty": "l1"}),
    (svm.LinearSVC(), TWO, {"intercept_scaling": 50.0}),
    (svm.LinearSVC(), TWO, {"class_weight": "balanced"}),
    (svm.LinearSVC(), TWO, {"fit_intercept": False}),
    (svm.LinearSVC(), THREE, {"C": 30.0}),
    *((svm.LinearSVR(), Y, {"C": c}) for c in (0.01, 30.0)),
    *((svm.LinearSVR(), Y, {"epsilon": e}) for e in (0.1, 0.5)),
    (svm.LinearSVR(), Y, {"loss": "squared_epsilon_insensitive"}),
    *((svm.SVC(), TWO, {"C": c}) for c in LEVELS),
    *((svm.SVC(), TWO, {"gamma": g}) for g in (0.01, 5.0)),
    *((svm.SVC(), TWO, {"kernel": name}) for name in ("linear", "poly")),
    *((svm.SVR(), Y, {"C": c}) for c in LEVELS),
    *((svm.SVR(), Y, {"epsilon": e}) for e in (0.01, 0.5)),
    *((kernel_ridge.KernelRidge(), Y, {"alpha": a}) for a in LEVELS),
    *((kernel_ridge.KernelRidge(kernel="rbf"), Y, {"gamma": g}) for g in (0.01, 5.0)),
]


def test_the_list_of_changes_is_long_enough() -> None:
    assert len(CHANGES) >= 105


@pytest.mark.parametrize(
    ("model", "y", "changes"),
    CHANGES,
    ids=[f"{type(m).__name__}-{c}" for m, _, c in CHANGES],
)
def test_parameters_changed_after_the_fit(
    model: Any, y: Array, changes: dict[str, Any]
) -> None:
    """A claim that is met is true of the new problem: a new fit is the same model."""
    with certus.config_context(on_uncertified="ignore"):
        changed = copy.deepcopy(model).fit(X, y).set_params(**changes)
        found = certus.certify(changed, X, y)
        if not (found.met or is_proof(found)):
            return
        again = copy.deepcopy(changed).fit(X, y)
    score = "decision_function" if hasattr(model, "decision_function") else "predict"
    np.testing.assert_allclose(
        getattr(changed, score)(X), getattr(again, score)(X), atol=5e-3
    )


def test_the_headline_of_changed_parameters() -> None:
    model = linear_model.Lasso(alpha=0.1).fit(X, Y).set_params(alpha=10)
    found = certus.certify(model, X, Y)
    assert found.met is False and "10·‖w‖₁" in found["duality_gap"].objective


# -- also ------------------------------------------------------------------------------


class Doubled(linear_model.Lasso):
    def predict(self, X: Any) -> Array:
        return 2 * super().predict(X)


class Foreign(sk.Lasso):
    def predict(self, X: Any) -> Array:
        return 2 * super().predict(X)


@pytest.mark.parametrize("cls", [Doubled, Foreign])
def test_a_subclass_with_answers_of_its_own_is_refused(cls: type) -> None:
    with certus.config_context(on_uncertified="ignore"):
        model = cls(alpha=0.1).fit(X, Y)
    found = certus.certify(model, X, Y)
    assert found[found.primary].strength is Strength.REFUSED
    assert "overrides predict" in found[found.primary].detail


@pytest.mark.parametrize(
    ("model", "y"),
    [
        *(
            (m, Y)
            for m in (
                linear_model.Lasso(0.1),
                linear_model.Ridge(),
                linear_model.HuberRegressor(),
            )
        ),
        *(
            (m, Y)
            for m in (linear_model.QuantileRegressor(alpha=0.01), svm.LinearSVR())
        ),
        *(
            (m, Y)
            for m in (linear_model.LinearRegression(), linear_model.ElasticNet(0.1))
        ),
        *(
            (m, Y)
            for m in (linear_model.RobustRegressor("huber"), kernel_ridge.KernelRidge())
        ),
        *(
            (m, TWO)
            for m in (linear_model.LogisticRegression(), linear_model.RidgeClassifier())
        ),
        *((m, TWO) for m in (svm.LinearSVC(), svm.SVC())),
        (svm.SVR(), Y),
        (linear_model.PoissonRegressor(), COUNTS),
    ],
    ids=lambda value: type(value).__name__,
)
def test_weights_are_not_ignored(model: Any, y: Array) -> None:
    model.fit(X, y)
    assert certus.certify(model, X, y).met
    weights = np.random.default_rng(7).uniform(0.01, 3, 80)
    assert not is_proof(certus.certify(model, X, y, weights))


@pytest.mark.parametrize("C", [1.0, np.inf])
def test_a_class_without_weight_is_named(C: float) -> None:
    weights = np.where(TWO == 1, 0.0, 1.0)
    theirs = sk.LogisticRegression(C=C).fit(X, TWO)
    with pytest.raises(ValueError, match="Only one class has a positive weight"):
        linear_model.LogisticRegression(C=C).fit(X, TWO, sample_weight=weights)
    with certus.config_context(on_uncertified="ignore"):
        ours = linear_model.LogisticRegression(C=C).fit(X, TWO)
    for model in (theirs, ours):
        found = certus.certify(model, X, TWO, weights)
        claim = found[found.primary]
        assert not is_proof(found) and found.status is Status.NO_MINIMISER
        assert "max_iter" not in claim.fix and "class 1 have no weight" in claim.detail


def test_a_large_column_does_not_hide_a_zeroed_coefficient() -> None:
    A = X * [1.0, 1.0, 1.0, 1e8]
    model = linear_model.LinearRegression().fit(A, Y)
    assert model.certificate_.met
    model.coef_ = model.coef_ * [0.0, 1.0, 1.0, 1.0]
    found = certus.certify(model, A, Y)
    assert found.met is False and found["backward_error"].value > 0.1
    # Nor does a target far from zero.
    model = linear_model.LinearRegression().fit(X, Y + 1e4)
    assert model.certificate_.met
    model.coef_ = model.coef_ * [0.0, 1.0, 1.0, 1.0]
    assert certus.certify(model, X, Y + 1e4).met is False


@pytest.mark.parametrize("library", [linear_model, sk])
def test_quasi_separation_at_quick_is_not_solved(library: Any) -> None:
    A = np.array([[0.0], [1], [2], [2], [3], [4]])
    y = np.array([0, 0, 0, 1, 1, 1])
    with certus.config_context(on_uncertified="ignore"):
        model = library.LogisticRegression(C=np.inf, tol=1e-8, max_iter=500).fit(A, y)
    found = certus.certify(model, A, y, level="quick")
    assert found.status is not Status.SOLVED and not found.met
    full = certus.certify(model, A, y, level="full")
    assert full.status is Status.NO_MINIMISER


@pytest.mark.parametrize("size", [1e-20, 1e20])
@pytest.mark.parametrize("kind", [linear_model.Ridge, sk.Ridge])
def test_a_penalty_beside_a_sum_knows_the_size_of_the_weights(
    kind: type, size: float
) -> None:
    """Weights are scaled to be summed: the penalty must be scaled back with them."""
    rng = np.random.default_rng(0)
    A = rng.normal(size=(60, 3))
    b = A @ [1.0, -2.0, 0.5] + rng.normal(size=60)
    weights = np.full(60, size)
    with certus.config_context(on_uncertified="ignore"):
        honest = kind(alpha=5.0 * size).fit(A, b, sample_weight=weights)
        other = kind(alpha=5.0).fit(A, b)
    assert certus.certify(honest, A, b, weights).met
    assert not certus.certify(other, A, b, weights).met
