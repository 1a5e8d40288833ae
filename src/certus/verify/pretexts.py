"""Encoders whose labels come from the rows themselves: how often they are right.

- masks: what was hidden of rows is filled in (:mod:`certus.verify.hidden_parts`).
- patches: the verifier cuts two neighbouring patches out of each image and asks for the
  direction between them (``predict_position``); guessing is right in 1 of 8 cases.
- colours: the verifier passes grey images (``colorize``). An image is painted where the
  squared error of its colours is below that of leaving it grey.

How often that is right for new rows has an interval; losses are measured.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from certus.certificate import Claim, Status
from certus.fingerprints import same_data
from certus.typing import Array
from certus.verify import deciding as bd
from certus.verify.data import marks_of
from certus.verify.hidden_parts import Masks, mask_claims
from certus.verify.representations import count_of, described, plain, some_rows
from certus.verify.right_shares import images_of, not_arrays, share_claim, vectors_of
from certus.verify.stating import Checked, Given, require

#: Rows that are looked at on each level.
SOME = {"quick": 512, "full": 16_384}
#: Steps (down, right) to each neighbour, in the order of the probabilities.
DIRECTIONS = ((-1, -1), (-1, 0), (-1, 1), (0, -1), (0, 1), (1, -1), (1, 0), (1, 1))
#: Shares of red, green and blue in grey.
GREY = np.array([0.299, 0.587, 0.114])


class Statement(NamedTuple):
    """What is asked of an encoder."""

    task: str  # "masks", "patches" or "colours"
    patch: int = 1
    share: float = 0.0


def _masks(model: Any) -> Statement:
    share = float(model.mask_fraction)
    require(0 < share <= 1, "mask_fraction is not a share")
    return Statement("masks", int(model.patch_size_), share)


def _patches(model: Any) -> Statement:
    side, least = int(model.patch_size_), min(model.inputs_["sizes"][1:])
    require(1 <= side <= least // 3, "its patches do not fit into the images")
    return Statement("patches", side)


READERS: dict[str, Any] = {
    "MaskedAutoencoder": _masks,
    "PatchPosition": _patches,
    "Colorizer": lambda model: Statement("colours"),
}


def check(model: Any, stated: Statement, given: Given) -> Checked:
    """The claims of an encoder on the rows given."""
    bd.refuse_weights(model, given.sample_weight)
    marks = marks_of(given.X, None, None)
    X = some_rows(plain(given.X), SOME[given.level])
    Z = vectors_of(model.transform(X), count_of(X))
    rng, seen = np.random.default_rng(len(Z)), _was_seen(model, marks)
    if stated.task == "masks":
        asked = Masks(stated.patch, stated.share)
        found = mask_claims(model, asked, X, rng, seen)
    elif stated.task == "patches":
        found = _patch_claims(model, stated, X, rng, seen)
    else:
        found = _colour_claims(model, X, seen)
    claims = [*found, *described(Z)]
    claims.sort(key=lambda claim: claim.met is not False)
    missed = claims[0].met is False
    return claims, Status.TOL_NOT_REACHED if missed else Status.UNDECIDED, marks


def _was_seen(model: Any, marks: dict[str, Any]) -> bool:
    """Whether these may be rows of the fit, which show nothing about new rows."""
    if len(getattr(model, "held_out_", ())):
        return False
    fit = getattr(getattr(model, "certificate_", None), "fingerprint", None)
    return fit is None or same_data(fit, marks)


# -- patches ----------------------------------------------------------------------


def _patch_claims(
    model: Any, stated: Statement, X: Any, rng: Any, seen: bool
) -> list[Claim]:
    A = images_of(model, X)
    if A is None:
        return not_arrays("position_loss")
    first, second, place = pairs_of(A, stated.patch, rng)
    P = np.asarray(model.predict_position(first, second), dtype=np.float64)
    n = len(A)
    require(P.shape == (n, 8) and bool((P >= 0).all()), "it gives no probabilities")
    require(bool((np.abs(P.sum(axis=1) - 1) < 1e-6).all()), "they do not add up to 1")
    with np.errstate(divide="ignore"):
        loss = float(-np.log(P[np.arange(n), place]).mean())
    measured = bd.measured(
        *("position_loss", loss),
        f"the loss is {loss:.3f}; for guessing it is log 8 = {math.log(8):.3f}",
        objective=f"mean of −log p(direction), one pair of patches of {n:,} images",
    )
    words = (
        "the direction is right for {between} of new images; by guessing, for 12.5 %",
        "P(the most probable of 8 directions is right)",
    )
    right = P.argmax(axis=1) == place
    return [measured, share_claim("position_accuracy", right, 1 / 8, seen, words)]


def pairs_of(A: Array, side: int, rng: Any) -> tuple[Array, Array, Array]:
    """Two neighbouring patches of each image, and the direction between them."""
    n, _, h, w = A.shape
    place = rng.integers(len(DIRECTIONS), size=n)
    first, second = [], []
    for x, k in zip(A, place):
        at, to = [], []
        for length, step in zip((h, w), DIRECTIONS[k]):
            room = length - 3 * side
            gap = int(rng.integers(room // 3 + 1))
            corner = side + gap + int(rng.integers(room - 2 * gap + 1))
            at.append(corner)
            to.append(corner + step * (side + gap))
        first.append(x[:, at[0] : at[0] + side, at[1] : at[1] + side])
        second.append(x[:, to[0] : to[0] + side, to[1] : to[1] + side])
    return np.stack(first), np.stack(second), place


# -- colours ----------------------------------------------------------------------


def _colour_claims(model: Any, X: Any, seen: bool) -> list[Claim]:
    A = images_of(model, X)
    if A is None or A.shape[1] != 3:
        return not_arrays("colour_loss")
    grey = np.tensordot(A, GREY, axes=([1], [0]))
    read: Any = images_of(model, model.colorize(grey))
    require(read is not None and read.shape == A.shape, "it does not paint all images")
    told: Array = read
    require(bool(np.isfinite(told).all()), "it paints with NaN or infinity")
    size = float(np.abs(A).max()) or 1.0
    level = np.abs(np.tensordot(told, GREY, axes=([1], [0])) - grey).max() / size
    require(bool(level < 1e-6), "it changes grey values")
    chroma, painted = (B[:, [0, 2]] - grey[:, None] for B in (A, told))
    tint = chroma.mean(axis=(0, 2, 3))[:, None, None]
    whole = float(np.square(chroma).mean()) or 1.0
    ours = np.square(painted - chroma).mean(axis=(1, 2, 3)) / whole
    simple = np.square(chroma).mean(axis=(1, 2, 3)) / whole
    one = float(np.square(chroma - tint).mean()) / whole
    loss = float(ours.mean())
    measured = bd.measured(
        *("colour_loss", loss),
        f"the error of colours is {loss:.3g}; for grey images it is 1, and for the "
        f"best single tint {one:.3g}",
        objective="mean squared error of R − y and B − y / that of grey, over "
        f"{len(A):,} images held out",
    )
    words = (
        "{between} of new images are painted better than by leaving them grey",
        "P(error of the colours < that of grey)",
    )
    return [measured, share_claim("painted", ours < simple, 0.5, seen, words)]
