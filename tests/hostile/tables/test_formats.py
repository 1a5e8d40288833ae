"""Encodings, headers, currencies and units as they come in real files."""

from __future__ import annotations

import datetime as dt
import gzip
import io

import numpy as np
import pandas as pd
import polars as pl
import pytest

from certus.linear_model import Ridge
from certus.tables import TableEncoder, TableError, TablePipeline, read_table
from certus.tables.headers import has_header
from certus.tables.reader import read_with_notes


def read(tmp_path, content, name="t.csv", **options):
    path = tmp_path / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return read_with_notes(path, **options)


# ---- encodings -----------------------------------------------------------------------

NAMES = "name,price\nMüller,3\nCafé “Élan”,4\nGarçon – 5 €,5\n"


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-32"])
def test_marked_encodings_are_read_without_a_word(tmp_path, encoding):
    found = read(tmp_path, NAMES.encode(encoding))
    assert found.frame["name"].to_list() == ["Müller", "Café “Élan”", "Garçon – 5 €"]
    assert found.frame["price"].to_list() == [3, 4, 5]
    assert found.notes == []


def test_windows_1252_is_recognised_and_reported(tmp_path):
    found = read(tmp_path, NAMES.encode("cp1252"))
    assert found.frame["name"].to_list() == ["Müller", "Café “Élan”", "Garçon – 5 €"]
    assert "Windows-1252" in found.notes[0] and "--encoding" in found.notes[0]
    packed = read(tmp_path, gzip.compress(NAMES.encode("cp1252")), "t.csv.gz")
    assert packed.frame.equals(found.frame)


def test_windows_1252_is_recognised_late_in_the_file(tmp_path):
    content = b"a,b\n" + b"1,x\n" * 40_000 + b"2,caf\xe9\n"
    found = read(tmp_path, content)
    assert found.frame["b"][-1] == "café" and "Windows-1252" in found.notes[0]


@pytest.mark.parametrize(
    ("encoding", "word"),
    [
        ("cp1251", "слово"),
        ("iso8859-7", "λόγος"),
        ("shift_jis", "言葉"),
        ("cp1250", "řeč"),
    ],
)
def test_named_encodings_are_used_and_not_guessed(tmp_path, encoding, word):
    content = f"word,n\n{word},1\n{word},2\n".encode(encoding)
    found = read(tmp_path, content, encoding=encoding)
    assert found.frame["word"][0] == word and found.notes == []


def test_wrong_and_unknown_encodings_are_refused(tmp_path):
    with pytest.raises(TableError, match='There is no encoding "cp99999"'):
        read(tmp_path, "a,b\n1,2\n", encoding="cp99999")
    with pytest.raises(TableError, match='There is no encoding "zlib"'):
        read(tmp_path, "a,b\n1,2\n", encoding="zlib")
    with pytest.raises(TableError, match=r"is not utf-8 text \(line 2\)"):
        read(tmp_path, NAMES.encode("cp1252"), encoding="utf-8")
    frame = pl.DataFrame({"a": [1]})
    target = io.BytesIO()
    frame.write_parquet(target)
    with pytest.raises(TableError, match="leave out --encoding"):
        read(tmp_path, target.getvalue(), "t.parquet", encoding="cp1252")


# ---- headers -------------------------------------------------------------------------


def test_a_file_without_a_header_is_read_whole_and_reported(tmp_path):
    content = "5.1,3.5,setosa\n4.9,3.0,setosa\n6.3,3.3,virginica\n5.8,2.7,virginica\n"
    found = read(tmp_path, content)
    assert found.frame.height == 4
    assert found.frame.columns == ["column 1", "column 2", "column 3"]
    assert found.frame["column 1"].dtype == pl.Float64
    assert "has no header" in found.notes[0]
    again = read(
        tmp_path, "1,1,0\n0,1,1\n1,0,0\n2,2,2\n"
    )  # equal cells in its first row
    assert again.frame.shape == (4, 3)


