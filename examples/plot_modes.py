"""
What a deep linear network learns first
=======================================

Layers without activations multiply to one matrix. Yet gradient descent on the layers
learns this matrix mode by mode: strong relations early, weak ones late, each along an
S-shaped curve that theory predicts.
"""

import matplotlib.pyplot as plt
import numpy as np

from certus.decomposition import DeepLinearNetwork

# %%
# Five outputs depend on eight inputs, through modes of decreasing strength.

rng = np.random.default_rng(0)
X = rng.normal(size=(500, 8))
U, _ = np.linalg.qr(rng.normal(size=(5, 5)))
V, _ = np.linalg.qr(rng.normal(size=(8, 5)))
Y = X @ (V * [3.0, 2.0, 1.3, 0.8, 0.4]) @ U.T + 0.1 * rng.normal(size=(500, 5))

# %%
# One layer learns all modes at once. Two layers wait and then learn them one after the
# other; three layers wait longer and learn more abruptly. The dashed curves are the
# theory, which holds if the layers start balanced.

settings = {"learning_rate": 0.02, "init": "modes", "start": 0.01, "tol": 1e-3}
figure, axes = plt.subplots(1, 3, figsize=(11, 3.6), sharey=True, layout="constrained")
for ax, hidden in zip(axes, [(), (10,), (10, 10)], strict=True):
    model = DeepLinearNetwork(hidden, **settings).fit(X, Y)
    model.plot_modes(ax)
    ax.set_xlim(0, 6)

# %%
# A narrow layer has room for only a few modes and keeps the strongest. The certificate
# shows that no matrix of that rank is better.

narrow = DeepLinearNetwork((2,), start=1e-3, random_state=0).fit(X, Y)
print(narrow.certificate_)
print(narrow.modes_[-1].round(3))
plt.show()
