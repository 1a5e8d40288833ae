"""The page on automatic machine learning, from the cells measured so far."""

import json
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.automl import (
    ADDITIVE,
    CONTENDERS,
    LIMIT,
    LONG_LIMIT,
    OURS,
    PACKAGES,
    SINGLE,
    plan,
)
from benchmarks.automl_tables import SOURCES

GLUON, PLAIN, BOOSTING, EBM = (
    "AutoGluon, medium quality",
    "linear pipeline",
    "HistGradientBoosting",
    "EBM",
)

TEXT = """\
Sixteen tables from packages, a quarter of the rows sealed, the same splits for
everyone; log loss for labels, RMSE for amounts, on the sealed rows. Automatic tools are
given the task, the metric and the limit; the others are one fit with defaults and need
no limit. A cell is one fit in a process of its own. Columns of texts have the type
category; no contender gets more information.

What was compared is the predictions alone. `certus.compare` is called with
`fraction=0`: it chooses by folds and fits its choice to all rows that it is given, as
FLAML does. It seals no rows, so it states no risk, and it makes no intervals: the CV+
models of `refit=True` would take several times the seconds of the choice, and no other
contender computes intervals. Its certificate is made, and counts in its seconds.
`certus additive` is one fit of an additive model with defaults, beside EBM.
`python -m benchmarks.automl run` measures the cells that are missing and may be stopped
at any time.

*Rank*: among the contenders with a result in every cell of a comparison, the mean over
tables and splits. *Share*: how much of the distance from the best constant answer to
the best contender is reached; 1 is the best. Where no contender beats the constant
answer, those that reach it have 1, the others 0. *Error*: the loss divided by that of
the other, the geometric mean over tables and splits where both have a result; above 1,
the one named first, which is of certus, is worse. Intervals are those of the mean over
tables, by 2,000 resamples of the tables, for 95 %.
"""


def write_table(cells: Path, page: Path) -> None:
    """Every comparison of which there are cells, then all cells."""
    from benchmarks.report import describe_machine
    from benchmarks.run import machine

    known = json.loads(cells.read_text()) if cells.exists() else {}
    text = "# Beside automatic machine learning\n\n"
    text += f"{describe_machine(machine(PACKAGES)).strip()}\n\n{TEXT}\n"
    text += f"{_counts(known)}\n\n"
    limits = {place.split(" | ")[3] for place in known} - {"single"}
    limits = sorted(limits, key=lambda limit: float(limit.split()[0]))
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


def _counts(known: dict[str, Any]) -> str:
    """How many cells there are, and how many of the plan are missing."""
    short, long = plan(LIMIT), plan(LONG_LIMIT)
    missing = [sum(place not in known for place in part) for part in (short, long)]
    return (
        f"Measured: {len(known)} cells. Missing: {missing[0]} of {len(short)} for "
        f"{LIMIT} s and single fits, {missing[1]} of {len(long)} for {LONG_LIMIT} s."
    )


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
    shares = shares_of(losses, constant)
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
    losses_of = {who: losses[:, j] for j, who in enumerate(shown)}
    return (
        text
        + "\n"
        + _as_share(losses_of, table, OURS, GLUON)
        + _as_share(losses_of, table, ADDITIVE, EBM)
        + _beside_plain(losses_of, table)
    )


def shares_of(losses: Any, constant: Any) -> Any:
    """How much of the way from the constant answer to the best loss is reached."""
    best = losses.min(axis=1)
    way = (constant - best)[:, None]
    reached = np.isfinite(losses) & (losses <= best[:, None])
    with np.errstate(divide="ignore", invalid="ignore"):
        share = np.where(way > 0, (constant[:, None] - losses) / way, reached)
    return np.clip(share, 0.0, 1.0)


def _logs(mine: Any, other: Any) -> Any:
    """Logarithms of the losses' ratios; NaN where one of them has no result."""
    sound = np.isfinite(mine) & np.isfinite(other) & (mine > 0) & (other > 0)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(sound, np.log(mine) - np.log(other), np.nan)


def _as_share(losses: dict[str, Any], table: Any, mine: str, other: str) -> str:
    """The mean error of one contender as a share of another's."""
    if mine not in losses or other not in losses:
        return ""
    logs = _logs(losses[mine], losses[other])
    sound = np.isfinite(logs)
    if not sound.any():
        return ""
    mean, low, high = np.exp(_resampled(logs[sound], table[sound]))
    return (
        f"Mean error of {mine} as a share of that of {other}: {mean:.3f} "
        f"({low:.3f} to {high:.3f}), in {sound.sum()} pairs.\n\n"
    )


def _beside_plain(losses: dict[str, Any], table: Any) -> str:
    """Table by table: certus beside the better of the two plain models."""
    if not {OURS, PLAIN, BOOSTING} <= set(losses):
        return ""
    other = np.minimum(losses[PLAIN], losses[BOOSTING])
    logs = _logs(losses[OURS], other)
    text = f"{OURS} beside the better of {PLAIN} and {BOOSTING}, which the sealed rows "
    text += "choose in its favour:\n\n"
    text += "| table | error as a share | lowest to highest split | splits |\n"
    text += "|---|---|---|---|\n"
    for number in np.unique(table):
        each = np.exp(logs[(table == number) & np.isfinite(logs)])
        if len(each):
            mean = np.exp(np.log(each).mean())
            text += f"| {list(SOURCES)[number]} | {mean:.3f} | {each.min():.3f} to "
            text += f"{each.max():.3f} | {len(each)} |\n"
        else:
            text += f"| {list(SOURCES)[number]} | – | – | 0 |\n"
    return text + "\n"


def _interval(values: Any, table: Any) -> str:
    """The mean over tables, and the interval of its resamples."""
    mean, low, high = _resampled(values, table)
    return f"{mean:.2f} ({low:.2f} to {high:.2f})"


def _resampled(values: Any, table: Any) -> Any:
    """The mean over tables, and the ends of its interval."""
    means = np.array([values[table == t].mean() for t in np.unique(table)])
    rng = np.random.default_rng(0)
    drawn = rng.choice(means, (2000, len(means))).mean(axis=1)
    return np.array([means.mean(), *np.quantile(drawn, (0.025, 0.975))])
