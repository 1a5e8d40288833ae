"""Forged evidence and tampered models: no proved claim that is met may be false.

Each test states something untrue, by hand or by changing a fitted model, and asks the
verifier. It may miss the target, refuse, or raise an error of its own; what it must
never do is to call the claim proved and met.
"""

import copy
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from scipy import sparse
from sklearn.kernel_ridge import KernelRidge
from sklearn.linear_model import HuberRegressor, LogisticRegression, Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC, SVR, LinearSVC, LinearSVR

import certus
from certus import certify
from certus.certificate import Evidence, Strength
from certus.evidence import LinearWitness
from certus.kernel_ridge import KernelRidge as OurKernelRidge
from certus.objectives import terms as t
from certus.verify import check, judge, linear
from certus.verify.linear import Statement
from certus.verify.stating import Given

rng = np.random.default_rng(0)
X = rng.normal(size=(60, 4))
Y = X @ [1.0, 2.0, 0.0, -1.0] + 0.1 * rng.normal(size=60)
SIGNS = np.where(X[:, 0] + 0.3 * rng.normal(size=60) > 0, 1, -1)
THREE = rng.integers(0, 3, size=60)
S = rng.uniform(0.2, 2.0, size=60)
OPTIMAL = np.linalg.lstsq(X, Y, rcond=None)[0]


def never_met(call: Any) -> None:
    """The verifier says no, in whatever form, and never by an error from inside."""
    try:
        found = call()
    except ValueError as error:
        assert len(str(error)) < 250
        return
    for claim in found.claims:
        assert not (
            claim.strength is Strength.PROVED
            and claim.met
            and claim.name in ("duality_gap", "backward_gap", "backward_error")
        ), claim
    assert not found.met


def with_changes(model: Any, **changes: Any) -> Any:
    model = copy.deepcopy(model)
    for name, value in changes.items():
        setattr(model, name, value)
    return model


def judged(model: Any, statement: Statement, A: Any, y: Any, dual: Any = None) -> Any:
    """What the checker of linear models finds for a statement that no reader makes."""
    witness = LinearWitness(dual)
    claims, _, _ = linear.check(model, statement, Given(witness, A, y, None))
    return SimpleNamespace(claims=claims, met=claims[0].met)


# -- terms for which the formulas are not true ----------------------------------------


@pytest.mark.parametrize(
    "penalty",
    [
        t.L2(-1.0), t.L1(-1.0), t.L1L2(-0.1, 2.0), t.L1L2(2.0, -0.1),
        t.L2(np.nan), t.L1(np.nan), t.L1L2(np.nan, 1.0), t.L2(np.inf),
    ],
)  # fmt: skip
@pytest.mark.parametrize("loss", [t.Squared(), t.Huber(1.0), t.Quantile(0.5)])
def test_unknown_penalties_are_refused(loss, penalty) -> None:
    # A negative penalty was read as no penalty: least squares then looked exact.
    never_met(lambda: check(OPTIMAL, None, (loss, penalty), X, Y))


@pytest.mark.parametrize(
    "loss",
    [
        t.Huber(-1.0), t.Huber(np.nan), t.Quantile(2.0), t.Quantile(-1.0),
        t.EpsilonInsensitive(-1.0), t.SquaredEpsilonInsensitive(-9.0), t.Binomial(-3),
    ],
)  # fmt: skip
def test_unknown_losses_are_refused(loss) -> None:
    for penalty in (t.L2(0.1), t.NoPenalty()):
        never_met(lambda p=penalty: check(np.zeros(4), None, (loss, p), X, np.abs(Y)))
        never_met(
            lambda p=penalty: check(np.zeros(4), None, (loss, p), X, np.zeros(60))
        )


@pytest.mark.parametrize(
    ("loss", "target"),
    [
        (t.Logistic(), np.zeros(60)),
        (t.Logistic(), np.full(60, 0.5)),
        (t.Hinge(), np.zeros(60)),
        (t.SquaredHinge(), np.full(60, 2.0)),
        (t.Poisson(), -np.ones(60)),
        (t.Binomial(2), np.full(60, 5.0)),
        (t.Softmax(3), np.ones(60)),
    ],
)
def test_targets_outside_the_domain_of_a_loss(loss, target) -> None:
    model = SimpleNamespace(coef_=np.zeros(4), intercept_=0.0)
    statement = Statement(loss, t.L2(0.1), intercept="none")
    never_met(lambda: judged(model, statement, X, target))


