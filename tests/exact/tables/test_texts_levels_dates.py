"""Free text, many-level categories and dates: what they become, and that none leaks."""

from __future__ import annotations

import datetime as dt

import numpy as np
import polars as pl
import pytest
from scipy import sparse

import certus
from certus import persist
from certus.linear_model import LogisticRegression, Ridge, RidgeCV
from certus.tables import TableEncoder, TablePipeline
from certus.tables.levels import FOLDS, fold_of_rows, level_statistics

WORDS = ["good", "bad", "fine", "soup", "fish", "room", "staff", "view", "late", "cold"]


def reviews(n: int, rng: np.random.Generator) -> tuple[pl.DataFrame, np.ndarray]:
    text = [" ".join(rng.choice(WORDS, 7)) + f" {i}" for i in range(n)]
    y = np.array([t.count("good") - t.count("bad") for t in text]) + rng.normal(size=n)
    return pl.DataFrame({"review": text, "stars": rng.integers(1, 6, n)}), y


def towns(
    n: int, levels: int, effect: float, seed: int
) -> tuple[pl.DataFrame, np.ndarray]:
    rng = np.random.default_rng(seed)
    town = rng.integers(0, levels, n)
    y = effect * rng.normal(size=levels)[town] + rng.normal(size=n)
    x = rng.normal(size=n)
    return pl.DataFrame({"town": [f"t{t}" for t in town], "x": x}), y + x


# ---- free text -----------------------------------------------------------------------


def test_text_becomes_terms_for_linear_models_and_directions_for_others():
    X, y = reviews(300, np.random.default_rng(0))
    encoder = TableEncoder().fit(X)
    Z = encoder.transform(X)
    assert sparse.issparse(Z) and Z.shape[1] == len(encoder.get_feature_names_out())
    assert "review: “good”" in encoder.get_feature_names_out()
    # Words and letters are two vectors of length one.
    norms = Z[:, :-1].multiply(Z[:, :-1]).sum(axis=1)
    np.testing.assert_allclose(norms, 2.0, rtol=1e-12)
    dense = TableEncoder(text="components").fit(X)
    assert dense.transform(X).shape == (300, 31)
    assert not TableEncoder(text="drop").fit(X).has_text_
    fitted = TablePipeline(estimator=Ridge(alpha=1.0)).fit(X[:200], y[:200])
    assert fitted.encoder_.text == "ngrams"
    assert fitted.score(X[200:], y[200:]) > 0.4  # the best possible is 0.58
    again = TablePipeline(estimator=Ridge()).fit(X.drop("review")[:200], y[:200])
    assert again.score(X[200:], y[200:]) < 0.1


def test_terms_come_from_the_training_rows_alone():
    X, _ = reviews(100, np.random.default_rng(1))
    encoder = TableEncoder().fit(X)
    new = pl.DataFrame({"review": ["zzzz qqqq zzzz", None], "stars": [3, 3]})
    Z = encoder.transform(new).toarray()
    assert not Z[:, :-1].any()
    assert Z.shape[1] == encoder.transform(X).shape[1]


def test_model_with_text_averages_and_dates_survives_its_file(tmp_path):
    X, y = reviews(300, np.random.default_rng(2))
    rng = np.random.default_rng(3)
    X = X.with_columns(
        town=pl.Series([f"t{t}" for t in rng.integers(0, 60, 300)]),
        day=pl.Series(
            [dt.datetime(2020, 1, 1) + dt.timedelta(days=3 * i) for i in range(300)]
        ),
    )
    labels = np.where(y > 0, "up", "down")
    pipeline = TablePipeline(estimator=LogisticRegression()).fit(X, labels)
    path = persist.save(pipeline, tmp_path / "m.certus")
    again = persist.load(path)
    np.testing.assert_array_equal(again.predict(X), pipeline.predict(X))
    # The matrix of the fit comes back from the table alone, averages included.
    found = certus.certify(again, X, labels)
    assert found.met and found.fingerprint == pipeline.certificate_.fingerprint


# ---- many levels ---------------------------------------------------------------------


def test_averages_of_levels_are_those_of_the_other_folds():
    rng = np.random.default_rng(4)
    codes, t = rng.integers(0, 5, 200), rng.normal(size=200)
    t += codes  # levels that differ
    folds = rng.integers(0, FOLDS, 200)
    found, between = level_statistics(codes, 6, folds, t[:, None], None)
    assert between[0] > 0.5
    changed = t.copy()
    changed[folds == 3] += 100.0
    other, _ = level_statistics(codes, 6, folds, changed[:, None], None)
    # Rows of fold 3 do not see their own targets; the others do.
    np.testing.assert_array_equal(other[3], found[3])
    assert np.abs(other[:3] - found[:3]).max() > 1
    everything = np.average(t[folds != 3])
    for level in range(5):
        mine = t[(codes == level) & (folds != 3)]
        shrunk = (found[3, level, 0] - everything) / (mine.mean() - everything)
        assert 0.9 < shrunk < 1
    assert found[3, 5, 0] == pytest.approx(everything)  # a level nobody has


