"""One row for each estimator; every list of estimators is derived from these rows.

The rows are in ``registry.toml``. They are strings, so that reading them loads no
estimator. Adding an estimator means one file, one row, and its tests.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

__all__ = ["ESTIMATORS", "Row", "differences", "load_class"]


class Row(NamedTuple):
    """What certus says about an estimator wherever it lists estimators.

    Attributes
    ----------
    name : str
        The class.
    home : str
        Its package below ``certus``.
    file : str
        Its module in that package.
    task : str
        What it does, for example ``"regression"``.
    line : str
        What it is, in a few words.
    shared : bool
        Whether scikit-learn has a class of this name, in the package of this name.
    differs : str
        What differs from scikit-learn's class; ``"as Lasso"`` stands for Lasso's text.
    command : str
        Its name on the command line; "" if it is not offered there.
    why_not : str
        Why it is not offered on the command line.
    checked : str or None
        The arguments with which scikit-learn's checks build it; None where they do not
        apply.
    """

    name: str
    home: str
    file: str
    task: str
    line: str
    shared: bool = False
    differs: str = ""
    command: str = ""
    why_not: str = ""
    checked: str | None = None

    @property
    def predicts(self) -> str:
        """What a model of a table predicts: "numbers", "labels", or "" for neither."""
        return {"regression": "numbers", "classification": "labels"}.get(self.task, "")


def _read() -> dict[str, Row]:
    text = Path(__file__).with_name("registry.toml").read_text("utf-8")
    return {
        name: Row(name, home, **row)
        for home, rows in tomllib.loads(text).items()
        for name, row in rows.items()
    }


#: The rows by the names of the classes.
ESTIMATORS: dict[str, Row] = _read()


def load_class(row: Row) -> Any:
    """The class that a row describes.

    Examples
    --------
    >>> from certus.registry import ESTIMATORS, load_class
    >>> row = ESTIMATORS["Lasso"]
    >>> row.home, row.command, load_class(row).__name__
    ('linear_model', 'lasso', 'Lasso')
    """
    return getattr(import_module(f"certus.{row.home}"), row.name)


def differences() -> Iterator[tuple[list[Row], str]]:
    """Differences from scikit-learn: each text with the classes that it is about.

    Examples
    --------
    >>> from certus.registry import differences
    >>> [(rows[0].name, text) for rows, text in differences()][2]
    ('RidgeCV', 'leave-one-out over all alphas from one decomposition; ...')
    """
    references = {f"as {name}" for name in ESTIMATORS}
    for first in ESTIMATORS.values():
        if first.differs and first.differs not in references:
            same = f"as {first.name}"
            rows = [row for row in ESTIMATORS.values() if row.differs == same]
            yield [first, *rows], first.differs
