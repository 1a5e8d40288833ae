"""A refit delivers a model of all rows; its CV+ intervals are those by hand."""

import math

import numpy as np
import polars as pl
import pytest

import certus
from certus import persist
from certus.bounds import cv_plus_coverage, cv_plus_ends, cv_plus_holds, cv_plus_rank
from certus.certificate import Evidence, Status, Strength
from certus.linear_model import Lasso, LogisticRegression, Ridge
from certus.monitoring import watch
from certus.neighbors import KNeighborsClassifier
from certus.selection import recheck, refitting
from certus.selection.refitting import cross_folds
from certus.verify import judge


def amounts(n=83, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 3))
    return X, X @ [1.0, -2.0, 0.5] + rng.standard_t(2, size=n)


def labelled(n=120, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 3))
    return X, np.where(X[:, 0] + 0.7 * rng.normal(size=n) > 0, "yes", "no")


@pytest.fixture(scope="module")
def regression():
    X, y = amounts()
    return X, y, certus.compare(X, y, models=[Ridge(alpha=0.3)], refit=True)


@pytest.fixture(scope="module")
def classification():
    X, y = labelled()
    models = [LogisticRegression(), KNeighborsClassifier()]
    return X, y, certus.compare(X, y, models=models, refit=True)


# ---- the arithmetic ------------------------------------------------------------------


@pytest.mark.parametrize("coverage", [0.5, 0.9, 0.99])
def test_ends_are_the_order_statistics_of_the_paper(coverage):
    """Barber et al. 2021, eq. (1.5) of CV+, with plain sorting and α/2."""
    rng = np.random.default_rng(3)
    z = rng.normal(size=(7, 4))
    R = [np.abs(rng.standard_cauchy(size=12)).round(1) for _ in range(4)]
    low, high = cv_plus_ends(z, R, coverage)
    half = (1 - coverage) / 2
    for x in range(7):
        down = sorted(z[x, k] - r for k in range(4) for r in R[k])
        up = sorted(z[x, k] + r for k in range(4) for r in R[k])
        lower = math.floor(half * 49 + 1e-9)
        upper = math.ceil((1 - half) * 49 - 1e-9)
        assert low[x] == pytest.approx(down[lower - 1] if lower else -np.inf)
        assert high[x] == pytest.approx(up[upper - 1] if upper <= 48 else np.inf)


def test_labels_stay_unless_too_many_rows_fit_better():
    rng = np.random.default_rng(4)
    S = [rng.random(size=(9, 3)).round(1) for _ in range(3)]
    R = [rng.random(size=8).round(1) for _ in range(3)]  # with ties
    found = cv_plus_holds(S, R, 0.8)
    for x in range(9):
        for label in range(3):
            below = sum(r < S[k][x, label] for k in range(3) for r in R[k])
            assert found[x, label] == (below < 0.9 * 25)


def test_guarantee_is_that_of_the_theorem():
    for n, k in ((50, 5), (565, 5), (40, 20), (12, 12)):
        term = min(2 * (1 - 1 / k) / (n / k + 1), (1 - k / n) / (k + 1))
        assert cv_plus_coverage(n, k, 0.9) == pytest.approx(0.9 - term)
        assert 0.9 - cv_plus_coverage(n, k, 0.9) <= math.sqrt(2 / n)  # their bound
    assert cv_plus_coverage(5, 5, 0.05) == 0.05 and cv_plus_coverage(4, 2, 0.05) == 0
    assert cv_plus_rank(19, 0.9) == 19 and cv_plus_rank(18, 0.9) == 19


@pytest.mark.parametrize(("n", "k"), [(10, 3), (10, 1), (3, 4)])
def test_unequal_folds_are_refused(n, k):
    with pytest.raises(ValueError, match="n must be a multiple of folds"):
        cv_plus_coverage(n, k, 0.9)


# ---- the model -----------------------------------------------------------------------


def test_model_is_fitted_to_all_rows_and_the_one_before_is_kept(regression):
    X, y, found = regression
    plain = certus.compare(X, y, models=[Ridge(alpha=0.3)])
    assert found.refitted and not plain.refitted
    assert found.certificate.n_samples == 83 > plain.certificate.n_samples == 66
    np.testing.assert_array_equal(
        found.judged.estimator_.coef_, plain.model.estimator_.coef_
    )
    assert plain.judged is plain.model
    # What the sealed rows say is about the model before, word by word.
    old = [c for c in plain.risk if not c.name.startswith("coverage")]
    assert list(found.risk[: len(old)]) == old
    assert [c.name for c in found.risk[len(old) :]] == ["coverage"]
    np.testing.assert_array_equal(found.sealed_predictions, plain.sealed_predictions)


