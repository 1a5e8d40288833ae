"""Principal components and singular vectors: whether they are, and are the largest.

A is X, or X less its column means. For each row v of ``components_`` and its singular
value σ, one pass gives δ = ‖AᵀAv − σ²v‖/‖v‖. Some eigenvalue of AᵀA is within δ of σ²,
so some singular value of A is within

    min(δ/σ, √δ, σ + ‖Av‖)

of σ. That the k found are the *largest* no cheap test can prove; a few random
directions orthogonal to them may disprove it. The whole spectrum settles it: the sum of
the k largest squares is the most that k directions can capture. It is computed at level
"full" for up to 2,000 rows or columns, and for up to 128 always. Rounding of the
products is bounded in ``moments``, that of eigenvalues by their residuals; numbers that
a model keeps in single precision are exact numbers, only less is asked of them.
"""

from __future__ import annotations

import math
import numbers
from typing import Any, NamedTuple

import numpy as np

from certus.certificate import Claim, Strength
from certus.verify import data, stating
from certus.verify.covariance import eigen
from certus.verify.data import Array
from certus.verify.deciding import (
    Number,
    gamma,
    proved,
    refuse_weights,
    verdict,
    wrong_count,
)
from certus.verify.kernel import reading
from certus.verify.moments import (
    Data,
    Moments,
    gram,
    moments,
    probes_of,
    read,
    size_of,
    variance_outside,
)
from certus.verify.stating import Checked, Given

#: Random directions that look for a variance left out.
PROBES = 3
#: Up to so many rows or columns the whole spectrum is computed, at either level.
WHOLE = {"quick": 128, "full": 2_000}
#: What tol=0 stands for (products tell a small σ to √γ of the largest), and the least
#: that is asked of numbers in single precision.
ROUNDING, SINGLE = 1e-6, 1e-3
#: How far V Vᵀ may be from the identity, and attributes from what is recomputed, by
#: their own size; in double and in single precision.
SKEW, AGREE = (1e-8, 1e-5), (1e-6, 1e-4)
#: ‖B‖² outside these is rounding, or beyond it: the data are scaled and read again.
FAINT, VAST = 1e-200, 1e250


class Statement(NamedTuple):
    """The largest singular values and their vectors; no ``tol``: passes were asked."""

    centred: bool
    count: Any  # as the parameter says
    tol: float | None
    fix: str


def _read_pca(model: Any) -> Statement:
    if not stating.is_ours(model):
        fix = "svd_solver='full', or certus.factor.PCA"
        return Statement(True, model.n_components, stating.TOL, fix)
    count, given = model.n_components, model.svd_solver == "randomized"
    whole = count is None or isinstance(count, numbers.Integral)
    fixed = given and model.iterated_power != "auto" and whole
    tol = None if fixed else float(model.tol) or ROUNDING
    return Statement(True, count, tol, "svd_solver='full'")


def _read_svd(model: Any) -> Statement:
    if not stating.is_ours(model):
        fix = "algorithm='arpack', or certus.factor.TruncatedSVD"
        return Statement(False, model.n_components, stating.TOL, fix)
    if model.algorithm == "randomized":
        return Statement(False, model.n_components, None, "algorithm='auto'")
    fix = "scale the columns (MaxAbsScaler)"
    return Statement(False, model.n_components, float(model.tol) or ROUNDING, fix)


READERS = {"PCA": _read_pca, "TruncatedSVD": _read_svd}


def check(model: Any, stated: Statement, given: Given) -> Checked:
    """Residuals, orthonormality, captured variance, and the largest variance left."""
    _, X, _, sample_weight, level, _ = given
    refuse_weights(model, sample_weight)
    X = reading.as_matrix(X)
    n, d = X.shape
    with np.errstate(all="ignore"):
        rows = read(model, X, stated.centred)
        whole = min(n, d) <= WHOLE[level]
        probes = probes_of(rows.V, 0 if whole else PROBES)
        P = np.vstack([rows.V, probes])
        found = moments(rows, P, whole and d <= n)
        if not FAINT < found.raw < VAST:  # the model misled about the scale
            rows = read(model, X, stated.centred, size_of(X))
            found = moments(rows, P, whole and d <= n)
        seen = found.projected if rows.scale == 1.0 else None
        marks = data.fingerprint(X, np.zeros(n), np.ones(n), seen)
        claims = _claims(model, stated, rows, found, probes, level)
    return claims, verdict(claims), marks


