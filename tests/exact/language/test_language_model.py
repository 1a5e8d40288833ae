"""Language models: probabilities that add up, windows, entropy rates, two stages."""

import itertools
import math

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from sklearn.base import clone  # noqa: E402

from certus.language import LanguageModel  # noqa: E402
from certus.language.windows import begin_of, scoring_windows  # noqa: E402
from certus.neural_network.modules import (  # noqa: E402
    PUBLISHED,
    Transformer,
    count_parameters,
)
from helpers.letters import Letters, entropy_rate, markov_text  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore::certus.base.UncertifiedWarning")

TINY = {"n_layers": 1, "width": 16, "heads": 2, "batch_size": 8, "random_state": 0}
P = np.array([[0.1, 0.8, 0.1], [0.2, 0.1, 0.7], [0.6, 0.3, 0.1]])


@pytest.fixture(scope="module")
def letters():
    """A model of three letters whose windows are shorter than its texts."""
    model = LanguageModel(Letters(), context=4, max_iter=40, **TINY)
    return model.fit(markov_text(P, 2000))


@pytest.mark.catalog("LM-01")
def test_probabilities_of_all_texts_of_one_length_add_up_to_one(letters):
    total = 0.0
    for ids in itertools.product(range(4), repeat=5):  # longer than a window
        total += math.exp(math.fsum(letters.token_log_probs(np.array(ids))))
    assert total == pytest.approx(1.0, abs=1e-12)


@pytest.mark.catalog("LM-01", "TRF-20")
def test_one_pass_over_a_text_gives_the_factors_of_the_chain_rule(letters):
    ids = letters.tokenizer_.encode("abcabcabcacbab")
    one_pass = letters.token_log_probs(ids)
    steps = [letters.next_probabilities(ids[:t])[ids[t]] for t in range(len(ids))]
    np.testing.assert_allclose(one_pass, np.log(steps), atol=2e-6)
    assert letters.log_prob("abcabcabcacbab") == pytest.approx(one_pass.sum())


@pytest.mark.catalog("TRF-20")
def test_the_future_changes_no_probability(letters):
    ids = letters.tokenizer_.encode("abcabcabcacbab")
    for t in range(1, len(ids)):
        other = ids.copy()
        other[t:] = (other[t:] + 1) % 3
        np.testing.assert_array_equal(
            letters.token_log_probs(ids)[:t], letters.token_log_probs(other)[:t]
        )


@pytest.mark.catalog("TRF-20")
def test_a_network_of_zeros_gives_log_of_the_vocabulary(letters):
    model = clone(letters).fit("abc" * 200)
    with torch.no_grad():
        for p in model.network_.parameters():
            p.zero_()
    assert model.bits_per_byte("abcab") == pytest.approx(math.log2(4), abs=1e-12)


@pytest.mark.catalog("LM-02")
def test_training_begins_near_the_log_of_the_vocabulary():
    model = LanguageModel(context=16, max_iter=1, learning_rate=1e-9, **TINY)
    model.fit(bytes(range(256)) * 4)
    assert model.history_["loss"][0] == pytest.approx(math.log(257), abs=0.03)


@pytest.mark.catalog("LM-02")
def test_on_a_markov_chain_it_reaches_the_entropy_rate():
    options = {**TINY, "batch_size": 32, "width": 32}
    model = LanguageModel(Letters(), context=64, max_iter=300, **options)
    model.fit(markov_text(P, 100_000))
    fresh = markov_text(P, 20_000, seed=1)
    # The text's own cost under the true chain: chance is the same for both.
    true = -sum(math.log2(P["abc".index(a), "abc".index(b)]) for a, b in
                itertools.pairwise(fresh)) / (len(fresh) - 1)  # fmt: skip
    assert true == pytest.approx(entropy_rate(P), abs=0.02)
    assert 0 <= model.bits_per_byte(fresh) - true + 1e-3 < 0.02


