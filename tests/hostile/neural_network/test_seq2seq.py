"""Sequences that are none, parameters that cannot be, encoders that do not fit."""

from __future__ import annotations

import numpy as np
import pandas as pd
import polars as pl
import pytest
from sklearn.exceptions import NotFittedError

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

from certus.neural_network import Seq2Seq  # noqa: E402

X, Y = ["ab", "ba", "a"], ["b", "aa", ""]


def tiny(**options):
    return Seq2Seq(**{"width": 4, "max_iter": 1, "random_state": 0, **options})


@pytest.mark.parametrize(
    ("sources", "targets", "match"),
    [
        ("ab", Y, "X is a single string"),
        (X, "ab", "y is a single string"),
        (X, None, "y is missing"),
        (None, Y, "X is missing"),
        (5, Y, "X is a int"),
        ({"a": 1}, Y, "X is a dict"),
        (pd.DataFrame({"a": X}), Y, "the column that holds them"),
        ([], [], "no sequences"),
        ([1, 2, 3], Y, r"Sequence 0 of X is 1 \(int\)"),
        ([b"ab", "a", "b"], Y, "Sequence 0 of X is b'ab'"),
        ([["a", None], "a", "b"], Y, "Sequence 0 of X holds None"),
        ([["a"], [np.nan], "b"], Y, "Sequence 1 of X holds nan"),
        (X, [[np.inf], [], []], "Sequence 0 of y holds inf"),
        ([[["a"]], "a", "b"], Y, r"Sequence 0 of X holds \['a'\]"),
        (np.zeros((3, 2, 2)), Y, "Sequence 0 of X holds array"),
        (X, Y[:2], "inconsistent numbers of samples: 3 and 2"),
    ],
)
def test_input_that_is_not_a_pair_of_sequences_is_reported(sources, targets, match):
    with pytest.raises(ValueError, match=match):
        tiny().fit(sources, targets)


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"width": 0}, "width must be"),
        ({"cell": "tree"}, "cell must be one of"),
        ({"attention": "much"}, "attention must be one of"),
        ({"teacher_forcing": 1.5}, "teacher_forcing must be"),
        ({"teacher_forcing": "often"}, "teacher_forcing must be"),
        ({"dropout": -0.1}, "dropout must be"),
        ({"beam": 0}, "beam must be"),
        ({"beam": 10**6}, "at most 1000"),
        ({"max_length": -1}, "max_length must be"),
        ({"encoder": 3}, "encoder must be an nn.Module"),
        ({"label_smoothing": 2}, "label_smoothing must be"),
        ({"learning_rate": 0}, "learning_rate must be"),
    ],
)
def test_impossible_parameters_are_refused(options, match):
    with pytest.raises((ValueError, TypeError), match=match):
        tiny(**options).fit(X, Y)


def test_unfitted_and_mispaired():
    with pytest.raises(NotFittedError):
        tiny().predict(X)
    model = tiny().fit(X, Y)
    for call in (model.log_probability, model.attention_weights, model.score):
        with pytest.raises(ValueError, match="X holds 3 sequences and y 2"):
            call(X, Y[:2])
    with pytest.raises(ValueError, match="y holds the token 'z'"):
        tiny().fit(X, Y, X_val=["a"], y_val=["z"])
    with pytest.raises(ValueError, match="X_val and y_val"):
        tiny().fit(X, Y, X_val=["a"])
    with pytest.raises(ValueError, match="sample_weight"):
        tiny().fit(X, Y, sample_weight=[1, -1, 1])


def test_empty_single_and_long_sequences():
    alone = tiny().fit(["a"], ["b"])
    assert isinstance(alone.predict(["a"])[0], str)
    empty = tiny(max_iter=30, learning_rate=0.05).fit(["", ""], ["", ""])
    assert empty.predict(["", "x"]) == ["", ""] and empty.score([""], [""]) == 1.0
    assert empty.log_probability([""], [""])[0] == pytest.approx(0.0, abs=1e-6)
    long = tiny().fit(["a" * 300, "b"], ["b", "a" * 200])
    assert max(map(len, long.predict(["a" * 1000]))) <= 400
    assert len(tiny(max_length=0).fit(X, Y).predict(X)[0]) == 0


def test_columns_of_frames_serve():
    rows = [["a", "b"], ["b"], ["a"]]
    plain = tiny().fit(rows, rows)
    for column in (pd.Series(rows), pl.Series(rows), np.array(rows, dtype=object)):
        model = tiny().fit(column, column)
        assert model.loss_ == plain.loss_ and model.predict(column) == plain.predict(
            rows
        )


def test_a_huge_learning_rate_ends_with_finite_weights():
    from certus.base import UncertifiedWarning

    model = tiny(learning_rate=1e38, clip=None, optimizer="sgd", max_iter=5)
    with pytest.warns(UncertifiedWarning):
        model.fit(X, Y)
    assert all(bool(torch.isfinite(p).all()) for p in model.module_.parameters())


class Nowhere(nn.Module):
    width = 4

    def forward(self, x):
        return x


def test_an_encoder_that_does_not_fit():
    pictures = np.zeros((3, 2, 2))
    with pytest.raises(ValueError, match="encoder does not fit"):
        tiny(encoder=Nowhere()).fit(pictures, Y)
    with pytest.raises(TypeError, match="attribute width"):
        tiny(encoder=nn.Linear(2, 2)).fit(pictures, Y)


@pytest.mark.parametrize("odd", [{"a", "b"}, iter("ab"), (c for c in "ab")])
def test_sets_and_iterators_are_refused(odd):
    with pytest.raises(ValueError, match="Sequence 1 of X is"):
        Seq2Seq(width=4, max_iter=1).fit(["ab", odd], ["a", "b"])
