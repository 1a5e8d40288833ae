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

Rounding: a score is off by at most γ‖x‖‖M‖, which moves Φ by 0.4/s of it; a relative
error ρ of a deviation moves it by ρ/4, and by 2.4ρ·s_y/sₖ at the nodes.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse
from scipy.special import expit, ndtr, rel_entr, softmax

from certus.certificate import Claim, Status, Strength
from certus.evidence import PriorWitness
from certus.typing import Array, Fit, Matrix
from certus.verify import data, stating
from certus.verify.deciding import Number, U, gamma, length, refuse_weights, refused
from certus.verify.kernel import reading
from certus.verify.stating import Checked, Given

#: Prior variances that a fit may choose from; a union bound accounts for the choice.
VARIANCES = tuple(4.0**-j for j in range(10))
#: Where g is computed.
NODES = np.linspace(-6.0, 6.0, 97)
#: Error of Φ, exp, log and sums over nodes; of kl(q‖p), whose logarithms are below 40.
ROUNDING, KL_ROUNDING = 2.0**-44, 1e-13
#: A prior farther from its minimiser, in standard deviations, belongs to other rows.
ASTRAY = 0.1
#: Scores held, and rows added up, at a time.
CELLS, RUN = 1 << 20, 1024
_NOTES = (
    "all rows, old and new, are drawn independently from one distribution",
    "columns and parameters were chosen without looking at the rows counted",
)


class Statement(NamedTuple):
    """The prior, and how sure the bound is to be."""

    learnt: bool
    fraction: float
    alpha: float
    delta: float
    constant: float
    seed: Any  # None for the first rows, "witness" where no parameter tells it
    variance: float


def _stochastic(model: Fit) -> Statement:
    learnt, state = model.prior == "half", model.random_state
    seed: Any = None
    if learnt and model.shuffle:
        seed = "witness"
        if state is None or isinstance(state, int | np.integer):
            seed = int(np.random.RandomState(state or 0).randint(2**31 - 1))
    constant = float(model.intercept_scaling) if model.fit_intercept else 0.0
    known = (float(model.fraction), float(model.alpha), float(model.delta), constant)
    if not (0 < known[0] < 1 and known[1] > 0 and 0 < known[2] < 1 and constant >= 0):
        raise stating.Refusal("fraction, alpha or delta are outside their range")
    return Statement(learnt, *known, seed, float(model.prior_variance_))


READERS: dict[str, stating.Reader] = {"StochasticLinearClassifier": _stochastic}


class Prior(NamedTuple):
    """N(M₀, λI) for rows in units of ``size``, M₀ within ``radius`` of ``centre``."""

    centre: Array
    counted: Array  # rows that it was not learnt on
    size: float = 1.0
    radius: float = 0.0


def check(model: Fit, stated: Statement, given: Given) -> Checked:
    """Recompute KL(Q‖P), the error of Q on the rows counted, and the bound."""
    refuse_weights(model, given.sample_weight)
    X = reading.as_matrix(given.X)
    codes = reading.codes(given.y, np.asarray(model.classes_), X.shape[0])
    marks = data.fingerprint(X, codes.astype(np.float64), np.ones(len(codes)))
    X = sparse.csr_array(X) if sparse.issparse(X) else X
    try:
        claims = _recompute(model, stated, given.witness, X, codes)
    except stating.Refusal as refusal:
        claim = Claim(
            *("pac_bayes_bound", Strength.STATISTICAL, 1.0, None, False),
            delta=stated.delta,
            detail=refusal.reason,
            fix="pass the training data, or fit again",
        )
        return [claim], Status.TOL_NOT_REACHED, marks
    return claims, Status.SOLVED if claims[0].met else Status.UNDECIDED, marks


