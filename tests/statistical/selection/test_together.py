"""All that is said about one set of rows holds together, decisions and floors included.

The model gives the true probabilities of a known law, so that the truth of every
statement is known: metrics, costs of a threshold, coverage given the calibration rows.
"""

import numpy as np
import pytest
from scipy.stats import binom

from certus.conformal import Conformal
from certus.selection.metrics import find_metric
from certus.selection.opening import AskedMetric, open_rows
from certus.verify import large_error_claim
from certus.verify.conformal import coverage_claims
from certus.verify.decisions import Costs, cost_intervals, recall_threshold
from certus.verify.panel import _PANEL, Said
from certus.verify.together import DeltaShares

DELTA = 0.1
LABELS = np.array([0, 1])
P = np.array([0.02, 0.15, 0.3, 0.45, 0.6, 0.75, 0.95])
W = np.array([0.3, 0.15, 0.15, 0.1, 0.1, 0.1, 0.1])
COSTS, CUT = Costs(1.0, 4.0), 0.2


class Knows(Conformal):
    """Says the probability that its only column holds."""

    classes_ = LABELS

    def predict_proba(self, X):
        return np.column_stack([1 - X[:, 0], X[:, 0]])

    def predict(self, X):
        return (X[:, 0] >= 0.5).astype(int)


def draw(n, rng):
    p = rng.choice(P, size=n, p=W)
    return p[:, None], (rng.random(n) < p).astype(int)


def cost(at):
    told = at <= P
    return float(W @ np.where(told, COSTS.fp * (1 - P), COSTS.fn * P))


def truths():
    told, share = P >= 0.5, float(W @ P)
    own = np.stack([1 - P, P])
    found = {
        "log_loss": float(W @ -(own * np.log(own)).sum(axis=0)),
        "brier": float(W @ (P * (1 - P))),
        "error": float(W @ np.where(told, 1 - P, P)),
        "recall": float(W @ (P * told)) / share,
        "precision": float(W @ (P * told)) / float(W @ told),
        "calibration": 0.0,
    }
    r, q = found["recall"], found["precision"]
    found["f_beta"] = 2 * r * q / (r + q)
    alarms = float(W @ ((1 - P) * told)) / (1 - share)
    found["balanced_error"] = 0.5 * (1 - r + alarms)
    return found


TRUE = truths()


def covered(score):
    """The true share of rows whose own score, 1 − p(y), is at most this."""
    ones, zeros = P * (score >= 1 - P), (1 - P) * (score >= P)
    return float(W @ (ones + zeros))


