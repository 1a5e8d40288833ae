"""How a number and its rounding become a claim.

The bound of the rounding is added: what is claimed is computed + bound. A target is met
if that is within it; where the bound alone is larger than the target, nothing is
decided, and the claim says how much rounding there may be.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any, NamedTuple

import numpy as np

from certus.certificate import Claim, Status, Strength

#: What helps where rounding decides.
RESCALE = "centre and scale the columns (StandardScaler), or a looser tol"


class Found(NamedTuple):
    """A number that is never below the true one, and how much of it is rounding."""

    value: float
    allowance: float

    @classmethod
    def share(cls, computed: float, bound: float, of: float) -> Found:
        """Computed + bound as a share; infinite where there is nothing to share."""
        if not of > 0:
            none = computed == 0.0 and bound <= 1e-290
            return cls(0.0 if none else math.inf, 0.0)
        return cls((computed + bound) / of, bound / of)


def is_met(found: Found, tol: float) -> bool | None:
    """Whether the target is met; None where rounding alone exceeds it and decides.

    What stands out from its rounding is not solved, however large that may be.
    """
    if found.value <= tol:
        return True
    lost = tol < found.allowance < math.inf
    return None if lost and found.value <= 2 * found.allowance else False


def status_of(claim: Claim) -> Status:
    """How a check ends that rests on this claim."""
    if claim.strength in (Strength.MEASURED, Strength.REFUSED) or claim.met is None:
        return Status.UNDECIDED
    return Status.SOLVED if claim.met else Status.TOL_NOT_REACHED


class Wording(NamedTuple):
    """The name of a claim, what it is a share of, and its sentences."""

    name: str
    what: str
    theorem: str
    met: str
    missed: str


GAP = Wording(
    "duality_gap",
    "duality gap",
    "weak duality: P(w, b) − min P ≤ P(w, b) − D(u) for every feasible u; as a share "
    "of P(best constant model)",
    "within {value} of the minimum",
    "may be {value} above the minimum",
)
BACKWARD = Wording(
    "backward_error",
    "backward error",
    "the coefficients solve exactly a problem whose centred columns and centred target "
    "are changed by at most this share of their norms, and whose target is moved by a "
    "constant of at most this share of its standard deviation",
    "exact for data within {value} of yours",
    "exact only for data {value} away from yours",
)
MOVED = Wording(
    "backward_gap",
    "backward gap",
    "P(w, b) − min P ≤ value·P(best constant model) for columns that are changed by at "
    "most this share of their (centred) norms",
    "minimal within {value} for data within {value} of yours",
    "may be {value} above the minimum of data {value} away from yours",
)
MARGIN = Wording(
    "duality_gap",
    "duality gap",
    "weak duality: every separating hyperplane with yf ≥ 1 has ½‖w‖² ≥ "
    "(Σa)²/(2‖Σayx‖²); as a share of ½‖w‖²",
    "within {value} of the widest margin's ½‖w‖²",
    "may be {value} above the widest margin's ½‖w‖²",
)


def claim_of(
    words: Wording, found: Found, tol: float, objective: str, fix: str, k: int = 1
) -> Claim:
    """A PROVED claim; ``k`` problems were judged and this is the worst."""
    note = f"{words.what} of  {objective}"
    if k > 1:
        note += f"  (the worst of {k} targets)"
    met = is_met(found, tol)
    value, asked = found.value, f"(asked for {tol:.0e})"
    if met is None:
        detail = f"undecided: rounding alone may be {found.allowance:.1e} {asked}"
        fix = RESCALE
    elif met:
        detail = f"{words.met.format(value=f'{value:.1e}')} {asked}"
        fix = ""
    else:
        detail = f"{words.missed.format(value=f'{value:.2g}')} {asked}"
    return Claim(
        words.name,
        Strength.PROVED,
        value,
        tol,
        met,
        note,
        words.theorem,
        (),
        None,
        found.allowance,
        detail,
        fix,
    )


def impossible(words: Wording, tol: float, detail: str, fix: str) -> Claim:
    """The target is missed, whatever the numbers say."""
    return Claim(
        words.name,
        Strength.PROVED,
        math.inf,
        tol,
        met=False,
        detail=detail,
        fix=fix,
    )


def refused(name: str, detail: str, fix: str, **more: Any) -> Claim:
    """Nothing can be said, and why."""
    return Claim(name, Strength.REFUSED, detail=detail, fix=fix, **more)


def worst_of(found: list[Found]) -> int:
    """Which of several problems is farthest from solved."""
    return int(
        np.argmax(
            [each.value if each.value == each.value else np.inf for each in found]
        )
    )


def replaced(claim: Claim, **more: Any) -> Claim:
    """The claim with some of its fields changed."""
    return dataclasses.replace(claim, **more)
