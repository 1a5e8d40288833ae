"""How a deep linear network is trained: descent on its layers, in whitened coordinates.

    ½‖W_L ⋯ W₁ − Γ‖² plus a constant,   Γ = Σ_r σ_r u_r v_rᵀ

where x is centred and whitened. The strengths u_rᵀ W_L ⋯ W₁ v_r of the modes are
recorded on the way.
"""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from sklearn.utils import check_random_state

from certus.callbacks import Monitor
from certus.certificate import Status
from certus.decomposition.moments import moments
from certus.typing import Array

#: Directions of x with less than this share of the largest variance are left out.
ABSENT = 1e-10
#: Steps between two records of the modes.
TICK = 10
#: Training diverges where the loss is this many times that of the best constant.
FAR = 1e6


class Whitened(NamedTuple):
    """Γ/unit for x centred and whitened, its modes, and the way back."""

    gamma: Array  # p × r
    U: Array
    limits: Array
    V: Array
    unit: float  # the strongest mode
    size: float  # loss of the best constant, in units of unit²
    there: Array  # whitened x = (x − mean) @ there
    back: Array  # layers in x: W₁ = W̃₁ @ thereᵀ; W̃₁ = W₁ @ back
    mean: Array
    centre: Array


def whiten(X: Array, Y: Array) -> Whitened:
    """The problem in these coordinates; directions without variance are left out."""
    found = moments(X, "DeepLinearNetwork")
    centre = Y.mean(axis=0)
    Yc = Y - centre
    varies = found.variances > 0
    scale = np.sqrt(found.variances[varies])
    values, V = found.columns(varies).scaled(1 / scale).eigen(len(scale))
    used = values > ABSENT * values.max(initial=0.0)
    root = np.sqrt(values[used])
    there, back = np.zeros((2, len(varies), used.sum()))
    there[varies] = V[:, used] / root / scale[:, None]
    back[varies] = V[:, used] * root * scale[:, None]
    # A constant taken from a column of y changes nothing, as x is centred here.
    cross = (Yc.T @ X - np.outer(Yc.sum(axis=0), found.mean)) / len(X)
    gamma = cross.astype(np.float64) @ there
    if not np.isfinite(gamma).all():
        raise ValueError(
            "DeepLinearNetwork: the products of X and y are too large or too small "
            "for float64. Standardise both (StandardScaler)."
        )
    U, limits, Vt = np.linalg.svd(gamma, full_matrices=False)
    unit = float(limits.max(initial=0.0))
    unit = unit if unit > 0 else 1.0
    size = 0.5 * float(np.mean(np.sum(np.square(Yc / unit), axis=1)))
    return Whitened(
        gamma / unit,
        U,
        limits / unit,
        Vt.T,
        unit,
        size,
        there,
        back,
        found.mean,
        centre,
    )


def begin(model: Any, p: Whitened, widths: Any) -> list[Array]:
    """Layers at the start."""
    depth = len(widths) - 1
    each = float(model.start) ** (1 / depth)
    shapes = [(b, a) for a, b in pairwise(widths)]
    if model.init == "modes":
        layers = [each * np.eye(*shape) for shape in shapes]
        if depth == 1:
            m = len(p.limits)
            return [each * p.U @ np.eye(m) @ p.V.T]
        m = min(len(p.limits), *widths[1:-1])
        first, last = np.zeros(shapes[0]), np.zeros(shapes[-1])
        first[:m], last[:, :m] = each * p.V[:, :m].T, each * p.U[:, :m]
        return [first, *layers[1:-1], last]
    random = check_random_state(model.random_state)
    return [each * random.normal(size=s) / math.sqrt(max(1, *s)) for s in shapes]


