"""The room of kernel machines: SVC, SVR, kernel ridge and logistic, the perceptron.

The statement is read from public parameters ("scale" is computed anew), the kernel's
values by the verifier's own formulas in one pass over all rows with the support
vectors; the gap is the kernel's (:mod:`certus.verify.reproducing`). A matrix
that is no kernel is refused with a vector as witness; one of unknown sign that is too
large to be looked into proves nothing.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
from scipy import sparse

from certus import terms as t
from certus.certificate import Claim, Status, Strength
from certus.evidence import KernelWitness
from certus.verify import reproducing
from certus.verify.data import fingerprint
from certus.verify.deciding import (
    GAP,
    Number,
    claim_of,
    impossible,
    refused,
    status_of,
    worst_of,
)
from certus.verify.gram import (
    diagonal,
    given_matrix,
    positive_by_form,
    products,
    sizes,
    smallest_eigenpair,
)
from certus.verify.kernel import losses, reading
from certus.verify.kernel.reading import Array
from certus.verify.kernel.reference import least_constant
from certus.verify.kernel_margin import hard_margin, interpolation, perceptron
from certus.verify.machines import (
    KernelStatement as Statement,
)
from certus.verify.machines import (
    Machine,
    kernel_of,
    kernel_text,
    machines_of,
    read,
    rows_that_count,
    stored_otherwise,
)
from certus.verify.reproducing import Values
from certus.verify.stating import Checked, Given, Reader, is_ours, tol_of

#: Rows up to which a matrix of unknown sign is looked into at level "quick", "full".
LOOK = {"quick": 2_000, "full": 6_000}
#: A negative eigenvalue smaller than this share of the trace is rounding.
SHARE = 1e-10

# -- statements -------------------------------------------------------------------


def _support(model: Any, loss: Any, ours: str, **more: Any) -> Statement:
    C = float(model.C)
    fix = f"tol={float(model.tol) / 1000:.0e}, or certus.kernel.{ours}"
    if is_ours(model):
        fix = "a smaller C, a milder kernel, or scaled columns"
    return Statement(
        loss,
        (0.0 if math.isinf(C) else 1.0 / C,),
        model.kernel,
        model.gamma,
        model.degree,
        model.coef0,
        weighted_gamma=is_ours(model),
        tol=tol_of(model),
        fix=fix,
        **more,
    )


def _svc(model: Any) -> Statement:
    """C·Σ s·max(0, 1 − yz) + ½‖f‖² for each pair of classes."""
    target = "one_vs_one" if len(model.classes_) > 2 else "signs"
    more = {"target": target, "class_weight": model.class_weight}
    return _support(model, t.Hinge(1.0), "SVC", **more)


def _svr(model: Any) -> Statement:
    """C·Σ s·max(0, |y − z| − epsilon) + ½‖f‖²."""
    return _support(model, t.EpsilonInsensitive(float(model.epsilon)), "SVR")


def _logistic(model: Any) -> Statement:
    """C·Σ s·log(1 + exp(−yz)) + ½‖f‖² for each class against the rest."""
    target = "signs" if len(model.classes_) == 2 else "one_vs_rest"
    stated = _support(
        *(model, t.Logistic(), "KernelLogisticRegression"),
        target=target,
        free=bool(model.fit_intercept),
        class_weight=model.class_weight,
        class_counts="weights",
    )
    return stated._replace(fix=f"raise max_iter (now {model.max_iter}), or a smaller C")


def _ridge(model: Any) -> Statement:
    """½Σ s(y − z)² + ½·alpha·‖f‖²; one alpha for each target is allowed."""
    levels = tuple(float(a) for a in np.ravel(np.asarray(model.alpha, dtype=float)))
    fix = "a larger alpha, or scaled columns"
    fix = fix if is_ours(model) else "a larger alpha, or certus.kernel.KernelRidge"
    options = tuple(sorted((model.kernel_params or {}).items()))
    return Statement(
        t.Squared(),
        levels,
        model.kernel,
        model.gamma,
        model.degree,
        model.coef0,
        free=False,
        of_pairs=True,
        options=options,
        tol=tol_of(model),
        fix=fix,
    )


def _perceptron(model: Any) -> Statement:
    """Counts of mistakes: nothing is minimised."""
    target = "signs" if len(model.classes_) == 2 else "one_vs_rest"
    return Statement(
        t.Hinge(0.0),
        (0.0,),
        model.kernel,
        model.gamma,
        model.degree,
        model.coef0,
        target=target,
        free=False,
        perceptron=1.0 if model.fit_intercept else 0.0,
        fix=f"raise max_iter (now {model.max_iter}), or a richer kernel",
    )


READERS: dict[str, Reader] = {
    "SVC": _svc,
    "SVR": _svr,
    "KernelRidge": _ridge,
    "KernelLogisticRegression": _logistic,
    "KernelPerceptron": _perceptron,
}


# -- the check --------------------------------------------------------------------


def check(model: Any, stated: Statement, given: Given) -> Checked:
    """Judge ``dual_coef_`` and ``intercept_`` of a kernel machine."""
    witness, X, y, sample_weight, level, _ = given
    witness = witness if isinstance(witness, KernelWitness) else KernelWitness()
    n = X.shape[0] if hasattr(X, "shape") else len(X)
    found = read(model, stated, n, y, sample_weight)
    own = callable(stated.kernel) and not isinstance(stated.kernel, t.Kernel)
    X = X if own else reading.as_matrix(X)
    kernel = kernel_of(stated, X, reading.weights(sample_weight, n).s)
    looked_up = isinstance(kernel, t.Given)  # X becomes the matrix of its values
    if looked_up:
        X, kernel = given_matrix(kernel, X), t.Precomputed()
    _check_kernel(kernel, X)
    X = X.astype(np.float64) if sparse.issparse(X) else X
    machines = machines_of(model, stated, found)
    marks = fingerprint(X, found.labels.astype(float), found.given.s)
    claim = _no_kernel(kernel, X, witness, level)
    if claim is not None:
        return [claim], Status.NO_MINIMISER, marks
    wrong = _useless(model, stated, kernel, machines, X, found, looked_up)
    if wrong:
        fix = "pass the X of the fit, or fit again"
        finite = all(np.isfinite([m.b, *m.c]).all() for m in machines)
        status = Status.TOL_NOT_REACHED if finite else Status.DIVERGED
        return [impossible(GAP, stated.tol, wrong, fix)], status, marks
    if stated.perceptron is not None:
        claims, status = perceptron(kernel, X, machines, found.support, stated)
    else:
        claims, status = _judge(kernel, X, machines, found.support, stated, witness)
    if not positive_by_form(kernel) and n > LOOK[level]:
        claims[0], status = _unknown(claims[0], status, level)
    used = len(np.unique(found.support))
    detail = f"{used:,} of {n:,} rows carry the model"
    claims.append(Claim("support", Strength.MEASURED, float(used), detail=detail))
    return claims, status, marks


def _unknown(claim: Claim, status: Status, level: str) -> tuple[Claim, Status]:
    """Without a look at the matrix nothing is proved: the number is only measured."""
    if claim.strength is not Strength.PROVED:
        return claim, status
    note = f"a matrix of more than {LOOK[level]:,} rows is not looked into at {level!r}"
    claim = replace(
        claim,
        strength=Strength.MEASURED,
        met=None,
        assumptions=("the kernel matrix is positive semidefinite", note),
        fix="a kernel whose form shows it, or level='full'",
    )
    return claim, Status.UNDECIDED


def _check_kernel(kernel: Any, X: Any) -> None:
    """Raise unless the numbers of a kernel, and of its parts, are ones it can have."""
    if isinstance(kernel, t.Precomputed) and X.shape[0] != X.shape[1]:
        raise ValueError(
            f"X has shape {X.shape}; a precomputed kernel is a square matrix, one row "
            "and one column for each training row."
        )
    if isinstance(kernel, t.Gaussian | t.Laplace) and not kernel.gamma >= 0:
        raise ValueError(f"{kernel!r}: gamma must not be negative.")
    for part in kernel:
        if isinstance(part, float) and not math.isfinite(part):
            raise ValueError(f"{kernel!r} holds a parameter that is not finite.")
        if isinstance(part, tuple):
            _check_kernel(part, X)


def _useless(
    model: Any,
    stated: Statement,
    kernel: Any,
    machines: list[Machine],
    X: Any,
    found: Any,
    looked_up: bool,
) -> str:
    """What makes the coefficients no answer to the statement, or nothing."""
    if not all(np.isfinite(m.c).all() and math.isfinite(m.b) for m in machines):
        return "the coefficients hold NaN or infinite values"
    bare = not stated.free and stated.perceptron is None
    if bare and any(m.b != 0 for m in machines):
        return "there is an intercept where none was asked for"
    if looked_up:
        return ""
    used, gamma = getattr(model, "_gamma", None), getattr(kernel, "gamma", None)
    if used is not None and gamma is not None and not np.isclose(used, gamma, 1e-8, 0):
        return "the gamma it predicts with is not the one that its parameters name"
    return stored_otherwise(model, X, found.support, found.labels)


def _judge(
    kernel: Any,
    X: Any,
    machines: list[Machine],
    support: Array,
    stated: Statement,
    witness: KernelWitness,
) -> tuple[list[Claim], Status]:
    if not max(stated.levels) > 0:
        if isinstance(stated.loss, t.Hinge):
            return hard_margin(kernel, X, machines, support, stated, witness)
        return interpolation(kernel, X, machines, support, stated)
    level_of = [m.level for m in machines]
    duals = [
        reproducing.dual_of(m.problem, m.c[m.rows], level)
        for m, level in zip(machines, level_of)
    ]
    n, k = X.shape[0], len(machines)
    coef = np.zeros((n, 2 * k))
    for i, (m, (_, other)) in enumerate(zip(machines, duals)):
        coef[:, i] = m.c
        coef[m.rows, k + i] = other
    used = np.union1d(support, np.flatnonzero(coef.any(axis=1)))
    Z = products(kernel, X, used, coef[used])
    values = Values(len(used), *sizes(kernel, rows_that_count(kernel, X, machines)))
    found = []
    for i, (m, (repair, other)) in enumerate(zip(machines, duals)):
        apart = Z[m.rows, i] - Z[m.rows, k + i]
        # Rows of the model that the problem leaves out still carry it.
        extra = np.delete(np.arange(n), m.rows)
        if m.c[extra].any():
            found.append(Number(math.inf))
            continue
        computed, bound = reproducing.measure(
            *(m.problem, m.level, m.c[m.rows], other, repair),
            *(Z[m.rows, i] + m.b, apart, values),
        )
        base = least_constant(m.problem)
        found.append(Number.share(computed, bound, base))
    worst = worst_of(found)
    objective = _describe(machines[worst], kernel, stated)
    claim = claim_of(GAP, found[worst], stated.tol, objective, stated.fix, k)
    return [claim], status_of(claim)


def _describe(m: Machine, kernel: Any, stated: Statement) -> str:
    text = losses.row_of(stated.loss).text.format(**stated.loss._asdict())
    score = "z = f(x) + b" if stated.free else "z = f(x)"
    strength = m.level / m.problem.space.total
    return f"{text} + ½·{strength:.4g}·‖f‖²,  {score},  {kernel_text(kernel)}"


# -- matrices that are not kernels ------------------------------------------------


def _no_kernel(kernel: Any, X: Any, witness: KernelWitness, level: str) -> Claim | None:
    """A vector v with vᵀKv < 0, given or found, if the kernel's form leaves room."""
    if positive_by_form(kernel):
        return None
    own = diagonal(kernel, X)
    trace, value = float(np.abs(own).sum()), float(own.min(initial=0.0))
    v = witness.eigenvector
    if v is not None and np.shape(v) == (X.shape[0],) and np.isfinite(v).all():
        v = np.asarray(v, dtype=float) / (float(np.linalg.norm(v)) or 1.0)
        everything = np.arange(X.shape[0])
        seen = products(kernel, X, everything, v[:, None])[:, 0]
        value = min(value, float(v @ seen))
    if not value < -SHARE * trace and X.shape[0] <= LOOK[level]:
        value, asymmetry = smallest_eigenpair(kernel, X, SHARE * trace)
        if asymmetry > 1e-8 * max(trace, 1e-300):
            return refused(
                "duality_gap",
                "the kernel matrix is not symmetric, so it is no kernel",
                "symmetrise it, or use a kernel of certus.terms",
            )
    if not value < -SHARE * trace:
        return None
    return refused(
        "duality_gap",
        "no minimiser exists: the kernel matrix is not positive semidefinite "
        f"(vᵀKv = {value:.2g} for a unit vector v)",
        "another kernel, or other parameters of it (see mercer_check)",
        theorem="Mercer: k is a kernel only if every matrix of its values is positive "
        "semidefinite; along a vector with vᵀKv < 0 the penalty has no lower bound",
    )
