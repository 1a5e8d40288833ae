"""Group thresholds and the reduction: their optimum by other programmes, by counting.

References: a linear programme over every point of the ROC curves, with one constraint
for each pair of groups; enumeration of all pairs of thresholds; data whose best rule is
known; an estimator that finds the best of all thresholds, so that the reduction's game
has a value that can be computed.
"""

from __future__ import annotations

from itertools import combinations
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.tree import DecisionTreeClassifier

import certus
from certus.fairness import GroupReduction, GroupThresholds, independence, separation
from certus.fairness.thresholds import _upper_hull
from certus.linear_model import LogisticRegression

Array = np.ndarray
CRITERIA = {
    "independence": [(0, 1)],
    "separation": [(1,), (0,)],
    "true_positive_rate": [(1,)],
    "false_positive_rate": [(0,)],
}
criteria = pytest.mark.parametrize("criterion", CRITERIA)


class Given(ClassifierMixin, BaseEstimator):
    """Its score is the first column."""

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Any:
        self.classes_ = np.unique(y)
        return self

    def decision_function(self, X: Any) -> Array:
        return np.asarray(X, dtype=float)[:, 0]

    def predict(self, X: Any) -> Array:
        return self.classes_[(self.decision_function(X) > 0).astype(int)]


class BestCut(ClassifierMixin, BaseEstimator):
    """The threshold on the first column, in either direction, of least error."""

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Any:
        self.classes_ = np.unique(y)
        s = np.ones(len(X)) if sample_weight is None else sample_weight
        truth = np.asarray(y) == self.classes_[-1]
        found = [(s @ (cut != truth), i) for i, cut in enumerate(cuts(X))]
        self.best_ = min(found)[1]
        self.levels_ = np.unique(X[:, 0])
        return self

    def predict(self, X: Any) -> Array:
        return self.classes_[cuts(X, self.levels_)[self.best_].astype(int)]


def cuts(X: Array, levels: Array | None = None) -> list[Array]:
    """Every decision by one threshold on the first column."""
    levels = np.unique(X[:, 0]) if levels is None else levels
    above = [X[:, 0] >= t for t in levels]
    return above + [~a for a in above]


def data(seed: int, n: int = 400, groups: str = "abc") -> tuple[Array, Array, Array]:
    rng = np.random.default_rng(seed)
    g = rng.choice(
        list(groups), n, p=np.arange(len(groups), 0, -1.0) / sum(range(len(groups) + 1))
    )
    X = rng.normal(size=(n, 3)) + (g == "b")[:, None]
    y = (X[:, 0] + rng.normal(size=n) * (1 + (g == "c")) > 0.5).astype(int)
    return X, y, g


def rates(p: Array, y: Array, g: Array, criterion: str) -> list[list[float]]:
    """Rates of each group, one list for each rate of the criterion."""
    found = []
    for truths in CRITERIA[criterion]:
        parts = [p[(g == k) & np.isin(y, truths)] for k in np.unique(g)]
        found.append([float(part.mean()) for part in parts if len(part)])
    return found


def spread(p: Array, y: Array, g: Array, criterion: str) -> float:
    return max(max(r) - min(r) for r in rates(p, y, g, criterion))


def accuracy(p: Array, y: Array) -> float:
    return float(np.where(y == 1, p, 1 - p).mean())


def best_by_pairs(
    rules: list[Array],
    blocks: list[Any],
    y: Array,
    g: Array,
    criterion: str,
    gap: float,
) -> float:
    """The largest accuracy over mixtures of rules, constrained pair by pair."""
    value = [-np.sum(np.where(y == 1, r, -r.astype(float))) / len(y) for r in rules]
    rows, limits = [], []
    for truths in CRITERIA[criterion]:
        shares = []
        for k in np.unique(g):
            mine = (g == k) & np.isin(y, truths)
            if mine.any():
                shares.append([float(r[mine].mean()) for r in rules])
        for a, b in combinations(np.array(shares), 2):
            rows += [a - b, b - a]
            limits += [gap, gap]
    kinds = sorted(set(blocks))
    equal = [[float(b == k) for b in blocks] for k in kinds]
    found = linprog(
        value,
        A_ub=np.array(rows) if rows else None,
        b_ub=limits if rows else None,
        A_eq=equal,
        b_eq=np.ones(len(kinds)),
    )
    return float(np.mean(y == 0) - found.fun)


