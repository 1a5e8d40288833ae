"""Hostile input of the criteria: a sentence, or the right answer."""

from __future__ import annotations

import math
import time
from datetime import date

import numpy as np
import pandas as pd
import polars as pl
import pytest

from certus.fairness import (
    calibration,
    exclusivity,
    independence,
    separation,
    sufficiency,
)

A = ["a", "b", "a", "b"]
Y = [0, 1, 1, 0]


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: independence(Y, A[:3]), "3 rows.*4"),
        (lambda: separation(Y[:3], Y, A), "numbers of rows must be equal"),
        (lambda: independence([], []), "no rows"),
        (lambda: independence([0, 1, math.nan, 1], A), "no value in 1 rows"),
        (lambda: independence(["x", None, "y", "x"], A), "no value in 1 rows"),
        (lambda: independence([0.1, math.inf, 0.3, 0.2], A), "NaN or infinity"),
        (lambda: independence(np.eye(4), A), "one value per row"),
        (lambda: independence(Y, np.zeros((4, 0))), "one column per attribute"),
        (lambda: independence(Y, np.zeros((4, 1, 1))), "one value per row"),
        (lambda: independence(Y, A, positive=7), "positive=7 does not occur"),
        (lambda: independence(Y, A, delta=0), "delta must be a probability"),
        (
            lambda: independence(Y, A, tolerance=-1),
            "tolerance must be a number of at least 0, got -1",
        ),
        (
            lambda: independence(Y, A, tolerance=math.nan),
            "tolerance must be a number of at least 0, got nan",
        ),
        (
            lambda: independence(Y, A, tolerance=None),
            "tolerance must be a number of at least 0, got None",
        ),
        (lambda: independence(np.ma.array(Y, mask=Y), A), "no value in 2 rows"),
        (lambda: independence(Y, A, sample_weight=[1, 1, -1, 1]), "negative"),
        (lambda: independence(Y, A, sample_weight=[0] * 4), "zero everywhere"),
        (
            lambda: independence(Y, A, sample_weight=[1]),
            "numbers of rows must be equal",
        ),
        (lambda: separation(["0", "1", "1", "0"], Y, A), "different types"),
        (lambda: independence(np.arange(60), ["a", "b"] * 30), "scores=True"),
        (lambda: independence(Y, [[1], [[2]], [1], [2]]), "text or numbers"),
        (lambda: independence(["x", "y", "x", "y"], A, scores=True), "numbers"),
        (lambda: calibration(Y, [0.1, 2.0, 0.3, 0.4], A), "probabilities in"),
        (lambda: calibration([0, 1, 2, 1], [0.1] * 4, A), "positive= to name"),
        (lambda: calibration(Y, [0.1] * 4, A, bins=0), "bins must be at least 1"),
        (lambda: calibration(Y, [0.1] * 4, A, bins=2.0), "must be a whole number"),
        (lambda: calibration(Y, [0.1] * 4, A, bins="few"), "must be a whole number"),
        (lambda: calibration(Y, [0.1] * 4, A, bins=[0.5, 0.2]), "ascending order"),
        (lambda: calibration(Y, [0.1] * 4, A, bins=[0.2, 1]), "outside the bins"),
        (lambda: sufficiency(Y, [0.1, 5.5, 2, 3], A), "pass the edges"),
        (lambda: independence(Y, A)["nothing"], "not among selection_rate"),
    ],
)
def test_faults_are_reported(call, said) -> None:
    with pytest.raises((TypeError, ValueError, KeyError), match=said):
        call()


def test_amounts_are_not_groups_but_codes_with_a_fraction_are() -> None:
    rng = np.random.default_rng(0)
    with pytest.raises(ValueError, match="ranges first"):
        independence(rng.integers(0, 2, 100), rng.normal(size=100))
    with pytest.raises(ValueError, match="at most 500"):
        independence(rng.integers(0, 2, 600), np.arange(600))
    assert len(independence([0, 1], [0.5, 1.5]).groups) == 2


def test_one_group_one_row_and_groups_of_one_row() -> None:
    alone = independence([1, 0, 1], ["a"] * 3)
    assert math.isnan(alone.difference) and math.isnan(alone.ratio)
    assert "only one group" in alone.verdict and alone.holds is None
    assert math.isnan(independence([1], ["a"]).difference)
    tiny = separation([1, 0, 1], [1, 0, 0], ["a", "b", "c"])
    assert tiny.verdict.startswith("too few rows") and tiny.holds is None
    assert tiny["true_positive_rate"]["a"] == 1.0
    assert math.isnan(tiny["true_positive_rate"]["b"])
    i = tiny.metrics.index("true_positive_rate")
    assert (tiny.low[i, 1], tiny.high[i, 1]) == (0.0, 1.0)


def test_nothing_to_compare_is_reported() -> None:
    table = separation([1, 1, 0, 0], [1, 0, 1, 0], ["a", "a", "b", "b"])
    assert "fewer than two groups" in table.verdict and math.isnan(table.difference)
    assert str(table) and table.to_dict()["holds"] is None


