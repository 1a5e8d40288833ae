"""One script for a laptop and for a cluster.

    python examples/clusters/anywhere.py                        # this machine
    python examples/clusters/anywhere.py tcp://scheduler:8786   # a Dask cluster

Rows are written once, to a folder that all machines see (the second argument). The
coefficients are the same, bit by bit, wherever the blocks were read.
"""

from __future__ import annotations

import hashlib
import sys
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import polars as pl

import certus
from certus.linear_model import LogisticRegression
from certus.scale import blocks


def write_rows(folder: Path, files: int = 4, rows: int = 50_000) -> None:
    """Clicks: ten columns, whose means are far from zero, and a label."""
    weights = np.linspace(-1, 1, 10)
    for i in range(files):
        rng = np.random.default_rng(i)
        X = rng.normal(size=(rows, 10))
        clicked = X @ weights + rng.logistic(size=rows) > 1
        frame = pl.DataFrame(X + np.arange(10), schema=[f"x{j}" for j in range(10)])
        frame = frame.with_columns(clicked=pl.Series(np.where(clicked, "yes", "no")))
        frame.write_parquet(folder / f"part-{i}.parquet", row_group_size=25_000)


def main(address: str | None = None, folder: str | None = None) -> str:
    """Fit, and print what identifies the fit: its certificate, and a digest."""
    with ExitStack() as stack:
        place = Path(folder or stack.enter_context(TemporaryDirectory()))
        if not list(place.glob("*.parquet")):
            write_rows(place)
        if address is not None:
            from distributed import Client

            client = stack.enter_context(Client(address))
            stack.enter_context(certus.config_context(engine=client))
        model = LogisticRegression().fit(blocks(str(place / "*.parquet"), "clicked"))
    print(model.certificate_)
    bits = model.coef_.tobytes() + model.intercept_.tobytes()
    digest = hashlib.sha256(bits).hexdigest()[:12]
    print("digest of the coefficients:", digest)
    return digest


if __name__ == "__main__":
    main(*sys.argv[1:])
