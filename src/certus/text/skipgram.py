"""Skip-gram with negative sampling: words with similar contexts lie close together.

    objective = mean over pairs (x, w) of −log σ(z_x·u_w) − Σⱼ log σ(−z_x·u_{nⱼ})

A pair is a word x within the window of a word w; n₁ … n_k are drawn from the noise
q ∝ count^noise_power. This is logistic regression of real against sampled pairs, whose
optimum for vectors of full length is z_x·u_w = log p(x, w)/(p(x)q(w)) − log k.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Unpack

import numpy as np

from certus._core.sharing import shares
from certus.base import Fitted, Model, certified_fit, check_number, generator_of
from certus.callbacks import Monitor
from certus.text import sampling
from certus.text.corpus import EncodedCorpus
from certus.text.counts import document_counts
from certus.text.parameters import SamplingOptions, WindowOptions, WordOptions
from certus.text.skipgram_kernels import (
    collect_pairs,
    compose,
    sigmoid_table,
    train_words,
)
from certus.text.vectors import WordVectors
from certus.typing import Array, ArrayLike, TextsLike

__all__ = ["SkipGram"]

#: Tokens looked at for the sample of pairs, and how often if they leave few.
LOOK, TRIES = 200_000, 20


class WordInputs(NamedTuple):
    """Input rows of each word: ``values[ends[w]:ends[w + 1]]``."""

    values: Array
    ends: Array

    @classmethod
    def one_each(cls, n: int) -> WordInputs:
        """Row w for word w."""
        return cls(np.arange(n, dtype=np.int32), np.arange(n + 1, dtype=np.int64))


@shares(WindowOptions, SamplingOptions)
class SkipGram(sampling.Sampled, WordVectors, Model):
    """Word vectors by skip-gram with negative sampling (word2vec).

    Objective
    ---------
    mean over pairs (x, w) of −log σ(z_x·u_w) − Σⱼ log σ(−z_x·u_{nⱼ})

    over pairs of a word w and a word x within its window, after frequent words are
    thinned out, with k = ``negatives`` words nⱼ drawn from q(w) ∝ count(w)^power. Drawn
    words that happen to be w count as noise too. Minimised by stochastic gradient
    descent, one pair at a time, with a step that falls linearly.

    Certificate
    -----------
    ``reported_loss`` (MEASURED): the objective over a sample of pairs, drawn once from
    ``random_state``, is what the training reported in ``history_["objective"]``,
    recomputed in float64 from the vectors and the words at the sampled places of the
    corpus. ``sample_loss``, ``gradient_norm`` and ``pairs_told_apart`` (MEASURED): that
    loss, the length of its gradient, and how often the true word scores above a drawn
    one. There is no guarantee for other pairs, or for how far the loss is from its
    minimum. Cost: one pass over the corpus for its fingerprint, and the sample of at
    most 10,000 pairs.

    Parameters
    ----------
    n_components : int, default=100
        Number of components. This is the length of the vectors.
    {shared}

    Attributes
    ----------
    vocabulary_ : list of str
        The words, by falling count.
    vectors_ : ndarray of shape (n_words, n_components)
        z, float32.
    context_vectors_ : ndarray of shape (n_words, n_components)
        u, float32.
    counts_, document_counts_ : ndarray of int64
        Occurrences of each word, and documents that hold it.
    n_documents_ : int
        Number of documents.
    n_iter_ : int
        Epochs completed.
    n_pairs_ : int
        Pairs visited.
    history_ : dict
        After each epoch, also one cut short: ``objective``, the loss of the fixed
        sample with the vectors as they then are; ``running_loss``, the mean over all
        pairs of the epoch, each with the vectors as they were just before its own step;
        ``seconds``.
    certificate_ : Certificate
        What the verifier found.

    Notes
    -----
    Time: pairs × (negatives + 1) × n_components. Memory: two tables of float32 and the
    corpus as int32, on disk if it is long. Texts beyond 10,000 words are cut, and no
    window reaches across.

    Examples
    --------
    >>> from certus.text import SkipGram
    >>> texts = ["red green blue red blue green", "one two three two one three"] * 50
    >>> model = SkipGram(8, subsample=None, max_iter=20, deterministic=True,
    ...                  random_state=0).fit(texts)
    >>> sorted(word for word, _ in model.most_similar("red", n=2))
    ['blue', 'green']
    """

    def __init__(
        self,
        n_components: int = 100,
        **shared: Unpack[WordOptions],
    ) -> None: ...

    @certified_fit
    def fit(self, texts: TextsLike | EncodedCorpus, y: ArrayLike | None = None) -> Any:
        """Learn vectors from texts.

        Parameters
        ----------
        texts : iterable of str or of sequences of str, or EncodedCorpus
            Documents; a generator serves. A corpus from :func:`certus.text.encode` is
            taken as it is.
        y : None
            Ignored.
        """
        check_pairs(self)
        corpus = self._read(texts)
        random = generator_of(self.random_state)
        n, d = len(corpus.words), int(self.n_components)
        inputs = sampling.start_vectors(n, d, random)
        outputs = np.zeros((n, d), dtype=np.float32)
        if self.warm_start:
            continue_from(self, corpus.words, inputs, outputs)
        self.vectors_, self.context_vectors_ = inputs, outputs
        return train(self, texts, corpus, inputs, WordInputs.one_each(n), random)


def check_pairs(model: Model) -> None:
    """Check the parameters of models that learn from pairs of words."""
    sampling.check_training(model)
    check_number("window", model.window, 1, integer=True)


def continue_from(
    model: Model, words: list[str], inputs: Array, outputs: Array
) -> None:
    """Give words that had vectors in the last fit the same ones."""
    old = getattr(model, "vectors_", None)
    if old is None or old.shape[1] != inputs.shape[1]:
        return
    places = {word: i for i, word in enumerate(model.vocabulary_)}
    before = np.array([places.get(word, -1) for word in words], dtype=np.int64)
    known = np.flatnonzero(before >= 0)
    inputs[known] = old[before[known]]
    outputs[known] = model.context_vectors_[before[known]]


def train(
    model: Model,
    texts: TextsLike | EncodedCorpus,
    corpus: EncodedCorpus,
    inputs: Array,
    rows: WordInputs,
    random: np.random.Generator,
) -> Fitted:
    """Move ``inputs`` and ``model.context_vectors_``; words have several input rows.

    ``model.vectors_`` becomes the mean of each word's rows.
    """
    keep = sampling.keep_chances(corpus.counts, model.subsample)
    noise = sampling.Noise.of(corpus.counts, float(model.noise_power))
    settings = (int(model.window), bool(model.dynamic_window), int(model.negatives))
    sample = _draw_sample(model, corpus, keep, noise, settings, random)
    _describe(model, corpus)
    outputs, table = model.context_vectors_, sigmoid_table()
    words = np.asarray(corpus.ids[sample.inputs], dtype=np.int64)
    true = np.asarray(corpus.ids[sample.targets])
    d, k = inputs.shape[1], settings[2]
    work = settings[0] * (k + 1) * (d + 64) * (1 + len(rows.values) // len(noise.share))
    blocks = sampling.cut(corpus.offsets, sampling.WORK // work)
    n_blocks, size = len(blocks.edges) - 1, int(corpus.offsets[-1])
    fall = (model.learning_rate - model.min_learning_rate) / (size * model.max_iter)
    base = int(random.integers(1 << 62))

    def visit(epoch: int, block: int) -> tuple[float, int]:
        ends = blocks.ends[blocks.edges[block] : blocks.edges[block + 1] + 1]
        tokens = np.array(corpus.ids[ends[0] : ends[-1]], dtype=np.int32)
        rate = model.learning_rate - fall * (size * epoch + ends[0])
        seed = np.uint64(base + epoch * n_blocks + block)
        return train_words(
            *(tokens, ends - ends[0], keep, rows.values, rows.ends, inputs, outputs),
            *(noise.accept, noise.other, table, seed, (rate, fall), settings),
        )

    def judge() -> float:
        H = np.empty((len(words), d), dtype=np.float32)
        compose(inputs, rows.values, rows.ends, words, H)
        return sampling.sample_loss(H, outputs, true, sample.noise)

    def state(moving: bool = True) -> dict[str, Any]:
        if model.vectors_ is not inputs:
            every = np.arange(len(model.vectors_))
            compose(inputs, rows.values, rows.ends, every, model.vectors_)
        return sampling.fitted_state(model, moving)

    monitor = Monitor(model, texts, None, None, model.max_time)
    status = sampling.run_epochs(model, monitor, n_blocks, visit, judge, state)
    monitor.close(state(moving=False))
    return sampling.fitted(model, corpus, sample, status)


def _draw_sample(
    model: Model,
    corpus: EncodedCorpus,
    keep: Array,
    noise: sampling.Noise,
    settings: tuple[int, bool, int],
    random: np.random.Generator,
) -> sampling.DrawnPairs:
    """Pairs from pieces of the corpus in a random order, as the training meets them."""
    if np.diff(corpus.offsets).max(initial=0) < 2:
        raise ValueError(
            "No text holds two words of the vocabulary, so there are no pairs to learn "
            "from. Lower min_count, or pass longer texts."
        )
    ends = sampling.cut(corpus.offsets, sampling.PIECE).ends
    pieces = random.permutation(np.flatnonzero(np.diff(ends) > 1))
    pieces = pieces[: 1 + np.searchsorted(np.cumsum(np.diff(ends)[pieces]), LOOK)]
    found, n = np.empty((LOOK * 10, 2), dtype=np.int64), 0
    most = sampling.sample_size(settings[2], int(model.n_components))
    for _ in range(TRIES):
        for p in pieces:
            if n >= most * 2 and n >= len(found) // 2:
                break
            tokens = np.array(corpus.ids[ends[p] : ends[p + 1]], dtype=np.int32)
            seed = np.uint64(random.integers(1 << 62))
            span = np.array([0, len(tokens)])
            before = n
            n = int(collect_pairs(tokens, span, keep, seed, settings, found, n))
            found[before:n] += ends[p]
        if n >= most:
            break
    if n == 0:
        raise ValueError(
            f"subsample={model.subsample:g} leaves no pairs of words. Raise it, or set "
            "it to None to keep every word."
        )
    chosen = np.sort(random.choice(n, min(n, most), replace=False))
    drawn = noise.draw(random, (len(chosen), settings[2]))
    return sampling.DrawnPairs(found[chosen, 0], found[chosen, 1], drawn)


def _describe(model: Model, corpus: EncodedCorpus) -> None:
    """The counts of the corpus that document vectors and other weights need."""
    model.vocabulary_ = corpus.words
    model.counts_ = np.asarray(corpus.counts, dtype=np.int64)
    model.document_counts_ = document_counts(corpus)
    model.n_documents_ = corpus.n_documents
