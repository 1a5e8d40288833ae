"""Nearest neighbours: whether the rows are kept, and the neighbours found are nearest.

For sampled training rows q the model is asked for its k neighbours J. All distances
from q are computed here, straight from the coordinates in float64, and

    value = max over q of (max_{j in J} d(q, xⱼ) − min_{j not in J} d(q, xⱼ))₊

as a share of the former: zero proves that no row left out is nearer than one returned.
Nothing is said about other queries, or about whether neighbours predict well; at level
"full" the error on training rows without themselves is measured.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse

from certus.certificate import Claim, Evidence, Status, Strength
from certus.verify import data
from certus.verify.data import Array

EPS = float(np.finfo(np.float64).eps)
#: Coordinates compared at level "quick"; always at least two rows, at most so many.
QUICK, QUICK_ROWS = 1 << 18, 64
FULL, FULL_ROWS = 1 << 30, 1024
#: Sums of powers that lost nothing to the ends of float64's range.
SMALL, LARGE = 1e-270, 1e300
#: Training rows predicted without themselves.
LEFT_OUT = 2048


class Found(NamedTuple):
    """How much too far the neighbours are, the rounding granted, and the rows asked."""

    value: float
    allowance: float
    rows: int


def check_neighbors(
    model: Any, evidence: Evidence, X: Any, y: Any, sample_weight: Any, level: str
) -> tuple[list[Claim], Status, dict[str, Any]]:
    """Compare the stored rows with those passed, then the neighbours of a sample."""
    X = data.as_matrix(X)
    if X.shape[1] != model.n_features_in_:
        raise ValueError(
            f"X has {X.shape[1]} columns and the model was fitted on "
            f"{model.n_features_in_}."
        )
    targets = _targets(model, y, X.shape[0])
    metric = str(evidence.params.get("metric"))
    marks = _fingerprint(X, targets, metric)
    kept = _rows_claim(model, X, targets)
    distances = _distances(evidence, X)
    if distances is None:
        refusal = Claim(
            "nearest_neighbours",
            Strength.REFUSED,
            detail=f"the distance {metric!r} has no formula in the verifier",
            fix="use 'euclidean', 'manhattan', 'chebyshev' or 'minkowski'",
        )
        status = Status.SOLVED if kept.met else Status.TOL_NOT_REACHED
        return [kept, refusal], status, marks
    nearest = _nearest_claim(model, X, distances, bool(kept.met), metric, level)
    claims = [nearest, kept]
    if level == "full" and kept.met:
        claims.append(_left_out_claim(model, X, targets))
    status = Status.SOLVED if nearest.met else Status.TOL_NOT_REACHED
    return claims, status, marks


# -- the rows ---------------------------------------------------------------------


def _targets(model: Any, y: Any, n: int) -> Array:
    """Targets as the model stores them: numbers, or positions among the labels."""
    if not hasattr(model, "classes_"):
        return data.numbers(y, n)
    labels = model.classes_
    several = isinstance(labels, list)
    y = np.asarray(y)
    if several and (y.ndim != 2 or y.shape[1] != len(labels)):
        raise ValueError(
            f"y has shape {y.shape}; pass {len(labels)} columns of labels."
        )
    columns = list(y.T) if several else [y]
    names = labels if several else [labels]
    kept = np.asarray(model._y)
    if not several and kept.shape == y.shape and _spell(labels, kept, y):
        return kept
    codes = [data.codes(c, np.asarray(some)) for c, some in zip(columns, names)]
    if len(codes[0]) != n:
        raise ValueError(f"y has {len(codes[0])} rows and X has {n}.")
    return np.stack(codes, axis=1) if several else codes[0]


def _spell(labels: Array, codes: Array, y: Array) -> bool:
    """Whether the codes kept are positions of these very labels, each label once."""
    inside = codes.dtype.kind in "iu" and codes.size > 0 and codes.min() >= 0
    if not inside or codes.max() >= len(labels) or len(np.unique(labels)) < len(labels):
        return False
    return bool(np.all(labels[codes] == y))


def _fingerprint(X: Any, targets: Array, metric: str) -> dict[str, Any]:
    if metric == "nan_euclidean":
        X = np.nan_to_num(np.asarray(X, dtype=np.float64))
    ones = np.ones(X.shape[0])
    flat = targets.reshape(len(targets), -1).astype(np.float64)
    marks = flat @ (1.0 + np.arange(flat.shape[1])) if flat.shape[1] > 1 else flat[:, 0]
    return data.fingerprint(X, marks, ones)


def _rows_claim(model: Any, X: Any, targets: Array) -> Claim:
    """Whether the model keeps these very rows and targets."""
    stored, kept = model._fit_X, np.asarray(model._y)
    n = X.shape[0]
    if stored.shape != X.shape or kept.reshape(len(kept), -1).shape != (
        targets.reshape(n, -1).shape
    ):
        detail = f"the model keeps {stored.shape[0]:,} rows, not these {n:,}"
        wrong = max(n, stored.shape[0])
    else:
        differs = _different_rows(stored, X)
        differs |= (kept.reshape(n, -1) != targets.reshape(n, -1)).any(axis=1)
        wrong = int(differs.sum())
        detail = f"the {n:,} rows and targets kept are those you passed"
        if wrong:
            detail = f"{wrong:,} of {n:,} rows kept are not those you passed"
    return Claim(
        "training_rows",
        Strength.PROVED,
        float(wrong),
        0.0,
        wrong == 0,
        theorem="compared cell by cell, at the precision the model keeps",
        detail=detail,
        fix="" if wrong == 0 else "pass the training data, or fit again",
    )


def _different_rows(stored: Any, X: Any) -> Array:
    """Which rows differ, once X has the precision of what is stored."""
    n = X.shape[0]
    if sparse.issparse(stored) or sparse.issparse(X):
        gap = sparse.csr_matrix(stored) != sparse.csr_matrix(X).astype(stored.dtype)
        return np.asarray(np.diff(gap.tocsr().indptr) > 0)
    out = np.empty(n, dtype=bool)
    rows = max(1, (1 << 17) // max(1, X.shape[1]))
    for i in range(0, n, rows):
        a = np.asarray(stored[i : i + rows])
        b = X[i : i + rows].astype(stored.dtype, copy=False)
        same = a == b
        if same.all():
            out[i : i + rows] = False
            continue
        same |= (a != a) & (b != b)
        out[i : i + rows] = ~same.all(axis=1)
    return out


# -- the neighbours ---------------------------------------------------------------


def _distances(evidence: Evidence, X: Any) -> Callable[[int], Array] | None:
    """The distances from row i to every row; None for a metric not known here."""
    params = evidence.params
    metric = str(params.get("metric"))
    powers = {"euclidean": 2.0, "l2": 2.0, "manhattan": 1.0, "cityblock": 1.0}
    powers |= {"l1": 1.0, "chebyshev": np.inf, "infinity": np.inf}
    p = powers.get(metric)
    if metric in ("minkowski", "p") and params.get("p") is not None:
        p = float(params["p"])
    if metric == "precomputed":
        return None if sparse.issparse(X) else lambda i: np.asarray(X[i], dtype=float)
    if p is None:
        return None
    w = params.get("w")
    weights = np.ones(X.shape[1]) if w is None else np.asarray(w, dtype=float)
    power = p
    if sparse.issparse(X):
        S = X.tocsr()
        return lambda i: _sparse_row(S, i, power, weights)
    return lambda i: _dense_row(X, i, power, weights)


def _dense_row(X: Any, i: int, p: float, weights: Array) -> Array:
    q = np.asarray(X[i], dtype=np.float64)
    out = np.empty(X.shape[0])
    rows = max(1, (1 << 16) // max(1, X.shape[1]))
    for start in range(0, X.shape[0], rows):
        gaps = X[start : start + rows] - q
        if p != 2:
            np.abs(gaps, out=gaps)
        out[start : start + rows] = _norms(gaps, p, weights)
    return out


def _norms(gaps: Array, p: float, weights: Array) -> Array:
    """(Σ w|g|^p)^(1/p) of each row; where powers leave the range, of ratios."""
    if np.isinf(p):
        return np.asarray((gaps * (weights > 0)).max(axis=1))
    with np.errstate(over="ignore", under="ignore"):
        if p == 2:
            total = np.einsum("ij,ij,j->i", gaps, gaps, weights)
        else:
            total = gaps**p @ weights
        out = np.sqrt(total) if p == 2 else np.asarray(total ** (1.0 / p))
    odd = np.flatnonzero(~((total > SMALL) & (total < LARGE)))
    if len(odd):
        wide = np.abs(gaps[odd])
        largest = wide.max(axis=1)
        scale = np.where((largest > 0) & np.isfinite(largest), largest, 1.0)
        ratios = (wide / scale[:, None]) ** p @ weights
        out[odd] = scale * ratios ** (1.0 / p)
    return out


def _sparse_row(X: Any, i: int, p: float, weights: Array) -> Array:
    """As :func:`_dense_row`, for CSR rows; only blocks of differences are ever held."""
    if np.isinf(p):
        return _differences(X, i, p, weights)
    q = X[[i]].toarray().ravel().astype(np.float64)
    cells, places = X.data.astype(np.float64), q[X.indices]
    own, w = np.abs(q) ** p @ weights, weights[X.indices]
    with np.errstate(over="ignore", under="ignore"):
        # Where a row has entries, the difference; where it has none, the query's own.
        changed = np.abs(cells - places) ** p - np.abs(places) ** p
        sums = sparse.csr_matrix((changed * w, X.indices, X.indptr), X.shape)
        total = own + sums @ np.ones(X.shape[1])
    fine = (total >= own / 8) & (total > SMALL) & (total < LARGE)
    out = np.maximum(total, 0.0) ** (1.0 / p)
    near = np.flatnonzero(~fine)  # the subtraction has cost digits here
    if len(near):
        both = X[np.concatenate([[i], near])]
        out[near] = _differences(both, 0, p, weights)[1:]
    return np.asarray(out)


def _differences(X: Any, i: int, p: float, weights: Array) -> Array:
    """Distances from row i, by sparse differences."""
    q = X[[i]].astype(np.float64)
    out = np.zeros(X.shape[0])
    for start in range(0, X.shape[0], 4096):
        block = X[start : start + 4096].astype(np.float64)
        repeat = sparse.csr_matrix(np.ones((block.shape[0], 1)))
        gaps = abs(block - repeat @ q).tocsr()
        largest = gaps.max(axis=1).toarray().ravel()
        scale = np.where(largest > 0, largest, 1.0)
        here = slice(start, start + block.shape[0])
        if np.isinf(p):
            used = gaps.multiply(weights > 0).tocsr()
            out[here] = used.max(axis=1).toarray().ravel()
            continue
        gaps.data = (gaps.data / np.repeat(scale, np.diff(gaps.indptr))) ** p
        out[here] = scale * np.asarray(gaps @ weights).ravel() ** (1.0 / p)
    return out


def _compare(
    model: Any, X: Any, distances: Callable[[int], Array], k: int, rows: Array
) -> Found:
    """The worst excess over the sampled rows; infinite if an answer makes no sense."""
    n, d = X.shape
    queries = X[rows]
    allowance = 8 * (d + 8) * EPS
    told, names = _ask(model, queries, k)
    worst = 0.0
    for q, said, J in zip(rows, told, names):
        if len(np.unique(J)) != k or J.min() < 0 or J.max() >= n:
            return Found(np.inf, allowance, len(rows))
        away = distances(int(q))
        inside, left = float(away[J].max()), np.ones(n, dtype=bool)
        left[J] = False
        outside = float(away[left].min(initial=np.inf))
        size = inside if inside > 0 else 1.0
        excess = max(0.0, inside - outside) / size
        wrong = float(np.abs(said - away[J]).max()) / size
        worst = max(worst, excess, wrong if wrong > _told(X.dtype, d) else 0.0)
    return Found(worst, allowance, len(rows))


def _ask(model: Any, queries: Any, k: int) -> tuple[Array, Array]:
    """Distances and rows that the model returns; these rows have lost their names."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "X does not have valid feature names")
        told, names = model.kneighbors(queries, n_neighbors=k)
    return np.asarray(told), np.asarray(names)


