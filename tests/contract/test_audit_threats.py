"""The section of an audit about changed rows: what it says, draws and refuses."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import polars as pl
import pytest
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LinearRegression
from sklearn.neighbors import KNeighborsClassifier

import certus
from certus.certificate import Strength
from certus.cli import main
from certus.linear_model import LogisticRegression
from certus.report import Audit
from certus.robustness import ThreatModel, robust_accuracy
from certus.tables import TablePipeline


def table(n: int, seed: int = 0) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 2, n)
    x = rng.normal(size=(n, 2)) + 2.0 * y[:, None]
    return pd.DataFrame(
        {"a": x[:, 0], "b": x[:, 1], "kind": np.array(["no", "yes"])[y]}
    )


THREAT = ThreatModel("linf", 0.5)


@pytest.fixture(scope="module")
def model():
    rows = table(300)
    return LogisticRegression().fit(rows[["a", "b"]], rows["kind"])


@pytest.fixture(scope="module")
def report(model) -> Audit:
    rows, new = table(300), table(200, 1)
    return certus.audit(
        model,
        rows[["a", "b"]],
        rows["kind"],
        X_test=new[["a", "b"]],
        y_test=new["kind"],
        threat=THREAT,
        max_time=3.0,
        random_state=0,
    )


def test_the_claims_are_those_of_robust_accuracy(report, model) -> None:
    new = table(200, 1)
    found = robust_accuracy(model, new[["a", "b"]], new["kind"], THREAT, random_state=0)
    lists = (report.proved, report.measured, report.statistical)
    by = {(c.name, c.strength): c for part in lists for c in part}
    assert by["certified_accuracy", Strength.PROVED].value == found.lower
    assert by["attacked_accuracy", Strength.MEASURED].value == found.upper
    claim = by["robust_accuracy", Strength.STATISTICAL]
    assert (claim.value, claim.delta) == (found.curve[-1].low, 0.05)
    figure = report.figure("threat")
    assert figure.data["upper"] == [point.upper for point in found.curve]
    assert figure.data["radius"][-1] == 0.5 and figure.data["norm"] == "l∞"
    assert found.verdict[1:] in figure.answer
    assert "200 test rows" in figure.caption


def test_the_section_is_in_every_form(report) -> None:
    page, text = report.to_html(), report.to_markdown()
    for said in (page, text):
        assert "What if rows change a little?" in said and "left by attacks" in said
    again = Audit.from_dict(json.loads(report.to_json()))
    assert again.to_html() == page
    assert page.count('id="threat-wide-t"') == page.count('id="threat-narrow-t"') == 1


def test_without_new_rows_there_is_no_claim_about_them(model) -> None:
    rows = table(300)
    found = certus.audit(
        model,
        rows[["a", "b"]],
        rows["kind"],
        threat=THREAT,
        max_time=20.0,
        random_state=0,
    )
    refused = [c for c in found.statistical if c.name == "robust_accuracy"]
    assert refused[0].strength is Strength.REFUSED
    assert any(c.name == "certified_accuracy" for c in found.proved)


def test_models_without_a_formula_are_attacked_and_not_proved() -> None:
    rows, new = table(100), table(40, 1)
    X, y = rows[["a", "b"]].to_numpy(), rows["kind"].to_numpy()
    model = KNeighborsClassifier().fit(X, y)
    unseen = new[["a", "b"]].to_numpy(), new["kind"].to_numpy()
    found = certus.audit(
        model,
        X,
        y,
        X_test=unseen[0],
        y_test=unseen[1],
        threat=THREAT,
        max_time=20.0,
        random_state=0,
    )
    refused = [c for c in found.proved if c.name == "certified_accuracy"]
    assert refused[0].strength is Strength.REFUSED
    data = found.figure("threat").data
    assert data["refused"] and data["upper"][-1] < data["upper"][0]
    assert "proved" in found.to_markdown()


def test_an_invalid_threat_is_reported_before_the_work(model) -> None:
    rows = table(60)
    X, y = rows[["a", "b"]], rows["kind"]
    with pytest.raises(TypeError, match="ThreatModel"):
        certus.audit(model, X, y, threat="linf:0.1")
    numbers = LinearRegression().fit(X, X["a"])
    with pytest.raises(ValueError, match="needs a classifier"):
        certus.audit(numbers, X, X["a"], threat=THREAT)
    # Rows outside the box: the list of claims says why the section is missing.
    outside = ThreatModel("linf", 0.1, 0.0, 1.0)
    found = certus.audit(model, X, y, threat=outside, max_time=1.0, random_state=0)
    (claim,) = (c for c in found.statistical if c.name == "robust_accuracy")
    assert claim.strength is Strength.REFUSED and "outside the box" in claim.detail
    assert claim.detail in found.to_markdown()
    assert all(figure.kind != "threat" for figure in found.figures)


def test_the_command_line(tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    table(200).to_csv("rows.csv", index=False)
    fitted = ["fit", "rows.csv", "--target", "kind", "--model", "logistic"]
    assert main(fitted) == 0
    capsys.readouterr()
    asked = ["audit", "rows.certus", "rows.csv"]
    assert main([*asked, "--threat", "l2:0.5", "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    claims = {c["name"]: c for c in (*data["proved"], *data["measured"])}
    # A linear model behind columns of numbers: both bounds are one.
    lower, upper = (claims[f"{n}_accuracy"]["value"] for n in ("certified", "attacked"))
    assert 0.3 < lower == upper < 1
    assert main([*asked, "--threat", "l2:0.5", "--report", "a.html"]) == 0
    out = capsys.readouterr().out
    assert "What if rows change a little?" in out and "exactly" in out
    for text in ("linf", "l2:-1", "max:1", "l2:wide"):
        assert main([*asked, "--threat", text]) == 2
        said = capsys.readouterr().err.replace("\n        ", " ")
        assert "as in linf:0.1" in said and "convert" not in said


def mixed(n: int, seed: int = 0) -> pd.DataFrame:
    """Numbers, a category and a date, with gaps in one of the numbers."""
    rng = np.random.default_rng(seed)
    rows = table(n, seed)
    rows["town"] = rng.choice(["Bern", "Oslo", "Rome"], n)
    rows["since"] = pd.Timestamp("2020-01-01") + pd.to_timedelta(np.arange(n), "D")
    rows.loc[rng.random(n) < 0.1, "b"] = np.nan
    return rows


@pytest.mark.parametrize(("norm", "dual"), [("linf", 1.0), ("l2", 2.0), ("l1", np.inf)])
@pytest.mark.parametrize("polars", [False, True])
def test_numbers_change_and_all_else_stays(norm, dual, polars) -> None:
    """A linear model of a table: each margin against the dual norm of two columns."""
    rows, new = mixed(400), mixed(200, 1)
    frames = [
        pl.from_pandas(f.drop(columns="kind")) if polars else f.drop(columns="kind")
        for f in (rows, new)
    ]
    model = TablePipeline(estimator=LogisticRegression()).fit(frames[0], rows["kind"])
    options = {"threat": ThreatModel(norm, 0.5), "max_time": 3.0}
    unseen = {"X_test": frames[1], "y_test": new["kind"].to_numpy()}
    found = certus.audit(
        model, frames[0], rows["kind"].to_numpy(), **unseen, **options, random_state=0
    ).figure("threat")
    whole = ~new["b"].isna().to_numpy()
    z = model.decision_function(frames[1])[whole]
    # In units of the table: what the score gains when a number rises by one.
    step = []
    for name in ("a", "b"):
        moved = new.drop(columns="kind")
        moved[name] += 1.0
        moved = pl.from_pandas(moved) if polars else moved
        step.append(np.median(model.decision_function(moved)[whole] - z))
    sign = np.where(new["kind"][whole] == "yes", 1.0, -1.0)
    kept = sign * z > 0.5 * np.linalg.norm(step, dual)
    assert found.data["upper"][-1] == found.data["lower"][-1] == kept.mean()
    assert (
        f"{whole.sum()} of 200 test rows; changed columns: a, b; the" in found.caption
    )
    assert f"{(~whole).sum()} rows with missing values are left out" in found.caption


def test_forests_of_tables_are_attacked_in_their_numbers() -> None:
    rows, new = mixed(200), mixed(60, 1)
    X, X_new = (frame.drop(columns="kind") for frame in (rows, new))
    forest = RandomForestClassifier(5, random_state=0)
    model = TablePipeline(estimator=forest).fit(X, rows["kind"])
    unseen = {"X_test": X_new, "y_test": new["kind"]}
    found = certus.audit(
        model,
        X,
        rows["kind"],
        **unseen,
        threat=ThreatModel("linf", 1.0),
        max_time=20.0,
        random_state=0,
    )
    data = found.figure("threat").data
    assert data["refused"] and data["upper"][-1] < data["upper"][0]


def test_tables_without_a_number_to_change_are_refused_with_a_message() -> None:
    rows = mixed(100)
    for columns, why in (
        (["town"], "no column holds numbers"),
        (["b"], "every row has a missing value"),
    ):
        X = rows[columns].copy()
        model = TablePipeline(estimator=LogisticRegression()).fit(X, rows["kind"])
        if columns == ["b"]:
            X["b"] = np.nan
        found = certus.audit(
            model, X, rows["kind"], threat=THREAT, max_time=1.0, random_state=0
        )
        (claim,) = (c for c in found.statistical if c.name == "robust_accuracy")
        assert claim.strength is Strength.REFUSED and why in claim.detail


def test_the_command_line_changes_the_numbers_of_a_table(
    tmp_path, monkeypatch, capsys
) -> None:
    monkeypatch.chdir(tmp_path)
    mixed(200).to_csv("rows.csv", index=False)
    fitted = ["fit", "rows.csv", "--target", "kind", "--model", "logistic"]
    assert main(fitted) == 0
    capsys.readouterr()
    asked = ["audit", "rows.certus", "rows.csv"]
    assert main([*asked, "--threat", "l2:0.5"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "Accuracy under any l2 change up to 0.5: exactly" in said
    assert main([*asked, "--sensitive", "kind"]) == 2
    assert "is the target" in capsys.readouterr().err


def test_the_command_line_says_that_amounts_have_no_labels(
    tmp_path, monkeypatch, capsys
) -> None:
    monkeypatch.chdir(tmp_path)
    table(80)[["a", "b"]].to_csv("rows.csv", index=False)
    assert main(["fit", "rows.csv", "--target", "b", "--model", "ridge"]) == 0
    capsys.readouterr()
    assert main(["audit", "rows.certus", "rows.csv", "--threat", "l2:1"]) == 2
    assert "needs a classifier" in capsys.readouterr().err
