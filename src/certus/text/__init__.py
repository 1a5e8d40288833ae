"""Text as counts and vectors: words, documents, and classifiers of both.

``TextConvClassifier``, which needs PyTorch, is imported when it is first used.
"""

from certus.lazy import lazily
from certus.text.classifier import FastTextClassifier
from certus.text.contrastive import NoiseContrastiveFit, noise_contrastive
from certus.text.cooccurrence import Cooccurrence
from certus.text.corpus import Encoded, encode
from certus.text.counts import BagOfWords
from certus.text.datasets import stdlib_docstrings
from certus.text.documents import DocumentVectors
from certus.text.glove import GloVe
from certus.text.glove_solvers import glove_weights
from certus.text.skipgram import SkipGram
from certus.text.subword import FastTextVectors
from certus.text.vectors import (
    PretrainedVectors,
    UnknownWordError,
    WordVectors,
    load_word2vec,
)
from certus.text.vocabulary import Vocabulary
from certus.text.words import LineCorpus, sentences, tokenize

__all__ = [
    "BagOfWords",
    "Cooccurrence",
    "DocumentVectors",
    "Encoded",
    "FastTextClassifier",
    "FastTextVectors",
    "GloVe",
    "LineCorpus",
    "NoiseContrastiveFit",
    "PretrainedVectors",
    "SkipGram",
    "TextConvClassifier",
    "UnknownWordError",
    "Vocabulary",
    "WordVectors",
    "encode",
    "glove_weights",
    "load_word2vec",
    "noise_contrastive",
    "sentences",
    "stdlib_docstrings",
    "tokenize",
]

_WHERE = {"TextConvClassifier": "convolution"}
__getattr__, __dir__ = lazily(__name__, _WHERE, __all__)
