"""GloVe: the objective of a weighted factorisation of log counts, and what is left.

    P(W, Z, b, c) = ½ Σ_{n_ij > 0} f(n_ij)(w_i·z_j + b_i + c_j − log n_ij)²

With Z and c fixed, P falls apart into a least-squares problem for each row (w_i, b_i).
Solving some rows exactly gains

    value = Σ_i (P_i(w_i, b_i) − min P_i) / P(best constant)

over those rows: so much is still to gain at least, and over all rows it bounds what one
exact round for the words would gain. Nothing is said about other minima.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from scipy import sparse

from certus.certificate import Claim, Evidence, Status, Strength
from certus.verify import texts
from certus.verify.data import Array

EPS = float(np.finfo(np.float64).eps)
#: Multiplications spent on rows at level "quick"; numbers of rows that are tried.
QUICK, ROWS = 2e9, (4096, 1024, 256, 64, 16)
OBJECTIVE = "½ Σ f(n)(w·z + b + c − log n)² over n > 0,  f = min(1, (n/x_max)^α)"


class Found(NamedTuple):
    """Sums over the rows that were looked at."""

    objective: float
    gain: float
    constant: float
    allowance: float


def check_glove(
    model: Any, evidence: Evidence, X: Any, y: Any, sample_weight: Any, level: str
) -> tuple[list[Claim], Status, dict[str, Any]]:
    """Recompute the objective of rows, and what solving them exactly would gain."""
    params = evidence.params
    n = len(model.vocabulary_)
    matrix, corpus = _data(model, params, X, level)
    if matrix is None and corpus is not None:
        rows = texts.sample(n, level)
        counts = texts.cooccurrence_rows(corpus, params, rows)
    else:
        rows = _affordable(matrix, model.word_factors_.shape[1], level)
        counts = sparse.csr_array(matrix[rows])
    _check_shapes(model, counts.shape[1], n)
    with np.errstate(over="ignore", invalid="ignore"):
        found = _look(model, params, rows, counts)
    claims = [
        _gain_claim(found, params, len(rows), n),
        _objective_claim(found, rows, n),
    ]
    if corpus is not None and hasattr(X, "matrix"):
        some = texts.sample(n, level)
        claims.append(texts.counts_claim(corpus, params, matrix, some))
    if corpus is not None:
        claims += texts.stated_counts_claims(model, corpus)
    claims.append(_vectors_claim(model))
    claims.sort(key=lambda claim: claim.met is not False)
    status = Status.TOL_NOT_REACHED if claims[0].met is False else Status.SOLVED
    if params.get("diverged") or not np.isfinite(found.objective):
        status = Status.DIVERGED
    marks = _matrix_marks(matrix) if corpus is None else texts.fingerprint(corpus)
    return claims, status, marks


def _data(model: Any, params: Any, X: Any, level: str) -> tuple[Any, Any]:
    """The counts, if given or cheap enough, and the corpus, if given."""
    shape = (len(model.word_factors_), len(model.context_factors_))
    if sparse.issparse(X) or (isinstance(X, np.ndarray) and X.ndim == 2):
        matrix = sparse.csr_array(X, dtype=np.float64)
    elif getattr(X, "matrix", None) is not None:
        corpus = None if X.ids is None else texts.read(model, X)
        return X.matrix, corpus
    else:
        corpus = texts.read(model, X)
        if level == "full":
            every = np.arange(len(corpus.words))
            return texts.cooccurrence_rows(corpus, params, every), corpus
        return None, corpus
    if matrix.shape != shape:
        raise ValueError(
            f"The counts have shape {matrix.shape} and the model was fitted to {shape}."
        )
    matrix.sum_duplicates()
    matrix.eliminate_zeros()
    return matrix, None


def _check_shapes(model: Any, columns: int, n: int) -> None:
    """Raise unless there is a vector and a number for each row and column."""
    W, Z = np.asarray(model.word_factors_), np.asarray(model.context_factors_)
    sizes = (np.shape(model.word_biases_), np.shape(model.context_biases_))
    fits = W.shape[:1] == (n,) and Z.shape[:1] == (columns,) and W.ndim == Z.ndim == 2
    if not fits or W.shape[1] != Z.shape[1] or sizes != ((n,), (columns,)):
        raise ValueError("The model's factors do not fit its words. Fit it again.")


def _affordable(matrix: Any, K: int, level: str) -> Array:
    """Rows to solve: all, or as many as the quick check may cost."""
    n = matrix.shape[0]
    if level == "full":
        return np.arange(n)
    entries = np.diff(matrix.indptr)
    for size in (n, *ROWS):
        rows = texts.sample(n, "quick", min(size, n))
        if (entries[rows].sum() * (K + 1.0) + len(rows) * (K + 1.0) ** 2) * K <= QUICK:
            break
    return rows


def _look(model: Any, params: Any, rows: Array, counts: Any) -> Found:
    """Objective and gain, row by row; the exact solution is the verifier's own."""
    W = np.asarray(model.word_factors_, dtype=np.float64)
    Z = np.asarray(model.context_factors_, dtype=np.float64)
    b = np.asarray(model.word_biases_, dtype=np.float64)
    c = np.asarray(model.context_biases_, dtype=np.float64)
    Y = np.column_stack([Z, np.ones(len(Z))]) if params["biases"] else Z
    f = np.minimum(1.0, (counts.data / params["x_max"]) ** params["alpha"])
    x = np.log(counts.data)
    mean = float(f @ x / f.sum()) if f.sum() > 0 else 0.0
    constant = 0.5 * float(f @ (x - mean) ** 2)
    value = gain = size = 0.0
    for k, i in enumerate(rows):
        here = slice(counts.indptr[k], counts.indptr[k + 1])
        j = counts.indices[here]
        e = x[here] - Z[j] @ W[i] - b[i] - c[j]
        root = np.sqrt(f[here])
        value += 0.5 * float(f[here] @ e**2)
        size += float(f[here] @ (x[here] ** 2 + e**2))
        gain += _row_gain(Y[j] * root[:, None], root * e)
    return Found(value, gain, constant or 1.0, 1e3 * EPS * size / (constant or 1.0))


