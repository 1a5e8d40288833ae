"""Problems of the verifier's kernel, built for tests."""

from typing import Any

import numpy as np

from certus.objectives import terms as t
from certus.verify.kernel.gap import Problem
from certus.verify.kernel.spaces import Space


def problem(
    loss: Any,
    penalty: Any,
    X: Any,
    y: Any,
    w: Any,
    b: Any = 0.0,
    s: Any = None,
    *,
    free: bool = True,
    constant: float = 0.0,
    dual: Any = None,
) -> Problem:
    """The problem of loss and penalty at (w, b); ``constant``: b is penalised."""
    s = np.ones(X.shape[0]) if s is None else np.asarray(s, dtype=float)
    used = s > 0
    space = Space(X if used.all() else X[used], s[used], free, constant)
    w, b = np.asarray(w, dtype=float), np.atleast_1d(np.asarray(b, dtype=float))
    if constant:
        w, b = np.append(w, b / constant), np.zeros(1)
    k = loss.n_classes if isinstance(loss, t.Softmax) else 1
    b = np.broadcast_to(b, (w.shape[1] if w.ndim == 2 else k,)) + 0.0
    dual = None if dual is None else np.asarray(dual)[used]
    return Problem(loss, penalty, space, np.asarray(y)[used], w, b, free, dual)
