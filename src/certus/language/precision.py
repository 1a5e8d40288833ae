"""The precision in which a network is trained; weights always stay in float32.

With "bfloat16", products of matrices are computed from numbers with 8 significant bits.
That is faster only where the processor has instructions for it. Elsewhere they are
taken apart by software: on two cores without them a step took ten times as long.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from certus.base import check_choice
from certus.typing import Fit

PRECISIONS = ("float32", "bfloat16")
#: What PyTorch calls its own questions about the instructions of a processor.
_ASKED = ("_is_avx512_bf16_supported", "_is_amx_tile_supported")


def computes_bfloat16(device: str) -> bool:
    """Whether a device has instructions for products in bfloat16."""
    if torch.device(device).type == "cuda":
        return bool(torch.cuda.is_bf16_supported())
    return any(getattr(torch.cpu, name, bool)() for name in _ASKED)


def require_precision(precision: Any, device: str) -> None:
    """Refuse an unknown precision, and one that the device only imitates."""
    check_choice("precision", precision, PRECISIONS)
    if precision == "bfloat16" and not computes_bfloat16(device):
        raise ValueError(
            f"precision='bfloat16' needs a device with instructions for it, and "
            f"{device!r} has none: training would be about ten times slower than in "
            "float32. Use precision='float32'."
        )


def in_precision(loss: Callable[..., Any], model: Fit) -> Callable[..., Any]:
    """A loss that is computed in the precision of a model, float32 if it has none."""
    if getattr(model, "precision", "float32") == "float32":
        return loss
    kind = torch.device(model.device).type

    def rounded(*args: Any) -> Any:
        with torch.autocast(kind, dtype=torch.bfloat16):
            return loss(*args)

    return rounded
