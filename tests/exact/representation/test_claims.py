"""Claims about vectors: bounds that hold, and faults that are found."""

import copy

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits

import certus
from certus.certificate import Strength
from certus.representation import ContrastiveEncoder, PairedEncoder, probe
from certus.verify.betting import betting_bound
from certus.verify.probes import probe_claims
from certus.verify.representations import (
    collapse_claim,
    information_claim,
    information_range,
)

IMAGES, Y = load_digits(return_X_y=True)
IMAGES = IMAGES.reshape(-1, 8, 8)
pytestmark = pytest.mark.filterwarnings("ignore::certus.base.UncertifiedWarning")


@pytest.fixture(scope="module")
def model():
    found = ContrastiveEncoder(
        max_iter=40, batch_size=64, hidden_layer_sizes=(64,), random_state=0
    )
    return found.fit(IMAGES[:600])


@pytest.fixture
def held(model):
    return IMAGES[:600][model.held_out_]


# -- numbers --------------------------------------------------------------------------


@pytest.mark.parametrize("spread", [0.0, 1e-9, 1e-3, 0.1, 1.0, 1e8])
def test_the_mean_cosine_stated_is_never_below_the_true_one(spread):
    import mpmath

    rng = np.random.default_rng(1)
    Z = rng.normal(size=6) + spread * rng.normal(size=(14, 6))
    with mpmath.workdps(40):
        rows = [[mpmath.mpf(v) for v in row] for row in Z.tolist()]
        sizes = [mpmath.sqrt(sum(v * v for v in row)) for row in rows]
        total = mpmath.mpf(0)
        for i in range(14):
            for j in range(14):
                if i != j:
                    dot = sum(a * b for a, b in zip(rows[i], rows[j]))
                    total += dot / (sizes[i] * sizes[j])
        true = total / (14 * 13)
        claim = collapse_claim(Z, "fix")
        assert claim.value >= true
        assert claim.value - true < 1e-12
    assert claim.met is bool(claim.value <= 0.95)


def test_zeros_and_huge_numbers_are_vectors_too():
    assert collapse_claim(np.zeros((9, 3)), "fix").met is False
    assert collapse_claim(np.eye(9) * 1e300, "fix").met
    assert collapse_claim(np.ones((1, 3)), "fix").strength is Strength.REFUSED


def test_the_betting_bound_holds_as_often_as_it_says():
    rng = np.random.default_rng(0)
    for draw, mean in (
        (lambda n: rng.random(n), 0.5),
        (lambda n: (rng.random(n) < 0.1).astype(float), 0.1),
        (lambda n: rng.beta(8, 2, n), 0.8),
    ):
        missed = sum(betting_bound(draw(60), 0.2) > mean for _ in range(400))
        assert missed <= 400 * 0.2 + 3 * np.sqrt(400 * 0.16)
    # It is worth something: numbers that hardly vary have a narrow bound.
    assert betting_bound(np.full(60, 0.8), 0.05) > 0.65


def test_the_information_bound_is_below_the_true_information():
    rng = np.random.default_rng(3)
    # One of 4 directions, seen with noise: the information is at most log 4.
    at = rng.integers(4, size=400)
    A, B = (np.eye(4)[at] + 0.05 * rng.normal(size=(400, 4)) for _ in range(2))
    claim = information_claim(A, B, 0.05, "views")
    assert 0.3 < claim.value <= np.log(4) and claim.met
    nothing = information_claim(A, rng.normal(size=(400, 4)), 0.05, "views")
    assert nothing.value == 0.0 and nothing.met is None
    few = information_claim(A[:9], B[:9], 0.05, "views")
    assert few.strength is Strength.REFUSED
    low, high = information_range(8)
    assert low < np.log(8) - np.log1p(7) < high < np.log(8)


# -- faults ---------------------------------------------------------------------------


def fault(model, **changes):
    """The model with some attributes replaced."""
    found = copy.copy(model)
    for name, value in changes.items():
        setattr(found, name, value)
    return found


