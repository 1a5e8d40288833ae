"""Ratings that are damaged, extreme or forged, and the contracts of the models."""

import pickle

import numpy as np
import pytest
from scipy import sparse
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

import certus
from certus.base import UncertifiedWarning
from certus.callbacks import Monitor
from certus.certificate import Status
from certus.persist import load, save
from certus.recommend import ImplicitALS, MatrixFactorization, evaluate, split_ratings

BOTH = pytest.mark.parametrize("cls", [MatrixFactorization, ImplicitALS])


def some_ratings(n=30, m=20, seed=0):
    rng = np.random.default_rng(seed)
    known = rng.random((n, m)) < 0.5
    known[:, 0] = known[0] = True
    values = rng.integers(1, 6, known.sum()).astype(float)
    return sparse.csr_matrix((values, np.nonzero(known)), (n, m))


# -- contracts --------------------------------------------------------------------


@BOTH
def test_clone_parameters_repr_and_pickle(cls):
    model = cls(3, max_iter=4, tol=None, random_state=0)
    assert clone(model).get_params() == model.get_params()
    assert repr(model).startswith(cls.__name__ + "(")
    before = dict(model.get_params())
    X = some_ratings()
    data = X.data.copy()
    model.fit(X)
    assert model.get_params() == before  # fit writes no parameter
    np.testing.assert_array_equal(X.data, data)  # nor the data
    pairs = [(0, 1), (3, 2)]
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(again.predict(pairs), model.predict(pairs))
    assert "certus-certificate" in model._repr_html_()
    assert model.set_params(n_components=2).fit(X).user_factors_.shape == (30, 2)


@BOTH
@pytest.mark.parametrize("method", ["predict", "recommend", "similar_items"])
def test_methods_ask_for_a_fit(cls, method):
    with pytest.raises(NotFittedError):
        getattr(cls(), method)([(0, 0)])
    with pytest.raises(NotFittedError):
        evaluate(cls(), some_ratings())


@BOTH
@pytest.mark.parametrize("ids", ["int", "str", "mixed"])
def test_model_files_keep_ids(cls, ids, tmp_path):
    X = some_ratings().tocoo()
    names = {
        "int": lambda k: 1000 + 7 * int(k),
        "str": lambda k: f"name {k}",
        "mixed": lambda k: int(k) if k % 2 else f"name {k}",
    }[ids]
    pairs = [(names(u), names(i)) for u, i in zip(X.row, X.col)]
    model = cls(3, max_iter=4, tol=None, random_state=0).fit(pairs, X.data)
    back = load(save(model, tmp_path / "m.certus"))
    assert set(vars(back)) == set(vars(model))
    np.testing.assert_array_equal(back.users_, model.users_)
    np.testing.assert_array_equal(back.predict(pairs), model.predict(pairs))
    user = names(3)
    assert back.recommend(user, 3).ids.tolist() == model.recommend(user, 3).ids.tolist()
    checked = certus.certify(back, pairs, X.data, level="full")
    assert checked.value <= model.certificate_.value * (1 + 1e-9)
    assert checked["monotone"].met


@BOTH
def test_bad_parameters_are_named(cls):
    X = some_ratings()
    for options, name in (
        ({"n_components": 0}, "n_components"),
        ({"n_components": 2.5}, "n_components"),
        ({"solver": "magic"}, "solver"),
        ({"max_iter": 0}, "max_iter"),
        ({"tol": -1.0}, "tol"),
        ({"init_std": 0.0}, "init_std"),
    ):
        with pytest.raises((TypeError, ValueError), match=name):
            cls(**options).fit(X)
    with pytest.raises(ValueError, match="alpha"):
        MatrixFactorization(alpha=-1.0).fit(X)
    with pytest.raises(ValueError, match="count_weight"):
        ImplicitALS(count_weight=0.0).fit(X)


@BOTH
def test_ctrl_c_leaves_a_fitted_state(cls, monkeypatch):
    X = some_ratings()
    step = Monitor.step

    def interrupted(self, *args):
        found = step(self, *args)
        if len(self.history["objective"]) == 3:
            raise KeyboardInterrupt
        return found

    model = cls(3, tol=None, max_iter=50, random_state=0)
    monkeypatch.setattr(Monitor, "step", interrupted)
    with pytest.raises(KeyboardInterrupt):
        model.fit(X)
    assert model.certificate_.status is Status.INTERRUPTED
    assert model.n_iter_ == 3
    assert np.isfinite(model.predict([(0, 0)])).all()


