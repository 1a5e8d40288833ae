"""The estimator of sequences: what it learns, and what it says about it."""

from __future__ import annotations

import itertools
import pickle

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, cross_val_score

torch = pytest.importorskip("torch")

import certus  # noqa: E402
from certus.neural_network import Seq2Seq  # noqa: E402
from certus.neural_network.tokens import lists, token_loss  # noqa: E402


def short(**options):
    """A small model whose schedule ends where the run does."""
    return Seq2Seq(**{"width": 24, "batch_size": 32, "random_state": 0, **options})


@pytest.fixture(scope="module")
def copies():
    """A model that copies, fitted on ragged strings, and strings it has not seen."""
    rng = np.random.default_rng(0)
    lengths = rng.integers(1, 9, 900)
    words = ["".join(rng.choice(list("abcde"), size=n)) for n in lengths]
    model = short(width=32, max_iter=20, learning_rate=1e-2)
    return model.fit(words[:800], words[:800]), words


@pytest.mark.catalog("SEQ-15")
def test_attention_peaks_on_the_aligned_place_of_a_copy(copies):
    model, words = copies
    fresh = [w for w in words[800:] if w not in words[:800]]
    assert len(fresh) > 30
    assert model.score(fresh, fresh) > 0.95
    looks = model.attention_weights(fresh)
    hits = [np.argmax(a, axis=1) == np.arange(len(a)) for a in looks]
    assert np.concatenate(hits).mean() > 0.9
    for word, a in zip(fresh, looks):
        assert a.shape[1] == len(word)
        np.testing.assert_allclose(a.sum(axis=1), 1, rtol=1e-5)


@pytest.mark.catalog("SEQ-13")
@pytest.mark.parametrize("turn", [1, -1])
def test_without_attention_short_sequences_are_copied_and_reversed(turn):
    X = [list(x) for n in (1, 2, 3, 4) for x in itertools.product(range(4), repeat=n)]
    np.random.default_rng(0).shuffle(X)
    y = [x[::turn] for x in X]
    model = short(attention=False, max_iter=40, learning_rate=1e-2)
    model.fit(X[:280], y[:280])
    assert model.score(X[:280], y[:280]) > 0.99
    assert model.score(X[280:], y[280:]) > 0.95  # 60 that it has not seen
    with pytest.raises(ValueError, match="without attention"):
        model.attention_weights(X)


@pytest.mark.catalog("SEQ-12")
def test_fed_with_its_own_outputs_the_model_errs_more_as_texts_grow():
    # A chain that jumps now and then: even the best model is surprised, and only
    # where it is told of the jump does it find the chain again.
    rng = np.random.default_rng(0)
    y = np.empty((600, 9), dtype=int)
    y[:, 0] = rng.integers(6, size=600)
    for t in range(1, 9):
        jump = rng.random(600) < 0.15
        y[:, t] = np.where(jump, rng.integers(6, size=600), (y[:, t - 1] + 1) % 6)
    model = short(max_iter=12, learning_rate=1e-2).fit(y[:, :1], y)
    table = torch.as_tensor(np.column_stack([y + 1, np.zeros(600, dtype=int)]))
    rows = model._sources(y[:, :1])[slice(0, 600)]
    with torch.no_grad():
        forced = model.module_(*rows, table).argmax(dim=2).numpy()[:, :9] != y + 1
        encoded = model.module_.encode(*rows)
        told_own = model.module_._sampled(encoded, table, 0.0)
        losses = [
            float(token_loss(z, table).mean())
            for z in (model.module_(*rows, table), told_own)
        ]
    free = np.array(model.predict(y[:, :1])) != y
    assert losses[0] < losses[1]
    assert forced[:, 5:].mean() < 0.2
    assert free[:, 1:3].mean() + 0.1 < free[:, 4:6].mean()
    assert free[:, 7:].mean() > forced[:, 7:].mean() + 0.2


@pytest.mark.catalog("SEQ-12")
@pytest.mark.parametrize("forcing", [0.5, "scheduled"])
def test_scheduled_sampling_learns_too(forcing):
    X = [list(x) for x in itertools.product("ab", repeat=5)]
    model = short(teacher_forcing=forcing, max_iter=40, learning_rate=1e-2).fit(X, X)
    assert model.score(X, X) == 1.0
    assert int(model.module_.batches) == (40 if forcing == "scheduled" else 0)


def test_log_probabilities_are_products_of_steps(copies):
    model, words = copies
    X, y = words[800:810], words[810:820]
    found = model.log_probability(X, y)
    for x, target, value in zip(X, y, found):
        numbers = [1 + model.target_tokens_.index(c) for c in target] + [0]
        (row, length) = model._sources([x])[slice(0, 1)]
        total = 0.0
        for t, number in enumerate(numbers):
            with torch.no_grad():
                z = model.module_(row, length, torch.tensor([numbers[: t + 1]]))
            total += float(torch.log_softmax(z[0, t].double(), dim=0)[number])
        assert value == pytest.approx(total, rel=1e-4, abs=1e-5)
    assert model.log_probability(["ab"], ["aZ"])[0] == -np.inf
    best = model.predict(X)
    assert (model.log_probability(X, best) >= found - 1e-6).all()