def all_thresholds(z: Array, g: Array) -> tuple[list[Array], list[Any]]:
    """Every rule of one group and one threshold, and that of choosing nobody."""
    rules, blocks = [], []
    for k in np.unique(g):
        for t in [np.inf, *np.unique(z[g == k])]:
            rules.append((z >= t) & (g == k))
            blocks.append(k)
    return rules, blocks


# ---- thresholds -------------------------------------------------------------------


@pytest.mark.catalog("FAIR-08")
@criteria
@pytest.mark.parametrize("gap", [0.0, 0.07, 1.0])
def test_no_mixture_of_thresholds_is_better(criterion: str, gap: float) -> None:
    X, y, g = data(1, 150)
    X = np.round(X, 1)  # ties
    model = GroupThresholds(Given(), criterion=criterion, max_difference=gap).fit(
        X, y, sensitive=g
    )
    p = model.selection_probability(X, sensitive=g)
    assert spread(p, y, g, criterion) <= gap + 1e-9
    best = best_by_pairs(*all_thresholds(X[:, 0], g), y, g, criterion, gap)
    assert accuracy(p, y) == pytest.approx(best, abs=1e-9)
    assert model.certificate_.met
    assert model.certificate_["criterion_difference"].met


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(0, 5), st.integers(0, 1), st.sampled_from("ab")),
        min_size=4,
        max_size=30,
    ),
    st.sampled_from(sorted(CRITERIA)),
    st.sampled_from([0.0, 0.1, 0.5]),
)
def test_small_tables_of_any_kind(rows: Any, criterion: str, gap: float) -> None:
    z, y, g = (np.array(column) for column in zip(*rows))
    if len(set(y)) < 2:
        return
    X = z[:, None].astype(float)
    model = GroupThresholds(Given(), criterion=criterion, max_difference=gap).fit(
        X, y, sensitive=g
    )
    assert model.certificate_.met
    p = model.selection_probability(X, sensitive=g)
    found = rates(p, y, g, criterion)
    assert all(max(r) - min(r) <= gap + 1e-9 for r in found if r)
    best = best_by_pairs(*all_thresholds(z, g), y, g, criterion, gap)
    assert accuracy(p, y) == pytest.approx(best, abs=1e-9)


def test_scores_that_mislead_in_a_group_are_left_alone() -> None:
    """Points below the diagonal never help: the upper hull is enough."""
    rng = np.random.default_rng(0)
    g = np.repeat(["a", "b"], 60)
    y = rng.integers(0, 2, 120)
    z = np.where(g == "a", y, -y) + 0.3 * rng.normal(size=120)
    for gap in (0.0, 0.2):
        model = GroupThresholds(Given(), max_difference=gap).fit(
            z[:, None], y, sensitive=g
        )
        p = model.selection_probability(z[:, None], sensitive=g)
        best = best_by_pairs(*all_thresholds(z, g), y, g, "separation", gap)
        assert accuracy(p, y) == pytest.approx(best, abs=1e-9)


@pytest.mark.catalog("FAIR-08")
def test_decisions_of_many_rows_have_equal_rates() -> None:
    X, y, g = data(2, 60_000)
    base = LogisticRegression().fit(X, y)
    assert separation(y, base.predict(X), g).difference > 0.2
    model = GroupThresholds(base, prefit=True, random_state=0).fit(X, y, sensitive=g)
    assert separation(y, model.predict(X, sensitive=g), g).difference < 1e-2
    again = model.predict(X, sensitive=g)
    assert np.array_equal(model.predict(X, sensitive=g), again)


