"""Perceptrons that are wrong, forged, changed or scaled: no proof may say otherwise."""

import contextlib
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy import sparse
from sklearn import linear_model

import certus
from certus.certificate import Status, Strength
from certus.evidence import MistakesWitness
from certus.kernels import KernelPerceptron
from certus.linear_model import Perceptron


def separable(n: int = 60, d: int = 3, seed: int = 0) -> tuple[Any, Any]:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(4 * n, d))
    z = X @ rng.normal(size=d) + 0.2
    keep = np.argsort(-np.abs(z))[:n]
    return X[keep], np.sign(z[keep]).astype(int)


def mixed(n: int = 200, seed: int = 0) -> tuple[Any, Any]:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 3))
    return X, np.where(X[:, 0] + rng.normal(size=n) > 0, 1, -1)


def proved(found: Any) -> bool:
    """Whether the primary claim is a proof that is met."""
    claim = found[found.primary]
    return claim.strength is Strength.PROVED and claim.met is True


def fitted(X: Any, y: Any, **options: Any) -> Any:
    options = {"tol": None, "max_iter": 10_000, **options}
    return Perceptron(shuffle=False, **options).fit(X, y)


def test_a_model_wrong_on_most_rows_is_not_called_solved() -> None:
    X, y = separable(200)
    theirs = linear_model.Perceptron(random_state=0).fit(X, y)
    theirs.coef_, theirs.intercept_ = -theirs.coef_, -theirs.intercept_
    theirs.coef_[0, 0] *= 0.9
    found = certus.certify(theirs, X, y)
    assert found["training_error"].value > 0.9
    assert found.status is Status.UNDECIDED and found.met is None
    X, y = mixed()
    ours = Perceptron(random_state=0).fit(X, y)
    assert ours.certificate_.status is Status.UNDECIDED
    assert ours.certificate_.primary == "training_error"
    assert ours.certificate_["update_sum"].met


@pytest.mark.parametrize("kind", [np.uint8, np.int8, np.int16, np.int32])
def test_sparse_small_integers_do_not_wrap(kind: Any) -> None:
    rng = np.random.default_rng(0)
    X = rng.integers(0, 100, size=(80, 6))
    y = np.where(X @ [3, -2, 1, 0, -1, 2] - 200 > 0, 1, 0)
    keep = np.abs(X @ [3, -2, 1, 0, -1, 2] - 200) > 40
    X, y = X[keep], y[keep]
    model = fitted(X.astype(float), y, max_iter=200_000)
    plain = certus.certify(model, X.astype(float), y)["mistake_bound"]
    for form in (sparse.csr_matrix, sparse.csc_matrix, sparse.csr_array):
        found = certus.certify(model, form(X.astype(kind)), y)["mistake_bound"]
        assert found.target == pytest.approx(plain.target) and found.met
    theirs = linear_model.Perceptron(tol=None, max_iter=5000, random_state=0).fit(X, y)
    found = certus.certify(theirs, sparse.csr_matrix(X.astype(kind)), y)
    same = certus.certify(theirs, X.astype(float), y)
    assert found.value == pytest.approx(same.value)


@pytest.mark.parametrize("scale", [1e-200, 1e-165, 1e-30, 1e30, 1e140, 1e160])
@pytest.mark.parametrize("intercept", [False, True])
def test_any_scale_is_handled(scale: float, intercept: bool) -> None:
    X, y = separable()
    model = fitted(X, y, fit_intercept=intercept)
    X = X * scale
    model.coef_ = model.coef_ * scale
    if not intercept:  # counts and bound do not depend on the units of X
        found = certus.certify(model, X, y)
        assert proved(found)
        here = found["mistake_bound"].target
        assert here == pytest.approx(model.certificate_["mistake_bound"].target)
    model.coef_ = model.coef_ * [1, 1, -1]
    assert not proved(certus.certify(model, X, y))


def test_rows_far_from_zero_are_undecided_not_proved() -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(40, 2)) + 1e15
    y = np.where(X[:, 0] > np.median(X[:, 0]), 1, -1)
    theirs = linear_model.Perceptron(random_state=0).fit(X - 1e15, y)
    theirs.coef_ = np.array([[1.0, 0.0]])
    theirs.intercept_ = np.array([-float(np.median(X[:, 0]))])
    found = certus.certify(theirs, X, y)
    assert found.status is Status.UNDECIDED and not proved(found)


def test_huge_weights() -> None:
    X, y = separable()
    model = fitted(X, y, class_weight={-1: 2e307, 1: 2e307})
    assert proved(model.certificate_)
    plain = fitted(X, y)
    bound = plain.certificate_["mistake_bound"].target
    assert model.certificate_["mistake_bound"].target == pytest.approx(bound)


@pytest.mark.parametrize(
    "change",
    [
        {"eta0": 2.0},
        {"fit_intercept": False},
        {"class_weight": {-1: 2.0}},
        {"penalty": "l2"},
    ],
)
def test_changed_parameters(change: dict[str, Any]) -> None:
    X, y = separable(seed=3)
    X = X + 1.0
    model = fitted(X, y, max_iter=100_000)
    assert proved(model.certificate_) and model.intercept_[0] != 0
    assert not proved(certus.certify(model.set_params(**change), X, y))


