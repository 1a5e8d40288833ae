"""What holds for every network: the rules of an estimator, and those of a loop.

The checks of ``certus.testing`` that speak of a target which is met do not apply: a
certificate of a network promises nothing, it measures.
"""

import copy
import io
import subprocess
import sys

import joblib
import numpy as np
import pandas as pd
import polars as pl
import pytest
import torch
from scipy import sparse
from sklearn.base import clone
from sklearn.datasets import load_iris
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from torch import nn

import certus
from certus.certificate import Status, Strength
from certus.neural_network import NeuralClassifier, NeuralRegressor
from certus.neural_network.modules import MLP
from certus.persist import ModelFileError
from certus.testing import checks as kit
from certus.testing.checks import example
from certus.testing.instances import instances
from certus.testing.toys import TinyNetwork

NETWORKS = [
    e for e in instances() if type(e).__module__.startswith("certus.neural_network")
]
OWN = [e for e in NETWORKS if type(e).__name__.startswith("Neural")]
every = pytest.mark.parametrize("estimator", NETWORKS, ids=lambda e: type(e).__name__)
own = pytest.mark.parametrize("estimator", OWN, ids=lambda e: type(e).__name__)
APPLY = [
    kit.check_swapped_data_are_reported,
    kit.check_order_of_rows,
    kit.check_integer_weight_is_repetition,
    kit.check_zero_weight_is_removal,
    kit.check_stacked_rows,
    kit.check_sparse_equals_dense,
    kit.check_memory_order,
    kit.check_data_are_left_alone,
]


@every
@pytest.mark.parametrize("check", APPLY, ids=lambda c: c.__name__)
def test_check(estimator, check):
    with certus.config_context(on_uncertified="ignore"):
        check(estimator)


@own
@pytest.mark.parametrize(
    "check",
    [kit.check_certificate_can_be_repeated, kit.check_copies_keep_the_certificate],
    ids=lambda c: c.__name__,
)
def test_check_of_a_settled_fit(estimator, check):
    check(estimator)


def small(kind=NeuralClassifier, **options):
    """A quick estimator on a network of ours, in float64."""
    outputs = 3 if kind is NeuralClassifier else 1
    with torch.random.fork_rng():
        torch.manual_seed(0)
        net = MLP(4, (8,), outputs).double()
    return kind(net, **{"max_iter": 5, "random_state": 0, **options})


@pytest.fixture(autouse=True)
def _quiet():
    with certus.config_context(on_uncertified="ignore"):
        yield


KINDS = pytest.mark.parametrize("kind", [NeuralClassifier, NeuralRegressor])


@own
def test_every_claim_is_measured_and_none_is_met(estimator):
    X, y = example(estimator)
    found = clone(estimator).fit(X, y).certificate_
    assert {c.strength for c in found.claims} == {Strength.MEASURED}
    assert found.met is None and found.primary == "training_loss"
    assert (found.n_samples, found.n_features) == X.shape
    assert all(len(line) <= 80 for line in str(found).splitlines())


@KINDS
def test_a_changed_weight_is_refuted(kind):
    X, y = example(small(kind))
    model = small(kind).fit(X, y)
    with torch.no_grad():
        next(model.module_.parameters())[0, 0] += 0.01
    found = certus.certify(model, X, y)
    assert found.status is Status.REFUTED
    assert "refit" in found[found.primary].fix


@KINDS
def test_a_saved_model_is_stated_and_can_be_checked(kind, tmp_path):
    X, y = example(small(kind))
    model = small(kind).fit(X, y)
    other = certus.load(model.save(tmp_path / "m.certus"))
    assert other.certificate_.origin == "file"
    assert other.certificate_.claims == model.certificate_.claims
    np.testing.assert_array_equal(other.predict(X), model.predict(X))
    assert certus.certify(other, X, y).value == model.certificate_.value
    assert next(other.module_.parameters()).dtype == torch.float64


def test_a_model_file_holds_buffers_and_frozen_weights(tmp_path):
    X, y = example(small())
    net = MLP(4, (8,), 3, normalization="batch")
    net.output.weight.requires_grad_(False)
    model = NeuralClassifier(net, max_iter=3, random_state=0).fit(X, y)
    other = certus.load(model.save(tmp_path / "m.certus")).module_
    assert not other.output.weight.requires_grad
    mine, theirs = model.module_.state_dict(), other.state_dict()
    assert list(mine) == list(theirs)
    assert all(torch.equal(mine[name], theirs[name]) for name in mine)
    assert not other.training


def test_save_refuses_a_module_that_the_user_wrote(tmp_path):
    X, y = example(small())
    model = NeuralClassifier(nn.Linear(4, 3), max_iter=2).fit(X, y)
    with pytest.raises(ModelFileError, match=r"Linear.*never code.*joblib"):
        model.save(tmp_path / "m.certus")
    changed = small().fit(X, y)
    changed.module_.output = nn.Linear(8, 5).double()
    with pytest.raises(ModelFileError, match="changed after it was built"):
        changed.save(tmp_path / "m.certus")


@KINDS
@pytest.mark.parametrize("how", ["pickle", "deepcopy"])
def test_copies_predict_alike_and_can_go_on(kind, how):
    X, y = example(small(kind))
    model = small(kind).fit(X, y)
    if how == "deepcopy":
        other = copy.deepcopy(model)
    else:
        buffer = io.BytesIO()
        joblib.dump(model, buffer)
        buffer.seek(0)
        other = joblib.load(buffer)
    np.testing.assert_array_equal(other.predict(X), model.predict(X))
    other.partial_fit(X, y)
    assert not np.array_equal(other._outputs(X), model._outputs(X))


