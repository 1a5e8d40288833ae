"""The best tree, its exact draws, and what the verifier says about it."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from scipy.stats import chisquare

import certus
from certus.generative.trees import chow_liu
from certus.synth import ChowLiuTree

RNG = np.random.default_rng(0)


def chain(n: int = 800) -> Any:
    a = RNG.integers(0, 3, n)
    b = (a + (RNG.random(n) < 0.2)) % 3
    c = (b + (RNG.random(n) < 0.3)) % 2
    d = RNG.integers(0, 2, n)
    return np.column_stack([d, a, c, b])


def likelihood(X: Any, parents: list[int]) -> float:
    """The mean log-likelihood of a tree with empirical tables, counted row by row."""
    total = 0.0
    for j, parent in enumerate(parents):
        given = X[:, parent] if parent >= 0 else np.zeros(len(X), int)
        for cell in np.unique(given):
            own = X[given == cell, j]
            p = np.bincount(own) / len(own)
            total += len(own) * float(p[p > 0] @ np.log(p[p > 0]))
    return total / len(X)


def test_no_tree_of_four_columns_is_better() -> None:
    X = chain()
    tree = ChowLiuTree().fit(X)
    own = likelihood(X, tree.parents_.tolist())
    others = []
    for parents in itertools.product(range(-1, 4), repeat=4):
        at = list(range(4))
        if parents.count(-1) != 1:
            continue
        for _ in range(4):
            at = [parents[i] if parents[i] >= 0 else i for i in at]
        if all(parents[i] < 0 for i in at):
            others.append(likelihood(X, list(parents)))
    assert len(others) == 64 and own == pytest.approx(max(others), abs=1e-12)
    assert tree.certificate_.met and tree.certificate_["best_tree"].value < 1e-9


def test_without_smoothing_the_score_is_the_likelihood() -> None:
    X = chain()
    tree = ChowLiuTree().fit(X)
    n, k = len(X), tree.n_cells_[tree.parents_ < 0][0]
    own = likelihood(X, tree.parents_.tolist())
    # The root alone has 1/k of a row in each of its k cells.
    assert tree.score_samples(X).mean() == pytest.approx(own, abs=k / n)
    cells = np.array(list(itertools.product(*map(range, tree.n_cells_))))
    assert np.exp(tree.score_samples(cells)).sum() == pytest.approx(1.0)
    assert tree.score_samples([[0, 9, 0, 0]])[0] == -np.inf


def test_draws_under_conditions_follow_the_exact_distribution() -> None:
    X = chain()
    law = chow_liu(X, [2, 3, 2, 3], 1.0)
    cells = np.array(list(itertools.product(range(2), range(3), range(2), range(3))))
    p = np.exp(law.log_prob(cells))
    n = 20_000
    allowed = [np.ones((n, k)) for k in (2, 3, 2, 3)]
    allowed[2][:, 0] = 0.0  # the third column is 1
    allowed[1][:] = [1.0, 0.5, 0.0]  # the second is 0, or 1 with half the weight
    drawn = law.draw(allowed, np.random.default_rng(1))
    p = p * (cells[:, 2] == 1) * np.array([1.0, 0.5, 0.0])[cells[:, 1]]
    p /= p.sum()
    codes = drawn @ [18, 6, 3, 1]
    counts = np.bincount(codes, minlength=36)
    assert counts[p == 0].sum() == 0
    assert chisquare(counts[p > 0], n * p[p > 0]).pvalue > 1e-4


def test_a_worse_tree_and_wrong_tables_are_found() -> None:
    X = chain()
    tree = ChowLiuTree(smoothing=2.0).fit(X)
    assert certus.certify(tree, X).met
    good = tree.tables_
    tree.tables_ = [t * 1.001 for t in good]
    assert certus.certify(tree, X)["tree_tables"].met is False
    tree.tables_ = good
    found = [
        certus.certify(_with(tree, X, parents), X)["best_tree"].met
        for parents in ([-1, 0, 0, 0], [1, -1, 1, 2])
    ]
    assert found == [False, False]
    with pytest.raises(ValueError, match="make a tree"):
        certus.certify(_with(tree, X, [1, 0, 0, -1]), X)


def _with(tree: ChowLiuTree, X: Any, parents: list[int]) -> ChowLiuTree:
    from certus.generative.trees import tables_of

    made = ChowLiuTree(smoothing=tree.smoothing).fit(X)
    made.parents_ = np.array(parents)
    made.tables_ = tables_of(X, made.n_cells_.tolist(), made.parents_, tree.smoothing)
    return made


def test_rows_in_any_order_and_repeated_columns() -> None:
    X = chain()
    once, again = ChowLiuTree().fit(X), ChowLiuTree().fit(X[::-1])
    assert once.parents_.tolist() == again.parents_.tolist()
    twice = ChowLiuTree().fit(np.hstack([X, X[:, :1]]))
    assert abs(int(twice.parents_[4])) == 0 or twice.parents_[0] == 4
    assert twice.certificate_.met


@pytest.mark.parametrize("bad", [[[0.5, 1]], [[-1, 0]], [[np.nan, 0]]])
def test_cells_must_be_whole_numbers(bad: Any) -> None:
    with pytest.raises(ValueError, match=r"whole numbers|NaN"):
        ChowLiuTree().fit(bad * 5)
