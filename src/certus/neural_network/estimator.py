"""The base of all estimators that train a network.

A subclass defines how X and y are read and which module is trained on them. The fit
with its checkpoints and early stopping, prediction in blocks, and the measured numbers
are here. ``module_`` is a plain ``nn.Module``.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import torch
from sklearn.utils.validation import check_is_fitted
from torch import Tensor, nn

from certus._core.rows import row_weights
from certus.base import (
    Estimator,
    Fitted,
    as_array,
    generator_of,
    require_outputs,
)
from certus.callbacks import Monitor
from certus.certificate import Claim, Evidence, Status
from certus.conformal import forget_calibration
from certus.diagnostics import Diagnosed, TrainingRecord, measure
from certus.diagnostics.networks import count_rows, is_settled
from certus.evidence import NetworkWitness
from certus.neural_network import distributed
from certus.neural_network.adversarial import hardened, require_allowed
from certus.neural_network.batches import (
    Batch,
    BlockInputs,
    Chosen,
    HeldOut,
    NetworkInputs,
    Shuffled,
    parts,
    share_out,
    take,
)
from certus.neural_network.checkpoint import Checkpoints, describe
from certus.neural_network.network_loss import (
    NetworkLoss,
    complain,
    record_of,
    witness_of,
)
from certus.neural_network.objective import (
    Change,
    Objective,
    Targets,
    minimised,
    weighted_mean,
)
from certus.neural_network.operator_norm import projection
from certus.neural_network.optim import make_average, make_schedule, make_step
from certus.neural_network.parameters import check_training
from certus.neural_network.randomness import own_generator
from certus.neural_network.run import Rules, TrainingRun, threads_for
from certus.neural_network.train import train
from certus.neural_network.wrapping import (
    augmented,
    dtype_of,
    has_batch_norm,
    on_device,
    outputs,
    require_device,
    require_row_losses,
    tried,
    within_range,
)
from certus.threat import ThreatModel
from certus.typing import ArrayLike, MatrixLike


class NeuralModel(Diagnosed, Estimator):
    """Base of the estimators that train a network; abstract.

    Subclasses define ``__init__``, with the parameters named here, and the five methods
    below.
    """

    def _read_X(self, X: MatrixLike, reset: bool) -> Any:
        """X checked: an array, a sparse matrix or a list of sequences."""
        raise NotImplementedError

    def _rows(self, X: Any, module: nn.Module) -> NetworkInputs:
        """The result of ``_read_X`` in a form from which batches are taken."""
        raise NotImplementedError

    def _read_y(self, y: ArrayLike, reset: bool) -> Targets:
        """The targets; learns the classes, where there are any, if ``reset``."""
        raise NotImplementedError

    def _build(self, X: Any, targets: Targets) -> nn.Module:
        """The module to train, its first weights from torch's generator."""
        raise NotImplementedError

    def _grade(self, z: Tensor, y: Tensor, s: Tensor | None) -> float:
        """The score of outputs, higher is better; early stopping watches it."""
        raise NotImplementedError

    def _augmentation(self) -> Callable[[Tensor], Tensor] | None:
        """What changes a batch of inputs before each training step."""
        if self.augment is not None and not callable(self.augment):
            raise TypeError(
                "augment must be a function that changes a batch of inputs (names are "
                f"for images); got {self.augment!r}."
            )
        return self.augment

    def _raw_function(self, shape: tuple[int, ...]) -> nn.Module | None:
        """Scores of raw rows, preprocessing included; None if X is not numeric."""
        return None

    def _objective(self, targets: Targets) -> Objective:
        """What is minimised on a batch."""
        return hardened(self, minimised(targets))

    def _in_inputs(self, threat: ThreatModel | None) -> tuple[Any, Any]:
        """A threat to raw rows in the shape of inputs, and the inputs' own units."""
        return threat, None

    def _misfit(self, z: Tensor, targets: Targets) -> str:
        """What outputs should look like, if these do not fit the targets."""
        return ""

    def _require_pairs(
        self, rows: NetworkInputs, targets: Targets, X: str = "X", y: str = "y"
    ) -> None:
        """Raise unless there are as many rows as targets."""
        if len(rows) != len(targets.y):
            raise ValueError(
                f"{X} and {y} have inconsistent numbers of samples: {len(rows)} and "
                f"{len(targets.y)}."
            )

    # -- fitting ------------------------------------------------------------------

    def _fit(
        self,
        X: MatrixLike,
        y: ArrayLike,
        sample_weight: ArrayLike | None = None,
        X_val: Any = None,
        y_val: ArrayLike | None = None,
        change: Change | None = None,
    ) -> Fitted:
        self._check_training()
        given = (X, y, sample_weight)
        rng = generator_of(self.random_state)
        distributed.join(rng)
        kept = None if self.checkpoint is None else Checkpoints(self.checkpoint)
        if kept is not None:
            kept.begin(rng)
        monitor = Monitor(self, X, y, max_time=self.max_time)
        fresh = not (self.warm_start and hasattr(self, "module_"))
        X, targets = self._read_X(X, fresh), self._read_y(y, fresh)
        require_allowed(self, X)
        targets = targets if change is None else change(targets)
        s = within_range(self._row_weights(targets, sample_weight))
        run, rows = self._start(X, targets, rng, fresh)
        chosen, held = self._hold_out(rows, targets, s, X_val, y_val, run)
        batches = self._batches(rows, chosen, run)
        self._attach(run, rows, targets, s)
        self._plan(run, self.max_iter * len(batches))
        if kept is not None:
            data = X, targets.y, targets.extra, s, chosen, X_val, y_val
            module, labels = run.step.modules["module"], getattr(self, "classes_", None)
            params = self.get_params(deep=False)
            kept.resume(run, describe(params, module, *data, labels))
        earlier = run.history.get("seconds", [0.0])[-1]

        def on_epoch(run: TrainingRun) -> Status | None:
            ended = monitor.step(run.history["loss"][-1], math.nan)
            run.record({"seconds": earlier + monitor.history["seconds"][-1]})
            if kept is not None:
                kept.save(run)
            return ended

        evaluate = None if held is None else self._evaluator(held, targets)
        rules = Rules(self.max_iter, self.n_iter_no_change, self.tol, self.max_time)
        rules = rules._replace(keep_best=held is not None)
        status = train(run, batches, rules, evaluate, on_epoch)
        self._finish(run)
        monitor.close({})
        witness = witness_of(run)
        if status is Status.MAX_ITER and is_settled(self._recorded(witness, given[0])):
            status = Status.SOLVED  # with the plan of its schedule
        measured = self._to_measure(witness, *given)
        evidence = Evidence("network", witness=witness)
        return Fitted(evidence, *given, status, measured=measured)

    def _partial_fit(
        self, X: MatrixLike, y: ArrayLike, sample_weight: ArrayLike | None, reset: bool
    ) -> None:
        """One epoch on these rows, from where the last one ended."""
        self._check_training()
        if self.early_stopping:
            raise ValueError(
                "partial_fit makes one epoch on all rows it gets and cannot stop "
                "early. Set early_stopping=False, or call fit."
            )
        fresh = not hasattr(self, "module_")
        X = self._read_X(X, reset=fresh)
        require_allowed(self, X)
        targets = self._read_y(y, reset=reset)
        s = within_range(self._row_weights(targets, sample_weight))
        run = getattr(self, "_run", None)
        if run is None or run.final() is not self.module_:
            rng = generator_of(self.random_state)
            distributed.join(rng)
            run, rows = self._start(X, targets, rng, fresh)
        else:
            rows = self._rows(X, self.module_)
        self._require_pairs(rows, targets)
        batches = self._batches(rows, torch.arange(len(rows)), run)
        self._attach(run, rows, targets, s)
        for optimizer in run.step.optimizers.values():
            for group in optimizer.param_groups:
                group["lr"] = self.learning_rate
        status = train(run, batches, Rules(run.epoch + 1, max_time=self.max_time))
        self._finish(run)
        # The old one was about other weights; certus.certify makes a new one.
        self.__dict__.pop("certificate_", None)
        forget_calibration(self)
        complain(self, run, status)

    def _start(
        self, X: MatrixLike, targets: Targets, rng: np.random.Generator, fresh: bool
    ) -> tuple[TrainingRun, NetworkInputs]:
        """A module with its optimiser, tried on two rows; the last one if not fresh."""
        seed = int(rng.integers(2**63 - 1))
        with own_generator():
            torch.default_generator.manual_seed(seed)
            module = self._build(X, targets) if fresh else copy.deepcopy(self.module_)
            module = module.to(self.device)
            rows = self._rows(X, module)
            self._require_pairs(rows, targets)
            self._try(module, rows, targets)
            distributed.alike(module)
            state = torch.random.get_rng_state()
        if not any(p.requires_grad for p in module.parameters()):
            raise ValueError(
                "The module has no parameters to train. Give it some, or set "
                "requires_grad=True on those it has."
            )
        kind, rate, decay = self.optimizer, self.learning_rate, self.weight_decay
        step = make_step(kind, module, rate, decay, minimised(targets), self.clip)
        step.project = projection(self, module)
        if step.project is not None:
            step.project()
        average = make_average(module, self.average)
        averages = {} if average is None else {"module": average}
        return TrainingRun(step, rng, state, averages), rows

    def _try(self, module: nn.Module, rows: NetworkInputs, targets: Targets) -> None:
        """Two rows through the module, so that a misfit is found before training."""
        inputs = rows[torch.arange(min(2, len(rows)))]
        z, changed = tried(module, inputs, lambda z: self._misfit(z, targets))
        if changed:
            self._in_place = True
        with torch.no_grad():
            y = on_device(targets.y[: len(z)], module, self.device)
            require_row_losses(targets.loss(z, y), len(z))

    def _attach(
        self,
        run: TrainingRun,
        rows: NetworkInputs,
        targets: Targets,
        s: np.ndarray | None,
    ) -> None:
        """Give the step its data."""
        step: Any = run.step
        module, augment = step.modules["module"], self._augmentation()
        y, t, extra = (
            None if value is None else on_device(value, module, self.device)
            for value in (targets.y, s, targets.extra)
        )

        def fetch(numbers: Tensor) -> Batch:
            inputs = rows[numbers]
            if augment is not None:
                inputs = (augmented(augment, inputs[0]), *inputs[1:])
            return Batch(inputs, *parts(numbers, y, t, extra))

        step.fetch, step.objective = fetch, self._objective(targets)

    def _plan(self, run: TrainingRun, steps: int) -> None:
        """The schedule of the learning rate over a run of ``steps`` steps."""
        optimizer = run.step.optimizers["module"]
        schedule = make_schedule(self.schedule, optimizer, steps, self.warmup)
        run.schedules = [] if schedule is None else [schedule]

    def _hold_out(
        self,
        rows: NetworkInputs,
        targets: Targets,
        s: np.ndarray | None,
        X_val: MatrixLike | None,
        y_val: ArrayLike | None,
        run: TrainingRun,
    ) -> tuple[Tensor, HeldOut | None]:
        """Numbers of the rows to train on, and those to stop by, if any."""
        module = run.step.modules["module"]
        # A row of weight zero is an absent row.
        present = torch.as_tensor(np.arange(len(rows)) if s is None else s.nonzero()[0])
        if (X_val is None) != (y_val is None):
            raise ValueError("Pass both of X_val and y_val, or neither.")
        if X_val is not None and y_val is not None:
            X, wanted = self._read_X(X_val, False), self._read_y(y_val, False)
            apart = self._rows(X, module)
            self._require_pairs(apart, wanted, "X_val", "y_val")
            y = on_device(wanted.y, module, self.device)
            kept = Chosen(apart, torch.arange(len(apart)))  # copies, not X_val itself
            return present, HeldOut(kept, y, None)
        if not self.early_stopping:
            return present, None
        if len(present) < 2:
            raise ValueError("early_stopping needs at least 2 rows; got 1.")
        groups = None if targets.groups is None else targets.groups[present.numpy()]
        shares = share_out(len(present), self.validation_fraction, groups, run.rng)
        rest, chosen = (present[share] for share in shares)
        y = on_device(targets.y[chosen], module, self.device)
        t = None if s is None else on_device(s[chosen.numpy()], module, self.device)
        return rest, HeldOut(Chosen(rows, chosen), y, t)

    def _evaluator(self, held: HeldOut, targets: Targets) -> Any:
        own = callable(getattr(self, "loss", None))

        def evaluate(run: TrainingRun) -> dict[str, float]:
            z = outputs(run.final(), held.rows)
            loss = targets.loss(z, held.y)
            value = float(weighted_mean(loss, held.s))
            # Outputs that are NaN have no class, though the first would be taken.
            score = math.nan if value != value else self._grade(z, held.y, held.s)
            # The score decides, unless it says nothing or the loss is the user's own.
            criterion = value if own or not math.isfinite(score) else -score
            return {
                "validation_loss": value,
                "validation_score": score,
                "criterion": criterion if math.isfinite(criterion) else math.inf,
            }

        return evaluate

    def _finish(self, run: TrainingRun) -> None:
        step: Any = run.step
        # The data belongs to the user, and the best weights are restored already.
        step.fetch = run.best = None
        self.module_ = run.final().eval()
        self._run = run
        self.n_iter_ = max(1, run.epoch)
        self.history_ = {name: list(column) for name, column in run.history.items()}
        self.loss_ = run.history["loss"][-1] if run.history else math.nan
        self.best_epoch_ = run.best_epoch

    def _recorded(
        self, witness: NetworkWitness | None, X: MatrixLike
    ) -> TrainingRecord:
        """How training went, in the form that the diagnostics use."""
        return record_of(self, witness, X)

    def _measured(
        self,
        witness: NetworkWitness | None,
        X: MatrixLike,
        y: ArrayLike,
        sample_weight: ArrayLike | None,
        level: str,
    ) -> list[Claim]:
        check_is_fitted(self, "module_")
        at = partial(self._stated, X, y, sample_weight)
        record = self._recorded(witness, X)
        return measure(at, count_rows(X, y), sample_weight, record, level)

    def _stated(
        self,
        X: MatrixLike,
        y: ArrayLike,
        sample_weight: ArrayLike | None,
        chosen: np.ndarray,
        change: Change | None = None,
    ) -> NetworkLoss:
        """The loss on some rows as a function of the weights."""
        check_is_fitted(self, "module_")
        targets = self._read_y(y, reset=False)
        targets = targets if change is None else change(targets)
        s = self._row_weights(targets, sample_weight)
        rows = self._rows(self._read_X(take(X, chosen), reset=False), self.module_)
        numbers = torch.as_tensor(chosen)
        t = None if s is None else torch.as_tensor(s)
        inputs = rows[slice(0, len(rows))]
        batch = Batch(inputs, *parts(numbers, targets.y, t, targets.extra))
        return NetworkLoss(self.module_, self._objective(targets), batch)

    def __getstate__(self) -> dict[str, Any]:
        """What is copied and pickled: not the optimiser, which belongs to a run."""
        return {k: v for k, v in super().__getstate__().items() if k != "_run"}

    # -- prediction ---------------------------------------------------------------

    def _outputs(self, X: MatrixLike) -> np.ndarray:
        """The network's outputs for each row, in evaluation mode."""
        check_is_fitted(self, "module_")
        X, module = self._read_X(X, reset=False), self.module_
        rows: NetworkInputs
        if isinstance(X, np.ndarray):
            copied = getattr(self, "_in_place", False)
            kind = np.float32 if dtype_of(module) is torch.float32 else np.float64
            rows = BlockInputs(X, lambda part: self._rows(part, module), copied, kind)
        else:
            rows = self._rows(X, module)
        found = as_array(outputs(module, rows))
        require_outputs(found)
        return found

    # -- parameters ---------------------------------------------------------------

    def _batches(
        self, rows: NetworkInputs, chosen: Tensor, run: TrainingRun
    ) -> Shuffled:
        """The chosen rows in batches, again for each epoch."""
        module, n = run.step.modules["module"], len(chosen)
        least = 2 * distributed.count() if has_batch_norm(module) else 1
        size = n if self.batch_size is None else min(int(self.batch_size), n)
        if size < least:
            raise ValueError(
                f"Batch normalisation needs at least {least} rows in a batch; got "
                f"batch_size={self.batch_size!r} and {n} rows. Raise batch_size, or "
                "use layer normalisation."
            )
        run.threads = threads_for(module, size)
        return Shuffled(rows, chosen, size, least)

    def _row_weights(
        self, targets: Targets, sample_weight: ArrayLike | None
    ) -> np.ndarray | None:
        if sample_weight is None:
            return None
        return row_weights(sample_weight, len(targets.y))

    def _check_training(self) -> None:
        check_training(self)
        require_device(self.device)
