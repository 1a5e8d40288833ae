"""Ratings as the verifier reads them, and the two objectives of a factorisation.

    explicit  ½Σ_Ω s(x − μ − b_u − c_i − w_u·z_i)² + ½Σ ρ(λ_w‖w‖² + λ_b b²) + items
    implicit  Σ_ui (1 + α·count)(p − w_u·z_i)² + λ(‖W‖² + ‖Z‖²)

Either is, with one side fixed, a sum of quadratics: one :class:`Side` for the users and
one for the items.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from scipy import sparse

from certus.certificate import Evidence
from certus.verify import data
from certus.verify.data import Array
from certus.verify.factorisation import Side

EXPLICIT = "½Σ s·(x − μ − b − c − w·z)² + ½Σ λ_w‖w‖² + λ_z‖z‖² + λ_b(b² + c²)"
IMPLICIT = "Σ (1 + α·count)·(p − w·z)² + λ(‖W‖² + ‖Z‖²)"


class Entries(NamedTuple):
    """Ratings by users: places, numbers and weights."""

    by_user: Any
    weights: Array

    def counts(self) -> tuple[Array, Array]:
        """How many entries each user and each item has."""
        matrix = self.by_user
        rated = np.bincount(matrix.indices, minlength=matrix.shape[1])
        return np.diff(matrix.indptr), rated


# -- reading ----------------------------------------------------------------------


def read(model: Any, X: Any, y: Any, sample_weight: Any, counts: bool) -> Entries:
    """The ratings passed, in the places the model gives to its users and items."""
    shape = (len(model.users_), len(model.items_))
    _check_shapes(model, shape)
    weights = None
    if y is None:
        matrix = _matrix(X, shape)
        if sample_weight is not None:
            weights = _matrix(sample_weight, shape)
            if not np.array_equal(weights.indices, matrix.indices):
                raise ValueError("sample_weight and X have entries in other places.")
            weights = weights.data
    else:
        matrix, weights = _placed(model, X, y, sample_weight, shape, counts)
    data.refuse_holes(matrix)
    if counts:
        matrix.eliminate_zeros()
    if weights is None:
        weights = np.ones(matrix.nnz)
    return Entries(matrix, np.asarray(weights, dtype=np.float64))


def _check_shapes(model: Any, shape: tuple[int, int]) -> None:
    """Raise unless every user and item has factors, and numbers where there are any."""
    W, Z = np.shape(model.user_factors_), np.shape(model.item_factors_)
    fits = len(W) == len(Z) == 2 and (W[0], Z[0]) == shape and W[1] == Z[1]
    for name, size in zip(_NAMES[2:], shape):
        fits = fits and np.shape(getattr(model, name, np.zeros(size))) == (size,)
    if not fits:
        raise ValueError("The model's factors do not fit its users and items.")


def mislaid(model: Any, entries: Entries) -> str:
    """Why ids or rows kept for recommending are not those of these ratings."""
    for name in ("users_", "items_"):
        ids = getattr(model, name)
        listed = np.asarray(ids).tolist()
        if len(set(listed)) < len(listed):
            return f"{name} names somebody twice"
        if ids.dtype.kind in "iufUS" and np.any(ids[1:] <= ids[:-1]):
            return f"{name} is out of order"
    kept = getattr(model, "_seen_starts", None), getattr(model, "_seen_items", None)
    if kept[0] is None or kept[1] is None:
        return ""
    own = entries.by_user
    same = np.array_equal(kept[0], own.indptr) and np.array_equal(kept[1], own.indices)
    return "" if same else "the model keeps other ratings as seen"


def _matrix(X: Any, shape: tuple[int, int]) -> Any:
    if not sparse.issparse(X):
        X = np.asarray(X, dtype=np.float64)
    if X.shape != shape:
        turned = " It is items × users: pass X.T." if X.shape == shape[::-1] else ""
        raise ValueError(
            f"X has shape {X.shape} and the model has {shape[0]:,} users and "
            f"{shape[1]:,} items.{turned}"
        )
    if sparse.issparse(X):
        matrix = sparse.csr_matrix(X, dtype=np.float64, copy=True)
        matrix.sum_duplicates()
        return matrix
    rows, columns = np.nonzero(~np.isnan(X))
    starts = np.concatenate([[0], np.cumsum(np.bincount(rows, minlength=shape[0]))])
    return sparse.csr_matrix((X[rows, columns], columns, starts), shape)


def _placed(
    model: Any, X: Any, y: Any, sample_weight: Any, shape: tuple[int, int], counts: bool
) -> tuple[Any, Array | None]:
    if hasattr(X, "columns"):
        columns: list[Any] = [np.asarray(X[name]) for name in X.columns]
    elif isinstance(X, np.ndarray):
        columns = [X[:, 0], X[:, 1]]
    else:
        pairs = list(X)
        columns = [[pair[k] for pair in pairs] for k in (0, 1)]
    rows = _places(model.users_, columns[0], "user")
    places = _places(model.items_, columns[1], "item")
    values = data.numbers(y, len(rows))
    matrix = sparse.csr_matrix((values, (rows, places)), shape)
    if matrix.nnz < len(values) and not counts:
        raise ValueError("Some pairs are rated twice. Keep one rating of each.")
    if sample_weight is None:
        return matrix, None
    given = np.asarray(sample_weight, dtype=np.float64)
    return matrix, sparse.csr_matrix((given, (rows, places)), shape).data


def _places(known: Array, ids: Any, what: str) -> Array:
    table = {name: place for place, name in enumerate(known.tolist())}
    listed = ids.tolist() if isinstance(ids, np.ndarray) else list(ids)
    plain = [v.item() if isinstance(v, np.generic) else v for v in listed]
    strange = [name for name in plain if name not in table]
    if strange:
        raise ValueError(
            f"The model was not fitted on {what} {strange[0]!r}. Pass its training "
            "data."
        )
    return np.array([table[name] for name in plain])


# -- the two problems -------------------------------------------------------------


class Explicit:
    """Ratings with biases: both sides' quadratics, the value at the model's point."""

    objective = EXPLICIT
    twice = 1.0  # how the objective relates to the sum of the sides' quadratics

    def __init__(self, model: Any, params: Any, entries: Entries) -> None:
        self.model, self.params, self.entries = model, params, entries
        self.biased = bool(params["biases"])
        matrix, s = entries.by_user, entries.weights
        self.mean = float(model.mean_)
        self.point = tuple(
            np.asarray(getattr(model, name), dtype=np.float64) for name in _NAMES
        )
        self.fault = self._fault()
        self.values = matrix.data - self.mean
        self._each = np.diff(matrix.indptr)
        one = params["scale"] == "rows"
        self.scale = tuple(
            np.ones(len(n)) if one else np.maximum(1.0, n) for n in entries.counts()
        )
        self.users = self.side(0)
        self.z = self.users.products(self.rows(0))
        self.size = 0.5 * float(s @ np.square(self.values))
        self.value = self.value_at(self.point, self.z)

    def _fault(self) -> str:
        """What would make ``predict`` another model than the objective's."""
        matrix, s = self.entries.by_user, self.entries.weights
        expected = float(s @ matrix.data / s.sum()) if self.biased else 0.0
        if abs(self.mean - expected) > 1e-6 * max(1e-300, np.abs(matrix.data).max()):
            what = "the mean of these ratings" if self.biased else "zero"
            return f"mean_ is {self.mean:.6g}, not {what}"
        if not self.biased and any(np.any(bias) for bias in self.point[2:]):
            return "the model has biases and states none"
        return ""

    def rows(self, k: int, point: Any = None) -> Array:
        """Factors of a side with its biases beside them."""
        W, Z, b, c = self.point if point is None else point
        own, bias = (W, b) if k == 0 else (Z, c)
        return np.column_stack([own, bias]) if self.biased else own

    def side(self, k: int, point: Any = None) -> Side:
        """The quadratics of users (0) or items (1), the others being fixed."""
        other = self.rows(1 - k, point)
        penalties = self.params["penalties"]
        B = np.diag(np.full(self.point[0].shape[1], float(penalties[k])))
        places, s, v = self.entries.by_user, self.entries.weights, self.values
        if self.biased:
            b, c = (self.point if point is None else point)[2:]
            fixed = c[places.indices] if k == 0 else np.repeat(b, self._each)
            v = v - fixed
            other = np.column_stack([other[:, :-1], np.ones(len(other))])
            B = np.diag([*np.diag(B), float(penalties[2])])
        entries = (places.indptr, places.indices, s, s * v)
        return Side(*entries, other, B, self.scale[k], turned=k == 1)

    def value_at(self, point: Any, z: Array) -> float:
        """The objective, given w_u·z_i + b_u of each entry."""
        W, Z, b, c = point
        e = self.values - z
        if self.biased:
            e = e - c[self.entries.by_user.indices]
        total = float(self.entries.weights @ np.square(e))
        for F, scale, penalty in zip((W, Z), self.scale, self.params["penalties"]):
            total += float(penalty) * float(scale @ np.einsum("ij,ij->i", F, F))
        if self.biased:
            for f, scale in zip((b, c), self.scale):
                total += float(self.params["penalties"][2]) * float(
                    scale @ np.square(f)
                )
        return 0.5 * total

    def moved(self, point: Any, k: int, x: Array) -> Any:
        """The point with one side replaced."""
        K = self.point[0].shape[1]
        own, bias = x[:, :K], (x[:, K] if self.biased else point[2 + k])
        W, Z, b, c = point
        return (own, Z, bias, c) if k == 0 else (W, own, b, bias)

    def start(self, evidence: Evidence) -> Any:
        """Where the run began: users at zero, items as recorded."""
        W, Z, b, c = (np.zeros_like(part) for part in self.point)
        Z, first = _recorded(evidence, self.entries, Z.shape)
        if first is not None and self.biased:
            c = first
        return W, Z, b, c


