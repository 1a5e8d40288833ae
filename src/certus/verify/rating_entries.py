"""Ratings as the verifier reads them, and the two objectives of a factorisation.

    explicit  ½Σ s(w_u·z_i + b_u + c_i − v_ui)² + ½Σ ρ(λ_w‖w‖² + λ_b b²) + items
    implicit  Σ_ui (1 + α·count)(p − w_u·z_i)² + λ(‖W‖² + ‖Z‖²)

Either is, with one side fixed, a sum of ridge problems: one :class:`Side` for the users
and one for the items. A point is (W, Z, b, c).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from scipy import sparse

from certus.typing import Array, ArrayLike, CompressedMatrix, Fit
from certus.verify import data
from certus.verify.deciding import gamma, refuse_weights
from certus.verify.half_steps import Side, Sizes, bound, filled, lengths
from certus.verify.kernel import reading

Point = tuple[Array, Array, Array, Array]


# -- reading ----------------------------------------------------------------------


def read(
    model: Fit, X: Any, y: ArrayLike | None, sample_weight: Any, counts: bool
) -> tuple[CompressedMatrix, Array]:
    """Ratings in the places of the model's users and items, and their weights."""
    if counts:
        refuse_weights(model, sample_weight)
    users, items = (data.listed(model, name) for name in ("users_", "items_"))
    shape, given = (len(users), len(items)), sample_weight
    if y is None:
        X = _as_sparse(X, shape)
        given = None if given is None else _as_sparse(given, shape)
    else:
        at = _places(model, X)
        X = sparse.coo_matrix((reading.numbers(y, len(at[0])), at), shape)
        given = None if given is None else sparse.coo_matrix((given, at), shape)
    # As float64 before entries are added up: small integers would wrap.
    matrix = _added_up(X.astype(np.float64))
    if matrix.nnz < X.nnz and not counts:
        raise ValueError("Some pairs are rated twice. Keep one rating of each.")
    reading.refuse_holes(matrix)
    if counts and matrix.data.min(initial=0.0) < 0:
        raise ValueError("X holds negative counts.")
    if counts:
        matrix.eliminate_zeros()
    if given is None:
        return matrix, np.ones(matrix.nnz)
    given = _added_up(given.astype(np.float64))
    for part in ("indptr", "indices"):
        if not np.array_equal(getattr(given, part), getattr(matrix, part)):
            raise ValueError("sample_weight and X have entries in different places.")
    if not np.all((given.data > 0) & (given.data < np.inf)):
        raise ValueError("sample_weight must be finite and above 0.")
    return matrix, given.data


def _as_sparse(X: Any, shape: tuple[int, int]) -> Any:
    X = X if sparse.issparse(X) else np.asarray(X, dtype=np.float64)
    if X.shape != shape:
        turned = " For items × users pass X.T." if X.shape == shape[::-1] else ""
        raise ValueError(
            f"X has shape {X.shape}, but the model has {shape[0]:,} users and "
            f"{shape[1]:,} items.{turned}"
        )
    if sparse.issparse(X):
        return X if X.format in ("csr", "csc") else X.tocoo()
    at = np.nonzero(~np.isnan(X))
    return sparse.coo_matrix((X[at], at), shape)


def _added_up(X: Any) -> Any:
    matrix = sparse.csr_matrix(X)
    matrix.sum_duplicates()
    return matrix


def _places(model: Fit, X: Any) -> tuple[Array, Array]:
    """Of pairs of ids among the model's users and items."""
    X = X.to_numpy() if hasattr(X, "to_numpy") else X
    columns = X.T.tolist() if isinstance(X, np.ndarray) else zip(*X)
    found = []
    for known, ids in zip((model.users_, model.items_), columns):
        table = {name: place for place, name in enumerate(np.asarray(known).tolist())}
        ids = [v.item() if isinstance(v, np.generic) else v for v in ids]
        strange = [name for name in ids if name not in table]
        if strange:
            told = f"The model was not fitted on {strange[0]!r}"
            raise ValueError(f"{told}. Pass its training data.")
        found.append(np.array([table[name] for name in ids]))
    return found[0], found[1]


