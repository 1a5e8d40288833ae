"""Compiled passes over rows and scores for the losses of support vector machines.

Hinge, quantile and epsilon-insensitive losses, and the squares of the first and last,
are all of the form

    ℓ(z) = max over low ≤ u ≤ high of  u·(z − t) − epsilon·|u| − ½·width·u²,

with width 0 for those with a kink and ½ for the squares. Adding a proximal term
½·delta·(u − centre)² keeps that form and makes the slope continuous; ``envelope`` is
its value and ``descend`` ascends the dual one row at a time.
"""

from __future__ import annotations

from typing import Any

from certus._core.cache import kernel


@kernel
def envelope(
    z: Any,
    t: Any,
    s: Any,
    low: Any,
    high: Any,
    epsilon: float,
    delta: float,
    centre: Any,
    u: Any,
    inside: Any,
) -> Any:
    """Fill ``u`` with the maximisers and ``inside`` with where they move with z.

    Returns Σ s·(envelope), Σ s·(u·r − epsilon·|u|) and Σ s·ℓ for width 0.
    """
    smooth, linear, loss = 0.0, 0.0, 0.0
    for i in range(len(z)):
        r = z[i] - t[i]
        v = r + delta * centre[i]
        moves = True
        if v > epsilon:
            a = (v - epsilon) / delta
        elif v < -epsilon:
            a = (v + epsilon) / delta
        else:
            a = 0.0
            moves = epsilon == 0.0
        if a >= high[i]:
            a = high[i]
            moves = False
        elif a <= low[i]:
            a = low[i]
            moves = False
        u[i] = a
        inside[i] = moves and s[i] > 0.0
        if s[i] > 0.0:
            part = a * r - epsilon * abs(a)
            linear += s[i] * part
            smooth += s[i] * (part - 0.5 * delta * (a - centre[i]) ** 2)
            if r > epsilon:
                loss += s[i] * high[i] * (r - epsilon)
            elif r < -epsilon:
                loss += s[i] * low[i] * (r + epsilon)
    return smooth, linear, loss


@kernel
def along(
    z: Any,
    q: Any,
    step: float,
    t: Any,
    s: Any,
    low: Any,
    high: Any,
    epsilon: float,
    delta: float,
    centre: Any,
) -> Any:
    """Slope and curvature of Σ s·(envelope) at z + step·q, along q."""
    slope, curvature = 0.0, 0.0
    for i in range(len(z)):
        if s[i] == 0.0 or q[i] == 0.0:
            continue
        v = z[i] + step * q[i] - t[i] + delta * centre[i]
        moves = True
        if v > epsilon:
            a = (v - epsilon) / delta
        elif v < -epsilon:
            a = (v + epsilon) / delta
        else:
            a = 0.0
            moves = epsilon == 0.0
        if a >= high[i]:
            a = high[i]
            moves = False
        elif a <= low[i]:
            a = low[i]
            moves = False
        slope += s[i] * a * q[i]
        if moves:
            curvature += s[i] * q[i] * q[i] / delta
    return slope, curvature


@kernel
def row_squares(indptr: Any, values: Any, out: Any) -> None:
    """‖x‖² of each CSR row."""
    for i in range(len(out)):
        total = 0.0
        for j in range(indptr[i], indptr[i + 1]):
            total += values[j] * values[j]
        out[i] = total


@kernel
def descend(
    starts: Any,
    stops: Any,
    indices: Any,
    values: Any,
    order: Any,
    t: Any,
    low: Any,
    high: Any,
    epsilon: float,
    width: Any,
    square: Any,
    scale: float,
    beta: Any,
    w: Any,
    cut: float,
    keep: Any,
) -> Any:
    """One sweep of dual descent over the CSR rows in ``order``.

    Minimises ½‖Σ βᵢxᵢ‖² − Σ βᵢtᵢ + epsilon·Σ|βᵢ| + ½·Σ widthᵢβᵢ² over low ≤ β ≤ high;
    ``indices`` are unsigned, which spares a test for negative ones at each value.
    ``w`` is Σ βᵢxᵢ, its last entry that of a constant column of size ``scale``. Rows
    that are at a corner by more than ``cut`` are marked for leaving. Returns the
    largest violation met.
    """
    last = len(w) - 1
    worst = 0.0
    for k in range(len(order)):
        i = order[k]
        keep[k] = True
        curvature = square[i] + width[i]
        if curvature <= 0.0 or high[i] <= low[i]:
            continue
        g = scale * w[last] - t[i] + width[i] * beta[i]
        for j in range(starts[i], stops[i]):
            g += values[j] * w[indices[j]]
        b = beta[i]
        up = g + epsilon if b >= 0.0 else g - epsilon  # slope to the right
        down = g + epsilon if b > 0.0 else g - epsilon  # and to the left
        slack = 1e300
        violation = 0.0
        if b < high[i]:
            violation = max(violation, -up)
            slack = min(slack, up)
        if b > low[i]:
            violation = max(violation, down)
            slack = min(slack, -down)
        if violation <= 0.0:
            keep[k] = slack <= cut
            continue
        worst = max(worst, violation)
        # Soft threshold, then the box.
        x = b - g / curvature
        move = epsilon / curvature
        if x > move:
            x -= move
        elif x < -move:
            x += move
        else:
            x = 0.0
        x = min(max(x, low[i]), high[i])
        change = x - b
        if change != 0.0:
            beta[i] = x
            w[last] += change * scale
            for j in range(starts[i], stops[i]):
                w[indices[j]] += change * values[j]
    return worst


@kernel
def descend_columns(
    indptr: Any,
    indices: Any,
    values: Any,
    order: Any,
    y: Any,
    s: Any,
    level: float,
    w: Any,
    short: Any,
    keep: Any,
) -> float:
    """One sweep of Σ s·max(0, short)² + level·‖w‖₁ over the CSC columns in ``order``.

    ``short`` is 1 − y·z and is kept current. Each coordinate takes Newton steps until
    its slope has halved, so that none of them overshoots. Columns that stay at zero for
    good reason are marked for leaving. Returns the largest violation met.
    """
    worst = 0.0
    for k in range(len(order)):
        j = order[k]
        keep[k] = True
        first = 0.0
        for attempt in range(20):
            g, h = 0.0, 0.0
            for e in range(indptr[j], indptr[j + 1]):
                i = indices[e]
                if short[i] > 0.0:
                    g -= 2.0 * s[i] * y[i] * values[e] * short[i]
                    h += 2.0 * s[i] * values[e] * values[e]
            old = w[j]
            if old > 0.0:
                violation = abs(g + level)
            elif old < 0.0:
                violation = abs(g - level)
            else:
                violation = abs(g) - level
            if attempt == 0:
                first = violation
                if old == 0.0 and violation <= 0.0:
                    keep[k] = False
                worst = max(worst, violation)
            if violation <= 0.5 * first and (attempt > 0 or violation <= 0.0):
                break
            if h <= 0.0:  # no row is active: only the penalty pulls
                new = 0.0
            else:
                x = old - g / h
                cut = level / h
                if x > cut:
                    new = x - cut
                elif x < -cut:
                    new = x + cut
                else:
                    new = 0.0
            change = new - old
            if change == 0.0:
                break
            w[j] = new
            for e in range(indptr[j], indptr[j + 1]):
                i = indices[e]
                short[i] -= y[i] * values[e] * change
    return worst
