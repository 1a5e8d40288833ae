"""
Proved accuracy, and accuracy under attack
==========================================

How accurate does a network stay if somebody may change its inputs a little? Nobody can
say exactly, but :func:`~certus.robustness.robust_accuracy` gives two bounds. Blue is
proved: no change of that size alters these predictions. Red is what the attacks leave.
The truth is between them.
"""

import warnings

import matplotlib.pyplot as plt
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import train_test_split

from certus.neural_network import MLPClassifier
from certus.robustness import ThreatModel, robust_accuracy

X, y = load_digits(return_X_y=True)
X, X_test, y, y_test = train_test_split(X / 16, y, test_size=200, random_state=0)
threat = ThreatModel("l2", 0.8, low=0.0, high=1.0)

options = {"max_iter": 40, "learning_rate_init": 0.01, "random_state": 0}
models = {
    "linear: both bounds are one": LogisticRegression(max_iter=1000),
    "network": MLPClassifier((64,), **options),
    "network with bounded layers": MLPClassifier(
        (64,), "absolute", lipschitz=5.0, **options
    ),
}

# %%
# The same digits, the same threat model, three models of about the same accuracy. For
# the linear model the truth is known. The network is less robust, and even less can be
# proved about it, because its layers stretch distances more than necessary. If this is
# limited in training, the network is about as robust as the linear model, and most of
# that is proved.

figure, axes = plt.subplots(1, 3, figsize=(10, 3.6), layout="constrained", sharey=True)
for ax, (name, model) in zip(axes, models.items()):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # not trained to the end
        model.fit(X, y)
    found = robust_accuracy(model, X_test, y_test, threat, random_state=0)
    found.plot(ax)
    ax.set_title(name, loc="left", fontsize=10)
    if ax is not axes[0]:
        ax.set_ylabel("")
        ax.get_legend().remove()

# %%
# All that is known about the last model, and how far each statement can be relied on.

print(found)
plt.show()
