"""Running one part of the statements replaces its section, and leaves the others."""

from importlib import import_module
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]


@pytest.fixture
def statements(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT))
    return import_module("benchmarks.statements")


def test_a_new_part_replaces_its_own_section_only(statements):
    names = list(statements.PARTS)[:3]
    table = f"{names[0]}, old\n\n| a |\n|---|"
    old = statements.merged("", {names[0]: table, names[1]: "old"})
    new = statements.merged(old, {names[1]: "new", names[2]: "more"})
    assert new.startswith(statements.HEAD)
    found = {k: text.strip() for k, text in statements.sections(new).items()}
    assert found == {names[0]: table, names[1]: "new", names[2]: "more"}
    assert statements.merged(new, {}) == new


def test_every_part_has_been_measured(statements):
    text = statements.RESULTS.read_text(encoding="utf-8")
    assert list(statements.sections(text)) == list(statements.PARTS)
    assert statements.merged(text, {}) == text
