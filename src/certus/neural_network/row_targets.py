"""Classes and numbers as the targets of a network, and the predictions made from them.

Mixins of :class:`certus.neural_network.estimator.NeuralModel`: an estimator is one for
X, one for y, its parameters and ``fit``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Self

import numpy as np
import torch
from scipy import sparse
from sklearn.base import ClassifierMixin, RegressorMixin
from sklearn.metrics import accuracy_score, r2_score
from sklearn.utils import assert_all_finite, column_or_1d
from torch import Tensor

from certus._core.rows import known_codes, labelled_weights, numeric_targets
from certus.base import as_array, class_codes
from certus.neural_network.estimator import NeuralModel
from certus.neural_network.objective import (
    Targets,
    binary_cross_entropy,
    cross_entropy,
    squared,
)
from certus.typing import ArrayLike, MatrixLike

Loss = Callable[[Tensor, Tensor], Tensor]


class ClassTargets(ClassifierMixin, NeuralModel):
    """Targets that are classes, several labels at once, or soft targets; abstract."""

    classes_: np.ndarray
    _kind: str  # "classes", "labels" or "soft"

    def _read_y(self, y: Any, reset: bool) -> Targets:
        y = _as_array(self, y)
        if y.ndim == 2 and y.shape[1] > 1:
            return self._read_table(y, reset)
        if not reset and self._kind != "classes":
            raise ValueError(
                f"y has one column, but the model was fitted on {len(self.classes_)}."
            )
        y = column_or_1d(y, warn=True)
        if y.dtype.kind in "fO":
            assert_all_finite(y, input_name="y")
        if reset:
            self.classes_, codes = class_codes(y)
            self._kind = "classes"
        else:
            codes = known_codes(y, self.classes_)
        smoothing = self.label_smoothing

        def loss(z: Tensor, t: Tensor) -> Tensor:
            if z.ndim == 1 or z.shape[1] == 1:
                return binary_cross_entropy(z, t, smoothing)
            return cross_entropy(z, t, smoothing)

        t = torch.as_tensor(codes, dtype=torch.int64)
        return Targets(t, own_loss(self, loss), len(self.classes_), codes)

    def _read_table(self, y: np.ndarray, reset: bool) -> Targets:
        """Zeros and ones of several labels, or a distribution over classes a row."""
        y = numeric_targets(y, len(y))
        binary = bool(np.isin(y, (0.0, 1.0)).all())
        shares = bool(np.allclose(y.sum(axis=1), 1.0) and (y >= 0).all())
        if not binary and not shares:
            raise ValueError(
                "If y has several columns, they must hold zeros and ones, one column "
                "for each label, or the probabilities of the classes in each row."
            )
        if reset:
            self.classes_ = np.arange(y.shape[1])
            self._kind = "labels" if binary else "soft"
        if self._kind == "classes" or y.shape[1] != len(self.classes_):
            columns = 1 if self._kind == "classes" else len(self.classes_)
            raise ValueError(
                f"y has {y.shape[1]} columns, but the model was fitted on {columns}."
            )
        kind = cross_entropy if self._kind == "soft" else binary_cross_entropy
        smoothing = self.label_smoothing
        loss = own_loss(self, lambda z, t: kind(z, t, smoothing))
        return Targets(torch.as_tensor(y), loss, y.shape[1])

    def _misfit(self, z: Tensor, targets: Targets) -> str:
        n, k = len(z), targets.outputs
        if z.shape == (n, k):
            shares = k > 1 and self._kind != "labels" and bool((z >= 0).all())
            shares = shares and torch.allclose(z.sum(dim=1), z.new_ones(n), atol=1e-5)
            own = callable(getattr(self, "loss", None))
            return "scores, not the probabilities of a softmax" * (shares and not own)
        if self._kind == "classes" and k == 2:
            fits = z.shape in ((n,), (n, 1))
            return "" if fits else f"shape {(n, 2)} or {(n, 1)}, scores of the classes"
        return f"shape {(n, k)}, a score for each class"

    def _row_weights(
        self, targets: Targets, sample_weight: ArrayLike | None
    ) -> np.ndarray | None:
        if self.class_weight is None:
            return super()._row_weights(targets, sample_weight)
        codes = targets.groups
        if codes is None:
            raise ValueError(
                "class_weight needs one class for each row, but y has several "
                "columns. Use sample_weight."
            )
        rule = self.class_weight
        return labelled_weights(sample_weight, rule, codes, self.classes_)

    def _grade(self, z: Tensor, y: Tensor, s: Tensor | None) -> float:
        if self._kind == "soft":
            y = y.argmax(dim=1)
        found = self._decide(as_array(z))
        weight = as_array(s)
        return float(accuracy_score(as_array(y), found, sample_weight=weight))

    def _probabilities(self, z: np.ndarray) -> np.ndarray:
        t = torch.as_tensor(z)
        if self._kind == "labels":
            return torch.sigmoid(t).numpy()
        if t.ndim == 1 or t.shape[1] == 1:
            p = torch.sigmoid(t.reshape(-1, 1))
            return torch.cat([1 - p, p], dim=1).numpy()
        return torch.softmax(t, dim=1).numpy()

    def _decide(self, z: np.ndarray) -> np.ndarray:
        """Labels, or places of classes, by the scores."""
        if self._kind == "labels":
            return (z > 0).astype(int)
        if z.ndim == 1 or z.shape[1] == 1:
            return (z.reshape(-1) > 0).astype(int)
        if z.shape[1] == 2:  # as below, without a loop over rows
            return (z[:, 1] > z[:, 0]).astype(int)
        return z.argmax(axis=1)

    def partial_fit(
        self,
        X: MatrixLike,
        y: ArrayLike,
        classes: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
    ) -> Self:
        """Make one epoch over these rows, with the optimiser of the last one.

        ``schedule`` and ``early_stopping`` belong to whole runs. No certificate is
        left; :func:`certus.certify` makes one.

        Parameters
        ----------
        X, y : array-like
            Rows and their classes.
        classes : array-like, optional
            All classes there will be; needed in the first call.
        sample_weight : array-like of shape (n_samples,), optional
            Row weights.

        Returns
        -------
        estimator
            Itself.
        """
        fresh = not hasattr(self, "module_")
        table = np.ndim(y) == 2 and np.shape(y)[1] > 1
        if fresh and not table:
            if classes is None:
                raise ValueError(
                    "classes must be passed on the first call to partial_fit: list "
                    "all classes that can occur."
                )
            self.classes_, _ = class_codes(np.unique(np.asarray(classes)))
            self._kind = "classes"
        elif classes is not None and not np.array_equal(
            np.unique(np.asarray(classes)), self.classes_
        ):
            raise ValueError(
                "classes must be the same as in the first call to partial_fit."
            )
        self._partial_fit(X, y, sample_weight, reset=fresh and table)
        return self

    def predict_proba(self, X: MatrixLike) -> np.ndarray:
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

    def predict(self, X: MatrixLike) -> np.ndarray:
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
        found = self._decide(self._outputs(X))
        return found if self._kind == "labels" else self.classes_[found]

    def score(
        self, X: MatrixLike, y: ArrayLike, sample_weight: ArrayLike | None = None
    ) -> float:
        """Share of rows predicted right; all labels of a row must be.

        Parameters
        ----------
        X, y : array-like
            Rows and their classes; of soft targets the largest counts.
        sample_weight : array-like of shape (n_samples,), optional
            Row weights.

        Returns
        -------
        float
            Accuracy.
        """
        found = self.predict(X)
        if self._kind == "soft" and np.ndim(y) == 2:
            y = self.classes_[np.argmax(np.asarray(y), axis=1)]
        return float(accuracy_score(y, found, sample_weight=sample_weight))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_label = True
        return tags


class NumberTargets(RegressorMixin, NeuralModel):
    """Targets that are numbers, one or several a row; abstract."""

    def _read_y(self, y: ArrayLike, reset: bool) -> Targets:
        y = _as_array(self, y)
        try:
            if y.dtype.kind == "c":
                raise TypeError
            y = y.astype(np.float64)
        except (TypeError, ValueError):
            raise ValueError(
                "y must hold numbers, because this model is a regressor."
            ) from None
        assert_all_finite(y, input_name="y")
        table = y.reshape(len(y), -1)
        if reset:
            self._flat, self._columns = y.ndim == 1, table.shape[1]
        elif table.shape[1] != self._columns:
            raise ValueError(
                f"y has {table.shape[1]} columns, but the model was fitted on "
                f"{self._columns}."
            )
        loss = own_loss(self, squared, alike=True)
        return Targets(torch.as_tensor(table), loss, table.shape[1])

    def _misfit(self, z: Tensor, targets: Targets) -> str:
        n, k = len(z), targets.outputs
        fits = z.shape == (n, k) or (k == 1 and z.shape == (n,))
        return "" if fits else f"shape {(n, k)}, as y has {k} column{'s'[: k != 1]}"

    def _grade(self, z: Tensor, y: Tensor, s: Tensor | None) -> float:
        weight = as_array(s)
        found, wanted = as_array(z.reshape(y.shape)), as_array(y)
        constant = np.ptp(wanted, axis=0).min() == 0
        if constant or not np.isfinite(found).all():
            return float("nan")  # then the loss decides
        return float(r2_score(wanted, found, sample_weight=weight))

    def partial_fit(
        self, X: MatrixLike, y: ArrayLike, sample_weight: ArrayLike | None = None
    ) -> Self:
        """Make one epoch over these rows, with the optimiser of the last one.

        ``schedule`` and ``early_stopping`` belong to whole runs. No certificate is
        left; :func:`certus.certify` makes one.

        Parameters
        ----------
        X, y : array-like
            Rows and their targets.
        sample_weight : array-like of shape (n_samples,), optional
            Row weights.

        Returns
        -------
        estimator
            Itself.
        """
        fresh = not hasattr(self, "module_")
        self._partial_fit(X, y, sample_weight, reset=fresh)
        return self

    def predict(self, X: MatrixLike) -> np.ndarray:
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
        z = self._outputs(X)
        return z.reshape(-1) if self._flat else z.reshape(len(z), -1)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags


def own_loss(model: NeuralModel, default: Loss, alike: bool = False) -> Loss:
    """The user's own loss, if there is one, its mean over outputs; else the default.

    ``alike`` gives it targets in the shape of the outputs.
    """
    own = getattr(model, "loss", None)
    if not callable(own):
        return default

    def loss(z: Tensor, y: Tensor) -> Tensor:
        rows = own(z, y.reshape(z.shape) if alike else y)
        several = isinstance(rows, Tensor) and rows.ndim > 1 and len(rows) == len(z)
        return rows.reshape(len(rows), -1).mean(dim=1) if several else rows

    return loss


def _as_array(model: NeuralModel, y: Any) -> np.ndarray:
    """Targets as an array of one or two axes."""
    if y is None:
        raise ValueError(
            f"{type(model).__name__} requires y to be passed, but the target y is None."
        )
    y = as_array(y)
    y = np.asarray(y.toarray() if sparse.issparse(y) else y)
    if y.ndim not in (1, 2) or y.size == 0:
        raise ValueError(f"y has shape {y.shape}; pass one target for each row of X.")
    return y
