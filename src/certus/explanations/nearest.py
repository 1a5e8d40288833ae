"""The nearest change that flips a decision: fewest columns, then smallest.

A change gives some columns the values that they have in background rows, so only values
that occur are used. Its size is the largest change of a column, in standard deviations
of the background; a category counts as 1. Models that are sums over columns are solved
exactly. For other models all changes of one column are tried, and a search looks for
changes of more columns.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from certus.certificate import Claim
from certus.explanations.additive import has_terms
from certus.explanations.games import MixingGame, game_of
from certus.explanations.linear import coefficients
from certus.results import Result
from certus.typing import Array, Fit, MatrixLike
from certus.verify import Flip, flip_claims
from certus.wording import number

__all__ = ["NearestChange", "nearest_change"]


@dataclass(frozen=True)
class NearestChange(Result):
    """A change that flips a decision; from :func:`nearest_change`.

    Attributes
    ----------
    columns : tuple of str
        The columns to change; empty if no change was found.
    before, after : tuple
        Their values.
    score, changed_score, threshold : float
        The score of the row, the score of the changed row, and the score at which the
        decision flips.
    size : float
        The largest change of a column, in standard deviations of the background.
    fewest : tuple of int
        Lower and upper bound on the number of columns that must change; they are equal
        if this number is known.
    claims : tuple of Claim
        What was checked.

    Examples
    --------
    >>> from certus.explanations import nearest_change
    >>> from certus.linear_model import Ridge
    >>> X, y = [[0.0, 1.0], [1.0, 0.0], [2.0, 2.0]], [0.0, 1.0, 4.0]
    >>> found = nearest_change(Ridge(alpha=0.1).fit(X, y), [[0.0, 1.0]], X, threshold=3)
    >>> found.columns, found.fewest
    (('x0',), (1, 1))
    """

    columns: tuple[str, ...]
    before: tuple[Any, ...]
    after: tuple[Any, ...]
    score: float
    changed_score: float
    threshold: float
    size: float
    fewest: tuple[int, int]
    claims: tuple[Claim, ...] = field(default=(), repr=False)

    @property
    def verdict(self) -> str:
        """The change in a sentence."""
        if not self.columns:
            return "no change was found that flips the decision"
        parts = [
            f"{name} from {_cell(a)} to {_cell(b)}"
            for name, a, b in zip(self.columns, self.before, self.after)
        ]
        return (
            f"change {' and '.join(parts)}: the score goes from {number(self.score)} "
            f"to {number(self.changed_score)}, across {number(self.threshold)}"
        )

    @property
    def notes(self) -> tuple[str, ...]:
        """What was checked."""
        return tuple(f"{claim.mark} {claim.detail}" for claim in self.claims)


def _cell(value: Any) -> str:
    return number(value) if isinstance(value, float) else str(value)


class _Moves(NamedTuple):
    """For each column and background row: its size, and the score of the change."""

    sizes: Array  # (columns, background)
    scores: Array


def nearest_change(
    model: Fit,
    row: MatrixLike,
    background: MatrixLike,
    *,
    threshold: float | None = None,
    fixed: Sequence[str] = (),
    output: str = "auto",
) -> NearestChange:
    """Find the nearest change of a row that flips its decision.

    Parameters
    ----------
    model : fitted estimator, pipeline or callable
        A classifier of two classes, or any model with one output if ``threshold`` is
        given.
    row : data frame or array of shape (1, n_features)
        The row whose decision should flip.
    background : data frame or array
        Rows whose values a change may use.
    threshold : float, optional
        Where the decision flips, on the scale of ``output``; by default 0 for scores
        and 0.5 for probabilities of classifiers.
    fixed : sequence of str, optional
        Columns that must not change.
    output : {"auto", "score", "probability", "prediction"}, default="auto"
        As in :func:`certus.explain`.

    Returns
    -------
    NearestChange

    Certificate
    -----------
    ``flips`` (proved): the model's own answer for the changed row is on the other side.
    ``nearest``: no change of fewer columns flips the decision, and no smaller change of
    the same number of columns does. It is proved for models that are sums over columns,
    and for changes of one column; for other models it gives bounds on the number of
    columns.
    """
    game = game_of(model, row, background, output)
    if game.rows.n != 1:
        raise ValueError(f"row must be one row, got {game.rows.n}. Pass X[:1].")
    cut = _threshold(game, threshold)
    unknown = [name for name in fixed if name not in game.rows.columns]
    if unknown:
        raise ValueError(f"fixed names {unknown[0]!r}, which is not a column.")
    free = np.array([name not in fixed for name in game.rows.columns])
    summed = coefficients(game) is not None or _single_terms(game)
    side = 1.0 if game.answers[0, 0] < cut else -1.0
    moves = _moves(game, free)
    gains = side * (moves.scores - game.answers[0, 0])
    margin = side * (cut - game.answers[0, 0])
    chosen = _best_sum(gains, moves.sizes, margin) if summed else _search(
        game, gains, moves.sizes, cut, side, free
    )  # fmt: skip
    return _result(game, chosen, cut, free, summed)


def _threshold(game: MixingGame, given: float | None) -> float:
    if game.k != 1:
        raise ValueError(
            f"nearest_change needs a model with one output, got {game.k} outputs. "
            "Pass a function that returns the score of one class."
        )
    if given is not None:
        return float(given)
    if not hasattr(game.inner, "classes_"):
        raise ValueError(
            "This model predicts numbers; pass threshold=, the number at which the "
            "decision flips."
        )
    return 0.5 if game.answer.method in ("probability", "label") else 0.0


def _single_terms(game: MixingGame) -> bool:
    terms = getattr(game.inner, "terms_", ((0, 0),))
    return all(len(term) == 1 for term in terms) and has_terms(game)


def _moves(game: MixingGame, free: Array) -> _Moves:
    """The size and the score of every change of one column."""
    m, d = game.rows.m, game.d
    places = np.zeros((d, m, d), dtype=int)
    for j in range(d):
        places[j, :, j] = np.arange(1, m + 1)
    scores = game.of(places.reshape(-1, d)).reshape(d, m)
    sizes = change_sizes(game.rows.cells(all_rows=True))
    sizes[~free] = np.inf
    return _Moves(sizes, scores)


def change_sizes(cells: list[list[Any]]) -> Array:
    """How far each background value is from the first row's, column by column."""
    found = []
    for column in cells:
        try:
            x = np.array([np.nan if v is None else float(v) for v in column])
            spread = float(np.nanstd(x[1:])) if np.isfinite(x[1:]).any() else 0.0
            apart = np.abs(x[1:] - x[0]) / (spread or 1.0)
            same = np.isnan(x[1:]) & np.isnan(x[0])
            found.append(np.where(same, 0.0, np.nan_to_num(apart, nan=1.0)))
        except (TypeError, ValueError):
            found.append(np.array([float(v != column[0]) for v in column[1:]]))
    return np.array(found)