@pytest.mark.parametrize(
    ("first", "rows"),
    [
        (["country", "1990", "1991"], [["Mali", "3", "4"]] * 4),
        (["0", "1", "2"], [["5.5", "3.1", "9"]] * 4),
        (["x", "y"], [["1", "2"]] * 4),
        (["2020", "name"], [["1", "b"], ["3", "b"], ["7", "c"], ["8", "c"]]),
        (["a", "b"], [["x", "y"]] * 5),
        (["1", "2"], [["3", "4"]]),  # too few rows to tell
    ],
)
def test_names_of_columns_are_not_taken_for_rows(first, rows):
    assert has_header(first, rows)


# ---- formatted numbers ---------------------------------------------------------------

CELLS = {
    "dollars": (["$1,234.00", "$5.50", "-$3.00"], [1234.0, 5.5, -3.0], "$"),
    "euros": (["1.234,56 €", "3,10 €", "-7,00 €"], [1234.56, 3.1, -7.0], "€"),
    "codes": (["USD 5", "USD 1,000.00", "USD 20"], [5, 1000, 20], "USD"),
    "percent": (["35 %", "7%", "12.5 %"], [35, 7, 12.5], "%"),
    "area": (["120 m²", "80 m²", "95.5 m²"], [120, 80, 95.5], "m2"),
    "speed": (["5 km/h", "7.5 km/h", "0 km/h"], [5, 7.5, 0], "km/h"),
    "millions": (["€110.5M", "€565K", "€0"], [110.5e6, 565e3, 0], "€"),
    "brackets": (["(1,200.50)", "300", "(5)"], [-1200.5, 300, -5], ""),
    "gaps": (["$1", "", "$3"], [1, None, 3], "$"),
}


@pytest.mark.parametrize("kind", CELLS)
def test_currencies_and_units_are_left_out_and_reported(tmp_path, kind):
    cells, values, unit = CELLS[kind]
    lines = "".join(f'"{cell}";{i};x\n' for i, cell in enumerate(cells))
    found = read(tmp_path, "value;row;note\n" + lines)
    assert found.frame["value"].to_list() == pytest.approx(values)
    assert found.units == {"value": unit}
    assert '"value" is read as numbers' in found.notes[0]


@pytest.mark.parametrize(
    "cells",
    [
        ["10 kg", "12 lb", "3 kg"],  # two units
        ["$5", "5", "$7"],  # a mark in some cells only
        ["3 M", "4 K", "1 M"],  # metres or millions
        ["Q1", "Q2", "Q3"],
        ["12A", "13B", "14A"],
        ["1/2", "2/3", "3/4"],
        ["(5", "6)", "7"],
        ["5 apples and pears", "6 apples and pears", "7 apples and pears"],
        ["192.168.0.1", "10.0.0.1", "10.0.0.2"],
        ["12:30", "13:75", "9:00"],
        ["90:30", "13:45", "9:00"],  # minutes and seconds
        ["12:30 PM", "13:45", "9:00"],
        ["1-2", "3-4", "5-6"],
    ],
)
def test_other_cells_stay_text(tmp_path, cells):
    content = "value,row\n" + "".join(f'"{c}",{i}\n' for i, c in enumerate(cells))
    found = read(tmp_path, content)
    assert found.frame["value"].to_list() == cells
    assert found.units == {} and found.notes == []


# ---- times, and other formats --------------------------------------------------------


@pytest.mark.parametrize(
    ("cells", "minutes"),
    [
        (["12:30", "9:05", "00:00", "NA"], [750, 545, 0, None]),
        (["9:30 AM", "12:00 am", "12:15 PM"], [570, 0, 735]),
        (["07:00:30", "23:59:59.5"], [420.5, 1439 + 59.5 / 60]),
    ],
)
def test_times_of_the_day_are_minutes_with_a_cycle(tmp_path, cells, minutes):
    content = "t,row\n" + "".join(f'"{c}",{i}\n' for i, c in enumerate(cells))
    found = read(tmp_path, content)
    assert found.frame["t"].dtype == pl.Time
    assert found.notes == ['"t" is read as times of the day.']
    encoder = TableEncoder(scale=False).fit(found.frame)
    Z = encoder.transform(found.frame)
    names = encoder.get_feature_names_out().tolist()
    known = [m for m in minutes if m is not None]
    got = Z[: len(known), names.index("t")]
    np.testing.assert_allclose(got, known)
    turn = 2 * np.pi * np.array(known) / 1440
    np.testing.assert_allclose(
        Z[: len(known), names.index("t (day sine 1)")], np.sin(turn), atol=1e-12
    )


