"""
The perceptron's mistakes and their bound
=========================================

Novikov's theorem: if the rows have length at most R and some hyperplane separates them
with margin γ, the perceptron makes at most R²/γ² mistakes, in any order of the rows.
The certificate states this bound for the margin that was found. Here the margin of the
data shrinks, and both numbers are drawn.
"""

import matplotlib.pyplot as plt
import numpy as np

from certus.linear_model import Perceptron
from certus.svm import LinearSVC

rng = np.random.default_rng(0)
normal, along = np.array([0.8, 0.6]), np.array([-0.6, 0.8])


def two_groups(margin, n=100):
    """Rows on both sides of a line, between one and four margins away from it."""
    y = np.where(np.arange(n) % 2, 1, -1)
    away = y * margin * rng.uniform(1, 4, n)
    return np.outer(rng.uniform(-0.9, 0.9, n), along) + np.outer(away, normal), y


# %%
# One fit. All rows end up on the right side, and the certificate compares the number of
# mistakes with the bound.

X, y = two_groups(0.1)
model = Perceptron(tol=None, fit_intercept=False, random_state=0).fit(X, y)
print(model.certificate_)

# %%
# Twenty orders of the rows for each margin. "Widest" is the bound with the margin of
# the hard-margin machine, the smallest bound that the theorem gives.

margins = np.logspace(np.log10(0.1), np.log10(0.003), 10)
made, found, widest = [], [], []
for margin in margins:
    X, y = two_groups(margin)
    runs = [
        Perceptron(tol=None, max_iter=20_000, fit_intercept=False, random_state=r).fit(
            X, y
        )
        for r in range(20)
    ]
    made.append([run.mistakes_.sum() for run in runs])
    found.append([run.certificate_["mistake_bound"].target for run in runs])
    machine = LinearSVC(C=np.inf, fit_intercept=False).fit(X, y)
    radius = np.linalg.norm(X, axis=1).max()
    widest.append((radius / machine.margin_[0]) ** 2)
made, found = np.array(made), np.array(found)

fig, (left, right) = plt.subplots(1, 2, figsize=(9.5, 4.2), layout="constrained")
X, y = two_groups(0.1)
model = Perceptron(tol=None, fit_intercept=False, random_state=0).fit(X, y)
count = model.mistakes_[:, 0]
for label, colour, marker in ((-1, "tab:orange", "s"), (1, "tab:blue", "o")):
    rows = y == label
    size = 16 + 40 * count[rows]
    left.scatter(
        *X[rows].T, size, colour, marker=marker, alpha=0.7, label=f"class {label}"
    )
w = model.coef_[0] / np.linalg.norm(model.coef_[0])
left.plot(*np.outer([-w[1], w[0]], [-1.3, 1.3]), color="0.2", label="line found")
left.set_xlim(-1.1, 1.1)
left.set_ylim(-1.1, 1.1)
left.set_aspect("equal")
left.set_xlabel("first column")
left.set_ylabel("second column")
left.set_title("Which rows were mistakes?  size: how often", loc="left", fontsize=11)
left.legend(frameon=False, loc="lower left", fontsize=8)

right.fill_between(
    margins, found.min(axis=1), found.max(axis=1), color="tab:red", alpha=0.2
)
right.loglog(
    margins, np.median(found, axis=1), color="tab:red", label="bound, margin found"
)
right.loglog(margins, widest, "k--", lw=1.2, label="bound, widest margin")
right.fill_between(
    margins, made.min(axis=1), made.max(axis=1), color="tab:blue", alpha=0.3
)
right.loglog(
    margins, np.median(made, axis=1), color="tab:blue", label="mistakes, 20 orders"
)
right.invert_xaxis()
right.set_xlabel("margin of the data (shrinking)")
right.set_ylabel("number of mistakes")
right.set_title("How many mistakes?", loc="left", fontsize=11)
right.legend(frameon=False, loc="upper left")
plt.show()
