"""Bits per byte of language models on texts of your own: the median of three seeds.

    python -m benchmarks.languages --text a.txt [--held b.txt] [--seconds 600]

Each model learns from the text but its last tenth, or from all of it where ``--held``
names another text, and is judged by the rest. Weights of a mixture are chosen on a part
of the training text that its members have not seen. Results are kept in
``results/languages.json`` by text and seed, and shown in ``results/languages.md``.
:mod:`benchmarks.austen` writes the texts of one row.
"""

import argparse
import json
import statistics
import time
import warnings
from pathlib import Path
from typing import Any

from benchmarks.report import describe_machine
from benchmarks.run import machine

PACKAGES = ("certus", "numpy", "torch", "numba")
#: Share of the training text on which a mixture's weights are chosen.
APART = 0.02


def measured(train: bytes, held: bytes, seconds: float, seed: int) -> dict[str, float]:
    """Bits per byte of each model, and the CPU time of the network's fit."""
    from certus.language import LanguageModel, MixtureOfModels, NGramModel, baselines

    found = baselines(held, train)
    # From the middle: without its end a model would not know the names there.
    begin, end = (
        int((0.5 - APART / 2) * len(train)),
        int((0.5 + APART / 2) * len(train)),
    )
    parts, apart = [train[:begin], train[end:]], train[begin:end]
    start = time.process_time()
    network = LanguageModel(max_time=seconds, random_state=seed)
    network.fit(parts, validation=apart)
    found["CPU s"] = time.process_time() - start
    found["network"] = network.bits_per_byte(held)
    counted = NGramModel(4, tokenizer=network.tokenizer_).fit(parts)
    mixture = MixtureOfModels([network, counted]).fit(apart)
    found["mixture"] = mixture.bits_per_byte(held)
    return found


def line(name: str, runs: dict[str, dict[str, float]]) -> str:
    """One row: the medians of the seeds."""
    columns = ("5-gram", "xz", "bzip2", "network", "mixture", "CPU s")
    middle = [statistics.median(run[c] for run in runs.values()) for c in columns]
    cells = [f"{value:.3f}" for value in middle[:-1]] + [f"{middle[-1]:.0f}"]
    return f"| {name} ({len(runs)} seeds) | " + " | ".join(cells) + " |\n"


def write(results: dict[str, Any], out: Path) -> None:
    """Results as JSON and as a table."""
    (out / "languages.json").write_text(json.dumps(results, indent=1) + "\n")
    text = "# Bits per byte of text that was held out\n\n"
    text += describe_machine(results["machine"])
    text += (
        "Compressors and the 5-gram know the training text. Networks have default "
        "settings and the seconds named.\n\n"
        "| text | 5-gram | xz | bzip2 | network | mixture | CPU s |\n"
        "|---|---|---|---|---|---|---|\n"
    )
    for name, runs in results["texts"].items():
        text += line(name, runs)
    (out / "languages.md").write_text(text)


def main() -> None:
    """Measure one text with some seeds, and write the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.languages")
    parser.add_argument("--text", type=Path, required=True)
    parser.add_argument("--held", type=Path, help="text to judge by")
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results"))
    args = parser.parse_args()
    if not args.text.exists():
        raise SystemExit(f"There is no text at {args.text}; nothing was measured.")
    train = args.text.read_bytes()
    if args.held is None:
        cut = int(0.9 * len(train))
        train, held = train[:cut], train[cut:]
    else:
        held = args.held.read_bytes()
    store = args.out / "languages.json"
    results = json.loads(store.read_text()) if store.exists() else {"texts": {}}
    results["machine"] = machine(PACKAGES)
    warnings.simplefilter("ignore")  # a fit may end before it is certified
    runs = results["texts"].setdefault(f"{args.text.stem}, {args.seconds:g} s", {})
    for seed in range(args.seeds):
        runs[str(seed)] = measured(train, held, args.seconds, seed)
        print(f"seed {seed}: {runs[str(seed)]}", flush=True)
        write(results, args.out)


if __name__ == "__main__":
    main()
