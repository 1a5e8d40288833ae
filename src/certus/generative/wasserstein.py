"""A lower bound of the Wasserstein distance between two distributions, from samples.

    W₁(p, q) = max over S with slopes at most 1 of E_p S − E_q S

A critic with orthogonal matrices and sorted pairs is fitted on one half of the rows.
The verifier bounds its slopes and takes the means on the other half. The distance
between samples themselves is too large in many dimensions; this bound holds.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch

from certus.base import check_number, generator_of
from certus.certificate import Claim
from certus.generative.inputs import rows
from certus.neural_network.modules.adversarial import LipschitzCritic
from certus.neural_network.randomness import own_generator
from certus.typing import Array, MatrixLike, RandomState
from certus.verify import distance_claim

#: Rows of a step.
BATCH = 512


class WassersteinBound(NamedTuple):
    """Result of :func:`wasserstein_bound`.

    Attributes
    ----------
    value : float
        W₁ is at least this, except with probability delta.
    claim : Claim
        What the verifier found.
    critic : certus.neural_network.modules.LipschitzCritic
        The function that tells the distributions apart, of rows that are centred and
        divided by ``scale``.
    scale : float
        A unit of length: the spread of all rows.
    """

    value: float
    claim: Claim
    critic: Any
    scale: float


def wasserstein_bound(
    X: MatrixLike,
    Y: MatrixLike,
    *,
    hidden_layer_sizes: tuple[int, ...] = (64, 64),
    max_iter: int = 400,
    learning_rate: float = 1e-2,
    delta: float = 0.05,
    random_state: RandomState = None,
) -> WassersteinBound:
    """Bound the distance W₁ between the distributions of two samples from below.

    Parameters
    ----------
    X, Y : array-like of shapes (n, d) and (m, d)
        Independent rows; half of each fits the critic.
    hidden_layer_sizes : tuple of int, default=(64, 64)
        Number of units in each hidden layer. They must be even.
    max_iter : int, default=400
        Maximum number of iterations. They are steps of the critic.
    learning_rate : float, default=1e-2
        Step size.
    delta : float, default=0.05
        Failure probability: the chance that the statement does not hold.
    random_state : int, RandomState or None, default=None
        Seed or generator of all random numbers.

    Returns
    -------
    WassersteinBound

    Examples
    --------
    >>> import numpy as np
    >>> from certus.generative import wasserstein_bound
    >>> rng = np.random.default_rng(0)
    >>> X, Y = rng.normal(size=(4000, 2)), rng.normal(size=(4000, 2)) + [1.0, 0.0]
    >>> 0.7 < wasserstein_bound(X, Y, max_iter=100, random_state=0).value <= 1.0
    True
    """
    X, Y = rows("X", X), rows("Y", Y)
    if X.shape[1] != Y.shape[1] or min(len(X), len(Y)) < 4:
        raise ValueError(
            "X and Y must have the same columns and four rows or more, got shapes "
            f"{X.shape} and {Y.shape}."
        )
    check_number("max_iter", max_iter, 1, integer=True)
    check_number("learning_rate", learning_rate, open_low=True)
    check_number("delta", delta, 0, 1, open_low=True)
    rng = generator_of(random_state)
    halves = [*_halves(X, rng), *_halves(Y, rng)]
    both = np.vstack(halves[::2])
    middle, scale = both.mean(axis=0), float(both.std(axis=0).max()) or 1.0
    A, A_new, B, B_new = ((part - middle) / scale for part in halves)
    critic = _fitted(A, B, hidden_layer_sizes, int(max_iter), learning_rate, rng)
    critic.double()
    layers = [
        (m.weight.detach().numpy(), m.bias.detach().numpy()) for m in critic.layers
    ]
    with torch.no_grad():
        seen = critic(torch.from_numpy(np.vstack([A, B])))[:, 0].numpy()
    low, high = float(seen.min()), float(seen.max())
    layers[-1] = (layers[-1][0], layers[-1][1] - 0.5 * (low + high))
    limit = max(0.5 * (high - low), 1e-300)
    claim = distance_claim(layers, A_new, B_new, limit, float(delta))
    return WassersteinBound(float(claim.value or 0.0) * scale, claim, critic, scale)


def _halves(A: Array, rng: np.random.Generator) -> tuple[Array, Array]:
    order = rng.permutation(len(A))
    return A[order[: len(A) // 2]], A[order[len(A) // 2 :]]


def _fitted(
    X: Array, Y: Array, hidden: Any, steps: int, rate: float, rng: np.random.Generator
) -> Any:
    x, y = (torch.as_tensor(A, dtype=torch.float32) for A in (X, Y))
    with own_generator():
        torch.default_generator.manual_seed(int(rng.integers(2**62)))
        critic: Any = LipschitzCritic(x.shape[1], hidden)
        optimizer = torch.optim.Adam(critic.parameters(), lr=rate, fused=True)
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
        for _ in range(steps):
            a = x[torch.randint(len(x), (min(BATCH, len(x)),))]
            b = y[torch.randint(len(y), (min(BATCH, len(y)),))]
            loss = critic(b).mean() - critic(a).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
            critic.project()
    return critic
