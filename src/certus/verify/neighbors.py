"""Nearest neighbours: whether the rows are kept, and the neighbours found are nearest.

For sampled training rows q the model is asked for its k neighbours J. All distances
from q are computed here, straight from the coordinates in float64, and

    value = max over q of (max_{j in J} d(q, xⱼ) − min_{j not in J} d(q, xⱼ))₊

as a share of the former: where it is rounding, no row left out is nearer than one
returned. The distance is read from the parameters; the rows kept are the object judged
(scikit-learn keeps them under private names), and compared with those passed. Nothing
is said about other queries, or about whether neighbours predict well; at level "full"
the error on training rows without themselves is measured.

Rounding: a coordinate's difference, its power and their sum are right to a share of
γ₁₇₍₂ₘ₊₁₆₎ for m coordinates, and the root divides that by p.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse

from certus.certificate import Claim, Strength
from certus.verify import data, stating
from certus.verify.data import Array
from certus.verify.deciding import Number, gamma, proved, refuse_weights, status_of
from certus.verify.kernel import reading
from certus.verify.stating import Checked, Given

#: Share of the distance by which a row left out may be nearer.
NEARER = 1e-10
#: Coordinates compared at level "quick"; always at least two rows, at most so many.
QUICK, QUICK_ROWS = 1 << 18, 64
FULL, FULL_ROWS = 1 << 30, 1024
#: Sums of powers that lost nothing to the ends of float64's range.
SMALL, LARGE = 1e-270, 1e300
#: Training rows predicted without themselves.
LEFT_OUT = 2048
_POWERS = {"euclidean": 2.0, "l2": 2.0, "manhattan": 1.0, "cityblock": 1.0, "l1": 1.0}
_POWERS |= {"chebyshev": np.inf, "infinity": np.inf}
_NAMES = {2.0: "euclidean", 1.0: "manhattan", np.inf: "chebyshev"}
_UNTRUE = "pass the training data, or fit again"


class Statement(NamedTuple):
    """How many neighbours, and by which distance."""

    n_neighbors: int
    metric: str
    p: float | None  # of a Minkowski distance; None for one without a formula here
    w: Array | None
    weights: Any
    fix: str


def _neighbors(model: Any) -> Statement:
    metric, params = model.metric, dict(model.metric_params or {})
    ours = stating.is_ours(model)
    name = metric if isinstance(metric, str) else getattr(metric, "__name__", "")
    if not name:  # an object such as scikit-learn's EuclideanDistance64
        name = type(metric).__name__.partition("Distance")[0].lower()
    p, w = _POWERS.get(name), None
    if name == "minkowski" or (name == "p" and ours):
        p, w = float(params.get("p", model.p)), params.get("w")
    w = None if w is None else np.asarray(w, dtype=np.float64)
    p = None if callable(metric) else p
    if p in _NAMES and w is None:
        name = _NAMES[p]
    fix = "centre and scale the columns (StandardScaler)"
    fix += "" if ours else f", or certus.neighbors.{type(model).__name__}"
    return Statement(int(model.n_neighbors), name, p, w, model.weights, fix)


READERS: dict[str, stating.Reader] = {
    "KNeighborsClassifier": _neighbors,
    "KNeighborsRegressor": _neighbors,
}


def check(model: Any, stated: Statement, given: Given) -> Checked:
    """Compare the stored rows with those passed, then the neighbours of a sample."""
    _, X, y, s, level, _ = given
    refuse_weights(model, s)
    X = reading.as_matrix(X)
    if X.shape[1] != model.n_features_in_:
        raise ValueError(
            f"X has {X.shape[1]} columns and the model was fitted on "
            f"{model.n_features_in_}."
        )
    targets = _targets(model, y, X.shape[0])
    marks = _fingerprint(X, targets, stated.metric)
    kept = _rows_claim(model, X, targets)
    distances = _distances(stated, X)
    if distances is None:
        refusal = Claim(
            *("nearest_neighbours", Strength.REFUSED),
            detail=f"the distance {stated.metric!r} has no formula in the verifier",
            fix="use 'euclidean', 'manhattan', 'chebyshev' or 'minkowski'",
        )
        return [kept, refusal], status_of(kept), marks
    nearest = _nearest_claim(model, stated, X, distances, bool(kept.met), level)
    claims = [nearest, kept]
    if level == "full" and kept.met:
        claims.append(_left_out_claim(model, stated, X, targets))
    return claims, status_of(nearest), marks


# -- the rows ---------------------------------------------------------------------


def _targets(model: Any, y: Any, n: int) -> Array:
    """Targets as the model stores them: numbers, or positions among the labels."""
    if not hasattr(model, "classes_"):
        return reading.numbers(y, n).reshape(n, -1)
    labels, y = model.classes_, np.asarray(y)
    several = isinstance(labels, list)
    if several and (y.ndim != 2 or y.shape[1] != len(labels)):
        raise ValueError(
            f"y has shape {y.shape}; pass {len(labels)} columns of labels."
        )
    pairs = zip(y.T, labels) if several else [(y, labels)]
    codes = np.stack([reading.codes(c, np.asarray(some)) for c, some in pairs], axis=1)
    if len(codes) != n:
        raise ValueError(f"y has {len(codes)} rows and X has {n}.")
    return codes


def _fingerprint(X: Any, targets: Array, metric: str) -> dict[str, Any]:
    if metric == "nan_euclidean":
        X = np.nan_to_num(np.asarray(X, dtype=np.float64))
    line = targets.astype(np.float64) @ (1.0 + np.arange(targets.shape[1]))
    return data.fingerprint(X, line, np.ones(X.shape[0]))


def _rows_claim(model: Any, X: Any, targets: Array) -> Claim:
    """Whether the model keeps these very rows and targets."""
    ours = stating.is_ours(model)
    stored = model.rows_ if ours else model._fit_X
    kept = np.asarray(model.targets_ if ours else model._y)
    kept = kept.reshape(len(kept), -1)
    wrong = n = X.shape[0]
    detail = f"the model keeps {stored.shape[0]:,} rows, not these {n:,}"
    if stored.shape == X.shape and kept.shape == targets.shape:
        wrong = int((_different_rows(stored, X) | (kept != targets).any(axis=1)).sum())
        detail = f"the {n:,} rows and targets kept are those you passed"
        if wrong:
            detail = f"{wrong:,} of {n:,} rows kept are not those you passed"
    return Claim(
        *("training_rows", Strength.PROVED, float(wrong), 0.0, wrong == 0),
        theorem="compared cell by cell, in float64",
        detail=detail,
        fix="" if wrong == 0 else _UNTRUE,
    )


def _different_rows(stored: Any, X: Any) -> Array:
    """Which rows differ as numbers in float64, whatever either is stored in."""
    if sparse.issparse(stored) or sparse.issparse(X):
        a, b = (sparse.csr_matrix(part).astype(np.float64) for part in (stored, X))
        return np.asarray(np.diff((a != b).tocsr().indptr) > 0)
    out = np.empty(len(X), dtype=bool)
    rows = max(1, (1 << 17) // max(1, X.shape[1]))
    for i in range(0, len(X), rows):
        a, b = (
            np.asarray(part[i : i + rows]).astype(np.float64, copy=False)
            for part in (stored, X)
        )
        same = a == b
        if not same.all():
            same |= (a != a) & (b != b)
        out[i : i + rows] = ~same.all(axis=1)
    return out


# -- the neighbours ---------------------------------------------------------------


def _distances(stated: Statement, X: Any) -> Callable[[int], Array] | None:
    """The distances from row i to every row; None for a metric not known here."""
    if stated.metric == "precomputed":
        return None if sparse.issparse(X) else lambda i: np.asarray(X[i], dtype=float)
    if stated.p is None:
        return None
    p, w = stated.p, np.ones(X.shape[1]) if stated.w is None else stated.w
    if sparse.issparse(X):
        S = X.tocsr().astype(np.float64)
        return lambda i: _sparse_row(S, i, p, w)
    return lambda i: _dense_row(X, i, p, w)


def _dense_row(X: Any, i: int, p: float, w: Array) -> Array:
    q = np.asarray(X[i], dtype=np.float64)
    rows = max(1, (1 << 16) // max(1, X.shape[1]))
    parts = [X[start : start + rows] - q for start in range(0, X.shape[0], rows)]
    return np.concatenate([_norms(np.abs(gaps, out=gaps), p, w) for gaps in parts])


def _norms(gaps: Array, p: float, w: Array) -> Array:
    """(Σ w·g^p)^(1/p) of each row; where powers leave the range, of ratios."""
    if np.isinf(p):
        return np.asarray((gaps * (w > 0)).max(axis=1, initial=0.0))
    with np.errstate(over="ignore", under="ignore"):
        total = np.einsum("ij,ij,j->i", gaps, gaps, w) if p == 2 else gaps**p @ w
        out = np.sqrt(total) if p == 2 else np.asarray(total ** (1.0 / p))
    odd = np.flatnonzero(~((total > SMALL) & (total < LARGE)))
    if len(odd):
        largest = gaps[odd].max(axis=1, initial=0.0)
        scale = np.where((largest > 0) & np.isfinite(largest), largest, 1.0)
        out[odd] = scale * ((gaps[odd] / scale[:, None]) ** p @ w) ** (1.0 / p)
    return out


def _sparse_row(S: Any, i: int, p: float, w: Array) -> Array:
    """As :func:`_dense_row`, for CSR rows; dense only where digits would be lost."""
    q = S[[i]].toarray().ravel()
    near = np.arange(S.shape[0])
    out = np.empty(len(near))
    if not np.isinf(p):
        places, own = q[S.indices], np.abs(q) ** p @ w
        with np.errstate(over="ignore", under="ignore", invalid="ignore"):
            # Where a row has entries, the difference; where it has none, the query's.
            changed = np.abs(S.data - places) ** p - np.abs(places) ** p
            sums = sparse.csr_matrix((changed * w[S.indices], S.indices, S.indptr))
            total = own + np.asarray(sums.sum(axis=1)).ravel()
            fine = (total >= own / 8) & (total > SMALL) & (total < LARGE)
            out = np.maximum(total, 0.0) ** (1.0 / p)
        near = np.flatnonzero(~fine)
    rows = max(1, (1 << 16) // max(1, S.shape[1]))
    for start in range(0, len(near), rows):
        some = near[start : start + rows]
        out[some] = _norms(np.abs(S[some].toarray() - q), p, w)
    return out


def _compare(
    model: Any, stated: Statement, X: Any, distances: Callable[[int], Array], rows: Any
) -> float:
    """The worst excess over the sampled rows; infinite if an answer makes no sense."""
    n, d = X.shape
    k = min(stated.n_neighbors, n)
    told, names = _ask(model, X[rows], k)
    # Rounding granted to the distances reported, as a share of the largest.
    single = np.dtype(X.dtype) == np.float32
    granted = (d + 8) * float(np.finfo(np.float32).eps if single else 1e-7)
    worst = 0.0
    for q, said, J in zip(rows, told, names):
        if len(np.unique(J)) != k or J.min() < 0 or J.max() >= n:
            return np.inf
        away = distances(int(q))
        inside, left = float(away[J].max()), np.ones(n, dtype=bool)
        left[J] = False
        size = inside if inside > 0 else 1.0
        wrong = float(np.abs(said - away[J]).max()) / size
        excess = (inside - float(away[left].min(initial=np.inf))) / size
        worst = max(worst, excess, 0.0 if wrong <= granted else wrong)
    return worst


def _ask(model: Any, queries: Any, k: int) -> tuple[Array, Array]:
    """Distances and rows that the model returns; these rows have lost their names."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "X does not have valid feature names")
        told, names = model.kneighbors(queries, n_neighbors=k)
    return np.asarray(told), np.asarray(names)


