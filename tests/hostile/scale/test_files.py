"""Files by blocks: columns, damage, and changes under a fit."""

from __future__ import annotations

import os
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from certus import certify, load, set_config
from certus.blocks.files import FileChanged
from certus.linear_model import LogisticRegression, Ridge
from certus.scale import blocks

pytest.importorskip("pyarrow")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    rng = np.random.default_rng(0)
    for part in range(3):
        X = rng.normal([0.0, 50.0, -3.0], size=(500, 3))
        frame = pl.DataFrame(X, schema=["a", "b", "c"]).with_columns(
            y=X @ [1.0, 2.0, 3.0] + rng.normal(size=500),
            kind=pl.Series(np.where(X[:, 0] > 0, "yes", "no")),
            s=rng.integers(1, 4, 500),
        )
        frame.write_parquet(tmp_path / f"part-{part}.parquet", row_group_size=200)
    return tmp_path


def rows_of(folder: Path, **options: Any) -> Any:
    options = {"target": "y", "columns": ["a", "b", "c"], **options}
    return blocks(str(folder / "*.parquet"), **options)


def frame_of(folder: Path) -> pl.DataFrame:
    return pl.concat(
        [pl.read_parquet(path) for path in sorted(folder.glob("*.parquet"))]
    )


def test_files_equal_arrays(folder: Path) -> None:
    frame = frame_of(folder)
    X, y = frame.select("a", "b", "c").to_numpy(), frame["y"].to_numpy()
    s = frame["s"].to_numpy().astype(float)
    rows = rows_of(folder, sample_weight="s")
    assert rows.shape == (1500, 3) and len(rows.keys) == 9
    model = Ridge().fit(rows)
    assert np.allclose(model.coef_, Ridge().fit(X, y, s).coef_)
    assert list(model.feature_names_in_) == ["a", "b", "c"]
    assert certify(model, X, y, s).met
    label = LogisticRegression().fit(rows_of(folder, target="kind"))
    assert list(label.classes_) == ["no", "yes"] and label.certificate_.met


def test_saved_models_are_certified_on_files(folder: Path, tmp_path: Path) -> None:
    rows = rows_of(folder)
    model = Ridge().fit(rows)
    path = model.save(tmp_path / "model.certus")
    found = certify(load(path), rows)
    assert found.met and found.value == model.certificate_.value


def test_feather(folder: Path, tmp_path: Path) -> None:
    frame_of(folder).write_ipc(tmp_path / "all.feather")
    model = Ridge().fit(blocks(tmp_path / "all.feather", "y", columns=["a", "b"]))
    assert model.certificate_.met and len(model.coef_) == 2


def test_unknown_columns_and_files(folder: Path) -> None:
    with pytest.raises(ValueError, match="no column 'prize' for target; it has a, b"):
        rows_of(folder, target="prize")
    with pytest.raises(FileNotFoundError, match="No file matches"):
        blocks(str(folder / "*.parq"), "y")
    with pytest.raises(ValueError, match=r"'kind'.*holds .*string.*Encode it"):
        Ridge().fit(rows_of(folder, columns=None, sample_weight=None))
    (folder / "rows.txt").write_text("a,y\n1,2\n")
    with pytest.raises(ValueError, match="sink_parquet"):
        blocks(folder / "rows.txt", "y")


def test_the_target_among_the_columns_is_refused(folder: Path) -> None:
    with pytest.raises(ValueError, match="columns must not name the target 'y'"):
        rows_of(folder, columns=["a", "y"])
    with pytest.raises(ValueError, match="columns must not name the target 'y'"):
        Ridge().fit(folder, target="y", columns=["y", "a"])  # type: ignore[call-arg]


def test_files_beside_the_rows_are_ignored(folder: Path) -> None:
    """Spark writes ``_SUCCESS`` and check sums that begin with a dot."""
    for name in ("_SUCCESS", ".part-0.parquet.crc", "_metadata"):
        (folder / name).write_bytes(b"")
    for place in (folder, str(folder / "*")):
        assert blocks(place, "y", columns=["a", "b"]).shape == (1500, 2)


def _elsewhere(table: Any) -> Any:
    """The blocks as a worker gets them."""
    return pickle.loads(pickle.dumps(table))


def test_copies_with_another_time_are_the_same_file(folder: Path) -> None:
    """Each worker has its own copy; only its time differs."""
    rows, path = rows_of(folder), folder / "part-1.parquet"
    key = next(key for key in rows.keys if key.source == str(path))
    here = rows.read(key)
    os.utime(path, ns=(1, 1))
    with pytest.raises(FileChanged, match=r"part-1\.parquet changed"):
        rows.only(key).read(key)  # in one process the time counts
    assert np.array_equal(_elsewhere(rows).read(key).X, here.X)
    frame = pl.read_parquet(path)
    frame[::-1].write_parquet(path, row_group_size=200)
    with pytest.raises(FileChanged, match=r"part-1\.parquet changed"):
        _elsewhere(rows).read(key)


def test_missing_values_name_file_and_column(folder: Path) -> None:
    frame = pl.DataFrame({"a": [1.0, None], "b": [1.0, 2.0], "c": [0.0, 0.0]})
    frame.with_columns(y=pl.Series([1.0, 2.0])).write_parquet(folder / "z.parquet")
    with pytest.raises(ValueError, match=r"'a' of .*z\.parquet.*1 missing"):
        Ridge().fit(rows_of(folder))


def test_files_that_change_or_vanish_are_named(folder: Path) -> None:
    rows = rows_of(folder)
    path = folder / "part-1.parquet"
    os.utime(path, ns=(1, 1))
    with pytest.raises(FileChanged, match=r"part-1\.parquet changed"):
        Ridge().fit(rows)
    path.unlink()
    with pytest.raises(FileChanged, match=r"part-1\.parquet is gone"):
        Ridge().fit(rows)


def test_cut_files_are_named(folder: Path) -> None:
    path = folder / "part-2.parquet"
    path.write_bytes(path.read_bytes()[:-200])
    with pytest.raises(Exception, match=r"[Pp]arquet"):
        rows_of(folder)


def test_files_with_other_columns(folder: Path) -> None:
    pl.DataFrame({"a": [1.0], "y": [1.0]}).write_parquet(folder / "x.parquet")
    with pytest.raises(ValueError, match=r"x\.parquet has no column 'b'"):
        rows_of(folder)


def test_an_unknown_engine_is_refused() -> None:
    with pytest.raises(ValueError, match="engine must be 'local'"):
        set_config(engine=3)
