"""What goes wrong in a long fit: the same bits, or one clear sentence, and no hang."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from sklearn.base import clone

from certus import config_context
from certus.blocks import local, total
from certus.blocks.files import FileChanged
from certus.blocks.local import run_here
from certus.certificate import Status
from certus.decomposition import PCA, TruncatedSVD
from certus.linear_model import LogisticRegression
from certus.scale import Dask, blocks
from certus.verify.recomputed import tagged


@pytest.fixture
def rows(tmp_path: Path) -> Path:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(3000, 3))
    kind = np.where(X @ [1.0, -1.0, 0.5] + rng.normal(size=3000) > 0.2, "in", "out")
    frame = pl.DataFrame(X, schema=list("abc")).with_columns(kind=pl.Series(kind))
    frame.write_parquet(tmp_path / "rows.parquet", row_group_size=300)
    return tmp_path / "rows.parquet"


def bits(model: Any) -> bytes:
    found = (model.coef_, model.intercept_, model.certificate_.value)
    return b"".join(np.asarray(each).tobytes() for each in found)


class Between:
    """Threads of this process; something happens before the third pass."""

    def __init__(self, happens: Callable[[], None]) -> None:
        self.happens, self.passes = happens, 0

    def run(self, blocks: Any, work: Any, state: Any) -> Iterator[Any]:
        self.passes += 1
        if self.passes == 3:
            self.happens()
        return iter(run_here(blocks, work, state))


def _change(path: Path) -> None:
    rng = np.random.default_rng(1)
    frame = pl.DataFrame(rng.normal(size=(3000, 3)), schema=list("abc"))
    frame = frame.with_columns(kind=pl.lit("in"))
    frame.write_parquet(path, row_group_size=300)


def _cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:2000])


def _damage(path: Path) -> None:
    """Other bytes with the old size and time, as a bad disk leaves them."""
    about = path.stat()
    content = bytearray(path.read_bytes())
    content[-400:] = bytes(400)
    path.write_bytes(bytes(content))
    os.utime(path, ns=(about.st_atime_ns, about.st_mtime_ns))


@pytest.mark.parametrize(
    ("happens", "said"),
    [
        (_change, r"rows\.parquet changed while it was in use \(part \d, rows from \d"),
        (_cut, r"rows\.parquet changed while it was in use \(part \d, rows from \d"),
        (Path.unlink, r"rows\.parquet is gone; its rows from \d"),
        (_damage, r"rows\.parquet, part \d, cannot be read"),
    ],
)
def test_a_file_that_changes_between_passes_is_named(
    rows: Path, happens: Any, said: str
) -> None:
    engine = Between(lambda: happens(rows))
    with config_context(engine=engine), pytest.raises(FileChanged, match=said):
        LogisticRegression().fit(blocks(rows, "kind"))
    assert engine.passes == 3


def _off(part: Any, name: str) -> Any:
    return part._replace(**{name: getattr(part, name) * 1.001})


_balanced = LogisticRegression(class_weight="balanced")
#: A model, a pass of its check, and what is wrong there by one in a thousand.
WRONG: dict[str, tuple[Any, str, Callable[[Any], Any]]] = {
    "first sums": (
        *(LogisticRegression(), "both_sums"),
        lambda found: (_off(found[0], "weight"), found[1]),
    ),
    "second sums": (
        *(LogisticRegression(), "both_sums"),
        lambda found: (found[0], _off(found[1], "squares")),
    ),
    "class weights": (_balanced, "of_classes", lambda found: found * [1.001, 1.0]),
    "moments": (PCA(2), "row_sums", lambda found: _off(found, "products")),
    "vectors": (TruncatedSVD(2), "row_sums", lambda found: _off(found, "squares")),
}


@pytest.mark.parametrize("kind", WRONG)
def test_a_worker_that_computes_otherwise_is_refuted(rows: Path, kind: str) -> None:
    model, name, wrong = WRONG[kind]
    seen: list[int] = []

    class Wrong:
        def run(self, blocks: Any, work: Any, state: Any) -> Iterator[Any]:
            for part in run_here(blocks, work, state):
                if work is tagged and state[0].__name__ == name:
                    part = part[0], wrong(part[1])
                    seen.append(1)
                yield part

    labels = isinstance(model, LogisticRegression)
    table = blocks(rows, "kind" if labels else None, columns=list("abc"))
    with config_context(engine=Wrong(), on_uncertified="ignore"):
        model = clone(model).fit(table)
    claim = model.certificate_["workers_agree"]
    assert len(seen) >= 10 and "1 of 10 blocks" in claim.detail
    assert claim.met is False and "sums differ by" in claim.detail
    assert model.certificate_.status is Status.REFUTED
    with config_context(engine=Between(lambda: None)):
        model = clone(model).fit(table)
    claim = model.certificate_["workers_agree"]
    assert claim.met and "the same bits" in claim.detail


def test_a_read_that_never_returns_is_named(
    rows: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local, "LIMIT", 0.3)
    release = threading.Event()

    def stuck(block: Any) -> int:
        release.wait(30)
        return 0

    began = time.monotonic()
    late = pytest.raises(TimeoutError, match=r"rows\.parquet, part 0 .*within 0\.3 s")
    with late:
        total(blocks(rows, "kind"), stuck)
    release.set()
    assert time.monotonic() - began < 15

    def refuses(block: Any) -> int:
        raise TimeoutError("of the work itself")

    with pytest.raises(TimeoutError, match="of the work itself"):
        total(blocks(rows, "kind"), refuses)


# -- on a cluster ------------------------------------------------------------------

distributed = pytest.importorskip("distributed")


@pytest.fixture(scope="module")
def client() -> Iterator[Any]:
    cluster = distributed.LocalCluster(
        n_workers=1,
        threads_per_worker=1,
        dashboard_address="127.0.0.1:0",
        host="127.0.0.1",
    )
    with cluster, distributed.Client(cluster) as client:
        yield client


def _quick() -> LogisticRegression:
    """Three passes of a fit, and two of the check."""
    return LogisticRegression(tol=0.05)


@pytest.mark.slow  # waits for a cluster that loses something
def test_a_worker_that_joins_changes_nothing(client: Any, rows: Path) -> None:
    table = blocks(rows, "kind")
    here = bits(_quick().fit(table))

    class Growing(Dask):
        passes = 0

        def run(self, blocks: Any, work: Any, state: Any) -> Iterator[Any]:
            self.passes += 1
            if self.passes == 2:
                client.cluster.scale(2)
            return super().run(blocks, work, state)

    with config_context(engine=Growing(client)):
        assert bits(_quick().fit(table)) == here
    client.wait_for_workers(2, timeout=60)


@pytest.mark.slow  # waits for a cluster that loses something
def test_a_slow_worker_changes_nothing(client: Any, rows: Path) -> None:
    table = blocks(rows, "kind")
    here = bits(_quick().fit(table))
    client.wait_for_workers(2, timeout=60)
    slow = sorted(client.scheduler_info(n_workers=-1)["workers"])[0]

    class Slowed(Dask):
        def run(self, blocks: Any, work: Any, state: Any) -> Iterator[Any]:
            return super().run(blocks, _late, (slow, work, state))

    with config_context(engine=Slowed(client)):
        assert bits(_quick().fit(table)) == here


def _late(block: Any, slow: str, work: Any, state: Any) -> Any:
    if distributed.get_worker().address == slow:
        time.sleep(0.03)
    return work(block, *state)


@pytest.mark.slow  # waits for a cluster that loses something
def test_a_block_that_ends_its_workers_is_named(client: Any, rows: Path) -> None:
    """Dask ends a worker that runs out of memory as this one ends itself."""
    client.cluster.scheduler.allowed_failures = 0
    gave_up = pytest.raises(RuntimeError, match=r"gave up on .*rows\.parquet, part \d")
    with config_context(engine=Dask(client, timeout=60)), gave_up:
        total(blocks(rows, "kind"), _end)


def _end(block: Any) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.slow  # waits for a cluster that loses something
def test_a_block_that_takes_too_long_is_named(rows: Path) -> None:
    with _threads() as cluster, distributed.Client(cluster) as client:
        late = pytest.raises(
            TimeoutError, match=r"No worker finished .*part 0 .*0\.5 s"
        )
        with config_context(engine=Dask(client, timeout=0.5)), late:
            total(blocks(rows, "kind"), _sleep)


def _sleep(block: Any) -> None:
    time.sleep(3)


@pytest.mark.slow  # waits for a cluster that loses something
def test_a_lost_scheduler_ends_the_fit(rows: Path) -> None:
    began = time.monotonic()
    dask = pytest.importorskip("dask")
    with dask.config.set({"distributed.comm.timeouts.connect": "1s"}):
        cluster = _threads()
        client = distributed.Client(cluster)
        engine = _Losing(client, cluster)
        lost = pytest.raises(ConnectionError, match="connection to the Dask scheduler")
        with config_context(engine=engine), lost:
            LogisticRegression().fit(blocks(rows, "kind"))
        client.close(timeout=2)
    assert time.monotonic() - began < 60


class _Losing(Dask):
    """Its scheduler ends after twelve blocks."""

    def __init__(self, client: Any, cluster: Any) -> None:
        super().__init__(client, timeout=30)
        self.cluster, self.seen = cluster, 0

    def run(self, blocks: Any, work: Any, state: Any) -> Iterator[Any]:
        for part in super().run(blocks, work, state):
            self.seen += 1
            if self.seen == 12:
                self.cluster.close(timeout=5)
            yield part


def _threads() -> Any:
    return distributed.LocalCluster(
        n_workers=1,
        threads_per_worker=1,
        processes=False,
        dashboard_address="127.0.0.1:0",
    )
