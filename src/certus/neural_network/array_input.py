"""Arrays as the rows of a network: dense of two or more axes, or sparse matrices.

A mixin of :class:`certus.neural_network.estimator.NeuralModel`. Where a module begins
with an embedding, X holds whole numbers; else it is cast to the dtype of the module.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from scipy import sparse
from torch import nn
from torch.utils.data import DataLoader, Dataset

from certus.base import validate_data
from certus.neural_network.batches import DenseInputs, NetworkInputs, SparseInputs
from certus.neural_network.estimator import NeuralModel
from certus.neural_network.wrapping import dtype_of
from certus.typing import Matrix, MatrixLike

#: Kinds of arrays that torch knows; others are made float64.
KINDS = (np.float64, np.float32, np.uint8, np.int32, np.int64)


class ArrayInput(NeuralModel):
    """Reads X as an array of two or more axes, or as a sparse matrix; abstract."""

    def _read_X(self, X: MatrixLike, reset: bool) -> Any:
        _require_one_array(X)
        return validate_data(
            self,
            X,
            accept_sparse="csr",
            dtype=KINDS,
            allow_nd=True,
            ensure_all_finite=False,
            reset=reset,
        )

    def _rows(self, X: Matrix, module: nn.Module) -> NetworkInputs:
        entries = looked_up(module)
        if entries is not None:
            _require_places(X, entries)
        dtype = dtype_of(module) if entries is None else torch.int64
        kind = SparseInputs if sparse.issparse(X) else DenseInputs
        return kind(X, dtype, self.device)

    def _raw_function(self, shape: tuple[int, ...]) -> nn.Module | None:
        return self.module_ if looked_up(self.module_) is None else None


def _require_one_array(X: MatrixLike) -> None:
    """Raise an error for input that torch's loops accept and an estimator does not."""
    if isinstance(X, Dataset | DataLoader):
        raise TypeError(
            f"X is a {type(X).__name__}. Pass its arrays as X and y; fit makes "
            "batches of batch_size rows itself."
        )
    parts = X if isinstance(X, list | tuple) else ()
    shapes = {np.shape(part) for part in parts if hasattr(part, "shape")}
    named = isinstance(X, dict) and not sparse.issparse(X)  # as one of SciPy's is
    if named or len(shapes) > 1:
        raise TypeError(
            "X must be one array. Put several inputs side by side as columns and let "
            "the module split them. For sequences of different lengths use "
            "RecurrentClassifier or RecurrentRegressor."
        )


def looked_up(module: nn.Module) -> int | None:
    """Number of entries of the embedding that a module begins with, if it has one."""
    parts = (m for m in module.modules() if next(m.parameters(False), None) is not None)
    first = next(parts, None)
    if isinstance(first, nn.Embedding | nn.EmbeddingBag):
        return int(first.num_embeddings)
    return None


def _require_places(X: Any, entries: int) -> None:
    values = X.data if sparse.issparse(X) else X
    whole = values.dtype.kind in "iu" or bool(np.all(values == np.floor(values)))
    if not whole or values.min() < 0 or values.max() >= entries:
        raise ValueError(
            "The module begins with an embedding, so X must hold whole numbers from "
            f"0 to {entries - 1}. Number the words that way, or enlarge the embedding."
        )
