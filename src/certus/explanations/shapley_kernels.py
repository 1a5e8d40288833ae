"""Compiled contributions of trees: all rows and all background rows in one walk.

Each row and each background row carries a mask of the columns on the path whose
conditions it fails. A pair reaches a leaf with some of its mixed rows if the masks have
no bit in common; then the columns that the background row fails belong to the row, and
the reverse. Rows without a partner leave the walk. At a leaf, rows with equal masks
have equal contributions, so these are computed once for each mask.
"""

from __future__ import annotations

import numpy as np

from certus._core.cache import exact_kernel
from certus.typing import Array

#: Columns on a path, at most, for a table of all masks; and for masks at all.
SMALL, MOST = 10, 62


@exact_kernel
def fails(
    x: float, node: int, left: bool, threshold: Array, category: Array, bits: Array,
    missing_left: Array, other_left: Array,
) -> bool:  # fmt: skip
    """Whether a value does not go to this side of a node."""
    if np.isnan(x):
        return missing_left[node] != left
    if category[node] < 0:
        return (x <= threshold[node]) != left
    words = bits.shape[1]
    # Cut towards zero as a code is: −0.5 is code 0.
    if x <= -1.0 or x >= 32.0 * words:
        return other_left[node] != left
    code = np.int64(x)
    word = np.int64(bits[category[node], code >> 5])
    return (((word >> (code & 31)) & 1) == 1) != left


@exact_kernel
def ones(mask: int) -> int:
    """Number of bits."""
    count = 0
    while mask:
        mask &= mask - 1
        count += 1
    return count


@exact_kernel
def step(
    XT: Array, feature: int, node: int, left: bool, bit: int, threshold: Array,
    category: Array, bits: Array, missing_left: Array, other_left: Array,
    rows: Array, masks: Array, count: int, to_rows: Array, to_masks: Array,
) -> None:  # fmt: skip
    """The masks of rows one step further down."""
    for t in range(count):
        i = rows[t]
        mask = masks[t]
        if fails(XT[feature, i], node, left, threshold, category, bits, missing_left,
                 other_left):  # fmt: skip
            mask |= bit
        to_rows[t] = i
        to_masks[t] = mask


@exact_kernel
def partners(
    rows: Array, masks: Array, count: int, others: Array, n_others: int
) -> int:
    """Keep the rows whose mask has no bit in common with one of the others."""
    kept = 0
    for t in range(count):
        mask = masks[t]
        found = False
        for s in range(n_others):
            if mask & others[s] == 0:
                found = True
                break
        if found:
            rows[kept] = rows[t]
            masks[kept] = mask
            kept += 1
    return kept


@exact_kernel
def merged(masks: Array, count: int, unique: Array, counts: Array) -> int:
    """Distinct masks and how often each occurs."""
    found = 0
    for t in range(count):
        mask = masks[t]
        place = 0
        while place < found and unique[place] != mask:
            place += 1
        if place == found:
            unique[found] = mask
            counts[found] = 0.0
            found += 1
        counts[place] += 1.0
    return found


@exact_kernel
def shares_of(
    mask: int, k: int, unique: Array, counts: Array, found: int, up: Array,
    down: Array, out: Array,
) -> None:  # fmt: skip
    """What each column on the path has of a leaf of value 1, summed over background."""
    for s in range(k):
        out[s] = 0.0
    q, fall = ones(mask), 0.0
    for t in range(found):
        other = unique[t]
        if mask & other:
            continue
        p = ones(other)
        rise = counts[t] * up[p, q]
        fall += counts[t] * down[p, q]
        for s in range(k):
            if (other >> s) & 1:
                out[s] += rise
    for s in range(k):
        if (mask >> s) & 1:
            out[s] -= fall


@exact_kernel
def push(
    waiting: Array, size: int, node: int, left: Array, right: Array, depth: int
) -> int:
    """Add both children of a node to those that wait; the left one is next."""
    for side in range(2):
        waiting[size + side, 0] = left[node] if side == 1 else right[node]
        waiting[size + side, 1] = node
        waiting[size + side, 2] = depth
        waiting[size + side, 3] = side
    return size + 2


