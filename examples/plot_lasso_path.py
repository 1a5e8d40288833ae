"""
A lasso path, with the gap at every point
=========================================

``lasso_path`` solves for many strengths, each starting from the previous solution, and
returns the gap at each. The verifier then checks the same coefficients.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_diabetes

from certus import check
from certus.linear_model import lasso_path
from certus.objectives import Squared
from certus.objectives.terms import L1

data = load_diabetes()
X, y = data.data - data.data.mean(axis=0), data.target - data.target.mean()
alphas, coefs, _ = lasso_path(X, y, eps=1e-3, alphas=60, tol=1e-8)

certificates = [
    check(coef, None, (Squared(), L1(alpha)), X, y, tol=1e-8)
    for alpha, coef in zip(alphas, coefs.T)
]
print(f"solved at {sum(bool(c.met) for c in certificates)} of {len(alphas)} strengths")

# %%
# From strong penalties (left) to weak ones (right), columns enter one by one, and a few
# leave again. Every point meets the target.

fig, (top, middle, bottom) = plt.subplots(
    3, 1, figsize=(6.4, 7), sharex=True, layout="constrained", height_ratios=[3, 1, 1]
)
lowest = -np.inf
for j in np.argsort(coefs[:, -1]):
    (line,) = top.semilogx(alphas, coefs[j], lw=1.5)
    lowest = max(coefs[j, -1], lowest + 60)  # room for one label above the last
    top.annotate(
        data.feature_names[j],
        (alphas[-1] / 1.08, lowest),
        va="center",
        color=line.get_color(),
        fontsize=9,
        annotation_clip=False,
    )
top.axhline(0, color="0.8", lw=0.8, zorder=0)
top.set_ylabel("coefficient")
top.set_title("Which columns enter first?  442 patients, 10 columns", loc="left")

middle.step(alphas, (coefs != 0).sum(axis=0), where="mid", color="0.3")
middle.set_ylabel("non-zero")
middle.set_yticks([0, 5, 10])

gaps = np.array([c.value for c in certificates])
bottom.loglog(alphas, np.maximum(gaps, 1e-16), ".", color="tab:blue")
bottom.axhline(1e-8, color="0.5", lw=1, ls="--")
bottom.annotate(
    "target",
    (alphas[0], 1e-8),
    (0, 4),
    textcoords="offset points",
    color="0.35",
    fontsize=9,
)
bottom.set_ylim(1e-17, 1e-6)
bottom.set_ylabel("relative gap")
bottom.set_xlabel("alpha (penalty strength)")
bottom.set_xlim(alphas[0] * 1.2, alphas[-1] / 1.8)
plt.show()
