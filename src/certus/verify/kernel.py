"""Checks of kernel machines.

    P(f, b) = Σ sᵢ ℓ(yᵢ, f(xᵢ) + b) / Σs + ½λ‖f‖²,      f = Σⱼ cⱼ k(·, xⱼ)

The coefficients c are themselves a dual point: uᵢ = −λ·Σs·cᵢ/sᵢ. Moved into its domain
it gives another function f', and Fenchel–Young gives the gap as a sum without
cancellation, P − D = Σ s(ℓ + ℓ* − uz)/Σs + ½λ‖f − f'‖². One pass over the kernel values
of all rows with the support vectors computes everything, block by block.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from certus import terms as t
from certus.certificate import Claim, Evidence, Status, Strength
from certus.verify import convex, data
from certus.verify.claims import Found, gap_claim
from certus.verify.data import Array
from certus.verify.formulas import LOSSES, into_domain, one_hot
from certus.verify.gram import (
    diagonal,
    given_matrix,
    positive_by_form,
    products,
    smallest_eigenpair,
)

EPS = float(np.finfo(np.float64).eps)
#: Rows up to which a matrix of unknown sign is looked into at level "quick", "full".
LOOK = {"quick": 2_000, "full": 6_000}
#: A negative eigenvalue smaller than this share of the trace is rounding.
SHARE = 1e-10
#: Squared distance, in units of the largest k(x, x), at which two points coincide.
COINCIDE = 1e-12

Checked = tuple[list[Claim], Status, dict[str, Any]]


class Machine(NamedTuple):
    """One problem of a kernel machine: rows, targets, weights, coefficients."""

    loss: t.Loss
    level: float  # of the penalty beside Σ sℓ: ½·level·‖f‖²
    rows: Array
    y: Array
    s: Array
    c: Array
    b: float
    free: bool


class Scores(NamedTuple):
    """Kc and Kc' on the rows of a problem, both without b; ‖f‖² and ‖f − f'‖²."""

    z: Array
    other: Array
    square: float
    apart: float


def check_kernel(
    model: Any, evidence: Evidence, X: Any, y: Any, sample_weight: Any, level: str
) -> Checked:
    """Judge ``dual_coef_`` and ``intercept_`` of a kernel machine.

    ``evidence.terms``: loss, penalty (beside the sum of losses), kernel.
    ``evidence.params``: machine ("gap", "perceptron"), target ("numbers", "signs",
    "one_vs_one", "one_vs_rest"), intercept ("free", "none"), class_weight,
    class_counts, alphas, tol, fix. ``evidence.arrays``: ``eigenvector``, ``hulls``.
    """
    kernel = evidence.terms[2]
    if isinstance(kernel, t.Given):
        X, kernel = given_matrix(kernel, X), t.Precomputed()
    X = data.as_matrix(X)
    if isinstance(kernel, t.Precomputed) and X.shape[0] != X.shape[1]:
        raise ValueError(
            f"X has shape {X.shape}; a precomputed kernel is a square matrix, one row "
            "and one column for each training row."
        )
    machines, s, labels, support = _machines(model, evidence, X, y, sample_weight)
    marks = data.fingerprint(X, labels, s)
    tol, fix = (
        float(evidence.params.get("tol", 1e-6)),
        str(evidence.params.get("fix", "")),
    )
    refusal = _not_positive(kernel, X, evidence, level)
    if refusal is not None:
        return [refusal], Status.NO_MINIMISER, marks
    if not all(np.isfinite(p.c).all() and np.isfinite(p.b) for p in machines):
        claim = Claim(
            "duality_gap",
            Strength.PROVED,
            np.inf,
            tol,
            met=False,
            detail="the coefficients hold NaN or infinite values",
            fix="scale the data, or choose a milder kernel",
        )
        return [claim], Status.DIVERGED, marks
    if evidence.params.get("machine") == "perceptron":
        claims, status = _perceptron(kernel, X, machines, support, evidence)
    else:
        claims, status = _gaps(kernel, X, machines, support, evidence, tol, fix)
    if not positive_by_form(kernel) and X.shape[0] > LOOK[level]:
        note = "the kernel matrix is positive semidefinite (too large to look into)"
        claims[0] = _assuming(claims[0], note)
    used = len(np.unique(support))
    detail = f"{used:,} of {X.shape[0]:,} rows carry the model"
    claims.append(Claim("support", Strength.MEASURED, float(used), detail=detail))
    return claims, status, marks


def _assuming(claim: Claim, note: str) -> Claim:
    values = {**claim.__dict__, "assumptions": (*claim.assumptions, note)}
    return Claim(**values)


# -- the problems -----------------------------------------------------------------


def _machines(
    model: Any, evidence: Evidence, X: Any, y: Any, sample_weight: Any
) -> tuple[list[Machine], Array, Array, Array]:
    """The model as problems with one score each; weights, labels, support rows."""
    n, params = X.shape[0], evidence.params
    loss, penalty, _ = evidence.terms
    target = params.get("target", "numbers")
    classes = None if target == "numbers" else np.asarray(model.classes_)
    labels = data.numbers(y, n) if classes is None else data.codes(y, classes)
    if len(labels) != n:
        raise ValueError(f"y has {len(labels)} rows and X has {n}.")
    counts = params.get("class_counts", "weights")
    s = data.weights(
        sample_weight, params.get("class_weight"), labels, classes, n, counts
    )
    coef = data.plain(model.dual_coef_).astype(float)
    support = np.asarray(getattr(model, "support_", np.arange(n)))
    if target == "numbers":
        coef = coef.T if coef.ndim == 2 and not hasattr(model, "support_") else coef
    b = np.ravel(np.asarray(getattr(model, "intercept_", 0.0), dtype=float))
    known = int(getattr(model, "shape_fit_", (len(support),))[0])
    if support.max(initial=-1) >= n or len(support) > n or known != n != len(support):
        raise ValueError(f"X has {n} rows and the model was fitted on {known}.")
    coef = coef.reshape(-1, len(support)) if len(support) else np.zeros((len(b), 0))
    free = params.get("intercept", "free") == "free"
    parts = _parts(target, labels, classes, coef, support)
    alphas = params.get("alphas")
    machines = []
    for k, (rows, y_k, c) in enumerate(parts):
        level = float(alphas[k]) if alphas is not None else _level(penalty)
        b_k = float(b[k if len(b) > 1 else 0])
        machines.append(Machine(loss, level, rows, y_k, s[rows], c, b_k, free))
    return machines, s, labels.astype(float), support


def _level(penalty: t.Penalty) -> float:
    return float(penalty.alpha) if isinstance(penalty, t.L2) else 0.0


def _parts(
    target: str, labels: Array, classes: Array | None, coef: Array, support: Array
) -> list[tuple[Array, Array, Array]]:
    """Rows, targets and coefficients (on the support) of each problem."""
    everything = np.arange(len(labels))
    if target == "signs":
        return [(everything, np.where(labels == 1, 1.0, -1.0), coef[0])]
    if target == "one_vs_rest" and classes is not None:
        signs = 2 * one_hot(labels, len(classes)) - 1
        return [(everything, signs[:, k], coef[k]) for k in range(len(classes))]
    if target == "one_vs_one" and classes is not None:
        # Row j − 1 holds class i's part of the problem (i, j), row i class j's.
        own, parts = labels[support], []
        for i in range(len(classes)):
            for j in range(i + 1, len(classes)):
                rows = np.flatnonzero((labels == i) | (labels == j))
                c = np.where(own == i, coef[j - 1], np.where(own == j, coef[i], 0.0))
                parts.append((rows, np.where(labels[rows] == i, 1.0, -1.0), c))
        return parts
    targets = labels.reshape(len(labels), -1)
    if targets.shape[1] != len(coef):
        raise ValueError(
            f"y has {targets.shape[1]} columns and the model predicts {len(coef)}."
        )
    return [(everything, targets[:, k], coef[k]) for k in range(len(coef))]


# -- the gap ----------------------------------------------------------------------


def _dual_point(p: Machine, support: Array, n: int) -> tuple[Array, Array]:
    """U on the rows of the problem, repaired, and the coefficients that go with it."""
    everywhere = np.bincount(support, weights=p.c, minlength=n)
    c = everywhere[p.rows]
    with np.errstate(divide="ignore", invalid="ignore"):
        u = np.where(p.s > 0, -p.level * c / p.s, 0.0)
    u = into_domain(p.loss, p.y, u)
    if p.free:
        u = LOSSES[type(p.loss)].centre(p.loss, p.y, u, p.s)
    repaired = np.zeros(n)
    repaired[p.rows] = -p.s * u / p.level
    return u, repaired[support]


def _scores(
    kernel: t.Kernel,
    X: Any,
    machines: list[Machine],
    support: Array,
    other: list[Array],
) -> list[Scores]:
    """Kernel sums of all problems in one pass."""
    coef = np.column_stack([*(p.c for p in machines), *other])
    Z = products(kernel, X, support, coef)
    found = []
    for k, p in enumerate(machines):
        z, w = Z[:, k], Z[:, len(machines) + k]
        d = p.c - other[k]
        square, apart = p.c @ z[support], d @ (z - w)[support]
        found.append(
            Scores(z[p.rows], w[p.rows], float(square), max(float(apart), 0.0))
        )
    return found


def _gaps(
    kernel: t.Kernel,
    X: Any,
    machines: list[Machine],
    support: Array,
    evidence: Evidence,
    tol: float,
    fix: str,
) -> tuple[list[Claim], Status]:
    n = X.shape[0]
    if isinstance(evidence.terms[1], t.NoPenalty):
        if isinstance(evidence.terms[0], t.Hinge):
            return _hard_margin(kernel, X, machines, support, evidence, tol, fix)
        return _interpolation(kernel, X, machines, support, tol, fix)
    points = [_dual_point(p, support, n) for p in machines]
    scores = _scores(kernel, X, machines, support, [c for _, c in points])
    largest = float(np.sqrt(np.abs(diagonal(kernel, X)).max(initial=0.0))) or 1.0
    found = [
        _gap(p, u, score, largest) for p, (u, _), score in zip(machines, points, scores)
    ]
    worst = max(range(len(found)), key=lambda k: found[k].value - found[k].allowance)
    objective = describe(machines[worst], kernel)
    claim = gap_claim(found[worst], tol, objective, fix, len(machines))
    solved = claim.strength is not Strength.REFUSED and claim.met
    return [claim], Status.SOLVED if solved else Status.TOL_NOT_REACHED


def _gap(p: Machine, u: Array, score: Scores, largest: float) -> Found:
    """(P − D) relative to the best constant model, and the rounding granted."""
    formulas, total = LOSSES[type(p.loss)], float(p.s.sum())
    z = score.z + p.b
    losses, conjugates = (
        formulas.value(p.loss, p.y, z),
        formulas.conjugate(p.loss, p.y, u),
    )
    excess = losses + conjugates - u * z
    gap = float(p.s @ excess) / total + p.level / total * score.apart / 2
    size = float(p.s @ (np.abs(losses) + np.abs(conjugates) + np.abs(u * z))) / total
    # Each score is a sum of c·k: its rounding, seen through u.
    reach = float(np.abs(p.c).sum()) * largest**2 + abs(p.b)
    seen = float(p.s @ np.abs(u)) / total
    rounding = EPS * (8 * size + 8 * reach * seen)
    blank = np.zeros(0)
    intercept = "free" if p.free else "none"
    constant = convex.Problem(
        p.loss, t.NoPenalty(), None, p.y, p.s, blank, 0.0, intercept
    )
    reference = convex.constant_value(constant)
    if not np.isfinite(gap):
        return Found(np.inf, 0.0)
    if reference <= 0.0:
        return Found(0.0 if gap <= rounding else np.inf, 0.0)
    return Found(max(gap, 0.0) / reference, rounding / reference)


def describe(p: Machine, kernel: t.Kernel) -> str:
    """The objective as one line of text."""
    text = LOSSES[type(p.loss)].text.format(**p.loss._asdict())
    score = "z = f(x) + b" if p.free else "z = f(x)"
    level = p.level / float(p.s.sum())
    return f"{text} + ½·{level:.4g}·‖f‖²,  {score},  {_kernel_text(kernel)}"


def _kernel_text(kernel: t.Kernel) -> str:
    name = type(kernel).__name__
    numbers = [f"{v:.4g}" for v in kernel if isinstance(v, int | float)]
    return f"k = {name}({', '.join(numbers)})" if numbers else f"k = {name}"


# -- without a penalty ------------------------------------------------------------


def _interpolation(
    kernel: t.Kernel,
    X: Any,
    machines: list[Machine],
    support: Array,
    tol: float,
    fix: str,
) -> tuple[list[Claim], Status]:
    """Kc = y, with the smallest perturbation of K and y for which it is exact."""
    scores = _scores(kernel, X, machines, support, [p.c * 0 for p in machines])
    top = float(np.abs(diagonal(kernel, X)).max(initial=0.0)) * X.shape[0]
    value = 0.0
    for p, score in zip(machines, scores):
        residual = float(np.linalg.norm(p.y - score.z - p.b))
        size = top * float(np.linalg.norm(p.c)) + float(np.linalg.norm(p.y))
        value = max(value, residual / size if size > 0 else 0.0)
    met = value <= tol
    claim = Claim(
        "backward_error",
        Strength.PROVED,
        value,
        tol,
        met,
        f"backward error of  K c = y,  {_kernel_text(kernel)}",
        "the coefficients solve (K + E)c = y + e exactly with ‖E‖ ≤ value·n·max k and "
        "‖e‖ ≤ value·‖y‖",
        detail=f"exact for a system within {value:.1e} of yours (asked for {tol:.0e})",
        fix="" if met else fix or "alpha > 0",
    )
    return [claim], Status.SOLVED if met else Status.TOL_NOT_REACHED


def _hard_margin(
    kernel: t.Kernel,
    X: Any,
    machines: list[Machine],
    support: Array,
    evidence: Evidence,
    tol: float,
    fix: str,
) -> tuple[list[Claim], Status]:
    """½‖f‖² subject to y·(f + b) ≥ 1: the gap after scaling, or why there is none."""
    hulls = evidence.arrays.get("hulls")
    if hulls is not None:
        refusal = _hulls_meet(kernel, X, machines, np.asarray(hulls, dtype=float))
        if refusal is not None:
            return [refusal], Status.NO_MINIMISER
    others = []
    for p in machines:
        sign = np.bincount(p.rows, weights=p.y, minlength=X.shape[0])[support]
        alpha = np.maximum(p.c * sign, 0.0)
        up, down = alpha[sign > 0].sum(), alpha[sign < 0].sum()
        with np.errstate(divide="ignore", invalid="ignore"):
            scale = np.where(sign > 0, min(1.0, down / up), min(1.0, up / down))
        others.append(np.nan_to_num(alpha * sign * scale))
    value = 0.0
    for p, other, score in zip(
        machines, others, _scores(kernel, X, machines, support, others)
    ):
        used = p.s > 0
        margin = float((p.y * (score.z + p.b))[used].min())
        everywhere = np.bincount(support, weights=other, minlength=X.shape[0])[p.rows]
        lower = float(everywhere @ score.other)
        dual = float(np.abs(other).sum()) ** 2 / (2 * lower) if lower > 0 else 0.0
        primal = score.square / margin**2 / 2 if margin > 0 else np.inf
        gap = (primal - dual) / primal if np.isfinite(primal) else np.inf
        value = max(value, max(gap, 0.0))
    met = value <= tol
    asked = f"(asked for {tol:.0e})"
    missed = f"may be {value:.2g} above the smallest norm {asked}"
    if value == np.inf:
        missed = "some row lies on the wrong side, and no proof that it must is given"
    claim = Claim(
        "duality_gap",
        Strength.PROVED,
        value,
        tol,
        met,
        f"duality gap of  ½‖f‖²  with y·(f(x) + b) ≥ 1,  {_kernel_text(kernel)}",
        "weak duality, with (f, b) scaled until its margin is one",
        allowance=0.0,
        detail=f"within {value:.1e} of the largest margin {asked}" if met else missed,
        fix="" if met else fix,
    )
    return [claim], Status.SOLVED if met else Status.TOL_NOT_REACHED


def _hulls_meet(
    kernel: t.Kernel, X: Any, machines: list[Machine], hulls: Array
) -> Claim | None:
    """Whether the given convex combinations of two classes are the same point."""
    n = X.shape[0]
    if hulls.ndim != 2 or hulls.shape[1] != n or not np.isfinite(hulls).all():
        return None
    top = float(np.abs(diagonal(kernel, X)).max(initial=0.0))
    for weights in hulls:
        for p in machines:
            inside = np.zeros(n)
            inside[p.rows[p.s > 0]] = p.y[p.s > 0]
            plus, minus = weights * (inside > 0), weights * (inside < 0)
            if weights.min() < 0 or np.any(weights[inside == 0] != 0):
                continue
            if min(plus.sum(), minus.sum()) <= 0:
                continue
            c = plus / plus.sum() - minus / minus.sum()
            used = np.flatnonzero(c)
            square = float(
                c[used] @ products(kernel, X, used, c[used][:, None])[used, 0]
            )
            if square > COINCIDE * top:
                continue
            apart = np.sqrt(max(square, EPS * top))
            return Claim(
                "duality_gap",
                Strength.REFUSED,
                objective=f"½‖f‖²  with y·(f(x) + b) ≥ 1,  {_kernel_text(kernel)}",
                theorem="a plane that separates two sets separates their convex "
                "combinations; if two of these are less than δ apart, ‖f‖ > 2/δ",
                detail="no hard margin exists: a convex combination of "
                f"{int((plus > 0).sum())} rows of one class is one of "
                f"{int((minus > 0).sum())} rows of the other, to within {apart:.0e}",
                fix="any finite C, or a richer kernel",
            )
    return None


# -- matrices that are not kernels ------------------------------------------------


def _not_positive(
    kernel: t.Kernel, X: Any, evidence: Evidence, level: str
) -> Claim | None:
    """A vector v with vᵀKv < 0, given or found, if the kernel's form leaves room."""
    if positive_by_form(kernel):
        return None
    trace = float(np.abs(diagonal(kernel, X)).sum())
    witness = evidence.arrays.get("eigenvector")
    value = 0.0
    if witness is not None and np.shape(witness) == (X.shape[0],):
        v = np.asarray(witness, dtype=float)
        v = v / (np.linalg.norm(v) or 1.0)
        everything = np.arange(X.shape[0])
        value = float(v @ products(kernel, X, everything, v[:, None])[:, 0])
    if not value < -SHARE * trace:
        if X.shape[0] > LOOK[level]:
            return None
        value, asymmetry = smallest_eigenpair(kernel, X, SHARE * trace)
        if asymmetry > 1e-8 * max(trace, 1e-300):
            return Claim(
                "duality_gap",
                Strength.REFUSED,
                detail="the kernel matrix is not symmetric, so it is no kernel",
                fix="symmetrise it, or use a kernel of certus.terms",
            )
    if not value < -SHARE * trace:
        return None
    return Claim(
        "duality_gap",
        Strength.REFUSED,
        theorem="Mercer: k is a kernel only if every matrix of its values is positive "
        "semidefinite; along a vector with vᵀKv < 0 the penalty has no lower bound",
        detail="no minimiser exists: the kernel matrix is not positive semidefinite "
        f"(vᵀKv = {value:.2g} for a unit vector v)",
        fix="another kernel, or other parameters of it (see mercer_check)",
    )


