"""
Means, tails and dependence
===========================

What a mean says about a sample, how fast it settles, how often it is far off, and why
quantities without correlation can still depend on each other.
"""

import itertools

import matplotlib.pyplot as plt
import numpy as np
from scipy import stats

rng = np.random.default_rng(0)

# %%
# Variance and covariance are means of products, so they are linear in each argument:
# the covariance of two sums is the sum of four covariances, on any sample.

X, Y, W, V = rng.normal(size=(4, 30)) + rng.normal(size=(4, 1))


def cov(u, v):
    return np.mean(u * v) - u.mean() * v.mean()


expanded = 6 * cov(X, W) - 2 * cov(X, V) + 15 * cov(Y, W) - 5 * cov(Y, V)
assert np.isclose(cov(2 * X + 5 * Y, 3 * W - V), expanded)
assert np.isclose(cov(X, X), X.var())

# %%
# **The law of large numbers.** The mean of n draws misses the expectation by about
# 1/√n: a line of slope −1/2 on logarithmic axes.
#
# **Markov's inequality** needs the mean alone: P(X ≥ a) ≤ E X/a for X ≥ 0. It is far
# from the truth for most distributions, and exact for the one that is 0 or a. For
# quantities that can be negative it is false: X = ±1 has mean 0 and P(X ≥ 1) = 1/2.
#
# **Hoeffding's inequality** knows the range too, and falls exponentially in n.

sizes = 4 ** np.arange(1, 7)
errors = [np.abs(rng.exponential(size=(500, n)).mean(axis=1) - 1).mean() for n in sizes]
slope = np.polyfit(np.log(sizes), np.log(errors), 1)[0]
assert abs(slope + 0.5) < 0.05

a = np.linspace(0.05, 8, 200)
assert (stats.expon.sf(a) <= 1 / a).all()

n = np.arange(1, 301)
slack = 1e-9  # 0.4·n and 0.6·n are whole numbers at times
tails = stats.binom.cdf(np.floor(0.4 * n + slack), n, 0.5)
tails = 2 * tails  # both sides are alike
hoeffding = 2 * np.exp(-2 * n * 0.1**2)
assert (tails <= hoeffding).all()

figure, axes = plt.subplots(1, 3, figsize=(11, 3.4), layout="constrained")
axes[0].loglog(sizes, errors, "o", label="mean error of 500 means")
axes[0].loglog(sizes, errors[0] * np.sqrt(sizes[0] / sizes), label="slope −1/2")
axes[0].set(title="Law of large numbers", xlabel="draws")
axes[1].semilogy(a, np.minimum(1, 1 / a), label="Markov, E X/a")
axes[1].semilogy(a, stats.expon.sf(a), label="exponential")
axes[1].semilogy(a, stats.poisson.sf(np.ceil(a) - 1, 1), label="Poisson")
axes[1].set(title="P(X ≥ a) at mean 1", xlabel="a")
axes[2].semilogy(n, np.minimum(1, hoeffding), label="Hoeffding")
axes[2].semilogy(n, tails, label="exact")
axes[2].set(title="A coin's mean is off by 0.1", xlabel="tosses")
for ax in axes:
    ax.legend()

# %%
# **The union bound.** One of several events happens with at most the sum of their
# probabilities; with exactly that sum if no two can happen together.

p = rng.dirichlet(np.ones(5))
events = [np.array(bits) for bits in itertools.product([False, True], repeat=5)]
for A, B in itertools.product(events, repeat=2):
    union, total = p[A | B].sum(), p[A].sum() + p[B].sum()
    assert union <= total + 1e-12
    assert np.isclose(union, total) == (not (A & B).any())

# %%
# **Moment generating functions** M(t) = E exp(tX) hold all moments in their
# derivatives at 0. That of a sum is the product, if the terms are independent: true
# for two coins, false for one coin counted twice.

p, t, h = 0.3, 0.8, 1e-4


def coin(t):
    return 1 - p + p * np.exp(t)


two = stats.binom(2, p).expect(lambda k: np.exp(t * k))
assert np.isclose(two, coin(t) ** 2)
assert not np.isclose(coin(2 * t), coin(t) ** 2)
assert np.isclose((coin(h) - coin(-h)) / (2 * h), p)
draws = rng.normal(1.0, 0.5, size=200_000)
assert abs(np.exp(t * draws).mean() / np.exp(t + t**2 / 8) - 1) < 0.01

# %%
# **Uncorrelated is not independent.** Y = X² has no correlation with X, and X says
# everything about it. Only where two quantities are jointly Gaussian does no
# correlation mean independence.

x = stats.norm.ppf((np.arange(2000) + 0.5) / 2000)
pairs = {"Y = X²": (x, x**2), "jointly Gaussian": rng.normal(size=(2, 2000))}
figure, axes = plt.subplots(1, 2, figsize=(7.5, 3.2), layout="constrained")
for ax, (name, (u, v)) in zip(axes, pairs.items(), strict=True):
    joint = np.histogram2d(u, v, bins=12)[0] / len(u)
    apart = np.outer(joint.sum(axis=1), joint.sum(axis=0))
    seen = joint > 0
    nats = np.sum(joint[seen] * np.log(joint[seen] / apart[seen]))
    ax.scatter(u, v, s=4)
    correlation = np.corrcoef(u, v)[0, 1]
    ax.set_title(f"{name}\ncorrelation {correlation:.2f}, information {nats:.2f}")
assert abs(cov(x, x**2)) < 1e-12
plt.show()
