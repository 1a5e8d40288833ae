"""Sequences to sequences: the network's formulas, and the searches on tiny problems."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

from certus.neural_network.modules import EncoderDecoder  # noqa: E402
from certus.neural_network.modules.seq2seq import END, Attention, Clock, EncodedSources  # noqa: E402
from certus.neural_network.wrapping import evaluating  # noqa: E402

KINDS = list(itertools.product(("gru", "lstm", "rnn"), ("dot", "additive", None)))


def network(cell="gru", attention="dot", n_target=3, sharp=1.0, **options):
    """A small network in float64; sharp outputs make its distributions uneven."""
    net = EncoderDecoder(
        5, n_target, hidden=6, cell=cell, attention=attention, **options
    )
    with torch.no_grad():
        net.decoder.output.weight.mul_(sharp)
        net.decoder.output.bias.mul_(sharp)
    return net.double().eval()


SOURCE, LENGTHS = torch.tensor([[1, 4, 2], [3, 0, 0]]), torch.tensor([3, 1])


@torch.no_grad()
def log_probabilities(net, row, targets):
    """Of each target (a tuple of tokens) and of the end after it, by one pass each."""
    source, lengths = SOURCE[row : row + 1, : LENGTHS[row]], LENGTHS[row : row + 1]
    out = []
    for tokens in targets:
        y = torch.tensor([[*tokens, END]])
        z = torch.log_softmax(net(source, lengths, y), dim=2)[0]
        out.append(z[torch.arange(len(tokens) + 1), y[0]])
    return out


@pytest.mark.catalog("SEQ-10")
@pytest.mark.parametrize(("cell", "attention"), KINDS)
@pytest.mark.parametrize("feedback", [True, False])
def test_all_outputs_together_have_probability_one(cell, attention, feedback):
    net = network(cell, attention, sharp=3.0, feedback=feedback)
    for row in (0, 1):
        total, longest = 0.0, 4
        for length in range(longest + 1):
            for steps in log_probabilities(
                net, row, itertools.product((1, 2), repeat=length)
            ):
                # Of the longest all continuations count, of others the end.
                kept = steps[:-1] if length == longest else steps
                total += float(kept.sum().exp())
        assert total == pytest.approx(1.0, abs=1e-12)


@pytest.mark.catalog("SEQ-10")
@pytest.mark.parametrize("layers", [1, 3])
@pytest.mark.parametrize(("cell", "attention"), KINDS)
def test_steps_made_together_are_those_made_one_by_one(cell, attention, layers):
    net = network(cell, attention, n_layers=layers)
    target = torch.tensor([[1, 2, 2, 0], [2, 0, -1, -1]])
    together = net(SOURCE, LENGTHS, target)
    encoded = net.encode(SOURCE, LENGTHS)
    state = net.decoder.start(encoded)
    previous = torch.full((2, 1), net.decoder.start_token)
    for t in range(4):
        z, state, _ = net.decoder(previous, state, encoded, t)
        torch.testing.assert_close(z[:, 0], together[:, t], rtol=0, atol=1e-12)
        previous = target[:, t : t + 1].clamp(min=0)


@pytest.mark.parametrize("layers", [1, 2])
@pytest.mark.parametrize(("cell", "attention"), KINDS)
def test_padding_and_companions_change_nothing(cell, attention, layers):
    net = network(cell, attention, n_layers=layers)
    target = torch.tensor([[1, 2, 0], [2, 0, -1]])
    both = net(SOURCE, LENGTHS, target)
    wider = torch.cat([SOURCE, torch.full((2, 4), 3)], dim=1)
    torch.testing.assert_close(net(wider, LENGTHS, target), both, rtol=0, atol=1e-12)
    alone = net(SOURCE[1:, :1], LENGTHS[1:], target[1:, :2])
    torch.testing.assert_close(alone, both[1:, :2], rtol=0, atol=1e-12)
    encoded = net.encode(wider, LENGTHS)
    weights = net.attend(encoded, target)
    if attention is not None:
        assert (weights[0, :, 3:] == 0).all() and (weights[1, :, 1:] == 0).all()
        torch.testing.assert_close(weights.sum(dim=2), torch.ones_like(weights[..., 0]))


@pytest.mark.catalog("SEQ-11")
@pytest.mark.parametrize(("cell", "attention"), KINDS)
def test_without_feedback_outputs_are_independent_given_the_source(cell, attention):
    for feedback in (True, False):
        net = network(cell, attention, sharp=4.0, feedback=feedback)
        joint = torch.zeros(3, 3, dtype=torch.float64)  # p(y¹ = a, y² = b | x)
        for a, b in itertools.product(range(3), repeat=2):
            z = net(SOURCE[:1], LENGTHS[:1], torch.tensor([[a, b]]))
            steps = torch.log_softmax(z.detach(), dim=2)[0]
            joint[a, b] = (steps[0, a] + steps[1, b]).exp()
        assert float(joint.sum()) == pytest.approx(1.0, abs=1e-12)
        product = joint.sum(dim=1, keepdim=True) * joint.sum(dim=0, keepdim=True)
        apart = float((joint - product).abs().max())
        assert apart < 1e-12 if not feedback else apart > 1e-4


@pytest.mark.catalog("SEQ-12")
def test_scheduled_sampling_between_forced_and_free():
    net = network(sharp=3.0, forcing=1.0)
    target = torch.tensor([[1, 2, 2, 1, 0], [2, 1, 0, -1, -1]])
    encoded = net.encode(SOURCE, LENGTHS)
    forced = net(SOURCE, LENGTHS, target)
    told = net._sampled(encoded, target, 1.0)
    torch.testing.assert_close(told, forced, rtol=0, atol=1e-12)
    # Told nothing but its own outputs, what it does cannot depend on the target.
    other = target.roll(1, dims=0).clamp(min=0)
    with torch.random.fork_rng():
        torch.manual_seed(5)
        free = net._sampled(encoded, target, 0.0)
        torch.manual_seed(5)
        again = net._sampled(encoded, other, 0.0)
    torch.testing.assert_close(free, again, rtol=0, atol=0)
    assert not torch.allclose(free[:, 1:], forced[:, 1:])


@pytest.mark.catalog("SEQ-12")
def test_the_probability_of_the_true_output_falls_with_each_training_batch():
    net = network(forcing=0.25, forcing_decay=0.25)
    target = torch.tensor([[1, 0], [2, 0]])
    with evaluating(net):
        net(SOURCE, LENGTHS, target)
    assert int(net.batches) == 0
    assert [net.forcing_now() for _ in range(5)] == [1.0, 0.75, 0.5, 0.25, 0.25]
    assert network(forcing=0.25).forcing_now() == 0.25


# -- attention --------------------------------------------------------------------


@pytest.mark.catalog("SEQ-15")
@pytest.mark.parametrize("kind", ["dot", "additive"])
def test_attention_is_its_formula(kind):
    look = Attention(4, 6, kind).double()
    h, e = torch.randn(4).double(), torch.randn(3, 6).double()
    with torch.no_grad():
        keys = e @ look.key.weight.T
        if kind == "dot":
            scores = keys @ h / 2
        else:
            scores = torch.tanh(keys + look.query(h)) @ look.score.weight[0]
        alpha = scores.exp() / scores.exp().sum()
        mask = torch.ones(1, 3, dtype=torch.bool)
        context, weights = look(h[None, None], e[None], mask)
    torch.testing.assert_close(weights[0, 0], alpha)
    torch.testing.assert_close(context[0, 0], alpha @ e)


def test_attention_finds_the_state_that_is_the_query():
    look = Attention(3, 3, "dot").double()
    with torch.no_grad():
        look.key.weight.copy_(100 * torch.eye(3))
    states = torch.eye(3).double()[None]
    context, _ = look(states, states, torch.ones(1, 3, dtype=torch.bool))
    torch.testing.assert_close(context, states)


def test_the_clock_distinguishes_every_place():
    places = Clock(8).double()(torch.arange(1000)).detach()
    near = torch.cdist(places, places) + 10 * torch.eye(1000)
    assert near.min() > 1e-3


# -- searches ---------------------------------------------------------------------


def exhaustive(net, row, longest):
    """The most probable complete output of at most so many tokens, by trying all."""
    best = (-np.inf, ())
    for length in range(longest + 1):
        every = list(itertools.product((1, 2), repeat=length))
        for tokens, steps in zip(every, log_probabilities(net, row, every)):
            best = max(best, (float(steps.sum()), tokens))
    return best


@pytest.mark.parametrize(("cell", "attention"), KINDS)
@pytest.mark.parametrize("seed", range(3))
def test_a_wide_beam_is_exhaustive_search(cell, attention, seed):
    torch.manual_seed(seed)
    net = network(cell, attention, sharp=6.0)
    with torch.no_grad():  # long outputs, so that there is something to be found
        net.decoder.output.bias[END] -= 2.0
    found = net.beam(net.encode(SOURCE, LENGTHS), 4, 40)
    for row in (0, 1):
        value, tokens = exhaustive(net, row, 4)
        mine = [int(t) for t in found.tokens[row] if t != END]
        assert float(found.log_probability[row]) == pytest.approx(value, abs=1e-10)
        assert tuple(mine) == tokens


@pytest.mark.parametrize("cell", ["gru", "lstm"])
def test_a_beam_of_one_is_greedy(cell):
    net = network(cell, n_target=6, sharp=4.0)
    source, lengths = torch.randint(1, 5, (20, 7)), torch.randint(1, 8, (20,))
    found = net.beam(net.encode(source, lengths), 5, 1).tokens
    for row in range(20):
        written: list[int] = []
        for _ in range(5):
            y = torch.tensor([[*written, 0]])
            z = net(source[row : row + 1], lengths[row : row + 1], y)
            best = int(z[0, -1].argmax())
            if best == END:
                break
            written.append(best)
        assert [int(t) for t in found[row] if t != END] == written


@pytest.mark.parametrize("cell", ["gru", "lstm"])
@pytest.mark.parametrize(("width", "n_layers"), [(2, 1), (5, 1), (3, 2)])
def test_a_beam_knows_the_probability_of_what_it_found(cell, width, n_layers):
    net = network(cell, n_target=5, sharp=6.0, n_layers=n_layers)
    with torch.no_grad():  # states that what was written changes much
        net.decoder.embedding.weight.mul_(3)
        for weight in net.decoder.layers.parameters():
            weight.mul_(3)
        net.decoder.output.bias[END] -= 3.0
        source, lengths = torch.randint(1, 5, (40, 6)), torch.randint(1, 7, (40,))
        found = net.beam(net.encode(source, lengths), 7, width)
        tokens = torch.nn.functional.pad(found.tokens, (0, 1), value=END)
        steps = torch.log_softmax(net(source, lengths, tokens), dim=2)
        steps = steps.gather(2, tokens[..., None])[..., 0]
        first_end = (tokens == END).int().argmax(dim=1, keepdim=True)
        counts = torch.arange(tokens.shape[1]) <= first_end
    wanted = torch.where(counts, steps, 0.0).sum(dim=1)
    torch.testing.assert_close(found.log_probability, wanted, rtol=0, atol=1e-10)


def test_a_wider_beam_finds_what_greed_misses():
    better = 0
    for seed in range(20):
        torch.manual_seed(seed)
        net = network(n_target=4, sharp=5.0)
        encoded = net.encode(SOURCE, LENGTHS)
        greedy, wide = net.greedy(encoded, 6), net.beam(encoded, 6, 30)
        gain = wide.log_probability - greedy.log_probability
        assert (gain > -1e-12).all()
        better += int((gain > 1e-6).sum())
    assert better > 0


# -- captions ---------------------------------------------------------------------


class Pictures(nn.Module):
    """A small CNN whose map of features is what the decoder looks at."""

    width = 16

    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(1, 8, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(8, 16, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
        )
        self.summary = nn.Linear(64, 16)

    def forward(self, x):
        features = self.layers(x).flatten(2).transpose(1, 2)  # (batch, places, 16)
        mask = torch.ones(features.shape[:2], dtype=torch.bool, device=x.device)
        return EncodedSources(self.summary(features.flatten(1)), features, mask)


def pictures(n, seed):
    """Squares and crosses, on the left or the right, with captions."""
    rng = np.random.default_rng(seed)
    X, y = 0.1 * rng.normal(size=(n, 1, 8, 8)), []
    for i in range(n):
        cross, right = rng.integers(2, size=2)
        at = X[i, 0, rng.integers(4) :, 4 * right :][:4, :4]
        at += np.fliplr(np.eye(4)) + np.eye(4) if cross else np.pad(np.ones((2, 2)), 1)
        what, where = ("square", "cross")[cross], ("left", "right")[right]
        y.append(["a", what, "on", "the", where])
    return X, y


@pytest.mark.catalog("SEQ-14")
def test_captions_of_pictures():
    from certus.neural_network import Seq2Seq as Estimator

    X, y = pictures(200, 0)
    model = Estimator(
        encoder=Pictures(),
        width=24,
        batch_size=20,
        learning_rate=1e-2,
        max_iter=20,
        random_state=0,
    ).fit(X, y)
    X_new, y_new = pictures(60, 1)
    assert model.predict(X_new) == y_new
    assert [w.shape for w in model.attention_weights(X_new[:2])] == [(5, 4)] * 2


def stacked(kind, layers, names):
    """torch's own stack of recurrences, with the weights of single layers."""
    both = len(names) == 2
    stack = kind(6, 6, len(layers), batch_first=True, bidirectional=both).double()
    with torch.no_grad():
        for i, readers in enumerate(layers):
            for reader, suffix in zip(readers, names):
                for name, weight in reader.named_parameters():
                    getattr(stack, name.replace("_l0", f"_l{i}{suffix}")).copy_(weight)
    return stack


