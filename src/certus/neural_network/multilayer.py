"""Code that the two multi-layer perceptrons share: reading data, and training epochs.

    minimise  Σ sᵢ ℓ(yᵢ, f(xᵢ; θ)) / Σ s + ½·alpha·‖W‖² / Σ s   over batches of rows

by our own backpropagation, in the order and with the random numbers of scikit-learn's
networks, so that equal parameters give equal weights. Designs beyond scikit-learn's are
trained by torch (see ``mlp_torch``).
"""

from __future__ import annotations

import math
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from certus._core.rows import row_weights
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
from certus.certificate import Claim, Evidence, Status
from certus.conformal import forget_calibration
from certus.diagnostics import Diagnosed, TrainingRecord, measure
from certus.diagnostics.networks import count_rows
from certus.evidence import NetworkWitness
from certus.neural_network.backprop import (
    PerceptronDesign,
    PerceptronRows,
    Trainer,
    outputs,
    pack,
)
from certus.neural_network.mlp_training import by_epochs, by_lbfgs, hold_out
from certus.neural_network.perceptron_loss import StatedDesign
from certus.typing import ArrayLike, DTypeLike, Matrix, MatrixLike

if TYPE_CHECKING:
    from torch import nn

    from certus.neural_network.objective import Change

EXPLICIT = ("identity", "logistic", "tanh", "relu", "leaky_relu", "elu", "softplus")
TORCH_ONLY = ("absolute", "maxout")
#: Parameters that only torch obeys, and the values without effect.
BEYOND = {
    "dropout": 0.0,
    "normalization": None,
    "residual": False,
    "checkpoint": None,
    "device": "cpu",
    "adversarial": None,
    "alpha_operator_norm": 0.0,
    "lipschitz": None,
}
#: Rows of a batch unless the user says otherwise.
BATCH = 200
#: What helps a run whose loss became infinite.
REMEDY = "standardise X (StandardScaler), or lower learning_rate_init"


