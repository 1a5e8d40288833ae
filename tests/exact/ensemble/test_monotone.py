"""The search for a fall of a sum of trees, beside all points of a grid."""

from __future__ import annotations

import numpy as np
import pytest

from certus.ensemble import HistGradientBoostingClassifier
from certus.robustness import ThreatModel, robust_accuracy
from certus.trees import TreeEnsemble
from certus.verify import prove_trees, tree_reading, tree_walks


def random_trees(rng, n_trees, depth, columns=2, cuts=3):
    """Full trees with few different thresholds, so that trees share them."""
    size = 2 ** (depth + 1) - 1
    inner = 2**depth - 1
    each = np.arange(size)
    feature = np.where(
        np.tile(each, n_trees) < inner, rng.integers(0, columns, size * n_trees), -1
    )
    starts = np.repeat(size * np.arange(n_trees), size)
    leaf = feature < 0
    child = np.tile(2 * each, n_trees) + starts
    return TreeEnsemble(
        feature=feature,
        threshold=rng.integers(0, cuts, size * n_trees).astype(float),
        left=np.where(leaf, -1, child + 1),
        right=np.where(leaf, -1, child + 2),
        value=rng.integers(-1, 8, size * n_trees).astype(float)[:, None],
        missing_left=np.zeros(size * n_trees, dtype=bool),
        other_left=np.zeros(size * n_trees, dtype=bool),
        category=np.full(size * n_trees, -1),
        bits=np.zeros((0, 0), dtype=np.uint32),
        roots=size * np.arange(n_trees),
        output=np.zeros(n_trees, dtype=int),
        baseline=np.zeros(1),
        n_features=columns,
    )


def test_a_decrease_is_found_exactly_where_the_grid_has_one():
    rng = np.random.default_rng(0)
    grid = np.arange(-0.5, 4)
    points = np.stack(np.meshgrid(grid, grid, indexing="ij"), axis=-1)
    seen = set()
    for _ in range(60):
        trees = random_trees(rng, int(rng.integers(1, 4)), 2)
        # Leaves that mostly rise with column 0, so that both answers occur.
        scores = trees.scores(points.reshape(-1, 2)).reshape(len(grid), len(grid))
        steps = np.diff(scores, axis=0)
        holder = type("Holder", (), {"trees_": trees})()
        forest = tree_reading.of_arrays(holder)
        fall = tree_walks.worst_step(forest, 0, 1, 0)
        assert fall is not None and (fall.exact or fall.change >= 0)
        assert np.isclose(min(fall.change, 0.0), min(steps.min(), 0.0))
        if fall.change < 0:
            pair = np.stack(tree_walks.two_points(fall, 0, 2))
            assert np.isclose(np.diff(trees.scores(pair)[:, 0])[0], fall.change)
        seen.add(bool(fall.change < 0))
    assert True in seen


def ensemble_of(stumps):
    """Splits of column 0 at 0.5, from the values below and above."""
    n = len(stumps)
    split = np.tile([True, False, False], n)
    start = np.repeat(3 * np.arange(n), 3)
    values = [v for below, above in stumps for v in (0.0, below, above)]
    return TreeEnsemble(
        feature=np.where(split, 0, -1),
        threshold=np.where(split, 0.5, 0.0),
        left=np.where(split, start + 1, -1),
        right=np.where(split, start + 2, -1),
        value=np.array(values)[:, None],
        missing_left=np.zeros(3 * n, dtype=bool),
        other_left=np.zeros(3 * n, dtype=bool),
        category=np.full(3 * n, -1),
        bits=np.zeros((0, 0), dtype=np.uint32),
        roots=3 * np.arange(n),
        output=np.zeros(n, dtype=int),
        baseline=np.zeros(1),
        n_features=1,
    )


def test_a_decrease_that_rounding_hides_is_found():
    """The first difference is −2⁵³ − 1, which is −2⁵³ as a number."""
    top = 2.0**53
    for last, falls in ((top, True), (top + 2, False)):
        trees = ensemble_of([(top, -1.0), (0.0, last)])
        forest = tree_reading.of_arrays(type("Holder", (), {"trees_": trees})())
        fall = tree_walks.worst_step(forest, 0, 1, 0)
        assert (fall.change < 0) is falls
        if falls:
            assert fall.exact and fall.change == -1.0


@pytest.mark.parametrize("norm", ["l2", "l1"])
def test_a_proof_in_the_box_is_a_lower_bound_for_other_norms(norm):
    rng = np.random.default_rng(2)
    X = rng.normal(size=(200, 3))
    y = (X[:, 0] + 0.5 * X[:, 1] > 0).astype(int)
    model = HistGradientBoostingClassifier(max_iter=10, max_leaf_nodes=2).fit(X, y)
    found, cube = (
        prove_trees(model, X[:40], y[:40], ThreatModel(each, 0.2), [0.2])
        for each in (norm, "linf")
    )
    assert "exact" not in found.method and "box around the ball" in found.method
    assert "exact, because all" in cube.method
    assert np.array_equal(found.certified, cube.certified)
    assert 0 < found.certified.sum() < 40


def test_the_exact_bracket_of_stumps_closes():
    """Proof and attack meet, and no row of the box has another label."""
    rng = np.random.default_rng(2)
    X = rng.normal(size=(200, 3))
    y = (X[:, 0] + 0.5 * X[:, 1] > 0).astype(int)
    model = HistGradientBoostingClassifier(max_iter=10, max_leaf_nodes=2).fit(X, y)
    threat = ThreatModel("linf", 0.1)
    found = robust_accuracy(model, X[:40], y[:40], threat, radii=1, random_state=0)
    assert "exact, because all" in str(found)
    assert 0 < found.lower <= found.upper
    near = X[:40, None] + rng.uniform(-0.1, 0.1, (40, 100, 3))
    same = model.predict(near.reshape(-1, 3)).reshape(40, 100) == y[:40, None]
    assert found.lower <= same.all(axis=1).mean()
