"""
Did my scikit-learn model converge?
===================================

``certus.certify`` checks a model that scikit-learn fitted, on the objective that its
solver minimises. In this example: logistic regression with the default solver, stopped
after a given number of iterations.
"""

import warnings

import matplotlib.pyplot as plt
from sklearn.datasets import load_breast_cancer
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import StandardScaler

import certus

X, y = load_breast_cancer(return_X_y=True)
columns = {"raw columns": X, "standardised": StandardScaler().fit_transform(X)}
limits = [5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000]

found = {}
for name, data in columns.items():
    for max_iter in limits:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", ConvergenceWarning)
            model = LogisticRegression(max_iter=max_iter).fit(data, y)
        gap = certus.certify(model, data, y).value
        found[name, max_iter] = gap, bool(caught)

# %%
# A filled mark is a fit without a warning; an open one came with a
# ``ConvergenceWarning``. No warning does not mean solved: scikit-learn's ``tol`` limits
# the gradient, in units that depend on the columns.

fig, ax = plt.subplots(figsize=(6.4, 4.2), layout="constrained")
for name, colour in zip(columns, ("tab:red", "tab:blue")):
    gaps = [found[name, k][0] for k in limits]
    ax.loglog(limits, gaps, color=colour, label=name, lw=1.5)
    for k, gap in zip(limits, gaps):
        warned = found[name, k][1]
        ax.plot(k, gap, "o", color=colour, mfc="white" if warned else colour)
ax.axhline(1e-6, color="0.5", lw=1, ls="--")
ax.annotate(
    "certus's default target, 1e-06",
    (5, 1e-6),
    (0, 4),
    textcoords="offset points",
    color="0.35",
    fontsize=9,
)
ax.plot([], [], "o", color="0.3", mfc="white", label="with a ConvergenceWarning")
ax.plot([], [], "o", color="0.3", label="without")
ax.set_xlabel("iterations allowed (max_iter)")
ax.set_ylabel("certified gap ÷ loss of the best constant model")
ax.set_title("How far from the minimum?  569 tumours, 30 columns", loc="left")
ax.legend(frameon=False, loc="upper right")
plt.show()

# %%
# The certificate of the last fit on raw columns, in words:

model = LogisticRegression(max_iter=5000).fit(X, y)
print(certus.certify(model, X, y))
