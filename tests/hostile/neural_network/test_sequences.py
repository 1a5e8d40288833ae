"""Sequences as they should not be: the right answer, or a sentence that names it."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse

torch = pytest.importorskip("torch")

from certus.neural_network import (  # noqa: E402
    MultiTaskNetwork,
    RecurrentClassifier,
    RecurrentRegressor,
    Seq2Seq,
    SequenceTagger,
    monte_carlo,
    most_uncertain,
)
from certus.neural_network.modules import MemoryNetwork, TextCNN  # noqa: E402
from certus.text import TextConvClassifier  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore::certus.base.UncertifiedWarning")

WORDS = [["a", "b"], ["b"], ["a", "a", "c"], ["c"]]
SIDES = [0, 1, 0, 1]


def quick(kind, **options):
    return kind(**{"width": 4, "max_iter": 2, "random_state": 0, **options})


@pytest.mark.parametrize(
    "X, told",
    [
        ([], "no sequences|0 sample"),
        (None, "needs X"),
        ("abc", "list of sequences"),
        (5, "list of sequences"),
        (iter(WORDS), "list of sequences"),
        ([["a"], None, ["b"], ["c"]], "Sequence 1 of X is None"),
        ([["a"], 3, ["b"], ["c"]], "Sequence 1 of X is 3"),
        ([["a"], [None], ["b"], ["c"]], "Sequence 1 of X"),
        ([[0.5], [np.nan], [1.0], [2.0]], "Sequence 1 of X holds NaN or infinity at"),
        ([[0.5], [1.0, np.inf], [1.0], [2.0]], "at step 1"),
        (
            [[[1.0, 2.0]], [[1.0]], [[1.0, 2.0]], [[1.0, 2.0]]],
            "Sequence 1 .* 1 numbers",
        ),
        ([[[1.0, 2.0]], [[1.0, 2.0], [3.0]], [[1.0, 2.0]], []], "different widths"),
        ([[1.0], ["a"], [1.0], [2.0]], "Sequence 1 of X is not an array of numbers"),
        ([[1.0], "text", [1.0], [2.0]], "Sequence 1 of X is not an array of numbers"),
        ([np.zeros((2, 2, 2))] * 4, "has 3 axes"),
        (np.zeros((4, 2, 2, 2)), "got 4 axes"),
        (np.zeros(4), "Expected 2D array"),
        (np.array([[1.0, np.nan]] * 4), "NaN"),
        (np.zeros((4, 0)), "0 feature"),
        (sparse.eye(4), "[Ss]parse"),
    ],
)
def test_unreadable_content_is_named(X, told):
    with pytest.raises((ValueError, TypeError), match=told):
        quick(RecurrentClassifier).fit(X, SIDES)


def test_empty_sequences_are_sequences():
    model = quick(RecurrentClassifier).fit([*WORDS, []], [*SIDES, 1])
    p = model.predict_proba([[], ["a"], []])
    assert np.isfinite(p).all() and (p[0] == p[2]).all()
    numbers = quick(RecurrentRegressor).fit([[], [], [0.5]], [1.0, 2.0, 3.0])
    assert np.isfinite(numbers.predict([[], [0.1, 0.2]])).all()
    assert np.isfinite(numbers.predict([[]])).all()


def test_nothing_but_empty_sequences():
    model = quick(RecurrentRegressor).fit([[], [], []], [1.0, 2.0, 3.0])
    assert np.isfinite(model.predict([[], [1.0]])).all()
    with pytest.raises(ValueError, match="no labels"):
        quick(SequenceTagger).fit([[], []], [[], []])


def test_one_sequence_one_step_one_class():
    one = quick(RecurrentRegressor).fit([[0.5]], [1.0])
    assert np.isfinite(one.predict([[0.5]])).all()
    with pytest.raises(ValueError, match="one class"):
        quick(RecurrentClassifier).fit(WORDS, [1, 1, 1, 1])
    with pytest.raises(ValueError, match="one class"):
        quick(SequenceTagger).fit([["a"], ["b"]], [[1], [1]])


def test_ten_classes_of_one_sequence_each():
    X = [[i] for i in range(10)]
    model = RecurrentClassifier(width=32, max_iter=150, random_state=0)
    assert model.fit(X, range(10)).score(X, range(10)) == 1.0


def test_another_kind_than_in_the_fit():
    words = quick(RecurrentClassifier).fit(WORDS, SIDES)
    assert (words.predict([[1, 2]]) == words.predict([["x", "y"]])).all()
    numbers = quick(RecurrentRegressor).fit([[[1.0, 2.0]]] * 3, [1.0, 2.0, 3.0])
    with pytest.raises(
        ValueError, match="3 numbers at each step, but the model was fitted"
    ):
        numbers.predict([[[1.0, 2.0, 3.0]]])
    with pytest.raises(
        ValueError, match="1 numbers at each step, but the model was fitted"
    ):
        numbers.predict([[1.0, 2.0]])
    with pytest.raises(ValueError, match="not an array of numbers"):
        numbers.predict([["a"]])
    table = quick(RecurrentRegressor).fit(np.zeros((4, 5)), np.arange(4.0))
    with pytest.raises(ValueError, match="5 features"):
        table.predict(np.zeros((2, 6)))
    assert table.predict([[0.0] * 6, [0.0]]).shape == (2,)


@pytest.mark.parametrize("scale", [1e-300, 1e30, 1e300])
def test_absurd_scales_end_with_finite_numbers(scale):
    X = [scale * np.ones((3, 2)), -scale * np.ones((2, 2)), np.zeros((1, 2))] * 4
    model = quick(RecurrentRegressor).fit(X, np.arange(12.0))
    assert np.isfinite(model.predict(X)).all()


def test_numbers_beyond_float32_are_reported_for_a_float32_model():
    X = np.random.default_rng(0).random((6, 3, 1), dtype=np.float32)
    model = quick(RecurrentRegressor).fit(X, np.arange(6.0))
    with pytest.raises(ValueError, match="too large for"):
        model.predict([[1e300]])


@pytest.mark.parametrize(
    "y, told",
    [
        ([[1, 0], [0], [1, 1], [0]], "Sequence 2 of X has 3 elements and 2 labels"),
        (
            [[1, 0], [0], [1, 1, 1, 0], [0]],
            "Sequence 2 of X has 3 elements and 4 label",
        ),
        ([[1, 0], [0], [1, 1, 1]], "inconsistent numbers of samples: 4 and 3"),
        ([0, 1, 0, 1], "Sequence 0 of y is 0"),
        ([[1, 0], ["x"], [1, 1, 0], [0]], "strings in sequence 1 and numbers"),
        ([[1, 0], [np.nan], [1, 1, 0], [0]], "sequence 1 hold NaN"),
        ([[1, 0], [None], [1, 1, 0], [0]], "sequence 1 hold None"),
        ([[1, 0], [[0, 1]], [1, 1, 0], [0]], "sequence 1 .* shape"),
        (None, "needs y"),
    ],
)
def test_labels_that_do_not_fit_are_named(y, told):
    with pytest.raises(ValueError, match=told):
        quick(SequenceTagger).fit(WORDS, y)


def test_labels_are_looked_at_wherever_they_come():
    y = [[1, 0], [0], [1, 1, 0], [0]]
    model = quick(SequenceTagger).fit(WORDS, y)
    with pytest.raises(ValueError, match="Sequence 0 of X_val has 2 elements and 1"):
        quick(SequenceTagger).fit(WORDS, y, X_val=WORDS[:1], y_val=[[1]])
    with pytest.raises(ValueError, match="Sequence 1 of X has 1 element and 2 labels"):
        model.partial_fit(WORDS[:2], [[1, 0], [1, 0]])
    with pytest.raises(ValueError, match="2 elements and 1 label"):
        model.score(WORDS, [[1], [0], [1, 1, 0], [0]])
    with pytest.raises(ValueError, match="not fitted on"):
        model.partial_fit(WORDS[:2], [[1, 7], [1]])


@pytest.mark.parametrize(
    "options, told",
    [
        ({"width": 0}, "width"),
        ({"cell": "lstn"}, "cell"),
        ({"n_layers": 0}, "layers"),
        ({"dropout": 1.5}, "dropout"),
        ({"embedding": 0}, "embedding"),
        ({"embedding": "yes"}, "embedding"),
        ({"pooling": "max"}, "pooling"),
        ({"clip": 0}, "clip"),
        ({"embedding": None}, "not an array of numbers"),
    ],
)
def test_wrong_parameters_are_named(options, told):
    with pytest.raises((ValueError, TypeError), match=told):
        quick(RecurrentClassifier, **options).fit(WORDS, SIDES)


def test_a_huge_learning_rate_leaves_finite_weights():
    X = [np.ones((5, 1)), np.zeros((3, 1))] * 5
    model = quick(RecurrentRegressor, learning_rate=1e30, max_iter=5)
    model.fit(X, np.arange(10.0))
    assert all(torch.isfinite(p).all() for p in model.module_.parameters())


def test_one_very_long_sequence_among_short_ones():
    X = [["a"] * 3000, *WORDS]
    model = quick(SequenceTagger, max_iter=1)
    model.fit(X, [[0] * 3000, [1, 0], [0], [1, 1, 0], [0]])
    assert [len(p) for p in model.predict(X)] == [3000, 2, 1, 3, 1]


def test_global_generators_are_left_alone():
    state = torch.random.get_rng_state(), np.random.get_state()[1].copy()  # noqa: NPY002
    quick(RecurrentClassifier, dropout=0.5).fit(WORDS, SIDES).predict(WORDS)
    assert torch.equal(torch.random.get_rng_state(), state[0])
    assert (np.random.get_state()[1] == state[1]).all()  # noqa: NPY002


@pytest.mark.parametrize("kind", [RecurrentClassifier, RecurrentRegressor])
@pytest.mark.parametrize(
    "X, told",
    [
        ([{"a", "b"}, {"b"}, {"c"}, {"d"}], "Sequence 0 of X is"),
        ([["a"], iter("ab"), ["b"], ["c"]], "Sequence 1 of X is"),
        ([(c for c in "ab") for _ in range(4)], "Sequence 0 of X is"),
        ({"a": [1], "b": [2]}, "X is a dict"),
    ],
    ids=["sets", "iterator", "generators", "dictionary"],
)
def test_sets_and_iterators_are_refused(kind, X, told):
    with pytest.raises(ValueError, match=told):
        quick(kind).fit(X, SIDES)


@pytest.mark.parametrize(
    "kind", ["tagger", "several tasks", "sequences from sequences"]
)
def test_draws_without_a_mean_are_refused(kind):
    model = {
        "tagger": SequenceTagger(dropout=0.5),
        "several tasks": MultiTaskNetwork(None),
        "sequences from sequences": Seq2Seq(dropout=0.5),
    }[kind]
    with pytest.raises(TypeError, match="needs a classifier or a regressor"):
        monte_carlo(model, WORDS)
    with pytest.raises(TypeError, match="predict_proba"):
        most_uncertain(RecurrentRegressor(), WORDS)


@pytest.mark.parametrize(
    "make",
    [
        lambda: TextCNN(0, 2),
        lambda: TextCNN(5, 2, widths=()),
        lambda: TextCNN(5, 2, widths="abc"),
        lambda: MemoryNetwork(0, 2),
        lambda: MemoryNetwork(3, 0),
    ],
)
def test_networks_without_words_are_refused(make):
    with pytest.raises(ValueError, match="whole number"):
        make()


def test_no_texts_to_predict():
    texts = ["good film", "bad film", "good", "bad"]
    model = TextConvClassifier(max_iter=1, random_state=0).fit(texts, [1, 0, 1, 0])
    with pytest.raises(ValueError, match="X holds no texts"):
        model.predict([])
    with pytest.raises(ValueError, match="widths must be a list of whole numbers"):
        TextConvClassifier(widths=None).fit(texts, [1, 0, 1, 0])
