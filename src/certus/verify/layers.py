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

Array = np.ndarray[Any, np.dtype[Any]]
Apply = Callable[[Array], Array]

#: Relative slack on norms: above the rounding of sums of 10⁵ terms in float64.
SLACK = 1e-10
#: Entries of unit rows that go through a map together.
TOGETHER = 1 << 22


class Unbounded(Exception):
    """Why a network has no bound."""


class Map(NamedTuple):
    """A linear map of rows, ``apply(x) + bias``, with |weights| and transposed."""

    apply: Apply
    bounding: Apply
    back: Callable[[Array, tuple[int, ...]], Array]
    norm_1: float
    norm_inf: float
    bias: Any = 0.0
    #: What rounding of the bias is measured by.
    heft: Any = 0.0
    #: Products in each sum.
    terms: int = 1
    #: The matrix, where it is one.
    weight: Array | None = None
    #: One factor for each entry; or no rounding at all, as entries only move.
    diagonal: bool = False
    moves: bool = False
    #: The step of the network, by which what is computed once is found again.
    key: int = 0


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
        raise Unbounded(f"sums of {terms:,} terms in this precision have no bound")
    return lost / (1 - lost)


def operations(network: net.Network) -> list[Any]:
    """Each step as a map, a function, a pool or branches."""
    return [KINDS[type(s.layer)](s.layer, i) for i, s in enumerate(network.steps)]


def _float(values: Any) -> Array:
    found = np.asarray(values, dtype=np.float64)
    if not np.isfinite(found).all():
        raise Unbounded("a weight that is no finite number has no known bound")
    return found


def _heft(layer: Any) -> Array:
    return np.abs(_float(layer.bias if layer.heft is None else layer.heft))


def _dense(layer: net.Dense, key: int) -> Map:
    W, bias = _float(layer.weight), _float(layer.bias)
    size, heft = np.abs(W), _heft(layer)
    return Map(
        lambda v: v @ W.T,
        lambda v: v @ size.T,
        lambda g, _: g @ W,
        float(size.sum(axis=0).max(initial=0.0)),
        float(size.sum(axis=1).max(initial=0.0)),
        bias,
        heft,
        terms=W.shape[1],
        weight=W,
        key=key,
    )


def _convolution(layer: net.Convolution, key: int) -> Map:
    W, groups = _float(layer.weight), layer.groups
    height, width = W.shape[2:]
    # Each input entry meets each kernel entry at most once: zeros around it only drop
    # terms, so that these sums bound the columns and the rows of the operator.
    by_group = W.reshape(groups, -1, *W.shape[1:])
    size = np.abs(by_group)
    places = [(i, j) for i in range(height) for j in range(width)]

    def counts(shape: tuple[int, ...]) -> list[int]:
        return [
            (n + sum(pad) - d * (k - 1) - 1) // s + 1
            for n, pad, d, k, s in zip(
                *(shape, layer.padding, layer.dilation, W.shape[2:], layer.stride)
            )
        ]

    def windows(count: list[int], place: tuple[int, int]) -> tuple[Any, ...]:
        ends = zip(count, place, layer.dilation, layer.stride)
        return (..., *(slice(p * d, p * d + (n - 1) * s + 1, s) for n, p, d, s in ends))

    def forward(v: Array, K: Array) -> Array:
        count = counts(v.shape[2:])
        v = np.pad(v, ((0, 0), (0, 0), *layer.padding))
        out = np.zeros((len(v), groups, K.shape[1], math.prod(count)))
        for i, j in places:
            part = v[windows(count, (i, j))]
            part = part.reshape(len(v), groups, K.shape[2], -1)
            out += K[:, :, :, i, j] @ part
        return out.reshape(len(v), -1, *count)

    def back(g: Array, shape: tuple[int, ...]) -> Array:
        count = counts(shape[1:])
        sides = [n + sum(pad) for n, pad in zip(shape[1:], layer.padding)]
        out = np.zeros((len(g), groups * W.shape[1], *sides))
        g = g.reshape(len(g), groups, by_group.shape[1], -1)
        for i, j in places:
            part = by_group[:, :, :, i, j].swapaxes(1, 2) @ g
            out[windows(count, (i, j))] += part.reshape(len(g), -1, *count)
        (top, under), (left, right) = layer.padding
        return out[:, :, top : sides[0] - under, left : sides[1] - right]

    bias = _float(layer.bias)
    bias = bias[:, None, None] if bias.ndim else bias
    return Map(
        lambda v: forward(v, by_group),
        lambda v: forward(v, size),
        back,
        float(size.sum(axis=(1, 3, 4)).max()),
        float(size.sum(axis=(2, 3, 4)).max()),
        bias,
        np.abs(bias),
        terms=math.prod(W.shape[1:]),
        key=key,
    )


