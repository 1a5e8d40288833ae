"""Markov chains on finitely many states, forward and backward.

    p(x_0 … x_T) = p_0(x_0) Π P_t(x_t, x_{t+1}) = p_T(x_T) Π B_t(x_{t+1}, x_t)
    B_t(y, x) = p_t(x) P_t(x, y)/p_{t+1}(y)

The second product is Bayes' rule at each step. So whoever knows p_T and the backward
kernels B can draw x_0: ancestral sampling, in the smallest case.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from certus.base import check_number, generator_of
from certus.generative.inputs import finite_array, probabilities
from certus.typing import Array, ArrayLike, RandomState


class DiscreteChain:
    """A Markov chain on states 0 … k − 1.

    Parameters
    ----------
    initial : array-like of shape (k,)
        p_0.
    transitions : list of array-like of shape (k, k)
        P_t for t = 0 … T − 1; rows sum to 1.

    Attributes
    ----------
    marginals : ndarray of shape (T + 1, k)
        p_0 … p_T.

    Examples
    --------
    >>> from certus.generative import DiscreteChain
    >>> chain = DiscreteChain([0.9, 0.1], [[[0.8, 0.2], [0.3, 0.7]]] * 3)
    >>> chain.marginals[1]
    array([0.75, 0.25])
    >>> chain.backward_kernels()[0][0]  # given x_1 = 0
    array([0.96, 0.04])
    """

    def __init__(self, initial: ArrayLike, transitions: Sequence[ArrayLike]) -> None:
        p = probabilities("initial", initial)
        P = probabilities("transitions", transitions)
        if p.ndim != 1 or P.shape[1:] != (len(p), len(p)):
            raise ValueError(
                f"initial must have shape (k,) and transitions (T, k, k), got "
                f"{p.shape} and {P.shape}."
            )
        kept = [p]
        for step in P:
            kept.append(kept[-1] @ step)
        self.transitions, self.marginals = P, np.stack(kept)

    def backward_kernels(self) -> Array:
        """B_t(y, x) = P(x_t = x given x_{t+1} = y), of shape (T, k, k).

        Rows of states y that are never reached are uniform; no path uses them.
        """
        joint = self.marginals[:-1, :, None] * self.transitions  # (T, x, y)
        total = joint.sum(axis=1)[:, :, None]
        turned = np.swapaxes(joint, 1, 2)
        k = joint.shape[1]
        safe = np.where(total > 0, total, 1.0)
        return np.where(total > 0, turned / safe, 1.0 / k)

    def log_probability(self, paths: ArrayLike, *, backward: bool = False) -> Array:
        """Log probabilities of paths, by the product forward or backward.

        Parameters
        ----------
        paths : array-like of shape (n, T + 1)
            States x_0 … x_T.
        backward : bool, default=False
            Whether to take p_T Π B_t in place of p_0 Π P_t.
        """
        x = finite_array("paths", paths, 2)
        k, T = self.marginals.shape[1], len(self.transitions)
        states = x.astype(np.intp)
        if x.shape[1] != T + 1 or (states != x).any() or not ((x >= 0) & (x < k)).all():
            raise ValueError(
                f"paths must hold states 0 to {k - 1} at {T + 1} times, got shape "
                f"{x.shape}."
            )
        kernels = self.backward_kernels() if backward else self.transitions
        first = self.marginals[-1, states[:, -1]] if backward else None
        with np.errstate(divide="ignore"):
            log = np.log(self.marginals[0, states[:, 0]] if first is None else first)
            for t, kernel in enumerate(kernels):
                before, after = states[:, t], states[:, t + 1]
                pair = (after, before) if backward else (before, after)
                log = log + np.log(kernel[pair])
        return log

    def ancestral_sample(
        self, n_samples: int, *, random_state: RandomState = None
    ) -> Array:
        """Draw n paths from the end: x_T from p_T, then backward; shape (n, T + 1).

        Parameters
        ----------
        n_samples : int
            Number of paths.
        random_state : int, RandomState instance or None, default=None
            Seed or generator of all random numbers.
        """
        check_number("n", n_samples, 1, integer=True)
        rng = generator_of(random_state)
        law = np.broadcast_to(self.marginals[-1], (n_samples, self.marginals.shape[1]))
        found = [_draw(law, rng)]
        for kernel in self.backward_kernels()[::-1]:
            found.append(_draw(kernel[found[-1]], rng))
        return np.stack(found[::-1], axis=1)


def _draw(laws: Array, rng: np.random.Generator) -> Array:
    """One state for each row of probabilities."""
    sums = np.cumsum(laws, axis=1)
    u = rng.random(len(laws))[:, None] * sums[:, -1:]
    return np.sum(sums[:, :-1] <= u, axis=1)
