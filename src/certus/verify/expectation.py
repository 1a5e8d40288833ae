"""EM for a model given by functions: the gain of one further step, and the ELBO.

With log p(x, z | θ) given, the verifier computes the posterior q and L(θ), the mean of
log p(x | θ), itself; only the M-step is the user's, and the gain L(θ⁺) − L(θ) is a
statement about the functions given, on this data. Without it the user's own E-step is
all there is, and the numbers are measured.
"""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import numpy as np
from scipy.special import logsumexp, xlogy

from certus.certificate import Claim, Evidence, Status, Strength
from certus.verify import data
from certus.verify.data import Array

EPS = float(np.finfo(np.float64).eps)
OBJECTIVE = "mean over rows of log p(x | θ)"


def check_em(
    model: Any, evidence: Evidence, X: Any, y: Any, sample_weight: Any, level: str
) -> tuple[list[Claim], Status, dict[str, Any]]:
    """Take one further step, compare ELBO and likelihood, repeat the fit if asked."""
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        q, rows = _posterior(model, X, model.params_)
        gain = _gain_claim(model, evidence, X, q, rows)
        claims = [gain, _elbo_claim(model, X)]
        if level == "full":
            claims.append(_monotone_claim(model, evidence, X))
    below = gain.value is not None and gain.value <= (gain.target or 0) + gain.allowance
    status = Status.SOLVED if below else Status.TOL_NOT_REACHED
    return claims, status, _fingerprint(X, len(rows))


def _posterior(model: Any, X: Any, params: Any) -> tuple[Any, Array]:
    """Posterior and log p(x | θ) of each row, from the joint density if given."""
    if model.log_joint is None:
        q, rows = model.e_step(X, params)
        return q, np.asarray(rows, dtype=np.float64)
    joint = np.asarray(model.log_joint(X, params), dtype=np.float64)
    rows = np.asarray(logsumexp(joint, axis=1))
    return np.exp(joint - rows[:, None]), rows


def _allowance(rows: Array) -> float:
    return 256 * EPS * (1 + float(np.mean(np.abs(rows))))


def _gain_claim(model: Any, evidence: Evidence, X: Any, q: Any, rows: Array) -> Claim:
    tol = float(evidence.params["tol"])
    exact = model.log_joint is not None
    seen = bool(np.isfinite(rows).all())
    allowance = _allowance(rows) if seen else 0.0
    _, further = _posterior(model, X, model.m_step(X, q))
    change = float(further.mean() - rows.mean())
    gain = abs(change) if math.isfinite(change) else math.inf
    below = gain <= tol + allowance
    fix = str(evidence.params.get("fix", ""))
    if not seen:
        gain, below, change = math.inf, False, 0.0
        fix = "start where every row has a density, or mend the functions"
    verb = "raises" if change >= -allowance else "LOWERS"
    if verb == "LOWERS":
        fix = "see that m_step maximises E_q log p(x, z | θ): EM cannot go down"
    return Claim(
        "step_gain",
        Strength.PROVED if exact else Strength.MEASURED,
        gain,
        tol,
        below if exact else None,
        objective=OBJECTIVE,
        theorem="one further step with the functions given; EM stands still at a fixed "
        "point",
        assumptions=() if exact else ("the likelihood is what e_step says it is",),
        allowance=allowance,
        detail=f"one further EM step {verb} the mean log-likelihood {rows.mean():.6g} "
        f"by {gain:.1e}, {'below' if below else 'above'} {tol:.0e}"
        if seen
        else "the log-likelihood of some row is not finite",
        fix="" if below and verb == "raises" else fix,
    )


def _elbo_claim(model: Any, X: Any) -> Claim:
    """ELBO and likelihood of the user's E-step, against the joint density."""
    if model.log_joint is None:
        return Claim(
            "elbo",
            Strength.REFUSED,
            detail="without log_joint nothing tells whether e_step is the posterior",
            fix="pass log_joint",
        )
    joint = np.asarray(model.log_joint(X, model.params_), dtype=np.float64)
    rows = np.asarray(logsumexp(joint, axis=1))
    limit = 256 * EPS * joint.shape[1] * (1 + np.abs(rows))
    if model.e_step is None:
        q, stated = np.exp(joint - rows[:, None]), rows
    else:
        q, stated = model.e_step(X, model.params_)
        q, stated = np.asarray(q, dtype=np.float64), np.asarray(stated, dtype=float)
    if q.shape != joint.shape or stated.shape != rows.shape:
        gap = np.full(len(rows), np.inf)
    else:
        expected = (q * np.where(q > 0, joint, 0.0)).sum(axis=1)
        gap = np.abs(rows - (expected - xlogy(q, q).sum(axis=1)))
        gap = np.maximum(gap, np.abs(q.sum(axis=1) - 1))
        gap = np.maximum(gap, np.abs(rows - stated))
    met = bool(np.all(gap <= limit))
    return Claim(
        "elbo",
        Strength.PROVED,
        float(np.max(gap)),
        0.0,
        met,
        objective="E_q log(p(x, z | θ)/q(z)) against log p(x | θ)",
        theorem="log p(x) = ELBO(q) + KL(q ‖ p(z|x)): equality if and only if q is "
        "the posterior",
        allowance=float(np.max(limit)),
        detail="after the E-step the lower bound equals the log-likelihood of every row"
        if met
        else "e_step is not the posterior, or its log-likelihood not that of log_joint",
        fix="" if met else "pass e_step=None: it then follows from log_joint",
    )


def _monotone_claim(model: Any, evidence: Evidence, X: Any) -> Claim:
    exact = model.log_joint is not None
    params, levels, allowance = model.start_, [], 0.0
    steps = int(evidence.params["n_iter"])
    for number in range(steps + 1):
        q, rows = _posterior(model, X, params)
        levels.append(float(rows.mean()))
        allowance = max(allowance, _allowance(rows))
        if number < steps:
            params = model.m_step(X, q)
    drop = max([0.0, *(a - b for a, b in pairwise(levels))])
    rises = drop <= allowance
    return Claim(
        "monotone",
        Strength.PROVED if exact else Strength.MEASURED,
        0.0 if rises else drop,
        0.0 if exact else None,
        rises if exact else None,
        objective=OBJECTIVE,
        theorem="L(θ⁺) ≥ ELBO(q, θ⁺) ≥ ELBO(q, θ) = L(θ), for an exact M-step",
        allowance=allowance,
        detail=f"{steps} steps repeated from the start, {levels[0]:.6g} to "
        f"{levels[-1]:.6g}: "
        + ("no step lowers it" if rises else f"largest drop {drop:.1e}"),
        fix="" if rises else "see that m_step maximises E_q log p(x, z | θ)",
    )


def _fingerprint(X: Any, n: int) -> dict[str, Any]:
    """Of numeric data with one row per likelihood; else its length only."""
    ones = np.ones(n)
    try:
        table = np.nan_to_num(np.asarray(X, dtype=np.float64)).reshape(n, -1)
    except (TypeError, ValueError):
        table = np.zeros((n, 1))
    return data.fingerprint(table, np.zeros(n), ones)
