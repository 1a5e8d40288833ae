"""Clusterings, mixtures and factorisations that scikit-learn fitted, as evidence.

Each by what it minimises or maximises; the checkers are those of our own models.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from certus.certificate import Evidence

#: By scikit-learn's class name.
STATEMENTS: dict[str, Callable[[Any], tuple[Evidence, str]]] = {}
