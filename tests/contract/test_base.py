"""What every estimator shares, by the named checks of the public test kit."""

import pickle
import warnings
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import get_tags

import certus
from certus.base import (
    UncertifiedError,
    UncertifiedWarning,
    check_choice,
    check_number,
    label_codes,
    thread_budget,
)
from certus.certificate import Status
from certus.linear_model import Lasso, LinearRegression, LogisticRegression, Ridge
from certus.testing.checks import checks, example
from certus.testing.instances import instances, supervised

Array = np.ndarray


@pytest.mark.parametrize("check", list(checks()), ids=lambda c: c.__name__)
@pytest.mark.parametrize("estimator", supervised(), ids=lambda e: type(e).__name__)
def test_check(estimator: Any, check: Any) -> None:
    check(estimator)


#: Checks that ask for nothing but rows.
ROWS_ALONE = (
    "check_certificate_is_met",
    "check_certificate_can_be_repeated",
    "check_copies_keep_the_certificate",
    "check_data_are_left_alone",
)
ALONE = [e for e in instances() if not get_tags(e).target_tags.required]


@pytest.mark.parametrize("name", ROWS_ALONE)
@pytest.mark.parametrize("estimator", ALONE, ids=lambda e: type(e).__name__)
def test_check_without_target(estimator: Any, name: str) -> None:
    next(check for check in checks() if check.__name__ == name)(estimator)


# -- the checks themselves can fail -------------------------------------------------


class Wrong(Ridge):
    """A ridge whose coefficients are spoiled after the certificate is made."""

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Any:
        super().fit(X, y, sample_weight=sample_weight)
        self.coef_ = self.coef_ + np.linspace(0.1, 0.2, len(self.coef_)) * X[0, 0]
        return self


@pytest.mark.parametrize(
    "name",
    [
        "check_certificate_can_be_repeated",
        "check_swapped_data_are_reported",
        "check_order_of_rows",
        "check_order_of_columns",
        "check_single_precision",
    ],
)
def test_a_wrong_estimator_is_caught(name: str) -> None:
    check = next(c for c in checks() if c.__name__ == name)
    if name == "check_swapped_data_are_reported":

        class Blind(Ridge):  # hands every model the certificate of other data
            def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Any:
                X, y = example(self, seed=1)
                return super().fit(X, y)

        with pytest.raises(AssertionError):
            check(Blind())
        return
    with pytest.raises(AssertionError):
        check(Wrong())


# -- policies -----------------------------------------------------------------------


