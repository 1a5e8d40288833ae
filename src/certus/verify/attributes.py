"""What a sensitive attribute explains, in the verifier's own formulas.

An attribute is one column or several; numbers with fractions are taken as they are, all
other values are categories. A fit lends it to the verifier, and no model keeps it: to
check again, it is passed to ``certify``, unless it stands in X.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from scipy import sparse

from certus.certificate import Claim, Status, Strength
from certus.verify import data, stating
from certus.verify.data import Array
from certus.verify.deciding import Number, gamma, proved, verdict
from certus.verify.kernel import reading
from certus.verify.marks import marks_of
from certus.verify.stating import Checked, Given

EPS = 2.0**-52
#: Largest correlation that counts as none; and shift of a mean, in deviations.
NO_CORRELATION, SAME_MEAN = 1e-10, 1e-6
#: What is judged of a decorrelation.
LEFT = "max |Cov(x̃ⱼ, a) − (1 − alpha)·Cov(xⱼ, a)| / (sd xⱼ · sd a)"


def attribute_of(model: Any, sensitive: Any, X: Any) -> Array | None:
    """The attribute of each row, one column for each; None if it is not at hand."""
    named = getattr(model, "sensitive_columns", None)
    n = int((X if hasattr(X, "shape") else np.asarray(X, dtype=object)).shape[0])
    if sensitive is None:
        if named is None:
            return None
        names = [named] if isinstance(named, str | int) else list(named)
        sensitive = np.empty((n, len(names)), dtype=object)
        for j, name in enumerate(names):
            sensitive[:, j] = _column(X, name)
    found = np.asarray(sensitive, dtype=object)
    if len(found) != n:
        raise ValueError(f"sensitive has {len(found):,} rows and X has {n:,}.")
    return found.reshape(n, -1)


def _column(X: Any, name: Any) -> Array:
    """A column of X by its name or its place."""
    frame = hasattr(X, "columns")
    if sparse.issparse(X):
        return np.asarray(X.tocsc()[:, [name]].toarray().ravel(), dtype=object)
    if frame and isinstance(name, str) and name in list(X.columns):
        return np.asarray(X[name], dtype=object)
    if not isinstance(name, str) and abs(name) <= np.shape(X)[1]:
        by_place = X[X.columns[name]] if frame else np.asarray(X, dtype=object)[:, name]
        return np.asarray(by_place, dtype=object)
    raise ValueError(f"X has no column {name!r}, which sensitive_columns names.")


def not_lent(name: str, objective: str) -> Claim:
    """The claim of a model whose attribute is not at hand."""
    return Claim(
        name,
        Strength.REFUSED,
        objective=objective,
        detail="the sensitive attribute is not at hand, and no model keeps it",
        fix="pass it: certify(model, X, y, sensitive=...)",
    )


def codes_of(columns: Array) -> tuple[list[Any], Array]:
    """Combinations of values in order of appearance, and each row's number."""
    parts = []
    for column in columns.T:
        values = column.tolist()
        kinds = {value: _plain(value) for value in dict.fromkeys(values)}
        parts.append([kinds[value] for value in values])
    rows = list(zip(*parts)) if parts else [()] * len(columns)
    seen = {row: i for i, row in enumerate(dict.fromkeys(rows))}
    numbers = np.fromiter(map(seen.__getitem__, rows), dtype=np.int64, count=len(rows))
    return list(seen), numbers


def _plain(value: Any) -> Any:
    try:
        return value if value is not None and bool(value == value) else None
    except TypeError:
        return None


def design_of(columns: Array) -> Array:
    """Columns of numbers as they are, categories as columns of zeros and ones."""
    parts = [np.zeros((len(columns), 0))]
    for column in columns.T:
        amounts = _amounts(column)
        if amounts is None:
            labels, numbers = codes_of(column[:, None])
            amounts = (numbers[:, None] == np.arange(len(labels))).astype(float)
        parts.append(amounts.reshape(len(columns), -1))
    return np.hstack(parts)


def _amounts(column: Array) -> Array | None:
    kinds = {type(x) for x in column}
    if any(k is bool or not issubclass(k, int | float | np.number) for k in kinds):
        return None
    values = column.astype(float)
    whole = not np.isfinite(values).all() or bool(np.all(values == np.floor(values)))
    return None if whole else values


def _normalised(columns: Array, share: Array) -> Array:
    """The attribute's columns with mean zero and variance one."""
    A = design_of(columns)
    A = A - share @ A
    spread = np.sqrt(share @ np.square(A))
    return np.asarray(A[:, spread > 0] / spread[spread > 0])


def explained(X: Array, columns: Array, s: Array) -> Array:
    """F with F Fᵀ = Cov(X, A) Cov(A, A)⁺ Cov(A, X), what A explains of Cov(X)."""
    share = s / s.sum()
    A = _normalised(columns, share)
    C = (X - share @ X).T @ (share[:, None] * A)
    sizes, axes = np.linalg.eigh((A * share[:, None]).T @ A)
    known = sizes > 1e-10 * sizes.max(initial=0.0)
    return np.asarray(C @ axes[:, known] / np.sqrt(sizes[known]))


