"""Text as counts and vectors: words, documents, and classifiers of both."""

__all__: list[str] = []
