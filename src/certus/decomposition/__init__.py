"""Principal components, factor analysis, matrix factors and linear networks."""

from __future__ import annotations

from certus.lazy import exports

#: The module of each public name that is not an estimator.
_WHERE = {
    "mode_strength": "modes",
    "non_negative_factorization": "factorizing",
}
__all__, __getattr__, __dir__ = exports(__name__, _WHERE)
