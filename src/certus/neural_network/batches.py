"""Batches of rows, fetched by their numbers from data in memory.

No loader and no workers: indexing a tensor is cheaper than passing rows between
processes. Dense arrays are tensors once; sparse rows are made dense, ragged ones
padded, a batch at a time.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from sklearn.utils import assert_all_finite
from torch import Tensor

from certus.base import take as take
from certus.typing import DTypeLike, MatrixLike

#: Rows that go through a network together in prediction.
TOGETHER = 1024
#: Elements of sequences that go through a network together.
STEPS_TOGETHER = 1 << 14
#: Batches whose rows are put in order of length together.
SORTED = 16

#: Numbers that go through a network together in prediction: four megabytes of float32.
NUMBERS_TOGETHER = 1 << 20


class Batch(NamedTuple):
    """The data of some rows for a step."""

    inputs: tuple[Tensor, ...]  # what the module is called with
    y: Tensor
    s: Tensor | None  # weights
    extra: Tensor | None = None  # further data for objectives that need it


def parts(numbers: Tensor, *columns: Tensor | None) -> tuple[Any, ...]:
    """These rows of each column; None for a column that is None."""
    return tuple(None if column is None else column[numbers] for column in columns)


class NetworkInputs(Protocol):
    """Inputs of a network, one for each row."""

    def __len__(self) -> int:
        """How many rows there are."""

    def __getitem__(self, rows: Tensor | slice) -> tuple[Tensor, ...]:
        """What the module is called with for these rows."""


class DenseInputs:
    """An array or tensor; its first axis counts the rows."""

    def __init__(
        self, X: MatrixLike, dtype: torch.dtype, device: str | torch.device
    ) -> None:
        self.X = as_tensor(X, dtype).to(device)

    def __len__(self) -> int:
        """How many rows there are."""
        return len(self.X)

    def __getitem__(self, rows: Tensor | slice) -> tuple[Tensor, ...]:
        """These rows as one tensor; a slice has the memory of the array."""
        return (self.X[rows],)


class BlockInputs:
    """Rows of an array, made ready a block at a time while it is in the cache.

    Parameters
    ----------
    X : ndarray
        Rows first.
    ready : callable
        Makes :class:`NetworkInputs` of some of them.
    copied : bool
        Whether the module changes its input in place; X must stay unchanged.
    dtype : dtype of NumPy, optional
        That of the module.
    """

    def __init__(
        self,
        X: Any,
        ready: Callable[[np.ndarray], NetworkInputs],
        copied: bool = False,
        dtype: DTypeLike | None = None,
    ) -> None:
        self.X, self.ready, self.copied = X, ready, copied
        width = max(1, int(np.prod(X.shape[1:])))
        # A convolution makes more numbers of an image than it has.
        numbers = NUMBERS_TOGETHER if X.ndim < 3 else NUMBERS_TOGETHER // 2
        self.together = min(2048, max(256, numbers // width))
        # Narrow rows are made ready for several blocks at once, and rows that are only
        # checked, not changed, for even more blocks.
        wanted = numbers * 8 if X.dtype == dtype else numbers
        self.span = self.together * max(1, wanted // width // self.together)
        self.begin = -1
        self.part: Any = None

    def __len__(self) -> int:
        """How many rows there are."""
        return len(self.X)

    def __getitem__(self, rows: Any) -> tuple[Tensor, ...]:
        """What the module is called with for a slice of rows."""
        begin = rows.start - rows.start % self.span
        if begin != self.begin:
            part = self.X[begin : begin + self.span]
            self.begin, self.part = begin, self.ready(part)
        end = min(rows.stop, len(self)) - begin
        found = self.part[slice(rows.start - begin, end)]
        return tuple(x.clone() for x in found) if self.copied else found


class SparseInputs:
    """CSR rows, made dense a batch at a time."""

    def __init__(self, X: Any, dtype: torch.dtype, device: str | torch.device) -> None:
        as_tensor(X.data, dtype)
        self.X, self.dtype, self.device = X.tocsr(), dtype, device

    def __len__(self) -> int:
        """How many rows there are."""
        return int(self.X.shape[0])

    def __getitem__(self, rows: Tensor | slice) -> tuple[Tensor, ...]:
        """These rows as one dense tensor."""
        places = rows.cpu().numpy() if isinstance(rows, Tensor) else rows
        block = torch.as_tensor(self.X[places].toarray()).to(self.dtype)
        return (block.to(self.device),)


class Chosen:
    """Some rows of others."""

    def __init__(self, rows: NetworkInputs, numbers: Tensor) -> None:
        self.rows, self.numbers = rows, numbers
        self.together = getattr(rows, "together", TOGETHER)

    def __len__(self) -> int:
        """How many rows there are."""
        return len(self.numbers)

    def __getitem__(self, rows: Tensor | slice) -> tuple[Tensor, ...]:
        """What the module is called with for these rows."""
        return self.rows[self.numbers[rows]]


class HeldOut(NamedTuple):
    """Rows that training does not see."""

    rows: NetworkInputs
    y: Tensor
    s: Tensor | None


class RaggedInputs:
    """Sequences of unequal length, padded with zeros to the longest of a batch.

    The module is called with the padded rows (batch, time, ...) and their lengths.

    Parameters
    ----------
    sequences : list of array, or array
        Each of shape (time,) or (time, features).
    """

    def __init__(
        self,
        sequences: Sequence[np.ndarray] | np.ndarray,
        dtype: torch.dtype,
        device: str | torch.device,
    ) -> None:
        self.device = device
        # One after the other: a batch is gathered from here by places.
        if isinstance(sequences, np.ndarray) and sequences.ndim > 1:
            self.lengths = torch.full((len(sequences),), sequences.shape[1])
            joined = sequences.reshape(-1, *sequences.shape[2:])
        else:
            self.lengths = torch.tensor([len(x) for x in sequences], dtype=torch.int64)
            joined = np.concatenate(sequences)
        self.values = as_tensor(joined, dtype)
        self.starts = self.lengths.cumsum(0) - self.lengths
        #: Whether all are of one length, so that nothing is padded.
        self.even = bool(len(joined) and (self.lengths == self.lengths[0]).all())
        #: Rows that go through a network together in prediction.
        self.together = max(1, STEPS_TOGETHER // max(1, int(self.lengths.max())))

    def __len__(self) -> int:
        """How many sequences there are."""
        return len(self.lengths)

    def __getitem__(self, rows: Tensor | slice) -> tuple[Tensor, ...]:
        """These sequences padded, and their lengths."""
        lengths = self.lengths[rows]
        if self.even:
            padded = self.values.unflatten(0, (len(self), -1))[rows]
        else:
            rows = torch.arange(len(self))[rows]
            t = torch.arange(int(lengths.max()) if len(rows) else 0)
            beyond = t >= lengths[:, None]  # (batch, time)
            places = self.starts[rows, None] + t
            padded = self.values[places.masked_fill_(beyond, 0)]
            padded[beyond] = 0
        return padded.to(self.device), lengths.to(self.device)

    def blocks(self) -> list[Tensor]:
        """Row numbers from the longest to the shortest, in parts of similar size."""
        order, parts = self.lengths.argsort(descending=True, stable=True), []
        while len(order):
            size = max(1, STEPS_TOGETHER // max(1, int(self.lengths[order[0]])))
            parts.append(order[:size])
            order = order[size:]
        return parts


def as_tensor(X: MatrixLike, dtype: torch.dtype) -> Tensor:
    """An array as a tensor of this dtype; raises an error for NaN and infinity.

    Where nothing has to be converted the memory is the array's own.
    """
    if isinstance(X, Tensor):
        found = X.to(dtype)
    else:
        found = shared(X).to(dtype)
    # A finite sum shows that every cell is finite; else each cell is checked.
    if not found.is_floating_point() or math.isfinite(found.sum().item()):
        return found
    if not bool(torch.isfinite(found).all()):
        assert_all_finite(np.asarray(X), input_name="X")
        raise ValueError(
            f"X holds numbers too large for the module's {dtype}. Standardise the "
            "columns (StandardScaler), or make the module float64 (.double())."
        )
    return found


def shared(X: MatrixLike) -> Tensor:
    """An array as a tensor of its dtype; with its memory, unless torch refuses that."""
    X = np.ascontiguousarray(X)
    X = X.astype(X.dtype.newbyteorder("="), copy=False)
    # An axis of one element may keep a negative stride and still be contiguous.
    fine = X.flags.writeable and min(X.strides, default=0) >= 0
    return torch.as_tensor(X if fine else X.copy())


class Shuffled:
    """The batches of an epoch: some rows, in a new order each time it is called.

    Parameters
    ----------
    rows : NetworkInputs
        All there are.
    chosen : Tensor
        Numbers of those that are trained on.
    size : int
        Rows in a batch.
    least : int
        The fewest there may be.
    """

    def __init__(
        self, rows: NetworkInputs, chosen: Tensor, size: int, least: int
    ) -> None:
        self.chosen, self.size, self.least = chosen, size, least
        lengths = getattr(rows, "lengths", None)  # where they vary
        self.lengths = None if lengths is None else lengths[chosen]

    def __len__(self) -> int:
        """How many batches an epoch has."""
        return -(-len(self.chosen) // self.size)

    def __call__(self, rng: np.random.Generator) -> list[Tensor]:
        """Row numbers of each batch."""
        n = len(self.chosen)
        parts = epoch_batches(rng, n, self.size, self.least, self.lengths)
        return [self.chosen[part] for part in parts]


def epoch_batches(
    rng: np.random.Generator,
    n: int,
    size: int,
    least: int = 1,
    lengths: Tensor | None = None,
) -> list[Tensor]:
    """Row numbers of the batches of an epoch, each row once.

    A last batch of fewer than ``least`` rows joins the one before it. Where rows have
    ``lengths``, batches hold rows of similar length, so that little is padded: the
    shuffled rows of a few batches are put in order of length, the batches shuffled.
    """
    order = torch.from_numpy(rng.permutation(n))
    if lengths is not None and n > size and len(lengths.unique()) > 1:
        near = [p[lengths[p].argsort(stable=True)] for p in order.split(SORTED * size)]
        order = torch.cat(near)
        parts = list(order.split(size))
        return _joined([parts[i] for i in rng.permutation(len(parts))], least)
    return _joined(list(order.split(size)), least)


def _joined(parts: list[Tensor], least: int) -> list[Tensor]:
    """Batches of which none is too small."""
    few = next((i for i, part in enumerate(parts) if len(part) < least), None)
    if few is not None and len(parts) > 1:
        small = parts.pop(few)
        parts[-1] = torch.cat([parts[-1], small])
    return parts


def share_out(
    n: int, fraction: float, groups: np.ndarray | None, rng: np.random.Generator
) -> tuple[Tensor, Tensor]:
    """Row numbers to train on and to hold out, each group in the same proportion."""
    order = rng.permutation(n)
    if groups is not None:  # by turns: every stretch of the order has all groups
        place = np.empty(n)
        for g in np.unique(groups):
            members = order[groups[order] == g]
            # A group of one has the place 1/2: it is trained on.
            place[members] = np.arange(1, len(members) + 1) / (len(members) + 1)
        order = order[np.argsort(place[order], kind="stable")]
    count = min(n - 1, max(1, round(fraction * n)))
    return torch.as_tensor(np.sort(order[count:])), torch.as_tensor(order[:count])
