"""Recall of 10,000 patterns of 784 bits: seconds of a fit and of a recall.

    python -m benchmarks.memories [SCALE]

Random patterns of 784 bits in each memory: seconds to store them, certificate included,
seconds to recall damaged copies, and the share of bits that come back. Hebb's rule
holds 0.138 patterns for each unit, so that it stores 50 of them and recalls 10,000
damaged copies of these. A Willshaw memory of this size holds about 4,300 patterns of
ten ones, and is measured below and beyond that. CPU seconds, the least of three runs.
Written to ``results/memories.md``.
"""

import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import certus
from benchmarks.report import describe_machine
from benchmarks.run import machine
from certus.memory import (
    HopfieldNetwork,
    ModernHopfield,
    WillshawMemory,
    willshaw_limits,
)

PACKAGES = ("certus", "numpy", "scipy")
RUNS, BITS = 3, 784


def timed(work: Callable[[], Any]) -> tuple[float, Any]:
    """The least CPU seconds of three runs, and the last result."""
    found, result = [], None
    for _ in range(RUNS):
        start = time.process_time()
        result = work()
        found.append(time.process_time() - start)
    return min(found), result


def row(name: str, model: Any, stored: Any, cues: Any, wanted: Any) -> str:
    """A line of the table."""
    fit, _ = timed(lambda: model.fit(stored))
    recall, found = timed(lambda: model.predict(cues))
    share = 100 * (np.abs(found - wanted) < 1e-3).mean()
    ones = wanted > 0
    missing = (ones & (found <= 0.5)).sum(axis=1).mean()
    false = (~ones & (found > 0.5)).sum(axis=1).mean()
    claims = [c for c in model.certificate_.claims if c.met is not None]
    missed = [c.detail for c in claims if not c.met]
    met = f"{len(claims) - len(missed)} of {len(claims)}"
    return (
        f"| {name} | {len(stored):,} | {fit:.2f} s | {len(cues):,} | {recall:.2f} s | "
        f"{share:.3f} % | {missing:.2f} | {false:.2f} | {'; '.join([met, *missed])} |"
    )


def rows(scale: int) -> list[str]:
    """One line for each memory."""
    rng, many = np.random.default_rng(0), 10_000 // scale
    signs = np.where(rng.random((many, BITS)) < 0.5, -1.0, 1.0)
    few = signs[:50]
    copies = np.resize(few, (many, BITS))
    half = signs[: BITS // 2]
    flipped = np.where(rng.random((many, BITS)) < 0.1, -1.0, 1.0)
    ones = np.zeros((many, BITS))
    np.put_along_axis(ones, rng.random((many, BITS)).argsort(axis=1)[:, :10], 1, 1)
    part = ones * (rng.random(ones.shape) < 0.8)
    small = half[:200]
    return [
        "| memory | stored | fit | recalled | recall | bits right | ones missing | "
        "false ones | claims met |",
        "|---|---|---|---|---|---|---|---|---|",
        row("Hopfield, hebb", HopfieldNetwork(), few, copies * flipped, copies),
        row(
            *("Hopfield, projection", HopfieldNetwork("projection"), small),
            *(np.resize(small, (many, BITS)) * flipped, np.resize(small, (many, BITS))),
        ),
        row("modern Hopfield", ModernHopfield(1.0), signs, signs * flipped, signs),
        *(
            row("Willshaw", WillshawMemory(), ones[:m], part[:m], ones[:m])
            for m in (4_000 // scale, many)
        ),
    ]


def full_check(scale: int) -> str:
    """The modern network's bounds are those of 512 patterns at level quick."""
    rng = np.random.default_rng(0)
    signs = np.where(rng.random((10_000 // scale, BITS)) < 0.5, -1.0, 1.0)
    model = ModernHopfield(1.0).fit(signs)
    start = time.process_time()
    found = certus.certify(model, signs, level="full")
    seconds = time.process_time() - start
    claims = [c for c in found.claims if c.met is not None]
    return (
        "The certificate of a fit bounds the error and the radius of 512 patterns of "
        f'the modern network. `certify(level="full")` does so for all of them, in '
        f"{seconds:.1f} s: {sum(bool(c.met) for c in claims)} of {len(claims)} claims "
        f"are met; {found['retrieval_error'].detail}; {found['repair_radius'].detail}."
    )


def main(arguments: list[str]) -> None:
    """Measure all, and write the table."""
    scale = int(arguments[0]) if arguments else 1
    with certus.config_context(on_uncertified="ignore"):
        parts = [
            "# Memories",
            describe_machine(machine(PACKAGES)).strip(),
            "CPU seconds, the least of three runs. Fits include the certificate. "
            "Damaged copies have 10 % of their bits flipped; cues of the Willshaw "
            "memory lack 20 % of their ones.",
            "Hebb's rule recalls up to about 0.138 patterns for each unit (108 here) "
            "with few wrong bits. That all are fixed points, as its certificate asks, "
            f"holds only up to about n/(4 ln n) = {BITS / (4 * np.log(BITS)):.0f}. "
            "The Willshaw memory holds n² ln 2/r² = "
            f"{willshaw_limits(BITS, 10)['n_patterns']:,.0f} patterns of r = 10 ones. "
            "Beyond that, most of its synapses are on, and false ones appear; its "
            "claims, such as that no one is missing, hold all the same. Ones missing "
            "and false ones are means over the recalled patterns. A memory that "
            f"returned zeros only would have {100 * (1 - 10 / BITS):.3f} % of the bits "
            "of patterns with 10 ones right, with 10 ones missing in each.",
            "\n".join(rows(scale)),
            full_check(scale),
        ]
    told = "\n\n".join(parts) + "\n"
    if scale == 1:
        Path(__file__).with_name("results").joinpath("memories.md").write_text(told)
    print(told)


if __name__ == "__main__":
    main(sys.argv[1:])
