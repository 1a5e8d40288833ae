"""Results have one form: fields, to_dict, to_frame, plot, and a view for notebooks."""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import json
import math
import pkgutil
import re
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import polars as pl
import pytest
from scipy.stats import norm
from sklearn.datasets import load_iris

import certus
from certus import (
    bounds,
    cluster,
    explanations,
    fairness,
    generative,
    kernels,
    language,
    memory,
    monitoring,
    neighbors,
    optimize,
    recommend,
    representation,
    robustness,
    selection,
)
from certus.linear_model import LinearRegression, LogisticRegression, Ridge
from certus.objectives import Sigmoid
from certus.report import answer_report, sample_report, text_report
from certus.results import Result, TableResult
from certus.selection.at_scale import compare_blocks
from certus.tables import load_example

pytestmark = pytest.mark.filterwarnings("ignore::certus.base.UncertifiedWarning")

#: Results with something to see.
DRAWN = {
    "AttentionMaps",
    "Bound",
    "CapacityCurve",
    "Comparison",
    "ContextUse",
    "Contributions",
    "Elbow",
    "Examination",
    "Frontier",
    "Generation",
    "GroupTable",
    "OptimalPolicy",
    "PolicyFrontier",
    "Record",
    "Recovery",
    "RobustAccuracy",
    "Summary",
    "Surprise",
}

X, y = load_iris(return_X_y=True)
X, y = X[:100], y[:100]
GROUP = np.where(X[:, 1] > 3, "wide", "narrow")


@cache
def model() -> Any:
    return LogisticRegression().fit(X, y)


@cache
def compared() -> Any:
    frame, target = load_example()
    return certus.compare(frame.drop(target), frame[target], models=[Ridge()])


@cache
def compared_blocks() -> Any:
    rng = np.random.default_rng(0)
    Z = rng.normal(size=(4000, 3))
    table = certus.scale.blocks(Z, Z @ [1.0, 2.0, 3.0] + rng.normal(size=4000))
    return compare_blocks(table, "y", models={"ridge": Ridge()})


@cache
def audited() -> Any:
    return certus.audit(model(), X, y, X_test=X, y_test=y, random_state=0)


@cache
def writer() -> Any:
    small = {"n_layers": 1, "width": 16, "heads": 2, "context": 16, "max_iter": 2}
    return language.LanguageModel(**small, random_state=0).fit("to be or not " * 9)


@cache
def tuned() -> Any:
    small = {"max_tokens": 4, "max_iter": 1, "random_state": 0}
    return language.GRPO(writer(), lambda x, y: len(y) / 9, **small).fit(["to <b>"])


@cache
def generated() -> Any:
    return writer().generate("to <b>", 20, draft=writer(), random_state=0)


@cache
def minimised() -> Any:
    objective = optimize.quadratic_objective(np.diag([1.0, 3.0]), np.ones(2))
    return optimize.gradient_descent(objective, np.zeros(2), max_iter=5)


def rechecked() -> Any:
    frame, target = load_example()
    found = compared()
    return selection.recheck(
        found.model, found.record(), frame.drop(target), frame[target]
    )


def traded() -> Any:
    wrapped = fairness.CovariancePenalty(LogisticRegression())
    values, kept = [0.0, 1.0], {"criterion": "independence", "random_state": 0}
    return fairness.frontier(wrapped, X, y, GROUP, "alpha", values, **kept)


@cache
def watched() -> Any:
    """A model in use; people in the new rows are older."""
    table, target = load_example()
    rows, truth = table.drop(target), table[target]
    older = rows.with_columns(rows["age"] + 20)
    return monitoring.watch(compared().model, older, truth)


