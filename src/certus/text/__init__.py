"""Texts as counts and vectors, and classifiers of texts."""

from __future__ import annotations

from certus.lazy import exports

#: The module of each public name that is not an estimator.
_WHERE = {
    "EncodedCorpus": "corpus",
    "LineCorpus": "words",
    "NoiseContrastiveFit": "contrastive",
    "UnknownWordError": "vectors",
    "Vocabulary": "vocabulary",
    "WordVectors": "vectors",
    "encode": "corpus",
    "glove_weights": "glove_solvers",
    "load_word2vec": "vectors",
    "noise_contrastive": "contrastive",
    "sentences": "words",
    "stdlib_docstrings": "datasets",
    "tokenize": "words",
}
__all__, __getattr__, __dir__ = exports(__name__, _WHERE)
