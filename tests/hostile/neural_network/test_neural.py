"""Hostile input for networks: the right answer, or a sentence that helps."""

import warnings
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from sklearn.exceptions import NotFittedError
from torch import nn

import certus
from certus.base import UncertifiedWarning
from certus.certificate import Status, Strength
from certus.neural_network import MultiTaskNetwork, NeuralClassifier, NeuralRegressor
from certus.neural_network.modules import MLP
from certus.persist import ModelFileError, decode, encode
from certus.testing.toys import TinyNetwork

RNG = np.random.default_rng(0)
X = RNG.normal(size=(30, 4))
CLASSES = np.arange(30) % 3
NUMBERS = X @ [1.0, -1.0, 0.5, 0.0]


@pytest.fixture(autouse=True)
def _quiet():
    with certus.config_context(on_uncertified="ignore"):
        yield


def classifier(module=None, **options):
    module = TinyNetwork() if module is None else module
    return NeuralClassifier(module, **{"max_iter": 3, "random_state": 0, **options})


def regressor(module=None, **options):
    module = TinyNetwork() if module is None else module
    return NeuralRegressor(module, **{"max_iter": 3, "random_state": 0, **options})


def message(error, call):
    """What is said, in at most two sentences."""
    with pytest.raises(error) as caught:
        call()
    text = str(caught.value)
    assert len(text) < 400, text
    return text


# -- data -----------------------------------------------------------------------------


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_holes_in_x_and_y(bad):
    hole = X.copy()
    hole[3, 1] = bad
    model = classifier(nn.Sequential(nn.Flatten(), nn.Linear(4, 3)))
    assert "contains" in message(ValueError, lambda: model.fit(hole, CLASSES))
    deep = hole[:, :, None]
    assert "contains" in message(ValueError, lambda: model.fit(deep, CLASSES))
    fitted = classifier().fit(X, CLASSES)
    assert "contains" in message(ValueError, lambda: fitted.predict(hole))
    y = NUMBERS.copy()
    y[0] = bad
    assert "Input y contains" in message(ValueError, lambda: regressor().fit(X, y))


def test_no_rows_one_row_one_class():
    assert "0 sample" in message(
        ValueError, lambda: regressor().fit(np.empty((0, 4)), [])
    )
    assert regressor().fit(X[:1], NUMBERS[:1]).predict(X[:1]).shape == (1,)
    assert "2 classes" in message(
        ValueError, lambda: classifier().fit(X, np.zeros(30, int))
    )
    stopped = regressor(early_stopping=True)
    assert "at least 2 rows" in message(
        ValueError, lambda: stopped.fit(X[:1], NUMBERS[:1])
    )


def test_lengths_that_differ():
    text = message(ValueError, lambda: classifier().fit(X, CLASSES[:-1]))
    assert "inconsistent" in text and "30" in text and "29" in text
    text = message(
        ValueError,
        lambda: classifier().fit(X, CLASSES, X_val=X, y_val=CLASSES[:-1]),
    )
    assert "X_val and y_val" in text
    assert "both" in message(ValueError, lambda: classifier().fit(X, CLASSES, X_val=X))


def test_a_label_in_y_val_that_the_fit_did_not_see():
    text = message(
        ValueError, lambda: classifier().fit(X, CLASSES, X_val=X, y_val=CLASSES + 1)
    )
    assert '"3"' in text and "not fitted on" in text


def test_constant_target_and_columns():
    model = regressor(max_iter=500, learning_rate=0.03, n_iter_no_change=500)
    model.fit(X, np.full(30, 7.0))
    np.testing.assert_allclose(model.predict(X), 7.0, atol=0.5)
    stopped = regressor(early_stopping=True, max_iter=50).fit(X, np.full(30, 7.0))
    assert stopped.best_epoch_ > 1  # R² says nothing there, the loss does
    flat = np.ones((30, 4))
    assert np.isfinite(classifier().fit(flat, CLASSES).predict_proba(flat)).all()


def test_ten_classes_of_one_row_each():
    y = np.arange(10)
    model = classifier(max_iter=300, learning_rate=0.02).fit(X[:10], y)
    assert model.score(X[:10], y) == 1.0
    early = classifier(early_stopping=True).fit(X[:10], y)
    assert len(early.classes_) == 10 and early.predict(X[:10]).shape == (10,)


