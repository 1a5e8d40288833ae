"""Broken files and odd tables get one clear sentence, or a sensible matrix."""

from __future__ import annotations

import datetime as dt
import decimal
import gzip
import pathlib

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from scipy import sparse
from sklearn.linear_model import LogisticRegression, Ridge

from certus.tables import TableEncoder, TableError, TablePipeline, read_table

# --- files --------------------------------------------------------------------

FRAME = pl.DataFrame({"rooms": [1, 2, 3], "town": ["Bath", None, "York"]})


def write(frame: pl.DataFrame, path: pathlib.Path) -> None:
    writers = {
        ".csv": frame.write_csv,
        ".tsv": lambda p: frame.write_csv(p, separator="\t"),
        ".parquet": frame.write_parquet,
        ".feather": frame.write_ipc,
        ".arrow": frame.write_ipc_stream,
        ".ipc": frame.write_ipc,
        ".jsonl": frame.write_ndjson,
        ".ndjson": frame.write_ndjson,
    }
    if path.suffix == ".gz":
        plain = path.with_suffix("")
        writers[plain.suffix](plain)
        path.write_bytes(gzip.compress(plain.read_bytes()))
    else:
        writers[path.suffix.lower()](path)


@pytest.mark.parametrize(
    "name",
    [
        *("a.csv", "a.tsv", "a.parquet", "a.feather", "a.arrow", "a.ipc", "a.jsonl"),
        *("a.ndjson", "a.csv.gz", "a.tsv.gz", "a.jsonl.gz", "a.b.CSV", "[a]*.csv"),
    ],
)
def test_every_format_comes_back(tmp_path, name):
    write(FRAME, tmp_path / name)
    assert read_table(tmp_path / name).equals(FRAME)
    assert read_table(str(tmp_path / name), columns=["town"]).columns == ["town"]


