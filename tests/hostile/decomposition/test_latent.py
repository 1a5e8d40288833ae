"""Clusters, factors and recommenders against what nobody means to pass."""

import numpy as np
import pytest
from scipy import sparse

from certus.config import config_context
from certus.decomposition import FactorAnalysis, ProbabilisticPCA, mode_strength
from certus.mixture import EM, gaussian_start
from certus.recommend import (
    ImplicitALS,
    MatrixFactorization,
    auc,
    evaluate,
    ndcg,
    precision_at_k,
    split_ratings,
)

RATED = sparse.random(30, 8, 0.5, "csr", random_state=0)
RECOMMENDERS = [MatrixFactorization(2, random_state=0), ImplicitALS(2, random_state=0)]
each_recommender = pytest.mark.parametrize(
    "model", RECOMMENDERS, ids=lambda model: type(model).__name__
)


@each_recommender
@pytest.mark.parametrize("place", [8, 10**8, -1])
@pytest.mark.parametrize("form", ["csr", "csc"])
def test_places_outside_a_matrix_do_not_crash(model, place, form):
    X = RATED.asformat(form).copy()
    X.indices[3] = place if form == "csr" else place + 22
    if place == -1:
        X.indices[3] = -1
    with pytest.raises(ValueError, match="indices lie outside its shape"):
        model.fit(X)


def test_a_tiny_penalty_does_not_crash():
    model = MatrixFactorization(2, max_iter=5, random_state=0, alpha=1e-320)
    with config_context(on_uncertified="ignore"):
        model.fit(sparse.random(8, 6, 0.7, "csr", random_state=0))
    assert np.isfinite(model.user_factors_).all()


def test_diagonals_hold_no_rating_twice():
    again = MatrixFactorization(2, random_state=0).fit(RATED.todia())
    model = MatrixFactorization(2, random_state=0).fit(RATED)
    assert np.array_equal(again.user_factors_, model.user_factors_)


@each_recommender
def test_ratings_whose_squares_overflow_are_reported_without_a_hang(model):
    with pytest.raises(ValueError, match="Divide the ratings"):
        model.fit(RATED * 1e300)


def test_counts_that_outweigh_everything_else():
    with pytest.raises(ValueError, match="Lower count_weight"):
        ImplicitALS(2).fit(RATED * 1e150)


@each_recommender
@pytest.mark.parametrize("width", [2, 3])
def test_pairs_without_ratings_are_not_a_matrix(model, width):
    triples = np.column_stack([*RATED.nonzero(), RATED.data])[:, :width]
    with pytest.raises(ValueError, match="Pass pairs as"):
        model.fit(triples)


@each_recommender
def test_complex_ratings_are_refused(model):
    pairs = np.column_stack(RATED.nonzero())
    with pytest.raises(ValueError, match="complex"):
        model.fit(pairs, RATED.data + 1j)


@pytest.mark.parametrize("scale", [1e30, 1e-30])
@pytest.mark.parametrize("model", [FactorAnalysis(2), ProbabilisticPCA(2)])
def test_variances_that_float32_cannot_hold(model, scale):
    rows = np.random.default_rng(0).normal(size=(40, 4)) * scale
    with pytest.raises(ValueError, match="too large or too small for float32"):
        model.fit(rows.astype(np.float32))
    assert model.fit(rows).certificate_.met


def test_rows_that_no_parameters_explain_are_not_a_fixed_point():
    def nowhere(X, params):
        return np.full((len(X), 2), -np.inf)

    model = EM(None, lambda X, q: params, nowhere, max_iter=3)
    params = (np.full(2, 0.5), np.zeros(2))
    with pytest.warns(UserWarning, match="not finite"):
        model.fit(np.zeros(5), params)
    assert not model.certificate_.met


def test_a_start_for_rows_beyond_range():
    with pytest.raises(ValueError, match="too large for float64"):
        gaussian_start(np.random.default_rng(0).normal(size=(20, 2)) * 1e200, 2)


# -- rankings and modes -----------------------------------------------------------


@pytest.mark.parametrize("given", [[1, 2], ["a", "b"], None, "ab", iter([[1]])])
def test_rankings_are_lists_of_lists(given):
    with pytest.raises(TypeError, match="one list for each user"):
        precision_at_k(given, [[1], [2]])
    with pytest.raises(TypeError, match="one list for each user"):
        ndcg([[1], [2]], given)


def test_a_list_of_any_length_takes_no_memory():
    ranked, relevant = [["a", "b"], ["c"]], [["b"], ["d", "c"]]
    assert precision_at_k(ranked, relevant, 10**12) == 1e-12
    assert ndcg(ranked, relevant, 10**12) == ndcg(ranked, relevant, 2)
    split = split_ratings(RATED, random_state=0)
    model = MatrixFactorization(2, random_state=0).fit(*split.train)
    short, long = (evaluate(model, *split.test, k=k) for k in (8, 8 * 10**9))
    assert long.precision * 1e9 == pytest.approx(short.precision)
    for name in ("recall", "average_precision", "ndcg", "hit_rate", "auc", "coverage"):
        assert getattr(long, name) == getattr(short, name)


def test_useless_input_of_rankings_is_reported():
    with pytest.raises(ValueError, match="NaN, which has no rank"):
        auc([np.nan, 0.2], [True, False])
    model = MatrixFactorization(2, random_state=0).fit(RATED)
    for bad, kind in (("x", TypeError), (np.nan, ValueError)):
        with pytest.raises(kind, match="relevant_from"):
            evaluate(model, RATED, relevant_from=bad)


@pytest.mark.parametrize("depth", [1, 2, 3])
def test_times_and_scales_that_no_mode_can_follow_are_refused(depth):
    for times in ([np.nan, 1.0], [-1.0, 1.0], [np.inf]):
        with pytest.raises(ValueError, match="finite times"):
            mode_strength(times, 2.0, 0.01, depth)
    with pytest.raises(ValueError, match="other units"):
        mode_strength([1.0], 1e300, 1e-300, depth)
    assert mode_strength([1e9, 1e12], 1.5, 1e-5, depth) == pytest.approx([1.5, 1.5])
