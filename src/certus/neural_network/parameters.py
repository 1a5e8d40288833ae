"""The parameters that networks share: names, meanings and allowed values, in one place.

Groups of them, for :func:`certus._core.sharing.shares`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from os import PathLike
from typing import TYPE_CHECKING, Annotated, Any, TypedDict

from certus._core.sharing import Class, fill, shares
from certus.base import check_choice, check_number
from certus.threat import ThreatModel
from certus.typing import RandomState

if TYPE_CHECKING:
    from certus.neural_network.estimator import NeuralModel


class TrainingOptions(TypedDict, total=False):
    """A run of training.

    optimizer : str or callable
        Name of an optimiser, or a function that makes one. Names are "adam" (with
        ``weight_decay``, AdamW), "sgd" (with Nesterov's momentum, 0.9), "rmsprop",
        "adagrad", "adadelta", "nadam", "signsgd" and "svrg"; a function is called as
        ``optimizer(parameter_groups, lr=...)``, like torch's classes.
    learning_rate : float
        Step size.
    schedule : None, str or callable
        How the learning rate changes during the run. "cosine", "linear", "step" or
        "inverse"; or a function of the share of the run that is over, which returns a
        factor of the learning rate.
    warmup : float
        Share of the run in which the learning rate rises from zero.
    weight_decay : float or dict
        Rate at which the optimiser shrinks weights in each step. Biases and the scales
        of norms are left alone. A dict has a rate for each part of the module, by its
        name.
    augment : callable
        Function that changes a batch of inputs before each training step.
    clip : float
        Largest norm of a gradient; longer ones are shortened.
    average : "polyak" or float
        Whether to predict with averaged weights. "polyak" takes the mean over all
        steps, a number is the decay of an exponential mean.
    batch_size : int or None
        Number of rows in each training step. None means all rows.
    max_iter : int
        Maximum number of iterations. They are epochs.
    tol : float
        Smallest improvement of the loss or the validation score that counts.
    n_iter_no_change : int
        Number of epochs without improvement after which the fit stops.
    early_stopping : bool
        Whether to hold out rows and stop when their score no longer improves. The
        weights of the best epoch are kept. ``X_val`` and ``y_val`` in ``fit`` do the
        same with your own rows.
    validation_fraction : float
        Share of the rows that is held out.
    max_time : float
        Seconds after which the fit stops and keeps what it has.
    checkpoint : path
        Folder in which the run is saved after each epoch. A fit that finds a run there
        continues it.
    warm_start : bool
        Whether to start from the last fit.
    device : str
        Device on which torch computes.
    random_state : int, RandomState or None
        Seed or generator of all random numbers. They decide the first weights, the
        order of rows and dropout.
    """

    optimizer: Annotated[str | Callable[..., Any], "adam"]
    learning_rate: Annotated[float, 1e-3]
    schedule: Annotated[str | Callable[[float], float] | None, None]
    warmup: Annotated[float, 0.0]
    weight_decay: Annotated[float | Mapping[str, float], 0.0]
    augment: Annotated[str | Callable[[Any], Any] | None, None]
    clip: Annotated[float | None, None]
    average: Annotated[str | float | None, None]
    batch_size: Annotated[int | None, 128]
    max_iter: Annotated[int, 100]
    tol: Annotated[float, 1e-4]
    n_iter_no_change: Annotated[float, 10]
    early_stopping: Annotated[bool, False]
    validation_fraction: Annotated[float, 0.1]
    max_time: Annotated[float | None, None]
    checkpoint: Annotated[str | PathLike[str] | None, None]
    warm_start: Annotated[bool, False]
    device: Annotated[str, "cpu"]
    random_state: Annotated[RandomState, None]


class LabelOptions(TypedDict, total=False):
    """What training does with classes.

    label_smoothing : float
        Share of each target that is spread over all classes.
    class_weight : dict or "balanced"
        Weights of the classes, which multiply the row weights.
    """

    label_smoothing: Annotated[float, 0.0]
    class_weight: Annotated[Mapping[Any, float] | str | None, None]


class RobustOptions(TypedDict, total=False):
    """What training does against an attacker.

    adversarial : ThreatModel
        What an attacker may do to rows, in the units of X as passed: each step trains
        on the worst rows found within it. Rows that are held out are judged as they
        are.
    adversarial_steps : int
        Steps of the attacker. Each costs as much as a step of training.
    alpha_operator_norm : float
        λ of the penalty ½ λ σ(J)², J the derivative of the scores by a row in the
        units of X, σ its largest singular value; by the power method.
    lipschitz : float
        Bound of the product of the operator norms of all layers, and so of how far
        scores move, in l2, when a row moves by one. Weights are projected after each
        step. For linear layers, convolutions and steps between them that do not
        stretch (ReLU, tanh, "absolute", pooling without overlap), one after the other;
        other networks are refused.
    """

    adversarial: Annotated[ThreatModel | None, None]
    adversarial_steps: Annotated[int, 7]
    alpha_operator_norm: Annotated[float, 0.0]
    lipschitz: Annotated[float | None, None]


class RecurrentOptions(TypedDict, total=False):
    """The shape of a recurrent network.

    width : int
        Number of units in a recurrent state. This holds for each direction.
    cell : {"lstm", "gru", "rnn"}
        Kind of recurrent unit. Long short-term memory, gated unit, or Elman's.
    n_layers : int
        Number of layers.
    bidirectional : bool
        Read backwards as well.
    dropout : float
        Share of units that each training step leaves out at random. It applies above
        each layer.
    embedding : "auto", int or None
        Number of components of the vector that stands for a token at the input.
        Elements are tokens where sequences hold strings, and where they are lists of
        integers; arrays and lists of real numbers hold measurements. An int says
        tokens, None measurements, whatever the form. "auto" takes min(width, 64)
        numbers.
    """

    width: Annotated[int, 64]
    cell: Annotated[str, "lstm"]
    n_layers: Annotated[int, 1]
    bidirectional: Annotated[bool, False]
    dropout: Annotated[float, 0.0]
    embedding: Annotated[str | int | None, "auto"]


class PerceptronOptions(TypedDict, total=False):
    """A multi-layer perceptron; most of it is scikit-learn's.

    solver : {"lbfgs", "sgd", "adam"}
        Algorithm that computes the fit. "lbfgs" takes all rows at once; the others go
        batch by batch.
    alpha : float
        Strength of the penalty. Weights are penalised, biases are not.
    batch_size : int
        Number of rows in each training step. "auto" means 200, or all rows if there are
        fewer.
    learning_rate : {"constant", "invscaling", "adaptive"}
        How the step size of "sgd" changes. It is constant; falls as t to the power
        −``power_t``; or is divided by 5 wherever training would stop.
    learning_rate_init : float
        First step size of "sgd" and "adam".
    power_t : float
        Exponent of "invscaling".
    max_iter : int
        Maximum number of iterations. They are epochs, or steps of "lbfgs".
    shuffle : bool
        Whether each epoch visits the rows in a new random order.
    random_state : int, RandomState or None
        Seed or generator of all random numbers. They decide the first weights, the
        order of rows, the rows held out and dropout.
    tol : float
        Smallest improvement of the loss or the validation score that counts. For
        "lbfgs" the largest slope at which it stops.
    verbose : bool
        Not used; accepted for compatibility with scikit-learn. Callbacks show progress.
    warm_start : bool
        Whether to start from the last fit.
    momentum : float
        Of "sgd".
    nesterovs_momentum : bool
        Whether "sgd" looks ahead by its momentum.
    early_stopping : bool
        Whether to hold out rows and stop when their score no longer improves. The
        weights of the best epoch are kept. ``X_val`` and ``y_val`` in ``fit`` do the
        same with your own rows.
    validation_fraction : float
        Share of the rows that is held out.
    beta_1 : float
        Decay of the first moment of "adam".
    beta_2 : float
        Decay of the second moment of "adam".
    epsilon : float
        Added to the denominator of the steps of "adam".
    n_iter_no_change : int
        Number of epochs without improvement after which the fit stops.
    max_fun : int
        Most evaluations of "lbfgs".
    engine : {"auto", "explicit", "torch"}
        Our own backpropagation, which needs no torch; or torch, which "auto" takes for
        what the former lacks: the four designs below, "absolute" and "maxout".
    dropout : float
        Share of units that each training step leaves out at random.
    normalization : None, "batch", "layer" or "weight"
        Of hidden layers.
    residual : bool
        Hidden layers add to their input.
    checkpoint : path
        Folder in which the run is saved after each epoch. A fit that finds a run there
        continues it. Training is done by torch.
    device : str
        Device on which torch computes.
    max_time : float
        Seconds after which the fit stops and keeps what it has.
    """

    solver: Annotated[str, "adam"]
    alpha: Annotated[float, 0.0001]
    batch_size: Annotated[int | str, "auto"]
    learning_rate: Annotated[str, "constant"]
    learning_rate_init: Annotated[float, 0.001]
    power_t: Annotated[float, 0.5]
    max_iter: Annotated[int, 200]
    shuffle: Annotated[bool, True]
    random_state: Annotated[RandomState, None]
    tol: Annotated[float, 1e-4]
    verbose: Annotated[bool, False]
    warm_start: Annotated[bool, False]
    momentum: Annotated[float, 0.9]
    nesterovs_momentum: Annotated[bool, True]
    early_stopping: Annotated[bool, False]
    validation_fraction: Annotated[float, 0.1]
    beta_1: Annotated[float, 0.9]
    beta_2: Annotated[float, 0.999]
    epsilon: Annotated[float, 1e-8]
    n_iter_no_change: Annotated[float, 10]
    max_fun: Annotated[int, 15000]
    engine: Annotated[str, "auto"]
    dropout: Annotated[float, 0.0]
    normalization: Annotated[str | None, None]
    residual: Annotated[bool, False]
    checkpoint: Annotated[str | PathLike[str] | None, None]
    device: Annotated[str, "cpu"]
    max_time: Annotated[float | None, None]


# What classes take as **shared: editors and type checkers want one name for it.


class ClassifierOptions(TrainingOptions, LabelOptions, total=False):
    """A run of training on classes."""


class RobustClassifierOptions(ClassifierOptions, RobustOptions, total=False):
    """A run of training on classes, against an attacker where one is given."""


class RecurrentRegressorOptions(RecurrentOptions, TrainingOptions, total=False):
    """A recurrent network for numbers, and its training."""


class RecurrentClassifierOptions(RecurrentOptions, ClassifierOptions, total=False):
    """A recurrent network for classes, and its training."""


class RobustPerceptronOptions(PerceptronOptions, RobustOptions, total=False):
    """A multi-layer perceptron, trained against an attacker where one is given."""


#: What a fit leaves, for docstrings.
FITTED = """\
history_ : dict of lists
    After each epoch: loss, validation_loss, validation_score, seconds.
n_iter_ : int
    Epochs made.
loss_ : float
    Mean loss of the last epoch's batches.
best_epoch_ : int
    Epoch of the weights that were kept, or of the lowest loss.
certificate_ : Certificate
    What the verifier found."""


def trained_with(*groups: Any, **defaults: Any) -> Callable[[Class], Class]:
    """The parameters of some groups, and in the docstring what a fit leaves."""
    give = shares(*groups, **defaults)

    def decorate(cls: Class) -> Class:
        cls = give(cls)
        cls.__doc__ = fill(cls.__doc__ or "", "fitted", FITTED)
        return cls

    return decorate


def check_training(model: NeuralModel) -> None:
    """Raise unless the numbers that training depends on make sense."""
    check_number("max_iter", model.max_iter, 1, integer=True)
    check_number("learning_rate", model.learning_rate, open_low=True)
    check_number("tol", model.tol)
    if model.n_iter_no_change != math.inf:
        check_number("n_iter_no_change", model.n_iter_no_change, 1, integer=True)
    check_number("batch_size", model.batch_size, 1, integer=True, none=True)
    check_number("validation_fraction", model.validation_fraction, 0, 1, open_low=True)
    if model.validation_fraction == 1:
        raise ValueError("validation_fraction must be below 1, got 1.")
    check_number("label_smoothing", getattr(model, "label_smoothing", 0), 0, 1)
    for name in ("early_stopping", "warm_start"):
        check_choice(name, getattr(model, name), (False, True))
    folder = model.checkpoint
    if folder is not None and not (isinstance(folder, str | PathLike) and str(folder)):
        raise TypeError(f"checkpoint must name a folder, got {folder!r}.")
    check_number("max_time", model.max_time, open_low=True, none=True)
    check_number("clip", model.clip, open_low=True, none=True)
    if hasattr(model, "adversarial"):
        _check_robust(model)


def _check_robust(model: NeuralModel) -> None:
    check_number("alpha_operator_norm", model.alpha_operator_norm)
    check_number("lipschitz", model.lipschitz, open_low=True, none=True)
    check_number("adversarial_steps", model.adversarial_steps, 1, integer=True)
    threat = model.adversarial
    if threat is None:
        return
    if not isinstance(threat, ThreatModel):
        raise TypeError(
            "adversarial must be a ThreatModel, such as "
            "certus.robustness.ThreatModel('linf', 0.1, 0, 1), or None; "
            f"got {threat!r}."
        )
    if not math.isfinite(threat.radius):
        raise ValueError("adversarial needs a threat of finite radius, got inf.")
