"""The verifier's numbers about factorisations, against solves and long fits."""

from itertools import pairwise

import numpy as np
import pytest
from scipy import sparse

import certus
from certus.certificate import Status, Strength
from certus.recommend import ImplicitALS, MatrixFactorization
from certus.verify import ratings, stating
from certus.verify.half_steps import EXACT, Side, bracket, least, solve, step
from certus.verify.half_steps import bound as sizes_of
from certus.verify.rating_entries import read


def some_ratings(n=40, m=25, seed=0):
    rng = np.random.default_rng(seed)
    known = rng.random((n, m)) < 0.4
    known[:, 0] = known[0] = True
    values = rng.integers(1, 6, known.sum()).astype(float)
    return sparse.csr_matrix((values, np.nonzero(known)), (n, m))


def unfinished(form, seed=0, **options):
    """A model after two rounds, and what the verifier reads of it."""
    X = some_ratings(seed=seed)
    cls = MatrixFactorization if form == "explicit" else ImplicitALS
    model = cls(3, tol=None, max_iter=2, random_state=seed, **options).fit(X)
    return X, model, looked_at(model, X)


def looked_at(model, X, weights=None):
    """What the verifier makes of a model and its ratings."""
    stated = stating.state(model, ratings.READERS)
    counted = stated.count_weight is not None
    return ratings.Evaluated(model, stated, *read(model, X, None, weights, counted))


@pytest.mark.parametrize("form", ["explicit", "implicit"])
@pytest.mark.parametrize("k", [0, 1])
@pytest.mark.parametrize("seed", range(3))
def test_the_bracket_holds_the_gain_of_an_exact_solve(form, k, seed):
    _, _, found = unfinished(form, seed)
    rng = np.random.default_rng(seed)
    point = tuple(part + 0.1 * rng.standard_normal(part.shape) for part in found.point)
    problem = found.problem
    if form == "implicit":
        point = (*point[:2], *found.point[2:])
    side, x = problem.side(k, point), problem.rows(k, point)

    def value(point):
        return problem.value(point, problem.errors(point))[0]

    e = problem.errors(point)
    g = side.gradient(x, problem.slopes(e))
    gain = value(point) - value(problem.moved(point, k, x - solve(side, g)[0]))
    sizes = problem.bound(k, e, point)
    widths = []
    for steps in (0, 1, 4, EXACT):
        found = bracket(side, g, sizes, step(side, g, steps))
        low, high = problem.twice * found.low.sum(), problem.twice * found.high.sum()
        assert low <= gain * (1 + 1e-9)
        assert gain <= (high + problem.twice * found.allowance.sum()) * (1 + 1e-9)
        assert found.allowance.sum() <= 1e-9 * gain
        widths.append(high - low)
    assert all(b <= a + 1e-9 * gain for a, b in pairwise(widths))
    assert widths[-1] <= 1e-9 * gain
    found = least(side, g, sizes)
    assert 0.1 * gain <= problem.twice * found.low.sum() <= gain
    assert found.allowance.sum() <= 1e-9 * gain


def test_the_gradient_is_that_of_finite_differences():
    _, _, found = unfinished("implicit")
    problem, point = found.problem, found.point
    side = problem.side(0, point)
    x = problem.rows(0, point) + 0.1
    at = problem.moved(point, 0, x)
    g = problem.twice * side.gradient(x, problem.slopes(problem.errors(at)))
    for place in ((0, 0), (7, 2), (33, 1)):
        values = []
        for h in (1e-5, -1e-5):
            moved = x.copy()
            moved[place] += h
            at = problem.moved(point, 0, moved)
            values.append(problem.value(at, problem.errors(at))[0])
        assert (values[0] - values[1]) / 2e-5 == pytest.approx(g[place], rel=1e-6)


def test_a_fit_without_a_penalty_has_no_upper_bound():
    rng = np.random.default_rng(0)
    X = some_ratings()
    Y = rng.standard_normal((25, 3))
    side = Side(X, np.ones(X.nnz), Y, np.zeros(3), np.ones(40))
    g, x = rng.standard_normal((40, 3)), np.zeros((40, 3))
    lengths = np.column_stack([np.linalg.norm(Y, axis=1), np.zeros(25)])
    sizes = sizes_of(side, x, -X.data, np.zeros((40, 2)), lengths)
    d = step(side, g, EXACT)
    assert np.all(bracket(side, g, sizes, d).high == np.inf)
    # Unless a bound on the least eigenvalue is proved, row by row.
    d, floor = solve(side, g)
    for u in range(40):
        Z = Y[X[u].indices]
        assert floor[u] <= np.linalg.eigvalsh(Z.T @ Z)[0] * (1 + 1e-12)
    full = np.diff(X.indptr) >= 5
    assert np.all(floor[full] > 0)
    gain = bracket(side, g, sizes, d, floor)
    for u in np.flatnonzero(full):
        Z = Y[X[u].indices]
        exact = 0.5 * g[u] @ np.linalg.solve(Z.T @ Z, g[u])
        assert gain.high[u] + gain.allowance[u] >= exact * (1 - 1e-9)
        assert gain.high[u] == pytest.approx(exact, rel=1e-9)
    model = MatrixFactorization(3, alpha=0.0, random_state=0, tol=1e-2)
    claim = model.fit(X).certificate_["half_step_gain"]
    assert claim.strength is Strength.MEASURED
    assert claim.met is None
    assert model.certificate_.status is Status.UNDECIDED