def test_scales_beyond_the_dtype_of_the_module():
    single = nn.Linear(4, 3)
    text = message(ValueError, lambda: classifier(single).fit(X * 1e300, CLASSES))
    assert "float32" in text and "StandardScaler" in text
    huge = classifier().fit(X * 1e150, CLASSES)  # float64 has room
    assert np.isfinite(huge.predict_proba(X * 1e150)).all()
    tiny = classifier(single).fit(X * 1e-300, CLASSES)
    assert np.isfinite(tiny.predict_proba(X)).all()


@pytest.mark.parametrize("weight", [np.zeros(30), -np.ones(30), np.full(30, np.nan)])
def test_invalid_weights_are_refused(weight):
    assert "sample_weight" in message(
        ValueError, lambda: classifier().fit(X, CLASSES, sample_weight=weight)
    )


def test_class_weights_that_do_not_fit():
    text = message(
        ValueError,
        lambda: classifier(class_weight=dict.fromkeys(range(3), 0)).fit(X, CLASSES),
    )
    assert "no row" in text
    labels = (X[:, :2] > 0).astype(int)
    assert "sample_weight" in message(
        ValueError, lambda: classifier(class_weight="balanced").fit(X, labels)
    )


def test_tables_of_targets_that_are_neither_labels_nor_shares():
    assert "zeros and ones" in message(
        ValueError, lambda: classifier().fit(X, np.c_[CLASSES, CLASSES])
    )
    model = classifier().fit(X, CLASSES)
    labels = (X[:, :2] > 0).astype(int)
    assert "columns" in message(ValueError, lambda: certus.certify(model, X, labels))
    several = regressor().fit(X, np.c_[NUMBERS, NUMBERS])
    assert "columns" in message(ValueError, lambda: certus.certify(several, X, NUMBERS))
    assert "regressor" in message(ValueError, lambda: regressor().fit(X, ["a"] * 30))


# -- modules --------------------------------------------------------------------------


class Twice(nn.Module):
    """Gives what it is told to give."""

    def __init__(self, give):
        super().__init__()
        self.layer, self.give = nn.Linear(4, 3), give

    def forward(self, x):
        return self.give(self.layer(x))


@pytest.mark.parametrize(
    ("module", "words"),
    [
        (nn.Linear(4, 5), r"\(2, 3\).*\(2, 5\)"),
        (nn.Linear(7, 3), r"fails on inputs of shape \(2, 4\)"),
        (Twice(lambda z: z.mean()), "one output for each row"),
        (Twice(lambda z: z.sum(0)), r"one output for each row|\(2, 3\)"),
        (Twice(lambda z: (z, z)), "a tensor, not a tuple"),
        (nn.Softmax(dim=1), r"\(2, 3\)"),
        (nn.Flatten(), r"\(2, 3\)"),
    ],
)
def test_outputs_that_do_not_fit(module, words):
    with pytest.raises(ValueError, match=words):
        classifier(module).fit(X, CLASSES)


def test_modules_without_weights_and_objects_that_are_not_modules():
    assert "no parameters" in message(
        ValueError, lambda: classifier(nn.Identity()).fit(X[:, :3], CLASSES)
    )
    frozen = nn.Linear(4, 3).requires_grad_(False)
    assert "requires_grad" in message(
        ValueError, lambda: classifier(frozen).fit(X, CLASSES)
    )
    assert "nn.Module" in message(TypeError, lambda: classifier(3).fit(X, CLASSES))
    assert "NoneType" in message(
        TypeError, lambda: classifier(lambda a, b: None).fit(X, CLASSES)
    )


@pytest.mark.parametrize(
    "loss", ["huber", lambda z, y: (z - y).square().mean(), lambda z, y: 3.0]
)
def test_unknown_losses_are_refused(loss):
    with pytest.raises(ValueError, match="loss"):
        regressor(loss=loss).fit(X, NUMBERS)