def test_times_meet_text_numbers_and_midnight(tmp_path):
    """A model of times reads text as times, and one of numbers refuses times."""
    rng = np.random.default_rng(0)
    minutes = rng.integers(0, 1440, 400)
    late = np.cos(2 * np.pi * (minutes - 30) / 1440)  # highest half an hour after 0
    times = pl.Series("t", minutes * 60 * 10**9).cast(pl.Time)
    model = TablePipeline(estimator=Ridge(alpha=1e-6)).fit(times.to_frame(), late)
    assert model.score(times.to_frame(), late) > 0.999
    said = model.predict(pl.DataFrame({"t": ["23:59", "00:01"]}))
    assert abs(said[0] - said[1]) < 0.01
    plain = TablePipeline(estimator=Ridge()).fit(pl.DataFrame({"t": minutes}), late)
    with pytest.raises(TableError, match="holds times of the day now"):
        plain.predict(times.to_frame())
    objects = pd.DataFrame({"t": [dt.time(23, 59), None, dt.time(0, 1)]})
    np.testing.assert_allclose(model.predict(objects)[[0, 2]], said)


@pytest.mark.parametrize("ending", ["parquet", "feather", "jsonl"])
def test_formatted_numbers_in_other_formats_are_converted(tmp_path, ending):
    frame = pl.DataFrame(
        {
            "p": ["$1,234.00", "$5.50", None],
            "t": ["9:30", "21:00", "9:45"],
            "id": ["01"] * 3,
        }
    )
    path = tmp_path / f"t.{ending}"
    write = {
        "parquet": "write_parquet",
        "feather": "write_ipc",
        "jsonl": "write_ndjson",
    }
    getattr(frame, write[ending])(path)
    found = read_with_notes(path)
    assert found.frame["p"].to_list() == [1234.0, 5.5, None]
    assert found.frame["t"].dtype == pl.Time and found.frame["id"].dtype == pl.String
    assert found.units == {"p": "$"}
    assert any('"p" is read as numbers, without "$"' in note for note in found.notes)


@pytest.mark.parametrize("make", [pl.DataFrame, pd.DataFrame])
def test_formatted_numbers_in_a_data_frame_are_converted(make):
    cells = [f"{k},000 kg" if k else "500 kg" for k in range(40)]
    encoder = TableEncoder(scale=False).fit(make({"w": cells}))
    assert '"w" is read as numbers, without "kg".' in encoder.notes_
    Z = encoder.transform(make({"w": ["1,500 kg", "700 kg"]}))
    assert Z[:, 0].tolist() == [1500.0, 700.0]
    with pytest.raises(TableError, match='was with "kg" when the model was fitted'):
        encoder.transform(make({"w": ["1,500 lb", "700 lb"]}))
    # A category keeps its text where new rows happen to look like numbers.
    kinds = ["3 kg", "5 kg", "a box"] * 10
    labels = TableEncoder(scale=False).fit(make({"w": kinds}))
    Z = labels.transform(make({"w": ["3 kg", "5 kg"]}))
    assert np.asarray(Z).sum(axis=1).tolist() == [1.0, 1.0]


# ---- spelling ------------------------------------------------------------------------


def test_the_spelling_of_labels_is_kept(tmp_path):
    found = read(tmp_path, "ok,code,n\nTrue,01,5\nFALSE,02,6\nTrue,01,7\n")
    assert found.spelling["ok"] == {"True": "True", "False": "FALSE"}
    assert found.spelling["code"] == {"1": "01", "2": "02"}
    assert "n" not in found.spelling


def test_messages_about_a_file_reach_the_caller(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("price,n\n$5,1\n$6,2\n")
    heard: list[str] = []
    assert read_table(path, announce=heard.append)["price"].to_list() == [5, 6]
    assert heard == ['"price" is read as numbers, without "$".']
