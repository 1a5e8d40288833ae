"""Modern Hopfield networks: recall of real patterns by one softmax.

    ξ ← Σ_j p_j x_j,   p = softmax(β·x_j·ξ)
    E(ξ) = −(1/β) log Σ_j exp(β x_j·ξ) + ½‖ξ‖² + (1/β) log s + ½ max‖x‖²

From x_i the step leads at most Σ_j exp(−β g_ij)·‖x_j − x_i‖ away from it, where
g_ij = x_i·(x_i − x_j) is the separation from another pattern j.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.special import logsumexp, softmax

from certus.base import Fitted, certified_fit, check_choice, check_number
from certus.callbacks import Monitor
from certus.certificate import Evidence
from certus.memory.patterns import MemoryModel
from certus.typing import Array, ArrayLike

#: Inner products that are held at a time.
CELLS = 1 << 22
#: Share by which stated radii are smaller than computed, more than rounding.
SAFE = 1e-6


class ModernHopfield(MemoryModel):
    """Associative memory for patterns of real numbers.

    ``predict`` recalls: one step from a damaged pattern usually ends at the stored one.

    Objective
    ---------
    Each stored pattern x is a fixed point of ξ ← Σ_j softmax_j(β x_j·ξ)·x_j, up to
    ``tol`` times the largest norm.

    Certificate
    -----------
    ``retrieval_error`` (PROVED): a bound on how far one step leads away from a stored
    pattern, from the separation of the patterns. ``repair_radius`` (PROVED): one step
    from anywhere within ``radius_`` of a pattern ends that close to it.
    ``training_rows`` (PROVED): the stored patterns are those you passed. ``recall``
    (PROVED): how far ``predict`` leads from sampled patterns, compared directly.

    Parameters
    ----------
    beta : float or "auto", default="auto"
        Inverse temperature: large values separate patterns, small ones average them.
        "auto" takes twice the smallest value for which each pattern is retrieved to
        within ``tol``.
    tol : float, default=1e-6
        Target of the certificate's primary claim. It is a share of the largest norm.
    max_iter : int, default=1
        Maximum number of iterations. They are steps of ``predict``.

    Attributes
    ----------
    patterns_ : ndarray of shape (n_samples, n_features)
        The stored patterns.
    beta_ : float
        The inverse temperature used.
    radius_ : ndarray of shape (n_samples,)
        How far a query may be from each pattern and still be led to within ``tol`` of
        it in one step; negative where not even the pattern itself is.
    n_iter_ : int
        1.
    certificate_ : Certificate
        What the verifier found.

    Notes
    -----
    A fit costs O(s²·d) for s patterns of d numbers, a step of ``predict`` O(s·d) for
    each row. The fit is one pass over all pairs of patterns: there is nothing to
    resume, and callbacks see its beginning and its end. The number of random patterns
    that can be stored grows exponentially in d.

    Examples
    --------
    >>> import numpy as np
    >>> from certus.memory import ModernHopfield
    >>> patterns = np.random.default_rng(0).normal(size=(100, 16))
    >>> patterns /= np.linalg.norm(patterns, axis=1, keepdims=True)
    >>> memory = ModernHopfield().fit(patterns)
    >>> found = memory.predict(patterns + 0.02)
    >>> bool(np.abs(found - patterns).max() < 1e-5), memory.certificate_.met
    (True, True)
    """

    def __init__(
        self, beta: float | str = "auto", *, tol: float = 1e-6, max_iter: int = 1
    ) -> None:
        self.beta = beta
        self.tol = tol
        self.max_iter = max_iter

    @certified_fit
    def fit(self, X: Any, y: ArrayLike | None = None) -> Any:
        """Store patterns.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            One pattern in each row.
        y : None
            Ignored.
        """
        if isinstance(self.beta, str):
            check_choice("beta", self.beta, ("auto",))
        else:
            check_number("beta", self.beta, open_low=True)
        check_number("tol", self.tol, open_low=True)
        check_number("max_iter", self.max_iter, 1, integer=True)
        X = self._rows(X, first=True)
        self.patterns_, monitor = X.copy(), Monitor(self, X, None)
        self.beta_ = 1.0
        rows = X.astype(np.float64)
        if self.beta == "auto":
            needed = _needed_beta(rows, float(self.tol))
            # At the border itself no query but the pattern would be led to it.
            self.beta_ = 2 * needed if needed > 0 else 1.0
        else:
            self.beta_ = float(self.beta)
        self.radius_ = _radii(rows, self.beta_, float(self.tol))
        self.n_iter_ = 1
        monitor.close({})
        return Fitted(Evidence("memory"), X, None)

    def predict(self, X: Any) -> Array:
        """Recall: the pattern, or the mean of patterns, that each row leads to.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Damaged patterns.

        Returns
        -------
        ndarray of shape (n_samples, n_features)
            The states after ``max_iter`` steps.
        """
        X = self._rows(X)
        out = np.array(X, dtype=np.float64)
        patterns = self.patterns_.astype(np.float64)
        step = max(1, CELLS // len(patterns))
        for start in range(0, len(out), step):
            here = out[start : start + step]
            for _ in range(int(self.max_iter)):
                shares = softmax(self.beta_ * (here @ patterns.T), axis=1)
                here = shares @ patterns
            out[start : start + step] = here
        return out.astype(X.dtype)

    def energy(self, X: Any) -> Array:
        """Energy of each row; a step of recall never raises it.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            States.

        Returns
        -------
        ndarray of shape (n_samples,)
            −(1/β) log Σ_j exp(β x_j·ξ) + ½‖ξ‖² + (1/β) log s + ½ max‖x‖², which is
            never negative.
        """
        X = self._rows(X).astype(np.float64)
        patterns, beta = self.patterns_.astype(np.float64), self.beta_
        top = float(np.square(patterns).sum(axis=1).max())
        rows = max(1, CELLS // len(patterns))
        found = [np.zeros(0)]
        for start in range(0, len(X), rows):
            part = X[start : start + rows]
            level = logsumexp(beta * (part @ patterns.T), axis=1) / beta
            found.append(0.5 * np.square(part).sum(axis=1) - level)
        return np.concatenate(found) + np.log(len(patterns)) / beta + 0.5 * top


def _pairs(X: Array) -> Any:
    """Blocks of separations g and distances D; infinite g between equal patterns."""
    square = np.square(X).sum(axis=1)
    rows = max(1, CELLS // len(X))
    for start in range(0, len(X), rows):
        part = slice(start, start + rows)
        G = X[part] @ X.T
        D = np.sqrt(np.maximum(square[part, None] + square - 2 * G, 0.0))
        near = np.less_equal(D, 1e-7 * np.sqrt(square.max()))
        g = np.where(near, np.inf, square[part, None] - G)
        yield part, g, np.where(near, 1.0, D)


def _needed_beta(X: Array, tol: float) -> float:
    """The β for which the bound of each pattern that can be retrieved is ``tol``."""
    goal, worst = tol * _largest(X), 0.0
    for _, g, D in _pairs(X):
        ask = np.log(np.maximum(len(X) * D / goal, 1.0))
        each = np.where((g > 0) & np.isfinite(g), ask / np.where(g > 0, g, 1.0), 0.0)
        worst = max(worst, float(each.max(initial=0.0)))
    return worst if np.isfinite(worst) else 0.0


def _radii(X: Array, beta: float, tol: float) -> Array:
    """Radii within which every term of the bound is at most tol/s of the largest norm.

    g_ij − r·D_ij ≥ log(s·D_ij/(tol·M))/β for all j.
    """
    M, out = _largest(X), np.empty(len(X))
    goal = tol * M * (1 - SAFE)
    for part, g, D in _pairs(X):
        ask = np.log(len(X) * D / goal) / beta
        least = ((g - ask) / D).min(axis=1)
        least = np.nan_to_num(np.minimum(least, M), nan=-M, neginf=-M)
        out[part] = least - SAFE * np.abs(least) - 1e-9 * M
    return out


def _largest(X: Array) -> float:
    """The largest norm of a pattern; one where all are zero."""
    found = float(np.sqrt(np.square(X).sum(axis=1).max()))
    if not np.isfinite(found):
        raise OverflowError("the squares of the patterns overflow")
    return found or 1.0