def test_three_labels_are_not_two() -> None:
    with pytest.raises(ValueError, match="3 different labels"):
        check(np.zeros(4), None, (t.Hinge(), t.L2(0.1)), X, THREE)


def test_a_softmax_of_another_size() -> None:
    model = SimpleNamespace(
        coef_=np.zeros((3, 4)), intercept_=np.zeros(3), classes_=np.arange(3)
    )
    for loss in (t.Softmax(5), t.Softmax(2), t.Logistic()):
        statement = Statement(loss, t.L2(0.1), "codes")
        never_met(lambda s=statement: judged(model, s, X, THREE))


@pytest.mark.parametrize(
    "kernel",
    [
        t.Gaussian(-1.0), t.Gaussian(np.nan), t.Laplace(-1.0),
        t.Scaled(-1.0, t.Linear()),
        t.Scaled(np.nan, t.Linear()), t.Sum(t.Linear(), t.Gaussian(-2.0)),
        t.Polynomial(3, -1.0, 1.0), t.Polynomial(2, np.nan, 1.0), t.Sigmoid(1.0, -1.0),
    ],
)  # fmt: skip
def test_functions_that_are_not_kernels_are_refused(kernel) -> None:
    # Without a positive kernel there is no minimum, so not even zero is one.
    for y in (Y, np.zeros(60)):
        model = OurKernelRidge(alpha=0.1).fit(X, y).set_params(kernel=kernel)
        model.dual_coef_ = np.zeros(60)
        never_met(lambda m=model, y=y: judge(m, Evidence("kernel"), X, y))


# -- parameters of the statement ------------------------------------------------------


@pytest.mark.parametrize("scale", [0.0, -1.0, np.nan, np.inf])
def test_intercepts_of_no_size(scale) -> None:
    model = LinearSVC(tol=1e-10, max_iter=100_000).fit(X, SIGNS)
    never_met(lambda: certify(with_changes(model, intercept_scaling=scale), X, SIGNS))


def test_intercept_scaling_is_part_of_the_objective() -> None:
    model = LinearSVC(tol=1e-12, max_iter=100_000, intercept_scaling=50.0, C=0.01)
    model.fit(X + 1, SIGNS)
    found = certify(model, X + 1, SIGNS)
    assert found.met and "b/50" in found["duality_gap"].objective
    never_met(lambda: certify(with_changes(model, intercept_scaling=1.0), X + 1, SIGNS))


def test_an_intercept_that_the_objective_does_not_have() -> None:
    y = np.full(60, 3.0)
    model = certus.linear_model.Ridge().fit(X, y)
    assert certify(model, X, y).met and model.intercept_ == pytest.approx(3.0)
    # The mean would be the answer if it could be used.
    never_met(lambda: certify(model.set_params(fit_intercept=False), X, y))
    never_met(lambda: judged(model, Statement(t.Squared(), t.L2(0.1), intercept="none"),
                             X, y))  # fmt: skip
    kernel = KernelRidge(kernel="linear").fit(X, y)
    kernel.dual_coef_, kernel.intercept_ = np.zeros(60), 3.0
    never_met(lambda: certify(kernel, X, y))


def test_a_hard_margin_with_an_intercept_it_should_not_have() -> None:
    # From 2 to 4 the widest street without intercept is narrower than with one.
    points, labels = np.array([[2.0], [4.0]]), np.array([0, 1])
    model = SimpleNamespace(
        coef_=np.array([[1.0]]), intercept_=np.array([-3.0]), classes_=np.array([0, 1])
    )
    terms, dual = (t.Hinge(), t.NoPenalty()), np.array([0.5, 0.5])
    for kind in ("free", "none"):
        statement = Statement(*terms, "signs", kind, hard=True)
        if kind == "free":
            assert judged(model, statement, points, labels, dual).met
        else:
            never_met(lambda s=statement: judged(model, s, points, labels, dual))


