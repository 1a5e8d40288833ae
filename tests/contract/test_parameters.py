"""One word for one idea: names, order, defaults and texts of all constructors."""

from __future__ import annotations

import ast
import importlib
import inspect
from collections.abc import Iterator
from functools import cache
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


#: The things themselves, and how many there are.
COUNTED = [
    *[("columns", "n_columns"), ("features", "n_features"), ("layers", "n_layers")],
    *[("levels", "n_levels"), ("outputs", "n_outputs"), ("points", "n_points")],
    ("units", "n_units"),
]


def test_functions_use_the_words_of_estimators() -> None:
    found = public_functions()
    assert len(found) > 400, "the search finds the functions"
    names = {name for _, node in found for name, _ in defaults(node)}
    things = {thing for thing, _ in COUNTED}
    assert not names & (set(GLOSSARY["retired"]) - things)
    assert sorted(twins(names | all_names())) == sorted([*THEIRS, *COUNTED])


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


#: Functions that repeat by default: two calls must seal the same rows, or the second
#: would train on rows that the first has already shown (CONTRIBUTING, "Style").
SEALING = {"compare", "compare_blocks", "make_split"}
#: Test data: the same call must give the same.
SEEDED = {
    *("example", "known_logistic", "known_regression", "known_softmax", "separable"),
}


def test_no_public_function_is_seeded_by_default() -> None:
    seeded, by_seed = set(), set()
    for _, node in public_functions():
        for name, default in defaults(node):
            if name == "random_state" and default not in (None, "None"):
                seeded.add(node.name)
            if name == "seed" and default is not None:
                by_seed.add(node.name)
    assert seeded == SEALING
    assert by_seed == SEEDED


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


@cache
def public_functions() -> list[tuple[str, ast.FunctionDef]]:
    """The functions that a module or its package exports, and where each is."""
    found = []
    for folder in sorted({path.parent for path in ROOT.rglob("*.py")}):
        trees = {p.stem: ast.parse(p.read_text("utf-8")) for p in folder.glob("*.py")}
        offered = exported(trees.get("__init__"), "_WHERE")
        for stem, tree in sorted(trees.items()):
            names = offered | exported(tree, "__all__")
            found += [
                (f"{folder.relative_to(ROOT)}/{stem}.py", node)
                for node in tree.body
                if isinstance(node, ast.FunctionDef) and node.name in names
            ]
    return found


def exported(tree: ast.Module | None, name: str) -> set[str]:
    """The strings that a list of a module holds; the keys, if it is a table."""
    found = set()
    for node in tree.body if tree else ():
        targets = getattr(node, "targets", [getattr(node, "target", None)])
        if any(isinstance(t, ast.Name) and t.id == name for t in targets):
            table = node.value
            listed = table.keys if isinstance(table, ast.Dict) else ast.walk(table)
            found |= {n.value for n in listed if isinstance(n, ast.Constant)}
    return found


def defaults(node: ast.FunctionDef) -> Iterator[tuple[str, str | None]]:
    """The parameters of a function, and the text of each default."""
    given = node.args
    placed = [*given.posonlyargs, *given.args]
    without = [None] * (len(placed) - len(given.defaults))
    pairs = [*zip(placed, [*without, *given.defaults])]
    for one, value in [*pairs, *zip(given.kwonlyargs, given.kw_defaults)]:
        yield one.arg, None if value is None else ast.unparse(value)


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
