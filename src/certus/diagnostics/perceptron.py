"""Perceptrons: their loss, and the gradient that scikit-learn trained them with.

    L(θ) = Σ sᵢ ℓ(yᵢ, f(xᵢ; θ)) / Σ s + ½·alpha·‖W‖² / Σ s

The loss is computed here, by a forward pass of our own in float64; the gradient comes
from the library. Along a direction d the two must agree: gᵀd = dL/dt, the latter by
central differences. They are compared a little off the fitted weights, because at a
minimum both sides vanish and any factor between them would hide in rounding. A ratio of
1 says that the gradient is right, not that the weights are good: random ones have it.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from scipy.special import expit, logsumexp, xlogy

from certus.certificate import Claim, Strength
from certus.diagnostics import directional
from certus.diagnostics.directional import Compared
from certus.typing import Array, MatrixLike

ROWS = 2048
#: Ratios this near to 1 are those of a right gradient.
CLOSE = 1e-4
DIRECTIONS = 5
#: Beyond this uncertainty of the finite difference the ratio says nothing.
UNTELLABLE = 1e-2

_ACTIVATIONS: dict[str, Callable[[Array], Array]] = {
    "identity": lambda z: z,
    "logistic": expit,
    "tanh": np.tanh,
    "relu": lambda z: np.maximum(z, 0.0),
    "leaky_relu": lambda z: np.where(z < 0, z / 100, z),
    "elu": lambda z: np.where(z < 0, np.expm1(np.minimum(z, 0.0)), z),
    "softplus": lambda z: np.logaddexp(0.0, z),
}


class PerceptronProblem(NamedTuple):
    """What the stated loss depends on besides the weights."""

    shapes: list[tuple[int, int]]
    activation: str
    output: str
    loss: str
    average_outputs: bool
    alpha: float
    X: Any
    y: Array
    s: Array


def measure(model: Any, X: MatrixLike, y: Array, s: Array) -> list[Claim]:
    """Compare directional derivatives on at most 2,048 rows; the ratio comes first.

    Parameters
    ----------
    model : MLPClassifier or MLPRegressor of scikit-learn
        Fitted. Its own method gives the gradient.
    X : ndarray or sparse matrix of shape (n_samples, n_features)
        Rows.
    y : ndarray of shape (n_samples, n_outputs)
        Targets as the output layer sees them.
    s : ndarray of shape (n_samples,)
        Row weights.

    Returns
    -------
    list of Claim
        All MEASURED.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.neural_network import MLPRegressor
    >>> from certus.diagnostics.perceptron import measure
    >>> X = np.linspace(-1, 1, 40)[:, None]
    >>> model = MLPRegressor(solver="lbfgs", random_state=0).fit(X, X[:, 0] ** 2)
    >>> ratio = measure(model, X, X**2, np.ones(40))[0]
    >>> ratio.value < 1e-4, ratio.strength.value
    (True, 'measured')
    """
    network = network_of(model, X, y, s)
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        try:
            found = compare(model, network)
        except Exception as error:  # the library's own method: anything may happen
            return [
                _unmeasured(f"the library's gradient could not be computed ({error})")
            ]
    if not np.isfinite(found.ratio) or found.allowance > UNTELLABLE:
        reason = "the finite difference is too inaccurate for a comparison"
        return [_unmeasured(reason)]
    norm = Claim(
        "gradient_norm",
        Strength.MEASURED,
        found.norm,
        detail=f"gradient norm {found.norm:.1e} at the fitted weights, "
        f"on {network.X.shape[0]:,} rows",
    )
    return [_ratio_claim(found, network), norm]


def compare(model: Any, network: PerceptronProblem) -> Compared:
    """The library's derivatives ÷ those of the stated loss."""
    scale = np.concatenate(
        [np.full(w.size, np.sqrt(np.mean(np.square(w)))) for w in _parts(model)]
    )
    return directional.compare(
        partial(stated_loss, network),
        partial(_library_gradient, model, network),
        _pack(model.coefs_, model.intercepts_),
        scale,
        DIRECTIONS,
    )


def stated_loss(network: PerceptronProblem, theta: Array) -> float:
    """L(θ) by our own forward pass."""
    weights, biases = _unpack(network.shapes, theta)
    z = network.X
    for k, (W, b) in enumerate(zip(weights, biases)):
        z = np.asarray(z @ W) + b
        if k < len(weights) - 1:
            z = _ACTIVATIONS[network.activation](z)
    total = network.s.sum()
    losses = network.s @ _losses(network, z) / total
    penalty = sum(float(np.vdot(W, W)) for W in weights)
    return float(losses + network.alpha * penalty / (2 * total))


