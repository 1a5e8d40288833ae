"""Losses, penalties and kernels as data.

A term says *what* is minimised and carries no code. The verifier has its own formulas,
the solvers' fast ones live in ``certus._solvers``, those that users call in
``certus.objectives``; tests compare them. Inside certus there is one normalisation:

    P(w, b) = Σ sᵢ ℓ(yᵢ, xᵢᵀw + b) / Σ s  +  Ω(w)

Estimators keep scikit-learn's ``alpha`` and ``C`` outside and translate in one place.
"""

from collections.abc import Callable
from typing import Any, NamedTuple


class Squared(NamedTuple):
    """½(y − z)². With labels ±1 it is half the squared margin loss (1 − yz)²."""


class Absolute(NamedTuple):
    """abs(y − z)."""


class Huber(NamedTuple):
    """½e² where abs(e) ≤ threshold, else threshold·abs(e) − ½threshold²."""

    threshold: float


class Tukey(NamedTuple):
    """Bisquare, not convex: (t²/6)(1 − (1 − e²/t²)³), constant beyond t = threshold."""

    threshold: float


class Quantile(NamedTuple):
    """Pinball loss: q·e for e ≥ 0, (q − 1)·e below, with e = y − z."""

    q: float


class EpsilonInsensitive(NamedTuple):
    """max(0, abs(y − z) − epsilon)."""

    epsilon: float


class SquaredEpsilonInsensitive(NamedTuple):
    """max(0, abs(y − z) − epsilon)²."""

    epsilon: float


class Logistic(NamedTuple):
    """log(1 + exp(−yz)), y = ±1."""


class Hinge(NamedTuple):
    """max(0, margin − yz), y = ±1; margin 0 is the perceptron's loss."""

    margin: float = 1.0


class SquaredHinge(NamedTuple):
    """max(0, 1 − yz)², y = ±1."""


class ModifiedHuber(NamedTuple):
    """max(0, 1 − yz)² where yz ≥ −1, else −4yz; y = ±1."""


class ExponentialMargin(NamedTuple):
    """exp(−yz), y = ±1: what boosting minimises."""


class ZeroOne(NamedTuple):
    """1 where yz ≤ 0, else 0; y = ±1. Not convex."""


class Binomial(NamedTuple):
    """trials·log(1 + exp(z)) − yz (deviance form adds c(y)), 0 ≤ y ≤ trials.

    One trial: the logistic loss with labels 0 and 1.
    """

    trials: int = 1


class Exponential(NamedTuple):
    """y·exp(−z) + z (deviance form: − log y − 1): exponential y > 0 of mean exp(z)."""


class Poisson(NamedTuple):
    """exp(z) − yz (deviance form adds y log y − y), y ≥ 0."""


class Tweedie(NamedTuple):
    """exp((2 − p)z)/(2 − p) + y·exp((1 − p)z)/(p − 1), 1 < p < 2 the power; y ≥ 0.

    With c(y) it is half the deviance of amounts of mean exp(z) and variance ∝ meanᵖ.
    Towards p = 1 it becomes Poisson's, towards p = 2 the exponential family's.
    """

    power: float = 1.5


class Softmax(NamedTuple):
    """log Σₖ exp(zₖ) − z_y over n_classes scores; where z = log p it is −log p_y."""

    n_classes: int


class NoPenalty(NamedTuple):
    """Ω = 0."""


class L1(NamedTuple):
    """alpha·‖w‖₁."""

    alpha: float


class L2(NamedTuple):
    """½·alpha·‖w‖²."""

    alpha: float


class L1L2(NamedTuple):
    """l1·‖w‖₁ + ½·l2·‖w‖²."""

    l1: float
    l2: float


class NonNegative(NamedTuple):
    """l1·Σw + ½·l2·‖w‖² where every w ≥ 0, infinite elsewhere."""

    l1: float = 0.0
    l2: float = 0.0


class WeightedL1(NamedTuple):
    """Σⱼ alphasⱼ·abs(wⱼ): a level for each column."""

    alphas: tuple[float, ...]


class Group(NamedTuple):
    """l1·Σ_g ‖w_g‖ + ½·l2·‖w‖²; ``groups`` numbers the group of each column."""

    l1: float
    groups: tuple[int, ...]
    l2: float = 0.0


class MultiTask(NamedTuple):
    """l1·Σⱼ ‖Wⱼ‖ + ½·l2·‖W‖²; Wⱼ holds the coefficients of column j for all tasks."""

    l1: float
    l2: float = 0.0


# -- kernels ----------------------------------------------------------------------


class Linear(NamedTuple):
    """xᵀx'."""


class Polynomial(NamedTuple):
    """(gamma·xᵀx' + coef0)^degree; degree 2 and coef0 0: homogeneous quadratic."""

    degree: int = 2
    coef0: float = 1.0
    gamma: float = 1.0


class Gaussian(NamedTuple):
    """exp(−gamma·‖x − x'‖²); gamma = 1/σ where it is written exp(−‖·‖²/σ)."""

    gamma: float = 1.0


class Laplace(NamedTuple):
    """exp(−gamma·‖x − x'‖) with the Euclidean norm, or norm=1 as in scikit-learn."""

    gamma: float = 1.0
    norm: int = 2


class Sigmoid(NamedTuple):
    """tanh(gamma·xᵀx' + coef0). Not positive semidefinite for most parameters."""

    gamma: float = 1.0
    coef0: float = 0.0


class Precomputed(NamedTuple):
    """The matrix passed in place of X."""


class OwnKernel(NamedTuple):
    """function(X, X'), the user's own."""

    function: Callable[..., Any]


class Sum(NamedTuple):
    """k₁ + k₂: feature maps side by side."""

    left: Any
    right: Any


class Product(NamedTuple):
    """k₁·k₂: tensor product of the feature maps."""

    left: Any
    right: Any


class Scaled(NamedTuple):
    """factor·k, factor ≥ 0."""

    factor: float
    kernel: Any


class Exponentiated(NamedTuple):
    """exp(k)."""

    kernel: Any


class Weighted(NamedTuple):
    """f(x)·k(x, x')·f(x'); the function takes rows and gives one number for each."""

    kernel: Any
    function: Callable[..., Any]


class Composed(NamedTuple):
    """k(g(x), g(x')); the feature map takes rows and gives rows."""

    kernel: Any
    map: Callable[..., Any]


Loss = (
    Squared
    | Absolute
    | Huber
    | Tukey
    | Quantile
    | EpsilonInsensitive
    | SquaredEpsilonInsensitive
    | Logistic
    | Hinge
    | SquaredHinge
    | ModifiedHuber
    | ExponentialMargin
    | ZeroOne
    | Binomial
    | Exponential
    | Poisson
    | Tweedie
    | Softmax
)
Penalty = NoPenalty | L1 | L2 | L1L2 | NonNegative | WeightedL1 | Group | MultiTask
Kernel = (
    Linear
    | Polynomial
    | Gaussian
    | Laplace
    | Sigmoid
    | Precomputed
    | OwnKernel
    | Sum
    | Product
    | Scaled
    | Exponentiated
    | Weighted
    | Composed
)
Term = Loss | Penalty | Kernel

#: Every term by name: how a file's manifest names it.
TERMS: dict[str, type] = {
    cls.__name__: cls for cls in (*Loss.__args__, *Penalty.__args__, *Kernel.__args__)
}
