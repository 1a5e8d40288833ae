"""Attacks on fitted models, and brackets of how robust they are."""

from certus.robust.attacks import PGD, DeepFool, OneStep
from certus.robust.judging import Attacked, attack
from certus.robust.recognise import as_target
from certus.robust.target import Target
from certus.threat import ThreatModel

__all__ = [
    "PGD",
    "Attacked",
    "DeepFool",
    "OneStep",
    "Target",
    "ThreatModel",
    "as_target",
    "attack",
]
