"""How fast a TreeEnsemble predicts, beside the library that grew its trees.

    OMP_NUM_THREADS=1 python -m benchmarks.trees

Batch: 10,000 rows. Single: one row at a time. Best of several runs, the
libraries in turns. LightGBM and XGBoost are measured where they are installed.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

import numpy as np
from sklearn.ensemble import (
    ExtraTreesRegressor,
    HistGradientBoostingClassifier,
    HistGradientBoostingRegressor,
    RandomForestClassifier,
)

from certus.ensemble import read_rows, read_trees

ROWS, SINGLE, RUNS = 10_000, 100, 3
OUT = Path(__file__).parent / "results" / "trees.md"


def table(seed=0, d=10, n=ROWS):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d))
    y = np.sin(2 * X[:, 0]) + X[:, 1] * X[:, 2] + 0.3 * rng.normal(size=n)
    return X, y


def cases():
    X, y = table()
    few, target = X[:5000], y[:5000]
    two = (target > 0).astype(int)
    three = np.digitize(target, [-0.5, 0.5])
    holes = X.copy()
    holes[np.random.default_rng(1).random(X.shape) < 0.1] = np.nan
    boost = {"max_iter": 100, "early_stopping": False}
    yield "HistGradientBoosting", HistGradientBoostingRegressor(**boost), few, target, X
    missing = HistGradientBoostingRegressor(**boost)
    yield "HistGradientBoosting, NaN", missing, holes[:5000], target, holes
    labels = HistGradientBoostingClassifier(**boost)
    yield "HistGradientBoosting, 3 labels", labels, few, three, X
    forest = RandomForestClassifier(100, random_state=0)
    yield "RandomForest, 2 labels", forest, few, two, X
    extra = ExtraTreesRegressor(100, random_state=0)
    yield "ExtraTrees", extra, few, target, X
    try:
        import lightgbm

        plain = {"n_estimators": 100, "verbose": -1}
        yield "LightGBM", lightgbm.LGBMRegressor(**plain), few, target, X
        yield (
            "LightGBM, NaN",
            lightgbm.LGBMRegressor(**plain),
            holes[:5000],
            target,
            holes,
        )
        yield "LightGBM, 3 labels", lightgbm.LGBMClassifier(**plain), few, three, X
    except ImportError:
        sys.stderr.write("lightgbm is not installed\n")
    try:
        import xgboost

        yield "XGBoost", xgboost.XGBRegressor(n_estimators=100), few, target, X
        yield (
            "XGBoost, NaN",
            xgboost.XGBRegressor(n_estimators=100),
            holes[:5000],
            target,
            holes,
        )
    except ImportError:
        sys.stderr.write("xgboost is not installed\n")


def ask(model):
    """The fastest public way to the library's predictions."""
    if hasattr(model, "booster_"):
        return model.booster_.predict
    return model.predict_proba if hasattr(model, "classes_") else model.predict


def best(run, times):
    found = []
    for _ in range(times):
        start = time.perf_counter()
        run()
        found.append(time.perf_counter() - start)
    return min(found)


def measure(model, X):
    trees, theirs = read_trees(model), ask(model)
    rows = np.ascontiguousarray(read_rows(model, X))
    off = float(np.abs(trees.predict(rows) - theirs(X)).max())
    batch = [np.inf, np.inf]
    for _ in range(RUNS):
        batch[0] = min(batch[0], best(lambda: theirs(X), 1))
        batch[1] = min(batch[1], best(lambda: trees.predict(rows), 1))

    def one_by_one(answer, table):
        few = 5 if best(lambda: answer(table[:1]), 2) > 2e-3 else SINGLE
        return best(lambda: [answer(table[i : i + 1]) for i in range(few)], 3) / few

    single = one_by_one(theirs, X), one_by_one(trees.predict, rows)
    return batch, single, off


def main():
    lines = [
        "# Predictions of tree ensembles",
        "",
        f"{ROWS:,} rows × 10 columns, 100 trees or stages; milliseconds for the batch,",
        "microseconds for a single row; best of several runs on one core of a machine",
        "in use by others.",
        "",
        "| model | batch, library | certus | faster | row, library | certus "
        "| faster | largest difference |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for name, model, X, y, rows in cases():
        model.fit(X, y)
        batch, single, off = measure(model, rows)
        cells = [
            name,
            *(f"{1e3 * t:.1f}" for t in batch),
            f"**{batch[0] / batch[1]:.1f} ×**",
            *(f"{1e6 * t:,.0f}" for t in single),
            f"**{single[0] / single[1]:.1f} ×**",
            f"{off:.0e}",
        ]
        lines.append(f"| {' | '.join(cells)} |")
        sys.stderr.write(lines[-1] + "\n")
    OUT.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
