"""``minimize``: every method behind one function, chosen by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from certus.optimize.adaptive import adagrad, adam, amsgrad
from certus.optimize.descent import gradient_descent
from certus.optimize.inertia import heavy_ball, momentum, nesterov
from certus.optimize.nonsmooth import subgradient_descent
from certus.optimize.record import Record
from certus.optimize.second_order import newton_method
from certus.optimize.signs import sign_descent
from certus.optimize.splitting import projected_gradient, proximal_gradient
from certus.optimize.stochastic import stochastic_gradient_descent
from certus.optimize.variance_reduction import svrg
from certus.typing import ArrayLike

#: The methods by name.
METHODS: dict[str, Callable[..., Record]] = {
    "adagrad": adagrad,
    "adam": adam,
    "amsgrad": amsgrad,
    "gd": gradient_descent,
    "heavy_ball": heavy_ball,
    "momentum": momentum,
    "nesterov": nesterov,
    "newton": newton_method,
    "projected": projected_gradient,
    "proximal": proximal_gradient,
    "sgd": stochastic_gradient_descent,
    "sign": sign_descent,
    "subgradient": subgradient_descent,
    "svrg": svrg,
}


def minimize(f: Any, x0: ArrayLike, method: str = "gd", **options: Any) -> Record:
    """Minimise f from x0 by the method named.

    Parameters
    ----------
    f : callable or Objective
        ``f(x) -> (value, gradient)``; an :class:`Objective` adds what is known of f.
    x0 : array-like of shape (d,)
        Start.
    method : str, default="gd"
        "gd", "sgd", "svrg", "momentum", "heavy_ball", "nesterov", "adagrad", "adam",
        "amsgrad", "sign", "subgradient", "projected", "proximal" or "newton".
    **options
        What the method takes: ``step``, ``max_iter``, ``tol``, ``stop`` and its own.

    Returns
    -------
    Record
        Iterates, stop reason, constants, and the theorem's bound beside what was
        observed at every step.

    Objective
    ---------
    ``min f(x)``

    Certificate
    -----------
    That of the method.

    Examples
    --------
    >>> import numpy as np
    >>> from certus.optimize import minimize, quadratic_objective
    >>> f = quadratic_objective(np.diag([1.0, 10.0]), [1.0, 10.0])
    >>> record = minimize(f, [0.0, 0.0], method="nesterov", tol=1e-6)
    >>> record.x.round(5), record.holds
    (array([1., 1.]), True)
    """
    if method not in METHODS:
        raise ValueError(f"method must be one of {', '.join(METHODS)}, got {method!r}.")
    return METHODS[method](f, x0, **options)
