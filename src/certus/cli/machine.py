"""JSON for machines: one document on stdout, strict and in ASCII."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Mapping
from typing import Any

__all__ = ["plain", "say_json"]


def say_json(value: Any) -> None:
    """Write one JSON document to stdout."""
    sys.stdout.write(json.dumps(plain(value), indent=2, allow_nan=False) + "\n")


def plain(value: Any) -> Any:
    """JSON-ready copy: NumPy by value, what is not finite as null.

    Examples
    --------
    >>> plain({"gap": float("inf"), "size": (2, 3)})
    {'gap': None, 'size': [2, 3]}
    """
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(item) for item in value]
    if hasattr(value, "tolist"):
        return plain(value.tolist())
    return repr(value)
