"""Targets that are sequences of classes, one for each element of X.

    Σᵢₜ sᵢ ℓ(yᵢᵗ, zᵢᵗ) / Σᵢₜ sᵢ

with the cross entropy ℓ: a sequence weighs as much as its elements together. Beyond the
end of a sequence nothing is asked.
"""

from __future__ import annotations

import math
from typing import Any, Self

import numpy as np
import torch
from sklearn.utils.validation import check_is_fitted
from torch import Tensor
from torch.nn import functional as F

from certus._core.rows import known_codes, labelled_weights, row_weights
from certus.base import check_number, class_codes, require_outputs
from certus.neural_network.batches import HeldOut
from certus.neural_network.estimator import NeuralModel
from certus.neural_network.objective import Targets
from certus.neural_network.ragged import listed
from certus.neural_network.run import TrainingRun
from certus.neural_network.tokens import NOTHING
from certus.neural_network.wrapping import evaluating
from certus.typing import ArrayLike, MatrixLike


class Tags(NeuralModel):
    """Reads y as a class for each element, and predicts such; abstract."""

    module_: Any
    classes_: np.ndarray

    def _read_y(self, y: ArrayLike, reset: bool) -> Targets:
        labels = read_labels(y)
        full = [part for part in labels if len(part)]
        line = np.concatenate(full) if full else np.empty(0)
        if not len(line):
            raise ValueError("y holds no labels: all sequences are empty.")
        if reset:
            self.classes_, codes = class_codes(line)
        else:
            codes = known_codes(line, self.classes_)
        padded = torch.nn.utils.rnn.pad_sequence(
            torch.as_tensor(codes).split([len(part) for part in labels]),
            batch_first=True,
            padding_value=NOTHING,
        )
        small = len(self.classes_) < np.iinfo(np.int16).max
        by_class = torch.as_tensor(self._weights_of_classes(codes))
        smoothing = self.label_smoothing

        def loss(z: Tensor, t: Tensor) -> Tensor:
            return element_loss(z, t, by_class.to(z), smoothing)

        k = len(self.classes_)
        return Targets(padded.to(torch.int16 if small else torch.int64), loss, k)

    def _weights_of_classes(self, codes: np.ndarray) -> np.ndarray:
        """The weight of an element of each class; 1 where there is none."""
        found = np.ones(len(self.classes_))
        if self.class_weight is not None:
            rule = self.class_weight
            found[codes] = labelled_weights(None, rule, codes, self.classes_)
        return found

    def _row_weights(
        self, targets: Targets, sample_weight: ArrayLike | None
    ) -> np.ndarray:
        """A sequence weighs as much as its elements together."""
        n = len(targets.y)
        s = row_weights(sample_weight, n)
        present = targets.y >= 0
        by_class = self._weights_of_classes(targets.y[present].numpy())
        of_element = torch.as_tensor(by_class)[targets.y.clamp(min=0).long()]
        s = s * torch.where(present, of_element, 0).sum(dim=1).numpy()
        if not s.any():
            raise ValueError(
                "class_weight and sample_weight leave no element with a positive "
                "weight."
            )
        return s

    def _require_pairs(
        self, rows: Any, targets: Targets, X: str = "X", y: str = "y"
    ) -> None:
        super()._require_pairs(rows, targets, X, y)
        _require_equal(rows.lengths, (targets.y >= 0).sum(dim=1), X, y)

    def _evaluator(self, held: HeldOut, targets: Targets) -> Any:
        def evaluate(run: TrainingRun) -> dict[str, float]:
            module, total, right, weight = run.final(), 0.0, 0.0, 0.0
            size = getattr(held.rows, "together", len(held.rows))
            with evaluating(module), torch.no_grad():
                for i in range(0, len(held.rows), size):
                    part = slice(i, i + size)
                    z, y = module(*held.rows[part]), held.y[part]
                    inside = (y >= 0).sum(dim=1).to(z)
                    s = inside if held.s is None else held.s[part]
                    y = y[:, : z.shape[1]]
                    hits = ((z.argmax(dim=2) == y) & (y >= 0)).sum(dim=1)
                    total += float(s @ targets.loss(z, y))
                    right += float(s @ (hits / inside.clamp(min=1)))
                    weight += float(s.sum())
            score, value = right / weight, total / weight
            return {
                "validation_loss": value,
                "validation_score": score,
                "criterion": -score if math.isfinite(value) else math.inf,
            }

        return evaluate

    def _check_training(self) -> None:
        super()._check_training()
        check_number("label_smoothing", self.label_smoothing, 0, 1)

    def partial_fit(
        self,
        X: Any,
        y: Any,
        classes: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
    ) -> Self:
        """Make one epoch over these sequences, with the optimiser of the last one.

        Tokens that the first call did not see stay unknown. No certificate is left;
        :func:`certus.certify` makes one.

        Parameters
        ----------
        X, y : list of sequences, or array
            Sequences and the classes of their elements.
        classes : array-like, optional
            All classes there will be; needed in the first call.
        sample_weight : array-like of shape (n_samples,), optional
            Row weights. There is one for each sequence.

        Returns
        -------
        estimator
            Itself.
        """
        if not hasattr(self, "module_"):
            if classes is None:
                raise ValueError(
                    "classes must be passed on the first call to partial_fit: list "
                    "all classes that can occur."
                )
            self.classes_, _ = class_codes(np.unique(np.asarray(classes)))
        elif classes is not None and not np.array_equal(
            np.unique(np.asarray(classes)), self.classes_
        ):
            raise ValueError(
                "classes must be the same as in the first call to partial_fit."
            )
        self._partial_fit(X, y, sample_weight, reset=False)
        return self

    def predict_proba(self, X: MatrixLike) -> list[np.ndarray]:
        """Probabilities of the classes of each element.

        Parameters
        ----------
        X : list of sequences, or array
            Sequences like those of the fit.

        Returns
        -------
        list of ndarray of shape (time, n_classes)
            In the order of ``classes_``.
        """
        check_is_fitted(self, "module_")
        rows: Any = self._rows(self._read_X(X, reset=False), self.module_)
        found: list[Any] = [None] * len(rows)
        with evaluating(self.module_), torch.inference_mode():
            for part in rows.blocks():
                x, lengths = rows[part]
                p = torch.softmax(self.module_(x, lengths), dim=2).cpu().numpy()
                for i, row, n in zip(part.tolist(), p, lengths.tolist()):
                    found[i] = row[:n].copy()
        require_outputs(np.array([p.sum() for p in found]))
        return found

    def predict(self, X: MatrixLike) -> list[np.ndarray]:
        """The most probable class of each element.

        Parameters
        ----------
        X : list of sequences, or array
            Sequences like those of the fit.

        Returns
        -------
        list of ndarray of shape (time,)
            Classes.
        """
        return [self.classes_[p.argmax(axis=1)] for p in self.predict_proba(X)]

    def score(
        self, X: MatrixLike, y: ArrayLike, sample_weight: ArrayLike | None = None
    ) -> float:
        """The share of elements predicted right.

        Parameters
        ----------
        X, y : list of sequences, or array
            Sequences and the classes of their elements.
        sample_weight : array-like of shape (n_samples,), optional
            Row weights. There is one for each sequence, which its elements share.

        Returns
        -------
        float
            Accuracy.
        """
        found, labels = self.predict(X), read_labels(y)
        _require_equal([len(p) for p in found], [len(p) for p in labels])
        s = row_weights(sample_weight, len(labels))
        right = np.array([np.sum(p == t) for p, t in zip(found, labels)])
        asked = np.array([len(t) for t in labels])
        if not s @ asked:
            raise ValueError("y holds no labels of positive weight to score by.")
        return float(s @ right / (s @ asked))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        tags.target_tags.one_d_labels = False
        tags.target_tags.multi_output = True
        return tags


