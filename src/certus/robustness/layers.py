"""Translate each function of torch into a layer of ``certus.layers``.

A layer is a linear map, a function of one entry, a maximum or a rearrangement; of a
softmax only the order of scores is used. Functions that are not in the tables at the
end, or calls without a bound, raise :class:`~certus.robustness.tracing.Unknown`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from certus import layers as net
from certus.robustness.tracing import Traced, Unknown
from certus.typing import Array

# -- linear maps -------------------------------------------------------------------


def _numbers(value: Any) -> Any:
    """A tensor as float64 numbers; nothing as 0."""
    return 0.0 if value is None else value.detach().double().cpu().numpy()


def _linear(x: Traced, weight: Tensor, bias: Any = None) -> Any:
    W = _numbers(weight)
    if W.ndim != 2 or not x.shape[1:] or x.shape[-1] != W.shape[1]:
        raise Unknown("no bound is known for a product with anything but a matrix")
    return x.after(net.Dense(W, _numbers(bias)), (*x.shape[1:-1], len(W)))


def _conv2d(
    x: Traced,
    weight: Tensor,
    bias: Array | None = None,
    stride: int | tuple[int, ...] = 1,
    padding: int | tuple[int, ...] = 0,
    dilation: int | tuple[int, ...] = 1,
    groups: int = 1,
) -> Any:
    if x.ndim != 4:
        raise Unknown("no bound is known for a convolution of anything but images")
    out = F.conv2d(
        _empty(x), weight.to("meta"), None, stride, padding, dilation, groups
    )
    gaps = _pair(dilation)
    around = _around(padding, weight.shape[2:], gaps)
    layer = net.Convolution(
        *(_numbers(weight), _numbers(bias), _pair(stride), around, gaps, groups)
    )
    return x.after(layer, out.shape[1:])


def _empty(x: Traced) -> Tensor:
    """A tensor without numbers, that functions give the right shapes for."""
    return torch.empty(x.shape, dtype=x.dtype, device="meta")


def _around(padding: Any, size: Any, gaps: Any) -> Any:
    """Zeros on both sides of both axes."""
    if padding == "valid":
        padding = 0
    if padding == "same":
        whole = [d * (k - 1) for k, d in zip(size, gaps)]
        return tuple((n // 2, n - n // 2) for n in whole)
    return tuple((n, n) for n in _pair(padding))


def _batch_norm(
    x: Traced,
    mean: Tensor,
    variance: Tensor,
    weight: Array | None = None,
    bias: Array | None = None,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Any:
    if training:
        raise Unknown("no bound is known for batch normalisation in training mode")

    def spread(v: Any) -> Any:
        return np.reshape(_numbers(v), (-1,) + (1,) * (x.ndim - 2))

    c = 1 / np.sqrt(spread(variance) + eps)
    c = c if weight is None else c * spread(weight)
    shift = spread(mean) * c
    own = np.zeros_like(shift) if bias is None else spread(bias)
    # However it is arranged, some eight roundings of these sizes.
    heft = np.abs(shift) + np.abs(own)
    return x.after(net.Scaling(c, own - shift, heft, 8), x.shape[1:])


def _pair(size: int | Sequence[int]) -> tuple[int, ...]:
    found = (size, size) if isinstance(size, int) else tuple(size)
    return found * 2 if len(found) == 1 else found


def _avg_pool2d(
    x: Traced,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> Any:
    options = kernel_size, stride, padding, ceil_mode, count_include_pad
    out = F.avg_pool2d(_empty(x), *options, divisor_override)
    size, pad = _pair(kernel_size), _pair(padding)
    step = _pair(stride) if stride else size
    axes = []
    for n, k, s, p, count in zip(x.shape[-2:], size, step, pad, out.shape[-2:]):
        first = np.arange(count) * s - p
        last = np.minimum(first + k, n + p)
        inside = np.maximum(first, 0), np.minimum(last, n)
        counted = last - first if count_include_pad else inside[1] - inside[0]
        axes.append((_windows(*inside, n), counted))
    (rows, high), (columns, wide) = axes
    divisor = divisor_override if divisor_override else np.outer(high, wide)
    if not np.all(np.asarray(divisor) > 0):
        raise Unknown("no bound is known for a mean with a negative divisor")
    return x.after(net.MeanPool(rows, columns, divisor), out.shape[1:])


def _windows(first: Any, last: Any, n: int) -> Any:
    """1 from the first entry of each window to before the last, else 0."""
    at = np.arange(n)
    return ((first[:, None] <= at) & (at < last[:, None])).astype(np.float64)


def _adaptive(x: Traced, output_size: Any) -> Any:
    out = F.adaptive_avg_pool2d(_empty(x), output_size)
    sides = []
    for n, count in zip(x.shape[-2:], out.shape[-2:]):
        i = np.arange(count)
        sides.append(_windows(i * n // count, -(-(i + 1) * n // count), n))
    divisor = np.outer(*(side.sum(axis=1) for side in sides))
    rows, columns = sides
    return x.after(net.MeanPool(rows, columns, divisor), out.shape[1:])


def _mean(x: Traced, dim: Any = None, keepdim: bool = False) -> Any:
    axes = (dim,) if isinstance(dim, int) else dim
    if axes is None or any(axis % x.ndim == 0 for axis in axes):
        raise Unknown("no bound is known for a mean over rows")
    axes = sorted({axis % x.ndim for axis in axes})
    kept = [axis for axis in range(x.ndim) if axis not in axes]
    terms = math.prod(x.shape[axis] for axis in axes)
    inner = moved(x, lambda v: v.permute(*kept, *axes).flatten(len(kept)))
    found = _linear(inner, torch.full((1, terms), 1 / terms, dtype=torch.float64))
    shape = _empty(x).mean(dim=dim, keepdim=keepdim).shape
    return moved(found, lambda v: v.reshape(len(v), *shape[1:]))


def _scaled(x: Any, factor: Any) -> Any:
    if not isinstance(x, Traced):
        if isinstance(factor, Traced):
            x, factor = factor, x
        else:
            return x * factor
    if isinstance(factor, Traced):
        raise Unknown("no bound is known for a product of two branches")
    c = _constant(factor, x)
    if not c.size:
        raise Unknown("no bound is known for an empty product")
    return x.after(net.Scaling(c), x.shape[1:])


def _add(x: Any, other: Any, alpha: float = 1.0) -> Any:
    if not isinstance(x, Traced):
        x, other, alpha = _scaled(other, alpha), x, 1.0
    if isinstance(other, Traced):
        if x.shape != other.shape:
            raise Unknown("no bound is known for a sum of branches of different shapes")
        more = other if alpha == 1 else _scaled(other, alpha)
        return x.after(net.BranchSum(), x.shape[1:], more)
    return x.after(net.Scaling(1.0, _constant(other, x) * alpha), x.shape[1:])


def _subtract(x: Any, other: Any, alpha: float = 1.0) -> Any:
    return _add(x, other, -alpha)


def _constant(value: float | Array, x: Traced) -> Any:
    """Numbers that each meet one entry of x: a longer shape would repeat entries."""
    # A plain number is first brought to the precision of the network.
    kind = value.dtype if isinstance(value, Tensor) else x.dtype
    c = torch.as_tensor(value, dtype=kind).detach().to(torch.float64)
    if torch.broadcast_shapes(c.shape, x.shape) != x.shape:
        raise Unknown("no bound is known for an operation that repeats entries")
    if c.ndim == x.ndim:
        if c.shape[0] != 1:
            raise Unknown(
                "no bound is known for an operation that adds different "
                "numbers to each row"
            )
        c = c[0]
    return c.cpu().numpy()


def _matmul(x: Traced, matrix: Array) -> Any:
    if not isinstance(x, Traced) or not isinstance(matrix, Tensor) or matrix.ndim != 2:
        raise Unknown("no bound is known for a product with anything but a matrix")
    return _linear(x, matrix.T)


# -- functions of one entry --------------------------------------------------------


def _bent(x: Traced, name: str, *constants: float) -> Any:
    numbers = tuple(float(constant) for constant in constants)
    return x.after(net.Bend(name, numbers), x.shape[1:])


def _bend(name: str) -> Any:
    def handler(x: Traced, inplace: bool = False) -> Any:
        return _bent(x, name)

    return handler


def _leaky(x: Traced, negative_slope: float = 0.01, inplace: bool = False) -> Any:
    if negative_slope < 0:
        raise Unknown("no bound is known for a leaky ReLU with a negative slope")
    return _bent(x, "leaky_relu", negative_slope)


def _elu(x: Traced, alpha: float = 1.0, inplace: bool = False) -> Any:
    if alpha < 0:
        raise Unknown("no bound is known for an ELU with a negative alpha")
    return _bent(x, "elu", alpha)


def _softplus(x: Traced, beta: float = 1.0, threshold: float = 20.0) -> Any:
    if beta <= 0 or threshold < 20:
        raise Unknown("no bound is known for a softplus with a low threshold")
    return _bent(x, "softplus", beta, threshold)


def _hardtanh(
    x: Traced, min_val: float = -1.0, max_val: float = 1.0, inplace: bool = False
) -> Any:
    return _bent(x, "clamp", min_val, max_val)


def _clamp(x: Traced, min: Any = None, max: Any = None) -> Any:
    if any(isinstance(end, (Tensor, Traced)) for end in (min, max)):
        raise Unknown(
            "no bound is known for clipping with different limits for each entry"
        )
    low = -math.inf if min is None else min
    return _bent(x, "clamp", low, math.inf if max is None else max)


def _gelu(x: Traced, approximate: str = "none") -> Any:
    if approximate != "none":
        raise Unknown("no bound is known for an approximate GELU")
    return _bent(x, "gelu")


def _softmax(x: Traced, dim: int | None = None, *more: Any, **options: Any) -> Any:
    """Of the scores of a row: the order of the classes stays."""
    _same(x, *more, **options)
    if x.ndim != 2 or dim not in (1, -1):
        raise Unknown("no bound is known for a softmax that is not over the classes")
    if x.ranked:
        raise Unknown("no bound is known for an operation after a softmax")
    found = x.same()
    found.ranked = True
    return found


def _dropout(
    x: Traced, p: float = 0.5, training: bool = True, inplace: bool = False
) -> Any:
    if training:
        raise Unknown("no bound is known for dropout in training mode")
    return x


# -- maxima and rearrangements -----------------------------------------------------


def _max_pool2d(
    x: Traced,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    dilation: Any = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> Any:
    if return_indices:
        raise Unknown("no bound is known for the indices of maxima")
    options = kernel_size, stride, padding, dilation, ceil_mode
    out = F.max_pool2d(_empty(x), *options)
    size, gaps, pad = _pair(kernel_size), _pair(dilation), _pair(padding)
    step = _pair(stride) if stride else size
    sides = []
    for axis, count in enumerate(out.shape[-2:]):
        first = np.arange(count)[:, None] * step[axis] - pad[axis]
        at = first + gaps[axis] * np.arange(size[axis])
        sides.append(np.where((at >= 0) & (at < x.shape[axis - 2]), at, -1))
    return x.after(net.MaxPool(*sides), out.shape[1:])


def moved(x: Traced, step: Callable[[Tensor], Tensor]) -> Any:
    """A step that only moves or drops entries of a row; tried on their numbers."""
    size, rows = math.prod(x.shape[1:]), x.shape[0]
    numbers = torch.arange(rows * size).reshape(x.shape)
    out = step(numbers)
    if not out.ndim or len(out) != rows or not out.numel():
        raise Unknown("no bound is known for an operation that mixes rows")
    shape, out = out.shape[1:], out.reshape(rows, -1)
    first = out[0]
    if not torch.equal(out, first + size * torch.arange(rows)[:, None]):
        raise Unknown("no bound is known for an operation that mixes rows")
    if not 0 <= int(first.min()) <= int(first.max()) < size:
        raise Unknown("no bound is known for an operation that mixes rows")
    if len(first.unique()) < len(first):
        raise Unknown("no bound is known for an operation that repeats entries")
    new = x.after(net.Gathered(first.numpy(), tuple(shape)), shape)
    new.storage = x.storage  # it may be a view
    return new


def _method(name: str) -> Any:
    def handler(x: Traced, *args: Any, **kwargs: Any) -> Any:
        return moved(x, lambda v: getattr(v, name)(*args, **kwargs))

    return handler


def _pad(x: Traced, pad: Any, mode: str = "constant", value: Any = None) -> Any:
    if mode != "constant" or value:
        raise Unknown("no bound is known for padding with anything but zeros")
    if len(pad) >= 2 * x.ndim:
        raise Unknown("no bound is known for padding with further rows")
    numbers = torch.arange(math.prod(x.shape[1:])).reshape(1, *x.shape[1:])
    index = F.pad(numbers, pad, value=-1)[0]
    return x.after(net.Gathered(index.ravel().numpy(), tuple(index.shape)), index.shape)


def _cat(parts: Any, dim: int = 0) -> Any:
    parts = list(parts)
    if not all(isinstance(part, Traced) for part in parts):
        raise Unknown("no bound is known for joining with constants")
    first, *others = parts
    if dim % first.ndim == 0:
        raise Unknown("no bound is known for joining rows")
    shape = torch.cat([_empty(part) for part in parts], dim=dim).shape
    return first.after(net.Joined(dim % first.ndim), shape[1:], *others)


def _same(x: Traced, *args: Any, **kwargs: Any) -> Traced:
    kinds = [getattr(v, "dtype", v) for v in (*args, *kwargs.values())]
    if any(isinstance(k, torch.dtype) and k != x.dtype for k in kinds):
        raise Unknown("no bound is known for a change of precision inside the network")
    return x


def _of(dtype: torch.dtype) -> Any:
    return lambda x: _same(x, dtype)


def _clone(x: Traced, *_: Any, **__: Any) -> Traced:
    return x.same()


_BOTH = ("flatten", "reshape", "squeeze", "unsqueeze", "transpose", "permute")
#: Methods of tensors that only move entries.
MOVES = (*_BOTH, "view")

METHODS: dict[str, Any] = {
    **{name: _method(name) for name in MOVES},
    **{name: _same for name in ("to", "contiguous")},
    "double": _of(torch.float64),
    "float": _of(torch.float32),
    "clone": _clone,
    "relu": _bend("relu"),
    "tanh": _bend("tanh"),
    "sigmoid": _bend("sigmoid"),
    "abs": _bend("abs"),
    "clamp": _clamp,
    "mean": _mean,
    "add": _add,
    "mul": _scaled,
    "softmax": _softmax,
    "log_softmax": _softmax,
    "matmul": _matmul,
}

FUNCTIONS: dict[Any, Any] = {
    F.linear: _linear,
    F.conv2d: _conv2d,
    torch.conv2d: _conv2d,
    F.batch_norm: _batch_norm,
    torch.batch_norm: _batch_norm,
    F.avg_pool2d: _avg_pool2d,
    F.adaptive_avg_pool2d: _adaptive,
    F.max_pool2d: _max_pool2d,
    torch.max_pool2d: _max_pool2d,
    F.dropout: _dropout,
    F.dropout1d: _dropout,
    F.dropout2d: _dropout,
    F.pad: _pad,
    torch.relu: _bend("relu"),
    F.relu: _bend("relu"),
    torch.tanh: _bend("tanh"),
    F.tanh: _bend("tanh"),
    torch.sigmoid: _bend("sigmoid"),
    F.leaky_relu: _leaky,
    F.elu: _elu,
    F.softplus: _softplus,
    torch.abs: _bend("abs"),
    F.hardtanh: _hardtanh,
    F.relu6: _bend("relu6"),
    F.gelu: _gelu,
    F.silu: _bend("silu"),
    torch.clamp: _clamp,
    F.softmax: _softmax,
    torch.softmax: _softmax,
    F.log_softmax: _softmax,
    torch.log_softmax: _softmax,
    torch.matmul: _matmul,
    **{getattr(torch, name): _method(name) for name in _BOTH},
    torch.mean: _mean,
    torch.cat: _cat,
    torch.add: _add,
    torch.Tensor.add: _add,
    torch.sub: _subtract,
    torch.Tensor.sub: _subtract,
    torch.mul: _scaled,
    torch.Tensor.mul: _scaled,
}