def _losses(network: PerceptronProblem, z: Array) -> Array:
    """Loss of each row from the scores before the output activation."""
    y = network.y
    if network.loss == "squared_error":
        squares = np.square(y - z) / 2
        return np.asarray(
            squares.mean(1) if network.average_outputs else squares.sum(1)
        )
    if network.loss == "poisson":
        return np.asarray((np.exp(z) - y * z + xlogy(y, y) - y).sum(1))
    if network.output == "softmax":
        return np.asarray(logsumexp(z, axis=1) - (y * z).sum(1))
    return np.asarray((np.logaddexp(0.0, z) - y * z).sum(1))


# -- reading the model ------------------------------------------------------------


def network_of(model: Any, X: Any, y: Array, s: Array) -> PerceptronProblem:
    """At most 2,048 evenly spaced rows of positive weight, and their alpha."""
    if y.shape[1] != model.n_outputs_:
        raise ValueError(
            f"y has {y.shape[1]} columns, but the model predicts {model.n_outputs_}."
        )
    used = np.flatnonzero(s > 0)
    rows = used[
        np.unique(np.linspace(0, len(used) - 1, min(len(used), ROWS)).astype(int))
    ]
    solver = str(model.solver)
    # A batch of B rows is penalised by alpha/B, so that is the penalty of its epochs.
    batch = len(s)
    if solver != "lbfgs":
        batch = min(200 if model.batch_size == "auto" else model.batch_size, len(s))
    share = s[rows].sum() / (s.sum() * batch / len(s))
    X = X[rows] if hasattr(X, "toarray") else X[rows].astype(np.float64)
    return PerceptronProblem(
        [W.shape for W in model.coefs_],
        model.activation,
        model.out_activation_,
        str(model.loss),
        # lbfgs searches along the line with a loss averaged over outputs; sgd and adam
        # use the gradient alone, which is that of the documented sum over outputs.
        solver == "lbfgs",
        float(model.alpha) * float(share),
        X,
        y[rows],
        s[rows],
    )


def _library_gradient(model: Any, network: PerceptronProblem, theta: Array) -> Array:
    """The library's gradient at ``theta``, computed on a copy of the model."""
    twin = copy.deepcopy(model)
    weights, biases = _unpack(network.shapes, theta)
    twin.coefs_, twin.intercepts_ = weights, biases
    twin.alpha = network.alpha
    # Only lbfgs leaves the layout of the packed vector behind.
    twin._coef_indptr, twin._intercept_indptr, start = [], [], 0
    for W in weights:
        twin._coef_indptr.append((start, start + W.size, W.shape))
        start += W.size
    for b in biases:
        twin._intercept_indptr.append((start, start + b.size))
        start += b.size
    empty: list[Any] = [None] * len(weights)
    _, gradient = twin._loss_grad_lbfgs(
        theta.copy(),
        network.X,
        network.y,
        network.s,
        [network.X, *empty],
        list(empty),
        list(empty),
        list(empty),
    )
    return np.asarray(gradient, dtype=np.float64)


def _parts(model: Any) -> list[Array]:
    return [*model.coefs_, *model.intercepts_]


def _pack(weights: list[Array], biases: list[Array]) -> Array:
    return np.concatenate([np.ravel(part) for part in (*weights, *biases)]).astype(
        float
    )


def _unpack(
    shapes: list[tuple[int, int]], theta: Array
) -> tuple[list[Array], list[Array]]:
    sizes = [rows * columns for rows, columns in shapes] + [c for _, c in shapes]
    parts = np.split(theta, np.cumsum(sizes)[:-1])
    weights = [part.reshape(shape) for part, shape in zip(parts, shapes)]
    return weights, parts[len(shapes) :]


# -- claims -----------------------------------------------------------------------


def _unmeasured(reason: str) -> Claim:
    return Claim("gradient_ratio", Strength.MEASURED, detail=f"not measured: {reason}")


def _ratio_claim(found: Compared, network: PerceptronProblem) -> Claim:
    value = abs(found.ratio - 1)
    close = bool(value <= CLOSE + found.allowance)
    outputs = network.y.shape[1]
    times = f"{found.ratio:.4f}" if close else f"{found.ratio:.2f}"
    detail = (
        f"the gradient used in training is {times} times the gradient of the "
        "stated loss"
    )
    known = network.loss == "squared_error" and network.average_outputs and outputs > 1
    fix = "" if close else "use another solver, and report this to the library"
    if not close and known:
        detail += " (scikit-learn#8349)"
        fix = "solver='adam' or one model per output"
    name = {"squared_error": "½(y − f)²", "poisson": "Poisson deviance"}
    over = "rows and outputs" if network.average_outputs and outputs > 1 else "rows"
    if network.loss != "squared_error":
        over = "rows"
    return Claim(
        "gradient_ratio",
        Strength.MEASURED,
        value,
        objective=f"mean over {over} of {name.get(network.loss, 'log loss')} "
        f"+ ½·{network.alpha / network.s.sum():.3g}·‖W‖²",
        theorem="a gradient g satisfies gᵀd = dL(θ + td)/dt for every direction d",
        assumptions=("slopes compared at the fitted weights moved by 10 %",),
        allowance=found.allowance,
        detail=detail,
        fix=fix,
    )
