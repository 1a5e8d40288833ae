"""A comparison is honest: sealed rows unseen, leaks found, the known best chosen."""

import json
import math

import numpy as np
import polars as pl
import pytest
from scipy.stats import binomtest
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.ensemble import HistGradientBoostingRegressor

import certus
from certus.certificate import Status, Strength
from certus.config import config_context
from certus.kernel import KernelRidge
from certus.linear import Lasso, LassoCV, LogisticRegression, Ridge
from certus.neighbors import KNeighborsClassifier, KNeighborsRegressor
from certus.selection import comparing, preparation, recheck
from certus.selection.candidates import list_candidates
from certus.table import TableError
from certus.wording import plain


def linear(n=120, d=4, noise=1.0, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d))
    return X, X @ np.arange(1, d + 1) + noise * rng.normal(size=n)


def labelled(n=150, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 3))
    return X, np.where(X[:, 0] + 0.7 * rng.normal(size=n) > 0, "yes", "no")


def same_rows(a, b):
    """Fold by fold the same candidates, chosen alike, with the same coefficients."""
    assert a.chosen == b.chosen
    for one, other in zip(a.rows, b.rows, strict=True):
        assert (one.name, one.errors, one.reason) == (
            other.name,
            other.errors,
            other.reason,
        )
        assert repr(one.model) == repr(other.model)


# ---- sealed rows ---------------------------------------------------------------------


def test_sealed_rows_are_never_seen_regression():
    """Whatever stands in the sealed rows, fits, notes and choice are the same."""
    X, y = linear()
    models = [Ridge(), Lasso(alpha=0.1), KNeighborsRegressor()]
    clean = certus.compare(X, y, models=models)
    poisoned, flipped = X.copy(), y.copy()
    poisoned[clean.split.sealed] = 1e6 + np.arange(24)[:, None]
    flipped[clean.split.sealed] = -1e9
    again = certus.compare(poisoned, flipped, models=models)
    np.testing.assert_array_equal(again.split.sealed, clean.split.sealed)
    same_rows(clean, again)
    np.testing.assert_array_equal(again.model.model_.coef_, clean.model.model_.coef_)
    assert again.threshold == clean.threshold
    assert again.risk[0].value > 1e6 > clean.risk[0].value  # only here they speak


def test_sealed_rows_are_never_seen_labels(monkeypatch):
    """As above with all usual candidates; the plan is held, as it deals labels."""
    X, y = labelled()
    clean = certus.compare(X, y)
    monkeypatch.setattr(preparation, "make_split", lambda *a, **k: clean.split)
    poisoned, flipped = X.copy(), y.copy()
    poisoned[clean.split.sealed] = np.nan
    flipped[clean.split.sealed] = np.where(y[clean.split.sealed] == "yes", "no", "yes")
    again = certus.compare(poisoned, flipped)
    same_rows(clean, again)
    assert again.risk[0].value != clean.risk[0].value


def test_sealed_rows_do_not_decide_what_is_a_leak():
    X, y = linear()
    leak = certus.compare(np.column_stack([X, 2 * y]), y, models=[Ridge()])
    assert leak.left_out == ("x4",)
    sealed = leak.split.sealed
    column = 2 * y
    column[sealed] = np.random.default_rng(1).normal(size=len(sealed))
    broken = certus.compare(np.column_stack([X, column]), y, models=[Ridge()])
    assert broken.left_out == ("x4",)  # found on training rows
    column = np.random.default_rng(1).normal(size=len(y))
    column[sealed] = 2 * y[sealed]
    hidden = certus.compare(np.column_stack([X, column]), y, models=[Ridge()])
    assert hidden.left_out == ()


def test_sealed_rows_are_opened_once(monkeypatch):
    calls = []
    whole = comparing.risk_claims

    def counted(losses, *args, **kwargs):
        calls.append(len(losses))
        return whole(losses, *args, **kwargs)

    monkeypatch.setattr(comparing, "risk_claims", counted)
    X, y = labelled()
    found = certus.compare(X, y, models=[LogisticRegression(), KNeighborsClassifier()])
    assert calls == [len(found.split.sealed)] == [30]
    share = np.mean(y == "yes")
    assert abs(np.sum(y[found.split.sealed] == "yes") - 30 * share) <= 1  # evenly dealt


