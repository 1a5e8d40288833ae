"""Vectors learnt without labels: whether they collapsed, and what they share.

The model gives vectors of rows (``transform``); joint embeddings also give the vectors
that their loss compares (``project``, of two ``views`` of each row; or both sides of a
pair). Every number is computed from these vectors again:

- ``vectors_differ``: the mean cosine of two different rows. For unit rows u₁ … uₙ and
  their sum s it is (‖s‖² − n)/(n(n − 1)), 1 where all are equal. In float64 each uᵢ
  is off by at most γ_{d + 6}, so s by e = nγ_{d + 6} + γₙ√d Σ‖uᵢ‖, and ‖s‖² by
  2‖s‖e + e² + γ_{d + 2}‖s‖².
- ``mutual_information``: I(first; second) ≥ log B − E[cross-entropy over B independent
  pairs] for any vectors that do not depend on these rows (InfoNCE; van den Oord et al.
  2018, Poole et al. 2019). Disjoint batches are independent, and the mean of bounded
  numbers x in [0, 1] is bounded by betting: for m above the mean of each xₜ given those
  before, Π(1 + λₜ(xₜ − m)) with λₜ in [0, 1) that depends on x₁ … xₜ₋₁ only exceeds 1/δ
  with probability at most δ (Ville).
- the loss compared with its value for equal vectors, the effective rank and the
  spread of each component are measured.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from certus.certificate import Claim, Status, Strength
from certus.fingerprints import same_data
from certus.typing import Array
from certus.verify import deciding as bd
from certus.verify.betting import betting_bound
from certus.verify.data import marks_of
from certus.verify.deciding import Number, gamma
from certus.verify.encoder_networks import agreement_claim
from certus.verify.joint_losses import LOSSES, matched_pairs
from certus.verify.stating import Checked, Given, require

#: Rows that are looked at on each level.
SOME = {"quick": 1_024, "full": 16_384}
#: Mean cosine from which vectors count as one.
COLLAPSED = 0.95
#: Fewest rows from which this is judged.
SEVERAL = 8
#: Share of the largest deviation below which a component carries nothing.
IDLE = 0.01
#: Batches over which the bound of the information is averaged, and their fewest.
BATCHES, FEWEST = 48, 8
#: τ of the cosines in that bound: a wider range would make the interval wider.
SMOOTH = 0.5
DELTA = 0.05
UNSEEN = ("the rows are independent draws, and no row of them was in the fit",)


class Statement(NamedTuple):
    """What kind of encoder; of joint embeddings, the loss, τ and rows of a batch."""

    kind: str
    method: str = ""
    temperature: float = 0.0
    batch_size: int = 0


def _joint(model: Any) -> Statement:
    tau, size = float(model.temperature), int(model.batch_size)
    require(str(model.method) in LOSSES, f"it has no method {model.method!r}")
    return Statement("views", str(model.method), tau, size)


def _pairs(model: Any) -> Statement:
    tau, size = float(model.temperature_), int(model.batch_size)
    return Statement("pairs", "clip", tau, size)


READERS: dict[str, Any] = {
    "ContrastiveEncoder": _joint,
    "PairedEncoder": _pairs,
}


def check(model: Any, stated: Statement, given: Given) -> Checked:
    """The claims of an encoder on the rows given."""
    bd.refuse_weights(model, given.sample_weight)
    many = SOME[given.level]
    marks = marks_of(given.X, None, None)
    X = some_rows(plain(given.X), many)
    n = count_of(X)
    claims = described(_vectors(model.transform(X), n))
    if stated.kind == "views":
        A, B = (_vectors(model.project(v), n) for v in model.views(X, random_state=0))
        alone, what = _vectors(model.project(X), n), "rows"
    else:
        require(
            count_of(plain(given.y)) == count_of(plain(given.X)),
            "its pairs are not complete",
        )
        Y = some_rows(plain(given.y), many)
        A, B = _vectors(model.transform(X), n), _vectors(model.transform_second(Y), n)
        alone, what = A, "rows of X"
    fix, pairs = _fix(model, stated), stated.kind == "pairs"
    joint = [_loss_claim(stated, A, B), collapse_claim(alone, fix, what=what)]
    joint.append(_information(model, stated, A, B, marks))
    joint.append(agreement_claim(model, X, given.level, unit=pairs))
    if pairs:
        joint.insert(2, collapse_claim(B, fix, "second_vectors_differ", "rows of Y"))
    claims = [*joint, *claims]
    claims.sort(key=lambda claim: claim.met is not False)
    missed = claims[0].met is False
    return claims, Status.TOL_NOT_REACHED if missed else Status.UNDECIDED, marks


def plain(X: Any) -> Any:
    """Rows that can be counted: what only promises an array becomes one."""
    return X if hasattr(X, "shape") or hasattr(X, "__len__") else np.asarray(X)


def count_of(X: Any) -> int:
    """How many rows there are."""
    return int(X.shape[0]) if hasattr(X, "shape") else len(X)


def some_rows(X: Any, many: int) -> Any:
    """At most this many rows, spread over all."""
    n = count_of(X)
    if n <= many:
        return X
    rows = np.linspace(0, n - 1, many).round().astype(int)
    if hasattr(X, "iloc"):
        return X.iloc[rows]
    return [X[i] for i in rows] if isinstance(X, list | tuple) else X[rows]


def _vectors(found: Any, n: int) -> Array:
    """Vectors in float64, one for each row."""
    Z = np.asarray(found, dtype=np.float64)
    require(Z.ndim == 2 and len(Z) == n, "it does not give each row a vector")
    require(bool(np.isfinite(Z).all()), "it gives vectors that are not numbers")
    return Z


def unit_rows(Z: Array) -> Array:
    """Rows divided by their lengths; rows of zeros count as one direction."""
    top = np.abs(Z).max(axis=1, keepdims=True)
    still = top[:, 0] == 0
    Z = Z / np.where(top > 0, top, 1.0)  # squares stay in range
    Z[still, 0] = 1.0
    return np.asarray(Z / np.linalg.norm(Z, axis=1, keepdims=True))


# -- claims of joint embeddings -------------------------------------------------------


def _fix(model: Any, stated: Statement) -> str:
    if stated.method != "byol":
        return "lower learning_rate, raise batch_size, or train for more steps"
    plain = not model.predictor or not model.target_decay
    if plain:
        return "set predictor=True and target_decay=0.996, which keep vectors apart"
    return 'lower learning_rate, or use method="simclr"'


def collapse_claim(
    Z: Array, fix: str, name: str = "vectors_differ", what: str = "rows"
) -> Claim:
    """Whether vectors point in different directions."""
    n, d = Z.shape
    if n < SEVERAL:
        reason = f"{n} rows may have similar vectors by chance"
        return bd.refused(name, reason, f"pass at least {SEVERAL} rows")
    s = unit_rows(Z).sum(axis=0)
    size = float(np.linalg.norm(s))
    e = n * gamma(d + 6) + gamma(n) * math.sqrt(d) * n
    square = size * size
    off = 2 * size * e + e * e + gamma(d + 2) * square
    pairs = n * (n - 1)
    found = Number((square - n) / pairs, 1.01 * off / pairs)
    return bd.proved(
        *(name, found, COLLAPSED),
        f"vectors of different {what} differ: the mean cosine of two of them is "
        f"{found.value:.3f} (1 if all are equal)",
        missed=f"collapsed: the mean cosine of the vectors of two {what} is "
        f"{found.value:.4f}, so all of them have nearly the same vector",
        objective=f"mean of cos(zᵢ, zⱼ) over i ≠ j, {n:,} {what}, the vectors that the "
        "loss compares",
        theorem="Σ cos(zᵢ, zⱼ) = ‖Σ uᵢ‖² − n for unit vectors u, with bounded rounding",
        fix=fix,
    )


def _loss_claim(stated: Statement, A: Array, B: Array) -> Claim:
    """The loss in batches like those of training, beside its trivial value."""
    n, size = len(A), min(stated.batch_size, len(A))
    if n < 2 or size < 2:
        reason = "vectors are compared with those of other rows, and there is one row"
        return bd.refused("view_loss", reason, "pass at least 2 rows")
    parts = [slice(i, i + size) for i in range(0, n - size + 1, size)]
    row = LOSSES[stated.method]
    values = [row.value(A[part], B[part], stated.temperature) for part in parts]
    loss, trivial = math.fsum(values) / len(values), row.trivial(size)
    name = "match_loss" if stated.kind == "pairs" else "view_loss"
    told = row.told.format(loss=loss, trivial=trivial, size=size, m=2 * size - 1)
    return bd.measured(
        name, loss, told, objective=f"{row.formula}, batches of {size} rows held out"
    )


def _information(
    model: Any, stated: Statement, A: Array, B: Array, marks: dict[str, Any]
) -> Claim:
    """What both sides share, from below."""
    held = getattr(model, "held_out_", ())
    fit = getattr(getattr(model, "certificate_", None), "fingerprint", None)
    if not len(held) and (fit is None or same_data(fit, marks)):
        reason = "no rows were held out, and vectors depend on the rows of the fit"
        fix = "set validation_fraction, or certify the model on other rows"
        return bd.refused("mutual_information", reason, fix)
    return information_claim(
        A, B, DELTA, "views" if stated.kind == "views" else "sides"
    )


def information_claim(A: Array, B: Array, delta: float, what: str) -> Claim:
    """A lower bound of the mutual information, by batches of B pairs."""
    n = len(A)
    size = min(64, max(2, n // BATCHES))
    many = n // size
    if many < FEWEST:
        reason = f"{n} rows make {many} batches of {size}, too few for an interval"
        fix = f"pass at least {2 * FEWEST} rows that were not in the fit"
        return bd.refused("mutual_information", reason, fix)
    least, most = information_range(size)
    values = np.array(
        [
            math.log(size) - matched_pairs(A[i : i + size], B[i : i + size], SMOOTH)
            for i in range(0, many * size, size)
        ]
    )
    shares = np.clip((values - least) / (most - least), 0.0, 1.0)
    low = least + (most - least) * betting_bound(shares, delta / 2)
    high = most - (most - least) * betting_bound(1 - shares, delta / 2)
    mean, shown = float(values.mean()), max(0.0, low)
    return Claim(
        *("mutual_information", Strength.STATISTICAL, shown, None),
        met=True if low > 0 else None,
        objective=f"log B − E[loss] ≤ I(first; second), B = {size}, τ = {SMOOTH}: "
        f"{mean:.3f} over {many} batches, between {low:.3f} and {high:.3f}",
        theorem="InfoNCE bounds the mutual information from below; betting bounds the "
        "mean over independent batches",
        assumptions=UNSEEN,
        delta=delta,
        detail=f"two {what} of a new row share at least {shown:.2f} nats ({mean:.2f} "
        f"measured; batches of {size} can show at most {most:.2f})",
        fix="" if low > 0 else "hold out more rows, which makes the interval narrower",
    )


def information_range(size: int) -> tuple[float, float]:
    """Least and largest log B − loss for cosines divided by ``SMOOTH``."""
    wide = 2 / SMOOTH
    ends = [math.log1p((size - 1) * math.exp(s)) for s in (wide, -wide)]
    room = 1e-9  # more than the rounding of a cosine
    return math.log(size) - ends[0] - room, math.log(size) - ends[1] + room


# -- descriptions ---------------------------------------------------------------------


def described(Z: Array, what: str = "vectors") -> list[Claim]:
    """The effective rank and the spread by component of some vectors."""
    n, d = Z.shape
    s = np.linalg.svd(Z - Z.mean(axis=0), compute_uv=False)
    size = float(np.abs(Z).max(initial=0.0))
    flat = not s[0] > 1e-13 * size * math.sqrt(Z.size)
    p = s / s.sum() if not flat else s
    p = p[p > 0]
    rank = 0.0 if flat else math.exp(-float((p * np.log(p)).sum()))
    deviations = Z.std(axis=0)
    largest = float(deviations.max(initial=0.0))
    idle = d if flat else int((deviations < IDLE * largest).sum())
    middle = 0.0 if flat else float(np.median(deviations) / largest)
    return [
        bd.measured(
            *("effective_rank", rank),
            f"{what} use about {rank:.1f} of {min(d, n - 1)} directions",
            objective="exp(−Σ pₖ log pₖ), p = σ/Σσ of the centred vectors of "
            f"{n:,} rows",
        ),
        bd.measured(
            *("component_spread", middle),
            f"{idle} of {d} components hardly vary; the median standard deviation is "
            f"{100 * middle:.3g} % of the largest",
            objective="median of the components' standard deviations / the largest",
        ),
    ]
