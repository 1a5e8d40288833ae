"""Where the heads of a network look while they read a text.

Head h of layer l gives token t the weights a_{lh}(t, s) ≥ 0 over the tokens s ≤ t, with
Σ_s a_{lh}(t, s) = 1; what it passes on is their weighted mean. Weights say what is
mixed in, not what decides: they are a picture, and no explanation of a prediction.
"""

from __future__ import annotations

import base64
import html
import struct
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from certus.language.views.colouring import shown
from certus.results import TableResult, new_figure
from certus.typing import Array

__all__ = ["AttentionMaps"]

#: Tokens up to which a map has their names beside it, and the size of its cells.
NAMED, CELL = 64, 15
_BLUE = (59, 125, 193)


@dataclass(frozen=True)
class AttentionMaps(TableResult):
    """The attention weights of each head on a text; from ``model.attention(text)``.

    ``to_frame`` has one row for each head: how many tokens it looks back on average,
    and which share of its weight is on the token itself, on the one before, and on the
    first token, where many heads look if they have nothing to do.

    Attributes
    ----------
    weights : float32 array of shape (n_layers, n_heads, n, n)
        ``weights[l, h, t, s]``: how much head h of layer l looks at token s when it has
        read token t; zero for s > t.
    tokens : list of bytes
        The n tokens; the end-of-text token that stands before a text has no bytes.

    Examples
    --------
    >>> from certus.language import LanguageModel
    >>> model = LanguageModel(n_layers=2, width=32, context=32, max_iter=20,
    ...                       random_state=0).fit("to be or not to be, " * 30)
    >>> found = model.attention("to be or")
    >>> found.weights.shape
    (2, 1, 9, 9)
    >>> found.to_frame().columns
    ['layer', 'head', 'looks back', 'itself', 'one before', 'first']
    """

    weights: Array = field(repr=False)
    tokens: list[bytes] = field(repr=False)

    def to_dict(self) -> dict[str, Any]:
        """The tokens and one entry for each head; the weights are too many."""
        columns = {name: part.tolist() for name, part in self._columns().items()}
        return {"tokens": self._names(), "heads": columns}

    def plot(
        self, figure: Any = None, *, layer: int | None = None, head: int | None = None
    ) -> Any:
        """Draw the weights of all heads, or of one with its tokens.

        Parameters
        ----------
        figure : matplotlib figure, optional
            Figure to draw on; None means a new one.
        layer, head : int, optional
            Which layers and heads, from 1; None draws all.

        Returns
        -------
        matplotlib figure
        """
        n_layers, n_heads, n, _ = self.weights.shape
        rows, columns = (
            _chosen("layer", layer, n_layers),
            _chosen("head", head, n_heads),
        )
        large = len(rows) == len(columns) == 1
        side = min(9.0, 2.0 + 0.17 * n) if large else 1.7
        if figure is None:
            figure = new_figure(side * len(columns) + 0.8, side * len(rows) + 0.3)
        from matplotlib.colors import PowerNorm  # small weights stay visible

        axes = figure.subplots(len(rows), len(columns), squeeze=False)
        for i, row in enumerate(rows):
            for j, column in enumerate(columns):
                ax, A = axes[i, j], self.weights[row, column]
                image = ax.imshow(A, cmap="Blues", norm=PowerNorm(0.5, 0, 1))
                ax.set_title(f"layer {row + 1}, head {column + 1}", fontsize=9)
                ax.set_xticks([])
                ax.set_yticks([])
                if large and n <= NAMED:
                    ax.set_xticks(range(n), self._names(), rotation=90, fontsize=8)
                    ax.set_yticks(range(n), self._names(), fontsize=8)
        figure.supxlabel("token that is looked at", fontsize=9)
        figure.supylabel("token that was read last", fontsize=9)
        figure.colorbar(image, ax=axes, label="weight", shrink=0.8, aspect=30)
        return figure

    def _names(self) -> list[str]:
        return [shown(token).replace("\n", "↵") for token in self.tokens]

    def _columns(self) -> Mapping[str, Any]:
        n_layers, n_heads, n, _ = self.weights.shape
        A, t = self.weights.astype(np.float64), np.arange(n)
        back = np.maximum(t[:, None] - t, 0)
        own = np.einsum("lhtt->lh", A) / n
        after = np.arange(1, n)
        # The first token can only look at itself.
        one = A[:, :, after, after - 1].mean(axis=2) if n > 1 else 0 * own
        first = A[:, :, 1:, 0].mean(axis=2) if n > 1 else 0 * own
        layer, head = np.indices((n_layers, n_heads)) + 1
        return {
            "layer": layer.ravel(),
            "head": head.ravel(),
            "looks back": ((A * back).sum(axis=3).mean(axis=2)).ravel(),
            "itself": own.ravel(),
            "one before": one.ravel(),
            "first": first.ravel(),
        }

    @property
    def _headline(self) -> str:
        n_layers, n_heads, n, _ = self.weights.shape
        return f"{n_layers} layers of {n_heads} heads, {n:,} tokens"

    def _repr_html_(self) -> str:
        """All maps side by side, and the one that looks back farthest with names."""
        table = super()._repr_html_().removesuffix("</div>")
        return f"{table}{self.pictures()}</div>"

    def pictures(self) -> str:
        """The maps as HTML without scripts, for light and for dark pages."""
        n_layers, n_heads, n, _ = self.weights.shape
        cells = []
        for row in range(n_layers):
            for column in range(n_heads):
                name = f"layer {row + 1}, head {column + 1}"
                cells.append(
                    f'<figure style="margin:0"><img alt="{name}" src="'
                    f'{_png(self.weights[row, column])}" style="width:100%;display:'
                    "block;image-rendering:pixelated;border:1px solid "
                    'rgba(128,128,128,.35)"><figcaption style="font-size:.8125em">'
                    f"{name}</figcaption></figure>"
                )
        grid = (
            '<div style="display:grid;gap:.6em;max-width:44em;margin:.8em 0;'
            f'grid-template-columns:repeat({n_heads},minmax(0,11em))">{"".join(cells)}'
            "</div>"
        )
        if not 1 < n <= NAMED:
            return grid
        columns = self._columns()
        far = int(np.argmax(columns["looks back"]))
        row, column = divmod(far, n_heads)
        said = (
            f"Layer {row + 1}, head {column + 1} looks back farthest: "
            f"{columns['looks back'][far]:.1f} tokens on average. Each row is a token "
            "that was read last, each column one that is looked at."
        )
        drawing = _labelled(self.weights[row, column], self._names(), said)
        return f'{grid}<p style="margin:.8em 0 .3em">{said}</p>{drawing}'


