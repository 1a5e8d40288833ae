"""Bounds and counts from the theory of learning; plain formulas, no data."""

from certus.bounds.counting import cover_count

__all__ = ["cover_count"]
