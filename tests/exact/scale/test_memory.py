"""``certus fit --memory`` keeps to the memory it was given, measured in a process."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import polars as pl
import pytest

ROWS, FILES, COLUMNS = 250_000, 10, 20
#: Imports and compiled code first, by the same command on a few rows.
SCRIPT = """
import resource, sys
from certus.cli import main

def peak():
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most * (1 if sys.platform == "darwin" else 1024)

small, *files = sys.argv[1:]
run = ["--target", "y", "--model", "logistic", "--no-files", "--memory"]
assert main(["fit", small, small, *run, "600MB"]) == 0
before = peak()
print("=====")
assert main(["fit", *files, *run, "600MB", "--json"]) == 0
print("=====", peak() - before)
"""


def write(path: Path, rows: int, seed: int) -> str:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(rows, COLUMNS)) + np.arange(COLUMNS)
    z = (X - np.arange(COLUMNS)) @ np.linspace(-1, 1, COLUMNS)
    frame = pl.DataFrame(X, schema=[f"x{j}" for j in range(COLUMNS)])
    labels = np.where(z + rng.logistic(size=rows) > 0, "yes", "no")
    frame.with_columns(y=pl.Series(labels)).write_parquet(path, row_group_size=rows)
    return str(path)


@pytest.mark.slow
def test_a_fit_keeps_to_its_memory(tmp_path: Path) -> None:
    """2.5 million rows take 400 MB as float64, and four times as much by copies."""
    pytest.importorskip("resource")
    small = write(tmp_path / "small.parquet", 5_000, 99)
    files = [write(tmp_path / f"{i}.parquet", ROWS, i) for i in range(FILES)]
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, small, *files],
        capture_output=True,
        text=True,
        check=False,
        timeout=900,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    _, text, above = done.stdout.split("=====")
    answer, above = json.loads(text), int(above)
    assert answer["data"]["rows"] == ROWS * FILES and answer["data"]["by_blocks"]
    assert answer["certificate"]["status"] == "solved"
    assert 100e6 < above <= 600e6, f"{above / 1e6:.0f} MB above that of the imports"