@pytest.mark.parametrize(
    "options",
    [
        {"learning_rate": -1.0},
        {"learning_rate": "fast"},
        {"max_iter": 0},
        {"batch_size": 0},
        {"validation_fraction": 0.0},
        {"clip": 0.0},
        {"optimizer": "none"},
        {"schedule": "sometimes"},
        {"n_iter_no_change": 0},
        {"tol": -1.0},
        {"max_time": 0.0},
        {"device": "nowhere"},
    ],
)
def test_parameters_are_named(options):
    (name,) = options
    model = classifier(**options)
    assert name in message((ValueError, TypeError), lambda: model.fit(X, CLASSES))


def test_batch_norm_and_batches_of_one():
    net = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Linear(8, 3))
    text = message(ValueError, lambda: classifier(net, batch_size=1).fit(X, CLASSES))
    assert "at least 2 rows" in text and "layer normalisation" in text
    for size in (29, 7, 2):  # the last batch has one row, or is short
        model = classifier(net, batch_size=size).fit(X, CLASSES)
        assert np.isfinite(model.predict_proba(X[:1])).all()
    plain = classifier(batch_size=1).fit(X, CLASSES)
    assert np.isfinite(plain.loss_)


def test_words_beyond_the_table():
    net = nn.Sequential(nn.EmbeddingBag(5, 4), nn.Linear(4, 3))
    words = RNG.integers(0, 5, (30, 6))
    assert classifier(net).fit(words, CLASSES).predict(words).shape == (30,)
    for bad in (words + 1, words - 1, words + 0.5):
        text = message(ValueError, lambda bad=bad: classifier(net).fit(bad, CLASSES))
        assert "0 to 4" in text


def test_a_module_that_knows_float32_only_is_refused_a_check_not_a_fit():
    class Single(nn.Module):
        def __init__(self):
            super().__init__()
            self.w = nn.Parameter(torch.zeros(4, 3))

        def forward(self, x):
            return x.float() @ self.w

    model = classifier(Single()).fit(X, CLASSES)
    claim = model.certificate_["training_loss"]
    assert claim.strength is Strength.MEASURED and claim.value is None
    assert "not measured" in claim.detail and "float64" in claim.detail
    assert model.predict(X).shape == (30,)


# -- training that comes apart --------------------------------------------------------


def test_divergence_names_step_loss_and_cause_and_keeps_the_weights():
    model = regressor(optimizer="sgd", learning_rate=1e99, max_iter=20, batch_size=5)
    with (
        certus.config_context(on_uncertified="warn"),
        pytest.warns(UncertifiedWarning, match=r"epoch 1, step \d+.*learning_rate"),
    ):
        model.fit(X, NUMBERS)
    found = model.certificate_
    assert found.status is Status.DIVERGED
    assert "clip" in found["training_loss"].fix
    assert np.isfinite(model.predict(X)).all()


def test_divergence_by_the_scale_of_x_says_so():
    line = nn.Linear(4, 1)
    model = regressor(line, optimizer="sgd", learning_rate=0.1, max_iter=20)
    fix = model.fit(X * 1e4, NUMBERS * 1e4).certificate_["training_loss"].fix
    assert "standardise X" in fix


def test_divergence_later_keeps_the_last_good_epoch():
    calls = [0]

    def loss(z, y):
        calls[0] += z.requires_grad
        rows = (z - y).square()
        return rows * np.nan if calls[0] > 40 else rows

    model = regressor(loss=loss, max_iter=100, batch_size=10).fit(X, NUMBERS)
    assert model.certificate_.status is Status.DIVERGED
    assert model.n_iter_ == 13 and len(model.history_["loss"]) == 13


@pytest.mark.parametrize("early_stopping", [False, True])
def test_weights_that_exploded_before_they_were_infinite_are_not_kept(early_stopping):
    model = regressor(
        nn.Linear(4, 1),
        optimizer="sgd",
        learning_rate=1e3,
        max_iter=200,
        batch_size=None,
        early_stopping=early_stopping,
    ).fit(X, NUMBERS)
    assert model.certificate_.status is Status.DIVERGED
    assert model.history_["loss"][-1] > 1e4 * model.history_["loss"][0]
    loss = model.certificate_["training_loss"]
    assert "those before training" in loss.detail
    assert loss.value <= 2 * model.history_["loss"][0]  # of all rows, not the trained
    certus.certify(model, X, NUMBERS)


