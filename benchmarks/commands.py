"""The whole command ``certus fit``: seconds, processor time, memory, and the limit.

    python -m benchmarks.commands [bc] [wide] [mixed] [--limits 5 10 20 120] [--busy]

Three tables: breast cancer, without a limit; 100,000 × 30 numbers with noise; and
300,000 × 20, mixed, with categories and missing values. Each run is a process of its
own; its clock runs from before the start of Python until the process is gone.
``--busy`` runs two loops beside it that never rest. Each run is added to
``results/commands.json`` when it is done, in place of an older one of its kind, and
``results/commands.md`` is written again from all of them.
"""

import argparse
import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from benchmarks.report import describe_machine
from benchmarks.run import machine

RESULTS = Path(__file__).parent / "results"
PACKAGES = ("certus", "numpy", "scikit-learn", "numba", "lightgbm", "xgboost-cpu")
#: Seconds that each table may take without a limit; limits may be passed by this share.
TARGETS = {"bc": 10.0}
PAST = 0.1
BUSY = "while True: pass"


# ---- tables ------------------------------------------------------------------------


def bc() -> pl.DataFrame:
    """Breast cancer: 569 × 30 numbers, two labels."""
    from sklearn.datasets import load_breast_cancer

    data = load_breast_cancer()
    labels = np.array(["malignant", "benign"])[data.target]
    frame = pl.DataFrame(data.data, schema=[str(name) for name in data.feature_names])
    return frame.with_columns(y=pl.Series(labels))


def wide(scale: int = 1) -> pl.DataFrame:
    """100,000 × 30 numbers: ten matter, two of them together, and noise."""
    rng, n = np.random.default_rng(0), 100_000 // scale
    X = rng.standard_normal((n, 30))
    y = X[:, :10] @ rng.standard_normal(10) + np.sin(2 * X[:, 0]) * X[:, 1]
    frame = pl.DataFrame(X, schema=[f"x{j}" for j in range(30)])
    return frame.with_columns(y=pl.Series(y + rng.standard_normal(n)))


def mixed(scale: int = 1) -> pl.DataFrame:
    """300,000 × 20: twelve numbers, a third of them with gaps; eight categories."""
    rng, n = np.random.default_rng(0), 300_000 // scale
    X = rng.standard_normal((n, 12))
    kinds = [rng.integers(0, k, n) for k in (2, 3, 5, 8, 12, 20, 40, 100)]
    z = X[:, :4] @ np.array([1.0, 0.5, -0.5, 0.3]) + X[:, 4] * (2 * kinds[0] - 1)
    z += 0.5 * (kinds[2] == 1) - 0.7 * (kinds[5] % 3 == 0)
    label = np.where(rng.random(n) < 1 / (1 + np.exp(-z)), "yes", "no")
    X[:, ::3][rng.random((n, 4)) < 0.1] = np.nan
    numbers = {f"n{j}": pl.Series(X[:, j], nan_to_null=True) for j in range(12)}
    words = {
        f"c{j}": pl.Series([f"g{code}" for code in codes.tolist()])
        for j, codes in enumerate(kinds)
    }
    return pl.DataFrame({**numbers, **words, "y": label})


TABLES: dict[str, Callable[[], pl.DataFrame]] = {"bc": bc, "wide": wide, "mixed": mixed}


# ---- runs --------------------------------------------------------------------------


def run(table: Path, limit: float | None) -> dict[str, Any]:
    """One command: how it ended, and what it took."""
    with tempfile.TemporaryDirectory() as folder:
        out, errors = Path(folder, "out.json"), Path(folder, "errors.txt")
        report = Path(folder, "report.html")
        words = ["fit", str(table), "--target", "y", "--json", "--report", str(report)]
        words += ["--out", str(Path(folder, "model.certus"))]
        words += [] if limit is None else ["--max-time", f"{limit:g}"]
        start = time.perf_counter()
        with out.open("wb") as told, errors.open("wb") as complaints:
            process = subprocess.Popen(
                [sys.executable, "-m", "certus", *words],
                stdout=told,
                stderr=complaints,
            )
            _, status, used = os.wait4(process.pid, 0)
        seconds = time.perf_counter() - start
        process.returncode = code = os.waitstatus_to_exitcode(status)
        said = json.loads(out.read_text()) if out.stat().st_size else {}
        found = said.get("comparison", {})
        return {
            "seconds": round(seconds, 2),
            "cpu": round(used.ru_utime + used.ru_stime, 2),
            "memory": round(used.ru_maxrss / 1024),  # kilobytes on Linux
            "code": code,
            "chosen": found.get("chosen"),
            "status": found.get("status"),
            "report": report.exists(),
            "complaint": "" if found else " ".join(errors.read_text().split())[-300:],
        }


