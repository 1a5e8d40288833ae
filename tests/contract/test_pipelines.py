"""A model of ours in scikit-learn's pipelines and searches keeps its certificate."""

from __future__ import annotations

import re
from typing import Any

import pytest
from sklearn.compose import ColumnTransformer
from sklearn.datasets import load_diabetes
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import StandardScaler

import certus
from certus.fairness import CovariancePenalty
from certus.linear_model import Lasso, LogisticRegression

X, y = load_diabetes(return_X_y=True)
CAPTION = re.compile(r'<div class="caption">✓ solved: [^<]+</div>')


def wrapped() -> dict[str, Any]:
    pipeline = make_pipeline(StandardScaler(), Lasso())
    columns = ColumnTransformer([("all", StandardScaler(), slice(0, 10))])
    grid = {"lasso__alpha": [0.1, 1.0]}
    return {
        "pipeline": pipeline,
        "columns": make_pipeline(columns, Lasso()),
        "nested": Pipeline([("inner", make_pipeline(StandardScaler(), Lasso()))]),
        "search": GridSearchCV(pipeline, grid, cv=3),
    }


@pytest.mark.parametrize("name", wrapped())
def test_the_diagram_shows_the_certificate_of_the_last_step(name: str) -> None:
    model = wrapped()[name]
    assert "certus-certificate" not in model._repr_html_()
    assert not CAPTION.search(model._repr_html_())
    page = model.fit(X, y)._repr_html_()
    assert page.count("certus-certificate") >= 1
    assert len(CAPTION.findall(page)) == 1  # seen without unfolding anything
    certificate = certus.certify(model, X, y)
    assert certificate.met and certificate.model.startswith("Lasso")
    assert certificate.n_features == 10


def test_a_model_by_itself_shows_its_certificate_once() -> None:
    model = Lasso().fit(X, y)
    headline = model.certificate_.headline.split(" · ")[1]
    assert model._repr_html_().count(headline) == 1
    inside = make_pipeline(StandardScaler(), model)._repr_html_()
    assert inside.count(headline) == 1


def test_a_missed_target_is_seen_in_the_diagram() -> None:
    model = make_pipeline(StandardScaler(), LogisticRegression(max_iter=1))
    with certus.config_context(on_uncertified="ignore"):
        model.fit(X, y > 140)
    captions = re.findall(r'<div class="caption">([^<]*)</div>', model._repr_html_())
    assert any("✓" not in text and "minimum" in text for text in captions)


def test_models_inside_our_models_are_still_drawn() -> None:
    model = make_pipeline(StandardScaler(), CovariancePenalty(LogisticRegression()))
    page = model._repr_html_()
    assert page.count('class="sk-parallel"') == 1 and "LogisticRegression" in page
