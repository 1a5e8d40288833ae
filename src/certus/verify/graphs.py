"""Labels carried along a graph, and PageRank: whether the linear systems are solved.

All three have a matrix I − B with B ≥ 0, and a residual r = b − (I − B)f bounds the
error e of f:

    clamped:  g ≥ 0 with (I − P_uu)g ≥ h > 0 gives |e_u| ≤ g_u·max(|r|/h)
    spread:   ‖e‖₂ ≤ ‖r‖₂/(1 − α) where S is symmetric, since ‖S‖₂ ≤ 1; else
              Σ√d_i|e_i| ≤ Σ√d_i|r_i|/(1 − α), since √d is a left eigenvector of S
    PageRank: ‖e‖₁ ≤ ‖r‖₁/(1 − damping), since the columns of Pᵀ add up to one

g comes from the fit and is checked. A label is settled where the largest score exceeds
the second by more than twice the error. Rounding of a residual with m entries in a row
is at most γ_{2m+8} of the sum of its terms, which are not negative; weights of a kernel
add the rounding of their exponent.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse
from scipy.spatial.distance import cdist

from certus.certificate import Claim
from certus.evidence import PropagationWitness
from certus.typing import Array, Fit
from certus.verify import data, stating
from certus.verify import deciding as bd
from certus.verify.deciding import Number, gamma
from certus.verify.graph_reading import (
    adjacency,
    graph_claim,
    kept_claim,
    label_codes,
    labels_of,
    starts_of,
)
from certus.verify.kernel import reading
from certus.verify.stating import Checked, Given

#: Weights of a kernel that are held at a time.
CELLS = 1 << 22
#: Rows of a kernel that are computed at a time, where so many fit.
TOGETHER = 256
#: Exponents beyond which a weight is zero in float64.
LARGEST = 746.0
#: Error of an exponent above which it is computed from differences instead.
CANCELS = 1e-10
#: Sums of weights below this may have lost their digits.
FAINT = 1e-280
#: Rows whose neighbours are compared with all others.
COMPARED = 128
#: Share of the distance by which a row left out may be nearer.
NEARER = 1e-9


class Statement(NamedTuple):
    """Which system is claimed to be solved."""

    kind: str  # "clamped", "spread" or "pagerank"
    alpha: float
    kernel: str  # "rbf", "knn" or "given"
    gamma: float
    neighbours: int
    tol: float


def _labels(model: Fit) -> Statement:
    spread = stating.class_name(model) == "LabelSpreading"
    kernel = model.kernel if model.kernel in ("rbf", "knn") else "given"
    ours = stating.is_ours(model)
    if ours and model.X_ is None:
        kernel = "given"
    elif not ours and kernel != "rbf":
        raise stating.Refusal(
            "the graph of this model is not kept",
            f"kernel='rbf', or certus.semi_supervised.{type(model).__name__}",
        )
    alpha = float(model.alpha) if spread else 1.0
    stating.require(not spread or 0 < alpha < 1, "alpha is not between 0 and 1")
    kind, tol = "spread" if spread else "clamped", float(model.tol)
    return Statement(kind, alpha, kernel, float(model.gamma), model.n_neighbors, tol)


def _pagerank(model: Fit) -> Statement:
    damping = float(model.damping)
    stating.require(0 <= damping < 1, "damping is not between 0 and 1")
    return Statement("pagerank", damping, "given", 0.0, 0, float(model.tol))


READERS: dict[str, stating.Reader] = {
    "LabelPropagation": _labels,
    "LabelSpreading": _labels,
    "PersonalizedPageRank": _pagerank,
}


class EdgeWeights(NamedTuple):
    """The graph of a model without loops: products with it, and their rounding."""

    n: int
    #: W·V, and W's sums of rows and of columns.
    times: Callable[[Array], Array]
    rows: Array
    columns: Array
    share: float  # of a product that may be rounding
    symmetric: bool


def check(model: Fit, stated: Statement, given: Given) -> Checked:
    """Residual, error and settled labels; the graph against the data."""
    bd.refuse_weights(model, given.sample_weight)
    X, graph = given.X if isinstance(given.X, tuple) else (given.X, None)
    if stated.kind == "pagerank":
        graph = graph if graph is not None else X
        return _check_pagerank(model, stated, graph, given.y)
    kept = []
    if stated.kernel == "rbf":
        X = reading.as_matrix(X)
        rows, W = X, _of_kernel(X, stated.gamma)
    else:
        A = _stored(model)
        W = _of_matrix(A)
        rows = A if model.X_ is None else reading.as_matrix(X)
        if graph is not None:
            kept.append(graph_claim(A, adjacency(graph, A.shape[0])))
        elif stated.kernel == "knn":
            kept.append(_neighbours_claim(A, rows, stated.neighbours))
    codes = label_codes(labels_of(given.y, W.n, graph), model, W.n)
    marks = data.fingerprint(rows, codes.astype(float), np.ones(W.n))
    brought = isinstance(given.witness, PropagationWitness)
    witness = given.witness if brought else PropagationWitness()
    found = _clamped if stated.kind == "clamped" else _spread
    with np.errstate(all="ignore"):
        scores, error, claims = found(model, stated, W, codes, witness)
    claims += [*_label_claims(model, scores, error), *kept]
    return claims, bd.verdict(claims), marks


# -- graphs -------------------------------------------------------------------------


def _stored(model: Fit) -> Any:
    """The weights that the model keeps, sparse, finite and not negative."""
    A = model.graph_
    A = sparse.csr_array(A) if sparse.issparse(A) else sparse.csr_array(np.asarray(A))
    square = A.ndim == 2 and A.shape[0] == A.shape[1]
    sound = square and np.isfinite(A.data).all() and A.data.min(initial=0.0) >= 0
    stating.require(sound, "its graph_ is not a square matrix of weights")
    A.sum_duplicates()
    return A


def _of_matrix(A: Any) -> EdgeWeights:
    n = A.shape[0]
    A = sparse.csr_array(A - sparse.diags_array(A.diagonal()))
    A.eliminate_zeros()
    widest = int(np.diff(A.indptr).max(initial=0))
    tall = int(np.bincount(A.indices, minlength=n).max(initial=0))
    rows, columns = (np.asarray(A.sum(axis=axis)).ravel() for axis in (1, 0))
    same = abs(A - A.T).sum() == 0
    share = gamma(2 * max(widest, tall) + 8)
    return EdgeWeights(n, lambda V: A @ V, rows, columns, share, bool(same))


def _of_kernel(X: Any, width: float) -> EdgeWeights:
    """exp(−width·‖x − x'‖²), some rows at a time and each pair once."""
    rows = np.asarray(data.dense(X), dtype=np.float64)
    n = len(rows)
    step = max(1, min(TOGETHER, CELLS // n))
    kept: dict[int, Array] = {}
    exponents, slip = _exponents(rows, width)

    def block(i: int) -> Array:
        if i in kept:
            return kept[i]
        K = exponents(i, i + step)
        np.exp(K, out=K)
        np.fill_diagonal(K, 0.0)
        if n * n <= 4 * CELLS:  # else there are too many to keep
            kept[i] = K
        return K

    def times(V: Array) -> Array:
        found = np.zeros((V.shape[1], n))
        for i in range(0, n, step):
            # The kernel is symmetric: rows of a block serve as columns too.
            K, j = block(i), min(i + step, n)
            found[:, i:] += V[i:j].T @ K
            found[:, i:j] += V[j:].T @ K[:, j - i :].T
        return found.T

    sums = times(np.ones((n, 1)))[:, 0]
    # Weights, and the sums that divide them, are off by the slip and by exp's rounding.
    return EdgeWeights(n, times, sums, sums, gamma(2 * n + 32) + 4 * slip, True)


def _exponents(rows: Array, width: float) -> tuple[Callable[[int, int], Array], float]:
    """−width·‖x − x'‖² of rows i to j and all from i on, and the largest error of it.

    By one product of matrices, 2x·x' − ‖x‖² − ‖x'‖², if rows around their mean are so
    short that little cancels: each number is a sum of d + 2 terms, which are at most
    4·width·R² together with R the largest length, and its rounding is a share of that.
    Else from differences: their relative error counts up to LARGEST, where weights end.
    """
    d, one = rows.shape[1], np.ones((len(rows), 1))
    with np.errstate(all="ignore"):
        C = rows - rows.mean(axis=0)
        s = width * np.square(C).sum(axis=1, keepdims=True)
    slip = 4 * gamma(4 * d + 32) * float(s.max(initial=0.0))
    if not slip < CANCELS:
        slip = LARGEST * gamma(d + 8)
        return lambda i, j: -width * cdist(rows[i:j], rows[i:], "sqeuclidean"), slip
    left, right = np.hstack([2 * width * C, -s, one]), np.hstack([C, one, -s]).T
    return lambda i, j: left[i:j] @ right[:, i:], slip


def _neighbours_claim(A: Any, X: Any, k: int) -> Claim:
    """Whether no row that was left out is nearer, for a sample of rows."""
    n = A.shape[0]
    some = np.unique(np.linspace(0, n - 1, min(n, COMPARED)).astype(int))
    rows, wrong = np.asarray(data.dense(X), dtype=np.float64), 0
    away = cdist(rows[some], rows)
    for line, i in zip(away, some):
        near = A.indices[A.indptr[i] : A.indptr[i + 1]]
        left = np.delete(line, near).min(initial=np.inf)
        fine = len(near) == k and (A.data[A.indptr[i] : A.indptr[i + 1]] == 1).all()
        fine = fine and line[near].max(initial=0.0) <= left * (1 + NEARER) + bd.TINY
        wrong += not fine
    told = f"{len(some):,} of {n:,} rows are joined to their {k} nearest rows"
    return kept_claim(wrong, told)


# -- labels -------------------------------------------------------------------------


def _distributions(model: Fit, W: EdgeWeights) -> Array:
    return data.fitted(model, "label_distributions_", (W.n, len(model.classes_)))


def _clamped(
    model: Fit, stated: Statement, W: EdgeWeights, codes: Array, witness: Any
) -> tuple[Array, Array, list[Claim]]:
    """The error at each node, by the mean number of steps to a label."""
    F, known = _distributions(model, W), codes >= 0
    Y = np.zeros_like(F)
    Y[known, codes[known]] = 1.0
    g = np.full(W.n, np.nan) if witness.steps is None else np.asarray(witness.steps)
    g = np.where(known, 0.0, g if g.shape == (W.n,) else np.nan)
    if witness.steps is None and not known.all():
        g = _own_steps(W, known)
    free, shut = ~known & np.isfinite(g) & (g >= 0), ~known & ~np.isfinite(g)
    table = np.column_stack([F, np.where(free, g, 0.0), (~shut).astype(float)])
    means = W.times(table) / np.where(W.rows > 0, W.rows, 1.0)[:, None]
    PF, Pg, leads = means[:, :-2], means[:, -2], means[:, -1]
    off = W.share * (np.abs(F) + np.abs(PF))
    off[W.rows < FAINT] = np.inf
    r = np.abs(F - PF)
    h = g - Pg
    low = h - W.share * (g + Pg)
    broken = bool((Y[known] != F[known]).any() or (leads[shut] > 0).any())
    broken |= not np.isfinite(F).all()
    broken |= bool(F[shut].any() or (~known & ~free & ~shut).any())
    ratio = _largest(r[free] / h[free, None])
    most = _largest((r + off)[free] / low[free, None])
    if broken or not (low[free] > 0).all():
        ratio = most = math.inf
    error = np.where(free, g * most, np.where(known & ~np.array(broken), 0.0, math.inf))
    top = _largest(g[free])
    number = Number(ratio * top, (most - ratio) * top if most < math.inf else 0.0)
    claims = [_error_claim(stated, number, "max |f − f*|, f_u = Σ_v p_uv f_v", W.n)]
    if shut.any() and not broken:
        claims.append(_unreached_claim(int(shut.sum()), W.n))
    return F, error, claims


def _own_steps(W: EdgeWeights, known: Array, rounds: int = 200) -> Array:
    """A vector g for a model that brings none, by iteration; it is checked anyway."""
    g, d = np.zeros((W.n, 1)), np.where(W.rows > 0, W.rows, np.inf)[:, None]
    for _ in range(rounds):
        new = np.where(known[:, None], 0.0, 1.0 + W.times(g) / d)
        if np.abs(new - g).max() < 0.5:
            break
        g = new
    return np.asarray(new[:, 0]) * 2.0


def _spread(
    model: Fit, stated: Statement, W: EdgeWeights, codes: Array, witness: Any
) -> tuple[Array, Array, list[Claim]]:
    """The error at each node, from the residual over 1 − α."""
    P, known, alpha = _distributions(model, W), codes >= 0, stated.alpha
    totals = witness.totals
    if totals is None or np.shape(totals) != (W.n,):
        totals = _own_totals(W, known, alpha)
    F = P * np.asarray(totals)[:, None]
    right = np.zeros_like(F)
    right[known, codes[known]] = 1.0 - alpha
    d = np.where(W.columns > 0, W.columns, 1.0)
    root = np.sqrt(d)[:, None]
    SF = alpha * W.times(F / root) / root
    r = np.abs(right - F + SF)
    off = W.share * (right + np.abs(F) + np.abs(SF)) + bd.TINY
    off[(W.columns > 0) & (W.columns < FAINT)] = np.inf
    if W.symmetric:
        plain, most = (np.sqrt(np.square(v).sum()) for v in (r, r + off))
        error = np.full(W.n, float(most) * (1 + gamma(F.size + 8)) / (1 - alpha))
        value, what = float(plain) / (1 - alpha), "‖F − F*‖₂"
    else:
        plain, most = (float((root * v).sum()) for v in (r, r + off))
        most *= 1 + gamma(F.size + 8)
        error = most / (1 - alpha) / root[:, 0]
        value, what = plain / (1 - alpha) / float(root.min()), "max |F − F*|"
    bound = float(np.nan_to_num(error, nan=math.inf).max())
    number = Number(value, bound - value if bound < math.inf else math.inf)
    if not np.isfinite(F).all():
        number = Number(math.inf)
    text = f"{what}, (I − αS)F = (1 − α)Y"
    claims = [_error_claim(stated, number, text, W.n)]
    shut = np.asarray(totals) == 0
    if shut.any() and W.times((~shut)[:, None].astype(float))[shut].max() == 0:
        claims.append(_unreached_claim(int(shut.sum()), W.n))
    return F, error, claims


def _own_totals(W: EdgeWeights, known: Array, alpha: float) -> Array:
    """Sums of the scores of each node for a model that does not tell them."""
    root = np.sqrt(np.where(W.columns > 0, W.columns, 1.0))[:, None]
    start = (1.0 - alpha) * known.astype(float)[:, None]
    found = start
    for _ in range(math.ceil(40 / -math.log10(alpha)) if alpha < 0.99 else 4_000):
        found = start + alpha * W.times(found / root) / root
    return np.asarray(found[:, 0])


def _largest(values: Array) -> float:
    return float(np.nan_to_num(values, nan=np.inf).max(initial=0.0))


def _error_claim(stated: Statement, found: Number, formula: str, n: int) -> Claim:
    asked = f"(asked for {stated.tol:.0e})"
    theorem = {
        "clamped": "g ≥ 0 with (I − P_uu)g ≥ h > 0 gives |f − f*| ≤ g·max(|r|/h)",
        "spread": "‖F − F*‖ ≤ ‖r‖/(1 − α), r the residual",
    }[stated.kind]
    return bd.proved(
        *("propagation_error", found, stated.tol),
        f"scores of all {n:,} nodes are within {found.most:.1e} of the exact "
        f"solution {asked}",
        missed=f"a score may be {found.most:.2g} from the exact solution {asked}",
        objective=formula,
        theorem=theorem,
        fix="raise max_iter",
    )


def _unreached_claim(count: int, n: int) -> Claim:
    return bd.proved(
        *("unreached_nodes", Number(float(count)), None),
        f"no path leads from {count:,} of {n:,} nodes to a label: nothing is known "
        "about them",
        theorem="no edge leaves the set of these nodes",
    )


def _label_claims(model: Fit, scores: Array, error: Array) -> list[Claim]:
    """Nodes whose largest score is that of the exact solution too."""
    n, k = scores.shape
    first = scores.argmax(axis=1)
    said = np.asarray(model.transduction_)
    stating.require(said.shape == (n,), "transduction_ has another length")
    agreed = said == np.asarray(model.classes_)[first]
    margin = np.diff(np.sort(scores), axis=1)[:, -1] if k > 1 else scores[:, 0]
    sure = margin > 2 * error
    settled, wrong = int((agreed & sure).sum()), int((~agreed & sure).sum())
    claim = bd.proved(
        *("settled_labels", Number(float(settled)), None),
        f"{settled:,} of {n:,} nodes have the label that the exact solution gives "
        "them; the others are too close to tell",
        theorem="the largest score exceeds the second by more than twice the error",
    )
    if not wrong:
        return [claim]
    missed = f"{wrong:,} nodes have another label than that of the exact solution"
    fix = "fit again, or restore the model file"
    other = Number(float(wrong))
    return [claim, bd.proved("stated_labels", other, 0.0, "", missed=missed, fix=fix)]


# -- PageRank -----------------------------------------------------------------------


def _check_pagerank(model: Fit, stated: Statement, graph: Any, y: Any) -> Checked:
    A = _stored(model)
    n = A.shape[0]
    pi = data.fitted(model, "scores_", (n,), finite=True)
    v = data.fitted(model, "personalization_", (n,), finite=True)
    stating.require(bool((v >= 0).all() and v.any()), "its starts are invalid weights")
    if y is not None:  # what was asked for counts, not what the model made of it
        v = starts_of(y, n, graph)
    v = v / v.sum()
    damping, out = stated.alpha, np.asarray(A.sum(axis=1)).ravel()
    with np.errstate(all="ignore"):
        share = np.where(out > 0, pi / np.where(out > 0, out, 1.0), 0.0)
        lost = float(pi[out == 0].sum())
        moved = damping * (A.T @ share + lost * v)
        r = np.abs((1 - damping) * v + moved - pi)
        tall = int(np.bincount(A.indices, minlength=n).max(initial=0))
        wide = int(np.diff(A.indptr).max(initial=0))
        slack = gamma(2 * (tall + wide) + 16) * ((1 - damping) * v + moved + np.abs(pi))
        slack += gamma(n + 8) * (damping * abs(lost) + 1) * v
        value, whole = float(r.sum()), float((r + slack).sum()) * (1 + gamma(n + 8))
    found = Number(value / (1 - damping), (whole - value) / (1 - damping))
    asked = f"(asked for {stated.tol:.0e})"
    claim = bd.proved(
        *("pagerank_error", found, stated.tol),
        f"the scores are within {found.most:.1e} of the exact ones, all nodes added "
        f"up {asked}",
        missed=f"the scores may be {found.most:.2g} from the exact ones {asked}",
        objective="‖π − π*‖₁,  π = (1 − damping)·v + damping·Pᵀπ",
        theorem="‖π − π*‖₁ ≤ ‖r‖₁/(1 − damping), since columns of Pᵀ add up to one",
        fix="raise max_iter",
    )
    claims = [claim]
    if graph is not None:
        claims.append(graph_claim(A, adjacency(graph, n, True)))
    marks = data.fingerprint(A, v, np.ones(n))
    return claims, bd.verdict(claims), marks
