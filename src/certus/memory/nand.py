"""Turing's unorganised machines: clocked networks of NAND units.

    type A   y(t+1) = NAND(x₁(t), x₂(t)): two inputs, wired at random
    type B   each connection has a modifier NAND(c, NAND(x, x)): x if c = 1, and 1 if
             c = 0, which removes the input from the NAND that it leads to

Organising a type-B machine means setting its switches c. With enough units the
switches alone realise every Boolean function.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from certus.base import check_choice, check_number, generator_of
from certus.memory.threshold_unit import boolean_rows
from certus.typing import Array, ArrayLike, RandomState


class NandNetwork:
    """A clocked network of NAND units, of Turing's type A or B.

    Nodes are numbered: first the inputs, then the units in their order. The last unit
    is the output.

    Parameters
    ----------
    n_inputs : int
        How many inputs there are.
    sources : sequence of sequences of int
        For each unit the nodes that it is connected to: exactly two in type A.
    switches : sequence of sequences of {0, 1}, optional
        For each unit the switch of each connection, which makes the network one of
        type B; without them it is one of type A.

    Examples
    --------
    >>> import numpy as np
    >>> from certus.memory import NandNetwork
    >>> xor = NandNetwork(2, [(0, 1), (0, 2), (1, 2), (3, 4)])
    >>> xor.predict([[0, 0], [0, 1], [1, 0], [1, 1]])
    array([0, 1, 1, 0])
    >>> rows = [[0, 0], [0, 1], [1, 0], [1, 1]]
    >>> NandNetwork.organised(rows, [1, 0, 0, 1]).predict(rows)
    array([1, 0, 0, 1])
    """

    def __init__(
        self,
        n_inputs: int,
        sources: Sequence[Sequence[int]],
        *,
        switches: Sequence[Sequence[int]] | None = None,
    ) -> None:
        check_number("n_inputs", n_inputs, 1, integer=True)
        self.n_inputs = int(n_inputs)
        self.sources = [np.asarray(each, dtype=np.int64).ravel() for each in sources]
        self.kind = "A" if switches is None else "B"
        self.switches = [np.ones(len(each), dtype=np.int64) for each in self.sources]
        if switches is not None:
            self.switches = [np.asarray(each).ravel() for each in switches]
        self._check()

    def _check(self) -> None:
        n = self.n_inputs + len(self.sources)
        if not self.sources:
            raise ValueError("sources must name the connections of at least one unit.")
        for unit, each in enumerate(self.sources):
            if self.kind == "A" and len(each) != 2:
                raise ValueError(
                    f"unit {unit} must have two connections, got {len(each)}. Pass "
                    "switches for a network of type B."
                )
            if len(each) and not 0 <= each.min() <= each.max() < n:
                raise ValueError(
                    f"sources of unit {unit} must be nodes from 0 to {n - 1}, got "
                    f"{each.tolist()}."
                )
        alike = [len(each) for each in self.sources] == list(map(len, self.switches))
        if not alike or not all(np.isin(c, (0, 1)).all() for c in self.switches):
            raise ValueError("switches must hold a 0 or a 1 for each connection.")
        self.switches = [each.astype(np.int64) for each in self.switches]

    @classmethod
    def random(
        cls,
        n_inputs: int,
        n_units: int,
        *,
        kind: str = "A",
        random_state: RandomState = None,
    ) -> NandNetwork:
        """An unorganised machine: each unit is wired to two random nodes.

        Parameters
        ----------
        n_inputs, n_units : int
            How many there are.
        kind : {"A", "B"}, default="A"
            With "B" each connection has a switch, set at random.
        random_state : int, RandomState or None, default=None
            Seed or generator of all random numbers.

        Returns
        -------
        NandNetwork
        """
        check_choice("kind", kind, ("A", "B"))
        check_number("n_units", n_units, 1, integer=True)
        rng = generator_of(random_state)
        sources = rng.integers(0, n_inputs + n_units, (n_units, 2)).tolist()
        switches = rng.integers(0, 2, (n_units, 2)).tolist() if kind == "B" else None
        return cls(n_inputs, sources, switches=switches)

    @classmethod
    def organised(cls, X: ArrayLike, y: ArrayLike) -> NandNetwork:
        """Set the switches of a type-B machine so that it computes y from X.

        The machine has an inverter for each input, one unit for each row of X that is
        connected to all inputs and inverters, and an output that is connected to these
        units. All switches begin at 0. A row with y = 1 switches on the connections
        that carry a one on it, and its own connection to the output.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_inputs)
            Zeros and ones.
        y : array-like of shape (n_samples,)
            The wanted output, zeros and ones; equal rows must have equal outputs. Rows
            that are not listed give 0.

        Returns
        -------
        NandNetwork
        """
        rows = boolean_rows(X, np.asarray(X).shape[-1])
        wanted = boolean_rows(np.reshape(y, (-1, 1)), 1)[:, 0]
        s, n = rows.shape
        known: dict[tuple[int, ...], int] = {}
        if len(wanted) != s:
            raise ValueError(
                f"y must have one entry for each of {s} rows, got {len(wanted)}."
            )
        for row, target in zip(map(tuple, rows.tolist()), wanted.tolist()):
            if known.setdefault(row, target) != target:
                raise ValueError(
                    f"y must be equal for equal rows of X, got 0 and 1 for {row}."
                )
        literals = list(range(2 * n))  # inputs, then their inverters
        output = [2 * n + t for t in range(s)]
        sources = [*([i] for i in range(n)), *([literals] * s), output]
        switches: list[list[int]] = [[1]] * n + [[0] * (2 * n) for _ in range(s)]
        for t in np.flatnonzero(wanted):
            switches[n + t] = [*rows[t].tolist(), *(1 - rows[t]).tolist()]
        return cls(n, sources, switches=[*switches, wanted.tolist()])

    def step(self, state: ArrayLike) -> Array:
        """The state one tick later; inputs keep their values.

        Parameters
        ----------
        state : array-like of shape (n_samples, n_nodes)
            Zeros and ones: the inputs, then the units.

        Returns
        -------
        ndarray of shape (n_samples, n_nodes)
            The next state.
        """
        before = boolean_rows(state, self.n_inputs + len(self.sources))
        after = before.copy()
        for unit, (nodes, on) in enumerate(zip(self.sources, self.switches)):
            carried = modified(before[:, nodes], on)
            after[:, self.n_inputs + unit] = 1 - carried.all(axis=1)
        return after

    def predict(self, X: ArrayLike, *, ticks: int | None = None) -> Array:
        """The output once the machine is at rest, or after a number of ticks.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_inputs)
            Zeros and ones; all units begin at 0.
        ticks : int, optional
            How often the clock ticks; by default until nothing changes, which a
            machine with loops may never reach.

        Returns
        -------
        ndarray of shape (n_samples,)
            Zeros and ones.
        """
        check_number("ticks", ticks, 0, integer=True, none=True)
        rows = boolean_rows(X, self.n_inputs)
        state = np.hstack([rows, np.zeros((len(rows), len(self.sources)), np.int64)])
        # Without loops each tick settles at least one more unit.
        most = len(self.sources) + 1 if ticks is None else int(ticks)
        for _ in range(most):
            before, state = state, self.step(state)
            if ticks is None and np.array_equal(before, state):
                return state[:, -1]
        if ticks is None:
            raise ValueError(
                "this network has loops and does not come to rest; set ticks."
            )
        return state[:, -1]


def modified(x: Any, switch: Any) -> Array:
    """The connection modifier NAND(c, NAND(x, x)), made of two NANDs.

    Parameters
    ----------
    x, switch : array-like
        Zeros and ones.

    Examples
    --------
    >>> from certus.memory.nand import modified
    >>> modified([0, 1, 0, 1], [1, 1, 0, 0])
    array([0, 1, 1, 1])
    """
    x, switch = np.asarray(x), np.asarray(switch)
    inner = 1 - x * x
    return np.asarray(1 - switch * inner)
