"""The penalty on what an attribute explains: its matrix is known up to a bound."""

from __future__ import annotations

from typing import Any

import mpmath
import numpy as np
import pytest

import certus
from certus.certificate import Strength
from certus.fairness import CovariancePenalty
from certus.linear_model import LogisticRegression, Ridge
from certus.verify.attributes import explained
from certus.verify.covariance_penalty import Explained, _excess

rng = np.random.default_rng(0)
N = 40
GROUPS = rng.choice(["a", "b", "c"], N)
AMOUNTS = rng.normal(size=N)


def far(offset: float) -> Any:
    return np.array(offset + AMOUNTS, dtype=object)


#: Columns of an attribute; whether they are independent apart from what adds up to one.
ATTRIBUTES = {
    "groups": ([GROUPS], True),
    "an amount": ([far(0.0)], True),
    "an amount far from zero": ([far(1e7)], True),
    "an amount very far from zero": ([far(1e12)], True),
    "small amounts": ([np.array(1e-200 * AMOUNTS, dtype=object)], True),
    "both": ([GROUPS, far(1e3)], True),
    "the same twice": ([GROUPS, GROUPS], False),
    "one group": ([np.full(N, "a")], True),
    "a rare group": ([np.append(GROUPS[1:], "alone")], True),
}


def exactly(X: Any, columns: Any, s: Any) -> Any:
    """Cov(X, A) Cov(A, A)⁺ Cov(A, X) in 60 digits; dependent columns are left out."""
    mpmath.mp.dps = 60
    designs = []
    for column in columns:
        if isinstance(column[0], float):
            designs.append([mpmath.mpf(float(x)) for x in column])
        else:
            for label in sorted(set(column))[1:]:
                designs.append([mpmath.mpf(int(x == label)) for x in column])
    weights = [mpmath.mpf(float(x)) for x in s]
    total = mpmath.fsum(weights)

    def centred(column: Any) -> Any:
        mean = mpmath.fsum(w * x for w, x in zip(weights, column)) / total
        return [x - mean for x in column]

    def inner(a: Any, b: Any) -> Any:
        return mpmath.fsum(w * x * z for w, x, z in zip(weights, a, b)) / total

    basis: list[Any] = []
    for column in map(centred, designs):
        size = inner(column, column)
        for u in basis:
            part = inner(column, u)
            column = [x - part * z for x, z in zip(column, u)]
        left = inner(column, column)
        if left > mpmath.mpf(10) ** -40 * size:
            root = mpmath.sqrt(left)
            basis.append([x / root for x in column])
    Z = [centred([mpmath.mpf(float(x)) for x in column]) for column in X.T]
    G = mpmath.matrix(len(Z), max(1, len(basis)))
    for j, z in enumerate(Z):
        for k, u in enumerate(basis):
            G[j, k] = inner(z, u)
    return G * G.T


@pytest.mark.parametrize("name", ATTRIBUTES)
@pytest.mark.parametrize("shift", [0.0, 1e6])
def test_the_error_of_an_explanation_is_below_its_bound(name: str, shift: float):
    columns, whole = ATTRIBUTES[name]
    X = rng.normal(size=(N, 3)) + 2.0 * (GROUPS == "b")[:, None] + shift
    s = rng.uniform(0.1, 3.0, N)
    table = np.column_stack([np.asarray(c, dtype=object) for c in columns])
    part = explained(X, table, s / s.sum())
    exact = exactly(X, columns, s)
    found = mpmath.matrix(part.F.tolist() if part.F.size else [[0.0]] * 3)
    off = mpmath.mnorm(exact - found * found.T, "f")
    assert off <= part.off and part.whole is whole
    usual = "very far" not in name
    assert part.off <= (1e-5 if usual else np.inf) * max(1.0, mpmath.mnorm(exact, "f"))


@pytest.mark.parametrize("off", [0.0, 1e-9, 1e-3])
def test_the_excess_covers_every_matrix_within_the_bound(off: float):
    draw = np.random.default_rng(1)
    for _ in range(50):
        d, alpha, strength = 4, float(10 ** draw.uniform(-3, 1)), 3.0
        F = draw.normal(size=(d, 2))
        w = draw.normal(size=d)
        H = alpha * np.eye(d) + strength * F @ F.T
        v = -H @ w + 10 ** draw.uniform(-9, 0) * draw.normal(size=d)
        found = _excess(Explained(alpha, strength, F, off), w, v, np.zeros(d))
        move = draw.normal(size=(d, d))
        move = (move + move.T) / np.linalg.norm(move + move.T, 2) * off * strength
        if np.linalg.eigvalsh(H + move).min() < alpha:
            move = move @ move / max(np.linalg.norm(move, 2), 1e-300)  # a larger matrix
        g = (H + move) @ w + v
        true = g @ np.linalg.solve(H + move, g) / 2
        assert found.value <= found.bound and true <= found.bound * (1 + 1e-9) + 1e-25


def test_a_matrix_lost_in_rounding_decides_nothing():
    X = rng.normal(size=(200, 3))
    a = rng.normal(size=200)
    X[:, 0] += a
    y = X @ [1.0, 2.0, 0.0] + rng.normal(size=200)
    near = CovariancePenalty(Ridge(), alpha=5.0).fit(X, y, sensitive=a)
    assert near.certificate_.met
    with certus.config_context(on_uncertified="ignore"):
        lost = CovariancePenalty(Ridge(), alpha=5.0).fit(X, y, sensitive=1e12 + a)
    claim = lost.certificate_["duality_gap"]
    assert claim.strength is Strength.PROVED and claim.met is None
    twice = np.column_stack([GROUPS, GROUPS])
    model = CovariancePenalty(LogisticRegression(), alpha=5.0)
    model.fit(X[:N], y[:N] > 0, sensitive=twice)
    assert model.certificate_.met
    assert any("are left out" in note for note in model.certificate_.claims[0].notes)
