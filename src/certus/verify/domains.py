"""What terms and targets must satisfy for the verifier's formulas to be true.

A negative penalty has no conjugate, a margin loss is written for labels ±1, a count is
not negative. Evidence is data that anyone may have written: what is outside these
domains is refused before anything is computed from it.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from certus import terms as t
from certus.verify.curvature import MARGIN
from certus.verify.data import Array
from certus.verify.formulas import split_penalty


def check_level(level: float, term: Any) -> None:
    """The level of a penalty: not negative, and a number."""
    if not level >= 0:
        raise ValueError(f"{term!r}: a penalty is a number that is not negative.")


def check_terms(loss: t.Loss, penalty: t.Penalty) -> None:
    """Raise unless the parameters of loss and penalty make a problem with a bound."""
    for level in split_penalty(penalty):
        check_level(level, penalty)
    match loss:
        case t.Huber(delta) | t.Tukey(delta):
            good = delta > 0
        case t.Quantile(q):
            good = 0 <= q <= 1
        case t.EpsilonInsensitive(width) | t.SquaredEpsilonInsensitive(width):
            good = width >= 0
        case t.Hinge(margin):
            good = margin >= 0
        case t.Binomial(trials):
            good = trials >= 1
        case _:
            good = True
    if not good:
        raise ValueError(f"{loss!r} is no loss: its parameter is out of range.")


def check_targets(loss: t.Loss, y: Array, s: Array) -> None:
    """Raise unless the loss is defined for the targets of all rows that count."""
    y = y[s > 0]
    if isinstance(loss, MARGIN):
        good, what = bool(np.all(np.abs(y) == 1)), "labels −1 and 1"
    elif isinstance(loss, t.Poisson | t.Exponential):
        good, what = bool(np.all(y >= 0)), "targets that are not negative"
    elif isinstance(loss, t.Binomial):
        inside = (y >= 0) & (y <= loss.trials)
        good, what = bool(np.all(inside)), f"counts from 0 to {loss.trials}"
    elif isinstance(loss, t.Softmax):
        good, what = False, "the codes of several classes"
    else:
        return
    if not good:
        raise ValueError(f"{type(loss).__name__} needs {what}; y holds others.")


def check_pair(classes: Array) -> None:
    """Raise unless there are two classes, for a model with one score."""
    if len(classes) > 2:
        raise ValueError(
            f"y has {len(classes)} different labels; a loss of one score needs two."
        )


def check_kernel_term(kernel: Any) -> None:
    """Raise unless the numbers of a kernel, and of its parts, are ones it can have."""
    if isinstance(kernel, t.Gaussian | t.Laplace) and not kernel.gamma >= 0:
        raise ValueError(f"{kernel!r}: gamma must not be negative.")
    for part in kernel:
        if isinstance(part, float) and not math.isfinite(part):
            raise ValueError(f"{kernel!r} holds a parameter that is not finite.")
        if isinstance(part, tuple):
            check_kernel_term(part)


def check_intercept(kind: str, b: Any) -> str:
    """What is wrong with the intercept b that enters as ``kind`` says, or nothing."""
    if kind not in ("none", "free", "penalised"):
        raise ValueError(f"intercept={kind!r}: use 'none', 'free' or 'penalised'.")
    if kind == "none" and np.any(b):
        return "there is an intercept where none was asked for"
    return ""


def check_intercept_scale(scale: float) -> float:
    """The constant beside which a penalised intercept stands."""
    if not (math.isfinite(scale) and scale > 0):
        raise ValueError(f"intercept_scaling={scale!r} must be positive and finite.")
    return scale
