"""Parameters that several classes share, written once.

A group of them is a TypedDict: its docstring says what each means, and its keys have a
type and a default, ``learning_rate: Annotated[float, 1e-3]``. A class names its own
parameters in ``__init__`` and takes those of groups as ``**shared``::

    @shares(TrainingOptions, learning_rate=3e-3)
    class Tagger(Estimator):
        def __init__(self, *, width: int = 64, **shared: Unpack[TrainingOptions]): ...

:func:`shares` does the rest. The signature that scikit-learn, help() and editors see is
flat, every parameter is stored under its name, and the texts stand in the docstring, in
the place ``{shared}``. The decorator takes the defaults that the class changes.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from functools import wraps
from textwrap import indent
from typing import Any, TypeVar, get_type_hints

Class = TypeVar("Class", bound=type)


def shares(*groups: Any, **defaults: Any) -> Callable[[Class], Class]:
    """Give a class the parameters of some groups, after its own.

    Parameters
    ----------
    *groups : TypedDict
        Names, types, defaults and texts.
    **defaults : object
        The class's own, where they differ.
    """
    known: dict[str, inspect.Parameter] = {}
    texts = []
    for group in groups:
        for name, hint in get_type_hints(group, include_extras=True).items():
            value = defaults.pop(name, hint.__metadata__[0])
            known[name] = inspect.Parameter(
                name,
                inspect.Parameter.KEYWORD_ONLY,
                default=value,
                annotation=hint.__origin__,
            )
        texts.append(_text(group, known))
    if defaults:
        raise TypeError(f"no group has {', '.join(defaults)}.")

    def decorate(cls: Class) -> Class:
        written = cls.__init__  # type: ignore[misc]
        own = inspect.signature(written)
        first = [p for p in own.parameters.values() if p.kind != p.VAR_KEYWORD]
        signature = own.replace(parameters=[*first, *known.values()])

        @wraps(written)
        def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
            try:
                given = signature.bind(self, *args, **kwargs)
            except TypeError as error:
                raise TypeError(f"{cls.__name__}() {error}") from None
            given.apply_defaults()
            for name, value in list(given.arguments.items())[1:]:
                setattr(self, name, value)

        __init__.__signature__ = signature  # type: ignore[attr-defined]
        cls.__init__ = __init__  # type: ignore[misc]
        cls.__doc__ = fill(cls.__doc__ or "", "shared", "\n".join(texts))
        return cls

    return decorate


def _text(group: Any, known: dict[str, inspect.Parameter]) -> str:
    """The entries of a group's docstring, with their defaults."""
    _, _, entries = inspect.cleandoc(group.__doc__).partition("\n\n")

    def line(entry: re.Match[str]) -> str:
        default = repr(known[entry[1]].default).replace("'", '"')
        return f"{entry[0]}, default={default}"

    return re.sub(r"^(\w+) : .*$", line, entries, flags=re.MULTILINE)


def fill(docstring: str, name: str, text: str) -> str:
    """Put a text in the place ``{name}`` of a docstring, with the same indentation."""
    place = re.search(rf"^( *)\{{{name}\}}", docstring, re.MULTILINE)
    return docstring.replace(place[0], indent(text, place[1])) if place else docstring
