"""Encodings, headers, currencies and units as they come in real files."""

from __future__ import annotations

import gzip
import io

import polars as pl
import pytest

from certus.tables import TableError, read_table
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
        ["12:30", "13:45", "9:00"],
        ["1-2", "3-4", "5-6"],
    ],
)
def test_other_cells_stay_text(tmp_path, cells):
    content = "value,row\n" + "".join(f'"{c}",{i}\n' for i, c in enumerate(cells))
    found = read(tmp_path, content)
    assert found.frame["value"].to_list() == cells
    assert found.units == {} and found.notes == []


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