def test_a_partial_fit_that_diverges_warns_and_keeps_the_weights():
    model = regressor().fit(X, NUMBERS)
    before = model.predict(X)
    model.set_params(optimizer="sgd", learning_rate=1e300)
    with (
        certus.config_context(on_uncertified="warn"),
        pytest.warns(UncertifiedWarning, match="before this call"),
    ):
        model.set_params(batch_size=5).partial_fit(X, NUMBERS)
    np.testing.assert_array_equal(model.predict(X), before)


@pytest.mark.parametrize("rate", [1e-30, 1e30])
def test_extreme_learning_rates_end_in_a_state(rate):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = classifier(learning_rate=rate, max_iter=5).fit(X, CLASSES)
    assert np.isfinite(model.predict_proba(X)).all()


# -- interruptions --------------------------------------------------------------------


def test_an_interrupt_leaves_a_fitted_model():
    calls = [0]

    def stop(inputs):
        calls[0] += 1
        if calls[0] == 4:
            raise KeyboardInterrupt
        return inputs

    model = classifier(augment=stop, batch_size=10, max_iter=10)
    with pytest.raises(KeyboardInterrupt):
        model.fit(X, CLASSES)
    assert model.certificate_.status is Status.INTERRUPTED
    assert model.n_iter_ == 1 and model.predict(X).shape == (30,)


# -- forged files ---------------------------------------------------------------------


def forge(**changes):
    tensors = {}
    data = encode(MLP(4, (3,), 2), tensors)
    data.update({k: v for k, v in changes.items() if k != "config"})
    data["config"].update(changes.get("config", {}))
    return data, tensors


@pytest.mark.parametrize(
    "changes",
    [
        {"class": "Linear"},
        {"class": "torch.nn.Linear"},
        {"class": "count_parameters"},
        {"class": ["MLP"]},
        {"config": {"n_inputs": 10**12}},
        {"config": {"n_inputs": 5}},
        {"config": {"hidden": 10**9}},
        {"config": {"unknown": 1}},
        {"config": {"activation": "exec"}},
        {"state": {}},
        {"frozen": ["nothing"]},
        {"frozen": 3},
    ],
)
def test_forged_networks_are_refused(changes):
    data, tensors = forge(**changes)
    with pytest.raises(ModelFileError, match="Nothing was loaded"):
        decode(data, tensors)


def test_an_unforged_network_is_not():
    data, tensors = forge()
    assert isinstance(decode(data, tensors), MLP)


# -- what was once passed on to torch or to nobody ------------------------------------


def test_rows_that_overflow_in_the_network_get_no_class():
    model = classifier(lambda n, k: MLP(n, 8, k)).fit(X, CLASSES)
    with torch.no_grad():
        model.module_.output.weight.mul_(1e30)
    far = np.where(np.arange(30)[:, None] == 7, 1e38, X)
    for method in (model.predict, model.predict_proba):
        assert "infinity for row 7" in message(ValueError, lambda m=method: m(far))
    assert np.isfinite(model.predict_proba(X)).all()


@pytest.mark.parametrize("scale", [1e-300, 1e-40, 1e40, 1e300])
def test_weights_of_rows_count_by_their_ratios(scale):
    s = np.arange(30) % 3 + 1.0
    near = classifier().fit(X, CLASSES, sample_weight=s)
    far = classifier().fit(X, CLASSES, sample_weight=scale * s)
    assert np.allclose(near.predict_proba(X), far.predict_proba(X), atol=1e-5)
    assert far.certificate_.status is near.certificate_.status


@pytest.mark.parametrize(
    "options, words",
    [
        ({"label_smoothing": -0.1}, "label_smoothing must be a number of at least 0"),
        ({"label_smoothing": np.nan}, "label_smoothing must be"),
        ({"validation_fraction": 1}, "validation_fraction must be below 1"),
        ({"early_stopping": "no"}, "early_stopping must be one of False, True"),
        ({"warm_start": None}, "warm_start must be one of False, True"),
        ({"checkpoint": ""}, "checkpoint must name a folder"),
        ({"device": "meta"}, "device='meta' cannot be used"),
        ({"class_weight": {"a": 2.0}}, "class_weight names 'a', which is not a class"),
        ({"optimizer": lambda groups, lr: 3}, "must return a torch.optim.Optimizer"),
        ({"augment": "flip"}, "augment must be a function"),
        ({"augment": lambda x: x[:1]}, "augment must return a tensor of 30 rows"),
    ],
    ids=lambda value: value if isinstance(value, str) else next(iter(value)),
)
def test_parameters_that_torch_would_stumble_over(options, words):
    model = classifier(**options)
    assert words in message((TypeError, ValueError), lambda: model.fit(X, CLASSES))