def test_the_corners_of_many_points_are_those_of_the_hull() -> None:
    """For every slope one of them is highest; points may coincide or lie in line."""
    rng = np.random.default_rng(0)
    for steps in (
        rng.integers(0, 2, (2, 3000)),
        rng.random((2, 500)),
        np.ones((2, 200)),
    ):
        steps = steps * (rng.random(steps.shape[1]) < 0.3)
        x, y = np.cumsum(np.hstack([np.zeros((2, 1)), steps]), axis=1)
        kept = _upper_hull(x, y)
        for angle in np.linspace(0.0, np.pi / 2, 200):
            height = np.sin(angle) * y - np.cos(angle) * x
            assert height[kept].max() == pytest.approx(height.max(), abs=1e-9)
        assert len(kept) < 100


def test_an_uninformative_group_leaves_all_on_the_diagonal() -> None:
    """Where one group's score is constant, equal odds allow the best constant only."""
    rng = np.random.default_rng(3)
    g = np.repeat(["a", "b"], [300, 100])
    y = (rng.random(400) < 0.3).astype(int)
    z = np.where(g == "a", y + 0.1 * rng.normal(size=400), 0.0)
    model = GroupThresholds(Given()).fit(z[:, None], y, sensitive=g)
    p = model.selection_probability(z[:, None], sensitive=g)
    assert accuracy(p, y) == pytest.approx(max(y.mean(), 1 - y.mean()), abs=1e-9)
    free = GroupThresholds(Given(), max_difference=1.0).fit(z[:, None], y, sensitive=g)
    assert accuracy(free.selection_probability(z[:, None], sensitive=g), y) > 0.9


def test_one_group_gets_the_best_threshold_there_is() -> None:
    X, y, _ = data(4, 200)
    model = GroupThresholds(Given(), sensitive_columns=()).fit(X, y)
    best = max(np.mean((X[:, 0] >= t) == y) for t in [*X[:, 0], np.inf])
    assert model.score(X, y) == pytest.approx(best)
    assert len(model.thresholds_[0]) == 1


def test_balanced_accuracy_weighs_both_classes_alike() -> None:
    X, y, g = data(5, 300)
    y[y == 1] = np.random.default_rng(0).random(y.sum()) < 0.2
    options = {"max_difference": 0.1, "objective": "balanced_accuracy"}
    model = GroupThresholds(Given(), **options).fit(X, y, sensitive=g)
    s = np.where(y == 1, 1 / y.sum(), 1 / (1 - y).sum())
    found = model.selection_probability(X, sensitive=g)
    plain = GroupThresholds(Given(), max_difference=0.1).fit(X, y, sensitive=g)
    other = plain.selection_probability(X, sensitive=g)
    worth = [s @ np.where(y == 1, p, 1 - p) / 2 for p in (found, other)]
    assert worth[0] > worth[1] + 0.05
    assert model.certificate_.met


@pytest.mark.parametrize("kind", [GroupThresholds, GroupReduction])
def test_weights_are_repetitions(kind: Any) -> None:
    X, y, g = data(6, 120)
    s = np.random.default_rng(1).integers(0, 4, 120)
    r = np.repeat(np.arange(120), s)
    base = LogisticRegression(tol=1e-12)
    one = kind(base, max_difference=0.05).fit(X, y, s, sensitive=g)
    two = kind(base, max_difference=0.05).fit(X[r], y[r], sensitive=g[r])
    a, b = (m.certificate_["criterion_difference"].value for m in (one, two))
    assert a == pytest.approx(b, abs=1e-9)
    p, q = (m.selection_probability(X, sensitive=g)[s > 0] for m in (one, two))
    worth = np.where(y[s > 0] == 1, p - q, q - p)
    assert s[s > 0] @ worth == pytest.approx(0.0, abs=1e-6 * s.sum())


def test_several_attributes_make_groups_of_combinations() -> None:
    X, y, g = data(7, 900)
    h = np.random.default_rng(0).choice(["x", "y"], 900)
    both = np.column_stack([g, h])
    model = GroupThresholds(LogisticRegression(), random_state=0)
    model.fit(X, y, sensitive=both)
    assert model.groups_ == tuple((a, b) for a in "abc" for b in "xy")
    p = model.selection_probability(X, sensitive=both)
    joined = np.array([a + b for a, b in both])
    assert spread(p, y, joined, "separation") < 1e-9


