"""What a sensitive attribute explains, in the verifier's own formulas.

An attribute is one column or several; numbers with fractions are taken as they are, all
other values are categories. A fit passes it to the verifier, and no model stores it: to
check again, pass it to ``certify``, unless it is a column of X.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse

from certus.certificate import Claim, Status
from certus.typing import Array, Column, Fit, MatrixLike
from certus.verify import deciding as bd
from certus.verify import stating
from certus.verify.data import fitted, marks_of, row_weights
from certus.verify.deciding import TINY, Number, U, gamma, length
from certus.verify.kernel import reading
from certus.verify.stating import Checked, Given

#: Largest correlation that counts as zero; and largest shift of a mean, in deviations.
NO_CORRELATION, SAME_MEAN = 1e-10, 1e-6
#: Variance that others leave of a combination of columns, below which it adds nothing.
DEPENDENT = 1e-10
#: The claims about a decorrelation.
LEFT = "max |Cov(x̃ⱼ, a) − (1 − amount)·Cov(xⱼ, a)| / (sd xⱼ · sd a)"


def attribute_of(model: Fit, sensitive: Column, X: Any) -> Array | None:
    """The attribute of each row, one column for each; None if it was not passed."""
    named = getattr(model, "sensitive_columns", None)
    X = X if hasattr(X, "shape") else np.asarray(X, dtype=object)
    n = int(X.shape[0])
    if sensitive is None:
        if named is None:
            return None
        names = [named] if isinstance(named, str | int) else list(named)
        none = np.empty((n, 0), dtype=object)
        sensitive = np.column_stack([none, *(_column(X, name) for name in names)])
    found = np.asarray(sensitive, dtype=object)
    if len(found) != n:
        raise ValueError(f"sensitive has {len(found):,} rows, but X has {n:,}.")
    return found.reshape(n, -1)


def _column(X: Any, name: str | int) -> Array:
    """A column of X by its name or its place."""
    d = X.shape[1]
    names = list(getattr(X, "columns", range(d)))
    at = names.index(name) if isinstance(name, str) and name in names else name
    if isinstance(at, str) or not -d <= at < d:
        raise ValueError(f"sensitive_columns names {name!r}, but X has no such column.")
    if sparse.issparse(X):
        X, at = X.tocsc()[:, [at]].toarray(), 0
    column = X[names[at]] if hasattr(X, "columns") else X[:, at]
    return np.asarray(column, dtype=object)


def numbers_of(X: MatrixLike, sample_weight: Column) -> tuple[Array, Array]:
    """The rows in float64, and each row's share of the weight."""
    Z = np.asarray(reading.as_matrix(X), dtype=np.float64)
    reading.refuse_holes(Z)
    s = row_weights(sample_weight, len(Z))
    return Z, s / s.sum()


def not_lent(name: str, objective: str) -> Claim:
    """The claim of a model whose attribute was not passed."""
    detail = "the sensitive attribute was not passed, and models do not store it"
    fix = "pass it: certify(model, X, y, sensitive=...)"
    return bd.refused(name, detail, fix, objective=objective)


def codes_of(columns: Array) -> tuple[list[Any], Array]:
    """Combinations of values in order of appearance, and each row's number."""
    rows = list(zip(*(map(_plain, column) for column in columns.T)))
    rows = rows or [()] * len(columns)
    seen = {row: i for i, row in enumerate(dict.fromkeys(rows))}
    return list(seen), np.array([seen[row] for row in rows], dtype=np.int64)


def _plain(value: object) -> object:
    try:
        return value if value is not None and bool(value == value) else None
    except TypeError:
        return None


def _amounts(column: Array) -> Array | None:
    kinds = {type(x) for x in column}
    if any(k is bool or not issubclass(k, int | float | np.number) for k in kinds):
        return None
    values = column.astype(float)
    whole = not np.isfinite(values).all() or bool(np.all(values == np.floor(values)))
    return None if whole else values[:, None]


class Attribute(NamedTuple):
    """An attribute in numbers, categories as columns of zeros and ones."""

    A: Array  # columns of mean zero and variance one
    error: Array  # of each, in the weighted mean square
    rank: int  # columns that may be independent: those of categories add up to one


def design_of(columns: Array, share: Array) -> Attribute:
    """The columns in units of their largest number, so that sums are off by γ."""
    parts, errors, rank = [np.zeros((len(columns), 0))], [np.zeros(0)], 0
    lost = 4 * gamma(len(columns) + 8)
    for column in columns.T:
        A = _amounts(column)
        categories = A is None
        if A is None:
            labels, numbers = codes_of(column[:, None])
            A = (numbers[:, None] == np.arange(len(labels))).astype(float)
        A = A / np.maximum(np.abs(A[share > 0]).max(axis=0), TINY)
        A = A - share @ A
        spread = np.sqrt(share @ np.square(A))
        known = spread > lost
        parts.append(A[:, known] / spread[known])
        errors.append(lost / spread[known])
        rank += max(0, int(known.sum()) - categories)
    return Attribute(np.hstack(parts), np.concatenate(errors), rank)


class SharedPart(NamedTuple):
    """F with F Fᵀ = Cov(X, A) Cov(A, A)⁺ Cov(A, X), what A explains of Cov(X)."""

    F: Array
    off: float  # ‖F Fᵀ − what it stands for‖
    whole: bool  # whether every combination of A is used, hence nothing assumed


