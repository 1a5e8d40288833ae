"""Graphs: labels, links and ranks of nodes, with proofs where there are any."""

from __future__ import annotations

from certus.lazy import exports

#: The module of each public name that is not an estimator of this package.
_WHERE = {
    "LabelPropagation": "reexported",
    "LabelSpreading": "reexported",
    "SpectralClustering": "reexported",
    "graph_filter": "filters",
    "node_accuracy": "accuracy",
    "renormalized_adjacency": "filters",
    "stochastic_block_model": "generators",
}
__all__, __getattr__, __dir__ = exports(__name__, _WHERE)
