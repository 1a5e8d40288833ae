"""Noise, few labels, several tasks, questions: what they do to what is learnt."""

import math

import numpy as np
import pytest
import torch
from sklearn.datasets import load_iris, make_moons
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import scale
from torch import nn

import certus
from certus.neural_network import (
    BaggedNetworks,
    ConsistentClassifier,
    Distilled,
    MultiTaskNetwork,
    NeuralClassifier,
    NeuralRegressor,
    most_uncertain,
)
from certus.neural_network.modules import MLP, WeightNoise

#: All epochs of a plan, however little the last ones gain.
PLAN = {"schedule": "cosine", "n_iter_no_change": math.inf, "random_state": 0}
QUICK = {**PLAN, "learning_rate": 0.01}


# -- noise in targets and weights -------------------------------------------------


@pytest.mark.catalog("NN-50")
@pytest.mark.parametrize(
    ("epsilon", "classes", "outputs"),
    [(0.1, 2, 2), (0.1, 2, 1), (0.3, 3, 3), (0.2, 5, 5)],
)
def test_smoothed_labels_are_met_at_one_minus_epsilon(epsilon, classes, outputs):
    X = np.eye(classes)
    model = NeuralClassifier(
        nn.Linear(classes, outputs).double(),
        learning_rate=0.3,
        max_iter=400,
        label_smoothing=epsilon,
        **PLAN,
    )
    p = model.fit(X, np.arange(classes)).predict_proba(X)
    wanted = np.full((classes, classes), epsilon / classes)
    np.fill_diagonal(wanted, 1 - epsilon + epsilon / classes)
    np.testing.assert_allclose(p, wanted, atol=1e-4)
    if outputs == classes:  # soft targets are the same thing
        soft = clone_with(model, label_smoothing=0.0).fit(X, wanted).predict_proba(X)
        np.testing.assert_allclose(soft, p, atol=1e-4)


def clone_with(model, **options):
    """A fresh copy with other settings."""
    return type(model)(**{**model.get_params(), **options})


@pytest.mark.catalog("NN-50")
def test_noise_on_weights_adds_half_the_curvature_to_the_loss():
    rng = np.random.default_rng(0)
    X, y = (
        torch.as_tensor(rng.normal(size=(30, 4))),
        torch.as_tensor(rng.normal(size=30)),
    )
    net = WeightNoise(nn.Linear(4, 1).double(), std=0.3)

    def loss():
        with torch.no_grad():
            return float((net(X)[:, 0] - y).square().mean() / 2)

    net.eval()
    plain = loss()
    net.train()
    draws = np.array([loss() for _ in range(4000)])
    trace = float((X.T @ X).trace() / 30)
    error = draws.std() / np.sqrt(len(draws))
    assert draws.mean() == pytest.approx(plain + 0.3**2 / 2 * trace, abs=4 * error)
    assert draws.mean() - plain > 20 * error


class TwoWells(nn.Module):
    """A loss of one weight: a narrow minimum at −1, a wide one at 2, equally deep."""

    def __init__(self, start):
        super().__init__()
        self.w = nn.Parameter(torch.tensor([[float(start)]]))

    def forward(self, x):
        w = self.w
        wells = torch.exp(-50 * (w + 1) ** 2) + torch.exp(-0.5 * (w - 2) ** 2)
        return (1 - wells).expand(len(x), 1)


@pytest.mark.catalog("NN-50")
def test_noise_on_weights_prefers_the_flat_minimum():
    X, y = np.zeros((64, 1)), np.zeros(64)
    ends = {}
    for std in (0.0, 1.0):
        found = []
        for start in (-1.1, 0.5):
            net = WeightNoise(TwoWells(start), std=std)
            model = NeuralRegressor(
                net,
                loss=lambda z, y: z[:, 0],
                optimizer="sgd",
                learning_rate=0.02,
                batch_size=4,
                max_iter=30,
                **PLAN,
            ).fit(X, y)
            found.append(float(model.module_.module.w.detach()) > 0.5)
        ends[std] = np.mean(found)
    assert ends[0.0] == 0.5 and ends[1.0] == 1.0


def test_weight_noise_is_for_training_and_spares_biases():
    net = WeightNoise(MLP(2, 3, 1), std=1.0)
    with torch.no_grad():
        for p in net.parameters():
            p.zero_()
    x = torch.zeros(1, 2)
    with torch.no_grad():
        assert float(net.train()(x)) == 0.0  # biases have no noise
        net.module.output.bias.fill_(1.0)
        assert float(net.eval()(torch.ones(1, 2))) == 1.0
    with pytest.raises(ValueError, match="std"):
        WeightNoise(nn.Linear(2, 1), std=-1.0)