def test_transform_gives_the_matrix_of_the_fit_in_any_order():
    X, y = towns(1000, 200, 1.0, 0)
    encoder = TableEncoder()
    Z = encoder.fit_transform(X, y)
    np.testing.assert_array_equal(encoder.transform(X), Z)
    order = np.random.default_rng(0).permutation(1000)
    np.testing.assert_array_equal(encoder.transform(X[order.tolist()]), Z[order])
    np.testing.assert_array_equal(encoder.transform(X.select("x", "town")), Z)
    alone = np.vstack([encoder.transform(X[i : i + 1]) for i in range(20)])
    np.testing.assert_array_equal(alone, Z[:20])


def test_integer_weight_is_repetition_with_a_target():
    X, y = towns(400, 60, 1.0, 1)
    weight = np.random.default_rng(1).integers(0, 3, 400)
    rows = np.repeat(np.arange(400), weight)
    weighted = TableEncoder().fit(X, y, sample_weight=weight)
    plain = TableEncoder().fit(X[rows.tolist()], y[rows])
    np.testing.assert_allclose(weighted.transform(X), plain.transform(X), atol=1e-9)


def test_copies_share_a_fold_and_folds_are_even():
    x = np.random.default_rng(2).normal(size=5000)
    folds, share = fold_of_rows([np.concatenate([x, x])])
    np.testing.assert_array_equal(folds[:5000], folds[5000:])
    assert share == 0.5
    assert np.bincount(folds.astype(int)).min() > 400


def test_many_real_levels_help_and_unseen_ones_get_the_average():
    X, y = towns(3000, 400, 1.0, 3)
    fitted = TablePipeline(estimator=Ridge()).fit(X[:2000], y[:2000])
    # y = town + x + noise, each of variance 1; with 5 rows per town, 5/6 of the towns'
    # variance can be known.
    assert fitted.score(X[2000:], y[2000:]) > 0.5
    without = TablePipeline(estimator=Ridge()).fit(X.drop("town")[:2000], y[:2000])
    assert without.score(X[2000:], y[2000:]) < 0.4
    row = pl.DataFrame({"town": ["never seen", None], "x": [0.0, 0.0]})
    found = fitted.predict(row)
    assert found == pytest.approx(y[:2000].mean(), abs=0.15)
    assert "not seen in training" in fitted.encoder_.check(row)[0]


def noise_gain(seed: int) -> float:
    """By how much a pure-noise column of 400 levels lowers the error on new rows."""
    X, y = towns(1500, 400, 0.0, seed)
    errors = []
    for table in (X, X.drop("town")):
        fitted = TablePipeline(estimator=Ridge(alpha=1.0)).fit(table[:500], y[:500])
        errors.append(np.mean((fitted.predict(table[500:]) - y[500:]) ** 2))
    return errors[1] - errors[0]


def test_pure_noise_levels_gain_nothing():
    gains = np.array([noise_gain(seed) for seed in range(12)])
    # Nothing is gained on new rows, and hardly anything is lost: in units of the
    # noise's variance, one coefficient of 500 rows costs about 1/500.
    assert abs(gains.mean()) < 0.01
    X, y = towns(500, 400, 0.0, 0)
    fitted = TablePipeline(estimator=Ridge(alpha=1.0)).fit(X, y)
    plain = TablePipeline(estimator=Ridge(alpha=1.0)).fit(X.drop("town"), y)
    assert fitted.score(X, y) - plain.score(X, y) < 0.02  # nor in training


@pytest.mark.slow
def test_pure_noise_levels_gain_nothing_over_many_tables():
    gains = np.array([noise_gain(seed) for seed in range(200)])
    error = gains.std(ddof=1) / np.sqrt(len(gains))
    assert gains.mean() < 2 * error  # no gain beyond chance
    assert gains.mean() > -0.006  # three coefficients of 500 rows at most


def test_labels_are_averaged_label_by_label_and_equal_rows_stay_one_hot():
    rng = np.random.default_rng(5)
    town = rng.integers(0, 50, 2000)
    label = np.array(["a", "b", "c"])[(town + rng.integers(0, 2, 2000)) % 3]
    X = pl.DataFrame({"town": [f"t{t}" for t in town], "x": rng.normal(size=2000)})
    names = TableEncoder().fit(X, label).get_feature_names_out().tolist()
    assert names == ["town (share of a)", "town (share of b)", "town (share of c)", "x"]
    alone = TableEncoder().fit(X.select("town"), label)
    assert len(alone.get_feature_names_out()) == 50


# ---- dates ---------------------------------------------------------------------------


