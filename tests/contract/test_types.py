"""Types stand where data crosses a package; parameters that say Any are few."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[2] / "src" / "certus"
#: The largest share of parameters that may be annotated as Any.
MOST = 0.2
#: Packages and modules that have more yet: the share that they may not exceed.
MORE = {
    "_core": 0.33,
    "base": 0.48,
    "blocks": 0.23,
    "certificate": 0.28,
    "config": 0.58,
    "edges": 0.30,
    "engines": 0.44,
    "evidence": 0.50,
    "export": 0.75,
    "fingerprints": 0.32,
    "optimize": 0.22,
    "persist": 0.39,
    "recommend": 0.21,
    "rendering": 0.27,
    "testing": 0.37,
    "threat": 0.89,
    "tree_predicting": 0.34,
    "trees": 0.38,
    "typing": 0.38,
    "unwrapping": 0.30,
}
PLACES = sorted(
    {
        path.relative_to(SOURCE).parts[0].removesuffix(".py")
        for path in SOURCE.rglob("*.py")
    }
)


def annotations(source: str) -> Iterator[str]:
    """What each parameter of each function is said to be."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef):
            given = node.args
            for one in (*given.posonlyargs, *given.args, *given.kwonlyargs):
                if one.annotation is not None:
                    yield ast.unparse(one.annotation)


def files(place: str) -> list[Path]:
    package = SOURCE / place
    return (
        sorted(package.rglob("*.py")) if package.is_dir() else [SOURCE / f"{place}.py"]
    )


def share_of_any(place: str) -> float:
    found = [a for path in files(place) for a in annotations(path.read_text("utf-8"))]
    return found.count("Any") / max(1, len(found))


def test_annotations_are_read() -> None:
    source = "def f(self, a: Any, /, b: int, *, c: Any = None) -> Any: ..."
    assert list(annotations(source)) == ["Any", "int", "Any"]


@pytest.mark.parametrize("place", PLACES)
def test_parameters_have_types(place: str) -> None:
    assert share_of_any(place) <= MORE.get(place, MOST)


def test_exceptions_are_needed() -> None:
    """A package below the bound has no exception, and no exception is far too wide."""
    assert set(MORE) <= set(PLACES)
    for place, most in MORE.items():
        share = share_of_any(place)
        assert share > max(MOST, most - 0.1), place