class Implicit:
    """Counts: the same for all users × items, by two Gram matrices."""

    objective = IMPLICIT
    twice = 2.0
    biased = False
    fault = ""

    def __init__(self, model: Any, params: Any, entries: Entries) -> None:
        if entries.by_user.nnz and entries.by_user.data.min() < 0:
            raise ValueError("X holds negative counts.")
        self.model, self.params, self.entries = model, params, entries
        self.extra = float(params["alpha"]) * entries.by_user.data
        self.point = _factors(model)
        self.scale = tuple(np.ones(len(F)) for F in self.point)
        self.users = self.side(0)
        self.z = self.users.products(self.rows(0))
        self.size = float(np.sum(1.0 + self.extra))
        self.value = self.value_at(self.point, self.z)

    def rows(self, k: int, point: Any = None) -> Array:
        """Factors of a side."""
        return np.asarray((self.point if point is None else point)[k])

    def side(self, k: int, point: Any = None) -> Side:
        """The quadratics of users (0) or items (1), the others being fixed."""
        other = self.rows(1 - k, point)
        B = other.T @ other + float(self.params["penalty"]) * np.eye(other.shape[1])
        places, s = self.entries.by_user, self.extra
        entries = (places.indptr, places.indices, s, 1.0 + s)
        return Side(*entries, other, B, self.scale[k], turned=k == 1)

    def value_at(self, point: Any, z: Array) -> float:
        """The objective over all users × items, given w_u·z_i of each entry."""
        grams = [F.T @ F for F in point]
        seen = (1.0 + self.extra) @ np.square(1.0 - z) - z @ z
        lengths = sum(float(np.trace(gram)) for gram in grams)
        return float(
            seen + np.sum(grams[0] * grams[1]) + self.params["penalty"] * lengths
        )

    def moved(self, point: Any, k: int, x: Array) -> Any:
        """The point with one side replaced."""
        return (x, point[1]) if k == 0 else (point[0], x)

    def start(self, evidence: Evidence) -> Any:
        """Where the run began: users at zero, items as recorded."""
        W, Z = (np.zeros_like(part) for part in self.point)
        return W, _recorded(evidence, self.entries, Z.shape)[0]


_NAMES = ("user_factors_", "item_factors_", "user_biases_", "item_biases_")


def _factors(model: Any) -> tuple[Array, Array]:
    W, Z = (np.asarray(getattr(model, name), dtype=np.float64) for name in _NAMES[:2])
    return W, Z


def _recorded(
    evidence: Evidence, entries: Entries, shape: tuple[int, ...]
) -> tuple[Array, Array | None]:
    """The items' factors at the start: stored, or drawn again from the seed."""
    if "start" in evidence.arrays:
        bias = evidence.arrays.get("start_bias")
        Z = np.asarray(evidence.arrays["start"], dtype=np.float64)
        return Z, None if bias is None else np.asarray(bias, dtype=np.float64)
    random = np.random.default_rng(int(evidence.params["seed"]))
    Z = float(evidence.params["init_std"]) * random.standard_normal(shape)
    Z[entries.counts()[1] == 0] = 0.0
    return Z, None
