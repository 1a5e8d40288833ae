"""The multilayer perceptron: h ← φ(W h + b), layer after layer, then a linear output.

Initial weights keep the size of what passes: He's, normal of variance 2/fan-in, before
units that lose half of it (ReLU); Glorot's, of variance 2/(fan-in + fan-out), before
the others. Hidden layers can be normalised, add to their input (residual) or be put
beside it (dense), so that gradients reach the first of them.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn

from certus.neural_network.modules.activations import activation as activation_of
from certus.neural_network.modules.arguments import require_choice, require_count

NORMALIZATIONS = (None, "batch", "layer", "weight")
INITS = ("auto", "he", "glorot")
#: Bends that are zero, or nearly so, on one side: He's variance makes up for it.
ONE_SIDED = ("relu", "leaky_relu", "elu")


class MLP(nn.Module):
    """Multilayer perceptron with a linear output.

    Parameters
    ----------
    n_inputs : int
        Numbers in a row; inputs with more axes than two are flattened.
    hidden : int or iterable of int
        Width of each hidden layer; () for a linear model.
    n_outputs : int
        Numbers given for each row: scores of classes, or predictions.
    activation : str, default="relu"
        φ, as :func:`activation` names it.
    normalization : None, "batch", "layer" or "weight", default=None
        Of what goes into the activation over the rows of a batch, or over the units of
        a row; or of the weights, w = g v/‖v‖ for each unit.
    residual : bool, default=False
        Each hidden layer adds to its input, g(h) = h + φ(Wh + b); a matrix carries
        the input over where widths differ. Weights begin smaller the more layers there
        are, so that a stack of any depth begins with derivatives near the identity.
    dense : bool, default=False
        Each layer sees the outputs of all earlier ones, and the input, side by side.
    dropout : float, default=0.0
        Share of hidden units left out in each training step; the others are scaled up.
    init : "auto", "he" or "glorot", default="auto"
        Initial weights; "auto" is He's for ReLU, leaky ReLU and ELU. Biases begin at
        zero.
    pieces : int, default=2
        Linear maps of each maxout unit.

    Attributes
    ----------
    config : dict
        The parameters above.
    layers : nn.ModuleList
        The hidden layers.
    output : nn.Linear
        The head; replace it to reuse the layers below for another task.

    Examples
    --------
    >>> import torch
    >>> from certus.neural_network.modules import MLP, count_parameters
    >>> net = MLP(20, (64, 64), 3)
    >>> net(torch.zeros(5, 20)).shape
    torch.Size([5, 3])
    >>> count_parameters(net)
    5699
    """

    def __init__(
        self,
        n_inputs: int,
        hidden: int | Iterable[int],
        n_outputs: int,
        *,
        activation: str = "relu",
        normalization: str | None = None,
        residual: bool = False,
        dense: bool = False,
        dropout: float = 0.0,
        init: str = "auto",
        pieces: int = 2,
    ) -> None:
        super().__init__()
        n_inputs = require_count("n_inputs", n_inputs)
        hidden = hidden if isinstance(hidden, Iterable) else (hidden,)
        hidden = tuple(require_count("hidden", width) for width in hidden)
        n_outputs = require_count("n_outputs", n_outputs)
        pieces = require_count("pieces", pieces)
        require_choice("normalization", normalization, NORMALIZATIONS)
        require_choice("init", init, INITS)
        if not 0 <= dropout < 1:
            raise ValueError(f"dropout must be a share from 0 to 1, got {dropout!r}.")
        if residual and dense:
            raise ValueError("Layers cannot be both residual and dense; choose one.")
        self.config: dict[str, Any] = {
            "n_inputs": n_inputs,
            "hidden": hidden,
            "n_outputs": n_outputs,
            "activation": activation,
            "normalization": normalization,
            "residual": residual,
            "dense": dense,
            "dropout": dropout,
            "init": init,
            "pieces": pieces,
        }
        if init == "auto":
            init = "he" if activation in ONE_SIDED else "glorot"
        widths = [n_inputs, *hidden]
        seen = [sum(widths[: i + 1]) if dense else w for i, w in enumerate(widths)]
        share = 1 / len(hidden) if residual and hidden else 1.0
        self.layers = nn.ModuleList(
            Layer(n, width, activation, normalization, dropout, init, share, pieces)
            for n, width in zip(seen, hidden)
        )
        self.skips = nn.ModuleList(
            skip(n, width) for n, width in pairwise(widths) if residual
        )
        self.output = initialize(nn.Linear(seen[-1], n_outputs), "glorot")

    def forward(self, x: Tensor) -> Tensor:
        """From (batch, ...) to (batch, n_outputs)."""
        h = x.flatten(1) if x.ndim > 2 else x  # (batch, n_inputs)
        for i, layer in enumerate(self.layers):
            z = layer(h)  # (batch, hidden[i])
            if self.config["residual"]:
                z = self.skips[i](h) + z
            elif self.config["dense"]:
                z = torch.cat((h, z), dim=-1)  # (batch, n_inputs + hidden[:i + 1])
            h = z
        return self.output(h)


class Layer(nn.Module):
    """One hidden layer: linear, normalisation, activation, dropout."""

    def __init__(
        self,
        n_inputs: int,
        width: int,
        activation: str,
        normalization: str | None,
        dropout: float,
        init: str,
        share: float,
        pieces: int,
    ) -> None:
        super().__init__()
        copies = pieces if activation == "maxout" else 1
        # A batch norm takes away any bias before it and has its own.
        linear = nn.Linear(n_inputs, width * copies, bias=normalization != "batch")
        initialize(linear, init, copies)
        linear.weight.data *= share
        norm: nn.Module = nn.Identity()
        if normalization in ("batch", "layer"):
            kind = nn.BatchNorm1d if normalization == "batch" else nn.LayerNorm
            norm = kind(width * copies)
        weighted = normalization == "weight"
        self.linear = WeightNormLinear(linear) if weighted else linear
        self.norm = norm
        self.activation = activation_of(activation, pieces=pieces)
        self.dropout = nn.Dropout(dropout)

    def forward(self, h: Tensor) -> Tensor:
        """From (batch, n_inputs) to (batch, width)."""
        return self.dropout(self.activation(self.norm(self.linear(h))))


class WeightNormLinear(nn.Module):
    """A linear layer with the weights w = g v/‖v‖ of each unit, length and direction.

    As ``torch.nn.utils.parametrizations.weight_norm``, but it can be pickled.

    Parameters
    ----------
    linear : nn.Linear
        Gives the first weights.
    """

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__()
        self.direction = nn.Parameter(linear.weight.detach().clone())  # (out, in)
        self.length = nn.Parameter(self.direction.detach().norm(dim=1))  # (out,)
        self.bias = linear.bias

    @property
    def weight(self) -> Tensor:
        """The weights w, of shape (out, in)."""
        unit = self.direction / self.direction.norm(dim=1, keepdim=True)
        return self.length[:, None] * unit

    def forward(self, h: Tensor) -> Tensor:
        """From (batch, in) to (batch, out)."""
        return nn.functional.linear(h, self.weight, self.bias)


def skip(n_inputs: int, width: int) -> nn.Module:
    """What carries the input of a residual layer over: a matrix if widths differ."""
    if n_inputs == width:
        return nn.Identity()
    return initialize(nn.Linear(n_inputs, width, bias=False), "glorot")


def initialize(layer: nn.Linear, kind: str = "he", copies: int = 1) -> nn.Linear:
    """Draw the weights of a layer again, and set its bias to zero.

    Parameters
    ----------
    layer : nn.Linear
        Changed in place.
    kind : {"he", "glorot"}, default="he"
        Normal of variance 2/fan-in, which keeps the mean square of what passes through
        ReLU layers; or uniform of variance 2/(fan-in + fan-out), which does so in
        both directions where the activation is near the identity.
    copies : int, default=1
        Outputs that share one unit, as in maxout; they count once in the fan-out.

    Returns
    -------
    nn.Linear
        The layer itself.

    Examples
    --------
    >>> import torch
    >>> from certus.neural_network.modules import initialize
    >>> layer = initialize(torch.nn.Linear(1000, 1000), "he")
    >>> 1.9 < 1000 * float(layer.weight.detach().var()) < 2.1
    True
    """
    require_choice("kind", kind, INITS[1:])
    n_outputs, n_inputs = layer.weight.shape
    if kind == "he":
        nn.init.normal_(layer.weight, std=(2 / n_inputs) ** 0.5)
    else:
        bound = (6 / (n_inputs + n_outputs / copies)) ** 0.5
        nn.init.uniform_(layer.weight, -bound, bound)
    if layer.bias is not None:
        nn.init.zeros_(layer.bias)
    return layer


def count_parameters(module: nn.Module) -> int:
    """How many numbers of a module are trained.

    Parameters
    ----------
    module : nn.Module
        Any network. Frozen parameters do not count, shared ones count once.

    Returns
    -------
    int
        For a perceptron of L hidden layers of width K on d inputs this is
        dK + K + (L − 1)(K² + K) + K·outputs + outputs.

    Examples
    --------
    >>> from certus.neural_network.modules import MLP, count_parameters
    >>> count_parameters(MLP(2, (2,), 1))
    9
    """
    return sum(p.numel() for p in module.parameters() if p.requires_grad)
