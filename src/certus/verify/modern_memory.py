"""Modern Hopfield networks: how far a step leads away from a stored pattern.

ξ ← Σ_j p_j x_j with p = softmax(β·x_j·ξ). For ξ = x_i + e with ‖e‖ ≤ ρ,

    β·x_j·ξ − β·x_i·ξ ≤ −β(g_ij − ρ·D_ij),   g_ij = x_i·(x_i − x_j), D_ij = ‖x_i − x_j‖

so p_j ≤ min(1, exp(−β(g_ij − ρ·D_ij))), and the step ends within Σ_j p_j·D_ij of x_i.
Equal patterns have D = 0 and add nothing.

Rounding: an inner product of d entries is right to γ_{d+2}·‖x_i‖‖x_j‖, so g and D² to
4γ_{d+4}·max‖x‖². Bounds are taken on the side that makes the sum larger; the error of
the sum, of exp and of a square root is a share of 10⁻⁹, far more than rounding.
"""

from __future__ import annotations

import math
import warnings

import numpy as np

from certus.certificate import Claim
from certus.typing import Array, Fit
from certus.verify import data
from certus.verify import deciding as bd
from certus.verify.deciding import Number, U, gamma

#: Patterns that are compared with all others at level "quick", and cells at a time.
QUICK, CELLS = 512, 1 << 21
#: Share added to sums of exponentials, for the rounding of each operation.
SURE = 1e-9
_MISSED = "scale the rows to one length, raise beta, or store fewer patterns"


def claims(model: Fit, tol: float, X: Array, level: str) -> list[Claim]:
    """Judge the patterns, the error of a step, the radii, and what predict returns."""
    s, d = X.shape
    kept = data.fitted(model, "patterns_", (None, d), finite=True)
    same = kept.shape == X.shape and bool(np.array_equal(kept, X))
    beta = float(data.fitted(model, "beta_", (), finite=True))
    radii = data.fitted(model, "radius_", (len(kept),), finite=True).astype(np.float64)
    stated = model.beta
    if not beta > 0 or (not isinstance(stated, str) and float(stated) != beta):
        told = f"beta_ is {beta:g}, but the parameter beta is {stated!r}"
        return [bd.proved("retrieval_error", Number(math.inf), tol, told, fix="refit")]
    rows = kept.astype(np.float64)
    if level == "quick":
        chosen = np.unique(np.linspace(0, len(rows) - 1, QUICK).astype(int))
    else:
        chosen = np.arange(len(rows))
    size = float(np.sqrt(np.square(rows).sum(axis=1).max())) or 1.0
    each = _bounds(rows, chosen, beta, np.zeros(len(chosen)), size)
    within = np.flatnonzero(radii[chosen] >= 0)
    away = _bounds(rows, chosen[within], beta, radii[chosen][within], size)
    many = f"{len(chosen):,} of {len(rows):,} patterns"
    found = [
        _error_claim(each, tol, many),
        _radius_claim(away, radii[chosen], tol, many),
    ]
    return [*found, _rows_claim(same, len(rows), s), _recall_claim(model, rows, tol)]


def _bounds(rows: Array, chosen: Array, beta: float, radius: Array, M: float) -> Array:
    """The bound of each chosen pattern, for queries within its radius; shares of M."""
    square = np.square(rows).sum(axis=1)
    codes = np.ravel(np.unique(rows, axis=0, return_inverse=True)[1])
    # The largest computed square is itself right to a share.
    off = 4 * gamma(rows.shape[1] + 4) * float(square.max()) * (1 + SURE)
    step, out = max(1, CELLS // len(rows)), np.zeros(len(chosen))
    for start in range(0, len(chosen), step):
        part = slice(start, start + step)
        here = chosen[part]
        G = rows[here] @ rows.T
        g = square[here, None] - G - off
        D = np.sqrt(np.maximum(square[here, None] + square - 2 * G, 0.0) + off)
        D *= 1 + SURE
        D[codes[here, None] == codes] = 0.0
        with np.errstate(under="ignore"):
            lost = radius[part, None] * D
            power = beta * (lost - g + 8 * U * (np.abs(g) + lost))
            terms = np.exp(np.minimum(power, 0.0)) * D
        # What underflows is below TINY, and there are as many terms as rows.
        under = len(rows) * bd.TINY * D.max(axis=1)
        out[part] = (terms.sum(axis=1) * (1 + SURE) + under) / M
    return out


def _error_claim(each: Array, tol: float, many: str) -> Claim:
    worst = float(each.max(initial=0.0))
    bad = int((each > tol).sum())
    return bd.proved(
        *("retrieval_error", Number(worst), tol),
        f"a step leads at most {worst:.1e} away from a stored pattern, for {many}",
        missed=f"{bad:,} patterns are too close to others: a step may lead {worst:.2g} "
        f"away from one (asked for {tol:.0e}), for {many}",
        objective="Σ_j exp(−β g_ij)·‖x_j − x_i‖ as a share of the largest norm",
        theorem="p_j ≤ exp(−β g_ij) with the separation g_ij = x_i·(x_i − x_j)",
        fix=_MISSED,
    )


def _radius_claim(away: Array, radii: Array, tol: float, many: str) -> Claim:
    worst = float(away.max(initial=0.0))
    least, middle = float(radii.min()), float(np.median(radii))
    told = f"from within {least:.3g} of a pattern (median {middle:.3g}) one step ends "
    told += f"within {tol:.0e} of it, for {many}"
    if least < 0:
        told = f"{int((radii >= 0).sum()):,} patterns have a radius, for {many}"
    if not len(away):
        told = f"no radius is promised, for {many}"
    return bd.proved(
        *("repair_radius", Number(worst), tol, told),
        missed=f"from within radius_ a step may end {worst:.2g} away, for {many}",
        objective="Σ_j exp(−β(g_ij − ρ·D_ij))·D_ij as a share of the largest norm",
        fix="fit again",
    )


def _rows_claim(same: bool, stored: int, passed: int) -> Claim:
    return bd.proved(
        *("training_rows", Number(0.0 if same else 1.0), 0.0),
        f"the {stored:,} patterns kept are those you passed",
        missed=f"the {stored:,} stored patterns differ from the {passed:,} you passed",
        theorem="compared cell by cell",
        fix="pass the training data, or fit again",
    )


def _recall_claim(model: Fit, rows: Array, tol: float) -> Claim:
    """What predict makes of sampled patterns, compared with them."""
    some = np.unique(np.linspace(0, len(rows) - 1, 32).astype(int))
    dtype = np.asarray(model.patterns_).dtype
    with warnings.catch_warnings():  # these rows have lost their names
        warnings.filterwarnings("ignore", "X does not have valid feature names")
        told = np.asarray(model.predict(rows[some].astype(dtype)), dtype=np.float64)
    size = float(np.sqrt(np.square(rows).sum(axis=1).max())) or 1.0
    away = np.inf
    if told.shape == rows[some].shape:
        away = float(np.sqrt(np.square(told - rows[some]).sum(axis=1)).max()) / size
    target = max(tol, 1e-5 if dtype == np.float32 else 1e-12)
    slack = gamma(2 * rows.shape[1] + 16) * away if away < np.inf else 0.0
    return bd.proved(
        *("recall", Number(away, slack), target),
        f"predict returns {len(some)} stored patterns to within {away:.1e}",
        missed=f"predict leads {away:.2g} away from a stored pattern",
        objective="largest ‖predict(x) − x‖ as a share of the largest norm",
        theorem="compared directly",
        fix=_MISSED,
    )