def _best_sum(gains: Array, sizes: Array, margin: float) -> dict[int, int]:
    """The background row to take for each changed column, for sums over columns."""
    allowed = np.where(np.isfinite(sizes), gains, -np.inf)
    most = np.sort(np.maximum(allowed.max(axis=1), 0.0))[::-1]
    enough = np.flatnonzero(np.cumsum(most) >= margin)
    if not len(enough):
        return {}
    count = int(enough[0]) + 1
    levels = np.unique(sizes[np.isfinite(sizes)])
    low, high = 0, len(levels) - 1
    while low < high:  # the smallest level at which `count` columns suffice
        middle = (low + high) // 2
        within = np.where(sizes <= levels[middle], gains, -np.inf).max(axis=1)
        top = np.sort(np.maximum(within, 0.0))[::-1][:count]
        low, high = (low, middle) if top.sum() >= margin else (middle + 1, high)
    within = np.where(sizes <= levels[low], gains, -np.inf)
    columns = np.argsort(-within.max(axis=1), kind="stable")[:count]
    return {int(j): int(within[j].argmax()) for j in columns}


def _search(
    game: MixingGame, gains: Array, sizes: Array, cut: float, side: float, free: Array
) -> dict[int, int]:
    """One column in full; then one more at a time, the best of all that are left."""
    flips = (side * (cut - game.answers[0, 0]) <= gains) & np.isfinite(sizes)
    if flips.any():
        return dict([_place(np.where(flips, -sizes, -np.inf))])
    chosen: dict[int, int] = {}
    m, d = game.rows.m, game.d
    for _ in range(int(free.sum())):
        left = [j for j in range(d) if free[j] and j not in chosen]
        places = np.zeros((len(left), m, d), dtype=int)
        for j, b in chosen.items():
            places[:, :, j] = b + 1
        for t, j in enumerate(left):
            places[t, :, j] = np.arange(1, m + 1)
        scores = side * game.of(places.reshape(-1, d)).reshape(len(left), m)
        flipping = scores >= side * cut
        if flipping.any():
            cost = np.where(flipping, sizes[left], np.inf)
            t, b = _place(-cost)
            return chosen | {left[t]: b}
        t, b = _place(scores)
        chosen[left[t]] = b
    return {}


def _place(table: Array) -> tuple[int, int]:
    """Row and column of the largest entry."""
    row, column = divmod(int(table.argmax()), table.shape[1])
    return row, column


def _result(
    game: MixingGame, chosen: dict[int, int], cut: float, free: Array, summed: bool
) -> NearestChange:
    from certus.explanations.explaining import played

    cells, columns = game.rows.cells(all_rows=True), sorted(chosen)
    places = np.zeros((1, game.d), dtype=int)
    for j, b in chosen.items():
        places[0, j] = b + 1
    after = float(game.of(places)[0, 0]) if chosen else float("nan")
    sizes = change_sizes(cells)
    size = max((float(sizes[j, b]) for j, b in chosen.items()), default=float("nan"))
    flip = Flip(chosen, cut, game.answer.method, free, summed)
    claims, fewest = flip_claims(flip, played(game))
    return NearestChange(
        columns=tuple(game.rows.columns[j] for j in columns),
        before=tuple(cells[j][0] for j in columns),
        after=tuple(cells[j][chosen[j] + 1] for j in columns),
        score=float(game.answers[0, 0]),
        changed_score=after,
        threshold=cut,
        size=size,
        fewest=fewest,
        claims=tuple(claims),
    )