# -- claims -----------------------------------------------------------------------


def _claims(
    model: Any,
    stated: Statement,
    given: Data,
    found: Moments,
    probes: Array,
    level: str,
) -> list[Claim]:
    k, single = len(given.V), int(given.unit > 1e-10)
    tol = stated.tol if stated.tol is None or not single else max(stated.tol, SINGLE)
    VC = found.products[:k]
    lengths = np.linalg.norm(given.V, axis=1)
    kept = np.maximum(np.einsum("kd,kd->k", given.V, VC), 0.0)  # ‖Av‖²
    error = found.loose * lengths + found.each * np.sqrt(kept)
    claims = [
        _residual_claim(given, VC, kept, error, tol, stated.fix),
        _orthonormal_claim(given, SKEW[single]),
        _attributes_claim(model, given, found, AGREE[single]),
    ]
    captured = kept.sum()
    if k:  # ‖AQ‖² for an orthonormal basis Q of the components
        captured = np.trace(np.linalg.pinv(given.V @ given.V.T) @ (VC @ given.V.T))
    rest = Number(found.squares - float(captured), 2 * float(error.sum()) + found.loose)
    if min(given.X.shape) <= WHOLE[level]:
        claims.insert(1, _best_claim(given, found, rest, tol, stated.fix))
    else:
        outside = variance_outside(given, found, probes, level)
        claims.append(_largest_claim(kept, outside, rest, error, tol, given.V.shape))
    asked = _count(model, stated, given, found)
    return claims if asked == k else [wrong_count("components", k, asked), *claims]


def _count(model: Any, stated: Statement, given: Data, found: Moments) -> int:
    """How many components the parameters ask for; Minka's choice is taken as it is."""
    asked, k, (n, d) = stated.count, len(given.V), given.X.shape
    if asked is None:
        return min(n, d) - (getattr(model, "svd_solver", "") == "arpack")
    if isinstance(asked, numbers.Integral):
        return int(asked) if stated.centred else min(int(asked), n)
    if isinstance(asked, str) or not found.squares > 0:
        return k
    shares = np.cumsum(np.square(given.sigma)) / found.squares
    few = np.count_nonzero(shares < float(asked) - 1e-6) + 1
    enough = np.count_nonzero(shares <= float(asked) + 1e-6) + 1
    return k if few <= k <= enough else int(enough)


def _nearest(delta: Array, sigma: Array, sizes: Array) -> Array:
    """How far from σ a singular value may be, given ‖AᵀAv − σ²v‖ and ‖Av‖."""
    near = np.fmin(delta / sigma, np.sqrt(delta))  # fmin: 0/0 is no bound
    return np.fmin(near, sigma + sizes)


def _residual_claim(
    given: Data, VC: Array, kept: Array, error: Array, tol: float | None, fix: str
) -> Claim:
    lengths = np.linalg.norm(given.V, axis=1)
    lengths = np.where(lengths > 0, lengths, 1.0)
    gaps = VC - given.V * given.sigma[:, None] ** 2
    delta, off = np.linalg.norm(gaps, axis=1) / lengths, error / lengths
    off = off + gamma(len(gaps.T) + 4) * (np.linalg.norm(VC, axis=1) + given.sigma**2)
    sizes = np.sqrt(kept) / lengths
    # From the data: what the model states may not widen its own rounding. Where
    # nothing varies, σ is measured against the rows themselves.
    at = int(np.argmax(kept)) if len(kept) else 0
    top = math.sqrt(max(kept[at] - error[at], 0.0)) / lengths[at] if len(kept) else 1.0
    rows = math.sqrt(given.X.shape[0]) * float(np.linalg.norm(given.shift))
    size = top or rows or float(np.finfo(np.float64).tiny)
    each = _nearest(delta, given.sigma, sizes)
    most = _nearest(delta + off, given.sigma, np.sqrt(kept + error) / lengths)
    value, upper = (
        float(np.nan_to_num(part / size, nan=np.inf).max(initial=0.0))
        for part in (each, most)
    )
    asked = "" if tol is None else f" (asked for {tol:.0e})"
    return proved(
        "ritz_residual",
        Number(value, upper - value if math.isfinite(value) else 0.0),
        tol,
        f"each is within {upper:.0e} of σ₁ of a singular value{asked}",
        missed=f"one may be {upper:.2g} of σ₁ from any singular value{asked}",
        objective="min(δ/σ, √δ, σ + ‖Av‖)/σ₁,  δ = ‖AᵀAv − σ²v‖,  the worst of "
        f"{len(delta)}; A = X{' − 1mᵀ' if given.centred else ''}",
        theorem="an eigenvalue of a symmetric matrix M lies within ‖Mv − λv‖/‖v‖ of "
        "any λ",
        fix=fix,
    )


