"""Checks of k-means: labels are nearest, centres are means, the objective adds up.

One pass over the rows. With x' = x − o and c' = c − o for some point o among the rows,
and for each cluster W = Σs, S = Σ s·x', Q = Σ s‖x'‖²:

- Σ‖S/W − c'‖² is what one further step would move;
- ΣQ − 2Σ c'·S + ΣW‖c'‖² is the objective of these centres and labels;
- ‖c'‖² − 2x'·c' for all centres, in the precision of X, tells which rows may be nearer
  to another centre. Those are looked at again in float64, then by differences.

Rounding. x' and c' are right to one rounding of their own size, so that with m rows in
a sum ‖Ŝ/W − S/W‖ ≤ γ_{m+4}·√(Q/W), and the objective is right to γ_{m+d+8} times
(√ΣQ + √ΣW‖c'‖²)². Scores in a precision of unit p are right to γᵖ_{d+8} times
‖x'‖² + 2‖c'‖², squared differences to γ_{d+4} of themselves: rows far from zero lose
nothing.

At level "full" the recorded start is run again by plain assignments and means, and no
half-step may raise the objective. Nothing is said about whether a better clustering
exists.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse

from certus.certificate import Claim, Status
from certus.typing import Array, DTypeLike, Fit, Matrix
from certus.verify import block_kmeans, climbing, data, deciding, stating
from certus.verify.block_moments import with_workers
from certus.verify.blocks import add_up, over_blocks
from certus.verify.deciding import Number, U, gamma, proved
from certus.verify.kernel import reading
from certus.verify.recomputed import RecomputedBlocks
from certus.verify.stating import Checked, Given

#: Cells of X, and of the distances, that are looked at together.
CELLS = 1 << 19
#: Sizes of entries whose squares stay in range, in double and in single precision.
WIDEST = 1e90, 1e9
#: Sparse rows whose mean is so much larger than their scatter are centred.
FAR = 100.0
#: Squared distances that differ by this share are a tie, and how far the inertia may
#: be off; for centres in double and in single precision.
TIE, AGREE = (1e-9, 1e-5), (1e-9, 1e-3)
#: What tol=0 stands for; rows that vary less, beside their size, are constant.
LEAST, STILL = 1e-10, 1e-13
_OBJECTIVE = "Σ s·min‖x − c‖² over the centres c"


class Statement(NamedTuple):
    """Centres that are means of the rows nearest to them."""

    n_clusters: int
    tol: float
    fix: str


def _read(model: Fit) -> Statement:
    fix = f"raise max_iter (now {model.max_iter}) or use certus.cluster.KMeans"
    return Statement(model.n_clusters, float(model.tol) or LEAST, fix)


def _read_batches(model: Fit) -> Statement:
    """Its centres are averages over past batches, so usually not means of clusters."""
    fix = "continue with KMeans(n_clusters, init=model.cluster_centers_)"
    return Statement(model.n_clusters, max(1e-4, float(model.tol)), fix)


READERS = {"KMeans": _read, "MiniBatchKMeans": _read_batches}


class Pass(NamedTuple):
    """What one pass over the rows finds for centres and labels."""

    labels: Array
    away: Array  # ‖x − c(z)‖² of each row, roughly
    wrong: int  # rows nearer to another centre than to their own
    unsure: int  # rows that rounding leaves between the two
    weight: Array
    means: Array  # a cluster without weight stays where it is
    moves: Array  # of each mean away from its centre
    errors: Array  # rounding of each move
    own: Number  # Σ s‖x − c(z)‖²
    total: Number  # Σ s‖x − mean‖²


def check(model: Fit, stated: Statement, given: Given) -> Checked:
    """Judge centres and labels."""
    witness, X, _, sample_weight, level, _ = given
    if stating.by_address(X):
        return _check_blocks(model, stated, given)
    X = reading.as_matrix(X)
    n, d = X.shape
    centers = data.fitted(model, "cluster_centers_", (None, d))
    single, centers = int(centers.dtype == np.float32), centers.astype(np.float64)
    weights = reading.weights(sample_weight, n)
    with np.errstate(over="ignore"):
        marks = data.fingerprint(X, np.zeros(n), data.row_weights(sample_weight, n))
    impossible = _impossible(centers, stated)
    if impossible is not None:
        return *impossible, marks
    factor = _factor(X, centers)
    if factor != 1.0:
        X, centers = X.astype(np.float64) * factor, centers * factor
    labels = _labels(model, n, len(centers))
    found = _look(X, weights.s, centers, labels, TIE[single])
    claims = [_shift_claim(found, d, stated)]
    # Without labels, inertia_ is an average over batches.
    if getattr(model, "compute_labels", True) or hasattr(model, "labels_"):
        claims.append(_nearest_claim(found, labels, single))
        claims.append(_inertia_claim(model, found, factor, weights.power, single))
    if level == "full" and witness is not None and witness.start is not None:
        start = np.asarray(witness.start, dtype=np.float64) * factor
        claims.append(_monotone_claim(int(model.n_iter_), start, X, weights.s, centers))
    return claims, deciding.verdict(claims, ("monotone",)), marks


def _impossible(centers: Array, stated: Statement) -> tuple[list[Claim], Status] | None:
    """Why the centres cannot be a solution, if there is a reason."""
    if len(centers) != stated.n_clusters:
        wrong = deciding.wrong_count("centres", len(centers), stated.n_clusters)
        return [wrong], Status.TOL_NOT_REACHED
    if not np.isfinite(centers).all():
        told, fix = "the centres hold NaN or infinite values", "standardise the columns"
        claim = proved("centre_shift", Number(math.inf), stated.tol, told, fix=fix)
        return [claim], Status.DIVERGED
    return None


def _check_blocks(model: Fit, stated: Statement, given: Given) -> Checked:
    """Judge centres and labels over blocks of rows."""
    blocks, again = given.X, RecomputedBlocks()
    n, d = blocks.shape
    centers = data.fitted(model, "cluster_centers_", (None, d))
    single, centers = int(centers.dtype == np.float32), centers.astype(np.float64)
    impossible = _impossible(centers, stated)
    if impossible is not None:
        return *impossible, {"shape": [int(n), int(d)]}
    top = data.size_of(centers)
    if top > 0 and not 1 / WIDEST[0] < top < WIDEST[0]:
        raise stating.Refusal(
            "the centres are too small or too large to be squared block by block",
            "scale the columns",
        )
    origin, labels = centers.mean(axis=0), _labels(model, n, len(centers))
    sums = block_kmeans.look(blocks, again, centers, origin)
    counts = 0, 0
    if labels is not None:

        def compare(X: Array, rows: Array, own: Array) -> tuple[int, int]:
            return _compare(X, rows, own, centers, TIE[single])

        counts = block_kmeans.other_labels(blocks, sums, labels, compare)
    about = centers - origin, origin
    found = _pass_of(sums.sums, sums.depth, sums.labels, np.zeros(0), counts, *about)
    claims = [_shift_claim(found, d, stated)]
    if getattr(model, "compute_labels", True) or hasattr(model, "labels_"):
        claims.append(_nearest_claim(found, labels, single))
        claims.append(_inertia_claim(model, found, 1.0, 0, single))
    witness = given.witness
    if given.level == "full" and witness is not None and witness.start is not None:
        start = np.asarray(witness.start, dtype=np.float64)
        claims.append(_monotone_over(int(model.n_iter_), start, blocks, again, centers))
    status = deciding.verdict(claims, ("monotone",))
    marks = block_kmeans.fingerprint(blocks, sums)
    return *with_workers(claims, status, again, blocks), marks


def _factor(X: Matrix, centers: Array) -> float:
    """A power of two, one for ordinary data, that brings squares into range."""
    top = max(data.size_of(X), data.size_of(centers))
    wide = WIDEST[X.dtype.itemsize < 8]
    return 1.0 if 1 / wide < top < wide else deciding.power_of_two(top)


def _labels(model: Fit, n: int, k: int) -> Array | None:
    """The labels kept, if there is a possible one for each row."""
    labels = np.asarray(getattr(model, "labels_", None))
    if labels.shape != (n,) or labels.dtype.kind not in "iu":
        return None
    possible = labels.min() >= 0 and labels.max() < k
    return labels.astype(np.int64) if possible else None


# -- one pass ---------------------------------------------------------------------


def _look(
    X: Matrix, s: Array, centers: Array, labels: Array | None, tie: float = 0.0
) -> Pass:
    """One pass; without labels the nearest centres are taken for them."""
    (n, d), k = X.shape, len(centers)
    origin = _origin(X, s, centers)
    c, bare = centers - origin, sparse.issparse(X) and not origin.any()
    norms = np.einsum("ij,ij->i", c, c)
    factor = np.column_stack([-2.0 * c, norms])
    narrow = not bare and X.dtype.itemsize < 8
    steps: list[Any] = [np.float32, np.float64] if narrow else [np.float64]
    rows = max(1, CELLS // max(k, 1 if bare else d + 2))
    chosen, away = np.empty(n, dtype=np.int64), np.empty(n)

    def look(part: slice) -> tuple[Array, int, int]:
        block, x2 = _about(X[part], origin, bare)
        doubt = np.arange(0 if labels is None else len(x2))
        if labels is None:
            scores = _scores(block, factor, np.float64)
            chosen[part], away[part] = scores.argmin(axis=0), scores.min(axis=0) + x2
        else:
            chosen[part] = labels[part]
        mine = chosen[part]
        for dtype in steps:
            if not len(doubt):
                break
            some = block if len(doubt) == len(x2) else block[doubt]
            scores, at = _scores(some, factor, dtype), np.arange(len(doubt))
            own = scores[mine[doubt], at].astype(np.float64)
            scores[mine[doubt], at] = np.inf
            kind = np.finfo(dtype)
            unit, least = gamma(d + 8, float(kind.eps) / 2), 1e8 * float(kind.tiny)
            error = 2 * unit * (x2[doubt] + 2 * norms.max()) + least
            doubt = doubt[~(own + error <= scores.min(axis=0))]
        wrong, unsure = 0, 0
        if len(doubt):
            wrong, unsure = _compare(X[part], doubt, mine, centers, tie)
        ends = np.arange(len(mine) + 1)
        hot = sparse.csc_matrix((s[part], mine, ends), shape=(k, len(mine)))
        return data.dense(hot @ block), wrong, unsure

    sums, wrong, unsure = add_up(over_blocks(look, n, rows))
    m = min(rows, n) + n // rows + 1
    return _pass_of(sums, m, chosen, away, (wrong, unsure), c, origin)


def _pass_of(
    sums: Array,
    m: int,
    chosen: Array,
    away: Array,
    counts: tuple[int, int],
    c: Array,
    origin: Array,
) -> Pass:
    """What sums about the origin tell, after m additions of rows; c are centres."""
    d, norms = len(origin), np.einsum("ij,ij->i", c, c)
    S, weight, Q = sums[:, :-2], sums[:, -2], sums[:, -1]
    W = np.where(weight > 0, weight, 1.0)
    means = np.where(weight[:, None] > 0, S / W[:, None], c)
    errors = gamma(m + 8) * np.sqrt(Q / W) + (weight > 0) * 4 * U * np.sqrt(norms)
    squares, mean = float(Q.sum()), S.sum(axis=0) / weight.sum()
    own = squares - 2 * float(np.vdot(c, S)) + float(weight @ norms)
    rough = gamma(m + d + 8) * (math.sqrt(squares) + math.sqrt(weight @ norms)) ** 2
    total = max(squares - float(weight.sum() * (mean @ mean)), 0.0)
    return Pass(
        *(chosen, away, *counts, weight, means + origin, means - c, errors),
        *(Number(max(own, 0.0), rough), Number(total, 4 * gamma(m + d + 8) * squares)),
    )


def _origin(X: Matrix, s: Array, centers: Array) -> Array:
    """The origin of distances: sparse rows are not moved unless they are far from zero.

    About zero, squares of rows would drown the scatter of those far away from it.
    """
    if isinstance(X, np.ndarray):
        return np.asarray(centers.mean(axis=0))
    rows = X.astype(np.float64)
    mean = data.t_dot(rows, s) / s.sum()
    away = float(s.sum()) * float(mean @ mean)
    square = float(s @ np.asarray(rows.multiply(rows).sum(axis=1)).ravel())
    return mean if away > FAR * (square - away) else np.zeros(X.shape[1])


def _about(X: Matrix, origin: Array, bare: bool) -> tuple[Any, Array]:
    """Rows about the origin with a one and ‖x'‖² behind; and those squares."""
    n, d = X.shape
    if bare and not isinstance(X, np.ndarray):
        rows = X.tocsr().astype(np.float64)
        x2 = np.asarray(rows.multiply(rows).sum(axis=1)).ravel()
        ends = sparse.csr_matrix(np.column_stack([np.ones(n), x2]))
        return sparse.hstack([rows, ends], format="csr"), x2
    block = np.empty((n, d + 2))
    rows = block[:, :-2]
    np.subtract(data.dense(X), origin, out=rows)
    block[:, -2] = 1.0
    return block, np.einsum("ij,ij->i", rows, rows, out=block[:, -1])


