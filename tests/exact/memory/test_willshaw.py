"""Willshaw's memory: synapses, retrieval, and how much it holds."""

import math

import numpy as np
import pytest

import certus
from certus.memory import (
    WillshawMemory,
    capacity,
    cover_probability,
    pattern_information,
    willshaw_limits,
)

RNG = np.random.default_rng(0)


def sparse_rows(s, n, r, rng=RNG):
    out = np.zeros((s, n))
    np.put_along_axis(out, np.argsort(rng.random((s, n)), axis=1)[:, :r], 1.0, axis=1)
    return out


@pytest.mark.catalog("MEM-06")
def test_information_of_sparse_patterns():
    assert pattern_information(10, 3) == pytest.approx(math.log2(120))
    for n in (10**3, 10**6, 10**9):
        exact, rough = pattern_information(n, 5), 5 * math.log2(n)
        # C(n, r) is nʳ/r! but for factors (1 − i/n).
        assert exact == pytest.approx(rough - math.log2(math.factorial(5)), abs=0.02)
        assert exact / rough > 1 - 7 / rough
    assert pattern_information(5, 0) == 0.0


@pytest.mark.catalog("MEM-07")
def test_synapses_are_binary_and_forget_order_and_repetition():
    X, y = sparse_rows(30, 40, 4), sparse_rows(30, 25, 3)
    model = WillshawMemory().fit(X, y)
    wanted = np.minimum(1, sum(np.outer(b, a) for a, b in zip(X, y)))
    np.testing.assert_array_equal(model.weights_, wanted)
    order = RNG.permutation(30)
    shuffled = WillshawMemory().fit(X[order], y[order])
    twice = WillshawMemory().fit(np.vstack([X, X]), np.vstack([y, y]))
    for other in (shuffled, twice):
        np.testing.assert_array_equal(other.weights_, model.weights_)
    assert model.certificate_["rule_weights"].met


@pytest.mark.catalog("MEM-08")
def test_stored_pairs_are_retrieved_at_low_load():
    X, y = sparse_rows(20, 200, 8), sparse_rows(20, 150, 8)
    model = WillshawMemory().fit(X, y)
    np.testing.assert_array_equal(model.predict(X), y)
    fields = X @ model.weights_.T.astype(float)
    np.testing.assert_array_equal(model.predict(X), fields >= 8)
    assert model.certificate_["false_ones"].value == 0.0


@pytest.mark.catalog("MEM-09")
@pytest.mark.parametrize("s", [10, 300, 3000])
def test_no_one_is_ever_missing(s):
    X, y = sparse_rows(s, 60, 5), sparse_rows(s, 60, 5)
    model = WillshawMemory().fit(X, y)
    parts = X * (RNG.random(X.shape) < 0.6)
    for cue in (X, parts, np.zeros_like(X)):
        assert (model.predict(cue) >= y).all()
    found = model.certificate_
    assert found.met and found["missing_ones"].value == 0.0
    false = int((model.predict(X) > y).sum())
    assert found["false_ones"].value == false and (false > 0) == (s > 10)


@pytest.mark.catalog("MEM-10")
def test_the_bound_on_the_number_of_patterns():
    n = 1024
    found = willshaw_limits(n, 10)
    assert found["pattern_bound"] == pytest.approx(n**2 / (10 * 10))
    # More patterns would carry more bits than there are synapses, at r·log₂ n each.
    assert found["pattern_bound"] * 10 * math.log2(n) == pytest.approx(n**2)
    assert found["n_patterns"] == pytest.approx(math.log(2) * found["pattern_bound"])