@pytest.mark.parametrize("odd", [None, 1, 2.5])
def test_labels_of_several_kinds(odd):
    y = np.array(["a", "b", "c"], dtype=object)[CLASSES]
    y[4] = odd
    assert "one type" in message(ValueError, lambda: classifier().fit(X, y))
    complex_y = NUMBERS + 1j
    assert "must hold numbers" in message(
        ValueError, lambda: regressor().fit(X, complex_y)
    )


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_tensors_and_modules_of_few_digits(dtype):
    net = nn.Linear(4, 3).to(dtype)
    rows = torch.as_tensor(X).to(dtype).requires_grad_()
    options = {"early_stopping": True, "optimizer": "sgd"}
    options["augment"] = torch.Tensor.double  # which may change the dtype
    model = classifier(net, **options).fit(rows, torch.as_tensor(CLASSES))
    assert model.predict_proba(rows).shape == (30, 3)
    sums = model.predict_proba(rows.detach().to_sparse()).sum(axis=1)
    assert np.allclose(sums, 1, atol=1e-2)


@pytest.mark.parametrize("row", [np.ones((1, 4))[::-1], np.ones((1, 4), ">f4")])
def test_rows_of_odd_strides_and_byte_orders(row):
    model = classifier().fit(X, CLASSES)
    wanted = model.predict_proba(np.ones((1, 4)))
    assert np.allclose(model.predict_proba(row), wanted)


def test_several_tasks_are_scored_with_care():
    y = np.column_stack([CLASSES, NUMBERS])
    model = MultiTaskNetwork(lambda n, k: MLP(n, 4, k), max_iter=2, random_state=0)
    assert "not fitted" in message(NotFittedError, lambda: model.score(X, y))
    model.fit(X, y)
    assert "inconsistent" in message(ValueError, lambda: model.score(X, y[:-1]))
    assert "inconsistent" in message(ValueError, lambda: model.score(X, y, [1, 2]))
    for wrong in (5, "ab", ["a", "b"], [1], [0, 0], [np.nan, 1]):
        model.set_params(task_weights=wrong)
        told = message(ValueError, lambda: model.fit(X, y))
        assert "task_weights must hold 2" in told
    model.set_params(task_weights=None, tasks=5)
    assert "tasks must be one of" in message(ValueError, lambda: model.fit(X, y))


def test_validation_rows_that_overflow_choose_no_epoch():
    net = MLP(4, 8, 3)
    with torch.no_grad():
        net.output.weight.mul_(1e3)
    far = 3e38 * np.sign(X)
    model = classifier(net, max_iter=4).fit(X, CLASSES, X_val=far, y_val=CLASSES)
    assert np.isnan(model.history_["validation_score"]).all()
    assert model.best_epoch_ == 0
    assert np.isfinite(model.predict_proba(X)).all()


def test_fits_in_threads_do_not_draw_each_others_numbers() -> None:
    """Torch's generator is one for all threads; dropout draws from it."""
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(200, 5)), rng.integers(0, 2, 200)

    net = nn.Sequential(nn.Linear(5, 8), nn.Dropout(0.5), nn.Linear(8, 2))

    def weights(_: int) -> np.ndarray:
        model = NeuralClassifier(net, max_iter=5, batch_size=20, random_state=0)
        with certus.config_context(on_uncertified="ignore"):  # each thread has its own
            return model.fit(X, y).module_[0].weight.detach().numpy()

    alone = weights(0)
    with ThreadPoolExecutor(4) as pool:
        together = list(pool.map(weights, range(8)))
    assert all(np.array_equal(alone, one) for one in together)
