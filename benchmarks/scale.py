"""Tables larger than memory: seconds, peak memory and gaps beside others.

    python -m benchmarks.scale --folder /data/scale [--share 0.01] [--only PATTERN]

Rows are written once, as Parquet files of a million rows with row groups of 250,000.
Each cell runs in a process of its own with two threads; its memory is the peak above
that of the imports. Results are kept after each cell, so the command goes on where it
was stopped; ratios are of cells of one run on one machine. ``--share`` makes all tables
smaller, to try it. With all rows: about 15 minutes for the files, and for the cells
from one minute (ridge) to ten (mixtures) each. A cell that failed is tried again by the
next run. The cells of ridge and of growth keep no decoded blocks, so that their memory
is that of the blocks at work; all others keep blocks as a fit does by default.
"""

from __future__ import annotations

import argparse
import glob
import hashlib
import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

RESULTS = Path(__file__).parent / "results" / "scale.json"
FILE = 1_000_000  # rows, in four row groups
SGD_PASSES = 5
K = 8
#: name → (millions of rows, who); "many" has 50 columns, "few" 32 in eight clusters.
CELLS: dict[str, tuple[str, float, tuple[str, ...]]] = {
    "ridge": ("many", 20, ("blocks", "bare loop, two passes", "bare loop, one pass")),
    "logistic": ("many", 5, ("blocks", "in memory", "SGD", "dask-ml")),
    "pca": ("few", 5, ("blocks", "in memory", "IncrementalPCA")),
    "kmeans": ("few", 5, ("blocks", "in memory", "MiniBatchKMeans")),
    "mixture": ("few", 5, ("blocks", "in memory")),
    "cluster": ("many", 2, ("two threads", "two Dask workers")),
    "command": ("many", 20, ("certus fit",)),
    "growth": ("many", 20, ("ridge 1 M", "ridge 5 M", "ridge 20 M")),
    "growth, Newton": (
        "many",
        20,
        ("logistic 1 M", "logistic 5 M", "logistic 20 M"),
    ),
}


# -- rows ------------------------------------------------------------------------------


def size_of_file(share: float) -> int:
    """Rows of a file: a trial has as many files as the whole, each with fewer rows."""
    return max(1, int(FILE * share))


