"""Witnesses: plain data that a fit stores to make the verifier's work short.

A witness never says what was minimised: that the verifier reads from the model's public
parameters. A dual point, a direction along which no minimum exists, the counts of
mistakes, the start of a run: each is checked before it is used, and a wrong one can
only make a certificate fail.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, get_args, get_type_hints

import numpy as np

from certus.typing import Array


class LinearWitness(NamedTuple):
    """Of a linear model: slopes dℓ/dz at a minimum, or a direction without an end.

    ``dual`` has one column for each problem (for a hard margin the weights a ≥ 0 of its
    rows); ``direction`` is (w, b) with b last; ``combination`` weighs rows of two
    classes whose convex combinations are the same point.
    """

    dual: Array | None = None
    direction: Array | None = None
    combination: Array | None = None


class KernelWitness(NamedTuple):
    """Of a kernel machine: a vector along which the kernel matrix is negative.

    ``hulls`` weigh rows of two classes whose convex combinations are the same point.
    """

    eigenvector: Array | None = None
    hulls: Array | None = None


class KMeansWitness(NamedTuple):
    """Of k-means: the centres that the run kept began with."""

    start: Array | None = None


class MixtureWitness(NamedTuple):
    """Of a mixture: the parameters that EM began with, and the steps taken."""

    weights_: Array | None = None
    means_: Array | None = None
    covariances_: Array | None = None
    n_iter: int = 0


class FactorsWitness(NamedTuple):
    """Of factor analysis: noise and loadings EM began with, and the steps taken."""

    start: Array | None = None
    start_components: Array | None = None
    steps: int = 0


class MistakesWitness(NamedTuple):
    """Of a perceptron: how often each row was wrong when visited, for each problem.

    ``start`` holds (w, b) of each problem where they were not zero; ``cycle`` counts
    the mistakes of problem ``which`` between two visits of one state, ``period`` epochs
    apart.
    """

    mistakes: Array | None = None
    start: Array | None = None
    cycle: Array | None = None
    which: int = 0
    period: int = 0


class PriorWitness(NamedTuple):
    """Of a PAC-Bayes bound: the mean of the prior that some rows were given up for.

    ``seed`` drew those rows, where the model's ``random_state`` does not tell it.
    """

    prior_mean: Array | None = None
    seed: int | None = None


class MultipliersWitness(NamedTuple):
    """Of rates that are equal across groups: a row per rate, a column per group.

    ``answered`` are others, that the estimator was fitted against.
    """

    multipliers: Array | None = None
    answered: Array | None = None


class ConformalWitness(NamedTuple):
    """Of a calibration: the scores of its rows, ascending."""

    scores: Array


class RatingsWitness(NamedTuple):
    """Of a factorisation of ratings: where its run began, and how it went.

    Items start at ``start``, or at ``init_std`` times normal numbers from ``seed``.
    """

    seed: int | None = None
    init_std: float | None = None
    n_iter: int | None = None
    diverged: bool = False
    start: Array | None = None
    start_bias: Array | None = None


class GloVeWitness(NamedTuple):
    """Of a factorisation of counts: whether its steps exploded."""

    diverged: bool = False


class NetworkWitness(NamedTuple):
    """Of a network: how training ended.

    ``diverged`` holds epoch, step and the loss before, where it became infinite;
    ``kept`` is the epoch of the weights; ``settled`` says that the solver's own rule
    ended the run.
    """

    epochs: int = 0
    best_epoch: int = 0
    kept: int | None = None
    diverged: Any = None
    settled: bool = False


class PairsWitness(NamedTuple):
    """Of word or document vectors: the sample of pairs by which epochs were judged.

    Places of inputs (words, or texts) and of the words they predict; numbers of the
    words drawn as noise.
    """

    inputs: Array
    targets: Array
    noise: Array


#: By the kind that a model file names.
WITNESSES: dict[str, type[Any]] = {
    "linear": LinearWitness,
    "covariance_penalty": LinearWitness,
    "margin": LinearWitness,
    "huber": LinearWitness,
    "kernel": KernelWitness,
    "kmeans": KMeansWitness,
    "mixture": MixtureWitness,
    "gaussian_factors": FactorsWitness,
    "group_mixture": MultipliersWitness,
    "group_thresholds": MultipliersWitness,
    "pac_bayes": PriorWitness,
    "perceptron": MistakesWitness,
    "conformal": ConformalWitness,
    "glove": GloVeWitness,
    "ratings": RatingsWitness,
    "network": NetworkWitness,
    "penalised_network": NetworkWitness,
    "negative_sampling": PairsWitness,
}


def witness_of(kind: str, told: Mapping[str, Any]) -> Any:
    """The witness of a kind from what a file tells; other entries are left aside.

    None where the kind has none, or where what it needs is not told. An entry of a type
    that its place does not allow raises ``TypeError``.

    Examples
    --------
    >>> witness_of("ratings", {"seed": 3, "penalty": 0.5}).seed
    3
    """
    named = WITNESSES.get(kind)
    if named is None:
        return None
    hints, values = get_type_hints(named), {}
    for name in named._fields:
        if name in told:
            if not _fits(told[name], hints[name]):
                found = type(told[name]).__name__
                raise TypeError(f"a {found} as the {name} of its evidence")
            values[name] = told[name]
        elif name not in named._field_defaults:
            return None
    return named(**values)


def _fits(value: Any, hint: Any) -> bool:
    """Whether a value may stand where a field is declared so."""
    if hint is Any:  # a few plain values
        plain = isinstance(value, bool | int | float | np.number) or value is None
        many = isinstance(value, list | tuple) and len(value) < 9
        return plain or (many and all(_fits(each, Any) for each in value))
    allowed = [hint] if hint == Array else [*get_args(hint)] or [hint]
    if value is None or isinstance(value, bool | np.bool_):
        return (type(None) if value is None else bool) in allowed
    if isinstance(value, np.ndarray):
        return Array in allowed
    if isinstance(value, int | np.integer):
        return int in allowed or float in allowed
    return isinstance(value, float | np.floating) and float in allowed
