"""Classifiers of nodes: whether their scores are those of the stated formulas.

    gcn:   H ← φ(Q H Wᵀ + 1bᵀ),  Q = D̃^{-1/2}(A + I)D̃^{-1/2}
    sage:  H ← φ([H, D⁻¹A H] Wᵀ + 1bᵀ)
    gat:   means of W h_j weighted by a softmax over j ~ i, for each head
    sgc:   a logistic regression on Q^steps X; what computing Q^steps X loses is added

The verifier computes these itself, in float64, with a bound of the rounding that goes
through the layers. Each formula treats all nodes alike and reads
neighbours only, so that renumbering the nodes renumbers the results and L layers read
what is within L edges. For Q: (Qv)_i/v_i bounds the largest eigenvalue from above, and
discs of the similar matrix D̃⁻¹(A + I) bound the smallest from below by 2·min p_ii − 1.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse
from scipy.sparse import csgraph
from scipy.stats import hypergeom

from certus.certificate import Claim, Status, Strength
from certus.objectives import terms as t
from certus.typing import Array, Fit
from certus.verify import data, linear, problems, stating
from certus.verify import deciding as bd
from certus.verify.deciding import Number, gamma
from certus.verify.graph_reading import adjacency, graph_claim, label_codes, labels_of
from certus.verify.kernel import reading
from certus.verify.kernel.gap import Problem, columns
from certus.verify.kernel.reference import least_constant
from certus.verify.stating import Checked, Given

#: Largest difference of a probability in float32 from that of the formula.
NEAR = 1e-4
#: How far above one the bound of an eigenvalue of Q may be.
ABOVE = 1e-10
#: Nodes from which reach is measured.
LOOKED = 64
MIXED = "the features are mixed by the verifier, in float64"


class Statement(NamedTuple):
    """What is computed on the graph."""

    kind: str  # "gcn", "sage", "gat" or "sgc"
    depth: int
    tol: float
    weights: Mapping[str, Array] | None = None
    heads: int = 1


def _network(model: Fit) -> Statement:
    depth = len(tuple(model.hidden_layer_sizes)) + 1
    kind = {"gcn": "gcn", "sage": "sage", "gat": "gat"}[model.layer]
    return Statement(kind, depth, NEAR, model.weights_, int(model.heads))


def _sgc(model: Fit) -> Statement:
    return Statement("sgc", int(model.n_steps), float(model.tol))


READERS: dict[str, stating.Reader] = {
    "NodeClassifier": _network,
    "SGCClassifier": _sgc,
}


class Mixing(NamedTuple):
    """A + I, its sums of rows, and Q."""

    A: Any
    d: Array
    Q: Any
    widest: int


def check(model: Fit, stated: Statement, given: Given) -> Checked:
    """Scores from the formulas, and the gap of a convex fit."""
    bd.refuse_weights(model, given.sample_weight)
    A = stored(model)
    n = A.shape[0]
    X, graph = given.X if isinstance(given.X, tuple) else (given.X, None)
    kept = []
    if graph is not None:
        kept.append(graph_claim(A, adjacency(graph, n)))
    mixing = mixing_of(A)
    codes = label_codes(labels_of(given.y, n, graph), model, n)
    features = _features(model, X, n, kept)
    marks = data.fingerprint(
        A if features is None else features, codes.astype(float), np.ones(n)
    )
    inputs = sparse.eye_array(n, format="csr") if features is None else features
    inputs = inputs.astype(np.float64)
    if stated.kind == "sgc":
        claims, status = _sgc_claims(model, stated, mixing, inputs, (codes, given))
        claims += [_spectrum_claim(mixing), *kept]
        wrong = bd.verdict(claims) if status is Status.SOLVED else status
        return claims, wrong, marks
    with np.errstate(all="ignore"):
        claims = _network_claims(model, stated, mixing, inputs)
    if stated.kind == "gcn":
        claims.append(_spectrum_claim(mixing))
    claims += kept
    missed = any(claim.met is False for claim in claims)
    if missed:
        return claims, bd.verdict(claims), marks
    return claims, Status.UNDECIDED, marks


def stored(model: Fit) -> Any:
    """The adjacency that the model keeps: symmetric, finite, not negative."""
    A = sparse.csr_array(model.graph_).astype(np.float64)
    sound = A.shape[0] == A.shape[1] and np.isfinite(A.data).all()
    sound = sound and A.data.min(initial=0.0) >= 0 and abs(A - A.T).sum() == 0
    stating.require(bool(sound), "its graph_ is not a symmetric matrix of weights")
    A.sum_duplicates()
    return A


def mixing_of(A: Any) -> Mixing:
    """The matrices that layers mix by."""
    n = A.shape[0]
    loops = sparse.csr_array(A + sparse.eye_array(n, format="csr"))
    d = np.asarray(loops.sum(axis=1)).ravel()
    left = sparse.diags_array(1.0 / np.sqrt(d))
    Q = sparse.csr_array(left @ loops @ left)
    return Mixing(loops, d, Q, int(np.diff(loops.indptr).max(initial=0)))


def _features(model: Fit, X: Any, n: int, kept: list[Claim]) -> Any:
    """The features kept, compared with those passed."""
    if model.X_ is None:
        return None
    stored_rows: Any = reading.as_matrix(model.X_)
    stating.require(stored_rows.shape[0] == n, "X_ has another number of rows")
    if X is None:
        return stored_rows
    rows: Any = reading.as_matrix(X)
    if rows.shape != stored_rows.shape:
        raise ValueError(f"X has shape {rows.shape}, the fit had {stored_rows.shape}.")
    wrong = data.size_of(sparse.csr_array(rows - stored_rows))
    if wrong > 1e-5 * max(1.0, data.size_of(rows)):
        told = "the features kept are not those you passed"
        fix = "pass the training data, or fit again"
        kept.append(bd.proved("graph_kept", Number(wrong), 0.0, told, fix=fix))
    return stored_rows


def _spectrum_claim(mixing: Mixing) -> Claim:
    """The eigenvalues of Q lie in [low, 1]."""
    v, g = np.sqrt(mixing.d), gamma(2 * mixing.widest + 16)
    top = float(((mixing.Q @ v) / v).max())
    low = float((2 * mixing.A.diagonal() / mixing.d).min()) * (1 - g) - 1 - g
    return bd.proved(
        *("spectrum", Number(max(0.0, top - 1), 4 * g * top), ABOVE),
        f"eigenvalues of Q lie between {low:.3g} and 1: mixing never enlarges a signal",
        missed="the bound of the largest eigenvalue of Q is above 1",
        objective="Q = D̃^{-1/2}(A + I)D̃^{-1/2}",
        theorem="max (Qv)ᵢ/vᵢ over v > 0 bounds the largest eigenvalue; discs of "
        "D̃⁻¹(A + I) the smallest",
    )


# -- networks -----------------------------------------------------------------------


def _network_claims(
    model: Fit, stated: Statement, mixing: Mixing, X: Any
) -> list[Claim]:
    n, weights = X.shape[0], stated.weights or {}
    P = data.fitted(model, "label_distributions_", (n, len(model.classes_)))
    if stated.kind == "gat":
        Z, off = attended(stated, mixing, X)
    else:
        Z, off = layered(stated.kind, stated.depth, weights, mixing, X)
    claim, p = _formula_claim(P, Z, off)
    found = p.max(axis=1) - np.sort(p, axis=1)[:, -2] if P.shape[1] > 1 else p[:, 0]
    claims = [claim, _reach_claim(stated, mixing, claim)]
    claims.append(_labels_claim(model, p.argmax(axis=1), found > 2 * NEAR))
    return claims


def _formula_claim(P: Array, Z: Array, off: Array) -> tuple[Claim, Array]:
    """Whether probabilities P are those of scores Z, and the latter."""
    with np.errstate(over="ignore", invalid="ignore"):
        p = np.exp(Z - Z.max(axis=1, keepdims=True))
        p /= p.sum(axis=1, keepdims=True)
        value = float(np.nan_to_num(np.abs(p - P), nan=np.inf).max())
    told = "renumbering the nodes renumbers the predictions, and changes nothing else"
    rounding = float(2 * off.max()) + gamma(P.shape[1] + 16)
    claim = bd.proved(
        *("equivariance", Number(value, rounding), NEAR, told),
        missed=f"a probability is {value:.2g} from that of the weights",
        objective=f"probabilities differ by {value:.1e} from those of the formula",
        theorem="the formula treats all nodes alike, and was computed again",
        fix="fit again, or restore the model file",
    )
    return claim, p


def layered(
    kind: str, depth: int, weights: Mapping[str, Array], mixing: Mixing, X: Any
) -> tuple[Array, Array]:
    """Scores of a network of "gcn" or "sage" layers, and a bound of their rounding."""
    n = X.shape[0]
    plain = sparse.csr_array(mixing.A - sparse.eye_array(n, format="csr"))
    d = np.asarray(plain.sum(axis=1)).ravel()
    M = mixing.Q
    if kind == "sage":
        M = sparse.diags_array(np.divide(1.0, d, out=np.zeros(n), where=d > 0)) @ plain
    h, e = X, None
    for i in range(depth):
        W = np.asarray(weights[f"layers.{i}.weight"], dtype=np.float64).T
        b = np.asarray(weights[f"layers.{i}.bias"], dtype=np.float64)
        g = gamma(len(W) + 4 * mixing.widest + 16)
        size, slip = abs(h), np.zeros((n, W.shape[1]))
        if kind == "gcn":
            z, whole = M @ (h @ W), M @ (size @ np.abs(W))
            slip = slip if e is None else M @ (e @ np.abs(W))
        else:
            own, mean = W[: h.shape[1]], W[h.shape[1] :]
            z = h @ own + M @ (h @ mean)
            whole = size @ np.abs(own) + M @ (size @ np.abs(mean))
            if e is not None:
                slip = e @ np.abs(own) + M @ (e @ np.abs(mean))
        z = np.asarray(z) + b
        e = np.asarray(slip) + g * (np.asarray(whole) + np.abs(b))
        h = np.maximum(z, 0.0) if i < depth - 1 else z
    return np.asarray(h), np.asarray(e)


def attended(stated: Statement, mixing: Mixing, X: Any) -> tuple[Array, Array]:
    """Scores of a network of "gat" layers, and a bound of their rounding.

    Logits that are off by δ change the shares of a softmax by a factor of e^{2δ}.
    """
    weights, heads, h = stated.weights or {}, stated.heads, X
    A, n = mixing.A, X.shape[0]
    rows, others = np.repeat(np.arange(n), np.diff(A.indptr)), A.indices
    error: Any = sparse.csr_array(X.shape)
    for i in range(stated.depth):
        W = np.asarray(weights[f"layers.{i}.weight"], dtype=np.float64).T
        a = np.asarray(weights[f"scores.{2 * i}"], dtype=np.float64)
        b = np.asarray(weights[f"scores.{2 * i + 1}"], dtype=np.float64)
        g = gamma(len(W) + a.shape[2] + 2 * mixing.widest + 32)
        slip = error @ np.abs(W) + g * (abs(h) @ np.abs(W))
        z, slip = (np.asarray(m).reshape(n, heads, -1) for m in (h @ W, slip))
        out, off = [], []
        for c in range(heads):
            size, away = np.abs(z[:, c]), np.abs(a[:, c])
            near = (slip[:, c] + g * size) @ away.T
            logit = (z[:, c] @ a[0, c])[others] + (z[:, c] @ a[1, c])[rows]
            logit = np.where(logit > 0, logit, 0.2 * logit) + np.log(A.data)
            delta = near[others, 0] + near[rows, 1] + g * (np.abs(logit) + 1)
            top, wide = np.full(n, -np.inf), np.zeros(n)
            np.maximum.at(top, rows, logit)
            np.maximum.at(wide, rows, delta)
            e = np.exp(logit - top[rows])
            e /= np.bincount(rows, e)[rows]
            shares = sparse.csr_array((e, others, A.indptr), shape=A.shape)
            out.append(shares @ z[:, c])
            theta = np.expm1(2 * wide + 4 * g)[:, None]
            more = theta * (shares @ size)
            off.append((1 + theta) * (shares @ slip[:, c]) + more)
        last = i == stated.depth - 1
        z = np.mean(out, axis=0) + b if last else np.hstack(out) + b
        error = np.mean(off, axis=0) if last else np.hstack(off)
        error = error + g * (np.abs(z) + np.abs(b))
        h = z if last else np.where(z > 0, z, np.expm1(z))
    return np.asarray(h), np.asarray(error)


def _reach_claim(stated: Statement, mixing: Mixing, computed: Claim) -> Claim:
    """How far a prediction reads, and how much of the graph that is."""
    n = mixing.A.shape[0]
    some = np.unique(np.linspace(0, n - 1, min(n, LOOKED)).astype(int))
    hops = csgraph.dijkstra(
        mixing.A, unweighted=True, indices=some, limit=stated.depth, directed=False
    )
    share = float((hops <= stated.depth).mean())
    L = stated.depth
    told = f"a prediction depends on nodes at most {L} edges away, on average "
    told += f"{100 * share:.3g} % of the graph (from {len(some):,} nodes)"
    if not computed.met:
        return bd.refused("reach", "the probabilities are not those of the weights", "")
    return bd.proved(
        *("reach", Number(float(L)), float(L), told),
        theorem="a product of L matrices of neighbours vanishes beyond L edges",
    )


def _labels_claim(model: Fit, first: Array, sure: Array) -> Claim:
    """Whether the labels stated are those of the largest scores."""
    said = np.asarray(model.transduction_)
    n = len(first)
    stating.require(said.shape == (n,), "transduction_ has another length")
    wrong = int(((said != np.asarray(model.classes_)[first]) & sure).sum())
    return bd.proved(
        *("stated_labels", Number(float(wrong)), 0.0),
        f"the labels of {int(sure.sum()):,} of {n:,} nodes are those of the largest "
        "score; the others are too close to tell",
        missed=f"{wrong:,} nodes have another label than that of the largest score",
        theorem="scores were computed again from the weights",
        fix="fit again, or restore the model file",
    )


# -- a convex fit on mixed features -------------------------------------------------


def _sgc_claims(
    model: Fit, stated: Statement, mixing: Mixing, X: Any, asked: tuple[Array, Given]
) -> tuple[list[Claim], Status]:
    codes, given = asked
    mixed = _mixed(mixing, X, stated.depth)
    known = np.flatnonzero(codes >= 0)
    problem = SimpleNamespace(
        coef_=model.coef_,
        intercept_=model.intercept_,
        classes_=model.classes_,
    )
    k = len(model.classes_)
    stated_problem = linear.Statement(
        t.Logistic() if k == 2 else t.Softmax(k),
        t.L2(1.0 / float(model.C)),
        "signs" if k == 2 else "codes",
        "free" if model.fit_intercept else "none",
        tol=stated.tol,
        penalty_of="sum",
        class_weight=model.class_weight,
        fix="raise max_iter, or scale the columns (StandardScaler)",
    )
    labels = np.asarray(model.classes_)[codes[known]]
    data_of_fit = Given(given.witness, mixed.Z[known], labels, None, given.level)
    claims, status, _ = linear.check(problem, stated_problem, data_of_fit)
    first = claims[0]
    if status is Status.DIVERGED:
        pass  # there are no scores, so mixing changes nothing
    elif first.name == bd.GAP.name and first.strength is Strength.PROVED:
        rows = problems.rows_of(problem, stated_problem, *data_of_fit[1:3], None)
        p = problems.problems_of(problem, stated_problem, rows, None)[0]
        slip = _mixing_slip(p, rows.given.s, mixed.sizes[known], k) * mixed.share
        more = Number.share(0.0, slip, least_constant(p)).rounding
        found = Number((first.value or 0.0) - first.allowance, first.allowance + more)
        words = (
            stated.tol,
            problems.describe(stated_problem, p.penalty),
            stated_problem.fix,
        )
        first = bd.claim_of(bd.GAP, found, *words)
    else:
        first = replace(first, assumptions=(*first.assumptions, MIXED))
    coef = np.asarray(model.coef_, dtype=np.float64)
    scores = np.asarray(mixed.Z @ coef.T) + np.asarray(model.intercept_)
    whole = np.asarray(mixed.sizes @ np.abs(coef).T) + np.abs(model.intercept_)
    off = (gamma(X.shape[1] + 16) + 2 * mixed.share) * whole.max(axis=1)
    if k == 2:
        scores = np.column_stack([-scores[:, 0], scores[:, 0]]) / 2
    two = np.sort(scores, axis=1)[:, -2:]
    sure = two[:, 1] - two[:, 0] > 4 * off
    P = data.fitted(model, "label_distributions_", scores.shape)
    formula, _ = _formula_claim(P, scores, off)
    return [first, formula, _labels_claim(model, scores.argmax(axis=1), sure)], status


class _Mixed(NamedTuple):
    """Computed Z = Q^k X, and |Z − Z*| ≤ share·sizes, entry by entry."""

    Z: Any
    sizes: Any  # Q^k |X|, in which nothing cancels
    share: float


def _mixed(mixing: Mixing, X: Any, depth: int) -> _Mixed:
    Z, sizes = X, abs(X)
    same = abs(X - sizes).max() == 0
    for _ in range(depth):
        Z = mixing.Q @ Z
        sizes = Z if same else mixing.Q @ sizes
    # A step: roots of sums of a row in Q, then a sum over a row.
    return _Mixed(Z, sizes, gamma(depth * (4 * mixing.widest + 16)))


def _mixing_slip(p: Problem, s: Array, sizes: Any, k: int) -> float:
    """How far the gap may move with features Z* where |Z − Z*| ≤ ``sizes``.

    A loss changes by at most c times its largest change of a score: c = 1 of the
    logistic loss, 2 of the softmax. So objectives P of Z and P* of Z* differ at W by at
    most c·mean max |Z − Z*||W|, and at a minimiser W* of P* by c·R·mean ‖Zᵢ − Zᵢ*‖:
    λ‖W*‖²/2 ≤ P*(0, 0) = log k gives ‖W*‖ ≤ R. The best constant model is the same.
    """
    W, lost = np.abs(columns(p.w)), p.space.width * bd.TINY
    R = math.sqrt(2 * math.log(k) / p.penalty.alpha)
    here = np.asarray(sizes @ W).max(axis=1) + lost * W.max(initial=0.0)
    there = np.sqrt(np.asarray((sizes * sizes).sum(axis=1)).ravel()) + lost
    each = (1.0 if k == 2 else 2.0) * (here + R * there)
    return float(s @ each / s.sum()) * (1 + gamma(len(s) + p.space.width + 32))


# -- nodes that were kept back --------------------------------------------------------


def node_accuracy_claim(right: int, looked: int, nodes: int, delta: float) -> Claim:
    """The share of right labels among all nodes, from a sample without replacement."""
    low, high = hypergeometric(right, looked, nodes, delta)
    return Claim(
        *("node_accuracy", Strength.STATISTICAL, low / nodes, None, True),
        objective=f"share of right labels: {right:,} of {looked:,} nodes looked at, "
        f"{nodes:,} not trained on",
        theorem="hypergeometric distribution: the interval contains the share with "
        f"probability at least {1 - delta:.6g} over the draw of the nodes",
        assumptions=(
            "the nodes looked at were drawn uniformly from those not trained on",
            "nothing is said about nodes that are not in the graph",
        ),
        delta=delta,
        detail=f"between {100 * low / nodes:.3g} % and {100 * high / nodes:.3g} % of "
        f"the {nodes:,} nodes not trained on have the right label",
    )


def hypergeometric(k: int, n: int, total: int, delta: float) -> tuple[int, int]:
    """Fewest and most right ones among ``total`` that k of n drawn do not exclude."""
    if not 0 <= k <= n <= total or n == 0:
        raise ValueError(f"{k} of {n} out of {total} nodes is not possible.")
    tail = delta / 2 * (1 - 1e-9)
    low, high = k, total - (n - k)
    first, last = low, high
    while first < last:  # the fewest K with P(X ≥ k; K) > tail
        K = (first + last) // 2
        if hypergeom.sf(k - 1, total, K, n) > tail:
            last = K
        else:
            first = K + 1
    least, first, last = first, low, high
    while first < last:  # the most K with P(X ≤ k; K) > tail
        K = (first + last + 1) // 2
        if hypergeom.cdf(k, total, K, n) > tail:
            first = K
        else:
            last = K - 1
    return least, math.ceil(first)
