"""The public test kit: what certus tests itself with, for use on your own models.

Names are imported when first used, so that ``certus list``, which reads the catalog,
loads neither the estimators nor their solvers.
"""

from certus.lazy import lazily

_WHERE = {
    "Item": "items",
    "Section": "items",
    "catalog": "items",
    "resolve": "items",
    "sections": "items",
}

__all__ = sorted(_WHERE)
__getattr__, __dir__ = lazily(__name__, _WHERE, __all__)
