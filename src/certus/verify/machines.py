"""A fitted kernel machine as problems with one score each.

Rows, targets, weights and coefficients of every problem that a model consists of: one,
one for each class or target, or one for each pair of classes; which kernel its public
parameters name; and whether what it predicts with is what it shows.
"""

from __future__ import annotations

import functools
import sys
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse

from certus import terms as t
from certus.verify.kernel import losses, reading
from certus.verify.kernel.gap import Problem
from certus.verify.kernel.losses import one_hot
from certus.verify.kernel.reading import Array, Weights
from certus.verify.kernel.spaces import Linear
from certus.verify.stating import Refusal

#: Rows that differ by less than this share of the largest entry are the same.
SAME = 1e-9


class KernelStatement(NamedTuple):
    """Σ sℓ(y, f(x) + b) + ½·level·‖f‖², once or for several targets."""

    loss: Any
    levels: tuple[float, ...]  # one, or one for each target; 0: no penalty
    kernel: Any  # its name, function or term, as the constructor takes it
    gamma: Any = "scale"
    degree: Any = 3
    coef0: float = 0.0
    target: str = "numbers"  # | "signs" | "one_vs_rest" | "one_vs_one"
    free: bool = True
    class_weight: Any = None
    class_counts: str = "rows"
    weighted_gamma: bool = False  # whether weights count as repetitions in "scale"
    perceptron: float | None = None  # the constant beside its kernel, if it is one
    of_pairs: bool = False  # whether a function takes two rows, not two sets of them
    options: tuple[tuple[str, Any], ...] = ()  # for such a function
    tol: float = 1e-6
    fix: str = ""


class Machine(NamedTuple):
    """One problem of a kernel machine: its rows among all, and coefficients on them."""

    problem: Problem
    rows: Array
    level: float  # λ·Σs
    c: Array
    b: float


def kernel_of(stated: KernelStatement, X: Any, s: Array) -> Any:
    """The term that the parameters stand for; "scale" is computed anew."""
    name = stated.kernel
    if isinstance(name, t.Kernel):
        return name
    if callable(name) and not stated.of_pairs:
        return t.Given(name)
    gamma = stated.gamma
    if isinstance(gamma, str) and name in ("poly", "rbf", "sigmoid", "laplacian"):
        gamma = _gamma(gamma, X, s if stated.weighted_gamma else None)
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
    more = {} if stated.gamma is None else {"gamma": stated.gamma}
    more = dict(stated.options) if callable(name) else {"filter_params": True, **more}
    return t.Given(functools.partial(pairwise.pairwise_kernels, metric=name, **more))


def _gamma(name: str, X: Any, s: Array | None) -> float:
    """1/(d·variance of all cells), or 1/d."""
    d = X.shape[1]
    if name != "scale":
        return 1.0 / d
    share = np.full(X.shape[0], 1 / X.shape[0]) if s is None else s / s.sum()
    A: Any = X.astype(np.float64) if sparse.issparse(X) else np.asarray(X, float)
    mean = float(share @ np.asarray(A.sum(axis=1)).ravel()) / d
    if sparse.issparse(A):
        square = np.asarray(A.multiply(A).sum(axis=1)).ravel()
        variance = float(share @ square) / d - mean**2
    else:
        variance = float(share @ np.square(A - mean).sum(axis=1)) / d
    return 1.0 / (d * variance) if variance > 0 else 1.0


class Read(NamedTuple):
    """Weights, targets and support rows of a model on its training rows."""

    given: Weights
    labels: Array
    support: Array


def read(
    model: Any, stated: KernelStatement, n: int, y: Any, sample_weight: Any
) -> Read:
    """What the fit was given, read anew, and which rows carry the model."""
    given = reading.weights(sample_weight, n)
    if stated.target == "numbers":
        labels = reading.numbers(y, n)
    else:
        classes = np.asarray(model.classes_)
        if stated.target == "signs" and len(classes) > 2:
            raise ValueError(
                f"y has {len(classes)} different labels; a loss of one score needs two."
            )
        labels = reading.codes(y, classes, n)
        if stated.class_weight is not None:
            each = reading.class_weights(
                *(stated.class_weight, given, labels, classes, stated.class_counts)
            )
            given = reading.times_classes(given, each, labels)
    support = np.asarray(getattr(model, "support_", np.arange(n)))
    if support.dtype.kind not in "iu" or support.min(initial=0) < 0:
        raise ValueError("support_ does not name rows by their number. Fit again.")
    known = getattr(model, "shape_fit_", None) or np.shape(
        getattr(model, "X_fit_", np.empty(n))
    )
    if support.max(initial=-1) >= n or known[0] != n:
        raise ValueError(f"X has {n} rows and the model was fitted on {known[0]}.")
    return Read(given, labels, support)


