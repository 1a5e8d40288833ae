"""What a comparison finds in a table: leaks, copies, groups, order in time."""

import numpy as np
import polars as pl
import pytest

import certus
from certus.certificate import Strength
from certus.linear_model import LogisticRegression, Ridge
from certus.neighbors import KNeighborsClassifier, KNeighborsRegressor
from certus.selection import recheck


def leaks(column, y, **options):
    rng = np.random.default_rng(9)
    frame = pl.DataFrame({"honest": rng.normal(size=len(y)), "suspect": column})
    found = certus.compare(frame, y, models=options.pop("models"), **options)
    said = [note for note in found.notes if "suspect" in note]
    return found, said


AMOUNTS = np.random.default_rng(1).normal(size=200)
LABELS = np.array(["a", "b", "c", "a"] * 50)


@pytest.mark.parametrize(
    "column",
    [3 - 2 * AMOUNTS, np.exp(3 * AMOUNTS), AMOUNTS + 1e-4 * np.sin(AMOUNTS * 50)],
    ids=["line", "monotone", "rounding"],
)
def test_columns_that_determine_amounts(column):
    found, said = leaks(column, AMOUNTS, models=[Ridge()])
    assert found.left_out == ("suspect",)
    assert len(said) == 1 and "determines the target" in said[0] and "--keep" in said[0]
    assert found.model.encoder_.feature_names_in_.tolist() == ["honest"]
    kept, said = leaks(column, AMOUNTS, models=[Ridge()], keep=["suspect"])
    assert kept.left_out == () and said == []
    assert "suspect" in kept.model.encoder_.feature_names_in_


@pytest.mark.parametrize("kind", ["levels", "order", "codes", "gaps"])
def test_columns_that_determine_labels(kind):
    rng = np.random.default_rng(2)
    codes = np.unique(LABELS, return_inverse=True)[1]
    two = np.where(codes == 0, "a", "b")
    column, y = {
        "levels": (np.char.add("level ", LABELS), LABELS),
        "order": (codes + rng.uniform(0, 0.9, 200), LABELS),
        "codes": (codes * 7 % 5, LABELS),
        "gaps": ([None if c == 0 else float(rng.normal()) for c in codes], two),
    }[kind]
    found, said = leaks(column, y, models=[LogisticRegression()])
    assert found.left_out == ("suspect",), said
    assert "determines the target" in said[0]


def test_honest_columns_are_kept():
    """Strong but noisy, rare labels, identifiers: nothing is left out."""
    rng = np.random.default_rng(3)
    strong = AMOUNTS + 0.3 * rng.normal(size=200)
    assert leaks(strong, AMOUNTS, models=[Ridge()])[0].left_out == ()
    rare = np.where(np.arange(200) < 4, "rare", "common")
    assert leaks(AMOUNTS, rare, models=[LogisticRegression()])[0].left_out == ()
    noisy = np.where(AMOUNTS + 0.3 * rng.normal(size=200) > 0, "x", "y")
    assert leaks(AMOUNTS, noisy, models=[LogisticRegression()])[0].left_out == ()
    imbalanced = np.where(rng.random(200) < 0.1, "x", "y")
    coin = rng.integers(0, 2, 200)
    found = leaks(coin, imbalanced, models=[LogisticRegression()])[0]
    assert found.left_out == ()


def test_a_column_that_nearly_leaks_is_reported():
    column = AMOUNTS + 0.1 * np.random.default_rng(3).normal(size=200)
    found, said = leaks(column, AMOUNTS, models=[Ridge()])
    assert found.left_out == () and "nearly determines the target (r = 0.99" in said[0]


def test_the_only_column_is_used_and_reported():
    frame = pl.DataFrame({"x": AMOUNTS})
    found = certus.compare(frame, 2 * AMOUNTS, models=[Ridge()])
    assert found.left_out == () and "there is no other column" in found.notes[0]


def test_columns_that_determine_the_target_together():
    X = np.random.default_rng(0).normal(size=(200, 3))
    found = certus.compare(X, X.sum(axis=1), models=[Ridge(alpha=1e-6)])
    assert any("together determine the target" in note for note in found.notes)


def test_copies_stay_on_one_side():
    """Each row twice, one apart by its identifier: a memory would win otherwise."""
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(60, 2)), rng.integers(0, 2, 60)
    pick = rng.permutation(np.concatenate([np.arange(60), np.arange(40)]))
    frame = pl.DataFrame(X[pick]).with_columns(id=pl.Series(range(100)))
    found = certus.compare(frame, y[pick], models=[KNeighborsClassifier(1)])
    assert any(note.startswith("40 rows are equal to another") for note in found.notes)
    for known, judged in [
        *found.split.folds,
        (found.split.training, found.split.sealed),
    ]:
        assert not np.intersect1d(pick[known], pick[judged]).size
    assert found.best.mean > 0.25  # with copies across folds it would be near 0.1


