"""
Leave-one-out without leaving anything out
==========================================

``RidgeCV`` computes the leave-one-out error of every strength from one matrix
decomposition: each error is a residual divided by one minus the leverage of its row. We
compare the curve with the definition, one fit per row.
"""

import time

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_diabetes

from certus.linear_model import Ridge, RidgeCV

X, y = load_diabetes(return_X_y=True)
X, y = X[:150], y[:150]
alphas = np.logspace(-4, 2, 60)

start = time.perf_counter()
model = RidgeCV(alphas=alphas, store_cv_results=True).fit(X, y)
closed = time.perf_counter() - start
curve = np.sqrt(model.cv_results_.mean(axis=0))

# %%
# The same by definition: leave out each row in turn, fit, and predict it.


def left_out_errors(alpha):
    """Prediction errors of the rows, each by a model that has not seen it."""
    errors = []
    for i in range(len(y)):
        rest = np.arange(len(y)) != i
        fitted = Ridge(alpha=alpha).fit(X[rest], y[rest])
        errors.append(y[i] - fitted.predict(X[[i]])[0])
    return np.array(errors)


few = alphas[::12]
start = time.perf_counter()
brute = np.array([np.sqrt(np.mean(left_out_errors(alpha) ** 2)) for alpha in few])
by_definition = time.perf_counter() - start
difference = np.max(np.abs(brute / curve[::12] - 1))
print(f"closed form: {len(alphas)} strengths in {1000 * closed:.1f} ms")
print(
    f"definition:  {len(few)} strengths, {len(few) * len(y)} fits,"
    f" in {by_definition:.1f} s"
)
print(f"largest relative difference {difference:.1e}")

# %%

fig, ax = plt.subplots(figsize=(6.4, 4), layout="constrained")
ax.semilogx(alphas, curve, color="tab:blue", label="closed form (RidgeCV)")
ax.semilogx(few, brute, "o", color="tab:orange", label="by definition, one fit a row")
ax.axvline(model.alpha_, color="0.5", lw=1, ls="--")
ax.annotate(
    f"chosen: alpha = {model.alpha_:.2g}",
    (model.alpha_, curve.max()),
    (6, -4),
    textcoords="offset points",
    color="0.35",
    fontsize=9,
)
ax.set_xlabel("alpha (penalty strength)")
ax.set_ylabel("leave-one-out error (root mean square,\nunits of the target)")
ax.set_title("How strong a penalty?  150 patients, 10 columns", loc="left")
ax.legend(frameon=False, loc="center left")
plt.show()

# %%
# The choice is measured; the certificate is about the final fit with that strength.

print(model.certificate_)
