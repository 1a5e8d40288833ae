"""The three smallest data sets of the notes: two truth tables and six emails.

Labels are ±1, rows in the order in which the notes visit them.
"""

from __future__ import annotations

from typing import Any

import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]

__all__ = ["or_table", "spam_emails", "xor_table"]

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
