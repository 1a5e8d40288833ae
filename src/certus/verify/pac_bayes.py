"""PAC-Bayes for randomised linear classifiers: the bound recomputed, nothing sampled.

Weights are drawn from Q = N(M, diag σ²), so the scores of a row are independent normal
numbers zₖ ~ N(μₖ, sₖ²), and the draw names the true label y with probability

    E g(T),  g(t) = ∏_{k≠y} Φ((μ_y − μₖ + s_y·t)/sₖ),  T ~ N(0, 1).

ln g is concave, so between two nodes it lies above its chord, and Jensen's inequality
bounds each cell from below by a weighted geometric mean of g at the ends: the error on
the rows is bounded, not sampled, and there is no seed to choose in a fit's favour. The
prior is N(M₀, λI) with λ from a fixed grid. M₀ is 0, or the minimiser of a penalised
likelihood on rows that are then not counted; that objective is strongly convex, so the
gradient at the M₀ stated says how far the true one may be, and KL(Q‖P) is taken at the
worst place within that distance.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse
from scipy.special import expit, ndtr, softmax

from certus.bounds.intervals import IID
from certus.certificate import Claim, Evidence, Status, Strength
from certus.verify import data
from certus.verify.data import Array

#: Prior variances a fit may choose from; the choice is paid for by the union bound.
VARIANCES = tuple(4.0**-j for j in range(10))
#: Where g is computed.
NODES = np.linspace(-6.0, 6.0, 97)
#: Added to errors and divergences, so that rounding works against the claim.
ROUNDING = 1e-9
#: A prior further from its minimiser, in standard deviations, is not that of the rows.
ASTRAY = 0.1
#: Scores held at a time.
CELLS = 1 << 20

SETTLED = "columns and parameters were settled without looking at the rows counted"


class Posterior(NamedTuple):
    """M and σ, one row per score and the constant last, for rows of unit length."""

    mean: Array
    std: Array


class Found(NamedTuple):
    """The verifier's numbers; ``astray`` is how far off the prior's mean may be."""

    bound: float
    error: float
    kl: float
    n: int
    n_prior: int
    priors: int
    astray: float


def check_pac_bayes(
    model: Any, evidence: Evidence, X: Any, y: Any, sample_weight: Any, level: str
) -> tuple[list[Claim], Status, dict[str, Any]]:
    """Recompute KL(Q‖P), the error of Q on the rows counted, and the bound."""
    if sample_weight is not None:
        raise ValueError("a PAC-Bayes bound is about rows drawn alike: no weights.")
    X = data.as_matrix(X)
    codes = data.codes(y, np.asarray(model.classes_))
    if X.shape != (len(codes), model.n_features_in_):
        raise ValueError(
            f"X has shape {X.shape}; expected {len(codes)} rows, as y has, and the "
            f"{model.n_features_in_} columns of the fit."
        )
    marks = data.fingerprint(X, codes.astype(np.float64), np.ones(len(codes)))
    delta = float(evidence.params["delta"])
    wrong = _refuse_forgery(model, evidence, len(codes))
    if wrong:
        return [_missed(wrong, delta)], Status.TOL_NOT_REACHED, marks
    found = _recompute(model, evidence, X, codes, delta)
    if found.astray > ASTRAY:
        detail = "the prior is not the one that these rows give"
        return [_missed(detail, delta)], Status.TOL_NOT_REACHED, marks
    claims = [_bound_claim(found, delta), _error_claim(found), _kl_claim(found)]
    return claims, Status.SOLVED, marks


def _refuse_forgery(model: Any, evidence: Evidence, n: int) -> str:
    """What makes the evidence worthless, if anything."""
    arrays = (model.coef_, model.intercept_, model.coef_std_, model.intercept_std_)
    values = [np.asarray(a, dtype=np.float64) for a in arrays]
    if not all(np.isfinite(a).all() for a in values):
        return "the posterior holds NaN or infinite numbers"
    params, constant = evidence.params, float(evidence.params["constant"])
    spread = values[2:] if constant > 0 else values[2:3]
    if not all((a > 0).all() for a in spread):
        return "the posterior has a standard deviation of zero"
    learnt = "prior_mean" in evidence.arrays
    if params["variance"] not in (VARIANCES if learnt else (1.0,)):
        return "the prior's variance is not on the grid fixed in advance"
    if learnt and not 0 < int(params["n_prior"]) < n:
        return "these rows are fewer than the prior has seen"
    return ""


# -- the prior --------------------------------------------------------------------


def split_rows(n: int, n_prior: int, seed: int | None) -> tuple[Array, Array]:
    """Rows that the prior may see, and those that are counted; by the seed alone.

    Without a seed the first rows are the prior's.

    Examples
    --------
    >>> from certus.verify.pac_bayes import split_rows
    >>> split_rows(5, 2, None)
    (array([0, 1]), array([2, 3, 4]))
    """
    order = np.arange(n)
    if seed is not None:
        order = np.random.default_rng(seed).permutation(n)
    return np.sort(order[:n_prior]), np.sort(order[n_prior:])


def _recompute(
    model: Any, evidence: Evidence, X: Any, codes: Array, delta: float
) -> Found:
    params, constant = evidence.params, float(evidence.params["constant"])
    learnt = "prior_mean" in evidence.arrays
    n_prior = int(params["n_prior"]) if learnt else 0
    seen, counted = split_rows(len(codes), n_prior, params["seed"])
    length = mean_length(X, seen, constant) if learnt else 1.0
    own = _posterior(model, constant, length)
    centre, radius = np.zeros(own.mean.shape), 0.0
    if learnt:
        centre = np.asarray(evidence.arrays["prior_mean"], dtype=np.float64)
        rows = scaled_rows(X, seen, constant, length)
        radius = _distance(rows, codes[seen], centre, float(params["alpha"]))
    variance = float(params["variance"])
    kl = _divergence(own, centre, radius, variance) * (1 + ROUNDING)
    right = _right(X, counted, codes, constant, own)
    error = min(1.0, 1.0 - right + ROUNDING)
    n, priors = len(counted), len(VARIANCES) if learnt else 1
    budget = (kl + math.log(2 * math.sqrt(n) * priors / delta)) / n
    astray = radius / math.sqrt(variance)
    bound = _invert(error, budget)
    return Found(bound, error, kl, n, n_prior, priors, astray)


def _posterior(model: Any, constant: float, length: float) -> Posterior:
    """Means and deviations of the weights of x/length and constant/length."""
    parts = []
    for coef, intercept in (
        (model.coef_, model.intercept_),
        (model.coef_std_, model.intercept_std_),
    ):
        coef = np.asarray(coef, dtype=np.float64)
        last = np.asarray(intercept, dtype=np.float64)[:, None]
        columns = [coef, last / constant] if constant > 0 else [coef]
        parts.append(np.hstack(columns) * length)
    return Posterior(*parts)


def mean_length(X: Any, rows: Array, constant: float) -> float:
    """Root mean square length of some rows, with their constant; 1 if that is 0.

    Nothing but these rows enters, not even for scaling: a prior may depend on it.
    """
    values = (X[rows].data if sparse.issparse(X) else X[rows]).astype(np.float64)
    top = float(np.abs(values).max(initial=0.0))
    total = 0.0
    if top > 0:
        total = float(np.sum(np.square(values / top)))
    size = math.hypot(math.sqrt(total / max(1, len(rows))) * top, constant)
    return size if size > 0 else 1.0


def scaled_rows(X: Any, rows: Array, constant: float, length: float) -> Any:
    """Some rows with their constant, divided by ``length``."""
    part = X[rows].astype(np.float64) / length
    if constant == 0:
        return part
    column = np.full((len(rows), 1), constant / length)
    if sparse.issparse(part):
        return sparse.csr_matrix(sparse.hstack([part, sparse.csr_matrix(column)]))
    return np.hstack([part, column])


def _distance(rows: Any, codes: Array, centre: Array, alpha: float) -> float:
    """How far the minimiser of mean log loss + ½α‖M‖² can be from ``centre``.

    The objective is α-strongly convex, so no further than ‖gradient‖/α.
    """
    z = np.asarray(rows @ centre.T)
    if len(centre) == 1:
        slope = expit(z) - (codes == 1)[:, None]
    else:
        slope = softmax(z, axis=1)
        slope[np.arange(len(codes)), codes] -= 1.0
    gradient = np.asarray(rows.T @ slope).T / len(codes) + alpha * centre
    away = float(np.linalg.norm(gradient)) / alpha
    return away if math.isfinite(away) else math.inf


def _divergence(own: Posterior, centre: Array, radius: float, variance: float) -> float:
    """KL(Q‖P), with the prior's centre at the far end of its ball."""
    ratio = own.std**2 / variance
    spread = 0.5 * float(np.sum(ratio - 1.0 - np.log(ratio)))
    shift = float(np.linalg.norm(own.mean - centre)) + radius
    return max(0.0, spread) + 0.5 * shift * shift / variance


