"""The base of encoders that learn without labels.

A subclass says which networks are trained (``_parts``, a ModuleDict whose ``"encoder"``
gives the vectors of :meth:`transform`) and what is minimised on a batch (``_losses``).
Reading images, sequences and table rows, the run with its checkpoints, held-out rows,
``transform`` and names of columns are here. Whatever else is trained, such as a
projection head or a decoder, is a part of its own and stays out of ``transform``.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from sklearn.base import TransformerMixin
from sklearn.utils.validation import check_is_fitted
from torch import Tensor, nn

from certus.base import Fitted, Model, generator_of, require_outputs, take
from certus.callbacks import Monitor
from certus.certificate import Claim, Evidence
from certus.neural_network import tasks
from certus.neural_network.batches import (
    Batch,
    DenseInputs,
    NetworkInputs,
    epoch_batches,
    share_out,
)
from certus.neural_network.network_loss import witness_of
from certus.neural_network.objective import GradientStep
from certus.neural_network.optim import make_optimizer
from certus.neural_network.run import (
    Losses,
    TrainingRun,
    TrainingStep,
    threads_for,
)
from certus.neural_network.wrapping import dtype_of, outputs
from certus.representation import inputs
from certus.representation.options import check_options
from certus.typing import Array, Column, MatrixLike

#: Fewer held-out rows than this would say little, so all rows are trained on.
FEW = 16


class RepresentationModel(TransformerMixin, Model):
    """Base of models that learn vectors of rows without labels; abstract.

    Subclasses define ``__init__`` with the parameters of ``EncoderTraining`` and those
    that :meth:`_learn` reads (``kind``, ``image_shape``, ``channels``), ``fit``, and
    the first two methods below; further hooks have defaults.
    """

    encoder_: Any
    inputs_: inputs.Learnt
    #: Names of the networks in ``_parts``; each is left as an attribute, ``encoder_``.
    part_names: tuple[str, ...] = ("encoder", "head")
    #: The fewest rows of a batch: 2 where rows are compared with each other.
    least_rows = 1

    def _parts(self, learnt: inputs.Learnt) -> nn.ModuleDict:
        """The networks to train; ``"encoder"`` gives the vectors of ``transform``."""
        raise NotImplementedError

    def _losses(self, parts: nn.ModuleDict, *x: Tensor) -> Losses:
        """The losses of a batch of inputs; ``"loss"`` is minimised."""
        raise NotImplementedError

    # -- hooks with defaults ----------------------------------------------------------

    def _check(self) -> None:
        """Raise unless the parameters make sense."""
        check_options(self)
        if self.batch_size < self.least_rows:
            raise ValueError(
                f"batch_size must be at least {self.least_rows}, because each row is "
                f"compared with the others of its batch; got {self.batch_size}."
            )

    def _learn(self, X: MatrixLike) -> tuple[inputs.Learnt, Any]:
        """What is learnt about X before training, and X as it is read."""
        return inputs.learn(
            self,
            X,
            kind=self.kind,
            image_shape=self.image_shape,
            channels=self.channels,
        )

    def _step(self, parts: nn.Module, task: RowsTask) -> TrainingStep:
        """The step that moves the networks; its modules are saved in checkpoints."""
        kind, rate, decay = self.optimizer, self.learning_rate, self.weight_decay
        optimizer = make_optimizer(kind, parts, rate, decay)
        return GradientStep(parts, optimizer, task.objective, task.fetch, self.clip)

    def _state(self, parts: nn.ModuleDict) -> dict[str, Any]:
        """The fitted attributes from trained networks: each part with its name."""
        ready = self._ready(parts, self.inputs_)
        return {f"{name}_": part.eval() for name, part in ready.items()}

    def _closed(self, run: TrainingRun) -> None:
        """What else a fit leaves, from its run."""

    def _measured(self, X: Any) -> list[Claim]:
        """Numbers about the fit that are measured on held-out rows."""
        return []

    # -- fitting ----------------------------------------------------------------------

    def _fit(self, X: Any, Y: Any = None) -> Fitted:
        """Train; what ``fit`` of a subclass returns, decorated by certified_fit."""
        self._check()
        rng = generator_of(self.random_state)
        kept = tasks.checkpoints_of(self, rng)
        monitor = Monitor(self, X, Y)
        fresh = not (self.warm_start and hasattr(self, "encoder_"))
        rows, values = self._read(fresh, X, Y)
        chosen, self.held_out_ = self._hold_out(len(rows), rng)
        task = RowsTask(self, rows, chosen, values)
        before = None if fresh else self._trained_parts()

        def build() -> nn.Module:
            again = copy.deepcopy(before)
            return self._parts(self.inputs_) if again is None else again.float()

        run = tasks.begin(
            *(self, build, lambda parts: self._step(parts, task), rng),
            lambda parts: threads_for(parts, task.size),
        )
        course = tasks.TaskCourse(self, run, task, self._state, shape=self.schedule)
        trained = course.train(kept, monitor)
        tasks.finish(self, trained, self._state(trained.module))
        self._closed(run)
        monitor.close({})
        held = self.held_out_
        shown = [Z if Z is None or not len(held) else take(Z, held) for Z in (X, Y)]
        evidence = Evidence("network", witness=witness_of(run))
        return Fitted(
            *(evidence, shown[0], shown[1], None, trained.status),
            measured=lambda: self._measured(shown[0]),
        )

    def _read(self, fresh: bool, X: Any, Y: Any) -> tuple[NetworkInputs, Any]:
        """All rows as inputs of the networks, and as they were read."""
        if fresh:
            self.inputs_, values = self._learn(X)
        else:
            values = inputs.read(self, self.inputs_, X)
        return self._inputs(values), values

    def _hold_out(self, n: int, rng: np.random.Generator) -> tuple[Array, Array]:
        """Row numbers to train on, and those for the certificate."""
        share = float(self.validation_fraction)
        if round(share * n) < FEW:
            return np.arange(n), np.zeros(0, np.int64)
        rest, held = share_out(n, share, None, rng)
        return rest.numpy(), np.sort(held.numpy())

    def _trained_parts(self) -> nn.ModuleDict:
        """The networks of the last fit, from which training continues."""
        return nn.ModuleDict({n: getattr(self, f"{n}_") for n in self.part_names})

    def _ready(self, parts: nn.Module, learnt: inputs.Learnt) -> Any:
        """Networks for new rows: images in float32, others in float64."""
        parts = parts if learnt["kind"] == "images" else parts.double()
        return parts.eval()

    def _inputs(
        self, values: Array, dtype: torch.dtype = torch.float32
    ) -> NetworkInputs:
        return inputs.tensors(self.inputs_, values, self.device, dtype)

    # -- vectors ----------------------------------------------------------------------

    def transform(self, X: MatrixLike) -> Array:
        """The vector of each row.

        Parameters
        ----------
        X : array-like, list of sequences, or files
            Rows like those of the fit.

        Returns
        -------
        ndarray of shape (n_samples, n_components)
            float32 for images, float64 otherwise.
        """
        check_is_fitted(self, "encoder_")
        return self._vectors(X, self.encoder_)

    def _vectors(self, X: MatrixLike, encoder: nn.Module, *above: nn.Module) -> Array:
        """The outputs of an encoder, and of the networks above it, for rows."""
        values = inputs.read(self, self.inputs_, X)
        z = outputs(encoder, self._inputs(values, dtype_of(encoder))).flatten(1)
        for module in above:
            z = outputs(module, DenseInputs(z, dtype_of(module), self.device))
        found: Array = z.cpu().numpy()
        require_outputs(found)
        return found

    def get_feature_names_out(self, input_features: Column = None) -> Array:
        """Names of the columns of :meth:`transform`.

        Parameters
        ----------
        input_features : None
            Ignored.
        """
        check_is_fitted(self, "encoder_")
        name = type(self).__name__.lower()
        return np.asarray([f"{name}{i}" for i in range(self._width)], dtype=object)

    @property
    def config_(self) -> dict[str, Any]:
        """What the encoder was built with; ``network`` is the name of its class."""
        check_is_fitted(self, "encoder_")
        config = dict(getattr(self.encoder_, "config", {}))
        return {"network": type(self.encoder_).__name__, **config}

    @property
    def weights_(self) -> dict[str, Array]:
        """The weights of the encoder by name."""
        check_is_fitted(self, "encoder_")
        state = self.encoder_.state_dict().items()
        return {name: value.detach().cpu().numpy() for name, value in state}

    @property
    def _width(self) -> int:
        """The length of a vector."""
        return int(self.n_components)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = False
        tags.input_tags.three_d_array = True
        return tags


class RowsTask:
    """Learns from rows; a :class:`certus.neural_network.tasks.Task`.

    Parameters
    ----------
    model : RepresentationModel
        Its ``_losses(parts, *inputs)`` are minimised.
    rows : NetworkInputs
        All rows as inputs.
    chosen : int array
        Numbers of the rows to learn from.
    values : object
        The rows as they were read, for the fingerprint of a checkpoint.
    """

    #: Nothing is stopped by held-out rows.
    watched = False

    def __init__(
        self, model: Any, rows: NetworkInputs, chosen: Array, values: Any
    ) -> None:
        self.model, self.rows = model, rows
        self.chosen = torch.from_numpy(np.asarray(chosen))
        self.size = min(int(model.batch_size), len(chosen))
        self.a_pass = -(-len(chosen) // self.size)
        self.data: tuple[Any, ...] = (values, chosen)

    def objective(self, parts: Any, batch: Batch) -> Losses:
        """The losses of a batch."""
        found: Losses = self.model._losses(parts, *batch.inputs)
        return found

    def fetch(self, numbers: Tensor) -> Batch:
        """The inputs of some rows."""
        return Batch(self.rows[numbers], numbers, None)

    def draw(self, rng: np.random.Generator, steps: int) -> Iterator[Any]:
        """Row numbers for each step; every row comes once before any comes twice."""
        left, least = steps, self.model.least_rows
        while left > 0:
            parts = epoch_batches(rng, len(self.chosen), self.size, least)
            for part in parts[:left]:
                left -= 1
                yield self.chosen[part]

    def look(self, parts: nn.ModuleDict) -> float:
        """Not asked for."""
        raise NotImplementedError
