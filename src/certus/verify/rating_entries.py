"""Ratings as the verifier reads them, and the two objectives of a factorisation.

    explicit  ½Σ s(w_u·z_i + b_u + c_i − v_ui)² + ½Σ ρ(λ_w‖w‖² + λ_b b²) + items
    implicit  Σ_ui (1 + α·count)(p − w_u·z_i)² + λ(‖W‖² + ‖Z‖²)

Either is, with one side fixed, a sum of ridge problems: one :class:`Side` for the users
and one for the items. A point is (W, Z, b, c).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import sparse

from certus.verify.data import Array
from certus.verify.deciding import gamma
from certus.verify.half_steps import Bound, Side, bound, filled, squares
from certus.verify.kernel import reading

Point = tuple[Array, Array, Array, Array]
_TWICE = "Some pairs are rated twice. Keep one rating of each."


# -- reading ----------------------------------------------------------------------


def read(
    model: Any, X: Any, y: Any, sample_weight: Any, counts: bool
) -> tuple[Any, Array]:
    """Ratings in the places of the model's users and items, and their weights."""
    if counts and sample_weight is not None:
        raise ValueError(
            f"{type(model).__name__} takes no sample_weight; leave it out."
        )
    shape = (len(model.users_), len(model.items_))
    if y is None:
        matrix, given = _matrix(X, shape, counts), None
        if sample_weight is not None:
            given = _matrix(sample_weight, shape, False)
    else:
        matrix, given = _placed(model, X, y, sample_weight, shape)
        if matrix.nnz < len(y) and not counts:
            raise ValueError(_TWICE)
    reading.refuse_holes(matrix)
    if counts and not matrix.data.all():
        matrix = matrix.copy()
        matrix.eliminate_zeros()
    if counts and matrix.data.min(initial=0.0) < 0:
        raise ValueError("X holds negative counts.")
    if given is None:
        return matrix, np.ones(matrix.nnz)
    for part in ("indptr", "indices"):
        if not np.array_equal(getattr(given, part), getattr(matrix, part)):
            raise ValueError("sample_weight and X have entries in other places.")
    if not np.all((given.data > 0) & (given.data < np.inf)):
        raise ValueError("sample_weight must be finite and above 0.")
    return matrix, given.data


def _matrix(X: Any, shape: tuple[int, int], repeats: bool) -> Any:
    X = X if sparse.issparse(X) else np.asarray(X, dtype=np.float64)
    if X.shape != shape:
        turned = " It is items × users: pass X.T." if X.shape == shape[::-1] else ""
        raise ValueError(
            f"X has shape {X.shape} and the model has {shape[0]:,} users and "
            f"{shape[1]:,} items.{turned}"
        )
    if not sparse.issparse(X):
        rows, columns = np.nonzero(~np.isnan(X))
        return sparse.csr_matrix((X[rows, columns], (rows, columns)), shape)
    X = X if X.format in ("csr", "csc", "coo") else X.tocoo()
    # As float64 before entries are added up: small integers would wrap.
    X = X.astype(np.float64, copy=False)
    matrix = sparse.csr_matrix(X)
    if not matrix.has_canonical_format:
        matrix = matrix.copy()
        matrix.sum_duplicates()
    if matrix.nnz < X.nnz and not repeats:
        raise ValueError(_TWICE)
    return matrix


def _placed(
    model: Any, X: Any, y: Any, sample_weight: Any, shape: tuple[int, int]
) -> tuple[Any, Any]:
    if hasattr(X, "columns"):
        columns: list[Any] = [np.asarray(X[name]) for name in X.columns]
    elif isinstance(X, np.ndarray):
        columns = [X[:, 0], X[:, 1]]
    else:
        columns = [list(ids) for ids in zip(*X)]
    at = tuple(_places(known, ids) for known, ids in zip(_ids(model), columns))
    matrix = sparse.csr_matrix((reading.numbers(y, len(at[0])), at), shape)
    if sample_weight is None:
        return matrix, None
    given = np.asarray(sample_weight, dtype=np.float64)
    return matrix, sparse.csr_matrix((given, at), shape)


def _ids(model: Any) -> tuple[Array, Array]:
    return np.asarray(model.users_), np.asarray(model.items_)


def _places(known: Array, ids: Any) -> Array:
    table = {name: place for place, name in enumerate(known.tolist())}
    listed = ids.tolist() if isinstance(ids, np.ndarray) else ids
    plain = [v.item() if isinstance(v, np.generic) else v for v in listed]
    for name in plain:
        if name not in table:
            text = f"The model was not fitted on {name!r}. Pass its training data."
            raise ValueError(text)
    return np.array([table[name] for name in plain])


def factors(model: Any, names: tuple[str, ...], shape: tuple[int, ...]) -> Point:
    """Factors and biases as float64; raise unless each row and column has its own."""
    given = [getattr(model, name, np.zeros(n)) for name, n in zip(names, shape * 2)]
    W, Z, b, c = (np.asarray(part, dtype=np.float64) for part in given)
    fits = W.ndim == Z.ndim == 2 and shape == (len(W), len(Z)) == b.shape + c.shape
    if not fits or W.shape[1] != Z.shape[1]:
        raise ValueError("The model's factors do not fit its rows. Fit it again.")
    return W, Z, b, c


