"""The public functions of a loss: its row's formulas behind a check of the input.

Every function takes the term first. What is refused: terms that are not losses,
parameters and targets outside the loss's domain.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from certus.objectives import terms as t
from certus.objectives.rows import LOSSES, LossFormulas
from certus.typing import Array


def value(loss: t.Loss, y: Any, z: Any) -> Array:
    """Return ℓ(y, z) for each score.

    Parameters
    ----------
    loss : term of ``certus.objectives``
        For example ``Huber(1.0)``.
    y : array-like
        Targets: numbers, ±1 for losses of the margin, counts for ``Binomial`` and
        ``Poisson``, codes or probabilities for ``Softmax``. Broadcast against ``z``.
    z : array-like
        Scores.

    Returns
    -------
    ndarray
        One loss per score (per row of scores for ``Softmax``).

    Examples
    --------
    >>> from certus import objectives
    >>> from certus.objectives import Hinge, Huber
    >>> objectives.value(Huber(1.0), 0.0, [0.5, 3.0]).tolist()
    [0.125, 2.5]
    >>> objectives.value(Hinge(), [1, -1], [0.25, 2.0]).tolist()
    [0.75, 3.0]
    """
    return _apply(check_loss(loss).value, loss, y, z)


def gradient(loss: t.Loss, y: Any, z: Any) -> Array:
    """Return ∂ℓ/∂z, at a kink a subgradient.

    Parameters
    ----------
    loss : term of ``certus.objectives``
        The loss.
    y, z : array-like
        Targets and scores, as in :func:`value`.

    Returns
    -------
    ndarray
        Same shape as the scores. At its kink the hinge has the slope of its left side,
        so that steps from w = 0 move; other losses have 0 there.

    Examples
    --------
    >>> from certus import objectives
    >>> from certus.objectives import Absolute, Hinge
    >>> objectives.gradient(Absolute(), 1.0, [0.0, 1.0, 5.0]).tolist()
    [-1.0, 0.0, 1.0]
    >>> objectives.gradient(Hinge(), 1, [0.9, 1.0, 1.1]).tolist()
    [-1.0, -1.0, 0.0]
    """
    return _apply(check_loss(loss).slope, loss, y, z)


def curvature(loss: t.Loss, y: Any, z: Any) -> Array:
    """Return ∂²ℓ/∂z².

    Parameters
    ----------
    loss : term of ``certus.objectives``
        The loss.
    y, z : array-like
        Targets and scores, as in :func:`value`.

    Returns
    -------
    ndarray
        Where the curvature jumps, the larger of its two sides; where the slope jumps,
        ``inf``. For ``Softmax`` a matrix per row.

    Examples
    --------
    >>> from certus import objectives
    >>> from certus.objectives import Logistic, Tukey
    >>> objectives.curvature(Logistic(), 1, 0.0).tolist()
    0.25
    >>> objectives.curvature(Tukey(1.0), 0.0, [0.0, 0.5, 2.0]).tolist()
    [1.0, -0.1875, 0.0]
    """
    return _apply(check_loss(loss).curvature, loss, y, z)


def conjugate(loss: t.Loss, y: Any, u: Any) -> Array:
    """Return ℓ*(y, u) = sup over z of u·z − ℓ(y, z), infinite outside its domain.

    Parameters
    ----------
    loss : term of ``certus.objectives``
        The loss.
    y : array-like
        Targets, as in :func:`value`.
    u : array-like
        Slopes.

    Returns
    -------
    ndarray
        ℓ(y, z) + ℓ*(y, u) ≥ u·z, with equality where u is the slope at z. A bounded
        loss (``Tukey``, ``ZeroOne``) has a finite conjugate at u = 0 alone.

    Examples
    --------
    >>> from certus import objectives
    >>> from certus.objectives import Hinge
    >>> objectives.conjugate(Hinge(), 1, [-1.5, -1.0, -0.5, 0.5]).tolist()
    [inf, -1.0, -0.5, inf]
    """
    return _apply(check_loss(loss).conjugate, loss, y, u)


def smoothness(loss: t.Loss) -> float:
    """Return the Lipschitz constant L of the slope, ``inf`` if there is none.

    Parameters
    ----------
    loss : term of ``certus.objectives``
        The loss.

    Returns
    -------
    float
        The supremum of abs(ℓ''), over all targets. Gradient descent on the mean of the
        losses may use steps of 1/(L·‖X‖²/n), ‖X‖ the largest singular value.

    Examples
    --------
    >>> from certus import objectives
    >>> from certus.objectives import Logistic, Poisson
    >>> objectives.smoothness(Logistic()), objectives.smoothness(Poisson())
    (0.25, inf)
    """
    return float(check_loss(loss).smoothness(loss))


def is_convex(loss: t.Loss) -> bool:
    """Return whether ℓ(y, z) is convex in z for every target.

    Parameters
    ----------
    loss : term of ``certus.objectives``
        The loss.

    Examples
    --------
    >>> from certus import objectives
    >>> from certus.objectives import Huber, Tukey
    >>> objectives.is_convex(Huber(1.0)), objectives.is_convex(Tukey(1.0))
    (True, False)
    """
    return check_loss(loss).convex


def is_calibrated(loss: t.Loss) -> bool:
    """Return whether minimising the expected loss yields the Bayes classifier.

    With φ the loss as a function of the margin yz and η = P(y = 1 | x) ≠ ½, the
    infimum of ηφ(a) + (1 − η)φ(−a) over scores a of the wrong sign (zero counts as
    wrong) must be larger than over all scores. A convex φ has this property if and
    only if it is differentiable at 0 with φ'(0) < 0 (Bartlett, Jordan and McAuliffe).
    Losses of the residual count with labels ±1, where y − z = y(1 − yz).

    Parameters
    ----------
    loss : term of ``certus.objectives``
        A loss of the margin, or a symmetric loss of the residual.

    Raises
    ------
    TypeError
        If the loss is not a function of the margin.

    Examples
    --------
    >>> from certus import objectives
    >>> from certus.objectives import Hinge
    >>> objectives.is_calibrated(Hinge()), objectives.is_calibrated(Hinge(margin=0.0))
    (True, False)
    """
    calibrated = check_loss(loss).calibrated(loss)
    if calibrated is None:
        raise TypeError(
            f"{loss!r} is not a function of the margin yz. Calibration is defined "
            "only for losses of the margin, such as Logistic() or Hinge()."
        )
    return bool(calibrated)


def log_likelihood(loss: t.Loss, y: Any, z: Any, scale: float = 1.0) -> Array:
    """Return log p(y | z) under the distribution whose likelihood the loss is.

    Minimising the loss maximises this: the two differ by constants in z and the factor
    ``scale``. ``Squared``: Gaussian of mean z and standard deviation ``scale``.
    ``Absolute``: Laplace of median z and mean absolute deviation ``scale``.
    ``Logistic``: Bernoulli, y = ±1, P(y = 1) = σ(z). ``Binomial``: y successes, each of
    probability σ(z). ``Poisson``, ``Exponential``: mean exp(z). ``Softmax``: class y.

    Parameters
    ----------
    loss : term of ``certus.objectives``
        One of those above.
    y, z : array-like
        Targets and scores, as in :func:`value`.
    scale : float, default=1.0
        Of ``Squared`` and ``Absolute``; the others have none.

    Returns
    -------
    ndarray
        Logarithms of densities, or of probabilities.

    Examples
    --------
    >>> from certus import objectives
    >>> from certus.objectives import Poisson, Squared
    >>> objectives.log_likelihood(Squared(), 1.0, 0.0, scale=2.0).round(4).tolist()
    -1.7371
    >>> objectives.log_likelihood(Poisson(), [0, 3], 0.0).round(4).tolist()
    [-1.0, -2.7918]
    """
    row = check_loss(loss)
    if not (np.isfinite(scale) and scale > 0):
        raise ValueError(f"scale must be positive and finite, got {scale!r}.")
    if scale != 1 and not row.has_scale:
        raise ValueError(f"{loss!r} has no scale; leave it at 1.")
    if row.whole_targets and np.any(np.mod(y, 1) != 0):
        raise ValueError(
            f"{loss!r} is a distribution of whole numbers, but y holds other numbers."
        )
    density = row.log_density
    if density is None:
        known = [kind.__name__ for kind, each in LOSSES.items() if each.log_density]
        raise TypeError(
            f"{loss!r} is not the likelihood of a distribution that certus knows. It "
            f"knows {', '.join(known[:-1])} and {known[-1]}."
        )
    return _apply(lambda *given: density(*given, scale), loss, y, z)


# -- input ------------------------------------------------------------------------


def check_loss(loss: Any) -> LossFormulas:
    """The loss's row, its parameters checked."""
    if type(loss) not in LOSSES:
        raise TypeError(
            f"{loss!r} is not a loss; pass a term such as certus.objectives.Huber(1.0)."
        )
    for name, number in loss._asdict().items():
        good, want = {
            "threshold": (number > 0, "positive"),
            "q": (0 < number < 1, "between 0 and 1"),
            "power": (1 < number < 2, "between 1 and 2"),
            "epsilon": (number >= 0, "0 or more"),
            "trials": (number >= 1, "1 or more"),
            "n_classes": (number >= 2, "2 or more"),
        }.get(name, (np.isfinite(number), "finite"))
        if not good:
            raise ValueError(
                f"{name} of {type(loss).__name__} must be {want}, got {number!r}."
            )
    return LOSSES[type(loss)]


