"""Run ours and every peer at equal quality and write the table.

    python -m benchmarks.run [--rows PATTERN] [--contenders PATTERN] [--small]

Each (row, contender) runs in its own process: a warm-up on a problem a tenth the size,
then its tolerances from loose to tight until ``certus.verify.check`` finds the row's
gap, then the best of ``--repeat`` fits at that tolerance (a fit over ten seconds is
timed once). Where a contender never reaches the gap, the time to its best gap counts.
Results are merged into ``results.json`` by row and contender, each with its date.
"""

import argparse
import dataclasses
import datetime
import fnmatch
import json
import os
import platform
import queue
import subprocess
import sys
import threading
import time
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from rich.console import Console
from scipy.special import logsumexp

from benchmarks import (
    clustering,
    factors,
    machines,
    networks,
    penalties,
    ratings,
    texts,
)
from benchmarks.peers import Fit, Problem, quietly
from benchmarks.report import write_table
from benchmarks.rows import ROWS, Contender, Row
from benchmarks.startup import measure_startup
from certus.objectives import Logistic, Squared
from certus.objectives.terms import L1, L2

LONG_FIT = 10.0
EVERY: tuple[Row, ...] = (
    *ROWS,
    *penalties.ROWS,
    *machines.ROWS,
    *clustering.ROWS,
    *factors.ROWS,
    *ratings.ROWS,
    *texts.ROWS,
    *networks.ROWS,
)

PACKAGES = (
    *("numpy", "scipy", "scikit-learn", "numba"),
    *("scikit-learn-intelex", "skglm", "celer", "glum", "statsmodels"),
    *("faiss-cpu", "scikit-surprise", "implicit", "gensim", "fasttext-wheel"),
    *("torch", "skorch"),
)


def measured_gap(p: Problem, fit: Fit, gap: float) -> float:
    """The verifier's number for one fit; the worst point of a path."""
    from certus import check

    if p.judge is not None:
        return float(p.judge(p, fit))

    def one(terms: Any, coef: Any) -> float:
        found = check(
            *(coef, fit.intercept, terms, p.X, p.y),
            fit_intercept=p.fit_intercept,
            tol=gap,
        )
        return float(found.value)

    if fit.alpha is not None:
        return one(p.terms(fit.alpha), fit.coef)
    if p.alphas is None:
        return one(p.terms, fit.coef)
    coefs = np.asarray(fit.coef)
    return max(one(p.terms(a), coefs[:, k]) for k, a in enumerate(p.alphas))


def objective(p: Problem, fit: Fit) -> float | None:
    """P at the fit, so that suboptimality can be shown beside the gap; no paths."""
    if p.alphas is not None or p.judge is not None:
        return None
    loss, penalty = p.terms
    w = np.asarray(fit.coef)
    z = p.X @ w.T + (fit.intercept or 0.0)
    if isinstance(loss, Squared):
        mean = 0.5 * np.mean((p.y - z) ** 2)
    elif isinstance(loss, Logistic):
        mean = np.mean(np.logaddexp(0, -p.y * z))
    else:
        mean = np.mean(logsumexp(z, axis=1) - z[np.arange(len(z)), p.y])
    if isinstance(penalty, L1):
        mean += penalty.alpha * np.abs(w).sum()
    elif isinstance(penalty, L2):
        mean += 0.5 * penalty.alpha * np.sum(w**2)
    return float(mean)


def busy() -> float | None:
    """Per cent of the machine that others use just before a contender starts."""
    try:
        import psutil
    except ImportError:
        return None
    return float(psutil.cpu_percent(interval=0.5))


def prepared(p: Problem, layout: str) -> Problem:
    """The problem in the layout a contender prefers; this is not timed."""
    if layout == "F" and not sp.issparse(p.X):
        return dataclasses.replace(p, X=np.asfortranarray(p.X))
    return p


def timed(contender: Contender, p: Problem, tol: float) -> tuple[float, Fit]:
    start = time.perf_counter()
    fit = quietly(contender.fit, p, tol)
    return time.perf_counter() - start, fit


def work(
    row: Row, contender: Contender, small: bool, repeat: int, budget: float
) -> None:
    """The body of a contender's process: one JSON object a line on stdout."""
    scale = 10 if small else 1
    tiny = prepared(row.problem(20 if small else 10), contender.layout)
    try:
        quietly(contender.fit, tiny, contender.ladder[0])
    except ImportError as error:
        if contender.kind == "ours":
            raise
        return emit(absent=str(error))
    p = prepared(row.problem(scale), contender.layout)
    begin = time.perf_counter()
    for tol in contender.ladder:
        emit(state=f"tol {tol:.0e}")
        seconds, fit = timed(contender, p, tol)
        value = measured_gap(p, fit, row.gap)
        reached = value <= row.gap
        if reached and seconds < LONG_FIT:
            emit(state=f"tol {tol:.0e}, repeating")
            runs = [timed(contender, p, tol) for _ in range(repeat)]
            seconds, fit = min(runs, key=lambda run: run[0])
            value = measured_gap(p, fit, row.gap)
            reached = value <= row.gap
        emit(
            rung={
                "tol": tol,
                "seconds": seconds,
                "gap": value,
                "reached": bool(reached),
                "objective": objective(p, fit),
                "certificate_seconds": fit.certificate_seconds,
                "alpha": fit.alpha,
            }
        )
        if reached or time.perf_counter() - begin > budget:
            return None
    return None


def emit(**message: Any) -> None:
    print(json.dumps(message), flush=True)


