"""The parameters that encoders share: names, meanings and allowed values."""

from __future__ import annotations

from os import PathLike
from typing import Annotated, Any, TypedDict

from certus.base import check_choice, check_number
from certus.neural_network.optim import SCHEDULES
from certus.neural_network.wrapping import require_device
from certus.typing import Fit, RandomState


class EncoderTraining(TypedDict, total=False):
    """The training of an encoder without labels.

    optimizer : str or callable
        Name of an optimiser, or a function that makes one. Names as in
        :class:`certus.neural_network.NeuralClassifier`.
    learning_rate : float
        Step size.
    schedule : str
        How the learning rate changes during the run. "cosine", "linear", "step" or
        "inverse".
    warmup : float
        Share of the run in which the learning rate rises from zero.
    weight_decay : float
        Rate at which the optimiser shrinks weights in each step.
    clip : float
        Largest norm of a gradient; longer ones are shortened.
    batch_size : int
        Number of rows in each training step.
    max_iter : int
        Maximum number of iterations. They are steps. With None, as many as ``max_time``
        allows; if that is None too, ten passes over the rows.
    validation_fraction : float
        Share of the rows that is held out. The certificate is computed on these rows;
        nothing is chosen with them.
    max_time : float
        Seconds after which the fit stops and keeps what it has. Without ``max_iter``
        the schedule is planned over this time.
    checkpoint : path
        Folder in which the run is saved after each epoch. A fit that finds a run there
        continues it; if ``max_iter`` is given, bit for bit.
    warm_start : bool
        Whether to start from the last fit.
    device : str
        Device on which torch computes.
    random_state : int, RandomState or None
        Seed or generator of all random numbers. They decide the first weights, the
        rows held out, and what each step sees.
    """

    optimizer: Annotated[Any, "adam"]
    learning_rate: Annotated[float, 2e-3]
    schedule: Annotated[str, "cosine"]
    warmup: Annotated[float, 0.05]
    weight_decay: Annotated[float, 1e-4]
    clip: Annotated[float | None, 1.0]
    batch_size: Annotated[int, 256]
    max_iter: Annotated[int | None, 300]
    validation_fraction: Annotated[float, 0.1]
    max_time: Annotated[float | None, None]
    checkpoint: Annotated[str | PathLike[str] | None, None]
    warm_start: Annotated[bool, False]
    device: Annotated[str, "cpu"]
    random_state: Annotated[RandomState, None]


def check_options(model: Fit) -> None:
    """Raise unless the parameters of the training make sense."""
    check_number("learning_rate", model.learning_rate, open_low=True)
    check_choice("schedule", model.schedule, tuple(SCHEDULES))
    check_number("warmup", model.warmup, 0, 1)
    check_number("weight_decay", model.weight_decay)
    check_number("clip", model.clip, open_low=True, none=True)
    check_number("batch_size", model.batch_size, 1, integer=True)
    check_number("max_iter", model.max_iter, 1, integer=True, none=True)
    check_number("max_time", model.max_time, open_low=True, none=True)
    check_number("validation_fraction", model.validation_fraction, 0, 0.9)
    check_choice("warm_start", model.warm_start, (False, True))
    require_device(model.device)
