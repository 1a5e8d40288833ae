"""One word for one idea: names, order, defaults and texts of all constructors."""

from __future__ import annotations

import ast
import importlib
import inspect
from collections.abc import Iterator
from typing import Any

import pytest

from certus.registry import ESTIMATORS, load_class
from helpers.glossary import (
    ELSEWHERE,
    ENTRY,
    GLOSSARY,
    ROOT,
    SECTION,
    agrees,
    as_entry,
    described,
    sentence,
)

TEXTS, OWN = GLOSSARY["texts"], GLOSSARY["own"]
NAMES = sorted(ESTIMATORS)
#: Models that are made of two things: a base and a reward.
OF_TWO = ("GRPO", "PPO")


def parameters(name: str) -> dict[str, inspect.Parameter]:
    return dict(inspect.signature(load_class(ESTIMATORS[name])).parameters)


def homes() -> dict[str, set[str]]:
    """The packages that use each name."""
    found: dict[str, set[str]] = {}
    for row in ESTIMATORS.values():
        for name in parameters(row.name):
            found.setdefault(name, set()).add(row.home)
    return found


@pytest.mark.parametrize("name", NAMES)
def test_names_are_those_of_the_glossary(name: str) -> None:
    known = {*TEXTS, *OWN.get(ESTIMATORS[name].home, ())}
    assert set(parameters(name)) <= known


def test_the_glossary_has_no_other_names() -> None:
    used = homes()
    assert set(TEXTS) <= set(used)
    for home, names in OWN.items():
        assert all(used[name] == {home} for name in names), home
        assert not set(names) & set(TEXTS)
    for name, texts in TEXTS.items():
        if isinstance(texts, dict):
            assert set(texts) <= {*used[name], *ESTIMATORS}, name


def all_names() -> set[str]:
    return {*TEXTS, *(name for names in OWN.values() for name in names)}


def test_retired_words_do_not_come_back() -> None:
    known = all_names()
    for old, new in GLOSSARY["retired"].items():
        assert old not in known and new in known, old


#: Ways to write one idea twice: a count, a size or a share with and without its mark.
TWINS = (
    ("", "n_"),
    ("", "num_"),
    ("n_", "num_"),
    ("", "_size"),
    ("_share", "_fraction"),
)


#: Different ideas that scikit-learn writes this way.
THEIRS = [("init", "init_size"), ("init", "n_init")]


def twins(names: set[str]) -> list[tuple[str, str]]:
    """Pairs of names that differ by such a mark alone."""
    found = []
    for one, other in TWINS:
        for name in names:
            if other.endswith("_"):
                stem = name.removeprefix(one) if name.startswith(one) else None
                pair = f"{other}{stem}"
            else:
                stem = name.removesuffix(one) if name.endswith(one) else None
                pair = f"{stem}{other}"
            if stem and pair in names:
                found.append((name, pair))
    return found


def test_twins_are_found() -> None:
    assert twins({"patch", "patch_size"}) == [("patch", "patch_size")]
    assert twins({"steps", "n_steps", "tol"}) == [("steps", "n_steps")]
    assert twins({"mask_share", "mask_fraction"}) == [("mask_share", "mask_fraction")]


def test_no_idea_has_two_names() -> None:
    assert sorted(twins(all_names())) == THEIRS


@pytest.mark.parametrize("name", NAMES)
def test_only_the_first_may_be_given_by_place(name: str) -> None:
    row, mine = ESTIMATORS[name], parameters(name)
    placed = [p.name for p in mine.values() if p.kind == p.POSITIONAL_OR_KEYWORD]
    allowed = list(mine)[: 2 if name in OF_TWO else 1]
    if row.shared:
        theirs = getattr(importlib.import_module(f"sklearn.{row.home}"), name)
        wanted = inspect.signature(theirs).parameters.values()
        allowed = [p.name for p in wanted if p.kind == p.POSITIONAL_OR_KEYWORD]
    assert placed == allowed[: len(placed)] and len(placed) <= max(1, len(allowed))


@pytest.mark.parametrize("name", NAMES)
def test_nothing_is_seeded_by_default(name: str) -> None:
    mine = parameters(name)
    if "random_state" in mine:
        assert mine["random_state"].default is None


@pytest.mark.parametrize("name", NAMES)
def test_the_docstring_describes_each_once(name: str) -> None:
    cls = load_class(ESTIMATORS[name])
    said = [one for entry in described(cls) for one in entry.names]
    assert sorted(said) == sorted(parameters(name))
    assert len(set(said)) == len(said)


@pytest.mark.parametrize("name", NAMES)
def test_descriptions_begin_as_the_glossary_says(name: str) -> None:
    cls = load_class(ESTIMATORS[name])
    wrong = [e for e in described(cls) if not agrees(e, name)]
    assert not wrong, "run `make glossary`"


@pytest.mark.parametrize("name", NAMES)
def test_the_defaults_in_the_docstring_are_those_of_the_signature(name: str) -> None:
    mine = parameters(name)
    for entry in described(load_class(ESTIMATORS[name])):
        if not entry.kind or len(entry.names) > 1:
            continue
        default = mine[entry.names[0]].default
        _, stated, value = entry.kind.partition("default=")
        if default is inspect.Parameter.empty:
            assert not stated, entry
        elif "deprecated" not in entry.kind:
            assert stated and _value(value) == default, entry


def _value(text: str) -> Any:
    return ast.literal_eval(text)


@pytest.mark.parametrize(
    "text", [GLOSSARY["unused"], *(t for t in TEXTS.values() if isinstance(t, str))]
)
def test_texts_are_sentences(text: str) -> None:
    assert text[0].isupper() and text.endswith(".") and ". " not in text


def functions() -> Iterator[tuple[str, str]]:
    """Where each function is, and what its docstring says of its parameters."""
    for path in sorted(ROOT.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.FunctionDef):
                section = SECTION.search(ast.get_docstring(node) or "")
                if section:
                    yield f"{path.name}:{node.name}", section[2] + "\n"


def test_functions_describe_shared_parameters_alike() -> None:
    wanted = GLOSSARY["functions"] | {k: TEXTS[k] for k in ("delta", "random_state")}
    wrong = []
    for where, section in functions():
        for entry in map(as_entry, ENTRY.finditer(section)):
            text = wanted.get(entry.names[0]) if len(entry.names) == 1 else None
            known = (text or "", GLOSSARY["unused"])
            if not (entry.text.startswith(known) or ELSEWHERE.match(entry.text)):
                wrong.append((where, entry.names[0], text))
    assert not wrong


def test_a_text_may_depend_on_the_class() -> None:
    assert sentence("tol", "Lasso") == "Target of the certificate's primary claim."
    assert sentence("tol", "Perceptron") != sentence("tol", "Lasso")
    assert sentence("tol", "KMeans") is None
