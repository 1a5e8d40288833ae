"""Conformal prediction, held to its theorem by enumeration.

Of n + 1 rows leave out each in turn and calibrate on the others: the row left out is
covered exactly where its score is among the k smallest of all, so exactly k of n + 1
rows are covered (at least k where scores tie). That is the theorem without chance.
"""

import itertools
import math
import pickle
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.base import BaseEstimator, RegressorMixin, clone, is_classifier
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import RidgeClassifier as TheirRidgeClassifier

import certus
from certus import linear_model, neighbors, svm
from certus.bounds import conformal_quantile, conformal_rank, coverage_floor
from certus.certificate import Evidence, Status, Strength
from certus.conformal import Conformal, label_scores
from certus.evidence import ConformalWitness
from certus.tables import TablePipeline
from certus.testing.instances import supervised
from certus.verify import judge
from certus.verify.conformal import own_scores, score_of

# Intervals are of one target; estimators of several at once have none.
SUPERVISED = [m for m in supervised() if not type(m).__name__.startswith("MultiTask")]
REGRESSORS = [m for m in SUPERVISED if not is_classifier(m)]
CLASSIFIERS = [m for m in SUPERVISED if is_classifier(m)]


def name(model: Any) -> str:
    return type(model).__name__


def rows(n: int = 120, classes: int = 3) -> tuple[Any, Any, Any]:
    """Rows, noisy labels, and amounts that are positive and never tie."""
    rng = np.random.default_rng(7)
    X = rng.normal(size=(n, 3))
    z = X @ [1.0, -1.0, 0.5] + rng.normal(size=n)
    codes = np.searchsorted(np.quantile(z, np.arange(1, classes) / classes), z)
    amounts = np.exp(0.3 * z + 0.5 * rng.normal(size=n))
    return X, np.array(["ash", "birch", "cedar"])[codes], amounts


def target(model: Any, labels: Any, amounts: Any) -> Any:
    return labels if is_classifier(model) else amounts


def covered(model: Any, x: Any, y: Any, **options: Any) -> bool:
    """Whether what is predicted for one row holds its truth."""
    if is_classifier(model):
        inside = model.predict_set(x[None], **options)
        assert inside.shape == (1, len(model.classes_)) and inside.dtype == bool
        return bool(inside[0, model.classes_ == y].all())
    low, high = model.predict_interval(x[None], **options)[0]
    return bool(low <= y <= high)


# -- ranks and quantiles --------------------------------------------------------------