class Statement(NamedTuple):
    """The share of the covariance that is taken away."""

    alpha: float


def _decorrelation(model: Any) -> Statement:
    alpha = model.alpha
    if isinstance(alpha, bool) or not (
        isinstance(alpha, int | float) and 0 <= alpha <= 1
    ):
        raise stating.Refusal(f"alpha={alpha!r:.40} is no share")
    return Statement(float(alpha))


READERS: dict[str, stating.Reader] = {"Decorrelation": _decorrelation}


def check(model: Any, stated: Statement, given: Given) -> Checked:
    """The correlations with an attribute that a linear map of the columns leaves."""
    _, X, _, sample_weight, _, sensitive = given
    marks = marks_of(X, None, sample_weight)
    columns = attribute_of(model, sensitive, X)
    Z = np.asarray(reading.as_matrix(X), dtype=np.float64)
    reading.refuse_holes(Z)
    s = data.row_weights(sample_weight, len(Z))
    share = s / s.sum()
    centre, L, R = _map(model, Z)
    scale = np.maximum(np.abs(Z[s > 0]).max(axis=0), 1e-300)
    mean = (share @ (Z / scale)) * scale
    taken = ((Z - centre) @ L) @ R
    size = np.sqrt(share @ np.square((Z - mean) / scale))  # of columns in that unit
    part = float((share @ np.square(taken / scale)).sum())
    part /= max(float(np.square(size).sum()), 1e-300)
    removed = Claim(
        *("removed_variance", Strength.MEASURED, part),
        objective="E‖x̃ − x‖² / E‖x − x̄‖², columns in units of their largest value",
        detail=f"{100 * part:.3g} % of the variance of the columns is taken away",
    )
    if columns is None:
        return [not_lent("covariance", LEFT), removed], Status.UNDECIDED, marks
    known = size > 4 * EPS
    unit = np.where(known, size, 1.0) * scale
    # The rounding of what is taken: that of two products, from the sizes of all parts.
    error = gamma(sum(L.shape) + 8) * ((np.abs(Z - centre) @ np.abs(L)) @ np.abs(R))
    error = (np.sqrt(share @ np.square(error / scale)) * scale / unit)[known]
    sums = gamma(len(Z) + 16)
    wrong = ((stated.alpha * (Z - mean) - taken) / unit)[:, known]
    lost = error + sums * (1 + np.sqrt(share @ np.square(wrong)))
    A = _normalised(columns, share)
    left = np.abs(wrong.T @ (share[:, None] * A)).max(axis=1, initial=0.0)
    worst = int(np.argmax(left + lost)) if len(left) else 0
    found = Number(left[worst], lost[worst]) if len(left) else Number(0.0, 0.0)
    shift = np.maximum(np.abs(share @ (taken / unit)), np.abs(centre - mean) / unit)
    drift = float(shift[known].max(initial=0.0))
    rounding = sums * (2 + float((scale / unit)[known].max(initial=0.0)))
    times = "gone" if stated.alpha == 1 else f"{1 - stated.alpha:.3g} of what they were"
    claims = [
        proved(
            *("covariance", found, NO_CORRELATION),
            f"correlations with the attribute are {times} (within {found.value:.1e})",
            missed=f"a correlation of {found.value:.2g} with the attribute is left",
            objective=LEFT,
            theorem="where the covariance with A is zero, no linear model predicts A "
            "better than a constant, on these rows",
            fix="drop columns that nearly depend on others",
        ),
        proved(
            *("mean_kept", Number(drift, rounding + float(error.max(initial=0.0)))),
            *(SAME_MEAN, "the columns keep their means"),
            missed=f"means are moved by {drift:.2g} of a standard deviation",
            objective="max |mean(x̃ⱼ) − mean(xⱼ)|/sd xⱼ, and of mean_",
            theorem="the map that changes the columns least keeps their means",
            fix="fit again",
        ),
    ]
    status = verdict(claims)  # what is missed comes first
    return [*claims, removed], status, marks


def _map(model: Any, Z: Array) -> list[Array]:
    """Mean, directions and loadings of the map; they may come from a file."""
    names = ("mean_", "directions_", "loadings_")
    parts = [np.asarray(getattr(model, name, None)) for name in names]
    d, k = Z.shape[1], parts[1].shape[-1] if parts[1].ndim else 0
    sound = all(part.dtype.kind in "fiu" for part in parts)
    if not sound or [part.shape for part in parts] != [(d,), (d, k), (k, d)]:
        raise ValueError(
            "This model is no map of these columns that a fit leaves. Fit it again, or "
            "restore its file."
        )
    return [part.astype(np.float64) for part in parts]
