"""Kernel machines: known optima, witnesses, forgeries, hard margins.

What a certificate states is checked against quadratic programmes solved by SciPy,
closed forms, and witnesses recomputed by hand.
"""

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse
from scipy.optimize import LinearConstraint, minimize
from sklearn.base import clone
from sklearn.datasets import load_iris, make_moons
from sklearn.kernel_ridge import KernelRidge as ForeignRidge
from sklearn.metrics.pairwise import rbf_kernel
from sklearn.multiclass import OneVsRestClassifier
from sklearn.svm import SVR as ForeignSVR

import certus
from certus.base import UncertifiedWarning
from certus.certificate import Status, Strength
from certus.evidence import KernelWitness
from certus.kernel_ridge import KernelRidge
from certus.kernels import KernelLogisticRegression, KernelPerceptron, gram
from certus.objectives import terms as t
from certus.svm import SVC, SVR
from helpers.interrupting import interrupt_at

Array = np.ndarray
MACHINES = [SVC(), SVR(), KernelRidge(), KernelLogisticRegression(), KernelPerceptron()]
every = pytest.mark.parametrize("model", MACHINES, ids=lambda m: type(m).__name__)


def moons(n: int = 120, seed: int = 0) -> tuple[Array, Array]:
    return make_moons(n, noise=0.25, random_state=seed)


def targets(model: Any, y: Array, X: Array) -> Array:
    return y if hasattr(model, "decision_function") else np.sin(X[:, 0]) + X[:, 1]


# -- the gap is true ----------------------------------------------------------------


def dual_optimum(K: Array, y: Array, C: float) -> float:
    """max Σα − ½αᵀQα by a general solver."""
    Q = np.outer(y, y) * K
    found = minimize(
        lambda a: (a @ Q @ a / 2 - a.sum(), Q @ a - 1),
        np.full(len(y), C / 2),
        jac=True,
        bounds=[(0, C)] * len(y),
        constraints=[LinearConstraint(y[None, :], 0, 0)],
        method="SLSQP",
        options={"ftol": 1e-13, "maxiter": 500},
    )
    return float(-found.fun)


@pytest.mark.parametrize("C", [0.1, 1.0, 50.0])
def test_primal_and_dual_meet_at_the_optimum(C: float) -> None:
    X, y = moons(30)
    signs = np.where(y == 1, 1.0, -1.0)
    model = SVC(C=C, gamma=1.0, tol=1e-10).fit(X, y)
    K = rbf_kernel(X, gamma=1.0)
    c = np.zeros(30)
    c[model.support_] = model.dual_coef_[0]
    losses = np.maximum(0, 1 - signs * (K @ c + model.intercept_))
    primal = C * losses.sum() + c @ K @ c / 2
    dual = np.abs(c).sum() - c @ K @ c / 2
    best = dual_optimum(K, signs, C)
    assert primal == pytest.approx(best, rel=1e-6)
    assert dual == pytest.approx(best, rel=1e-6)
    assert np.all(c * signs >= 0) and np.all(np.abs(c) <= C) and abs(c.sum()) < 1e-9


@given(seed=st.integers(0, 10_000), size=st.floats(1e-6, 0.3))
@settings(max_examples=25)
def test_the_gap_bounds_the_distance_to_the_optimum(seed: int, size: float) -> None:
    """At any point, not only solutions: P − min P ≤ gap."""
    X, y = moons(25, seed)
    signs, C = np.where(y == 1, 1.0, -1.0), 2.0
    model = SVC(C=C, gamma=1.0, tol=1e-9).fit(X, y)
    K = rbf_kernel(X, gamma=1.0)

    def primal(c: Array, b: float) -> float:
        z = K @ c + b
        return float(C * np.maximum(0, 1 - signs * z).sum() + c @ K @ c / 2)

    c = np.zeros(25)
    c[model.support_] = model.dual_coef_[0]
    best = primal(c, float(model.intercept_[0]))
    rng = np.random.default_rng(seed)
    model.dual_coef_ = model.dual_coef_ + size * rng.normal(size=model.dual_coef_.shape)
    model.intercept_ = model.intercept_ + size * rng.normal()
    c[model.support_] = model.dual_coef_[0]
    now = primal(c, float(model.intercept_[0]))
    constant = 2 * C * min((y == 0).sum(), (y == 1).sum())
    found = certus.certify(model, X, y)
    assert (now - best) / constant <= found.value * (1 + 1e-9) + 1e-12


