"""What a loss is: value, slope, curvature, conjugate, and which theorems hold for it.

A loss ℓ(y, z) is one of the terms of ``certus.terms``; z is the score a model gives.
The functions here are the verifier's own formulas with their input checked. Losses of
one score work element by element on arrays of any shape, so the squared loss of vectors
is ``value(Squared(), y, z).sum(axis=-1)``. ``Softmax`` takes scores of shape
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
