"""Code that recommenders share: predict pairs, rank items, find similar ones.

Scores are s(u, i) = offset + b_u + c_i + w_u·z_i. Rankings are taken over a few users
at a time; a dense users × items matrix is never formed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse
from sklearn.utils.validation import check_is_fitted

from certus.base import Model, check_number
from certus.recommend.ratings import Ratings, as_ids, columns_of, locate
from certus.typing import Array, MatrixLike
from certus.wording import shorten

#: Scores held at a time while ranking.
BLOCK = 1 << 22


class Ranked(NamedTuple):
    """Ids, best first, and their scores.

    Examples
    --------
    >>> from certus.recommend import Ranked
    >>> Ranked(["tea"], [4.5]).ids
    ['tea']
    """

    ids: Array
    scores: Array


class Recommender(Model):
    """Users and items with factors; abstract. Subclasses define ``fit``."""

    def _keep(self, ratings: Ratings) -> None:
        """Ids, and which items each user has rated."""
        self.users_, self.items_ = ratings.users, ratings.items
        self._seen_starts = ratings.matrix.indptr
        self._seen_items = ratings.matrix.indices

    @property
    def seen_(self) -> Any:
        """Users × items, true where ``fit`` had a rating; these items are left out."""
        shape = (len(self.users_), len(self.items_))
        ones = np.ones(len(self._seen_items), dtype=bool)
        parts = (ones, self._seen_items, self._seen_starts)
        return sparse.csr_matrix(parts, shape)

    def _offsets(self) -> tuple[float, Array, Array]:
        """The constant, and what users and items add to it."""
        raise NotImplementedError

    def predict(self, X: MatrixLike) -> Array:
        """Score of each pair.

        Parameters
        ----------
        X : array-like of shape (n_pairs, 2)
            Pairs (user, item), or a data frame of two columns.

        Returns
        -------
        ndarray of shape (n_pairs,)
            For a user or an item not seen in ``fit``, what is known without it: see the
            class.
        """
        check_is_fitted(self)
        users, items = self._locate_pairs(X)
        self._check_unseen(users, items)
        return self._predict_places(users, items)

    def _predict_places(self, users: Array, items: Array) -> Array:
        """Scores of pairs of positions, −1 for those not seen."""
        mean, b, c = self._offsets()
        old, rated = users >= 0, items >= 0
        out = np.full(len(users), mean, dtype=self.user_factors_.dtype)
        out[old] += b[users[old]]
        out[rated] += c[items[rated]]
        both = np.flatnonzero(old & rated)
        step = max(1, BLOCK // self.user_factors_.shape[1])
        for start in range(0, len(both), step):
            part = both[start : start + step]
            out[part] += np.einsum(
                "ij,ij->i",
                self.user_factors_[users[part]],
                self.item_factors_[items[part]],
            )
        return out

    def _check_unseen(self, users: Array, items: Array) -> None:
        """Raise an error if a user or item was not seen and has no prediction."""

    def _locate_pairs(self, X: MatrixLike) -> tuple[Array, Array]:
        """Positions of users and items, −1 for those not seen."""
        first, second = columns_of(X)
        users = locate(self.users_, first, "user")
        items = locate(self.items_, second, "item")
        if len(users) and users.max() < 0 and items.max() < 0:
            try:
                turned = locate(self.items_, first, "item").min() >= 0
                turned = turned and locate(self.users_, second, "user").min() >= 0
            except ValueError:
                turned = False
            if turned:
                raise ValueError(
                    "The first column holds items and the second users. Pass pairs "
                    "as (user, item)."
                )
        return users, items

    def recommend(self, user: Any, n: int = 10, *, exclude_seen: bool = True) -> Ranked:
        """The items with the highest scores for one user.

        Parameters
        ----------
        user : id
            One of ``users_``.
        n : int, default=10
            How many; fewer are returned if there are fewer.
        exclude_seen : bool, default=True
            Leave out what the user rated in the data of ``fit``.

        Returns
        -------
        Ranked
            ``ids`` of items and their ``scores``, best first; equal scores in the order
            of ``items_``.
        """
        check_is_fitted(self)
        check_number("n", n, 1, integer=True)
        place = self._position(self.users_, user, "user")
        scores = self._scores(np.array([place]))[0]
        if exclude_seen:
            scores[self._seen(place)] = -np.inf
        best = top(scores, int(n))
        best = best[scores[best] > -np.inf]
        return Ranked(self.items_[best], scores[best])

    def recommend_new(self, ratings: Any, n: int = 10) -> Ranked:
        """The items with the highest scores for somebody who was not in ``fit``.

        The items stay unchanged, and the user's factors are the best for the given
        ratings, as after the next half-step of ``fit``.

        Parameters
        ----------
        ratings : dict
            Ratings, or counts, by item; ``{"tea": 5, "gin": 1}``. Each item is one of
            ``items_``, and none of them is returned.
        n : int, default=10
            How many; fewer are returned if there are fewer.

        Returns
        -------
        Ranked
            As from :meth:`recommend`.
        """
        check_is_fitted(self)
        check_number("n", n, 1, integer=True)
        if not isinstance(ratings, Mapping) or not ratings:
            raise ValueError(
                "Pass the ratings of the new user as a dictionary, {item: rating}, "
                "with at least one item."
            )
        places = np.array([self._position(self.items_, i, "item") for i in ratings])
        values = _finite(list(ratings.values()))
        scores = self._scores_of_new(places, values)
        scores[places] = -np.inf
        best = top(scores, int(n))
        best = best[scores[best] > -np.inf]
        return Ranked(self.items_[best], scores[best])

    def _scores_of_new(self, places: Array, values: Array) -> Array:
        """Scores of all items for a user who gave items at ``places`` these values."""
        raise NotImplementedError

    def similar_items(self, item: Any, n: int = 10) -> Ranked:
        """The items whose factors point the same way, by cosine.

        Parameters
        ----------
        item : id
            One of ``items_``; it is not returned.
        n : int, default=10
            How many.
        """
        return self._similar("item", item, n)

    def similar_users(self, user: Any, n: int = 10) -> Ranked:
        """The users whose factors point the same way, by cosine.

        Parameters
        ----------
        user : id
            One of ``users_``; it is not returned.
        n : int, default=10
            How many.
        """
        return self._similar("user", user, n)

    def _similar(self, what: str, one: Any, n: int) -> Ranked:
        check_is_fitted(self)
        check_number("n", n, 1, integer=True)
        known = getattr(self, f"{what}s_")
        factors = getattr(self, f"{what}_factors_")
        place = self._position(known, one, what)
        lengths = np.sqrt(np.einsum("ij,ij->i", factors, factors))
        lengths[lengths == 0] = 1  # no ratings, no direction: alike to nothing
        scores = factors @ (factors[place] / lengths[place]) / lengths
        scores[place] = -np.inf
        best = top(scores, min(int(n), len(known) - 1))
        return Ranked(known[best], scores[best])

    def _position(self, known: Array, one: Any, what: str) -> int:
        if isinstance(one, list | set | dict | np.ndarray):
            raise ValueError(f"Pass one {what} id at a time; got {shorten(repr(one))}.")
        place = int(locate(known, as_ids([one]), what)[0])
        if place < 0:
            raise ValueError(
                f"{what.capitalize()} {one!r} was not in the data of the fit. The "
                f"{len(known):,} known {what}s are in {what}s_."
                + (" For a new user use recommend_new." if what == "user" else "")
            )
        return place

    def _seen(self, place: int) -> Array:
        return np.asarray(
            self._seen_items[self._seen_starts[place] : self._seen_starts[place + 1]]
        )

    def _scores(self, places: Array) -> Array:
        """Scores of all items for some users, as a new array."""
        mean, b, c = self._offsets()
        scores = self.user_factors_[places] @ self.item_factors_.T
        scores += (mean + b[places])[:, None] + c
        return np.asarray(scores)


def _finite(values: Any) -> Array:
    """Ratings as float64."""
    try:
        found = np.array(values, dtype=np.float64)
    except (TypeError, ValueError):
        raise ValueError("The ratings are not numeric.") from None
    if found.ndim != 1 or not np.isfinite(found).all():
        raise ValueError("The ratings hold NaN or infinite values; leave them out.")
    return found


def top(scores: Array, n: int) -> Array:
    """Positions of the n largest scores, best first; equal ones in their order."""
    n = min(n, len(scores))
    if n <= 0:
        return np.empty(0, dtype=np.intp)
    bar = np.partition(scores, len(scores) - n)[len(scores) - n]
    above = np.flatnonzero(scores > bar)
    level = np.flatnonzero(scores == bar)[: n - len(above)]
    chosen = np.sort(np.concatenate([above, level]))
    return np.asarray(chosen[np.argsort(-scores[chosen], kind="stable")])
