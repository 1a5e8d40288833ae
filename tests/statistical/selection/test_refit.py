"""CV+ intervals after a refit hold their share, the choice of the model included.

Each repetition draws a table, compares models, refits the best to all rows and counts
how many fresh rows the intervals or sets hold. The mean must not lie below the
guarantee; the same rank of the residuals of the delivered model itself would.
"""

import numpy as np
import pytest

import certus
from certus.bounds import cv_plus_coverage, cv_plus_rank
from certus.linear_model import LogisticRegression, Ridge
from certus.neighbors import KNeighborsClassifier, KNeighborsRegressor

pytestmark = pytest.mark.slow

REPEATS = 60


def heavy(n, rng):
    X = rng.normal(size=(n, 3))
    return X, X[:, 0] + rng.standard_t(1.5, size=n)


def tied(n, rng):
    X = rng.integers(0, 3, size=(n, 3)).astype(float)
    return X, np.round(X.sum(axis=1) + rng.normal(size=n))


def spread(n, rng):
    """Noise that grows, and many useless columns."""
    X = rng.normal(size=(n, 12))
    return X, X[:, 0] + np.exp(X[:, 1]) * rng.normal(size=n)


def rare(n, rng):
    y = rng.random(n) < 0.15
    X = rng.normal(size=(n, 3))
    X[:, 0] += 1.5 * y
    return X, np.where(y, "yes", "no")


def many(n, rng):
    """Five labels with equal features for most rows."""
    y = rng.integers(0, 5, n)
    X = np.round(rng.normal(size=(n, 2)) + 0.5 * y[:, None])
    return X, np.array(list("abcde"))[y]


def repeated(draw, n, models, seed, coverage=0.8):
    """Share of fresh rows held in each repetition, and by a naive interval."""
    rng = np.random.default_rng(seed)
    fresh, truth = draw(1_000, rng)
    held, naive = [], []
    for repeat in range(REPEATS):
        X, y = draw(n, rng)
        while len(np.unique(y)) < 2:
            X, y = draw(n, rng)
        found = certus.compare(
            X,
            y,
            models=models,
            task="regression" if models is not LABELS else None,
            keep=KEEP[: X.shape[1]],
            refit=True,
            random_state=repeat,
        )
        if found.task == "regression":
            low, high = found.model.predict_interval(fresh, coverage).T
            held.append(np.mean((low <= truth) & (truth <= high)))
            own = np.sort(np.abs(y - found.model.predict(X)))
            k = min(cv_plus_rank(n, coverage), n)
            miss = np.abs(truth - found.model.predict(fresh))
            naive.append(np.mean(miss <= own[k - 1]))
        else:
            sets = found.model.predict_set(fresh, coverage)
            known = np.asarray(found.model.classes_)
            held.append(np.mean((sets & (known == truth[:, None])).any(axis=1)))
            naive.append(np.mean(found.model.predict(fresh) == truth))
    return np.array(held), np.array(naive)


KEEP = [f"x{i}" for i in range(12)]
AMOUNTS = {
    "ridge": Ridge(),
    "one": KNeighborsRegressor(1),
    "five": KNeighborsRegressor(),
}
LABELS = {"logistic": LogisticRegression(), "one": KNeighborsClassifier(1)}


@pytest.mark.parametrize(
    ("draw", "n", "models"),
    [
        (heavy, 40, AMOUNTS),
        (tied, 45, AMOUNTS),
        (spread, 60, AMOUNTS),
        (spread, 22, AMOUNTS),  # tiny: the guarantee is 0.675
        (rare, 40, LABELS),
        (many, 60, LABELS),
    ],
)
def test_share_held_is_at_least_the_guarantee(draw, n, models, record_property):
    held, naive = repeated(draw, n, models, seed=n)
    least = cv_plus_coverage(n - n % 5, 5, 0.8)
    error = held.std(ddof=1) / np.sqrt(REPEATS)
    record_property("held", f"{held.mean():.3f} ± {error:.3f}, guaranteed {least:.3f}")
    print(draw.__name__, n, held.mean(), error, least, naive.mean())
    assert held.mean() >= least - 2.5 * error
    assert held.mean() > naive.mean()


def test_residuals_of_the_fit_would_not_do():
    """The test above has teeth: with a nearest neighbour nothing is left of them."""
    held, naive = repeated(spread, 60, [KNeighborsRegressor(1)], seed=1)
    least = cv_plus_coverage(60, 5, 0.8)
    assert naive.mean() < 0.1 < least < held.mean()