@pytest.mark.parametrize(("cell", "kind"), [("gru", "GRU"), ("lstm", "LSTM")])
def test_layers_stand_on_each_other_as_in_torch(cell, kind):
    net, kind = network(cell, None, n_layers=3), getattr(torch.nn, kind)
    encoder, decoder = net.encoder, net.decoder
    with torch.no_grad():
        t = torch.arange(3)
        x = encoder.embedding(SOURCE) + encoder.begun(t)
        x = x + encoder.left(LENGTHS[:, None] - t)
        packed = torch.nn.utils.rnn.pack_padded_sequence(x, LENGTHS, batch_first=True)
        states, ends = stacked(kind, encoder.layers, ("", "_reverse"))(packed)
        states = torch.nn.utils.rnn.pad_packed_sequence(states, batch_first=True)[0]
        top = (ends[0] if cell == "lstm" else ends)[-2:]  # forwards, backwards
        found = net.encode(SOURCE, LENGTHS)
        torch.testing.assert_close(found.states[found.mask], states[found.mask])
        torch.testing.assert_close(found.summary, torch.cat([top[0], top[1]], dim=1))

        h = torch.tanh(decoder.bridge(found.summary)).reshape(2, 3, 6).transpose(0, 1)
        h = h.contiguous()
        state = (h, torch.zeros_like(h)) if cell == "lstm" else h
        told = torch.tensor([[decoder.start_token, 1], [decoder.start_token, 2]])
        y = decoder.embedding(told) + decoder.clock(torch.arange(2))
        rows = [[layer] for layer in decoder.layers]
        states, _ = stacked(kind, rows, ("",))(y, state)
        wanted = decoder.output(torch.tanh(decoder.mix(states)))
        target = torch.tensor([[1, 0], [2, 0]])
        torch.testing.assert_close(net(SOURCE, LENGTHS, target), wanted)
