"""Rows for word vectors and text classification.

Texts are generated as those of the first measurements were: words by Zipf's law, each
with a topic, and half the tokens of a text redrawn among the words of its topic. Where
that recipe leaves a choice, ours was the first one tried: topics of words are drawn
uniformly, and 20,000 further texts are kept for testing. It gives the published number
of distinct words per text (3.38 million in all) and fastText the published accuracy to
a thousandth.
"""

import ctypes
import tempfile
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.random import default_rng

from benchmarks.machines import handed_over
from benchmarks.peers import Fit, Problem
from benchmarks.rows import Contender, Row, ours

# -- classification: data ---------------------------------------------------------


class Held(NamedTuple):
    """Texts kept for testing, and the training file that fastText reads."""

    texts: list[str]
    labels: Any
    path: Path


_FOLDER = tempfile.TemporaryDirectory(prefix="certus-bench-")


@lru_cache(maxsize=2)
def labelled_texts(scale: int = 1) -> tuple[list[str], Any, Held]:
    """200,000 texts of 20 tokens over 20,000 words, 50 classes; 20,000 for testing."""
    rng, n_train, n_words, classes = default_rng(0), 200_000 // scale, 20_000, 50
    n = n_train + 20_000 // scale
    p = 1 / np.arange(1, n_words + 1)
    p /= p.sum()
    topic = rng.integers(0, classes, n_words)
    y = rng.integers(0, classes, n)
    tokens = rng.choice(n_words, (n, 20), p=p)
    redrawn = rng.random((n, 20)) < 0.5
    for k in range(classes):
        mine, rows = np.flatnonzero(topic == k), np.flatnonzero(y == k)
        some, moved = tokens[rows], redrawn[rows]
        some[moved] = rng.choice(mine, moved.sum(), p=p[mine] / p[mine].sum())
        tokens[rows] = some
    names = np.array([f"w{i}" for i in range(n_words)])
    texts = [" ".join(row) for row in names[tokens].tolist()]
    path = Path(_FOLDER.name) / f"train-{scale}.txt"
    lines = (f"__label__{k} {text}\n" for k, text in zip(y, texts[:n_train]))
    path.write_text("".join(lines))
    held = Held(texts[n_train:], y[n_train:], path)
    return texts[:n_train], y[:n_train], held


def _classification(scale: int) -> Problem:
    texts, y, held = labelled_texts(scale)
    return Problem(texts, y, None, queries=held, judge=test_error)


def test_error(p: Problem, fit: Fit) -> float:
    """Share of the texts kept for testing that are misclassified."""
    return float(np.mean(fit.coef.predict(p.queries.texts) != p.queries.labels))


# -- classification: contenders ---------------------------------------------------


def our_classifier(loss: str) -> Any:
    def fit(p: Problem, tol: float) -> Fit:
        from certus.text import FastTextClassifier

        model = FastTextClassifier(loss=loss, tokenizer="whitespace", random_state=0)
        return handed_over(model.fit(p.X, p.y))

    return fit


#: glibc's number of that setting.
M_PERTURB = -6


class _FastText(NamedTuple):
    """fastText's model with a ``predict`` on lists."""

    model: Any

    def predict(self, texts: list[str]) -> Any:
        labels, _ = self.model.predict(texts)
        return np.array([int(row[0].removeprefix("__label__")) for row in labels])


def fasttext(loss: str) -> Any:
    def fit(p: Problem, tol: float) -> Fit:
        import fasttext

        path = str(p.queries.path)
        options = {"dim": 100, "epoch": 5, "thread": 2, "verbose": 0}
        # The wheel reads memory that nobody wrote, and stops at a NaN unless it is
        # zero: glibc fills what it hands out with the complement of this byte.
        fill = ctypes.CDLL(None).mallopt
        fill(M_PERTURB, 255)
        try:
            model = fasttext.train_supervised(path, loss=loss, **options)
        finally:
            fill(M_PERTURB, 0)
        return Fit(_FastText(model))

    return fit


def naive_bayes(p: Problem, tol: float) -> Fit:
    from sklearn.feature_extraction.text import CountVectorizer
    from sklearn.naive_bayes import MultinomialNB
    from sklearn.pipeline import make_pipeline

    return Fit(make_pipeline(CountVectorizer(), MultinomialNB()).fit(p.X, p.y))


def _classifiers(loss: str, bar: float, theirs: str) -> tuple[Contender, ...]:
    return (
        ours(our_classifier(loss), bar),
        Contender("fastText", fasttext(theirs)),
        Contender("sklearn counts + naive Bayes", naive_bayes, kind="reference"),
    )


# -- skip-gram --------------------------------------------------------------------


class Pairs(NamedTuple):
    """Pairs of a further corpus with their noise, and what the contenders read."""

    inputs: Any
    words: Any  # the true word, then five drawn ones
    encoded: Any
    sentences: list[list[str]]
    counts: dict[str, int]


def sentences(n: int, topic: Any, rng: Any) -> Any:
    """n × 20 tokens by Zipf's law, half of them redrawn within the sentence's topic."""
    p = 1 / np.arange(1, len(topic) + 1)
    tokens = rng.choice(len(topic), (n, 20), p=p / p.sum())
    y, redrawn = rng.integers(0, 50, n), rng.random((n, 20)) < 0.5
    for k in range(50):
        mine, rows = np.flatnonzero(topic == k), np.flatnonzero(y == k)
        some, moved = tokens[rows], redrawn[rows]
        some[moved] = rng.choice(mine, moved.sum(), p=p[mine] / p[mine].sum())
        tokens[rows] = some
    return tokens


