"""Additive models: a shape for each column, chosen pairs, and a proof of the fit."""

from __future__ import annotations

from certus.lazy import exports

__all__, __getattr__, __dir__ = exports(__name__)
