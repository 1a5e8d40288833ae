"""A fitted classifier as an attacker sees it: labels, scores, gradients, or a formula.

Everything is in the units of the rows as the user passes them: scaling and the like
belong to the attacked function. What is known about a model decides which attacks are
possible:

- labels alone, from ``predict``;
- scores: one column for each class, the largest is predicted;
- gradients of the scores: networks, modules, kernel machines;
- the formula itself, scores = W x + b: linear models, also behind linear scaling.

Attacks are written once, for NumPy arrays and torch tensors alike.
"""

from __future__ import annotations

import copy
import math
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from certus import layers as net
from certus.typing import Array, ArrayLike, DTypeLike, MatrixLike

#: Gives for scores (n, k) the derivative, by each score, of what is to grow.
Pull = Callable[[Any], Any]


class Formula(NamedTuple):
    """Scores = W x + b."""

    W: Array  # (classes, features)
    b: Array  # (classes,)


class OutOfTime(Exception):
    """Raised by a target that is called after its deadline."""


class Target:
    """The interface that attacks use; this base class knows labels only.

    Parameters
    ----------
    predict : callable
        Classes of rows, as the model itself predicts them.
    classes : array-like
        All classes; class numbers index it.

    Attributes
    ----------
    queries, gradients : int
        Rows asked for labels or scores so far, and rows differentiated.
    note : str
        Why no more is known of the model, where that is so.
    """

    has_scores = False
    has_gradients = False
    formula: Formula | None = None
    #: The fitted model itself, if it is an ensemble of trees.
    trees: Any = None
    note = ""
    #: Whether what predicts is known to do what the formula or function says; else it
    #: was only seen to do so, and nothing is proved.
    known = True
    #: Rows that are attacked together: more of them only take more memory.
    together = 512
    #: When to raise :class:`OutOfTime`, by ``time.perf_counter``.
    deadline = math.inf

    def __init__(self, predict: Callable[[Any], Any], classes: Array | None) -> None:
        self._predict, self.classes = predict, np.asarray(classes)
        self.queries = self.gradients = 0

    def check_time(self) -> None:
        """Raise :class:`OutOfTime` after the deadline."""
        if time.perf_counter() > self.deadline:
            raise OutOfTime

    def count(self, queries: int, gradients: int = 0) -> None:
        """Note rows that are asked about and rows to be differentiated."""
        self.check_time()
        self.queries += queries
        self.gradients += gradients

    def rows(self, X: MatrixLike) -> Any:
        """X in the form this target computes with."""
        return np.asarray(X)

    def labels(self, X: Array) -> Array:
        """Class numbers that the model predicts; X is NumPy."""
        self.count(len(X))
        found = self._predict(X)
        numbers = self.numbers(found)
        if (numbers < 0).any():
            strange = np.ravel(found)[int(np.argmin(numbers))]
            raise ValueError(
                f"the model predicts {strange!s:.40}, which is not one of its classes "
                f"({', '.join(map(str, self.classes[:5]))}...)."
            )
        return numbers

    def numbers(self, labels: ArrayLike) -> Array:
        """Class numbers of labels; −1 of classes that the model does not know."""
        return class_numbers(labels, self.classes)

    def begin(self, X: Array, y: Array) -> tuple[Array, Any]:
        """Class numbers predicted for X; and the rows predicted as y, to be attacked.

        The rows are in the form of this target.
        """
        numbers = self.labels(X)
        return numbers, self.rows(X[numbers == y])

    def lent(self) -> Target:
        """The same for an attack, which may change its input in place."""
        new = copy.copy(self)
        new.classes = self.classes.copy()
        return new

    def scores(self, X: MatrixLike) -> Any:
        """One score for each class."""
        raise NotImplementedError

    def gradient(self, X: MatrixLike, *pulls: Pull) -> tuple[Any, ...]:
        """Scores z, and for each pull ∇ₓ Σⱼ vⱼ zⱼ(x) with v = pull(z) held fixed."""
        raise NotImplementedError


