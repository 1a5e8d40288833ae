"""What the parameters of training mean, said once for all estimators."""

from __future__ import annotations

from typing import TypeVar

Class = TypeVar("Class", bound=type)

TRAINING = """\
optimizer : str or callable, default="adam"
        "adam", "sgd", "rmsprop", "adagrad", "adadelta", "nadam", "signsgd" or "svrg";
        or ``optimizer(parameter_groups, lr=...)`` that makes one.
    learning_rate : float
        Step size.
    schedule : None, str or callable, default=None
        "cosine", "linear", "step" or "inverse"; or a function of the share of the run
        that is over, giving a factor of the learning rate.
    warmup : float, default=0.0
        Share of the run in which the learning rate rises from zero.
    weight_decay : float, default=0.0
        Shrinks weights, not biases and not the scales of norms, in each step.
    augment : callable, default=None
        Changes a batch of inputs before each training step.
    clip : float, default=None
        Largest norm of a gradient; longer ones are shortened.
    average : "polyak" or float, default=None
        Predict with the mean of the weights over all steps, or with an exponential
        mean of this decay.
    batch_size : int or None, default=128
        Rows in a step; None for all.
    max_iter : int
        Epochs.
    tol : float, default=1e-4
        Improvement of the loss, or of the validation score, that counts as one.
    n_iter_no_change : int, default=10
        Epochs without one after which training ends.
    early_stopping : bool, default=False
        Hold out rows, stop by their score, and keep the best epoch's weights. ``X_val``
        and ``y_val`` in ``fit`` do the same with rows of your own.
    validation_fraction : float, default=0.1
        Share of rows held out.
    max_time : float, default=None
        Seconds.
    checkpoint : path, default=None
        Folder where the run is kept after each epoch; a fit that finds one there goes
        on from it.
    warm_start : bool, default=False
        Go on from the weights of the last fit.
    device : str, default="cpu"
        Where torch computes.
    random_state : int, RandomState or None, default=None
        Weights, order of rows, dropout."""


def documented(cls: Class) -> Class:
    """Put the shared descriptions where the docstring says ``{training}``."""
    if cls.__doc__:
        cls.__doc__ = cls.__doc__.replace("{training}", TRAINING)
    return cls
