"""Principal components and singular vectors: whether they are correct and the largest.

A is X, or X less its column means. For each row v of ``components_`` and its singular
value σ, one pass gives δ = ‖AᵀAv − σ²v‖/‖v‖. Some eigenvalue of AᵀA is within δ of σ²,
so some singular value of A is within

    min(δ/σ, √δ, σ + ‖Av‖)

of σ. No cheap test can prove that the k found are the *largest*; a few random
directions orthogonal to them may disprove it. The whole spectrum decides it: the sum of
the k largest squares is the most that k directions can capture. It is computed at level
"full" for up to 2,000 rows or columns, and for up to 128 always. Rounding of the
products is bounded in ``moments``, that of eigenvalues by their residuals; numbers that
a model keeps in single precision are taken as exact, with a wider target.
"""

from __future__ import annotations

import math
import numbers
from typing import Any, NamedTuple

import numpy as np

from certus.certificate import Claim, Status
from certus.typing import Array, Fit
from certus.verify import data, deciding, stating
from certus.verify.block_sums import marks_of
from certus.verify.covariance import eigen
from certus.verify.deciding import Number, gamma, proved
from certus.verify.kernel import reading
from certus.verify.moments import (
    Data,
    Moments,
    gram,
    moments,
    probes_of,
    read,
    variance_outside,
)
from certus.verify.stating import Checked, Given

#: Random directions that look for a variance left out.
PROBES = 3
#: Up to this many rows or columns, both levels compute the whole spectrum.
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


def _read_pca(model: Fit) -> Statement:
    if not stating.is_ours(model):
        fix = "svd_solver='full', or certus.decomposition.PCA"
        return Statement(True, model.n_components, stating.TOL, fix)
    count, given = model.n_components, model.svd_solver == "randomized"
    whole = count is None or isinstance(count, numbers.Integral)
    fixed = given and model.iterated_power != "auto" and whole
    tol = None if fixed else float(model.tol) or ROUNDING
    return Statement(True, count, tol, "svd_solver='full'")


def _read_svd(model: Fit) -> Statement:
    if not stating.is_ours(model):
        fix = "algorithm='arpack', or certus.decomposition.TruncatedSVD"
        return Statement(False, model.n_components, stating.TOL, fix)
    if model.algorithm == "randomized":
        return Statement(False, model.n_components, None, "algorithm='auto'")
    fix = "scale the columns (MaxAbsScaler)"
    return Statement(False, model.n_components, float(model.tol) or ROUNDING, fix)


READERS = {"PCA": _read_pca, "TruncatedSVD": _read_svd}


class Ritz(NamedTuple):
    """What the pass over the rows tells of the components, and what was asked."""

    given: Data
    found: Moments
    products: Array  # VAᵀA
    kept: Array  # ‖Av‖² of each
    error: Array  # how far the products may be off
    rest: Number  # what is left of ‖A‖²
    tol: float | None
    fix: str


def check(model: Fit, stated: Statement, given: Given) -> Checked:
    """Residuals, orthonormality, captured variance, and the largest variance left."""
    _, X, _, sample_weight, level, _ = given
    deciding.refuse_weights(model, sample_weight)
    blocks = stating.by_address(X)
    X = X if blocks else reading.as_matrix(X)
    n, d = X.shape
    if blocks and n < d:
        raise stating.Refusal("blocks need more rows than columns", "pass all rows")
    with np.errstate(all="ignore"):
        rows = read(model, X, stated.centred)
        whole = min(n, d) <= WHOLE[level]
        P = np.vstack([rows.V, probes_of(rows.V, 0 if whole else PROBES)])
        found = moments(rows, P, whole and d <= n)
        if not FAINT < found.raw < VAST:  # the model states a wrong scale
            if blocks:
                raise stating.Refusal("the model states a wrong scale", "fit it again")
            rows = read(model, X, stated.centred, data.size_of(X))
            found = moments(rows, P, whole and d <= n)
        known = found.projected if rows.scale == 1.0 else None
        if blocks:
            marks = marks_of(found.marks, X.shape, str(X.dtype), float(n))
        else:
            marks = data.fingerprint(X, np.zeros(n), np.ones(n), known)
        seen = _seen(rows, found, stated)
        claims = [_residual_claim(seen), _orthonormal_claim(rows)]
        claims.append(_attributes_claim(model, rows, found))
        if whole:
            claims.insert(1, _best_claim(seen))
        else:
            claims.append(_largest_claim(seen, variance_outside(rows, found, level)))
        asked, k = _count(model, stated, rows, found), len(rows.V)
        if asked != k:
            claims.insert(0, deciding.wrong_count("components", k, asked))
    agree = rows.again.claim(len(rows.X.keys)) if rows.again.count else None
    status = deciding.verdict(claims)
    if agree is not None:
        claims.append(agree)
        status = status if agree.met else Status.REFUTED
    return claims, status, marks


