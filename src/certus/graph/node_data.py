"""Nodes as the rows of a network: their features, the graph, and what outputs need.

A layer of a network reads the neighbours of a node, so L layers read what is within L
edges. For the nodes of a batch only those are computed: the matrix of each layer is cut
to the nodes that the layers above it read. Gradients are the same.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
from scipy import sparse
from torch import Tensor

from certus.graph.filters import mean_of_neighbours, mixed, renormalized, with_loops
from certus.typing import Array, CompressedMatrix, DTypeLike, Matrix


class NodeRows:
    """Some nodes of a graph, in the order of rows.

    Parameters
    ----------
    A : csr_array
        Adjacency.
    X : array, sparse matrix or None
        Features of all nodes; None for a feature of its own for each node.
    nodes : ndarray
        Numbers of the nodes.
    """

    def __init__(self, A: CompressedMatrix, X: Matrix | None, nodes: Array) -> None:
        self.A, self.X, self.nodes = A, X, nodes

    def __len__(self) -> int:
        """How many rows there are."""
        return len(self.nodes)

    def __getitem__(self, rows: Array) -> NodeRows:
        """Some of the nodes, in the same graph."""
        return NodeRows(self.A, self.X, self.nodes[rows])

    @property
    def shape(self) -> tuple[int, int]:
        """Nodes and features."""
        return len(self.nodes), self.A.shape[0] if self.X is None else self.X.shape[1]

    def __array__(
        self, dtype: DTypeLike | None = None, copy: bool | None = None
    ) -> Array:
        """All numbers in one line, for the fingerprint of a checkpoint."""
        X: Any = np.zeros(0) if self.X is None else self.X
        if sparse.issparse(X):
            X = np.r_[X.data, X.indices, X.indptr]
        parts = (self.A.data, self.A.indices, self.A.indptr, np.ravel(X), self.nodes)
        return np.concatenate([np.asarray(part, np.float64) for part in parts])

    def features(self) -> Any:
        """The features, sparse where each node has one of its own."""
        return (
            sparse.eye_array(self.A.shape[0], format="csr")
            if self.X is None
            else (self.X)
        )


class MixingMatrix(NamedTuple):
    """The matrix that the layers of a kind mix nodes by, and mixed features."""

    M: Any
    Z: Any


def mixing_of(layer: str, A: CompressedMatrix, X: Any) -> MixingMatrix:
    """What a kind of layer needs of a graph."""
    if layer == "gcn":
        Q = renormalized(A)
        return MixingMatrix(Q, mixed(Q, X, 1))
    if layer == "sage":
        M = mean_of_neighbours(A)
        both = (X, mixed(M, X, 1))
        thin = sparse.issparse(X)
        return MixingMatrix(M, sparse.hstack(both, "csr") if thin else np.hstack(both))
    return MixingMatrix(with_loops(A), X)


class NodeInputs:
    """What a network is called with for some of the rows.

    Parameters
    ----------
    rows : NodeRows
        The nodes.
    layer : str
        Kind of the layers.
    depth : int
        Number of layers.
    dtype, device
        Those of the module.
    """

    def __init__(
        self,
        rows: NodeRows,
        layer: str,
        depth: int,
        dtype: torch.dtype,
        device: torch.device | str,
    ) -> None:
        self.nodes = rows.nodes
        self.mixing = mixing_of(layer, rows.A, rows.features())
        #: Layers that read neighbours; the first reads mixed features.
        self.blocks = depth if layer == "gat" else depth - 1
        self.dtype, self.device = dtype, device
        self.together = max(1, len(rows.nodes))
        self._known: tuple[Array, tuple[Tensor, ...]] | None = None

    def __len__(self) -> int:
        """How many rows there are."""
        return len(self.nodes)

    def __getitem__(self, rows: Tensor | slice) -> tuple[Tensor, ...]:
        """Features, matrices of the layers, and the places of these rows."""
        nodes = self.nodes[_index(rows)]
        if self._known is None or not np.array_equal(self._known[0], nodes):
            asked, places = np.unique(nodes, return_inverse=True)
            if np.array_equal(places, np.arange(len(asked))):
                places = places[:0]  # all, in their order
            last = torch.from_numpy(places).to(self.device)
            self._known = nodes, (*self._field(asked), last)
        return self._known[1]

    def _field(self, nodes: Array) -> list[Tensor]:
        """From the last layer down: which nodes are read, and by what weights."""
        parts: list[Tensor] = []
        everything = len(nodes) == self.mixing.M.shape[0]
        for _ in range(self.blocks):
            M = self.mixing.M if everything else self.mixing.M[nodes]
            read = nodes if everything else np.union1d(nodes, M.indices)
            M = M if everything else M[:, read]
            own = torch.from_numpy(np.searchsorted(read, nodes))
            parts = [own.to(self.device), *self._matrix(M), *parts]
            nodes = read
        Z = (
            self.mixing.Z[nodes]
            if len(nodes) < self.mixing.Z.shape[0]
            else (self.mixing.Z)
        )
        if sparse.issparse(Z):
            empty, none = torch.zeros(0, dtype=self.dtype), torch.zeros(0).long()
            return [empty, none, *self._matrix(Z), *parts]
        return [torch.from_numpy(np.ascontiguousarray(Z)).to(self.dtype), *parts]

    def _matrix(self, M: CompressedMatrix) -> list[Tensor]:
        """A matrix in CSR and its transpose in CSR."""
        M = sparse.csr_array(M)
        found = []
        for A in (M, sparse.csr_array(M.T)):
            found += [torch.from_numpy(A.indptr.astype(np.int64))]
            found += [torch.from_numpy(A.indices.astype(np.int64))]
            found += [torch.from_numpy(A.data).to(self.dtype)]
        return [part.to(self.device) for part in found]


class WholeBatch:
    """One batch of all rows, in the same order in each epoch."""

    def __init__(self, chosen: Tensor) -> None:
        self.chosen = chosen

    def __len__(self) -> int:
        """How many batches an epoch has."""
        return 1

    def __call__(self, rng: np.random.Generator) -> list[Tensor]:
        """Row numbers of the batch."""
        return [self.chosen]


def _index(rows: Array | Tensor | slice) -> Any:
    return rows.cpu().numpy() if isinstance(rows, Tensor) else rows
