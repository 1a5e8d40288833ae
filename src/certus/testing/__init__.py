"""The public test kit: what certus tests itself with, for use on your own models.

Names are imported when first used, so that ``certus list``, which reads the catalog,
loads neither the estimators nor their solvers.
"""

from __future__ import annotations

from certus.lazy import exports

#: The module of each public name.
_WHERE = {
    "Item": "items",
    "Section": "items",
    "assert_certified": "checks",
    "catalog": "items",
    "resolve": "items",
    "sections": "items",
}
__all__, __getattr__, __dir__ = exports(__name__, _WHERE)
