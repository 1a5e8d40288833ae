"""Principal components and singular vectors: whether they are, and are the largest.

A is X, or X less its column means. For each row v of ``components_`` and its singular
value σ, one pass gives δ = ‖AᵀAv − σ²v‖. Some eigenvalue of AᵀA is within δ of σ², so
some singular value of A is within

    min(δ/σ, √δ, σ + ‖Av‖)

of σ. That the k found are the *largest* no cheap test can prove; a few random
directions orthogonal to them may disprove it. The whole spectrum settles it: the sum of
the k largest squares is the most that k directions can capture. It is computed at level
"full" for up to 2,000 rows or columns, and for up to 128 always.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from certus.certificate import Claim, Evidence, Status, Strength
from certus.verify import data
from certus.verify.data import Array
from certus.verify.moments import (
    Data,
    Moments,
    gram,
    is_far,
    moments,
    probes_of,
    read,
    variance_outside,
)

EPS = float(np.finfo(np.float64).eps)
SINGLE = float(np.finfo(np.float32).eps)
#: Random directions that look for a variance left out.
PROBES = 3
#: Up to so many rows or columns the whole spectrum is computed, at either level.
WHOLE = {"quick": 128, "full": 2_000}
#: How far attributes may be from what is recomputed, as a share of their own size.
AGREE = 1e-6


def check_spectral(
    model: Any, evidence: Evidence, X: Any, y: Any, sample_weight: Any, level: str
) -> tuple[list[Claim], Status, dict[str, Any]]:
    """Residuals, orthonormality, captured variance, and the largest variance left."""
    X = data.as_matrix(X)
    if sample_weight is not None:
        raise ValueError("Principal components have no sample_weight; leave it out.")
    n = X.shape[0]
    tol = evidence.params.get("tol")
    target = None if tol is None else float(tol)
    with np.errstate(all="ignore"):
        given = read(model, X, bool(evidence.params.get("centred")))
        whole = min(X.shape) <= WHOLE[level]
        probes = probes_of(given, 0 if whole else PROBES)
        found = moments(given, np.vstack([given.V, probes]))
        seen = found.projected if given.scale == 1.0 else None
        marks = data.fingerprint(X, np.zeros(n), np.ones(n), seen)
        claims = _claims(model, given, found, probes, target, level)
    if any(claim.met is False for claim in claims):
        claims.sort(key=lambda claim: claim.met is not False)
        fix = str(evidence.params.get("fix", ""))
        claims[0] = _with_fix(claims[0], fix)
        return claims, Status.TOL_NOT_REACHED, marks
    return claims, Status.SOLVED, marks


def _with_fix(claim: Claim, fix: str) -> Claim:
    return claim if claim.fix else Claim(**{**vars(claim), "fix": fix})


# -- claims -----------------------------------------------------------------------


def _claims(
    model: Any,
    given: Data,
    found: Moments,
    probes: Array,
    target: float | None,
    level: str,
) -> list[Claim]:
    k = len(given.V)
    VC = found.products[:k]
    kept = np.maximum(np.einsum("kd,kd->k", given.V, VC), 0.0)  # ‖Av‖²
    # From the data: what the model states may not widen its own rounding.
    top = float(np.sqrt(kept.max(initial=0.0)) or np.sqrt(found.squares))
    err = _rounding(given, found, top)
    residual, delta = _residual_claim(given, VC, kept, top, err, target)
    claims = [residual, _orthonormal_claim(given)]
    captured = _captured(given, VC)
    off = _disagreement(model, given, found, kept, delta, err)
    claims.append(_captured_claim(given, found, captured, off, err, top))
    if min(given.X.shape) <= WHOLE[level]:
        claims.insert(1, _best_claim(given, found, captured, err, target))
    else:
        outside = variance_outside(given, found, probes, level)
        rest = found.squares - captured
        every = k == given.V.shape[1]
        claims.append(_largest_claim(kept, outside, rest, err, target, every))
    return claims


def _rounding(given: Data, found: Moments, top: float) -> float:
    """Error of a product AᵀAv: of its sums, of a mean left in, and of the cast."""
    d = given.X.shape[1]
    err = 4 * EPS * (8 + np.sqrt(d)) * top**2
    if given.centred:
        n = given.X.shape[0]
        away = n * float(found.mean @ found.mean)
        err += 8 * EPS * (min(away, 10 * top**2) if is_far(given) else away)
        # Subtracting a mean leaves each cell with the rounding of that mean.
        err += 4 * top * np.sqrt(n) * EPS * float(np.linalg.norm(found.mean))
    return float(err + (4 * SINGLE * top**2 if given.single else 0.0))


def _nearest(delta: Array, sigma: Array, sizes: Array | None = None) -> Array:
    """How far from σ a singular value may be, given ‖AᵀAv − σ²v‖ (and ‖Av‖)."""
    out = np.fmin(delta / sigma, np.sqrt(delta))  # fmin: 0/0 is no bound
    return out if sizes is None else np.fmin(out, sigma + sizes)


def _residual_claim(
    given: Data, VC: Array, kept: Array, top: float, err: float, target: float | None
) -> tuple[Claim, Array]:
    norms = np.linalg.norm(given.V, axis=1)
    norms = np.where(norms > 0, norms, 1.0)
    delta = np.linalg.norm(VC - given.V * given.sigma[:, None] ** 2, axis=1) / norms
    each = _nearest(delta, given.sigma, np.sqrt(kept) / norms)
    spare = _nearest(np.full(len(delta), err), given.sigma)
    # Where nothing varies, σ is measured against the rows themselves.
    rows = np.sqrt(given.X.shape[0]) * float(np.linalg.norm(given.shift))
    size = top or rows or float(np.finfo(np.float64).tiny)
    value = float(np.nan_to_num(each / size, nan=np.inf).max(initial=0.0))
    allowance = float((spare / size).max(initial=0.0))
    met = None if target is None else bool(value <= target + allowance)
    asked = "" if target is None else f" (asked for {target:.0e})"
    detail = f"each is within {value:.1e} of σ₁ of a singular value{asked}"
    if met is False:
        detail = f"one may be {value:.2g} of σ₁ from any singular value{asked}"
    claim = Claim(
        "ritz_residual",
        Strength.PROVED,
        value,
        target,
        met,
        "min(δ/σ, √δ, σ + ‖Av‖)/σ₁,  δ = ‖AᵀAv − σ²v‖,  the worst of "
        f"{len(delta)}; A = X{' − 1mᵀ' if given.centred else ''}",
        "an eigenvalue of a symmetric matrix M lies within ‖Mv − λv‖/‖v‖ of any λ",
        allowance=allowance,
        detail=detail,
    )
    return claim, delta


def _orthonormal_claim(given: Data) -> Claim:
    k = len(given.V)
    value = float(np.abs(given.V @ given.V.T - np.eye(k)).max(initial=0.0))
    allowance = 4 * (SINGLE if given.single else EPS) * np.sqrt(given.V.shape[1])
    met = bool(value <= 1e-8 + allowance)
    detail = f"V Vᵀ is the identity to {value:.1e}"
    if not met:
        detail = f"V Vᵀ is {value:.2g} away from the identity"
    return Claim(
        "orthonormality",
        Strength.PROVED,
        value,
        1e-8,
        met,
        allowance=float(allowance),
        detail=detail,
    )


def _captured(given: Data, VC: Array) -> float:
    """‖AQ‖² for an orthonormal basis Q of the components."""
    if not len(given.V):
        return 0.0
    return float(np.trace(np.linalg.pinv(given.V @ given.V.T) @ (VC @ given.V.T)))


def _captured_claim(
    given: Data, found: Moments, captured: float, off: float, err: float, top: float
) -> Claim:
    """The share of ‖A‖² captured, and whether the attributes say the same."""
    share = captured / found.squares if found.squares > 0 else 1.0
    met = bool(off <= AGREE)
    what = "variance" if given.centred else "sum of squares"
    detail = f"{100 * share:.4g} % of the {what}, recomputed; the attributes agree"
    if not met:
        detail = (
            f"{100 * share:.4g} % of the {what}, recomputed; the attributes are "
            f"{off:.2g} off"
        )
    return Claim(
        "captured_variance",
        Strength.PROVED,
        share,
        None,
        met,
        "‖A Vᵀ‖²/‖A‖², and variances, ratios and means as the model states them",
        allowance=err / top**2 if top > 0 else 0.0,
        detail=detail,
        fix="" if met else "fit again",
    )


def _disagreement(
    model: Any, given: Data, found: Moments, kept: Array, room: Array, err: float
) -> float:
    """The largest distance of an attribute from what is recomputed, to its own size.

    ``room`` is what its residual explains of each square, ``err`` what rounding does.
    """
    n, k = given.X.shape[0], len(kept)
    stated = np.asarray(model.explained_variance_)
    ratios = np.asarray(model.explained_variance_ratio_, dtype=np.float64)
    sizes = {"n_samples_": n, "n_components_": k}
    wrong = any(getattr(model, name, size) != size for name, size in sizes.items())
    if stated.shape != (k,) or ratios.shape != (k,) or wrong:
        return np.inf
    own, whole = kept, found.squares
    gaps: list[Any]
    if given.centred:
        # A mean that is rounded leaves its own square in every sum about it.
        err += n * float(np.sum(np.square(given.shift - found.mean)))
        room = room + err
        gaps = [_mean_gap(given, found), _noise_gap(model, given, found, kept, room)]
        # To the square of σ, whose distance from the data is another claim.
        gaps.append(_square_gap(stated, given.sigma / given.scale, n - 1.0))
    else:
        middle = n * np.square(given.V @ found.mean)
        own, whole = kept - middle, whole - n * float(found.mean @ found.mean)
        room = room + err + 16 * EPS * middle
        err += 16 * EPS * found.squares
        inside = np.abs(np.log10(kept) - 2 * np.log10(given.scale)) < 290
        variances = stated.astype(np.float64) * given.scale * given.scale * n
        gap = np.maximum(np.abs(variances - own) - room, 0.0) / (kept + err)
        gaps = [np.where(inside, gap, 0.0)]  # else a float64 may not hold the squares
    if whole > EPS * n * float(kept.max(initial=0.0)):
        off = np.maximum(np.abs(ratios * whole - own) - room - err, 0.0)
        gaps.append(off / whole)
    worst = np.max(np.concatenate([np.atleast_1d(gap) for gap in gaps]), initial=0.0)
    return float(worst) if np.isfinite(worst) else np.inf


def _mean_gap(given: Data, found: Moments) -> Array:
    """Distance of the mean stated, in units of the largest deviation."""
    # It may be off by the rounding of its own size, and of its dtype.
    room = 4 * (SINGLE if given.single else EPS) * np.abs(found.mean)
    off = np.maximum(np.abs(given.shift - found.mean) - room, 0.0)
    size = np.sqrt(found.squares / given.X.shape[0]) or np.abs(found.mean).max() or 1.0
    return np.asarray(off / size)


def _square_gap(stated: Array, sigma: Array, unit: float) -> Array:
    """Relative distance of stated variances from σ²/unit, beyond their rounding."""
    expected = np.square(sigma / np.sqrt(unit))
    limits = np.finfo(stated.dtype if stated.dtype.kind == "f" else np.float64)
    loose = 8 * float(limits.eps) * expected + float(limits.tiny)
    off = np.maximum(np.abs(stated.astype(np.float64) - expected) - loose, 0.0)
    over = np.isinf(stated) & (expected * unit >= float(limits.max))
    return np.where(over | (off == 0), 0.0, off / expected)


def _noise_gap(
    model: Any, given: Data, found: Moments, kept: Array, room: Array
) -> float:
    """Relative distance of the noise from the mean of the variances left out."""
    (n, d), k, scale = given.X.shape, len(kept), given.scale
    noise = float(model.noise_variance_)
    if k >= min(n, d):
        return 0.0 if noise == 0 else np.inf
    rest = max(found.squares - float(kept.sum()), 0.0)
    loose = float(room.sum()) + 8 * EPS * found.squares
    loose += 8 * SINGLE * found.squares if given.single else 0.0
    tiny, size = float(np.finfo(np.float64).tiny), rest / scale / scale
    most = float(np.finfo(np.float32 if given.single else np.float64).max)
    if (size < n * tiny and np.isfinite(noise)) or (size >= most and np.isinf(noise)):
        return 0.0  # no number can hold it
    # scikit-learn divides by one or the other, depending on the solver.
    sums = [noise * scale * scale * (n - 1) * (side - k) for side in (min(n, d), d)]
    off = [abs(total - rest) - loose for total in sums]
    return 0.0 if min(off) <= 0 else float(np.min(off)) / max(rest, tiny)


# -- are they the largest ----------------------------------------------------------


def _largest_claim(
    kept: Array,
    outside: float,
    rest: float,
    err: float,
    target: float | None,
    every: bool,
) -> Claim:
    least = float(kept.min(initial=np.inf))
    # What is smaller than rounding is nothing, on either side.
    floor = max(least, err, np.finfo(float).tiny)
    value = outside / floor if outside > err else 0.0
    settled = every or rest <= least + (len(kept) + 1) * err
    missed = outside > least * (1 + 1e-6) + 4 * err and not every
    name, note = "largest", "‖(I − VᵀV) AᵀA w‖ / min ‖Av‖² over random w outside V"
    if settled and not missed:
        return Claim(
            name,
            Strength.PROVED,
            0.0 if every else max(rest, 0.0) / floor,
            1.0,
            True,
            "what is left of ‖A‖² / min ‖Av‖²",
            "no direction outside has more than all of them together",
            allowance=(len(kept) + 1) * err / floor,
            detail="no direction left out has a larger variance",
        )
    if missed and target is not None:
        return Claim(
            name,
            Strength.PROVED,
            value,
            1.0,
            False,
            note,
            "a direction w outside V has ‖Aw‖² ≥ ‖(I − VᵀV)AᵀAw‖ for some unit w",
            allowance=4 * err / floor,
            detail=f"a direction left out has {value:.3g} times the variance of the "
            "last one kept",
        )
    return Claim(
        name,
        Strength.MEASURED,
        float(value),
        1.0,
        objective=note,
        detail=f"a probe found at most {value:.2g} of the smallest variance kept "
        "outside; that nothing larger was missed is not proved",
    )


def _best_claim(
    given: Data, found: Moments, captured: float, err: float, target: float | None
) -> Claim:
    """Eckart and Young: the best k directions capture the k largest squares."""
    spectrum = np.linalg.eigvalsh(gram(given, found))[::-1]
    k = len(given.V)
    best = float(np.maximum(spectrum[:k], 0.0).sum())
    whole = found.squares if found.squares > 0 else 1.0
    value = max(best - captured, 0.0) / whole
    granted = k * err + 8 * EPS * len(spectrum) * float(spectrum[0])
    allowance = granted / whole
    met = None if target is None else bool(value <= target + allowance)
    detail = f"captures all that {k} directions can, to {value:.1e} of the whole"
    if met is False:
        detail = (
            f"{k} other directions capture {100 * best / whole:.4g} % of the whole, "
            f"these {100 * captured / whole:.4g} %"
        )
    return Claim(
        "eckart_young",
        Strength.PROVED,
        value,
        target,
        met,
        "(Σ of the k largest σ² − ‖A Vᵀ‖²)/‖A‖², all singular values computed",
        "Eckart and Young: no matrix of rank k is nearer to A than A VᵀV for the k "
        "leading singular vectors",
        allowance=float(allowance),
        detail=detail,
    )
