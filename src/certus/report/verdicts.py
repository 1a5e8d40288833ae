"""The words of an audit: the verdict, and the list in which each claim appears.

A sentence says no more than the claim behind it: proofs are about the given rows,
statements about new rows have a probability, and the rest was observed.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from certus.certificate import Certificate, Claim, Status, Strength
from certus.report.rows import PredictionTask, TableRows, deviation
from certus.wording import number

if TYPE_CHECKING:
    from certus.report.auditing import AuditFigures

__all__ = ["assumed", "measured", "proved", "statistical", "title", "verdict"]


#: How a claim begins that the rows are not known; the first assumption says it.
_SAID = "for the data and weights you passed"


def title(certificate: Certificate, task: PredictionTask) -> str:
    """The model and what it predicts."""
    return f"{certificate.model} of {task.quoted}"


def verdict(
    certificate: Certificate,
    risk: Sequence[Claim],
    found: AuditFigures,
    task: PredictionTask,
    comparison: Any,
) -> str:
    """One sentence, and a second if a candidate of another library did better."""
    subject = f"The {certificate.model} model of {task.quoted}"
    joint = ", and" if certificate.met else ";"
    main = f"{subject} {_solved(certificate)}{joint} {_error(risk, found, task)}."
    remark = "" if comparison is None else comparison.verdict
    if not remark:
        return main
    remark = remark[0].upper() + remark[1:].rstrip(".") + "."
    return f"{remark} {main}" if comparison.beaten else f"{main} {remark}"


def _solved(certificate: Certificate) -> str:
    claim = certificate[certificate.primary]
    rows = f"on {certificate.n_samples:,} rows"
    if certificate.status is Status.REFUTED:
        return f"contradicts its own certificate: the check {rows} refutes it"
    if certificate.status is Status.NO_MINIMISER:
        return "has no optimal solution, so nothing about it can be proved"
    if claim.strength is Strength.REFUSED:
        return "has no proof"
    if certificate.origin == "file":
        said = {True: "was stated to be solved", False: "was stated to be unsolved"}
        word = said.get(claim.met, "was stated to have no guarantee")  # type: ignore[arg-type]
        return f"{word} when it was fitted, and this was not checked again"
    if claim.met is False:
        return "is not solved to the accuracy asked for"
    if claim.undecided:
        return "may or may not be solved: rounding errors are too large to tell"
    if claim.met is None:
        return "was measured, but nothing is proved about its optimum"
    if claim.label == "solved":
        return f"is solved (rechecked {rows})"
    return f"passes the check of the verifier {rows}"


def _error(risk: Sequence[Claim], found: AuditFigures, task: PredictionTask) -> str:
    for claim in risk:
        if claim.strength is Strength.STATISTICAL:
            said = claim.detail.partition(" (")[0]
            start = "its error rate is " if said.startswith("between") else ""
            return f"{start}{said} ({claim.basis})"
    errors = found.learning.errors
    if not errors:
        return "how well it predicts new rows is not known"
    ours = float(np.mean(errors))
    constant = float(np.mean(found.learning.constant))
    if task.labels:
        start, plain = f"it is wrong for {task.show(ours)}", "most frequent label"
    else:
        start, plain = f"it is off by {task.show(ours)} (root mean square)", "mean"
    better = "better" if ours < constant else "no better"
    return (
        f"on rows held out in turn {start}, {better} than always predicting the "
        f"{plain} ({task.show(constant)})"
    )


# ---- the four lists ------------------------------------------------------------


def proved(certificate: Certificate) -> tuple[Claim, ...]:
    """Claims that were proved, and those that should have been: also refusals."""
    return tuple(
        claim
        for claim in certificate.claims
        if claim.strength in (Strength.PROVED, Strength.REFUSED)
    )


def statistical(risk: Sequence[Claim]) -> tuple[Claim, ...]:
    """Claims that hold with a probability, or why there are none; met claims first."""
    promises = [claim for claim in risk if claim.strength is Strength.STATISTICAL]
    refused = [claim for claim in risk if claim.strength is Strength.REFUSED]
    if promises:  # what a refusal suggests has been done
        refused = [dataclasses.replace(claim, fix="") for claim in refused]
    return (*promises, *refused)


def measured(
    certificate: Certificate,
    risk: Sequence[Claim],
    found: AuditFigures,
    task: PredictionTask,
    unseen: TableRows | None,
) -> tuple[Claim, ...]:
    """Measured numbers."""
    claims = [c for c in certificate.claims if c.strength is Strength.MEASURED]
    claims += [claim for claim in risk if claim.strength is Strength.MEASURED]
    if found.learning.errors:
        claims.insert(0, _held_out(found, task))
    if unseen is not None and found.guess is not None and not task.labels:
        claims.insert(0, _amounts(unseen, found.guess, task))
    return tuple(claims)


def _held_out(found: AuditFigures, task: PredictionTask) -> Claim:
    errors, constant = found.learning.errors, float(np.mean(found.learning.constant))
    mean = float(np.mean(errors))
    spread = float(deviation(np.array(errors)))
    plain = "most frequent label" if task.labels else "mean"
    return Claim(
        "held_out",
        Strength.MEASURED,
        mean,
        objective=f"{task.measure}; mean ± standard deviation over {len(errors)} folds",
        detail=f"{task.show(mean)} ± {task.show(spread, 2)} on rows held out in turn; "
        f"always predicting the {plain} gives {task.show(constant)}",
    )


def _amounts(unseen: TableRows, guess: Any, task: PredictionTask) -> Claim:
    error = task.error(unseen.y, guess)
    truth = np.asarray(unseen.y, float)
    plain = task.error(truth, np.full(unseen.size, truth.mean()))
    share = f", R² = {number(1 - (error / plain) ** 2, 2)}" if plain > 0 else ""
    return Claim(
        "test_error",
        Strength.MEASURED,
        error,
        objective=task.measure,
        detail=f"{task.show(error)} on {unseen.size:,} {unseen.kind}{share}",
    )


def assumed(
    certificate: Certificate,
    risk: Sequence[Claim],
    known: bool | None,
    unseen: TableRows | None,
) -> tuple[str, ...]:
    """Assumptions of the claims that were not checked."""
    lines = []
    if certificate.origin == "file":
        lines.append(
            "the certificate is the one made at the fit: the training rows were not "
            "passed, so nothing was rechecked"
        )
    elif known is None:
        lines.append(
            "X and y are the rows the model was fitted on; the model has no record "
            "to compare with"
        )
    elif known:
        lines.append(
            "the training rows are those of the fit: their fingerprints agree, which "
            "rules out mistakes but not forgery"
        )
    else:
        lines.append(
            "X and y are not the rows (or weights) of the fit, because the "
            "fingerprints differ: the proof is about the rows you passed"
        )
    promises = [claim for claim in risk if claim.strength is Strength.STATISTICAL]
    if promises:
        kind = "test rows" if unseen is None else unseen.kind
        lines.append(f"the {kind} were not used to fit or to choose the model")
    for claim in (*certificate.claims, *promises):
        lines += [line for line in claim.assumptions if not line.startswith(_SAID)]
    return tuple(dict.fromkeys(lines))
