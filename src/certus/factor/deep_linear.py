"""Deep linear networks, and how their modes are learnt one after the other.

    min over W₁ … W_L of  (1/2n) Σ‖y − W_L ⋯ W₁x − b‖²

The network is one matrix, but gradient descent on its layers is not that on the matrix.
With x centred and whitened the loss is ½‖W_L ⋯ W₁ − Γ‖² plus a constant, with
Γ = (1/n) Σ y xᵀ = Σ_r σ_r u_r v_rᵀ. From small balanced layers each mode
a_r = u_rᵀ W_L ⋯ W₁ v_r follows da/dt = L·a^(2 − 2/L)·(σ_r − a): it waits, rises within
a time of order 1/σ_r, and stays. Strong modes are learnt first.
"""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from sklearn.base import MultiOutputMixin, RegressorMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

from certus.base import (
    Estimator,
    Fitted,
    certified_fit,
    check_choice,
    check_number,
    require_finite,
)
from certus.callbacks import Monitor
from certus.certificate import Evidence, Status
from certus.factor.modes import draw_modes
from certus.factor.moments import Array, moments

#: Directions of x with less than this share of the largest variance are left out.
ABSENT = 1e-10
#: Steps between two records of the modes.
TICK = 10
#: Training diverges where the loss is so many times that of the best constant.
FAR = 1e6


