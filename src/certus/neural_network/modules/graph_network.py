"""Networks on graphs: each layer mixes the vectors of a node and its neighbours.

    gcn:   H ← φ(Q H W + 1bᵀ),  Q = D̃^{-1/2}(A + I)D̃^{-1/2}
    sage:  h_i ← φ(W [h_i ; mean of h_j over neighbours] + b)
    gat:   h_i ← φ(Σ_j α_ij W h_j + b),  α_i = softmax over j of
           leaky(a·W h_j + c·W h_i) + log w_ij,  j over neighbours and i itself

What a network needs of the graph comes as tensors: for each layer the entries of a
matrix in CSR and of its transpose, for those nodes only that the output depends on.
Where the first layer mixes before it multiplies, (QX)W, the mixed features are the
input, and no step pays for them again.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from certus.edge_kernels import multiply
from certus.neural_network.modules.arguments import require_choice, require_count

LAYERS = ("gcn", "sage", "gat")
#: Tensors of one layer: places of the nodes themselves, a matrix, its transpose.
PARTS = 7
#: Slope of the bend in attention below zero.
LEAK = 0.2


class GraphNetwork(nn.Module):
    """Network on a graph with a vector of scores for each node.

    Parameters
    ----------
    n_inputs : int
        Numbers that describe a node.
    hidden : int or iterable of int
        Width of each hidden layer; one more layer gives the scores.
    n_outputs : int
        Numbers given for each node.
    layer : {"gcn", "sage", "gat"}, default="gcn"
        How neighbours are mixed.
    heads : int, default=4
        Number of heads of attention, for "gat"; hidden layers put them side by side,
        the last one takes their mean.
    dropout : float, default=0.0
        Share of hidden units left out in each training step, in 256ths.

    Attributes
    ----------
    config : dict
        The parameters above.
    layers : nn.ModuleList
        One linear map for each layer.

    Examples
    --------
    >>> import torch
    >>> from certus.neural_network.modules import GraphNetwork
    >>> net = GraphNetwork(3, (8,), 2)
    >>> len(net.layers), net.layers[1].weight.shape
    (2, torch.Size([2, 8]))
    """

    def __init__(
        self,
        n_inputs: int,
        hidden: int | Iterable[int],
        n_outputs: int,
        *,
        layer: str = "gcn",
        heads: int = 4,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        sizes = [hidden] if isinstance(hidden, int) else list(hidden)
        for name, size in (("n_inputs", n_inputs), ("n_outputs", n_outputs)):
            require_count(name, size)
        for size in sizes:
            require_count("each of hidden", size)
        require_choice("layer", layer, LAYERS)
        require_count("heads", heads)
        self.config: dict[str, Any] = {
            "n_inputs": n_inputs,
            "hidden": tuple(sizes),
            "n_outputs": n_outputs,
            "layer": layer,
            "heads": heads,
            "dropout": dropout,
        }
        widths = [n_inputs, *sizes, n_outputs]
        self.layers = nn.ModuleList()
        self.scores = nn.ParameterList()
        for i, (before, after) in enumerate(pairwise(widths)):
            last = i == len(sizes)
            self._add(before * (heads if layer == "gat" and i else 1), after, last)

    def _add(self, before: int, after: int, last: bool) -> None:
        kind, heads = self.config["layer"], self.config["heads"]
        if kind == "gat":
            linear = nn.Linear(before, heads * after, bias=False)
            a = nn.init.xavier_uniform_(torch.empty(2, heads, after))
            self.scores.append(nn.Parameter(a))
            bias = torch.zeros(after if last else heads * after)
            self.scores.append(nn.Parameter(bias))
        else:
            inputs = 2 * before if kind == "sage" else before
            linear = nn.Linear(inputs, after)
            nn.init.zeros_(linear.bias)
        nn.init.xavier_uniform_(linear.weight)
        self.layers.append(linear)

    def forward(self, x: Tensor, *field: Tensor) -> Tensor:
        """Scores of some nodes.

        Parameters
        ----------
        x : Tensor of shape (n_nodes, n_inputs)
            Features of the nodes that count, mixed already for "gcn" and "sage"; an
            empty tensor where they are sparse and stand first in ``field``.
        *field : Tensor
            Seven for each layer that mixes, and the places of the nodes asked for;
            none where all are, in their order.
        """
        kind, drop = self.config["layer"], self.config["dropout"]
        blocks = [field[i : i + PARTS] for i in range(0, len(field) - 1, PARTS)]
        first: Any = self.layers[0]
        if x.numel() == 0:  # sparse
            h = Propagate.apply(first.weight.T.contiguous(), *blocks.pop(0)[1:])
            h = h if first.bias is None else h + first.bias
        else:
            h = first(x)
        if kind == "gat":
            h = self._attend(h, blocks.pop(0), 0)
        others: Any = list(self.layers)[1:]
        for i, linear in enumerate(others, 1):
            h = F.elu(h) if kind == "gat" else F.relu(h)
            h = thinned(h, drop) if self.training and drop else h
            block = blocks.pop(0)
            if kind == "gat":
                h = self._attend(linear(h), block, i)
            elif kind == "gcn":
                # The narrower side is mixed.
                h = Propagate.apply(h @ linear.weight.T, *block[1:]) + linear.bias
            else:
                own, mean = h[block[0]], Propagate.apply(h, *block[1:])
                h = linear(torch.cat([own, mean], dim=1))
        return h[field[-1]] if field[-1].numel() else h

    def _attend(self, z: Tensor, block: tuple[Tensor, ...], i: int) -> Tensor:
        """Weighted means of the vectors of neighbours, for each head."""
        own, starts, others, weights = block[:4]
        a, bias = self.scores[2 * i], self.scores[2 * i + 1]
        heads = self.config["heads"]
        z = z.reshape(len(z), heads, -1)
        m = len(starts) - 1
        rows = torch.repeat_interleave(torch.arange(m, device=z.device), starts.diff())
        from_, to = (z * a[0]).sum(-1), (z[own] * a[1]).sum(-1)
        e = F.leaky_relu(from_[others] + to[rows], LEAK) + weights.log()[:, None]
        top = e.detach().new_full((m, heads), -torch.inf)
        places = rows[:, None].expand(-1, heads)
        top = top.scatter_reduce(0, places, e.detach(), "amax")
        e = torch.exp(e - top[rows])
        total = e.new_zeros(m, heads).index_add(0, rows, e)
        shares = (e / total[rows])[..., None]
        h = z.new_zeros(m, *z.shape[1:]).index_add(0, rows, shares * z[others])
        last = i == len(self.layers) - 1
        return (h.mean(dim=1) if last else h.flatten(1)) + bias


def thinned(h: Tensor, share: float) -> Tensor:
    """Dropout with a byte of randomness for each unit; the others are scaled up.

    A draw of 64 bits decides on eight units, which takes a fifth of the time.
    """
    left = round(256 * share)
    if left >= 256:
        return h * 0.0
    words = torch.empty(-(-h.numel() // 8), dtype=torch.int64, device=h.device)
    size = torch.iinfo(torch.int64)
    draws = words.random_(size.min, size.max).view(torch.uint8)[: h.numel()]
    kept = (draws >= left).reshape(h.shape)
    return h * kept.to(h.dtype).mul_(256 / (256 - left))


class Propagate(torch.autograd.Function):
    """A·H for a sparse matrix A in CSR, beside its transpose for the gradient."""

    @staticmethod
    def forward(ctx: Any, h: Tensor, *parts: Tensor) -> Tensor:
        """A·H."""
        ctx.save_for_backward(*parts)
        starts, others, weights = parts[:3]
        if h.device.type != "cpu":
            m = len(starts) - 1
            rows = torch.repeat_interleave(
                torch.arange(m, device=h.device), starts.diff()
            )
            out = h.new_zeros(m, h.shape[1])
            return out.index_add(0, rows, weights[:, None].to(h.dtype) * h[others])
        table = h.detach().contiguous().numpy()
        values = weights.to(h.dtype).numpy()
        return torch.from_numpy(multiply(starts.numpy(), others.numpy(), values, table))

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        """Aᵀ·G, which can be differentiated again."""
        parts = ctx.saved_tensors
        found = Propagate.apply(gradients[0], *parts[3:], *parts[:3])
        return (found, *[None] * 6)
