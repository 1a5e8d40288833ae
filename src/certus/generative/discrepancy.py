"""Maximum mean discrepancy: how far two samples are apart in the space of a kernel.

    MMD² = E k(x, x') + E k(y, y') − 2 E k(x, y),   k = exp(−‖x − y‖²/2h²)

It is 0 only for equal distributions. The kernel matrix is computed in blocks of rows
and never kept. The test permutes the labels "x" and "y" of the pooled rows: if both
samples come from one distribution, every order is equally probable, so P(p ≤ α) ≤ α for
each sample size.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from certus.base import check_number, generator_of
from certus.generative.inputs import rows
from certus.typing import Array, MatrixLike, RandomState

#: Entries of the kernel matrix that are held at once.
BLOCK = 2**21
#: Rows from which the bandwidth is found.
PAIRS = 1000


class MMDTest(NamedTuple):
    """Result of :func:`mmd_test`.

    Attributes
    ----------
    statistic : float
        The unbiased estimate of MMD².
    pvalue : float
        (1 + permutations with at least this value) / (1 + permutations).
    bandwidth : float
        h.
    n_permutations : int
        Number of permutations.
    """

    statistic: float
    pvalue: float
    bandwidth: float
    n_permutations: int


def mmd(
    X: MatrixLike,
    Y: MatrixLike,
    *,
    bandwidth: float | None = None,
    biased: bool = False,
    random_state: RandomState = None,
) -> float:
    """MMD² between two samples, for the Gaussian kernel.

    Parameters
    ----------
    X, Y : array-like of shapes (n, d) and (m, d)
        The samples; a vector is one column.
    bandwidth : float, optional
        h; None means the median distance of pooled rows.
    biased : bool, default=False
        Whether the pairs of a row with itself count. The unbiased estimate has mean 0
        for equal distributions, and may be negative; the biased one is at least 0.
    random_state : int, RandomState instance or None, default=None
        Seed or generator of all random numbers. It is used only to draw rows for
        the median, where there are more than 1000.

    Returns
    -------
    float
        The estimate of MMD². Linear memory, (n + m)² evaluations of the kernel.

    Examples
    --------
    >>> from certus.generative import mmd
    >>> round(mmd([0.0, 1.0], [0.0, 1.0], bandwidth=1.0, biased=True), 12)
    0.0
    >>> round(mmd([0.0, 1.0], [3.0, 4.0], bandwidth=1.0), 4)
    1.1341
    """
    X, Y = _pair(X, Y)
    least = 1 if biased else 2
    if min(len(X), len(Y)) < least:
        raise ValueError(
            f"Each sample must have at least {least} rows, got {len(X)} and {len(Y)}."
        )
    pooled = np.concatenate([X, Y])
    h = _bandwidth(pooled, bandwidth, generator_of(random_state))
    labels = np.arange(len(pooled))[:, None] < len(X)
    return float(_statistics(pooled, labels.astype(np.float64), h, biased)[0])


def mmd_test(
    X: MatrixLike,
    Y: MatrixLike,
    *,
    bandwidth: float | None = None,
    n_permutations: int = 199,
    random_state: RandomState = None,
) -> MMDTest:
    """Test whether two samples have one distribution, by permuting their labels.

    Parameters
    ----------
    X, Y : array-like of shapes (n, d) and (m, d)
        The samples, at least two rows each; rows are exchangeable if the distributions
        are equal.
    bandwidth : float, optional
        h; None means the median distance of pooled rows, which no permutation of the
        labels changes.
    n_permutations : int, default=199
        Number of permutations; the smallest p-value is 1/(1 + n_permutations).
    random_state : int, RandomState instance or None, default=None
        Seed or generator of all random numbers.

    Returns
    -------
    MMDTest
        Statistic and p-value.

    Examples
    --------
    >>> import numpy as np
    >>> from certus.generative import mmd_test
    >>> rng = np.random.default_rng(0)
    >>> X, Y = rng.normal(size=(60, 2)), rng.normal(1.0, size=(50, 2))
    >>> mmd_test(X, Y, random_state=0).pvalue
    0.005
    """
    check_number("n_permutations", n_permutations, 1, integer=True)
    X, Y = _pair(X, Y)
    if min(len(X), len(Y)) < 2:
        raise ValueError(
            f"Each sample must have at least 2 rows, got {len(X)} and {len(Y)}."
        )
    rng = generator_of(random_state)
    pooled = np.concatenate([X, Y])
    # Rows drawn at random: a fixed choice would depend on the order of the labels.
    h = _bandwidth(pooled, bandwidth, rng)
    first = (np.arange(len(pooled)) < len(X)).astype(np.float64)
    others = (rng.permutation(first) for _ in range(n_permutations))
    found = _statistics(pooled, np.stack([first, *others], axis=1), h, False)
    # Orders that are equal up to rounding count as equal, which only raises p.
    as_large = int(np.sum(found[1:] >= found[0] - 1e-12))
    p = (1 + as_large) / (1 + n_permutations)
    return MMDTest(float(found[0]), p, h, n_permutations)


def _pair(X: MatrixLike, Y: MatrixLike) -> tuple[Array, Array]:
    first = rows("X", X)
    return first, rows("Y", Y, first.shape[1])


def _bandwidth(
    pooled: Array, bandwidth: float | None, rng: np.random.Generator
) -> float:
    """The median distance of two rows; of the positive distances if most are 0."""
    if bandwidth is not None:
        check_number("bandwidth", bandwidth, 0, open_low=True)
        return float(bandwidth)
    n = len(pooled)
    part = pooled if n <= PAIRS else pooled[rng.choice(n, PAIRS, replace=False)]
    squared = _squared_distances(part, part)[np.triu_indices(len(part), 1)]
    middle = float(np.median(squared))
    if middle <= 0.0:
        middle = float(np.median(squared[squared > 0])) if squared.any() else 1.0
    return math.sqrt(middle)


def _statistics(pooled: Array, labels: Array, h: float, biased: bool) -> Array:
    """MMD² for each column of labels (1 for rows of X), all from one pass."""
    n = len(pooled)
    m = labels[:, 0].sum()
    within, across, total = np.zeros(labels.shape[1]), np.zeros(labels.shape[1]), 0.0
    step = max(1, BLOCK // n)
    for start in range(0, n, step):
        part = slice(start, start + step)
        K = _squared_distances(pooled[part], pooled)
        np.exp(K / (-2.0 * h * h), out=K)
        seen = K @ labels
        within += np.einsum("ij,ij->j", labels[part], seen)
        across += np.einsum("ij,ij->j", 1.0 - labels[part], seen)
        total += float(K.sum())
    others = total - within - 2 * across
    if biased:
        return within / m**2 + others / (n - m) ** 2 - 2 * across / (m * (n - m))
    # k(x, x) = 1
    first, second = (within - m) / (m * (m - 1)), (others - (n - m)) / (n - m)
    return first + second / (n - m - 1) - 2 * across / (m * (n - m))


def _squared_distances(A: Array, B: Array) -> Array:
    """‖a − b‖², exactly 0 for equal rows and never negative."""
    found = np.zeros((len(A), len(B)))
    for a, b in zip(A.T, B.T):  # differences keep the digits that a product loses
        found += (a[:, None] - b[None, :]) ** 2
    return found