@pytest.mark.parametrize("weight", [{1: -1.0}, {1: np.nan}, {1: np.inf}])
def test_invalid_class_weights_are_refused(weight) -> None:
    for model in (LinearSVC(), SVC(), LogisticRegression()):
        fitted = with_changes(model.fit(X, SIGNS), class_weight=weight)
        never_met(lambda m=fitted: certify(m, X, SIGNS))


def test_levels_of_several_targets() -> None:
    targets = np.column_stack([Y, -Y])
    model = Ridge(alpha=[1.0, 1.0]).fit(X, targets)
    never_met(lambda: certify(with_changes(model, alpha=[1.0, -1.0]), X, targets))
    kernel = KernelRidge(alpha=[1.0, 1.0]).fit(X, targets)
    never_met(lambda: certify(with_changes(kernel, alpha=[1.0, -1.0]), X, targets))


@pytest.mark.parametrize(
    "changes",
    [
        {"alpha": -1.0}, {"alpha": np.nan}, {"epsilon": -1.0}, {"epsilon": np.nan},
        {"epsilon": 0.0}, {"scale_": np.nan}, {"scale_": -1.0}, {"scale_": 0.0},
        {"scale_": 1e300}, {"scale_": 1e-300},
    ],
)  # fmt: skip
def test_huber_with_another_scale_or_objective(changes) -> None:
    model = HuberRegressor(tol=1e-10, max_iter=10_000).fit(X, Y)
    assert certify(model, X, Y).met
    never_met(lambda: certify(with_changes(model, **changes), X, Y))


# -- dual points and coefficients -----------------------------------------------------


@pytest.mark.parametrize(
    "dual",
    [
        np.full(60, np.nan), np.full(60, np.inf), np.full(60, 1e300), np.zeros(60),
        np.ones(3), np.ones((60, 2)), np.full(60, -7.0),
    ],
)  # fmt: skip
@pytest.mark.parametrize(
    "loss", [t.Squared(), t.Absolute(), t.Huber(0.5), t.Quantile(0.2)]
)
def test_invalid_dual_points_are_refused(loss, dual) -> None:
    for penalty in (t.L2(0.1), t.L1(0.1)):
        for intercept in (None, 0.0):
            never_met(
                lambda p=penalty, b=intercept: check(
                    np.zeros(4), b, (loss, p), X, Y, dual=dual
                )
            )


def test_a_dual_point_never_makes_a_bad_point_good() -> None:
    """The best dual point there is, handed over with coefficients that are not best."""
    exact = np.linalg.solve(X.T @ X / 60 + 0.1 * np.eye(4), X.T @ Y / 60)
    dual, terms = X @ exact - Y, (t.Squared(), t.L2(0.1))
    assert check(exact, None, terms, X, Y, dual=dual).met
    other = (t.Squared(), t.L2(0.2))
    never_met(lambda: check(exact, None, other, X, Y, dual=dual))
    for factor in (1.01, 0.99, -1.0):
        never_met(lambda f=factor: check(f * exact, None, terms, X, Y, dual=dual))
        never_met(lambda f=factor: check(exact, None, terms, X, Y * f, dual=dual))
        never_met(lambda f=factor: check(exact, None, terms, X * f, Y, dual=dual))


@pytest.mark.parametrize(
    "coef",
    [
        OPTIMAL + 1j,
        np.array([None] * 4),
        np.array(["1"] * 4),
        np.full(4, np.nan),
        np.full(4, np.inf),
        np.zeros((2, 4)),
        np.zeros(3),
        OPTIMAL.astype(np.float16),
        (1.001 * OPTIMAL).astype(np.float32),
    ],
)
def test_invalid_coefficients_are_refused(coef) -> None:
    never_met(lambda: check(coef, None, (t.Squared(), t.L2(1e-9)), X, Y))


def test_targets_too_small_to_square() -> None:
    # Their squares are zero, and zero coefficients looked exact.
    never_met(lambda: check(np.zeros(4), None, (t.Squared(), t.L2(0.1)), X, Y * 1e-200))