class DeepLinearNetwork(MultiOutputMixin, RegressorMixin, Estimator):
    """A network of linear layers, trained by gradient descent.

    Objective
    ---------
    min over W₁ … W_L, b of (1/2n) Σᵢ ‖yᵢ − W_L ⋯ W₁xᵢ − b‖².

    Certificate
    -----------
    ``loss_excess`` (PROVED): loss above the least that any matrix of the narrowest
    layer's rank reaches, as a share of that of the best constant; ``tol`` bounds it.
    REFUSED beyond 2,000 rows and columns. ``layers`` (PROVED): ``coef_`` is the product
    of the layers. ``gradient_norm`` (MEASURED). Three passes over the data.

    Parameters
    ----------
    hidden : sequence of int, default=(32,)
        Widths of the hidden layers; () for a single layer.
    learning_rate : float, default=0.3
        Step of gradient descent, as a share of 1/(L·σ^(2 − 2/L)) with σ the strongest
        mode. Above 2 it diverges.
    init : {"random", "modes"}, default="random"
        Small random layers; or balanced ones along the modes of the data, from where
        the curves of :func:`mode_strength` hold exactly.
    start : float, default=1e-3
        Strength of the modes at the start, as a share of the strongest one's limit.
    tol : float, default=1e-6
        Bound on the excess of the loss.
    max_iter : int, default=50000
        Most steps.
    random_state : int, RandomState or None, default=0
        For the layers at the start.
    warm_start : bool, default=False
        Start from the layers of the last fit.
    max_time : float, optional
        Seconds after which training stops with what it has.

    Attributes
    ----------
    weights_ : list of ndarray
        The layers, first to last, in the units of X and y.
    coef_ : ndarray of shape (n_features,) or (n_targets, n_features)
        Their product.
    intercept_ : float or ndarray of shape (n_targets,)
        b.
    singular_values_ : ndarray of shape (n_modes,)
        σ_r: where each mode would end without a bottleneck.
    modes_ : ndarray of shape (n_records, n_modes)
        Strength a_r of each mode along the training, every ten steps.
    times_ : ndarray of shape (n_records,)
        Time of the gradient flow at each record: steps times their length.
    n_iter_ : int
        Steps taken.
    history_ : dict
        The loss, its excess (under ``gap``) and seconds at each record.
    certificate_ : Certificate
        What the verifier found.

    Notes
    -----
    X is centred and whitened first, so that steps depend on the modes alone and not on
    the units of the columns; the first layer absorbs it. After one pass of n·d² and an
    eigendecomposition a step costs the product of neighbouring widths.

    Examples
    --------
    >>> import numpy as np
    >>> from certus.factor import DeepLinearNetwork
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(200, 5))
    >>> Y = X @ rng.normal(size=(5, 3))
    >>> model = DeepLinearNetwork(hidden=(8,)).fit(X, Y)
    >>> [W.shape for W in model.weights_], model.certificate_.met
    ([(8, 5), (3, 8)], True)
    """

    def __init__(
        self,
        hidden: Any = (32,),
        *,
        learning_rate: float = 0.3,
        init: str = "random",
        start: float = 1e-3,
        tol: float = 1e-6,
        max_iter: int = 50_000,
        random_state: Any = 0,
        warm_start: bool = False,
        max_time: float | None = None,
    ) -> None:
        self.hidden = hidden
        self.learning_rate = learning_rate
        self.init = init
        self.start = start
        self.tol = tol
        self.max_iter = max_iter
        self.random_state = random_state
        self.warm_start = warm_start
        self.max_time = max_time

    @certified_fit
    def fit(self, X: Any, y: Any) -> Any:
        """Train on rows and targets.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Training rows.
        y : array-like of shape (n_samples,) or (n_samples, n_targets)
            Targets.
        """
        hidden = _check_parameters(self)
        before = self.weights_ if self.warm_start and hasattr(self, "weights_") else []
        X, y, _ = self._dense_X_y(X, y)
        problem = _whiten(X, y.reshape(len(y), -1).astype(np.float64))
        widths = (problem.gamma.shape[1], *hidden, problem.gamma.shape[0])
        monitor = Monitor(self, X, y, None, self.max_time)
        layers = _carry_over(before, problem, widths) or _begin(self, problem, widths)
        training = _Training(problem, layers, y.ndim == 1, X.dtype)
        status = training.run(self, monitor)
        for name, value in training.attributes().items():
            setattr(self, name, value)
        self.singular_values_ = problem.limits * problem.unit
        self.modes_ = np.array(training.modes) * problem.unit
        slower = problem.unit ** (2 - 2 / len(layers))
        self.times_ = np.array(training.times) / slower
        self.n_iter_ = training.steps
        self.history_ = monitor.history
        monitor.close(training.attributes())
        fix = f"raise max_iter (now {self.max_iter})"
        if status is Status.DIVERGED:
            fix = f"lower learning_rate (now {self.learning_rate})"
        evidence = Evidence("deep_linear", (), {"tol": float(self.tol), "fix": fix})
        return Fitted(evidence, X, y, None, status)

    def _dense_X_y(self, X: Any, y: Any) -> tuple[Any, Any, None]:
        X, y = validate_data(
            self,
            X,
            y,
            dtype=[np.float64, np.float32],
            multi_output=True,
            y_numeric=True,
            ensure_min_samples=2,
            ensure_all_finite=False,
        )
        require_finite(X, type(self).__name__)
        require_finite(y.reshape(len(y), -1), type(self).__name__)
        return X, y, None

    def predict(self, X: Any) -> Array:
        """Predicted targets.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Rows to predict.
        """
        check_is_fitted(self)
        X = validate_data(self, X, reset=False, dtype=[np.float64, np.float32])
        return np.asarray(X @ self.coef_.T + self.intercept_)

    def plot_modes(self, ax: Any = None) -> Any:
        """Draw the strength of each mode along the training, and the theory's curves.

        A curve begins at the start if ``init="modes"``, else where its mode has reached
        a twentieth of its limit: until then small random layers are not yet aligned.

        Parameters
        ----------
        ax : matplotlib axes, optional
            Where to draw; by default a new figure.

        Returns
        -------
        matplotlib axes
        """
        check_is_fitted(self)
        return draw_modes(self, ax)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = False
        return tags


# -- the problem in whitened coordinates --------------------------------------------


class _Whitened(NamedTuple):
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