@every
def test_weights_and_sums_are_checked(model: Any) -> None:
    """Every single coefficient matters: changing any of them is noticed."""
    X, y = moons(40)
    target = targets(model, y, X)
    fitted = clone(model).fit(X, target)
    found = certus.certify(fitted, X, target)
    assert found.met or found["update_sum"].met  # of a perceptron
    for k in range(0, fitted.dual_coef_.size, 7):
        forged = clone(model).fit(X, target)
        forged.dual_coef_.flat[k] += 0.3
        found = certus.certify(forged, X, target)
        assert found.met is False and found.status is Status.REFUTED


def test_other_rows_or_a_wrong_number_of_them_are_noticed() -> None:
    X, y = moons()
    model = SVC().fit(X, y)
    assert certus.certify(model, X[::-1], y[::-1]).met is False
    with pytest.raises(ValueError, match="rows"):
        certus.certify(model, X[:50], y[:50])
    with pytest.raises(ValueError, match="rows"):
        certus.certify(KernelRidge().fit(X, y), X[:50], y[:50])


def test_kernel_terms_travel_with_the_file(tmp_path: Any) -> None:
    X, y = moons()
    kernel = t.Sum(
        t.Scaled(0.5, t.Gaussian(1.0)), t.Product(t.Linear(), t.Laplace(0.3))
    )
    model = SVC(kernel=kernel).fit(X, y)
    other = certus.load(model.save(tmp_path / "machine.certus"))
    assert other.kernel == kernel and other.kernel_ == kernel
    np.testing.assert_array_equal(
        other.decision_function(X), model.decision_function(X)
    )
    assert certus.certify(other, X, y).met
    with pytest.raises(Exception, match="function"):
        SVC(kernel=lambda A, B: A @ B.T).fit(X, y).save(tmp_path / "no.certus")


def test_nested_kernels_survive_json() -> None:
    X, y = moons(40)
    kernel = t.Sum(
        t.Scaled(0.5, t.Gaussian(1.0)), t.Product(t.Linear(), t.Laplace(0.3))
    )
    stated = SVC(kernel=kernel).fit(X, y).certificate_
    other = certus.Certificate.from_dict(json.loads(json.dumps(stated.to_dict())))
    assert other.to_dict() == stated.to_dict()


@pytest.mark.parametrize("kind", [SVC, KernelLogisticRegression])
def test_ctrl_c_leaves_a_model_with_its_certificate(
    kind: Any, monkeypatch: Any
) -> None:
    from certus.callbacks import Monitor

    X, y = moons(200)
    calls = interrupt_at(monkeypatch, Monitor, "step", 3)
    model = kind(C=1e3, tol=1e-13)
    with pytest.raises(KeyboardInterrupt):
        model.fit(X, y)
    assert model.certificate_.status is Status.INTERRUPTED
    assert model.predict(X).shape == (200,)
    calls.clear()
    with certus.config_context(on_interrupt="return"):
        assert kind(C=1e3, tol=1e-13).fit(X, y).certificate_.value >= 0


# -- hard margins -------------------------------------------------------------------


def test_the_hard_margin_of_two_points_is_half_their_distance() -> None:
    X, y = np.array([[0.0, 0.0], [3.0, 4.0]]), [0, 1]
    model = SVC(C=np.inf, kernel="linear").fit(X, y)
    np.testing.assert_allclose(model.coef_, 2 / 25 * X[1:], rtol=1e-9)
    np.testing.assert_allclose(model.decision_function(X), [-1, 1], rtol=1e-9)
    assert model.certificate_.met and 1 / np.linalg.norm(model.coef_) == pytest.approx(
        2.5
    )


