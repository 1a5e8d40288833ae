"""
A bound from the training rows alone
====================================

PAC-Bayes bounds the error of a classifier whose weights are drawn at random, without a
test set. ``StochasticLinearClassifier`` minimises this bound. Here it is fitted to more
and more of scikit-learn's digits, and 700 other digits show how loose the bound is.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits

from certus.linear_model import StochasticLinearClassifier

X, y = load_digits(return_X_y=True)
X = X / 16  # a fixed factor; a scaler fitted on these rows would look at them
order = np.random.default_rng(0).permutation(len(y))
test, train = order[:700], order[700:]

# %%
# One fit. Half of the rows are used for the prior; the others are counted.

model = StochasticLinearClassifier().fit(X[train], y[train])
print(model.certificate_)

# %%
# A prior that has seen nothing must pay for every weight that moves. A prior that was
# fitted to other rows hardly moves. Both bounds fall with more rows.

sizes = [80, 200, 500, 1097]
bounds, errors, paid = {}, {}, {}
for prior in ("zero", "half"):
    fits = [
        StochasticLinearClassifier(prior).fit(X[train[:n]], y[train[:n]]) for n in sizes
    ]
    bounds[prior] = [fit.certificate_.value for fit in fits]
    nats = [fit.certificate_["kl_divergence"].value for fit in fits]
    counted = np.array(sizes) / (2 if prior == "half" else 1)
    paid[prior] = nats / counted
    errors[prior] = [
        1 - fit.vote_proba(X[test])[np.arange(len(test)), y[test]].mean()
        for fit in fits
    ]

fig, (left, right) = plt.subplots(1, 2, figsize=(9.5, 4.2), layout="constrained")
names = {"zero": "prior at zero", "half": "learnt prior"}
note = "error on new rows"
colours = {"zero": "tab:orange", "half": "tab:blue"}
for prior, name in names.items():
    colour = colours[prior]
    left.plot(sizes, bounds[prior], "o-", color=colour, label=f"bound, {name}")
    left.plot(sizes, errors[prior], "s--", color=colour, ms=4, label=note)
    left.fill_between(sizes, errors[prior], bounds[prior], color=colour, alpha=0.12)
    note = None  # one entry of the legend serves both
    right.plot(sizes, paid[prior], "o-", color=colour, label=name)
left.axhline(0.9, color="0.6", lw=1)
left.text(sizes[-1], 0.905, "guessing", ha="right", va="bottom", fontsize=8)
left.set_ylim(0, 1)
left.set_ylabel("share of wrong labels")
left.set_title("Bound and true error", loc="left", fontsize=11)
left.legend(frameon=False, fontsize=8, loc="upper right", bbox_to_anchor=(1, 0.9))
right.set_ylim(0, None)
right.set_ylabel("KL(posterior ‖ prior), nats per counted row")
right.set_title("Price of moving from the prior", loc="left", fontsize=11)
right.legend(frameon=False, loc="upper right", fontsize=8)
for axes in (left, right):
    axes.set_xscale("log")
    axes.set_xticks(sizes, [str(n) for n in sizes])
    axes.minorticks_off()
    axes.set_xlabel("training rows")
plt.show()