def test_risk_is_clopper_pearson_of_the_sealed_rows():
    X, y = labelled(400)
    found = certus.compare(X, y, models=[LogisticRegression()], delta=0.1)
    sealed = found.split.sealed
    wrong = int((found.model.predict(X[sealed]) != y[sealed]).sum())
    np.testing.assert_array_equal(
        found.sealed_predictions, found.model.predict(X[sealed])
    )
    reference = binomtest(wrong, len(sealed)).proportion_ci(0.9, "exact")
    claim = found.risk[0]
    assert claim.name == "error_rate" and claim.strength is Strength.STATISTICAL
    assert claim.value == pytest.approx(reference.high, rel=1e-9)
    assert claim.delta == 0.1


def test_large_error_has_a_threshold_fixed_on_training_rows():
    X, y = linear(300)
    found = certus.compare(X, y, models=[Ridge()])
    held_out = np.abs(found.best.predictions - y)[found.split.training]
    assert found.threshold == pytest.approx(np.quantile(held_out, 0.9))
    assert np.isnan(found.best.predictions[found.split.sealed]).all()
    sealed = found.split.sealed
    errors = np.abs(found.model.predict(X[sealed]) - y[sealed])
    beyond = int((errors > found.threshold).sum())
    reference = binomtest(beyond, len(sealed), alternative="less")
    high = reference.proportion_ci(0.95, "exact").high
    refused, large, *rest = found.risk
    assert refused.strength is Strength.REFUSED and refused.name == "mean_loss"
    assert large.value == pytest.approx(high, rel=1e-9)
    assert rest[0].name == "coverage"
    low, high = found.model.predict_interval(X[sealed]).T
    assert np.mean((low <= y[sealed]) & (y[sealed] <= high)) >= 0.9


def test_union_bound_over_candidates_and_folds():
    X, y = labelled()
    found = certus.compare(X, y, models=[LogisticRegression(), KNeighborsClassifier()])
    smallest = min(len(test) for _, test in found.split.folds)
    expected = math.sqrt(math.log(2 * 3 * 5 / 0.05) / (2 * smallest))
    assert found.union.value == pytest.approx(expected)
    assert certus.compare(*linear(), models=[Ridge()]).union.strength == "refused"


# ---- folds and choices ---------------------------------------------------------------


class Spy(ClassifierMixin, BaseEstimator):
    """Remembers the rows it was fitted on; the first column is the row's number."""

    seen: list = []  # noqa: RUF012 - shared by its clones

    def fit(self, X, y):
        self.classes_ = np.unique(y)
        Spy.seen.append(X[:, 0])
        return self

    def predict(self, X):
        return np.full(len(X), self.classes_[0])


def test_all_candidates_share_the_folds():
    """Encoded columns are standardised by the fold's training rows alone."""
    n = 100
    rng = np.random.default_rng(0)
    X = np.column_stack([rng.normal(size=n), rng.normal(size=n)])
    y = rng.integers(0, 2, n)
    Spy.seen = []
    found = certus.compare(X, y, models={"a": LogisticRegression(), "b": Spy()})
    assert len(Spy.seen) == 5
    for (train, _), seen in zip(found.split.folds, Spy.seen, strict=True):
        part = X[train, 0]
        np.testing.assert_allclose(seen, (part - part.mean()) / part.std(), atol=1e-12)


def test_the_choice_is_the_least_mean_error_of_ours():
    X, y = linear(200)
    found = certus.compare(X, y)
    ours = [row for row in found.rows if row.kind == "certus"]
    assert found.chosen == min(ours, key=lambda row: row.mean).name
    assert type(found.model.model_) is type(found.best.model)
    assert found.leader.mean == min(row.mean for row in found.rows)


def test_ties_go_to_the_earlier():
    X, y = linear()
    models = {"first": Ridge(), "second": Ridge(), "worse": Ridge(alpha=1e6)}
    assert certus.compare(X, y, models=models).chosen == "first"


