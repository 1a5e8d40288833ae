"""Derivatives of any function written in torch: along a direction, back, or in full.

Forward mode carries tangents along with the evaluation and gives one column of the
Jacobian at a time, J v; reverse mode keeps the values of the evaluation and walks back
through them, one row at a time, uᵀJ. The whole Jacobian thus costs a multiple of one
evaluation: of the number of inputs forward, of the number of outputs in reverse.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from torch import Tensor

from certus.typing import ArrayLike

Function = Callable[[Tensor], Tensor]


def jvp(f: Function, x: ArrayLike | Tensor, v: ArrayLike | Tensor) -> tuple[Any, Any]:
    """The derivative of f at x along v, in forward mode.

    Parameters
    ----------
    f : callable
        Of one tensor, giving one tensor; a module, for instance.
    x : array or Tensor
        Where. Whole numbers become float64.
    v : array or Tensor of the shape of x
        Direction.

    Returns
    -------
    value, product : array or Tensor, as x is
        f(x) and J v, both of the shape of f(x).

    Examples
    --------
    >>> import numpy as np
    >>> from certus.neural_network import jvp
    >>> value, product = jvp(lambda x: x**2, np.array([1.0, 2.0, 3.0]), [1, 0, 1])
    >>> product
    array([2., 0., 6.])
    """
    t = _point(x)
    _load_forward_mode()
    out: Any = torch.func.jvp(_checked(f), (t,), (_like(v, t, "v", "x"),))
    return _as(x, out[0]), _as(x, out[1])


def vjp(f: Function, x: ArrayLike | Tensor, u: ArrayLike | Tensor) -> tuple[Any, Any]:
    """The gradient at x of the sum of f's outputs weighted by u, in reverse mode.

    Parameters
    ----------
    f : callable
        Of one tensor, giving one tensor; a module, for instance.
    x : array or Tensor
        Where. Whole numbers become float64.
    u : array or Tensor of the shape of f(x)
        Weights of the outputs.

    Returns
    -------
    value, product : array or Tensor, as x is
        f(x), and Jᵀu of the shape of x.

    Examples
    --------
    >>> import numpy as np
    >>> from certus.neural_network import vjp
    >>> value, product = vjp(lambda x: x.sum() ** 2, np.array([1.0, 2.0]), 1.0)
    >>> float(value), product
    (9.0, array([6., 6.]))
    """
    t = _point(x)
    out: Any = torch.func.vjp(_checked(f), t)
    value, pull = out
    (product,) = pull(_like(u, value, "u", "f(x)"))
    return _as(x, value), _as(x, product)


def jacobian(f: Function, x: ArrayLike | Tensor, mode: str = "auto") -> Any:
    """All derivatives of f at x.

    Parameters
    ----------
    f : callable
        Of one tensor, giving one tensor; a module, for instance.
    x : array or Tensor
        Where. Whole numbers become float64.
    mode : {"auto", "forward", "reverse"}, default="auto"
        A pass for each input, or one for each output. "auto" takes the fewer, and
        reverse mode if there are as many.

    Returns
    -------
    array or Tensor, as x is
        Of the shape of f(x) followed by that of x.

    Examples
    --------
    >>> import numpy as np
    >>> from certus.neural_network import jacobian
    >>> jacobian(lambda x: x[0] * x[1:], np.array([2.0, 3.0, 4.0]))
    array([[3., 2., 0.],
           [4., 0., 2.]])
    """
    if mode not in ("auto", "forward", "reverse"):
        raise ValueError(f"mode must be 'auto', 'forward' or 'reverse', got {mode!r}.")
    t, f = _point(x), _checked(f)
    if mode == "auto":
        with torch.no_grad():
            n_outputs = f(t).numel()
        mode = "forward" if t.numel() < n_outputs else "reverse"
    if mode == "reverse":
        return _as(x, torch.func.jacrev(f)(t))
    _load_forward_mode()
    return _as(x, torch.func.jacfwd(f)(t))


@lru_cache
def _load_forward_mode() -> None:
    """Let torch import what its forward mode needs, without its warnings about it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        zero = torch.zeros(())
        torch.func.jvp(torch.neg, (zero,), (zero,))


def _point(x: ArrayLike | Tensor, name: str = "x") -> Tensor:
    """Real numbers as a tensor of them, apart from any graph it is part of."""
    if not isinstance(x, Tensor):
        x = np.asarray(x)
        if x.dtype.kind not in "fiub":
            raise ValueError(f"{name} must hold real numbers, got {x.dtype}.")
        x = torch.as_tensor(x.copy() if x.dtype.kind == "f" else x.astype(np.float64))
    if x.is_complex():
        raise ValueError(f"{name} must hold real numbers, got {x.dtype}.")
    return x.detach() if x.is_floating_point() else x.detach().double()


def _like(v: ArrayLike | Tensor, t: Tensor, name: str, other: str) -> Tensor:
    """A vector as a tensor that goes with t."""
    v = _point(v, name)
    if v.shape != t.shape:
        raise ValueError(
            f"{name} must have the shape of {other}, {tuple(t.shape)}, got "
            f"{tuple(v.shape)}."
        )
    return v.to(t)


def _checked(f: Function) -> Function:
    def call(x: Tensor) -> Tensor:
        value = f(x)
        if not isinstance(value, Tensor):
            raise TypeError(
                "The function must return one tensor, computed by torch from its "
                f"argument; got {type(value).__name__}."
            )
        return value

    return call


def _as(x: ArrayLike | Tensor, value: Tensor) -> Any:
    return value.detach() if isinstance(x, Tensor) else value.detach().numpy()
