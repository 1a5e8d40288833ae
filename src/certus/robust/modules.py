"""Torch functions as targets: a module of raw rows, by the user or of an estimator."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import nn

from certus.deep.modules import dtype_of
from certus.robust.target import Array, Differentiated, Target

#: Rows on which a module is tried.
PROBED = 20
#: Margins, as shares of the scores, below which rounding may decide.
CLOSE = 1e-4


def differentiated(
    module: nn.Module, predict: Callable[[Any], Any], classes: Any
) -> Differentiated:
    """A module of raw rows, in evaluation mode, as a target."""
    parameter = next(module.parameters(), torch.zeros(1))
    place = dtype_of(module), parameter.device
    function = copying(module) if any_in_place(module) else module

    def exactly() -> Any:
        exact = copy.deepcopy(module).cpu().double()
        return copying(exact) if function is not module else exact

    return Differentiated(predict, classes, function, *place, exactly)


def of_estimator(
    model: Any, X: Any, predict: Callable[[Any], Any]
) -> Differentiated | None:
    """The network of an estimator, its own scaling inside, if it can be had.

    What it gives for some rows must be what the estimator predicts: a subclass may
    predict otherwise, and then nothing is known of it but what it predicts.
    """
    module = model._raw_function(np.shape(X)[1:])
    if module is None:
        return None
    if any(part.training for part in module.modules()):
        module = copy.deepcopy(module).eval()
    target = differentiated(module, predict, model.classes_)
    rows = np.asarray(X[:PROBED])
    z = target.scores(target.rows(rows)).cpu().numpy().astype(np.float64)
    target.queries = 0
    if z.shape[1] != len(target.classes) or not agrees(z, predict(rows), target):
        return None
    return target


def agrees(z: Array, predicted: Any, target: Target) -> bool:
    """Whether the largest scores are those of the predicted classes, but for ties."""
    best = np.sort(z, axis=1)
    clear = best[:, -1] - best[:, -2] > CLOSE * np.abs(z).max(axis=1)
    same = target.classes[z.argmax(axis=1)] == np.asarray(predicted).reshape(-1)
    return bool(same[clear].all())


def copying(module: nn.Module) -> Callable[[Any], Any]:
    """The same function, for a module that changes its input."""
    return lambda x: module(x.clone())


def any_in_place(module: nn.Module) -> bool:
    """Whether some part of a module changes what it is given."""
    return any(getattr(part, "inplace", False) for part in module.modules())