# -- the perceptron ---------------------------------------------------------------


def _perceptron(
    kernel: t.Kernel,
    X: Any,
    machines: list[Machine],
    support: Array,
    evidence: Evidence,
) -> tuple[list[Claim], Status]:
    """Mistakes ≤ R²/γ² with the margin γ that the model itself shows (Novikov)."""
    scores = _scores(kernel, X, machines, support, [p.c * 0 for p in machines])
    lift = float(evidence.params.get("constant", 0.0))
    radius = float(diagonal(kernel, X).max(initial=0.0)) + lift
    worst, mistakes, open_rows = 0.0, 0, 0
    for p, score in zip(machines, scores):
        sign = np.bincount(p.rows, weights=p.y, minlength=X.shape[0])[support]
        made = float((p.c * sign).sum())
        honest = bool(np.all(p.c * sign >= 0) and np.all(p.c == np.round(p.c)))
        constant = lift * float(p.c.sum())
        margins = p.y * (score.z + constant)
        square = score.square + float(p.c.sum()) * constant
        mistakes += int(made)
        open_rows += int(np.count_nonzero(margins <= 0))
        least = float(margins.min())
        if not honest or (made > 0 and square <= 0):
            worst = np.inf
        elif least > 0:
            worst = max(worst, made * least**2 / (square * radius))
    objective = f"perceptron with {_kernel_text(kernel)}"
    if open_rows:
        claim = Claim(
            "mistake_bound",
            Strength.MEASURED,
            float(mistakes),
            objective=objective,
            detail=f"{mistakes:,} mistakes so far, and {open_rows:,} rows still on the "
            "wrong side: no margin, hence no bound",
            fix=str(evidence.params.get("fix", "")),
        )
        return [claim], Status.TOL_NOT_REACHED
    met = worst <= 1 + 1e-9
    share = f"{worst:.2g}" if np.isfinite(worst) else "beyond all"
    claim = Claim(
        "mistake_bound",
        Strength.PROVED,
        worst,
        1.0,
        met,
        objective,
        "Novikov: a perceptron makes at most R²/γ² mistakes on rows that some function "
        "of unit norm separates with margin γ, R² = max k(x, x)",
        detail=f"all rows separated after {mistakes:,} mistakes, {share} of the bound "
        "R²/γ² at the margin found",
        fix="" if met else "fit again: these are not counts of mistakes",
    )
    return [claim], Status.SOLVED if met else Status.TOL_NOT_REACHED
