"""How often the intervals of the panel miss, against how often they say they may.

Scores and labels of known laws, so that each metric's true value is known:
probabilities that are true by construction, continuous or with many ties, a rare label,
tiny samples.
"""

import math

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.special import xlogy
from scipy.stats import binom, norm

from certus.verify.amounts import amount_interval
from certus.verify.decisions import Costs, cost_intervals, recall_threshold
from certus.verify.panel import CLIP, Said, calibration_interval, panel_intervals
from certus.verify.ranking import auc_interval, average_precision_interval

DELTA = 0.1
LABELS = np.array([0, 1])

#: Probabilities that rows may have and how often: ties, near 0 and 1, hard, one value.
LAWS = {
    "ties": ([0.1, 0.4, 0.8], [0.5, 0.3, 0.2]),
    "rare": ([0.001, 0.02, 0.5], [0.8, 0.18, 0.02]),
    "sure": ([0.0, 0.999, 1.0], [0.5, 0.2, 0.3]),
    "one": ([0.3], [1.0]),
}


def draw(law, n, rng):
    p = rng.choice(law[0], size=n, p=law[1])
    return p, (rng.random(n) < p).astype(int)


def said(p, y):
    shares = np.column_stack([1 - p, p])
    return Said(y, (p >= 0.5).astype(int), shares, LABELS, 1)


def truths(law):
    """The true value of each metric, by summing over the values of p."""
    p, w = np.array(law[0]), np.array(law[1])
    share = float(w @ p)
    own = np.stack([1 - p, p])
    losses = -np.log(np.maximum(own, CLIP))
    told = p >= 0.5
    found = {
        "log_loss": float(w @ (own * losses).sum(axis=0)),
        "brier": float(w @ (p * (1 - p))),
        "error": float(w @ np.where(told, 1 - p, p)),
        "calibration": 0.0,
        "recall": float(w @ (p * told)) / share,
    }
    if w @ told > 0:
        found["precision"] = float(w @ (p * told)) / float(w @ told)
        r, q = found["recall"], found["precision"]
        found["f_beta"] = 2 * q * r / (q + r)
    up, down = w * p / share, w * (1 - p) / (1 - share)
    above = np.greater.outer(p, p) + 0.5 * np.equal.outer(p, p)
    found["auc"] = float(up @ above @ down)
    reach = np.greater_equal.outer(p, p).T  # threshold at each value
    found["average_precision"] = float(up @ ((reach @ (w * p)) / (reach @ w)))
    found["balanced_error"] = 0.5 * (
        1 - found["recall"] + float(w @ ((1 - p) * told)) / (1 - share)
    )
    return found


def misses(law, n, repeats, seed=0):
    """How often each interval misses, and how often any of them does."""
    rng = np.random.default_rng(seed)
    true = truths(law)
    count = dict.fromkeys([*true, "any"], 0)
    for _ in range(repeats):
        ends = panel_intervals(said(*draw(law, n, rng)), "auc", delta=DELTA)
        out = {
            name
            for name, value in true.items()
            if not ends[name].low - 1e-12 <= value <= ends[name].high + 1e-12
        }
        for name in out:
            count[name] += 1
        count["any"] += bool(out)
    return count


def judge(count, repeats, delta=DELTA):
    """At most what was promised; twice as much would be found out at least so often."""
    allowed = binom.ppf(0.99, repeats, delta)
    assert count <= allowed


@pytest.mark.parametrize("n", [3, 40])
@pytest.mark.parametrize("law", LAWS)
def test_the_panel_holds_together(law, n):
    count = misses(LAWS[law], n, 60)
    judge(count["any"], 60)


@pytest.mark.slow
@pytest.mark.parametrize("n", [1, 2, 5, 30, 200, 2000])
@pytest.mark.parametrize("law", LAWS)
def test_the_panel_holds_together_often(law, n):
    repeats = 400 if n < 2000 else 150
    judge(misses(LAWS[law], n, repeats, seed=n)["any"], repeats)


def normal_ap(share, apart):
    """Average precision of two normal laws, by integration."""

    def precision(t):
        up, down = norm.sf(t - apart), norm.sf(t)
        return share * up / (share * up + (1 - share) * down)

    return quad(lambda t: norm.pdf(t - apart) * precision(t), -12, apart + 12)[0]


@pytest.mark.slow
@pytest.mark.parametrize(("n", "share"), [(30, 0.5), (400, 0.1), (3000, 0.02)])
@pytest.mark.parametrize("apart", [0.0, 1.0, 4.0])
def test_rankings_of_continuous_scores(n, share, apart):
    rng = np.random.default_rng(int(10 * apart) + n)
    auc, ap = norm.cdf(apart / math.sqrt(2)), normal_ap(share, apart)
    repeats, missed = 300, np.zeros(2)
    for _ in range(repeats):
        y = rng.random(n) < share
        y[:2] = True, False
        s = rng.normal(size=n) + apart * y
        first = auc_interval(s[y], s[~y], DELTA)
        second = average_precision_interval(s[y], s[~y], DELTA)
        missed += (
            not first.low <= auc <= first.high,
            not second.low <= ap <= second.high,
        )
    judge(missed[0], repeats)
    judge(missed[1], repeats)


