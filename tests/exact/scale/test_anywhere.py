"""The example for clusters: one script here and on a Dask cluster, the same digest."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest

distributed = pytest.importorskip("distributed")
EXAMPLE = Path(__file__).parents[3] / "examples" / "clusters" / "anywhere.py"


@pytest.fixture(scope="module")
def example() -> Any:
    about = importlib.util.spec_from_file_location("anywhere", EXAMPLE)
    assert about is not None and about.loader is not None
    module = importlib.util.module_from_spec(about)
    about.loader.exec_module(module)
    return module


def test_the_example_gives_the_same_digest_here_and_on_a_cluster(
    example: Any, tmp_path: Path, capsys: Any
) -> None:
    example.write_rows(tmp_path, files=2, rows=4_000)
    here = example.main(None, str(tmp_path))
    local = capsys.readouterr().out
    cluster = distributed.LocalCluster(
        n_workers=2,
        threads_per_worker=1,
        dashboard_address="127.0.0.1:0",
        host="127.0.0.1",
    )
    with cluster:
        there = example.main(cluster.scheduler_address, str(tmp_path))
    remote = capsys.readouterr().out
    assert here == there and len(here) == 12
    for text in (local, remote):
        assert f"digest of the coefficients: {here}" in text and "solved" in text
    assert "the same bits" in remote and "the same bits" not in local


def test_the_example_writes_its_rows_once(example: Any, tmp_path: Path) -> None:
    example.write_rows(tmp_path, files=1, rows=3_000)
    path = tmp_path / "part-0.parquet"
    first = path.stat().st_mtime_ns
    example.main(None, str(tmp_path))
    assert path.stat().st_mtime_ns == first
