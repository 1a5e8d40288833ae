"""``certus fit``: a table in; a chosen model, its certificate and a report out.

Rows are sealed before anything is fitted; candidates are compared on folds of the
others, one is chosen by a rule fixed in advance, and the sealed rows are opened once,
for the chosen one. ``--model`` names the only candidate.
"""

from __future__ import annotations

import dataclasses
import math
import shlex
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from time import perf_counter
from typing import Any, NamedTuple

from certus._core.alarm import TimeIsUp, alarm
from certus.cli import INTERRUPTED, MISSED, files
from certus.cli.data import LabelledTable, read_training
from certus.cli.limits import (
    check_limit,
    model_seconds,
    seconds_left,
    too_short,
    until_limit,
)
from certus.cli.models import build, find_model, load_foreign
from certus.cli.screen import (
    Stop,
    out,
    progress,
    remark,
    say,
    say_certificate,
    say_claims,
)
from certus.unwrapping import innermost, wrappers
from certus.wording import clean, shorten

#: Seconds the figures of the report may take.
REPORT_SECONDS = 6.0
#: Of the time left for the report, the share after which it is given up.
ENDING = 0.8


#: What is said where the model was fitted again.
REFITTED = (
    "fitted again to all {rows:,} rows for the file; what the sealed rows say is about "
    "the model before that (--no-refit keeps it)"
)


class FitRequest(NamedTuple):
    """What the user asked for, beyond the table."""

    model: str | None = None
    settings: Sequence[str] = ()
    also: Sequence[str] = ()
    drop: Sequence[str] = ()
    keep: Sequence[str] = ()
    groups: str | None = None
    time: str | None = None
    seed: int | None = None
    max_time: float | None = None
    encoding: str | None = None
    metric: str | None = None
    positive: str | None = None
    bounds: tuple[float, float] | None = None
    cost: dict[str, float] | None = None
    recall: float | None = None
    refit: bool | None = None


class FitOutcome(NamedTuple):
    """Everything a fit found, for the terminal and for ``--json``."""

    data: LabelledTable
    comparison: Any
    source: Path | None
    out: Path | None
    report: Path | None
    code: int


def run(
    path: Path | None,
    target: str | None,
    plan: FitRequest,
    out_path: Path | None,
    report_path: Path | None,
    keep_files: bool,
    as_json: bool,
) -> int:
    """Read, compare, write, report; returns the exit code."""
    check_limit(plan.max_time)
    named = find_model(plan.model) if plan.model else None
    if plan.settings and named is None:
        raise Stop("--set needs one model: name it with --model.", code=2)
    places = places_of(path, out_path, report_path) if keep_files else (None, None)
    models = {named.command: build(named, plan.settings, plan.seed)} if named else None
    also = load_foreign(plan.also, plan.seed)
    with progress(limit=plan.max_time) as step:
        step(f"reading {path.name if path else 'the example'}")
        wanted = None if named is None else named.predicts == "labels"
        with until_limit(plan.max_time):
            data = read_training(path, target, plan.drop, wanted, plan.encoding)
            import_module("certus.selection")  # which takes time, too
        for column in (*plan.keep, plan.groups, plan.time):
            data.require(column)
        comparison = _compare(data, plan, models, also, step)
        code = exit_code(comparison.certificate)
        if comparison.status.value == "interrupted":
            code = INTERRUPTED
        result = FitOutcome(data, comparison, path, places[0], places[1], code)
        result = _write(result, plan.max_time, step)
    if as_json:
        _say_json(result)
    else:
        _say_result(result)
    if result.code == INTERRUPTED:
        kept = (
            "the finished parts were written." if places[0] else "nothing was written."
        )
        raise Stop(f"interrupted; {kept}", code=INTERRUPTED)
    return result.code


def _compare(
    data: LabelledTable, plan: FitRequest, models: Any, also: Any, step: Any
) -> Any:
    from certus.config import config_context
    from certus.selection import compare

    try:
        with config_context(on_interrupt="return", on_uncertified="ignore"):
            return compare(
                data.X,
                data.y,
                models=models,
                also=also,
                task=data.task,
                groups=plan.groups,
                time=plan.time,
                keep=plan.keep,
                metric=plan.metric,
                positive=plan.positive,
                bounds=plan.bounds,
                cost=plan.cost,
                recall=plan.recall,
                refit=plan.refit,
                random_state=plan.seed or 0,
                max_time=model_seconds(plan.max_time),
                on_step=step,
            )
    except TimeoutError:
        raise too_short(plan.max_time) from None


def read_bounds(text: str | None) -> tuple[float, float] | None:
    """``LOW,HIGH`` as two numbers."""
    if text is None:
        return None
    try:
        low, high = (float(part) for part in text.split(","))
    except ValueError:
        raise Stop(f"--bounds must be LOW,HIGH, got {text}.", code=2) from None
    if not (math.isfinite(low) and math.isfinite(high)):
        raise Stop(f"--bounds must be LOW,HIGH, two finite numbers, got {text}.", 2)
    if not low < high:
        raise Stop(f"--bounds must be LOW,HIGH with LOW below HIGH, got {text}.", 2)
    return low, high


