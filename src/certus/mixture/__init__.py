"""Gaussian mixtures, and EM for any model with hidden variables."""

from __future__ import annotations

from certus.lazy import exports

#: The module of each public name that is not an estimator.
_WHERE = {
    "EM": "em",
    "gaussian_start": "starts",
}
__all__, __getattr__, __dir__ = exports(__name__, _WHERE)
