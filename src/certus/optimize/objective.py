"""The function to minimise, and what is known about it.

A function is given as NumPy code that returns value and (sub)gradient, or as a torch
function wrapped by :func:`from_torch`. :class:`Objective` adds what a theorem needs:
smoothness L, strong convexity m, a minimiser. All of it is optional: unknown constants
are estimated, or the theorem that needs them is not used.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from certus.typing import Array, ArrayLike

#: The rows that mean "all terms of a finite sum", without copying anything.
ALL = slice(None)


@dataclass(frozen=True)
class Objective:
    """A function with the facts that theorems about it need.

    You state these facts. A run checks L, m, pl, convexity, quadratic, the
    optimum and the gradient itself along its own path, and reports if one fails
    (``Record.refutations``).

    Parameters
    ----------
    function : callable
        ``function(x) -> (value, gradient)``. With ``n_terms``, a mean of terms:
        ``function(x, rows) -> (value, gradient)`` of the mean over ``rows``, an index
        array or ``slice(None)``.
    L : float, "estimate" or None
        Lipschitz constant of the gradient. Estimated where a method needs it.
    m : float, "estimate" or None
        Strong convexity: f − (m/2)‖x‖² is convex. Only estimated when asked.
    convex : bool
        Whether f is convex; implied by m > 0.
    pl : float or None
        Polyak–Łojasiewicz constant: ½‖∇f‖² ≥ pl·(f − f*). f need not be convex.
    quadratic : bool
        Whether f is a quadratic.
    hessian_lipschitz : float or None
        Lipschitz constant of the Hessian, for Newton's method.
    lipschitz : float or None
        Lipschitz constant of f itself, for grid search.
    optimum : array-like or None
        A minimiser.
    minimum : float or None
        The least value; follows from ``optimum``.
    hessian : callable or None
        ``hessian(x)``, for Newton's method.
    n_terms : int or None
        How many terms the mean has.
    L_terms : float or None
        Largest smoothness constant of a single term; each term is convex.

    Examples
    --------
    >>> import numpy as np
    >>> from certus.optimize import Objective
    >>> f = Objective(lambda x: (x @ x / 2, x), L=1.0, m=1.0, optimum=np.zeros(2))
    >>> f.evaluate(np.array([3.0, 4.0]))
    (12.5, array([3., 4.]))
    """

    function: Callable[..., Any]
    L: float | str | None = None
    m: float | str | None = None
    convex: bool = False
    pl: float | None = None
    quadratic: bool = False
    hessian_lipschitz: float | None = None
    lipschitz: float | None = None
    optimum: Any = None
    minimum: float | None = None
    hessian: Callable[[Array], Any] | None = None
    n_terms: int | None = None
    L_terms: float | None = None

    def __post_init__(self) -> None:
        for name in ("L", "m"):
            value = getattr(self, name)
            if isinstance(value, str) and value != "estimate":
                raise ValueError(
                    f"{name} must be a number or 'estimate', got {value!r}."
                )
        for name in ("L", "m", "pl", "hessian_lipschitz", "lipschitz", "L_terms"):
            value = getattr(self, name)
            if value is None or isinstance(value, str):
                continue
            if not (math.isfinite(value) and value >= 0):
                raise ValueError(
                    f"{name} must be finite and not negative, got {value!r}."
                )
        for low, high in (("m", "L"), ("pl", "L"), ("m", "L_terms")):
            least, most = getattr(self, low), getattr(self, high)
            given = all(v is not None and v != "estimate" for v in (least, most))
            if given and least > most * (1 + 1e-9):
                raise ValueError(
                    f"{low}={least!r} exceeds {high}={most!r}: no function has both."
                )
        if self.n_terms is not None and self.n_terms < 1:
            raise ValueError(f"n_terms must be at least 1, got {self.n_terms!r}.")
        if self.optimum is not None and not np.isfinite(self.optimum).all():
            raise ValueError("optimum contains NaN or infinity; leave it out.")

    def evaluate(self, x: Array, rows: Any = ALL) -> tuple[float, Array]:
        """Value and gradient at ``x``; of the mean over ``rows`` in a finite sum.

        Parameters
        ----------
        x : ndarray of shape (d,)
            Where.
        rows : index array or slice
            Which terms; ignored when f is not a sum.

        Returns
        -------
        value : float
        gradient : ndarray of shape (d,)
        """
        point = x.copy()  # a function may write into its argument
        with np.errstate(all="ignore"):
            if self.n_terms is None:
                found = self.function(point)
            else:
                found = self.function(point, rows)
        return _value_and_gradient(found, x)

    @property
    def is_convex(self) -> bool:
        """Whether convexity was stated, directly or through m > 0."""
        strong = not isinstance(self.m, str) and bool(self.m)
        return self.convex or strong


def _value_and_gradient(found: Any, x: Array) -> tuple[float, Array]:
    if not (isinstance(found, tuple) and len(found) == 2):
        raise TypeError(
            "f must return (value, gradient). Wrap a torch function with "
            "certus.optimize.from_torch."
        )
    # A copy, as a function may fill one buffer again and again.
    value, gradient = _real(found[0], "value"), _real(found[1], "gradient").copy()
    if value.size != 1:
        raise ValueError(
            f"f must return a single number as value, got shape {value.shape}."
        )
    if gradient.size != x.size:
        raise ValueError(
            f"f must return a gradient of shape {x.shape}, got {gradient.shape}."
        )
    return float(value.reshape(())), gradient.reshape(x.shape)


def _real(found: Any, what: str) -> Array:
    """The values of f as real numbers."""
    array = np.asarray(found)
    if array.dtype.kind not in "biuf":
        raise TypeError(f"f must return a {what} of real numbers, got {array.dtype}.")
    return np.asarray(array, dtype=np.float64)


def as_objective(f: Any) -> Objective:
    """``f`` itself, or a bare function about which nothing is known."""
    if isinstance(f, Objective):
        return f
    if not callable(f):
        raise TypeError(
            "f must be a function x -> (value, gradient) or an Objective, got "
            f"{type(f).__name__}."
        )
    return Objective(f)


def as_sum(f: Any, method: str) -> Objective:
    """As :func:`as_objective`, for methods that draw terms."""
    objective = as_objective(f)
    if objective.n_terms is None:
        raise ValueError(
            f"{method} draws terms of a mean: pass Objective(function, n_terms=n) "
            "where function(x, rows) returns the value and gradient of the mean over "
            "rows."
        )
    return objective


def as_start(x0: ArrayLike) -> Array:
    """``x0`` as a finite vector of its own."""
    found = np.asarray(x0.detach() if hasattr(x0, "detach") else x0)
    if np.iscomplexobj(found):
        raise TypeError("x0 must hold real numbers, got complex ones.")
    x = np.array(found, dtype=np.float64, ndmin=1)
    if x.size == 0:
        raise ValueError("x0 must hold at least one number.")
    if x.ndim != 1:
        raise ValueError(f"x0 must be a vector, got shape {x.shape}. Use ravel().")
    if not np.isfinite(x).all():
        raise ValueError("x0 must be finite, but contains NaN or infinity.")
    return x


def from_torch(function: Callable[..., Any]) -> Callable[..., tuple[float, Array]]:
    """Value and gradient of a torch function, as NumPy code in float64.

    Parameters
    ----------
    function : callable
        ``function(x) -> scalar tensor`` of a float64 tensor ``x`` of shape (d,); for a
        finite sum ``function(x, rows)``, where ``rows`` is a tensor of indices or
        ``slice(None)``.

    Returns
    -------
    callable
        ``x -> (value, gradient)``, ready for :class:`Objective` or any method.

    Notes
    -----
    torch is imported on the first evaluation; it is an optional dependency.

    Examples
    --------
    >>> from certus.optimize import from_torch, gradient_descent
    >>> f = from_torch(lambda x: ((x - 1) ** 2).sum())
    >>> gradient_descent(f, [0.0, 3.0]).x.round(6)
    array([1., 1.])
    """

    def value_and_gradient(x: Array, rows: Any = None) -> tuple[float, Array]:
        import torch

        point = torch.tensor(x, dtype=torch.float64, requires_grad=True)
        if rows is None:
            value = function(point)
        else:
            chosen = rows if isinstance(rows, slice) else torch.as_tensor(rows)
            value = function(point, chosen)
        if not isinstance(value, torch.Tensor) or value.numel() != 1:
            raise TypeError("a torch function must return a tensor of one number.")
        if not value.requires_grad:  # it does not depend on x
            return float(value), np.zeros_like(x)
        (gradient,) = torch.autograd.grad(value.sum(), point, materialize_grads=True)
        return float(value.detach()), gradient.numpy()

    return value_and_gradient
