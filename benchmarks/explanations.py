"""Contributions beside shap's TreeExplainer and LinearExplainer: seconds and numbers.

    python -m benchmarks.explanations

The same model, rows and background rows for both; interventional values of the score.
Ours is timed twice: the contributions alone, and ``certus.explain`` as a whole, with
its certificate. shap is timed without its own check that the parts add up. Seconds of
the processor, with one thread; best of three runs, in turn. LightGBM and XGBoost are
left out where they are not installed. Needs shap; written to
``results/explanations.md``.
"""

import time
import warnings
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from sklearn.datasets import make_classification, make_friedman1
from sklearn.ensemble import (
    GradientBoostingRegressor,
    HistGradientBoostingClassifier,
    HistGradientBoostingRegressor,
    RandomForestRegressor,
)
from sklearn.linear_model import LogisticRegression, Ridge

import certus
from benchmarks.report import describe_machine
from benchmarks.run import machine
from certus.explanations.explaining import shares_alone

ROWS, BACKGROUND = 200, 100


class Case(NamedTuple):
    """A fitted model with the rows of both explanations."""

    name: str
    model: Any
    X: Any
    behind: Any
    tolerance: float = 1e-8


def cases() -> list[Case]:
    """Trees of three libraries, shallow and deep, and linear models."""
    X, y = make_friedman1(4000, 12, noise=1.0, random_state=0)
    A, labels = make_classification(4000, 20, n_informative=8, random_state=0)
    few, behind = X[:ROWS], X[-BACKGROUND:]
    forest = RandomForestRegressor(10, random_state=0)
    boosting = HistGradientBoostingRegressor(max_iter=100, random_state=0)
    classes = HistGradientBoostingClassifier(max_iter=50, random_state=0)
    plain = GradientBoostingRegressor(random_state=0)
    found = [
        Case("HistGradientBoosting, 100 trees", boosting.fit(X, y), few, behind),
        Case(
            "HistGradientBoosting, classes, 50 trees",
            *(classes.fit(A, labels), A[:ROWS], A[-BACKGROUND:]),
        ),
        Case("GradientBoosting, 100 trees of depth 3", plain.fit(X, y), few, behind),
        Case(
            "RandomForest, 10 deep trees",
            *(forest.fit(X, y), few[:20], behind),
        ),
    ]
    if find_spec("lightgbm"):
        from lightgbm import LGBMRegressor

        model = LGBMRegressor(n_estimators=100, verbose=-1).fit(X, y)
        found.append(Case("LightGBM, 100 trees", model, few, behind))
    if find_spec("xgboost"):
        from xgboost import XGBRegressor

        model = XGBRegressor(n_estimators=100).fit(X, y)
        found.append(Case("XGBoost, 100 trees", model, few, behind, 1e-6))
    wide = np.random.default_rng(0).normal(size=(200_000, 30))
    target = wide @ np.arange(30.0)
    small = LogisticRegression().fit(wide[:5000], target[:5000] > 0)
    linear = Ridge().fit(wide[:5000], target[:5000])
    found += [
        Case("Ridge, 200,000 rows of 30 columns", linear, wide, wide[:100]),
        Case("LogisticRegression, 200,000 rows", small, wide, wide[:100]),
        Case("Ridge, 100 rows", linear, wide[:100], wide[:100]),
    ]
    return found


def theirs(case: Case) -> tuple[Any, Any]:
    """The values of shap and its base value."""
    import shap

    masker = shap.maskers.Independent(case.behind, max_samples=len(case.behind))
    if hasattr(case.model, "coef_"):
        linear = shap.LinearExplainer(case.model, masker)
        return linear.shap_values(case.X), linear.expected_value
    explainer = shap.TreeExplainer(
        case.model, case.behind, feature_perturbation="interventional"
    )
    found = explainer.shap_values(case.X, check_additivity=False)
    return found, explainer.expected_value


def timed(run: Callable[[], Any]) -> tuple[float, Any]:
    """Seconds of the processor for one run, and its result."""
    start = time.process_time()
    found = run()
    return time.process_time() - start, found


def compare(case: Case) -> dict[str, Any]:
    """The best of three runs of each, in turn, and the largest difference."""

    def whole() -> Any:
        return certus.explain(case.model, case.X, case.behind)

    def alone() -> Any:
        return shares_alone(case.model, case.X, case.behind)

    alone()  # compiled code is loaded
    runs = [(timed(whole), timed(alone), timed(lambda: theirs(case))) for _ in range(3)]
    ours = runs[0][0][1]
    values, base = map(np.asarray, runs[0][2][1])
    values = values.reshape(ours.values[:, :, -1].shape)
    missed = np.abs(values.sum(axis=1) + base.ravel()[-1] - ours.predictions[:, -1])
    size = float(np.abs(ours.predictions).max())
    apart = float(np.abs(values - ours.values[:, :, -1]).max()) / size
    best = [min(run[t][0] for run in runs) for t in range(3)]
    return {
        "case": case.name,
        "certus": best[0],
        "alone": best[1],
        "shap": best[2],
        "apart": apart,
        "missed": float(missed.max()) / size,
        "equal": apart <= case.tolerance,
        "proved": all(claim.met for claim in ours.certificate.claims),
    }


def written(rows: list[dict[str, Any]]) -> str:
    """The table as Markdown."""
    import shap

    lines = [
        "# Contributions of columns, beside shap",
        "",
        describe_machine(machine()),
        "",
        f"shap {shap.__version__}; {ROWS} rows (20 for the deep forest) and "
        f"{BACKGROUND} background rows unless a name says otherwise. Seconds of the "
        "processor, one thread, best of three in turn. *alone*: the contributions; "
        "*with certificate*: `certus.explain`. *shap misses the prediction by*: how "
        "far its parts and base value are from adding up. *difference* of the values: "
        "both the largest, as a share of the largest prediction. Where shap does not "
        "add up, the numbers cannot agree.",
        "",
        "| model | shap | alone | with certificate | shap / alone | shap / with "
        "certificate | shap misses the prediction by | difference | equal | all claims "
        "met |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        lines.append(
            f"| {row['case']} | {row['shap']:.4f} | {row['alone']:.4f} | "
            f"{row['certus']:.4f} | {row['shap'] / row['alone']:.1f} | "
            f"{row['shap'] / row['certus']:.1f} | {row['missed']:.1e} | "
            f"{row['apart']:.1e} | "
            f"{'yes' if row['equal'] else 'no'} | "
            f"{'yes' if row['proved'] else 'no'} |"
        )
    return "\n".join([*lines, ""])


def main() -> None:
    """Measure all cases and write the table."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        path = Path(__file__).parent / "results" / "explanations.md"
        found = []
        for case in cases():
            found.append(compare(case))
            path.write_text(written(found), encoding="utf-8")


if __name__ == "__main__":
    main()
