"""Choosing the number of factors, on ratings drawn from a known model."""

import numpy as np
import pytest

from certus.recommend import MatrixFactorization, evaluate, split_ratings


def drawn(seed, n=150, m=80, K=3):
    rng = np.random.default_rng(seed)
    stars = 3 + rng.standard_normal((n, K)) @ rng.standard_normal((K, m))
    stars += 0.8 * rng.standard_normal((n, m))
    stars[rng.random((n, m)) < 0.6] = np.nan
    return stars


@pytest.mark.catalog("LAT-27")
def test_training_error_falls_with_the_rank_and_test_error_turns():
    ranks = (1, 2, 3, 8, 20)
    train, test = np.zeros((2, 3, len(ranks)))
    for seed in range(3):
        split = split_ratings(drawn(seed), random_state=seed)
        X = split.train[0]
        pairs = np.column_stack(X.nonzero())
        for place, K in enumerate(ranks):
            model = MatrixFactorization(
                K, alpha=0.3, tol=None, max_iter=60, random_state=0
            ).fit(X)
            e = model.predict(pairs) - X.data
            train[seed, place] = np.sqrt(np.mean(e**2))
            test[seed, place] = evaluate(model, *split.test).rmse
    assert np.all(np.diff(train, axis=1) < 0)
    found = test.mean(axis=0)
    assert found.argmin() == ranks.index(3)  # the rank the ratings were drawn with
    assert np.all(np.diff(found)[:2] < 0) and np.all(np.diff(found)[2:] > 0)


@pytest.mark.catalog("LAT-27")
def test_as_many_factors_as_items_fit_anything():
    """W = X, Z = I: without a penalty the loss of K ≥ min(n, m) is zero."""
    X = np.random.default_rng(0).standard_normal((12, 7))
    model = MatrixFactorization(
        7, biases=False, alpha=0.0, tol=None, max_iter=50, random_state=0
    ).fit(X)
    assert model.history_["objective"][-1] < 1e-20
    np.testing.assert_allclose(model.user_factors_ @ model.item_factors_.T, X)


def test_a_penalty_of_the_right_size_beats_none_and_too_much():
    errors = []
    for penalty in (0.01, 1.0, 1000.0):
        found = []
        for seed in range(3):
            split = split_ratings(drawn(seed), random_state=seed)
            model = MatrixFactorization(
                12, alpha=penalty, tol=None, max_iter=60, random_state=0
            ).fit(*split.train)
            found.append(evaluate(model, *split.test).rmse)
        errors.append(np.mean(found))
    assert errors[1] < min(errors[0], errors[2])
