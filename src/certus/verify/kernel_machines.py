"""Checker of kernel machines: SVC, SVR, kernel ridge and logistic, the perceptron.

The statement is read from public parameters ("scale" is computed again), the kernel's
values by the verifier's own formulas in one pass over all rows with the support
vectors; the claims are those of :mod:`certus.verify.kernel_claims`. A matrix that
is not a kernel is refused with a vector as witness. If adding a small multiple of I
makes it a kernel, the claim is about that sum; a matrix too large to be examined proves
nothing.
"""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse

from certus.certificate import Claim, Status, Strength
from certus.evidence import KernelWitness
from certus.objectives import terms as t
from certus.typing import Array, Column, Fit, Matrix
from certus.verify import deciding, gram
from certus.verify.data import fingerprint, fitted, size_of
from certus.verify.kernel import losses, reading
from certus.verify.kernel.gap import Problem
from certus.verify.kernel.spaces import Space
from certus.verify.kernel_claims import Case, Machine, Statement, judge
from certus.verify.problems import Rows, rows_of, targets_of
from certus.verify.stating import Checked, Given, Reader, is_ours, require, tol_of

#: Rows that differ by less than this share of the largest entry are the same.
SAME = 1e-9
#: Largest matrix of unknown sign that is examined at level "quick", "full", in rows.
LOOK = {"quick": 2_000, "full": 6_000}

# -- statements -------------------------------------------------------------------


def _stated(
    model: Any, loss: t.Loss, levels: tuple[float, ...], several: str = "", **more: Any
) -> Statement:
    """The common part of statements; ``several`` is the scheme for many classes."""
    if several:
        several = several if len(model.classes_) > 2 else "signs"
        more = {"class_weight": getattr(model, "class_weight", None), **more}
    return Statement(
        *(loss, levels, model.kernel, model.gamma),
        *(float(model.degree), float(model.coef0)),
        **{"target": several or "numbers", "tol": tol_of(model), **more},
    )


def _penalised(model: Fit, loss: t.Loss, several: str = "", **more: Any) -> Statement:
    """C·Σ s·loss + ½‖f‖²; for our models weights in "scale" count as repetitions."""
    C, fix = float(model.C), "use a smaller C, a smoother kernel, or scaled columns"
    if not is_ours(model):
        cls = type(model).__name__
        fix = f"tol={float(model.tol) / 1000:.0e}, or certus.svm.{cls}"
    levels = (0.0 if math.isinf(C) else 1.0 / C,)
    more = {"fix": fix, "weighted_gamma": is_ours(model), **more}
    return _stated(model, loss, levels, several, **more)


def _svc(model: Fit) -> Statement:
    """C·Σ s·max(0, 1 − yz) + ½‖f‖² for each pair of classes."""
    return _penalised(model, t.Hinge(1.0), "one_vs_one")


def _svr(model: Fit) -> Statement:
    """C·Σ s·max(0, |y − z| − epsilon) + ½‖f‖²."""
    return _penalised(model, t.EpsilonInsensitive(float(model.epsilon)))


def _one_class(model: Fit) -> Statement:
    """Σ s·max(0, −(f + b)) + nu·Σs·b + ½‖f‖²; ``offset_`` is −b."""
    nu = float(model.nu)
    require(0 < nu <= 1, f"nu={nu!r} is not a share of the rows")
    told = np.allclose(-fitted(model, "intercept_"), model.offset_, 0.0, 0.0)
    require(bool(told), "offset_ is not that of its scores")
    fix = "scale the columns, or use kernel='rbf', which always has a region"
    if not is_ours(model):
        fix = f"tol={float(model.tol) / 1000:.0e}, or certus.svm.OneClassSVM"
    ours = is_ours(model)
    stated = _stated(model, t.Hinge(0.0), (1.0,), fix=fix, nu=nu)
    return stated._replace(weighted_gamma=ours)


def _logistic(model: Fit) -> Statement:
    """C·Σ s·log(1 + exp(−yz)) + ½‖f‖² for each class against the rest."""
    return _penalised(
        *(model, t.Logistic(), "one_vs_rest"),
        free=bool(model.fit_intercept),
        class_counts="weights",
        fix=f"raise max_iter (now {model.max_iter}), or lower C",
    )


