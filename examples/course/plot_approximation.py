"""
Which functions come close to all others
========================================

A class of functions is dense if some of them come as close as one likes, everywhere
at once, to any continuous function. Polynomials do, and so do sums of almost any unit
of a network; polynomial units do not.
"""

import matplotlib.pyplot as plt
import numpy as np
from scipy.optimize import linprog
from scipy.special import expit
from scipy.stats import binom

rng = np.random.default_rng(0)


def least_distance(columns, y):
    """Largest error of the best combination of columns, by linear programming."""
    one = np.ones((len(y), 1))
    rows = np.block([[columns, -one], [-columns, -one]])
    cost = np.r_[np.zeros(columns.shape[1]), 1.0]
    return linprog(cost, rows, np.r_[y, -y], bounds=(None, None)).fun


# %%
# **Denseness.** The best polynomials approach abs(x), with a distance of about
# 0.28/degree (Bernstein). Even polynomials approach it as well, but never x: they are
# not dense.

x = np.cos(np.linspace(0, np.pi, 201))
powers = np.polynomial.chebyshev.chebvander(x, 16)
degrees = [2, 4, 8, 16]
distances = [least_distance(powers[:, : d + 1], np.abs(x)) for d in degrees]
even = [least_distance(powers[:, : d + 1 : 2], x) for d in degrees]
assert np.isclose(distances[0], 1 / 8, rtol=1e-3)  # x² + 1/8
np.testing.assert_allclose(even, 1, atol=1e-6)

# %%
# **Weierstrass's theorem, after Bernstein.** Toss a coin of chance x n times and take f
# at the share of heads: the expectation is a polynomial in x, and for large n the share
# is close to x. Slow, but it works for every continuous f.

grid = np.linspace(0, 1, 501)
figure, axes = plt.subplots(1, 2, figsize=(8, 3.4), layout="constrained")
axes[0].loglog(degrees, distances, "o-", label="abs(x), all polynomials")
axes[0].loglog(degrees, even, "o-", label="x, even polynomials")
axes[0].set(title="Distance of the best polynomial", xlabel="degree")
axes[1].plot(grid, np.abs(grid - 0.5), color="black")
for n in (4, 16, 64, 256):
    k = np.arange(n + 1)
    polynomial = binom.pmf(k, n, grid[:, None]) @ np.abs(k / n - 0.5)
    error = np.abs(polynomial - np.abs(grid - 0.5)).max()
    assert error <= 1.5 * n**-0.5
    axes[1].plot(grid, polynomial, label=f"n = {n}")
axes[1].set_title("Bernstein's polynomials")
for ax in axes:
    ax.legend()
axes[0].set_xticks(degrees, degrees)
axes[0].minorticks_off()

# %%
# **Units of a network.** Sums of tanh(ax + b) with random a and b fit ever better with
# more of them; sums of (ax + b)² are parabolas, however many there are.

x = np.linspace(-1, 1, 400)
y = np.exp(-x) * np.sin(5 * x)
a, b = 4 * rng.normal(size=(2, 64))
widths = [2, 4, 8, 16, 32, 64]
figure, ax = plt.subplots(figsize=(4.6, 3.4), layout="constrained")
for name, unit in {"tanh": np.tanh, "square": np.square}.items():
    errors = []
    for m in widths:
        columns = unit(np.outer(x, a[:m]) + b[:m])
        w = np.linalg.lstsq(columns, y, rcond=1e-12)[0]
        errors.append(np.abs(columns @ w - y).max())
    ax.loglog(widths, errors, "o-", label=name)
    assert (errors[-1] < 1e-2) == (name == "tanh")
ax.set(title="Least squares on random units", xlabel="units")
ax.set_xticks(widths, widths)
ax.minorticks_off()
ax.legend()

# %%
# **Ridge functions** g(a·x) look at one direction each, and their sums are dense as
# well: products come from squares, exactly.

p, q = rng.integers(-1000, 1000, size=(2, 100))
assert ((p + q) ** 2 - (p - q) ** 2 == 4 * p * q).all()

# %%
# **Boxes from sigmoids.** The difference of two steep sigmoids is almost the indicator
# of an interval. In the plane the sum of two such bumps is a cross; a further unit
# with a threshold keeps the middle alone.

t = np.linspace(0, 1, 300)
bump = expit(60 * (t - 0.3)) - expit(60 * (t - 0.7))
cross = np.add.outer(bump, bump)
box = expit(60 * (cross - 1.5))
figure, axes = plt.subplots(1, 3, figsize=(10, 3.2), layout="constrained")
for steep in (10, 30, 100):
    bump = expit(steep * (t - 0.3)) - expit(steep * (t - 0.7))
    axes[0].plot(t, bump, label=f"steepness {steep}")
axes[0].legend()
axes[1].imshow(cross)
axes[1].set_title("sum of two bumps")
axes[2].imshow(box)
axes[2].set_title("after a threshold")
for ax in axes[1:]:
    ax.set_axis_off()
inside = np.abs(t - 0.5) < 0.2
assert np.abs(box - np.logical_and.outer(inside, inside)).mean() < 0.04
plt.show()