def test_a_solver_that_returns_a_constant_is_found(model, held):
    constant = copy.deepcopy(model.head_)
    with torch.no_grad():
        constant.output.weight.zero_()
    found = certus.certify(fault(model, head_=constant), held)
    assert found["vectors_differ"].met is False
    assert found.status is certus.Status.REFUTED


def test_weights_that_are_not_numbers_are_refused(model, held):
    broken = copy.deepcopy(model.encoder_)
    with torch.no_grad():
        broken.output.weight[0, 0] = float("nan")
    with pytest.raises(ValueError, match="NaN"):
        certus.certify(fault(model, encoder_=broken), held)


def test_a_method_that_the_fit_did_not_have_has_another_loss(model, held):
    was = model.certificate_["view_loss"]
    now = certus.certify(copy.copy(model).set_params(method="barlow"), held)
    assert now["view_loss"].value != pytest.approx(was.value)
    with pytest.raises(ValueError, match="method"):
        certus.certify(copy.copy(model).set_params(method="none"), held)


def test_swapped_pixels_and_shuffled_pairs_lower_the_shared_information():
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(400, 4))
    other = rows @ rng.normal(size=(4, 4))
    pairs = PairedEncoder(8, max_iter=60, random_state=0).fit(rows, other)
    held = pairs.held_out_
    right = certus.certify(pairs, rows[held], other[held])
    assert right["match_loss"].value == pytest.approx(
        pairs.certificate_["match_loss"].value
    )
    wrong = certus.certify(pairs, rows[held], other[held][::-1])
    assert wrong["match_loss"].value > right["match_loss"].value + 1
    # The data are not those of the fit, so this is no refutation.
    assert wrong["mutual_information"].value <= right["mutual_information"].value
    with pytest.raises(ValueError, match="pairs"):
        certus.certify(pairs, rows[held], other[held][1:])


def test_rows_of_the_fit_say_nothing_about_new_ones():
    small = ContrastiveEncoder(
        max_iter=2, validation_fraction=0.0, batch_size=32, random_state=0
    ).fit(IMAGES[:100])
    claim = small.certificate_["mutual_information"]
    assert claim.strength is Strength.REFUSED and "held out" in claim.detail
    again = certus.certify(small, IMAGES[:100])
    assert again["mutual_information"].strength is Strength.REFUSED
    other = certus.certify(small, IMAGES[100:200])
    assert other["mutual_information"].strength is Strength.STATISTICAL


def test_half_precision_is_a_dtype_and_not_a_proof_of_less(model, held):
    rough = copy.deepcopy(model.encoder_)
    with torch.no_grad():
        for p in rough.parameters():
            p.copy_(p.half().float())
    found = certus.certify(fault(model, encoder_=rough), held)
    was = model.certificate_["view_loss"].value
    assert found["view_loss"].value != was
    assert found["view_loss"].value == pytest.approx(was, rel=0.02)


def test_a_damaged_file_is_refused(model, tmp_path):
    path = model.save(tmp_path / "model.certus")
    data = bytearray(path.read_bytes())
    cut = tmp_path / "cut.certus"
    cut.write_bytes(data[:-50])
    with pytest.raises(certus.persist.ModelFileError):
        certus.load(cut)
    forged = fault(model, inputs_={**model.inputs_, "scale": np.zeros(1)})
    with (
        np.errstate(all="ignore"),
        pytest.raises(ValueError, match=r"NaN|infinity|numbers"),
    ):
        certus.certify(forged, IMAGES[:50])


# -- probes ---------------------------------------------------------------------------


def test_a_probe_states_what_its_classifiers_reach(model):
    few = np.concatenate([np.flatnonzero(Y[:600] == k)[:5] for k in range(10)])
    found = probe(model, IMAGES[few], Y[few], IMAGES[600:], Y[600:], random_state=0)
    assert found.n_labels == 50 and found.n_test == len(Y) - 600
    gap = found.certificate["duality_gap"]
    assert gap.strength is Strength.PROVED and gap.met
    assert gap.value == max(
        c.certificate_["duality_gap"].value for c in found.classifiers.values()
    )
    claim = found.certificate["probe_accuracy"]
    assert claim.value < found.accuracy["vectors"]
    assert "view_loss" in found.certificate
    assert "vectors" in str(found) and len(found.to_frame()) == 3
    gain = found.certificate["gain_over_input"]
    own, raw = (found.accuracy[k] for k in ("vectors", "input itself"))
    assert gain.value <= own - raw


