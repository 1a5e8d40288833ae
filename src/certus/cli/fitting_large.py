"""``certus fit`` on a table larger than memory: the same answers, block by block."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

from certus.cli import files
from certus.cli.fitting import (
    REPORT_SECONDS,
    FitRequest,
    exit_code,
    say_choice,
    say_table,
)
from certus.cli.large import (
    LargeTable,
    columns_that_fit,
    peak_memory,
    places_for,
    size_of,
    working,
)
from certus.cli.limits import check_limit, model_seconds, seconds_left, too_short
from certus.cli.machine import say_json
from certus.cli.models import build, find_model
from certus.cli.screen import Stop, progress, remark, say, say_certificate
from certus.wording import shorten

#: Sealed rows that the report draws its figures from.
DRAWN = 20_000
#: Options that need all rows in memory.
_NEED_MEMORY = ("also", "encoding", "bounds", "cost", "recall")


class LargeRequest(NamedTuple):
    """What was asked about memory and machines."""

    memory: int | None = None
    cluster: str | None = None
    checkpoint: Path | None = None


class _Done(NamedTuple):
    large: LargeTable
    comparison: Any
    remarks: list[str]
    out: Path | None
    report: Path | None
    held: int  # bytes


def fit(
    large: LargeTable,
    target: str | None,
    plan: FitRequest,
    more: LargeRequest,
    places: tuple[Path | None, Path | None],
    as_json: bool,
) -> int:
    """Compare, write, report; returns the exit code."""
    from certus.scale import blocks
    from certus.selection.at_scale import compare_blocks

    before = peak_memory()
    check_limit(plan.max_time)
    _refuse(plan)
    if target is None:
        raise Stop("say which column to predict: --target COLUMN.", code=2)
    named = find_model(plan.model) if plan.model else None
    columns, remarks = columns_that_fit(
        *(large.paths[0], target, plan.drop), left_out=plan.groups, order=plan.time
    )
    models = None
    if named is not None:
        models = {named.command: build(named, plan.settings, plan.seed)}
    remark(f"reading by blocks: {large.reason}")
    with (
        progress(limit=plan.max_time) as step,
        working(large, more.memory, more.cluster, more.checkpoint),
    ):
        table = blocks(
            *(places_for(large.paths, more.cluster), target),
            columns=columns,
            groups=plan.groups,
            time=plan.time,
        )
        try:
            found = compare_blocks(
                *(table, target),
                models=models,
                metric=plan.metric,
                positive=plan.positive,
                random_state=plan.seed or 0,
                max_time=model_seconds(plan.max_time),
                on_step=step,
            )
        except TimeoutError:
            raise too_short(plan.max_time) from None
        done = _Done(large, found, remarks, *places, peak_memory() - before)
        done = _write(done, table, plan.max_time, step)
    code = exit_code(found.certificate)
    if as_json:
        _say_json(done, code)
    else:
        _say(done)
    return code


def _refuse(plan: FitRequest) -> None:
    """Options that cannot be kept are refused, not forgotten."""
    for name in _NEED_MEMORY:
        if getattr(plan, name):
            option = {"also": "with"}.get(name, name)
            raise Stop(
                f"--{option} needs all rows in memory, and this table is read by "
                "blocks. Leave it out, or fit a sample of the rows.",
                code=2,
            )
    if plan.groups and plan.time:
        raise Stop("--groups and --time cannot be used together. Choose one.", code=2)
    if plan.refit:
        raise Stop("--refit needs all rows in memory. Leave it out.", code=2)
    if plan.settings and plan.model is None:
        raise Stop("--set needs one model: name it with --model.", code=2)


def _write(done: _Done, table: Any, max_time: float | None, step: Any) -> _Done:
    from certus import persist
    from certus.report import audit
    from certus.selection.at_scale import sealed_rows_of

    found = done.comparison
    if done.out is None or done.report is None:
        return done
    try:
        persist.save(found.model, done.out, split=found.record())
    except persist.ModelFileError as error:
        raise Stop(str(error)) from None
    if found.split.groups or found.split.time:
        remark(
            "no report is written: its figures are for rows that are independent of "
            "each other, not for groups or an order in time."
        )
        return done._replace(report=None)
    step("writing the report", 0.97)
    left = seconds_left(max_time)
    seconds = REPORT_SECONDS if left is None else min(REPORT_SECONDS, 0.5 * left)
    if seconds < 0.5:
        remark("the time limit left no time for the report.")
        return done._replace(report=None)
    frame, truth = sealed_rows_of(found.split.rule, table, found.target, DRAWN)
    report = audit(
        found.model,
        X_test=frame,
        y_test=truth,
        target=found.target,
        metric=found.metric.key,
        positive=found.positive,
        max_time=max(0.05, seconds),
        random_state=found.split.seed,
    )
    files.write_report(done.report, report)
    return done


def _say(done: _Done) -> None:
    found, large = done.comparison, done.large
    name = large.paths[0].name if len(large.paths) == 1 else f"{len(large.paths)} files"
    say(
        f"{shorten(name)}  {large.rows:,} rows × {large.width:,} columns → "
        f'{found.task} on "{shorten(found.target)}"',
        style="bold",
        hang=4,
    )
    for note in [*found.notes, *done.remarks][:6]:
        say(f"! {note}", indent=2, hang=2)
    sizes = found.split.to_dict()
    say(
        f"{sizes['training_rows']:,} rows to learn from, {sizes['held_out_rows']:,} to "
        f"compare on, {sizes['sealed_rows']:,} set aside (sealed) for the final check",
        indent=2,
        hang=2,
    )
    say()
    say_table(found)
    say()
    say_choice(found)
    say()
    say_certificate(found.certificate)
    say()
    say(f"peak memory: {size_of(done.held)} above that of the start", style="dim")
    if done.out is None:
        say("wrote nothing (--no-files)")
        return
    say(f"wrote {', '.join(str(place) for place in (done.out, done.report) if place)}")


def _say_json(done: _Done, code: int) -> None:
    found = done.comparison
    say_json(
        {
            "data": {
                "files": [str(path) for path in done.large.paths],
                "rows": done.large.rows,
                "columns": done.large.width,
                "target": found.target,
                "task": found.task,
                "by_blocks": done.large.reason,
                "notes": [*found.notes, *done.remarks],
            },
            "model": {
                "name": found.chosen,
                "class": type(found.model).__name__,
                "params": found.model.get_params(deep=False),
            },
            "comparison": found.to_dict(),
            "certificate": found.certificate.to_dict(),
            "seconds": found.seconds,
            "peak_memory": done.held,
            "files": {
                "model": None if done.out is None else str(done.out),
                "report": None if done.report is None else str(done.report),
            },
            "exit_code": code,
        }
    )