def read_costs(text: str | None) -> dict[str, float] | None:
    """``fp=1,fn=20`` as costs."""
    if text is None:
        return None
    parts = [part.partition("=") for part in text.split(",")]
    try:
        found = {name.strip(): float(value) for name, _, value in parts}
    except ValueError:
        found = {}
    if set(found) != {"fp", "fn"}:
        raise Stop(f"--cost must be fp=NUMBER,fn=NUMBER, got {text}.", code=2)
    return found


def several(more: Path) -> str:
    """What to do instead of naming several tables of other kinds."""
    return (
        f"certus fit reads one table, but {more} was given as well; only Parquet and "
        "Feather files are read together. If the files hold rows of the same columns, "
        "write them into one file, one below the other; if they hold other columns of "
        "the same rows, join them by a key first."
    )


def exit_code(certificate: Any, *, proof: bool = False) -> int:
    """0 met or nothing promised, 3 missed or refused, 4 refuted, 130 interrupted.

    Where a ``proof`` was asked for, nothing promised is 3, too.
    """
    from certus.certificate import Status, Strength
    from certus.cli import DONE, REFUTED

    if certificate.status is Status.REFUTED:
        return REFUTED
    if certificate.status is Status.INTERRUPTED:
        return INTERRUPTED
    claim = certificate[certificate.primary]
    refused = claim.strength is Strength.REFUSED or claim.undecided
    failed = certificate.status in (Status.NO_MINIMISER, Status.DIVERGED)
    if proof:
        failed = failed or claim.strength is Strength.MEASURED
        failed = failed or certificate.status is Status.UNDECIDED
    return MISSED if refused or failed or certificate.met is False else DONE


# ---- files ---------------------------------------------------------------------


def places_of(
    path: Path | None, out_path: Path | None, report_path: Path | None
) -> tuple[Path, Path]:
    """Where model and report go; both are refused now rather than after the fit."""
    place = out_path or Path(f"{files.stem(path) if path else 'diabetes'}.certus")
    files.check_place(place, [path], "--out")
    report = report_path or place.with_suffix(".html")
    files.check_place(report, [path, place], "--report")
    files.check_report(report)
    return place, report


def _write(result: FitOutcome, max_time: float | None, step: Any) -> FitOutcome:
    """Write the model, then the report; Ctrl-C during the report keeps the model."""
    from certus import persist
    from certus.report import audit

    found = result.comparison
    if result.out is None or result.report is None:
        return result
    try:
        split = found.record() | result.data.record
        persist.save(found.model, result.out, split=split)
    except persist.ModelFileError as error:
        raise Stop(str(error)) from None
    step("writing the report", 1.0)
    left = seconds_left(max_time)
    seconds = REPORT_SECONDS if left is None else min(REPORT_SECONDS, 0.5 * left)
    try:
        with alarm(None if left is None else perf_counter() + ENDING * left):
            report = audit(
                found.model,
                result.data.X,
                result.data.y,
                comparison=found,
                target=_with_unit(result.data),
                max_time=max(0.05, seconds),
                random_state=found.split.seed,
            )
    except TimeIsUp:
        remark(
            "the time limit left no time for the report. To make it: certus audit "
            f"{result.out} {result.source or ''}"
        )
        return result._replace(report=None)
    except KeyboardInterrupt:
        return result._replace(report=None, code=INTERRUPTED)
    try:
        files.write_report(result.report, report)
    except Stop as stop:
        raise Stop(f"{stop} The model is in {result.out}.") from None
    return result


# ---- reporting -----------------------------------------------------------------


def _say_result(result: FitOutcome) -> None:
    found = result.comparison
    if found.beaten:
        say(f"! {found.verdict}", style="bold", hang=2)
    if found.not_run:
        late = ", ".join(found.not_run)
        say(f"! the time limit left no time for: {late}", style="bold", hang=2)
    say(result.data.headline, style="bold", hang=4)
    _say_notes(result)
    say()
    unit = _unit(result.data) if found.metric.unit == "target" else ""
    say_table(found, unit)
    say()
    say_choice(found, _unit(result.data))
    if found.refitted:
        say(REFITTED.format(rows=found.split.n_rows), indent=2, hang=2)
    if found.verdict and not found.beaten:
        say(f"! {found.verdict}", hang=2)
    say()
    say_certificate(found.certificate)
    say()
    if result.out is None:
        say("wrote nothing (--no-files)")
        return
    written = [str(place) for place in (result.out, result.report) if place]
    say(f"wrote {', '.join(written)}")
    for at, line in enumerate(next_steps(result)):
        out().print(clean(f"{'next: ' if not at else '      '}{line}"), soft_wrap=True)


