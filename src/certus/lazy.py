"""Public names that are imported when they are first used.

So ``import certus`` loads neither numba, torch nor scikit-learn's estimators, and what
needs torch says so only where it is used.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any


def lazily(
    package: str, where: dict[str, str], listed: list[str]
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """The functions ``__getattr__`` and ``__dir__`` of a package.

    Parameters
    ----------
    package : str
        Its name.
    where : dict
        The module in it where each name lives; "" for one that is such a module.
    listed : list of str
        All public names, also those that are imported at once.

    Examples
    --------
    >>> from certus.lazy import lazily
    >>> get, names = lazily("certus", {"Status": "certificate"}, ["Status"])
    >>> get("Status").SOLVED.value, names()
    ('solved', ['Status'])
    """

    def get(name: str) -> Any:
        if name not in where:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        try:
            if not where[name]:
                return import_module(f"{package}.{name}")
            return getattr(import_module(f"{package}.{where[name]}"), name)
        except ModuleNotFoundError as error:
            if error.name != "torch":
                raise
            raise ImportError(
                f'{package}.{name} needs PyTorch: pip install "certus[deep]".'
            ) from error

    return get, lambda: listed
