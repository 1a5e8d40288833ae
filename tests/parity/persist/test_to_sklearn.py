"""``to_sklearn``: scikit-learn's own class predicts what the certus model predicts.

The exported estimator is used as scikit-learn's users would: in a pipeline, cloned,
pickled, refitted, and converted to ONNX by a converter that knows nothing of certus.
"""

import pickle
import warnings
from typing import Any

import numpy as np
import pytest
from scipy import sparse
from sklearn.base import clone, is_classifier
from sklearn.datasets import load_breast_cancer, load_diabetes, load_iris
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils import get_tags
from sklearn.utils.validation import check_is_fitted

from certus import kernel_ridge, linear_model, neighbors, svm
from certus.export import HOMES
from certus.objectives import terms as t
from certus.tables import TablePipeline
from certus.testing.instances import instances

SHARED = [model for model in instances() if type(model).__name__ in HOMES]
OURS = [model for model in instances() if type(model).__name__ not in HOMES]
METHODS = (
    *("predict", "predict_proba", "predict_log_proba", "decision_function"),
    *("transform", "kneighbors"),
)


def name(model: Any) -> str:
    return type(model).__name__


def rows(classes: int = 3) -> tuple[Any, Any, Any]:
    """Rows of four columns, with names for labels and counts for amounts."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(90, 4))
    z = X @ [2.0, -1.0, 0.5, 0.0] + rng.normal(size=90)
    labels = np.array(["ash", "birch", "cedar"][:classes])
    codes = np.searchsorted(np.quantile(z, np.arange(1, classes) / classes), z)
    return X, labels[codes], rng.poisson(np.exp(0.3 * z)).astype(float)


def allowed(model: Any, X: Any) -> Any:
    """The rows, without signs where a model takes none."""
    return abs(X) if get_tags(model).input_tags.positive_only else X


def fitted(model: Any, X: Any, labels: Any, amounts: Any) -> Any:
    return clone(model).fit(allowed(model, X), target(model, labels, amounts))


def target(model: Any, labels: Any, amounts: Any) -> Any:
    """What a model predicts: labels, amounts, or two columns of amounts."""
    if not get_tags(model).target_tags.single_output:
        return np.column_stack([amounts, -amounts])
    positive = name(model) == "GammaRegressor"
    return labels if is_classifier(model) else amounts + 0.5 * positive


def answer(model: Any, X: Any) -> Any:
    """What a model is asked for: predictions, factors, or distances."""
    X = allowed(model, X)
    if hasattr(model, "kneighbors") and not hasattr(model, "predict"):
        return model.kneighbors(X)[0]
    if not hasattr(model, "predict") and not hasattr(model, "transform"):
        return model.labels_
    return model.predict(X) if hasattr(model, "predict") else model.transform(X)


def assert_alike(ours: Any, theirs: Any, X: Any) -> None:
    """Same predictions from every method that either of them has."""
    assert type(theirs).__module__.startswith("sklearn.")
    check_is_fitted(theirs)
    X, compared = allowed(ours, X), 0
    # Theirs solves for the weights again, to its own tolerance.
    digits = 0.05 if name(ours) == "NMF" else 1e-10
    for method in METHODS:
        if not hasattr(ours, method):
            continue
        mine, other = getattr(ours, method)(X), getattr(theirs, method)(X)
        if method == "kneighbors":
            mine, other = mine[0], other[0]
        if method == "predict" and name(ours) == "OneClassSVM":  # not on the boundary
            apart = np.abs(ours.decision_function(X)) > 0
            mine, other = mine[apart], other[apart]
        if np.asarray(mine).dtype.kind == "f":
            np.testing.assert_allclose(other, mine, rtol=digits, atol=digits)
        else:
            np.testing.assert_array_equal(other, mine)
        compared += 1
    if not compared:  # groups of the rows of the fit alone
        np.testing.assert_array_equal(theirs.labels_, ours.labels_)


@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("model", SHARED, ids=name)
def test_same_class_parameters_and_predictions(model: Any, classes: int) -> None:
    X, labels, amounts = rows(classes)
    ours = fitted(model, X[:60], labels[:60], amounts[:60])
    theirs = ours.to_sklearn()
    assert name(theirs) == name(ours)
    assert_alike(ours, theirs, X[60:])
    stated = ours.get_params()
    for key, value in theirs.get_params().items():
        solver = key in ("solver", "algorithm") and stated.get(key) == "auto"
        assert solver or (key in stated and value == stated[key]), key
    assert theirs.n_features_in_ == 4


@pytest.mark.parametrize("model", SHARED, ids=name)
def test_usable_as_an_estimator_of_scikit_learn(model: Any) -> None:
    X, labels, amounts = rows()
    y, X = target(model, labels, amounts), allowed(model, X)
    positive = get_tags(model).input_tags.positive_only
    scaler = StandardScaler(with_mean=not positive).fit(X)
    ours = clone(model).fit(scaler.transform(X), y)
    theirs = ours.to_sklearn()
    again = pickle.loads(pickle.dumps(theirs))
    assert_alike(ours, again, scaler.transform(X))
    if hasattr(ours, "score"):
        found = make_pipeline(scaler, theirs).score(X, y)
        mine = ours.score(scaler.transform(X), y)
        np.testing.assert_allclose(found, mine, rtol=1e-10)
    with warnings.catch_warnings():  # its solvers may not reach our tolerance
        warnings.simplefilter("ignore")
        fresh = clone(theirs).fit(X, y)
    assert len(answer(fresh, X)) == 90


@pytest.mark.parametrize("model", SHARED, ids=name)
def test_the_export_is_a_copy(model: Any) -> None:
    X, labels, amounts = rows()
    ours = fitted(model, X, labels, amounts)
    before = answer(ours, X[:9])
    theirs = ours.to_sklearn()
    for value in vars(theirs).values():
        if isinstance(value, np.ndarray) and value.dtype.kind == "f":
            value *= 0.0
    np.testing.assert_array_equal(answer(ours, X[:9]), before)


#: Models that take sparse rows, in scikit-learn as well.
SPARSE = [
    model
    for model in SHARED
    if model.__sklearn_tags__().input_tags.sparse
    and not name(model).startswith("HistGradientBoosting")
]


@pytest.mark.parametrize("model", SPARSE, ids=name)
def test_sparse_rows(model: Any) -> None:
    X, labels, amounts = rows()
    S = sparse.csr_matrix(np.where(np.abs(X) > 0.5, X, 0.0))
    ours = fitted(model, S[:60], labels[:60], amounts[:60])
    assert_alike(ours, ours.to_sklearn(), S[60:])


@pytest.mark.parametrize(
    "model",
    [linear_model.Ridge(), linear_model.Lasso(), linear_model.LinearRegression()],
    ids=name,
)
def test_several_targets_and_column_names(model: Any) -> None:
    pandas = pytest.importorskip("pandas")
    X, _, amounts = rows()
    frame = pandas.DataFrame(X, columns=list("abcd"))
    ours = clone(model).fit(frame, np.column_stack([amounts, -amounts]))
    theirs = ours.to_sklearn()
    np.testing.assert_array_equal(theirs.feature_names_in_, list("abcd"))
    np.testing.assert_allclose(theirs.predict(frame), ours.predict(frame), rtol=1e-10)


@pytest.mark.parametrize(
    "term",
    [t.Linear(), t.Gaussian(0.3), t.Polynomial(2, 1.0, 0.5), t.Sigmoid(0.01, 0.1)],
    ids=lambda term: type(term).__name__,
)
@pytest.mark.parametrize(
    "cls", [svm.SVC, svm.SVR, kernel_ridge.KernelRidge], ids=lambda c: c.__name__
)
@pytest.mark.filterwarnings("ignore::certus.base.UncertifiedWarning")
def test_kernels_as_terms(cls: Any, term: Any) -> None:
    X, labels, amounts = rows()
    ours = fitted(cls(kernel=term), X, labels, amounts)
    assert_alike(ours, ours.to_sklearn(), X)


@pytest.mark.parametrize("classes", [2, 3])
def test_custom_functions_and_given_matrices(classes: int) -> None:
    X, labels, _ = rows(classes)
    K = np.exp(-0.5 * ((X[:, None] - X) ** 2).sum(axis=2))
    given = svm.SVC(kernel="precomputed").fit(K[:60, :60], labels[:60])
    assert_alike(given, given.to_sklearn(), K[60:, :60])
    own = svm.SVC(kernel=lambda A, B: (1 + A @ B.T) ** 2).fit(X[:60], labels[:60])
    assert_alike(own, own.to_sklearn(), X[60:])
    pairs = svm.SVC(decision_function_shape="ovo").fit(X[:60], labels[:60])
    assert_alike(pairs, pairs.to_sklearn(), X[60:])


@pytest.mark.parametrize("cls", ["RidgeClassifier", "RidgeClassifierCV"])
@pytest.mark.parametrize("labels", ["one", "several"])
def test_ridge_classifiers_with_one_or_several_labels(cls: str, labels: str) -> None:
    X, names, amounts = rows()
    several = np.column_stack([amounts > 1, amounts > 2, names == "ash"]).astype(int)
    y = several if labels == "several" else np.full(90, "ash")
    ours = getattr(linear_model, cls)().fit(X, y)
    assert_alike(ours, ours.to_sklearn(), X)


@pytest.mark.parametrize("weights", ["uniform", "distance"])
def test_neighbours_with_several_outputs(weights: str) -> None:
    X, labels, amounts = rows()
    both = np.column_stack([labels, labels[::-1]])
    ours = neighbors.KNeighborsClassifier(weights=weights).fit(X[:60], both[:60])
    np.testing.assert_array_equal(
        ours.to_sklearn().predict(X[60:]), ours.predict(X[60:])
    )
    far = neighbors.KNeighborsRegressor(3, weights=weights, metric="manhattan")
    far.fit(X[:60], amounts[:60])
    assert_alike(far, far.to_sklearn(), X[60:])


def test_a_lasso_penalty_gets_a_solver_that_knows_it() -> None:
    X, labels, _ = rows()
    ours = linear_model.LogisticRegression(l1_ratio=1.0, C=0.1).fit(X, labels)
    theirs = ours.to_sklearn()
    assert theirs.solver == "saga"
    assert_alike(ours, theirs, X)
    again = clone(theirs).set_params(max_iter=20_000, tol=1e-10).fit(X, labels)
    np.testing.assert_allclose(again.coef_, ours.coef_, atol=1e-4)


@pytest.mark.filterwarnings("ignore::certus.base.UncertifiedWarning")
@pytest.mark.parametrize("model", OURS, ids=name)
def test_classes_that_scikit_learn_lacks_are_refused_by_name(model: Any) -> None:
    kinds = get_tags(model).classifier_tags
    X, labels, amounts = rows(3 if kinds is None or kinds.multi_class else 2)
    ours = fitted(model, X, labels, amounts)
    with pytest.raises(NotImplementedError, match=f"no {name(model)} to export to"):
        ours.to_sklearn()


@pytest.mark.filterwarnings("ignore::certus.base.UncertifiedWarning")
def test_refusals_say_what_to_do() -> None:
    X, labels, amounts = rows()
    duel = linear_model.Perceptron(multi_class="ovo", random_state=0).fit(X, labels)
    with pytest.raises(NotImplementedError, match="Fit with 'ovr'"):
        duel.to_sklearn()
    for term in ("laplacian", t.Sum(t.Linear(), t.Gaussian(1.0)), t.Laplace(1.0, 2)):
        machine = svm.SVC(kernel=term).fit(X, labels)
        with pytest.raises(NotImplementedError, match="kernel='precomputed'"):
            machine.to_sklearn()
    bent = svm.SVR(kernel="poly", degree=1.5, coef0=9.0, gamma=0.01)
    with pytest.raises(NotImplementedError, match="whole number as degree"):
        bent.fit(X, amounts).to_sklearn()
    table = TablePipeline(estimator=linear_model.Ridge()).fit(X, amounts)
    with pytest.raises(NotImplementedError, match=r"estimator_\.to_sklearn\(\)"):
        table.to_sklearn()
    Z = table.encoder_.transform(X)
    assert_alike(table.estimator_, table.estimator_.to_sklearn(), Z)
    with pytest.raises(ValueError, match="not fitted"):
        linear_model.Ridge().to_sklearn()


def test_a_subclass_is_exported_as_what_it_extends() -> None:
    class Mine(linear_model.Lasso):
        pass

    X, _, amounts = rows()
    assert name(Mine().fit(X, amounts).to_sklearn()) == "Lasso"


# -- onwards, to ONNX ---------------------------------------------------------------

DIGITS = 1e-4  # ONNX computes in float32


def onnx_outputs(theirs: Any, X: Any) -> list[Any]:
    """Convert, run with onnxruntime, return its outputs."""
    convert = pytest.importorskip("skl2onnx").to_onnx
    runtime = pytest.importorskip("onnxruntime")
    X = X.astype(np.float32)
    options = {"zipmap": False} if hasattr(theirs, "predict_proba") else {}
    graph = convert(theirs, X[:1], options=options).SerializeToString()
    session = runtime.InferenceSession(graph, providers=["CPUExecutionProvider"])
    return list(session.run(None, {session.get_inputs()[0].name: X}))


@pytest.mark.parametrize(
    "model",
    [
        linear_model.LinearRegression(),
        linear_model.Ridge(),
        linear_model.Lasso(),
        linear_model.ElasticNet(),
        linear_model.HuberRegressor(epsilon=2.0),
        linear_model.QuantileRegressor(alpha=0.01),
        svm.LinearSVR(),
        svm.SVR(C=10.0),
        neighbors.KNeighborsRegressor(),
    ],
    ids=name,
)
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
def test_onnx_predicts_the_same_amounts(model: Any) -> None:
    X, y = load_diabetes(return_X_y=True)
    X = (10 * X).astype(np.float32).astype(np.float64)
    ours = clone(model).fit(X[:300], y[:300])
    (found,) = onnx_outputs(ours.to_sklearn(), X[300:])
    np.testing.assert_allclose(found.ravel(), ours.predict(X[300:]), rtol=DIGITS)


@pytest.mark.parametrize("load", [load_iris, load_breast_cancer])
@pytest.mark.parametrize(
    "model",
    [
        linear_model.LogisticRegression(),
        svm.LinearSVC(),
        linear_model.Perceptron(random_state=0),
        svm.SVC(),
        neighbors.KNeighborsClassifier(),
    ],
    ids=name,
)
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
def test_onnx_predicts_the_same_labels(model: Any, load: Any) -> None:
    X, y = load(return_X_y=True)
    X = StandardScaler().fit_transform(X).astype(np.float32).astype(np.float64)
    ours = clone(model).fit(X[::2], y[::2])
    found = onnx_outputs(ours.to_sklearn(), X[1::2])
    np.testing.assert_array_equal(found[0], ours.predict(X[1::2]))
    if hasattr(ours, "predict_proba"):
        np.testing.assert_allclose(found[1], ours.predict_proba(X[1::2]), atol=DIGITS)
