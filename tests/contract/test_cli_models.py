"""Every name of the command line fits a table, is saved, predicts and is certified."""

import json
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from sklearn.base import is_classifier
from sklearn.datasets import load_iris

import certus
from certus.cli import fitting, main
from certus.cli.models import MODELS, find_model
from certus.registry import Row, load_class
from certus.unwrapping import innermost

NAMES = list(MODELS)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Every test works in an empty folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(fitting, "REPORT_SECONDS", 0.2)  # figures are tested elsewhere
    return tmp_path


@pytest.fixture
def iris() -> Path:
    """Three labels, or a width in centimetres, from four columns of numbers."""
    found = load_iris()
    frame = pl.DataFrame(found.data, schema=["length", "breadth", "petal", "width"])
    names = [str(found.target_names[i]) for i in found.target]
    frame.with_columns(pl.Series("kind", names)).write_csv("iris.csv")
    return Path("iris.csv")


def target(model: Row) -> str:
    return "kind" if model.predicts == "labels" else "width"


@pytest.mark.parametrize("name", NAMES)
def test_fit_save_predict_certify(
    name: str, iris: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = find_model(name)
    fit = ["fit", str(iris), "--target", target(model), "--model", name, "--json"]
    if name in ("lasso", "elastic-net", "quantile"):
        fit += ["--set", "alpha=0.01"]  # their defaults leave no column in
    assert main(fit) == 0
    assert Path("iris.html").is_file()
    report = json.loads(capsys.readouterr().out)
    assert report["model"]["name"] == name and report["model"]["class"] == model.name
    constant, own = report["comparison"]["candidates"]
    assert own["mean"] < constant["mean"], "worse than a constant"

    loaded = certus.load("iris.certus")
    inner = innermost(loaded.estimator_)  # without what gives it probabilities
    assert type(inner) is load_class(model)
    assert main(["predict", "iris.certus", str(iris), "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)["predictions"]
    frame = pl.read_csv(iris).drop(target(model))
    np.testing.assert_array_equal(shown, loaded.predict(frame))

    code = main(["certify", "iris.certus", str(iris), "--json"])
    again = json.loads(capsys.readouterr().out)
    # Where nothing is promised, as of networks and mistakes: exit code 3.
    undecided = again["certificate"]["met"] is None
    assert code == (3 if undecided else 0)
    assert again["same_data"]
    stated = report["certificate"]
    assert again["certificate"]["primary"] == stated["primary"]
    ended = stated["status"] == "max_iter" and undecided  # how the fit ended
    assert ended or again["certificate"]["status"] == stated["status"]


@pytest.mark.parametrize("name", [n for n in MODELS if MODELS[n].predicts == "numbers"])
def test_numbers_on_the_bundled_example(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["fit", "--model", name, "--no-files"]) == 0
    assert max(map(len, capsys.readouterr().out.splitlines())) <= 80


def test_the_task_of_a_name_is_that_of_its_class() -> None:
    for model in MODELS.values():
        labels = is_classifier(load_class(model)())
        assert labels == (model.predicts == "labels"), model
        assert (model.line and model.line[0].islower()) or model.line[0] == "±"


def test_class_names_are_accepted() -> None:
    assert find_model("SVC").command == "svc"
    assert find_model("LinearSVC").command == "svm"
    assert find_model("KNeighborsClassifier").command == "knn-classifier"
    assert find_model("kernel_ridge").command == "kernel-ridge"


def test_settings_reach_every_family(
    iris: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, setting, value in (
        ("svc", "C", 3.5),
        ("knn-classifier", "n_neighbors", 7),
        ("kernel-logistic", "kernel", "linear"),
        ("svm", "loss", "hinge"),
    ):
        args = ["fit", str(iris), "--target", "kind", "--model", name, "--json"]
        assert main([*args, "--set", f"{setting}={value}"]) == 0
        params = json.loads(capsys.readouterr().out)["model"]["params"]
        assert params[setting] == value
        assert main([*args, "--set", f"{setting}x={value}"]) == 2
        hint = " ".join(capsys.readouterr().err.split())
        assert f'Did you mean "{setting}"?' in hint
