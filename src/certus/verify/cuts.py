"""Clusters of a graph: how far the cut between them may be from the best one.

    Ncut = Σⱼ cut(Sⱼ)/vol(Sⱼ) ≥ λ₁ + … + λ_k,   λ of I − S, S = D^{-1/2}WD^{-1/2}

for every partition into k sets of positive volume: the vectors D^{1/2}1_S/√vol(S) are
orthonormal, and the sum of k Rayleigh quotients is at least that of the k smallest
eigenvalues. For two sets, conductance is at least λ₂/2 (Cheeger).

A residual only says that some eigenvalue is near, so λ_i is bounded from below by
inertia: for any U with i − 1 columns, λ_i(M) ≥ λ₁(M + cUUᵀ), and a Cholesky factor of
M + cUUᵀ − τI that is found shows λ_i ≥ τ less its rounding, γ_{n+2}·trace (Rump). The
vectors U come from the fit; wrong ones only make the bound weak. Loops count neither
in cuts nor in volumes, and nodes without edges in no set.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from scipy import linalg, sparse

from certus.certificate import Claim, Status
from certus.evidence import CutWitness
from certus.typing import Array, Fit
from certus.verify import data, stating
from certus.verify import deciding as bd
from certus.verify.deciding import Number, U, gamma
from certus.verify.graph_reading import adjacency, apart, kept_claim
from certus.verify.kernel import reading
from certus.verify.stating import Checked, Given

#: Nodes up to which eigenvalues are bounded: for two clusters, and for more.
TWO, MANY = 3_000, {"quick": 1_000, "full": 3_000}
#: Share of an eigenvalue that its bound gives away.
GIVEN_AWAY = 1e-9
#: Rows whose weights are computed again.
COMPARED = 128
_FIX = "fewer nodes, or level='full'"


class Statement(NamedTuple):
    """How many clusters, of which graph."""

    n_clusters: int
    affinity: str
    gamma: float


def _spectral(model: Fit) -> Statement:
    kind = model.affinity if isinstance(model.affinity, str) else "other"
    return Statement(int(model.n_clusters), kind, float(model.gamma))


READERS: dict[str, stating.Reader] = {"SpectralClustering": _spectral}


class Cut(NamedTuple):
    """What a partition cuts."""

    value: float  # normalised cut
    conductance: float
    share: float  # of both that may be rounding
    groups: int  # sets of positive volume
    sets: int  # all of them


def check(model: Fit, stated: Statement, given: Given) -> Checked:
    """The cut found, and a bound for all others."""
    bd.refuse_weights(model, given.sample_weight)
    stored = model.affinity_matrix_
    W = sparse.csr_array(stored if sparse.issparse(stored) else np.asarray(stored))
    n = W.shape[0]
    labels = data.fitted(model, "labels_", (n,))
    stating.require(W.shape == (n, n), "its affinity_matrix_ is not square")
    marks, kept = _kept(stated, W, given.X)
    if not np.isfinite(W.data).all() or W.data.min(initial=0.0) < 0:
        reason = "the affinity has negative or infinite weights, so it has no cuts"
        claim = bd.refused("normalised_cut", reason, "use a kernel such as 'rbf'")
        return [claim, *kept], Status.UNDECIDED, marks
    gap = float(abs(W - W.T).max()) if W.nnz else 0.0
    near = gap <= 1e-9 * float(W.max() if W.nnz else 0.0)
    stating.require(near, "its affinity_matrix_ is not symmetric")
    W = sparse.csr_array((W + W.T) / 2) if gap else W
    W = sparse.csr_array(W - sparse.diags_array(W.diagonal()))
    d = np.asarray(W.sum(axis=1)).ravel()
    inside = np.flatnonzero(d > 0)
    found = _cut(W, d, labels)
    if found.sets != min(stated.n_clusters, n):
        claims = [bd.wrong_count("clusters", found.sets, stated.n_clusters), *kept]
        return claims, bd.verdict(claims), marks
    witness = given.witness if isinstance(given.witness, CutWitness) else CutWitness()
    k = found.groups
    with np.errstate(all="ignore"):
        S = _normalised(W, d, inside)
        V = _vectors(witness.vectors, n, inside, S, k)
        if V is None:
            reason = "the eigenvectors of the fit are missing, and there are too many "
            claims = [_measured(found, None, reason + "nodes to find them again")]
        elif len(inside) > (TWO if k == 2 else MANY[given.level]):
            ritz = _ritz(S, V)
            claims = [_measured(found, float(ritz[:k].sum()), "too many nodes")]
        else:
            low = lower_bounds(S, V, k)
            claims = _claims(found, low, k)
    claims += kept
    missed = any(claim.met is False for claim in claims)
    proved = claims[0].strength.value == "proved"
    status = Status.SOLVED if proved else Status.UNDECIDED
    if missed:
        status = bd.verdict(claims)
    return claims, status, marks


def _kept(stated: Statement, W: Any, X: Any) -> tuple[dict[str, Any], list[Claim]]:
    """The fingerprint of the data, and whether the weights kept are theirs."""
    n = W.shape[0]
    plain = sparse.issparse(X) or isinstance(X, np.ndarray)
    rows = reading.as_matrix(X) if plain else W
    marks = data.fingerprint(rows, np.zeros(n), np.ones(n))
    if X is None:
        return marks, []
    stating.require(rows.shape[0] == n, "it has another number of rows than X")
    if stated.affinity == "precomputed":
        wrong = apart(W, sparse.csr_array(rows) if plain else adjacency(X, n))
        told = f"the {W.nnz:,} weights kept are those of your graph"
    elif stated.affinity == "rbf":
        some = np.unique(np.linspace(0, n - 1, min(n, COMPARED)).astype(int))
        A = np.asarray(data.dense(rows), dtype=np.float64)
        gaps = [np.square(A - A[i]).sum(axis=1) for i in some]
        K = np.exp(-stated.gamma * np.array(gaps))
        wrong = int((np.abs(K - W[some].toarray()) > 1e-8).sum())
        told = f"the weights of {len(some):,} of {n:,} rows are those of the kernel"
    else:
        return marks, []
    return marks, [kept_claim(wrong, told)]


def _cut(W: Any, d: Array, labels: Array) -> Cut:
    names, codes = np.unique(labels, return_inverse=True)
    k = len(names)
    volume = np.bincount(codes, d, minlength=k)
    A = sparse.coo_array(W)
    i, j = A.coords
    across = codes[i] != codes[j]
    cut = np.bincount(codes[i[across]], A.data[across], minlength=k)
    real = volume > 0
    value = float((cut[real] / volume[real]).sum())
    whole = float(d.sum())
    small = np.minimum(volume, whole - volume)
    open_ = small > 0
    phi = float((cut[open_] / small[open_]).max(initial=0.0))
    return Cut(value, phi, gamma(2 * A.nnz + k + 8), int(real.sum()), k)


def _normalised(W: Any, d: Array, inside: Array) -> Any:
    root = 1.0 / np.sqrt(d[inside])
    A = sparse.csr_array(W[inside][:, inside])
    rows = np.repeat(root, np.diff(A.indptr))
    parts = rows * A.data * root[A.indices], A.indices, A.indptr
    return sparse.csr_array(parts, shape=A.shape)


def _vectors(given: Any, n: int, inside: Array, S: Any, k: int) -> Array | None:
    """Vectors of the fit, orthonormal; computed here for models that keep none."""
    m = len(inside)
    if given is None or np.ndim(given) != 2 or np.shape(given)[0] != n:
        if m > MANY["quick"] or m == 0:
            return None
        return np.asarray(linalg.eigh(-S.toarray())[1][:, :k])
    V = np.asarray(given, dtype=np.float64)[inside][:, : max(k, 1)]
    if not np.isfinite(V).all() or V.shape[1] < min(k, m):
        return None
    return np.asarray(linalg.qr(V, mode="economic")[0])


def _ritz(S: Any, V: Array) -> Array:
    return 1.0 - np.sort(np.linalg.eigvalsh(V.T @ (S @ V)))[::-1]


def lower_bounds(S: Any, V: Array, k: int) -> Array:
    """Numbers that λ₁, …, λ_k of I − S are not below; 0 where none was shown."""
    n = S.shape[0]
    turn = np.linalg.eigh(V.T @ (S @ V))[1][:, ::-1]
    V = V @ turn
    guess = 1.0 - np.einsum("ij,ij->j", V, S @ V)
    low = np.zeros(k)
    base = -S.toarray()
    widest = int(np.diff(S.indptr).max(initial=0))
    for i in range(1, min(k, V.shape[1])):
        # S has norm one at most; each entry is off by a share of it, and those of
        # 2UUᵀ by a share of its size.
        trace = n + 2.0 * i
        entries = gamma(2 * widest + 16) + 4 * gamma(i + 8) * i
        rounding = 2 * gamma(n + 4) * trace + entries
        tau = guess[i] * (1 - GIVEN_AWAY) - 4 * rounding
        A = base + 2.0 * (V[:, :i] @ V[:, :i].T)
        A.flat[:: n + 1] += 1.0 - tau - rounding
        try:
            linalg.cholesky(A, check_finite=False, overwrite_a=True)
            low[i] = max(0.0, tau - rounding - n * U * 4)
        except linalg.LinAlgError:
            pass
    # Eigenvalues rise: what holds for one holds for those after it.
    return np.maximum.accumulate(low)


def _claims(found: Cut, low: Array, k: int) -> list[Claim]:
    bound = float(low.sum()) * (1 - 8 * k * U)
    claims = [
        _factor(
            "normalised_cut",
            (found.value, found.share, bound),
            f"Ncut = {found.value:.4g}; every partition into {k} sets has at least "
            f"{bound:.4g}",
            "Ncut ≥ λ₁ + … + λ_k of I − S, each bounded from below by inertia",
        )
    ]
    if k == 2:
        half = float(low[1]) / 2
        claims.append(
            _factor(
                "conductance",
                (found.conductance, found.share, half),
                f"conductance {found.conductance:.4g}; every cut has at least "
                f"λ₂/2 = {half:.4g}",
                "Cheeger: the conductance of every cut is at least λ₂/2",
            )
        )
    return claims


def _factor(
    name: str, numbers: tuple[float, float, float], formula: str, theorem: str
) -> Claim:
    value, share, bound = numbers
    if value == 0.0:
        told = "no edge is cut, which nothing can improve"
        return bd.proved(name, Number(1.0), None, told, objective=formula)
    if bound <= 0.0:
        reason = (
            "the graph is nearly in several parts, so the bound for other cuts is 0"
        )
        return bd.measured(name, value, f"{value:.4g} is cut; {reason}")
    ratio = value / bound
    most = Number(ratio, 2 * (share + 8 * U) * ratio)
    told = f"at most {most.most:.4g} times the best possible"
    return bd.proved(name, most, None, told, objective=formula, theorem=theorem)


def _measured(found: Cut, ritz: float | None, reason: str) -> Claim:
    told = f"Ncut = {found.value:.4g}"
    if ritz is not None and math.isfinite(ritz):
        told += f", where {ritz:.4g} is the sum of the eigenvalues found"
    return bd.measured(
        "normalised_cut",
        found.value,
        f"{told}; how far it is from the best is not proved ({reason})",
        fix=_FIX,
    )
