"""Writes the pages of the reference from the packages themselves.

A page for each public package: its estimators, which are the rows of
``certus.registry``, then its other names, grouped by the module that holds them and
introduced by the first sentence of that module. The table of what differs from
scikit-learn comes from the same rows. No page lists a name by hand.
"""

from __future__ import annotations

import inspect
import sys
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import certus
from certus.registry import ESTIMATORS, differences

#: Described by pages of their own.
BY_HAND = {"verify"}
PACKAGES = sorted({*certus._PACKAGES, "neural_network.modules"} - BY_HAND)


def first_sentence(module: ModuleType) -> str:
    """The first line of a module's docstring."""
    return (module.__doc__ or "").strip().split("\n")[0].rstrip(".")


def page(name: str) -> str:
    """The page of a package, in reStructuredText."""
    package = import_module(f"certus.{name}")
    title = package.__name__
    parts = [title, "=" * len(title), "", f".. automodule:: {title}", "   :no-members:"]
    parts += ["", f".. currentmodule:: {title}", ""]
    rows = [row.name for row in ESTIMATORS.values() if row.home == name]
    if rows:
        parts += _table("Estimators", rows)
    homes = {n: ESTIMATORS[n].home for n in package.__all__ if n in ESTIMATORS}
    elsewhere = {n: home for n, home in homes.items() if home != name}
    if elsewhere:  # described once, on the page of their own package
        links = (f":class:`certus.{home}.{n}`" for n, home in elsewhere.items())
        parts += [f"Also here: {', '.join(links)}.", ""]
    groups: dict[str, list[str]] = {}
    for other in sorted({*package.__all__} - {*rows, *elsewhere}):
        value = getattr(package, other)
        home = getattr(value, "__module__", title)
        if inspect.ismodule(value):
            home, inner = value.__name__, vars(value).items()
            own = [n for n, v in inner if getattr(v, "__module__", "") == home]
            found = [f"{other}.{n}" for n in own if n.islower() and n[0] != "_"]
            groups.setdefault(home, []).extend(found)
        elif callable(value):
            groups.setdefault(home, []).append(other)
    for home, names in sorted(groups.items(), key=lambda item: -len(item[1])):
        parts += _table(first_sentence(sys.modules[home]), names)
    return "\n".join(parts) + "\n"


def _table(title: str, names: list[str]) -> list[str]:
    lines = [f".. rubric:: {title}", "", ".. autosummary::", "   :toctree: ."]
    return [*lines, "   :nosignatures:", "", *(f"   {name}" for name in names), ""]


def list_packages() -> str:
    """The table of all packages, and their place in the side bar, in Markdown."""
    lines = ["| package | what is in it |", "|---|---|"]
    for name in PACKAGES:
        told = first_sentence(import_module(f"certus.{name}"))
        lines.append(f"| [`certus.{name}`](generated/{name}.rst) | {told} |")
    bar = ["", "```{toctree}", ":hidden:", "", *(f"generated/{n}" for n in PACKAGES)]
    return "\n".join([*lines, *bar, "```"]) + "\n"


def list_differences() -> str:
    """The table of what differs from scikit-learn, in Markdown."""
    lines = ["| estimator | differs from scikit-learn in |", "|---|---|"]
    for rows, text in differences():
        names = ", ".join(f"`{row.name}`" for row in rows)
        lines.append(f"| {names} | {text} |")
    return "\n".join(lines) + "\n"


def write(app: Any, config: Any) -> None:
    """Write every page before the documents are looked for."""
    folder = Path(app.srcdir) / "api" / "generated"
    folder.mkdir(parents=True, exist_ok=True)
    texts = {f"{name}.rst": page(name) for name in PACKAGES}
    texts |= {"packages.txt": list_packages(), "differences.txt": list_differences()}
    for name, text in texts.items():
        path = folder / name
        if not path.exists() or path.read_text("utf-8") != text:
            path.write_text(text, encoding="utf-8")


def tell_differences(
    app: Any, what: str, name: str, obj: Any, options: Any, lines: list[str]
) -> None:
    """End the page of a class with what differs from scikit-learn's."""
    if what == "class":
        for rows, text in differences():
            if obj.__name__ in {row.name for row in rows} and len(lines):
                lines += ["", ".. rubric:: Differs from scikit-learn in", "", text, ""]


def setup(app: Any) -> dict[str, Any]:
    """Run before the pages are collected, and for each docstring."""
    app.connect("config-inited", write)
    app.connect("autodoc-process-docstring", tell_differences, priority=900)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
