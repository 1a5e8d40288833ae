"""``SVC(probability=True)`` against scikit-learn's, which scikit-learn 1.9 deprecates.

The folds are drawn otherwise, so the sigmoids differ a little; given the same sigmoids,
the probabilities are the same.
"""

import warnings
from typing import Any

import numpy as np
import pytest
from scipy import sparse
from scipy.optimize import minimize
from sklearn import svm
from sklearn.datasets import load_breast_cancer, load_iris
from sklearn.exceptions import NotFittedError

import certus
from certus.export import to_sklearn
from certus.svm import SVC
from certus.svm.probability import class_probabilities, fit_sigmoid

Array = np.ndarray
pytestmark = pytest.mark.filterwarnings("ignore:.*deprecated:FutureWarning")
DATA = {
    "two classes": load_breast_cancer(return_X_y=True),
    "three classes": load_iris(return_X_y=True),
}


def scaled(name: str) -> tuple[Array, Array]:
    X, y = DATA[name]
    return X / X.std(axis=0), y


@pytest.mark.parametrize("name", DATA)
@pytest.mark.parametrize("kernel", ["rbf", "linear"])
def test_probabilities_are_near_those_of_scikit_learn(name: str, kernel: str) -> None:
    X, y = scaled(name)
    options: dict[str, Any] = dict(probability=True, random_state=0, kernel=kernel)
    ours, theirs = SVC(**options).fit(X, y), svm.SVC(**options).fit(X, y)
    p = ours.predict_proba(X)
    np.testing.assert_allclose(p.sum(axis=1), 1.0, rtol=1e-12)
    # Two seeds of scikit-learn's differ by as much.
    assert np.abs(p - theirs.predict_proba(X)).mean() < 0.02
    assert ours.probA_.shape == theirs.probA_.shape
    assert np.array_equal(np.sign(ours.probA_), np.sign(theirs.probA_))
    np.testing.assert_allclose(ours.predict_log_proba(X), np.log(p))
    again = SVC(**options).fit(X, y)
    assert np.array_equal(again.predict_proba(X), p)


@pytest.mark.parametrize("name", DATA)
def test_sigmoids_of_scikit_learn_give_its_probabilities(name: str) -> None:
    X, y = scaled(name)
    theirs = svm.SVC(
        probability=True, random_state=0, decision_function_shape="ovo"
    ).fit(X, y)
    z = theirs.decision_function(X)
    z = -z[:, None] if z.ndim == 1 else z
    p = class_probabilities(z, theirs.probA_, theirs.probB_, len(theirs.classes_))
    np.testing.assert_allclose(p, theirs.predict_proba(X), atol=0.005)  # libsvm's steps
    ours = SVC(probability=True, random_state=0).fit(X, y)
    exported = to_sklearn(ours).predict_proba(X)
    np.testing.assert_allclose(exported, ours.predict_proba(X), atol=0.005)


def test_the_sigmoid_is_the_best_one() -> None:
    rng = np.random.default_rng(0)
    f = rng.normal(size=80)
    y = np.where(f + rng.normal(size=80) > 0.3, 1.0, -1.0)
    n = np.array([(y < 0).sum(), (y > 0).sum()])
    q = np.where(y > 0, (n[1] + 1) / (n[1] + 2), 1 / (n[0] + 2))

    def loss(w: Array) -> float:
        z = w[0] * f + w[1]
        return float(np.sum(np.logaddexp(0, z) - (1 - q) * z))

    best = minimize(loss, np.zeros(2), tol=1e-12).x
    np.testing.assert_allclose(fit_sigmoid(f, y), best, atol=1e-4)


def test_coupling_is_the_constrained_minimum() -> None:
    rng = np.random.default_rng(1)
    scores = rng.normal(size=(5, 6))
    found = class_probabilities(scores, -np.ones(6), np.zeros(6), 4)
    pairs = [(i, j) for i in range(4) for j in range(i + 1, 4)]
    r = 1 / (1 + np.exp(-scores))

    def total(p: Array, row: int) -> float:
        terms = zip(r[row], pairs, strict=True)
        parts = [(1 - share) * p[i] - share * p[j] for share, (i, j) in terms]
        return float(np.square(parts).sum())

    for row in range(5):
        for _ in range(200):
            other = rng.dirichlet(np.ones(4))
            assert total(found[row], row) <= total(other, row) + 1e-12


def test_sparse_rows_give_the_same_probabilities() -> None:
    X, y = scaled("three classes")
    options: dict[str, Any] = dict(probability=True, random_state=0, tol=1e-10)
    dense = SVC(**options).fit(X, y)
    model = SVC(**options).fit(sparse.csr_matrix(X), y)
    np.testing.assert_allclose(
        model.predict_proba(X), dense.predict_proba(X), atol=1e-4
    )


def test_the_class_warns_that_it_is_deprecated_and_survives_a_file(
    tmp_path: Any,
) -> None:
    X, y = scaled("three classes")
    with pytest.warns(FutureWarning, match="probability"):
        model = SVC(probability=True, random_state=0).fit(X, y)
    with pytest.warns(FutureWarning, match="`probA_` was deprecated"):
        assert len(model.probA_) == 3
    loaded = certus.load(certus.save(model, tmp_path / "model.certus"))
    assert np.array_equal(loaded.predict_proba(X), model.predict_proba(X))
    plain = SVC().fit(X, y)
    assert not hasattr(plain, "predict_proba")
    with pytest.raises(AttributeError, match="no attribute"):
        plain.predict_proba(X)
    with pytest.raises(NotFittedError, match="fitted with probability=False"):
        plain.set_params(probability=True).predict_proba(X)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        SVC().fit(X, y)
