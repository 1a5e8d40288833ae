"""Stubs of the packages whose names are imported on first use.

``certus.lazy.exports`` derives the public names of a package; editors and type checkers
cannot follow it, and read the same names from ``__init__.pyi``. ``make stubs`` writes
these files; a test fails when one is stale.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).parents[2] / "src"
HEAD = "# Written by `make stubs` from the rows of the package; do not edit.\n"


def lazy_packages() -> Iterator[ModuleType]:
    """Every package that asks for its names on first use."""
    for path in sorted(ROOT.glob("certus/**/__init__.py")):
        if "lazy import exports" in path.read_text("utf-8"):
            name = ".".join(path.parent.relative_to(ROOT).parts)
            yield importlib.import_module(name)


def stub_path(package: ModuleType) -> Path:
    """Where the stub of a package stands."""
    return ROOT.joinpath(*package.__name__.split(".")) / "__init__.pyi"


def stub(package: ModuleType) -> str:
    """The public names of a package, and the modules they come from."""
    home = inspect.getclosurevars(package.__getattr__).nonlocals["home"]
    lines = [
        f"from {'.'.join(filter(None, (package.__name__, home[name])))} "
        f"import {name} as {name}"
        for name in sorted(home)
    ]
    if package.__name__ == "certus":
        lines.append("__version__: str")
    return HEAD + "\n".join(lines) + "\n"


if __name__ == "__main__":
    for each in lazy_packages():
        stub_path(each).write_text(stub(each), "utf-8")
