"""Which ratings are held out, so that training never sees them.

There are four ways, depending on what you want to predict: further ratings of known
users ("entries"), the next one of each ("last"), everything after a day ("time"), or
users never seen before ("users"). No pair is in both parts, and in the first two every
user who is tested keeps at least one rating to learn from.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse

from certus.base import check_choice, check_number, generator_of
from certus.recommend.ratings import as_csr, columns_of, encode, is_frame
from certus.typing import Array, ArrayLike, MatrixLike, RandomState


class RatingSplit(NamedTuple):
    """Two parts of some ratings, in the form of the input.

    ``fit(*split.train)`` and ``evaluate(model, *split.test)`` take them directly;
    ``train_places`` and ``test_places`` are row numbers of the pairs, or of the stored
    entries of a matrix by rows.

    Examples
    --------
    >>> from certus.recommend import RatingSplit
    >>> RatingSplit._fields
    ('train', 'test', 'train_places', 'test_places')
    """

    train: tuple[Any, ...]
    test: tuple[Any, ...]
    train_places: Array
    test_places: Array

    def __repr__(self) -> str:
        sizes = len(self.train_places), len(self.test_places)
        return "RatingSplit(train: {:,} ratings, test: {:,} ratings)".format(*sizes)


class _Entries(NamedTuple):
    users: Array
    items: Array
    n: int
    matrix: Any  # None for pairs


def split_ratings(
    X: Any,
    y: Any = None,
    *,
    how: str = "entries",
    test_size: float = 0.2,
    times: Any = None,
    random_state: RandomState = None,
) -> RatingSplit:
    """Hold out some ratings.

    Parameters
    ----------
    X, y : matrix, or pairs and ratings
        As in ``fit``.
    how : {"entries", "last", "time", "users"}, default="entries"
        "entries": a random share of each user's ratings, never the last one left;
        "last": one rating of each user, the latest by ``times`` or else a random one,
        of users with two or more; "time": the latest share of all ratings, all later
        than any in training; "users": all ratings of a random share of the users.
    test_size : float, default=0.2
        The share; not used by "last".
    times : array-like of shape (n_ratings,), optional
        When each rating was given: numbers or dates, one for each pair, or for each
        stored entry of a matrix by rows.
    random_state : int, RandomState or None, default=None
        Seed or generator of all random numbers.

    Returns
    -------
    RatingSplit

    Examples
    --------
    >>> from certus.recommend import split_ratings
    >>> pairs = [("ann", "tea"), ("ann", "rum"), ("bob", "tea"), ("bob", "gin")]
    >>> split = split_ratings(pairs, [5, 1, 4, 2], how="last", times=[1, 2, 4, 3])
    >>> split.test
    ([('ann', 'rum'), ('bob', 'tea')], [1, 4])
    """
    check_choice("how", how, ("entries", "last", "time", "users"))
    check_number("test_size", test_size, 0, 1, open_low=True)
    entries = _read(X, y)
    order = None if times is None else _ranks(times, entries.n)
    if how == "time" and order is None:
        raise ValueError('how="time" needs the times of the ratings: pass times.')
    random = generator_of(random_state)
    held = np.zeros(entries.n, dtype=bool)
    if how == "entries":
        shuffled = _shuffled(entries, random)
        counts = np.bincount(entries.users)
        wanted = test_size * counts
        some = np.floor(wanted + random.random(len(counts))).astype(int)
        held = shuffled < np.minimum(some, counts - 1)[entries.users]
    elif how == "last":
        held = _last(entries, order, random)
    elif how == "time" and order is not None:
        first = int(np.ceil((1 - test_size) * entries.n))
        held = order > np.sort(order)[max(0, first - 1)]
    else:
        users = random.permutation(np.unique(entries.users))
        chosen = users[: max(1, round(test_size * len(users)))]
        held = np.isin(entries.users, chosen)
    if not held.any() or held.all():
        which = "held out" if not held.any() else "left to learn from"
        raise ValueError(
            f'No rating is {which} with how="{how}" and test_size={test_size:g}. Pass '
            "more ratings, or another test_size."
        )
    return _parts(X, y, entries, held)


def fold_ratings(
    X: Any, y: Any = None, folds: int = 5, *, random_state: RandomState = None
) -> Iterator[RatingSplit]:
    """Splits in which each rating is held out once, if its user has two or more.

    Each user's ratings are dealt evenly into the folds, and the only rating of a user
    stays in training always.

    Parameters
    ----------
    X, y : matrix, or pairs and ratings
        As in ``fit``.
    folds : int, default=5
        How many.
    random_state : int, RandomState or None, default=None
        Seed or generator of all random numbers. They decide which ratings are in which
        fold.

    Yields
    ------
    RatingSplit

    Examples
    --------
    >>> import numpy as np
    >>> from certus.recommend import fold_ratings
    >>> folds = list(fold_ratings(np.ones((4, 10)), folds=5, random_state=0))
    >>> [len(fold.test_places) for fold in folds]
    [8, 8, 8, 8, 8]
    """
    check_number("folds", folds, 2, integer=True)
    entries = _read(X, y)
    random = generator_of(random_state)
    counts = np.bincount(entries.users)
    first = random.integers(0, folds, len(counts))  # where each user's deal begins
    fold = (_shuffled(entries, random) + first[entries.users]) % folds
    alone = counts[entries.users] == 1
    for number in range(folds):
        held = (fold == number) & ~alone
        if not held.any():
            raise ValueError(f"There are too few ratings for {folds} folds. Use fewer.")
        yield _parts(X, y, entries, held)


def _read(X: Any, y: Any) -> _Entries:
    if y is None and not is_frame(X):
        matrix = as_csr(X)
        users = np.repeat(np.arange(matrix.shape[0]), np.diff(matrix.indptr))
        found = _Entries(users, matrix.indices, matrix.nnz, matrix)
    else:
        first, second = columns_of(X)
        if y is not None and len(y) != len(first):
            raise ValueError(f"There are {len(first):,} pairs, but {len(y):,} ratings.")
        users, items = encode(first, "user")[1], encode(second, "item")[1]
        found = _Entries(users, items, len(users), None)
        pairs = users.astype(np.int64) * (int(items.max(initial=0)) + 1) + items
        if len(np.unique(pairs)) < found.n:
            raise ValueError(
                "Some pairs occur more than once, and would be in both parts. Keep one "
                "rating of each pair."
            )
    if found.n < 2:
        raise ValueError(f"There are {found.n} ratings; a split needs at least 2.")
    return found


def _ranks(times: Any, n: int) -> Array:
    """Times as integers in the same order; equal times stay equal."""
    values = np.asarray(times)
    if values.shape != (n,):
        raise ValueError(f"times has shape {values.shape}; there are {n:,} ratings.")
    if values.dtype.kind in "fmM" and (np.isnan(values)).any():
        raise ValueError("Some times are missing. Leave those ratings out.")
    try:
        return np.asarray(np.unique(values, return_inverse=True)[1])
    except TypeError:
        raise ValueError("times must be numbers or dates of one type.") from None


def _shuffled(entries: _Entries, random: np.random.Generator) -> Array:
    """A random number 0, 1, … for each of a user's ratings."""
    order = np.lexsort((random.random(entries.n), entries.users))
    counts = np.bincount(entries.users)
    starts = np.concatenate([[0], np.cumsum(counts)])[:-1]
    out = np.empty(entries.n, dtype=np.int64)
    out[order] = np.arange(entries.n) - np.repeat(starts, counts)
    return out


