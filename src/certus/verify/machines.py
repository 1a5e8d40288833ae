"""A fitted kernel machine as problems with one score each.

Rows, targets, weights and coefficients of every problem that a model consists of: one,
one for each class or target, or one for each pair of classes; which kernel its public
parameters name; and whether what it predicts with is what it shows.
"""

from __future__ import annotations

import functools
import math
import sys
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse

from certus import terms as t
from certus.verify.data import fitted
from certus.verify.kernel import losses
from certus.verify.kernel.gap import Problem
from certus.verify.kernel.reading import Array
from certus.verify.kernel.spaces import Linear
from certus.verify.problems import Rows, rows_of, targets_of
from certus.verify.stating import Refusal

#: Rows that differ by less than this share of the largest entry are the same.
SAME = 1e-9


class KernelStatement(NamedTuple):
    """Σ sℓ(y, f(x) + b) + ½·level·‖f‖², once or for several targets."""

    loss: Any
    levels: tuple[float, ...]  # one, or one for each target; 0: no penalty
    kernel: Any  # its name, function or term, as the constructor takes it
    gamma: Any
    degree: Any
    coef0: Any
    target: str = "numbers"  # | "signs" | "one_vs_rest" | "one_vs_one"
    free: bool = True
    class_weight: Any = None
    class_counts: str = "rows"
    class_weight_on: str = "rows"
    weighted_gamma: bool = False  # whether weights count as repetitions in "scale"
    perceptron: float | None = None  # the constant beside its kernel, if it is one
    options: dict[str, Any] | None = None  # for a function that takes two rows
    tol: float = 1e-6
    fix: str = ""


# -- the kernel -------------------------------------------------------------------


def kernel_of(stated: KernelStatement, X: Any, s: Array) -> Any:
    """The term that the parameters stand for; "scale" is computed anew."""
    name, gamma = stated.kernel, stated.gamma
    if isinstance(name, t.Kernel):
        return name
    if callable(name) and stated.options is None:
        return t.Given(name)
    if isinstance(gamma, str):
        gamma = _gamma(gamma, X, s if stated.weighted_gamma else np.ones(len(s)))
    elif gamma is None:
        gamma = 1.0 / X.shape[1]
    match name:
        case "linear":
            return t.Linear()
        case "poly" | "polynomial":
            degree = float(stated.degree)
            whole: Any = int(degree) if degree.is_integer() else degree
            return t.Polynomial(whole, float(stated.coef0), float(gamma))
        case "rbf":
            return t.Gaussian(float(gamma))
        case "laplacian":
            return t.Laplace(float(gamma), 1)
        case "sigmoid":
            return t.Sigmoid(float(gamma), float(stated.coef0))
        case "precomputed":
            return t.Precomputed()
    pairwise = sys.modules.get("sklearn.metrics.pairwise")
    if pairwise is None:
        raise Refusal(f"kernel={name!r} has no formula here")
    more: Any = {} if stated.gamma is None else {"gamma": stated.gamma}
    more = stated.options if callable(name) else {"filter_params": True, **more}
    return t.Given(functools.partial(pairwise.pairwise_kernels, metric=name, **more))


def _gamma(name: str, X: Any, s: Array) -> float:
    """1/(d·variance of all cells), or 1/d."""
    d, share = X.shape[1], s / s.sum()
    if name != "scale":
        return 1.0 / d
    A: Any = X.astype(np.float64)
    mean = float(share @ np.asarray(A.sum(axis=1)).ravel()) / d
    sparsely = sparse.issparse(A)
    squares = A.multiply(A) if sparsely else np.square(A - mean)
    variance = float(share @ np.asarray(squares.sum(axis=1)).ravel()) / d
    variance -= mean**2 if sparsely else 0.0
    return 1.0 / (d * variance) if variance > 0 else 1.0


def check_kernel(kernel: Any, X: Any) -> None:
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
            check_kernel(part, X)


def kernel_text(kernel: Any) -> str:
    """The kernel as it stands in a certificate."""
    parts = [f"{v:.4g}" for v in kernel if isinstance(v, int | float)]
    parts += [kernel_text(v) for v in kernel if isinstance(v, t.Kernel)]
    name = type(kernel).__name__
    return f"{name}({', '.join(parts)})" if parts else name


# -- the model --------------------------------------------------------------------


class Machine(NamedTuple):
    """One problem of a kernel machine: its rows among all, and coefficients on all."""

    problem: Problem
    rows: Array
    level: float  # λ·Σs
    c: Array
    b: float


class Read(NamedTuple):
    """Targets and weights, read anew, and the rows that carry the model."""

    rows: Rows
    support: Array


def read(model: Any, stated: Any, n: int, y: Any, sample_weight: Any) -> Read:
    """What the fit was given, and what it kept of it; X may be anything here."""
    rows = rows_of(model, stated, np.empty((n, 0)), y, sample_weight)
    support = np.asarray(getattr(model, "support_", np.arange(n)))
    whole = support.ndim == 1 and support.dtype.kind in "iu"
    if not whole or support.min(initial=0) < 0:
        raise ValueError("support_ does not name rows by their number. Fit again.")
    stored = getattr(model, "X_fit_", np.empty(n))
    known = np.append(getattr(model, "shape_fit_", np.shape(stored)), 0)[0]
    if support.max(initial=-1) >= n or known != n:
        raise ValueError(f"X has {n} rows and the model was fitted on {known}.")
    return Read(rows, support)


def machines_of(model: Any, stated: Any, found: Read) -> list[Machine]:
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
            raise ValueError(f"{level!r}: a penalty is a number that is not negative.")
        part = np.ones(len(y)) if stated.target == "numbers" else y
        rows, y = np.flatnonzero(part[kept]), y[kept]
        losses.check_targets(stated.loss, y[rows])
        space = Linear(np.zeros((len(rows), 0)), given.s[kept][rows], False)
        none = (np.zeros(0), np.zeros(1), stated.free)
        problem = Problem(stated.loss, t.L2(1.0), space, y[rows], *none)
        scaled = float(np.ldexp(level, -given.power))
        machines.append(Machine(problem, rows, scaled, c, float(each)))
    return machines


def _parts(model: Any, stated: Any, found: Read) -> list[tuple[Array, Array]]:
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


def stored_otherwise(model: Any, kernel: Any, X: Any, found: Read) -> str:
    """What the model predicts with that is not what is judged, or nothing.

    A machine predicts with rows of its own, and scikit-learn's with private copies of
    its coefficients: those must be the rows of X and the public coefficients.
    """
    rows = {} if X is None else {"support_vectors_": X[found.support], "X_fit_": X}
    for name, own in rows.items():
        stored = getattr(model, name, own)
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
            return f"the {name} it predicts with is not the one it shows"
    if hasattr(model, "classes_") and hasattr(model, "_n_support"):
        labels = found.rows.y[found.support].astype(int)
        counts = np.bincount(labels, minlength=len(model.classes_))
        # Of two classes there is one row of coefficients, in whichever order.
        mixed = len(counts) > 2 and np.any(np.diff(labels) < 0)
        if mixed or not np.array_equal(counts, model._n_support):
            return "the support vectors are not in the order of their classes"
    return ""


def _same_rows(stored: Any, X: Any) -> bool:
    """Whether both are equal up to the rounding of a transformation before them."""
    if getattr(stored, "shape", None) != X.shape or stored.dtype.kind not in "fiub":
        return False
    if 0 in X.shape:
        return True
    return bool(abs(stored - X).max() <= SAME * float(abs(X).max()))
