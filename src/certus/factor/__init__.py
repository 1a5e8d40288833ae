"""Factors: few directions behind many columns, and few tastes behind many ratings."""

__all__: list[str] = []
