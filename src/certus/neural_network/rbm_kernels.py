"""Compiled sum over all states of the smaller layer of a Boltzmann machine.

log Σ_{k, l} exp(s_l + t_k)·Π_i (1 + exp(L_li + H_ki)): each state is a pair of halves,
and exp(L)·exp(H) needs no exponential of its own.
"""

from __future__ import annotations

import numpy as np

from certus._core.cache import kernel

#: Products are turned into logarithms before they leave this range.
LARGE = 1e250


@kernel
def log_sum(L, H, starts, ends, narrow):
    """The logarithm of the sum; ``narrow`` says that exponentials are in range."""
    E, F = np.exp(L), np.exp(H)
    top, total = -np.inf, 0.0
    for k in range(H.shape[0]):
        for state in range(L.shape[0]):
            level, product = starts[state] + ends[k], 1.0
            for i in range(L.shape[1]):
                if narrow:
                    factor = 1.0 + E[state, i] * F[k, i]
                    if product > LARGE / factor:
                        level += np.log(product)
                        product = 1.0
                    product *= factor
                else:
                    field = L[state, i] + H[k, i]
                    level += max(field, 0.0) + np.log1p(np.exp(-abs(field)))
            level += np.log(product)
            if level > top:
                total = total * np.exp(top - level) + 1.0
                top = level
            else:
                total += np.exp(level - top)
    return top + np.log(total)
