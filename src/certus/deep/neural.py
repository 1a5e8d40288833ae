"""Your own module as a classifier or a regressor."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import torch
from scipy import sparse
from sklearn.base import ClassifierMixin, RegressorMixin
from sklearn.metrics import accuracy_score, r2_score
from sklearn.utils.class_weight import compute_sample_weight
from sklearn.utils.validation import check_is_fitted
from torch import Tensor, nn

from certus.base import certified_fit, label_codes, require_finite, validate_data
from certus.deep.batches import DenseRows, Rows, SparseRows
from certus.deep.estimator import NeuralModel, Targets
from certus.deep.objective import binary_cross_entropy, cross_entropy, squared


class ArrayInput(NeuralModel):
    """Reads X as an array of two or more axes, or as a sparse matrix; abstract."""

    def _read_X(self, X: Any, reset: bool) -> Any:
        if isinstance(X, Tensor):
            if not X.is_floating_point():
                return X  # numbers of words and the like, for the module to look up
            X = X.detach().cpu().numpy()
        X = validate_data(
            self,
            X,
            accept_sparse="csr",
            dtype=[np.float64, np.float32],
            allow_nd=True,
            ensure_all_finite=False,
            reset=reset,
        )
        if sparse.issparse(X) or X.ndim == 2:
            require_finite(X, type(self).__name__)
        elif not np.isfinite(X).all():
            raise ValueError("X contains NaN or infinity. Fill or drop them first.")
        return X

    def _rows(self, X: Any, module: nn.Module) -> Rows:
        dtype = next((p.dtype for p in module.parameters()), torch.float32)
        kind = SparseRows if sparse.issparse(X) else DenseRows
        return kind(X, dtype, self.device)

    def _build(self, X: Any, targets: Targets) -> nn.Module:
        if isinstance(self.module, nn.Module):
            return copy.deepcopy(self.module)
        return self.module(int(X.shape[1]), targets.outputs)


class Classes(ClassifierMixin, NeuralModel):
    """Targets that are classes, several labels at once, or soft targets; abstract."""

    def _read_y(self, y: Any, reset: bool) -> Targets:
        y = np.asarray(y)
        if y.ndim == 2 and y.shape[1] > 1:
            return self._read_table(y, reset)
        y = y.ravel()
        if reset:
            self.classes_, codes = label_codes(y)
            self._kind = "classes"
        else:
            codes = np.searchsorted(self.classes_, y).clip(max=len(self.classes_) - 1)
            unseen = np.setdiff1d(y, self.classes_)
            if len(unseen):
                raise ValueError(
                    f"y holds the class {unseen[0]!r}, which was not among those of "
                    "the fit."
                )
        smoothing = self.label_smoothing

        def loss(z: Tensor, t: Tensor) -> Tensor:
            if z.ndim == 1 or z.shape[1] == 1:
                return binary_cross_entropy(z, t, smoothing)
            return cross_entropy(z, t, smoothing)

        return Targets(torch.as_tensor(codes), loss, len(self.classes_), codes)

    def _read_table(self, y: np.ndarray, reset: bool) -> Targets:
        """Zeros and ones of several labels, or a distribution over classes a row."""
        y = np.asarray(y, dtype=np.float64)
        soft = np.allclose(y.sum(axis=1), 1.0) and not np.isin(y, (0.0, 1.0)).all()
        if (not soft and not np.isin(y, (0.0, 1.0)).all()) or (y < 0).any():
            raise ValueError(
                "A y of several columns holds zeros and ones, one column for each "
                "label, or a distribution over classes in each row."
            )
        if reset:
            self.classes_ = np.arange(y.shape[1])
            self._kind = "soft" if soft else "labels"
        smoothing = self.label_smoothing
        kind = cross_entropy if self._kind == "soft" else binary_cross_entropy
        table = torch.as_tensor(y, dtype=torch.float32)
        return Targets(table, lambda z, t: kind(z, t, smoothing), y.shape[1])

    def _row_weights(self, y: Any, sample_weight: Any, n: int) -> Tensor | None:
        s = super()._row_weights(y, sample_weight, n)
        if self.class_weight is None:
            return s
        by_class = compute_sample_weight(self.class_weight, y)
        factor = torch.as_tensor(by_class, dtype=torch.float32).to(self.device)
        return factor if s is None else s * factor

    def _grade(self, z: Tensor, y: Tensor, s: Tensor | None) -> float:
        if self._kind == "soft":
            y = y.argmax(dim=1)
        found = self._decide(self._probabilities(z.cpu().numpy()))
        weight = None if s is None else s.cpu().numpy()
        return float(accuracy_score(y.cpu().numpy(), found, sample_weight=weight))

    def _probabilities(self, z: np.ndarray) -> np.ndarray:
        t = torch.as_tensor(z)
        if self._kind == "labels":
            return torch.sigmoid(t).numpy()
        if t.ndim == 1 or t.shape[1] == 1:
            p = torch.sigmoid(t.reshape(-1, 1))
            return torch.cat([1 - p, p], dim=1).numpy()
        return torch.softmax(t, dim=1).numpy()

    def _decide(self, p: np.ndarray) -> np.ndarray:
        return (p > 0.5).astype(int) if self._kind == "labels" else p.argmax(axis=1)

    def predict_proba(self, X: Any) -> np.ndarray:
        """Probabilities of the classes; of each label, where there are several.

        Parameters
        ----------
        X : array-like
            Rows like those of the fit.

        Returns
        -------
        ndarray of shape (n_samples, n_classes)
            In the order of ``classes_``.
        """
        return self._probabilities(self._outputs(X))

    def predict(self, X: Any) -> np.ndarray:
        """The most probable class of each row, or its labels as zeros and ones.

        Parameters
        ----------
        X : array-like
            Rows like those of the fit.

        Returns
        -------
        ndarray of shape (n_samples,) or (n_samples, n_labels)
            Classes.
        """
        found = self._decide(self.predict_proba(X))
        return found if self._kind == "labels" else self.classes_[found]


class Numbers(RegressorMixin, NeuralModel):
    """Targets that are numbers, one or several a row; abstract."""

    def _read_y(self, y: Any, reset: bool) -> Targets:
        y = np.asarray(y, dtype=np.float64)
        if not np.isfinite(y).all():
            raise ValueError("Input y contains NaN or infinity. Drop those rows.")
        if reset:
            self._flat = y.ndim == 1
        table = y.reshape(len(y), -1)
        dtype = torch.float32
        return Targets(torch.as_tensor(table, dtype=dtype), squared, table.shape[1])

    def _grade(self, z: Tensor, y: Tensor, s: Tensor | None) -> float:
        weight = None if s is None else s.cpu().numpy()
        found = z.reshape(y.shape).cpu().numpy()
        if len(y) < 2 or not np.isfinite(found).all():
            return float("nan")
        return float(r2_score(y.cpu().numpy(), found, sample_weight=weight))

    def predict(self, X: Any) -> np.ndarray:
        """Predicted numbers.

        Parameters
        ----------
        X : array-like
            Rows like those of the fit.

        Returns
        -------
        ndarray of shape (n_samples,) or (n_samples, n_outputs)
            As y was given.
        """
        check_is_fitted(self, "module_")
        z = self._outputs(X)
        return z.reshape(-1) if self._flat else z.reshape(len(z), -1)


class NeuralClassifier(ArrayInput, Classes):
    """Trains your own module to tell classes apart.

    Parameters
    ----------
    module : nn.Module or callable
        A module, of which a copy is trained from its present weights; or
        ``module(n_inputs, n_outputs)``, which makes one.
    """

    def __init__(
        self,
        module: Any,
        *,
        optimizer: Any = "adam",
        learning_rate: float = 1e-3,
        schedule: Any = None,
        warmup: float = 0.0,
        weight_decay: float = 0.0,
        label_smoothing: float = 0.0,
        class_weight: Any = None,
        augment: Any = None,
        clip: float | None = None,
        average: Any = None,
        batch_size: int | None = 128,
        max_iter: int = 100,
        tol: float = 1e-4,
        n_iter_no_change: int = 10,
        early_stopping: bool = False,
        validation_fraction: float = 0.1,
        max_time: float | None = None,
        checkpoint: Any = None,
        warm_start: bool = False,
        device: str = "cpu",
        random_state: Any = None,
    ) -> None:
        self.module = module
        self.optimizer = optimizer
        self.learning_rate = learning_rate
        self.schedule = schedule
        self.warmup = warmup
        self.weight_decay = weight_decay
        self.label_smoothing = label_smoothing
        self.class_weight = class_weight
        self.augment = augment
        self.clip = clip
        self.average = average
        self.batch_size = batch_size
        self.max_iter = max_iter
        self.tol = tol
        self.n_iter_no_change = n_iter_no_change
        self.early_stopping = early_stopping
        self.validation_fraction = validation_fraction
        self.max_time = max_time
        self.checkpoint = checkpoint
        self.warm_start = warm_start
        self.device = device
        self.random_state = random_state

    @certified_fit
    def fit(
        self,
        X: Any,
        y: Any,
        sample_weight: Any = None,
        *,
        X_val: Any = None,
        y_val: Any = None,
    ) -> Any:
        """Train."""
        return self._fit(X, y, sample_weight, X_val, y_val)