class Labelled(Target):
    """A model of which only the predicted classes are known.

    Parameters
    ----------
    predict : callable
        Classes of rows.
    classes : array-like
        All classes, or those that are known yet.
    open : bool, default=False
        Whether there may be more, which are learnt as they turn up.
    """

    def __init__(self, predict: Any, classes: Array | None, open: bool = False) -> None:
        super().__init__(predict, classes)
        self.open = open

    def numbers(self, labels: ArrayLike) -> Array:
        """Class numbers of labels."""
        found = super().numbers(labels)
        if self.open and (found < 0).any():
            more = np.unique(np.ravel(labels)[found < 0])
            self.classes = np.concatenate([self.classes, more])
            found = super().numbers(labels)
        return found


class Scored(Target):
    """A model of which scores are known too."""

    has_scores = True

    def __init__(
        self, predict: Any, classes: Array | None, score: Callable[[Any], Any]
    ) -> None:
        super().__init__(predict, classes)
        self._score = score

    def scores(self, X: Any) -> Array:
        """One score for each class."""
        self.count(len(X))
        return two_columns(np.asarray(self._score(X), dtype=np.float64))


class LinearTarget(Target):
    """A model with scores W x + b.

    ``layers`` are the linear steps in which the model computes them, where these are
    more than one: proofs count the rounding of each.
    """

    has_scores = has_gradients = True
    formula: Formula

    def __init__(
        self, predict: Any, classes: Array | None, formula: Formula, layers: Any = ()
    ) -> None:
        super().__init__(predict, classes)
        self.formula = formula
        self.layers = tuple(layers) or (net.Dense(formula.W, formula.b),)

    def network(self, dtype: DTypeLike) -> net.Network:
        """What the model computes from rows of a dtype, in their precision."""
        kind = np.finfo(dtype if np.dtype(dtype).kind == "f" else np.float64)
        unit = float(kind.eps) / 2 + 2.0**-52
        precision = net.Precision(unit, float(kind.tiny), float(kind.max) / 4)
        steps = (net.LayerStep(layer, (i,)) for i, layer in enumerate(self.layers))
        return net.Network(tuple(steps), (self.formula.W.shape[1],), precision)

    def rows(self, X: MatrixLike) -> Array:
        """X in float64."""
        return np.asarray(X, dtype=np.float64)

    def scores(self, X: Any) -> Array:
        """W x + b of each row."""
        self.count(len(X))
        return X.reshape(len(X), -1) @ self.formula.W.T + self.formula.b

    def gradient(self, X: Any, *pulls: Pull) -> tuple[Array, ...]:
        """Scores, and Wᵀv for each pull."""
        z = self.scores(X)
        self.count(0, len(X) * len(pulls))
        return z, *((pull(z) @ self.formula.W).reshape(X.shape) for pull in pulls)


class Derived(Scored):
    """A model whose scores have gradients in closed form, in NumPy.

    ``derivative(X, V)`` gives ∇ₓ Σⱼ vⱼ zⱼ(x) for each row.
    """

    has_gradients = True

    def __init__(
        self,
        predict: Any,
        classes: Array | None,
        score: Callable[[Any], Any],
        derivative: Callable[[Any, Any], Any],
    ) -> None:
        super().__init__(predict, classes, score)
        self._derivative = derivative

    def rows(self, X: MatrixLike) -> Array:
        """X in float64."""
        return np.asarray(X, dtype=np.float64)

    def gradient(self, X: Any, *pulls: Pull) -> tuple[Array, ...]:
        """Scores, and the gradient for each pull."""
        z = self.scores(X)
        self.count(0, len(X) * len(pulls))
        return z, *(self._derivative(X, pull(z)) for pull in pulls)