def test_beams_in_prediction(copies):
    model, words = copies
    X = words[800:840]
    wide = clone(model).set_params(beam=5)
    vars(wide).update({k: v for k, v in vars(model).items() if k.endswith("_")})
    wide._as_text = model._as_text
    gain = model.log_probability(X, wide.predict(X)) - model.log_probability(
        X, model.predict(X)
    )
    assert (gain > -1e-4).all()
    short_ones = wide.set_params(max_length=2).predict(X)
    assert max(map(len, short_ones)) == 2


def test_the_score_counts_tokens_at_their_places(copies):
    model, _ = copies
    assert model.predict(["abc", "de"]) == ["abc", "de"]
    assert model.score(["abc", "de"], ["abd", "de"]) == pytest.approx(4 / 5)
    assert model.score(["abc"], ["abcde"]) == pytest.approx(3 / 5)
    assert model.score(["abc"], ["a"]) == pytest.approx(1 / 3)
    weighted = model.score(["abc", "de"], ["abd", "de"], sample_weight=[1, 3])
    assert weighted == pytest.approx(8 / 9)


def test_tokens_of_many_kinds_come_back_as_they_were():
    X = [["not", 3], [], np.array([1, 2]), ["x"] * 4, (2.5, "not")]
    y = [["p", "q"], ["q"], [], [7, 7, "q"], ["p"]]
    model = short(max_iter=60, learning_rate=1e-2).fit(X, y)
    assert model.predict(X) == y and model.score(X, y) == 1.0
    assert model.source_tokens_ == [1, 2, 2.5, 3, "not", "x"]
    assert model.target_tokens_ == [7, "p", "q"]
    assert model.longest_ == 3
    assert model.predict([["never", "seen"]]) == model.predict([["nor", "this"]])
    assert [a.shape for a in model.attention_weights(X)][:2] == [(2, 2), (1, 1)]


def test_arrays_are_sequences_row_by_row():
    X = np.random.default_rng(0).integers(4, size=(60, 3))
    a = short(max_iter=3).fit(X, X[:, ::-1])
    b = short(max_iter=3).fit(X.tolist(), X[:, ::-1].tolist())
    assert a.predict(X) == b.predict(X) and a.loss_ == b.loss_
    c = short(max_iter=3).fit(iter(X), iter(X[:, ::-1]))
    assert c.loss_ == a.loss_


def test_weights_are_repetitions():
    X = ["ab", "b", "", "ba", "aab"]
    y = ["a", "bb", "ab", "", "b"]
    s = [2, 1, 3, 1, 2]
    repeated = [i for i, k in enumerate(s) for _ in range(k)]
    options = {"max_iter": 5, "batch_size": None, "clip": None, "optimizer": "sgd"}
    a = short(**options).fit(X, y, sample_weight=s)
    b = short(**options).fit([X[i] for i in repeated], [y[i] for i in repeated])
    for p, q in zip(a.module_.parameters(), b.module_.parameters()):
        torch.testing.assert_close(p, q, rtol=1e-4, atol=1e-6)


def test_the_certificate_speaks_of_the_likelihood():
    X = ["".join(x) for x in itertools.product("ab", repeat=4)]
    y = [x.strip("a") for x in X]
    model = short(max_iter=10, learning_rate=1e-2).fit(X, y)
    certificate = model.certificate_
    each = -model.log_probability(X, y) / (1 + np.array([len(t) for t in y]))
    assert certificate.value == pytest.approx(each.mean(), rel=1e-5)
    assert certificate["gradient_ratio"].met is not False
    again = certus.certify(model, X, y, level="full")
    assert again.value == certificate.value
    assert again["gradient_ratio"].value < 1e-6
    tampered = pickle.loads(pickle.dumps(model))
    with torch.no_grad():
        tampered.module_.decoder.output.bias[0] += 3.0
    assert certus.certify(tampered, X, y).value > certificate.value + 0.1


def test_saved_and_loaded(copies, tmp_path):
    model, words = copies
    back = certus.load(model.save(tmp_path / "m.certus"))
    X = words[800:]
    assert back.predict(X) == model.predict(X)
    np.testing.assert_array_equal(
        back.log_probability(X, X), model.log_probability(X, X)
    )
    scheduled = short(teacher_forcing="scheduled", max_iter=2).fit(X, X)
    assert certus.load(scheduled.save(tmp_path / "s.certus")).predict(X[:3]) == (
        scheduled.predict(X[:3])
    )


