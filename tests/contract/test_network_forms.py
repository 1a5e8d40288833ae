"""Every network where scikit-learn puts estimators, on every form of its data.

Pipelines, searches and cross-validation; frames, sparse rows, lists and tensors;
weights going out as a ``state_dict`` and in again. A network has to give what it gives
alone, on arrays.
"""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from scipy import sparse  # noqa: E402
from sklearn.base import clone  # noqa: E402
from sklearn.model_selection import GridSearchCV, cross_val_score  # noqa: E402
from sklearn.pipeline import make_pipeline  # noqa: E402
from sklearn.preprocessing import FunctionTransformer  # noqa: E402

from certus import neural_network  # noqa: E402
from certus.neural_network.modules import MLP  # noqa: E402
from certus.text import TextConvClassifier  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore::certus.base.UncertifiedWarning")

RNG = np.random.default_rng(0)
ROWS = RNG.normal(size=(36, 16))
WORDS = [list(RNG.choice(list("abc"), k)) for k in RNG.integers(1, 6, 36)]
TEXTS = [" ".join(words) for words in WORDS]
SIGNS = (ROWS[:, 0] > 0).astype(int)
NUMBERS = ROWS[:, 0] - ROWS[:, 1]
HAS_A = np.array(["a" in words for words in WORDS]).astype(int)
TAGS = [[int(word == "a") for word in words] for words in WORDS]


def network(n, k):
    """A module made for the data."""
    return MLP(n, 8, k)


QUICK = {"max_iter": 2, "random_state": 0}
HIDDEN = {"hidden_layer_sizes": (8,), **QUICK}
PERCEPTRONS = (neural_network.MLPClassifier, neural_network.MLPRegressor)
TABULAR = [
    (neural_network.MLPClassifier(**HIDDEN), ROWS, SIGNS),
    (neural_network.MLPRegressor(**HIDDEN), ROWS, NUMBERS),
    (neural_network.NeuralClassifier(network, **QUICK), ROWS, SIGNS),
    (neural_network.NeuralRegressor(network, **QUICK), ROWS, NUMBERS),
    (neural_network.ConvNetClassifier(**QUICK), ROWS, SIGNS),
    (neural_network.ViTClassifier(n_layers=1, width=8, heads=2, **QUICK), ROWS, SIGNS),
]
SEQUENTIAL = [
    (neural_network.RecurrentClassifier(width=4, **QUICK), WORDS, HAS_A),
    (neural_network.RecurrentRegressor(width=4, **QUICK), WORDS, HAS_A + 0.5),
    (neural_network.SequenceTagger(width=4, **QUICK), WORDS, TAGS),
    (neural_network.Seq2Seq(width=4, **QUICK), WORDS, WORDS),
    (neural_network.Seq2Seq(network="transformer", width=4, **QUICK), WORDS, WORDS),
    (TextConvClassifier(embedding=4, n_filters=4, **QUICK), TEXTS, HAS_A),
]
ALL = pytest.mark.parametrize(
    ("model", "X", "y"),
    [pytest.param(*case, id=type(case[0]).__name__) for case in TABULAR + SEQUENTIAL],
)


def values(model, X):
    """What the model says of X, in as fine a form as it has."""
    if hasattr(model, "log_probability"):
        return model.log_probability(X, X)
    say = getattr(model, "predict_proba", model.predict)
    return np.concatenate([np.atleast_1d(row).ravel() for row in say(X)])


def unchanged(X):
    """A step that a pipeline can stand on, whatever X is."""
    return X


@ALL
def test_a_pipeline_gives_what_the_network_gives(model, X, y):
    alone = clone(model).fit(X, y)
    pipe = make_pipeline(FunctionTransformer(unchanged), clone(model)).fit(X, y)
    np.testing.assert_array_equal(values(pipe[-1], X), values(alone, X))
    assert pipe.score(X, y) == alone.score(X, y)
    assert len(pipe.predict(X)) == len(X)


@ALL
def test_a_search_and_cross_validation_score_what_was_held_out(model, X, y):
    rate = "learning_rate" + ("_init" if isinstance(model, PERCEPTRONS) else "")
    options = {"cv": 2, "error_score": "raise"}
    search = GridSearchCV(clone(model), {rate: [1e-4, 1e-2]}, **options).fit(X, y)
    assert search.best_params_[rate] in (1e-4, 1e-2)
    assert search.score(X, y) == search.best_estimator_.score(X, y)
    chosen = clone(model).set_params(**search.best_params_)
    scores = cross_val_score(chosen, X, y, **options)
    assert scores.mean() == pytest.approx(search.best_score_)