BROKEN = {
    "empty.csv": (b"", "empty: 0 bytes"),
    "blank.csv": (b"\n\n \n", "only white space"),
    "header.csv": (b"a,b\n", "no rows"),
    "gaps.csv": (b"a,b\n,\n,\n", "no rows"),
    "long.csv": (b"a,b\n1,2\n1,2,3\n", "line 3: 3 cells, but the header has 2"),
    "short.csv": (b"a,b,c\n1,2,3\n1,2\n4,5,6\n", "line 3: 2 cells"),
    "short.tsv": (b"a\tb\n1\t2\n1\n", "line 3: 1 cell,"),
    "twice.csv": (b"a,b,a\n1,2,3\n", 'more than one column named "a"'),
    "russian.csv": ("a,b\n1,слово\n".encode("cp1251"), "Name its encoding"),
    "noise.csv": (bytes(range(256)) * 4, "binary data"),
    "quote.csv": (b'a,b\n"x,1\n2,3\n', "damaged|cell"),
    "noise.parquet": (b"PAR1" + bytes(range(256)), "damaged, cut short"),
    "noise.feather": (b"ARROW1" + bytes(range(256)), "damaged, cut short"),
    "noise.arrow": (bytes(range(256)), "damaged, cut short"),
    "noise.jsonl": (b"{not json\n", "damaged, cut short"),
    "list.jsonl": (b"[1, 2\n", "damaged, cut short"),
    "noise.csv.gz": (b"a,b\n1,2\n", "damaged or cut short|damaged, cut short"),
    "cut.csv.gz": (gzip.compress(b"a,b\n1,2\n" * 999)[:30], "damaged"),
    "table.xlsx": (b"PK", "several sheets. Save the sheet you want as CSV"),
    "tables.zip": (b"PK", "several files. Unpack it"),
    "table": (b"a,b\n1,2\n", "Supported: .csv .tsv"),
    "table.parquet.gz": (b"x", "Supported: .csv .tsv"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_broken_files(tmp_path, name):
    content, message = BROKEN[name]
    (tmp_path / name).write_bytes(content)
    with pytest.raises(TableError, match=message) as caught:
        read_table(tmp_path / name)
    assert name.split(".")[0] in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["a.parquet", "a.feather", "a.arrow", "a.csv.gz"])
def test_cut_short_at_every_place(tmp_path, name):
    rng = np.random.default_rng(0)
    write(pl.DataFrame({"x": rng.normal(size=200)}), tmp_path / name)
    content = (tmp_path / name).read_bytes()
    cut = tmp_path / f"cut_{name}"
    for size in np.linspace(1, len(content) - 12, 12).astype(int):
        cut.write_bytes(content[:size])
        with pytest.raises(TableError):
            read_table(cut)


@settings(
    max_examples=100,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(
    content=st.binary(max_size=200),
    suffix=st.sampled_from([".csv", ".tsv", ".jsonl", ".parquet", ".feather"]),
)
def test_any_bytes_give_a_table_or_a_clear_error(tmp_path, content, suffix):
    file = tmp_path / f"fuzz{suffix}"
    file.write_bytes(content)
    try:
        frame = read_table(file)
    except TableError:
        return
    assert frame.height > 0


def test_missing_file_suggests_a_near_name(tmp_path):
    (tmp_path / "houses.csv").write_text("a\n1\n")
    with pytest.raises(TableError, match=r'no file .*Did you mean "houses.csv"'):
        read_table(tmp_path / "house.csv")
    with pytest.raises(TableError, match="no file"):
        read_table(tmp_path / "nowhere" / "house.csv")
    with pytest.raises(TableError, match="is a folder"):
        read_table(tmp_path)


def test_missing_column_suggests_a_near_name(tmp_path):
    write(FRAME, tmp_path / "a.csv")
    with pytest.raises(TableError, match=r'no column "Rooms"\. .* "rooms"'):
        read_table(tmp_path / "a.csv", columns=["Rooms"])


def test_forbidden_file(tmp_path, monkeypatch):
    def refuse(*args, **kwargs):
        raise PermissionError(13, "Permission denied")

    write(FRAME, tmp_path / "a.csv")
    # Not by chmod: a test run as root could read the file all the same.
    monkeypatch.setattr("certus.tables.delimited.open_bytes", refuse)
    with pytest.raises(TableError, match="permission denied"):
        read_table(tmp_path / "a.csv")


def test_wide_header_is_read_whole(tmp_path):
    names = [f"column_{i}" for i in range(7_000)]
    text = ",".join(names) + "\n" + ",".join("1" for _ in names) + "\n"
    (tmp_path / "a.csv").write_text(text)
    assert read_table(tmp_path / "a.csv").columns == names


def test_csv_types_are_inferred_over_the_whole_file(tmp_path):
    rows = "".join(
        f"{i}, {i}.5,2020-01-{i % 28 + 1:02d},NA,true\n" for i in range(5000)
    )
    text = "\ufeffn, spaced,day,gap,flag\n" + rows + "0.25,?,NaT,7,false\n\n"
    (tmp_path / "a.csv").write_text(text, encoding="utf-8")
    frame = read_table(tmp_path / "a.csv")
    assert frame.height == 5001
    types = [pl.Float64, pl.Float64, pl.Date, pl.Int64, pl.Boolean]
    assert frame.dtypes == types
    assert frame.null_count().row(0) == (0, 1, 1, 5000, 0)


@pytest.mark.parametrize(
    ("cells", "dtype"),
    [
        (["2020-01-02", "2020-01-03 10:00"], pl.Datetime("us")),
        (["2020-01-02T10:00:00Z", "NA"], pl.Datetime("us", "UTC")),
        (["15/02/2020", "01/02/2020"], pl.Date),
        (["2020-01-02", "2020-02-30"], pl.String),
        (["TRUE", "False"], pl.Boolean),
        (["+5", " -6"], pl.Int64),
        (["99999999999999999999", "1"], pl.Float64),
        (["1e5", "inf"], pl.Float64),
        (["1"] * 200 + ["one"], pl.String),
        (["20200102", "20200103"], pl.Int64),
        (["?", "NA"], pl.String),
    ],
)
def test_type_of_a_csv_column(tmp_path, cells, dtype):
    text = "a,b\n" + "".join(f"{cell},1\n" for cell in cells)
    (tmp_path / "a.csv").write_text(text)
    assert read_table(tmp_path / "a.csv")["a"].dtype == dtype


def test_csv_of_other_habits(tmp_path):
    file = tmp_path / "a.csv"
    file.write_bytes(b"a;b\r\n1;x,y\r\n2;z\r\n")
    assert read_table(file).rows() == [(1, "x,y"), (2, "z")]
    file.write_text(',a\n0,"two\nlines"\n1,b\n')
    assert read_table(file).rows() == [(0, "two\nlines"), (1, "b")]
    assert read_table(file).columns == ["index", "a"]
    file.write_text("a\n1\n\n3\n")
    assert read_table(file)["a"].to_list() == [1, None, 3]


def test_json_lines_dates(tmp_path):
    file = tmp_path / "a.jsonl"
    file.write_text('{"d": "2020-01-02", "s": "x"}\n{"d": null, "s": "2020-01-02"}\n')
    assert read_table(file).dtypes == [pl.Date, pl.String]


# --- tables -------------------------------------------------------------------


def pandas_of(*values, **options):
    return pd.DataFrame(
        {"a": pd.Series(list(values), **options), "b": range(len(values))}
    )


NESTED = "Split it into plain columns"
UNUSABLE = {
    "infinite": (pl.DataFrame({"ok": [1, 2], "a": [1.0, np.inf]}), 'Column "a".*infin'),
    "no columns": (pl.DataFrame(), "0 feature"),
    "no rows": (pl.DataFrame({"a": []}), "0 sample"),
    "no rows, pandas": (pd.DataFrame({"a": []}), "0 sample"),
    "one row": (pl.DataFrame({"a": [1]}), "at least 2 rows"),
    "all constant": (pl.DataFrame({"a": [1, 1]}), '"a" is not used: always 1'),
    "all missing": (pl.DataFrame({"a": [None, None]}), '"a" is not used: no values'),
    "twice": (pd.DataFrame([[1, 2]], columns=["a", "a"]), 'More than one.*"a"'),
    "twice, arrow": (
        pa.Table.from_arrays([pa.array([1]), pa.array([2])], names=["a", "a"]),
        'More than one column is named "a"',
    ),
    "0 and '0'": (pd.DataFrame([[1, 2]], columns=[0, "0"]), 'More than one.*"0"'),
    "lists": (pl.DataFrame({"a": [[1], [2]]}), NESTED),
    "records": (pl.DataFrame({"a": [{"x": 1}, {"x": 2}]}), NESTED),
    "binary": (pl.DataFrame({"a": [b"x", b"y"]}), NESTED),
    "lists, pandas": (pandas_of([1], [2]), NESTED),
    "records, pandas": (pandas_of({}, {"x": 1}), NESTED),
    "complex, pandas": (pandas_of(1j, 2j), NESTED),
    "beyond float": (pandas_of(10**400, 1), "above 1.8e308"),
    "two clocks": (
        pandas_of(
            dt.datetime(2020, 1, 1),
            dt.datetime(2020, 1, 1, tzinfo=dt.UTC),
            dtype=object,
        ),
        "mixes dates",
    ),
    "lazy": (pl.LazyFrame({"a": [1]}), "collect"),
    "series": (pl.Series([1, 2]), "2D"),
    "ragged": ([[1, 2], [3]], "differ in length"),
}


@pytest.mark.parametrize("case", UNUSABLE)
def test_unusable_tables(case):
    frame, message = UNUSABLE[case]
    with pytest.raises(TableError, match=message):
        TableEncoder().fit(frame)


def test_sparse_input_is_refused_by_name():
    with pytest.raises(TypeError, match=r"[Ss]parse"):
        TableEncoder().fit(sparse.eye_array(3, format="csr"))


DAY = dt.date(2020, 1, 1)
USABLE = {
    "mixed types": (
        pandas_of(1, "x", None, dtype=object),
        ["a=1", "a=x", "a=(missing)"],
    ),
    "huge integers": (pandas_of(10**30, 1, 2), ["a"]),
    "128 bits": (pl.DataFrame({"a": pl.Series([10**30, 1], dtype=pl.Int128)}), ["a"]),
    "unused levels": (
        pandas_of("u", "v", dtype=pd.CategoricalDtype(["w", "u", "v"])),
        ["a=u", "a=v"],
    ),
    "integer levels": (
        pandas_of(1, 2, None, dtype="category"),
        ["a=1", "a=2", "a=(missing)"],
    ),
    "enum": (
        pl.DataFrame({"a": pl.Series(["u", "v"], dtype=pl.Enum(["v", "w", "u"]))}),
        ["a=u", "a=v"],
    ),
    "zoned": (
        pandas_of("2020-01-01", "2020-06-03", dtype="datetime64[ns, Asia/Tokyo]"),
        ["a (month)", "a (days)"],
    ),
    "dates as objects": (pandas_of(DAY, None, DAY.replace(day=8)), None),
    "nullable": (pandas_of(True, None, False, dtype="boolean"), ["a", "a (missing)"]),
    "decimal": (pandas_of(decimal.Decimal("1.5"), decimal.Decimal(2)), ["a"]),
    "constant with gaps": (pl.DataFrame({"a": [1, None]}), ["a (missing)"]),
    "one date with gaps": (pl.DataFrame({"a": [DAY, None]}), ["a (missing)"]),
    "durations": (pandas_of(dt.timedelta(1), None, dt.timedelta(2)), None),
    "times": (
        pl.DataFrame({"a": [dt.time(1), dt.time(2)]}),
        ["a", *(f"a (day {wave} {k})" for k in (1, 2) for wave in ("sine", "cosine"))],
    ),
    "periods": (pd.DataFrame({"a": pd.period_range("2020", periods=2)}), None),
    "integer names": (pd.DataFrame([[1, 2], [3, 4]], columns=[7, "a"]), ["7", "a"]),
    "two-level names": (
        pd.DataFrame([[1], [2]], columns=pd.MultiIndex.from_tuples([("a", "b")])),
        ["a_b"],
    ),
    "extreme": (pl.DataFrame({"a": [1e308, -1.7e308], "c": [5e-324, 0]}), ["a", "c"]),
    "lists of rows": ([[1, "u"], [2, "v"]], ["x0", "x1=u", "x1=v"]),
    "level called missing": (
        pl.DataFrame({"a": ["(missing)", None]}),
        ["a=(missing)", "a=(missing) (2)"],
    ),
}


@pytest.mark.parametrize("case", USABLE)
def test_odd_but_usable_tables(case):
    frame, names = USABLE[case]
    encoder = TableEncoder().fit(frame)
    Z = encoder.transform(frame)
    assert np.isfinite(Z).all() and Z.dtype == np.float64
    np.testing.assert_array_equal(Z, TableEncoder().fit_transform(frame))
    out = encoder.get_feature_names_out().tolist()
    assert len(out) == Z.shape[1] == len(set(out))
    if names is not None:
        assert [name for name in out if name != "b"] == names


# --- tables that differ from the training table ---------------------------------

TRAIN = pl.DataFrame(
    {
        "rooms": [1, 2, 3, 5],
        "town": ["Bath", "York", "Bath", "Hull"],
        "garden": [True, False, True, True],
        "sold": [dt.date(2020, 1, 1), dt.date(2021, 2, 3), DAY, DAY],
        "Id": [1, 2, 3, 4],
    }
)
CHANGED = {
    "words": (
        {"rooms": ["3", "three"]},
        r'"rooms" was numeric .* text now \("three"\)',
    ),
    "dates": ({"rooms": [DAY, DAY]}, '"rooms" was numeric .* a date now .2020-01-01'),
    "infinite": ({"rooms": [1.0, -np.inf]}, '"rooms" has an infinite value'),
    "twos": ({"garden": [0, 2]}, '"garden" was true or false .* numeric now .2'),
    "maybe": ({"garden": ["true", "maybe"]}, 'is text now ."maybe"'),
    "no date": ({"sold": ["2020-01-01", "soon"]}, '"sold" was a date .*"soon"'),
    "no dates": ({"sold": ["late", "soon"]}, '"sold" was a date .*"late"'),
    "day count": ({"sold": [1, 2]}, '"sold" was a date .* numeric now'),
    "lists": ({"rooms": [[1], [2]]}, NESTED),
}


def new_table(**columns):
    return TRAIN.head(2).with_columns(
        **{name: pl.Series(values) for name, values in columns.items()}
    )


@pytest.mark.parametrize("case", CHANGED)
def test_changed_columns_are_refused(case):
    columns, message = CHANGED[case]
    encoder = TableEncoder().fit(TRAIN)
    for method in (encoder.transform, encoder.check):
        with pytest.raises(TableError, match=message):
            method(new_table(**columns))


def test_changed_type_reads_as_in_the_mock_up():
    encoder = TableEncoder().fit(TRAIN)
    with pytest.raises(TableError) as caught:
        encoder.transform(new_table(rooms=["2", "three"]))
    assert str(caught.value) == (
        'column "rooms" was numeric when the model was fitted and is text now '
        '("three"). Correct the column, or refit.'
    )


CONVERTED = {
    "numbers as text": ({"rooms": ["1", " 2"]}, "can be read as a number"),
    "booleans as text": ({"garden": ["True", "false"]}, "can be read as true or false"),
    "booleans as 0 and 1": ({"garden": [1, 0]}, None),
    "dates as text": ({"sold": ["2020-01-01", "2021-02-03"]}, "can be read as a date"),
    "identifier as text": ({"Id": ["x", "y"]}, None),
}


@pytest.mark.parametrize("case", CONVERTED)
def test_harmless_changes_give_the_same_matrix_and_a_remark(case):
    columns, remark = CONVERTED[case]
    encoder = TableEncoder().fit(TRAIN)
    new = new_table(**columns)
    expected = encoder.transform(TRAIN.head(2))
    np.testing.assert_array_equal(encoder.transform(new), expected)
    remarks = encoder.check(new)
    assert len(remarks) == (remark is not None)
    assert remark is None or remark in remarks[0]


def test_category_codes_read_as_numbers_still_match():
    encoder = TableEncoder().fit(pl.DataFrame({"code": ["1", "2", "1"]}))
    for values in ([2, 1], [2.0, 1.0], [2.0, None]):
        Z = encoder.transform(pl.DataFrame({"code": values}))
        assert Z[0].tolist() == [0.0, 1.0]
        assert Z[1].tolist() == [float(values[1] == 1), 0.0]


def test_new_gaps_and_levels_are_reported():
    encoder = TableEncoder().fit(TRAIN)
    new = new_table(town=["Rome", None], rooms=[None, None], sold=[None, None])
    Z = encoder.transform(new)
    names = encoder.get_feature_names_out().tolist()
    town = [i for i, name in enumerate(names) if name.startswith("town=")]
    assert not Z[:, town].any()
    median = (2.5 - TRAIN["rooms"].mean()) / TRAIN["rooms"].std(ddof=0)
    np.testing.assert_allclose(Z[:, names.index("rooms")], median)
    remarks = " ".join(encoder.check(new))
    assert 'not seen in training ("Rome")' in remarks
    assert '"rooms" has 2 rows without a value' in remarks
    assert '"town" has 1 row without a value' in remarks


CELLS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(10**25), 10**25),
    st.floats(allow_nan=True, allow_infinity=True),
    st.text(max_size=3),
    st.dates(),
    st.datetimes(),
    st.decimals(allow_nan=False, allow_infinity=False, places=2),
    st.just([1]),
)
COLUMNS = st.one_of(
    st.lists(CELLS, min_size=12, max_size=12),
    *(
        st.lists(st.one_of(st.none(), cells), min_size=12, max_size=12)
        for cells in (
            *(st.booleans(), st.floats(), st.integers(0, 5), st.dates()),
            *(
                st.datetimes(),
                st.sampled_from("abc"),
                st.sampled_from(["1", "2020-01-01"]),
            ),
        )
    ),
)


