"""``certus migrate``: take from certus what a script imports from scikit-learn.

Only imports change, and only those of names that certus has; what is done with the
names stays as it is. A package imported as a whole (``from sklearn import svm``)
changes only if certus has every name that the script takes from it.
"""

from __future__ import annotations

import ast
import difflib
import functools
import re
from collections.abc import Iterator, Sequence
from importlib import import_module
from pathlib import Path
from typing import NamedTuple

from certus.cli import files
from certus.cli.screen import Stop, say
from certus.registry import ESTIMATORS

__all__ = ["migrate", "rewrite"]

#: The packages in which both libraries have classes.
PACKAGES = sorted({row.home for row in ESTIMATORS.values() if row.shared})


def migrate(scripts: Sequence[Path], write: bool) -> int:
    """Print the changed imports of scripts as a diff, or write them."""
    changed = 0
    for path in scripts:
        before = _text(path)
        try:
            after = rewrite(before)
        except SyntaxError as error:
            raise Stop(
                f"{path}, line {error.lineno}: not Python ({error.msg})."
            ) from None
        if after == before:
            say(f"{path}: nothing to change")
            continue
        changed += 1
        if write:
            files.write(path, after)
            say(f"{path}: written")
        else:
            print(_diff(path, before, after), end="")
    if changed and not write:
        say("certus migrate --write applies this")
    return 0


def rewrite(source: str) -> str:
    """The script with its imports taken from certus where certus has the names.

    Parameters
    ----------
    source : str
        A Python script.

    Examples
    --------
    >>> from certus.cli.migrating import rewrite
    >>> print(rewrite("from sklearn.linear_model import BayesianRidge, Lasso"))
    from certus.linear_model import Lasso
    from sklearn.linear_model import BayesianRidge
    """
    tree = ast.parse(source)
    lines = [line.encode() for line in source.splitlines(keepends=True)]
    found = [edit for node in ast.walk(tree) for edit in _edits(node, tree, lines)]
    for edit in sorted(found, key=lambda edit: edit.start, reverse=True):
        (first, left), (last, right) = edit.start, edit.stop
        new = lines[first - 1][:left] + edit.text.encode() + lines[last - 1][right:]
        lines[first - 1 : last] = [new]
    return b"".join(lines).decode()


class _Edit(NamedTuple):
    """Text in place of what stands between two positions (line, byte)."""

    start: tuple[int, int]
    stop: tuple[int, int]
    text: str


def _edits(node: ast.AST, tree: ast.Module, lines: list[bytes]) -> Iterator[_Edit]:
    if isinstance(node, ast.ImportFrom) and not node.level:
        if node.module == "sklearn":
            ours = [a for a in node.names if _serves(a.name, a.asname or a.name, tree)]
            yield from _divided(node, "certus", "sklearn", ours, lines)
        elif node.module and node.module.removeprefix("sklearn.") in PACKAGES:
            package = node.module.removeprefix("sklearn.")
            ours = [a for a in node.names if a.name in shared(package)]
            yield from _divided(node, f"certus.{package}", node.module, ours, lines)
    elif isinstance(node, ast.Import):
        for alias in node.names:
            package = alias.name.removeprefix("sklearn.")
            named = alias.asname and package != alias.name
            if named and _serves(package, str(alias.asname), tree):
                place = (alias.lineno, alias.col_offset)
                stop = (alias.lineno, alias.col_offset + len("sklearn"))
                yield _Edit(place, stop, "certus")


def _divided(
    node: ast.ImportFrom,
    home: str,
    theirs: str,
    ours: list[ast.alias],
    lines: list[bytes],
) -> Iterator[_Edit]:
    """One import of ours, and one of what is left to scikit-learn."""
    start = (node.lineno, node.col_offset)
    if not ours:
        return
    if len(ours) == len(node.names):  # keeps the names as they are laid out
        written = lines[node.lineno - 1][node.col_offset :].decode()
        space = re.match(r"from\s+", written)
        if space and written.startswith(theirs, space.end()):
            at = node.col_offset + len(space[0].encode())
            yield _Edit((node.lineno, at), (node.lineno, at + len(theirs)), home)
            return
    rest = [alias for alias in node.names if alias not in ours]
    before = lines[node.lineno - 1][: node.col_offset].decode()
    between = "; " if before.strip() else "\n" + before
    parts = [(home, ours), (theirs, rest)]
    text = between.join(
        f"from {module} import {', '.join(map(ast.unparse, names))}"
        for module, names in parts
        if names
    )
    yield _Edit(start, (int(node.end_lineno or 0), int(node.end_col_offset or 0)), text)


@functools.cache
def shared(package: str) -> frozenset[str]:
    """The public names that a package of ours and scikit-learn's have in common."""
    ours = import_module(f"certus.{package}").__all__
    theirs = import_module(f"sklearn.{package}")
    return frozenset(name for name in ours if hasattr(theirs, name))


def _serves(package: str, alias: str, tree: ast.Module) -> bool:
    """Whether certus has all that a script takes from a package of scikit-learn."""
    if package not in PACKAGES:
        return False
    uses = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.Name) and node.id == alias
    ]
    taken = [
        node.attr
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Name)
        and node.value.id == alias
    ]
    # A bare use, such as getattr(svm, name), may take anything.
    return len(taken) == len(uses) > 0 and set(taken) <= shared(package)


def _text(path: Path) -> str:
    if path.suffix != ".py":
        raise Stop(f"{path} is not a Python script (.py).", code=2)
    try:
        with path.open(encoding="utf-8", newline="") as file:
            return file.read()
    except UnicodeDecodeError:
        raise Stop(f"{path} is not written in UTF-8.") from None


def _diff(path: Path, before: str, after: str) -> str:
    lines = difflib.unified_diff(
        before.splitlines(keepends=True),
        after.splitlines(keepends=True),
        str(path),
        str(path),
        n=1,
    )
    return "".join(line if line.endswith("\n") else line + "\n" for line in lines)
