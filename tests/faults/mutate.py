"""Faults in source code: one small change of a syntax tree, drawn by a seed."""

from __future__ import annotations

import ast
import copy
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

SWAPPED: dict[type, type] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.Lt: ast.GtE,
    ast.LtE: ast.Gt,
    ast.Gt: ast.LtE,
    ast.GtE: ast.Lt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.And: ast.Or,
    ast.Or: ast.And,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
}


class Fault(NamedTuple):
    """A change of one file: which kind, at which line, and the text before it."""

    file: str
    line: int
    kind: str
    text: str
    number: int  # among all changes of that file


Change = tuple[str, ast.AST, Callable[[], None]]


def changes(tree: ast.AST) -> Iterator[Change]:
    """Every change of the tree, in a fixed order, as something still to be done."""
    for node in ast.walk(tree):
        yield from _of_operators(node)
        yield from _of_values(node)
        yield from _of_statements(node)


def _of_operators(node: ast.AST) -> Iterator[Change]:
    if isinstance(node, ast.BinOp | ast.AugAssign | ast.BoolOp):
        other = SWAPPED.get(type(node.op))
        if other is not None:
            yield "operator", node, lambda: setattr(node, "op", other())
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult | ast.Div):
        # A factor that is forgotten: the usual wrong translation of a parameter.
        yield "factor", node, lambda: _become(node, copy.deepcopy(node.left))
    if isinstance(node, ast.Compare) and type(node.ops[0]) in SWAPPED:
        yield (
            "comparison",
            node,
            lambda: node.ops.__setitem__(0, SWAPPED[type(node.ops[0])]()),
        )
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub | ast.Not):
        yield "sign", node, lambda: _become(node, copy.deepcopy(node.operand))


def _of_values(node: ast.AST) -> Iterator[Change]:
    if isinstance(node, ast.Constant) and type(node.value) in (int, float, bool):
        value = node.value
        others = [not value] if isinstance(value, bool) else [value + 1, value * 2 + 1]
        for other in others:
            yield "constant", node, lambda other=other: setattr(node, "value", other)
    args = node.args if isinstance(node, ast.Call) else []
    if len(args) >= 2 and not any(isinstance(arg, ast.Starred) for arg in args[:2]):
        yield "arguments", node, lambda: args.__setitem__(slice(0, 2), args[1::-1])
    if isinstance(node, ast.Call) and node.keywords:
        yield "keyword", node, lambda: node.keywords.pop(0)
    if isinstance(node, ast.IfExp):
        yield "choice", node, lambda: _exchange(node, "body", "orelse")
    if isinstance(node, ast.Return) and isinstance(node.value, ast.BinOp | ast.Call):
        negative = ast.UnaryOp(ast.USub(), node.value)
        yield "result", node, lambda: setattr(node, "value", negative)


def _of_statements(node: ast.AST) -> Iterator[Change]:
    body = getattr(node, "body", None)
    if isinstance(body, list):
        for i, line in enumerate(body):
            if isinstance(line, ast.Assign | ast.AugAssign) or (
                isinstance(line, ast.Expr) and isinstance(line.value, ast.Call)
            ):
                yield "dropped", line, lambda i=i: body.__setitem__(i, ast.Pass())
    if isinstance(node, ast.If):
        yield "condition", node, lambda: setattr(node, "test", ast.Constant(False))


def _become(node: Any, other: ast.AST) -> None:
    node.__class__ = other.__class__
    node.__dict__ = other.__dict__


def _exchange(node: Any, first: str, second: str) -> None:
    a, b = getattr(node, first), getattr(node, second)
    setattr(node, first, b)
    setattr(node, second, a)


def faults_of(path: Path, name: str, reached: Callable[[int], bool]) -> list[Fault]:
    """All faults of a file in lines that some case reaches."""
    source = path.read_text(encoding="utf-8")
    found = []
    for number, (kind, node, _) in enumerate(changes(ast.parse(source))):
        line = getattr(node, "lineno", 0)
        if reached(line):
            text = source.splitlines()[line - 1].strip()
            found.append(Fault(name, line, kind, text, number))
    return found


def broken(path: Path, number: int) -> Any:
    """The code of a file with its change of that number."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for at, (_, _, apply) in enumerate(changes(tree)):
        if at == number:
            apply()
            break
    return compile(ast.fix_missing_locations(tree), str(path), "exec")
