"""The parameters that tuned models share: names, meanings and defaults, in one place.

Groups of them, for :func:`certus._core.sharing.shares`. What a step size is by default
depends on the model, so each class says that itself.
"""

from __future__ import annotations

from os import PathLike
from typing import Annotated, Any, TypedDict

from certus.typing import RandomState


class TuningOptions(TypedDict, total=False):
    """A run that starts from a base.

    optimizer : str or callable
        Name of an optimiser, or a function that makes one. As in
        :class:`certus.neural_network.NeuralClassifier`.
    warmup : float
        Share of the run in which the learning rate rises from zero.
    weight_decay : float
        Rate at which the optimiser shrinks weights in each step.
    clip : float
        Largest norm of a gradient; longer ones are shortened. None leaves all alone.
    average : "polyak" or float
        Whether to predict with averaged weights. "polyak" takes the mean over all
        steps, a number is the decay of an exponential mean.
    max_time : float
        Seconds after which the fit stops and keeps what it has.
    checkpoint : path
        Folder in which the run is saved after each epoch. A fit that finds a run there
        continues it, bit for bit.
    device : str
        Device on which torch computes.
    random_state : int, RandomState or None
        Seed or generator of all random numbers. They decide the order of the rows, and
        what is held out or drawn.
    """

    optimizer: Annotated[Any, "adam"]
    warmup: Annotated[float, 0.02]
    weight_decay: Annotated[float, 0.0]
    clip: Annotated[float | None, 1.0]
    average: Annotated[str | float | None, None]
    max_time: Annotated[float | None, 600.0]
    checkpoint: Annotated[str | PathLike[str] | None, None]
    device: Annotated[str, "cpu"]
    random_state: Annotated[RandomState, None]


class RowOptions(TypedDict, total=False):
    """Steps on rows that are given.

    batch_size : int
        Number of rows in each training step. A row is a prompt with its answer, or with
        a pair of answers.
    max_iter : int
        Maximum number of iterations. They are steps; by default ten passes over the
        rows.
    """

    batch_size: Annotated[int, 16]
    max_iter: Annotated[int | None, None]


class StoppingOptions(TypedDict, total=False):
    """Rows that are held out to stop by.

    n_iter_no_change : int
        Number of epochs without improvement after which the fit stops. An epoch here is
        a pass over the rows, of 10 to 100 steps, after which the held-out rows are
        scored.
    early_stopping : bool
        Whether to hold out rows and stop when their score no longer improves. The best
        weights are kept. Of fewer than 20 rows none is held out.
    validation_fraction : float
        Share of the rows that is held out.
    """

    n_iter_no_change: Annotated[float, 10]
    early_stopping: Annotated[bool, True]
    validation_fraction: Annotated[float, 0.1]


class PolicyOptions(TypedDict, total=False):
    """What an answer costs and earns.

    beta : float
        Price of a nat of divergence from the reference.
    floor : float
        Share η of the uniform distribution in the reference, which makes divergences
        finite. With 0, ``kl_to_reference`` has no interval.
    reward_range : (low, high)
        Bounds of the reward, known before the fit. Needed for
        ``gap_to_optimal_policy``.
    """

    beta: Annotated[float, 0.1]
    floor: Annotated[float, 0.01]
    reward_range: Annotated[tuple[float, float] | None, None]


class RolloutOptions(TypedDict, total=False):
    """Steps on answers that the policy draws itself.

    max_tokens : int
        Most tokens of an answer.
    group : int
        Number of answers to each prompt of an iteration.
    passes : int
        Number of steps on the answers of an iteration.
    clip_ratio : float
        Change of a probability beyond which an answer no longer counts.
    learning_rate : float
        Step size. By default 0.001. It rises at first and then falls linearly to zero
        at the end of the run.
    batch_size : int
        Number of rows in each training step. They are answers, a multiple of ``group``.
    max_iter : int
        Maximum number of iterations. Each draws ``batch_size`` answers.
    n_iter_no_change : int
        Number of epochs without improvement after which the fit stops. An epoch here is
        five iterations; an improvement is one of the objective by more than its 95 %
        interval.
    """

    max_tokens: Annotated[int, 32]
    group: Annotated[int, 4]
    passes: Annotated[int, 2]
    clip_ratio: Annotated[float, 0.2]
    learning_rate: Annotated[float | None, None]
    batch_size: Annotated[int, 64]
    max_iter: Annotated[int, 100]
    n_iter_no_change: Annotated[float, 10]


class RewardOptions(RowOptions, TuningOptions, total=False):
    """A run over pairs of answers."""


class DemonstrationOptions(RowOptions, StoppingOptions, TuningOptions, total=False):
    """A run over rows, of which some are held out."""


class PreferenceOptions(PolicyOptions, DemonstrationOptions, total=False):
    """A policy that is tuned on rows."""


class RewardedOptions(PolicyOptions, RolloutOptions, TuningOptions, total=False):
    """A policy that is tuned on its own answers."""
