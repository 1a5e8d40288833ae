"""Compiled inner loops of k-means: seeding, bounds, assignments and sums.

Distances that decide are squares of differences, Σ(x − c)² in float64; products only
screen. A loop treats each row alike wherever it stands, so answers depend neither on
blocks nor on threads.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from certus._core.cache import kernel
from certus.typing import Array

#: Rows of one tile: a strip of them and a strip of sums stay in the first-level cache.
TILE = 128
#: Rows whose scores are compared together.
STRIP = 128
# Bounds are widened by this share, far above the rounding of what they come from.
_WIDE, _NARROW = 1.0 + 1e-9, 1.0 - 1e-6

# -- seeding ----------------------------------------------------------------------


@kernel
def project(X: Array, u: Array, out: Array) -> None:
    """Out = Xu, each row summed in the same order."""
    for i in range(X.shape[0]):
        total = 0.0
        for j in range(X.shape[1]):
            total += X[i, j] * u[j]
        out[i] = total


@kernel
def fill_tiles(X: Array, order: Array, scale: Any, tiles: Array, first: int) -> None:
    """Tiles of shape (columns, rows) of the rows of X in the given order."""
    n = order.shape[0]
    for t in range(tiles.shape[0]):
        start = (first + t) * TILE
        for r in range(min(TILE, n - start)):
            i = order[start + r]
            for j in range(X.shape[1]):
                tiles[t, j, r] = X[i, j] * scale


@kernel
def try_dense(
    tiles: Array,
    norms: Array,
    s: Array,
    D: Array,
    tried: Array,
    tried_norms: Array,
    guard: Any,
    out: Array,
    totals: Array,
    first: int,
) -> None:
    """Squared distances to the nearest centre, were each row of ``tried`` one too.

    ``D`` holds them for the centres there are, ``totals`` their weighted sums by tile.
    By ‖x‖² + ‖c‖² − 2x·c; where that has lost digits, by differences.
    """
    T, d = tiles.shape[0], tiles.shape[1]
    for t in range(T):
        here = slice((first + t) * TILE, (first + t + 1) * TILE)
        old, weight, square = D[here], s[here], norms[here]
        for c in range(tried.shape[0]):
            new, own = out[c, here], tried_norms[c]
            for r in range(TILE):
                new[r] = 0
            for j in range(0, d - 3, 4):  # four columns, one visit of the sums
                x0, x1 = tried[c, j], tried[c, j + 1]
                x2, x3 = tried[c, j + 2], tried[c, j + 3]
                a0, a1 = tiles[t, j], tiles[t, j + 1]
                a2, a3 = tiles[t, j + 2], tiles[t, j + 3]
                for r in range(TILE):
                    new[r] += (a0[r] * x0 + a1[r] * x1) + (a2[r] * x2 + a3[r] * x3)
            for j in range(d - d % 4, d):
                x, a = tried[c, j], tiles[t, j]
                for r in range(TILE):
                    new[r] += a[r] * x
            near = 0
            for r in range(TILE):
                both = square[r] + own
                v = both - (new[r] + new[r])
                new[r] = v
                near += v < guard * both
            if near > 0:
                for r in range(TILE):
                    if new[r] < guard * (square[r] + own):
                        v = own - own
                        for j in range(d):
                            z = tiles[t, j, r] - tried[c, j]
                            v += z * z
                        new[r] = v
            total = 0.0
            for r in range(TILE):
                v = new[r]
                v = old[r] if old[r] < v else v
                new[r] = v
                total += weight[r] * v
            totals[t, c] = total


@kernel
def tile_norms(tiles: Array, out: Array, first: int) -> None:
    """Squared norms of the rows of tiles."""
    for t in range(tiles.shape[0]):
        norms = out[(first + t) * TILE : (first + t + 1) * TILE]
        for r in range(TILE):
            norms[r] = 0
        for j in range(tiles.shape[1]):
            a = tiles[t, j]
            for r in range(TILE):
                norms[r] += a[r] * a[r]


@kernel
def try_sparse(
    cells: Array,
    columns: Array,
    ends: Array,
    order: Array,
    norms: Array,
    s: Array,
    D: Array,
    tried: Array,
    tried_norms: Array,
    slack: Any,
    out: Array,
    totals: Array,
    first: int,
) -> None:
    """As :func:`try_dense` for CSR rows; ``tried`` is columns × candidates.

    A distance that rounding alone may have made counts as none.
    """
    q = tried.shape[1]
    products = np.empty(q)
    for t in range(totals.shape[0]):
        start = (first + t) * TILE
        totals[t] = 0.0
        for p in range(start, min(start + TILE, order.shape[0])):
            i = order[p]
            products[:] = 0.0
            for e in range(ends[i], ends[i + 1]):
                x, j = cells[e], columns[e]
                for c in range(q):
                    products[c] += x * tried[j, c]
            for c in range(q):
                both = norms[i] + tried_norms[c]
                v = both - 2.0 * products[c]
                v = 0.0 if v <= slack * both else v
                v = min(v, D[p])
                out[c, p] = v
                totals[t, c] += s[p] * v


# -- screening --------------------------------------------------------------------


@kernel
def centre_rows(X: Array, mean: Array, scale: Any, out: Array, norms: Array) -> None:
    """Out = scale·(x − mean), rounded to its precision; squared norms before that."""
    for i in range(X.shape[0]):
        total = 0.0
        for j in range(X.shape[1]):
            z = (X[i, j] - mean[j]) * scale
            out[i, j] = z
            total += z * z
        norms[i] = total


@kernel
def sparse_scores(
    cells: Array, columns: Array, ends: Array, rows: Array, centers: Array, out: Array
) -> None:
    """−2x·c for the named CSR rows; ``centers`` is columns × centres."""
    for p in range(rows.shape[0]):
        line = out[p]
        line[:] = 0.0
        for e in range(ends[rows[p]], ends[rows[p] + 1]):
            x, c = -2.0 * cells[e], centers[columns[e]]
            for k in range(line.shape[0]):
                line[k] += x * c[k]


@kernel
def judge(
    scores: Array,
    low: Array,
    high: Array,
    norms: Array,
    slack: Any,
    rows: Array,
    drift: Array,
    group_drift: Array,
    labels: Array,
    upper: Array,
    lower: Array,
    unsure: Array,
) -> int:
    """Label rows by their scores −2x·c; returns how many are too close to call.

    ‖x‖² + low + score − slack‖x‖² lies below the squared distance, and
    high + 2·slack‖x‖² more above it. Centres stand in groups of consecutive ones:
    ``lower`` bounds the distance to every other centre of a group, ``upper`` that to
    the row's own. Those too close to call are listed in ``unsure``.
    """
    (m, K), G = scores.shape, lower.shape[0]
    size = -(-K // G)
    # Lines a power of two apart would push each other out of the cache.
    lines = np.empty((K, STRIP + 16), scores.dtype)
    firsts = np.empty((G, STRIP), scores.dtype)
    seconds = np.empty((G, STRIP), scores.dtype)
    names = np.empty((G, STRIP), np.int32)
    best, named = np.empty(STRIP, scores.dtype), np.empty(STRIP, np.int32)
    base, other = np.empty(STRIP, scores.dtype), np.empty(STRIP, scores.dtype)
    close = 0
    for t in range(0, m, STRIP):
        e = min(m, t + STRIP)
        best[:], named[:], other[:] = np.inf, 0, np.inf
        for r in range(e - t):
            for k in range(K):
                lines[k, r] = scores[t + r, k]
        for g in range(G):
            a, b, w = firsts[g], seconds[g], names[g]
            a[:], b[:] = np.inf, np.inf
            for k in range(g * size, min(K, (g + 1) * size)):
                line, shift, name = lines[k], low[k], np.int32(k)
                for r in range(e - t):
                    v, old, next_old = line[r] + shift, a[r], b[r]
                    near = v < old
                    rest = old if near else v
                    a[r] = v if near else old
                    w[r] = name if near else w[r]
                    b[r] = rest if rest < next_old else next_old
            for r in range(e - t):
                v, old = a[r], best[r]
                near = v < old
                named[r] = w[r] if near else named[r]
                best[r] = v if near else old
        for r in range(e - t):
            g = named[r] // size
            firsts[g, r] = seconds[g, r]  # the others of the row's own group
            base[r] = norms[rows[t + r]] * (1.0 - slack)
        for g in range(G):
            a, room, moved = firsts[g], lower[g], group_drift[g]
            for r in range(e - t):
                v, old = a[r], other[r]
                other[r] = v if v < old else old
                v += base[r]
                v = v if v > 0 else base[r] * 0
                a[r] = np.sqrt(v)
            for r in range(e - t):
                room[rows[t + r]] = a[r] * _NARROW + moved
        for r in range(e - t):
            i, k = rows[t + r], named[r]
            most = best[r] + high[k] + 2.0 * slack * norms[i]
            labels[i] = k
            upper[i] = np.sqrt(max(0.0, base[r] + most)) * _WIDE - drift[k]
            if not most < other[r]:
                unsure[close] = i
                close += 1
    return close


@kernel
def settle(
    X: Array,
    centers: Array,
    scale: Any,
    rows: Any,
    drift: Array,
    group_drift: Array,
    labels: Array,
    upper: Array,
    lower: Array,
) -> None:
    """Label the named rows by float64 differences; equal distances to the first."""
    K, d, G = centers.shape[0], X.shape[1], lower.shape[0]
    size = -(-K // G)
    for i in rows:
        best, label = np.inf, 0
        lower[:, i] = np.inf
        for k in range(K):
            total, g = 0.0, k // size
            for j in range(d):
                z = X[i, j] - centers[k, j]
                total += z * z
            if total < best:
                if best < np.inf:
                    old = label // size
                    lower[old, i] = min(lower[old, i], best)
                best, label = total, k
            else:
                lower[g, i] = min(lower[g, i], total)
        labels[i] = label
        upper[i] = scale * np.sqrt(best) - drift[label]
        for g in range(G):
            lower[g, i] = scale * np.sqrt(lower[g, i]) + group_drift[g]


@kernel
def compare(
    rows: Array,
    X: Any,
    centers: Any,
    scale: Any,
    factor: Any,
    low: Any,
    high: Any,
    norms: Any,
    slack: Any,
    names: Array,
    drift: Any,
    group_drift: Any,
    labels: Any,
    upper: Any,
    lower: Any,
    block: Array,
    scores: Array,
    unsure: Array,
) -> int:
    """Label the named rows, block by block: products judge, differences settle.

    ``rows`` are centred and scaled, ``factor`` is columns × centres. Returns how many
    were too close to call.
    """
    total = 0
    for t in range(0, names.shape[0], block.shape[0]):
        some = names[t : t + block.shape[0]]
        m = some.shape[0]
        for p in range(m):
            block[p] = rows[some[p]]
        np.dot(block[:m], factor, scores[:m])
        args = (drift, group_drift, labels, upper, lower)
        close = judge(scores[:m], low, high, norms, slack, some, *args, unsure)
        if close:
            settle(X, centers, scale, unsure[:close], *args)
        total += close
    return total


@kernel
def doubtful(
    labels: Array,
    upper: Array,
    lower: Array,
    drift: Array,
    group_drift: Array,
    guard: Any,
    out: Array,
) -> int:
    """List the rows whose label is no longer sure.

    ‖x − c‖ grew by at most what c has moved since the row was looked at, and the
    distance to a group shrank by at most the sum of its longest moves.
    """
    count, n, G = 0, labels.shape[0], lower.shape[0]
    most, doubt = np.empty(STRIP), np.empty(STRIP, np.bool_)
    for t in range(0, n, STRIP):
        m = min(n - t, STRIP)
        for r in range(m):
            most[r] = (upper[t + r] + drift[labels[t + r]]) * _WIDE + guard
            doubt[r] = False
        for g in range(G):
            line, moved = lower[g, t : t + m], group_drift[g]
            for r in range(m):
                doubt[r] |= not most[r] < line[r] - moved
        for r in range(m):
            if doubt[r]:
                out[count] = t + r
                count += 1
    return count


# -- sums -------------------------------------------------------------------------


@kernel
def count_changes(before: Array, labels: Array) -> int:
    """How many rows moved to another cluster."""
    count = 0
    for i in range(labels.shape[0]):
        count += before[i] != labels[i]
    return count


@kernel
def shift_rows(
    X: Array,
    mean: Array,
    s: Array,
    before: Array,
    labels: Array,
    sums: Array,
    weight: Array,
) -> None:
    """Take rows that moved out of the sums of one cluster and into another's."""
    for i in range(X.shape[0]):
        old, new = before[i], labels[i]
        if old != new:
            w = s[i]
            weight[old] -= w
            weight[new] += w
            for j in range(X.shape[1]):
                z = w * (X[i, j] - mean[j])
                sums[old, j] -= z
                sums[new, j] += z


