"""``certus fit`` as a comparison: options reach it, and what it finds is said."""

import json
import re
from pathlib import Path

import numpy as np
import polars as pl
import pytest

import certus
from certus.cli import fitting, main
from certus.selection import sealed_rows

RIDGE = ["--model", "ridge"]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Every test works in an empty folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(fitting, "REPORT_SECONDS", 0.2)  # figures are tested elsewhere
    return tmp_path


@pytest.fixture
def visits() -> str:
    """Patients with several visits each, on days in order, and a leak."""
    rng = np.random.default_rng(0)
    n = 160
    dose = rng.normal(size=n)
    outcome = 2 * dose + rng.normal(size=n)
    pl.DataFrame(
        {
            "patient": [f"p{i % 20:02d}" for i in range(n)],
            "day": np.arange(n),
            "dose": dose,
            "weight": rng.normal(size=n),
            "bill": 7 * outcome + 1,
            "outcome": outcome,
        }
    ).write_csv("visits.csv")
    return "visits.csv"


def fit(capsys: pytest.CaptureFixture[str], *args: str) -> dict:
    assert main(["fit", *args, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_groups(visits: str, capsys: pytest.CaptureFixture[str]) -> None:
    report = fit(capsys, visits, "--target", "outcome", "--groups", "patient", *RIDGE)
    found = report["comparison"]
    assert found["split"]["groups"] == "patient"
    assert found["left_out"] == ["patient", "bill"]
    claim = found["risk"][3]
    assert claim["strength"] == "statistical" and "over groups" in claim["detail"]
    split = certus.persist.read_manifest("visits.certus")["split"]
    names = pl.read_csv(visits)["patient"].to_numpy()
    sealed = sealed_rows(split)
    assert not set(names[sealed]) & set(np.delete(names, sealed))
    assert main(["certify", "visits.certus", visits, "--json"]) == 0
    again = json.loads(capsys.readouterr().out)
    assert again["same_data"] and again["risk"][3] == claim
    assert again["sealed_rows"] == len(sealed)


def test_time(visits: str, capsys: pytest.CaptureFixture[str]) -> None:
    args = [visits, "--target", "outcome", "--time", "day", *RIDGE]
    found = fit(capsys, *args)["comparison"]
    assert found["split"]["time"] == "day"
    assert {claim["strength"] for claim in found["risk"]} == {"measured"}
    split = certus.persist.read_manifest("visits.certus")["split"]
    assert sealed_rows(split).tolist() == list(range(128, 160))
    assert main(["certify", "visits.certus", visits]) == 0
    # The strength stands at the right of the first line, within the sentence.
    said = capsys.readouterr().out.replace(" measured\n", "\n")
    assert "which are later in time" in " ".join(said.split())


def test_keep_and_leaks(visits: str, capsys: pytest.CaptureFixture[str]) -> None:
    args = ["fit", visits, "--target", "outcome", *RIDGE]
    assert main(args) == 0
    text = capsys.readouterr().out
    assert (
        '! "bill" determines the target (r = 1.00), so it is left out. Use --keep'
        in text
    )
    report = fit(capsys, *args[1:], "--keep", "bill")
    assert report["comparison"]["left_out"] == []
    capsys.readouterr()
    assert main([*args, "--keep", "bil"]) == 1
    assert 'Did you mean "bill"?' in " ".join(capsys.readouterr().err.split())


def test_with_a_foreign_candidate(
    visits: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("own.py").write_text(
        "from sklearn.dummy import DummyRegressor\n"
        "class Mine(DummyRegressor):\n    pass\n",
        encoding="utf-8",
    )
    args = [visits, "--target", "outcome", *RIDGE]
    more = ["--with", "own:Mine", "--with", "sklearn.tree:DecisionTreeRegressor"]
    found = fit(capsys, *args, *more)["comparison"]
    kinds = {row["name"]: row["kind"] for row in found["candidates"]}
    assert kinds["Mine"] == kinds["DecisionTreeRegressor"] == "foreign"
    assert found["chosen"] == "ridge"
    for place, text in (
        ("sklearn.tree", "module:Class"),
        ("sklearn.tree:Oak", "cannot be used"),
        ("nowhere:Oak", "cannot be used"),
        ("sklearn.svm:SVC", "predicts labels"),
    ):
        assert main(["fit", *args, "--with", place]) in (1, 2)
        assert text in " ".join(capsys.readouterr().err.split())


def test_the_first_line_says_that_another_library_wins(
    capsys: pytest.CaptureFixture[str],
) -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 2))
    y = 10.0 * ((X[:, 0] > 0) ^ (X[:, 1] > 0)) + 0.1 * rng.normal(size=300)
    pl.DataFrame({"a": X[:, 0], "b": X[:, 1], "y": y}).write_csv("xor.csv")
    place = "sklearn.ensemble:HistGradientBoostingRegressor"
    assert main(["fit", "xor.csv", "--target", "y", *RIDGE, "--with", place]) == 0
    text = capsys.readouterr().out
    first = " ".join(text.splitlines()[:2])
    assert re.match(r"! HistGradientBoostingRegressor is better than every", first)
    assert "the file holds" in " ".join(text.split()[:30])
    assert type(certus.load("xor.certus").estimator_).__name__ == "Ridge"
    page = Path("xor.html").read_text(encoding="utf-8")
    assert "HistGradientBoostingRegressor is better than every" in page


def test_the_same_seed_gives_the_same_file(
    visits: str, capsys: pytest.CaptureFixture[str]
) -> None:
    args = [visits, "--target", "outcome", "--seed", "5", "--no-files"]
    one, two = fit(capsys, *args), fit(capsys, *args)
    for found in (one, two):
        rows = found["comparison"]["candidates"]
        found["rows"] = [(r["name"], r["folds"], r["gap"]) for r in rows]
    assert one["rows"] == two["rows"]
    assert one["comparison"]["risk"] == two["comparison"]["risk"]
    other = fit(capsys, *args[:-3], "--seed", "6", "--no-files", *RIDGE)
    assert other["comparison"]["split"]["seed"] == 6


def test_everything_fits_eighty_columns(
    visits: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["fit", visits, "--target", "outcome", "--no-files"]) == 0
    assert max(map(len, capsys.readouterr().out.splitlines())) <= 80
