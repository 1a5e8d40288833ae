"""Negative sampling: the noise, blocks of a corpus, epochs, and a sample for the loss.

    objective = mean over pairs (x, w) of −log σ(z_x·u_w) − Σⱼ log σ(−z_x·u_{nⱼ})

with n₁ … n_k drawn from q(w) ∝ count(w)^power. Word vectors, subword vectors and
document vectors differ in what x is, and share the code here. Blocks, their seeds
and their step sizes depend on the corpus and the parameters alone; the result of two
threads that write to the same row at once depends on timing.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from sklearn.utils.validation import check_is_fitted

from certus._core.threads import Stop, run_blocks
from certus.base import Fitted, Model, check_number
from certus.callbacks import Monitor
from certus.certificate import Claim, Evidence, Status, Strength
from certus.diagnostics import Diagnosed, embeddings
from certus.evidence import PairsWitness
from certus.text.corpus import EncodedCorpus, encode
from certus.text.skipgram_kernels import alias_table
from certus.text.vocabulary import lookup
from certus.typing import Array, ArrayLike, TextsLike

#: Multiplications of a block: about 0.01 s, so that Ctrl-C is obeyed.
WORK = 20_000_000
#: Tokens of a piece: a longer text is cut, and windows do not reach across.
PIECE = 10_000
#: Blocks handed to the threads at a time.
SPAN = 512
#: Pairs of the sample by which every epoch is judged, and what they may cost.
SAMPLE, SAMPLE_WORK = 10_000, 10_000_000


class Noise(NamedTuple):
    """A distribution over words, ready for drawing."""

    accept: Array
    other: Array
    share: Array

    @classmethod
    def of(cls, counts: Array, power: float) -> Noise:
        """Shares in proportion to a power of the counts."""
        weights = np.asarray(counts, dtype=np.float64) ** power
        n = len(weights)
        accept, other = np.empty(n, dtype=np.float32), np.empty(n, dtype=np.int32)
        alias_table(weights, accept, other)
        return cls(accept, other, weights / weights.sum())

    def draw(self, random: np.random.Generator, shape: tuple[int, ...]) -> Array:
        """Words drawn by the cumulated shares."""
        edges = np.cumsum(self.share)
        found = np.searchsorted(edges, random.random(shape) * edges[-1], side="right")
        return np.minimum(found, len(edges) - 1).astype(np.int32)


class DrawnPairs(NamedTuple):
    """Pairs drawn once: places of the inputs and of the true words, and noise words."""

    inputs: Array
    targets: Array
    noise: Array


class TextBlocks(NamedTuple):
    """Pieces of texts, and which of them make up each block of work."""

    ends: Array  # piece p is tokens ends[p] … ends[p + 1]
    edges: Array  # block b is pieces edges[b] … edges[b + 1]


def keep_chances(counts: Array, subsample: float | None) -> Array:
    """Chance of each word to stay: √(t/f) + t/f of its share f of all words, or 1."""
    if subsample is None:
        return np.ones(len(counts), dtype=np.float32)
    share = counts / max(1, counts.sum())
    with np.errstate(divide="ignore"):
        ratio = subsample / share
    return np.minimum(1.0, np.sqrt(ratio) + ratio).astype(np.float32)


def cut(offsets: Array, size: int) -> TextBlocks:
    """Texts in pieces, and the pieces in blocks of about ``size`` tokens."""
    size = max(1, size)
    most = min(PIECE, max(size, 64))
    lengths = np.diff(offsets)
    if len(lengths) and lengths.max() > most:
        parts = np.maximum(1, -(-lengths // most))
        starts = np.repeat(offsets[:-1], parts)
        turn = np.arange(len(starts)) - np.repeat(np.cumsum(parts) - parts, parts)
        ends = np.append(starts + turn * most, offsets[-1])
    else:
        ends = np.asarray(offsets, dtype=np.int64)
    marks = np.arange(ends[0], ends[-1], size)
    edges = np.unique(np.append(np.searchsorted(ends, marks), len(ends) - 1))
    return TextBlocks(ends, edges.astype(np.int64))


def start_vectors(n: int, d: int, random: np.random.Generator) -> Array:
    """Uniform between ±1/(2√d), so that their length does not depend on d."""
    out = np.empty((n, d), dtype=np.float32)
    random.random(out=out, dtype=np.float32)
    out -= np.float32(0.5)
    out /= np.float32(np.sqrt(d))
    return out


def sample_size(negatives: int, d: int) -> int:
    """How many pairs the sample may hold."""
    return int(min(SAMPLE, max(200, SAMPLE_WORK // ((negatives + 1) * d))))


def sample_loss(H: Array, outputs: Array, true: Array, noise: Array) -> float:
    """The objective over a sample whose inputs are the rows of H; float64."""
    H = H.astype(np.float64)
    total = np.logaddexp(0.0, -np.einsum("id,id->i", H, outputs[true]))
    for j in range(noise.shape[1]):
        total += np.logaddexp(0.0, np.einsum("id,id->i", H, outputs[noise[:, j]]))
    return float(total.mean())


def run_epochs(
    model: Model,
    monitor: Monitor,
    n_blocks: int,
    visit: Callable[[int, int], tuple[float, int]],
    judge: Callable[[], float],
    state: Callable[[], dict[str, Any]],
) -> Status:
    """Visit every block once an epoch, and judge the vectors after each.

    ``visit(epoch, block)`` returns the sum of losses and the number of pairs. Leaves
    ``history_``, ``n_iter_`` and ``n_pairs_``. Ctrl-C and ``max_time`` end an epoch
    between blocks.
    """
    begin, limit = time.perf_counter(), model.max_time
    names = ("objective", "running_loss", "seconds")
    history: dict[str, list[float]] = {name: [] for name in names}
    model.history_ = history
    model.n_iter_, model.n_pairs_ = 0, 0
    status = Status.SOLVED
    for epoch in range(int(model.max_iter)):
        sums, seen = np.zeros((n_blocks, 2)), np.zeros(n_blocks, dtype=bool)

        def work(
            block: int,
            stop: Stop,
            epoch: int = epoch,
            sums: Array = sums,
            seen: Array = seen,
        ) -> None:
            late = limit is not None and time.perf_counter() - begin > limit
            if not (stop() or late):
                sums[block], seen[block] = visit(epoch, block), True

        asked = None
        try:
            _each_block(work, n_blocks, bool(model.deterministic))
            objective = judge()
            asked = monitor.step(objective, np.nan, state)
        except KeyboardInterrupt:
            status, objective = Status.INTERRUPTED, judge()
        loss, pairs = sums.sum(axis=0)
        running = float(loss / pairs) if pairs else np.nan
        values = (objective, running, time.perf_counter() - begin)
        for name, value in zip(names, values):
            history[name].append(value)
        model.n_pairs_ += int(pairs)
        model.n_iter_ += int(seen.all())
        status = _ending(status, objective, asked, bool(seen.all()))
        if status is not Status.SOLVED and epoch + 1 < model.max_iter:
            return status
        if status is Status.STOPPED or (status is Status.TIME_LIMIT and seen.all()):
            return Status.SOLVED  # nothing was left to do
    return status


def _ending(
    status: Status, objective: float, asked: Status | None, whole: bool
) -> Status:
    """Why to stop after this epoch, or SOLVED."""
    if not np.isfinite(objective):
        return Status.DIVERGED
    if status is not Status.SOLVED:
        return status
    return asked or (Status.SOLVED if whole else Status.TIME_LIMIT)


def _each_block(
    work: Callable[[int, Stop], None], n_blocks: int, in_turn: bool
) -> None:
    if in_turn:
        for block in range(n_blocks):
            work(block, lambda: False)
        return
    for first in range(0, n_blocks, SPAN):
        run_blocks(work, range(first, min(first + SPAN, n_blocks)))


def fitted_state(model: Model, moving: bool = True) -> dict[str, Any]:
    """The fitted attributes as of now; tables that are still moving are copied."""
    return {
        name: value.copy() if moving and isinstance(value, np.ndarray) else value
        for name, value in vars(model).items()
        if name.endswith("_") and name != "certificate_"
    }


class Sampled(Diagnosed):
    """Vectors whose loss on a sample of pairs can be measured again; a mixin."""

    def _measured(
        self,
        witness: PairsWitness | None,
        X: TextsLike | EncodedCorpus,
        y: ArrayLike,
        sample_weight: ArrayLike | None,
        level: str,
    ) -> list[Claim]:
        model: Any = self
        check_is_fitted(model, "context_vectors_")
        if witness is None:
            said = "not measured: the sample of pairs is not available"
            return [Claim("sample_loss", Strength.MEASURED, detail=said)]
        corpus = _numbered(model, X)
        target = str(getattr(model, "target", ""))
        kind = {"words": "text", "neighbours": "mean"}.get(target, "word")
        Z = model.document_vectors_ if kind == "text" else model.vectors_
        return embeddings.measure(
            np.asarray(Z),
            np.asarray(model.context_vectors_),
            embeddings.DocumentCodes(
                np.asarray(corpus.ids), np.asarray(corpus.offsets), len(corpus.words)
            ),
            embeddings.JudgedPairs(
                kind,
                np.asarray(witness.inputs),
                np.asarray(witness.targets),
                np.asarray(witness.noise),
                int(model.window),
            ),
            float(model.history_["objective"][-1]),
            f"lower learning_rate (now {model.learning_rate:g})",
        )


def _numbered(model: Model, texts: TextsLike | EncodedCorpus) -> EncodedCorpus:
    """The texts as places among the model's words; others are ignored."""
    if not isinstance(texts, EncodedCorpus):
        words = lookup(model)
        sources = model._sources(texts)
        return encode(sources, tokenizer=model.tokenizer, vocabulary=words)
    if list(texts.words) != list(model.vocabulary_):
        raise ValueError(
            "The corpus was encoded with a different vocabulary from the model's; "
            "pass the documents."
        )
    return texts


def fitted(
    model: Model, corpus: EncodedCorpus, sample: DrawnPairs, status: Status
) -> Fitted:
    """What the verifier gets from a fit: the pairs, and how to measure their loss."""
    witness = PairsWitness(
        np.asarray(sample.inputs, dtype=np.int64),
        np.asarray(sample.targets, dtype=np.int64),
        np.asarray(sample.noise, dtype=np.int32),
    )
    evidence = Evidence("negative_sampling", witness=witness)
    measured = model._to_measure(witness, corpus)
    return Fitted(evidence, corpus, None, None, status, measured=measured)


def check_training(model: Model) -> None:
    """Raise an error about the first invalid parameter."""
    check_number("n_components", model.n_components, 1, integer=True)
    check_number("negatives", model.negatives, 1, 1000, integer=True)
    check_number("subsample", model.subsample, open_low=True, none=True)
    check_number("learning_rate", model.learning_rate, open_low=True)
    check_number("min_learning_rate", model.min_learning_rate, 0, model.learning_rate)
    check_number("max_iter", model.max_iter, 1, integer=True)
    check_number("noise_power", model.noise_power, 0, 10)
    check_number("max_time", model.max_time, none=True)