@contextlib.contextmanager
def beside(loops: int) -> Iterator[None]:
    """So many processes that never rest."""
    others = [subprocess.Popen([sys.executable, "-c", BUSY]) for _ in range(loops)]
    try:
        yield
    finally:
        for other in others:
            other.kill()
            other.wait()


def measure(name: str, limits: list[float], busy: bool) -> Iterator[dict[str, Any]]:
    """Runs of one table, after one that fills the kernel cache."""
    frame = TABLES[name]()
    with tempfile.TemporaryDirectory() as folder:
        table = Path(folder, f"{name}.csv")
        frame.write_csv(table)
        few = Path(folder, "few.csv")
        frame.head(2_000).write_csv(few)
        run(few, None)
        with beside(2 if busy else 0):
            for limit in [None] if name in TARGETS else limits:
                load = os.getloadavg()[0]
                found = run(table, limit)
                what = {"table": name, "limit": limit, "busy": busy, "load": load}
                yield what | {"size": [frame.height, frame.width - 1]} | found


# ---- results -----------------------------------------------------------------------


def _key(row: dict[str, Any]) -> tuple[Any, ...]:
    return list(TABLES).index(row["table"]), row["busy"], row["limit"] or 0


def keep(row: dict[str, Any]) -> None:
    """Add a run to the results, and write the table again."""
    place = RESULTS / "commands.json"
    past = json.loads(place.read_text(encoding="utf-8")) if place.exists() else {}
    rows = [old for old in past.get("rows", []) if _key(old) != _key(row)]
    rows = sorted([*rows, row], key=_key)
    whole = {"machine": machine(PACKAGES), "rows": rows}
    place.write_text(json.dumps(whole, indent=1) + "\n", encoding="utf-8")
    text = "\n".join(page(whole)) + "\n"
    (RESULTS / "commands.md").write_text(text, encoding="utf-8")


def page(whole: dict[str, Any]) -> list[str]:
    """The Markdown table of all runs."""
    lines = [
        "# The whole command",
        "",
        describe_machine(whole["machine"]).strip(),
        "",
        "`certus fit` from before the start of Python until its process is gone, with "
        "a warm kernel cache; processor time of all its threads. *Load* is the number "
        "of processes that wanted a processor before the run. *Beside two loops*: two "
        "other processes never rest. *Kept*: a limit was passed by at most 10 %, or "
        "the table took no longer than it may without one. "
        "`python -m benchmarks.commands`",
        "",
        "| table | beside two loops | load | limit, s | wall, s | CPU, s | MB | model "
        "| report | kept |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for row in whole["rows"]:
        rows, columns = row["size"]
        limit = row["limit"]
        most = TARGETS.get(row["table"]) if limit is None else limit * (1 + PAST)
        cells = (
            f"{row['table']}, {rows:,} × {columns}",
            "yes" if row["busy"] else "no",
            f"{row['load']:.0f}",
            "–" if limit is None else f"{limit:g}",
            f"{row['seconds']:.1f}",
            f"{row['cpu']:.1f}",
            f"{row['memory']:,}",
            row["chosen"] or "none",
            "yes" if row["report"] else "no",
            "yes" if most is None or row["seconds"] <= most else "no",
        )
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def main() -> None:
    """Measure the tables that are named, or all."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("tables", nargs="*", metavar="TABLE")
    parser.add_argument("--limits", nargs="+", type=float, default=[5, 10, 20, 120])
    parser.add_argument("--busy", action="store_true")
    asked = parser.parse_args()
    for name in asked.tables or TABLES:
        for row in measure(name, asked.limits, asked.busy):
            keep(row)
            print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
