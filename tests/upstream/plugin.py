"""Pytest plugin of ``run.py``: which of scikit-learn's tests concern our estimators.

A test concerns us if its body, or a helper it calls, names one of our estimators, or if
one of its parameters holds one; the others are not collected. Tests listed in
``deselected.toml`` are skipped, with the kind of their reason. Every outcome goes to
the file named by ``UPSTREAM_REPORT``, one JSON line per test.
"""

from __future__ import annotations

import fnmatch
import json
import os
import tomllib
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

import pytest
from run import KINDS, SHARED
from sklearn.base import BaseEstimator

OURS = tuple(
    getattr(import_module(f"certus.{home}"), name)
    for home, names in SHARED.items()
    for name in sorted(names)
)
LIST = Path(__file__).with_name("deselected.toml")


class Entry:
    """A line of the list: ``file::test`` or ``file::test[pattern of parameters]``."""

    def __init__(self, text: str, kind: str) -> None:
        self.text, self.kind = text, kind
        self.name, _, pattern = text.partition("[")
        self.pattern = pattern.removesuffix("]") if pattern else None

    def matches(self, nodeid: str) -> bool:
        name, _, parameters = nodeid.partition("[")
        if name != self.name:
            return False
        if self.pattern is None:
            return True
        return fnmatch.fnmatchcase(parameters.removesuffix("]"), self.pattern)


def read_list(path: Path = LIST) -> list[Entry]:
    """The deselected tests; an unknown kind is an error."""
    groups = tomllib.loads(path.read_text(encoding="utf-8"))["deselected"]
    for group in groups:
        if group["kind"] not in KINDS:
            raise ValueError(f"{path.name}: unknown kind {group['kind']!r}.")
    return [Entry(test, group["kind"]) for group in groups for test in group["tests"]]


def concerns_us(item: pytest.Item) -> bool:
    """Whether a test uses one of our estimators."""
    parameters = getattr(getattr(item, "callspec", None), "params", {})
    if any(_is_ours(value) for value in parameters.values()):
        return True
    return _names_ours(item.function, set())


def _names_ours(function: Any, seen: set[int]) -> bool:
    function = getattr(function, "__wrapped__", function)
    if not isinstance(function, FunctionType) or id(function) in seen:
        return False
    seen.add(id(function))
    names = set(_code_names(function.__code__))
    used = [function.__globals__[n] for n in names if n in function.__globals__]
    if any(_is_one(value) for value in used):
        return True
    local = [f for f in used if getattr(f, "__module__", "") == function.__module__]
    return any(_names_ours(f, seen) for f in local)


def _code_names(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _code_names(constant)


def _is_one(value: Any) -> bool:
    return any(value is ours for ours in OURS)  # == would compare arrays


def _is_ours(value: Any) -> bool:
    if isinstance(value, dict):
        return any(_is_ours(v) for v in value.values())
    if isinstance(value, list | tuple | set):
        return any(_is_ours(v) for v in value)
    if isinstance(value, type | FunctionType):
        return _is_one(value) or _names_ours(value, set())
    if not isinstance(value, BaseEstimator):
        return False
    parts = ("estimator", "steps")  # searches and pipelines
    inside = any(_is_ours(getattr(value, part, None)) for part in parts)
    return inside or _is_one(type(value))


def pytest_collection_modifyitems(
    config: pytest.Config, items: list[pytest.Item]
) -> None:
    entries = read_list()
    unused = {entry.text for entry in entries}
    kept = []
    for item in items:
        if not concerns_us(item):
            continue
        kept.append(item)
        entry = next((e for e in entries if e.matches(item.nodeid)), None)
        if entry is not None:
            unused.discard(entry.text)
            item.user_properties.append(("kind", entry.kind))
            if not os.environ.get("UPSTREAM_RUN_ALL"):
                item.add_marker(pytest.mark.skip(reason=entry.kind))
    items[:] = kept
    if os.environ.get("PYTEST_XDIST_WORKER", "gw0") == "gw0":
        for text in sorted(unused):
            _write({"unused": text})


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if os.environ.get("PYTEST_XDIST_WORKER"):
        return  # the controller sees every report
    if report.when == "call" or report.outcome != "passed":
        outcome = report.outcome
        if hasattr(report, "wasxfail"):
            outcome = "xfailed" if report.skipped else "xpassed"
        kind = dict(report.user_properties).get("kind")
        crash = getattr(report.longrepr, "reprcrash", None)
        error = crash.message if crash and outcome == "failed" else ""
        line = {"test": report.nodeid, "outcome": outcome, "kind": kind}
        _write({**line, "error": error})


def _write(line: dict[str, Any]) -> None:
    with open(os.environ["UPSTREAM_REPORT"], "a", encoding="utf-8") as file:
        file.write(json.dumps(line) + "\n")
