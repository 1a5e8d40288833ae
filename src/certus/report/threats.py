"""How accurate a classifier stays when rows are changed: a section of an audit.

It is measured on rows that the model has not seen; if there are none, on the rows of
the fit, and then there is no claim about new rows.
"""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import numpy as np

from certus.certificate import Claim, Strength
from certus.report.document import Figure
from certus.report.rows import PredictionTask, TableRows
from certus.threat import ThreatModel
from certus.wording import shorten

__all__ = ["ThreatFindings", "check", "judge"]

_ROWS = 300  # attacked at most: a sample of more


class ThreatFindings(NamedTuple):
    """Claims by strength, and a figure."""

    proved: tuple[Claim, ...] = ()
    measured: tuple[Claim, ...] = ()
    statistical: tuple[Claim, ...] = ()
    figures: tuple[Figure, ...] = ()


def check(threat: Any, task: PredictionTask) -> None:
    """Refuse a threat that is not valid for this model, before the work begins."""
    if threat is None:
        return
    if not isinstance(threat, ThreatModel):
        raise TypeError(
            "threat must be a ThreatModel such as ThreatModel('linf', 0.1), got "
            f"{threat!r}."
        )
    if not task.labels:
        raise ValueError(
            "threat needs a classifier: an attack succeeds when it changes the "
            "predicted label."
        )


def judge(
    threat: ThreatModel | None,
    model: Any,
    rows: TableRows | None,
    unseen: TableRows | None,
    delta: float,
    max_time: float,
    rng: np.random.Generator,
) -> ThreatFindings:
    """Prove and attack; nothing without a threat."""
    if threat is None or rows is None:
        return ThreatFindings()
    from certus.robustness import robust_accuracy
    from certus.robustness.tables import numbers_of_table

    part = rows.sample(_ROWS, rng)
    X, y, apart = part.X, part.y, None
    try:
        apart = numbers_of_table(model, part.X)
        if apart is not None:
            model, X, y = apart.model, apart.Z[apart.whole], y[apart.whole]
            threat = dataclasses.replace(threat, fixed=apart.fixed)
        found = robust_accuracy(
            *(model, X, y, threat), delta=delta, max_time=max_time, random_state=rng
        )
    except (TypeError, ValueError) as error:
        refused = Claim(
            "robust_accuracy", Strength.REFUSED, detail=f"changed rows: {error}"
        )
        return ThreatFindings(statistical=(refused,))
    proved, attacked, expected, *masked = found.claims
    if unseen is None:
        expected = Claim(
            "robust_accuracy",
            Strength.REFUSED,
            detail="nothing can be said about changes of new rows: all the rows you "
            "passed were used in the fit",
            fix="set rows aside before the fit and pass them as X_test, y_test",
        )
    # The words of the section say what the number is about.
    proved, attacked, expected = (
        dataclasses.replace(claim, detail=f"{claim.detail}, under any {found.allowed}")
        if claim.strength is not Strength.REFUSED
        else claim
        for claim in (proved, attacked, expected)
    )
    figure = _figure(found, rows, apart)
    return ThreatFindings((proved,), (attacked, *masked), (expected,), (figure,))


def _figure(found: Any, rows: TableRows, apart: Any) -> Figure:
    names = ("radius", "lower", "upper", "low", "high")
    points = zip(names, zip(*found.curve))
    size, held = found.n_samples, ""
    some = f"{size:,} of {rows.size:,}" if size < rows.size else f"{rows.size:,}"
    if apart is not None and apart.fixed.any():
        held = (
            f"; changed columns: {shorten(', '.join(apart.names))}; the other "
            "columns stay as they are"
        )
    if apart is not None and not apart.whole.all():
        held += f"; {int((~apart.whole).sum()):,} rows with missing values are left out"
    said = f"{found.verdict[0].upper()}{found.verdict[1:]}."
    warned = (
        " The gradients are misleading: see the list of measured claims."
        if found.gradients_masked
        else ""
    )
    notes = "".join(f" {note[0].upper()}{note[1:]}." for note in found.notes)
    tried = ", ".join(found.attacks)
    return Figure(
        "threat",
        "What if rows change a little?",
        said + warned + notes,
        f"{some} {rows.kind}{held}; attacks: {tried}; pale band: the range for new "
        f"rows, with probability {100 * (1 - found.delta):.4g} %.",
        {
            **{name: list(values) for name, values in points},
            "clean": found.clean,
            "refused": found.refused,
            "norm": found.norm,
        },
    )
