"""JSON for machines: one document on stdout, strict and in ASCII."""

from __future__ import annotations

import json
import sys
from typing import Any

from certus.wording import plain

__all__ = ["say_json"]


def say_json(value: Any) -> None:
    """Write one JSON document to stdout."""
    sys.stdout.write(json.dumps(plain(value), indent=2, allow_nan=False) + "\n")
