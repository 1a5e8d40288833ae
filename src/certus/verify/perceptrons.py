"""Perceptrons with ReLU as arrays, computed again with bounds on rounding errors.

Also what the rooms of networks on rows share: reading standardised columns and classes,
which rows were held out, and intervals of means.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from certus import fingerprints
from certus.typing import Array
from certus.verify import data
from certus.verify import deciding as bd
from certus.verify.balls import ErrorBall
from certus.verify.stating import Given, require
from certus.verify.statistical import bernstein

Layers = list[tuple[Array, Array]]
#: Values that rows may take at most to be counted as levels, and how exact they are.
LEVELS, ON_LEVEL = 65_536, 1e-6


def read_layers(weights: Mapping[str, Array], keys: Sequence[str]) -> Layers:
    """Matrices and biases by name, finite and of fitting shapes."""
    found: Layers = []
    for key in keys:
        W, b = (
            np.asarray(weights.get(f"{key}.{part}"), dtype=np.float64)
            for part in ("weight", "bias")
        )
        require(W.ndim == 2 and b.shape == W.shape[:1], f"{key} has other shapes")
        require(bool(np.isfinite(W).all() and np.isfinite(b).all()), f"{key} is NaN")
        found.append((W, b))
    return found


def perceptron_keys(name: str, n_hidden: int) -> list[str]:
    """Names of the layers of a perceptron of ours."""
    return [f"{name}.layers.{i}.linear" for i in range(n_hidden)] + [f"{name}.output"]


def run_layers(layers: Layers, x: ErrorBall) -> ErrorBall:
    """A perceptron with ReLU."""
    for W, b in layers[:-1]:
        x = x.times(W, b).clip(0.0, math.inf)
    return x.times(*layers[-1])


class RowsGiven(NamedTuple):
    """Rows as a model was given them, standardised, their classes, and what is new."""

    X: Array
    Z: Array
    codes: Array | None
    #: Rows to judge by: those held out, or all of new rows; and the others.
    judged: Array
    rest: Array
    #: Whether these are the rows of the fit.
    old: bool
    marks: dict[str, Any]

    @property
    def where(self) -> str:
        """Which rows are judged, in words."""
        if not self.old:
            return "new rows"
        return "rows held out" if len(self.rest) else "rows"

    def codes_at(self, some: Any) -> Array | None:
        """Classes of some rows."""
        return None if self.codes is None else self.codes[some]


def rows_given(model: Any, given: Given, n_classes: int) -> RowsGiven:
    """Read rows, their classes, and which of them the fit held out."""
    bd.refuse_weights(model, given.sample_weight)
    X = np.asarray(given.X, dtype=np.float64)
    X = data.dense(X.reshape(len(X), -1) if X.ndim > 2 else X)
    marks = data.fingerprint(X, np.zeros(len(X)), np.ones(len(X)))
    loc, scale = (data.fitted(model, n, (X.shape[1],)) for n in ("loc_", "scale_"))
    at = np.asarray(model.varies_, dtype=bool)
    require(at.shape == loc.shape, "varies_ has not one entry for each column")
    codes = codes_given(model, given.y, len(X)) if n_classes else None
    fit = getattr(getattr(model, "certificate_", None), "fingerprint", None)
    old = fit is None or fingerprints.same_rows(fit, marks, False)
    held = np.asarray(model.held_out_, dtype=np.int64) if old else np.zeros(0, int)
    sound = not len(held) or (held.min() >= 0 and held.max() < len(X))
    require(sound, "held_out_ names rows beyond X")
    every = np.arange(len(X))
    judged = held if len(held) else every
    rest = np.setdiff1d(every, held) if len(held) else every[:0]
    Z = np.asarray((X[:, at] - loc[at]) / scale[at])
    return RowsGiven(X, Z, codes, judged, rest, old, marks)


def codes_given(model: Any, y: Any, n: int) -> Array:
    """Numbers of the classes of rows."""
    classes = np.asarray(model.classes_)
    y = np.zeros(0) if y is None else np.asarray(y)
    require(y.shape == (n,), "the rows have no classes; pass y")
    places = np.minimum(np.searchsorted(classes, y), len(classes) - 1)
    require(bool((classes[places] == y).all()), "y holds a class it was not fitted to")
    return np.asarray(places)


def step_of_levels(X: Array) -> float | None:
    """The step of the evenly spaced values that rows take; None if they do not.

    Whole numbers, grey values of bytes, and either of them divided by a number.
    """
    values = np.unique(X)
    if not 2 <= len(values) <= LEVELS:
        return None
    step = float(np.diff(values).min())
    places = (values - values[0]) / step
    off = np.abs(places - places.round()).max()
    # Few values that are unevenly spaced would be levels of a very small step.
    evenly = off <= ON_LEVEL * max(1.0, places[-1]) and places[-1] < LEVELS
    return step if evenly else None


class MeanInterval(NamedTuple):
    """A mean, and ends that hold with the probability that was asked for."""

    mean: float
    low: float
    high: float

    @classmethod
    def of(cls, v: Array, low: float, high: float, delta: float) -> MeanInterval:
        """Of values that lie between ``low`` and ``high``; empirical Bernstein."""
        width, mean = high - low, float(v.mean())
        spread = float(np.var(v / width, ddof=1)) if len(v) > 1 else 0.0
        half = width * bernstein(len(v), delta, spread)
        return cls(mean, max(mean - half, low), min(mean + half, high))
