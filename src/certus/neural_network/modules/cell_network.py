"""Distributions of rows of cells: each cell given those before it.

    P(c) = ∏ⱼ P(cⱼ | c_before(j)),
    P(cⱼ = k | ·) = (1 − ε) softmax(Tⱼ[c_parent(j)] + fⱼ(c_before(j)))ₖ + ε/Kⱼ

T are logarithms of a tree's tables and f the networks, one for each column, whose last
weights are zero at the start: a new distribution is the tree's. No probability is below
ε/K, so the loss −log P(c) is bounded. A network sees which cell each column before it
is in, and the level of that cell, a number in [−1, 1].
"""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from certus.neural_network.modules.arguments import require_counts
from certus.typing import ArrayLike


class CellNetwork(nn.Module):
    """Columns of cells, each given those before it.

    Parameters
    ----------
    sizes : tuple of int
        Cells of each column.
    order : tuple of int
        The columns from first to last.
    parents : tuple of int
        The column on which each column's table depends, before it in the order; −1 for
        none.
    skips : tuple of int
        Of each column, how many cells of its parent, from the first on, settle it: its
        cell is then 0, and its factor 1. Empty for none.
    hidden : tuple of int
        Units of the hidden layers of each column's network.
    uniform_share : float
        Probability ε that is spread evenly over the cells.
    dropout : float
        Share of the columns that are hidden from the networks in training, row by row.

    Attributes
    ----------
    config : dict
        The parameters above.

    Examples
    --------
    >>> import torch
    >>> from certus.neural_network.modules import CellNetwork
    >>> law = CellNetwork((2, 3), (0, 1), (-1, 0))
    >>> cells = torch.tensor([[a, b] for a in range(2) for b in range(3)])
    >>> round(law.log_prob(cells).exp().sum().item(), 6)
    1.0
    """

    seen: Tensor
    levels: Tensor
    tables: Tensor
    offsets: Tensor
    heads: Tensor
    places: Tensor
    valid: Tensor

    def __init__(
        self,
        sizes: tuple[int, ...],
        order: tuple[int, ...],
        parents: tuple[int, ...],
        skips: tuple[int, ...] = (),
        hidden: tuple[int, ...] = (64, 64),
        uniform_share: float = 1e-4,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        sizes, hidden = require_counts("sizes", sizes), require_counts("hidden", hidden)
        order, parents = _require_tree(len(sizes), order, parents)
        if not 0 < uniform_share < 1:
            raise ValueError(
                f"uniform_share must be between 0 and 1, got {uniform_share!r}."
            )
        self.config: dict[str, Any] = {
            "sizes": sizes,
            "order": order,
            "parents": parents,
            "skips": tuple(int(m) for m in skips) or (0,) * len(sizes),
            "hidden": hidden,
            "uniform_share": float(uniform_share),
            "dropout": float(dropout),
        }
        d, total, widest = len(sizes), sum(sizes), max(sizes)
        place = np.argsort(order)
        before = place[:, None] < place[None, :]  # does the network of j see i?
        self.register_buffer("seen", torch.as_tensor(before, dtype=torch.float32))
        # Levels of the cells, by default evenly spaced; where the cells of a column
        # begin; the rows of the tables, and where those of a column begin.
        levels = [(2.0 * np.arange(k) + 1.0) / k - 1.0 for k in sizes]
        self.register_buffer("levels", _float(np.concatenate(levels)))
        rows = [1 if p < 0 else sizes[p] for p in parents]
        self.register_buffer("tables", torch.zeros(sum(rows), widest))
        self._fixed("offsets", np.cumsum([0, *sizes[:-1]]))
        self._fixed("heads", np.cumsum([0, *rows[:-1]]))
        self._fixed("places", np.repeat(np.arange(d), sizes))
        self._fixed("valid", np.arange(widest)[None, :] < np.array(sizes)[:, None])
        self.first = nn.Parameter(torch.randn(total + d, d, hidden[0]) / math.sqrt(d))
        widths = [*hidden, widest]
        self.biases = nn.ParameterList([torch.zeros(d, h) for h in widths])
        self.weights = nn.ParameterList(
            [torch.randn(d, a, b) * math.sqrt(2 / a) for a, b in pairwise(hidden)]
        )
        self.weights.append(torch.zeros(d, hidden[-1], widest))

    def _fixed(self, name: str, value: ArrayLike) -> None:
        """Numbers that follow from the configuration; files do not hold them."""
        self.register_buffer(name, torch.as_tensor(value), persistent=False)

    @torch.no_grad()
    def start_at(self, tables: list[Any], levels: list[Any] | None = None) -> None:
        """Take a tree's tables, and the levels of cells.

        Parameters
        ----------
        tables : list of arrays
            P(x_j) of a column without a parent, else P(x_j | parent) with a row for
            each cell of the parent.
        levels : list of arrays, optional
            A number in [−1, 1] for each cell of each column.
        """
        for at, table in zip(self.heads.tolist(), tables):
            logs = np.log(np.maximum(np.atleast_2d(table), 1e-30))
            self.tables[at : at + len(logs), : logs.shape[1]] = _float(logs)
        if levels is not None:
            self.levels.copy_(_float(np.concatenate(levels)))

    @torch.no_grad()
    def without_networks(self) -> CellNetwork:
        """A copy whose networks say nothing: the distribution of the tables alone."""
        start = copy.deepcopy(self)
        start.weights[-1].zero_()
        start.biases[-1].zero_()
        return start

    @torch.no_grad()
    def soften(self, share: float) -> None:
        """Let the networks count this share of what they say, beside the tables.

        Parameters
        ----------
        share : float
            Between 0 and 1.
        """
        self.weights[-1] *= share
        self.biases[-1] *= share

    # -- the law ----------------------------------------------------------------------

    def inputs(self, cells: Tensor) -> Tensor:
        """One-hot cells and their levels, (batch, Σ sizes + columns)."""
        at = cells + self.offsets
        spots = self.first.new_zeros(len(cells), len(self.places))
        kept = torch.ones_like(at, dtype=spots.dtype)
        if self.training and self.config["dropout"]:
            kept = (torch.rand_like(kept) >= self.config["dropout"]).to(spots.dtype)
        spots.scatter_(1, at, kept)
        return torch.cat([spots, kept * self.levels[at]], 1)

    def _first(self) -> Tensor:
        """The weights of the first layers, zero where a column must not be seen."""
        seen = torch.cat([self.seen[self.places], self.seen])
        return self.first * seen[:, :, None]

    def _logits(self, h: Tensor, cells: Tensor, columns: slice = slice(None)) -> Tensor:
        """Scores of the cells, from (columns, batch, units) of the first layer."""
        for weight, bias in zip(self.weights, list(self.biases)[1:]):
            h = torch.baddbmm(bias[columns, None], torch.relu(h), weight[columns])
        own = list(range(len(self.offsets)))[columns]
        parents = [self.config["parents"][j] for j in own]
        rows = cells[:, [max(p, 0) for p in parents]]
        rows = rows * torch.tensor([p >= 0 for p in parents]) + self.heads[columns]
        start = self.tables[rows].transpose(0, 1)
        return (h + start).masked_fill(~self.valid[columns, None], -math.inf)

    def log_prob(self, cells: Tensor) -> Tensor:
        """Log P of rows of cells, whole numbers (batch, columns)."""
        d = len(self.offsets)
        h = (self.inputs(cells) @ self._first().flatten(1)).unflatten(1, (d, -1))
        h = h.transpose(0, 1) + self.biases[0][:, None]
        logs = F.log_softmax(self._logits(h, cells), -1)
        own = logs.gather(-1, cells.T[..., None])[..., 0]
        share = self.config["uniform_share"]
        least = own.new_tensor([math.log(share / k) for k in self.config["sizes"]])
        found = torch.logaddexp(math.log1p(-share) + own, least[:, None])
        for j, (p, m) in enumerate(zip(self.config["parents"], self.config["skips"])):
            if m:
                found[j] = torch.where(cells[:, p] < m, 0.0, found[j])
        return found.sum(0)

    @torch.no_grad()
    def draw(
        self, n: int, rng: np.random.Generator, allowed: Any = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """Draw rows of cells, one column after the other.

        Parameters
        ----------
        n : int
            How many.
        rng : numpy.random.Generator
            Their random numbers.
        allowed : callable, optional
            From a column and the cells drawn so far to weights (n, cells) in [0, 1].

        Returns
        -------
        cells : ndarray of shape (n, columns)
            Whole numbers; −1 in rows whose weights were all zero.
        log_weights : ndarray of shape (n,)
            Log of the probability that the weights have left, column by column.
        """
        config, weight = self.config, self._first()
        d, share = len(config["sizes"]), config["uniform_share"]
        total = len(self.places)
        h = self.biases[0][:, None].expand(-1, n, -1).clone()
        cells = torch.zeros(n, d, dtype=torch.long)
        log_weights = np.zeros(n)
        for j in config["order"]:
            k, m, one = config["sizes"][j], config["skips"][j], slice(j, j + 1)
            p = torch.softmax(self._logits(h[one], cells, one)[0, :, :k], -1)
            mass = ((1 - share) * p.double() + share / k).numpy()
            if allowed is not None:
                mass = mass * allowed(j, cells.numpy())
            if m:
                settled = cells[:, config["parents"][j]].numpy() < m
                mass[settled] = np.arange(k) == 0
            sums = np.cumsum(mass, axis=1)
            left = sums[:, -1]
            with np.errstate(divide="ignore"):
                log_weights += np.log(np.minimum(left, 1.0))
            u = rng.random(n) * left
            found = np.minimum((sums <= u[:, None]).sum(axis=1), k - 1)
            cells[:, j] = torch.from_numpy(found)
            at = self.offsets[j] + cells[:, j]
            h += weight[at].transpose(0, 1)
            h += self.levels[at][None, :, None] * weight[total + j][:, None]
        return cells.numpy(), log_weights


def _float(values: ArrayLike) -> Tensor:
    return torch.as_tensor(np.asarray(values, dtype=np.float32))


def _require_tree(
    d: int, order: Sequence[int], parents: Sequence[int]
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The order and the parents as tuples; each parent comes before its column."""
    order, parents = tuple(int(j) for j in order), tuple(int(p) for p in parents)
    if sorted(order) != list(range(d)) or len(parents) != d:
        raise ValueError(
            f"order must name each of {d} columns once, and parents must have one "
            f"entry for each, got {order} and {parents}."
        )
    place = {j: i for i, j in enumerate(order)}
    for j, p in enumerate(parents):
        if p != -1 and place.get(p, d) >= place[j]:
            raise ValueError(f"the parent of column {j} must come before it, got {p}.")
    return order, parents
