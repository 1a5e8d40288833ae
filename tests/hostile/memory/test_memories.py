"""Memories under bad input, odd patterns, and planted faults."""

import copy

import numpy as np
import pytest

import certus
from certus.certificate import Strength
from certus.memory import HopfieldNetwork, ModernHopfield, WillshawMemory
from certus.neural_network import BernoulliRBM
from certus.persist import ModelFileError

pytestmark = pytest.mark.filterwarnings("ignore::certus.base.UncertifiedWarning")
RNG = np.random.default_rng(0)
X = np.where(RNG.random((4, 24)) < 0.5, -1.0, 1.0)
RULES = ("hebb", "projection", "margin")
MEMORIES = [*map(HopfieldNetwork, RULES), ModernHopfield(), WillshawMemory()]
every = pytest.mark.parametrize("memory", MEMORIES, ids=repr)


@every
@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_holes_are_refused(memory, bad):
    holed = X.copy()
    holed[1, 3] = bad
    with pytest.raises(ValueError, match=r"NaN|infinity"):
        copy.copy(memory).fit(holed)
    model = copy.copy(memory).fit(X)
    with pytest.raises(ValueError, match=r"NaN|infinity"):
        model.predict(holed)
    with pytest.raises(ValueError, match="NaN or infinite"):
        certus.certify(model, holed)


@every
@pytest.mark.parametrize("shape", [(0, 3), (3, 0)])
def test_nothing_to_store_is_refused(memory, shape):
    with pytest.raises(ValueError, match=r"0 sample|0 feature"):
        copy.copy(memory).fit(np.zeros(shape))


@every
def test_other_widths_are_refused(memory):
    model = copy.copy(memory).fit(X)
    with pytest.raises(ValueError, match="24 features"):
        model.predict(X[:, :5])
    with pytest.raises(ValueError, match="5 columns"):
        certus.certify(model, X[:, :5])


@pytest.mark.parametrize("rule", RULES)
def test_equal_and_opposite_patterns(rule):
    many = np.vstack([X, X, -X, X[:1]])
    model = HopfieldNetwork(rule).fit(many)
    assert model.certificate_.met
    np.testing.assert_array_equal(model.predict(many), many)
    assert len(set(model.radius_[:4].tolist())) >= 1
    np.testing.assert_array_equal(model.radius_[:4], model.radius_[4:8])
    np.testing.assert_array_equal(model.radius_[:4], model.radius_[8:12])


@pytest.mark.parametrize("rule", RULES)
def test_one_unit_has_nothing_to_hold_it(rule):
    model = HopfieldNetwork(rule).fit([[1.0], [-1.0]])
    assert model.certificate_.met is False and model.radius_.tolist() == [-1, -1]
    np.testing.assert_array_equal(model.predict([[1.0], [-1.0]]), [[1.0], [-1.0]])
    free = HopfieldNetwork(rule, fit_intercept=True).fit([[1.0], [1.0]])
    assert free.certificate_.met and free.predict([[-1.0]]).tolist() == [[1.0]]


@pytest.mark.parametrize("rule", RULES)
def test_constant_units_and_one_pattern(rule):
    flat = X.copy()
    flat[:, :3] = 1.0
    model = HopfieldNetwork(rule).fit(flat)
    start = flat.copy()
    start[:, 1] *= -1
    np.testing.assert_array_equal(model.predict(start), flat)
    one = HopfieldNetwork(rule).fit(X[:1])
    assert one.certificate_.met and one.radius_.tolist() == [11]
    same = HopfieldNetwork(rule).fit(np.ones((3, 5)))
    assert same.certificate_.met and same.predict([[1, 1, 1, 1, -1]]).min() == 1


def test_one_pattern_is_described_in_the_singular():
    assert HopfieldNetwork().fit(X[:1]).certificate_.claims[0].detail == (
        "the stored pattern is a fixed point"
    )
    rows = np.ones((3, 4))
    machine = BernoulliRBM(2, n_iter=1, random_state=0).fit(rows)
    assert "independent columns: 0)" in machine.certificate_.claims[0].detail


