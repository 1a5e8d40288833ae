"""Checker of linear models with a convex objective.

It reads the statement, measures each problem by the kernel (a duality gap; without a
penalty a backward error, for losses with bounded slopes a gap of moved data) and puts
the worst into a claim; or it refuses, where a direction shows that there is no minimum.
Likelihoods without a penalty and losses that are not convex have no finite gap: the
size of their gradient is measured.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from certus.certificate import Claim, Status
from certus.evidence import LinearWitness
from certus.fingerprints import direction
from certus.objectives import terms as t
from certus.typing import Array, Fit
from certus.verify import at_scale, deciding, stated_linear, stating
from certus.verify.data import dense, fingerprint
from certus.verify.deciding import BACKWARD, GAP, MOVED, Number, Wording, measured
from certus.verify.huber import judge_scale
from certus.verify.kernel import backward, gap, losses, penalties, reading
from certus.verify.kernel.gap import Problem, columns, means, norm
from certus.verify.kernel.moved import measure_moved
from certus.verify.kernel.reference import least_constant
from certus.verify.kernel.spaces import UNIT
from certus.verify.margin import judge_margin
from certus.verify.problems import (
    Rows,
    chosen_dual,
    describe,
    problems_of,
    rows_of,
    scores,
)
from certus.verify.separation import refuse
from certus.verify.stated_linear import Statement as Statement
from certus.verify.stating import Checked, Given

Judged = tuple[list[Claim], Status, Array | None]

#: Not among the others, whose loss a further penalty may stand beside.
READERS = stated_linear.READERS | {"HuberRegressor": stated_linear.huber}
#: How a loss reads the targets of bare coefficients.
TARGETS = {"signs": "signs", "codes": "codes", "numbers": "numbers"}
TARGETS |= {"counts": "numbers", "amounts": "numbers"}


def check(model: Fit, stated: Statement, given: Given) -> Checked:
    """Judge ``coef_`` and ``intercept_``; the first claim is primary."""
    if isinstance(stated.loss, t.ZeroOne):
        raise ValueError(
            "The 0-1 loss cannot be certified: its slope is zero almost everywhere. "
            "Use a convex loss of the margin, such as Logistic() or Hinge()."
        )
    if not isinstance(given.witness, LinearWitness):
        given = given._replace(witness=LinearWitness())
    if stating.by_address(given.X):
        reason = _useless(model, stated)
        return at_scale.check(model, stated, given, reason[0][0] if reason else None)
    if stated.indicator and np.ndim(given.y) == 2 and np.shape(given.y)[1] > 1:
        stated, given = _of_columns(stated, given)
    rows = rows_of(model, stated, given.X, given.y, given.sample_weight)
    problems = problems_of(model, stated, rows, given.witness.dual)
    found: Judged | None = _useless(model, stated)
    if stated.indicator and stated.target == "numbers" and stated.class_weight:
        detail = "class_weight has no stated meaning where rows have several labels"
        claim = deciding.refused(GAP.name, detail, "class_weight=None")
        found = [claim], Status.UNDECIDED, None
    if found is not None:
        return *found[:2], marks_of(rows, None)
    if stated.hard:
        found = judge_margin(stated, problems, given)
    elif stated.joint:
        found = judge_scale(stated, problems[0], float(model.scale_))
    else:
        found = _judge(stated, rows, problems, given)
    claims, status, probed = found
    claims.append(shape_claim(model, rows, stated, given.level))
    return claims, status, marks_of(rows, probed)


def _of_columns(stated: Statement, given: Given) -> tuple[Statement, Given]:
    """Several labels at once: each column of two values is a target of ±1 by itself."""
    y = np.asarray(given.y)
    two = any(np.isin(y, values).all() for values in ((0, 1), (-1, 1)))
    if y.dtype.kind not in "biuf" or not two:
        raise ValueError("y has several columns, and they are not 0 or 1, nor ±1.")
    signs = np.where(y > 0, 1.0, -1.0)
    return stated._replace(target="numbers"), given._replace(y=signs)


def marks_of(rows: Rows, probed: Array | None) -> dict[str, Any]:
    """The fingerprint of the rows; ``probed`` are their scores along its direction."""
    whole = probed if probed is not None and len(probed) == len(rows.y) else None
    return fingerprint(rows.X, rows.y.astype(float), rows.given.s, whole)


def _useless(model: Fit, stated: Statement) -> Judged | None:
    """Why the coefficients cannot be a solution, if there is a reason."""
    coef, intercept = reading.plain(model.coef_), reading.plain(model.intercept_)
    first = stated.penalty[0] if isinstance(stated.penalty, list) else stated.penalty
    status = Status.TOL_NOT_REACHED
    if not (np.isfinite(coef).all() and np.isfinite(intercept).all()):
        detail = "the coefficients hold NaN or infinite values"
        fix, status = "standardise the columns", Status.DIVERGED
    elif stated.intercept == "none" and np.any(intercept):
        detail = "the model has an intercept, but its parameters ask for none"
        fix = "set intercept_ to 0, or fit_intercept=True"
    elif stated.joint and not 0 <= float(model.scale_) < np.inf:
        detail = "the scale is negative, NaN or infinite"
        fix, status = "standardise the columns", Status.DIVERGED
    elif isinstance(first, t.NonNegative) and (coef < 0).any():
        detail = "a coefficient is negative, but positive=True"
        fix = "fit again"
    else:
        return None
    return [deciding.impossible(GAP, stated.tol, detail, fix)], status, None


# -- what is measured -------------------------------------------------------------


def _judge(
    stated: Statement, rows: Rows, problems: list[Problem], given: Given
) -> Judged:
    loss, p = stated.loss, problems[0]
    row, none = losses.row_of(loss), _is_bare(p)
    objective = describe(stated, p.penalty)
    refusal = _without_weight(stated, rows, objective)
    runs_away = (t.Poisson, t.Tweedie, t.Binomial) + (t.Logistic, t.Softmax) * none
    for each in problems if isinstance(loss, runs_away) else []:
        refusal = refusal or refuse(each, given, not none, objective)
    if refusal is not None:
        return [refusal], Status.NO_MINIMISER, None
    likelihood = row.takes != "numbers" and row.bend != "kink"
    inside = penalties.row_of(p.penalty).cone is None
    if not row.convex or (none and likelihood and inside):
        return _stationary(stated, problems, given, objective)
    kinds: dict[Wording | None, list[Problem]] = {}
    for each in problems:  # a level for each target may be zero for some
        kinds.setdefault(_words(each), []).append(each)
    claims, probed = [], None
    for words, group in kinds.items():
        if words is None:
            detail = "some coefficients are not penalised, and no bound is known for "
            detail += f"{type(loss).__name__} in that case"
            fix = "penalise every coefficient"
            return [deciding.refused(GAP.name, detail, fix)], Status.UNDECIDED, None
        claim, probed = worst_claim(words, stated, group, given.level)
        claims.append(claim)
    return claims, deciding.verdict(claims), probed


def _is_bare(p: Problem) -> bool:
    """Whether nothing is penalised."""
    free = penalties.row_of(p.penalty).free(p.penalty, p.w)
    return bool(np.all(free)) if free.size else isinstance(p.penalty, t.NoPenalty)


def _words(p: Problem) -> Wording | None:
    """The claim about a problem with a convex loss, if one is possible."""
    omega = penalties.row_of(p.penalty)
    if _is_bare(p) and isinstance(p.loss, t.Squared):
        return BACKWARD
    if _is_bare(p) and omega.cone is None:
        return MOVED
    return None if np.any(omega.free(p.penalty, p.w)) else GAP


def worst_claim(
    words: Wording, stated: Statement, problems: list[Problem], level: str
) -> tuple[Claim, Array]:
    """The claim of the problem farthest from solved; scores of a probing direction."""
    found: list[Number] = []
    probed: list[Array] = []
    for p in problems:
        if losses.row_of(p.loss).bend == "kink" and p.dual is None:
            p = p._replace(dual=chosen_dual(p, level))
        probe = None if probed else direction(p.space.width)
        # A rough look first: cheap bounds of sparse columns, small repairs charged.
        p.space.rough = words is GAP  # elsewhere norms are divided by
        number, seen = _measure(words, p, probe)
        if p.space.rough and not number.most <= stated.tol:
            p.space.rough = False
            number, seen = _measure(words, p, probe)
        if not np.isfinite(number.most):
            reading.refuse_holes(p.space.given)
        found.append(number)
        probed.append(seen)
    k = deciding.worst_of(found, stated.tol)
    objective = describe(stated, problems[k].penalty)
    more = (stated.tol, objective, stated.fix, len(problems))
    return deciding.claim_of(words, found[k], *more), probed[0]


def _measure(words: Wording, p: Problem, probe: Array | None) -> tuple[Number, Array]:
    if words is BACKWARD:
        positive = penalties.row_of(p.penalty).cone is not None
        error = backward.measure(p, probe, positive)
        return Number(error.computed, error.bound), error.probe
    base, moved = least_constant(p), words is MOVED
    seen: Any = (measure_moved if moved else gap.measure)(p, probe)
    least = base == 0.0 == (seen.still if moved else seen.primal)
    if least and not (p.w.any() or p.b.any()):
        return Number(0.0), seen.probe  # no loss is below zero
    if moved:
        return Number(*seen.value(base)), seen.probe
    return Number.share(seen.computed, seen.bound, base), seen.probe


def _without_weight(stated: Statement, rows: Rows, objective: str) -> Claim | None:
    """A class without rows of positive weight: its share can be lowered forever."""
    likely = isinstance(stated.loss, t.Logistic | t.Softmax)
    if not likely or stated.intercept != "free":
        return None
    used = np.flatnonzero(np.bincount(rows.y, rows.given.s))
    if len(used) == len(rows.classes):
        return None
    detail = f"the rows of class {np.delete(rows.classes, used)[0]} have no weight"
    return deciding.refused(
        "stationarity",
        f"there is no minimum: {detail}, so its intercept can grow without limit",
        "drop the class, or give its rows weight",
        objective=objective,
        theorem="the likelihood keeps rising as the share of a class falls to zero",
    )


def _stationary(
    stated: Statement, problems: list[Problem], given: Given, objective: str
) -> Judged:
    found = [gradient_claim(p, stated, objective) for p in problems]
    claims = [max(found, key=lambda claim: claim.value or 0.0)]
    if given.level == "full" and problems[0].space.width <= 2000:
        tukey = isinstance(stated.loss, t.Tukey)
        claims.append((curvature_claim if tukey else decrement_claim)(problems[0]))
    refuted = given.witness.direction is not None  # it was stated and does not hold
    return claims, Status.REFUTED if refuted else Status.UNDECIDED, None


def shape_claim(model: Fit, rows: Rows, stated: Statement, level: str) -> Claim:
    """How many coefficients are used; at level full rank and condition number."""
    coef = reading.plain(model.coef_)
    d = coef.shape[-1]
    used = int(np.count_nonzero(np.abs(coef.reshape(-1, d)).max(axis=0)))
    detail = f"{used:,} of {d:,} coefficients non-zero"
    if level != "full" or d > 2000 or hasattr(rows.X, "toarray"):
        return measured("shape", float(used), detail)
    s, A = rows.given.s[:, None], np.asarray(rows.X, dtype=float)
    if stated.intercept == "free":
        A = A - np.average(A, axis=0, weights=s[:, 0])
    sizes = np.linalg.svd(A * np.sqrt(s), compute_uv=False)
    eps = float(np.finfo(float).eps)
    rank = int(np.sum(sizes > sizes.max(initial=0.0) * max(A.shape) * eps))
    if rank:
        detail += f", rank {rank}, condition number {sizes[0] / sizes[rank - 1]:.2g}"
    return measured("shape", float(rank), detail)


# -- numbers without a promise: where no bound exists -----------------------------


def gradient_claim(p: Problem, stated: Statement, objective: str) -> Claim:
    """The gradient's share of its natural size, Σ of |xⱼ|·|u| in the mean square."""
    row, flat = losses.row_of(p.loss), p.w.ndim == 1
    level = float(getattr(p.penalty, "alpha", 0.0))

    def slopes(rows: slice, z: Array) -> Array:
        return columns(row.slope(p.loss, p.y[rows], z[:, 0] if flat else z))

    seen = p.space.look(columns(p.w), p.b, slopes)
    size_u, mean_u = norm(p, seen.B), means(p, seen.B)
    # With columns shifted by c, Xᵀ(su) has c·mean u more.
    whole = seen.V.copy()
    whole[p.space.full] += np.multiply.outer(p.space.shift, mean_u)
    reach = float(np.linalg.norm(p.space.norms) + np.linalg.norm(p.space.shift))
    size = reach * size_u + level * float(np.linalg.norm(p.w))
    slope = float(np.linalg.norm(whole + level * columns(p.w)))
    value = slope / size if size > 0 else 0.0
    if p.free and size_u > 0:
        value = max(value, float(np.abs(mean_u).max()) / size_u)
    noise = 64 * UNIT * (norm(p, p.y.astype(float)) + norm(p, seen.z))
    if size_u <= noise and level == 0.0 and flat:
        value = 0.0  # the residuals are rounding
    detail = f"gradient is {value:.1e} of its natural size (asked for {stated.tol:.0e})"
    theorem = "a convex function has its minimum where its gradient is zero"
    if isinstance(p.loss, t.Tukey):
        far = np.abs(p.y - seen.z[:, 0]) >= p.loss.threshold
        detail += f"; {int(far.sum()):,} of {len(far):,} rows have no influence"
        theorem = "at a local minimum the gradient is zero; the loss is not convex"
    words = {"objective": f"gradient of  {objective}", "theorem": theorem}
    words["fix"] = "" if value <= stated.tol else stated.fix
    return measured("stationarity", value, detail, target=stated.tol, **words)


