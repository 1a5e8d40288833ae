"""Generators of levels by networks: autoregressive cells, flows, and diffusions.

A column of levels is uniform between 0 and 1. The autoregressive model learns the cells
themselves, and parts of the cells of numbers; flow and diffusion learn normal scores. A
column with a single cell says nothing and is left out. PyTorch is imported when one of
them is fitted.
"""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np
from scipy.special import ndtr, ndtri

from certus.config import config_context
from certus.typing import Array

__all__ = ["AutoregressiveModel", "DiffusionModel", "FlowModel", "has_torch"]

#: Levels are kept this far from 0 and 1, where normal quantiles are infinite.
_END = 1e-4
#: Cells of a column at most, and parts of a cell of numbers.
_CELLS, _PARTS = 100, 4
#: What the autoregressive networks add to their tree counts this share: below 1 rows
#: favour the training rows less, and are hardly easier to tell from new ones.
_CAUTION = 0.75
#: Components of the mixture that a flow starts at, and steps of training.
_COMPONENTS, _FLOW_STEPS, _DIFFUSION_STEPS = 8, 800, 1500


def has_torch() -> bool:
    """Whether PyTorch is installed."""
    return importlib.util.find_spec("torch") is not None


@dataclass
class _NetworkModel:
    """A fitted estimator, the columns that it learnt, and how many there are.

    ``smooth`` says which columns hold numbers between which others lie.
    """

    network = True
    smooth: list[bool] = field(default_factory=list)
    live: list[int] = field(default_factory=list)
    width: int = 0
    model: Any = None

    def fit(self, U: Array, cells: list[Array], rng: np.random.Generator) -> Self:
        """Train the network on the columns that vary."""
        self.width = U.shape[1]
        self.smooth = self.smooth or [True] * self.width
        self.live = [
            j for j in range(self.width) if len(cells[j]) > 2 or self.smooth[j]
        ]
        if self.live:
            seed = int(rng.integers(2**31))
            with config_context(certify="never"):
                self.model = self._fitted(
                    U[:, self.live], [cells[j] for j in self.live], seed
                )
        return self

    def _fitted(self, U: Array, cells: list[Array], seed: int) -> Any:
        raise NotImplementedError

    def _drawn(self, n: int, rng: np.random.Generator) -> Array:
        raise NotImplementedError

    def sample(self, n: int, rng: np.random.Generator) -> Array:
        """Draw rows of levels."""
        U = rng.random((n, self.width))
        if self.live:
            U[:, self.live] = self._drawn(n, rng)
        return U


def _scores(U: Array) -> Array:
    return np.asarray(ndtri(np.clip(U, _END, 1 - _END)))


@dataclass
class AutoregressiveModel(_NetworkModel):
    """Each column's cell given those before it, from the best tree on."""

    def _fitted(self, U: Array, cells: list[Array], seed: int) -> Any:
        from certus.generative import AutoregressiveDensity

        edges = [
            np.concatenate([e[:_CELLS], [1.0]]) if len(e) > _CELLS else e for e in cells
        ]
        parts = [_PARTS if self.smooth[j] else 1 for j in self.live]
        model = AutoregressiveDensity(edges=edges, parts=parts, random_state=seed)
        model.fit(U).network_.soften(_CAUTION)
        return model

    def _drawn(self, n: int, rng: np.random.Generator) -> Array:
        return np.asarray(self.model.sample(n, random_state=_seed(rng)))

    def complete(self, low: Array, high: Array, rng: np.random.Generator) -> Array:
        """Draw rows within boxes, by weighted proposals."""
        U = low + (high - low) * rng.random(low.shape)
        if self.live:
            a, b = low[:, self.live], high[:, self.live]
            a, b = np.where(a <= 0, -np.inf, a), np.where(b >= 1, np.inf, b)
            U[:, self.live] = self.model.complete(a, b, rng)
        return U


@dataclass
class FlowModel(_NetworkModel):
    """A normalising flow of normal scores."""

    def _fitted(self, U: Array, cells: list[Array], seed: int) -> Any:
        from certus.generative import NormalizingFlow

        most = max(1, min(_COMPONENTS, len(U) // 50))
        model = NormalizingFlow(
            n_components=most, max_iter=_FLOW_STEPS, random_state=seed
        )
        return model.fit(_scores(U))

    def _drawn(self, n: int, rng: np.random.Generator) -> Array:
        return np.asarray(ndtr(self.model.sample(n, random_state=_seed(rng))))


@dataclass
class DiffusionModel(_NetworkModel):
    """Noise turned into normal scores, step by step."""

    def _fitted(self, U: Array, cells: list[Array], seed: int) -> Any:
        from certus.generative import Diffusion

        model = Diffusion(max_iter=_DIFFUSION_STEPS, random_state=seed)
        return model.fit(_scores(U))

    def _drawn(self, n: int, rng: np.random.Generator) -> Array:
        return np.asarray(ndtr(self.model.sample(n, random_state=_seed(rng))))


def _seed(rng: np.random.Generator) -> int:
    return int(rng.integers(2**31))
