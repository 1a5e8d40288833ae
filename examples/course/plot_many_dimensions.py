"""
Distances, margins and many dimensions
======================================

How far a point is from a hyperplane, why nearest neighbours lose their meaning in many
dimensions, and why many weak features make accurate models fragile.
"""

import matplotlib.pyplot as plt
import numpy as np
from scipy.stats import norm

rng = np.random.default_rng(0)

# %%
# **A hyperplane** w·x + b = 0 is at distance abs(w·x + b)/‖w‖ from x. The margin is the
# smallest y(w·x + b)/‖w‖ over the rows: it does not change with the length of w, and it
# is positive exactly if the hyperplane separates the classes.

w, b, x = np.array([2.0, 1.0]), -1.0, np.array([2.0, 2.0])
foot = x - (w @ x + b) * w / (w @ w)
assert np.isclose(w @ foot + b, 0)
assert np.isclose(np.linalg.norm(x - foot), abs(w @ x + b) / np.linalg.norm(w))

# %%
# **The curse of dimension.** Among uniform points in a cube the farthest is soon hardly
# farther than the nearest, and a cube around the middle that holds one row in a hundred
# has almost the whole edge.

dimensions = np.array([1, 2, 5, 10, 20, 50, 100, 200, 500])
ratios = []
for d in dimensions:
    X = rng.uniform(size=(200, d))
    distances = np.linalg.norm(X[1:] - X[0], axis=1)
    ratios.append(distances.max() / distances.min())
edges = 0.01 ** (1 / dimensions)
X = rng.uniform(size=(100_000, 10))
inside = (np.abs(X - 0.5) <= 0.01**0.1 / 2).all(axis=1)
assert abs(inside.mean() - 0.01) < 0.0013

# %%
# **Accurate and fragile.** One strong feature y + noise, and d − 1 weak ones of mean
# y·√(log d/(d − 1)). Together the weak ones are almost always right; but a change of
# ε = 2√(log d/(d − 1)) in each turns them all round. The more features, the smaller
# the change that does it.

d = np.logspace(1, 7, 200)
weak = np.sqrt(np.log(d) / (d - 1))
epsilon = 2 * weak
size = np.sqrt(1 + np.log(d))
clean = norm.cdf(-size)
attacked = norm.cdf((np.log(d) - 1 + epsilon) / size)
million = np.log(10**6), 2 * np.sqrt(np.log(10**6) / (10**6 - 1))
assert round(million[1], 4) == 0.0074
risk = norm.cdf((million[0] - 1 + million[1]) / np.sqrt(1 + million[0]))
assert round(risk, 5) == 0.99957

figure, axes = plt.subplots(1, 3, figsize=(11, 3.4), layout="constrained")
axes[0].loglog(dimensions, ratios, "o-")
axes[0].set(title="Farthest over nearest distance", xlabel="dimensions")
axes[1].semilogx(dimensions, edges, "o-")
axes[1].set(title="Edge of a cube with 1 % of the rows", xlabel="dimensions")
axes[2].semilogx(d, clean, label="error without changes")
axes[2].semilogx(d, attacked, label="error when each may change by ε")
axes[2].semilogx(d, epsilon, "--", label="ε")
axes[2].set(title="Many weak features", xlabel="features")
axes[2].legend()
plt.show()
