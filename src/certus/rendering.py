"""How a certificate is written: its headline, its claims as text and as HTML.

Nothing is checked here: these functions only put a certificate into words.
"""

from __future__ import annotations

import html
import inspect
import sys
import textwrap
from collections.abc import Mapping
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np

from certus import meanings
from certus.objectives.terms import TERMS
from certus.typing import Fit

if TYPE_CHECKING:
    from certus.certificate import Certificate, Claim

WIDTH = 80

#: What rows and columns are called: by the kind of evidence, or by what the data hold.
_AXES = {
    "ratings": ("users", "items"),
    "text": ("documents", "words"),
    "str": ("documents", ""),
    "sequences": ("sequences", ""),
    "counts": ("words", "contexts"),
    "tokens": ("tokens", ""),
}

_ENDINGS = {
    "max_iter": "stopped at max_iter",
    "time_limit": "stopped at max_time",
    "interrupted": "interrupted; this is the model so far",
    "stopped": "stopped by a callback",
    "diverged": "diverged",
    "refuted": "REFUTED: this is the data of the fit, but the claim is not true of it",
}

#: By the strength of the primary claim; a refusal gives its own reason.
_UNDECIDED = {
    "measured": "undecided: this was measured, and nothing is proved about the optimum",
    "proved": "undecided: rounding errors are too large to tell",
    "statistical": "undecided: rounding errors are too large to tell",
}
#: A measured number that keeps its target with an estimate of its rounding.
_ESTIMATED = "confirmed by measurement: the bound of its rounding is an estimate"


def headline(certificate: Certificate) -> str:
    """Model, size and cost in one line."""
    parts = [
        f"{certificate.model}({_signature(certificate.params)})",
        _size(certificate),
    ]
    checked = f"checked in {format_seconds(certificate.seconds)}"
    if certificate.origin == "file":
        parts.append("stated, not rechecked")
    elif certificate.fit_seconds is not None and certificate.origin == "fit":
        fitted = format_seconds(certificate.fit_seconds)
        parts.append(f"fitted in {fitted}, {checked}")
    else:
        parts.append(checked)
    return " · ".join(parts)


def _size(certificate: Certificate) -> str:
    """The size of the data, in words that fit its kind."""
    kind = "" if certificate.evidence is None else certificate.evidence.kind
    held = str(certificate.fingerprint.get("dtype"))
    rows, columns = _AXES.get(kind, _AXES.get(held, ("rows", "columns")))
    size = _counted(certificate.n_samples, rows)
    if not columns:
        return size
    return f"{size} × {_counted(certificate.n_features, columns)}"


def _counted(n: int, what: str) -> str:
    """A number with its noun, which is given in the plural."""
    return f"{n:,} {what.removesuffix('s') if n == 1 else what}"


def ending(certificate: Any) -> str:
    """One line if the fit was stopped early or is undecided, else empty."""
    if certificate.status == "undecided":
        first = certificate[certificate.primary]
        numbers = first.value, first.target
        kept = None not in numbers and first.value <= first.target
        if first.strength == "measured" and first.allowance and kept:
            return _ESTIMATED
        return _UNDECIDED.get(first.strength.value, "")
    return _ENDINGS.get(certificate.status.value, "")


def as_text(certificate: Certificate) -> str:
    """The certificate as lines of text."""
    lines = textwrap.wrap(
        headline(certificate), WIDTH, subsequent_indent="    ", break_on_hyphens=False
    )
    if certificate.ending:
        lines.append(f"  ! {certificate.ending}")
    for claim in certificate.claims:
        lines += claim_lines(claim)
    return "\n".join(lines)


def _sentence(claim: Claim) -> str:
    """The sentence of a claim, without the words of its label."""
    said: str = claim.detail
    return said.removeprefix(f"{claim.label}: ") if claim.undecided else said


def explanation(certificate: Certificate) -> str:
    """What the words of a certificate mean, one to a line."""
    words = meanings.explain(certificate.claims)
    width = min(max(len(word) for word, _ in words), 22)
    lines = []
    for word, meaning in words:
        wrapped = textwrap.wrap(meaning, WIDTH - width - 4, break_on_hyphens=False)
        lines.append(f"  {word:<{width}}  {wrapped[0]}")
        lines += [" " * (width + 4) + line for line in wrapped[1:]]
    return "\n".join(lines)


def claim_lines(claim: Claim) -> list[str]:
    """A claim as text: mark, label, sentence and basis, then its notes."""
    indent, label = 15, f"  {claim.mark} {claim.label:<10} "
    room = WIDTH - indent - (len(claim.basis) + 2 if claim.basis else 0)
    body = textwrap.wrap(_sentence(claim), room, break_on_hyphens=False) or [""]
    if len(label) > indent:  # a long name gets its own line
        body.insert(0, "")
    first = label.ljust(indent) + body[0]
    if claim.basis:
        first = first.ljust(WIDTH - len(claim.basis)) + claim.basis
    return [first, *(" " * indent + line for line in body[1:]), *note_lines(claim)]


