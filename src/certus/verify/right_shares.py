"""Shares of new rows for which an encoder is right, and images as the verifier reads.

One answer counts for each row, so that answers are independent where rows are, and
their number has a Clopper–Pearson interval.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from certus.certificate import Claim, Strength
from certus.typing import Array
from certus.verify import deciding as bd
from certus.verify.stating import require
from certus.verify.statistical import clopper_pearson

DELTA = 0.05
UNSEEN = ("the rows are independent draws, and no row of them was in the fit",)
_LONGER = "train for more steps, or on more rows"


def vectors_of(found: Any, n: int) -> Array:
    """Vectors in float64, one for each row."""
    Z = np.asarray(found, dtype=np.float64)
    require(Z.ndim == 2 and len(Z) == n, "it does not give each row a vector")
    require(bool(np.isfinite(Z).all()), "it gives vectors that are not numbers")
    return Z


def share_claim(
    name: str,
    right: Array,
    chance: float,
    seen: bool,
    words: tuple[str, str],
    *,
    flag: bool = True,
) -> Claim:
    """How often something is right for new rows, beside a chance.

    ``flag`` says whether a share that is surely below the chance counts as missed.
    """
    what, formula = words
    if seen:
        reason = "no rows were held out, and the networks have seen these"
        fix = "set validation_fraction, or certify the model on other rows"
        return bd.refused(name, reason, fix)
    k, n = int(right.sum()), len(right)
    low, high = clopper_pearson(k, n, DELTA, False)
    below = False if flag and high < chance else None
    met = True if low > chance else below
    between = f"between {100 * low:.3g} % and {100 * high:.3g} %"
    return Claim(
        *(name, Strength.STATISTICAL, low, chance, met),
        objective=f"{formula}: {k:,} of {n:,} rows",
        theorem="Clopper–Pearson: the interval contains the share with probability at "
        f"least {1 - DELTA:.6g}",
        assumptions=UNSEEN,
        delta=DELTA,
        detail=f"{what.format(between=between)} (here {100 * k / n:.3g} %)",
        fix="" if met else _LONGER,
    )


def images_of(model: Any, X: Any) -> Array | None:
    """Images (n, channels, height, width) in float64; None if X are not such arrays."""
    shape, first, _ = model.inputs_["layout"]
    if isinstance(X, list) and len(X) and isinstance(X[0], np.ndarray):
        X = np.stack(X) if len({x.shape for x in X}) == 1 else X
    A = np.asarray(X) if not isinstance(X, list | tuple) else np.zeros(0, dtype=object)
    if A.dtype.kind not in "biuf" or A.size != len(A) * int(np.prod(shape)):
        return None
    A = A.reshape(len(A), *shape).astype(np.float64)
    A = A[:, None] if A.ndim == 3 else (A if first else np.moveaxis(A, 3, 1))
    return A if A.shape[1:] == tuple(model.inputs_["sizes"]) else None


def not_arrays(name: str) -> list[Claim]:
    """The refusal for images that the verifier cannot read."""
    reason = "the images are files, or of another size than in the fit"
    return [bd.refused(name, reason, "pass images as an array of the size of the fit")]