class MultilayerPerceptron(Diagnosed, Estimator):
    """Base of the multi-layer perceptrons; abstract.

    Subclasses define ``__init__``, ``fit`` and the methods below.
    """

    coefs_: list[np.ndarray]
    intercepts_: list[np.ndarray]
    loss_curve_: list[float]
    #: The first is None where rows are held out, the other two where none are.
    best_loss_: Any
    validation_scores_: Any
    best_validation_score_: Any
    #: Epoch, step and the loss before, where it became infinite.
    _diverged: Any
    #: Units of y in training, if they are not its own.
    _shift: Any
    _scale: Any

    def _targets(self, y: ArrayLike, reset: bool) -> np.ndarray:
        """One column for each output; learns the classes if ``reset``."""
        raise NotImplementedError

    def _output(self) -> tuple[str, str]:
        """Names of the output activation and of the loss in the kernels."""
        raise NotImplementedError

    def _require_classes(self, y: ArrayLike) -> None:
        """Refuse to go on from weights of a fit with other classes."""

    def _row_weights(
        self, y: ArrayLike, sample_weight: ArrayLike | None, n: int
    ) -> np.ndarray | None:
        """Weights of all rows, or None if they weigh the same."""
        if sample_weight is None:
            return None
        return row_weights(sample_weight, n)

    def _grade(self, Z: np.ndarray, Y: np.ndarray, s: np.ndarray | None) -> float:
        """The score of outputs Z, higher is better."""
        raise NotImplementedError

    def _neural(self, module: nn.Module, options: dict[str, Any]) -> Any:
        """The estimator on torch that trains a module with these parameters."""
        raise NotImplementedError

    # -- fitting ------------------------------------------------------------------

    def _fit(
        self,
        X: MatrixLike,
        y: ArrayLike,
        sample_weight: ArrayLike | None,
        X_val: MatrixLike | None,
        y_val: ArrayLike | None,
        change: Change | None = None,
    ) -> Fitted:
        self._check_params()
        if (X_val is None) != (y_val is None):
            raise ValueError("Pass both of X_val and y_val, or neither.")
        given = (X, y, sample_weight)
        fresh = not (self.warm_start and hasattr(self, "n_layers_"))
        if self._on_torch():
            return _torch().fit(self, *given, X_val, y_val, fresh, change)
        rows, rng = self._begin(X, y, sample_weight, fresh, fresh)
        rows, held = hold_out(self, rows, X_val, y_val, rng)
        self._set_penalty(rows)
        monitor = Monitor(self, X, y, max_time=self.max_time)
        train = by_lbfgs if self.solver == "lbfgs" else by_epochs
        status = train(self, rows, held, monitor, rng)
        self._to_units_of_y()
        self.history_ = {**self._history, "seconds": monitor.history["seconds"]}
        del self._history
        monitor.close({})
        diverged = None if self._diverged is None else list(self._diverged)
        counted = int(self.n_iter_), int(self.best_epoch_), None, diverged
        witness = NetworkWitness(*counted, settled=status is Status.SOLVED)
        measured = self._to_measure(witness, *given)
        evidence = Evidence("network", witness=witness)
        return Fitted(evidence, *given, status, measured=measured)

    def _fit_part(
        self, X: MatrixLike, y: ArrayLike, sample_weight: ArrayLike | None, learn: bool
    ) -> None:
        """One epoch on these rows; with ``learn``, y sets the number of outputs."""
        self._check_params()
        if self.early_stopping:
            raise ValueError(
                "partial_fit does not support early_stopping=True: it makes one "
                "epoch on all rows it gets. Use fit."
            )
        fresh = not hasattr(self, "n_layers_")
        # It is about other weights; certus.certify makes one for these.
        self.__dict__.pop("certificate_", None)
        forget_calibration(self)
        if self._on_torch():
            return _torch().fit_part(self, X, y, sample_weight, fresh, learn)
        rows, rng = self._begin(X, y, sample_weight, fresh, learn)
        self._set_penalty(rows)
        status = by_epochs(self, rows, None, None, rng)
        self._to_units_of_y()
        self.history_ = self._history
        del self._history
        if status is Status.DIVERGED:
            _, step, before = self._diverged
            raise ValueError(
                f"The loss became NaN or infinite in step {step} ({before:.3g} "
                "before); the weights from before this call were kept. Lower "
                "learning_rate_init, or standardise X."
            )
        return None

    def _begin(
        self,
        X: Any,
        y: ArrayLike,
        sample_weight: ArrayLike | None,
        fresh: bool,
        learn: bool,
    ) -> tuple[PerceptronRows, np.random.RandomState]:
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
                f"y has {Y.shape[1]} columns, but the model predicts {self.n_outputs_}."
            )
        Y = (Y - self._shift) / self._scale if self._scale is not None else Y
        return PerceptronRows.of(X, Y, s, self.coefs_[0].dtype), rng

    def _initialise(
        self,
        n_inputs: int,
        n_outputs: int,
        dtype: DTypeLike,
        rng: np.random.RandomState,
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
        """Units of y in training: its own, unless a subclass sets others."""
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

    # -- what is measured ---------------------------------------------------------

    def _set_penalty(self, rows: PerceptronRows) -> None:
        """½·penalty·‖W‖² is what the batches of an epoch add to their mean loss."""
        n = len(rows.Y)
        total = float(rows.s.sum()) if len(rows.s) else float(n)
        self._penalty = float(self.alpha) * n / (self._batch(n) * total)

    def _recorded(
        self, witness: NetworkWitness | None, X: MatrixLike | None = None
    ) -> TrainingRecord:
        """How training went, in the words of the diagnostics."""
        parameters = sum(W.size + W.shape[1] for W in self.coefs_)
        if witness is None:  # after a partial fit
            return TrainingRecord(parameters=parameters)
        held = "validation_score" in self.history_
        criterion = "validation_score" if held else "loss"
        falling = self.solver == "sgd" and self.learning_rate == "invscaling"
        planned = self._on_torch() and (falling or math.isinf(self.n_iter_no_change))
        return TrainingRecord(
            self.history_.get(criterion, ()),
            criterion,
            *witness[:4],
            self.max_iter if planned else None,
            float(self.n_iter_no_change),
            self.tol,
            witness.settled,
            self.max_iter,
            parameters,
            "" if witness.diverged is None else REMEDY,
        )

    def _measured(
        self,
        witness: NetworkWitness | None,
        X: MatrixLike,
        y: ArrayLike,
        sample_weight: ArrayLike | None,
        level: str,
    ) -> list[Claim]:
        check_is_fitted(self)
        at = partial(self._stated, X, y, sample_weight)
        record = self._recorded(witness)
        return measure(at, count_rows(X, y), sample_weight, record, level)

    def _stated(
        self,
        X: MatrixLike,
        y: ArrayLike,
        sample_weight: ArrayLike | None,
        chosen: np.ndarray,
        change: Change | None = None,
    ) -> Any:
        """The loss on some rows as a function of the weights."""
        if self._on_torch():
            return _torch().stated(self, X, y, sample_weight, chosen, change)
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

    def _scores(self, X: Matrix) -> np.ndarray:
        """The last layer's scores of checked rows."""
        if "_module" in vars(self):
            return _torch().scores(self, X)
        return outputs(self.coefs_, self.intercepts_, X, self.activation)

    def _scored(self, X: MatrixLike) -> np.ndarray:
        """The scores of rows to predict."""
        check_is_fitted(self)
        rows = validate_data(
            self,
            X,
            accept_sparse="csr",
            dtype=[np.float64, np.float32],
            ensure_all_finite=False,  # the first layer finds them at no cost
            reset=False,
        )
        found = self._scores(rows)
        require_outputs(found)
        return found

    @property
    def module_(self) -> Any:
        """A torch module of these weights, which it shares with ``coefs_``."""
        check_is_fitted(self, "coefs_")
        if "_module" in vars(self):
            return self._module
        return _torch().share(self)

    def _raw_function(self, shape: tuple[int, ...]) -> Any:
        """Scores of raw rows, as a torch module."""
        return self.module_

    # -- parameters ---------------------------------------------------------------

    def _design(self) -> PerceptronDesign:
        sizes = (self.coefs_[0].shape[0], *(W.shape[1] for W in self.coefs_))
        return PerceptronDesign(sizes, self.activation, self._output()[1])

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
            if getattr(self, name, plain) != plain
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


def in_steps(model: MultilayerPerceptron) -> bool:
    """Whether the solver makes steps, as a partial fit must."""
    if model.solver == "lbfgs":
        raise AttributeError(
            "partial_fit is only available for stochastic optimizers. lbfgs is not "
            "stochastic."
        )
    return True


def _torch() -> Any:
    """The part that needs torch."""
    try:
        from certus.neural_network import mlp_torch
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        raise ImportError(
            "This kind of network, and the attribute module_, need PyTorch: pip "
            'install "certus[deep]".'
        ) from error
    return mlp_torch
