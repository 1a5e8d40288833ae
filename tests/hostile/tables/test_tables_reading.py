"""Files as people have them: every habit of writing gives the same table.

The same small table is written in many ways and must come back with the same values;
what has two readings must not be guessed; what cannot be read must be refused before it
costs memory.
"""

from __future__ import annotations

import datetime as dt
import gzip
import os
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from certus._core import free_memory
from certus.tables import TableEncoder, TableError, memory, read_table


def read(folder: Path, content: bytes | str, name: str = "t.csv") -> pl.DataFrame:
    data = content.encode() if isinstance(content, str) else content
    (folder / name).write_bytes(data)
    return read_table(folder / name)


def column(folder: Path, cells: list[str], separator: str = ",") -> pl.Series:
    rows = [f'"{cell}"{separator}1' for cell in cells]
    return read(folder, "\n".join([f"a{separator}b", *rows]))["a"]


# ---- one table, many habits --------------------------------------------------

PLAIN = pl.DataFrame({"price": [1234.5, 0.25, -7.0], "town": ["Bath", "York", None]})
WRITTEN = {
    "commas": "price,town\n1234.5,Bath\n0.25,York\n-7,\n",
    "semicolons": "price;town\n1234.5;Bath\n0.25;York\n-7;\n",
    "tabs": "price\ttown\n1234.5\tBath\n0.25\tYork\n-7\t\n",
    "bars": "price|town\n1234.5|Bath\n0.25|York\n-7|\n",
    "decimal comma": "price;town\n1234,5;Bath\n0,25;York\n-7;\n",
    "decimal comma, tabs": "price\ttown\n1234,5\tBath\n0,25\tYork\n-7\t\n",
    "decimal comma, quoted": 'price,town\n"1234,5",Bath\n"0,25",York\n-7,\n',
    "English groups": 'price,town\n"1,234.5",Bath\n0.25,York\n-7,\n',
    "German groups": "price;town\n1.234,5;Bath\n0,25;York\n-7;\n",
    "French groups": "price;town\n1\u202f234,5;Bath\n0,25;York\n-7;\n",
    "Swiss groups": "price;town\n1'234.5;Bath\n0.25;York\n-7;\n",
    "blanks": " price , town \n 1234.5 ,Bath\n 0.25,York\n -7 , NA \n",
    "CRLF and BOM": "\ufeffprice,town\r\n1234.5,Bath\r\n0.25,York\r\n-7,\r\n",
    "blank lines": "\n\nprice,town\n1234.5,Bath\n\n0.25,York\n-7,\n\n\n",
    "quotes": '"price","town"\n"1234.5","Bath"\n"0.25","York"\n"-7",""\n',
}


@pytest.mark.parametrize("habit", WRITTEN)
def test_one_table_in_many_habits(tmp_path, habit):
    assert read(tmp_path, WRITTEN[habit]).equals(PLAIN)
    packed = gzip.compress(WRITTEN[habit].encode())
    assert read(tmp_path, packed, "t.csv.gz").equals(PLAIN)


def test_a_separator_inside_names_and_cells(tmp_path):
    """The comma in a header is not the separator if the rows do not agree with it."""
    found = read(tmp_path, "price, EUR;town\n1,5;Bath, Avon\n2,5;York\n")
    assert found.columns == ["price, EUR", "town"]
    assert found.rows() == [(1.5, "Bath, Avon"), (2.5, "York")]
    found = read(tmp_path, "a;b,c\n1;2,3\n4;5,6\n")  # both agree: the comma wins
    assert found.rows() == [("1;2", 3), ("4;5", 6)]
    found = read(tmp_path, '"a;b",c\n"x\ny;z",1\nu,2\n')
    assert found.rows() == [("x\ny;z", 1), ("u", 2)]


def test_names_of_unnamed_columns_tell_their_place(tmp_path):
    found = read(tmp_path, ",a, ,b,\n1,2,3,4,5\n6,7,8,9,10\n")
    assert found.columns == ["index", "a", "column 3", "b", "column 5"]
    assert found.row(0) == (1, 2, 3, 4, 5)
    assert read(tmp_path, ",index\n1,2\n").columns == ["index'", "index"]
    with pytest.raises(TableError, match='more than one column named "a"'):
        read(tmp_path, "a, a\n1,2\n")


