"""``certus predict`` and ``certus certify``: a model file meets a table.

Columns may come in any order and more of them than needed; what is ignored, filled or
unknown is said on stderr. A column the model needs and the table lacks is an error.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

from certus.cli import files
from certus.cli.data import split_target
from certus.cli.fitting import exit_code
from certus.cli.machine import say_json
from certus.cli.screen import Stop, progress, remark, say, say_certificate, say_claims
from certus.wording import shorten

_REMARKS = 10


def predict(
    model_path: Path, path: Path, out_path: Path | None, proba: bool, as_json: bool
) -> int:
    """Predictions as CSV on stdout, in a file, or as JSON; returns the exit code."""
    if out_path is not None:
        files.check_place(out_path, [model_path, path], "--out")
    with progress(3) as step:
        model, frame = _read(model_path, path, step)
        X, remarks = _columns(model, frame)
        step("predicting")
        table = {"prediction": model.predict(X)}
        if proba:
            table |= _probabilities(model, X, model_path)
    if as_json:
        say_json({"rows": frame.height, "remarks": remarks, **_for_json(table, proba)})
    else:
        for text in remarks[:_REMARKS]:
            remark(text)
        if len(remarks) > _REMARKS:
            remark(f"{len(remarks) - _REMARKS:,} more remarks; --json has all of them.")
        if out_path is None:
            say_csv(table)
    if out_path is not None:
        files.write(out_path, _csv(table))
        if not as_json:
            say(f"wrote {out_path}: {frame.height:,} predictions")
    return 0


def certify(
    model_path: Path,
    path: Path,
    target: str | None,
    level: str,
    as_json: bool,
    explain: bool,
) -> int:
    """Recompute certificate and risk on the table; returns the exit code."""
    with progress(3) as step:
        met = meet(model_path, path, target, step)
        step("checking")
        found = met.recheck(level)
    code = exit_code(found.certificate, proof=True)
    if as_json:
        say_json(
            {
                "certificate": found.certificate.to_dict(),
                "risk": [claim.to_dict() for claim in found.risk],
                "same_data": found.same,
                "sealed_rows": found.sealed,
                "remarks": met.remarks,
                "exit_code": code,
            }
        )
        return code
    for text in met.remarks[:_REMARKS]:
        remark(text)
    say_certificate(found.certificate)
    _say_rows(found, met.split)
    if explain:
        say()
        for line in found.certificate.explain().splitlines():
            say(line)
    return code


class Meeting(NamedTuple):
    """A model, the rows of a table, their targets, the file's split, and remarks.

    ``frame`` is the table with all its columns but the target.
    """

    model: Any
    X: Any
    y: Any
    target: str
    split: Any
    remarks: list[str]
    frame: Any

    def recheck(self, level: str) -> Any:
        """Judge a pipeline by its split, and a bare model on all rows."""
        from certus.certifying import certify as recompute
        from certus.fingerprints import same_data
        from certus.selection import Recheck, recheck

        if hasattr(self.model, "encoder_"):
            return recheck(self.model, self.split, self.X, self.y, level=level)
        found = recompute(self.model, self.X, self.y.to_numpy(), level=level)
        stated = getattr(self.model, "certificate_", None)
        same = stated is not None and same_data(stated.fingerprint, found.fingerprint)
        return Recheck(found, (), same, 0)


def meet(model_path: Path, path: Path, target: str | None, step: Any) -> Meeting:
    """Read a model file and a table with its target."""
    from certus.persist import read_manifest

    model, frame = _read(model_path, path, step)
    name = target or getattr(model, "target_name_", None)
    if name is None:
        raise Stop(
            f"{model_path.name} does not say which column is its target. Name it: "
            "--target COLUMN",
            code=2,
        )
    frame, y, _ = split_target(frame, name, path.name)
    X, remarks = _columns(model, frame)
    split = read_manifest(model_path)["split"]
    return Meeting(model, X, y, name, split, remarks, frame)


def _say_rows(found: Any, split: Any) -> None:
    """Which rows were judged, and the risk on the sealed ones."""
    if not found.same:
        known = ""
        if split is not None:
            known = (
                f", a table of {split['rows']:,} rows; so nothing can be said "
                "about new rows"
            )
        say(
            "! this is not the data the model was fitted on (fingerprints "
            f"differ){known}",
            indent=2,
        )
        return
    if not found.sealed:
        say("this is the data the model was fitted on (fingerprints agree)", indent=2)
        return
    say(
        "this is the data the model was fitted on (fingerprints agree): the training "
        f"rows are judged above, the {found.sealed:,} sealed rows here",
        indent=2,
        hang=2,
    )
    say_claims(found.risk)


def _read(model_path: Path, path: Path, step: Any) -> tuple[Any, Any]:
    from certus import persist
    from certus.tables import read_table

    step(f"reading {model_path.name}")
    try:
        model = persist.load(model_path)
    except persist.ModelFileError as error:
        raise Stop(str(error)) from None
    if not hasattr(model, "predict"):
        raise Stop(f"{model_path.name} holds a {type(model).__name__}, not a model.")
    step(f"reading {path.name}")
    return model, read_table(path, announce=remark)


def _columns(model: Any, frame: Any) -> tuple[Any, list[str]]:
    """The columns that the model uses, and remarks about the table."""
    remarks: list[str] = []
    target = getattr(model, "target_name_", None)
    if target is not None and target in frame.columns:
        frame = frame.drop(target)
        remarks.append(f'"{shorten(target)}" is the target; it was not used.')
    if frame.width == 0:
        raise Stop("the table has no columns to predict from.")
    if hasattr(model, "encoder_"):
        return frame, remarks + list(model.encoder_.check(frame))
    names = getattr(model, "feature_names_in_", None)
    if names is None:
        return frame.to_numpy(), remarks
    absent = [name for name in names if name not in frame.columns]
    if absent:
        raise Stop(f'the table has no column "{absent[0]}", which the model needs.')
    return frame.select(list(names)), remarks


def _probabilities(model: Any, X: Any, model_path: Path) -> dict[str, Any]:
    if not hasattr(model, "predict_proba"):
        raise Stop(
            f"{model_path.name} gives no probabilities; logistic models do. "
            "Leave out --proba.",
            code=2,
        )
    shares = model.predict_proba(X)
    return {f"probability of {c}": shares[:, i] for i, c in enumerate(model.classes_)}


def _csv(table: dict[str, Any]) -> str:
    import polars as pl

    columns = {name: values.tolist() for name, values in table.items()}
    return pl.DataFrame(columns).write_csv()


def say_csv(table: dict[str, Any]) -> None:
    """Write the predictions to stdout as CSV, to be piped on."""
    import sys

    sys.stdout.write(_csv(table))


def _for_json(table: dict[str, Any], proba: bool) -> dict[str, Any]:
    result: dict[str, Any] = {"predictions": table["prediction"]}
    if proba:
        prefix = "probability of "
        result["probabilities"] = {
            name.removeprefix(prefix): values
            for name, values in table.items()
            if name.startswith(prefix)
        }
    return result