def _apply(formula: Callable[..., Array], loss: t.Loss, y: Any, z: Any) -> Array:
    """The formula on checked arrays, in the shape that went in."""
    z = np.asarray(z, dtype=float)
    if LOSSES[type(loss)].by_rows:
        return _apply_to_rows(formula, loss, np.asarray(y), z)
    y, z = np.broadcast_arrays(np.asarray(y, dtype=float), z)
    _check_targets(loss, y)
    # exp of a large score is infinite, and so is the loss.
    with np.errstate(over="ignore", invalid="ignore"):
        return np.asarray(formula(loss, y, z), dtype=float)


def _apply_to_rows(
    formula: Callable[..., Array], loss: Any, y: Array, z: Array
) -> Array:
    k = loss.n_classes
    if z.ndim == 0 or z.shape[-1] != k:
        raise ValueError(f"{loss!r} needs scores of shape (..., {k}), got {z.shape}.")
    lead = z.shape[:-1]
    if y.shape == z.shape:
        if not (np.all(y >= 0) and np.allclose(y.sum(axis=-1), 1.0, atol=1e-9)):
            raise ValueError("rows of y must be probabilities that sum to 1.")
        rows: Array = y.reshape(-1, k).astype(float)
    else:
        whole = np.issubdtype(y.dtype, np.integer)
        if not (whole and np.all((y >= 0) & (y < k))):
            raise ValueError(
                f"labels must be integers from 0 to {k - 1}, or probabilities in the "
                "shape of the scores."
            )
        rows = np.broadcast_to(y, lead).ravel()
    found = formula(loss, rows, z.reshape(-1, k))
    return np.asarray(found).reshape((*lead, *found.shape[1:]))


def _check_targets(loss: t.Loss, y: Array) -> None:
    """One sentence about labels that the loss is not defined for."""
    row = LOSSES[type(loss)]
    good = row.allowed(loss, y)
    if not np.all(good):
        bad = y[~good].flat[0]
        want = row.targets.format(**loss._asdict())
        raise ValueError(
            f"targets of {type(loss).__name__} must be {want}, got {bad:g}."
        )
