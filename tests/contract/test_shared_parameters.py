"""Parameters that models share are written once, and look as if they were not."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from importlib import import_module
from typing import Any, get_args, get_type_hints, is_typeddict

import pytest
from sklearn.base import clone

from certus.registry import ESTIMATORS, load_class


def shared_options(cls: type) -> Any:
    """The options that a class takes beside its own parameters."""
    (options,) = get_args(get_type_hints(cls.__init__.__wrapped__)["shared"])
    return options


def groups_in(options: Any) -> Iterator[Any]:
    """The groups that options consist of: those that explain parameters themselves."""
    known = set(get_type_hints(options))
    for group in vars(import_module(options.__module__)).values():
        explains = is_typeddict(group) and entries(group.__doc__ or "")
        if explains and set(group.__annotations__) <= known:
            yield group


def entries(docstring: str) -> list[str]:
    return re.findall(r"^(\w+) : ", inspect.cleandoc(docstring), re.MULTILINE)


CLASSES = [
    cls
    for row in ESTIMATORS.values()
    if hasattr((cls := load_class(row)).__init__, "__wrapped__")
]
GROUPS = sorted(
    {group for cls in CLASSES for group in groups_in(shared_options(cls))},
    key=lambda group: group.__name__,
)


def test_the_classes_are_found() -> None:
    names = {cls.__name__ for cls in CLASSES}
    assert {"NodeClassifier", "Diffusion", "Colorizer", "SkipGram", "Seq2Seq"} <= names
    assert len(CLASSES) >= 35 and len(GROUPS) >= 16


@pytest.mark.parametrize("group", GROUPS)
def test_a_group_explains_its_parameters_in_their_order(group):
    assert entries(group.__doc__) == list(group.__annotations__)


@pytest.mark.parametrize("cls", CLASSES)
def test_editors_scikit_learn_and_docstrings_see_the_same_parameters(cls):
    written = inspect.signature(cls.__init__.__wrapped__).parameters
    own = [p.name for p in written.values() if p.kind != p.VAR_KEYWORD][1:]
    options = shared_options(cls)
    flat = inspect.signature(cls).parameters
    assert list(flat)[: len(own)] == own
    assert {*own, *get_type_hints(options)} == set(flat) == set(cls._get_param_names())
    section = cls.__doc__.split("Parameters\n")[1].split("Attributes\n")[0]
    said = entries(section.partition("\n")[2])
    assert said == list(dict.fromkeys([*own, *flat]))


@pytest.mark.parametrize("cls", CLASSES)
def test_parameters_are_stored_cloned_and_compared(cls):
    known = inspect.signature(cls).parameters.values()
    needed = {p.name: None for p in known if p.default is p.empty}
    model = cls(**needed, max_iter=7)
    assert model.max_iter == 7
    assert clone(model).get_params() == model.get_params()
    assert "max_iter=7" in repr(model)
    with pytest.raises(TypeError, match=rf"^{cls.__name__}\(\) .*'toll'"):
        cls(**needed, toll=0.5)
