"""
Three intervals for one error rate
==================================

How many new rows will a classifier get wrong? From the errors on n held-out rows, three
intervals give an answer with probability 95 %. How often each one is right can be
computed exactly, without simulation, because the number of errors is binomial.
"""

import matplotlib.pyplot as plt
import numpy as np
from scipy.stats import binom

from certus.bounds import clopper_pearson, empirical_bernstein, hoeffding_interval

INTERVALS = {
    "Hoeffding": lambda k, n: hoeffding_interval(np.arange(n) < k),
    "empirical Bernstein": lambda k, n: empirical_bernstein(np.arange(n) < k),
    "Clopper–Pearson": lambda k, n: clopper_pearson(k, n),
}
COLOURS = dict(zip(INTERVALS, ["tab:orange", "tab:green", "tab:blue"]))


def coverage(rule, n, rates):
    """P(the interval holds the rate), summed over all numbers of errors."""
    found = [rule(k, n) for k in range(n + 1)]
    low = np.array([interval.low for interval in found])[:, None]
    high = np.array([interval.high for interval in found])[:, None]
    chance = binom.pmf(np.arange(n + 1)[:, None], n, rates)
    return (chance * ((low <= rates) & (rates <= high))).sum(axis=0)


n, rates = 100, np.linspace(0.001, 0.5, 800)
_, left = plt.subplots(figsize=(6.4, 4.2), layout="constrained")
for name, rule in INTERVALS.items():
    kept = coverage(rule, n, rates)
    left.plot(rates, kept, color=COLOURS[name], lw=1.2, label=name)
    print(f"{name:20} kept at least {100 * kept.min():.2f} % of the time")
left.axhline(0.95, color="0.2", lw=1)
left.annotate(
    "promised",
    (0.5, 0.95),
    (0, -12),
    textcoords="offset points",
    ha="right",
    color="0.2",
    fontsize=9,
)
left.set_ylim(0.94, 1.002)
left.set_xlabel("true error rate")
left.set_ylabel("share of intervals that contain it")
left.set_title("All three are right often enough (n = 100)", loc="left")
left.legend(frameon=False, loc="center right", bbox_to_anchor=(1, 0.69))

# %%
# The price: the width of the interval when 5 % of the rows are wrong. Bernstein's
# interval becomes narrower than Hoeffding's once there are enough rows to estimate the
# variance. Clopper–Pearson, which is made for counts, is always the narrowest, and
# certus uses it for classifiers. The choice must be made in advance: the narrowest of
# three intervals would be wrong too often.

_, right = plt.subplots(figsize=(6.4, 4.2), layout="constrained")
sizes = np.unique(np.logspace(1.31, 5, 60).astype(int) // 20 * 20)
for name, rule in INTERVALS.items():
    widths = [rule(int(n) // 20, int(n)).width for n in sizes]
    right.loglog(sizes, widths, color=COLOURS[name], label=name)
right.set_xlabel("held-out rows")
right.set_ylabel("width of the interval")
right.set_title("Their widths, at 5 % errors", loc="left")
right.legend(frameon=False)
plt.show()
