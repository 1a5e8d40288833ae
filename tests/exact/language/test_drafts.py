"""Speculative decoding: a draft changes the speed, never the law."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from tests.exact.language.test_decoding import after, decoder_of, log_softmax, network
from tests.helpers.language import WritingModel

import certus
from certus.language import NGramModel
from certus.language.decoding.counted_drafts import CountedDraft
from certus.language.decoding.samplers import check_rule, sample, sample_with_draft
from certus.verify.language.ngrams import counted_draft, scores_behind
from certus.verify.language.sampling import distance, step_law

PROMPT = np.array([1, 2])


@pytest.mark.parametrize("context", [4, 8, 64])
def test_greedy_with_a_draft_gives_the_same_tokens(context: int) -> None:
    rule = check_rule(0.0, None, 1.0, 6)
    for seed in range(6):
        decoder = decoder_of(network(seed=seed, context=context))
        draft = decoder_of(network(seed=50 + seed, n_layers=1, context=6))
        for many in (1, 3, 7):
            drawn, _ = sample_with_draft(decoder, draft, PROMPT, 30, rule, 0, many)
            alone = sample(decoder, [PROMPT], 30, rule, 0)[0]
            np.testing.assert_array_equal(drawn.ids, alone.ids)
            np.testing.assert_array_equal(drawn.log_probs, alone.log_probs)


def test_a_model_accepts_its_own_proposals() -> None:
    decoder = decoder_of(network())
    rule = check_rule(0.8, 4, 0.9, 6)
    _, tried = sample_with_draft(decoder, decoder, PROMPT, 40, rule, 0)
    assert len(tried.accepted) and tried.accepted.all()
    np.testing.assert_array_equal(tried.p, tried.q)


def test_recorded_distributions_make_each_step_that_of_the_model() -> None:
    """The law of a step is a finite sum; it is p to rounding, whatever q is."""
    rule = check_rule(0.9, 5, 0.95, 6)
    seen = set()
    for seed in range(20):
        made = network(seed=3)
        draft = network(seed=4, n_layers=1, context=6)
        drawn, tried = sample_with_draft(
            decoder_of(made), decoder_of(draft), PROMPT, 30, rule, seed
        )
        stream = np.r_[5, drawn.ids]
        for i, (place, x) in enumerate(zip(tried.places, tried.tokens)):
            p, q, u = tried.p[i], tried.q[i], tried.accept_uniforms[i]
            assert distance(step_law(q, p, q), p) < 1e-12
            assert tried.accepted[i] == (u * q[x] < p[x])
            seen.add(bool(tried.accepted[i]))
            for one, law in ((made, p), (draft, q)):
                wide = np.exp(log_softmax(after(one, stream[: place + 1]) / 0.9))
                own = np.where(law > 0, wide, 0)
                np.testing.assert_allclose(law, own / own.sum(), atol=1e-5)
            if tried.accepted[i]:
                assert drawn.ids[place] == x
    assert seen == {True, False}


def test_the_verifier_confirms_a_draft() -> None:
    model, small = WritingModel(size=0.3), WritingModel(size=0.3, seed=1, n_layers=1)
    for how in ({"top_k": 50}, {"temperature": 0.0}, {"top_p": 0.9}):
        drawn = model.generate("Once", 50, draft=small, random_state=2, **how)
        assert drawn.draft is not None and 0.0 <= drawn.draft.acceptance <= 1.0
        certificate = certus.certify(drawn)
        assert certificate["speculative_gap"].met, certificate
        assert certificate["replay"].met, certificate


def test_a_record_of_another_distribution_is_found() -> None:
    """The raw q in place of the filtered one, as other libraries had it."""
    model, small = WritingModel(size=0.3), WritingModel(size=0.3, seed=1, n_layers=1)
    drawn = model.generate("Once", 50, draft=small, top_k=20, random_state=2)
    raw = model.generate("Once", 50, draft=small, random_state=2).draft
    n = min(len(raw.tokens), len(drawn.draft.tokens))
    forged = dataclasses.replace(
        drawn.draft, q=np.vstack([raw.q[:n], drawn.draft.q[n:]])
    )
    certificate = certus.certify(dataclasses.replace(drawn, draft=forged))
    assert not certificate["speculative_gap"].met


def test_tokens_with_a_draft_have_the_distribution_of_the_model() -> None:
    """Frequencies of two tokens in a row against their exact probabilities."""
    made, n = network(4, 1), 6_000
    decoder, draft = decoder_of(made), decoder_of(network(4, 7, n_layers=1))
    rule, rng = check_rule(1.0, None, 1.0, 4), np.random.default_rng(0)
    counts = np.zeros((4, 4))
    for _ in range(n):
        drawn, _ = sample_with_draft(decoder, draft, np.array([1]), 2, rule, rng)
        counts[drawn.ids[1], drawn.ids[2] if len(drawn.ids) > 2 else 0] += 1
    first = np.exp(log_softmax(after(made, np.array([3, 1]))))
    law = [np.exp(log_softmax(after(made, np.array([3, 1, x])))) for x in range(3)]
    law.append(np.eye(4)[0])  # behind the end of the text nothing is drawn
    expected = n * first[:, None] * np.array(law)
    some = expected > 0
    assert not counts[~some].any()
    chi = (((counts - expected) ** 2)[some] / expected[some]).sum()
    assert chi < 45  # 12 degrees of freedom: one in 100,000


# -- an n-gram model as the draft -----------------------------------------------------

TEXT = "Once upon a time there was a time that was once a thing of its own. " * 20


@pytest.fixture(scope="module")
def counted() -> NGramModel:
    return NGramModel(order=4).fit([TEXT, "Once more. " * 5])


def test_counts_propose_and_greedy_tokens_stay_the_same(counted: NGramModel) -> None:
    for context in (4, 16):
        model = WritingModel(size=0.3, context=context)
        for many in (1, 3, 7):
            words = {"draft": counted, "draft_tokens": many, "temperature": 0.0}
            made = model.generate("Once ", 40, **words)
            alone = model.generate("Once ", 40, temperature=0.0)
            np.testing.assert_array_equal(made.ids, alone.ids)
            np.testing.assert_array_equal(made.log_probs, alone.log_probs)


def test_recorded_distributions_of_counts_are_those_of_the_model(
    counted: NGramModel,
) -> None:
    """q is what the n-gram model says after the tokens before, also behind an end."""
    model = WritingModel(size=0.2)
    made = model.generate("Once upon a ", 60, draft=counted, random_state=0)
    draft = made.draft
    assert draft is not None and len(draft.tokens) > 20
    for i, place in enumerate(draft.places):
        before = made.ids[:place]
        np.testing.assert_allclose(
            draft.q[i], counted.next_probabilities(before), rtol=1e-12
        )
        p, q = draft.p[i], draft.q[i]
        assert distance(step_law(q, p, q), p) < 1e-12


def test_the_verifier_computes_the_distributions_of_counts_again(
    counted: NGramModel,
) -> None:
    end = counted.tokenizer_.special["<|end|>"]
    ids = counted.tokenizer_.encode("Once upon zebras, a time")
    stream = np.r_[end, ids[:9], end, ids[9:]]  # an end in the middle
    config, weights = CountedDraft(counted).config, CountedDraft(counted).weights
    found = scores_behind(counted_draft(config, weights), stream, 1)
    for t in range(1, len(stream)):
        own = counted.next_probabilities(stream[1:t])
        np.testing.assert_allclose(np.exp(found.x[t - 1]), own, rtol=1e-12)
    assert (found.off < 1e-12).all()


def test_the_verifier_replays_a_counted_draft(counted: NGramModel) -> None:
    model = WritingModel(size=0.3)
    for how in ({}, {"top_k": 20}, {"temperature": 0.7, "top_p": 0.9}):
        made = model.generate("Once", 40, draft=counted, random_state=2, **how)
        certificate = certus.certify(made)
        assert certificate["speculative_gap"].met, certificate
        assert certificate["replay"].met, certificate
        assert made.draft is not None
        q = np.roll(made.draft.q, 1, axis=1)
        forged = dataclasses.replace(made, draft=dataclasses.replace(made.draft, q=q))
        assert not certus.certify(forged)["speculative_gap"].met
        weights = {**made.draft.weights, "shares_": made.draft.weights["shares_"] / 2}
        other = dataclasses.replace(made.draft, weights=weights)
        told = certus.certify(dataclasses.replace(made, draft=other))
        assert not told["speculative_gap"].met


def test_a_counted_draft_must_have_the_same_tokens(counted: NGramModel) -> None:
    other = NGramModel(2, tokenizer=300).fit(TEXT)
    with pytest.raises(ValueError, match="draft must have the same tokens"):
        WritingModel().generate("a", draft=other)
