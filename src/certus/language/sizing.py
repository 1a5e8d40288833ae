"""How large a network a text and a time can pay for.

Training costs about 6·N·D multiplications for N weights and D tokens, and is spent best
near D = 20·N (Hoffmann et al., 2022), so N = √(F/120) for F multiplications. A short
text cannot determine as many weights: N stays below a few times its tokens.
"""

from __future__ import annotations

import math
from typing import NamedTuple

#: Multiplications and additions in a second of a training step on one thread.
SPEED = 4e10
#: Most weights for each token of the text.
PER_TOKEN = 4.0
#: Tokens in a training step from which orthogonal steps pay for themselves.
ENOUGH = 1024
#: Parameters of a model that are chosen where they are None.
SIZES = ("n_layers", "width", "heads", "context", "batch_size")
WIDTH_OF_HEAD = 32
MOST_LAYERS = 12


class NetworkSizes(NamedTuple):
    """The shape of a network, and of the batches that train it."""

    n_layers: int
    width: int
    heads: int
    context: int
    batch_size: int


def choose(
    n_tokens: int,
    *,
    seconds: float | None,
    steps: int | None,
    threads: int,
    given: dict[str, int | None],
) -> NetworkSizes:
    """Sizes for a text, with those that the user gave.

    Parameters
    ----------
    n_tokens : int
        Tokens of the text.
    seconds, steps : float and int, or None
        How long training may last.
    threads : int
        How many threads compute.
    given : dict
        ``n_layers``, ``width``, ``heads``, ``context`` and ``batch_size``; None
        where it is to be chosen.

    Examples
    --------
    >>> from certus.language.sizing import choose
    >>> free = dict.fromkeys(("n_layers", "width", "heads", "context", "batch_size"))
    >>> tuple(choose(10**6, seconds=600, steps=None, threads=2, given=free))
    (4, 128, 4, 128, 8)
    >>> tuple(choose(2_000, seconds=600, steps=None, threads=2, given=free))
    (2, 64, 2, 64, 16)
    """
    paid = 20.0 * PER_TOKEN * n_tokens**2  # for twenty passes
    if steps is not None:
        paid = 6.0 * (steps * ENOUGH) ** 2 / 20
    if seconds is not None:
        paid = (
            min(paid, seconds * threads * SPEED) if steps else seconds * threads * SPEED
        )
    weights = min(math.sqrt(paid / 120), PER_TOKEN * n_tokens)
    # width = 32·layers: 12·layers·width² weights.
    n_layers = round((weights / (12 * WIDTH_OF_HEAD**2)) ** (1 / 3))
    n_layers = given["n_layers"] or min(MOST_LAYERS, max(2, n_layers))
    heads, width = given["heads"], given["width"]
    if width is None:
        width = WIDTH_OF_HEAD * n_layers if heads is None else WIDTH_OF_HEAD * heads
    if heads is None:
        heads = _heads(width)
    context = given["context"] or (
        64 if weights < 2e5 else 128 if weights < 2e6 else 256
    )
    batch_size = given["batch_size"] or max(1, math.ceil(ENOUGH / context))
    return NetworkSizes(n_layers, width, heads, context, batch_size)


def _heads(width: int) -> int:
    """A number of heads near width/32 that divides the width into even parts."""
    wanted = max(1, round(width / WIDTH_OF_HEAD))
    fits = [h for h in range(1, width + 1) if width % (2 * h) == 0]
    return min(fits, key=lambda h: abs(h - wanted)) if fits else 1