def _ridge(model: Fit) -> Statement:
    """½Σ s(y − z)² + ½·alpha·‖f‖²; one alpha for each target is allowed."""
    levels = tuple(float(a) for a in np.ravel(np.asarray(model.alpha, dtype=float)))
    other = "scale the columns" if is_ours(model) else "certus.kernel_ridge.KernelRidge"
    fix, options = f"raise alpha, or {other}", model.kernel_params or {}
    return _stated(model, t.Squared(), levels, free=False, options=options, fix=fix)


def _perceptron(model: Fit) -> Statement:
    """Counts of mistakes: nothing is minimised."""
    return _stated(
        *(model, t.Hinge(0.0), (0.0,), "one_vs_rest"),
        free=False,
        perceptron=1.0 if model.fit_intercept else 0.0,
        fix=f"raise max_iter (now {model.max_iter}), or use a richer kernel",
    )


READERS: dict[str, Reader] = {
    "SVC": _svc,
    "SVR": _svr,
    "OneClassSVM": _one_class,
    "KernelRidge": _ridge,
    "KernelLogisticRegression": _logistic,
    "KernelPerceptron": _perceptron,
}


# -- the check --------------------------------------------------------------------


@np.errstate(over="ignore", invalid="ignore", divide="ignore")
def check(model: Fit, stated: Statement, given: Given) -> Checked:
    """Judge ``dual_coef_`` and ``intercept_`` of a kernel machine."""
    witness, X, y, sample_weight, level, _ = given
    witness = witness if isinstance(witness, KernelWitness) else KernelWitness()
    n = X.shape[0] if hasattr(X, "shape") else len(X)
    y = y if stated.nu is None else np.ones(n)
    found = read(model, stated, n, y, sample_weight)
    own = callable(stated.kernel) and not isinstance(stated.kernel, t.Kernel)
    X = X if own else reading.as_matrix(X)
    s, rows = reading.weights(sample_weight, n).s, X
    kernel = gram.kernel_of(stated, X, s)
    if isinstance(kernel, t.OwnKernel):  # X becomes the matrix of its values
        X, kernel, rows = _given_matrix(kernel, X), t.Precomputed(), None
    gram.check_kernel(kernel, X)
    X = X.tocsr().astype(np.float64) if sparse.issparse(X) else X
    parts = machines_of(model, stated, found)
    marks = fingerprint(X, found.rows.y.astype(float), found.rows.given.s)
    claim, lack = _no_kernel(kernel, X, witness, level)
    if claim is not None:
        return [claim], Status.NO_MINIMISER, marks
    finite = np.isfinite([np.append(m.c, m.b) for m in parts]).all()
    kept = found.rows.given.s > 0
    if not finite:
        wrong = "the coefficients hold NaN or infinite values"
    elif any(m.c[~kept].any() for m in parts):
        wrong = "rows of weight 0 have coefficients"
    elif not stated.free and stated.perceptron is None and any(m.b for m in parts):
        wrong = "the model has an intercept, but its parameters ask for none"
    else:
        wrong = stored_otherwise(model, kernel, rows, found)
    if wrong:
        words = (deciding.GAP, stated.tol, wrong, "pass the X of the fit, or fit again")
        status = Status.TOL_NOT_REACHED if finite else Status.DIVERGED
        return [deciding.impossible(*words)], status, marks
    if not kept.all():  # the contents of other rows are never used
        X = X[kept][:, kept] if isinstance(kernel, t.Precomputed) else X[kept]
        parts = [m._replace(c=m.c[kept]) for m in parts]
    claims, status = judge(Case(kernel, X, parts, stated, lack or 0.0), witness, kept)
    if lack is None:
        claims, status = _unknown(claims, level), Status.UNDECIDED
    used = len(np.unique(found.support))
    detail = f"the model uses {used:,} of {n:,} rows"
    return [*claims, deciding.measured("support", float(used), detail)], status, marks


