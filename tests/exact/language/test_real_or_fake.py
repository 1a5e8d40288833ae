"""Next words told from words that were drawn: the logit is log p(w | c)/(k q(w))."""

from __future__ import annotations

import numpy as np
import pytest

from certus.language import NGramModel
from certus.linear_model import LogisticRegression
from certus.text import noise_contrastive

TRAIN = "the cat sat on the mat; the dog ran after the cat. " * 30


@pytest.mark.catalog("LM-03")
@pytest.mark.parametrize("k", [1, 5])
def test_real_or_fake_words_have_the_logit_of_the_paper(k):
    """Logistic regression of true next words against k words drawn from q.

    With a coefficient for each word and every word in its exact share, the optimum has
    logit log p(w | c)/(k q(w)): it gives the model's probabilities back.
    """
    model = NGramModel(3).fit(TRAIN)
    p = model.next_probabilities(model.tokenizer_.encode("the "))
    q = model.next_probabilities(model.tokenizer_.encode(""))
    words = np.argsort(p)[-12:]
    p, q = p[words] / p[words].sum(), q[words] / q[words].sum()
    X = np.vstack([np.eye(12), np.eye(12)])
    y = np.repeat([1, 0], 12)
    shares = np.concatenate([p, k * q])
    fitted = LogisticRegression(C=np.inf, fit_intercept=False, tol=1e-9)
    fitted.fit(X, y, sample_weight=shares)
    assert fitted.certificate_.value < 1e-9
    logit = fitted.decision_function(np.eye(12))
    np.testing.assert_allclose(logit, np.log(p / (k * q)), atol=1e-5)
    np.testing.assert_allclose(k * q * np.exp(logit), p, rtol=1e-5)


@pytest.mark.catalog("LM-03")
def test_sampled_real_and_fake_words_recover_the_next_word():
    """The same from draws, by noise-contrastive estimation: p(w | c) up to noise."""
    rng = np.random.default_rng(0)
    model = NGramModel(3).fit(TRAIN)
    p = model.next_probabilities(model.tokenizer_.encode("the "))
    q = model.next_probabilities(model.tokenizer_.encode(""))
    words = np.argsort(p)[-4:]
    p, q = p[words] / p[words].sum(), q[words] / q[words].sum()
    real, fake = rng.choice(4, 20_000, p=p), rng.choice(4, 100_000, p=q)
    found = noise_contrastive(
        *(np.eye(4)[real], np.eye(4)[fake], np.log(q)[real], np.log(q)[fake]),
        fit_normaliser=False,
    )
    np.testing.assert_allclose(np.exp(found.coef), p, atol=0.02)