def explained(X: Array, columns: Array, share: Array) -> SharedPart:
    """The part of Cov(X), with its rounding.

    If the columns of AT span those of A, and (AT)ᵀSAT = I + Δ, it is G(I + Δ)⁻¹Gᵀ
    exactly, G = Cov(X, A)T, for whatever T. With f = ‖G‖ and F within ε of G it is off
    by at most (f + ε)²‖Δ‖/(1 − ‖Δ‖) + ε(2f + ε).
    """
    A, errors, rank = design_of(columns, share)
    Z, m = X - share @ X, A.shape[1]
    C, K = Z.T @ (share[:, None] * A), (share[:, None] * A).T @ A
    sizes, axes = np.linalg.eigh(K)
    used = sizes > DEPENDENT * sizes.max(initial=0.0)
    T = axes[:, used] / np.sqrt(sizes[used])
    F = C @ T
    f, wide, off = length(F), length(T), math.inf
    slip = math.sqrt(m) * gamma(len(X) + m + 32) + length(errors)
    epsilon = 2 * wide * length(np.sqrt(share)[:, None] * Z) * slip
    delta = length(T.T @ K @ T - np.eye(len(T.T)))
    delta += 4 * math.sqrt(m) * slip * wide**2
    if delta < 0.5:
        off = (f + epsilon) ** 2 * delta / (1 - delta) + epsilon * (2 * f + epsilon)
    return SharedPart(F, off + TINY, int(used.sum()) == rank)


class Statement(NamedTuple):
    """The share of the covariance that is removed."""

    amount: float


def _decorrelation(model: Fit) -> Statement:
    if not stating.is_number(model.amount, most=1):
        raise stating.Refusal(f"amount={model.amount!r:.40} is not between 0 and 1")
    return Statement(float(model.amount))


READERS: dict[str, stating.Reader] = {"Decorrelation": _decorrelation}


def check(model: Fit, stated: Statement, given: Given) -> Checked:
    """The correlations with an attribute that a linear map of the columns leaves."""
    _, X, _, sample_weight, _, sensitive = given
    marks = marks_of(X, None, sample_weight)
    columns = attribute_of(model, sensitive, X)
    Z, share = numbers_of(X, sample_weight)
    d = Z.shape[1]
    centre, L = fitted(model, "mean_", (d,)), fitted(model, "directions_", (d, None))
    R = fitted(model, "loadings_", (L.shape[1], d))
    scale = np.maximum(np.abs(Z[share > 0]).max(axis=0), 1e-300)
    mean = (share @ (Z / scale)) * scale
    size = np.sqrt(share @ np.square((Z - mean) / scale))  # of columns in that unit
    known = size > 8 * U
    size = np.where(known, size, 1.0)
    # From here on columns have mean zero and variance one.
    unit = size * scale
    Z, centre = (Z - mean) / unit, (centre - mean) / unit
    L, R = L * unit[:, None], R / unit
    taken = ((Z - centre) @ L) @ R
    part = float((share @ np.square(taken * size)).sum())
    part /= max(float(np.square(size[known]).sum()), 1e-300)
    removed = bd.measured(
        *("removed_variance", part),
        f"{100 * part:.3g} % of the variance of the columns was removed",
        objective="E‖x̃ − x‖² / E‖x − x̄‖², columns in units of their largest value",
    )
    if columns is None:
        return [not_lent("covariance", LEFT), removed], Status.UNDECIDED, marks
    # The rounding of what is taken: that of two products, from the sizes of all parts.
    error = gamma(sum(L.shape) + 12) * ((np.abs(Z - centre) @ np.abs(L)) @ np.abs(R))
    error = np.sqrt(share @ np.square(error))[known]
    sums = gamma(len(Z) + 16)
    wrong = (stated.amount * Z - taken)[:, known]
    A, off, _ = design_of(columns, share)
    wide = np.sqrt(share @ np.square(wrong))
    lost = error + sums * (1 + wide) + off.max(initial=0.0) * wide
    left = np.abs(wrong.T @ (share[:, None] * A)).max(axis=1, initial=0.0)
    found = max(map(Number, left, lost), key=sum, default=Number(0.0))
    shift = np.maximum(np.abs(share @ taken), np.abs(centre))[known]
    drift = float(shift.max(initial=0.0))
    rounding = sums * (2 + 1 / float(size.min())) + float(error.max(initial=0.0))
    times = (
        "gone" if stated.amount == 1 else f"{1 - stated.amount:.3g} of what they were"
    )
    claims = [
        bd.proved(
            *("covariance", found, NO_CORRELATION),
            f"correlations with the attribute are {times} (± {found.value:.1e})",
            missed=f"a correlation of {found.value:.2g} with the attribute is left",
            objective=LEFT,
            theorem="where the covariance with the attribute A is zero, no linear "
            "model predicts A better than a constant on these rows",
            fix="drop columns that nearly depend on others",
        ),
        bd.proved(
            *("mean_kept", Number(drift, rounding), SAME_MEAN),
            "the columns keep their means",
            missed=f"the column means changed by {drift:.2g} standard deviations",
            objective="max |mean(x̃ⱼ) − mean(xⱼ)|/sd xⱼ, and of mean_",
            theorem="the map that changes the columns least keeps their means",
            fix="fit again",
        ),
    ]
    status = bd.verdict(claims)  # missed claims come first
    return [*claims, removed], status, marks
