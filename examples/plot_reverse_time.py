"""
From data to noise, and back
============================

A diffusion adds noise until nothing of the data is left. Run backward, with the right
score, it turns noise into data. For a mixture of Gaussians the score is known in closed
form, so nothing is learned here, and what comes back can be compared with the truth.
"""

import matplotlib.pyplot as plt
import numpy as np

from certus.generative import (
    GaussianMixtureScore,
    NoisedMixture,
    euler_maruyama,
    flow_log_likelihood,
    integrate_flow,
    probability_flow,
    reverse_time,
    variance_preserving,
)

# %%
# Data with two modes, and the equation dx = −½β(t)x dt + √β(t) dw. Forward, rows lose
# their mode. Backward with noise, each row finds one of the modes again. The
# probability flow has the same density at each time, but no noise: its paths never
# cross.

data = NoisedMixture([0.35, 0.65], [-1.5, 1.0], [0.04, 0.09])
sde = variance_preserving(low=0.1, high=12.0)
score = GaussianMixtureScore(data, sde)
flow = probability_flow(sde, score)
steps, rows = 400, 14

forward = euler_maruyama(
    sde, data.sample(rows, random_state=0), n_steps=steps, path=True, random_state=1
)
noise = score.sample(rows, 1.0, random_state=2)
backward = euler_maruyama(
    reverse_time(sde, score), noise, n_steps=steps, path=True, random_state=3
)[::-1]
quantiles = np.sort(score.sample(2000, 1.0, random_state=4), axis=0)[50::80]
noiseless = [quantiles]
for i in range(80):
    times = 1 - i / 80, 1 - (i + 1) / 80
    moved = integrate_flow(flow, noiseless[-1], times=times, n_steps=4, log_det=False)
    noiseless.append(moved.X)

grid = np.linspace(-3.4, 3.4, 300)[:, None]
seconds = np.linspace(0, 1, 120)
density = np.column_stack([np.exp(score.log_density(grid, t)) for t in seconds])

figure, axes = plt.subplots(
    1, 3, figsize=(10.5, 3.6), sharey=True, layout="constrained"
)
for axis, paths, name in zip(
    axes,
    (forward, backward, np.stack(noiseless[::-1])),
    ("forward", "backward, with noise", "probability flow"),
):
    axis.imshow(
        density**0.5,
        extent=(0, 1, grid[0, 0], grid[-1, 0]),
        origin="lower",
        aspect="auto",
        cmap="Blues",
    )
    time = np.linspace(0, 1, len(paths))
    axis.plot(time, paths[:, :, 0], color="#8d2f23", lw=0.6, alpha=0.8)
    axis.set(title=name, xlabel="time t: data at 0, noise at 1", xlim=(0, 1))
axes[0].set_ylabel("x")
plt.show()

# %%
# The same in the plane. On the right, log densities of rows by the probability flow:
# the divergence of the flow is integrated along each path. They equal those of the
# mixture; halving the steps says how far to trust them.

angles = 2 * np.pi * np.arange(6) / 6
ring = NoisedMixture(
    np.full(6, 1 / 6),
    1.6 * np.column_stack([np.cos(angles), np.sin(angles)]),
    [0.03] * 6,
)
score = GaussianMixtureScore(ring, sde)
start = score.sample(600, 1.0, random_state=0)
backward = euler_maruyama(
    reverse_time(sde, score), start, n_steps=steps, path=True, random_state=1
)
flow = probability_flow(sde, score)
X = backward[-1][:150]
found = flow_log_likelihood(flow, X, lambda x: score.log_density(x, 1.0), n_steps=40)
print(f"largest change by halving the steps: {found.error.max():.1e}")
print(f"largest error: {np.abs(found.log_density - ring.log_density(X)).max():.1e}")

figure, axes = plt.subplots(1, 4, figsize=(10.5, 2.9), layout="constrained")
for axis, place in zip(axes, (0, 330, steps)):
    axis.scatter(*backward[place].T, s=4, color="#30638e", alpha=0.6, lw=0)
    axis.set(title=f"t = {1 - place / steps:.2f}", xlim=(-3, 3), ylim=(-3, 3))
    axis.set(xticks=[], yticks=[], aspect="equal")
axes[3].plot(ring.log_density(X), found.log_density, ".", ms=4, color="#8d2f23")
ends = np.array(axes[3].get_xlim())
axes[3].plot(ends, ends, "k-", lw=0.6)
axes[3].set(xlabel="log density of the mixture", ylabel="by the flow")
plt.show()