@given(n=st.integers(1, 5000), permille=st.integers(1, 999))
def test_the_rank_is_that_of_whole_numbers(n: int, permille: int) -> None:
    k = conformal_rank(n, permille / 1000)
    assert k == -(-(n + 1) * permille // 1000)
    assert (k - 1) * 1000 < (n + 1) * permille <= k * 1000


@given(
    scores=st.lists(st.floats(-1e6, 1e6) | st.just(math.inf), min_size=1, max_size=60),
    percent=st.integers(1, 99),
)
def test_the_quantile_agrees_with_numpy(scores: list[float], percent: int) -> None:
    n, found = len(scores), conformal_quantile(scores, percent / 100)
    share = Fraction((n + 1) * percent, 100 * n)
    if share > 1:
        assert found == math.inf
    else:
        # The smallest score that ⌈(n + 1)·coverage⌉ of the scores do not exceed.
        below = [s for s in scores if sum(u <= s for u in scores) >= share * n]
        assert found == min(below)
        finite = np.minimum(scores, 1e7)  # NumPy interpolates with infinity
        stated = np.quantile(finite, float(share), method="inverted_cdf")
        near = np.quantile(finite, min(1, float(share) + 1e-9), method="inverted_cdf")
        assert min(found, 1e7) in (stated, near)


def tail(n: int, share: Fraction, k: int) -> Fraction:
    """P(Binomial(n, share) ≥ k), in fractions."""
    chances = (
        math.comb(n, j) * share**j * (1 - share) ** (n - j) for j in range(k, n + 1)
    )
    return sum(chances, Fraction(0))


@given(n=st.integers(1, 60), percent=st.integers(1, 99), permille=st.integers(1, 500))
def test_the_rank_given_the_rows_is_the_first_that_is_safe(
    n: int, percent: int, permille: int
) -> None:
    share, delta = Fraction(percent, 100), Fraction(permille, 1000)
    k = conformal_rank(n, percent / 100, permille / 1000)
    assert 1 <= k <= n + 1
    assert tail(n, share, k) <= delta + Fraction(1, 10**12)
    assert k == 1 or tail(n, share, k - 1) > delta - Fraction(1, 10**12)


@given(n=st.integers(1, 80), percent=st.integers(1, 99), delta=st.floats(0.01, 0.5))
def test_the_floor_is_missed_with_probability_delta(
    n: int, percent: int, delta: float
) -> None:
    k, floor = conformal_rank(n, percent / 100), coverage_floor(n, percent / 100, delta)
    if k > n:
        assert floor == 1.0
    else:
        assert 0 < floor < 1
        assert float(tail(n, Fraction(floor), k)) == pytest.approx(delta, rel=1e-6)


@pytest.mark.parametrize("bad", [0, 1, -0.1, 1.5, math.nan, True, "0.9", None])
def test_a_coverage_that_is_not_a_probability_is_refused(bad: Any) -> None:
    with pytest.raises(ValueError, match="number between 0 and 1"):
        conformal_rank(10, bad)


def test_invalid_scores_are_refused() -> None:
    with pytest.raises(ValueError, match="NaN"):
        conformal_quantile([1.0, math.nan], 0.5)
    for bad in ([], [[1.0]], 3.0):
        with pytest.raises(ValueError, match="one score for each row"):
            conformal_quantile(bad, 0.5)
    with pytest.raises(ValueError, match="n must be at least 1"):
        conformal_rank(0, 0.5)
    with pytest.raises(ValueError, match="delta"):
        conformal_rank(10, 0.5, 1.5)


# -- the theorem, row by row ----------------------------------------------------------


@pytest.mark.parametrize("options", [{"coverage": 0.8}, {"delta": 0.2}], ids=str)
@pytest.mark.parametrize("model", SUPERVISED, ids=name)
def test_exactly_k_of_the_rows_left_out_are_covered(model: Any, options: Any) -> None:
    X, labels, amounts = rows()
    y = target(model, labels, amounts)
    model = clone(model).fit(X[:80], y[:80])
    X, y = X[80:], y[80:]
    n = len(y) - 1
    k = conformal_rank(n, options.get("coverage", 0.9), options.get("delta"))
    count, scores = 0, None
    for i in range(n + 1):
        others = np.arange(n + 1) != i
        model.calibrate(X[others], y[others])
        count += covered(model, X[i], y[i], **options)
    scores = model.calibrate(X, y).calibration_certificate_.evidence.witness.scores
    if len(np.unique(scores)) == n + 1:
        assert count == k
    else:  # ties: everything up to the last of the tied scores is inside
        assert count == max(k, int((scores <= scores[k - 1]).sum()))


@pytest.mark.parametrize("model", SUPERVISED, ids=name)
def test_half_the_width_covers_too_few(
    model: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Companion: the count above can fail."""
    whole = conformal_quantile
    monkeypatch.setattr(
        "certus.conformal.conformal_quantile", lambda s, *rest: whole(s, *rest) / 2
    )
    X, labels, amounts = rows()
    y = target(model, labels, amounts)
    model = clone(model).fit(X[:60], y[:60]).calibrate(X[60:], y[60:])
    inside = sum(covered(model, a, b) for a, b in zip(X[60:], y[60:]))
    assert inside < conformal_rank(60, 0.9)


@pytest.mark.parametrize("model", SUPERVISED, ids=name)
def test_more_coverage_never_shrinks(model: Any) -> None:
    X, labels, amounts = rows()
    y = target(model, labels, amounts)
    model = clone(model).fit(X[:60], y[:60]).calibrate(X[60:110], y[60:110])
    predict = model.predict_set if is_classifier(model) else model.predict_interval
    found = [predict(X[110:], c) for c in (0.2, 0.5, 0.8, 0.95, 0.99)]
    for small, large in itertools.pairwise(found):
        if is_classifier(model):
            assert (small <= large).all()
        else:
            assert (large[:, 0] <= small[:, 0]).all()
            assert (small[:, 1] <= large[:, 1]).all()
    careful = predict(X[110:], 0.8, delta=0.05)
    if is_classifier(model):
        assert found[-1].all()  # 50 rows are too few: every label
        assert (careful >= found[2]).all()
    else:
        assert np.isneginf(found[-1][:, 0]).all() and np.isposinf(found[-1][:, 1]).all()
        assert (careful[:, 1] > found[2][:, 1]).all()


@pytest.mark.parametrize("model", REGRESSORS, ids=name)
def test_intervals_are_prediction_and_residual_quantile(model: Any) -> None:
    X, _, y = rows()
    model = clone(model).fit(X[:60], y[:60]).calibrate(X[60:], y[60:])
    q = np.sort(np.abs(y[60:] - model.predict(X[60:])))[conformal_rank(60, 0.9) - 1]
    expected = model.predict(X[:9])[:, None] + [-q, q]
    np.testing.assert_allclose(model.predict_interval(X[:9]), expected, atol=1e-12)


@pytest.mark.parametrize("model", CLASSIFIERS, ids=name)
@pytest.mark.parametrize("classes", [2, 3])
def test_scores_of_labels(model: Any, classes: int) -> None:
    """Written a second time, row by row, from the words of the guide."""
    X, labels, _ = rows(classes=classes)
    model = clone(model).fit(X[:60], labels[:60]).calibrate(X[60:], labels[60:])
    kind = score_of(model)
    found, _ = label_scores(model, X[60:70], kind)
    for row, x in zip(found, X[60:70]):
        if hasattr(model, "predict_proba"):
            assert kind == "probability"
            expected = [1 - p for p in model.predict_proba(x[None])[0]]
        elif not hasattr(model, "decision_function"):
            assert kind == "label"
            expected = list(model.classes_ != model.predict(x[None]))
        else:
            assert kind == "margin"
            z = np.atleast_1d(np.squeeze(model.decision_function(x[None])))
            z = [-z[0], z[0]] if classes == 2 else list(z)
            expected = [
                max(v for j, v in enumerate(z) if j != i) - z[i] for i in range(classes)
            ]
        np.testing.assert_allclose(row, expected, rtol=1e-9, atol=1e-12)


def test_duels_of_an_svc_are_added_up_by_class() -> None:
    X, labels, _ = rows()
    model = svm.SVC(decision_function_shape="ovo").fit(X[:60], labels[:60])
    z = model.decision_function(X[60:])
    totals = np.column_stack([z[:, 0] + z[:, 1], z[:, 2] - z[:, 0], -z[:, 1] - z[:, 2]])
    found, _ = label_scores(model, X[60:], "margin")
    np.testing.assert_allclose(found.min(axis=1), -np.diff(np.sort(totals))[:, -1])
    np.testing.assert_array_equal(found.argmin(axis=1), totals.argmax(axis=1))


def test_the_row_at_the_quantile_is_inside() -> None:
    """f + |y − f| is not y in floats: the interval reaches out by the rounding."""
    model = linear_model.Ridge().fit([[0.0], [0.0]], [0.1, 0.1])
    rng = np.random.default_rng(0)
    off = 0
    for y in rng.normal(scale=rng.choice([1e-9, 1.0, 1e9], 300)):
        q = abs(y - 0.1)
        off += not 0.1 - q <= y <= 0.1 + q
        model.calibrate([[1.0]], [y])
        low, high = model.predict_interval([[2.0]], coverage=0.5)[0]
        assert low <= y <= high
    assert off > 10


# -- what calibrate leaves ------------------------------------------------------------


@pytest.mark.parametrize("model", SUPERVISED, ids=name)
def test_calibration_is_kept_and_forgotten(model: Any, tmp_path: Path) -> None:
    X, labels, amounts = rows()
    y = target(model, labels, amounts)
    model = clone(model).fit(X[:60], y[:60])
    before = set(model.get_params())
    assert model.calibrate(X[60:], y[60:]) is model
    assert set(model.get_params()) == before
    predict = "predict_set" if is_classifier(model) else "predict_interval"
    expected = getattr(model, predict)(X[:9], 0.7)
    loaded = certus.load(model.save(tmp_path / "m.certus"))
    assert loaded.calibration_certificate_.origin == "file"
    for copy in (pickle.loads(pickle.dumps(model)), loaded):
        np.testing.assert_array_equal(getattr(copy, predict)(X[:9], 0.7), expected)
    fresh = clone(model).fit(X[:60], y[:60])
    refitted = pickle.loads(pickle.dumps(model)).fit(X[:60], y[:60])
    changed = pickle.loads(pickle.dumps(model)).set_params(**model.get_params())
    for stale in (fresh, refitted, changed):
        with pytest.raises(NotFittedError, match=r"not calibrated. Call calibrate\("):
            getattr(stale, predict)(X[:9])


def test_the_certificate_of_a_calibration() -> None:
    X, _, y = rows()
    model = linear_model.Ridge().fit(X[:60], y[:60]).calibrate(X[60:], y[60:])
    certificate = model.calibration_certificate_
    assert certificate.met and certificate.status is Status.SOLVED
    assert certificate.n_samples == 60
    claim, floor = certificate["coverage"], certificate["coverage_floor"]
    assert claim.strength is floor.strength is Strength.STATISTICAL
    assert (claim.value, claim.target) == (55 / 61, 0.9)
    assert "exchangeable" in claim.assumptions[0]
    q = conformal_quantile(certificate.evidence.witness.scores, 0.9)
    stated = float(claim.detail.split("±")[1].split()[0])
    assert q <= stated <= 1.01 * q  # to three digits, outwards
    exact = coverage_floor(60, 0.9, 0.05)
    assert floor.delta == 0.05 and exact * (1 - 1e-8) < floor.value <= exact
    assert float(floor.detail.split(" %")[0].split()[-1]) <= 100 * exact
    assert "95 % sure" in str(certificate)
    assert "coverage" not in model.certificate_  # that one speaks of the fit


def test_the_verifier_recomputes_the_scores() -> None:
    X, labels, y = rows()
    for model, t in (
        (linear_model.Ridge(), y),
        (linear_model.LogisticRegression(), labels),
    ):
        model.fit(X[:60], t[:60]).calibrate(X[60:], t[60:])
        again = certus.certify(model, X[60:], t[60:])
        assert again.status is Status.SOLVED and again.met and "coverage" in again
        assert "coverage" not in certus.certify(model, X[:60], t[:60])
        model.coef_ = 1.1 * model.coef_
        assert certus.certify(model, X[60:], t[60:]).status is Status.REFUTED


@pytest.mark.parametrize(
    "model", [linear_model.Ridge(), linear_model.LogisticRegression()]
)
def test_one_calibration_row(model: Any) -> None:
    X, labels, amounts = rows()
    y = target(model, labels, amounts)
    model = clone(model).fit(X[:60], y[:60]).calibrate(X[60:61], y[60:61])
    claim = model.calibration_certificate_["coverage"]
    assert claim.strength is Strength.REFUSED and "at least 9 rows" in claim.fix
    assert covered(model, X[0], y[0])
    if is_classifier(model):
        assert model.predict_set(X).all()
    else:
        assert np.isinf(model.predict_interval(X)).all()
        assert np.isfinite(model.predict_interval(X, coverage=0.5)).all()
    eight, nine = (
        model.calibrate(X[60 : 60 + n], y[60 : 60 + n]).calibration_certificate_
        for n in (8, 9)
    )
    assert eight.met is None and nine.met


# -- data that cannot serve -----------------------------------------------------------


@pytest.mark.parametrize("model", SUPERVISED, ids=name)
def test_rows_of_the_fit_are_refused(model: Any) -> None:
    X, labels, amounts = rows()
    y = target(model, labels, amounts)
    model = clone(model).fit(X, y)
    with pytest.raises(ValueError, match=r"rows of the fit.*not used in fit"):
        model.calibrate(X, y)
    assert not hasattr(model, "calibration_certificate_")
    model.calibrate(X[1:], y[1:])  # other rows; not recognised


@pytest.mark.parametrize("model", SUPERVISED, ids=name)
def test_rows_of_the_fit_are_refused_in_any_order(model: Any) -> None:
    X, labels, amounts = rows()
    y = target(model, labels, amounts)
    model = clone(model).fit(X, y)
    other = np.random.default_rng(1).permutation(len(X))
    with pytest.raises(ValueError, match=r"rows of the fit.*not used in fit"):
        model.calibrate(X[other], y[other])
    with pytest.raises(ValueError, match=r"rows of the fit.*not used in fit"):
        model.calibrate(X[::-1], y[::-1])


def test_the_verifier_refuses_a_calibration_on_rows_of_the_fit() -> None:
    """Whoever fills in the evidence by hand."""
    X, _, y = rows()
    model = linear_model.Ridge().fit(X, y)
    scores = np.sort(np.abs(y - model.predict(X)))
    evidence = Evidence("conformal", witness=ConformalWitness(scores))
    found = judge(model, evidence, X[::-1], y[::-1])
    assert found.status is Status.REFUTED and "rows of the fit" in str(found)


@pytest.mark.parametrize("model", SUPERVISED, ids=name)
def test_scores_are_those_of_the_verifier(model: Any) -> None:
    """Written twice on purpose: for predictions, and for the certificate."""
    X, labels, amounts = rows()
    y = target(model, labels, amounts)
    model = clone(model).fit(X[:60], y[:60]).calibrate(X[60:], y[60:])
    kept = model.calibration_certificate_.evidence.witness.scores
    np.testing.assert_allclose(own_scores(model, X[60:], y[60:]), kept, 1e-9, 1e-12)


def test_weights_and_pipelines_do_not_hide_the_rows_of_the_fit() -> None:
    X, labels, y = rows()
    weighted = linear_model.Ridge().fit(X, y, sample_weight=np.arange(1.0, 121.0))
    with pytest.raises(ValueError, match="rows of the fit"):
        weighted.calibrate(X, y)
    table = TablePipeline(estimator=linear_model.LogisticRegression()).fit(X, labels)
    with pytest.raises(ValueError, match="rows of the fit"):
        table.calibrate(X, labels)


def test_a_repeated_experiment_is_not_the_fit() -> None:
    X, _, y = rows()
    model = linear_model.Ridge().fit(X, y)
    model.calibrate(X, y + 0.1 * np.sin(np.arange(120)))
    assert model.calibration_certificate_.met
    assert "on average" in model._repr_html_()


def test_unfitted_models_are_refused() -> None:
    X, _, y = rows()
    for method in ("predict_interval", "predict_set"):
        with pytest.raises(NotFittedError, match="not fitted"):
            getattr(linear_model.Ridge(), method)(X)
        with pytest.raises(NotFittedError, match="not calibrated"):
            getattr(linear_model.Ridge().fit(X, y), method)(X)
    with pytest.raises(NotFittedError):
        linear_model.Ridge().calibrate(X, y)


def test_intervals_are_for_regressors_and_sets_for_classifiers() -> None:
    X, labels, y = rows()
    amounts = linear_model.Ridge().fit(X[:60], y[:60]).calibrate(X[60:], y[60:])
    with pytest.raises(TypeError, match="Ridge is a regressor: use predict_interval"):
        amounts.predict_set(X)
    names = svm.SVC().fit(X[:60], labels[:60]).calibrate(X[60:], labels[60:])
    with pytest.raises(TypeError, match="SVC is a classifier: use predict_set"):
        names.predict_interval(X)
    for bad in (0, 1, 2.0, None, "most"):
        with pytest.raises(ValueError, match="coverage must be"):
            amounts.predict_interval(X, coverage=bad)
    with pytest.raises(ValueError, match="delta must be"):
        names.predict_set(X, delta=0)


def test_unsuitable_targets_are_refused() -> None:
    X, labels, y = rows()
    ridge = linear_model.Ridge().fit(X[:60], y[:60])
    Xc, yc = X[60:], y[60:]
    with pytest.raises(ValueError, match="NaN or infinite"):
        ridge.calibrate(Xc, np.where(yc > 2, np.nan, yc))
    with pytest.raises(ValueError, match="X contains NaN"):
        ridge.calibrate(np.where(Xc > 2, np.nan, Xc), yc)
    with pytest.raises(ValueError, match="59 rows and X has 60"):
        ridge.calibrate(Xc, yc[1:])
    with pytest.raises(ValueError, match="must hold numbers"):
        ridge.calibrate(Xc, labels[60:])
    with pytest.raises(ValueError, match="y_cal is missing"):
        ridge.calibrate(Xc, None)
    with pytest.raises(ValueError, match="0 sample"):
        ridge.calibrate(Xc[:0], yc[:0])
    logistic = linear_model.LogisticRegression().fit(X[:60], labels[:60])
    with pytest.raises(ValueError, match=r'"oak".* known labels only'):
        logistic.calibrate(Xc, np.where(labels[60:] == "ash", "oak", labels[60:]))
    with pytest.raises(ValueError, match="59 rows and X has 60"):
        logistic.calibrate(Xc, labels[61:])
    assert not hasattr(ridge, "calibration_certificate_")
    ridge.calibrate(Xc, yc[:, None])  # one column is one target


def test_several_targets_are_refused() -> None:
    X, labels, y = rows()
    both = np.column_stack([y, -y])
    for model in (linear_model.Ridge(), neighbors.KNeighborsRegressor()):
        with pytest.raises(
            ValueError, match=r"single target. Fit and calibrate one model"
        ):
            model.fit(X[:60], both[:60]).calibrate(X[60:], both[60:])
    names = np.column_stack([labels, labels[::-1]])
    model = neighbors.KNeighborsClassifier().fit(X[:60], names[:60])
    with pytest.raises(ValueError, match="single target"):
        model.calibrate(X[60:], names[60:])


class Wild(RegressorMixin, Conformal, BaseEstimator):
    """Predicts what stands in its only column, NaN and inf included."""

    def fit(self, X: Any, y: Any) -> Any:
        self.n_features_in_ = 1
        return self

    def predict(self, X: Any) -> Any:
        return np.asarray(X)[:, 0]


def test_predictions_that_are_not_numbers_count_as_far_off() -> None:
    X = np.zeros((19, 1))
    X[:4, 0] = np.nan, np.inf, -np.inf, np.nan
    model = Wild().fit(X, X).calibrate(X, np.arange(19.0))
    scores = model.calibration_certificate_.evidence.witness.scores
    assert np.isinf(scores).sum() == 4 and scores[14] == 18.0
    found = model.predict_interval(np.array([[0.0], [np.nan], [np.inf]]), coverage=0.7)
    np.testing.assert_allclose(found[0], [-17.0, 17.0])
    assert found[1].tolist() == [-np.inf, np.inf] and found[2].tolist() == [
        -np.inf,
        np.inf,
    ]
    assert np.isinf(model.predict_interval([[0.0]], coverage=0.9)).all()
    claim = model.calibration_certificate_["coverage"]
    assert claim.strength is Strength.REFUSED and "are NaN" in claim.detail


def test_only_regressors_and_classifiers_can_be_calibrated() -> None:
    class Mute(Conformal, BaseEstimator):
        def fit(self, X: Any) -> Any:
            self.done_ = True
            return self

    with pytest.raises(TypeError, match="neither a regressor nor a classifier"):
        Mute().fit([[1.0]]).calibrate([[2.0]], [1.0])


# -- tables ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    "model",
    [
        None,
        linear_model.Ridge(),
        linear_model.LogisticRegression(),
        TheirRidgeClassifier(),
    ],
    ids=str,
)
def test_table_pipelines(model: Any, tmp_path: Path) -> None:
    import polars as pl

    X, labels, amounts = rows()
    y = labels if model is not None and is_classifier(model) else amounts
    frame = pl.DataFrame(X, schema=["a", "b", "c"]).with_columns(
        pl.Series("tree", np.where(X[:, 0] > 0, "fir", "oak")), pl.Series("y", y)
    )
    table, column = frame.drop("y"), frame["y"]
    pipeline = TablePipeline(estimator=model).fit(table[:60], column[:60])
    pipeline.calibrate(table[60:], column[60:])
    names = pipeline.task_ == "classification"
    predict = "predict_set" if names else "predict_interval"
    found = getattr(pipeline, predict)(table[60:], 0.8)
    if names:
        inside = found[np.arange(60), np.searchsorted(pipeline.classes_, y[60:])]
    else:
        inside = (found[:, 0] <= y[60:]) & (y[60:] <= found[:, 1])
    assert inside.sum() == conformal_rank(60, 0.8)
    assert certus.certify(pipeline, table[60:], column[60:])["coverage"].met
    if not isinstance(model, TheirRidgeClassifier):
        again = certus.load(certus.save(pipeline, tmp_path / "t.certus"))
        np.testing.assert_array_equal(getattr(again, predict)(table[60:], 0.8), found)
    pipeline.fit(table[:60], column[:60])
    with pytest.raises(NotFittedError, match="not calibrated"):
        getattr(pipeline, predict)(table)


def test_rows_of_a_custom_kernel() -> None:
    """Rows that are NaNs: words, compared by their common letters."""
    words = [a + b for a in "abcdefgh" for b in "aeiouxyz"]
    y = np.array([ord(word[0]) - 97.0 + 0.01 * i for i, word in enumerate(words)])

    def alike(A: Any, B: Any) -> Any:
        return np.array([[float(len(set(a) & set(b))) for b in B] for a in A])

    model = svm.SVR(kernel=alike).fit(words[::2], y[::2])
    model.calibrate(words[1::2], y[1::2])
    low, high = model.predict_interval(words[1::2], 0.8).T
    inside = (low <= y[1::2]) & (y[1::2] <= high)
    assert inside.sum() >= conformal_rank(32, 0.8)
