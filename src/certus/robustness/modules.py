"""Torch functions as targets: a module that takes raw rows, or an estimator's module.

A module must be a function: in evaluation mode, with the same scores for a row at every
call and beside any other rows. This is checked.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from certus.neural_network.randomness import own_generator
from certus.neural_network.wrapping import dtype_of, first_line
from certus.robustness.steps import ClippedStep
from certus.robustness.target import Differentiated, Scored, Target, two_columns
from certus.typing import Array, Fit, MatrixLike

#: Share of the largest score by which rounding may change scores.
CLOSE = 1e-4


def of_module(
    module: nn.Module, X: Array, names: Callable[..., Any], threshold: float | None
) -> Target:
    """A user's module of raw rows as a target; a black box if it has no gradient.

    Parameters
    ----------
    module : nn.Module
        In evaluation mode.
    X : ndarray
        Some rows, on which it is tried.
    names : callable
        Gives for scores of these rows the classes, and what is subtracted from a
        single score.
    threshold : float, optional
        From which on a single score is the second class.
    """
    if any(part.training for part in module.modules()):
        raise ValueError(
            "the module is in training mode, where dropout and batch norm change what "
            "it predicts: call module.eval() first."
        )
    z = tried(module, X)
    single = z.ndim == 1 or z.shape[1] == 1
    inner, ends = _before_probabilities(module)
    if single and ends == "sigmoid" and threshold is None:
        threshold = 0.5
    classes, level = names(z.cpu().numpy(), threshold)
    deciding = nn.Sequential(Copy(), module, *[Subtraction(level)] * bool(level))
    # The order is that before a softmax, or a single sigmoid. Several of these may all
    # be 1 to the last digit, and then the first class wins.
    ordered = not single if ends == "softmax" else single and level == 0.5
    function = nn.Sequential(Copy(), inner) if ends and ordered else deciding

    def predict(X: MatrixLike) -> Array:
        with torch.no_grad():
            z = two_columns(deciding(target.rows(X)))
        return classes[z.argmax(dim=1).cpu().numpy()]

    target = differentiated(function, predict, classes, function is deciding)
    try:
        target.gradient(target.rows(X[:1]), torch.ones_like)
    except RuntimeError:  # a step is detached, or changes in place what is needed

        def score(X: MatrixLike) -> Any:
            return target.scores(target.rows(X)).cpu()

        black_box = Scored(predict, classes, score)
        black_box.note = "attacked as a black box: the module gives no gradient"
        return black_box
    target.queries = target.gradients = 0
    return target


def of_estimator(
    model: Fit, steps: list[ClippedStep], X: Array, predict: Callable[[Any], Any]
) -> Differentiated | None:
    """The network of an estimator behind linear steps, its own scaling inside.

    None if it has no function of numbers that can change a little.
    """
    shape = (len(steps[-1].bias),) if steps else X.shape[1:]
    module = model._raw_function(shape)
    if module is None:
        return None
    if any(part.training for part in module.modules()):
        module = copy.deepcopy(module).eval()
    module = nn.Sequential(Copy(), *map(AffineStep, steps), module)
    return differentiated(module, predict, model.classes_)


def differentiated(
    module: nn.Module,
    predict: Callable[[Any], Any],
    classes: Array,
    decides: bool = False,
) -> Differentiated:
    """A module of raw rows, in evaluation mode, as a target."""
    parameter = next(module.parameters(), torch.zeros(1))

    def copied() -> Any:
        return copy.deepcopy(module).cpu()

    place = dtype_of(module), parameter.device
    return Differentiated(predict, classes, module, *place, copied, decides)


def tried(module: nn.Module, X: Array) -> Tensor:
    """Scores of some rows, if the module gives them and always the same."""
    parameter = next(module.parameters(), torch.zeros(1))
    options: Any = {"dtype": dtype_of(module), "device": parameter.device}
    rows = torch.as_tensor(X, **options)
    try:
        with torch.no_grad(), own_generator():
            z = module(rows.clone())
            again = module(rows[: (len(rows) + 1) // 2].flip(0))
    except (RuntimeError, TypeError, IndexError, ValueError) as error:
        raise ValueError(
            f"the module fails on rows of shape {tuple(rows.shape)}: "
            f"{first_line(error)} Pass X as the module takes it."
        ) from error
    if not isinstance(z, Tensor) or z.ndim not in (1, 2) or len(z) != len(rows):
        got = tuple(z.shape) if isinstance(z, Tensor) else type(z).__name__
        raise ValueError(
            f"the module must give a score for each class and each of {len(rows)} "
            f"rows, got {got}."
        )
    if not torch.isfinite(z).all():
        raise ValueError("the module gives NaN or infinite scores for these rows.")
    before = z[: (len(rows) + 1) // 2].flip(0)
    same = again.shape == before.shape
    if not same or (again - before).abs().max() > CLOSE * z.abs().max():
        raise ValueError(
            "the module gives different scores for the same rows when called again: "
            "dropout or noise is still on (as with F.dropout without training=), or "
            "rows of a batch depend on each other. Turn that off."
        )
    return z


class Copy(nn.Module):
    """A copy of the rows, for modules that may write into what they are given."""

    def forward(self, x: Tensor) -> Tensor:
        """The same numbers elsewhere."""
        return x.clone()


class Subtraction(nn.Module):
    """x ↦ x − level."""

    def __init__(self, level: float) -> None:
        super().__init__()
        self.level = float(level)

    def forward(self, x: Tensor) -> Tensor:
        """The same less a number."""
        return x - self.level


class AffineStep(nn.Module):
    """A linear step of a pipeline; float64 numbers in the dtype of the rows."""

    weight: Tensor
    bias: Tensor

    def __init__(self, step: ClippedStep) -> None:
        super().__init__()
        self.low, self.high = step.low, step.high
        for name, value in (("weight", step.weight), ("bias", step.bias)):
            kept = torch.tensor(np.asarray(value), dtype=torch.float64)
            self.register_buffer(name, kept)

    def forward(self, x: Tensor) -> Tensor:
        """From (batch, inputs) to (batch, outputs)."""
        weight, bias = (v.to(x.device, x.dtype) for v in (self.weight, self.bias))
        whole = weight.ndim == 2
        x = nn.functional.linear(x, weight, bias) if whole else x * weight + bias
        return x if self.low == -self.high == -np.inf else x.clamp(self.low, self.high)


def _before_probabilities(module: nn.Module) -> tuple[nn.Module, str]:
    """A sequence without the softmax or sigmoid it ends in, which keep the order."""
    if type(module) is nn.Sequential and len(module) > 1 and _plain(module):
        last, rest = module[-1], module[:-1]
        kind = type(last) if _plain(last) else None
        if kind in (nn.Softmax, nn.LogSoftmax) and last.dim in (1, -1):
            return rest, "softmax"
        if kind is nn.Sigmoid:
            return rest, "sigmoid"
    return module, ""


def _plain(module: nn.Module) -> bool:
    """Whether calling a module does what its class does: no hooks, no other forward."""
    hooked = module._forward_hooks or module._forward_pre_hooks
    return not hooked and "forward" not in vars(module)