def test_a_hard_margin_is_the_limit_of_soft_ones() -> None:
    X, y = load_iris(return_X_y=True)
    hard = SVC(C=np.inf, kernel="linear", tol=1e-8).fit(X[:100], y[:100])
    soft = SVC(C=1e5, kernel="linear", tol=1e-12).fit(X[:100], y[:100])
    np.testing.assert_allclose(hard.coef_, soft.coef_, rtol=1e-5)
    claim = hard.certificate_["duality_gap"]
    assert claim.met and claim.strength is Strength.PROVED
    signs = np.where(y[:100] == 1, 1, -1)
    margins = signs * hard.decision_function(X[:100])
    assert margins.min() == pytest.approx(1.0, abs=1e-5)


@pytest.mark.parametrize(
    ("X", "y"),
    [
        ([[0.0], [1.0], [2.0]], [0, 1, 0]),
        ([[0.0, 0.0], [1.0, 1.0], [0.0, 1.0], [1.0, 0.0]], [0, 0, 1, 1]),
        ([[1.0, 2.0], [1.0, 2.0], [0.0, 0.0]], [0, 1, 0]),
    ],
    ids=["between", "exclusive or", "duplicate"],
)
def test_no_hard_margin_comes_with_two_equal_convex_combinations(
    X: Any, y: Any
) -> None:
    X, y = np.array(X), np.array(y)
    with pytest.warns(UncertifiedWarning, match="no hard margin exists"):
        model = SVC(C=np.inf, kernel="linear").fit(X, y)
    found = model.certificate_
    assert found.status is Status.NO_MINIMISER
    assert found["duality_gap"].strength is Strength.REFUSED
    weights = found.evidence.witness.hulls[0]
    sides = [weights[y == k] @ X[y == k] / weights[y == k].sum() for k in (0, 1)]
    np.testing.assert_allclose(*sides, atol=1e-6)
    again = certus.certify(model, X, y)
    assert again.status is Status.NO_MINIMISER


def test_a_forged_common_point_is_not_believed() -> None:
    X, y = moons(20)
    model = SVC(C=np.inf, gamma=5.0).fit(X, y)
    assert model.certificate_.met
    evidence = model.certificate_.evidence
    forged = certus.certificate.Evidence(
        evidence.kind, KernelWitness(hulls=np.ones((1, 20)))
    )
    found = certus.verify.judge(model, forged, X, y)
    assert found.status is Status.SOLVED and found.met


# -- matrices that are no kernels ---------------------------------------------------


@every
def test_an_indefinite_kernel_is_refused_with_its_eigenvector(model: Any) -> None:
    X, y = moons(40)
    machine = clone(model).set_params(kernel=t.Sigmoid(2.0, -1.0))
    with pytest.warns(UncertifiedWarning, match="positive semidefinite"):
        machine.fit(X, targets(model, y, X))
    found = machine.certificate_
    assert found.status is Status.NO_MINIMISER
    v = found.evidence.witness.eigenvector
    assert v @ gram(t.Sigmoid(2.0, -1.0), X) @ v < -1e-3
    assert machine.predict(X).shape == (40,)


def test_a_precomputed_matrix_must_be_symmetric_and_semidefinite() -> None:
    X, y = moons(40)
    K = rbf_kernel(X)
    assert SVC(kernel="precomputed").fit(K, y).certificate_.met
    with pytest.warns(UncertifiedWarning, match="positive semidefinite"):
        SVC(kernel="precomputed").fit(K - 0.5 * np.eye(40), y)
    K[0, 1] += 0.01
    K += np.eye(40)
    with pytest.warns(UncertifiedWarning, match="not symmetric"):
        SVC(kernel="precomputed").fit(K, y)
    with pytest.raises(ValueError, match="square"):
        SVC(kernel="precomputed").fit(K[:, :3], y)
    with pytest.raises(TypeError, match=r"[Ss]parse"):
        SVC(kernel="precomputed").fit(sparse.csr_array(K), y)


