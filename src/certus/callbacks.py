"""Progress, history and stopping: the one place that touches ``sklearn.callback``.

scikit-learn's callback interface is experimental, so the rest of certus sees only
:class:`CallbackSupport` (what an estimator inherits) and :class:`Monitor` (what a
solver calls after each step).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from sklearn.callback import CallbackSupportMixin as CallbackSupport
from sklearn.callback import with_callbacks

from certus.certificate import Status
from certus.typing import Fit

__all__ = ["CallbackSupport", "Monitor", "unwatched", "with_callbacks"]


def unwatched(model: Fit) -> Any:
    """A copy of a model without the user's callbacks, to be refitted many times."""
    for part in (model, *model.get_params().values()):
        getattr(part, "__dict__", {}).pop("_skl_callbacks", None)
    return model


class Monitor:
    """Watches one fit: keeps its history, obeys ``max_time`` and the user's callbacks.

    Parameters
    ----------
    estimator : estimator
        The one being fitted.
    X, y : array-like
        What callbacks may score on.
    max_iter : int or None
        Number of folds a progress bar should expect before the final fit; None for a
        single fit, whose number of steps is unknown.
    max_time : float or None
        Seconds after which the fit is stopped.
    metadata : dict, optional
        For example the sample weights.
    """

    def __init__(
        self,
        estimator: Any,
        X: Any,
        y: Any,
        max_iter: int | None = None,
        max_time: float | None = None,
        metadata: dict[str, Any] | None = None,
    ) -> None:
        self.history: dict[str, list[float]] = {
            "objective": [],
            "gap": [],
            "seconds": [],
        }
        self._estimator, self._data = estimator, {"X": X, "y": y}
        if metadata:
            self._data["metadata"] = metadata
        self._start, self._max_time = time.perf_counter(), max_time
        # A fit has one root: the final fit after a cross-validation is a task of it.
        self._root = getattr(estimator, "_callback_fit_ctx", None)
        if self._root is None:
            tasks = None if max_iter is None else max_iter + 1
            self._context = estimator._init_callback_context(max_subtasks=tasks)
        else:
            self._context = self._root.subcontext("final fit", max_subtasks=None)
        self._watched = bool(getattr(estimator, "_skl_callbacks", None))
        if self._watched:
            self._context.call_on_fit_task_begin(estimator=estimator, **self._data)

    def step(
        self,
        objective: float,
        gap: float,
        state: Callable[[], dict[str, Any]] | None = None,
    ) -> Status | None:
        """Record one step; return a status if the solver should stop.

        ``state`` gives the fitted attributes as of now, computed only if asked for.
        """
        elapsed = time.perf_counter() - self._start
        for name, value in zip(self.history, (objective, gap, elapsed)):
            self.history[name].append(float(value))
        if self._watched:
            task = self._context.subcontext(task_name="step")
            task.call_on_fit_task_begin(estimator=self._estimator, **self._data)
            stop = task.call_on_fit_task_end(
                estimator=self._estimator,
                **self._data,
                reconstruction_attributes=state,
            )
            if stop:
                return Status.STOPPED
        if self._max_time is not None and elapsed > self._max_time:
            return Status.TIME_LIMIT
        return None

    def close(self, state: dict[str, Any]) -> None:
        """End the fit's own task; ``state`` are the fitted attributes."""
        if not self._watched:
            return
        for context in (self._context, self._root):
            if context is not None:
                context.call_on_fit_task_end(
                    estimator=self._estimator,
                    **self._data,
                    reconstruction_attributes=state,
                )

    def run_folds(
        self, n_folds: int, work: Callable[[int], None], max_time: float | None
    ) -> tuple[int, Status | None]:
        """Run ``work(fold)`` for each fold, as many as Ctrl-C and ``max_time`` allow.

        Returns how many are complete and, if not all, why. Without a single complete
        fold there is nothing to choose from, and the interrupt is raised again.
        """
        for fold in range(n_folds):
            try:
                with self.task("fold"):
                    work(fold)
            except KeyboardInterrupt:
                if fold == 0:
                    raise
                return fold, Status.INTERRUPTED
            elapsed = time.perf_counter() - self._start
            if max_time is not None and elapsed > max_time and fold + 1 < n_folds:
                return fold + 1, Status.TIME_LIMIT
        return n_folds, None

    @contextmanager
    def task(self, name: str) -> Iterator[Any]:
        """A sub-task, for example one fold; yields its context."""
        task = self._context.subcontext(task_name=name, max_subtasks=None)
        if self._watched:
            task.call_on_fit_task_begin(estimator=self._estimator, **self._data)
        yield task
        if self._watched:
            task.call_on_fit_task_end(estimator=self._estimator, **self._data)
