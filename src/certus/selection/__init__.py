"""Comparing models: splits, candidates, and the risk on rows kept aside.

``Comparison`` is the result of comparing candidates: one plan of folds for all of them,
measured errors, and a risk stated once, on rows that were sealed before.
"""

from certus.selection.comparing import compare
from certus.selection.comparison import Comparison, ComparisonRow
from certus.selection.decomposition import (
    BiasVariance,
    bias_variance,
    generalisation_gap,
    ridge_bias_variance,
)
from certus.selection.metrics import METRICS, Metric
from certus.selection.rechecking import Recheck, recheck
from certus.selection.splits import Split, make_split, sealed_rows

__all__ = [
    "METRICS",
    "BiasVariance",
    "Comparison",
    "ComparisonRow",
    "Metric",
    "Recheck",
    "Split",
    "bias_variance",
    "compare",
    "generalisation_gap",
    "make_split",
    "recheck",
    "ridge_bias_variance",
    "sealed_rows",
]
