"""Explanations: what each column contributed, and what would flip a decision."""

from __future__ import annotations

from certus.lazy import exports

#: The module of each public name.
_WHERE = {
    "Contributions": "contributions",
    "NearestChange": "nearest",
    "explain": "explaining",
    "nearest_change": "nearest",
}
__all__, __getattr__, __dir__ = exports(__name__, _WHERE)
