"""Layers of flows: Jacobians against autodiff, inverses, shapes of the maps."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from certus.neural_network.modules import Flow
from certus.neural_network.modules.increasing import LEAST, Monotone, SumOfSquares
from certus.neural_network.modules.planar import Planar
from certus.neural_network.modules.spline import Spline

CASES = [
    ("spline", False),
    ("spline", True),
    ("affine", False),
    ("affine", True),
    ("monotone", False),
    ("sum_of_squares", False),
    ("planar", False),
    ("linear", False),
]


def numbers(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.from_numpy(np.random.default_rng(seed).normal(size=shape))


def moved(kind: str, coupling: bool = False, d: int = 4, **more: int) -> Flow:
    """A flow whose weights are far from those it starts with."""
    flow = (
        Flow(d, kind, coupling, hidden=(12, 12), **more).double().requires_grad_(False)
    )
    rng = np.random.default_rng(1)
    with torch.no_grad():
        for p in flow.parameters():
            p += torch.from_numpy(0.3 * rng.normal(size=p.shape))
        if kind == "linear":
            for layer in flow.layers:
                layer.weight.copy_(layer.weight.tril())
    return flow


def jacobian(f, row: torch.Tensor) -> torch.Tensor:
    return torch.autograd.functional.jacobian(lambda x: f(x[None])[0], row)


@pytest.mark.parametrize("kind, coupling", CASES)
def test_a_new_layer_is_the_identity(kind, coupling) -> None:
    flow = Flow(3, kind, coupling).double().requires_grad_(False)
    x = 5 * numbers(50, 3)
    z, log_det = flow(x)
    assert float((z - x).abs().max()) < 1e-13
    assert float(log_det.abs().max()) < 1e-13


@pytest.mark.catalog("GEN-30")
@pytest.mark.parametrize("kind, coupling", CASES)
def test_log_determinants_add_up_to_that_of_the_whole_jacobian(kind, coupling) -> None:
    flow, x = moved(kind, coupling, n_layers=3), 2 * numbers(6, 4)
    _, log_det = flow(x)
    for row, said in zip(x, log_det):
        J = jacobian(lambda u: flow(u)[0], row)
        assert float(torch.linalg.slogdet(J)[1]) == pytest.approx(float(said), abs=1e-9)


@pytest.mark.catalog("GEN-29")
@pytest.mark.parametrize("kind, coupling", CASES)
def test_the_jacobian_of_the_inverse_is_the_inverse_jacobian(kind, coupling) -> None:
    flow, x = moved(kind, coupling), numbers(4)
    z = flow(x[None])[0].detach()
    step = 1e-5 * torch.eye(4).double()  # ∇T by central differences
    ahead, behind = (flow.inverse(z + sign * step).detach() for sign in (1, -1))
    T = ((ahead - behind) / 2e-5).T
    product = T @ jacobian(lambda u: flow(u)[0], x)
    torch.testing.assert_close(product, torch.eye(4).double(), atol=1e-6, rtol=0)


@pytest.mark.parametrize("kind, coupling", CASES)
def test_an_inverse_gives_rows_back(kind, coupling) -> None:
    flow, x = moved(kind, coupling), 3 * numbers(200, 4)
    assert float((flow.inverse(flow(x)[0]) - x).abs().max()) < 1e-9
    z = 2 * numbers(200, 4, seed=2)
    assert float((flow(flow.inverse(z))[0] - z).abs().max()) < 1e-9


@pytest.mark.catalog("GEN-39")
@pytest.mark.parametrize("reverse", [False, True])
def test_a_masked_layer_has_a_triangular_jacobian(reverse) -> None:
    flow = moved("affine", n_layers=2)
    layer = flow.layers[int(reverse)]
    J = jacobian(lambda u: layer(u)[0], numbers(4))
    J = J.flip(0, 1) if reverse else J
    assert (J.triu(1) == 0).all()
    assert (J.diagonal() > 0).all()
    assert bool((J.tril(-1) != 0).any())


@pytest.mark.catalog("GEN-40")
def test_a_coupling_copies_one_half_and_moves_the_other() -> None:
    flow, x = moved("affine", True, n_layers=1), numbers(30, 4)
    layer = flow.layers[0]
    v, log_det = layer(x)
    assert (v[:, [0, 2]] == x[:, [0, 2]]).all()
    t = layer._params(x)
    alpha = 3 * torch.tanh(t[..., 1] / 3)
    torch.testing.assert_close(log_det, -alpha.sum(-1))
    torch.testing.assert_close(v[:, [1, 3]], (x[:, [1, 3]] - t[..., 0]) / alpha.exp())
    assert float((layer.inverse(v) - x).abs().max()) < 1e-12


@pytest.mark.catalog("GEN-34")
def test_a_planar_layer_has_the_determinant_of_its_dense_jacobian() -> None:
    layer = Planar(3).double().requires_grad_(False)
    with torch.no_grad():
        layer.w.copy_(torch.tensor([1.0, -2.0, 0.5]))
        layer.u.copy_(torch.tensor([-3.0, 4.0, 1.0]))  # w·u = −10.5: not invertible
    u, inner = layer.direction()
    assert float(inner) == pytest.approx(float(layer.w @ u))
    assert -1 < float(inner) < 0
    x = 3 * numbers(40, 3)
    z, log_det = layer(x)
    for row, said in zip(x[:5], log_det):
        dense = torch.linalg.det(jacobian(lambda v: layer(v)[0], row))
        assert float(dense) == pytest.approx(math.exp(float(said)), rel=1e-9)
    assert float((layer.inverse(z) - x).abs().max()) < 1e-9


def test_without_its_condition_a_planar_layer_folds() -> None:
    w, u = np.array([1.0, -2.0, 0.5]), np.array([-3.0, 4.0, 1.0])
    along = np.linspace(-2, 2, 401)  # w·x along w: a + (w·u) tanh(a) turns back
    assert (np.diff(along + (w @ u) * np.tanh(along)) < 0).any()


@pytest.mark.catalog("GEN-41")
def test_a_monotone_map_increases_whatever_its_parameters() -> None:
    each = Monotone(6)
    u = torch.linspace(-3, 3, 500, dtype=torch.float64)
    for seed in range(20):
        t = (10 * numbers(each.n_params, seed=seed)).expand(500, -1)
        v, log_slope = each(u, t)
        assert (v.diff() > 0).all()
        assert float(log_slope.min()) >= math.log(LEAST) - 3
        assert float((each.inverse(v, t) - u).abs().max()) < 1e-9


@pytest.mark.catalog("GEN-42")
@pytest.mark.parametrize("degree", [0, 1, 2])
def test_sums_of_squares_are_increasing_polynomials(degree) -> None:
    each = SumOfSquares(degree)
    u = torch.linspace(-1.5, 1.5, 2 * degree + 4, dtype=torch.float64)
    for seed in range(5):
        t = (2 * numbers(each.n_params, seed=seed)).expand(len(u), -1)
        v, log_slope = each(u, t)
        assert (log_slope >= math.log(LEAST)).all()
        order = 2 * degree + 2  # differences of a polynomial of degree 2r + 1 vanish
        assert abs(np.diff(v.numpy(), order)).max() < 1e-9 * abs(v.numpy()).max()
        low = abs(np.diff(v.numpy(), order - 1)).max()
        assert low > 1e-6
    if degree == 0:  # an affine map: the same slope everywhere
        assert float((log_slope - log_slope[0]).abs().max()) < 1e-12


def test_a_spline_is_the_identity_outside_its_box_with_finite_gradients() -> None:
    each = Spline(8)
    u = torch.tensor([-9.0, -1.0, 0.3, 1.0, 1e30], dtype=torch.float64)
    t = numbers(5, each.n_params).requires_grad_()
    v, log_slope = each(u, t)
    assert v[[0, 1, 3, 4]].tolist() == u[[0, 1, 3, 4]].tolist()
    assert log_slope[[0, 4]].tolist() == [0, 0]
    (v.clamp(max=10).sum() + log_slope.sum()).backward()
    assert bool(torch.isfinite(t.grad).all())
