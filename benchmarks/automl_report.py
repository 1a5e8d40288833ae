"""The page on automatic machine learning, from the cells measured so far."""

import json
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.automl import CONTENDERS, OURS, PACKAGES, SINGLE
from benchmarks.automl_tables import SOURCES

TEXT = """\
Sixteen tables from packages, a quarter of the rows sealed, the same splits for
everyone; log loss for labels, RMSE for amounts, on the sealed rows. Automatic tools are
given the task, the metric and the limit; the others are one fit with defaults and need
no limit. A cell is one fit in a process of its own. Columns of texts have the type
category; no contender gets more information. `python -m benchmarks.automl run`
measures the cells that are missing and may be stopped at any time.

*Rank*: among the contenders with a result in every cell of a comparison, the mean over
tables and splits. *Share*: how much of the distance from the best constant answer to
the best contender is reached; 1 is the best. Intervals are those of the mean over
tables, by 2,000 resamples of the tables, for 95 %.
"""


def write_table(cells: Path, page: Path) -> None:
    """Every comparison of which there are cells, then all cells."""
    from benchmarks.report import describe_machine
    from benchmarks.run import machine

    known = json.loads(cells.read_text()) if cells.exists() else {}
    text = "# Beside automatic machine learning\n\n"
    text += f"{describe_machine(machine(PACKAGES)).strip()}\n\n{TEXT}\n"
    missing = 8 * 16 * 3 - sum(" | 300 s" not in place for place in known)
    text += f"Measured: {len(known)} cells; {max(0, missing)} of the plan for "
    text += "60 s are missing.\n\n"
    limits = sorted({place.split(" | ")[3] for place in known} - {"single"})
    for limit in limits or ["single"]:
        text += _comparison(known, limit)
    text += (
        "## Every cell\n\n| table | contender | split | limit | loss | s | chose |\n"
    )
    text += "|---|---|---|---|---|---|---|\n"
    for place, cell in sorted(known.items()):
        name, who, split, limit = place.split(" | ")
        said = cell.get("error") or f"{cell['loss']:.5g}"
        seconds = f"{cell['seconds']:.1f}" if "seconds" in cell else "–"
        text += f"| {name} | {who} | {split} | {limit} | {said} | {seconds} | "
        text += f"{cell.get('chosen', '–')} |\n"
    page.write_text(text, encoding="utf-8")


def _comparison(known: dict[str, Any], limit: str) -> str:
    """Ranks and shares of all contenders that have cells at this limit."""
    single = "single"
    ids = {who: single if who in SINGLE else limit for who in CONTENDERS}
    pairs = sorted({tuple(place.split(" | ")[0:3:2]) for place in known})
    have = {
        who: {p for p in pairs if f"{p[0]} | {who} | {p[1]} | {ids[who]}" in known}
        for who in ids
    }
    if limit != single and have[OURS]:
        pairs = [pair for pair in pairs if pair in have[OURS]]
    shown = [who for who in ids if pairs and set(pairs) <= have[who]]
    left = [who for who in ids if who not in shown]
    title = "Single default models" if limit == single else f"Limit {limit}"
    text = f"## {title}\n\n"
    if len(shown) < 2:
        return text + "Too few cells.\n\n"

    def cell(pair: Any, who: str) -> Any:
        return known[f"{pair[0]} | {who} | {pair[1]} | {ids[who]}"]

    names = list(SOURCES)
    losses = np.array([[cell(p, w).get("loss", np.inf) for w in shown] for p in pairs])
    constant = np.array(
        [max(cell(p, w).get("constant", 0.0) for w in shown) for p in pairs]
    )
    ranks = 1.0 + (losses[:, None] < losses[:, :, None]).sum(axis=2)
    ranks += ((losses[:, None] == losses[:, :, None]).sum(axis=2) - 1) / 2
    best = losses.min(axis=1)
    shares = (constant[:, None] - losses) / (constant - best)[:, None]
    shares = np.clip(shares, 0.0, 1.0)
    table = np.array([names.index(pair[0]) for pair in pairs])
    text += f"{len(set(table))} tables, {len(pairs)} pairs of a table and a split. "
    text += f"Without all cells: {', '.join(left) or 'none'}.\n\n"
    text += "| contender | mean rank | mean share | failures | median s |\n"
    text += "|---|---|---|---|---|\n"
    for j in np.argsort(ranks.mean(axis=0)):
        each = [cell(p, shown[j]) for p in pairs]
        seconds = [c["seconds"] for c in each if "seconds" in c]
        text += f"| {shown[j]} | {_interval(ranks[:, j], table)} | "
        text += f"{_interval(shares[:, j], table)} | "
        text += f"{sum('error' in c for c in each)} | "
        text += f"{np.median(seconds) if seconds else np.nan:.1f} |\n"
    return text + "\n"


def _interval(values: Any, table: Any) -> str:
    """The mean over tables, and the interval of its resamples."""
    means = np.array([values[table == t].mean() for t in np.unique(table)])
    rng = np.random.default_rng(0)
    drawn = rng.choice(means, (2000, len(means))).mean(axis=1)
    low, high = np.quantile(drawn, (0.025, 0.975))
    return f"{means.mean():.2f} ({low:.2f} to {high:.2f})"
