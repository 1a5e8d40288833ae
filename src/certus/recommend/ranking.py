"""How good rankings and predictions are, measured on held-out ratings.

A ranking of items is compared with the items that a user really chose: hit h_j = 1 if
the j-th item is one of the R relevant ones. Metrics are means over users with R > 0,

    precision@k = Σ_{j≤k} h_j / k            recall@k = Σ_{j≤k} h_j / R
    AP@k = Σ_{j≤k} h_j·precision@j / min(k, R)
    NDCG@k = Σ_{j≤k} h_j / log₂(1 + j) ÷ Σ_{j≤min(k,R)} 1 / log₂(1 + j)
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse
from scipy.stats import rankdata
from sklearn.utils.validation import check_is_fitted

from certus.base import check_number
from certus.recommend.ratings import as_csr, columns_of, is_frame
from certus.recommend.recommending import BLOCK, Recommender, top
from certus.results import Result
from certus.typing import Array, ArrayLike, MatrixLike


@dataclass(frozen=True, repr=False)
class Evaluation(Result):
    """What :func:`evaluate` found; each metric is a mean over ``n_users``.

    ``coverage`` is the share of items recommended to anybody. ``rmse`` and ``mae`` are
    those of the predicted ratings, NaN for implicit counts.

    Examples
    --------
    >>> from certus.recommend import Evaluation
    >>> Evaluation(0.5, 0.25, *[0.5] * 7, 8, 0).to_dict()["recall"]
    0.25
    """

    precision: float
    recall: float
    average_precision: float
    ndcg: float
    hit_rate: float
    auc: float
    coverage: float
    rmse: float
    mae: float
    n_users: int
    n_unknown: int

    def __repr__(self) -> str:
        named = vars(self).items()
        parts = (
            f"{k}={v if isinstance(v, int) else format(v, '.4g')}" for k, v in named
        )
        return f"Evaluation({', '.join(parts)})"


def _hits(ranked: Sequence[Any], relevant: Sequence[Any], k: int) -> tuple[Any, Any]:
    """H of each user's first k, and R; users without relevant items are left out.

    H is at most as wide as the longest list or set; further places would be empty.
    """
    check_number("k", k, 1, integer=True)
    for given in (ranked, relevant):
        if not isinstance(given, Sequence | np.ndarray) or any(
            isinstance(one, str) or not isinstance(one, Iterable) for one in given
        ):
            raise TypeError(
                "Pass a list of lists of items, one list for each user. For one "
                "user, pass [items]."
            )
    if len(ranked) != len(relevant):
        raise ValueError(
            f"There are {len(ranked)} rankings and {len(relevant)} sets of relevant "
            "items; pass one ranking and one set for each user."
        )
    sets = [set(_plain(one)) for one in relevant]
    lists = [list(_plain(one))[:k] for one in ranked]
    kept = [place for place, one in enumerate(sets) if one]
    if not kept:
        raise ValueError("No user has a relevant item, so there is nothing to measure.")
    width = min(k, max(map(len, [*lists, *sets])))
    hits = np.zeros((len(kept), width), dtype=bool)
    for row, place in enumerate(kept):
        items = lists[place]
        if len(set(items)) < len(items):
            raise ValueError(f"Ranking {place} holds an item twice.")
        hits[row, : len(items)] = [item in sets[place] for item in items]
    return hits, np.array([len(sets[place]) for place in kept])


def _plain(values: Any) -> Any:
    return values.tolist() if isinstance(values, np.ndarray) else values


def precision_at_k(
    ranked: Sequence[Any], relevant: Sequence[Any], k: int = 10
) -> float:
    """Share of the first k recommendations that are relevant.

    Parameters
    ----------
    ranked : sequence of sequences
        Items recommended to each user, best first. A list shorter than k counts as if
        filled up with misses.
    relevant : sequence of collections
        The items each user really chose; users without any are left out.
    k : int, default=10
        Length of the list that is looked at.

    Examples
    --------
    >>> from certus.recommend import precision_at_k
    >>> precision_at_k([["tea", "rum"], ["gin", "ale"]], [{"tea"}, {"rum"}], k=2)
    0.25
    """
    hits, _ = _hits(ranked, relevant, k)
    return float(hits.sum(axis=1).mean() / k)


def recall_at_k(ranked: Sequence[Any], relevant: Sequence[Any], k: int = 10) -> float:
    """Share of the relevant items that are among the first k.

    Parameters
    ----------
    ranked, relevant, k
        As in :func:`certus.recommend.precision_at_k`.

    Examples
    --------
    >>> from certus.recommend import recall_at_k
    >>> recall_at_k([["tea", "rum"], ["gin", "ale"]], [{"tea"}, {"rum"}], k=2)
    0.5
    """
    hits, sizes = _hits(ranked, relevant, k)
    return float(_recall(hits, sizes).mean())


def average_precision(
    ranked: Sequence[Any], relevant: Sequence[Any], k: int = 10
) -> float:
    """Mean of the precision at each hit (MAP@k).

    Parameters
    ----------
    ranked, relevant, k
        As in :func:`certus.recommend.precision_at_k`.

    Examples
    --------
    >>> from certus.recommend import average_precision
    >>> average_precision([["rum", "tea"]], [{"tea"}], k=2)
    0.5
    """
    hits, sizes = _hits(ranked, relevant, k)
    return float(_average_precision(hits, sizes).mean())


def ndcg(ranked: Sequence[Any], relevant: Sequence[Any], k: int = 10) -> float:
    """Hits discounted by the logarithm of their place, as a share of the best.

    Parameters
    ----------
    ranked, relevant, k
        As in :func:`certus.recommend.precision_at_k`.

    Examples
    --------
    >>> from certus.recommend import ndcg
    >>> round(ndcg([["rum", "tea"]], [{"tea"}], k=2), 4)
    0.6309
    """
    hits, sizes = _hits(ranked, relevant, k)
    return float(_ndcg(hits, sizes).mean())


def hit_rate(ranked: Sequence[Any], relevant: Sequence[Any], k: int = 10) -> float:
    """Share of users with a relevant item among the first k.

    Parameters
    ----------
    ranked, relevant, k
        As in :func:`certus.recommend.precision_at_k`.

    Examples
    --------
    >>> from certus.recommend import hit_rate
    >>> hit_rate([["tea", "rum"], ["gin", "ale"]], [{"tea"}, {"rum"}], k=2)
    0.5
    """
    hits, _ = _hits(ranked, relevant, k)
    return float(hits.any(axis=1).mean())


def coverage(ranked: Sequence[Any], items: Any) -> float:
    """Share of the items that are recommended to anybody.

    Parameters
    ----------
    ranked : sequence of sequences
        Items recommended to each user.
    items : collection
        All items.

    Examples
    --------
    >>> from certus.recommend import coverage
    >>> coverage([["tea"], ["tea"]], ["tea", "rum"])
    0.5
    """
    known = set(_plain(items))
    if not known:
        raise ValueError("There are no items, so coverage is not defined.")
    shown = {item for one in ranked for item in _plain(one)}
    return len(shown & known) / len(known)


def auc(scores: Any, relevant: Any) -> float:
    """Chance that a relevant item is scored above one that is not; ties count half.

    Parameters
    ----------
    scores : array-like of shape (n_items,)
        Scores of one user.
    relevant : array-like of bool of shape (n_items,)
        Which of them are relevant: some, and not all.

    Examples
    --------
    >>> from certus.recommend import auc
    >>> auc([3.0, 2.0, 1.0], [True, False, True])
    0.5
    """
    scores = np.asarray(scores, dtype=np.float64)
    chosen = np.asarray(relevant, dtype=bool)
    if scores.shape != chosen.shape or scores.ndim != 1:
        raise ValueError(
            "Pass one score and one relevance mark for each item of one user."
        )
    if np.isnan(scores).any():
        raise ValueError("A score is NaN, which has no rank. Leave its item out.")
    good = int(chosen.sum())
    if good in (0, len(chosen)):
        raise ValueError(
            "The area under the curve needs both relevant and irrelevant items."
        )
    ranks = rankdata(scores)[chosen].sum()
    return float((ranks - good * (good + 1) / 2) / (good * (len(chosen) - good)))


def _recall(hits: Array, sizes: Array) -> Array:
    return np.asarray(hits.sum(axis=1) / sizes)


def _average_precision(hits: Array, sizes: Array) -> Array:
    places = np.arange(1, hits.shape[1] + 1)
    at = np.cumsum(hits, axis=1) / places
    return np.asarray((at * hits).sum(axis=1) / np.minimum(sizes, hits.shape[1]))


def _ndcg(hits: Array, sizes: Array) -> Array:
    k = hits.shape[1]
    discounts = 1.0 / np.log2(np.arange(2, k + 2))
    best = np.cumsum(discounts)[np.minimum(sizes, k) - 1]
    return np.asarray(hits @ discounts / best)


# -- a model on held-out ratings --------------------------------------------------


def evaluate(
    model: Recommender,
    X: Any,
    y: Any = None,
    k: int = 10,
    *,
    relevant_from: float | None = None,
) -> Evaluation:
    """Rank the items that a user has not rated yet, and compare with held-out ratings.

    Items of the training data are left out of each user's ranking, so a held-out pair
    that was trained on is an error: it would count as missed.

    Parameters
    ----------
    model : MatrixFactorization or ImplicitALS
        Fitted on other ratings of the same users.
    X, y : matrix, or pairs and ratings
        Held-out ratings, as in ``fit``. Users and items that the model does not know
        are counted in ``n_unknown`` and left out of the rankings; a rating of theirs is
        predicted by the bias model.
    k : int, default=10
        Length of the lists.
    relevant_from : float, optional
        Only ratings of at least this much are relevant; by default all are.

    Returns
    -------
    Evaluation

    Examples
    --------
    >>> import numpy as np
    >>> from certus.recommend import MatrixFactorization, evaluate, split_ratings
    >>> X = np.random.default_rng(0).integers(1, 6, (40, 30)).astype(float)
    >>> split = split_ratings(X, random_state=0)
    >>> model = MatrixFactorization(2, random_state=0).fit(*split.train)
    >>> found = evaluate(model, *split.test, k=5)
    >>> found.n_users, 0 < found.rmse < 3
    (40, True)
    """
    check_is_fitted(model)
    check_number("k", k, 1, integer=True)
    check_number("relevant_from", relevant_from, -np.inf, none=True)
    users, items, values = _held_out(model, X, y)
    rmse, mae = _errors(model, users, items, values)
    known = (users >= 0) & (items >= 0)
    _refuse_leaks(model, users[known], items[known])
    chosen = known if relevant_from is None else known & (values >= relevant_from)
    shape = (len(model.users_), len(model.items_))
    truth = sparse.csr_matrix(
        (np.ones(int(chosen.sum()), dtype=bool), (users[chosen], items[chosen])), shape
    )
    truth.sum_duplicates()
    rows = np.flatnonzero(np.diff(truth.indptr))
    if not len(rows):
        raise ValueError("No user that the model knows has a relevant item held out.")
    hits, areas, shown = _rank(model, truth, rows, min(int(k), shape[1]))
    sizes = np.diff(truth.indptr)[rows]
    return Evaluation(
        float(hits.sum(axis=1).mean() / k),
        float(_recall(hits, sizes).mean()),
        float(_average_precision(hits, sizes).mean()),
        float(_ndcg(hits, sizes).mean()),
        float(hits.any(axis=1).mean()),
        float(np.nanmean(areas)) if not np.isnan(areas).all() else float("nan"),
        float(shown.mean()),
        rmse,
        mae,
        len(rows),
        int(np.count_nonzero(~known)),
    )


def _held_out(
    model: Recommender, X: MatrixLike, y: ArrayLike
) -> tuple[Array, Array, Array]:
    """Positions of users and items, −1 for new ones, and the ratings."""
    if y is None and not is_frame(X):
        matrix = as_csr(X)
        shape = (len(model.users_), len(model.items_))
        if matrix.shape != shape:
            turned = matrix.shape == shape[::-1]
            raise ValueError(
                f"X has shape {matrix.shape}, but the model has {shape[0]:,} users "
                f"and {shape[1]:,} items."
                + (" X seems to be items × users; pass X.T." * turned)
            )
        users = np.repeat(np.arange(shape[0]), np.diff(matrix.indptr))
        found = users, matrix.indices, matrix.data
    else:
        pairs = columns_of(X)
        if y is None:
            raise ValueError("Pass the ratings of the pairs: evaluate(model, X, y).")
        values = np.asarray(y, dtype=np.float64)
        if values.shape != (len(pairs[0]),):
            raise ValueError(
                f"There are {len(pairs[0]):,} pairs, but the ratings have shape "
                f"{values.shape}."
            )
        found = (*model._locate_pairs(X), values)
    if not len(found[2]):
        raise ValueError("No rating is held out.")
    if not np.isfinite(found[2]).all():
        raise ValueError("Held-out ratings hold NaN or inf. Leave them out.")
    return found


def _errors(
    model: Recommender, users: Array, items: Array, values: Array
) -> tuple[float, float]:
    if not hasattr(model, "mean_"):  # scores of counts are not ratings
        return float("nan"), float("nan")
    model._check_unseen(users, items)
    error = model._predict_places(users, items) - values
    return float(np.sqrt(np.mean(error**2))), float(np.mean(np.abs(error)))


def _refuse_leaks(model: Recommender, users: Array, items: Array) -> None:
    shape = (len(model.users_), len(model.items_))
    parts = (np.ones(len(model._seen_items), dtype=bool), model._seen_items)
    seen = sparse.csr_matrix((*parts, model._seen_starts), shape)
    held = sparse.csr_matrix((np.ones(len(users), dtype=bool), (users, items)), shape)
    leaks = seen.multiply(held).nnz
    if leaks:
        raise ValueError(
            f"{leaks:,} held-out pairs were in the data of the fit, so they say "
            "nothing about new ratings. Split first (split_ratings) and fit on the "
            "training part."
        )


def _rank(
    model: Recommender, truth: Any, rows: Array, k: int
) -> tuple[Array, Array, Array]:
    """Hits and area of each user, and which items were shown to anybody."""
    m = truth.shape[1]
    hits = np.zeros((len(rows), k), dtype=bool)
    areas, shown = np.full(len(rows), np.nan), np.zeros(m, dtype=bool)
    step = max(1, BLOCK // m)
    for start in range(0, len(rows), step):
        part = rows[start : start + step]
        for place, (user, scores) in enumerate(zip(part, model._scores(part)), start):
            wanted = np.zeros(m, dtype=bool)
            wanted[truth.indices[truth.indptr[user] : truth.indptr[user + 1]]] = True
            new = np.ones(m, dtype=bool)
            new[model._seen(user)] = False
            scores[~new] = -np.inf
            best = top(scores, k)
            best = best[new[best]]
            hits[place, : len(best)] = wanted[best]
            shown[best] = True
            if not wanted[new].all():
                areas[place] = auc(scores[new], wanted[new])
    return hits, areas, shown