def _recompute(
    model: Fit, stated: Statement, witness: object, X: Matrix, codes: Array
) -> list[Claim]:
    """The claims, or a refusal that says why the model or its witness is not valid."""
    k = 1 if len(model.classes_) == 2 else len(model.classes_)
    mean, std = (_weights(model, stated, (k, X.shape[1]), end) for end in ("", "std_"))
    if not (np.isfinite(mean).all() and np.isfinite(std).all() and (std > 0).all()):
        lost = "the posterior holds NaN, infinity or standard deviations of zero"
        raise stating.Refusal(lost)
    grid = VARIANCES if stated.learnt else (1.0,)
    if stated.variance not in grid:
        lost = "the variance of the prior is not on the grid that was fixed in advance"
        raise stating.Refusal(lost)
    prior = Prior(np.zeros(mean.shape), np.arange(len(codes)))
    if stated.learnt:
        prior = _prior(X, codes, stated, witness, mean.shape)
    kl = _divergence(mean * prior.size, std * prior.size, prior, stated.variance)
    error = _error(X, prior.counted, codes, stated.constant, (mean, std))
    n, wrong = len(prior.counted), min(1.0, error.most)
    logs = math.log(2 * math.sqrt(n) * len(grid) / stated.delta)
    bound = _invert(wrong, (kl.most + logs) / n + KL_ROUNDING)
    text = f"kl(R̂‖R) ≤ (KL + ln(2√n·K/δ))/n, R̂ = {wrong:.3g} on n = {n:,} rows, "
    text += f"KL = {kl.most:.3g}, K = {len(grid)}"
    return [
        _bound_claim(bound, text, stated, len(codes) - n),
        Claim(
            *("gibbs_error", Strength.PROVED, wrong, None, True),
            objective="E over Q of the share of wrong labels",
            theorem="log-concavity bounds the correct answers for each row",
            allowance=error.rounding,
            detail=f"predictions are wrong on at most {100 * wrong:.3g} % of the "
            f"{n:,} rows counted",
        ),
        Claim(
            *("kl_divergence", Strength.PROVED, kl.most, None, True),
            objective="KL(Q‖P), in nats",
            theorem="closed form of normal distributions",
            allowance=kl.rounding,
            detail=f"the posterior is at most {kl.most:.3g} nats away from its prior",
        ),
    ]


def _bound_claim(bound: float, text: str, stated: Statement, n_prior: int) -> Claim:
    theorem = "Seeger and Maurer's bound holds for all posteriors at once; K prior "
    words: Any = {"objective": text, "theorem": theorem + "variances share delta"}
    if bound >= 1 - 1e-9:
        said = "the bound is 1: it says nothing", "use more rows or fewer columns"
        return refused("pac_bayes_bound", *said, value=1.0, **words)
    learnt = (f"the prior was learned on {n_prior:,} other rows",)
    return Claim(
        *("pac_bayes_bound", Strength.STATISTICAL, bound, None, True),
        assumptions=_NOTES + (learnt if n_prior else ()),
        delta=stated.delta,
        detail=f"predictions are wrong on at most {100 * bound:.3g} % of new rows",
        **words,
    )


def _weights(model: Any, stated: Statement, shape: tuple[int, int], end: str) -> Array:
    """Means or deviations of the weights of x and, last, of the constant."""
    coef = data.fitted(model, f"coef_{end}", shape).astype(np.float64)
    if stated.constant == 0:
        return coef
    last = data.fitted(model, f"intercept_{end}", shape[:1]).astype(np.float64)
    return np.column_stack([coef, last / stated.constant])


def _divergence(mean: Array, std: Array, prior: Prior, variance: float) -> Number:
    """KL(N(mean, std²) ‖ prior) at the worst place that its mean may have."""
    ratio = np.square(std) / variance
    spread = 0.5 * float(np.sum(ratio - 1.0 - np.log(ratio)))
    shift = length(mean - prior.centre) + prior.radius
    shift += 4 * U * (length(mean) + length(prior.centre))
    away = 0.5 * shift**2 / variance
    sizes = away + float(np.sum(ratio + 1.0 + np.abs(np.log(ratio))))
    return Number(max(0.0, spread) + away, gamma(ratio.size + 16) * sizes)


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


def _prior(
    X: Matrix, codes: Array, stated: Statement, witness: object, shape: tuple[int, ...]
) -> Prior:
    """The prior that the fit has stored, if it follows from these rows."""
    centre = np.asarray(getattr(witness, "prior_mean", None))
    if centre.shape != shape or centre.dtype.kind != "f" or len(codes) < 2:
        raise stating.Refusal("the model has no prior")
    seed = stated.seed
    if seed == "witness" and isinstance(witness, PriorWitness):
        seed = witness.seed
    if not isinstance(seed, int | None):
        raise stating.Refusal("it is not known on which rows the prior was learned")
    n_prior = min(max(1, round(stated.fraction * len(codes))), len(codes) - 1)
    seen, counted = split_rows(len(codes), n_prior, seed)
    # Only these rows are used, even for scaling, because the prior depends on it.
    own = _block(X, seen, stated.constant)
    size = length(own.data if sparse.issparse(own) else own.ravel())
    size = size / math.sqrt(len(seen)) or 1.0
    radius = _distance(X, seen, codes, stated, centre, size)
    if not radius <= ASTRAY * math.sqrt(stated.variance):
        raise stating.Refusal("the prior differs from the one that these rows give")
    return Prior(centre, counted, size, radius)


