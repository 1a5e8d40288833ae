"""Additive models of certus beside interpret's explainable boosting machine.

    python benchmarks/additive.py prepare FOLDER
    python benchmarks/additive.py run certus TABLE FOLDER
    python benchmarks/additive.py run interpret TABLE FOLDER   # where interpret is
    python benchmarks/additive.py table

``prepare`` writes each table, split once, as arrays; ``run`` fits one library's
defaults on one of them with one thread and adds a cell to its file of results;
``table`` writes ``results/additive.md``. Seconds are those of the processor, so that
other work on the machine does not count. certus has compiled its kernels before.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import numpy as np
from sklearn.metrics import log_loss

RESULTS = Path(__file__).parent / "results"
TABLES = (
    *("diabetes", "cancer", "wine", "fair", "randhie", "star98"),
    *("modechoice", "friedman1", "hastie"),
)


def read(name: str) -> tuple[np.ndarray, np.ndarray]:
    """Columns and target of a table; labels are integers."""
    from sklearn import datasets

    if name == "friedman1":
        return datasets.make_friedman1(3000, 10, noise=1.0, random_state=0)
    if name == "hastie":
        X, y = datasets.make_hastie_10_2(4000, random_state=0)
        return X, (y > 0).astype(int)
    short = {"cancer": "breast_cancer"}.get(name, name)
    if hasattr(datasets, f"load_{short}"):
        return getattr(datasets, f"load_{short}")(return_X_y=True)
    import statsmodels.api as sm

    frame = getattr(sm.datasets, name).load_pandas().data
    if name == "fair":
        X, y = frame.iloc[:, :8], (frame.affairs > 0).astype(int)
    elif name == "randhie":
        X, y = frame.drop(columns="mdvis"), np.log1p(frame.mdvis)
    elif name == "modechoice":
        X, y = frame.drop(columns=["individual", "choice"]), frame.choice.astype(int)
    else:
        passed, failed = frame.iloc[:, 0], frame.iloc[:, 1]
        X, y = frame.iloc[:, 2:], passed / (passed + failed)
    return X.to_numpy(dtype=float), np.asarray(y)


def prepare(folder: Path) -> None:
    from sklearn.model_selection import train_test_split

    for name in TABLES:
        X, y = read(name)
        labels = y.dtype.kind in "iu" and len(np.unique(y)) < 20
        parts = train_test_split(
            X, y, test_size=0.25, random_state=0, stratify=y if labels else None
        )
        named = dict(zip(("X", "X_test", "y", "y_test"), parts))
        np.savez(folder / f"{name}.npz", labels=labels, **named)


def model_of(library: str, labels: bool) -> object:
    if library == "certus":
        from certus.additive import AdditiveClassifier, AdditiveRegressor

        return AdditiveClassifier() if labels else AdditiveRegressor()
    from interpret.glassbox import (
        ExplainableBoostingClassifier,
        ExplainableBoostingRegressor,
    )

    made = ExplainableBoostingClassifier if labels else ExplainableBoostingRegressor
    return made(n_jobs=1, random_state=0)


def run(library: str, name: str, folder: Path) -> None:
    given = np.load(folder / f"{name}.npz")
    labels = bool(given["labels"])
    if library == "certus":
        model_of(library, labels).fit(given["X"][:60], given["y"][:60])
    start = time.process_time()
    model = model_of(library, labels).fit(given["X"], given["y"])
    seconds = time.process_time() - start
    if labels:
        error = log_loss(given["y_test"], model.predict_proba(given["X_test"]))
    else:
        error = np.sqrt(
            np.mean((model.predict(given["X_test"]) - given["y_test"]) ** 2)
        )
    cell = {"error": float(error), "seconds": seconds, "shape": given["X"].shape}
    if library == "certus":
        claim = model.certificate_["duality_gap"]
        cell |= {"gap": claim.value, "met": bool(model.certificate_.met)}
    path = RESULTS / f"additive_{library}.json"
    cells = json.loads(path.read_text()) if path.exists() else {}
    cells[name] = cell
    path.write_text(json.dumps(cells, indent=1) + "\n")


def table() -> None:
    ours, theirs = (
        json.loads((RESULTS / f"additive_{library}.json").read_text())
        for library in ("certus", "interpret")
    )
    lines = [
        "# Additive models",
        "",
        "Defaults, one thread, one split (three quarters to fit). Errors on the rest:",
        "log loss for labels, RMSE for amounts; seconds of the processor. Measured by",
        "`benchmarks/additive.py`.",
        "",
        "| table | rows × columns | certus | interpret | s | s | times | proved gap |",
        "|---|---|---|---|---|---|---|---|",
    ]
    ranks, ratios = [], []
    for name in [name for name in TABLES if name in ours and name in theirs]:
        a, b = ours[name], theirs[name]
        shape = f"{a['shape'][0]:,} × {a['shape'][1]}"
        if "over" in b:  # stopped at a limit of seconds, without a result
            times = b["over"] / a["seconds"]
            lines.append(
                f"| {name} | {shape} | {a['error']:.4g} | – | {a['seconds']:.2f} | "
                f"> {b['over']:.0f} | > {times:.1f} | {a['gap']:.0e} |"
            )
            continue
        ranks.append(1.0 + (a["error"] > b["error"]) + 0.5 * (a["error"] == b["error"]))
        ratios.append(b["seconds"] / a["seconds"])
        lines.append(
            f"| {name} | {shape} | {a['error']:.4g} | {b['error']:.4g} | "
            f"{a['seconds']:.2f} | {b['seconds']:.1f} | {ratios[-1]:.0f} | "
            f"{a['gap']:.0e} |"
        )
    mean = float(np.mean(ranks))
    lines += [
        "",
        f"On the {len(ranks)} tables with both results: mean rank of certus "
        f"{mean:.2f}, of interpret {3 - mean:.2f}; median of the ratio of seconds "
        f"{np.median(ratios):.0f}. Where interpret was stopped before its fit ended, "
        "its error is not known.",
    ]
    (RESULTS / "additive.md").write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["prepare", folder]:
            prepare(Path(folder))
        case ["run", library, name, folder]:
            run(library, name, Path(folder))
        case ["table"]:
            table()
        case _:
            sys.exit(__doc__)
