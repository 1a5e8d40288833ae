"""The perceptron in the space of a kernel.

For each class against the rest: pass over the rows; where y·f(x) ≤ 0, count a mistake
and add y·k(·, x) to f. Nothing is minimised; what can be proved is Novikov's bound: at
most R²/γ² mistakes if some function of unit norm separates the rows with margin γ.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from sklearn.base import ClassifierMixin
from sklearn.utils import check_random_state

from certus.base import Fitted, certified_fit, check_number, class_codes
from certus.callbacks import Monitor
from certus.certificate import Evidence, Status
from certus.kernels.compiled import run_epoch
from certus.kernels.machine import OneAgainstRest, kernel_term, negative_direction
from certus.kernels.rows import KernelRows
from certus.objectives import terms as t
from certus.typing import Array, ArrayLike, MatrixLike, RandomState

#: Rows visited between two looks at the clock.
STRETCH = 4_096


class KernelPerceptron(ClassifierMixin, OneAgainstRest):
    """The perceptron with any kernel.

    Objective
    ---------
    None: rows are visited in order, and each one on the wrong side is added to f, until
    a pass is made without a mistake. With more than two classes there is one run
    for each class against the rest.

    Certificate
    -----------
    ``update_sum`` (PROVED): the coefficients are counts of mistakes. Once all rows are
    separated ``mistake_bound`` (PROVED): no more of them than R²/γ², with the margin γ
    that f itself shows; before that ``training_error`` (MEASURED) stands first, and
    ``margin_limit`` (PROVED) says that no function separates the rows by more. Costs
    one pass over the kernel values of all rows with those mistaken.

    Parameters
    ----------
    kernel : str, callable or kernel of ``certus.objectives``, default="rbf"
        As in :class:`certus.svm.SVC`.
    degree : int, default=3
        Degree of the kernel "poly".
    gamma : {"scale", "auto"} or float, default="scale"
        Scale of the kernels "poly", "rbf", "laplacian" and "sigmoid".
    coef0 : float, default=0.0
        Constant of the kernels "poly" and "sigmoid".
    fit_intercept : bool, default=True
        Whether to fit an intercept b. This adds one to the kernel.
    max_iter : int, default=1000
        Maximum number of iterations. They are passes over the rows.
    shuffle : bool, default=False
        Whether each epoch visits the rows in a new random order.
    random_state : int, RandomState or Generator, default=None
        Seed or generator of all random numbers. They decide the order of the rows.
    cache_size : float, default=1000
        Megabytes of memory for rows of the kernel matrix.
    max_time : float, default=None
        Seconds after which the fit stops and keeps what it has.

    Attributes
    ----------
    classes_ : ndarray
        Labels.
    dual_coef_ : ndarray of shape (1 or n_classes, n_support)
        Mistakes on each row, times its sign: f = Σ ``dual_coef_``·k(·, x).
    support_ : ndarray of shape (n_support,)
        Rows mistaken at least once.
    support_vectors_ : array or sparse matrix
        Those rows; empty where the matrix was given.
    intercept_ : ndarray of shape (1 or n_classes,)
        Constants.
    kernel_ : kernel of ``certus.objectives``
        The kernel used, gamma as a number.
    n_iter_ : int
        Passes used, the most of any class.
    history_ : dict
        Under ``objective``, mistakes of each pass.
    certificate_ : Certificate
        What the verifier found.

    Examples
    --------
    >>> from certus.kernels import KernelPerceptron
    >>> X, y = [[0, 0], [0, 1], [1, 0], [1, 1]], [0, 1, 1, 0]
    >>> model = KernelPerceptron().fit(X, y)  # exclusive or
    >>> model.score(X, y), model.certificate_.met
    (1.0, True)
    """

    def __init__(
        self,
        *,
        kernel: str | t.Kernel | Callable[..., Any] = "rbf",
        degree: int = 3,
        gamma: float | str = "scale",
        coef0: float = 0.0,
        fit_intercept: bool = True,
        max_iter: int = 1000,
        shuffle: bool = False,
        random_state: RandomState = None,
        cache_size: float = 1000,
        max_time: float | None = None,
    ) -> None:
        self.kernel = kernel
        self.degree = degree
        self.gamma = gamma
        self.coef0 = coef0
        self.fit_intercept = fit_intercept
        self.max_iter = max_iter
        self.shuffle = shuffle
        self.random_state = random_state
        self.cache_size = cache_size
        self.max_time = max_time

    @certified_fit
    def fit(self, X: Any, y: Any) -> Any:
        """Run on labelled rows, in their order.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
            Training rows; with ``kernel="precomputed"`` the kernel matrix.
        y : array-like of shape (n_samples,)
            Labels.
        """
        check_number("max_iter", self.max_iter, 0, integer=True)
        check_number("max_time", self.max_time, none=True)
        check_number("cache_size", self.cache_size, open_low=True)
        X, y, _ = self._read(X, y, None)
        self.classes_, codes = class_codes(y)
        self.kernel_ = kernel_term(self.kernel, X, self.gamma, self.degree, self.coef0)
        kernel, rows = self._training(X)
        status = self._run(
            KernelRows(kernel, rows, float(self.cache_size)), X, y, codes
        )
        witness = negative_direction(kernel, rows)
        evidence = Evidence("kernel", witness=witness)
        return Fitted(evidence, X, y, None, status)

    def _run(
        self, rows: KernelRows, X: MatrixLike, y: ArrayLike, codes: Array
    ) -> Status:
        monitor = Monitor(self, X, y, None, self.max_time)
        problems = [1] if len(self.classes_) == 2 else list(range(len(self.classes_)))
        counts = np.zeros((len(problems), len(codes)))
        status, self.n_iter_ = Status.SOLVED, 0

        def state() -> dict[str, Any]:
            return self._put(X, codes, counts, problems)

        for k, positive in enumerate(problems):
            sign = np.where(codes == positive, 1.0, -1.0)

            def on_pass(mistakes: int) -> Status | None:
                return monitor.step(mistakes, mistakes / len(codes), state)

            ended, passes = self._learn(rows, sign, counts[k], on_pass)
            self.n_iter_ = max(self.n_iter_, passes)
            if ended is not Status.SOLVED:
                status = ended
            if ended in (Status.TIME_LIMIT, Status.STOPPED, Status.INTERRUPTED):
                break
        self.history_ = monitor.history
        monitor.close(state())
        return status

    def _learn(
        self, rows: KernelRows, sign: Array, counts: Array, on_pass: Any
    ) -> tuple[Status, int]:
        """Passes over the rows until one is clean; ``counts`` is filled."""
        constant = 1.0 if self.fit_intercept else 0.0
        f = np.zeros(rows.n)
        random = check_random_state(self.random_state)
        order, passes = np.arange(rows.n), 0
        try:
            while passes < self.max_iter:
                if self.shuffle:
                    order = random.permutation(rows.n)
                mistakes = _epoch(rows, sign, order, f, counts, constant)
                passes += 1
                if mistakes == 0 and not rows.exact:
                    index = np.flatnonzero(counts)
                    c = sign[index] * counts[index]
                    f = rows.product(index, c) + constant * c.sum()
                    mistakes = int(np.count_nonzero(sign * f <= 0))
                stop = on_pass(mistakes)
                if mistakes == 0:
                    return Status.SOLVED, passes
                if stop is not None:
                    return stop, passes
        except KeyboardInterrupt:
            return Status.INTERRUPTED, passes
        return Status.MAX_ITER, passes

    def _put(
        self, X: Any, codes: Array, counts: Array, problems: list[int]
    ) -> dict[str, Any]:
        """Set the fitted attributes from the counts, and list them."""
        signs = np.array([np.where(codes == k, 1.0, -1.0) for k in problems])
        support = np.flatnonzero(counts.any(axis=0))
        self.support_ = support.astype(np.int32)
        self.shape_fit_ = getattr(X, "shape", (len(codes),))
        whole = isinstance(self.kernel_, t.OwnKernel | t.Precomputed)
        self.support_vectors_ = np.empty((0, 0)) if whole else X[support]
        self.dual_coef_ = (signs * counts)[:, support]
        lift = 1.0 if self.fit_intercept else 0.0
        self.intercept_ = lift * self.dual_coef_.sum(axis=1)
        names = ("dual_coef_", "support_", "support_vectors_", "intercept_", "classes_")
        return {name: getattr(self, name) for name in (*names, "kernel_")}

    def _expansion(self) -> tuple[Any, Array]:
        return self.support_vectors_, self.support_


def _epoch(
    rows: KernelRows,
    sign: Array,
    order: Array,
    f: Array,
    counts: Array,
    constant: float,
) -> int:
    """One pass; rows of the kernel are fetched when first mistaken."""
    total = 0
    for first in range(0, rows.n, STRETCH):
        part, place = order[first : first + STRETCH], 0
        while place < len(part):
            place, mistakes = run_epoch(
                rows.store, rows.slot, sign, part, f, counts, place, constant
            )
            total += mistakes
            if place < len(part):
                rows.fetch(part[place : place + 1])
    return total
