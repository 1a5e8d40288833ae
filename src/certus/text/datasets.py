"""Example texts that every Python contains: its own documentation."""

from __future__ import annotations

import ast
import sysconfig
from pathlib import Path

__all__ = ["stdlib_docstrings"]


def stdlib_docstrings(packages: bool = False) -> list[str]:
    """Documentation strings of Python's standard library.

    They are read from its source files, in the order of their names; nothing is
    imported or downloaded. They differ a little between versions of Python.

    Parameters
    ----------
    packages : bool, default=False
        Also those of packages such as ``asyncio`` and ``xml``; by default those of
        modules of one file, which takes a second or two.

    Returns
    -------
    list of str
        Of modules, classes and functions, in the order in which they stand.

    Examples
    --------
    >>> from certus.text import stdlib_docstrings
    >>> texts = stdlib_docstrings()
    >>> len(texts) > 2000, any("iterable" in text for text in texts)
    (True, True)
    """
    root = Path(sysconfig.get_paths()["stdlib"])
    files = sorted(root.glob("*.py"))
    if packages:
        skipped = {"test", "tests", "idlelib", "site-packages", "__pycache__"}
        inside = sorted(root.glob("*/**/*.py"))
        files += [f for f in inside if not skipped & set(f.relative_to(root).parts)]
    found: list[str] = []
    for file in files:
        try:
            tree = ast.parse(file.read_bytes())
        except (OSError, SyntaxError, ValueError):
            continue  # templates that are not Python, files that cannot be read
        found += _docstrings(tree)
    return found


def _docstrings(node: ast.Module | ast.ClassDef) -> list[str]:
    """Docstrings of a module or class and of all classes and functions inside."""
    found = [ast.get_docstring(node)]
    for part in node.body:
        if isinstance(part, ast.ClassDef):
            found += _docstrings(part)
        elif isinstance(part, ast.FunctionDef | ast.AsyncFunctionDef):
            found.append(ast.get_docstring(part))
    return [text for text in found if text]
