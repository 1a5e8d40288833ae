"""Metrics by group beside fairlearn's, on the same data: the largest difference.

    python -m benchmarks.fairness

Counts decide what is right, so there is one right answer and the two must agree to
1e-12. Where they do not mean the same, the line says so. Written to
``results/fairness.md``.
"""

import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from benchmarks.report import describe_machine
from benchmarks.run import machine
from certus.fairness import independence, separation, sufficiency

PACKAGES = ("certus", "fairlearn", "numpy", "scikit-learn", "pandas")
BAR = 1e-12


class Data(NamedTuple):
    """Truths, decisions, attribute and weights."""

    name: str
    y: Any
    d: Any
    a: Any
    w: Any


def datasets() -> Iterator[Data]:
    """Rows of several kinds: two groups, many, intersections, a rare one."""
    for seed, (n, k) in enumerate([(1_000, 2), (100_000, 2), (20_000, 12)]):
        rng = np.random.default_rng(seed)
        a = rng.choice([f"g{j}" for j in range(k)], n, p=_shares(k))
        y = rng.integers(0, 2, n)
        d = (rng.random(n) < 0.3 + 0.3 * y + 0.02 * (a == "g1")).astype(int)
        yield Data(f"{n:,} rows, {k} groups", y, d, a, rng.exponential(size=n))
    rng = np.random.default_rng(9)
    pair = np.column_stack(
        [rng.choice(["f", "m"], 5_000), rng.choice(list("xyz"), 5_000)]
    )
    y, d = rng.integers(0, 2, (2, 5_000))
    yield Data("5,000 rows, 2 × 3 groups", y, d, pair, rng.exponential(size=5_000))


def _shares(k: int) -> Any:
    share = 0.8 ** np.arange(k)
    return share / share.sum()


def comparisons(data: Data, weighted: bool) -> Iterator[tuple[str, float, float]]:
    """What is compared, ours and theirs, as single numbers or by group."""
    import fairlearn.metrics as fl
    from sklearn.metrics import precision_score

    y, d, a, w = data.y, data.d, data.a, data.w if weighted else None
    theirs: dict[str, Any] = {"sensitive_features": a, "sample_weight": w}
    frame = {
        "selection_rate": fl.selection_rate,
        "true_positive_rate": fl.true_positive_rate,
        "false_positive_rate": fl.false_positive_rate,
        "positive_predictive_value": precision_score,
    }
    more = {name: {"sample_weight": w} for name in frame} if weighted else None
    found = fl.MetricFrame(
        metrics=frame, y_true=y, y_pred=d, sensitive_features=a, sample_params=more
    )
    tables = {
        "selection_rate": independence(d, a, sample_weight=w),
        "true_positive_rate": (sep := separation(y, d, a, sample_weight=w)),
        "false_positive_rate": sep,
        "positive_predictive_value": sufficiency(y, d, a, sample_weight=w),
    }
    for name, table in tables.items():
        for group, value in table[name].items():
            yield f"MetricFrame {name}", value, found.by_group[name][group]
        gap = table.gap(name)
        yield "MetricFrame.difference()", gap.difference, found.difference()[name]
        yield "MetricFrame.ratio()", gap.ratio, found.ratio()[name]
    counted = fl.MetricFrame(metrics=fl.count, y_true=y, y_pred=d, sensitive_features=a)
    table = tables["selection_rate"]
    for group, n in zip(table.groups, table.counts):
        yield "count", float(n), float(counted.by_group[group])
    pairs: list[tuple[str, Callable[..., float], float]] = [
        (
            "demographic_parity_difference",
            fl.demographic_parity_difference,
            table.difference,
        ),
        ("demographic_parity_ratio", fl.demographic_parity_ratio, table.ratio),
        ("equalized_odds_difference", fl.equalized_odds_difference, sep.difference),
        ("equalized_odds_ratio", fl.equalized_odds_ratio, sep.ratio),
        (
            "equal_opportunity_difference",
            fl.equal_opportunity_difference,
            sep.gap("true_positive_rate").difference,
        ),
    ]
    for name, metric, ours in pairs:
        yield name, ours, metric(y, d, **theirs)


def main() -> None:
    """Compare everything and write the table."""
    rows: dict[str, list[float]] = {}
    names = []
    for data in datasets():
        names.append(data.name)
        for weighted in (False, True):
            for name, ours, theirs in comparisons(data, weighted):
                rows.setdefault(name, []).append(abs(float(ours) - float(theirs)))
    lines = [
        "# Fairness metrics beside fairlearn's",
        "",
        f"Data: {'; '.join(names)}; each without and with weights.",
        "",
        "| metric | numbers compared | largest difference | within 1e-12 |",
        "|---|---|---|---|",
    ]
    for name, found in rows.items():
        worst = max(found)
        met = "yes" if worst <= BAR else "**no**"
        lines.append(f"| {name} | {len(found)} | {worst:.1e} | {met} |")
    lines += [
        "",
        "Where a group has no row to count on (no positive truth, say), fairlearn "
        "reports a rate of 0; certus reports no value and the interval [0, 1]. If all "
        "rates are 0, fairlearn's ratio is NaN and ours 1. A missing attribute is "
        "refused there and a group here. Such rows do not occur above.",
        "",
        "## Time",
        "",
        "True and false positive rates of three groups and their differences, medians "
        "of runs by turns; ours with intervals, theirs without.",
        "",
        "| rows | certus | fairlearn | theirs ÷ ours |",
        "|---|---|---|---|",
        *map(_timed, (1_000, 100_000, 1_000_000)),
        "",
        describe_machine(machine(PACKAGES)),
    ]
    place = Path(__file__).parent / "results" / "fairness.md"
    place.write_text("\n".join(lines).rstrip() + "\n", encoding="utf-8")
    print("\n".join(lines))


def _timed(n: int) -> str:
    ours, theirs = _seconds(n, 9 if n < 1_000_000 else 3)
    times = f"{1e3 * ours:,.1f} ms | {1e3 * theirs:,.1f} ms | {theirs / ours:.1f}"
    return f"| {n:,} | {times} |"


def _seconds(n: int, turns: int) -> tuple[float, float]:
    """The same table of n rows and three groups, ours and theirs by turns: medians."""
    import fairlearn.metrics as fl

    rng = np.random.default_rng(n)
    y, d = rng.integers(0, 2, (2, n))
    a = rng.choice(["f", "m", "x"], n)
    metrics = {"t": fl.true_positive_rate, "f": fl.false_positive_rate}
    times = []
    for _ in range(turns):
        start = time.perf_counter()
        separation(y, d, a)
        middle = time.perf_counter()
        fl.MetricFrame(
            metrics=metrics, y_true=y, y_pred=d, sensitive_features=a
        ).difference()
        times.append((middle - start, time.perf_counter() - middle))
    ours, theirs = np.median(times, axis=0)
    return float(ours), float(theirs)


if __name__ == "__main__":
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        main()