THREAT = robustness.ThreatModel("linf", 0.1)
MADE: dict[str, Callable[[], Any]] = {
    "ColumnMove": lambda: watched().columns[0],
    "CoverageWatch": lambda: watched().coverage,
    "Watch": watched,
    "AnswerComparison": lambda: language.AnswerComparison(
        ["a <b>"], ["b"], ["c"], [np.nan], [1.0], [0.3]
    ),
    "AnswerReport": lambda: answer_report(tuned()),
    "Attacked": lambda: robustness.attack(model(), X, y, THREAT),
    "AttentionMaps": lambda: writer().attention("to <b>"),
    "Audit": audited,
    "BiasVariance": lambda: selection.ridge_bias_variance(
        np.eye(4), [2, 0, 0, 0], 1.0, 1.0, np.eye(4)
    ),
    "Bound": lambda: minimised().bounds[0],
    "CapacityCurve": lambda: memory.capacity(
        12, loads=[0.1, 0.5], n_trials=2, random_state=0
    ),
    "Comparison": compared,
    "ComparisonRow": lambda: compared().rows[0],
    "Contamination": lambda: language.contamination(["abcd", "efgh"], "bcd", 3),
    "Contributions": lambda: certus.explain(model(), X[:5], X),
    "ContextUse": lambda: writer().context_use("to be or not to be"),
    "DraftRecord": lambda: generated().draft,
    "Elbow": lambda: cluster.elbow(X, range(1, 5), random_state=0),
    "Evaluation": lambda: recommend.Evaluation(0.5, *[0.2] * 6, np.nan, 1.0, 8, 0),
    "Examination": lambda: generative.examine(X[:40], X[40:70], X[70:], random_state=0),
    "Exclusivity": lambda: fairness.exclusivity(y, model().predict(X), GROUP),
    "ExtractionRate": lambda: language.extraction_rate(
        language.NGramModel(2).fit("abababab"), "abababab", n=5, prompt=2, length=2
    ),
    "Figure": lambda: audited().figures[0],
    "Frontier": traded,
    "Generation": generated,
    "GroupTable": lambda: fairness.separation(y, model().predict(X), GROUP),
    "Interval": lambda: bounds.clopper_pearson(4, 86),
    "LipschitzBound": lambda: robustness.lipschitz_bound(model(), X),
    "LongestCopy": lambda: language.longest_copy("abcd", "bcde", held_out="efgh"),
    "MercerCheck": lambda: kernels.mercer_check(Sigmoid(1.0, coef0=-1.0), X),
    "NearestChange": lambda: explanations.nearest_change(model(), X[:1], X),
    "OptimalPolicy": lambda: language.optimal_policy([0.5, 0.5], [1.0, 0.0], beta=1.0),
    "PolicyFrontier": lambda: language.PolicyFrontier(
        np.array([0.0, 2.0]), *np.array([[0.1, 0.5], [0.0, 0.4], [0.2, 0.6]]), 0.1
    ),
    "Probe": lambda: representation.probe(
        lambda rows: rows, X[::2], y[::2], X[1::2], y[1::2]
    ),
    "Recheck": rechecked,
    "Record": minimised,
    "Recovery": lambda: fairness.recovery(X, GROUP, random_state=0),
    "Risk": lambda: neighbors.BayesClassifier([0.5, 0.5], [norm(-1), norm(1)]).risk(
        random_state=0
    ),
    "RobustAccuracy": lambda: robustness.robust_accuracy(
        model(), X, y, THREAT, radii=3, random_state=0
    ),
    "SampleReport": lambda: sample_report(
        generative.examine(X[:40], X[40:70], X[70:], random_state=0), title="<b>"
    ),
    "RuleSplit": lambda: compared_blocks().split,
    "Split": lambda: compared().split,
    "Summary": lambda: LinearRegression().fit(X, X[:, 0] + y).summary(X, X[:, 0] + y),
    "Surprise": lambda: writer().surprise("to <b>"),
    "TextReport": lambda: text_report(writer(), "to <b>"),
}


def known(cls: type = Result) -> set[type]:
    """All subclasses, once every module is imported."""
    found = {cls}
    for below in cls.__subclasses__():
        found |= known(below)
    return found


def test_every_result_is_looked_at_here():
    for module in pkgutil.walk_packages(certus.__path__, "certus."):
        if not module.name.startswith("certus.cli"):
            importlib.import_module(module.name)
    names = {cls.__name__ for cls in known()} - {"Result", "TableResult"}
    assert names == set(MADE)


@pytest.mark.parametrize("name", sorted(MADE))
def test_every_result_has_the_common_form(name):
    found = MADE[name]()
    assert type(found).__name__ == name and isinstance(found, Result)
    assert dataclasses.is_dataclass(found)
    with pytest.raises(dataclasses.FrozenInstanceError):
        setattr(found, dataclasses.fields(found)[0].name, None)
    data = json.loads(json.dumps(found.to_dict(), allow_nan=False))
    assert data and all(isinstance(key, str) for key in data)
    page = found._repr_html_()
    assert page.startswith("<") and "<script" not in page
    if isinstance(found, TableResult):
        frame = found.to_frame()
        assert isinstance(frame, pl.DataFrame) and frame.width and frame.height
    assert hasattr(found, "plot") == (name in DRAWN)


@pytest.mark.parametrize("name", sorted(DRAWN))
def test_a_picture_is_drawn_on_the_given_axes(name):
    from matplotlib.figure import Figure

    found, figure = MADE[name](), Figure()
    place = next(iter(inspect.signature(found.plot).parameters))
    drawn = found.plot(**{place: figure if place == "figure" else figure.subplots()})
    axes = drawn.axes if place == "figure" else [drawn]
    assert any(ax.has_data() for ax in axes)


def test_code_in_names_is_not_run():
    table = fairness.independence(y, np.where(y == 1, "<b>x", "z"))
    assert "<b>x" not in table._repr_html_() and "&lt;b&gt;x" in table._repr_html_()


def test_words_align_left_numbers_right_and_wide_tables_scroll():
    from certus.language import AnswerComparison

    found = AnswerComparison(["a 1e5"], ["b"], ["c"], [math.nan], [1e-9], [-0.3])
    page = found._repr_html_()
    sides = re.findall(r'<td style="text-align:(\w+)">', page)
    assert sides == ["left"] * 3 + ["right"] * 3
    assert page.count("<th ") == 6
    assert '<div style="overflow-x:auto"><table>' in page
    empty = AnswerComparison([], [], [], [], [], [])._repr_html_()
    assert empty.count("<th ") == 6 and "<td" not in empty
