"""Intervals for a risk, tail bounds, VC theory, PAC-Bayes, conformal, any-time."""

from __future__ import annotations

from certus.lazy import exports

#: The module of each public name.
_WHERE = {
    "Interval": "intervals",
    "binary_kl": "pac_bayes",
    "binary_kl_lower": "pac_bayes",
    "binary_kl_upper": "pac_bayes",
    "bounded_mean": "intervals",
    "catoni_bound": "pac_bayes",
    "clopper_pearson": "intervals",
    "conformal_p_values": "anytime",
    "conformal_quantile": "conformal",
    "conformal_rank": "conformal",
    "cover_count": "counting",
    "coverage_floor": "conformal",
    "cv_plus_coverage": "conformal",
    "cv_plus_ends": "conformal",
    "cv_plus_holds": "conformal",
    "cv_plus_rank": "conformal",
    "donsker_varadhan": "pac_bayes",
    "empirical_bernstein": "intervals",
    "excess_risk": "intervals",
    "gaussian_kl": "pac_bayes",
    "growth_function": "vc",
    "hoeffding": "intervals",
    "hoeffding_delta": "intervals",
    "hoeffding_interval": "intervals",
    "hoeffding_samples": "intervals",
    "hoeffding_tail": "tails",
    "labelling_count": "vc",
    "markov_bound": "tails",
    "mcallester_bound": "pac_bayes",
    "miss_martingale": "anytime",
    "running_mean": "anytime",
    "sampled_bound": "pac_bayes",
    "sampled_error": "pac_bayes",
    "sauer_bound": "vc",
    "seeger_bound": "pac_bayes",
    "shattered": "vc",
    "shattering_coefficient": "vc",
    "vc_bound": "vc",
    "vc_dimension": "vc",
}
__all__, __getattr__, __dir__ = exports(__name__, _WHERE)
