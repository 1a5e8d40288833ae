"""Objectives with a penalty on what an attribute explains of the score.

    P(w, b) = mean loss + ½·wᵀHw,   H = l2·I + alpha·F Fᵀ

where wᵀF Fᵀw is the variance of the score that the attribute explains linearly. It is
the kernel's problem with the excess ½gᵀH⁻¹g, g = Hw + v. For any q and r = g − Hq

    ½gᵀH⁻¹g = ½qᵀHq + qᵀr + ½rᵀH⁻¹r ≤ ½qᵀHq + qᵀr + ‖r‖²/2alpha,

and an error ε of g adds at most ‖ε‖/√l2 to the root of twice that. H is known up to
alpha times the rounding of F Fᵀ, which moves Hx by at most that times ‖x‖.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from certus.certificate import Status
from certus.evidence import LinearWitness
from certus.objectives import terms as t
from certus.typing import Array, Fit
from certus.verify import linear, measured, stated_linear, stating
from certus.verify.attributes import attribute_of, explained, not_lent, numbers_of
from certus.verify.data import marks_of
from certus.verify.deciding import GAP, gamma, length, status_of
from certus.verify.kernel import penalties
from certus.verify.problems import problems_of, rows_of
from certus.verify.stating import Checked, Given

_ASSUMED = "columns of the attribute that others explain (to 1e-10) are left out"


class Explained(NamedTuple):
    """½·l2·‖w‖² + ½·alpha·‖Fᵀw‖²; a penalised intercept is not explained."""

    l2: float
    alpha: float
    F: Array
    off: float = 0.0  # bounds the rounding of F Fᵀ

    def factor(self, w: Array) -> Array:
        """√alpha·F, with a row of zeros for each weight that belongs to no column."""
        found = np.zeros((len(w), self.F.shape[1]))
        if len(w) >= len(self.F):
            found[: len(self.F)] = math.sqrt(self.alpha) * self.F
        return found

    def size(self, w: Array) -> float:
        """wᵀHw, as it is computed."""
        part = self.factor(w).T @ w
        return float(self.l2 * np.vdot(w, w) + np.vdot(part, part))

    def solve(self, g: Array) -> Array:
        """H⁻¹g, to rounding (Woodbury)."""
        G = self.factor(g)
        inner = self.l2 * np.eye(G.shape[1]) + G.T @ G
        return np.asarray((g - G @ np.linalg.solve(inner, G.T @ g)) / self.l2)


def _excess(p: Explained, w: Array, v: Array, error: Array) -> penalties.Excess:
    G = p.factor(w)
    grow, off = gamma(sum(G.shape) + 16), p.alpha * p.off

    def times(x: Array) -> tuple[Array, Array]:
        sizes = p.l2 * np.abs(x) + np.abs(G) @ (np.abs(G).T @ np.abs(x))
        return p.l2 * x + G @ (G.T @ x), grow * sizes + off * length(x)

    Hw, slip = times(w)
    g = Hw + v
    error = error + slip + grow * (np.abs(Hw) + np.abs(v))
    q = p.solve(g)
    Hq, slip = times(q)
    r = np.abs(g - Hq)
    found = _above(p, q, r)
    r = r + slip + grow * (np.abs(g) + np.abs(Hq))
    most = _above(p, q, r) * (1 + 2 * grow) + off * length(q) ** 2 / 2
    loose = math.sqrt(2 * most) + length(error) / math.sqrt(p.l2)
    return penalties.Excess(found, loose * loose / 2 * (1 + 2 * grow))


def _above(p: Explained, q: Array, r: Array) -> float:
    """½qᵀHq + |q|ᵀr + ‖r‖²/2alpha."""
    cross = np.vdot(np.abs(q), r) + np.vdot(r, r) / (2 * p.l2)
    return p.size(q) / 2 + float(cross)


penalties.PENALTIES[Explained] = penalties.PenaltyRow(
    value=lambda p, w: p.size(w) / 2,
    excess=_excess,
    reach=lambda p, v, e: 1.0,
    free=lambda p, w: np.zeros(np.shape(w), dtype=bool),
    text=lambda p, name: (
        f"½·{p.l2:.4g}·{name}² + ½·{p.alpha:.4g}·(variance of "
        "the score explained by the attribute)"
    ),
    scaled=lambda p, f: p._replace(l2=p.l2 * f, alpha=p.alpha * f),
    sound=lambda p: p.l2 > 0 and 0 <= p.alpha < math.inf,
)


class Statement(NamedTuple):
    """The statement of the estimator inside, and the strength of the penalty."""

    inner: stated_linear.Statement
    alpha: float


def _stated(model: Fit) -> Statement | measured.Statement:
    """The statement of a network, or of a linear model with unchanged parameters."""
    alpha, inner = model.alpha, model.estimator_
    said = f"alpha={alpha!r:.40} is no weight of a penalty"
    stating.require(stating.is_number(alpha), said)
    if stating.known_class(inner, measured.READERS) is not None:
        return measured.Statement("penalised")
    if repr(model.estimator.get_params()) != repr(inner.get_params()):
        raise stating.Refusal(
            "parameters of the estimator were changed after the fit", "fit again"
        )
    stated = stating.state(inner, stated_linear.READERS)
    return Statement(stated, float(alpha))


READERS: dict[str, stating.Reader] = {"CovariancePenalty": _stated}


def check(model: Fit, stated: Statement, given: Given) -> Checked:
    """Judge a linear model, given the attribute; the dual point is the witness."""
    witness, X, y, sample_weight, level, sensitive = given
    (inner, alpha), marks = stated, marks_of(X, y, sample_weight)
    columns = attribute_of(model, sensitive, X)
    if columns is None:
        claim = not_lent("duality_gap", f"a penalty of strength {alpha:.4g}")
        return [claim], Status.UNDECIDED, marks
    Z, share = numbers_of(X, sample_weight)
    part = explained(Z, columns, share)
    dual = witness.dual if isinstance(witness, LinearWitness) else None
    rows, problems = rows_of(model, inner, X, y, sample_weight), []
    for p in problems_of(model, inner, rows, dual):
        if not (isinstance(p.penalty, t.L2) and p.penalty.alpha > 0):
            raise ValueError("A covariance penalty needs an L2 penalty and no other.")
        penalty = Explained(p.penalty.alpha, alpha, part.F, part.off)
        problems.append(p._replace(penalty=penalty))
    claim, _ = linear.worst_claim(GAP, inner, problems, level)
    if not part.whole:
        claim = replace(claim, assumptions=(_ASSUMED,))
    return [claim], status_of(claim), marks