def test_a_narrower_auc_interval_would_be_found_out():
    """At a third of its width the interval of a coin fails twice as often as delta."""
    rng = np.random.default_rng(3)
    missed = 0
    for _ in range(400):
        y = np.repeat([True, False], 25)
        s = rng.normal(size=50)
        found = auc_interval(s[y], s[~y], DELTA)
        missed += abs(found.value - 0.5) > (found.high - found.value) / 3
    assert missed / 400 > 2 * DELTA


def test_sorted_tables_do_not_flatter_the_auc():
    rng = np.random.default_rng(0)
    up, down = rng.normal(0.5, 1, 2000), rng.normal(size=2000)
    shuffled = auc_interval(up, down, DELTA)
    in_order = auc_interval(np.sort(up), np.sort(down), DELTA)
    assert in_order.high - in_order.low > 0.9 * (shuffled.high - shuffled.low)


def test_a_cost_interval_misses_as_rarely_as_it_says():
    rng = np.random.default_rng(5)
    law, cut, costs = LAWS["rare"], 0.01, Costs(1.0, 20.0)
    p, w = (np.array(part) for part in law)

    def cost(at):
        told = p >= at
        return float(w @ np.where(told, costs.fp * (1 - p), costs.fn * p))

    true = cost(cut), cost(0.5), cost(0.5) - cost(cut)
    repeats, missed = 300, 0
    for _ in range(repeats):
        chance, y = draw(law, 150, rng)
        ends = cost_intervals(y == 1, chance, cut, costs, DELTA)
        missed += not all(e.low <= t <= e.high for e, t in zip(ends, true, strict=True))
    judge(missed, repeats)


@pytest.mark.parametrize("law", ["ties", "continuous"])
@pytest.mark.parametrize("recall", [0.5, 0.9])
def test_a_kept_recall_is_kept(law, recall):
    """The threshold comes from the same rows, and its recall holds on new ones."""
    rng = np.random.default_rng(6)
    repeats, lost = 400, 0
    for _ in range(repeats):
        if law == "ties":
            chance, y = draw(LAWS["ties"], 300, rng)
        else:
            chance = rng.random(300)
            y = (rng.random(300) < chance).astype(int)
        found = recall_threshold(y == 1, chance, recall, DELTA)
        if found.threshold is None:
            continue
        at = found.threshold
        if law == "ties":
            p, w = (np.array(part) for part in LAWS["ties"])
            kept = float(w @ (p * (p >= at))) / float(w @ p)
            alarms = float(w @ ((1 - p) * (p >= at))) / float(w @ (1 - p))
        else:
            kept, alarms = 1 - at**2, (1 - at) ** 2
        lost += kept < recall or not found.alarms.low <= alarms <= found.alarms.high
    judge(lost, repeats)


@pytest.mark.parametrize("off", [0.0, 0.15])
def test_calibration_has_an_interval(off):
    """Probabilities that are true, and such that are too high by a known amount."""
    rng = np.random.default_rng(7)
    repeats, missed, wide = 200, 0, []
    for _ in range(repeats):
        p = rng.choice([0.1, 0.3, 0.5, 0.7], 800)
        y = (rng.random(800) < p).astype(int)
        found = calibration_interval(said(p + off, y), DELTA)
        missed += not found.low <= off <= found.high
        wide.append(found.high - found.low)
    judge(missed, repeats)
    assert np.mean(wide) < 0.4


@pytest.mark.slow
@pytest.mark.parametrize("metric", ["rmse", "mae", "r2", "pinball", "poisson", "gamma"])
@pytest.mark.parametrize("n", [5, 60, 1000])
def test_bounded_amounts(metric, n):
    """A heavy tail within the bounds: a rare value at the end governs the mean."""
    rng = np.random.default_rng(8)
    low = 0.01 if metric in ("poisson", "gamma") else 0.0
    values, w = np.array([low, 0.1, 1.0]), np.array([0.6, 0.37, 0.03])
    guess, q = 0.05, 0.9
    mean = w @ values
    square = w @ (values - guess) ** 2
    short = values - guess
    true = {
        "rmse": math.sqrt(square),
        "mae": w @ np.abs(short),
        "r2": 1 - square / (w @ (values - mean) ** 2),
        "pinball": w @ np.maximum(q * short, (q - 1) * short),
        "poisson": w @ (2 * (xlogy(values, values / guess) - short)),
        "gamma": w @ (2 * (values / guess - 1 - np.log(values / guess + (low == 0)))),
    }[metric]
    repeats, missed = 400, 0
    for _ in range(repeats):
        y = rng.choice(values, n, p=w)
        ends = amount_interval(y, np.full(n, guess), metric, (low, 1.0), DELTA, q)
        missed += not ends.low <= true <= ends.high
    judge(missed, repeats)
