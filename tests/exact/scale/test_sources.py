"""Every source gives the blocks of its rows."""

from __future__ import annotations

import gc
import os
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from certus.blocks import total
from certus.blocks.kept import Kept, kept_within
from certus.blocks.keys import RowBlock
from certus.linear_model import Ridge
from certus.scale import blocks


@pytest.fixture
def frame() -> pl.DataFrame:
    rng = np.random.default_rng(0)
    found = pl.DataFrame(rng.normal(size=(500, 3)), schema=list("abc"))
    return found.with_columns(y=pl.col("a") - pl.col("b") + 0.1 * pl.col("c"))


def test_every_source_gives_the_same_fit(frame: pl.DataFrame, tmp_path: Path) -> None:
    from pyarrow import dataset

    parquet, csv = tmp_path / "rows.parquet", tmp_path / "rows.csv"
    frame.write_parquet(parquet, row_group_size=120)
    frame.write_csv(csv)
    X, y = frame.select("a", "b", "c").to_numpy(), frame["y"].to_numpy()
    whole = Ridge(alpha=2.0).fit(X, y)
    for source in (parquet, csv, frame.lazy(), dataset.dataset(parquet), [csv]):
        table = blocks(source, "y")
        assert table.shape == (500, 3) and list(table.names) == list("abc")
        model = Ridge(alpha=2.0).fit(table)
        assert np.allclose(model.coef_, whole.coef_, rtol=1e-10)
    by_path: Any = Ridge(alpha=2.0).fit(csv, target="y")  # type: ignore[call-arg]
    assert by_path.coef_.tobytes() == model.coef_.tobytes()


def test_scratch_files_go_with_their_blocks(frame: pl.DataFrame) -> None:
    table: Any = blocks(frame.lazy(), "y")
    folder, view = table.scratch[0].folder, table.targets()
    del table
    gc.collect()
    assert os.path.isdir(folder) and sum(1 for _ in view.map(len)) == 1
    del view
    gc.collect()
    assert not os.path.exists(folder)


def test_decoded_blocks_keep_to_their_memory(
    frame: pl.DataFrame, tmp_path: Path
) -> None:
    path = tmp_path / "rows.parquet"
    frame.write_parquet(path, row_group_size=100)
    for room, most in ((None, 5), (0.0, 0), (7000.0, 2)):  # 3,200 bytes each
        table: Any = blocks(path, "y")
        with kept_within(room):
            first = total(table, _sums)
            assert np.array_equal(total(table, _sums), first)
        assert len(table._kept._found) == most


def test_a_block_is_decoded_once() -> None:
    kept, read = Kept(), []
    block = RowBlock(np.zeros((2, 2)), None, None)

    def once(key: Any) -> RowBlock:
        read.append(key)
        return block

    key: Any = ("a", 0, 0, 0, 2)
    assert kept.get(key, once) is kept.get(key, once) is block
    assert read == [key]


def _sums(block: Any) -> Any:
    return block.X.sum(axis=0)


def test_a_dataset_is_read_with_its_filter_and_its_partitions(
    frame: pl.DataFrame, tmp_path: Path
) -> None:
    import pyarrow as pa
    from pyarrow import dataset

    parquet, folder = tmp_path / "rows.parquet", tmp_path / "by_group"
    frame.write_parquet(parquet, row_group_size=120)
    some = dataset.dataset(parquet).filter(dataset.field("a") > 0)
    table = blocks(some, "y")
    kept = frame.filter(pl.col("a") > 0)
    assert len(table) == len(kept) < len(frame)
    read = np.vstack([table.read(key).X for key in table.keys])
    assert np.array_equal(read, kept.select("a", "b", "c").to_numpy())

    groups = frame.with_columns(g=pl.Series(np.arange(500) % 3))
    hive = dataset.partitioning(pa.schema([("g", pa.int64())]), flavor="hive")
    dataset.write_dataset(
        groups.to_arrow(), folder, format="parquet", partitioning=hive
    )
    table = blocks(dataset.dataset(folder, partitioning="hive"), "y")
    assert table.shape == (500, 4) and table.names[-1] == "g"
    X = np.vstack([table.read(key).X for key in table.keys])
    assert np.bincount(X[:, 3].astype(int)).tolist() == [167, 167, 166]

    first = next(iter(dataset.dataset(parquet).get_fragments()))
    part = dataset.FileSystemDataset(
        [first.subset(row_group_ids=[1])], first.physical_schema, first.format
    )
    assert len(blocks(part, "y")) == 120
