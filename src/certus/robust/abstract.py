"""Running a torch network on sets of inputs instead of inputs.

A :class:`Abstract` stands where a tensor would: torch hands every function it meets to
``__torch_function__``, which knows a few kinds of step (linear maps, functions of one
entry, maxima, rearrangements). Subclasses say what each does to their sets. A step that
is not known raises :class:`Unknown`: nothing is guessed.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F


class Unknown(Exception):
    """A step of the network about which nothing is known."""


class Map(NamedTuple):
    """A linear map of rows, ``apply(x) + bias``, and the same with |weights|."""

    apply: Callable[[Tensor], Tensor]
    bounding: Callable[[Tensor], Tensor]
    bias: Tensor | float
    #: Upper bounds of the operator norm from l1 to l1 and from l∞ to l∞.
    norm_1: float
    norm_inf: float
    #: The matrix, where it is one.
    weight: Tensor | None = None


class Function(NamedTuple):
    """A function of one entry: itself, its steepest slope, and where it turns."""

    apply: Callable[[Tensor], Tensor]
    slope: float
    #: The entry of its minimum, if it falls before and rises after; else it rises.
    lowest: float | None = None


class Abstract:
    """A set of rows on its way through a network; abstract.

    Subclasses define ``linear``, ``entrywise``, ``maximum``, ``rearranged``, ``added``
    and ``joined``.
    """

    shape: torch.Size
    dtype = torch.float64
    device = torch.device("cpu")
    is_cuda = requires_grad = False

    def linear(self, step: Map) -> Abstract:
        """After a linear map."""
        raise NotImplementedError

    def entrywise(self, step: Function) -> Abstract:
        """After a function of each entry."""
        raise NotImplementedError

    def maximum(self, pool: Callable[[Tensor], Tensor], overlap: int) -> Abstract:
        """After maxima over windows; an entry is in ``overlap`` of them at most."""
        raise NotImplementedError

    def rearranged(self, step: Callable[[Tensor], Tensor]) -> Abstract:
        """After a step that only moves, drops or pads entries."""
        raise NotImplementedError

    def added(self, other: Abstract) -> Abstract:
        """The sum of two branches."""
        raise NotImplementedError

    def joined(self, parts: list[Abstract], dim: int) -> Abstract:
        """Branches side by side."""
        raise NotImplementedError

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
        handler = _HANDLERS.get(func)
        if handler is None:
            name = getattr(func, "__name__", str(func))
            raise Unknown(f"{name} has no known bound")
        return handler(*args, **(kwargs or {}))

    def __getattr__(self, name: str) -> Any:
        method = _METHODS.get(name)
        if method is None:
            raise Unknown(f"{name} has no known bound")
        return lambda *args, **kwargs: method(self, *args, **kwargs)

    def __add__(self, other: Any) -> Any:
        return _add(self, other)

    __radd__ = __add__

    def __sub__(self, other: Any) -> Any:
        return _add(self, _scaled(other, -1.0))

    def __mul__(self, other: Any) -> Any:
        return _scaled(self, other)

    __rmul__ = __mul__

    def __truediv__(self, other: Any) -> Any:
        return _scaled(self, 1 / other)

    def __neg__(self) -> Any:
        return _scaled(self, -1.0)


# -- linear maps -------------------------------------------------------------------


def _sums(weight: Tensor, axes: tuple[int, ...]) -> float:
    return float(weight.abs().double().sum(dim=axes).max()) if weight.numel() else 0.0


def _linear(x: Abstract, weight: Tensor, bias: Any = None) -> Any:
    W = weight.detach().double()
    offset = 0.0 if bias is None else bias.detach().double()
    return x.linear(
        Map(
            lambda v: F.linear(v, W),
            lambda v: F.linear(v, W.abs()),
            offset,
            _sums(W, (0,)),
            _sums(W, (1,)),
            W,
        )
    )


def _conv2d(
    x: Abstract,
    weight: Tensor,
    bias: Any = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> Any:
    W = weight.detach().double()
    offset = 0.0 if bias is None else bias.detach().double()[:, None, None]
    more = stride, padding, dilation, groups
    # Each input entry meets each kernel entry at most once: zeros around it only drop
    # terms, so that these sums bound the columns and the rows of the operator.
    by_input = W.reshape(groups, -1, *W.shape[1:]) if groups > 1 else W[None]
    return x.linear(
        Map(
            lambda v: F.conv2d(v, W, None, *more),
            lambda v: F.conv2d(v, W.abs(), None, *more),
            offset,
            _sums(by_input, (1, 3, 4)),
            _sums(W, (1, 2, 3)),
        )
    )


def _batch_norm(
    x: Abstract,
    mean: Tensor,
    variance: Tensor,
    weight: Any = None,
    bias: Any = None,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Any:
    if training:
        raise Unknown("batch normalisation in training mode has no known bound")
    scale = 1 / (variance.detach().double() + eps).sqrt()
    scale = scale if weight is None else scale * weight.detach().double()
    offset = -mean.detach().double() * scale
    offset = offset if bias is None else offset + bias.detach().double()
    shape = (-1,) + (1,) * (x.ndim - 2)
    return _add(_scaled(x, scale.reshape(shape)), offset.reshape(shape))


def _avg_pool2d(x: Abstract, *args: Any, **kwargs: Any) -> Any:
    def pool(v: Tensor) -> Tensor:
        return F.avg_pool2d(v, *args, **kwargs)

    return _averaged(x, pool)


def _averaged(x: Abstract, pool: Callable[[Tensor], Tensor]) -> Any:
    """Means of entries: rows of the operator sum to one, columns by what they meet."""
    probe = torch.ones((1, *x.shape[1:]), dtype=torch.float64, requires_grad=True)
    with torch.enable_grad():
        out = pool(probe)
        (columns,) = torch.autograd.grad(out.sum(), probe)
    most = float(columns.max()), float(out.detach().max())
    return x.linear(Map(pool, pool, 0.0, *most))


def _scaled(x: Any, factor: Any) -> Any:
    if not isinstance(x, Abstract):
        if isinstance(factor, Abstract):
            x, factor = factor, x
        else:
            return x * factor
    if isinstance(factor, Abstract):
        raise Unknown("a product of two branches has no known bound")
    c = torch.as_tensor(factor, dtype=torch.float64).detach()
    most = float(c.abs().max())
    return x.linear(Map(lambda v: v * c, lambda v: v * c.abs(), 0.0, most, most))


def _add(x: Any, other: Any, alpha: float = 1.0) -> Any:
    if not isinstance(x, Abstract):
        x, other = other, x
    if isinstance(other, Abstract):
        return x.added(other if alpha == 1 else _scaled(other, alpha))
    c = torch.as_tensor(other, dtype=torch.float64).detach() * alpha
    return x.linear(Map(lambda v: v, lambda v: v, c, 1.0, 1.0))


# -- functions of one entry --------------------------------------------------------


def _entry(apply: Any, slope: float, lowest: float | None = None) -> Any:
    def handler(x: Abstract, *args: Any, inplace: bool = False, **kwargs: Any) -> Any:
        def function(v: Tensor) -> Tensor:
            return apply(v, *args, **kwargs)

        return x.entrywise(Function(function, slope, lowest))

    return handler


def _leaky(x: Abstract, negative_slope: float = 0.01, inplace: bool = False) -> Any:
    if negative_slope < 0:
        raise Unknown("a leaky ReLU of negative slope has no known bound")
    slope = max(1.0, float(negative_slope))
    return x.entrywise(Function(lambda v: F.leaky_relu(v, negative_slope), slope))


def _elu(x: Abstract, alpha: float = 1.0, inplace: bool = False) -> Any:
    if alpha < 0:
        raise Unknown("an ELU of negative alpha has no known bound")
    return x.entrywise(Function(lambda v: F.elu(v, alpha), max(1.0, float(alpha))))


def _softplus(x: Abstract, beta: float = 1.0, threshold: float = 20.0) -> Any:
    return x.entrywise(Function(lambda v: F.softplus(v, beta, threshold), 1.0))


def _dropout(
    x: Abstract, p: float = 0.5, training: bool = True, inplace: bool = False
) -> Any:
    if training:
        raise Unknown("dropout in training mode has no known bound")
    return x


# -- maxima and rearrangements -----------------------------------------------------


def _max_pool2d(
    x: Abstract,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    dilation: Any = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> Any:
    if return_indices:
        raise Unknown("indices of maxima have no known bound")
    size = (kernel_size,) * 2 if isinstance(kernel_size, int) else tuple(kernel_size)
    step = size if not stride else (stride,) * 2 if isinstance(stride, int) else stride
    overlap = math.prod(math.ceil(k / s) for k, s in zip(size, step))
    options = kernel_size, stride, padding, dilation, ceil_mode
    return x.maximum(lambda v: F.max_pool2d(v, *options), overlap)


def _moved(method: str) -> Any:
    def handler(x: Abstract, *args: Any, **kwargs: Any) -> Any:
        return x.rearranged(lambda v: getattr(v, method)(*args, **kwargs))

    return handler


def _pad(x: Abstract, pad: Any, mode: str = "constant", value: Any = None) -> Any:
    if mode != "constant" or value:
        raise Unknown("padding by anything but zeros has no known bound")
    return x.rearranged(lambda v: F.pad(v, pad))


def _mean(x: Abstract, dim: Any = None, keepdim: bool = False) -> Any:
    axes = (dim,) if isinstance(dim, int) else dim
    if axes is None or 0 in axes:
        raise Unknown("a mean over rows has no known bound")
    return _averaged(x, lambda v: v.mean(dim=dim, keepdim=keepdim))


def _cat(parts: Any, dim: int = 0) -> Any:
    parts = list(parts)
    first = next(part for part in parts if isinstance(part, Abstract))
    if not all(isinstance(part, Abstract) for part in parts):
        raise Unknown("joining with constants has no known bound")
    return first.joined(parts, dim)


def _same(x: Abstract, *_: Any, **__: Any) -> Abstract:
    return x


def _adaptive(x: Abstract, output_size: Any) -> Any:
    return _averaged(x, lambda v: F.adaptive_avg_pool2d(v, output_size))


#: Methods of tensors that only move entries.
MOVES = ("flatten", "reshape", "view", "squeeze", "permute")

_METHODS: dict[str, Any] = {
    **{name: _moved(name) for name in MOVES},
    **{name: _same for name in ("to", "double", "contiguous", "clone")},
    "relu": _entry(F.relu, 1.0),
    "tanh": _entry(torch.tanh, 1.0),
    "sigmoid": _entry(torch.sigmoid, 0.25),
    "abs": _entry(torch.abs, 1.0, 0.0),
    "mean": _mean,
    "add": _add,
    "mul": _scaled,
}

_HANDLERS: dict[Any, Any] = {
    F.linear: _linear,
    F.conv2d: _conv2d,
    torch.conv2d: _conv2d,
    F.batch_norm: _batch_norm,
    torch.batch_norm: _batch_norm,
    F.avg_pool2d: _avg_pool2d,
    F.adaptive_avg_pool2d: _adaptive,
    F.max_pool2d: _max_pool2d,
    F.dropout: _dropout,
    F.dropout1d: _dropout,
    F.dropout2d: _dropout,
    F.pad: _pad,
    torch.relu: _entry(F.relu, 1.0),
    F.relu: _entry(F.relu, 1.0),
    torch.tanh: _entry(torch.tanh, 1.0),
    F.tanh: _entry(torch.tanh, 1.0),
    torch.sigmoid: _entry(torch.sigmoid, 0.25),
    F.leaky_relu: _leaky,
    F.elu: _elu,
    F.softplus: _softplus,
    torch.abs: _entry(torch.abs, 1.0, 0.0),
    torch.flatten: _moved("flatten"),
    torch.reshape: _moved("reshape"),
    torch.squeeze: _moved("squeeze"),
    torch.mean: _mean,
    torch.cat: _cat,
    torch.add: _add,
    torch.mul: _scaled,
}
