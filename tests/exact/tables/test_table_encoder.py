"""The encoder computes what it says, checked against hand and independent values."""

from __future__ import annotations

import datetime as dt

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse
from sklearn.impute import SimpleImputer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from certus.tables import TableEncoder, load_example
from certus.tables.plan import _median


def small_frame() -> pl.DataFrame:
    return pl.DataFrame(
        {
            "rooms": [1, 2, None, 4, 6],
            "town": ["Bath", "York", "Bath", None, "Hull"],
            "garden": [True, False, True, True, False],
            "sold": [dt.date(2020, 1, d) for d in (1, 2, 3, 4, 9)],
        }
    )


def test_numbers_equal_imputer_and_scaler():
    rng = np.random.default_rng(0)
    X = rng.normal(3.0, 5.0, size=(200, 4))
    X[rng.random(X.shape) < 0.2] = np.nan
    ours = TableEncoder().fit_transform(X)
    scaled = make_pipeline(SimpleImputer(strategy="median"), StandardScaler())
    np.testing.assert_allclose(ours[:, 0::2], scaled.fit_transform(X), atol=1e-12)
    np.testing.assert_array_equal(ours[:, 1::2], np.isnan(X))


def test_one_hot_equals_scikit_learn():
    rng = np.random.default_rng(1)
    X = rng.choice(["a", "b", "c", "d"], size=(50, 3)).astype(object)
    theirs = OneHotEncoder(sparse_output=False).fit_transform(X)
    np.testing.assert_array_equal(TableEncoder().fit_transform(X), theirs)


def test_every_kind_by_hand():
    encoder = TableEncoder(scale=False).fit(small_frame())
    names = [
        *("rooms", "rooms (missing)"),
        *("town=Bath", "town=Hull", "town=York", "town=(missing)"),
        *("garden", "sold (weekday)", "sold (days)"),
    ]
    assert encoder.get_feature_names_out().tolist() == names
    Z = encoder.transform(small_frame())
    # 1 January 2020 was a Wednesday; the median of 1, 2, 4, 6 is 3.
    expected = [
        [1, 0, 1, 0, 0, 0, 1, 3, 0],
        [2, 0, 0, 0, 1, 0, 0, 4, 1],
        [3, 1, 1, 0, 0, 0, 1, 5, 2],
        [4, 0, 0, 0, 0, 1, 1, 6, 3],
        [6, 0, 0, 1, 0, 0, 0, 4, 8],
    ]
    np.testing.assert_array_equal(Z, expected)


def test_scaled_columns_have_mean_zero_and_unit_spread():
    encoder = TableEncoder().fit(small_frame())
    Z = encoder.transform(small_frame())
    names = encoder.get_feature_names_out().tolist()
    for name in ("rooms", "sold (weekday)", "sold (days)"):
        z = Z[:, names.index(name)]
        assert z.mean() == pytest.approx(0.0, abs=1e-15)
        assert z.std() == pytest.approx(1.0)


def test_most_frequent_levels_are_kept_ties_alphabetical():
    levels = ["c"] * 5 + ["b"] * 2 + ["a"] * 2 + ["d"] * 2 + ["e"]
    encoder = TableEncoder(max_categories=3)
    Z = encoder.fit_transform(pl.DataFrame({"x": levels}))
    assert encoder.get_feature_names_out().tolist() == [
        "x=a",
        "x=b",
        "x=c",
        "x=(other)",
    ]
    np.testing.assert_array_equal(Z.sum(axis=0), [2, 2, 5, 3])
    new = encoder.transform(pl.DataFrame({"x": ["d", "never seen", None]}))
    np.testing.assert_array_equal(new, [[0, 0, 0, 1], [0, 0, 0, 1], [0, 0, 0, 0]])


def test_pandas_polars_pyarrow_and_object_array_agree():
    frame = small_frame()
    encoder = TableEncoder().fit(frame)
    expected = encoder.transform(frame)
    pandas = pd.DataFrame(
        {
            "rooms": [1, 2, np.nan, 4, 6],
            "town": ["Bath", "York", "Bath", None, "Hull"],
            "garden": [True, False, True, True, False],
            "sold": pd.to_datetime([f"2020-01-0{d}" for d in (1, 2, 3, 4, 9)]),
        }
    )
    for other in (pandas, frame.to_arrow()):
        np.testing.assert_array_equal(encoder.transform(other), expected)
        np.testing.assert_array_equal(TableEncoder().fit_transform(other), expected)
    objects = np.array(frame.rows(), dtype=object)
    np.testing.assert_array_equal(TableEncoder().fit_transform(objects), expected)
    assert isinstance(frame.to_arrow(), pa.Table)


def test_order_and_extra_columns_do_not_matter():
    frame = small_frame()
    encoder = TableEncoder().fit(frame)
    shuffled = frame.select(reversed(frame.columns)).with_columns(extra=pl.lit(1))
    np.testing.assert_array_equal(encoder.transform(shuffled), encoder.transform(frame))
    assert encoder.check(frame) == []
    assert encoder.check(shuffled) == ['Ignored column not seen in training: "extra".']


