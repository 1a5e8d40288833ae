"""Joint embeddings: what keeps them apart, what the head is for, views, resuming."""

import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.datasets import load_digits

import certus
from certus.representation import ContrastiveEncoder, effective_rank, nt_xent, probe
from certus.representation.contrastive import MovingTargetStep

IMAGES, Y = load_digits(return_X_y=True)
IMAGES = IMAGES.reshape(-1, 8, 8)
TRAIN, TEST = slice(0, 900), slice(900, None)
FEW = np.concatenate([np.flatnonzero(Y[TRAIN] == k)[:5] for k in range(10)])
pytestmark = pytest.mark.filterwarnings("ignore::certus.base.UncertifiedWarning")


def small(method="simclr", **given):
    """An encoder that is trained in a second or so."""
    given = {"max_iter": 60, "batch_size": 64, "random_state": 0} | given
    return ContrastiveEncoder(method, hidden_layer_sizes=(64,), **given)


@pytest.fixture(scope="module")
def simclr():
    return small(max_iter=120).fit(IMAGES[TRAIN])


@pytest.fixture(scope="module")
def probed(simclr):
    given = IMAGES[FEW], Y[FEW], IMAGES[TEST], Y[TEST]
    return probe(simclr, *given, random_state=0)


@pytest.mark.catalog("SSL-01")
def test_vectors_learnt_without_labels_beat_random_features_and_pixels(probed):
    own, raw, random = probed.accuracy.values()
    assert own > raw and own > random
    claim = probed.certificate["gain_over_random"]
    assert claim.met and claim.value > 0
    assert probed.certificate["duality_gap"].strength.value == "proved"


@pytest.mark.catalog("SSL-05")
def test_alignment_alone_drives_all_vectors_to_one():
    model = small("byol", predictor=False, target_decay=0.0, max_iter=120)
    model.fit(IMAGES[:500])
    claim = model.certificate_["vectors_differ"]
    assert claim.met is False and claim.value > 0.95
    assert "set predictor=True" in claim.fix
    assert model.certificate_.primary == "vectors_differ"
    z = model.project(IMAGES[TEST])
    z = z / np.linalg.norm(z, axis=1, keepdims=True)
    # Its loss is nearly the least there is, and says nothing.
    assert z.std(axis=0).mean() < 0.05 and model.history_["loss"][-1] < 0.2


@pytest.mark.catalog("SSL-06")
def test_byol_stays_apart_by_its_predictor_and_moving_average():
    model = small("byol", max_iter=80).fit(IMAGES[:500])
    assert model.certificate_["vectors_differ"].met
    z = model.project(IMAGES[TEST])
    z = z / np.linalg.norm(z, axis=1, keepdims=True)
    assert z.std(axis=0).mean() > 0.05


@pytest.mark.catalog("SSL-06")
def test_the_target_is_the_exponential_mean_exactly():
    torch.manual_seed(0)
    online, target = (
        torch.nn.ModuleDict({"encoder": torch.nn.Linear(3, 2).double()})
        for _ in range(2)
    )
    optimizer = torch.optim.SGD(online.parameters(), lr=0.1)

    def objective(parts, batch):
        return {"loss": parts["encoder"](batch.inputs[0]).square().mean()}

    from certus.neural_network.batches import Batch

    step = MovingTargetStep(online, optimizer, objective, None, None, target, 0.9)
    mean = [p.detach().clone() for p in target.parameters()]
    for _ in range(5):
        x = torch.randn(4, 3, dtype=torch.float64)
        step(Batch((x,), x, None))
        now = [p.detach() for p in online.parameters()]
        mean = [0.9 * m + 0.1 * p for m, p in zip(mean, now)]
    for m, p in zip(mean, target.parameters()):
        assert torch.allclose(m, p, rtol=0, atol=1e-15)
    assert {*step.modules} == {"module", "target"}


