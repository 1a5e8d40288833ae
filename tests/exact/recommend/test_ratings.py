"""Matrix factorisation: its objective, its optima where they are known, its solvers."""

import numpy as np
import pytest
from scipy import sparse

import certus
from certus.recommend import ImplicitALS, MatrixFactorization
from certus.recommend.implicit import half_step as implicit_half_step
from certus.recommend.implicit import objective as implicit_objective
from certus.recommend.rating_kernels import (
    add_entries,
    cholesky_solve,
    solve_rows,
)
from certus.recommend.rating_solvers import (
    RatingFactors,
    RatingProblem,
    both_sides,
    half_step,
)
from certus.recommend.rating_solvers import objective as value_of
from certus.recommend.rating_steps import visit


def some_ratings(n=30, m=20, share=0.4, seed=0, dtype=float):
    """Ratings 1…5 at random places, at least one in every row and column."""
    rng = np.random.default_rng(seed)
    known = rng.random((n, m)) < share
    known[np.arange(n), np.arange(n) % m] = True
    known[np.arange(m) % n, np.arange(m)] = True
    values = rng.integers(1, 6, known.sum()).astype(dtype)
    return sparse.csr_matrix((values, np.nonzero(known)), (n, m))


def some_problem(biased=True, weighted=True, K=3, seed=0):
    rng = np.random.default_rng(seed)
    X = some_ratings(seed=seed)
    n, m = X.shape
    weights = rng.uniform(0.5, 2, X.nnz) if weighted else np.empty(0)
    reg = rng.uniform(0.1, 1, n), rng.uniform(0.1, 1, m)
    reg_bias = rng.uniform(0.1, 1, n), rng.uniform(0.1, 1, m)
    problem = RatingProblem(
        *both_sides(X, weights, X.data - 3.0), reg, reg_bias, biased
    )
    scale = 1.0 if biased else 0.0
    shapes = ((n, K), (m, K), (n,), (m,))
    parts = [rng.standard_normal(shape) for shape in shapes]
    point = RatingFactors(*parts[:2], scale * parts[2], scale * parts[3])
    return X, weights, problem, point


def brute_force(X, weights, problem, point):
    """The objective, entry by entry over the mask."""
    total, dense, place = 0.0, X.toarray(), 0
    W, Z, b, c = point
    for u in range(X.shape[0]):
        for i in range(X.shape[1]):
            if dense[u, i] != 0:
                s = weights[place] if len(weights) else 1.0
                e = dense[u, i] - 3.0 - b[u] - c[i] - W[u] @ Z[i]
                total += 0.5 * s * e**2
                place += 1
    for F, reg in zip((W, Z), problem.reg):
        total += 0.5 * sum(r * row @ row for r, row in zip(reg, F))
    if problem.biased:
        for f, reg in zip((b, c), problem.reg_bias):
            total += 0.5 * sum(reg * f**2)
    return total


def gradient(f, x, h=1e-6):
    out = np.zeros_like(x)
    for place in np.ndindex(x.shape):
        old = x[place]
        x[place] = old + h
        up = f()
        x[place] = old - h
        out[place] = (up - f()) / (2 * h)
        x[place] = old
    return out


@pytest.mark.catalog("LAT-25")
@pytest.mark.parametrize("biased", [True, False])
@pytest.mark.parametrize("weighted", [True, False])
def test_the_objective_is_the_sum_over_the_mask(biased, weighted):
    X, weights, problem, point = some_problem(biased, weighted)
    known = brute_force(X, weights, problem, point)
    assert value_of(problem, point) == pytest.approx(known, rel=1e-12)


@pytest.mark.catalog("LAT-25")
def test_a_stored_zero_is_a_rating_and_an_absent_entry_is_not():
    X = sparse.csr_matrix(
        (np.array([0.0, 4.0, 2.0]), ([0, 0, 1], [0, 1, 1])), shape=(2, 2)
    )
    model = MatrixFactorization(1, alpha=1.0, random_state=0).fit(X)
    assert model.mean_ == 2.0  # of 0, 4 and 2
    assert f"{X.nnz} entries" in model.certificate_["objective"].detail


