"""Text as counts and vectors: words, documents, and classifiers of both."""

from certus.text.corpus import (
    Encoded,
    LineCorpus,
    documents,
    encode,
    sentences,
    tokenize,
)

__all__ = [
    "Encoded",
    "LineCorpus",
    "documents",
    "encode",
    "sentences",
    "tokenize",
]
