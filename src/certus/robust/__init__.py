"""Attacks on fitted models, and brackets of how robust they are."""

from certus.robust.accuracy import RobustAccuracy, robust_accuracy
from certus.robust.attacks import DeepFool, OneStep, Worst
from certus.robust.black_box import Differences, Search, finite_differences
from certus.robust.boundary import Boundary
from certus.robust.judging import Attacked, attack, relative_robustness
from certus.robust.pgd import PGD
from certus.robust.recognise import as_target
from certus.robust.steepness import LipschitzBound, lipschitz_bound
from certus.robust.target import Target
from certus.robust.transfer import Stolen, Transfer, steal
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
