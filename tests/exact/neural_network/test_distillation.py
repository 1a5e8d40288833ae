"""Knowledge distillation: its gradient at high temperature, and what it is good for."""

import pickle

import numpy as np
import pytest
import torch
from scipy.special import log_softmax, softmax
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.datasets import load_iris
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.preprocessing import scale

import certus
from certus.neural_network import Distilled, NeuralClassifier
from certus.neural_network.distillation import soft_cross_entropy
from certus.neural_network.modules import MLP

X, y = load_iris(return_X_y=True)
X = scale(X)


def network(n, k):
    """A network in float64, so that numbers can be compared."""
    return MLP(n, 8, k).double()


def student(**options):
    """A few epochs of it."""
    settings = {"learning_rate": 0.02, "schedule": "cosine", "max_iter": 20}
    return NeuralClassifier(network, **{**settings, **options}, random_state=0)


@pytest.mark.catalog("NN-44")
def test_at_high_temperature_the_gradient_matches_scores():
    rng = np.random.default_rng(0)
    z, t = (torch.as_tensor(rng.normal(size=(4, 5))) for _ in range(2))
    z.requires_grad_()
    centred = (z - z.mean(dim=1, keepdim=True)) - (t - t.mean(dim=1, keepdim=True))
    errors = []
    for T in (10.0, 100.0, 1000.0):
        (g,) = torch.autograd.grad(soft_cross_entropy(z, t, T).sum(), z)
        limit = centred.detach() / (5 * T**2)
        errors.append(float(((g - limit).norm() / limit.norm()).detach()))
    assert errors[0] < 0.2 and errors[2] < 2e-3
    np.testing.assert_allclose(np.divide(errors[:-1], errors[1:]), 10, rtol=0.2)


@pytest.mark.catalog("NN-44")
def test_a_student_beats_the_same_network_trained_on_noisy_labels():
    gains = []
    for seed in range(2):
        rng = np.random.default_rng(seed)
        Z = rng.normal(size=(6000, 10))
        truth = (Z[:, 0] + Z[:, 1] > 0).astype(int)
        noisy = np.where(rng.random(6000) < 0.3, 1 - truth, truth)
        teacher = LogisticRegression().fit(Z[:2000], noisy[:2000])
        few, labels = Z[2000:2100], noisy[2000:2100]
        alone = student(max_iter=60).fit(few, labels)
        taught = Distilled(
            student(max_iter=60), teacher=teacher, temperature=2.0, mix=1.0
        )
        taught.fit(few, labels)
        test = Z[3000:], truth[3000:]
        gains.append(taught.score(*test) - alone.score(*test))
    assert min(gains) > 0.05


def test_without_the_teacher_it_is_the_plain_network():
    plain = student().fit(X, y)
    model = Distilled(student(), teacher=LogisticRegression(), mix=0.0).fit(X, y)
    np.testing.assert_array_equal(model.predict_proba(X), plain.predict_proba(X))


def test_with_the_teacher_alone_it_learns_soft_targets():
    teacher = LogisticRegression().fit(X, y)
    model = Distilled(student(), teacher=teacher, temperature=1.0, mix=1.0).fit(X, y)
    soft = student().fit(X, teacher.predict_proba(X))
    found, wanted = model.predict_proba(X), soft.predict_proba(X)
    np.testing.assert_allclose(found, wanted, rtol=1e-6, atol=1e-9)


def test_the_certificate_speaks_of_the_stated_objective():
    teacher = LogisticRegression().fit(X, y)
    T, mix = 3.0, 0.3
    model = Distilled(student(), teacher=teacher, temperature=T, mix=mix)
    s = np.arange(150) % 3 + 1.0
    model.fit(X, y, s)
    z = model.module_(torch.as_tensor(X)).detach().numpy()
    t = np.log(teacher.predict_proba(X))
    soft = -(softmax(t / T, axis=1) * log_softmax(z / T, axis=1)).sum(axis=1)
    hard = -log_softmax(z, axis=1)[np.arange(150), y]
    wanted = np.average(mix * T**2 * soft + (1 - mix) * hard, weights=s)
    claim = model.certificate_["training_loss"]
    assert claim.value == pytest.approx(wanted, rel=1e-9)
    assert model.certificate_["gradient_ratio"].value < 1e-4
    again = certus.certify(model, X, y, s)
    assert again["training_loss"].value == claim.value
    names = {c.name for c in certus.certify(model, X, y, s, level="full").claims}
    assert "smallest_curvature" in names


def test_columns_of_the_teacher_are_put_in_order():
    class Backwards(ClassifierMixin, BaseEstimator):
        """Knows the classes in another order, and calls all rows of class 2."""

        classes_ = np.array([2, 1, 0])

        def fit(self, X, y):
            return self

        def predict_proba(self, X):
            return np.tile([0.98, 0.01, 0.01], (len(X), 1))

        def __sklearn_is_fitted__(self):
            return True

    model = Distilled(student(max_iter=100), teacher=Backwards(), mix=1.0).fit(X, y)
    assert (model.predict(X) == 2).all()


def test_a_fitted_teacher_is_kept_and_another_is_fitted():
    teacher = LogisticRegression().fit(X, y)
    assert Distilled(student(), teacher=teacher).fit(X, y).teacher_ is teacher
    fresh = LogisticRegression()
    model = Distilled(student(), teacher=fresh).fit(X, y)
    assert not hasattr(fresh, "coef_") and hasattr(model.teacher_, "coef_")
    frozen = FrozenEstimator(teacher)
    assert clone(Distilled(student(), teacher=frozen)).fit(X, y).teacher_ is frozen


def test_a_distilled_network_works_in_searches_and_copies():
    model = Distilled(
        student(max_iter=3),
        teacher=FrozenEstimator(LogisticRegression().fit(X, y)),
    )
    search = GridSearchCV(
        model, {"temperature": [1.0, 5.0], "estimator__max_iter": [2]}
    )
    search.fit(X, y)
    best = search.best_estimator_
    twin = pickle.loads(pickle.dumps(best))
    np.testing.assert_array_equal(twin.predict(X), best.predict(X))
    assert twin.n_features_in_ == 4 and list(twin.classes_) == [0, 1, 2]


def test_two_classes_may_have_one_score():
    binary = (y == 1).astype(int)
    one = NeuralClassifier(
        lambda n, k: MLP(n, 8, 1), schedule="cosine", max_iter=50, learning_rate=0.02
    )
    model = Distilled(one, teacher=LogisticRegression(), temperature=2.0).fit(X, binary)
    assert model.score(X, binary) > 0.7


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"temperature": 0.0}, "temperature"),
        ({"mix": 1.5}, "mix"),
        ({"estimator": LogisticRegression()}, "classifier of certus.neural_network"),
        ({"teacher": object()}, "predict_proba"),
        ({"teacher": LogisticRegression().fit(X[:100], y[:100])}, "same classes"),
    ],
)
def test_impossible_requests_are_refused_with_a_message(options, match):
    given = {"estimator": student(), "teacher": LogisticRegression(), **options}
    with pytest.raises((ValueError, TypeError), match=match):
        Distilled(given.pop("estimator"), **given).fit(X, y)
