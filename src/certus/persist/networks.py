"""Codec of plain networks: their class, what they were built with, their weights.

A network in a file is built again from its ``config`` and given its weights; the class
is looked up by name among the public ones of ``certus.neural_network.modules``, and in
no other place. Sizes are compared with those of the weights in the file before memory
is taken. A module of the user's own is code, which a file never holds.
"""

from __future__ import annotations

import importlib
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from certus.persist.container import ModelFileError
from certus.persist.encoding import (
    NETWORKS,
    ValueDecoder,
    ValueEncoder,
    expect,
    malformed,
    register,
)

#: Numbers in a config up to this are believed; larger ones must be a size of a weight.
LIMIT = 4096


def _pack(value: Any, e: ValueEncoder) -> list[Any]:
    if not isinstance(getattr(value, "config", None), dict):
        raise e.refusal(
            "it is a part of a network, not a whole network. Save it with joblib"
        )
    config, state = dict(value.config), {}
    for name, tensor in value.state_dict().items():
        try:
            state[name] = tensor.detach().cpu().numpy()
        except TypeError:
            raise e.refusal(
                f"its weights have the dtype {tensor.dtype}. Convert them to float32"
            ) from None
    if len({a.dtype for a in state.values() if a.dtype.kind == "f"}) > 1:
        raise e.refusal("its weights have several dtypes. Convert them to one")
    try:
        plan = _sizes(_build(type(value), config, "meta"))
    except (RuntimeError, TypeError, ValueError):
        plan = {}
    if plan != {name: array.shape for name, array in state.items()}:
        raise e.refusal(
            "its layers were changed after it was built. Save the model with joblib, "
            "or its weights with torch.save(model.module_.state_dict(), path)"
        )
    frozen = [name for name, p in value.named_parameters() if not p.requires_grad]
    return [
        type(value).__name__,
        e.inside("config", config),
        e.inside("state", state),
        frozen,
    ]


def _unpack(d: ValueDecoder, name: Any, config: Any, state: Any, frozen: Any) -> Any:
    cls = _find(name)
    config = expect(d.get(config), dict, "what a network was built with")
    state = expect(d.get(state), dict, "the weights of a network")
    for array in state.values():
        expect(array, np.ndarray, "weights")
    largest = max((max(a.shape, default=1) for a in state.values()), default=1)
    _require_modest(config, max(LIMIT, largest))
    try:
        with _at_most(2 * len(state) + 64):
            plan = _sizes(_build(cls, config, "meta"))
        if plan != {key: array.shape for key, array in state.items()}:
            raise malformed(f"holds weights that do not match their {name}")
        module = _build(cls, config, "cpu")
        _give(module, state)
    except RuntimeError as error:
        raise malformed(f"holds a {name} that cannot be built ({error!s:.200})") from (
            error
        )
    parameters = dict(module.named_parameters())
    for key in expect(frozen, list, "names of weights"):
        parameters[key].requires_grad_(False)
    return module.eval()


def _give(module: Any, state: dict[str, np.ndarray]) -> None:
    import torch

    tensors = {key: torch.from_numpy(np.array(a)) for key, a in state.items()}
    mine = module.state_dict()
    for key, tensor in tensors.items():
        if tensor.is_floating_point() != mine[key].is_floating_point() or (
            tensor.is_complex() or tensor.dtype is torch.bool
        ):
            raise malformed(f"holds {tensor.dtype} as the weights {key[:80]!r}")
    kinds = {t.dtype for t in tensors.values() if t.is_floating_point()}
    if len(kinds) > 1:
        raise malformed("holds weights of several dtypes in one network")
    module.to(*kinds)
    module.load_state_dict(tensors)


def _find(name: Any) -> Any:
    """The public class of that name in ``certus.neural_network.modules``."""
    if name == "Seq2Seq":  # in older files
        name = "EncoderDecoder"
    try:
        nets: Any = importlib.import_module(NETWORKS)
        cls = getattr(nets, name) if name in nets.__all__ else None
    except ImportError as error:
        raise ModelFileError(f"holds a network. {error}") from error
    if not isinstance(cls, type) or not hasattr(cls, "state_dict"):
        raise malformed(
            f"names the network {str(name)[:80]!r}, which this certus does not have"
        )
    return cls


def _build(cls: Any, config: dict[str, Any], device: str) -> Any:
    """A network from its config; torch's generator stays as it was."""
    import torch

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of layers without units, say: sizes tell
        with torch.random.fork_rng(devices=[]), torch.device(device):
            return cls(**config)


@contextmanager
def _at_most(count: int) -> Iterator[None]:
    """Refuse to build more weights than a file can have: numbers of layers multiply."""
    from torch.nn.modules.module import register_module_parameter_registration_hook

    seen, mine = [0], threading.get_ident()

    def one_more(*_: Any) -> None:
        if threading.get_ident() == mine:
            seen[0] += 1
            if seen[0] > count:
                raise malformed("builds a network with more layers than it has weights")

    hook = register_module_parameter_registration_hook(one_more)
    try:
        yield
    finally:
        hook.remove()


def _sizes(module: Any) -> dict[str, tuple[int, ...]]:
    return {name: tuple(t.shape) for name, t in module.state_dict().items()}


def _require_modest(value: Any, limit: int) -> None:
    """Refuse sizes that no weight in the file has: they would fill the memory."""
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list | tuple):
        for part in value:
            _require_modest(part, limit)
    elif isinstance(value, int | float) and not abs(value) <= limit:
        raise malformed(f"builds a network with the size {value!s:.80}")


register("network", (), ("class", "config", "state", "frozen"), _pack, _unpack)
