"""A comparison is honest: sealed rows unseen, leaks found, the known best chosen."""

import dataclasses
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
from certus.kernel_ridge import KernelRidge
from certus.linear_model import Lasso, LassoCV, LogisticRegression, Ridge
from certus.neighbors import KNeighborsClassifier, KNeighborsRegressor
from certus.selection import METRICS, ComparisonRow, comparing, preparation, recheck
from certus.selection.candidates import list_candidates
from certus.selection.lineup import choose as choose_candidate
from certus.selection.race import Race, _still_needed
from certus.tables import TableError
from certus.wording import plain


def linear(n=120, d=4, noise=1.0, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d))
    return X, X @ np.arange(1, d + 1) + noise * rng.normal(size=n)


def labelled(n=150, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 3))
    return X, np.where(X[:, 0] + 0.7 * rng.normal(size=n) > 0, "yes", "no")


@pytest.fixture(scope="module")
def amounts():
    """All usual candidates on the amounts of ``linear()``, compared once."""
    return certus.compare(*linear())


@pytest.fixture(scope="module")
def labels():
    """All usual candidates on the labels of ``labelled()``, compared once."""
    return certus.compare(*labelled())


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
    np.testing.assert_array_equal(
        again.model.estimator_.coef_, clean.model.estimator_.coef_
    )
    assert again.threshold == clean.threshold
    assert again.risk[0].value > 1e6 > clean.risk[0].value  # only here they speak


def test_sealed_rows_are_never_seen_labels(labels, monkeypatch):
    """As above with all usual candidates; the plan is held, as it deals labels."""
    X, y = labelled()
    clean = labels
    monkeypatch.setattr(preparation, "make_split", lambda *a, **k: clean.split)
    poisoned, flipped = X.copy(), y.copy()
    poisoned[clean.split.sealed] = np.nan
    flipped[clean.split.sealed] = np.where(y[clean.split.sealed] == "yes", "no", "yes")
    again = certus.compare(poisoned, flipped)
    same_rows(clean, again)
    assert again.risk[0].value != clean.risk[0].value


def test_sealed_rows_do_not_decide_which_column_leaks():
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
    whole = comparing.open_rows

    def counted(model, rows, *args, **kwargs):
        calls.append(len(rows))
        return whole(model, rows, *args, **kwargs)

    monkeypatch.setattr(comparing, "open_rows", counted)
    X, y = labelled()
    found = certus.compare(X, y, models=[LogisticRegression(), KNeighborsClassifier()])
    assert calls == [len(found.split.sealed)] == [30]
    share = np.mean(y == "yes")
    assert abs(np.sum(y[found.split.sealed] == "yes") - 30 * share) <= 1  # evenly dealt


def test_risk_is_clopper_pearson_of_the_sealed_rows():
    X, y = labelled(400)
    found = certus.compare(
        X, y, models=[LogisticRegression()], metric="error", delta=0.1
    )
    sealed = found.split.sealed
    wrong = int((found.model.predict(X[sealed]) != y[sealed]).sum())
    np.testing.assert_array_equal(
        found.sealed_predictions, found.model.predict(X[sealed])
    )
    # Half of delta is spent on the metric that was asked for.
    reference = binomtest(wrong, len(sealed)).proportion_ci(0.95, "exact")
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
    # Half of the 5 % is spent on this, half on the coverage given these rows.
    high = reference.proportion_ci(0.975, "exact").high
    *panel, large, average, _ = found.risk
    rest = [average]
    assert [claim.name for claim in panel] == ["rmse", "mae", "r2"]
    assert {claim.strength for claim in panel} == {Strength.MEASURED}
    assert large.value == pytest.approx(high, rel=1e-9)
    assert rest[0].name == "coverage"
    low, high = found.model.predict_interval(X[sealed]).T
    assert np.mean((low <= y[sealed]) & (y[sealed] <= high)) >= 0.9


def test_union_bound_over_candidates_and_folds():
    X, y = labelled()
    models = [LogisticRegression(), KNeighborsClassifier()]
    found = certus.compare(X, y, models=models, metric="error")
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
    models = {"a": LogisticRegression(), "b": Spy()}
    found = certus.compare(X, y, models=models, metric="error")
    assert len(Spy.seen) == 5
    for (train, _), seen in zip(found.split.folds, Spy.seen, strict=True):
        part = X[train, 0]
        np.testing.assert_allclose(seen, (part - part.mean()) / part.std(), atol=1e-12)


