"""The false discovery rate over batches of rows, repeated until it can be seen."""

from __future__ import annotations

import math

import numpy as np

from certus import config_context
from certus.generative import NormalizingFlow

ALPHA, ORDINARY, ODD, BATCHES = 0.2, 80, 20, 200


def rows(n: int, rng: np.random.Generator, shift: float = 0.0) -> np.ndarray:
    x = rng.normal(size=(n, 2))
    x[:, 1] += 0.5 * x[:, 0] ** 2 + shift
    return x


def test_the_false_discovery_rate_holds_over_batches() -> None:
    """One flow, and for each batch calibration rows of its own."""
    rng = np.random.default_rng(0)
    with config_context(certify="never"):
        flow = NormalizingFlow(max_iter=40, random_state=0).fit(rows(600, rng))
    odd = np.arange(ORDINARY + ODD) >= ORDINARY
    false, naive, power = [], [], []
    for _ in range(BATCHES):
        flow.calibrate(rows(300, rng))
        X = np.vstack([rows(ORDINARY, rng), rows(ODD, rng, shift=-5.0)])
        for alarms, shares in (
            (flow.predict_outlier(X, ALPHA, together=True), false),
            (flow.predict_outlier(X, ALPHA), naive),
        ):
            shares.append(float((alarms & ~odd).sum() / max(1, alarms.sum())))
            if shares is false:
                power.append(float(alarms[odd].mean()))
    room = 3 * float(np.std(false)) / math.sqrt(BATCHES)
    assert np.mean(false) <= ALPHA + room
    # The rate is α times the share of ordinary rows, not merely below it.
    assert abs(np.mean(false) - ALPHA * ORDINARY / (ORDINARY + ODD)) <= room + 0.02
    assert np.mean(power) > 0.8
    # Each row on its own at this level: far too many of the alarms are false.
    assert np.mean(naive) > ALPHA + 0.1
