"""Kernel ridge regression, with scikit-learn's name, parameters and attributes."""

from __future__ import annotations

from certus.lazy import exports

__all__, __getattr__, __dir__ = exports(__name__)
