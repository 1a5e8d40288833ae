"""``certus.explain``: contributions of columns that add up to each prediction.

    φ_j = mean, over all orders of the columns, of what column j adds

Columns that have not yet been added take the values of background rows (interventional
Shapley values). Formulas are used where they exist, all sets of columns for up to 12
columns, and sampled orders with an interval for everything else.
"""

from __future__ import annotations

import time
from typing import Any, NamedTuple

import numpy as np
from scipy import stats

from certus.base import check_choice, check_number, generator_of, thread_budget
from certus.certificate import Certificate
from certus.explanations.additive import additive_contributions, has_terms
from certus.explanations.answers import OUTPUTS
from certus.explanations.contributions import Contributions
from certus.explanations.enumeration import (
    MOST_COLUMNS,
    enumerated_contributions,
    moving_columns,
)
from certus.explanations.games import MixingGame, game_of
from certus.explanations.linear import coefficients, linear_contributions
from certus.explanations.sampling import number_of_draws, sampled_contributions
from certus.explanations.trees import ReadTrees, tree_contributions, trees_of
from certus.typing import Array, Fit, MatrixLike, RandomState
from certus.verify import Played, ToldShares, explained_claims

__all__ = ["explain"]

#: Mixed rows that may be asked of a model, by default.
BUDGET = 2_000_000
_METHODS = ("auto", "exact", "sampled")
#: How contributions were computed, in words.
WAYS = {
    "linear": "closed form of a linear model",
    "sets": "the definition, over all sets of columns",
    "additive": "closed form of an additive model",
    "trees": "exact over all leaves of the trees",
    "orders": "sampled orders of the columns",
}


def explain(
    model: Fit,
    X: MatrixLike,
    background: MatrixLike | None = None,
    *,
    output: str = "auto",
    method: str = "auto",
    max_asked: int = BUDGET,
    delta: float = 0.05,
    tol: float | None = None,
    random_state: RandomState = None,
) -> Contributions:
    """Divide each prediction among the columns, so that the parts add up.

    Parameters
    ----------
    model : fitted estimator, pipeline or callable
        A model of certus, scikit-learn or any library with scikit-learn's interface.
    X : data frame or array of shape (n_samples, n_features)
        The rows to explain.
    background : data frame or array, optional
        Rows that the rows of X are compared with, for example 100 training rows. By
        default up to 100 of the rows of X.
    output : {"auto", "score", "probability", "prediction"}, default="auto"
        What is divided among the columns. ``"auto"`` takes the score that the model
        decides by or, for a generalised linear model, its linear predictor; else
        probabilities, else predictions.
    method : {"auto", "exact", "sampled"}, default="auto"
        Whether sampled orders are allowed. ``"auto"`` samples only if no exact method
        is known, or if it would need more than ``max_asked`` mixed rows.
    max_asked : int, default=2_000_000
        Largest number of mixed rows that the model is asked about. A mixed row has some
        columns of a row and the others of a background row. Closed forms need none.
    delta : float, default=0.05
        Failure probability: the chance that the statement does not hold. It applies to
        all intervals together, if orders are sampled.
    tol : float, optional
        How far sums may be off, as a share of the largest prediction; by default 1e-9,
        and 1e-5 for models that compute in single precision.
    random_state : int, Generator or None, default=None
        Seed or generator of all random numbers. They decide the sampled orders.

    Returns
    -------
    Contributions

    Objective
    ---------
    φ_j(x) = mean over orders π of v(columns up to j) − v(columns before j),
    v(S) = mean over background rows b of f(x on S, b elsewhere)

    Certificate
    -----------
    ``additivity`` (proved for each row): base value and contributions add up to the
    model's own answer. ``base_value`` (proved). ``contributions``: each equals the
    formula above (proved, for all rows in closed form or for some rows by the
    definition). If orders are sampled, each lies in its interval (statistical).

    Examples
    --------
    >>> import certus
    >>> from sklearn.datasets import load_diabetes
    >>> from sklearn.linear_model import Ridge
    >>> X, y = load_diabetes(return_X_y=True, as_frame=True)
    >>> found = certus.explain(Ridge().fit(X, y), X[:3], background=X[:100])
    >>> found.certificate["additivity"].met
    True
    >>> found.top(0)[0]
    'bmi'
    """
    start = time.perf_counter()
    check_choice("output", output, OUTPUTS)
    check_choice("method", method, _METHODS)
    check_number("max_asked", max_asked, 1, integer=True)
    check_number("delta", delta, 0.0, 1.0, open_low=True)
    check_number("tol", tol, open_low=True, none=True)
    game = game_of(model, X, background, output)
    found = _contributions(game, method, max_asked, random_state)
    base = game.answers[game.rows.n :].mean(axis=0)
    told = ToldShares(
        *(found.values, base, game.answer.method, found.way),
        *(found.errors, found.orders, delta),
    )
    spent = time.perf_counter() - start
    certificate = _certificate(told, played(game, found.read), tol, "quick", spent)
    low, high = _interval(found, delta)
    return Contributions(
        columns=game.rows.columns,
        outputs=game.answer.outputs,
        unit=game.answer.unit,
        base=base,
        values=found.values,
        predictions=game.answers[: game.rows.n],
        low=low,
        high=high,
        background=game.rows.m,
        way=WAYS[found.way],
        certificate=certificate,
        cells=game.rows.kept,
        told=told,
    )


