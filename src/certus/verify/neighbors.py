"""Nearest neighbours: whether the stored rows are right and the neighbours nearest.

For sampled training rows q the model is asked for its k neighbours J. All distances
from q are computed here, straight from the coordinates in float64, and

    value = max over q of (max_{j in J} d(q, xⱼ) − min_{j not in J} d(q, xⱼ))₊

as a share of the former: where it is rounding, no row left out is nearer than one
returned. Of the rows within a radius r it is the largest abs(d − r)/r of one that lies
on the wrong side. The distance is read from the parameters; the rows kept are the
object judged (scikit-learn keeps them under private names), and compared with those
passed. Nothing is said about other queries, or about whether neighbours predict well.

Rounding: a coordinate's difference, its power and their sum are right to a share of
γ₁₇₍₂ₘ₊₁₆₎ for m coordinates, and the root divides that by p.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse

from certus.certificate import Claim
from certus.typing import Array, Column, Fit, Matrix
from certus.verify import data, stating
from certus.verify import deciding as bd
from certus.verify.deciding import Number, gamma
from certus.verify.kernel import reading
from certus.verify.stating import Checked, Given

#: Share of the distance by which a row left out may be nearer.
NEARER = 1e-10
#: Coordinates compared at level "quick", and the most rows; always at least two rows.
QUICK, QUICK_ROWS = 1 << 18, 64
FULL, FULL_ROWS = 1 << 30, 1024
#: Differences of coordinates held at a time.
CELLS = 1 << 16
#: Up to this many columns, data are stored by column, because short rows are slow.
NARROW = 32
_POWERS = {"euclidean": 2.0, "l2": 2.0, "manhattan": 1.0, "cityblock": 1.0, "l1": 1.0}
_POWERS |= {"chebyshev": np.inf, "infinity": np.inf}
_NAMES = {2.0: "euclidean", 1.0: "manhattan", np.inf: "chebyshev"}
#: The distances from a row to every row.
Away = Callable[[int], Array]
_UNTRUE = "pass the training data, or fit again"


class Statement(NamedTuple):
    """How many neighbours, and by which distance."""

    n_neighbors: int
    metric: str
    p: float | None  # of a Minkowski distance; None for one without a formula here
    w: Array | None
    fix: str


def _neighbors(model: Fit) -> Statement:
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
    return Statement(int(model.n_neighbors), name, p, w, fix)


NAMES = ("KNeighborsClassifier", "KNeighborsRegressor", "NearestNeighbors")
READERS: dict[str, stating.Reader] = dict.fromkeys(NAMES, _neighbors)


def check(model: Fit, stated: Statement, given: Given) -> Checked:
    """Compare the stored rows with those passed, then the neighbours of a sample."""
    _, X, y, s, level, _ = given
    bd.refuse_weights(model, s)
    X = reading.as_matrix(X)
    n, d = X.shape
    width = data.fitted(model, "n_features_in_", ())
    data.fitted(model, "n_samples_fit_", ())
    if d != width:
        raise ValueError(f"X has {d} columns, but the model was fitted on {width}.")
    told = stating.class_name(model) != "NearestNeighbors"
    targets = _targets(model, y, n) if told else np.zeros((n, 0))
    line = np.einsum("ij,j", targets, 1.0 + np.arange(targets.shape[1]))
    one, holes = np.ones(n), stated.metric == "nan_euclidean"
    marks = data.fingerprint(np.nan_to_num(data.dense(X)) if holes else X, line, one)
    kept = _rows_claim(model, X, targets)
    distances = _distances(stated, X)
    if distances is None:
        reason = f"the verifier has no formula for the distance {stated.metric!r}"
        fix = "use 'euclidean', 'manhattan', 'chebyshev' or 'minkowski'"
        refusal = bd.refused("nearest_neighbours", reason, fix)
        return [kept, refusal], bd.status_of(kept), marks
    asked = (model, stated, X, distances, bool(kept.met), level)
    claims = [_nearest_claim(*asked), kept]
    if not told:
        claims.insert(1, _nearest_claim(*asked, float(model.radius)))
    if level == "full" and stated.n_neighbors >= n:
        few = f"with one row left out, fewer than {stated.n_neighbors} rows remain"
        claims.append(bd.refused("leave_one_out", few, ""))
    return claims, bd.status_of(claims[0]), marks


# -- the rows ---------------------------------------------------------------------


def _targets(model: Fit, y: Column, n: int) -> Array:
    """Targets as the model stores them: numbers, or positions among the labels."""
    if not hasattr(model, "classes_"):
        return reading.numbers(y, n).reshape(n, -1)
    labels, y = data.listed(model, "classes_"), np.asarray(y)
    if not isinstance(labels, list):
        return reading.codes(y, np.asarray(labels), n)[:, None]
    if y.shape != (n, len(labels)):
        told = f"y has shape {y.shape}; pass {len(labels)} columns of labels"
        raise ValueError(f"{told} and {n} rows.")
    each = [reading.codes(c, np.asarray(some)) for c, some in zip(y.T, labels)]
    return np.stack(each, axis=1)


def _rows_claim(model: Fit, X: Matrix, targets: Array) -> Claim:
    """Whether the model keeps these very rows and targets."""
    names = ("rows_", "targets_") if stating.is_ours(model) else ("_fit_X", "_y")
    stored, kept = getattr(model, names[0]), targets
    if targets.size:
        kept = data.fitted(model, names[1])
    if not sparse.issparse(stored):
        stored = data.fitted(model, names[0], (None, None))
    kept = kept[:, None] if kept.ndim == 1 else kept
    what = "rows and targets" if targets.size else "rows"
    wrong = n = X.shape[0]
    missed = f"the model stores {stored.shape[0]:,} rows, but you passed {n:,}"
    if stored.shape == X.shape and kept.shape == targets.shape:
        wrong = int((_different_rows(stored, X) | (kept != targets).any(axis=1)).sum())
        missed = f"{wrong:,} of the {n:,} stored rows differ from those you passed"
    return bd.proved(
        *("training_rows", Number(float(wrong), 0.0), 0.0),
        f"the {n:,} {what} kept are those you passed",
        missed=missed,
        theorem="compared cell by cell, in float64",
        fix=_UNTRUE,
    )


def _different_rows(stored: Matrix, X: Matrix) -> Array:
    """Which rows differ as numbers, whatever either is stored in."""
    if sparse.issparse(stored) or sparse.issparse(X):
        a, b = (sparse.csr_matrix(part).astype(np.float64) for part in (stored, X))
        return np.asarray(np.diff((a != b).tocsr().indptr) > 0)
    other = np.asarray(stored != X)
    if not other.any():  # ten times faster
        return np.zeros(len(other), dtype=bool)
    other &= (stored == stored) | (X == X)  # NaN in both counts as equal
    return np.asarray(other.any(axis=1))


# -- the neighbours ---------------------------------------------------------------


def _distances(stated: Statement, X: Matrix) -> Away | None:
    """The distances from row i to every row; None for a metric not known here."""
    if stated.metric == "precomputed":
        return None if sparse.issparse(X) else lambda i: np.asarray(X[i], dtype=float)
    if stated.p is None:
        return None
    p, w = stated.p, np.ones(X.shape[1]) if stated.w is None else stated.w
    some = slice(None) if stated.w is None else w > 0
    rows = (X if isinstance(X, np.ndarray) else X.tocsr())[:, some]
    return lambda i: _away(rows, i, p, w[some])


def _away(X: Matrix, i: int, p: float, w: Array) -> Array:
    """Away from row i by its differences from each, a few rows at a time."""
    q: Any = X[[i]].astype(np.float64)
    width = X.shape[1] if isinstance(X, np.ndarray) else q.nnz + X.nnz // X.shape[0]
    step, found = max(1, CELLS // max(1, width)), [np.zeros(0)]
    for start in range(0, X.shape[0], step):
        part = X[start : start + step]
        if sparse.issparse(q):
            gaps = part - sparse.csr_matrix(np.ones((part.shape[0], 1))) @ q
        else:
            gaps = np.subtract(part, q, order="F" if width <= NARROW else "K")
        found.append(_norms(abs(gaps), p, w))
    return np.concatenate(found)


def _norms(gaps: Any, p: float, w: Array) -> Array:
    """(Σ w·g^p)^(1/p) of each row, in units of its largest: powers stay in range."""
    thin = sparse.issparse(gaps)
    top = gaps.max(axis=1).toarray().ravel() if thin else gaps.max(axis=1)
    if np.isinf(p):
        return np.asarray(top)
    unit = np.where((top > 0) & (top < np.inf), top, 1.0)
    if thin:
        gaps.data = (gaps.data / np.repeat(unit, np.diff(gaps.indptr))) ** p
    else:
        gaps = (gaps / unit[:, None]) ** p
    return np.asarray(unit * (gaps @ w) ** (1.0 / p))


def _compare(model: Fit, k: int, X: Matrix, distances: Away, rows: Array) -> float:
    """The worst excess over the sampled rows; infinite if an answer makes no sense."""
    (n, d), worst = X.shape, 0.0
    # Rounding granted to the distances reported, as a share of the largest.
    granted = (d + 8) * 1e-7
    for q, said, J in zip(rows, *_ask(model, X[rows], k)):
        if len(np.unique(J)) != k or J.min() < 0 or J.max() >= n:
            return np.inf
        away = distances(int(q))
        found, left = away[J], np.delete(away, J)
        size = float(found.max()) or 1.0
        wrong = float(np.abs(said - found).max()) / size
        excess = float(found.max() - left.min(initial=np.inf)) / size
        worst = max(worst, excess, 0.0 if wrong <= granted else wrong)
    return worst


def _misplaced(model: Any, r: float, X: Matrix, distances: Away, rows: Array) -> float:
    """How far from r a row may be that is on the wrong side; infinite if none can be.

    As a share of r; where r is 0, of nothing.
    """
    worst, n, size = 0.0, X.shape[0], r or 1.0
    for q, said, J in zip(rows, *_ask(model, X[rows], r, "radius")):
        if len(np.unique(J)) != len(J) or (len(J) and not 0 <= J.min() <= J.max() < n):
            return np.inf
        away, inside = distances(int(q)), np.zeros(n, dtype=bool)
        inside[J] = True
        off = np.where(inside, away - r, r - away).max(initial=0.0)
        told = np.abs(said - away[J]).max(initial=0.0)
        granted = (X.shape[1] + 8) * 1e-7 * away[J].max(initial=size)
        worst = max(worst, off / size, 0.0 if told <= granted else told / size)
    return float(worst)


def _ask(model: Fit, queries: Matrix, k: float, what: str = "k") -> Any:
    """Away and rows that the model returns; these rows have lost their names."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "X does not have valid feature names")
        try:
            if what == "radius":
                return model.radius_neighbors(queries, k)
            told, names = model.kneighbors(queries, n_neighbors=k)
        except (TypeError, ValueError, LookupError) as error:
            which = "effective_metric_ or effective_metric_params_ was changed"
            raise ValueError(f"{which}; fit the model again. ({error})") from error
    return np.asarray(told), np.asarray(names)


