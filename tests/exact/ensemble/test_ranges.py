"""The range of scores over a box, beside all points of a grid."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.ensemble import HistGradientBoostingRegressor as Theirs

from certus.ensemble import (
    ExtraTreesRegressor,
    HistGradientBoostingClassifier,
    HistGradientBoostingRegressor,
    RandomForestClassifier,
    RandomForestRegressor,
    score_range,
)

RNG = np.random.default_rng(0)
X = RNG.integers(0, 7, size=(400, 3)).astype(float)
Y = np.sin(X[:, 0]) * X[:, 1] + (X[:, 2] % 3 == 1) + 0.1 * RNG.normal(size=400)
KINDS = np.digitize(Y, [-1.0, 1.0])
BOXES = [
    ((1, 0, 2), (4, 3, 5)),
    ((2, 2, 2), (2, 2, 2)),
    ((-np.inf,) * 3, (np.inf,) * 3),
]


def points(low, high, holes=False):
    """All rows of the box between whose cells no model here can tell."""
    ends = zip(np.maximum(low, -1), np.minimum(high, 8))
    axes = [np.arange(a, b + 1) for a, b in ends]
    axes = [np.append(axis, np.nan) for axis in axes] if holes else axes
    return np.stack(np.meshgrid(*axes), axis=-1).reshape(-1, 3)


MODELS = {
    "boosting": HistGradientBoostingRegressor(max_iter=4, max_leaf_nodes=5),
    "stumps": HistGradientBoostingRegressor(max_iter=60, max_leaf_nodes=2),
    "sets": HistGradientBoostingRegressor(
        max_iter=9, max_leaf_nodes=4, categorical_features=[0, 2]
    ),
    "forest": RandomForestRegressor(4, max_depth=3, random_state=0),
}


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("box", BOXES, ids=str)
def test_the_range_of_a_box_is_that_of_its_grid(name, box):
    model = MODELS[name].fit(X, Y)
    score, found = model.predict(points(*box)), model.score_range(*box)
    assert found.exact
    assert found.low <= score.min() and score.max() <= found.high
    assert found.least == pytest.approx(score.min(), abs=1e-12)
    assert found.most == pytest.approx(score.max(), abs=1e-12)
    assert found.high - found.low <= np.ptp(score) + 1e-10


def test_missing_cells_are_counted_if_asked():
    holes = np.where(RNG.random(X.shape) < 0.2, np.nan, X)
    box = (1, 0, 2), (4, 3, 5)
    for sets in (None, [0, 2]):
        model = Theirs(max_iter=5, max_leaf_nodes=5, categorical_features=sets)
        model.fit(holes, Y + 3 * np.isnan(holes[:, 1]))
        wide = model.predict(points(*box, holes=True))
        found = score_range(model, *box, missing=True)
        assert (found.least, found.most) == pytest.approx((wide.min(), wide.max()))
        one = score_range(model, *box, missing=[False, True, False])
        assert found.low <= one.low <= one.high <= found.high
        assert score_range(model, *box).most < found.most


def test_each_class_has_a_range_of_its_own():
    box = (1, 0, 2), (4, 3, 5)
    model = HistGradientBoostingClassifier(max_iter=3, max_leaf_nodes=4)
    model.fit(X, KINDS)
    scores = model.trees_.scores(points(*box))
    found = model.score_range(*box)
    assert found.exact.all()
    np.testing.assert_allclose(found.least, scores.min(axis=0), atol=1e-12)
    np.testing.assert_allclose(found.most, scores.max(axis=0), atol=1e-12)
    forest = RandomForestClassifier(3, max_depth=3, random_state=0).fit(X, KINDS)
    shares = forest.predict_proba(points(*box))
    found = forest.score_range(*box)
    assert (found.low <= shares.min(axis=0)).all()
    assert (shares.max(axis=0) <= found.high).all()


def test_a_search_that_is_cut_off_leaves_a_bound(monkeypatch):
    from certus.verify import tree_ranges

    model = HistGradientBoostingRegressor(max_iter=30).fit(X, Y)
    score = model.predict(points(*BOXES[0]))
    monkeypatch.setattr(tree_ranges, "MOST", 10)
    found = model.score_range(*BOXES[0])
    assert not found.exact
    assert found.low <= score.min() <= found.least
    assert found.most <= score.max() <= found.high


def test_rows_of_float32_trees_are_rounded_as_the_trees_do():
    """An end that rounds down to a threshold belongs to the left leaf."""
    A = np.repeat(np.array([[0.1], [0.3]], dtype=np.float32), 5, axis=0)
    seen = 0
    for seed in range(10):
        model = ExtraTreesRegressor(1, random_state=seed).fit(A, [0.0] * 5 + [1.0] * 5)
        above = np.nextafter(model.trees_.threshold[0], 1)
        if np.float32(above) < above:
            seen += 1
            assert model.predict([[above]]) == 0.0
            assert model.score_range(above, above).low <= 0.0
    assert seen


def test_a_box_is_checked():
    model = MODELS["boosting"].fit(X, Y)
    with pytest.raises(ValueError, match="must not be above"):
        model.score_range([0, 0, 1], [1, 1, 0])
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(X).assign(
        kind=pandas.Categorical(np.where(X[:, 0] > 3, "a", "b"))
    )
    frame.columns = list("pqrs")
    named = HistGradientBoostingRegressor(max_iter=3).fit(frame, Y)
    free = np.array([0, 0, 0, -np.inf]), np.array([6, 6, 6, np.inf])
    found, score = named.score_range(*free), named.predict(frame)
    assert found.low <= score.min() and score.max() <= found.high
    with pytest.raises(ValueError, match="must be infinite"):
        named.score_range(0, 6)
