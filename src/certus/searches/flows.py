"""Flows between neighbouring cells, from which the verifier bounds a conjugate.

For Ω(w) = Σₑ φₑ(dₑ) + ½Σ rⱼwⱼ², dₑ the difference of two cells, every flow τ gives a
bound of Ω*(−v); the best one belongs to the minimiser p of Ω(p) + vᵀp. It is found here
by one linear system, in which differences that stand on a kink are held there. Where
that leaves the box of a flow, because held differences form circles, interior points
find another.
"""

from __future__ import annotations

import numpy as np
from scipy import sparse
from scipy.sparse.csgraph import connected_components
from scipy.sparse.linalg import splu

from certus.searches.kinks import CostBoxes, boxed
from certus.typing import Array

#: A difference below this share of the largest value counts as on the kink.
NEAR = 1e-7


def flow(
    ends: tuple[Array, Array], levels: tuple[Array, Array, Array], own: Array, wv: Array
) -> Array:
    """A flow for each edge, near the best.

    Parameters
    ----------
    ends : (left, right)
        The cells of each edge.
    levels : (quadratic, variation, signs)
        Of each edge.
    own : ndarray
        Level of each cell's square.
    wv : ndarray of shape (2, cells)
        The point and the pulled-back dual.
    """
    (left, right), (quadratic, variation, signs) = ends, levels
    w, v = wv
    d = w[right] - w[left]
    near = np.abs(d) <= NEAR * float(np.abs(w).max(initial=0.0))
    held = near & ((variation > 0) | (signs != 0))
    constant = np.where(held, 0.0, variation * np.sign(d))
    n, e = len(w), np.arange(len(left))
    ones = np.ones(len(left))
    D = sparse.csr_array((ones, (e, right)), (len(left), n))
    D = D - sparse.csr_array((ones, (e, left)), (len(left), n))
    H = D.T @ sparse.diags_array(quadratic) @ D + sparse.diags_array(own)
    load = v + D.T @ constant + H @ w  # the gradient at w, if all were smooth
    M = _groups(n, left[held], right[held])
    try:
        factor = splu((M.T @ H @ M).tocsc())
    except RuntimeError:  # singular in floats: the flow at w, which is right too
        return np.asarray(constant + quadratic * d)
    step = np.zeros(n)
    for _ in range(2):
        step -= M @ factor.solve(M.T @ (load + H @ step))
    found = constant + quadratic * (d + D @ step)
    if held.any():  # what is left of the gradient flows along the held differences
        E, rest = D[held], load + H @ step
        within = E @ E.T + 1e-12 * sparse.eye_array(E.shape[0])
        found[held] -= splu(within.tocsc()).solve(E @ rest)
    low = np.where(signs > 0, -np.inf, -variation)
    high = np.where(signs < 0, np.inf, variation)
    slack = NEAR * variation
    beyond = (quadratic == 0) & ((found < low - slack) | (found > high + slack))
    if beyond.any() and (own > 0).all():
        box = low < high
        other = quadratic * d
        other[box] += boxed(H, v, w, CostBoxes(D[box], low[box], high[box]))
        return np.asarray(other)
    return np.asarray(found)


def _groups(n: int, left: Array, right: Array) -> sparse.csr_array:
    """The matrix that gives all cells of a group, joined by edges, one value."""
    ones = np.ones(len(left))
    joined = sparse.csr_array((ones, (left, right)), (n, n))
    count, label = connected_components(joined, directed=False)
    return sparse.csr_array((np.ones(n), (np.arange(n), label)), (n, count))
