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
from certus.verify.formulas import one_hot
from certus.verify.gram import products


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
    name = type(kernel).__name__
    numbers = [f"{v:.4g}" for v in kernel if isinstance(v, int | float)]
    return f"k = {name}({', '.join(numbers)})" if numbers else f"k = {name}"