# ---- the reduction ----------------------------------------------------------------


@pytest.mark.catalog("FAIR-09")
@criteria
@pytest.mark.parametrize("gap", [0.02, 0.2])
def test_the_mixture_is_the_best_of_all_mixtures(criterion: str, gap: float) -> None:
    rng = np.random.default_rng(8)
    g = rng.choice(["a", "b"], 300)
    z = rng.integers(0, 10, 300) + 2 * (g == "b")
    y = (z + rng.normal(0, 3, 300) > 5).astype(int)
    X = z[:, None].astype(float)
    model = GroupReduction(
        BestCut(), criterion=criterion, max_difference=gap, tol=1e-6, max_iter=200
    )
    model.fit(X, y, sensitive=g)
    rules = [*cuts(X), np.zeros(300, dtype=bool), np.ones(300, dtype=bool)]
    best = best_by_pairs(rules, [0] * len(rules), y, g, criterion, gap)
    p = model.selection_probability(X)
    assert spread(p, y, g, criterion) <= gap + 1e-9
    assert accuracy(p, y) == pytest.approx(best, abs=1e-6)
    gaps = model.history_["gap"]
    assert gaps[-1] <= 1e-6
    stated = model.certificate_["oracle_gap"].value
    assert stated == pytest.approx(gaps[-1], abs=1e-12)
    full = certus.certify(model, X, y, sensitive=g, level="full")
    assert full["oracle_gap"].value == pytest.approx(stated, abs=1e-12)


@pytest.mark.catalog("FAIR-09")
def test_the_gap_bounds_the_missing_gain_and_shrinks() -> None:
    rng = np.random.default_rng(9)
    g = rng.choice(["a", "b"], 400)
    z = rng.integers(0, 12, 400) + 3 * (g == "b")
    y = (z + rng.normal(0, 3, 400) > 7).astype(int)
    X = z[:, None].astype(float)
    rules = [*cuts(X), np.zeros(400, dtype=bool), np.ones(400, dtype=bool)]
    best = best_by_pairs(rules, [0] * len(rules), y, g, "independence", 0.01)
    model = GroupReduction(BestCut(), criterion="independence", tol=0.0, max_iter=40)
    model.fit(X, y, sensitive=g)
    errors, gaps = (np.array(model.history_[k]) for k in ("objective", "gap"))
    assert np.all(np.diff(errors) <= 1e-12)
    # The oracle is exact: each gap is a bound on what the mixture misses.
    assert np.all(errors - (1 - best) <= gaps + 1e-9)
    assert gaps[-1] < 0.01 * gaps[0]


@pytest.mark.parametrize(
    "estimator", [LogisticRegression(), DecisionTreeClassifier(max_depth=3)]
)
def test_any_estimator_with_weights_serves(estimator: Any) -> None:
    X, y, g = data(10, 3000)
    plain = estimator.fit(X, y)
    model = GroupReduction(estimator, criterion="independence", random_state=0)
    model.fit(X, y, sensitive=g)
    p = model.selection_probability(X)
    assert spread(p, y, g, "independence") <= 0.01 + 1e-9
    assert independence(plain.predict(X), g).difference > 0.2
    assert 0.65 < accuracy(p, y) <= plain.score(X, y)
    assert model.certificate_.met