def write(folder: Path, kind: str, files: int, size: int) -> list[str]:
    """Parquet files with so many rows each; those that exist are kept."""
    import polars as pl

    place = folder / kind
    place.mkdir(parents=True, exist_ok=True)
    paths = []
    for i in range(files):
        path = place / f"{size}-{i:03d}.parquet"
        paths.append(str(path))
        if path.exists():
            continue
        rng = np.random.default_rng(i)
        d = 50 if kind == "many" else 32
        X = rng.normal(size=(size, d)).astype(np.float32)
        X *= np.linspace(0.4, 2.7, d, dtype=np.float32)
        X += np.linspace(0, 3, d, dtype=np.float32)
        if kind == "few":
            centres = 4 * np.random.default_rng(99).normal(size=(K, d))
            X += centres[rng.integers(K, size=size)].astype(np.float32)
        w = np.linspace(-1, 1, d) / np.sqrt(d)
        y = X @ w + rng.normal(size=size)
        frame = pl.DataFrame(X, schema=[f"x{j:02d}" for j in range(d)])
        frame = frame.with_columns(y=pl.Series(y), kind=pl.Series(y > np.median(y)))
        part = path.with_suffix(".part")
        frame.write_parquet(part, row_group_size=max(1, size // 4))
        part.rename(path)
    return paths


def columns(paths: list[str]) -> list[str]:
    """The columns of X."""
    from pyarrow import parquet

    names = parquet.ParquetFile(paths[0]).schema_arrow.names
    return [name for name in names if name.startswith("x")]


def groups(paths: list[str], target: str | None) -> Iterator[tuple[Any, Any]]:
    """X and y of each row group."""
    from pyarrow import parquet

    names = columns(paths)
    for path in paths:
        file = parquet.ParquetFile(path)
        for i in range(file.num_row_groups):
            wanted = names + ([target] if target else [])
            found = file.read_row_group(i, columns=wanted, use_threads=True)
            X = np.column_stack([found.column(name).to_numpy() for name in names])
            yield X, found.column(target).to_numpy() if target else None


def in_memory(paths: list[str], target: str | None) -> tuple[Any, Any]:
    """All rows."""
    found = list(groups(paths, target))
    y = np.concatenate([each[1] for each in found]) if target else None
    return np.concatenate([each[0] for each in found]), y


# -- cells: each returns what is reported beside seconds and memory ---------------


def _digest(model: Any) -> str:
    bits = model.coef_.tobytes() + np.asarray(model.intercept_).tobytes()
    return hashlib.sha256(bits).hexdigest()[:12]


def _table(paths: list[str], target: str | None) -> Any:
    from certus.scale import blocks

    return blocks(paths, target, columns=columns(paths))


def ridge(paths: list[str], who: str) -> dict[str, Any]:
    """Ridge regression, the check included; the loops keep raw moments.

    The fair loop has our number of passes: one for the moments, and one for what a
    check needs, the residuals' squares and their products with the columns.
    """
    from certus.blocks.kept import kept_within
    from certus.linear_model import Ridge

    if who == "blocks":
        with kept_within(0.0):
            model = Ridge().fit(_table(paths, "y"))
        return {"gap": model.certificate_.value, "digest": _digest(model)}
    d = len(columns(paths))
    G, c, s, t, n = np.zeros((d, d)), np.zeros(d), np.zeros(d), 0.0, 0
    for X, y in groups(paths, "y"):
        X = X.astype(np.float64)
        G += X.T @ X
        c += X.T @ y
        s, t, n = s + X.sum(axis=0), t + y.sum(), n + len(y)
    A = G - np.outer(s, s) / n + np.eye(d)
    w = np.linalg.solve(A, c - s * t / n)
    if who == "bare loop, one pass":
        return {"gap": None}
    b, pulled, squares = t / n - s @ w / n, np.zeros(d), 0.0
    for X, y in groups(paths, "y"):
        X = X.astype(np.float64)
        r = y - X @ w - b
        pulled += X.T @ r
        squares += r @ r
    return {"gap": None, "residual": float(np.abs(pulled - w).max() / squares)}


def logistic(paths: list[str], who: str) -> dict[str, Any]:
    """L2-penalised logistic regression with C = 1; all judged by one verifier."""
    import certus
    from certus.linear_model import LogisticRegression

    table = _table(paths, "kind")
    if who == "blocks":
        model = LogisticRegression().fit(table)
        return {"gap": model.certificate_.value, "digest": _digest(model)}
    if who == "in memory":
        X, y = in_memory(paths, "kind")
        start = time.perf_counter()
        model = LogisticRegression().fit(X, y)
        seconds = time.perf_counter() - start
        return {"gap": model.certificate_.value, "seconds": seconds}
    start = time.perf_counter()
    if who == "SGD":
        from sklearn.linear_model import SGDClassifier

        theirs: Any = SGDClassifier(
            loss="log_loss", alpha=1 / len(table), random_state=0
        )
        for _ in range(SGD_PASSES):
            for X, y in groups(paths, "kind"):
                theirs.partial_fit(X, y, classes=np.array([False, True]))
    else:
        import dask.array as da
        from dask_ml.linear_model import LogisticRegression as DaskLogistic

        X, y = in_memory(paths, "kind")
        theirs, size = DaskLogistic(solver="lbfgs"), FILE // 4
        theirs.fit(da.from_array(X, (size, X.shape[1])), da.from_array(y, size))
    seconds = time.perf_counter() - start
    model = LogisticRegression()
    model.coef_ = np.asarray(theirs.coef_, float).reshape(1, -1)
    model.intercept_ = np.asarray(theirs.intercept_, float).reshape(1)
    model.classes_, model.n_features_in_ = np.array([False, True]), table.shape[1]
    with certus.config_context(on_uncertified="ignore"):
        gap = certus.certify(model, table)["duality_gap"].value
    return {"gap": gap, "seconds": seconds}


def unlabelled(paths: list[str], who: str, task: str) -> dict[str, Any]:
    """PCA (share explained), k-means (inertia a row), mixtures (log-likelihood)."""
    from certus.cluster import KMeans
    from certus.decomposition import PCA
    from certus.mixture import GaussianMixture

    ours: Any = {
        "pca": lambda: PCA(n_components=8),
        "kmeans": lambda: KMeans(K, n_init=1, random_state=0),
        "mixture": lambda: GaussianMixture(K, covariance_type="diag", random_state=0),
    }[task]()
    start = time.perf_counter()
    if who == "blocks":
        model = ours.fit(_table(paths, None))
    elif who == "in memory":
        X, _ = in_memory(paths, None)
        start = time.perf_counter()
        model = ours.fit(X)
    else:
        from sklearn.cluster import MiniBatchKMeans
        from sklearn.decomposition import IncrementalPCA

        other: Any = IncrementalPCA(8)
        if task == "kmeans":
            other = MiniBatchKMeans(K, n_init=1, random_state=0, batch_size=10_000)
        for X, _ in groups(paths, None):
            other.partial_fit(X)
        model = other
    return {"seconds": time.perf_counter() - start, "value": _value(model, paths, task)}


def _value(model: Any, paths: list[str], task: str) -> float:
    """The objective of a model on all rows, by one pass in float64."""
    total, rows, spread = 0.0, 0, 0.0
    mean = getattr(model, "mean_", None)
    for X, _ in groups(paths, None):
        X = X.astype(np.float64)
        rows += len(X)
        if task == "pca":
            A = X - mean
            total += float(np.square(A @ model.components_.T).sum())
            spread += float(np.square(A).sum())
        elif task == "kmeans":
            C = np.asarray(model.cluster_centers_, float)
            D = np.square(C).sum(axis=1) - 2 * X @ C.T
            total += float(D.min(axis=1).sum() + np.square(X).sum())
        else:
            total += float(model.score_samples(X).sum())
    return total / (spread if task == "pca" else rows)


def cluster(paths: list[str], who: str) -> dict[str, Any]:
    """The same logistic fit on two threads, and on a Dask cluster of two processes."""
    import certus
    from certus.linear_model import LogisticRegression

    table = _table(paths, "kind")
    if who == "two threads":
        model = LogisticRegression().fit(table)
        return {"gap": model.certificate_.value, "digest": _digest(model)}
    from distributed import Client, LocalCluster

    local = LocalCluster(
        n_workers=2,
        threads_per_worker=1,
        dashboard_address="127.0.0.1:0",
        host="127.0.0.1",
    )
    with local, Client(local) as client, certus.config_context(engine=client):
        list(table.map(_nothing))  # the workers import, and the files have been read
        start = time.perf_counter()
        model = LogisticRegression().fit(table)
        seconds = time.perf_counter() - start
    found = {"gap": model.certificate_.value, "digest": _digest(model)}
    return {**found, "seconds": seconds}


def _nothing(block: Any) -> int:
    import certus.linear_model.logistic  # noqa: F401

    return len(block.X)


def command(paths: list[str], who: str) -> dict[str, Any]:
    """``certus fit`` with a time limit and a memory limit, in its own process."""
    run = [sys.executable, "-m", "certus", "fit", *paths, "--target", "kind"]
    run += ["--drop", "y", "--memory", "2GB", "--max-time", "900", "--no-files"]
    done = subprocess.run([*run, "--json"], capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(done.stderr[-500:])
    found = json.loads(done.stdout)
    claims = {c["name"]: c["value"] for c in found["certificate"]["claims"]}
    return {"gap": claims["duality_gap"], "peak": found.get("peak_memory", 0)}


def growth(paths: list[str], who: str) -> dict[str, Any]:
    """The same fit on the first million rows, on five and on twenty."""
    from certus.blocks.kept import kept_within

    name, millions, _ = who.split()
    part = paths[: max(1, round(len(paths) * float(millions) / 20))]
    with kept_within(0.0):
        return (ridge if name == "ridge" else logistic)(part, "blocks")


TASKS: dict[str, Callable[..., dict[str, Any]]] = {
    "ridge": ridge,
    "logistic": logistic,
    "pca": lambda paths, who: unlabelled(paths, who, "pca"),
    "kmeans": lambda paths, who: unlabelled(paths, who, "kmeans"),
    "mixture": lambda paths, who: unlabelled(paths, who, "mixture"),
    "cluster": cluster,
    "command": command,
    "growth": growth,
    "growth, Newton": growth,
}


def _warm_up() -> None:
    """Imports and kernels, on a few rows: they are in no figure."""
    from certus.cluster import KMeans
    from certus.decomposition import PCA
    from certus.linear_model import LogisticRegression, Ridge
    from certus.mixture import GaussianMixture
    from certus.scale import blocks

    X = np.random.default_rng(0).normal(size=(400, 4))
    for model, y in ((Ridge(), X[:, 0]), (LogisticRegression(), X[:, 1] > 0)):
        model.fit(X, y)
        model.fit(blocks(X, y))
    for other in (PCA(2), KMeans(2), GaussianMixture(2)):
        other.fit(X)


# -- running ---------------------------------------------------------------------------


def run_cell(folder: Path, task: str, who: str, share: float) -> dict[str, Any]:
    """One cell in this process."""
    _warm_up()
    kind, millions, _ = CELLS[task]
    named = str(folder / kind / f"{size_of_file(share)}-*.parquet")
    paths = sorted(glob.glob(named))[: round(millions)]
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    start = time.perf_counter()
    found = TASKS[task](paths, who)
    seconds = time.perf_counter() - start
    peak = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024
    return {"seconds": seconds, "peak": peak, "files": len(paths), **found}


def main() -> None:
    """Write the rows, run the cells that have no result, write the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--share", type=float, default=1.0)
    parser.add_argument("--only", default="")
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--cell", nargs=2)
    asked = parser.parse_args()
    if asked.cell:
        print(json.dumps(run_cell(asked.folder, *asked.cell, asked.share)))
        return
    for kind, files in (("many", 20), ("few", 5)):
        write(asked.folder, kind, files, size_of_file(asked.share))
    kept = json.loads(asked.results.read_text()) if asked.results.exists() else {}
    for task, (_, _, line) in CELLS.items():
        for who in line:
            name = f"{task} | {who}"
            if asked.only not in name or _is_done(kept.get(name), asked.share):
                continue
            kept[name] = {**_apart(asked, task, who), "share": asked.share}
            asked.results.write_text(json.dumps(kept, indent=1) + "\n")
            print(name, kept[name], flush=True)
    asked.results.with_suffix(".md").write_text(page(kept))


def _is_done(found: dict[str, Any] | None, share: float) -> bool:
    """Whether a cell has its result; one that failed is tried again."""
    return found is not None and found["share"] == share and "absent" not in found


def _apart(asked: Any, task: str, who: str) -> dict[str, Any]:
    """One cell in a process of its own; a failure is a result."""
    run = [sys.executable, "-m", "benchmarks.scale", "--folder", str(asked.folder)]
    run += ["--share", str(asked.share), "--cell", task, who]
    two = {name: "2" for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS")}
    two["NUMBA_NUM_THREADS"] = "2"
    done = subprocess.run(
        run, capture_output=True, text=True, check=False, env={**os.environ, **two}
    )
    if done.returncode:
        lines = done.stderr.strip().splitlines() or ["no reason"]
        return {"absent": lines[-1][:160]}
    return dict(json.loads(done.stdout.strip().splitlines()[-1]))


def page(kept: dict[str, Any]) -> str:
    """The table, with ratios to the first cell of each task."""
    share = next(iter(kept.values()))["share"] if kept else 1.0
    lines = [
        "# Tables larger than memory",
        "",
        "`python -m benchmarks.scale --folder FOLDER`; two cores, two threads; memory "
        "is the peak above the imports; ratios are to the first line of each task.",
        "",
        *([f"**A trial with {share:g} of the rows.**", ""] if share != 1 else []),
        "| task | who | rows | seconds | ratio | peak MB | gap, or value | bits |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for task, (_, millions, line) in CELLS.items():
        first = kept.get(f"{task} | {line[0]}", {}).get("seconds")
        for who in line:
            found = kept.get(f"{task} | {who}")
            if found is None:
                continue
            rows = millions
            if task.startswith("growth"):
                rows = float(who.split()[1])
            size = f"{rows * share:g} M"
            if "absent" in found:
                lines.append(f"| {task} | {who} | {size} | – {found['absent']} |||||")
                continue
            ratio = found["seconds"] / first if first else float("nan")
            value = found.get("gap", found.get("value"))
            shown = "–" if value is None else f"{value:.3g}"
            lines.append(
                f"| {task} | {who} | {size} | {found['seconds']:.1f} | {ratio:.2f} | "
                f"{found['peak'] / 1e6:.0f} | {shown} | {found.get('digest', '')} |"
            )
    return "\n".join([*lines, *_speed(kept)]) + "\n"


def _speed(kept: dict[str, Any]) -> list[str]:
    """The sentence about the target of ridge regression, with the figure."""
    fair = "bare loop, two passes"
    ours, theirs = (kept.get(f"ridge | {who}", {}) for who in ("blocks", fair))
    if "seconds" not in ours or "seconds" not in theirs:
        return []
    return [
        "",
        "Ridge regression is to reach 0.9 of the speed of the bare loop of pyarrow and "
        "NumPy with the same number of passes (a fit and a check: "
        f'"{fair}"); it reaches {theirs["seconds"] / ours["seconds"]:.2f} of it. The '
        "loop with one pass checks nothing. Ridge and growth keep no decoded blocks, "
        "and their memory is to stay below 1 GB above the imports.",
    ]


if __name__ == "__main__":
    main()
