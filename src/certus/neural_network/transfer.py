"""Pre-training and fine-tuning: weights learnt on one task, reused for another.

Three steps on plain modules, each giving a changed copy: load the weights of a backbone
where names and shapes agree, put a new head on it, freeze what should stay. The result
goes to any estimator that takes a module, and is trained from these weights.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from certus.base import check_number, generator_of
from certus.neural_network.randomness import own_generator
from certus.typing import RandomState
from certus.wording import unstopped

if TYPE_CHECKING:
    from certus.neural_network.estimator import NeuralModel


def load_backbone(
    module: nn.Module,
    weights: str | Path | dict[str, Tensor] | nn.Module | NeuralModel,
) -> nn.Module:
    """A copy of a network with the weights of another where names and shapes agree.

    Parameters
    ----------
    module : nn.Module
        The network that is to be trained.
    weights : path, dict, nn.Module or fitted estimator of certus.neural_network
        A ``.safetensors`` file, a ``state_dict``, or whose weights to take.

    Returns
    -------
    nn.Module
        The copy; its attribute ``left_out`` names the tensors that keep their values.

    Examples
    --------
    >>> from certus.neural_network import load_backbone
    >>> from certus.neural_network.modules import MLP
    >>> load_backbone(MLP(4, 8, 3), MLP(4, 8, 10)).left_out
    ['output.weight', 'output.bias']
    """
    state = _state_of(weights)
    module = copy.deepcopy(module)
    own = module.state_dict()
    fitting = {
        name: state[name]
        for name, value in own.items()
        if name in state and tuple(state[name].shape) == tuple(value.shape)
    }
    if not any(value.numel() for value in fitting.values()):
        raise ValueError(
            "None of the weights fits the module: no tensor has the same name and "
            f"shape. The module has {_some(own)}; the weights have {_some(state)}. "
            "Load a model file with certus.load first."
        )
    module.load_state_dict({**own, **fitting})
    vars(module)["left_out"] = [name for name in own if name not in fitting]
    return module


def replace_head(
    module: nn.Module | NeuralModel, n_outputs: int, *, random_state: RandomState = None
) -> nn.Module:
    """A copy of a network with a new last linear layer.

    Parameters
    ----------
    module : nn.Module or fitted estimator of certus.neural_network
        The network.
    n_outputs : int
        Outputs of the new layer: classes, or numbers to predict.
    random_state : int, RandomState or None, default=None
        Seed or generator of all random numbers. They decide its weights.

    Returns
    -------
    nn.Module
        The copy; all other weights are kept.

    Examples
    --------
    >>> import torch
    >>> from certus.neural_network import replace_head
    >>> from certus.neural_network.modules import MLP
    >>> replace_head(MLP(4, 8, 10), 3)(torch.zeros(5, 4)).shape
    torch.Size([5, 3])
    """
    check_number("n_outputs", n_outputs, 1, integer=True)
    module = copy.deepcopy(_module_of(module))
    name = head_of(module)
    old: Any = module.get_submodule(name)
    with own_generator():
        seed = int(generator_of(random_state).integers(2**63 - 1))
        torch.default_generator.manual_seed(seed)
        new = nn.Linear(old.in_features, n_outputs, bias=old.bias is not None)
    new = new.to(device=old.weight.device, dtype=old.weight.dtype)
    if not name:
        return new
    parent, _, last = name.rpartition(".")
    setattr(module.get_submodule(parent), last, new)
    config = getattr(module, "config", None)
    if isinstance(config, dict) and "n_outputs" in config:  # what a file is built from
        module.config = {**config, "n_outputs": int(n_outputs)}
    return module


def freeze(module: nn.Module, layers: str | Iterable[str] | None = None) -> nn.Module:
    """A copy of a network some of whose layers training leaves alone.

    Parameters
    ----------
    module : nn.Module or fitted estimator of certus.neural_network
        The network.
    layers : str or iterable of str, optional
        Names of layers as in ``named_parameters``, or how these begin; all but the last
        linear layer if None.

    Returns
    -------
    nn.Module
        The copy. Batch norms in frozen layers keep their statistics in training.

    Examples
    --------
    >>> from certus.neural_network import freeze
    >>> from certus.neural_network.modules import MLP
    >>> net = freeze(MLP(4, 8, 3))
    >>> [name for name, p in net.named_parameters() if p.requires_grad]
    ['output.weight', 'output.bias']
    """
    module = copy.deepcopy(_module_of(module))
    names = [name for name, _ in module.named_parameters()]
    if layers is None:
        head = head_of(module)
        chosen = {name for name in names if not _within(name, head)}
    else:
        layers = [layers] if isinstance(layers, str) else list(layers)
        for layer in layers:
            if not any(_within(name, layer) for name in names):
                raise ValueError(
                    f"The network has no layer {layer!r}; its parameters are "
                    f"{_some(names)}."
                )
        chosen = {n for n in names if any(_within(n, layer) for layer in layers)}
    for name, p in module.named_parameters():
        if name in chosen:
            p.requires_grad_(False)
    return module


def head_of(module: nn.Module) -> str:
    """Name of the last linear layer."""
    found = [n for n, m in module.named_modules() if isinstance(m, nn.Linear)]
    if not found:
        raise ValueError(
            "The network has no linear layer that could be its head. Replace or freeze "
            "its layers by name."
        )
    return found[-1]


def _within(name: str, layer: str) -> bool:
    return not layer or name == layer or name.startswith(layer + ".")


def _module_of(model: nn.Module | NeuralModel) -> nn.Module:
    module = getattr(model, "module_", model)
    if not isinstance(module, nn.Module):
        raise TypeError(
            "Pass an nn.Module or a fitted estimator of certus.neural_network; "
            f"got {model!r}."
        )
    return module


def _state_of(
    weights: str | Path | dict[str, Tensor] | nn.Module | NeuralModel,
) -> dict[str, Any]:
    if isinstance(weights, str | Path):
        from safetensors import SafetensorError
        from safetensors.torch import load_file

        try:
            return dict(load_file(weights))
        except (OSError, SafetensorError) as error:
            raise ValueError(
                f"{weights} cannot be read as a safetensors file: {unstopped(error)}. "
                "For a file written by torch, pass the result of torch.load; for a "
                "model file, that of certus.load."
            ) from error
    return (
        dict(weights) if isinstance(weights, dict) else _module_of(weights).state_dict()
    )


def _some(names: Iterable[str]) -> str:
    names = list(names)
    more = f" and {len(names) - 4} more" if len(names) > 4 else ""
    return (", ".join(names[:4]) or "none") + more