def _whiten(X: Array, Y: Array) -> _Whitened:
    found = moments(X, "DeepLinearNetwork")
    centre = Y.mean(axis=0)
    Yc = Y - centre
    varies = found.variances > 0
    scale = np.sqrt(found.variances[varies])
    values, V = found.columns(varies).scaled(1 / scale).eigen(len(scale))
    used = values > ABSENT * values.max(initial=0.0)
    root = np.sqrt(values[used])
    there, back = (
        np.zeros((len(varies), used.sum())),
        np.zeros((len(varies), used.sum())),
    )
    there[varies] = V[:, used] / root / scale[:, None]
    back[varies] = V[:, used] * root * scale[:, None]
    # A constant taken from a column of y changes nothing, as x is centred here.
    cross = (Yc.T @ X - np.outer(Yc.sum(axis=0), found.mean)) / len(X)
    gamma = cross.astype(np.float64) @ there
    if not np.isfinite(gamma).all():
        raise ValueError(
            "DeepLinearNetwork: the products of X and y are beyond float64's range. "
            "Standardise them (StandardScaler)."
        )
    U, limits, Vt = np.linalg.svd(gamma, full_matrices=False)
    unit = float(limits.max(initial=0.0))
    unit = unit if unit > 0 else 1.0
    size = 0.5 * float(np.mean(np.sum(np.square(Yc / unit), axis=1)))
    return _Whitened(
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


# -- training -----------------------------------------------------------------------


def _check_parameters(model: DeepLinearNetwork) -> tuple[int, ...]:
    hidden = model.hidden
    if isinstance(hidden, str) or not np.iterable(hidden):
        raise TypeError(f"hidden must be a sequence of widths, got {hidden!r}.")
    for width in hidden:
        check_number("hidden", width, 1, integer=True)
    check_number("learning_rate", model.learning_rate, open_low=True)
    check_choice("init", model.init, ("random", "modes"))
    check_number("start", model.start, 0, 1, open_low=True)
    check_number("tol", model.tol)
    check_number("max_iter", model.max_iter, 1, integer=True)
    check_number("max_time", model.max_time, none=True)
    return tuple(int(width) for width in hidden)


def _begin(model: DeepLinearNetwork, p: _Whitened, widths: Any) -> list[Array]:
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


def _carry_over(before: list[Array], p: _Whitened, widths: Any) -> list[Array]:
    """The layers of the last fit in whitened coordinates; none if they do not fit."""
    shapes = [(b, a) for a, b in pairwise((len(p.back), *widths[1:]))]
    if [W.shape for W in before] != shapes:
        return []
    share = p.unit ** (-1 / len(before))
    layers = [np.asarray(W, dtype=np.float64) * share for W in before]
    layers[0] = layers[0] @ p.back
    return layers


class _Training:
    """Gradient descent on the layers, with the modes recorded on the way."""

    def __init__(
        self, problem: _Whitened, layers: list[Array], flat: bool, dtype: Any
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

    def run(self, model: DeepLinearNetwork, monitor: Monitor) -> Status:
        """Descend until the excess is below ``tol``."""
        rate = float(model.learning_rate) / len(self.layers)
        size = self.problem.size or 1.0
        # Below the rounding of the loss nothing can be seen.
        goal = max(float(model.tol) * size, 1e-15 * size)
        status: Status | None = None
        try:
            for step in range(int(model.max_iter) + 1):
                parts = _partial_products(self.layers)
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
                self.layers = _descend(self.layers, parts, gap, rate)
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
        """What the estimator keeps, in the units of X and y."""
        p = self.problem
        share = p.unit ** (1 / len(self.layers))
        layers = [W * share for W in self.layers]
        layers[0] = layers[0] @ p.there.T
        coef = _partial_products(layers)[-1]
        intercept = p.centre - coef @ p.mean
        coef, intercept = coef.astype(self.dtype), intercept.astype(self.dtype)
        return {
            "weights_": [W.astype(self.dtype) for W in layers],
            "coef_": coef[0] if self.flat else coef,
            "intercept_": intercept[0] if self.flat else intercept,
        }


def _partial_products(layers: list[Array]) -> list[Array]:
    """W₁, W₂W₁, … up to the whole product."""
    parts = [layers[0]]
    for W in layers[1:]:
        parts.append(W @ parts[-1])
    return parts


def _descend(
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
