"""What a loss is: value, slope, curvature, conjugate, and which theorems hold for it.

A loss ℓ(y, z) is one of the terms of ``certus.terms``; z is the score a model gives.
The functions check their input and ask the row of the loss in ``certus.losses.rows``.
Losses of one score work element by element on arrays of any shape, so the squared loss
of vectors is ``value(Squared(), y, z).sum(axis=-1)``. ``Softmax`` takes scores of shape
(..., n_classes) and labels that are integer codes or rows of probabilities.
"""

from certus.losses.figure import plot
from certus.losses.functions import (
    conjugate,
    curvature,
    gradient,
    is_calibrated,
    is_convex,
    log_likelihood,
    smoothness,
    value,
)

__all__ = [
    "conjugate",
    "curvature",
    "gradient",
    "is_calibrated",
    "is_convex",
    "log_likelihood",
    "plot",
    "smoothness",
    "value",
]
