"""Compiled decoding: the network's scores, its laws, and the draws from them."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
import torch
from tests.helpers.language import WritingModel

from certus.language import ByteTokenizer
from certus.language.decoding.beam import beam_search
from certus.language.decoding.exponential_kernels import exp64
from certus.language.decoding.samplers import CompiledDecoder, check_rule, sample
from certus.neural_network.modules import Transformer
from certus.verify.language import models, sampling
from certus.verify.language.sampling import How

NETWORKS: list[dict[str, Any]] = [
    {},
    {"qk_norm": True, "activation": "relu"},
    {"norm": "post", "position": "learned", "activation": "gelu_tanh"},
    {"position": "sinusoidal", "activation": "gelu", "tied": False, "bias": False},
    {"position": None, "activation": "swiglu", "heads": 1},
]


def network(n_tokens: int = 6, seed: int = 0, **config: Any) -> Transformer:
    words = {"n_layers": 2, "width": 16, "heads": 2, "context": 8, **config}
    made = Transformer(n_tokens, **words).eval()
    random = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for p in made.parameters():
            p.add_(torch.randn(p.shape, generator=random) * 0.3)
    return made


def decoder_of(made: Transformer) -> CompiledDecoder:
    weights = {name: p.numpy() for name, p in made.state_dict().items()}
    return CompiledDecoder(made.config, weights, made.config["n_tokens"] - 1)


def after(made: Transformer, stream: Any) -> np.ndarray:
    """Scores behind the last token, by PyTorch in float64, in its window."""
    context, t = made.config["context"], len(stream)
    begin = 0 if t <= context else -(-(t - context) // (context // 2)) * (context // 2)
    wide = Transformer(**made.config).double().eval()
    wide.load_state_dict(made.state_dict())
    with torch.no_grad():
        return wide(torch.as_tensor(stream[begin:])[None]).output[0, -1].numpy()


def log_softmax(logits: np.ndarray) -> np.ndarray:
    logits = logits - logits.max()
    return logits - np.log(np.exp(logits).sum())


@pytest.mark.parametrize("config", NETWORKS, ids=str)
def test_scores_are_those_of_the_network(config: dict[str, Any]) -> None:
    made = network(11, **config)
    stream = np.r_[10, np.random.default_rng(0).integers(0, 11, 30)]
    found = decoder_of(made).logits(stream)
    for t in range(len(stream)):
        np.testing.assert_allclose(found[t], after(made, stream[: t + 1]), atol=2e-5)


@pytest.mark.parametrize("config", NETWORKS, ids=str)
def test_a_cache_changes_no_bit(config: dict[str, Any]) -> None:
    """Reading token by token, in blocks, or with neighbours: the same floats."""
    decoder = decoder_of(network(11, **config))
    stream = np.r_[10, np.random.default_rng(1).integers(0, 11, 25)]
    whole = decoder.logits(stream)
    for t in range(1, len(stream) + 1):
        np.testing.assert_array_equal(decoder.logits(stream[:t])[-1], whole[t - 1])


def test_a_text_does_not_depend_on_its_neighbours() -> None:
    model = WritingModel()
    prompts = ["", "To be", "or not to be, that is the question:", "a", "b"] * 4
    many = model.generate_many(prompts, 40, random_state=3)
    alone = model.generate(prompts[0], 40, random_state=3)
    np.testing.assert_array_equal(many[0].ids, alone.ids)
    np.testing.assert_array_equal(many[0].log_probs, alone.log_probs)
    fewer = model.generate_many(prompts[:3], 40, random_state=3)
    for a, b in zip(many, fewer):
        np.testing.assert_array_equal(a.ids, b.ids)


@pytest.mark.catalog("LM-04")
def test_generation_is_deterministic_and_round_trips() -> None:
    model = WritingModel()
    first, second = (model.generate("né", 30, random_state=0) for _ in range(2))
    assert first.text == second.text and first.data == second.data
    again = ByteTokenizer().decode_bytes(first.ids)
    assert again == "né".encode() + first.data
    assert model.generate("né", 30, random_state=1).text != first.text


@pytest.mark.parametrize(
    "how", [How(), How(0.7), How(1.3, 5), How(1.0, 0, 0.8), How(0.9, 40, 0.9), How(0.0)]
)
def test_the_verifier_replays_the_draws(how: How) -> None:
    model = WritingModel(size=0.3)
    drawn = model.generate(
        "Once ",
        60,  # longer than the context of 16
        temperature=how.temperature,
        top_k=how.top_k or None,
        top_p=how.top_p,
        random_state=0,
    )
    read = models.reader(models._language_model(model))
    stream = np.r_[drawn.end, drawn.ids]
    claim = sampling.replay_claim(read, stream, 6, drawn.uniforms, how)
    assert claim.met, claim.detail
    assert sampling.cache_claim(read, stream, 6, drawn.log_probs).met


@pytest.mark.catalog("TRF-19")
def test_greedy_takes_the_best_token_until_the_end() -> None:
    ended = 0
    for seed in range(12):
        made = network(seed=seed)
        found = sample(decoder_of(made), [np.array([1])], 20, check_rule(0, None, 1, 6))
        stream = [5, 1]
        for _ in range(20):
            stream.append(int(after(made, np.array(stream)).argmax()))
            if stream[-1] == 5:
                break
        assert found[0].ids.tolist() == stream[1:]
        assert found[0].finished == (stream[-1] == 5)
        ended += found[0].finished
    assert 0 < ended < 12  # both ways to stop occur


def every_text(made: Transformer, most: int) -> dict[tuple[int, ...], float]:
    """Log-probability of each text that ends, or has ``most`` tokens."""
    found, end = {}, made.config["n_tokens"] - 1
    stack = [((), 0.0)]
    while stack:
        text, total = stack.pop()
        if len(text) == most or (text and text[-1] == end):
            found[text] = total
            continue
        for token, lp in enumerate(log_softmax(after(made, np.array([end, *text])))):
            stack.append(((*text, token), total + lp))
    return found


@pytest.mark.parametrize("seed", range(3))
def test_a_wide_beam_finds_the_most_probable_text(seed: int) -> None:
    made = network(4, seed)
    texts = every_text(made, 4)
    best = max(texts, key=texts.__getitem__)
    found = beam_search(decoder_of(made), np.array([], int), 4, 4**4)
    assert tuple(found.ids) == best
    assert found.log_probs.sum() == pytest.approx(texts[best], abs=1e-5)
    narrow = beam_search(decoder_of(made), np.array([], int), 4, 1)
    greedy = sample(decoder_of(made), [np.array([], int)], 4, check_rule(0, None, 1, 4))
    np.testing.assert_array_equal(narrow.ids, greedy[0].ids)
    assert narrow.log_probs.sum() <= found.log_probs.sum() + 1e-9


def test_a_beam_continues_beyond_the_context() -> None:
    made = network(seed=2, context=4)
    found = beam_search(decoder_of(made), np.array([1, 2, 3, 1, 2]), 12, 3)
    stream = np.r_[5, found.ids]
    own = [
        log_softmax(after(made, stream[:t]))[stream[t]] for t in range(6, len(stream))
    ]
    np.testing.assert_allclose(found.log_probs, own, atol=1e-5)


def test_the_exponential_is_exact_to_rounding() -> None:
    x = -np.concatenate([np.linspace(0, 700, 20_001), np.geomspace(1e-12, 1, 1_000)])
    own = np.array([exp64(value) for value in x])
    np.testing.assert_allclose(own, np.exp(x), rtol=1e-15 * 2)
    assert exp64(0.0) == 1.0 and exp64(-1e4) == 0.0


def test_ties_and_borders_of_top_k_and_top_p() -> None:
    from certus.language.decoding.decoding_kernels import draw, law

    logits = np.zeros(5, np.float32)
    p = np.empty(5)
    law(logits, 1.0, 2, 1.0, p)
    assert p.tolist() == [0.5, 0.5, 0, 0, 0]  # of equals the first ones
    law(np.log(np.float32([4, 2, 1, 1])), 1.0, 0, 0.6, p[:4])
    np.testing.assert_allclose(p[:4], [2 / 3, 1 / 3, 0, 0], rtol=1e-6)
    law(logits, 1.0, 0, 1e-9, p)
    assert p.tolist() == [1, 0, 0, 0, 0]
    p[:] = [0.25, 0, 0.5, 0, 0.25]
    draws = [draw(p, u) for u in (0.0, 0.2499, 0.25, 0.7499, 0.75, np.nextafter(1, 0))]
    assert draws == [0, 0, 2, 2, 4, 4]


def test_log_probs_sum_to_one_over_all_texts() -> None:
    total = sum(np.exp(list(every_text(network(4), 3).values())))
    made, decoder = network(4), decoder_of(network(4))
    assert total == pytest.approx(1.0)
    own = 0.0
    for text in itertools.product(range(4), repeat=2):
        z = decoder.logits(np.array([3, *text[:1]])).astype(float)
        own += np.exp(log_softmax(z[0])[text[0]] + log_softmax(z[1])[text[1]])
    assert own == pytest.approx(1.0, abs=1e-12)
    assert made.config["n_tokens"] == 4
