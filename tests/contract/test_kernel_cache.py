"""Compiled kernels are cached once per source, and a wrong one is found out.

The cache directory carries a digest of every source a kernel is made of; a second
process loads what the first compiled. A kernel that computes something else (stale, or
broken) may spoil a fit but never its certificate.
"""

import ctypes
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from certus._core import cache
from certus._solvers import gram, kernels
from certus.base import UncertifiedWarning
from certus.certificate import Status
from certus.linear_model import ElasticNet, Lasso

SOURCES = cache._sources()


@pytest.fixture
def copies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """The sources, copied to where they may be edited."""
    paths = [tmp_path / path.parent.name / path.name for path in SOURCES]
    for path, copy in zip(SOURCES, paths, strict=True):
        copy.parent.mkdir(exist_ok=True)
        shutil.copy(path, copy)
    monkeypatch.setattr(cache, "_sources", lambda: paths)
    return paths


def test_every_source_counts() -> None:
    names = {f"{path.parent.name}/{path.name}" for path in SOURCES}
    assert {"objectives/terms.py", "_core/cache.py", "_solvers/kernels.py"} <= names
    # Other packages have kernels of their own; what these call is in _core, or listed.
    assert {f"decoding/{n}_kernels.py" for n in ("exponential", "forward")} <= names
    shared = {f"{m.__name__.replace('.', '/')}.py" for m in (cache, kernels, gram)}
    assert shared <= {f"certus/{name}" for name in names}


def test_the_digest_is_of_the_text_alone(copies: list[Path]) -> None:
    before = cache.source_digest()
    assert len(before) == 16
    for path in copies:
        os.utime(path, (0, 0))
    assert cache.source_digest() == before


@pytest.mark.parametrize("index", range(len(SOURCES)), ids=[p.name for p in SOURCES])
def test_an_edit_anywhere_changes_the_digest(copies: list[Path], index: int) -> None:
    before = cache.source_digest()
    text = copies[index].read_text()
    copies[index].write_text(text + "\n# another line\n")
    assert cache.source_digest() != before
    copies[index].write_text(text)
    assert cache.source_digest() == before


