"""Questions about a plain module: its device, its outputs, and whether they fit.

Everything here takes any ``nn.Module``, of ours or the user's own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from certus.neural_network.batches import TOGETHER, NetworkInputs
from certus.neural_network.randomness import own_generator
from certus.typing import ArrayLike


def on_device(
    value: ArrayLike | Tensor, module: nn.Module, device: str | torch.device
) -> Tensor:
    """Numbers where the module is, real ones in the module's dtype."""
    value = torch.as_tensor(value)
    dtype = dtype_of(module) if value.is_floating_point() else value.dtype
    return value.to(device=device, dtype=dtype)


def dtype_of(module: nn.Module) -> torch.dtype:
    """The dtype in which a module computes: that of its first real parameter."""
    kinds = (p.dtype for p in module.parameters() if p.is_floating_point())
    return next(kinds, torch.float32)


def require_device(device: str | torch.device) -> None:
    """Raise unless torch computes there."""
    try:
        torch.empty(1, device=device).tolist()
    except (AssertionError, RuntimeError) as error:
        reason = first_line(error)[:120]
        raise ValueError(f"device={device!r} cannot be used here: {reason}") from None


def within_range(s: np.ndarray | None) -> Any:
    """Row weights whose scale float32 can hold; only their ratios count."""
    return s if s is None or 1e-30 < s.max() < 1e30 else s / s.max()


def augmented(augment: Callable[[Tensor], Tensor] | None, x: Tensor) -> Tensor:
    """A batch of inputs as the user's function changes it: as many, of their dtype."""
    if not callable(augment):
        raise TypeError(
            f"augment must be a function of a batch of inputs, got {augment!r}."
        )
    found = augment(x)
    if not isinstance(found, Tensor) or len(found) != len(x):
        raise ValueError(
            f"augment must return a tensor of {len(x)} rows for {len(x)} rows; got "
            + (f"{len(found)}." if isinstance(found, Tensor) else f"{found!r:.40}.")
        )
    return found.to(x.dtype)


def has_batch_norm(module: nn.Module) -> bool:
    """Whether a batch needs more than one row."""
    kinds = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm)
    return any(isinstance(part, kinds) for part in module.modules())


@contextmanager
def evaluating(module: nn.Module) -> Iterator[None]:
    """Evaluation mode for a while; each part's own mode is put back."""
    training = [part for part in module.modules() if part.training]
    for part in training:
        part.training = False
    try:
        yield
    finally:
        for part in training:
            part.training = True


def outputs(module: nn.Module, rows: NetworkInputs) -> Tensor:
    """The network's outputs for all rows, in evaluation mode, block by block."""
    with evaluating(module), own_generator(), torch.inference_mode():
        # Long sequences go through in smaller blocks.
        size = getattr(rows, "together", TOGETHER)
        parts = [module(*rows[slice(i, i + size)]) for i in range(0, len(rows), size)]
    return parts[0] if len(parts) == 1 else torch.cat(parts)


def tried(
    module: nn.Module, inputs: tuple[Tensor, ...], misfit: Callable[[Tensor], str]
) -> tuple[Tensor, bool]:
    """A module's outputs for a few rows, and whether it changed the rows.

    A misfit is reported before training: ``misfit(z)`` says what outputs should
    look like if these do not.
    """
    kept = [x.clone() for x in inputs]
    try:
        with evaluating(module), torch.no_grad():
            z = module(*inputs)
    except (RuntimeError, TypeError, IndexError) as error:
        shapes = ", ".join(str(tuple(x.shape)) for x in inputs)
        raise ValueError(
            f"The module fails on inputs of shape {shapes}: {first_line(error)} Build "
            "it for the shape of X."
        ) from error
    if not isinstance(z, Tensor):
        wanted = f"a tensor, not a {type(z).__name__}"
    elif z.ndim == 0 or len(z) != len(inputs[0]):
        wanted = "one output for each row"
    else:
        wanted = misfit(z)
    if wanted:
        got = f", got shape {tuple(z.shape)}" if isinstance(z, Tensor) else ""
        raise ValueError(
            f"For two rows of X the module must give {wanted}{got}. Change its last "
            "layer, or y."
        )
    return z, any(not torch.equal(x, was) for x, was in zip(inputs, kept))


def require_row_losses(loss: Any, n: int) -> None:
    """Raise unless a loss, which may be the user's own, has a number for each row."""
    if not isinstance(loss, Tensor) or loss.shape != (n,):
        given = isinstance(loss, Tensor)
        got = str(tuple(loss.shape)) if given else type(loss).__name__
        raise ValueError(
            "The loss must give one number for each row, as with reduction='none'; "
            f"for {n} rows it gives {got}."
        )


def first_line(error: Exception) -> str:
    """What an error says first, as a sentence."""
    text = str(error).strip().splitlines()
    return (text[0].rstrip(".") if text else type(error).__name__) + "."
