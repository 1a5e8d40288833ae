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
    main = f"{subject} {_error(risk, found, task)}. Its fit {_solved(certificate)}."
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
    """How well it predicts: the metric asked for, and a promise about new rows."""
    first = risk[0] if risk else None
    if first is not None and first.strength is not Strength.REFUSED:
        sure = f" ({first.basis})" if first.strength is Strength.STATISTICAL else ""
        said = f"has {_article(task.metric.label)} of {first.detail}{sure}"
        rate = next((c for c in risk[1:] if c.name == "error_rate"), None)
        if rate is not None and rate.strength is Strength.STATISTICAL:
            # Everybody can read a share of wrong answers; the lists have all intervals.
            value = first.detail.partition(",")[0]
            start = f"has {_article(task.metric.label)} of {value}"
            said = f"{start} and an error rate of {rate.detail} ({rate.basis})"
        more = [c for c in risk if c.name == "large_error"]
        return said + "".join(f"; {c.detail} ({c.basis})" for c in more[:1])
    errors = found.learning.errors
    if not errors:
        return "has seen all rows, so how well it predicts new rows is not known"
    ours = float(np.mean(errors))
    constant = float(np.mean(found.learning.constant))
    loss = task.metric.loss
    better = "better" if loss(ours) < loss(constant) else "no better"
    return (
        f"has {_article(task.metric.label)} of {task.show(ours)} on rows held out in "
        f"turn, {better} than always predicting {task.constant} "
        f"({task.show(constant)})"
    )


def _article(label: str) -> str:
    vowel = label[0] in "aeiouAEIO" or label.startswith(("RM", "R²", "MA", "F"))
    return f"an {label}" if vowel else f"a {label}"


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
    comparison: Any,
) -> tuple[Claim, ...]:
    """Measured numbers; those about new rows first."""
    claims = [claim for claim in risk if claim.strength is Strength.MEASURED]
    if found.learning.errors and comparison is None:  # else its table has them
        claims.append(_held_out(found, task))
    claims += [c for c in certificate.claims if c.strength is Strength.MEASURED]
    return tuple(claims)


def _held_out(found: AuditFigures, task: PredictionTask) -> Claim:
    errors, constant = found.learning.errors, float(np.mean(found.learning.constant))
    mean = float(np.mean(errors))
    spread = float(deviation(np.array(errors)))
    return Claim(
        "held_out",
        Strength.MEASURED,
        mean,
        objective=f"{task.measure}; mean ± standard deviation over {len(errors)} folds",
        detail=f"{task.show(mean)} ± {task.show(spread, 2)} on rows held out in turn; "
        f"always predicting {task.constant} gives {task.show(constant)}",
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
