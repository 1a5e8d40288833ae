"""Read the catalog: what certus is to contain, and what realises each item.

``catalog.toml`` lists every item with its title and section. An *object* is realised
by a public name, empty until it exists; a *fact* is shown to hold by tests marked
``@pytest.mark.catalog("ID")``. This module only reads and resolves names, so that
``certus list`` stays quick; ``tests/contract`` holds the catalog to account.
"""

import importlib
import tomllib
from functools import cache
from importlib.resources import files
from typing import Any, Literal, NamedTuple


class Section(NamedTuple):
    """A chapter of the catalog; ``done`` promises a test for each of its items."""

    key: str
    number: int
    title: str
    n_items: int
    done: bool


class Item(NamedTuple):
    """One row of the catalog; ``name`` is empty for facts and what is yet to come."""

    id: str
    title: str
    section: str
    kind: Literal["object", "fact"]
    name: str


@cache
def _read() -> dict[str, Any]:
    return tomllib.loads(
        files("certus.testing").joinpath("catalog.toml").read_text(encoding="utf-8")
    )


@cache
def sections() -> tuple[Section, ...]:
    """Return the sections of the catalog in order.

    Examples
    --------
    >>> from certus.testing import sections
    >>> sections()[3].title
    'Regression'
    """
    return tuple(Section(**row) for row in _read()["section"])


@cache
def catalog() -> tuple[Item, ...]:
    """Return every item of the catalog in order.

    Examples
    --------
    >>> from certus.testing import catalog
    >>> len(catalog())
    603
    >>> next(item.title for item in catalog() if item.id == "REG-22")
    'Lasso'
    """
    return tuple(Item(**row) for row in _read()["item"])


def resolve(name: str) -> Any:
    """Return the object that a dotted public name stands for.

    Parameters
    ----------
    name : str
        For example ``"certus.linear_model.Lasso"``. Only names below ``certus`` are
        looked up.

    Returns
    -------
    object
        The module, class or function of that name.

    Raises
    ------
    LookupError
        If there is no such public name.

    Examples
    --------
    >>> from certus.testing import resolve
    >>> resolve("certus.objectives.Squared").__name__
    'Squared'
    """
    parts = name.split(".")
    if parts[0] != "certus" or any(part.startswith("_") for part in parts):
        raise LookupError(f"{name!r} is not a public name of certus.")
    found: Any = importlib.import_module("certus")
    for end, part in enumerate(parts[1:], start=2):
        if not hasattr(found, part):
            module = ".".join(parts[:end])
            try:
                found = importlib.import_module(module)
            except ModuleNotFoundError as error:
                if not f"{module}.".startswith(f"{error.name}."):
                    raise  # the module exists, but something it needs does not
                raise LookupError(f"certus has no public name {name!r}.") from None
        else:
            found = getattr(found, part)
    return found
