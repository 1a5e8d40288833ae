"""Training a perceptron without torch: by mini-batches, or on all rows at once.

    minimise  Σ sᵢ ℓ(yᵢ, f(xᵢ; θ)) / Σ s + ½·alpha·‖W‖² / Σ s

The functions take the estimator and leave in it what scikit-learn's would: weights,
losses, epochs and scores. What ends them is the plateau rule, ``max_iter``, the clock,
a loss that is not finite, or Ctrl-C.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from scipy.optimize import OptimizeResult, minimize
from sklearn.model_selection import train_test_split

from certus.callbacks import Monitor
from certus.certificate import Status
from certus.neural_network.backprop import PerceptronRows, Trainer, loss_gradient
from certus.typing import ArrayLike, MatrixLike

if TYPE_CHECKING:
    from certus.neural_network.multilayer import MultilayerPerceptron


class Held(NamedTuple):
    """Rows to stop by."""

    X: Any
    Y: np.ndarray
    s: np.ndarray | None


@dataclass
class KeptWeights:
    """Weights after the last epoch, after the one before, and after the best."""

    good: np.ndarray
    earlier: np.ndarray
    best: np.ndarray


def hold_out(
    model: MultilayerPerceptron,
    rows: PerceptronRows,
    X_val: MatrixLike | None,
    y_val: ArrayLike | None,
    rng: np.random.RandomState,
) -> tuple[PerceptronRows, Held | None]:
    """Rows to train on, and those to stop by, if any."""
    if X_val is not None:
        X = model._validate_X(X_val)
        Y = model._targets(np.asarray(y_val), reset=False)
        Y = (Y - model._shift) / model._scale if model._scale is not None else Y
        if X.shape[0] != len(Y):
            raise ValueError(f"X_val has {X.shape[0]} rows and y_val has {len(Y)}.")
        return rows, Held(X, Y, None)
    if not model.early_stopping or model.solver == "lbfgs":
        return rows, None
    binary = model.out_activation_ == "logistic" and model.n_outputs_ == 1
    train, apart = train_test_split(
        np.arange(len(rows.Y)),
        random_state=rng,
        test_size=model.validation_fraction,
        stratify=rows.Y > 0 if binary else None,
    )
    if len(apart) < 2:
        raise ValueError(
            "The validation set is too small. Increase 'validation_fraction' or "
            "the size of your dataset."
        )
    s = rows.s[apart] if len(rows.s) else None
    kept = rows.s[train] if len(rows.s) else rows.s
    held = Held(rows.X[apart], rows.Y[apart], s)
    return PerceptronRows(rows.X[train], rows.Y[train], kept), held


def by_epochs(
    model: MultilayerPerceptron,
    rows: PerceptronRows,
    held: Held | None,
    monitor: Monitor | None,
    rng: np.random.RandomState,
) -> Status:
    """Epochs until the plateau rule, ``max_iter``, the clock or Ctrl-C end them."""
    run = _trainer(model, fresh=monitor is not None)
    if held is not None and model.validation_scores_ is None:
        model.validation_scores_, model.best_loss_ = [], None
        model.best_validation_score_ = -math.inf
    model.n_iter_, model.best_epoch_, model._diverged = 0, 0, None
    model._history = {"loss": []}
    kept = KeptWeights(*(run.theta.copy() for _ in range(3)))
    try:
        status = _epochs(model, run, kept, rows, held, monitor, rng)
    except KeyboardInterrupt:
        status = Status.INTERRUPTED
    if status in (Status.INTERRUPTED, Status.TIME_LIMIT) and model.n_iter_:
        # Part of an epoch does not count, unless there is nothing else.
        run.theta[:] = kept.good
    if held is not None and model.best_epoch_:
        run.theta[:] = kept.best
    if not model.n_iter_:
        model.loss_, model.n_iter_ = math.nan, 1
    return status


def _epochs(
    model: MultilayerPerceptron,
    run: Trainer,
    kept: KeptWeights,
    rows: PerceptronRows,
    held: Held | None,
    monitor: Monitor | None,
    rng: np.random.RandomState,
) -> Status:
    n, batch = len(rows.Y), model._batch(len(rows.Y))
    late = time.perf_counter() + (model.max_time or math.inf)
    order = np.arange(n)
    for _ in range(model.max_iter if monitor is not None else 1):
        if model.shuffle:
            mixed = np.arange(n)
            rng.shuffle(mixed)
            order = order[mixed]
        steps = run.steps
        loss, done = run.epoch(rows, order, batch, model.alpha, late)
        if not (math.isfinite(loss) and np.isfinite(run.theta).all()):
            at = min(run.steps - steps + 1, -(-n // batch))
            before = model.loss_curve_[-1] if model.loss_curve_ else math.nan
            model._diverged = (model.n_iter_ + 1, at, before)
            # Weights whose first loss is not finite are not worth keeping.
            run.theta[:] = kept.good if at > 1 else kept.earlier
            return Status.DIVERGED
        if done < n:
            return Status.TIME_LIMIT
        kept.earlier, kept.good = kept.good, run.theta.copy()
        if _close_epoch(model, run, loss, n, held):
            model.best_epoch_, kept.best = model.n_iter_, kept.good
        ended = None if monitor is None else monitor.step(loss, math.nan)
        if ended is None and model._no_improvement_count > model.n_iter_no_change:
            ended = _plateau(model, run)
        if ended is not None:
            return ended
    return Status.MAX_ITER


def _trainer(model: MultilayerPerceptron, fresh: bool) -> Trainer:
    """The optimiser, a new one for each fit, on one vector of all weights."""
    theta = model._theta()
    design = model._design()
    run = getattr(model, "_run", None)
    if fresh or not isinstance(run, Trainer) or run.design != design:
        adam = model.solver == "adam"
        plain = "nesterov" if model.nesterovs_momentum else "sgd"
        first = model.beta_1 if adam else model.momentum
        run = Trainer(
            design,
            theta,
            "adam" if adam else plain,
            float(model.learning_rate_init),
            (float(first), float(model.beta_2)),
            float(model.epsilon),
        )
    run.theta = theta
    model.coefs_, model.intercepts_ = design.views(theta)
    model._run = run
    return run


def _close_epoch(
    model: MultilayerPerceptron, run: Trainer, loss: float, n: int, held: Held | None
) -> bool:
    """Count an epoch; returns whether it is the best so far."""
    model.n_iter_ += 1
    model.loss_ = loss
    model.t_ += n
    model.loss_curve_.append(loss)
    model._history["loss"].append(loss)
    if held is None:
        enough = loss <= model.best_loss_ - model.tol
        better = loss < model.best_loss_
        model.best_loss_ = min(loss, model.best_loss_)
    else:
        Z = model._scores(held.X)
        finite = bool(np.isfinite(Z).all())
        score = model._grade(Z, held.Y, held.s) if finite else math.nan
        model.validation_scores_.append(score)
        model._history.setdefault("validation_score", []).append(score)
        best = model.best_validation_score_
        enough, better = not score < best + model.tol, score > best
        if better:
            model.best_validation_score_ = score
    model._no_improvement_count = 0 if enough else model._no_improvement_count + 1
    if model.solver == "sgd" and model.learning_rate == "invscaling":
        run.rate = float(model.learning_rate_init) / (model.t_ + 1) ** model.power_t
    return better


def _plateau(model: MultilayerPerceptron, run: Trainer) -> Status | None:
    """End the fit, or divide an adaptive rate by 5 as long as it is above 1e-6."""
    adaptive = model.solver == "sgd" and model.learning_rate == "adaptive"
    if not adaptive or run.rate <= 1e-6:
        return Status.SOLVED
    run.rate /= 5.0
    model._no_improvement_count = 0
    return None


def by_lbfgs(
    model: MultilayerPerceptron,
    rows: PerceptronRows,
    held: Held | None,
    monitor: Monitor,
    rng: np.random.RandomState,
) -> Status:
    """All rows at once, in float64, by SciPy's L-BFGS-B."""
    design, dtype = model._design(), model.coefs_[0].dtype
    start = model._theta().astype(np.float64)
    rows = PerceptronRows.of(rows.X, rows.Y, rows.s, np.float64)
    model._history, model._diverged = {"loss": []}, None
    kept: list[np.ndarray] = [start]
    ended: list[Status | None] = [None]

    def on_step(intermediate_result: OptimizeResult) -> None:
        if np.isfinite(intermediate_result.x).all():
            kept[0] = np.array(intermediate_result.x)
        model._history["loss"].append(float(intermediate_result.fun))
        ended[0] = monitor.step(float(intermediate_result.fun), math.nan)
        if ended[0] is not None:
            raise StopIteration

    limits = {"maxfun": model.max_fun, "maxiter": model.max_iter, "gtol": model.tol}
    try:
        found = minimize(
            lambda theta: loss_gradient(design, theta, rows, model.alpha),
            start,
            method="L-BFGS-B",
            jac=True,
            callback=on_step,
            options=limits,
        )
        theta, status = found.x, Status.SOLVED if found.success else Status.MAX_ITER
        if ended[0] is not None:
            status = ended[0]
    except KeyboardInterrupt:
        theta, status = kept[0], Status.INTERRUPTED
    model.n_iter_ = model.best_epoch_ = max(1, len(model._history["loss"]))
    model.n_iter_ = min(model.n_iter_, model.max_iter)
    model.loss_ = float(loss_gradient(design, theta, rows, model.alpha)[0])
    if not (math.isfinite(model.loss_) and np.isfinite(theta).all()):
        theta, status = kept[0], Status.DIVERGED
        model._diverged = (model.n_iter_, 1, math.nan)
    model.coefs_, model.intercepts_ = design.views(theta.astype(dtype))
    return status
