"""Text as counts and vectors: words, documents, and classifiers of both."""

from certus.text.classifier import FastTextClassifier
from certus.text.cooccurrence import Cooccurrence
from certus.text.corpus import (
    Encoded,
    LineCorpus,
    Vocabulary,
    documents,
    encode,
    sentences,
    tokenize,
)
from certus.text.counts import BagOfWords
from certus.text.glove import GloVe
from certus.text.skipgram import SkipGram
from certus.text.subword import FastTextVectors
from certus.text.vectors import (
    PretrainedVectors,
    UnknownWordError,
    WordVectors,
    load_word2vec,
)

__all__ = [
    "BagOfWords",
    "Cooccurrence",
    "Encoded",
    "FastTextClassifier",
    "FastTextVectors",
    "GloVe",
    "LineCorpus",
    "PretrainedVectors",
    "SkipGram",
    "UnknownWordError",
    "Vocabulary",
    "WordVectors",
    "encode",
    "load_word2vec",
    "sentences",
    "tokenize",
]
