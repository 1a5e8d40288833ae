"""Your own module trained: against closed forms, repetitions and plain torch."""

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression
from torch import nn
from torch.nn import functional as F

import certus
from certus.neural_network import NeuralClassifier, NeuralRegressor
from certus.neural_network.batches import (
    RaggedInputs,
    SparseInputs,
    as_tensor,
    epoch_batches,
    share_out,
)
from certus.neural_network.objective import binary_cross_entropy, cross_entropy, squared
from certus.neural_network.wrapping import evaluating, outputs
from certus.testing.toys import TinyNetwork

RNG = np.random.default_rng(0)
X = RNG.normal(size=(80, 3))


@pytest.fixture(autouse=True)
def _quiet():
    with certus.config_context(on_uncertified="ignore"):
        yield


def line(outputs=1):
    return nn.Linear(3, outputs).double()


def full_batch(kind, module, **options):
    options = {"batch_size": None, "max_iter": 400, "random_state": 0, **options}
    options = {"learning_rate": 0.05, "n_iter_no_change": 10**6, "tol": 0.0, **options}
    return kind(module, **options)


def solved(kind, module, **options):
    """Full batches and a rate that falls: as good as solved."""
    return full_batch(kind, module, schedule="cosine", max_iter=1500, **options)


# -- known optima ---------------------------------------------------------------------


def test_a_linear_module_finds_least_squares():
    y = X @ [1.0, -2.0, 0.5] + 0.3 + RNG.normal(size=80)
    model = solved(NeuralRegressor, line()).fit(X, y)
    A = np.c_[X, np.ones(80)]
    best = A @ np.linalg.lstsq(A, y)[0]
    np.testing.assert_allclose(model.predict(X), best, atol=1e-5)
    assert model.loss_ == pytest.approx(0.5 * np.mean((y - best) ** 2), rel=1e-8)


def test_weighted_least_squares_of_several_outputs():
    Y = X @ RNG.normal(size=(3, 2)) + RNG.normal(size=(80, 2))
    s = RNG.uniform(0.1, 3.0, 80)
    model = solved(NeuralRegressor, line(2)).fit(X, Y, sample_weight=s)
    A, r = np.c_[X, np.ones(80)], np.sqrt(s)[:, None]
    best = A @ np.linalg.lstsq(A * r, Y * r)[0]
    np.testing.assert_allclose(model.predict(X), best, atol=1e-5)


@pytest.mark.parametrize("scores", [1, 2])
def test_a_linear_module_is_logistic_regression(scores):
    y = np.where(X[:, 0] + RNG.logistic(size=80) > 0, "yes", "no")
    model = solved(NeuralClassifier, line(scores)).fit(X, y)
    reference = LogisticRegression(C=np.inf, tol=1e-10, max_iter=1000).fit(X, y)
    assert list(model.classes_) == ["no", "yes"]
    expected = reference.predict_proba(X)
    np.testing.assert_allclose(model.predict_proba(X), expected, atol=1e-4)
    np.testing.assert_array_equal(model.predict(X), reference.predict(X))


def test_class_weight_multiplies_weights():
    y = (X[:, 0] + RNG.logistic(size=80) > 0.5).astype(int)
    weighted = full_batch(NeuralClassifier, line(2), class_weight={0: 2.0, 1: 5.0})
    by_rows = full_batch(NeuralClassifier, weighted.module)
    s = np.linspace(1, 2, 80)
    a = weighted.fit(X, y, sample_weight=s).predict_proba(X)
    b = by_rows.fit(X, y, sample_weight=s * np.where(y == 0, 2.0, 5.0)).predict_proba(X)
    np.testing.assert_allclose(a, b, rtol=1e-10)
    balanced = full_batch(NeuralClassifier, weighted.module, class_weight="balanced")
    p = balanced.fit(X, y).predict_proba(X)[:, 1]
    # The score's condition at the optimum: each class weighs one half.
    assert np.mean(p[y == 0]) == pytest.approx(1 - np.mean(p[y == 1]), abs=1e-2)


def test_soft_targets_are_repetitions_of_hard_ones():
    hard = np.repeat([[0, 1, 2]], 80, axis=0)
    t = RNG.dirichlet([1, 1, 1], size=80)
    soft = full_batch(NeuralClassifier, line(3)).fit(X, t)
    model = full_batch(NeuralClassifier, soft.module)
    model.fit(np.repeat(X, 3, axis=0), hard.ravel(), sample_weight=t.ravel())
    np.testing.assert_allclose(soft.predict_proba(X), model.predict_proba(X), rtol=1e-9)
    assert soft.score(X, t) == np.mean(soft.predict(X) == t.argmax(axis=1))


def test_several_labels_are_so_many_logistic_regressions():
    Y = (X + RNG.logistic(size=(80, 3)) > 0).astype(int)
    model = solved(NeuralClassifier, line(3)).fit(X, Y)
    one = [
        LogisticRegression(C=np.inf, tol=1e-10, max_iter=1000)
        .fit(X, Y[:, k])
        .predict_proba(X)[:, 1]
        for k in range(3)
    ]
    np.testing.assert_allclose(model.predict_proba(X), np.transpose(one), atol=1e-4)
    assert model.predict(X).shape == (80, 3)
    assert model.score(X, Y) == np.mean((model.predict(X) == Y).all(axis=1))


