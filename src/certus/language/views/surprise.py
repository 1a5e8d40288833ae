"""Which parts of a text surprise a model: −log₂ p of each token, in bits.

    bits(t) = −log₂ p(xₜ | x_{<t}),   Σ bits(t) / bytes of the text = bits per byte

A token that the model expects costs nearly nothing; a name it has never seen costs
twenty bits.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from certus.language.views.colouring import coloured_block, draw_bits, shown
from certus.results import TableResult
from certus.typing import Array, Axes

__all__ = ["Surprise"]

#: Tokens that a notebook shows.
SHOWN = 5_000


@dataclass(frozen=True)
class Surprise(TableResult):
    """The bits that each token of a text costs; made by ``model.surprise(text)``.

    Notebooks show the text with each token coloured by its bits.

    Attributes
    ----------
    ids : int array of shape (n,)
        The tokens of the text.
    bits : float64 array of shape (n,)
        −log₂ p of each, given those before it.
    n_bytes : int
        Bytes of the text.
    tokens : list of bytes
        The bytes of each token of the text.

    Examples
    --------
    >>> from certus.language import NGramModel
    >>> model = NGramModel(3).fit("the cat sat on the mat. " * 20)
    >>> found = model.surprise("the cat sat on the zebra.")
    >>> found.tokens[int(found.bits.argmax())]
    b'z'
    >>> found.to_frame().columns
    ['token', 'bits']
    """

    ids: Array
    bits: Array
    n_bytes: int
    tokens: list[bytes] = field(repr=False)

    @property
    def bits_per_byte(self) -> float:
        """The sum of all bits, divided by the bytes of the text."""
        return math.fsum(self.bits) / max(1, self.n_bytes)

    def plot(self, ax: Axes | None = None) -> Any:
        """Draw the bits of each token along the text.

        Parameters
        ----------
        ax : matplotlib axes, optional
            Axes to draw on; None means a new figure.

        Returns
        -------
        matplotlib axes
        """
        return draw_bits(self.tokens, self.bits, ax)

    def _columns(self) -> Mapping[str, Any]:
        return {"token": list(map(shown, self.tokens)), "bits": np.asarray(self.bits)}

    @property
    def _headline(self) -> str:
        return (
            f"{self.bits_per_byte:.3f} bits per byte: {len(self.ids):,} tokens, "
            f"{self.n_bytes:,} bytes"
        )

    def _repr_html_(self) -> str:
        """The text, coloured."""
        n = len(self.ids)
        text = coloured_block("", self.tokens[:SHOWN], self.bits[:SHOWN])
        more = f"<div>and {n - SHOWN:,} more tokens</div>" if n > SHOWN else ""
        return (
            '<div class="certus-result" style="font-family:system-ui,sans-serif">'
            f"<div><strong>{self._headline}</strong></div>{text}{more}</div>"
        )
