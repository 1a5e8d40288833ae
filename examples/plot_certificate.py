"""
How to read a certificate
=========================

A fitted model has ``certificate_``: the claims that the verifier computed from the
coefficients and the data. Here we read one, draw it, and then break it on purpose.
"""

import textwrap

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_diabetes
from sklearn.preprocessing import PolynomialFeatures, StandardScaler

import certus
from certus.linear_model import Lasso

X, y = load_diabetes(return_X_y=True)
model = Lasso(alpha=0.05).fit(X, y)
print(model.certificate_)

# %%
# The first claim is the one that ``tol`` limits. Its parts are plain attributes.

claim = model.certificate_["duality_gap"]
print(f"strength   {claim.strength.value}")
print(f"value      {claim.value:.1e}, asked for {claim.target:.0e}")
print(f"objective  {claim.objective}")
print(textwrap.fill(f"because    {claim.theorem}", 80, subsequent_indent=" " * 11))

# %%
# The number is an upper bound on the distance to the minimum, which nobody knows. To
# see this, we stop a harder problem after each round and compare it with a much more
# accurate fit. The bound is never below the true distance, and both fall together.

wide = PolynomialFeatures(2, include_bias=False).fit_transform(X)
wide = StandardScaler().fit_transform(wide)
alpha = 0.05
constant = np.mean((y - y.mean()) ** 2) / 2  # what the best constant model loses


def objective(fitted):
    """½·mean (y − Xw − b)² + alpha·‖w‖₁ of a fitted model."""
    residual = y - fitted.predict(wide)
    return np.mean(residual**2) / 2 + alpha * np.abs(fitted.coef_).sum()


with certus.config_context(on_uncertified="ignore"):
    best = objective(Lasso(alpha, tol=1e-12).fit(wide, y))
    stopped = [Lasso(alpha, max_iter=k, tol=1e-10).fit(wide, y) for k in range(1, 30)]
stopped = stopped[: 1 + next(i for i, m in enumerate(stopped) if m.certificate_.met)]
rounds = np.arange(1, len(stopped) + 1)
bound = np.array([m.certificate_.value for m in stopped])
truth = np.array([(objective(m) - best) / constant for m in stopped])

fig, ax = plt.subplots(figsize=(6.4, 4), layout="constrained")
ax.semilogy(rounds, bound, "o-", color="tab:blue", label="certified bound")
seen = truth > 1e-14
ax.semilogy(rounds[seen], truth[seen], "s--", color="tab:orange", label="true distance")
ax.axhline(1e-6, color="0.5", lw=1, ls="--")
ax.annotate(
    "default target, 1e-06",
    (rounds[-1], 1e-6),
    (0, 4),
    ha="right",
    textcoords="offset points",
    color="0.35",
    fontsize=9,
)
ax.set_xticks(rounds)
ax.set_xlabel("rounds allowed (max_iter)")
ax.set_ylabel("distance to the minimum ÷\nloss of the best constant model")
ax.set_title(
    "Does the certificate bound the truth?  442 patients, 65 columns",
    loc="left",
    fontsize=11,
)
ax.legend(frameon=False)
plt.show()

# %%
# A certificate is checked, not believed. Change one coefficient by a thousandth. The
# data is still that of the fit, but the claim is no longer true, and ``certify`` says
# so.

model.coef_[2] *= 1.001
refuted = certus.certify(model, X, y)
print(refuted.status.value)
print(refuted)
