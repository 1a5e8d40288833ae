"""Which modes of a known distribution samples reach, and how often at least."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from certus.base import check_number
from certus.bounds import clopper_pearson
from certus.generative.inputs import rows
from certus.typing import Array, MatrixLike


class ModeShares(NamedTuple):
    """Result of :func:`mode_shares`.

    Attributes
    ----------
    counts : ndarray of int
        Rows near each centre.
    lower : ndarray
        Lower bounds of the shares, which hold together with probability 1 − delta.
    inside : float
        Share of the rows near any centre.
    """

    counts: Array
    lower: Array
    inside: float

    def covered(self, least: float = 0.01) -> int:
        """How many modes have a lower bound above ``least``.

        Parameters
        ----------
        least : float, default=0.01
            A share.
        """
        return int((self.lower > least).sum())


def mode_shares(
    X: MatrixLike, centers: MatrixLike, *, radius: float, delta: float = 0.05
) -> ModeShares:
    """Count rows near each centre: a generator that collapses misses some.

    Parameters
    ----------
    X : array-like of shape (n_samples, n_features)
        Independent draws of a generator.
    centers : array-like of shape (n_modes, n_features)
        Where the modes are.
    radius : float
        Rows farther away belong to no mode; three standard deviations are usual.
    delta : float, default=0.05
        Failure probability: the chance that the statement does not hold.

    Returns
    -------
    ModeShares

    Examples
    --------
    >>> import numpy as np
    >>> from certus.generative import mode_shares
    >>> X = np.repeat([[0.0], [5.0]], 200, axis=0)
    >>> found = mode_shares(X, [[0.0], [5.0], [9.0]], radius=1.0)
    >>> found.counts, found.covered()
    (array([200, 200,   0]), 2)
    """
    X, centers = rows("X", X), rows("centers", centers)
    check_number("radius", radius, open_low=True)
    if X.shape[1] != centers.shape[1]:
        raise ValueError(
            f"centers must have as many columns as X, got {centers.shape[1]} and "
            f"{X.shape[1]}."
        )
    far = np.linalg.norm(X[:, None] - centers[None], axis=2)
    nearest = far.argmin(axis=1)
    inside = far.min(axis=1) <= radius
    counts = np.bincount(nearest[inside], minlength=len(centers))
    each = delta / len(centers)
    lower = [
        clopper_pearson(int(c), len(X), delta=each, side="lower").low for c in counts
    ]
    return ModeShares(counts, np.array(lower), float(inside.mean()))
