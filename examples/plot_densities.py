"""
A density, and rows that are odd
================================

A normalising flow starts at a fitted mixture of Gaussians and bends it. Its density
tells which rows are odd, and calibration rows give the threshold a level: the
probability that an ordinary row is called odd is at most 5 %.
"""

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.colors import Normalize
from sklearn.datasets import make_moons

from certus.generative import NormalizingFlow

X, _ = make_moons(3000, noise=0.07, random_state=0)
fit, calibration = X[:1000], X[1000:]
flow = NormalizingFlow(n_components=4, max_iter=600, random_state=0).fit(fit)
print(flow.certificate_)

# %%
# The mixture that the flow starts from, and the flow. Epoch 0 counts, so on held-out
# rows the flow is never worse than its start.

side = np.linspace(-1.9, 2.9, 220), np.linspace(-1.3, 1.8, 150)
grid = np.stack(np.meshgrid(*side), axis=-1).reshape(-1, 2)
inner = (grid - flow.loc_) / flow.scale_
start = flow.mixture_.score_samples(inner) - np.log(flow.scale_).sum()
logs = {
    f"Mixture: {flow.start_score_:.2f} nats": start,
    f"Flow: {flow.validation_score_:.2f} nats": flow.score_samples(grid),
}
cell = (side[0][1] - side[0][0]) * (side[1][1] - side[1][0])
total = np.exp(flow.score_samples(grid)).sum() * cell
print(f"integral of the flow's density over the picture: {total:.4f}")

figure, axes = plt.subplots(
    1, 2, figsize=(9.4, 3.3), sharex=True, sharey=True, layout="constrained"
)
shape = len(side[1]), len(side[0])
shades = Normalize(0, max(np.exp(found).max() for found in logs.values()) ** 0.5)
for axis, (name, found) in zip(axes, logs.items()):
    root = np.exp(found).reshape(shape) ** 0.5
    axis.pcolormesh(*side, root, cmap="Blues", norm=shades, rasterized=True)
    axis.scatter(*fit[:400].T, s=3, color="#8d2f23", lw=0, alpha=0.6)
    axis.set_title(name, loc="left")
    axis.set(aspect="equal", xticks=[], yticks=[])
plt.show()

# %%
# ``calibrate`` keeps the scores of rows that the fit has not seen. A row is called odd
# if few of them are as odd as it is. A false alarm has a probability of at most alpha,
# for any model and any distribution of the rows. The line is where the answer changes.

ALPHA = 0.05
flow.calibrate(calibration)
new, _ = make_moons(1500, noise=0.07, random_state=1)
strange = np.random.default_rng(0).uniform([-1.8, -1.2], [2.8, 1.7], (60, 2))
odd_new, odd_strange = (flow.predict_outlier(rows, ALPHA) for rows in (new, strange))
print(f"false alarms: {odd_new.mean():.1%} of {len(new)} ordinary rows")
print(f"found: {odd_strange.sum()} of {len(strange)} rows from anywhere")

edge = flow.predict_outlier(grid, ALPHA).reshape(shape)
figure, axis = plt.subplots(figsize=(9.0, 4.4), layout="constrained")
axis.contourf(*side, edge, levels=[-0.5, 0.5], colors=["#dbe7f3"])
axis.contour(*side, edge, levels=[0.5], colors="#30638e", linewidths=1)
for rows, odd, marker, name in (
    (new, odd_new, "o", "ordinary"),
    (strange, odd_strange, "^", "from anywhere"),
):
    for told, colour, verb in ((False, "#30638e", "kept"), (True, "#c8553d", "odd")):
        some = rows[odd == told]
        axis.scatter(
            *some.T,
            s=9 if marker == "o" else 28,
            marker=marker,
            color=colour,
            lw=0,
            alpha=0.8,
            label=f"{name}, {verb}: {len(some)}",
        )
figure.legend(loc="outside right upper", fontsize=9, frameon=False)
axis.set(aspect="equal", xticks=[], yticks=[])
axis.set_title(f"Odd at level {ALPHA:g}", loc="left")
plt.show()
