"""What a fit proves: claims, their strength, and the certificate that holds them.

A :class:`Claim` is one checked statement about one fit; a :class:`Certificate` is all
claims about one model, with the data needed to check them again. Both are plain frozen
data. Only ``certus.verify`` makes them, and they render as text, HTML and JSON.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from enum import Enum, StrEnum
from typing import Any

import numpy as np

from certus import meanings, rendering
from certus.evidence import witness_of
from certus.objectives.terms import TERMS


class Strength(StrEnum):
    """How far you can rely on a claim."""

    PROVED = "proved"
    STATISTICAL = "statistical"
    MEASURED = "measured"
    REFUSED = "refused"


class Status(StrEnum):
    """How a fit, or the check of one, ended."""

    SOLVED = "solved"
    UNDECIDED = "undecided"
    TOL_NOT_REACHED = "tol_not_reached"
    MAX_ITER = "max_iter"
    TIME_LIMIT = "time_limit"
    INTERRUPTED = "interrupted"
    STOPPED = "stopped"
    DIVERGED = "diverged"
    NO_MINIMISER = "no_minimiser"
    REFUTED = "refuted"


#: First claims of fits without a guarantee: numbers to compare with those of the fit.
LEADING_LOSSES = ("training_loss", "sample_loss")


@dataclass(frozen=True)
class Evidence:
    """What a fit stores for the verifier, as plain data.

    Attributes
    ----------
    kind : str
        What the witness is one of, for example ``"linear"``.
    witness : NamedTuple or None
        A typed form of ``certus.evidence``: dual points, counts, starts. It never says
        what was minimised; the model's parameters do.
    """

    kind: str
    witness: Any = None

    def to_dict(self) -> dict[str, Any]:
        """Everything but the arrays, which are stored beside the certificate."""
        told = {} if self.witness is None else self.witness._asdict()
        kept = {
            name: _plain(value)
            for name, value in told.items()
            if value is not None and not isinstance(value, np.ndarray)
        }
        return {"kind": self.kind, "witness": kept}

    @classmethod
    def from_dict(
        cls, data: Mapping[str, Any], arrays: Mapping[str, np.ndarray] | None = None
    ) -> Evidence:
        """Inverse of :meth:`to_dict`; ignores the problem that older files state."""
        told = data["witness"] if "witness" in data else data["params"]
        return cls(
            data["kind"], witness_of(data["kind"], {**_restore(told), **(arrays or {})})
        )


@dataclass(frozen=True)
class Claim:
    """One statement about one fit.

    Attributes
    ----------
    name : str
        For example ``"duality_gap"``.
    strength : Strength
        PROVED, STATISTICAL, MEASURED or REFUSED.
    value, target : float or None
        The number, and what was asked for.
    met : bool or None
        Whether ``value`` is within ``target``; None where there is no target, and
        where rounding is too large to tell.
    objective : str
        The formula the number speaks about, with its normalisation.
    theorem : str
        Why the number means what the claim says.
    assumptions : tuple of str
        What it rests on.
    delta : float or None
        Failure probability of a STATISTICAL claim.
    allowance : float
        What rounding may have done: a bound that is part of ``value``, added to what
        was computed; an estimate of it if the claim is MEASURED.
    detail : str
        The claim as a sentence.
    fix : str
        One suggested remedy when the target is missed.
    """

    name: str
    strength: Strength
    value: float | None = None
    target: float | None = None
    met: bool | None = None
    objective: str = ""
    theorem: str = ""
    assumptions: tuple[str, ...] = ()
    delta: float | None = None
    allowance: float = 0.0
    detail: str = ""
    fix: str = ""

    def __post_init__(self) -> None:
        promise = self.strength in (Strength.PROVED, Strength.STATISTICAL)
        if not promise and self.met is not None:
            raise ValueError(f"a {self.strength.value} claim must have met=None")

    def to_dict(self) -> dict[str, Any]:
        """The claim as JSON-ready data."""
        return {f.name: _plain(getattr(self, f.name)) for f in fields(self)}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Claim:
        """Inverse of :meth:`to_dict`."""
        values = {f.name: _restore(data[f.name]) for f in fields(cls)}
        values["strength"] = Strength(values["strength"])
        values["assumptions"] = tuple(values["assumptions"])
        return cls(**values)

    @property
    def undecided(self) -> bool:
        """Whether rounding is too large to tell if the target is met."""
        promise = self.strength in (Strength.PROVED, Strength.STATISTICAL)
        return promise and self.target is not None and self.met is None

    @property
    def mark(self) -> str:
        """✓ met, ✗ missed, ? undecided, · a number without a target, – refused."""
        if self.strength is Strength.REFUSED:
            return "–"
        if self.undecided:
            return "?"
        return {True: "✓", False: "✗", None: "·"}[self.met]

    @property
    def label(self) -> str:
        """One or two words for the left column of a certificate."""
        if self.strength is Strength.REFUSED:
            return "refused"
        if self.undecided:
            return "undecided"
        return meanings.label(self.name, self.met is False)

    @property
    def basis(self) -> str:
        """The right column: proved, measured, or how sure."""
        if self.strength is Strength.STATISTICAL and self.delta is not None:
            return f"{100 * (1 - self.delta):.4g} % sure"
        return "" if self.strength is Strength.REFUSED else self.strength.value

    @property
    def notes(self) -> tuple[str, ...]:
        """The lines under the sentence: objective, assumptions, fix."""
        lines = [self.objective] if self.objective else []
        lines += list(self.assumptions)
        if self.fix:
            lines.append(f"fix: {self.fix}")
        return tuple(lines)


class Explanation(str):
    """A text that the Python prompt shows without quotes."""

    __slots__ = ()
    __repr__ = str.__str__


@dataclass(frozen=True)
class Certificate:
    """Everything that the verifier found about one model on one data set.

    Attributes
    ----------
    model : str
        Class name, prefixed with its library when it is not ours.
    params : dict
        The model's parameters.
    claims : tuple of Claim
        What was checked.
    primary : str
        Name of the claim that ``tol`` bounds.
    status : Status
        How the fit, or this check, ended.
    origin : {"fit", "certify", "file"}
        Where it was made; one read from a file is stated, not rechecked.
    n_samples, n_features : int
        Shape of the data.
    fingerprint : dict
        Shape, dtype and projections of the data. It detects mistakes, not adversaries.
    level : {"quick", "full"}
        How much was spent.
    seconds : float
        What checking cost.
    fit_seconds : float or None
        What fitting cost, checking excluded.
    threads : int
        Threads the process could use.
    versions : dict
        Library versions.
    evidence : Evidence or None
        What was checked against.
    """

    model: str
    params: Mapping[str, Any]
    claims: tuple[Claim, ...]
    primary: str
    status: Status
    origin: str = "fit"
    n_samples: int = 0
    n_features: int = 0
    fingerprint: Mapping[str, Any] = field(default_factory=dict)
    level: str = "quick"
    seconds: float = 0.0
    fit_seconds: float | None = None
    threads: int = 1
    versions: Mapping[str, str] = field(default_factory=dict)
    evidence: Evidence | None = None

    @classmethod
    def of(cls, model: Any, found: tuple[Any, ...], **more: Any) -> Certificate:
        """Make a certificate from claims, a status and the fingerprint of the data."""
        claims, status, marks = found
        rows, columns = (*(marks.get("shape") or ()), 0, 0)[:2]
        return cls(
            model=rendering.name_of(model),
            params=rendering.parameters_of(model),
            claims=tuple(claims),
            primary=claims[0].name,
            status=status,
            n_samples=int(rows),
            n_features=int(columns),
            fingerprint=marks,
            versions=rendering.versions(),
            **more,
        )

    def __getitem__(self, name: str) -> Claim:
        for claim in self.claims:
            if claim.name == name:
                return claim
        have = ", ".join(c.name for c in self.claims)
        raise KeyError(f"there is no claim {name!r}; this certificate has: {have}")

    def __contains__(self, name: str) -> bool:
        return any(claim.name == name for claim in self.claims)

    @property
    def met(self) -> bool | None:
        """Whether the primary claim meets its target; None if it has no target."""
        return self[self.primary].met

    @property
    def value(self) -> float | None:
        """Value of the primary claim, which ``tol`` bounds."""
        return self[self.primary].value

    def to_dict(self) -> dict[str, Any]:
        """The certificate as JSON-ready data, without the evidence's arrays."""
        data = {
            f.name: _plain(getattr(self, f.name))
            for f in fields(self)
            if f.name not in ("claims", "evidence")
        }
        data["met"] = self.met
        data["claims"] = [claim.to_dict() for claim in self.claims]
        data["evidence"] = None if self.evidence is None else self.evidence.to_dict()
        return data

    @classmethod
    def from_dict(
        cls, data: Mapping[str, Any], arrays: Mapping[str, np.ndarray] | None = None
    ) -> Certificate:
        """Inverse of :meth:`to_dict`; ``arrays`` are those of the evidence."""
        names = {f.name for f in fields(cls)} - {"claims", "evidence", "status"}
        values = {name: _restore(data[name]) for name in names}
        evidence = data["evidence"]
        return cls(
            **values,
            status=Status(data["status"]),
            claims=tuple(Claim.from_dict(claim) for claim in data["claims"]),
            evidence=None if evidence is None else Evidence.from_dict(evidence, arrays),
        )

    @property
    def headline(self) -> str:
        """Model, size and cost in one line."""
        return rendering.headline(self)

    @property
    def ending(self) -> str:
        """One line if the fit was stopped early or is undecided, else empty."""
        return rendering.ending(self)

    def explain(self) -> Explanation:
        """Explain each label and each technical term of this certificate.

        Returns
        -------
        Explanation
            A string with one word to a line; a prompt shows it as it is.

        Examples
        --------
        >>> from certus.linear_model import LinearRegression
        >>> model = LinearRegression().fit([[0.0], [1.0], [2.0]], [0.0, 1.0, 3.0])
        >>> print(model.certificate_.explain())  # doctest: +ELLIPSIS
          solved     The coefficients are the exact solution for data that differ from
                     yours by this share at most.
        ...
        """
        return Explanation(rendering.explanation(self))

    def __str__(self) -> str:
        return rendering.as_text(self)

    def _repr_html_(self) -> str:
        return rendering.as_html(self)

    def __repr__(self) -> str:  # the prompt shows the text; the data are in to_dict()
        return str(self)


def _plain(value: Any) -> Any:
    """JSON-ready copy: enums by value, arrays as lists, inf and nan tagged."""
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, bool | str | int) or value is None:
        return value
    if isinstance(value, np.ndarray):
        return _plain(value.tolist())
    if isinstance(value, np.generic):
        return _plain(value.item())
    if isinstance(value, float):
        return value if math.isfinite(value) else {"float": str(value)}
    if isinstance(value, Mapping):
        return {str(k): _plain(v) for k, v in value.items()}
    if type(value) in TERMS.values():
        return {"term": [type(value).__name__, _plain(value._asdict())]}
    if isinstance(value, tuple | list):
        return [_plain(v) for v in value]
    return repr(value)


def _restore(value: Any) -> Any:
    if isinstance(value, dict):
        if set(value) == {"float"}:
            return float(value["float"])
        if set(value) == {"term"}:  # a kernel inside a kernel
            name, fields = value["term"]
            return TERMS[name](**_restore(fields))
        return {k: _restore(v) for k, v in value.items()}
    if isinstance(value, list):
        return [_restore(v) for v in value]
    return value
