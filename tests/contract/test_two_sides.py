"""Prover and verifier share no code: what import-linter checks, and what it cannot.

The contracts in pyproject.toml say who may import whom. Here: the verifier's packages
from outside are three, and others take only names from it that it hands out.
"""

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

import certus.verify

PACKAGE = Path(certus.verify.__file__).parents[1]
VERIFIER = PACKAGE / "verify"
ALLOWED = {"numpy", "scipy", "threadpoolctl", "certus"}


def imports(path: Path) -> Iterator[tuple[str, list[str]]]:
    """Module and names of every import, also of those inside functions."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from ((alias.name, []) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: imports are absolute"
            yield node.module or "", [alias.name for alias in node.names]


def test_the_verifier_rests_on_three_packages() -> None:
    found = {
        module.partition(".")[0]
        for path in VERIFIER.rglob("*.py")
        for module, _ in imports(path)
    }
    assert found - ALLOWED <= set(sys.stdlib_module_names)


def test_other_packages_import_only_public_names() -> None:
    taken = {
        (path.relative_to(PACKAGE).as_posix(), name)
        for path in PACKAGE.rglob("*.py")
        if VERIFIER not in path.parents
        for module, names in imports(path)
        if module == "certus.verify"
        for name in names
    }
    names, door = {name for _, name in taken}, set(certus.verify.__all__)
    assert names <= door, taken
    assert door <= names | {"certify", "check"}, "it hands out what nobody takes"