def test_the_choice_is_the_least_mean_error_of_ours(amounts):
    found = amounts
    ours = [row for row in found.rows if row.kind == "certus"]
    assert found.chosen == min(ours, key=lambda row: row.mean).name
    assert type(found.model.estimator_) is type(found.best.model)
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


def test_a_deviation_that_is_rounding_is_shown_as_zero(amounts):
    row = dataclasses.replace(amounts.rows[0], errors=(0.3, 0.1 + 0.2, 0.3))
    assert 0 < row.deviation < 1e-15
    assert amounts._cells(row)[1] == "0.3 ± 0"


def test_parameters_are_chosen_on_training_rows_only(amounts, monkeypatch):
    """Labels of the fold that is held out can be anything: its model is the same."""
    (X, y), clean = linear(), amounts
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
        assert min(by, key=by.get) in ("robust (Huber)", "linear quantile")
        assert found.metric.name == "mae" and "squared distances" in found.notes[-1]
        return
    elif kind == "few":
        X = rng.normal(size=(n, 40))
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
    curved = ("support vectors (Gaussian)", "neural network", "additive shapes")
    curved += ("k nearest neighbours",)
    assert found.chosen in curved
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
    assert found.verdict.startswith("no model is better than always the mean")
    assert isinstance(found.model.estimator_, KNeighborsRegressor)


def test_a_win_of_another_library_is_reported_and_not_saved():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(400, 2))
    y = 10.0 * ((X[:, 0] > 0) ^ (X[:, 1] > 0)) + 0.1 * rng.normal(size=400)
    boosted = HistGradientBoostingRegressor(random_state=0)
    found = certus.compare(X, y, models=[Ridge()], also={"boosting": boosted})
    assert found.chosen == "Ridge" and found.leader.name == "boosting"
    assert found.beaten and found.verdict.startswith("boosting is better than every")
    assert isinstance(found.model.estimator_, Ridge)
    X, y = linear()
    found = certus.compare(X, y, models=[Ridge()], also={"boosting": boosted})
    assert not found.beaten and found.verdict == ""


def test_the_seed_decides_everything(labels):
    X, y = labelled()
    one = labels
    same_rows(one, certus.compare(X, y, random_state=0))
    other = certus.compare(X, y, random_state=4, models=[LogisticRegression()])
    assert not np.array_equal(one.split.sealed, other.split.sealed)


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
    assert found.risk[3].name == "large_error" and found.model.certificate_.met
    assert found["k nearest neighbours"].reason == "interrupted"


def test_time_limit(amounts):
    X, y = linear()
    with pytest.raises(TimeoutError, match="Raise it"):
        certus.compare(X, y, max_time=1e-9)
    found = certus.compare(X, y, max_time=1000.0)
    assert found.status is Status.SOLVED
    assert [r.errors for r in found.rows] == [r.errors for r in amounts.rows]


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
    with pytest.raises(ValueError, match="is a model of certus"):
        certus.compare(X, y, models=[Broken()])


def test_costly_candidates_are_listed_with_the_reason():
    rows = {c.name: c.reason for c in list_candidates("regression", 10_001, 5, 0)}
    assert rows["kernel ridge (Gaussian)"] == "only up to 10,000 rows"
    assert rows["k nearest neighbours"] == ""
    rows = {c.name: c.reason for c in list_candidates("binary", 10_000, 1_001, 0)}
    assert rows["support vectors (Gaussian)"] == ""
    assert rows["k nearest neighbours"] == "only up to 10,000,000 cells"


# ---- found again ---------------------------------------------------------------------


def test_gaps_are_judged_on_training_rows_only():
    X, y = linear()
    found = certus.compare(X, y, models=[Ridge()])
    poisoned = y.copy()
    poisoned[found.split.sealed] += 100.0
    again = recheck(found.model, found.record(), X, poisoned)
    assert again.same and again.certificate.met  # the training rows are as they were
    assert again.risk[0].value > found.risk[0].value


