"""``certus predict``: the rows of a table, with intervals, probabilities and keys.

Labels are written as the file of the fit wrote them. Intervals and sets contain
the truth of their share of new rows on average, as long as these are like the rows of
the calibration.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from certus.cli import files
from certus.cli.applying import columns_of, read_model, read_rows
from certus.cli.machine import say_json
from certus.cli.screen import Stop, progress, remark, say
from certus.wording import shorten, unstopped

_REMARKS = 10
_BETWEEN = " | "  # the labels of a set


class Wanted(NamedTuple):
    """What to write beside the predictions."""

    interval: float | None = None
    proba: bool = False
    key: tuple[str, ...] = ()
    unseen: bool = False
    encoding: str | None = None


def predict(
    model_path: Path, path: Path, out_path: Path | None, wanted: Wanted, as_json: bool
) -> int:
    """Predictions as CSV on stdout, in a file, or as JSON; returns the exit code."""
    if out_path is not None:
        files.check_place(out_path, [model_path, path], "--out")
    if wanted.interval is not None and not 0 < wanted.interval < 1:
        raise Stop(
            f"--interval must be a share between 0 and 1, got {wanted.interval:g}.", 2
        )
    with progress(3) as step:
        model, split = read_model(model_path, step)
        read = read_rows(path, step, wanted.encoding)
        keys = _keys(read.frame, wanted.key, path.name)
        X, remarks = columns_of(model, read.frame)
        remarks = [*check_units(split, read.units, read.frame.columns), *remarks]
        step("predicting")
        table = {**keys, **_answers(model, X, wanted, split, model_path, remarks)}
    if as_json:
        rows = {"rows": read.frame.height, "remarks": remarks}
        say_json({**rows, **_for_json(table, wanted)})
    else:
        for text in remarks[:_REMARKS]:
            remark(text)
        if len(remarks) > _REMARKS:
            remark(f"{len(remarks) - _REMARKS:,} more remarks; --json has all of them.")
        if out_path is None:
            _say_csv(table)
    if out_path is not None:
        files.write(out_path, _csv(table))
        if not as_json:
            say(f"wrote {out_path}: {read.frame.height:,} predictions")
    return 0


# ---- what is written -----------------------------------------------------------------


def _answers(
    model: Any,
    X: Any,
    wanted: Wanted,
    split: Any,
    model_path: Path,
    remarks: list[str],
) -> dict[str, list[Any]]:
    """The columns of the answer, by their names."""
    spelling = (split or {}).get("spelling", {})

    def spelt(label: Any) -> Any:
        plain = label.item() if isinstance(label, np.generic) else label
        return spelling.get(str(plain), plain)

    labels = hasattr(model, "classes_")
    guess = np.asarray(model.predict(X)).tolist()
    table = {"prediction": [spelt(g) for g in guess] if labels else guess}
    if wanted.interval is not None:
        table |= _intervals(model, X, wanted.interval, spelt, model_path, remarks)
    if wanted.proba:
        table |= _probabilities(model, X, spelt, model_path)
    if wanted.unseen:
        encoder: Any = getattr(model, "encoder_", None)
        if not hasattr(encoder, "unseen"):
            raise Stop(
                f"{model_path.name} keeps nothing about its training rows, so --unseen "
                "cannot be answered. Fit the model with certus fit.",
                code=2,
            )
        table["unseen"] = encoder.unseen(X)
    return table


def _intervals(
    model: Any,
    X: Any,
    coverage: float,
    spelt: Any,
    model_path: Path,
    remarks: list[str],
) -> dict[str, list[Any]]:
    from sklearn.exceptions import NotFittedError

    labels = hasattr(model, "classes_")
    try:
        if labels:
            inside = model.predict_set(X, coverage)
        else:
            ends = np.asarray(model.predict_interval(X, coverage))
    except (NotFittedError, AttributeError):
        raise Stop(
            f"{model_path.name} has no rows to calibrate intervals on: certus fit "
            "keeps some unless rows come in groups or in order of time. Leave out "
            "--interval."
        ) from None
    share = f"{100 * coverage:g} %"
    like = "if new rows are like those of the fit"
    promise, like = _promise(model, coverage, like)
    if not labels:
        if np.isinf(ends).any():
            remarks.append(
                f"Some intervals have no end: {share} needs more calibration rows."
            )
        remarks.append(f"On average {promise} of intervals contain the truth, {like}.")
        bounded = [[None if math.isinf(e) else e for e in end] for end in ends.tolist()]
        return {
            "lower": [low for low, _ in bounded],
            "upper": [high for _, high in bounded],
        }
    remarks.append(f"On average {promise} of sets contain the label, {like}.")
    names = [str(spelt(c)) for c in model.classes_]
    sets = [_BETWEEN.join(n for n, here in zip(names, row) if here) for row in inside]
    empty = sum(not row.any() for row in np.asarray(inside))
    if empty:
        rows = "1 set is" if empty == 1 else f"{empty:,} sets are"
        remarks.append(
            f"{rows} empty: no label fits such a row as well as {share} of the "
            "calibration rows are fitted. Empty sets count as misses; a larger "
            "--interval gives fewer."
        )
    return {"set": sets}


def _promise(model: Any, coverage: float, like: str) -> tuple[str, str]:
    """The share that is promised, and what it depends on."""
    from certus.tables.crossing import promised_coverage

    least, folds = promised_coverage(model, coverage)
    if least is None:
        return f"about {100 * coverage:g} %", (
            "which is measured, not guaranteed: there was no time to choose the model "
            "again without each fold"
        )
    if folds:
        like = f"{like} (CV+ with {folds} folds of all rows)"
    return f"at least {100 * least:g} %", like


def _probabilities(
    model: Any, X: Any, spelt: Any, model_path: Path
) -> dict[str, list[Any]]:
    if not hasattr(model, "predict_proba"):
        raise Stop(
            f"{model_path.name} gives no probabilities; logistic models do. "
            "Leave out --proba.",
            code=2,
        )
    shares = np.asarray(model.predict_proba(X))
    return {
        f"probability of {spelt(c)}": shares[:, i].tolist()
        for i, c in enumerate(model.classes_)
    }


def _keys(frame: Any, names: tuple[str, ...], file: str) -> dict[str, list[Any]]:
    """Columns of the table that tell its rows apart."""
    found: dict[str, list[Any]] = {}
    for name in names:
        if name not in frame.columns:
            from certus.tables.errors import did_you_mean, quoted

            hint = did_you_mean(name, frame.columns)
            hint = hint or f" It has {quoted(frame.columns)}."
            raise Stop(f'{file} has no column "{shorten(name)}".{hint}')
        found["key " + name if name in _OURS else name] = frame[name].to_list()
    return found


_OURS = ("prediction", "lower", "upper", "set", "unseen")


def check_units(split: Any, now: dict[str, str], columns: Any) -> list[str]:
    """Refuse other units than those of the fit; say where a unit is gone or new."""
    remarks = []
    for column, unit in ((split or {}).get("units") or {}).items():
        found = now.get(column, "")
        if found == unit or column not in columns:
            continue
        if found and unit:
            raise Stop(
                f'column "{shorten(column)}" was in "{unit}" when the model was fitted '
                f'and is in "{found}" now. Convert it, or refit.'
            )
        if unit:
            remarks.append(
                f'"{shorten(column)}" was written with "{unit}" in training and is '
                "without it now; its numbers are used unchanged."
            )
    return remarks


# ---- writing -------------------------------------------------------------------------


def _csv(table: dict[str, list[Any]]) -> str:
    import polars as pl

    columns = {
        name: pl.Series(name, values, strict=False) for name, values in table.items()
    }
    try:
        return pl.DataFrame(columns).write_csv()
    except pl.exceptions.PolarsError as error:
        raise Stop(
            f"the answer cannot be written as CSV: {unstopped(error)}."
        ) from None


def _say_csv(table: dict[str, list[Any]]) -> None:
    """Write the answer to stdout, to be piped on."""
    import sys

    sys.stdout.write(_csv(table))


def _for_json(table: dict[str, list[Any]], wanted: Wanted) -> dict[str, Any]:
    prefix = "probability of "
    names = [f"key {k}" if k in _OURS else k for k in wanted.key]
    result: dict[str, Any] = {"predictions": table["prediction"]}
    if names:
        result["keys"] = {name: table[name] for name in names}
    if wanted.proba:
        result["probabilities"] = {
            name.removeprefix(prefix): values
            for name, values in table.items()
            if name.startswith(prefix) and name not in names
        }
    if "lower" in table and "upper" in table:
        result["intervals"] = [list(e) for e in zip(table["lower"], table["upper"])]
    if wanted.interval is not None and "set" in table:
        result["sets"] = [s.split(_BETWEEN) if s else [] for s in table["set"]]
    if wanted.unseen:
        result["unseen"] = table["unseen"]
    return result
