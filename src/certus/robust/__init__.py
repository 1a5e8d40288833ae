"""Attacks on fitted models, and brackets of how robust they are."""

from certus.robust.accuracy import RobustAccuracy, robust_accuracy
from certus.robust.attacks import PGD, DeepFool, OneStep, Worst
from certus.robust.judging import Attacked, attack
from certus.robust.recognise import as_target
from certus.robust.target import Target
from certus.threat import ThreatModel

__all__ = [
    "PGD",
    "Attacked",
    "DeepFool",
    "OneStep",
    "RobustAccuracy",
    "Target",
    "ThreatModel",
    "Worst",
    "as_target",
    "attack",
    "robust_accuracy",
]