# -- few labels -------------------------------------------------------------------


def moons(seed, labels):
    """Two moons, few of them labelled; and others to judge by."""
    X, y = make_moons(400, noise=0.1, random_state=seed)
    rng = np.random.default_rng(seed)
    known = [rng.choice(np.flatnonzero(y == c), labels, False) for c in (0, 1)]
    few = np.full(400, -1)
    few[np.concatenate(known)] = y[np.concatenate(known)]
    return X, few, make_moons(1000, noise=0.1, random_state=1000 + seed)


def small_network(**options):
    """A classifier of a few epochs, in float64."""
    settings = {**QUICK, "max_iter": 5, **options}
    return NeuralClassifier(lambda n, k: MLP(n, 6, k).double(), **settings)


def test_the_objective_counts_labels_and_rows_as_stated():
    X, few, _ = moons(0, 10)
    s = np.random.default_rng(0).integers(1, 4, size=400).astype(float)
    model = ConsistentClassifier(small_network(), alpha=2.0, noise=0.3)
    model.fit(X, few, s)
    generator = torch.Generator().manual_seed(0)  # what the verifier's noise is
    eps = torch.randn(X.shape, generator=generator, dtype=torch.float64).numpy()
    p = model.predict_proba(X)
    moved = model.predict_proba(X + 0.3 * eps)
    known = few >= 0
    losses = -np.log(p[known, few[known]])
    supervised = np.average(losses, weights=s[known])
    apart = np.average(((p - moved) ** 2).sum(axis=1), weights=s)
    claim = model.certificate_["training_loss"]
    assert claim.value == pytest.approx(supervised + 2 * apart, rel=1e-9)
    assert certus.certify(model, X, few, s)["training_loss"].value == claim.value
    assert model.certificate_["gradient_ratio"].value < 1e-3


def test_labels_of_any_kind_and_validation_rows():
    X, few, test = moons(1, 10)
    names = np.array(["no", "yes", -1], dtype=object)[few]
    model = ConsistentClassifier(small_network(max_iter=30))
    judged = np.array(["no", "yes"], dtype=object)[test[1]]
    model.fit(X, names, X_val=test[0], y_val=judged)
    assert list(model.classes_) == ["no", "yes"]
    assert model.score(test[0], judged) > 0.7
    assert "validation_score" in model.history_


@pytest.mark.parametrize(
    ("y", "options", "match"),
    [
        (np.full(400, -1), {}, "no label"),
        (np.where(np.arange(400) < 5, 0, -1), {}, "one class"),
        (moons(0, 5)[1], {"estimator": small_network(early_stopping=True)}, "X_val"),
        (moons(0, 5)[1], {"noise": 0.0}, "noise"),
        (moons(0, 5)[1], {"alpha": -1.0}, "alpha"),
        (np.zeros((400, 2)), {}, "one class for each row"),
        (moons(0, 5)[1], {"estimator": LogisticRegression()}, "certus.neural_network"),
    ],
)
def test_few_labels_are_refused_with_a_message(y, options, match):
    given = {"estimator": small_network(), **options}
    model = ConsistentClassifier(given.pop("estimator"), **given)
    with pytest.raises((ValueError, TypeError), match=match):
        model.fit(moons(0, 5)[0], y)


# -- several tasks ----------------------------------------------------------------


@pytest.mark.catalog("NN-55")
def test_the_gradient_of_shared_weights_is_the_sum_over_tasks():
    X, y = load_iris(return_X_y=True)
    table = np.column_stack([y, X[:, 3]])
    table[::3, 0] = np.nan
    net = MLP(3, 6, 4).double()
    slopes = []
    for weights in ([1.0, 1.0], [1.0, 0.0], [0.0, 1.0]):
        model = MultiTaskNetwork(
            net,
            tasks=["classes", "numbers"],
            task_weights=weights,
            optimizer="sgd",
            learning_rate=1e-300,  # the weights stay as they are
            schedule="cosine",
            max_iter=1,
        ).fit(scale(X[:, :3]), table)
        stated = model._stated(scale(X[:, :3]), table, None, np.arange(150))
        slopes.append(stated.gradient(stated.point))
    np.testing.assert_allclose(slopes[0], slopes[1] + slopes[2], rtol=1e-12)
    # A head's own weights feel their task only.
    sizes = [p.numel() for p in net.parameters()]
    head = slopes[1][sum(sizes[:2]) : sum(sizes[:3])].reshape(4, 6)
    assert np.abs(head[:3]).max() > 0 and not head[3].any()