@pytest.mark.catalog("SSL-06")
def test_the_batch_norms_of_the_target_follow_the_batches_too():
    model = small("byol", max_iter=8).fit(IMAGES[:200])
    for head in (model.head_, model.target_head_):
        norm = head.layers[0].norm
        # Two views in each step; at first the mean is 0 and the variance 1.
        assert int(norm.num_batches_tracked) == 16
        assert norm.running_mean.abs().max() > 0.01
        assert (norm.running_var - 1).abs().max() > 0.01


@pytest.mark.catalog("SSL-06")
@pytest.mark.slow
def test_byol_learns_more_than_pixels_say():
    model = ContrastiveEncoder("byol", random_state=0).fit(IMAGES[TRAIN])
    found = probe(model, IMAGES[FEW], Y[FEW], IMAGES[TEST], Y[TEST], random_state=0)
    own, raw, random = found.accuracy.values()
    assert own > raw + 0.02 and own > random + 0.05


@pytest.mark.catalog("SSL-06")
def test_a_target_without_decay_is_the_network_itself():
    model = small("byol", target_decay=0.0, max_iter=3).fit(IMAGES[:60])
    own, target = model.encoder_.state_dict(), model.target_encoder_.state_dict()
    assert all(torch.equal(own[name], target[name]) for name in own)


@pytest.mark.catalog("SSL-07")
def test_views_of_a_row_are_nearer_than_views_of_others(simclr):
    A, B = (simclr.project(v) for v in simclr.views(IMAGES[TEST], random_state=1))
    A, B = (Z / np.linalg.norm(Z, axis=1, keepdims=True) for Z in (A, B))
    cosines = A @ B.T
    own = np.diagonal(cosines)
    others = cosines[~np.eye(len(cosines), dtype=bool)]
    assert own.mean() > others.mean() + 0.4
    loss = nt_xent(A[:64], B[:64], temperature=simclr.temperature)
    assert loss < 0.7 * np.log(2 * 64 - 1)


@pytest.mark.catalog("SSL-09")
def test_the_head_serves_the_loss_and_is_probed_beside_the_encoder(simclr, probed):
    given = IMAGES[FEW], Y[FEW], IMAGES[TEST], Y[TEST]
    head = probe(simclr.project, *given)
    assert simclr.transform(IMAGES[:3]).shape == (3, 128)
    assert simclr.project(IMAGES[:3]).shape == (3, 64)
    both = {"encoder": probed.accuracy["vectors"], "head": head.accuracy["vectors"]}
    assert min(both.values()) > 0.6
    widths = [p.classifiers["vectors"].n_features_in_ for p in (probed, head)]
    assert widths == [128, 64]
    # The head is not part of the vectors: with another one they are the same.
    other = clone(simclr).set_params(max_iter=1).fit(IMAGES[TRAIN])
    other.encoder_ = simclr.encoder_
    assert np.array_equal(other.transform(IMAGES[:9]), simclr.transform(IMAGES[:9]))
    assert not np.allclose(other.project(IMAGES[:9]), simclr.project(IMAGES[:9]))


@pytest.mark.catalog("SSL-12")
def test_two_views_differ_and_keep_the_label(simclr):
    A, B = simclr.views(IMAGES[TEST], random_state=0)
    assert A.shape == B.shape == IMAGES[TEST].shape
    assert (A != B).reshape(len(A), -1).any(axis=1).all()
    again = simclr.views(IMAGES[TEST], random_state=0)
    assert np.array_equal(A, again[0]) and np.array_equal(B, again[1])
    assert not np.array_equal(A, simclr.views(IMAGES[TEST], random_state=1)[0])
    from sklearn.neighbors import KNeighborsClassifier

    judge = KNeighborsClassifier(3).fit(IMAGES.reshape(len(IMAGES), -1), Y)
    flat = A.reshape(len(A), -1)
    assert judge.score(flat, Y[TEST]) > 0.5  # by one that has seen the originals


