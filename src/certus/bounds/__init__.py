"""Bounds and counts from the theory of learning: plain formulas, NumPy and SciPy."""

from certus.bounds.conformal import (
    conformal_quantile,
    conformal_rank,
    coverage_floor,
)
from certus.bounds.counting import cover_count
from certus.bounds.intervals import (
    Interval,
    bounded_mean,
    clopper_pearson,
    empirical_bernstein,
    excess_risk,
    hoeffding,
    hoeffding_delta,
    hoeffding_interval,
    hoeffding_samples,
)
from certus.bounds.pac_bayes import (
    binary_kl,
    binary_kl_lower,
    binary_kl_upper,
    catoni_bound,
    donsker_varadhan,
    gaussian_kl,
    mcallester_bound,
    sampled_bound,
    sampled_error,
    seeger_bound,
)
from certus.bounds.tails import hoeffding_tail, markov_bound
from certus.bounds.vc import (
    growth_function,
    labelling_count,
    sauer_bound,
    shattered,
    shattering_coefficient,
    vc_bound,
    vc_dimension,
)

__all__ = [
    "Interval",
    "binary_kl",
    "binary_kl_lower",
    "binary_kl_upper",
    "bounded_mean",
    "catoni_bound",
    "clopper_pearson",
    "conformal_quantile",
    "conformal_rank",
    "cover_count",
    "coverage_floor",
    "donsker_varadhan",
    "empirical_bernstein",
    "excess_risk",
    "gaussian_kl",
    "growth_function",
    "hoeffding",
    "hoeffding_delta",
    "hoeffding_interval",
    "hoeffding_samples",
    "hoeffding_tail",
    "labelling_count",
    "markov_bound",
    "mcallester_bound",
    "sampled_bound",
    "sampled_error",
    "sauer_bound",
    "seeger_bound",
    "shattered",
    "shattering_coefficient",
    "vc_bound",
    "vc_dimension",
]