def _orthonormal_claim(given: Data, target: float) -> Claim:
    k, d = given.V.shape
    value = float(np.abs(given.V @ given.V.T - np.eye(k)).max(initial=0.0))
    return proved(
        "orthonormality",
        Number(value, gamma(d + 4) * (1 + value)),
        target,
        f"V Vᵀ is the identity to {value:.1e}",
        missed=f"V Vᵀ is {value:.2g} away from the identity",
    )


def _attributes_claim(model: Any, given: Data, found: Moments, agree: float) -> Claim:
    """The share of ‖A‖² captured, and whether the attributes follow from σ and A.

    Each is compared by its own size, raised so that the rounding of ‖A‖², and of σ²
    itself, is a sixteenth of what is asked.
    """
    n, k = given.X.shape[0], len(given.sigma)
    squares, whole = np.square(given.sigma), found.squares
    loose = found.loose + 4 * gamma(given.X.shape[1] + 8) * found.raw
    off = loose + 2 * given.unit * float(squares.sum())
    floor = 16 * off / agree
    share = float(squares.sum()) / whole if whole > 0 else 1.0
    what = "variance" if given.centred else "sum of squares"
    text = f"{100 * share:.4g} % of the {what}, recomputed; the attributes "
    stated = np.asarray(model.explained_variance_)
    ratios = np.asarray(model.explained_variance_ratio_, dtype=np.float64)
    sizes = {"n_samples_": n, "n_components_": k}
    worst = math.inf
    if (
        stated.shape == ratios.shape == (k,)
        and all(getattr(model, name, size) == size for name, size in sizes.items())
        and (ratios >= 0).all()
    ):
        own = squares
        if given.centred:
            gaps = [_gap(stated, squares, n - 1.0, 0.0, given), _mean_gap(given, found)]
            gaps.append(np.array(_noise_gap(model, given, found, floor)))
        else:
            own = squares - n * np.square(given.V @ found.mean)
            gaps = [_gap(stated, own, float(n), floor, given)]
            whole -= n * float(found.mean @ found.mean)
        if whole > 0:
            gaps.append(np.abs(ratios * whole - own) / (whole + floor))
        worst = float(np.max(np.concatenate([np.atleast_1d(gap) for gap in gaps])))
    return proved(
        "captured_variance",
        Number(worst, agree / 16 if floor <= whole or whole <= 0 else math.inf),
        agree,
        f"{text}agree",
        missed=f"{text}are {worst:.2g} off",
        objective="variances, ratios, mean, noise against σ and ‖A‖², by their size or "
        "that of its rounding",
        fix="fit again",
    )


def _gap(stated: Array, sums: Array, unit: float, floor: float, given: Data) -> Array:
    """Relative distance of stated variances from sums/unit, 0 where none holds it."""
    limits = np.finfo(stated.dtype if stated.dtype.kind == "f" else np.float64)
    root = np.sqrt(np.maximum(sums, 0.0) / unit) / given.scale
    lost = (root < math.sqrt(limits.tiny) * 2**12) & (stated < limits.tiny * 2**26)
    lost = (lost & (stated >= 0)) | ((root > math.sqrt(limits.max) / 4) & (stated > 0))
    off = np.abs(stated.astype(np.float64) * given.scale * given.scale * unit - sums)
    return np.where(lost | (off == 0), 0.0, off / (np.abs(sums) + floor))


