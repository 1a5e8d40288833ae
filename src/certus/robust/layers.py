"""What each function of torch does to a set of rows.

A linear map with bounds of its norms, a function of one entry with its steepest slope,
a maximum, a rearrangement; or all that a softmax leaves, an order.

Whatever is not in the tables at the end, or is called in a way that has no bound here,
raises :class:`~certus.robust.abstract.Unknown`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from certus.robust.abstract import Abstract, Function, Map, Ranked, Unknown

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
            W.shape[1],
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
            math.prod(W.shape[1:]),
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
    shape = (-1,) + (1,) * (x.ndim - 2)

    def spread(v: Any) -> Tensor:
        return torch.as_tensor(v).detach().double().reshape(shape)

    c = spread(1 / (variance.double() + eps).sqrt())
    c = c if weight is None else c * spread(weight)
    shift = spread(mean) * c
    own = torch.zeros_like(shift) if bias is None else spread(bias)
    # However it is arranged, some eight roundings of these sizes.
    heft, most = shift.abs() + own.abs(), float(c.abs().max())
    times, bounding = (lambda v: v * c), (lambda v: v * c.abs())
    return x.linear(Map(times, bounding, own - shift, most, most, 8, None, heft))


def _avg_pool2d(x: Abstract, kernel_size: Any, *args: Any, **kwargs: Any) -> Any:
    def pool(v: Tensor) -> Tensor:
        return F.avg_pool2d(v, kernel_size, *args, **kwargs)

    return _averaged(x, pool, math.prod(_pair(kernel_size)))


def _pair(size: Any) -> tuple[int, ...]:
    return (size, size) if isinstance(size, int) else tuple(size)


def _averaged(x: Abstract, pool: Callable[[Tensor], Tensor], terms: int) -> Any:
    """Means of entries: rows of the operator sum to one, columns by what they meet."""
    probe = torch.ones((1, *x.shape[1:]), dtype=torch.float64, requires_grad=True)
    with torch.enable_grad():
        out = pool(probe)
        (columns,) = torch.autograd.grad(out.sum(), probe)
    if not float(out.detach().min()) >= 0:
        raise Unknown("a mean with a negative divisor has no known bound")
    most = float(columns.max()), float(out.detach().max())
    return x.linear(Map(pool, pool, 0.0, *most, terms))


def _scaled(x: Any, factor: Any) -> Any:
    if not isinstance(x, Abstract):
        if isinstance(factor, Abstract):
            x, factor = factor, x
        else:
            return x * factor
    if isinstance(factor, Abstract):
        raise Unknown("a product of two branches has no known bound")
    c = _constant(factor, x)
    if not c.numel():
        raise Unknown("a product with nothing has no known bound")
    most = float(c.abs().max())
    return x.linear(Map(lambda v: v * c, lambda v: v * c.abs(), 0.0, most, most))


def _add(x: Any, other: Any, alpha: float = 1.0) -> Any:
    if not isinstance(x, Abstract):
        x, other, alpha = _scaled(other, alpha), x, 1.0
    if isinstance(other, Abstract):
        if x.shape != other.shape:
            raise Unknown("a sum of branches of different shapes has no known bound")
        return x.added(other if alpha == 1 else _scaled(other, alpha))
    c = _constant(other, x) * alpha
    return x.linear(Map(lambda v: v, lambda v: v, c, 1.0, 1.0))


def _subtract(x: Any, other: Any, alpha: float = 1.0) -> Any:
    return _add(x, other, -alpha)


def _constant(value: Any, x: Abstract) -> Tensor:
    """Numbers that each meet one entry of x: a longer shape would repeat entries."""
    # A plain number is first brought to the precision of the network.
    kind = value.dtype if isinstance(value, Tensor) else x.dtype
    c = torch.as_tensor(value, dtype=kind).detach().to(torch.float64)
    if torch.broadcast_shapes(c.shape, x.shape) != x.shape:
        raise Unknown("a step that repeats entries has no known bound")
    if c.ndim == x.ndim and c.shape[0] != 1:
        raise Unknown("numbers of their own for each row have no known bound")
    return c


def _matmul(x: Any, matrix: Any) -> Any:
    if (
        not isinstance(x, Abstract)
        or not isinstance(matrix, Tensor)
        or matrix.ndim != 2
    ):
        raise Unknown("a product with anything but a matrix has no known bound")
    return _linear(x, matrix.T)


# -- functions of one entry --------------------------------------------------------


def _entry(
    apply: Any, slope: float, lowest: float | None = None, exact: bool = False
) -> Any:
    def handler(x: Abstract, *args: Any, inplace: bool = False, **kwargs: Any) -> Any:
        def function(v: Tensor) -> Tensor:
            return apply(v, *args, **kwargs)

        return x.entrywise(Function(function, slope, lowest, exact))

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
    if beta <= 0 or threshold < 20:
        raise Unknown("a softplus that breaks off early has no known bound")
    jump = math.log1p(math.exp(-threshold)) / beta
    return x.entrywise(
        Function(lambda v: F.softplus(v, beta, threshold), 1.0, jump=jump)
    )


def _hardtanh(
    x: Abstract, min_val: float = -1.0, max_val: float = 1.0, inplace: bool = False
) -> Any:
    return x.entrywise(Function(lambda v: v.clamp(min_val, max_val), 1.0))


def _clamp(x: Abstract, min: Any = None, max: Any = None) -> Any:
    if any(isinstance(end, (Tensor, Abstract)) for end in (min, max)):
        raise Unknown("limits of their own for each entry have no known bound")
    return x.entrywise(Function(lambda v: v.clamp(min, max), 1.0))


def _gelu(x: Abstract, approximate: str = "none") -> Any:
    if approximate != "none":
        raise Unknown("an approximate GELU has no known bound")
    return x.entrywise(Function(F.gelu, 1.129, -0.7517915246935645))


def _softmax(x: Abstract, dim: int | None = None, *more: Any, **options: Any) -> Any:
    """Of the scores of a row: the order of the classes stays."""
    _same(x, *more, **options)
    if x.ndim != 2 or dim not in (1, -1):
        raise Unknown("a softmax that is not over the classes has no known bound")
    return Ranked(x)


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
    size, gap = _pair(kernel_size), _pair(dilation)
    step = _pair(stride) if stride else size
    # Of an entry's places in windows, those count whose window begins at a stride.
    overlap = math.prod(
        math.ceil(k / (s // math.gcd(s, d))) for k, s, d in zip(size, step, gap)
    )
    options = kernel_size, stride, padding, dilation, ceil_mode
    return x.maximum(lambda v: F.max_pool2d(v, *options), overlap)


def moved(x: Abstract, step: Callable[[Tensor], Tensor]) -> Any:
    """A step that only moves or drops entries of a row; tried on their numbers."""
    size, rows = math.prod(x.shape[1:]), x.shape[0]
    numbers = torch.arange(rows * size).reshape(x.shape)
    out = step(numbers)
    if not out.ndim or len(out) != rows or not out.numel():
        raise Unknown("a step that mixes rows has no known bound")
    shape, out = out.shape[1:], out.reshape(rows, -1)
    first = out[0]
    if not torch.equal(out, first + size * torch.arange(rows)[:, None]):
        raise Unknown("a step that mixes rows has no known bound")
    if not 0 <= int(first.min()) <= int(first.max()) < size:
        raise Unknown("a step that mixes rows has no known bound")
    if len(first.unique()) < len(first):
        raise Unknown("a step that repeats entries has no known bound")
    # The same for any number of rows.
    if torch.equal(first, torch.arange(size)):
        new = x.rearranged(lambda v: v.reshape(len(v), *shape))
    else:
        new = x.rearranged(
            lambda v: v.reshape(len(v), -1)[:, first].reshape(-1, *shape)
        )
    new.storage = x.storage  # it may be a view
    return new


def _method(name: str) -> Any:
    def handler(x: Abstract, *args: Any, **kwargs: Any) -> Any:
        return moved(x, lambda v: getattr(v, name)(*args, **kwargs))

    return handler


def _pad(x: Abstract, pad: Any, mode: str = "constant", value: Any = None) -> Any:
    if mode != "constant" or value:
        raise Unknown("padding by anything but zeros has no known bound")
    if len(pad) >= 2 * x.ndim:
        raise Unknown("padding by further rows has no known bound")
    return x.rearranged(lambda v: F.pad(v, pad))


def _mean(x: Abstract, dim: Any = None, keepdim: bool = False) -> Any:
    axes = (dim,) if isinstance(dim, int) else dim
    if axes is None or any(axis % x.ndim == 0 for axis in axes):
        raise Unknown("a mean over rows has no known bound")
    terms = math.prod(x.shape[axis] for axis in axes)
    return _averaged(x, lambda v: v.mean(dim=dim, keepdim=keepdim), terms)


def _cat(parts: Any, dim: int = 0) -> Any:
    parts = list(parts)
    first = next(part for part in parts if isinstance(part, Abstract))
    if not all(isinstance(part, Abstract) for part in parts):
        raise Unknown("joining with constants has no known bound")
    if dim % first.ndim == 0:
        raise Unknown("joining rows has no known bound")
    return first.joined(parts, dim)


def _same(x: Abstract, *args: Any, **kwargs: Any) -> Abstract:
    kinds = [getattr(v, "dtype", v) for v in (*args, *kwargs.values())]
    if any(isinstance(k, torch.dtype) and k != x.dtype for k in kinds):
        raise Unknown("a change of precision within the network has no known bound")
    return x


def _of(dtype: torch.dtype) -> Any:
    return lambda x: _same(x, dtype)


def _clone(x: Abstract, *_: Any, **__: Any) -> Abstract:
    return x.same()


def _adaptive(x: Abstract, output_size: Any) -> Any:
    terms = math.prod(x.shape[-2:])
    return _averaged(x, lambda v: F.adaptive_avg_pool2d(v, output_size), terms)


_BOTH = ("flatten", "reshape", "squeeze", "unsqueeze", "transpose", "permute")
#: Methods of tensors that only move entries.
MOVES = (*_BOTH, "view")

METHODS: dict[str, Any] = {
    **{name: _method(name) for name in MOVES},
    **{name: _same for name in ("to", "contiguous")},
    "double": _of(torch.float64),
    "float": _of(torch.float32),
    "clone": _clone,
    "relu": _entry(F.relu, 1.0, exact=True),
    "tanh": _entry(torch.tanh, 1.0),
    "sigmoid": _entry(torch.sigmoid, 0.25),
    "abs": _entry(torch.abs, 1.0, 0.0, exact=True),
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
    torch.relu: _entry(F.relu, 1.0, exact=True),
    F.relu: _entry(F.relu, 1.0, exact=True),
    torch.tanh: _entry(torch.tanh, 1.0),
    F.tanh: _entry(torch.tanh, 1.0),
    torch.sigmoid: _entry(torch.sigmoid, 0.25),
    F.leaky_relu: _leaky,
    F.elu: _elu,
    F.softplus: _softplus,
    torch.abs: _entry(torch.abs, 1.0, 0.0, exact=True),
    F.hardtanh: _hardtanh,
    F.relu6: _entry(F.relu6, 1.0, exact=True),
    F.gelu: _gelu,
    F.silu: _entry(F.silu, 1.1, -1.2784645427610738),
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
