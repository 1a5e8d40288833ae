"""Optimisers of networks against their formulas, on problems small enough to solve."""

import math

import numpy as np
import pytest
import torch
from torch import nn

from certus.linear_model import LinearRegression, Ridge
from certus.neural_network import SignSGD, max_norm
from certus.neural_network.batches import Batch
from certus.neural_network.objective import GradientStep, RowLoss, squared
from certus.neural_network.optim import (
    OPTIMIZERS,
    SCHEDULES,
    VarianceReducedStep,
    decay_groups,
    make_average,
    make_optimizer,
    make_schedule,
    make_step,
)
from certus.optimize import gradient_descent, least_squares_objective

N = 40


@pytest.fixture
def lines():
    """Least squares with noise: the batches disagree at the minimum."""
    rng = np.random.default_rng(0)
    X = torch.from_numpy(rng.normal(size=(N, 3)))
    y = X @ torch.tensor([1.0, -2.0, 0.5], dtype=torch.float64) + 1.0
    return X, y + torch.from_numpy(rng.normal(size=N))


def network(seed=0, dropout=0.0):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        hidden = [nn.Linear(3, 5), nn.Tanh(), nn.LayerNorm(5), nn.Dropout(dropout)]
        return nn.Sequential(*hidden, nn.Linear(5, 1)).double()


def fetcher(X, y, s=None):
    return lambda rows: Batch((X[rows],), y[rows], None if s is None else s[rows])


def parameters(module):
    return torch.cat([p.detach().reshape(-1) for p in module.parameters()])


def gradient(module):
    return torch.cat([p.grad.reshape(-1) for p in module.parameters()])


def mean_loss(module, X, y, s=None):
    loss = squared(module(X), y)
    return loss.mean() if s is None else (s * loss).sum() / s.sum()


class Quadratic(nn.Module):
    """½(θ − θ*)ᵀH(θ − θ*), in the place of a network that is told rows."""

    def __init__(self, H, best):
        super().__init__()
        self.theta = nn.Parameter(torch.zeros(len(best), 1, dtype=torch.float64))
        self.H, self.best = H, best.reshape(-1, 1)

    def forward(self):
        d = self.theta - self.best
        return 0.5 * (d.T @ self.H @ d).squeeze()


@pytest.fixture
def bowl():
    rng = np.random.default_rng(1)
    Q = torch.from_numpy(np.linalg.qr(rng.normal(size=(4, 4)))[0])
    eigenvalues = torch.tensor([0.01, 0.1, 0.5, 2.0], dtype=torch.float64)
    best = torch.tensor([1.0, -1.0, 2.0, 0.5], dtype=torch.float64)
    return Q, eigenvalues, best, Quadratic(Q @ torch.diag(eigenvalues) @ Q.T, best)


def descend(module, optimizer, steps):
    for _ in range(steps):
        optimizer.zero_grad()
        module().backward()
        optimizer.step()
    return module.theta.detach().reshape(-1)


@pytest.mark.catalog("NN-30")
def test_a_step_of_sgd_is_the_gradient_of_the_batch_times_the_rate(lines):
    X, y = lines
    module, rows = network(), torch.arange(0, N, 3)
    before = [p.detach().clone() for p in module.parameters()]
    grads = torch.autograd.grad(
        mean_loss(module, X[rows], y[rows]), module.parameters()
    )
    optimizer = make_optimizer(
        "sgd", module, 0.1, options={"momentum": 0.0, "nesterov": False}
    )
    GradientStep(module, optimizer, RowLoss(squared), fetcher(X, y))(rows)
    for p, b, g in zip(module.parameters(), before, grads):
        assert torch.allclose(p.detach(), b - 0.1 * g, rtol=1e-14, atol=1e-15)