def _dense(p: Problem) -> Array:
    """X with a column of ones where the intercept is free."""
    A = dense(p.space.given).astype(float)
    return np.hstack([A, np.ones((len(A), 1))]) if p.free else A


def _hessian(p: Problem, A: Array) -> tuple[Array, Array]:
    """Of the mean loss, in the columns of A for each class; and the gradient."""
    row, z = losses.row_of(p.loss), scores(p)
    share = (p.space.s / p.space.total)[:, None]
    u = columns(row.slope(p.loss, p.y, z))
    curve = row.curvature(p.loss, p.y, z).reshape(-1, u.shape[1], u.shape[1])
    H = np.einsum("iab,ij,il->ajbl", curve, A * share, A, optimize=True)
    size = u.shape[1] * A.shape[1]
    return H.reshape(size, size), (u.T @ (A * share)).ravel()


def decrement_claim(p: Problem) -> Claim:
    """½ gᵀH⁻¹g: what the quadratic model says is left to gain."""
    hessian, gradient = _hessian(p, _dense(p))
    step = np.linalg.lstsq(hessian, gradient, rcond=None)[0]
    left = float(gradient @ step / 2)
    detail = f"another Newton step would gain {left:.1e}"
    return measured("newton_decrement", left, detail, objective="½ gᵀH⁻¹g")


def curvature_claim(p: Problem) -> Claim:
    """Smallest eigenvalue of the Hessian, columns in units of their own size."""
    A, d = _dense(p), p.space.width
    size = np.sqrt(p.space.s / p.space.total @ np.square(A))
    scale = np.where(size > 0, size, 1.0)
    H = _hessian(p, A / scale)[0]
    H[range(d), range(d)] += getattr(p.penalty, "alpha", 0.0) / scale[:d] ** 2
    least = float(np.linalg.eigvalsh(H)[0])
    word = "a strict local minimum" if least > 0 else "not shown to be a local minimum"
    detail = f"smallest curvature {least:.2g} (columns scaled): {word}"
    what = "smallest eigenvalue of the Hessian"
    return measured("curvature", least, detail, objective=what)