def carry_over(before: list[Array], p: Whitened, widths: Any) -> list[Array]:
    """The layers of the last fit in whitened coordinates; none if they do not fit."""
    shapes = [(b, a) for a, b in pairwise((len(p.back), *widths[1:]))]
    if [W.shape for W in before] != shapes:
        return []
    share = p.unit ** (-1 / len(before))
    layers = [np.asarray(W, dtype=np.float64) * share for W in before]
    layers[0] = layers[0] @ p.back
    return layers


class DeepLinearTraining:
    """Gradient descent on the layers, with the modes recorded on the way."""

    def __init__(
        self, problem: Whitened, layers: list[Array], flat: bool, dtype: Any
    ) -> None:
        self.problem, self.layers = problem, layers
        self.flat, self.dtype = flat, dtype
        rank = min(W.shape[0] for W in layers)
        squares = problem.limits**2
        self.floor = 0.5 * float(squares[rank:].sum())
        self.beyond = problem.size - 0.5 * float(squares.sum())
        self.steps = 0
        self.modes: list[Array] = []
        self.times: list[float] = []

    def run(self, model: Any, monitor: Monitor) -> Status:
        """Descend until the excess is below ``tol``."""
        rate = float(model.learning_rate) / len(self.layers)
        size = self.problem.size or 1.0
        # Half of tol is left to the rounding, which the verifier adds. Below that of
        # the loss nothing can be seen.
        goal = max(0.5 * float(model.tol) * size, 1e-15 * size)
        status: Status | None = None
        try:
            for step in range(int(model.max_iter) + 1):
                parts = partial_products(self.layers)
                gap = parts[-1] - self.problem.gamma
                excess = 0.5 * float(np.sum(gap * gap)) - self.floor
                solved, last = excess <= goal, step == int(model.max_iter)
                diverged = not excess < FAR * (1 + size)
                if step % TICK == 0 or solved or last or diverged:
                    self._record(parts[-1], step, rate)
                    loss = (excess + self.floor + self.beyond) * self.problem.unit**2
                    status = monitor.step(loss, excess / size, self.attributes)
                if solved:
                    return Status.SOLVED
                if diverged:
                    return Status.DIVERGED
                if status is not None or last:
                    return status or Status.MAX_ITER
                self.layers = descend(self.layers, parts, gap, rate)
                self.steps = step + 1
        except KeyboardInterrupt:
            if not self.modes:
                raise
        return Status.INTERRUPTED

    def _record(self, product: Array, step: int, rate: float) -> None:
        p = self.problem
        self.modes.append(np.einsum("ir,ij,jr->r", p.U, product, p.V))
        self.times.append(step * rate)

    def attributes(self) -> dict[str, Any]:
        """The fitted attributes, in the units of X and y."""
        p = self.problem
        share = p.unit ** (1 / len(self.layers))
        layers = [W * share for W in self.layers]
        layers[0] = layers[0] @ p.there.T
        coef = partial_products(layers)[-1]
        intercept = p.centre - coef @ p.mean
        coef, intercept = coef.astype(self.dtype), intercept.astype(self.dtype)
        return {
            "weights_": [W.astype(self.dtype) for W in layers],
            "coef_": coef[0] if self.flat else coef,
            "intercept_": intercept[0] if self.flat else intercept,
        }


def partial_products(layers: list[Array]) -> list[Array]:
    """W₁, W₂W₁, … up to the whole product."""
    parts = [layers[0]]
    for W in layers[1:]:
        parts.append(W @ parts[-1])
    return parts


def descend(
    layers: list[Array], parts: list[Array], gap: Array, rate: float
) -> list[Array]:
    """One step: ∂W_l = (W_L ⋯ W_{l+1})ᵀ (P − Γ) (W_{l−1} ⋯ W₁)ᵀ."""
    moved = list(layers)
    above = gap
    for i in range(len(layers) - 1, 0, -1):
        moved[i] = layers[i] - rate * (above @ parts[i - 1].T)
        above = layers[i].T @ above
    moved[0] = layers[0] - rate * above
    return moved
