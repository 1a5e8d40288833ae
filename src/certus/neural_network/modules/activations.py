"""Activations: the nonlinear functions between the linear layers of a network.

Without them, layers multiply to one matrix. torch has most of these units; the absolute
value, the threshold and maxout, the largest of several linear maps, are written here.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor, nn


class AbsoluteValue(nn.Module):
    """The absolute value ∣z∣ of each unit.

    Examples
    --------
    >>> import torch
    >>> from certus.neural_network.modules import AbsoluteValue
    >>> AbsoluteValue()(torch.tensor([-2.0, 0.0, 3.0]))
    tensor([2., 0., 3.])
    """

    def forward(self, z: Tensor) -> Tensor:
        """Of the same shape as z."""
        return z.abs()


class Heaviside(nn.Module):
    """The threshold unit: 1 where z ≥ 0, and 0 elsewhere.

    Its derivative is zero wherever it has one, so that no gradient passes: layers below
    it do not learn by descent.

    Examples
    --------
    >>> import torch
    >>> from certus.neural_network.modules import Heaviside
    >>> Heaviside()(torch.tensor([-2.0, 0.0, 3.0]))
    tensor([0., 1., 1.])
    """

    def forward(self, z: Tensor) -> Tensor:
        """Of the same shape as z."""
        # Rounding has the derivative zero, and lets a NaN through.
        return torch.floor(z.clamp(-1, 0)) + 1


class Maxout(nn.Module):
    """The largest of some neighbouring units: max_j zⱼ in each group.

    After a linear layer this is a k-hinge, the largest of k affine functions, which is
    convex; one of two pieces can be any of ReLU, the absolute value or the identity.

    Parameters
    ----------
    pieces : int, default=2
        Units in each group.

    Examples
    --------
    >>> import torch
    >>> from certus.neural_network.modules import Maxout
    >>> Maxout(2)(torch.tensor([[1.0, 5.0, -2.0, -3.0]]))
    tensor([[ 5., -2.]])
    """

    def __init__(self, pieces: int = 2) -> None:
        super().__init__()
        self.pieces = pieces

    def forward(self, z: Tensor) -> Tensor:
        """From (..., width · pieces) to (..., width)."""
        # The gradient goes to one piece, the first of the largest.
        return z.unflatten(-1, (-1, self.pieces)).max(dim=-1).values

    def extra_repr(self) -> str:
        """Shown when the module is printed."""
        return f"pieces={self.pieces}"


#: Activations by name; the leaky one has slope 0.01 where z < 0.
ACTIVATIONS: dict[str, Callable[[], nn.Module]] = {
    "identity": nn.Identity,
    "logistic": nn.Sigmoid,
    "tanh": nn.Tanh,
    "relu": nn.ReLU,
    "leaky_relu": nn.LeakyReLU,
    "elu": nn.ELU,
    # torch takes the identity for it from 20 on, which shows in float64 up to 36.
    "softplus": partial(nn.Softplus, threshold=40.0),
    "absolute": AbsoluteValue,
    "maxout": Maxout,
    "heaviside": Heaviside,
}


def activation(name: str, *, pieces: int = 2) -> nn.Module:
    """An activation by its name.

    Parameters
    ----------
    name : str
        "identity", "logistic" 1/(1 + e⁻ᶻ), "tanh", "relu" max(0, z), "leaky_relu" (z,
        or z/100 where z < 0), "elu" (z, or eᶻ − 1 where z < 0), "softplus" log(1 + eᶻ),
        "absolute" ∣z∣, "maxout" (the largest of some units) or "heaviside".
    pieces : int, default=2
        Units that share a maxout; other activations ignore it.

    Returns
    -------
    nn.Module
        Without parameters.

    Examples
    --------
    >>> import torch
    >>> from certus.neural_network.modules import activation
    >>> activation("leaky_relu")(torch.tensor([-1.0, 2.0]))
    tensor([-0.0100,  2.0000])
    """
    if name not in ACTIVATIONS:
        shown = ", ".join(repr(c) for c in ACTIVATIONS)
        raise ValueError(f"activation must be one of {shown}, got {name!r}.")
    return Maxout(pieces) if name == "maxout" else ACTIVATIONS[name]()


def softmax(z: Tensor, temperature: float = 1.0) -> Tensor:
    """Probabilities pᵢ = exp(zᵢ/T) / Σⱼ exp(zⱼ/T) along the last axis.

    Parameters
    ----------
    z : Tensor of shape (..., n_classes)
        Scores.
    temperature : float, default=1.0
        T > 0. Low temperatures leave only the largest score, high ones make all
        classes alike.

    Returns
    -------
    Tensor of shape (..., n_classes)
        Each row sums to one.

    Examples
    --------
    >>> import torch
    >>> from certus.neural_network.modules import softmax
    >>> softmax(torch.tensor([0.0, 1.0]), temperature=2.0)
    tensor([0.3775, 0.6225])
    """
    if not temperature > 0:
        raise ValueError(f"temperature must be above 0, got {temperature!r}.")
    # Shifted first: a low temperature must not turn large scores into infinite ones.
    largest = z.detach().amax(dim=-1, keepdim=True)
    return torch.softmax((z - largest) / temperature, dim=-1)