@pytest.fixture
def hard() -> tuple[Any, Array, Array]:
    """A lasso that one round cannot solve."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 300))
    return Lasso(0.01, max_iter=1, tol=1e-14), X, X[:, :20].sum(axis=1)


def test_a_missed_target_warns_with_a_fix(hard: Any) -> None:
    model, X, y = hard
    with pytest.warns(UncertifiedWarning, match="Lasso: may be .* Fix: ") as caught:
        model.fit(X, y)
    assert issubclass(UncertifiedWarning, ConvergenceWarning)
    assert caught[0].filename == __file__, "the warning points at the caller"
    assert model.certificate_.met is False
    assert model.certificate_.status is Status.MAX_ITER
    assert "max_iter" in str(model.certificate_)
    assert model.predict(X).shape == (60,)


def test_a_missed_target_raises_or_passes_when_asked(hard: Any) -> None:
    model, X, y = hard
    with certus.config_context(on_uncertified="raise"):
        with pytest.raises(UncertifiedError, match="may be"):
            model.fit(X, y)
        assert model.certificate_.met is False, "the state is kept"
    with certus.config_context(on_uncertified="ignore"):
        assert model.fit(X, y).certificate_.met is False


def test_settings_are_restored_and_checked() -> None:
    before = certus.get_config()
    with (
        pytest.raises(RuntimeError, match="inside"),
        certus.config_context(on_uncertified="raise", on_interrupt="return"),
    ):
        assert certus.get_config()["on_interrupt"] == "return"
        raise RuntimeError("inside")
    assert certus.get_config() == before
    with pytest.raises(ValueError, match="must be one of"):
        certus.set_config(on_uncertified="shout")
    with pytest.raises(TypeError):
        certus.set_config(unknown=1)
    assert certus.get_config() == before


def test_settings_belong_to_their_thread() -> None:
    from threading import Thread

    seen: list[str] = []
    with certus.config_context(on_uncertified="raise"):
        thread = Thread(
            target=lambda: seen.append(certus.get_config()["on_uncertified"])
        )
        thread.start()
        thread.join()
    assert seen == ["warn"]


def test_separation_warns_or_raises() -> None:
    X, y = np.array([[0.0], [1.0], [2.0], [3.0]]), [0, 0, 1, 1]
    model = LogisticRegression(C=np.inf)
    with pytest.warns(UncertifiedWarning, match="Fix: set a finite C"):
        model.fit(X, y)
    with (
        certus.config_context(on_uncertified="raise"),
        pytest.raises(UncertifiedError, match="there is no minimum"),
    ):
        model.fit(X, y)


# -- estimators ---------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore::certus.base.UncertifiedWarning")
@pytest.mark.parametrize("estimator", instances(), ids=lambda e: type(e).__name__)
def test_the_html_view_shows_the_certificate(estimator: Any) -> None:
    X, y = example(estimator)
    assert "certus-certificate" not in estimator._repr_html_()
    model = clone(estimator).fit(X, y)
    assert "certus-certificate" in model._repr_html_()
    assert f"rows × {X.shape[1]} columns" in model._repr_html_()


@pytest.mark.parametrize("estimator", supervised(), ids=lambda e: type(e).__name__)
def test_a_failed_fit_after_a_good_one_raises(estimator: Any) -> None:
    X, y = example(estimator)
    model = clone(estimator).fit(X, y)
    with pytest.raises(ValueError, match="inconsistent"):
        model.fit(X, y[:-1])


def test_threads_are_counted() -> None:
    from threadpoolctl import threadpool_limits

    with threadpool_limits(1):
        assert thread_budget() == 1
        X, y = example(LinearRegression())
        assert LinearRegression().fit(X, y).certificate_.threads == 1


@pytest.mark.parametrize(
    ("value", "error"),
    [("1", TypeError), (None, TypeError), (True, TypeError), (-1, ValueError)],
)
def test_numbers_are_checked(value: Any, error: type[Exception]) -> None:
    with pytest.raises(error, match="tol must be a number"):
        check_number("tol", value)


def test_more_checks_of_parameters() -> None:
    check_number("tol", np.float32(0.5), 0, 1)
    check_number("max_iter", np.int64(3), 1, integer=True)
    check_number("max_time", None, none=True)
    with pytest.raises(ValueError, match="above 0"):
        check_number("C", 0.0, open_low=True)
    with pytest.raises(ValueError, match="at most 1"):
        check_number("l1_ratio", float("nan"), 0, 1)
    with pytest.raises(TypeError, match="an integer"):
        check_number("max_iter", 1.5, integer=True)
    with pytest.raises(ValueError, match=r"one of 'a', None"):
        check_choice("solver", "b", ("a", None))


BAD = {
    "alpha": [-1.0, "a", float("nan")],
    "C": [0.0, -1.0, "a"],
    "l1_ratio": [-0.1, 1.1, "a"],
    "tol": [-1e-3, "a"],
    "max_iter": [-1, 1.5, "a"],
    "max_time": [-1.0, "a"],
    "solver": ["newton", 3],
    "class_weight": ["balance"],
    "selection": ["sometimes"],
    "eps": [0.0, "a"],
}


@pytest.mark.parametrize("estimator", instances(), ids=lambda e: type(e).__name__)
def test_bad_parameters_are_named(estimator: Any) -> None:
    X, y = example(estimator)
    for name in sorted(set(BAD) & set(estimator.get_params())):
        if hasattr(estimator, "cv") and name in ("max_time", "selection"):
            continue  # not looked at by the cross-validated versions
        for value in BAD[name]:
            if value == estimator.get_params()[name]:
                continue  # max_iter=-1 is scikit-learn's "no limit" of SVC and SVR
            model = clone(estimator).set_params(**{name: value})
            with pytest.raises(
                (ValueError, TypeError, NotImplementedError), match=name
            ) as caught:
                model.fit(X, y)
            assert len(str(caught.value)) < 200, str(caught.value)


def test_unfitted_models_say_so() -> None:
    from sklearn.exceptions import NotFittedError

    for estimator in instances():
        names = ("predict", "transform", "kneighbors", "sample")
        for ask in [getattr(estimator, n) for n in names if hasattr(estimator, n)][:1]:
            with pytest.raises(NotFittedError):
                ask(np.zeros((1, 2)))
        with pytest.raises((NotFittedError, ValueError), match=r"not fitted|fit"):
            certus.certify(estimator, *example(estimator))


def test_pickles_are_small() -> None:
    X, y = example(LogisticRegression(), n=5000)
    model = LogisticRegression().fit(X, y)
    text = pickle.dumps(model)
    assert len(text) < 20_000, "a certificate must not hold the data"
    other = pickle.loads(text)
    assert other.certificate_.to_dict() == model.certificate_.to_dict()
    assert certus.certify(other, X, y).met


@pytest.mark.parametrize(
    ("model", "columns", "name", "reason"),
    [
        (LinearRegression(), 4, "cholesky", "condition number"),
        (LinearRegression(), 60, "svd", "fewer rows than columns"),
        (LinearRegression(solver="qr"), 4, "qr", "as asked"),
        (Ridge(), 60, "cholesky", "more columns than rows"),
        (LogisticRegression(l1_ratio=1), 4, "proximal Newton", "L1"),
        (LogisticRegression(), 4, "Newton-CG", "smooth"),
    ],
)
def test_the_solver_is_named_with_its_reason(
    model: Any, columns: int, name: str, reason: str
) -> None:
    X = np.random.default_rng(0).normal(size=(40, columns))
    y = X[:, 0] > 0 if isinstance(model, LogisticRegression) else X[:, 0]
    model = clone(model).fit(X, y)
    assert model.solver_ == name
    assert reason in model.solver_reason_


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int64", "uint64", "float64", "U3"])
@given(low=st.integers(0, 100), width=st.integers(1, 90), n=st.integers(1, 2000))
@settings(max_examples=15)
def test_label_codes_are_those_of_unique(dtype, low, width, n):
    rng = np.random.default_rng(n)
    shift = 50 if dtype in ("int8", "int64") else 0  # negative labels, too
    y = (rng.integers(0, width, n) * 3 % width + low % 20 - shift).astype(dtype)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "The number of unique classes")
        classes, codes = label_codes(y)
    expected, places = np.unique(y, return_inverse=True)
    np.testing.assert_array_equal(classes, expected)
    np.testing.assert_array_equal(codes, places)
    assert classes.dtype == y.dtype