@pytest.mark.catalog("MEM-11")
def test_half_of_the_synapses_are_on_at_capacity():
    n = 512
    told = willshaw_limits(n)
    r, s = int(told["n_ones"]), round(told["n_patterns"])
    assert r == 9 and told["fill"] == pytest.approx(0.5)
    assert told["false_rate"] == pytest.approx(0.5**9)
    assert told["bits"] == pytest.approx(n**2 * math.log(2))
    X, y = (sparse_rows(s, n, r, np.random.default_rng(k)) for k in (1, 2))
    model = WillshawMemory().fit(X, y)
    assert model.fill_ == pytest.approx(0.5, abs=0.01)
    rate = model.certificate_["false_ones"].value / (s * (n - r))
    # Units that took part in more pairs have more false ones: the mean of powers is
    # above the power of the mean.
    by_unit = float((model.weights_.mean(axis=1) ** r).mean())
    assert rate == pytest.approx(by_unit, rel=0.1)
    assert 0.5**r < by_unit < 1.5 * 0.5**r


@pytest.mark.catalog("MEM-11")
def test_information_rises_towards_ln_2_and_never_above():
    curve = capacity(128, rule="willshaw", n_trials=2, random_state=0)
    assert curve.limit == pytest.approx(math.log(2))
    assert (curve.values < curve.limit).all()
    assert curve.values[4] > 3 * curve.values[0]
    np.testing.assert_allclose(curve.values, curve.expected, rtol=0.1)


@pytest.mark.catalog("MEM-18")
def test_random_dichotomies_become_inseparable_at_two_points_for_each_weight():
    loads = [1.4, 2.0, 2.8]
    curve = capacity(20, rule="optimal", loads=loads, n_trials=30, random_state=0)
    below, at, above = curve.values
    assert below > 0.8 > 0.5 > 0.2 > above
    assert (curve.low <= curve.expected).all() and (curve.expected <= curve.high).all()
    assert curve.expected[1] == 0.5 and curve.limit == 2.0 and 0.2 < at < 0.8


@pytest.mark.catalog("MEM-18")
def test_covers_count_is_half_at_twice_the_dimension():
    for n in (1, 2, 7, 40, 300, 900):
        assert cover_probability(2 * n, n) == pytest.approx(0.5, abs=1e-9)
        assert cover_probability(n, n) == 1.0
    # Four points in the plane: 8 of 16 dichotomies by lines through the origin.
    assert cover_probability(4, 2) == 0.5


@pytest.mark.catalog("MEM-17")
def test_the_curve_of_hebbs_rule_falls_behind_its_limit():
    curve = capacity(150, loads=[0.05, 0.138, 0.3], n_trials=3, random_state=0)
    assert curve.values[0] > 0.995 and curve.values[1] > 0.9 > 0.65 > curve.values[2]
    assert curve.limit == 0.138 and curve.to_frame().height == 3


def test_one_output_and_a_file(tmp_path):
    X = sparse_rows(12, 50, 5)
    y = (RNG.random(12) < 0.5).astype(int)
    model = WillshawMemory().fit(X, y)
    assert model.predict(X).shape == (12,) and (model.predict(X) >= y).all()
    back = certus.load(model.save(tmp_path / "m.certus"))
    np.testing.assert_array_equal(back.predict(X), model.predict(X))
    assert certus.certify(back, X, y).met


@pytest.mark.parametrize("n_out", [1, 63, 64, 65, 130])
def test_bits_are_packed_and_unpacked_in_their_places(n_out):
    X, y = sparse_rows(6, 40, 6), (RNG.random((6, n_out)) < 0.3).astype(float)
    model = WillshawMemory().fit(X, y)
    fields = X @ model.weights_.T.astype(float)
    np.testing.assert_array_equal(model.predict(X), fields >= 6)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: capacity(1), "n_units must be"),
        (lambda: capacity(10, rule="best"), "rule must be one of"),
        (lambda: capacity(10, loads=[]), "at least one number"),
        (lambda: capacity(10, loads=[-1.0]), "each of loads"),
        (lambda: pattern_information(5, 6), "n_ones must be"),
        (lambda: cover_probability(0, 2), "n_points must be"),
        (lambda: willshaw_limits(1), "n_units must be"),
    ],
)
def test_wrong_arguments_get_clear_messages(call, message):
    with pytest.raises(ValueError, match=message):
        call()
