"""A Dask cluster of two processes gives the bits of one, also when a worker dies."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from certus import config_context, get_config
from certus.blocks.local import run_here
from certus.cli import main
from certus.linear_model import LogisticRegression, Ridge
from certus.scale import Dask, blocks

distributed = pytest.importorskip("distributed")


@pytest.fixture(scope="module")
def client() -> Iterator[Any]:
    cluster = distributed.LocalCluster(
        n_workers=2,
        threads_per_worker=1,
        dashboard_address="127.0.0.1:0",
        host="127.0.0.1",
    )
    with cluster, distributed.Client(cluster) as client:
        yield client


@pytest.fixture
def rows(tmp_path: Path) -> Any:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(6000, 4))
    z = X @ [1.0, -1.0, 0.5, 0.0] + rng.normal(size=6000)
    frame = pl.DataFrame(X, schema=list("abcd")).with_columns(
        y=pl.Series(z), kind=pl.Series(np.where(z > 0.2, "in", "out"))
    )
    frame.write_parquet(tmp_path / "rows.parquet", row_group_size=300)
    return tmp_path / "rows.parquet"


def bits(model: Any) -> bytes:
    found = (model.coef_, model.intercept_, model.certificate_.value)
    return b"".join(np.asarray(each).tobytes() for each in found)


@pytest.mark.parametrize("kind", ["y", "kind"])
def test_the_same_bits_as_here(client: Any, rows: Path, kind: str) -> None:
    model: Any = Ridge() if kind == "y" else LogisticRegression()
    table = blocks(rows, kind, columns=list("abcd"))
    here = bits(model.fit(table))
    with config_context(engine=client):
        assert isinstance(get_config()["engine"], Dask)
        model.fit(table)
    assert bits(model) == here
    claim = model.certificate_["workers_agree"]
    assert claim.met and claim.value == 0.0 and "1 of 20 blocks" in claim.detail


class Counted:
    """Threads of this process; how many blocks the fit has summed."""

    done = 0

    def run(self, blocks: Any, work: Any, state: Any) -> Any:
        for part in run_here(blocks, work, state):
            self.done += work.__name__ == "_sums"
            yield part


def test_a_worker_that_dies_changes_nothing(client: Any, rows: Path) -> None:
    """It is killed when the fit has summed a third of its blocks."""
    table = blocks(rows, "kind", columns=list("abcd"))
    engine, deaths = Counted(), []
    with config_context(engine=engine):
        here = bits(LogisticRegression().fit(table))
    third = engine.done // 3
    assert third >= 10

    class Killing(Dask):
        done = 0

        def run(self, blocks: Any, work: Any, state: Any) -> Any:
            for part in super().run(blocks, work, state):
                self.done += work.__name__ == "_sums"
                if self.done == third and not deaths:
                    deaths.append(work.__name__)
                    worker = next(iter(client.cluster.workers.values()))
                    client.sync(worker.kill)
                yield part

    model, killing = LogisticRegression(), Killing(client)
    with config_context(engine=killing):
        model.fit(table)
    assert deaths == ["_sums"] and killing.done == engine.done
    assert bits(model) == here


def test_the_command_works_on_a_cluster_and_checks_without(
    client: Any, rows: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    monkeypatch.chdir(rows.parent)
    address = client.cluster.scheduler_address
    run = ["fit", rows.name, "--target", "kind", "--drop", "y", "--model", "logistic"]
    assert main([*run, "--cluster", address, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    claims = {claim["name"]: claim for claim in found["certificate"]["claims"]}
    assert "the same bits" in claims["workers_agree"]["detail"]
    assert main(["certify", "rows.certus", rows.name, "--json"]) == 0
    again = json.loads(capsys.readouterr().out)
    assert again["same_data"] and again["risk"] == found["comparison"]["risk"]
    gap = again["certificate"]["claims"][0]
    assert gap["value"] == claims["duality_gap"]["value"]


def test_large_arrays_do_not_travel(client: Any) -> None:
    X = np.zeros((200_000, 4))
    refused = pytest.raises(ValueError, match="Write it to Parquet")
    with config_context(engine=Dask(client)), refused:
        Ridge().fit(blocks(X, np.zeros(200_000)))
    with pytest.raises(TypeError, match=r"distributed\.Client"):
        Dask("tcp://127.0.0.1:1")