# ---- numbers that have two readings ------------------------------------------


@pytest.mark.parametrize(
    ("separator", "values"), [(",", [1234, 5678]), (";", [1.234, 5.678])]
)
def test_the_file_decides_what_a_comma_means(tmp_path, separator, values):
    assert column(tmp_path, ["1,234", "5,678"], separator).to_list() == values


def test_undecided_columns_stay_text(tmp_path):
    assert column(tmp_path, ["1,234", "5,678"], "\t").dtype == pl.String


def test_another_column_decides(tmp_path):
    """1.234 is a thousand and more where the next column writes 0,5."""
    rows = "a;b\n1.234;0,5\n5.678;1,25\n"
    assert read(tmp_path, rows).rows() == [(1234, 0.5), (5678, 1.25)]
    assert read(tmp_path, rows.replace(",", ".")).rows()[0] == (1.234, 0.5)
    assert read(tmp_path, "a\tb\n1,234\t0,5\n5,678\t7\n").rows()[0] == (1.234, 0.5)


@pytest.mark.parametrize(
    "cells",
    [
        ["1,23,456", "2"],
        ["1,2345", "1,234.5"],
        ["0,123.5", "1"],
        ["1.23.456,7", "1,5"],
        ["12,", "3,5"],
        ["192.168.1.10", "10.0.0.1"],
        ["1,5", "n. a."],
    ],
)
def test_cells_that_are_not_numbers_stay_text(tmp_path, cells):
    assert column(tmp_path, cells).dtype == pl.String