@pytest.mark.catalog("LAT-26")
def test_rotated_factors_have_the_same_loss_and_their_mean_another():
    rng = np.random.default_rng(0)
    X = sparse.csr_matrix(rng.standard_normal((8, 2)) @ rng.standard_normal((2, 6)))
    options = {"biases": False, "alpha": 0.01, "max_iter": 2000}
    model = MatrixFactorization(3, random_state=0, **options).fit(X)
    W, Z = model.user_factors_, model.item_factors_
    reg = (np.zeros(8), np.zeros(6))
    target = X.data - model.mean_
    problem = RatingProblem(*both_sides(X, np.empty(0), target), reg, reg, False)

    def loss(W, Z):
        return value_of(problem, RatingFactors(W, Z, np.zeros(8), np.zeros(6)))

    A = rng.standard_normal((3, 3)) + 2 * np.eye(3)
    V, Y = W @ A, Z @ np.linalg.inv(A).T
    best = loss(W, Z)
    assert best < 0.01
    for others in ((V, Y), (3.0 * W, Z / 3.0), (-W, -Z)):
        assert loss(*others) == pytest.approx(best, abs=1e-12)
        model.user_factors_, model.item_factors_ = others
        pairs = np.argwhere(X.toarray() != 0)
        known = model.mean_ + np.einsum("ik,ik->i", W[pairs[:, 0]], Z[pairs[:, 1]])
        np.testing.assert_allclose(model.predict(pairs), known, atol=1e-9)
    # Were the loss convex, the midpoint of two optima would be one as well.
    assert loss((W + V) / 2, (Z + Y) / 2) > best + 1e-3
    assert loss((W - W) / 2, (Z - Z) / 2) > best + 1.0


@pytest.mark.catalog("LAT-26")
def test_two_starts_end_in_different_factors_and_the_same_product():
    X = some_ratings().toarray()
    X[X == 0] = 3.0
    options = {"biases": False, "alpha": 8.0, "tol": 1e-12, "max_iter": 3000}
    one, two = (
        MatrixFactorization(3, random_state=seed, **options).fit(X) for seed in (0, 1)
    )
    assert np.abs(one.user_factors_ - two.user_factors_).max() > 0.01
    products = [m.user_factors_ @ m.item_factors_.T for m in (one, two)]
    np.testing.assert_allclose(*products, atol=1e-4)


@pytest.mark.catalog("LAT-28")
@pytest.mark.parametrize("K", [2, 5, 25])
def test_fully_observed_the_optimum_is_the_soft_thresholded_svd(K):
    X = np.random.default_rng(0).standard_normal((20, 12)) * 2
    lam_w, lam_z = 2.0, 4.5
    model = MatrixFactorization(
        K,
        biases=False,
        alpha=lam_w,
        alpha_items=lam_z,
        tol=1e-13,
        max_iter=5000,
        random_state=0,
    ).fit(X)
    U, s, Vt = np.linalg.svd(X, full_matrices=False)
    kept = np.maximum(s - np.sqrt(lam_w * lam_z), 0.0)
    kept[K:] = 0.0
    best = U * kept @ Vt
    np.testing.assert_allclose(
        model.user_factors_ @ model.item_factors_.T, best, atol=2e-3
    )
    value = 0.5 * np.sum((X - best) ** 2) + 3.0 * kept.sum()
    assert model.history_["objective"][-1] == pytest.approx(value, rel=1e-6)
    gap = certus.certify(model, X, level="full")["global_gap"]
    assert gap.strength == "proved"
    assert gap.value < 1e-6


@pytest.mark.catalog("LAT-29")
def test_a_stochastic_step_is_the_gradient_of_one_entry_and_touches_one_row_each():
    rng = np.random.default_rng(0)
    n, m, K, rate = 6, 5, 3, 1e-3
    W, Z = rng.standard_normal((n, K)), rng.standard_normal((m, K))
    b, c = rng.standard_normal(n), rng.standard_normal(m)
    lam, u, i, x, s = 0.3, 4, 2, 1.7, 1.4

    def one_entry():
        e = x - b[u] - c[i] - W[u] @ Z[i]
        sizes = W[u] @ W[u] + Z[i] @ Z[i] + b[u] ** 2 + c[i] ** 2
        return 0.5 * s * e**2 + 0.5 * lam * sizes

    expected = [gradient(one_entry, part) for part in (W, Z, b, c)]
    before = [part.copy() for part in (W, Z, b, c)]
    starts, stops = np.zeros(n, dtype=int), np.zeros(n, dtype=int)
    stops[u] = 1
    keep = [np.full(len(part), 1 - rate * lam) for part in (W, Z, b, c)]
    visit(
        *(np.arange(n), starts, stops, np.array([i]), np.array([x]), np.array([s])),
        *(W, Z, b, c, *keep, True, rate),
    )
    for now, old, slope in zip((W, Z, b, c), before, expected):
        np.testing.assert_allclose((old - now) / rate, slope, atol=1e-6)
    assert [
        int(np.any(now != old, axis=1).sum())
        for now, old in ((W, before[0]), (Z, before[1]))
    ] == [1, 1]


