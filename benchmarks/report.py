"""The Markdown table of a benchmark run: one line per row, and what was absent."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.rows import Row

BUSY = 15.0  # per cent of the machine

HEADER = (
    "| row | ours, s | of it certificate, s | our gap | best peer | its s | its gap "
    "| peer ÷ ours | target | met |\n|---|---|---|---|---|---|---|---|---|---|\n"
)

EVERY = (
    "\n## Every contender\n\n"
    "| row | who | s | gap | tol | s by excess | measured |\n"
    "|---|---|---|---|---|---|---|\n"
)
READING = (
    "All at the row's gap, measured by `certus.verify.check`; warm, best of 3. A star "
    "marks a peer that did not reach the gap: its time to its best gap counts. A "
    "dagger marks a ratio of times from different days, perhaps of different machines; "
    "the days are in the last table. Ratios under 1.25 are within the machine's noise. "
    "*By excess*: the peer's time until its objective, not its gap, is within the "
    "row's target; ours is timed to the gap either way.\n\n"
)


def best_peer(found: dict[str, Any]) -> str | None:
    """The fastest peer that reached the gap; if none did, the one that came nearest."""
    ran = {k: found[k] for k in _peers(found)}
    reached = {k: r for k, r in ran.items() if r["reached"]}
    if reached:
        return min(reached, key=lambda k: reached[k]["seconds"])
    return min(ran, key=lambda k: ran[k]["gap"], default=None)


def seconds_by_excess(row: Row, found: dict[str, Any], who: str) -> float | None:
    """Seconds until (P − P*) / P* ≤ the row's gap, P* being the lowest P anyone found.

    A gap bounds this excess from above. Under a weak penalty the gap can be thousands
    of times larger, so a first-order method pays much more for the gap than for P.
    """
    values = [
        rung["objective"]
        for r in found.values()
        for rung in r["rungs"]
        if rung["objective"] is not None and np.isfinite(rung["objective"])
    ]
    if not values:
        return None
    most = min(values) * (1 + row.gap)
    rungs = [r for r in found[who]["rungs"] if r["objective"] <= most]
    return min((float(r["seconds"]) for r in rungs), default=None)


def line(row: Row, found: dict[str, Any]) -> str:
    """One row of the table."""
    us, best = found.get("certus", {}), best_peer(found)
    peer = found.get(best, {}) if best else {}
    mine, note = us.get("seconds", np.nan), row.note
    if row.fit_alone:
        mine -= us.get("certificate_seconds") or 0.0
        note = "ratios of the fit alone"
    ratios, wanted, met = [], [], []
    for who, ratio in row.targets:
        name = best if who == "best" else who
        other = found.get(name, {}) if name else {}
        wanted.append(f"≥ {ratio:g}" + ("" if who == "best" else f" of {who}"))
        if "seconds" not in us or "seconds" not in other:
            ratios.append("–")
            met.append(None)
            continue
        value = other["seconds"] / mine
        # Beating a peer that fell short of the gap is marked, not hidden.
        ratios.append(f"{value:.2f}" + ("" if other["reached"] else "*"))
        ratios[-1] += "" if _day(us) == _day(other) else "†"
        rivals = [name] if who != "best" else _peers(found)
        times = [seconds_by_excess(row, found, rival) for rival in rivals]
        sooner = min((t for t in times if t is not None), default=np.inf)
        if sooner < 0.8 * other["seconds"]:
            ratios[-1] += f" ({sooner / mine:.2f} by excess)"
        # Where the fit chooses alpha, another choice is another problem.
        same = us.get("alpha") is None or np.isclose(us["alpha"], other["alpha"])
        met.append(bool(us["reached"]) and bool(same) and value >= ratio)
    known = met and None not in met
    verdict = ("yes" if all(met) else "no") if known else "–"
    cells = [
        row.name + (f" ({note})" if note else ""),
        _number(us.get("seconds"), ".3f"),
        _number(us.get("certificate_seconds"), ".3f"),
        _number(us.get("gap"), ".1e"),
        best or "–",
        _number(peer.get("seconds"), ".3f"),
        _number(peer.get("gap"), ".1e"),
        "; ".join(ratios),
        "; ".join(wanted),
        verdict,
    ]
    return "| " + " | ".join(cells) + " |\n"


def write_table(results: dict[str, Any], rows: Sequence[Row], path: Path) -> None:
    """Write the table, the starts, and the peers that are missing."""
    text = "# Benchmarks\n\n" + describe_machine(results["machine"]) + READING
    rows_found = results["rows"].values()
    text += disturbed([r for found in rows_found for r in found.values()]) + HEADER
    for row in rows:
        if row.name in results["rows"]:
            text += line(row, results["rows"][row.name])
    text += EVERY
    for row in rows:
        found = results["rows"].get(row.name, {})
        for who, r in found.items():
            sooner = _number(seconds_by_excess(row, found, who), ".3f")
            cells = [row.name, who + _kind(r), _outcome(r), sooner, _day(r)]
            text += "| " + " | ".join(cells) + " |\n"
    if "startup" in results:
        text += "\n## Starting up\n\n| what | s | limit | met |\n|---|---|---|---|\n"
        for name, r in results["startup"].items():
            met = {True: "yes", False: "no", None: "failed"}[r.get("met")]
            seconds = _number(r.get("seconds"), ".3f")
            text += f"| {name} | {seconds} | < {r['limit']} | {met} |\n"
    path.write_text(text)


def describe_machine(machine: dict[str, Any]) -> str:
    """Processor, threads and versions, as a paragraph."""
    text = f"{machine['cpu']}, {machine['cores']} cores, threads: {machine['threads']},"
    text += f" Python {machine['python']}. "
    return (
        text + ", ".join(f"{k} {v}" for k, v in machine["versions"].items()) + ".\n\n"
    )


def disturbed(runs: Sequence[dict[str, Any]]) -> str:
    """A warning if others used the machine: threaded products suffer most."""
    loads = [r.get("busy") or 0.0 for r in runs]
    count = sum(load > BUSY for load in loads)
    if not count:
        return ""
    return (
        f"**{count} of {len(loads)} contenders ran while others used more than "
        f"{BUSY:.0f} % of the machine; their seconds are not reliable.**\n\n"
    )


def _number(value: float | None, form: str) -> str:
    return "–" if value is None else format(value, form)


def _peers(found: dict[str, Any]) -> list[str]:
    """Names of the peers that produced a result."""
    return [k for k, r in found.items() if r["kind"] == "peer" and "seconds" in r]


def _day(r: dict[str, Any]) -> str:
    """When a contender was measured."""
    return str(r.get("measured", "–"))[:10]


def _kind(r: dict[str, Any]) -> str:
    return " (reference)" if r["kind"] == "reference" else ""


def _outcome(r: dict[str, Any]) -> str:
    if "absent" in r:
        return "absent | – | –"
    if "seconds" not in r:
        return "failed | – | –" if "error" in r else "no result | – | –"
    star = "" if r["reached"] else "*"
    return f"{r['seconds']:.3f}{star} | {r['gap']:.1e} | {r['tol']:.0e}"