def _seen(given: Data, found: Moments, stated: Statement) -> Ritz:
    V, VC = given.V, found.products[: len(given.V)]
    kept = np.maximum(np.einsum("kd,kd->k", V, VC), 0.0)
    error = found.loose * np.linalg.norm(V, axis=1) + found.each * np.sqrt(kept)
    # ‖AQ‖² for an orthonormal basis Q of the components
    captured = np.trace(np.linalg.pinv(V @ V.T) @ (VC @ V.T)) if len(V) else 0.0
    rest = Number(found.squares - float(captured), 2 * float(error.sum()) + found.wide)
    tol = stated.tol
    if tol is not None and _is_single(given):
        tol = max(tol, SINGLE)
    return Ritz(given, found, VC, kept, error, rest, tol, stated.fix)


def _is_single(given: Data) -> int:
    return int(given.unit > 1e-10)


def _count(model: Fit, stated: Statement, given: Data, found: Moments) -> int:
    """How many components the parameters ask for; Minka's choice is accepted."""
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


# -- claims -----------------------------------------------------------------------


def _residual_claim(seen: Ritz) -> Claim:
    given, kept, error, tol = seen.given, seen.kept, seen.error, seen.tol
    sigma, lengths = given.sigma, np.linalg.norm(given.V, axis=1)
    lengths = np.where(lengths > 0, lengths, 1.0)
    gaps, g = seen.products - given.V * sigma[:, None] ** 2, gamma(given.V.shape[1] + 4)
    delta = np.linalg.norm(gaps, axis=1) / lengths
    off = error / lengths + g * (np.linalg.norm(seen.products, axis=1) + sigma**2)
    # From the data: what the model states may not widen its own rounding. Where
    # nothing varies, σ is measured against the rows themselves.
    least = np.sqrt(np.maximum(kept - error, 0.0)) / lengths
    rows = math.sqrt(given.X.shape[0]) * float(np.linalg.norm(given.shift))
    size = least.max(initial=0.0) or rows or float(np.finfo(np.float64).tiny)

    def farthest(delta: Array, sizes: Array) -> float:
        """How far from any singular value a σ may be, given ‖AᵀAv − σ²v‖ and ‖Av‖."""
        near = np.fmin(delta / sigma, np.sqrt(delta))  # fmin: 0/0 gives no bound
        near = np.fmin(near, sigma + sizes) / size
        return float(np.nan_to_num(near, nan=np.inf).max(initial=0.0))

    value = farthest(delta, np.sqrt(kept) / lengths)
    upper = farthest(delta + off, np.sqrt(kept + error) / lengths)
    asked = "" if tol is None else f" (asked for {tol:.0e})"
    centred = " − 1mᵀ" if given.centred else ""
    return proved(
        *("ritz_residual", Number(value, upper - value if value < math.inf else 0.0)),
        *(tol, f"each σ is within {upper:.0e}·σ₁ of a true one{asked}"),
        missed=f"a σ may be {upper:.2g}·σ₁ away from any true one{asked}",
        objective="min(δ/σ, √δ, σ + ‖Av‖)/σ₁,  δ = ‖AᵀAv − σ²v‖,  the worst of "
        f"{len(delta)}; A = X{centred}",
        theorem="an eigenvalue of a symmetric matrix M lies within ‖Mv − λv‖/‖v‖ of "
        "any λ",
        fix=seen.fix,
    )


def _orthonormal_claim(given: Data) -> Claim:
    k, d = given.V.shape
    value = float(np.abs(given.V @ given.V.T - np.eye(k)).max(initial=0.0))
    number = Number(value, gamma(d + 4) * (1 + value))
    told = f"the components are orthonormal to within {value:.1e} (V Vᵀ = I)"
    return proved("orthonormality", number, SKEW[_is_single(given)], told)