def test_intervals_are_cv_plus_by_hand(regression):
    X, y, found = regression
    order, fold = cross_folds(83, 5, 0)
    assert sorted(np.bincount(fold + 1)) == [3, 16, 16, 16, 16, 16]
    new = np.random.default_rng(9).normal(size=(6, 3))
    down, up = [[] for _ in new], [[] for _ in new]
    for k in range(5):
        train = order[fold[order] != k]
        mean, sd = X[train].mean(axis=0), X[train].std(axis=0)
        Z, t = (X[train] - mean) / sd, y[train] - y[train].mean()
        w = np.linalg.solve(Z.T @ Z + 0.3 * np.eye(3), Z.T @ t)

        b = y[train].mean()

        def f(rows, mean=mean, sd=sd, w=w, b=b):
            return (rows - mean) / sd @ w + b

        R = np.abs(y - f(X))[fold == k]
        for at, z in enumerate(f(new)):
            down[at] += list(z - R)
            up[at] += list(z + R)
    ends = found.model.predict_interval(new, 0.9)
    for at in range(6):  # 80 rows with a score: ⌊0.05·81⌋ = 4, ⌈0.95·81⌉ = 77
        assert ends[at, 0] == pytest.approx(sorted(down[at])[3], rel=1e-6)
        assert ends[at, 1] == pytest.approx(sorted(up[at])[76], rel=1e-6)


def test_coverage_is_stated_with_its_term(regression, classification):
    for (_, _, found), n in ((regression, 80), (classification, 120)):
        claim = found.risk[-1]
        assert claim.name == "coverage" and claim.strength is Strength.STATISTICAL
        assert claim.value == pytest.approx(cv_plus_coverage(n, 5, 0.9), abs=1e-12)
        assert claim.value <= cv_plus_coverage(n, 5, 0.9)
        assert "exchangeable" in claim.assumptions[0]


def test_choice_is_repeated_without_each_fold(classification, monkeypatch):
    X, y, _ = classification
    seen = []
    whole = refitting._again

    def watched(race, chosen):
        seen.append(len(race.ready.y))
        return whole(race, chosen)

    monkeypatch.setattr(refitting, "_again", watched)
    models = [LogisticRegression(), KNeighborsClassifier()]
    found = certus.compare(X, y, models=models, refit=True)
    assert seen == [96] * 5
    assert found.model.calibration_certificate_.evidence.witness.repeated
    kinds = {type(each.estimator_).__name__ for each in found.model.fold_models_}
    assert kinds <= {"LogisticRegression", "KNeighborsClassifier"}


def test_where_the_choice_is_not_repeated_coverage_is_measured(monkeypatch):
    X, y = labelled()
    whole = refitting._again
    monkeypatch.setattr(
        refitting, "_again", lambda race, chosen: (*whole(race, chosen)[:2], False)
    )
    models = [LogisticRegression(), KNeighborsClassifier()]
    found = certus.compare(X, y, models=models, refit=True)
    claim = found.risk[-1]
    assert claim.strength is Strength.MEASURED and 0.8 < claim.value <= 1
    assert "not guaranteed" in claim.detail


def test_a_column_that_only_some_folds_find_makes_coverage_measured(monkeypatch):
    X, y = amounts()
    whole = refitting._member
    monkeypatch.setattr(
        refitting,
        "_member",
        lambda race, chosen, *rest: whole(
            race,
            chosen._replace(
                prepare=lambda some: chosen.prepare(some)._replace(left_out=("x9",))
            ),
            *rest,
        ),
    )
    found = certus.compare(X, y, models=[Ridge()], refit=True)
    assert found.risk[-1].strength is Strength.MEASURED
    assert len(found.model.predict_interval(X)) == len(X)


def test_no_time_left_keeps_the_model_that_was_judged(monkeypatch):
    X, y = amounts()
    monkeypatch.setattr(refitting, "_SHARE", 0.0)
    found = certus.compare(X, y, models=[Ridge()], refit=True, max_time=60)
    assert not found.refitted and "no time to fit" in found.notes[-1]
    assert [c.name for c in found.risk][-2:] == ["coverage", "coverage_floor"]


def test_threshold_of_costs_is_kept():
    X, y = labelled()
    cost = {"fp": 1, "fn": 20}
    found = certus.compare(
        X, y, models=[LogisticRegression()], cost=cost, refit=True, positive="yes"
    )
    assert found.model.estimator_.cutoff == found.judged.estimator_.cutoff < 0.4
    assert np.mean(found.model.predict(X) == "yes") > 0.6
    assert found.model.predict_set(X).shape == (120, 2)


# ---- files ---------------------------------------------------------------------------