@pytest.mark.parametrize("score", [0.5, 0.0, 1.0, 1e300, -1e300])
def test_a_constant_score_has_no_gap(score) -> None:
    rows = 8000
    a = ["a", "b"] * (rows // 2)
    table = independence([score] * rows, a, scores=True)
    assert table.difference == 0.0 and table["mean_score"]["a"] == pytest.approx(score)
    assert table.gap("score_distribution").low == 0.0


def test_scores_of_absurd_size_do_not_overflow() -> None:
    table = independence([1e308, -1e308, 1e308, -1e308], A, scores=True)
    assert np.isfinite(table.values).all()
    assert table["mean_score"] == {"a": 1e308, "b": -1e308}


def test_any_container_is_accepted() -> None:
    wanted = independence(Y, A)["selection_rate"]
    for a in (
        pd.Series(A),
        pd.Categorical(A),
        pd.Series(A, dtype="string"),
        np.array(A),
        np.array(A)[:, None],
        tuple(A),
    ):
        assert independence(pd.Series(Y), a)["selection_rate"] == wanted
    missing = pd.Series(["a", pd.NA, "a", None], dtype="string")
    assert independence(Y, missing).groups == ("a", None)
    times = pd.Series(pd.to_datetime(["2020-01-01", None, "2020-01-01", None]))
    assert independence(Y, times).groups[1] is None
    assert independence(np.array(Y, dtype=bool), A)["selection_rate"] == wanted
    assert independence(np.array(Y, dtype=float), A)["selection_rate"] == wanted


def test_attributes_of_any_type_make_the_same_groups() -> None:
    """With missing values; numbers, dates, categories that never occur."""
    known = [True, None, False, True, None, False]
    day = {True: date(2020, 1, 2), False: date(2020, 1, 1), None: None}
    word = {True: "b", False: "a", None: None}
    d, wanted = [1, 0, 0, 1, 1, 1], [0.5, 1.0, 0.5]
    words = [word[v] for v in known]
    for a in (
        pd.Series(known, dtype="boolean"),
        pd.Series([None if v is None else int(v) for v in known], dtype="Int64"),
        pd.Categorical(words, categories=["a", "b", "never"]),
        pl.Series("s", words, dtype=pl.Categorical),
        pl.Series("s", words, dtype=pl.Enum(["b", "never", "a"])),
        pl.Series("s", [day[v] for v in known]),
        np.array([math.nan if v is None else 0.5 + v for v in known]),
        pd.DataFrame({"s": words}, index=[5, 3, 1, 0, 2, 4]),
    ):
        table = independence(d, a)
        assert table.values[0].tolist() == wanted and table.groups[2] is None
    assert independence(d, pl.Series("s", words)).attributes == ("s",)


def test_a_group_without_weight_has_no_rate() -> None:
    w = [1.0, 0.0, 2.0, 0.0]
    table = independence(Y, A, sample_weight=w)
    assert math.isnan(table["selection_rate"]["b"]) and math.isnan(table.difference)
    assert "fewer than two groups" in table.verdict
    scored = independence([0.1, 0.2, 0.3, 0.4], A, sample_weight=w)
    assert math.isnan(scored.difference) and scored["mean_score"]["b"] != 0


@pytest.mark.slow
@pytest.mark.parametrize("attributes", [1, 2])
def test_a_million_rows_take_seconds(attributes) -> None:
    rng = np.random.default_rng(0)
    y, d = rng.integers(0, 2, (2, 1_000_000))
    a = rng.choice(list("abcde"), (1_000_000, attributes))
    separation(y[:10], d[:10], a[:10])
    start = time.process_time()
    table = separation(y, d, a)
    assert len(table.groups) == 5**attributes and table.counts.sum() == 1_000_000
    calibration(y, rng.random(1_000_000), a)
    independence(rng.random(1_000_000), rng.integers(0, 20, 1_000_000))
    assert time.process_time() - start < 10


def test_labels_from_a_file_cannot_steer_the_terminal() -> None:
    assert "\x1b" not in str(independence(Y, ["\x1b[31ma", "b"] * 2))


def test_numbers_among_objects_are_numbers_and_masked_values_missing() -> None:
    wanted = separation(Y, Y, A).to_dict()
    for kind in (int, bool, float):
        odd = np.array(Y, dtype=kind).astype(object)
        assert separation(odd, Y, A).to_dict() == wanted
    hidden = np.ma.array(["a", "b", "a", "b"], mask=[0, 0, 1, 0])
    assert independence(Y, hidden)["selection_rate"] == {"a": 0.0, "b": 0.5, None: 1.0}


@pytest.mark.parametrize("scale", [5e-324, 1e308])
def test_the_scale_of_weights_says_nothing(scale: float) -> None:
    score, w = [0.1, 0.6, 0.9, 0.2], [scale] * 4
    for call in (
        lambda **more: independence(Y, A, **more),
        lambda **more: independence(score, A, **more),
        lambda **more: calibration(Y, score, A, **more),
    ):
        plain, weighted = call(), call(sample_weight=w)
        np.testing.assert_allclose(weighted.values, plain.values, atol=1e-15)


def test_narrow_bins_and_attributes_of_one_name_are_distinguished() -> None:
    table = calibration(Y, [0.1, 0.50001, 0.500015, 0.9], A, bins=2000)
    assert len(set(table.metrics)) == len(table.metrics)
    both = pd.DataFrame({"metric": A, "group_metric": Y})
    frame = independence(Y, both).to_frame()
    assert frame["group_metric"].to_list() == ["a", "a", "b", "b"]
    assert frame["group_group_metric"].to_list() == ["0", "1", "0", "1"]
    twice = independence(Y, both.set_axis(["g", "g"], axis=1)).to_frame()
    assert twice.columns[1:3] == ["g", "group_g"]


def test_errors_name_their_cause() -> None:
    amounts = pd.DataFrame({"debt": np.linspace(0, 1, 600)})
    with pytest.raises(ValueError, match='"debt" of sensitive holds 600'):
        independence([0, 1] * 300, amounts)
    with pytest.raises(ValueError, match="Attribute 0 of sensitive holds 600"):
        independence([0, 1] * 300, amounts.to_numpy())
    with pytest.raises(ValueError, match="y_pred > t"):  # it takes no scores=True
        exclusivity(Y, [0.1, 0.6, 0.9, 0.2], A)
