"""Synthetic tables one can defend: generators, and what their rows are worth.

``TableSynthesizer`` learns a table of mixed columns and draws rows like it; what it
says about them comes from :func:`certus.generative.examine`.
"""

from __future__ import annotations

from certus.lazy import exports

#: The module of each public name that is not an estimator.
_WHERE: dict[str, str] = {"MODELS": "models"}
__all__, __getattr__, __dir__ = exports(__name__, _WHERE)
