"""Running a torch network on sets of inputs instead of inputs.

A :class:`Abstract` stands where a tensor would: torch hands every function it meets to
``__torch_function__``, which knows a few kinds of step (linear maps, functions of one
entry, maxima, rearrangements); :mod:`certus.robust.layers` says which is which.
Subclasses say what each does to their sets. A step that is not known raises
:class:`Unknown`: nothing is guessed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor


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
    #: Products in each sum.
    terms: int = 1
    #: The matrix, where it is one.
    weight: Tensor | None = None
    #: Sizes of the numbers that make up the bias, where they are more than one.
    heft: Tensor | None = None

    @property
    def weight_of_bias(self) -> Tensor:
        """What rounding of the bias is measured by."""
        bias = self.bias if self.heft is None else self.heft
        return torch.as_tensor(bias, dtype=torch.float64).abs()


class Function(NamedTuple):
    """A function of one entry: itself, its steepest slope, and where it turns."""

    apply: Callable[[Tensor], Tensor]
    slope: float
    #: The entry of its minimum, if it falls before and rises after; else it rises.
    lowest: float | None = None
    #: Whether it is computed without rounding; and how far it may jump.
    exact: bool = False
    jump: float = 0.0


class Rounding(NamedTuple):
    """How the network computes: unit roundoff, smallest and largest numbers.

    Proofs are about what is computed, not about real numbers: every sum may be off by
    as much as its terms, in any order, can lose.
    """

    unit: float
    tiny: float
    most: float

    @classmethod
    def of(cls, dtype: torch.dtype) -> Rounding:
        """That of a dtype, and of float64, in which bounds are computed."""
        kind = torch.finfo(dtype)
        return cls(kind.eps / 2 + 2.0**-52, kind.smallest_normal, kind.max / 4)

    def share(self, terms: int) -> float:
        """The share of the sizes of its terms that a sum may lose."""
        lost = (terms + 3) * self.unit
        if lost > 0.1:
            raise Unknown(f"sums of {terms:,} terms in this precision have no bound")
        return lost / (1 - lost)


class Memory:
    """Numbers that each pass through the same network needs again, in its order."""

    def __init__(self) -> None:
        self._kept: list[Any] = []
        self._at = 0

    def restart(self) -> None:
        """A new pass begins."""
        self._at = 0

    def recall(self, compute: Callable[[], Any]) -> Any:
        """What was computed at this point of an earlier pass; else compute it."""
        if self._at == len(self._kept):
            self._kept.append(compute())
        self._at += 1
        return self._kept[self._at - 1]


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
        from certus.robust.layers import FUNCTIONS

        handler = FUNCTIONS.get(func)
        if handler is None:
            name = getattr(func, "__name__", str(func))
            raise Unknown(f"{name} has no known bound")
        return handler(*args, **(kwargs or {}))

    def __getattr__(self, name: str) -> Any:
        from certus.robust.layers import METHODS

        method = METHODS.get(name)
        if method is None:
            raise Unknown(f"{name} has no known bound")
        return lambda *args, **kwargs: method(self, *args, **kwargs)

    def __add__(self, other: Any) -> Any:
        return self.add(other)

    __radd__ = __add__

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
        from certus.robust.layers import moved

        return moved(self, lambda v: v[key])

    def _unknown(self, *_: Any) -> Any:
        # Comparisons would else be answered by the identity of objects.
        raise Unknown("a comparison or power of entries has no known bound")

    __eq__ = __ne__ = __lt__ = __le__ = __gt__ = __ge__ = _unknown
    __bool__ = __iter__ = __pow__ = __rpow__ = __rtruediv__ = __float__ = _unknown
    __hash__ = object.__hash__


class Ranked(Abstract):
    """Scores after a softmax: their order is known, and nothing may follow."""

    def __init__(self, scores: Abstract) -> None:
        self.scores, self.shape = scores, scores.shape

    def _after(self, *_: Any) -> Any:
        raise Unknown("a step after a softmax has no known bound")

    linear = entrywise = maximum = _after  # type: ignore[assignment]
    rearranged = added = joined = _after  # type: ignore[assignment]
