"""Prompts and answers as tokens: places, padding, cutting, and probabilities."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from certus.language import LanguageModel  # noqa: E402
from certus.language.tuning.answers import (  # noqa: E402
    AnswerPairs,
    answer_log_probs,
    encode_pairs,
    require_fitting,
)

PROMPTS = ["the cat", "", "why do they sit? "]
ANSWERS = [" sat on it.", "the mat", "no"]


@pytest.fixture(scope="module")
def base() -> LanguageModel:
    return LanguageModel(
        n_layers=1, width=16, heads=2, context=24, max_iter=10, random_state=0
    ).fit("the cat sat on the mat. " * 30)


def pairs_of(base: Any, prompts: Any = PROMPTS, answers: Any = ANSWERS) -> AnswerPairs:
    return encode_pairs(base.tokenizer_, prompts, answers, base.config_["context"])


def test_probabilities_are_those_of_the_chain_rule(base: LanguageModel) -> None:
    """An independent way: the model's own log p of each token behind the prompt."""
    with torch.no_grad():
        found = answer_log_probs(base.network_, pairs_of(base).fetch([0, 1, 2]))
    end = base.tokenizer_.special["<|end|>"]
    for value, x, y in zip(found.tolist(), PROMPTS, ANSWERS):
        ids = np.append(base.tokenizer_.encode(x + y), end)
        wanted = base.token_log_probs(ids)[len(x) :].sum()
        assert value == pytest.approx(wanted, rel=1e-5)


def test_padding_and_neighbours_change_nothing(base: LanguageModel) -> None:
    pairs = pairs_of(base)
    with torch.no_grad():
        together = answer_log_probs(base.network_, pairs.fetch([0, 1, 2]))
        alone = [answer_log_probs(base.network_, pairs.fetch([i])) for i in range(3)]
    torch.testing.assert_close(together, torch.cat(alone))


def test_the_mask_has_the_answer_and_its_end(base: LanguageModel) -> None:
    batch = pairs_of(base).fetch([2, 1])
    for row, i in enumerate((2, 1)):
        wanted = batch.y[row][batch.extra[row]].numpy()
        end = base.tokenizer_.special["<|end|>"]
        assert wanted[-1] == end
        assert base.tokenizer_.decode(wanted[:-1]) == ANSWERS[i]
    assert batch.s.tolist() == [len(ANSWERS[2]) + 1, len(ANSWERS[1]) + 1]


def test_a_long_prompt_loses_its_beginning(base: LanguageModel) -> None:
    long, answer = "x" * 40 + "the last words", " here"
    pairs = pairs_of(base, [long, "short"], [answer, answer])
    assert pairs.cut.tolist() == [True, False]
    stream = pairs.streams[0]
    assert len(stream) == 24 + 1
    assert base.tokenizer_.decode(stream[:-1]) == (long + answer)[-24:]
    with pytest.raises(ValueError, match="1 longer pairs, the first in row 0"):
        require_fitting(pairs, 24)


def test_an_answer_that_ran_into_a_limit_has_no_end() -> None:
    tokens = [np.array([1, 2]), np.array([3])]
    pairs = AnswerPairs(tokens, tokens, end=0, context=9, ended=[False, True])
    assert [s.tolist() for s in pairs.streams] == [[0, 1, 2, 1, 2], [0, 3, 3, 0]]
    assert pairs.fetch([0, 1]).s.tolist() == [2.0, 2.0]


def test_an_answer_must_fit(base: LanguageModel) -> None:
    pairs_of(base, [""], ["y" * 23])  # and the end behind it
    with pytest.raises(ValueError, match="fit into the context of 24 tokens"):
        pairs_of(base, [""], ["y" * 24])


@pytest.mark.parametrize(
    ("prompts", "answers", "message"),
    [
        ("a prompt", ["a"], "prompts must be a list of texts, got str"),
        (["a"], None, "answers must be a list of texts, got NoneType"),
        (["a"], [3], "answers must hold texts, got int in row 0"),
        (["a", None], ["b", "c"], "prompts must hold texts, got NoneType in row 1"),
        (["a", "b"], ["c"], "must have the same length, got 2 and 1"),
        ([], [], "prompts must hold at least one text"),
        (["a", "b"], ["c", ""], "must not be empty texts, got 1 of them, the first in"),
    ],
)
def test_objects_that_are_not_lists_of_pairs_are_refused(
    base: LanguageModel, prompts: Any, answers: Any, message: str
) -> None:
    with pytest.raises((TypeError, ValueError), match=message):
        pairs_of(base, prompts, answers)
