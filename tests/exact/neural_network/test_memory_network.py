"""Memory networks: the formula, and what two looks can do that one cannot."""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

from certus.neural_network import NeuralClassifier  # noqa: E402
from certus.neural_network.modules import MemoryNetwork  # noqa: E402

PEOPLE = 3


def questions(n, seed):
    """Who holds which box, which box is where, in any order; where is somebody?

    People are the words 1 to 3, boxes 4 to 6, places 7 to 9. The answer is two facts
    away from the question, and no fact names both the person and the place.
    """
    rng = np.random.default_rng(seed)
    k, each = PEOPLE, np.arange(n)
    boxes = np.argsort(rng.random((n, k)), axis=1)
    places = np.argsort(rng.random((n, k)), axis=1)
    facts = np.empty((n, 2 * k, 2), dtype=np.int64)
    facts[:, :k, 0], facts[:, k:, 0] = np.arange(1, k + 1), np.arange(k + 1, 2 * k + 1)
    facts[:, :k, 1], facts[:, k:, 1] = boxes + k + 1, places + 2 * k + 1
    order = np.argsort(rng.random((n, 2 * k)), axis=1)
    facts = np.take_along_axis(facts, order[..., None], axis=1)
    who = rng.integers(k, size=n)
    return facts, who[:, None] + 1, places[each, boxes[each, who]]


class Asked(nn.Module):
    """Facts and question in one table of numbers, as the estimator has them."""

    def __init__(self, hops):
        super().__init__()
        self.memory = MemoryNetwork(10, PEOPLE, hops=hops, places=2)

    def forward(self, x):
        x = x.long()
        return self.memory(x[:, :-1].reshape(len(x), -1, 2), x[:, -1:])


def accuracy(hops):
    facts, question, answer = questions(2000, 0)
    X = np.column_stack([facts.reshape(len(facts), -1), question])
    torch.manual_seed(0)
    model = NeuralClassifier(
        Asked(hops),
        learning_rate=1e-2,
        schedule="cosine",
        max_iter=15,
        batch_size=100,
        random_state=0,
    ).fit(X[:1500], answer[:1500])
    return model, X[1500:], answer[1500:]


@pytest.mark.catalog("SEQ-16")
def test_two_hops_answer_what_one_cannot():
    two, X, answer = accuracy(2)
    assert two.score(X, answer) > 0.98
    one, X, answer = accuracy(1)
    assert one.score(X, answer) < 0.6  # chance is a third

    memory = two.module_.memory
    facts = torch.as_tensor(X[:, :-1]).reshape(len(X), -1, 2).long()
    who = torch.as_tensor(X[:, -1:]).long()
    with torch.no_grad():
        looks = memory.attention(facts, who)
    rows = torch.arange(len(facts))
    first, second = (facts[rows, looks[:, hop].argmax(dim=1)] for hop in (0, 1))
    # The first look finds the person's box, the second where that box is.
    assert (first[:, 0] == who[:, 0]).float().mean() > 0.95
    assert (second[:, 0] == first[:, 1]).float().mean() > 0.95


@pytest.mark.catalog("SEQ-16")
def test_hops_are_their_formula():
    net = MemoryNetwork(8, 3, width=5, hops=3, places=4).double()
    facts = torch.tensor([[[1, 2, 3], [4, 0, 0], [0, 0, 0]]])
    question = torch.tensor([[5, 6]])
    with torch.no_grad():
        E = net.embedding.weight
        m, c = (
            torch.stack(
                [sum(E[w] * scale[j] for j, w in enumerate(fact)) for fact in facts]
            )
            for facts, scale in (
                ([[1, 2, 3], [4]], net.asked),
                ([[1, 2, 3], [4]], net.answered),
            )
        )
        u = E[5] * net.question[0] + E[6] * net.question[1]
        for hop in range(3):
            alpha = torch.softmax(m @ u, dim=0)
            u = u + alpha @ c
            found = net.attention(facts, question)[0, hop]
            torch.testing.assert_close(found, torch.cat([alpha, alpha.new_zeros(1)]))
        torch.testing.assert_close(net(facts, question)[0], net.output(u))


def test_the_order_of_facts_and_absent_ones_change_nothing():
    net = MemoryNetwork(10, 3).double()
    facts, question, _ = (torch.as_tensor(v) for v in questions(20, 1))
    found = net(facts, question)
    torch.testing.assert_close(net(facts.flip(1), question), found)
    more = torch.cat([facts, torch.zeros(20, 4, 2, dtype=torch.int64)], dim=1)
    torch.testing.assert_close(net(more, question), found)
    assert not torch.allclose(net(facts.flip(2), question), found)  # words have places
    with pytest.raises(
        ValueError, match="has 9 words, but the network was built for 8"
    ):
        net(facts, torch.ones(20, 9, dtype=torch.int64))
    nothing = net(torch.zeros_like(facts), question)
    assert bool(torch.isfinite(nothing).all())