def _scores(block: Matrix, factor: Array, dtype: DTypeLike) -> Array:
    """‖c'‖² − 2x'·c' by centre and row, in the precision asked for."""
    rows = block[:, :-1]
    if sparse.issparse(rows):
        return np.array((rows @ factor.T).T, order="C")
    return np.asarray(factor.astype(dtype) @ rows.astype(dtype, copy=False).T)


def _compare(
    X: Matrix, which: Array, given: Array, centers: Array, tie: float
) -> tuple[int, int]:
    """How many of some rows are nearer to another centre, and how many may be.

    By differences, in units of the largest to the row's own centre: squares of tiny
    ones would vanish.
    """
    rows = data.dense(X[which]).astype(np.float64)
    own = rows - centers[given[which]]
    unit = np.abs(own).max(axis=1, initial=0.0)
    near = unit > 0  # the other rows lie on their centres
    rows, own, unit = rows[near], own[near], unit[near, None]
    with np.errstate(over="ignore"):
        each = [np.square((rows - c) / unit).sum(axis=1) for c in centers]
        low, mine = np.min(each, axis=0) * (1 + tie), np.square(own / unit).sum(axis=1)
    grace = 1 + 4 * gamma(X.shape[1] + 4)
    above = mine > low * grace
    return int(above.sum()), int((~above & (mine * grace > low)).sum())


