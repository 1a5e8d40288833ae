"""Scores of pairs of nodes: eigenvectors, and edges that were held out.

    s_ij = √(d̃ᵢd̃ⱼ)·Σ_c λ_c^p v_ic v_jc,   Qv = λv,  Q = D̃^{-1/2}(A + I)D̃^{-1/2}

A residual ‖Qv − λv‖/‖v‖ bounds how far λ is from an eigenvalue. The pairs held out are
compared with the graph: edges must be edges of it that were not trained on, the others
must not be, and no pair may count twice. Each edge is set against one other pair, so
that the comparisons are independent, and their count has a Clopper–Pearson interval.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from scipy import sparse

from certus.certificate import Claim, Strength
from certus.typing import Array, Fit
from certus.verify import data, stating
from certus.verify import deciding as bd
from certus.verify.deciding import Number, gamma
from certus.verify.graph_networks import Mixing, mixing_of, stored
from certus.verify.graph_reading import adjacency, graph_claim
from certus.verify.stating import Checked, Given
from certus.verify.statistical import clopper_pearson

_PASS = "certify(model, graph) compares them"


class Statement(NamedTuple):
    """How pairs are scored."""

    path_length: int
    tol: float
    delta: float


def _links(model: Fit) -> Statement:
    return Statement(int(model.path_length), float(model.tol), float(model.delta))


READERS: dict[str, stating.Reader] = {"LinkPredictor": _links}


def check(model: Fit, stated: Statement, given: Given) -> Checked:
    """Eigenvectors of the graph that was trained on, and links held out of it."""
    bd.refuse_weights(model, given.sample_weight)
    A = stored(model)
    n = A.shape[0]
    graph = given.X[1] if isinstance(given.X, tuple) else given.X
    pairs = [held_pairs(model, name, A) for name in ("held_edges_", "held_non_edges_")]
    claims, root, powers = _eigen_claims(model, stated, mixing_of(A))
    if graph is None:
        reason = "whether the pairs held out are edges is not known without the graph"
        claims.append(bd.refused("link_auc", reason, _PASS))
    else:
        whole = adjacency(graph, n)
        kept = graph_claim(A, without(whole, pairs[0]))
        if kept.met:
            _compare_pairs(pairs, whole)
            scores = [
                np.einsum("pc,c,pc->p", root[i], powers, root[j])
                for i, j in (ends.T for ends in pairs)
            ]
            claims += auc_claims(scores[0], scores[1], stated.delta)
        claims.append(kept)
    marks = data.fingerprint(A, np.zeros(n), np.ones(n))
    return claims, bd.verdict(claims), marks


def held_pairs(model: Fit, name: str, A: Any) -> Array:
    """Pairs of nodes held out: each once, none of which was trained on."""
    n, ends = A.shape[0], data.fitted(model, name, (None, 2)).astype(np.int64)
    inside = not len(ends) or (ends.min() >= 0 and ends.max() < n)
    stating.require(bool(inside), f"{name} names nodes that do not exist")
    once = len(np.unique(_keys(ends[:, 0], ends[:, 1], n))) == len(ends)
    once = once and bool((ends[:, 0] != ends[:, 1]).all())
    stating.require(once, f"{name} holds a pair twice, or a node with itself")
    trained = bool(_are_edges(A, ends).any())
    stating.require(not trained, f"{name} holds edges that were trained on")
    return ends


def _compare_pairs(pairs: list[Array], whole: Any) -> None:
    """Edges held out must be edges of the graph, and the others must not."""
    edges, others = (_are_edges(whole, ends) for ends in pairs)
    stating.require(bool(edges.all()), "held_edges_ holds pairs that are not edges")
    stating.require(not others.any(), "held_non_edges_ holds edges of the graph")


def _keys(i: Array, j: Array, n: int) -> Array:
    """One number for each pair, whichever of its ends comes first."""
    return np.asarray(np.minimum(i, j).astype(np.int64) * n + np.maximum(i, j))


def _are_edges(A: Any, ends: Array) -> Array:
    """Which pairs have an entry that is not zero, in a symmetric matrix."""
    A = sparse.coo_array(A)
    n, (i, j) = A.shape[0], (c[A.data != 0] for c in A.coords)
    return np.isin(_keys(ends[:, 0], ends[:, 1], n), _keys(i, j, n))


def without(A: Any, edges: Array) -> Any:
    """A graph without some of its edges."""
    A = sparse.coo_array(A)
    n, (i, j) = A.shape[0], A.coords
    left = ~np.isin(_keys(i, j, n), _keys(edges[:, 0], edges[:, 1], n))
    return sparse.csr_array((A.data[left], (i[left], j[left])), shape=A.shape)


def _eigen_claims(
    model: Fit, stated: Statement, mixing: Mixing
) -> tuple[list[Claim], Array, Array]:
    """How near eigenvalues are; and the vectors and powers that make scores."""
    n = mixing.Q.shape[0]
    V = data.fitted(model, "eigenvectors_", (n, None), finite=True)
    values = data.fitted(model, "eigenvalues_", (V.shape[1],), finite=True)
    length = np.linalg.norm(V, axis=0)
    stating.require(bool((length > 0.5).all()), "an eigenvector is zero")
    residual = np.linalg.norm(mixing.Q @ V - V * values, axis=0) / length
    slack = gamma(2 * mixing.widest + n + 16) * (1 + np.abs(values)) * 2
    worst = int(residual.argmax())
    found = Number(float(residual[worst]), float(slack.max()))
    claim = bd.proved(
        *("eigen_residual", found, stated.tol),
        f"each eigenvalue is within {found.most:.1e} of a true one of Q "
        f"(asked for {stated.tol:.0e})",
        missed=f"an eigenvalue may be {found.most:.2g} from any true one of Q",
        objective="‖Qv − λv‖/‖v‖, the worst of the components",
        theorem="a symmetric matrix has an eigenvalue within ‖Qv − λv‖/‖v‖ of λ",
        fix="fewer components, or a larger tol",
    )
    return [claim], np.sqrt(mixing.d)[:, None] * V, values**stated.path_length


def auc_claims(edges: Array, others: Array, delta: float) -> list[Claim]:
    """How often an edge scores higher than a pair without one."""
    m = min(len(edges), len(others))
    if not m:
        reason = "no edges were held out"
        return [bd.refused("link_auc", reason, "hold out more edges, or pass more")]
    above = int((edges[:m] > others[:m]).sum())
    level = int((edges[:m] >= others[:m]).sum())
    low = clopper_pearson(above, m, delta, False)[0]
    high = clopper_pearson(level, m, delta, False)[1]
    words = (
        "new edges are drawn as those held out were, pairs without an edge uniformly",
    )
    claim = Claim(
        *("link_auc", Strength.STATISTICAL, low, 0.5, bool(low > 0.5)),
        objective=f"P(score of an edge > that of a pair without): {above:,} of {m:,} "
        "disjoint pairs",
        theorem="Clopper–Pearson on disjoint pairs, which are independent",
        assumptions=words,
        delta=delta,
        detail=f"a new edge scores higher with probability between {low:.3g} and "
        f"{high:.3g}",
        fix="" if low > 0.5 else "hold out more edges, or use more components",
    )
    share = area(edges, others)
    told = f"{share:.4g} over all {len(edges) * len(others):,} pairs"
    return [claim, bd.measured("auc_of_all_pairs", share, told)]


def area(edges: Array, others: Array) -> float:
    """The share of pairs in which the edge scores higher, half for equal scores."""
    line = np.sort(others)
    below, up_to = (np.searchsorted(line, edges, side) for side in ("left", "right"))
    return float((below.mean() + up_to.mean()) / (2 * len(line)))
