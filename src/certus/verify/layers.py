"""What the layers of a network do to rows: linear maps with their norms, and bends.

A linear map comes with the same map of |weights|, its transpose, and upper bounds of
its norms from l1 to l1 and from l∞ to l∞; a function of one entry with its steepest
slope and where it turns. Everything is float64, from the arrays of ``certus.layers``.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from scipy.special import expit, ndtr

from certus import layers as net
from certus.typing import Array, ArrayLike

Apply = Callable[[Array], Array]

#: Relative slack on norms: above the rounding of sums of 10⁵ terms in float64.
SLACK = 1e-10
#: Entries of unit rows that go through a map together.
TOGETHER = 1 << 22


class Unbounded(Exception):
    """A reason why a network has no bound."""


class Affine(NamedTuple):
    """A linear map of rows, ``apply(x) + bias``, with |weights| and transposed."""

    apply: Apply
    bounding: Apply
    back: Callable[[Array, tuple[int, ...]], Array]
    norm_1: float
    norm_inf: float
    bias: Any = 0.0
    #: What rounding of the bias is measured by.
    heft: Any = 0.0
    #: Products in each sum; 0 where entries only move, without any rounding.
    terms: int = 0
    #: The matrix, where it is one.
    weight: Array | None = None
    #: Whether an entry is a multiple of one entry.
    diagonal: bool = False


class Function(NamedTuple):
    """A function of one entry: itself, its steepest slope, and where it turns."""

    apply: Apply
    slope: float
    #: The entry of its minimum, if it falls before and rises after; else it rises.
    lowest: float | None = None
    #: Whether it is computed without rounding; and how far it may jump.
    exact: bool = False
    jump: float = 0.0


class Pool(NamedTuple):
    """Maxima over windows; an entry is in ``overlap`` of them at most."""

    apply: Apply
    overlap: int


class Branches(NamedTuple):
    """Several results as one: their sum, or side by side along an axis."""

    axis: int | None


def share(precision: net.Precision, terms: int) -> float:
    """The share of the sizes of its terms that a sum may lose."""
    lost = (terms + 3) * precision.unit
    if not lost <= 0.1:
        raise Unbounded(f"no bound is known for such long sums ({terms:,} terms)")
    return lost / (1 - lost)


def rounding(unit: net.Precision, step: Affine, size: Array, entries: float = 1) -> Any:
    """What sums of terms of a size lose, for this number of entries of a row.

    It is infinite beyond the largest number of the format.
    """
    if not step.terms:
        return 0.0 * size
    lost = share(unit, step.terms) * size
    lost = lost + (step.terms + 3) * unit.tiny * entries
    return np.where(size <= unit.most, lost, math.inf)


def operations(network: net.Network) -> list[Any]:
    """Each step as a map, a function, a pool or branches."""
    return [KINDS[type(step.layer)](step.layer) for step in network.steps]


def _float(values: ArrayLike) -> Array:
    found = np.asarray(values, dtype=np.float64)
    if not np.isfinite(found).all():
        raise Unbounded("no bound is known for a weight that is not a finite number")
    return found


def _bias(layer: net.Dense | net.Scaling) -> tuple[Array, Array]:
    """The bias of a layer, and what its rounding is measured by."""
    bias = _float(layer.bias)
    return bias, np.abs(bias if layer.heft is None else _float(layer.heft))


def _sums(size: Array, column: Any = 0, row: Any = 1) -> tuple[float, float]:
    """The largest sums of |weights| over the axes of a column, and of a row."""
    by_column, by_row = size.sum(axis=column), size.sum(axis=row)
    return float(by_column.max(initial=0.0)), float(by_row.max(initial=0.0))


def _dense(layer: net.Dense) -> Affine:
    W = _float(layer.weight)
    size = np.abs(W)
    return Affine(
        lambda v: v @ W.T,
        lambda v: v @ size.T,
        lambda g, _: g @ W,
        *_sums(size),
        *_bias(layer),
        terms=W.shape[1],
        weight=W,
    )


def _taken(v: Array, index: Array) -> Array:
    """Entries of rows laid flat, by index; −1 for a zero."""
    flat = np.pad(v.reshape(len(v), -1), ((0, 0), (0, 1)))
    return np.asarray(flat[:, index])


def _put_back(g: Array, index: Array, shape: tuple[int, ...]) -> Array:
    """Transposed: each entry is added to the one that it was taken from."""
    out = np.zeros((math.prod(shape) + 1, len(g)))
    np.add.at(out, index.ravel(), g.reshape(len(g), -1).T)
    return out[:-1].T.reshape(len(g), *shape)


def _convolution(layer: net.Convolution) -> Affine:
    W = _float(layer.weight)
    kernel = W.reshape(layer.groups, -1, math.prod(W.shape[1:]))
    size = np.abs(kernel)

    def windows(shape: tuple[int, ...]) -> tuple[Array, tuple[int, ...]]:
        """The entries (groups, kernel, outputs) that meet, and the sides of outputs."""
        places = np.arange(math.prod(shape)).reshape(shape)
        places = np.pad(places, ((0, 0), *layer.padding), constant_values=-1)
        (down, right), (tall, wide) = layer.dilation, W.shape[2:]
        extent = (down * (tall - 1) + 1, right * (wide - 1) + 1)
        seen = np.lib.stride_tricks.sliding_window_view(places, extent, axis=(1, 2))
        seen = seen[:, :: layer.stride[0], :: layer.stride[1], ::down, ::right]
        index = np.moveaxis(seen, (1, 2), (3, 4))
        return index.reshape(layer.groups, kernel.shape[2], -1), seen.shape[1:3]

    def forward(v: Array, K: Array) -> Array:
        index, sides = windows(v.shape[1:])
        step = max(1, TOGETHER // index.size)
        rows = [K @ _taken(v[i : i + step], index) for i in range(0, len(v), step)]
        return np.concatenate(rows).reshape(len(v), -1, *sides)

    def back(g: Array, shape: tuple[int, ...]) -> Array:
        index, _ = windows(shape)
        g = g.reshape(len(g), *kernel.shape[:2], -1)
        return _put_back(kernel.swapaxes(1, 2) @ g, index, shape)

    bias = _float(layer.bias)
    bias = bias[:, None, None] if bias.ndim else bias
    by_entry = size.reshape(layer.groups, -1, *W.shape[1:])
    return Affine(
        lambda v: forward(v, kernel),
        lambda v: forward(v, size),
        back,
        # Each input entry meets each kernel entry at most once: zeros around it only
        # drop terms, so that these sums bound the columns and the rows of the operator.
        *_sums(by_entry, (1, 3, 4), (2, 3, 4)),
        bias=bias,
        heft=np.abs(bias),
        terms=kernel.shape[2],
    )


def _scaling(layer: net.Scaling) -> Affine:
    c = _float(layer.factor)
    most = float(np.abs(c).max())
    return Affine(
        lambda v: v * c,
        lambda v: v * np.abs(c),
        lambda g, _: g * c,
        *(most, most),
        *_bias(layer),
        terms=layer.terms,
        diagonal=True,
    )


def _mean_pool(layer: net.MeanPool) -> Affine:
    R, C, by = (_float(part) for part in layer)
    high, wide, size = np.abs(R), np.abs(C), np.abs(by)
    if not (size > 0).all():
        raise Unbounded("no bound is known for a mean with a divisor of zero")
    counts = np.outer(high.sum(axis=1), wide.sum(axis=1))
    meets = high.T @ (np.ones_like(counts) / size) @ wide
    return Affine(
        lambda v: R @ v @ C.T / by,
        lambda v: high @ v @ wide.T / size,
        lambda g, _: R.T @ (g / by) @ C,
        float(meets.max()),
        float((counts / size).max()),
        terms=int(counts.max()) + 1,
    )


def _moved(layer: net.Gathered) -> Affine:
    index = np.ravel(layer.places)
    kept = index[index >= 0]
    if len(np.unique(kept)) < len(kept):
        raise Unbounded("no bound is known for an operation that repeats entries")

    def apply(v: Array) -> Array:
        return _taken(v, index).reshape(len(v), *layer.shape)

    def back(g: Array, shape: tuple[int, ...]) -> Array:
        return _put_back(g, index, shape)

    return Affine(apply, apply, back, 1.0, 1.0, diagonal=True)


def _max_pool(layer: net.MaxPool) -> Pool:
    def along(v: Array, index: Array) -> Array:
        outside = np.full((*v.shape[:-1], 1), -np.inf)  # where −1 points to
        return np.concatenate([v, outside], axis=-1)[..., index].max(axis=-1)

    def apply(v: Array) -> Array:
        across = along(v, layer.columns).swapaxes(-1, -2)
        return along(across, layer.rows).swapaxes(-1, -2)

    overlaps = (np.bincount(index[index >= 0]).max() for index in layer)
    return Pool(apply, math.prod(map(int, overlaps)))


def _softplus(beta: float, threshold: float) -> Function:
    def apply(v: Array) -> Array:
        far = beta * v > threshold
        return np.where(far, v, np.logaddexp(0.0, np.where(far, 0.0, beta * v)) / beta)

    return Function(apply, 1.0, jump=math.log1p(math.exp(-threshold)) / beta)


#: Functions of one entry by name; their constants are not negative but for limits.
BENDS: dict[str, Callable[..., Function]] = {
    "relu": lambda: Function(lambda v: np.maximum(v, 0.0), 1.0, exact=True),
    "relu6": lambda: Function(lambda v: np.clip(v, 0.0, 6.0), 1.0, exact=True),
    "abs": lambda: Function(np.abs, 1.0, 0.0, exact=True),
    "tanh": lambda: Function(np.tanh, 1.0),
    "sigmoid": lambda: Function(expit, 0.25),
    "clamp": lambda low, high: Function(lambda v: np.clip(v, low, high), 1.0),
    "leaky_relu": lambda a: Function(lambda v: np.where(v > 0, v, a * v), max(1.0, a)),
    "elu": lambda a: Function(
        lambda v: np.where(v > 0, v, a * np.expm1(np.minimum(v, 0))), max(1.0, a)
    ),
    "softplus": _softplus,
    "gelu": lambda: Function(lambda v: v * ndtr(v), 1.129, -0.7517915246935645),
    "silu": lambda: Function(lambda v: v * expit(v), 1.1, -1.2784645427610738),
}


def _bend(layer: net.Bend) -> Function:
    if layer.name not in BENDS:
        raise Unbounded(f"no bound is known for {layer.name}")
    if layer.name != "clamp" and not all(c >= 0 for c in layer.constants):
        raise Unbounded(f"no bound is known for {layer.name} with a negative constant")
    return BENDS[layer.name](*map(float, layer.constants))


#: By the kind of layer.
KINDS: dict[type, Callable[[Any], Any]] = {
    net.Dense: _dense,
    net.Convolution: _convolution,
    net.Scaling: _scaling,
    net.MeanPool: _mean_pool,
    net.Gathered: _moved,
    net.MaxPool: _max_pool,
    net.Bend: _bend,
    net.BranchSum: lambda layer: Branches(None),
    net.Joined: lambda layer: Branches(layer.axis),
}


def walk(network: net.Network, kinds: list[Any], start: object, domain: Any) -> Any:
    """Pass a set of rows through all steps; drop results that no later step needs."""
    after = {Affine: domain.linear, Function: domain.bend, Pool: domain.pool}
    last = {j: i for i, step in enumerate(network.steps) for j in step.inputs}
    states: list[Any] = [start]
    for i, (step, kind) in enumerate(zip(network.steps, kinds)):
        given = [states[j] for j in step.inputs]
        if isinstance(kind, Branches):
            states.append(domain.branches(given, kind.axis))
        else:
            states.append(after[type(kind)](given[0], kind))
        for j in step.inputs:
            states[j] = states[j] if last[j] > i else None
    return states[-1]


def lengths(V: Array, p: float) -> Array:
    """‖v‖_p of each row, without over- or underflow, and never below it."""
    flat = np.abs(V.reshape(len(V), math.prod(V.shape[1:])))
    top = flat.max(axis=1, initial=0.0)
    if p == math.inf:
        return top
    safe = np.where((top > 0) & (top < math.inf), top, 1.0)
    return safe * np.linalg.norm(flat / safe[:, None], ord=p, axis=1) * (1 + SLACK)


def between(columns: float, rows: float, p: float) -> float:
    """At least ‖A‖ from lp to lp, by ‖A‖₁ and ‖A‖_∞ of |A| (Riesz and Thorin)."""
    return float(columns ** (1 / p) * rows ** (1 - 1 / p)) * (1 + SLACK)


def operator_norm(step: Affine, p: float, shape: tuple[int, ...], most: int) -> float:
    """An upper bound of ‖A‖ from lp to lp, for rows of a shape.

    For p = 2 the largest singular value where the matrix is small enough to be written
    out; else, and for other p, between those of l1 and l∞.
    """
    bound = between(step.norm_1, step.norm_inf, p)
    if p != 2 or step.diagonal:
        return bound
    A = written_out((step,), shape, most) if step.weight is None else step.weight
    return bound if A is None or A.size > most else min(bound, matrix_norm(A, p))


def matrix_norm(A: Array, p: float) -> float:
    """The norm of a matrix from lp to lp; an upper bound for p other than 1, 2, ∞."""
    if p == 2 and A.size:
        return float(np.linalg.norm(A, 2)) * (1 + SLACK)
    return between(*_sums(np.abs(A)), p)


def written_out(
    steps: tuple[Affine, ...], shape: tuple[int, ...], most: int
) -> Array | None:
    """The matrix (outputs, inputs) of linear maps, unless it has too many entries."""
    if len(steps) == 1 and len(shape) == 1 and steps[0].weight is not None:
        return steps[0].weight
    shapes, one = [shape], np.zeros((1, *shape))
    for step in steps:
        one = step.apply(one)
        shapes.append(one.shape[1:])
    inputs, outputs = math.prod(shape), one.size
    if inputs * outputs > most:
        return None
    # The shorter side in unit rows: forwards for inputs, backwards for outputs.
    forwards, fewer = inputs <= outputs, min(inputs, outputs)
    backwards = list(zip(steps, shapes))[::-1]
    together, parts = max(1, TOGETHER // max(inputs, outputs)), []
    for start in range(0, fewer, together):
        v = np.eye(min(together, fewer - start), fewer, start)
        v = v.reshape(-1, *shapes[0 if forwards else -1])
        for step, before in zip(steps, shapes) if forwards else backwards:
            v = step.apply(v) if forwards else step.back(v, before)
        parts.append(v.reshape(len(v), -1))
    A = np.concatenate(parts)
    return A.T if forwards else A