def test_another_numba_changes_the_digest(
    copies: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    before = cache.source_digest()
    monkeypatch.setattr(cache.numba, "__version__", "0.0.1")
    assert cache.source_digest() != before


def test_kernels_are_kept_in_the_digest_directory() -> None:
    found = {
        name: value.cached
        for name, value in vars(kernels).items()
        if callable(value) and hasattr(value, "cached")
    }
    assert {"descend_gram", "descend_columns", "descend_softmax"} <= set(found)
    for value in found.values():
        where = Path(value.stats.cache_path)
        assert where.is_relative_to(cache._DIRECTORY)
        assert cache.source_digest() in where.parts


# -- wrong kernels ------------------------------------------------------------------


def broken_sign(penalty: Any, G: Any, w: Any, g: Any, size: int, *rest: Any) -> Any:
    w[:size] += 0.1  # walks away, and says that it has arrived
    return 0.0, 1


def does_nothing(penalty: Any, G: Any, w: Any, g: Any, size: int, *rest: Any) -> Any:
    return 0.0, 1


def not_a_number(penalty: Any, G: Any, w: Any, g: Any, size: int, *rest: Any) -> Any:
    w[:size] = np.nan
    return 0.0, 1


@pytest.mark.parametrize("kernel", [broken_sign, does_nothing, not_a_number])
@pytest.mark.parametrize("estimator", [Lasso(0.05), ElasticNet(0.05)])
def test_a_stale_kernel_is_found_out(
    estimator: Any, kernel: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(80, 30))
    y = X[:, :5].sum(axis=1) + rng.normal(size=80)
    assert estimator.fit(X, y).certificate_.met
    monkeypatch.setattr(gram, "descend_gram", kernel)
    estimator.set_params(max_iter=20)
    with pytest.warns(UncertifiedWarning):
        estimator.fit(X, y)
    found = estimator.certificate_
    assert found.met is False and found.status is not Status.SOLVED


# -- processes ----------------------------------------------------------------------

FIT = (
    "import numpy as np; from certus.linear_model import Lasso; "
    "X = np.random.default_rng(0).normal(size=(40, 10)); "
    "print(Lasso(0.1).fit(X, X[:, 0]).certificate_.met)"
)


def run(**environment: str) -> subprocess.CompletedProcess[str]:
    """Fit a lasso in a new process."""
    done = subprocess.run(
        [sys.executable, "-c", FIT],
        capture_output=True,
        text=True,
        env={**os.environ, "OPENBLAS_NUM_THREADS": "1", **environment},
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "True"
    return done


@pytest.fixture(scope="module")
def begun(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A cache that the first fit has filled, and what it said."""
    folder = tmp_path_factory.mktemp("kernels")
    return folder, run(CERTUS_CACHE=str(folder)).stderr


@pytest.fixture
def filled(begun: tuple[Path, str], tmp_path: Path) -> Path:
    """A copy of that cache."""
    return shutil.copytree(begun[0], tmp_path / "kernels")


def test_the_second_process_compiles_nothing(begun: tuple[Path, str]) -> None:
    folder, said = begun
    assert said.count("once per installation") == 1

    def files() -> dict[str, int]:
        return {
            str(p): p.stat().st_mtime_ns
            for p in folder.rglob("*.nb?")  # indices and machine code
        }

    first = files()
    assert any(name.endswith(".nbi") for name in first)
    assert any(name.endswith(".nbc") for name in first)
    assert all(cache.source_digest() in name for name in first)
    again = run(CERTUS_CACHE=str(folder))
    assert files() == first
    assert "compiling" not in again.stderr


def test_an_unwritable_cache_is_replaced_by_a_temporary_one(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("not a folder")
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    run(CERTUS_CACHE=str(blocked), TMPDIR=str(temporary))
    assert list(temporary.rglob("*.nbi"))
    assert blocked.read_text() == "not a folder"


def test_a_damaged_cache_does_not_stop_a_fit(filled: Path) -> None:
    damaged = list(filled.rglob("*.nbc"))
    for path in damaged:
        path.unlink()
    run(CERTUS_CACHE=str(filled))
    assert damaged


@pytest.mark.parametrize("package", ["certus", "other"])
def test_only_kernels_of_ours_are_announced_and_once(
    package: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    monkeypatch.setattr(cache._compilation, "told", False)
    compiled = cache.numba.njit(lambda x: x + 1)
    compiled.py_func.__module__ = f"{package}.some"
    assert (compiled(1), compiled(1.0), compiled(1)) == (2, 2.0, 2)
    assert capsys.readouterr().err.count("compiling") == (package == "certus")


@pytest.mark.usefixtures("ctrl_c")
def test_ctrl_c_while_the_compiler_calls_back_is_not_lost() -> None:
    """ctypes ignores what a callback raises, and LLVM calls back while it compiles."""
    callback = ctypes.PYFUNCTYPE(None)(lambda: signal.raise_signal(signal.SIGINT))
    compiled = cache.numba.njit(lambda x: x - 1)
    compiled.py_func.__module__ = "certus.some"
    compiler = compiled._compiler
    compile_it = compiler.compile

    def interrupted(*args: Any) -> Any:
        callback()
        return compile_it(*args)

    compiler.compile = interrupted
    before = sys.unraisablehook
    with pytest.raises(KeyboardInterrupt):
        compiled(3)
    assert sys.unraisablehook == before
    assert compiled(3) == 2


def test_a_slow_start_from_a_warm_cache_is_silent(filled: Path) -> None:
    """However long machine code takes to be read, nothing is compiled."""
    slow = (
        "import time; from numba.core.caching import IndexDataCacheFile as File; "
        "load = File.load; "
        "File.load = lambda *args: time.sleep(2.5) or load(*args); "
    )
    done = subprocess.run(
        [sys.executable, "-c", slow + FIT],
        capture_output=True,
        text=True,
        env={**os.environ, "CERTUS_CACHE": str(filled)},
        timeout=120,
    )
    assert done.stdout.strip() == "True" and done.stderr == ""
