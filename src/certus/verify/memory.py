"""Associative memories: stored patterns, how many flips are repaired, energy, recall.

Hopfield networks, for patterns x^t of ±1 and fields h = Wx + b:

- unit i of pattern t has the margin κ = x_i·h_i; where all are positive, the pattern is
  a fixed point. Flipping k units changes h_i by at most the sum of the k largest
  2|W_ij|, so if that is below κ for every i, one synchronous step repairs them all.
- Changing unit i alone changes E = −½xᵀWx − bᵀx by −(x_i' − x_i)·h_i if W = Wᵀ with a
  zero diagonal. Runs from damaged patterns are replayed and no step may raise it.

Rounding: a field of n products of ±1 is right to γ_{n+2}·(Σ|W_ij| + |b_i|), and exact
where weights are whole numbers and that sum is below 2⁵³.
"""

from __future__ import annotations

import warnings
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from certus.certificate import Claim, Status
from certus.typing import Array, Fit
from certus.verify import binary_memory, cancelling, data, modern_memory, stating
from certus.verify import deciding as bd
from certus.verify.deciding import Number, U, gamma
from certus.verify.kernel import reading
from certus.verify.stating import Checked, Given
from certus.verify.stored_weights import rule_claim

#: Fields within this share of Σ|W| count as zero: the unit stays as it is.
TIE = 1e-12
#: Damaged patterns that are replayed, and the most sweeps over their units.
REPLAYED, SWEEPS = {"quick": 16, "full": 256}, {"quick": 30, "full": 1000}
#: One unit in this many is damaged at the start of a replay.
DAMAGED = 10
#: Rise of the energy, as a share of Σ|W|, that counts as rounding.
RISE = 1e-9


class Statement(NamedTuple):
    """Which memory stores the rows, and how."""

    kind: str
    rule: str = ""
    update: str = ""
    max_iter: int = 1
    binarize: float | None = 0.0
    fit_intercept: bool = False
    tol: float = 0.0


def _hopfield(model: Fit) -> Statement:
    if model.rule not in ("hebb", "projection", "margin"):
        raise stating.Refusal(f"the rule {model.rule!r} is not known", "use 'hebb'")
    if model.update not in ("asynchronous", "synchronous"):
        raise stating.Refusal(f"the update {model.update!r} is not known")
    told = (model.rule, model.update, int(model.max_iter), model.binarize)
    return Statement("hopfield", *told, bool(model.fit_intercept))


def _willshaw(model: Fit) -> Statement:
    return Statement("willshaw", binarize=model.binarize)


def _modern(model: Fit) -> Statement:
    steps = int(model.max_iter)
    return Statement("modern", max_iter=steps, tol=float(model.tol))


READERS: dict[str, stating.Reader] = {
    "HopfieldNetwork": _hopfield,
    "WillshawMemory": _willshaw,
    "ModernHopfield": _modern,
}


def check(model: Fit, stated: Statement, given: Given) -> Checked:
    """Judge a memory on the patterns that it stores."""
    bd.refuse_weights(model, given.sample_weight)
    X = data.dense(reading.as_matrix(given.X))
    n, width = X.shape[0], int(data.fitted(model, "n_features_in_", ()))
    if X.shape[1] != width:
        raise ValueError(f"X has {X.shape[1]} columns, but the model stores {width}.")
    line = np.zeros(n)
    if stated.kind == "willshaw" and given.y is not None:
        line = reading.numbers(given.y, n).reshape(n, -1).sum(axis=1)
    marks = data.fingerprint(X, line, np.ones(n))
    if stated.kind == "modern":
        claims = modern_memory.claims(model, stated.tol, X, given.level)
    elif stated.kind == "willshaw":
        cues = _ones(X, stated.binarize)
        targets = cues
        if given.y is not None:
            y = reading.numbers(given.y, n).reshape(n, -1)
            targets = _ones(y, stated.binarize, "y")
        claims = binary_memory.claims(model, X, cues, targets)
    else:
        claims = _hopfield_claims(model, stated, X, given)
    remarks = ("not_storable", "false_ones")
    return claims, _verdict(claims, remarks), marks


def _verdict(claims: list[Claim], remarks: tuple[str, ...]) -> Status:
    """The first claim stays first unless another one is missed or undecided."""
    if claims[0].met is False:
        return Status.TOL_NOT_REACHED
    return bd.verdict(claims, remarks)


def _ones(X: Array, binarize: float | None, name: str = "X") -> Array:
    """Which entries are ones."""
    if binarize is not None:
        return np.greater(X, float(binarize))
    low = -1.0 if (X < 0).any() else 0.0
    if not np.isin(X, (low, 1.0)).all():
        raise ValueError(f"{name} must hold only 0 and 1, or only -1 and 1.")
    return np.equal(X, 1.0)


# -- Hopfield networks ----------------------------------------------------------------


class RecallNetwork(NamedTuple):
    """Weights and constants, the sum of sizes by unit, and the rounding of fields."""

    W: Array
    b: Array
    sizes: Array
    off: Array

    @property
    def ties(self) -> Array:
        """Fields within these of zero leave a unit as it is."""
        return TIE * self.sizes

    def fields(self, x: Array) -> Array:
        """The fields of rows of ±1."""
        return np.asarray(x @ self.W.T + self.b)


