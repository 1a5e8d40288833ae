"""How steep a network is: measure it, penalise it, or limit it.

    ‖J‖_{p→q} = max over ‖v‖_p ≤ 1 of ‖J_f(x) v‖_q     at a row x (the power method)
    ‖f(x) − f(x̂)‖₂ ≤ Π σ(W_l) · ‖x − x̂‖₂               anywhere (by the layers' weights)

The first depends on data, and the power method finds it from below: good for training,
no proof. The second is enforced by a projection of the weights after each step.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from certus.base import check_number
from certus.neural_network.modules.activations import AbsoluteValue, Maxout
from certus.neural_network.modules.cnn import ConvNet, LeNet
from certus.neural_network.modules.mlp import MLP, Layer
from certus.neural_network.optim import NORMS
from certus.threat import ThreatModel, row_norms
from certus.typing import MatrixLike

if TYPE_CHECKING:
    from certus.neural_network.estimator import NeuralModel

#: Steps of the power method in training.
POWER_STEPS = 5
#: Layers whose weights are a linear map.
LAYERS = (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d)
#: What runs its parts one after the other.
CHAINS = (nn.Sequential, nn.ModuleList, MLP, Layer, ConvNet, LeNet)
#: Steps without weights that never move two rows farther apart, in l2.
CALM = (
    *(nn.Identity, nn.Flatten, nn.Unflatten, AbsoluteValue, Maxout),
    *(nn.ReLU, nn.ReLU6, nn.Tanh, nn.Sigmoid, nn.Hardtanh, nn.Softplus, nn.Softmax),
    *(nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d),
    *(nn.AvgPool1d, nn.AvgPool2d, nn.AvgPool3d),
    *(nn.AdaptiveAvgPool1d, nn.AdaptiveAvgPool2d, nn.AdaptiveAvgPool3d),
)
POOLS = (nn.MaxPool1d, nn.MaxPool2d, nn.MaxPool3d)
#: Multiples of the rounding unit by which norms are kept below their bound.
BELOW = 64

Function = Callable[[Tensor], Tensor]


class Direction(NamedTuple):
    """The direction in which the scores move most when a row moves."""

    u: Tensor  # (rows, outputs)
    p: float
    q: float
    passes: int  # back through the network, to find it


def operator_norms(
    f: Function,
    X: MatrixLike,
    *,
    p: float | str = 2,
    q: float | str = 2,
    n_steps: int = 100,
) -> np.ndarray:
    """How far outputs move, to first order, when a row moves by one.

    Objective
    ---------
    ‖J(x)‖_{p→q} = max over ‖v‖_p ≤ 1 of ‖J(x) v‖_q for each row x, by the power method:
    v ← argmax vᵀJᵀu, u ← argmax uᵀJv with ‖u‖ ≤ 1 in the norm dual to q. Every step
    raises it. For p = q = 2 it tends to the largest singular value; for other norms to
    a local maximum, so that what is given is a lower bound.

    Parameters
    ----------
    f : callable
        Outputs of a tensor of rows, each by itself; a module in evaluation mode, for
        instance.
    X : array-like of shape (n_samples, ...)
        Rows.
    p, q : float or {"l1", "l2", "linf"}, default=2
        Norms of rows and of outputs.
    n_steps : int, default=100
        Of the power method, from a random start.

    Returns
    -------
    ndarray of shape (n_samples,)

    Examples
    --------
    >>> import numpy as np, torch
    >>> from certus.neural_network import operator_norms
    >>> W = torch.tensor([[3.0, 0.0], [0.0, 1.0]], dtype=torch.float64)
    >>> operator_norms(lambda x: x @ W.T, np.zeros((1, 2))).round(6)
    array([3.])
    >>> operator_norms(lambda x: x @ W.T, np.zeros((1, 2)), p="linf", q="l1").round(6)
    array([4.])
    """
    check_number("n_steps", n_steps, 1, integer=True)
    x = torch.as_tensor(X)
    x = x if x.is_floating_point() else x.double()
    from_norm, to_norm = (ThreatModel(norm, 1.0).norm for norm in (p, q))
    with torch.random.fork_rng(devices=[]), torch.enable_grad():
        torch.default_generator.manual_seed(0)
        direction = steepest_direction(f, x.detach(), from_norm, to_norm, n_steps)
        return stretched(f, x.detach(), direction).detach().cpu().numpy()


def steepest_direction(
    f: Function, x: Tensor, p: float = 2.0, q: float = 2.0, steps: int = POWER_STEPS
) -> Direction:
    """The u with ‖u‖ ≤ 1, dual to q, for which ‖J(x)ᵀu‖ is largest; from below.

    Jᵀu is a pass back; it is linear in u, and passing back through that pass gives Jv.
    """
    x = x.clone().requires_grad_(True)
    z = _flat(f(x))
    w = torch.zeros_like(z, requires_grad=True)
    if not z.requires_grad:
        raise ValueError(
            "the outputs do not depend on X, or not through torch operations only."
        )
    (back,) = torch.autograd.grad(z, x, w, create_graph=True)
    rows, outputs = ThreatModel(p, 1.0), ThreatModel(ThreatModel(q, 1.0).dual, 1.0)
    u = outputs.steepest(torch.randn_like(z))
    for _ in range(steps):
        (pulled,) = torch.autograd.grad(z, x, u, retain_graph=True)
        v = rows.steepest(pulled)
        (moved,) = torch.autograd.grad(back, w, v, retain_graph=True)
        u = outputs.steepest(moved)
    return Direction(u.detach(), p, q, 2 * steps + 1)


def stretched(f: Function, x: Tensor, direction: Direction) -> Tensor:
    """‖J(x)ᵀu‖ of each row, in the norm dual to p; differentiable in f's parameters."""
    with torch.enable_grad():
        x = x.clone().requires_grad_(True)
        (back,) = torch.autograd.grad(_flat(f(x)), x, direction.u, create_graph=True)
        return row_norms(back, ThreatModel(direction.p, 1.0).dual)


