"""Learning from rows without labels: predictions should not change near a row.

    mean over labelled rows of ℓ(y, f(x)) + alpha · mean of ‖p(x) − p(x + ε)‖²

with p = softmax(f) and Gaussian noise ε, drawn again in each step. The second term
needs no labels and moves the boundary between classes to where there are few rows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from certus._core.rows import row_weights
from certus.base import Fitted, certified_fit, check_number
from certus.neural_network.batches import Batch
from certus.neural_network.network_loss import NetworkLoss
from certus.neural_network.objective import Change, Targets, weighted_mean
from certus.neural_network.run import Losses
from certus.neural_network.wrapped import WrappedClassifier
from certus.typing import ArrayLike, MatrixLike

if TYPE_CHECKING:
    from certus.neural_network.estimator import NeuralModel

#: What stands for a class that is not known, as in sklearn.semi_supervised.
UNKNOWN = -1


class ConsistentClassifier(WrappedClassifier):
    """Trains a network on few labels and many rows, by predictions that stay.

    Objective
    ---------
    The mean loss over rows with a label, plus ``alpha`` times the mean over all rows
    of ‖p(x) − p(x + ε)‖², p the probabilities and ε ~ N(0, noise²).

    Certificate
    -----------
    That of the network on this objective with one fixed draw of ε, all of it MEASURED.

    Parameters
    ----------
    estimator : classifier of certus.neural_network
        The wrapped estimator. A classifier of certus.neural_network, with all settings
        of the training. To stop early pass labelled rows as ``X_val, y_val``.
    alpha : float, default=1.0
        Strength of the penalty. It is the weight of the term that needs no labels.
    noise : float, default=0.1
        Standard deviation of the noise ε, in units of X.

    Attributes
    ----------
    estimator_ : classifier
        The trained network, an estimator that stands on its own.
    module_, history_, classes_, n_iter_
        Those of ``estimator_``. The classes do not hold −1.
    certificate_ : Certificate
        What the verifier found.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.datasets import make_blobs
    >>> from certus.neural_network import ConsistentClassifier, NeuralClassifier
    >>> from certus.neural_network.modules import MLP
    >>> X, y = make_blobs(200, centers=[[-2, 0], [2, 0]], random_state=0)
    >>> few = np.where(np.arange(200) < 10, y, -1)
    >>> network = NeuralClassifier(
    ...     lambda n, k: MLP(n, 16, k),
    ...     learning_rate=0.01,
    ...     schedule="cosine",
    ...     max_iter=50,
    ...     random_state=0,
    ... )
    >>> model = ConsistentClassifier(network, noise=0.5).fit(X, few)
    >>> model.classes_, model.score(X, y) > 0.95
    (array([0, 1]), True)
    """

    def __init__(
        self, estimator: NeuralModel, *, alpha: float = 1.0, noise: float = 0.1
    ) -> None:
        self.estimator = estimator
        self.alpha = alpha
        self.noise = noise

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
        """Train the network.

        Parameters
        ----------
        X : array-like
            Rows of numbers, as the network takes them.
        y : array-like of shape (n_samples,)
            Classes; −1 where there is no label.
        sample_weight : array-like of shape (n_samples,), optional
            Row weights.
        X_val, y_val : array-like, optional
            Labelled rows of your own to stop by.

        Returns
        -------
        ConsistentClassifier
            Itself.
        """
        check_number("alpha", self.alpha)
        check_number("noise", self.noise, open_low=True)
        network = self._clone()
        if network.early_stopping:
            raise ValueError(
                "Rows held out by early_stopping may have no label. Set it to False "
                "and pass labelled rows as X_val, y_val."
            )
        if network.class_weight is not None:
            raise ValueError(
                "class_weight would count rows without a label. Use sample_weight."
            )
        filled, known = _filled(y)
        change = self._change(known, sample_weight)
        rest = (X_val, y_val, change)
        done = self._train(network, X, filled, sample_weight, *rest)
        given = (X, y, sample_weight)
        measured = self._to_measure(done.evidence.witness, *given)
        return Fitted(done.evidence, *given, done.status, measured=measured)

    def _change(
        self, known: np.ndarray, sample_weight: ArrayLike | None, fixed: bool = False
    ) -> Change:
        """The objective; with the same noise in each call, if it is ``fixed``."""
        s = row_weights(sample_weight, len(known))
        share = np.sum(s[known]) / np.sum(s)
        if not share > 0:
            raise ValueError("No row with a label has a positive weight.")
        # In a batch there may be any number of labels: each counts as if alone.
        table = torch.as_tensor(known / share)
        alpha, noise = float(self.alpha), float(self.noise)

        def change(targets: Targets) -> Targets:
            def objective(module: nn.Module, batch: Batch) -> Losses:
                x, more = batch.inputs[0], batch.inputs[1:]
                if not x.is_floating_point():
                    raise ValueError(
                        "ConsistentClassifier adds noise to X, so X must hold "
                        "numbers; this network takes indices into a table."
                    )
                e = _fixed_noise(x) if fixed else torch.randn_like(x)
                z = module(x, *more)
                moved = module(x + noise * e, *more)
                apart = (_softmax(z) - _softmax(moved)).square().sum(dim=1)
                counts: Any = batch.extra
                rows = counts * targets.loss(z, batch.y) + alpha * apart
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
        """The objective on some rows, with one draw of noise."""
        filled, known = _filled(y)
        change = self._change(known, sample_weight, fixed=True)
        return self._network._stated(X, filled, sample_weight, chosen, change)


def _fixed_noise(x: Tensor) -> Tensor:
    generator = torch.Generator().manual_seed(0)
    return torch.randn(x.shape, generator=generator, dtype=x.dtype).to(x.device)


def _softmax(z: Tensor) -> Tensor:
    """Probabilities; one column of scores stands for two classes."""
    if z.ndim == 1 or z.shape[1] == 1:
        p = torch.sigmoid(z.reshape(-1, 1))
        return torch.cat([1 - p, p], dim=1)
    return torch.softmax(z, dim=1)


def _filled(y: ArrayLike) -> tuple[np.ndarray, np.ndarray]:
    """Targets with some class in place of a missing one, and which ones are known."""
    y = np.asarray(y)
    if y.ndim != 1:
        raise ValueError(
            f"y must hold one class for each row, or -1; got shape {y.shape}."
        )
    known = np.asarray(y != UNKNOWN) & np.ones(len(y), dtype=bool)
    if not known.any():
        raise ValueError("y holds no labels: every entry is -1.")
    filled = y.copy()
    filled[~known] = y[known][0]
    return filled, known