def test_file_keeps_all_models(regression, classification, tmp_path):
    for X, y, found in (regression, classification):
        place = tmp_path / f"{found.task}.certus"
        persist.save(found.model, place, split=found.record())
        again = persist.load(place)
        ask = "predict_interval" if found.task == "regression" else "predict_set"
        for one, other in ((again, found.model), (again.before_, found.judged)):
            np.testing.assert_array_equal(getattr(one, ask)(X), getattr(other, ask)(X))
        checked = recheck(again, persist.read_manifest(place)["split"], X, y)
        assert checked.same and checked.refitted
        assert checked.certificate.n_samples == len(X)
        assert [c.name for c in checked.risk] == [c.name for c in found.risk]
        assert checked.risk[-1].value == found.risk[-1].value


def test_verifier_recomputes_the_scores(regression, classification):
    for X, y, found in (regression, classification):
        told = found.model.calibration_certificate_.evidence
        whole = judge(found.model, told, X, y, level="full")
        assert whole.status is Status.SOLVED and whole["coverage"].value > 0.8
        forged = told.witness._replace(scores=told.witness.scores * 0.5)
        bad = judge(found.model, Evidence("cross", forged), X, y, level="full")
        assert bad.status is Status.REFUTED


def test_watch_judges_the_intervals_of_a_refit(regression):
    found = regression[-1]
    new, truth = amounts(200, seed=5)
    fine = watch(found.model, new, truth, ordered=True).coverage
    assert fine.alarm is None and fine.covered / 200 > 0.85
    assert watch(found.model, new, truth + 30, ordered=True).coverage.alarm is not None


# ---- what does not fit ---------------------------------------------------------------


def test_groups_and_time_are_refitted_without_intervals():
    X, y = amounts()
    for order in ({"groups": np.arange(83) // 4}, {"time": np.arange(83.0)}):
        found = certus.compare(X, y, models=[Ridge()], refit=True, **order)
        assert found.refitted and found.certificate.n_samples == 83
        assert not hasattr(found.model, "fold_models_")
        with pytest.raises(ValueError, match="not calibrated"):
            found.model.predict_interval(X)


def test_few_rows_say_what_holds():
    X, y = amounts(22)
    found = certus.compare(X, y, models=[Ridge()], refit=True)
    claim = found.risk[-1]
    assert claim.strength is Strength.STATISTICAL
    assert claim.value == pytest.approx(0.9 - (1 - 5 / 20) / 6)
    assert np.isinf(found.model.predict_interval(X, 0.95)).all()  # 39 are needed
    tiny = certus.compare(*amounts(12), models=[Ridge()], refit=True)
    assert not tiny.refitted  # nothing was sealed


def test_a_rare_label_may_be_missing_from_a_fold():
    """Fits that fail and labels that a fold lacks widen the sets, and nothing else."""
    X, y = labelled(40)
    y = np.where(np.arange(40) < 38, "no", "yes")
    found = certus.compare(X, y, models=[LogisticRegression()], refit=True)
    sets = found.model.predict_set(X)
    assert sets[y == "no", 0].mean() > 0.9 and sets.shape == (40, 2)
    found.model.fold_models_ = [None] * 5
    witness = found.model.calibration_certificate_.evidence.witness
    lost = witness._replace(scores=np.full(40, np.inf))
    stated = judge(found.model, Evidence("cross", lost), X, y)
    assert stated["coverage"].strength is Strength.REFUSED
    found.model.calibration_certificate_ = stated
    assert found.model.predict_set(X).all()


def test_arguments_are_checked(regression):
    X, y, found = regression
    with pytest.raises(ValueError, match="refit must be True, False or None"):
        certus.compare(X, y, models=[Ridge()], refit="yes")
    with pytest.raises(ValueError, match="recall and refit"):
        certus.compare(
            *labelled(), models=[LogisticRegression()], refit=True, recall=0.8
        )
    with pytest.raises(ValueError, match="delta must be None after a refit"):
        found.model.predict_interval(X, delta=0.1)
    with pytest.raises(TypeError, match="use predict_interval"):
        found.model.predict_set(X)


def test_forgets_its_folds_when_fitted_or_calibrated(regression):
    X, y = amounts()
    model = certus.compare(X, y, models=[Lasso(alpha=0.1)], refit=True).model
    other, truth = amounts(60, seed=8)
    assert np.ptp(model.predict_interval(X), axis=1).std() > 1e-9
    model.calibrate(other, truth)  # split conformal again: one width
    assert np.ptp(model.predict_interval(X), axis=1).std() < 1e-9
    model.fit(X, y)
    assert not hasattr(model, "before_") and not hasattr(model, "fold_models_")


def test_default_is_by_the_number_of_rows():
    X, y = amounts(40)
    frame = pl.DataFrame(X, schema=["a", "b", "c"])
    assert certus.compare(frame, y, models=[Ridge()], refit=None).refitted
    big = amounts(1000)
    assert not certus.compare(*big, models=[Ridge()], refit=None).refitted
    some = labelled(60)
    kept = certus.compare(*some, models=[LogisticRegression()], refit=None, recall=0.5)
    assert not kept.refitted
