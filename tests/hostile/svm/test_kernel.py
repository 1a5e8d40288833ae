"""Kernel machines on data and parameters that ask for trouble."""

import warnings
from typing import Any

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.datasets import make_moons
from sklearn.model_selection import GridSearchCV

import certus
from certus.base import UncertifiedWarning
from certus.certificate import Status
from certus.kernel_ridge import KernelRidge
from certus.kernels import KernelLogisticRegression, KernelPerceptron
from certus.svm import SVC, SVR

Array = np.ndarray
MACHINES = [SVC(), SVR(), KernelRidge(), KernelLogisticRegression(), KernelPerceptron()]
every = pytest.mark.parametrize("model", MACHINES, ids=lambda m: type(m).__name__)
CLASSIFIERS = [m for m in MACHINES if not isinstance(m, SVR | KernelRidge)]


def moons(n: int = 120, seed: int = 0) -> tuple[Array, Array]:
    return make_moons(n, noise=0.25, random_state=seed)


def fine(found: Any) -> bool:
    """Met, or a perceptron that leaves rows wrong and promises nothing."""
    if found.primary == "training_error":
        return found.status is Status.UNDECIDED and bool(found["update_sum"].met)
    return bool(found.met)


def targets(model: Any, y: Array, X: Array) -> Array:
    return y if hasattr(model, "decision_function") else np.sin(X[:, 0]) + X[:, 1]


@pytest.mark.parametrize("C", [1e-12, 1e-4, 1e4, 1e12])
@pytest.mark.parametrize("gamma", [1e-12, 1e-4, 1e4, 1e12])
@pytest.mark.parametrize("kind", [SVC, SVR, KernelLogisticRegression])
def test_extreme_parameters_end_and_are_honest(
    kind: Any, C: float, gamma: float
) -> None:
    X, y = moons(40)
    model = kind(C=C, gamma=gamma, max_time=1.0)
    target = targets(model, y, X)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model.fit(X, target)
    assert all(issubclass(w.category, UncertifiedWarning) for w in caught)
    assert model.certificate_.met or caught, "missed in silence"
    assert np.isfinite(model.predict(X).astype(float)).all()
    again = certus.certify(model, X, target)
    assert again.met == model.certificate_.met


@pytest.mark.parametrize("model", CLASSIFIERS, ids=lambda m: type(m).__name__)
def test_one_class_strings_and_a_rare_class(model: Any) -> None:
    X, y = moons()
    with pytest.raises(ValueError, match="class"):
        clone(model).fit(X, np.zeros(120))
    words = np.where(y == 1, "yes", "no")
    fitted = clone(model).fit(X, words)
    assert set(fitted.predict(X)) == {"yes", "no"} and fitted.score(X, words) > 0.85
    rare = y.copy()
    rare[3] = 2
    fitted = clone(model).fit(X, rare)
    assert fine(fitted.certificate_) and list(fitted.classes_) == [0, 1, 2]
    assert fitted.decision_function(X).shape == (120, 3)


@every
def test_zero_rows_one_row_and_duplicates(model: Any) -> None:
    X, y = moons(30)
    target = targets(model, y, X)
    zeros = clone(model)
    if isinstance(model, KernelPerceptron):
        zeros.set_params(max_iter=10)
    zeros.fit(np.zeros_like(X), target)
    assert fine(zeros.certificate_) and np.ptp(zeros.predict(X * 0).astype(float)) == 0
    if isinstance(model, SVR | KernelRidge):
        one = clone(model).fit(X[:1], target[:1])
        assert one.certificate_.met and len(one.predict(X)) == 30
    # Duplicates with opposite labels.
    both, labels = np.vstack([X, X]), np.concatenate([y, 1 - y])
    machine = clone(model)
    if isinstance(model, KernelPerceptron):
        machine.set_params(max_iter=10)
    machine.fit(both, labels)
    assert fine(machine.certificate_)


def test_a_time_limit_leaves_a_usable_model_with_an_honest_gap() -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(6_000, 20))
    y = rng.integers(0, 2, 6_000)
    model = SVC(C=100.0, max_time=0.1)
    with pytest.warns(UncertifiedWarning, match="max_time"):
        model.fit(X, y)
    found = model.certificate_
    assert found.status is Status.TIME_LIMIT and 0 < found.value < 2
    assert model.predict(X[:5]).shape == (5,)
    assert certus.certify(model, X, y).value == pytest.approx(found.value)


def test_a_step_limit_is_obeyed_and_reported() -> None:
    X, y = moons()
    model = SVC(max_iter=3)
    with pytest.warns(UncertifiedWarning, match="max_iter"):
        model.fit(X, y)
    assert list(model.n_iter_) == [3] and model.fit_status_ == 1
    assert model.certificate_.status is Status.MAX_ITER


def test_searches_run_in_two_processes() -> None:
    X, y = moons(60)
    for model in MACHINES:
        search = GridSearchCV(model, {"kernel": ["linear", "rbf"]}, cv=2, n_jobs=2)
        if isinstance(model, KernelPerceptron):
            search.set_params(estimator__max_iter=50)
        search.fit(X, targets(model, y, X))
        assert fine(certus.certify(search, X, targets(model, y, X)))


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"kernel": "cosine2"}, "kernel"),
        ({"gamma": -1.0}, "gamma"),
        ({"gamma": "wide"}, "gamma"),
        ({"degree": -1}, "degree"),
        ({"C": 0}, "C must be"),
        ({"cache_size": 0}, "cache_size"),
        ({"decision_function_shape": "votes"}, "decision_function_shape"),
        ({"class_weight": "even"}, "class_weight"),
    ],
)
def test_bad_parameters_are_named(change: dict[str, Any], match: str) -> None:
    with pytest.raises((ValueError, TypeError), match=match):
        SVC(**{"kernel": "poly", **change}).fit(*moons())


def test_probability_names_the_alternative() -> None:
    with pytest.warns(FutureWarning, match="CalibratedClassifierCV"):
        SVC(probability=True).fit(*moons())


def test_a_kernel_function_of_the_wrong_shape_is_an_error() -> None:
    with pytest.raises(ValueError, match="shape"):
        SVC(kernel=lambda A, B: A).fit(*moons())


@every
def test_numbers_whose_squares_overflow_are_an_error_that_helps(model: Any) -> None:
    X, y = moons(20)
    with pytest.raises(ValueError, match=r"overflow.*StandardScaler"):
        clone(model).fit(X * 1e200, targets(model, y, X))