@pytest.mark.catalog("LAT-29")
def test_small_stochastic_steps_reach_the_objective_of_exact_solves():
    X = some_ratings(60, 40)
    options = {"alpha": 10.0, "random_state": 0}
    exact = MatrixFactorization(3, tol=1e-9, max_iter=2000, **options).fit(X)
    steps = MatrixFactorization(
        3, solver="sgd", learning_rate=0.004, max_iter=1500, **options
    ).fit(X)
    low, near = exact.history_["objective"][-1], steps.history_["objective"][-1]
    assert low <= near <= 1.002 * low
    assert steps.certificate_["remaining_gain"].value < 1e-3


@pytest.mark.catalog("LAT-30")
@pytest.mark.parametrize("penalty", [0.0, 0.5])
def test_a_fully_observed_half_step_is_the_closed_form(penalty):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((9, 7)) + 0.1
    W, K = rng.standard_normal((9, 3)), 3
    Z = np.zeros((7, K))
    none = np.zeros(0)
    T = sparse.csr_matrix(X.T)
    solve_rows(
        *(T.indptr, T.indices, T.data, none, W, np.zeros(9), np.zeros((K, K))),
        *(np.full(7, penalty), none, False, Z, none),
    )
    closed = np.linalg.solve(W.T @ W + penalty * np.eye(K), W.T @ X).T
    np.testing.assert_allclose(Z, closed, rtol=1e-9)


@pytest.mark.catalog("LAT-30")
def test_without_a_penalty_als_reaches_the_loss_of_the_truncated_svd():
    X = np.random.default_rng(1).standard_normal((25, 15))
    model = MatrixFactorization(
        4, biases=False, alpha=0.0, tol=1e-13, max_iter=5000, random_state=0
    ).fit(X)
    s = np.linalg.svd(X, compute_uv=False)
    assert model.history_["objective"][-1] == pytest.approx(
        0.5 * np.sum(s[4:] ** 2), rel=1e-6
    )
    assert np.all(np.diff(model.history_["objective"]) <= 1e-9)


@pytest.mark.catalog("LAT-31")
@pytest.mark.parametrize("biased", [True, False])
@pytest.mark.parametrize("weighted", [True, False])
def test_after_a_half_step_the_gradient_of_the_masked_objective_vanishes(
    biased, weighted
):
    X, weights, problem, point = some_problem(biased, weighted)
    value = value_of(problem, point)
    for side, parts in ((0, (point.W, point.b)), (1, (point.Z, point.c))):
        half_step(problem, point, side)
        below = value_of(problem, point)
        assert below < value
        value = below
        for part in parts if biased else parts[:1]:
            slope = gradient(lambda: brute_force(X, weights, problem, point), part)
            assert np.abs(slope).max() < 1e-5


@pytest.mark.catalog("LAT-31")
def test_masked_als_is_dense_als_when_everything_is_observed():
    X = np.random.default_rng(0).standard_normal((12, 10)) + 3
    options = {"biases": False, "tol": None, "max_iter": 7, "random_state": 0}
    model = MatrixFactorization(3, alpha=0.7, **options).fit(X)
    Z = 0.1 * np.random.default_rng(
        model.certificate_.evidence.witness.seed
    ).standard_normal((10, 3))
    for _ in range(7):
        W = np.linalg.solve(Z.T @ Z + 0.7 * np.eye(3), Z.T @ X.T).T
        Z = np.linalg.solve(W.T @ W + 0.7 * np.eye(3), W.T @ X).T
    np.testing.assert_allclose(model.item_factors_, Z, rtol=1e-8)
    np.testing.assert_allclose(model.user_factors_, W, rtol=1e-8)


class Counted:
    """A number that counts the products and quotients it takes part in."""

    count = 0

    def __init__(self, value):
        self.value = float(value)

    def __array_ufunc__(self, function, method, *parts):
        cost = int(function in (np.multiply, np.true_divide))
        return self._new(function(*map(float, parts)), cost)

    def _new(self, value, cost):
        Counted.count += cost
        return Counted(value)

    def __mul__(self, other):
        return self._new(self.value * float(other), 1)

    def __truediv__(self, other):
        return self._new(self.value / float(other), 1)

    def __add__(self, other):
        return self._new(self.value + float(other), 0)

    def __sub__(self, other):
        return self._new(self.value - float(other), 0)

    def __rsub__(self, other):
        return self._new(float(other) - self.value, 0)

    def __float__(self):
        return self.value

    def __gt__(self, other):
        return self.value > float(other)

    __rmul__, __radd__ = __mul__, __add__


