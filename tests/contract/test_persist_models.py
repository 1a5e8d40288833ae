"""Model files of every linear model, of tables, and of the first version."""

import datetime as dt
import json
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from sklearn.base import is_classifier

import certus
from certus import linear_model, persist
from certus.certificate import Evidence
from certus.evidence import LinearWitness
from certus.persist import ModelFileError, load, save
from certus.persist.renames import RENAMED as renames
from certus.tables import TablePipeline
from helpers.linear import LINEAR


def fit_real(name):
    """A fitted certus model, its X and its y."""
    rng = np.random.default_rng(3)
    X = rng.normal(size=(80, 4))
    y = X @ [1.0, -2.0, 0.0, 0.5] + 0.1 * rng.normal(size=80)
    model = LINEAR[name]()
    if is_classifier(model):
        y = np.digitize(y, [-1, 1])
        if "class_weight" in model.get_params():
            model.set_params(class_weight={0: 1.0, 1: 2.0, 2: 1.5})
        if name == "StochasticLinearClassifier":
            model.set_params(random_state=0)  # else each prediction draws anew
    elif name == "PoissonRegressor":
        y = np.round(np.exp(y / 4))
    elif name == "GammaRegressor":
        y = np.exp(y / 4)
    elif name.startswith("MultiTask"):
        y = np.column_stack([y, X[:, 0]])
    return model.fit(X, y), X, y


@pytest.mark.parametrize("name", sorted(LINEAR))
def test_each_linear_model_predicts_the_same_and_can_be_checked(name, tmp_path):
    model, X, y = fit_real(name)
    back = load(save(model, tmp_path / "m.certus"))
    assert set(vars(back)) == set(vars(model))
    assert back.get_params() == model.get_params()
    np.testing.assert_array_equal(back.predict(X), model.predict(X))
    assert back.certificate_.met == model.certificate_.met
    kept, own = back.certificate_.evidence, model.certificate_.evidence
    assert kept.to_dict() == own.to_dict()
    for name, found in () if own.witness is None else own.witness._asdict().items():
        np.testing.assert_array_equal(getattr(kept.witness, name), found)
    checked = certus.certify(back, X, y)
    assert checked.met == model.certificate_.met
    assert checked.value == pytest.approx(model.certificate_.value, abs=1e-12)


def test_a_table_model_comes_back(tmp_path):
    frame = pl.DataFrame(
        {
            "area": [50.0, 80.0, None, 120.0, 64.0, 91.0] * 5,
            "town": ["Bern", "Basel", "Bern", None, "Genf", "Basel"] * 5,
            "sold": [dt.date(2024, 1, d) for d in (1, 5, 9, 11, 20, 28)] * 5,
            "new": [True, False, True, True, False, False] * 5,
        }
    )
    price = np.arange(30.0)
    model = TablePipeline(estimator=linear_model.Ridge()).fit(frame, price)
    back = load(save(model, tmp_path / "m.certus"))
    np.testing.assert_array_equal(back.predict(frame), model.predict(frame))


def test_files_of_the_first_version_still_load():
    path = Path(__file__).parents[1] / "data" / "ridge-v1.certus"
    known = json.loads(path.with_suffix(".json").read_text())
    model = load(path)
    assert type(model) is linear_model.Ridge
    np.testing.assert_array_equal(model.feature_names_in_, ["area", "rooms", "age"])
    assert model.alpha == known["alpha"]
    np.testing.assert_allclose(model.coef_, known["coef"], rtol=1e-10)
    np.testing.assert_allclose(model.intercept_, known["intercept"], rtol=1e-10)
    assert model.certificate_.origin == "file"
    assert model.certificate_.met
    frame = pl.DataFrame(known["X"], schema=["area", "rooms", "age"], orient="row")
    y = np.array(known["y"])
    assert certus.certify(model, frame, y).met
    # Its terms are ignored: parameters state the problem.
    assert model.certificate_.evidence == Evidence("linear", LinearWitness())
    assert certus.certify(model.set_params(alpha=50.0), frame, y).met is False
    np.testing.assert_array_equal(
        persist.read_manifest(path)["split"]["sealed"], [3, 7]
    )