# -- the two problems -------------------------------------------------------------


class Explicit:
    """Ratings, or log counts, with biases or without.

    ``values`` are v, ``ridge`` the penalties of (w, b) and of (z, c), ``scale`` their
    factors ρ, a row each.
    """

    twice = 1.0  # how the objective relates to the sum of the sides' problems

    def __init__(
        self, places: Any, weights: Array, values: Array, ridge: Any, scale: Any
    ) -> None:
        self.places, self.weights, self.values = places, weights, values
        self.ridge, self.scale = ridge, scale

    def rows(self, k: int, point: Point) -> Array:
        """Factors of a side, with its biases beside them if they are penalised so."""
        own, biased = point[k], len(self.ridge[k]) > point[k].shape[1]
        return np.column_stack([own, point[2 + k]]) if biased else own

    def side(self, k: int, point: Point) -> Side:
        """The problems of users (0) or items (1), the others being fixed."""
        Y, K = point[1 - k], len(self.ridge[k])
        if Y.shape[1] < K:
            Y = np.column_stack([Y, np.ones(len(Y))])
        penalties = (self.ridge[k], self.scale[k])
        return Side(self.places, self.weights, Y, *penalties, None, k == 1)

    def errors(self, point: Point) -> Array:
        """Prediction less v, of each entry."""
        z = self.side(0, point).products(self.rows(0, point))
        z += point[3][self.places.indices]
        return z - self.values

    def slopes(self, e: Array) -> Array:
        """Derivatives of the losses in the products."""
        return self.weights * e

    def bound(self, k: int, e: Array, point: Point) -> Bound:
        """Sizes that bound the rounding of a side's gradient and curvature."""
        own, other = (
            np.column_stack([np.sqrt(squares(point[j])), np.abs(point[2 + j])])
            for j in (k, 1 - k)
        )
        return bound(self.side(k, point), self.rows(k, point), e, own, other)

    def value(self, point: Point, e: Array) -> tuple[float, float]:
        """The objective, and its rounding."""
        loss, rest = float(self.weights @ np.square(e)), 0.0
        for k in (0, 1):
            rest += float(self.scale[k] @ (self.rows(k, point) ** 2 @ self.ridge[k]))
        far = self.spread(point, self.weights)
        away = gamma(point[0].shape[1] + 32) * (np.sqrt(loss) + 2 * far)
        rounding = np.sqrt(loss) * away + 0.5 * away**2
        rounding += gamma(len(e) + sum(self.places.shape) + 32) * (loss + rest)
        return 0.5 * (loss + rest), float(rounding)

    def spread(self, point: Point, weights: Array) -> float:
        """Bound on the root of Σ s(‖w‖‖z‖ + |b| + |c|)²."""
        W, Z, b, c = point
        S, wide = filled(self.places, weights), np.sqrt(squares(Z))
        sums = (S @ np.column_stack([wide**2, np.ones(len(Z)), c**2])).T
        sizes = np.maximum([squares(W) @ sums[0], b**2 @ sums[1], sums[2].sum()], 0.0)
        return float(np.sqrt(sizes).sum())

    def moved(self, point: Point, k: int, x: Array) -> Point:
        """The point with one side replaced."""
        parts, K = list(point), point[k].shape[1]
        parts[k] = x[:, :K]
        if x.shape[1] > K:
            parts[2 + k] = x[:, K]
        return parts[0], parts[1], parts[2], parts[3]


class Implicit(Explicit):
    """Counts: the same for all users × items, by two Gram matrices."""

    twice = 2.0

    def side(self, k: int, point: Point) -> Side:
        """The problems of users (0) or items (1), the others being fixed."""
        return super().side(k, point)._replace(gram=point[1 - k].T @ point[1 - k])

    def slopes(self, e: Array) -> Array:
        """Derivatives in the products of ½(1 + s)(z − 1)² − ½z²."""
        return self.weights * e - 1.0

    def value(self, point: Point, e: Array) -> tuple[float, float]:
        """The objective over all users × items, and its rounding."""
        s = 1.0 + self.weights
        seen, z, far = float(s @ np.square(e)), e + 1.0, self.spread(point, s)
        grams = [F.T @ F for F in point[:2]]
        sizes = [float(np.trace(gram)) for gram in grams]
        rest = float(self.ridge[0][0]) * sum(sizes)
        size = seen + 4 * np.sqrt(seen) * far + 4 * far**2 + sizes[0] * sizes[1] + rest
        n = len(e) + sum(self.places.shape) + 2 * point[0].shape[1] + 32
        whole = float(np.sum(grams[0] * grams[1])) + rest
        return seen - float(z @ z) + whole, float(gamma(n) * size)