def misses(shares, X, y):
    """Which statements fail on rows, each at its share of delta."""
    p = X[:, 0]
    said = Said(y, (p >= 0.5).astype(int), np.column_stack([1 - p, p]), LABELS, 1)
    out = set()
    for name, value in TRUE.items():  # the ranking metrics are in test_panel
        part = shares.asked if name == "log_loss" else shares.other
        ends = _PANEL[name][0](said, part, 1.0)
        if not ends.low - 1e-12 <= value <= ends.high + 1e-12:
            out.add(name)
    priced = cost_intervals(y == 1, p, CUT, COSTS, shares.asked)
    true = cost(CUT), cost(0.5), cost(0.5) - cost(CUT)
    if not all(e.low <= t <= e.high for e, t in zip(priced, true, strict=True)):
        out.add("cost")
    scores = np.sort(np.where(y == 1, 1 - p, p))
    floor = coverage_claims(
        scores, "probability", delta=shares.whole, share=shares.other / shares.whole
    )[1]
    at = scores[-(-(len(y) + 1) * 9 // 10) - 1]
    if covered(at) < floor.value:
        out.add("coverage_floor")
    return out


def shares_of(n, rng, delta=DELTA):
    X, y = draw(n, rng)
    asked = AskedMetric("binary", find_metric("log_loss", "binary"), 1)
    asked = asked._replace(costs=tuple(COSTS), threshold=CUT)
    return open_rows(Knows(), X, y, asked, calibrates=True, delta=delta).shares


@pytest.mark.parametrize("n", [30, 250])
def test_everything_said_of_the_rows_holds_together(n):
    rng = np.random.default_rng(n)
    shares, repeats = shares_of(n, rng), 200
    missed = sum(bool(misses(shares, *draw(n, rng))) for _ in range(repeats))
    assert missed <= binom.ppf(0.99, repeats, DELTA)


def test_at_full_delta_each_they_would_not_hold_together():
    """The test above can fail."""
    rng = np.random.default_rng(0)
    whole, repeats = DeltaShares(DELTA, DELTA, DELTA, 1), 200
    missed = sum(bool(misses(whole, *draw(250, rng))) for _ in range(repeats))
    assert missed > binom.ppf(0.99, repeats, DELTA)


def test_shares_add_up_to_delta_whatever_is_asked():
    """The union bound over every statement that open_rows makes."""
    rng = np.random.default_rng(1)
    X, y = draw(400, rng)
    base = AskedMetric("binary", find_metric("auc", "binary"), 1)
    for more in ({}, {"costs": (1.0, 4.0), "threshold": 0.2}, {"recall": 0.5}):
        found = open_rows(Knows(), X, y, base._replace(**more), calibrates=True)
        made = [c for c in found.claims if c.delta is not None]
        asked = 1 + bool(more)
        # A decision is one statement in several sentences.
        parts = {"cost_saved", "false_alarms"}
        said = 1 + len([c for c in made if c.name not in parts])  # and the floor
        assert found.shares.number == said
        spent = asked * found.shares.asked + (said - asked) * found.shares.other
        assert spent == pytest.approx(0.05)
        assert {c.delta for c in made} == {0.05}
        assert all(f"all {said} statements" in c.theorem for c in made)


def test_large_errors_and_the_floor_hold_together():
    """Of amounts without bounds, these two are all that has a guarantee."""

    class Zero(Conformal):
        def predict(self, X):
            return np.zeros(len(X))

    rng = np.random.default_rng(2)
    asked = AskedMetric("regression", find_metric("rmse", "regression"), far=0.9)
    repeats, missed, n = 400, 0, 60
    y = rng.uniform(-1, 1, n)
    opened = open_rows(Zero(), y[:, None], y, asked, calibrates=True, delta=DELTA)
    assert opened.shares.number == 2 and opened.claims[-1].name == "large_error"
    words = {"shares": opened.shares, "groups": None, "rows": "rows"}
    for _ in range(repeats):
        scores = np.sort(np.abs(rng.uniform(-1, 1, n)))
        large = large_error_claim(scores, 0.9, **words)
        assert large.met is None
        share = opened.shares.other / DELTA
        floor = coverage_claims(scores, "residual", delta=DELTA, share=share)[1]
        at = scores[-(-(n + 1) * 9 // 10) - 1]  # the true coverage of ±at is at
        missed += large.value < 0.1 or at < floor.value
    assert missed <= binom.ppf(0.99, repeats, DELTA)


def test_a_kept_recall_and_its_precision_hold_together():
    """Recall, false alarms and precision of the threshold on new rows."""
    rng = np.random.default_rng(3)
    repeats, missed = 400, 0
    for _ in range(repeats):
        X, y = draw(300, rng)
        found = recall_threshold(y == 1, X[:, 0], 0.7, DELTA)
        told = found.threshold <= P
        share = float(W @ P)
        recall = float(W @ (P * told)) / share
        alarms = float(W @ ((1 - P) * told)) / (1 - share)
        precision = float(W @ (P * told)) / float(W @ told)
        missed += not (
            recall >= 0.7
            and found.alarms.low <= alarms <= found.alarms.high
            and found.precision.low <= precision <= found.precision.high
        )
    assert missed <= binom.ppf(0.99, repeats, DELTA)