def _say_notes(result: FitOutcome) -> None:
    data, found = result.data, result.comparison
    encoder = found.model.encoder_
    if result.source is None:
        say(
            "the bundled example: 442 patients, disease progression after one year",
            indent=2,
        )
    say(encoder.summary(), indent=2, hang=2)
    notes = [*found.notes, *encoder.notes_]
    if data.gaps:
        rows = "1 row" if data.gaps == 1 else f"{data.gaps:,} rows"
        notes.insert(0, f'{rows} without a value in "{shorten(data.target)}" left out')
    for note in notes[:6]:
        say(f"! {note}", indent=2, hang=2)
    if len(notes) > 6:
        say(f"! {len(notes) - 6:,} more remarks: in the report, or with --json")
    sealed = len(found.split.sealed)
    if sealed:
        say(f"{sealed:,} rows set aside (sealed) for the final check", indent=2)
    else:
        say("too few rows to set some aside for a final check", indent=2)


def _unit(data: LabelledTable) -> str:
    """The currency or unit of the target's cells, if there was one."""
    return "" if data.task != "regression" else clean(data.units.get(data.target, ""))


def _with_unit(data: LabelledTable) -> str:
    """The target as the report names it."""
    unit = _unit(data)
    return f"{data.target} ({unit})" if unit else data.target


def say_table(found: Any, unit: str = "") -> None:
    """The candidates, their errors and what was chosen by."""
    from rich.table import Table

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    folds = len(found.split.folds)
    label = found.metric.label + (f" in {unit}" if unit else "")
    error = f"{label} ({folds} folds)" if folds else label
    table.add_column("  model", no_wrap=True)
    table.add_column(error, overflow="fold")
    table.add_column("time", no_wrap=True)
    table.add_column("solved", no_wrap=True)
    for name, *cells in found.table():
        chosen = name == found.chosen
        mark = "→" if chosen else " "
        style = "bold" if chosen else ""
        table.add_row(f"{mark} {clean(shorten(name))}", *cells, style=style)
    out().print(table)
    way = "more is better" if found.metric.more else "less is better"
    label, said = found.metric.label, found.measure
    said = said if said.startswith(label) else f"{label}: {said}"
    over = "mean ± standard deviation over folds" if folds else "on rows held out"
    note = f"{said}; {way}; {over}"
    say(note, style="dim", indent=2, hang=2)
    union = found.union
    sure = f" ({union.basis})" if union.basis else ""
    say(f"{union.mark} {union.detail}{sure}", style="dim", indent=2, hang=2)


def say_choice(found: Any, unit: str = "") -> None:
    """The chosen model, and what the sealed rows say of it."""
    sealed = len(found.split.sealed)
    here = f" (errors in {unit})" if unit else ""
    opened = f" On the {sealed:,} sealed rows, used only now{here}:" if sealed else ""
    say(f"chosen: {found.chosen}.{opened}", hang=4)
    claims = _headline(found)
    # What is assumed is said once; the report has it with each claim.
    say_claims([dataclasses.replace(c, assumptions=(), fix="") for c in claims])
    hidden = len(found.risk) - len(claims)
    if hidden:
        more = "1 more number is" if hidden == 1 else f"{hidden} more numbers are"
        say(f"{more} in the report", style="dim", indent=2)
    said = [line for claim in claims for line in claim.assumptions]
    if said:
        say(f"assumed: {said[0]}", style="dim", indent=2, hang=2)


#: Claims that the terminal shows beside the metric asked for, in this order.
_SHOWN = (
    *("auc", "error_rate", "r2", "large_error", "decision_cost", "cost_saved"),
    *("kept_recall", "false_alarms", "coverage"),
)


def _headline(found: Any) -> list[Any]:
    """The metric asked for, an error in units, R² or AUC, a promise, and decisions."""
    first, rest = found.risk[0], found.risk[1:]
    named = {claim.name: claim for claim in rest}
    units = [] if found.metric.unit == "target" else ["rmse"]
    shown = [named[name] for name in (*units, *_SHOWN) if name in named]
    return [first, *shown]


def next_steps(result: FitOutcome) -> list[str]:
    """Commands worth trying now."""
    if result.out is None:
        return []
    model = shlex.quote(str(result.out))
    steps = [f"certus predict {model} new.csv"]
    if result.source is None:
        return [*steps, "certus fit YOUR.csv --target COLUMN"]
    return [*steps, f"certus certify {model} {shlex.quote(str(result.source))}"]


def _say_json(result: FitOutcome) -> None:
    from certus.cli.machine import say_json

    data, found = result.data, result.comparison
    encoder, model = found.model.encoder_, innermost(found.model.estimator_)
    say_json(
        {
            "data": {
                "name": data.name,
                "rows": data.X.height,
                "columns": data.X.width + 1,
                "rows_without_target": data.gaps,
                "target": data.target,
                "task": data.task,
                "summary": encoder.summary(),
                "notes": [*found.notes, *encoder.notes_],
            },
            "model": {
                "name": found.chosen,
                "class": type(model).__name__,
                "params": model.get_params(deep=False),
                "wrapped_in": wrappers(found.model.estimator_),
            },
            "comparison": found.to_dict(),
            "certificate": found.certificate.to_dict(),
            "seconds": found.seconds,
            "files": {
                "model": None if result.out is None else str(result.out),
                "report": None if result.report is None else str(result.report),
            },
            "exit_code": result.code,
        }
    )
