"""Contributions beside shap's TreeExplainer and LinearExplainer: seconds and numbers.

    python -m benchmarks.explanations

The same model, rows and background rows for both; interventional values of the score.
Ours is timed twice: the contributions alone, and ``certus.explain`` as a whole, with
its certificate. shap is timed without its own check that the parts add up. Seconds of
the processor, with one thread; best of three runs, in turn. A second table compares
both with the definition, for models of few columns. LightGBM and XGBoost are left out
where they are not installed. Needs shap; written to ``results/explanations.md``;
``make bench-explanations`` installs what is missing.
"""

import math
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
#: For the comparison with the definition: columns, rows and background rows.
FEW, SOME, BEHIND = 8, 10, 50

TRIED = """\
The certificate proves for every row that the parts add up to the model's own answer,
and for a stated sample of rows that each column has the right part: one row or a few
at level quick, all at level full (as far as the budget of that level goes); the claim
says how many. Measures that made it cheaper, by seconds of the processor on one core,
before and after:

- pairs of a row and a background row walk down all trees together, and leave where no
  mixed row can follow, instead of a matrix of nodes and leaves for each tree: one row
  of the deep forest 1.58 to 0.022, of 100 trees of HistGradientBoosting 0.079 to
  0.021;
- the sample at level quick counts log² of the leaves of each tree instead of all
  leaves: one to five rows instead of one to fifteen;
- the labels of the model are read without listing all its attributes.

Together, `certus.explain` as a whole: HistGradientBoosting 0.31 to 0.16, its classes
0.25 to 0.10, GradientBoosting 0.22 to 0.05, the deep forest 1.6 to 0.22, LightGBM 0.34
to 0.19, XGBoost 0.36 to 0.21. What is left is the contributions themselves; for deep
forests the walk over masks of columns is slower than shap's.

For linear models, 200,000 rows of 30 columns take 0.05 as a whole, of which the
contributions alone take 0.007. Three ways did not reach twice the speed of
LinearExplainer: computing the contributions again for a sample of 10,000 rows only
(0.058 to 0.050; all rows were kept, because the proof is stronger), sums by products
of one output at a time (no difference beyond noise), and asking the model once instead
of twice, which the verifier may not do. The model's own `predict` takes 0.006, sums of
all rows 0.008, the fingerprint 0.008 and the copy of the rows 0.005: each of these
alone is most of what twice the speed would leave.
"""


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
        "add up, the numbers cannot agree; the last table compares both with the "
        "definition.",
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
    return "\n".join([*lines, "", TRIED])


# ---- beside the definition ---------------------------------------------------------


def small_cases() -> list[Case]:
    """Models whose columns are few enough for all sets of them."""
    X, y = make_friedman1(2000, FEW, noise=1.0, random_state=0)
    A, labels = make_classification(2000, FEW, n_informative=5, random_state=0)
    few, behind = X[:SOME], X[-BEHIND:]
    boosting = HistGradientBoostingRegressor(max_iter=50, random_state=0)
    classes = HistGradientBoostingClassifier(max_iter=50, random_state=0)
    plain = GradientBoostingRegressor(random_state=0)
    found = [
        Case("HistGradientBoosting", boosting.fit(X, y), few, behind),
        Case(
            "HistGradientBoosting, classes",
            *(classes.fit(A, labels), A[:SOME], A[-BEHIND:]),
        ),
        Case("GradientBoosting", plain.fit(X, y), few, behind),
    ]
    if find_spec("lightgbm"):
        from lightgbm import LGBMRegressor

        model = LGBMRegressor(n_estimators=50, verbose=-1).fit(X, y)
        found.append(Case("LightGBM", model, few, behind))
    if find_spec("xgboost"):
        from xgboost import XGBRegressor

        model = XGBRegressor(n_estimators=50).fit(X, y)
        found.append(Case("XGBoost", model, few, behind, 1e-6))
    return found


def defined(case: Case) -> Any:
    """The values by the definition: the model is asked about every set of columns."""
    model, d = case.model, case.X.shape[1]
    ask = getattr(model, "decision_function", model.predict)
    sets = ((np.arange(1 << d)[:, None] >> np.arange(d)) & 1).astype(bool)
    size = sets.sum(axis=1)
    out = np.zeros(case.X.shape)
    for i, x in enumerate(case.X):
        mixed = np.where(sets[:, None, :], x, case.behind[None])
        z = np.asarray(ask(mixed.reshape(-1, d)), dtype=np.float64)
        v = z.reshape(len(sets), -1).mean(axis=1)
        for j in range(d):
            without = np.flatnonzero(~sets[:, j])
            weight = [1.0 / (d * math.comb(d - 1, int(s))) for s in size[without]]
            out[i, j] = np.dot(weight, v[without + (1 << j)] - v[without])
    return out


def beside_definition(case: Case) -> dict[str, Any]:
    """How far both are from the definition, as shares of the largest prediction."""
    ours = certus.explain(case.model, case.X, case.behind)
    mine, right = ours.values[:, :, -1], defined(case)
    other = np.asarray(theirs(case)[0]).reshape(right.shape)
    size = float(np.abs(ours.predictions).max())
    off = [float(np.abs(found - right).max()) / size for found in (mine, other)]
    equal = off[0] <= case.tolerance
    return {"case": case.name, "certus": off[0], "shap": off[1], "equal": equal}


def written_beside(rows: list[dict[str, Any]]) -> str:
    """The second table as Markdown."""
    lines = [
        "## Beside the definition",
        "",
        f"Models of {FEW} columns, {SOME} rows and {BEHIND} background rows. The model "
        f"is asked about all 2^{FEW} sets of columns, so this reference needs neither "
        "library. Largest difference of a value, as a share of the largest prediction; "
        "*equal*: certus within 1e-8, and within 1e-6 for XGBoost, which computes in "
        "single precision.",
        "",
        "| model | certus − definition | shap − definition | certus equal |",
        "|---|---|---|---|",
    ]
    for row in rows:
        lines.append(
            f"| {row['case']} | {row['certus']:.1e} | {row['shap']:.1e} | "
            f"{'yes' if row['equal'] else 'no'} |"
        )
    return "\n".join([*lines, ""])


def main() -> None:
    """Measure all cases and write both tables."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        path = Path(__file__).parent / "results" / "explanations.md"
        found = []
        for case in cases():
            found.append(compare(case))
            path.write_text(written(found), encoding="utf-8")
        beside = [beside_definition(case) for case in small_cases()]
        text = f"{written(found)}\n{written_beside(beside)}"
        path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
