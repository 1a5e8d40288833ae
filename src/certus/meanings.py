"""What the words of a certificate mean: one sentence for each claim and each term.

``certificate.explain()``, ``certus certify --explain`` and the report take their
sentences from here, and they stand in ``meanings.toml``. A new kind of claim needs a
row there; a test finds the names of claims in the source and asks for it.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from certus.certificate import Claim

__all__ = ["CLAIMS", "STRENGTHS", "TERMS", "ClaimWords", "explain", "label"]


class ClaimWords(NamedTuple):
    """How a claim is labelled, at most ten characters, and what it means."""

    met: str
    missed: str
    meaning: str


_READ: dict[str, Any] = tomllib.loads(
    Path(__file__).with_suffix(".toml").read_text(encoding="utf-8")
)
CLAIMS = {name: ClaimWords(*words) for name, words in _READ["claims"].items()}
STRENGTHS: dict[str, str] = _READ["strengths"]
TERMS: tuple[tuple[str, str, str], ...] = tuple(
    (row["pattern"], row["term"], row["meaning"]) for row in _READ["terms"]
)


def label(name: str, missed: bool) -> str:
    """One or two words for a claim of this name."""
    words = CLAIMS.get(name)
    if words is None:
        return name.replace("_", " ")
    return words.missed if missed else words.met


def explain(claims: Iterable[Claim]) -> list[tuple[str, str]]:
    """Words and their meanings: labels, then strengths, then terms that occur.

    Examples
    --------
    >>> from certus.certificate import Claim, Strength
    >>> found = Claim("margin", Strength.MEASURED, 1.0, detail="0.5 (‖w‖² = 4)")
    >>> [word for word, _ in explain([found])]
    ['margin', 'measured', '‖w‖²']
    """
    found: dict[str, str] = {}
    for claim in claims:
        if claim.undecided:
            found.setdefault(claim.label, _READ["undecided"])
        elif claim.name in CLAIMS and claim.strength.value != "refused":
            found.setdefault(claim.label, CLAIMS[claim.name].meaning)
    for claim in claims:
        name = claim.strength.value
        found.setdefault(name, STRENGTHS[name])
    text = "\n".join(
        "\n".join((claim.detail, claim.objective, claim.theorem, *claim.assumptions))
        for claim in claims
    )
    for pattern, term, meaning in TERMS:
        if re.search(pattern, text):
            found.setdefault(term, meaning)
    return list(found.items())
