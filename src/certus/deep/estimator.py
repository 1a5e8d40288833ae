"""How a network becomes an estimator: what every one of them shares.

A subclass says how X and y are read and which module is trained on them. The fit with
its checkpoints and early stopping, prediction in blocks, and what the verifier sees of
the loss are here. ``module_`` is a plain ``nn.Module``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from sklearn.utils.validation import check_is_fitted
from torch import Tensor, nn

from certus.base import Estimator, Fitted, check_number, generator_of
from certus.callbacks import Monitor
from certus.certificate import Evidence, Status
from certus.deep.batches import Batch, Rows, epoch_batches
from certus.deep.checkpoint import load_checkpoint, resume, save_checkpoint
from certus.deep.objective import GradientStep, RowLoss
from certus.deep.optim import make_average, make_optimizer, make_schedule
from certus.deep.stated import Stated
from certus.deep.train import Losses, Rules, Run, train

#: Rows that go through a network together in prediction.
TOGETHER = 8192


#: ``objective(module, batch)`` gives the losses of a batch.
Objective = Callable[[Any, Batch], Losses]
#: Turns the targets of an estimator into those of a task built upon it.
Change = Callable[["Targets"], "Targets"]


class Targets(NamedTuple):
    """What is to be predicted, as the loss needs it."""

    y: Tensor
    loss: Callable[[Tensor, Tensor], Tensor]  # one number for each row
    outputs: int  # of the network, for each row
    groups: Any = None  # class numbers, to share out rows evenly
    #: Set where more is minimised than the mean of ``loss``: it is told batches whose
    #: ``extra`` are rows of the table ``extra``.
    objective: Objective | None = None
    extra: Tensor | None = None


class HeldOut(NamedTuple):
    """Rows that training does not see."""

    rows: Rows
    y: Tensor
    s: Tensor | None


class NeuralModel(Estimator):
    """Base of the estimators that train a network; abstract.

    Subclasses define ``__init__``, with the parameters named here, and the five methods
    below.
    """

    def _read_X(self, X: Any, reset: bool) -> Any:
        """X checked: an array, a sparse matrix or a list of sequences."""
        raise NotImplementedError

    def _rows(self, X: Any, module: nn.Module) -> Rows:
        """What ``_read_X`` gave, ready to be fetched from."""
        raise NotImplementedError

    def _read_y(self, y: Any, reset: bool) -> Targets:
        """The targets; learns the classes, where there are any, if ``reset``."""
        raise NotImplementedError

    def _build(self, X: Any, targets: Targets) -> nn.Module:
        """The module to train, its first weights from torch's generator."""
        raise NotImplementedError

    def _grade(self, z: Tensor, y: Tensor, s: Tensor | None) -> float:
        """The score of outputs, higher is better; early stopping watches it."""
        raise NotImplementedError

    # -- fitting ------------------------------------------------------------------

    def _fit(
        self,
        X: Any,
        y: Any,
        sample_weight: Any = None,
        X_val: Any = None,
        y_val: Any = None,
        change: Change | None = None,
    ) -> Fitted:
        self._check_training()
        given = (X, y, sample_weight)
        X = self._read_X(X, reset=True)
        targets = self._read_y(y, reset=True)
        targets = targets if change is None else change(targets)
        s = self._row_weights(y, sample_weight, len(targets.y))
        rng = generator_of(self.random_state)
        monitor = Monitor(self, given[0], given[1], max_time=self.max_time)
        run = self._start(X, targets, rng)
        rows = self._rows(X, run.step.modules["module"])
        chosen, held = self._hold_out(rows, targets, s, X_val, y_val, rng, run)
        least = 2 if has_batch_norm(run.step.modules["module"]) else 1
        size = self._batch_size_for(len(chosen), least)
        steps = self.max_iter * -(-len(chosen) // size)
        self._attach(run, rows, targets, s, steps)
        about = {"model": type(self).__name__, "rows": len(chosen), "batch": size}
        if self.checkpoint is not None:
            found = load_checkpoint(Path(self.checkpoint))
            if found is not None:
                resume(run, found, about)

        def batches(rng: np.random.Generator) -> Iterator[Tensor]:
            for part in epoch_batches(rng, len(chosen), size, least):
                yield chosen[part]

        def on_epoch(run: Run) -> Status | None:
            if self.checkpoint is not None:
                save_checkpoint(Path(self.checkpoint), run, about)
            return monitor.step(run.history["loss"][-1], math.nan)

        rules = Rules(
            max_epochs=self.max_iter,
            patience=self.n_iter_no_change,
            tol=self.tol,
            max_time=self.max_time,
            keep_best=held is not None,
        )
        evaluate = None if held is None else self._evaluator(held, targets)
        status = train(run, batches, rules, evaluate, on_epoch)
        self._finish(run, status, monitor)
        return Fitted(self._evidence(run, targets), *given, status)

    def _start(self, X: Any, targets: Targets, rng: np.random.Generator) -> Run:
        """A module with its optimiser: those of the last fit if it is a warm start."""
        previous = getattr(self, "_run", None)
        if self.warm_start and previous is not None:
            previous.stale, previous.best, previous.best_value = 0, None, math.inf
            previous.epoch, previous.history, previous.diverged = 0, {}, None
            return previous
        seed = int(rng.integers(2**63 - 1))
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            module = self._build(X, targets).to(self.device)
            state = torch.random.get_rng_state()
        kind, rate = self.optimizer, self.learning_rate
        optimizer = make_optimizer(kind, module, rate, self.weight_decay)
        average = make_average(module, self.average)
        step = GradientStep(module, optimizer, minimised(targets), None, self.clip)
        return Run(step, rng, state, {} if average is None else {"module": average})

    def _attach(
        self, run: Run, rows: Rows, targets: Targets, s: Tensor | None, steps: int
    ) -> None:
        """Give the step its data, and the optimiser its schedule over this run."""
        y = targets.y.to(self.device)
        extra = None if targets.extra is None else targets.extra.to(self.device)
        augment = self.augment

        def fetch(numbers: Tensor) -> Batch:
            inputs = rows[numbers]
            if augment is not None:
                inputs = (augment(inputs[0]), *inputs[1:])
            weights = None if s is None else s[numbers]
            more = None if extra is None else extra[numbers]
            return Batch(inputs, y[numbers], weights, more)

        step: Any = run.step
        step.fetch, step.objective = fetch, minimised(targets)
        optimizer = step.optimizers["module"]
        schedule = make_schedule(self.schedule, optimizer, steps, self.warmup)
        run.schedules = [] if schedule is None else [schedule]

    def _hold_out(
        self,
        rows: Rows,
        targets: Targets,
        s: Tensor | None,
        X_val: Any,
        y_val: Any,
        rng: np.random.Generator,
        run: Run,
    ) -> tuple[Tensor, HeldOut | None]:
        """Numbers of the rows to train on, and those to stop by, if any."""
        # A row of weight zero is an absent row.
        present = (
            torch.arange(len(rows)) if s is None else torch.nonzero(s > 0)[:, 0].cpu()
        )
        if X_val is not None:
            if y_val is None:
                raise ValueError("X_val is given without y_val; pass both.")
            module = run.step.modules["module"]
            apart = self._rows(self._read_X(X_val, reset=False), module)
            y = self._read_y(y_val, reset=False).y.to(self.device)
            return present, HeldOut(apart, y, None)
        if not self.early_stopping:
            return present, None
        groups = None if targets.groups is None else targets.groups[present.numpy()]
        parts = share_out(len(present), self.validation_fraction, groups, rng)
        rest, chosen = present[parts[0]], present[parts[1]]
        y = targets.y.to(self.device)[chosen]
        kept = Chosen(rows, chosen)
        return rest, HeldOut(kept, y, None if s is None else s[chosen])

    def _evaluator(self, held: HeldOut, targets: Targets) -> Any:
        def evaluate(run: Run) -> dict[str, float]:
            z = outputs(run.final(), held.rows)
            loss = targets.loss(z, held.y)
            mean = loss.mean() if held.s is None else held.s @ loss / held.s.sum()
            score = self._grade(z, held.y, held.s)
            return {
                "validation_loss": float(mean),
                "validation_score": score,
                "criterion": -score if math.isfinite(score) else math.inf,
            }

        return evaluate

    def _finish(self, run: Run, status: Status, monitor: Monitor) -> None:
        self.module_ = run.final().eval()
        self._run = run
        self.n_iter_ = max(1, run.epoch)
        self.history_ = {**run.history, "seconds": monitor.history["seconds"]}
        self.loss_ = run.history["loss"][-1] if run.history else math.nan
        self.best_epoch_ = run.best_epoch
        monitor.close({})

    def _evidence(self, run: Run, targets: Targets) -> Evidence:
        params = {
            "epochs": run.epoch,
            "best_epoch": run.best_epoch,
            "diverged": None if run.diverged is None else list(run.diverged),
            "held_out": "validation_score" in run.history,
        }
        arrays = {f"history_{k}": np.asarray(v) for k, v in run.history.items()}
        return Evidence("network", (), params, arrays)

    def _stated(
        self,
        X: Any,
        y: Any,
        sample_weight: Any,
        chosen: Any,
        change: Change | None = None,
    ) -> Stated:
        """The loss on some rows, for the verifier."""
        X = self._read_X(X, reset=False)
        targets = self._read_y(y, reset=False)
        targets = targets if change is None else change(targets)
        s = self._row_weights(y, sample_weight, len(targets.y))
        rows = self._rows(X, self.module_)
        numbers = torch.as_tensor(chosen)
        s = None if s is None else s[numbers]
        extra = None if targets.extra is None else targets.extra[numbers]
        batch = Batch(rows[numbers], targets.y[numbers], s, extra)
        return Stated(self.module_, minimised(targets), batch)

    # -- prediction ---------------------------------------------------------------

    def _outputs(self, X: Any) -> np.ndarray:
        """What the network gives for each row, in evaluation mode."""
        check_is_fitted(self, "module_")
        rows = self._rows(self._read_X(X, reset=False), self.module_)
        return outputs(self.module_, rows).cpu().numpy()

    # -- parameters ---------------------------------------------------------------

    def _batch_size_for(self, n: int, least: int) -> int:
        size = n if self.batch_size is None else min(int(self.batch_size), n)
        if size < least:
            raise ValueError(
                "Batch normalisation needs at least 2 rows in a batch; got "
                f"batch_size={self.batch_size!r} and {n} rows. Raise batch_size, or "
                "use layer normalisation."
            )
        return size

    def _row_weights(self, y: Any, sample_weight: Any, n: int) -> Tensor | None:
        if sample_weight is None:
            return None
        from certus.verify.data import weights

        s = weights(sample_weight, None, np.empty(n), None, n)
        return torch.as_tensor(s, dtype=torch.float32).to(self.device)

    def _check_training(self) -> None:
        check_number("max_iter", self.max_iter, 1, integer=True)
        check_number("learning_rate", self.learning_rate, open_low=True)
        check_number("weight_decay", self.weight_decay)
        check_number("tol", self.tol)
        check_number("n_iter_no_change", self.n_iter_no_change, 1, integer=True)
        check_number("batch_size", self.batch_size, 1, integer=True, none=True)
        check_number(
            "validation_fraction", self.validation_fraction, 0, 1, open_low=True
        )
        check_number("max_time", self.max_time, open_low=True, none=True)
        check_number("clip", self.clip, open_low=True, none=True)


class Chosen:
    """Some rows of others."""

    def __init__(self, rows: Rows, numbers: Tensor) -> None:
        self.rows, self.numbers = rows, numbers

    def __len__(self) -> int:
        """How many rows there are."""
        return len(self.numbers)

    def __getitem__(self, rows: Any) -> tuple[Tensor, ...]:
        """What the module is called with for these rows."""
        return self.rows[self.numbers[rows]]


def minimised(targets: Targets) -> Objective:
    """What is minimised: the mean loss of rows, unless the targets say otherwise."""
    return RowLoss(targets.loss) if targets.objective is None else targets.objective


def has_batch_norm(module: nn.Module) -> bool:
    """Whether a batch of one row is no batch."""
    kinds = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)
    return any(isinstance(part, kinds) for part in module.modules())


def outputs(module: nn.Module, rows: Rows) -> Tensor:
    """What a network gives for all rows, in evaluation mode, block by block."""
    training = module.training
    module.eval()
    try:
        with torch.inference_mode():
            parts = [
                module(*rows[slice(i, i + TOGETHER)])
                for i in range(0, len(rows), TOGETHER)
            ]
    finally:
        module.train(training)
    return parts[0] if len(parts) == 1 else torch.cat(parts)


def share_out(
    n: int, fraction: float, groups: Any, rng: np.random.Generator
) -> tuple[Tensor, Tensor]:
    """Row numbers to train on and to hold out, each group in the same proportion."""
    order = rng.permutation(n)
    if groups is not None:  # by turns: every stretch of the order has all groups
        place = np.empty(n)
        for g in np.unique(groups):
            members = order[groups[order] == g]
            # A group of one has the place 1/2: it is trained on.
            place[members] = np.arange(1, len(members) + 1) / (len(members) + 1)
        order = order[np.argsort(place[order], kind="stable")]
    count = min(n - 1, max(1, round(fraction * n)))
    return torch.as_tensor(np.sort(order[count:])), torch.as_tensor(order[:count])
