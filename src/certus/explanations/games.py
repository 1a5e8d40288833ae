"""The function that contributions divide up: a model, rows, and background rows.

    v(S) = mean over background rows b of f(x on the columns S, b on the others)

In the terms of game theory, the columns of the user's table are the players. An encoder
that treats each column by itself is applied once to all rows, and encoded rows are
mixed; otherwise mixed rows go through the whole pipeline.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from scipy import sparse

from certus.base import take
from certus.explanations.answers import Answer, answer_of, ask
from certus.explanations.owners import owners_of
from certus.explanations.rows import StackedRows, read_rows
from certus.tables.errors import did_you_mean
from certus.typing import Array, Fit, MatrixLike

#: Cells of a sparse table that may be written out.
CELLS = 50_000_000
#: Mixed rows that are asked for at once.
TOGETHER = 1 << 16


@dataclass(frozen=True)
class MixingGame:
    """A model as a function of mixed rows.

    ``encoded`` has all rows as ``inner`` sees them, if an encoder comes before it;
    ``owner`` holds the user's column that each of its columns comes from, or is None if
    only the whole ``model`` can be asked.
    """

    model: Any
    rows: StackedRows
    answer: Answer
    inner: Any
    encoded: Any
    owner: Array | None

    @cached_property
    def table(self) -> Any:
        """All rows as ``inner`` sees them; None if only ``model`` can be asked."""
        if self.owner is None or self.encoded is not None:
            return self.encoded
        return self.rows.table

    @property
    def d(self) -> int:
        """Number of columns, the players."""
        return len(self.rows.columns)

    @property
    def k(self) -> int:
        """Number of outputs."""
        return len(self.answer.outputs)

    def encode(self, table: Any) -> Any:
        """Rows of the user's table as the innermost model sees them."""
        inner: Any = self.model
        while (parts := _split(inner))[1] is not None:
            table = table if parts[0] is None else parts[0].transform(table)
            inner = parts[1]
        return table

    @cached_property
    def answers(self) -> Array:
        """The answers for all rows and then all background rows."""
        parts: tuple[Any, ...] = (self.rows.first, self.rows.background)
        if self.encoded is not None or not isinstance(parts[0], np.ndarray):
            parts = (self.rows.table,)
        found = np.concatenate([ask(self.model, self.answer.method, p) for p in parts])
        bad = ~np.isfinite(found).all(axis=1)
        if bad.any():
            raise ValueError(
                "The model returns NaN or infinity for "
                f"{int(bad.sum()):,} of the rows and background rows. Leave these rows "
                "out, or use another output."
            )
        return found

    def of(self, places: Array) -> Array:
        """The answers for mixed rows, named by a row for each column."""
        parts = [
            self._of(places[i : i + TOGETHER]) for i in range(0, len(places), TOGETHER)
        ]
        return np.concatenate(parts)

    def _of(self, places: Array) -> Array:
        if self.mixable is None:
            return ask(self.model, self.answer.method, self.rows.mixed(places))
        owner = self.owner
        mixed = self.mixable[places[:, owner], np.arange(len(owner))]  # type: ignore[arg-type]
        return ask(self.inner, self.answer.method, mixed)

    @cached_property
    def mixable(self) -> Array | None:
        """The encoded rows as an array that the inner model takes, if there is one."""
        if self.owner is None or hasattr(self.table, "columns"):
            return None
        if not sparse.issparse(self.table):
            return np.asarray(self.table)
        cells = self.table.shape[0] * self.table.shape[1]
        return self.table.toarray() if cells <= CELLS else None

    @cached_property
    def numbers(self) -> Any:
        """The encoded rows as numbers, dense or sparse; None if they are texts."""
        if self.owner is None:
            return None
        if sparse.issparse(self.table):
            return self.table.tocsr()
        return _floats(self.table)

    @cached_property
    def halves(self) -> tuple[Any, Any]:
        """``numbers`` of the rows and of the background rows."""
        parts: tuple[Any, ...] = (self.rows.first, self.rows.background)
        if self.owner is not None and self.encoded is None:
            found = tuple(map(_floats, parts))
            return (None, None) if found[0] is None or found[1] is None else found
        n, numbers = self.rows.n, self.numbers
        return (None, None) if numbers is None else (numbers[:n], numbers[n:])


def _floats(table: Any) -> Any:
    """A table as numbers; None if it holds texts."""
    try:
        found = np.asarray(table)
        return found if found.dtype.kind == "f" else found.astype(np.float64)
    except (TypeError, ValueError):
        return None


def game_of(
    model: Any, X: MatrixLike, background: MatrixLike | None, output: str
) -> MixingGame:
    """Read model, rows and background, and decide what is explained."""
    model = _best_of(model)
    X, background = _in_order(model, X), _in_order(model, background)
    rows = read_rows(X, background)
    _check_width(model, rows)
    inner, table, owner = _encoded(model, rows)
    few = np.arange(min(rows.m, 20))
    if owner is None or table is None:
        answer = answer_of(
            model if owner is None else inner, output, take(rows.background, few)
        )
    else:
        answer = answer_of(inner, output, take(table, rows.n + few))
    return MixingGame(model, rows, answer, inner, table, owner)


def _best_of(model: Fit) -> Any:
    if hasattr(model, "best_estimator_"):
        return model.best_estimator_
    if isinstance(model, type):
        raise TypeError(
            f"explain needs a fitted model, got the class {model.__name__}. Create "
            "and fit one first."
        )
    return model


def _in_order(model: Any, X: Any) -> Any:
    """The columns that the model was fitted on, in that order."""
    names = getattr(model, "feature_names_in_", None)
    if names is None or not hasattr(X, "columns"):
        return X
    names = [str(name) for name in names]
    given = [str(name) for name in X.columns]
    missing = [name for name in names if name not in given]
    if missing:
        hint = did_you_mean(missing[0], given)
        raise ValueError(
            f"X has no column {missing[0]!r}, which the model needs.{hint}"
        )
    return X if names == given else X[names]


def _check_width(model: Fit, rows: StackedRows) -> None:
    expected = getattr(model, "n_features_in_", None)
    if expected is not None and expected != len(rows.columns):
        raise ValueError(
            f"X has {len(rows.columns)} columns, but the model was fitted on "
            f"{expected}. Pass the columns of the fit."
        )


def _encoded(model: Fit, rows: StackedRows) -> tuple[Any, Any, Array | None]:
    """The innermost model, all rows as an encoder gives them, and columns' owners."""
    d = len(rows.columns)
    table, owner, inner = None, np.arange(d), model
    while True:
        encoder, below = _split(inner)
        if below is None:
            break
        if encoder is not None:
            table = encoder.transform(rows.table if table is None else table)
        width = d if table is None else table.shape[1]
        more = owners_of(encoder, len(owner), width)
        if more is None:
            return model, None, None
        owner, inner = owner[more], below
    return inner, table, owner


def _split(model: Any) -> tuple[Any, Any]:
    """The encoder and the model of a pipeline; (model, None) for anything else."""
    if hasattr(model, "encoder_") and hasattr(model, "estimator_"):
        return model.encoder_, model.estimator_
    if hasattr(model, "best_estimator_"):
        return None, model.best_estimator_
    if type(model).__name__ == "Pipeline" and hasattr(model, "steps"):
        last = model.steps[-1][1]
        if last is None or isinstance(last, str):
            raise ValueError("The pipeline ends in 'passthrough': it has no model.")
        return (model[:-1] if len(model.steps) > 1 else None), last
    return model, None