@settings(max_examples=200, deadline=None)
@given(train=COLUMNS, new=COLUMNS)
def test_any_column_gives_finite_numbers_or_a_clear_error(train, new):
    def frame(cells):
        column = pd.Series(cells, dtype=object)
        return pd.DataFrame({"a": column, "b": range(len(cells))})

    try:
        encoder = TableEncoder().fit(frame(train))
        Z = encoder.transform(frame(new))
        encoder.check(frame(new))
    except TableError as error:
        assert '"a"' in str(error)
        return
    assert np.isfinite(Z).all()
    assert Z.shape == (12, len(encoder.get_feature_names_out()))


def test_missing_column_suggests_its_new_name():
    encoder = TableEncoder().fit(TRAIN)
    renamed = TRAIN.rename({"rooms": "Room"})
    with pytest.raises(TableError, match=r'no column "rooms".*mean "Room"'):
        encoder.transform(renamed)
    with pytest.raises(TableError, match="0 sample"):
        encoder.transform(TRAIN.clear())
    one = encoder.transform(TRAIN.head(1))
    np.testing.assert_array_equal(one, encoder.transform(TRAIN)[:1])


def test_values_beyond_the_scale_are_refused():
    encoder = TableEncoder().fit(np.array([[1e-300], [2e-300]]))
    with pytest.raises(TableError, match="too far"):
        encoder.transform(np.array([[1e200]]))


