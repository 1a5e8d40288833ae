"""From scores to probabilities, and from probabilities to decisions."""

from __future__ import annotations

from certus.lazy import exports

__all__, __getattr__, __dir__ = exports(__name__)
