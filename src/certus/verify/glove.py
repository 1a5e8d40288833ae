"""GloVe: the objective of a weighted factorisation of log counts, and possible gains.

    P(W, Z, b, c) = ½ Σ_{n_ij > 0} f(n_ij)(w_i·z_j + b_i + c_j − log n_ij)²

With Z and c fixed, P falls apart into a least-squares problem for each row (w_i, b_i),
which the verifier solves exactly itself. For ``solver="als"`` the gain of all rows is
bounded from above, and must be small; for stochastic steps there is no target, and the
certificate states what some rows would gain at least. Nothing is said about other
minima.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from scipy import sparse

from certus.certificate import Claim, Status, Strength
from certus.typing import Array, Fit, Matrix
from certus.verify import data, texts
from certus.verify import deciding as bd
from certus.verify.deciding import Number, gamma
from certus.verify.half_steps import bracket, least, solve
from certus.verify.rating_entries import Entries, Point, factors
from certus.verify.stating import Checked, Given

#: Multiplications up to which rows without a target are solved at level "quick".
QUICK = 2e9
OBJECTIVE = "½ Σ f(n)(w·z + b + c − log n)² over n > 0,  f = min(1, (n/x_max)^α)"
SHARE = "gain from solving for the words exactly, as a share of P(best constant)"
LEAST = "the objective after these solves is at least the minimum"
MOST = "each row is a least-squares problem, and weak duality bounds its excess"
NAMES = ("word_factors_", "context_factors_", "word_biases_", "context_biases_")


class Statement(NamedTuple):
    """Which pairs are counted, their weights, and the gain that may be left."""

    counting: texts.Statement
    n_components: int
    x_max: float
    weight_power: float
    biases: bool
    tol: float | None
    fix: str


def _glove(model: Fit) -> Statement:
    tol = float(model.tol) if str(model.solver) == "als" else None
    fix = f"raise max_iter (now {model.max_iter})"
    power = (float(model.x_max), float(model.weight_power))
    read = (texts.reading(model), int(model.n_components))
    return Statement(*read, *power, bool(model.biases), tol, fix)


READERS = {"GloVe": _glove}


def check(model: Fit, stated: Statement, given: Given) -> Checked:
    """Recompute the objective of rows, and what solving them exactly would gain."""
    witness, X, _, weights, level, _ = given
    bd.refuse_weights(model, weights)
    n, counting = len(data.listed(model, "vocabulary_")), stated.counting
    point = factors(model, NAMES, (n, len(data.fitted(model, NAMES[1], (None, None)))))
    corpus, matrix = None, getattr(X, "matrix", None)
    if sparse.issparse(X) or (isinstance(X, np.ndarray) and X.ndim == 2):
        matrix = _counts(X)
    elif matrix is None or X.ids is not None:
        corpus = texts.read(model, X)
    exact = level == "full" or stated.tol is not None
    some = np.arange(n) if matrix is not None or exact else texts.sample(n, level)
    counts: Any = matrix
    if corpus is not None and matrix is None:
        counts = texts.pair_rows(corpus, counting, some)
    if counts.shape != (len(some), len(point[1])):
        fitted = f"the model was fitted to {(n, len(point[1]))}"
        raise ValueError(f"The counts have shape {counts.shape}; {fitted}.")
    diverged = bool(witness is not None and witness.diverged)
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        claims = _claims(stated, point, some, counts, exact, diverged)
    lost = diverged or not np.isfinite(claims[1].value or 0.0)
    if corpus is None:
        marks = data.fingerprint(counts, np.zeros(n), np.ones(n))
    else:
        marks = corpus.fingerprint
        claims += texts.counts_claims(model, counting, corpus)
    if corpus is not None and matrix is not None:
        rows = texts.sample(n, level)
        claims.append(texts.pairs_claim(corpus, counting, matrix, rows))
    claims.append(_vectors_claim(model, stated, point))
    status = bd.verdict(claims)
    return claims, Status.DIVERGED if lost else status, marks


def _counts(X: Matrix) -> Any:
    matrix = sparse.csr_array(X.astype(np.float64))
    matrix.sum_duplicates()
    matrix.eliminate_zeros()
    if not np.all((matrix.data > 0) & (matrix.data < np.inf)):
        raise ValueError("Counts must be finite and not negative.")
    return matrix


def _claims(
    stated: Statement, point: Any, rows: Array, counts: Any, exact: bool, diverged: bool
) -> list[Claim]:
    (W, Z, b, c), tol = point, stated.tol
    f = np.minimum(1.0, (counts.data / stated.x_max) ** stated.weight_power)
    v, free = np.log(counts.data), [np.zeros(W.shape[1] + stated.biases)] * 2
    at, scale = (W[rows], Z, b[rows], c), [np.ones(len(rows)), np.ones(len(Z))]
    problem = Entries(counts, f, v, free, scale)
    e, constant = problem.errors(at), _constant(f, v)
    value, rounding = problem.value(at, e)
    low, found = np.inf, Number(np.inf)
    if np.isfinite(value):
        side, sizes = problem.side(0, at), problem.bound(0, e, at)
        g = side.gradient(problem.rows(0, at), problem.slopes(e))
        gain = least(side, g, sizes)
        if exact or (len(v) + g.size) * g.shape[1] ** 2 <= QUICK:
            gain = bracket(side, g, sizes, *solve(side, g))
        most = 0.5 * side.sums(f * e**2)  # no row gains more than it has
        own, lost = gain.high + gain.allowance < most, gamma(64) * value  # of f and v
        more = float(gain.allowance[own].sum()) + 2 * rounding + lost
        high = float(np.where(own, gain.high, most).sum())
        found = Number(high / constant, more / constant)
        low = max(0.0, float(gain.low.sum()) - lost) / constant
    which = f"{len(rows):,} of {len(W):,} rows" if len(rows) < len(W) else "all rows"
    share = f"{100 * value / constant:.1f} % of that of the best constant"
    detail = f"objective {value:.6g} over {which}, {share}"
    objective = bd.measured("objective", value, detail, objective=OBJECTIVE)
    if tol is not None:
        detail = f"solving {which} exactly gains at most {found.most:.1e} "
        detail += f"(asked for {tol:.0e})"
        words = {"objective": SHARE, "theorem": MOST, "fix": stated.fix}
        return [bd.proved("half_step_gain", found, tol, detail, **words), objective]
    claim = Claim(
        *("remaining_gain", Strength.PROVED, low, None, None, SHARE, LEAST),
        detail=f"solving {which} exactly would gain at least {low:.1e}",
        fix="lower learning_rate" if diverged else "",
    )
    return [claim, objective]


def _constant(f: Array, v: Array) -> float:
    """Lower bound of the best constant's objective; of zero's, if that one is zero."""
    mean = float(f @ v / f.sum()) if f.sum() > 0 else 0.0
    for centre in (mean, 0.0):
        size = 0.5 * float(f @ (v - centre) ** 2)
        lost = gamma(len(v) + 32) * float(f @ (np.abs(v) + abs(centre)) ** 2)
        if size > 1e3 * lost + bd.TINY:
            return size - lost
    return 1.0


def _vectors_claim(model: Fit, stated: Statement, point: Point) -> Claim:
    """Whether the vectors in use are those that were fitted."""
    W, Z, vectors = (
        data.fitted(model, name, (None, None)) for name in (*NAMES[:2], "vectors_")
    )
    both = W.shape == Z.shape
    expected, worst = W + Z if both else W, np.inf
    fits = vectors.shape == expected.shape and W.shape[1] == stated.n_components
    if fits and (stated.biases or not any(np.any(bias) for bias in point[2:])):
        worst = float(np.abs(vectors - expected).max(initial=0.0))
    return bd.proved(
        *("vectors", Number(worst), 0.0),
        "the vectors in use are the fitted ones",
        missed="the vectors in use are not the fitted ones",
        fix="fit again, or restore the model file",
        objective="vectors = W + Z" if both else "vectors = W",
        theorem="compared number by number",
    )
