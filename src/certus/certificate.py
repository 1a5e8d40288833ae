"""What a fit proves: claims, their strength, and the certificate that holds them.

A :class:`Claim` is one checked statement about one fit; a :class:`Certificate` is the
set of them with what is needed to check again. Both are plain frozen data: they are
made by ``certus.verify`` and by nothing else, and they render as text, HTML and JSON.
"""

from __future__ import annotations

import html
import math
import textwrap
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from enum import Enum, StrEnum
from typing import Any

import numpy as np

from certus.evidence import witness_of
from certus.terms import TERMS

WIDTH = 80


class Strength(StrEnum):
    """How much a claim may be relied on."""

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


@dataclass(frozen=True)
class Evidence:
    """What a fit leaves for the verifier, as data.

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
        """Everything but the arrays, which travel beside the certificate."""
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
        """Inverse of :meth:`to_dict`; what older ones say of the problem is ignored."""
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
        Whether ``value`` is within ``target``; None where nothing is promised, and
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
        was computed.
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
            raise ValueError(f"a {self.strength.value} claim has met=None")

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
        """Whether a target was set and rounding is too large to tell if it is met."""
        promise = self.strength in (Strength.PROVED, Strength.STATISTICAL)
        return promise and self.target is not None and self.met is None

    @property
    def mark(self) -> str:
        """✓ met, ✗ missed, ? undecided, · a number without a promise, – refused."""
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
        met, missed = _LABELS.get(self.name, (self.name.replace("_", " "),) * 2)
        return missed if self.met is False else met

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


#: Left-column words: (met or no promise, missed).
_LABELS = {
    "duality_gap": ("solved", "not solved"),
    "backward_error": ("solved", "not solved"),
    "backward_gap": ("solved", "not solved"),
    "stationarity": ("stationary", "stationary"),
    "newton_decrement": ("decrement", "decrement"),
    "gradient_ratio": ("gradient", "gradient"),
    "gradient_norm": ("gradient", "gradient"),
    "update_sum": ("weights", "weights"),
    "mistake_bound": ("mistakes", "mistakes"),
    "training_error": ("error", "error"),
    "centre_shift": ("settled", "moving"),
    "nearest_centres": ("nearest", "too far"),
    "norm_growth": ("growth", "growth"),
    "margin_limit": ("limit", "limit"),
    "nearest_neighbours": ("nearest", "too far"),
    "training_rows": ("rows kept", "other rows"),
    "leave_one_out": ("left out", "left out"),
    "pac_bayes_bound": ("risk", "no bound"),
    "ritz_residual": ("solved", "not solved"),
    "orthonormality": ("orthogonal", "skewed"),
    "captured_variance": ("captured", "captured"),
    "largest": ("largest", "surpassed"),
    "eckart_young": ("best", "not best"),
    "components_gap": ("components", "components"),
    "weights_gap": ("weights", "weights"),
    "gibbs_error": ("error", "error"),
    "kl_divergence": ("divergence", "divergence"),
    "coverage_floor": ("floor", "floor"),
    "error_rate": ("error", "error"),
    "union_bound": ("together", "together"),
    "mean_loss": ("loss", "loss"),
    "training_loss": ("loss", "loss"),
    "reported_loss": ("as told", "not so"),
    "sample_loss": ("loss", "loss"),
    "pairs_told_apart": ("told apart", "told apart"),
    "composition": ("means", "no means"),
    "word_counts": ("counts", "miscounted"),
    "cooccurrence_counts": ("pairs", "miscounted"),
    "step_gain": ("at rest", "moving"),
    "half_step_gain": ("at rest", "moving"),
    "remaining_gain": ("left", "left"),
    "global_gap": ("at most", "at most"),
    "log_likelihood": ("likelihood", "likelihood"),
    "likelihood_gap": ("solved", "not solved"),
    "monotone": ("monotone", "not always"),
    "elbo": ("bound", "bound"),
    "reconstruction": ("remainder", "remainder"),
    "noise_variances": ("noise", "no noise"),
    "loss_excess": ("solved", "not solved"),
    "large_error": ("error", "error"),
    "validation_loss": ("held out", "held out"),
    "validation_score": ("held out", "held out"),
    "smallest_curvature": ("curvature", "curvature"),
    "largest_curvature": ("curvature", "curvature"),
    "covariance": ("no trace", "a trace"),
    "removed_variance": ("removed", "removed"),
    "criterion_difference": ("rates", "rates"),
    "oracle_gap": ("search", "search"),
    "independence": ("groups", "groups"),
    "separation": ("groups", "groups"),
    "sufficiency": ("groups", "groups"),
    "certified_accuracy": ("robust", "robust"),
    "attacked_accuracy": ("attacked", "attacked"),
    "robust_accuracy": ("robust", "robust"),
    "masked_gradients": ("masked", "masked"),
}


@dataclass(frozen=True)
class Certificate:
    """Everything the verifier found about one model on one data set.

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

    def __getitem__(self, name: str) -> Claim:
        for claim in self.claims:
            if claim.name == name:
                return claim
        have = ", ".join(c.name for c in self.claims)
        raise KeyError(f"no claim {name!r}; this certificate has: {have}")

    def __contains__(self, name: str) -> bool:
        return any(claim.name == name for claim in self.claims)

    @property
    def met(self) -> bool | None:
        """Whether the primary claim meets its target; None if nothing is promised."""
        return self[self.primary].met

    @property
    def value(self) -> float | None:
        """Value of the primary claim: what ``tol`` bounds."""
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
        parts = [f"{self.model}({_signature(self.params)})", self._size]
        checked = f"checked in {format_seconds(self.seconds)}"
        if self.origin == "file":
            parts.append("stated, not rechecked")
        elif self.fit_seconds is not None and self.origin == "fit":
            parts.append(f"fitted in {format_seconds(self.fit_seconds)}, {checked}")
        else:
            parts.append(checked)
        return " · ".join(parts)

    @property
    def _size(self) -> str:
        """How much data there is, in the words of its kind."""
        kind = "" if self.evidence is None else self.evidence.kind
        by_data = _AXES.get(str(self.fingerprint.get("dtype")), ("rows", "columns"))
        rows, columns = _AXES.get(kind, by_data)
        size = f"{self.n_samples:,} {rows}"
        return f"{size} × {self.n_features:,} {columns}" if columns else size

    @property
    def ending(self) -> str:
        """One line when the fit did not end by itself or is undecided, else empty."""
        if self.status is Status.UNDECIDED:
            return _UNDECIDED.get(self[self.primary].strength.value, "")
        return _ENDINGS.get(self.status, "")

    def __str__(self) -> str:
        lines = textwrap.wrap(
            self.headline, WIDTH, subsequent_indent="    ", break_on_hyphens=False
        )
        if self.ending:
            lines.append(f"  ! {self.ending}")
        for claim in self.claims:
            lines += claim_lines(claim)
        return "\n".join(lines)

    def __repr__(self) -> str:  # at a prompt, the words; the data are in to_dict()
        return str(self)

    def _repr_html_(self) -> str:
        rows = []
        for claim in self.claims:
            notes = "".join(
                f'<div style="opacity:.7">{html.escape(note)}</div>'
                for note in claim.notes
            )
            rows.append(
                '<tr style="vertical-align:top">'
                f'<td style="padding:.15em .6em">{claim.mark}</td>'
                f'<td style="padding:.15em .6em;white-space:nowrap">'
                f"{html.escape(claim.label)}</td>"
                f'<td style="text-align:left;padding:.15em .6em">'
                f"{html.escape(claim.detail)}{notes}</td>"
                f'<td style="padding:.15em .6em;white-space:nowrap;opacity:.7">'
                f"{html.escape(claim.basis)}</td></tr>"
            )
        ending = f"<div>! {html.escape(self.ending)}</div>" if self.ending else ""
        return (
            '<div class="certus-certificate" style="font-family:system-ui,sans-serif">'
            f"<div><strong>{html.escape(self.headline)}</strong></div>{ending}"
            f'<table style="border:0">{"".join(rows)}</table></div>'
        )


