"""Generative models, divergences, transport maps, and diffusions in closed form."""

from __future__ import annotations

from certus.lazy import exports

#: The module of each public name that is not an estimator.
_WHERE: dict[str, str] = {
    "ClosestGaussian": "closest",
    "DIVERGENCES": "f_divergences",
    "FDivergence": "f_divergences",
    "MMDTest": "discrepancy",
    "VariationalBound": "divergences",
    "closest_gaussian": "closest",
    "conjugate": "divergences",
    "f_divergence": "divergences",
    "jensen_shannon": "divergences",
    "minimax_value": "divergences",
    "mmd": "discrepancy",
    "mmd_test": "discrepancy",
    "optimal_discriminator": "divergences",
    "variational_bound": "divergences",
}
__all__, __getattr__, __dir__ = exports(__name__, _WHERE)
