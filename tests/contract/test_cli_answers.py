"""``certus predict`` and ``certus watch``: answers that can be used, in words."""

from __future__ import annotations

import csv
import io
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from certus.cli import main


def _table(n: int, seed: int) -> pl.DataFrame:
    """Flats: formatted numbers, a rare "no", a category, and a target in dollars."""
    rng = np.random.default_rng(seed)
    size = rng.integers(30, 150, n)
    lift = rng.random(n) < 0.97
    price = 1000 * size + 20_000 * lift + rng.normal(0, 5000, n)
    return pl.DataFrame(
        {
            "flat": [f"f{i}" for i in range(n)],
            "size": [f"{s} m²" for s in size],
            "lift": np.where(lift, "True", "False"),
            "town": rng.choice(["Bath", "York"], n),
            "price": [f"${p:,.2f}" for p in price],
            "dear": np.where(price > 105_000, "Yes", "No"),
        }
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A fitted model of prices, one of labels, and new rows."""
    place = tmp_path_factory.mktemp("answers")
    table = _table(400, 0)
    table.drop("dear").write_csv(place / "flats.csv")
    table.drop("price").write_csv(place / "dear.csv")
    _table(60, 1).drop("dear").write_csv(place / "new.csv")
    rest = ["--no-refit", "--report", str(place / "r.json")]
    for name, target, model in (("flats", "price", "Ridge"), ("dear", "dear", "Log")):
        model = "LogisticRegression" if model == "Log" else model
        args = ["fit", str(place / f"{name}.csv"), "--target", target, "--drop", "flat"]
        out = ["--out", str(place / f"{name}.certus")]
        assert main([*args, "--model", model, *out, *rest]) == 0
    return place


def _predict(folder: Path, *args: str) -> int:
    return main(["predict", str(folder / "flats.certus"), *args])


def test_intervals_keys_and_unseen_rows(folder, capsys):
    new = folder / "three.csv"
    table = _table(3, 2).drop("dear", "price")
    table = table.with_columns(pl.Series("size", ["50 m²", "900 m²", "60 m²"]))
    table = table.with_columns(pl.Series("town", ["Bath", "York", "Rome"]))
    table.write_csv(new)
    options = ["--key", "flat", "--interval", "0.9", "--unseen"]
    assert _predict(folder, str(new), *options) == 0
    said = capsys.readouterr()
    rows = list(csv.DictReader(io.StringIO(said.out)))
    assert [row["flat"] for row in rows] == ["f0", "f1", "f2"]
    for row in rows:
        assert float(row["lower"]) < float(row["prediction"]) < float(row["upper"])
    assert [row["unseen"] for row in rows] == [
        "",
        "size = 900 is above 149",
        'town = "Rome" is new',
    ]
    # The target is not in the file, so nothing is said about its unit.
    assert "price" not in said.err


def test_labels_are_spelt_as_in_the_file(folder, capsys):
    model = str(folder / "dear.certus")
    args = ["predict", model, str(folder / "new.csv"), "--proba", "--interval", "0.8"]
    assert main(args) == 0
    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert {row["prediction"] for row in rows} == {"Yes", "No"}
    assert {row["set"] for row in rows} <= {"Yes", "No", "No | Yes", ""}
    sums = [
        float(row["probability of No"]) + float(row["probability of Yes"])
        for row in rows
    ]
    assert np.allclose(sums, 1)


def test_a_cell_that_is_not_a_number_is_named(folder, capsys):
    new = folder / "odd.csv"
    table = _table(3, 2).with_columns(pl.Series("size", ["50 m²", "large", "60 m²"]))
    table.write_csv(new)
    assert _predict(folder, str(new)) == 1
    assert '("large")' in capsys.readouterr().err


def test_other_units_are_refused(folder, capsys):
    new = folder / "feet.csv"
    table = _table(3, 2).with_columns(pl.Series("size", ["50 ft²", "70 ft²", "60 ft²"]))
    table.write_csv(new)
    assert _predict(folder, str(new)) == 1
    said = " ".join(capsys.readouterr().err.split())
    assert 'was in "m2" when the model was fitted and is in "ft2" now' in said


def test_watch_with_and_without_the_truth(folder, capsys):
    model, new = str(folder / "flats.certus"), folder / "new.csv"
    assert main(["watch", model, str(new)]) == 0
    assert "coverage" in capsys.readouterr().out
    blind = folder / "blind.csv"
    pl.read_csv(new, infer_schema=False).drop("price").write_csv(blind)
    assert main(["watch", model, str(blind)]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "no column moved" in said and "true targets of these rows" in said


def test_watch_sees_a_rare_value_of_two(folder, capsys):
    """3 % of the flats have no lift; when half of them have none, that is a move."""
    new = folder / "stairs.csv"
    table = _table(300, 3).drop("dear", "price")
    half = np.where(np.arange(300) % 2 == 0, "True", "False")
    table.with_columns(pl.Series("lift", half)).write_csv(new)
    assert main(["watch", str(folder / "flats.certus"), str(new), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    moved = [c for c in found["columns"] if c["low"] > 0 or c["high"] < 0]
    assert [column["name"] for column in moved] == ["lift"]
    assert moved[0]["what"] == "lift = false" and moved[0]["before"] < 0.1


def test_several_tables_are_refused_with_what_to_do(folder, capsys):
    tables = [str(folder / "flats.csv"), str(folder / "new.csv")]
    assert main(["fit", *tables, "--target", "price"]) == 2
    told = " ".join(capsys.readouterr().err.split())
    assert "certus fit reads one table" in told and "new.csv was given" in told
    assert "one below the other" in told and "join them by a key" in told
    assert main(["predict", str(folder / "flats.certus"), *tables]) == 2
    assert "Call it once for each table" in " ".join(capsys.readouterr().err.split())


def test_errors_are_in_the_unit_of_the_target(folder, capsys):
    data = str(folder / "flats.csv")
    rest = ["--drop", "flat", "--model", "Ridge", "--no-files", "--no-refit"]
    assert main(["fit", data, "--target", "price", *rest]) == 0
    told = " ".join(capsys.readouterr().out.split())
    assert "RMSE in $" in told and "(errors in $)" in told
    page = json.loads((folder / "r.json").read_text())
    assert "$" not in page["title"]  # the last report is about labels


def test_empty_sets_are_explained(folder, capsys):
    rows = str(folder / "new.csv")
    args = ["predict", str(folder / "dear.certus"), rows, "--interval", "0.3"]
    assert main(args) == 0
    told = capsys.readouterr()
    table = list(csv.DictReader(io.StringIO(told.out)))
    empty = sum(row["set"] == "" for row in table)
    assert empty > 1
    said = " ".join(told.err.replace("certus:", "").split())
    assert f"{empty} sets are empty" in said and "count as misses" in said


# ---- options of certus fit -----------------------------------------------------------


def _fit(folder: Path, data: str, target: str, *args: str) -> list[str]:
    """A quick fit of one model, without files."""
    model = "Ridge" if target == "price" else "LogisticRegression"
    rest = ["--drop", "flat", "--model", model, "--no-files"]
    return ["fit", str(folder / data), "--target", target, *rest, *args]


def _found(folder: Path, capsys: Any, data: str, target: str, *args: str) -> Any:
    assert main([*_fit(folder, data, target, "--no-refit", *args), "--json"]) in (0, 3)
    return json.loads(capsys.readouterr().out)["comparison"]


def test_the_metric_is_the_one_that_is_named(folder, capsys):
    found = _found(folder, capsys, "flats.csv", "price", "--metric", "mae")
    assert found["metric"] == "mae" and found["risk"][0]["name"] == "mae"
    assert main(_fit(folder, "flats.csv", "price", "--metric", "r2", "--no-refit")) == 0
    told = " ".join(capsys.readouterr().out.split())
    # The error in units of the target stays on the screen, whatever the metric.
    assert "R² (5 folds)" in told
    assert re.search(r"· RMSE [\d,.]+ on \d+ sealed rows", told)
    assert main(_fit(folder, "flats.csv", "price", "--metric", "aucc")) == 1
    assert "metric must be one of" in capsys.readouterr().err


def test_the_positive_label_is_the_one_that_is_named(folder, capsys):
    for label in ("Yes", "no"):
        found = _found(
            *(folder, capsys, "dear.csv", "dear", "--positive", label),
            *("--metric", "f_beta@2"),
        )
        said = next(claim for claim in found["risk"] if claim["name"] == "recall_rate")
        assert f"positive label: {label.capitalize()};" in said["objective"]
    assert main(_fit(folder, "dear.csv", "dear", "--positive", "perhaps")) == 1
    told = " ".join(capsys.readouterr().err.split())
    assert "positive must be one of the labels" in told and "'perhaps'" in told


def test_bounds_give_a_guarantee_or_are_refused(folder, capsys):
    args = folder, capsys, "flats.csv", "price", "--bounds", "0,300000"
    found = _found(*args)
    strengths = {claim["name"]: claim["strength"] for claim in found["risk"]}
    assert strengths["rmse"] == strengths["mae"] == "statistical"
    for text, code, said in (
        ("1,0", 2, "--bounds must be LOW,HIGH with LOW below HIGH, got 1,0."),
        ("1", 2, "--bounds must be LOW,HIGH, got 1."),
        ("low,high", 2, "--bounds must be LOW,HIGH, got low,high."),
        ("0,inf", 2, "--bounds must be LOW,HIGH, two finite numbers, got 0,inf."),
        ("0,nan", 2, "--bounds must be LOW,HIGH, two finite numbers, got 0,nan."),
        ("0,60000", 1, "bounds must hold every target, but the targets go from"),
    ):
        assert main(_fit(folder, "flats.csv", "price", "--bounds", text)) == code
        assert said in " ".join(capsys.readouterr().err.split())
    assert main(_fit(folder, "dear.csv", "dear", "--bounds", "0,1")) == 1
    assert "but this one holds labels" in " ".join(capsys.readouterr().err.split())


def test_costs_choose_the_threshold_or_are_refused(folder, capsys):
    found = _found(folder, capsys, "dear.csv", "dear", "--cost", "fp=1, fn=20")
    names = [claim["name"] for claim in found["risk"]]
    assert "decision_cost" in names and "cost_saved" in names
    for text in ("fp=1", "fp=1,fn=many", "20", "fp=1,fn=2,tp=3"):
        assert main(_fit(folder, "dear.csv", "dear", "--cost", text)) == 2
        told = " ".join(capsys.readouterr().err.split())
        assert f"--cost must be fp=NUMBER,fn=NUMBER, got {text}." in told
    assert main(_fit(folder, "dear.csv", "dear", "--cost", "fp=-1,fn=2")) == 1
    assert "cost of fp must be" in capsys.readouterr().err
    assert main(_fit(folder, "flats.csv", "price", "--cost", "fp=1,fn=2")) == 1
    assert "need a target with two labels" in capsys.readouterr().err


def test_a_recall_is_kept_or_refused_with_a_reason(folder, capsys):
    found = _found(folder, capsys, "dear.csv", "dear", "--recall", "0.6")
    kept = next(claim for claim in found["risk"] if claim["name"] == "kept_recall")
    assert kept["strength"] in ("statistical", "refused")
    if kept["strength"] == "refused":
        assert "are needed" in kept["detail"]
    assert main(_fit(folder, "dear.csv", "dear", "--recall", "0.6", "--refit")) == 1
    said = "recall and refit cannot be used together"
    assert said in " ".join(capsys.readouterr().err.split())
    assert main(_fit(folder, "dear.csv", "dear", "--recall", "1")) == 1
    assert "recall must be below 1" in " ".join(capsys.readouterr().err.split())


def test_a_refit_is_the_default_of_small_tables(folder, capsys):
    assert main(_fit(folder, "flats.csv", "price")) == 0
    told = " ".join(capsys.readouterr().out.split())
    assert "fitted again to all 400 rows for the file" in told
    assert main([*_fit(folder, "flats.csv", "price", "--refit"), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["certificate"]["n_samples"] == 400
    found = _found(folder, capsys, "flats.csv", "price")
    assert "refitted" not in found or not found["refitted"]