# -- claims -----------------------------------------------------------------------


def _shift_claim(found: Pass, d: int, stated: Statement) -> Claim:
    moved = np.linalg.norm(found.moves, axis=1)
    least = max(found.total.value - found.total.rounding, 0.0)
    still = float(np.abs(found.means).max(initial=0.0)) * STILL
    unit = max(least / float(found.weight.sum()) / d, still * still)
    value, upper = np.square(moved).sum(), np.square(moved + found.errors).sum()
    number = Number.share(float(value), float(upper - value), of=unit)
    close = f"{number.value:.1e}" if number.value > number.rounding else "rounding"
    empty = int((found.weight <= 0).sum())
    note = f"{empty} of {len(moved)} clusters have no rows"
    return proved(
        *("centre_shift", number, stated.tol),
        f"another step moves the centres by {close} (asked for {stated.tol:.0e})",
        objective=f"Σ‖Δc‖² over the mean variance of the columns, for  {_OBJECTIVE}",
        theorem="nearest centres are the best labels for given centres, and means "
        "are the best centres for given labels",
        assumptions=(note,) if empty else (),
        fix=stated.fix,
    )


def _nearest_claim(found: Pass, labels: Array | None, single: int) -> Claim:
    n, wrong = len(found.labels), found.wrong
    missed = f"{wrong:,} of {n:,} rows are nearer to another centre"
    if labels is None:
        wrong, missed = n, f"labels_ must hold one label for each of {n:,} rows"
    return proved(
        *("nearest_centres", Number(float(wrong), float(found.unsure)), 0.0),
        f"each of {n:,} rows is labelled with its nearest centre",
        missed=missed,
        theorem="every row was compared with every centre; squared distances that "
        f"differ by {TIE[single]:.0e} of their size or less are a tie",
        fix="pass the training data, or set labels_ = predict(X)",
    )