BAD_TARGETS = {
    "gaps": (pl.Series("price", [1.0, None, 2.0, 3.0]), '"price" has no value.*1 row'),
    "gaps, pandas": (pd.Series([1.0, np.nan, 2, 3], name="price"), '"price".*1 row'),
    "gaps in labels": (np.array(["a", None, "b", "a"], object), "no value.*1 row"),
    "dates": (pl.Series([DAY] * 4), "target is a date"),
    "none": (None, "requires y"),
    "short": ([1.0, 2.0], "inconsistent"),
}


@pytest.mark.parametrize("case", BAD_TARGETS)
def test_unusable_targets(case):
    y, message = BAD_TARGETS[case]
    with pytest.raises(ValueError, match=message):
        TablePipeline(estimator=Ridge()).fit(TRAIN, y)


def test_senseless_weights_are_refused():
    y = [1.0, 2.0, 3.0, 4.0]
    for weight in ([0, 0, 0, 0], [1, -1, 1, 1], [1, np.nan, 1, 1], [1, 1]):
        with pytest.raises(ValueError):
            TablePipeline(estimator=Ridge()).fit(TRAIN, y, sample_weight=weight)


def test_failed_refit_keeps_nothing_half_done():
    pipeline = TablePipeline(estimator=LogisticRegression()).fit(TRAIN, list("abab"))
    before = pipeline.predict(TRAIN)
    with pytest.raises(TableError):
        pipeline.fit(TRAIN.head(1), ["a"])
    np.testing.assert_array_equal(pipeline.predict(TRAIN), before)
