"""How a failure probability is divided among statements that hold together.

By the union bound, statements that fail with probabilities δ₁, δ₂, … all hold at once,
except with probability δ₁ + δ₂ + …. Half of δ goes to what was asked for, in equal
parts, and the other half in equal parts to the rest; their numbers are fixed before the
rows are opened.
"""

from __future__ import annotations

from typing import NamedTuple


class DeltaShares(NamedTuple):
    """The share of δ that each statement gets; ``whole`` is δ, for ``number`` of them.

    ``asked`` is that of each statement that was asked for, ``other`` that of the rest.
    """

    whole: float
    asked: float
    other: float
    number: int

    @property
    def said(self) -> str:
        """With which probability the statements hold."""
        sure = f"{1 - self.whole:.6g}"
        if self.number < 2:
            return f"it holds with probability at least {sure}"
        return (
            f"all {self.number} statements about these rows hold together with "
            f"probability at least {sure}"
        )


def share_out(delta: float, asked: int, others: int) -> DeltaShares:
    """Divide delta among statements that were asked for, and others.

    Parameters
    ----------
    delta : float
        Failure probability: the chance that the statement does not hold. The statement
        is that all of them hold.
    asked, others : int
        How many there are of each.

    Examples
    --------
    >>> from certus.verify.together import share_out
    >>> found = share_out(0.05, 1, 10)
    >>> found.asked, found.other, found.number
    (0.025, 0.0025, 11)
    """
    if not asked or not others:
        each = delta / max(1, asked + others)
        return DeltaShares(delta, each, each, asked + others)
    return DeltaShares(delta, delta / 2 / asked, delta / 2 / others, asked + others)
