"""The public test kit: what certus tests itself with, for use on your own models.

Names are imported when first used, so that ``certus list``, which reads the catalog,
loads neither the estimators nor their solvers.
"""

import importlib
from typing import Any

_HOME = {
    "Item": "registry",
    "Section": "registry",
    "catalog": "registry",
    "resolve": "registry",
    "sections": "registry",
}

__all__ = sorted(_HOME)


def __getattr__(name: str) -> Any:
    """Import a public name from its module on first use."""
    if name not in _HOME:
        raise AttributeError(f"module 'certus.testing' has no attribute {name!r}")
    value = getattr(importlib.import_module(f"certus.testing.{_HOME[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """List the public names."""
    return list(__all__)
