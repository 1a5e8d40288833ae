"""How names and numbers are written, in terminals, reports and JSON alike.

Names come from a user's file: control characters are escaped, long ones are cut.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

__all__ = ["clean", "number", "plain", "shorten", "unstopped"]


def clean(text: str) -> str:
    r"""Escape control characters: a column name must not control the terminal.

    Examples
    --------
    >>> clean("price\x1b[31m")
    'price\\x1b[31m'
    """
    if text.isprintable():
        return text
    return "".join(
        char if char.isprintable() or char == "\n" else ascii(char)[1:-1]
        for char in text
    )


def shorten(text: str, room: int = 40) -> str:
    """Cut a long name in its middle.

    Examples
    --------
    >>> shorten("a" * 50, 11)
    'aaaaa…aaaaa'
    """
    text = clean(text)
    half = (room - 1) // 2
    return text if len(text) <= room else f"{text[:half]}…{text[-half:]}"


def unstopped(text: object) -> str:
    """Drop the full stop at the end, so that a sentence can end after the text.

    Examples
    --------
    >>> f"{unstopped(ValueError('alpha must be positive.'))}. Try 1."
    'alpha must be positive. Try 1.'
    """
    return str(text).rstrip().rstrip(".")


def number(value: float, digits: int = 3) -> str:
    """A number with a few significant digits, as people write it.

    Examples
    --------
    >>> number(24123.4), number(54.3219), number(0.01234), number(1.5e-16, 2)
    ('24,100', '54.3', '0.0123', '1.5e-16')
    """
    rounded = float(f"{value:.{digits - 1}e}")
    if abs(rounded) >= 10 ** (digits - 1) and abs(rounded) < 1e9:
        return f"{rounded:,.0f}"
    return f"{rounded:.{digits}g}"


def plain(value: Any) -> Any:
    """JSON-ready copy: NumPy values as Python's, numbers that are not finite as null.

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
