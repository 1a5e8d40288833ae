"""
Unbiased, efficient, and stopped early
======================================

What the mean over all samples says about a risk, how well any unbiased estimator can
do, and why few steps of gradient descent act like a penalty.
"""

from itertools import product

import matplotlib.pyplot as plt
import numpy as np
from scipy.stats import binom

rng = np.random.default_rng(0)

# %%
# **The empirical risk is unbiased** for a fixed model: the mean over every possible
# sample is the risk. It misses it by about 1/√n.

chance, loss = np.array([0.5, 0.3, 0.2]), np.array([0.1, 0.9, 0.4])
samples = [list(rows) for rows in product(range(3), repeat=4)]
mean = sum(chance[rows].prod() * loss[rows].mean() for rows in samples)
assert np.isclose(mean, chance @ loss)

sizes = 100 * 4 ** np.arange(4)
gaps = [
    binom.pmf(np.arange(n + 1), n, 0.3) @ np.abs(np.arange(n + 1) / n - 0.3)
    for n in sizes
]
np.testing.assert_allclose(np.array(gaps[1:]) / gaps[:-1], 0.5, rtol=5e-3)

# %%
# **The Cramér–Rao bound.** No unbiased estimator of the location of a Gaussian has a
# variance below σ²/n. The mean attains it; the median needs π/2 times as many rows.

draws = rng.normal(size=(20_000, 101))
means, medians = draws.mean(axis=1), np.median(draws, axis=1)
assert abs(means.var() * 101 - 1) < 0.05
assert abs(medians.var() / means.var() / (np.pi / 2) - 1) < 0.06

# %%
# **Early stopping.** From zero, k steps of length η along the gradient of a quadratic
# with curvature λ go the share 1 − (1 − ηλ)ᵏ of the way; a penalty μ stops at
# λ/(λ + μ). With k = 1/(ημ) the two are alike where λ is small beside μ: directions
# that the data say little about are held back.

curvature = np.logspace(-3, 1, 200)
mu, eta = 1.0, 0.01
steps = round(1 / (eta * mu))
walked = 1 - (1 - eta * curvature) ** steps
shrunk = curvature / (curvature + mu)
small = curvature < 0.05
np.testing.assert_allclose(walked[small], shrunk[small], rtol=0.03)

figure, axes = plt.subplots(1, 3, figsize=(11, 3.4), layout="constrained")
axes[0].loglog(sizes, gaps, "o-")
axes[0].set(title="Mean distance from the risk", xlabel="rows")
for name, values in {"mean": means, "median": medians}.items():
    axes[1].hist(values, bins=60, density=True, histtype="step", label=name)
axes[1].set(title="Two estimates of a location")
axes[1].legend()
axes[2].semilogx(curvature, walked, label="stopped after 1/(ημ) steps")
axes[2].semilogx(curvature, shrunk, "--", label="penalty μ")
axes[2].set(title="Share of the way to the optimum", xlabel="curvature λ/μ")
axes[2].legend()
plt.show()
