"""Training of the text classifier, and its scores.

Epochs of stochastic gradient descent, one document a step, in a new order each time,
with a rate that falls linearly to zero. Threads take documents in turns and write to
the common vectors without locks. That works because steps are small and documents share
few words, but it is not repeatable. After each epoch the objective is evaluated
exactly, in float64, on a fixed sample of the documents.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from scipy.special import log_softmax

from certus._core.threads import Stop, run_blocks, slices
from certus.callbacks import Monitor
from certus.certificate import Status
from certus.diagnostics.text_classifier import evaluation_rows
from certus.text.classifier_kernels import (
    document_means,
    train_hierarchical,
    train_softmax,
)
from certus.text.features import select, word_rows
from certus.text.huffman import leaf_log_probabilities, leaf_paths
from certus.text.ngrams import Lists
from certus.text.vocabulary import Vocabulary
from certus.typing import Array

if TYPE_CHECKING:
    from certus.text.classifier import FastTextClassifier

#: Documents whose vectors are held at a time.
BLOCK = 4096
TINY = float(np.finfo(np.float64).tiny)
#: Numbers touched between two looks at the clock: some 10 to 50 ms.
TURN = 1e8


class Parameters(NamedTuple):
    """Z and W, with columns of zeros up to a multiple of 16."""

    Z: Array
    W: Array
    n_components: int

    @classmethod
    def random(
        cls, n_rows: int, n_outputs: int, d: int, random: np.random.Generator
    ) -> Parameters:
        """Z uniform between ±1/d, W zero."""
        wide = -(-d // 16) * 16
        Z = np.zeros((n_rows, wide), dtype=np.float32)
        for part in slices(n_rows, max(1, (1 << 22) // d)):
            some = random.random((part.stop - part.start, d), dtype=np.float32)
            Z[part, :d] = (2 * some - 1) / np.float32(d)
        return cls(Z, np.zeros((n_outputs, wide), dtype=np.float32), d)


class Previous(NamedTuple):
    """The last fit, from which a further one may start."""

    classes: Array
    vocabulary: list[str]
    ngrams: tuple[Any, ...]
    buckets: Array
    vectors: Array
    coef: Array
    tree: Array | None

    @classmethod
    def of(cls, model: FastTextClassifier) -> Previous | None:
        """The state of the model; None before its first fit."""
        if not hasattr(model, "vectors_"):
            return None
        return cls(*(getattr(model, f"{name}_") for name in cls._fields))

    def copy_to(self, model: FastTextClassifier, parameters: Parameters) -> None:
        """Copy the vectors of words and classes that both fits have."""
        d = self.vectors.shape[1]
        if d != parameters.n_components:
            return
        old = word_rows(model.vocabulary_, Vocabulary(self.vocabulary))
        new = np.flatnonzero(old >= 0)
        parameters.Z[new, :d] = self.vectors[old[new]]
        if self.ngrams == model.ngrams_:
            _, here, there = np.intersect1d(
                model.buckets_, self.buckets, True, return_indices=True
            )
            rows = len(model.vocabulary_) + here
            parameters.Z[rows, :d] = self.vectors[len(self.vocabulary) + there]
        same = np.array_equal(self.classes, model.classes_)
        shape = None if self.tree is None else self.tree.tolist()
        now = None if model.tree_ is None else model.tree_.tolist()
        if same and shape == now:
            parameters.W[:, :d] = self.coef


class TextTraining:
    """One fit: the parameters, the documents and what has happened so far."""

    def __init__(
        self,
        parameters: Parameters,
        lists: Lists,
        codes: Array,
        weights: Array,
        tree: Array | None,
        random: np.random.Generator,
        monitor: Monitor,
        *,
        threaded: bool,
        max_time: float | None,
    ) -> None:
        self.parameters, self.lists, self.tree = parameters, lists, tree
        self.codes = codes.astype(np.int32)
        self.weights = weights
        self.random, self.monitor, self.threaded = random, monitor, threaded
        self.deadline = None if max_time is None else time.perf_counter() + max_time
        self.rows = evaluation_rows(len(codes))
        self.sample = select(lists, self.rows)
        outputs: float = len(parameters.W)
        self.paths: tuple[Array, ...] = ()
        if tree is not None:
            self.paths = leaf_paths(tree)
            outputs = len(self.paths[0]) / len(self.paths[2])
        self.costs = np.diff(lists.offsets) * 2.0 + 3 * outputs
        self.n_complete = 0
        self.seen: list[tuple[float, float]] = []  # loss and weight of each turn
        self.history: dict[str, list[float]] = {}
        self.losses: list[float] = []

    def run(self, max_iter: int, rate: float) -> Status:
        """Train; Ctrl-C and the time limit keep what has been learnt so far."""
        try:
            for epoch in range(max_iter):
                whole = self._epoch(
                    rate * (1 - epoch / max_iter), rate * (1 - (epoch + 1) / max_iter)
                )
                self.n_complete += whole
                status = self._record()
                if not whole:
                    return Status.TIME_LIMIT
                if status is not None and epoch + 1 < max_iter:
                    return status
        except KeyboardInterrupt:
            self._record()
            return Status.INTERRUPTED
        return Status.SOLVED

    def _epoch(self, first: float, last: float) -> bool:
        """One pass over all documents; returns whether it was complete."""
        Z, W, _ = self.parameters
        n = len(self.codes)
        order = self.random.permutation(n)
        spent = np.cumsum(self.costs[order]) * Z.shape[1]
        bounds = np.searchsorted(spent, np.arange(TURN, spent[-1], TURN))
        starts = np.unique(np.concatenate([[0], bounds]))
        turns = [slice(a, b) for a, b in zip(starts, [*starts[1:], n])]
        step = train_softmax if self.tree is None else train_hierarchical
        data = (*self.lists, self.codes, self.weights.astype(np.float32))
        self.seen = []
        late = []

        def work(turn: slice, stop: Stop) -> None:
            if stop():
                return
            if self.deadline is not None and time.perf_counter() > self.deadline:
                late.append(turn)
                return
            ends = np.array([turn.start, turn.stop]) / n
            rates = first + (last - first) * ends
            some = order[turn]
            loss = step(Z, W, *data, some, rates, *self.paths)
            self.seen.append((loss, float(self.weights[self.codes[some]].sum())))

        if self.threaded:
            run_blocks(work, turns)
        else:
            for turn in turns:
                work(turn, lambda: False)
        return not late

    def _record(self) -> Status | None:
        """Evaluate and call the callbacks; returns a status if the fit should stop."""
        objective, error = self._evaluate()
        status = self.monitor.step(objective, error, self.attributes)
        loss, weight = np.sum(self.seen, axis=0) if self.seen else (np.nan, 1.0)
        self.losses.append(float(loss / weight))
        told = self.monitor.history
        self.history = {
            "objective": told["objective"],
            "error": told["gap"],
            "running_loss": self.losses,
            "seconds": told["seconds"],
        }
        return status if np.isfinite(objective) else Status.DIVERGED

    def _evaluate(self) -> tuple[float, float]:
        """Objective and share of errors on the sample."""
        Z, W, _ = self.parameters
        own = self.codes[self.rows]
        logs = log_probabilities(Z, W, self.tree, self.sample)
        s = self.weights[own]
        losses = -logs[np.arange(len(own)), own]
        wrong = logs.argmax(axis=1) != own
        return float(s @ losses / max(s.sum(), TINY)), float(wrong.mean())

    def attributes(self) -> dict[str, Any]:
        """The fitted attributes as of now."""
        Z, W, d = self.parameters
        return {
            "vectors_": np.ascontiguousarray(Z[:, :d]),
            "coef_": np.ascontiguousarray(W[:, :d]),
        }


# -- scores -----------------------------------------------------------------------


def document_vectors(Z: Array, lists: Lists) -> Iterator[tuple[slice, Array]]:
    """Blocks of documents and their mean vectors, in float64."""
    for part in slices(len(lists.offsets) - 1, BLOCK):
        H = np.empty((part.stop - part.start, Z.shape[1]))
        ends = lists.offsets[part.start : part.stop + 1]

        def work(some: slice, stop: Stop, H: Array = H, ends: Array = ends) -> None:
            document_means(Z, lists.values, ends[some.start : some.stop + 1], H[some])

        run_blocks(work, slices(len(H), BLOCK // 4))
        yield part, H


def log_probabilities(Z: Array, W: Array, tree: Array | None, lists: Lists) -> Array:
    """Logarithm of the probability of each class for each document."""
    W = W.astype(np.float64)
    k = len(W) + (tree is not None)
    out = np.empty((len(lists.offsets) - 1, k))
    for part, H in document_vectors(Z, lists):
        scores = H @ W.T
        if tree is None:
            out[part] = log_softmax(scores, axis=1)
        else:
            out[part] = leaf_log_probabilities(tree, scores)
    return out
