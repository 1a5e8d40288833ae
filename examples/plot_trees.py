"""
Does boosting keep its constraints?
===================================

The demand for a product falls with its price, but not in every noisy sample. A monotone
constraint forces the predictions to fall. The verifier reads the trees and decides
whether they do so everywhere. One leaf that was changed afterwards is found, with two
prices that show it.
"""

from dataclasses import replace

import matplotlib.pyplot as plt
import numpy as np

import certus
from certus.ensemble import HistGradientBoostingRegressor

rng = np.random.default_rng(0)
n = 400
price, season = rng.uniform(1, 10, n), rng.uniform(0, 1, n)
demand = 60 / (1 + price) + 8 * np.sin(2 * np.pi * season) + 4 * rng.normal(size=n)
X = np.column_stack([price, season])

free = HistGradientBoostingRegressor(max_iter=60).fit(X, demand)
falling = HistGradientBoostingRegressor(max_iter=60, monotonic_cst=[-1, 0])
falling.fit(X, demand)
print(falling.certificate_)

# %%
# Somebody edits one leaf of the last tree that splits the price.

trees = falling.trees_
node = int(np.flatnonzero(trees.feature == 0)[-1])
leaf = int(trees.right[node])
while trees.feature[leaf] >= 0:
    leaf = int(trees.left[leaf])
value = trees.value.copy()
value[leaf] += 12.0
falling.trees_ = replace(trees, value=value)
claim = certus.certify(falling, X, demand)["monotone_trees"]
print(claim.detail)

# %%
# The free model follows the noise, the constrained one falls. The edited leaf is a step
# up, between the two prices that the claim names.

grid = np.linspace(1, 10, 1000)
first = claim.detail.split("rows {0: ")[1].split("}")[0]
at, place = (float(each) for each in first.split(", 1: "))
rows = np.column_stack([grid, np.full(1000, place)])

figure, axes = plt.subplots(figsize=(7, 4))
axes.plot(price, demand, ".", color="0.75", markersize=4, label="rows, all seasons")
axes.plot(grid, free.predict(rows), color="tab:orange", label="without constraint")
axes.plot(grid, trees.predict(rows), color="tab:blue", lw=2, label="must fall: proved")
axes.plot(
    grid, falling.predict(rows), color="tab:red", ls="--", label="one leaf edited"
)
axes.axvline(at, color="tab:red", lw=0.8, ls=":")
axes.set(xlabel="price", ylabel="demand", title=f"Predictions at season {place:.2f}")
axes.legend(frameon=False)
figure.tight_layout()
plt.show()