@pytest.mark.catalog("NN-30")
def test_the_loss_falls_under_every_optimiser(lines):
    X, y = lines
    for kind in OPTIMIZERS:
        module = network()
        rate = {"adadelta": 1.0, "sgd": 0.01, "signsgd": 0.003}.get(kind, 0.02)
        step = make_step(kind, module, rate, 0.0, RowLoss(squared))
        step.fetch = fetcher(X, y)
        first = mean_loss(module, X, y).item()
        for _ in range(40):
            parts = list(torch.arange(N).split(20))
            if kind == "svrg":
                step.begin(parts)
            for rows in parts:
                step(rows)
        assert mean_loss(module, X, y).item() < 0.8 * first, kind


@pytest.mark.catalog("NN-38")
def test_weight_decay_is_sgd_on_the_penalised_loss(lines):
    X, y = lines
    decayed, penalised = network(), network()
    options = {"momentum": 0.0, "nesterov": False}
    optimizer = make_optimizer("sgd", decayed, 0.1, 0.3, options)
    step = GradientStep(decayed, optimizer, RowLoss(squared), fetcher(X, y))
    plain = torch.optim.SGD(penalised.parameters(), lr=0.1)
    for rows in torch.arange(N).split(8):
        step(rows)
        plain.zero_grad()
        weights = [penalised[0].weight, penalised[4].weight]
        penalty = sum(w.square().sum() for w in weights)
        (mean_loss(penalised, X[rows], y[rows]) + 0.15 * penalty).backward()
        plain.step()
    assert torch.allclose(parameters(decayed), parameters(penalised), rtol=1e-13)


@pytest.mark.catalog("NN-38")
@pytest.mark.parametrize("kind", ["sgd", "adam", "nadam", "rmsprop", "signsgd"])
def test_biases_and_scales_of_norms_do_not_decay(kind):
    module = nn.Sequential(nn.Linear(3, 4), nn.LayerNorm([2, 2]), nn.GroupNorm(1, 2))
    with torch.no_grad():
        for p in module.parameters():
            p.fill_(1.0)
    optimizer = make_optimizer(kind, module, 0.1, 0.5)
    for p in module.parameters():
        p.grad = torch.zeros_like(p)
    optimizer.step()
    assert module[0].weight.max().item() < 1.0
    for p in (module[0].bias, *module[1].parameters(), *module[2].parameters()):
        assert torch.equal(p, torch.ones_like(p))


@pytest.mark.catalog("NN-38")
def test_each_layer_may_have_a_decay_of_its_own():
    module = network()
    groups = decay_groups(module, {"": 0.1, "4": 0.7})
    found = {id(p): g["weight_decay"] for g in groups for p in g["params"]}
    assert found[id(module[0].weight)] == 0.1
    assert found[id(module[4].weight)] == 0.7
    assert found[id(module[4].bias)] == found[id(module[2].weight)] == 0.0
    assert len(found) == len(list(module.parameters()))
    with pytest.raises(ValueError, match=r"names 'head', which is not a part"):
        decay_groups(module, {"head": 0.1})
    with pytest.raises(ValueError, match=r"weight_decay of .4. must be a number of at"):
        decay_groups(module, {"4": -1.0})


@pytest.mark.catalog("NN-38")
def test_frozen_parameters_are_left_alone():
    module = network()
    module[0].requires_grad_(False)
    found = [p for g in decay_groups(module, 0.1) for p in g["params"]]
    assert {id(p) for p in found} == {
        id(p) for p in module.parameters() if p.requires_grad
    }


@pytest.mark.catalog("NN-39")
def test_weight_decay_shrinks_each_eigendirection(bowl):
    Q, eigenvalues, best, module = bowl
    mu = 0.2
    options = {"momentum": 0.0, "nesterov": False}
    optimizer = make_optimizer("sgd", module, 0.5, mu, options)
    found = descend(module, optimizer, 400)
    shrunk = Q @ ((eigenvalues / (eigenvalues + mu)) * (Q.T @ best))
    assert torch.allclose(found, shrunk, rtol=1e-12, atol=1e-12)