def test_nested_choice_does_not_leak():
    """Labels without meaning: no tuned candidate looks better than a coin."""
    means = []
    for seed in range(2):
        rng = np.random.default_rng(seed)
        X, y = rng.normal(size=(120, 15)), rng.permutation(np.repeat([0, 1], 60))
        found = certus.compare(X, y, random_state=seed)
        means += [r.mean for r in found.rows if r.errors and r.kind == "certus"]
    # 96 rows each; candidates depend on one another, so per mean a binomial's width.
    assert np.mean(means) > 0.5 - 3 * 0.5 / math.sqrt(2 * 96)
    assert min(means) > 0.5 - 4 * 0.5 / math.sqrt(96)


def test_parameters_are_chosen_on_training_rows_only(monkeypatch):
    """Labels of the fold that is held out can be anything: its model is the same."""
    X, y = linear(100)
    clean = certus.compare(X, y)
    train, test = clean.split.folds[0]
    changed = y.copy()
    changed[test] = -y[test]
    seen = []
    whole = LassoCV.fit

    def spy(self, Z, target, *args, **kwargs):
        seen.append(np.array(target))
        return whole(self, Z, target, *args, **kwargs)

    monkeypatch.setattr(LassoCV, "fit", spy)
    again = certus.compare(X, changed)
    np.testing.assert_array_equal(seen[0], y[train])
    for row, other in zip(clean.rows, again.rows, strict=True):
        np.testing.assert_array_equal(row.predictions[test], other.predictions[test])


@pytest.mark.parametrize("kind", ["line", "outliers", "few", "wave"])
def test_the_known_best_is_chosen_amounts(kind):
    rng = np.random.default_rng(0)
    n = 250
    X = rng.normal(size=(n, 8))
    if kind == "line":
        y = X @ np.ones(8) + rng.normal(size=n)
        wrong = {"k nearest neighbours"}
    elif kind == "outliers":
        # A tenth of the training targets is far off; all are judged, so by medians.
        y = X @ np.ones(8) + 0.1 * rng.normal(size=n)
        y += (rng.random(n) < 0.1) * rng.exponential(60, n)
        found = certus.compare(X, y)
        truth = X @ np.ones(8)
        by = {
            row.name: np.nanmedian(np.abs(row.predictions - truth))
            for row in found.rows
        }
        assert min(by, key=by.get) == "robust (Huber)"
        return
    elif kind == "few":
        X = rng.normal(size=(n, 120))
        y = 3 * X[:, 0] - 2 * X[:, 1] + rng.normal(size=n)
        assert certus.compare(X, y).chosen == "lasso"
        return
    else:
        y = np.sin(2 * X[:, 0]) + np.cos(2 * X[:, 1]) + 0.1 * rng.normal(size=n)
        X = X[:, :2]
        found = certus.compare(X, y)
        assert found.chosen in ("kernel ridge (Gaussian)", "k nearest neighbours")
        assert found.best.mean < 0.3 < found["ridge"].mean
        return
    found = certus.compare(X, y)
    assert found.chosen not in wrong
    assert found.best.mean < 1.2 < found["k nearest neighbours"].mean


def test_the_known_best_is_chosen_labels():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 2))
    ring = np.where(np.hypot(*X.T) > 1.1, "out", "in")
    found = certus.compare(X, ring)
    assert found.chosen in ("support vectors (Gaussian)", "k nearest neighbours")
    assert found["logistic"].mean > 3 * found.best.mean
    side = np.where(X @ [2.0, 1.0] + 0.5 * rng.logistic(size=300) > 0, "a", "b")
    assert certus.compare(X, side).chosen.startswith(
        ("logistic", "support", "perceptron")
    )


def test_noise_is_called_noise():
    rng = np.random.default_rng(3)
    X, y = rng.normal(size=(100, 3)), rng.normal(size=100)
    found = certus.compare(X, y, models=[KNeighborsRegressor(1)])
    assert found.leader.kind == "baseline" and not found.beaten
    assert found.verdict.startswith("no candidate is better than always the mean")
    assert isinstance(found.model.model_, KNeighborsRegressor)