def counted(values):
    out = np.empty(np.shape(values), dtype=object)
    for place in np.ndindex(out.shape):
        out[place] = Counted(np.asarray(values)[place])
    return out


def products_of(work):
    Counted.count = 0
    work()
    return Counted.count


@pytest.mark.catalog("LAT-32")
def test_a_stochastic_step_costs_K_products():
    def step(K):
        ones = counted(np.ones((1, K)))
        keep, one, none = np.full(1, 0.9), np.ones(1, dtype=int), np.zeros(0)
        return products_of(
            lambda: visit.py_func(
                *(0 * one, 0 * one, one, 0 * one, np.ones(1), none),
                *(ones, ones.copy(), np.zeros(1), np.zeros(1)),
                *(keep, keep, keep, keep, False, Counted(0.1)),
            )
        )

    assert step(24) - step(16) == step(16) - step(8) == 8 * 5
    assert step(32) < 2.1 * step(16)


@pytest.mark.catalog("LAT-32")
def test_an_exact_solve_costs_K_squared_an_entry_and_K_cubed_a_row():
    def gather(K, entries):
        A, rhs, Y = (counted(np.zeros(shape)) for shape in ((K, K), K, (4, K)))
        other = counted(np.ones((1, K)))
        places, values = np.zeros(entries, dtype=int), np.ones(entries)
        parts = (places, values, np.zeros(0), other, np.zeros(1), False)
        return products_of(lambda: add_entries(0, entries, *parts, Y, A, rhs))

    def invert(K):
        A = counted(np.eye(K) + 1.0)
        return products_of(lambda: cholesky_solve(A, counted(np.ones(K))))

    assert gather(8, 20) == 5 * gather(8, 4)
    by_size = np.array([gather(K, 4) for K in range(4, 20, 4)])
    assert len(set(np.diff(by_size, 2))) == 1  # a quadratic polynomial
    assert np.diff(by_size, 2)[0] == 4 * 16  # of leading term 4·K²/2
    by_size = np.array([invert(K) for K in range(2, 12, 2)])
    assert len(set(np.diff(by_size, 3))) == 1  # a cubic one
    assert np.diff(by_size, 3)[0] == 8  # of leading term K³/6


# -- implicit counts --------------------------------------------------------------


def dense_implicit(C, W, Z, alpha, penalty):
    confidence, preference = 1 + alpha * C, (C > 0).astype(float)
    loss = np.sum(confidence * (preference - W @ Z.T) ** 2)
    return loss + penalty * (np.sum(W**2) + np.sum(Z**2))


def test_the_implicit_objective_is_that_over_all_users_and_items():
    rng = np.random.default_rng(0)
    X = some_ratings()
    model = ImplicitALS(4, count_weight=2.5, alpha=0.3, random_state=0).fit(X)
    known = dense_implicit(
        X.toarray(), model.user_factors_, model.item_factors_, 2.5, 0.3
    )
    assert model.history_["objective"][-1] == pytest.approx(known, rel=1e-12)
    assert model.certificate_["objective"].value == pytest.approx(known, rel=1e-12)
    W, Z = rng.standard_normal((30, 4)), rng.standard_normal((20, 4))
    sides = both_sides(X, 2.5 * X.data, np.ones(X.nnz))
    assert implicit_objective(sides[0], W, Z, 0.3) == pytest.approx(
        dense_implicit(X.toarray(), W, Z, 2.5, 0.3), rel=1e-12
    )


@pytest.mark.parametrize("steps", [None, 12])
def test_an_implicit_half_step_solves_the_dense_weighted_ridge(steps):
    rng = np.random.default_rng(0)
    X = some_ratings()
    C, alpha, penalty, K = X.toarray(), 2.5, 0.3, 4
    W, Z = np.zeros((30, K)), rng.standard_normal((20, K))
    implicit_half_step(
        both_sides(X, alpha * X.data, np.ones(X.nnz))[0], W, Z, penalty, steps
    )
    for u in range(30):
        c = 1 + alpha * C[u]
        A = (Z * c[:, None]).T @ Z + penalty * np.eye(K)
        known = np.linalg.solve(A, Z.T @ (c * (C[u] > 0)))
        np.testing.assert_allclose(W[u], known, rtol=1e-6)


@pytest.mark.parametrize("solver", ["cg", "cholesky"])
def test_implicit_rounds_never_rise(solver):
    X = some_ratings(80, 50)
    model = ImplicitALS(6, solver=solver, tol=None, max_iter=40, random_state=0).fit(X)
    objective = np.array(model.history_["objective"])
    assert np.all(np.diff(objective) <= 1e-9 * objective[:-1])


