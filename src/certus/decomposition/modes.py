"""The modes of deep linear networks: the theory's curves, and the figure.

    da/dt = L·a^(2 − 2/L)·(s − a)

is how the strength a of a mode with singular value s grows in L balanced layers.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from scipy.integrate import solve_ivp

from certus.base import check_number
from certus.typing import Array

#: Modes drawn: the strongest.
SHOWN = 8
#: Decades between a mode, its start and its pace that are integrated.
RANGE = 100.0


def mode_strength(t: Any, limit: float, start: float, depth: int = 2) -> Array:
    """Strength of a mode of a balanced deep linear network after time t.

    The solution of da/dt = L·a^(2 − 2/L)·(s − a), a(0) = start: for two layers
    s·e^(2st)/(e^(2st) − 1 + s/start), a sigmoid; for one s + (start − s)·e^(−t); for
    more it is integrated numerically.

    Parameters
    ----------
    t : array-like
        Times, not negative.
    limit : float
        s, the singular value of the mode, above 0.
    start : float
        Strength at t = 0, above 0.
    depth : int, default=2
        Number of layers L.

    Examples
    --------
    >>> from certus.decomposition import mode_strength
    >>> mode_strength([0.0, 1.0, 5.0], limit=2.0, start=0.01).round(4)
    array([0.01  , 0.4306, 2.    ])
    """
    t = np.asarray(t, dtype=np.float64)
    check_number("depth", depth, 1, integer=True)
    check_number("limit", limit, open_low=True)
    check_number("start", start, open_low=True)
    if not (np.isfinite(t).all() and (t >= 0).all()):
        raise ValueError("t must hold finite times of at least 0.")
    pace = (2 - 2 / depth) * abs(math.log10(limit)) if limit < math.inf else math.inf
    if max(pace, abs(math.log10(limit) - math.log10(start))) > RANGE:
        raise ValueError(
            f"limit={limit:g} and start={start:g} are too far from 1 or from each "
            "other to be computed. Measure the modes in other units."
        )
    if depth == 1:
        return np.asarray(limit + (start - limit) * np.exp(-t))
    if depth == 2:
        left = np.exp(-2 * limit * t)  # e^(2st) itself would overflow
        return np.asarray(limit / (1 + (limit / start - 1) * left))
    power = 2 - 2 / depth

    def slope(_: float, log: Array) -> Array:
        a = np.exp(log)
        return np.asarray(depth * a ** (power - 1) * (limit - a))

    times, place = np.unique(t, return_inverse=True)
    if not times.size or times[-1] <= 0:
        return np.full(t.shape, float(start))
    span, first = (0.0, float(times[-1])), [math.log(start)]

    def arrived(_: float, log: Array) -> float:
        return abs(float(log[0]) - math.log(limit)) - 1e-10

    arrived.terminal = True  # type: ignore[attr-defined]
    run = solve_ivp(
        slope, span, first, "LSODA", times, events=arrived, rtol=1e-9, atol=1e-12
    )
    found = np.full(len(times), float(limit))  # there it stays
    found[: len(run.t)] = np.exp(np.ravel(run.y))
    return np.asarray(found[place].reshape(t.shape))


def draw_modes(model: Any, ax: Any = None) -> Any:
    """Draw the recorded modes of a network, and the theory's curves over them."""
    if ax is None:
        import matplotlib.pyplot as plt

        ax = plt.subplots(figsize=(6.4, 4.0), layout="constrained")[1]
    t, depth = model.times_, len(model.weights_)
    shown = min(SHOWN, model.modes_.shape[1])
    for r in range(shown):
        shade = r / max(1, shown - 1)
        colour = (0.19 + 0.5 * shade, 0.39 + 0.3 * shade, 0.56 + 0.2 * shade)
        label = "trained" if r == 0 else None
        ax.plot(t, model.modes_[:, r], color=colour, lw=2.2, label=label)
    label = "theory"
    for r in range(shown):
        begin = _where_it_holds(model, r)
        if begin is None:
            continue
        limit, first = float(model.singular_values_[r]), float(model.modes_[begin, r])
        curve = mode_strength(t[begin:] - t[begin], limit, first, depth)
        ax.plot(t[begin:], curve, "--", color="#c44e52", lw=1.3, label=label)
        label = None
    ax.set(xlabel="time of the gradient flow", ylabel="strength of a mode")
    plural = "s" if depth > 1 else ""
    ax.set_title(f"{depth} layer{plural}, {shown} modes", loc="left")
    ax.legend(frameon=False, fontsize=9, loc="best")
    return ax


def _where_it_holds(model: Any, r: int) -> int | None:
    """The first record at which the theory holds for mode r; None if there is none."""
    strength, limit = model.modes_[:, r], float(model.singular_values_[r])
    if r >= min(W.shape[0] for W in model.weights_):
        return None  # the narrowest layer has no unit left
    least = 0.0 if model.init == "modes" else limit / 20
    begin = int(np.argmax(strength > least))
    return begin if least < strength[begin] < limit else None
