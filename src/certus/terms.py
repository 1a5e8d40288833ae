"""Losses and penalties as data.

A term says *what* is minimised and carries no code. The verifier's formulas live in
``certus.verify.formulas``, the solvers' compiled ones in ``certus.convex``; a test
compares the two on random input. Inside certus there is one normalisation:

    P(w, b) = Σ sᵢ ℓ(yᵢ, xᵢᵀw + b) / Σ s  +  Ω(w)

Estimators keep scikit-learn's ``alpha`` and ``C`` outside and translate in one place.
"""

from typing import NamedTuple


class Squared(NamedTuple):
    """½(y − z)²."""


class Huber(NamedTuple):
    """½e² where abs(e) ≤ delta, else delta·abs(e) − ½delta²."""

    delta: float


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


class Poisson(NamedTuple):
    """exp(z) − yz (deviance form adds y log y − y), y ≥ 0."""


class Softmax(NamedTuple):
    """log Σₖ exp(zₖ) − z_y over n_classes scores."""

    n_classes: int


class NoPenalty(NamedTuple):
    """Ω = 0."""


class L1(NamedTuple):
    """alpha·‖w‖₁."""

    alpha: float


class L2(NamedTuple):
    """½·alpha·‖w‖²."""

    alpha: float


class ElasticNet(NamedTuple):
    """l1·‖w‖₁ + ½·l2·‖w‖²."""

    l1: float
    l2: float


Loss = (
    Squared
    | Huber
    | Quantile
    | EpsilonInsensitive
    | SquaredEpsilonInsensitive
    | Logistic
    | Hinge
    | SquaredHinge
    | ModifiedHuber
    | Poisson
    | Softmax
)
Penalty = NoPenalty | L1 | L2 | ElasticNet
Term = Loss | Penalty

#: Every term by name: how a file's manifest names it.
TERMS: dict[str, type] = {
    cls.__name__: cls for cls in (*Loss.__args__, *Penalty.__args__)
}
