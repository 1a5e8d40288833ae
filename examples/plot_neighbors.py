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
print(f"nearest neighbour, in the end {limit.value:.3f}")
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

fig, (left, right) = plt.subplots(1, 2, figsize=(9.6, 4.2), layout="constrained")
left.semilogx(sizes, one, "o-", color="tab:orange", label="1 neighbour")
left.semilogx(sizes, many, "o-", color="tab:blue", label="n$^{0.6}$ neighbours")
left.axhline(risk.value, color="0.2", lw=1)
left.axhspan(risk.value, bound, color="tab:orange", alpha=0.12, lw=0)
left.annotate(
    "best possible",
    (sizes[-1], risk.value),
    (-4, -12),
    textcoords="offset points",
    ha="right",
    color="0.2",
    fontsize=9,
)
left.annotate(
    "Cover and Hart: at most this, in the end",
    (sizes[0], bound),
    (2, -12),
    textcoords="offset points",
    color="tab:orange",
    fontsize=9,
)
left.set_ylim(0.9 * risk.value, 1.02 * bound)
left.set_xlabel("training rows")
left.set_ylabel("share of wrong labels on 10,000 fresh rows")
left.set_title("Error against data", loc="left")
left.legend(frameon=False)

# %%
# The decision boundaries: the vote of many neighbours and the best rule.

X, y = best.sample(1500, random_state=2)
model = KNeighborsClassifier(41).fit(X, y)
print(model.certificate_)
axis = np.linspace(-2.2, 4, 240)
grid = np.stack(np.meshgrid(axis, axis), axis=-1).reshape(-1, 2)
colours = np.array(["tab:blue", "tab:orange", "tab:green"])
right.scatter(*X.T, s=4, c=colours[y], alpha=0.5, lw=0)
for rule, style, width in ((model, "solid", 1.2), (best, "dashed", 1.8)):
    labels = rule.predict(grid).reshape(240, 240).astype(float)
    others = np.where(labels == 0, np.nan, labels)
    for field, level in ((labels == 0, 0.5), (others, 1.5)):
        right.contour(
            axis,
            axis,
            field,
            levels=[level],
            colors="0.45" if rule is model else "black",
            linestyles=style,
            linewidths=width,
        )
right.set_aspect("equal")
right.set_xlabel("first column")
right.set_ylabel("second column")
right.set_title("41 neighbours (grey), the best rule (dashed)", loc="left")
plt.show()
