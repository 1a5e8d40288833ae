"""Linear systems (K + diag d) x = r, the core of kernel ridge and kernel logistic.

Up to ``DIRECT`` rows the matrix is held and factored. Beyond, it is never held:
products are formed block by block, and conjugate gradients are preconditioned by the
kernel on a few hundred landmark rows (Nyström): the time of some dozen kernel matrices.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy import linalg

from certus._core.blas import cholesky
from certus.kernels.evaluate import evaluate
from certus.kernels.rows import multiply
from certus.objectives import terms as t
from certus.typing import Array, Matrix

#: Rows up to which the kernel matrix is held.
DIRECT = 8_000
#: Landmark rows of the preconditioner.
LANDMARKS = 600
#: Residual, relative to the right-hand side, at which conjugate gradients stop.
RESIDUAL = 1e-11
MAX_STEPS = 1_000

Solver = Callable[[Array], Array]


class KernelSystem:
    """The kernel matrix of X, ready to be multiplied and, with a diagonal, inverted."""

    def __init__(self, kernel: t.Kernel, X: Matrix) -> None:
        self.kernel, self.X, self.n = kernel, X, X.shape[0]
        self.K: Array | None = None
        if isinstance(kernel, t.Precomputed):
            self.K = np.asarray(X, dtype=np.float64)
        elif self.n <= DIRECT:
            self.K = evaluate(kernel, X, X)
        self._landmarks: tuple[Array, Array] | None = None

    @property
    def method(self) -> str:
        """How systems are solved."""
        return "conjugate gradients" if self.K is None else "Cholesky"

    def product(self, v: Array) -> Array:
        """K v."""
        if self.K is not None:
            return np.asarray(self.K @ v)
        return multiply(self.kernel, self.X, self.X, v)

    def factor(self, d: Array) -> Solver:
        """A function r ↦ (K + diag d)⁻¹ r."""
        return self._conjugate(d) if self.K is None else self._direct(d)

    def _direct(self, d: Array) -> Solver:
        assert self.K is not None
        K, M = self.K, self.K.copy()
        M.flat[:: self.n + 1] += d
        upper = cholesky(M)
        if upper is None:  # singular, or not positive: least squares, shortest x
            whole = K + np.diag(d)
            return lambda r: np.asarray(linalg.lstsq(whole, r, check_finite=False)[0])

        def solve(r: Array) -> Array:
            x = linalg.cho_solve((upper, False), r, check_finite=False)
            shift = d if r.ndim == 1 else d[:, None]
            again = r - K @ x - shift * x
            return np.asarray(x + linalg.cho_solve((upper, False), again))

        return solve

    def _nystrom(self) -> tuple[Array, Array]:
        """L with LLᵀ ≈ K from landmark rows, evenly spaced."""
        if self._landmarks is None:
            few = np.unique(np.linspace(0, self.n - 1, LANDMARKS).astype(int))
            columns = evaluate(self.kernel, self.X, self.X[few])
            core = columns[few]
            core = (core + core.T) / 2
            values, vectors = linalg.eigh(core)
            keep = values > values.max() * 1e-10
            L = columns @ (vectors[:, keep] / np.sqrt(values[keep]))
            self._landmarks = (np.ascontiguousarray(L), few)
        return self._landmarks

    def _conjugate(self, d: Array) -> Solver:
        L, _ = self._nystrom()
        inner = np.eye(L.shape[1]) + (L / d[:, None]).T @ L
        core = linalg.cho_factor(inner, check_finite=False)

        def precondition(r: Array) -> Array:
            scaled = r / d
            return scaled - (L @ linalg.cho_solve(core, L.T @ scaled)) / d

        def solve(r: Array) -> Array:
            if r.ndim == 2:
                return np.column_stack([solve(column) for column in r.T])
            x = np.zeros(self.n)
            residual = r.copy()
            z = precondition(residual)
            direction, rho = z, float(residual @ z)
            limit = RESIDUAL * float(np.linalg.norm(r))
            for _ in range(MAX_STEPS):
                if np.linalg.norm(residual) <= limit:
                    break
                pushed = self.product(direction) + d * direction
                step = rho / float(direction @ pushed)
                x += step * direction
                residual -= step * pushed
                z = precondition(residual)
                rho, last = float(residual @ z), rho
                direction = z + (rho / last) * direction
            return x

        return solve
