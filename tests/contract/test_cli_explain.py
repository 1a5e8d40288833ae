"""``certus explain``: a model file and rows become a table and a page."""

from __future__ import annotations

import json
from pathlib import Path

import polars as pl
import pytest

import certus
from certus.cli import main
from certus.linear_model import LogisticRegression
from certus.tables import TablePipeline, load_example


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("explain")
    frame, target = load_example()
    labels = pl.Series(["high <b>" if v > 140 else "low" for v in frame[target]])
    X = frame.drop(target)
    model = TablePipeline(estimator=LogisticRegression()).fit(X, labels)
    certus.save(model, folder / "model.certus")
    X[:6].write_csv(folder / "rows.csv")
    X[50:90].write_csv(folder / "train.csv")
    return folder


def test_a_table_and_a_page_are_written(place: Path, capsys) -> None:
    model, rows = str(place / "model.certus"), str(place / "rows.csv")
    assert main(["explain", model, rows, "--background", str(place / "train.csv")]) == 0
    assert "add up" in " ".join(capsys.readouterr().out.split())
    table = pl.read_csv(place / "rows_contributions.csv")
    assert table.columns == ["row", "column", "value", "contribution"]
    assert table.height == 6 * 10 and "body_mass_index" in table["column"].to_list()
    page = (place / "rows_contributions.html").read_text(encoding="utf-8")
    assert "Which columns matter?" in page and "body_mass_index" in page
    assert "<script" not in page and "high <b>" not in page


def test_json_and_one_row(place: Path, capsys) -> None:
    model, rows = str(place / "model.certus"), str(place / "rows.csv")
    out, page = str(place / "a.csv"), str(place / "a.html")
    assert main(["explain", model, rows, "--out", out, "--page", page, "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert data["exit_code"] == 0 and data["table"] == out
    pl.read_csv(place / "rows.csv")[:1].write_csv(place / "one.csv")
    assert main(["explain", model, str(place / "one.csv")]) == 2
    assert "--background FILE" in capsys.readouterr().err