def test_a_custom_loss_is_minimised():
    y = RNG.exponential(size=80)

    def pinball(z, t):
        return torch.maximum(0.8 * (t - z), -0.2 * (t - z))

    constant = nn.Linear(1, 1).double()
    model = solved(NeuralRegressor, constant, loss=pinball)
    model.fit(np.zeros((80, 1)), y)
    found = model.predict([[0.0]])[0]
    assert np.sort(y)[63] - 1e-3 <= found <= np.sort(y)[64] + 1e-3
    absolute = solved(NeuralRegressor, constant, loss=nn.L1Loss(reduction="none"))
    found = absolute.fit(np.zeros((80, 1)), y).predict([[0.0]])[0]
    assert np.sort(y)[39] - 1e-3 <= found <= np.sort(y)[40] + 1e-3


# -- losses against their formulas ----------------------------------------------------


def test_losses_by_their_formulas():
    z, y = torch.randn(5, 3).double(), torch.tensor([0, 1, 2, 0, 1])
    p = torch.softmax(z, dim=1)
    plain = -torch.log(p[torch.arange(5), y])
    torch.testing.assert_close(cross_entropy(z, y), plain)
    t = 0.9 * F.one_hot(y, 3) + 0.1 / 3
    smooth = -(t * torch.log(p)).sum(dim=1)
    torch.testing.assert_close(cross_entropy(z, y, 0.1), smooth)
    torch.testing.assert_close(cross_entropy(z, t), smooth)
    labels = torch.tensor([[0, 1, 1]] * 5)
    q = torch.where(labels == 1, torch.sigmoid(z), torch.sigmoid(-z))
    torch.testing.assert_close(binary_cross_entropy(z, labels), -q.log().sum(dim=1))
    b = torch.randn(5, 3).double()
    torch.testing.assert_close(squared(z, b), 0.5 * (z - b).square().mean(dim=1))


# -- going on -------------------------------------------------------------------------


def test_partial_fits_are_the_epochs_of_a_fit():
    y = (X[:, 0] > 0).astype(int)
    net = TinyNetwork()(3, 2)
    options = {"batch_size": 16, "random_state": 0}
    whole = NeuralClassifier(net, max_iter=4, **options).fit(X, y)
    parts = NeuralClassifier(net, **options)
    for _ in range(4):
        parts.partial_fit(X, y, classes=[0, 1])
    np.testing.assert_array_equal(parts.predict_proba(X), whole.predict_proba(X))
    assert parts.n_iter_ == 4 and parts.history_["loss"] == whole.history_["loss"]
    # After a fit, too: the optimiser goes on where it was.
    more = NeuralClassifier(net, max_iter=3, **options).fit(X, y).partial_fit(X, y)
    np.testing.assert_array_equal(more.predict_proba(X), whole.predict_proba(X))


def test_a_partial_fit_takes_what_certify_can_check():
    y = X @ [1.0, 0.0, -1.0]
    model = NeuralRegressor(TinyNetwork(), random_state=0).partial_fit(X, y)
    assert not hasattr(model, "certificate_")
    found = certus.certify(model, X, y)
    z = model.predict(X)
    assert found.value == pytest.approx(0.5 * np.mean((z - y) ** 2), rel=1e-12)


def test_partial_fit_knows_its_classes():
    y = np.array(["a", "b"] * 40)
    model = NeuralClassifier(TinyNetwork(), random_state=0)
    with pytest.raises(ValueError, match="classes must be passed"):
        model.partial_fit(X, y)
    model.partial_fit(X, y, classes=["c", "a", "b"])
    assert model.predict_proba(X).shape == (80, 3)
    with pytest.raises(ValueError, match="same as in the first call"):
        model.partial_fit(X, y, classes=["a", "b"])
    with pytest.raises(ValueError, match="not fitted on"):
        model.partial_fit(X, np.full(80, "d"))
    with pytest.raises(ValueError, match="cannot stop early"):
        model.set_params(early_stopping=True).partial_fit(X, y)


def test_a_warm_start_begins_at_the_last_weights():
    y = X @ [1.0, 0.0, -1.0]
    model = full_batch(NeuralRegressor, TinyNetwork(), max_iter=50, warm_start=True)
    begun = model.fit(X, y).history_["loss"]
    assert model.fit(X, y).history_["loss"][0] < 0.1 * begun[0]
    cold = full_batch(NeuralRegressor, TinyNetwork(), max_iter=50)
    assert cold.fit(X, y).loss_ == begun[-1] == cold.fit(X, y).loss_
    with pytest.raises(ValueError, match="expecting 3 features"):
        model.fit(X[:, :2], y)


