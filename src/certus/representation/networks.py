"""The networks of encoders: the default of each kind of X, or the user's own."""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import nn

from certus.base import check_number
from certus.neural_network.wrapping import tried
from certus.representation import inputs
from certus.typing import Fit


def check_sizes(model: Fit) -> None:
    """Raise unless the sizes of the networks are whole numbers above 0."""
    check_number("n_components", model.n_components, 1, integer=True)
    for name in ("hidden_layer_sizes", "head_layer_sizes"):
        sizes = getattr(model, name, (1,))
        if not isinstance(sizes, list | tuple) or not len(sizes):
            raise ValueError(
                f"{name} must be a list of at least 1 whole number, got {sizes!r}."
            )
        for size in sizes:
            check_number(f"each of {name}", size, 1, integer=True)


def build_encoder(model: Fit, learnt: inputs.Learnt, name: str = "module") -> nn.Module:
    """The encoder of a model with ``module``, ``n_components``, hidden layers.

    A module that the user passes is copied; a function is called with the shape of an
    input and the number of components.
    """
    width, given = int(model.n_components), getattr(model, name)
    if isinstance(given, str) and given == "auto":
        hidden = tuple(int(size) for size in model.hidden_layer_sizes)
        return inputs.default_network(learnt, width, hidden)
    if isinstance(given, nn.Module):
        made = copy.deepcopy(given).float()
    elif callable(given):
        made = given(inputs.shape_of(learnt), width)
    else:
        raise TypeError(
            f'{name} must be "auto", an nn.Module or a function that makes one, got '
            f"{given!r}."
        )
    if not isinstance(made, nn.Module):
        raise TypeError(
            f"{name}(shape, n_components) must return an nn.Module, got a "
            f"{type(made).__name__}."
        )
    if learnt["kind"] != "sequences":

        def misfit(z: Any) -> str:
            right = z.ndim == 2 and z.shape[1] == width
            return "" if right else f"vectors of {width} numbers (n_components)"

        tried(made, (torch.zeros(2, *inputs.shape_of(learnt)),), misfit)
    return made