# -- models of scikit-learn, changed after the fit ------------------------------------


@pytest.fixture(scope="module", params=["two", "three", "numbers"])
def machine(request) -> tuple[Any, Any]:
    y = {"two": SIGNS, "three": THREE, "numbers": Y}[request.param]
    model = SVR(tol=1e-9) if request.param == "numbers" else SVC(tol=1e-9)
    model.fit(X, y)
    assert certify(model, X, y).met
    return model, y


@pytest.mark.parametrize(
    "name",
    ["support_vectors_", "_dual_coef_", "_intercept_", "dual_coef_", "intercept_"],
)
def test_one_part_of_a_machine_changed(machine, name) -> None:
    model, y = machine
    for change in (lambda v: v * 1.01, lambda v: -v, lambda v: v * np.nan):
        part = change(getattr(model, name))
        never_met(lambda p=part: certify(with_changes(model, **{name: p}), X, y))


def test_parts_of_a_machine_changed_together(machine) -> None:
    model, y = machine
    for factor in (0.9, -1.0, 0.0):
        changes = {
            name: factor * getattr(model, name)
            for name in ("dual_coef_", "_dual_coef_", "intercept_", "_intercept_")
        }
        never_met(lambda c=changes: certify(with_changes(model, **c), X, y))
    for support in (
        model.support_[::-1],
        model.support_ - 60,
        np.zeros_like(model.support_),
        model.support_.astype(float),
        model.support_ + 1000,
    ):
        never_met(lambda s=support: certify(with_changes(model, support_=s), X, y))
    changes = {"C": 3.0}, {"_gamma": 3.0}, {"kernel": "linear"}, {"C": -1.0}
    for change in changes:
        never_met(lambda c=change: certify(with_changes(model, **c), X, y))
    if hasattr(model, "classes_"):
        counts = (
            np.roll(model._n_support, 1) + np.eye(len(model.classes_), dtype=int)[0]
        )
        never_met(lambda: certify(with_changes(model, _n_support=counts), X, y))


def test_support_vectors_of_two_classes_stand_in_any_order() -> None:
    """As other libraries leave them; of three classes the order tells them apart."""
    y = np.arange(len(X)) % 3
    for labels, sound in ((y > 0, True), (y, False)):
        model = SVC(tol=1e-8).fit(X, labels)
        assert certify(model, X, labels).met
        order = np.argsort(model.support_)
        changes = {"support_": model.support_[order]}
        changes["support_vectors_"] = model.support_vectors_[order]
        for name in ("dual_coef_", "_dual_coef_"):
            changes[name] = getattr(model, name)[:, order]
        found = certify(with_changes(model, **changes), X, labels)
        assert bool(found.met) is sound


def test_other_rows_than_those_of_the_fit(machine) -> None:
    model, y = machine
    never_met(lambda: certify(model, X[::-1], y[::-1]))
    never_met(lambda: certify(model, X * 1.001, y))
    never_met(lambda: certify(model, X, np.roll(y, 7)))
    never_met(lambda: certify(model, X, y, S))


def test_machines_behind_a_transformation_and_on_sparse_rows_still_hold() -> None:
    pipeline = make_pipeline(StandardScaler(), SVC(tol=1e-9)).fit(X, SIGNS)
    assert certify(pipeline, X, SIGNS).met
    rows = sparse.csr_array(np.where(np.abs(X) > 0.5, X, 0.0))
    model = SVC(tol=1e-9).fit(rows, SIGNS)
    assert certify(model, rows, SIGNS).met
    changed = with_changes(model, support_vectors_=model.support_vectors_ * 2)
    never_met(lambda: certify(changed, rows, SIGNS))
    single = SVC(tol=1e-9).fit(X.astype(np.float32), SIGNS)
    assert certify(single, X.astype(np.float32), SIGNS).met
    plain = SVC(tol=1e-9, kernel=lambda A, B: A @ B.T).fit(X, SIGNS)
    assert certify(plain, X, SIGNS).met


