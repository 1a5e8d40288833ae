"""``certus fit``: a table in; a model file, its certificate and a page out.

The model is fitted on all rows. The error beside it comes from five folds, in which
encoder and model see the training rows only; it is measured, not promised.
"""

from __future__ import annotations

import shlex
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from certus.cli import INTERRUPTED, MISSED, files
from certus.cli.data import Data, read_training
from certus.cli.models import Model, build, default_model, find_model
from certus.cli.screen import (
    Stop,
    out,
    progress,
    remark,
    say,
    say_certificate,
)
from certus.wording import clean, number, shorten

FOLDS = 5


class Error(NamedTuple):
    """Errors fold by fold, of the model and of the best constant; or why none.

    Regression: root mean square. Classification: share of wrong labels.
    """

    task: str
    model: tuple[float, ...] = ()
    constant: tuple[float, ...] = ()
    reason: str = ""

    @property
    def measure(self) -> str:
        """What the number is, for people."""
        if self.task == "classification":
            return "share of wrong labels"
        return "root mean square of prediction − truth"

    @property
    def beats_constant(self) -> bool:
        """Whether the model errs less than the best constant, on average."""
        return sum(self.model) < sum(self.constant)

    def text(self, values: Sequence[float]) -> str:
        """Mean ± standard deviation over the folds."""
        if not values:
            return "–"
        mean, sd = _moments(values)
        if self.task == "classification":
            return f"{100 * mean:.1f} % ± {100 * sd:.1f} %"
        return f"{number(mean)} ± {number(sd, 2)}"

    def to_dict(self) -> dict[str, Any]:
        """The errors as JSON-ready data."""
        data: dict[str, Any] = {"measure": self.measure, "strength": "measured"}
        for name, values in (("model", self.model), ("constant", self.constant)):
            mean, sd = _moments(values) if values else (None, None)
            data[name] = {"mean": mean, "sd": sd, "folds": list(values)}
        return data | {"reason": self.reason}


class Result(NamedTuple):
    """Everything a fit found, for the terminal, the page and ``--json``."""

    data: Data
    model: Model
    pipeline: Any
    error: Error
    seconds: float
    out: Path | None
    html: Path | None
    source: Path | None
    code: int

    @property
    def solved(self) -> str:
        """Mark and number of the primary claim."""
        certificate = self.pipeline.certificate_
        claim = certificate[certificate.primary]
        value = "" if claim.value is None else f" {number(claim.value, 2)}"
        return f"{claim.mark}{value}" if claim.basis else f"{claim.mark} refused"


def run(
    path: Path | None,
    target: str | None,
    model_name: str | None,
    settings: Sequence[str],
    drop: Sequence[str],
    seed: int | None,
    out_path: Path | None,
    html_path: Path | None,
    keep_files: bool,
    as_json: bool,
) -> int:
    """Read, fit, measure, write, report; returns the exit code."""
    named = find_model(model_name) if model_name else None
    place, page = _places(path, out_path, html_path) if keep_files else (None, None)
    if named:
        build(named, settings, seed)  # a misspelt parameter is said before reading
    with progress(1) as step:
        step(f"reading {path.name if path else 'the example'}")
        wanted = None if named is None else named.predicts == "labels"
        data = read_training(path, target, drop, wanted)
    model = named or default_model(data.task)
    estimator = build(model, settings, seed)
    if not as_json:
        _say_data(data)
    fitted, error, seconds = _fit(data, model, estimator, seed or 0)
    code = exit_code(fitted.certificate_)
    if error.reason == _STOPPED:
        code = INTERRUPTED
    result = Result(data, model, fitted, error, seconds, place, page, path, code)
    _write(result)
    if as_json:
        _say_json(result)
    else:
        _say_result(result)
    if code == INTERRUPTED:
        kept = "the model so far was written." if place else "nothing was written."
        remark(f"interrupted; {kept}")
    return code


# ---- fitting and measuring -----------------------------------------------------

_STOPPED = "interrupted"


