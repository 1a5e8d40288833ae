"""The verifier's transformer equals the trained one, option by option, in float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from certus.neural_network.modules import Transformer
from certus.verify.language import attention

OPTIONS: list[dict[str, Any]] = [
    {},
    {"norm": "post"},
    {"position": "learned"},
    {"position": "sinusoidal"},
    {"position": None},
    {"qk_norm": True},
    {"bias": False},
    {"tied": False},
    {"activation": "gelu"},
    {"activation": "gelu_tanh", "hidden": 20},
    {"activation": "relu"},
    {"activation": "swiglu", "bias": False},
    {"segments": 2, "norm": "post"},
    {"heads": 1},
]


def moved(net: torch.nn.Module, size: float = 0.5) -> torch.nn.Module:
    """Weights far from their start, so that each of them matters."""
    made = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for p in net.parameters():
            p.add_(torch.randn(p.shape, generator=made, dtype=p.dtype) * size)
    return net.eval()


def arrays(net: torch.nn.Module) -> dict[str, np.ndarray]:
    return {name: p.numpy() for name, p in net.state_dict().items()}


@pytest.mark.parametrize("kind", ["decoder", "encoder", "both"])
@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_the_forward_pass_is_that_of_the_network(
    kind: str, options: dict[str, Any]
) -> None:
    words = {"n_layers": 2, "width": 16, "heads": 4, "context": 12, **options}
    net = moved(Transformer(11, kind=kind, **words).double())
    rng = np.random.default_rng(1)
    tokens, source = rng.integers(0, 11, (3, 9)), rng.integers(0, 11, (3, 7))
    given = [tokens, source] if kind == "both" else [tokens]
    with torch.no_grad():
        truth = net(*map(torch.as_tensor, given)).output.numpy()
    # The network keeps its sines in float32.
    near = 1e-6 if options.get("position") == "sinusoidal" else 1e-11
    for order in (1, -1):
        found = attention.forward(net.config, arrays(net), *given, order=order)
        np.testing.assert_allclose(found, truth, rtol=0, atol=near * abs(truth).max())


@pytest.mark.parametrize("qk_norm", [False, True])
def test_weights_in_float32(qk_norm: bool) -> None:
    net = moved(Transformer(50, qk_norm=qk_norm, context=40), 0.05)
    tokens = np.random.default_rng(0).integers(0, 50, 40)
    with torch.no_grad():
        truth = net(torch.as_tensor(tokens)[None]).output[0].numpy()
    found = attention.forward(net.config, arrays(net), tokens)
    assert found.dtype == np.float64 and found.shape == (40, 50)
    np.testing.assert_allclose(found, truth, atol=2e-5 * abs(truth).max())


def test_segments_of_tokens() -> None:
    net = moved(Transformer(9, kind="encoder", segments=2, width=8, heads=2).double())
    tokens, segments = np.array([[1, 2, 3, 4]]), np.array([[0, 0, 1, 1]])
    with torch.no_grad():
        truth = net(torch.as_tensor(tokens), segments=torch.as_tensor(segments))
    found = attention.forward(net.config, arrays(net), tokens, segments=segments)
    np.testing.assert_allclose(found, truth.output.numpy(), atol=1e-11)


@pytest.mark.parametrize("norm", ["pre", "post"])
def test_an_encoder_without_layers_is_its_table(norm: str) -> None:
    net = moved(Transformer(9, kind="encoder", n_layers=0, norm=norm, width=8).double())
    tokens = np.array([[1, 2, 3, 1]])
    with torch.no_grad():
        truth = net(torch.as_tensor(tokens)).output.numpy()
    found = attention.forward(net.config, arrays(net), tokens)
    np.testing.assert_allclose(found, truth, atol=1e-13 * abs(truth).max())
    if norm == "post":
        np.testing.assert_array_equal(
            truth[0], arrays(net)["embedding.weight"][[1, 2, 3, 1]]
        )
    with pytest.raises(ValueError, match="layers must be"):
        Transformer(9, n_layers=0, width=8)
    with pytest.raises(ValueError, match="layers = 0"):
        attention.forward({**net.config, "kind": "decoder"}, arrays(net), tokens)


def test_both_orders_differ_by_rounding_alone() -> None:
    net = moved(Transformer(50, context=64), 0.05)
    tokens = np.random.default_rng(0).integers(0, 50, 64)
    weights = arrays(net)
    a, b = (attention.forward(net.config, weights, tokens, order=o) for o in (1, -1))
    assert 0 < abs(a - b).max() < 1e-11 * abs(a).max()


def test_the_future_is_not_seen() -> None:
    net = moved(Transformer(20, context=16).double())
    tokens = np.random.default_rng(0).integers(0, 20, 16)
    whole = attention.forward(net.config, arrays(net), tokens)
    part = attention.forward(net.config, arrays(net), tokens[:9])
    np.testing.assert_allclose(whole[:9], part, atol=1e-10 * abs(whole).max())


def test_log_softmax_of_far_scores() -> None:
    found = attention.log_softmax(np.array([1e4, 0.0, -1e4]))
    np.testing.assert_allclose(found, [0.0, -1e4, -2e4])


@pytest.mark.parametrize(
    ("tokens", "said"),
    [([20], "between 0 and 19"), ([-1], "between"), ([0.5], "whole"), ([], "whole")],
)
def test_unknown_token_numbers_are_refused(tokens: Any, said: str) -> None:
    net = Transformer(20, width=8, heads=2, context=4)
    with pytest.raises(ValueError, match=said):
        attention.forward(net.config, arrays(net), np.array(tokens))


def test_too_many_tokens_and_wrong_weights() -> None:
    net = Transformer(20, width=8, heads=2, context=4)
    weights = arrays(net)
    with pytest.raises(ValueError, match="4 places"):
        attention.forward(net.config, weights, np.zeros(5, int))
    for bad in (np.zeros((20, 7)), np.full((20, 8), np.nan)):
        with pytest.raises(ValueError, match=r"embedding\.weight"):
            attention.forward(net.config, {**weights, "embedding.weight": bad}, [1])
    with pytest.raises(ValueError, match="none"):
        attention.forward(net.config, {}, [1])


class Precise(attention.PlainNetwork):
    """The same formulas with 64 bits of mantissa instead of 53."""

    def get(self, name: str, shape: tuple[int, ...]) -> np.ndarray:
        return super().get(name, shape).astype(np.longdouble)


@pytest.mark.skipif(
    np.finfo(np.longdouble).eps > 1e-18, reason="long double is a double here"
)
@pytest.mark.parametrize("layers", [1, 3, 6])
def test_the_estimated_rounding_covers_the_true_one(layers: int) -> None:
    """Ten times the difference of two orders, against more digits; 12 networks each.

    The estimate is told where the bound is too large to prove anything.
    """
    shares = []
    for seed in range(12):
        rng = np.random.default_rng(seed)
        words: Any = {
            "qk_norm": bool(seed % 2),
            "position": (None, "learned")[seed % 2],
        }
        words["activation"] = ("relu2", "gelu_tanh", "swiglu")[seed % 3]
        net = moved(Transformer(30, n_layers=layers, width=24, heads=3, **words), 0.3)
        given = net.config, arrays(net)
        tokens = rng.integers(0, 30, 20)
        there = attention.forward(*given, tokens)
        back = attention.forward(*given, tokens, order=-1)
        exact = attention.scores(Precise(*given), tokens)
        off = float(np.abs(there - exact).max())
        shares.append(off / float(np.abs(there - back).max()))
    assert max(shares) < 5  # half of what is allowed for
