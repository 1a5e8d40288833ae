"""The elbow: choose the number of clusters from the curve of the k-means objective.

The objective falls with every further cluster, fast while true clusters are split off
and slowly afterwards. The number taken is where the curve bends most:

    k* = argmax over inner k of log J(k⁻) − 2·log J(k) + log J(k⁺),

neighbouring numbers k⁻ < k < k⁺, with slopes per cluster where the numbers are uneven.
It is a rule of thumb: without separated clusters it still returns a number.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from certus.base import check_number
from certus.cluster.kmeans import KMeans
from certus.results import TableResult, new_figure
from certus.typing import Array, ArrayLike, MatrixLike, RandomState

#: Objectives below this share of the largest are rounding: the rows are the centres.
NOTHING = 1e-12


@dataclass(frozen=True)
class Elbow(TableResult):
    """Objectives for several numbers of clusters, and where they bend most.

    Attributes
    ----------
    ks : ndarray of int
        Numbers of clusters, ascending.
    inertias : ndarray
        The objective for each.
    curvature : ndarray
        How much the curve of log-objectives bends at each; NaN at both ends.
    k : int
        The number where it bends most.
    models : tuple of KMeans
        The fitted models.

    Examples
    --------
    >>> from certus.cluster import elbow
    >>> found = elbow([[0.0], [0.1], [5.0], [5.1], [5.2]], range(1, 5), random_state=0)
    >>> found.k, found.ks
    (2, array([1, 2, 3, 4]))
    """

    ks: Array
    inertias: Array
    curvature: Array
    k: int
    models: tuple[KMeans, ...] = field(repr=False)

    def __repr__(self) -> str:
        tried = f"{self.ks[0]} to {self.ks[-1]}" if len(self.ks) else "none"
        return f"Elbow(k={self.k}, of {tried} clusters; see plot(), model, inertias)"

    @property
    def model(self) -> KMeans:
        """The model with the number chosen."""
        return self.models[int(np.flatnonzero(self.ks == self.k)[0])]

    def plot(self, ax: Any = None) -> Any:
        """Draw the objective against the number of clusters; returns the axes.

        Parameters
        ----------
        ax : matplotlib Axes, optional
            Axes to draw on; None means a new figure.
        """
        if ax is None:
            ax = new_figure(5.5, 3.6).subplots()
        ax.plot(self.ks, self.inertias, "o-", color="#1f5a8a", markersize=4)
        at = self.inertias[self.ks == self.k]
        ax.plot([self.k], at, "o", color="#c2452d", markersize=9, zorder=3)
        ax.annotate(
            f"k = {self.k}",
            (self.k, float(at[0])),
            xytext=(12, 12),
            textcoords="offset points",
            color="#c2452d",
        )
        ax.set_xlabel("clusters")
        ax.set_ylabel("within-cluster sum of squares")
        ax.set_ylim(bottom=0)
        ax.xaxis.get_major_locator().set_params(integer=True)
        ax.spines[["top", "right"]].set_visible(False)
        return ax

    def _columns(self) -> Mapping[str, Array]:
        return {"k": self.ks, "inertia": self.inertias, "curvature": self.curvature}


def elbow(
    X: Any,
    ks: Iterable[int] = range(1, 11),
    *,
    sample_weight: Any = None,
    n_init: int = 4,
    random_state: RandomState = None,
    **options: Any,
) -> Elbow:
    """Fit k-means for several numbers of clusters and find where the curve bends.

    Parameters
    ----------
    X : array-like or sparse matrix of shape (n_samples, n_features)
        Rows to cluster.
    ks : iterable of int, default=range(1, 11)
        Numbers of clusters to try, at least three.
    sample_weight : array-like of shape (n_samples,), optional
        Row weights.
    n_init : int, default=4
        Starts for each number, so that one bad start does not bend the curve. One more
        starts from the centres for the number before and the row farthest from them:
        the objective never rises with the number.
    random_state : int, RandomState or None, default=None
        Seed or generator of all random numbers. They decide the starts.
    **options
        Further parameters of :class:`certus.cluster.KMeans`.

    Returns
    -------
    Elbow

    Examples
    --------
    >>> from sklearn.datasets import make_blobs
    >>> from certus.cluster import elbow
    >>> X, _ = make_blobs(300, centers=4, cluster_std=0.5, random_state=3)
    >>> elbow(X, range(1, 9), random_state=0).k
    4
    """
    if not isinstance(ks, Iterable):
        raise TypeError(
            "ks must be a list of numbers of clusters, for example range(1, 11); got "
            f"{ks!r}."
        )
    numbers = sorted(set(ks))
    if len(numbers) < 3:
        raise ValueError("ks needs at least three numbers: an elbow has two sides.")
    for k in numbers:
        check_number("each of ks", k, 1, integer=True)
    models: list[KMeans] = []
    for k in numbers:
        fresh = KMeans(k, n_init=n_init, random_state=random_state, **options)
        fresh.fit(X, sample_weight=sample_weight)
        best = fresh
        if models:
            grown = _grow(models[-1], X, sample_weight, k, options)
            best = grown if grown.inertia_ < fresh.inertia_ else fresh
        models.append(best)
    inertias = np.array([model.inertia_ for model in models])
    curvature = _bend(np.array(numbers), inertias)
    chosen = int(numbers[int(np.nanargmax(curvature))])
    return Elbow(np.array(numbers), inertias, curvature, chosen, tuple(models))


def _grow(
    before: KMeans,
    X: MatrixLike,
    sample_weight: ArrayLike | None,
    k: int,
    options: dict[str, Any],
) -> KMeans:
    """Fit from the current centres plus, one by one, the row farthest from them."""
    centers = before.cluster_centers_
    rows: Any = X if hasattr(X, "toarray") else np.asarray(X)
    away = before.transform(X).min(axis=1)
    if sample_weight is not None:
        away = np.where(np.asarray(sample_weight) > 0, away, 0.0)
    while len(centers) < k:
        i = int(np.argmax(away))
        row = rows[[i]].toarray() if hasattr(X, "toarray") else rows[[i]]
        centers = np.vstack([centers, row])
        gone = KMeans(1)
        gone.cluster_centers_ = row.astype(centers.dtype)
        gone.n_features_in_ = row.shape[1]
        away = np.minimum(away, gone.transform(rows)[:, 0])
    grown = KMeans(k, init=centers, **options)
    return grown.fit(X, sample_weight=sample_weight)


def _bend(ks: Array, inertias: Array) -> Array:
    """Second differences of the log-objective, per cluster."""
    top = inertias.max()
    floor = NOTHING * top if top > 0 else 1.0
    heights = np.log(np.maximum(inertias, floor))
    slopes = np.diff(heights) / np.diff(ks)
    out = np.full(len(ks), np.nan)
    out[1:-1] = np.diff(slopes)
    return out