def shares_alone(model: Fit, X: MatrixLike, background: MatrixLike) -> Array:
    """The contributions without a certificate, for measurements."""
    game = game_of(model, X, background, "auto")
    return _contributions(game, "auto", BUDGET, 0).values


class _Shares(NamedTuple):
    values: Array
    way: str
    errors: Array | None = None
    orders: Array | None = None
    read: ReadTrees | None = None


def _contributions(
    game: MixingGame, method: str, most: int, random_state: RandomState
) -> _Shares:
    """Choose the way: a closed form, the definition, or sampled orders."""
    if method != "sampled":
        W = coefficients(game)
        if W is not None:
            return _Shares(linear_contributions(game, W), "linear")
        if has_terms(game):
            return _Shares(additive_contributions(game), "additive")
        read = trees_of(game)
        values = None if read is None else tree_contributions(game, read)
        if values is not None:
            return _Shares(values, "trees", read=read)
    moving = moving_columns(game)
    widest = int(moving.sum(axis=1).max(initial=0))
    asked = game.rows.m * float((2.0 ** moving.sum(axis=1)).sum())
    fits = widest <= MOST_COLUMNS and asked <= most
    if fits and method != "sampled":
        return _Shares(enumerated_contributions(game, moving), "sets")
    if method == "exact":
        raise ValueError(
            f"No closed form is known for {type(game.inner).__name__}, and exact "
            f"contributions of {widest} columns ask the model about {asked:.1e} rows "
            f"(at most {MOST_COLUMNS} columns and max_asked={most:,} rows). Use a "
            "smaller background, fewer rows, or method='sampled'."
        )
    draws = number_of_draws(game, moving, most)
    rng = generator_of(random_state)
    values, errors, orders = sampled_contributions(game, draws, rng)
    return _Shares(values, "orders", errors, orders)


def _interval(found: _Shares, delta: float) -> tuple[Array | None, Array | None]:
    """Student's t over draws, for all rows, columns and outputs together."""
    if found.errors is None or found.orders is None:
        return None, None
    share = delta / (2 * found.values.size)
    width = stats.t.ppf(1 - share, len(found.orders) - 1) * found.errors
    return found.values - width, found.values + width


def _certificate(
    told: ToldShares, parts: Played, tol: float | None, level: str, spent: float
) -> Certificate:
    start = time.perf_counter()
    found = explained_claims(told, parts, tol=tol, level=level)
    return Certificate.of(
        *(parts.model, found),
        origin="certify",
        level=level,
        seconds=time.perf_counter() - start,
        fit_seconds=spent,
        threads=thread_budget(),
    )


def recheck(
    told: ToldShares,
    model: Fit,
    X: MatrixLike,
    background: Any,
    tol: float | None,
    level: str,
) -> Certificate:
    """Read model, rows and background again, and let the verifier check the parts."""
    game = game_of(model, X, background, "auto")
    read = trees_of(game) if told.way == "trees" else None
    return _certificate(told, played(game, read), tol, level, 0.0)


def played(game: MixingGame, read: ReadTrees | None = None) -> Played:
    """The parts that the verifier works with."""
    rows = game.rows
    plain = game.inner is game.model
    parts = game.halves if read is None else (read.rows, read.behind)
    encoder = None if plain or game.owner is None else game.encode
    return Played(
        *(game.model, rows.first, rows.background, game.inner),
        rows=parts[0],
        behind=parts[1],
        owner=game.owner,
        encoder=encoder,
        table=None if isinstance(rows.first, np.ndarray) else rows.table,
        trees=None if read is None else read.trees,
    )
