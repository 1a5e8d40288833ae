"""Sequence to sequence by transformers: the network, and what it learns."""

import numpy as np
import pytest
import torch
from sklearn.base import clone

import certus
from certus.neural_network import Seq2Seq
from certus.neural_network.modules import EncoderDecoder


def built(seed=0, **options):
    chosen = {"network": "transformer", "hidden": 8, "heads": 2, "n_layers": 2}
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        net = EncoderDecoder(6, 5, **{**chosen, **options})
    return net.double().eval().requires_grad_(False)


SOURCE = torch.tensor([[1, 2, 3, 4], [5, 2, 0, 0]])
LENGTHS = torch.tensor([4, 2])
TARGET = torch.tensor([[1, 4, 2, 0], [3, 0, -1, -1]])


@pytest.fixture(scope="module")
def reverser():
    """A model that reverses, and strings it has not seen."""
    rng = np.random.default_rng(0)
    lengths = rng.integers(1, 9, 1300)
    words = ["".join(rng.choice(list("abcdef"), size=n)) for n in lengths]
    model = Seq2Seq(network="transformer", width=32, max_iter=15, random_state=0)
    model.set_params(batch_size=32).fit(words[:1200], [w[::-1] for w in words[:1200]])
    seen = set(words[:1200])
    return model, [w for w in words[1200:] if w not in seen]


# -- the network ------------------------------------------------------------------


@pytest.mark.catalog("TRF-18")
def test_step_by_step_gives_the_same_as_all_at_once():
    net = built()
    encoded = net.encode(SOURCE, LENGTHS)
    together = net(SOURCE, LENGTHS, TARGET)
    state = net.decoder.start(encoded)
    previous = torch.full((2, 1), net.decoder.start_token)
    for t in range(4):
        z, state, _ = net.decoder(previous, state, encoded, t)
        torch.testing.assert_close(z[:, 0], together[:, t])
        previous = TARGET[:, t : t + 1].clamp(min=0)


def test_padding_and_later_targets_change_nothing():
    net = built()
    alone = net(SOURCE[1:, :2], LENGTHS[1:], TARGET[1:, :2])
    padded = net(SOURCE, LENGTHS, TARGET)
    torch.testing.assert_close(padded[1:, :2], alone)
    other = TARGET.clone()
    other[0, 2:] = torch.tensor([3, 3])
    assert torch.equal(net(SOURCE, LENGTHS, other)[0, :3], padded[0, :3])


def test_greedy_is_the_best_token_in_each_step_and_a_beam_no_worse():
    for seed in range(4):
        net = built(seed)
        encoded = net.encode(SOURCE, LENGTHS)
        found = net.greedy(encoded, 5)
        for row in range(2):
            tokens = []
            for _ in range(len(found.tokens[row])):
                target = torch.tensor([[*tokens, 0]])
                one = SOURCE[row : row + 1], LENGTHS[row : row + 1], target
                tokens.append(int(net(*one)[0, -1].argmax()))
                if tokens[-1] == 0 or len(tokens) == 5:
                    break
            assert found.tokens[row, : len(tokens)].tolist() == tokens
        wide = net.beam(encoded, 5, 4).log_probability
        assert (wide >= found.log_probability - 1e-9).all()


def test_attention_is_a_distribution_over_the_source():
    net = built()
    looks = net.attend(net.encode(SOURCE, LENGTHS), TARGET)
    assert looks.shape == (2, 4, 4)
    torch.testing.assert_close(looks.sum(dim=2), torch.ones(2, 4).double())
    assert (looks[1, :, 2:] == 0).all()


def test_an_encoder_of_another_width_can_be_given():
    class Columns(torch.nn.Module):
        width = 3

        def forward(self, x):
            mask = torch.ones(x.shape[:2], dtype=torch.bool)
            return certus.neural_network.modules.seq2seq.EncodedSources(
                x.mean(dim=1), x, mask
            )

    net = EncoderDecoder(0, 4, network="transformer", hidden=8, encoder=Columns())
    target = torch.tensor([[1, 2, 0]])
    assert net(torch.randn(1, 5, 3), target).shape == (1, 3, 4)


# -- what it learns ---------------------------------------------------------------


@pytest.mark.catalog("TRF-18")
def test_a_translator_learns_to_reverse(reverser):
    model, fresh = reverser
    assert len(fresh) > 50
    assert model.score(fresh, [w[::-1] for w in fresh]) > 0.97
    looks = model.attention_weights(["abcdef"])[0]
    assert looks.shape == (6, 6)
    np.testing.assert_allclose(looks.sum(axis=1), 1, rtol=1e-5)


@pytest.mark.slow
@pytest.mark.catalog("TRF-18")
def test_sixteen_tokens_are_reversed():
    X = np.random.default_rng(0).integers(1, 11, (5500, 16)).tolist()
    y = [x[::-1] for x in X]
    model = Seq2Seq(network="transformer", n_layers=2, max_iter=8, random_state=0)
    model.fit(X[:5000], y[:5000])
    assert model.score(X[5000:], y[5000:]) > 0.99


@pytest.mark.slow
@pytest.mark.catalog("TRF-18")
def test_two_numbers_of_two_digits_are_added():
    order = np.random.default_rng(0).permutation(10_000)
    pairs = [divmod(int(i), 100) for i in order]
    X = [f"{a:02}+{b:02}" for a, b in pairs]
    y = [str(a + b) for a, b in pairs]
    model = Seq2Seq(network="transformer", n_layers=2, random_state=0)
    found = model.fit(X[:9000], y[:9000]).predict(X[9000:])
    assert np.mean([a == b for a, b in zip(found, y[9000:])]) >= 0.99


def test_log_probabilities_are_those_of_the_network(reverser):
    model, fresh = reverser
    word = fresh[0]
    numbers = [1 + model.target_tokens_.index(c) for c in word] + [0]
    row = model._sources([word])[slice(0, 1)]
    with torch.no_grad():
        z = model.module_(*row, torch.tensor([numbers])).double()[0]
    log_p = torch.log_softmax(z, dim=1)[torch.arange(len(numbers)), numbers].sum()
    assert model.log_probability([word], [word])[0] == pytest.approx(float(log_p))


def test_a_translator_is_saved_and_certified_like_the_others(reverser, tmp_path):
    model, fresh = reverser
    again = certus.load(model.save(tmp_path / "reverser.certus"))
    assert again.predict(fresh) == model.predict(fresh)
    assert again.module_.config["network"] == "transformer"
    y = [w[::-1] for w in fresh]
    found = certus.certify(again, fresh, y)
    assert found["training_loss"].value == pytest.approx(
        certus.certify(model, fresh, y)["training_loss"].value
    )
    assert clone(model).get_params()["network"] == "transformer"


def test_wrong_shapes_are_refused_with_a_message():
    X = ["ab", "ba"]
    with pytest.raises(ValueError, match="width must be a multiple of heads"):
        Seq2Seq(network="transformer", width=10).fit(X, X)
    with pytest.raises(ValueError, match="network must be one of"):
        Seq2Seq(network="convolution").fit(X, X)
    with pytest.raises(ValueError, match="heads must be"):
        Seq2Seq(network="transformer", heads=0).fit(X, X)
