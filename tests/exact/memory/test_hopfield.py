"""Hopfield networks: weights, recall, energy, and radii against all flips."""

from fractions import Fraction
from itertools import combinations

import numpy as np
import pytest
from scipy.stats import norm

import certus
from certus.certificate import Status, Strength
from certus.memory import HopfieldNetwork
from certus.verify.cancelling import cancels

pytestmark = pytest.mark.filterwarnings("ignore::certus.base.UncertifiedWarning")
RNG = np.random.default_rng(0)


def signs(s, n, rng=RNG):
    return np.where(rng.random((s, n)) < 0.5, -1.0, 1.0)


@pytest.mark.catalog("MEM-05")
def test_hebbs_rule_adds_products():
    a, b = signs(3, 12), signs(4, 12)
    parts = [HopfieldNetwork(fit_intercept=True).fit(x) for x in (a, b)]
    both = HopfieldNetwork(fit_intercept=True).fit(np.vstack([a, b]))
    np.testing.assert_array_equal(both.weights_, parts[0].weights_ + parts[1].weights_)
    sums = parts[0].intercept_ + parts[1].intercept_
    np.testing.assert_array_equal(both.intercept_, sums)


@pytest.mark.catalog("MEM-12")
def test_the_weights_are_symmetric_with_a_diagonal_of_zeros():
    x = signs(5, 30)
    model = HopfieldNetwork().fit(x)
    wanted = sum(np.outer(row, row) - np.eye(30) for row in x)
    np.testing.assert_array_equal(model.weights_, wanted)
    np.testing.assert_array_equal(model.weights_, model.weights_.T)
    assert not np.diag(model.weights_).any()
    assert model.certificate_["rule_weights"].met


@pytest.mark.catalog("MEM-13")
@pytest.mark.parametrize("rule", ["hebb", "projection"])
def test_recall_in_turn_ends_at_a_fixed_point(rule):
    model = HopfieldNetwork(rule).fit(signs(12, 60))
    rest = model.predict(signs(100, 60))
    fields = rest @ model.weights_.T
    assert (rest * fields >= -1e-9).all()
    np.testing.assert_array_equal(model.predict(rest), rest)


@pytest.mark.catalog("MEM-14")
def test_two_units_updated_at_once_alternate():
    model = HopfieldNetwork(update="synchronous", max_iter=1).fit([[1, 1]])
    there = model.predict([[1, -1]])
    np.testing.assert_array_equal(there, [[-1, 1]])
    np.testing.assert_array_equal(model.predict(there), [[1, -1]])
    claim = model.certificate_["energy_rise"]
    assert claim.strength is Strength.REFUSED and "alternate" in claim.detail
    model.update = "asynchronous"
    model.max_iter = 5
    assert abs(model.predict([[1, -1]]).sum()) == 2


@pytest.mark.catalog("MEM-15")
def test_the_energy_with_its_half_never_rises_and_without_it_does():
    n, trials, rose = 6, 500, 0
    model = HopfieldNetwork(fit_intercept=True).fit(signs(2, n))
    for _ in range(trials):
        W = RNG.normal(size=(n, n))
        W = np.triu(W, 1) + np.triu(W, 1).T
        model.weights_, model.intercept_ = W, RNG.normal(size=n)
        x, i = signs(1, n)[0], int(RNG.integers(n))
        y = x.copy()
        y[i] = np.sign(W[i] @ x + model.intercept_[i])
        before, after = model.energy([x, y])
        assert after <= before + 1e-12
        printed = [-z @ W @ z - model.intercept_ @ z for z in (x, y)]
        rose += printed[1] > printed[0] + 1e-9
    assert 0.01 * trials < rose < 0.25 * trials


@pytest.mark.catalog("MEM-15")
def test_the_energy_falls_along_a_recall_and_the_certificate_says_so():
    model = HopfieldNetwork().fit(signs(8, 80))
    start, levels = signs(20, 80), []
    for sweeps in range(1, 6):
        model.max_iter = sweeps
        levels.append(model.energy(model.predict(start)))
    assert (np.diff([model.energy(start), *levels], axis=0) <= 0).all()
    assert model.certificate_["energy_rise"].met
    assert model.certificate_["energy_rise"].value == 0.0


