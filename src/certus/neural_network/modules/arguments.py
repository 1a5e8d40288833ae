"""Checks of a network's arguments, with errors in one sentence."""

from __future__ import annotations

from numbers import Integral
from typing import Any


def require_choice(name: str, value: object, choices: tuple[Any, ...]) -> None:
    """Raise unless ``value`` is one of ``choices``."""
    if value not in choices:
        shown = ", ".join(repr(c) for c in choices)
        raise ValueError(f"{name} must be one of {shown}, got {value!r}.")


def require_count(name: str, value: object) -> int:
    """``value`` as an int; raises an error unless it is a whole number above 0."""
    if not isinstance(value, Integral) or isinstance(value, bool) or value < 1:
        raise ValueError(f"{name} must be a whole number above 0, got {value!r}.")
    return int(value)


def require_counts(name: str, values: object) -> tuple[int, ...]:
    """``values`` as ints; raises an error unless there are some, all above 0."""
    if not isinstance(values, tuple | list) or not values:
        raise ValueError(f"{name} must be a list of whole numbers, got {values!r}.")
    return tuple(require_count(f"each of {name}", value) for value in values)