def _network(model: Fit, n: int) -> RecallNetwork:
    W = data.fitted(model, "weights_", (n, n), finite=True).astype(np.float64)
    b = data.fitted(model, "intercept_", (n,), finite=True).astype(np.float64)
    sizes = np.abs(W).sum(axis=1) + np.abs(b)
    whole = bool((np.rint(W) == W).all() and (np.rint(b) == b).all())
    exact = whole and float(sizes.max(initial=0.0)) < 2.0**53
    off = np.zeros(n) if exact else gamma(n + 4) * sizes
    return RecallNetwork(W, b, sizes, off)


def _hopfield_claims(
    model: Fit, stated: Statement, X: Array, given: Given
) -> list[Claim]:
    x = np.where(_ones(X, stated.binarize), 1.0, -1.0)
    net = _network(model, x.shape[1])
    radii = data.fitted(model, "radius_", (len(x),), finite=True)
    low, exact = _margins(net, x)
    first = _fixed_claim(low, exact, stated, _note(X, stated.binarize))
    claims = [first, _radius_claim(net, low, radii, x.shape[1])]
    if stated.rule != "margin":
        claims.append(rule_claim(stated.rule, stated.fit_intercept, net.W, net.b, x))
    claims += _replay_claims(model, net, stated, X, x, given.level)
    if stated.rule == "margin" and given.witness is not None:
        more = cancelling.claims(given.witness, x, stated.fit_intercept)
        if more:
            claims[:1] = [replace(first, fix="store fewer patterns"), *more]
    return claims


def _note(X: Array, binarize: float | None) -> tuple[str, ...]:
    """What is said where entries were cut."""
    plain = np.isin(X, (-1.0, 1.0)).all() or np.isin(X, (0.0, 1.0)).all()
    if plain or binarize is None:
        return ()
    return (f"entries above {binarize:g} count as 1, others as −1",)


def _margins(net: RecallNetwork, x: Array) -> tuple[Array, Array]:
    """Lower bounds of x_i·h_i beyond a tie, and their computed values."""
    exact = x * net.fields(x)
    return exact - 2 * net.off - net.ties * (1 + 8 * U), exact


def _fixed_claim(
    low: Array, exact: Array, stated: Statement, note: tuple[str, ...]
) -> Claim:
    bad, total = int((low <= 0).sum()), low.size
    patterns = f"{len(low):,} stored pattern{'s' if len(low) > 1 else ''}"
    share = f"{bad:,} of {total:,} units of the {patterns}"
    lost = int((low <= 0).any(axis=1).sum())
    told = f"each of the {patterns}" if len(low) > 1 else "the stored pattern"
    if (exact <= 0).sum() == 0:
        missed = f"{share} have a margin that rounding may use up"
    else:
        missed = f"{share} have no margin; {lost:,} of {len(low):,} patterns are lost"
    fixes = {"hebb": "use rule='projection', or store fewer patterns"}
    fixes["projection"] = "use rule='margin', or store fewer patterns"
    return bd.proved(
        *("fixed_points", Number(float(bad)), 0.0, f"{told} is a fixed point"),
        missed=missed,
        objective="units with x_i·(Wx + b)_i ≤ 0, over all stored patterns",
        theorem="a state whose units all agree with their fields does not change",
        assumptions=note,
        fix=fixes.get(stated.rule, "store fewer patterns, or raise max_iter"),
    )


def _radius_claim(net: RecallNetwork, low: Array, radii: Array, n: int) -> Claim:
    """The stated radii against those that the margins allow."""
    reach = np.cumsum(-np.sort(-2 * np.abs(net.W), axis=1), axis=1)
    reach = reach * (1 + gamma(n + 2))
    proved = np.full(len(low), n, dtype=np.int64)
    for i, kept in enumerate(low.T):
        count = np.searchsorted(reach[i], kept, side="left")
        np.minimum(proved, np.where(kept > 0, count, -1), out=proved)
    over = max(float(np.max(radii - proved)), 0.0)
    least, most = int(radii.min()), int(radii.max())
    among = f" ({least} to {most} by pattern)" if most > least else ""
    told = f"any {least} flipped units are repaired in one step{among}"
    told = told.replace("any 1 flipped units are", "any flipped unit is")
    if least <= 0:
        kept = int((radii >= 0).sum())
        told = f"no flip is certain to be repaired in every pattern{among}; "
        told += f"{kept:,} of {len(radii):,} patterns are fixed points"
    return bd.proved(
        *("repair_radius", Number(over), 0.0, told),
        missed=f"radius_ promises up to {over:.3g} flips more than can be proved",
        objective="radius_ less the k for which the k largest 2|W_ij| sum to less than "
        "the margin of every unit",
        theorem="k flips change the field of a unit by at most the k largest 2|W_ij|",
        fix="fit again",
    )


# -- replays --------------------------------------------------------------------------


