"""What nearest neighbours cost, and how near they come to the best rule.

Cover and Hart: with ever more data the error of the nearest-neighbour rule tends to
E[1 − Σ P(y | x)²], between the Bayes risk R* and R*(2 − K/(K − 1)·R*). Times are those
of the processor, the best of several runs, compared with generous limits.
"""

from __future__ import annotations

import time

import numpy as np
import pytest
from scipy import stats

from certus.neighbors import BayesClassifier, KNeighborsClassifier, KNeighborsRegressor


def plane(spread: float) -> BayesClassifier:
    means = [[0.0, 0.0], [1.5, 0.0], [0.0, 1.5]]
    densities = [stats.multivariate_normal(m, spread) for m in means]
    return BayesClassifier([0.4, 0.3, 0.3], densities)


@pytest.mark.catalog("CLS-18", "NBR-01")
@pytest.mark.parametrize("spread", [0.3, 1.0])
def test_the_nearest_neighbour_errs_at_most_twice_as_often(spread: float) -> None:
    best = plane(spread)
    risk = best.risk(200_000, random_state=0)
    limit = best.neighbor_risk(200_000, random_state=1)
    k = len(best.priors)
    assert risk.low <= limit.high
    assert limit.low <= risk.high * (2 - k / (k - 1) * risk.low)
    X, y = best.sample(60_000, random_state=2)
    test_X, test_y = best.sample(60_000, random_state=3)
    model = KNeighborsClassifier(1).fit(X, y)
    error = (model.predict(test_X) != test_y).mean()
    noise = 0.0092  # Hoeffding for 60,000 rows at 1e-4
    assert limit.low - noise < error < limit.high + noise
    assert risk.low - noise < error < risk.high * (2 - k / (k - 1) * risk.low) + noise


@pytest.mark.catalog("CLS-18", "NBR-01")
def test_many_neighbours_approach_the_best_rule() -> None:
    """k → ∞ with k/n → 0: the excess over the Bayes risk shrinks."""
    best = plane(1.0)
    test_X, test_y = best.sample(40_000, random_state=1)
    own = (best.predict(test_X) != test_y).mean()
    excess = []
    for n in (300, 3000, 30_000):
        X, y = best.sample(n, random_state=n)
        model = KNeighborsClassifier(int(n**0.6)).fit(X, y)
        excess.append((model.predict(test_X) != test_y).mean() - own)
    assert excess[-1] < excess[0] and -0.002 < excess[-1] < 0.006


def seconds(n: int, d: int, algorithm: str = "brute") -> float:
    rng = np.random.default_rng(0)
    X, Q = rng.normal(size=(n, d)), rng.normal(size=(16, d))
    model = KNeighborsRegressor(5, algorithm=algorithm).fit(X, X[:, 0])
    model.kneighbors(Q)
    best = np.inf
    for _ in range(7):
        start = time.process_time()
        model.kneighbors(Q)
        best = min(best, time.process_time() - start)
    return best


@pytest.mark.catalog("NBR-05")
def test_a_query_costs_in_proportion_to_rows_and_columns() -> None:
    base = seconds(20_000, 128)
    for factor, other in ((4, seconds(80_000, 128)), (4, seconds(20_000, 512))):
        assert factor / 2.2 < other / base < factor * 2.2


@pytest.mark.catalog("NBR-05")
def test_fitting_is_a_copy_next_to_the_queries() -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60_000, 32))
    model = KNeighborsRegressor(5, algorithm="brute")
    start = time.process_time()
    model.fit(X, X[:, 0])  # with its certificate
    fitted = time.process_time()
    model.kneighbors(X[:10_000])
    assert 2 * (fitted - start) < time.process_time() - fitted


@pytest.mark.catalog("NBR-05")
def test_in_few_dimensions_a_tree_grows_slower_than_the_rows() -> None:
    small, large = seconds(20_000, 2, "kd_tree"), seconds(320_000, 2, "kd_tree")
    assert large < 6 * small  # sixteen times the rows