#: What rows and columns are called: by the kind of evidence, or by what the data hold.
_AXES = {
    "ratings": ("users", "items"),
    "text": ("documents", "words"),
    "str": ("documents", ""),
    "sequences": ("sequences", ""),
    "counts": ("words", "contexts"),
}

_ENDINGS = {
    Status.MAX_ITER: "stopped at max_iter",
    Status.TIME_LIMIT: "stopped at max_time",
    Status.INTERRUPTED: "interrupted; this is the model as far as it got",
    Status.STOPPED: "stopped by a callback",
    Status.DIVERGED: "diverged",
    Status.REFUTED: "REFUTED: the data is what it was fitted on, the statement is not"
    " true of it",
}

#: By the strength of the primary claim; a refusal gives its own reason.
_UNDECIDED = {
    "measured": "undecided: measured, nothing is promised about the optimum",
    "proved": "undecided: rounding is too large to tell",
    "statistical": "undecided: rounding is too large to tell",
}


def claim_lines(claim: Claim) -> list[str]:
    """A claim as text: mark, label, sentence and basis, then its notes."""
    indent, label = 15, f"  {claim.mark} {claim.label:<10} "
    room = WIDTH - indent - (len(claim.basis) + 2 if claim.basis else 0)
    body = textwrap.wrap(claim.detail, room, break_on_hyphens=False) or [""]
    if len(label) > indent:  # a long name has a line of its own
        body.insert(0, "")
    first = label.ljust(indent) + body[0]
    if claim.basis:
        first = first.ljust(WIDTH - len(claim.basis)) + claim.basis
    lines = [first, *(" " * indent + line for line in body[1:])]
    for note in claim.notes:
        wrapped = textwrap.wrap(
            note, WIDTH - indent, subsequent_indent="  ", break_on_hyphens=False
        )
        lines += [" " * indent + line for line in wrapped]
    return lines


def format_seconds(seconds: float) -> str:
    """A duration in the unit a person would use.

    Examples
    --------
    >>> format_seconds(0.00042), format_seconds(0.052), format_seconds(3.2)
    ('0.42 ms', '52 ms', '3.2 s')
    """
    if seconds >= 100:
        return f"{seconds:,.0f} s"
    if seconds >= 1:
        return f"{seconds:.2g} s"
    return f"{1000 * seconds:.2g} ms" if seconds < 0.1 else f"{1000 * seconds:.0f} ms"


def _signature(params: Mapping[str, Any]) -> str:
    text = ", ".join(f"{k}={_value(v)}" for k, v in params.items())
    return text if len(text) <= 200 else text[:197] + "..."


def _value(value: Any) -> str:
    # What stands for an object, such as (50, 20) or Huber(1.0), was not given as text.
    bare = isinstance(value, str) and value.endswith((")", "]", "..."))
    return value if bare else repr(value)


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
