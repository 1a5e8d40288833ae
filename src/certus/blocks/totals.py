"""The one reduction: a binary tree whose shape depends on the number of blocks only.

Floating-point sums depend on their order. Here blocks are merged in pairs, then pairs
of pairs, so that threads, workers and restarts change nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from certus import config
from certus.blocks.checkpoint import remembered


def add(a: Any, b: Any) -> Any:
    """Add the parts of two tuples, or two values."""
    if isinstance(a, tuple):
        both = [add(x, y) for x, y in zip(a, b, strict=True)]
        return type(a)(*both) if hasattr(a, "_fields") else tuple(both)
    return a + b


def tree(parts: Iterable[Any], merge: Callable[[Any, Any], Any] = add) -> Any:
    """Merge parts in pairs, pairs of pairs, and so on; at most log₂ n of them wait.

    Examples
    --------
    >>> from certus.blocks import tree
    >>> tree("abcde", lambda a, b: f"({a}{b})")
    '(((ab)(cd))e)'
    """
    waiting: list[tuple[int, Any]] = []  # (height, value), heights falling
    for value in parts:
        height = 0
        while waiting and waiting[-1][0] == height:
            value = merge(waiting.pop()[1], value)
            height += 1
        waiting.append((height, value))
    if not waiting:
        raise ValueError("There are no blocks to add up.")
    value = waiting.pop()[1]
    while waiting:
        value = merge(waiting.pop()[1], value)
    return value


def total(
    blocks: Any,
    work: Callable[..., Any],
    *state: Any,
    merge: Callable[[Any, Any], Any] = add,
) -> Any:
    """Merge ``work(block, *state)`` over all blocks, in the fixed tree.

    Parameters
    ----------
    blocks : Blocks
        The rows.
    work : callable
        A function of a module, so that it can be sent to another process.
    *state
        What it needs beside the block: coefficients, say.
    merge : callable
        Joins two results; by default they are added, tuples item by item.

    Examples
    --------
    >>> import numpy as np
    >>> from certus.blocks import total
    >>> from certus.scale import blocks
    >>> rows = blocks(np.arange(12.0).reshape(6, 2))
    >>> total(rows, lambda block: block.X.sum(axis=0))
    array([30., 36.])
    """
    kept = config.get_config()["checkpoint"]
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        return remembered(
            *(kept, blocks, work, state),
            lambda: tree(blocks.map(work, *state), merge),
        )
