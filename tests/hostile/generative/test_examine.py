"""Planted faults in synthetic rows are found, and odd tables are read or refused."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import polars as pl
import pytest

from certus.generative import examine


def table(rng: np.random.Generator, n: int) -> pl.DataFrame:
    x = rng.normal(size=(n, 3))
    return pl.DataFrame(
        {
            "a": x[:, 0],
            "b": x[:, 0] + x[:, 1],
            "c": np.round(x[:, 2] * 20).astype(int),
            "d": np.where(x[:, 1] > 0, "up", "down"),
        }
    )


RNG = np.random.default_rng(0)
REAL, HOLD, FRESH = (table(RNG, 500) for _ in range(3))


def test_a_tenth_of_copied_rows() -> None:
    made = pl.concat([FRESH.head(450), REAL.head(50)])
    found = examine(REAL, HOLD, made, random_state=0)
    assert found.flagged and found.copies == 50 and found.copy_p_value < 1e-3
    assert found["exact_copies"].met is False and "copy" in found.verdict
    assert not examine(REAL, HOLD, FRESH, random_state=0).flagged


def test_real_and_holdout_swapped() -> None:
    made = REAL.with_columns(pl.col("a") + 1e-6)
    found = examine(HOLD, REAL, made, random_state=0)
    claim = found["holdout_unseen"]
    assert claim.met is False and "swapped" in claim.fix and "seen" in found.verdict
    assert examine(REAL, HOLD, made, random_state=0)["holdout_unseen"].met


def test_a_shifted_column_is_named() -> None:
    made = FRESH.with_columns(pl.col("b") + 1.0)
    claim = examine(REAL, HOLD, made, random_state=0)["columns_agree"]
    assert '"b"' in claim.detail and claim.value > 0.2
    worst = max(examine(REAL, HOLD, made, random_state=0).columns, key=lambda c: c.low)
    assert worst.name == "b" and worst.low > 0.1


def test_a_broken_pair_is_named() -> None:
    made = FRESH.with_columns(FRESH["a"].shuffle(seed=1))
    found = examine(REAL, HOLD, made, random_state=0)
    assert max(found.columns, key=lambda c: c.low).low == 0.0
    assert max(found.pairs, key=lambda c: c.low).name == "a × b"


def test_forged_numbers_do_not_come_out_again() -> None:
    made = pl.concat([FRESH.head(400), REAL.head(100)])
    found = examine(REAL, HOLD, made, target="d", random_state=0)
    assert found.recheck(REAL, HOLD, made) == ()
    assert found.recheck(REAL, HOLD, FRESH)  # other rows
    assert "p_value" in replace(found, p_value=0.6).recheck(REAL, HOLD, made)
    claims = [
        replace(c, value=0.01, met=True) if c.name == "memorised" else c
        for c in found.claims
    ]
    forged = replace(found, claims=tuple(claims))
    assert forged.recheck(REAL, HOLD, made) == ("memorised",)
    hidden = [c for c in found.claims if c.name != "exact_copies"]
    assert replace(found, claims=tuple(hidden)).recheck(REAL, HOLD, made) == (
        "exact_copies",
    )


def test_a_handful_of_rows_gets_no_guarantee() -> None:
    found = examine([[1.0, 2.0]], [[1.5, 2.0]], [[1.0, 2.0]], random_state=0)
    assert found["memorised"].met is None and not found.flagged and found.copies == 1
    assert found["told_apart"].strength == "refused"
    assert found["columns_agree"].value == 1.0


def test_constant_empty_and_duplicate_columns() -> None:
    def odd(n: int) -> pl.DataFrame:
        return pl.DataFrame({"k": [1.0] * n, "e": [None] * n, "x": RNG.random(n)})

    found = examine(odd(60), odd(50), odd(40), target="k", random_state=0)
    assert {c.name: c.value for c in found.columns}["k"] == 0.0
    same = [pl.DataFrame({"k": ["v"] * n}) for n in (50, 60, 70)]
    found = examine(*same, random_state=0)
    assert found.copies == 70 and not found.flagged and found.nearest_share == 0.5


def test_labels_that_training_rows_lack_and_heavy_tails() -> None:
    made = FRESH.with_columns(pl.lit("sideways").alias("d"), pl.col("a").exp() * 1e100)
    found = examine(REAL, HOLD, made, target="d", random_state=0)
    assert {c.name: c.value for c in found.columns}["d"] == 1.0
    assert found.synthetic_score == 0.0 and found["told_apart"].value > 0.9


@pytest.mark.parametrize(
    ("made", "words"),
    [
        (FRESH.drop("c"), "lacks"),
        (FRESH.with_columns(z=1), "has columns that real lacks"),
        (FRESH.with_columns(pl.col("a").cast(pl.String)), "must have one type"),
        (FRESH.with_columns(a=pl.lit(np.inf)), "infinite"),
        (FRESH.head(0), "at least one row"),
    ],
)
def test_tables_that_do_not_fit_are_refused(made: pl.DataFrame, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        examine(REAL, HOLD, made)


def test_parameters_are_checked() -> None:
    for words, options in (
        ("delta", {"delta": 0.9}),
        ("coin", {"coin": 1.0}),
        ("to predict", {"target": "D"}),
    ):
        with pytest.raises(ValueError, match=words):
            examine(REAL, HOLD, FRESH, **options)
