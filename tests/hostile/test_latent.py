"""Clusters, factors and recommenders against what nobody means to pass."""

import numpy as np
import pytest
from scipy import sparse

from certus.factor import ImplicitALS, MatrixFactorization

RATED = sparse.random(30, 8, 0.5, "csr", random_state=0)
RECOMMENDERS = [MatrixFactorization(2, random_state=0), ImplicitALS(2, random_state=0)]
each_recommender = pytest.mark.parametrize(
    "model", RECOMMENDERS, ids=lambda model: type(model).__name__
)


@each_recommender
@pytest.mark.parametrize("place", [8, 10**8, -1])
@pytest.mark.parametrize("form", ["csr", "csc"])
def test_places_outside_a_matrix_are_no_crash(model, place, form):
    X = RATED.asformat(form).copy()
    X.indices[3] = place if form == "csr" else place + 22
    if place == -1:
        X.indices[3] = -1
    with pytest.raises(ValueError, match="indices reach beyond its shape"):
        model.fit(X)


def test_diagonals_hold_no_rating_twice():
    again = MatrixFactorization(2, random_state=0).fit(RATED.todia())
    model = MatrixFactorization(2, random_state=0).fit(RATED)
    assert np.array_equal(again.user_factors_, model.user_factors_)


@each_recommender
def test_ratings_whose_squares_overflow_are_said_and_no_hang(model):
    with pytest.raises(ValueError, match="Divide the ratings"):
        model.fit(RATED * 1e300)


def test_counts_beside_which_nothing_weighs():
    with pytest.raises(ValueError, match="Lower alpha"):
        ImplicitALS(2).fit(RATED * 1e150)


@each_recommender
@pytest.mark.parametrize("width", [2, 3])
def test_pairs_without_ratings_are_no_matrix(model, width):
    triples = np.column_stack([*RATED.nonzero(), RATED.data])[:, :width]
    with pytest.raises(ValueError, match="Pass pairs as"):
        model.fit(triples)


@each_recommender
def test_complex_ratings_are_refused(model):
    pairs = np.column_stack(RATED.nonzero())
    with pytest.raises(ValueError, match="complex"):
        model.fit(pairs, RATED.data + 1j)
