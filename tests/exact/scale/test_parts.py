"""Parts of a table: every row in one, by a rule that any machine evaluates alike."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from certus.blocks.parts import PartBlocks, PartRule, count_parts
from certus.linear_model import Ridge
from certus.scale import blocks


def rows_of(table: Any) -> np.ndarray:
    return np.concatenate([table.read(key).X for key in table.keys])


@pytest.mark.parametrize("by", ["number", "content"])
def test_every_row_is_in_one_part(by: str) -> None:
    X = np.random.default_rng(0).normal(size=(2000, 3))
    table, rule = blocks(X, X[:, 0], rows=170), PartRule((0.2, 0.5), 4, by)
    counts = count_parts(table, rule)
    parts = [PartBlocks(table, rule, (i,), counts) for i in range(3)]
    found = np.concatenate([rows_of(part) for part in parts])
    assert np.array_equal(np.sort(found, axis=0), np.sort(X, axis=0))
    assert [part.shape[0] for part in parts] == counts.sum(axis=0).tolist()
    assert np.allclose(counts.sum(axis=0) / 2000, [0.2, 0.3, 0.5], atol=0.05)
    both = PartBlocks(table, rule, (0, 2), counts)
    assert len(both) == len(parts[0]) + len(parts[2])
    for key in both.keys:
        alone = both.only(key).read(key)
        assert np.array_equal(alone.X, both.read(key).X)
        assert np.array_equal(alone.y, alone.X[:, 0]) and len(alone.X) == key.rows


def test_copies_stay_together_and_blocks_do_not_matter() -> None:
    X = np.random.default_rng(0).normal(size=(500, 2)).round(1)
    rule = PartRule((0.5,))
    for rows in (40, 500):
        table = blocks(X, rows=rows)
        found = PartBlocks(table, rule, (0,), count_parts(table, rule))
        kept = {tuple(row) for row in rows_of(found)}
        assert len(found) == sum(tuple(row) in kept for row in X)
        assert 100 < len(kept) < 400
    negative = np.where(X == 0, -0.0, X)
    table = blocks(negative)
    assert len(PartBlocks(table, rule, (0,), count_parts(table, rule))) == len(found)


@pytest.mark.parametrize("by", ["number", "content"])
def test_other_blocks_give_the_same_part(by: str) -> None:
    X, rule = np.arange(500.0).reshape(-1, 1), PartRule((0.5,), by=by)
    found = []
    for rows in (40, 170, 500):
        table = blocks(X, rows=rows)
        part = PartBlocks(table, rule, (0,), count_parts(table, rule))
        found.append(rows_of(part)[:, 0].tolist())
    assert found[0] == found[1] == found[2] and 200 < len(found[0]) < 300


def test_a_seed_gives_another_division() -> None:
    table = blocks(np.arange(400.0).reshape(-1, 1))
    found = []
    for seed in (0, 1):
        rule = PartRule((0.5,), seed)
        part = PartBlocks(table, rule, (0,), count_parts(table, rule))
        found.append(set(rows_of(part)[:, 0]))
    assert 50 < len(found[0] & found[1]) < 150


def test_a_model_of_a_part_is_that_of_its_rows(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    frame = pl.DataFrame(rng.normal(size=(900, 3)), schema=list("aby"))
    frame.write_parquet(tmp_path / "t.parquet", row_group_size=100)
    table, rule = blocks(tmp_path / "t.parquet", "y"), PartRule((0.3,))
    part = PartBlocks(table, rule, (1,), count_parts(table, rule))
    X = rows_of(part)
    y = np.concatenate([part.read(key).y for key in part.keys])
    model, whole = Ridge().fit(part), Ridge().fit(X, y)
    assert np.allclose(model.coef_, whole.coef_, rtol=1e-9)
    assert model.certificate_.met and model.certificate_.n_samples == len(X)
    assert part.digest() and part.digest() != table.digest()
