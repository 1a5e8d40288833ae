"""Witnesses: plain data that a fit stores to make the verifier's work short.

A witness never says what was minimised: the verifier reads that from the model's public
parameters. A dual point, a direction that shows that there is no minimum, the counts of
mistakes, the start of a run: each is checked before it is used, and a wrong one can
only make a certificate fail.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, get_args, get_type_hints

import numpy as np

from certus.typing import Array


class LinearWitness(NamedTuple):
    """For a linear model: slopes dℓ/dz at a minimum, or a direction of endless descent.

    ``dual`` has one column for each problem (for a hard margin the weights a ≥ 0 of its
    rows); ``direction`` is (w, b) with b last; ``combination`` holds row weights that
    give both classes the same convex combination.
    """

    dual: Array | None = None
    direction: Array | None = None
    combination: Array | None = None


class KernelWitness(NamedTuple):
    """For a kernel machine: a vector v with vᵀKv < 0.

    ``hulls`` holds row weights that give both classes the same convex combination.
    """

    eigenvector: Array | None = None
    hulls: Array | None = None


class KMeansWitness(NamedTuple):
    """For k-means: the starting centres of the chosen run."""

    start: Array | None = None


class MixtureWitness(NamedTuple):
    """For a mixture: the parameters that EM started from, and the number of steps."""

    weights_: Array | None = None
    means_: Array | None = None
    covariances_: Array | None = None
    n_iter: int = 0


class FactorsWitness(NamedTuple):
    """For factor analysis: EM's first noise and loadings, and the number of steps."""

    start: Array | None = None
    start_components: Array | None = None
    steps: int = 0


class MistakesWitness(NamedTuple):
    """For a perceptron: how often each row was a mistake, for each problem.

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
    """For a PAC-Bayes bound: the mean of the prior, learnt on rows set aside for it.

    ``seed`` drew those rows, if the model's ``random_state`` does not hold it.
    """

    prior_mean: Array | None = None
    seed: int | None = None


class MultipliersWitness(NamedTuple):
    """For rates that are equal across groups: a row per rate, a column per group.

    ``answered`` are the multipliers that the estimator was fitted against.
    """

    multipliers: Array | None = None
    answered: Array | None = None


class ConformalWitness(NamedTuple):
    """For a calibration: the scores of its rows, ascending.

    The coverage given these rows fails with a ``share`` of ``delta``, where ``delta``
    is that of several statements which hold together.
    """

    scores: Array
    delta: float = 0.05
    share: float = 1.0


class CrossWitness(NamedTuple):
    """For CV+: the score of each row by the model without its fold, and its fold.

    A fold of −1 means that the row was in every fit and has no score. ``repeated`` says
    that each fold's model was chosen without the rows of its fold.
    """

    scores: Array
    folds: Array
    repeated: bool = False


class RatingsWitness(NamedTuple):
    """For a factorisation of ratings: where its run started, and how it went.

    Items start at ``start``, or at ``init_std`` times normal numbers from ``seed``.
    """

    seed: int | None = None
    init_std: float | None = None
    n_iter: int | None = None
    diverged: bool = False
    start: Array | None = None
    start_bias: Array | None = None


class GloVeWitness(NamedTuple):
    """For a factorisation of counts: whether its steps diverged."""

    diverged: bool = False


class NetworkWitness(NamedTuple):
    """For a network: how training ended.

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
    """For word or document vectors: the sample of pairs on which epochs were compared.

    Places of inputs (words, or texts) and of the words they predict; numbers of the
    words drawn as noise.
    """

    inputs: Array
    targets: Array
    noise: Array


class CorpusWitness(NamedTuple):
    """For counts of a text: which tokens were counted, as 32 bytes of SHA-256."""

    digest: Array


class BaseWitness(NamedTuple):
    """For a tuned model: the weights of its base before, as 32 bytes of SHA-256."""

    digest: Array


class MemoryWitness(NamedTuple):
    """For an associative memory: why no weights of a unit store the patterns.

    ``combination`` holds weights of the patterns, not negative, under which those of
    ``unit`` cancel.
    """

    unit: int | None = None
    combination: Array | None = None


class PropagationWitness(NamedTuple):
    """For labels carried along a graph: sums of scores, and mean steps to a label.

    ``totals`` are the sums of the rows before they were made shares; ``steps`` a vector
    g with (I − P)g ≥ 1 at nodes without a label, infinite where none can be reached.
    """

    totals: Array | None = None
    steps: Array | None = None


class CutWitness(NamedTuple):
    """For a clustering of a graph: vectors of the smallest eigenvalues of I − S."""

    vectors: Array | None = None


class TreesWitness(NamedTuple):
    """For boosting that stops early: the rows held out, ascending."""

    held_out: Array | None = None


#: The classes by the kind that a model file names.
WITNESSES: dict[str, type[Any]] = {
    "linear": LinearWitness,
    "additive": LinearWitness,
    "covariance_penalty": LinearWitness,
    "margin": LinearWitness,
    "huber": LinearWitness,
    "kernel": KernelWitness,
    "kmeans": KMeansWitness,
    "memory": MemoryWitness,
    "mixture": MixtureWitness,
    "gaussian_factors": FactorsWitness,
    "group_mixture": MultipliersWitness,
    "group_thresholds": MultipliersWitness,
    "pac_bayes": PriorWitness,
    "perceptron": MistakesWitness,
    "conformal": ConformalWitness,
    "cross": CrossWitness,
    "glove": GloVeWitness,
    "ratings": RatingsWitness,
    "network": NetworkWitness,
    "penalised_network": NetworkWitness,
    "adversarial": NetworkWitness,
    "coder": NetworkWitness,
    "cells": NetworkWitness,
    "denoiser": NetworkWitness,
    "elbo": NetworkWitness,
    "flow": NetworkWitness,
    "negative_sampling": PairsWitness,
    "ngrams": CorpusWitness,
    "tuned": BaseWitness,
    "propagation": PropagationWitness,
    "graph_cut": CutWitness,
    "trees": TreesWitness,
}


def witness_of(kind: str, told: Mapping[str, Any]) -> Any:
    """The witness of a kind from the entries of a file; other entries are ignored.

    None if the kind has no witness, or if an entry that it needs is missing. An entry
    of a wrong type raises ``TypeError``.

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
    """Whether a value has the declared type of a field."""
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
