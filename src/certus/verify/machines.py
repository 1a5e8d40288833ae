"""A fitted kernel machine as problems with one score each.

Rows, targets, weights and coefficients of every problem that a model consists of: one,
one for each class or target, or one for each pair of classes; and their kernel sums,
all in one pass over the kernel values of all rows with the support vectors.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from certus import terms as t
from certus.certificate import Evidence
from certus.verify import data
from certus.verify.data import Array
from certus.verify.domains import check_level, check_pair, check_targets, check_terms
from certus.verify.formulas import one_hot
from certus.verify.gram import products

#: Rows that differ by less than this share of the largest entry are the same.
SAME = 1e-9


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


def machines_of(
    model: Any, evidence: Evidence, X: Any, y: Any, sample_weight: Any
) -> tuple[list[Machine], Array, Array, Array]:
    """The model as problems with one score each; weights, labels, support rows."""
    n, params = X.shape[0], evidence.params
    loss, penalty, _ = evidence.terms
    check_terms(loss, penalty)
    target = params.get("target", "numbers")
    classes = None if target == "numbers" else np.asarray(model.classes_)
    if classes is not None and target == "signs":
        check_pair(classes)
    labels = data.numbers(y, n) if classes is None else data.codes(y, classes)
    if len(labels) != n:
        raise ValueError(f"y has {len(labels)} rows and X has {n}.")
    counts = params.get("class_counts", "weights")
    s = data.weights(
        sample_weight, params.get("class_weight"), labels, classes, n, counts
    )
    coef = data.plain(model.dual_coef_).astype(float)
    support = np.asarray(getattr(model, "support_", np.arange(n)))
    if support.dtype.kind not in "iu" or support.min(initial=0) < 0:
        raise ValueError("support_ does not name rows by their number. Fit again.")
    if target == "numbers":
        coef = coef.T if coef.ndim == 2 and not hasattr(model, "support_") else coef
    b = np.ravel(np.asarray(getattr(model, "intercept_", 0.0), dtype=float))
    known = getattr(model, "shape_fit_", None) or np.shape(getattr(model, "X_fit_", X))
    if support.max(initial=-1) >= n or known[0] != n:
        raise ValueError(f"X has {n} rows and the model was fitted on {known[0]}.")
    coef = coef.reshape(-1, len(support)) if len(support) else np.zeros((len(b), 0))
    free = params.get("intercept", "free") == "free"
    parts = _parts(target, labels, classes, coef, support)
    alphas = params.get("alphas")
    machines = []
    for k, (rows, y_k, c) in enumerate(parts):
        level = float(alphas[k]) if alphas is not None else _level(penalty)
        check_level(level, t.L2(level))
        check_targets(loss, y_k, s[rows])
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


def scores_of(
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
        used, shown = data.plain(hidden), data.plain(getattr(model, name))
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
