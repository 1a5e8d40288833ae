"""Knowledge distillation: a small network learns a teacher's probabilities.

    mix · T² · H(softmax(t/T), softmax(z/T)) + (1 − mix) · ℓ(y, z)

with the teacher's scores t, the student's z and the temperature T. At high T the
gradient in z tends to that of ‖z − t‖²/2 over the number of classes, both centred: the
scores themselves are matched. T² keeps its size.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.utils.validation import check_is_fitted, has_fit_parameter
from torch import Tensor, nn
from torch.nn import functional as F

from certus.base import certified_fit, check_number, take
from certus.neural_network.batches import Batch
from certus.neural_network.network_loss import NetworkLoss
from certus.neural_network.objective import Change, Targets, weighted_mean
from certus.neural_network.run import Losses
from certus.neural_network.wrapped import WrappedClassifier
from certus.typing import ArrayLike, Fit, MatrixLike

if TYPE_CHECKING:
    from certus.neural_network.estimator import NeuralModel

#: Probabilities below this are taken for it: a teacher's zero has no logarithm.
LEAST = float(np.finfo(np.float32).tiny)


class Distilled(WrappedClassifier):
    """Trains a network on a teacher's probabilities, softened, beside the labels.

    Objective
    ---------
    mix · T² · H(softmax(t/T), softmax(z/T)) + (1 − mix) · ℓ(y, z), its weighted mean
    over rows: H the cross entropy, t the teacher's log-probabilities, z the student's
    scores, ℓ the student's own loss.

    Certificate
    -----------
    That of the student on this objective, all of it MEASURED.

    Parameters
    ----------
    estimator : classifier of certus.neural_network
        The wrapped estimator. A classifier of certus.neural_network, with all settings
        of the training. Validation rows are judged by its own loss and score.
    teacher : classifier
        Anything with ``predict_proba``. A fitted one is used as it is; another is
        fitted first, on the same rows. Cloning forgets a fit, so in a search wrap a
        fitted teacher in ``sklearn.frozen.FrozenEstimator``.
    temperature : float, default=4.0
        T; higher values show more of the classes that the teacher considers possible.
    mix : float, default=0.5
        Share of the teacher, from 0 to 1.

    Attributes
    ----------
    estimator_ : classifier
        The trained network, an estimator that stands on its own.
    teacher_ : classifier
        The teacher.
    module_, history_, classes_, n_iter_
        Those of ``estimator_``.
    certificate_ : Certificate
        What the verifier found.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from sklearn.ensemble import RandomForestClassifier
    >>> from certus.neural_network import Distilled, NeuralClassifier
    >>> from certus.neural_network.modules import MLP
    >>> X, y = load_iris(return_X_y=True)
    >>> student = NeuralClassifier(
    ...     lambda n, k: MLP(n, 8, k),
    ...     learning_rate=0.05,
    ...     schedule="cosine",
    ...     random_state=0,
    ... )
    >>> forest = RandomForestClassifier(random_state=0)
    >>> Distilled(student, teacher=forest, temperature=2.0).fit(X, y).score(X, y) > 0.95
    True
    """

    def __init__(
        self,
        estimator: NeuralModel,
        *,
        teacher: Fit,
        temperature: float = 4.0,
        mix: float = 0.5,
    ) -> None:
        self.estimator = estimator
        self.teacher = teacher
        self.temperature = temperature
        self.mix = mix

    @certified_fit
    def fit(
        self,
        X: MatrixLike,
        y: ArrayLike,
        sample_weight: ArrayLike | None = None,
        *,
        X_val: MatrixLike | None = None,
        y_val: ArrayLike | None = None,
    ) -> Any:
        """Train the student; first the teacher, if it is not fitted.

        Parameters
        ----------
        X : array-like
            Rows, as student and teacher take them.
        y : array-like of shape (n_samples,)
            Classes.
        sample_weight : array-like of shape (n_samples,), optional
            Row weights.
        X_val, y_val : array-like, optional
            Rows of your own to stop by.

        Returns
        -------
        Distilled
            Itself.
        """
        check_number("temperature", self.temperature, open_low=True)
        check_number("mix", self.mix, 0, 1)
        student = self._clone()
        student._read_X(X, reset=True)  # so that bad input is refused at once
        student._read_y(y, reset=True)
        self.teacher_ = _fitted(self.teacher, X, y, sample_weight)
        change = self._change(student, log_probabilities(self.teacher_, X))
        given = (X, y, sample_weight)
        done = self._train(student, *given, X_val, y_val, change)
        measured = self._to_measure(done.evidence.witness, *given)
        return done._replace(measured=measured)

    def _change(self, student: NeuralModel, logits: np.ndarray) -> Change:
        """The targets of the student with the teacher's scores beside them."""
        T, mix = float(self.temperature), float(self.mix)

        def change(targets: Targets) -> Targets:
            table = torch.as_tensor(_in_order(logits, self.teacher_, student.classes_))

            def objective(module: nn.Module, batch: Batch) -> Losses:
                z = module(*batch.inputs)
                soft = T**2 * soft_cross_entropy(z, batch.extra, T)
                rows = mix * soft + (1 - mix) * targets.loss(z, batch.y)
                return {"loss": weighted_mean(rows, batch.s)}

            return targets._replace(objective=objective, extra=table)

        return change

    def _stated(
        self,
        X: MatrixLike,
        y: ArrayLike,
        sample_weight: ArrayLike | None,
        chosen: np.ndarray,
    ) -> NetworkLoss:
        """The objective on some rows as a function of the weights."""
        found = log_probabilities(self.teacher_, take(X, chosen))
        logits = np.zeros((len(np.asarray(y)), found.shape[1]))
        logits[chosen] = found
        change = self._change(self._network, logits)
        return self._network._stated(X, y, sample_weight, chosen, change)


