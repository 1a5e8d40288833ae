"""Dropout at prediction: average over the random networks that training used.

    p(y | x) = Σ_Z p(Z) p(y | x, Z)   over the masks Z of units that stay

``predict`` keeps all units, scaled as training expects them (one pass, exact for linear
networks). Here masks are drawn as in training; the mean over draws tends to the sum,
and their spread says where the networks disagree.
"""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from sklearn.base import is_classifier, is_regressor
from sklearn.utils.validation import check_is_fitted
from torch import Tensor, nn

from certus.base import check_number, generator_of
from certus.neural_network.randomness import own_generator
from certus.neural_network.wrapped import WrappedClassifier
from certus.typing import MatrixLike, RandomState

if TYPE_CHECKING:
    from certus.neural_network.estimator import NeuralModel

#: Layers that normalise by the rows they see unless they are in evaluation mode.
NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm)


class Draws(NamedTuple):
    """Predictions under masks drawn at random."""

    mean: np.ndarray
    spread: np.ndarray  # their standard deviation over the draws


def monte_carlo(
    model: NeuralModel,
    X: MatrixLike,
    samples: int = 20,
    *,
    random_state: RandomState = None,
) -> Draws:
    """Predict with dropout on, several times, and average.

    Parameters
    ----------
    model : estimator of certus.neural_network
        Fitted, with dropout in its network. It is not changed.
    X : array-like
        Rows like those of the fit.
    samples : int, default=20
        Masks drawn for each row.
    random_state : int, RandomState or None, default=None
        Seed or generator of all random numbers. They decide the masks.

    Returns
    -------
    Draws
        ``mean`` and ``spread`` (standard deviation over the draws) of the
        probabilities of a classifier, or of the predictions of a regressor.

    Examples
    --------
    >>> import numpy as np
    >>> from certus.neural_network import NeuralRegressor, monte_carlo
    >>> from certus.neural_network.modules import MLP
    >>> x = np.linspace(-1, 1, 50)[:, None]
    >>> model = NeuralRegressor(
    ...     lambda n, k: MLP(n, 20, k, dropout=0.2),
    ...     schedule="cosine",
    ...     max_iter=3,
    ...     random_state=0,
    ... )
    >>> mean, spread = monte_carlo(model.fit(x, x[:, 0]), x, random_state=0)
    >>> mean.shape, bool((spread > 0).all())
    ((50,), True)
    """
    check_number("samples", samples, 1, integer=True)
    if isinstance(model, WrappedClassifier):
        model = model._network
    if not (is_classifier(model) or is_regressor(model)):
        raise TypeError(
            f"monte_carlo needs a classifier or a regressor; {type(model).__name__} "
            "is neither."
        )
    check_is_fitted(model, "module_")
    twin = copy.copy(model)
    # Where ``module_`` is computed, the module itself is one name further down.
    name = "module_" if "module_" in vars(model) else "_module"
    setattr(twin, name, Sampling(model.module_))
    predict = twin.predict_proba if is_classifier(model) else twin.predict
    seeds = generator_of(random_state).integers(2**63 - 1, size=samples)
    cuda = {p.device.index or 0 for p in model.module_.parameters() if p.is_cuda}
    draws = []
    with own_generator(sorted(cuda)):
        for seed in seeds:  # a prediction leaves the generator as it was
            torch.default_generator.manual_seed(int(seed))
            if cuda:
                torch.cuda.manual_seed_all(int(seed))
            draws.append(predict(X))
    table = np.stack(draws).astype(np.float64)
    if not (table != table[0]).any() and not has_dropout(model.module_):
        raise ValueError(
            "The network has no dropout, so all draws are equal. Build it with "
            "dropout above 0, or use predict."
        )
    return Draws(table.mean(axis=0), table.std(axis=0))


class Sampling(nn.Module):
    """A copy of a module that draws its masks in evaluation mode too.

    Parameters
    ----------
    module : nn.Module
        Norms over a batch keep to the statistics of the training.
    """

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = copy.deepcopy(module)

    def forward(self, *inputs: Tensor) -> Any:
        """The module's output under new masks."""
        for part in self.module.modules():
            part.training = not isinstance(part, NORMS)
        return self.module(*inputs)


def has_dropout(module: nn.Module) -> bool:
    """Whether some layer leaves out units in training."""
    parts: list[Any] = list(module.modules())
    rates = [part.p for part in parts if "Dropout" in type(part).__name__]
    inner = [part.dropout for part in parts if isinstance(part, nn.RNNBase)]
    return any(rate > 0 for rate in [*rates, *inner])
