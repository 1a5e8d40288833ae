"""Checks of k-means: labels are nearest, centres are means, the objective adds up.

With centres c, labels z and weights s, one pass over the rows gives

- how many rows are nearer to another centre than to their own (must be none);
- the means μ of the clusters, hence Σ‖μ − c‖², what one further step would move;
- Σ s‖x − c(z)‖², once from distances and once as total scatter less between-cluster
  scatter plus Σ W‖μ − c‖².

At level "full" the recorded start is run again by plain assignments and means, and no
half-step may raise the objective. Whether a better clustering exists is not told.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse

from certus.certificate import Claim, Evidence, Status, Strength
from certus.verify import data
from certus.verify.blocks import add_up, over_blocks
from certus.verify.data import Array

EPS = float(np.finfo(np.float64).eps)
#: Cells of X, and of the distances, that are looked at together.
CELLS = 1 << 18
#: Exponents of entries whose squares stay in range.
WIDEST = 300
#: Sparse rows whose mean is so much larger than their scatter are centred.
FAR = 100.0
_OBJECTIVE = "Σ s·min‖x − c‖² over the centres c"


class Pass(NamedTuple):
    """What one pass over the rows finds for centres and labels."""

    nearest: Array  # labels by the verifier's own distances
    wrong: int  # rows nearer to another centre than to their own, rounding granted
    own: float  # Σ s‖x − c(z)‖² for the labels given
    least: float  # Σ s·min‖x − c‖²
    means: Array  # of the labels given; NaN for a cluster without weight
    weight: Array
    total: float  # Σ s‖x − mean‖²


def check_kmeans(
    model: Any, evidence: Evidence, X: Any, y: Any, sample_weight: Any, level: str
) -> tuple[list[Claim], Status, dict[str, Any]]:
    """Judge centres and labels.

    ``evidence.params``: tol, fix, replay. ``evidence.arrays``: ``start``, the centres
    that the run began with.
    """
    X = data.as_matrix(X)
    centers = data.plain(model.cluster_centers_)
    unit = EPS if centers.dtype != np.float32 else float(np.finfo(np.float32).eps)
    centers = centers.astype(np.float64)
    if centers.ndim != 2 or centers.shape[1] != X.shape[1]:
        raise ValueError(
            f"X has {X.shape[1]} columns and the centres have {centers.shape[-1]}."
        )
    s = data.weights(sample_weight, None, None, None, X.shape[0])  # type: ignore[arg-type]
    marks = data.fingerprint(X, np.zeros(X.shape[0]), s)
    if not np.isfinite(centers).all():
        return [_diverged()], Status.DIVERGED, marks
    factor = _factor(X, centers)
    X, centers = (X, centers) if factor == 1.0 else (X * factor, centers * factor)
    labels = _labels(model, X.shape[0], len(centers))
    if labels is None:
        found = _look(X, s, centers, None, unit)
        known = f"the model keeps no label for each of these {X.shape[0]:,} rows"
    else:
        found = _look(X, s, centers, labels, unit)
        known = ""
    claims = [
        _shift_claim(found, centers, evidence, unit, X.shape),
        _nearest_claim(found, X.shape, known, unit),
        _inertia_claim(model, found, centers, factor, unit, X.shape[0]),
    ]
    if level == "full" and "start" in evidence.arrays:
        claims.append(_monotone_claim(model, evidence, X, s, centers, factor, unit))
    claims.sort(key=lambda claim: claim.met is not False)  # what is missed leads
    met = claims[0].met is not False
    return claims, Status.SOLVED if met else Status.TOL_NOT_REACHED, marks


# -- one pass ---------------------------------------------------------------------


def _look(X: Any, s: Array, centers: Array, labels: Array | None, unit: float) -> Pass:
    """One pass; without labels the nearest centres are taken for them."""
    (n, d), k = X.shape, len(centers)
    origin = _origin(X, s, centers)
    shifted = centers - origin
    norms = np.einsum("ij,ij->i", shifted, shifted)
    factor = np.column_stack([-2.0 * shifted, norms])
    slack = _slack(d, unit)
    rows = max(1, CELLS // max(k, 1 if _stays_sparse(X, origin) else d + 1))

    nearest = np.empty(n, dtype=np.int64)

    def look(part: slice) -> tuple[Array, int, float, float, float]:
        block, x2, scores = _scores(X[part], origin, factor)
        low, some = scores.min(axis=0), s[part]
        given = scores.argmin(axis=0) if labels is None else labels[part]
        nearest[part] = given
        mine = scores[given, np.arange(len(given))]
        doubt = np.flatnonzero(mine > low + slack * (x2 + norms[given]))
        wrong = 0
        if len(doubt):
            wrong = _count_wrong(block[doubt], given[doubt], shifted, slack)
        own = float(np.einsum("i,i", some, np.maximum(x2 + mine, 0.0)))
        least = float(np.einsum("i,i", some, np.maximum(x2 + low, 0.0)))
        ends = np.arange(len(given) + 1)
        hot = sparse.csc_matrix((some, given, ends), shape=(k, len(given)))
        sums = hot @ block
        sums = sums.toarray() if sparse.issparse(sums) else sums
        return sums, wrong, own, least, float(np.einsum("i,i", some, x2))

    sums, wrong, own, least, square = add_up(over_blocks(look, n, rows))
    weight = sums[:, -1].copy()
    with np.errstate(divide="ignore", invalid="ignore"):
        means = sums[:, :-1] / weight[:, None] + origin
    mean = sums[:, :-1].sum(axis=0) / weight.sum()
    total = max(0.0, square - float(weight.sum()) * float(mean @ mean))
    return Pass(nearest, wrong, own, least, means, weight, total)


def _slack(d: int, unit: float) -> float:
    """Rounding of a squared distance, as a share."""
    return 8.0 * (d + 8) * unit


def _origin(X: Any, s: Array, centers: Array) -> Array:
    """Where distances are taken from: sparse rows stay where they are, unless far off.

    About zero, squares of rows would drown the scatter of those far away from it.
    """
    if not sparse.issparse(X):
        return np.asarray(centers.mean(axis=0))
    mean = data.t_dot(X, s) / s.sum()
    away = float(s.sum()) * float(mean @ mean)
    rows = np.asarray(X.multiply(X).sum(axis=1), dtype=np.float64).ravel()
    return mean if away > FAR * (float(s @ rows) - away) else np.zeros(X.shape[1])


def _stays_sparse(X: Any, origin: Array) -> bool:
    return sparse.issparse(X) and not origin.any()


def _scores(X: Any, origin: Array, factor: Array) -> tuple[Any, Array, Array]:
    """Rows about the origin with a one behind, ‖x‖², and ‖c‖² − 2x·c by centre."""
    if _stays_sparse(X, origin):
        rows = X.tocsr().astype(np.float64)
        x2 = np.asarray(rows.multiply(rows).sum(axis=1)).ravel()
        block = sparse.hstack([rows, np.ones((X.shape[0], 1))], format="csr")
        return block, x2, np.ascontiguousarray((block @ factor.T).T)
    X = X.toarray() if sparse.issparse(X) else X
    block = np.empty((X.shape[0], X.shape[1] + 1))
    block[:, -1] = 1.0
    rows = np.subtract(X, origin, out=block[:, :-1])
    return block, np.einsum("ij,ij->i", rows, rows), factor @ block.T


def _count_wrong(block: Any, given: Array, centers: Array, slack: float) -> int:
    """How many of a few rows are nearer to another centre, by differences."""
    wrong = 0
    block = block.toarray() if sparse.issparse(block) else block
    for x, k in zip(block[:, :-1], given):
        away = np.square(x - centers).sum(axis=1)
        norm = float(x @ x) + float(centers[k] @ centers[k])
        # Labels made in float32 are judged by what float32 can tell.
        grace = slack * (away[k] if slack < 1e-9 * len(x) else norm)
        wrong += bool(away[k] > away.min() + grace)
    return wrong


def _labels(model: Any, n: int, k: int) -> Array | None:
    """The labels kept, if there is a possible one for each row."""
    labels = np.asarray(getattr(model, "labels_", np.empty(0)))
    if labels.shape != (n,) or labels.dtype.kind not in "iu":
        return None
    if n and (labels.min() < 0 or labels.max() >= k):
        return None
    return labels.astype(np.int64)


def _factor(X: Any, centers: Array) -> float:
    """A power of two, one for ordinary data, that brings squares into range."""
    values = X.data if sparse.issparse(X) else X
    ends = (values.min(initial=0.0), values.max(initial=0.0), *centers.ravel())
    top = float(np.abs(ends).max())
    power = math.frexp(top)[1]
    return 1.0 if top == 0 or abs(power) < WIDEST else math.ldexp(1.0, -power)


# -- claims -----------------------------------------------------------------------


def _shift_claim(
    found: Pass, centers: Array, evidence: Evidence, unit: float, shape: Any
) -> Claim:
    tol = float(evidence.params.get("tol", 1e-4))
    variance = found.total / float(found.weight.sum()) / shape[1]
    full = found.weight > 0
    moved = float(np.square(found.means[full] - centers[full]).sum())
    value = moved / variance if variance > 0 else (0.0 if moved == 0 else math.inf)
    # Centres are rounded to their precision, and so are sums of n terms.
    size = float(np.square(centers[full]).sum()) + found.total / found.weight.sum()
    spared = (unit**2 + (8 * EPS * math.sqrt(shape[0])) ** 2) * size
    allowance = 4 * spared / variance if variance > 0 else 0.0
    met = bool(value <= tol + allowance)
    if variance == 0 and moved <= 4 * spared:
        value, met = 0.0, True
    close = f"{value:.1e}" if value > allowance else "rounding"
    detail = f"one further step moves the centres by {close} (asked for {tol:.0e})"
    empty = int(len(full) - full.sum())
    notes = (f"{empty} of {len(full)} clusters have no rows",) if empty else ()
    return Claim(
        "centre_shift",
        Strength.PROVED,
        value,
        tol,
        met,
        f"Σ‖Δc‖² over the mean variance of the columns, for  {_OBJECTIVE}",
        "labels by nearest centres and centres by means are each the exact minimiser "
        "of the objective over one of the two",
        notes,
        None,
        allowance,
        detail,
        "" if met else str(evidence.params.get("fix", "")),
    )


def _nearest_claim(found: Pass, shape: Any, unknown: str, unit: float) -> Claim:
    n = shape[0]
    met = found.wrong == 0 and not unknown
    detail = f"each of {n:,} rows is labelled with its nearest centre"
    if unknown:
        detail = unknown
    elif found.wrong:
        detail = f"{found.wrong:,} of {n:,} rows are nearer to another centre"
    return Claim(
        "nearest_centres",
        Strength.PROVED,
        float(n if unknown else found.wrong),
        0.0,
        met,
        theorem="every row was compared with every centre; squared distances that "
        f"differ by {_slack(shape[1], unit):.0e} of their size or less are a tie",
        detail=detail,
        fix="" if met else "pass the training data, or set labels_ = predict(X)",
    )


def _inertia_claim(
    model: Any, found: Pass, centers: Array, factor: float, unit: float, n: int
) -> Claim:
    full = found.weight > 0
    mean = found.weight[full] @ found.means[full] / found.weight.sum()
    gaps = found.means[full] - mean
    between = float(found.weight[full] @ np.einsum("ij,ij->i", gaps, gaps))
    left = np.einsum("ij,ij->i", *[found.means[full] - centers[full]] * 2)
    by_scatter = found.total - between + float(found.weight[full] @ left)
    stated = float(getattr(model, "inertia_", found.own)) * factor * factor
    size = max(found.total, found.own)
    held = factor == 1.0 or 0 < stated < math.inf  # else no number can hold it
    worst = np.max(
        [abs(by_scatter - found.own), abs(stated - found.own) if held else 0]
    )
    value = float(worst / size if size > 0 else worst)
    value = value if math.isfinite(value) else math.inf
    # Centres were rounded after the sum was taken, each by its own size.
    cast = unit * math.sqrt(found.weight @ np.square(centers).sum(axis=1))
    rounded = cast * (cast + 2 * math.sqrt(found.own)) / size if size > 0 else 0.0
    target = 64 * unit * math.sqrt(n) + 1e-9
    met = bool(value <= target + rounded)
    shown = found.own / factor / factor
    share = 1 - found.own / found.total if found.total > 0 else 1.0
    detail = f"inertia {shown:.6g}: {100 * share:.3g} % of the scatter is between"
    detail += " clusters"
    if not met:
        detail = f"inertia_ is not that of these centres and labels ({shown:.6g})"
    return Claim(
        "inertia",
        Strength.PROVED,
        value,
        target,
        met,
        theorem="total scatter = within + between; from distances and from means",
        allowance=rounded,
        detail=detail,
        fix="" if met else "fit again",
    )


def _diverged() -> Claim:
    return Claim(
        "centre_shift",
        Strength.PROVED,
        math.inf,
        met=False,
        objective=_OBJECTIVE,
        detail="the centres hold NaN or infinite values",
        fix="standardise the columns (StandardScaler) and fit again",
    )


# -- the run again ----------------------------------------------------------------


def _monotone_claim(
    model: Any,
    evidence: Evidence,
    X: Any,
    s: Array,
    centers: Array,
    factor: float,
    unit: float,
) -> Claim:
    """Run from the recorded start; the largest rise of a half-step."""
    here = np.asarray(evidence.arrays["start"], dtype=np.float64) * factor
    if here.shape != centers.shape:
        raise ValueError("the recorded start does not have the shape of the centres.")
    steps, rise, before = int(model.n_iter_), 0.0, math.inf
    size = 1.0
    for _ in range(steps):
        found = _look(X, s, here, None, EPS)
        size = found.total if found.total > 0 else 1.0
        rise = max(rise, (found.least - before) / size)
        full = found.weight > 0
        gaps = found.means[full] - here[full]
        gained = float(found.weight[full] @ np.einsum("ij,ij->i", gaps, gaps))
        before = found.least - gained  # Σ s‖x − μ‖², exactly what the means gain
        here = _moved(X, s, here, found)
    apart = float(np.abs(here - centers).max(initial=0.0))
    spread = math.sqrt(size / float(s.sum()))
    allowance = 64 * (X.shape[1] + 8) * EPS
    met = bool(rise <= allowance)
    again = apart / spread if spread > 0 else apart
    detail = f"run again from its start, no half-step of {steps} steps rises; "
    detail += f"the centres come out {again:.1e} apart"
    if not met:
        detail = f"run again from its start, a half-step raises it by {rise:.1e}"
    return Claim(
        "monotone",
        Strength.PROVED,
        max(rise, 0.0),
        0.0,
        met,
        objective=_OBJECTIVE,
        theorem="each half-step minimises over labels, or over centres",
        allowance=allowance,
        detail=detail,
    )


def _moved(X: Any, s: Array, here: Array, found: Pass) -> Array:
    """The next centres; one without rows goes to the row farthest from its own."""
    full = found.weight > 0
    out = np.where(full[:, None], found.means, here)
    empty = np.flatnonzero(~full)
    if not len(empty):
        return out
    away = _from_centre(X, here, found.nearest) * (s > 0)
    for k in empty:
        i = int(np.argmax(away))
        if not away[i] > 0:
            break
        row = X[[i]].toarray() if sparse.issparse(X) else X[[i]]
        out[k] = np.asarray(row, dtype=np.float64).ravel()
        again = _from_centre(X, out[[k]], np.zeros(len(away), dtype=np.int64))
        away = np.minimum(away, again)
    return out


def _from_centre(X: Any, centers: Array, labels: Array) -> Array:
    """Squared distances of rows to the centres they are labelled with."""
    out = np.empty(X.shape[0])
    rows = max(1, CELLS // X.shape[1])
    for i in range(0, X.shape[0], rows):
        part = slice(i, i + rows)
        block = X[part].toarray() if sparse.issparse(X) else X[part]
        out[part] = np.square(block - centers[labels[part]]).sum(axis=1)
    return out
