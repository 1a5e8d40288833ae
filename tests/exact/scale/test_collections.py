"""Dask collections and iterators give the bits of arrays or files of equal blocks."""

from __future__ import annotations

import gc
import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

import certus
from certus.blocks.files import FileChanged
from certus.linear_model import LogisticRegression, Ridge
from certus.scale import Dask, Processes, blocks

pytest.importorskip("distributed")
da = pytest.importorskip("dask.array")


def rows(n: int = 900) -> tuple[Any, Any, Any]:
    rng = np.random.default_rng(5)
    X = rng.normal(size=(n, 4)) + np.arange(4)
    z = X @ [1.0, -2.0, 0.5, 0.0] + rng.normal(size=n)
    return X, z, rng.uniform(1, 2, size=n)


def bits(model: Any) -> bytes:
    found = (model.coef_, model.intercept_, model.certificate_.value)
    return b"".join(np.asarray(each).tobytes() for each in found)


# -- Dask ------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.int64])
def test_partitions_of_an_array_are_blocks(dtype: Any) -> None:
    X, y, s = rows()
    X = (10 * X).astype(dtype)
    plain = blocks(X, y, sample_weight=s, rows=200)
    here = bits(Ridge().fit(plain))
    lazy = da.from_array(X, chunks=(200, 2))  # columns are joined
    cut = da.from_array(y, chunks=300)  # cut again as the rows are
    for target in (y, cut):
        table = blocks(lazy, target, sample_weight=s)
        assert [key.rows for key in table.keys] == [200, 200, 200, 200, 100]
        assert table.dtype == plain.dtype and table.shape == plain.shape
        assert bits(Ridge().fit(table)) == here


def test_lengths_that_dask_does_not_know_are_counted() -> None:
    X, y, _ = rows()
    kept = X[:, 0] > 0.5
    lazy, labels = da.from_array(X, chunks=(200, 4)), da.from_array(y, chunks=200)
    which = da.from_array(kept, chunks=200)
    table = blocks(lazy[which], labels[which])
    assert len(table) == kept.sum()
    found = np.concatenate([table.read(key).X for key in table.keys])
    assert np.array_equal(found, X[kept])
    whole = Ridge().fit(X[kept], y[kept])
    assert np.allclose(Ridge().fit(table).coef_, whole.coef_, rtol=1e-10)
    none = lazy[da.from_array(X[:, 0] > (np.arange(900) < 400) * 99, chunks=200)]
    assert len(blocks(none).keys) == 3  # two partitions have no rows


@pytest.mark.filterwarnings("ignore:The inplace keyword")  # in Dask, of pandas
def test_partitions_of_a_frame_are_those_of_its_file(tmp_path: Path) -> None:
    dd = pytest.importorskip("dask.dataframe")
    X, y, s = rows()
    frame = pl.DataFrame(X, schema=list("abcd")).with_columns(
        y=pl.Series(np.where(y > 0, "up", "down")), s=pl.Series(s), n=pl.lit("text")
    )
    path = tmp_path / "rows.parquet"
    frame.write_parquet(path, row_group_size=150)
    of_file = blocks(path, "y", sample_weight="s", columns=list("abcd"))
    lazy = dd.read_parquet(path, split_row_groups=1)
    table = blocks(lazy, "y", sample_weight="s", columns=list("abcd"))
    assert [key.rows for key in table.keys] == [150] * 6
    model = LogisticRegression().fit(table)
    assert bits(model) == bits(LogisticRegression().fit(of_file))
    assert list(model.feature_names_in_) == list("abcd")
    assert certus.certify(model, of_file).met
    some = blocks(lazy[lazy.a > 0.3], "y", columns=list("ab"))
    assert len(some) == (X[:, 0] > 0.3).sum()
    with pytest.raises(ValueError, match="'n' of the Dask frame holds"):
        blocks(lazy, "y")
    with pytest.raises(ValueError, match="target must be the name of a column"):
        blocks(lazy, "z", columns=["a"])
    gaps = blocks(lazy.assign(a=lazy.a.where(lazy.a > 0)), "y", columns=["a", "b"])
    with pytest.raises(ValueError, match="missing values in a partition"):
        Ridge().fit(gaps)


def test_a_block_carries_its_own_tasks_only() -> None:
    lazy = da.random.default_rng(0).normal(size=(40_000, 4), chunks=(100, 4))
    table = blocks(lazy, np.zeros(40_000))
    one = table.only(table.keys[7])
    assert len(pickle.dumps(one)) < 8_000
    assert np.array_equal(one.read(table.keys[7]).X, lazy[700:800].compute())


def test_a_cluster_computes_partitions_and_gives_the_bits_of_here() -> None:
    distributed = pytest.importorskip("distributed")
    X = da.random.default_rng(0).normal(size=(3_000, 4), chunks=(500, 4))
    y = X @ np.arange(4.0)
    here = bits(Ridge().fit(blocks(X, y)))
    cluster = distributed.LocalCluster(
        n_workers=1,
        threads_per_worker=1,
        dashboard_address="127.0.0.1:0",
        host="127.0.0.1",
    )
    with cluster, distributed.Client(cluster) as client:
        with certus.config_context(engine=client):
            assert bits(Ridge().fit(blocks(X, y))) == here
        held = X.persist()
        with pytest.raises(ValueError, match="lie in the memory of workers"):
            blocks(held, y)
        large = blocks(da.from_array(np.zeros((300_000, 4)), chunks=(100_000, 4)))
        with pytest.raises(ValueError, match="Write it to Parquet"):
            next(Dask(client).run(large, len, ()))


