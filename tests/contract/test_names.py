"""Who greps a name finds one thing."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import certus

PACKAGE = Path(certus.__file__).parent

#: Names that several files define on purpose, and why.
SHARED = {
    # Rooms of the verifier are found by it, with their READERS and check.
    "Statement",
}


def statements(node: ast.AST) -> Iterator[ast.AST]:
    """All statements within; expressions, which hold none, are not entered."""
    for part in ast.iter_child_nodes(node):
        if not isinstance(part, ast.expr):
            yield part
            yield from statements(part)


def test_every_class_has_a_name_of_its_own() -> None:
    places = defaultdict(list)
    for path in sorted(PACKAGE.rglob("*.py")):
        for node in statements(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef):
                place = f"{path.relative_to(PACKAGE)}:{node.lineno}"
                places[node.name].append(place)
    several = {name for name, found in places.items() if len(found) > 1}
    assert several == SHARED, {name: places[name] for name in several - SHARED}
