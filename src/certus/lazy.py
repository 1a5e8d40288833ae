"""Public names that are imported when they are first used.

So ``import certus`` loads neither numba, torch nor scikit-learn's estimators, and code
that needs torch asks for it only when it is used. The estimators of a package are those
of its rows in ``certus.registry``. Editors and type checkers read the names from the
stub ``__init__.pyi`` of the package, which ``make stubs`` writes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any


def exports(
    package: str, where: Mapping[str, str] | None = None
) -> tuple[list[str], Callable[[str], Any], Callable[[], list[str]]]:
    """``__all__``, ``__getattr__`` and ``__dir__`` of a package.

    Parameters
    ----------
    package : str
        Its name.
    where : dict, optional
        The module in it where each name lives that is not an estimator; "" for a name
        that is such a module.

    Examples
    --------
    >>> from certus.lazy import exports
    >>> names, get, _ = exports("certus.svm")
    >>> names, get("SVC").__module__
    (['LinearSVC', 'LinearSVR', 'OneClassSVM', 'SVC', 'SVR'], 'certus.svm.svc')
    >>> get("NuSVC")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
        ...
    ImportError: certus.svm has no NuSVC. Keep ...
    """
    home = {**(where or {}), **_estimators(package)}
    names = sorted(home)

    def get(name: str) -> Any:
        if name not in home:
            return _absent(package, name)
        try:
            if not home[name]:
                return import_module(f"{package}.{name}")
            return getattr(import_module(f"{package}.{home[name]}"), name)
        except ModuleNotFoundError as error:
            if error.name != "torch":
                raise
            raise ImportError(
                f'{package}.{name} needs PyTorch: pip install "certus[deep]".'
            ) from error

    return names, get, lambda: names


def _estimators(package: str) -> dict[str, str]:
    """The classes of a package that have rows, and their modules."""
    _, dot, home = package.partition(".")
    if not dot:  # the rows need not be read to import certus
        return {}
    from certus.registry import ESTIMATORS

    return {row.name: row.file for row in ESTIMATORS.values() if row.home == home}


def _absent(package: str, name: str) -> Any:
    """The error for a missing name, which says whether scikit-learn has it.

    It is an ImportError, because for ``from certus.svm import NuSVC`` Python replaces
    the message of an AttributeError by its own.
    """
    theirs = package.replace("certus", "sklearn", 1)
    inner = "." in package and not name.startswith("_")
    if inner and _is_there(theirs) and name in import_module(theirs).__all__:
        raise ImportError(
            f"{package} has no {name}. Keep scikit-learn's: certus.certify says what "
            "it can judge of the fitted model."
        )
    raise AttributeError(f"module {package!r} has no attribute {name!r}")


def _is_there(theirs: str) -> bool:
    """Whether scikit-learn has this package; asking find_spec would import it."""
    library, _, inner = theirs.partition(".")
    found = find_spec(library)
    folders = (found and found.submodule_search_locations) or ()
    places = [Path(folder, *inner.split(".")) for folder in folders]
    return any(p.is_dir() or p.with_suffix(".py").is_file() for p in places)
