"""Whether what a synthesizer holds belongs together: files may be damaged or forged.

Arrays are compared with one another before rows are drawn, so that a changed file is
refused in words instead of giving rows that mean nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from certus.synth.levels import Plan
from certus.synth.models import MODELS
from certus.typing import Array

__all__ = ["require_sound"]

#: By how much probabilities of a table may miss their sum of 1.
_OFF = 1e-6


def require_sound(name: str, plans: list[Plan], state: Mapping[str, Any]) -> None:
    """Raise an error if columns and arrays of a generator do not belong together."""
    try:
        wrong = _wrong(name, plans, state)
    except (KeyError, IndexError, TypeError, ValueError, AttributeError) as error:
        wrong = f"a part is missing or has another form ({error})"
    if wrong:
        raise ValueError(
            f"This model was changed after its fit: {wrong}. Restore its file, or fit "
            "again."
        )


def _wrong(name: str, plans: list[Plan], state: Mapping[str, Any]) -> str:
    """What does not belong together, or nothing."""
    if name not in MODELS:
        return f"there is no generator {name!r}"
    if not plans:
        return "it has no columns"
    for plan in plans:
        if not _column_is_sound(plan):
            return f'the levels of column "{plan["name"]}" do not rise from 0 to 1'
    if any(not np.isfinite(part).all() for part in _numbers(state)):
        return "its arrays have numbers that are not finite"
    if name == "tree" and not _tree_is_sound(len(plans), state):
        return "its tables are not those of a tree of these columns"
    if name == "copula" and not _correlates(state["correlation"], len(plans)):
        return "its correlations are not those of these columns"
    if name == "cart" and np.shape(state["values"])[1:] != (len(plans),):
        return "its rows have another number of columns"
    return ""


def _numbers(value: Any) -> Iterator[Array]:
    """All arrays of floats within lists and dicts."""
    if isinstance(value, Mapping):
        value = list(value.values())
    if isinstance(value, list | tuple):
        for part in value:
            yield from _numbers(part)
    elif isinstance(value, np.ndarray) and value.dtype.kind == "f":
        yield value


def _rises(ends: Any) -> bool:
    """Whether numbers rise within [0, 1]."""
    x = np.asarray(ends, dtype=float)
    inside = bool(((x >= -_OFF) & (x <= 1 + _OFF)).all())
    return inside and bool((np.diff(x) >= 0).all())


def _column_is_sound(plan: Plan) -> bool:
    if plan["kind"] in ("empty", "identifier"):
        return True
    edges = np.asarray(plan["edges"])
    sound = len(edges) > 1 and _rises(edges) and edges[0] == 0 and edges[-1] == 1
    if "labels" in plan:
        return (
            sound
            and len(plan["ends"]) == len(plan["labels"]) + 2
            and _rises(plan["ends"])
        )
    knots = np.asarray(plan["knots"])
    fits = len(knots) == len(plan["levels"]) and bool(np.isfinite(knots).all())
    return sound and fits and _rises(plan["levels"]) and 0 <= plan["missing"] <= 1


def _tree_is_sound(d: int, state: Mapping[str, Any]) -> bool:
    parents, order = np.asarray(state["parents"]), np.asarray(state["order"]).tolist()
    cells, tables = state["cells"], state["tables"]
    sound = parents.shape == (d,) and sorted(order) == list(range(d))
    if not sound or len(cells) != d or len(tables) != d:
        return False
    sizes = [len(edges) - 1 for edges in cells]
    for at, j in enumerate(order):
        parent, table = int(parents[j]), np.asarray(tables[j])
        if (parent < 0) != (at == 0) or (at and parent not in order[:at]):
            return False
        shape = (sizes[j],) if parent < 0 else (sizes[parent], sizes[j])
        total = table.sum(axis=-1) if table.shape == shape else np.zeros(1)
        if not (np.abs(total - 1) <= _OFF).all() or (table < 0).any():
            return False
    return all(_rises(edges) for edges in cells)


def _correlates(C: Array, d: int) -> bool:
    if C.shape != (d, d) or not np.allclose(C, C.T) or not np.allclose(C.diagonal(), 1):
        return False
    return bool(np.linalg.eigvalsh(C)[0] > 0)
