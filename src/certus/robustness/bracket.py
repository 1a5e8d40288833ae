"""What is known about the accuracy under a threat: in numbers, words and a figure.

A :class:`Bracket` holds one radius; :class:`RobustAccuracy` the curve over radii, the
rows behind its last point, and claims by their strength.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from certus.bounds.intervals import IID, clopper_pearson
from certus.certificate import Claim, Strength
from certus.rendering import claim_lines
from certus.results import TableResult
from certus.threat import ThreatModel
from certus.typing import Array, Axes
from certus.wording import number

#: Share of correct rows that black-box attacks may fool where gradients fail.
MASKED = 0.02
_HEADS = ("radius", "proved", "attacked", "new rows")
_NORMS = {1.0: "l1", 2.0: "l2", math.inf: "l∞"}


class Bracket(NamedTuple):
    """Robust accuracy at one radius.

    Attributes
    ----------
    radius : float
    lower, upper : float
        Shares of the sample: proved to be robust; not fooled by any attack.
    low, high : float
        Between these it lies for new rows, with probability 1 − delta.
    """

    radius: float
    lower: float
    upper: float
    low: float
    high: float


def bracket(radius: float, proved: Array, standing: Array, delta: float) -> Bracket:
    """The shares, and exact binomial bounds for new rows, half of delta for each."""
    n = len(proved)
    below = clopper_pearson(int(proved.sum()), n, delta)
    above = clopper_pearson(int(standing.sum()), n, delta)
    shares = float(proved.mean()), float(standing.mean())
    return Bracket(radius, *shares, below.low, above.high)


@dataclass(frozen=True, repr=False)
class RobustAccuracy(TableResult):
    """What is known about the accuracy under a threat.

    Attributes
    ----------
    threat : ThreatModel
        With the largest radius.
    curve : tuple of Bracket
        By radius, ascending; the last one is that of the threat.
    certified, fooled : ndarray of bool
        At the radius of the threat: rows proved to be robust; rows that are wrong
        already or can be made so.
    method : str
        How rows were proved to be robust; or why none was.
    refused : bool
        Whether nothing could be proved about this model.
    attacks : tuple of str
        What was tried.
    masked : int or None
        Rows that attacks by questions fooled at the largest radius after all attacks
        by gradients had failed; None if there were not both.
    delta : float
        Failure probability of the statement about new rows.
    proved : Claim
        What the verifier says of the certified rows.
    notes : tuple of str
        What else should be known.
    seconds : float
        What it cost.
    """

    threat: ThreatModel
    curve: tuple[Bracket, ...]
    certified: Array
    fooled: Array
    method: str
    refused: bool
    attacks: tuple[str, ...]
    masked: int | None
    delta: float
    proved: Claim
    notes: tuple[str, ...] = ()
    seconds: float = 0.0

    @property
    def lower(self) -> float:
        """Share of rows proved to be robust."""
        return self.curve[-1].lower

    @property
    def upper(self) -> float:
        """Share of rows that no attack fooled."""
        return self.curve[-1].upper

    @property
    def clean(self) -> float:
        """Accuracy without any attack."""
        return self.curve[0].upper

    @property
    def n_samples(self) -> int:
        """Number of rows."""
        return len(self.certified)

    @property
    def norm(self) -> str:
        """The norm of the threat, as people write it."""
        return norm_name(self.threat)

    @property
    def allowed(self) -> str:
        """What is allowed, in words."""
        return allowed(self.threat)

    @property
    def gradients_masked(self) -> bool:
        """Whether black-box attacks beat gradient attacks by more than chance."""
        right = round(self.clean * self.n_samples)
        return self.masked is not None and self.masked > MASKED * max(right, 1)

    @property
    def verdict(self) -> str:
        """What is known, in a sentence."""
        last, where = self.curve[-1], self.allowed
        if self.refused:
            said = f"at most {_share(last.upper)}"
        elif last.lower == last.upper:
            said = f"exactly {_share(last.upper)}"
        else:
            said = f"between {_share(last.lower)} and {_share(last.upper)}"
        clean = f"{_share(self.clean)} without changes"
        why = f"; {self.method}" if self.refused else ""
        return f"accuracy under any {where}: {said} ({clean}){why}"

    # ---- claims ------------------------------------------------------------------

    @property
    def claims(self) -> tuple[Claim, ...]:
        """The statements by strength: proved, measured, statistical; or refused."""
        found = [self.proved, self._attacked(), self._expected()]
        return (*found, self._masking()) if self.gradients_masked else tuple(found)

    def _attacked(self) -> Claim:
        rows, where = f"{self.n_samples:,} rows", self.allowed
        return Claim(
            "attacked_accuracy",
            Strength.MEASURED,
            self.upper,
            objective=f"share of the {rows} for which no {where} that changes the "
            "label is known",
            detail=f"at most {_share(self.upper)} of {rows}: attacked by "
            f"{', '.join(self.attacks) or 'nothing'}",
        )

    def _expected(self) -> Claim:
        last = self.curve[-1]
        return Claim(
            "robust_accuracy",
            Strength.STATISTICAL,
            last.low,
            objective=f"P(correct under any {self.allowed})",
            theorem="Clopper–Pearson bounds of both shares, each with half of delta",
            assumptions=IID,
            delta=self.delta,
            detail=f"{_ends(last)} of new rows",
        )

    def _masking(self) -> Claim:
        return Claim(
            "masked_gradients",
            Strength.MEASURED,
            float(self.masked or 0),
            detail=f"attacks without gradients fooled {self.masked:,} rows that "
            "attacks with gradients did not: the gradients are misleading, "
            "and stronger attacks may find more",
        )

    # ---- for people and machines -------------------------------------------------

    def to_dict(self) -> dict[str, Any]:
        """The result as JSON-ready data, without the rows."""
        threat = {"norm": self.norm, "radius": self.threat.radius}
        names = ("method", "refused", "masked", "gradients_masked", "delta", "seconds")
        return {
            "threat": threat,
            "verdict": self.verdict,
            "n_samples": self.n_samples,
            "clean": self.clean,
            "lower": self.lower,
            "upper": self.upper,
            "curve": [point._asdict() for point in self.curve],
            "attacks": list(self.attacks),
            "notes": list(self.notes),
            **{name: getattr(self, name) for name in names},
            "claims": [claim.to_dict() for claim in self.claims],
        }

    def plot(self, ax: Axes | None = None) -> Any:
        """Draw both bounds against the radius; returns the axes.

        Parameters
        ----------
        ax : matplotlib Axes, optional
            Axes to draw on; None means a new figure.
        """
        from certus.robustness.figure import draw

        return draw(self, ax)

    def __str__(self) -> str:
        lines = [self.verdict]
        for claim in self.claims:
            lines += claim_lines(claim)
        lines += [f"  {note}" for note in self.notes]
        lines.append("")
        rows = [_HEADS, *map(self._cells, self.curve)]
        widths = [max(len(row[j]) for row in rows) for j in range(4)]
        for row in rows:
            lines.append(
                "  " + "   ".join(f"{c:>{w}}" for c, w in zip(row, widths)).rstrip()
            )
        return "\n".join(lines)

    def __repr__(self) -> str:  # the prompt shows the text; the data are in to_dict()
        return str(self)

    def _cells(self, point: Bracket) -> tuple[str, str, str, str]:
        """A point of the curve in words."""
        proved = "–" if self.refused and point.radius else _share(point.lower)
        return number(point.radius), proved, _share(point.upper), _ends(point)

    def _columns(self) -> Mapping[str, Any]:
        return dict(zip(Bracket._fields, zip(*self.curve)))

    def _table(self) -> Iterable[Sequence[str]]:
        return [_HEADS, *map(self._cells, self.curve)]

    def _notes(self) -> Iterable[str]:
        for c in self.claims:
            basis = f" ({c.basis})" if c.basis else ""
            yield f"{c.mark} {c.label}: {c.detail}{basis}"
        yield from self.notes


def norm_name(threat: ThreatModel) -> str:
    """The norm of a threat, as people write it."""
    return _NORMS.get(threat.norm, f"l{threat.norm:g}")


def allowed(threat: ThreatModel) -> str:
    """What a threat allows, in words."""
    return f"{norm_name(threat)} change up to {number(threat.radius)}"


def _share(value: float) -> str:
    return f"{100 * value:.1f} %"


def _ends(point: Bracket) -> str:
    """The interval, rounded outwards, so that the words stay true."""
    low = math.floor(1000 * point.low + 1e-9) / 1000
    return f"{_share(low)} to {_share(math.ceil(1000 * point.high - 1e-9) / 1000)}"
