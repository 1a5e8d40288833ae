"""Input that breaks encoders elsewhere: one pixel, one row, NaN, constants."""

import numpy as np
import pytest
import torch

from certus.representation import (
    ContrastiveEncoder,
    MaskedAutoencoder,
    PairedEncoder,
    probe,
)

RNG = np.random.default_rng(0)
ROWS = RNG.normal(size=(40, 5))
pytestmark = pytest.mark.filterwarnings("ignore::certus.base.UncertifiedWarning")


def tiny(method="simclr", **given):
    """An encoder of two steps."""
    given = {"max_iter": 2, "batch_size": 16, "random_state": 0} | given
    return ContrastiveEncoder(
        method,
        n_components=6,
        hidden_layer_sizes=(8,),
        head_layer_sizes=(7, 4),
        **given,
    )


@pytest.mark.parametrize("method", ["simclr", "byol", "barlow", "vicreg"])
@pytest.mark.parametrize("shape", [(1, 1), (1, 9), (7, 1), (5, 3)])
def test_images_of_any_size_have_finite_vectors(method, shape):
    X = RNG.normal(size=(30, *shape))
    model = tiny(method).fit(X)
    assert np.isfinite(model.transform(X)).all()
    assert all(view.shape == X.shape for view in model.views(X, random_state=0))


@pytest.mark.parametrize("method", ["simclr", "byol", "barlow", "vicreg"])
def test_a_batch_of_one_is_refused_and_a_last_row_joins_others(method):
    with pytest.raises(ValueError, match="batch_size must be at least 2"):
        tiny(method, batch_size=1).fit(ROWS)
    model = tiny(method, batch_size=13, max_iter=6).fit(ROWS)  # 40 = 3·13 + 1
    assert np.isfinite(model.history_["loss"]).all()
    assert model.transform(ROWS[:1]).shape == (1, 6)


def test_two_rows_are_enough_and_one_is_not():
    assert tiny().fit(ROWS[:2]).transform(ROWS[:2]).shape == (2, 6)
    with pytest.raises(ValueError, match=r"minimum of 2|n_samples = 1"):
        tiny().fit(ROWS[:1])
    with pytest.raises(ValueError, match="at least 2 images"):
        tiny().fit(RNG.normal(size=(1, 4, 4)))


@pytest.mark.parametrize(
    "X", [np.ones((20, 3)), np.ones((20, 4, 4)), ["same"] * 20, [[1.0, 2.0]] * 20]
)
def test_rows_that_are_all_equal_are_refused(X):
    kind = "sequences" if isinstance(X, list) else "auto"
    with pytest.raises(ValueError, match="nothing to learn"):
        tiny(kind=kind).fit(X)


def test_constant_rows_and_columns_among_others_are_fine():
    X = ROWS.copy()
    X[:, 2] = 7.0
    X[::2] = X[0]
    model = tiny().fit(X)
    assert np.isfinite(model.transform(X)).all()
    assert model.inputs_["scale"][2] == 1.0


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("shape", [(20, 3), (20, 4, 4)])
def test_nan_and_infinity_are_refused_in_fit_and_later(bad, shape):
    X = RNG.normal(size=shape)
    model = tiny().fit(X)
    X[(3, *[1] * (len(shape) - 1))] = bad
    with pytest.raises(ValueError, match=r"NaN|infinity"):
        tiny().fit(X)
    for call in (model.transform, model.project, model.views):
        with pytest.raises(ValueError, match=r"NaN|infinity"):
            call(X)


def test_absurd_scales_are_brought_back():
    X = ROWS * np.array([1e-200, 1e200, 1.0, 1e30, 1e-30])
    model = tiny().fit(X)
    assert np.isfinite(model.transform(X)).all()
    images = (RNG.normal(size=(20, 4, 4)) * 1e30).astype(np.float32)
    assert np.isfinite(tiny().fit(images).transform(images)).all()


def test_shapes_that_differ_from_those_of_the_fit_are_refused():
    model = tiny().fit(ROWS)
    with pytest.raises(ValueError, match="features"):
        model.transform(ROWS[:, :4])
    model = tiny().fit(RNG.normal(size=(20, 4, 4)))
    with pytest.raises(ValueError, match="4 × 4 pixels"):
        model.transform(RNG.normal(size=(20, 5, 4)))
    with pytest.raises(ValueError, match="axes"):
        tiny().fit(RNG.normal(size=(20, 2, 2, 2, 2)))
    with pytest.raises(ValueError, match="first or last"):
        tiny().fit(RNG.normal(size=(20, 3, 4, 3)))
    with pytest.raises(ValueError, match="cannot be images"):
        tiny(image_shape=(3, 3)).fit(ROWS)


def test_sequences_may_be_empty_or_of_one_step():
    texts = ["abc", "", "b", "cab", "ca", "bb"] * 5
    model = tiny().fit(texts)
    assert np.isfinite(model.transform(["", "xyz", "a"])).all()
    first, _ = model.views(texts, random_state=0)
    assert [len(v) for v in first[:2]] == [len(first[0]), 0]
    waves = [np.zeros(1), np.ones(3), np.arange(5.0)] * 6
    assert np.isfinite(tiny().fit(waves).transform(waves)).all()