def _given_matrix(kernel: t.OwnKernel, X: Matrix) -> Array:
    """The whole matrix of a kernel that is a user's function."""
    K = kernel.function(X, X)
    K = np.asarray(K.toarray() if sparse.issparse(K) else K, dtype=float)
    if K.ndim != 2 or K.shape[0] != K.shape[1]:
        raise ValueError(f"the kernel must give a square matrix, got shape {K.shape}")
    return K


def _unknown(claims: list[Claim], level: str) -> list[Claim]:
    """If the matrix was not examined, numbers that need a kernel are only measured."""
    note = f"at level {level!r} only {LOOK[level]:,} rows of a matrix are checked"
    sure, measured = ("update_sum", "training_error"), Strength.MEASURED
    fix = "use a kernel that is positive semidefinite by its formula, or level='full'"
    assumed = ("the kernel matrix is positive semidefinite", note)
    return [
        c
        if c.name in sure
        else replace(c, strength=measured, met=None, assumptions=assumed, fix=fix)
        for c in claims
    ]


# -- what a model shows -----------------------------------------------------------


class Read(NamedTuple):
    """Targets and weights, read again, and the rows that carry the model."""

    rows: Rows
    support: Array


def read(model: Fit, stated: Any, n: int, y: Column, sample_weight: Column) -> Read:
    """The data of the fit and what the model kept of it; X may have any form here."""
    rows = rows_of(model, stated, np.empty((n, 0)), y, sample_weight)
    support = np.asarray(getattr(model, "support_", np.arange(n)))
    whole = support.ndim == 1 and support.dtype.kind in "iu"
    if not whole or support.min(initial=0) < 0:
        raise ValueError("support_ must hold the numbers of rows. Fit again.")
    stored = getattr(model, "X_fit_", np.empty(n))
    known = np.append(getattr(model, "shape_fit_", np.shape(stored)), 0)[0]
    if support.max(initial=-1) >= n or known != n:
        raise ValueError(f"X has {n} rows, but the model was fitted on {known}.")
    return Read(rows, support)


def machines_of(model: Fit, stated: Statement, found: Read) -> list[Machine]:
    """The problems of a model, whose rows are numbered among those of some weight."""
    given, kept = found.rows.given, found.rows.given.s > 0
    parts = _parts(model, stated, found)
    k, b = len(parts), np.zeros(1)
    if hasattr(model, "intercept_"):
        b = fitted(model, "intercept_").ravel().astype(float)
    for name, count in {"intercept_": b.size, "alpha": len(stated.levels)}.items():
        if count not in (1, k):
            raise ValueError(f"{name} has {count} values for {k} machines.")
    levels, machines = np.broadcast_to(stated.levels, k), []
    for (y, c), level, each in zip(parts, levels, np.broadcast_to(b, k)):
        if not level >= 0:
            raise ValueError(f"a penalty must be at least 0, got {level!r}.")
        part = np.ones(len(y)) if stated.target == "numbers" else y
        rows, y = np.flatnonzero(part[kept]), y[kept]
        losses.check_targets(stated.loss, y[rows])
        space = Space(np.zeros((len(rows), 0)), given.s[kept][rows], False)
        none = (np.zeros(0), np.zeros(1), stated.free)
        problem = Problem(stated.loss, t.L2(1.0), space, y[rows], *none)
        scaled = float(np.ldexp(level, -given.power))
        machines.append(Machine(problem, rows, scaled, c, float(each)))
    return machines


def _parts(model: Fit, stated: Any, found: Read) -> list[tuple[Array, Array]]:
    """Targets (0 for rows without a part) and coefficients of each problem."""
    own, support = found.rows.y, found.support
    coef, pairs = fitted(model, "dual_coef_"), stated.target == "one_vs_one"
    if stated.target == "numbers" and not hasattr(model, "support_"):
        coef = coef.T
    targets = [] if pairs else targets_of(stated, found.rows)
    count = len(model.classes_) - 1 if pairs else len(targets)
    if np.atleast_2d(coef).shape != (count, len(support)):
        raise ValueError(
            f"dual_coef_ has shape {np.shape(model.dual_coef_)}; {count} for each of "
            f"{len(support)} rows of the model are needed. Fit again."
        )
    every = [np.bincount(support, c, len(own)) for c in np.atleast_2d(coef)]
    coef = np.array(every, dtype=float)
    parts = list(zip(targets, coef))
    for i, j in combinations(range(count + 1 if pairs else 0), 2):
        one, other = 1.0 * (own == i), 1.0 * (own == j)
        # Row j − 1 holds class i's part of (i, j), row i class j's.
        parts.append((one - other, one * coef[j - 1] + other * coef[i]))
    return parts


