"""Objectives with a penalty on what an attribute explains of the score.

    P(w, b) = mean loss + ½·alpha·‖w‖² + ½·strength·wᵀEw,   E = F Fᵀ

where wᵀEw is the variance of the score that the attribute explains linearly. With
T = (I + (strength/alpha)·E)^(−1/2) and w = T v this is the plain objective of v on the
columns X T, whose duality gap is therefore that of P. For networks the explained
variance is taken on the rows checked.
"""

from __future__ import annotations

import dataclasses
import math
from types import SimpleNamespace
from typing import Any

import numpy as np

from certus import terms as t
from certus.certificate import Claim, Evidence, Status, Strength
from certus.verify import data
from certus.verify.attributes import attribute_of, explained, not_lent
from certus.verify.convex import check_linear
from certus.verify.data import Array
from certus.verify.marks import marks_of
from certus.verify.networks import check_network
from certus.verify.problem import problems_of

Checked = tuple[list[Claim], Status, dict[str, Any]]


def check_covariance_penalty(
    model: Any, evidence: Evidence, X: Any, y: Any, sample_weight: Any, level: str
) -> Checked:
    """Judge a linear model; ``evidence``: as for ``check_linear``, and ``strength``."""
    strength = evidence.params.get("strength")
    if not (isinstance(strength, int | float) and 0 <= strength < math.inf):
        raise ValueError(
            f"The evidence says strength={strength!r:.40}, which no fit leaves. Fit "
            "again, or restore its file."
        )
    term = f"½·{strength:.4g}·(variance of the score explained by the attribute)"
    columns = attribute_of(model, evidence, X)
    if columns is None:
        marks = marks_of(X, y, sample_weight)
        return [not_lent("duality_gap", term)], Status.TOL_NOT_REACHED, marks
    Z = np.asarray(data.as_matrix(X), dtype=np.float64)
    data.refuse_holes(Z)
    s = data.weights(sample_weight, None, Z, None, len(Z))
    F = explained(Z, columns, s)
    coef = data.plain(model.coef_).astype(np.float64)
    bare = _without(evidence)
    plain = SimpleNamespace(coef_=coef, intercept_=model.intercept_)
    if hasattr(model, "classes_"):
        plain.classes_ = np.asarray(model.classes_)
    problems, _, _ = problems_of(plain, bare, Z, y, sample_weight)
    alpha = min(getattr(p.penalty, "alpha", 0.0) for p in problems)
    if not all(
        isinstance(p.penalty, t.L2) and p.penalty.alpha == alpha for p in problems
    ):
        raise ValueError("A covariance penalty stands beside one L2 penalty only.")
    V, sizes, _ = np.linalg.svd(F, full_matrices=False)
    grown = np.sqrt(1 + strength / alpha * np.square(sizes))
    plain.coef_ = coef + ((coef @ V) * (grown - 1)) @ V.T
    moved = Z + ((Z @ V) * (1 / grown - 1)) @ V.T
    claims, status, _ = check_linear(plain, bare, moved, y, sample_weight, level)
    said, comma, rest = claims[0].objective.partition(",  z = ")
    first = dataclasses.replace(claims[0], objective=f"{said} + {term}{comma}{rest}")
    found = _explained_claim(Z, coef, F, s)
    marks = marks_of(X, y, sample_weight)
    return [first, found], status, marks


def _explained_claim(Z: Array, coef: Array, F: Array, s: Array) -> Claim:
    share = s / s.sum()
    w = coef.reshape(-1, Z.shape[1])
    z = Z @ w.T
    total = float((share @ np.square(z - share @ z)).sum())
    part = float(np.square(w @ F).sum()) / total if total > 0 else 0.0
    return Claim(
        "explained_variance",
        Strength.MEASURED,
        part,
        objective="share of the variance of the score, on these rows",
        detail=f"the attribute explains {100 * part:.2g} % of the score's variance",
    )


class _Lent:
    """A network that knows the attribute while it is checked."""

    def __init__(self, model: Any, columns: Array) -> None:
        self._model, self._columns = model, columns

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)

    def _stated(self, X: Any, y: Any, sample_weight: Any, rows: Any) -> Any:
        return self._model._stated(X, y, sample_weight, rows, self._columns)


def check_penalised_network(
    model: Any, evidence: Evidence, X: Any, y: Any, sample_weight: Any, level: str
) -> Checked:
    """Judge a network; ``evidence``: as for ``check_network``."""
    columns = attribute_of(model, evidence, X)
    if columns is None:
        marks = marks_of(X, y, sample_weight)
        claim = not_lent("penalised_loss", "loss with a penalty on the attribute")
        return [claim], Status.TOL_NOT_REACHED, marks
    lent: Any = _Lent(model, columns)
    return check_network(lent, _without(evidence), X, y, sample_weight, level)


def _without(evidence: Evidence) -> Evidence:
    """The evidence without the attribute, as other checkers know it."""
    arrays = {k: v for k, v in evidence.arrays.items() if k != "sensitive"}
    return dataclasses.replace(evidence, arrays=arrays)