def _row_gain(Y: Array, e: Array) -> float:
    """½‖e‖² − min over δ of ½‖e − Yδ‖², by a solution that is then put in."""
    if not len(e):
        return 0.0
    A = Y.T @ Y
    A[np.diag_indices(len(A))] += 1e-12 * (np.trace(A) / len(A) + 1e-300)
    try:
        move = np.linalg.solve(A, Y.T @ e)
    except np.linalg.LinAlgError:
        return float("nan")
    left = e - Y @ move
    return max(0.0, 0.5 * float(e @ e - left @ left))


# -- claims -----------------------------------------------------------------------


def _gain_claim(found: Found, params: Any, looked: int, n: int) -> Claim:
    tol = params.get("tol")
    value = found.gain / found.constant
    value = value if np.isfinite(value + found.objective) else np.inf
    which = "all rows" if looked == n else f"{looked:,} of {n:,} rows"
    low = np.isfinite(value) and value <= (tol or 0.0) + found.allowance
    met = None if tol is None else bool(low)
    asked = "" if tol is None else f" (asked for {tol:.0e})"
    return Claim(
        "remaining_gain" if tol is None else "half_step_gain",
        Strength.PROVED,
        value,
        tol,
        met,
        "gain of exact solves for words, as a share of P(best constant)",
        "the objective after the solves is no less than the minimum: so much is still "
        "to gain at least; over all rows, no round for the words gains more",
        allowance=found.allowance,
        detail=f"solving {which} exactly would gain {value:.1e}{asked}",
        fix=str(params["fix"]) if met is False or params.get("diverged") else "",
    )


def _objective_claim(found: Found, rows: Array, n: int) -> Claim:
    which = "over all rows" if len(rows) == n else f"over {len(rows):,} of {n:,} rows"
    share = found.objective / found.constant
    return Claim(
        "objective",
        Strength.MEASURED,
        found.objective,
        objective=OBJECTIVE,
        detail=f"objective {found.objective:.6g} {which}, {100 * share:.1f} % of that "
        "of the best constant",
    )


def _vectors_claim(model: Any) -> Claim:
    """Whether the vectors in use are those that were fitted."""
    W, Z = np.asarray(model.word_factors_), np.asarray(model.context_factors_)
    expected = W + Z if W.shape == Z.shape else W
    vectors = np.asarray(model.vectors_)
    worst = np.inf
    if vectors.shape == expected.shape:
        worst = float(np.abs(vectors - expected).max(initial=0.0))
    return Claim(
        "vectors",
        Strength.PROVED,
        worst,
        0.0,
        worst == 0.0,
        "vectors = W + Z" if W.shape == Z.shape else "vectors = W",
        "compared number by number",
        detail="the vectors in use are those that were fitted"
        if worst == 0.0
        else "the vectors in use are not those that were fitted",
        fix="" if worst == 0.0 else "fit again, or restore the model file",
    )


def _matrix_marks(matrix: Any) -> dict[str, Any]:
    """A fingerprint of counts without a corpus."""
    odd = np.modf(np.arange(1, matrix.nnz + 1) * 0.618033988749)[0] - 0.5
    where = matrix.indices * 0.7548776662466927
    values = np.asarray(matrix.data, dtype=np.float64)
    return {
        "shape": [int(size) for size in matrix.shape],
        "dtype": "counts",
        "weight": float(values.sum()),
        "x": float(values @ (odd + np.modf(where)[0])),
        "x_scale": float(np.abs(values).max(initial=0.0)),
        "y": 0.0,
    }
