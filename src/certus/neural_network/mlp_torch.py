"""Multi-layer perceptrons on torch: the options that our own backpropagation lacks.

A :class:`certus.neural_network.modules.MLP` is trained by the loop of this package
under the parameters of the perceptrons. The penalty ½·alpha·‖W‖² / batch_size is part
of the optimiser's gradient, so the losses shown are without it.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from sklearn.utils import check_random_state
from torch import Tensor, nn

from certus.base import Fitted
from certus.neural_network.batches import DenseInputs, SparseInputs
from certus.neural_network.modules import MLP
from certus.neural_network.objective import Change
from certus.neural_network.randomness import own_generator
from certus.neural_network.wrapping import dtype_of, outputs
from certus.typing import ArrayLike, DTypeLike, MatrixLike

if TYPE_CHECKING:
    from certus.neural_network.estimator import NeuralModel
    from certus.neural_network.multilayer import MultilayerPerceptron


def options(model: MultilayerPerceptron, n: int) -> dict[str, Any]:
    """The parameters of training in the words of the estimators on torch."""
    refused = {
        "solver": ("lbfgs", "'adam' or 'sgd'"),
        "learning_rate": ("adaptive", "'constant' or 'invscaling'"),
        "shuffle": (False, "shuffle=True"),
    }
    for name, (value, instead) in refused.items():
        if getattr(model, name) == value:
            raise ValueError(
                f"{name}={value!r} is not available with the torch engine. Use "
                f"{instead}, or a network that engine='explicit' can train."
            )
    batch = model._batch(n)
    scaling = model.solver == "sgd" and model.learning_rate == "invscaling"

    def falling(share: float) -> float:
        return (1 + share * model.max_iter * n) ** -model.power_t

    return {
        "optimizer": _optimizer(model),
        "learning_rate": float(model.learning_rate_init),
        "schedule": falling if scaling else None,
        "weight_decay": float(model.alpha) / batch,
        "batch_size": batch,
        "max_iter": model.max_iter,
        "tol": model.tol,
        "n_iter_no_change": model.n_iter_no_change,
        "early_stopping": model.early_stopping,
        "validation_fraction": model.validation_fraction or 0.1,
        "max_time": model.max_time,
        "checkpoint": model.checkpoint,
        "warm_start": model.warm_start,
        "device": model.device,
        "random_state": model.random_state,
    }


def _optimizer(model: MultilayerPerceptron) -> Any:
    if model.solver == "adam":
        betas, epsilon = (model.beta_1, model.beta_2), model.epsilon
        return lambda groups, lr: torch.optim.Adam(
            groups, lr, betas, epsilon, fused=True
        )
    ahead = bool(model.nesterovs_momentum and model.momentum > 0)
    return lambda groups, lr: torch.optim.SGD(
        groups, lr, model.momentum, nesterov=ahead
    )


def network(model: MultilayerPerceptron, n_inputs: int, dtype: DTypeLike) -> MLP:
    """The module of a perceptron's parameters, its weights from ``random_state``."""
    seed = int(check_random_state(model.random_state).randint(np.iinfo(np.int32).max))
    with own_generator():
        torch.default_generator.manual_seed(seed)
        module = MLP(
            n_inputs,
            model._hidden(),
            model.n_outputs_,
            activation=model.activation,
            normalization=model.normalization,
            residual=model.residual,
            dropout=model.dropout,
        )
    return module.to(torch.float64 if dtype == np.float64 else torch.float32)


def poisson(z: Tensor, y: Tensor) -> Tensor:
    """Half the Poisson deviance of exp(z), summed over outputs."""
    y = y.to(z.dtype).reshape(z.shape)
    return (z.exp() - y * z + torch.xlogy(y, y) - y).sum(dim=-1)


