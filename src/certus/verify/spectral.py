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

from typing import Any, NamedTuple

import numpy as np
from scipy import sparse
from scipy.sparse.linalg import LinearOperator, eigsh

from certus.certificate import Claim, Evidence, Status, Strength
from certus.verify import data
from certus.verify.blocks import add_up, over_blocks
from certus.verify.data import Array

EPS = float(np.finfo(np.float64).eps)
SINGLE = float(np.finfo(np.float32).eps)
#: Random directions that look for a variance left out.
PROBES = 3
#: Up to so many rows or columns the whole spectrum is computed, at either level.
WHOLE = {"quick": 128, "full": 2_000}
#: Up to so many cells the probes take a second step: a few milliseconds.
STEPS = 1 << 24
#: How far attributes may be from what is recomputed, as a share of their own size.
AGREE = 1e-6
#: Singular values between these ends have fourth powers that lose nothing.
SMALL, LARGE = 1e-60, 1e60


class Moments(NamedTuple):
    """What one pass tells: means of columns, ‖A‖², and PAᵀA for directions P as rows.

    And the projection of the rows that a fingerprint needs, where X is dense.
    """

    mean: Array
    squares: float
    products: Array
    projected: Array | None


class Data(NamedTuple):
    """The data, how they are read, and what the model says about them."""

    X: Any
    V: Array
    sigma: Array
    centred: bool
    shift: Array
    scale: float
    single: bool


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
        given = _read(model, X, bool(evidence.params.get("centred")))
        whole = min(X.shape) <= WHOLE[level]
        probes = _probes(given, 0 if whole else PROBES)
        found = _moments(given, np.vstack([given.V, probes]))
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


def _read(model: Any, X: Any, centred: bool) -> Data:
    V = np.asarray(model.components_)
    single = V.dtype == np.float32
    V = V.astype(np.float64)
    sigma = np.asarray(model.singular_values_, dtype=np.float64)
    d = X.shape[1]
    if V.ndim != 2 or V.shape[1] != d:
        raise ValueError(
            f"X has {d} columns and the model was fitted on {V.shape[-1]}."
        )
    sound = np.isfinite(V).all() and np.isfinite(sigma).all() and (sigma >= 0).all()
    if sigma.shape != V.shape[:1] or not sound:
        raise ValueError("The model's components make no sense. Fit it again.")
    shift = np.zeros(d)
    if centred:
        shift = np.asarray(model.mean_, dtype=np.float64)
        if shift.shape != (d,) or not np.isfinite(shift).all():
            raise ValueError("The model's mean makes no sense. Fit it again.")
    scale, top = 1.0, float(np.abs(np.append(sigma, shift)).max())
    if top > 0 and not SMALL < top < LARGE:
        scale = float(2.0 ** -np.round(np.log2(top)))
        X, shift, sigma = X * scale, shift * scale, sigma * scale
    return Data(X, V, sigma, centred, shift, scale, single)


def _probes(given: Data, most: int) -> Array:
    """Orthonormal rows, orthogonal to the components; none if nothing is left."""
    V = given.V
    k, d = V.shape
    count = min(most, d - k)
    if count <= 0:
        return np.zeros((0, d))
    some = np.random.default_rng(0).standard_normal((count, d))
    # The components may be no orthonormal rows; their Gram matrix makes up for it.
    solve = np.linalg.pinv(V @ V.T)
    for _ in range(2):
        some = np.linalg.qr((some - (some @ V.T @ solve) @ V).T)[0].T
    return np.asarray(some)


def _moments(given: Data, P: Array) -> Moments:
    """One pass (sparse X: two) over the rows; ``P`` has a direction in each row."""
    X, (n, d) = given.X, given.X.shape
    far = _is_far(given)
    base = given.shift if far else np.zeros(d)
    if sparse.issparse(X) and not far:
        values = X.data.astype(np.float64, copy=False)
        squares, projected = float(values @ values), None
        sums = np.asarray(X.T @ np.ones(n)).ravel()
        products = np.ascontiguousarray(data.t_dot(X, data.dot(X, P.T)).T)
    else:
        sums, squares, products, projected = _dense_pass(X, base if far else None, P)
    left = sums / n
    if given.centred:  # what remains of the mean, by a correction of rank one
        products = products - n * np.outer(P @ left, left)
        squares -= n * float(left @ left)
    return Moments(base + left, max(squares, 0.0), products, projected)


