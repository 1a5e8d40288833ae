"""LightGBM and XGBoost, where they are installed: read, predicted and certified."""

from __future__ import annotations

import json
import re

import numpy as np
import pytest

import certus
from certus.certificate import Status
from certus.ensemble import read_rows, read_trees, score_range

RNG = np.random.default_rng(0)
X = RNG.normal(size=(400, 4))
X[:, 3] = RNG.integers(0, 30, 400)
Y = np.sin(2 * X[:, 0]) + X[:, 1] * X[:, 2] + (X[:, 3] % 7 == 2)
X[RNG.random(X.shape) < 0.1] = np.nan
THREE = np.digitize(Y, [-0.5, 0.8])
TARGETS = {"numbers": Y, "two": (Y > 0).astype(int), "three": THREE}


def models(library, what, **options):
    if library == "lightgbm":
        made = pytest.importorskip("lightgbm")
        options = {"n_estimators": 10, "verbose": -1, **options}
        names = made.LGBMRegressor, made.LGBMClassifier
    else:
        made = pytest.importorskip("xgboost")
        options = {"n_estimators": 10, **options}
        names = made.XGBRegressor, made.XGBClassifier
    return names[what != "numbers"](**options)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("library", ["lightgbm", "xgboost"])
@pytest.mark.parametrize("what", sorted(TARGETS))
def test_trees_are_read_and_their_leaves_proved(library, what):
    y = TARGETS[what]
    model = models(library, what).fit(X, y)
    trees = read_trees(model)
    expected = model.predict(X) if what == "numbers" else model.predict_proba(X)
    limit = 1e-12 if library == "lightgbm" else 1e-5
    found = trees.predict(read_rows(model, X))
    np.testing.assert_allclose(found, expected, rtol=limit, atol=limit)
    certificate = certus.certify(model, X, y)
    assert certificate.met and certificate["leaf_values"].met


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("library", ["lightgbm", "xgboost"])
def test_constraints_are_checked_and_drawn_rows_refused(library):
    model = models(library, "numbers", monotone_constraints=(1, 0, 0, 0)).fit(X, Y)
    claim = certus.certify(model, X, Y)["monotone_trees"]
    assert claim.met and claim.strength.value == "proved"
    drawn = models(library, "numbers", subsample=0.5, subsample_freq=1)
    if library == "xgboost":
        drawn = models(library, "numbers", subsample=0.5)
    claim = certus.certify(drawn.fit(X, Y), X, Y)["leaf_values"]
    assert claim.strength.value == "refused" and "subsample" in claim.detail


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("library", ["lightgbm", "xgboost"])
@pytest.mark.parametrize("what", ["numbers", "three"])
def test_no_row_of_a_box_leaves_the_proved_range(library, what):
    model = models(library, what, max_depth=2).fit(X, TARGETS[what])
    low, high = np.array([-0.5, -1, 0, 3]), np.array([0.5, 1, 1, 9])
    rows = RNG.uniform(low, high, (3000, 4))
    rows[RNG.random(rows.shape) < 0.3] = np.nan
    scores = read_trees(model).scores(rows)
    scores = scores[:, 0] if what == "numbers" else scores
    found = score_range(model, low, high, missing=True)
    assert np.all(found.exact)
    assert np.all(found.low <= scores.min(axis=0))
    assert np.all(scores.max(axis=0) <= found.high)
    np.testing.assert_allclose(found.most, scores.max(axis=0), atol=0.2)
    plain = score_range(model, low, high)
    assert np.all(found.low <= plain.low) and np.all(plain.high <= found.high)


LABELS = ["red", "green", "blue", "black", "white"]


def frame_with(order, labels=None):
    """Two columns of numbers, one of categories in the given order, and a target."""
    pd = pytest.importorskip("pandas")
    rng = np.random.default_rng(3)
    code = rng.integers(0, 5, 400)
    x = rng.normal(size=400)
    names = np.array(LABELS)[code] if labels is None else labels
    table = {"x": x, "colour": pd.Categorical(names, categories=order), "z": x**2}
    return pd.DataFrame(table), np.array([3.0, -2.0, 0.0, 1.0, 5.0])[code] + x


