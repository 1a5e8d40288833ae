"""
Two labels and a graph
======================

In 1977 Wayne Zachary described a karate club that split in two: some members followed
the instructor, Mr. Hi, others the club's officer. The friendships and the labels of
these two persons are enough to tell almost all others.
"""

import matplotlib.pyplot as plt
import networkx as nx
import numpy as np

from certus.graph import LabelPropagation, NodeClassifier, SpectralClustering

club = nx.karate_club_graph()
officer = np.array([side == "Officer" for _, side in club.nodes(data="club")])
places = nx.spring_layout(club, seed=4)
xy = np.array([places[node] for node in club])

# %%
# A random walk from each node ends at one of the two labels. The probability is
# computed to a proved error.

walk = LabelPropagation().fit(None, {0: "Mr. Hi", 33: "Officer"}, graph=club)
print(walk.certificate_)

# %%
# A network that mixes neighbours learns from the same two labels. Spectral clustering
# needs none, and its cut is proved to be within a factor of the best one. Stars are the
# two labels; a ring is around the member who chose the other side.

network = NodeClassifier(random_state=0).fit(
    None, {0: "Mr. Hi", 33: "Officer"}, graph=club
)
groups = SpectralClustering(2, affinity="precomputed", random_state=0).fit(club)
print(groups.certificate_)

side = groups.labels_ == groups.labels_[33]
panels = {
    "label propagation": walk.label_distributions_[:, 1],
    "graph convolution": network.label_distributions_[:, 1],
    "spectral clustering, no labels": side.astype(float),
}
figure, axes = plt.subplots(1, 3, figsize=(10.5, 3.9), layout="constrained")
for axis, (name, share) in zip(axes, panels.items()):
    for i, j in club.edges:
        axis.plot(*xy[[i, j]].T, color="0.8", lw=0.7, zorder=0)
    wrong = (share > 0.5) != officer
    shown = axis.scatter(
        *xy.T, c=share, cmap="coolwarm", vmin=0, vmax=1, s=90, edgecolor="0.3", lw=0.7
    )
    axis.scatter(*xy[wrong].T, s=240, facecolor="none", edgecolor="k", lw=1.4)
    if "no labels" not in name:
        axis.scatter(*xy[[0, 33]].T, marker="*", s=45, color="w", lw=0)
    axis.set_title(f"{name}: {int((~wrong).sum())} of 34", loc="left", fontsize=10)
    axis.set_axis_off()
figure.colorbar(shown, ax=axes, shrink=0.7, label="probability of the officer's side")
plt.show()
