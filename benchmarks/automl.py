"""Beside automatic machine learning: test scores and seconds at the same time limit.

    python -m benchmarks.automl [--limit SECONDS] [--seeds N] [--contenders PATTERN]

Three data sets that scikit-learn bundles, the same splits for everyone, a quarter of
the rows sealed; what is measured are predictions for these rows. Each fit runs in a
process of its own. Every contender first makes an unmeasured fit to each data set with
a tenth of the limit, so that its files have been read once; one whose library is
missing is listed as absent. The table is written after each split, whatever it says.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import mean
from typing import Any, NamedTuple

import numpy as np
from sklearn import datasets
from sklearn.model_selection import train_test_split

# What only the main process needs is imported there: a worker's memory is measured.

SEALED = 0.25
PACKAGES = (
    *("certus", "numpy", "scikit-learn", "numba", "flaml", "autogluon.tabular"),
    *("lightgbm", "xgboost-cpu", "catboost", "torch"),
)


class Part(NamedTuple):
    """The rows to learn from, and the sealed ones."""

    X: np.ndarray
    y: np.ndarray
    queries: np.ndarray
    truth: np.ndarray
    labels: bool
    seed: int


#: name → (loader, whether the target holds labels)
DATA: dict[str, tuple[Callable[..., Any], bool]] = {
    "breast cancer": (datasets.load_breast_cancer, True),
    "digits": (datasets.load_digits, True),
    "diabetes": (datasets.load_diabetes, False),
}


def divide(data: str, seed: int) -> Part:
    """The same division of the rows for every contender."""
    load, labels = DATA[data]
    X, y = load(return_X_y=True)
    X, queries, y, truth = train_test_split(
        X, y, test_size=SEALED, random_state=seed, stratify=y if labels else None
    )
    return Part(X, y, queries, truth, labels, seed)


# ---- contenders: predictions for the sealed rows, and what was chosen --------------

Outcome = tuple[Any, str]


def fit_certus(part: Part, limit: float) -> Outcome:
    import certus

    found = certus.compare(
        part.X,
        part.y,
        task="classification" if part.labels else "regression",
        max_time=limit,
        random_state=part.seed,
    )
    return found.model.predict(part.queries), found.chosen


def fit_flaml(part: Part, limit: float) -> Outcome:
    from flaml import AutoML

    model = AutoML()
    model.fit(
        part.X,
        part.y,
        task="classification" if part.labels else "regression",
        metric="accuracy" if part.labels else "rmse",
        time_budget=limit,
        seed=part.seed,
        verbose=0,
    )
    return model.predict(part.queries), str(model.best_estimator)


def fit_autogluon(part: Part, limit: float) -> Outcome:
    import pandas as pd
    from autogluon.tabular import TabularPredictor

    def table(X: np.ndarray) -> Any:
        return pd.DataFrame(X, columns=[f"x{j}" for j in range(X.shape[1])])

    kind = "multiclass" if len(np.unique(part.y)) > 2 else "binary"
    with tempfile.TemporaryDirectory() as folder:
        model = TabularPredictor(
            label="target",
            problem_type=kind if part.labels else "regression",
            eval_metric="accuracy" if part.labels else "root_mean_squared_error",
            path=folder,
            verbosity=0,
        )
        model.fit(
            table(part.X).assign(target=part.y),
            time_limit=limit,
            presets="medium_quality",
        )
        return np.asarray(model.predict(table(part.queries))), str(model.model_best)


def fit_boosting(part: Part, limit: float) -> Outcome:
    from sklearn import ensemble

    kind = "Classifier" if part.labels else "Regressor"
    model = getattr(ensemble, f"HistGradientBoosting{kind}")(random_state=part.seed)
    return model.fit(part.X, part.y).predict(part.queries), "defaults"


def fit_plain(part: Part, limit: float) -> Outcome:
    from sklearn.linear_model import LogisticRegression, Ridge
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    last = LogisticRegression(max_iter=1000) if part.labels else Ridge()
    model = make_pipeline(StandardScaler(), last).fit(part.X, part.y)
    return model.predict(part.queries), type(last).__name__


OURS = "certus.compare"
CONTENDERS: dict[str, Callable[[Part, float], Outcome]] = {
    OURS: fit_certus,
    "FLAML": fit_flaml,
    "AutoGluon, medium quality": fit_autogluon,
    "scikit-learn gradient boosting": fit_boosting,
    "scikit-learn logistic or ridge": fit_plain,
}


# ---- one process -------------------------------------------------------------------


def work(contender: str, data: str, seed: int, limit: float) -> None:
    """The body of a worker: one fit, and one JSON object on stdout."""
    part = divide(data, seed)
    start = time.perf_counter()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            guess, chosen = CONTENDERS[contender](part, limit)
    except ImportError as error:
        if contender == OURS:
            raise
        print(json.dumps({"absent": str(error).splitlines()[0]}))
        return
    seconds = time.perf_counter() - start
    result = {"seconds": seconds, "memory": peak_memory(), "chosen": chosen}
    if part.labels:
        result["accuracy"] = float(np.mean(guess == part.truth))
    else:
        error = float(np.mean((guess - part.truth) ** 2))
        result["rmse"] = error**0.5
        result["r2"] = 1 - error / float(np.var(part.truth))
    print("\n" + json.dumps(result), flush=True)


def peak_memory() -> float | None:
    """MB this process held at its peak; getrusage would count its parent's too."""
    status = Path("/proc/self/status")
    if not status.exists():
        return None
    lines = status.read_text().splitlines()
    peak = next(line for line in lines if line.startswith("VmHWM"))
    return int(peak.split()[1]) / 1024


