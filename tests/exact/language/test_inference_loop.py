"""The inference loop: draws follow the network's probabilities, step by step."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from scipy import stats  # noqa: E402

from certus.language import LanguageModel  # noqa: E402
from helpers.letters import Letters, markov_text  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore::certus.base.UncertifiedWarning")

P = np.array([[0.1, 0.8, 0.1], [0.2, 0.1, 0.7], [0.6, 0.3, 0.1]])
TINY = {"n_layers": 1, "width": 16, "heads": 2, "batch_size": 8, "random_state": 0}


@pytest.fixture(scope="module")
def short():
    """A model of short documents: after five letters or so comes the end."""
    texts = [markov_text(P, n, seed=n) for n in (3, 4, 5, 6) for _ in range(30)]
    return LanguageModel(Letters(), context=8, max_iter=150, **TINY).fit(texts)


@pytest.mark.catalog("TRF-17", "LM-04")
def test_frequencies_of_drawn_tokens_match_the_softmax(short):
    drawn = short.generate_many(["ab"] * 4000, 1, random_state=0)
    first = [g.generated[0] if len(g.generated) else g.end for g in drawn]
    seen = np.bincount(first, minlength=4)
    p = short.next_probabilities(short.tokenizer_.encode("ab"))
    assert stats.chisquare(seen, 4000 * p).pvalue > 1e-3
    # The test can fail: the shares of other tokens are found to be others.
    assert stats.chisquare(seen, 4000 * np.roll(p, 1)).pvalue < 1e-6


@pytest.mark.catalog("TRF-19")
@pytest.mark.parametrize("prompt", ["", "a", "ab", "abcab", "cab"])
def test_greedy_decoding_is_the_argmax_of_each_step_until_the_end(short, prompt):
    found = short.generate(prompt, 40, temperature=0.0)
    ids, end = list(short.tokenizer_.encode(prompt)), found.end
    for _ in range(40):
        best = int(short.next_probabilities(np.array(ids, int)).argmax())
        ids.append(best)
        if best == end:
            break
    wanted = [i for i in ids[len(prompt) :] if i != end]
    assert [i for i in found.generated if i != end] == wanted
    assert found.finished == (ids[-1] == end)


@pytest.mark.catalog("TRF-19")
def test_the_length_is_not_fixed(short):
    drawn = short.generate_many(["a"] * 200, 60, random_state=1)
    lengths = {len(g.data) for g in drawn if g.finished}
    assert len(lengths) > 3
    assert sum(g.finished for g in drawn) > 150


@pytest.mark.catalog("LM-04")
def test_the_loop_is_tokenise_forward_draw_detokenise(short):
    found = short.generate("ab", 12, random_state=7)
    ids = short.tokenizer_.encode("ab")
    np.testing.assert_array_equal(found.ids[:2], ids)
    for i, u in enumerate(found.uniforms):
        sums = np.cumsum(short.next_probabilities(found.ids[: 2 + i]))
        token = int(found.ids[2 + i]) if 2 + i < len(found.ids) else found.end
        low = sums[token - 1] if token else 0.0
        assert low - 1e-5 <= u <= sums[token] + 1e-5
    kept = [i for i in found.generated if i != found.end]
    assert short.tokenizer_.decode(kept) == found.text
    assert short.generate("ab", 12, random_state=7).text == found.text
    texts = {short.generate("ab", 12, random_state=s).text for s in range(8)}
    assert len(texts) > 1
