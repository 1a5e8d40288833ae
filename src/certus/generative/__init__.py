"""Generative models, divergences, transport maps, and diffusions in closed form."""

from __future__ import annotations

from certus.lazy import exports

#: The module of each public name that is not an estimator.
_WHERE: dict[str, str] = {
    "ClosestGaussian": "closest",
    "ColumnDistance": "examination",
    "DIVERGENCES": "f_divergences",
    "Examination": "examination",
    "FDivergence": "f_divergences",
    "FlowLikelihood": "ode",
    "FlowPoint": "ode",
    "GaussianMixtureScore": "sde",
    "MMDTest": "discrepancy",
    "NoisedMixture": "mixtures",
    "StochasticDE": "sde",
    "VariationalBound": "divergences",
    "closest_gaussian": "closest",
    "conjugate": "divergences",
    "euler_maruyama": "sde",
    "examine": "examining",
    "f_divergence": "divergences",
    "flow_log_likelihood": "ode",
    "integrate_flow": "ode",
    "jensen_shannon": "divergences",
    "minimax_value": "divergences",
    "mmd": "discrepancy",
    "mmd_test": "discrepancy",
    "optimal_discriminator": "divergences",
    "ornstein_uhlenbeck": "sde",
    "probability_flow": "ode",
    "reverse_time": "sde",
    "variance_exploding": "sde",
    "variance_preserving": "sde",
    "variational_bound": "divergences",
}
__all__, __getattr__, __dir__ = exports(__name__, _WHERE)
