"""Encoders whose labels come from the rows: masks, patches and colours."""

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits, load_iris

import certus
from certus.certificate import Status, Strength
from certus.representation import Colorizer, MaskedAutoencoder, PatchPosition, hiding
from certus.representation.colours import GREY, joined, parted
from certus.representation.patches import DIRECTIONS, random_pairs
from certus.verify import pretexts, right_shares
from certus.verify.hidden_parts import hidden_parts

RNG = np.random.default_rng(0)
DIGITS, LABELS = load_digits().images, load_digits().target
ROWS = load_iris().data
SMALL = {"hidden_layer_sizes": (32,), "random_state": 0}


def rings(n, rng, size=12):
    """Images whose brightness tells where one is: a hill in the middle."""
    y, x = np.mgrid[:size, :size] - (size - 1) / 2
    hills = np.exp(-(x**2 + y**2) / 30) + 0.3 * x / size + 0.1 * y / size
    return hills + 0.02 * rng.normal(size=(n, size, size))


@pytest.fixture(scope="module")
def masked():
    return MaskedAutoencoder(16, max_iter=200, batch_size=64, **SMALL).fit(DIGITS)


@pytest.fixture(scope="module")
def table():
    return MaskedAutoencoder(
        8, max_iter=150, batch_size=64, validation_fraction=0.2, **SMALL
    ).fit(ROWS)


@pytest.fixture(scope="module")
def placed():
    options = SMALL | {"batch_size": 64, "learning_rate": 0.01}
    return PatchPosition(8, max_iter=150, **options).fit(rings(300, RNG))


def two_tone(n, rng):
    """Images whose colour is a function of grey: dark is green, light is purple."""
    grey = rng.random((n, 6, 6))
    return np.stack([grey, 1 - grey, grey], axis=3)


@pytest.fixture(scope="module")
def painter():
    options = SMALL | {"batch_size": 32, "learning_rate": 0.01}
    options |= {"validation_fraction": 0.2}
    return Colorizer(8, max_iter=250, painter_width=16, **options).fit(
        two_tone(120, RNG)
    )


# -- what the catalog asks for ----------------------------------------------------


@pytest.mark.catalog("SSL-01")
def test_labels_from_the_rows_themselves_help_beside_random_features(masked):
    """A linear classifier of learnt vectors beats one of an untrained network."""
    from certus.linear_model import LogisticRegression

    options = {"max_iter": 1, "learning_rate": 1e-9}
    random = MaskedAutoencoder(16, **options, **SMALL).fit(DIGITS)
    right = []
    for model in (masked, random):
        Z = model.transform(DIGITS)
        Z = (Z - Z.mean(axis=0)) / Z.std(axis=0)
        probe = LogisticRegression(C=10.0).fit(Z[:300], LABELS[:300])
        right.append((probe.predict(Z[300:]) == LABELS[300:]).mean())
    assert right[0] > right[1] + 0.02
    # No label was seen: y is ignored.
    again = MaskedAutoencoder(16, max_iter=3, **SMALL).fit(DIGITS[:80], LABELS[:80])
    plain = MaskedAutoencoder(16, max_iter=3, **SMALL).fit(DIGITS[:80])
    np.testing.assert_array_equal(
        again.transform(DIGITS[:9]), plain.transform(DIGITS[:9])
    )


@pytest.mark.catalog("SSL-03")
def test_positions_of_patches_are_predicted_far_better_than_by_guessing(placed):
    claim = placed.certificate_["position_accuracy"]
    assert claim.strength is Strength.STATISTICAL and claim.target == 1 / 8
    assert claim.met and claim.value > 0.3
    assert placed.certificate_["position_loss"].value < np.log(8) - 0.5
    # Of images without any structure nothing can be told.
    noise = np.random.default_rng(1).random((600, 12, 12))
    with certus.config_context(on_uncertified="ignore"):
        nothing = certus.certify(placed, noise)["position_accuracy"]
    assert nothing.met is not True


@pytest.mark.catalog("SSL-04")
def test_a_colour_that_follows_from_grey_is_recovered(painter):
    X = two_tone(20, np.random.default_rng(5))
    grey = X @ np.array(GREY)
    painted = painter.colorize(grey)
    assert painted.shape == X.shape
    assert np.abs(painted - X).mean() < 0.15 * np.abs(X - grey[..., None]).mean()
    np.testing.assert_allclose(painted @ np.array(GREY), grey, atol=1e-9)
    found = painter.certificate_
    assert found["painted"].met and found["colour_loss"].value < 0.1


# -- masks ------------------------------------------------------------------------