def test_foreign_win_is_said_and_not_saved():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(400, 2))
    y = 10.0 * ((X[:, 0] > 0) ^ (X[:, 1] > 0)) + 0.1 * rng.normal(size=400)
    boosted = HistGradientBoostingRegressor(random_state=0)
    found = certus.compare(X, y, models=[Ridge()], also={"boosting": boosted})
    assert found.chosen == "Ridge" and found.leader.name == "boosting"
    assert found.beaten and found.verdict.startswith("boosting is better than every")
    assert isinstance(found.model.model_, Ridge)
    X, y = linear()
    found = certus.compare(X, y, models=[Ridge()], also={"boosting": boosted})
    assert not found.beaten and found.verdict == ""


def test_the_seed_decides_everything():
    X, y = labelled()
    one = certus.compare(X, y, random_state=3)
    same_rows(one, certus.compare(X, y, random_state=3))
    other = certus.compare(X, y, random_state=4, models=[LogisticRegression()])
    assert not np.array_equal(one.split.sealed, other.split.sealed)


# ---- leaks, copies, groups, time -----------------------------------------------------


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


def test_nearly_a_leak_is_remarked_upon():
    column = AMOUNTS + 0.1 * np.random.default_rng(3).normal(size=200)
    found, said = leaks(column, AMOUNTS, models=[Ridge()])
    assert found.left_out == () and "nearly determines the target (r = 0.99" in said[0]


def test_the_only_column_is_used_and_said():
    frame = pl.DataFrame({"x": AMOUNTS})
    found = certus.compare(frame, 2 * AMOUNTS, models=[Ridge()])
    assert found.left_out == () and "nothing else is there" in found.notes[0]


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


def test_group_overlap_is_said():
    frame, y = grouped()
    twin = frame[:3].with_columns(patient=pl.lit("another"))
    both, target = pl.concat([frame, twin]), np.concatenate([y, y[:3]])
    found = certus.compare(both, target, groups="patient", models=[Ridge()])
    assert "3 rows are equal to one of another group." in found.notes


def test_a_column_like_a_group_or_a_time_is_said():
    frame, y = grouped()
    days = pl.date_range(pl.date(2020, 1, 1), pl.date(2020, 6, 28), eager=True)
    frame = frame.rename({"patient": "patient_id"}).with_columns(day=days)
    said = " ".join(certus.compare(frame, y, models=[Ridge()]).notes)
    assert '"patient_id" is named like an identifier' in said and "--groups" in said
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
    (claim,) = found.risk
    assert claim.strength is Strength.MEASURED
    assert found.union.strength is Strength.REFUSED
    dates = [f"2020-{1 + int(d) // 28:02d}-{1 + int(d) % 28:02d}" for d in day]
    as_dates = frame.with_columns(day=pl.Series(dates).str.to_date())
    again = certus.compare(as_dates, y, time="day", models=model)
    np.testing.assert_array_equal(again.split.sealed, found.split.sealed)


# ---- endings -------------------------------------------------------------------------


def stop(*_, **__):
    raise KeyboardInterrupt


def test_interrupt_keeps_complete_candidates(monkeypatch):
    X, y = linear()
    monkeypatch.setattr(LassoCV, "fit", stop)
    with pytest.raises(KeyboardInterrupt):
        certus.compare(X, y)
    with config_context(on_interrupt="return"):
        found = certus.compare(X, y)
    assert found.status is Status.INTERRUPTED
    assert found.chosen == "ridge" and len(found.complete) == 2
    assert found.risk[1].met and found.model.certificate_.met
    assert found["k nearest neighbours"].reason == "interrupted"


def test_time_limit():
    X, y = linear()
    with pytest.raises(TimeoutError, match="Raise it"):
        certus.compare(X, y, time_limit=1e-9)
    found = certus.compare(X, y, time_limit=1000.0)
    assert found.status is Status.SOLVED
    same_models = certus.compare(X, y)
    assert [r.errors for r in found.rows] == [r.errors for r in same_models.rows]


class Broken(RegressorMixin, BaseEstimator):
    """Fails when fitted, or predicts what is not a number."""

    def __init__(self, how="raise"):
        self.how = how

    def fit(self, X, y):
        if self.how == "raise":
            raise ValueError("cannot be fitted. Do something else")
        return self

    def predict(self, X):
        return np.full(len(X), np.nan)


