"""Run tests as on other processors, with more threads, and behind ``&`` in a script.

    python tests/processors.py                      every setting, about an hour
    python tests/processors.py --only zen two       settings by name
    python tests/processors.py --only zen -- tests/exact/decomposition

OpenBLAS, PyTorch and oneDNN each choose their kernels by the processor they find, and
sums come out in another order by each. An environment variable names another kernel: a
test, a page or a solver that only holds to the digits of one processor is found out on
any other. Python leaves a SIGINT ignored that the shell had ignored.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
ONE_THREAD = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
TESTS = ("tests/exact", "tests/contract")
#: Two workers with one thread each, or one worker with two.
WORKERS = ("-n", "auto", "--maxprocesses", "2", "--dist", "loadfile")


class Setting(NamedTuple):
    """What differs from a usual run; ``needs`` is a flag of the processor."""

    variables: dict[str, str]
    needs: str = ""
    tests: tuple[str, ...] = TESTS
    workers: tuple[str, ...] = WORKERS
    ignored: bool = False


def kernels(openblas: str, aten: str, onednn: str) -> dict[str, str]:
    """The variables that choose kernels: one processor has one choice of each."""
    return {
        "OPENBLAS_CORETYPE": openblas,
        "ATEN_CPU_CAPABILITY": aten,
        "ONEDNN_MAX_CPU_ISA": onednn,
    }


SETTINGS = {
    "zen": Setting(kernels("Zen", "avx2", "AVX2"), "avx2"),
    "skylakex": Setting(kernels("SkylakeX", "avx512", "AVX512_CORE"), "avx512f"),
    "oldest": Setting(kernels("Haswell", "default", "SSE41"), "avx2"),
    "two-threads": Setting(dict.fromkeys(ONE_THREAD, "2"), workers=()),
    "sigint-ignored": Setting({}, tests=(*TESTS, "tests/hostile"), ignored=True),
}


def main() -> int:
    """1 if a setting failed; each says in one line how it went."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--only", nargs="+", default=[], help="parts of names")
    parser.add_argument("pytest", nargs="*", help="after --: tests, options of pytest")
    given = parser.parse_args()
    chosen = {
        name: setting
        for name, setting in SETTINGS.items()
        if not given.only or any(part in name for part in given.only)
    }
    if not chosen:
        parser.error(f"no such setting; there are {', '.join(SETTINGS)}")
    flags = processor_flags()
    ended = {}
    for name, setting in chosen.items():
        if flags and setting.needs not in ("", *flags):
            ended[name] = f"left out: this processor has no {setting.needs}"
            continue
        print(f"== {name}", flush=True)
        code = run(setting, given.pytest)
        ended[name] = "passed" if code == 0 else f"failed (pytest ended with {code})"
    for name, text in ended.items():
        print(f"{name:15} {text}")
    return int(any(text.startswith("failed") for text in ended.values()))


def run(setting: Setting, given: list[str]) -> int:
    """pytest's exit code in this setting."""
    if setting.ignored:  # inherited by what is started
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        return subprocess.run(
            [sys.executable, "-m", "pytest", "-q", *setting.workers]
            + (given or list(setting.tests)),
            cwd=ROOT,
            env={**os.environ, **ONE_THREAD, **setting.variables},
            check=False,
        ).returncode
    finally:
        if setting.ignored:
            signal.signal(signal.SIGINT, signal.default_int_handler)


def processor_flags() -> set[str]:
    """What the processor can do, as Linux names it; empty where that is not told."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return set()
    found = (line.partition(":")[2].split() for line in lines if line[:5] == "flags")
    return set(next(found, []))


if __name__ == "__main__":
    sys.exit(main())