def test_patterns_that_contradict_each_other_cannot_be_stored():
    # Unit 2 is 1 and −1 beside the same others.
    x = np.array([[1.0, 1, 1], [1, 1, -1]])
    found = HopfieldNetwork("margin").fit(x).certificate_
    assert found.met is False and "not_storable" in found
    assert "unit 2" in found["not_storable"].detail


def test_one_pattern_zero_patterns_and_huge_numbers_in_a_modern_network():
    assert ModernHopfield().fit(X[:1]).certificate_.met
    zeros = ModernHopfield().fit(np.zeros((3, 4)))
    np.testing.assert_array_equal(zeros.predict([[1.0, 0, 0, 0]]), np.zeros((1, 4)))
    for scale in (1e-100, 1e100):
        assert ModernHopfield().fit(scale * X).certificate_.met
    with pytest.raises(ValueError, match="too large for float64"):
        ModernHopfield().fit(1e200 * X)


def test_empty_and_full_cues_of_a_willshaw_memory():
    rows = np.array([[0.0, 0, 0, 0], [1, 1, 1, 1], [1, 0, 0, 0]])
    model = WillshawMemory().fit(rows)
    assert model.certificate_.met and (model.predict(rows) >= rows).all()
    with pytest.raises(ValueError, match="only 0 and 1"):
        WillshawMemory(binarize=None).fit([[0.5, 1.0]])
    with pytest.raises(ValueError, match="one finite row"):
        WillshawMemory().fit(rows, rows[:2])
    with pytest.raises(ValueError, match="must hold numbers"):
        WillshawMemory().fit(rows, [["a"], ["b"], ["c"]])


@pytest.mark.parametrize(
    ("memory", "message"),
    [
        (HopfieldNetwork("hopfield"), "rule must be one of"),
        (HopfieldNetwork(update="random"), "update must be one of"),
        (HopfieldNetwork(max_iter=0), "max_iter must be"),
        (HopfieldNetwork(binarize="x"), "binarize must be"),
        (ModernHopfield(0.0), "beta must be"),
        (ModernHopfield("high"), "beta must be one of"),
        (ModernHopfield(tol=0.0), "tol must be"),
        (WillshawMemory("x"), "binarize must be"),
    ],
)
def test_a_wrong_parameter_gets_a_clear_message(memory, message):
    with pytest.raises((ValueError, TypeError), match=message):
        memory.fit(X)


# -- planted faults ---------------------------------------------------------------


def stored_truly(model, rows):
    """Whether every stored pattern is a fixed point, with whole numbers of flips."""
    fields = rows @ model.weights_.T + model.intercept_
    if not (rows * fields > 0).all():
        return False
    for row, radius in zip(rows, model.radius_):
        for i in range(len(row)):
            worst = np.sort(2 * np.abs(model.weights_[i]))[::-1][: max(int(radius), 0)]
            if radius < 0 or row[i] * fields[0, 0] == 0:
                continue
            own = row[i] * (model.weights_[i] @ row + model.intercept_[i])
            if not own > worst.sum():
                return False
    return True


def scale_weights(model):
    model.weights_ = model.weights_ * 1.01


def one_weight(model):
    model.weights_ = model.weights_.copy()
    model.weights_[2, 5] += 0.5


def swap_units(model):
    model.weights_ = model.weights_[::-1].copy()


def flip_sign(model):
    model.weights_ = -model.weights_


def larger_radius(model):
    model.radius_ = model.radius_ + 1


def other_rule(model):
    model.rule = {"hebb": "projection", "projection": "hebb"}.get(model.rule, "hebb")


def add_intercept(model):
    model.intercept_ = model.intercept_ + 30.0


def other_cut(model):
    model.binarize = 2.0


FAULTS = [one_weight, swap_units, flip_sign, larger_radius, add_intercept, other_cut]


