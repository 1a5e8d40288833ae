"""A fitted language model writes: draws, certificates and files, end to end."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

import certus
from certus.language import LanguageModel

pytestmark = pytest.mark.filterwarnings("ignore::certus.base.UncertifiedWarning")
TEXT = "the cat sat on the mat. a dog saw the cat and ran. " * 12


@pytest.fixture(scope="module")
def model() -> LanguageModel:
    words = {"n_layers": 1, "width": 32, "heads": 2, "context": 24, "max_iter": 40}
    return LanguageModel(**words, random_state=0).fit(TEXT)


@pytest.mark.catalog("TRF-17")
def test_sampled_frequencies_are_the_softmax(model: LanguageModel) -> None:
    """Chi-square of 4,000 draws against PyTorch's softmax of the same scores."""
    n, prompt = 4_000, "the c"
    drawn = model.generate_many([prompt] * n, 1, random_state=1)
    counts = np.bincount([int(one.generated[0]) for one in drawn], minlength=257)
    stream = torch.tensor([[model.tokenizer_.special["<|end|>"], *prompt.encode()]])
    with torch.no_grad():
        logits = model.network_(stream).output[0, -1].double()
    expected = n * torch.softmax(logits, 0).numpy()
    some = expected >= 5
    rest = expected[~some].sum(), counts[~some].sum()
    chi = ((counts - expected)[some] ** 2 / expected[some]).sum()
    chi += (rest[1] - rest[0]) ** 2 / max(rest[0], 1e-9)
    freedom = int(some.sum())
    assert chi < freedom + 5 * math.sqrt(2 * freedom) + 10
    # The test can fail: at temperature 1.5 the same draws have another law.
    hot = model.generate_many([prompt] * n, 1, temperature=1.5, random_state=1)
    counts = np.bincount([int(one.generated[0]) for one in hot], minlength=257)
    assert ((counts - expected)[some] ** 2 / expected[some]).sum() > 3 * chi


@pytest.mark.parametrize(
    "how", [{}, {"top_k": 5, "temperature": 0.7}, {"beam": 3}, {"temperature": 0}]
)
def test_generations_are_certified(model: LanguageModel, how: dict) -> None:
    made = model.generate("the ", 60, random_state=0, **how)
    assert certus.certify(made).met
    assert made.log_prob == pytest.approx(
        model.token_log_probs(made.ids)[made.prompt_length :].sum(), abs=1e-3
    )


def test_a_draft_is_certified(model: LanguageModel) -> None:
    words = {"n_layers": 1, "width": 16, "heads": 2, "context": 12, "max_iter": 30}
    draft = LanguageModel(**words, random_state=1).fit(TEXT)
    made = model.generate("a dog", 60, draft=draft, random_state=0)
    certificate = certus.certify(made)
    assert certificate["replay"].met and certificate["speculative_gap"].met


def test_a_file_has_the_bits_of_the_text(model: LanguageModel) -> None:
    file = model.compress(TEXT)
    assert model.decompress(file).decode() == TEXT
    bits = model.bits_per_byte(TEXT) * len(TEXT)
    assert 8 * (len(file) - 25) <= bits + 10
    assert len(file) < 0.6 * len(TEXT)


def test_a_saved_model_restores_the_text(model: LanguageModel, tmp_path) -> None:
    file = model.compress(TEXT[:50])
    certus.save(model, tmp_path / "model.certus")
    again = certus.load(tmp_path / "model.certus")
    assert again.decompress(file).decode() == TEXT[:50]
    same = [m.generate("the", 30, random_state=5).text for m in (model, again)]
    assert same[0] == same[1]


def test_pictures_show_each_token(model: LanguageModel) -> None:
    made = model.generate("<b>the", 30, random_state=0)
    page = made._repr_html_()
    assert page.count("<span") == len(made.generated) and "&lt;b&gt;the" in page
    assert made.plot().patches[3].get_height() == pytest.approx(made.bits[3])