def coloured(library):
    """A model that splits by sets of categories, and the rows and target of its fit."""
    sets = {
        "lightgbm": {"min_data_per_group": 1, "cat_smooth": 0},
        "xgboost": {"enable_categorical": True, "max_cat_to_onehot": 1},
    }
    X, y = frame_with(LABELS)
    return models(library, "numbers", **sets[library]).fit(X, y), X, y


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("library", ["lightgbm", "xgboost"])
def test_categories_in_another_order_give_the_same_numbers(library):
    """The codes of a frame follow its own list, those of the trees that of the fit."""
    model, _, y = coloured(library)
    trees = read_trees(model)
    for order in (LABELS, LABELS[::-1], [*LABELS[2:], "unused", *LABELS[:2]]):
        rows, _ = frame_with(order)
        rows.loc[:20, "colour"] = None
        found = trees.predict(read_rows(model, rows))
        np.testing.assert_allclose(found, model.predict(rows), rtol=1e-5, atol=1e-5)
        rows, _ = frame_with(order)
        claim = certus.certify(model, rows, y)["same_predictions"]
        assert claim.met
        explained = certus.explain(model, rows[:4], background=rows[4:12])
        total = explained.base + explained.values.sum(axis=1)
        np.testing.assert_allclose(total[:, 0], model.predict(rows[:4]), atol=1e-4)


@pytest.mark.filterwarnings("ignore")
def test_categories_without_a_code_of_the_fit_are_refused():
    """XGBoost takes another category in their place and says nothing."""
    model, X, y = coloured("xgboost")
    other = frame_with([*LABELS, "violet"])[0]
    other.loc[3, "colour"] = "violet"
    for use in (read_rows, lambda m, rows: certus.certify(m, rows, y)):
        with pytest.raises(ValueError, match="category 'violet', which the fit"):
            use(model, other)
    plain = models("xgboost", "numbers").fit(np.column_stack([X["x"]] * 3), y)
    with pytest.raises(ValueError, match="does not keep the categories of column 1"):
        read_rows(plain, X)
    names = ["gr\u00fcn", "blau", "rot", "wei\u00df", "gelb"]
    X, y = frame_with(names, np.array(names)[np.arange(400) % 5])
    beyond = models("xgboost", "numbers", enable_categorical=True).fit(X, y)
    with pytest.raises(ValueError, match="beyond ASCII"):
        read_rows(beyond, X)
    plain = models("lightgbm", "numbers").fit(np.column_stack([X["x"]] * 3), y)
    with pytest.raises(ValueError, match="keeps the categories of 0"):
        read_rows(plain, X)


