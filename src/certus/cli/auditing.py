"""``certus audit``: the report on a model file, on a table.

If the table is the one that was split, training rows serve for the proof and the curves
and sealed rows for the risk. If it is the data of the fit without a split, nothing is
promised about new rows. Other rows are taken as new ones: the risk is stated on them.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from certus.cli import files
from certus.cli.applying import Meeting, meet
from certus.cli.fitting import exit_code
from certus.cli.machine import say_json
from certus.cli.screen import Stop, progress, remark, say, say_certificate, say_claims
from certus.wording import shorten

__all__ = ["audit"]

_REMARKS = 10


def audit(
    model_path: Path,
    path: Path,
    target: str | None,
    report_path: Path | None,
    as_json: bool,
    sensitive: list[str] | None = None,
    threat: str | None = None,
    encoding: str | None = None,
) -> int:
    """Write the report and say what is in it; returns the exit code."""
    place = report_path or Path(f"{model_path.stem}-audit.html")
    files.check_place(place, [model_path, path], "--report")
    files.check_report(place)
    allowed = _threat(threat)
    with progress(4) as step:
        met = meet(model_path, path, target, step, encoding)
        groups = _groups(met, sensitive, path)
        step("checking")
        found = met.recheck("quick")
        step("auditing")
        report = _report(met, found, groups, allowed)
    files.write_report(place, report)
    code = exit_code(report.certificate)
    rows = _rows(met, found)
    if as_json:
        more = {"rows": rows, "remarks": met.remarks, "report": str(place)}
        say_json(report.to_dict() | more | {"exit_code": code})
        return code
    for text in met.remarks[:_REMARKS]:
        remark(text)
    say(report.verdict, style="bold")
    say(rows, indent=2, hang=2)
    say()
    say_certificate(report.certificate)
    say_claims([c for c in report.proved if c.name == "certified_accuracy"])
    say_claims(report.statistical)
    say_claims([claim for claim in report.measured if claim.name in _MEASURED])
    say()
    for figure in report.figures:
        say(figure.question, indent=2)
        say(figure.answer, style="dim", indent=4)
    for reason in report.left_out:
        say(f"left out: {reason}", style="dim", indent=2, hang=2)
    say()
    say(f"wrote {place}")
    return code


#: What the audit measured; the other numbers stand in the certificate.
_MEASURED = ("test_error", "held_out", "attacked_accuracy", "masked_gradients")


def _threat(text: str | None) -> Any:
    """The threat that is named."""
    from certus.threat import ThreatModel

    if text is None:
        return None
    try:
        return ThreatModel.parse(text)
    except ValueError as error:
        raise Stop(f"--threat: {error}", code=2) from None


def _groups(met: Meeting, sensitive: list[str] | None, path: Path) -> Any:
    """The columns that make groups, whether or not the model uses them."""
    from certus.tables.errors import did_you_mean, quoted

    if not sensitive:
        return None
    have = met.frame.columns
    for name in sensitive:
        if name == met.target:
            raise Stop(
                f'--sensitive: "{shorten(name)}" is the target. Name the column whose '
                "groups you want to compare.",
                code=2,
            )
        if name not in have:
            listed = quoted([shorten(column, 20) for column in have], limit=4)
            hint = did_you_mean(name, have) or f" It has {listed}."
            raise Stop(f'{path.name} has no column "{shorten(name)}".{hint}', code=2)
    return met.frame.select(list(dict.fromkeys(sensitive)))


def _report(met: Meeting, found: Any, groups: Any, threat: Any) -> Any:
    """The audit, by what the rows turned out to be."""
    from certus.report import audit as report

    model, X, y = met.model, met.X, met.y
    more = {"target": met.target, "sensitive": groups, "threat": threat}
    more["random_state"] = 0  # the same command writes the same report
    try:
        if not found.same:
            return report(model, X_test=X, y_test=y, **more)
        return report(model, X, y, split=met.split if found.sealed else None, **more)
    except ValueError as error:
        if threat is not None and str(error).startswith("threat "):
            raise Stop(f"--threat: {error}", code=2) from None
        raise


def _rows(met: Meeting, found: Any) -> str:
    """Which rows were judged, in a sentence."""
    count = len(met.y)
    if not found.same:
        return (
            f"! the {count:,} rows are not those of the fit (fingerprints differ): "
            "they are treated as new rows, which is right only if none of them was "
            "used in the fit"
        )
    if not found.sealed:
        return f"all {count:,} rows were used in the fit, so none is left for a test"
    training = count - found.sealed
    said = f"{training:,} training rows and {found.sealed:,} sealed rows, as at the fit"
    if not found.refitted:
        return said
    return f"{said}; the file holds the model fitted again to all of them"
