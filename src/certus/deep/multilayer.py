"""What the two multi-layer perceptrons share: reading data, and the epochs of a fit.

    minimise  Σ sᵢ ℓ(yᵢ, f(xᵢ; θ)) / Σ s + ½·alpha·‖W‖² / Σ s   over batches of rows

by our own backpropagation, in the order and with the random numbers of scikit-learn's
networks, so that equal parameters give equal weights. Designs beyond scikit-learn's are
trained by torch (see ``mlp_torch``).
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import minimize
from sklearn.model_selection import train_test_split
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from certus.base import (
    Estimator,
    Fitted,
    check_choice,
    check_number,
    require_outputs,
    take,
    validate_data,
)
from certus.callbacks import Monitor
from certus.certificate import Evidence, Status
from certus.conformal import forget_calibration
from certus.deep.backprop import (
    Design,
    Rows,
    Trainer,
    loss_gradient,
    outputs,
    pack,
)
from certus.deep.stated_mlp import StatedDesign
from certus.verify.data import weights

EXPLICIT = ("identity", "logistic", "tanh", "relu", "leaky_relu", "elu", "softplus")
TORCH_ONLY = ("absolute", "maxout")
#: Parameters that only torch obeys, and the values without effect.
BEYOND = {"dropout": 0.0, "normalization": None, "residual": False}
#: Rows of a batch unless the user says otherwise.
BATCH = 200


class Held(NamedTuple):
    """Rows to stop by."""

    X: Any
    Y: np.ndarray
    s: np.ndarray | None


@dataclass
class Kept:
    """Weights after the last epoch, after the one before, and after the best."""

    good: np.ndarray
    earlier: np.ndarray
    best: np.ndarray


class MultilayerPerceptron(Estimator):
    """Base of the multi-layer perceptrons; abstract.

    Subclasses define ``__init__``, ``fit`` and the methods below.
    """

    coefs_: list[np.ndarray]
    intercepts_: list[np.ndarray]
    loss_curve_: list[float]
    #: None where rows are held out, or where they are not.
    best_loss_: Any
    validation_scores_: Any
    best_validation_score_: Any
    #: Epoch, step and the loss before, where it became infinite.
    _diverged: Any
    #: Units of y in training, if they are not its own.
    _shift: Any
    _scale: Any

    def _targets(self, y: Any, reset: bool) -> np.ndarray:
        """One column for each output; learns the classes if ``reset``."""
        raise NotImplementedError

    def _output(self) -> tuple[str, str]:
        """Names of the output activation and of the loss in the kernels."""
        raise NotImplementedError

    def _require_classes(self, y: Any) -> None:
        """Refuse to go on from weights of a fit with other classes."""

    def _row_weights(self, y: Any, sample_weight: Any, n: int) -> np.ndarray | None:
        """Weights of all rows, or None if they weigh the same."""
        if sample_weight is None:
            return None
        return weights(sample_weight, None, np.empty(0), None, n)

    def _grade(self, Z: np.ndarray, Y: np.ndarray, s: np.ndarray | None) -> float:
        """The score of outputs Z, higher is better."""
        raise NotImplementedError

    def _neural(self, module: Any, options: dict[str, Any]) -> Any:
        """The estimator on torch that trains a module with these parameters."""
        raise NotImplementedError

    # -- fitting ------------------------------------------------------------------

    def _fit(
        self, X: Any, y: Any, sample_weight: Any, X_val: Any, y_val: Any
    ) -> Fitted:
        self._check_params()
        if (X_val is None) != (y_val is None):
            raise ValueError("Pass both of X_val and y_val, or neither.")
        given = (X, y, sample_weight)
        fresh = not (self.warm_start and hasattr(self, "n_layers_"))
        if self._on_torch():
            return _torch().fit(self, *given, X_val, y_val, fresh)
        rows, rng = self._begin(X, y, sample_weight, fresh, fresh)
        rows, held = self._hold_out(rows, X_val, y_val, rng)
        self._set_penalty(rows)
        monitor = Monitor(self, X, y, max_time=self.max_time)
        train = self._by_lbfgs if self.solver == "lbfgs" else self._by_epochs
        status = train(rows, held, monitor, rng)
        self._to_units_of_y()
        self.history_ = {**self._history, "seconds": monitor.history["seconds"]}
        del self._history
        monitor.close({})
        return Fitted(self._evidence(held is not None, status), *given, status)

    def _fit_part(self, X: Any, y: Any, sample_weight: Any, learn: bool) -> None:
        """One epoch on these rows; learns from y how many outputs there are if told."""
        self._check_params()
        if self.early_stopping:
            raise ValueError(
                "partial_fit does not support early_stopping=True: it makes one epoch "
                "on all rows it is given. Use fit."
            )
        fresh = not hasattr(self, "n_layers_")
        # It spoke of other weights; certus.certify makes one for these.
        self.__dict__.pop("certificate_", None)
        forget_calibration(self)
        if self._on_torch():
            return _torch().fit_part(self, X, y, sample_weight, fresh, learn)
        rows, rng = self._begin(X, y, sample_weight, fresh, learn)
        self._set_penalty(rows)
        status = self._by_epochs(rows, None, None, rng)
        self._to_units_of_y()
        self.history_ = self._history
        del self._history
        if status is Status.DIVERGED:
            _, step, before = self._diverged
            raise ValueError(
                f"The loss became NaN or infinite in step {step} ({before:.3g} "
                "before); the weights are those before this call. Lower "
                "learning_rate_init, or standardise X."
            )
        return None

    def _begin(
        self, X: Any, y: Any, sample_weight: Any, fresh: bool, learn: bool
    ) -> tuple[Rows, np.random.RandomState]:
        """Checked rows, of positive weight, and first weights if it is fresh."""
        X, y, _ = self._validate_X_y(X, y, None, multi_output=True, reset=fresh)
        if self.warm_start and not learn:
            self._require_classes(y)
        Y = self._targets(y, reset=learn)
        s = self._row_weights(y, sample_weight, len(Y))
        if s is not None and not s.all():  # a row of weight zero is an absent row
            kept = np.flatnonzero(s)
            X, Y, s = take(X, kept), Y[kept], s[kept]
        rng = check_random_state(self.random_state)
        if fresh:
            self._initialise(X.shape[1], Y.shape[1], X.dtype, rng)
            self._set_units(Y, s)
            self._to_units_of_y()
        elif Y.shape[1] != self.n_outputs_:
            raise ValueError(
                f"y has {Y.shape[1]} columns and the model predicts {self.n_outputs_}."
            )
        Y = (Y - self._shift) / self._scale if self._scale is not None else Y
        return Rows.of(X, Y, s, self.coefs_[0].dtype), rng

    def _initialise(
        self, n_inputs: int, n_outputs: int, dtype: Any, rng: np.random.RandomState
    ) -> None:
        self.n_outputs_ = n_outputs
        self.out_activation_ = self._output()[0]
        sizes = (n_inputs, *self._hidden(), n_outputs)
        self.n_layers_ = len(sizes)
        self.coefs_, self.intercepts_ = [], []
        factor = 2.0 if self.activation == "logistic" else 6.0
        for m, n in pairwise(sizes):
            bound = math.sqrt(factor / (m + n))
            W = rng.uniform(-bound, bound, (m, n))
            b = rng.uniform(-bound, bound, n)
            self.coefs_.append(W.astype(dtype, copy=False))
            self.intercepts_.append(b.astype(dtype, copy=False))
        self.t_ = self.n_iter_ = 0
        self._no_improvement_count = 0
        self.__dict__.pop("_run", None)
        self.__dict__.pop("_module", None)
        if self.solver != "lbfgs":
            self.loss_curve_ = []
            self.best_loss_, self.validation_scores_ = math.inf, None
            self.best_validation_score_ = None

    def _set_units(self, Y: np.ndarray, s: np.ndarray | None) -> None:
        """Units in which y is trained on: its own, unless told otherwise."""
        self._shift = self._scale = None

    def _theta(self) -> np.ndarray:
        """All weights in the units of training."""
        theta = pack(self.coefs_, self.intercepts_)
        if self._scale is not None:
            coefs, intercepts = self._design().views(theta)
            coefs[-1] /= self._scale
            intercepts[-1] -= self._shift
            intercepts[-1] /= self._scale
        return theta

    def _to_units_of_y(self) -> None:
        """Scale the last layer back, so that it predicts y itself."""
        if self._scale is not None:
            self.coefs_[-1] *= self._scale
            self.intercepts_[-1] *= self._scale
            self.intercepts_[-1] += self._shift

    def _hold_out(
        self, rows: Rows, X_val: Any, y_val: Any, rng: np.random.RandomState
    ) -> tuple[Rows, Held | None]:
        """Rows to train on, and those to stop by, if any."""
        if X_val is not None:
            X = self._validate_X(X_val)
            Y = self._targets(np.asarray(y_val), reset=False)
            Y = (Y - self._shift) / self._scale if self._scale is not None else Y
            if X.shape[0] != len(Y):
                raise ValueError(f"X_val has {X.shape[0]} rows and y_val has {len(Y)}.")
            return rows, Held(X, Y, None)
        if not self.early_stopping or self.solver == "lbfgs":
            return rows, None
        binary = self.out_activation_ == "logistic" and self.n_outputs_ == 1
        train, apart = train_test_split(
            np.arange(len(rows.Y)),
            random_state=rng,
            test_size=self.validation_fraction,
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
        return Rows(rows.X[train], rows.Y[train], kept), held

    def _by_epochs(
        self, rows: Rows, held: Held | None, monitor: Monitor | None, rng: Any
    ) -> Status:
        """Epochs until the plateau rule, ``max_iter``, the clock or Ctrl-C end them."""
        run = self._trainer(fresh=monitor is not None)
        if held is not None and self.validation_scores_ is None:
            self.validation_scores_, self.best_loss_ = [], None
            self.best_validation_score_ = -math.inf
        self.n_iter_, self.best_epoch_, self._diverged = 0, 0, None
        self._history: dict[str, list[float]] = {"loss": []}
        kept = Kept(*(run.theta.copy() for _ in range(3)))
        try:
            status = self._epochs(run, kept, rows, held, monitor, rng)
        except KeyboardInterrupt:
            status = Status.INTERRUPTED
        if status in (Status.INTERRUPTED, Status.TIME_LIMIT) and self.n_iter_:
            # Part of an epoch does not count, unless there is nothing else.
            run.theta[:] = kept.good
        if held is not None and self.best_epoch_:
            run.theta[:] = kept.best
        if not self.n_iter_:
            self.loss_, self.n_iter_ = math.nan, 1
        return status

    def _epochs(
        self,
        run: Trainer,
        kept: Kept,
        rows: Rows,
        held: Held | None,
        monitor: Monitor | None,
        rng: Any,
    ) -> Status:
        n, batch = len(rows.Y), self._batch(len(rows.Y))
        late = time.perf_counter() + (self.max_time or math.inf)
        order = np.arange(n)
        for _ in range(self.max_iter if monitor is not None else 1):
            if self.shuffle:
                mixed = np.arange(n)
                rng.shuffle(mixed)
                order = order[mixed]
            steps = run.steps
            loss, done = run.epoch(rows, order, batch, self.alpha, late)
            if not (math.isfinite(loss) and np.isfinite(run.theta).all()):
                at = min(run.steps - steps + 1, -(-n // batch))
                before = self.loss_curve_[-1] if self.loss_curve_ else math.nan
                self._diverged = (self.n_iter_ + 1, at, before)
                # Weights that fail at once were no good ones.
                run.theta[:] = kept.good if at > 1 else kept.earlier
                return Status.DIVERGED
            if done < n:
                return Status.TIME_LIMIT
            kept.earlier, kept.good = kept.good, run.theta.copy()
            if self._close_epoch(run, loss, n, held):
                self.best_epoch_, kept.best = self.n_iter_, kept.good
            ended = None if monitor is None else monitor.step(loss, math.nan)
            if ended is None and self._no_improvement_count > self.n_iter_no_change:
                ended = self._plateau(run)
            if ended is not None:
                return ended
        return Status.MAX_ITER

    def _trainer(self, fresh: bool) -> Trainer:
        """The optimiser, a new one for each fit, on one vector of all weights."""
        theta = self._theta()
        design = self._design()
        run = getattr(self, "_run", None)
        if fresh or not isinstance(run, Trainer) or run.design != design:
            adam = self.solver == "adam"
            plain = "nesterov" if self.nesterovs_momentum else "sgd"
            first = self.beta_1 if adam else self.momentum
            run = Trainer(
                design,
                theta,
                "adam" if adam else plain,
                float(self.learning_rate_init),
                (float(first), float(self.beta_2)),
                float(self.epsilon),
            )
        run.theta = theta
        self.coefs_, self.intercepts_ = design.views(theta)
        self._run = run
        return run

    def _close_epoch(self, run: Trainer, loss: float, n: int, held: Any) -> bool:
        """Count an epoch; returns whether it is the best so far."""
        self.n_iter_ += 1
        self.loss_ = loss
        self.t_ += n
        self.loss_curve_.append(loss)
        self._history["loss"].append(loss)
        if held is None:
            enough = loss <= self.best_loss_ - self.tol
            better = loss < self.best_loss_
            self.best_loss_ = min(loss, self.best_loss_)
        else:
            Z = self._scores(held.X)
            finite = bool(np.isfinite(Z).all())
            score = self._grade(Z, held.Y, held.s) if finite else math.nan
            self.validation_scores_.append(score)
            self._history.setdefault("validation_score", []).append(score)
            best = self.best_validation_score_
            enough, better = not score < best + self.tol, score > best
            if better:
                self.best_validation_score_ = score
        self._no_improvement_count = 0 if enough else self._no_improvement_count + 1
        if self.solver == "sgd" and self.learning_rate == "invscaling":
            run.rate = float(self.learning_rate_init) / (self.t_ + 1) ** self.power_t
        return better

    def _plateau(self, run: Trainer) -> Status | None:
        """End there; with an adaptive rate, once a fifth of it is below 1e-6."""
        adaptive = self.solver == "sgd" and self.learning_rate == "adaptive"
        if not adaptive or run.rate <= 1e-6:
            return Status.SOLVED
        run.rate /= 5.0
        self._no_improvement_count = 0
        return None

    def _by_lbfgs(
        self, rows: Rows, held: Held | None, monitor: Monitor, rng: Any
    ) -> Status:
        """All rows at once, in float64, by SciPy's L-BFGS-B."""
        design, dtype = self._design(), self.coefs_[0].dtype
        start = self._theta().astype(np.float64)
        rows = Rows.of(rows.X, rows.Y, rows.s, np.float64)
        self._history, self._diverged = {"loss": []}, None
        kept: list[np.ndarray] = [start]
        ended: list[Status | None] = [None]

        def on_step(intermediate_result: Any) -> None:
            if np.isfinite(intermediate_result.x).all():
                kept[0] = np.array(intermediate_result.x)
            self._history["loss"].append(float(intermediate_result.fun))
            ended[0] = monitor.step(float(intermediate_result.fun), math.nan)
            if ended[0] is not None:
                raise StopIteration

        limits = {"maxfun": self.max_fun, "maxiter": self.max_iter, "gtol": self.tol}
        try:
            found = minimize(
                lambda theta: loss_gradient(design, theta, rows, self.alpha),
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
        self.n_iter_ = self.best_epoch_ = max(1, len(self._history["loss"]))
        self.n_iter_ = min(self.n_iter_, self.max_iter)
        self.loss_ = float(loss_gradient(design, theta, rows, self.alpha)[0])
        if not (math.isfinite(self.loss_) and np.isfinite(theta).all()):
            theta, status = kept[0], Status.DIVERGED
            self._diverged = (self.n_iter_, 1, math.nan)
        self.coefs_, self.intercepts_ = design.views(theta.astype(dtype))
        return status

    # -- what the verifier sees ---------------------------------------------------

    def _set_penalty(self, rows: Rows) -> None:
        """½·penalty·‖W‖² is what the batches of an epoch add to their mean loss."""
        n = len(rows.Y)
        total = float(rows.s.sum()) if len(rows.s) else float(n)
        self._penalty = float(self.alpha) * n / (self._batch(n) * total)

    def _evidence(self, held: bool, status: Status) -> Evidence:
        params = {
            "epochs": int(self.n_iter_),
            "best_epoch": int(self.best_epoch_),
            "criterion": "validation_score" if held else "loss",
            "patience": float(self.n_iter_no_change),
            "tol": self.tol,
            "parameters": sum(W.size + W.shape[1] for W in self.coefs_),
            "diverged": None if self._diverged is None else list(self._diverged),
            "settled": status is Status.SOLVED,
            "max_iter": self.max_iter if status is Status.MAX_ITER else math.inf,
        }
        if self._diverged is not None:
            params["fix"] = (
                "standardise X (StandardScaler), or lower learning_rate_init"
            )
        arrays = {f"history_{k}": np.asarray(v) for k, v in self.history_.items()}
        return Evidence("network", (), params, arrays)

    def _stated(self, X: Any, y: Any, sample_weight: Any, chosen: Any) -> Any:
        """The loss on some rows, for the verifier."""
        check_is_fitted(self)
        if self._on_torch():
            return _torch().stated(self, X, y, sample_weight, chosen)
        Y = self._targets(np.asarray(y), reset=False)
        s = self._row_weights(y, sample_weight, len(Y))
        Y = (Y - self._shift) / self._scale if self._scale is not None else Y
        return StatedDesign(
            self._design(),
            self._theta(),
            self._validate_X(take(X, chosen)),
            Y[chosen],
            None if s is None else s[chosen],
            self._penalty,
        )

    def __getstate__(self) -> dict[str, Any]:
        """What is copied and pickled: not torch's optimiser, which belongs to a run."""
        state = dict(super().__getstate__())
        if not isinstance(state.get("_run"), Trainer):
            state.pop("_run", None)
        return state

    # -- prediction ---------------------------------------------------------------

    def _scores(self, X: Any) -> np.ndarray:
        """The last layer's scores of checked rows."""
        if "_module" in vars(self):
            return _torch().scores(self, X)
        return outputs(self.coefs_, self.intercepts_, X, self.activation)

    def _scored(self, X: Any) -> np.ndarray:
        """The scores of rows that somebody asks about."""
        check_is_fitted(self)
        X = validate_data(
            self,
            X,
            accept_sparse="csr",
            dtype=[np.float64, np.float32],
            ensure_all_finite=False,  # the first layer finds them for nothing
            reset=False,
        )
        found = self._scores(X)
        require_outputs(found)
        return found

    @property
    def module_(self) -> Any:
        """A torch module of these weights, which it shares with ``coefs_``."""
        check_is_fitted(self, "coefs_")
        if "_module" in vars(self):
            return self._module
        return _torch().share(self)

    # -- parameters ---------------------------------------------------------------

    def _design(self) -> Design:
        sizes = (self.coefs_[0].shape[0], *(W.shape[1] for W in self.coefs_))
        return Design(sizes, self.activation, self._output()[1])

    def _hidden(self) -> tuple[int, ...]:
        hidden = self.hidden_layer_sizes
        hidden = hidden if np.iterable(hidden) else (hidden,)
        for width in hidden:
            check_number("hidden_layer_sizes", width, 1, integer=True)
        return tuple(int(width) for width in hidden)

    def _batch(self, n: int) -> int:
        if self.solver == "lbfgs":
            return n
        return min(n, BATCH if self.batch_size == "auto" else int(self.batch_size))

    def _on_torch(self) -> bool:
        """Whether the parameters, or the user, want torch."""
        beyond = [
            f"{name}={getattr(self, name)!r}"
            for name, plain in BEYOND.items()
            if getattr(self, name) != plain
        ]
        if self.activation in TORCH_ONLY:
            beyond.append(f"activation={self.activation!r}")
        if self.engine == "explicit" and beyond:
            raise ValueError(
                f"engine='explicit' has no {', '.join(beyond)}. Set engine='auto' to "
                "train with torch."
            )
        return bool(beyond) or self.engine == "torch"

    def _check_params(self) -> None:
        check_choice("activation", self.activation, EXPLICIT + TORCH_ONLY)
        check_choice("solver", self.solver, ("lbfgs", "sgd", "adam"))
        check_choice("engine", self.engine, ("auto", "explicit", "torch"))
        rates = ("constant", "invscaling", "adaptive")
        check_choice("learning_rate", self.learning_rate, rates)
        check_choice(
            "normalization", self.normalization, (None, "batch", "layer", "weight")
        )
        self._hidden()
        for name in ("alpha", "power_t", "tol"):
            check_number(name, getattr(self, name))
        for name in ("learning_rate_init", "epsilon"):
            check_number(name, getattr(self, name), open_low=True)
        for name in ("max_iter", "max_fun"):
            check_number(name, getattr(self, name), 1, integer=True)
        if self.n_iter_no_change != math.inf:
            check_number("n_iter_no_change", self.n_iter_no_change, 1, integer=True)
        if self.batch_size != "auto":
            check_number("batch_size", self.batch_size, 1, integer=True)
        check_number("momentum", self.momentum, 0, 1)
        for name in ("beta_1", "beta_2", "dropout", "validation_fraction"):
            value = getattr(self, name)
            check_number(name, value, 0, 1)
            if value == 1:
                raise ValueError(f"{name} must be below 1, got {value!r}.")
        check_number("max_time", self.max_time, open_low=True, none=True)
        for name in ("early_stopping", "warm_start", "shuffle", "nesterovs_momentum"):
            check_choice(name, getattr(self, name), (False, True))


def _torch() -> Any:
    """The part that needs torch."""
    try:
        from certus.deep import mlp_torch
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        raise ImportError(
            'This design, and module_, need PyTorch: pip install "certus[deep]".'
        ) from error
    return mlp_torch
