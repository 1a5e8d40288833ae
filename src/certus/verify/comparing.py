"""What fold errors of several candidates guarantee together, and when they do not.

In each fold every model is fixed before the fold's rows are seen, so Hoeffding's bound
holds for each of the K·F errors; a union bound makes it hold for all of them at once:

    |error − risk| ≤ √(ln(2KF/δ) / 2n),   n rows (or groups) in the smallest fold.
"""

from __future__ import annotations

from certus.certificate import Claim, Strength
from certus.verify.deciding import refused
from certus.verify.statistical import hoeffding, outwards


def union_claim(
    n: int, models: int, folds: int, *, delta: float = 0.05, reason: str = ""
) -> Claim:
    """Hoeffding's bound over all candidates and folds at once.

    Parameters
    ----------
    n : int
        Independent rows, or groups, of the smallest fold.
    models, folds : int
        How many candidates were compared on how many folds.
    delta : float, default=0.05
        Failure probability: the chance that the statement does not hold. The statement
        is that no error is further from its risk.
    reason : str
        Why there is no bound; the claim is REFUSED then.

    Examples
    --------
    >>> from certus.verify.comparing import union_claim
    >>> round(union_claim(200, 6, 5).value, 3)
    0.133
    """
    if reason or models == 0 or folds == 0:
        why = reason or "no model was tested on folds"
        return refused("union_bound", why, "")
    half = hoeffding(n, delta / (models * folds))
    return Claim(
        "union_bound",
        Strength.STATISTICAL,
        half,
        objective=f"largest |error − risk| over {models} models × {folds} folds",
        theorem="Hoeffding's inequality and the union bound",
        assumptions=("rows (or groups) are drawn independently from one distribution",),
        delta=delta,
        detail=f"for all {models} models and {folds} folds at once, true error rates "
        f"are within ± {outwards(100 * half, up=True):.2g} percentage points",
    )


def no_sealed_rows(n: int, fewest: int) -> Claim:
    """The risk of a model for which no rows were sealed.

    Parameters
    ----------
    n : int
        Rows of the table.
    fewest : int
        How many are needed for rows to be sealed.
    """
    few = f"{n:,} rows are too few" if n < fewest else "no row was set aside"
    said = f"nothing can be said about new rows: {few}"
    return refused(
        "risk", said, f"use a table of at least {fewest} rows, and a fraction above 0"
    )
