"""Compiled loop of non-negative factors: coordinate descent on one factor's rows."""

from __future__ import annotations

from certus._core.cache import kernel
from certus.typing import Array


@kernel
def descend(G: Array, V: Array, W: Array, sweeps: int, share: float) -> None:
    """Lower ½wGw − bw over w ≥ 0 for each row w of W; V holds the slopes WG − B.

    A row is left once a sweep over its coordinates moves it by at most ``share`` of
    what the first did, in the square of the norm of G.
    """
    for i in range(W.shape[0]):
        first = 0.0
        w, v = W[i], V[i]
        for s in range(sweeps):
            moved = 0.0
            for j in range(len(w)):
                height = G[j, j]
                if height <= 0.0:  # the other factor is zero here, and may come back
                    if v[j] > 0.0:
                        w[j] = 0.0
                    continue
                step = max(-v[j] / height, -w[j])
                if step != 0.0:
                    moved += height * step * step
                    w[j] += step
                    for c in range(len(w)):
                        v[c] += step * G[j, c]
            if s == 0:
                first = moved
            if moved <= share * first:
                break
