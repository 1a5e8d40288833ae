"""Restricted Boltzmann machines: the likelihood of binary rows.

    p(v) = exp(−F(v))/Z,   F(v) = −b·v − Σ_j softplus(c_j + W_j·v)
    Z = Σ_h exp(c·h)·Π_i (1 + exp(b_i + (Wᵀh)_i)),  or the same sum over v

Where the smaller layer has at most 20 units, its 2^m states are all added up: the
likelihood is exact. The states are split in two halves, so that each exponential of a
field is a product of two that are computed once. Level "quick" does so up to 20 units
beside 1,024 of the larger layer, level "full" always.

Above that, annealed importance sampling from independent units gives an unbiased Ẑ:
E Ẑ = Z. By Markov's inequality Ẑ < Z/δ except with probability δ, so that
log p(v) ≤ −F(v) − log Ẑ + log(1/δ). How far Ẑ is too small nobody knows: that side is
measured.

Rounding of the exact sum: a field is right to γ_{m+4}·S_i, S_i = |b_i| + Σ|W_ki|, and
softplus passes that on; logarithms and sums of N units add γ_{N+16}(S_i + 1), the
exponentials, the sums over subsets of three and the products 24u for each unit, the sum
over states γ of its two halves.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from certus.certificate import Claim, Status, Strength
from certus.typing import Array, Fit, Matrix
from certus.verify import data, stating
from certus.verify import deciding as bd
from certus.verify.deciding import Number, U, gamma
from certus.verify.kernel import reading
from certus.verify.stating import Checked, Given

#: Units of the smaller layer up to which all states are added.
MOST = 20
#: States times units that level "quick" adds up, in a second or two; and without
#: products, where the weights are so large that exponentials leave the range.
QUICK, QUICK_WIDE = 1 << 30, 1 << 26
#: Bits of the first half of a state, and the largest sum of exponents of a product.
HALF, WIDE = 10, 600.0
#: Columns that are multiplied out together, and halves that are taken at a time.
GROUP, ROWS = 3, 32
#: Chains, the failure probability, and by level the most products and temperatures.
CHAINS, DELTA = 32, 0.05
WORK = {"quick": (2e9, 400), "full": (4e10, 5000)}
#: Cells of rows that are looked at together, and the size of a weight that diverged.
CELLS, LARGEST = 1 << 22, 1e100
_PER_ROW = "mean over the rows of −log p(x), in nats"


class Statement(NamedTuple):
    """A machine of two layers of binary units."""

    n_components: int


def _read(model: Fit) -> Statement:
    return Statement(int(model.n_components))


READERS: dict[str, stating.Reader] = {"BernoulliRBM": _read}


class BoltzmannMachine(NamedTuple):
    """Weights (hidden × visible) and the constants of both layers."""

    W: Array
    c: Array
    b: Array

    def free_energy(self, V: Array) -> tuple[Array, float]:
        """F of each row, and a bound on its rounding."""
        h, v = self.W.shape
        fields = V @ self.W.T + self.c
        sizes = float((np.abs(self.c) + np.abs(self.W).sum(axis=1) + 1).sum())
        sizes += float(np.abs(self.b).sum())
        found = -(V @ self.b) - np.logaddexp(0.0, fields).sum(axis=1)
        return found, gamma(v + h + 24) * sizes


def check(model: Fit, stated: Statement, given: Given) -> Checked:
    """State how likely the rows are."""
    bd.refuse_weights(model, given.sample_weight)
    X = reading.as_matrix(given.X)
    n, v = X.shape
    marks = data.fingerprint(X, np.zeros(n), np.ones(n))
    shape = (stated.n_components, v)
    parts = [data.fitted(model, "components_", shape)]
    parts.append(data.fitted(model, "intercept_hidden_", shape[:1]))
    parts.append(data.fitted(model, "intercept_visible_", shape[1:]))
    machine = BoltzmannMachine(*(part.astype(np.float64) for part in parts))
    name, fix = "exact_likelihood", "lower learning_rate"
    if not all((np.abs(part) < LARGEST).all() for part in machine):
        reason = "the weights are NaN, infinite or far too large"
        return [bd.refused(name, reason, fix)], Status.DIVERGED, marks
    cells = X if isinstance(X, np.ndarray) else X.data
    if not ((cells == 0) | (cells == 1)).all():
        reason = "only rows of zeros and ones have a likelihood; X holds other numbers"
        fix = "cut X into zeros and ones (sklearn.preprocessing.binarize)"
        return [bd.refused(name, reason, fix)], Status.UNDECIDED, marks
    claims = _claims(machine, X, given.level)
    return claims, Status.SOLVED, marks


def _claims(machine: BoltzmannMachine, X: Matrix, level: str) -> list[Claim]:
    small = min(machine.W.shape)
    energy = _mean_energy(machine, X)
    beside = f"independent columns: {_independent(X):.4g}"
    if small <= MOST and (level == "full" or _is_quick(machine)):
        level_z = log_partition(machine)
        found = Number(energy.value + level_z.value, energy.rounding + level_z.rounding)
        told = f"−log p is {found.value:.4g} nats on average over {X.shape[0]:,} rows "
        told += f"({beside}); all {2**small:,} states were added up"
        return [
            bd.proved(
                *("exact_likelihood", found, None, told),
                objective=_PER_ROW,
                theorem="Z = Σ over all states of the smaller layer, the larger one "
                "added up in closed form",
            )
        ]
    return _annealed_claims(machine, X, energy, level, beside)


def _is_quick(machine: BoltzmannMachine) -> bool:
    """Whether all states are added up at level "quick"."""
    small, large = sorted(machine.W.shape)
    if 2**small * large <= QUICK_WIDE:
        return True
    return 2**small * large <= QUICK and _halves(machine).columns() > 0


def _mean_energy(machine: BoltzmannMachine, X: Matrix) -> Number:
    """The mean of F over the rows."""
    n, total, worst = X.shape[0], 0.0, 0.0
    step = max(1, CELLS // max(machine.W.shape))
    for start in range(0, n, step):
        part = data.dense(X[start : start + step]).astype(np.float64)
        found, off = machine.free_energy(part)
        total, worst = total + math.fsum(found), max(worst, off)
    return Number(total / n, worst + gamma(n // step + 4) * abs(total / n))


def _independent(X: Matrix) -> float:
    """Mean −log p of the rows if all columns were independent, with their own means."""
    p = np.asarray(X.sum(axis=0), dtype=np.float64).ravel() / X.shape[0]
    inner = p[(p > 0) & (p < 1)]
    whole = (inner * np.log(inner) + (1 - inner) * np.log1p(-inner)).sum()
    return abs(float(whole))


# -- the sum over all states ----------------------------------------------------------


def log_partition(machine: BoltzmannMachine) -> Number:
    """Log Z by all states of the smaller layer, with its rounding."""
    states = _halves(machine)
    m, N = states.low.shape[1] + states.high.shape[1], states.L.shape[1]
    levels = states.starts + states.ends[:, None] + _softplus_sums(states)
    top = float(levels.max())
    total = math.fsum(np.exp(levels - top).sum(axis=1))
    off = (gamma(m + 4) + gamma(N + 16) + 8 * U) * states.whole + 24 * U * N
    return Number(top + math.log(total), off + gamma(levels.shape[1] + 24))


class _Halves(NamedTuple):
    """All states of the smaller layer: one of ``low`` beside one of ``high``."""

    low: Array
    high: Array
    #: What a half adds to the fields of the larger layer, and to the exponent.
    L: Array
    H: Array
    starts: Array
    ends: Array
    whole: float  # bounds any sum of softplus(field) and the exponent

    def columns(self) -> int:
        """How many factors 1 + exp(field) stay in range when they are multiplied."""
        reach = float(np.abs(self.L).max(initial=0.0) + np.abs(self.H).max(initial=0.0))
        return int(WIDE / (reach + 1))


def _halves(machine: BoltzmannMachine) -> _Halves:
    W, own, other = machine.W, machine.c, machine.b
    if W.shape[0] > W.shape[1]:
        W, own, other = W.T, other, own
    half = min(len(W), HALF)
    low, high = _states(half), _states(len(W) - half)
    sizes = np.abs(other) + np.abs(W).sum(axis=0) + 1
    return _Halves(
        *(low, high, low @ W[:half] + other, high @ W[half:]),
        *(low @ own[:half], high @ own[half:]),
        float(sizes.sum() + np.abs(own).sum()),
    )


def _softplus_sums(states: _Halves) -> Array:
    """Σ_i softplus(L_li + H_ki) for each pair of halves (k, l).

    The product of g factors 1 + e_i·f_i is the sum over all subsets of the g columns of
    Π e_i·Π f_i: one product of matrices for each group of columns and some halves k.
    """
    L, H = states.L, states.H
    span = states.columns()
    found = np.zeros((len(H), len(L)))
    if not span:
        for line, fields in zip(found, H):
            line += np.logaddexp(0.0, L + fields).sum(axis=1)
        return found
    g = min(GROUP, span)
    E, F = _subsets(np.exp(L), g), _subsets(np.exp(H), g)
    for start in range(0, len(H), ROWS):
        rows = slice(start, start + ROWS)
        products = np.ones_like(found[rows])
        for i in range(len(E)):
            products *= F[i, rows] @ E[i].T
            if i % (span // g) == span // g - 1:
                found[rows] += np.log(products)
                products[:] = 1.0
        found[rows] += np.log(products)
    return found


def _subsets(E: Array, g: int) -> Array:
    """For each group of g columns, the products of the columns of each subset."""
    E = np.hstack([E, np.zeros((len(E), -E.shape[1] % g))])
    groups = E.reshape(len(E), -1, g).transpose(1, 0, 2)
    found = np.ones((len(groups), len(E), 1))
    for i in range(g):
        found = np.concatenate([found, found * groups[:, :, i : i + 1]], axis=2)
    return found


def _states(m: int) -> Array:
    """All 2^m rows of m zeros and ones."""
    return ((np.arange(2**m)[:, None] >> np.arange(m)) & 1).astype(np.float64)


# -- annealed importance sampling -----------------------------------------------------


def annealed(machine: BoltzmannMachine, means: Array, level: str) -> tuple[float, int]:
    """Log Ẑ with E Ẑ = Z, from chains that go from independent units to the machine.

    log p*_t(v) = ((1 − t)a + t·b)·v + Σ_j softplus(t(c_j + W_j·v)); p*_0 is a product
    with Z₀ = 2^h Π(1 + exp a_i), from which the chains begin.
    """
    W, c, b = machine
    h, v = W.shape
    rng = np.random.default_rng([2, h, v])
    work, most = WORK[level]
    steps = int(min(max(work / (4.0 * h * v * CHAINS), 50), most))
    a = np.log(means) - np.log1p(-means)
    V = (rng.random((CHAINS, v)) < means).astype(np.float64)
    fields = V @ W.T + c
    logs, before = np.zeros(CHAINS), 0.0
    for t in np.linspace(0.0, 1.0, steps + 1)[1:]:
        logs += (t - before) * (V @ (b - a))
        logs += np.logaddexp(0.0, t * fields).sum(axis=1)
        logs -= np.logaddexp(0.0, before * fields).sum(axis=1)
        hidden = (rng.random((CHAINS, h)) < _sigmoid(t * fields)).astype(np.float64)
        push = (1 - t) * a + t * (b + hidden @ W)
        V = (rng.random((CHAINS, v)) < _sigmoid(push)).astype(np.float64)
        fields, before = V @ W.T + c, t
    top = float(logs.max())
    mean = top + math.log(float(np.exp(logs - top).mean()))
    return mean + h * math.log(2) + float(np.logaddexp(0.0, a).sum()), steps


def _sigmoid(x: Array) -> Array:
    return np.exp(-np.logaddexp(0.0, -x))


def _annealed_claims(
    machine: BoltzmannMachine, X: Matrix, energy: Number, level: str, beside: str
) -> list[Claim]:
    n = X.shape[0]
    means = (np.asarray(X.sum(axis=0), dtype=np.float64).ravel() + 1) / (n + 2)
    guess, steps = annealed(machine, means, level)
    value = energy.value + guess
    least = value - math.log(1 / DELTA) - 1e-9 * (1 + abs(value)) - energy.rounding
    run = f"{CHAINS} chains of {steps:,} temperatures"
    small = min(machine.W.shape)
    fix = "certify(level='full') adds up all states" if small <= MOST else ""
    return [
        Claim(
            *("annealed_bound", Strength.STATISTICAL, least, None, None, _PER_ROW),
            theorem="annealed importance sampling has E Ẑ = Z, so by Markov's "
            "inequality Ẑ < Z/δ with probability 1 − δ",
            assumptions=("over the random numbers of the chains",),
            delta=DELTA,
            detail=f"−log p is at least {least:.4g} nats on average over {n:,} rows "
            f"({run})",
            fix=fix,
        ),
        bd.measured(
            *("annealed_estimate", value),
            f"−log p is about {value:.4g} nats on average ({beside}); it is more if "
            "the chains missed a part of the states",
            objective=_PER_ROW,
        ),
    ]
