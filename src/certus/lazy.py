"""Public names that are imported when they are first used.

So ``import certus`` loads neither numba, torch nor scikit-learn's estimators, and what
needs torch says so only where it is used.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module
from importlib.util import find_spec
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
            return _absent(package, name)
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


def absent(package: str) -> Callable[[str], Any]:
    """The function ``__getattr__`` of a package that imports its names at once.

    Parameters
    ----------
    package : str
        Its name.

    Examples
    --------
    >>> from certus.lazy import absent
    >>> absent("certus.linear_model")("BayesianRidge")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
        ...
    ImportError: certus.linear_model has no BayesianRidge. Keep ...
    """
    return lambda name: _absent(package, name)


def _public(package: str) -> Sequence[str]:
    return getattr(import_module(package), "__all__", ())


def _absent(package: str, name: str) -> Any:
    """Say that a name is not there, and whether scikit-learn has it.

    Only an ImportError reaches whoever writes ``from certus.svm import NuSVC``: of an
    AttributeError, Python makes a sentence of its own.
    """
    theirs = package.replace("certus", "sklearn", 1)
    inner = "." in package and not name.startswith("_")
    if inner and find_spec(theirs) and name in _public(theirs):
        raise ImportError(
            f"{package} has no {name}. Keep scikit-learn's: certus.certify says what "
            "it can judge of the fitted model."
        )
    raise AttributeError(f"module {package!r} has no attribute {name!r}")
