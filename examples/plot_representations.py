"""
Vectors without labels
======================

A network sees two random views of each digit, and learns that they belong together. No
label is used. How good are the vectors, and how would one notice that they are useless?
"""

import warnings

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits

from certus.base import UncertifiedWarning
from certus.decomposition import PCA
from certus.representation import ContrastiveEncoder, probe

digits = load_digits()
order = np.random.default_rng(0).permutation(len(digits.target))  # not by writer
X, y = digits.images[order], digits.target[order]
X_train, X_test, y_train, y_test = X[:1200], X[1200:], y[:1200], y[1200:]

# %%
# The certificate compares the loss with its value if all vectors were equal, and proves
# that vectors of different rows differ.

model = ContrastiveEncoder(max_iter=200, random_state=0).fit(X_train)
print(model.certificate_)

# %%
# Two views of some digits, as training sees them.

first, second = model.views(X_test[:8], random_state=0)
figure, axes = plt.subplots(3, 8, figsize=(8, 3.2))
for row, (name, images) in enumerate(
    {"image": X_test[:8], "view 1": first, "view 2": second}.items()
):
    for ax, image in zip(axes[row], images):
        ax.imshow(image, cmap="gray_r", vmin=0, vmax=16)
        ax.set(xticks=[], yticks=[])
    axes[row, 0].set_ylabel(name)
figure.tight_layout()

# %%
# BYOL without its predictor and moving average makes all vectors equal. Its loss is
# perfect, and the certificate says what happened.

with warnings.catch_warnings():
    warnings.simplefilter("ignore", UncertifiedWarning)
    collapsed = ContrastiveEncoder(
        "byol", predictor=False, target_decay=0.0, max_iter=200, random_state=0
    ).fit(X_train)
print(collapsed.certificate_["vectors_differ"].detail)

# %%
# A logistic regression on 1, 2, 5, 10 and 20 labels of each class, on the same test
# rows: vectors, pixels, and the vectors of a network with random weights. On the left,
# two directions of the vectors that the loss compares.

counts, curves = (1, 2, 5, 10, 20), {}
for many in counts:
    rows = np.concatenate([np.flatnonzero(y_train == k)[:many] for k in range(10)])
    found = probe(model, X_train[rows], y_train[rows], X_test, y_test, random_state=0)
    for name, accuracy in found.accuracy.items():
        curves.setdefault(name, []).append(100 * accuracy)

figure, axes = plt.subplots(1, 3, figsize=(12, 3.6))
for ax, each, title in zip(
    axes, (model, collapsed), ("SimCLR: varied", "BYOL without safeguards: collapsed")
):
    Z = each.project(X_test)
    Z = Z / np.linalg.norm(Z, axis=1, keepdims=True)
    basis = PCA(2).fit(model.project(X_test)) if each is model else None
    xy = Z @ (basis.components_.T if basis is not None else np.eye(Z.shape[1])[:, :2])
    ax.scatter(*xy.T, c=y_test, cmap="tab10", s=8)
    ax.set(title=title, xlim=(-1, 1), ylim=(-1, 1), aspect="equal")
    ax.set(xticks=[-1, 0, 1], yticks=[-1, 0, 1])
for name, values in curves.items():
    axes[2].plot(counts, values, "o-", label=name)
axes[2].set(xscale="log", xlabel="labels of each class", ylabel="right, %")
axes[2].set_xticks(counts, [str(n) for n in counts])
axes[2].minorticks_off()
axes[2].legend()
figure.tight_layout()
