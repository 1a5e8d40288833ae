"""One row for each estimator; every list of estimators is derived from these rows.

The rows stand in ``registry.toml``. They are strings, so that reading them loads no
estimator. Adding an estimator means one file, one row, and its tests.
"""

from __future__ import annotations

import tomllib
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

__all__ = ["ESTIMATORS", "Row", "load_class"]


class Row(NamedTuple):
    """What certus says of an estimator wherever it lists estimators.

    Attributes
    ----------
    name : str
        The class.
    home : str
        Its package below ``certus``.
    task : str
        What it does, for example ``"regression"``.
    line : str
        What it is, in a few words.
    shared : bool
        Whether scikit-learn has a class of this name, in the package of this name.
    command : str
        Its name on the command line; "" if it is not offered there.
    checked : str or None
        The arguments with which scikit-learn's checks build it; None where they do not
        apply.
    why_not : str
        Why it is not offered on the command line.
    """

    name: str
    home: str
    task: str
    line: str
    shared: bool = False
    command: str = ""
    checked: str | None = None
    why_not: str = ""

    @property
    def predicts(self) -> str:
        """What a model of a table predicts: "numbers", "labels", or "" for neither."""
        return {"regression": "numbers", "classification": "labels"}.get(self.task, "")


def _read() -> dict[str, Row]:
    text = Path(__file__).with_name("registry.toml").read_text("utf-8")
    return {
        row["name"]: Row(home=home, **row)
        for home, rows in tomllib.loads(text).items()
        for row in rows
    }


#: The rows by the names of the classes.
ESTIMATORS: dict[str, Row] = _read()


def load_class(row: Row) -> Any:
    """The class that a row speaks of.

    Examples
    --------
    >>> from certus.registry import ESTIMATORS, load_class
    >>> row = ESTIMATORS["Lasso"]
    >>> row.home, row.command, load_class(row).__name__
    ('linear_model', 'lasso', 'Lasso')
    """
    return getattr(import_module(f"certus.{row.home}"), row.name)
