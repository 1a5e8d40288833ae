"""Rows of a generative model: read, flattened, standardised, held out, put in batches.

    z = (x − loc)/scale   in the columns that vary

A column of one value has no density; it is left out of the network and put back into
samples. Images are flattened, and samples get their shape again.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from certus.base import as_array, validate_data
from certus.neural_network.batches import Batch, epoch_batches, share_out
from certus.neural_network.image_reading import is_files, read_images
from certus.neural_network.randomness import own_generator
from certus.neural_network.run import Losses
from certus.typing import Array

#: Rows that are looked at together.
TOGETHER = 4096


def read_rows(model: Any, X: Any, *, reset: bool, missing: bool = False) -> Array:
    """Rows as a float64 matrix; images, a folder of them as well, are flattened.

    ``reset`` learns the shape of a row (``shape_``); else it must be that of the fit.
    ``missing`` allows NaN.
    """
    X = as_array(read_images(X)[0] if is_files(X) else X)
    shape: tuple[int, ...] = ()
    if isinstance(X, np.ndarray) and X.ndim > 2:
        shape, X = X.shape[1:], X.reshape(len(X), -1)
    try:
        X = validate_data(
            model,
            X,
            dtype=np.float64,
            reset=reset,
            ensure_min_samples=2 if reset else 1,
            ensure_all_finite="allow-nan" if missing else True,
        )
    except ValueError as error:
        if "NaN" in str(error):
            raise ValueError(
                f"{error}\nA density needs whole rows: fill gaps with "
                "sklearn.impute.SimpleImputer, or drop the rows; a fitted model with "
                "`impute` fills gaps of new rows."
            ) from None
        raise
    flat = X.shape[1:]
    if reset:
        model.shape_ = shape or flat
    elif shape not in ((), model.shape_):  # images may be flat already
        raise ValueError(f"A row of X must have the shape {model.shape_}, got {shape}.")
    return X


def with_folders(X: Any) -> tuple[Any, Array | None]:
    """Images of a folder with their subfolders as classes; else X, and no classes."""
    return read_images(X) if is_files(X) else (X, None)


class Standardization(NamedTuple):
    """What standardises rows: mean and spread of each column, and which ones vary."""

    loc: Array
    scale: Array
    varies: Array

    @classmethod
    def of(cls, X: Array) -> Standardization:
        """From rows; refuses those that are all alike."""
        loc = X.mean(axis=0)
        varies = X.min(axis=0) < X.max(axis=0)
        loc = np.where(varies, loc, X[0])
        scale = np.sqrt(np.square(X - loc).mean(axis=0))
        # A spread of rounding errors is none, and one that overflows is no number.
        varies &= (scale > 1e-13 * np.abs(loc)) & (scale > 0) & np.isfinite(scale)
        if not varies.any():
            raise ValueError(
                "Every column of X has one value, or numbers too large to square; "
                "there is nothing to learn. Pass rows that differ."
            )
        return cls(loc, np.where(varies, scale, 1.0), varies)

    def inner(self, X: Array) -> Array:
        """Standardised rows, in the columns that vary."""
        at = self.varies
        return (X[:, at] - self.loc[at]) / self.scale[at]

    def outer(self, Z: Array) -> Array:
        """Rows from standardised ones; constant columns get their value."""
        X = np.tile(self.loc, (len(Z), 1))
        X[:, self.varies] = self.loc[self.varies] + Z * self.scale[self.varies]
        return X

    def log_volume(self) -> float:
        """Σ log scale: what a log-density loses in the units of X."""
        return float(np.log(self.scale[self.varies]).sum())

    def misplaced(self, X: Array) -> Array:
        """Rows that differ from the fit in a column that was constant there."""
        off = np.abs(X[:, ~self.varies] - self.loc[~self.varies])
        near = 1e-9 * np.maximum(1.0, np.abs(self.loc[~self.varies]))
        return np.asarray((off > near).any(axis=1))


class RowTask:
    """Learns from rows; a :class:`certus.neural_network.tasks.Task`.

    Parameters
    ----------
    model : GenerativeModel
        Its ``_losses(module, x, c)`` are minimised, c class numbers or None.
    Z, held : float64 array of shape (n, d)
        Standardised rows to learn from, and to stop by (or None).
    codes, held_codes : int array or None
        Numbers of their classes.
    """

    def __init__(
        self,
        model: Any,
        Z: Array,
        held: Array | None,
        codes: Array | None = None,
        held_codes: Array | None = None,
    ) -> None:
        self.model = model
        self.x, self.c = self._tensors(Z, codes)
        self.held = None if held is None else self._tensors(held, held_codes)
        self.size = min(int(model.batch_size), len(Z))
        self.a_pass = -(-len(Z) // self.size)
        self.data: tuple[Any, ...] = (Z, held, codes, held_codes)
        self.watched = held is not None

    def _tensors(self, Z: Array, codes: Array | None) -> tuple[Tensor, Tensor | None]:
        device = self.model.device
        x = torch.as_tensor(Z, dtype=torch.float32, device=device)
        c = None if codes is None else torch.as_tensor(codes, device=device)
        return x, c

    def objective(self, module: Any, batch: Batch) -> Losses:
        """The losses of a batch."""
        found: Losses = self.model._losses(module, *batch.inputs)
        return found

    def draw(self, rng: np.random.Generator, steps: int) -> Iterator[Batch]:
        """A batch for each step; every row comes once before any comes twice."""
        left = steps
        while left > 0:
            for rows in epoch_batches(rng, len(self.x), self.size)[:left]:
                left -= 1
                c = None if self.c is None else self.c[rows]
                inputs: Any = (self.x[rows], c)
                yield Batch(inputs, self.x[rows], None)

    @torch.no_grad()
    def look(self, module: Any) -> float:
        """The mean loss of held-out rows, with the same random numbers each time."""
        assert self.held is not None
        x, c = self.held
        training, total = module.training, 0.0
        module.eval()
        with own_generator():
            torch.default_generator.manual_seed(0)
            for i in range(0, len(x), TOGETHER):
                part = x[i : i + TOGETHER], None if c is None else c[i : i + TOGETHER]
                total += float(self.model._losses(module, *part)["loss"]) * len(part[0])
        module.train(training)
        return total / len(x)


class HeldRows(NamedTuple):
    """Row numbers to learn from, and to stop by (or None)."""

    rest: Array
    held: Array | None


def hold_out(model: Any, n: int, codes: Any, rng: np.random.Generator) -> HeldRows:
    """Which rows to learn from and which to stop by; each class in proportion."""
    if not model.early_stopping or not model.validation_fraction or n < 10:
        return HeldRows(np.arange(n), None)
    rest, held = share_out(n, float(model.validation_fraction), codes, rng)
    return HeldRows(rest.numpy(), np.sort(held.numpy()))
