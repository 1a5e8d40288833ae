"""The losses that users call and those that the verifier computes with, side by side.

Both are written by hand, neither reads the other. Only the adapter ``verifier`` knows
where the verifier keeps its own.
"""

from typing import Any

import numpy as np
import pytest

from certus import objectives
from certus.objectives import terms as t
from certus.objectives.rows import LOSSES
from certus.verify.kernel import losses as kernel

Array = np.ndarray

TERMS = [
    t.Squared(),
    t.Absolute(),
    t.Huber(0.7),
    t.Tukey(1.3),
    t.Quantile(0.3),
    t.EpsilonInsensitive(0.4),
    t.SquaredEpsilonInsensitive(0.4),
    t.Logistic(),
    t.Hinge(),
    t.Hinge(0.0),
    t.SquaredHinge(),
    t.ModifiedHuber(),
    t.ExponentialMargin(),
    t.ZeroOne(),
    t.Binomial(),
    t.Binomial(4),
    t.Exponential(),
    t.Poisson(),
    t.Tweedie(1.2),
    t.Tweedie(1.7),
    t.Softmax(2),
    t.Softmax(5),
]
N = 2_000


def verifier(term: Any, what: str, y: Array, at: Array) -> Array:
    """The verifier's ``value``, ``slope`` or ``curvature``."""
    return getattr(kernel.LOSSES[type(term)], what)(term, y, at)


def name(term: Any) -> str:
    return f"{type(term).__name__}{tuple(term)}"


def drawn(term: Any, seed: int) -> tuple[Array, Array]:
    """Targets that the loss takes, and scores of many sizes."""
    rng = np.random.default_rng(seed)
    size = 10.0 ** rng.uniform(-6, 1.5, N)
    if isinstance(term, t.Softmax):
        z = size[:, None] * rng.normal(size=(N, term.n_classes))
        return rng.integers(0, term.n_classes, N), z
    y = rng.normal(size=N) * size[::-1]
    if LOSSES[type(term)].depends_on.startswith("margin"):
        y = np.where(y > 0, 1.0, -1.0)
    if isinstance(term, t.Binomial):
        y = rng.integers(0, term.trials + 1, N).astype(float)
    if isinstance(term, t.Poisson | t.Tweedie):
        y = rng.poisson(3.0, N).astype(float)
    if isinstance(term, t.Exponential):
        y = rng.exponential(size=N) + 1e-9
    return y, rng.normal(size=N) * size


def test_both_sides_know_the_same_losses() -> None:
    assert {type(term) for term in TERMS} == set(LOSSES) == set(kernel.LOSSES)


@pytest.mark.parametrize("term", TERMS, ids=name)
def test_smoothness_and_convexity_agree(term: Any) -> None:
    row = kernel.LOSSES[type(term)]
    assert objectives.is_convex(term) == row.convex
    assert objectives.smoothness(term) == row.smooth(term)


@pytest.mark.parametrize("what", ["value", "slope", "curvature"])
@pytest.mark.parametrize("term", TERMS, ids=name)
def test_values_and_slopes_agree(term: Any, what: str) -> None:
    y, z = drawn(term, 0)
    ask = {"value": objectives.value, "slope": objectives.gradient}.get(
        what, objectives.curvature
    )
    users, checked = ask(term, y, z), verifier(term, what, y, z)
    np.testing.assert_allclose(users, checked, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("term", TERMS, ids=name)
def test_conjugates_agree_inside_and_outside_their_domain(term: Any) -> None:
    """The verifier has excesses: ℓ* is e(z, u) − ℓ(z) + uz wherever u stays put."""
    y, z = drawn(term, 1)
    z = np.clip(z, -5, 5)
    row, by_rows = kernel.LOSSES[type(term)], isinstance(term, t.Softmax)
    inside = objectives.gradient(term, y, z)
    # At the ends themselves both may take a last digit for rounding, or not.
    for u in (0.999 * inside, 0.5 * inside, z, -z, np.zeros(np.shape(z))):
        users = objectives.conjugate(term, y, u)
        with np.errstate(invalid="ignore"):  # rows of shares that are all zero
            q = row.natural_of(term, y, u)
        back = row.slope_of(term, y, q)
        stays = np.abs(back - u) <= 1e-12 * np.maximum(1, np.abs(u))
        stays = stays.all(axis=1) if by_rows else stays
        np.testing.assert_array_equal(np.isfinite(users), stays)
        product = (u * z).sum(axis=1) if by_rows else u * z
        value, excess = row.value(term, y, z), row.excess(term, y, z, q)[0]
        size = 1 + np.abs(value) + np.abs(product)
        off = np.abs(users - (excess - value + product))[stays]
        assert np.all(off <= 1e-12 * (size + np.abs(users))[stays])