def _inertia_claim(
    model: Fit, found: Pass, factor: float, power: int, single: int
) -> Claim:
    """``factor`` and 2^``power`` are the units of rows and of weights."""
    own, off = found.own
    size = max(found.total.value, own)
    with np.errstate(all="ignore"):
        shown, whole = np.ldexp(np.array([own, size]) / factor / factor, power)
        # A model fitted in batches states none.
        has = hasattr(model, "inertia_")
        stated = float(data.fitted(model, "inertia_", ())) if has else shown
        apart = abs(np.ldexp(stated * factor * factor, -power) - own) / np.float64(size)
    if not 1e-290 < whole < math.inf and (stated == shown or 0 <= stated < 1e-280):
        apart = 0.0  # too large for float64
    share = 1 - own / found.total.value if found.total.value > 0 else 1.0
    return proved(
        *("inertia", Number(apart, off / size if size > 0 else 0.0), AGREE[single]),
        f"inertia {stated:.6g}: {100 * share:.3g} % of the scatter is between clusters",
        missed=f"inertia_ does not match these centres and labels ({shown:.6g})",
        objective="|inertia_ − Σ s‖x − c‖²| as a share of the scatter",
        theorem="Σ s‖x − c‖² = Σ s‖x‖² − 2Σ c·(Σ s·x) + ΣW‖c‖², about a common point",
        fix="fit again",
    )