@BOTH
def test_max_time_stops(cls):
    model = cls(3, tol=None, max_iter=100_000, max_time=0.05, random_state=0)
    with pytest.warns(UncertifiedWarning, match="max_time"):
        model.fit(some_ratings())
    assert model.certificate_.status is Status.TIME_LIMIT
    assert model.n_iter_ < 100_000


# -- damaged and extreme ratings --------------------------------------------------


@BOTH
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_invalid_numbers_are_refused(cls, bad):
    X = some_ratings()
    X.data[5] = bad
    with pytest.raises(ValueError, match="NaN or infinite"):
        cls().fit(X)
    pairs = np.column_stack(X.nonzero())
    with pytest.raises(ValueError, match="NaN or infinite"):
        cls().fit(pairs, X.data)


@BOTH
@pytest.mark.parametrize(
    "X",
    [
        sparse.csr_matrix((5, 4)),
        np.full((3, 3), np.nan),
        sparse.csr_matrix((0, 0)),
    ],
)
def test_no_rating_at_all(cls, X):
    with pytest.raises(ValueError, match="no rating"):
        cls().fit(X)
    with pytest.raises(ValueError, match=r"no rating|shape"):
        cls().fit(np.empty((0, 2), dtype=int), [])


@BOTH
def test_wrong_shapes_and_types_are_explained(cls):
    for X, y, match in (
        (np.ones(5), None, "users × items"),
        (np.ones((2, 2, 2)), None, "users × items"),
        (np.array([["a", "b"]]), None, "not a matrix of numbers"),
        (np.ones((4, 3)), np.ones(4), r"\(n, 2\)"),
        (np.ones((4, 2)), np.ones(3), "one rating for each pair"),
        (np.ones((4, 2), dtype=int), ["x"] * 4, "not numeric"),
        (sparse.eye(4).tocsr(), np.ones(4), "Do not pass y"),
        ([(1, 2), (3,)], [1.0, 2.0], "one for each rating"),
        ([(None, 2), (1, 3)], [1.0, 2.0], "ids are missing"),
        ([(1.5, 2), (float("nan"), 3)], [1.0, 2.0], "missing"),
        ([([], 2), (1, 3)], [1.0, 2.0], "not hashable"),
    ):
        with pytest.raises(ValueError, match=match):
            cls().fit(X, y)


def test_a_repeated_pair_is_an_error_for_ratings_and_a_sum_for_counts():
    pairs = [("ann", "tea"), ("bob", "tea"), ("ann", "tea")]
    with pytest.raises(ValueError, match="'ann' rates item 'tea' more than once"):
        MatrixFactorization().fit(pairs, [1, 2, 3])
    twice = sparse.coo_matrix(([1.0, 2.0, 3.0], ([0, 1, 0], [0, 0, 0])), (2, 2))
    with pytest.raises(ValueError, match="twice"):
        MatrixFactorization().fit(twice)
    options = {"max_iter": 3, "tol": None, "random_state": 0}
    added = ImplicitALS(1, **options).fit(twice)
    once = ImplicitALS(1, **options).fit(np.array([[4.0, 0.0], [2.0, 0.0]]))
    np.testing.assert_array_equal(added.user_factors_, once.user_factors_)


def test_negative_counts_are_refused_and_zeros_count_as_absent():
    X = some_ratings()
    X.data[0] = -1
    with pytest.raises(ValueError, match="negative counts"):
        ImplicitALS().fit(X)
    with pytest.raises(ValueError, match="Every count is 0"):
        ImplicitALS().fit(np.zeros((3, 3)))


@BOTH
def test_users_and_items_without_ratings_have_no_factors(cls):
    X = sparse.lil_matrix(some_ratings())
    X[4], X[:, 7] = 0, 0
    X = sparse.csr_matrix(X)
    X.eliminate_zeros()
    for solver in ("als", "sgd") if cls is MatrixFactorization else ("cg", "cholesky"):
        model = cls(3, solver=solver, max_iter=5, tol=None, random_state=0).fit(X)
        assert not model.user_factors_[4].any()
        assert not model.item_factors_[7].any()
        assert np.isfinite(model.user_factors_).all()
        assert len(model.recommend(4, 5).ids) == 5
        assert np.all(model.similar_items(7, 3).scores == 0)


