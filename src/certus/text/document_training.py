"""How document vectors are trained, and found for new texts.

Texts are cut into blocks of like work that threads share; own words are predicted in
pieces of a text, words of neighbours by whole texts. The objective is that of
:mod:`certus.text.documents`, reported on a sample of pairs that is drawn once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from certus._core.threads import Stop, run_blocks
from certus.base import Fitted
from certus.callbacks import Monitor
from certus.text import sampling
from certus.text.corpus import EncodedCorpus
from certus.text.skipgram_kernels import compose, sigmoid_table, train_texts
from certus.text.vectors import pool
from certus.typing import Array, TextsLike

if TYPE_CHECKING:
    from certus.text.documents import DocumentVectors

#: How often pairs are drawn for the sample before the fit gives up.
TRIES = 50


def train(
    model: DocumentVectors,
    texts: TextsLike | EncodedCorpus,
    corpus: EncodedCorpus,
    inputs: Array,
    random: np.random.Generator,
) -> Fitted:
    """Run the epochs, and return what the verifier needs."""
    keep = sampling.keep_chances(corpus.counts, model.subsample)
    noise = sampling.Noise.of(corpus.counts, float(model.noise_power))
    own, offsets, d = model.target == "words", corpus.offsets, inputs.shape[1]
    sample = _draw_sample(model, corpus, keep, noise, random)
    true = np.asarray(corpus.ids[sample.targets])
    outputs, table = model.context_vectors_, sigmoid_table()
    blocks, owner = _cut(model, offsets)
    n_blocks, n_parts = len(blocks.edges) - 1, len(owner)
    fall = (model.learning_rate - model.min_learning_rate) / (n_parts * model.max_iter)
    reach = 0 if own else int(model.window)

    def visit(epoch: int, block: int) -> tuple[float, int]:
        first, last = blocks.edges[block], blocks.edges[block + 1]
        spans, low, high = _spans(blocks.ends, first, last, reach)
        tokens = np.array(corpus.ids[low:high], dtype=np.int32)
        if own:
            rows = np.array(owner[first:last], dtype=np.int32)
            row_ends = np.arange(len(rows) + 1, dtype=np.int64)
        else:
            row_ends = offsets[first : last + 1] - low
            rows = tokens
        rate = model.learning_rate - fall * (n_parts * epoch + first)
        seed = np.uint64(model.seed_ + epoch * n_blocks + block)
        return train_texts(
            *(tokens, spans, keep, rows, row_ends, inputs, outputs),
            *(noise.accept, noise.other, table, seed, (rate, fall)),
            (int(model.negatives), True),
        )

    def judge() -> float:
        if own:
            H = inputs[sample.inputs]
        else:
            H = np.empty((len(true), d), dtype=np.float32)
            compose(inputs, np.asarray(corpus.ids), offsets, sample.inputs, H)
        return sampling.sample_loss(H, outputs, true, sample.noise)

    def state(moving: bool = True) -> dict[str, Any]:
        if not own:
            ones = np.ones(len(inputs), dtype=np.float32)
            model.document_vectors_ = pool(corpus.ids, offsets, ones, inputs)
        return sampling.fitted_state(model, moving)

    monitor = Monitor(model, texts, None, None, model.max_time)
    status = sampling.run_epochs(model, monitor, n_blocks, visit, judge, state)
    monitor.close(state(moving=False))
    return sampling.fitted(model, corpus, sample, status)


def _cut(model: DocumentVectors, offsets: Array) -> tuple[sampling.TextBlocks, Array]:
    """Blocks of work, and the text that each piece belongs to.

    Own words are predicted in pieces; neighbours by whole texts.
    """
    if model.target == "words":
        blocks = sampling.cut(offsets, _size(model))
        return blocks, _owner(offsets, blocks)
    edges = _groups(offsets, _size(model) // (2 * int(model.window)))
    return sampling.TextBlocks(offsets, edges), np.arange(len(offsets) - 1)


def _size(model: DocumentVectors) -> int:
    """Tokens of a block."""
    work = (int(model.negatives) + 1) * (int(model.n_components) + 64)
    return sampling.WORK // work


def _owner(offsets: Array, blocks: sampling.TextBlocks) -> Array:
    """The text of each piece; of texts that begin at the same place, the last."""
    return np.searchsorted(offsets[:-1], blocks.ends[:-1], side="right") - 1


def _groups(offsets: Array, size: int) -> Array:
    """Where blocks of whole texts begin, of about ``size`` tokens, and the end."""
    marks = np.arange(0, max(1, offsets[-1]), max(1, size))
    places = np.searchsorted(offsets, marks)
    return np.unique(np.append(places, len(offsets) - 1))


def _spans(ends: Array, first: int, last: int, reach: int) -> tuple[Array, int, int]:
    """Which tokens each piece predicts, counted from the first; that and the end.

    Without reach its own; else those of the texts around it.
    """
    parts, most = np.arange(first, last), len(ends) - 1
    if reach == 0:
        spans = ends[np.column_stack([parts, parts + 1, parts + 1, parts + 1])]
    else:
        before = np.maximum(parts - reach, 0)
        after = np.minimum(parts + 1 + reach, most)
        spans = ends[np.column_stack([before, parts, parts + 1, after])]
    low, high = int(spans[0, 0]), int(spans[-1, 3])
    return spans - low, low, high


def _draw_sample(
    model: DocumentVectors,
    corpus: EncodedCorpus,
    keep: Array,
    noise: sampling.Noise,
    random: np.random.Generator,
) -> sampling.DrawnPairs:
    """Pairs of a text and the place of a word, all equally likely, after thinning."""
    most = sampling.sample_size(int(model.negatives), int(model.n_components))
    lengths, n = np.diff(corpus.offsets), len(corpus.offsets) - 1
    inputs, targets = np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64)
    for _ in range(TRIES):
        places = random.integers(0, corpus.offsets[-1], 4 * most)
        places = places[random.random(len(places)) < keep[corpus.ids[places]]]
        home = np.searchsorted(corpus.offsets, places, side="right") - 1
        if model.target == "neighbours":
            steps = random.integers(1, int(model.window) + 1, len(home))
            home += steps * random.choice([-1, 1], len(home))
            fine = (home >= 0) & (home < n)
            fine[fine] = lengths[home[fine]] > 0
            home, places = home[fine], places[fine]
        inputs, targets = np.append(inputs, home), np.append(targets, places)
        if len(inputs) >= most:
            break
    if not len(inputs):
        raise ValueError(
            f"There are no pairs of a text and a word to learn from: {n:,} texts, "
            f"target={model.target!r}, subsample={model.subsample}. Pass more texts, "
            "or set subsample to None."
        )
    inputs, targets = inputs[:most], targets[:most]
    drawn = noise.draw(random, (len(inputs), int(model.negatives)))
    return sampling.DrawnPairs(inputs, targets, drawn)


def infer(model: DocumentVectors, corpus: EncodedCorpus) -> Array:
    """Gradient descent from zero with u fixed, pass by pass; texts are independent."""
    out = np.zeros((corpus.n_documents, int(model.n_components)), dtype=np.float32)
    if not len(corpus.ids):
        return out
    keep = sampling.keep_chances(model.counts_, model.subsample)
    noise = sampling.Noise.of(model.counts_, float(model.noise_power))
    outputs = np.ascontiguousarray(model.context_vectors_, dtype=np.float32)
    groups = _groups(corpus.offsets, _size(model))
    table, passes = sigmoid_table(), int(model.max_iter)
    fall = (model.learning_rate - model.min_learning_rate) / passes

    def visit(group: int, stop: Stop) -> None:
        first, last = groups[group], groups[group + 1]
        offsets = corpus.offsets[first : last + 1]
        blocks = sampling.cut(offsets, _size(model))
        owner = first + _owner(offsets, blocks)
        for turn in range(passes):
            rates = (model.learning_rate - fall * turn, 0.0)
            seed = np.uint64(model.seed_ + turn)
            for start, end in zip(blocks.edges[:-1], blocks.edges[1:]):
                if stop():
                    return
                spans, low, high = _spans(blocks.ends, start, end, 0)
                tokens = np.array(corpus.ids[low:high], dtype=np.int32)
                rows = np.array(owner[start:end], dtype=np.int32)
                train_texts(
                    *(tokens, spans, keep, rows, np.arange(len(rows) + 1), out),
                    *(outputs, noise.accept, noise.other, table, seed, rates),
                    (int(model.negatives), False),
                )

    run_blocks(visit, range(len(groups) - 1))
    return out