def held_out_pairs(tokens: Any, counts: Any, rng: Any) -> tuple[Any, Any]:
    """Pairs as word2vec makes them: thinned, windows of 1 to 5; five drawn words."""
    share = counts / counts.sum()
    with np.errstate(divide="ignore"):
        keep = np.sqrt(1e-3 / share) + 1e-3 / share
    pairs = []
    for row in tokens:
        row = row[rng.random(len(row)) < keep[row]]
        for i, reach in enumerate(rng.integers(1, 6, len(row))):
            near = row[max(0, i - reach) : i + reach + 1]
            at = min(i, reach)
            pairs += [(x, row[i]) for j, x in enumerate(near) if j != at]
    inputs, true = np.array(pairs).T
    noise = counts**0.75 / np.sum(counts**0.75)
    drawn = rng.choice(len(counts), (len(inputs), 5), p=noise)
    return inputs, np.column_stack([true, drawn])


@lru_cache(maxsize=1)
def _skip_gram(scale: int) -> Problem:
    from certus.text import encode

    rng = default_rng(0)
    topic = rng.integers(0, 50, 20_000)
    tokens = sentences(250_000 // scale, topic, rng)
    names = np.array([f"w{i}" for i in range(len(topic))])
    lists = names[tokens].tolist()
    counts = np.bincount(tokens.ravel(), minlength=len(topic))
    inputs, words = held_out_pairs(sentences(2_500, topic, rng), counts, rng)
    known = (counts[words] > 0).all(axis=1) & (counts[inputs] > 0)
    named = {name: int(c) for name, c in zip(names, counts) if c}
    held = Pairs(inputs[known], words[known], encode(lists), lists, named)
    return Problem(tokens, None, None, queries=held, judge=held_out_loss)


def held_out_loss(p: Problem, fit: Fit) -> float:
    """Mean of −log σ(z·u) − Σ log σ(−z·uⱼ) over the held-out pairs, in float64."""
    words, Z, U = fit.coef
    place = np.zeros(20_000, dtype=np.int64)
    place[[int(word[1:]) for word in words]] = np.arange(len(words))
    H = np.asarray(Z)[place[p.queries.inputs]].astype(float)
    total = np.zeros(len(H))
    for j, column in enumerate(p.queries.words.T):
        z = np.einsum("ij,ij->i", H, np.asarray(U)[place[column]])
        total += np.logaddexp(0, z if j else -z)
    return float(total.mean())


def our_skip_gram(numbered: bool) -> Any:
    def fit(p: Problem, tol: float) -> Fit:
        from certus.text import SkipGram

        model = SkipGram(max_iter=1, min_count=1, random_state=0)
        model.fit(p.queries.encoded if numbered else p.queries.sentences)
        found = (model.vocabulary_, model.vectors_, model.context_vectors_)
        return Fit(found, certificate_seconds=model.certificate_.seconds)

    return fit


def gensim(counted: bool) -> Any:
    def fit(p: Problem, tol: float) -> Fit:
        from gensim.models import Word2Vec

        options = {"vector_size": 100, "window": 5, "negative": 5, "sg": 1}
        model = Word2Vec(**options, min_count=1, workers=2, seed=0)
        texts = p.queries.sentences
        if counted:
            model.build_vocab_from_freq(p.queries.counts, corpus_count=len(texts))
        else:
            model.build_vocab(texts)
        model.train(texts, total_examples=len(texts), epochs=1)
        return Fit((model.wv.index_to_key, model.wv.vectors, model.syn1neg))

    return fit


CLASSIFICATION_NOTE = (
    "gap: errors on 20,000 further texts; ours reads a list, fastText a file"
)

#: Loss of held-out pairs that gensim reaches in one epoch.
SKIP_GRAM_LOSS = 2.297

ROWS: tuple[Row, ...] = (
    Row(
        "text classification 200,000 × 20 tokens, 50 classes, softmax",
        _classification,
        0.0075,
        _classifiers("softmax", 0.0075, "softmax"),
        (("fastText", 1.0),),
        CLASSIFICATION_NOTE,
    ),
    Row(
        "text classification 200,000 × 20 tokens, 50 classes, hierarchical",
        _classification,
        0.0195,
        _classifiers("hierarchical", 0.0195, "hs"),
        (("fastText", 1.0),),
        CLASSIFICATION_NOTE,
    ),
    Row(
        "skip-gram, 5 M tokens, dim 100, window 5, 5 negatives",
        _skip_gram,
        SKIP_GRAM_LOSS,
        (
            ours(our_skip_gram(numbered=True), 0.0),
            Contender("gensim", gensim(counted=True)),
        ),
        (("gensim", 1.5),),
        "gap: loss of held-out pairs; words are counted beforehand for both",
    ),
    Row(
        "skip-gram, same, words counted on the way",
        _skip_gram,
        SKIP_GRAM_LOSS,
        (
            ours(our_skip_gram(numbered=False), 0.0),
            Contender("gensim", gensim(counted=False)),
        ),
        (("gensim", 1.5),),
        "gap: loss of held-out pairs",
    ),
)
