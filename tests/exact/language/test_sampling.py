"""Replayed draws: an independent sampler is confirmed, a faulty one is found."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.helpers.language import SmallModel

from certus.verify.language import attention, models, sampling
from certus.verify.language.sampling import How, Proposals

PROMPT = list(b"Once ")
HOWS = [
    How(),
    How(0.7),
    How(1.3, 5),
    How(1.0, 0, 0.8),
    How(0.9, 40, 0.9),
    How(0.0),
    How(1.0, 1),
]


def reader(model: SmallModel) -> attention.PlainNetwork:
    return models.reader(models._language_model(model))


def law(logits: np.ndarray, how: How) -> np.ndarray:
    """The stated law, written from its definition."""
    if how.temperature == 0:
        return (np.arange(len(logits)) == logits.argmax()).astype(float)
    p = np.exp((logits - logits.max()) / how.temperature)
    p /= p.sum()
    if how.top_k:
        p[np.argsort(-p, kind="stable")[how.top_k :]] = 0
        p /= p.sum()
    order = np.argsort(-p, kind="stable")
    before = np.cumsum(p[order]) - p[order]
    p[order[before >= how.top_p]] = 0
    return p / p.sum()


def next_law(model: SmallModel, stream: list[int], how: How) -> np.ndarray:
    t, context = len(stream), model.config_["context"]
    half = context // 2
    start = 0 if t <= context else -(-(t - context) // half) * half
    return law(model.after(np.array(stream[start:]))[-1], how)


def drawn(model: SmallModel, n: int, how: How, seed: int = 0) -> tuple[Any, Any]:
    """Tokens and their uniform numbers."""
    rng = np.random.default_rng(seed)
    stream, uniforms = [model.end, *PROMPT], rng.random(n)
    for u in uniforms:
        total = np.cumsum(next_law(model, stream, how))
        stream.append(int(np.searchsorted(total, u * total[-1], side="right")))
    return np.array(stream), uniforms


@pytest.mark.parametrize("how", HOWS, ids=str)
def test_draws_are_replayed(how: How) -> None:
    model = SmallModel()
    stream, uniforms = drawn(model, 40, how)  # longer than the context of 16
    claim = sampling.replay_claim(reader(model), stream, 6, uniforms, how)
    assert claim.met and claim.value < 1e-6, claim.detail


@pytest.mark.parametrize("how", [How(0.8), How(1.0, 4), How(1.0, 0, 0.7)], ids=str)
def test_another_sampler_is_found(how: How) -> None:
    model = SmallModel()
    stream, uniforms = drawn(model, 40, How())
    claim = sampling.replay_claim(reader(model), stream, 6, uniforms, how)
    assert claim.met is False and claim.value > 0.01


def test_a_temperature_that_is_a_little_off() -> None:
    model = SmallModel()
    stream, uniforms = drawn(model, 200, How(1.02))
    claim = sampling.replay_claim(reader(model), stream, 6, uniforms, How(1.0))
    assert claim.met is False


def test_a_greedy_text_of_another_network() -> None:
    stream, uniforms = drawn(SmallModel(seed=1), 30, How(0.0))
    read = reader(SmallModel())
    assert sampling.replay_claim(read, stream, 6, uniforms, How(0.0)).value >= 1.0


@pytest.mark.parametrize("bad", [[], [0.5], [np.nan] * 4, [1.0] * 4, [-0.1] * 4])
def test_impossible_records_are_refused(bad: list[float]) -> None:
    model = SmallModel()
    stream = drawn(model, 4, How())[0]
    claim = sampling.replay_claim(reader(model), stream, 6, np.array(bad), How())
    assert claim.met is False


def test_equal_candidates_are_counted_and_allowed() -> None:
    S = np.array([0.0, 1.0, 1.0, 1.0 + 1e-6, -9.0])
    assert len(sampling.laws(S, How(1.0, 2))) == 3  # any two of three
    for p in sampling.laws(S, How(1.0, 2)):
        assert (p > 0).sum() == 2 and np.isclose(p.sum(), 1)
    assert len(sampling.laws(S, How(0.0))) == 3
    assert len(sampling.laws(np.array([0.0, 1.0, 3.0]), How(1.0, 2))) == 1
    half = np.log(np.array([0.5, 0.25, 0.25]))
    sizes = {int((p > 0).sum()) for p in sampling.laws(half, How(1.0, 0, 0.5))}
    assert sizes == {1, 2}


def test_a_cache_that_was_not_emptied() -> None:
    model = SmallModel()
    stream, _ = drawn(model, 30, How())
    said = model.token_log_probs(stream[1:])[5:]
    assert sampling.cache_claim(reader(model), stream, 6, said).met
    said[-1] += 0.01
    assert sampling.cache_claim(reader(model), stream, 6, said).met is False
    assert sampling.cache_claim(reader(model), stream, 6, said[1:]).met is False


# -- speculative steps ----------------------------------------------------------------


def test_the_distribution_of_a_step_is_that_of_the_target() -> None:
    rng = np.random.default_rng(0)
    for _ in range(20):
        p, q = rng.dirichlet(np.full(30, 0.3), 2)
        assert sampling.distance(sampling.step_law(q, p, q), p) < 1e-14


def test_the_distribution_of_a_step_by_drawing() -> None:
    """A simulated sampler has the law that the formula gives, right or wrong."""
    rng = np.random.default_rng(0)
    p, raw = rng.dirichlet(np.ones(4), 2)
    q = np.where(raw >= np.sort(raw)[-2], raw, 0)
    q /= q.sum()
    count = np.zeros(4)
    for _ in range(40_000):
        x = rng.choice(4, p=q)
        if rng.random() >= p[x] / raw[x]:
            rest = np.maximum(p - raw, 0)
            x = rng.choice(4, p=rest / rest.sum())
        count[x] += 1
    stated = sampling.step_law(q, p, raw)
    assert np.abs(count / 40_000 - stated).max() < 0.012
    assert sampling.distance(stated, p) > 0.05  # not what it should be


def speculated(how: How, raw: bool = False, n: int = 40) -> Any:
    """A target, a draft, the text, its numbers, where tokens come from, proposals."""
    model, small = SmallModel(), SmallModel(seed=2, n_layers=1)
    rng = np.random.default_rng(3)
    stream, tried, numbers, source = [model.end, *PROMPT], [], [], []

    def by(p: np.ndarray, u: float) -> int:
        total = np.cumsum(p)
        return int(np.searchsorted(total, u * total[-1], side="right"))

    while len(stream) < n:
        p, q = (next_law(each, stream, how) for each in (model, small))
        used = next_law(small, stream, How()) if raw else q
        u, decide, again = rng.random(3)
        x = by(q, u)
        accepted = bool(decide * used[x] < p[x])
        tried.append((len(stream), x, used, p, u, decide, accepted))
        numbers.append(u if accepted else again)
        source.append(1 if accepted else 2)
        if not accepted:
            rest = np.maximum(p - used, 0)
            x = by(rest / rest.sum(), again)
        stream.append(x)
    made = Proposals(*(np.array(part) for part in zip(*tried)))
    reads = reader(model), reader(small)
    return *reads, np.array(stream), made, np.array(numbers), np.array(source)


@pytest.mark.parametrize("how", [How(), How(0.8, 10)], ids=str)
def test_a_right_draft_is_confirmed(how: How) -> None:
    read, draft, stream, made, numbers, source = speculated(how)
    claim = sampling.speculative_claim(read, draft, stream, made, how)
    assert claim.met and claim.value < 1e-6
    assert 0 < made.accepted.sum() < len(made.accepted)
    again = sampling.replay_claim(read, stream, 6, numbers, how, source, made)
    assert again.met and again.value < 1e-6


def test_a_draft_with_the_raw_q() -> None:
    """Proposals come from the ten best tokens, acceptance looks at all of them."""
    how = How(1.0, 10)
    read, draft, stream, made, *_ = speculated(how, raw=True)
    claim = sampling.speculative_claim(read, draft, stream, made, how)
    assert claim.met is False and 0.01 < claim.value < 1


def test_forged_proposals() -> None:
    read, draft, stream, made, numbers, source = speculated(How())

    def judged(**changed: Any) -> Any:
        given = made._replace(**changed)
        return sampling.speculative_claim(read, draft, stream, given, How()).met

    assert judged()
    flipped = made.accepted.copy()
    flipped[0] = not flipped[0]
    assert judged(accepted=flipped) is False
    assert judged(drawn_by=(made.drawn_by + 0.5) % 1) is False
    assert judged(token=np.roll(made.token, 1)) is False
    assert judged(q=made.q[:, :-1]) is False
    assert judged(place=made.place + 1000) is False
    claim = sampling.replay_claim(
        read, stream, 6, (numbers + 0.5) % 1, How(), source, made
    )
    assert claim.met is False
