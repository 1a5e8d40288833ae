"""Our kernel machines as targets: gradients of their scores in closed form.

    f(x) = Σ c·k(x, b) + intercept,   ∇f(x) = Σ c·∇ₓk(x, b)

over the rows b that a machine keeps. With the linear kernel the score is w·x + b, and
two classes, or one score for each class, are the formula of a linear model.
"""

from __future__ import annotations

from itertools import combinations
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse

from certus.kernels import KernelLogisticRegression, KernelPerceptron
from certus.kernels.evaluate import dot, evaluate
from certus.objectives import terms as t
from certus.svm import SVC
from certus.typing import Array

#: Kernels with a gradient here.
KNOWN = (
    *(t.Linear, t.Polynomial, t.Gaussian, t.Laplace, t.Sigmoid),
    *(t.Sum, t.Product, t.Scaled, t.Exponentiated),
)


class Expansion(NamedTuple):
    """Scores Σ coef·k(x, base) + intercept; of pairs of classes, where there are.

    Attributes
    ----------
    kernel : kernel of ``certus.objectives``
    base : ndarray of shape (kept, features)
    coef : ndarray of shape (kept, scores)
    intercept : ndarray of shape (scores,)
    pairs : list of (int, int)
        Classes that each score tells apart, the first where it is positive; empty if
        scores are those of classes.
    classes : int
        How many there are.
    """

    kernel: Any
    base: Array
    coef: Array
    intercept: Array
    pairs: list[tuple[int, int]]
    classes: int

    def sums(self, X: Array) -> Array:
        """One score for each column of ``coef``."""
        return evaluate(self.kernel, X, self.base) @ self.coef + self.intercept

    def scores(self, X: Array) -> Array:
        """A score for each class; with pairs, the least that it beats another by.

        A class that wins all its pairs has the only positive one.
        """
        z = self.sums(X)
        return self._least(z)[0] if self.pairs else z

    def derivative(self, X: Array, V: Array) -> Array:
        """∇ₓ Σ v·score for each row."""
        if self.pairs:
            V = self._by_pairs(X, V)
        elif self.coef.shape[1] < V.shape[1]:
            V = V[:, 1:]  # a score of 0 stands beside a single one
        return slopes(self.kernel, X, self.base, V @ self.coef.T)

    def _least(self, z: Array) -> tuple[Array, Array, Array]:
        """The least score of each class, the pair that it comes from, and its sign."""
        n = len(z)
        least = np.full((n, self.classes), np.inf)
        which = np.zeros((n, self.classes), dtype=int)
        sign = np.zeros((n, self.classes))
        for column, (i, j) in enumerate(self.pairs):
            for own, s in ((i, 1.0), (j, -1.0)):
                lower = s * z[:, column] < least[:, own]
                least[lower, own] = s * z[lower, column]
                which[lower, own], sign[lower, own] = column, s
        return least, which, sign

    def _by_pairs(self, X: Array, V: Array) -> Array:
        _, which, sign = self._least(self.sums(X))
        by_pair = np.zeros((len(X), len(self.pairs)))
        rows = np.arange(len(X))
        for k in range(self.classes):
            by_pair[rows, which[:, k]] += V[:, k] * sign[:, k]
        return by_pair


def expansion(model: Any) -> Expansion | None:
    """What a kernel machine of ours sums over; None of others and unknown kernels."""
    if type(model) not in (SVC, KernelLogisticRegression, KernelPerceptron):
        return None
    kernel, k = model.kernel_, len(model.classes_)
    if not _known(kernel):
        return None
    if type(model) is SVC:
        base, coef = model.support_vectors_, model._pair_coefficients()
        pairs = list(combinations(range(k), 2)) if k > 2 else []
    else:
        base, coef, pairs = model._expansion()[0], model.dual_coef_.T, []
    base = base.toarray() if sparse.issparse(base) else base
    base = np.asarray(base, dtype=np.float64)
    return Expansion(kernel, base, coef, np.ravel(model.intercept_), pairs, k)


def _known(kernel: Any) -> bool:
    inner = [part for part in kernel if isinstance(part, t.Kernel)]
    return isinstance(kernel, KNOWN) and all(map(_known, inner))


def slopes(kernel: Any, A: Array, B: Array, C: Array) -> Array:
    """Σⱼ cᵢⱼ ∇ₐ k(aᵢ, bⱼ) for each row aᵢ."""
    match kernel:
        case t.Linear():
            return C @ B
        case t.Polynomial(degree, coef0, gamma):
            base = gamma * dot(A, B) + coef0
            return (C * (degree * gamma * base ** (degree - 1))) @ B
        case t.Sigmoid(gamma, coef0):
            h = np.tanh(gamma * dot(A, B) + coef0)
            return (C * (gamma * (1 - h**2))) @ B
        case t.Gaussian(gamma):
            C = C * evaluate(kernel, A, B)
            centre = B.mean(axis=0)  # differences of large numbers lose digits
            moved = C @ (B - centre) - C.sum(axis=1, keepdims=True) * (A - centre)
            return 2 * gamma * moved
        case t.Laplace(gamma, norm):
            C = -gamma * C * evaluate(kernel, A, B)
            return np.stack([c @ _unit(a - B, norm) for a, c in zip(A, C)])
        case t.Sum(left, right):
            return slopes(left, A, B, C) + slopes(right, A, B, C)
        case t.Product(left, right):
            by_left = slopes(left, A, B, C * evaluate(right, A, B))
            return by_left + slopes(right, A, B, C * evaluate(left, A, B))
        case t.Scaled(factor, inner):
            return factor * slopes(inner, A, B, C)
        case t.Exponentiated(inner):
            return slopes(inner, A, B, C * evaluate(kernel, A, B))
    raise TypeError(f"no gradient is known for {kernel!r}.")


def _unit(D: Array, norm: int) -> Array:
    """The gradient of ‖d‖ for each row; 0 where there is none."""
    if norm == 1:
        return np.sign(D)
    lengths = np.linalg.norm(D, axis=1, keepdims=True)
    return D / np.where(lengths > 0, lengths, 1.0)
