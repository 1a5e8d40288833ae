"""
Small changes that fool a network
=================================

A network reads handwritten digits well. How small a change makes it wrong? And how do
attacks that use its gradients compare with one that only sees its answers?
"""

import math

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits

from certus.neural_network import MLPClassifier
from certus.robustness import PGD, Boundary, DeepFool, OneStep, ThreatModel, attack

X, y = load_digits(return_X_y=True)
X = X / 16  # ink between 0 and 1
model = MLPClassifier((64,), early_stopping=True, random_state=0).fit(
    X[:1400], y[:1400]
)
rows, digits = X[1400:1480], y[1400:1480]
print(f"accuracy {model.score(rows, digits):.2f}")

# %%
# The smallest change that DeepFool finds, in l2 and with pixels between 0 and 1. Blue
# pixels became lighter, red ones darker. The network is unsure about such digits,
# because they lie on the boundary between two classes.

anything = ThreatModel("l2", math.inf, 0, 1)
found = attack(model, rows, digits, anything, DeepFool())
shown = [np.flatnonzero(found.fooled & (digits == k))[0] for k in range(8)]
sure = model.predict_proba(found.X_hat).max(axis=1)
fig, axes = plt.subplots(3, 8, figsize=(9.0, 4.0), layout="constrained")
for column, i in zip(axes.T, shown):
    for ax, image in zip(column, (rows[i], found.changes[i], found.X_hat[i])):
        changed = image is not rows[i] and image.min() < 0
        colours = {"cmap": "RdBu_r", "vmin": -0.5, "vmax": 0.5}
        plain = {"cmap": "gray_r", "vmin": 0, "vmax": 1}
        ax.imshow(image.reshape(8, 8), **(colours if changed else plain))
        ax.set(xticks=[], yticks=[])
    column[0].set_title(f"{digits[i]}", fontsize=10)
    column[1].set_title(f"size {found.distances[i]:.2f}", fontsize=9)
    column[2].set_title(f"{found.predicted[i]}, {sure[i]:.0%} sure", fontsize=9)
for ax, name in zip(axes[:, 0], ("digit", "change", "changed")):
    ax.set_ylabel(name)

# %%
# Accuracy against the allowed change of every pixel. Many steps find more than one
# step. The walk along the boundary only uses labels. It finds less and needs many more
# queries.

radii = np.linspace(0, 0.2, 9)
methods = {"one step": OneStep(), "40 steps": PGD(), "labels only": Boundary(8)}
fig, ax = plt.subplots(figsize=(6.4, 4.0), layout="constrained")
for name, method in methods.items():
    threats = [ThreatModel("linf", radius, 0, 1) for radius in radii]
    runs = [attack(model, rows, digits, t, method, random_state=0) for t in threats]
    ax.plot(radii, [run.accuracy for run in runs], "o-", ms=4, label=name)
    print(f"{name}: {runs[4].queries / len(rows):.0f} queries per row at 0.1")
ax.set(xlabel="largest change of a pixel", ylabel="accuracy attacked", ylim=(0, 1.02))
ax.legend(frameon=False)
plt.show()