def _scaling(layer: net.Scaling, key: int) -> Map:
    c, bias = _float(layer.factor), _float(layer.bias)
    most, times = float(np.abs(c).max()), layer.terms
    return Map(
        lambda v: v * c,
        lambda v: v * np.abs(c),
        lambda g, _: g * c,
        most,
        most,
        bias,
        _heft(layer),
        times,
        diagonal=True,
        key=key,
    )


def _mean_pool(layer: net.MeanPool, key: int) -> Map:
    R, C, by = _float(layer.rows), _float(layer.columns), _float(layer.divisor)
    high, wide, size = np.abs(R), np.abs(C), np.abs(by)
    if not (size > 0).all():
        raise Unbounded("a mean with a divisor of zero has no known bound")
    counts = np.outer(high.sum(axis=1), wide.sum(axis=1))
    meets = high.T @ (np.ones_like(counts) / size) @ wide
    return Map(
        lambda v: R @ v @ C.T / by,
        lambda v: high @ v @ wide.T / size,
        lambda g, _: R.T @ (g / by) @ C,
        float(meets.max()),
        float((counts / size).max()),
        terms=int(counts.max()) + 1,
        key=key,
    )


def _moved(layer: net.Moved, key: int) -> Map:
    index, taken = np.ravel(layer.places), np.ravel(layer.places) >= 0
    kept = index[taken]
    if len(np.unique(kept)) < len(kept):
        raise Unbounded("a step that repeats entries has no known bound")
    still = np.array_equal(index, np.arange(len(index)))

    def apply(v: Array) -> Array:
        flat = v.reshape(len(v), -1)
        if not (still and flat.shape[1] == len(index)):
            flat = np.where(taken, flat[:, np.where(taken, index, 0)], 0.0)
        return flat.reshape(len(v), *layer.shape)

    def back(g: Array, shape: tuple[int, ...]) -> Array:
        out = np.zeros((len(g), math.prod(shape)))
        out[:, kept] = g.reshape(len(g), -1)[:, taken]
        return out.reshape(len(g), *shape)

    return Map(apply, apply, back, 1.0, 1.0, moves=True, key=key)


def _max_pool(layer: net.MaxPool, _: int) -> Pool:
    def along(v: Array, index: Array, axis: int) -> Array:
        last = np.moveaxis(v, axis, -1)
        outside = np.full((*last.shape[:-1], 1), -np.inf)  # where −1 points to
        found = np.concatenate([last, outside], axis=-1)[..., index[:, 0]]
        for k in range(1, index.shape[1]):
            more = np.concatenate([last, outside], axis=-1)[..., index[:, k]]
            found = np.maximum(found, more)
        return np.moveaxis(found, -1, axis)

    overlap = math.prod(
        int(np.bincount(np.ravel(index)[np.ravel(index) >= 0]).max()) for index in layer
    )
    return Pool(
        lambda v: along(along(v, layer.columns, -1), layer.rows, -2), max(overlap, 1)
    )


def _leaky(a: float) -> Function:
    return Function(lambda v: np.where(v > 0, v, a * v), max(1.0, a))


def _elu(a: float) -> Function:
    return Function(
        lambda v: np.where(v > 0, v, a * np.expm1(np.minimum(v, 0))), max(1.0, a)
    )


def _softplus(beta: float, threshold: float) -> Function:
    def apply(v: Array) -> Array:
        far = beta * v > threshold
        return np.where(far, v, np.logaddexp(0.0, np.where(far, 0.0, beta * v)) / beta)

    jump = math.log1p(math.exp(-threshold)) / beta
    return Function(apply, 1.0, jump=jump)


#: Functions of one entry by name; their constants are not negative but for limits.
BENDS: dict[str, Callable[..., Function]] = {
    "relu": lambda: Function(lambda v: np.maximum(v, 0.0), 1.0, exact=True),
    "relu6": lambda: Function(lambda v: np.clip(v, 0.0, 6.0), 1.0, exact=True),
    "abs": lambda: Function(np.abs, 1.0, 0.0, exact=True),
    "tanh": lambda: Function(np.tanh, 1.0),
    "sigmoid": lambda: Function(expit, 0.25),
    "clamp": lambda low, high: Function(lambda v: np.clip(v, low, high), 1.0),
    "leaky_relu": _leaky,
    "elu": _elu,
    "softplus": _softplus,
    "gelu": lambda: Function(lambda v: v * ndtr(v), 1.129, -0.7517915246935645),
    "silu": lambda: Function(lambda v: v * expit(v), 1.1, -1.2784645427610738),
}