@pytest.mark.catalog("MEM-16")
def test_one_pattern_and_its_mirror_attract_half_of_all_states():
    n = 20
    x = signs(1, n)
    model = HopfieldNetwork().fit(x)
    for k in range(1, n // 2):
        flipped = x[0].copy()
        flipped[:k] *= -1
        fields = model.weights_ @ flipped
        np.testing.assert_array_equal(fields[k:], (n - 2 * k - 1) * x[0, k:])
        np.testing.assert_array_equal(model.predict([flipped, -flipped]), [x[0], -x[0]])
    np.testing.assert_array_equal(model.predict(-x), -x)
    assert model.radius_.tolist() == [n // 2 - 1] and model.certificate_.met


@pytest.mark.catalog("MEM-17")
def test_recall_collapses_beyond_0_138_patterns_for_each_unit():
    n, rng = 400, np.random.default_rng(1)

    def overlap(s):
        x = signs(s, n, rng)
        with certus.config_context(certify="never"):
            return float((HopfieldNetwork().fit(x).predict(x) * x).mean())

    assert 0.93 < np.mean([overlap(55) for _ in range(3)]) <= 1.0
    assert 0.30 < np.mean([overlap(100) for _ in range(3)]) < 0.55


@pytest.mark.catalog("MEM-17")
def test_one_step_errs_in_the_share_that_the_theory_says():
    n, s, wrong, rng = 400, 55, 0, np.random.default_rng(2)
    with certus.config_context(certify="never"):
        for _ in range(6):
            x = signs(s, n, rng)
            one = HopfieldNetwork(update="synchronous", max_iter=1).fit(x)
            wrong += int((one.predict(x) != x).sum())
    share = norm.cdf(-1 / np.sqrt(s / n))
    assert share == pytest.approx(0.0036, abs=1e-4)
    assert wrong / (6 * s * n) == pytest.approx(share, rel=0.2)


# -- radii against the truth ------------------------------------------------------


def repaired(model, x, k):
    """Whether one synchronous step repairs any k flips, in exact arithmetic."""
    W = [[Fraction(float(w)) for w in row] for row in model.weights_]
    b = [Fraction(float(c)) for c in model.intercept_]
    for where in combinations(range(len(x)), k):
        state = [int(v) for v in x]
        for i in where:
            state[i] = -state[i]
        for i, own in enumerate(x):
            field = sum((w * v for w, v in zip(W[i], state)), b[i])
            if field * int(own) <= 0:
                return False
    return True


@pytest.mark.parametrize("rule", ["hebb", "projection", "margin"])
@pytest.mark.parametrize("intercept", [False, True])
def test_the_radius_holds_for_every_set_of_flips(rule, intercept):
    rng = np.random.default_rng(3)
    x = signs(2, 9, rng)
    model = HopfieldNetwork(rule, fit_intercept=intercept).fit(x)
    assert model.certificate_["repair_radius"].met
    for row, radius in zip(x, model.radius_):
        assert radius < 0 or repaired(model, row, int(radius))


def test_a_radius_is_proved_only_where_it_is_true():
    rng = np.random.default_rng(4)
    seen = set()
    for trial in range(25):
        x = signs(2, 7, rng)
        model = HopfieldNetwork("projection").fit(x)
        model.weights_ = model.weights_ + 0.05 * rng.normal(size=(7, 7))
        np.fill_diagonal(model.weights_, 0.0)
        model.radius_ = rng.integers(-1, 3, 2)
        found = certus.certify(model, x)
        seen.add(found["repair_radius"].met)
        if found["repair_radius"].met:
            for row, radius in zip(x, model.radius_):
                assert radius < 0 or repaired(model, row, int(radius)), trial
        if found["fixed_points"].met:
            assert all(repaired(model, row, 0) for row in x)
    assert seen == {True, False}


def test_figures_of_radii_at_400_units():
    rng = np.random.default_rng(5)
    four, ten = (HopfieldNetwork().fit(signs(s, 400, rng)) for s in (4, 10))
    assert 35 <= four.radius_.min() <= four.radius_.max() <= 50
    assert 8 <= ten.radius_.min() <= ten.radius_.max() <= 25
    better = HopfieldNetwork("projection").fit(signs(10, 400, rng))
    assert better.radius_.min() > ten.radius_.min()


# -- rules ------------------------------------------------------------------------


def test_the_projection_stores_as_many_independent_patterns_as_fit():
    x = signs(40, 60)
    model = HopfieldNetwork("projection").fit(x)
    P = np.linalg.pinv(x) @ x
    np.testing.assert_allclose(model.weights_, P - np.diag(np.diag(P)), atol=1e-10)
    assert model.certificate_.met and HopfieldNetwork().fit(x).certificate_.met is False


def test_margins_are_the_widest_possible():
    from sklearn.svm import LinearSVC

    x = signs(15, 20)
    model = HopfieldNetwork("margin").fit(x)
    assert model.certificate_.met
    for i in range(3):
        others = np.delete(x, i, axis=1)
        options = {"loss": "hinge", "fit_intercept": False, "max_iter": 100_000}
        svc = LinearSVC(C=1e6, tol=1e-8, **options).fit(others, x[:, i])
        w = np.delete(model.weights_[i], i)
        mine = (x[:, i] * (others @ w)).min() / np.linalg.norm(w)
        theirs = 1 / np.linalg.norm(svc.coef_)
        assert mine == pytest.approx(theirs, rel=3e-3)


@pytest.mark.catalog("MEM-18")
def test_more_patterns_than_any_weights_store_are_proved_impossible():
    rng = np.random.default_rng(6)
    few = HopfieldNetwork("margin").fit(signs(25, 25, rng))
    assert few.certificate_.met and "not_storable" not in few.certificate_
    x = signs(90, 25, rng)
    many = HopfieldNetwork("margin").fit(x)
    found = many.certificate_
    assert found.met is False and found["not_storable"].strength is Strength.PROVED
    assert found["not_storable"].value == 1.0
    witness = found.evidence.witness
    Z = np.delete(x, witness.unit, axis=1) * x[:, [witness.unit]]
    assert np.abs(Z.T @ witness.combination).max() < 1e-9
    with pytest.warns(certus.base.UncertifiedWarning, match="store fewer patterns"):
        HopfieldNetwork("margin").fit(x)


def test_a_combination_of_rows_that_can_be_separated_proves_nothing():
    Z = np.abs(signs(6, 4))
    assert not cancels(Z, np.ones(6))
    assert cancels(np.array([[1.0, 1], [-1, -1]]), np.ones(2))
    assert cancels(np.array([[1.0, 1], [-1, -1]]), np.array([1.0, 1 + 1e-16]))
    # (1, 0.9) can be moved to (0.95, 0.95), which cancels; (1, 0.1) is too far away.
    assert cancels(np.array([[1.0, 1], [-1, -1]]), np.array([1.0, 0.9]))
    assert not cancels(np.array([[1.0, 1], [-1, -1]]), np.array([1.0, 0.1]))
    assert not cancels(np.array([[1.0, 1], [-1, -1]]), np.array([1.0, -1.0]))
    assert not cancels(np.array([[1.0, 1], [-1, -1]]), np.zeros(2))
    assert not cancels(np.array([[1.0, 1], [-1, -1]]), np.full(2, np.nan))


def test_the_weights_of_margins_are_reported_as_not_symmetric():
    model = HopfieldNetwork("margin").fit(signs(10, 20))
    claim = model.certificate_["energy_rise"]
    assert claim.strength is Strength.REFUSED and "not symmetric" in claim.detail


# -- coding, limits, files --------------------------------------------------------


def test_zeros_and_ones_come_back_as_such():
    x = signs(3, 40)
    plain, bits = HopfieldNetwork().fit(x), HopfieldNetwork().fit(x > 0)
    np.testing.assert_array_equal(plain.weights_, bits.weights_)
    start = signs(5, 40)
    found = bits.predict(start > 0)
    assert set(np.unique(found)) <= {0.0, 1.0}
    np.testing.assert_array_equal(plain.predict(start), 2 * found - 1)


def test_other_numbers_are_cut_at_the_threshold_of_binarize():
    X = RNG.normal(size=(4, 50))
    model = HopfieldNetwork(binarize=0.3).fit(X)
    same = HopfieldNetwork().fit(np.where(X > 0.3, 1, -1))
    np.testing.assert_array_equal(model.weights_, same.weights_)
    assert "entries above 0.3 count as 1" in str(model.certificate_)
    with pytest.raises(ValueError, match="must hold only 0 and 1"):
        HopfieldNetwork(binarize=None).fit(X)


def test_a_time_limit_stops_the_margins():
    x = signs(60, 40)
    model = HopfieldNetwork("margin", max_time=0.0).fit(x)
    assert model.n_iter_ == 10 and len(model.history_["gap"]) == 1
    found = model.certificate_
    assert found.status is Status.TIME_LIMIT and found.met is False


@pytest.mark.parametrize("rule", ["hebb", "projection", "margin"])
def test_a_file_brings_the_memory_back(rule, tmp_path):
    x = signs(5, 30)
    model = HopfieldNetwork(rule).fit(x)
    back = certus.load(model.save(tmp_path / "m.certus"))
    start = signs(9, 30)
    np.testing.assert_array_equal(back.predict(start), model.predict(start))
    assert certus.certify(back, x).met == model.certificate_.met


def test_the_order_of_rows_and_units_does_not_matter():
    x, order = signs(6, 40), RNG.permutation(40)
    a, b = HopfieldNetwork().fit(x), HopfieldNetwork().fit(x[::-1][:, order])
    np.testing.assert_array_equal(a.weights_[np.ix_(order, order)], b.weights_)
    np.testing.assert_array_equal(a.radius_, b.radius_[::-1])