@pytest.mark.parametrize("scale", ["rows", "ratings"])
@pytest.mark.parametrize("biases", [True, False])
@pytest.mark.parametrize("weighted", [True, False])
def test_the_lower_bound_is_below_every_fit_and_tight_where_the_rank_suffices(
    scale, biases, weighted
):
    X = some_ratings()
    penalty = 6.0 if scale == "rows" else 0.5
    weights = X.copy()
    weights.data = np.random.default_rng(1).uniform(0.5, 2, X.nnz)
    weights = weights if weighted else None
    options = {"biases": biases, "penalty_scale": scale, "alpha": penalty}
    best = MatrixFactorization(
        25, tol=1e-9, max_iter=3000, random_state=0, **options
    ).fit(X, sample_weight=weights)
    gap = certus.certify(best, X, sample_weight=weights, level="full")["global_gap"]
    assert gap.strength is Strength.PROVED
    assert gap.value < 1e-3
    floor = best.history_["objective"][-1]
    for K in (1, 4):
        model = MatrixFactorization(K, tol=None, max_iter=3, random_state=K, **options)
        model.fit(X, sample_weight=weights)
        bound, rounding, strength, _ = ratings._lower_bound(
            looked_at(model, X, weights)
        )
        assert strength is Strength.PROVED
        assert bound - rounding <= floor * (1 + 1e-9)
        assert rounding <= 1e-9 * floor


def test_the_spectral_norm_is_never_below_the_largest_singular_value():
    A = sparse.random(60, 40, 0.2, random_state=0, format="csr")
    top = np.linalg.svd(A.toarray(), compute_uv=False)[0]
    for B in (A, A.T.tocsr()):
        norm, proved = ratings.spectral_norm(B)
        assert proved
        assert top <= norm <= top * (1 + 1e-6)


def test_stochastic_fits_report_the_least_gap_they_leave():
    X = some_ratings()
    model = MatrixFactorization(3, solver="sgd", max_iter=5, random_state=0).fit(X)
    claim = model.certificate_["remaining_gain"]
    assert claim.strength is Strength.PROVED and claim.met is None
    full = certus.certify(model, X, level="full")["remaining_gain"]
    assert 0 < claim.value <= full.value
    before = model.certificate_["objective"].value
    model.set_params(solver="als", warm_start=True, tol=None, max_iter=1).fit(X)
    assert model.history_["objective"][-1] <= before * (1 - full.value) * (1 + 1e-9)


def test_the_gain_stated_bounds_that_of_the_next_round():
    X = some_ratings()
    options = {"random_state": 0, "alpha": 1.0}
    for tol in (1e-2, 1e-4):
        model = MatrixFactorization(3, tol=tol, max_iter=500, **options).fit(X)
        stated = model.certificate_.value
        assert model.certificate_.met and stated <= tol
        before = model.certificate_["objective"].value
        Z, c = model.item_factors_.copy(), model.item_biases_.copy()
        model.set_params(warm_start=True, tol=None, max_iter=1).fit(X)
        mixed = MatrixFactorization(3, **options)
        vars(mixed).update(vars(model))
        mixed.item_factors_, mixed.item_biases_ = Z, c
        after = certus.certify(mixed, X)["objective"].value
        assert 0 <= (before - after) / before <= stated * (1 + 1e-9)


def test_no_claim_about_the_best_is_made_without_a_comparison():
    """Ratings of one value leave no sum of squares to take a share of."""
    model = MatrixFactorization(2, tol=None, max_iter=1, random_state=0)
    model.fit(np.full((6, 5), 3.0))
    model.item_factors_ = np.ones((5, 2))
    model.user_factors_ = np.ones((6, 2))
    found = certus.certify(model, np.full((6, 5), 3.0), level="full")
    assert found["objective"].value > 1
    assert found["global_gap"].value == np.inf
