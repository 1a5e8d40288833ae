"""What the parameters of training mean and may be, said once for all estimators."""

from __future__ import annotations

import math
from os import PathLike
from typing import Any, TypeVar

from certus.base import check_choice, check_number
from certus.threat import ThreatModel

Class = TypeVar("Class", bound=type)

TRAINING = """\
optimizer : str or callable, default="adam"
        "adam" (with ``weight_decay``, AdamW), "sgd" (with Nesterov's momentum, 0.9),
        "rmsprop", "adagrad", "adadelta", "nadam", "signsgd" or "svrg"; or
        ``optimizer(parameter_groups, lr=...)`` that makes one, as torch's classes do.
    learning_rate : float
        Step size.
    schedule : None, str or callable, default=None
        "cosine", "linear", "step" or "inverse"; or a function of the share of the run
        that is over, giving a factor of the learning rate.
    warmup : float, default=0.0
        Share of the run in which the learning rate rises from zero.
    weight_decay : float or dict, default=0.0
        Shrinks weights, not biases and not the scales of norms, in each step. A dict
        has one for each part of the module, by its name.
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


#: Of classifiers.
ROBUST = """\
adversarial : ThreatModel, default=None
        What an attacker may do to rows, in the units of X as passed: each step trains
        on the worst rows found within it. Rows that are held out are judged as they
        are.
    adversarial_steps : int, default=7
        Steps of the attacker, each as dear as one of training.
    alpha_operator_norm : float, default=0.0
        λ of the penalty ½ λ σ(J)², J the derivative of the scores by a row in the
        units of X, σ its largest singular value; by the power method.
    lipschitz : float, default=None
        Bound of the product of the operator norms of all layers, and so of how far
        scores move, in l2, when a row moves by one. Weights are projected after each
        step. For linear layers, convolutions and steps between them that do not
        stretch (ReLU, tanh, "absolute", pooling without overlap), one after the other;
        other networks are refused."""

#: What is left by a fit.
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

#: Of the multi-layer perceptrons, most of them scikit-learn's.
PERCEPTRON = """\
hidden_layer_sizes : int or sequence of int, default=(100,)
        Width of each hidden layer.
    activation : str, default="relu"
        Of hidden layers: "identity", "logistic", "tanh", "relu", "leaky_relu", "elu",
        "softplus"; on torch also "absolute" and "maxout".
    solver : {"lbfgs", "sgd", "adam"}, default="adam"
        "lbfgs" takes all rows at once; the others go batch by batch.
    alpha : float, default=0.0001
        Penalty of squared weights, not of biases.
    batch_size : int, default="auto"
        Rows in a step; "auto" is 200, or all if there are fewer.
    learning_rate : {"constant", "invscaling", "adaptive"}, default="constant"
        Of "sgd": constant; falling as t to the minus ``power_t``; or divided by 5
        wherever training would end.
    learning_rate_init : float, default=0.001
        First step size of "sgd" and "adam".
    power_t : float, default=0.5
        Exponent of "invscaling".
    max_iter : int, default=200
        Epochs; iterations of "lbfgs".
    shuffle : bool, default=True
        Whether rows are mixed before each epoch.
    random_state : int, RandomState or None, default=None
        First weights, order of rows, rows held out, dropout.
    tol : float, default=1e-4
        Improvement of the loss, or of the validation score, that counts as one; for
        "lbfgs" the largest slope at which it ends.
    verbose : bool, default=False
        Accepted and without effect; callbacks show progress.
    warm_start : bool, default=False
        Go on from the weights of the last fit.
    momentum : float, default=0.9
        Of "sgd".
    nesterovs_momentum : bool, default=True
        Whether "sgd" looks ahead by its momentum.
    early_stopping : bool, default=False
        Hold out rows, stop by their score, and keep the best epoch's weights. ``X_val``
        and ``y_val`` in ``fit`` do the same with rows of your own.
    validation_fraction : float, default=0.1
        Share of rows held out.
    beta_1, beta_2 : float, default=0.9, 0.999
        Decays of the moments of "adam".
    epsilon : float, default=1e-8
        Added to the square root of its second moment.
    n_iter_no_change : int, default=10
        Epochs without an improvement by ``tol`` that are borne.
    max_fun : int, default=15000
        Most evaluations of "lbfgs".
    engine : {"auto", "explicit", "torch"}, default="auto"
        Our own backpropagation, which needs no torch; or torch, which "auto" takes for
        what the former lacks: the four designs below, "absolute" and "maxout".
    dropout : float, default=0.0
        Share of hidden units left out in each training step.
    normalization : None, "batch", "layer" or "weight", default=None
        Of hidden layers.
    residual : bool, default=False
        Hidden layers add to their input.
    checkpoint : path, default=None
        Folder where the run is kept after each epoch; a fit that finds one there goes
        on from it. Trained by torch.
    device : str, default="cpu"
        Where torch computes."""


def documented(cls: Class) -> Class:
    """Put the shared descriptions in the docstring's places named ``{...}``."""
    if cls.__doc__:
        cls.__doc__ = cls.__doc__.replace("{training}", TRAINING)
        cls.__doc__ = cls.__doc__.replace("{network}", PERCEPTRON)
        cls.__doc__ = cls.__doc__.replace("{robust}", ROBUST)
        cls.__doc__ = cls.__doc__.replace("{fitted}", FITTED)
    return cls


def keep(model: Any, given: dict[str, Any]) -> None:
    """Set the parameters of a constructor, told its ``locals()``, as attributes.

    Their names stand in the signature, where scikit-learn reads them, and nowhere else.
    """
    for name, value in given.items():
        if name != "self":
            setattr(model, name, value)


def check_training(model: Any) -> None:
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


def _check_robust(model: Any) -> None:
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
        raise ValueError("adversarial needs a threat of finite radius; this is inf.")
