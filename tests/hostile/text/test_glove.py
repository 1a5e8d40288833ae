"""GloVe under forged vectors, odd counts, divergence and Ctrl-C."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy import sparse

import certus
from certus.base import UncertifiedWarning
from certus.certificate import Status
from certus.text import GloVe, glove

TEXTS = [f"the {a} {b} the {c}" for a in "abc" for b in "defg" for c in "hijk"]


def fitted() -> GloVe:
    model = GloVe(2, solver="als", max_iter=2000, tol=1e-8, random_state=0)
    return model.fit(TEXTS)


@pytest.mark.parametrize(
    "name",
    [
        "word_factors_",
        "context_factors_",
        "word_biases_",
        "context_biases_",
        "vectors_",
    ],
)
def test_forged_numbers_are_refuted(name: str) -> None:
    model = fitted()
    assert certus.certify(model, TEXTS).met
    array = getattr(model, name)
    array[0] += 0.1
    assert certus.certify(model, TEXTS).status is Status.REFUTED
    assert certus.certify(model, TEXTS, level="full").status is Status.REFUTED


def test_words_in_another_order_are_refuted() -> None:
    model = fitted()
    model.vocabulary_ = [*model.vocabulary_[1:], model.vocabulary_[0]]
    assert certus.certify(model, TEXTS).met is False


def test_other_texts_are_reported_as_other() -> None:
    found = certus.certify(fitted(), TEXTS[:20])
    assert (
        found.met is False and "not those of the fit" in found.claims[0].assumptions[0]
    )


def test_wrong_counts_at_the_fit_are_noticed(monkeypatch: Any) -> None:
    def wrong(*args: Any, **kwargs: Any) -> Any:
        matrix = honest(*args, **kwargs)
        matrix.data[0] += 1
        return matrix

    honest = glove.count_pairs
    monkeypatch.setattr(glove, "count_pairs", wrong)
    with pytest.warns(UncertifiedWarning, match="not agree with the documents"):
        fitted()


def test_steps_that_diverge_leave_finite_vectors() -> None:
    model = GloVe(2, adaptive=False, learning_rate=1e3, random_state=0)
    with pytest.warns(UncertifiedWarning, match="lower learning_rate"):
        model.fit(TEXTS)
    assert model.certificate_.status is Status.DIVERGED
    assert np.isfinite(model.vectors_).all()


def test_ctrl_c_and_time_leave_a_fitted_model(monkeypatch: Any) -> None:
    class Impatient(glove.Descent):
        def step(self) -> None:
            if self.done == 2:
                raise KeyboardInterrupt
            super().step()

    model = GloVe(2, random_state=0, max_time=0.0)
    with pytest.warns(UncertifiedWarning, match="stopped at max_time"):
        assert model.fit(TEXTS).certificate_.status is Status.TIME_LIMIT
    monkeypatch.setattr(glove, "Descent", Impatient)
    model = GloVe(2, random_state=0)
    with pytest.raises(KeyboardInterrupt):
        model.fit(TEXTS)
    assert model.n_iter_ == 2 and model.certificate_.status is Status.INTERRUPTED
    with certus.config_context(on_interrupt="return"):
        assert model.fit(TEXTS).most_similar("the")


@pytest.mark.parametrize(
    ("matrix", "says"),
    [
        (np.zeros((3, 3)), "all zero"),
        (-np.eye(3), "not negative"),
        (np.full((2, 2), np.nan), "finite"),
        (np.full((2, 2), np.inf), "finite"),
    ],
)
def test_invalid_counts_are_refused(matrix: Any, says: str) -> None:
    for form in (np.asarray, sparse.csr_matrix, sparse.coo_array):
        with pytest.raises(ValueError, match=says):
            GloVe(2).fit_counts(form(matrix))


def test_vocabularies_that_do_not_fit() -> None:
    for vocabulary in (["a"], ["a", "a"], ["a", "b", "c"]):
        with pytest.raises(ValueError, match="each of the 2 rows exactly once"):
            GloVe(2).fit_counts(np.ones((2, 2)), vocabulary)


def test_corpora_without_pairs_of_words() -> None:
    with pytest.raises(ValueError, match="No two words occur together"):
        GloVe(2, min_count=1).fit(["one", "two", ""])
    with pytest.raises(ValueError, match="rarer than min_count=5"):
        GloVe(2).fit(["one two"])
    with pytest.raises(ValueError, match="all of them are empty"):
        GloVe(2).fit(["", []])


def test_a_corpus_of_one_word() -> None:
    model = GloVe(3, solver="als", random_state=0).fit([["word"] * 10])
    assert model.vocabulary_ == ["word"] and model.most_similar("word") == []
    assert model.history_["objective"][-1] == pytest.approx(0, abs=1e-10)


def test_more_components_than_words_and_huge_counts() -> None:
    for solver in ("als", "sgd"):
        for scale in (1e-12, 1.0, 1e12):
            n = scale * np.random.default_rng(0).uniform(1, 2, (4, 4))
            with certus.config_context(on_uncertified="ignore"):
                model = GloVe(20, solver=solver, random_state=0, max_iter=100)
                model.fit_counts(n)
            assert np.isfinite(model.vectors_).all()
            if solver == "als" and scale == 1e12:
                assert model.history_["objective"][-1] < 1e-6


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("n_components", 0), ("x_max", 0.0), ("alpha", -1.0), ("solver", "adam")),
        *(("learning_rate", 0), ("max_iter", 0), ("tol", -1.0), ("window", 0)),
        *(("context", "line"), ("weighting", "linear"), ("min_count", 0)),
    ],
)
def test_parameters_are_checked(name: str, value: Any) -> None:
    with pytest.raises((ValueError, TypeError), match=name):
        GloVe(**{name: value}).fit(TEXTS)