# -- threads, precision, starts ---------------------------------------------------


@pytest.mark.parametrize(
    "model",
    [
        MatrixFactorization(6, solver="sgd", max_iter=3, random_state=0),
        MatrixFactorization(6, tol=None, max_iter=3, random_state=0),
        ImplicitALS(6, tol=None, max_iter=3, random_state=0),
    ],
    ids=["sgd", "als", "implicit"],
)
def test_one_and_two_threads_agree_to_the_last_bit(model, monkeypatch):
    from sklearn.base import clone

    from certus._core import threads
    from certus.recommend import rating_solvers

    X = some_ratings(600, 400, 0.3)  # enough for several blocks
    found = []
    for budget in (1, 2, 4):
        for module in (threads, rating_solvers):
            monkeypatch.setattr(module, "thread_budget", lambda b=budget: b)
        found.append(clone(model).fit(X))
    for other in found[1:]:
        np.testing.assert_array_equal(found[0].user_factors_, other.user_factors_)
        np.testing.assert_array_equal(found[0].item_factors_, other.item_factors_)


@pytest.mark.parametrize("cls", [MatrixFactorization, ImplicitALS])
def test_float32_ratings_give_float32_factors_near_those_of_float64(cls):
    X = some_ratings(60, 40)
    options = {"max_iter": 5, "tol": None, "random_state": 0}
    single, double = (
        cls(3, **options).fit(X.astype(t)) for t in (np.float32, np.float64)
    )
    assert single.user_factors_.dtype == single.predict([(0, 0)]).dtype == np.float32
    pairs = np.argwhere(X.toarray())
    np.testing.assert_allclose(single.predict(pairs), double.predict(pairs), atol=2e-3)


@pytest.mark.parametrize("solver", ["als", "sgd"])
def test_weights_are_repetitions(solver):
    """A rating of weight 2 counts as two users with the same factors would."""
    X = some_ratings()
    weights = X.copy()
    weights.data = np.random.default_rng(0).integers(1, 4, X.nnz).astype(float)
    model = MatrixFactorization(
        2, solver=solver, max_iter=10, tol=None, random_state=0
    ).fit(X, sample_weight=weights)
    pairs = np.argwhere(X.toarray())
    e = X.data - model.predict(pairs)
    sizes = [model.user_factors_, model.item_factors_]
    sizes += [model.user_biases_, model.item_biases_]
    value = 0.5 * weights.data @ e**2 + 2.5 * sum(np.sum(s**2) for s in sizes)
    assert model.history_["objective"][-1] == pytest.approx(value, rel=1e-10)
    assert model.mean_ == pytest.approx(np.average(X.data, weights=weights.data))


def test_a_warm_start_continues_and_a_cold_one_begins_again():
    X = some_ratings()
    model = MatrixFactorization(3, tol=None, max_iter=4, random_state=0)
    once = model.fit(X).history_["objective"][-1]
    assert model.fit(X).history_["objective"][-1] == once
    model.set_params(warm_start=True).fit(X)
    both = MatrixFactorization(3, tol=None, max_iter=8, random_state=0).fit(X)
    np.testing.assert_allclose(model.user_factors_, both.user_factors_, rtol=1e-9)
    assert certus.certify(model, X, level="full")["monotone"].met


@pytest.mark.parametrize("form", ["pairs", "list", "pandas", "polars", "strings"])
def test_pairs_and_a_matrix_are_the_same_ratings(form):
    import pandas as pd
    import polars as pl

    X = some_ratings()
    users, items = X.nonzero()
    pairs = np.column_stack([users, items])
    names = [(f"u{u:02}", f"i{i:02}") for u, i in pairs]
    forms = {
        "pairs": pairs,
        "list": [tuple(pair) for pair in pairs.tolist()],
        "pandas": pd.DataFrame(pairs, columns=["user", "item"]),
        "polars": pl.DataFrame({"user": users, "item": items}),
        "strings": names,
    }
    options = {"max_iter": 3, "tol": None, "random_state": 0}
    matrix = MatrixFactorization(2, **options).fit(X)
    order = np.random.default_rng(0).permutation(X.nnz)
    given = forms[form]
    if form in ("list", "strings"):
        shuffled = [given[k] for k in order]
    else:
        shuffled = given.iloc[order] if form == "pandas" else given[order]
    model = MatrixFactorization(2, **options).fit(shuffled, X.data[order])
    np.testing.assert_array_equal(model.user_factors_, matrix.user_factors_)
    np.testing.assert_array_equal(model.predict(given), matrix.predict(pairs))
    assert certus.certify(model, given, X.data).met is matrix.certificate_.met