@pytest.mark.parametrize(
    "X",
    [
        ["abc", "", "b", "cab", "", "bb"] * 5,
        [np.zeros(1), np.zeros(0), np.ones(3), np.arange(5.0)] * 5,
    ],
)
@pytest.mark.parametrize("batch_size", [1, 8])
def test_a_batch_of_empty_sequences_hides_nothing(X, batch_size):
    model = MaskedAutoencoder(
        4,
        max_iter=8,
        batch_size=batch_size,
        kind="sequences",
        hidden_layer_sizes=(8,),
        random_state=0,
    ).fit(X)
    assert model.certificate_.status.value != "diverged"
    assert model.certificate_["no_leak"].met
    assert np.isfinite(model.certificate_["hidden_loss"].value)
    assert np.isfinite(model.transform(X)).all()


def test_sequences_that_are_all_empty_are_named():
    for X in ([""] * 6, [[]] * 6, [np.zeros(0)] * 6):
        with pytest.raises(ValueError, match="All sequences of X are empty"):
            tiny(kind="sequences").fit(X)


def test_messages_show_plain_labels_and_sizes():
    model = tiny().fit(RNG.normal(size=(20, 4, 4)))
    with pytest.raises(ValueError, match="in 1 channel, as in the fit, got 1 × 1"):
        model.transform(np.ones((2, 1, 1)))
    X = RNG.normal(size=(6, 4, 4))
    with pytest.raises(ValueError, match=r"every label is 0\.0\."):
        probe(model, X, np.zeros(6), X, np.zeros(6))


@pytest.mark.parametrize(
    ("given", "error", "text"),
    [
        ({"method": "dino"}, ValueError, "method"),
        ({"temperature": 0}, ValueError, "temperature"),
        ({"target_decay": 1.5}, ValueError, "target_decay"),
        ({"head_layer_sizes": ()}, ValueError, "head_layer_sizes"),
        ({"hidden_layer_sizes": (0,)}, ValueError, "hidden_layer_sizes"),
        ({"n_components": 0}, ValueError, "n_components"),
        ({"augment": None}, ValueError, "two views must differ"),
        ({"augment": "shift", "kind": "rows"}, TypeError, "names are for images"),
        ({"kind": "pictures"}, ValueError, "kind"),
        ({"module": 3}, TypeError, "module"),
        ({"module": torch.nn.Linear(5, 3)}, ValueError, "vectors of 6 numbers"),
        ({"module": torch.nn.Linear(4, 6)}, ValueError, "fails on inputs"),
        ({"max_iter": 0}, ValueError, "max_iter"),
        ({"validation_fraction": 0.95}, ValueError, "validation_fraction"),
    ],
)
def test_wrong_parameters_are_named(given, error, text):
    with pytest.raises(error, match=text):
        ContrastiveEncoder(n_components=6).set_params(**given).fit(ROWS)


def test_a_custom_network_is_trained_and_the_original_is_unchanged():
    own = torch.nn.Sequential(torch.nn.Linear(5, 6), torch.nn.ReLU())
    before = own[0].weight.detach().clone()
    model = tiny(module=own).fit(ROWS)
    assert torch.equal(own[0].weight, before)
    assert not torch.equal(model.encoder_[0].weight.float(), before)
    made = tiny(module=lambda shape, width: torch.nn.Linear(*shape, width)).fit(ROWS)
    assert made.transform(ROWS).shape == (40, 6)


def test_steps_that_are_too_long_are_reported_as_diverged():
    model = tiny(learning_rate=1e30, max_iter=20, clip=None).fit(ROWS)
    assert np.isfinite(model.transform(ROWS)).all()


def test_probes_refuse_one_class_and_unequal_counts():
    model = tiny().fit(ROWS)
    y = np.arange(40) % 2
    with pytest.raises(ValueError, match="at least 2 classes"):
        probe(model, ROWS[:9], y[:9] * 0, ROWS[9:], y[9:])
    with pytest.raises(ValueError, match="one label for each of 9 rows"):
        probe(model, ROWS[:9], y[:8], ROWS[9:], y[9:])
    with pytest.raises(ValueError, match="y_test"):
        probe(model, ROWS[:9], y[:9], ROWS[9:], y[9:12])
    with pytest.raises(TypeError, match="fitted transformer"):
        probe("encoder", ROWS[:9], y[:9], ROWS[9:], y[9:])
    with pytest.raises(ValueError, match="finite"):
        probe(lambda X: X * np.nan, ROWS[:9], y[:9], ROWS[9:], y[9:])
    # Vectors that are all equal are a result, not an error.
    found = probe(lambda X: np.ones((len(X), 2)), ROWS[:9], y[:9], ROWS[9:], y[9:])
    assert 0 <= found.accuracy["vectors"] <= 1


def test_pairs_need_two_rows_in_a_batch_and_a_second_side():
    with pytest.raises(ValueError, match="batch_size must be at least 2"):
        PairedEncoder(batch_size=1).fit(ROWS, ROWS)
    with pytest.raises(ValueError, match="temperature"):
        PairedEncoder(temperature=1e-9).fit(ROWS, ROWS)
    model = PairedEncoder(4, max_iter=2, random_state=0).fit(ROWS, ROWS[:, :2])
    with pytest.raises(ValueError, match="Y has 3 columns"):
        model.transform_second(ROWS[:, :3])
