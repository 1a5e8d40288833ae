"""Trained networks: the gradient that training followed is that of the stated loss.

    L(θ) = Σ sᵢ ℓ(yᵢ, f(xᵢ; θ)) / Σ s   on at most 2,048 rows, in evaluation mode

Rows are fewer where the network is large, or makes much of each as of large images.
The model lends L, ∇L and products with ∇²L as functions of a float64 vector, by
``_stated(X, y, sample_weight, rows)``. Along a direction d, gᵀd must be the slope of L;
at level "full" Lanczos' method finds the ends of the spectrum of ∇²L. All of it is
measured: no bound says how far a network is from the best one.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from numbers import Integral, Real
from typing import Any

import numpy as np

from certus.certificate import Claim, Evidence, Status, Strength
from certus.verify import data, directional
from certus.verify.data import Array
from certus.verify.marks import marks_of
from certus.verify.spectrum import curvature_claims

#: Most rows on which a network is checked.
ROWS = 2048
#: Most numbers that a pass forward over them may make; the products with the Hessian
#: take some fifty bytes for each.
VALUES = 1 << 25
#: Rows on which is seen how many numbers that is.
FEW = 4
#: Share of dead units from which a remedy is named.
MANY_DEAD = 0.25

Checked = tuple[list[Claim], Status, dict[str, Any]]


def check_network(
    model: Any, evidence: Evidence, X: Any, y: Any, sample_weight: Any, level: str
) -> Checked:
    """Loss, gradient, one directional derivative; full: the ends of the spectrum.

    ``evidence.params``: epochs, best_epoch, diverged, kept (the epoch of the weights),
    criterion, patience, tol, planned, settled (by a rule of the solver's own),
    max_iter, parameters, fix;
    ``evidence.arrays``: columns of the history. All may be missing.
    """
    _require_sound(evidence)
    n = _count(X)
    if y is not None and _count(y, "y") != n:
        raise ValueError(
            f"X has {n} rows and y has {_count(y, 'y')}; pass one of each."
        )
    used = np.arange(n)
    if sample_weight is not None:
        used = np.flatnonzero(data.weights(sample_weight, None, used, None, n))
    few = model._stated(X, y, sample_weight, used[evenly(len(used), FEW)])
    # Evidence counts frozen ones too; there is none after a partial fit.
    size = max(int(evidence.params.get("parameters", 0)), few.point.size)
    most = rows_within(few, min(len(used), FEW))
    rows = used[evenly(len(used), min(most, rows_for(len(used), size)))]
    marks = marks_of(X, y, sample_weight, rows)
    stated = model._stated(X, y, sample_weight, rows)
    claims = [_loss_claim(stated, len(rows), evidence)]
    status = _status(model, evidence, claims[0].value)
    if claims[0].strength is Strength.REFUSED:
        return [*claims, *_history_claims(evidence)], status, marks
    if level == "full" and len(rows) < min(len(used), most):
        rows = used[evenly(len(used), most)]
        stated = model._stated(X, y, sample_weight, rows)
    directions = 5 if level == "full" else 1
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        claims += _gradient_claims(stated, len(rows), directions)
        claims += _history_claims(evidence) + _dead_claims(stated, len(rows))
        if level == "full" and stated.point.size:
            found = _try(curvature_claims, stated, len(rows))
            claims += [] if isinstance(found, Exception) else found
    return claims, status, marks


def rows_for(n: int, parameters: int) -> int:
    """On how many of n rows a network is checked, so that fits of an epoch are long.

    Parameters
    ----------
    n : int
        Rows there are.
    parameters : int
        Numbers that were trained.

    Examples
    --------
    >>> from certus.verify.networks import rows_for
    >>> rows_for(150, 100), rows_for(50_000, 5_700), rows_for(60_000, 203_000)
    (150, 781, 128)
    """
    size = max(1, parameters)
    return min(n, ROWS, max(128, 2_000_000 // size, min(n // 64, 25_000_000 // size)))


def rows_within(few: Any, n: int) -> int:
    """How many rows memory and time allow: few, if the network makes much of each.

    Parameters
    ----------
    few : Stated
        The loss on some rows. One that has no ``values()`` makes little of them.
    n : int
        How many they are.
    """
    values = _try(few.values) if hasattr(few, "values") else 0
    if isinstance(values, Exception):  # which will be told when the loss is
        return n
    return min(ROWS, max(2, VALUES * n // max(1, values)))


def evenly(n: int, count: int) -> Array:
    """``count`` evenly spaced numbers of n."""
    return np.unique(np.linspace(0, n - 1, min(n, count)).astype(np.int64))


def _count(X: Any, name: str = "X") -> int:
    """How many rows there are."""
    if isinstance(X, str | os.PathLike):
        raise ValueError(
            f"{name} is a path. Pass what it holds, as an array or a list."
        )
    shape: Any = getattr(X, "shape", ())
    if not len(shape):
        X = X if hasattr(X, "__len__") else np.asarray(X)
        shape = np.shape(X) if isinstance(X, np.ndarray) else (len(X),)
    if not shape:
        raise TypeError(f"{name} should be an array or a list with one entry per row.")
    return int(shape[0])


#: What a fit leaves: by the name of a parameter, its type and its least value.
_KINDS: dict[str, tuple[Any, float]] = {
    "epochs": (Integral, 0),
    "best_epoch": (Integral, 0),
    "kept": (Integral, 0),
    "parameters": (Integral, 0),
    "planned": ((Integral, type(None)), 1),
    "patience": (Real, 1),
    "max_iter": (Real, 1),
    "tol": (Real, 0),
    "criterion": (str, 0),
}


def _require_sound(evidence: Evidence) -> None:
    """Raise if the evidence, which may come from a file, is not what a fit leaves."""
    params, odd = evidence.params, ""
    for name, (kind, least) in _KINDS.items():
        value = params.get(name)
        if name in params and not (
            isinstance(value, kind)
            and (isinstance(value, str | None) or value >= least)
        ):
            odd = f"{name} is {value!r:.40}"
    diverged = params.get("diverged")
    if diverged is not None and not (
        isinstance(diverged, list | tuple)
        and len(diverged) == 3
        and all(isinstance(part, Real) for part in diverged)
    ):
        odd = f"diverged is {diverged!r:.40}"
    for name, column in evidence.arrays.items():
        if np.ndim(column) != 1 or np.asarray(column).dtype.kind not in "fiu":
            odd = f"{name} is no column of numbers"
    if odd:
        raise ValueError(
            f"The evidence of this network is not what a fit leaves: {odd}. Fit it "
            "again, or restore its file."
        )


def _try(function: Callable[..., Any], *args: Any) -> Any:
    """What the model's own code gives, or the error it raises: it may be anyone's."""
    try:
        return function(*args)
    except Exception as error:
        return error


# -- the loss, and how training ended ---------------------------------------------


def _loss_claim(stated: Any, n: int, evidence: Evidence) -> Claim:
    loss, params = _try(stated.loss, stated.point), evidence.params
    if isinstance(loss, Exception):
        reason = " ".join(str(loss).split())[:200]
        return Claim(
            "training_loss",
            Strength.REFUSED,
            detail=f"the module does not compute in float64 ({reason})",
            fix="make every tensor of its forward pass in the dtype of its input",
        )
    penalty = float(getattr(stated, "alpha", 0.0))  # part of the loss, if there is one
    more = str(getattr(stated, "words", "")) or " and ½·c·‖W‖²" * bool(penalty)
    detail = f"loss {loss:.4g} on {n:,} row{'s'[: n != 1]}"
    diverged = params.get("diverged")
    if diverged is not None:
        epoch, step, before = diverged
        was = f" ({before:.3g} before)" if math.isfinite(before) else ""
        last = int(params.get("kept", epoch - 1))
        kept = f"of epoch {last}" if last else "those it began with"
        detail = (
            f"the loss became NaN or infinite in epoch {epoch}, step {step}{was}; the "
            f"weights are {kept}, {detail}"
        )
    elif not math.isfinite(loss):
        detail += ", in evaluation mode and float64: no number can be said of it"
    elif _history(evidence).size:
        detail += f"; {_ending(evidence)}"
    return Claim(
        "training_loss",
        Strength.MEASURED,
        loss,
        objective=f"mean over rows of the loss{more}, in evaluation mode and float64",
        detail=detail,
        fix=str(params.get("fix", "")) or _remedy(evidence),
    )


def _remedy(evidence: Evidence) -> str:
    """What helps a run that was still improving when its epochs were over."""
    if _status(None, evidence, None) is not Status.MAX_ITER:
        return ""
    return f"raise max_iter (now {int(evidence.params['max_iter'])})"


def _history(evidence: Evidence) -> Array:
    """After each epoch, the number that training watched; lower is better."""
    name = str(evidence.params.get("criterion", "loss"))
    column = np.asarray(evidence.arrays.get(f"history_{name}", ()), dtype=float)
    return -column if name == "validation_score" else column


def _stale(evidence: Evidence) -> int:
    """Epochs at the end without an improvement of more than tol."""
    best, stale, tol = math.inf, 0, float(evidence.params.get("tol", 0.0))
    for value in _history(evidence):
        stale = 0 if value < best - tol else stale + 1
        best = min(best, value)
    return stale


def _is_over(evidence: Evidence) -> bool:
    planned = evidence.params.get("planned")
    return planned is not None and int(evidence.params.get("epochs", 0)) >= planned


def _ending(evidence: Evidence) -> str:
    params, column = evidence.params, _history(evidence)
    epochs = int(params.get("epochs", len(column)))
    watched = str(params.get("criterion", "loss"))
    what = "it" if watched == "loss" else f"the {watched.replace('_', ' ')}"
    tol, stale = float(params.get("tol", 0.0)), _stale(evidence)
    if _is_over(evidence):
        return f"all {epochs} epochs of the plan are made"
    if stale >= float(params.get("patience", math.inf)):
        return f"no better by {tol:g} in the last {stale} of {epochs} epochs"
    if params.get("settled"):
        return f"settled after {epochs} iteration{'s'[: epochs != 1]}"
    last = column[-min(len(column), 11) :]
    gain = float(last[0] - last[-1])
    if len(last) > 1 and gain > 0:
        return (
            f"the last {len(last) - 1} of {epochs} epochs improved {what} by {gain:.2g}"
        )
    return f"{epochs} epoch{'s'[: epochs != 1]} made"


def _status(model: Any, evidence: Evidence, loss: float | None) -> Status:
    diverged = evidence.params.get("diverged") is not None
    if diverged or not math.isfinite(0.0 if loss is None else loss):
        return Status.DIVERGED
    if _is_another(evidence, getattr(model, "history_", None)):
        return Status.REFUTED
    patience = float(evidence.params.get("patience", math.inf))
    settled = len(_history(evidence)) > 0 and _stale(evidence) >= patience
    settled = settled or bool(evidence.params.get("settled"))
    if settled or _is_over(evidence):
        return Status.SOLVED
    ended = int(evidence.params.get("epochs", 0))
    most = float(evidence.params.get("max_iter", math.inf))
    return Status.MAX_ITER if ended >= most else Status.TOL_NOT_REACHED


def _is_another(evidence: Evidence, history: Any) -> bool:
    """Whether the evidence tells of another training than the model does."""
    name = str(evidence.params.get("criterion", "loss"))
    told = evidence.arrays.get(f"history_{name}")
    if told is None or not isinstance(history, dict) or name not in history:
        return False
    mine = np.asarray(history[name], dtype=float)
    return not np.array_equal(np.asarray(told, dtype=float), mine, equal_nan=True)


def _history_claims(evidence: Evidence) -> list[Claim]:
    """What early stopping chose."""
    name = str(evidence.params.get("criterion", "loss"))
    column = np.asarray(evidence.arrays.get(f"history_{name}", ()), dtype=float)
    best = int(evidence.params.get("best_epoch", 0))
    if name == "loss" or not 1 <= best <= len(column):
        return []
    value = float(column[best - 1])
    return [
        Claim(
            name,
            Strength.MEASURED,
            value,
            detail=f"{name.replace('_', ' ')} {value:.4g} in epoch {best} of "
            f"{len(column)}, whose weights were kept",
            assumptions=("the epoch was chosen by these rows, so they flatter it",),
        )
    ]


# -- gradient, units, curvature ---------------------------------------------------


def _gradient_claims(stated: Any, n: int, directions: int) -> list[Claim]:
    theta = stated.point
    if not theta.size:
        return []
    parts = np.split(theta, np.cumsum(stated.sizes)[:-1])
    usual = _size(theta) or 1.0  # for parts that are all zero
    scale = np.concatenate([np.full(p.size, _size(p) or usual) for p in parts])
    found = _try(
        directional.compare, stated.loss, stated.gradient, theta, scale, directions
    )
    if isinstance(found, Exception):
        reason = " ".join(str(found).split())[:200]
        return [
            Claim(
                "gradient_norm",
                Strength.REFUSED,
                detail=f"the loss cannot be differentiated in float64 ({reason})",
            )
        ]
    claims = [
        Claim(
            "gradient_norm",
            Strength.MEASURED,
            found.norm,
            detail=f"norm {found.norm:.2g} at the trained weights, on {n:,} "
            f"row{'s'[: n != 1]}",
        )
    ]
    if not math.isfinite(found.ratio) or found.allowance > 1e-2:
        return claims
    off = abs(found.ratio - 1)
    wrong = off > max(1e-3, 10 * found.allowance)
    claims.append(
        Claim(
            "gradient_ratio",
            Strength.MEASURED,
            off,
            allowance=found.allowance,
            theorem="a gradient g satisfies gᵀd = dL(θ + td)/dt for every direction d",
            detail=f"along {'a direction' if directions == 1 else 'directions'} it is "
            f"{found.ratio:.6f} times the slope by finite differences"
            f"{', so it is not the gradient of this loss' if wrong else ''}",
            fix="look for detach, rounding and no_grad in module and loss"
            if wrong
            else "",
            assumptions=("slopes compared at the trained weights moved by 10 %",),
        )
    )
    return claims


def _size(part: Array) -> float:
    """The usual size of numbers."""
    return float(np.sqrt(np.mean(np.square(part)))) if part.size else 0.0


def _dead_claims(stated: Any, n: int) -> list[Claim]:
    found = _try(stated.dead_units)
    if isinstance(found, Exception) or not found[1]:
        return []
    dead, units = found
    many = dead >= MANY_DEAD * units
    return [
        Claim(
            "dead_units",
            Strength.MEASURED,
            float(dead),
            detail=f"{dead:,} of {units:,} ReLU units are zero on all {n:,} rows",
            fix="lower learning_rate, or use leaky_relu" if many else "",
        )
    ]