def _flat(z: Tensor) -> Tensor:
    return z.reshape(len(z), -1)


# -- bounds of the layers ----------------------------------------------------------


def bounding(module: nn.Module, constant: float) -> Callable[[], None]:
    """A projection of a module's weights: the product of its layers' norms ≤ constant.

    Each of L layers gets constant^{1/L}. Larger singular values of matrices are cut to
    it, which gives the nearest matrix that is allowed; kernels of convolutions, whose
    norm is at most √(‖·‖₁‖·‖∞), are scaled. Both are convex sets: an average of allowed
    weights is allowed.

    Parameters
    ----------
    module : nn.Module
        Whose weights are to be changed in place.
    constant : float
        Above 0.
    """
    layers = chain(module)
    each = constant ** (1 / len(layers))

    @torch.no_grad()
    def project() -> None:
        for layer in layers:
            W = layer.weight
            bound = each * (1 - BELOW * torch.finfo(W.dtype).eps)
            largest = crude_norm(layer)
            if not largest > bound:  # also where it is NaN: the run tells of it
                continue
            if isinstance(layer, nn.Linear):
                _cut(W, bound)
            else:
                W.mul_(bound / largest)

    return project


def chain(module: nn.Module) -> list[Any]:
    """The layers of a network that is one map after the other; else an error."""
    config = getattr(module, "config", {})
    if config.get("residual") or config.get("dense"):
        raise ValueError(
            "lipschitz needs layers in sequence; residual and dense layers add their "
            "inputs. Leave lipschitz out, or choose plain layers."
        )
    layers = []
    # A layer that is used twice counts twice.
    for _, part in module.named_modules(remove_duplicate=False):
        own = list(part.parameters(recurse=False))
        if isinstance(part, LAYERS):
            if getattr(part, "padding_mode", "zeros") != "zeros":
                raise ValueError("lipschitz needs convolutions with zero padding.")
            if not part.weight.requires_grad:
                raise ValueError(
                    "lipschitz changes the weights of every layer, but some are "
                    "frozen. Set requires_grad=True, or leave lipschitz out."
                )
            layers.append(part)
        elif (
            own or isinstance(part, NORMS) or not (type(part) in CHAINS or _calm(part))
        ):
            raise ValueError(
                "lipschitz needs linear layers, convolutions and operations that do "
                "not increase distances, in sequence as in nn.Sequential; the "
                f"network has a {type(part).__name__}. Pass a network without it, or "
                "leave lipschitz out."
            )
    if not layers:
        raise ValueError("lipschitz needs a layer with weights; the network has none.")
    return layers


def _calm(part: nn.Module) -> bool:
    """Whether a step without weights never moves two rows farther apart."""
    if type(part) in POOLS:
        size, stride, gap = map(
            np.asarray, (part.kernel_size, part.stride, part.dilation)
        )
        return bool((stride >= size).all() and (gap == 1).all())
    if type(part) in (nn.LeakyReLU, nn.ELU):
        return abs(getattr(part, "negative_slope", getattr(part, "alpha", 1.0))) <= 1
    return type(part) in CALM


def crude_norm(layer: Any) -> float:
    """√(‖A‖₁‖A‖∞) ≥ σ(A) of a layer's linear map A, with zeros around images.

    An input entry meets each entry of the kernel at most once, so that sums over the
    kernel bound the columns and the rows of A.
    """
    W = layer.weight.detach().double().abs()
    W = W.reshape(getattr(layer, "groups", 1), -1, *W.shape[1:])
    rows = W.flatten(2).sum(dim=2).max()
    columns = W.transpose(1, 2).flatten(2).sum(dim=2).max()
    return math.sqrt(float(rows) * float(columns))


def _cut(W: Tensor, bound: float) -> None:
    """Singular values above ``bound`` become it."""
    A = W.detach().double()
    wide = A.shape[0] <= A.shape[1]
    squares, U = torch.linalg.eigh(A @ A.T if wide else A.T @ A)
    sizes = squares.clamp(min=0).sqrt()
    if float(sizes[-1]) <= bound:
        return
    tiny = torch.finfo(A.dtype).tiny
    factors = (bound / sizes.clamp(min=tiny)).clamp(max=1.0)
    P = (U * factors) @ U.T
    W.copy_(P @ A if wide else A @ P)


def projection(model: NeuralModel, module: nn.Module) -> Callable[[], None] | None:
    """The projection of an estimator with ``lipschitz``, in the units of its rows."""
    constant = getattr(model, "lipschitz", None)
    if constant is None:
        return None
    _, units = model._in_inputs(None)
    scale = 1.0 if units is None else float(np.min(units.scale))
    return bounding(module, float(constant) * scale)
