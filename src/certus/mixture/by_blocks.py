"""Where EM for a Gaussian mixture begins on blocks of rows.

The first M-step is that of ``starts``: responsibilities that are clusters, or one row
for each component. The rows are those that would be drawn in memory; ``"random"`` asks
for a number for each row and component, drawn in order, and is refused.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from certus import config
from certus.base import generator_of
from certus.blocks import RowBlock, total
from certus.cluster import block_seeding
from certus.cluster.by_blocks import nearest
from certus.cluster.kmeans import KMeans
from certus.mixture.covariances import MixtureSums, rows_of_block, sums_of
from certus.typing import Array


def first_sums(
    blocks: Any, k: int, method: str, random: Any, matrix: bool
) -> tuple[Callable[[Array], MixtureSums], Array]:
    """The sums of the first M-step about any points, and the mean of all rows."""
    if method == "random":
        raise NotImplementedError(
            "GaussianMixture cannot be fitted to blocks with init_params='random', "
            "which draws a number for each row and component. Use 'kmeans', "
            "'k-means++' or 'random_from_data', or pass rows in memory."
        )
    seen = block_seeding.survey(blocks)
    if method == "kmeans":
        with config.config_context(certify="never"):
            model = KMeans(k, n_init=1, random_state=random).fit(blocks)
        centers = model.cluster_centers_.astype(np.float64)

        def sums(about: Array) -> MixtureSums:
            found = total(blocks, _of_clusters, centers, about, matrix)
            return found._replace(about=about)

    else:
        rows = _drawn(blocks, seen, k, method, random)

        def sums(about: Array) -> MixtureSums:
            return sums_of(rows, np.eye(k), about, matrix)

    return sums, seen.mean


def _of_clusters(
    block: RowBlock, centers: Array, about: Array, matrix: bool
) -> MixtureSums:
    """The sums of the M-step where each row belongs to the nearest centre."""
    X = rows_of_block(block)
    R = np.zeros((len(X), len(about)))
    R[np.arange(len(X)), nearest(block, centers)] = 1.0
    return sums_of(X, R, about, matrix)


def _drawn(blocks: Any, seen: Any, k: int, method: str, random: Any) -> Array:
    """A row for each component."""
    if method == "k-means++":
        pool = block_seeding.BlockPool(blocks, seen)
        return pool.draw_far(k, generator_of(random))
    places = random.choice(len(blocks), size=k, replace=False)
    rows = np.empty((k, len(seen.mean)))
    for key in blocks.keys:
        here = (places >= key.first) & (places < key.first + key.rows)
        if here.any():
            rows[here] = blocks.read(key).X[places[here] - key.first]
    return rows