@pytest.mark.parametrize("rule", ["hebb", "projection"])
@pytest.mark.parametrize("fault", [*FAULTS, other_rule])
def test_planted_faults_are_found(rule, fault):
    model = HopfieldNetwork(rule).fit(X)
    assert model.certificate_.met
    fault(model)
    found = certus.certify(model, X)
    assert any(c.met is False for c in found.claims)
    assert found.met is False


@pytest.mark.parametrize("fault", [*FAULTS, scale_weights])
def test_a_margin_that_passes_is_true_despite_a_fault(fault):
    model = HopfieldNetwork("margin").fit(X)
    fault(model)
    found = certus.certify(model, X)
    if fault is not other_cut and found["repair_radius"].met and found.met:
        assert stored_truly(model, X)
    if fault in (flip_sign, larger_radius, other_cut):
        assert found.met is False


def test_a_kernel_that_recalls_wrongly_is_found(monkeypatch):
    from certus.memory import hopfield_kernels

    right = hopfield_kernels.recall_in_turn

    def wrong(states, *rest):
        right(states, *rest)
        states[:, 0] = 1.0

    monkeypatch.setattr(hopfield_kernels, "recall_in_turn", wrong)
    assert HopfieldNetwork().fit(X).certificate_["recall"].met is False


def test_a_forged_combination_proves_nothing():
    rng = np.random.default_rng(1)
    rows = np.where(rng.random((40, 8)) < 0.5, -1.0, 1.0)
    model = HopfieldNetwork("margin").fit(rows)
    stated = model.certificate_
    assert "not_storable" in stated
    witness = stated.evidence.witness
    for a in (
        np.ones(40),
        -witness.combination,
        witness.combination * 0,
        np.eye(40)[0],
    ):
        evidence = certus.certificate.Evidence(
            "memory", witness._replace(combination=a)
        )
        found = certus.verify.judge(model, evidence, rows, None)
        assert "not_storable" not in found
    for a in (np.ones(3), np.array(["a"] * 40)):
        evidence = certus.certificate.Evidence(
            "memory", witness._replace(combination=a)
        )
        with pytest.raises(ValueError, match="does not fit"):
            certus.verify.judge(model, evidence, rows, None)


def test_faults_in_a_willshaw_memory_are_found():
    rows = (RNG.random((10, 40)) < 0.1).astype(float)
    for place in (True, False):
        model = WillshawMemory().fit(rows)
        at = np.argwhere(model.weights_ == place)[0]
        model.weights_[tuple(at)] = not place
        found = certus.certify(model, rows)
        assert found.met is False and found["rule_weights"].met is False
        assert found["missing_ones"].met is not place
    model = WillshawMemory().fit(rows)
    assert certus.certify(model, rows[::-1].copy()).met
    assert certus.certify(model, 1 - rows).met is False


NAMES = {
    "HopfieldNetwork": ("weights_", "intercept_", "radius_", "values_"),
    "ModernHopfield": ("patterns_", "beta_", "radius_"),
    "WillshawMemory": ("weights_",),
}


@every
def test_malformed_input_is_named(memory):
    model = copy.copy(memory).fit(X)
    for name in NAMES[type(model).__name__]:
        for bad in (None, "text", {}, np.zeros((2, 2, 2)), np.full(3, np.nan)):
            broken = copy.copy(model)
            setattr(broken, name, bad)
            with pytest.raises(ValueError, match=name):
                certus.certify(broken, X)


@every
def test_damaged_files_are_refused(memory, tmp_path):
    model = copy.copy(memory).fit(X)
    path = model.save(tmp_path / "m.certus")
    whole = path.read_bytes()
    back = certus.load(path)
    np.testing.assert_array_equal(back.predict(X), model.predict(X))
    for broken in (whole[:-7], whole[:50], whole[:-1] + bytes([whole[-1] ^ 1])):
        path.write_bytes(broken)
        with pytest.raises(ModelFileError):
            certus.load(path)


def test_certificates_of_memories_state_their_strength():
    found = HopfieldNetwork().fit(X).certificate_
    assert {claim.strength for claim in found.claims} == {Strength.PROVED}
    assert found.primary == "fixed_points" and "fixed point" in str(found)
