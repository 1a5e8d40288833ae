"""The nearest change against all changes, tried one after the other."""

from __future__ import annotations

from itertools import combinations, product
from typing import Any

import numpy as np
import pytest
from sklearn.datasets import load_diabetes
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression, Ridge

from certus.additive import AdditiveRegressor
from certus.explanations import nearest_change

X, y = load_diabetes(return_X_y=True)
X = X[:, :4]


def brute(f: Any, row: Any, behind: Any, cut: float) -> tuple[int, float]:
    """Fewest columns and the smallest largest change, over all changes."""
    spread, before = behind.std(axis=0), f(row[None])[0] < cut
    for count in range(1, len(row) + 1):
        best = np.inf
        for columns in combinations(range(len(row)), count):
            for rows in product(range(len(behind)), repeat=count):
                changed = row.copy()
                changed[list(columns)] = behind[list(rows), list(columns)]
                if (f(changed[None])[0] < cut) != before:
                    size = np.abs(changed - row) / spread
                    best = min(best, float(size.max()))
        if best < np.inf:
            return count, best
    return 0, np.inf


@pytest.mark.parametrize("model", [Ridge(alpha=0.01), AdditiveRegressor()])
def test_sums_over_columns_are_solved_exactly(model: Any) -> None:
    model.fit(X, y)
    behind, several = X[60:66], 0
    for row, step in zip(X[:4], (25.0, 25.0, 70.0, 70.0)):
        here = model.predict(row[None])[0]
        cut = here + (step if here < 150 else -step)
        found = nearest_change(model, row[None], behind, threshold=cut)
        count, size = brute(model.predict, row, behind, cut)
        if not count:
            assert found.columns == () and found.claims[-1].met
            continue
        several += count > 1
        assert found.fewest == (count, count) and len(found.columns) == count
        assert found.size == pytest.approx(size)
        assert all(claim.met for claim in found.claims)
    assert several


def test_trees_have_a_bracket() -> None:
    model = HistGradientBoostingClassifier(max_iter=15).fit(X, y > 140)
    counts = set()
    for row in X[:6]:
        found = nearest_change(model, row[None], X[60:68])
        low, high = found.fewest
        count, size = brute(model.decision_function, row, X[60:68], 0.0)
        assert low <= count <= high and found.claims[0].met
        if high == 1:
            assert found.size == pytest.approx(size)
        counts.add(high)
    assert 1 in counts


def test_fixed_columns_stay_and_errors_say_what_to_do() -> None:
    model = LogisticRegression(C=1e4).fit(X, y > 140)
    found = nearest_change(model, X[:1], X[60:90], fixed=["x2"])
    assert "x2" not in found.columns
    with pytest.raises(ValueError, match="one row, got 2"):
        nearest_change(model, X[:2], X[60:90])
    with pytest.raises(ValueError, match="not a column"):
        nearest_change(model, X[:1], X[60:90], fixed=["x9"])
    with pytest.raises(ValueError, match="pass threshold="):
        nearest_change(Ridge().fit(X, y), X[:1], X[60:90])
