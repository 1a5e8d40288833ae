"""What a sensitive attribute explains, in the verifier's own formulas.

An attribute is one column or several; numbers with fractions are taken as they are, all
other values are categories. A fit lends it to the verifier, and no model keeps it: to
check again, it is passed to ``certify``, unless it stands in X.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from certus.certificate import Claim, Evidence, Status, Strength
from certus.verify import data
from certus.verify.claims import EPS
from certus.verify.data import Array
from certus.verify.marks import marks_of

#: Largest correlation that counts as none.
NO_CORRELATION = 1e-10
#: What is judged of a decorrelation.
LEFT = "max |Cov(x̃ⱼ, a) − (1 − alpha)·Cov(xⱼ, a)| / (sd xⱼ · sd a)"


def attribute_of(model: Any, evidence: Evidence, X: Any) -> Array | None:
    """The attribute of each row, one column for each; None if it is not lent."""
    found = evidence.arrays.get("sensitive")
    if found is None and getattr(model, "sensitive_columns", None) is not None:
        found = model._read_sensitive(X, None)
    if found is None:
        return None
    found = np.asarray(found, dtype=object)
    n = len(found) if not hasattr(X, "shape") else int(X.shape[0])
    if len(found) != n:
        raise ValueError(f"sensitive has {len(found):,} rows and X has {n:,}.")
    return found.reshape(n, -1)


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


def explained(X: Array, columns: Array, s: Array) -> Array:
    """F with F Fᵀ = Cov(X, A) Cov(A, A)⁺ Cov(A, X), what A explains of Cov(X)."""
    share = s / s.sum()
    A = design_of(columns)
    A = A - share @ A
    spread = np.sqrt(share @ np.square(A))
    A = A[:, spread > 0] / spread[spread > 0]
    C = (X - share @ X).T @ (share[:, None] * A)
    sizes, axes = np.linalg.eigh((A * share[:, None]).T @ A)
    known = sizes > 1e-10 * sizes.max(initial=0.0)
    return np.asarray(C @ axes[:, known] / np.sqrt(sizes[known]))


def check_decorrelation(
    model: Any, evidence: Evidence, X: Any, y: Any, sample_weight: Any, level: str
) -> tuple[list[Claim], Status, dict[str, Any]]:
    """The correlations with an attribute that a linear map of the columns leaves.

    ``evidence.params``: alpha.
    """
    marks = marks_of(X, y, sample_weight)
    columns = attribute_of(model, evidence, X)
    Z = np.asarray(data.as_matrix(X), dtype=np.float64)
    data.refuse_holes(Z)
    s = data.weights(sample_weight, None, Z, None, len(Z))
    share = s / s.sum()
    alpha = evidence.params.get("alpha", 1.0)
    taken = _taken(model, alpha, Z)
    scale = np.maximum(np.abs(Z).max(axis=0), 1e-300)
    before = share @ np.square((Z - share @ Z) / scale)
    gone = float((share @ np.square(taken / scale)).sum())
    part = gone / max(float(before.sum()), 1e-300)
    removed = Claim(
        "removed_variance",
        Strength.MEASURED,
        part,
        objective="E‖x̃ − x‖² / E‖x − x̄‖², columns in units of their largest value",
        detail=f"{100 * part:.3g} % of the variance of the columns is taken away",
    )
    if columns is None:
        refused = not_lent("covariance", LEFT)
        return [refused, removed], Status.TOL_NOT_REACHED, marks
    wrong = (alpha * (Z - share @ Z) - taken) / scale
    claim = _covariance_claim(wrong, np.sqrt(before), columns, share, alpha)
    status = Status.SOLVED if claim.met else Status.TOL_NOT_REACHED
    return [claim, removed], status, marks


def _taken(model: Any, alpha: Any, Z: Array) -> Array:
    """What the map takes from each row; it may come from a file."""
    names = ("mean_", "directions_", "loadings_")
    parts = [np.asarray(getattr(model, name, None)) for name in names]
    d, k = Z.shape[1], parts[1].shape[-1] if parts[1].ndim else 0
    if (
        any(part.dtype.kind not in "fiu" for part in parts)
        or [part.shape for part in parts] != [(d,), (d, k), (k, d)]
        or isinstance(alpha, bool)
        or not (isinstance(alpha, int | float) and 0 <= alpha <= 1)
    ):
        raise ValueError(
            "This model is no map of these columns that a fit leaves. Fit it again, or "
            "restore its file."
        )
    return np.asarray(((Z - parts[0]) @ parts[1]) @ parts[2])


def _covariance_claim(
    wrong: Array, size: Array, columns: Array, share: Array, alpha: float
) -> Claim:
    """The largest correlation with the attribute of what was wrongly taken or left."""
    A = design_of(columns)
    A = A - share @ A
    spread = np.sqrt(share @ np.square(A))
    A = A[:, spread > 0] / spread[spread > 0]
    known = size > 4 * EPS
    wrong = wrong[:, known] / size[known]
    worst = np.abs(wrong.T @ (share[:, None] * A)).max(initial=0.0)
    allowance = float(32 * EPS / size[known].min(initial=1.0))
    met = bool(worst <= NO_CORRELATION + allowance)
    return Claim(
        "covariance",
        Strength.PROVED,
        float(worst),
        NO_CORRELATION,
        met,
        LEFT,
        "where the covariance with A is zero, no linear model predicts A better than "
        "a constant, on these rows",
        (),
        None,
        allowance,
        f"correlations with the attribute are {_times(alpha)} (within {worst:.1e})"
        if met
        else f"a correlation of {worst:.2g} with the attribute is left",
        "" if met else "drop columns that nearly depend on others",
    )


def _times(alpha: float) -> str:
    return "gone" if alpha == 1 else f"{1 - alpha:.3g} of what they were"
