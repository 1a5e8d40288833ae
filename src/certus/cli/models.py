"""Which models the command line knows, and how their parameters are set.

Names resolve to classes on use, so that listing them loads no solver. A misspelt name
or parameter gets the nearest right one as a suggestion.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import sys
from collections.abc import Sequence
from typing import Any

from certus.cli.screen import Stop
from certus.registry import ESTIMATORS, Row, load_class
from certus.wording import unstopped

__all__ = ["MODELS", "build", "find_model", "load_foreign"]


#: The rows of the models that the command line offers, by their names on it.
MODELS = {row.command: row for row in ESTIMATORS.values() if row.command}


def find_model(name: str) -> Row:
    """The model of that name, or of that class name."""
    from certus.tables.errors import did_you_mean

    wanted = name.lower().replace("_", "-")
    if wanted in MODELS:
        return MODELS[wanted]
    for row in ESTIMATORS.values():
        if wanted.replace("-", "") != row.name.lower():
            continue
        if row.command:
            return row
        if row.why_not:
            raise Stop(f"{row.name} is not offered here: {row.why_not}", code=2)
    hint = did_you_mean(name, list(MODELS)) or f" Choose one of {', '.join(MODELS)}."
    raise Stop(f'there is no model "{name}".{hint}', code=2)


def build(row: Row, settings: Sequence[str], seed: int | None) -> Any:
    """An unfitted estimator with the parameters given as ``name=value``."""
    cls = load_class(row)
    known = [name for name in inspect.signature(cls).parameters]
    params: dict[str, Any] = {}
    if seed is not None and "random_state" in known:
        params["random_state"] = seed
    for setting in settings:
        name, value = _parse(setting)
        if name not in known:
            raise Stop(_unknown_parameter(row, name, known), code=2)
        params[name] = value
    return cls(**params)


def load_foreign(places: Sequence[str], seed: int | None) -> dict[str, Any]:
    """Estimators named as ``module:Class``, with their defaults, by the class."""
    found: dict[str, Any] = {}
    for place in places:
        module, colon, name = place.partition(":")
        if not (module and colon and name):
            raise Stop(
                f'--with takes module:Class, as in sklearn.svm:SVC; got "{place}".', 2
            )
        sys.path.insert(0, "")  # the user's own modules are in the current folder
        try:
            model = getattr(importlib.import_module(module), name)()
        except (ImportError, AttributeError, TypeError, ValueError) as error:
            raise Stop(
                f"--with {place} cannot be used: {unstopped(error)}.", code=2
            ) from None
        finally:
            sys.path.remove("")
        if "random_state" in getattr(model, "get_params", dict)():
            model.set_params(random_state=seed or 0)
        found[name] = model
    return found


def _unknown_parameter(row: Row, name: str, known: list[str]) -> str:
    from certus.tables.errors import did_you_mean

    hint = did_you_mean(name, known) or f" It has: {', '.join(known)}."
    return f'{row.command} has no parameter "{name}".{hint}'


_WORDS = {"true": True, "false": False, "none": None}


def _parse(setting: str) -> tuple[str, Any]:
    """Split ``name=value``; numbers, lists and true/false/none by their meaning."""
    name, equals, text = setting.partition("=")
    if not equals or not name.strip():
        raise Stop(f'--set takes name=value, as in alpha=0.1; got "{setting}".', 2)
    text = text.strip()
    if text.lower() in _WORDS:
        return name.strip(), _WORDS[text.lower()]
    if text.lower() in ("inf", "+inf", "-inf"):
        return name.strip(), float(text)
    try:
        return name.strip(), ast.literal_eval(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return name.strip(), text
