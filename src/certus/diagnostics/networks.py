"""Trained networks: numbers about the loss that they were trained on.

    L(θ) = Σ sᵢ ℓ(yᵢ, f(xᵢ; θ)) / Σ s   on at most 2,048 rows, in evaluation mode

Rows are fewer where the network is large, or makes much of each as of large images.
The caller lends L, ∇L and products with ∇²L as functions of a float64 vector. Along a
direction d, gᵀd is compared with the slope of L; at level "full" Lanczos' method finds
the ends of the spectrum of ∇²L. All of it is measured: no bound says how far a network
is from the best one.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from numbers import Integral, Real
from typing import Any, NamedTuple, Protocol

import numpy as np

from certus.certificate import Claim, Strength
from certus.diagnostics import directional
from certus.diagnostics.spectrum import curvature_claims
from certus.typing import Array, ArrayLike, MatrixLike

#: Most rows on which a network is checked.
ROWS = 2048
#: Of many rows, every k-th may be checked, so that this many remain.
SPACED = 4096
#: Most numbers that a pass forward over them may make; the products with the Hessian
#: take some fifty bytes for each.
VALUES = 1 << 25
#: Rows on which is seen how many numbers that is.
FEW = 4
#: Share of dead units from which a remedy is named.
MANY_DEAD = 0.25


class StatedLoss(Protocol):
    """A loss on some rows as a function of a float64 vector.

    It may have ``values()``, the numbers that a pass forward makes, ``alpha``, the
    weight of a penalty on θ, and ``words`` for what else is minimised.
    """

    point: Array  # θ, the trained weights
    sizes: list[int]  # how many numbers each part of θ has

    def loss(self, theta: Array) -> float:
        """L(θ)."""

    def gradient(self, theta: Array) -> Array:
        """∇L(θ)."""

    def product(self, theta: Array, v: Array) -> Array:
        """∇²L(θ)v."""

    def dead_units(self) -> tuple[int, int]:
        """Units that are zero on all rows, and how many units there are."""


class TrainingRecord(NamedTuple):
    """How training went, as far as it is known.

    ``history`` is the number that was watched after each epoch, called ``criterion``;
    ``best_epoch`` is where it was best, ``kept`` the epoch of the weights. ``diverged``
    holds epoch, step and the loss before, where it became infinite. ``planned`` epochs
    are those of a schedule; ``patience`` and ``tol`` are the rule of a plateau;
    ``settled`` says that a solver's own rule ended the run, ``most`` where it had to
    end. ``parameters`` counts all numbers of the network.
    """

    history: Any = ()
    criterion: str = "loss"
    epochs: int = 0
    best_epoch: int = 0
    kept: int | None = None
    diverged: Any = None
    planned: int | None = None
    patience: float = math.inf
    tol: float = 0.0
    settled: bool = False
    most: float = math.inf
    parameters: int = 0
    fix: str = ""


def measure(
    at: Callable[[Array], StatedLoss],
    n: int,
    sample_weight: Any = None,
    record: TrainingRecord | None = None,
    level: str = "quick",
) -> list[Claim]:
    """Loss, gradient, one directional derivative; full: the ends of the spectrum.

    Parameters
    ----------
    at : callable
        ``at(rows)`` gives the loss on the rows of these numbers.
    n : int
        How many rows there are.
    sample_weight : array-like of shape (n,), optional
        Row weights. Rows of weight 0 are absent.
    record : Record, optional
        How training went.
    level : {"quick", "full"}
        At ``"full"`` more rows and directions, and the curvature.

    Returns
    -------
    list of Claim
        All MEASURED; the loss comes first.

    Examples
    --------
    >>> import numpy as np
    >>> from certus.diagnostics import measure
    >>> class Bowl:  # L(θ) = ‖θ‖², whatever the rows are
    ...     point, sizes = np.array([3.0, 4.0]), [2]
    ...     def loss(self, theta):
    ...         return float(theta @ theta)
    ...     def gradient(self, theta):
    ...         return 2 * theta
    ...     def product(self, theta, v):
    ...         return 2 * v
    ...     def dead_units(self):
    ...         return 0, 0
    >>> claims = measure(lambda rows: Bowl(), 100, level="full")
    >>> [(claim.name, round(claim.value, 6)) for claim in claims][:2]
    [('training_loss', 25.0), ('gradient_norm', 10.0)]
    >>> round(claims[-1].value, 6)  # the largest curvature
    2.0
    """
    record = TrainingRecord() if record is None else record
    _require_sound(record)
    if sample_weight is not None:
        sample_weight = np.asarray(sample_weight)
    used = _checkable(n, sample_weight)
    present = n if sample_weight is None else int(np.count_nonzero(sample_weight))
    few = at(used[evenly(len(used), FEW)])
    size = max(record.parameters, few.point.size)  # frozen ones count, too
    most = rows_within(few, min(len(used), FEW))
    rows = used[evenly(len(used), min(most, rows_for(present, size)))]
    stated = at(rows)
    claims = [_loss_claim(stated, len(rows), record)]
    if claims[0].value is None:
        return [*claims, *_history_claims(record)]
    if level == "full" and len(rows) < min(len(used), most):
        rows = used[evenly(len(used), most)]
        stated = at(rows)
    directions = 5 if level == "full" else 1
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        claims += _gradient_claims(stated, len(rows), directions)
        claims += _history_claims(record) + _dead_claims(stated, len(rows))
        if level == "full" and stated.point.size:
            found = _try(curvature_claims, stated, len(rows))
            claims += [] if isinstance(found, Exception) else found
    return claims


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
    >>> from certus.diagnostics.networks import rows_for
    >>> rows_for(150, 100), rows_for(50_000, 5_700), rows_for(60_000, 203_000)
    (150, 781, 128)
    """
    size = max(1, parameters)
    return min(n, ROWS, max(128, 2_000_000 // size, min(n // 64, 25_000_000 // size)))


def rows_within(few: Any, n: int) -> int:
    """How many rows memory and time allow: few, if the network makes much of each.

    Parameters
    ----------
    few : StatedLoss
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


def spaced(n: int) -> Array:
    """The rows of n that may be checked, which are also those of a fingerprint."""
    return np.arange(0, n, max(n // SPACED, 1))


def _checkable(n: int, sample_weight: ArrayLike | None) -> Array:
    """Numbers of rows that count, evenly spaced if there are many."""
    if sample_weight is None:
        return spaced(n)
    counts = np.ravel(np.asarray(sample_weight)) != 0
    some = spaced(n)
    some = some[counts[some]] if len(counts) == n else some
    return some if len(some) else np.flatnonzero(counts)


def count_rows(X: MatrixLike, y: ArrayLike | None = None) -> int:
    """How many rows X has; an error if y has another number.

    Parameters
    ----------
    X, y : array, sparse matrix, frame, or list of sequences or texts
        One entry for each row.
    """
    n = _count(X, "X")
    if y is not None and _count(y, "y") != n:
        raise ValueError(
            f"X has {n} rows and y has {_count(y, 'y')}; pass one target for each row."
        )
    return n


def _count(X: Any, name: str) -> int:
    if isinstance(X, str | os.PathLike):
        raise ValueError(
            f"{name} is a path. Pass what it holds, as an array or a list."
        )
    shape: Any = getattr(X, "shape", ())
    if not len(shape):
        X = X if hasattr(X, "__len__") else np.asarray(X)
        shape = np.shape(X) if isinstance(X, np.ndarray) else (len(X),)
    if not shape:
        raise TypeError(f"{name} must be an array or a list with one entry per row.")
    return int(shape[0])


def _require_sound(record: TrainingRecord) -> None:
    """Raise if the record, which may come from a file, is not what a fit leaves."""
    odd = ""
    for name in ("epochs", "best_epoch", "kept"):
        value = getattr(record, name)
        whole = isinstance(value, Integral) and int(value) >= 0
        if not whole and not (name == "kept" and value is None):
            odd = f"{name} is {value!r:.40}"
    diverged = record.diverged
    if diverged is not None and not (
        isinstance(diverged, list | tuple)
        and len(diverged) == 3
        and all(isinstance(part, Real) for part in diverged)
    ):
        odd = f"diverged is {diverged!r:.40}"
    column = np.asarray(record.history)
    if column.ndim != 1 or column.dtype.kind not in "fiu":
        odd = "history_ does not hold columns of numbers"
    if odd:
        raise ValueError(
            f"The training record of this network was changed after the fit: {odd}. "
            "Fit it again, or restore its file."
        )


def _try(function: Callable[..., Any], *args: Any) -> Any:
    """What the model's own code gives, or the error it raises: it may be anyone's."""
    try:
        return function(*args)
    except Exception as error:
        return error


# -- the loss, and how training ended ---------------------------------------------


def _loss_claim(stated: Any, n: int, record: TrainingRecord) -> Claim:
    loss = _try(stated.loss, stated.point)
    if isinstance(loss, Exception):
        reason = " ".join(str(loss).split())[:200]
        return Claim(
            "training_loss",
            Strength.MEASURED,
            detail=f"not measured: the module does not compute in float64 ({reason})",
            fix="make every tensor of its forward pass in the dtype of its input",
        )
    penalty = float(getattr(stated, "alpha", 0.0))  # part of the loss, if there is one
    more = str(getattr(stated, "words", "")) or " and ½·c·‖W‖²" * bool(penalty)
    detail = f"loss {loss:.4g} on {n:,} row{'s'[: n != 1]}"
    if record.diverged is not None:
        epoch, step, before = record.diverged
        was = f" ({before:.3g} before)" if math.isfinite(before) else ""
        last = epoch - 1 if record.kept is None else record.kept
        kept = f"of epoch {last}" if last else "those before training"
        detail = (
            f"the loss became NaN or infinite in epoch {epoch}, step {step}{was}; the "
            f"weights are {kept}, {detail}"
        )
    elif not math.isfinite(loss):
        detail += ", in evaluation mode and float64: this network does not allow it"
    elif len(record.history):
        detail += f"; {_ending(record)}"
    return Claim(
        "training_loss",
        Strength.MEASURED,
        loss,
        objective=f"mean over rows of the loss{more}, in evaluation mode and float64",
        detail=detail,
        fix=record.fix or _remedy(record),
    )


def _remedy(record: TrainingRecord) -> str:
    """What helps a run that was still improving when its epochs were over."""
    if is_settled(record) or record.epochs < record.most:
        return ""
    return f"raise max_iter (now {int(record.most)})"


def is_settled(record: TrainingRecord) -> bool:
    """Whether training ended by itself: on a plateau, or with its plan.

    Parameters
    ----------
    record : TrainingRecord
        How it went.
    """
    plateau = len(record.history) > 0 and _stale(record) >= record.patience
    return record.diverged is None and (plateau or record.settled or _is_over(record))


def _watched(record: TrainingRecord) -> Array:
    """After each epoch, the number that training watched; lower is better."""
    column = np.asarray(record.history, dtype=float)
    return -column if record.criterion == "validation_score" else column


def _stale(record: TrainingRecord) -> int:
    """Epochs at the end without an improvement of more than tol."""
    best, stale = math.inf, 0
    for value in _watched(record):
        stale = 0 if value < best - record.tol else stale + 1
        best = min(best, value)
    return stale


def _is_over(record: TrainingRecord) -> bool:
    return record.planned is not None and record.epochs >= record.planned


def _ending(record: TrainingRecord) -> str:
    column, epochs = _watched(record), record.epochs
    watched = record.criterion.replace("_", " ")
    what = "it" if watched == "loss" else f"the {watched}"
    stale = _stale(record)
    if _is_over(record):
        return f"all {epochs} planned epochs were made"
    if stale >= record.patience:
        return (
            f"no improvement of {record.tol:g} in the last {stale} of {epochs} epochs"
        )
    if record.settled:
        return f"converged after {epochs} iteration{'s'[: epochs != 1]}"
    last = column[-min(len(column), 11) :]
    gain = float(last[0] - last[-1])
    if len(last) > 1 and gain > 0:
        return (
            f"the last {len(last) - 1} of {epochs} epochs improved {what} by {gain:.2g}"
        )
    return f"{epochs} epoch{'s'[: epochs != 1]} made"


def _history_claims(record: TrainingRecord) -> list[Claim]:
    """What early stopping chose."""
    name, column = record.criterion, np.asarray(record.history, dtype=float)
    best = record.best_epoch
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
            assumptions=(
                "the epoch was chosen on these rows, so the number is optimistic",
            ),
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
                Strength.MEASURED,
                detail="not measured: the loss cannot be differentiated in float64 "
                f"({reason})",
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
            fix="look for detach, rounding and no_grad in the module and the loss"
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
