"""``certus predict``: intervals, sets, keys, spelling, units and rows that are new."""

from __future__ import annotations

import json

import numpy as np
import polars as pl
import pytest

from certus.cli import main, screen


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Two fitted models: amounts with a unit, and labels spelt True and False."""
    place = tmp_path_factory.mktemp("predict")
    rng = np.random.default_rng(0)
    size = rng.integers(30, 200, 200)
    price = 2000.0 * size + rng.normal(0, 9000, 200)
    lines = [
        f"f{i},{s} m²,{town},${p:.2f}"
        for i, (s, p, town) in enumerate(
            zip(size, price, rng.choice(["Bath", "York"], 200))
        )
    ]
    (place / "flats.csv").write_text(
        "flat,size,town,price\n"
        + "\n".join(f'"{x}"'.replace(",", '","') for x in lines)
    )
    x = rng.normal(size=(200, 2))
    ok = np.where(x.sum(axis=1) + 0.5 * rng.normal(size=200) > 0, "True", "FALSE")
    rows = [f"r{i},{a:.3f},{b:.3f},{t}" for i, ((a, b), t) in enumerate(zip(x, ok))]
    (place / "checks.csv").write_text("row,a,b,ok\n" + "\n".join(rows))
    for name, target, model in (
        ("flats", "price", "ridge"),
        ("checks", "ok", "logistic"),
    ):
        files = ["--out", f"{place / name}.certus", "--report", f"{place / name}.json"]
        data = ["fit", f"{place / name}.csv", "--target", target, "--model", model]
        done = main([*data, *files])
        assert done == 0
    return place


def answer(capsys, *args):
    capsys.readouterr()
    code = main(["predict", *map(str, args)])
    out, err = capsys.readouterr()
    return code, out, err


def test_intervals_keys_and_rows_that_are_new(folder, capsys):
    new = folder / "new.csv"
    new.write_text('flat,size,town\nA,"80 m²",Bath\nB,"900 m²",Rome\n')
    args = (
        folder / "flats.certus",
        new,
        "--interval",
        0.9,
        "--key",
        "flat",
        "--unseen",
    )
    code, out, err = answer(capsys, *args)
    table = pl.read_csv(out.encode())
    assert code == 0
    assert table.columns == ["flat", "prediction", "lower", "upper", "unseen"]
    assert table["flat"].to_list() == ["A", "B"]
    assert (table["lower"] < table["prediction"]).all()
    assert (table["prediction"] < table["upper"]).all()
    assert table["unseen"][0] in (None, "")
    assert "size = 900 is above" in table["unseen"][1]
    assert 'town = "Rome" is new' in table["unseen"][1]
    # 200 rows in 5 folds, CV+ at 0.05: 1 − 2·0.05 − 1.6/41 (Barber et al. 2021).
    assert "at least 86 % of intervals contain the truth" in " ".join(err.split())


def test_another_unit_is_refused_and_a_lost_one_is_reported(folder, capsys):
    new = folder / "new.csv"
    new.write_text('flat,size,town\nA,"80 sqft",Bath\nB,"90 sqft",York\n')
    code, _, err = answer(capsys, folder / "flats.certus", new)
    assert code == 1
    assert 'was in "m2" when the model was fitted and is in "sqft"' in " ".join(
        err.split()
    )
    new.write_text("flat,size,town\nA,80,Bath\n")
    code, out, err = answer(capsys, folder / "flats.certus", new)
    assert code == 0 and len(out.splitlines()) == 2
    assert 'was written with "m2" in training' in " ".join(err.split())


def test_labels_are_spelt_as_in_the_file(folder, capsys):
    args = (
        folder / "checks.certus",
        folder / "checks.csv",
        "--proba",
        "--interval",
        0.9,
    )
    code, out, _ = answer(capsys, *args)
    table = pl.read_csv(out.encode(), infer_schema=False)
    assert code == 0
    assert set(table["prediction"]) == {"True", "FALSE"}
    assert set(table["set"].drop_nulls()) <= {"True", "FALSE", "FALSE | True", ""}
    assert table.columns[2:] == ["probability of FALSE", "probability of True"]
    # Sets hold the label of at least this share of new rows; these are partly old.
    truth = pl.read_csv(folder / "checks.csv", infer_schema=False)["ok"]
    held = [t in s.split(" | ") for t, s in zip(truth, table["set"].fill_null(""))]
    assert np.mean(held) > 0.85


def test_json_has_the_same(folder, capsys):
    args = (folder / "checks.certus", folder / "checks.csv", "--json", "--key", "row")
    code, out, _ = answer(capsys, *args, "--interval", 0.9, "--unseen")
    found = json.loads(out)
    assert code == 0 and found["rows"] == 200
    assert found["keys"]["row"][:2] == ["r0", "r1"]
    assert all(isinstance(s, list) for s in found["sets"])
    assert len(found["unseen"]) == 200


@pytest.mark.parametrize(
    ("args", "sentence"),
    [
        (["--interval", "1.5"], "must be a share between 0 and 1, got 1.5"),
        (["--key", "flt"], 'Did you mean "flat"?'),
        (["--encoding", "cp99999"], 'there is no encoding "cp99999"'),
        (["--proba"], "gives no probabilities"),
    ],
)
def test_unanswerable_questions_are_reported(folder, capsys, args, sentence):
    code, out, err = answer(
        capsys, folder / "flats.certus", folder / "flats.csv", *args
    )
    assert code in (1, 2) and out == ""
    assert sentence in " ".join(err.split())


def test_a_pipe_gets_a_line_every_few_seconds(capsys, monkeypatch):
    monkeypatch.setattr(screen, "EVERY", 0.02)
    import time

    with screen.progress(2) as step:
        step("reading houses.csv")
        time.sleep(0.3)
        step("ridge, fold 2 of 5", 0.5)
        time.sleep(0.3)
    lines = capsys.readouterr().err.splitlines()
    assert any(line.endswith("reading houses.csv") for line in lines)
    assert any("50 %" in line and line.endswith("ridge, fold 2 of 5") for line in lines)
    time.sleep(0.1)
    assert capsys.readouterr().err == ""  # silent once the work is done
