"""Strengths of penalties found with wide cells do the same with narrow ones."""

from __future__ import annotations

import numpy as np
import pytest

from certus.additive import AdditiveClassifier, AdditiveRegressor, coarsening, levels
from certus.additive.cells import Term, codes_of, edges_of
from certus.additive.coarsening import coarsen
from certus.additive.layout import Additive, TermLevels, layout_of, penalty_value
from certus.config import config_context
from certus.objectives import Squared

RNG = np.random.default_rng(0)
X = RNG.uniform(-1, 1, size=(4000, 2))


def problem() -> Additive:
    one, two = (edges_of(X[:, j], np.ones(len(X)), 96) for j in (0, 1))
    terms = [Term((0,), (one,)), Term((0, 1), (one[3::8], two[3::8]))]
    none = np.zeros(2, dtype=bool)
    share = np.full(len(X), 1 / len(X))
    codes, layout = codes_of(X, terms, none), layout_of(terms, none)
    return Additive(Squared(), codes, X[:, 0], share, layout)


def test_rows_lie_in_the_wide_cell_of_their_narrow_one() -> None:
    p = problem()
    rough = coarsen(p)
    assert rough is not None and rough.p.layout.size < 0.2 * p.layout.size
    np.testing.assert_array_equal(rough.p.codes, rough.place[p.codes])
    assert rough.p.layout.shapes == [(13,), (6, 6)]
    # About equally many rows in each, and missing values by themselves.
    counts = np.bincount(rough.p.codes[0], minlength=13)
    assert counts[0] == 0 and counts[1:].min() > 0.7 * counts[1:].max()
    assert coarsen(rough.p) is None


def test_a_smooth_shape_is_penalised_alike() -> None:
    p = problem()
    rough = coarsen(p)
    assert rough is not None
    for term, (q, r) in ((0, (3.0, 0.0)), (0, (0.0, 2.0)), (1, (3.0, 0.0))):
        chosen = TermLevels(np.zeros(2), np.zeros(2))
        chosen.smoothing[term], chosen.shrinkage[term] = q, r
        found = []
        for each, at in ((p, chosen), (rough.p, rough.levels(chosen))):
            w = np.zeros(each.layout.size)
            mass = np.bincount(each.codes[term], minlength=each.layout.size)
            total = np.bincount(each.codes[term], X[:, 0], each.layout.size)
            w[mass > 0] = (total[mass > 0]) / mass[mass > 0]
            first = each.layout.starts[term]
            shape = each.layout.shapes[term]
            w[first : each.layout.starts[term + 1]].reshape(shape)[0] = 0.0
            found.append(penalty_value(each.layout, at, w[:, None]))
        assert found[1] == pytest.approx(found[0], rel=0.25)
        again = rough.refined(rough.levels(chosen))
        np.testing.assert_allclose(again.smoothing, chosen.smoothing)


@pytest.mark.parametrize("labels", [False, True])
def test_predictions_are_as_good_as_with_all_cells(
    labels: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    z = np.sin(4 * X[:, 0]) + 2.0 * (X[:, 1] > 0.3)
    y = z + RNG.normal(size=len(X)) > 1 if labels else z + RNG.normal(size=len(X))
    made = AdditiveClassifier if labels else AdditiveRegressor
    some = slice(0, 700)

    def error() -> float:
        with config_context(certify="never"):
            model = made(interactions=0, max_bins=40).fit(X[some], y[some])
        if labels:
            p = model.predict_proba(X)[:, 1]
            return float(np.mean(np.square(p - y)))
        return float(np.mean(np.square(model.predict(X) - z)))

    quick = error()
    monkeypatch.setattr(levels, "coarsen", lambda p: None)
    monkeypatch.setattr(coarsening, "WORTH", 0.0)
    assert quick < 1.05 * error()