class Differentiated(Target):
    """A torch function of raw rows; gradients by backpropagation to the rows.

    Parameters
    ----------
    function : callable
        Scores of a tensor of raw rows.
    dtype, device
        Of the tensors it takes.
    copied : callable
        Makes the same function, in its own precision, on the CPU, for proofs.
    decides : bool, default=False
        Whether the largest score of the function is the prediction itself.
    """

    has_scores = has_gradients = True
    together = 256  # fits caches

    def __init__(
        self,
        predict: Any,
        classes: Array | None,
        function: Callable[..., Any],
        dtype: Any,
        device: Any,
        copied: Callable[[], Any],
        decides: bool = False,
    ) -> None:
        super().__init__(predict, classes)
        self.function, self.dtype, self.device = function, dtype, device
        self.copied, self.decides = copied, decides
        self._begun: _Begun | None = None

    def rows(self, X: MatrixLike) -> Any:
        """A tensor of X."""
        import torch

        return torch.as_tensor(np.asarray(X), dtype=self.dtype, device=self.device)

    def begin(self, X: Array, y: Array) -> tuple[Array, Any]:
        """What is predicted for X, and the rows predicted as y.

        Where the function decides, its pass forward is kept: an attack that begins
        with the gradient at these rows needs no other.
        """
        if not self.decides:
            return super().begin(X, y)
        import torch

        self.count(len(X))
        x = self.rows(X).detach().requires_grad_(True)
        with torch.enable_grad():
            z = two_columns(self.function(x))
        numbers = z.detach().argmax(dim=1)
        at = torch.nonzero(numbers == torch.as_tensor(y, device=z.device))[:, 0]
        rows = x.detach()[at]
        self._begun = _Begun(rows, rows._version, at, x, z)
        return numbers.cpu().numpy(), rows

    def lent(self) -> Target:
        """The same, with the pass forward that was kept."""
        new, self._begun = super().lent(), None
        return new

    def scores(self, X: Any) -> Any:
        """Scores of the rows."""
        import torch

        self.count(len(X))
        with torch.no_grad():
            return two_columns(self.function(X))

    def gradient(self, X: Any, *pulls: Pull) -> tuple[Any, ...]:
        """One pass forward, one back for each pull."""
        import torch

        self.count(len(X), len(X) * len(pulls))
        begun, self._begun = self._begun, None
        if begun is not None and begun.rows is X and begun.version == X._version:
            at, x, z = begun.at, begun.x, begun.z
        else:
            at, x = slice(None), X.detach().requires_grad_(True)
            with torch.enable_grad():
                z = two_columns(self.function(x))
        mine = z.detach()[at]
        found = []
        for i, pull in enumerate(pulls, 1):
            slope = torch.zeros_like(z)
            slope[at] = pull(mine).to(z.dtype)
            (G,) = torch.autograd.grad(z, x, slope, retain_graph=i < len(pulls))
            found.append(G[at])
        return mine, *found


class _Begun(NamedTuple):
    """A pass forward that was made already."""

    rows: Any  # those that are attacked
    version: int  # which changes if somebody writes into them
    at: Any  # their places among x
    x: Any
    z: Any


def two_columns(z: Array) -> Any:
    """One column of scores as two: 0 and z, so that the sign of z decides."""
    if z.ndim == 1:
        z = z[:, None]
    if z.shape[1] > 1:
        return z
    if isinstance(z, np.ndarray):
        return np.hstack([np.zeros_like(z), z])
    import torch

    return torch.hstack([torch.zeros_like(z), z])


def class_numbers(found: Any, classes: Array) -> Array:
    """Where each label stands in ``classes``; −1 for one that is not there."""
    found = np.asarray(found).reshape(-1)
    order = np.argsort(classes, kind="stable")
    at = np.clip(np.searchsorted(classes, found, sorter=order), 0, len(order) - 1)
    numbers = order[at]
    return np.where(classes[numbers] == found, numbers, -1)