def _told(dtype: Any, d: int) -> float:
    """Rounding granted to the distances reported, as a share of the largest."""
    single = np.dtype(dtype) == np.float32
    return (d + 8) * float(np.finfo(np.float32).eps if single else 1e-7)


def _nearest_claim(
    model: Any,
    X: Any,
    distances: Callable[[int], Array],
    kept: bool,
    metric: str,
    level: str,
) -> Claim:
    n, d = X.shape
    k = min(int(model.n_neighbors), n)
    cells, most = (QUICK, QUICK_ROWS) if level == "quick" else (FULL, FULL_ROWS)
    few = int(min(n, most, max(2, cells // max(1, n * d))))
    rows = np.unique(np.linspace(0, n - 1, few).astype(int))
    found = Found(np.inf, 0.0, len(rows))
    if kept:
        found = _compare(model, X, distances, k, rows)
    met = found.value <= found.allowance
    sample = f"{len(rows):,} of {n:,} training rows"
    detail = f"the {k} found are the nearest, for {sample}"
    if not kept:
        detail = "the rows kept are not those passed, so neither are the neighbours"
    elif np.isinf(found.value):
        detail = f"the neighbours found of some of {sample} are no {k} distinct rows"
    elif not met:
        detail = f"a row {found.value:.1e} nearer was left out, for some of {sample}"
    return Claim(
        "nearest_neighbours",
        Strength.PROVED,
        float(found.value) if found.value > found.allowance else 0.0,
        0.0,
        bool(met),
        objective=f"{metric} distance, in float64",
        theorem="each sampled row was compared with every row, by direct distances",
        allowance=found.allowance,
        detail=detail,
        fix="" if met else _fix(model, kept),
    )


def _fix(model: Any, kept: bool) -> str:
    if not kept:
        return "pass the training data, or fit again"
    ours = type(model).__module__.partition(".")[0] == "certus"
    advice = "centre and scale the columns (StandardScaler)"
    return advice if ours else f"{advice}, or certus.neighbors.{type(model).__name__}"


# -- leaving one out --------------------------------------------------------------


def _left_out_claim(model: Any, X: Any, targets: Array) -> Claim:
    """Error on training rows predicted without themselves; measured."""
    n = X.shape[0]
    k = int(model.n_neighbors)
    rows = np.unique(np.linspace(0, n - 1, min(n, LEFT_OUT)).astype(int))
    if k >= n:
        return Claim(
            "leave_one_out",
            Strength.REFUSED,
            detail=f"without one row fewer than {k} are left",
        )
    told, names = _ask(model, X[rows], k + 1)
    others = names != rows[:, None]
    full = others.all(axis=1)  # hidden behind more than k copies of itself
    others[full, -1] = False
    told, names = told[others].reshape(-1, k), names[others].reshape(-1, k)
    weights = _weights(model.weights, told)
    flat = targets.reshape(n, -1)
    if hasattr(model, "classes_"):
        wrong = np.zeros(len(rows), dtype=bool)
        for c in range(flat.shape[1]):
            votes = np.zeros((len(rows), int(flat[:, c].max()) + 1))
            for i in range(k):
                votes[np.arange(len(rows)), flat[names[:, i], c]] += weights[:, i]
            wrong |= votes.argmax(axis=1) != flat[rows, c]
        value, what = float(wrong.mean()), "of labels wrong"
        text = f"{100 * value:.3g} % {what}"
    else:
        mean = np.einsum("ij,ijc->ic", weights, flat[names])
        gaps = mean / weights.sum(axis=1, keepdims=True) - flat[rows]
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
    met = np.isinf(votes)
    some = met.any(axis=1)
    votes[some] = met[some]
    return np.asarray(votes)