def test_everything_is_json_ready(labels):
    found = labels
    text = json.dumps(plain(found.to_dict()), allow_nan=False)
    data = json.loads(text)
    assert data["chosen"] == found.chosen and len(data["candidates"]) == len(found.rows)
    assert data["split"]["sealed_rows"] == 30
    assert str(found).count("\n") > len(found.rows)


# ---- bad input -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"groups": "g", "time": "x"}, "cannot be used together"),
        ({"groups": "h"}, 'no column "h"'),
        ({"time": "word"}, "must hold dates or numbers"),
        ({"time": "gaps"}, "has no value in 1 row"),
        ({"groups": "two"}, "2 groups, too few"),
        ({"time": "same"}, "fewer than 2 for training"),
        ({"keep": ["h"]}, 'no column "h" to keep'),
        ({"fraction": 1.5}, "fraction must be a number"),
        ({"folds": 1}, "folds must be an integer"),
        ({"task": "ranking"}, "got 'ranking'"),
        ({"models": [LogisticRegression()]}, "predicts labels, and the target holds"),
        ({"also": ["Ridge"]}, "not an estimator"),
        ({"random_state": -1}, "random_state"),
        ({"max_time": 0}, "max_time"),
    ],
    ids=str,
)
def test_impossible_options_are_refused(options, text):
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
def test_impossible_targets_are_refused(y, text):
    with pytest.raises((ValueError, TableError)) as caught:
        certus.compare(np.random.default_rng(0).normal(size=(30, 2)), y)
    assert text in str(caught.value)


def test_kernel_ridge_has_an_offset(amounts, monkeypatch):
    """Amounts far from zero: the Gaussian part need not reach for them."""
    X, y = linear()
    name = "kernel ridge (Gaussian)"

    def two(*args):
        wanted = ("always the mean", name)
        return [c for c in list_candidates(*args) if c.name in wanted]

    monkeypatch.setattr("certus.selection.lineup.list_candidates", two)
    near, far = amounts, certus.compare(X, y + 1000.0)
    assert isinstance(far[name].model, KernelRidge)
    assert far[name].mean == pytest.approx(near[name].mean, rel=0.1)


def test_candidates_that_cannot_end_in_time_are_given_up_early() -> None:
    """Seconds still needed: of the other folds and a final fit, at the best pace."""
    assert _still_needed([], 5) == 0.0
    assert _still_needed([5.0], 5) == 5.0  # the first may have compiled
    assert _still_needed([5.0, 1.0], 5) == 4.0
    assert _still_needed([2.0, 3.0, 2.5, 2.0], 5) == 4.0


def test_under_a_deadline_cheap_candidates_come_first() -> None:
    lineup = list_candidates("classification", 500, 10, 0)
    turn = [c.name for c in Race(None, 1.0, None)._in_turn(lineup)]
    assert turn[:3] == [
        "shares of the labels",
        "logistic",
        "gradient boosting",
    ]
    # Cheap, and seldom the best.
    assert turn[-2:] == ["perceptron", "k nearest neighbours"]
    assert sorted(turn) == sorted(c.name for c in lineup)
    assert Race(None, None, None)._in_turn(lineup) == lineup


def test_an_unfinished_candidate_wins_only_if_it_beats_all_finished_ones() -> None:
    lineup = list_candidates("regression", 500, 10, 0)[:4]
    names = [candidate.name for candidate in lineup]
    assert [c.kind for c in lineup] == ["baseline", "certus", "certus", "certus"]

    def choose(errors, cut):
        rows = [
            ComparisonRow(c.name, c.kind, c.model, (e,) if e else (), cut_short=s)
            for c, e, s in zip(lineup, errors, cut, strict=True)
        ]
        args = lineup, rows, Status.TIME_LIMIT, METRICS["rmse"]
        return names.index(choose_candidate(*args).name)

    no = False
    assert choose([5.0, 3.0, 2.0, 4.0], [no, no, no, no]) == 2
    assert choose([5.0, 3.0, 2.0, 4.0], [no, no, True, no]) == 2  # better than all
    assert choose([5.0, 3.0, 3.5, 4.0], [no, no, True, no]) == 1
    assert choose([5.0, 6.0, 5.5, 0.0], [no, no, True, no]) == 1  # worse than constant
    with pytest.raises(TimeoutError):
        choose([5.0, 6.0, 5.5, 0.0], [no, True, True, no])
