"""``lipschitz_bound``: how much scores change at most when a row moves by 1.

    σ(J(x)) ≤ Π σ(W_l)

The product holds everywhere and is proved; the Jacobian at given rows is measured
there. Their ratio shows how loose the product is.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from certus.results import Result
from certus.robustness.recognise import as_target
from certus.robustness.target import Differentiated, LinearTarget
from certus.threat import ThreatModel
from certus.typing import Fit, MatrixLike
from certus.verify import lipschitz_constant
from certus.wording import unstopped


@dataclass(frozen=True)
class LipschitzBound(Result):
    """A Lipschitz constant of the scores.

    Attributes
    ----------
    constant : float
        ‖f(x̂) − f(x)‖ ≤ constant · ‖x̂ − x‖ for all rows; proved.
    observed : float
        The largest norm of the Jacobian at the rows that were passed, from below.
    """

    constant: float
    observed: float

    @property
    def looseness(self) -> float:
        """The bound divided by the measured value; 1 if it is attained."""
        return self.constant / self.observed if self.observed else np.inf


def lipschitz_bound(
    model: Fit, X: MatrixLike, norm: float | str = "l2"
) -> LipschitzBound:
    """The Lipschitz constant that the layers of a network give.

    Parameters
    ----------
    model : classifier or nn.Module
        A network of known layers, or a linear model.
    X : array-like
        Rows in raw units, at which the Jacobian is looked at.
    norm : {"l1", "l2", "linf"} or float, default="l2"
        Of rows and of scores.

    Returns
    -------
    LipschitzBound

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.linear_model import LogisticRegression
    >>> from certus.robustness import lipschitz_bound
    >>> X = np.array([[-3.0, 1.0], [-1.0, 0.0], [1.0, 1.0], [3.0, 0.0]])
    >>> found = lipschitz_bound(LogisticRegression().fit(X, [0, 0, 1, 1]), X)
    >>> round(found.looseness, 6)
    1.0
    """
    import torch

    from certus.neural_network import operator_norms
    from certus.robustness.proving import named
    from certus.robustness.tracing import Unknown, traced

    p = ThreatModel(norm, 1.0).norm
    target = as_target(model, X)
    rows = torch.as_tensor(np.asarray(X, dtype=np.float64))
    if isinstance(target, LinearTarget):
        W = torch.as_tensor(target.formula.W)
        network = LinearTarget(None, target.classes, target.formula).network(np.float64)
        seen = operator_norms(lambda x: x @ W.T, rows[:1], p=p, q=p)
        return LipschitzBound(lipschitz_constant(network, p), float(seen.max()))
    if not isinstance(target, Differentiated):
        raise ValueError(
            "the model is neither linear nor a network of known layers; no constant "
            "can be given."
        )
    try:
        with torch.no_grad():
            function, shape = target.copied(), rows[:1].shape
            network = traced(function, shape, target.dtype, target.device)
            constant = lipschitz_constant(network, p)
    except Unknown as unknown:
        raise ValueError(f"no constant can be given: {named(unknown)}.") from None
    except ValueError as error:
        raise ValueError(f"no constant can be given: {unstopped(error)}.") from None
    seen = operator_norms(target.copied().double(), rows, p=p, q=p)
    return LipschitzBound(constant, float(seen.max()))
