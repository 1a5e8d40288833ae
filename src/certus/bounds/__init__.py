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
    "bounded_mean",
    "clopper_pearson",
    "conformal_quantile",
    "conformal_rank",
    "cover_count",
    "coverage_floor",
    "empirical_bernstein",
    "excess_risk",
    "growth_function",
    "hoeffding",
    "hoeffding_delta",
    "hoeffding_interval",
    "hoeffding_samples",
    "labelling_count",
    "sauer_bound",
    "shattered",
    "shattering_coefficient",
    "vc_bound",
    "vc_dimension",
]
