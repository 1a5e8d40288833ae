"""
The copier looks best
=====================

Three generators learn a table of patients. By fidelity and usefulness alone, the one
that repeats its training rows comes first. The share of synthetic rows that lie nearest
to a training row shows it: one half would be fair.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_breast_cancer

import certus
from certus.generative import examine
from certus.synth import TableSynthesizer

frame = load_breast_cancer(as_frame=True).frame
names = ["mean radius", "mean texture", "mean smoothness", "mean concavity", "target"]
table = frame[names]
inside = np.random.default_rng(0).random(len(table)) < 0.5
real, holdout = table[inside], table[~inside]

# %%
# Each generator sees the training rows only. The examination needs the held-out rows,
# and says how far each column agrees with them.

found = {}
with certus.config_context(on_uncertified="ignore"):
    for name in ("tree", "copula", "cart"):
        model = TableSynthesizer(name, validation_fraction=0, random_state=0).fit(real)
        rows = model.sample(len(real))
        found[name] = examine(real, holdout, rows, target="target", random_state=0)
# A generator that hands out its training rows, for comparison.
found["copies"] = examine(real, holdout, real, target="target", random_state=0)
found["copula"].plot()

# %%
# Left: the higher, the more useful; the further left, the harder to tell apart. The
# copies are best in both. Right: which of them copy, with an interval of 95 %.

COLOURS = {"tree": "tab:blue", "copula": "tab:green", "cart": "tab:orange"}
COLOURS["copies"] = "tab:red"
fig, (left, right) = plt.subplots(1, 2, figsize=(8.6, 3.8), layout="constrained")
for name, one in found.items():
    left.scatter(one.told_apart_auc, one.synthetic_score, s=70, color=COLOURS[name])
    place = (one.told_apart_auc, one.synthetic_score)
    left.annotate(name, place, (8, -11), textcoords="offset points")
left.axhline(found["tree"].real_score, color="0.6", lw=0.9, ls="--")
left.annotate(
    "learnt from real rows",
    (0.98, found["tree"].real_score),
    ha="right",
    va="bottom",
    color="0.4",
    fontsize=9,
)
left.set(
    xlabel="told apart from held-out rows (AUC)", ylabel="accuracy on held-out rows"
)
left.set_xlim(0.4, 1.0)
left.margins(y=0.12)  # room for the name of the lowest
left.set_title("Fidelity and use", loc="left")

for i, (name, one) in enumerate(found.items()):
    ends = [0.5 + one.excess_low, min(1.0, 0.5 + one.excess_high)]
    right.plot(ends, [i, i], color=COLOURS[name], lw=3, alpha=0.5)
    right.plot(one.nearest_share, i, "o", ms=8, color=COLOURS[name])
    said = f"exact copies: {one.copies}" + (", flagged" if one.flagged else "")
    right.annotate(
        said,
        (one.nearest_share, i),
        (0, 9),
        ha="center",
        textcoords="offset points",
        fontsize=9,
    )
right.axvline(0.5, color="0.6", lw=0.9, ls="--")
right.set_yticks(range(len(found)), list(found))
right.set(xlabel="share of rows nearest to a training row", ylim=(-0.5, 3.6))
right.set_xlim(0.35, 1.2)
right.set_title("Copying", loc="left")
for ax in (left, right):
    ax.spines[["top", "right"]].set_visible(False)
plt.show()