def test_changed_form_of_several_classes() -> None:
    rng = np.random.default_rng(0)
    y = np.repeat([0, 1, 2], 30)
    X = rng.uniform(-1, 1, size=(90, 2)) + 6 * np.array([[0, 1], [1, -1], [-1, -1]])[y]
    model = fitted(X, y)
    assert proved(model.certificate_)
    assert not proved(certus.certify(model.set_params(multi_class="ovo"), X, y))


def test_sample_weight_is_refused_where_fit_takes_none() -> None:
    X, y = separable()
    model = fitted(X, y)
    with pytest.raises(ValueError, match="sample_weight"):
        certus.certify(model, X, y, np.ones(len(y)))


def test_scikit_learn_ignores_rows_of_weight_zero() -> None:
    X, y = separable()
    theirs = linear_model.Perceptron(random_state=0).fit(X, y)
    X = np.vstack([X, X[:1]])
    y = np.append(y, -y[0])
    s = np.append(np.ones(len(y) - 1), 0.0)
    assert proved(certus.certify(theirs, X, y, s))
    assert not proved(certus.certify(theirs, X, y))


@pytest.mark.parametrize(
    "forge",
    [
        lambda m: m + (np.arange(len(m)) == 0)[:, None],
        lambda m: -m,
        lambda m: m + 0.5,
        lambda m: np.full(m.shape, np.nan),
        lambda m: m[:-1],
        lambda m: m.astype(str),
        lambda m: m.astype(object),
        lambda m: 0 * m,
    ],
)
def test_forged_counts(forge: Any) -> None:
    X, y = separable()
    model = fitted(X, y)
    evidence = model.certificate_.evidence
    counts = forge(model.mistakes_)
    forged = evidence.witness._replace(mistakes=counts)
    object.__setattr__(evidence, "witness", forged)
    found = certus.certify(model, X, y)
    assert not proved(found) and found.status is Status.REFUTED


@pytest.mark.parametrize(
    "change",
    [
        lambda model: setattr(model, "coef_", model.coef_ * 1.001),
        lambda model: setattr(model, "coef_", model.coef_[:, ::-1]),
        lambda model: setattr(model, "intercept_", model.intercept_ + 1e-3),
        lambda model: setattr(model, "classes_", model.classes_[::-1].copy()),
    ],
)
def test_changed_attributes(change: Any) -> None:
    X, y = separable()
    model = fitted(X, y)
    change(model)
    with contextlib.suppress(ValueError):  # labels that are not sorted are refused
        assert not proved(certus.certify(model, X, y))


def test_no_update_at_all_limits_no_margin() -> None:
    X, y = separable()
    model = fitted(X, y)
    margin = np.min(y * (X @ model.coef_[0] + model.intercept_[0]))
    margin /= np.linalg.norm(np.append(model.coef_, model.intercept_))
    model.coef_, model.intercept_ = 0 * model.coef_, 0 * model.intercept_
    witness = MistakesWitness(np.zeros((len(y), 1)))
    evidence = replace(model.certificate_.evidence, witness=witness)
    model.certificate_ = replace(model.certificate_, evidence=evidence)
    found = certus.certify(model, X, y)
    assert found["training_error"].value == 1
    assert found["margin_limit"].value >= margin


def test_a_class_without_weight_is_named() -> None:
    X, y = separable()
    with certus.config_context(on_uncertified="ignore"):
        model = fitted(X, y, class_weight={1: 0.0}, max_iter=5)
    claim = model.certificate_[model.certificate_.primary]
    assert not proved(model.certificate_)
    assert "weight" in claim.fix and "max_iter" not in claim.fix


def test_the_sum_is_rounded_upwards() -> None:
    """What is stated is never below the deviation computed in long doubles."""
    for seed in range(20):
        X, y = separable(seed=seed)
        for dtype in (np.float64, np.float32):
            model = fitted(X.astype(dtype), y)
            A = np.column_stack([X.astype(dtype), np.ones(len(y))]).astype(
                np.longdouble
            )
            parts = model.mistakes_[:, 0].astype(np.longdouble)
            w = np.append(model.coef_, model.intercept_).astype(np.longdouble)
            off = np.sqrt(np.sum(np.square(w - (parts * y) @ A)))
            size = parts @ np.sqrt(np.sum(A * A, axis=1))
            claim = model.certificate_["update_sum"]
            assert claim.met and claim.value >= off / size


def test_a_kernel_perceptron_that_leaves_rows_wrong_is_not_solved() -> None:
    X, y = mixed()
    with certus.config_context(on_uncertified="ignore"):
        model = KernelPerceptron(kernel="linear", max_iter=3).fit(X, y)
    found = certus.certify(model, X, y)
    assert found.status is Status.UNDECIDED and found.primary == "training_error"
    assert found["update_sum"].met and found["margin_limit"].value > 0
    X, y = separable()
    assert KernelPerceptron(kernel="linear").fit(X, y).certificate_.met
