"""
The nearest neighbour and the best rule
=======================================

With three Gaussian classes in the plane, the best possible classifier is known. The
error of the single nearest neighbour is at most twice as large. The vote of many
neighbours, more of them as the data grows, comes arbitrarily close to the best.
"""

import matplotlib.pyplot as plt
import numpy as np
from scipy.stats import multivariate_normal

from certus.neighbors import BayesClassifier, KNeighborsClassifier

means = [[0.0, 0.0], [1.8, 0.0], [0.0, 1.8]]
best = BayesClassifier(
    [0.4, 0.3, 0.3], [multivariate_normal(mean, 0.7) for mean in means]
)
risk, limit = best.risk(random_state=0), best.neighbor_risk(random_state=0)
bound = risk.value * (2 - 1.5 * risk.value)
print(f"Bayes risk                    {risk.value:.3f}")
print(f"nearest neighbour, limit      {limit.value:.3f}")
print(f"Cover and Hart's bound        {bound:.3f}")

# %%
# Error on new rows as the training data grows.

test_X, test_y = best.sample(10_000, random_state=1)
sizes = np.unique(np.logspace(1.5, 4.5, 13).astype(int))


def mean_error(k, n):
    """Error of k neighbours among n rows, over several draws where they are few."""
    errors = []
    for seed in range(max(1, 1200 // n)):
        X, y = best.sample(n, random_state=[n, seed])
        model = KNeighborsClassifier(k).fit(X, y)
        errors.append(1 - model.score(test_X, test_y))
    return np.mean(errors)


one = [mean_error(1, int(n)) for n in sizes]
many = [mean_error(int(n**0.6), int(n)) for n in sizes]

figure, ax = plt.subplots(figsize=(6.4, 4.2), layout="constrained")
ax.semilogx(sizes, one, "o-", color="tab:orange", label="1 neighbour")
ax.semilogx(sizes, many, "o-", color="tab:blue", label="n$^{0.6}$ neighbours")
ax.axhline(risk.value, color="0.2", lw=1)
ax.axhspan(risk.value, bound, color="tab:orange", alpha=0.12, lw=0)
ax.annotate(
    "best possible",
    (sizes[-1], risk.value),
    (-4, -12),
    textcoords="offset points",
    ha="right",
    color="0.2",
    fontsize=9,
)
ax.annotate(
    "Cover and Hart's limit",
    (sizes[0], bound),
    (2, -12),
    textcoords="offset points",
    color="tab:orange",
    fontsize=9,
)
ax.set_ylim(0.9 * risk.value, 1.02 * bound)
ax.set_xlabel("training rows")
ax.set_ylabel("share of wrong labels on 10,000 new rows")
ax.set_title("Error and number of training rows", loc="left")
ax.legend(frameon=False)

# %%
# The decision boundaries: the vote of many neighbours and the best rule.

X, y = best.sample(1500, random_state=2)
model = KNeighborsClassifier(41).fit(X, y)
print(model.certificate_)
axis = np.linspace(-2.2, 4, 240)
grid = np.stack(np.meshgrid(axis, axis), axis=-1).reshape(-1, 2)
colours = np.array(["tab:blue", "tab:orange", "tab:green"])
figure, ax = plt.subplots(figsize=(6.4, 4.2), layout="constrained")
ax.scatter(*X.T, s=4, c=colours[y], alpha=0.5, lw=0)
for rule, style, width in ((model, "solid", 1.2), (best, "dashed", 1.8)):
    labels = rule.predict(grid).reshape(240, 240).astype(float)
    others = np.where(labels == 0, np.nan, labels)
    for field, level in ((labels == 0, 0.5), (others, 1.5)):
        ax.contour(
            axis,
            axis,
            field,
            levels=[level],
            colors="0.45" if rule is model else "black",
            linestyles=style,
            linewidths=width,
        )
ax.set_aspect("equal")
ax.set_xlabel("first column")
ax.set_ylabel("second column")
ax.set_title("41 neighbours (grey), the best rule (dashed)", loc="left")
plt.show()