def _fit(
    data: Data, model: Model, estimator: Any, seed: int
) -> tuple[Any, Error, float]:
    """The fitted pipeline, its measured error, and the seconds of the fit."""
    from certus.certificate import Status
    from certus.config import config_context
    from certus.table import TableEncoder, TablePipeline

    pipeline = TablePipeline(TableEncoder(), estimator)
    with progress(1 + FOLDS) as step, config_context(on_uncertified="ignore"):
        step(f"fitting {model.name}")
        start = time.perf_counter()
        with config_context(on_interrupt="return"):
            pipeline.fit(data.X, data.y)
        seconds = time.perf_counter() - start
        if pipeline.certificate_.status is Status.INTERRUPTED:
            return pipeline, Error(data.task, reason=_STOPPED), seconds
        try:
            error = _measure(data, pipeline, seed, step)
        except KeyboardInterrupt:
            error = Error(data.task, reason=_STOPPED)
    return pipeline, error, seconds


def _measure(data: Data, pipeline: Any, seed: int, step: Any) -> Error:
    """Cross-validated error of the model and of the best constant."""
    import numpy as np
    from sklearn.base import clone
    from sklearn.model_selection import KFold, StratifiedKFold

    y = data.y.to_numpy()
    labels = data.task == "classification"
    folds = min(FOLDS, len(y) // 2)
    kind: Any = KFold
    if labels and data.y.value_counts()["count"].max() >= folds:
        kind = StratifiedKFold
    if folds < 2:
        return Error(data.task, reason="too few rows to measure an error")
    found: list[tuple[float, ...]] = []
    splits = kind(folds, shuffle=True, random_state=seed).split(np.zeros(len(y)), y)
    for at, (train, test) in enumerate(splits, start=1):
        step(f"measuring the error, fold {at} of {folds}")
        known, truth = data.y[train], y[test]
        constant = known.mode().sort()[0] if labels else known.mean()
        try:
            fold = clone(pipeline).fit(data.X[train], known)
            guess = fold.predict(data.X[test])
        except ValueError as error:
            reason = f"the error could not be measured: fold {at}: {error}"
            return Error(data.task, reason=reason)
        pair = (guess, constant)
        found.append(tuple(_distance(value, truth, labels) for value in pair))
    ours, theirs = zip(*found)
    return Error(data.task, ours, theirs)


def _distance(guess: Any, truth: Any, labels: bool) -> float:
    import numpy as np

    if labels:
        return float(np.mean(guess != truth))
    return float(np.sqrt(np.mean((np.asarray(guess, float) - truth) ** 2)))


def _moments(values: Sequence[float]) -> tuple[float, float]:
    mean = sum(values) / len(values)
    spread = sum((value - mean) ** 2 for value in values) / max(1, len(values) - 1)
    return mean, spread**0.5


def exit_code(certificate: Any) -> int:
    """0 met or nothing promised, 3 missed or refused, 4 refuted, 130 interrupted."""
    from certus.certificate import Status, Strength
    from certus.cli import DONE, REFUTED

    if certificate.status is Status.REFUTED:
        return REFUTED
    if certificate.status is Status.INTERRUPTED:
        return INTERRUPTED
    refused = certificate[certificate.primary].strength is Strength.REFUSED
    failed = certificate.status in (Status.NO_MINIMISER, Status.DIVERGED)
    return MISSED if refused or failed or certificate.met is False else DONE


# ---- files ---------------------------------------------------------------------


def _places(
    path: Path | None, out_path: Path | None, html_path: Path | None
) -> tuple[Path, Path]:
    """Where model and page go; both are refused now rather than after the fit."""
    place = out_path or Path(f"{files.stem(path) if path else 'diabetes'}.certus")
    files.check_place(place, [path], "--out")
    page = html_path or place.with_suffix(".html")
    files.check_place(page, [path, place], "--html")
    files.check_page(page)
    return place, page


def _write(result: Result) -> None:
    from certus import persist
    from certus.cli.page import render

    if result.out is None or result.html is None:
        return
    try:
        persist.save(result.pipeline, result.out)
    except persist.ModelFileError as error:
        raise Stop(str(error)) from None
    files.write(result.html, render(result))


# ---- reporting -----------------------------------------------------------------


def _say_data(data: Data) -> None:
    say(data.headline, style="bold", hang=4)


def _say_notes(result: Result) -> None:
    encoder, data = result.pipeline.encoder_, result.data
    if result.source is None:
        say("the bundled example: 442 patients, progression after a year", indent=2)
    say(encoder.summary(), indent=2, hang=2)
    if data.gaps:
        rows = "1 row" if data.gaps == 1 else f"{data.gaps:,} rows"
        say(f'! {rows} without "{shorten(data.target)}" left out', indent=2, hang=2)
    for note in encoder.notes_[:5]:
        say(f"! {note}", indent=2, hang=2)
    if len(encoder.notes_) > 5:
        say(f"! {len(encoder.notes_) - 5:,} more remarks: in the page", indent=2)


def rows(result: Result) -> list[tuple[str, str, str, str]]:
    """The result table: model, error, time, solved."""
    from certus.certificate import format_seconds

    error = result.error
    constant = "the commonest" if error.task == "classification" else "the mean"
    ours = (
        result.model.name,
        error.text(error.model),
        format_seconds(result.seconds),
        result.solved,
    )
    return [ours, (f"always {constant}", error.text(error.constant), "–", "–")]


def _say_result(result: Result) -> None:
    from rich.table import Table

    _say_notes(result)
    say()
    table = Table(box=None, pad_edge=False, padding=(0, 3, 0, 0), header_style="dim")
    folds = len(result.error.model)
    heads = (
        "  model",
        f"error ({folds} folds)" if folds else "error",
        "time",
        "solved",
    )
    for head in heads:
        table.add_column(head)
    for row in rows(result):
        table.add_row(f"  {row[0]}", *row[1:])
    out().print(table)
    error = result.error
    note = f"error: {error.measure}; mean ± deviation, measured"
    say(error.reason or note, style="dim", indent=2, hang=2)
    if error.model and not error.beats_constant:
        say("! no better than the constant on rows it has not seen", indent=2, hang=2)
    say()
    say_certificate(result.pipeline.certificate_)
    say()
    if result.out is None:
        say("wrote nothing (--no-files)")
        return
    say(f"wrote {result.out}, {result.html}")
    for at, line in enumerate(next_steps(result)):
        out().print(clean(f"{'next: ' if not at else '      '}{line}"), soft_wrap=True)


#: What to compare a model with.
_OTHER = {
    **{"linear": "ridge", "ridge": "lasso-cv", "ridge-cv": "lasso-cv"},
    **{"lasso": "lasso-cv", "elastic-net": "elastic-net-cv", "lasso-cv": "ridge-cv"},
    **{"robust": "huber", "huber": "ridge", "quantile": "huber", "poisson": "ridge"},
    **{"glm": "ridge", "linear-svr": "ridge", "svr": "ridge", "kernel-ridge": "ridge"},
    **{"knn-regressor": "kernel-ridge", "knn-classifier": "svc", "svc": "logistic"},
    **{"logistic": "logistic-cv", "ridge-classifier": "logistic", "svm": "logistic"},
    **{"perceptron": "svm", "kernel-perceptron": "svc", "kernel-logistic": "logistic"},
}


def next_steps(result: Result) -> list[str]:
    """Commands worth trying now."""
    if result.out is None:
        return []
    model = shlex.quote(str(result.out))
    steps = [f"certus predict {model} new.csv"]
    if result.source is None:
        return [*steps, "certus fit YOUR.csv --target COLUMN"]
    source = shlex.quote(str(result.source))
    steps.append(f"certus certify {model} {source}")
    other = _OTHER.get(result.model.name)
    if other:
        aim = shlex.quote(result.data.target)
        steps.append(f"certus fit {source} --target {aim} --model {other}")
    return steps


def _say_json(result: Result) -> None:
    from certus.cli.machine import say_json

    data, encoder = result.data, result.pipeline.encoder_
    params = result.pipeline.model_.get_params(deep=False)
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
                "notes": list(encoder.notes_),
            },
            "model": {
                "name": result.model.name,
                "class": result.model.cls,
                "params": params,
            },
            "error": result.error.to_dict(),
            "seconds": result.seconds,
            "certificate": result.pipeline.certificate_.to_dict(),
            "files": {
                "model": None if result.out is None else str(result.out),
                "page": None if result.html is None else str(result.html),
            },
            "exit_code": result.code,
        }
    )
