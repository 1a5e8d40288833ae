"""Engines: what is accepted as one, processes of this machine, and limits of waits."""

from __future__ import annotations

import os
import signal
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import certus
from certus.blocks import total
from certus.engines import engine_of, processes
from certus.engines.tasks import within
from certus.linear_model import Ridge
from certus.scale import Dask, Processes, blocks


def rows(n: int = 900) -> Any:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, 3))
    return blocks(X, X @ [1.0, 2.0, 3.0] + rng.normal(size=n), rows=100)


@pytest.fixture(scope="module")
def engine() -> Iterator[Processes]:
    with Processes(2) as engine:
        yield engine


class _Client:
    """What is asked of a ``distributed.Client``; its ``run`` is not an engine's."""

    asynchronous, status = False, "running"

    def submit(self, *args: Any, **options: Any) -> Any: ...

    def run(self, function: Any, *args: Any, **options: Any) -> Any:
        raise AssertionError("Client.run runs a function on every worker")

    def scheduler_info(self, n_workers: int = 5) -> Any:
        time.sleep(30)


def test_a_client_becomes_an_engine() -> None:
    client = _Client()
    with certus.config_context(engine=client):
        found = certus.get_config()["engine"]
    assert isinstance(found, Dask) and found.client is client
    assert engine_of(found) is found


@pytest.mark.parametrize("given", ["dask", 3, Path(), type("R", (), {"run": print})()])
def test_other_objects_are_refused(given: Any) -> None:
    with pytest.raises(ValueError, match="engine must be 'local'"):
        certus.set_config(engine=given)


def test_an_object_with_run_is_an_engine() -> None:
    class Here:
        def run(self, blocks: Any, work: Any, state: Any) -> Any:
            return (work(blocks.read(key), *state) for key in reversed(blocks.keys))

    table = rows()
    with certus.config_context(engine=Here()):
        sums = list(table.map(_first))
    assert sums == list(table.map(_first))[::-1]


def _first(block: Any) -> float:
    return float(block.X[0, 0])


def test_a_scheduler_without_an_answer_ends_the_fit() -> None:
    began = time.monotonic()
    silent = pytest.raises(TimeoutError, match=r"gave no answer within 0\.2 s")
    with certus.config_context(engine=Dask(_Client(), timeout=0.2)), silent:
        Ridge().fit(rows())
    assert time.monotonic() - began < 10


def test_a_lost_scheduler_is_reported() -> None:
    client = _Client()
    client.status = "closed"
    lost = pytest.raises(ConnectionError, match="connection to the Dask scheduler")
    with certus.config_context(engine=client), lost:
        Ridge().fit(rows())


@pytest.mark.parametrize("ends", [None, TimeoutError("the file system is slow")])
def test_a_block_that_ends_after_a_wait_is_taken(ends: Any) -> None:
    class Late:
        status, asked = "pending", 0

        def result(self, timeout: float) -> int:
            self.asked += 1
            if self.asked <= 2:  # the wait is over; the result is on its way
                self.status = "finished" if ends is None else "error"
                if self.asked == 1 or ends is None:
                    raise TimeoutError("timed out after 2 s")
            if ends is not None:
                raise ends
            return 3

    engine, key = Dask(_Client()), rows().keys[0]
    if ends is None:
        assert engine._result(key, Late()) == 3
    else:
        with pytest.raises(TimeoutError, match="the file system is slow"):
            engine._result(key, Late())


def test_within_passes_values_and_errors_on() -> None:
    assert within(5.0, lambda: 3, "late") == 3
    with pytest.raises(KeyError):
        within(5.0, lambda: {}[1], "late")


# -- processes ------------------------------------------------------------------------


def test_processes_give_the_bits_of_threads(engine: Processes) -> None:
    table = rows()
    here = Ridge().fit(table)
    with certus.config_context(engine=engine):
        there = Ridge().fit(table)
    assert there.coef_.tobytes() == here.coef_.tobytes()
    assert there.intercept_ == here.intercept_
    claim = there.certificate_["workers_agree"]
    assert claim.met and "the same bits" in claim.detail


def _pid(block: Any) -> int:
    return os.getpid()


def _die_once(block: Any, flag: str) -> int:
    if not os.path.exists(flag):
        Path(flag).touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return int(block.X.shape[0])


def _die(block: Any) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _sleep(block: Any) -> None:
    time.sleep(60)


def _late(block: Any) -> None:
    raise TimeoutError("the file system is slow")


def test_a_process_that_dies_is_replaced(engine: Processes, tmp_path: Path) -> None:
    with certus.config_context(engine=engine):
        flag = str(tmp_path / "died")
        assert total(rows(), _die_once, flag) == 900
        assert Path(flag).exists()


def test_processes_that_always_die_end_the_fit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(processes, "LOSSES", 1)
    gave_up = pytest.raises(RuntimeError, match=r"again and again at array, part 0")
    with Processes(1) as engine, certus.config_context(engine=engine), gave_up:
        total(rows(100), _die)


def test_a_process_that_hangs_ends_the_fit() -> None:
    late = pytest.raises(TimeoutError, match="No process finished array, part 0")
    engine = Processes(1, timeout=0.5)
    with engine, certus.config_context(engine=engine), late:
        total(rows(100), _sleep)


def test_errors_of_the_work_are_passed_on(engine: Processes) -> None:
    with certus.config_context(engine=engine):
        with pytest.raises(TimeoutError, match="the file system is slow"):
            total(rows(), _late)
        assert len(set(rows().map(_pid)) - {os.getpid()}) in (1, 2)


def test_nothing_opens_a_port(
    engine: Processes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither threads nor processes bind a socket of the network."""
    bound: list[Any] = []
    plain = socket.socket.bind

    def bind(self: socket.socket, address: Any) -> None:
        if self.family != socket.AF_UNIX:
            bound.append(address)
        plain(self, address)

    monkeypatch.setattr(socket.socket, "bind", bind)
    Ridge().fit(rows())
    with certus.config_context(engine=engine):
        Ridge().fit(rows())
    assert not bound and not _listening()


def _listening() -> list[str]:
    """Sockets of this process and its children that listen to the network."""
    own = {str(os.getpid())}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if fields[1] == str(os.getpid()):
            own.add(path.parent.name)
    inodes = set()
    for pid in own:
        for link in Path(f"/proc/{pid}/fd").glob("*"):
            try:
                target = os.readlink(link)
            except OSError:
                continue
            if target.startswith("socket:["):
                inodes.add(target[8:-1])
    found = []
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            cells = line.split()
            if cells[3] == "0A" and cells[9] in inodes:
                found.append(cells[1])
    return found


@pytest.mark.parametrize("options", [{"workers": 0}, {"workers": True}, {"timeout": 0}])
def test_bad_options_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="must be"):
        Processes(**options)
