"""Objectives with a penalty on what an attribute explains of the score.

    P(w, b) = mean loss + ½·wᵀHw,   H = alpha·I + strength·F Fᵀ

where wᵀF Fᵀw is the variance of the score that the attribute explains linearly. It is
the kernel's problem with the excess ½gᵀH⁻¹g, g = Hw + v. For any q and r = g − Hq

    ½gᵀH⁻¹g = ½qᵀHq + qᵀr + ½rᵀH⁻¹r ≤ ½qᵀHq + qᵀr + ‖r‖²/2alpha,

and an error ε of g adds at most ‖ε‖/√alpha to the root of twice that.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from certus import terms as t
from certus.certificate import Claim, Status, Strength
from certus.evidence import LinearWitness
from certus.verify import data, measured, stated_linear, stating
from certus.verify.attributes import attribute_of, explained, not_lent
from certus.verify.data import Array
from certus.verify.deciding import GAP, Number, claim_of, gamma, status_of, worst_of
from certus.verify.kernel import gap, losses, penalties, reading
from certus.verify.kernel.reference import least_constant
from certus.verify.marks import marks_of
from certus.verify.problems import describe, problems_of, rows_of
from certus.verify.slopes import chosen_dual
from certus.verify.stating import Checked, Given

_FIX = "Fit again, or restore its file."


class Explained(NamedTuple):
    """½·alpha·‖w‖² + ½·strength·‖Fᵀw‖²; a penalised intercept is not explained."""

    alpha: float
    strength: float
    F: Array

    def factor(self, w: Array) -> Array:
        """√strength·F, with a row of zeros for each weight that is no column's."""
        found = np.zeros((len(w), self.F.shape[1]))
        if len(w) >= len(self.F):
            found[: len(self.F)] = math.sqrt(self.strength) * self.F
        return found


def _value(p: Explained, w: Array) -> float:
    part = p.factor(w).T @ w
    return float(p.alpha * np.vdot(w, w) + np.vdot(part, part)) / 2


def _conjugate(p: Explained, v: Array) -> float:
    return float(np.vdot(v, _solve(p, p.factor(v), v))) / 2


def _solve(p: Explained, G: Array, g: Array) -> Array:
    """H⁻¹g, to rounding (Woodbury)."""
    inner = p.alpha * np.eye(G.shape[1]) + G.T @ G
    return np.asarray((g - G @ np.linalg.solve(inner, G.T @ g)) / p.alpha)


def _excess(p: Explained, w: Array, v: Array, error: Array) -> penalties.Excess:
    G = p.factor(w)
    grow = gamma(sum(G.shape) + 16)

    def times(x: Array) -> tuple[Array, Array]:
        sizes = p.alpha * np.abs(x) + np.abs(G) @ (np.abs(G).T @ np.abs(x))
        return p.alpha * x + G @ (G.T @ x), grow * sizes

    Hw, slip = times(w)
    g = Hw + v
    error = error + slip + grow * (np.abs(Hw) + np.abs(v))
    q = _solve(p, G, g)
    Hq, slip = times(q)
    r = np.abs(g - Hq) + slip + grow * (np.abs(g) + np.abs(Hq))
    part = G.T @ q
    found = (p.alpha * np.vdot(q, q) + np.vdot(part, part)) / 2 + np.vdot(np.abs(q), r)
    value = float(found + np.vdot(r, r) / (2 * p.alpha)) * (1 + 2 * grow)
    loose = math.sqrt(2 * value) + float(np.linalg.norm(error)) / math.sqrt(p.alpha)
    return penalties.Excess(value, loose * loose / 2 * (1 + 2 * grow))


penalties.PENALTIES[Explained] = penalties.PenaltyRow(
    value=_value,
    conjugate=_conjugate,
    excess=_excess,
    reach=lambda p, v, e: 1.0,
    free=lambda p, w: np.zeros(np.shape(w), dtype=bool),
    text=lambda p, name: (
        f"½·{p.alpha:.4g}·{name}² + ½·{p.strength:.4g}·(variance of "
        "the score explained by the attribute)"
    ),
    scaled=lambda p, f: Explained(p.alpha * f, p.strength * f, p.F),
    sound=lambda p: p.alpha > 0 and 0 <= p.strength < math.inf,
    by_coordinate=False,
)


class Statement(NamedTuple):
    """The statement of the estimator inside, and the strength of the penalty."""

    inner: stated_linear.Statement
    strength: float


def _stated(model: Any) -> Statement | measured.Statement:
    """Of a network, or of a linear model whose parameters must be its own still."""
    strength, inner = model.strength, model.estimator_
    if isinstance(strength, bool) or not (
        isinstance(strength, int | float) and 0 <= strength < math.inf
    ):
        raise ValueError(f"strength={strength!r:.40} is no weight of a penalty. {_FIX}")
    if stating.known_class(inner, measured.READERS) is not None:
        return measured.Statement("penalised")
    if repr(model.estimator.get_params()) != repr(inner.get_params()):
        raise stating.Refusal(
            "parameters of the estimator were changed after the fit", "fit again"
        )
    stated = stating.state(inner, stated_linear.READERS)
    return Statement(stated, float(strength))


READERS: dict[str, stating.Reader] = {"CovariancePenalty": _stated}


def check(model: Any, stated: Statement, given: Given) -> Checked:
    """Judge a linear model; the attribute is lent, the dual point is the witness."""
    witness, X, y, sample_weight, level, sensitive = given
    (inner, strength), marks = stated, marks_of(X, y, sample_weight)
    columns = attribute_of(model, sensitive, X)
    if columns is None:
        claim = not_lent("duality_gap", f"a penalty of strength {strength:.4g}")
        return [claim], Status.UNDECIDED, marks
    Z = np.asarray(reading.as_matrix(X), dtype=np.float64)
    reading.refuse_holes(Z)
    s = data.row_weights(sample_weight, len(Z))
    F = explained(Z, columns, s)
    dual = witness.dual if isinstance(witness, LinearWitness) else None
    rows = rows_of(model, inner, X, y, sample_weight)
    problems = []
    for p in problems_of(model, inner, rows, dual):
        if not (isinstance(p.penalty, t.L2) and p.penalty.alpha > 0):
            raise ValueError("A covariance penalty stands beside an L2 penalty only.")
        p = p._replace(penalty=Explained(p.penalty.alpha, strength, F))
        if losses.row_of(p.loss).bend == "kink" and p.dual is None:
            p = p._replace(dual=chosen_dual(p, level))
        problems.append(p)
    seen = [gap.measure(p) for p in problems]
    found = [
        Number.share(each.computed, each.bound, least_constant(p))
        for p, each in zip(problems, seen)
    ]
    k = worst_of(found)
    objective = describe(inner, problems[k].penalty)
    claim = claim_of(GAP, found[k], inner.tol, objective, inner.fix, len(problems))
    more = _explained_claim(Z, reading.plain(model.coef_), F, s)
    return [claim, more], status_of(claim), marks


def _explained_claim(Z: Array, coef: Array, F: Array, s: Array) -> Claim:
    share = s / s.sum()
    w = coef.reshape(-1, Z.shape[1])
    z = Z @ w.T
    total = float((share @ np.square(z - share @ z)).sum())
    part = float(np.square(w @ F).sum()) / total if total > 0 else 0.0
    return Claim(
        *("explained_variance", Strength.MEASURED, part),
        objective="share of the variance of the score, on these rows",
        detail=f"the attribute explains {100 * part:.2g} % of the score's variance",
    )