@pytest.mark.parametrize("method", ["barlow", "vicreg"])
def test_other_methods_use_many_directions(method):
    model = small(method, max_iter=30).fit(IMAGES[TRAIN])
    assert model.certificate_["vectors_differ"].met
    loss, first = model.history_["loss"][-1], model.history_["loss"][0]
    assert loss < first
    assert effective_rank(model.transform(IMAGES[TEST])) > 5


def test_table_rows_and_sequences_have_vectors_too():
    rows = IMAGES.reshape(len(IMAGES), -1)[:200]
    model = small(max_iter=10).fit(rows)
    assert model.inputs_["kind"] == "rows"
    assert model.transform(rows).dtype == np.float64
    A, B = model.views(rows, random_state=0)
    assert A.shape == rows.shape and (A != B).any(axis=1).all()
    texts = ["".join(p) for p in np.random.default_rng(0).choice(list("abc"), (60, 9))]
    model = small(max_iter=5).fit(texts)
    assert model.inputs_["kind"] == "sequences"
    assert model.transform(["abc", "a"]).shape == (2, 128)
    assert "vectors_differ" in model.certificate_
    waves = [np.sin(np.arange(5 + i % 7) / (1 + i % 3)) for i in range(40)]
    model = small(max_iter=5).fit(waves)
    first, second = model.views(waves, random_state=0)
    assert all(1 <= len(v) <= len(x) for v, x in zip(first, waves))
    assert model.project(second).shape == (40, 64)


@pytest.mark.parametrize("method", ["simclr", "byol"])
def test_a_run_that_was_stopped_goes_on_bit_for_bit(tmp_path, method):
    given = {"max_iter": 24, "batch_size": 20}
    X = IMAGES[:80]
    whole = small(method, **given).fit(X)
    part = small(method, **given, checkpoint=tmp_path, max_time=1e-9)
    part.fit(X)
    assert part.n_iter_ < 24
    resumed = small(method, **given, checkpoint=tmp_path).fit(X)
    for name in ("encoder_", "head_"):
        own, other = (getattr(m, name).state_dict() for m in (whole, resumed))
        assert all(torch.equal(own[key], other[key]) for key in own)
    assert np.array_equal(whole.transform(X), resumed.transform(X))


def test_time_can_run_out():
    model = small(max_iter=10_000, max_time=0.3).fit(IMAGES[:200])
    assert model.certificate_.status is certus.Status.TIME_LIMIT
    assert model.n_iter_ < 10_000


def test_a_model_file_gives_the_same_vectors_and_certificate(tmp_path, simclr):
    again = certus.load(simclr.save(tmp_path / "model.certus"))
    assert np.array_equal(again.transform(IMAGES[:9]), simclr.transform(IMAGES[:9]))
    assert np.array_equal(again.project(IMAGES[:9]), simclr.project(IMAGES[:9]))
    held = IMAGES[TRAIN][simclr.held_out_]
    found = certus.certify(again, held)
    for name in ("view_loss", "vectors_differ", "mutual_information", "effective_rank"):
        assert found[name].value == pytest.approx(simclr.certificate_[name].value)


def test_a_warm_start_goes_on_from_the_last_weights():
    model = small(warm_start=True, max_iter=10).fit(IMAGES[:200])
    before = model.encoder_.state_dict()
    mean = model.inputs_["mean"].copy()
    model.set_params(learning_rate=1e-12).fit(IMAGES[:200])
    after = model.encoder_.state_dict()
    assert all(torch.allclose(before[k], after[k], atol=1e-6) for k in before)
    assert np.array_equal(mean, model.inputs_["mean"])


def test_global_random_numbers_are_left_alone():
    torch.manual_seed(5)
    state = torch.random.get_rng_state()
    model = small("byol", max_iter=2).fit(IMAGES[:50])
    probe(model, IMAGES[:20], Y[:20], IMAGES[50:70], Y[50:70], random_state=0)
    model.views(IMAGES[:5])
    assert torch.equal(state, torch.random.get_rng_state())