def test_hidden_parts_of_new_digits_are_filled_in(masked):
    found = masked.certificate_
    assert found["restored"].met and found["restored"].value > 0.7
    assert found["hidden_loss"].value < 0.6 and found["no_leak"].met
    assert masked.patch_size_ == 2 and masked.transform(DIGITS[:5]).shape == (5, 16)


def test_visible_parts_come_back_bit_for_bit(masked, table):
    for model, X, shape in ((masked, DIGITS[:9], (9, 8, 8)), (table, ROWS[:9], (9, 4))):
        hidden = RNG.random(shape) < 0.5
        hidden[:, 0] = False
        filled = model.reconstruct(X, hidden)
        np.testing.assert_array_equal(filled[~hidden], X[~hidden])
        assert (filled[hidden] != X[hidden]).mean() > 0.9
        changed = np.where(hidden, RNG.random(shape), X)
        np.testing.assert_array_equal(model.reconstruct(changed, hidden), filled)


def test_an_unknown_cell_of_a_table_is_distinguished_from_the_others(table):
    hidden = np.zeros(ROWS.shape, dtype=bool)
    hidden[:, 2] = True
    held = table.held_out_
    filled = table.reconstruct(ROWS[held], hidden[held])[:, 2]
    truth = ROWS[held, 2]
    # Petals are long where the other three columns say so.
    assert (
        np.abs(filled - truth).mean() < 0.5 * np.abs(truth - ROWS[:, 2].mean()).mean()
    )


def test_sequences_of_tokens_and_of_numbers():
    rng = np.random.default_rng(0)
    texts = [("abcd" * 4)[i : i + n] for i, n in rng.integers(3, 9, (80, 2))]
    options = SMALL | {"batch_size": 80, "learning_rate": 0.01}
    options |= {"validation_fraction": 0.3}
    model = MaskedAutoencoder(12, mask_fraction=0.2, max_iter=80, **options)
    model.fit([list(text) for text in texts])
    found = model.certificate_
    assert found["no_leak"].met and found["restored"].met is not False
    hidden = [np.arange(len(texts[0])) == 1]
    back = model.reconstruct([list(texts[0])], hidden)[0]
    assert back[0] == texts[0][0] and back[2:] == list(texts[0][2:])
    waves = [
        np.sin(0.7 * np.arange(n) + a)[:, None]
        for n, a in zip(rng.integers(6, 12, 60), 6 * rng.random(60))
    ]
    model = MaskedAutoencoder(12, kind="sequences", max_iter=60, **options).fit(waves)
    assert model.certificate_["no_leak"].met
    assert model.transform(waves).shape == (60, 12)


def test_as_many_parts_are_hidden_as_asked_and_both_sides_agree():
    for parts, share in ((16, 0.75), (4, 0.5), (2, 0.9), (1, 0.5), (7, 0.01)):
        ours = hiding.hidden_parts(50, parts, share).sum(dim=1)
        theirs = hidden_parts(50, parts, share, np.random.default_rng(0)).sum(axis=1)
        assert (
            set(ours.tolist())
            == set(theirs.tolist())
            == {hiding.hidden_count(parts, share)}
        )
    blocks = hiding.hidden_blocks(40, (7, 5), 3, 0.5)
    assert blocks.shape == (40, 7, 5)
    rows = blocks[:, ::3, ::3].repeat_interleave(3, 1).repeat_interleave(3, 2)
    assert torch.equal(rows[:, :7, :5], blocks)  # whole blocks
    share = hiding.hidden_parts(4000, 6, 0.5).float().mean(dim=0)
    assert (share - 0.5).abs().max() < 0.05  # each part as often as the others


# -- patches ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("height", "width", "side"), [(6, 6, 2), (9, 20, 3), (3, 3, 1)]
)
def test_patches_lie_where_their_label_says(height, width, side):
    rows = torch.arange(height).float()[:, None].expand(height, width)
    columns = torch.arange(width).float().expand(height, width)
    x = torch.stack([rows, columns]).expand(500, 2, height, width)
    first, second, place = random_pairs(x, side)
    step = (second - first)[:, :, 0, 0]
    away = torch.tensor(DIRECTIONS)[place]
    assert torch.equal(torch.sign(step), away.float())
    assert (step.abs()[away != 0] >= side).all()  # they do not overlap
    assert len(place.unique()) == 8
    grid = np.stack([rows.numpy(), columns.numpy()])
    A = np.broadcast_to(grid, (300, *grid.shape))
    a, b, k = pretexts.pairs_of(A, side, np.random.default_rng(0))
    np.testing.assert_array_equal(np.sign((b - a)[:, :, 0, 0]), np.array(DIRECTIONS)[k])


