"""
When no solution exists
=======================

Without a penalty, logistic regression on separable classes has no solution: larger
coefficients always lower the loss. The certificate says so and gives a direction that
proves it. Anyone can check this in one pass over the rows.
"""

import matplotlib.pyplot as plt
import numpy as np

import certus
from certus.linear_model import LogisticRegression

rng = np.random.default_rng(0)
X = np.vstack([rng.normal([-1.3, -0.7], 0.6, (40, 2)), rng.normal(1, 0.6, (40, 2))])
X = X[np.abs(X.sum(axis=1)) > 0.5]
y = np.sign(X.sum(axis=1)).astype(int)

with certus.config_context(on_uncertified="ignore"):
    model = LogisticRegression(C=np.inf).fit(X, y)
print(model.certificate_)

# %%
# The proof is part of the certificate's evidence: coefficients and, in the last row,
# the intercept. We check it by hand: every margin is positive.

direction = model.certificate_.evidence.witness.direction.ravel()
w, b = direction[:2], direction[2]
margins = y * (X @ w + b) / np.linalg.norm(w)
print(f"smallest margin {margins.min():.3f}, over {len(y)} rows")

# %%
# Along that direction the loss keeps falling. With any finite ``C`` the sum of loss and
# penalty has a minimum, and it is certified.

penalised = LogisticRegression(C=1.0).fit(X, y)
print(penalised.certificate_)

lengths = np.logspace(-1, 1.5, 80)
losses = np.array([np.mean(np.logaddexp(0, -t * margins)) for t in lengths])

fig, (left, right) = plt.subplots(1, 2, figsize=(9, 4.2), layout="constrained")
for label, colour, marker in ((-1, "tab:orange", "s"), (1, "tab:blue", "o")):
    rows = y == label
    left.plot(*X[rows].T, marker, color=colour, ms=5, label=f"class {label}")
unit = w / np.linalg.norm(w)
along = np.array([unit[1], -unit[0]])
foot = -b * w / (w @ w)
left.plot(*(foot + np.outer([-5, 5], along)).T, color="0.3", lw=1)
start = foot + 1.9 * along
left.annotate("", start + unit, start, arrowprops={"arrowstyle": "-|>", "lw": 2})
left.annotate("direction w", start + unit, (-4, -14), textcoords="offset points")
left.set_xlim(-3.2, 3.2)
left.set_ylim(-3.2, 3.2)
left.set_aspect("equal")
left.set_xlabel("first column")
left.set_ylabel("second column")
left.set_title(f"What separates the classes?  {len(y)} rows", loc="left", fontsize=11)
left.legend(frameon=False, loc="lower left")

right.loglog(lengths, losses, color="tab:red", label="C = inf: loss alone")
right.loglog(
    lengths,
    losses + lengths**2 / (2 * len(y)),
    color="tab:blue",
    label="C = 1: loss + penalty",
)
right.set_ylim(1e-6, 10)
right.set_xlabel("length of w along this direction")
right.set_ylabel("objective (mean log loss, + penalty)")
right.set_title("Is there a minimum?", loc="left", fontsize=11)
right.legend(frameon=False, loc="lower left")
plt.show()
