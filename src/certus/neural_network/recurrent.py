"""Code that estimators with a recurrent network share: read X, build, inspect.

X holds sequences of any length, whose elements are tokens or numbers; see
:mod:`certus.neural_network.ragged` for the forms it may have.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from scipy import sparse
from sklearn.utils.validation import check_is_fitted
from torch import nn

from certus.base import (
    as_array,
    check_choice,
    check_number,
    require_outputs,
    validate_data,
)
from certus.neural_network.batches import RaggedInputs
from certus.neural_network.estimator import NeuralModel
from certus.neural_network.modules import rnn
from certus.neural_network.objective import Targets
from certus.neural_network.ragged import holds_tokens, is_table, listed, read_numbers
from certus.neural_network.tokens import numbered, read_sequences, tokens_of
from certus.neural_network.wrapping import dtype_of, evaluating, outputs
from certus.typing import MatrixLike

#: Most numbers that stand for a token, unless the user says how many.
EMBEDDING = 64


class SequenceInput(NeuralModel):
    """Reads X as sequences, for a recurrent network; abstract."""

    module_: Any
    _width: int | None  # numbers at each step, if there are any

    def _read_X(self, X: MatrixLike, reset: bool) -> list[np.ndarray]:
        """Each sequence as (time,) numbers of tokens, or as (time, features)."""
        if X is None:
            raise ValueError(f"{type(self).__name__} needs X: a list of sequences.")
        X = as_array(X)
        table = is_table(X)
        cells = _rows_of_cells(X) if table else listed(X)
        if reset:
            for name in ("tokens_", "n_features_in_", "feature_names_in_"):
                self.__dict__.pop(name, None)
            tokens = self.embedding is not None
            if self.embedding == "auto":
                tokens = holds_tokens(_strings_of(cells) if table else cells)
            self._width = None
        else:
            tokens = hasattr(self, "tokens_")
        if tokens and not sparse.issparse(X):
            found = read_sequences(cells)
            if reset:
                self.tokens_ = tokens_of(found)
            return numbered(found, self.tokens_, first=1, unknown=0)
        if table:
            cells = self._read_array(X, reset)
        found = read_numbers(cells, self._width)
        self._width = found[0].shape[1]
        return found

    def _read_array(self, X: Any, reset: bool) -> Any:
        """An array of numbers as (samples, time, features)."""
        X = validate_data(
            self,
            X,
            dtype=[np.float64, np.float32],
            allow_nd=True,
            ensure_all_finite=False,  # _rows looks
            # A model fitted on a list of sequences has no number of steps.
            reset=reset or not hasattr(self, "n_features_in_"),
        )
        if X.ndim > 3:
            raise ValueError(
                "X must be an array of shape (samples, time) or (samples, time, "
                f"features), got {X.ndim} axes."
            )
        return X[:, :, None] if X.ndim == 2 else X

    def _rows(self, X: list[np.ndarray], module: nn.Module) -> RaggedInputs:
        tokens = X[0].dtype == np.int64
        return RaggedInputs(X, torch.int64 if tokens else dtype_of(module), self.device)

    def _build(self, X: list[np.ndarray], targets: Targets) -> nn.Module:
        tokens = hasattr(self, "tokens_")
        width: Any = len(self.tokens_) + 1 if tokens else self._width
        size = min(self.width, EMBEDDING)
        size = size if self.embedding == "auto" else self.embedding
        module = rnn.Recurrent(
            width,
            self.width,
            targets.outputs,
            cell=self.cell,
            n_layers=self.n_layers,
            bidirectional=self.bidirectional,
            dropout=self.dropout,
            embedding=size if tokens else None,
            pooling=self._pooling(),
        )
        module.remember(max(len(x) for x in X))
        return module.double() if X[0].dtype == np.float64 else module

    def _pooling(self) -> str | None:
        return self.pooling

    def _outputs(self, X: MatrixLike) -> np.ndarray:
        check_is_fitted(self, "module_")
        rows = self._rows(self._read_X(X, reset=False), self.module_)
        if rows.even:
            z = outputs(self.module_, rows)
        else:
            parts = rows.blocks()
            with evaluating(self.module_), torch.inference_mode():
                z = torch.cat([self.module_(*rows[part]) for part in parts])
            z = z[torch.cat(parts).argsort()]
        found = z.cpu().numpy()
        require_outputs(found)
        return found

    def gates(
        self, X: MatrixLike, layer: int = 0, backwards: bool = False
    ) -> list[dict[str, np.ndarray]]:
        """What happens inside the network at each step of each sequence.

        Parameters
        ----------
        X : list of sequences, or array
            Sequences like those of the fit.
        layer : int, default=0
            Which of the layers.
        backwards : bool, default=False
            Which reading, where there are two.

        Returns
        -------
        list of dict of ndarray of shape (time, hidden)
            For each sequence "forget", "input", "output", "candidate", "memory" and
            "state" of an LSTM; "update", "reset", "candidate" and "state" of a GRU;
            "state" of an Elman network.
        """
        check_is_fitted(self, "module_")
        check_number("layer", layer, 0, len(self.module_.layers) - 1, integer=True)
        if backwards and not self.module_.config["bidirectional"]:
            raise ValueError(
                "The network reads in one direction only; set bidirectional=True."
            )
        rows = self._rows(self._read_X(X, reset=False), self.module_)
        found: list[dict[str, np.ndarray]] = [{} for _ in range(len(rows))]
        for part in rows.blocks():
            x, lengths = rows[part]
            values = self.module_.gates(x, lengths, layer, backwards)
            for name, value in values.items():
                for i, row, n in zip(part.tolist(), value, lengths.tolist()):
                    found[i][name] = row[:n].cpu().numpy()
        return found

    def _check_training(self) -> None:
        super()._check_training()
        check_number("width", self.width, 1, integer=True)
        check_choice("cell", self.cell, tuple(rnn.LAYERS))
        check_number("n_layers", self.n_layers, 1, integer=True)
        check_number("dropout", self.dropout, 0, 1)
        if self.embedding != "auto":
            check_number("embedding", self.embedding, 1, integer=True, none=True)
        check_choice("pooling", self._pooling(), ("last", "mean", None))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = False
        tags.input_tags.three_d_array = True
        tags.input_tags.string = True
        return tags


def _rows_of_cells(X: MatrixLike) -> Any:
    """A table as an array of its rows, where its cells are tokens."""
    return X if sparse.issparse(X) else np.asarray(X)


def _strings_of(X: Any) -> Any:
    """The first row of a table if its first cell is a string; else empty."""
    if X.dtype.kind not in "OUST" or X.ndim != 2 or not X.size:
        return []
    return [X[0]] if isinstance(X[0, 0], str) else []