def factors(model: Fit, names: tuple[str, ...], shape: tuple[int, int]) -> Point:
    """Factors and biases as float64; raise unless each row and column has its own."""
    W = data.fitted(model, names[0], (shape[0], None))
    found = [W, data.fitted(model, names[1], (shape[1], W.shape[1]))]
    for name, n in zip(names[2:], shape):
        own = hasattr(model, name)  # counts have no biases
        found.append(data.fitted(model, name, (n,)) if own else np.zeros(n))
    W, Z, b, c = (part.astype(np.float64) for part in found)
    return W, Z, b, c


# -- the two problems -------------------------------------------------------------


class Entries(NamedTuple):
    """Ratings, log counts, or counts, with biases or without.

    ``values`` are v, ``ridge`` the penalties of (w, b) and of (z, c), ``scale`` their
    factors ρ, a row each. With ``everywhere`` each pair of a user and an item counts,
    by two Gram matrices; entries weigh 1 + s, and the objective is twice the problems'.
    """

    places: Any
    weights: Array
    values: Array
    ridge: Any
    scale: Any
    everywhere: bool = False

    @property
    def twice(self) -> float:
        """How the objective relates to the sum of the sides' problems."""
        return 1.0 + self.everywhere

    def rows(self, k: int, point: Point) -> Array:
        """Factors of a side, with its biases if they are penalised in the same way."""
        own, biased = point[k], len(self.ridge[k]) > point[k].shape[1]
        return np.column_stack([own, point[2 + k]]) if biased else own

    def side(self, k: int, point: Point) -> Side:
        """The problems of users (0) or items (1), the others being fixed."""
        Y = point[1 - k]
        if Y.shape[1] < len(self.ridge[k]):
            Y = np.column_stack([Y, np.ones(len(Y))])
        penalties = (self.ridge[k], self.scale[k], Y.T @ Y if self.everywhere else None)
        return Side(self.places, self.weights, Y, *penalties, k == 1)

    def errors(self, point: Point) -> Array:
        """Prediction less v, of each entry."""
        z = self.side(0, point).products(self.rows(0, point))
        z += point[3][self.places.indices]
        return z - self.values

    def slopes(self, e: Array) -> Array:
        """Derivatives in the products of ½se², or of ½(1 + s)(z − 1)² − ½z²."""
        return self.weights * e - self.everywhere

    def bound(self, k: int, e: Array, point: Point) -> Sizes:
        """Sizes that bound the rounding of a side's gradient and curvature."""
        own, other = (
            np.column_stack([lengths(point[j]), np.abs(point[2 + j])])
            for j in (k, 1 - k)
        )
        return bound(self.side(k, point), self.rows(k, point), e, own, other)

    def value(self, point: Point, e: Array) -> tuple[float, float]:
        """The objective, and its rounding."""
        (W, Z, b, c), s = point, self.weights + self.everywhere
        loss, K = float(s @ np.square(e)), W.shape[1]
        # Σ s(‖w‖‖z‖ + |b| + |c|)², the root of each part.
        sizes = np.column_stack([lengths(Z) ** 2, np.ones(len(Z)), c**2])
        wide, plain, bias = (filled(self.places, s) @ sizes).T
        parts = [lengths(W) ** 2 @ wide, b**2 @ plain, bias.sum()]
        far = float(np.sqrt(np.maximum(parts, 0.0)).sum())
        away = gamma(K + 32) * (np.sqrt(loss) + 2 * far)
        rest = sum(
            float(self.scale[k] @ (self.rows(k, point) ** 2 @ self.ridge[k]))
            for k in (0, 1)
        )
        size = loss + rest
        if self.everywhere:
            A, B = W.T @ W, Z.T @ Z
            rest += float(np.sum(A * B)) - float(np.sum((e + 1.0) ** 2))
            size += float(np.trace(A) * np.trace(B))
            size += 4 * far * (np.sqrt(loss) + far)
        rounding = np.sqrt(loss) * away + 0.5 * away**2
        rounding += gamma(len(e) + sum(self.places.shape) + K + 32) * size
        return 0.5 * self.twice * (loss + rest), float(self.twice * rounding)

    def moved(self, point: Point, k: int, x: Array) -> Point:
        """The point with one side replaced."""
        parts, K = list(point), point[k].shape[1]
        parts[k] = x[:, :K]
        if x.shape[1] > K:
            parts[2 + k] = x[:, K]
        return parts[0], parts[1], parts[2], parts[3]
