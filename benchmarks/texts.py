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

        model = FastTextClassifier(loss=loss, tokenizer="whitespace")
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


CLASSIFICATION_NOTE = (
    "gap: errors on 20,000 further texts; ours reads a list, fastText a file"
)

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
)
