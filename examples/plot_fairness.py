"""
Fairness criteria that exclude each other
=========================================

Two groups repay loans at different rates. A score that is right for everybody is turned
into decisions by a threshold. At every threshold, the groups are chosen at different
rates, have different error rates, or a decision means something different for each.
"""

# sphinx_gallery_thumbnail_number = 2
import matplotlib.pyplot as plt
import numpy as np

from certus.fairness import exclusivity, independence, separation, sufficiency

rng = np.random.default_rng(0)
n = 20_000
group = rng.choice(["a", "b"], n)
score = rng.beta(np.where(group == "a", 3.5, 2.0), np.where(group == "a", 2.0, 3.5))
repaid = (rng.random(n) < score).astype(int)

# %%
# Decisions at one half, with intervals that are right together. The groups are scored
# by the same rule, and the score is the true probability in each group.

chosen = (score > 0.5).astype(int)
table = separation(repaid, chosen, group)
print(table)
table.plot()

# %%
# The largest difference in each criterion, at every threshold. The bands contain the
# value for new rows with probability 95 %. The dashed line shows by how much at least
# independence or sufficiency must fail, according to
# :func:`~certus.fairness.exclusivity`.

CRITERIA = {
    "independence": lambda d: independence(d, group),
    "separation": lambda d: separation(repaid, d, group),
    "sufficiency": lambda d: sufficiency(repaid, d, group),
}
thresholds = np.linspace(0.1, 0.9, 33)
decisions = [(score > t).astype(int) for t in thresholds]
fig, ax = plt.subplots(figsize=(6.4, 4.2), layout="constrained")
for name, colour in zip(CRITERIA, ["tab:blue", "tab:orange", "tab:green"]):
    tables = [CRITERIA[name](d) for d in decisions]
    low = [max(gap.low for gap in t.gaps) for t in tables]
    high = [max(gap.high for gap in t.gaps) for t in tables]
    ax.fill_between(thresholds, low, high, color=colour, alpha=0.15, lw=0)
    ax.plot(thresholds, [t.difference for t in tables], color=colour, label=name)
floor = [exclusivity(repaid, d, group).conflicts[1].least for d in decisions]
ax.plot(thresholds, floor, color="0.3", ls="--", lw=1.2, label="least possible for two")
ax.axhline(0.05, color="0.6", lw=0.8)
ax.annotate("tolerance", (0.5, 0.05), ha="center", va="bottom", color="0.4", fontsize=9)
ax.set_xlabel("chosen if the score is above")
ax.set_ylabel("largest difference between the groups")
ax.set_ylim(0, 0.68)
ax.set_title("No threshold satisfies all criteria", loc="left")
ax.legend(frameon=False, loc="upper right", fontsize=9)
plt.show()
