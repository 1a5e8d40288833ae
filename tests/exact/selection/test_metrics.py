"""Metrics against scikit-learn's, and how they decide what a comparison chooses."""

import numpy as np
import pytest
from scipy.stats import binom
from sklearn import metrics as theirs
from sklearn.datasets import load_iris

import certus
from certus.calibration import PlattClassifier, ThresholdClassifier
from certus.certificate import Status, Strength
from certus.linear_model import LogisticRegression, Ridge
from certus.neighbors import KNeighborsClassifier
from certus.persist import read_manifest, save
from certus.selection import METRICS, recheck
from certus.selection.candidates import list_candidates
from certus.selection.metrics import Predicted, default_metric, find_metric
from certus.selection.opening import open_rows
from certus.selection.preparation import prepare
from certus.selection.race import Race
from certus.svm import LinearSVC
from certus.verify.amounts import _largest, _parts, bootstrap
from certus.verify.panel import CLIP, Said, panel_intervals

RNG = np.random.default_rng(0)


def two_labels(n=400, ties=False):
    """Labels, and probabilities that say something about them."""
    rng = np.random.default_rng(1)
    p = rng.beta(0.7, 2.0, n)
    p = np.round(p, 1) if ties else p
    truth = np.where(rng.random(n) < p, "ill", "well")
    shares = np.column_stack([p, 1 - p])
    guess = np.where(p >= 0.5, "ill", "well")
    return truth, Predicted(guess, shares, np.array(["ill", "well"]), "ill")


@pytest.mark.parametrize("ties", [False, True])
def test_metrics_of_two_labels_are_those_of_scikit_learn(ties):
    truth, said = two_labels(ties=ties)
    hit, p = truth == "ill", said.shares[:, 0]
    told = said.guess == "ill"
    clipped = np.maximum(said.of_truth(truth), CLIP)
    expected = {
        "error": 1 - theirs.accuracy_score(truth, said.guess),
        "balanced_error": 1 - theirs.balanced_accuracy_score(truth, said.guess),
        "log_loss": -np.log(clipped).mean(),
        "brier": theirs.brier_score_loss(hit, p),
        "auc": theirs.roc_auc_score(hit, p),
        "average_precision": theirs.average_precision_score(hit, p),
        "f_beta": theirs.f1_score(hit, told),
    }
    for name, value in expected.items():
        assert METRICS[name](truth, said) == pytest.approx(value, rel=1e-12), name
    beta = find_metric("f_beta@2", "binary")
    assert beta(truth, said) == pytest.approx(theirs.fbeta_score(hit, told, beta=2))
    precision, recall, _ = theirs.precision_recall_curve(hit, p)
    least = find_metric("recall@0.6", "binary")
    assert least(truth, said) == pytest.approx(recall[precision >= 0.6].max())


def test_the_verifier_computes_the_same_numbers_by_its_own_formulas():
    truth, said = two_labels(ties=True)
    given = Said(truth, said.guess, said.shares, said.classes, "ill")
    found = panel_intervals(given, "log_loss")
    for name in found.keys() - {"recall", "precision", "calibration"}:
        assert found[name].value == pytest.approx(METRICS[name](truth, said)), name
    assert found["recall"].value == pytest.approx(
        theirs.recall_score(truth, said.guess, pos_label="ill")
    )
    for ends in found.values():
        assert ends.low <= ends.value <= ends.high


def test_metrics_of_amounts_are_those_of_scikit_learn():
    rng = np.random.default_rng(2)
    truth = rng.gamma(2.0, 3.0, 300)
    said = Predicted(truth * rng.uniform(0.5, 1.5, 300))
    expected = {
        "rmse": theirs.root_mean_squared_error(truth, said.guess),
        "mae": theirs.mean_absolute_error(truth, said.guess),
        "r2": theirs.r2_score(truth, said.guess),
        "poisson": theirs.mean_poisson_deviance(truth, said.guess),
        "gamma": theirs.mean_gamma_deviance(truth, said.guess),
    }
    for name, value in expected.items():
        assert METRICS[name](truth, said) == pytest.approx(value, rel=1e-10), name
    pinball = find_metric("pinball@0.9", "regression")
    wanted = theirs.mean_pinball_loss(truth, said.guess, alpha=0.9)
    assert pinball(truth, said) == pytest.approx(wanted)


