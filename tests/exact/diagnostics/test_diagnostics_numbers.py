"""Every number on the certificate of every network, against losses written out here.

The references use the trained module and the data alone: the loss in plain torch, its
gradient and its dense Hessian by differentiating that.
"""

import numpy as np
import pytest
import torch
from scipy.special import xlogy
from torch.func import functional_call
from torch.nn import functional as F
from torch.nn.utils.rnn import pad_sequence

import certus
from certus.diagnostics.spectrum import STEPS
from helpers.networks import CASES

pytestmark = pytest.mark.filterwarnings("ignore::certus.base.UncertifiedWarning")
S = np.linspace(0.5, 2.0, 30)


def doubles(values):
    return torch.as_tensor(np.asarray(values, dtype=np.float64))


def mean(rows, s):
    return (doubles(s) * rows).sum() / float(np.sum(s))


def codes(model, y):
    return torch.as_tensor(np.searchsorted(model.classes_, y))


def padded(sequences):
    lengths = torch.tensor([len(x) for x in sequences])
    return pad_sequence([torch.as_tensor(x) for x in sequences], True), lengths


def entropy(call, model, X, y, s):
    log = F.log_softmax(call(doubles(X)), 1)
    share = getattr(model, "label_smoothing", 0.0)
    right = log[torch.arange(len(y)), codes(model, y)]
    return mean(-(1 - share) * right - share * log.mean(dim=1), s)


def squares(call, model, X, y, s):
    return mean(0.5 * (call(doubles(X))[:, 0] - doubles(y)) ** 2, s)


def penalised(loss):
    """½·alpha·n/(batch·Σs)·‖W‖²: scikit-learn's penalty, spread over the batches."""

    def value(call, model, X, y, s):
        weights = [p for name, p in call.parameters() if name.endswith("weight")]
        factor = model.alpha * len(X) / (model.batch_size * np.sum(s))
        return loss(call, model, X, y, s) + 0.5 * factor * sum(
            (w * w).sum() for w in weights
        )

    return value


def pictures(call, model, X, y, s):
    scaled = (doubles(X) - doubles(model.mean_)) / doubles(model.scale_)
    return entropy(call, model, scaled[:, None], y, s)


def patches(call, model, X, y, s):
    """As pictures, of pixels in the precision in which the network was trained."""
    scaled = (doubles(X) - doubles(model.mean_)) / doubles(model.scale_)
    return entropy(call, model, scaled.float().double()[:, None], y, s)


def sequences(call, model, X, y, s):
    return entropy(lambda _: call(*padded(X)), model, np.zeros(1), y, s)


def levels(call, model, X, y, s):
    return squares(lambda _: call(*padded(X)), model, np.zeros(1), y, s)


def numbered(words, tokens, first):
    return [[tokens.index(w) + first for w in row] for row in words]


def tags(call, model, X, y, s):
    z = call(*padded(numbered(X, list(model.tokens_), 1)))
    total = weight = 0.0
    for row, labels, w in zip(z, y, s):
        log = F.log_softmax(row, 1)
        for t, label in enumerate(labels):
            total = total - w * log[t, list(model.classes_).index(label)]
            weight += w
    return total / weight


def written(call, model, X, y, s):
    X = numbered(X, list(model.source_tokens_), 2)
    wanted = [[*row, 0] for row in numbered(y, list(model.target_tokens_), 1)]
    target = pad_sequence([torch.tensor(row) for row in wanted], True, -1)
    log = F.log_softmax(call(*padded(X), target), 2)
    rows = [
        -sum(log[i, t, k] for t, k in enumerate(row)) / len(row)
        for i, row in enumerate(wanted)
    ]
    return mean(torch.stack(rows), s)


def documents(call, model, X, y, s):
    words = numbered([text.split() for text in X], list(model.vocabulary_), 1)
    return entropy(lambda _: call(*padded(words)), model, np.zeros(1), y, s)


def both_tasks(call, model, X, y, s):
    z, known = call(doubles(X)), ~np.isnan(y[:, 0])
    log = F.log_softmax(z[:, :3], 1)
    first = -log[
        torch.arange(len(y)), torch.as_tensor(np.nan_to_num(y[:, 0]).astype(int))
    ]
    second = 0.5 * (z[:, 3] - doubles(y[:, 1])) ** 2
    return mean(torch.where(torch.as_tensor(known), first, 0) + second, s)


def agreeing(call, model, X, y, s):
    X, known = doubles(X), y != -1
    draw = torch.Generator().manual_seed(0)
    e = torch.randn(X.shape, generator=draw, dtype=torch.float64)
    p, moved = (torch.softmax(call(x), 1) for x in (X, X + model.noise * e))
    labelled = entropy(call, model, X[known], y[known], s[known])
    return labelled + mean(model.alpha * ((p - moved) ** 2).sum(1), s)


def taught(call, model, X, y, s):
    T, mix, z = model.temperature, model.mix, call(doubles(X))
    p = model.teacher_.predict_proba(X) ** (1 / T)
    p = doubles(p / p.sum(1, keepdims=True))
    soft = -(p * F.log_softmax(z / T, 1)).sum(1)
    return mix * T**2 * mean(soft, s) + (1 - mix) * entropy(call, model, X, y, s)