@exact_kernel
def at_leaf(
    k: int, players: Array, value: Array, output: int, rows: Array, masks: Array,
    n_rows: int, unique: Array, counts: Array, found: int, up: Array, down: Array,
    stamp: Array, stamps: Array, table: Array, out: Array,
) -> None:  # fmt: skip
    """Add what a leaf gives to its rows."""
    small, fresh = k <= SMALL, stamp[0] + 1
    stamp[0] = fresh
    for t in range(n_rows):
        mask = masks[t]
        place = mask if small else 0
        if not small or stamps[place] != fresh:
            shares_of(mask, k, unique, counts, found, up, down, table[place])
            stamps[place] = fresh if small else 0
        i = rows[t]
        for s in range(k):
            share = table[place, s]
            if share != 0.0:
                if output >= 0:
                    out[i, players[s], output] += share * value[0]
                else:
                    for c in range(value.shape[0]):
                        out[i, players[s], c] += share * value[c]


@exact_kernel
def add_trees(
    first: int, last: int, feature: Array, threshold: Array, left: Array,
    right: Array, value: Array, missing_left: Array, other_left: Array,
    category: Array, bits: Array, roots: Array, output: Array, owner: Array,
    XT: Array, BT: Array, up: Array, down: Array, depth: int, out: Array,
) -> bool:  # fmt: skip
    """Add the contributions of some trees, times the number of background rows.

    Returns whether all paths were short enough.
    """
    n, m = XT.shape[1], BT.shape[1]
    rows = np.empty((depth + 1, n), dtype=np.int32)
    row_masks = np.empty((depth + 1, n), dtype=np.int64)
    behind = np.empty((depth + 1, m), dtype=np.int32)
    behind_masks = np.empty((depth + 1, m), dtype=np.int64)
    n_rows, n_behind = np.zeros(depth + 1, np.int64), np.zeros(depth + 1, np.int64)
    known = np.zeros(depth + 2, dtype=np.int64)
    players = np.zeros(depth + 2, dtype=np.int64)
    waiting = np.empty((2 * depth + 4, 4), dtype=np.int64)
    unique, counts = np.empty(m, dtype=np.int64), np.empty(m)
    stamp, stamps = np.zeros(1, np.int64), np.zeros(1 << SMALL, dtype=np.int64)
    table = np.empty((1 << SMALL, MOST))
    for i in range(n):
        rows[0, i] = i
        row_masks[0, i] = 0
    for i in range(m):
        behind[0, i] = i
        behind_masks[0, i] = 0
    n_rows[0], n_behind[0] = n, m
    for tree in range(first, last):
        root = roots[tree]
        if feature[root] < 0:
            continue
        known[0] = 0
        size = push(waiting, 0, root, left, right, 1)
        while size:
            size -= 1
            node, parent, t = waiting[size, 0], waiting[size, 1], waiting[size, 2]
            side = waiting[size, 3] == 1
            column = feature[parent]
            player = owner[column]
            slot, k = 0, known[t - 1]
            while slot < k and players[slot] != player:
                slot += 1
            if slot == k:
                if k == MOST:
                    return False
                players[k] = player
                k += 1
            known[t] = k
            bit = np.int64(1) << slot
            step(XT, column, parent, side, bit, threshold, category, bits,
                 missing_left, other_left, rows[t - 1], row_masks[t - 1],
                 n_rows[t - 1], rows[t], row_masks[t])  # fmt: skip
            step(BT, column, parent, side, bit, threshold, category, bits,
                 missing_left, other_left, behind[t - 1], behind_masks[t - 1],
                 n_behind[t - 1], behind[t], behind_masks[t])  # fmt: skip
            found = merged(behind_masks[t], n_behind[t - 1], unique, counts)
            n_rows[t] = partners(rows[t], row_masks[t], n_rows[t - 1], unique, found)
            if n_rows[t] == 0:
                continue
            if feature[node] < 0:
                at_leaf(k, players, value[node], output[tree], rows[t], row_masks[t],
                        n_rows[t], unique, counts, found, up, down, stamp, stamps,
                        table, out)  # fmt: skip
                continue
            n_behind[t] = partners(
                behind[t], behind_masks[t], n_behind[t - 1], row_masks[t], n_rows[t]
            )
            size = push(waiting, size, node, left, right, t + 1)
    return True
