"""Training against an attacker: its optimum for linear models, its cost, its units."""

import math

import numpy as np
import pytest
import torch
from scipy.stats import norm
from torch import nn

from certus.neural_network import ConvNetClassifier, MLPClassifier, NeuralClassifier
from certus.neural_network.adversarial import Hardened, InputUnits, worst_rows
from certus.neural_network.batches import Batch
from certus.neural_network.objective import RowLoss, binary_cross_entropy, cross_entropy
from certus.persist import load, save
from certus.threat import ThreatModel

pytestmark = pytest.mark.filterwarnings("ignore::certus.base.UncertifiedWarning")
RNG = np.random.default_rng(0)
NORMS = ["l1", "l2", "linf", 3.0]


def linear(d, outputs=1, seed=0):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return nn.Linear(d, outputs).double()


def small(seed=0, d=2, k=2, width=8):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return nn.Sequential(
            nn.Linear(d, width), nn.Tanh(), nn.Linear(width, k)
        ).double()


def two_classes(n=40, d=4, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d))
    return X, (X @ np.arange(1, d + 1) + rng.normal(size=n) > 0).astype(int)


def penalised(module, X, y, threat):
    """Σ log(1 + exp(−(t g(x) − ε‖w‖_*))) / n, t = ±1: the closed form."""
    t = 2.0 * torch.as_tensor(y) - 1
    w = module.weight[0]
    margins = t * module(torch.as_tensor(X))[:, 0]
    reach = threat.radius * torch.linalg.vector_norm(w, ord=threat.dual)
    return nn.functional.softplus(-(margins - reach)).mean()


# -- linear models: the closed form ------------------------------------------------


@pytest.mark.catalog("ADV-16", "ADV-05")
@pytest.mark.parametrize("p", NORMS)
@pytest.mark.parametrize("steps", [1, 4])
def test_a_linear_model_pays_the_dual_norm_of_its_weights(p, steps):
    X, y = two_classes()
    module, threat = linear(4), ThreatModel(p, 0.3)
    batch = Batch((torch.as_tensor(X),), torch.as_tensor(y), None)
    objective = Hardened(RowLoss(binary_cross_entropy), threat, steps, 0.0)
    found = objective(module, batch)["loss"]
    wanted = penalised(module, X, y, threat)
    assert found.item() == pytest.approx(wanted.item(), rel=1e-10)
    ours = torch.autograd.grad(found, list(module.parameters()))
    theirs = torch.autograd.grad(wanted, list(module.parameters()))
    for a, b in zip(ours, theirs):  # Danskin: the worst row held fixed
        torch.testing.assert_close(a, b, rtol=1e-6, atol=1e-9)


@pytest.mark.catalog("ADV-16")
@pytest.mark.parametrize("p", ["l1", "l2", "linf"])
def test_training_a_linear_model_is_descent_on_the_penalised_margin_loss(p):
    X, y = two_classes()
    threat = ThreatModel(p, 0.2)
    model = NeuralClassifier(
        linear(4),
        adversarial=threat,
        adversarial_steps=2,
        optimizer=torch.optim.SGD,
        learning_rate=0.3,
        batch_size=None,
        max_iter=25,
        random_state=0,
    ).fit(X, y)
    module = linear(4)
    for _ in range(25):
        slopes = torch.autograd.grad(
            penalised(module, X, y, threat), list(module.parameters())
        )
        with torch.no_grad():
            for q, slope in zip(module.parameters(), slopes):
                q -= 0.3 * slope
    torch.testing.assert_close(
        model.module_.weight, module.weight, rtol=1e-7, atol=1e-9
    )
    claim = model.certificate_["training_loss"]
    stated = penalised(model.module_, X, y, threat).item()
    assert claim.value == pytest.approx(stated, rel=1e-8)
    assert f"l{'∞' if p == 'linf' else p[1]} 0.2" in claim.objective
    assert model.certificate_["gradient_ratio"].value < 1e-6