# -- the store of rows --------------------------------------------------------------


@pytest.mark.parametrize("kind", [SVC, SVR])
def test_a_small_store_and_single_precision_rows_change_nothing(kind: Any) -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(5_000, 6))
    y = X[:, 0] * X[:, 1] + 0.5 * rng.normal(size=5_000)
    target = (y > 0).astype(int) if kind is SVC else y
    # 25 MB hold 1,250 of 5,000 rows in float32.
    small = kind(cache_size=25, tol=1e-7).fit(X, target)
    large = kind(cache_size=1000, tol=1e-7).fit(X, target)
    assert small.certificate_.met and large.certificate_.met
    for a, b in [(small, large)]:
        name = "decision_function" if kind is SVC else "predict"
        found, expected = getattr(a, name)(X[:500]), getattr(b, name)(X[:500])
        np.testing.assert_allclose(found, expected, atol=2e-3)


def test_conjugate_gradients_solve_systems_too_large_to_hold(monkeypatch: Any) -> None:
    from certus.kernels import system

    rng = np.random.default_rng(0)
    X = rng.normal(size=(900, 4))
    y = np.sin(X[:, 0]) + 0.1 * rng.normal(size=900)
    labels = (y > 0).astype(int)
    ridge = KernelRidge(alpha=0.1, kernel="rbf").fit(X, y)
    logistic = KernelLogisticRegression().fit(X, labels)
    monkeypatch.setattr(system, "DIRECT", 100)
    monkeypatch.setattr(system, "LANDMARKS", 60)
    other = KernelRidge(alpha=0.1, kernel="rbf").fit(X, y)
    assert other.solver_ == "conjugate gradients" and other.certificate_.met
    np.testing.assert_allclose(other.predict(X), ridge.predict(X), atol=1e-7)
    again = KernelLogisticRegression().fit(X, labels)
    assert again.certificate_.met
    np.testing.assert_allclose(
        again.predict_proba(X), logistic.predict_proba(X), atol=1e-5
    )


def test_one_against_the_rest_by_the_usual_wrapper() -> None:
    X, y = load_iris(return_X_y=True)
    model = OneVsRestClassifier(SVC()).fit(X, y)
    assert model.score(X, y) > 0.95
    assert all(part.certificate_.met for part in model.estimators_)


# -- the perceptron -----------------------------------------------------------------


def test_mistakes_stay_below_the_bound_of_every_margin() -> None:
    """Novikov with the hard margin, the largest there is: the smallest bound."""
    X, y = moons(40)
    kernel = t.Gaussian(5.0)
    run = KernelPerceptron(kernel=kernel, fit_intercept=False).fit(X, y)
    made = np.abs(run.dual_coef_).sum()
    K = gram(kernel, X)
    signs = np.where(y == 1, 1.0, -1.0)
    # The largest margin without b: minimise ‖f‖ with y·f ≥ 1.
    found = minimize(
        lambda c: (c @ K @ c / 2, K @ c),
        np.linalg.solve(K, signs),
        jac=True,
        constraints=[LinearConstraint(signs[:, None] * K, 1, np.inf)],
        method="SLSQP",
        options={"maxiter": 500},
    )
    largest = 1 / np.sqrt(2 * found.fun)
    assert made <= 1 / largest**2
    claim = run.certificate_["mistake_bound"]
    assert claim.met and claim.value == made and claim.target >= 1 / largest**2 - 1e-6
    assert run.certificate_["norm_growth"].value <= 1


