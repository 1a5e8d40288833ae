"""The gradient check of networks: right gradients pass, a wrong factor is named."""

import copy
import warnings
from typing import Any

import numpy as np
import pytest
from scipy import sparse
from sklearn.exceptions import ConvergenceWarning
from sklearn.neural_network import MLPClassifier, MLPRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from certus.certificate import Certificate, Status, Strength
from certus.certifying import certify
from certus.diagnostics import perceptron
from certus.diagnostics.perceptron import PerceptronProblem, _pack, compare, stated_loss

Array = np.ndarray

RNG = np.random.default_rng(0)
N = 150
X = RNG.normal(size=(N, 4))
SINES = np.sin(X[:, :3]) + 0.1 * RNG.normal(size=(N, 3))
COUNTS = RNG.poisson(np.exp(0.3 * X[:, :2])).astype(float)
TWO = np.where(X[:, 0] + RNG.normal(size=N) > 0, "yes", "no")
THREE = RNG.integers(0, 3, N)
MANY = (X[:, :3] + RNG.normal(size=(N, 3)) > 0).astype(int)
WEIGHTS = RNG.uniform(0.2, 3, N)

ACTIVATIONS = ["relu", "tanh", "logistic", "identity"]
SOLVERS = ["lbfgs", "adam", "sgd"]


def fit(model: Any, y: Array, s: Array | None = None, data: Any = X) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return model.fit(data, y, **({} if s is None else {"sample_weight": s}))


def regressor(**options: Any) -> MLPRegressor:
    common = {"hidden_layer_sizes": (8, 5), "max_iter": 30, "random_state": 0}
    return MLPRegressor(**{**common, **options})


def classifier(**options: Any) -> MLPClassifier:
    common = {"hidden_layer_sizes": (8, 5), "max_iter": 30, "random_state": 0}
    return MLPClassifier(**{**common, **options})


def assert_passes(found: Certificate) -> None:
    claim = found["gradient_ratio"]
    assert found.met is None and found.status is Status.UNDECIDED, found
    assert found.primary == "gradient_ratio" and claim.strength is Strength.MEASURED
    assert not claim.fix
    assert claim.value < 1e-6 and claim.allowance < 1e-5
    assert found["gradient_norm"].strength is Strength.MEASURED


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("outputs", [1, 2, 3])
def test_lbfgs_with_several_outputs_is_flagged(activation: str, outputs: int) -> None:
    """scikit-learn#8349: the loss averages over outputs, its gradient sums."""
    y = SINES[:, 0] if outputs == 1 else SINES[:, :outputs]
    found = certify(fit(regressor(solver="lbfgs", activation=activation), y), X, y)
    claim = found["gradient_ratio"]
    if outputs == 1:
        assert_passes(found)
        return
    assert found.met is None and found.status is Status.UNDECIDED
    assert claim.value == pytest.approx(outputs - 1, abs=1e-3)
    times = f"{outputs:.2f} times"
    assert times in claim.detail and "scikit-learn#8349" in claim.detail
    assert "adam" in claim.fix


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("solver", ["adam", "sgd"])
def test_stochastic_solvers_use_the_documented_loss(
    solver: str, activation: str
) -> None:
    model = fit(regressor(solver=solver, activation=activation), SINES)
    assert_passes(certify(model, X, SINES))


@pytest.mark.parametrize("s", [None, WEIGHTS], ids=["unweighted", "weighted"])
@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("y", [TWO, THREE, MANY], ids=["two", "three", "multilabel"])
def test_classifiers(y: Array, solver: str, s: Array | None) -> None:
    model = fit(classifier(solver=solver, alpha=0.1), y, s)
    assert_passes(certify(model, X, y, s))


@pytest.mark.parametrize("s", [None, WEIGHTS], ids=["unweighted", "weighted"])
@pytest.mark.parametrize("solver", SOLVERS)
def test_poisson_regression(solver: str, s: Array | None) -> None:
    model = fit(regressor(loss="poisson", solver=solver), COUNTS, s)
    assert_passes(certify(model, X, COUNTS, s))


def test_a_converged_fit_passes() -> None:
    """At a minimum the gradient is zero; the check must still tell a factor."""
    smooth = {"activation": "tanh", "alpha": 1.0, "max_iter": 5000, "tol": 1e-10}
    model = fit(classifier(solver="lbfgs", **smooth), TWO)
    found = certify(model, X, TWO)
    assert_passes(found)
    assert found["gradient_norm"].value < 1e-3


def test_single_precision_sparse_and_pipelines() -> None:
    single = X.astype(np.float32)
    model = fit(regressor(solver="adam"), SINES[:, 0].astype(np.float32), data=single)
    assert_passes(certify(model, single, SINES[:, 0]))
    thin = sparse.csr_array(np.where(np.abs(X) < 0.5, 0, X))
    model = fit(classifier(solver="lbfgs"), THREE, data=thin)
    assert_passes(certify(model, thin, THREE))
    steps = make_pipeline(StandardScaler(), regressor(solver="lbfgs"))
    assert_passes(certify(fit(steps, SINES[:, 0]), X, SINES[:, 0]))


def test_a_subset_of_rows_is_used() -> None:
    rng = np.random.default_rng(0)
    data, y = rng.normal(size=(5000, 3)), rng.normal(size=5000)
    found = certify(fit(regressor(solver="adam", max_iter=2), y, data=data), data, y)
    assert_passes(found)
    assert "2,048 rows" in found["gradient_norm"].detail