@pytest.mark.catalog("ADV-16")
def test_the_box_leaves_the_attacker_less():
    """Worst allowed rows of a linear model, beside the exact ones of the threat."""
    X = RNG.uniform(size=(30, 4))
    w = torch.tensor([1.0, -2.0, 0.5, 3.0], dtype=torch.float64)
    for p in ("l1", "l2", "linf"):
        threat = ThreatModel(p, 0.5, 0, 1)
        rows = torch.as_tensor(X)
        found = worst_rows(lambda x: (x @ w).exp().sum(), rows, threat, 30)
        exact = threat.worst(rows, w.expand(rows.shape))
        assert threat.within(0.5 + 1e-9).contains(found, rows).all()
        gain, most = ((a - rows) @ w for a in (found, exact))
        assert (gain >= (1 - 1e-5) * most - 1e-12).all()
        assert (gain <= most + 1e-9).all()


# -- networks ----------------------------------------------------------------------


@pytest.mark.parametrize("p", ["l1", "l2", "linf"])
def test_the_worst_rows_are_nearly_those_of_an_exhaustive_search(p):
    module = small(seed=3, k=3)
    with torch.no_grad():
        module[0].weight *= 3.0
        module[2].weight *= 4.0
    threat = ThreatModel(p, 0.5)
    X = torch.as_tensor(RNG.normal(size=(20, 2)))
    y = torch.arange(20) % 3

    def loss(x, labels):
        return cross_entropy(module(x), labels)

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        found = worst_rows(lambda x: loss(x, y).sum(), X, threat, 20)
    line = np.linspace(-0.5, 0.5, 101)
    grid = np.stack(np.meshgrid(line, line), axis=-1).reshape(-1, 2)
    grid = torch.as_tensor(grid[threat.contains(grid, 0 * grid)])
    with torch.no_grad():
        most = torch.stack(
            [loss(x + grid, c.expand(len(grid))).max() for x, c in zip(X, y)]
        )
        ours, clean = loss(found, y), loss(X, y)
    assert threat.within(0.5 + 1e-9).contains(found, X).all()
    assert (ours > clean).all()
    share = (ours - clean) / (most - clean)
    assert float(share.median()) > 0.98
    assert float((share > 0.9).double().mean()) >= 0.8


@pytest.mark.catalog("ADV-17")
def test_the_cost_is_proportional_to_the_steps():
    X, y = two_classes(24)
    for steps in (1, 3, 6):
        passes = {"forward": 0}
        net = small(d=4)
        model = NeuralClassifier(
            net,
            adversarial=ThreatModel("l2", 0.1),
            adversarial_steps=steps,
            batch_size=8,
            max_iter=2,
            random_state=0,
        )
        plain = nn.Linear.forward

        def counted(self, x, passes=passes, plain=plain):
            passes["forward"] += len(x) * x.requires_grad * (x.shape[1] == 4)
            return plain(self, x)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(nn.Linear, "forward", counted)
            patch.setattr(NeuralClassifier, "_stated", lambda *a: 1 / 0)
            with pytest.raises(ZeroDivisionError):
                model.fit(X, y)
        assert passes["forward"] == 2 * 24 * steps  # by rows, not by weights
        assert model.history_["gradients"] == pytest.approx([steps + 1] * 2)


@pytest.fixture(scope="module")
def strong_and_weak():
    """One feature that an attacker cannot turn, and many that he can, by turns of y."""
    rng = np.random.default_rng(5)
    n, d = 400, 40
    y = rng.integers(2, size=n)
    t = 2.0 * y - 1
    X = 0.35 * t[:, None] + rng.normal(size=(n, d))
    X[:, 0] = t + 0.6 * rng.normal(size=n)
    options = {"learning_rate": 0.02, "max_iter": 40, "random_state": 0}
    threat = ThreatModel("linf", 0.5)
    plain = NeuralClassifier(linear(d), **options).fit(X, y)
    robust = NeuralClassifier(
        linear(d), adversarial=threat, adversarial_steps=1, **options
    ).fit(X, y)
    return plain, robust, threat