def test_a_linear_model_can_use_season_and_weekend():
    rng = np.random.default_rng(6)
    days = [dt.date(2018, 1, 1) + dt.timedelta(days=int(d)) for d in range(1400)]
    turn = np.array([d.timetuple().tm_yday for d in days]) / 365.25
    weekend = np.array([d.weekday() >= 5 for d in days])
    y = 3 * np.cos(2 * np.pi * turn) + 2 * weekend + 0.3 * rng.normal(size=1400)
    X = pl.DataFrame({"day": days})
    fitted = TablePipeline(estimator=Ridge(alpha=0.1)).fit(X[:1000], y[:1000])
    assert fitted.score(X[1000:], y[1000:]) > 0.95
    assert "day (Sunday)" in fitted.encoder_.get_feature_names_out()


def test_time_of_day_comes_back_every_day():
    start = dt.datetime(2021, 5, 3)
    hours = [start + dt.timedelta(hours=h) for h in range(200)]
    encoder = TableEncoder(scale=False).fit(pl.DataFrame({"t": hours}))
    names = encoder.get_feature_names_out().tolist()
    Z = encoder.transform(pl.DataFrame({"t": hours}))
    wave = Z[:, names.index("t (day sine 1)")]
    np.testing.assert_allclose(
        wave[:24], np.sin(2 * np.pi * np.arange(24) / 24), atol=1e-9
    )
    np.testing.assert_allclose(wave[24:48], wave[:24], atol=1e-9)
    assert Z[6, names.index("t (hour)")] == 6
    assert not any("season" in name for name in names)  # nine days show no season


def _daily(days: np.ndarray) -> pl.DataFrame:
    return pl.DataFrame(
        {"day": [dt.date(2020, 1, 1) + dt.timedelta(int(d)) for d in days]}
    )


def test_a_trend_may_bend_where_the_training_rows_do(tmp_path):
    days = np.arange(400)
    y = np.abs(days - 180.0)  # falls, then rises
    X = _daily(days)
    model = TablePipeline(estimator=Ridge(alpha=1e-6)).fit(X, y)
    labels = [part["label"] for part in model.encoder_.plans_[0]["parts"]]
    bends = [label for label in labels if label.startswith("after ")]
    assert len(bends) == 16 and bends == sorted(set(bends))
    # A line is wrong by 50 on average; pieces of a line by less than the width of one.
    assert np.abs(model.predict(X) - y).mean() < 2
    assert "a trend that may bend" in model.encoder_.columns_[0].treatment
    # No bend comes late, so that what follows is the line of the last tenth and more.
    later = model.predict(_daily(np.arange(400, 440)))
    assert np.abs(np.diff(later, 2)).max() < 2 and abs(later[-1] - 259) < 25
    persist.save(model, tmp_path / "m.certus")
    again = persist.load(tmp_path / "m.certus")
    assert (again.predict(X) == model.predict(X)).all()


def test_bends_count_as_one_column_and_need_many_days():
    few = TableEncoder().fit(_daily(np.arange(39)))
    assert not [n for n in few.get_feature_names_out() if "after" in n]
    encoder = TableEncoder().fit(_daily(np.arange(400)))
    Z = encoder.transform(_daily(np.arange(400)))
    names = encoder.get_feature_names_out()
    at = [i for i, name in enumerate(names) if "after" in name]
    assert Z[:, at].var(axis=0).sum() == pytest.approx(1)
    # Repeated rows move no bend.
    twice = TableEncoder().fit(_daily(np.r_[np.arange(400), np.arange(50)]))
    assert list(twice.get_feature_names_out()) == list(names)


def test_bends_of_a_date_without_meaning_cost_little(monkeypatch):
    """On new rows, less than 1.5 % of the variance of the noise beyond the calendar."""

    def errors(seed: int) -> float:
        rng = np.random.default_rng(seed)
        X = _daily(rng.integers(0, 1000, 1120))
        X = X.with_columns(x=pl.Series(rng.normal(size=1120)))
        y = X["x"].to_numpy() + rng.normal(size=1120)
        model = TablePipeline(estimator=RidgeCV(320 * np.logspace(-6, 2, 9)))
        model.fit(X[:320], y[:320])
        return float(np.mean((model.predict(X[320:]) - y[320:]) ** 2))

    bent = np.array([errors(seed) for seed in range(10)])
    monkeypatch.setattr("certus.tables.dates._bends", lambda days: [])
    straight = np.array([errors(seed) for seed in range(10)])
    assert np.mean(bent - straight) < 0.015


@pytest.mark.parametrize("text", ["ngrams", "components"])
def test_a_text_without_a_known_word_is_named_for_every_encoding(text):
    rng = np.random.default_rng(0)
    words = ["red", "blue", "house", "garden", "river", "stone", "bridge", "tower"]
    cells = [" ".join(rng.choice(words, 6)) for _ in range(80)]
    encoder = TableEncoder(text=text).fit(pl.DataFrame({"t": cells, "n": range(80)}))
    new = pl.DataFrame({"t": ["red bridge", "xq zv kj", None], "n": [1, 2, 3]})
    said = encoder.unseen(new)
    assert said[0] == "" and said[1] == "t shares no word with the training rows"
    assert said[2] == "t is missing"