def test_weights_go_in_and_out_as_a_state_dict():
    y = (X[:, 0] > 0).astype(int)
    a = NeuralClassifier(TinyNetwork(), max_iter=5, random_state=0).fit(X, y)
    b = NeuralClassifier(TinyNetwork(), max_iter=1, random_state=1).fit(X, y)
    b.module_.load_state_dict(a.module_.state_dict())
    np.testing.assert_array_equal(a.predict_proba(X), b.predict_proba(X))
    plain = a.module_(torch.as_tensor(X)).softmax(dim=1).detach().numpy()
    np.testing.assert_array_equal(a.predict_proba(X), plain)


def test_the_users_module_is_copied():
    y = (X[:, 0] > 0).astype(int)
    net = TinyNetwork()(3, 2)
    before = {name: value.clone() for name, value in net.state_dict().items()}
    NeuralClassifier(net, max_iter=3).fit(X, y)
    assert all(torch.equal(before[k], v) for k, v in net.state_dict().items())
    assert net.training


# -- early stopping -------------------------------------------------------------------


@pytest.mark.catalog("NN-41")
def test_early_stopping_keeps_the_best_epoch():
    y = (X[:, 0] + RNG.normal(size=80) > 0).astype(int)
    model = NeuralClassifier(
        TinyNetwork(), learning_rate=0.05, max_iter=100, random_state=0
    )
    model.fit(X[:40], y[:40], X_val=X[40:], y_val=y[40:])
    scores = model.history_["validation_score"]
    assert model.best_epoch_ == int(np.argmax(scores)) + 1
    assert model.score(X[40:], y[40:]) == max(scores)
    assert model.n_iter_ < 100
    claim = model.certificate_["validation_score"]
    assert claim.value == max(scores)
    assert f"epoch {model.best_epoch_} of {model.n_iter_}" in claim.detail


def test_rows_are_shared_out_in_proportion():
    groups = np.repeat([0, 1, 2], [60, 30, 10])
    rest, held = share_out(100, 0.2, groups, np.random.default_rng(0))
    assert sorted([*rest.tolist(), *held.tolist()]) == list(range(100))
    assert np.bincount(groups[held.numpy()]).tolist() == [12, 6, 2]
    alone = np.r_[np.zeros(19, int), 1]
    rest, held = share_out(20, 0.1, alone, np.random.default_rng(0))
    assert 19 in rest.tolist()  # the only one of its class is trained on


# -- batches --------------------------------------------------------------------------


def test_batches_hold_each_row_once():
    for n, size, least in [(10, 3, 1), (10, 3, 2), (7, 7, 2), (1, 5, 1)]:
        parts = epoch_batches(np.random.default_rng(0), n, size, least)
        assert sorted(torch.cat(parts).tolist()) == list(range(n))
        assert min(map(len, parts)) >= min(least, n)


def test_ragged_and_sparse_rows():
    from scipy import sparse

    rows = RaggedInputs([[1.0, 2.0], [3.0]], torch.float32, "cpu")
    padded, lengths = rows[torch.tensor([1, 0])]
    assert padded.tolist() == [[3.0, 0.0], [1.0, 2.0]] and lengths.tolist() == [1, 2]
    S = sparse.random(6, 4, 0.5, format="csr", random_state=0)
    (dense,) = SparseInputs(S, torch.float64, "cpu")[torch.tensor([4, 1])]
    np.testing.assert_array_equal(dense.numpy(), S.toarray()[[4, 1]])


def test_memory_that_may_not_be_written_to_is_copied():
    A = np.ones((3, 2))
    A.flags.writeable = False
    as_tensor(A, torch.float64)[0, 0] = 5.0
    assert A[0, 0] == 1.0


# -- prediction -----------------------------------------------------------------------


def test_prediction_leaves_the_mode_of_every_part():
    net = nn.Sequential(nn.Linear(3, 4), nn.Dropout(0.5), nn.BatchNorm1d(4))
    net[2].eval()
    with evaluating(net):
        assert not any(part.training for part in net.modules())
    assert [part.training for part in net] == [True, True, False]


def test_prediction_in_blocks_is_prediction_at_once_and_spares_x():
    class Bold(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(3, 2)

        def forward(self, x):
            x *= 2.0  # in place: the user's own array must not see it
            return self.layer(x)

    many = RNG.normal(size=(3000, 3)).astype(np.float32)
    before = many.copy()
    model = NeuralClassifier(Bold(), max_iter=1, random_state=0)
    model.fit(many, (many[:, 0] > 0).astype(int))
    found = model.predict_proba(many)
    np.testing.assert_array_equal(many, before)
    layer = model.module_.layer
    plain = layer(2.0 * torch.as_tensor(before)).softmax(dim=1).detach().numpy()
    np.testing.assert_allclose(found, plain, rtol=1e-5)


def test_outputs_draw_nothing_from_the_users_generator():
    class Noisy(nn.Module):
        def forward(self, x):
            return x + torch.randn_like(x)

    from certus.neural_network.batches import DenseInputs

    before = torch.random.get_rng_state()
    outputs(Noisy(), DenseInputs(X, torch.float64, "cpu"))
    assert torch.equal(before, torch.random.get_rng_state())