def test_rows_that_repeat_by_nature_are_not_copies():
    """Few categories, also beside a column that half of the rows lack."""
    rng = np.random.default_rng(0)
    frame = pl.DataFrame({"a": rng.integers(0, 2, 200), "b": rng.integers(0, 3, 200)})
    y = rng.integers(0, 2, 200)
    found = certus.compare(frame, y, models=[LogisticRegression()])
    assert found.split.units is None and len(found.split.sealed) == 40
    half = [None if i % 2 else float(v) for i, v in enumerate(rng.normal(size=200))]
    frame = frame.with_columns(half=pl.Series(half))
    found = certus.compare(frame, y, models=[LogisticRegression()])
    assert found.split.units is None and len(found.split.sealed) == 40
    whole = frame.with_columns(c=pl.Series(rng.integers(0, 1000, 200)))
    twice = pl.concat([whole, whole[:5]])
    found = certus.compare(twice, np.r_[y, y[:5]], models=[LogisticRegression()])
    assert found.split.units is not None
    assert any("5 rows are equal to another" in note for note in found.notes)


def test_a_label_that_inner_folds_lack():
    rng = np.random.default_rng(0)
    y = np.where(rng.random(120) < 0.5, "a", "b")
    y[:3], y[3:7] = "rare", "seldom"
    found = certus.compare(rng.normal(size=(120, 3)), y)
    assert [row.name for row in found.rows if row.reason] == []


def grouped(n_groups=30, each=6, seed=0):
    rng = np.random.default_rng(seed)
    names = np.repeat([f"g{i:02d}" for i in range(n_groups)], each)
    effect = np.repeat(rng.normal(size=n_groups), each)
    x = effect + 0.01 * rng.normal(size=len(names))
    y = np.repeat(rng.normal(size=n_groups), each) + 0.1 * rng.normal(size=len(names))
    order = rng.permutation(len(names))
    frame = pl.DataFrame({"patient": names, "x": x})
    return frame[order], y[order]


def test_groups_never_straddle_and_are_the_units():
    """A memory of groups looks good on shuffled rows and is found out by groups."""
    frame, y = grouped()
    names = frame["patient"].to_numpy()
    model = [KNeighborsRegressor(3)]
    found = certus.compare(frame, y, groups="patient", models=model)
    for known, judged in [
        *found.split.folds,
        (found.split.training, found.split.sealed),
    ]:
        assert not set(names[known]) & set(names[judged])
    assert found.left_out == ("patient",) and found.split.groups == "patient"
    assert any("30 groups" in note for note in found.notes)
    assert "groups" in found.risk[-1].assumptions[0]
    loose = certus.compare(frame.drop("patient"), y, models=model)
    assert loose.best.mean < 0.7 * found.best.mean
    given = certus.compare(frame.drop("patient"), y, groups=names, models=model)
    assert given.best.errors == found.best.errors


def test_overlapping_groups_are_reported():
    frame, y = grouped()
    twin = frame[:3].with_columns(patient=pl.lit("another"))
    both, target = pl.concat([frame, twin]), np.concatenate([y, y[:3]])
    found = certus.compare(both, target, groups="patient", models=[Ridge()])
    assert "3 rows are equal to a row of another group." in found.notes


def test_a_column_like_a_group_or_a_time_is_reported():
    frame, y = grouped()
    days = pl.date_range(pl.date(2020, 1, 1), pl.date(2020, 6, 28), eager=True)
    frame = frame.rename({"patient": "patient_id"}).with_columns(day=days)
    said = " ".join(certus.compare(frame, y, models=[Ridge()]).notes)
    assert '"patient_id" looks like an identifier' in said and "--groups" in said
    assert '"day" is a date' in said and "--time" in said


def test_time_order_is_respected_and_measured():
    """A drift that shuffled folds would hide."""
    rng = np.random.default_rng(0)
    n = 200
    day = rng.permutation(n).astype(float)
    frame = pl.DataFrame({"day": day, "x": rng.normal(size=n)})
    y = np.where(day < 150, 0.0, 10.0) + 0.1 * rng.normal(size=n)
    model = [KNeighborsRegressor(5)]
    found = certus.compare(frame, y, time="day", models=model)
    assert found.split.time == "day"
    assert day[found.split.training].max() < day[found.split.sealed].min()
    for known, judged in found.split.folds:
        assert day[known].max() < day[judged].min()
    assert {claim.strength for claim in found.risk} == {Strength.MEASURED}
    assert found.union.strength is Strength.REFUSED
    dates = [f"2020-{1 + int(d) // 28:02d}-{1 + int(d) % 28:02d}" for d in day]
    as_dates = frame.with_columns(day=pl.Series(dates).str.to_date())
    again = certus.compare(as_dates, y, time="day", models=model)
    np.testing.assert_array_equal(again.split.sealed, found.split.sealed)


def test_the_split_is_found_again_through_a_file(tmp_path):
    frame, y = grouped()
    target = pl.Series("y", y)
    found = certus.compare(frame, target, groups="patient", models=[Ridge()])
    path = certus.save(found.model, tmp_path / "m.certus", split=found.record())
    split = certus.persist.read_manifest(path)["split"]
    again = recheck(certus.load(path), split, frame, target)
    assert again.same and again.certificate.met and again.risk == found.risk
    other = recheck(certus.load(path), split, frame[::-1], target[::-1])
    assert not other.same and other.risk == ()
    changed = frame.with_columns(x=pl.col("x") + 0.01)
    assert not recheck(certus.load(path), split, changed, target).same
