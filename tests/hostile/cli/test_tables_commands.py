"""Dirty tables through every command: the right result, or two lines of advice.

Each refusal is tried with fit, predict, certify and audit, and must leave the folder as
it was; each usable table is fitted, predicted, certified and audited.
"""

from __future__ import annotations

import datetime as dt
import decimal
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest

import certus
from certus.cli import fitting, main
from certus.linear_model import LogisticRegression, Ridge
from certus.selection.candidates import list_candidates
from certus.tables import TableError, memory

N = 60
RNG = np.random.default_rng(0)
X = np.arange(float(N))
Y = (X + 5 * RNG.normal(size=N)).round(2)
LABELS = np.where(X + 20 * RNG.normal(size=N) > 30, "up", "down").tolist()
Capture = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name in ("COLUMNS", "FORCE_COLOR", "CERTUS_DEBUG"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(fitting, "REPORT_SECONDS", 0.1)  # figures are tested elsewhere
    return tmp_path


def frame(**columns: Any) -> pl.DataFrame:
    return pl.DataFrame({"x": X, **columns, "y": columns.get("y", Y)})


def state(folder: Path) -> dict[str, bytes]:
    return {p.name: p.read_bytes() for p in folder.iterdir() if p.is_file()}


def refused(args: list[str], text: str, capsys: Capture, code: int = 1) -> None:
    """Two lines on stderr, nothing on stdout, the folder as it was."""
    before = state(Path())
    capsys.readouterr()
    assert main(args) == code, args
    shown = capsys.readouterr()
    lines = shown.err.splitlines()
    said = " ".join(line.strip() for line in lines)
    assert shown.err.startswith("certus: ") and len(lines) <= 2, shown.err
    assert text in said and "Traceback" not in said, said
    assert shown.out == ""
    assert state(Path()) == before


def used(data: str, capsys: Capture, model: str = "ridge", *more: str) -> Any:
    """Fit, predict, certify and audit; what fit says as JSON, and the predictions."""
    capsys.readouterr()
    args = ["fit", data, "--target", "y", "--model", model, *more]
    assert main([*args, "--json"]) == 0, capsys.readouterr().err
    found = json.loads(capsys.readouterr().out)
    name = found["files"]["model"]
    assert main(["predict", name, data, "--json"]) == 0
    found["predictions"] = json.loads(capsys.readouterr().out)["predictions"]
    assert main(["certify", name, data, "--json"]) == 0
    again = json.loads(capsys.readouterr().out)
    assert again["same_data"] is True
    assert main(["audit", name, data, "--report", "audit.md"]) == 0
    assert capsys.readouterr().out.endswith("wrote audit.md\n")
    assert not list(Path().glob(".*"))
    return found


# ---- files that cannot be read ---------------------------------------------------


def no_csv(content: bytes) -> Callable[[], str]:
    def make() -> str:
        Path("bad.csv").write_bytes(content)
        return "bad.csv"

    return make


def cut_parquet() -> str:
    frame().write_parquet("bad.parquet")
    whole = Path("bad.parquet").read_bytes()
    Path("bad.parquet").write_bytes(whole[: len(whole) // 2])
    return "bad.parquet"


def broken_link() -> str:
    Path("bad.csv").symlink_to("gone")
    return "bad.csv"


def a_folder() -> str:
    Path("bad.csv").mkdir()
    return "bad.csv"


BAD: dict[str, tuple[Callable[[], str], str]] = {
    "empty": (no_csv(b""), "Copy or export it again"),
    "no rows": (no_csv(b"x,y\n"), "no rows below its header"),
    "Cyrillic": (no_csv("x,y\n1,привет\n".encode("cp1251")), "--encoding"),
    "cut UTF-16": (no_csv("x,y\n1,2\n".encode("utf-16")[:-1]), "--encoding"),
    "noise": (no_csv(bytes([1, 255, 27, 200] * 50)), "Save it as CSV"),
    "nulls": (no_csv(b"x,y\n1,2\n\0\0,3\n"), "Save it as UTF-8"),
    "short row": (no_csv(b"x,y\n1,2\n3\n"), "line 3: 1 cell"),
    "long row": (no_csv(b"x,y\n1,2\n3,4,5\n"), "line 3: 3 cells"),
    "twice": (no_csv(b"x,x,y\n1,2,3\n"), "Rename one"),
    "cut Parquet": (cut_parquet, "cut short"),
    "folder": (a_folder, "is a folder. Pass a file in it"),
    "broken link": (broken_link, "which does not exist"),
    "absent": (lambda: "bad.csv", "there is no file bad.csv"),
}


@pytest.mark.parametrize("kind", BAD)
def test_unreadable_files(kind: str, capsys: Capture) -> None:
    make, text = BAD[kind]
    frame().write_csv("t.csv")
    assert main(["fit", "t.csv", "--target", "y", "--model", "ridge"]) == 0
    name = make()
    refused(["fit", name, "--target", "y"], text, capsys)
    for command in ("predict", "certify", "audit"):
        refused([command, "t.certus", name], text, capsys)


def test_files_beyond_the_memory(
    capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Refused before loading with both numbers; a large one that fits is announced."""
    frame().write_csv("t.csv")
    monkeypatch.setattr(memory, "LARGE", 1)
    assert main(["fit", "t.csv", "--target", "y", "--model", "ridge"]) == 0
    shown = capsys.readouterr().err
    assert "takes about" in shown and "are free." in shown
    monkeypatch.setattr(memory, "memory_free", lambda: 2000)
    text = "of memory to read, and 2 kB are free. Take a sample of its rows"
    refused(["fit", "t.csv", "--target", "y"], text, capsys)
    for command in ("predict", "certify", "audit"):
        refused([command, "t.certus", "t.csv"], text, capsys)


# ---- columns ---------------------------------------------------------------------


def days(form: str) -> list[str]:
    first = dt.datetime(2020, 1, 1)
    return [(first + dt.timedelta(9 * i)).strftime(form) for i in range(N)]


COLUMNS: dict[str, tuple[Any, str]] = {
    "mixed types": (["1", "x", None, "2020-01-01", "3.5"] * 12, "1 category"),
    "dates": (days("%m/%d/%Y"), "1 date"),
    "zones": (days("%Y-%m-%dT%H:%M:%S+02:00"), "1 date"),
    "half missing": ([None if i % 2 else float(i) for i in range(N)], "1 column has"),
    "text": (
        [f"{i} sheep jump over the old wall of stone" for i in range(N)],
        "1 text",
    ),
    "booleans": ([True, False] * 30, "1 boolean"),
    "above 2^53": ([2**60 + 1000 * i for i in range(N)], "2 numbers"),
    "a long cell": (["u" * 10**6, *"vw" * 29, "v"], "1 category"),
    "quoted lines": (["two\nlines", "a, b; c"] * 30, "1 category"),
}


@pytest.mark.parametrize("kind", COLUMNS)
def test_columns_of_text_files(kind: str, capsys: Capture) -> None:
    values, summary = COLUMNS[kind]
    frame(m=values).write_csv("t.csv")
    found = used("t.csv", capsys)
    assert summary in found["data"]["summary"]
    assert len(found["predictions"]) == N and np.isfinite(found["predictions"]).all()


TYPED: dict[str, pl.Series] = {
    "categorical": pl.Series(LABELS, dtype=pl.Categorical),
    "enum": pl.Series(LABELS, dtype=pl.Enum(["up", "down", "other"])),
    "decimal": pl.Series([decimal.Decimal(i) / 4 for i in range(N)]),
    "duration": pl.Series([dt.timedelta(hours=i * i) for i in range(N)]),
    "time": pl.Series([dt.time(i % 24) for i in range(N)]),
    "zoned": pl.Series(
        [dt.datetime(2020, 1, 1 + i // 2, tzinfo=dt.UTC) for i in range(N)]
    ),
}


@pytest.mark.parametrize("kind", TYPED)
def test_columns_of_typed_files(kind: str, capsys: Capture) -> None:
    frame(m=TYPED[kind]).write_parquet("t.parquet")
    found = used("t.parquet", capsys)
    assert "set aside" not in found["data"]["summary"]


def test_ten_thousand_categories(capsys: Capture) -> None:
    n = 20_000
    rng = np.random.default_rng(0)
    town = rng.permuted([f"town {i % 10_000}" for i in range(n)])
    data = {"town": town, "x": rng.normal(size=n), "y": rng.normal(size=n)}
    pl.DataFrame(data).write_parquet("t.parquet")
    found = used("t.parquet", capsys)
    said = "each is replaced by the average target of other rows with it"
    assert said in " ".join(found["data"]["notes"])


@pytest.mark.parametrize("name", ["t.jsonl", "t.parquet"])
@pytest.mark.parametrize("cell", [[1, 2], {"a": 1}], ids=["list", "record"])
def test_lists_and_records(name: str, cell: Any, capsys: Capture) -> None:
    """Refused; once dropped, they do not matter to any later command."""
    data = frame(m=[cell] * N)
    (data.write_ndjson if name.endswith("jsonl") else data.write_parquet)(name)
    refused(["fit", name, "--target", "y"], "or drop it (--drop)", capsys)
    found = used(name, capsys, "ridge", "--drop", "m")
    frame().write_csv("plain.csv")
    assert used("plain.csv", capsys)["predictions"] == found["predictions"]


def test_infinite_numbers(capsys: Capture) -> None:
    for at, value in ((0, np.inf), (N - 1, -np.inf)):
        m = X.copy()
        m[at] = value
        frame(m=m).write_csv("t.csv")
        text = f'"m" has an infinite value (row {at}, counted from 0)'
        refused(["fit", "t.csv", "--target", "y"], text, capsys)


NAMES = ["😀", "שלום עולם", "<script>alert(1)</script>", "a\tb", "%s{0}", "__class__"]


def test_names_of_all_kinds(capsys: Capture) -> None:
    data = pl.DataFrame({name: X**k for k, name in enumerate(NAMES, 1)} | {"y": Y})
    data.write_parquet("t.parquet")
    used("t.parquet", capsys)
    page = Path("t.html").read_text()
    assert "<script>alert" not in page and "&lt;script&gt;alert" in page


def test_a_named_encoding_serves_fit_and_audit(capsys: Capture) -> None:
    text = frame(größe=X[::-1].tolist()).write_csv()
    Path("dos.csv").write_bytes(text.encode("cp437"))
    dos = ["--encoding", "cp437"]
    args = ["fit", "dos.csv", "--target", "y", "--model", "ridge", *dos]
    assert main(args) == 0, capsys.readouterr().err
    assert main(["audit", "dos.certus", "dos.csv", "--report", "a.md", *dos]) == 0
    capsys.readouterr()
    # Read as Windows-1252 the same bytes name another column.
    assert main(["audit", "dos.certus", "dos.csv", "--report", "b.md"]) == 1
    said = capsys.readouterr().err
    assert "--encoding" in said and "größe" in said and not Path("b.md").exists()


def test_habits_do_not_change_the_model(capsys: Capture) -> None:
    """Semicolons, decimal commas and blanks in the header: the same predictions."""
    frame().write_csv("plain.csv")
    text = Path("plain.csv").read_text().replace(",", ";").replace(".", ",")
    Path("other.csv").write_text(text.replace("x;y", " x ; y "))
    assert (
        used("plain.csv", capsys)["predictions"]
        == used("other.csv", capsys)["predictions"]
    )


# ---- targets and sizes -----------------------------------------------------------

TARGETS: dict[str, tuple[Any, str]] = {
    "constant": ([3] * N, "nothing to predict"),
    "all missing": ([None] * N, "no value in any row"),
    "list": ([[1]] * N, "choose another --target"),
    "date": (
        [dt.date(2020, 1, 1 + i % 28) for i in range(N)],
        "such as days",
    ),
    "duration": ([dt.timedelta(i) for i in range(N)], "such as days"),
    "names": ([f"name {i}" for i in range(N)], "too few of each"),
    "numbers as text": ([f"{v}" for v in X / 7], "Store it as numbers"),
    "infinite": ([np.inf, *Y[1:]], "infinite values"),
}


@pytest.mark.parametrize("kind", TARGETS)
def test_targets_that_cannot_be_learnt(kind: str, capsys: Capture) -> None:
    values, text = TARGETS[kind]
    pl.DataFrame({"x": X, "y": values}).write_parquet("t.parquet")
    refused(["fit", "t.parquet", "--target", "y"], text, capsys)


def test_rows_without_a_target_are_left_out(capsys: Capture) -> None:
    y = [None if i % 3 == 0 else v for i, v in enumerate(Y)]
    frame(y=y).write_csv("t.csv")
    found = used("t.csv", capsys)
    assert found["data"]["rows"] == 40 and found["data"]["rows_without_target"] == 20
    frame().filter(pl.Series(np.arange(N) % 3 > 0)).write_csv("whole.csv")
    again = used("whole.csv", capsys)
    at = np.flatnonzero(np.arange(N) % 3)
    assert np.array(found["predictions"])[at].tolist() == again["predictions"]


@pytest.mark.parametrize(
    "y",
    [
        pl.Series([decimal.Decimal(i) / 4 for i in range(N)]),
        pl.Series(LABELS, dtype=pl.Categorical),
        pl.Series([label == "up" for label in LABELS]),
        pl.Series([str(i % 3) for i in range(N)]),
        pl.Series(["rare", *("up", "down", "up") * 19, "up", "down"]),
    ],
    ids=["decimal", "categorical", "boolean", "digits as text", "one member"],
)
def test_targets_of_other_types(y: pl.Series, capsys: Capture) -> None:
    frame(y=y).write_parquet("t.parquet")
    used("t.parquet", capsys, "ridge" if y.dtype.is_decimal() else "logistic")


def test_many_labels_leave_out_what_would_take_hours() -> None:
    reasons = {
        c.name: c.reason for c in list_candidates("multiclass", 3000, 2, 0, 1000)
    }
    assert reasons["k nearest neighbours"] == reasons["perceptron"] == ""
    assert reasons["logistic"] == "only up to 50 labels"
    assert reasons["gradient boosting"] == "only up to 50 labels"
    few = list_candidates("multiclass", 3000, 2, 0, labels=20)
    assert {c.name for c in few if c.reason} <= {"additive shapes"}
    y = np.repeat([f"label {i}" for i in range(100)], 3)
    x = np.repeat(np.arange(100.0), 3)
    found = certus.compare(x[:, None] + [[0.0, 1.0]], y)
    assert found.chosen == "k nearest neighbours"


def test_rows_that_are_all_copies(capsys: Capture) -> None:
    Path("t.csv").write_text("x,z,y\n" + "1,2,3\n2,3,5\n" * 30)
    found = used("t.csv", capsys, "logistic")
    assert found["predictions"] == [3, 5] * 30
    Path("t.csv").write_text("x,z,y\n" + "1,2,3\n" * 30)
    refused(["fit", "t.csv", "--target", "y"], "nothing to predict", capsys)


@pytest.mark.parametrize("rows", [1, 2, 3])
def test_a_handful_of_rows(rows: int, capsys: Capture) -> None:
    frame().head(rows).write_csv("t.csv")
    if rows == 1:
        refused(["fit", "t.csv", "--target", "y"], "nothing to predict", capsys)
        return
    found = used("t.csv", capsys)
    assert found["comparison"]["risk"][0]["strength"] == "refused"


def test_one_column(capsys: Capture) -> None:
    pl.DataFrame({"y": Y}).write_csv("t.csv")
    refused(["fit", "t.csv", "--target", "y"], 'no column besides "y"', capsys)


# ---- a table unlike that of the fit ------------------------------------------------

CHANGED: dict[str, tuple[str, str]] = {
    "a column is missing": ("c,d,y\nu,2020-01-01,5\n", 'no column "x"'),
    "a number is text": (
        "x,c,d,y\none,u,2020-01-01,5\n",
        "Correct the column, or refit",
    ),
    "a number is a date": ("x,c,d,y\n2020-01-01,u,2020-01-01,5\n", "or refit"),
    "a date is a number": (
        "x,c,d,y\n1,u,7,5\n",
        "(dates as 2020-12-31)",
    ),
    "a date is unclear": ("x,c,d,y\n1,u,01/02/2020,5\n", '("01/02/2020")'),
    "infinite": ("x,c,d,y\n-inf,u,2020-01-01,5\n", "infinite value"),
}


@pytest.fixture
def towns() -> None:
    data = frame(c=["u", "v", "w"] * 20, d=days("%Y-%m-%d"))
    data.write_csv("t.csv")
    assert main(["fit", "t.csv", "--target", "y", "--model", "ridge"]) == 0


@pytest.mark.parametrize("kind", CHANGED)
@pytest.mark.usefixtures("towns")
def test_changed_tables_are_refused(kind: str, capsys: Capture) -> None:
    content, text = CHANGED[kind]
    Path("new.csv").write_text(content)
    for command in ("predict", "certify", "audit"):
        refused([command, "t.certus", "new.csv"], text, capsys)


@pytest.mark.usefixtures("towns")
def test_unseen_levels_and_extra_columns_are_reported(capsys: Capture) -> None:
    Path("new.csv").write_text("q,d,c,x\n1,2020-01-01,zzz,5\n")
    capsys.readouterr()
    assert main(["predict", "t.certus", "new.csv"]) == 0
    shown = capsys.readouterr()
    assert 'Ignored column not seen in training: "q"' in shown.err
    assert 'category not seen in training ("zzz")' in shown.err
    assert np.isfinite(float(shown.out.splitlines()[1]))


@pytest.mark.usefixtures("towns")
def test_targets_that_changed(capsys: Capture) -> None:
    for value, text in (("high", "not numeric"), ("inf", "infinite")):
        Path("new.csv").write_text(f"x,c,d,y\n1,u,2020-01-01,{value}\n")
        for command in ("certify", "audit"):
            refused([command, "t.certus", "new.csv"], text, capsys)


# ---- the same from Python ----------------------------------------------------------


def test_compare_reads_pandas_as_polars() -> None:
    towns = ["Bath", "York", None] * 20
    days_ = pd.date_range("2020-01-01", periods=N, tz="Europe/Paris")
    columns = {"x": X, "town": towns, "day": days_, "flag": [True, None, False] * 20}
    data = pd.DataFrame(columns).astype({"town": "category", "flag": "boolean"})
    ours = pl.from_pandas(data)
    models = [Ridge()]
    a = certus.compare(data, pd.Series(Y, name="y"), models=models)
    b = certus.compare(ours, pl.Series("y", Y), models=models)
    np.testing.assert_array_equal(a.model.predict(data), b.model.predict(ours))
    assert a.risk == b.risk


WRONG: dict[str, tuple[Any, Any, str]] = {
    "names twice": (
        pd.DataFrame([[1, 2]] * 9, columns=["a", "a"]),
        Y[:9],
        "Rename one",
    ),
    "lists": (pl.DataFrame({"a": [[1]] * N}), Y, "drop it"),
    "no rows": (pl.DataFrame({"a": []}), [], "The table has no rows"),
    "no columns": (pl.DataFrame(), [], "The table has no columns"),
    "gaps in y": (frame(), [None, *Y[1:]], "no value"),
    "constant y": (frame(), [1] * N, "nothing to predict"),
    "infinite y": (frame(), [np.inf, *Y[1:]], "infinite"),
    "infinite x": (frame(m=[np.inf, *X[1:]]), Y, "infinite value"),
    "one row": (frame().head(1), Y[:1], "nothing to predict"),
    "lengths": (frame(), Y[:5], "one target per row"),
}


@pytest.mark.parametrize("kind", WRONG)
def test_compare_refuses_with_a_clear_message(kind: str) -> None:
    table, y, text = WRONG[kind]
    with pytest.raises((TableError, ValueError), match=text) as caught:
        certus.compare(table, y, models=[Ridge()])
    assert len(str(caught.value)) < 200


def test_compare_finds_the_labels_of_objects() -> None:
    y = pd.Series(LABELS, dtype="category")
    found = certus.compare(frame().to_pandas(), y, models=[LogisticRegression()])
    assert set(found.model.predict(frame().to_pandas())) <= {"up", "down"}