@pytest.mark.catalog("NN-41")
def test_stopping_early_is_almost_ridge():
    """After k = 1/(ημ) steps from 0, (I − ηΛ)ᵏ is about μ(Λ + μI)⁻¹."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 4)) * [1.0, 0.8, 0.5, 0.3]
    y = X @ [1.0, -2.0, 3.0, -4.0] + 0.1 * rng.normal(size=60)
    f = least_squares_objective(X, y)
    mu = 20 * f.L  # λ/μ ≤ 0.05
    eta = 0.01 / mu
    options = {"step": eta, "tol": 0.0}
    early = gradient_descent(f, np.zeros(4), max_iter=round(1 / (eta * mu)), **options)
    ridge = Ridge(mu * len(y), fit_intercept=False).fit(X, y)
    full = LinearRegression(fit_intercept=False).fit(X, y).coef_
    np.testing.assert_allclose(early.x, ridge.coef_, rtol=f.L / mu)
    assert np.linalg.norm(early.x) < 0.05 * np.linalg.norm(full)
    # The powers themselves, direction by direction, at any time.
    values, Q = np.linalg.eigh(f.hessian(full))
    kept = (1 - eta * values) ** early.n_iter
    np.testing.assert_allclose(Q.T @ early.x, (1 - kept) * (Q.T @ full), rtol=1e-9)
    # Far from the time 1/(ημ) it is not ridge with that μ.
    late = gradient_descent(f, np.zeros(4), max_iter=2 * early.n_iter, **options)
    assert (np.abs(late.x - ridge.coef_) > 0.5 * np.abs(ridge.coef_)).all()


@pytest.mark.catalog("NN-40")
@pytest.mark.parametrize("whole", [False, True])
def test_weights_stay_within_the_ball(bowl, whole):
    Q, eigenvalues, _, module = bowl
    module.H = Q @ torch.diag(0.5 + eigenvalues) @ Q.T
    radius = 0.6
    optimizer = max_norm(torch.optim.SGD([module.theta], lr=0.05), radius, whole=whole)
    module.theta.data += 0.01
    norms, free = [], []
    for _ in range(600):
        before = module.theta.detach().clone()
        descend(module, optimizer, 1)
        theta = module.theta.detach()
        size = theta.norm() if whole else theta.abs().max()
        norms.append(float(size))
        step = before - 0.05 * module.theta.grad
        free.append(torch.allclose(theta, step, rtol=1e-14, atol=1e-15))
    assert max(norms) <= radius * (1 + 1e-12)
    assert norms[-1] == pytest.approx(radius)
    assert free[0] and not free[-1]  # inactive early, active later
    assert free == sorted(free, reverse=True)
    # The projected point is the minimum in the ball: no feasible direction descends.
    grad = module.theta.grad.reshape(-1)
    theta = module.theta.detach().reshape(-1)
    if whole:
        assert torch.allclose(-grad / grad.norm(), theta / theta.norm(), atol=1e-6)
    else:
        at = theta.abs() > radius - 1e-9
        assert grad[~at].abs().max() < 1e-6 if (~at).any() else True
        assert (grad[at] * theta[at] <= 0).all()


@pytest.mark.catalog("NN-40")
def test_the_norm_is_that_of_the_weights_into_a_unit():
    layer = nn.Conv2d(2, 3, 3)
    with torch.no_grad():
        layer.weight[0] *= 100.0
    before = layer.weight.detach().clone()
    optimizer = max_norm(torch.optim.SGD(layer.parameters(), lr=0.1), 2.0)
    for p in layer.parameters():
        p.grad = torch.zeros_like(p)
    optimizer.step()
    assert layer.weight[0].norm().item() == pytest.approx(2.0)
    assert torch.equal(layer.weight[1:], before[1:])
    with pytest.raises(ValueError, match="radius must be a number above 0"):
        max_norm(optimizer, 0.0)


def test_sign_descent_moves_each_weight_by_the_rate_or_not_at_all():
    w = nn.Parameter(torch.tensor([1.0, 2.0, 3.0]))
    w.grad = torch.tensor([1e-9, -1e9, 0.0])
    optimizer = SignSGD([w], lr=0.25)
    optimizer.step()
    assert w.tolist() == [0.75, 2.25, 3.0]
    held = SignSGD([w], lr=0.25, momentum=0.9)
    for g in ([-10.0, 0.0, 1.0], [1.0, 0.0, 1.0]):
        w.grad = torch.tensor(g)
        held.step()
    # After -10 and 1 the mean is still negative.
    assert w.tolist() == [1.25, 2.25, 2.5]


def reduced(X, y, s=None, dropout=0.0):
    module = network(dropout=dropout)
    optimizer = make_optimizer("svrg", module, 0.1)
    return VarianceReducedStep(module, optimizer, RowLoss(squared), fetcher(X, y, s))


def test_the_reduced_gradient_is_unbiased_and_exact_at_the_anchor(lines):
    X, y = lines
    step = reduced(X, y)
    parts = list(torch.arange(N).split(10))
    step.begin(parts)
    module = step.modules["module"]
    full = torch.autograd.grad(mean_loss(step.anchor, X, y), step.anchor.parameters())
    for a, b in zip(step.full, full):
        assert torch.allclose(a, b, rtol=1e-12, atol=1e-14)
    step.gradients(module, *step.fetched(parts[0]))
    there = torch.cat([g.reshape(-1) for g in full])
    assert torch.allclose(gradient(module), there, rtol=1e-10, atol=1e-12)
    with torch.no_grad():  # elsewhere: its mean over batches is the full gradient
        for p in module.parameters():
            p += 0.1
    found, plain = [], []
    for rows in parts:
        step.gradients(module, *step.fetched(rows))
        found.append(gradient(module))
        grads = torch.autograd.grad(
            mean_loss(module, X[rows], y[rows]), module.parameters()
        )
        plain.append(torch.cat([g.reshape(-1) for g in grads]))
    here = torch.autograd.grad(mean_loss(module, X, y), module.parameters())
    here = torch.cat([g.reshape(-1) for g in here])
    assert torch.allclose(torch.stack(found).mean(dim=0), here, atol=1e-12)
    assert torch.stack(found).var(dim=0).sum() < torch.stack(plain).var(dim=0).sum()


def test_the_full_gradient_is_that_of_the_weighted_mean(lines):
    X, y = lines
    s = torch.linspace(0.1, 3.0, N, dtype=torch.float64)
    step = reduced(X, y, s)
    step.begin(list(torch.arange(N).split(15)))  # the last batch is smaller
    loss = mean_loss(step.anchor, X, y, s)
    for a, b in zip(step.full, torch.autograd.grad(loss, step.anchor.parameters())):
        assert torch.allclose(a, b, rtol=1e-12, atol=1e-14)


def test_the_same_units_drop_out_at_the_anchor(lines):
    X, y = lines
    step = reduced(X, y, dropout=0.5)
    rows = torch.arange(N)
    step.begin([rows])
    step.gradients(step.modules["module"], *step.fetched(rows))
    there = torch.cat([g.reshape(-1) for g in step.full])
    assert torch.allclose(gradient(step.modules["module"]), there, atol=1e-12)


def test_reduced_variance_converges_linearly_where_plain_descent_stalls(lines):
    X, y = lines
    design = torch.cat([X, torch.ones(N, 1, dtype=torch.float64)], dim=1)
    best = torch.linalg.lstsq(design, y.reshape(-1, 1)).solution.reshape(-1)
    rng, excess = np.random.default_rng(2), {}
    for kind in ("svrg", "sgd"):
        module = nn.Linear(3, 1).double()
        with torch.no_grad():
            for p in module.parameters():
                p.zero_()
        optimizer = torch.optim.SGD(module.parameters(), lr=0.15)
        cls = VarianceReducedStep if kind == "svrg" else GradientStep
        step = cls(module, optimizer, RowLoss(squared), fetcher(X, y))
        excess[kind] = []
        for _ in range(100):
            parts = list(torch.from_numpy(rng.permutation(N)).split(10))
            if kind == "svrg":
                step.begin(parts)
            for rows in parts:
                step(rows)
            excess[kind].append(float((parameters(module) - best).norm()))
    assert excess["svrg"][-1] < 1e-10
    assert min(excess["sgd"]) > 1e-3
    logs = np.log(excess["svrg"][:60:10])
    assert (np.diff(logs) < -0.5).all()  # by a constant factor in each ten epochs


@pytest.mark.parametrize("clip", [1e-3, 1e9])
def test_long_gradients_are_shortened_to_the_norm(lines, clip):
    X, y = lines
    module = network()
    optimizer = torch.optim.SGD(module.parameters(), lr=1.0)
    before, rows = parameters(module), torch.arange(N)
    step = GradientStep(module, optimizer, RowLoss(squared), fetcher(X, y), clip)
    grads = torch.autograd.grad(mean_loss(module, X, y), module.parameters())
    norm = float(torch.cat([g.reshape(-1) for g in grads]).norm())
    step(rows)
    moved = float((parameters(module) - before).norm())
    assert moved == pytest.approx(min(norm, clip), rel=1e-3)


@pytest.mark.parametrize("kind", [None, *SCHEDULES])
@pytest.mark.parametrize("warmup", [0.0, 0.2])
def test_schedules_follow_their_formula(kind, warmup):
    formulas = {
        None: lambda t: 1.0,
        "cosine": lambda t: math.cos(math.pi * t / 2) ** 2,
        "linear": lambda t: 1 - t,
        "step": lambda t: 1.0 if t < 1 / 3 else 0.1 if t < 2 / 3 else 0.01,
        "inverse": lambda t: 1 / (1 + 10 * t),
    }
    w = nn.Parameter(torch.zeros(1))
    optimizer = torch.optim.SGD([w], lr=0.4)
    steps = 50
    schedule = make_schedule(kind, optimizer, steps, warmup)
    if kind is None and not warmup:
        assert schedule is None
        return
    for k in range(steps):
        rise = min(1.0, (k + 1) / (warmup * steps + 1))
        wanted = 0.4 * rise * formulas[kind](k / steps)
        assert optimizer.param_groups[0]["lr"] == pytest.approx(wanted, abs=1e-12)
        optimizer.step()
        schedule.step()


def test_a_custom_schedule_is_accepted():
    optimizer = torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=0.5)
    make_schedule(lambda t: 0.25, optimizer, 10)
    assert optimizer.param_groups[0]["lr"] == 0.125


@pytest.mark.parametrize("kind", ["polyak", 0.9])
def test_averages_are_their_closed_form(kind):
    module = nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2)).double()
    average = make_average(module, kind)
    rng, path = np.random.default_rng(0), []
    for _ in range(7):
        with torch.no_grad():
            for value in (*module.parameters(), module[1].running_mean):
                value.copy_(torch.from_numpy(rng.normal(size=value.shape)))
        path.append(parameters(module))
        average.update_parameters(module)
    k = torch.arange(7, dtype=torch.float64)
    if kind == "polyak":
        factor = torch.full((7,), 1 / 7, dtype=torch.float64)
    else:  # the first point has the weight of all before it
        factor = torch.where(k == 0, kind**6, (1 - kind) * kind ** (6 - k))
    wanted = factor @ torch.stack(path)
    assert torch.allclose(parameters(average.module), wanted, rtol=1e-12)
    assert torch.equal(average.module[1].running_mean, module[1].running_mean)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda m: make_optimizer("adamw", m, 0.1), "optimizer must be one of 'sgd'"),
        (lambda m: make_average(m, "swa"), "average must be None, 'polyak' or"),
        (
            lambda m: make_average(m, 1.5),
            "average must be a number of at least 0 and at most 1",
        ),
        (
            lambda m: make_optimizer("sgd", m, 0.1, -1.0),
            "weight_decay must be a number of at least 0",
        ),
        (lambda m: make_schedule("exp", None, 5), "schedule must be one of None"),
        (
            lambda m: make_schedule(None, None, 5, 2.0),
            "warmup must be a number of at least",
        ),
    ],
)
def test_missing_names_are_reported(make, words):
    with pytest.raises(ValueError, match=words):
        make(network())