@settings(
    max_examples=60,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(
    st.lists(st.decimals(-(10**9), 10**9, places=2), min_size=2, max_size=8),
    st.sampled_from([",.,", ".,;", " ,;", "'.;"]),
)
def test_grouped_numbers_come_back(tmp_path, numbers, habit):
    """Format, then read: the float nearest to each decimal number."""
    group, point, separator = habit
    cells = [f"{n:,}".translate({44: group, 46: point}) for n in numbers]
    found = column(tmp_path, [*cells, f"1{group}234{point}56"], separator)
    assert found.cast(float).to_list() == [*map(float, numbers), 1234.56]


# ---- dates -------------------------------------------------------------------

DAYS = [dt.datetime(2020, 1, 5), dt.datetime(1999, 12, 31), dt.datetime(2021, 7, 14)]
FORMS = [
    *("%Y-%m-%d", "%Y/%m/%d", "%d/%m/%Y", "%m/%d/%Y", "%d.%m.%Y", "%d-%m-%Y"),
    *("%d/%m/%y", "%m/%d/%y", "%d %b %Y", "%d %B %Y", "%b %d, %Y", "%B %d %Y"),
    *("%d-%b-%Y", "%d-%b-%y"),
]
CLOCKS = ["%Y-%m-%d %H:%M", "%Y-%m-%dT%H:%M:%S", "%d/%m/%Y %H:%M", "%d.%m.%Y %H:%M:%S"]


@pytest.mark.parametrize("form", FORMS)
def test_forms_of_dates(tmp_path, form):
    found = column(tmp_path, [day.strftime(form) for day in DAYS] + ["NA"])
    assert found.to_list() == [*(day.date() for day in DAYS), None]


@pytest.mark.parametrize("form", [*CLOCKS, "%m/%d/%Y %I:%M %p"])
def test_forms_of_times(tmp_path, form):
    times = [day.replace(hour=17, minute=3) for day in DAYS]
    assert column(tmp_path, [t.strftime(form) for t in times]).to_list() == times


def test_offsets_are_one_clock(tmp_path):
    found = column(tmp_path, ["2020-01-01T10:00:00+02:00", "2020-01-01T08:00:00Z"])
    assert found[0] == found[1] == dt.datetime(2020, 1, 1, 8, tzinfo=dt.UTC)


@pytest.mark.parametrize(
    "cells",
    [
        ["01/02/2020", "03/04/2020"],
        ["01-02-20", "03-04-20"],
        ["01/02/2020 10:00", "03/04/2020 11:00"],
        ["31/12/2020", "12/31/2020"],
        ["2020-01-02", "01/02/2020"],
        ["32/01/2020", "01/01/2020"],
        ["12/31/20", "12/31/2020"],
    ],
)
def test_days_and_months_are_not_guessed(tmp_path, cells):
    assert column(tmp_path, cells).dtype == pl.String


def test_order_of_the_day_may_not_matter(tmp_path):
    assert column(tmp_path, ["01/01/2020", "02/02/2020"]).dtype == pl.Date


def test_a_late_row_decides_the_order(tmp_path):
    cells = ["01/02/2020"] * 300
    assert column(tmp_path, cells).dtype == pl.String
    found = column(tmp_path, [*cells, "13/02/2020"])
    assert found[0] == dt.date(2020, 2, 1)
    assert column(tmp_path, [*cells, "02/13/2020"])[0] == dt.date(2020, 1, 2)


def test_doubts_are_reported(tmp_path):
    """What almost was a number or a date is set aside with the reason."""
    days = [f"{1 + i % 12:02d}/{1 + i // 12:02d}/2020" for i in range(60)]
    marks = [str(i) for i in range(58)] + ["unknown", "n. a."]
    codes = pl.Series([str(7 * i) for i in range(60)])
    frame = pl.DataFrame({"d": days, "m": marks, "c": codes, "x": range(60)})
    notes = TableEncoder().fit(frame).notes_
    assert 'such as "01/01/2020" can be read in two ways' in notes[0]
    assert '58 of its 60 cells are numbers, but "unknown" is not' in notes[1]
    assert "numbers written as text" in notes[2]


def test_an_undecided_date_is_refused_at_prediction(tmp_path):
    encoder = TableEncoder().fit(pl.DataFrame({"d": [day.date() for day in DAYS]}))
    new = pl.DataFrame({"d": ["13/02/2020", "01/02/2020"]})
    whole = encoder.transform(
        pl.DataFrame({"d": [dt.date(2020, 2, 13), DAYS[0].date()]})
    )
    np.testing.assert_array_equal(encoder.transform(new)[0], whole[0])
    with pytest.raises(TableError, match=r'"01/02/2020".*dates as 2020-12-31'):
        encoder.transform(new.tail(1))


# ---- files that are something else -------------------------------------------

OTHER = {
    "gzip": (
        gzip.compress(b"a,b\n1,2\n"),
        r"compressed with gzip. Rename it to t.csv.gz",
    ),
    "xlsx": (b"PK\x03\x04\x14\x00\x06\x00", "spreadsheet or archive.*sheet you want"),
    "xls": (b"\xd0\xcf\x11\xe0\xa1\xb1", "spreadsheet.*sheet you want as CSV"),
    "parquet": (b"PAR1\x15\x04", "Parquet file. Rename it so that it ends in .parquet"),
    "UTF-16 bare": ("a,b\n1,2\n".encode("utf-16-le"), "null bytes"),
    "Greek": ("a,b\n1,λόγος\n".encode("iso8859-7"), "not UTF-8 text.*--encoding"),
    "noise": (bytes([7, 200, 13, 27] * 99), "binary data"),
    "null cell": (b"a,b\n" + b"1,2\n" * 40_000 + b"\0\0,3\n", "null bytes"),
    "late Greek": (
        b"a,b\n" + b"1,2\n" * 40_000 + "λόγος,3\n".encode("iso8859-7"),
        "not UTF-8.*--encoding",
    ),
}


@pytest.mark.parametrize("kind", OTHER)
def test_other_kinds_of_files(tmp_path, kind):
    content, message = OTHER[kind]
    with pytest.raises(TableError, match=message):
        read(tmp_path, content)


def test_links_pipes_and_folders(tmp_path):
    (tmp_path / "l.csv").symlink_to("gone.csv")
    with pytest.raises(TableError, match=r"a link to gone.csv, which does not exist"):
        read_table(tmp_path / "l.csv")
    os.mkfifo(tmp_path / "p.csv")
    with pytest.raises(TableError, match="not an ordinary file"):
        read_table(tmp_path / "p.csv")
    (tmp_path / "gone.csv").write_text("a\n1\n")
    assert read_table(tmp_path / "l.csv").rows() == [(1,)]


def test_a_cell_of_megabytes_hides_no_short_row(tmp_path):
    """Python's own reader stops at 131,072 letters; the check of the rows must not."""
    long = "u" * 300_000
    assert read(tmp_path, f"a,b\n{long},1\nv,\n")["a"][0] == long
    with pytest.raises(TableError, match="line 3: 1 cell, but the header has 2"):
        read(tmp_path, f"a,b\n{long},1\nv\n")


# ---- memory ------------------------------------------------------------------


def written(folder: Path, rows: int) -> dict[str, Path]:
    rng = np.random.default_rng(0)
    words = [f"a word of some length {i}" for i in rng.integers(0, 10**6, rows)]
    frame = pl.DataFrame({"x": rng.normal(size=rows), "w": words})
    files = {
        kind: folder / f"t.{kind}" for kind in ("csv", "parquet", "feather", "jsonl")
    }
    frame.write_csv(files["csv"])
    frame.write_parquet(files["parquet"])
    frame.write_ipc(files["feather"], compression="zstd")
    frame.write_ndjson(files["jsonl"])
    files["gz"] = folder / "t2.csv.gz"
    files["gz"].write_bytes(gzip.compress(files["csv"].read_bytes()))
    return files


@pytest.mark.parametrize("kind", ["csv", "parquet", "feather", "jsonl", "gz"])
def test_memory_is_guessed_from_the_beginning(tmp_path, kind):
    """Between one and ten times the table, and in proportion to its rows."""
    file = written(tmp_path, 50_000)[kind]
    needed = memory.memory_needed(file)
    size = read_table(file).estimated_size()
    assert size < needed < 10 * size
    (tmp_path / "more").mkdir()
    more = memory.memory_needed(written(tmp_path / "more", 200_000)[kind])
    assert 3 < more / needed < 5


@pytest.mark.parametrize("kind", ["csv", "parquet", "feather", "jsonl", "gz"])
def test_oversized_input_is_refused_before_it_is_read(tmp_path, kind, monkeypatch):
    file = written(tmp_path, 100)[kind]
    needed = memory.memory_needed(file)
    assert read_table(file, max_memory=needed).height == 100

    def never(*_: object, **__: object) -> None:
        raise AssertionError("was read")

    for name in ("read_csv", "read_parquet", "read_ipc", "read_ndjson"):
        monkeypatch.setattr(pl, name, never)
    with pytest.raises(TableError, match=r"takes about .* kB of memory.*are allowed"):
        read_table(file, max_memory=needed - 1)
    monkeypatch.setattr(memory, "memory_free", lambda: 1000)
    with pytest.raises(TableError, match=r"and 1 kB are free. Take a sample"):
        read_table(file)


def test_large_files_are_announced(tmp_path, monkeypatch):
    file = written(tmp_path, 100)["csv"]
    said: list[str] = []
    read_table(file, announce=said.append)
    assert said == []
    monkeypatch.setattr(memory, "LARGE", 1000)
    read_table(file, announce=said.append)
    assert len(said) == 1 and said[0].startswith("t.csv (")
    assert "of memory; " in said[0] and said[0].endswith("are free.")


def test_free_memory_is_that_of_the_machine_or_less(monkeypatch):
    free = free_memory.memory_free()
    pages = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    assert free is None or 0 < free <= pages
    monkeypatch.setattr(free_memory, "_available", lambda: 50)
    monkeypatch.setattr(free_memory, "_of_container", lambda: 40)
    monkeypatch.setattr(free_memory, "_of_process", lambda: None)
    assert free_memory.memory_free() == 40
    monkeypatch.setattr(free_memory, "_of_container", lambda: None)
    monkeypatch.setattr(free_memory, "_available", lambda: None)
    assert free_memory.memory_free() is None
