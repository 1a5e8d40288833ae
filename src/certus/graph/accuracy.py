"""How many nodes have the right label, from some whose labels were kept back.

The nodes of a graph are not independent rows, but a sample of them can be drawn at
random. Of the N nodes that were not trained on, n are looked at and k of them are
right: the number of right ones among all N follows from the hypergeometric
distribution, however the nodes depend on one another.
"""

from __future__ import annotations

import time

import numpy as np
from sklearn.utils.validation import check_is_fitted

from certus.base import check_number
from certus.certificate import Certificate, Status
from certus.edges import class_places, read_labels
from certus.typing import Column, Fit
from certus.verify import node_accuracy_claim

__all__ = ["node_accuracy"]


def node_accuracy(
    model: Fit, y: Column, trained: Column, *, delta: float = 0.05
) -> Certificate:
    """State the accuracy of a model on the nodes of its graph it was not trained on.

    Parameters
    ----------
    model : fitted classifier of nodes
        With ``transduction_``, a label for each node.
    y : array-like of shape (n_nodes,)
        Labels, −1 where none is known. Those of nodes that were trained on are left
        out; the others must be of nodes drawn at random among all that were not trained
        on.
    trained : array-like of shape (n_nodes,)
        Labels that the model was fitted on, −1 elsewhere.
    delta : float, default=0.05
        Failure probability: the chance that the statement does not hold.

    Returns
    -------
    Certificate
        With ``node_accuracy`` (STATISTICAL), the lower end of the interval. Nothing is
        said about nodes that are not in the graph.

    Examples
    --------
    >>> import numpy as np
    >>> from certus.graph import LabelSpreading, node_accuracy, stochastic_block_model
    >>> A, groups = stochastic_block_model(
    ...     [100, 100], [[0.2, 0.01], [0.01, 0.2]], random_state=0
    ... )
    >>> order = np.random.default_rng(0).permutation(200)
    >>> trained, looked_at = np.full(200, -1), np.full(200, -1)
    >>> trained[order[:10]] = groups[order[:10]]
    >>> looked_at[order[10:50]] = groups[order[10:50]]
    >>> model = LabelSpreading(alpha=0.9).fit(None, trained, graph=A)
    >>> node_accuracy(model, looked_at, trained)["node_accuracy"].value > 0.85
    True
    """
    start = time.perf_counter()
    check_number("delta", delta, 0, 1, open_low=True)
    check_is_fitted(model, "transduction_")
    found = np.asarray(model.transduction_)
    n = len(found)
    known = class_places(read_labels(trained, n))[1] >= 0
    line = read_labels(y, n)
    looked = (class_places(line)[1] >= 0) & ~known
    if not looked.any():
        raise ValueError(
            "y must have a label for at least 1 node that was not trained on, got none."
        )
    right = [
        bool(a == b) for a, b in zip(found[looked].tolist(), line[looked].tolist())
    ]
    claim = node_accuracy_claim(sum(right), len(right), n - int(known.sum()), delta)
    return Certificate.of(
        model,
        ([claim], Status.SOLVED, {"shape": [n]}),
        origin="certify",
        seconds=time.perf_counter() - start,
    )
