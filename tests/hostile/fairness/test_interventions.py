"""Interventions on input that is wrong, rare or absurd, and with forged models."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
from sklearn.dummy import DummyClassifier
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import RidgeClassifier as NoScores
from sklearn.neighbors import KNeighborsClassifier, NearestCentroid
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

import certus
from certus.certificate import Status
from certus.fairness import (
    CovariancePenalty,
    Decorrelation,
    GroupReduction,
    GroupThresholds,
    frontier,
)
from certus.fingerprints import same_data
from certus.linear_model import LogisticRegression
from certus.verify.data import marks_of

Array = np.ndarray
ALL = [
    CovariancePenalty(LogisticRegression()),
    Decorrelation(),
    GroupReduction(LogisticRegression()),
    GroupThresholds(LogisticRegression()),
]
every = pytest.mark.parametrize("model", ALL, ids=lambda m: type(m).__name__)
deciding = pytest.mark.parametrize("model", ALL[2:], ids=lambda m: type(m).__name__)


@pytest.fixture
def rows() -> tuple[Array, Array, Array]:
    rng = np.random.default_rng(0)
    g = rng.choice(["a", "b"], 200)
    X = rng.normal(size=(200, 3)) + (g == "b")[:, None]
    return X, (X[:, 0] + rng.normal(size=200) > 0.5).astype(int), g


# ---- the attribute ----------------------------------------------------------------


@every
def test_a_forgotten_attribute_is_asked_for(model: Any, rows: Any) -> None:
    X, y, g = rows
    with pytest.raises(ValueError, match="needs the sensitive attribute"):
        model.fit(X, y)
    with pytest.raises(ValueError, match=r"199 rows and X has 200"):
        model.fit(X, y, sensitive=g[1:])
    with pytest.raises(ValueError, match="shape"):
        model.fit(X, y, sensitive=np.zeros((200, 2, 2)))
    named = copy.deepcopy(model).set_params(sensitive_columns=[0])
    with pytest.raises(ValueError, match="passed twice"):
        named.fit(X, y, sensitive=g)
    for wrong in ("sex", 7, ["sex"]):
        named.set_params(sensitive_columns=wrong)
        with pytest.raises(ValueError, match="no such column"):
            named.fit(X, y)
        with pytest.raises(ValueError, match="no such column"):
            named.fit(pl.DataFrame(X, schema=["u", "v", "w"]), y)


@every
@pytest.mark.parametrize("kind", ["one group", "one row", "missing", "numbers", "none"])
def test_odd_attributes(model: Any, kind: str, rows: Any) -> None:
    X, y, g = rows
    A: Any = {
        "one group": np.full(200, "a"),
        "one row": np.append(g[:-1], "alone"),
        "missing": [None if i % 7 == 0 else v for i, v in enumerate(g)],
        "numbers": (g == "b").astype(float),
        "none": np.zeros((200, 0)),
    }[kind]
    model.fit(X, y, sensitive=A)
    assert model.certificate_.met
    assert certus.certify(model, X, y, sensitive=A).met


@deciding
def test_amounts_are_not_groups(model: Any, rows: Any) -> None:
    X, y, _ = rows
    with pytest.raises(ValueError, match="ranges"):
        model.fit(X, y, sensitive=X[:, 0])


def test_groups_that_were_not_seen_have_no_threshold(rows: Any) -> None:
    X, y, g = rows
    model = GroupThresholds(LogisticRegression()).fit(X, y, sensitive=g)
    with pytest.raises(ValueError, match="'c' was not in the data of the fit"):
        model.predict(X[:2], sensitive=["a", "c"])
    with pytest.raises(ValueError, match="needs the sensitive attribute"):
        model.predict(X)


# ---- labels, weights, scores ------------------------------------------------------


@deciding
def test_odd_labels_and_weights(model: Any, rows: Any) -> None:
    X, y, g = rows
    with pytest.raises(ValueError, match="one class"):
        model.fit(X, np.ones(200), sensitive=g)
    with pytest.raises(ValueError, match="binary"):
        model.fit(X, np.arange(200) % 3, sensitive=g)
    with pytest.raises(ValueError, match="0 samples"):
        model.fit(X[:0], y[:0], sensitive=g[:0])
    with pytest.raises(ValueError):
        model.fit(X, y, np.full(200, -1.0), sensitive=g)
    # A group without positives has no true positive rate, and constrains nothing.
    none = np.where(g == "b", 0, y)
    assert model.fit(X, none, sensitive=g).certificate_.met


def test_scores_that_separate_nothing_or_everything(rows: Any) -> None:
    X, y, g = rows
    model = GroupThresholds(DummyClassifier()).fit(X, y, sensitive=g)
    p = model.selection_probability(X, sensitive=g)
    assert len(set(p)) == 1
    far = np.column_stack([np.where(X[:, 0] > 0, 1e308, -1e308), X[:, 1]])

    class Huge(DummyClassifier):
        def decision_function(self, X: Any) -> Array:
            return np.where(X[:, 0] > 0, np.inf, -np.inf)

    found = GroupThresholds(Huge()).fit(far, y, sensitive=g)
    assert found.certificate_.met


def test_unsuitable_estimators_are_refused(rows: Any) -> None:
    X, y, g = rows
    with pytest.raises(TypeError, match="takes no sample_weight"):
        GroupReduction(KNeighborsClassifier()).fit(X, y, sensitive=g)
    with pytest.raises(TypeError, match="gives no scores"):
        GroupThresholds(NearestCentroid(metric="manhattan")).fit(X, y, sensitive=g)
    with pytest.raises(ValueError, match="one of"):
        GroupThresholds(LogisticRegression(), criterion="fairness").fit(
            X, y, sensitive=g
        )
    with pytest.raises(ValueError, match="max_difference must be"):
        GroupThresholds(LogisticRegression(), max_difference=2).fit(X, y, sensitive=g)
    other = NoScores().fit(X, np.where(y == 1, 5, 7))
    with pytest.raises(ValueError, match="was fitted on the classes"):
        GroupThresholds(other, prefit=True).fit(X, y, sensitive=g)


def test_ctrl_c_leaves_the_mixture_found_so_far(rows: Any) -> None:
    X, y, g = rows
    calls = []

    class Interrupted(LogisticRegression):
        def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Any:
            calls.append(1)
            if len(calls) == 3:
                raise KeyboardInterrupt
            return super().fit(X, y, sample_weight)

    model = GroupReduction(Interrupted(), max_difference=0.0)
    with certus.config_context(on_interrupt="return"):
        model.fit(X, y, sensitive=g)
    assert model.certificate_.status == "interrupted"
    assert len(model.estimators_) == 2
    assert model.certificate_["criterion_difference"].met


@pytest.mark.parametrize("scale", [1e-150, 1e-8, 1e8, 1e100])
def test_absurd_scales(scale: float, rows: Any) -> None:
    X, _, g = rows
    Z = X * scale + 3 * scale
    model = Decorrelation().fit(Z, sensitive=g)
    left = model.transform(Z) / scale
    gap = left[g == "a"].mean(axis=0) - left[g == "b"].mean(axis=0)
    assert np.abs(gap).max() < 1e-11
    assert model.certificate_.met
    constant = np.column_stack([Z, np.full(200, 7.0 * scale)])
    assert Decorrelation().fit(constant, sensitive=g).certificate_.met


def test_fewer_rows_than_columns() -> None:
    rng = np.random.default_rng(0)
    X, g = rng.normal(size=(6, 20)), list("ababab")
    model = Decorrelation().fit(X, sensitive=g)
    Z = model.transform(X)
    assert np.abs(Z[::2].mean(axis=0) - Z[1::2].mean(axis=0)).max() < 1e-12
    one = Decorrelation().fit(X[:1], sensitive=["a"])
    np.testing.assert_array_equal(one.transform(X[:1]), X[:1])


# ---- forged models ----------------------------------------------------------------


def test_forged_thresholds_are_found_out(rows: Any) -> None:
    X, y, g = rows
    model = GroupThresholds(LogisticRegression(), max_difference=0.1).fit(
        X, y, sensitive=g
    )

    def verdict(forged: Any) -> Any:
        return certus.certify(forged, X, y, sensitive=g)

    assert verdict(model).met
    moved = copy.deepcopy(model)
    moved.thresholds_ = [t + 1.0 for t in moved.thresholds_]
    assert verdict(moved).status == "refuted"
    unequal = copy.deepcopy(model)
    unequal.thresholds_ = [np.array([-np.inf]), np.array([np.inf])]
    unequal.mixing_ = [np.ones(1), np.ones(1)]
    assert verdict(unequal).met is False
    lazy = copy.deepcopy(model)
    multipliers = lazy.certificate_.evidence.witness.multipliers
    multipliers[:] = 0.0
    assert verdict(lazy).met is False
    multipliers[:] = np.nan
    assert verdict(lazy).met is False
    multipliers[:] = [50.0, -50.0]
    assert "1.0000 may be possible" in verdict(lazy).claims[0].detail
    # The best rule with equal rates is not the best with rates that may differ.
    strict = GroupThresholds(LogisticRegression()).fit(X, y, sensitive=g)
    nobody = copy.deepcopy(strict)
    assert verdict(strict.set_params(max_difference=0.1)).met is False
    # Multipliers that do not sum to zero would prove anything.
    nobody.thresholds_, nobody.mixing_ = [np.array([np.inf])] * 2, [np.ones(1)] * 2
    nobody.certificate_.evidence.witness.multipliers[:] = 100.0
    assert verdict(nobody).met is False
    assert certus.certify(model, X, y, sensitive=g[::-1]).met is False


def test_forged_mixtures_and_maps_are_found_out(rows: Any) -> None:
    X, y, g = rows
    mixed = GroupReduction(LogisticRegression()).fit(X, y, sensitive=g)
    mixed.weights_ = np.roll(mixed.weights_, 1)
    assert certus.certify(mixed, X, y, sensitive=g).met is False
    plain = Decorrelation().fit(X, sensitive=g)
    plain.loadings_ = plain.loadings_ * 1.001
    assert certus.certify(plain, X, sensitive=g).status == "refuted"
    kept = CovariancePenalty(LogisticRegression(), alpha=5.0).fit(X, y, sensitive=g)
    without = LogisticRegression().fit(X, y)
    kept.estimator_.coef_ = without.coef_
    kept.estimator_.intercept_ = without.intercept_
    assert certus.certify(kept, X, y, sensitive=g).met is False


def test_cells_of_a_file_that_are_not_numbers(rows: Any) -> None:
    """Each is told, or refuted; none passes, none ends deep inside."""
    X, y, g = rows
    cuts = GroupThresholds(LogisticRegression(), max_difference=0.1).fit(
        X, y, sensitive=g
    )
    mixed = GroupReduction(LogisticRegression(), max_iter=4).fit(X, y, sensitive=g)
    bent = CovariancePenalty(LogisticRegression(), alpha=5.0).fit(X, y, sensitive=g)

    def forged(model: Any, witness: Any = (), **attributes: Any) -> Any:
        copied = copy.deepcopy(model)
        vars(copied).update(attributes)
        evidence = copied.certificate_.evidence
        if witness:
            found = evidence.witness._replace(**dict(witness))
            object.__setattr__(evidence, "witness", found)
        return copied

    nothing = [np.full(len(m), np.nan) for m in cuts.mixing_]
    plain = Decorrelation().fit(X, sensitive=g)
    words = np.array([["a", "b"]] * 2)
    for model in (
        forged(cuts, mixing_=nothing),
        forged(cuts, mixing_=None),
        forged(cuts, mixing_=[None, None]),
        forged(cuts, thresholds_=np.ones(2)),
        forged(cuts, groups_=None),
        forged(cuts, groups_=[["a"], ["b"]]),
        forged(cuts, classes_=np.array([])),
        forged(cuts, mixing_=cuts.mixing_[:1]),
        forged(cuts, thresholds_=[t[:0] for t in cuts.thresholds_]),
        forged(mixed, weights_=np.full(len(mixed.weights_), np.nan)),
        forged(mixed, weights_=mixed.weights_[:-1]),
        forged(bent, alpha=-1e9),
        forged(bent, alpha=np.nan),
        forged(bent, alpha=None),
        forged(mixed, weights_=np.full(len(mixed.weights_), 0.3)),
        forged(mixed, weights_=-mixed.weights_),
        forged(cuts, mixing_=[2 * m for m in cuts.mixing_]),
        forged(mixed, weights_=None),
        forged(mixed, estimators_=None),
        forged(mixed, estimators_=[], weights_=np.array([1.0, 0.0])),
        forged(plain, mean_=np.zeros(1)),
        forged(plain, mean_=None),
        forged(plain, directions_=np.array([["a"]])),
        forged(plain, loadings_=plain.loadings_[:, :-1]),
    ):
        with pytest.raises(ValueError, match="restore its"):
            certus.certify(model, X, y, sensitive=g)
    for model in (
        forged(cuts, thresholds_=[np.full(len(t), np.nan) for t in cuts.thresholds_]),
        forged(cuts, mixing_=[0.5 * m for m in cuts.mixing_]),
        forged(cuts, criterion="independence"),
        forged(cuts, objective="balanced_accuracy"),
        forged(cuts, max_difference=0.05),
        forged(cuts, max_difference=0.2),
        forged(cuts, groups_=cuts.groups_[::-1]),
        forged(cuts, thresholds_=cuts.thresholds_[::-1], mixing_=cuts.mixing_[::-1]),
        forged(cuts, {"multipliers": np.zeros((7, 7))}),
        forged(cuts, {"multipliers": words}),
        forged(cuts, {"multipliers": None}),
        forged(mixed, {"multipliers": np.full((2, 2), np.inf)}),
        forged(mixed, criterion="true_positive_rate", max_difference=0.0),
        forged(mixed, weights_=np.roll(mixed.weights_, 1)),
        forged(bent, alpha=4.0),
        forged(plain, amount=0.5),
        forged(plain, mean_=plain.mean_ + 0.1),
        forged(plain, mean_=-plain.mean_),
    ):
        found = certus.certify(model, X, y, sensitive=g)
        assert found.met is False, found
    for model in (
        forged(cuts, max_difference=True),
        forged(cuts, criterion=["separation"]),
        forged(cuts, max_difference=np.inf),
        forged(cuts, max_difference="wide"),
        forged(cuts, criterion="equity"),
        forged(cuts, objective="profit"),
        forged(plain, amount=None),
        forged(plain, amount=-1.0),
        forged(plain, amount=True),
    ):
        found = certus.certify(model, X, y, sensitive=g)
        assert found.met is None and found.status is Status.UNDECIDED


def test_small_spreads_on_large_values_are_judged_too(rows: Any) -> None:
    X, _, g = rows
    idle = Decorrelation().fit(X + 1e5, sensitive=g)
    assert idle.certificate_.met
    idle.loadings_ = np.zeros_like(idle.loadings_)
    assert certus.certify(idle, X + 1e5, sensitive=g).met is False


def test_a_shifted_mean_shows_in_the_variance_removed(rows: Any) -> None:
    X, _, g = rows
    moved = Decorrelation().fit(X, sensitive=g)
    honest = moved.certificate_["removed_variance"].value
    moved.mean_ = moved.mean_ + 100.0
    found = certus.certify(moved, X, sensitive=g)["removed_variance"].value
    scale = np.abs(X).max(axis=0)
    away = np.square((moved.transform(X) - X) / scale).mean(axis=0).sum()
    assert found == pytest.approx(away / (X / scale).var(axis=0).sum())
    assert found > 100 * honest


def test_multipliers_without_a_recorded_answer_are_answered_at_level_full() -> None:
    """Those of the mixture would say that no classifier is missing."""
    rng = np.random.default_rng(1)
    g = rng.choice(["a", "b"], 300)
    X = rng.normal(size=(300, 3)) + (g == "b")[:, None]
    y = (X[:, 0] + rng.normal(size=300) > 0.5).astype(int)
    model = GroupReduction(LogisticRegression(), max_iter=2).fit(X, y, sensitive=g)
    honest = model.certificate_["oracle_gap"].value
    witness = model.certificate_.evidence.witness
    assert honest > 0.02
    witness.answered[:] = witness.multipliers
    quick = certus.certify(model, X, y, sensitive=g)["oracle_gap"].value
    full = certus.certify(model, X, y, sensitive=g, level="full")["oracle_gap"].value
    assert quick < 1e-9 < 0.02 < full


def test_parameters_set_after_the_fit_are_not_certified(rows: Any) -> None:
    X, y, g = rows
    plain = Decorrelation().fit(X, sensitive=g)
    before = plain.transform(X)
    plain.set_params(amount=0.0)
    np.testing.assert_array_equal(plain.transform(X), before)
    assert certus.certify(plain, X, sensitive=g).status == "refuted"
    half = Decorrelation(0.5).fit(X, sensitive=g)
    for amount in (0.0, 0.49, 1.0):
        half.set_params(amount=amount)
        assert certus.certify(half, X, sensitive=g).status == "refuted"
    kept = CovariancePenalty(LogisticRegression(), alpha=5.0).fit(X, y, sensitive=g)
    kept.set_params(alpha=0.0)
    assert certus.certify(kept, X, y, sensitive=g).status == "refuted"
    kept.set_params(alpha=5.0, estimator__C=10.0)
    assert certus.certify(kept, X, y, sensitive=g).met is None
    kept.estimator_.set_params(C=10.0)
    assert certus.certify(kept, X, y, sensitive=g).met is False


@pytest.mark.parametrize("strength", [0.0, 0.5, 100.0])
def test_the_gap_of_a_covariance_penalty_is_never_understated(strength: float) -> None:
    """Against the objective itself, minimised much further."""
    rng = np.random.default_rng(0)
    g = rng.choice(["a", "b", "c"], 80)
    X = rng.normal(size=(80, 4)) + 3.0 * (g == "b")[:, None]
    y = (X[:, 0] + rng.normal(size=80) > 1).astype(int)
    model = CovariancePenalty(LogisticRegression(tol=1e-12), alpha=strength)
    model.fit(X, y, sensitive=g)
    signs = np.where(y == 1, 1.0, -1.0)

    def value(w: Any, b: Any) -> float:
        z = X @ w + b
        means = np.array([z[g == label].mean() for label in "abc"])
        shares = np.array([np.mean(g == label) for label in "abc"])
        between = shares @ np.square(means - z.mean())
        loss = np.logaddexp(0, -signs * z).mean()
        return float(loss + 0.5 * w @ w / len(y) + 0.5 * strength * between)

    coef, intercept = model.coef_[0].copy(), float(model.intercept_[0])
    shares = np.array([y.mean(), 1 - y.mean()])
    least, base = value(coef, intercept), -float(shares @ np.log(shares))
    for size in (1e-8, 1e-5, 1e-2, 1.0):
        model.estimator_.coef_ = (coef + size * rng.normal(size=4))[None]
        off = value(model.coef_[0], intercept) - least
        found = certus.certify(model, X, y, sensitive=g)
        assert found.value >= off / base - 1e-12


def test_the_verifier_decides_by_itself(rows: Any) -> None:
    """Answers of a subclass, and of members, that are not what was judged."""
    X, y, g = rows

    class Own(GroupThresholds):
        def selection_probability(self, X: Any, *, sensitive: Any = None) -> Any:
            return np.ones(len(X))

    own = Own(LogisticRegression(), max_difference=0.1).fit(X, y, sensitive=g)
    assert own.certificate_.met is None
    cuts = GroupThresholds(LogisticRegression(), max_difference=0.1).fit(
        X, y, sensitive=g
    )
    mixed = GroupReduction(LogisticRegression(), max_iter=4).fit(X, y, sensitive=g)
    for name in ("_scores", "_decisions", "_answer", "_chosen", "_read_sensitive"):
        for model in (cuts, mixed):
            setattr(model, name, None)  # nothing private is asked
    for model in (cuts, mixed):
        model.selection_probability = None
        assert certus.certify(model, X, y, sensitive=g, level="full").met
    cuts.estimator_.coef_ = -cuts.estimator_.coef_
    assert certus.certify(cuts, X, y, sensitive=g).met is False
    for member in mixed.estimators_:
        member.coef_ = -member.coef_
    assert certus.certify(mixed, X, y, sensitive=g).met is False


def test_weights_are_those_passed(rows: Any) -> None:
    X, y, g = rows
    s = np.random.default_rng(0).uniform(0.1, 3.0, len(y))
    for model in (
        GroupThresholds(LogisticRegression(), max_difference=0.1),
        GroupReduction(LogisticRegression(), max_iter=4),
        Decorrelation(),
    ):
        model.fit(X, y, sample_weight=s, sensitive=g)
        assert certus.certify(model, X, y, s, sensitive=g).met
        assert certus.certify(model, X, y, sensitive=g).met is False


def test_a_class_without_weight_leaves_a_balanced_value(rows: Any) -> None:
    X, y, g = rows
    model = GroupThresholds(
        LogisticRegression(), objective="balanced_accuracy", max_difference=0.1
    ).fit(X, y, sensitive=g)
    found = certus.certify(model, X, y, (y == 1) * 1.0, sensitive=g)
    assert found.value is not None and np.isfinite(found.value)


def test_columns_of_x_are_read_by_the_verifier(rows: Any) -> None:
    X, y, g = rows
    table = np.column_stack([X, g == "b"])
    frame = pd.DataFrame(table, columns=["u", "v", "w", "group"])
    for form, place in ((table, 3), (table, -1), (frame, "group"), (frame, 3)):
        model = GroupThresholds(LogisticRegression(), sensitive_columns=place)
        model.fit(form, y)
        assert model.certificate_.met and certus.certify(model, form, y).met
    with pytest.raises(ValueError, match="no such column"):
        certus.certify(model.set_params(sensitive_columns="zone"), frame, y)


@every
def test_cut_and_altered_files_are_refused(
    model: Any, rows: Any, tmp_path: Any
) -> None:
    X, y, g = rows
    fitted = copy.deepcopy(model).fit(X, y, sensitive=g)
    path = fitted.save(tmp_path / "m.certus")
    data = path.read_bytes()
    rng = np.random.default_rng(0)
    for cut in (0, 10, len(data) // 2, len(data) - 1):
        path.write_bytes(data[:cut])
        with pytest.raises((ValueError, OSError)):
            certus.load(path)
    for place in rng.integers(0, len(data), 20):
        changed = bytearray(data)
        changed[place] ^= 0xFF
        path.write_bytes(bytes(changed))
        with pytest.raises((ValueError, OSError)):
            certus.load(path)


# ---- the frontier -----------------------------------------------------------------


def test_frontiers_of_nothing(rows: Any) -> None:
    X, y, g = rows
    model = GroupThresholds(LogisticRegression())
    with pytest.raises(ValueError, match="values is empty"):
        frontier(model, X, y, g, "max_difference", [])
    with pytest.raises(ValueError, match="no parameter 'gaps'"):
        frontier(model, X, y, g, "gaps", [0.1])
    with pytest.raises(ValueError, match="criterion"):
        frontier(model, X, y, g, "max_difference", [0.1], criterion="fair")
    with pytest.raises(ValueError, match="sensitive has 3 rows"):
        frontier(model, X, y, g[:3], "max_difference", [0.1])
    with pytest.raises(ValueError, match="three"):
        frontier(model, X, y, g, "max_difference", [0.1], held_out=(X, y))


@pytest.mark.parametrize("model", ALL[:2], ids=lambda m: type(m).__name__)
def test_an_attribute_of_text_in_x_is_refused_where_x_is_computed_with(
    model: Any, rows: tuple[Array, Array, Array]
) -> None:
    X, y, g = rows
    frame = pl.DataFrame(X).with_columns(sex=pl.Series(g))
    named = copy.deepcopy(model).set_params(sensitive_columns=["sex"])
    with pytest.raises(ValueError, match="hold text"):
        named.fit(frame, y)
    named.fit(frame.with_columns(sex=(pl.col("sex") == "b").cast(pl.Float64)), y)


def test_frames_of_several_kinds_are_distinguished(
    rows: tuple[Array, Array, Array],
) -> None:
    """By their cells, not by the names of their columns."""
    X, y, g = rows
    frame = pl.DataFrame(X).with_columns(town=pl.Series(["Bern", None] * 100))
    town = FunctionTransformer(lambda f: f.select(f.columns[:3]).to_numpy())
    model = GroupThresholds(make_pipeline(town, LogisticRegression()), random_state=0)
    model.fit(frame, y, sensitive=g)
    assert "200 rows × 4 columns" in str(model.certificate_)
    marks = marks_of(frame, y, None)
    assert same_data(marks, marks_of(frame.to_pandas(), y, None))
    for place, value in ((3, "Oslo"), (0, 1.5)):
        other = frame.to_pandas()
        other.iloc[8, place] = value
        assert not same_data(marks, marks_of(other, y, None))
    assert not same_data(marks, marks_of(frame[::-1], y, None))


def test_estimators_that_take_missing_values_may_have_them(
    rows: tuple[Array, Array, Array],
) -> None:
    X, y, g = rows
    X = X.copy()
    X[::7, 1] = np.nan
    model = GroupThresholds(HistGradientBoostingClassifier(max_iter=3), random_state=0)
    model.fit(X, y, sensitive=g)
    assert model.certificate_.met
    X[1, 1] = np.nan
    again = certus.certify(model, X, y, sensitive=g)
    assert not same_data(model.certificate_.fingerprint, again.fingerprint)
