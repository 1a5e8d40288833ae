"""The bound of a transformer's rounding is above the truth, whole and term by term.

The truth is a network in long double, written apart.
"""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
import torch
from tests.helpers import precise_transformer as precise
from tests.helpers.precise_transformer import LONG

from certus.neural_network.modules import Transformer
from certus.verify.language import attention, drift
from certus.verify.language.attention import PlainNetwork
from certus.verify.language.drift import Bounded, Extent

longer = pytest.mark.skipif(not precise.LONGER, reason="long double is a double here")

OPTIONS: list[dict[str, Any]] = [
    {"activation": a, "qk_norm": q, "position": p, "norm": n}
    for a, (q, p, n) in zip(
        itertools.cycle(attention.ALLOWED["activation"]),
        itertools.product(
            (False, True), attention.ALLOWED["position"], attention.ALLOWED["norm"]
        ),
    )
]
OPTIONS += [
    {"activation": a, "bias": False, "tied": False, "heads": 1}
    for a in attention.ALLOWED["activation"]
]


def network(seed: int, size: float, **options: Any) -> tuple[Any, dict[str, Any]]:
    """A configuration and weights; ``size`` scales all matrices."""
    words = {"n_layers": 2, "width": 16, "heads": 2, "context": 24, **options}
    net = Transformer(13, **words)
    made = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for p in net.parameters():
            p.add_(torch.randn(p.shape, generator=made) * 0.3)
            p.mul_(size if p.ndim == 2 else 1.0)
    return net.config, {name: p.numpy() for name, p in net.state_dict().items()}


