"""Texts coloured by surprise, and their bits as bars: HTML and matplotlib.

The surprise of a token is −log₂ p, in bits. Background colours are half transparent,
so that they suit light and dark pages alike; the number stands in the title of each
piece, and pieces with the full colour are underlined.
"""

from __future__ import annotations

import html
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from certus.results import new_figure
from certus.typing import Array, Axes
from certus.wording import clean

#: Bits of surprise that get the full colour.
FULL = 12.0
#: Tokens up to which bars have names.
NAMED = 80
#: What stands for a token without bytes, such as the end of a text.
END_SIGN = "∎"
_RED = "209,73,91"


def shown(data: bytes) -> str:
    r"""A token's bytes as text; lone bytes and control characters as their numbers.

    Examples
    --------
    >>> shown(b" the"), shown(b"\xc3"), shown(b""), shown(b"\x00")
    (' the', '\\xc3', '∎', '\\x00')
    """
    return clean(data.decode("utf-8", "backslashreplace")) if data else END_SIGN


def readable(tokens: Sequence[bytes], bits: Array) -> Iterator[tuple[str, float]]:
    r"""Pieces of text and their bits; tokens that share a character are joined.

    Examples
    --------
    >>> list(readable([b"caf", b"\xc3", b"\xa9", b"\xff"], [1.0, 2.0, 3.0, 4.0]))
    [('caf', 1.0), ('é', 5.0), ('\\xff', 4.0)]
    """
    kept, total = b"", 0.0
    for token, cost in zip(tokens, bits):
        if not token and kept:
            yield shown(kept), total
            kept, total = b"", 0.0
        kept, total = kept + token, total + float(cost)
        try:
            kept.decode()
        except UnicodeDecodeError as error:
            if error.reason == "unexpected end of data":
                continue
        yield shown(kept), total
        kept, total = b"", 0.0
    if kept:
        yield shown(kept), total


def coloured(tokens: Sequence[bytes], bits: Array) -> str:
    """The text as HTML, each piece with its surprise as colour and title."""
    parts = []
    for words, cost in readable(tokens, bits):
        share = min(1.0, max(0.0, cost) / FULL)
        style = f"background:rgba({_RED},{0.65 * share:.2f})"
        if share == 1.0:
            style += f";border-bottom:2px solid rgb({_RED})"
        # A line break that surprises must have a place where its colour can be seen.
        said = html.escape(words).replace("\n", "↵\n" if share > 0.25 else "\n")
        parts.append(f'<span title="{cost:.2f} bits" style="{style}">{said}</span>')
    return "".join(parts)


def coloured_block(before: str, tokens: Sequence[bytes], bits: Array) -> str:
    """Coloured text in a block with a legend; ``before`` is what stands before it."""
    scale = "".join(
        f'<span style="background:rgba({_RED},{0.65 * k / FULL:.2f})">&nbsp;{k}&nbsp;'
        "</span>"
        for k in range(0, int(FULL) + 1, 3)
    )
    return (
        f'<div style="font-size:.875em;margin:.5em 0">bits of surprise: {scale} and '
        'more</div><pre style="white-space:pre-wrap;overflow-wrap:anywhere;'
        f'line-height:1.7">{html.escape(clean(before))}{coloured(tokens, bits)}</pre>'
    )


def draw_bits(tokens: Sequence[bytes], bits: Array, ax: Axes | None = None) -> Any:
    """Draw the surprise of each token as a bar; long texts get a moving mean."""
    if ax is None:
        ax = new_figure(8.0, 3.0).subplots()
    places, bits = np.arange(len(bits)), np.asarray(bits)
    many = len(places) > NAMED
    ax.bar(places, bits, width=1.0 if many else 0.85, color="#30638e", alpha=0.75)
    if many:
        width = max(9, len(bits) // 20)
        inner = np.convolve(bits, np.full(width, 1.0 / width), mode="valid")
        middle = places[: len(inner)] + (width - 1) / 2
        ax.plot(middle, inner, color="#d1495b", lw=1.8, label=f"mean of {width:,}")
        ax.legend(frameon=False)
        ax.set_xlabel("token")
    else:
        names = [shown(token).replace("\n", "↵") for token in tokens]
        turned = max(map(len, names), default=0) > 1
        ax.set_xticks(places, names, rotation=90 if turned else 0)
    ax.margins(x=0.01)
    ax.set_ylabel("surprise in bits")
    ax.spines[["top", "right"]].set_visible(False)
    return ax
