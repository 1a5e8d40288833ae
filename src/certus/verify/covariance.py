"""The covariance of rows about a point, as the verifier computes it: one pass, float64.

Where rows are fewer than columns it is never formed; the centred rows are used instead.
In both, an entry is off by at most γ times the deviations of its two columns: rows are
multiplied in runs of 256, so that γ = γ_{depth(n) + d + 4} for any product with it.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from certus.typing import Array
from certus.verify.blocks import add_up, over_blocks
from certus.verify.deciding import gamma

#: Rows multiplied at a time, and blocks added up before they join the total.
RUN, GROUP = 256, 64
#: Up to this many rows or columns, eigenvalues are computed.
EIGEN = 2_000
_SMALL = 1024


def depth(n: int) -> int:
    """How many additions each of n rows goes through, in runs, groups and a total."""
    return min(n, RUN) + min(n // RUN + 1, GROUP) + n // (RUN * GROUP) + 1


def eigen(G: Array) -> tuple[Array, Array, float]:
    """Eigenvalues of a symmetric matrix, falling, vectors, and how far values are off.

    With R = GV − VΛ and ε = ‖VᵀV − I‖, the polar factor Q of V has QᵀGQ = Λ + F,
    ‖F‖ ≤ (‖R‖ + 2ε‖Λ‖)/(1 − ε), so each eigenvalue is that near to its own of Λ (Weyl);
    however V and Λ were found. Both norms are computed here, with their rounding.
    """
    values, V = np.linalg.eigh(G)
    d = len(G)
    size, norm = float(np.linalg.norm(G)), float(np.abs(values).max(initial=0.0))
    slip = float(np.linalg.norm(G @ V - V * values)) + gamma(d + 4) * 2 * (
        (size + norm) * math.sqrt(d)
    )
    skew = float(np.linalg.norm(V.T @ V - np.eye(d))) + gamma(d + 4) * 2 * d
    off = (slip + 2 * skew * norm) / (1 - skew) if skew < 0.5 else math.inf
    return values[::-1], V[:, ::-1], off


class Spread(NamedTuple):
    """Covariance about a point: the matrix, or the centred rows over √n."""

    matrix: Array
    diagonal: Array
    formed: bool
    share: float = 0.0  # γ of its entries, and of products with them

    def times(self, B: Array) -> Array:
        """S @ B."""
        product = self.matrix @ B
        return np.asarray(product if self.formed else self.matrix.T @ product)

    def eigen(self) -> tuple[Array, Array]:
        """Eigenvalues, falling, and vectors as columns."""
        if self.formed:
            return eigen(self.matrix)[:2]
        _, s, Vt = np.linalg.svd(self.matrix, full_matrices=False)
        return np.square(s), Vt.T

    def bounds(self) -> tuple[Array, float]:
        """Eigenvalues, falling, those that are not zero, and how far they may be off.

        ‖E‖ ≤ γ·tr S for the rounding E in S (|E_ij| ≤ γ·s_i s_j).
        """
        M = self.matrix if self.formed else self.matrix @ self.matrix.T
        values, _, off = eigen(M)
        return values, off + 2 * self.share * float(self.diagonal.sum())

    def scaled(self, u: Array, some: Array | None = None) -> Spread:
        """The covariance of some columns, each multiplied by its entry of u."""
        some = np.ones(len(self.diagonal), dtype=bool) if some is None else some
        matrix = self.matrix[:, some] * u
        if self.formed:
            matrix = matrix[some] * u[:, None]
        return self._replace(matrix=matrix, diagonal=self.diagonal[some] * u * u)

    def about_the_mean(self, shift: Array) -> Spread:
        """The covariance about the mean, which lies at ``shift``.

        Rounding stays that of the larger deviations about the point.
        """
        if self.formed:
            matrix = self.matrix - np.outer(shift, shift)
            diagonal = np.diag(matrix).copy()
        else:
            matrix = self.matrix - shift / math.sqrt(len(self.matrix))
            diagonal = np.einsum("ij,ij->j", matrix, matrix)
        some = self.diagonal > 0
        with np.errstate(divide="ignore"):
            more = (self.diagonal[some] / np.abs(diagonal[some])).max(initial=1.0)
        share = 2 * float(more) * self.share
        return self._replace(matrix=matrix, diagonal=diagonal, share=share)


def covariance_about(X: Array, point: Array) -> tuple[Spread, Array]:
    """Σ(x − p)(x − p)ᵀ/n and mean of x − p, in one pass over the rows."""
    n, d = X.shape
    share = gamma(depth(n) + d + 4)
    if d > n and d > _SMALL:
        rows = np.subtract(X, point, dtype=np.float64)
        shift = rows.mean(axis=0)
        rows = rows / math.sqrt(n)
        return Spread(rows, np.einsum("ij,ij->j", rows, rows), False, share), shift

    ones = np.ones(RUN)

    def look(part: slice) -> tuple[Array, Array]:
        square, total = np.zeros((d, d)), np.zeros(d)
        block, product = np.empty((RUN, d)), np.empty((d, d))
        for i in range(part.start, part.stop, RUN):
            rows = X[i : min(i + RUN, part.stop)]
            some = np.subtract(rows, point, out=block[: len(rows)])
            square += np.matmul(some.T, some, out=product)
            total += ones[: len(rows)] @ some
        return square, total

    # In this thread: BLAS has its own, and after a fit they are awake.
    square, total = add_up(over_blocks(look, n, RUN * GROUP, alone=True))
    square /= n
    return Spread(square, np.diag(square).copy(), True, share), total / n
