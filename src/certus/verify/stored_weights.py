"""Whether the weights of a Hopfield network are those of its rule.

    hebb        W = Σ (x xᵀ − I), in whole numbers
    projection  W + diag(c) is the projection onto the patterns, for some c; with an
                intercept b the patterns end in a constant 1, and b is the last column

A matrix P is the projection onto a span exactly if it is symmetric, maps each pattern
to itself, and has columns that are combinations of the patterns. The diagonal is not
kept: c_i = 1 − x_i·h_i follows from each pattern and must be the same for all. The
combinations are found by least squares; any would do, since P − ZᵀC is computed.

Rounding: sums of s products are right to γ_{s+2} of the sum of their sizes.
"""

from __future__ import annotations

import numpy as np

from certus.certificate import Claim
from certus.typing import Array
from certus.verify import deciding as bd
from certus.verify.deciding import Number, gamma

#: Difference of an entry from that of a projection that counts as rounding.
OFF = 1e-8


def rule_claim(rule: str, intercept: bool, W: Array, b: Array, x: Array) -> Claim:
    """Whether W and b are those of the rule for patterns x of ±1."""
    if rule == "hebb":
        found, target = hebb_distance(W, b, x, intercept), 0.0
        told = f"the weights are Σ (x xᵀ − I) over {len(x):,} patterns"
        about = "largest difference of a weight from Σ (x xᵀ − I)"
    else:
        found, target = projection_distance(W, b, x, intercept), OFF
        told = "with its diagonal, the matrix is the projection onto the patterns"
        about = "largest entry of P − Pᵀ, of Px − x over the patterns, and of what is "
        about += "left of P beside combinations of patterns"
    return bd.proved(
        *("rule_weights", found, target, told),
        missed=f"the weights are not those of rule={rule!r} for these patterns",
        objective=about,
        fix="fit again with this rule",
    )


def hebb_distance(W: Array, b: Array, x: Array, intercept: bool) -> Number:
    """The largest difference from sums of products, which are whole numbers."""
    wanted = x.T @ x
    np.fill_diagonal(wanted, 0.0)
    shift = x.sum(axis=0) if intercept else np.zeros(len(wanted))
    return Number(float(max(np.abs(W - wanted).max(), np.abs(b - shift).max())))


def projection_distance(W: Array, b: Array, x: Array, intercept: bool) -> Number:
    """The largest entry by which the matrix fails to be the projection."""
    s, n = x.shape
    Z = np.column_stack([x, np.ones(s)]) if intercept else x
    P = W.copy()
    if intercept:
        P = np.block([[W, b[:, None]], [b[None], np.zeros((1, 1))]])
    asymmetry = float(np.abs(W - W.T).max()) + float(np.abs(np.diag(W)).max())
    asymmetry += 0.0 if intercept else float(np.abs(b).max())
    fields = Z * (Z @ P.T)  # z_i·(P z)_i, one less the diagonal
    missing = 1.0 - fields.mean(axis=0)
    moved = float(np.abs(fields - (1.0 - missing)).max())
    size = float(np.abs(P).sum(axis=1).max()) + 2.0
    P.flat[:: len(P) + 1] += missing
    C = np.linalg.lstsq(Z.T, P, rcond=1e-10)[0]
    left = P - Z.T @ C
    width = np.abs(P) + np.abs(C).sum(axis=0)  # |Zᵀ||C|, as entries of Z are ±1
    slack = gamma(n + s + 8) * size + gamma(s + 8) * float(width.max())
    return Number(max(asymmetry, moved, float(np.abs(left).max())), slack)
