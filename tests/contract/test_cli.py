"""The command line keeps its word: outputs, exit codes, files and JSON.

Commands run inside this process through ``certus.cli.main``, which returns the exit
code; a few run as a program of their own, where the terminal matters.
"""

import doctest
import json
import os
import re
import shlex
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import polars as pl
import pytest

import certus
from certus._core import cache
from certus.cli import fitting, main
from certus.cli.models import MODELS
from certus.registry import ESTIMATORS
from certus.selection import make_split, sealed_rows
from certus.tables import TablePipeline, load_example
from helpers.linear import LINEAR

LABELS = "ridge-classifier"
#: One model where the comparison is not the point.
RIDGE = ["--model", "ridge"]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Every test works in an empty folder, with short paths in its output."""
    monkeypatch.chdir(tmp_path)
    for name in ("COLUMNS", "FORCE_COLOR", "CERTUS_DEBUG", "TTY_COMPATIBLE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(fitting, "REPORT_SECONDS", 0.2)  # figures are tested elsewhere
    monkeypatch.setattr(
        cache._compilation, "told", True
    )  # a new clone compiles kernels
    return tmp_path


@pytest.fixture
def houses() -> Path:
    """A table with numbers, gaps, categories, dates and an identifier."""
    generator = np.random.default_rng(0)
    n = 120
    rooms = generator.integers(1, 8, n)
    town = generator.choice(["Bath", "York", "Hull"], n)
    price = 50_000 * rooms + 20_000 * (town == "Bath") + generator.normal(0, 9000, n)
    frame = pl.DataFrame(
        {
            "id": [f"h{i:04d}" for i in range(n)],
            "rooms": [None if i % 17 == 0 else int(r) for i, r in enumerate(rooms)],
            "town": town,
            "sold": pl.date_range(
                pl.date(2020, 1, 1),
                pl.date(2020, 1, 1) + pl.duration(days=n - 1),
                eager=True,
            ),
            "price": price.round(0),
            "dear": np.where(price > 250_000, "yes", "no"),
        }
    )
    frame.write_csv("houses.csv")
    return Path("houses.csv")


def lines(text: str) -> list[str]:
    """The lines of an output, each of which fits 80 columns."""
    found = text.splitlines()
    assert [line for line in found if len(line) > 80] == []
    return found


# ---- fit -----------------------------------------------------------------------


def test_fit_without_data_compares_on_the_example(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["fit"]) == 0
    shown = capsys.readouterr()
    text = "\n".join(lines(shown.out))
    # Nothing but progress, of which a slow machine shows a line every few seconds.
    assert all(re.match(r"certus: \d+ s", line) for line in shown.err.splitlines())
    assert '442 rows × 11 columns → regression on "progression" (25 … 346)' in text
    assert "model" in text and "RMSE (5 folds)" in text and "solved" in text
    for name in ("always the mean", "ridge", "lasso", "robust (Huber)", "kernel ridge"):
        assert name in text
    assert "k nearest neighbours" in text
    assert "gradient boosting" in text and "additive shapes" in text
    assert "88 rows set aside (sealed) for the final check" in text
    assert "On the 88 sealed rows, used only now:" in text
    assert re.search(r"· error +at least \d+ % of new rows like these are within", text)
    assert re.search(r"· RMSE +\d+\.\d on 88 sealed rows; ", text)
    assert re.search(r"· R² +0\.\d+ on 88 sealed rows; ", text)
    assert "wrote diabetes.certus, diabetes.html" in text
    assert "next: certus predict diabetes.certus new.csv" in text
    model = certus.load("diabetes.certus")
    assert isinstance(model, TablePipeline)
    # What was printed is the certificate, word for word, but for the times.
    printed = [line for line in text.splitlines() if line.startswith("  ✓ solved")]
    assert printed == [x for x in str(model.certificate_).splitlines() if "✓" in x]


def test_non_negative_coefficients_by_their_parameter() -> None:
    for name in ("linear", "ridge", "lasso", "elastic-net-cv"):
        args = ["--model", name, "--set", "positive=true", "--out", "m.certus"]
        assert main(["fit", *args, "--json"]) == 0
        model = certus.load("m.certus").estimator_
        assert model.positive is True and model.certificate_.met
        assert (model.coef_ >= 0).all() and (model.coef_ == 0).any()


NOT_OFFERED = sorted(row.name for row in ESTIMATORS.values() if row.why_not)


@pytest.mark.parametrize("name", NOT_OFFERED)
def test_missing_features_say_why(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    dashed = re.sub("(?<=[a-z])(?=[A-Z])", "-", name).lower()
    for spelt in (name, dashed):
        assert main(["fit", "--model", spelt]) == 2
        text = " ".join(capsys.readouterr().err.split())
        assert f"{name} is not offered here: it " in text and "Use " in text


def test_every_linear_estimator_is_offered_or_says_why_not() -> None:
    assert set(LINEAR) <= {row.name for row in MODELS.values()} | set(NOT_OFFERED)


def test_fitted_file_is_the_fit_on_all_rows_and_keeps_the_one_before() -> None:
    from certus.linear_model import Ridge

    assert main(["fit", *RIDGE, "--set", "alpha=3", "--out", "m.certus"]) == 0
    frame, target = load_example()
    split = certus.persist.read_manifest("m.certus")["split"]
    assert (split["seed"], split["fraction"], split["rows"]) == (0, 0.2, 442)
    assert split["groups"] is None and split["time"] is None
    known = np.setdiff1d(np.arange(442), sealed_rows(split))
    assert len(known) == 354
    found = certus.load("m.certus")
    for part, model in [(frame[known], found.before_), (frame, found)]:
        expected = TablePipeline(estimator=Ridge(alpha=3)).fit(
            part.drop(target), part[target]
        )
        np.testing.assert_allclose(
            model.estimator_.coef_, expected.estimator_.coef_, rtol=1e-10
        )
    assert found.target_name_ == target
    assert split["training"] == dict(found.before_.certificate_.fingerprint)


def test_measured_error_is_cross_validation(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Against scikit-learn's own cross-validation of the same pipeline."""
    from sklearn.model_selection import cross_val_score

    from certus.linear_model import Ridge

    assert main(["fit", *RIDGE, "--json", "--no-files", "--seed", "3"]) == 0
    report = json.loads(capsys.readouterr().out)
    frame, target = load_example()
    y = frame[target].to_numpy()
    scores = cross_val_score(
        TablePipeline(estimator=Ridge()),
        frame.drop(target).to_pandas(),
        y,
        cv=make_split(y, labels=False, random_state=3).folds,
        scoring="neg_root_mean_squared_error",
    )
    constant, model = report["comparison"]["candidates"]
    np.testing.assert_allclose(model["folds"], -scores, rtol=1e-9)
    assert model["mean"] == pytest.approx(-scores.mean())
    assert model["sd"] == pytest.approx(scores.std(ddof=1))
    assert model["strength"] == "measured"
    assert constant["mean"] > model["mean"]


