"""Standard errors, test statistics and confidence intervals of linear models."""

from __future__ import annotations

from typing import Any


class SummaryRefused(ValueError):
    """The theory behind standard errors does not hold for this model or data."""


def least_squares_summary(
    model: Any, X: Any, y: Any, sample_weight: Any = None, alpha: float = 0.05
) -> Any:
    """Summary of a least-squares fit."""
    raise SummaryRefused("Not available.")
