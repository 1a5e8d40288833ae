"""Watching a model in use: which columns moved, and whether intervals still hold."""

from __future__ import annotations

from certus.lazy import exports

#: The module of each public name.
_WHERE = {
    "ColumnMove": "columns",
    "CoverageWatch": "coverage",
    "Watch": "watching",
    "watch": "watching",
}
__all__, __getattr__, __dir__ = exports(__name__, _WHERE)