def stored_otherwise(model: Fit, kernel: Any, X: Matrix | None, found: Read) -> str:
    """Name what the model predicts with, if it is not what is judged; else None.

    A machine predicts with rows of its own, and scikit-learn's with private copies of
    its coefficients: those must be the rows of X and the public coefficients.
    """
    rows = {} if X is None else {"support_vectors_": X[found.support], "X_fit_": X}
    for name, own in rows.items():
        stored: Any = getattr(model, name, own)
        kept = np.size(stored) or not isinstance(kernel, t.Precomputed)
        if kept and not _same_rows(stored, own):
            return f"{name} does not hold the rows of the X you passed"
    # scikit-learn turns the signs of two classes around for display.
    sign = -1.0 if len(getattr(model, "classes_", ())) == 2 else 1.0
    for name in ("gamma", "dual_coef_", "intercept_"):
        if not hasattr(model, "_" + name):
            continue
        used = fitted(model, "_" + name)
        if name == "gamma":
            shown, near = np.asarray(getattr(kernel, name, used)), 1e-8
        else:
            shown, near = sign * fitted(model, name), 0.0
        same = used.shape == shown.shape and np.allclose(used, shown, near, 0.0)
        if not same:
            return f"the {name} used for predictions differs from the public one"
    if hasattr(model, "classes_") and hasattr(model, "_n_support"):
        labels = found.rows.y[found.support].astype(int)
        counts = np.bincount(labels, minlength=len(model.classes_))
        # Of two classes there is one row of coefficients, in whichever order.
        mixed = len(counts) > 2 and np.any(np.diff(labels) < 0)
        if mixed or not np.array_equal(counts, model._n_support):
            return "the support vectors are not in the order of their classes"
    return ""


def _same_rows(stored: Any, X: Matrix) -> bool:
    """Whether both are equal up to the rounding of a transformation before them."""
    if getattr(stored, "shape", None) != X.shape or stored.dtype.kind not in "fiub":
        return False
    return size_of(stored - X) <= SAME * size_of(X)


# -- matrices that are not kernels ------------------------------------------------


def _no_kernel(
    kernel: t.Kernel, X: Matrix, witness: KernelWitness, level: str
) -> tuple[Claim | None, float | None]:
    """A refusal with vᵀKv < 0; or which multiple of I is needed, if that is known."""
    if gram.against(kernel, X, slice(1))(slice(1)).positive:
        return None, 0.0
    own = gram.diagonal(kernel, X)
    trace, value = float(np.abs(own).sum()), float(own.min(initial=0.0))
    v, lack = witness.eigenvector, None
    if v is not None and np.shape(v) == (X.shape[0],) and np.isfinite(v).all():
        v = np.asarray(v, dtype=float) / (float(np.linalg.norm(v)) or 1.0)
        value = min(value, float(v @ gram.sums(kernel, X, [v]).Z[:, 0]))
    if not value < -gram.SHARE * trace and X.shape[0] <= LOOK[level]:
        lack, value, asymmetry = gram.look_into(kernel, X, trace)
        if asymmetry > 1e-8 * max(trace, 1e-300):
            claim = deciding.refused(
                "duality_gap",
                "the kernel matrix is not symmetric, so this is not a kernel",
                "make it symmetric, or use a kernel of certus.objectives",
            )
            return claim, lack
    if not value < -gram.SHARE * trace and lack != math.inf:
        return None, lack
    claim = deciding.refused(
        "duality_gap",
        "there is no minimum: the kernel matrix is not positive semidefinite (vᵀKv = "
        f"{value:.2g} for a unit vector v)",
        "use another kernel, or other parameters (see mercer_check)",
        theorem="Mercer: k is a kernel only if every matrix of its values is positive "
        "semidefinite; along a vector with vᵀKv < 0 the penalty has no lower bound",
    )
    return claim, lack