class Adverse(PlainNetwork):
    """Products are added one by one, the largest first: large partial sums."""

    def times(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        a, b = np.broadcast_arrays(
            a[..., :, None, :], np.swapaxes(b, -1, -2)[..., None, :, :]
        )
        terms = a * b
        terms = np.take_along_axis(terms, np.argsort(-terms, axis=-1), axis=-1)
        return np.add.accumulate(terms, axis=-1)[..., -1]


@longer
@pytest.mark.parametrize("size", [1.0, 1e-3, 1e3])
@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_the_bound_is_above_the_truth(options: dict[str, Any], size: float) -> None:
    config, weights = network(0, size, **options)
    ids = np.random.default_rng(1).integers(0, 13, 20)
    truth = precise.scores(config, weights, ids)
    for kind in (PlainNetwork, Adverse):
        found = attention.bounded(kind(config, weights), ids)
        off = np.abs(found.x - truth).max(axis=-1)
        assert (off <= found.off).all(), kind.__name__
        assert off.max() > 0
        if size == 1.0:  # and not without meaning: two layers
            assert found.off.max() < 1e-5


@longer
def test_log_probabilities() -> None:
    for seed in range(6):
        config, weights = network(seed, 1.0)
        ids = np.random.default_rng(seed).integers(0, 13, 20)
        S = precise.scores(config, weights, ids)
        truth = S - np.log(np.exp(S - S.max(-1, keepdims=True)).sum(-1, keepdims=True))
        truth = truth - S.max(-1, keepdims=True)
        found = attention.log_probs(PlainNetwork(config, weights), ids)
        off = np.abs(found.x - truth).max(axis=-1)
        assert (off <= found.off).all() and found.off.max() < 1e-6


def test_the_bound_grows_with_depth_and_never_fails() -> None:
    last = 0.0
    for layers in (1, 2, 4, 8):
        config, weights = network(0, 1.0, n_layers=layers)
        found = attention.bounded(PlainNetwork(config, weights), np.arange(13))
        assert last < found.off.max()
        last = found.off.max()
    config, weights = network(0, 1e30)
    found = attention.bounded(PlainNetwork(config, weights), np.arange(13))
    assert not np.isnan(found.off).any()


# -- term by term ---------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(5, 40), (40, 5), (30, 30), (1, 9), (3, 7, 20)])
@pytest.mark.parametrize("scale", [1.0, 1e-120, 1e120])
def test_the_norm_of_a_matrix(shape: tuple[int, ...], scale: float) -> None:
    rng = np.random.default_rng(0)
    for A in (rng.normal(size=shape), np.ones(shape), np.eye(shape[-1])[: shape[-2]]):
        truth = np.linalg.norm(A, 2, axis=(-2, -1))
        found = drift.spectral(A * scale) / scale
        assert (found >= truth * (1 - 1e-14)).all() and (found <= 1.1 * truth).all()
    assert drift.spectral(np.zeros((3, 4))) < 1e-100


def test_products_that_cancel() -> None:
    rng = np.random.default_rng(0)
    for n in (3, 50, 400):
        half = rng.normal(size=n) * 10.0 ** rng.integers(-8, 8, n)
        x, w = np.append(half, half), np.append(np.ones(n), -np.ones(n))
        x[0] += 1e-12
        size = drift.size_of(w[None], np.zeros(1))
        off = drift.product(Bounded(x[None], np.zeros(1)), size, 2 * n)
        exact = math.fsum(np.concatenate([x[:n], -x[n:]]))
        assert abs(np.add.accumulate(x * w)[-1] - exact) <= off
        assert abs(float(x @ w) - exact) <= off
        # What goes in counts with the norm.
        off = drift.product(Bounded(x[None], np.ones(1)), size, 2 * n)
        assert off >= math.sqrt(2 * n)


@longer
@pytest.mark.parametrize("e", [1e-12, 1e-3, 0.3, 3.0])
def test_norms_of_rows_that_are_off(e: float) -> None:
    rng = np.random.default_rng(0)
    for size, d in itertools.product((1e-4, 0.1, 1.0, 100.0), (2, 8, 50)):
        x = rng.normal(size=(40, d)) * size
        step = rng.normal(size=(40, d))
        # Towards the mean is worst: the row becomes short.
        step[::2] = -(x - x.mean(-1, keepdims=True))[::2]
        step *= e / np.linalg.norm(step, axis=-1, keepdims=True)
        c = x - x.mean(axis=-1, keepdims=True)
        found = attention.scaled(Bounded(x, np.full(40, e)), c, 1e-5)
        y = (x + step).astype(LONG)
        y = y - y.mean(axis=-1, keepdims=True)
        y = y / np.sqrt((y * y).mean(axis=-1, keepdims=True) + LONG(1e-5))
        assert (np.linalg.norm((found.x - y).astype(float), axis=-1) <= found.off).all()


@longer
@pytest.mark.parametrize("e", [1e-13, 1e-6, 1e-2, 1.0])
def test_mixing_with_everything_off(e: float) -> None:
    rng = np.random.default_rng(0)
    for size, M in itertools.product((0.1, 3.0, 30.0), (1, 6, 40)):
        q, k, v = (rng.normal(size=(n, 8)) * s for n, s in ((9, size), (M, 1), (M, 1)))
        k += 5.0  # what keys have in common cancels
        off = [rng.random(len(x)) * e for x in (q, k, v)]
        S = q @ k.T / math.sqrt(8)
        P = attention.softmax(S)
        z = P @ v
        given = [Bounded(x, o) for x, o in zip((q, k, v), off)]
        bound = drift.mixed(*given, P, z)
        for _ in range(5):
            moved = []
            for x, o in zip((q, k, v), off):
                step = rng.normal(size=x.shape)
                step *= (o / np.linalg.norm(step, axis=-1))[:, None]
                moved.append((x + step).astype(LONG))
            truth = precise.softmax(moved[0] @ moved[1].T / np.sqrt(LONG(8))) @ moved[2]
            apart = np.linalg.norm((z - truth).astype(float), axis=-1)
            assert (apart <= bound).all()


@longer
@pytest.mark.parametrize("kind", attention.ALLOWED["activation"])
def test_slopes_are_bounds(kind: str) -> None:
    rng = np.random.default_rng(0)
    for r in (1e-9, 1e-3, 0.5):
        h = rng.normal(size=(200, 30)) * np.geomspace(1e-3, 30, 200)[:, None]
        slopes, own = drift.slopes_of(kind, h, np.full(200, r))
        step = rng.uniform(-r, r, h.shape).astype(LONG)
        apart = np.abs(
            precise.bent(kind, h + step) - precise.bent(kind, h.astype(LONG))
        )
        if kind == "swiglu":
            step = np.sqrt(sum(part**2 for part in np.split(step, 2, axis=-1)))
        far = 1e-16 * (1 + np.abs(h).max() ** 2)  # the truth has 19 digits
        assert (apart <= slopes * np.abs(step) + far).all()
        assert (own < 1e-12 * (1 + np.abs(h).max(-1) ** 2) * 30).all()


@pytest.mark.parametrize("kind", ["gelu", "gelu_tanh"])
def test_constants_of_gelu(kind: str) -> None:
    """Slopes are at most 1.13 and second derivatives at most 1, on a fine grid."""
    h = np.linspace(-12, 12, 240_001)
    y = np.asarray(
        h * (0.5 + 0.5 * attention.erf(h / math.sqrt(2)))
        if kind == "gelu"
        else h * (0.5 + 0.5 * np.tanh(math.sqrt(2 / math.pi) * (h + 0.044715 * h**3)))
    )
    step = h[1] - h[0]
    slope = np.diff(y) / step
    assert np.abs(slope).max() < 1.1295
    assert np.abs(np.diff(slope)[::50] / step).max() < 0.81


@longer
def test_the_error_bound_of_a_feed_forward_layer_holds() -> None:
    rng = np.random.default_rng(0)
    for kind, e in itertools.product(attention.ALLOWED["activation"], (1e-12, 1e-2)):
        rows = 40 if kind == "swiglu" else 20
        W1, W2 = rng.normal(size=(rows, 8)), rng.normal(size=(8, 20))
        x = rng.normal(size=(30, 8))
        given = Bounded(x, np.full(30, e))
        inner, outer = drift.size_of(W1, np.zeros(rows)), drift.size_of(W2, np.zeros(8))
        h = x @ W1.T
        slopes, own = drift.slopes_of(kind, h, drift.product(given, inner, 8))
        bound = drift.fed(given, slopes, own, inner, outer)
        step = np.linalg.svd(W1)[2][0] * np.sign(rng.normal(size=(30, 1))) * e
        moved = precise.bent(kind, (x + step).astype(LONG) @ W1.astype(LONG).T)
        computed = precise.bent(kind, h.astype(LONG))
        apart = ((moved - computed) @ W2.T).astype(float)
        assert (np.linalg.norm(apart, axis=-1) <= bound).all()


@longer
def test_turned_rows() -> None:
    x = np.random.default_rng(0).normal(size=(2_000, 16))
    found = attention.turn(Bounded(x, np.zeros(2_000)))
    apart = (found.x - precise.rotated(x.astype(LONG))).astype(float)
    off = np.linalg.norm(apart, axis=-1)
    assert (off <= found.off).all() and found.off.max() < 1e-10


def test_sizes_of_several_matrices() -> None:
    W = np.random.default_rng(0).normal(size=(3, 4, 6))
    size = drift.size_of(W, np.ones((3, 4)))
    assert isinstance(size, Extent) and size.most.shape == size.all.shape == (3,)
    np.testing.assert_allclose(size.all, np.linalg.norm(W, axis=(1, 2)), rtol=1e-5)
    np.testing.assert_allclose(size.bias, 2.0, rtol=1e-5)
