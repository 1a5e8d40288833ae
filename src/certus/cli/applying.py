"""``certus certify``: a model file meets a table; what other commands read likewise.

Columns may come in any order and more of them than needed; what is ignored, filled or
unknown is said on stderr. A column the model needs and the table lacks is an error.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

from certus.cli.data import split_target
from certus.cli.fitting import exit_code
from certus.cli.machine import say_json
from certus.cli.screen import Stop, progress, remark, say, say_certificate, say_claims
from certus.wording import shorten

_REMARKS = 10


def certify(
    model_path: Path,
    path: Path,
    target: str | None,
    level: str,
    as_json: bool,
    explain: bool,
    encoding: str | None = None,
) -> int:
    """Recompute certificate and risk on the table; returns the exit code."""
    with progress(3) as step:
        met = meet(model_path, path, target, step, encoding)
        step("checking")
        found = met.recheck(level)
    return say_recheck(found, met.split, met.remarks, as_json, explain)


def say_recheck(
    found: Any, split: Any, remarks: list[str], as_json: bool, explain: bool
) -> int:
    """Write what was recomputed; returns the exit code."""
    code = exit_code(found.certificate, proof=True)
    if as_json:
        say_json(
            {
                "certificate": found.certificate.to_dict(),
                "risk": [claim.to_dict() for claim in found.risk],
                "same_data": found.same,
                "sealed_rows": found.sealed,
                "refitted": found.refitted,
                "remarks": remarks,
                "exit_code": code,
            }
        )
        return code
    for text in remarks[:_REMARKS]:
        remark(text)
    say_certificate(found.certificate)
    _say_rows(found, split)
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


def meet(
    model_path: Path,
    path: Path,
    target: str | None,
    step: Any,
    encoding: str | None = None,
) -> Meeting:
    """Read a model file and a table with its target."""
    model, split = read_model(model_path, step)
    frame = read_rows(path, step, encoding).frame
    name = target or getattr(model, "target_name_", None)
    if name is None:
        raise Stop(
            f"{model_path.name} does not say which column is its target. Name it: "
            "--target COLUMN",
            code=2,
        )
    frame, y, _ = split_target(frame, name, path.name)
    X, remarks = columns_of(model, frame)
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
    above, here = "the training rows are judged above", ""
    if found.refitted:
        above, here = "all rows are judged above", " by the model before its refit"
    say(
        f"this is the data the model was fitted on (fingerprints agree): {above}, the "
        f"{found.sealed:,} sealed rows here{here}",
        indent=2,
        hang=2,
    )
    say_claims(found.risk)


def read_model(model_path: Path, step: Any) -> tuple[Any, Any]:
    """The model of a file, and the split that is kept with it."""
    from certus import persist

    step(f"reading {model_path.name}")
    try:
        model = persist.load(model_path)
        split = persist.read_manifest(model_path)["split"]
    except persist.ModelFileError as error:
        raise Stop(str(error)) from None
    if not hasattr(model, "predict"):
        raise Stop(f"{model_path.name} holds a {type(model).__name__}, not a model.")
    return model, split


def read_rows(path: Path, step: Any, encoding: str | None = None) -> Any:
    """A table with its units; what was assumed about it is said on stderr."""
    from certus.tables.reader import read_with_notes

    step(f"reading {path.name}")
    return read_with_notes(path, announce=remark, encoding=encoding)


def columns_of(model: Any, frame: Any) -> tuple[Any, list[str]]:
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
