"""The verifier's numbers about factorisations, against solves and long fits."""

import numpy as np
import pytest
from scipy import sparse

import certus
from certus.certificate import Strength
from certus.factor import ImplicitALS, MatrixFactorization
from certus.verify.factorisation import EXACT, Side, bracket, solve, spectral_norm
from certus.verify.rating_entries import read
from certus.verify.ratings import Explicit, Implicit, _lower_bound


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
    entries = read(model, X, None, None, form == "implicit")
    params = model.certificate_.evidence.params
    return (
        X,
        model,
        (Explicit if form == "explicit" else Implicit)(model, params, entries),
    )


@pytest.mark.parametrize("form", ["explicit", "implicit"])
@pytest.mark.parametrize("k", [0, 1])
@pytest.mark.parametrize("seed", range(3))
def test_the_bracket_holds_the_gain_of_an_exact_solve(form, k, seed):
    _, _, found = unfinished(form, seed)
    rng = np.random.default_rng(seed)
    point = tuple(part + 0.1 * rng.standard_normal(part.shape) for part in found.point)
    side = found.side(k, point)
    x = found.rows(k, point)

    def value(point):
        users = found.side(0, point)
        return found.value_at(point, users.products(found.rows(0, point)))

    gain = value(point) - value(found.moved(point, k, solve(side)))
    g = side.gradient(x, side.products(x))
    widths = []
    for steps in (0, 1, 3, EXACT):
        low, high = (found.twice * bound for bound in bracket(side, g, steps))
        assert low <= gain * (1 + 1e-9)
        assert gain <= high * (1 + 1e-9)
        widths.append(high - low)
    assert widths == sorted(widths, reverse=True)
    assert widths[-1] <= 1e-9 * gain


def test_the_gradient_is_that_of_finite_differences():
    _, _, found = unfinished("implicit")
    side = found.side(0)
    x = found.rows(0) + 0.1
    g = found.twice * side.gradient(x, side.products(x))
    for place in ((0, 0), (7, 2), (33, 1)):
        values = []
        for h in (1e-5, -1e-5):
            moved = x.copy()
            moved[place] += h
            values.append(
                found.value_at(found.moved(found.point, 0, moved), side.products(moved))
            )
        assert (values[0] - values[1]) / 2e-5 == pytest.approx(g[place], rel=1e-6)


def test_without_a_penalty_there_is_no_upper_bound():
    rng = np.random.default_rng(0)
    X = some_ratings()
    none = np.zeros((3, 3))
    side = Side(
        *(X.indptr, X.indices, np.ones(X.nnz), X.data),
        *(rng.standard_normal((25, 3)), none, np.ones(40)),
    )
    g = rng.standard_normal((40, 3))
    assert bracket(side, g, 0).high == np.inf
    model = MatrixFactorization(3, user_penalty=0.0, random_state=0, tol=1e-2)
    claim = model.fit(X).certificate_["half_step_gain"]
    assert claim.strength is Strength.MEASURED
    assert claim.met is None


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
    options = {"biases": biases, "penalty_scale": scale, "user_penalty": penalty}
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
        entries = read(model, X, None, weights, False)
        found = Explicit(model, model.certificate_.evidence.params, entries)
        bound, proved, _ = _lower_bound(found)
        assert proved
        assert bound <= floor * (1 + 1e-9)


def test_the_spectral_norm_is_never_below_the_largest_singular_value():
    A = sparse.random(60, 40, 0.2, random_state=0, format="csr")
    top = np.linalg.svd(A.toarray(), compute_uv=False)[0]
    for B in (A, A.T.tocsr()):
        norm, proved = spectral_norm(B)
        assert proved
        assert top <= norm <= top * (1 + 1e-6)


def test_stochastic_fits_are_told_the_least_they_leave():
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
    options = {"random_state": 0, "user_penalty": 1.0}
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
