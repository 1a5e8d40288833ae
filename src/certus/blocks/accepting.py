"""Which estimators take blocks: those that define ``_fit_blocks`` beside their ``fit``.

``fit(blocks)`` and ``fit(path, target=...)`` arrive here. All others are refused with a
model that can be fitted to a table of any size.
"""

from __future__ import annotations

import copy
import functools
import inspect
import os
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np
from sklearn.base import is_classifier, is_regressor

from certus.blocks.keys import Blocks, RowBlock, is_blocks
from certus.blocks.scratch import is_lazy
from certus.blocks.sources import blocks
from certus.typing import Array, Fit

Method = TypeVar("Method", bound=Callable[..., Any])

#: Models that scale, by the package of one that does not; then by its task.
BY_PACKAGE = {
    "kernel_ridge": "Ridge on the columns of a Nystroem map",
    "decomposition": "PCA, FactorAnalysis or TruncatedSVD",
    "mixture": "GaussianMixture",
    "cluster": "KMeans",
}
#: Options of ``fit`` and ``blocks`` that name columns of a file.
COLUMNS = ("target", "columns")


def takes_blocks(model: object) -> bool:
    """Whether the class whose ``fit`` this is, or one below it, fits to blocks."""
    for cls in type(model).__mro__:
        if "_fit_blocks" in vars(cls):
            return True
        if "fit" in vars(cls):
            return False
    return False


def arrive(model: Any, call: inspect.BoundArguments, named: dict[str, Any]) -> Any:
    """The blocks of a call of ``fit``, None for rows in memory.

    ``named`` are the arguments that say which columns of a file have which role.
    """
    given = dict(call.arguments)
    first = next((name for name in given if name != "self"), "X")
    X = given.pop(first, None)
    given.pop("self", None)
    file = isinstance(X, str | os.PathLike) or is_lazy(X)
    if not is_blocks(X) and not named and not (file and takes_blocks(model)):
        return None
    if not takes_blocks(model):
        raise TypeError(_too_large(model))
    weight = given.pop("sample_weight", None) if not is_blocks(X) else None
    for name, value in given.items():
        default = call.signature.parameters[name].default
        if value is not None and value is not default:
            raise ValueError(
                f"{name} must be part of the blocks: certus.scale.blocks(..., "
                f"{'target' if name == 'y' else name}=...)."
            )
    if is_blocks(X):
        if named:
            raise ValueError(
                f"{next(iter(named))} was fixed when the blocks were made: "
                "certus.scale.blocks(..., target=...)."
            )
        return X
    return blocks(X, sample_weight=weight, **named)


def _too_large(model: object) -> str:
    name = type(model).__name__
    return (
        f"{name} needs all rows in memory: it cannot be fitted to blocks or to a file. "
        f"For tables larger than memory use {nearest(model)}, or fit {name} to a "
        "sample of the rows."
    )


def nearest(model: object) -> str:
    """The models for a similar task that can be fitted to blocks."""
    package = type(model).__module__.split(".")[1:2]
    if package and package[0] in BY_PACKAGE:
        return BY_PACKAGE[package[0]]
    kernel = package == ["svm"] and "Linear" not in type(model).__name__
    if is_classifier(model):
        more = " on the columns of a Nystroem map" if kernel else ""
        return "LogisticRegression" + more
    if is_regressor(model):
        return "Ridge on the columns of a Nystroem map" if kernel else "Ridge or Lasso"
    return "LogisticRegression, Ridge or PCA"


def name_columns(model: Any, rows: Blocks) -> None:
    """Set ``n_features_in_``, and the columns' names where a file has them."""
    model.n_features_in_ = len(rows.names)
    vars(model).pop("feature_names_in_", None)
    if rows.named:
        model.feature_names_in_ = np.array(rows.names, dtype=object)


# -- answers for blocks ----------------------------------------------------------------


def by_block(method: Method) -> Method:
    """Let a method answer for blocks: block by block, as one array in memory."""

    @functools.wraps(method)
    def run(self: Fit, X: Any, *args: Any, **kwargs: Any) -> Any:
        if not is_blocks(X):
            return method(self, X, *args, **kwargs)
        names = getattr(self, "feature_names_in_", None)
        if names is not None and X.named and list(names) != list(X.names):
            raise ValueError(
                f"The blocks have the columns {', '.join(X.names[:8])}, but the model "
                f"was fitted on {', '.join(names[:8])}. Name them with columns=[...]."
            )
        bare = copy.copy(self)
        vars(bare).pop("feature_names_in_", None)  # rows of a block have no names
        found = [*X.map(_answer, bare, method.__name__, args, kwargs)]
        return np.concatenate(found)

    return run  # type: ignore[return-value]


def _answer(
    block: RowBlock,
    model: Fit,
    name: str,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> Array:
    return np.asarray(getattr(model, name)(block.X, *args, **kwargs))


def refuse_blocks(model: object) -> None:
    """Raise the error of a method that takes rows only."""
    name = type(model).__name__
    if takes_blocks(model):
        raise TypeError(
            f"This method of {name} takes rows, not blocks. Call it for each block: "
            "for key in table.keys: ... table.read(key).X"
        )
    raise TypeError(
        f"{name} takes rows in memory, not blocks. Models for blocks are "
        f"{nearest(model)}."
    )