def test_other_collections_are_refused_with_what_to_do() -> None:
    bag = pytest.importorskip("dask.bag")
    X, y, _ = rows()
    lazy = da.from_array(X, chunks=(100, 4))
    with pytest.raises(TypeError, match="write it to Parquet and pass the path"):
        blocks(bag.from_sequence([1, 2]))
    with pytest.raises(TypeError, match="rows and columns"):
        blocks(da.from_array(y, chunks=100))
    with pytest.raises(ValueError, match="made of many others"):
        blocks(lazy - lazy.mean(axis=0), y)  # each block would need all
    with pytest.raises(ValueError, match="target has 10 values"):
        blocks(lazy, y[:10])
    with pytest.raises(ValueError, match="Names are for tables"):
        blocks(lazy, "y")
    with pytest.raises(ValueError, match="rows is for arrays"):
        blocks(lazy, y, rows=10)


# -- iterators -------------------------------------------------------------------------


def pieces(*arrays: Any, size: int = 130) -> Any:
    """A function that returns an iterator over pieces of the rows."""

    def start() -> Iterator[Any]:
        for first in range(0, len(arrays[0]), size):
            found = tuple(each[first : first + size] for each in arrays)
            yield found if len(found) > 1 else found[0]

    return start


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_pieces_of_an_iterator_give_the_bits_of_arrays(dtype: Any) -> None:
    X, y, s = rows()
    X = X.astype(dtype)
    plain = blocks(X, y, sample_weight=s, rows=130)
    table = blocks(pieces(X, y, s))
    assert table.shape == plain.shape and table.dtype == plain.dtype
    assert bits(Ridge().fit(table)) == bits(Ridge().fit(plain))
    labels = np.where(y > 0, "up", "down").astype(object)
    model = LogisticRegression().fit(blocks(pieces(X, labels)))
    again = LogisticRegression().fit(blocks(X, labels.astype(str), rows=130))
    assert bits(model) == bits(again)
    assert (
        len(blocks(pieces(X)().__iter__())) == 900
    )  # an iterator without its function


@pytest.mark.parametrize("kind", ["polars", "pandas", "pyarrow"])
def test_tables_of_an_iterator_give_the_bits_of_arrays(kind: str) -> None:
    X, y, s = rows()
    frame = pl.DataFrame(X, schema=list("abcd")).with_columns(
        y=pl.Series(np.where(y > 0, "up", "down")), s=pl.Series(s)
    )
    turn: Any = {
        "polars": lambda t: t,
        "pandas": lambda t: t.to_pandas(),
        "pyarrow": lambda t: t.to_arrow(),
    }[kind]

    def start() -> Iterator[Any]:
        yield from (turn(frame[i : i + 150]) for i in range(0, 900, 150))

    table = blocks(start, "y", sample_weight="s")
    arrays = blocks(X, np.where(y > 0, "up", "down"), sample_weight=s, rows=150)
    model = LogisticRegression().fit(table)
    assert bits(model) == bits(LogisticRegression().fit(arrays))
    assert list(model.feature_names_in_) == list("abcd")
    with pytest.raises(ValueError, match="'y' of the iterator's tables holds String"):
        blocks(start)
    with pytest.raises(ValueError, match="beside the target"):
        blocks(start, "y", columns=["a", "y"])
    with pytest.raises(ValueError, match="has no column 'z'; it has a, b"):
        blocks(start, "z")
    short = frame.with_columns(a=pl.when(pl.col("a") > 0).then(pl.col("a")))
    with pytest.raises(ValueError, match="'a' of the iterator's tables has missing"):
        blocks(lambda: iter([turn(short)]), "y")


def test_pieces_are_read_by_other_processes_and_checkpoints(tmp_path: Path) -> None:
    X, y, _ = rows()
    table: Any = blocks(pieces(X, y))
    here = bits(Ridge().fit(table))
    with Processes(1) as engine, certus.config_context(engine=engine):
        assert bits(Ridge().fit(table)) == here
    assert table.digest() == blocks(pieces(X, y)).digest() != b""
    assert table.digest() != blocks(pieces(X + 1, y)).digest()
    folder = Path(table.keys[0].source)
    assert folder.is_dir()
    table._kept._found.clear()
    (folder / "000003-X.npy").unlink()
    with pytest.raises(FileChanged, match="000003-X"):
        table.read(table.keys[3])
    del table
    gc.collect()
    assert not folder.exists()


def test_pieces_that_do_not_fit_are_reported() -> None:
    X, y, _ = rows()
    cases: list[tuple[list[Any], str]] = [
        ([(X, y), (X[:, :2], y)], "has 2 columns, but the first has 4"),
        ([(X, y), X], "if, and only if, the first has"),
        ([(X, y[:5])], r"must have one value for each of its 900 rows"),
        ([np.array(["a"])], "must be numbers in rows and columns"),
        ([], "has no pieces"),
        ([X[:0]], "has no rows"),
        ([(X, y, y, y)], "must be X, "),
    ]
    for found, message in cases:
        with pytest.raises(ValueError, match=message):
            blocks(lambda found=found: iter(found))  # type: ignore[misc]
    with pytest.raises(ValueError, match="target is for an iterator of tables"):
        blocks(pieces(X), y)
    tables = [pl.DataFrame({"a": [1.0]}), pl.DataFrame({"b": [1.0]})]
    with pytest.raises(ValueError, match="has no column 'a'"):
        blocks(lambda: iter(tables))
