"""
What support vectors are
========================

A support vector machine is a sum of kernels over a few of its training rows. Rows far
on their own side do not appear in it. Rows on the margin have the weight that is needed
to keep them there, and rows inside the margin have the largest weight that ``C``
allows. The certificate is computed from these numbers alone.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import make_moons

from certus.svm import SVC

X, y = make_moons(160, noise=0.22, random_state=3)
model = SVC(C=3.0, gamma=1.5).fit(X, y)
print(model.certificate_)

# %%
# The rows by their coefficient α = abs(``dual_coef_``): zero, free (0 < α < C), bounded
# (α = C). At the free ones the score is exactly ±1: they lie on the margin.

alpha = np.zeros(len(y))
alpha[model.support_] = np.abs(model.dual_coef_[0])
free, bounded = (alpha > 0) & (alpha < model.C), alpha == model.C
scores = model.decision_function(X)
print(f"{(alpha == 0).sum()} rows without, {free.sum()} free, {bounded.sum()} bounded")
off = np.abs(np.abs(scores[free]) - 1).max()
print(f"scores of the free ones: ±1 to within {off:.0e}")

# %%
# Removing all rows that are not support vectors changes nothing.

again = SVC(C=3.0, gamma=1.5).fit(X[alpha > 0], y[alpha > 0])
change = np.abs(again.decision_function(X) - scores).max()
print(f"largest change of a score: {change:.0e}")

fig, axes = plt.subplots(1, 2, figsize=(9.4, 4.2), layout="constrained", sharey=True)
side = np.linspace(-2.2, 3.2, 220), np.linspace(-1.7, 2.2, 180)
grid = np.stack(np.meshgrid(*side), axis=-1)
for axis, C in zip(axes, (3.0, np.inf)):
    fitted = model if np.isfinite(C) else SVC(C=C, gamma=6.0).fit(X, y)
    field = fitted.decision_function(grid.reshape(-1, 2)).reshape(grid.shape[:2])
    axis.contourf(*side, field, levels=[-99, 0, 99], colors=["#fbe3cf", "#d9e8f5"])
    axis.contour(
        *side, field, levels=[-1, 0, 1], colors="0.35", linewidths=[0.8, 1.6, 0.8]
    )
    for label, colour, marker in ((0, "tab:orange", "s"), (1, "tab:blue", "o")):
        axis.plot(
            *X[y == label].T, marker, color=colour, ms=3.5, label=f"class {label}"
        )
    held = fitted.support_
    axis.plot(
        *X[held].T, "o", mfc="none", mec="0.1", ms=8, mew=0.9, label="support vector"
    )
    kind = "soft margin, C = 3" if np.isfinite(C) else "hard margin, C = inf"
    axis.set_title(f"{kind}: {len(held)} support vectors", loc="left", fontsize=11)
    axis.set_xlabel("first column")
axes[0].set_ylabel("second column")
axes[0].legend(frameon=False, loc="lower left", fontsize=8)
plt.show()
