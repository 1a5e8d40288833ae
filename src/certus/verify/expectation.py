"""EM for a model given by functions: the gain of one further step, and the ELBO.

The statement is about the public functions, ``params_``, ``start_`` and ``n_iter_``.
With log p(x, z | θ) given, the verifier computes the posterior q and L(θ), the mean of
log p(x | θ), itself; only the M-step is the user's, and the gain L(θ⁺) − L(θ) is a
statement about the numbers that the functions return, on this data. Without it there is
only the user's own E-step, and the numbers are measured.

Rounding: a log-sum-exp of K numbers is right to γ_{K+8}, and 4u of its size; a mean is
an exact sum, divided.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from scipy.special import logsumexp

from certus.certificate import Claim, Status
from certus.typing import Array, Fit
from certus.verify import climbing, data, deciding
from certus.verify.deciding import Number, U, gamma, proved
from certus.verify.stating import Checked, Given

OBJECTIVE = "mean over rows of log p(x | θ)"
#: Nats by which the user's E-step may differ from the posterior.
POSTERIOR = 1e-9


class Statement(NamedTuple):
    """A fixed point of the EM that the functions define."""

    tol: float
    exact: bool  # log p(x, z | θ) is given
    fix: str


def _read(model: Fit) -> Statement:
    fix = f"raise max_iter (now {model.max_iter}), or fit again from params_"
    return Statement(
        float(model.tol) or climbing.LEAST, model.log_joint is not None, fix
    )


READERS = {"EM": _read}


class Expected(NamedTuple):
    """Posterior, log p(x | θ) of each row, log p(x, z | θ), and the mean of rows."""

    q: Any
    rows: Array
    joint: Array | None
    level: Number


def check(model: Fit, stated: Statement, given: Given) -> Checked:
    """Take one further step, compare ELBO and likelihood, repeat the fit if asked."""
    _, X, _, sample_weight, level, _ = given
    deciding.refuse_weights(model, sample_weight)
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        here = _expect(model, X, model.params_)
        gain = _gain_claim(model, stated, X, here)
        claims = [gain, _elbo_claim(model, X, here)]
        if level == "full":
            levels, params = [], model.start_
            for _ in range(int(model.n_iter_)):
                found = _expect(model, X, params)
                levels.append(found.level)
                params = model.m_step(X, found.q)
            levels.append(_expect(model, X, params).level)
            apart = abs(levels[-1].value - here.level.value)
            run = climbing.repeated(levels, apart, OBJECTIVE, exact=stated.exact)
            claims.append(run)
    marks = _fingerprint(X, len(here.rows))
    if stated.exact:
        return claims, deciding.verdict(claims, ("elbo", "monotone")), marks
    small = gain.value is not None and gain.value <= stated.tol + gain.allowance
    return claims, Status.SOLVED if small else Status.TOL_NOT_REACHED, marks


def _expect(model: Fit, X: object, params: object) -> Expected:
    """From the joint density if it is given, else from the user's E-step."""
    joint = None
    if model.log_joint is None:
        q, rows = model.e_step(X, params)
        rows = np.asarray(rows, dtype=np.float64)
    else:
        joint = np.asarray(model.log_joint(X, params), dtype=np.float64)
        rows = np.asarray(logsumexp(joint, axis=1))
        q = np.exp(joint - rows[:, None])
    k, finite = 1 if joint is None else joint.shape[1], np.isfinite(rows).all()
    mean = math.fsum(rows) / len(rows) if finite else float(rows.mean())
    rounding = gamma(k + 8) + 8 * U * float(np.mean(np.abs(rows)))
    return Expected(q, rows, joint, Number(mean, rounding))


def _gain_claim(model: Fit, stated: Statement, X: object, here: Expected) -> Claim:
    after, fix = _expect(model, X, model.m_step(X, here.q)).level, stated.fix
    if not np.isfinite(here.rows).all():
        fix = "start where every row has a positive density, or correct the functions"
    elif after.most < here.level.value - here.level.rounding:
        fix = "check that m_step maximises E_q log p(x, z | θ)"
    note = "" if stated.exact else "the likelihood is the one that e_step returns"
    return climbing.step_gain(here.level, after, stated.tol, OBJECTIVE, fix, note)


def _elbo_claim(model: Fit, X: object, here: Expected) -> Claim:
    """ELBO and likelihood of the user's E-step, against the joint density."""
    if here.joint is None:
        told = "without log_joint it cannot be checked that e_step is the posterior"
        return deciding.refused("elbo", told, "pass log_joint")
    q, said = here.q, here.rows
    if model.e_step is not None:
        q, said = (np.asarray(x, dtype=float) for x in model.e_step(X, model.params_))
    found = climbing.elbo_gap(q, here.joint, here.rows, 4 * U * np.abs(here.rows))
    apart = math.inf
    if said.shape == here.rows.shape:
        apart = float(np.nan_to_num(np.abs(said - here.rows), nan=np.inf).max())
    return proved(
        *("elbo", Number(max(found.value, apart), found.rounding), POSTERIOR),
        "after the E-step the lower bound equals the log-likelihood of every row",
        missed="e_step does not return the posterior, or its log-likelihood is not "
        "that of log_joint",
        objective="E_q log(p(x, z | θ)/q(z)) against log p(x | θ)",
        theorem=climbing.ELBO,
        fix="pass e_step=None; it is then computed from log_joint",
    )


def _fingerprint(X: object, n: int) -> dict[str, Any]:
    """Fingerprint of numeric data with one row per likelihood; else only its length."""
    try:
        table = np.nan_to_num(np.asarray(X, dtype=np.float64)).reshape(n, -1)
    except (TypeError, ValueError):
        table = np.zeros((n, 1))
    return data.fingerprint(table, np.zeros(n), np.ones(n))