@pytest.mark.catalog("ADV-16")
def test_robust_accuracy_rises_and_clean_accuracy_falls(strong_and_weak):
    """Risks in closed form: the margin t(wᵀx + b) of either class is normal."""
    plain, robust, threat = strong_and_weak

    def risk(model, radius):
        w = model.module_.weight[0].detach().numpy()
        b = model.module_.bias.item()
        mean = w[0] + 0.35 * w[1:].sum() - radius * abs(w).sum()
        spread = math.sqrt(0.36 * w[0] ** 2 + (w[1:] ** 2).sum())
        return np.mean([norm.cdf(-(mean + t * b) / spread) for t in (-1, 1)])

    assert risk(robust, threat.radius) < 0.6 * risk(plain, threat.radius)
    assert risk(robust, 0.0) > risk(plain, 0.0)


@pytest.mark.catalog("ADV-31")
def test_gradients_by_a_row_align_with_the_class():
    """What the robust network looks at is the feature that tells the classes apart."""
    rng = np.random.default_rng(1)
    n, d = 60, 30
    y = np.arange(n) % 2
    X = rng.normal(size=(n, d))
    X[:, 0] = 1.2 * (2 * y - 1) + 0.5 * rng.normal(size=n)
    aligned = []
    for threat in (None, ThreatModel("l2", 1.0)):
        model = NeuralClassifier(
            small(d=d, width=16),
            adversarial=threat,
            adversarial_steps=4,
            learning_rate=0.01,
            max_iter=60,
            random_state=0,
        ).fit(X, y)
        rows = torch.as_tensor(X).requires_grad_(True)
        z = model.module_(rows)
        (G,) = torch.autograd.grad((z[:, 1] - z[:, 0]).sum(), rows)
        aligned.append(float((G[:, 0] / G.norm(dim=1)).mean()))
    assert aligned[1] > aligned[0] + 0.2


# -- units -------------------------------------------------------------------------


def stripes(n=48, seed=0):
    rng = np.random.default_rng(seed)
    y = np.arange(n) % 2
    X = rng.uniform(0, 0.4, size=(n, 6, 6))
    X[y == 0, ::2] += 0.3
    X[y == 1, :, ::2] += 0.3
    return X, y


def tiny(shape, k):
    return nn.Sequential(
        nn.Conv2d(1, 3, 3), nn.Softplus(), nn.Flatten(), nn.Linear(48, k)
    ).double()


@pytest.mark.parametrize("p", ["l2", "linf"])
def test_the_radius_is_in_the_units_of_the_pixels(p):
    X, y = stripes()
    options = {"max_iter": 3, "adversarial_steps": 3, "random_state": 0}
    low = np.zeros((6, 6))
    low[0] = -0.25
    found = []
    for unit, shape in ((1.0, (6, 6)), (256.0, (6, 6)), (256.0, (36,))):
        threat = ThreatModel(p, 0.2 * unit, unit * low.reshape(shape), unit)
        model = ConvNetClassifier(tiny, adversarial=threat, **options)
        model.fit(unit * X.reshape(-1, *shape), y)
        found.append(model)
    for other in found[1:]:
        for a, b in zip(found[0].module_.parameters(), other.module_.parameters()):
            torch.testing.assert_close(a, b, rtol=1e-6, atol=1e-8)
    plain = ConvNetClassifier(tiny, **options).fit(X, y)
    assert not torch.allclose(plain.module_[0].weight, found[0].module_[0].weight)


def test_rows_are_changed_before_they_are_scaled():
    X = torch.as_tensor(RNG.uniform(2, 4, size=(9, 3, 2, 2)))
    units = InputUnits(
        RNG.normal(size=(3, 1, 1)), np.array([0.1, 1.0, 10.0])[:, None, None]
    )
    torch.testing.assert_close(units.raw(units.scaled(X)), X)
    net = nn.Sequential(nn.Flatten(), linear(12, 3))
    threat = ThreatModel("l2", 0.7)
    objective = Hardened(RowLoss(cross_entropy), threat, 3, 0.0, units)
    batch = Batch((units.scaled(X),), torch.arange(9) % 3, None)
    moved = units.raw(objective.search(net, batch).inputs[0])
    torch.testing.assert_close(
        threat.distances(moved, X), torch.full((9,), 0.7).double()
    )


