"""
How much does a memory hold?
============================

Three memories are filled with random patterns. Hebb's rule stores about 0.138 patterns
for each unit, and beyond that recalls ever less. The best weights store two, because a
random dichotomy of more than two points for each weight is rarely separable. Willshaw's
memory approaches ln 2 bits for each of its binary synapses.
"""

import matplotlib.pyplot as plt
import numpy as np

from certus.memory import HopfieldNetwork, capacity

# %%
# The curves are measured; bands are quartiles of the trials, or intervals of 95 % for
# a share. Dashed lines are what theory says for memories of this size.

curves = {
    "Hebb's rule": capacity(300, rule="hebb", n_trials=8, random_state=0),
    "the best weights": capacity(40, rule="optimal", n_trials=40, random_state=0),
    "Willshaw": capacity(256, rule="willshaw", n_trials=3, random_state=0),
}

figure, axes = plt.subplots(1, 3, figsize=(12.6, 3.8), layout="constrained")
for axis, (name, curve) in zip(axes, curves.items()):
    curve.plot(axis)
    axis.set_title(name, loc="left")
plt.show()

# %%
# How many flipped units is a memory certain to repair? The certificate proves a number
# for each pattern. The projection rule keeps it high where Hebb's rule is nearly full.

rng = np.random.default_rng(0)
counts = [2, 4, 8, 12, 16, 20]
radii = {"hebb": [], "projection": []}
for count in counts:
    patterns = np.where(rng.random((count, 300)) < 0.5, -1, 1)
    for rule, found in radii.items():
        memory = HopfieldNetwork(rule).fit(patterns)
        assert memory.certificate_["repair_radius"].met
        found.append(memory.radius_.min())

figure, axis = plt.subplots(figsize=(6, 3.8), layout="constrained")
for rule, found in radii.items():
    axis.plot(counts, found, "o-", ms=4, label=f'rule="{rule}"')
axis.set(xlabel="stored patterns of 300 units", ylabel="flips that one step repairs")
axis.set_xticks(counts)
axis.set_ylim(bottom=0)
axis.legend(frameon=False)
axis.spines[["top", "right"]].set_visible(False)
plt.show()
