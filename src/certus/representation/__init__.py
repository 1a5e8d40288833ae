"""Vectors of images, sequences and table rows that are learnt without labels."""

from __future__ import annotations

from certus.lazy import exports

#: The module of each public name that is not an estimator.
_WHERE = {
    "effective_rank": "measures",
    "nt_xent": "measures",
    "probe": "probing",
    "retrieval": "measures",
}
__all__, __getattr__, __dir__ = exports(__name__, _WHERE)