def test_a_machine_with_probabilities_is_judged_by_its_scores() -> None:
    with pytest.warns(FutureWarning, match="probability"):
        model = SVC(tol=1e-9, probability=True, random_state=0).fit(X, SIGNS)
    assert certify(model, X, SIGNS).met
    never_met(lambda: certify(with_changes(model, dual_coef_=model.dual_coef_ / 2), X,
                              SIGNS))  # fmt: skip


def test_matrices_of_kernel_values() -> None:
    K = X @ X.T
    model = SVC(tol=1e-9, kernel="precomputed").fit(K, SIGNS)
    assert certify(model, K, SIGNS).met
    lopsided, empty = K.copy(), K.copy()
    lopsided[0, 1] += 5
    empty[0, 0] = np.nan
    for matrix in (2 * K, lopsided, empty, K - 5 * np.eye(60), X, K[:, ::-1], -K):
        never_met(lambda m=matrix: certify(model, m, SIGNS))
    never_met(lambda: certify(with_changes(model, dual_coef_=model.dual_coef_ * 2), K,
                              SIGNS))  # fmt: skip


def test_kernel_ridge_predicts_with_rows_of_its_own() -> None:
    for kernel in ("rbf", "laplacian", "linear", "poly"):
        model = KernelRidge(alpha=0.1, kernel=kernel).fit(X, Y)
        assert certify(model, X, Y).met
        never_met(lambda m=model: certify(with_changes(m, X_fit_=2 * X), X, Y))
        never_met(lambda m=model: certify(with_changes(m, X_fit_=X[:, ::-1]), X, Y))
        half = with_changes(model, dual_coef_=model.dual_coef_ / 2)
        never_met(lambda m=half: certify(m, X, Y))
    weighted = KernelRidge(alpha=0.1, kernel="rbf").fit(X, Y, S)
    assert certify(weighted, X, Y, S).met
    never_met(lambda: certify(weighted, X, Y))


@pytest.mark.parametrize(
    ("model", "y"),
    [
        (LinearSVC(tol=1e-11, max_iter=200_000), SIGNS),
        (LinearSVC(tol=1e-11, max_iter=200_000, intercept_scaling=5.0), THREE),
        (LinearSVR(tol=1e-11, max_iter=200_000, loss="squared_epsilon_insensitive"), Y),
        (LogisticRegression(tol=1e-11, max_iter=10_000), THREE),
    ],
)
def test_linear_models_changed_after_the_fit(model, y) -> None:
    fitted = model.fit(X, y, sample_weight=S)
    assert certify(fitted, X, y, S).met
    never_met(lambda: certify(fitted, X, y))
    never_met(lambda: certify(fitted, X, y, S[::-1]))
    for name in ("coef_", "intercept_"):
        for factor in (1.05, np.nan):
            part = factor * np.asarray(getattr(fitted, name))
            never_met(
                lambda n=name, p=part: certify(with_changes(fitted, **{n: p}), X, y, S)
            )
    never_met(lambda: certify(with_changes(fitted, C=2.0), X, y, S))


# -- evidence of our own models -------------------------------------------------------


@pytest.mark.parametrize(
    "model",
    [
        certus.linear_model.Ridge(),
        certus.linear_model.Lasso(alpha=0.1),
        certus.svm.SVR(),
    ],
)
def test_evidence_with_other_numbers(model) -> None:
    fitted = model.fit(X, Y)
    evidence = fitted.certificate_.evidence
    level = "alpha" if hasattr(fitted, "alpha") else "C"
    for factor in (-1.0, np.nan, 100.0):
        changed = copy.deepcopy(fitted)
        changed.set_params(**{level: factor * getattr(fitted, level)})
        never_met(lambda m=changed: judge(m, evidence, X, Y))
    # Evidence states no problem: terms of older files are not even looked at.
    assert judge(fitted, evidence, X, Y).met
    old = {"terms": [["L1", {"alpha": 1e6}]], "params": {"tol": 1e9}}
    forged = Evidence.from_dict({"kind": evidence.kind, **old})
    found = judge(fitted, forged, X, Y)
    assert found[found.primary].target == fitted.tol
    never_met(lambda: judge(fitted, evidence, X, -Y))
    never_met(lambda: judge(fitted, evidence, X[:, ::-1], Y))
