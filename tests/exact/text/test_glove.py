"""GloVe: its objective, its weights, and two solvers that agree."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse

import certus
from certus.base import thread_pools
from certus.certificate import Status, Strength
from certus.text import Cooccurrence, GloVe, glove_weights

NAMES = ("word_factors_", "context_factors_", "word_biases_", "context_biases_")


def counts(n: int = 30, rank: int = 3, seed: int = 0, share: float = 0.6) -> Any:
    """Symmetric counts whose logarithms have nearly this rank."""
    rng = np.random.default_rng(seed)
    A = rng.normal(size=(n, rank)) / np.sqrt(rank)
    logs = 2 + A @ A.T + 0.2 * rng.normal(size=(n, n))
    seen = rng.random((n, n)) < share
    return sparse.csr_matrix(np.exp(logs + logs.T) * (seen | seen.T))


def objective(model: GloVe, n: Any) -> float:
    """The stated sum, entry by entry."""
    total = 0.0
    for i, j in zip(*n.nonzero()):
        value = n[i, j]
        f = min(1.0, (value / model.x_max) ** model.weight_power)
        z = model.word_factors_[i] @ model.context_factors_[j]
        e = z + model.word_biases_[i] + model.context_biases_[j] - np.log(value)
        total += 0.5 * f * e * e
    return total


# -- weights ----------------------------------------------------------------------


@pytest.mark.catalog("TXT-05")
@given(
    st.lists(st.floats(0, 1e9), min_size=2).map(sorted),
    st.floats(1e-3, 1e6),
    st.floats(0, 3),
)
def test_weights_rise_from_zero_to_one(n: Any, x_max: float, alpha: float) -> None:
    f = glove_weights(n, x_max, alpha)
    assert np.all(np.diff(f) >= 0) and np.all((f >= 0) & (f <= 1))
    assert glove_weights(x_max, x_max, alpha) == 1.0
    assert glove_weights(0.0, x_max, alpha) == 0.0
    assert glove_weights(10 * x_max, x_max, alpha) == 1.0


# -- the objective ----------------------------------------------------------------


@pytest.mark.catalog("TXT-04")
@pytest.mark.parametrize("biases", [True, False])
@pytest.mark.parametrize("solver", ["sgd", "als"])
def test_the_history_is_the_stated_objective(solver: str, biases: bool) -> None:
    n = counts()
    for epochs in (1, 2, 5):
        model = GloVe(
            3, solver=solver, biases=biases, max_iter=epochs, tol=0.0, random_state=0
        )
        with certus.config_context(on_uncertified="ignore"):
            model.fit_counts(n)
        found = model.history_["objective"]
        assert len(found) == epochs == model.n_iter_
        assert found[-1] == pytest.approx(objective(model, n), rel=1e-11)
        stated = model.certificate_["objective"]
        assert stated.value == pytest.approx(found[-1], rel=1e-11)
        assert stated.strength is Strength.MEASURED
        if not biases:
            assert not model.word_biases_.any() and not model.context_biases_.any()


@pytest.mark.catalog("TXT-04")
@pytest.mark.parametrize("adaptive", [True, False])
def test_a_step_follows_the_slope_found_by_differences(adaptive: bool) -> None:
    """One entry, one step: every number moves against its finite difference."""
    n = sparse.csr_matrix(([7.0], ([0], [0])), shape=(1, 1))
    model = GloVe(2, max_iter=1, x_max=10, random_state=0, tol=0.0, learning_rate=1e-3)
    model.set_params(adaptive=adaptive)
    start = GloVe(2, max_iter=1, x_max=10, random_state=0, learning_rate=1e-300)
    start.fit_counts(n)  # steps of no size: where the fit begins
    model.fit_counts(n)
    for name in (
        "word_factors_",
        "context_factors_",
        "word_biases_",
        "context_biases_",
    ):
        before = getattr(start, name)
        for at in np.ndindex(before.shape):
            old = before[at]
            before[at] = old + 1e-6
            up = objective(start, n)
            before[at] = old - 1e-6
            slope = (up - objective(start, n)) / 2e-6
            before[at] = old
            moved = getattr(model, name)[at] - old
            assert moved == pytest.approx(-1e-3 * slope, rel=1e-5)


@pytest.mark.catalog("TXT-04")
def test_equal_weights_are_plain_matrix_factorisation() -> None:
    """Every pair seen, weights one, no biases: the singular values tell the minimum."""
    rng = np.random.default_rng(1)
    logs = rng.normal(size=(12, 9))
    model = GloVe(
        4,
        weight_power=0.0,
        biases=False,
        solver="als",
        tol=1e-13,
        max_iter=3000,
        random_state=0,
    )
    model.fit_counts(np.exp(logs))
    left = np.linalg.svd(logs, compute_uv=False)[4:]
    assert model.history_["objective"][-1] == pytest.approx(0.5 * left @ left, rel=1e-9)
    u, s, vt = np.linalg.svd(logs)
    best = (u[:, :4] * s[:4]) @ vt[:4]
    product = model.word_factors_ @ model.context_factors_.T
    np.testing.assert_allclose(product, best, atol=1e-4)
    assert model.vectors_.shape == (12, 4)


# -- the solvers ------------------------------------------------------------------


@pytest.mark.catalog("TXT-06")
@pytest.mark.parametrize("adaptive", [True, False])
def test_both_solvers_reach_the_same_objective(adaptive: bool) -> None:
    n = counts()
    shared: dict[str, Any] = {"n_components": 3, "x_max": 50, "random_state": 0}
    exact = GloVe(solver="als", max_iter=2000, tol=1e-10, **shared).fit_counts(n)
    rate = 0.5 if adaptive else 0.05
    steps = GloVe(
        max_iter=4000, tol=0.0, learning_rate=rate, adaptive=adaptive, **shared
    )
    steps.fit_counts(n)
    reached = exact.history_["objective"][-1]
    assert steps.history_["objective"][-1] == pytest.approx(reached, rel=2e-3)
    assert steps.history_["objective"][-1] >= reached * (1 - 1e-6)
    assert exact.certificate_.met and exact.certificate_.status is Status.SOLVED
    falls = np.diff(exact.history_["objective"])
    assert np.all(falls <= 1e-10 * reached)


@pytest.mark.catalog("TXT-06")
def test_no_general_minimiser_does_better_nearby() -> None:
    n = counts(10, 2)
    model = GloVe(2, solver="als", max_iter=5000, tol=1e-13, x_max=50, random_state=0)
    model.fit_counts(n)
    rows, columns = n.nonzero()
    x, f = np.log(n.data), glove_weights(n.data, 50)

    def value(p: Any) -> float:
        W, Z, b, c = p[:20].reshape(10, 2), p[20:40].reshape(10, 2), p[40:50], p[50:]
        e = np.sum(W[rows] * Z[columns], axis=1) + b[rows] + c[columns] - x
        return 0.5 * float(f @ e**2)

    p = np.concatenate([getattr(model, name).ravel() for name in NAMES])
    rng = np.random.default_rng(0)
    assert value(p) == pytest.approx(model.history_["objective"][-1], rel=1e-12)
    for size in (1e-4, 1e-3, 1e-2):
        for _ in range(50):
            assert value(p + size * rng.normal(size=p.shape)) > value(p) * (1 - 1e-9)


@pytest.mark.catalog("TXT-06")
@pytest.mark.parametrize("solver", ["sgd", "als"])
def test_synonyms_get_the_nearest_vectors(solver: str) -> None:
    """Twelve meanings, two words for each: a text takes one of them at random."""
    rng = np.random.default_rng(0)
    company = rng.dirichlet(np.full(60, 0.3), size=12)
    texts = []
    for _ in range(4000):
        meaning = rng.integers(12)
        words = [f"c{j}" for j in rng.choice(60, 8, p=company[meaning])]
        words.insert(4, f"{'xy'[rng.integers(2)]}{meaning}")
        texts.append(words)
    model = GloVe(8, solver=solver, x_max=20, random_state=0).fit(texts)
    for meaning in range(12):
        assert model.most_similar(f"x{meaning}", n=1)[0][0] == f"y{meaning}"
        assert model.most_similar(f"y{meaning}", n=1)[0][0] == f"x{meaning}"


@pytest.mark.parametrize("solver", ["sgd", "als"])
def test_threads_change_nothing(solver: str, monkeypatch: Any) -> None:
    from certus.text import glove_solvers

    monkeypatch.setattr(glove_solvers, "FEW", 10)  # many stripes even here
    n = counts(60)
    model = GloVe(4, solver=solver, max_iter=4, tol=0.0, random_state=3)
    with certus.config_context(on_uncertified="ignore"):
        here = model.fit_counts(n).vectors_
        with thread_pools().limit(limits=1):
            alone = model.fit_counts(n).vectors_
    np.testing.assert_array_equal(here, alone)


def test_texts_and_their_counts_give_one_model() -> None:
    texts = ["the cat drinks milk", "the dog drinks cold water"] * 10
    pairs = Cooccurrence("window", window=10, weighting="harmonic").fit(texts)
    model = GloVe(2, solver="als", random_state=0).fit(texts)
    same = GloVe(2, solver="als", random_state=0)
    same.fit_counts(pairs.matrix_, pairs.vocabulary_)
    np.testing.assert_array_equal(model.vectors_, same.vectors_)
    assert model.vocabulary_ == same.vocabulary_
    assert model.counts_.sum() == 90 and not hasattr(same, "counts_")
    assert model.transform(texts, weights="idf").shape == (20, 2)


def test_a_warm_start_goes_on() -> None:
    n = counts()
    model = GloVe(3, max_iter=5, tol=0.0, warm_start=True, random_state=0).fit_counts(n)
    first = model.history_["objective"][-1]
    assert model.fit_counts(n).history_["objective"][0] < first
    model.set_params(n_components=2).fit_counts(n)  # other shapes begin anew
    assert model.vectors_.shape[1] == 2


# -- the verifier -----------------------------------------------------------------


@pytest.mark.parametrize("level", ["quick", "full"])
def test_the_gain_is_that_of_an_exact_round(level: str) -> None:
    n = counts()
    with certus.config_context(on_uncertified="ignore"):
        model = GloVe(3, solver="als", max_iter=2, tol=1e-9, random_state=0).fit_counts(
            n
        )
    found = certus.certify(model, n, level=level)
    assert found.primary == "half_step_gain" and found.met is False
    # All rows of words solved, by least squares of NumPy's.
    Y = np.column_stack([model.context_factors_, np.ones(30)])
    gain, logs = 0.0, []
    for i in range(30):
        j = n[i].indices
        f, x = glove_weights(n[i].data), np.log(n[i].data)
        e = x - Y[j] @ [*model.word_factors_[i], model.word_biases_[i]]
        e -= model.context_biases_[j]
        root = np.sqrt(f)
        move = np.linalg.lstsq(Y[j] * root[:, None], root * e, rcond=None)[0]
        gain += 0.5 * float(f @ e**2 - f @ (e - Y[j] @ move) ** 2)
        logs += [(a, b) for a, b in zip(f, x)]
    f, x = np.array(logs).T
    constant = 0.5 * float(f @ (x - f @ x / f.sum()) ** 2)
    assert found.value == pytest.approx(gain / constant, rel=1e-6)
