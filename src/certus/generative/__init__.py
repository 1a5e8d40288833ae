"""Generative models, divergences, transport maps, and diffusions in closed form."""

from __future__ import annotations

from certus.lazy import exports

#: The module of each public name that is not an estimator.
_WHERE: dict[str, str] = {}
__all__, __getattr__, __dir__ = exports(__name__, _WHERE)