def test_interrupted_and_resumed_is_the_run_that_was_not(tmp_path):
    X = ["".join(x) for x in itertools.product("ab", repeat=5)]
    options = {
        "teacher_forcing": "scheduled",
        "dropout": 0.2,
        "max_iter": 4,
        "early_stopping": True,
        "batch_size": 8,
    }
    whole = short(**options).fit(X, X)

    class Enough(Exception):
        pass

    part = short(**options, checkpoint=tmp_path)
    evaluator, calls = part._evaluator, []

    def counted(*args):
        evaluate = evaluator(*args)

        def stop_after_two(run):
            calls.append(run)
            if len(calls) == 3:
                raise Enough
            return evaluate(run)

        return stop_after_two

    part._evaluator = counted
    with pytest.raises(Enough):
        part.fit(X, X)
    resumed = short(**options, checkpoint=tmp_path).fit(X, X)
    for p, q in zip(whole.module_.parameters(), resumed.module_.parameters()):
        assert torch.equal(p, q)
    assert whole.history_["validation_score"] == resumed.history_["validation_score"]


def test_partial_fits_are_the_epochs_of_a_fit():
    X = ["".join(x) for x in itertools.product("ab", repeat=4)]
    y = [x.strip("a") for x in X]
    options = {"schedule": None, "batch_size": 4, "n_iter_no_change": 9}
    with certus.config_context(on_uncertified="ignore"):
        whole = short(max_iter=3, **options).fit(X, y)
    parts = short(**options)
    for _ in range(3):
        parts.partial_fit(iter(X), iter(y))
    assert parts.n_iter_ == 3 and not hasattr(parts, "certificate_")
    np.testing.assert_array_equal(
        parts.log_probability(X, y), whole.log_probability(X, y)
    )
    assert certus.certify(parts, X, y)["gradient_ratio"].value < 1e-3
    assert parts.partial_fit(["ab"], ["a" * 7]).longest_ == 7
    with pytest.raises(ValueError, match="'z', which was not in the targets"):
        parts.partial_fit(["ab"], ["z"])


@pytest.mark.parametrize("cell", ["gru", "lstm"])
def test_deep_ones_learn_and_are_saved(cell, tmp_path):
    X = ["".join(x) for n in (2, 3, 4) for x in itertools.product("abc", repeat=n)]
    y = [x[::-1] for x in X]
    model = short(cell=cell, n_layers=2, beam=2, max_iter=30, learning_rate=1e-2)
    assert model.fit(X, y).score(X, y) > 0.95
    single = short(cell=cell, max_iter=1).fit(X, y).module_
    size = sum(p.numel() for p in model.module_.parameters())
    assert size > 1.4 * sum(p.numel() for p in single.parameters())
    back = certus.load(model.save(tmp_path / "m.certus"))
    assert back.predict(X) == model.predict(X) and back.n_layers == 2
    with pytest.raises(ValueError, match="n_layers"):
        short(n_layers=0).fit(X, y)


def test_early_stopping_keeps_the_best_epoch():
    rng = np.random.default_rng(1)
    X = ["".join(rng.choice(list("abc"), size=5)) for _ in range(200)]
    model = short(max_iter=20, learning_rate=1e-2).fit(X, X, X_val=X[:50], y_val=X[:50])
    scores = model.history_["validation_score"]
    assert model.score(X[:50], X[:50]) == pytest.approx(max(scores))
    assert model.best_epoch_ == 1 + int(np.argmax(scores))


def test_the_same_seed_gives_the_same_model_and_leaves_generators_alone():
    X = ["ab", "ba", "aab"]
    torch.manual_seed(3)
    np.random.seed(3)  # noqa: NPY002
    before = torch.random.get_rng_state(), np.random.get_state()[1].copy()  # noqa: NPY002
    a = short(max_iter=2, teacher_forcing=0.5).fit(X, X)
    b = short(max_iter=2, teacher_forcing=0.5).fit(X, X)
    assert torch.equal(torch.random.get_rng_state(), before[0])
    assert (np.random.get_state()[1] == before[1]).all()  # noqa: NPY002
    np.testing.assert_array_equal(a.log_probability(X, X), b.log_probability(X, X))


def test_seq2seq_works_where_scikit_learn_looks_for_estimators():
    X = ["".join(x) for x in itertools.product("ab", repeat=4)] * 2
    found = GridSearchCV(short(max_iter=3), {"width": [4, 24]}, cv=2).fit(X, X)
    assert found.best_params_["width"] == 24
    assert len(cross_val_score(short(max_iter=1), X, X, cv=2)) == 2


def test_lists_end_where_sequences_do():
    found = lists(torch.tensor([[3, 0, 2], [1, 2, 3], [0, 1, 1], [2, -1, -1]]))
    assert [x.tolist() for x in found] == [[3], [1, 2, 3], [], [2]]


@pytest.mark.slow
@pytest.mark.catalog("SEQ-15")
@pytest.mark.parametrize("task", ["reverse", "sort"])
def test_sequences_of_twenty_are_reversed_and_sorted(task):
    rng = np.random.default_rng(0)
    X = rng.integers(10, size=(10_500, 20))
    y = X[:, ::-1] if task == "reverse" else np.sort(X, axis=1)
    model = Seq2Seq(max_iter=12, random_state=0).fit(X[:10_000], y[:10_000])
    assert model.score(X[10_000:], y[10_000:]) > 0.99
