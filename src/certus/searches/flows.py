"""Flows between neighbouring cells, from which the verifier bounds a conjugate.

For Ω(w) = Σₑ φₑ(dₑ) + ½Σ rⱼwⱼ², dₑ the difference of two cells, every flow τ gives a
bound of Ω*(−v); the best one belongs to the minimiser p of Ω(p) + vᵀp. It is found here
by one linear system, in which differences that stand on a kink are held there.
"""

from __future__ import annotations

import numpy as np
from scipy import sparse
from scipy.sparse.linalg import splu

from certus.typing import Array

#: A difference below this share of the largest value counts as on the kink.
NEAR = 1e-7
#: How stiff such a difference is, beside the other levels.
STIFF = 1e7


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
    top = max(float(quadratic.max(initial=0.0)), float(own.max(initial=0.0)))
    stiff = np.where(held, STIFF * top, quadratic)
    constant = np.where(held, 0.0, variation * np.sign(d))
    n, e = len(w), np.arange(len(left))
    ones = np.ones(len(left))
    D = sparse.csr_array((ones, (e, right)), (len(left), n))
    D = D - sparse.csr_array((ones, (e, left)), (len(left), n))
    H = D.T @ sparse.diags_array(stiff) @ D + sparse.diags_array(own)
    factor = splu(H.tocsc())
    load = v + D.T @ constant + H @ w  # the gradient at w, if all were smooth
    step = -factor.solve(load)
    step -= factor.solve(load + H @ step)
    return np.asarray(constant + stiff * (d + D @ step))
