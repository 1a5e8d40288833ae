"""
What each regulariser does
==========================

A network that is large for its data memorises the training set. Here are six ways to
prevent this, one per picture: the loss on the training rows and on other rows, epoch by
epoch, compared with the network without regularisation.
"""

import matplotlib.pyplot as plt
import numpy as np
import torch
from sklearn.datasets import load_digits
from sklearn.metrics import log_loss
from sklearn.model_selection import train_test_split

from certus.neural_network import NeuralClassifier
from certus.neural_network.modules import MLP

# %%
# Three hundred digits to learn from, with one label in five drawn at random.

X, y = load_digits(return_X_y=True)
X = X / 16.0 - 0.5
X, X_test, y, y_test = train_test_split(X, y, train_size=300, random_state=0)
rng = np.random.default_rng(0)
y = np.where(rng.random(len(y)) < 0.2, rng.integers(10, size=len(y)), y)

# %%
# One network and one way to train it; only the regulariser differs. Each call of
# ``partial_fit`` is one epoch. After it the network is evaluated as it predicts:
# without dropout, without noise, by plain cross-entropy.

EPOCHS = 50


def curves(dropout=0.0, **options):
    """Loss on training rows, loss and accuracy on others, after each epoch."""
    model = NeuralClassifier(
        lambda n, k: MLP(n, (128, 128), k, dropout=dropout),
        learning_rate=3e-3,
        batch_size=32,
        random_state=0,
        **options,
    )
    rows = []
    for _ in range(EPOCHS):
        model.partial_fit(X, y, classes=np.arange(10))
        p = model.predict_proba(X_test)
        train = log_loss(y, model.predict_proba(X))
        rows.append((train, log_loss(y_test, p), np.mean(p.argmax(axis=1) == y_test)))
    return np.array(rows).T


def shake(batch):
    """Noise on the pictures, drawn again for each batch."""
    return batch + 0.3 * torch.randn_like(batch)


WAYS = {
    "weight decay": {"weight_decay": 1.0},
    "dropout": {"dropout": 0.5},
    "early stopping": {},
    "label smoothing": {"label_smoothing": 0.2},
    "noise on inputs": {"augment": shake},
    "mean of weights": {"average": 0.97},
}
plain = curves()
found = {
    name: curves(**options) if options else plain for name, options in WAYS.items()
}

# %%
# Without regularisation (grey) the training loss falls to zero, wrong labels included,
# and the loss on other rows rises again after a few epochs.

epochs = np.arange(1, EPOCHS + 1)
figure, axes = plt.subplots(
    2, 3, figsize=(10, 6), sharex=True, sharey=True, layout="constrained"
)
for ax, (name, (train, test, right)) in zip(axes.flat, found.items(), strict=True):
    ax.plot(epochs, plain[0], color="0.75", ls="--")
    ax.plot(epochs, plain[1], color="0.75", label="without regulariser")
    ax.plot(epochs, train, color="tab:blue", ls="--", label="training rows")
    ax.plot(epochs, test, color="tab:orange", label="other rows")
    last = EPOCHS - 1
    if name == "early stopping":
        last = int(test.argmin())
        ax.axvline(last + 1, color="0.35", lw=1)
        ax.annotate("stops", (last + 1, 2.2), xytext=(4, 0), textcoords="offset points")
    ax.set_title(f"{name}: {right[last]:.1%} right", fontsize=10)
for ax in axes[-1]:
    ax.set_xlabel("epoch")
for ax in axes[:, 0]:
    ax.set_ylabel("cross entropy")
axes[0, 0].set_ylim(0, 2.4)
axes[0, 0].legend(frameon=False, fontsize=9)
figure.suptitle(f"Six regularisers ({plain[2][-1]:.1%} right without any)")

# %%
# Weight decay keeps the training loss up, and early stopping ends before the wrong
# labels are learnt (at the best epoch on the rows shown, which is slightly optimistic).
# With dropout and noise no single row can be memorised; they help most here. Smoothed
# labels forbid certainty, which costs cross-entropy but no accuracy. Averaged weights
# follow the plain run with less noise.

plt.show()
