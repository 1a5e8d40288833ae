"""
What equal rates cost
=====================

Two groups repay loans at different rates, and one column reveals much about the group.
Four interventions make the decisions more equal: before training (columns without
traces of the group), in training (a penalty, or changed weights and labels), and after
it (a threshold for each group). Accuracy falls as the difference between groups falls.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.pipeline import make_pipeline

from certus.fairness import (
    CovariancePenalty,
    Decorrelation,
    GroupReduction,
    GroupThresholds,
    frontier,
)
from certus.linear_model import LogisticRegression

rng = np.random.default_rng(0)
n = 20_000
group = rng.choice(["a", "b"], n)
X = rng.normal(size=(n, 4))
X[:, 0] -= 0.8 * (group == "b")  # income
X[:, 1] += 1.5 * (group == "b")  # district
repaid = (rng.random(n) < 1 / (1 + np.exp(-1.5 * X[:, 0] - X[:, 2]))).astype(int)

# %%
# One curve for each intervention. The models are fitted on 70 % of the rows and
# evaluated on the others, the same for all.

base = LogisticRegression()
rule = {"criterion": "independence", "random_state": 0}
SWEEPS = {
    "decorrelation": (
        make_pipeline(Decorrelation(), base),
        *("decorrelation__amount", [1.0]),
    ),
    "covariance penalty": (
        CovariancePenalty(base),
        *("alpha", [0.0, 0.1, 0.3, 1.0, 3.0, 100.0]),
    ),
    "reduction": (
        GroupReduction(base, **rule),
        "max_difference",
        np.linspace(0.0, 0.4, 6),
    ),
    "group thresholds": (
        GroupThresholds(base, **rule),
        "max_difference",
        np.linspace(0, 0.4, 6),
    ),
}
frontiers = {
    name: frontier(model, X, repaid, group, parameter, list(map(float, values)), **rule)
    for name, (model, parameter, values) in SWEEPS.items()
}
print(frontiers["covariance penalty"])

# %%
# Thresholds that know the group lose least: they are the best of all rules on this
# score. The others decide without knowing the group. Decorrelation is a single point,
# because the regression could undo a map that keeps some of the covariance.

fig, ax = plt.subplots(figsize=(6.4, 4.4), layout="constrained")
for (name, found), mark in zip(frontiers.items(), "os^D"):
    order = np.argsort(found.difference)
    ax.plot(
        found.difference[order], found.accuracy[order], mark + "-", label=name, ms=5
    )
ax.set_xlabel("largest difference in selection rates")
ax.set_ylabel("accuracy on held-out rows")
ax.set_title("Accuracy falls as groups are treated more alike", loc="left")
ax.legend(frameon=False, loc="lower right", fontsize=9)
ax.spines[["top", "right"]].set_visible(False)
plt.show()
