"""Measured numbers about networks and embeddings: losses, gradients, curvature.

Losses, gradients, directional derivatives, curvature and dead units, in NumPy and
float64, from arrays and callables. What is found here is measured: it says how things
stand at the fitted weights, and promises nothing about better ones.
"""

from certus.diagnostics.estimator import Diagnosed
from certus.diagnostics.networks import TrainingRecord, measure
from certus.diagnostics.spectrum import spectrum_ends

__all__ = ["Diagnosed", "TrainingRecord", "measure", "spectrum_ends"]