OLD_NAMES = Path(__file__).parents[1] / "data" / "old-names"
#: What files written under other names of parameters hold under the present ones.
RENAMED = {
    "RobustRegressor": {"threshold": 0.5},
    "DeepLinearNetwork": {"hidden_layer_sizes": (2,)},
    "MatrixFactorization": {
        "n_components": 2,
        "alpha": 0.5,
        "alpha_items": 0.25,
        "alpha_biases": 0.125,
    },
    "ImplicitALS": {"n_components": 2, "count_weight": 2.0, "alpha": 0.5},
    "MLPClassifier": {"alpha_operator_norm": 0.1},
    "NeuralClassifier": {"alpha_operator_norm": 0.1},
    "ConvNetClassifier": {"module": "lenet", "alpha_operator_norm": 0.1},
    "Distilled": {"estimator__alpha_operator_norm": 0.1},
    "ConsistentClassifier": {"estimator__alpha_operator_norm": 0.1, "alpha": 2.0},
    "SkipGram": {"max_iter": 3},
    "FastTextVectors": {"max_iter": 3},
    "DocumentVectors": {"max_iter": 3},
    "FastTextClassifier": {"max_iter": 3},
    "GloVe": {"weight_power": 0.5},
    "TextConvClassifier": {"n_filters": 3},
    "CovariancePenalty": {"alpha": 2.0},
    "Decorrelation": {"amount": 0.5},
    "GroupReduction": {"max_difference": 0.25},
    "GroupThresholds": {"max_difference": 0.25},
    "TablePipeline": {"estimator__alpha": 1.0},
}


def test_every_renamed_class_has_an_old_file():
    assert {path.stem for path in OLD_NAMES.iterdir()} == set(RENAMED) == set(renames)


@pytest.mark.parametrize("name", RENAMED)
def test_old_names_of_parameters_are_read_under_the_present_ones(name, tmp_path):
    model = load(OLD_NAMES / f"{name}.certus")
    assert type(model).__name__ == name
    found = model.get_params()
    assert {k: found[k] for k in RENAMED[name]} == RENAMED[name]
    rows = np.linspace(-1, 1, 6).reshape(3, 2)
    again = load(save(model, tmp_path / "new.certus"))
    if name in (
        "RobustRegressor",
        "Distilled",
        "ConsistentClassifier",
        "TablePipeline",
    ):
        np.testing.assert_array_equal(again.predict(rows), model.predict(rows))
    if hasattr(model, "certificate_"):
        assert model.certificate_.origin == "file"


def test_a_file_with_old_and_new_names_is_refused():
    params = {**renames["RobustRegressor"], "threshold": 1.0}
    with pytest.raises(ModelFileError, match="'delta'"):
        persist.encoding.build("RobustRegressor", params, {})


BEFORE = Path(__file__).parents[1] / "data" / "before_the_move"
#: Written when KMeans was in ``mixture``, SVC in ``kernel`` and networks in ``nets``.
WRITTEN = sorted(BEFORE.glob("*.certus"))
ASKED = dict.fromkeys(("MLPClassifier", "NeuralClassifier"), "predict_proba")
ASKED["PCA"] = "transform"


@pytest.mark.parametrize("path", WRITTEN, ids=lambda path: path.stem)
def test_a_file_from_before_the_packages_moved_loads(path):
    known = json.loads((BEFORE / "expected.json").read_text())
    X = np.array(known["X"])
    frame = pl.DataFrame({"a": X[:, 0], "b": np.where(X[:, 1] > 0, "u", "v")})
    other = {"MatrixFactorization": [[0, 0], [1, 2], [5, 4]], "TablePipeline": frame}
    model = load(path)
    assert type(model).__name__ == path.stem
    found = getattr(model, ASKED.get(path.stem, "predict"))(other.get(path.stem, X))
    np.testing.assert_allclose(found, known[path.stem], rtol=1e-6, atol=1e-9)
