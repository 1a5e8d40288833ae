"""The three smallest data sets of the notes: two truth tables and six emails.

Labels are ±1, rows in the order in which the notes visit them. And a tiny network.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from certus.typing import Array

__all__ = ["TinyNetwork", "or_table", "spam_emails", "xor_table"]

_CORNERS = ((0.0, 0.0), (1.0, 0.0), (0.0, 1.0), (1.0, 1.0))


def or_table() -> tuple[Array, Array]:
    """The truth table of OR: a line separates it.

    Examples
    --------
    >>> from certus.testing.toys import or_table
    >>> or_table()[1]
    array([-1,  1,  1,  1])
    """
    return np.array(_CORNERS), np.array([-1, 1, 1, 1])


def xor_table() -> tuple[Array, Array]:
    """The truth table of XOR: no line separates it.

    Examples
    --------
    >>> from certus.testing.toys import xor_table
    >>> xor_table()[1]
    array([-1,  1,  1, -1])
    """
    return np.array(_CORNERS), np.array([-1, 1, 1, -1])


def spam_emails() -> tuple[Array, Array, Array]:
    """Six emails over the words and, viagra, the, of, nigeria; and one to judge.

    Returns
    -------
    X, y, new : ndarray
        Which words occur (6 × 5), labels (spam is 1), and an email without a label.

    Examples
    --------
    >>> from certus.testing.toys import spam_emails
    >>> X, y, new = spam_emails()
    >>> X.shape, new
    ((6, 5), array([1., 1., 0., 0., 0.]))
    """
    X = np.array(
        [
            [1, 1, 0, 1, 1],
            [0, 0, 1, 1, 0],
            [0, 1, 1, 0, 0],
            [1, 0, 0, 1, 0],
            [1, 0, 1, 0, 1],
            [1, 0, 1, 1, 0],
        ],
        dtype=float,
    )
    return X, np.array([1, -1, 1, -1, 1, -1]), np.array([1.0, 1.0, 0.0, 0.0, 0.0])


@dataclass(frozen=True)
class TinyNetwork:
    """Makes a network of one hidden layer in float64, for checks; needs PyTorch.

    Parameters
    ----------
    hidden : int, default=32
        Units.

    Examples
    --------
    >>> from certus.testing.toys import TinyNetwork
    >>> sum(p.numel() for p in TinyNetwork()(3, 2).parameters())
    194
    """

    hidden: int = 32

    def __call__(self, n_inputs: int, n_outputs: int) -> Any:
        """A module of that many inputs and outputs."""
        from torch import nn

        first = nn.Linear(n_inputs, self.hidden)
        last = nn.Linear(self.hidden, n_outputs)
        return nn.Sequential(first, nn.Tanh(), last).double()
