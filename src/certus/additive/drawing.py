"""Shapes as pictures, and the width of their bands.

A band shows two standard deviations of each cell's value, minus its mean over the rows,
under a normal distribution with the curvature of the objective at the fit. It shows the
noise of the target for the given levels; it is not a promise.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np

from certus.additive.layout import Additive
from certus.additive.newton import Run, factor_of
from certus.typing import Array

#: Level of a difference that total variation holds at zero, times the curvature; and
#: times the level of a cell, beyond which floats cannot bear it.
HELD, BORNE = 1e6, 1e11


def deviations(
    p: Additive, run: Run, total: float, variation: bool = False
) -> list[Array]:
    """Standard deviation of each cell, in the shapes of the terms.

    With total variation, cells of one value are one cell, and jumps are free.
    """
    left, right = p.layout.edges.T
    z = p.scores(run.w, run.b)
    noise, state = p.noise(z), p.slopes(z)[2]
    out = np.empty_like(run.w)
    starts = p.layout.starts
    for k in range(p.k):
        h = p.curvature(state, k)
        edges = run.levels.smoothing[p.layout.edge_term]
        if variation:
            held = run.w[left, k] == run.w[right, k]
            own = run.levels.shrinkage[p.layout.edge_term]
            edges = np.where(held, np.minimum(HELD * float(h.sum()), BORNE * own), 0.0)
        inverse = factor_of(p, run.levels, h, edges=edges).inverse()
        for t, (start, end) in enumerate(pairwise(starts)):
            part = np.tril(inverse[start:end, start:end])
            part = part + np.tril(part, -1).T
            mass = np.bincount(p.codes[t] - start, p.share, end - start)
            mean = part @ mass
            spread = np.diagonal(part) - 2 * mean + mass @ mean
            out[start:end, k] = np.sqrt(np.maximum(spread, 0.0) * noise / total)
    shapes = [(*shape, p.k) if p.k > 1 else shape for shape in p.layout.shapes]
    each = zip(starts, starts[1:], shapes)
    return [out[a:b].reshape(shape) for a, b, shape in each]


class ShapePlots:
    """A mixin with ``plot_shapes``."""

    terms_: list[tuple[int, ...]]
    bin_edges_: list[list[Array]]
    shapes_: list[Array]
    shape_std_: list[Array]
    is_categorical_: Array
    term_means_: Array
    classes_: Array

    def plot_shapes(self, terms: Any = None, *, label: Any = None) -> Any:
        """Draw shapes: steps with a band for columns, a map for pairs.

        Parameters
        ----------
        terms : list of int, optional
            Which terms of ``terms_``; by default the twelve that vary most.
        label : label of a class, optional
            The class whose score is drawn, for more than two classes; by default the
            last.

        Returns
        -------
        matplotlib figure
        """
        import matplotlib.pyplot as plt

        shapes, means, widths = self._drawn(label)
        if terms is None:
            spread = [float(np.ptp(shape)) for shape in shapes]
            terms = np.sort(np.argsort(spread)[::-1][:12])
        columns = min(3, len(terms))
        rows = -(-len(terms) // columns)
        figure, axes = plt.subplots(
            rows, columns, figsize=(4 * columns, 3 * rows), squeeze=False
        )
        for ax in axes.ravel()[len(terms) :]:
            ax.set_axis_off()
        for t, ax in zip(terms, axes.ravel()):
            values = shapes[t] - means[t]
            if len(self.terms_[t]) == 2:
                self._draw_pair(figure, ax, t, values)
            else:
                self._draw_column(ax, t, values, 2 * widths[t])
        figure.tight_layout()
        return figure

    def _drawn(self, label: Any) -> tuple[list[Array], Array, list[Array]]:
        means = np.asarray(self.term_means_)
        if means.ndim == 1:
            return self.shapes_, means, self.shape_std_
        classes = list(self.classes_)
        k = len(classes) - 1 if label is None else classes.index(label)
        taken = [[each[..., k] for each in a] for a in (self.shapes_, self.shape_std_)]
        return taken[0], means[:, k], taken[1]

    def _name(self, j: int) -> str:
        names = getattr(self, "feature_names_in_", None)
        return f"column {j}" if names is None else str(names[j])

    def _draw_column(self, ax: Any, t: int, values: Array, half: Array) -> None:
        (j,), (edges,) = self.terms_[t], self.bin_edges_[t]
        ax.axhline(0.0, color="0.8", linewidth=0.8)
        if self.is_categorical_[j] or len(edges) == 0:
            at = np.arange(len(values) - 1)
            ax.errorbar(at, values[1:], half[1:], fmt="o", color="C0", capsize=3)
            if self.is_categorical_[j]:
                ax.set_xticks(at, [f"{value:g}" for value in edges])
        else:
            pad = (edges[-1] - edges[0]) / max(1, len(edges) - 1) or 1.0
            ends = np.concatenate([[edges[0] - pad], edges, [edges[-1] + pad]])
            ax.stairs(values[1:], ends, baseline=None, color="C0", linewidth=1.5)
            top, bottom = values[1:] + half[1:], values[1:] - half[1:]
            ax.stairs(top, ends, baseline=bottom, fill=True, color="C0", alpha=0.25)
        ax.set_xlabel(self._name(j))
        ax.set_ylabel("contribution")

    def _draw_pair(self, figure: Any, ax: Any, t: int, values: Array) -> None:
        a, b = self.terms_[t]
        inner = values[1:, 1:].T
        top = float(np.abs(inner).max(initial=1e-12))
        image = ax.imshow(
            inner, origin="lower", aspect="auto", cmap="RdBu_r", vmin=-top, vmax=top
        )
        figure.colorbar(image, ax=ax)
        for axis, name, side in ((0, "x", a), (1, "y", b)):
            edges = self.bin_edges_[t][axis]
            where: Any
            if self.is_categorical_[side]:
                where, said = np.arange(len(edges)), edges
            else:
                where = np.linspace(0, max(0, len(edges) - 1), min(4, len(edges)))
                where = np.unique(where.astype(int))
                said, where = edges[where], where + 0.5
            texts = [f"{value:.3g}" for value in said]
            (ax.set_xticks if name == "x" else ax.set_yticks)(where, texts)
        ax.set_xlabel(self._name(a))
        ax.set_ylabel(self._name(b))
