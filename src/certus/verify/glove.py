"""GloVe: the objective of a weighted factorisation of log counts, and what is left.

    P(W, Z, b, c) = ½ Σ_{n_ij > 0} f(n_ij)(w_i·z_j + b_i + c_j − log n_ij)²

With Z and c fixed, P falls apart into a least-squares problem for each row (w_i, b_i),
whose exact solution is the verifier's own. What all rows would gain is bounded from
above for ``solver="als"``, which promises it to be small; stochastic steps promise
nothing, and are told what some rows would gain at least. Nothing is said about other
minima.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from scipy import sparse

from certus.certificate import Claim, Status, Strength
from certus.verify import deciding as bd
from certus.verify import texts
from certus.verify.data import Array
from certus.verify.deciding import Number, gamma, measured, proved
from certus.verify.half_steps import bracket, solve
from certus.verify.rating_entries import Problem, factors
from certus.verify.stating import Checked, Given

#: Multiplications spent on rows at level "quick"; numbers of rows that are tried.
QUICK, ROWS = 2e9, (4096, 1024, 256, 64, 16)
OBJECTIVE = "½ Σ f(n)(w·z + b + c − log n)² over n > 0,  f = min(1, (n/x_max)^α)"
SHARE = "gain of exact solves for words, as a share of P(best constant)"
LEAST = "the objective after the solves is no less than the minimum"
MOST = "each row is a least-squares problem: its excess over a dual point"
NAMES = ("word_factors_", "context_factors_", "word_biases_", "context_biases_")


class Statement(NamedTuple):
    """Which pairs are counted, how they weigh, and what may be left to gain."""

    counting: texts.Statement
    n_components: int
    x_max: float
    alpha: float
    biases: bool
    tol: float | None
    fix: str


def _glove(model: Any) -> Statement:
    tol = float(model.tol) if str(model.solver) == "als" else None
    fix = f"raise max_iter (now {model.max_iter})"
    power = (float(model.x_max), float(model.alpha))
    read = (texts.reading(model), int(model.n_components))
    return Statement(*read, *power, bool(model.biases), tol, fix)


READERS = {"GloVe": _glove}


def check(model: Any, stated: Statement, given: Given) -> Checked:
    """Recompute the objective of rows, and what solving them exactly would gain."""
    witness, X, _, weights, level, _ = given
    bd.refuse_weights(model, weights)
    n, counting = len(model.vocabulary_), stated.counting
    point = factors(model, NAMES, (n, len(model.context_factors_)))
    whole = level == "full" or stated.tol is not None  # a promise is one about all rows
    matrix, corpus = _data(model, X, counting, whole)
    if matrix is None:
        rows = texts.sample(n, level)
        counts = texts.pair_rows(corpus, counting, rows)
    else:
        rows = np.arange(n) if whole else _affordable(matrix, point[0].shape[1])
        counts = sparse.csr_array(matrix[rows])
    if counts.shape[1] != len(point[1]):
        raise ValueError("The counts do not fit the model's contexts.")
    diverged = bool(witness is not None and witness.diverged)
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        claims = _claims(stated, point, rows, counts, diverged)
    lost = diverged or not np.isfinite(claims[1].value or 0.0)
    if corpus is not None and hasattr(X, "matrix"):
        some = texts.sample(n, level)
        claims.append(texts.pairs_claim(corpus, counting, matrix, some))
    if corpus is not None:
        claims += texts.counts_claims(model, counting, corpus)
    claims.append(_vectors_claim(model, stated, point))
    marks = _matrix_marks(matrix) if corpus is None else texts.fingerprint(corpus)
    status = bd.verdict(claims)
    return claims, Status.DIVERGED if lost else status, marks


def _data(model: Any, X: Any, counting: Any, whole: bool) -> tuple[Any, Any]:
    """The counts, if given or needed in full, and the corpus, if given."""
    if sparse.issparse(X) or (isinstance(X, np.ndarray) and X.ndim == 2):
        matrix = sparse.csr_array(X.astype(np.float64))
        matrix.sum_duplicates()
        matrix.eliminate_zeros()
        shape = (len(model.word_factors_), len(model.context_factors_))
        if matrix.shape != shape:
            text = f"The counts have shape {matrix.shape}; the model was fitted to "
            raise ValueError(f"{text}{shape}.")
        if not np.all((matrix.data > 0) & (matrix.data < np.inf)):
            raise ValueError("Counts must be finite and not negative.")
        return matrix, None
    if getattr(X, "matrix", None) is not None:
        return X.matrix, None if X.ids is None else texts.read(model, X)
    corpus = texts.read(model, X)
    every = np.arange(len(corpus.words))
    return texts.pair_rows(corpus, counting, every) if whole else None, corpus


def _affordable(matrix: Any, K: int) -> Array:
    """As many rows as the quick check may solve, for a bound from below."""
    n, entries = matrix.shape[0], np.diff(matrix.indptr)
    for size in (n, *ROWS):
        rows = texts.sample(n, "quick", min(size, n))
        if (entries[rows].sum() + len(rows) * (K + 1.0)) * (K + 1.0) * K <= QUICK:
            break
    return rows


def _claims(
    stated: Statement, point: Any, rows: Array, counts: Any, diverged: bool
) -> list[Claim]:
    (W, Z, b, c), n, tol = point, len(point[0]), stated.tol
    f = np.minimum(1.0, (counts.data / stated.x_max) ** stated.alpha)
    v, free = np.log(counts.data), [np.zeros(W.shape[1] + stated.biases)] * 2
    at = (W[rows], Z, b[rows], c)
    problem = Problem(counts, f, v, free, [np.ones(len(rows)), np.ones(len(Z))])
    e, constant = problem.errors(at), _constant(f, v)
    value, rounding = problem.value(at, e)
    low, found = np.inf, Number(np.inf, 0.0)
    if np.isfinite(value):
        side = problem.side(0, at)
        g = side.gradient(problem.rows(0, at), problem.slopes(e))
        d, floor = solve(side, g)
        gain = bracket(side, g, problem.bound(0, e, at), d, floor)
        most = 0.5 * side.sums(f * e**2)  # no row gains more than it has
        own = gain.high + gain.allowance < most
        high = float(np.where(own, gain.high, most).sum())
        more = float(gain.allowance[own].sum()) + 2 * rounding
        more += gamma(64) * value  # powers and logarithms are within 4 ulp
        found = Number(high / constant, more / constant)
        low = max(0.0, float(gain.low.sum()) - gamma(64) * value) / constant
    which = "all rows" if len(rows) == n else f"{len(rows):,} of {n:,} rows"
    asked = f"(asked for {tol or 0.0:.0e})"
    detail = f"solving {which} exactly gains at most {sum(found):.1e} {asked}"
    words: dict[str, Any] = {"objective": SHARE, "theorem": MOST, "fix": stated.fix}
    claim = proved("half_step_gain", found, tol, detail, **words)
    if tol is None:
        detail = f"solving {which} exactly would gain {low:.1e} or more"
        words = {"objective": SHARE, "theorem": LEAST, "detail": detail}
        words["fix"] = "lower learning_rate" if diverged else ""
        claim = Claim("remaining_gain", Strength.PROVED, low, None, None, **words)
    detail = (
        f"objective {value:.6g} over {which}, {100 * value / constant:.1f} % of that"
    )
    detail += " of the best constant"
    return [claim, measured("objective", value, detail, objective=OBJECTIVE)]


def _constant(f: Array, v: Array) -> float:
    """No more than the objective of the best constant; of zero, if that is nothing."""
    mean = float(f @ v / f.sum()) if f.sum() > 0 else 0.0
    for centre in (mean, 0.0):
        size = 0.5 * float(f @ (v - centre) ** 2)
        lost = gamma(len(v) + 32) * float(f @ (np.abs(v) + abs(centre)) ** 2)
        if size > 1e3 * lost + bd.TINY:
            return size - lost
    return 1.0


def _vectors_claim(model: Any, stated: Statement, point: Any) -> Claim:
    """Whether the vectors in use are those that were fitted."""
    W, Z = np.asarray(model.word_factors_), np.asarray(model.context_factors_)
    expected, vectors = W + Z if W.shape == Z.shape else W, np.asarray(model.vectors_)
    worst = np.inf
    fits = vectors.shape == expected.shape and W.shape[1] == stated.n_components
    if fits and (stated.biases or not any(np.any(bias) for bias in point[2:])):
        worst = float(np.abs(vectors - expected).max(initial=0.0))
    return proved(
        *("vectors", Number(worst, 0.0), 0.0),
        "the vectors in use are those that were fitted",
        missed="the vectors in use are not those that were fitted",
        fix="fit again, or restore the model file",
        objective="vectors = W + Z" if W.shape == Z.shape else "vectors = W",
        theorem="compared number by number",
    )


def _matrix_marks(matrix: Any) -> dict[str, Any]:
    """A fingerprint of counts without a corpus."""
    odd = np.modf(np.arange(1, matrix.nnz + 1) * 0.618033988749)[0] - 0.5
    where = np.modf(matrix.indices * 0.7548776662466927)[0]
    values, shape = np.asarray(matrix.data, dtype=np.float64), list(matrix.shape)
    marks = {"shape": shape, "dtype": "counts", "weight": float(values.sum()), "y": 0.0}
    scale = float(np.abs(values).max(initial=0.0))
    return {**marks, "x": float(values @ (odd + where)), "x_scale": scale}
