"""Losses, penalties and kernels as data, and the functions of a loss.

A loss ℓ(y, z) is one of the terms below; z is the score a model gives. The functions
(value, gradient, curvature, conjugate, ...) check their input and ask the loss's row in
``certus.objectives.rows``. Losses of one score work element by element on arrays of any
shape, so the squared loss of vectors is ``value(Squared(), y, z).sum(axis=-1)``.
``Softmax`` takes scores of shape (..., n_classes) and labels that are integer codes or
rows of probabilities.

The terms are bare data; the functions are imported when they are first used, so that
whoever needs the data alone (the verifier) loads no formula.
"""

from __future__ import annotations

from certus.lazy import exports
from certus.objectives import terms

#: The functions, and the modules they live in.
_WHERE = {
    "plot": "figure",
    "conjugate": "functions",
    "curvature": "functions",
    "gradient": "functions",
    "is_calibrated": "functions",
    "is_convex": "functions",
    "log_likelihood": "functions",
    "smoothness": "functions",
    "value": "functions",
}
_TERMS = ("Kernel", "Loss", "Penalty", "Term", *terms.TERMS)
__all__, __getattr__, __dir__ = exports(
    __name__, {**_WHERE, **dict.fromkeys(_TERMS, "terms")}
)
