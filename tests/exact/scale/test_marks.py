"""Groups and times of blocks: whole groups in one part, the last rows sealed."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from certus.blocks.marks import mark_rows
from certus.blocks.parts import PartBlocks, PartRule, count_parts, time_cuts
from certus.linear_model import Ridge
from certus.scale import blocks
from certus.selection.at_scale import LEARNT, SEALED, compare_blocks, divide


def frame(n: int = 3000) -> pl.DataFrame:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, 3))
    user = rng.integers(0, 60, size=n)
    found = pl.DataFrame(X, schema=list("abc")).with_columns(
        y=pl.Series(X @ [1.0, 2.0, 0.0] + user / 30 + rng.normal(size=n)),
        user=pl.Series([f"u{i}" for i in user]),
        number=pl.Series(user),
        day=pl.Series(rng.permutation(n)).cast(pl.Date),
    )
    return found.with_columns(hour=pl.col("day").cast(pl.Datetime("ms")))


@pytest.fixture
def file(tmp_path: Path) -> Path:
    frame().write_parquet(tmp_path / "rows.parquet", row_group_size=400)
    return tmp_path / "rows.parquet"


def part_of_rows(table: Any, rule: PartRule) -> np.ndarray:
    found = [rule.parts(table.read(key), key.first) for key in table.keys]
    return np.concatenate(found)


@pytest.mark.parametrize("column", ["user", "number"])
def test_a_group_is_in_one_part_however_it_is_read(file: Path, column: str) -> None:
    table = blocks(file, "y", columns=list("abc"), groups=column)
    rule = PartRule((0.3, 0.6), by="groups")
    parts, names = part_of_rows(table, rule), frame()[column].to_numpy()
    for name in np.unique(names):
        assert len(set(parts[names == name])) == 1
    assert set(parts) == {0, 1, 2}
    array = blocks(frame().select("a", "b").to_numpy(), groups=names, rows=170)
    assert np.array_equal(part_of_rows(array, rule), parts)
    counts = count_parts(table, rule)
    assert counts.sum(axis=0).tolist() == np.bincount(parts).tolist()
    sealed = PartBlocks(table, rule, (0,), counts)
    key = sealed.keys[1]
    assert len(sealed.only(key).read(key).mark) == key.rows  # type: ignore[arg-type]


@pytest.mark.parametrize("column", ["day", "hour"])
def test_the_last_rows_are_sealed(file: Path, column: str) -> None:
    table = blocks(file, "y", columns=list("abc"), time=column)
    cuts = time_cuts(table, (0.2, 0.4))
    parts = part_of_rows(table, PartRule((0.2, 0.4), by="time", cuts=cuts))
    days = frame()["day"].to_physical().to_numpy()
    assert days[parts == 2].max() < days[parts == 1].min()
    assert days[parts == 1].max() < days[parts == 0].min()
    assert np.allclose(np.bincount(parts) / 3000, [0.2, 0.2, 0.6], atol=2e-3)


def test_equal_times_stay_together() -> None:
    time = np.repeat([1.0, 2.0, 3.0], [500, 400, 100])
    table = blocks(np.zeros((1000, 1)), time=time, rows=90)
    cuts = time_cuts(table, (0.2, 0.4))
    parts = part_of_rows(table, PartRule((0.2, 0.4), by="time", cuts=cuts))
    for value in (1.0, 2.0, 3.0):
        assert len(set(parts[time == value])) == 1


@pytest.mark.parametrize("role", ["groups", "time"])
def test_a_comparison_keeps_them(file: Path, role: str) -> None:
    column = {"groups": "user", "time": "day"}[role]
    table = blocks(file, "y", columns=list("abc"), **{role: column})
    found = compare_blocks(table, "y", models={"ridge": Ridge()})
    assert getattr(found.split, role) == column
    assert found.record()[role] == column and found.split.rule.by == role
    parts = divide(table, found.split.rule, count_parts(table, found.split.rule))
    read = [
        np.concatenate([part.read(key).mark for key in part.keys])  # type: ignore[misc]
        for part in parts
    ]
    if role == "groups":
        assert not set(read[SEALED]) & set(read[LEARNT])
    else:
        assert read[LEARNT].max() < read[SEALED].min()
    plain = compare_blocks(
        blocks(file, "y", columns=list("abc")), "y", models={"ridge": Ridge()}
    )
    texts = [str(claim) for claim in found.risk]
    assert texts != [str(claim) for claim in plain.risk]
    assert role == "groups" or all(c.strength.name != "STATISTICAL" for c in found.risk)


def test_a_fit_to_all_rows_uses_neither(file: Path) -> None:
    plain = Ridge().fit(blocks(file, "y", columns=list("abc")))
    for roles in ({"groups": "user"}, {"time": "day"}):
        model = Ridge().fit(blocks(file, "y", columns=list("abc"), **roles))
        assert model.coef_.tobytes() == plain.coef_.tobytes()


def test_a_column_that_names_groups_is_left_out_of_X(file: Path) -> None:
    roles = {"target": "y", "groups": "number", "columns": None}
    with pytest.raises(ValueError, match=r"holds .*, not numbers"):
        Ridge().fit(blocks(file, **roles))  # user and the dates are left
    table = blocks(file, "y", groups="user")
    assert "user" not in table.names and "number" in table.names
    named = blocks(file, "y", time="number", columns=["a", "number"])
    assert named.names == ("a", "number")  # unless they are named


def test_groups_and_times_that_are_unusable_are_refused(file: Path) -> None:
    X = np.zeros((100, 2))
    with pytest.raises(ValueError, match="cannot be used together"):
        blocks(X, groups=np.zeros(100), time=np.zeros(100))
    with pytest.raises(ValueError, match="groups has 5 values"):
        blocks(X, groups=np.zeros(5))
    with pytest.raises(ValueError, match="Names are for files"):
        blocks(X, groups="user")
    with pytest.raises(ValueError, match="no column 'none' for time"):
        blocks(file, "y", time="none")
    with pytest.raises(ValueError, match="groups is for arrays and files"):
        blocks(lambda: iter([X]), groups=np.zeros(100))
    with pytest.raises(ValueError, match="must hold dates or numbers"):
        blocks(X, time=["a"] * 100)
    with pytest.raises(ValueError, match="rows without a time"):
        blocks(X, time=np.full(100, np.nan))
    with pytest.raises(ValueError, match="rows without a group"):
        blocks(X, groups=np.array(["a", None] * 50, dtype=object))
    one = blocks(np.zeros((100, 1)), np.arange(100.0), groups=np.zeros(100))
    with pytest.raises(ValueError, match="too few groups"):
        compare_blocks(one)
    same = blocks(np.zeros((100, 1)), np.arange(100.0), time=np.zeros(100))
    with pytest.raises(ValueError, match="too few different times"):
        compare_blocks(same)
    plain = blocks(X)
    with pytest.raises(ValueError, match="have no groups"):
        PartRule((0.5,), by="groups").parts(plain.read(plain.keys[0]), 0)


def test_marks_do_not_depend_on_the_type() -> None:
    for values in ([3, 1, 3], np.array([3.0, 1.0, 3.0], np.float32)):
        assert np.array_equal(
            mark_rows(values, "groups", ""), mark_rows([3.0, 1.0, 3.0], "groups", "")
        )
    assert np.array_equal(
        mark_rows([-0.0], "groups", ""), mark_rows([0.0], "groups", "")
    )
    days = np.array([dt.date(2026, 1, 1), dt.date(2026, 1, 2)], "datetime64[D]")
    hours = days.astype("datetime64[ns]")
    assert np.array_equal(mark_rows(days, "time", ""), mark_rows(hours, "time", ""))