# -- the run again ----------------------------------------------------------------


def _monotone_claim(steps: int, here: Array, X: Any, s: Array, centers: Array) -> Claim:
    """Run from the recorded start: minus the objective, after every half-step."""
    if here.shape != centers.shape:
        raise ValueError("the recorded start does not have the shape of the centres.")
    levels, size = [], 1.0
    for _ in range(steps):
        found = _look(X, s, here, None)
        own, off = found.own
        size = found.total.value or 1.0
        # Σ W‖μ − c‖² is exactly what the means gain.
        gain = float(found.weight @ np.square(found.moves).sum(axis=1))
        levels += [Number(-x / size, 2 * off / size) for x in (own, own - gain)]
        here = _moved(X, s, found)
    spread = math.sqrt(size / float(s.sum())) or 1.0
    apart = float(np.abs(here - centers).max(initial=0.0)) / spread
    share = f"−{_OBJECTIVE}, as a share of the scatter"
    return climbing.repeated(levels, apart, share, limit=climbing.APART)


def _monotone_over(
    steps: int, here: Array, blocks: Any, again: RecomputedBlocks, centers: Array
) -> Claim:
    """As ``_monotone_claim``, over blocks of rows."""
    if here.shape != centers.shape:
        raise ValueError("the recorded start does not have the shape of the centres.")
    levels, size, origin = [], 1.0, centers.mean(axis=0)
    for _ in range(steps):
        sums = block_kmeans.look(blocks, again, here, origin)
        about = here - origin, origin
        found = _pass_of(sums.sums, sums.depth, sums.labels, here, (0, 0), *about)
        if (found.weight <= 0).any():
            told = "a cluster without rows was filled again, which needs all rows"
            return deciding.refused("monotone", told, "certify it in memory")
        own, off = found.own
        size = found.total.value or 1.0
        gain = float(found.weight @ np.square(found.moves).sum(axis=1))
        levels += [Number(-x / size, 2 * off / size) for x in (own, own - gain)]
        here = found.means
    spread = math.sqrt(size / float(found.weight.sum())) or 1.0
    apart = float(np.abs(here - centers).max(initial=0.0)) / spread
    share = f"−{_OBJECTIVE}, as a share of the scatter"
    return climbing.repeated(levels, apart, share, limit=climbing.APART)


def _moved(X: Matrix, s: Array, found: Pass) -> Array:
    """The next centres; one without rows goes to the row farthest from its own."""
    out, away = found.means.copy(), found.away * (s > 0)
    for k in np.flatnonzero(found.weight <= 0):
        i = int(np.argmax(away))
        if not away[i] > 0:
            break
        out[k] = data.dense(X[[i]])[0]
        away = np.minimum(away, _look(X, s, out[[k]], None).away)
    return out