@ALL
def test_a_state_dict_goes_out_and_in(model, X, y, tmp_path):
    one = clone(model).fit(X, y)
    other = clone(model).set_params(random_state=1).fit(X, y)
    assert not np.array_equal(values(one, X), values(other, X))
    torch.save(one.module_.state_dict(), tmp_path / "weights.pt")
    other.module_.load_state_dict(torch.load(tmp_path / "weights.pt"))
    np.testing.assert_array_equal(values(one, X), values(other, X))


@pytest.mark.parametrize("form", ["pandas", "polars", "csr", "list", "torch"])
@pytest.mark.parametrize(
    ("model", "X", "y"),
    [pytest.param(*case, id=type(case[0]).__name__) for case in TABULAR],
)
def test_tables_of_every_form_are_one(model, X, y, form):
    wanted = values(clone(model).fit(X, y), X)
    if form in ("pandas", "polars"):
        frames = pytest.importorskip(form)
        names = [f"x{i}" for i in range(X.shape[1])]
        X, y = frames.DataFrame(dict(zip(names, X.T))), frames.Series(y.tolist())
    elif form == "csr":
        X = sparse.csr_matrix(X)
    else:
        X, y = (X.tolist(), y.tolist()) if form == "list" else map(torch.tensor, (X, y))
    found = values(clone(model).fit(X, y), X)
    np.testing.assert_allclose(found, wanted, rtol=1e-6)


@pytest.mark.parametrize("form", ["pandas", "polars", "tuple"])
@pytest.mark.parametrize(
    ("model", "X", "y"),
    [pytest.param(*case, id=type(case[0]).__name__) for case in SEQUENTIAL],
)
def test_columns_of_sequences_are_lists_of_them(model, X, y, form):
    wanted = values(clone(model).fit(X, y), X)
    make = tuple if form == "tuple" else pytest.importorskip(form).Series
    again = clone(model).fit(make(X), make(list(y)))
    np.testing.assert_array_equal(values(again, make(X)), wanted)


@pytest.mark.parametrize(
    ("model", "X", "y"),
    [pytest.param(*case, id=type(case[0]).__name__) for case in TABULAR],
)
def test_precision_is_cast_and_does_not_matter_much(model, X, y):
    double = values(clone(model).fit(X, y), X)
    single = values(clone(model).fit(X.astype(np.float32), y), X.astype(np.float32))
    np.testing.assert_allclose(single, double, rtol=1e-3, atol=1e-4)
    whole = clone(model).fit((X > 0).astype(np.int64), y)
    assert np.isfinite(values(whole, X > 0)).all()


@ALL
def test_equal_weights_change_nothing_and_no_weight_leaves_a_row_out(model, X, y):
    """Full batches, so that the order of rows has no say."""
    model = clone(model).set_params(batch_size=len(X))
    if "dropout" in model.get_params():
        model.set_params(dropout=0.0)
    wanted = values(clone(model).fit(X, y), X)
    equal = clone(model).fit(X, y, sample_weight=np.full(len(X), 1.0))
    np.testing.assert_allclose(values(equal, X), wanted, rtol=1e-5)
    drop = clone(model).fit(X, y, sample_weight=np.arange(len(X)) != 3)
    rest = [i for i in range(len(X)) if i != 3]
    X_rest, y_rest = (
        v[rest] if isinstance(v, np.ndarray) else [v[i] for i in rest] for v in (X, y)
    )
    less = clone(model).fit(X_rest, y_rest)
    np.testing.assert_allclose(values(drop, X), values(less, X), rtol=1e-3, atol=1e-5)


@ALL
def test_epochs_are_made_one_at_a_time(model, X, y):
    model = clone(model)
    first = {"classes": [0, 1]} if hasattr(model, "predict_proba") else {}
    model.partial_fit(X, y, **first)
    before = values(model, X)
    model.partial_fit(X, y)
    assert not np.array_equal(values(model, X), before)
    # scikit-learn's perceptrons count the epochs of the last call only.
    assert model.n_iter_ == (1 if isinstance(model, PERCEPTRONS) else 2)
