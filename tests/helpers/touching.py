"""Which tests use something of certus, read from the syntax of the test files.

A name *touches* certus if it is imported from there, or if what defines it (function,
class, fixture, assignment) reads a name that does. Local variables and parameters hide
names of the module; parameters of a test or fixture stand for fixtures.
"""

import ast
from collections.abc import Iterator
from pathlib import Path

Function = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
INSIDE = "import of certus inside a function"
#: Types, states and example data: a test that uses nothing else asks certus nothing.
IDLE = ("certus.typing", "certus.testing", "certus.certificate", "certus.config")


def touching(source: str, helpers: frozenset[str] = frozenset()) -> set[str]:
    """Names of a module that touch certus; ``helpers`` are "module.name" that do."""
    tree = ast.parse(source)
    found = _imported(tree, helpers)
    defined = [(name, _read(node)) for name, node in _definitions(tree.body)]
    while True:
        used = {INSIDE} | found
        new = {name for name, read in defined if read & used} - found
        if not new:
            return found
        found |= new


def touching_helpers(folder: Path) -> frozenset[str]:
    """``helpers.module.name`` of every helper that touches certus."""
    sources = {path.stem: path.read_text("utf-8") for path in folder.glob("*.py")}
    found: frozenset[str] = frozenset()
    while True:  # helpers import helpers
        names = frozenset(
            f"helpers.{module}.{name}"
            for module, source in sources.items()
            for name in touching(source, found)
        )
        if names == found:
            return found
        found = names


def marked(source: str) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Each test or class with a mark of the catalog, and the items in the mark."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            calls = (c for d in node.decorator_list for c in ast.walk(d))
            items = tuple(
                str(argument.value)
                for call in calls
                if isinstance(call, ast.Call)
                and getattr(call.func, "attr", "") == "catalog"
                and ast.unparse(call.func).endswith("mark.catalog")
                for argument in call.args
                if isinstance(argument, ast.Constant)
            )
            if items:
                yield node.name, items


def _imported(tree: ast.Module, helpers: frozenset[str]) -> set[str]:
    found = set()
    for node in tree.body:
        if isinstance(node, ast.Import):
            ours = [a for a in node.names if _ours(a.name)]
            found |= {alias.asname or "certus" for alias in ours}
        elif isinstance(node, ast.ImportFrom):
            for alias in node.names:
                whole = f"{node.module}.{alias.name}"
                module = any(name.startswith(f"{whole}.") for name in helpers)
                if _ours(str(node.module)) or whole in helpers or module:
                    found.add(alias.asname or alias.name)
    return found


def _ours(module: str) -> bool:
    """Whether a module is one of certus that computes something of the catalog."""
    return module.split(".")[0] == "certus" and not module.startswith(IDLE)


def _definitions(body: list[ast.stmt]) -> Iterator[tuple[str, ast.AST]]:
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name, node
        elif isinstance(node, ast.Assign | ast.AnnAssign) and node.value:
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            for target in targets:
                for part in ast.walk(target):
                    if isinstance(part, ast.Name):
                        yield part.id, node.value
        elif isinstance(node, ast.If | ast.For | ast.With | ast.Try):
            yield from _definitions(node.body)


def _read(node: ast.AST) -> set[str]:
    """Names of the module that a definition reads; its parameters, as fixtures."""
    found = set(_names(node, frozenset()))
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        found |= {a.arg for a in [*node.args.args, *node.args.kwonlyargs]}
    return found


def _names(node: ast.AST, hidden: frozenset[str]) -> Iterator[str]:
    if isinstance(node, ast.Name):
        if isinstance(node.ctx, ast.Load) and node.id not in hidden:
            yield node.id
        return
    if isinstance(node, ast.ImportFrom) and _ours(str(node.module)):
        yield INSIDE
    if isinstance(node, ast.Import) and any(_ours(a.name) for a in node.names):
        yield INSIDE
    if isinstance(node, Function):
        before = [*node.args.defaults, *filter(None, node.args.kw_defaults)]
        before += getattr(node, "decorator_list", [])
        for part in before:
            yield from _names(part, hidden)
        body = node.body if isinstance(node.body, list) else [node.body]
        for part in body:
            yield from _names(part, hidden | _own(node, body))
        return
    for part in ast.iter_child_nodes(node):
        yield from _names(part, hidden)


def _own(node: Function, body: list[ast.AST]) -> frozenset[str]:
    """Parameters and local variables of a function."""
    a = node.args
    groups = [*a.posonlyargs, *a.args, *a.kwonlyargs, a.vararg, a.kwarg]
    found = {parameter.arg for parameter in groups if parameter}
    for part in body:
        for inner in _scope(part):
            if isinstance(inner, ast.Name) and isinstance(inner.ctx, ast.Store):
                found.add(inner.id)
            elif isinstance(inner, ast.FunctionDef | ast.ClassDef):
                found.add(inner.name)
    return frozenset(found)


def _scope(node: ast.AST) -> Iterator[ast.AST]:
    """The parts of a node that share its scope."""
    yield node
    if not isinstance(node, Function):
        for part in ast.iter_child_nodes(node):
            yield from _scope(part)