LOSSES = {
    "classifier": entropy,
    "regressor": squares,
    "explicit_classifier": penalised(entropy),
    "explicit_regressor": penalised(squares),
    "torch_classifier": entropy,
    "torch_regressor": squares,
    "images": pictures,
    "patches": patches,
    "recurrent_classifier": sequences,
    "recurrent_regressor": levels,
    "tagger": tags,
    "translator": written,
    "transforming_translator": written,
    "texts": documents,
    "tasks": both_tasks,
    "consistent": agreeing,
    "distilled": taught,
}


class Called:
    """The trained module as a function of one float64 vector."""

    def __init__(self, module):
        self.module = module.double().eval()
        self.named = dict(module.named_parameters())
        self.point = torch.cat([p.detach().reshape(-1) for p in self.named.values()])
        self.theta = self.point

    def parameters(self):
        sizes = [p.numel() for p in self.named.values()]
        parts = zip(self.named.items(), self.theta.split(sizes))
        return [(name, part.reshape(p.shape)) for (name, p), part in parts]

    def __call__(self, *inputs):
        return functional_call(self.module, dict(self.parameters()), inputs)

    def at(self, loss, *rest):
        def value(theta):
            self.theta = theta
            return loss(self, *rest)

        return value


def gradient(value, theta):
    theta = theta.clone().requires_grad_()
    (g,) = torch.autograd.grad(value(theta), theta, create_graph=True)
    return g, theta


def hessian(value, theta):
    g, theta = gradient(value, theta)
    rows = [torch.autograd.grad(part, theta, retain_graph=True)[0] for part in g]
    return torch.stack(rows).numpy()


def test_every_network_has_a_reference():
    assert set(LOSSES) == set(CASES)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("name", sorted(LOSSES))
def test_every_number_is_what_it_is_called(name, weighted):
    model, X, y = CASES[name]()
    s = S if weighted else np.ones(30)
    model.fit(X, y, **({"sample_weight": s} if weighted else {}))
    # A translator's Hessian takes long, and torch has none of its fused attention.
    level = "quick" if "translator" in name or name == "patches" else "full"
    found = certus.certify(model, X, y, s if weighted else None, level=level)
    call = Called(model.module_)
    value = call.at(LOSSES[name], model, X, y, s)
    with torch.no_grad():
        assert found.value == pytest.approx(float(value(call.point)), rel=1e-10)
    g = gradient(value, call.point)[0].detach().numpy()
    assert found["gradient_norm"].value == pytest.approx(np.linalg.norm(g), rel=1e-9)
    assert found["gradient_ratio"].value < 1e-5
    if level == "quick":
        return
    H = hessian(value, call.point)
    ends = np.linalg.eigvalsh(H)[[0, -1]]
    low, high = (found[f"{end}_curvature"].value for end in ("smallest", "largest"))
    close = 1e-9 if len(g) <= STEPS else 2e-2
    scale = np.abs(ends).max()
    np.testing.assert_allclose([low, high], ends, atol=close * scale)
    assert ends[0] - 1e-9 * scale <= low <= high <= ends[1] + 1e-9 * scale
    assert "does not confirm" not in found["smallest_curvature"].detail


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("classifier", {"label_smoothing": 0.3}),
        ("classifier", {"class_weight": {0: 2.0, 1: 0.5, 2: 1.0}}),
        ("classifier", {"weight_decay": 0.5, "average": 0.9}),
        ("torch_classifier", {"class_weight": "balanced"}),
        ("explicit_classifier", {"class_weight": {0: 3.0, 1: 1.0, 2: 1.0}}),
        ("tagger", {"label_smoothing": 0.2, "class_weight": {"v": 4.0, "k": 1.0}}),
        ("texts", {"label_smoothing": 0.1}),
    ],
)
def test_options_that_change_the_loss(name, options):
    """Against probabilities: (1 − ε)·log pᵧ + ε·mean of log p, weighted by class."""
    model, X, y = CASES[name](**options)
    model.fit(X, y)
    found = certus.certify(model, X, y)
    p, labels = model.predict_proba(X), y
    if name == "tagger":
        p, labels = np.concatenate(p), np.concatenate(y)
    place = np.searchsorted(model.classes_, labels)
    rule = getattr(model, "class_weight", None)
    rule = dict.fromkeys(model.classes_, 1.0) if rule in (None, "balanced") else rule
    s = np.array([rule[label] for label in labels])
    share = options.get("label_smoothing", 0.0)
    log = np.log(p.astype(np.float64))
    rows = -(1 - share) * log[np.arange(len(place)), place] - share * log.mean(axis=1)
    penalty = 0.0
    if name == "explicit_classifier":
        factor = model.alpha * 30 / (8 * s.sum())
        penalty = 0.5 * factor * sum((W**2).sum() for W in model.coefs_)
    assert ("‖W‖²" in found["training_loss"].objective) == (penalty > 0)
    expected = s @ rows / s.sum() + penalty
    assert found.value == pytest.approx(expected, rel=2e-6)


def test_poisson_deviance():
    model, X, _ = CASES["explicit_regressor"](loss="poisson")
    y = np.arange(30) % 4
    found = model.fit(X, y).certificate_
    mu = model.predict(X)
    rows = mu - y * np.log(mu) + xlogy(y, y) - y
    factor = model.alpha * 30 / (8 * 30)
    penalty = 0.5 * factor * sum((W**2).sum() for W in model.coefs_)
    assert found.value == pytest.approx(rows.mean() + penalty, rel=1e-9)