def _is_far(given: Data) -> bool:
    """Whether rows lie so far from the origin that they are centred before products."""
    top, n = float(given.sigma.max(initial=0.0)), given.X.shape[0]
    return given.centred and n * float(given.shift @ given.shift) > 10 * top**2


def _dense(block: Any) -> Array:
    """Some rows in float64; the few of a sparse matrix that are looked at together."""
    block = block.toarray() if sparse.issparse(block) else block
    return np.asarray(block.astype(np.float64, copy=False))


def _dense_pass(
    X: Any, shift: Array | None, P: Array
) -> tuple[Array, float, Array, Array]:
    """Sums, sum of squares, PBᵀB of the rows B = X − shift, and the fingerprint's X u.

    All from one product: P has u and, after it is applied, a row of ones beside it.
    """
    k, (n, d) = len(P), X.shape
    u = data.direction(d)
    P = np.vstack([P, u])
    offset = 0.0 if shift is None else float(shift @ u)

    projected = np.empty(n)

    def look(part: slice) -> tuple[Array, float]:
        block = _dense(X[part])
        block = block if shift is None else block - shift
        z = P @ block.T
        projected[part] = z[k] + offset
        z[k] = 1.0
        return z @ block, float(np.vdot(block, block))

    out, squares = add_up(over_blocks(look, n, (1 << 20) // max(1, d)))
    return out[k], squares, out[:k], projected


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
        outside = _outside(given, found, probes, level)
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
        err += 8 * EPS * (min(away, 10 * top**2) if _is_far(given) else away)
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


def _outside(given: Data, found: Moments, probes: Array, level: str) -> float:
    """A variance that some direction orthogonal to the components has at least."""
    k, V = len(given.V), given.V
    if not len(probes):
        return 0.0
    L = found.products[k:]
    L = L - (L @ V.T) @ V
    least = float(np.linalg.norm(L, 2))
    # A cell of a sparse matrix costs about eight of a dense one.
    cells = 8 * given.X.nnz if sparse.issparse(given.X) else given.X.size
    if level == "quick" and cells <= STEPS and least > 0:
        W = np.linalg.qr(L.T)[0].T
        L = _moments(given, W - (W @ V.T) @ V).products
        return max(least, float(np.linalg.norm(L - (L @ V.T) @ V, 2)))
    return max(least, _longer(given, found)) if level == "full" else least


def _longer(given: Data, found: Moments) -> float:
    """As :func:`_outside`, by a Lanczos iteration on the deflated operator."""
    X, V = given.X, given.V
    d = X.shape[1]
    if d - len(V) < 3:
        return 0.0
    m = found.mean if given.centred else np.zeros(d)

    def product(v: Array) -> Array:
        v = v.ravel() - V.T @ (V @ v.ravel())
        z = data.dot(X, v) - m @ v
        w = data.t_dot(X, z) - m * z.sum()
        return np.asarray(w - V.T @ (V @ w))

    start = np.random.default_rng(1).standard_normal(d)
    operator = LinearOperator((d, d), matvec=product, dtype=np.float64)
    top = eigsh(operator, k=1, v0=start, tol=1e-3, return_eigenvectors=False)
    return float(top[0])


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
    spectrum = np.linalg.eigvalsh(_gram(given, found))[::-1]
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


def _gram(given: Data, found: Moments) -> Array:
    """AᵀA, or AAᵀ if that is smaller, centred explicitly."""
    X, (n, d) = given.X, given.X.shape
    m = found.mean if given.centred else np.zeros(d)
    if sparse.issparse(X) and not _is_far(given):
        X = X.astype(np.float64)
        if n >= d:
            return np.asarray((X.T @ X).toarray()) - n * np.outer(m, m)
        Xm = np.asarray(X @ m).ravel()
        return np.asarray((X @ X.T).toarray()) - Xm[:, None] - Xm + m @ m
    if n < d:
        wide = max(4 * n, 1 << 14)
        slabs = (slice(j, j + wide) for j in range(0, d, wide))
        parts = [_dense(X[:, part]) - m[part] for part in slabs]
        return np.asarray(sum((A @ A.T for A in parts), np.zeros((n, n))))
    rows = max(4 * d, 1 << 14)
    blocks = (_dense(X[i : i + rows]) - m for i in range(0, n, rows))
    return np.asarray(sum((A.T @ A for A in blocks), np.zeros((d, d))))