# -- the error on the rows --------------------------------------------------------


def _blocks(X: Any, rows: Array, constant: float) -> Iterator[tuple[Array, Any, Array]]:
    """Rows in float64, each divided by its largest entry or the constant.

    Yields row numbers, the block, and what became of the constant. A common factor
    changes no comparison of scores; it keeps their squares within range.
    """
    size = max(1, CELLS // max(1, X.shape[1]))
    whole = X.tocsr() if sparse.issparse(X) else X
    for i in range(0, len(rows), size):
        some = rows[i : i + size]
        block = whole[some].astype(np.float64)
        if sparse.issparse(block):
            largest = abs(block).max(axis=1).toarray().ravel()
        else:
            largest = np.abs(block).max(axis=1, initial=0.0)
        largest = np.maximum(largest, constant)
        factor = 1.0 / np.where(largest > 0, largest, 1.0)
        if sparse.issparse(block):
            yield some, sparse.diags_array(factor) @ block, constant * factor
        else:
            block *= factor[:, None]
            yield some, block, constant * factor


def _right(
    X: Any, counted: Array, codes: Array, constant: float, own: Posterior
) -> float:
    """Lower bound of the share of right answers on the rows, of a draw from Q."""
    low = 0.0
    variance = own.std**2
    d = X.shape[1]
    for some, block, unit in _blocks(X, counted, constant):
        mean = np.asarray(block @ own.mean[:, :d].T)
        squares = block.multiply(block) if sparse.issparse(block) else block * block
        spread = np.asarray(squares @ variance[:, :d].T)
        if constant > 0:
            mean += unit[:, None] * own.mean[:, d]
            spread += np.square(unit)[:, None] * variance[:, d]
        low += float(win_probability(mean, np.sqrt(spread), codes[some]).sum())
    return low / len(counted)


def win_probability(mean: Array, std: Array, codes: Array) -> Array:
    """P(score of the true label is the largest) for each row, from below.

    A tie counts as wrong. One column of scores stands for two classes: label 1 if it is
    positive.

    Examples
    --------
    >>> import numpy as np
    >>> from certus.verify.pac_bayes import win_probability
    >>> win_probability(np.zeros((1, 4)), np.ones((1, 4)), np.array([2])).round(2)
    array([0.25])
    """
    if mean.shape[1] == 1:
        z = np.where(codes == 1, mean[:, 0], -mean[:, 0])
        return _below(z, std[:, 0])
    low = np.empty(len(codes))
    step = max(1, CELLS // (len(NODES) * mean.shape[1]))
    borders = ndtr(NODES)
    cells = np.diff(borders)
    # Mean place of T within its cell, as a share of the cell's width.
    density = np.exp(-0.5 * NODES**2) / math.sqrt(2 * math.pi)
    place = (-np.diff(density) / cells - NODES[:-1]) / np.diff(NODES)
    for i in range(0, len(codes), step):
        part = slice(i, i + step)
        g = _others_below(mean[part], std[part], codes[part])
        with np.errstate(divide="ignore"):
            log = np.log(g)
        within = np.exp((1 - place) * log[:, :-1] + place * log[:, 1:])
        low[part] = within @ cells + g[:, -1] * (1 - borders[-1])
    return low


def _others_below(mean: Array, std: Array, codes: Array) -> Array:
    """The chance that all other scores are below the true label's, at the nodes."""
    row = np.arange(len(codes))
    g = np.ones((len(codes), len(NODES)))
    top = mean[row, codes][:, None] + std[row, codes][:, None] * NODES
    for k in range(mean.shape[1]):
        below = _below(top - mean[:, k, None], std[:, k, None])
        below[codes == k] = 1.0
        g *= below
    return g


def _below(ahead: Array, std: Array) -> Array:
    """Φ(ahead/std); without a deviation, whether ahead is positive."""
    if (std > 0).all():
        return np.asarray(ndtr(ahead / std))
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(std > 0, ndtr(ahead / std), ahead > 0)


def _invert(q: float, budget: float) -> float:
    """The largest p with kl(q ‖ p) ≤ budget, by bisection."""
    if q >= 1 or not math.isfinite(budget):
        return 1.0
    low, high = q, 1.0
    for _ in range(80):
        p = 0.5 * (low + high)
        if p >= 1 or p <= low:
            break
        value = (1 - q) * math.log((1 - q) / (1 - p))
        value += q * math.log(q / p) if q > 0 else 0.0
        low, high = (p, high) if value <= budget else (low, p)
    return high


# -- the claims -------------------------------------------------------------------


def _missed(detail: str, delta: float) -> Claim:
    return Claim(
        "pac_bayes_bound",
        Strength.STATISTICAL,
        1.0,
        None,
        False,
        delta=delta,
        detail=detail,
        fix="pass the training data, or fit again",
    )


def _bound_claim(found: Found, delta: float) -> Claim:
    text = "kl(R̂‖R) ≤ (KL + ln(2√n"
    text += f"·{found.priors}/δ))/n" if found.priors > 1 else "/δ))/n"
    objective = (
        f"{text}, R̂ = {found.error:.3g} on n = {found.n:,} rows, KL = {found.kl:.3g}"
    )
    theorem = "Seeger and Maurer's bound holds for all posteriors at once"
    if found.priors > 1:
        theorem += f"; {found.priors} prior variances share delta"
    if found.bound >= 1 - 1e-9:
        return Claim(
            "pac_bayes_bound",
            Strength.REFUSED,
            1.0,
            objective=objective,
            theorem=theorem,
            detail="the bound is 1, which says nothing",
            fix="more rows, or fewer columns",
        )
    notes: tuple[str, ...] = (*IID, SETTLED)
    if found.n_prior:
        notes += (f"the prior was learnt on {found.n_prior:,} other rows",)
    return Claim(
        "pac_bayes_bound",
        Strength.STATISTICAL,
        found.bound,
        None,
        True,
        objective=objective,
        theorem=theorem,
        assumptions=notes,
        delta=delta,
        detail=f"a drawn classifier errs on at most {100 * found.bound:.3g} % of new "
        "rows",
    )


def _error_claim(found: Found) -> Claim:
    return Claim(
        "gibbs_error",
        Strength.PROVED,
        found.error,
        None,
        True,
        objective="E over Q of the share of wrong labels",
        theorem="each row's right answers are bounded from below by log-concavity",
        detail=f"a drawn classifier errs on at most {100 * found.error:.3g} % of the "
        f"{found.n:,} rows counted",
    )


def _kl_claim(found: Found) -> Claim:
    return Claim(
        "kl_divergence",
        Strength.PROVED,
        found.kl,
        None,
        True,
        objective="KL(Q‖P), in nats",
        theorem="closed form of normal distributions",
        detail=f"the posterior is at most {found.kl:.3g} nats from its prior",
    )
