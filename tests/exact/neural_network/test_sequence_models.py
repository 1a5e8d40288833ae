"""Classifiers, regressors and taggers of sequences: what they learn and keep."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from sklearn.base import clone  # noqa: E402
from sklearn.model_selection import GridSearchCV, cross_val_score  # noqa: E402
from sklearn.pipeline import make_pipeline  # noqa: E402
from sklearn.preprocessing import FunctionTransformer  # noqa: E402

import certus  # noqa: E402
from certus.neural_network import (  # noqa: E402
    RecurrentClassifier,
    RecurrentRegressor,
    SequenceTagger,
)
from certus.neural_network.batches import RaggedInputs, epoch_batches  # noqa: E402
from certus.neural_network.tag_targets import element_loss  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore::certus.base.UncertifiedWarning")


def brackets(n, rng, most=8):
    """Sequences of letters; the class is whether "a" comes before any "b"."""
    X = [list(rng.choice(list("abc"), k)) for k in rng.integers(1, most, n)]
    y = np.array([("".join(x).replace("c", "") + "b")[0] == "a" for x in X]).astype(int)
    return X, y


def quick(kind, **options):
    settings = {"width": 8, "max_iter": 3, "random_state": 0, "batch_size": 16}
    return kind(**{**settings, **options})


@pytest.fixture(scope="module")
def letters():
    return brackets(200, np.random.default_rng(0))


def test_order_is_learnt_where_counts_cannot_tell(letters):
    X, y = letters
    model = RecurrentClassifier(width=16, max_iter=40, random_state=0).fit(X, y)
    new, wanted = brackets(200, np.random.default_rng(1))
    assert model.score(new, wanted) > 0.97
    assert model.predict([list("acb"), list("bca")]).tolist() == [1, 0]


def test_both_readings_tag_by_what_comes_later():
    rng = np.random.default_rng(0)
    X = [rng.integers(0, 3, k).tolist() for k in rng.integers(1, 9, 200)]
    y = [[int(2 in x[i + 1 :]) for i in range(len(x))] for x in X]
    both = SequenceTagger(width=16, max_iter=40, random_state=0).fit(X, y)
    ahead = clone(both).set_params(bidirectional=False).fit(X, y)
    assert both.score(X, y) > 0.97
    assert ahead.score(X, y) < 0.9
    found = both.predict(X[:3])
    assert [len(p) for p in found] == [len(x) for x in X[:3]]


@pytest.mark.parametrize("cell", ["rnn", "gru", "lstm"])
def test_the_order_of_sequences_and_company_do_not_matter(letters, cell):
    X, y = letters
    model = quick(RecurrentClassifier, cell=cell, bidirectional=True).fit(X, y)
    p = model.predict_proba(X[:50])
    np.testing.assert_allclose(model.predict_proba(X[:50][::-1]), p[::-1], atol=1e-6)
    alone = np.concatenate([model.predict_proba([x]) for x in X[:50]])
    np.testing.assert_allclose(alone, p, atol=1e-6)


def test_forms_of_the_same_numbers_give_the_same_model():
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(30, 5)), rng.normal(size=30)
    forms = [X, X[:, :, None], list(X), X.tolist(), [x[:, None] for x in X]]
    forms += [np.array([*map(list, X), []], dtype=object)[:-1], torch.tensor(X)]
    found = [quick(RecurrentRegressor).fit(form, y).predict(X) for form in forms]
    for other in found[1:]:
        np.testing.assert_array_equal(other, found[0])


def test_columns_of_lists_are_read(letters):
    X, y = letters
    pandas, polars = pytest.importorskip("pandas"), pytest.importorskip("polars")
    wanted = quick(RecurrentClassifier).fit(X, y).predict_proba(X[:9])
    for form in (
        pandas.Series(X),
        pandas.DataFrame({"x": X}),
        polars.Series("x", X),
        polars.DataFrame({"x": X}),
        ["".join(x) for x in X],
    ):
        model = quick(RecurrentClassifier).fit(form, y)
        np.testing.assert_array_equal(model.predict_proba(X[:9]), wanted)
        assert certus.certify(model, form, y).status is not None


def test_tokens_or_numbers_are_read():
    ints = [[1, 2], [3], [2, 2, 1], [3, 1]]
    y = [0, 1, 0, 1]
    assert quick(RecurrentClassifier).fit(ints, y).tokens_ == [1, 2, 3]
    assert not hasattr(
        quick(RecurrentClassifier, embedding=None).fit(ints, y), "tokens_"
    )
    table = np.array([[1, 2], [3, 3], [2, 1], [3, 1]])
    assert not hasattr(quick(RecurrentClassifier).fit(table, y), "tokens_")
    assert quick(RecurrentClassifier, embedding=4).fit(table, y).tokens_ == [1, 2, 3]
    words = np.array([["a", "b"], ["b", "b"], ["a", "c"], ["c", "c"]])
    assert quick(RecurrentClassifier).fit(words, y).tokens_ == ["a", "b", "c"]


def test_unseen_tokens_are_all_the_same(letters):
    X, y = letters
    model = quick(RecurrentClassifier).fit(X, y)
    p = model.predict_proba([["a", "x"], ["a", "unheard"], ["a", ""]])
    assert (p == p[0]).all()


def test_weights_are_repetitions_in_full_batches(letters):
    rng = np.random.default_rng(0)
    X = [rng.normal(size=(k, 2)) for k in rng.integers(0, 6, 20)]
    y, s = rng.normal(size=20), rng.integers(0, 3, 20)
    again = np.repeat(np.arange(20), s)
    options = {"batch_size": None, "max_iter": 20}
    weighted = quick(RecurrentRegressor, **options).fit(X, y, s)
    repeated = quick(RecurrentRegressor, **options).fit([X[i] for i in again], y[again])
    np.testing.assert_allclose(weighted.predict(X), repeated.predict(X), rtol=1e-7)


def test_the_loss_of_a_tagger_is_the_mean_over_elements():
    rng = np.random.default_rng(0)
    X = [rng.normal(size=(k, 2)) for k in (3, 1, 0, 5)]
    y = [rng.integers(0, 3, len(x)) for x in X]
    s = np.array([1.0, 2.0, 1.0, 0.5])
    rule = {0: 1.0, 1: 2.0, 2: 0.5}
    model = quick(SequenceTagger, class_weight=rule, batch_size=None).fit(X, y, s)
    p = model.predict_proba(X)
    rows = [(i, t) for i, x in enumerate(X) for t in range(len(x))]
    w = np.array([s[i] * rule[int(y[i][t])] for i, t in rows])
    each = np.array([-np.log(p[i][t, y[i][t]]) for i, t in rows])
    stated = certus.certify(model, X, y, sample_weight=s)["training_loss"].value
    assert stated == pytest.approx(w @ each / w.sum(), rel=1e-9)


def test_weights_of_a_tagger_are_repetitions():
    rng = np.random.default_rng(0)
    X = [rng.normal(size=(k, 2)) for k in rng.integers(1, 6, 20)]
    y = [(x[:, 0] > 0).astype(int) for x in X]
    s = rng.integers(0, 3, 20)
    again = np.repeat(np.arange(20), s)
    options = {"batch_size": None, "max_iter": 20}
    weighted = quick(SequenceTagger, **options).fit(X, y, s)
    repeated = quick(SequenceTagger, **options)
    repeated.fit([X[i] for i in again], [y[i] for i in again])
    for p, q in zip(weighted.predict_proba(X), repeated.predict_proba(X)):
        np.testing.assert_allclose(p, q, rtol=1e-6)


def test_element_losses_are_the_cross_entropy_with_smoothing():
    z = torch.randn(2, 4, 3, dtype=torch.float64)
    y = torch.tensor([[0, 2, 1, -1, -1], [-1, -1, -1, -1, -1]])
    found = element_loss(z, y, torch.ones(3, dtype=torch.float64), 0.1)
    log_p = torch.log_softmax(z[0, :3], dim=1)
    target = torch.full((3, 3), 0.1 / 3, dtype=torch.float64)
    target[torch.arange(3), torch.tensor([0, 2, 1])] += 0.9
    wanted = -(target * log_p).sum(dim=1).mean()
    torch.testing.assert_close(found, torch.stack([wanted, torch.tensor(0.0).double()]))


def test_batches_hold_rows_of_similar_length_and_all_of_them():
    lengths = torch.from_numpy(np.random.default_rng(0).integers(1, 100, 1000))
    parts = epoch_batches(np.random.default_rng(1), 1000, 32, 1, lengths)
    assert sorted(torch.cat(parts).tolist()) == list(range(1000))
    again = epoch_batches(np.random.default_rng(1), 1000, 32, 1, lengths)
    assert all(torch.equal(a, b) for a, b in zip(parts, again))
    other = epoch_batches(np.random.default_rng(2), 1000, 32, 1, lengths)
    assert not torch.equal(torch.cat(parts), torch.cat(other))
    padded = sum(len(p) * int(lengths[p].max()) for p in parts)
    assert padded < 1.2 * int(lengths.sum())
    plain = epoch_batches(np.random.default_rng(1), 1000, 32)
    assert sum(len(p) * int(lengths[p].max()) for p in plain) > 1.8 * int(lengths.sum())


def test_rows_are_padded_with_zeros():
    rows = RaggedInputs([np.arange(3.0), np.empty(0), [7.0]], torch.float64, "cpu")
    x, lengths = rows[torch.tensor([2, 0, 1])]
    assert x.tolist() == [[7, 0, 0], [0, 1, 2], [0, 0, 0]]
    assert lengths.tolist() == [1, 3, 0]
    assert sorted(torch.cat(rows.blocks()).tolist()) == [0, 1, 2]


@pytest.mark.parametrize("kind", [RecurrentClassifier, RecurrentRegressor])
def test_sequence_models_save_load_and_pickle_with_their_vocabulary(
    letters, kind, tmp_path
):
    X, y = letters
    model = quick(kind, bidirectional=True).fit(X, y)
    again = certus.load(model.save(tmp_path / "model.certus"))
    assert again.tokens_ == model.tokens_
    for other in (again, pickle.loads(pickle.dumps(model))):
        np.testing.assert_array_equal(other.predict(X), model.predict(X))
    same = certus.certify(again, X, y)["training_loss"].value
    assert same == pytest.approx(model.certificate_["training_loss"].value)
    swapped = certus.certify(again, X[::-1], y)
    assert swapped["training_loss"].value != same


def test_a_tagger_saves_and_loads(tmp_path):
    X, y = [["a", "b"], ["b"], []], [[1, 0], [0], []]
    model = quick(SequenceTagger).fit(X, y)
    again = certus.load(model.save(tmp_path / "model.certus"))
    for p, q in zip(again.predict_proba(X), model.predict_proba(X)):
        np.testing.assert_array_equal(p, q)


def test_sequence_models_serve_in_searches_cross_validation_and_pipelines(letters):
    X, y = letters
    model = quick(RecurrentClassifier, max_iter=2)
    search = GridSearchCV(model, {"cell": ["gru", "rnn"]}, cv=2).fit(X, y)
    assert set(search.cv_results_["param_cell"]) == {"gru", "rnn"}
    lower = FunctionTransformer(lambda X: [[t.lower() for t in x] for x in X])
    assert make_pipeline(lower, model).fit(X, y).predict(X).shape == (200,)
    tags = [[len(x)] * len(x) for x in X]
    scores = cross_val_score(quick(SequenceTagger, max_iter=1), X, tags, cv=2)
    assert scores.shape == (2,)


def test_early_stopping_keeps_the_best_epoch(letters):
    X, y = letters
    model = quick(RecurrentClassifier, early_stopping=True, max_iter=15).fit(X, y)
    scores = model.history_["validation_score"]
    assert scores[model.best_epoch_ - 1] == max(scores)
    tags = [[int(t == "a") for t in x] for x in X]
    tagger = quick(SequenceTagger, max_iter=4)
    tagger.fit(X[:150], tags[:150], X_val=X[150:], y_val=tags[150:])
    best = max(tagger.history_["validation_score"])
    assert tagger.score(X[150:], tags[150:]) == pytest.approx(best)


def test_partial_fits_go_on(letters):
    X, y = letters
    model = quick(RecurrentClassifier)
    for _ in range(3):
        model.partial_fit(X, y, classes=[0, 1])
    assert model.n_iter_ == 3
    whole = quick(RecurrentClassifier).fit(X, y)
    np.testing.assert_allclose(
        model.predict_proba(X), whole.predict_proba(X), rtol=1e-5
    )
    tags = [[int(t == "a") for t in x] for x in X]
    tagger = quick(SequenceTagger).partial_fit(X, tags, classes=[0, 1, 2])
    assert tagger.partial_fit(X, tags).predict_proba(X[:1])[0].shape[1] == 3


def test_a_checkpoint_goes_on_where_it_ended(letters, tmp_path):
    X, y = letters
    whole = quick(RecurrentClassifier, max_iter=4, dropout=0.2).fit(X, y)
    part = quick(RecurrentClassifier, max_iter=2, dropout=0.2, checkpoint=tmp_path)
    part.fit(X, y)
    again = clone(part).set_params(max_iter=4).fit(X, y)
    np.testing.assert_array_equal(again.predict_proba(X), whole.predict_proba(X))


def test_gates_of_a_fitted_model(letters):
    X, y = letters
    model = quick(RecurrentClassifier, n_layers=2, bidirectional=True).fit(X, y)
    found = model.gates([*X[:3], []], layer=1, backwards=True)
    assert [len(g["forget"]) for g in found] == [*map(len, X[:3]), 0]
    assert found[0]["forget"].shape[1] == 8


def test_float32_stays_float32():
    X, y = (
        np.random.default_rng(0).random((20, 6, 2), dtype=np.float32),
        np.arange(20.0),
    )
    single = quick(RecurrentRegressor).fit(X, y)
    assert single.predict(X).dtype == np.float32
    assert quick(RecurrentRegressor).fit(X.astype(float), y).predict(X).dtype == float
