"""The McCulloch–Pitts unit, and the disjunction of conjunctions that it computes.

    f(x) = 1{Σ σ_i x_i ≥ θ},   x ∈ {0, 1}ⁿ, σ ∈ {−1, 1}ⁿ, θ a whole number

f is the OR, over all sets I with Σ_{i∈I} σ_i ≥ θ, of the AND of x_i for i in I and of
NOT x_i for the others: one conjunction for each input on which the unit fires.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np

from certus.base import check_number
from certus.typing import Array, ArrayLike

#: Most inputs of a truth table, which has 2ⁿ rows.
MOST = 20


@dataclass(frozen=True)
class ThresholdUnit:
    """A McCulloch–Pitts unit: it fires if enough of its inputs agree.

    Parameters
    ----------
    signs : sequence of {-1, 1}
        1 for an input that excites the unit, −1 for one that inhibits it.
    threshold : int
        The sum from which the unit fires.

    Examples
    --------
    >>> from certus.memory import ThresholdUnit
    >>> both = ThresholdUnit((1, 1), threshold=2)
    >>> both.truth_table()
    array([0, 0, 0, 1])
    >>> not_first = ThresholdUnit((-1, 1), threshold=1)
    >>> not_first.formula()
    'not x0 and x1'
    """

    signs: tuple[int, ...]
    threshold: int

    def __post_init__(self) -> None:
        signs = tuple(np.ravel(np.asarray(self.signs)).tolist())
        if not signs or any(sign not in (-1, 1) for sign in signs):
            raise ValueError(f"signs must hold only -1 and 1, got {self.signs!r}.")
        check_number("threshold", self.threshold, -np.inf, integer=True)
        object.__setattr__(self, "signs", tuple(int(sign) for sign in signs))
        object.__setattr__(self, "threshold", int(self.threshold))

    def predict(self, X: ArrayLike) -> Array:
        """Whether the unit fires on each row.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_inputs)
            Zeros and ones.

        Returns
        -------
        ndarray of shape (n_samples,)
            Zeros and ones.
        """
        rows = boolean_rows(X, len(self.signs))
        sums = rows @ np.array(self.signs)
        return np.asarray(sums >= self.threshold, dtype=np.int64)

    def truth_table(self) -> Array:
        """The outputs for all inputs, in the order of binary numbers.

        Returns
        -------
        ndarray of shape (2**n_inputs,)
            Zeros and ones; the first input is the most significant digit.
        """
        return self.predict(all_inputs(len(self.signs)))

    def normal_form(self) -> list[tuple[bool, ...]]:
        """The disjunctive normal form: its conjunctions, one for each set that fires.

        Returns
        -------
        list of tuple of bool
            For each conjunction whether each input is asked for (True) or its negation
            (False); empty if the unit never fires.
        """
        found: list[tuple[bool, ...]] = []
        signs = self.signs
        rest = np.cumsum([sign > 0 for sign in signs[::-1]])[::-1]

        def extend(chosen: tuple[bool, ...], total: int) -> None:
            i = len(chosen)
            if i == len(signs):
                found.append(chosen)
                return
            for taken in (False, True):
                reached = total + taken * signs[i]
                # What the later inputs can still add at most.
                most = int(rest[i + 1]) if i + 1 < len(signs) else 0
                if reached + most >= self.threshold:
                    extend((*chosen, taken), reached)

        _few(len(signs))
        if int(rest[0]) >= self.threshold:
            extend((), 0)
        return found

    def formula(self) -> str:
        """The disjunctive normal form as text, with inputs x0, x1 and so on.

        Returns
        -------
        str
            "False" if the unit never fires.
        """
        terms = [
            " and ".join(f"{'' if on else 'not '}x{i}" for i, on in enumerate(term))
            for term in self.normal_form()
        ]
        if len(terms) == 1:
            return terms[0]
        return " or ".join(f"({term})" for term in terms) or "False"


def boolean_rows(X: Any, n: int) -> Array:
    """Rows of n zeros and ones, or an error that says what they must be."""
    rows = np.asarray(X)
    if rows.ndim != 2 or rows.shape[1] != n:
        raise ValueError(f"X must have shape (n_samples, {n}), got {rows.shape}.")
    if rows.dtype.kind not in "fiub" or not np.isin(rows, (0, 1)).all():
        raise ValueError("X must hold only zeros and ones.")
    return rows.astype(np.int64)


def all_inputs(n: int) -> Array:
    """All rows of n zeros and ones, in the order of binary numbers."""
    _few(n)
    return np.array(list(product((0, 1), repeat=n)), dtype=np.int64).reshape(-1, n)


def _few(n: int) -> None:
    if n > MOST:
        raise ValueError(f"a truth table must have at most {MOST} inputs, got {n}.")