@KINDS
def test_frames_tensors_and_sparse_rows_give_what_arrays_give(kind):
    X, y = example(small(kind))
    plain = small(kind).fit(X, y)._outputs(X)
    names = list("abcd")
    forms = [
        pd.DataFrame(X, columns=names),
        pl.DataFrame(X, schema=names),
        torch.as_tensor(X),
        X.tolist(),
        sparse.csc_array(X),
    ]
    for form in forms:
        model = small(kind).fit(form, y)
        np.testing.assert_allclose(model._outputs(form), plain, rtol=1e-10)
        found = certus.certify(model, form, y)
        assert found.value == pytest.approx(model.certificate_.value, rel=1e-12)
    with_series = small(kind).fit(X, pd.Series(y))
    np.testing.assert_array_equal(with_series._outputs(X), plain)


def test_columns_have_names_and_are_counted():
    X, y = example(small())
    model = small().fit(pd.DataFrame(X, columns=list("abcd")), y)
    assert list(model.feature_names_in_) == list("abcd")
    with pytest.raises(ValueError, match="feature names"):
        model.predict(pd.DataFrame(X, columns=list("abdc")))
    with pytest.raises(ValueError, match="expecting 4 features"):
        small().fit(X, y).predict(X[:, :3])


def test_a_pipeline_a_search_and_cross_validation():
    X, y = load_iris(return_X_y=True)
    net = NeuralClassifier(
        TinyNetwork(), learning_rate=0.02, batch_size=16, max_iter=20, random_state=0
    )
    pipeline = make_pipeline(StandardScaler(), net)
    assert cross_val_score(pipeline, X, y, cv=3).min() > 0.85
    grid = {"neuralclassifier__learning_rate": [1e-5, 0.02]}
    search = GridSearchCV(pipeline, grid, cv=2).fit(X, y)
    assert search.best_params_["neuralclassifier__learning_rate"] == 0.02
    found = certus.certify(search, X, y)
    assert found.value == pytest.approx(search.best_estimator_[-1].certificate_.value)


def test_weights_reach_a_search_by_routing():
    from sklearn import config_context

    X, y = example(small())
    with config_context(enable_metadata_routing=True):
        net = small().set_fit_request(sample_weight=True)
        net.set_score_request(sample_weight=True)
        search = GridSearchCV(net, {"max_iter": [1, 2]}, cv=2)
        search.fit(X, y, sample_weight=np.ones(len(y)))
    assert hasattr(search, "best_score_")


@KINDS
def test_global_generators_are_left_alone(kind):
    X, y = example(small(kind))
    net = MLP(4, (8,), 3 if kind is NeuralClassifier else 1, dropout=0.5)
    torch.manual_seed(5)
    np.random.seed(5)  # noqa: NPY002 - the global state is what is looked at
    before = torch.random.get_rng_state(), np.random.get_state()[1]  # noqa: NPY002
    model = kind(net, max_iter=2, random_state=0).fit(X, y)
    model.predict(X)
    certus.certify(model, X, y, level="full")
    model.partial_fit(X, y)
    assert torch.equal(torch.random.get_rng_state(), before[0])
    assert np.array_equal(np.random.get_state()[1], before[1])  # noqa: NPY002


def test_the_same_seed_gives_the_same_weights_and_another_does_not():
    X, y = example(small())

    def fit(seed):
        build = kit_builder()
        return NeuralClassifier(build, max_iter=3, random_state=seed).fit(X, y)

    a, b, c = fit(0), fit(0), fit(1)
    np.testing.assert_array_equal(a._outputs(X), b._outputs(X))
    assert not np.array_equal(a._outputs(X), c._outputs(X))


def kit_builder():
    def build(n_inputs, n_outputs):
        return MLP(n_inputs, (8,), n_outputs, dropout=0.2)

    return build


@KINDS
def test_conformal_sets_and_intervals_cover(kind):
    X, y = example(small(kind), n=400)
    model = small(kind, max_iter=20).fit(X[:200], y[:200])
    model.calibrate(X[200:], y[200:])
    if kind is NeuralClassifier:
        inside = model.predict_set(X[200:])[np.arange(200), y[200:]]
    else:
        low, high = model.predict_interval(X[200:]).T
        inside = (low <= y[200:]) & (y[200:] <= high)
    assert inside.mean() >= 0.88


def test_nothing_outside_the_networks_loads_torch():
    code = (
        "import sys, certus, certus.linear_model, certus.persist;"
        "import certus.neural_network, certus.neural_network.modules;"
        "certus.neural_network.__all__; dir(certus.neural_network.modules);"
        "print('torch' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "False"


def test_closed_forms_of_generative_models_load_no_torch():
    """Divergences, transport, equations and examinations; networks alone need it."""
    code = (
        "import sys, certus.generative as g\n"
        "networks = {'SamplePictures', 'WassersteinBound', 'descent_ascent',\n"
        "            'wasserstein_bound'}\n"
        "assert networks < set(g._WHERE)\n"
        "for name in sorted(set(g._WHERE) - networks): getattr(g, name)\n"
        "print(g.mmd([[0.0], [1.0]], [[0.5], [2.0]]) is not None,\n"
        "      g.jensen_shannon([0.5, 0.5], [0.9, 0.1]) > 0.1, 'torch' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["True", "True", "False"]


def test_without_torch_the_remedy_is_named():
    code = (
        "import sys; sys.modules['torch'] = None\n"
        "import certus.neural_network\n"
        "try: certus.neural_network.NeuralClassifier\n"
        "except ImportError as error: print(error)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert 'pip install "certus[deep]"' in done.stdout
