"""What every statement about a foreign model shares: refusals, names, the note."""

from __future__ import annotations

from typing import Any

#: Target of the gap, where the foreign model has none.
TOL = 1e-6
#: What a missed target carries: the data may not be those of the fit.
NOTE = "for the data and weights you passed"


class Refusal(Exception):
    """Why nothing can be said, and what would help."""

    def __init__(self, reason: str, fix: str = "") -> None:
        super().__init__(reason)
        self.reason, self.fix = reason, fix


def sklearn_name(model: Any) -> str | None:
    """Name of the first scikit-learn class among the model's classes."""
    for cls in type(model).__mro__:
        if cls.__module__.startswith("sklearn."):
            return cls.__name__
    return None