@pytest.mark.catalog("LM-05")
def test_much_poor_text_first_helps_with_little_good_text():
    poor = "".join(
        a if u > 0.3 else "abc"[i]
        for a, u, i in zip(
            markov_text(P, 60_000, seed=2),
            np.random.default_rng(3).random(60_000),
            np.random.default_rng(4).integers(3, size=60_000),
            strict=True,
        )
    )
    good, fresh = markov_text(P, 400, seed=5), markov_text(P, 20_000, seed=6)
    options = {**TINY, "context": 32, "warm_start": True}
    model = LanguageModel(Letters(), max_iter=200, **options).fit(poor)
    before = model.bits_per_byte(fresh)
    network = model.network_
    model.set_params(max_iter=40, learning_rate=1e-3).fit(good)
    assert model.network_ is not network
    after = model.bits_per_byte(fresh)
    alone = clone(model).set_params(max_iter=40, learning_rate=None).fit(good)
    assert after < before - 0.02
    assert after < alone.bits_per_byte(fresh) - 0.02


@pytest.mark.catalog("LM-09", "LM-10")
@pytest.mark.parametrize(
    ("name", "published"),
    [("gpt1", 116.5e6), ("gpt2", 124.4e6), ("gpt2-xl", 1.558e9), ("gpt3", 174.6e9)],
)
def test_published_sizes(name, published):
    config = PUBLISHED[name]
    with torch.device("meta"):
        found = count_parameters(Transformer(**config))
    V, T, d, n = (config[k] for k in ("n_tokens", "context", "width", "n_layers"))
    norms = 2 * d if config.get("norm") != "post" else 0  # the last one
    # Attention 4d² + 4d, feed-forward 8d² + 5d, two norms 4d.
    assert found == V * d + T * d + n * (12 * d * d + 13 * d) + norms
    assert found == pytest.approx(published, rel=1e-3)


# -- windows -----------------------------------------------------------------------


@pytest.mark.parametrize("context", [1, 2, 3, 4, 7, 64])
@pytest.mark.parametrize("n", [1, 2, 5, 64, 65, 200])
def test_each_token_is_scored_once_in_the_first_window_that_holds_it(n, context):
    windows, seen = list(scoring_windows(n, context)), []
    h = max(1, context // 2)
    for k, window in enumerate(windows):
        assert window.begin == k * h
        assert window.end == min(n, k * h + context)
        new = range(window.scored, window.end)
        assert all(begin_of(t, context) == window.begin for t in new)
        seen += new
    assert seen == list(range(n))
    for t in range(n):
        assert windows[begin_of(t, context) // h].end > t
        earlier = [w for w in windows if w.begin < begin_of(t, context)]
        assert all(w.end <= t for w in earlier)


# -- bytes --------------------------------------------------------------------------


def test_bits_are_divided_by_the_bytes_of_the_text():
    model = LanguageModel(260, context=16, max_iter=20, **TINY)
    model.fit(["naïve café, déjà vu", "naïve naïve"] * 30)
    text = "café “naïve” 日本"
    ids = model.tokenizer_.encode(text)
    nats = -model.token_log_probs(ids).sum()
    assert len(text.encode()) > len(text)
    assert model.bits_per_byte(text) == pytest.approx(
        nats / math.log(2) / len(text.encode())
    )
    assert model.bits_per_byte(text) == model.bits_per_byte(text.encode())
    assert model.score(text) == -model.bits_per_byte(text)


def test_the_end_between_documents_costs_bits_and_has_no_bytes(letters):
    end = letters.tokenizer_.special["<|end|>"]
    ids = np.array([0, 1, 2, end, 1, 2])
    nats = -letters.token_log_probs(ids).sum()
    found = letters.bits_per_byte(["abc", "bc"])
    assert found == pytest.approx(nats / math.log(2) / 5)


def test_whole_documents_are_held_out():
    documents = [f"{name} sat on the mat. " * 20 for name in ("Ann", "Bo", "Cy")] * 3
    model = LanguageModel(context=16, max_iter=10, **TINY).fit(documents)
    assert 0 < model.validation_bits_ < 8
    short = clone(model).fit("too short to hold anything out")
    assert math.isnan(short.validation_bits_)
