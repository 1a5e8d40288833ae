"""Beside automatic machine learning: sealed losses at the same time limit.

    python -m benchmarks.automl run [--limit 60] [--splits 0 1 2] [--tables PATTERN]
                                    [--contenders PATTERN] [--budget SECONDS]
    python -m benchmarks.automl run --long --limit 300
    python -m benchmarks.automl table

Sixteen tables from packages (``automl_tables``), the same splits for everyone, a
quarter of the rows sealed. Log loss for labels, RMSE for amounts. ``run`` measures the
cells that are not known yet, each in a process of its own, and adds each to
``results/automl.json`` when it is done: a run may be stopped at any time, or given a
``--budget`` of seconds after which no further cell begins. ``--long`` takes the six
largest tables, for a limit of 300 s; ``--retry`` measures failed cells again. A
contender whose library is missing has no cell. ``table`` writes ``results/automl.md``.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.automl_tables import LONG, SOURCES, Part, divide

RESULTS = Path(__file__).parent / "results"
PACKAGES = (
    *("certus", "numpy", "scikit-learn", "numba", "flaml", "autogluon.tabular"),
    *("lightgbm", "xgboost-cpu", "catboost", "interpret-core", "torch"),
)
#: Probabilities (rows × labels) or numbers for the sealed rows, and what was chosen.
Outcome = tuple[Any, str]


# ---- contenders --------------------------------------------------------------------


def _answers(model: Any, part: Part, queries: Any = None) -> Any:
    queries = part.queries if queries is None else queries
    return model.predict_proba(queries) if part.labels else model.predict(queries)


def fit_certus(part: Part, limit: float) -> Outcome:
    import certus

    found = certus.compare(
        part.X,
        part.y,
        task="classification" if part.labels else "regression",
        metric="log_loss" if part.labels else "rmse",
        max_time=limit,
        random_state=part.seed,
        # No contender seals rows or computes intervals: the choice is fitted to all
        # rows, without the CV+ models that refit=True would add.
        fraction=0.0,
    )
    return _answers(found.model, part), found.chosen


def fit_flaml(part: Part, limit: float) -> Outcome:
    from flaml import AutoML

    model = AutoML()
    model.fit(
        part.X,
        part.y,
        task="classification" if part.labels else "regression",
        metric="log_loss" if part.labels else "rmse",
        time_budget=limit,
        seed=part.seed,
        verbose=0,
    )
    return _answers(model, part), str(model.best_estimator)


def fit_autogluon(part: Part, limit: float) -> Outcome:
    from autogluon.tabular import TabularPredictor

    kind = "multiclass" if len(np.unique(part.y)) > 2 else "binary"
    with tempfile.TemporaryDirectory() as folder:
        model = TabularPredictor(
            label="target of this table",
            problem_type=kind if part.labels else "regression",
            eval_metric="log_loss" if part.labels else "root_mean_squared_error",
            path=folder,
            verbosity=0,
        )
        rows = part.X.assign(**{"target of this table": part.y})
        model.fit(rows, time_limit=limit, presets="medium_quality")
        return np.asarray(_answers(model, part)), str(model.model_best)


def fit_boosting(part: Part, limit: float) -> Outcome:
    from sklearn import ensemble

    kind = "Classifier" if part.labels else "Regressor"
    made = getattr(ensemble, f"HistGradientBoosting{kind}")(random_state=part.seed)
    return _answers(made.fit(part.X, part.y), part), "defaults"


def fit_lightgbm(part: Part, limit: float) -> Outcome:
    import lightgbm

    made = lightgbm.LGBMClassifier if part.labels else lightgbm.LGBMRegressor
    model = made(random_state=part.seed, verbose=-1, n_jobs=2)
    return _answers(model.fit(part.X, part.y), part), "defaults"


def fit_xgboost(part: Part, limit: float) -> Outcome:
    import xgboost

    made = xgboost.XGBClassifier if part.labels else xgboost.XGBRegressor
    model = made(random_state=part.seed, enable_categorical=True, n_jobs=2)
    return _answers(model.fit(part.X, part.y), part), "defaults"


def fit_ebm(part: Part, limit: float) -> Outcome:
    from interpret import glassbox

    kind = "Classifier" if part.labels else "Regressor"
    made = getattr(glassbox, f"ExplainableBoosting{kind}")
    model = made(random_state=part.seed, n_jobs=2)
    return _answers(model.fit(part.X, part.y), part), "defaults"


def fit_additive(part: Part, limit: float) -> Outcome:
    from certus.additive import AdditiveClassifier, AdditiveRegressor
    from certus.tables import TablePipeline

    made = AdditiveClassifier() if part.labels else AdditiveRegressor()
    model = TablePipeline(estimator=made)
    return _answers(model.fit(part.X, part.y), part), "defaults"


def fit_plain(part: Part, limit: float) -> Outcome:
    from sklearn.compose import make_column_selector, make_column_transformer
    from sklearn.impute import SimpleImputer
    from sklearn.linear_model import LogisticRegression, Ridge
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import OneHotEncoder, StandardScaler

    kinds = make_column_selector(dtype_include="category")
    rest = make_column_selector(dtype_exclude="category")
    encoder = make_column_transformer(
        (OneHotEncoder(handle_unknown="ignore"), kinds),
        (make_pipeline(SimpleImputer(strategy="median"), StandardScaler()), rest),
    )
    last = LogisticRegression(max_iter=1000) if part.labels else Ridge()
    model = make_pipeline(encoder, last).fit(part.X, part.y)
    return _answers(model, part), type(last).__name__


OURS, ADDITIVE = "certus.compare", "certus additive"
CONTENDERS: dict[str, Callable[[Part, float], Outcome]] = {
    OURS: fit_certus,
    "FLAML": fit_flaml,
    "AutoGluon, medium quality": fit_autogluon,
    "HistGradientBoosting": fit_boosting,
    "LightGBM": fit_lightgbm,
    "XGBoost": fit_xgboost,
    "EBM": fit_ebm,
    ADDITIVE: fit_additive,
    "linear pipeline": fit_plain,
}
#: Those that use up the limit; each has a cell for every limit.
TIMED = (OURS, "FLAML", "AutoGluon, medium quality")
#: Those that stop by themselves; one cell stands for every limit.
SINGLE = tuple(name for name in CONTENDERS if name not in TIMED)
#: The splits, and the seconds of both parts of the plan.
SPLITS, LIMIT, LONG_LIMIT = (0, 1, 2), 60, 300
#: Seconds after which one of these is stopped: EBM may not end on rare events.
LONGEST = 900.0


# ---- one process -------------------------------------------------------------------


def work(contender: str, name: str, split: int, limit: float) -> None:
    """The body of a worker: one fit, and one JSON object on stdout."""
    part = divide(name, split)
    start = time.perf_counter()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            guess, chosen = CONTENDERS[contender](part, limit)
    except ImportError as error:
        print("\n" + json.dumps({"absent": str(error).splitlines()[0]}))
        return
    seconds, used = time.perf_counter() - start, time.process_time()
    cell = {"loss": loss_of(np.asarray(guess), part), "constant": constant_loss(part)}
    cell |= {"seconds": seconds, "processor": used, "chosen": chosen}
    print("\n" + json.dumps(cell), flush=True)


def loss_of(guess: Any, part: Part) -> float:
    """Log loss or RMSE on the sealed rows."""
    if not part.labels:
        return float(np.sqrt(np.mean((guess.ravel() - part.truth) ** 2)))
    P = np.clip(guess.astype(float), 1e-15, 1.0)
    P = P / P.sum(axis=1, keepdims=True)
    return float(-np.mean(np.log(P[np.arange(len(P)), part.truth])))


def constant_loss(part: Part) -> float:
    """The loss of the shares of the labels, or of the mean."""
    if not part.labels:
        return loss_of(np.full(len(part.truth), part.y.mean()), part)
    shares = np.bincount(part.y) / len(part.y)
    return loss_of(np.tile(shares, (len(part.truth), 1)), part)


def run_worker(contender: str, name: str, split: int, limit: float) -> dict[str, Any]:
    """What a worker reported, or why it reported nothing."""
    command = [sys.executable, "-m", "benchmarks.automl", "--worker"]
    command += [contender, name, str(split), str(limit)]
    # Models without a limit of their own are only stopped where they may not end.
    allowed = LONGEST if contender in SINGLE else 2 * limit + 60
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=allowed)
    except subprocess.TimeoutExpired:
        return {"error": f"stopped after {allowed:.0f} s"}
    found = [line for line in done.stdout.splitlines() if line.startswith("{")]
    if done.returncode or not found:
        return {"error": (done.stderr.strip().splitlines() or ["no message"])[-1][:200]}
    return dict(json.loads(found[-1]))


# ---- all of them -------------------------------------------------------------------


def key(name: str, contender: str, split: int, limit: float) -> str:
    """The name of a cell."""
    said = "single" if contender in SINGLE else f"{limit:g} s"
    return f"{name} | {contender} | {split} | {said}"


def plan(limit: float) -> list[str]:
    """The cells of a part of the plan; the long limit adds those of the large tables.

    Single fits belong to the part with the short limit.
    """
    long = limit == LONG_LIMIT
    return [
        key(name, contender, split, limit)
        for split in SPLITS
        for name in (LONG if long else SOURCES)
        for contender in (TIMED if long else CONTENDERS)
    ]


def _open(cell: dict[str, Any] | None, retry: bool) -> bool:
    """Whether a cell is to be measured: it is unknown, or failed and may be retried."""
    return cell is None or (retry and "error" in cell)


def run(args: Any) -> None:
    """Measure the cells that are not known yet, split by split."""
    from benchmarks.run import busy, matches

    path, start = RESULTS / "automl.json", time.monotonic()
    missing: set[str] = set()
    for split in args.splits:
        for name in SOURCES:
            for contender in CONTENDERS:
                wanted = matches(name, args.tables)
                wanted &= matches(contender, args.contenders)
                wanted &= not args.long or name in LONG
                cells = json.loads(path.read_text()) if path.exists() else {}
                place = key(name, contender, split, args.limit)
                if not wanted or not _open(cells.get(place), args.retry):
                    continue
                if contender in missing:
                    continue
                if time.monotonic() - start > args.budget:
                    return
                load = busy()
                found = run_worker(contender, name, split, args.limit)
                if "absent" in found:
                    missing.add(contender)
                    continue
                cells[place] = found | {"busy": load}
                path.write_text(json.dumps(cells, indent=1, ensure_ascii=False) + "\n")
                print(place, found.get("loss", found.get("error")), flush=True)


def main() -> None:
    """Run cells, write the table, or be a worker."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.automl")
    parser.add_argument("what", nargs="?", choices=("run", "table"), default="run")
    parser.add_argument("--limit", type=float, default=LIMIT, help="seconds per fit")
    parser.add_argument("--splits", type=int, nargs="+", default=list(SPLITS))
    parser.add_argument("--tables", default="*", help="only these tables")
    parser.add_argument("--contenders", default="*", help="only these contenders")
    parser.add_argument("--budget", type=float, default=float("inf"))
    parser.add_argument("--retry", action="store_true", help="failed cells again")
    parser.add_argument("--long", action="store_true", help="the six largest tables")
    parser.add_argument("--worker", nargs=4, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.worker:
        contender, name, split, limit = args.worker
        return work(contender, name, int(split), float(limit))
    RESULTS.mkdir(parents=True, exist_ok=True)
    if args.what == "run":
        run(args)
    from benchmarks.automl_report import write_table

    return write_table(RESULTS / "automl.json", RESULTS / "automl.md")


if __name__ == "__main__":
    main()
