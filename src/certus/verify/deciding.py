"""Numbers with a bound on their rounding, and the claims made from them.

A sum of m products in float64, in any order, is off by at most γ_m times the sum of
their sizes, γ_m = mu/(1 − mu), u = 2⁻⁵³. The bound of the rounding is added: a claim
states computed + bound, and its target is met if that is within it.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from certus.certificate import Claim, Status, Strength
from certus.typing import Array, Fit
from certus.verify.kernel import spaces

#: Unit roundoff, the smallest number that no library flushes to zero, and γ_m.
U, TINY, gamma = spaces.UNIT, spaces.TINY, spaces.gamma
#: Advice for claims that rounding leaves undecided.
RESCALE = "centre and scale the columns (StandardScaler), or set a larger tol"


def length(v: Array) -> float:
    """‖v‖ without over- or underflow of its squares."""
    top = float(np.abs(v).max(initial=0.0))
    if not 0 < top < math.inf:
        return top
    return top * float(np.linalg.norm(v / top))


def power_of_two(size: float) -> float:
    """A power of two p with ½ ≤ p·size < 1, for sizes within range; else 1."""
    if not 0 < size < math.inf:
        return 1.0
    return math.ldexp(1.0, min(1000, -math.frexp(size)[1]))


class Number(NamedTuple):
    """A computed number, and a bound on its rounding error."""

    value: float
    rounding: float = 0.0

    @classmethod
    def share(cls, value: float, rounding: float, of: float) -> Number:
        """Both as a share of a total; infinite if the total is zero."""
        if of > 0:
            return cls(value / of, rounding / of)
        if value == 0.0:  # what is left may be rounding
            return cls(0.0, 0.0 if rounding <= 1e-290 else math.inf)
        return cls(math.inf)

    @property
    def most(self) -> float:
        """Upper bound of the true number; infinite where nothing is known about it."""
        most = float(self.value) + float(self.rounding)
        return math.inf if math.isnan(most) else most

    def within(self, target: float) -> bool | None:
        """Whether the true number meets the target; None if rounding alone exceeds it.

        It is missed all the same if the computed number exceeds the target by more than
        its rounding: the true number is then above the target.
        """
        if self.most <= target:
            return True
        lost = not self.rounding <= target and not self.value - self.rounding > target
        return None if lost else False


def worst_of(found: list[Number], target: float = math.inf) -> int:
    """Index of the number farthest from the target: one that misses it, if any does."""
    missed = [each.within(target) is False for each in found]
    return max(range(len(found)), key=lambda i: (missed[i], found[i].most))


# -- claims -----------------------------------------------------------------------


def proved(
    name: str, found: Number, target: float | None, detail: str, **words: Any
) -> Claim:
    """A PROVED claim. ``missed`` and ``fix`` are used if the target is missed."""
    missed, fix = words.pop("missed", detail), words.pop("fix", "")
    rounding = math.inf if math.isnan(found.rounding) else float(found.rounding)
    met = None if target is None else found.within(target)
    if target is None or met:
        fix = ""
    elif met is None:
        asked = f"(asked for {target:.0e})"
        detail = f"undecided: rounding errors alone may be {rounding:.1e} {asked}"
        fix = RESCALE
    else:
        detail = missed
    words |= {"allowance": rounding, "detail": detail, "fix": fix}
    return Claim(name, Strength.PROVED, found.most, target, met, **words)


def measured(name: str, value: float | None, detail: str, **words: Any) -> Claim:
    """A measured number, without a target."""
    return Claim(name, Strength.MEASURED, value, detail=detail, **words)


def refused(name: str, detail: str, fix: str, **words: Any) -> Claim:
    """A refusal: nothing can be claimed, with the reason."""
    return Claim(name, Strength.REFUSED, detail=detail, fix=fix, **words)


def replayed(claim: Claim, apart: float, limit: float) -> Claim:
    """The claim about a repeated run; undecided if it ends ``apart`` from the model."""
    if not claim.met or apart <= limit:
        return claim
    lost = f"undecided: the recorded start leads to another result, {apart:.1e} away"
    return replace(claim, met=None, detail=lost)


def wrong_count(what: str, found: int, asked: float) -> Claim:
    """The claim that a model has a wrong number of parts for its parameters."""
    told = f"the model has {found} {what}, but its parameters ask for {asked}"
    number = Number(abs(float(found) - float(asked)))
    return proved("parts", number, 0.0, told, fix="fit again with these parameters")


def refuse_weights(model: Fit, sample_weight: object) -> None:
    """Raise an error if a model that was fitted without weights is judged with them."""
    if sample_weight is not None:
        name = type(model).__name__
        raise ValueError(f"{name} takes no sample_weight; leave it out.")


def status_of(claim: Claim) -> Status:
    """The status of a check with this primary claim."""
    if claim.met is None:
        return Status.UNDECIDED
    return Status.SOLVED if claim.met else Status.TOL_NOT_REACHED


def verdict(claims: list[Claim], remarks: tuple[str, ...] = ()) -> Status:
    """Put missed claims first, then undecided ones; also return the status."""
    order = (Status.TOL_NOT_REACHED, Status.UNDECIDED, Status.SOLVED)

    def rank(claim: Claim) -> int:
        asked = claim.strength is Strength.PROVED and claim.target is not None
        return (
            order.index(status_of(claim)) if asked and claim.name not in remarks else 2
        )

    claims.sort(key=rank)
    return order[rank(claims[0])]


# -- the claims of convex problems --------------------------------------------------


class Wording(NamedTuple):
    """The name of a claim, why it holds, and its sentences."""

    name: str
    theorem: str
    met: str
    missed: str


GAP = Wording(
    "duality_gap",
    "weak duality: P(w, b) − min P ≤ P(w, b) − D(u) for every feasible u; as a share "
    "of P(best constant model)",
    "within {value} of the minimum",
    "may be {value} above the minimum",
)
BACKWARD = Wording(
    "backward_error",
    "the coefficients solve exactly a problem whose centred columns and centred target "
    "are changed by at most this share of their norms, and whose target is moved by a "
    "constant of at most this share of its standard deviation",
    "the exact solution for data within {value} of yours",
    "the exact solution only for data {value} away from yours",
)
MOVED = Wording(
    "backward_gap",
    "P(w, b) − min P ≤ value·P(best constant model) for columns that are changed by at "
    "most this share of their (centred) norms",
    "within {value} of the minimum for data within {value} of yours",
    "may be {value} above the minimum for data {value} away from yours",
)
MARGIN = Wording(
    GAP.name,
    "weak duality: every separating hyperplane with yf ≥ 1 has ½‖w‖² ≥ "
    "(Σa)²/(2‖Σayx‖²); as a share of ½‖w‖²",
    "within {value} of the widest margin's ½‖w‖²",
    "may be {value} above the widest margin's ½‖w‖²",
)


def claim_of(
    words: Wording, found: Number, tol: float, objective: str, fix: str, k: int = 1
) -> Claim:
    """A PROVED claim; ``k`` problems were judged and this is the worst."""
    what, asked = words.name.replace("_", " "), f"(asked for {tol:.0e})"
    worst = f"  (the worst of {k} targets)" if k > 1 else ""
    return proved(
        *(words.name, found, tol),
        f"{words.met.format(value=f'{found.most:.1e}')} {asked}",
        missed=f"{words.missed.format(value=f'{found.most:.2g}')} {asked}",
        fix=fix,
        objective=f"{what} of  {objective}{worst}",
        theorem=words.theorem,
    )


def impossible(words: Wording, tol: float, detail: str, fix: str) -> Claim:
    """The target is missed, whatever the numbers say."""
    return proved(words.name, Number(math.inf), tol, detail, fix=fix)