def _last(entries: _Entries, order: Array | None, random: np.random.Generator) -> Array:
    """The latest rating of each user with two or more; ties are drawn."""
    keys = [random.random(entries.n), entries.users]
    if order is not None:
        keys.insert(1, order)
    ordered = np.lexsort(tuple(keys))
    users = entries.users[ordered]
    ends = np.flatnonzero(np.append(users[1:] != users[:-1], True))
    held = np.zeros(entries.n, dtype=bool)
    held[ordered[ends]] = True
    return held & (np.bincount(entries.users)[entries.users] > 1)


def _parts(X: MatrixLike, y: ArrayLike, entries: _Entries, held: Array) -> RatingSplit:
    places = np.flatnonzero(~held), np.flatnonzero(held)
    train, test = (_take(X, y, entries, part) for part in places)
    return RatingSplit(train, test, *places)


def _take(
    X: MatrixLike, y: ArrayLike, entries: _Entries, places: Array
) -> tuple[Any, ...]:
    """Some ratings, in the form of the input."""
    if entries.matrix is not None:
        parts = (entries.users[places], entries.items[places])
        values = entries.matrix.data[places]
        return (sparse.csr_matrix((values, parts), entries.matrix.shape),)
    return tuple(None if part is None else _rows(part, places) for part in (X, y))


def _rows(values: Any, places: Array) -> Any:
    if hasattr(values, "iloc"):
        return values.iloc[places]
    if isinstance(values, list | tuple):
        return [values[place] for place in places]
    return values[places]
