"""Translate a torch network into arrays of layers, by running it once.

A :class:`Traced` takes the place of a tensor: torch passes every function call to
``__torch_function__``, and :mod:`certus.robustness.layers` says which layer of
``certus.layers`` it is. A step that is not known raises :class:`Unknown`: nothing is
guessed. What was changed in place is not read again, by any name. The arrays are what
``certus.verify`` proves things of; it compares their scores with those of the module.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.nn import functional as F

from certus import layers as net


class Unknown(Exception):
    """Raised for a step of the network that is not known."""


def precision_of(dtype: torch.dtype, device: Any = None) -> net.Precision:
    """That of a dtype, and of float64, in which bounds are computed."""
    kind = torch.finfo(dtype)
    unit = max(kind.eps / 2, _shortcut(dtype, device)) + 2.0**-52
    return net.Precision(unit, kind.smallest_normal, kind.max / 4)


def _shortcut(dtype: torch.dtype, device: torch.device | str) -> float:
    """The unit of products that torch may compute in fewer digits than it keeps."""
    if dtype != torch.float32:
        return 0.0
    asked = {"high": 2.0**-11, "medium": 2.0**-8}
    unit = asked.get(torch.get_float32_matmul_precision(), 0.0)
    if getattr(device, "type", "cpu") != "cpu" and torch.backends.cudnn.allow_tf32:
        unit = max(unit, 2.0**-11)
    return unit


def traced(
    function: Callable[..., Any],
    shape: tuple[int, ...],
    dtype: torch.dtype,
    device: Any = None,
    ranked: bool = False,
) -> net.Network:
    """The layers of a function of rows, with a score for each class.

    Parameters
    ----------
    function : callable
        Of a tensor of rows.
    shape : tuple of int
        Of the tensor, the number of rows first.
    dtype, device
        In which the function computes.
    ranked : bool, default=False
        Whether a softmax follows, so that only the order of the scores is predicted.
    """
    rows = Traced(shape, dtype)
    try:
        out = function(rows)
    except (TypeError, ValueError, RuntimeError, IndexError, AttributeError) as error:
        # It needs real tensors; the traced ones do not support it.
        reason = f"no bound is known for this network ({type(error).__name__})"
        raise Unknown(reason).with_traceback(error.__traceback__) from error
    if not isinstance(out, Traced):
        raise Unknown(
            "no bound is known for an output that is not one score for each class"
        )
    hidden = unchanged(out).ranked
    out.ranked = False
    if out.ndim == 1:
        out = out[:, None]
    if out.ndim != 2:
        raise Unknown(
            "no bound is known for an output that is not one score for each class"
        )
    if out.shape[1] == 1:  # beside a score of 0
        out = F.linear(out, torch.tensor([[0.0], [1.0]], dtype=torch.float64))
    precision = precision_of(dtype, device)
    steps = tuple(out.steps[: out.at])
    return net.Network(steps, tuple(shape[1:]), precision, ranked, hidden)


class Storage:
    """What a tensor and its views share: a change in place changes all of them."""

    changed = False


class Traced:
    """Rows on their way through a network, and the steps that were taken."""

    device = torch.device("cpu")
    is_cuda = requires_grad = False

    def __init__(
        self, shape: tuple[int, ...], dtype: torch.dtype, steps: Any = None, at: int = 0
    ) -> None:
        self.shape, self.dtype = torch.Size(shape), dtype
        #: All steps so far, of every branch; and which of them this is, from 1 on.
        self.steps: list[net.LayerStep] = [] if steps is None else steps
        self.at, self.storage = at, Storage()
        #: Scores after a softmax: their order is known, and nothing may follow.
        self.ranked = False

    def same(self) -> Traced:
        """A copy."""
        new = Traced(self.shape, self.dtype, self.steps, self.at)
        new.ranked = self.ranked
        return new

    def after(self, layer: Any, shape: tuple[int, ...], *others: Traced) -> Traced:
        """What a layer gives, of rows of a shape."""
        if self.ranked or any(other.ranked for other in others):
            raise Unknown("no bound is known for an operation after a softmax")
        inputs = (self.at, *(other.at for other in others))
        self.steps.append(net.LayerStep(layer, inputs))
        rows = (self.shape[0], *shape)
        return Traced(rows, self.dtype, self.steps, len(self.steps))

    # -- what looks like a tensor -------------------------------------------------

    @property
    def ndim(self) -> int:
        """Number of axes."""
        return len(self.shape)

    def dim(self) -> int:
        """Number of axes."""
        return len(self.shape)

    def size(self, axis: int | None = None) -> Any:
        """The shape, or the length of an axis."""
        return self.shape if axis is None else self.shape[axis]

    def __len__(self) -> int:
        return self.shape[0]

    def is_floating_point(self) -> bool:
        """Entries are real numbers."""
        return True

    @classmethod
    def __torch_function__(
        cls, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        from certus.robustness.layers import FUNCTIONS

        handler = FUNCTIONS.get(func)
        if handler is None:
            name = getattr(func, "__name__", str(func))
            raise Unknown(f"no bound is known for {name}")
        return _called(handler, *args, **(kwargs or {}))

    def __getattr__(self, name: str) -> Any:
        from certus.robustness.layers import METHODS

        method = METHODS.get(name)
        if method is None:
            raise Unknown(f"no bound is known for {name}")
        return lambda *args, **kwargs: _called(method, self, *args, **kwargs)

    def __add__(self, other: Any) -> Any:
        return self.add(other)

    __radd__ = __add__

    def __iadd__(self, other: Any) -> Any:
        return self._replaced(self + other)

    def __isub__(self, other: Any) -> Any:
        return self._replaced(self - other)

    def __imul__(self, other: Any) -> Any:
        return self._replaced(self * other)

    def __itruediv__(self, other: Any) -> Any:
        return self._replaced(self / other)

    def _replaced(self, new: Any) -> Any:
        """What stands in this place from now on."""
        self.storage.changed = True
        return new

    def __sub__(self, other: Any) -> Any:
        return self.add(-other)

    def __rsub__(self, other: Any) -> Any:
        return self.mul(-1.0).add(other)

    def __mul__(self, other: Any) -> Any:
        return self.mul(other)

    __rmul__ = __mul__

    def __truediv__(self, other: Any) -> Any:
        return self.mul(1 / other)

    def __neg__(self) -> Any:
        return self.mul(-1.0)

    def __matmul__(self, other: Any) -> Any:
        return self.matmul(other)

    def __getitem__(self, key: Any) -> Any:
        from certus.robustness.layers import moved

        return _called(moved, self, lambda v: v[key])

    def _unknown(self, *_: Any) -> Any:
        # Comparisons would else be answered by the identity of objects.
        raise Unknown("no bound is known for a comparison or a power of entries")

    __eq__ = __ne__ = __lt__ = __le__ = __gt__ = __ge__ = _unknown
    __bool__ = __iter__ = __pow__ = __rpow__ = __rtruediv__ = __float__ = _unknown
    __setitem__ = _unknown
    __hash__ = object.__hash__


def _called(handler: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """A step, if its input is unchanged and it is computed in full."""
    if torch.is_autocast_enabled("cpu"):
        raise Unknown("no bound is known for an operation in autocast precision")
    given = [*args, *kwargs.values()]
    given += [part for arg in given if isinstance(arg, list | tuple) for part in arg]
    for part in given:
        if isinstance(part, Traced):
            unchanged(part)
    out = handler(*args, **kwargs)
    if kwargs.get("inplace") and out is not args[0]:
        args[0].storage.changed = True
    return out


def unchanged(x: Traced) -> Traced:
    """The set, unless a step has written into it."""
    if x.storage.changed:
        raise Unknown(
            "no bound is known for an entry that is read after a change in place"
        )
    return x