def test_gains_are_paired_and_hold_as_often_as_they_say():
    rng = np.random.default_rng(0)
    gap = probe_gap()
    missed = 0
    for _ in range(300):
        shared = rng.random(200) < 0.5
        own, other = shared | (rng.random(200) < 0.3), shared | (rng.random(200) < 0.2)
        # The true gain is 0.5·(0.3 − 0.2); both are right where ``shared`` is.
        claims = probe_claims(gap, {"vectors": own, "input": other}, 0.2)
        missed += claims[-1].value > 0.05
    assert missed <= 300 * 0.1 + 3 * np.sqrt(300 * 0.09)
    same = probe_claims(gap, {"vectors": own, "input": own}, 0.05)[-1]
    assert same.met is None and same.value < 0
    with pytest.raises(ValueError, match="same test rows"):
        probe_claims(gap, {"vectors": own, "input": own[1:]}, 0.05)


def probe_gap():
    """Claims of classifiers that were fitted elsewhere."""
    from certus.linear_model import LogisticRegression

    fit = LogisticRegression().fit([[0.0], [1.0], [2.0]], [0, 1, 1])
    return dict.fromkeys(("vectors", "input"), fit.certificate_["duality_gap"])


def test_a_class_without_a_label_is_always_missed(model):
    rows = np.flatnonzero(Y[:600] < 3)[:30]
    found = probe(model, IMAGES[rows], Y[rows], IMAGES[600:], Y[600:], random_state=0)
    assert max(found.accuracy.values()) <= (Y[600:] < 3).mean()


# -- the network, run again -----------------------------------------------------------


def agreement(model, X):
    return certus.certify(model, X)["vectors_agree"]


@pytest.mark.parametrize("shape", [(8, 8), (5, 7), (1, 9), (1, 1), (3, 4, 6)])
def test_the_verifier_runs_the_same_network(shape):
    X = np.random.default_rng(0).normal(size=(12, *shape))
    channels = "first" if len(shape) == 3 else None
    model = ContrastiveEncoder(max_iter=1, channels=channels, random_state=0).fit(X)
    claim = agreement(model, X)
    assert claim.strength is Strength.PROVED and claim.met
    assert claim.value < 1e-5


def test_rows_and_flat_images_are_computed_again_too():
    flat = IMAGES[:40].reshape(40, -1)
    rows = ContrastiveEncoder(max_iter=1, random_state=0).fit(flat)
    assert agreement(rows, flat).value < 1e-9
    images = ContrastiveEncoder(max_iter=1, image_shape=(8, 8), random_state=0)
    assert agreement(images.fit(flat), flat).value < 1e-5
    pairs = PairedEncoder(8, image_shape=(8, 8), max_iter=1, random_state=0)
    pairs.fit(flat, [str(k) for k in Y[:40]])
    assert certus.certify(pairs, flat, [str(k) for k in Y[:40]])["vectors_agree"].met
    words = ContrastiveEncoder(max_iter=1, random_state=0).fit([*"abcdefgh"])
    claim = words.certificate_["vectors_agree"]
    assert claim.strength is Strength.REFUSED


def wrapped(model, change):
    """The model with an encoder whose results a faulty kernel changes."""
    encoder = copy.deepcopy(model.encoder_)
    plain = encoder.forward
    encoder.forward = lambda x: change(plain, x)
    return fault(model, encoder_=encoder)


@pytest.mark.parametrize(
    "change",
    [
        lambda f, x: f(x) + 1e-2,
        lambda f, x: f(x).bfloat16().float(),
        lambda f, x: f(x.flip(2)),
        lambda f, x: f(2 * x),
        lambda f, x: f(x + 0.05),
        lambda f, x: f(x).flip(1),
        lambda f, x: f(x.flip(0)),
        lambda f, x: torch.zeros_like(f(x)),
    ],
)
def test_a_faulty_kernel_is_found(model, held, change):
    assert agreement(model, held).met
    assert agreement(wrapped(model, change), held).met is False
