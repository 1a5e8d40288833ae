"""Models of a library that derives from scikit-learn's classes, as sklearnex does.

Such a class has a ``predict`` of its own. It is judged by its attributes if its answers
are theirs on the rows passed, and refused if they are not.
"""

from typing import Any

import numpy as np
import pytest
from scipy import sparse
from sklearn import linear_model, svm
from sklearn.datasets import load_diabetes, load_iris

import certus
from certus.certificate import Strength
from certus.derived import NOTE

Array = np.ndarray
X, Y = load_diabetes(return_X_y=True)
ROWS, LABELS = load_iris(return_X_y=True)
CASES: list[tuple[Any, Array, Array]] = [
    (linear_model.LinearRegression(), X, Y),
    (linear_model.Ridge(), X, Y),
    (linear_model.LogisticRegression(tol=1e-8, max_iter=10_000), ROWS, LABELS),
    (linear_model.LogisticRegression(tol=1e-8, max_iter=10_000), X, Y > 140),
    (svm.SVC(tol=1e-9), ROWS, LABELS),
    (svm.SVC(tol=1e-9, kernel="linear"), X, Y > 140),
    (svm.SVR(tol=1e-9), X, Y),
]


def derived(model: Any, **methods: Any) -> Any:
    """The same model, of a class that looks like one of sklearnex's."""
    theirs = type(model)

    def predict(self: Any, X: Any) -> Array:
        return theirs.predict(self, X)

    def decision_function(self: Any, X: Any) -> Array:
        return theirs.decision_function(self, X)

    own: dict[str, Any] = {"predict": predict, "__module__": "sklearnex.fake"}
    if hasattr(theirs, "decision_function"):
        own["decision_function"] = decision_function
    cls = type(theirs.__name__, (theirs,), {**own, **methods})
    cls.__init__ = theirs.__init__  # type: ignore[misc]
    return cls(**model.get_params(deep=False))


@pytest.mark.parametrize("model, X, y", CASES, ids=lambda v: str(v)[:30])
@pytest.mark.parametrize("form", [np.asarray, sparse.csr_matrix])
def test_a_model_with_the_answers_of_its_attributes_is_judged(
    model: Any, X: Array, y: Array, form: Any
) -> None:
    fitted = derived(model).fit(form(X), y)
    found = certus.certify(fitted, form(X), y)
    plain = certus.certify(model.fit(form(X), y), form(X), y)
    assert found.met and found.primary == plain.primary
    assert found.value == pytest.approx(plain.value)
    assert found.model == plain.model.replace("sklearn ", "sklearnex ")
    assert NOTE in found[found.primary].assumptions
    assert NOTE not in plain[plain.primary].assumptions


@pytest.mark.parametrize("model, X, y", CASES, ids=lambda v: str(v)[:30])
def test_a_model_with_other_answers_is_refused(model: Any, X: Array, y: Array) -> None:
    name = "decision_function" if hasattr(model, "decision_function") else "predict"

    def other(self: Any, X: Any) -> Array:
        found = getattr(type(self).__mro__[1], name)(self, X)
        return found + 1e-4 * np.abs(found).max()

    fitted = derived(model, **{name: other}).fit(X, y)
    found = certus.certify(fitted, X, y)
    claim = found[found.primary]
    assert found.met is None and claim.strength is Strength.REFUSED
    assert "overrides" in claim.detail


def test_labels_that_do_not_follow_from_the_scores_are_refused() -> None:
    def predict(self: Any, X: Any) -> Array:
        return np.roll(svm.SVC.predict(self, X), 1)

    fitted = derived(svm.SVC(tol=1e-9), predict=predict).fit(ROWS, LABELS)
    assert certus.certify(fitted, ROWS, LABELS).met is None


def test_changed_attributes_that_predict_does_not_use_are_refused() -> None:
    def fit(self: Any, X: Any, y: Any) -> Any:
        linear_model.Ridge.fit(self, X, y)
        self._kept = self.coef_.copy()
        return self

    def predict(self: Any, X: Any) -> Array:
        return np.asarray(X @ self._kept + self.intercept_)

    model = derived(linear_model.Ridge(), fit=fit, predict=predict).fit(X, Y)
    assert certus.certify(model, X, Y).met
    model.coef_ = model.coef_ * 1.01
    assert certus.certify(model, X, Y).met is None


def test_other_libraries_are_still_refused() -> None:
    model = derived(linear_model.Ridge(), __module__="elsewhere.ridge").fit(X, Y)
    assert certus.certify(model, X, Y).met is None


def test_models_of_sklearnex() -> None:
    ex = pytest.importorskip("sklearnex.svm")
    linear = pytest.importorskip("sklearnex.linear_model")
    assert certus.certify(ex.SVC(tol=1e-9).fit(ROWS, LABELS), ROWS, LABELS).met
    assert certus.certify(ex.SVR(tol=1e-9).fit(X, Y), X, Y).met
    assert certus.certify(linear.Ridge().fit(X, Y), X, Y).met
    assert certus.certify(linear.LinearRegression().fit(X, Y), X, Y).met