def soft_cross_entropy(z: Tensor, t: Any, temperature: float = 1.0) -> Tensor:
    """−Σₖ softmax(t/T)ₖ log softmax(z/T)ₖ for each row of scores z and t.

    A single column of z is the score of the second of two classes.
    """
    if z.ndim == 1 or z.shape[1] == 1:
        z = z.reshape(-1, 1)
        z = torch.cat([torch.zeros_like(z), z], dim=1)
    target = torch.softmax(t / temperature, dim=1)
    return F.cross_entropy(z / temperature, target, reduction="none")


def log_probabilities(teacher: Fit, X: MatrixLike) -> np.ndarray:
    """Scores whose softmax are the teacher's probabilities."""
    p = np.asarray(teacher.predict_proba(X), dtype=np.float64)
    if p.ndim != 2 or not np.isfinite(p).all() or (p < 0).any():
        raise ValueError(
            "The teacher's predict_proba must give one probability for each row and "
            f"class, got an array of shape {p.shape}."
        )
    return np.log(np.maximum(p, LEAST))


def _fitted(
    teacher: Fit, X: MatrixLike, y: ArrayLike, sample_weight: ArrayLike | None
) -> Any:
    if not hasattr(teacher, "predict_proba"):
        raise TypeError(
            f"teacher must have predict_proba; {teacher!r} has none. Calibrate it with "
            "sklearn.calibration.CalibratedClassifierCV."
        )
    try:
        check_is_fitted(teacher)
    except NotFittedError:
        teacher = clone(teacher)
        if sample_weight is None or not has_fit_parameter(teacher, "sample_weight"):
            return teacher.fit(X, y)
        return teacher.fit(X, y, sample_weight=sample_weight)
    return teacher


def _in_order(logits: np.ndarray, teacher: Fit, classes: np.ndarray) -> np.ndarray:
    """Columns in the order of the student's classes."""
    known = {label: place for place, label in enumerate(np.asarray(teacher.classes_))}
    if set(known) != set(classes):
        raise ValueError(
            f"The teacher was fitted on the classes {list(known)}, but y holds "
            f"{list(classes)}. Both must have the same classes."
        )
    return logits[:, [known[label] for label in classes]]
