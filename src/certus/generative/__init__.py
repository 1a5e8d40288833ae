"""Generative models, divergences, transport maps, and diffusions in closed form."""

from __future__ import annotations

from certus.lazy import exports

#: The module of each public name that is not an estimator.
_WHERE: dict[str, str] = {
    "ClosestGaussian": "closest",
    "ColumnDistance": "examination",
    "DIVERGENCES": "f_divergences",
    "DiscreteChain": "chains",
    "Examination": "examination",
    "FDivergence": "f_divergences",
    "FlowLikelihood": "ode",
    "FlowPoint": "ode",
    "GaussianMixtureScore": "sde",
    "LinearScore": "noising",
    "MMDTest": "discrepancy",
    "NoisedMixture": "mixtures",
    "NoisingChain": "noising",
    "QuantileMap": "quantiles",
    "StochasticDE": "sde",
    "TriangularMap": "transport",
    "VariationalBound": "divergences",
    "closest_gaussian": "closest",
    "conjugate": "divergences",
    "denoising_loss": "noising",
    "euler_maruyama": "sde",
    "examine": "examining",
    "f_divergence": "divergences",
    "fit_linear_score": "noising",
    "flow_log_likelihood": "ode",
    "gaussian_backward": "noising",
    "integrate_flow": "ode",
    "inverse_jacobian_error": "transport",
    "jensen_shannon": "divergences",
    "knothe_rosenblatt": "transport",
    "minimax_value": "divergences",
    "mmd": "discrepancy",
    "mmd_test": "discrepancy",
    "optimal_discriminator": "divergences",
    "ornstein_uhlenbeck": "sde",
    "probability_flow": "ode",
    "push_forward": "quantiles",
    "reverse_time": "sde",
    "variance_exploding": "sde",
    "variance_preserving": "sde",
    "variational_bound": "divergences",
}
__all__, __getattr__, __dir__ = exports(__name__, _WHERE)