def test_a_candidate_that_fails_is_left_out():
    X, y = linear()
    also = {"raises": Broken(), "nan": Broken("nan")}
    found = certus.compare(X, y, models=[Ridge()], also=also)
    assert found.chosen == "Ridge" and len(found.complete) == 2
    assert found["raises"].reason.startswith("failed: cannot be fitted")
    assert found["nan"].reason == "its predictions are not finite"
    with pytest.raises(ValueError, match="no model of certus"):
        certus.compare(X, y, models=[Broken()])


def test_costly_candidates_are_listed_with_the_reason():
    rows = {c.name: c.reason for c in list_candidates("regression", 10_001, 5, 0)}
    assert rows["kernel ridge (Gaussian)"] == "only up to 10,000 rows"
    assert rows["k nearest neighbours"] == ""
    rows = {c.name: c.reason for c in list_candidates("binary", 10_000, 1_001, 0)}
    assert rows["support vectors (Gaussian)"] == ""
    assert rows["k nearest neighbours"] == "only up to 10,000,000 cells"


# ---- found again ---------------------------------------------------------------------


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


def test_gaps_are_judged_on_training_rows_only():
    X, y = linear()
    found = certus.compare(X, y, models=[Ridge()])
    poisoned = y.copy()
    poisoned[found.split.sealed] += 100.0
    again = recheck(found.model, found.record(), X, poisoned)
    assert again.same and again.certificate.met  # the training rows are as they were
    assert again.risk[1].value > found.risk[1].value


def test_everything_is_json_ready():
    found = certus.compare(*labelled())
    text = json.dumps(plain(found.to_dict()), allow_nan=False)
    data = json.loads(text)
    assert data["chosen"] == found.chosen and len(data["candidates"]) == len(found.rows)
    assert data["split"]["sealed_rows"] == 30
    assert str(found).count("\n") > len(found.rows)


# ---- bad input -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"groups": "g", "time": "x"}, "cannot both be respected"),
        ({"groups": "h"}, 'no column "h"'),
        ({"time": "word"}, "not dates or numbers"),
        ({"time": "gaps"}, "has no value in 1 row"),
        ({"groups": "two"}, "2 groups: too few"),
        ({"time": "same"}, "fewer than 2 to learn from"),
        ({"keep": ["h"]}, 'no column "h" to keep'),
        ({"fraction": 1.5}, "fraction must be a number"),
        ({"folds": 1}, "folds must be an integer"),
        ({"task": "ranking"}, "task='ranking'"),
        ({"models": [LogisticRegression()]}, "predicts labels, and the target holds"),
        ({"also": ["Ridge"]}, "not an estimator"),
        ({"random_state": -1}, "random_state"),
        ({"time_limit": 0}, "time_limit"),
    ],
    ids=str,
)
def test_options_that_cannot_be(options, text):
    n = 40
    frame = pl.DataFrame(
        {
            "x": np.arange(n) * 1.0,
            "g": np.arange(n) % 9,
            "word": ["a", "b"] * (n // 2),
            "gaps": [None, *range(n - 1)],
            "two": np.arange(n) % 2,
            "same": np.ones(n),
        }
    )
    with pytest.raises((ValueError, TypeError)) as caught:
        certus.compare(frame, np.sin(np.arange(n)), **options)
    assert text in str(caught.value), caught.value


@pytest.mark.parametrize(
    ("y", "text"),
    [
        (np.ones(30), "the same in every row"),
        (np.r_[np.inf, np.arange(29.0)], "infinite"),
        (np.r_[np.nan, np.arange(29.0)], "NaN"),
        (np.arange(29.0), "one target per row"),
        (np.arange(60.0).reshape(30, 2), "one target per row"),
    ],
    ids=["constant", "inf", "nan", "short", "two"],
)
def test_targets_that_cannot_be(y, text):
    with pytest.raises((ValueError, TableError)) as caught:
        certus.compare(np.random.default_rng(0).normal(size=(30, 2)), y)
    assert text in str(caught.value)


def test_kernel_ridge_has_an_offset():
    """Amounts far from zero: the Gaussian part need not reach for them."""
    X, y = linear(150)
    near, far = certus.compare(X, y), certus.compare(X, y + 1000.0)
    name = "kernel ridge (Gaussian)"
    assert isinstance(far[name].model, KernelRidge)
    assert far[name].mean == pytest.approx(near[name].mean, rel=0.1)
