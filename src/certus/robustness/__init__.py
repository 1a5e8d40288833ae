"""Attacks on fitted classifiers, and proved and found bounds of their accuracy."""

from certus.robustness.accuracy import RobustAccuracy, robust_accuracy
from certus.robustness.attacks import DeepFool, OneStep, Worst
from certus.robustness.black_box import Differences, Search, finite_differences
from certus.robustness.boundary import Boundary
from certus.robustness.judging import Attacked, attack, relative_robustness
from certus.robustness.pgd import PGD
from certus.robustness.recognise import as_target
from certus.robustness.steepness import LipschitzBound, lipschitz_bound
from certus.robustness.target import Target
from certus.robustness.transfer import Stolen, Transfer, steal
from certus.threat import ThreatModel

__all__ = [
    "PGD",
    "Attacked",
    "Boundary",
    "DeepFool",
    "Differences",
    "LipschitzBound",
    "OneStep",
    "RobustAccuracy",
    "Search",
    "Stolen",
    "Target",
    "ThreatModel",
    "Transfer",
    "Worst",
    "as_target",
    "attack",
    "finite_differences",
    "lipschitz_bound",
    "relative_robustness",
    "robust_accuracy",
    "steal",
]
