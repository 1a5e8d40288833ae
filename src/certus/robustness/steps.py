"""Scaling and other linear steps before a classifier, known entry by entry.

    x ↦ A x + c, cut to [low, high] where a step cuts

Attacks change raw rows, so the steps of a pipeline belong to the attacked function.
Those that are known here have a formula and a gradient; any other step makes the whole
a black box.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.decomposition import PCA, TruncatedSVD
from sklearn.feature_selection import SelectorMixin
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import (
    FunctionTransformer,
    MaxAbsScaler,
    MinMaxScaler,
    RobustScaler,
    StandardScaler,
)

from certus import decomposition
from certus.tables import TableEncoder, TablePipeline
from certus.typing import Array, ArrayLike, Fit, MatrixLike

#: Share of the largest entry by which a formula may miss what a step gives.
CLOSE = 1e-6


class ClippedStep(NamedTuple):
    """x ↦ A x + c, then cut to [low, high]."""

    weight: Array  # (entries,) for one factor each, or the matrix (outputs, inputs)
    bias: Any
    low: float = -math.inf
    high: float = math.inf
    #: Sizes of what the bias is the sum of, where that is more than one number.
    heft: Any = None

    @property
    def cuts(self) -> bool:
        """Whether the step cuts, and so bends."""
        return self.low > -math.inf or self.high < math.inf

    def forward(self, X: Array) -> Array:
        """Rows after the step, before it cuts."""
        whole = self.weight.ndim == 2
        return (X @ self.weight.T if whole else X * self.weight) + self.bias

    def apply(self, X: Array) -> Array:
        """Rows after the step."""
        X = self.forward(X)
        return X.clip(self.low, self.high) if self.cuts else X

    def back(self, X: Array, G: Array) -> Array:
        """Gradients by the rows before the step, from those by the rows after it."""
        if self.cuts:
            Z = self.forward(X)
            G = G * ((self.low <= Z) & (self.high >= Z))
        return G @ self.weight if self.weight.ndim == 2 else G * self.weight


class FormulaStep(TransformerMixin, BaseEstimator):
    """A step by its formula."""

    def __init__(self, step: ClippedStep) -> None:
        self.step = step

    def fit(self, X: MatrixLike, y: ArrayLike | None = None) -> Any:
        """Nothing is learnt."""
        return self

    def __sklearn_is_fitted__(self) -> bool:
        return True

    def transform(self, X: MatrixLike) -> Array:
        """Rows after the step."""
        return self.step.apply(np.asarray(X, dtype=np.float64))


def taken_apart(model: Fit) -> tuple[list[Any], Any]:
    """The steps before a classifier, and the classifier; searches by their best."""
    while hasattr(model, "best_estimator_"):
        model = model.best_estimator_
    if isinstance(model, TablePipeline):
        inner, last = taken_apart(model.estimator_)
        return [model.encoder_, *inner], last
    if not isinstance(model, Pipeline):
        return [], model
    before = []
    for _, step in model.steps[:-1]:
        inner, last = taken_apart(step)
        before += [*inner, last]
    rest, last = taken_apart(model.steps[-1][1])
    return [part for part in before + rest if part not in (None, "passthrough")], last


def known_steps(parts: list[Any], X: Array) -> tuple[list[ClippedStep], Any]:
    """Formulas of these steps on rows X, or the first of them that has none."""
    found: list[ClippedStep] = []
    for part in parts:
        step = _formula(part, X.shape[1]) if X.ndim == 2 else None
        if step is None:
            return [], part
        truth = np.asarray(part.transform(framing(part)(X)), dtype=np.float64)
        X = step.apply(X)
        scale = np.abs(truth).max(initial=0.0)
        if X.shape != truth.shape or np.abs(X - truth).max() > CLOSE * scale:
            return [], part
        found.append(step)
    return found, None


def _formula(part: Fit, width: int) -> ClippedStep | None:
    """The formula of a step; by exact type, because subclasses may do anything."""
    ones = np.ones(width)
    if type(part) is StandardScaler:
        scale = 1.0 if part.scale_ is None else part.scale_
        mean = part.mean_ if part.with_mean else 0.0
        return ClippedStep(ones / scale, -ones * mean / scale)
    if type(part) is RobustScaler:
        scale = part.scale_ if part.with_scaling else 1.0
        centre = part.center_ if part.with_centering else 0.0
        return ClippedStep(ones / scale, -ones * centre / scale)
    if type(part) is MinMaxScaler:
        ends = part.feature_range if part.clip else (-math.inf, math.inf)
        return ClippedStep(ones * part.scale_, part.min_, *ends)
    if type(part) is MaxAbsScaler:
        ends = (-1.0, 1.0) if getattr(part, "clip", False) else (-math.inf, math.inf)
        return ClippedStep(ones / part.scale_, np.zeros(width), *ends)
    if type(part) is FunctionTransformer and part.func is None:
        return ClippedStep(ones, np.zeros(width))
    if type(part) is FormulaStep:
        return part.step
    if isinstance(part, SelectorMixin):
        W = np.eye(width)[part.get_support()]
        return ClippedStep(W, np.zeros(len(W)))
    if type(part) is TableEncoder:
        return _columns(part, width)
    return _projection(part)


def _columns(part: TableEncoder, width: int) -> ClippedStep | None:
    """Columns of numbers, each scaled; there is no formula for the other columns."""
    if any(plan["kind"] != "number" or plan.get("clock") for plan in part._used()):
        return None
    rows, bias = [], []
    for i, plan in enumerate(part.plans_):
        if plan not in part._used():
            continue
        for scaled in plan["parts"]:
            rows.append(np.eye(width)[i] / scaled["unit"] / scaled["spread"])
            bias.append(-scaled["centre"] / scaled["spread"])
        if plan["missing"]:  # the flag of missing values: none is missing
            rows.append(np.zeros(width))
            bias.append(0.0)
    return ClippedStep(np.array(rows), np.array(bias))


def _projection(part: Fit) -> ClippedStep | None:
    """Principal components and the like."""
    if type(part) in (TruncatedSVD, decomposition.TruncatedSVD):
        W = np.asarray(part.components_, dtype=np.float64)
        return ClippedStep(W, np.zeros(len(W)))
    if type(part) in (PCA, decomposition.PCA):
        W = np.asarray(part.components_, dtype=np.float64)
        if part.whiten:
            W = W / np.sqrt(part.explained_variance_)[:, None]
        mean = part.mean_
        return ClippedStep(W, -W @ mean, heft=np.abs(W) @ np.abs(mean))
    return None


def framing(model: Fit, given: Any = None) -> Callable[[Any], Any]:
    """What makes frames of arrays, for models that know their columns by name.

    Frames are of the kind that is given, or else of pandas.
    """
    names = getattr(model, "feature_names_in_", None)
    if names is None:
        return lambda X: X
    if type(given).__module__.startswith("polars"):
        import polars

        return lambda X: polars.DataFrame(np.asarray(X), schema=list(names))
    try:
        import pandas
    except ModuleNotFoundError:
        return lambda X: X
    return lambda X: pandas.DataFrame(np.asarray(X), columns=names)
