"""Compiled loops of Hopfield networks: recall unit by unit, and weights with a margin.

Recall keeps the fields h = Wx + b of a row and updates them when a unit flips, so that
a sweep without flips costs n comparisons instead of n².
"""

from __future__ import annotations

import numpy as np

from certus._core.cache import kernel


@kernel
def recall_in_turn(states, fields, columns, ties, max_sweeps):
    """Update the units of each row one after the other until none changes.

    ``columns[i]`` holds the weights from unit i to all others. A field within ``ties``
    of zero leaves its unit as it is.
    """
    n_rows, n = states.shape
    for row in range(n_rows):
        x, h = states[row], fields[row]
        for _ in range(max_sweeps):
            changed = False
            for i in range(n):
                if h[i] * x[i] < -ties[i]:
                    x[i] = -x[i]
                    step = x[i] + x[i]
                    column = columns[i]
                    for j in range(n):
                        h[j] += step * column[j]
                    changed = True
            if not changed:
                break


@kernel
def margin_sweeps(signs, products, duals, forces, norms, sums, enough, n_sweeps):
    """Sweep over dual coordinates of the widest margin, for each unit that needs it.

    Unit i wants w with x_ti·(w·x_t) ≥ 1 for all patterns t, without its own entry:
    max Σa − ½ aᵀQa over a ≥ 0, Q_tu = x_ti x_ui K_tu − 1 with K = XXᵀ (+1 with an
    intercept). ``forces`` holds Qa, ``norms`` aᵀQa and ``sums`` Σa. A unit rests when
    the smallest of Qa is within a share ``enough`` of the widest possible.
    """
    n, s = duals.shape
    for i in range(n):
        a, q = duals[i], forces[i]
        for _ in range(n_sweeps):
            for t in range(s):
                own = products[t, t] - 1.0
                if own <= 0.0:
                    continue
                step = (1.0 - q[t]) / own
                if a[t] + step < 0.0:
                    step = -a[t]
                if step != 0.0:
                    a[t] += step
                    for u in range(s):
                        sign = signs[t, i] * signs[u, i]
                        q[u] += step * (sign * products[t, u] - 1.0)
            total, square, least = 0.0, 0.0, np.inf
            for t in range(s):
                total += a[t]
                square += a[t] * q[t]
                least = min(least, q[t])
            norms[i], sums[i] = square, total
            if square > 0.0 and least * total >= (1.0 - enough) * square:
                break
