"""Labels for all rows or nodes from those of a few, carried along a graph."""

from __future__ import annotations

from certus.lazy import exports

__all__, __getattr__, __dir__ = exports(__name__)