def run_contender(
    row: Row, contender: Contender, args: argparse.Namespace, console: Console
) -> dict[str, Any]:
    """Start the process, show where it is, and keep what it reported."""
    command = [sys.executable, "-m", "benchmarks.run", "--worker", row.name]
    command += [
        contender.name,
        "--repeat",
        str(args.repeat),
        "--budget",
        str(args.budget),
    ]
    command += ["--small"] if args.small else []
    result: dict[str, Any] = {"kind": contender.kind, "busy": busy(), "rungs": []}
    worker = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    lines: queue.Queue[str | None] = queue.Queue()
    errors: list[str] = []
    # Both pipes are drained by threads, so neither can fill and stall the worker.
    threading.Thread(target=_drain, args=(worker.stdout, lines), daemon=True).start()
    reader = threading.Thread(
        target=lambda: errors.extend(worker.stderr or ()), daemon=True
    )
    reader.start()
    state, start = "loading data", time.monotonic()
    with console.status("") as status:
        while True:
            passed = time.monotonic() - start
            status.update(f"{row.name} · {contender.name} · {state} · {passed:.0f} s")
            if passed > args.limit:
                worker.kill()
                result["stopped"] = f"after {args.limit:.0f} s"
                break
            try:
                line = lines.get(timeout=0.25)
            except queue.Empty:
                continue
            if line is None:
                break
            if not line.startswith("{"):
                continue
            message = json.loads(line)
            state = message.get("state", state)
            if "rung" in message:
                result["rungs"].append(message["rung"])
            if "absent" in message:
                result["absent"] = message["absent"]
    if worker.wait() and "stopped" not in result:
        reader.join(timeout=5)
        result["error"] = (errors or ["no message"])[-1].strip()
    return summarise(result)


def _drain(pipe: Any, lines: "queue.Queue[str | None]") -> None:
    for line in pipe:
        lines.put(line)
    lines.put(None)


def summarise(result: dict[str, Any]) -> dict[str, Any]:
    """Lift the rung that counts: the first to reach the gap, else the best gap."""
    rungs = result["rungs"]
    result["measured"] = datetime.datetime.now(datetime.UTC).isoformat("T", "seconds")
    if rungs:
        best = next((r for r in rungs if r["reached"]), None)
        result |= best or min(rungs, key=lambda r: r["gap"])
    return result


def machine(packages: tuple[str, ...] = PACKAGES) -> dict[str, Any]:
    """What the numbers were measured on and with."""
    versions = {}
    for name in packages:
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            versions[name] = "absent"
    cpu = platform.processor() or platform.machine()
    info = Path("/proc/cpuinfo")
    if info.exists():
        names = [s for s in info.read_text().splitlines() if s.startswith("model name")]
        cpu = names[0].split(":", 1)[1].strip() if names else cpu
    threads = os.environ.get("OMP_NUM_THREADS", "library default")
    return {
        "cpu": cpu,
        "cores": os.cpu_count(),
        "threads": threads,
        "python": platform.python_version(),
        "versions": versions,
    }


def describe(result: dict[str, Any]) -> str:
    if "absent" in result:
        return "absent"
    if "error" in result:
        return f"failed: {result['error']}"
    if "seconds" not in result:
        return "stopped before its first result"
    text = (
        f"{result['seconds']:.3f} s, gap {result['gap']:.1e} (tol {result['tol']:.0e})"
    )
    return text if result["reached"] else text + ", target gap not reached"


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.run")
    parser.add_argument(
        "--rows", default="*", help="only rows whose name matches; starting up"
    )
    parser.add_argument("--contenders", default="*", help="only these contenders")
    parser.add_argument("--repeat", type=int, default=3, help="timed fits, best counts")
    parser.add_argument(
        "--small", action="store_true", help="sizes a tenth: smoke test"
    )
    parser.add_argument("--budget", type=float, default=300, help="seconds on a ladder")
    parser.add_argument("--limit", type=float, default=900, help="seconds a contender")
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results"))
    parser.add_argument("--worker", nargs=2, help=argparse.SUPPRESS)
    return parser.parse_args()


def matches(name: str, pattern: str) -> bool:
    return fnmatch.fnmatchcase(name.lower(), f"*{pattern.lower()}*")


def main() -> None:
    """Run what was asked for and write results.json and table.md."""
    args = parse()
    if args.worker:
        row = next(r for r in EVERY if r.name == args.worker[0])
        contender = next(c for c in row.contenders if c.name == args.worker[1])
        return work(row, contender, args.small, args.repeat, args.budget)
    console = Console()
    # Small problems are for smoke tests: they never mix with real measurements.
    out = args.out / "small" if args.small else args.out
    out.mkdir(parents=True, exist_ok=True)
    store = out / "results.json"
    results = json.loads(store.read_text()) if store.exists() else {"rows": {}}
    results["machine"] = machine()
    for row in (r for r in EVERY if matches(r.name, args.rows)):
        console.print(f"[bold]{row.name}[/] · gap {row.gap:.0e}")
        kept = results["rows"].setdefault(row.name, {})
        for contender in row.contenders:
            if not matches(contender.name, args.contenders):
                continue
            kept[contender.name] = run_contender(row, contender, args, console)
            console.print(f"  {contender.name:28} {describe(kept[contender.name])}")
            store.write_text(json.dumps(results, indent=1) + "\n")
    if matches("starting up", args.rows):
        results["startup"] = measure_startup()
    store.write_text(json.dumps(results, indent=1) + "\n")
    write_table(results, EVERY, out / "table.md")
    console.print(f"Wrote {out / 'table.md'} and {store}.")
    return None


if __name__ == "__main__":
    main()