@BOTH
@pytest.mark.parametrize(
    "X",
    [
        np.array([[4.0]]),
        np.array([[4.0, 2.0, 5.0]]),
        np.array([[4.0], [2.0], [5.0]]),
        np.full((6, 5), 3.0),
        np.where(np.eye(6) > 0, 5.0, np.nan),
    ],
    ids=["one", "one user", "one item", "constant", "diagonal"],
)
def test_tiny_and_constant_ratings_with_more_factors_than_either_side(cls, X):
    model = cls(8, tol=None, max_iter=20, random_state=0).fit(X)
    assert np.isfinite(model.user_factors_).all()
    assert np.isfinite(certus.certify(model, X, level="full").value)
    if cls is MatrixFactorization:
        sgd = cls(8, solver="sgd", max_iter=20, random_state=0).fit(X)
        assert np.isfinite(sgd.predict([(0, 0)])).all()


@pytest.mark.parametrize("scale", [1e-150, 1e-30, 1e30, 1e100])
def test_absurd_scales_give_a_finite_model_or_an_error(scale):
    X = some_ratings() * scale
    with certus.config_context(on_uncertified="ignore"):
        model = MatrixFactorization(3, max_iter=20, random_state=0).fit(X)
    assert np.isfinite(model.user_factors_).all()
    assert np.isfinite(model.predict([(0, 0), (1, 1)])).all()


def test_steps_that_are_too_long_are_reported_and_the_best_point_is_kept():
    X = some_ratings()
    model = MatrixFactorization(3, solver="sgd", learning_rate=5.0, random_state=0)
    with pytest.warns(UncertifiedWarning, match="learning_rate"):
        model.fit(X)
    assert model.certificate_.status is Status.DIVERGED
    assert np.isfinite(model.user_factors_).all()
    start = 0.5 * np.sum((X.data - X.data.mean()) ** 2)
    assert model.certificate_["objective"].value < 2 * start


def test_without_a_penalty_underdetermined_rows_take_the_shortest_solution():
    X = np.where(np.random.default_rng(0).random((20, 15)) < 0.2, 3.0, np.nan)
    X[0] = X[:, 0] = 4.0
    model = MatrixFactorization(5, alpha=0.0, tol=None, max_iter=10)
    model.fit(X)
    assert np.isfinite(model.user_factors_).all()
    assert model.history_["objective"][-1] < 1e-6


def test_weights_are_checked():
    X = some_ratings()
    W = X.copy()
    for bad in (0.0, -1.0, np.nan):
        W.data = np.ones(X.nnz)
        W.data[3] = bad
        with pytest.raises(ValueError, match="above 0"):
            MatrixFactorization().fit(X, sample_weight=W)
    with pytest.raises(ValueError, match="weight for each rating"):
        MatrixFactorization().fit(X, sample_weight=W[:, :5])
    pairs = np.column_stack(X.nonzero())
    with pytest.raises(ValueError, match="sample_weight has shape"):
        MatrixFactorization().fit(pairs, X.data, sample_weight=np.ones(3))


# -- orientation ------------------------------------------------------------------


@BOTH
def test_items_before_users_are_noticed(cls):
    X = some_ratings()
    options = {"max_iter": 3, "tol": None, "random_state": 0}
    model = cls(2, **options).fit(X)
    with pytest.raises(ValueError, match=r"items × users;? pass X\.T"):
        certus.certify(model, X.T)
    with pytest.raises(ValueError, match=r"items × users;? pass X\.T"):
        evaluate(model, sparse.csr_matrix(X.T))
    pairs = [("ann", "tea"), ("ann", "rum"), ("bob", "gin")]
    model = cls(2, **options).fit(pairs, [1, 2, 3])
    with pytest.raises(ValueError, match=r"Pass pairs as \(user, item\)"):
        model.predict([("tea", "ann"), ("gin", "bob")])
    with pytest.raises(ValueError, match="were text when the model was fitted"):
        model.predict([(0, 1)])
    with pytest.raises(ValueError, match="'tea' was not in the data of the fit"):
        model.recommend("tea")