def test_random_layers_of_training_are_off_in_an_attack():
    """The attacker sees the network as it predicts; its batch norms learn nothing."""
    net = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Dropout(0.5), nn.ReLU())
    net = nn.Sequential(net, nn.Linear(8, 2)).double().train()
    X, y = two_classes(16)
    batch = Batch((torch.as_tensor(X),), torch.as_tensor(y), None)
    objective = Hardened(RowLoss(cross_entropy), ThreatModel("l2", 0.1), 3, 0.1)
    before = {k: v.clone() for k, v in net.state_dict().items()}
    objective.search(net, batch)
    assert all(torch.equal(v, before[k]) for k, v in net.state_dict().items())
    assert all(part.training for part in net.modules())
    assert all(q.grad is None for q in net.parameters())


# -- estimators --------------------------------------------------------------------


def test_a_perceptron_is_trained_by_torch_and_comes_back_from_a_file(tmp_path):
    X, y = two_classes()
    threat = ThreatModel("linf", 0.1, low=np.full(4, -5.0))
    options = {"max_iter": 3, "random_state": 0, "adversarial_steps": 2}
    model = MLPClassifier((5,), adversarial=threat, **options).fit(X, y)
    assert model.history_["gradients"] == [3.0] * 3
    save(model, tmp_path / "model.certus")
    again = load(tmp_path / "model.certus")
    np.testing.assert_array_equal(again.predict_proba(X), model.predict_proba(X))
    assert (again.adversarial.norm, again.adversarial.radius) == (math.inf, 0.1)
    np.testing.assert_array_equal(again.adversarial.low, threat.low)
    with pytest.raises(ValueError, match="engine='explicit' has no adversarial"):
        MLPClassifier(adversarial=threat, engine="explicit").fit(X, y)


def test_row_weights_and_partial_fits_go_with_it():
    X, y = two_classes(30)
    s = RNG.integers(0, 3, size=30).astype(float)
    options = {
        "adversarial": ThreatModel("linf", 0.2),
        "adversarial_steps": 1,
        "alpha_operator_norm": 0.1,
        "optimizer": torch.optim.SGD,
        "learning_rate": 0.1,
        "batch_size": None,
        "max_iter": 5,
    }
    weighted = NeuralClassifier(linear(4), random_state=0, **options)
    weighted.fit(X, y, sample_weight=s)
    repeated = NeuralClassifier(linear(4), random_state=1, **options)
    repeated.fit(np.repeat(X, s.astype(int), axis=0), np.repeat(y, s.astype(int)))
    torch.testing.assert_close(weighted.module_.weight, repeated.module_.weight)
    parts = NeuralClassifier(linear(4), random_state=0, **options)
    for _ in range(5):
        parts.partial_fit(X, y, classes=[0, 1], sample_weight=s)
    torch.testing.assert_close(weighted.module_.weight, parts.module_.weight)


@pytest.mark.parametrize("p", NORMS)
def test_entries_that_are_fixed_are_not_attacked(p, tmp_path):
    X = torch.as_tensor(RNG.normal(size=(20, 3)))
    threat = ThreatModel(p, 0.3, fixed=np.array([False, True, False]))
    w = torch.tensor([1.0, -5.0, 2.0]).double()
    worst = worst_rows(lambda x: (x @ w).sum(), X, threat, 2)
    moved = (worst - X).numpy()
    assert (moved[:, 1] == 0).all()
    dual = np.linalg.norm([1.0, 2.0], ThreatModel(p, 1.0).dual)
    np.testing.assert_allclose(moved @ w.numpy(), 0.3 * dual, rtol=1e-5)
    model = MLPClassifier((2,), adversarial=threat, max_iter=1)
    save(model.fit(X.numpy(), np.arange(20) % 2), tmp_path / "model.certus")
    again = load(tmp_path / "model.certus").adversarial
    assert again.fixed.tolist() == [False, True, False]
