"""Rows that mix a row with background rows, and the model's answers for them.

The verifier builds mixed rows by itself, from arrays and from data frames of any
library whose constructor takes columns by name. It also checks that an encoder treats
each column by itself, on rows that it mixes before and after encoding.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse

from certus.typing import Array, Fit

#: Cells of a sparse table that may be written out, and mixed rows asked for at once.
CELLS, TOGETHER = 50_000_000, 1 << 16
#: Sets of columns on which encoders are tried, and rows of each.
SETS, ROWS = 8, 8


class Played(NamedTuple):
    """A model, its rows and background, and what the innermost model sees of them.

    ``encoder`` gives ``rows`` and ``behind`` from X and background; ``owner`` has the
    column of X that each encoded column comes from. Without an encoder they are X and
    background themselves, as numbers. ``table`` is X above the background, as given, or
    None where both are arrays.
    """

    model: Fit
    X: Any
    background: Any
    inner: Fit
    rows: Any
    behind: Any
    owner: Array | None
    encoder: Callable[[Any], Any] | None = None
    table: Any = None
    trees: Any = None


def answers(model: Fit, method: str, X: Any) -> tuple[Array, str]:
    """What the model answers, as rows × outputs, and in which precision."""
    known = getattr(model, "classes_", None)
    two = known is not None and len(np.asarray(known)) == 2
    if method == "call":
        z = np.asarray(model(X))  # type: ignore[operator]
    elif method == "decision":
        z = np.asarray(model.decision_function(X))
    elif method == "probability":
        z = np.asarray(model.predict_proba(X))
        z = z[:, 1] if two else z
    elif method == "label":
        z = np.asarray(model.predict(X))[:, None] == np.asarray(model.classes_)[None]
        z = z[:, 1] if two else z
    elif method == "xgboost":
        z = np.asarray(model.predict(X, output_margin=True))
    elif method == "lightgbm":
        z = np.asarray(model.predict(X, raw_score=True))
    else:
        z = np.asarray(model.predict(X))
        z = np.log(z.astype(np.float64)) if method == "log" else z
    precision = "float32" if z.dtype.itemsize < 8 and z.dtype.kind == "f" else "float64"
    return np.asarray(z, dtype=np.float64).reshape(len(z), -1), precision


def mixer(played: Played, method: str) -> Callable[[int, Array], Array] | None:
    """Answers for row i mixed with all background rows, for each set of columns.

    The function takes i and sets as rows of booleans, and returns an array of
    sets × background rows × outputs. None if no mixed rows can be built.
    """
    numbers = written_rows(played)
    if numbers is not None:
        rows, behind = numbers
        owner = np.asarray(played.owner)

        def ask(i: int, masks: Array) -> Array:
            m, parts = len(behind), []
            step = max(1, TOGETHER // m)
            for start in range(0, len(masks), step):
                inside = masks[start : start + step][:, owner]
                mixed = np.where(inside[:, None, :], rows[i], behind[None])
                z, _ = answers(played.inner, method, mixed.reshape(-1, mixed.shape[2]))
                parts.append(z.reshape(len(inside), m, -1))
            return np.concatenate(parts)

        return ask
    if played.table is None or not hasattr(played.table, "columns"):
        return None
    n, m = len(played.X), len(played.background)

    def ask_frames(i: int, masks: Array) -> Array:
        parts = []
        step = max(1, TOGETHER // m)
        for start in range(0, len(masks), step):
            inside = masks[start : start + step, None, :]
            places = np.where(inside, i, np.arange(n, n + m)[None, :, None])
            mixed = mixed_columns(played.table, places.reshape(-1, masks.shape[1]))
            z, _ = answers(played.model, method, mixed)
            parts.append(z.reshape(len(inside), m, -1))
        return np.concatenate(parts)

    return ask_frames


def mixed_columns(table: Any, places: Array) -> Any:
    """A frame whose column j is taken at the rows ``places[:, j]``."""
    columns = {}
    for j, name in enumerate(table.columns):
        part = taken(table[name], places[:, j])
        drop = hasattr(part, "reset_index")
        columns[name] = part.reset_index(drop=True) if drop else part
    return type(table)(columns)


def written_rows(played: Played) -> tuple[Array, Array] | None:
    """Encoded rows and background as arrays that the inner model takes."""
    rows, behind = played.rows, played.behind
    if (
        rows is None
        or played.owner is None
        or (hasattr(played.X, "columns") and (played.encoder is None))
    ):
        return None
    if not sparse.issparse(rows):
        return np.asarray(rows), np.asarray(behind)
    if (rows.shape[0] + behind.shape[0]) * rows.shape[1] > CELLS:
        return None
    return rows.toarray(), behind.toarray()


def taken(X: Any, places: Array) -> Any:
    """Some rows of an array or a frame."""
    return X.iloc[places] if hasattr(X, "iloc") else X[places]


def mixed_frame(above: Any, below: Any, inside: Array) -> Any:
    """Columns of one table where ``inside`` holds, of the other elsewhere."""
    if not hasattr(above, "columns"):
        return np.where(inside, above, below)
    columns = {}
    for name, ours in zip(above.columns, inside):
        part = (above if ours else below)[name]
        drop = hasattr(part, "reset_index")
        columns[name] = part.reset_index(drop=True) if drop else part
    return type(above)(columns)


def by_columns(played: Played) -> str | None:
    """None if mixing before and after encoding agree on some rows, else a reason."""
    n, m = len(played.X), len(played.background)
    d = played.X.shape[1]
    count = min(ROWS, n, m)
    if played.encoder is None or played.owner is None:
        return None
    ours = np.linspace(0, n - 1, count).astype(int)
    theirs = np.linspace(0, m - 1, count).astype(int)
    row, behind = taken(played.X, ours), taken(played.background, theirs)
    above, below = (
        _dense(part[at]) for part, at in ((played.rows, ours), (played.behind, theirs))
    )
    for t in range(SETS):
        inside = ((np.arange(d) * 7 + t * 5 + (np.arange(d) * (t + 1)) // 3) % 3) < 1
        try:
            mixed = _dense(played.encoder(mixed_frame(row, behind, inside)))
        except TypeError:
            return "mixed rows of this kind of table cannot be built again"
        expected = np.where(inside[np.asarray(played.owner)], above, below)
        if not np.allclose(mixed, expected, rtol=1e-12, atol=1e-12, equal_nan=True):
            return "the encoder mixes columns, so that none has a share of its own"
    return None


def _dense(part: Any) -> Array:
    return np.asarray(part.toarray() if sparse.issparse(part) else part)