def element_loss(z: Tensor, y: Tensor, by_class: Tensor, smoothing: float) -> Tensor:
    """The mean cross entropy of the elements of each sequence, weighted by class.

    ``z`` is (batch, time, classes) and ``y`` (batch, time or longer), negative beyond
    the end of a sequence. An empty one has the loss 0.
    """
    y = y[:, : z.shape[1]].long()
    each = F.cross_entropy(
        z.transpose(1, 2),
        y,
        ignore_index=NOTHING,
        reduction="none",
        label_smoothing=smoothing,
    )  # (batch, time)
    w = torch.where(y >= 0, by_class[y.clamp(min=0)], 0)
    total = w.sum(dim=1)
    return (w * each).sum(dim=1) / torch.where(total > 0, total, 1)


def read_labels(y: ArrayLike) -> list[np.ndarray]:
    """The labels of each sequence as an array; all of them one kind."""
    if y is None:
        raise ValueError("SequenceTagger needs y with a label for each element of X.")
    labels: list[np.ndarray] = []
    kinds: dict[str, int] = {}
    for i, part in enumerate(listed(y, "y")):
        a = np.asarray(list(part) if isinstance(part, str) else part)
        if a.ndim != 1 or (a.dtype.kind == "f" and not np.isfinite(a).all()):
            raise ValueError(
                f"The labels of sequence {i} are not one class for each element; they "
                f"have the shape {a.shape}."
                if a.ndim != 1
                else f"The labels of sequence {i} hold NaN or infinity."
            )
        if a.dtype == object and any(label is None for label in a):
            raise ValueError(f"The labels of sequence {i} hold None.")
        if len(a):
            kinds.setdefault("text" if a.dtype.kind in "UO" else "numbers", i)
        labels.append(a)
    if len(kinds) > 1:
        raise ValueError(
            f"Labels are strings in sequence {kinds['text']} and numbers in sequence "
            f"{kinds['numbers']}. Convert them to one type."
        )
    return labels


def _require_equal(found: Any, wanted: Any, X: str = "X", y: str = "y") -> None:
    """Raise unless each sequence has as many elements as labels."""
    if len(found) != len(wanted):
        raise ValueError(
            f"{X} and {y} have inconsistent numbers of samples: {len(found)} and "
            f"{len(wanted)}."
        )
    for i, (n, m) in enumerate(zip(map(int, found), map(int, wanted))):
        if n != m:
            raise ValueError(
                f"Sequence {i} of {X} has {n} element{'s'[: n != 1]} and {m} "
                f"label{'s'[: m != 1]} in {y}. Each element needs one."
            )