@kernel
def add_rows(
    X: Array, mean: Array, s: Array, labels: Array, sums: Array, weight: Array
) -> None:
    """Sums of s(x − mean) and of s over the rows of each cluster."""
    sums[:] = 0.0
    weight[:] = 0.0
    for i in range(X.shape[0]):
        k, w = labels[i], s[i]
        weight[k] += w
        for j in range(X.shape[1]):
            sums[k, j] += w * (X[i, j] - mean[j])


@kernel
def add_sparse(
    cells: Array,
    columns: Array,
    ends: Array,
    s: Array,
    labels: Array,
    sums: Array,
    weight: Array,
) -> None:
    """As :func:`add_rows`, for CSR rows and mean zero."""
    sums[:] = 0.0
    weight[:] = 0.0
    for i in range(labels.shape[0]):
        k = labels[i]
        weight[k] += s[i]
        for e in range(ends[i], ends[i + 1]):
            sums[k, columns[e]] += s[i] * cells[e]


@kernel
def column_sums(X: Array, s: Array, out: Array) -> None:
    """Σ s·x of each column."""
    out[:] = 0.0
    for i in range(X.shape[0]):
        for j in range(X.shape[1]):
            out[j] += s[i] * X[i, j]


@kernel
def own_distances(X: Array, centers: Array, labels: Array, out: Array) -> None:
    """Squared distance of each row to the centre it is labelled with."""
    for i in range(X.shape[0]):
        k, total = labels[i], 0.0
        for j in range(X.shape[1]):
            z = X[i, j] - centers[k, j]
            total += z * z
        out[i] = total


@kernel
def all_distances(X: Array, centers: Array, out: Array) -> None:
    """Distance of each row to each centre."""
    for i in range(X.shape[0]):
        for k in range(centers.shape[0]):
            total = 0.0
            for j in range(X.shape[1]):
                z = X[i, j] - centers[k, j]
                total += z * z
            out[i, k] = np.sqrt(total)


@kernel
def own_sparse(
    cells: Array,
    columns: Array,
    ends: Array,
    norms: Array,
    centers: Array,
    center_norms: Array,
    labels: Array,
    out: Array,
) -> None:
    """As :func:`own_distances`, for CSR rows."""
    for i in range(labels.shape[0]):
        k, total = labels[i], 0.0
        for e in range(ends[i], ends[i + 1]):
            total += cells[e] * centers[k, columns[e]]
        out[i] = max(0.0, norms[i] + center_norms[k] - 2.0 * total)