def note_lines(claim: Claim) -> list[str]:
    """The lines below the sentence of a claim: formula, assumptions, fix."""
    indent = 15
    return [
        " " * indent + line
        for note in claim.notes
        for line in textwrap.wrap(
            note, WIDTH - indent, subsequent_indent="  ", break_on_hyphens=False
        )
    ]


def as_html(certificate: Certificate) -> str:
    """The certificate as a table for notebooks."""
    rows = []
    for claim in certificate.claims:
        notes = "".join(
            f'<div style="opacity:.7">{html.escape(note)}</div>' for note in claim.notes
        )
        rows.append(
            '<tr style="vertical-align:top">'
            f'<td style="padding:.15em .6em">{claim.mark}</td>'
            f'<td style="padding:.15em .6em;white-space:nowrap">'
            f"{html.escape(claim.label)}</td>"
            f'<td style="text-align:left;padding:.15em .6em">'
            f"{html.escape(_sentence(claim))}{notes}</td>"
            f'<td style="padding:.15em .6em;white-space:nowrap;opacity:.7">'
            f"{html.escape(claim.basis)}</td></tr>"
        )
    ending = (
        f"<div>! {html.escape(certificate.ending)}</div>" if certificate.ending else ""
    )
    return (
        '<div class="certus-certificate" style="font-family:system-ui,sans-serif">'
        f"<div><strong>{html.escape(headline(certificate))}</strong></div>{ending}"
        f'<table style="border:0">{"".join(rows)}</table></div>'
    )


def format_seconds(seconds: float) -> str:
    """A duration in the unit a person would use.

    Examples
    --------
    >>> format_seconds(0.00042), format_seconds(0.0996), format_seconds(3.2)
    ('0.42 ms', '100 ms', '3.2 s')
    >>> format_seconds(0.9997), format_seconds(99.7)
    ('1 s', '100 s')
    """
    if seconds >= 99.5:  # two digits would be rounded to 1e+02
        return f"{seconds:,.0f} s"
    if seconds >= 0.9995:
        return f"{seconds:.2g} s"
    digits = ".2g" if seconds < 0.0995 else ".0f"
    return f"{1000 * seconds:{digits}} ms"


def _signature(params: Mapping[str, Any]) -> str:
    text = ", ".join(f"{k}={_value(v)}" for k, v in params.items())
    return text if len(text) <= 200 else text[:197] + "..."


def _value(value: Any) -> str:
    # Texts such as (50, 20) or Huber(1.0) stand for objects, so they get no quotes.
    bare = isinstance(value, str) and value.endswith((")", "]", "..."))
    return value if bare else repr(value)


# -- the model in words ----------------------------------------------------------


def name_of(model: Fit) -> str:
    """Class of the model, with its library where that is not ours."""
    cls = type(model)
    if cls is SimpleNamespace:
        return "coefficients"
    library = cls.__module__.split(".")[0]
    return cls.__name__ if library == "certus" else f"{library} {cls.__name__}"


def parameters_of(model: Fit) -> dict[str, Any]:
    """The parameters that differ from the defaults, for the headline."""
    if not hasattr(model, "get_params"):
        return {}
    defaults = inspect.signature(type(model).__init__).parameters
    changed = {}
    for name, value in model.get_params(deep=False).items():
        default = defaults[name].default if name in defaults else None
        if not (value is default or _equal(value, default)):
            plain = isinstance(value, bool | int | float | str) or value is None
            changed[name] = value if plain else _short(value)
    for name in ("alpha", "C", "l1_ratio"):  # what cross-validation chose
        found = np.ravel(getattr(model, f"{name}_", ()))
        if len(found) == 1 and found.dtype.kind in "fiu" and hasattr(model, "cv"):
            changed[name] = f"{found[0]:.4g} (chosen)"
    return changed


def _equal(a: Any, b: Any) -> bool:
    try:
        return bool(a == b)
    except ValueError:
        return False


def _short(value: Any) -> str:
    if type(value) in TERMS.values():
        parts = (f"{v:.3g}" if isinstance(v, float) else _short(v) for v in value)
        return f"{type(value).__name__}({', '.join(parts)})"
    if isinstance(value, np.ndarray | list | tuple) and len(value) > 6:
        return f"{len(value)} values"
    if callable(value):
        return str(getattr(value, "__name__", type(value).__name__))
    text = " ".join(repr(value).split())
    return text if len(text) <= 60 else text[:57] + "..."


def versions() -> dict[str, str]:
    """Of the libraries in use."""
    names = ("certus", "numpy", "scipy", "sklearn", "numba")
    return {
        name: str(sys.modules[name].__version__)
        for name in names
        if name in sys.modules
    }