def _chosen(name: str, value: int | None, most: int) -> list[int]:
    """Numbers from 0 of the one that is asked for, or of all."""
    if value is None:
        return list(range(most))
    if not 1 <= value <= most:
        raise ValueError(f"{name} must be from 1 to {most}, got {value!r}.")
    return [int(value) - 1]


def _png(A: Array) -> str:
    """Weights as a picture in a data address; the colour is opaque where a weight is 1.

    One byte for each weight, an index into a palette of one colour with 256 opacities.
    The square root makes small weights visible.
    """
    rows = np.round(255 * np.sqrt(np.clip(A, 0.0, 1.0))).astype(np.uint8)
    lines = np.hstack([np.zeros((len(rows), 1), np.uint8), rows])  # no filter
    size = struct.pack(">IIBBBBB", rows.shape[1], rows.shape[0], 8, 3, 0, 0, 0)
    parts = (
        (b"IHDR", size),
        (b"PLTE", bytes(_BLUE) * 256),
        (b"tRNS", bytes(range(256))),
        (b"IDAT", zlib.compress(lines.tobytes(), 9)),
        (b"IEND", b""),
    )
    data = b"\x89PNG\r\n\x1a\n"
    for name, body in parts:
        check = zlib.crc32(name + body)
        data += struct.pack(">I", len(body)) + name + body + struct.pack(">I", check)
    return "data:image/png;base64," + base64.b64encode(data).decode()


def _labelled(A: Array, names: list[str], said: str) -> str:
    """A map with the tokens on both sides, as a drawing in the colour of the text."""
    n = len(A)
    left = 14 + 7 * max(map(len, names))
    size = left + n * CELL
    texts = []
    for i, name in enumerate(names):
        middle, words = left + (i + 0.5) * CELL, html.escape(name)
        place = f'x="{left - 5}" y="{middle + 4:g}" text-anchor="end"'
        turned = f'transform="translate({middle + 4:g} {left - 5}) rotate(-90)"'
        texts.append(f"<text {place}>{words}</text><text {turned}>{words}</text>")
    return (
        f'<div style="overflow-x:auto"><svg class="map" role="img" width="{size}" '
        f'height="{size}" viewBox="0 0 {size} {size}" style="max-width:none;'
        f'font:11px ui-monospace,monospace;fill:currentColor"><title>'
        f'{html.escape(said)}</title><image x="{left}" y="{left}" width="{n * CELL}" '
        f'height="{n * CELL}" style="image-rendering:pixelated" '
        f'preserveAspectRatio="none" href="{_png(A)}"/>{"".join(texts)}'
        f'<rect x="{left}" y="{left}" width="{n * CELL}" height="{n * CELL}" '
        'fill="none" stroke="currentColor" stroke-opacity=".4"/></svg></div>'
    )
