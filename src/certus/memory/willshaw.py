"""Willshaw's memory: binary synapses that are switched on once and stay on.

    Θ = min(1, Σ_t y^t (x^t)ᵀ),   z = Θx,   y_j = 1{z_j ≥ r},  r the ones of the cue x

A stored pattern is never retrieved with a one missing: only further ones may appear,
at a rate of (fill)^r for r ones in the cue.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from certus.base import Fitted, as_array, certified_fit
from certus.callbacks import Monitor
from certus.certificate import Evidence
from certus.memory import willshaw_kernels as kernels
from certus.memory.patterns import MemoryModel, as_ones, check_binarize
from certus.typing import Array, ArrayLike


class WillshawMemory(MemoryModel):
    """Associative memory for sparse patterns of zeros and ones, one bit for a synapse.

    ``predict`` retrieves what was stored with a cue: with itself, or with a partner.

    Objective
    ---------
    Θ = min(1, Σ_t y^t (x^t)ᵀ), the synapses that some stored pair has used.

    Certificate
    -----------
    ``missing_ones`` (PROVED): no one of a stored pattern is missing when it is
    retrieved, from the whole cue or from any part of its ones. ``rule_weights``
    (PROVED): Θ is that of these patterns. ``false_ones`` (PROVED): how many ones are
    retrieved that were not stored. ``recall`` (PROVED): ``predict`` returns what Θ
    says.

    Parameters
    ----------
    binarize : float or None, default=0.0
        Entries above it count as 1, others as 0. None demands entries 0 and 1, or −1
        and 1.

    Attributes
    ----------
    weights_ : ndarray of bool of shape (n_outputs, n_features)
        Synapses that are on.
    fill_ : float
        Share of them.
    flat_ : bool
        Whether y had one number for each row, and ``predict`` returns one.
    certificate_ : Certificate
        What the verifier found.

    Notes
    -----
    A row with r ones takes r·n/64 operations. The most information, n² ln 2 bits, is
    stored with r = log₂ n ones in a pattern and n² ln 2/r² patterns: then half of the
    synapses are on. A fit is one product of matrices: there is nothing to resume, and
    callbacks see its beginning and its end.

    Examples
    --------
    >>> from certus.memory import WillshawMemory
    >>> patterns = [[1, 1, 0, 0, 0, 0], [0, 0, 1, 1, 0, 0]]
    >>> memory = WillshawMemory().fit(patterns)
    >>> memory.predict([[1, 0, 0, 0, 0, 0]])
    array([[1., 1., 0., 0., 0., 0.]])
    >>> memory.certificate_.met
    True
    """

    def __init__(self, binarize: float | None = 0.0) -> None:
        self.binarize = binarize

    @certified_fit
    def fit(self, X: Any, y: ArrayLike | None = None) -> Any:
        """Store patterns, each with itself or with its partner.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            One cue in each row.
        y : array-like of shape (n_samples, n_outputs) or (n_samples,), optional
            What to retrieve for each cue; by default the cue itself.
        """
        check_binarize(self.binarize)
        X = self._rows(X, first=True)
        cues, monitor = as_ones(X, self.binarize), Monitor(self, X, y)
        targets = cues if y is None else self._targets(y, len(X))
        self.weights_ = (targets.T.astype(np.float32) @ cues.astype(np.float32)) > 0
        self.fill_ = float(self.weights_.mean())
        self.flat_ = bool(y is not None and np.ndim(as_array(y)) == 1)
        monitor.close({})
        return Fitted(Evidence("memory"), X, y)

    def _targets(self, y: Any, n: int) -> Array:
        try:
            found = np.asarray(as_array(y)).astype(np.float64)
        except (TypeError, ValueError):
            told = "Unknown label type: y must hold numbers, a one for each unit on."
            raise ValueError(told) from None
        found = found.reshape(len(found), -1) if found.ndim else found
        if found.ndim != 2 or len(found) != n or not np.isfinite(found).all():
            raise ValueError(
                f"y must hold one finite row for each of the {n} rows of X, got shape "
                f"{np.shape(y)}."
            )
        return as_ones(found, self.binarize, "y")

    def predict(self, X: Any) -> Array:
        """Retrieve what was stored with each cue.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Cues, or parts of them: ones may be missing.

        Returns
        -------
        ndarray of shape (n_samples, n_outputs)
            Zeros and ones; one number for each row if y had one.
        """
        X = self._rows(X)
        cues = as_ones(X, self.binarize)
        n_out, n_in = self.weights_.shape
        words = -(-n_out // 64)
        bits = np.zeros((n_in, words * 64), dtype=bool)
        bits[:, :n_out] = self.weights_.T
        columns = np.packbits(bits, axis=1).view(np.uint64)
        out = np.full((len(cues), words), np.iinfo(np.uint64).max, dtype=np.uint64)
        kernels.retrieve(cues, columns, out)
        found = np.unpackbits(out.view(np.uint8), axis=1)[:, :n_out].astype(X.dtype)
        return found[:, 0] if self.flat_ else found