def machines_of(model: Any, stated: KernelStatement, found: Read) -> list[Machine]:
    """The problems of a model, each on the rows of positive weight that it uses."""
    coef = reading.plain(model.dual_coef_).astype(float)
    support, labels, s = found.support, found.labels, found.given.s
    if stated.target == "numbers" and coef.ndim == 2 and not hasattr(model, "support_"):
        coef = coef.T
    b = np.ravel(np.asarray(getattr(model, "intercept_", 0.0), dtype=float))
    coef = coef.reshape(-1, len(support)) if len(support) else np.zeros((len(b), 0))
    losses.row_of(stated.loss)
    machines = []
    for k, (rows, y, c) in enumerate(
        _parts(stated.target, model, labels, coef, support)
    ):
        if len(stated.levels) > 1 and k >= len(stated.levels):
            raise ValueError(f"{len(stated.levels)} penalties for more targets.")
        level = stated.levels[k if len(stated.levels) > 1 else 0]
        if not level >= 0:
            raise ValueError(f"{level!r}: a penalty is a number that is not negative.")
        used = s[rows] > 0
        rows, y = rows[used], y[used]
        losses.check_targets(stated.loss, y)
        everywhere = np.bincount(support, weights=c, minlength=len(labels))
        space = Linear(np.zeros((len(rows), 0)), s[rows], False)
        problem = Problem(
            *(stated.loss, t.L2(1.0), space, y, np.zeros(0), np.zeros(1), stated.free)
        )
        if not b.size or k >= b.size > 1:
            raise ValueError(f"intercept_ has {b.size} values for more machines.")
        b_k = float(b[k if len(b) > 1 else 0])
        scaled = float(np.ldexp(level, -found.given.power))
        machines.append(Machine(problem, rows, scaled, everywhere, b_k))
    return machines


def rows_that_count(kernel: Any, X: Any, machines: list[Machine]) -> Any:
    """The rows of some weight: what others hold has no part in any rounding."""
    rows = np.unique(np.concatenate([m.rows for m in machines]))
    if len(rows) == X.shape[0]:
        return X
    return X[rows][:, rows] if isinstance(kernel, t.Precomputed) else X[rows]


def _parts(
    target: str, model: Any, labels: Array, coef: Array, support: Array
) -> list[tuple[Array, Array, Array]]:
    """Rows, targets and coefficients (on the support) of each problem."""
    everything = np.arange(len(labels))
    if target == "numbers":
        targets = labels.reshape(len(labels), -1)
        if targets.shape[1] != len(coef):
            raise ValueError(
                f"y has {targets.shape[1]} columns and the model predicts {len(coef)}."
            )
        return [(everything, targets[:, k], coef[k]) for k in range(len(coef))]
    if target == "signs":
        return [(everything, np.where(labels == 1, 1.0, -1.0), coef[0])]
    k = len(model.classes_)
    if target == "one_vs_rest":
        signs = 2 * one_hot(labels, k) - 1
        return [(everything, signs[:, i], coef[i]) for i in range(k)]
    # One against one: row j − 1 holds class i's part of (i, j), row i class j's.
    own, parts = labels[support], []
    for i in range(k):
        for j in range(i + 1, k):
            rows = np.flatnonzero((labels == i) | (labels == j))
            c = np.where(own == i, coef[j - 1], np.where(own == j, coef[i], 0.0))
            parts.append((rows, np.where(labels[rows] == i, 1.0, -1.0), c))
    return parts


def kernel_text(kernel: t.Kernel) -> str:
    """The kernel as it stands in a certificate."""
    return f"k = {_spelt(kernel)}"


def _spelt(kernel: t.Kernel) -> str:
    match kernel:
        case t.Sum(left, right):
            return f"{_spelt(left)} + {_spelt(right)}"
        case t.Product(left, right):
            return " · ".join(
                f"({_spelt(k)})" if isinstance(k, t.Sum) else _spelt(k)
                for k in (left, right)
            )
    name = type(kernel).__name__
    numbers = [f"{v:.4g}" for v in kernel if isinstance(v, int | float)]
    return f"{name}({', '.join(numbers)})" if numbers else name


def stored_otherwise(model: Any, X: Any, support: Array, labels: Array) -> str:
    """What the model predicts with that is not what is judged, or nothing.

    A machine predicts with rows of its own, and scikit-learn's with private copies of
    its coefficients: those must be the rows of X and the public coefficients.
    """
    rows = getattr(model, "support_vectors_", None)
    if rows is not None and np.size(rows) and not _same_rows(rows, X[support]):
        return "support_vectors_ are not the rows of X that support_ names"
    rows = getattr(model, "X_fit_", None)
    if rows is not None and not _same_rows(rows, X):
        return "X_fit_ is not the X you passed"
    # scikit-learn turns the signs of two classes around for display.
    sign = -1.0 if len(getattr(model, "classes_", ())) == 2 else 1.0
    for name in ("dual_coef_", "intercept_"):
        hidden = getattr(model, "_" + name, None)
        if hidden is None or not hasattr(model, name):
            continue
        used, shown = reading.plain(hidden), reading.plain(getattr(model, name))
        if not np.array_equal(sign * used, shown):
            return f"the {name} it predicts with is not the one it shows"
    if hasattr(model, "classes_") and hasattr(model, "_n_support"):
        own = labels[support].astype(int)
        counts = np.bincount(own, minlength=len(model.classes_))
        # Of two classes there is one row of coefficients, in whichever order.
        mixed = len(counts) > 2 and np.any(np.diff(own) < 0)
        if mixed or not np.array_equal(counts, model._n_support):
            return "the support vectors are not in the order of their classes"
    return ""


def _same_rows(stored: Any, X: Any) -> bool:
    """Whether both are equal up to the rounding of a transformation before them."""
    if stored.shape != X.shape:
        return False
    if 0 in X.shape:
        return True
    top = float(abs(X).max())
    return bool(abs(stored - X).max() <= SAME * top)