def test_probabilities_of_positions(placed):
    A = rings(20, RNG)[:, None]
    first, second, _ = pretexts.pairs_of(A, placed.patch_size_, RNG)
    P = placed.predict_position(first, second)
    assert P.shape == (20, 8)
    np.testing.assert_allclose(P.sum(axis=1), 1.0)
    np.testing.assert_array_equal(placed.predict_position(first[:, 0], second[:, 0]), P)


# -- colours ----------------------------------------------------------------------


def test_colours_and_grey_make_the_image_again():
    images = RNG.random((3, 3, 5, 4))
    np.testing.assert_allclose(joined(*parted(images)), images, atol=1e-14)
    grey, chroma = parted(np.repeat(images[:, :1], 3, axis=1))
    np.testing.assert_allclose(grey, images[:, :1])
    assert np.abs(chroma).max() < 1e-15


def test_vectors_depend_on_grey_values_only(painter):
    X = two_tone(6, RNG)
    grey = X @ np.array(GREY)
    three = np.repeat(grey[..., None], 3, axis=3)
    for other in (grey, three):
        np.testing.assert_allclose(
            painter.transform(other), painter.transform(X), atol=1e-5
        )
        np.testing.assert_allclose(
            painter.colorize(other), painter.colorize(X), atol=1e-5
        )


def test_images_of_any_layout_give_the_same(tmp_path):
    X = two_tone(30, RNG)
    forms = [X, np.moveaxis(X, 3, 1), X.reshape(30, -1)]
    options = {"max_iter": 3, "random_state": 0}
    found = []
    for form, more in zip(forms, ({}, {}, {"image_shape": (6, 6, 3)})):
        model = Colorizer(4, **options, **more).fit(form)
        painted = model.colorize(form)
        assert painted.shape == form.shape
        found.append(model.transform(form))
        grey = (X @ np.array(GREY)).reshape(30, 6, 6)
        flat = grey.reshape(30, -1) if more else grey
        np.testing.assert_allclose(model.colorize(flat), painted, atol=1e-6)
    np.testing.assert_allclose(found[0], found[1], atol=1e-6)
    np.testing.assert_allclose(found[0], found[2], atol=1e-6)


# -- runs and files ---------------------------------------------------------------


@pytest.mark.parametrize("name", ["masked", "table", "placed", "painter"])
def test_a_file_brings_the_encoder_back(name, request, tmp_path):
    model = request.getfixturevalue(name)
    X = {"masked": DIGITS, "table": ROWS, "placed": rings(30, RNG)}.get(name)
    X = two_tone(30, RNG) if X is None else X
    again = certus.load(model.save(tmp_path / "m.certus"))
    np.testing.assert_array_equal(again.transform(X), model.transform(X))
    if name == "painter":
        np.testing.assert_array_equal(again.colorize(X), model.colorize(X))
    found = certus.certify(again, X)
    assert found.status is not Status.REFUTED
    assert again.get_feature_names_out()[0].endswith("0")


def test_a_run_continues_bit_for_bit_and_obeys_its_time(tmp_path):
    X, options = DIGITS[:60], SMALL | {"batch_size": 30}
    whole = MaskedAutoencoder(4, max_iter=8, **options).fit(X)
    parts = {"checkpoint": tmp_path / "run"}
    with certus.config_context(on_uncertified="ignore"):
        cut = MaskedAutoencoder(4, max_iter=8, max_time=1e-9, **parts, **options).fit(X)
    assert cut.certificate_.status is Status.TIME_LIMIT and cut.n_iter_ < 8
    again = MaskedAutoencoder(4, max_iter=8, **parts, **options).fit(X)
    np.testing.assert_array_equal(again.transform(X), whole.transform(X))
    assert whole.n_iter_ == 8


def test_the_interval_of_a_share_holds():
    """In 95 of 100 draws at least, the lower end is below the true share."""
    rng, wrong, words = np.random.default_rng(0), 0, ("{between}", "P")
    for _ in range(400):
        right = rng.random(60) < 0.3
        claim = right_shares.share_claim("painted", right, 0.5, False, words)
        wrong += claim.value > 0.3
    assert wrong <= 0.05 * 400
    never = np.zeros(40, dtype=bool)
    assert right_shares.share_claim("painted", never, 0.5, False, words).met is False
    seen = right_shares.share_claim("painted", ~never, 0.5, True, words)
    assert seen.strength is Strength.REFUSED