def test_estimators_of_another_loss_are_searched_along_the_multipliers() -> None:
    """Of two groups there is one multiplier: a grid of it finds hardly more."""
    rng = np.random.default_rng(1)
    g = rng.choice(["a", "b"], 300)
    X = rng.normal(size=(300, 3)) + (g == "b")[:, None]
    y = (X[:, 0] + rng.normal(size=300) * (1 + (g == "b")) > 0.7).astype(int)
    rules = [np.zeros(300, dtype=bool), np.ones(300, dtype=bool)]
    share = np.where(g == "b", 1 / (g == "b").mean(), -1 / (g == "a").mean())
    for t in np.linspace(-1, 1, 81):
        worth = 2 * y - 1 - t * share
        if len(set(worth > 0)) == 2:
            fitted = LogisticRegression().fit(X, worth > 0, np.abs(worth))
            rules.append(fitted.predict(X))
    best = best_by_pairs(rules, [0] * len(rules), y, g, "independence", 0.02)
    model = GroupReduction(
        LogisticRegression(), criterion="independence", max_difference=0.02
    )
    model.fit(X, y, sensitive=g)
    assert accuracy(model.selection_probability(X), y) > best - 0.002


# ---- how the attribute is passed --------------------------------------------------


def test_the_attribute_may_stand_in_X() -> None:
    X, y, g = data(11, 600, "ab")
    Z = np.column_stack([X, g == "b"])
    told = GroupThresholds(LogisticRegression(), random_state=0)
    named = GroupThresholds(LogisticRegression(), sensitive_columns=3, random_state=0)
    told.fit(Z, y, sensitive=Z[:, 3])
    named.fit(Z, y)
    a = told.predict(Z, sensitive=Z[:, 3])
    assert np.array_equal(a, named.predict(Z))
    assert certus.certify(named, Z, y).met
    assert cross_val_score(named, Z, y, cv=3).min() > 0.6
    search = GridSearchCV(named, {"max_difference": [0.0, 0.5]}, cv=3).fit(Z, y)
    assert search.best_params_ == {"max_difference": 0.5}


def test_the_attribute_is_routed() -> None:
    from sklearn import config_context

    X, y, g = data(12, 600)
    with config_context(enable_metadata_routing=True):
        model = GroupThresholds(LogisticRegression(), random_state=0)
        model.set_fit_request(sensitive=True).set_predict_request(sensitive=True)
        model.set_score_request(sensitive=True)
        pipe = make_pipeline(StandardScaler(), model).fit(X, y, sensitive=g)
        found = pipe.predict(X, sensitive=g)
        search = GridSearchCV(model, {"max_difference": [0.0, 1.0]}, cv=3)
        search.fit(X, y, sensitive=g)
        assert search.best_params_ == {"max_difference": 1.0}
    assert found.shape == y.shape
    inner = GroupThresholds(make_pipeline(StandardScaler(), LogisticRegression()))
    weighted = inner.fit(X, y, np.ones(len(y)), sensitive=g)
    assert weighted.certificate_.met


@pytest.mark.parametrize("kind", [GroupThresholds, GroupReduction])
def test_models_come_back_from_a_file(kind: Any, tmp_path: Any) -> None:
    X, y, g = data(13, 300)
    labels = np.array(["no", "yes"])[y]
    model = kind(LogisticRegression(), max_difference=0.05, random_state=0)
    model.fit(X, labels, sensitive=g)
    back = certus.load(model.save(tmp_path / "m.certus"))
    a, b = (m.selection_probability(X, sensitive=g) for m in (model, back))
    np.testing.assert_array_equal(a, b)
    assert certus.certify(back, X, labels, sensitive=g).met
    kept = set(back.certificate_.evidence.witness._fields)
    assert kept - {"answered"} == {"multipliers"}
    refused = certus.certify(back, X, labels)
    assert refused.met is None
    assert "sensitive" in refused[refused.primary].fix


@pytest.mark.catalog("FAIR-08")
def test_probabilities_are_those_of_the_second_class() -> None:
    from sklearn.naive_bayes import GaussianNB

    rng = np.random.default_rng(0)
    y = rng.integers(0, 2, 400)
    X = rng.normal(size=(400, 1)) + 3.0 * y[:, None]
    plain = GaussianNB().fit(X, y)
    assert not hasattr(plain, "decision_function")
    model = GroupThresholds(GaussianNB()).fit(X, y, sensitive=np.zeros(400))
    assert model.score(X, y, sensitive=np.zeros(400)) >= plain.score(X, y) > 0.9