def fit(
    model: MultilayerPerceptron,
    X: MatrixLike,
    y: ArrayLike,
    weight: ArrayLike | None,
    X_val: MatrixLike | None,
    y_val: ArrayLike | None,
    fresh: bool,
    change: Change | None = None,
) -> Fitted:
    """Train the perceptron's module, and leave what its explicit fit would."""
    inner = _inner(model, X, y, fresh, fresh)
    done = inner._fit(X, y, weight, X_val, y_val, change)
    _adopt(model, inner)
    run = inner._run
    if fresh or not hasattr(model, "loss_curve_"):
        model.loss_curve_, model.validation_scores_, model.t_ = [], None, 0
    model.loss_curve_ += run.history.get("loss", [])
    model.t_ += run.epoch * len(done.y)
    scores = run.history.get("validation_score")
    model.best_loss_ = None if scores else min(model.loss_curve_, default=math.inf)
    model.validation_scores_ = scores
    model.best_validation_score_ = max(scores) if scores else None
    measured = model._to_measure(done.evidence.witness, X, y, weight)
    return done._replace(measured=measured)


def fit_part(
    model: MultilayerPerceptron,
    X: MatrixLike,
    y: Any,
    weight: ArrayLike | None,
    fresh: bool,
    learn: bool,
) -> None:
    """One epoch."""
    inner = _inner(model, X, y, fresh, learn)
    inner._partial_fit(X, y, weight, reset=False)
    _adopt(model, inner)
    model.t_ = getattr(model, "t_", 0) + len(y)
    model.loss_curve_ = [*getattr(model, "loss_curve_", []), inner.loss_]


def _inner(
    model: MultilayerPerceptron, X: Any, y: ArrayLike, fresh: bool, learn: bool
) -> Any:
    """The estimator on torch that trains for it."""
    X, y, _ = model._validate_X_y(X, y, None, multi_output=True, reset=fresh)
    Y = model._targets(y, reset=learn)
    if fresh:
        model.n_outputs_ = Y.shape[1]
        model.out_activation_ = model._output()[0]
        model.n_layers_ = len(model._hidden()) + 2
        model.__dict__.pop("_run", None)
        model.__dict__.pop("_module", None)
        module = network(model, X.shape[1], X.dtype)
    else:
        module = model.module_
    inner = model._neural(module, options(model, len(Y)))
    if hasattr(model, "_skl_callbacks"):
        inner._skl_callbacks = model._skl_callbacks
    if not fresh:
        _as_fitted(model, inner)
    return inner


def _as_fitted(model: MultilayerPerceptron, inner: NeuralModel) -> None:
    """Give an estimator on torch what the perceptron has learnt."""
    inner.module_ = model.module_
    for name in ("n_features_in_", "feature_names_in_", "_run"):
        if name in vars(model):
            setattr(inner, name, vars(model)[name])


def stated(
    model: MultilayerPerceptron,
    X: MatrixLike,
    y: ArrayLike,
    weight: ArrayLike | None,
    chosen: np.ndarray,
    change: Change | None = None,
) -> Any:
    """The loss on some rows as a function of the weights."""
    inner = model._neural(model.module_, {})
    _as_fitted(model, inner)
    return inner._stated(X, y, weight, chosen, change)


def _adopt(model: MultilayerPerceptron, inner: Any) -> None:
    model._module, model._run = inner.module_, inner._run
    for name in ("n_iter_", "history_", "loss_", "best_epoch_"):
        setattr(model, name, getattr(inner, name))
    layers = _linear(inner.module_)
    model.coefs_ = [layer.weight.detach().cpu().numpy().T for layer in layers]
    model.intercepts_ = [
        np.zeros(W.shape[1], W.dtype)
        if layer.bias is None
        else layer.bias.detach().cpu().numpy()
        for layer, W in zip(layers, model.coefs_)
    ]


def _linear(module: MLP) -> list[Any]:
    """The linear maps from layer to layer."""
    return [*(layer.linear for layer in module.layers), module.output]


def scores(model: MultilayerPerceptron, X: MatrixLike) -> np.ndarray:
    """The module's outputs for checked rows."""
    kind = SparseInputs if hasattr(X, "tocsr") else DenseInputs
    rows = kind(X, dtype_of(model._module), model.device)
    return outputs(model._module, rows).cpu().numpy()


def share(model: MultilayerPerceptron) -> MLP:
    """A module whose parameters are the memory of ``coefs_`` and ``intercepts_``."""
    module = network(model, len(model.coefs_[0]), model.coefs_[0].dtype).eval()
    for layer, W, b in zip(_linear(module), model.coefs_, model.intercepts_):
        layer.weight = nn.Parameter(torch.from_numpy(W).T)
        layer.bias = nn.Parameter(torch.from_numpy(b))
    return module
