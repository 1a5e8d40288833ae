"""certus: machine learning that shows its proof.

Public names are imported on first use: ``import certus`` loads neither numba, torch
nor scikit-learn's estimators.
"""

from __future__ import annotations

import importlib
from typing import Any

__version__ = "0.1.0"

#: Where each public name lives.
_WHERE = {
    "audit": "certus.report",
    "certify": "certus.verify",
    "compare": "certus.selection",
    "load": "certus.persist",
    "save": "certus.persist",
    "set_config": "certus.config",
    "get_config": "certus.config",
    "config_context": "certus.config",
    "show_versions": "certus.config",
    "Certificate": "certus.certificate",
    "Claim": "certus.certificate",
    "Status": "certus.certificate",
    "Strength": "certus.certificate",
}
_PACKAGES = (
    "deep",
    "factor",
    "kernel",
    "linear",
    "losses",
    "mixture",
    "neighbors",
    "nets",
    "optimize",
    "report",
    "selection",
    "table",
    "terms",
    "testing",
    "text",
    "verify",
)

__all__ = ["__version__", *sorted(_WHERE), *_PACKAGES]


def __getattr__(name: str) -> Any:
    if name in _WHERE:
        return getattr(importlib.import_module(_WHERE[name]), name)
    if name in _PACKAGES:
        return importlib.import_module(f"certus.{name}")
    raise AttributeError(f"module 'certus' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
