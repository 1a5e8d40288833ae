"""Threshold units, their normal forms, and machines of NANDs."""

from itertools import product

import numpy as np
import pytest

from certus.memory import NandNetwork, ThresholdUnit
from certus.memory.nand import modified

RNG = np.random.default_rng(0)


def inputs(n):
    return np.array(list(product((0, 1), repeat=n)))


@pytest.mark.catalog("MEM-01")
def test_and_or_and_not_are_threshold_units():
    rows = inputs(2)
    np.testing.assert_array_equal(
        ThresholdUnit((1, 1), 2).predict(rows), rows.all(axis=1)
    )
    np.testing.assert_array_equal(
        ThresholdUnit((1, 1), 1).predict(rows), rows.any(axis=1)
    )
    assert ThresholdUnit((-1,), 0).truth_table().tolist() == [1, 0]


def test_no_threshold_unit_computes_xor():
    units = [
        ThresholdUnit(signs, threshold)
        for signs in product((-1, 1), repeat=2)
        for threshold in range(-3, 4)
    ]
    assert [0, 1, 1, 0] not in [unit.truth_table().tolist() for unit in units]


@pytest.mark.catalog("MEM-02")
@pytest.mark.parametrize("n", range(1, 9))
def test_the_normal_form_has_the_truth_table_of_the_unit(n):
    rows = inputs(n).astype(bool)
    every = list(product((-1, 1), repeat=n))
    some = every if n <= 5 else [every[i] for i in RNG.choice(2**n, 6, False)]
    for signs in some:
        for threshold in range(-n - 1, n + 2):
            unit = ThresholdUnit(signs, threshold)
            said = np.zeros(2**n, dtype=bool)
            for term in unit.normal_form():
                literals = np.where(np.array(term), rows, ~rows)
                said |= literals.all(axis=1)
            sums = rows @ np.array(signs)
            np.testing.assert_array_equal(unit.truth_table(), sums >= threshold)
            np.testing.assert_array_equal(said, sums >= threshold)


def test_the_formula_is_python_that_agrees_with_the_table():
    unit = ThresholdUnit((1, -1, 1), 1)
    names = [f"x{i}" for i in range(3)]
    said = [eval(unit.formula(), dict(zip(names, row))) for row in inputs(3).tolist()]
    assert [int(bool(value)) for value in said] == unit.truth_table().tolist()
    assert ThresholdUnit((1,), 5).formula() == "False"
    assert ThresholdUnit((1,), 5).normal_form() == []


@pytest.mark.catalog("MEM-03")
def test_nands_of_two_inputs_build_xor_and_an_adder():
    xor = [(0, 1), (0, 2), (1, 2), (3, 4)]
    rows = inputs(2)
    np.testing.assert_array_equal(
        NandNetwork(2, xor).predict(rows), rows[:, 0] ^ rows[:, 1]
    )
    # Nodes 0, 1, 2 are the inputs; 6 is x0 xor x1, 10 the sum, 11 the carry.
    adder = [(0, 1), (0, 3), (1, 3), (4, 5), (6, 2), (6, 7), (2, 7), (8, 9), (3, 7)]
    rows = inputs(3)
    total = rows.sum(axis=1)
    np.testing.assert_array_equal(NandNetwork(3, adder).predict(rows), total >= 2)
    np.testing.assert_array_equal(NandNetwork(3, adder[:-1]).predict(rows), total % 2)


@pytest.mark.catalog("MEM-03")
def test_each_unit_is_the_nand_of_its_sources_one_tick_before():
    machine = NandNetwork.random(3, 20, random_state=1)
    assert machine.kind == "A"
    state = RNG.integers(0, 2, (50, 23))
    after = machine.step(state)
    np.testing.assert_array_equal(after[:, :3], state[:, :3])
    for unit, (i, j) in enumerate(machine.sources):
        np.testing.assert_array_equal(after[:, 3 + unit], 1 - state[:, i] * state[:, j])


@pytest.mark.catalog("MEM-04")
def test_a_switch_removes_an_input():
    rows = inputs(2)
    x, c = rows.T
    np.testing.assert_array_equal(modified(x, c), np.where(c == 1, x, 1))
    for on in inputs(3):
        unit = NandNetwork(3, [(0, 1, 2)], switches=[on])
        left = inputs(3)[:, on == 1]
        wanted = 1 - left.all(axis=1)
        np.testing.assert_array_equal(unit.predict(inputs(3)), wanted)


@pytest.mark.catalog("MEM-04")
def test_switches_realise_every_function_of_three_inputs():
    rows = inputs(3)
    for target in product((0, 1), repeat=8):
        machine = NandNetwork.organised(rows, target)
        assert machine.kind == "B"
        np.testing.assert_array_equal(machine.predict(rows), target)


def test_a_machine_with_loops_is_asked_for_ticks():
    ring = NandNetwork(1, [(1, 1)])
    with pytest.raises(ValueError, match="set ticks"):
        ring.predict([[0]])
    assert [int(ring.predict([[0]], ticks=t)[0]) for t in range(4)] == [0, 1, 0, 1]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: ThresholdUnit((), 1), "signs must hold"),
        (lambda: ThresholdUnit((2,), 1), "signs must hold"),
        (lambda: ThresholdUnit((1,), 0.5), "threshold must be an integer"),
        (lambda: ThresholdUnit((1,), 1).predict([[2]]), "zeros and ones"),
        (lambda: ThresholdUnit((1,), 1).predict([[0, 1]]), r"shape \(n_samples, 1\)"),
        (lambda: ThresholdUnit((1,) * 30, 1).truth_table(), "at most 20"),
        (lambda: ThresholdUnit((1,) * 30, 1).normal_form(), "at most 20"),
        (lambda: NandNetwork(2, []), "at least one unit"),
        (lambda: NandNetwork(2, [(0, 1, 1)]), "two connections"),
        (lambda: NandNetwork(2, [(0, 3)]), "nodes from 0 to 2"),
        (lambda: NandNetwork(2, [(0, 1)], switches=[(1,)]), "for each connection"),
        (lambda: NandNetwork(2, [(0, 1)], switches=[(1, 2)]), "for each connection"),
        (lambda: NandNetwork.organised([[0], [0]], [0, 1]), "equal for equal rows"),
        (
            lambda: NandNetwork.organised([[0]], [0, 1]),
            "for each of 1 rows",
        ),
    ],
)
def test_wrong_arguments_get_clear_messages(make, message):
    with pytest.raises((ValueError, TypeError), match=message):
        make()