# -- the pieces -------------------------------------------------------------------


def network_of(model: Any, y: Array, s: Array | None = None) -> PerceptronProblem:
    weights = np.ones(N) if s is None else s
    return perceptron.network_of(model, X, y.reshape(N, -1), weights)


@pytest.mark.parametrize("s", [None, WEIGHTS], ids=["unweighted", "weighted"])
def test_the_stated_loss_is_that_of_the_library(s: Array | None) -> None:
    """Our forward pass gives the loss that the last lbfgs iteration reports."""
    for y, model in (
        (SINES, regressor(solver="lbfgs", alpha=0.5, max_iter=3)),
        (COUNTS, regressor(solver="lbfgs", loss="poisson", alpha=0.5, max_iter=3)),
        (MANY, classifier(solver="lbfgs", alpha=0.5, max_iter=3)),
    ):
        fitted = fit(model, y, s)
        theta = _pack(fitted.coefs_, fitted.intercepts_)
        ours = stated_loss(network_of(fitted, y, s), theta)
        assert ours == pytest.approx(fitted.loss_, rel=1e-8)


def test_the_gradient_norm_is_that_of_the_stated_loss() -> None:
    """One output: the norm equals that of differences along every coordinate."""
    y = SINES[:, 0]
    model = fit(regressor(solver="lbfgs", alpha=0.5, activation="tanh"), y)
    network = network_of(model, y)
    theta, h = _pack(model.coefs_, model.intercepts_), 1e-5
    slopes = [
        (stated_loss(network, theta + h * e) - stated_loss(network, theta - h * e))
        / (2 * h)
        for e in np.eye(theta.size)
    ]
    found = certify(model, X, y)["gradient_norm"].value
    assert found == pytest.approx(float(np.linalg.norm(slopes)), rel=1e-5)


@pytest.mark.parametrize("wrong", ["alpha", "sign", "layer"])
def test_a_wrong_gradient_is_flagged(wrong: str) -> None:
    y = SINES[:, 0]

    class Broken(MLPRegressor):
        def _loss_grad_lbfgs(self, theta: Array, *args: Any) -> tuple[float, Array]:
            loss, gradient = super()._loss_grad_lbfgs(theta, *args)
            if wrong == "sign":
                return loss, -gradient
            if wrong == "layer":
                gradient = gradient.copy()
                gradient[: self.coefs_[0].size] *= 0.5
                return loss, gradient
            n = sum(W.size for W in self.coefs_)
            gradient[:n] += self.alpha * theta[:n] / N  # the penalty counted twice
            return loss, gradient

    options = regressor(solver="lbfgs", alpha=5.0).get_params()
    model = fit(regressor(solver="lbfgs", alpha=5.0), y)
    broken = Broken(**options)
    broken.__dict__.update(model.__dict__)
    assert certify(model, X, y).value < 1e-6
    claim = certify(broken, X, y)["gradient_ratio"]
    assert claim.value > 1e-3 and "report this" in claim.fix
    assert "8349" not in claim.detail


def test_weights_that_nobody_trained_are_undecided() -> None:
    """The gradient is right at any weights: random ones are no solution."""
    y = SINES[:, 0]
    model = fit(regressor(solver="adam"), y)
    for W in (*model.coefs_, *model.intercepts_):
        W[...] = RNG.normal(size=W.shape)
    found = certify(model, X, y)
    assert_passes(found)
    assert "nothing is proved" in str(found)


def test_a_library_without_the_method_is_not_measured() -> None:
    y = SINES[:, 0]

    class Changed(MLPRegressor):
        def _loss_grad_lbfgs(self, *args: Any) -> tuple[float, Array]:
            raise AttributeError("renamed")

    model = fit(regressor(solver="adam"), y)
    changed = Changed(**model.get_params())
    changed.__dict__.update(model.__dict__)
    found = certify(changed, X, y)
    assert found["gradient_ratio"].strength is Strength.MEASURED
    assert found.met is None and found.value is None
    assert "renamed" in found["gradient_ratio"].detail


def test_the_model_is_left_as_it_was() -> None:
    model = fit(regressor(solver="adam"), SINES)
    before = copy.deepcopy(model.__dict__)
    certify(model, X, SINES)
    assert model.__dict__.keys() == before.keys()
    for a, b in zip(model.coefs_, before["coefs_"]):
        assert np.array_equal(a, b)


def test_weights_that_are_not_numbers_are_not_measured() -> None:
    model = fit(regressor(solver="adam"), SINES[:, 0])
    model.coefs_[0][0, 0] = np.nan
    found = certify(model, X, SINES[:, 0])
    assert found.value is None and found.status is Status.UNDECIDED


def test_data_of_another_shape() -> None:
    model = fit(regressor(solver="adam"), SINES)
    with pytest.raises(ValueError, match="fitted on 4"):
        certify(model, X[:, :2], SINES)
    with pytest.raises(ValueError, match="predicts 3"):
        certify(model, X, SINES[:, :2])
    with pytest.raises(ValueError, match="rows"):
        certify(model, X, SINES[:10])


def test_the_result_does_not_depend_on_the_global_seed() -> None:
    model, y = fit(regressor(solver="lbfgs"), SINES), SINES
    ratios = {compare(model, network_of(model, y)).ratio for _ in range(3)}
    assert len(ratios) == 1