@pytest.mark.catalog("NN-55")
def test_related_tasks_help_each_other():
    rng = np.random.default_rng(0)
    n, d, tasks = 25, 20, 8
    W = rng.normal(size=(d, 2)) / np.sqrt(d)
    heads = rng.normal(size=(2, tasks))

    def truth(X):
        return (np.tanh(3 * X @ W) @ heads > 0).astype(float)

    X, Z = rng.normal(size=(n * tasks, d)), rng.normal(size=(1000, d))
    table = np.full((n * tasks, tasks), np.nan)
    for t in range(tasks):  # each row is labelled for one task
        rows = slice(t * n, (t + 1) * n)
        table[rows, t] = truth(X[rows])[:, t]
    settings = {**PLAN, "learning_rate": 0.02, "max_iter": 100, "weight_decay": 0.1}

    def narrow(n, k):
        return MLP(n, 2, k, activation="identity")

    together = MultiTaskNetwork(narrow, **settings).fit(X, table)
    alone = []
    for t in range(tasks):
        rows = slice(t * n, (t + 1) * n)
        one = NeuralClassifier(narrow, **settings)
        one.fit(X[rows], table[rows, t])
        alone.append(one.score(Z, truth(Z)[:, t]))
    assert together.score(Z, truth(Z)) > np.mean(alone) + 0.08


def test_one_task_is_the_plain_network():
    X, y = load_iris(return_X_y=True)
    X = scale(X)
    settings = {**QUICK, "max_iter": 10}
    single = NeuralClassifier(lambda n, k: MLP(n, 8, k), **settings).fit(X, y)
    several = MultiTaskNetwork(lambda n, k: MLP(n, 8, k), **settings)
    several.fit(X, y[:, None])
    np.testing.assert_allclose(
        several.predict_proba(X)[0], single.predict_proba(X), rtol=1e-5
    )
    assert several.score(X, y[:, None]) == single.score(X, y)


def test_labels_numbers_and_gaps_stand_side_by_side(tmp_path):
    X, y = load_iris(return_X_y=True)
    names = load_iris().target_names[y].astype(object)
    names[::5] = None
    table = np.column_stack([names, X[:, 3], y]).astype(object)
    model = MultiTaskNetwork(
        lambda n, k: MLP(n, 16, k),
        tasks=["classes", "numbers", "classes"],
        **{**QUICK, "learning_rate": 0.05},
        max_iter=40,
        early_stopping=True,
    ).fit(scale(X[:, :3]), table)
    found = model.predict(scale(X[:, :3]))
    assert found.shape == (150, 3) and isinstance(found[0, 0], str)
    assert np.mean(found[:, 2] == y) > 0.85
    shares = model.predict_proba(scale(X[:, :3]))
    assert shares[0].shape == (150, 3) and shares[1] is None
    assert model.certificate_["training_loss"].value > 0
    again = certus.certify(model, scale(X[:, :3]), table)
    assert again["training_loss"].value == model.certificate_["training_loss"].value


@pytest.mark.parametrize(
    ("y", "options", "match"),
    [
        (np.zeros(20), {}, "one column for each task"),
        (np.full((20, 2), np.nan), {}, "has no values"),
        (np.zeros((20, 2)), {}, "one class"),
        (np.ones((20, 2)) * [1, np.inf], {"tasks": "numbers"}, "infinity"),
        (np.full((20, 1), "a"), {"tasks": "numbers"}, "must hold numbers"),
        (np.eye(20, 2), {"tasks": ["classes"]}, "names 1 tasks"),
        (np.eye(20, 2), {"tasks": "images"}, "tasks must be one of"),
        (np.eye(20, 2), {"task_weights": [1.0]}, "task_weights"),
        (np.eye(20, 2), {"task_weights": [0.0, 0.0]}, "task_weights"),
        (np.eye(20, 2), {"module": nn.Linear(3, 9)}, "heads side by side"),
    ],
)
def test_tables_that_do_not_fit_are_refused_with_a_message(y, options, match):
    given = {"module": lambda n, k: nn.Linear(n, k), **options}
    with pytest.raises(ValueError, match=match):
        MultiTaskNetwork(**given).fit(np.ones((20, 3)), y)


# -- questions --------------------------------------------------------------------