def _replay_claims(
    model: Fit, net: RecallNetwork, stated: Statement, X: Array, x: Array, level: str
) -> list[Claim]:
    """Recall from damaged patterns, by plain steps; energy and end of each run."""
    n = x.shape[1]
    rows = np.unique(np.linspace(0, len(x) - 1, REPLAYED[level]).astype(int))
    start, units = x[rows].copy(), np.arange(n)
    for t, row in enumerate(start):
        row[(units + t) % DAMAGED == 0] *= -1.0
    turns = stated.update == "asynchronous"
    states, sure = start.copy(), np.ones(len(rows), dtype=bool)
    rise = Number(0.0)
    run, most = (_in_turn if turns else _at_once), SWEEPS[level]
    for _ in range(min(stated.max_iter, most)):
        before = states.copy()
        worst = run(net, states, sure)
        rise = max(rise, worst, key=lambda found: found.most)
        moving = (before != states).any(axis=1)
        if not moving.any():
            break
    if stated.max_iter > most:
        sure &= ~moving  # nobody knows where these end
    claims = [_energy_claim(net, rise, turns, len(rows))]
    low, high = data.fitted(model, "values_", (2,)).tolist()
    stating.require((low, high) in ((0.0, 1.0), (-1.0, 1.0)), "values_ is not valid")
    told = predicted(model, _asked(start, X.dtype, stated.binarize))
    wrong = (np.where(states > 0, high, low) != told).any(axis=1)
    return [*claims, _recall_claim(int((wrong & sure).sum()), int(sure.sum()))]


def _asked(start: Array, dtype: Any, binarize: float | None) -> Array:
    """Rows that the model reads as these signs."""
    if binarize is None or -1.0 <= binarize < 1.0:
        return start.astype(dtype)
    return (float(binarize) + 2 * start * max(1.0, abs(binarize))).astype(dtype)


def predicted(model: Fit, X: Array) -> Array:
    """What the model makes of rows, which have lost their names."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "X does not have valid feature names")
        return np.asarray(model.predict(X))


def _in_turn(net: RecallNetwork, states: Array, sure: Array) -> Number:
    """One sweep, unit by unit, in place; the largest rise of the energy."""
    worst, room = 0.0, 0.0
    fields = net.fields(states)
    for i, tie in enumerate(net.ties.tolist()):
        h, x = fields[:, i], states[:, i]
        slack = float(8 * net.off[i] + 1e-3 * tie)
        flips = h * x < -tie
        near = np.abs(np.abs(h) - tie) <= slack
        sure &= ~(near & (slack > 0) & (tie > 0))
        if flips.any():
            # E changes by 2·x_i·h_i, x before the flip, if W is symmetric.
            change = 2 * x[flips] * h[flips]
            worst = max(worst, float(change.max()))
            room = max(room, 8 * float(net.off[i]))
            states[flips, i] *= -1.0
            # At most n of these in a sweep: with them, fields are right to 4·off.
            fields[flips] += np.outer(2 * states[flips, i], net.W[:, i])
    return Number(worst, room)


def _at_once(net: RecallNetwork, states: Array, sure: Array) -> Number:
    """One synchronous step, in place; nothing is known of the energy."""
    h = net.fields(states)
    slack = 8 * net.off + net.ties * 1e-3
    near = (np.abs(np.abs(h) - net.ties) <= slack) & (slack > 0) & (net.ties > 0)
    sure &= ~near.any(axis=1)
    states[:] = np.where(np.abs(h) > net.ties, np.sign(h), states)
    return Number(0.0)


def _energy_claim(net: RecallNetwork, rise: Number, turns: bool, runs: int) -> Claim:
    if not turns:
        reason = "units that are updated all at once may raise the energy, and "
        reason += "alternate between two states forever"
        return bd.refused("energy_rise", reason, "use update='asynchronous'")
    if not np.array_equal(net.W, net.W.T) or np.diag(net.W).any():
        reason = "the weights are not symmetric with a zero diagonal, so no energy "
        reason += "falls in each step, and recall may never rest"
        fix = "use rule='hebb' or 'projection', whose weights are symmetric"
        return bd.refused("energy_rise", reason, fix)
    size = float(net.sizes.sum())
    return bd.proved(
        *("energy_rise", Number.share(*rise, of=size), RISE),
        f"in {runs} replayed recalls no update of a unit raised the energy",
        missed="an update of a unit raised the energy",
        objective="largest rise of E = −½xᵀWx − bᵀx in an update, as a share of Σ|W|",
        theorem="with W = Wᵀ and a zero diagonal, a unit that follows its field "
        "changes E by −(x' − x)·h ≤ 0",
    )


def _recall_claim(wrong: int, sure: int) -> Claim:
    many = f"{sure} damaged patterns"
    if not sure:
        reason = "no replay came to rest without a field within rounding of a tie"
        return bd.refused("recall", reason, "")
    return bd.proved(
        *("recall", Number(float(wrong)), 0.0),
        f"predict ends where a replay by plain steps ends, for {many}",
        missed=f"predict ends elsewhere than a replay, for {wrong} of {many}",
        objective=f"rows that differ; one unit in {DAMAGED} was flipped first",
        fix="restore the model file",
    )