#: Options of a fit, and whether the leaves are proved or why they are refused.
STARTS = {
    ("lightgbm", "numbers", "boost_from_average"): (False, None),
    ("lightgbm", "two", "boost_from_average"): (False, None),
    ("lightgbm", "three", "boost_from_average"): (False, None),
    ("lightgbm", "numbers", "boosting_type"): ("dart", "'dart' drops"),
    ("lightgbm", "numbers", "data_sample_strategy"): ("goss", "draws rows at random"),
    ("lightgbm", "numbers", "max_delta_step"): (0.05, "max_delta_step moves"),
    ("xgboost", "numbers", "max_delta_step"): (0.05, "max_delta_step moves"),
    ("xgboost", "numbers", "booster"): ("dart", "'dart' drops"),
    ("xgboost", "three", "booster"): ("dart", "'dart' drops"),
    ("xgboost", "numbers", "base_score"): (2.0, None),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("case", STARTS, ids="-".join)
def test_leaves_are_proved_or_refused_for_every_kind_of_boosting(case):
    (library, what, option), (value, why) = case, STARTS[case]
    more = {"rate_drop": 0.5} if (library, value) == ("xgboost", "dart") else {}
    y = TARGETS[what]
    model = models(library, what, **{option: value}, **more).fit(X, y)
    found = certus.certify(model, X, y)
    assert found["same_predictions"].met
    claim = found["leaf_values"]
    if why is None:
        assert claim.met
    else:
        assert claim.strength.value == "refused" and why in claim.detail
    expected = model.predict(X) if what == "numbers" else model.predict_proba(X)
    read = read_trees(model).predict(read_rows(model, X))
    np.testing.assert_allclose(read, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("library", ["lightgbm", "xgboost"])
def test_starts_that_the_model_does_not_keep_are_refused(library):
    name = {"lightgbm": "init_score", "xgboost": "base_margin"}[library]
    start = np.linspace(-1, 1, len(Y))
    model = models(library, "numbers").fit(X, Y, **{name: start})
    claim = certus.certify(model, X, Y)["leaf_values"]
    assert claim.strength.value == "refused" and name in claim.detail


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", ["monotone_constraint", "mc", "monotonic_cst"])
def test_constraints_under_another_name_are_checked(name):
    model = models("lightgbm", "numbers", **{name: [1, 0, 0, 0]}).fit(X, Y)
    assert certus.certify(model, X, Y)["monotone_trees"].met


def violated(library):
    """A model of the library whose deepest leaf breaks its constraint on column 0."""
    model = models(library, "numbers", monotone_constraints=(1, 0, 0, 0)).fit(X, Y)
    if library == "lightgbm":
        tree = model.booster_.dump_model()["tree_info"][3]["tree_structure"]
        node, last = tree, None
        while "split_feature" in node:
            last = node if node["split_feature"] == 0 else last
            node = node["left_child"]
        leaf = last["right_child"]
        while "split_feature" in leaf:
            leaf = leaf["left_child"]
        model.booster_.set_leaf_output(3, leaf["leaf_index"], -9.0)
        return model
    told = json.loads(bytes(model.get_booster().save_raw("json")))
    tree = told["learner"]["gradient_booster"]["model"]["trees"][3]
    children = tree["left_children"], tree["right_children"]
    inner = [
        i
        for i, left in enumerate(children[0])
        if left >= 0 and tree["split_indices"][i] == 0
    ]
    leaf = children[1][inner[-1]]
    while children[0][leaf] >= 0:
        leaf = children[0][leaf]
    tree["split_conditions"][leaf] = -9.0
    model.load_model(bytearray(json.dumps(told).encode()))
    return model


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("library", ["lightgbm", "xgboost"])
def test_a_broken_constraint_is_refuted_with_two_rows(library):
    model = violated(library)
    found = certus.certify(model, X, Y)
    claim = found["monotone_trees"]
    assert found.status is Status.REFUTED
    assert claim.met is False and "moves the wrong way" in claim.detail
    rows = np.zeros((2, X.shape[1]))
    named = re.findall(r"\{([^}]*)\}", claim.detail)
    for row, cells in zip(rows, named, strict=True):
        for column, value in re.findall(r"(\d+): ([^,]+)", cells):
            row[int(column)] = float(value)
    np.testing.assert_array_equal(rows[0, 1:], rows[1, 1:])
    assert rows[0, 0] < rows[1, 0]
    first, second = model.predict(rows)
    assert first - second == pytest.approx(claim.value, abs=1e-4) and first > second


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("library", ["lightgbm", "xgboost"])
def test_a_booster_is_read_but_its_estimator_is_certified(library):
    model = models(library, "numbers").fit(X, Y)
    lightgbm = library == "lightgbm"
    booster = model.booster_ if lightgbm else model.get_booster()
    found = read_trees(booster).predict(read_rows(booster, X))
    np.testing.assert_allclose(found, model.predict(X), rtol=1e-5, atol=1e-5)
    with pytest.raises(TypeError, match="Certify the estimator, such as"):
        certus.certify(booster, X, Y)
