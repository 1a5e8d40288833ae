"""The room of linear models with a convex objective.

It reads the statement, measures each problem by the kernel (a duality gap; without a
penalty a backward error, for losses with bounded slopes a gap of moved data) and puts
the worst into a claim; or it refuses, where a direction shows that there is no minimum.
Likelihoods without a penalty and losses that are not convex have no finite gap: the
size of their gradient is measured.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from certus import terms as t
from certus.certificate import Claim, Status, Strength
from certus.evidence import LinearWitness
from certus.verify import stated_linear
from certus.verify.curved import curvature_claim, decrement_claim, gradient_claim
from certus.verify.data import direction, fingerprint
from certus.verify.deciding import (
    BACKWARD,
    GAP,
    MOVED,
    Number,
    Wording,
    claim_of,
    impossible,
    refused,
    status_of,
    worst_of,
)
from certus.verify.kernel import backward, gap, losses, penalties, reading
from certus.verify.kernel.gap import Problem
from certus.verify.kernel.moved import measure_moved
from certus.verify.kernel.reading import Array
from certus.verify.kernel.reference import least_constant
from certus.verify.margin import judge_margin
from certus.verify.problems import Rows, describe, problems_of, rows_of
from certus.verify.separation import refuse
from certus.verify.slopes import chosen_dual
from certus.verify.stated_linear import Statement as Statement
from certus.verify.stating import Checked, Given

Judged = tuple[list[Claim], Status, Array | None]

READERS = stated_linear.READERS
#: How a loss reads the targets of bare coefficients.
TARGETS = {"signs": "signs", "codes": "codes", "numbers": "numbers"}
TARGETS |= {"counts": "numbers", "amounts": "numbers"}


def check(model: Any, stated: Statement, given: Given) -> Checked:
    """Judge ``coef_`` and ``intercept_``; the first claim is primary."""
    witness, X, y, sample_weight, level, _ = given
    if not losses.row_of(stated.loss).convex and isinstance(stated.loss, t.ZeroOne):
        raise ValueError(
            "The 0-1 loss cannot be judged: its slope vanishes almost everywhere. "
            "Judge a convex loss of the margin, such as Logistic() or Hinge()."
        )
    witness = witness if isinstance(witness, LinearWitness) else LinearWitness()
    rows = rows_of(model, stated, X, y, sample_weight)
    problems = problems_of(model, stated, rows, witness.dual)
    wrong = useless(model, stated)
    if wrong is not None:
        return [wrong[0]], wrong[1], marks_of(rows, None)
    probed: Array | None = None
    if stated.hard:
        claims, status = judge_margin(stated, witness, problems, level)
    else:
        claims, status, probed = _judge(stated, rows, problems, witness, level)
    claims.append(shape_claim(model, rows, stated, level))
    return claims, status, marks_of(rows, probed)


def marks_of(rows: Rows, probed: Array | None) -> dict[str, Any]:
    """The fingerprint of the rows; ``probed`` are their scores along its direction."""
    whole = probed if probed is not None and len(probed) == len(rows.y) else None
    return fingerprint(rows.X, rows.y.astype(float), rows.given.s, whole)


def useless(model: Any, stated: Statement) -> tuple[Claim, Status] | None:
    """What makes the coefficients no answer to the statement, if anything does."""
    words, intercept = GAP, reading.plain(model.intercept_)
    coef = reading.plain(model.coef_)
    if not (np.isfinite(coef).all() and np.isfinite(intercept).all()):
        detail = "the coefficients hold NaN or infinite values"
        claim = impossible(words, stated.tol, detail, "standardise the columns")
        return claim, Status.DIVERGED
    if stated.intercept == "none" and np.any(intercept):
        detail = "there is an intercept where none was asked for"
        fix = "set intercept_ to 0, or fit_intercept=True"
        return impossible(words, stated.tol, detail, fix), Status.TOL_NOT_REACHED
    return None


# -- what is measured -------------------------------------------------------------


def _judge(
    stated: Statement,
    rows: Rows,
    problems: list[Problem],
    witness: LinearWitness,
    level: str,
) -> Judged:
    row = losses.row_of(stated.loss)
    bare = [each for each in problems if _is_bare(each)]
    if 0 < len(bare) < len(problems):  # a level for each target, some of them zero
        kept = [each for each in problems if not _is_bare(each)]
        return _farther(
            _judge(stated, rows, bare, witness, level),
            _judge(stated, rows, kept, witness, level),
        )
    p, none = problems[0], bool(bare)
    objective = describe(stated, p.penalty)
    omega = penalties.row_of(p.penalty)
    free = omega.free(p.penalty, p.w)
    likelihood = row.takes != "numbers" and row.bend != "kink"
    refusal = _without_weight(stated, rows, objective)
    if refusal is not None:
        return [refusal], Status.NO_MINIMISER, None
    runs_away = (t.Poisson, t.Binomial) + (t.Logistic, t.Softmax) * none
    for each in problems if isinstance(stated.loss, runs_away) else []:
        refusal = refuse(each, witness.direction, not none, level == "full", objective)
        if refusal is not None:
            return [refusal], Status.NO_MINIMISER, None
    if not row.convex or (none and likelihood and omega.cone is None):
        return _stationary(stated, problems, witness, objective, level)
    if none and isinstance(stated.loss, t.Squared):
        positive = omega.cone is not None
        if positive and any((each.w < 0).any() for each in problems):
            detail = "a coefficient is negative where positive=True was asked for"
            claim = impossible(BACKWARD, stated.tol, detail, "fit again")
            return [claim], Status.TOL_NOT_REACHED, None
        return _worst(BACKWARD, stated, problems, level, positive)
    if none and omega.cone is None:
        return _worst(MOVED, stated, problems, level)
    if np.any(free):
        detail = (
            f"the penalty leaves {int(np.sum(free))} coefficients free, and there is "
            f"no bound for {type(stated.loss).__name__} then"
        )
        claim = refused("duality_gap", detail, "penalise every coefficient")
        return [claim], Status.UNDECIDED, None
    return _worst(GAP, stated, problems, level)


def _is_bare(p: Problem) -> bool:
    """Whether nothing is penalised."""
    free = penalties.row_of(p.penalty).free(p.penalty, p.w)
    return bool(np.all(free)) if free.size else isinstance(p.penalty, t.NoPenalty)


def _farther(first: Judged, second: Judged) -> Judged:
    """Both parts of a model, the one that is farther from solved first."""
    order = (Status.SOLVED, Status.UNDECIDED, Status.TOL_NOT_REACHED)
    rank = [order.index(s) if s in order else 3 for s in (first[1], second[1])]
    if rank[1] > rank[0]:
        first, second = second, first
    return [*first[0], *second[0]], first[1], None


def _worst(
    words: Wording,
    stated: Statement,
    problems: list[Problem],
    level: str,
    positive: bool = False,
) -> Judged:
    probe: Array | None = direction(problems[0].space.width)
    found, probed = [], None
    for p in problems:
        if losses.row_of(p.loss).bend == "kink" and p.dual is None:
            p = p._replace(dual=chosen_dual(p, level))
        each, seen = _measure(words, p, probe, positive, stated.tol)
        found.append(each)
        if probe is not None:
            probe, probed = None, seen
    k = worst_of(found)
    objective = describe(stated, problems[k].penalty)
    claim = claim_of(
        *(words, found[k], stated.tol, objective, stated.fix, len(problems))
    )
    return [claim], status_of(claim), probed


def _measure(
    words: Wording, p: Problem, probe: Array | None, positive: bool, tol: float
) -> tuple[Number, Array]:
    """A rough look first: cheap bounds of sparse columns, small repairs charged."""
    p.space.rough = words is GAP  # elsewhere norms are divided by
    found, probed = _once(words, p, probe, positive)
    if p.space.rough and not found.most <= tol:
        p.space.rough = False
        found, probed = _once(words, p, probe, positive)
    if not np.isfinite(found.most):
        reading.refuse_holes(p.space.X)
        if p.space.sparse is not None:
            reading.refuse_holes(p.space.sparse)
    return found, probed


def _once(
    words: Wording, p: Problem, probe: Array | None, positive: bool
) -> tuple[Number, Array]:
    if words is BACKWARD:
        error = backward.measure(p, probe, positive)
        return Number(error.computed, error.bound), error.probe
    if words is MOVED:
        moved = measure_moved(p, probe)
        if moved.still == 0.0 and not (p.w.any() or p.b.any()):
            return Number(0.0), moved.probe  # no loss is below zero
        return Number(*moved.value(least_constant(p))), moved.probe
    seen = gap.measure(p, probe)
    base = least_constant(p)
    if base == 0.0 and seen.primal == 0.0 and not (p.w.any() or p.b.any()):
        return Number(0.0), seen.probe  # no loss is below zero
    return Number.share(seen.computed, seen.bound, base), seen.probe


def _without_weight(stated: Statement, rows: Rows, objective: str) -> Claim | None:
    """A class that no row speaks for: its share can be lowered for ever."""
    if not isinstance(stated.loss, t.Logistic | t.Softmax) or rows.classes is None:
        return None
    used = np.unique(rows.y[rows.given.s > 0])
    if stated.intercept != "free" or len(used) == len(rows.classes):
        return None
    absent = np.delete(rows.classes, used)[0]
    return refused(
        "stationarity",
        f"no minimiser exists: the rows of class {absent} have no weight, and the "
        "intercept can run away from it",
        "drop the class, or give its rows weight",
        objective=objective,
        theorem="the likelihood rises for ever as the share of a class without rows "
        "falls to zero",
    )


def _stationary(
    stated: Statement,
    problems: list[Problem],
    witness: LinearWitness,
    objective: str,
    level: str,
) -> Judged:
    claims = [
        max(
            (gradient_claim(p, stated, objective) for p in problems),
            key=lambda claim: claim.value or 0.0,
        )
    ]
    if level == "full" and problems[0].space.width <= 2000:
        tukey = isinstance(stated.loss, t.Tukey)
        claims.append((curvature_claim if tukey else decrement_claim)(problems[0]))
    refuted = witness.direction is not None  # a witness was stated and does not hold
    status = Status.REFUTED if refuted else Status.UNDECIDED
    return claims, status, None


def shape_claim(model: Any, rows: Rows, stated: Statement, level: str) -> Claim:
    """How many coefficients are used; at level full rank and condition number."""
    coef = reading.plain(model.coef_)
    d = coef.shape[-1]
    used = int(np.count_nonzero(np.abs(coef.reshape(-1, d)).max(axis=0)))
    detail = f"{used:,} of {d:,} coefficients non-zero"
    if level != "full" or d > 2000 or hasattr(rows.X, "toarray"):
        return Claim("shape", Strength.MEASURED, float(used), detail=detail)
    s = rows.given.s
    A = np.asarray(rows.X, dtype=float) * np.sqrt(s)[:, None]
    if stated.intercept == "free":
        A = A - np.outer(np.sqrt(s), s @ np.asarray(rows.X, dtype=float) / s.sum())
    sizes = np.linalg.svd(A, compute_uv=False)
    eps = float(np.finfo(float).eps)
    rank = int(np.sum(sizes > sizes.max(initial=0.0) * max(A.shape) * eps))
    if rank:
        detail += f", rank {rank}, condition number {sizes[0] / sizes[rank - 1]:.2g}"
    return Claim("shape", Strength.MEASURED, float(rank), detail=detail)