def _nearest_claim(
    model: Fit,
    stated: Statement,
    X: Matrix,
    distances: Away,
    kept: bool,
    level: str,
    radius: float | None = None,
) -> Claim:
    """Of the k nearest, or of those within a radius."""
    n, d = X.shape
    k = min(stated.n_neighbors, n)
    cells, most = (QUICK, QUICK_ROWS) if level == "quick" else (FULL, FULL_ROWS)
    few = int(min(n, most, max(2, cells // max(1, n * d))))
    rows = np.unique(np.linspace(0, n - 1, few).astype(int))
    worst = np.inf
    if kept and radius is None:
        worst = _compare(model, k, X, distances, rows)
    elif kept and radius is not None:
        rows = rows[:: 1 if level == "full" else 4]
        worst = _misplaced(model, radius, X, distances, rows)
    rounding = 0.0
    if stated.metric != "precomputed":
        m = d if isinstance(X, np.ndarray) else int(np.diff(X.tocsr().indptr).max())
        rounding = 2 * gamma(17 * (2 * m + 16)) / min(1.0, stated.p or 1.0)
    sample = f"{len(rows):,} of {n:,} training rows"
    name, found = "nearest_neighbours", f"the {k} found are the nearest, for {sample}"
    missed = f"for some of {sample}, a row that is {worst:.1e} nearer was left out"
    if radius is not None:
        name = "within_radius"
        found = f"the rows found within {radius:.4g} are those that are, for {sample}"
        missed = f"a row {worst:.1e} off the radius is on the wrong side, for {sample}"
    if not kept:
        missed = "the stored rows differ from those you passed"
    elif np.isinf(worst):
        missed = f"some of {sample} do not have {k} different neighbours"
    return bd.proved(
        *(name, Number(worst, rounding), NEARER),
        found,
        missed=missed,
        objective=f"{stated.metric} distance, in float64",
        theorem="each sampled row was compared directly with every row",
        fix=stated.fix if kept else _UNTRUE,
    )