def _attributes_claim(model: Fit, given: Data, found: Moments) -> Claim:
    """The share of ‖A‖² captured, and whether the attributes follow from σ and A.

    Each is compared by its own size, raised so that the rounding of ‖A‖², and of σ²
    itself, is a sixteenth of what is asked.
    """
    n, k = given.X.shape[0], len(given.sigma)
    agree, squares, whole = AGREE[_is_single(given)], given.sigma**2, found.squares
    loose = found.wide + 4 * gamma(given.X.shape[1] + 8) * found.raw
    floor = 16 * (loose + 2 * given.unit * float(squares.sum())) / agree
    share = float(squares.sum()) / whole if whole > 0 else 1.0
    what = "variance" if given.centred else "sum of squares"
    text = f"{100 * share:.4g} % of the {what}, recomputed; the attributes "
    stated = data.fitted(model, "explained_variance_")
    ratios = data.fitted(model, "explained_variance_ratio_").astype(np.float64)
    sizes = {"n_samples_": n, "n_components_": k}
    worst = math.inf
    if (
        stated.shape == ratios.shape == (k,)
        and all(getattr(model, name, size) == size for name, size in sizes.items())
        and (ratios >= 0).all()
    ):
        own = squares
        if not given.centred:  # variances are about the mean all the same
            own = squares - n * np.square(given.V @ found.mean)
            whole -= n * float(found.mean @ found.mean)
        loss = 0.0 if given.centred else floor
        gaps = [_gap(stated, own, float(n - given.centred), loss, given)]
        if given.centred:
            gaps += [_mean_gap(given, found), _noise_gap(model, given, found, floor)]
        if whole > 0:
            gaps.append(np.abs(ratios * whole - own) / (whole + floor))
        worst = float(np.max(np.hstack(gaps)))
    known = floor <= whole or whole <= 0
    return proved(
        *("captured_variance", Number(worst, agree / 16 if known else math.inf)),
        *(agree, f"{text}agree"),
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


def _noise_gap(model: Fit, given: Data, found: Moments, floor: float) -> Array:
    """Relative distance of the noise from the mean of the variances left out."""
    (n, d), k = given.X.shape, len(given.sigma)
    noise = data.fitted(model, "noise_variance_", ())
    if k >= min(n, d):
        return np.where(noise == 0, 0.0, np.inf)
    rest = np.asarray(max(found.squares - float(np.square(given.sigma).sum()), 0.0))
    # scikit-learn divides by one or the other, depending on the solver.
    sides = {(n - 1.0) * (side - k) for side in (min(n, d), d)}
    return np.min([_gap(noise, rest, unit, floor, given) for unit in sides], axis=0)


# -- are they the largest ---------------------------------------------------------


def _largest_claim(seen: Ritz, outside: float) -> Claim:
    """Of a direction outside, from below; of all of them together, from above."""
    off, rest = float(seen.error.max(initial=0.0)), seen.rest
    k, d = seen.given.V.shape
    least = float(seen.kept.min(initial=np.inf)) - off
    floor = max(least, off, float(np.finfo(float).tiny))
    if k == d or rest.most <= least:
        left = Number(max(rest.value, 0) / floor, rest.rounding / floor)
        left = Number(0.0) if k == d else left
        return proved(
            *("largest", left, 1.0, "no direction left out has a larger variance"),
            objective="the rest of ‖A‖² / min ‖Av‖²",
            theorem="no single direction outside has more than all of them together",
        )
    value, grace = outside / floor if outside > off else 0.0, 4 * off / floor
    note = "‖(I − VᵀV) AᵀA w‖ / min ‖Av‖² over random w outside V"
    # Values smaller than rounding count as zero, on either side.
    if seen.tol is None or outside - 4 * off <= (least + 2 * off) * (1 + 1e-6):
        told = f"a search found at most {value:.2g} of the smallest variance kept "
        told += "outside; it is not proved that nothing larger was missed"
        return deciding.measured("largest", value, told, target=1.0, objective=note)
    return proved(
        *("largest", Number(value - grace, grace), 1.0),
        f"a direction left out has {value:.3g} times the variance of the last one kept",
        objective=note,
        theorem="a direction w outside V has ‖Aw‖² ≥ ‖(I − VᵀV)AᵀAw‖ for some unit w",
        fix="use svd_solver='full' or more passes; level='full' says more",
    )


def _best_claim(seen: Ritz) -> Claim:
    """Eckart and Young: the best k directions capture the k largest squares.

    A rounding E of the matrix moves the sum of k eigenvalues by at most √k‖E‖.
    """
    given, found, rest = seen.given, seen.found, seen.rest
    values, _, off = eigen(gram(given, found))
    k, captured = len(given.V), found.squares - rest.value
    best = float(np.maximum(values[:k], 0.0).sum())
    m = 0.0 if found.gram is not None else gamma(sum(given.X.shape) + 16)
    slack = math.sqrt(k) * (found.loose + m * found.raw) + k * off + rest.rounding
    whole = found.squares if found.squares > 0 else 1.0
    number = Number(max(best - captured, 0.0) / whole, slack / whole)
    if not found.squares > 0:
        number = Number(number.value)
    return proved(
        *("eckart_young", number, seen.tol),
        f"as much variance as {k} directions can hold, to {number.most:.0e} of all",
        missed=f"{k} other directions hold {100 * best / whole:.4g} % of the "
        f"variance, these {100 * captured / whole:.4g} %",
        objective="(Σ of the k largest σ² − ‖A Vᵀ‖²)/‖A‖², all singular values "
        "computed",
        theorem="Eckart and Young: no matrix of rank k is nearer to A than A VᵀV for "
        "the k leading singular vectors",
        fix=seen.fix,
    )