def run_worker(contender: str, data: str, seed: int, limit: float) -> dict[str, Any]:
    """What a worker reported, or why it reported nothing."""
    command = [sys.executable, "-m", "benchmarks.automl", "--limit", str(limit)]
    command += ["--worker", contender, data, str(seed)]
    allowed = 2 * limit + 60
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=allowed)
    except subprocess.TimeoutExpired:
        return {"error": f"stopped after {allowed:.0f} s"}
    found = [line for line in done.stdout.splitlines() if line.startswith("{")]
    if done.returncode or not found:
        return {"error": (done.stderr.strip().splitlines() or ["no message"])[-1]}
    return dict(json.loads(found[-1]))


# ---- all of them -------------------------------------------------------------------


def measure(
    names: list[str], seeds: int, limit: float, say: Any
) -> Iterator[dict[str, Any]]:
    """Yield the results so far, by data set and contender, after each split."""
    from benchmarks.run import busy

    results: dict[str, Any] = {data: {name: [] for name in names} for data in DATA}
    missing: dict[str, str] = {}
    for data in DATA:
        for name in names:
            if name not in missing:
                say(f"{data} · {name} · not measured")
                found = run_worker(name, data, seeds, limit / 10)
                missing |= {name: found["absent"]} if "absent" in found else {}
    # Seed by seed, so that a disturbance of the machine meets all contenders.
    for seed in range(seeds):
        for data in DATA:
            for name in names:
                if name in missing:
                    continue
                load = busy()
                found = run_worker(name, data, seed, limit) | {"busy": load}
                say(f"{data} · {name} · {describe(found)}")
                results[data][name].append(found)
        yield {"rows": results, "absent": missing, "seeds": seed + 1, "limit": limit}


def describe(found: dict[str, Any]) -> str:
    if "error" in found:
        return f"failed: {found['error']}"
    return f"{score(found)}, {found['seconds']:.1f} s, {found['chosen']}"


def score(found: dict[str, Any]) -> str:
    if "accuracy" in found:
        return f"{100 * found['accuracy']:.1f} %"
    return f"RMSE {found['rmse']:.2f}, R² {found['r2']:.3f}"


# ---- the table ---------------------------------------------------------------------

READING = """\
Every contender is told the task and the measure and given {limit:g} s for each fit;
gradient boosting and the linear model are one untuned fit each and need no limit. All
learn from the same {learn:g} % of the rows and are judged on the other {sealed:g} %,
which none of them sees. Scores are means over {seeds} such splits (lowest to highest),
best first. Seconds run from before the import of the library to the predictions, while
limits count fitting alone; scikit-learn, which makes the splits, is imported before.
Memory is the peak of the process.

The contenders keep rows for themselves. certus seals a fifth of what it is given, to
state a risk, and its model never learns from them; AutoGluon at this preset holds rows
out to weigh its models and does not fit them again; FLAML fits its choice again to all
rows. certus chooses one model, since 18 November 2026 also gradient boosting; AutoGluon
averages several. AutoGluon runs without its neural networks.

"""


