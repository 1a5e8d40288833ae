"""Bits per byte of language models on texts of your own: the median of three seeds.

    python -m benchmarks.languages --text a.txt [--held b.txt] [--seconds 600]

Each model learns from the text but its last tenth, or from all of it where ``--held``
names another text, and is judged by the rest. Two passages of the training text are
kept from both members of the mixture: the first one stops the training of the network,
the second one chooses the weights. Results are kept in ``results/languages.json`` by
text and seed, and shown in ``results/languages.md``. zstd needs ``zstandard`` before
Python 3.14.
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

PACKAGES = ("certus", "numpy", "torch", "numba", "zstandard")
#: Shares of the training text that stop the network and choose a mixture's weights.
VALIDATION, MIXING = 0.02, 0.01
COLUMNS = ("5-gram", "xz", "bzip2", "zstd", "network", "mixture")
#: Two, or absent in results of runs where one passage served both ends.
APART = "passages kept apart"


def passages(train: bytes) -> tuple[list[bytes], bytes, bytes]:
    """What the models learn from, and two passages between its halves.

    From the middle: without its end a model would not know the names there.
    """
    begin = int((0.5 - (VALIDATION + MIXING) / 2) * len(train))
    between = begin + int(VALIDATION * len(train))
    end = between + int(MIXING * len(train))
    return [train[:begin], train[end:]], train[begin:between], train[between:end]


def measured(train: bytes, held: bytes, seconds: float, seed: int) -> dict[str, float]:
    """Bits per byte of each model, and the CPU time of the network's fit."""
    from certus.language import LanguageModel, MixtureOfModels, NGramModel, baselines

    found = baselines(held, train)
    parts, validation, mixing = passages(train)
    start = time.process_time()
    network = LanguageModel(max_time=seconds, random_state=seed)
    network.fit(parts, validation=validation)
    found["CPU s"] = time.process_time() - start
    found["network"] = network.bits_per_byte(held)
    counted = NGramModel(4, tokenizer=network.tokenizer_).fit(parts)
    mixture = MixtureOfModels([network, counted]).fit(mixing)
    found["mixture"] = mixture.bits_per_byte(held)
    return found | {APART: 2}


def line(name: str, runs: dict[str, dict[str, float]]) -> str:
    """One row: the medians of the seeds; a star if one passage served twice."""
    cells = []
    for column in COLUMNS:
        found = [run[column] for run in runs.values() if column in run]
        cells.append(f"{statistics.median(found):.3f}" if found else "–")
    if any(run.get(APART) != 2 for run in runs.values()):
        cells[-1] += "*"
    cells.append(f"{statistics.median(run['CPU s'] for run in runs.values()):.0f}")
    return f"| {name} ({len(runs)} seeds) | " + " | ".join(cells) + " |\n"


def write(results: dict[str, Any], out: Path) -> None:
    """Results as JSON and as a table."""
    (out / "languages.json").write_text(json.dumps(results, indent=1) + "\n")
    text = "# Bits per byte of text that was held out\n\n"
    text += describe_machine(results["machine"])
    text += (
        "Compressors and the 5-gram know the training text. Networks have default "
        f"settings and the seconds named.\n\n| text | {' | '.join(COLUMNS)} | CPU s |\n"
        f"{'|---' * (len(COLUMNS) + 2)}|\n"
    )
    rows = [line(name, runs) for name, runs in results["texts"].items()]
    text += "".join(rows)
    if any("*" in row for row in rows):
        text += (
            "\n\\* The weights were chosen on the passage that stopped the network.\n"
        )
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
