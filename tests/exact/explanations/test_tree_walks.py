"""The verifier's walk of pairs of rows, and the benchmark's reference."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestRegressor

import certus
from certus.ensemble import read_trees
from certus.verify import explained_trees

ROOT = Path(__file__).parents[3]
RNG = np.random.default_rng(3)
X = RNG.normal(size=(300, 9))
X[RNG.random(X.shape) < 0.05] = np.nan
Y = np.nan_to_num(X[:, 0] * X[:, 1] + X[:, 2] - X[:, 8])
OWNER = np.arange(9)


def walked(trees: Any, owner: Any = OWNER, d: int = 9) -> Any:
    return explained_trees.tree_shares(trees, X[:5], X[50:75], owner, d)


@pytest.fixture(scope="module")
def trees() -> Any:
    kinds = np.digitize(Y, [-0.5, 0.5])
    return read_trees(HistGradientBoostingClassifier(max_iter=6).fit(X, kinds))


@pytest.mark.parametrize("bits", [1, 2, 4])
def test_several_words_of_columns_give_the_same(
    trees: Any, bits: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = walked(trees)
    monkeypatch.setattr(explained_trees, "BITS", bits)
    for found, one in zip(walked(trees), expected):
        np.testing.assert_allclose(found, one, atol=1e-14)


def test_trees_in_several_parts_give_the_same(
    trees: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = walked(trees)
    monkeypatch.setattr(explained_trees, "TOGETHER", 300)
    for found, one in zip(walked(trees), expected):
        np.testing.assert_allclose(found, one, atol=1e-14)


def test_shares_add_up_and_their_sizes_bound_them(trees: Any) -> None:
    shares, sizes, scores, terms = walked(trees)
    behind = trees.scores(X[50:75]).mean(axis=0)
    np.testing.assert_allclose(shares.sum(axis=1) + behind, scores, atol=1e-12)
    np.testing.assert_allclose(scores, trees.scores(X[:5]), atol=1e-12)
    assert (np.abs(shares) <= sizes + 1e-15).all() and terms > 25


def test_columns_of_one_owner_are_one_player(trees: Any) -> None:
    owner = np.array([0, 0, 1, 2, 2, 2, 3, 3, 4])
    shares, _, scores, _ = walked(trees, owner, 5)
    behind = trees.scores(X[50:75]).mean(axis=0)
    assert shares.shape == (5, 5, 3)
    np.testing.assert_allclose(shares.sum(axis=1) + behind, scores, atol=1e-12)


def test_the_claim_says_how_many_rows_were_computed_again() -> None:
    filled = np.nan_to_num(X)
    model = RandomForestRegressor(5, random_state=0).fit(filled, Y)
    found = certus.explain(model, filled[:40], filled[50:90])
    said = found.certificate["contributions"]
    assert said.met and " of 40 rows are the sums over all leaves" in said.detail
    full = found.certify(model, filled[:40], filled[50:90], level="full")
    assert "in 40 of 40 rows" in full["contributions"].detail


def test_the_reference_of_the_benchmark_is_the_definition(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.syspath_prepend(str(ROOT))
    measured = import_module("benchmarks.explanations")
    w = np.arange(1.0, 5.0)

    class Product:
        def predict(self, Z: Any) -> Any:
            return Z @ w + Z[:, 0] * Z[:, 1]

    rows, behind = RNG.normal(size=(3, 4)), RNG.normal(size=(6, 4))
    found = measured.defined(measured.Case("made", Product(), rows, behind))
    model = Product().predict
    np.testing.assert_allclose(
        found, certus.explain(model, rows, behind).values[:, :, 0], atol=1e-12
    )
