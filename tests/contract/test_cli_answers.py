"""``certus predict`` and ``certus watch``: answers that can be used, in words."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

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
