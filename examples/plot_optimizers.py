"""
Theory and practice: gradient descent, Nesterov, SGD
====================================================

Every call of ``certus.optimize`` returns a record with the convergence theorem that
applies, and compares its bound with every step. Here are three methods on one ridge
regression whose constants are known: curvature between m and L.
"""

from dataclasses import replace

import matplotlib.pyplot as plt
import numpy as np

from certus.optimize import (
    average_bounds,
    gradient_descent,
    least_squares_objective,
    nesterov,
    stochastic_gradient_descent,
)

rng = np.random.default_rng(0)
X = rng.normal(size=(300, 8)) * np.geomspace(1, 0.1, 8)
y = X @ rng.normal(size=8) + rng.normal(size=300)
f = least_squares_objective(X, y, alpha=0.01)
x0 = np.full(8, 3.0)
print(f"L = {f.L:.3g}, m = {f.m:.3g}, condition number {f.L / f.m:.0f}")

# %%
# Gradient descent and Nesterov's method are deterministic. Their bounds hold at every
# step, or a constant is wrong. Gradient descent almost reaches its bound. Acceleration
# needs fewer steps, by a factor of about the square root of the condition number.

slow = gradient_descent(f, x0, max_iter=1500, tol=1e-7)
quick = nesterov(f, x0, max_iter=1500, tol=1e-7)
print(slow)
print(quick)

# %%
# A bound for a stochastic method is about the mean over random draws. One run cannot
# confirm it, but the mean over twenty-five runs can.

step = 0.2 / f.L_terms
runs = [
    stochastic_gradient_descent(
        f, x0, step=step, max_iter=4000, every=100, random_state=seed
    )
    for seed in range(25)
]
mean = average_bounds(runs)
print(f"mean of {len(runs)} runs within the bound: {mean.holds}")

fig, axes = plt.subplots(1, 3, figsize=(11.5, 3.8), layout="constrained")
slow.plot(axes[0], index=1)
quick.plot(axes[1])
mean.plot(axes[2], "SGD, mean of 25 runs")
axes[2].set_ylabel("‖x_k − x*‖²")
plt.show()

# %%
# A wrong constant shows. With twice the true strong convexity, the bound falls faster
# than the method can, and the record says from which step on.

wrong = gradient_descent(replace(f, m=2 * f.m), x0, step=1 / f.L, max_iter=1500)
print(wrong)
wrong.plot(index=1)
plt.show()