def _distance(
    X: Matrix, seen: Array, codes: Array, stated: Statement, centre: Array, size: float
) -> float:
    """How far the minimiser of mean log loss + ½α‖M‖² can be from ``centre``.

    The objective is α-strongly convex, so no further than ‖gradient‖/α. Rows have a
    mean square length of one, slopes a length of √2 at most and a slope of ½.
    """
    total, (k, d) = np.zeros(centre.shape), centre.shape
    labels = np.array([1]) if k == 1 else np.arange(k)
    for i in range(0, len(seen), RUN):
        some = seen[i : i + RUN]
        rows = _block(X, some, stated.constant) / size
        z = rows @ centre.T
        share = expit(z) if k == 1 else softmax(z, axis=1)
        total += (rows.T @ (share - (codes[some][:, None] == labels))).T
    terms = min(len(seen), RUN) + len(seen) // RUN + d + 48
    lost = gamma(terms) * (3 + (1 + stated.alpha) * length(centre))
    slope = total / len(seen) + stated.alpha * centre
    away = (length(slope) + lost) / stated.alpha
    return away if math.isfinite(away) else math.inf


# -- the error on the rows --------------------------------------------------------


def _block(X: Matrix, some: Array, constant: float) -> Any:
    """Some rows in float64, with the constant that the last weight stands for."""
    rows = X[some].astype(np.float64)
    if not constant:
        return rows
    join: Any = sparse.hstack if sparse.issparse(rows) else np.hstack
    return join([rows, np.full((len(some), 1), constant)])


def _error(
    X: Matrix, counted: Array, codes: Array, constant: float, own: tuple[Array, Array]
) -> Number:
    """The share of wrong answers of a draw from Q, from above."""
    right = lost = 0.0
    mean, variance = own[0], np.square(own[1])
    sizes, unit = np.linalg.norm(mean, axis=1), gamma(mean.shape[1] + 24)
    together = max(1, CELLS // max(X.shape[1], len(NODES) * len(mean)))
    for i in range(0, len(counted), together):
        some = counted[i : i + together]
        rows, label = _block(X, some, constant), codes[some]
        # A common factor changes no comparison of scores; it keeps squares in range.
        total = abs(rows).sum(axis=1)
        rows = sparse.diags_array(1.0 / np.where(total > 0, total, 1.0)) @ rows
        squares = rows**2
        std = np.sqrt(squares @ variance.T)
        won = win_probability(rows @ mean.T, std, label)
        right += float(won[(std > 0).all(axis=1)].sum())  # others count as wrong
        norms = np.sqrt(squares.sum(axis=1))[:, None]
        top, steep = np.zeros((len(some), 1)), std[:, :1]
        if len(mean) > 1:
            top = sizes[label][:, None]
            steep = np.take_along_axis(std, label[:, None], axis=1)
        with np.errstate(divide="ignore", invalid="ignore"):
            moved = (0.4 * norms * (sizes + top) + 2.4 * steep) / std
        lost += unit * float(np.where(std > 0, moved + 0.5, 0.0).sum())
    n = len(counted)
    return Number(1.0 - right / n, lost / n + ROUNDING * len(mean))


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
    borders = ndtr(NODES)
    cells = np.diff(borders)
    # Mean position of T within its cell, as a share of the cell's width.
    density = np.exp(-0.5 * NODES**2) / math.sqrt(2 * math.pi)
    place = (-np.diff(density) / cells - NODES[:-1]) / np.diff(NODES)
    g = _others_below(mean, std, codes)
    with np.errstate(divide="ignore"):
        log = np.log(g)
    within = np.exp((1 - place) * log[:, :-1] + place * log[:, 1:])
    return np.asarray(within @ cells + g[:, -1] * (1 - borders[-1]))


def _others_below(mean: Array, std: Array, codes: Array) -> Array:
    """The chance that all other scores are below the true label's, at the nodes."""
    own = codes[:, None]
    top, spread = (np.take_along_axis(part, own, axis=1) for part in (mean, std))
    ahead = (top + spread * NODES)[:, None, :] - mean[:, :, None]
    below = _below(ahead, std[:, :, None])
    np.put_along_axis(below, own[:, :, None], 1.0, axis=1)
    return np.asarray(below.prod(axis=1))


def _below(ahead: Array, std: Array) -> Array:
    """Φ(ahead/std); without a deviation, whether ahead is positive."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(std > 0, ndtr(ahead / std), ahead > 0)


def _invert(q: float, budget: float) -> float:
    """The largest p with kl(q ‖ p) ≤ budget, by bisection."""
    low, high = (q, 1.0) if math.isfinite(budget) else (1.0, 1.0)
    while low < (p := 0.5 * (low + high)) < high:
        within = rel_entr(q, p) + rel_entr(1 - q, 1 - p) <= budget
        low, high = (p, high) if within else (low, p)
    return high