def _nearest_claim(
    model: Any, stated: Statement, X: Any, distances: Any, kept: bool, level: str
) -> Claim:
    n, d = X.shape
    k = min(stated.n_neighbors, n)
    cells, most = (QUICK, QUICK_ROWS) if level == "quick" else (FULL, FULL_ROWS)
    few = int(min(n, most, max(2, cells // max(1, n * d))))
    rows = np.unique(np.linspace(0, n - 1, few).astype(int))
    worst = _compare(model, stated, X, distances, rows) if kept else np.inf
    entries = int(np.diff(X.tocsr().indptr).max()) if sparse.issparse(X) else d
    rounding = 2 * gamma(17 * (2 * entries + 16)) / min(1.0, stated.p or 1.0)
    if stated.metric == "precomputed":
        rounding = 0.0
    sample = f"{len(rows):,} of {n:,} training rows"
    missed = f"a row {worst:.1e} nearer was left out, for some of {sample}"
    if not kept:
        missed = "the rows kept are not those passed, so neither are the neighbours"
    elif np.isinf(worst):
        missed = f"the neighbours found of some of {sample} are no {k} distinct rows"
    return proved(
        *("nearest_neighbours", Number(worst, rounding), NEARER),
        f"the {k} found are the nearest, for {sample}",
        missed=missed,
        objective=f"{stated.metric} distance, in float64",
        theorem="each sampled row was compared with every row, by direct distances",
        fix=stated.fix if kept else _UNTRUE,
    )


# -- leaving one out --------------------------------------------------------------


def _left_out_claim(model: Any, stated: Statement, X: Any, targets: Array) -> Claim:
    """Error on training rows predicted without themselves; measured."""
    n, k = X.shape[0], stated.n_neighbors
    if k >= n:
        detail = f"without one row fewer than {k} are left"
        return Claim("leave_one_out", Strength.REFUSED, detail=detail)
    rows = np.unique(np.linspace(0, n - 1, min(n, LEFT_OUT)).astype(int))
    told, names = _ask(model, X[rows], k + 1)
    others = names != rows[:, None]
    others[others.all(axis=1), -1] = False  # hidden behind more than k copies of itself
    told, names = told[others].reshape(-1, k), names[others].reshape(-1, k)
    weights = _weights(stated.weights, told)
    if hasattr(model, "classes_"):
        wrong = np.zeros(len(rows), dtype=bool)
        for codes in targets.T:
            votes = np.zeros((len(rows), int(codes.max()) + 1))
            for i in range(k):
                votes[np.arange(len(rows)), codes[names[:, i]]] += weights[:, i]
            wrong |= votes.argmax(axis=1) != codes[rows]
        value = float(wrong.mean())
        text = f"{100 * value:.3g} % of labels wrong"
    else:
        mean = np.einsum("ij,ijc->ic", weights, targets[names])
        gaps = mean / weights.sum(axis=1, keepdims=True) - targets[rows]
        value = float(np.sqrt(np.mean(np.square(gaps))))
        text = f"root mean square error {value:.4g}"
    detail = f"{text} on {len(rows):,} training rows predicted without themselves"
    return Claim("leave_one_out", Strength.MEASURED, value, detail=detail)


def _weights(weights: Any, told: Array) -> Array:
    if callable(weights):
        return np.asarray(weights(told), dtype=float)
    if weights != "distance":
        return np.ones(told.shape)
    with np.errstate(divide="ignore"):
        votes = 1.0 / told
    some = np.isinf(votes).any(axis=1)
    votes[some] = np.isinf(votes[some])
    return np.asarray(votes)