@pytest.mark.catalog("NN-56")
def test_querying_at_the_boundary_halves_the_interval():
    n = 4096
    pool = (np.arange(n) + 0.5) / n
    rng = np.random.default_rng(0)

    class Threshold:
        """Knows labelled points; in doubt between the nearest of each class."""

        def __init__(self, known, labels):
            self.low = max(known[labels == 0], default=0.0)
            self.high = min(known[labels == 1], default=1.0)

        def predict_proba(self, x):
            p = np.clip((x - self.low) / max(self.high - self.low, 1e-12), 0, 1)
            return np.column_stack([1 - p, p])

    def labels_needed(ask, threshold, gap):
        known, labels = np.array([]), np.array([])
        model = Threshold(known, labels)
        while model.high - model.low > gap:
            x = pool[ask(model)]
            known = np.append(known, x)
            labels = np.append(labels, float(x > threshold))
            model = Threshold(known, labels)
        return len(known)

    thresholds = rng.uniform(0.2, 0.8, size=20)
    needed = {}
    for gap in (1 / 16, 1 / 64, 1 / 256):
        asked = [
            labels_needed(lambda m: most_uncertain(m, pool)[0], t, gap)
            for t in thresholds
        ]
        drawn = [labels_needed(lambda m: rng.integers(n), t, gap) for t in thresholds]
        assert max(asked) <= np.log2(1 / gap) + 2
        needed[gap] = np.mean(drawn)
    # At random it takes as many labels as the gap is small.
    assert needed[1 / 64] > 2 * needed[1 / 16] > 4 * 8
    assert needed[1 / 256] > 2 * needed[1 / 64]


@pytest.mark.catalog("NN-56")
def test_active_learning_finds_a_threshold_with_fewer_labels():
    rng = np.random.default_rng(0)
    pool = rng.uniform(-1, 1, size=(400, 1))
    y = (pool[:, 0] > 0.37).astype(int)
    errors = {}
    for way in ("asked", "drawn"):
        chosen = [int(pool.argmin()), int(pool.argmax())]
        for _ in range(8):
            model = NeuralClassifier(
                nn.Linear(1, 2),
                learning_rate=0.3,
                max_iter=60,
                **PLAN,
            ).fit(pool[chosen], y[chosen])
            left = np.setdiff1d(np.arange(400), chosen)
            at = most_uncertain(model, pool[left])[0] if way == "asked" else None
            chosen.append(int(left[at] if way == "asked" else rng.choice(left)))
        errors[way] = 1 - model.score(pool, y)
    assert errors["asked"] < errors["drawn"] / 2


def test_doubts_agree_with_their_formulas():
    p = np.array([[0.5, 0.3, 0.2], [0.45, 0.45, 0.1], [0.4, 0.31, 0.29]])

    class Given:
        def predict_proba(self, X):
            return p

    for by, wanted in [("margin", 1), ("entropy", 2), ("least_confident", 2)]:
        assert most_uncertain(Given(), None, by=by)[0] == wanted
    assert list(most_uncertain(Given(), None, 3)) == [1, 2, 0]
    with pytest.raises(ValueError, match="by must be"):
        most_uncertain(Given(), None, by="chance")
    with pytest.raises(ValueError, match="n must be"):
        most_uncertain(Given(), None, 4)


# -- files ------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["taught", "few", "bag", "tasks", "noise"])
def test_models_come_back_from_a_file(kind, tmp_path):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(40, 3))
    y = (X[:, 0] > 0).astype(int)
    plan = {**PLAN, "max_iter": 2}
    net = NeuralClassifier(MLP(3, 4, 2), **plan)
    model, target = {
        "taught": (Distilled(net, teacher=certus.linear_model.LogisticRegression()), y),
        "few": (ConsistentClassifier(net), np.where(np.arange(40) < 20, y, -1)),
        "bag": (BaggedNetworks(net, n_estimators=2, random_state=0), y),
        "tasks": (MultiTaskNetwork(MLP(3, 4, 3), **plan), np.c_[y, X[:, 1]]),
        "noise": (NeuralClassifier(WeightNoise(MLP(3, 4, 2)), **plan), y),
    }[kind]
    model.fit(X, target).save(tmp_path / "model.certus")
    twin = certus.load(tmp_path / "model.certus")
    np.testing.assert_array_equal(twin.predict(X), model.predict(X))
    if kind != "bag":
        again = certus.certify(twin, X, target)
        stated = model.certificate_["training_loss"].value
        assert again["training_loss"].value == pytest.approx(stated, rel=1e-9)
