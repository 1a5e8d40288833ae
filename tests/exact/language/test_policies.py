"""The best policy and the distance to it: closed forms, bounds, and planted faults."""

import math

import mpmath
import numpy as np
import pytest

torch = pytest.importorskip("torch")

import certus  # noqa: E402
from certus.certificate import Strength  # noqa: E402
from certus.language import LanguageModel, optimal_policy, policy_gap  # noqa: E402
from certus.language.tuning.policy_losses import PreferenceLoss, Preferences  # noqa: E402
from certus.verify.language.policies import (  # noqa: E402
    Asked,
    Units,
    drawn_claims,
    excess,
    gap_claim,
)
from certus.verify.language.policy_draws import (  # noqa: E402
    Duel,
    draw,
    floored,
    next_laws,
    upper_mean,
)


def laws(seed, *shape):
    rng = np.random.default_rng(seed)
    z = np.exp(2 * rng.normal(size=shape))
    return z / z.sum(axis=-1, keepdims=True)


# -- closed forms ---------------------------------------------------------------------


@pytest.mark.catalog("LM-20")
@pytest.mark.parametrize("beta", [0.05, 0.3, 2.0])
def test_no_policy_beats_the_closed_form(beta):
    q, r = laws(0, 3, 7), np.random.default_rng(1).normal(size=(3, 7))
    best = optimal_policy(q, r, beta)
    np.testing.assert_allclose(
        best.value, beta * np.log((q * np.exp(r / beta)).sum(axis=1)), rtol=1e-12
    )

    def J(p):
        return (p * (r - beta * np.log(p / q))).sum(axis=1)

    np.testing.assert_allclose(J(best.probabilities), best.value, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(
        best.kl, (best.probabilities * np.log(best.probabilities / q)).sum(axis=1)
    )
    for seed in range(50):  # far and near
        other = laws(seed, 3, 7)
        mixed = 0.99 * best.probabilities + 0.01 * other
        assert (J(other) < best.value).all() and (J(mixed) < best.value).all()


@pytest.mark.catalog("LM-20")
def test_a_zero_and_an_infinite_penalty_on_divergence_are_the_limits():
    q, r = np.array([0.5, 0.2, 0.3, 0.0]), np.array([1.0, 2.0, 2.0, 9.0])
    free, dear = optimal_policy(q, r, 0), optimal_policy(q, r, math.inf)
    np.testing.assert_allclose(free.probabilities, [0.0, 0.4, 0.6, 0.0])
    assert free.value == 2.0 and dear.value == pytest.approx(1.5)
    np.testing.assert_allclose(dear.probabilities, q)
    np.testing.assert_allclose(
        optimal_policy(q, r, 1e-3).probabilities, free.probabilities, atol=1e-12
    )
    np.testing.assert_allclose(optimal_policy(q, r, 1e9).probabilities, q, atol=1e-8)


def many_digits(p, q, r, beta):
    with mpmath.workdps(60):
        p, q, r = ([mpmath.mpf(float(x)) for x in row] for row in (p, q, r))
        p, q = ([x / sum(row) for x in row] for row in (p, q))
        b = mpmath.mpf(beta)
        Z = sum(y * mpmath.exp(z / b) for y, z in zip(q, r))
        J = sum(x * (z - b * mpmath.log(x / y)) for x, y, z in zip(p, q, r) if x)
        return b * mpmath.log(Z) - J


@pytest.mark.parametrize("beta", [0.01, 0.2, 5.0])
@pytest.mark.parametrize("far", [1.0, 1e-4, 0.0])
def test_the_gap_is_proved_with_all_its_rounding(beta, far):
    q, r = laws(3, 400), 10 * np.random.default_rng(4).normal(size=400)
    p = optimal_policy(q, r, beta).probabilities
    p = (1 - far) * p + far * laws(5, 400)
    p /= p.sum()
    claim = policy_gap(p, q, r, beta)["gap_to_optimal_policy"]
    true = many_digits(p, q, r, beta)
    assert claim.strength is Strength.PROVED
    assert true <= claim.value <= true + 2 * claim.allowance
    assert claim.allowance < 1e-9


def test_the_gap_is_the_divergence_from_the_best_policy():
    p, q, r = laws(0, 4, 9), laws(1, 4, 9), np.random.default_rng(2).normal(size=(4, 9))
    found = policy_gap(p, q, r, 0.4)
    star = optimal_policy(q, r, 0.4).probabilities
    exact = 0.4 * (p * np.log(p / star)).sum(axis=1).mean()
    assert found.value == pytest.approx(exact, rel=1e-10)
    near = found["kl_to_reference"].value
    assert near == pytest.approx((p * np.log(p / q)).sum(axis=1).mean(), rel=1e-10)


def test_a_shift_of_the_reward_for_each_prompt_changes_nothing():
    p, q, r = laws(0, 4, 9), laws(1, 4, 9), np.random.default_rng(2).normal(size=(4, 9))
    shift = 100 * np.random.default_rng(3).normal(size=(4, 1))
    ours, moved = policy_gap(p, q, r, 0.4), policy_gap(p, q, r + shift, 0.4)
    assert moved.value == pytest.approx(ours.value, rel=1e-9)
    np.testing.assert_allclose(
        optimal_policy(q, r, 0.4).probabilities,
        optimal_policy(q, r + shift, 0.4).probabilities,
        rtol=1e-9,
    )


def test_the_reference_itself_is_not_worse_than_the_reference():
    q, r = laws(0, 3, 9), np.random.default_rng(2).normal(size=(3, 9))
    assert policy_gap(q, q, r, 0.4).met is True
    assert policy_gap(optimal_policy(q, r, 0.4).probabilities, q, r, 0.4).met is True


def test_an_answer_that_the_reference_never_gives_costs_everything():
    found = policy_gap([0.5, 0.5], [1.0, 0.0], [0.0, 1.0], 0.4)
    assert found.value == math.inf and found.met is False


# -- a policy that ranks pairs well and is worse than its reference ------------------


class Bandit(torch.nn.Module):
    """One token, the same law everywhere."""

    def __init__(self, start):
        super().__init__()
        self.theta = torch.nn.Parameter(torch.tensor(start))

    def states(self, tokens):
        return self.theta.expand(*tokens.shape, -1), None

    def scores(self, states):
        return states


def tuned_by_pairs(n_pairs, steps, beta=0.5, answers=50, spread=1.0, seed=0):
    """A law over 50 answers, tuned by DPO on pairs of the reference's answers."""
    rng = np.random.default_rng(seed)
    lq = spread * rng.normal(size=answers)
    q, r = np.exp(lq) / np.exp(lq).sum(), rng.normal(size=answers)
    pairs = rng.choice(answers, size=(n_pairs, 2), p=q)
    pairs = pairs[pairs[:, 0] != pairs[:, 1]]
    first = rng.random(len(pairs)) < 1 / (1 + np.exp(-np.diff(-r[pairs]).ravel()))
    chosen = np.where(first, *pairs.T)
    rejected = pairs.sum(axis=1) - chosen
    y = torch.from_numpy(np.concatenate([chosen, rejected])[:, None])
    log_q = torch.from_numpy(np.log(q))
    mask = torch.ones_like(y, dtype=torch.bool)
    batch = Preferences((y,), y, None, mask, log_q[y[:, 0]])
    module, loss = Bandit(np.log(q)), PreferenceLoss(beta)
    optimizer = torch.optim.Adam(module.parameters(), lr=0.1)
    for _ in range(steps):
        optimizer.zero_grad()
        loss(module, batch)["loss"].backward()
        optimizer.step()
    p = torch.softmax(module.theta, dim=0).detach().numpy()
    return p / p.sum(), q, r, float(loss(module, batch)["accuracy"])


@pytest.mark.catalog("LM-20")
def test_the_certificate_sees_a_policy_below_its_reference_whose_win_rate_rises():
    few, q, r, ranked = tuned_by_pairs(800, 250)
    found = policy_gap(few, q, r, 0.5)
    idle = policy_gap(q, q, r, 0.5).value
    assert ranked > 0.6  # pairs are ranked well, and answers win
    assert "its answers win" in found["gap_to_optimal_policy"].detail
    assert found.met is False and found.value > idle
    assert "worse than its own reference" in found["gap_to_optimal_policy"].detail
    many, q, r, _ = tuned_by_pairs(12_000, 120)
    found = policy_gap(many, q, r, 0.5)
    assert found.met is True and found.value < 0.05 * idle


@pytest.mark.catalog("LM-20")
def test_five_thousand_pairs_may_be_too_few_where_some_answers_are_rare():
    """More wins than the best policy has, and worse than doing nothing."""
    p, q, r, _ = tuned_by_pairs(5_000, 200, spread=1.5, seed=1)
    found, idle = policy_gap(p, q, r, 0.5), policy_gap(q, q, r, 0.5)
    best, beats = optimal_policy(q, r, 0.5), 1 / (1 + np.exp(r - r[:, None]))
    assert p @ beats @ q > best.probabilities @ beats @ q > 0.6
    assert found.value > 1.2 * idle.value and idle.met
    assert found.met is False
    assert "worse than its own reference" in found["gap_to_optimal_policy"].detail
    assert found["kl_to_reference"].value > 2 * best.kl


# -- drawn answers --------------------------------------------------------------------


def units_of(p, q, r, n, seed, prompts=1):
    """Draws from laws over a list, in place of a network's."""
    rng = np.random.default_rng(seed)
    which = rng.integers(prompts, size=n)
    p, q, r = (np.broadcast_to(x, (prompts, x.shape[-1])) for x in (p, q, r))
    y, z = np.zeros((2, n), int)
    for i in range(prompts):
        mine = which == i
        y[mine] = rng.choice(p.shape[1], mine.sum(), p=p[i])
        z[mine] = rng.choice(p.shape[1], mine.sum(), p=q[i])
    ratio = np.log(p / q)
    kl = (p * ratio).sum(axis=1)
    return Units(
        *(which, kl[which], ratio[which, y], ratio[which, z]),
        *(r[which, y], r[which, z], 0.0),
    )


def sketch(beta, noise=0.3):
    """5,000 answers with rewards in [0, 1], and a policy near to the best one."""
    rng = np.random.default_rng(0)
    q = laws(1, 5_000) ** 0.5
    q = 0.99 * q / q.sum() + 0.01 / 5_000
    r = rng.random(5_000)
    p = optimal_policy(q, r, beta).probabilities * np.exp(
        noise * rng.normal(size=5_000)
    )
    return p / p.sum(), q, r


@pytest.mark.catalog("LM-20")
@pytest.mark.parametrize("beta", [0.1, 0.2, 0.5])
def test_the_bound_tells_a_good_policy_from_doing_nothing(beta):
    p, q, r = sketch(beta)
    true, idle = (excess(np.log(x), np.log(q), r, beta).value for x in (p, q))
    asked = Asked(beta, math.log(5_000 / 0.01), 1, (0.0, 1.0), 0.05)
    claim = gap_claim(units_of(p, q, r, 10_000, 0), asked)
    assert claim.strength is Strength.STATISTICAL
    assert true < claim.value < true + 0.25 * idle
    assert claim.value < 0.5 * idle


def test_the_bound_holds_as_often_as_it_says():
    rng = np.random.default_rng(0)
    q, r = laws(1, 6, 40), rng.random((6, 40))
    p = 0.8 * optimal_policy(q, r, 0.2).probabilities + 0.2 * laws(2, 6, 40)
    p, q = 0.99 * p + 0.01 / 40, 0.99 * q + 0.01 / 40
    rows = zip(p, q, r)
    true = np.mean([excess(np.log(a), np.log(b), c, 0.2).value for a, b, c in rows])
    reach = math.log(40 / 0.01)
    asked = Asked(0.2, reach, 6, (0.0, 1.0), 0.2)
    missed = {"gap_to_optimal_policy": 0, "kl_to_reference": 0}
    kl = float((p * np.log(p / q)).sum(axis=1).mean())
    for seed in range(120):
        for claim in drawn_claims(units_of(p, q, r, 300, seed, 6), asked):
            if claim.name in missed:
                truth = true if claim.name != "kl_to_reference" else kl
                missed[claim.name] += claim.value < truth
    assert max(missed.values()) < 36  # δ = 0.2 of 120 and three standard errors


def test_a_shift_of_the_reward_leaves_the_bound_true_or_is_refused():
    q, r = laws(1, 6, 40), np.random.default_rng(0).random((6, 40))
    p, reach = laws(2, 6, 40), math.log(4_000)
    true = policy_gap(p, q, r, 0.2)["gap_to_optimal_policy"].value
    asked = Asked(0.2, reach, 6, (0.0, 1.0), 0.05)
    plain = gap_claim(units_of(p, q, r, 2_000, 0, 6), asked).value
    far = asked._replace(bounds=(7.0, 8.0))
    assert gap_claim(units_of(p, q, r + 7, 2_000, 0, 6), far).value == pytest.approx(
        plain
    )
    shift = np.linspace(0, 1, 6)[:, None]
    wide = asked._replace(bounds=(0.0, 2.0))
    moved = gap_claim(units_of(p, q, r + shift, 2_000, 0, 6), wide).value
    assert true < plain and true < moved < true + 0.5
    claims = drawn_claims(units_of(p, q, r + 5 * shift, 2_000, 0, 6), wide)
    refused = next(c for c in claims if c.name == "gap_to_optimal_policy")
    assert refused.strength is Strength.REFUSED and "range" in refused.detail


def test_without_a_range_nothing_is_promised():
    units = units_of(laws(0, 9), laws(1, 9), np.arange(9.0), 200, 0)
    claims = drawn_claims(units, Asked(0.2, 5.0, 1, None, 0.05))
    names = {claim.name: claim.strength for claim in claims}
    assert names["gap_to_optimal_policy"] is Strength.REFUSED
    assert names["gain_over_reference"] is Strength.MEASURED


def test_a_policy_below_its_reference_is_flagged_from_draws():
    q, r = laws(1, 40), np.random.default_rng(0).random(40)
    p = 0.97 * np.eye(40)[np.argsort(q)[2]] + 0.03 / 40  # far away for little
    q = 0.99 * q + 0.01 / 40
    reach = math.log(40 / 0.01)
    claims = drawn_claims(
        units_of(p, q, r, 2_000, 0), Asked(0.5, reach, 1, (0.0, 1.0), 0.05)
    )
    assert claims[0].name == "gain_over_reference" and claims[0].met is False
    assert "worse than its own reference" in claims[0].detail


@pytest.mark.parametrize("spread", [0.01, 0.3])
def test_the_upper_mean_holds_and_shrinks(spread):
    rng, wide = np.random.default_rng(0), []
    true = spread * -math.expm1(-1 / spread)
    missed = 0
    for _ in range(200):
        x = np.minimum(1.0, rng.exponential(spread, 400))
        bound = upper_mean(x, 0.0, 1.0, 0.1)
        missed += bound < true
        wide.append(bound - x.mean())
    assert missed < 35
    assert np.mean(wide) < 2.5 * spread / 20 + 6 / 400


# -- language models ------------------------------------------------------------------

WORDS = {"n_layers": 1, "width": 16, "heads": 2, "context": 16, "random_state": 0}


@pytest.fixture(scope="module")
def models():
    texts = ["ab", "ac", "ad", "ab", "ab", "acd"] * 12
    return [LanguageModel(**WORDS, max_iter=n).fit(texts) for n in (30, 60)]


def test_listed_answers_of_language_models_are_the_sums_over_the_list(models):
    answers, reward = ["b", "c", "d", "cd"], lambda x, y: float("c" in y)
    found = policy_gap(
        models[1], models[0], reward, 0.3, prompts=["a"], answers=answers
    )
    L = []
    for model in models[::-1]:
        ids = [model.tokenizer_.encode("a" + y) for y in answers]
        end = model.tokenizer_.special["<|end|>"]
        L.append([model.token_log_probs(np.append(i, end))[1:].sum() for i in ids])
    p, q = (np.exp(x) / np.exp(x).sum() for x in map(np.array, L))
    r = np.array([reward("a", y) for y in answers])
    star = optimal_policy(q, r, 0.3).probabilities
    np.testing.assert_allclose(
        optimal_policy(
            models[0], reward, 0.3, prompts=["a"], answers=answers
        ).probabilities[0],
        star,
        rtol=1e-4,
    )
    exact = 0.3 * (p * np.log(p / star)).sum()
    claim = found["gap_to_optimal_policy"]
    assert claim.strength is Strength.PROVED and claim.allowance < 1e-6
    assert claim.value == pytest.approx(exact, rel=1e-3, abs=1e-5)


def test_draws_do_not_depend_on_who_proposes_them(models):
    """A liar's proposals are replaced, token by token."""
    read = [certus.verify.PlainNetwork(m.config_, m.weights_) for m in models]
    duel = Duel(*read, 256, 0.1, 4)
    prompts = [np.array([97])] * 30
    rng = np.random.default_rng(0)
    u, v = rng.random((2, 30, 4))
    plain, laws_ = draw(read[0], duel, prompts, u, v)
    lies = [np.array([98, 99, 100, 101])] * 30
    told, _ = draw(read[0], duel, prompts, u, v, lies)
    assert all(np.array_equal(a, b) for a, b in zip(plain, told))
    for y, law in zip(plain, laws_):
        again = next_laws(read[0], 256, prompts[:1], [y])[0]
        np.testing.assert_allclose(law.log, again.log[: len(y)], atol=1e-9)


def test_draws_have_the_frequencies_of_the_floored_distribution(models):
    read = certus.verify.PlainNetwork(models[0].config_, models[0].weights_)
    duel = Duel(read, read, 256, 0.3, 1)
    rng = np.random.default_rng(0)
    u, v = rng.random((2, 3000, 1))
    answers, _ = draw(read, duel, [np.array([97])] * 3000, u, v)
    counts = np.bincount([int(y[0]) for y in answers], minlength=257)
    law = np.exp(floored(next_laws(read, 256, [np.array([97])], [[]])[0].log[0], 0.3))
    assert np.abs(law.sum() - 1) < 1e-12 and law.min() > 0.3 / 257 * 0.999
    z = (counts - 3000 * law) / np.sqrt(3000 * law)
    assert np.square(z).sum() < 257 + 5 * math.sqrt(2 * 257)


def test_drawn_bounds_of_language_models_hold_the_truth(models):
    """One token: all 257 answers can be listed by hand."""
    policy, base = models[1], models[0]
    reward = lambda x, y: 0.5 * ("c" in y) + 0.5 * ("b" in y)  # noqa: E731
    found = policy_gap(
        *(policy, base, reward, 0.3),
        prompts=["a"],
        max_tokens=1,
        reward_range=(0, 1),
        n_draws=1500,
    )
    p, q = (m.next_probabilities(np.array([97])) for m in (policy, base))
    q = 0.99 * q + 0.01 / 257
    r = np.array([reward("a", base.tokenizer_.decode([v])) for v in range(257)])
    true = excess(np.log(p), np.log(q), r, 0.3).value
    kl = excess(np.log(p), np.log(q), 0 * r, 1.0).value
    assert true <= found["gap_to_optimal_policy"].value < true + 0.15
    assert kl <= found["kl_to_reference"].value < kl + 0.25
