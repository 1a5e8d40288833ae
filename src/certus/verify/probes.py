"""What classifiers of several kinds of vectors show, on the same test rows.

A probe is a logistic regression on vectors, whose gap is proved. How often it is right
on new rows follows from a count (Clopper–Pearson), and how much more often than another
one from the differences of the same rows, which are paired.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from certus.certificate import Claim, Strength
from certus.typing import Array
from certus.verify.betting import betting_bound
from certus.verify.statistical import clopper_pearson

DRAWN = ("test rows are independent draws that no network and no classifier has seen",)


def probe_claims(
    gaps: Mapping[str, Claim], right: Mapping[str, Array], delta: float
) -> list[Claim]:
    """What classifiers of several kinds of vectors of the same test rows show.

    ``gaps`` has the claim ``duality_gap`` of each classifier, and ``right`` whether it
    labels each test row correctly. The first kind is compared with the others.
    """
    kinds = list(right)
    rows = {kind: np.asarray(right[kind], dtype=bool).ravel() for kind in kinds}
    own, n = rows[kinds[0]], len(rows[kinds[0]])
    if not n or any(len(each) != n for each in rows.values()):
        raise ValueError("all kinds of vectors must be judged on the same test rows.")
    worst = max(gaps, key=lambda kind: (not gaps[kind].met, gaps[kind].value or 0.0))
    told = f"the worst of {len(gaps)} classifiers: that of the {worst}"
    claims = [replace(gaps[worst], assumptions=(told,))]
    low, high = clopper_pearson(int(own.sum()), n, delta, False)
    claims.append(
        Claim(
            *("probe_accuracy", Strength.STATISTICAL, low, None, True),
            objective=f"P(right label) of the {kinds[0]}: {int(own.sum()):,} of {n:,} "
            "test rows",
            theorem="Clopper–Pearson: the interval contains the accuracy with "
            f"probability at least {1 - delta:.6g}",
            assumptions=DRAWN,
            delta=delta,
            detail=f"the {kinds[0]} label {100 * own.mean():.1f} % of {n:,} test rows "
            f"correctly; between {100 * low:.3g} % and {100 * high:.3g} % of new ones",
        )
    )
    for kind in kinds[1:]:
        tail = delta / (len(kinds) - 1)
        claims.append(_gain_claim(kinds[0], kind, own, rows[kind], tail))
    return claims


def _gain_claim(name: str, other: str, own: Array, theirs: Array, tail: float) -> Claim:
    """How many more rows one classifier labels correctly than another."""
    change = own.astype(np.float64) - theirs
    x, mean = (change + 1) / 2, float(change.mean())
    low = 2 * betting_bound(x, tail / 2) - 1
    high = 1 - 2 * betting_bound(1 - x, tail / 2)
    sure = low > 0 or high < 0
    return Claim(
        *(f"gain_over_{other.split()[0]}", Strength.STATISTICAL, low, None),
        met=True if sure else None,
        objective=f"mean of right({name}) − right({other}) over the same {len(x):,} "
        "test rows",
        theorem="betting bounds the mean of paired differences in [−1, 1]",
        assumptions=DRAWN,
        delta=tail,
        detail=f"{100 * mean:+.1f} points beside the {other}, which have "
        f"{100 * theirs.mean():.1f} %; between {100 * low:+.1f} and {100 * high:+.1f} "
        "for new rows",
        fix="" if sure else "use more test rows, which makes the interval narrower",
    )