def test_fit_says_what_it_did_with_the_table(
    houses: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    args = ["fit", str(houses), "--target", "price", "--drop", "dear", *RIDGE]
    assert main(args) == 0
    text = "\n".join(lines(capsys.readouterr().out))
    assert 'houses.csv  120 rows × 5 columns → regression on "price"' in text
    assert "1 category" in text and "1 date" in text and "gaps" in text
    assert '"id"' in text
    assert "certus certify houses.certus houses.csv" in text
    assert main(["certify", "houses.certus", "houses.csv"]) == 0


def test_fit_labels(houses: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code = main(["fit", str(houses), "--target", "dear", "--model", LABELS])
    text = "\n".join(lines(capsys.readouterr().out))
    assert code == 0
    assert 'binary classification on "dear" (' in text
    assert '"price" determines the target (by its order), so it is left out.' in text
    assert re.search(r"ridge-classifier +0\.\d+ ± 0\.\d+", text)
    assert "shares of the labels" in text and "log loss (5 folds)" in text
    assert re.search(r"· error +\d+.* %, and between .* % and .* % on new", text)


@pytest.mark.parametrize("kind", ["bool", "int", "three"])
def test_fit_other_labels(kind: str, capsys: pytest.CaptureFixture[str]) -> None:
    x = np.random.default_rng(1).normal(size=60)
    y = {"bool": x > 0, "int": (x > 0).astype(int), "three": np.digitize(x, [-1, 1])}
    pl.DataFrame({"x": x, "y": y[kind]}).write_csv("t.csv")
    assert main(["fit", "t.csv", "--target", "y", "--model", LABELS, "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["data"]["task"] == "classification"
    found = report["comparison"]
    assert found["task"] == ("multiclass" if kind == "three" else "binary")
    assert found["candidates"][1]["mean"] < found["candidates"][0]["mean"]


def test_rows_without_a_target_are_left_out_and_reported(
    capsys: pytest.CaptureFixture[str],
) -> None:
    x = np.arange(30.0)
    y = [None if i in (3, 7) else 2 * v for i, v in enumerate(x)]
    pl.DataFrame({"x": x, "y": y}).write_csv("t.csv")
    assert main(["fit", "t.csv", "--target", "y", *RIDGE]) == 0
    assert '! 2 rows without a value in "y" left out' in capsys.readouterr().out
    model = certus.load("t.certus")
    assert model.certificate_.n_samples == 28
    assert model.before_.certificate_.n_samples == 22  # and 6 sealed
    assert main(["certify", "t.certus", "t.csv"]) == 0
    assert "this is the data the model was fitted on" in capsys.readouterr().out


def test_fit_json_is_alone_on_stdout(capsys: pytest.CaptureFixture[str]) -> None:
    args = ["fit", "--json", *RIDGE, "--set", "solver=svd", "--out", "m.certus"]
    assert main(args) == 0
    shown = capsys.readouterr()
    report = json.loads(shown.out)
    assert shown.err == ""
    assert report["exit_code"] == 0
    assert report["certificate"]["met"] is True
    assert report["model"]["params"]["solver"] == "svd"
    assert report["files"] == {"model": "m.certus", "report": "m.html"}
    assert Path("m.html").is_file()


def test_no_files(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["fit", "--no-files", *RIDGE]) == 0
    assert list(folder.iterdir()) == []
    assert "wrote nothing" in capsys.readouterr().out


def test_missed_target_is_exit_code_3(capsys: pytest.CaptureFixture[str]) -> None:
    """One round is not enough for a wide table; the file is written all the same."""
    generator = np.random.default_rng(0)
    X, y = generator.normal(size=(100, 400)), generator.normal(size=100)
    pl.DataFrame(X).with_columns(y=pl.Series(y)).write_parquet("wide.parquet")
    args = ["--model", "lasso", "--set", "max_iter=1", "--set", "alpha=0.01"]
    assert main(["fit", "wide.parquet", "--target", "y", *args]) == 3
    text = "\n".join(lines(capsys.readouterr().out))
    assert "✗ not solved" in text and "! stopped at max_iter" in text
    # The target is noise.
    assert "! no model is better than always the mean" in text
    assert "not solved" in Path("wide.html").read_text(encoding="utf-8")
    assert main(["certify", "wide.certus", "wide.parquet"]) == 3


@pytest.mark.parametrize(
    ("strength", "met", "status", "code"),
    [
        ("proved", True, "solved", 0),
        ("proved", True, "time_limit", 0),
        ("measured", None, "solved", 0),
        ("proved", False, "tol_not_reached", 3),
        ("proved", False, "max_iter", 3),
        ("refused", None, "solved", 3),
        ("refused", None, "no_minimiser", 3),
        ("measured", None, "diverged", 3),
        ("proved", False, "refuted", 4),
        ("proved", False, "interrupted", 130),
        ("proved", True, "interrupted", 130),
    ],
)
def test_exit_code_of_a_certificate(
    strength: str, met: bool | None, status: str, code: int
) -> None:
    claim = certus.Claim("gap", certus.Strength(strength), met=met)
    found = certus.Certificate("M", {}, (claim,), "gap", certus.Status(status))
    assert fitting.exit_code(found) == code


def test_labels_are_compared_by_default(
    houses: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    args = ["fit", str(houses), "--target", "dear", "--drop", "price", "--json"]
    assert main(args) == 0
    report = json.loads(capsys.readouterr().out)
    found = report["comparison"]
    names = [row["name"] for row in found["candidates"]]
    assert names[0] == "shares of the labels" and "perceptron" in names
    assert found["chosen"] == report["model"]["name"] in names
    ours = [row for row in found["candidates"] if row["kind"] == "certus"]
    assert min(row["mean"] for row in ours) == next(
        row["mean"] for row in ours if row["name"] == found["chosen"]
    )
    args = ["fit", str(houses), "--target", "dear", "--drop", "price"]
    assert main([*args, "--model", "logistic"]) == 0
    capsys.readouterr()
    assert main(["predict", "houses.certus", str(houses), "--proba", "--json"]) == 0
    shares = json.loads(capsys.readouterr().out)["probabilities"]
    np.testing.assert_allclose(np.add(shares["no"], shares["yes"]), 1.0)


# ---- the page ------------------------------------------------------------------


class Page(HTMLParser):
    """Tags and whatever a page would load."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.loads: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        names = ("src", "href", "srcset", "data", "action", "xlink:href")
        self.loads += [str(value) for name, value in attrs if name in names]


def test_page_is_complete_and_loads_nothing() -> None:
    assert main(["fit", *RIDGE]) == 0
    text = Path("diabetes.html").read_text(encoding="utf-8")
    page = Page(text)
    assert [link for link in page.loads if not link.startswith("#")] == []
    assert "url(" not in text and "@import" not in text and "://" not in text
    assert "script" not in page.tags and "link" not in page.tags
    assert page.tags.count("svg") >= 1
    for part in (
        "✓",
        "duality gap of",
        "log_triglycerides",
        "sealed rows",
        "always the mean",
        "prefers-color-scheme: dark",
        'name="viewport"',
    ):
        assert part in text


@pytest.mark.parametrize("ending", ["html", "md", "json"])
def test_report_in_the_format_of_its_ending(ending: str) -> None:
    assert main(["fit", *RIDGE, "--report", f"r.{ending}"]) == 0
    text = Path(f"r.{ending}").read_text(encoding="utf-8")
    start = {"html": "<!DOCTYPE html>", "md": "# ", "json": "{"}
    assert text.startswith(start[ending])
    if ending == "json":
        found = json.loads(text)["comparison"]
        assert found["chosen"] == "ridge" and len(found["candidates"]) == 2
    assert main(["fit", "--report", "r.pdf"]) == 2


def test_page_escapes_names() -> None:
    evil = "<script>alert(1)</script>"
    x = np.arange(40.0)
    pl.DataFrame({evil: x, "y": x + np.sin(x)}).write_csv("t.csv")
    assert main(["fit", "t.csv", "--target", "y", *RIDGE]) == 0
    text = Path("t.html").read_text(encoding="utf-8")
    assert evil not in text and "&lt;script&gt;" in text
    assert "script" not in Page(text).tags


def test_a_page_by_somebody_else_is_not_replaced(
    capsys: pytest.CaptureFixture[str],
) -> None:
    Path("diabetes.html").write_text("<html>mine</html>", encoding="utf-8")
    assert main(["fit", *RIDGE]) == 1
    assert "was not written by certus" in capsys.readouterr().err
    assert Path("diabetes.html").read_text(encoding="utf-8") == "<html>mine</html>"
    assert not Path("diabetes.certus").exists()
    assert main(["fit", *RIDGE, "--report", "other.html"]) == 0
    assert main(["fit", *RIDGE, "--report", "other.html"]) == 0  # one of ours may be


# ---- predict -------------------------------------------------------------------


@pytest.fixture
def fitted(houses: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    args = ["fit", str(houses), "--target", "price", "--drop", "dear", *RIDGE]
    assert main(args) == 0
    capsys.readouterr()
    return Path("houses.certus")


def test_predict_equals_the_model(
    fitted: Path, houses: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["predict", str(fitted), str(houses)]) == 0
    shown = capsys.readouterr()
    found = pl.read_csv(shown.out.encode())
    expected = certus.load(fitted).predict(pl.read_csv(houses, try_parse_dates=True))
    assert found.columns == ["prediction"]
    np.testing.assert_allclose(found["prediction"], expected, rtol=1e-12)
    assert '"price" is the target; it was not used.' in shown.err
    assert '"dear"' in shown.err  # an extra column is ignored, and said
    lines(shown.err)


def test_predict_reordered_extra_and_unseen(
    fitted: Path, houses: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    frame = pl.read_csv(houses).drop("price", "dear")
    frame.write_csv("new.csv")
    assert main(["predict", str(fitted), "new.csv"]) == 0
    plain = capsys.readouterr()
    assert plain.err == ""
    frame.select(reversed(frame.columns)).with_columns(more=1).write_csv("new.csv")
    assert main(["predict", str(fitted), "new.csv"]) == 0
    shuffled = capsys.readouterr()
    assert shuffled.out == plain.out
    assert '"more"' in shuffled.err
    frame.with_columns(town=pl.lit("Rome")).write_csv("new.csv")
    assert main(["predict", str(fitted), "new.csv", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert len(report["predictions"]) == report["rows"] == 120
    assert any("Rome" in text for text in report["remarks"])


def test_predict_needs_its_columns(
    fitted: Path, houses: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pl.read_csv(houses).rename({"rooms": "room"}).write_csv("new.csv")
    assert main(["predict", str(fitted), "new.csv", "--out", "p.csv"]) == 1
    shown = " ".join(capsys.readouterr().err.split())
    assert 'no column "rooms"' in shown and 'Did you mean "room"?' in shown
    assert not Path("p.csv").exists()


def test_predict_to_a_file(
    fitted: Path, houses: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["predict", str(fitted), str(houses), "--out", "p.csv"]) == 0
    assert "wrote p.csv: 120 predictions" in capsys.readouterr().out
    assert pl.read_csv("p.csv").height == 120


def test_probabilities_need_a_model_that_has_them(
    fitted: Path, houses: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["predict", str(fitted), str(houses), "--proba"]) == 2
    assert "no probabilities" in capsys.readouterr().err


# ---- certify -------------------------------------------------------------------


def example_file() -> str:
    frame, _ = load_example()
    frame.write_parquet("example.parquet")
    return "example.parquet"


def test_certify_recomputes(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["fit", *RIDGE]) == 0
    capsys.readouterr()
    assert main(["certify", "diabetes.certus", example_file(), "--level", "full"]) == 0
    text = "\n".join(lines(capsys.readouterr().out))
    assert "✓ solved" in text and "checked in" in text and "stated" not in text
    assert "this is the data the model was fitted on" in text
    assert "442 rows" in text
    assert "the 88 sealed rows here by the model before its refit" in " ".join(
        text.split()
    )
    assert re.search(r"· error +at least \d+ % of new rows like these are within", text)


def test_certify_other_data_is_missed_not_refuted(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["fit", *RIDGE]) == 0
    load_example()[0].head(300).write_parquet("part.parquet")
    capsys.readouterr()
    assert main(["certify", "diabetes.certus", "part.parquet"]) == 3
    text = capsys.readouterr().out
    assert (
        "✗ not solved" in text
        and "! this is not the data the model was fitted on" in text
    )
    assert "a table of 442 rows; so nothing can be said" in " ".join(text.split())
    assert "sealed rows" not in text


def test_changed_coefficients_are_refuted(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["fit", *RIDGE]) == 0
    split = certus.persist.read_manifest("diabetes.certus")["split"]
    model = certus.load("diabetes.certus")
    model.estimator_.coef_ = model.estimator_.coef_ + 1.0
    certus.save(model, "forged.certus", split=split)
    capsys.readouterr()
    assert main(["certify", "forged.certus", example_file(), "--json"]) == 4
    report = json.loads(capsys.readouterr().out)
    assert report["certificate"]["status"] == "refuted"
    assert report["same_data"] is True and report["exit_code"] == 4


def test_a_bare_model_needs_its_target_named(
    capsys: pytest.CaptureFixture[str],
) -> None:
    from certus.linear_model import Ridge

    frame, target = load_example()
    frame = frame.drop("sex")
    frame.write_parquet("t.parquet")
    X = frame.drop(target)
    certus.save(Ridge().fit(X.to_numpy(), frame[target].to_numpy()), "bare.certus")
    assert main(["certify", "bare.certus", "t.parquet"]) == 2
    assert "--target" in capsys.readouterr().err
    assert main(["certify", "bare.certus", "t.parquet", "--target", target]) == 0
    capsys.readouterr()
    X.write_parquet("x.parquet")
    assert main(["predict", "bare.certus", "x.parquet"]) == 0


# ---- list, help, usage ---------------------------------------------------------


def test_list(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list"]) == 0
    text = "\n".join(lines(capsys.readouterr().out))
    assert "ridge-classifier" in text and "labels" in text
    assert main(["list", "--models", "--json"]) == 0
    names = [row["name"] for row in json.loads(capsys.readouterr().out)]
    assert names == list(MODELS)


def test_list_catalog(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list", "--catalog", "reg"]) == 0
    text = "\n".join(lines(capsys.readouterr().out))
    assert "REG-22" in text and "Lasso" in text
    assert main(["list", "--catalog", "REG", "--json"]) == 0
    items = json.loads(capsys.readouterr().out)
    ridge = next(item for item in items if "certus.linear_model.Ridge" in item["name"])
    assert ridge["exists"] is True
    assert main(["list", "--catalog", "all"]) == 0
    assert "Regression" in "\n".join(lines(capsys.readouterr().out))
    assert main(["list", "--catalog", "REGR"]) == 2
    assert 'Did you mean "REG"?' in capsys.readouterr().err


@pytest.mark.parametrize("command", ["", "fit", "predict", "certify", "list"])
def test_help_fits_and_names_the_options(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*command.split(), "--help"]) == 0
    shown = capsys.readouterr()
    assert shown.err == "" and "Usage: certus" in shown.out
    lines(shown.out)
    if command:
        assert "--json" in shown.out


def test_no_arguments_shows_the_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0
    assert "Commands:" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("args", "code", "text"),
    [
        (["fitt"], 2, "fit"),
        (["fit", "--modle", "ridge"], 2, "--model"),
        (["predict", "m.certus"], 2, "DATA"),
        (["fit", "--model", "rigde"], 2, 'Did you mean "ridge"?'),
        (["fit", "--set", "alpha=1"], 2, "name it with --model"),
        (["fit", *RIDGE, "--set", "alfa=1"], 2, 'Did you mean "alpha"?'),
        (["fit", *RIDGE, "--set", "alpha"], 2, "name=value"),
        (["fit", *RIDGE, "--set", "alpha=-1"], 1, "alpha must be a number"),
        (["fit", *RIDGE, "--set", "solver=quick"], 1, "solver must be one of"),
        (["fit", "--target", "Progressio"], 1, 'Did you mean "progression"?'),
        (["fit", "--drop", "bmi"], 1, 'has no column "bmi"'),
        (["fit", "--target", "ldl", "--drop", "ldl"], 2, "both --target and --drop"),
        (["fit", "--model", "logistic-cv", "--set", "x=1"], 2, "logistic-cv"),
        (["fit", "--model", LABELS, "--target", "ldl"], 1, "predicts labels"),
        (["fit", "--model", "ridge", "--target", "sex"], 1, "predicts numbers"),
        (["fit", "--seed", "-1"], 2, "seed"),
        (["certify", "m.certus", "d.csv", "--level", "half"], 2, "level"),
        (["list", "--models", "--catalog", "REG"], 2, "either"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
def test_errors_say_what_to_do(
    args: list[str], code: int, text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(args) == code
    shown = capsys.readouterr()
    found = lines(shown.err)
    assert shown.err.startswith("certus: ") and 1 <= len(found) <= 4
    assert text in " ".join(line.strip() for line in found)
    assert "Traceback" not in shown.err


# ---- as a program --------------------------------------------------------------


def program(*args: str, **env: str) -> subprocess.CompletedProcess[bytes]:
    code = (
        "import sys; from certus.cli import fitting, main; "
        "fitting.REPORT_SECONDS = 0.2; sys.exit(main())"
    )
    return subprocess.run(
        [sys.executable, "-c", code, *args],
        capture_output=True,
        env=os.environ | env,
        check=False,
    )


def test_the_package_runs_as_a_module() -> None:
    shown = subprocess.run(
        [sys.executable, "-m", "certus", "audit", "nothing.certus", "nothing.csv"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert shown.returncode == 1 and "nothing.certus does not exist" in shown.stderr


def test_help_loads_nothing_heavy() -> None:
    code = (
        "import sys; from certus.cli import main; main(['--help']); "
        "print(sorted({'numpy', 'polars', 'sklearn', 'numba'} & set(sys.modules)))"
    )
    run = [sys.executable, "-c", code]
    shown = subprocess.run(run, capture_output=True, text=True, check=True).stdout
    assert shown.splitlines()[-1] == "[]"


def test_plain_text_in_a_pipe_and_on_poor_terminals() -> None:
    """No colour codes; a terminal without ✓ gets a plain mark and no crash."""
    shown = program("fit", *RIDGE, PYTHONIOENCODING="ascii", LC_ALL="C")
    assert shown.returncode == 0, shown.stderr
    text = shown.stdout.decode("ascii")
    assert "\x1b" not in text
    assert "+ solved" in text and "442 rows x 11 columns" in text


def test_colour_only_repeats_what_the_words_say() -> None:
    """NO_COLOR holds; without its codes the coloured output is the plain one."""
    codes = re.compile(rb"\x1b\[([0-9;]*)m")
    times = re.compile(rb"[0-9.]+ m?s\b\s*")
    terminal = {"FORCE_COLOR": "1", "TERM": "xterm-256color"}
    colour = program("fit", *RIDGE, "--no-files", **terminal).stdout
    plain = program("fit", *RIDGE, "--no-files", NO_COLOR="1", **terminal).stdout
    used = {code for found in codes.findall(colour) for code in found.split(b";")}
    left = {code for found in codes.findall(plain) for code in found.split(b";")}
    assert b"32" in used and not left & {b"31", b"32", b"33"}
    # A longer time may break a line elsewhere.
    words = [times.sub(b"", codes.sub(b"", t)).split() for t in (colour, plain)]
    assert words[0] == words[1]


def test_exit_codes_are_distinct_and_documented() -> None:
    from certus import cli

    codes = (cli.DONE, cli.FAILED, cli.USAGE, cli.MISSED, cli.REFUTED, cli.INTERRUPTED)
    assert codes == (0, 1, 2, 3, 4, 130)
    assert fitting.MISSED == 3


# ---- the README ----------------------------------------------------------------

ROOT = Path(__file__).parents[2]


def test_the_readme_runs() -> None:
    """Its Python examples give what they show, one after the other."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    text = re.sub(r"^```.*$", "", text, flags=re.MULTILINE)
    examples = doctest.DocTestParser().get_doctest(text, {}, "README", None, 0)
    failed, tried = doctest.DocTestRunner().run(examples)
    assert tried >= 7 and failed == 0


def test_the_readme_links_to_what_exists() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    links = re.findall(r"\]\(([^)#]+)\)", text)
    missing = [x for x in links if "://" not in x and not (ROOT / x).exists()]
    assert links and missing == []


def commands_of(page: str) -> list[list[str]]:
    """The lines of a page's blocks that run the command."""
    text = (ROOT / page).read_text(encoding="utf-8")
    return [
        shlex.split(line, comments=True)[1:]
        for block in re.findall(r"^```sh\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
        for line in block.splitlines()
        if line.startswith("certus ")
    ]


@pytest.mark.parametrize("page", ["README.md", "docs/guide/tables.md"])
def test_the_commands_of_a_page_run(page: str, houses: Path) -> None:
    """Each line of its blocks, run as it stands on a table of that name."""
    commands, others = commands_of(page), commands_of("README.md")
    pl.read_csv(houses).drop("price").write_csv("new.csv")
    assert len(commands) >= (3 if page == "README.md" else 8)
    # Fits take seconds: those of another page, and the example's above, run once.
    known = [["fit"], *(each for each in others if page != "README.md")]
    for args in commands:
        if args[0] != "fit" or args not in known:
            assert main(args) == 0, args


def test_the_readme_is_short() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert text.count("\n") <= 150 and text.count("![") == 1
    assert "pip install certus" not in text, "the name on PyPI is somebody else's"
