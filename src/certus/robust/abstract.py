"""Running a torch network on sets of inputs instead of inputs.

A :class:`Abstract` stands where a tensor would: torch hands every function it meets to
``__torch_function__``, which knows a few kinds of step (linear maps, functions of one
entry, maxima, rearrangements); :mod:`certus.robust.layers` says which is which.
Subclasses say what each does to their sets. A step that is not known raises
:class:`Unknown`: nothing is guessed. A set that was changed in place is not read again,
by any name.
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
    dtype: torch.dtype = torch.float64

    @classmethod
    def of(cls, dtype: torch.dtype, device: Any = None) -> Rounding:
        """That of a dtype, and of float64, in which bounds are computed."""
        kind = torch.finfo(dtype)
        unit = max(kind.eps / 2, _shortcut(dtype, device)) + 2.0**-52
        return cls(unit, kind.smallest_normal, kind.max / 4, dtype)

    def share(self, terms: int) -> float:
        """The share of the sizes of its terms that a sum may lose."""
        lost = (terms + 3) * self.unit
        if lost > 0.1:
            raise Unknown(f"sums of {terms:,} terms in this precision have no bound")
        return lost / (1 - lost)


def _shortcut(dtype: torch.dtype, device: Any) -> float:
    """The unit of products that torch may compute in fewer digits than it keeps."""
    if dtype != torch.float32:
        return 0.0
    asked = {"high": 2.0**-11, "medium": 2.0**-8}
    unit = asked.get(torch.get_float32_matmul_precision(), 0.0)
    if getattr(device, "type", "cpu") != "cpu" and torch.backends.cudnn.allow_tf32:
        unit = max(unit, 2.0**-11)
    return unit


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


class Storage:
    """What a tensor and its views share: a change in place changes all of them."""

    changed = False


class Abstract:
    """A set of rows on its way through a network; abstract.

    Subclasses define ``linear``, ``entrywise``, ``maximum``, ``rearranged``, ``added``
    and ``joined``; ``dtype`` is that of the network, though bounds are in float64.
    """

    shape: torch.Size
    dtype: torch.dtype
    storage: Storage
    device = torch.device("cpu")
    is_cuda = requires_grad = False

    def __new__(cls, *_: Any, **__: Any) -> Any:
        """With a storage of its own."""
        new = object.__new__(cls)
        new.storage = Storage()
        return new

    def same(self) -> Any:
        """The same set elsewhere."""
        new = type(self).__new__(type(self))
        new.__dict__.update({**self.__dict__, "storage": Storage()})
        return new

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
        return _called(handler, *args, **(kwargs or {}))

    def __getattr__(self, name: str) -> Any:
        from certus.robust.layers import METHODS

        method = METHODS.get(name)
        if method is None:
            raise Unknown(f"{name} has no known bound")
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
        from certus.robust.layers import moved

        return _called(moved, self, lambda v: v[key])

    def _unknown(self, *_: Any) -> Any:
        # Comparisons would else be answered by the identity of objects.
        raise Unknown("a comparison or power of entries has no known bound")

    __eq__ = __ne__ = __lt__ = __le__ = __gt__ = __ge__ = _unknown
    __bool__ = __iter__ = __pow__ = __rpow__ = __rtruediv__ = __float__ = _unknown
    __setitem__ = _unknown
    __hash__ = object.__hash__


def _called(handler: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """A step, if what it is given still is what it was and is computed in full."""
    if torch.is_autocast_enabled("cpu"):
        raise Unknown("a step in the precision of autocast has no known bound")
    given = [*args, *kwargs.values()]
    given += [part for arg in given if isinstance(arg, list | tuple) for part in arg]
    for part in given:
        if isinstance(part, Abstract):
            unchanged(part)
    out = handler(*args, **kwargs)
    if kwargs.get("inplace") and out is not args[0]:
        args[0].storage.changed = True
    return out


def unchanged(x: Abstract) -> Abstract:
    """The set, unless a step has written into it."""
    if x.storage.changed:
        raise Unknown(
            "an entry that is read after a change in place has no known bound"
        )
    return x


class Ranked(Abstract):
    """Scores after a softmax: their order is known, and nothing may follow."""

    def __init__(self, scores: Abstract) -> None:
        self.scores, self.shape, self.dtype = scores, scores.shape, scores.dtype

    def _after(self, *_: Any) -> Any:
        raise Unknown("a step after a softmax has no known bound")

    linear = entrywise = maximum = _after  # type: ignore[assignment]
    rearranged = added = joined = _after  # type: ignore[assignment]