def _mean_gap(given: Data, found: Moments) -> Array:
    """Distance of the mean stated, in units of the largest deviation."""
    # It may be off by the rounding of its own size, and of its dtype.
    room = 4 * given.unit * np.abs(found.mean)
    off = np.maximum(np.abs(given.shift - found.mean) - room, 0.0)
    size = np.sqrt(found.squares / given.X.shape[0]) or np.abs(found.mean).max() or 1.0
    return np.asarray(off / size)


def _noise_gap(model: Any, given: Data, found: Moments, floor: float) -> float:
    """Relative distance of the noise from the mean of the variances left out."""
    (n, d), k = given.X.shape, len(given.sigma)
    noise = np.asarray(model.noise_variance_)
    if k >= min(n, d):
        return 0.0 if noise == 0 else np.inf
    rest = np.asarray(max(found.squares - float(np.square(given.sigma).sum()), 0.0))
    # scikit-learn divides by one or the other, depending on the solver.
    sides = {(n - 1.0) * (side - k) for side in (min(n, d), d)}
    return min(float(_gap(noise, rest, unit, floor, given)) for unit in sides)


# -- are they the largest ---------------------------------------------------------


def _largest_claim(
    kept: Array,
    outside: float,
    rest: Number,
    error: Array,
    tol: float | None,
    shape: tuple[int, ...],
) -> Claim:
    off = float(error.max(initial=0.0))
    least = float(kept.min(initial=np.inf)) - off
    floor = max(least, off, float(np.finfo(float).tiny))
    value = outside / floor if outside > off else 0.0
    # What is smaller than rounding is nothing, on either side.
    missed = outside - 4 * off > (least + 2 * off) * (1 + 1e-6)
    every = shape[0] == shape[1]
    if every or rest.value + rest.rounding <= least:
        left = Number(0.0, 0.0) if every else Number(*(max(x, 0) / floor for x in rest))
        return proved(
            "largest",
            left,
            1.0,
            "no direction left out has a larger variance",
            objective="what is left of ‖A‖² / min ‖Av‖²",
            theorem="no direction outside has more than all of them together",
        )
    note = "‖(I − VᵀV) AᵀA w‖ / min ‖Av‖² over random w outside V"
    if missed and tol is not None:
        return proved(
            "largest",
            Number(value - 4 * off / floor, 4 * off / floor),
            1.0,
            f"a direction left out has {value:.3g} times the variance of the last one "
            "kept",
            objective=note,
            theorem="a direction w outside V has ‖Aw‖² ≥ ‖(I − VᵀV)AᵀAw‖ for some "
            "unit w",
            fix="svd_solver='full', more passes, or level='full' to see how much",
        )
    return Claim(
        "largest",
        Strength.MEASURED,
        float(value),
        1.0,
        objective=note,
        detail=f"a probe found at most {value:.2g} of the smallest variance kept "
        "outside; that nothing larger was missed is not proved",
    )


def _best_claim(
    given: Data, found: Moments, rest: Number, tol: float | None, fix: str
) -> Claim:
    """Eckart and Young: the best k directions capture the k largest squares.

    A rounding E of the matrix moves the sum of k eigenvalues by at most √k‖E‖.
    """
    values, _, off = eigen(gram(given, found))
    (n, d), k = given.X.shape, len(given.V)
    best = float(np.maximum(values[:k], 0.0).sum())
    whole = found.squares if found.squares > 0 else 1.0
    captured = found.squares - rest.value
    m = 0.0 if found.gram is not None else gamma(n + d + 16)
    slack = math.sqrt(k) * (found.loose + m * found.raw) + k * off + rest.rounding
    slack = slack / whole if found.squares > 0 else 0.0
    value = max(best - captured, 0.0) / whole
    return proved(
        "eckart_young",
        Number(value, slack),
        tol,
        f"captures all that {k} directions can, to {value + slack:.0e} of the whole",
        missed=f"{k} other directions capture {100 * best / whole:.4g} % of the whole, "
        f"these {100 * captured / whole:.4g} %",
        objective="(Σ of the k largest σ² − ‖A Vᵀ‖²)/‖A‖², all singular values "
        "computed",
        theorem="Eckart and Young: no matrix of rank k is nearer to A than A VᵀV for "
        "the k leading singular vectors",
        fix=fix,
    )