def test_pairs_not_seen_need_biases():
    model = MatrixFactorization(2, biases=False, alpha=0.1, random_state=0)
    model.fit(some_ratings())
    with pytest.raises(ValueError, match="biases=True"):
        model.predict([(99, 0)])


# -- forged models and other data -------------------------------------------------


@pytest.mark.parametrize(
    ("cls", "name"),
    [
        (MatrixFactorization, "user_factors_"),
        (MatrixFactorization, "item_factors_"),
        (MatrixFactorization, "item_biases_"),
        (MatrixFactorization, "mean_"),
        (ImplicitALS, "user_factors_"),
        (ImplicitALS, "item_factors_"),
    ],
)
def test_a_tampered_model_is_refuted(cls, name):
    X = some_ratings()
    model = cls(3, random_state=0).fit(X)
    assert certus.certify(model, X).met
    changed = np.array(getattr(model, name), dtype=float) + 0.2
    setattr(model, name, float(changed) if name == "mean_" else changed)
    for level in ("quick", "full"):
        found = certus.certify(model, X, level=level)
        assert found.met is False
        assert found.status is Status.REFUTED


@BOTH
def test_other_ratings_have_another_fingerprint(cls):
    X = some_ratings()
    model = cls(3, random_state=0).fit(X)
    first = model.certificate_.fingerprint
    for change in ("value", "place", "zero"):
        Y = sparse.lil_matrix(X)
        u, i = X.nonzero()[0][-5], X.nonzero()[1][-5]
        free = np.flatnonzero(X[u].toarray().ravel() == 0)[0]
        if change == "value":
            Y[u, i] = 6 - Y[u, i] + 0.5
        elif change == "place":
            Y[u, free], Y[u, i] = Y[u, i], 0
        Y = sparse.csr_matrix(Y)
        if change == "zero" and cls is MatrixFactorization:
            cells = np.append(X.data, 0.0)
            rows, columns = (
                np.append(X.nonzero()[0], u),
                np.append(X.nonzero()[1], free),
            )
            Y = sparse.csr_matrix((cells, (rows, columns)), X.shape)
        elif change == "zero":
            continue
        assert certus.certify(model, Y).fingerprint != first
    assert certus.certify(model, sparse.coo_matrix(X)).fingerprint == first


def test_stated_penalties_cannot_be_lowered():
    """The parameters state the objective, and the evidence has no say in it."""
    import dataclasses

    from certus.evidence import witness_of

    X = some_ratings()
    model = MatrixFactorization(3, alpha=20.0, random_state=0).fit(X)
    evidence = model.certificate_.evidence
    told = {**evidence.witness._asdict(), "penalties": [0.5, 0.5, 0.5], "tol": 1e9}
    forged = dataclasses.replace(evidence, witness=witness_of("ratings", told))
    model.certificate_ = dataclasses.replace(model.certificate_, evidence=forged)
    assert certus.certify(model, X).value == model.certificate_.value
    assert certus.certify(model.set_params(alpha=0.5), X).met is False


def test_biases_of_a_model_that_states_none_are_found():
    X = some_ratings()
    model = MatrixFactorization(3, biases=False, random_state=0).fit(X)
    model.item_biases_ = np.ones(20)
    found = certus.certify(model, X)
    assert found.met is False
    assert "biases" in found[found.primary].detail


def test_a_split_needs_times_and_ratings():
    with pytest.raises(ValueError, match="needs the times"):
        split_ratings(some_ratings(), how="time")
    with pytest.raises(ValueError, match="times has shape"):
        split_ratings(some_ratings(), how="time", times=[1, 2])
    with pytest.raises(ValueError, match="at least 2"):
        split_ratings(np.array([[1.0]]))
    with pytest.raises(ValueError, match="more than once"):
        split_ratings([(1, 2), (1, 2), (2, 2)], [1, 2, 3])
    with pytest.raises(ValueError, match="times are missing"):
        split_ratings(np.ones((2, 2)), how="time", times=[1, 2, np.nan, 3])