def test_names_that_do_not_fit_are_refused_with_those_that_do():
    with pytest.raises(ValueError, match="metric for two labels, but the target holds"):
        find_metric("auc", "multiclass")
    with pytest.raises(ValueError, match="Did you mean log_loss"):
        find_metric("log_los", "binary")
    with pytest.raises(ValueError, match="between 0 and 1"):
        find_metric("pinball@1.5", "regression")
    with pytest.raises(ValueError, match="has no parameter"):
        find_metric("rmse@2", "regression")
    with pytest.raises(ValueError, match="targets that are positive, got"):
        certus.compare(
            np.eye(30), np.arange(30.0) - 3, metric="gamma", models=[Ridge()]
        )


def test_heavy_tails_ask_for_absolute_errors():
    rng = np.random.default_rng(0)
    plain = rng.normal(size=500)
    assert default_metric("regression", plain)[0].name == "rmse"
    heavy = plain.copy()
    heavy[3] = 1e4
    found, remark = default_metric("regression", heavy)
    assert found.name == "mae" and "5 rows hold more than half" in remark
    assert default_metric("regression", np.zeros(50))[0].name == "rmse"


# ---- comparisons -------------------------------------------------------------------


def rare(n=1500, seed=0):
    """About 3 % positive rows, told by the first column."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 4))
    p = 1 / (1 + np.exp(-(2.5 * X[:, 0] - 5.5)))
    return X, np.where(rng.random(n) < p, "bad", "good")


@pytest.fixture(scope="module")
def decided():
    """A comparison whose threshold was chosen for costs."""
    X, y = rare()
    models = {"svm": LinearSVC(), "neighbours": KNeighborsClassifier(30)}
    found = certus.compare(X, y, models=models, cost={"fp": 1, "fn": 20})
    return X, y, found


def test_a_rare_label_is_distinguished_from_the_constant():
    """By the share of wrong labels nothing beats the constant; by log loss it does."""
    X, y = rare()
    model = [LogisticRegression()]
    by_error = certus.compare(X, y, models=model, metric="error")
    assert by_error["LogisticRegression"].mean >= 0.9 * by_error.rows[0].mean
    found = certus.compare(X, y, models=model)
    assert found.metric.name == "log_loss" and found.verdict == ""
    assert found.best.mean < 0.8 * found.rows[0].mean
    assert found.positive == "bad"


def test_models_without_probabilities_get_them_inside_the_folds(decided):
    _, _, found = decided
    row = found["svm"]
    assert isinstance(row.model, PlattClassifier)
    held = np.isfinite(row.shares).all(axis=1)
    np.testing.assert_array_equal(np.flatnonzero(held), found.split.training)
    np.testing.assert_allclose(row.shares[held].sum(axis=1), 1.0)


def test_the_threshold_is_the_cheapest_of_the_rows_held_out(decided):
    X, y, found = decided
    row = found.best
    held = found.split.training
    chance, hit = row.shares[held, 0], y[held] == "bad"

    def cost(cut):
        told = chance >= cut
        return (told & ~hit).sum() + 20 * (~told & hit).sum()

    assert cost(found.asked.threshold) == min(map(cost, [*chance, 0.0, 1.1]))
    model = found.model.estimator_
    assert isinstance(model, ThresholdClassifier)
    told = found.model.predict(X) == "bad"
    given = found.model.predict_proba(X)[:, 0]
    np.testing.assert_array_equal(told, given >= found.asked.threshold)


def test_the_cost_on_new_rows_is_joint_clopper_pearson(decided):
    X, y, found = decided
    sealed = found.split.sealed
    told, hit = found.model.predict(X[sealed]) == "bad", y[sealed] == "bad"
    # A quarter of the 5 %: half is spent on the metric and the cost, half on the rest.
    n, tail = len(sealed), 0.05 / 4 / 3 / 2 / 2
    claim = next(c for c in found.risk if c.name == "decision_cost")
    assert claim.strength is Strength.STATISTICAL and "at 0.5" in claim.detail
    high = 0.0
    for count, price in ((int((told & ~hit).sum()), 1), (int((~told & hit).sum()), 20)):
        # At the upper end, so few would be seen with the probability of a tail.
        grid = np.linspace(0, 1, 200_001)
        high += price * grid[np.argmax(binom.cdf(count, n, grid) < tail)]
    assert claim.value == pytest.approx(high, abs=2e-3)


def test_a_decision_is_found_again_in_the_file(decided, tmp_path):
    X, y, found = decided
    save(found.model, tmp_path / "m.certus", split=found.record())
    model = certus.load(tmp_path / "m.certus")
    np.testing.assert_array_equal(model.predict(X), found.model.predict(X))
    split = read_manifest(tmp_path / "m.certus")["split"]
    again = recheck(model, split, X, y)
    assert again.same and again.risk == found.risk[: len(again.risk)]


def test_a_recall_is_kept_or_refused():
    X, y = rare(4000)
    found = certus.compare(X, y, models=[LogisticRegression()], recall=0.8)
    claims = {claim.name: claim for claim in found.risk}
    assert claims["kept_recall"].met and claims["false_alarms"].met is None
    fresh, truth = rare(20_000, seed=9)
    kept = np.mean(found.model.predict(fresh)[truth == "bad"] == "bad")
    assert kept >= 0.8
    few = certus.compare(X[:600], y[:600], models=[LogisticRegression()], recall=0.9)
    refusal = next(c for c in few.risk if c.name == "kept_recall")
    assert refusal.strength is Strength.REFUSED and "are needed" in refusal.detail
    assert not isinstance(few.model.estimator_, ThresholdClassifier)


def test_a_tick_is_for_a_target_that_was_reached():
    """2 % positives, few of them sealed: intervals inform, and none gets a tick."""
    rng = np.random.default_rng(4)
    X = rng.normal(size=(1500, 3))
    y = (rng.random(1500) < 1 / (1 + np.exp(5 - 1.3 * X[:, 0]))).astype(int)
    costs = {"fp": 1, "fn": 20}
    found = certus.compare(X, y, models=[LogisticRegression()], cost=costs)
    assert np.count_nonzero(y[found.split.sealed]) < 10
    assert {claim.mark for claim in found.risk} <= {"·", "–"}
    claims = {claim.name: claim for claim in found.risk}
    assert claims["auc"].value < 0.3 and not claims["auc"].fix
    few = np.flatnonzero(y)[:1].tolist() + np.flatnonzero(y == 0)[:30].tolist()
    said = open_rows(found.model, X[few], y[few], found.asked).claims
    empty = next(claim for claim in said if claim.name == "auc")
    assert "too few to say anything" in empty.detail and "more held-out" in empty.fix
    # Always answering "0" covers 90 % of the rows, too, and this is said.
    assert 'have the label "0"' in claims["coverage"].detail
    stated = found.model.calibration_certificate_
    assert stated.status is Status.SOLVED and stated.met is None
    # A refit: the sets of CV+ say so as well.
    again = certus.compare(X[:400], y[:400], models=[LogisticRegression()], refit=True)
    assert 'have the label "0"' in again.risk[-1].detail
    # With labels in balance, the coverage is a target that the sets reach.
    even = np.where(X[:, 0] + rng.normal(size=1500) > 0, "a", "b")
    found = certus.compare(X, even, models=[LogisticRegression()])
    claims = {claim.name: claim for claim in found.risk}
    assert claims["coverage"].mark == "✓" and "label" not in claims["coverage"].fix
    assert {c.mark for n, c in claims.items() if n != "coverage"} == {"·"}


def test_deviances_are_shown_where_they_are_defined():
    rng = np.random.default_rng(5)
    X = rng.normal(size=(400, 2))
    y = np.exp(0.3 * X[:, 0] + 0.1 * rng.normal(size=400))
    shown = certus.compare(X, y, models=[Ridge()]).risk
    assert [c.name for c in shown[:5]] == ["rmse", "mae", "r2", "poisson", "gamma"]
    model = certus.compare(X, y - 3, models=[Ridge()])
    assert [c.name for c in model.risk[:4]] == ["rmse", "mae", "r2", "large_error"]
    counts = rng.poisson(y).astype(float)  # with zeros: no gamma deviance
    found = certus.compare(X, counts, models=[Ridge()], task="regression")
    names = [c.name for c in found.risk]
    sealed = found.split.sealed
    z = found.model.predict(X[sealed])
    assert "gamma" not in names and ("poisson" in names) == bool((z > 0).all())


def test_decisions_need_two_labels_and_one_requirement():
    X, y = load_iris(return_X_y=True)
    with pytest.raises(ValueError, match="two labels"):
        certus.compare(X, y, recall=0.9)
    X, y = rare(100)
    with pytest.raises(ValueError, match="cannot be used together"):
        certus.compare(X, y, recall=0.9, cost={"fp": 1, "fn": 2})
    with pytest.raises(ValueError, match="keys fp and fn"):
        certus.compare(X, y, cost={"fp": 1})


def test_bounds_of_the_target_give_a_promise():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(600, 2))
    y = np.clip(X[:, 0] + 0.3 * rng.normal(size=600), -3, 3)
    found = certus.compare(X, y, models=[Ridge()], bounds=(-3, 3))
    rmse, mae, r2 = found.risk[:3]
    assert {claim.strength for claim in (rmse, mae, r2)} == {Strength.STATISTICAL}
    sealed = found.split.sealed
    errors = np.abs(found.model.predict(X[sealed]) - y[sealed])
    assert np.sqrt(np.mean(errors**2)) < rmse.value < 3
    assert errors.mean() < mae.value < 2
    assert found.risk[0].theorem.count("statements") == 1


@pytest.mark.parametrize(
    "bounds, said",
    [
        ((-0.1, 0.1), "bounds must hold every target, but the targets go from"),
        ((3, -3), "low below high"),
        ((-3, 3, 4), "two finite numbers"),
        ((-3, np.inf), "two finite numbers"),
        ((np.nan, 3), "two finite numbers"),
        ("ab", "two finite numbers"),
    ],
)
def test_wrong_bounds_are_refused_before_anything_is_fitted(bounds, said):
    class Never(Ridge):
        def fit(self, X, y):
            raise AssertionError("fitted")

    X = np.random.default_rng(0).normal(size=(60, 2))
    with pytest.raises(ValueError, match=said):
        certus.compare(X, X[:, 0] + X[:, 1], models=[Never()], bounds=bounds)
    with pytest.raises(ValueError, match="but this one holds labels"):
        certus.compare(X, X[:, 0] > 0, models=[LogisticRegression()], bounds=(0, 1))


@pytest.mark.parametrize("refit", [False, True])
def test_predictions_and_intervals_are_cut_to_the_bounds(refit, tmp_path):
    """The statement is about what ``predict`` returns, also from the file."""
    rng = np.random.default_rng(1)
    X = rng.normal(size=(300, 2))
    y = np.clip(2 * X[:, 0] + 0.3 * rng.normal(size=300), -1, 1)
    found = certus.compare(X, y, models=[Ridge()], bounds=(-1, 1), refit=refit)
    model, fresh = found.model, rng.normal(size=(2000, 2))
    plain = model.estimator_.predict(model.encoder_.transform(fresh))
    assert plain.max() > 1.5 and plain.min() < -1.5
    np.testing.assert_array_equal(model.predict(fresh), np.clip(plain, -1, 1))
    ends = model.predict_interval(fresh)
    assert ends.min() == -1 and ends.max() == 1
    truth = np.clip(2 * fresh[:, 0] + 0.3 * rng.normal(size=2000), -1, 1)
    held = (ends[:, 0] <= truth) & (truth <= ends[:, 1])
    assert held.mean() > 0.85
    # Measured with the cut in the folds and on the sealed rows.
    row, sealed = found["Ridge"], found.split.sealed
    assert np.nanmax(np.abs(row.predictions)) == 1
    before = getattr(model, "before_", model)
    errors = before.predict(X[sealed]) - y[sealed]
    value = np.sqrt(np.mean(errors**2))
    assert f"{value:.3g}"[:4] in found.risk[0].detail
    save(model, tmp_path / "m.certus", split=found.record())
    again = certus.load(tmp_path / "m.certus")
    np.testing.assert_array_equal(again.predict(fresh), model.predict(fresh))
    split = read_manifest(tmp_path / "m.certus")["split"]
    assert recheck(again, split, X, y).risk[0] == found.risk[0]


def test_deviances_have_a_promise_where_bounds_are_above_zero():
    rng = np.random.default_rng(2)
    X = rng.normal(size=(500, 2))
    y = np.clip(np.exp(0.3 * X[:, 0] + 0.1 * rng.normal(size=500)), 0.2, 3)
    found = certus.compare(X, y, models=[Ridge()], bounds=(0.2, 3), metric="gamma")
    claims = {claim.name: claim for claim in found.risk}
    for name in ("gamma", "poisson", "rmse", "mae", "r2"):
        assert claims[name].strength is Strength.STATISTICAL, name
    z, truth = found.sealed_predictions, y[found.split.sealed]
    assert theirs.mean_gamma_deviance(truth, z) < claims["gamma"].value
    assert theirs.mean_poisson_deviance(truth, z) < claims["poisson"].value
    free = certus.compare(X, y, models=[Ridge()], bounds=(-1, 3))
    claims = {claim.name: claim for claim in free.risk}
    assert claims["gamma"].strength is Strength.MEASURED
    assert "bootstrap" in claims["gamma"].objective


def test_the_largest_deviance_within_bounds_is_at_the_ends():
    grid = np.linspace(0.3, 2.0, 60)
    truth, guess = (part.ravel() for part in np.meshgrid(grid, grid))
    for metric in ("poisson", "gamma"):
        losses = _parts(truth, guess, metric, 0.5)[0]
        unit = 1.7 if metric == "poisson" else 1.0
        most = unit * _largest(metric, (0.3, 2.0), 0.5)
        assert losses.max() <= most <= 1.000001 * losses.max()


def test_bootstrap_intervals_hold_together():
    """Each of several is wider than one for its number alone."""
    rng = np.random.default_rng(3)
    X = rng.normal(size=(300, 2))
    y = X[:, 0] + rng.standard_t(3, size=300)
    found = certus.compare(X, y, models=[Ridge()])
    shown = [c for c in found.risk if "bootstrap" in c.objective]
    assert [c.name for c in shown] == ["rmse", "mae", "r2"]
    assert all("98.33 % of the samples each" in c.objective for c in shown)
    truth = y[found.split.sealed]
    parts = _parts(truth, found.sealed_predictions, "mae", 0.5)
    low, high = bootstrap(parts, lambda means: means[0], 0.05 / 3)
    alone = bootstrap(parts, lambda means: means[0], 0.05)
    assert low < alone[0] and alone[1] < high
    assert f"{low:.2f}" in shown[1].detail and f"{high:.2f}" in shown[1].detail


@pytest.mark.parametrize("metric", ["error", "balanced_error", "f_beta"])
def test_scoring_models_have_the_whole_panel_by_every_metric(metric):
    X, y = rare(600)
    found = certus.compare(X, y, models=[LinearSVC()], metric=metric)
    names = {claim.name for claim in found.risk}
    assert {"log_loss", "brier", "auc", "calibration"} <= names
    assert found.risk[0].name in (metric, "error_rate")
    assert isinstance(found.model.estimator_, PlattClassifier)
    assert found.model.predict_proba(X).shape == (600, 2)
    # The folds judged the model that is delivered: labels agree with probabilities.
    row = found["LinearSVC"]
    held = found.split.training
    told = np.unique(y)[row.shares[held].argmax(axis=1)]
    np.testing.assert_array_equal(row.predictions[held], told)


def test_boosting_on_a_small_table_is_calibrated_inside_the_folds():
    """Its own probabilities are too near 0 and 1; held-out rows correct them."""
    X, fresh, y, truth = noisy(400)
    ready = prepare(X, y, None, None, None, (), 0.2, 5, 0)
    lineup = list_candidates("binary", len(y), X.shape[1], 0, 2, ready.metric)
    boosting = next(c for c in lineup if c.name == "gradient boosting")
    rows = ready.split.training
    race = Race(ready, None, lambda text, share: None)
    choice = race.choose(boosting, X[rows], rows)
    assert isinstance(choice.model, PlattClassifier) and len(choice.model.cv) == 1
    loss = {}
    for name, model in (("own", choice.model.estimator), ("held out", choice.model)):
        p = model.fit(X[rows], y[rows]).predict_proba(fresh)[:, 1]
        loss[name] = theirs.log_loss(truth, p)
    assert loss["held out"] < 0.97 * loss["own"]
    # Not where few rows of a label would be held out, nor for other metrics.
    few = np.where(np.arange(400) < 12, 1, 0)
    assert race._held_out(few[rows], rows) == []
    race.ready = ready._replace(metric=METRICS["error"])
    assert not isinstance(race.choose(boosting, X[rows], rows).model, PlattClassifier)


def noisy(n):
    """Rows to learn from and many others; labels of a logistic law."""
    rng = np.random.default_rng(6)
    X = rng.normal(size=(n + 4000, 8))
    chance = 1 / (1 + np.exp(-X[:, 0] - X[:, 1] * X[:, 2]))
    y = (rng.random(len(X)) < chance).astype(int)
    return X[:n], X[n:], y[:n], y[n:]


@pytest.mark.parametrize("metric", ["auc", "brier", "balanced_error", "f2"])
def test_the_choice_follows_the_metric(metric):
    X, y = rare(600)
    models = {"k = 1": KNeighborsClassifier(1), "logistic": LogisticRegression()}
    found = certus.compare(X, y, models=models, metric=metric)
    ours = [row for row in found.rows if row.kind == "certus"]
    best = max if found.metric.more else min
    assert found.chosen == best(ours, key=lambda row: row.mean).name
    assert found.risk[0].name == found.metric.name