@settings(max_examples=50, deadline=None)
@given(
    rows=st.lists(
        st.tuples(
            st.one_of(st.none(), st.integers(-5, 5)),
            st.sampled_from(["a", "b", "c", None]),
            st.booleans(),
            st.integers(0, 400),
            st.integers(0, 3),
        ),
        min_size=4,
        max_size=25,
    )
)
def test_integer_weight_is_repetition(rows):
    start = dt.date(2021, 1, 1)
    base = [
        {"n": 0.0, "c": "a", "b": True, "d": start},
        {"n": 1.5, "c": "b", "b": False, "d": start + dt.timedelta(40)},
    ]
    more = [
        {"n": n, "c": c, "b": b, "d": start + dt.timedelta(d)} for n, c, b, d, _ in rows
    ]
    schema = {"n": pl.Float64, "c": pl.Categorical, "b": pl.Boolean, "d": pl.Date}
    frame = pl.DataFrame(base + more, schema=schema)
    weight = np.array([1, 1, *(row[-1] for row in rows)])
    repeated = frame[np.repeat(np.arange(len(weight)), weight).tolist()]
    weighted = TableEncoder(max_categories=2).fit(frame, sample_weight=weight)
    plain = TableEncoder(max_categories=2).fit(repeated)
    names = plain.get_feature_names_out().tolist()
    assert weighted.get_feature_names_out().tolist() == names
    np.testing.assert_allclose(
        weighted.transform(frame), plain.transform(frame), atol=1e-10
    )


@settings(max_examples=100, deadline=None)
@given(
    st.lists(
        st.tuples(st.floats(-1e300, 1e300), st.integers(1, 5)), min_size=1, max_size=20
    )
)
def test_weighted_median_is_that_of_repeated_values(pairs):
    values = np.array([value for value, _ in pairs])
    weight = np.array([w for _, w in pairs], dtype=float)
    expected = np.median(np.repeat(values, weight.astype(int)))
    assert _median(values, weight) == expected
    assert _median(values, None) == np.median(values)


@settings(max_examples=50, deadline=None)
@given(st.integers(-900, 900), st.integers(0, 2**32 - 1))
def test_units_do_not_matter(exponent, seed):
    x = np.random.default_rng(seed).normal(size=(20, 1)) + 2
    z = TableEncoder().fit_transform(x)
    scaled = TableEncoder().fit_transform(np.ldexp(x, exponent))
    np.testing.assert_allclose(scaled, z, rtol=1e-12, atol=1e-14)


def test_sparse_equals_dense_and_is_chosen_when_wide():
    rng = np.random.default_rng(2)
    frame = pl.DataFrame(
        {f"c{i}": rng.integers(0, 20, 300).astype(str) for i in range(10)}
        | {"x": np.where(rng.random(300) < 0.1, np.nan, rng.normal(size=300))}
    )
    wide = TableEncoder().fit(frame)
    assert wide.sparse_
    Z = wide.transform(frame)
    assert sparse.issparse(Z) and Z.format == "csr"
    assert Z.nnz <= 300 * 12
    dense = TableEncoder(sparse_output=False).fit_transform(frame)
    np.testing.assert_array_equal(Z.toarray(), dense)
    assert not TableEncoder().fit(frame.select("c0", "x")).sparse_


def test_hundred_thousand_levels_stay_sparse():
    levels = pl.Series("c", np.arange(200_000) % 100_000).cast(pl.String)
    frame = pl.DataFrame({"c": levels.cast(pl.Categorical)})
    Z = TableEncoder(max_categories=None).fit_transform(frame)
    assert Z.shape == (200_000, 100_000)
    assert Z.nnz == 200_000
    assert TableEncoder().fit_transform(frame).shape == (200_000, 31)


def test_identifiers_text_and_constants_are_set_aside():
    n = 30
    frame = pl.DataFrame(
        {
            "Id": range(n),
            "customerID": range(n),
            "paid": range(n),
            "code": [f"k{i}" for i in range(n)],
            "story": [
                f"{i}: a long story that is told at length now" for i in range(n)
            ],
            "country": ["UK"] * n,
            "nothing": [None] * n,
            "size": [i % 7 for i in range(n)],
        }
    )
    encoder = TableEncoder(text="drop").fit(frame)
    kinds = {view.name: view.kind for view in encoder.columns_}
    assert kinds == {
        "Id": "identifier",
        "customerID": "identifier",
        "paid": "number",
        "code": "identifier",
        "story": "text",
        "country": "constant",
        "nothing": "empty",
        "size": "number",
    }
    assert encoder.get_feature_names_out().tolist() == ["paid", "size"]
    assert encoder.notes_[0] == '"Id" is not used: one value per row.'
    # What was set aside need not be there later.
    assert encoder.transform(frame.select("size", "paid")).shape == (n, 2)


def test_time_zone_of_training_sets_the_clock():
    berlin = pl.Series("t", [dt.datetime(2021, 3, 1), dt.datetime(2021, 3, 5)])
    berlin = berlin.dt.replace_time_zone("Europe/Berlin")
    encoder = TableEncoder(scale=False).fit(pl.DataFrame(berlin))
    utc = pl.DataFrame(berlin.dt.convert_time_zone("UTC"))
    expected = [[1.0, 0.0], [5.0, 4.0]]
    assert encoder.get_feature_names_out().tolist() == ["t (weekday)", "t (days)"]
    np.testing.assert_array_equal(encoder.transform(utc), expected)
    np.testing.assert_array_equal(encoder.transform(utc.to_pandas()), expected)


def test_fitted_state_is_plain():
    def plain(value):
        if isinstance(value, dict):
            return all(isinstance(k, str) and plain(v) for k, v in value.items())
        if isinstance(value, list | tuple):
            return type(value) in (list, tuple) and all(map(plain, value))
        return value is None or type(value) in (bool, int, float, str, np.ndarray)

    encoder = TableEncoder().fit(small_frame())
    assert all(plain(value) for value in vars(encoder).values())


def test_example_is_the_scikit_learn_data():
    from sklearn.datasets import load_diabetes

    frame, target = load_example()
    theirs = load_diabetes(scaled=False).data
    ours = frame.drop(target).with_columns(pl.col("sex").cast(pl.Float64)).to_numpy()
    np.testing.assert_array_equal(ours, theirs)
    np.testing.assert_array_equal(frame[target], load_diabetes().target)
    assert frame["sex"].dtype == pl.String