def write_table(results: dict[str, Any], path: Path) -> None:
    """One section for each data set, then every run."""
    from benchmarks.report import describe_machine, disturbed

    rows = results["rows"]
    runs = [r for found in rows.values() for each in found.values() for r in each]
    text = "# Beside automatic machine learning\n\n"
    text += describe_machine(results["machine"])
    text += READING.format(
        limit=results["limit"],
        seeds=results["seeds"],
        learn=100 * (1 - SEALED),
        sealed=100 * SEALED,
    )
    text += disturbed(runs)
    for data, found in rows.items():
        text += section(data, found)
    if results["absent"]:
        text += "## Absent\n\n"
        text += "".join(f"- {who}: {why}\n" for who, why in results["absent"].items())
        text += "\n"
    text += "## Every run\n\n| data | split | who | score | s | MB | chose |\n"
    text += "|---|---|---|---|---|---|---|\n"
    for data, found in rows.items():
        for who, each in found.items():
            for seed, r in enumerate(each):
                text += f"| {data} | {seed} | {who} | {cells(r)} |\n"
    path.write_text(text)


def section(data: str, found: dict[str, list[dict[str, Any]]]) -> str:
    """The table of one data set, the best mean first."""
    part = divide(data, 0)
    learn, judge = len(part.y), len(part.truth)
    text = f"## {data[0].upper()}{data[1:]}\n\n{part.X.shape[1]} columns, "
    text += f"{learn:,} rows to learn from, {judge} to judge by"
    text += f"; one label is {100 / judge:.1f} points.\n\n" if part.labels else ".\n\n"
    measures = ["accuracy, %"] if part.labels else ["RMSE", "R²"]
    keys = [("accuracy", 100, ".1f")]
    if not part.labels:
        keys = [("rmse", 1, ".2f"), ("r2", 1, ".3f")]
    keys += [("seconds", 1, ".1f"), ("memory", 1, ".0f")]
    head = ["who", *measures, "s", "peak MB"]
    text += f"| {' | '.join(head)} |\n{'|---' * len(head)}|\n"
    whole = {who: each for who, each in found.items() if each and not failures(each)}
    sign = -1 if part.labels else 1
    for who in sorted(whole, key=lambda w: sign * average(whole[w], keys[0][0])):
        numbers = [spread(whole[who], *key) for key in keys]
        text += f"| {who} | {' | '.join(numbers)} |\n"
    for who, each in found.items():
        if failures(each):
            text += f"| {who} | failed in {failures(each)} of {len(each)} splits "
            text += "| – " * (len(head) - 2) + "|\n"
    return text + "\n"


def failures(each: list[dict[str, Any]]) -> int:
    return sum("error" in r for r in each)


def average(each: list[dict[str, Any]], key: str) -> float:
    return mean(r[key] for r in each)


def spread(each: list[dict[str, Any]], key: str, unit: float, form: str) -> str:
    """Mean, with lowest and highest where it is a score."""
    if any(r[key] is None for r in each):
        return "–"
    values = [unit * r[key] for r in each]
    text = format(mean(values), form)
    if key in ("seconds", "memory") or len(values) == 1:
        return text
    return f"{text} ({min(values):{form}} to {max(values):{form}})"


def cells(r: dict[str, Any]) -> str:
    if "error" in r:
        return f"failed | – | – | {r['error']}"
    memory = "–" if r["memory"] is None else f"{r['memory']:.0f}"
    return f"{score(r)} | {r['seconds']:.1f} | {memory} | {r['chosen']}"


def main() -> None:
    """Measure what was asked for and write automl.md."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.automl")
    parser.add_argument("--limit", type=float, default=60, help="seconds for each fit")
    parser.add_argument("--seeds", type=int, default=3, help="number of splits")
    parser.add_argument("--contenders", default="*", help="only these contenders")
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results"))
    parser.add_argument("--worker", nargs=3, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.worker:
        contender, data, seed = args.worker
        return work(contender, data, int(seed), args.limit)

    from rich.console import Console

    from benchmarks.run import machine, matches

    console = Console()
    names = [name for name in CONTENDERS if matches(name, args.contenders)]
    args.out.mkdir(parents=True, exist_ok=True)
    about = {"machine": machine(PACKAGES)}
    for results in measure(names, args.seeds, args.limit, console.print):
        write_table(results | about, args.out / "automl.md")
    console.print(f"Wrote {args.out / 'automl.md'}.")
    return None


if __name__ == "__main__":
    main()
