"""Recommendations, ranking metrics and splits of ratings."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse
from sklearn.metrics import average_precision_score, ndcg_score, roc_auc_score

from certus.recommend import (
    ImplicitALS,
    MatrixFactorization,
    auc,
    average_precision,
    coverage,
    evaluate,
    fold_ratings,
    hit_rate,
    ndcg,
    precision_at_k,
    recall_at_k,
    split_ratings,
)
from certus.recommend.recommending import top


def checkerboard(n=12, m=12):
    """Even users chose even items, odd ones odd; each left out one on the diagonal."""
    X = np.add.outer(np.arange(n), np.arange(m)) % 2 == 0
    np.fill_diagonal(X, False)
    return sparse.csr_matrix(X.astype(float))


# -- recommending -----------------------------------------------------------------


@pytest.mark.parametrize("scale", ["rows", "ratings"])
@pytest.mark.parametrize("biases", [True, False])
def test_a_new_user_with_the_ratings_of_an_old_one_gets_the_same_advice(biases, scale):
    rng = np.random.default_rng(0)
    stars = rng.normal(3, 1, (40, 2)) @ rng.normal(0, 1, (2, 15)) + 3
    stars[rng.random(stars.shape) < 0.4] = np.nan
    model = MatrixFactorization(
        2,
        biases=biases,
        penalty_scale=scale,
        alpha=0.5,
        alpha_biases=0.2,
        tol=1e-12,
        max_iter=2000,
        random_state=0,
    ).fit(stars)
    for user in (0, 7):
        given = {i: r for i, r in enumerate(stars[user]) if not np.isnan(r)}
        new, old = model.recommend_new(given, n=4), model.recommend(user, n=4)
        np.testing.assert_array_equal(new.ids, old.ids)
        np.testing.assert_allclose(new.scores, old.scores, atol=1e-4)
        assert not set(new.ids) & set(given)


def test_a_new_user_of_counts_has_the_best_factors():
    plays = np.random.default_rng(1).poisson(0.7, (30, 12))
    model = ImplicitALS(3, count_weight=2.0, alpha=0.3, random_state=0).fit(plays)
    Z, counts = model.item_factors_, np.zeros(12)
    counts[[2, 5]] = 3, 1
    found = model.recommend_new({2: 3, 5: 1}, n=99)
    weights, wanted = 1 + 2.0 * counts, counts > 0

    def loss(w):
        return np.sum(weights * (wanted - Z @ w) ** 2) + 0.3 * w @ w

    w = np.linalg.lstsq(Z[found.ids], found.scores, rcond=None)[0]
    for step in 1e-4 * np.vstack([np.eye(3), -np.eye(3)]):
        assert loss(w) < loss(w + step)
    assert len(found.ids) == 10


@pytest.mark.parametrize("given", [{}, [1, 2], {99: 1.0}, {1: np.nan}, {1: "good"}])
def test_a_new_user_is_refused_with_a_message(given):
    model = MatrixFactorization(2, random_state=0).fit(np.arange(12.0).reshape(4, 3))
    with pytest.raises(ValueError, match=r"dictionary|not in the data|NaN|numeric"):
        model.recommend_new(given)
    with pytest.raises(ValueError, match="one user id at a time"):
        model.recommend([0, 1])
    with pytest.raises(ValueError, match="recommend_new"):
        model.recommend(17)


def test_on_a_checkerboard_the_item_left_out_comes_first():
    model = ImplicitALS(4, alpha=0.01, random_state=0).fit(checkerboard())
    for user in range(12):
        found = model.recommend(user, n=3)
        assert found.ids[0] == user
        assert list(found.scores) == sorted(found.scores, reverse=True)
        assert not set(found.ids) & set(checkerboard()[user].indices)
        seen = model.recommend(user, n=6, exclude_seen=False)
        assert set(seen.ids % 2) == {user % 2}


def test_equal_values_have_the_same_colour():
    model = ImplicitALS(2, alpha=0.01, random_state=0).fit(checkerboard())
    for one in range(12):
        for found in (model.similar_items(one, 5), model.similar_users(one, 5)):
            assert set(found.ids % 2) == {one % 2}
            assert one not in found.ids
            assert np.all(np.abs(found.scores) <= 1 + 1e-12)


def test_scores_of_a_recommendation_are_predictions():
    rng = np.random.default_rng(0)
    X = rng.integers(1, 6, (20, 15)).astype(float)
    X[rng.random(X.shape) < 0.5] = np.nan
    model = MatrixFactorization(3, random_state=0).fit(X)
    found = model.recommend(4, n=100)
    assert len(found.ids) == np.isnan(X[4]).sum()
    np.testing.assert_allclose(
        found.scores, model.predict([(4, item) for item in found.ids])
    )
    every = model.recommend(4, n=100, exclude_seen=False)
    assert sorted(every.ids) == list(range(15))


def test_users_and_items_not_seen_get_the_bias_model():
    pairs = [("ann", "tea"), ("ann", "rum"), ("bob", "tea"), ("bob", "gin")]
    model = MatrixFactorization(1, random_state=0).fit(pairs, [5, 1, 4, 2])
    b = dict(zip(model.users_, model.user_biases_))
    c = dict(zip(model.items_, model.item_biases_))
    found = model.predict([("new", "tea"), ("ann", "new"), ("new", "new")])
    expected = [model.mean_ + c["tea"], model.mean_ + b["ann"], model.mean_]
    np.testing.assert_allclose(found, expected)
    counts = ImplicitALS(1, random_state=0).fit(pairs, [5, 1, 4, 2])
    assert list(counts.predict([("new", "tea"), ("ann", "new")])) == [0.0, 0.0]


@given(
    st.lists(st.integers(-3, 3).map(float), min_size=1, max_size=12),
    st.integers(0, 14),
)
def test_the_top_is_a_stable_sort_cut_off(scores, n):
    scores = np.array(scores)
    expected = sorted(range(len(scores)), key=lambda k: (-scores[k], k))[:n]
    assert top(scores, n).tolist() == expected


# -- metrics ----------------------------------------------------------------------


def test_metrics_by_hand():
    ranked, relevant = [list("abcd"), list("dcba")], [{"a", "c", "z"}, {"d"}]
    assert precision_at_k(ranked, relevant, 4) == (2 / 4 + 1 / 4) / 2
    assert recall_at_k(ranked, relevant, 2) == (1 / 3 + 1) / 2
    assert average_precision(ranked, relevant, 4) == pytest.approx(
        ((1 + 2 / 3) / 3 + 1) / 2
    )
    best = 1 + 1 / np.log2(3) + 1 / np.log2(4)
    assert ndcg(ranked, relevant, 4) == pytest.approx(
        ((1 + 1 / np.log2(4)) / best + 1) / 2
    )
    assert hit_rate([list("ab"), list("ab")], [{"b"}, {"c"}], 2) == 0.5
    assert coverage(ranked, list("abcdef")) == pytest.approx(4 / 6)


def test_users_without_relevant_items_are_left_out():
    assert precision_at_k([["a"], ["b"]], [{"a"}, set()], 1) == 1.0


@pytest.mark.parametrize("seed", range(5))
def test_metrics_are_those_of_scikit_learn(seed):
    rng = np.random.default_rng(seed)
    scores, wanted = rng.permutation(12).astype(float), rng.random(12) < 0.4
    wanted[0], wanted[1] = True, False
    ranked, relevant = [np.argsort(-scores)], [set(np.flatnonzero(wanted))]
    assert ndcg(ranked, relevant, 5) == pytest.approx(
        ndcg_score([wanted], [scores], k=5)
    )
    assert average_precision(ranked, relevant, 12) == pytest.approx(
        average_precision_score(wanted, scores)
    )
    assert auc(scores // 3, wanted) == pytest.approx(roc_auc_score(wanted, scores // 3))


def test_evaluate_is_the_metrics_of_its_recommendations():
    rng = np.random.default_rng(0)
    X = sparse.random(40, 25, 0.4, random_state=1, format="csr")
    X.data = rng.integers(1, 6, X.nnz).astype(float)
    split = split_ratings(X, random_state=0)
    model = MatrixFactorization(2, random_state=0).fit(*split.train)
    found = evaluate(model, *split.test, k=5, relevant_from=4)
    test = split.test[0]
    relevant = [
        {i for i, r in zip(test[u].indices, test[u].data) if r >= 4} for u in range(40)
    ]
    ranked = [model.recommend(u, 5).ids for u in range(40)]
    for name, metric in {
        "precision": precision_at_k,
        "recall": recall_at_k,
        "average_precision": average_precision,
        "ndcg": ndcg,
        "hit_rate": hit_rate,
    }.items():
        assert getattr(found, name) == pytest.approx(metric(ranked, relevant, 5)), name
    assert found.n_users == sum(map(bool, relevant))
    shown = [r for r, wanted in zip(ranked, relevant) if wanted]
    assert found.coverage == pytest.approx(coverage(shown, range(25)))
    areas = []
    for u in np.flatnonzero([bool(r) for r in relevant]):
        new = np.setdiff1d(np.arange(25), split.train[0][u].indices)
        marks = np.isin(new, list(relevant[u]))
        areas.append(roc_auc_score(marks, model.predict([(u, i) for i in new])))
    assert found.auc == pytest.approx(np.mean(areas))
    error = model.predict(np.column_stack(test.nonzero())) - test.data
    assert found.rmse == pytest.approx(np.sqrt(np.mean(error**2)))
    assert found.mae == pytest.approx(np.mean(np.abs(error)))


def test_evaluating_pairs_and_a_matrix_is_the_same():
    X = sparse.random(30, 20, 0.4, random_state=1, format="csr")
    split = split_ratings(X, random_state=0)
    model = ImplicitALS(2, random_state=0).fit(*split.train)
    test = split.test[0]
    pairs = np.column_stack(test.nonzero())
    one, two = evaluate(model, test), evaluate(model, pairs, test.data)
    ranked = list(one.to_dict().values())[:7]
    assert list(two.to_dict().values())[:7] == ranked
    assert np.isnan(one.rmse) and np.isnan(two.rmse)
    more = evaluate(model, [*map(tuple, pairs.tolist()), (99, 3)], [*test.data, 1.0])
    assert more.n_unknown == 1 and list(more.to_dict().values())[:7] == ranked


def test_held_out_pairs_that_were_trained_on_are_refused():
    X = checkerboard()
    model = ImplicitALS(2, random_state=0).fit(X)
    with pytest.raises(ValueError, match="were in the data of the fit"):
        evaluate(model, X)


# -- splits -----------------------------------------------------------------------


def triples(seed=0, n=300):
    rng = np.random.default_rng(seed)
    keys = rng.choice(40 * 30, n, replace=False)
    pairs = np.column_stack([keys // 30, keys % 30])
    return pairs, rng.integers(1, 6, n), rng.integers(0, 50, n)


@pytest.mark.parametrize("how", ["entries", "last", "time", "users"])
@pytest.mark.parametrize("seed", range(4))
def test_no_rating_is_in_both_parts_and_none_is_lost(how, seed):
    pairs, stars, times = triples(seed)
    split = split_ratings(pairs, stars, how=how, times=times, random_state=seed)
    assert not set(split.train_places) & set(split.test_places)
    assert len(split.train_places) + len(split.test_places) == len(pairs)
    train, test = ({tuple(p) for p in part[0].tolist()} for part in split[:2])
    assert not train & test
    assert train | test == {tuple(p) for p in pairs.tolist()}
    np.testing.assert_array_equal(split.test[1], stars[split.test_places])
    users = [set(part[0][:, 0].tolist()) for part in split[:2]]
    if how in ("entries", "last"):
        assert users[1] <= users[0]  # every tested user has something to learn from
    if how == "users":
        assert not users[0] & users[1]
        assert len(users[1]) == round(0.2 * len(users[0] | users[1]))
    if how == "time":
        assert times[split.train_places].max() < times[split.test_places].min()


def test_the_last_rating_is_the_latest_of_each_user():
    pairs, stars, times = triples()
    split = split_ratings(pairs, stars, how="last", times=times)
    counts = np.bincount(pairs[:, 0])
    assert sorted(split.test[0][:, 0]) == list(np.flatnonzero(counts > 1))
    for place in split.test_places:
        own = pairs[:, 0] == pairs[place, 0]
        assert times[place] == times[own].max()


def test_a_share_of_each_users_ratings_is_held_out():
    split = split_ratings(np.ones((50, 40)), test_size=0.25, random_state=0)
    np.testing.assert_array_equal(np.diff(split.test[0].indptr), 10)
    with pytest.raises(ValueError, match="No rating is held out"):
        split_ratings(np.eye(5) + np.where(np.eye(5), 0, np.nan))


def test_matrices_split_into_matrices_that_add_up():
    X = sparse.random(30, 20, 0.3, random_state=0, format="csr")
    split = split_ratings(X, random_state=0)
    assert abs(split.train[0] + split.test[0] - X).max() == 0
    assert split.train[0].multiply(split.test[0]).nnz == 0
    again = split_ratings(X, random_state=0)
    np.testing.assert_array_equal(split.test_places, again.test_places)


@pytest.mark.parametrize("form", ["pandas", "polars", "list"])
def test_frames_and_lists_stay_what_they_are(form):
    import pandas as pd
    import polars as pl

    pairs, stars, _ = triples()
    X, y = {
        "pandas": (pd.DataFrame(pairs, columns=list("ui")), pd.Series(stars)),
        "polars": (
            pl.DataFrame({"u": pairs[:, 0], "i": pairs[:, 1]}),
            pl.Series(stars),
        ),
        "list": (list(map(tuple, pairs.tolist())), stars.tolist()),
    }[form]
    split = split_ratings(X, y, random_state=0)
    assert type(split.train[0]) is type(X)
    assert len(split.test[1]) == len(split.test_places)
    model = MatrixFactorization(2, random_state=0, tol=1e-2).fit(*split.train)
    assert evaluate(model, *split.test).n_users > 10


@pytest.mark.parametrize("seed", range(3))
def test_each_rating_is_held_out_once_in_the_folds(seed):
    pairs, stars, _ = triples(seed)
    folds = list(fold_ratings(pairs, stars, 4, random_state=seed))
    held = np.concatenate([fold.test_places for fold in folds])
    alone = np.bincount(pairs[:, 0])[pairs[:, 0]] == 1
    assert sorted(held) == list(np.flatnonzero(~alone))
    for fold in folds:
        assert not set(fold.train_places) & set(fold.test_places)
        assert set(fold.test[0][:, 0]) <= set(fold.train[0][:, 0])


def test_the_true_factors_are_found_again():
    """Noise-free ratings of rank two: what was held out is foretold exactly."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((60, 2)) @ rng.standard_normal((2, 40)) + 3
    split = split_ratings(X, test_size=0.4, random_state=0)
    model = MatrixFactorization(
        2, alpha=1e-2, tol=1e-3, max_iter=1000, random_state=0
    ).fit(*split.train)
    assert evaluate(model, *split.test).rmse < 0.05
    flat = MatrixFactorization(1, alpha=1e6, random_state=0)
    assert evaluate(flat.fit(*split.train), *split.test).rmse > 0.5 * np.std(X)


def test_splits_and_evaluations_print_on_a_line():
    stars = np.random.default_rng(0).integers(1, 6, (20, 9)).astype(float)
    split = split_ratings(stars, how="last", random_state=0)
    assert repr(split) == "RatingSplit(train: 160 ratings, test: 20 ratings)"
    model = MatrixFactorization(2, random_state=0).fit(*split.train)
    found = evaluate(model, *split.test)
    assert f"rmse={found.rmse:.4g}" in repr(found)
    assert "n_users=20" in repr(found)