def _bend(layer: net.Bend, _: int) -> Function:
    if layer.name not in BENDS:
        raise Unbounded(f"{layer.name} has no known bound")
    if layer.name != "clamp" and not all(c >= 0 for c in layer.constants):
        raise Unbounded(f"{layer.name} with a negative constant has no known bound")
    return BENDS[layer.name](*map(float, layer.constants))


#: By the kind of layer.
KINDS: dict[type, Callable[[Any, int], Any]] = {
    net.Dense: _dense,
    net.Convolution: _convolution,
    net.Scaling: _scaling,
    net.MeanPool: _mean_pool,
    net.Moved: _moved,
    net.MaxPool: _max_pool,
    net.Bend: _bend,
    net.Sum: lambda layer, _: Branches(None),
    net.Joined: lambda layer, _: Branches(layer.axis),
}


def walk(network: net.Network, kinds: list[Any], start: Any, domain: Any) -> Any:
    """A set of rows through all steps; what no later step needs is let go."""
    states: list[Any] = [start]
    last = {j: i for i, step in enumerate(network.steps) for j in step.inputs}
    for i, (step, kind) in enumerate(zip(network.steps, kinds)):
        given = [states[j] for j in step.inputs]
        if isinstance(kind, Branches):
            states.append(domain.branches(given, kind.axis))
        else:
            after = {Map: domain.linear, Function: domain.bend, Pool: domain.pool}
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


def magnitude_norm(step: Map, p: float) -> float:
    """An upper bound of the norm from lp to lp of the map with |weights|.

    ‖A‖₁^{1/p}‖A‖_∞^{1−1/p} (Riesz and Thorin).
    """
    if p == math.inf:
        return step.norm_inf * (1 + SLACK)
    return float(step.norm_1 ** (1 / p) * step.norm_inf ** (1 - 1 / p)) * (1 + SLACK)


def operator_norm(step: Map, p: float, shape: tuple[int, ...], most: int) -> float:
    """An upper bound of ‖A‖ from lp to lp, for rows of a shape.

    For p = 2 the largest singular value where the matrix is small enough to be written
    out; else, and for other p, between those of l1 and l∞.
    """
    between = magnitude_norm(step, p)
    if p != 2 or step.diagonal or step.moves:
        return between
    A = written_out((step,), shape, most) if step.weight is None else step.weight
    if A is None or A.size > most:
        return between
    return min(between, matrix_norm(A, p))


def matrix_norm(A: Array, p: float) -> float:
    """The norm of a matrix from lp to lp; an upper bound for p other than 1, 2, ∞."""
    if not A.size:
        return 0.0
    if p == 2:
        return float(np.linalg.norm(A, 2)) * (1 + SLACK)
    columns, rows = (float(np.abs(A).sum(axis=axis).max()) for axis in (0, 1))
    if p == math.inf:
        return rows * (1 + SLACK)
    return float(columns ** (1 / p) * rows ** (1 - 1 / p)) * (1 + SLACK)


def written_out(
    steps: tuple[Map, ...], shape: tuple[int, ...], most: int
) -> Array | None:
    """The matrix (outputs, inputs) of linear maps, unless it has too many entries."""
    shapes, one = [shape], np.zeros((1, *shape))
    for step in steps:
        one = step.apply(one)
        shapes.append(one.shape[1:])
    inputs, outputs = (math.prod(side) for side in (shape, shapes[-1]))
    if inputs * outputs > most:
        return None
    if len(steps) == 1 and len(shape) == 1 and steps[0].weight is not None:
        return steps[0].weight

    def forth(v: Array) -> Array:
        for step in steps:
            v = step.apply(v)
        return v

    def back(v: Array) -> Array:
        for step, before in zip(reversed(steps), reversed(shapes[:-1])):
            v = step.back(v, before)
        return v

    # The shorter side in unit rows: forwards for inputs, backwards for outputs.
    fewer, longer = min(inputs, outputs), max(inputs, outputs)
    through, side = (forth, shape) if inputs <= outputs else (back, shapes[-1])
    A, together = np.empty((fewer, longer)), max(1, TOGETHER // longer)
    for start in range(0, fewer, together):
        unit = np.eye(min(together, fewer - start), fewer, start)
        A[start : start + len(unit)] = through(unit.reshape(-1, *side)).reshape(
            len(unit), -1
        )
    return A.T if inputs <= outputs else A