def test_counts_replay_the_run() -> None:
    X, y = moons(30)
    model = KernelPerceptron(kernel="linear", fit_intercept=True, max_iter=5).fit(X, y)
    w, b, counts = np.zeros(2), 0.0, np.zeros(30)
    for _ in range(5):
        for i in range(30):
            sign = 1.0 if y[i] == 1 else -1.0
            if sign * (X[i] @ w + b) <= 0:
                w, b, counts[i] = w + sign * X[i], b + sign, counts[i] + 1
    found = np.zeros(30)
    found[model.support_] = np.abs(model.dual_coef_[0])
    np.testing.assert_array_equal(found, counts)
    np.testing.assert_allclose(model.intercept_, [b])
    limit = model.certificate_["margin_limit"]
    assert limit.value == pytest.approx(np.hypot(np.linalg.norm(w), b) / counts.sum())


@pytest.mark.slow
def test_thirty_thousand_rows_fit_in_two_gigabytes() -> None:
    import subprocess
    import sys

    script = """
import resource, numpy as np
from certus.svm import SVC
rng = np.random.default_rng(3)
n = 30_000
y = rng.integers(0, 2, n)
X = rng.standard_normal((n, 30))
X[:, :10] += .45 * (2 * y - 1)[:, None]
model = SVC(gamma=1 / 30, tol=1e-4).fit(X, y)
assert model.certificate_.met, model.certificate_
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024)
"""
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert float(done.stdout) < 2e9


@pytest.mark.parametrize("kind", [SVC, SVR])
@pytest.mark.parametrize("kernel", ["rbf", "linear", "precomputed"])
def test_steps_on_many_free_variables(kind: Any, kernel: str, monkeypatch: Any) -> None:
    """The path of large problems, on one small enough to compare."""
    from certus.svm import face, smo

    rng = np.random.default_rng(0)
    X = rng.normal(size=(400, 5))
    y = X[:, 0] * X[:, 1] + rng.normal(size=400)
    target = (y > 0).astype(int) if kind is SVC else y
    data = rbf_kernel(X) if kernel == "precomputed" else X
    options = {"C": 10.0, "kernel": kernel, "tol": 1e-8}
    plain = kind(**options).fit(data, target)
    used: list[bool] = []
    step = face.face_step
    monkeypatch.setattr(smo, "face_step", lambda *a: used.append(step(*a)) or used[-1])
    for name, value in [
        ("EXACT", 4),
        ("SMALL", 50),
        ("WORKING", 64),
        ("FACE_EVERY", 2),
    ]:
        monkeypatch.setattr(smo, name, value)
    monkeypatch.setattr(face, "LANDMARKS", 30)
    other = kind(**options).fit(data, target)
    assert any(used), "no step lowered the objective"
    assert other.certificate_.met
    np.testing.assert_allclose(other.predict(data), plain.predict(data), atol=2e-3)


def test_coefficients_whose_squares_overflow_are_missed() -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(14, 4))
    y = X[:, 0] + rng.normal(size=14)
    model = ForeignRidge(alpha=1.0).fit(X, y)
    model.dual_coef_ = model.dual_coef_ * 1e200
    assert certus.certify(model, X, y).met is not True


def test_a_loss_that_is_zero_for_every_constant_is_undecided() -> None:
    """Nothing is a share of zero; what rounding may add does not make it missed."""
    X = np.random.default_rng(0).normal(size=(20, 2))
    y = 0.1 * X[:, 0]
    found = certus.certify(ForeignSVR(epsilon=0.5, kernel="linear").fit(X, y), X, y)
    assert found.met is None and found.status is Status.UNDECIDED


def test_sparse_rows_far_from_zero_are_undecided() -> None:
    """Squares of distances are below zero there by their rounding, by hundreds."""
    rng = np.random.default_rng(0)
    X = sparse.csr_array(1.7e9 + 86400 * rng.normal(size=(16, 2)))
    y = rng.normal(size=16)
    model = ForeignSVR(C=0.04, epsilon=0.0, gamma=0.1, tol=1e-8).fit(X, y)
    found = certus.certify(model, X, y)
    assert found.met is None and found.status is Status.UNDECIDED
