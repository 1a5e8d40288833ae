"""The verifier's own reading of graphs and of labels that may be missing.

An adjacency matrix in CSR, float64, with entries that are not negative. Lists of edges
name an edge once or in both directions. The families have a reader of their own.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from scipy import sparse

from certus.certificate import Claim
from certus.typing import Array, Fit
from certus.verify import deciding as bd
from certus.verify.kernel import reading

#: What stands for a label that is not known.
UNKNOWN = -1


def as_numbers(values: Any) -> Array:
    """Numbers of an array, a list or a tensor."""
    if hasattr(values, "detach"):
        values = values.detach().cpu().numpy()
    return np.asarray(values, dtype=np.float64)


def adjacency(graph: Any, n: int, directed: bool = False) -> Any:
    """The weights of a graph in any of its forms."""
    both = False
    if hasattr(graph, "nodes") and hasattr(graph, "edges"):
        place = {name: i for i, name in enumerate(graph.nodes)}
        told = [(place[a], place[b], w) for a, b, w in graph.edges(data="weight")]
        table = np.array(
            [(i, j, 1.0 if w is None else w) for i, j, w in told], dtype=np.float64
        ).reshape(-1, 3)
        size = (len(place), len(place))
        A = _counted(table, size, False)
        if not graph.is_directed():
            loops = sparse.diags_array(A.diagonal())
            A = A + A.T - loops
    elif hasattr(graph, "edge_index"):
        ends = as_numbers(graph.edge_index).T
        w = getattr(graph, "edge_weight", None)
        w = getattr(graph, "edge_attr", None) if w is None else w
        w = np.ones(len(ends)) if w is None else as_numbers(w).ravel()
        A = _counted(np.column_stack([ends, w]), (n, n), True)
    elif sparse.issparse(graph):
        A = sparse.coo_array(graph).astype(np.float64)
    else:
        found, listed = as_numbers(graph), _is_list(graph)
        if listed or found.ndim != 2 or found.shape[0] != found.shape[1]:
            found = found.reshape(0, 2) if not found.size else found
            found = found.T if found.shape[1] > 3 and found.shape[0] == 2 else found
            w = found[:, 2] if found.shape[1] == 3 else np.ones(len(found))
            A, both = _counted(np.column_stack([found[:, :2], w]), (n, n), True), True
        else:
            A = sparse.csr_array(found)
    A = sparse.csr_array(A)
    A = A.maximum(A.T) if both and not directed else A
    A = sparse.csr_array(A)
    A.eliminate_zeros()
    return A


def _is_list(graph: Any) -> bool:
    """Whether a graph is a list of tuples, and so a list of edges."""
    plain = isinstance(graph, list | tuple)
    return plain and all(isinstance(e, tuple) and len(e) in (2, 3) for e in graph)


def _counted(table: Array, shape: tuple[int, int], once: bool) -> Any:
    """A matrix from rows (i, j, weight); an edge listed twice counts once, or adds."""
    if once:
        table = np.unique(table, axis=0)
    i, j = table[:, 0].astype(np.int64), table[:, 1].astype(np.int64)
    return sparse.csr_array(sparse.coo_array((table[:, 2], (i, j)), shape=shape))


def kept_claim(wrong: int, told: str) -> Claim:
    """Whether a model keeps the graph it was given."""
    return bd.proved(
        *("graph_kept", bd.Number(float(wrong)), 0.0, told),
        missed=f"{wrong:,} of the weights kept differ from those of your data",
        theorem="compared entry by entry, with the verifier's own reading",
        fix="fit again, or restore the model file",
    )


def graph_claim(A: Any, wanted: Any) -> Claim:
    """Whether the weights kept are those of a graph."""
    told = f"the {A.nnz:,} weights kept are those of your graph"
    return kept_claim(apart(A, wanted), told)


def apart(stored: Any, wanted: Any) -> int:
    """How many entries of two matrices differ by more than rounding."""
    if stored.shape != wanted.shape:
        return max(1, int(stored.shape[0]))
    gap = abs(sparse.csr_array(stored) - sparse.csr_array(wanted))
    top = float(wanted.data.max()) if wanted.nnz else 1.0
    return int((gap.data > 1e-10 * top).sum())


def labels_of(y: Any, n: int, graph: Any) -> Any:
    """Labels as a line with −1 where there is none; a dict names nodes."""
    if not isinstance(y, Mapping):
        return y
    line = np.full(n, UNKNOWN, dtype=object)
    for i, label in _by_place(y, n, graph):
        line[i] = label
    return line


def starts_of(y: Any, n: int, graph: Any) -> Array:
    """Weights of nodes at which walks begin; a dict names nodes."""
    v = np.zeros(n)
    if isinstance(y, Mapping):
        for i, weight in _by_place(y, n, graph):
            v[i] = float(weight)
    else:
        v = as_numbers(y)
    if v.shape != (n,) or not np.isfinite(v).all() or v.min() < 0 or not v.any():
        raise ValueError(f"y must hold a weight for each of the {n} nodes, not all 0.")
    return v


def _by_place(y: Mapping[Any, Any], n: int, graph: Any) -> list[tuple[int, Any]]:
    """Entries of a dict by the numbers of its nodes."""
    named = hasattr(graph, "nodes") and hasattr(graph, "edges")
    place = {name: i for i, name in enumerate(graph.nodes if named else range(n))}
    odd = [name for name in y if name not in place]
    if odd:
        told = f"y names the node {odd[0]!r}, which is not in the graph you passed."
        raise ValueError(f"{told} Pass (X, graph) as X, or labels as an array.")
    return [(place[name], value) for name, value in y.items()]


def label_codes(y: Any, model: Fit, n: int) -> Array:
    """Places of labels among the model's classes, −1 where there is none."""
    if y is None or np.shape(y) != (n,):
        raise ValueError(
            f"y must have one label for each of the {n} nodes, -1 where it is not "
            "known: pass the labels the model was fitted on."
        )
    line: Any = np.asarray(y)
    classes = np.asarray(model.classes_)
    known = np.array([label is not None for label in line.tolist()])
    if line.dtype.kind in "biufO" and not any(map(_is_unknown, classes.tolist())):
        known &= np.not_equal(line, UNKNOWN).astype(bool)
    codes = np.full(n, UNKNOWN, dtype=np.int64)
    chosen = line[known]
    chosen = np.array(chosen.tolist()) if chosen.dtype.kind == "O" else chosen
    if known.any():
        codes[known] = reading.codes(chosen, classes)
    return codes


def _is_unknown(label: Any) -> bool:
    return not isinstance(label, str) and bool(label == UNKNOWN)
