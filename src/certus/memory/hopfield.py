"""Hopfield networks: ±1 patterns as fixed points of a network of threshold units.

    x_i ← sign(Σ_j W_ij x_j + b_i),   E(x) = −½ xᵀWx − bᵀx

With symmetric weights and updates one unit at a time the energy never rises, so recall
ends at a fixed point. A field of zero leaves its unit as it is.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from certus._core.threads import Stop, run_blocks, slices
from certus.base import Fitted, certified_fit, check_choice, check_number
from certus.callbacks import Monitor
from certus.certificate import Evidence
from certus.evidence import MemoryWitness
from certus.memory import hopfield_kernels as kernels
from certus.memory import storing
from certus.memory.patterns import MemoryModel, as_signs, check_binarize
from certus.memory.storing import Stored
from certus.typing import Array, ArrayLike

RULES = ("hebb", "projection", "margin")
UPDATES = ("asynchronous", "synchronous")
#: Rows that are recalled together.
BLOCK = 1024


class HopfieldNetwork(MemoryModel):
    """Associative memory for patterns of two values.

    ``predict`` recalls: it takes damaged patterns and returns where the network comes
    to rest.

    Objective
    ---------
    Every stored pattern is a fixed point of x_i ← sign(Σ_j W_ij x_j + b_i).

    Certificate
    -----------
    ``fixed_points`` (PROVED): how many units of stored patterns have no margin.
    ``repair_radius`` (PROVED): any ``radius_`` flips of a pattern are repaired in one
    synchronous step. ``rule_weights`` (PROVED): the weights are those of the rule.
    ``energy_rise`` (PROVED): replayed from damaged patterns, the energy never rises;
    refused where the weights are not symmetric. ``recall`` (PROVED): the replay ends
    where ``predict`` ends. With ``rule="margin"``, ``not_storable`` (PROVED) shows
    that no weights at all store the patterns, where that is so.

    Parameters
    ----------
    rule : {"hebb", "projection", "margin"}, default="hebb"
        How the weights are made. "hebb" adds products of the patterns and stores
        about 0.138 random patterns for each unit; "projection" stores up to as many
        independent patterns as units; "margin" finds for each unit the weights of
        widest margin, up to twice as many patterns as units.
    binarize : float or None, default=0.0
        Entries above it count as 1, others as −1. None demands entries 0 and 1, or −1
        and 1.
    update : {"asynchronous", "synchronous"}, default="asynchronous"
        How ``predict`` updates units: one after the other, or all at once. All at once
        may alternate between two states forever.
    fit_intercept : bool, default=False
        Whether to fit an intercept b. It is one number for each unit.
    max_iter : int, default=1000
        Maximum number of iterations. They are sweeps over the units in ``predict``,
        and over the patterns in a fit with ``rule="margin"``.
    max_time : float, default=None
        Seconds after which the fit stops and keeps what it has.
    warm_start : bool, default=False
        Whether to start from the last fit. Only ``rule="margin"`` has sweeps that go
        on; the other rules are solved at once.

    Attributes
    ----------
    weights_ : ndarray of shape (n_features, n_features)
        Weights from unit j to unit i, with a diagonal of zeros.
    intercept_ : ndarray of shape (n_features,)
        Constants.
    radius_ : ndarray of shape (n_samples,)
        Flips of each stored pattern that one synchronous step repairs, whichever they
        are; −1 for a pattern with a unit that has no margin.
    values_ : ndarray of shape (2,)
        The two values that ``predict`` returns: 0 and 1 if the patterns had those.
    duals_ : ndarray of shape (n_features, n_samples)
        For ``rule="margin"``: how much each pattern counts for each unit.
    n_iter_ : int
        Sweeps of the fit.
    history_ : dict
        For ``rule="margin"``: half the squared norm of the weights (``objective``),
        the share of units that do not rest yet (``gap``) and seconds.
    certificate_ : Certificate
        What the verifier found.

    Notes
    -----
    O(s·n²) for s patterns of n units, with "margin" O(n·s²) for each sweep. The radius
    is what one step is certain to repair; several steps usually repair far more.

    Examples
    --------
    >>> import numpy as np
    >>> from certus.memory import HopfieldNetwork
    >>> patterns = np.array([[1, 1, 1, 1, -1, -1, -1, -1], [1, -1] * 4])
    >>> memory = HopfieldNetwork().fit(patterns)
    >>> damaged = patterns[0].copy()
    >>> damaged[2] = -1
    >>> memory.predict([damaged])[0].astype(int)
    array([ 1,  1,  1,  1, -1, -1, -1, -1])
    >>> memory.radius_, memory.certificate_.met
    (array([1, 1]), True)
    """

    def __init__(
        self,
        rule: str = "hebb",
        *,
        binarize: float | None = 0.0,
        update: str = "asynchronous",
        fit_intercept: bool = False,
        max_iter: int = 1000,
        max_time: float | None = None,
        warm_start: bool = False,
    ) -> None:
        self.rule = rule
        self.binarize = binarize
        self.update = update
        self.fit_intercept = fit_intercept
        self.max_iter = max_iter
        self.max_time = max_time
        self.warm_start = warm_start

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
        check_choice("rule", self.rule, RULES)
        check_choice("update", self.update, UPDATES)
        check_number("max_iter", self.max_iter, 1, integer=True)
        check_number("max_time", self.max_time, none=True)
        check_binarize(self.binarize)
        X = self._rows(X, first=True)
        x = as_signs(X, self.binarize)
        monitor = Monitor(self, X, None, None, self.max_time)
        found = self._store(x, monitor)
        self.weights_, self.intercept_ = found.weights, found.intercept
        self.__dict__.pop("duals_", None)
        if found.duals is not None:
            self.duals_ = found.duals
        self.radius_ = storing.radii(x, self.weights_, self.intercept_)
        zeros = bool(np.isin(X, (0.0, 1.0)).all() and (X == 0).any())
        self.values_ = np.array([0.0 if zeros else -1.0, 1.0])
        self.n_iter_, self.history_ = found.n_iter, monitor.history
        monitor.close(self._attributes())
        witness = MemoryWitness(found.unit, found.combination)
        return Fitted(Evidence("memory", witness), X, None, None, found.status)

    def _store(self, x: Array, monitor: Monitor) -> Stored:
        if self.rule == "hebb":
            return storing.hebb(x, self.fit_intercept)
        if self.rule == "projection":
            return storing.projection(x, self.fit_intercept)
        last = getattr(self, "duals_", None) if self.warm_start else None
        if last is not None and last.shape != x.T.shape:
            last = None
        return storing.margin(x, self.fit_intercept, self, monitor, last)

    def _attributes(self) -> dict[str, Any]:
        names = ("weights_", "intercept_", "radius_", "values_", "n_iter_")
        return {name: getattr(self, name) for name in names}

    def predict(self, X: Any) -> Array:
        """Recall: where the network comes to rest from each row.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Damaged or partial patterns.

        Returns
        -------
        ndarray of shape (n_samples, n_features)
            The states at rest, in ``values_``; after ``max_iter`` sweeps the last ones.
        """
        X = self._rows(X)
        low, high = self.values_
        out = np.empty(X.shape, dtype=X.dtype)
        recall = self._in_turn if self.update == "asynchronous" else self._at_once
        kind = storing.exact_dtype(self.weights_, self.intercept_)
        W, b = self.weights_.astype(kind), self.intercept_.astype(kind)
        ties = storing.tie_widths(self.weights_, self.intercept_).astype(kind)

        def work(rows: slice, stop: Stop) -> None:
            states = as_signs(X[rows], self.binarize).astype(kind)
            recall(states, W, b, ties)
            out[rows] = np.where(states > 0, high, low)

        run_blocks(work, slices(len(X), BLOCK))
        return out

    def _in_turn(self, states: Array, W: Array, b: Array, ties: Array) -> None:
        """Update the units of each row one after the other, in place."""
        fields, columns = states @ W.T + b, np.ascontiguousarray(W.T)
        kernels.recall_in_turn(states, fields, columns, ties, int(self.max_iter))

    def _at_once(self, states: Array, W: Array, b: Array, ties: Array) -> None:
        """Update all units of each row together, in place."""
        moving = np.arange(len(states))
        for _ in range(int(self.max_iter)):
            before = states[moving]
            fields = before @ W.T + b
            after = np.where(np.abs(fields) > ties, np.sign(fields), before)
            states[moving] = after
            moving = moving[(after != before).any(axis=1)]
            if not len(moving):
                break

    def energy(self, X: Any) -> Array:
        """E(x) = −½ xᵀWx − bᵀx of each row, its entries read as −1 and 1.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            States.

        Returns
        -------
        ndarray of shape (n_samples,)
            Energies; recall with symmetric weights, unit by unit, never raises them.
        """
        x = as_signs(self._rows(X), self.binarize)
        pull = 0.5 * (x @ self.weights_.T) + self.intercept_
        return np.asarray(-np.einsum("ij,ij->i", x, pull))
